//! `falchion chart`: draws the ratios of `falchion tune`'s records as SVG, by type and by family of shapes.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use kernel::Types;

use super::tune::seen::Line;
use crate::bench::PowerState;
use crate::cli::options::{Given, Verb};
use crate::cli::svg::Picture;
use crate::cli::{Command, Failure, files};

pub(crate) const COMMAND: Command = Command {
    verb: Verb::CHART,
    about: "Draw the records of `falchion tune` as SVG: how many times as fast as cuBLASLt's fastest algorithm the best kernel is.

Each type of GEMM has a row with one dot per shape, and geometric means by family of shapes. With a sparse operand the comparison \
is with cuSPARSELt.",
    examples: "Example:\n  falchion chart bf16.jsonl e4m3.jsonl --card \"H200, driver 580.159.04, cuBLASLt 13.1.0\" -o ratios.svg",
    run: chart,
};

fn chart(given: &Given) -> Result<(), Failure> {
    let (records, card) = (given.list::<PathBuf>("records"), given.get::<String>("card"));
    let file = given.get::<PathBuf>("out").unwrap_or_else(|| PathBuf::from("-"));
    given.finish("a chart")?;
    let card =
        card.ok_or_else(|| usage!("--card was needed: the card, driver and library of the records"))?;
    if records.is_empty() {
        refuse!("at least one RECORD was needed, a file of `falchion tune --jsonl`");
    }
    files::writable(&file)?;
    let mut lines = Vec::new();
    for path in &records {
        lines.extend(read(path)?);
    }
    files::write_text(&file, &Chart::of(&lines)?.svg(&card))
}

fn read(path: &Path) -> Result<Vec<Line>, Failure> {
    let (mut file, length) = files::open(path)?;
    let bytes = files::part(path, &mut file, 0, length)?;
    let lines = bytes.split(|&byte| byte == b'\n').enumerate().filter(|(_, text)| !text.is_empty());
    lines
        .map(|(i, text)| {
            serde_json::from_slice(text)
                .map_err(|error| usage!("{}, line {}: {error}", path.display(), i + 1))
        })
        .collect()
}

/// A family of shapes: its name, its definition, and whether it has a shape of M, N and K.
type Family = (&'static str, &'static str, fn([f64; 3]) -> bool);

/// A shape belongs to the first that has it.
const FAMILIES: [Family; 5] = [
    ("few rows", "M or N up to 128", |[m, n, _]| m.min(n) <= 128.0),
    ("short K", "K up to 1536, D of 4 million elements or more", |[m, n, k]| m * n >= 4e6 && k <= 1536.0),
    ("long K", "K at least 8 times M and N", |[m, n, k]| k >= 8.0 * m.max(n)),
    ("large", "others from 100 GFLOP on", |[m, n, k]| 2.0 * m * n * k >= 1e11),
    ("small", "the rest", |_| true),
];

/// A shape, its family, and how many times as fast as the library we are.
struct Point {
    shape: [u32; 3],
    family: usize,
    ratio: f64,
}

/// Points by the words for their types.
struct Chart {
    library: &'static str,
    states: Vec<PowerState>,
    rows: BTreeMap<String, Vec<Point>>,
}

impl Chart {
    fn of(lines: &[Line]) -> Result<Self, Failure> {
        let Some(first) = lines.first() else {
            refuse!("the records have no lines, and a chart needs one");
        };
        let mut chart = Self { library: first.library(), states: Vec::new(), rows: BTreeMap::new() };
        for line in lines {
            let shape @ [m, n, k] = [line.m, line.n, line.k];
            let library = line.library();
            let ratio = line.ratio().ok_or_else(|| {
                usage!("the record of {m}x{n}x{k} has no times of {library}, and a chart compares with them")
            })?;
            if library != chart.library {
                let other = chart.library;
                refuse!(
                    "records compare with {other} and with {library}: a chart takes those of one library"
                );
            }
            if !chart.states.contains(&line.state) {
                chart.states.push(line.state);
            }
            let sizes = shape.map(f64::from);
            let family =
                FAMILIES.iter().position(|(_, _, has)| has(sizes)).expect("the last has every shape");
            chart.rows.entry(words(line)).or_default().push(Point { shape, family, ratio });
        }
        Ok(chart)
    }

    fn svg(&self, card: &str) -> String {
        let bottom = TOP + self.rows.len() as f64 * ROW;
        let title = format!("Falchion's best kernel compared with {}'s fastest algorithm", self.library);
        let mut picture = Picture::new([WIDTH, bottom + 88.0], &title);
        let out = &mut picture;
        out.label(LEFT, 30.0, "start", 17.0, "", &title);
        let states: Vec<&str> = self.states.iter().map(|state| state.name()).collect();
        let caption = format!("ratio of times, each dot one shape; {card}; {}", states.join(" and "));
        out.label(LEFT, 50.0, "start", 12.0, "faint", &caption);
        axis(out, bottom);
        out.label(SHAPES, TOP - 8.0, "end", 12.0, "faint", "shapes");
        out.label(column(2), TOP - 26.0, "middle", 12.0, "faint", "geometric mean of the ratio");
        let names = ["all"].into_iter().chain(FAMILIES.map(|(name, ..)| name));
        for (i, name) in names.enumerate() {
            out.label(column(i), TOP - 8.0, "middle", 11.0, if i == 0 { "" } else { "faint" }, name);
        }
        for (i, (words, points)) in self.rows.iter().enumerate() {
            row(out, TOP + (i as f64 + 0.5) * ROW, words, points);
        }
        let about = FAMILIES.map(|(name, what, _)| format!("{name}: {what}"));
        out.label(LEFT, bottom + 56.0, "start", 11.0, "faint", &about[..3].join("; "));
        out.label(LEFT, bottom + 72.0, "start", 11.0, "faint", &about[3..].join("; "));
        picture.finish()
    }
}

/// The types, the epilogue and the form of a line's GEMM, and the state if it is not burst.
fn words(line: &Line) -> String {
    let mut words = match Types::named(&line.dtype) {
        Some(types) if types.is_scaled() => {
            let [a, b] = types.scaled;
            format!("{}, scales {a}x128 by {b}x128", types.a)
        }
        _ => line.dtype.clone(),
    };
    for more in [line.epilogue.as_str(), if line.rows.is_empty() { "" } else { "groups of rows" }] {
        if !more.is_empty() {
            words = format!("{words}, {more}");
        }
    }
    if let Some(count) = line.batch {
        words = format!("{words}, batch of {count}");
    }
    if line.state != PowerState::Burst {
        words = format!("{words}, {}", line.state.name());
    }
    words
}

const WIDTH: f64 = 960.0;
const LEFT: f64 = 16.0;
/// Where the first row begins, and its height.
const TOP: f64 = 104.0;
const ROW: f64 = 34.0;
/// The axis of ratios, in pixels, and its ends. Ratios beyond these are drawn at the ends.
const AXIS: [f64; 2] = [232.0, 566.0];
const ENDS: [f64; 2] = [0.8, 4.0];
const TICKS: [f64; 7] = [0.8, 1.0, 1.25, 1.5, 2.0, 3.0, 4.0];
/// The right edge of the numbers of shapes.
const SHAPES: f64 = 618.0;

/// The middle of a column of means.
fn column(i: usize) -> f64 {
    SHAPES + 38.0 + i as f64 * 56.0
}

/// Where a ratio is on the axis, which is logarithmic.
fn place(ratio: f64) -> f64 {
    let part = (ratio.clamp(ENDS[0], ENDS[1]) / ENDS[0]).ln() / (ENDS[1] / ENDS[0]).ln();
    AXIS[0] + part * (AXIS[1] - AXIS[0])
}

fn axis(out: &mut Picture, bottom: f64) {
    for tick in TICKS {
        let x = place(tick);
        let class = if tick == 1.0 { "" } else { "grid" };
        out.line((x, TOP), (x, bottom), class, if tick == 1.0 { 1.5 } else { 1.0 });
        out.label(x, bottom + 16.0, "middle", 11.0, "faint", &format!("{tick}"));
    }
    out.label(place(1.0) + 8.0, TOP - 8.0, "start", 12.0, "", "faster →");
    out.label(place(1.0) - 8.0, TOP - 8.0, "end", 12.0, "", "← slower");
    out.label(
        AXIS[1],
        bottom + 32.0,
        "end",
        11.0,
        "faint",
        "higher ratios are drawn at 4; the bar is the geometric mean",
    );
}

fn mean<'p>(points: impl Iterator<Item = &'p Point>) -> Option<f64> {
    let (sum, count) = points.fold((0.0, 0u32), |(sum, count), point| (sum + point.ratio.ln(), count + 1));
    (count > 0).then(|| (sum / f64::from(count)).exp())
}

fn row(out: &mut Picture, middle: f64, words: &str, points: &[Point]) {
    out.label(LEFT, middle + 4.0, "start", 13.0, "", words);
    let mut sorted: Vec<&Point> = points.iter().collect();
    sorted.sort_by(|a, b| a.ratio.total_cmp(&b.ratio));
    for (i, Point { shape: [m, n, k], ratio, .. }) in sorted.into_iter().enumerate() {
        // Neighbours on different lines, so that dots of like ratios are told apart.
        let y = middle + (i * 3 % 7) as f64 * 3.0 - 9.0;
        let class = if *ratio < 1.0 { "peer" } else { "ours" };
        out.dot((place(*ratio), y), 2.6, class, &format!("{m} x {n} x {k}: {ratio:.3}"));
    }
    if let Some(all) = mean(points.iter()) {
        out.line((place(all), middle - 13.0), (place(all), middle + 13.0), "", 3.0);
        out.label(column(0), middle + 4.0, "middle", 14.0, "", &format!("{all:.2}"));
    }
    out.label(SHAPES, middle + 4.0, "end", 12.0, "faint", &points.len().to_string());
    for family in 0..FAMILIES.len() {
        let of = mean(points.iter().filter(|point| point.family == family));
        let words = of.map_or_else(|| "–".to_owned(), |mean| format!("{mean:.2}"));
        out.label(column(family + 1), middle + 4.0, "middle", 12.0, "faint", &words);
    }
}
