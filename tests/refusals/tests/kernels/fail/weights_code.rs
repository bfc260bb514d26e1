//! A type that is no code of few bits.

use collective::{KMajor, Operand, Quantized};
use half::bf16;
use typenum::U128;

fn takes<O: Operand>() {}

fn main() {
    takes::<Quantized<KMajor<bf16>, bf16, U128>>();
}
