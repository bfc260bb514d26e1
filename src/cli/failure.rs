//! How a command fails: one paragraph on standard error and an exit code.

use std::fmt::Display;
use std::io;
use std::process::ExitCode;

use crate::verify::RunError;

use crate::cli::output;

/// A [`Failure::Usage`] with a message, which is written as for `format!`.
macro_rules! usage {
    ($($message:tt)*) => { $crate::cli::failure::Failure::usage(format_args!($($message)*)) };
}

/// Returns such a failure.
macro_rules! refuse {
    ($($message:tt)*) => { return Err(usage!($($message)*)) };
}

/// Why a command failed.
#[derive(Debug)]
pub(crate) enum Failure {
    /// A result was wrong. The command has already printed which one.
    Wrong,
    /// The user asked for something impossible.
    Usage(String),
    /// The machine cannot do it.
    Environment(String),
    /// The reader of standard output closed it.
    Closed,
}

impl Failure {
    pub(crate) fn usage(message: impl Display) -> Self {
        Self::Usage(message.to_string())
    }

    pub(crate) fn environment(message: impl Display) -> Self {
        Self::Environment(message.to_string())
    }

    /// The same with what it is about before the message.
    pub(crate) fn about(self, what: &str) -> Self {
        match self {
            Self::Usage(message) => Self::Usage(format!("{what}: {message}")),
            Self::Wrong | Self::Environment(_) | Self::Closed => self,
        }
    }

    /// Prints the reason and returns the exit code.
    pub(crate) fn report(self) -> ExitCode {
        match self {
            Self::Wrong => ExitCode::from(1),
            Self::Closed => ExitCode::from(output::CLOSED),
            Self::Usage(message) | Self::Environment(message) => {
                output::complain(&message);
                ExitCode::from(2)
            }
        }
    }
}

/// For standard output only. Errors of files are reported with their paths.
impl From<io::Error> for Failure {
    fn from(error: io::Error) -> Self {
        if error.kind() == io::ErrorKind::BrokenPipe {
            return Self::Closed;
        }
        Self::Environment(format!("cannot write to standard output: {error}"))
    }
}

impl From<RunError> for Failure {
    fn from(error: RunError) -> Self {
        match error {
            RunError::Launch(_) | RunError::Direction { .. } => Self::usage(error),
            RunError::Engine(_) | RunError::Program(_) | RunError::Transposed { .. } | RunError::Check(_) => {
                Self::environment(error)
            }
        }
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
    kernel::disk::CacheError => Environment;
    ptx::VerifyError => Environment;
    crate::verify::tables::TableError => Environment;
}
