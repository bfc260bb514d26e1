//! Standard output and standard error: everything that the command line prints goes through here.
//!
//! A failed write to standard output ends the command. If the reader has closed it, the command ends without
//! a message, as SIGPIPE ends other tools; otherwise it reports an error. A failed write to standard error is
//! ignored.
//!
//! A file that is written may be `-`: it is then written to standard output, and the report to standard error.

use std::io::{self, Write};
use std::process::ExitCode;
use std::sync::atomic::{AtomicBool, Ordering};

use clap::error::{ContextKind, ContextValue};

use crate::cli::Failure;
use crate::cli::options::Given;

/// The exit code when the reader has closed standard output: what shells report for a process that SIGPIPE
/// ended.
pub(crate) const CLOSED: u8 = 141;

/// Whether a file is written to standard output, so that the report goes to standard error.
static REDIRECTED: AtomicBool = AtomicBool::new(false);

/// The options that name a file to write.
pub(crate) const WRITTEN: [&str; 10] =
    ["out", "svg", "latex", "json", "csv", "jsonl", "record", "sarif", "write-baseline", "trace"];

/// Sends the report to standard error if a file is written to standard output.
///
/// # Errors
/// Two files are.
pub(crate) fn redirect(given: &Given) -> Result<(), Failure> {
    let names: Vec<&str> = WRITTEN.into_iter().filter(|name| given.writes_stdout(name)).collect();
    if let [first, second, ..] = names[..] {
        refuse!("--{first} and --{second} are both `-`: standard output takes one of them");
    }
    REDIRECTED.store(!names.is_empty(), Ordering::Relaxed);
    Ok(())
}

/// Where the report goes: standard output, or standard error if a file is written to standard output. Its errors
/// become [`Failure`]s by `?`.
pub(crate) fn out() -> Box<dyn Write> {
    match REDIRECTED.load(Ordering::Relaxed) {
        false => Box::new(io::stdout().lock()),
        true => Box::new(io::stderr().lock()),
    }
}

/// Whether a file is standard output.
pub(crate) fn is_stdout(path: &std::path::Path) -> bool {
    path.as_os_str() == "-"
}

/// Prints on standard error why a command fails.
pub(crate) fn complain(message: &str) {
    let _ = writeln!(io::stderr(), "falchion: error: {}", plain(message));
}

/// Text without characters that a terminal obeys: they are written as Rust would write them, `\u{1b}`. So are those
/// that change the order of the others. Lines stay lines.
pub(crate) fn plain(text: &str) -> String {
    let obeyed = |c: char| {
        c.is_control() && c != '\n'
            || matches!(c, '\u{61C}' | '\u{200E}' | '\u{200F}' | '\u{202A}'..='\u{202E}' | '\u{2066}'..='\u{2069}')
    };
    let mut plain = String::with_capacity(text.len());
    for c in text.chars() {
        if obeyed(c) { plain.extend(c.escape_default()) } else { plain.push(c) }
    }
    plain
}

/// Parses the command line. If clap prints help or an error, the program must end with the returned code.
pub(crate) fn parse(command: clap::Command) -> Result<clap::ArgMatches, ExitCode> {
    command.try_get_matches().map_err(|mut error| {
        if let Some(ContextValue::String(value)) = error.get(ContextKind::InvalidValue) {
            let value = ContextValue::String(shortened(value));
            error.insert(ContextKind::InvalidValue, value);
        }
        let code = u8::try_from(error.exit_code()).unwrap_or(2);
        let printed = error.print().and_then(|()| out().flush());
        match printed {
            Err(failed) if !error.use_stderr() => Failure::from(failed).report(),
            Ok(()) | Err(_) => ExitCode::from(code),
        }
    })
}

/// Largest number of characters of foreign text that an error quotes.
const REPEATED: usize = 160;

/// Foreign text that is quoted, as [`plain`] text. Long text is cut after its beginning.
pub(crate) fn shortened(text: &str) -> String {
    let count = text.chars().count();
    if count <= REPEATED {
        return plain(text);
    }
    let head: String = text.chars().take(REPEATED).collect();
    format!("{}… ({} more characters)", plain(&head), count - REPEATED)
}

/// A list of names. A long list is cut: the first names, and the number of the others.
pub(crate) fn listed(names: &[String]) -> String {
    const NAMED: usize = 12;
    let named = names.iter().take(NAMED).map(|name| shortened(name)).collect::<Vec<_>>().join(", ");
    if names.len() > NAMED { format!("{named} and {} more", names.len() - NAMED) } else { named }
}

#[cfg(test)]
mod tests {
    use super::{REPEATED, listed, plain, shortened};

    #[test]
    fn a_terminal_obeys_no_text() {
        assert_eq!(plain("a\u{1b}[2Jb\tc\nd\u{9b}1m é\u{202e}"), "a\\u{1b}[2Jb\\tc\nd\\u{9b}1m é\\u{202e}");
        assert_eq!(shortened("\u{1b}]0;title\u{7}"), "\\u{1b}]0;title\\u{7}");
    }

    #[test]
    fn long_texts_are_cut() {
        assert_eq!(shortened("short"), "short");
        assert_eq!(shortened(&"é".repeat(REPEATED)), "é".repeat(REPEATED));
        let cut = shortened(&"é".repeat(REPEATED + 5));
        assert_eq!(cut, format!("{}… (5 more characters)", "é".repeat(REPEATED)));
        let names: Vec<String> = (0..14).map(|i| format!("t{i}")).collect();
        assert!(listed(&names).ends_with("t10, t11 and 2 more"), "{}", listed(&names));
        assert_eq!(listed(&names[..2]), "t0, t1");
    }
}
