//! Mainloops from outside, made of the public parts alone: several products of one stage, tiles beside A and B, A from registers,
//! and every type of sums.

mod atoms;
mod blocks;
mod chained;
mod dual;
mod registers;
mod scales;
mod support;
