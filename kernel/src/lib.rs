//! GEMM kernels as types (work in progress).
mod catalogue;
mod config;
mod engine;
mod error;
mod problem;
mod program;
pub use catalogue::{AnyGemm, UnknownConfig, catalogue, find};
pub use config::{Composed, Gemm, GemmConfig};
pub use engine::{Buffer, Engine};
pub use error::{EngineError, LaunchError};
pub use problem::{Call, GemmProblem, Launch, MatrixRef};
pub use program::Program;
