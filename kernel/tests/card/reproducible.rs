//! Kernels that claim to sum in the same order give the same bits on a GPU, too.

use kernel::{EngineError, Gpu};

use crate::orders::{CLASSES, Trial, trial};
use crate::skipped::skipped;

/// Trials per class. The driver compiles two kernels for each.
const TRIALS: u64 = 6;

#[test]
fn equal_summations_give_equal_bits() -> Result<(), EngineError> {
    let Ok(mut gpu) = Gpu::new(0) else {
        skipped("GPU");
        return Ok(());
    };
    for class in CLASSES {
        let mut ran = 0;
        for seed in 1000..1000 + TRIALS {
            ran += u64::from(trial(&mut gpu, class, seed)? != Trial::Unfit);
        }
        assert!(ran >= TRIALS / 2, "{class:?}: {ran} of {TRIALS} ran");
        println!("{ran:3} of {TRIALS} other kernels gave the bits of `{}`", class.0);
    }
    Ok(())
}
