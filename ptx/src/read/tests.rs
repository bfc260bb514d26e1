//! Tests of the reader.

mod calls;
mod fuzz;
mod lowered;
mod printed;
mod refused;
mod syntax;
