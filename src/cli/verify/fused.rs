//! `falchion verify --suite fusions`: runs every kernel of the catalogue with a fused epilogue, and compares
//! it with its tree.

use std::io::{self, Write};

use crate::verify::{Bench, FusedGemm, fused_catalogue};
use kernel::{Emulator, Engine, GemmProblem};

use super::{Count, VerifyArgs};
use crate::cli::Failure;
use crate::cli::engine::{Found, Progress};
use crate::cli::output::shortened;

/// Problems with full tiles, and with partial tiles at the edges.
const PROBLEMS: [GemmProblem; 2] =
    [GemmProblem { m: 256, n: 768, k: 64 }, GemmProblem { m: 200, n: 144, k: 72 }];

impl VerifyArgs {
    /// The kernels that `--filter` selects.
    fn fused(&self) -> Vec<(FusedGemm, GemmProblem)> {
        let kernels = fused_catalogue().into_iter().filter(|kernel| kernel.name().contains(&self.filter));
        kernels.flat_map(|kernel| PROBLEMS.map(|problem| (kernel.clone(), problem))).collect()
    }

    pub(super) fn fusions(&self, count: &mut Count, out: &mut impl Write) -> Result<(), Failure> {
        let cases = self.fused();
        if cases.is_empty() {
            refuse!("no fused kernel has `{}` in its name", shortened(&self.filter));
        }
        let run = |engine: &mut dyn Engine, (kernel, problem): &(FusedGemm, GemmProblem)| {
            kernel.check(&mut Bench::new(engine, self.seed), *problem)
        };
        for Found { name, engine, .. } in self.engine.open()? {
            let results: Vec<_> = match engine {
                // The cases are independent: each has an emulator of its own.
                Ok(_) if name == "emulator" => {
                    let total = cases.len() as u64;
                    Progress::new("verifying")
                        .each(&cases, (0, total), |case| run(&mut Emulator::new(), case))
                }
                Ok(mut gpu) => cases.iter().map(|case| run(&mut *gpu, case)).collect(),
                Err(error) => {
                    writeln!(out, "skip {} fused kernels on a GPU: {error}", cases.len())?;
                    count.skipped += cases.len();
                    continue;
                }
            };
            for (case, result) in cases.iter().zip(results) {
                count.fused(out, name, case, result.map(|checked| checked.ratio))?;
            }
        }
        Ok(())
    }
}

impl Count {
    fn fused(
        &mut self,
        out: &mut impl Write,
        engine: &str,
        (kernel, GemmProblem { m, n, k }): &(FusedGemm, GemmProblem),
        result: Result<f64, crate::verify::TreeError>,
    ) -> io::Result<()> {
        let what = format!("{} {m} x {n} x {k} on {engine}", kernel.name());
        match result {
            Ok(ratio) => {
                self.passed += 1;
                writeln!(out, "ok   {what}: {ratio:.2} of the bound")
            }
            Err(error) => {
                self.failed += 1;
                writeln!(out, "FAIL {what}: {error}")
            }
        }
    }
}
