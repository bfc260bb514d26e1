//! A program that contains kernels made by its build script.

mod kernels;

use std::error::Error;

use kernel::{AnyGemm, KernelSpec, Program};

/// The files that the build script wrote.
mod ahead {
    include!(concat!(env!("OUT_DIR"), "/kernels.rs"));
}

fn main() -> Result<(), Box<dyn Error>> {
    let streamed: KernelSpec = kernels::STREAMED.parse()?;
    let same = include_str!(concat!(env!("OUT_DIR"), "/mine.ptx"));
    assert_eq!(same, ahead::MINE_PTX, "it can be included by its name, too");
    for (name, program, text, binary) in [
        ("mine", AnyGemm::of::<kernels::Mine>("mine").program()?, ahead::MINE_PTX, ahead::MINE_CUBIN),
        ("streamed", streamed.kernel()?.program()?, ahead::STREAMED_PTX, ahead::STREAMED_CUBIN),
    ] {
        check(name, &program, text, binary);
    }
    Ok(())
}

/// The text is that of the kernel. There is a binary if an assembler was named at build time.
fn check(name: &str, program: &Program, text: &str, binary: Option<&[u8]>) {
    assert!(program.text() == text, "{name}: the text that was made ahead is another one");
    let named = option_env!("FALCHION_PTXAS").is_some_and(|path| !path.is_empty());
    assert_eq!(binary.is_some(), named, "{name}: a binary where an assembler was named");
    let bytes = binary.map_or(0, <[u8]>::len);
    assert!(binary.is_none_or(|binary| binary.starts_with(b"\x7fELF")), "{name}: it is no ELF file");
    println!("{name}: {} B of PTX, {bytes} B of binary", text.len());
}
