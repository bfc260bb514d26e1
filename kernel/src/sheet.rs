//! A text of measurements that come with a library: the kernels of problems on one card, and their times.
//!
//! Lines that begin with `#` are comments. Each spec has a line with its number, from 0 on. Each problem has a line with numbers of specs
//! and their microseconds, the fastest first:
//!
//! ```text
//! 0 tile=128x160 mask=causal
//! 1 mask=causal
//! 2x8x1000x1000 mask=causal 1:23.6 0:24.1
//! ```

use collective::process::Once;

/// The specs of a text. Each is read when it is first needed: a choice needs few of them.
pub(crate) struct Sheet<S> {
    specs: Vec<(&'static str, Once<Option<S>>)>,
    read: fn(&str) -> Option<S>,
}

impl<S> Sheet<S> {
    /// Reads a text, of which `read` reads a spec. Also gives the problems, each with its kernels.
    pub(crate) fn parse(
        text: &'static str,
        read: fn(&str) -> Option<S>,
    ) -> (Self, Vec<(&'static str, &'static str)>) {
        let (mut specs, mut problems) = (Vec::new(), Vec::new());
        for line in text.lines().filter(|line| !line.is_empty() && !line.starts_with('#')) {
            let (first, rest) = line.split_once(' ').unwrap_or((line, ""));
            if first.bytes().all(|of| of.is_ascii_digit()) {
                specs.push((rest, Once::new()));
            } else {
                problems.extend(halves(line));
            }
        }
        (Self { specs, read }, problems)
    }

    /// The kernels of a problem, with their microseconds.
    pub(crate) fn kernels<'s>(&'s self, kernels: &'s str) -> impl Iterator<Item = (&'s S, f64)> {
        kernels.split(' ').filter_map(|word| {
            let (number, microseconds) = word.split_once(':')?;
            let (text, spec) = self.specs.get(number.parse::<usize>().ok()?)?;
            Some((spec.get_or_init(|| (self.read)(text)).as_ref()?, microseconds.parse().ok()?))
        })
    }
}

/// A problem, and what is behind it: its first kernel is the first word with a colon.
fn halves(line: &'static str) -> Option<(&'static str, &'static str)> {
    line.split_at_checked(line[..line.find(':')?].rfind(' ')?).map(|(problem, rest)| (problem, &rest[1..]))
}

#[cfg(test)]
mod tests {
    use super::Sheet;

    #[test]
    fn a_text_has_specs_and_problems() {
        let text = "# comment 3:4\n\n0 four 4\n1\n2 no\na=1 b 1:2.5 0:3\nc 2:1 0:4 7:1\n";
        let (sheet, problems) = Sheet::parse(text, |spec| (spec != "no").then(|| spec.to_owned()));
        assert_eq!(problems, [("a=1 b", "1:2.5 0:3"), ("c", "2:1 0:4 7:1")]);
        let kernels = |i: usize| sheet.kernels(problems[i].1).collect::<Vec<_>>();
        assert_eq!(kernels(0), [(&String::new(), 2.5), (&"four 4".to_owned(), 3.0)]);
        assert_eq!(kernels(1), [(&"four 4".to_owned(), 4.0)], "what is no spec is left out");
    }
}
