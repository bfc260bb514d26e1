//! Mainloops of your own, made only from public parts: several GEMMs per stage, tiles in addition to A and B,
//! A from registers, and every accumulator type.

mod atoms;
mod blocks;
mod chained;
mod dual;
mod gather;
mod registers;
mod reports;
mod scales;
mod support;
mod triangle;
