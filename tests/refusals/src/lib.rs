//! What must not compile is under test here: `tests/layouts` and `tests/kernels` hold programs that the compiler refuses, and
//! the words in which it does.
