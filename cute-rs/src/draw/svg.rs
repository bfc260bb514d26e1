//! Pictures as SVG.

use alloc::collections::BTreeMap;
use alloc::format;
use alloc::string::String;

use super::Picture;

/// Width of a character of the labels, in pixels.
const ADVANCE: usize = 7;
/// Height of a line of text, in pixels.
const LINE: usize = 16;
/// Space around the grid, in pixels.
const MARGIN: usize = 12;

impl Picture {
    /// The picture as a complete SVG document.
    ///
    /// ```
    /// # use cute_rs::{Layout, draw::Picture};
    /// let svg = Picture::of_layout(&Layout::flat(&[2, 3], &[1, 20])?)?.svg();
    /// assert_eq!(svg.matches("<rect class=\"c").count(), 6);
    /// assert!(svg.contains(">41</text>"));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn svg(&self) -> String {
        let marked = !self.frames.is_empty();
        let longest = self.cells.iter().map(|cell| cell.label.chars().count()).max().unwrap_or(0);
        let (wide, high) = ((longest.max(2) * ADVANCE + 8).max(26), if marked { 30 } else { 24 });
        let left = MARGIN + format!("{}", self.rows).len() * ADVANCE + 6;
        let top = MARGIN + 2 * LINE + 4;
        let texts = self.notes.iter().chain([&self.title]).map(|text| text.chars().count() * ADVANCE);
        let width = (left + self.columns * wide).max(texts.max().unwrap_or(0) + MARGIN) + MARGIN;
        let height = top + self.rows * high + self.notes.len() * (LINE + 4) + MARGIN;

        let mut colours = BTreeMap::new();
        for cell in &self.cells {
            let next = colours.len();
            colours.entry(cell.colour).or_insert(next);
        }
        let mut svg = format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}\" height=\"{height}\" \
             viewBox=\"0 0 {width} {height}\" font-family=\"DejaVu Sans Mono, Menlo, Consolas, monospace\" \
             font-size=\"11\" text-anchor=\"middle\" fill=\"#1a1a1a\">\n<title>{0}</title>\n<style>\n\
             rect {{ stroke: #8a8a8a; stroke-width: 0.5 }}\n.frame {{ stroke: #000000; stroke-width: 2; fill: none }}\n\
             .lane {{ font-size: 9px; font-weight: bold }}\n.head {{ fill: #666666 }}\n",
            escaped(&self.title)
        );
        for (colour, class) in &colours {
            let [red, green, blue] = colour.0;
            svg += &format!(".c{class} {{ fill: #{red:02x}{green:02x}{blue:02x} }}\n");
        }
        svg += "</style>\n";
        svg +=
            &format!("<rect width=\"{width}\" height=\"{height}\" style=\"fill: #ffffff; stroke: none\"/>\n");
        svg += &line(MARGIN, MARGIN + 10, "", &self.title);
        for column in 0..self.columns {
            let x = left + column * wide + wide / 2;
            svg += &format!("<text class=\"head\" x=\"{x}\" y=\"{}\">{column}</text>\n", top - 5);
        }
        for (row, cells) in self.lines().enumerate() {
            let y = top + row * high;
            let middle = y + 12 + 4;
            svg += &format!(
                "<text class=\"head\" x=\"{}\" y=\"{middle}\" text-anchor=\"end\">{row}</text>\n",
                left - 6
            );
            for (column, cell) in cells.iter().enumerate() {
                let x = left + column * wide;
                let class = colours.get(&cell.colour).copied().unwrap_or_default();
                svg += &format!(
                    "<rect class=\"c{class}\" x=\"{x}\" y=\"{y}\" width=\"{wide}\" height=\"{high}\"/>"
                );
                let x = x + wide / 2;
                svg += &format!(
                    "<text x=\"{x}\" y=\"{}\">{}</text>\n",
                    middle - usize::from(marked) * 3,
                    escaped(&cell.label)
                );
            }
        }
        // Frames come last, so that no neighbour covers them.
        for frame in &self.frames {
            let (x, y) = (left + frame.column * wide, top + frame.row * high);
            let (wide, high) = (frame.columns * wide, frame.rows * high);
            svg += &format!("<rect class=\"frame\" x=\"{x}\" y=\"{y}\" width=\"{wide}\" height=\"{high}\"/>");
            let (x, y) = (x + wide / 2, y + high - 4);
            svg += &format!("<text class=\"lane\" x=\"{x}\" y=\"{y}\">{}</text>\n", escaped(&frame.label));
        }
        for (i, note) in self.notes.iter().enumerate() {
            svg += &line(MARGIN, top + self.rows * high + (i + 1) * (LINE + 4), "", note);
        }
        svg + "</svg>\n"
    }
}

/// A line of text that begins at `x`.
fn line(x: usize, y: usize, class: &str, text: &str) -> String {
    format!("<text class=\"{class}\" x=\"{x}\" y=\"{y}\" text-anchor=\"start\">{}</text>\n", escaped(text))
}

/// The text with XML's special characters escaped.
fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}
