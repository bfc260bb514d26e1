//! Writes the trace as an SVG picture: a row per lane, a box per event.

use core::fmt::{self, Write as _};

use super::lanes::lanes;
use super::{Activity, Class, Event, Trace};

const WIDTH: f64 = 1600.0;
/// Where the boxes begin, to the right of the names of the rows.
const LEFT: f64 = 190.0;
const TOP: f64 = 64.0;
const ROW: f64 = 20.0;
/// Height above the rows of each CTA.
const HEADING: f64 = 24.0;
/// Boxes narrower than this are not drawn.
const THINNEST: f64 = 0.05;
/// Boxes at least this wide have room for the number of a stage.
const LABELLED: f64 = 12.0;

const LEGEND: [(&str, &str); 8] = [
    ("wait", "#e3e3e3"),
    ("compute", "#9aa5b1"),
    ("global memory", "#e69f00"),
    ("shared memory", "#f0e442"),
    ("synchronise", "#cc79a7"),
    ("copies", "#56b4e9"),
    ("wgmma", "#009e73"),
    ("stores", "#d55e00"),
];

pub(super) fn write(trace: &Trace) -> String {
    let mut text = String::new();
    // Writing to a string cannot fail.
    let _ = document(&mut text, trace);
    text
}

fn colour(activity: &Activity) -> &'static str {
    let index = match activity {
        Activity::Wait(_) => 0,
        Activity::Run { class: Class::Compute, .. } => 1,
        Activity::Run { class: Class::Global, .. } => 2,
        Activity::Run { class: Class::Shared, .. } => 3,
        Activity::Run { class: Class::Synchronise, .. } => 4,
        Activity::Run { class: Class::Copy, .. } | Activity::Load { .. } => 5,
        Activity::Run { class: Class::Multiply, .. } | Activity::Multiply { .. } => 6,
        Activity::Store { .. } => 7,
    };
    LEGEND[index].1
}

fn document(text: &mut String, trace: &Trace) -> fmt::Result {
    let lanes = lanes(trace);
    let ctas = lanes.chunk_by(|a, b| a.cta == b.cta).count();
    let height = TOP + lanes.len() as f64 * ROW + ctas as f64 * HEADING + 10.0;
    let steps = trace.steps();
    let scale = (WIDTH - LEFT - 10.0) / steps.max(1) as f64;
    writeln!(
        text,
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{WIDTH}\" height=\"{height}\" \
         font-family=\"sans-serif\" font-size=\"11\">\n<rect width=\"100%\" height=\"100%\" fill=\"white\"/>"
    )?;
    writeln!(text, "<text x=\"8\" y=\"18\" font-size=\"14\">{}</text>", Escaped(&trace.kernel))?;
    writeln!(text, "<text x=\"8\" y=\"34\">{steps} steps of the emulator, which are not time</text>")?;
    for (index, (name, colour)) in LEGEND.into_iter().enumerate() {
        let x = 8.0 + index as f64 * 120.0;
        writeln!(text, "<rect x=\"{x}\" y=\"42\" width=\"12\" height=\"12\" fill=\"{colour}\"/>")?;
        writeln!(text, "<text x=\"{}\" y=\"52\">{name}</text>", x + 16.0)?;
    }
    let mut y = TOP;
    for rows in lanes.chunk_by(|a, b| a.cta == b.cta) {
        let [cx, cy, cz] = rows.first().map_or([0; 3], |lane| lane.cta);
        writeln!(
            text,
            "<text x=\"8\" y=\"{}\" font-weight=\"bold\">CTA ({cx}, {cy}, {cz})</text>",
            y + 16.0
        )?;
        y += HEADING;
        for lane in rows {
            writeln!(text, "<text x=\"8\" y=\"{}\">{}</text>", y + 14.0, Escaped(&lane.name))?;
            lane.events.iter().try_for_each(|event| draw(text, event, y, scale))?;
            y += ROW;
        }
    }
    text.push_str("</svg>\n");
    Ok(())
}

fn draw(text: &mut String, event: &Event, y: f64, scale: f64) -> fmt::Result {
    let (x, width) = (LEFT + event.start as f64 * scale, (event.end - event.start) as f64 * scale);
    if width < THINNEST {
        return Ok(());
    }
    let (fill, height) = (colour(&event.activity), ROW - 4.0);
    write!(
        text,
        "<rect x=\"{x:.2}\" y=\"{}\" width=\"{width:.2}\" height=\"{height}\" fill=\"{fill}\"><title>{}",
        y + 2.0,
        event.label()
    )?;
    if let Some(stage) = event.stage {
        write!(text, ", stage {stage}")?;
    }
    if let Activity::Wait(on) = &event.activity {
        write!(text, ": {}", Escaped(&on.to_string()))?;
    }
    write!(text, ", steps {} to {}", event.start, event.end)?;
    if !event.scopes.is_empty() {
        write!(text, ", in {}", Escaped(&event.scopes.join(" / ")))?;
    }
    writeln!(text, "</title></rect>")?;
    match event.stage {
        Some(stage) if width >= LABELLED => {
            writeln!(
                text,
                "<text x=\"{:.2}\" y=\"{}\" pointer-events=\"none\">{stage}</text>",
                x + 3.0,
                y + 14.0
            )
        }
        Some(_) | None => Ok(()),
    }
}

/// Text between tags.
struct Escaped<'a>(&'a str);

impl fmt::Display for Escaped<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.chars().try_for_each(|character| match character {
            '<' => f.write_str("&lt;"),
            '>' => f.write_str("&gt;"),
            '&' => f.write_str("&amp;"),
            other => f.write_char(other),
        })
    }
}
