//! The matrices of one GEMM: from files, or random ones of the requested extents.

use kernel::GemmProblem;

use super::GemmArgs;
use crate::cli::files::{self, Found, Matrix};
use crate::cli::packed::Layer;
use crate::cli::{Failure, memory};

/// Extents and files, before a kernel is chosen.
pub(super) struct Inputs {
    pub(super) problem: GemmProblem,
    pub(super) files: Option<[Matrix; 2]>,
    /// Scales and zero points of B, if it is a layer of a GPTQ or AWQ file.
    pub(super) layer: Option<Layer>,
    pub(super) c: Option<Matrix>,
}

impl GemmArgs<'_> {
    /// The matrices of files are compared by their headers before their elements are read.
    pub(super) fn inputs(&self) -> Result<Inputs, Failure> {
        let name = |name: &str| self.given.get::<String>(name);
        let look =
            |name: &str| files::look(name).map(|of| if self.given.turned() { of.transposed() } else { of });
        let c = name("c").as_deref().map(look).transpose()?;
        let (problem, files, layer) = match (name("a"), name("b"), self.types.packing()) {
            (Some(a), Some(b), None) => {
                let (a, b) = (look(&a)?, look(&b)?);
                let problem = self.of_files(&a, [b.rows, b.columns], c.as_ref())?;
                (problem, Some([a.read()?, b.read()?]), None)
            }
            (Some(a), Some(b), Some(packing)) => {
                let (wide, a) = (self.types.multiplied()?, files::look(&a)?);
                let fits = |extents| self.of_files(&a, extents, c.as_ref());
                let (problem, codes, layer) = packing.read(&b, wide, &fits)?;
                // Permute A's columns into the order of the groups, so that each group is contiguous along K.
                let a = match &layer.order {
                    Some(order) => a.read()?.with_columns(order),
                    None => a.read()?,
                };
                (problem, Some([a, codes]), Some(layer))
            }
            (_, _, Some(_)) => {
                refuse!("--dtype-b gptq and awq read a layer of a file: --a and --b were needed");
            }
            (_, _, None) => (self.random_problem()?, None, None),
        };
        Ok(Inputs { problem, files, layer, c: c.map(Found::read).transpose()? })
    }

    /// The problem of a file of A, a B of these extents, and a file of C.
    fn of_files(
        &self,
        a: &Found,
        [rows, columns]: [u32; 2],
        c: Option<&Found>,
    ) -> Result<GemmProblem, Failure> {
        if a.columns != rows {
            refuse!(
                "A is {} x {} and B is {rows} x {columns}: A's number of columns must be B's number of rows",
                a.rows,
                a.columns
            );
        }
        let problem = GemmProblem { m: a.rows, n: columns, k: rows };
        let GemmProblem { m, n, k } = problem;
        for (name, there) in [("m", m), ("n", n), ("k", k)] {
            if let Some(asked) = self.given.get::<u32>(name).filter(|&asked| asked != there) {
                refuse!("--{name} is {asked}, the files have {there}");
            }
        }
        possible(problem)?;
        if let Some(c) = c.filter(|c| [c.rows, c.columns] != [m, n]) {
            refuse!("C is {} x {}, D is {m} x {n}: the shapes must be equal", c.rows, c.columns);
        }
        if c.is_some() && !self.given.has("beta") {
            refuse!(
                "--c is given and --beta is not, so beta is 0 and C has no effect: give --beta 1, or another factor"
            );
        }
        if self.beta() != 0.0 && c.is_none() {
            refuse!("--beta is {} but there is no --c", self.beta());
        }
        Ok(problem)
    }

    /// The given extents.
    fn extents(&self, usual: u32) -> GemmProblem {
        let [m, n, k] = ["m", "n", "k"].map(|name| self.given.get(name).unwrap_or(usual));
        GemmProblem { m, n, k }
    }

    /// The extents of one GEMM of random matrices.
    pub(super) fn random_problem(&self) -> Result<GemmProblem, Failure> {
        let problem = self.extents(256);
        possible(problem).map(|()| problem)
    }
}

/// Fails for a GEMM that this machine has no memory for.
fn possible(problem: GemmProblem) -> Result<(), Failure> {
    let GemmProblem { m, n, k } = problem;
    let needed = memory::checked(&[problem]);
    memory::enough(&format!("{m} x {n} x {k}"), needed, "--m, --n or --k")?;
    for (name, extent) in [("--m", m), ("--n", n), ("--k", k)] {
        if extent > i32::MAX as u32 {
            refuse!("{name} is {extent}, at most {} is possible", i32::MAX);
        }
    }
    Ok(())
}
