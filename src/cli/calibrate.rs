//! `falchion calibrate`: measures the card for the model that chooses kernels.

use std::io::Write;

use kernel::{Calibration, Engine, Gpu};

use crate::cli::options::Verb;
use crate::cli::output::out;
use crate::cli::{Command, Failure};

pub(crate) const COMMAND: Command = Command {
    verb: Verb::CALIBRATE,
    about: "Measure this GPU for the model that chooses kernels, in about two seconds.

It measures memory and L2 bandwidth, the time of a launch and the rate of `wgmma`, and keeps the numbers in the cache folder (see \
`falchion cache`). From then on they replace what is derived from the driver's traits of the card, in every program that uses this folder. Run it on an idle \
GPU. Cards whose records come with the library need it least.",
    examples: "Examples:\n  falchion calibrate",
    run: |given| {
        given.finish("`falchion calibrate`")?;
        run()
    },
};

fn run() -> Result<(), Failure> {
    let mut gpu = Gpu::new(0)?;
    let out = &mut out();
    writeln!(out, "{}", gpu.describe())?;
    let before = gpu.context().machine()?;
    let measured = gpu.calibrate()?;
    let after = before.calibrated(&measured);
    let Calibration { copy, l2, launch, multiply } = measured;
    writeln!(out, "{:10} {:>12} {:22} {:>10} {:>10}", "", "measured", "", "model had", "model has")?;
    for (what, number, unit, of) in [
        ("copy", copy / 1e6, "TB/s, read and written", [before.dram, after.dram].map(|rate| rate / 1e6)),
        ("L2", l2 / 1e6, "TB/s, read", [before.l2, after.l2].map(|rate| rate / 1e6)),
        ("launch", launch, "us", [before.launch, after.launch]),
        ("wgmma", multiply / 1e6, "TFLOP/s of bf16", [before.tensor, after.tensor]),
    ] {
        writeln!(out, "{what:10} {number:12.3} {unit:22} {:10.3} {:10.3}", of[0], of[1])?;
    }
    match gpu.context().keep_calibration(&measured)? {
        Some(path) => writeln!(out, "kept in {}", path.display())?,
        None => writeln!(out, "kept nowhere: FALCHION_CACHE is empty")?,
    }
    Ok(())
}
