//! Standard output and standard error: all that the command line says goes through here.
//!
//! A write to standard output that fails ends the command: quietly if its reader has left, as other tools die of SIGPIPE,
//! and with an error otherwise. Where standard error cannot be written, nobody is left to be told.

use std::io::{self, StdoutLock, Write};
use std::process::ExitCode;

use clap::{CommandFactory, FromArgMatches};

use crate::Failure;

/// The exit code of a command whose reader has left: what shells report of a process that SIGPIPE ended.
pub(crate) const CLOSED: u8 = 141;

/// Standard output. Its errors become [`Failure`]s by `?`.
pub(crate) fn out() -> StdoutLock<'static> {
    io::stdout().lock()
}

/// Says on standard error why a command fails.
pub(crate) fn complain(message: &str) {
    let _ = writeln!(io::stderr(), "falchion: error: {message}");
}

/// Reads the command line. What it prints itself, help and complaints, ends the command with the code that is returned.
pub(crate) fn parse<C: CommandFactory + FromArgMatches>() -> Result<C, ExitCode> {
    // A negative number is a value everywhere, so that an error is about the value.
    let negative = |arg: clap::Arg| arg.allow_negative_numbers(true);
    let command = C::command().mut_subcommands(|command| command.mut_args(negative));
    let parsed = command.try_get_matches().and_then(|matches| C::from_arg_matches(&matches));
    parsed.map_err(|error| {
        let code = u8::try_from(error.exit_code()).unwrap_or(2);
        let printed = error.print().and_then(|()| out().flush());
        match printed {
            Err(failed) if !error.use_stderr() => Failure::from(failed).report(),
            Ok(()) | Err(_) => ExitCode::from(code),
        }
    })
}

/// Most characters of what somebody else wrote that an error repeats.
const REPEATED: usize = 160;

/// A text that an error repeats: its beginning, where it is long.
pub(crate) fn shortened(text: &str) -> String {
    let count = text.chars().count();
    if count <= REPEATED {
        return text.to_owned();
    }
    let head: String = text.chars().take(REPEATED).collect();
    format!("{head}… ({} more characters)", count - REPEATED)
}

/// Names in a row; of many, the first, and how many more there are.
pub(crate) fn listed(names: &[String]) -> String {
    const NAMED: usize = 12;
    let named = names.iter().take(NAMED).map(|name| shortened(name)).collect::<Vec<_>>().join(", ");
    if names.len() > NAMED { format!("{named} and {} more", names.len() - NAMED) } else { named }
}

#[cfg(test)]
mod tests {
    use super::{REPEATED, listed, shortened};

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
