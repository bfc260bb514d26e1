//! How a command fails: one paragraph on standard error and an exit code.

use std::fmt::Display;
use std::io;
use std::process::ExitCode;

/// Why a command did not end well.
#[derive(Debug)]
pub(crate) enum Failure {
    /// A result was wrong; the command has said so.
    Wrong,
    /// The user asked for something that cannot be.
    Usage(String),
    /// The machine cannot do it.
    Environment(String),
}

impl Failure {
    pub(crate) fn usage(message: impl Display) -> Self {
        Self::Usage(message.to_string())
    }

    pub(crate) fn environment(message: impl Display) -> Self {
        Self::Environment(message.to_string())
    }

    /// The outcome of printing a listing: a reader who has seen enough is no failure.
    pub(crate) fn unless_read(printed: io::Result<()>) -> Result<(), Self> {
        match printed {
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
            result => Ok(result?),
        }
    }

    /// Says why and gives the exit code.
    pub(crate) fn report(self) -> ExitCode {
        match self {
            Self::Wrong => ExitCode::from(1),
            Self::Usage(message) | Self::Environment(message) => {
                eprintln!("falchion: error: {message}");
                ExitCode::from(2)
            }
        }
    }
}

/// Of standard output: errors of files are reported with their paths.
impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        Self::Environment(format!("cannot write to standard output: {error}"))
    }
}

macro_rules! from {
    ($($error:ty => $kind:ident;)*) => {$(
        impl From<$error> for Failure {
            fn from(error: $error) -> Self {
                Self::$kind(error.to_string())
            }
        }
    )*};
}

from! {
    kernel::UnknownConfig => Usage;
    kernel::LaunchError => Usage;
    kernel::EngineError => Environment;
    ptx::VerifyError => Environment;
    falchion::verify::tables::TableError => Environment;
}
