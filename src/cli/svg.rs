//! Text, lines, dots and boxes of pictures, in classes whose colours suit a light and a dark page.

/// `faint` is for what is read second, `ours` for Falchion's kernels and `peer` for a library's.
const STYLE: &str = "<style>
.paper { fill: #ffffff } text { fill: #20262b } line { stroke: #20262b } line.grid { stroke: #d8dcdf }
text.faint, .peer { fill: #5b6770 } .ours { fill: #b5402b }
@media (prefers-color-scheme: dark) {
.paper { fill: #0d1117 } text { fill: #e6edf3 } line { stroke: #e6edf3 } line.grid { stroke: #30363d }
text.faint, .peer { fill: #9aa7b0 } .ours { fill: #ff8b6b }
}
</style>";

/// A picture as it grows.
pub(crate) struct Picture(String);

/// Text as XML has it.
fn escaped(words: &str) -> String {
    words.replace('&', "&amp;").replace('<', "&lt;").replace('"', "&quot;")
}

impl Picture {
    /// A picture of a width and a height. `about` is read out in its place.
    pub(crate) fn new([width, height]: [f64; 2], about: &str) -> Self {
        Self(format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width:.0}\" height=\"{height:.0}\" \
             viewBox=\"0 0 {width:.0} {height:.0}\" font-family=\"system-ui, sans-serif\" role=\"img\" aria-label=\"{}\">\n\
             {STYLE}\n<rect class=\"paper\" width=\"100%\" height=\"100%\"/>\n",
            escaped(about)
        ))
    }

    pub(crate) fn finish(self) -> String {
        self.0 + "</svg>\n"
    }

    /// A line of text that begins at a place, with attributes.
    pub(crate) fn text(&mut self, [x, y]: [f64; 2], attributes: &str, words: &str) {
        self.0 += &format!("<text x=\"{x:.1}\" y=\"{y:.1}\" {attributes}>{}</text>\n", escaped(words));
    }

    /// The same at its base line; `anchor` says whether `x` is its start, middle or end.
    pub(crate) fn label(&mut self, x: f64, y: f64, anchor: &str, size: f64, class: &str, words: &str) {
        let attributes = format!("class=\"{class}\" text-anchor=\"{anchor}\" font-size=\"{size}\"");
        self.text([x, y], &attributes, words);
    }

    pub(crate) fn line(&mut self, (x1, y1): (f64, f64), (x2, y2): (f64, f64), class: &str, width: f64) {
        self.0 += &format!(
            "<line class=\"{class}\" x1=\"{x1:.1}\" y1=\"{y1:.1}\" x2=\"{x2:.1}\" y2=\"{y2:.1}\" stroke-width=\"{width}\"/>\n"
        );
    }

    /// A dot of a radius, with words that a browser shows when it is pointed at.
    pub(crate) fn dot(&mut self, (x, y): (f64, f64), radius: f64, class: &str, what: &str) {
        self.0 += &format!(
            "<circle class=\"{class}\" cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"{radius}\" fill-opacity=\"0.75\"><title>{}</title></circle>\n",
            escaped(what)
        );
    }

    /// A box of a place and extents, with attributes and such words.
    pub(crate) fn bar(&mut self, [x, y]: [f64; 2], [width, height]: [f64; 2], attributes: &str, what: &str) {
        self.0 += &format!(
            "<rect x=\"{x:.2}\" y=\"{y:.2}\" width=\"{width:.2}\" height=\"{height:.2}\" {attributes}><title>{}</title></rect>\n",
            escaped(what)
        );
    }
}
