//! NVIDIA's assembler, named by `FALCHION_PTXAS`.

use std::io::Write;
use std::path::PathBuf;
use std::process::Command;

/// The output of `ptxas -v` for one module.
#[derive(Debug)]
pub(crate) struct Report {
    pub(crate) accepted: bool,
    pub(crate) log: String,
}

pub(crate) fn assemble(name: &str, text: &str) -> Report {
    let ptxas =
        std::env::var_os("FALCHION_PTXAS").expect("FALCHION_PTXAS names ptxas: run `cargo xtask test`");
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR"));
    let source = folder.join(format!("{name}.ptx"));
    std::fs::File::create(&source)
        .and_then(|mut file| file.write_all(text.as_bytes()))
        .expect("a writable folder");
    let output = Command::new(ptxas)
        .args(["-arch=sm_90a", "-v", "-o"])
        .arg(source.with_extension("cubin"))
        .arg(&source)
        .output()
        .expect("FALCHION_PTXAS runs");
    let log = [output.stdout, output.stderr].concat();
    Report { accepted: output.status.success(), log: String::from_utf8_lossy(&log).into_owned() }
}
