//! Functions of an epilogue: the formula in double precision, the bound, and the program on the emulator.

mod device;
mod formulas;
mod gradients;
mod random;
