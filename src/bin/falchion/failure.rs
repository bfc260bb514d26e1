//! How a command fails: one paragraph on standard error and an exit code.

use std::fmt::Display;
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
