//! Draws a record as SVG: a roofline with the measured points, and our speed over cuBLASLt's at each shape.

use kernel::GemmProblem;

use super::report::{CEILING, FASTESTS, Figure, Record};
use crate::bench::PowerState;
use crate::cli::svg::Picture;

const WIDTH: f64 = 960.0;
const MARGIN: f64 = 70.0;
const ROOFLINE: f64 = 420.0;
const BAR: f64 = 16.0;
const RADIUS: f64 = 4.0;

/// The best of our kernels and cuBLASLt's fastest at one shape, in TFLOP/s.
struct Point {
    shape: GemmProblem,
    ours: f64,
    candidate: String,
    peer: Option<f64>,
}

/// Operations per byte, if A, B and D are each moved once.
fn intensity(shape: GemmProblem) -> f64 {
    let [m, n, k] = [shape.m, shape.n, shape.k].map(f64::from);
    shape.operations() / (2.0 * (m * k + k * n + m * n))
}

fn points(figures: &[Figure], state: PowerState) -> Vec<Point> {
    let mut points: Vec<Point> = Vec::new();
    for figure in figures.iter().filter(|figure| figure.state == state && figure.ours()) {
        let (shape, speed) = (figure.shape(), figure.tflops[1]);
        let same = |other: &&Figure| other.state == state && other.shape() == shape;
        let peer = figures.iter().filter(same).find(|other| FASTESTS.contains(&other.candidate.as_str()));
        let point = Point {
            shape,
            ours: speed,
            candidate: figure.candidate.clone(),
            peer: peer.map(|figure| figure.tflops[1]),
        };
        match points.iter_mut().find(|point| point.shape == shape) {
            Some(best) if best.ours < speed => *best = point,
            Some(_) => {}
            None => points.push(point),
        }
    }
    points
}

/// The ceiling of all shapes: the median of its medians.
fn ceiling(figures: &[Figure], state: PowerState) -> Option<f64> {
    let of = |figure: &&Figure| figure.state == state && figure.candidate == CEILING;
    let mut speeds: Vec<f64> = figures.iter().filter(of).map(|figure| figure.tflops[1]).collect();
    speeds.sort_by(f64::total_cmp);
    speeds.get(speeds.len() / 2).copied()
}

/// Axes, both logarithmic.
struct Axes {
    x: [f64; 2],
    y: [f64; 2],
    top: f64,
}

impl Axes {
    /// Powers of two around all values.
    fn around(points: &[Point], ceiling: Option<f64>, top: f64) -> Self {
        let speeds = points.iter().flat_map(|point| [Some(point.ours), point.peer]).flatten().chain(ceiling);
        let span = |values: &mut dyn Iterator<Item = f64>| {
            let (least, most) = values
                .filter(|value| *value > 0.0)
                .fold((f64::INFINITY, 0.0_f64), |(least, most), value| (least.min(value), most.max(value)));
            if most == 0.0 { [1.0, 2.0] } else { [exp2_floor(least), exp2_floor(most) * 2.0] }
        };
        let x = span(&mut points.iter().map(|point| intensity(point.shape)));
        Self { x, y: span(&mut speeds.into_iter()), top }
    }

    fn place(&self, x: f64, y: f64) -> (f64, f64) {
        let part = |value: f64, [low, high]: [f64; 2]| (value / low).ln() / (high / low).ln();
        let across = MARGIN + part(x, self.x) * (WIDTH - 2.0 * MARGIN);
        (across, self.top + ROOFLINE - part(y, self.y) * ROOFLINE)
    }
}

fn exp2_floor(value: f64) -> f64 {
    value.log2().floor().exp2()
}

/// The picture of the state that was measured last.
pub(super) fn svg(record: &Record) -> String {
    let state = record.figures.last().map_or(PowerState::Burst, |figure| figure.state);
    let points = points(&record.figures, state);
    let bars_top = 80.0 + ROOFLINE + 90.0;
    let height = bars_top + 40.0 + points.len() as f64 * (BAR + 6.0) + 40.0;
    let title = format!("{} {}, {}", record.dtype, record.layout, state.name());
    let mut picture = Picture::new([WIDTH, height], &title);
    let out = &mut picture;
    let library = record.library();
    let version = record.cublaslt.as_ref().or(record.cusparselt.as_ref());
    let peer = version.map_or(String::new(), |version| format!(", {library} {version}"));
    out.label(MARGIN, 28.0, "start", 16.0, "", &title);
    out.label(MARGIN, 48.0, "start", 12.0, "faint", &format!("{}{peer}", record.card));
    let ceiling = ceiling(&record.figures, state);
    roofline(
        out,
        &Axes::around(&points, ceiling, 80.0),
        (&points, library),
        ceiling,
        record.memory_bandwidth,
    );
    bars(out, bars_top, (&points, library));
    picture.finish()
}

fn roofline(
    out: &mut Picture,
    axes: &Axes,
    (points, library): (&[Point], &str),
    ceiling: Option<f64>,
    memory: f64,
) {
    let doubling = |[low, high]: [f64; 2]| {
        std::iter::successors(Some(low), |value| Some(value * 2.0))
            .take_while(move |value| *value <= high * 1.01)
    };
    for x in doubling(axes.x) {
        out.line(axes.place(x, axes.y[0]), axes.place(x, axes.y[1]), "grid", 1.0);
        let (across, down) = axes.place(x, axes.y[0]);
        out.label(across, down + 16.0, "middle", 11.0, "faint", &format!("{x}"));
    }
    for y in doubling(axes.y) {
        out.line(axes.place(axes.x[0], y), axes.place(axes.x[1], y), "grid", 1.0);
        let (across, down) = axes.place(axes.x[0], y);
        out.label(across - 6.0, down + 4.0, "end", 11.0, "faint", &format!("{y}"));
    }
    let below = axes.top + ROOFLINE + 36.0;
    out.label(WIDTH / 2.0, below, "middle", 12.0, "", "operations per byte of A, B and D");
    out.label(8.0, axes.top - 10.0, "start", 12.0, "", "TFLOP/s");
    let most = ceiling.unwrap_or(axes.y[1]);
    if let Some(ceiling) = ceiling {
        out.line(axes.place(axes.x[0], ceiling), axes.place(axes.x[1], ceiling), "", 1.5);
        let (_, down) = axes.place(axes.x[1], ceiling);
        let words = format!("multiply-only ceiling, {ceiling:.0} TFLOP/s");
        out.label(WIDTH - MARGIN, down - 6.0, "end", 11.0, "", &words);
    }
    let (from, to) = ((axes.y[0] / memory).max(axes.x[0]), (most / memory).min(axes.x[1]));
    if from < to {
        out.line(axes.place(from, from * memory), axes.place(to, to * memory), "", 1.5);
        let (across, down) = axes.place(from, from * memory);
        let words = format!("memory, {memory:.1} TB/s");
        out.label(across + 14.0, down - 4.0, "start", 11.0, "", &words);
    }
    for Point { shape, ours, candidate, peer } in points {
        let GemmProblem { m, n, k } = shape;
        let x = intensity(*shape);
        if let Some(peer) = peer {
            let words = format!("{m} x {n} x {k}, {library} fastest: {peer:.0}");
            out.dot(axes.place(x, *peer), RADIUS, "peer", &words);
        }
        out.dot(axes.place(x, *ours), RADIUS, "ours", &format!("{m} x {n} x {k}, {candidate}: {ours:.0}"));
    }
    let key = axes.top + ROOFLINE + 58.0;
    out.dot((MARGIN + 4.0, key - 4.0), RADIUS, "ours", "ours");
    out.label(MARGIN + 14.0, key, "start", 12.0, "", "best of ours");
    out.dot((MARGIN + 124.0, key - 4.0), RADIUS, "peer", "peer");
    out.label(MARGIN + 134.0, key, "start", 12.0, "", &format!("{library}, its fastest"));
}

/// Bars from 1 to the ratio of our speed to the library's.
fn bars(out: &mut Picture, top: f64, (points, library): (&[Point], &str)) {
    out.label(MARGIN, top, "start", 14.0, "", &format!("our speed over {library}'s fastest"));
    let names = 210.0;
    let (left, right) = (MARGIN + names, WIDTH - MARGIN - 60.0);
    let ratios = || points.iter().filter_map(|point| Some(point.ours / point.peer?));
    let most = ratios().fold(1.1, f64::max);
    let least = ratios().fold(0.9, f64::min);
    let place = |ratio: f64| left + (ratio - least) / (most - least) * (right - left);
    let row = |i: usize| top + 16.0 + i as f64 * (BAR + 6.0);
    out.line((place(1.0), top + 8.0), (place(1.0), row(points.len())), "", 1.0);
    for (i, Point { shape, ours, candidate, peer }) in points.iter().enumerate() {
        let GemmProblem { m, n, k } = shape;
        let middle = row(i) + BAR - 4.0;
        out.label(left - 8.0, middle, "end", 11.0, "", &format!("{m} x {n} x {k}"));
        let Some(peer) = peer else {
            out.label(place(1.0) + 6.0, middle, "start", 11.0, "faint", &format!("{ours:.0} TFLOP/s"));
            continue;
        };
        let ratio = ours / peer;
        let (from, to) = (place(ratio.min(1.0)), place(ratio.max(1.0)));
        let class = if ratio < 1.0 { "peer" } else { "ours" };
        out.bar([from, row(i)], [(to - from).max(0.5), BAR], &format!("class=\"{class}\""), candidate);
        out.label(right + 10.0, middle, "start", 11.0, "", &format!("{ratio:.3}"));
    }
}

#[cfg(test)]
mod tests {
    use super::super::report::FASTEST;
    use super::*;

    fn figure(extent: u32, candidate: &str, tflops: f64) -> Figure {
        Figure {
            of: GemmProblem { m: extent, n: extent, k: extent }.into(),
            candidate: candidate.to_owned(),
            state: PowerState::Burst,
            slots: (candidate.starts_with("ours")).then_some(132),
            tflops: [tflops; 3],
            microseconds: 1.0,
            megahertz: None,
            watts: None,
            tflops_per_watt: None,
            millijoules: None,
        }
    }

    fn record(figures: Vec<Figure>) -> Record {
        Record {
            card: "a card & <more>".to_owned(),
            memory_bandwidth: 4.8,
            cublaslt: Some("13.1.0".to_owned()),
            cusparselt: None,
            dtype: "bf16".to_owned(),
            layout: "kk".to_owned(),
            figures,
            launches: Vec::new(),
        }
    }

    /// Every coordinate is inside the picture, tags are closed, and each shape has its points, name and
    /// ratio.
    #[test]
    fn a_picture_holds_every_shape() {
        let mut figures = Vec::new();
        for (extent, ours, better, peer) in [(512, 60.0, 80.0, 100.0), (8192, 820.0, 700.0, 800.0)] {
            let speeds = [(CEILING, 930.0), ("ours-a", ours), ("ours-b", better), (FASTEST, peer)];
            figures.extend(speeds.map(|(name, tflops)| figure(extent, name, tflops)));
        }
        let text = svg(&record(figures));
        assert_eq!(text.matches("<circle").count(), 2 * 2 + 2, "two shapes, and the key");
        assert_eq!(text.matches("<text").count(), text.matches("</text>").count());
        for words in ["a card &amp; &lt;more>", "512 x 512 x 512", "0.800", "1.025", "ours-b", "930 TFLOP/s"]
        {
            assert!(text.contains(words), "no `{words}` in {text}");
        }
        let height: f64 = attribute(&text, "height").next().expect("a height");
        for (name, most) in
            [("x1", WIDTH), ("x2", WIDTH), ("cx", WIDTH), ("y1", height), ("y2", height), ("cy", height)]
        {
            assert!(attribute(&text, name).all(|value| (0.0..=most).contains(&value)), "{name}: {text}");
        }
    }

    fn attribute<'a>(text: &'a str, name: &str) -> impl Iterator<Item = f64> + 'a {
        let parts = text.split(&format!(" {name}=\"")).skip(1).collect::<Vec<_>>();
        parts.into_iter().filter_map(|part| part.split('"').next()?.parse().ok())
    }

    #[test]
    fn nothing_and_no_peer_are_pictures_too() {
        assert!(svg(&record(Vec::new())).ends_with("</svg>\n"));
        let alone = svg(&record(vec![figure(512, "ours", 50.0)]));
        assert!(alone.contains("50 TFLOP/s") && !alone.contains("NaN") && !alone.contains("inf"), "{alone}");
    }

    #[test]
    fn intensity_counts_each_matrix_once() {
        let cube = GemmProblem { m: 4096, n: 4096, k: 4096 };
        assert!((intensity(cube) - 4096.0 / 3.0).abs() < 1e-6);
        assert!((intensity(GemmProblem { m: 1, n: 4096, k: 4096 }) - 1.0).abs() < 0.01);
    }
}
