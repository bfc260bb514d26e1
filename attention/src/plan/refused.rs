//! Why a spec has no plan, as a value that constant functions can pass on.

use collective::Format;

use crate::error::AttentionError;

/// Why a spec has no plan: the errors of [`AttentionError`] that own no memory.
#[derive(Clone, Copy)]
pub(super) enum Refused {
    Format { field: &'static str, format: Format, needed: &'static str },
    Number { field: &'static str, value: u32, needed: &'static str },
    SharedMemory { stages: u32, need: u32, have: u32 },
    Registers { need: u32, have: u32, rows: u32, keys: u32 },
}

impl Refused {
    pub(super) const fn error(self) -> AttentionError {
        match self {
            Self::Format { field, format, needed } => AttentionError::Format { field, format, needed },
            Self::Number { field, value, needed } => AttentionError::Number { field, value, needed },
            Self::SharedMemory { stages, need, have } => AttentionError::SharedMemory { stages, need, have },
            Self::Registers { need, have, rows, keys } => {
                AttentionError::Registers { need, have, rows, keys }
            }
        }
    }
}
