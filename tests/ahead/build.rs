//! Writes two kernels as PTX, and as binaries where `FALCHION_PTXAS` names an assembler.

#[path = "src/kernels.rs"]
mod kernels;

use std::error::Error;

use kernel::{AnyGemm, KernelSpec, build};

fn main() -> Result<(), Box<dyn Error>> {
    let streamed: KernelSpec = kernels::STREAMED.parse()?;
    build::emit(&[AnyGemm::of::<kernels::Mine>("mine").into(), streamed.named("streamed")?.into()])?;
    Ok(())
}
