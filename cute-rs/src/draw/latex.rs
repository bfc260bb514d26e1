//! Pictures as LaTeX.

use alloc::collections::BTreeMap;
use alloc::format;
use alloc::string::String;

use super::Picture;

impl Picture {
    /// The picture as a complete LaTeX document, drawn with TikZ.
    ///
    /// ```
    /// # use cute_rs::{Layout, draw::Picture};
    /// let latex = Picture::of_layout(&Layout::flat(&[2, 3], &[1, 20])?)?.latex();
    /// assert!(latex.contains("at (2,1) {41};"));
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn latex(&self) -> String {
        let longest = self.cells.iter().map(|cell| cell.label.chars().count()).max().unwrap_or(0);
        // In millimetres: a character of \footnotesize typewriter is about 1.6 wide.
        let width = (longest * 17 / 10 + 3).max(7);
        let height = if self.frames.is_empty() { 7 } else { 9 };
        let mut colours = BTreeMap::new();
        for cell in &self.cells {
            let next = colours.len();
            colours.entry(cell.colour).or_insert(next);
        }
        let mut latex = format!(
            "% {}\n\\documentclass[tikz,border=2mm]{{standalone}}\n\\renewcommand{{\\familydefault}}{{\\ttdefault}}\n",
            self.title
        );
        for (colour, name) in &colours {
            let [red, green, blue] = colour.0;
            latex += &format!("\\definecolor{{c{name}}}{{RGB}}{{{red},{green},{blue}}}\n");
        }
        latex += &format!(
            "\\begin{{document}}\n\\begin{{tikzpicture}}[x={{({width}mm,0mm)}},y={{(0mm,-{height}mm)}},font=\\footnotesize,\n  \
             cell/.style={{draw=gray,very thin,minimum width={width}mm,minimum height={height}mm,inner sep=0pt}},\n  \
             head/.style={{text=gray}}]\n"
        );
        latex += &format!("\\node[anchor=west] at (-1,-1.9) {{{}}};\n", escaped(&self.title));
        for column in 0..self.columns {
            latex += &format!("\\node[head] at ({column},-1) {{{column}}};\n");
        }
        for (row, cells) in self.lines().enumerate() {
            latex += &format!("\\node[head] at (-1,{row}) {{{row}}};\n");
            for (column, cell) in cells.iter().enumerate() {
                let class = colours.get(&cell.colour).copied().unwrap_or_default();
                let label = escaped(&cell.label);
                latex += &format!("\\node[cell,fill=c{class}] at ({column},{row}) {{{label}}};\n");
            }
        }
        // Frames come last, so that no neighbour covers them. Cells are centred on whole numbers.
        for frame in &self.frames {
            let [left, right] =
                [frame.column, frame.column + frame.columns].map(|column| half(2 * column, 1));
            let [top, bottom] = [frame.row, frame.row + frame.rows].map(|row| half(2 * row, 1));
            let middle = half(2 * frame.column + frame.columns, 1);
            let label = escaped(&frame.label);
            latex += &format!("\\draw[very thick] ({left},{top}) rectangle ({right},{bottom});\n");
            latex += &format!(
                "\\node[anchor=south,font=\\tiny,inner sep=0.4mm] at ({middle},{bottom}) {{{label}}};\n"
            );
        }
        for (i, note) in self.notes.iter().enumerate() {
            latex += &format!("\\node[anchor=west] at (-1,{}) {{{}}};\n", self.rows + i, escaped(note));
        }
        latex + "\\end{tikzpicture}\n\\end{document}\n"
    }
}

/// `(a - b) / 2` as a decimal.
fn half(a: usize, b: usize) -> String {
    let (sign, twice) = if a < b { ("-", b - a) } else { ("", a - b) };
    format!("{sign}{}{}", twice / 2, if twice % 2 == 0 { "" } else { ".5" })
}

/// The text with LaTeX's special characters escaped.
fn escaped(text: &str) -> String {
    let mut result = String::new();
    for c in text.chars() {
        match c {
            '<' => result += "\\textless{}",
            '>' => result += "\\textgreater{}",
            '\\' => result += "\\textbackslash{}",
            '_' | '%' | '&' | '#' | '$' | '{' | '}' => {
                result.push('\\');
                result.push(c);
            }
            other => result.push(other),
        }
    }
    result
}
