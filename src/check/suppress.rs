//! Findings that are expected.

use core::fmt;
use core::str::FromStr;

use super::rules;

/// A rule whose findings are expected: everywhere, or in some lines of the PTX.
///
/// ```
/// use falchion::check::Suppression;
///
/// let expected: Suppression = "shared-race:120-140".parse()?;
/// assert_eq!(expected.lines, Some((120, 140)));
/// assert_eq!(expected.to_string(), "shared-race:120-140");
/// assert!("shared-raec".parse::<Suppression>().is_err(), "there is no such rule");
/// # Ok::<(), String>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Suppression {
    /// The rule's name.
    pub rule: &'static str,
    /// The first and the last line; `None` for all.
    pub lines: Option<(u32, u32)>,
}

impl Suppression {
    /// Whether a finding of a rule at a line is expected. A finding without a line is expected if all of its rule are.
    pub(super) fn covers(&self, rule: &str, line: Option<u32>) -> bool {
        let inside = |(first, last): (u32, u32)| line.is_some_and(|line| (first..=last).contains(&line));
        self.rule == rule && self.lines.is_none_or(inside)
    }
}

/// `RULE`, `RULE:LINE` or `RULE:LINE-LINE`.
impl FromStr for Suppression {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (name, lines) = match text.split_once(':') {
            Some((name, lines)) => (name, Some(lines)),
            None => (text, None),
        };
        let rule = rules::all().find(|rule| rule.name == name);
        let rule =
            rule.ok_or_else(|| format!("there is no rule `{name}`: `falchion check --rules` lists them"))?;
        let lines = lines.map(|lines| {
            let (first, last) = lines.split_once('-').unwrap_or((lines, lines));
            let number = |text: &str| text.trim().parse::<u32>().ok();
            let both = number(first).zip(number(last)).filter(|(first, last)| first <= last);
            both.ok_or_else(|| format!("`{lines}` is no line and no range of lines, as 120 or 120-140"))
        });
        Ok(Self { rule: rule.name, lines: lines.transpose()? })
    }
}

impl fmt::Display for Suppression {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.lines {
            None => f.write_str(self.rule),
            Some((first, last)) if first == last => write!(f, "{}:{first}", self.rule),
            Some((first, last)) => write!(f, "{}:{first}-{last}", self.rule),
        }
    }
}
