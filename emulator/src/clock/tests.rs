//! Tests of clocks and views.

use std::sync::Arc;

use super::*;

#[test]
fn what_is_known_travels_and_nothing_else() {
    let near = Team { first: 4, warps: 4, per_cta: 4, gpus: None };
    let far = Team { first: 8, warps: 4, per_cta: 4, gpus: None };
    let mut writer = View::default();
    writer.known.raise(1, 7);
    writer.known.raise(5, 3);
    writer.started = 1;
    assert_eq!(
        (writer.known.of(5, near), writer.known.of(9, near)),
        (7, 0),
        "a barrier's count is no warp's"
    );
    let mut reader = View::default();
    reader.read(&writer.write(near), far);
    assert_eq!((reader.known.of(5, far), reader.known.of(6, far)), (7, 0));
    let phases = near.number(5).unwrap();
    assert_eq!((reader.known.of(phases, far), reader.known.local(5)), (3, 0), "another cluster's barrier");
    assert_eq!(reader.started, 0, "another cluster's CTAs");
    assert_eq!(reader.fenced.of(5, far), 0, "nobody has fenced");
    reader.fence_proxy();
    assert_eq!(reader.fenced.of(5, far), 7);
    let mut back = View::default();
    back.read(&reader.write(far), near);
    assert_eq!((back.known.local(1), back.fenced.local(1)), (7, 7), "the way home");
    assert_eq!((back.known.local(5), back.known.of(phases, near)), (3, 3));
    let mut letter = Letter::default();
    letter.append(&reader.write(far));
    letter.append(&writer.write(near));
    back = View::default();
    back.read(&letter, near);
    assert_eq!(back.known.local(1), 7);
}

#[test]
fn what_both_know_is_what_each_lane_knows_of_each_lane() {
    let team = Team { first: 4, warps: 4, per_cta: 4, gpus: None };
    let (mut one, mut other) = (View::default(), View::default());
    one.known.raise(1, 7);
    one.known.raise_lanes(2, 0b11, 5);
    one.known.import(&Counts { near: vec![(20, 3), (21, 9)], ..Counts::default() }, team);
    one.stage(0);
    other.known.raise(1, 6);
    other.known.raise_lanes(2, 0b01, 9);
    other.known.raise(3, 2);
    other.known.import(&Counts { near: vec![(20, 4)], ..Counts::default() }, team);
    other.stage(1);
    one.meet(&other);
    assert_eq!([1, 2, 3].map(|index| one.known.local(index)), [6, 0, 0]);
    assert!(one.known.covers(6, 0b01, 5, team) && !one.known.covers(6, 0b10, 5, team));
    assert_eq!([20, 21].map(|number| one.known.of(number, team)), [3, 0]);
    assert_eq!(*one.staged(0), Clock::default(), "only one of them has fenced");
}

#[test]
fn clocks_that_know_the_same_share_it() {
    let teams = [0u32, 4, 8].map(|first| Team { first, warps: 4, per_cta: 4, gpus: None });
    let mut letter = Letter::default();
    for (team, count) in teams.into_iter().zip(1..) {
        let mut view = View::default();
        view.known.raise(1, count);
        letter.append(&view.write(team));
    }
    let readers = teams.map(|team| {
        let mut view = View::default();
        view.read(&letter, team);
        assert_eq!([1, 5, 9].map(|number| view.known.of(number, team)), [1, 2, 3]);
        view
    });
    let trees = readers.each_ref().map(|view| view.known.foreign.0.as_ref().map(Arc::as_ptr));
    assert_eq!(trees, [trees[0]; 3]);
}
