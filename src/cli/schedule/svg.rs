//! Draws the schedule as SVG: what every slot does over time, and below it D's tiles, shaded by the time at
//! which they begin.

use scheduler::{Activity, Span, Work};

use crate::cli::svg::Picture;
use crate::explore::{Schedule, does};

const WIDTH: f64 = 1600.0;
/// Where the boxes begin, to the right of the rows' names.
const LEFT: f64 = 70.0;
const ROW: f64 = 14.0;
const LINE: f64 = 16.0;
/// Boxes narrower than this are not drawn.
const THINNEST: f64 = 0.05;
/// Boxes of at least this width show their tile's position.
const LABELLED: f64 = 46.0;
/// The longer side of the map of D.
const MAP: f64 = 640.0;

const WHOLE: [&str; 2] = ["#56b4e9", "#8fd0f5"];
const PART: [&str; 2] = ["#009e73", "#66c4aa"];
const SLICE: [&str; 2] = ["#cc79a7", "#e0a9c8"];
const WAIT: &str = "#e3e3e3";
const FIX_UP: &str = "#d55e00";

/// Text of the picture, of its summary, and on its boxes, whose colours no page changes.
const TEXT: &str = "font-size=\"11\"";
const SUMMARY: &str = "font-size=\"11\" font-family=\"monospace\" xml:space=\"preserve\"";
const ON_BOX: &str = "font-size=\"11\" style=\"fill: #20262b\" pointer-events=\"none\"";

/// The picture as an SVG document.
pub(super) fn document(schedule: &Schedule) -> String {
    let timeline = &schedule.timeline;
    let summary = schedule.summary();
    let top = 24.0 + summary.len() as f64 * LINE + 26.0;
    let slots = timeline.spans.chunk_by(|a, b| a.slot == b.slot).count();
    let [rows, columns] = schedule.grid().map(f64::from);
    let side = (MAP / rows.max(columns)).min(40.0);
    let map_top = top + slots as f64 * ROW + 40.0;
    let mut out =
        Picture::new([WIDTH, map_top + rows * side + 20.0], "What every slot does, and when tiles begin");
    for (i, line) in summary.iter().enumerate() {
        out.text([8.0, 20.0 + i as f64 * LINE], SUMMARY, line);
    }
    let mut legend = vec![
        ("a tile", WHOLE[0]),
        ("a range of its K", PART[0]),
        ("waits for sums", WAIT),
        ("adds sums", FIX_UP),
    ];
    if schedule.slices().is_some() {
        legend.push(("a slice of a tile", SLICE[0]));
    }
    for (i, (name, colour)) in legend.into_iter().enumerate() {
        let x = 8.0 + i as f64 * 130.0;
        out.bar([x, top - 22.0], [12.0; 2], &fill(colour), name);
        out.text([x + 16.0, top - 12.0], TEXT, name);
    }
    let scale = (WIDTH - LEFT - 10.0) / timeline.end.max(1) as f64;
    for (i, spans) in timeline.spans.chunk_by(|a, b| a.slot == b.slot).enumerate() {
        let y = top + i as f64 * ROW;
        let slot = spans.first().map_or(0, |span| span.slot);
        out.text([8.0, y + 11.0], TEXT, &format!("slot {slot}"));
        let mut odd = false;
        for span in spans {
            odd ^= matches!(span.activity, Activity::Multiply(_));
            draw(&mut out, schedule, span, (y, scale), usize::from(!odd));
        }
    }
    let words = format!("D, {rows} x {columns} tiles: the darker, the later a tile begins");
    out.text([8.0, map_top - 10.0], TEXT, &words);
    map(&mut out, schedule, map_top, side);
    out.finish()
}

fn fill(colour: &str) -> String {
    format!("fill=\"{colour}\"")
}

fn title(schedule: &Schedule, span: &Span) -> String {
    let (does, work) = does(&span.activity);
    let [row, column] = schedule.place(work);
    let slice = schedule
        .slice(work)
        .map_or(String::new(), |[first, end]| format!(", {} {first}..{end} of it", schedule.sliced_along()));
    format!(
        "worker {}: {does}, tile {row},{column}{slice}, k-tiles {}..{}, from {} to {}",
        span.worker, work.k_begin, work.k_end, span.start, span.end
    )
}

fn draw(out: &mut Picture, schedule: &Schedule, span: &Span, (y, scale): (f64, f64), shade: usize) {
    let (x, width) = (LEFT + span.start as f64 * scale, (span.end - span.start) as f64 * scale);
    if width < THINNEST {
        return;
    }
    let colour = match &span.activity {
        Activity::Multiply(work) if schedule.divided(work) => PART[shade % 2],
        Activity::Multiply(work) if schedule.slice(work).is_some() => SLICE[shade % 2],
        Activity::Multiply(_) => WHOLE[shade % 2],
        Activity::Wait(_) => WAIT,
        Activity::FixUp(_) => FIX_UP,
    };
    out.bar([x, y + 1.0], [width, ROW - 2.0], &fill(colour), &title(schedule, span));
    if let (true, Activity::Multiply(work)) = (width >= LABELLED, &span.activity) {
        let [row, column] = schedule.place(work);
        let slice = schedule.slice(work).filter(|_| width >= 2.0 * LABELLED);
        let slice = slice.map_or(String::new(), |[first, end]| format!(" {first}..{end}"));
        out.text([x + 3.0, y + 11.0], ON_BOX, &format!("{row},{column}{slice}"));
    }
}

/// The parts of a cluster's tile that a work unit has, as fractions: a slice has a strip of each CTA's tile.
fn strips(schedule: &Schedule, work: &Work<u32>) -> Vec<[f64; 2]> {
    let Some(slice) = schedule.slice(work) else { return vec![[0.0, 1.0]] };
    let plan = schedule.entry.plan();
    let (extent, ctas) = (plan.mainloop.tile[1], plan.mainloop.cluster[1]);
    let of_cta = |cta| slice.map(|at| f64::from(cta * extent + at) / f64::from(ctas * extent));
    (0..ctas).map(of_cta).collect()
}

/// D's tiles. The shade of a tile is the time of its first k-tile.
fn map(out: &mut Picture, schedule: &Schedule, top: f64, side: f64) {
    let end = schedule.timeline.end.max(1) as f64;
    for span in &schedule.timeline.spans {
        let Activity::Multiply(work) = &span.activity else { continue };
        if work.k_begin > 0 {
            continue;
        }
        let [row, column] = schedule.place(work).map(f64::from);
        let lightness = 92.0 - 62.0 * span.start as f64 / end;
        for [from, to] in strips(schedule, work) {
            let (mut place, mut extents) = ([column, row], [1.0, 1.0]);
            let [axis, _] = schedule.entry.plan().oriented([0, 1]);
            place[axis] += from;
            extents[axis] = to - from;
            let place = [8.0 + place[0] * side, top + place[1] * side];
            let shade =
                format!("fill=\"hsl(205,70%,{lightness:.0}%)\" stroke=\"white\" stroke-width=\"0.5\"");
            out.bar(place, extents.map(|extent| extent * side), &shade, &title(schedule, span));
        }
    }
}
