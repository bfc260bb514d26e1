//! Tests of an epilogue's functions: the formula in double precision, the bound, and the program on the
//! emulator.

mod device;
mod formulas;
mod gradients;
mod random;
