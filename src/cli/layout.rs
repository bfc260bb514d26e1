//! `falchion layout`: evaluates a layout expression and draws the result.

use std::fmt::Display;
use std::io::Write;
use std::path::PathBuf;

use cute_rs::draw::{Access, Atom, Picture, Walk};
use cute_rs::expr::{Value, evaluate, operations};
use cute_rs::{ComposedLayout, ThreadValue};

use crate::cli::options::{Given, Verb};
use crate::cli::output::{out, shortened};
use crate::cli::{Command, Failure, files};

pub(crate) const COMMAND: Command = Command {
    verb: Verb::LAYOUT,
    about: "Evaluate a layout expression, or name an instruction's layout, and draw it.

The last line of the output is the result in CuTe's notation.",
    examples: "",
    run: |given| LayoutArgs::read(given).execute(given, &mut out()),
};

/// The options of the command.
#[derive(Debug)]
struct LayoutArgs {
    expr: Option<String>,
    atom: Option<String>,
    table: bool,
    svg: Option<PathBuf>,
    latex: Option<PathBuf>,
}

/// What to print and draw.
#[derive(Debug)]
#[allow(clippy::large_enum_variant, reason = "both hold layouts, which have no heap")]
enum Subject {
    Value(Value),
    Atom(Atom),
}

impl LayoutArgs {
    fn read(given: &Given) -> Self {
        let (table, [expr, atom]) = (given.flag("table"), ["expr", "atom"].map(|name| given.get(name)));
        let [svg, latex] = ["svg", "latex"].map(|name| given.get(name));
        Self { expr, atom, table, svg, latex }
    }

    fn execute(&self, given: &Given, out: &mut dyn Write) -> Result<(), Failure> {
        for path in [&self.svg, &self.latex].into_iter().flatten() {
            files::writable(path)?;
        }
        let subject = self.subject().map_err(Failure::Usage)?;
        let picture = self.picture(given, &subject).map_err(Failure::Usage)?;
        given.finish("such a layout")?;
        self.write(out, picture.as_ref(), &subject)
    }

    fn subject(&self) -> Result<Subject, String> {
        match (&self.expr, &self.atom) {
            (Some(expr), _) => evaluated(expr).map(Subject::Value),
            (None, Some(name)) => name.parse().map(Subject::Atom).map_err(text),
            (None, None) => Err("an expression, or --atom, was needed".into()),
        }
    }

    /// The requested picture, if any.
    fn picture(&self, given: &Given, subject: &Subject) -> Result<Option<Picture>, String> {
        let banks = given.first(&["banks", "access", "lane-bytes"]).is_some();
        let tile = given.get::<(i64, i64)>("tile");
        if !(self.table || self.svg.is_some() || self.latex.is_some() || tile.is_some() || banks) {
            return Ok(None);
        }
        let bits = || given.get::<u32>("banks");
        let picture = match (subject, tile) {
            (Subject::Atom(Atom::Shared { tile, element_bits, access }), _) => {
                Picture::of_banks(tile, bits().unwrap_or(*element_bits), &asked(given, access.clone())?)
            }
            (Subject::Atom(_), _) if banks => return Err("registers have no banks of shared memory".into()),
            (Subject::Atom(atom), _) => atom.picture(),
            (Subject::Value(Value::Layout(layout)), Some((rows, columns))) => {
                let fragment = ThreadValue::new(*layout, rows, columns).map_err(text)?;
                Picture::of_thread_value(&fragment)
            }
            (Subject::Value(value), Some(_)) => return Err(format!("{value} is no thread-value layout")),
            (Subject::Value(value), None) if banks => {
                let tile = composed(value)?;
                let bits = bits().ok_or("an access needs `--banks BITS`, the width of an element")?;
                let element = Access::row(0, (bits / 8).max(1));
                Picture::of_banks(&tile, bits, &asked(given, element)?)
            }
            (Subject::Value(Value::Layout(layout)), None) => Picture::of_layout(layout),
            (Subject::Value(Value::Coords(coords)), None) => Picture::of_coords(coords),
            (Subject::Value(Value::Part(part)), None) => Picture::of_part(part),
            (Subject::Value(value), None) => Picture::of_composed(&composed(value)?),
        };
        let picture = picture.map_err(text)?;
        Ok(Some(match &self.atom {
            Some(name) => picture.titled(&format!("{name}: {subject}")),
            None => picture,
        }))
    }

    fn write(
        &self,
        out: &mut dyn Write,
        picture: Option<&Picture>,
        subject: &Subject,
    ) -> Result<(), Failure> {
        if let Some(picture) = picture {
            for (path, document) in
                [(&self.svg, Picture::svg as fn(&Picture) -> String), (&self.latex, Picture::latex)]
            {
                if let Some(path) = path {
                    files::write_text(path, &document(picture))?;
                }
            }
            if self.table {
                write!(out, "{}", picture.table())?;
            } else {
                for note in picture.notes() {
                    writeln!(out, "{note}")?;
                }
            }
        }
        writeln!(out, "{subject}")?;
        Ok(out.flush()?)
    }
}

/// The requested access, or the usual one.
fn asked(given: &Given, usual: Access) -> Result<Access, String> {
    let walk = match given.get::<String>("access").as_deref() {
        None => usual.walk,
        Some("row") => Walk::Row(0),
        Some("column") => Walk::Column(0),
        Some(expr) => {
            let value = evaluated(expr)?;
            let Value::Layout(layout) = value else {
                return Err(format!("`--access` is `row`, `column` or a layout, not {value}"));
            };
            Walk::Threads(layout)
        }
    };
    Ok(Access { walk, lane_bytes: given.get("lane-bytes").unwrap_or(usual.lane_bytes) })
}

impl Display for Subject {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Value(value) => value.fmt(f),
            Self::Atom(atom) => atom.fmt(f),
        }
    }
}

/// Evaluates an expression. For a long expression, an error quotes only the part that it is about.
fn evaluated(expr: &str) -> Result<Value, String> {
    const WHOLE: usize = 120;
    evaluate(expr).map_err(|error| match expr.len() > WHOLE {
        false => error.to_string(),
        true => {
            let about = expr.get(error.span()).unwrap_or_default();
            let column = expr.get(..error.span().start).map_or(0, |before| before.chars().count()) + 1;
            let at = if about.is_empty() { String::new() } else { format!(", at `{}`", shortened(about)) };
            format!("column {column}: {}{at}", shortened(error.message()))
        }
    })
}

fn text(error: impl Display) -> String {
    error.to_string()
}

/// The layout of a value, with its swizzle and offset if it has them.
fn composed(value: &Value) -> Result<ComposedLayout, String> {
    value.composed().ok_or_else(|| format!("{value} is no layout, so there is nothing to draw"))
}

/// Parses a tile such as `64x128`.
pub(crate) fn tile(text: &str) -> Result<(i64, i64), String> {
    let numbers =
        text.split_once('x').and_then(|(rows, columns)| Some((rows.parse().ok()?, columns.parse().ok()?)));
    match numbers {
        Some((rows, columns)) if rows > 0 && columns > 0 => Ok((rows, columns)),
        _ => Err("a tile is written `64x128`".into()),
    }
}

/// Help text: the grammar and the operations.
pub(crate) fn help() -> String {
    let usages: Vec<_> = operations().iter().map(|operation| operation.usage).collect();
    let lines: Vec<_> = usages.chunks(4).map(|line| format!("  {}", line.join("  "))).collect();
    format!(
        "Expressions:\n  (4,(2,3)):(1,(4,8))   a layout; without `:` and stride it is column-major\n  \
         Sw<3,4,3> o 16 o L    a layout, an offset and a swizzle after it\n  \
         <B0,_,B2>             a tiler that applies to each mode; `_` keeps a mode\n\nOperations:\n{}",
        lines.join("\n")
    )
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    /// What the command prints, or why it fails.
    fn run(line: &[&str]) -> Result<String, String> {
        let matches = COMMAND.definition().try_get_matches_from([&["layout"], line].concat());
        let mut out = Vec::new();
        let given = matches.map_err(text).and_then(|matches| {
            Given::new(Verb::LAYOUT, matches).map_err(|failure| format!("{failure:?}"))
        })?;
        match LayoutArgs::read(&given).execute(&given, &mut out) {
            Ok(()) => String::from_utf8(out).map_err(text),
            Err(Failure::Usage(message) | Failure::Environment(message)) => Err(message),
            Err(Failure::Wrong) => Err("a wrong result".into()),
            Err(Failure::Closed) => Err("nobody reads".into()),
        }
    }

    #[test]
    fn the_last_line_is_the_result() {
        for (why, line, want) in [
            ("an operation", &["composition((6,2):(8,2), (4,3):(3,1))"][..], "((2,2),3):((24,2),8)\n"),
            ("a shape", &["(4,8)"], "(4,8):(1,4)\n"),
            ("a number", &["size((4,8))"], "32\n"),
            ("after a table", &["(2,2)", "--table"], "    0 1\n  +----\n0 | 0 2\n1 | 1 3\n(2,2):(1,2)\n"),
            (
                "after owners",
                &["((2,2),1):((1,4),0)", "--tile", "2x3", "--table"],
                "       0    1    2\n  +---------------\n0 | T0V0      T2V0\n1 | T1V0      T3V0\n((2,2),1):((1,4),0)\n",
            ),
            (
                "after what an access costs",
                &["(32,32):(32,1)", "--banks", "32", "--access", "column"],
                "32 lanes of 4 bytes down column 0: 32 wavefronts, 1 without conflicts, conflict degree 32\n\
                 (32,32):(32,1)\n",
            ),
            (
                "lanes of a layout",
                &[
                    "Sw<3,3,3> o (64,64):(64,1)",
                    "--banks",
                    "16",
                    "--access",
                    "(4,8):(128,1)",
                    "--lane-bytes",
                    "4",
                ],
                "32 lanes of 4 bytes at (4,8):(128,1): 1 wavefront, 1 without conflicts, conflict degree 1\n\
                 Sw<3,3,3> o 0 o (64,64):(64,1)\n",
            ),
            (
                "a part of coordinates",
                &["local_tile((8,9):(1@0,1@1), <2,2>, (1,2))", "--table"],
                "        0     1\n  +------------\n0 | (2,4) (2,5)\n1 | (3,4) (3,5)\n(2,4) o (2,2):(1@0,1@1)\n",
            ),
            ("an atom", &["--atom", "wgmma-m64n64k16-bf16-c"], "((4,8,4),(2,2,8)):((128,1,16),(64,8,512))\n"),
        ] {
            assert_eq!(run(line).as_deref(), Ok(want), "{why}");
        }
    }

    #[test]
    fn what_cannot_be_done_says_why() {
        for (why, line, want) in [
            ("no expression", &["(4,"][..], "column 4: the expression ends"),
            ("nothing to draw", &["size((4,8))", "--table"], "32 is no layout"),
            ("no thread-value layout", &["(4,8)", "--tile", "2x2", "--table"], "lies outside the tile"),
            ("a tile of no picture", &["(4,8)", "--tile", "4x8"], "--tile needs --table or --svg or --latex"),
            ("no tile", &["(4,8)", "--tile", "2"], "a tile is written `64x128`"),
            ("an access of what", &["(4,8)", "--access", "row"], "--access needs --banks or --atom"),
            ("an access by what", &["(4,8)", "--banks", "16", "--access", "rank(4)"], "not 1"),
            ("no banks", &["--atom", "wgmma-m64n64k16-bf16-c", "--access", "row"], "registers have no banks"),
            ("no atom", &["--atom", "hmma"], "no atom is called `hmma`"),
            ("neither", &[], "--atom, was needed"),
            ("both", &["(4,8)", "--atom", "wgmma-m64n64k16-bf16-c"], "cannot be used with"),
            ("no folder", &["(4,8)", "--svg", "/no such folder/a.svg"], "cannot write /no such folder/a.svg"),
        ] {
            let error = run(line).expect_err(why);
            assert!(error.contains(want), "{why}: {error}");
        }
    }

    #[test]
    fn pictures_are_files() {
        let file =
            |name: &str| std::env::temp_dir().join(format!("falchion-layout-{}-{name}", std::process::id()));
        let (svg, latex) = (file("a.svg"), file("a.tex"));
        let paths = [&svg, &latex].map(|path| path.display().to_string());
        let result = run(&["--atom", "smem-k-128B-bf16-8x64", "--svg", &paths[0], "--latex", &paths[1]]);
        assert!(result.is_ok_and(|text| text.ends_with("\nSw<3,3,3> o 0 o ((8,1),(64,1)):((64,0),(1,0))\n")));
        for (path, want) in [(svg, "<svg"), (latex, "\\begin{tikzpicture}")] {
            assert!(fs::read_to_string(&path).is_ok_and(|document| document.contains(want)));
            fs::remove_file(path).expect("it was just read");
        }
    }
}
