//! Tests of the reader.

mod syntax;
