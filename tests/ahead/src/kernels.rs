//! The crate's kernels, for itself and for its build script.

use collective::{Cooperative, KMajor, LinearCombination, Operands, Tile, TmaWgmma};
use half::bf16;
use kernel::Composed;
use scheduler::{AlongM, OneTile};
use typenum::{U1, U32, U64};

type Kk = Operands<KMajor<bf16>, KMajor<bf16>>;

/// A kernel as a type.
pub(crate) type Mine =
    Composed<TmaWgmma<Kk, Tile<U64, U32, U64>, Cooperative<U1>>, LinearCombination<bf16>, OneTile<AlongM>>;

/// A kernel as a spec.
pub(crate) const STREAMED: &str = "tile=64x160x64 roles=pingpong scheduler=stream-k";
