//! Draws the schedule as text: one row per slot, time from left to right.

use std::io::{self, Write};

use scheduler::{Activity, Span};

use crate::explore::Schedule;

/// Largest width of one k-tile in columns.
const WIDEST: u64 = 12;

/// The picture's width in columns, and the time in k-tiles that it covers.
struct Scale {
    columns: u64,
    end: u64,
}

impl Scale {
    fn new(end: u64, columns: u32) -> Self {
        let columns = u64::from(columns);
        let wide = (columns / end.max(1)).min(WIDEST);
        Self { columns: if wide > 0 { end * wide } else { columns }, end }
    }

    fn column(&self, time: u64) -> u64 {
        time * self.columns / self.end.max(1)
    }

    fn describe(&self) -> String {
        if self.columns >= self.end {
            match self.columns / self.end.max(1) {
                0 | 1 => "a column is a k-tile".to_owned(),
                wide => format!("{wide} columns are a k-tile"),
            }
        } else {
            format!("a column is {:.1} k-tiles", self.end as f64 / self.columns as f64)
        }
    }
}

/// Draws at most `rows` slots.
pub(super) fn draw(out: &mut impl Write, schedule: &Schedule, rows: u32, columns: u32) -> io::Result<()> {
    let timeline = &schedule.timeline;
    let scale = Scale::new(timeline.end, columns);
    let slots: Vec<&[Span]> = timeline.spans.chunk_by(|a, b| a.slot == b.slot).collect();
    let rows = rows as usize;
    let (head, tail) = if slots.len() > rows { (rows - rows / 3, rows / 3) } else { (slots.len(), 0) };
    for slot in &slots[..head] {
        row(out, schedule, &scale, slot)?;
    }
    if head + tail < slots.len() {
        writeln!(out, "{:>5} {} more slots", "...", slots.len() - head - tail)?;
    }
    for slot in &slots[slots.len() - tail..] {
        row(out, schedule, &scale, slot)?;
    }
    let unused = timeline.slots as usize - slots.len();
    if unused > 0 {
        writeln!(out, "{:>5} slots have nothing to do", unused)?;
    }
    let mut parts = String::new();
    if schedule.slices().is_some() {
        parts += &format!(", [row,column: a slice with these of its {}", schedule.sliced_along());
    }
    if schedule.entry.reduction().is_some() {
        parts += ", [row,column- a range of its K, ~ waits for partial sums, + adds them";
    }
    writeln!(out, "\n[row,column= a tile of D{parts}, . idle; {}", scale.describe())
}

fn row(out: &mut impl Write, schedule: &Schedule, scale: &Scale, spans: &[Span]) -> io::Result<()> {
    let mut text = String::new();
    for span in spans {
        let (from, to) = (scale.column(span.start) as usize, scale.column(span.end) as usize);
        while text.len() < from {
            text.push('.');
        }
        if to > text.len() {
            text.push_str(&cell(schedule, span, to - text.len()));
        }
    }
    while (text.len() as u64) < scale.columns {
        text.push('.');
    }
    let slot = spans.first().map_or(0, |span| span.slot);
    writeln!(out, "{slot:5} {text}")
}

/// A span as exactly `width` characters; `width` is at least 1.
fn cell(schedule: &Schedule, span: &Span, width: usize) -> String {
    let work = match &span.activity {
        Activity::Wait(_) => return "~".repeat(width),
        Activity::FixUp(_) => return "+".repeat(width),
        Activity::Multiply(work) => work,
    };
    let [row, column] = schedule.place(work);
    let short = format!("[{row},{column}");
    let divided = schedule.divided(work).then_some([work.k_begin, work.k_end]);
    let slice = schedule.slice(work);
    let long = match slice.or(divided) {
        Some([first, end]) => format!("{short} {first}..{end}"),
        None => short.clone(),
    };
    let label = [long, short].into_iter().find(|label| label.len() <= width);
    let fill = match (slice, divided) {
        (Some(_), _) => ":",
        (None, Some(_)) => "-",
        (None, None) => "=",
    };
    let label = label.unwrap_or_else(|| "[".to_owned());
    let rest = fill.repeat(width - label.len());
    format!("{label}{rest}")
}
