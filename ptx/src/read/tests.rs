//! Tests of the reader.

mod printed;
mod syntax;
