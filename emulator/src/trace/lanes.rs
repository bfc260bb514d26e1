//! Rows of a picture: one per track, or more if events of the track overlap.

use super::{Event, Trace, Track};

/// One row of a picture of a trace.
#[derive(Clone, Debug, PartialEq)]
pub struct Lane<'t> {
    /// The CTA's coordinates in the grid.
    pub cta: [u32; 3],
    /// Name of the track. For a warp it includes the role: the scope with most of its events.
    pub name: String,
    /// The events in order of start. They do not overlap.
    pub events: Vec<&'t Event>,
}

/// The rows of a trace, CTA by CTA.
pub(super) fn lanes(trace: &Trace) -> Vec<Lane<'_>> {
    let mut lanes = Vec::new();
    for track in trace.events.chunk_by(|a, b| (a.cta, a.track) == (b.cta, b.track)) {
        let Some(first) = track.first() else { continue };
        let mut rows: Vec<Vec<&Event>> = Vec::new();
        for event in track {
            let free = |row: &&mut Vec<&Event>| row.last().is_none_or(|last| last.end <= event.start);
            match rows.iter_mut().find(free) {
                Some(row) => row.push(event),
                None => rows.push(vec![event]),
            }
        }
        let name = name(first.track, track);
        let several = rows.len() > 1;
        for (index, events) in rows.into_iter().enumerate() {
            let name = if several { format!("{name} {index}") } else { name.clone() };
            lanes.push(Lane { cta: first.cta, name, events });
        }
    }
    lanes
}

/// The name of a track. For a warp it includes the role: the scope with most of its events.
fn name(track: Track, events: &[Event]) -> String {
    match track {
        Track::Loads => "tensor loads".to_owned(),
        Track::Stores => "tensor stores".to_owned(),
        Track::Multiplies(group) => format!("wgmma of warpgroup {group}"),
        Track::Warp(index) => {
            let mut roles: Vec<(&str, usize)> = Vec::new();
            for role in events.iter().filter_map(|event| event.scopes.first()) {
                match roles.iter_mut().find(|(known, _)| **role == **known) {
                    Some((_, count)) => *count += 1,
                    None => roles.push((role, 1)),
                }
            }
            match roles.into_iter().max_by_key(|(_, count)| *count) {
                Some((role, _)) => format!("warp {index}: {role}"),
                None => format!("warp {index}"),
            }
        }
    }
}
