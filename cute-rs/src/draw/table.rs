//! Pictures as text.

use alloc::format;
use alloc::string::String;

use super::Picture;

impl Picture {
    /// The picture as text: a grid of the labels, with the numbers of rows and columns. Cells that an access
    /// touches have a star. Notes follow the grid.
    ///
    /// ```
    /// # use cute_rs::{Layout, draw::Picture};
    /// let table = Picture::of_layout(&Layout::flat(&[2, 3], &[1, 20])?)?.table();
    /// assert_eq!(table, "     0  1  2\n  +---------\n0 |  0 20 40\n1 |  1 21 41\n");
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn table(&self) -> String {
        let framed = self.framed();
        let marked = !framed.is_empty();
        let labels = self.cells.iter().map(|cell| cell.label.chars().count());
        let last_column = digits(self.columns.saturating_sub(1));
        let width = labels.max().unwrap_or(0).max(last_column) + usize::from(marked);
        let header = digits(self.rows.saturating_sub(1));
        let mut text = format!("{:header$}  ", "");
        for column in 0..self.columns {
            text += &format!(" {:>width$}", number(column, marked));
        }
        text.truncate(text.trim_end().len());
        // The width of a format is 65535 at most.
        text += &format!("\n{:header$} +{}\n", "", "-".repeat(self.columns * (width + 1)));
        for (row, cells) in self.lines().enumerate() {
            text += &format!("{row:>header$} |");
            for (column, cell) in cells.iter().enumerate() {
                let star = match (marked, framed.contains(&(row, column))) {
                    (false, _) => "",
                    (true, false) => " ",
                    (true, true) => "*",
                };
                text += &format!(" {:>width$}", format!("{}{star}", cell.label));
            }
            text.truncate(text.trim_end().len());
            text.push('\n');
        }
        for note in &self.notes {
            text += &format!("{note}\n");
        }
        text
    }
}

fn digits(number: usize) -> usize {
    format!("{number}").len()
}

/// A column's number, aligned with the labels and not with their stars.
fn number(column: usize, marked: bool) -> String {
    format!("{column}{}", if marked { " " } else { "" })
}
