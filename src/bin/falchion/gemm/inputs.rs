//! The matrices of one GEMM: from files, or random ones of the requested extents.

use kernel::GemmProblem;

use super::GemmArgs;
use crate::files::{self, Found, Matrix};
use crate::packed::Layer;
use crate::{Failure, memory};

/// Extents and files, before a kernel is chosen.
pub(super) struct Inputs {
    pub(super) problem: GemmProblem,
    pub(super) files: Option<[Matrix; 2]>,
    /// Scales and zero points of B, if it is a layer of a GPTQ or AWQ file.
    pub(super) layer: Option<Layer>,
    pub(super) c: Option<Matrix>,
}

impl GemmArgs {
    /// The matrices of files are compared by their headers before their elements are read.
    pub(super) fn inputs(&self) -> Result<Inputs, Failure> {
        let packing = self.packing()?;
        let c = self.c.as_deref().map(files::look).transpose()?;
        let (problem, files, layer) = match (&self.a, &self.b, packing) {
            (Some(a), Some(b), None) => {
                let (a, b) = (files::look(a)?, files::look(b)?);
                let problem = self.of_files(&a, [b.rows, b.columns], c.as_ref())?;
                (problem, Some([a.read()?, b.read()?]), None)
            }
            (Some(a), Some(b), Some((packing, wide))) => {
                let a = files::look(a)?;
                let fits = |extents| self.of_files(&a, extents, c.as_ref());
                let (problem, codes, layer) = packing.read(b, wide, &fits)?;
                // Permute A's columns into the order of the groups, so that each group is contiguous along K.
                let a = match &layer.order {
                    Some(order) => a.read()?.with_columns(order),
                    None => a.read()?,
                };
                (problem, Some([a, codes]), Some(layer))
            }
            (_, _, Some(_)) => {
                return Err(Failure::usage(
                    "--dtype-b gptq and awq read a layer of a file: --a and --b were needed",
                ));
            }
            (_, _, None) => {
                let or_default = |extent: Option<u32>| extent.unwrap_or(256);
                let problem =
                    GemmProblem { m: or_default(self.m), n: or_default(self.n), k: or_default(self.k) };
                self.possible(problem)?;
                (problem, None, None)
            }
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
            return Err(Failure::usage(format!(
                "A is {} x {} and B is {rows} x {columns}: A's number of columns must be B's number of rows",
                a.rows, a.columns
            )));
        }
        let problem = GemmProblem { m: a.rows, n: columns, k: rows };
        self.possible(problem)?;
        let GemmProblem { m, n, .. } = problem;
        if let Some(c) = c.filter(|c| [c.rows, c.columns] != [m, n]) {
            return Err(Failure::usage(format!(
                "C is {} x {}, D is {m} x {n}: the shapes must be equal",
                c.rows, c.columns
            )));
        }
        if c.is_some() && self.beta.is_none() {
            return Err(Failure::usage(
                "--c is given and --beta is not, so beta is 0 and C has no effect: give --beta 1, or another factor",
            ));
        }
        if self.beta() != 0.0 && c.is_none() {
            return Err(Failure::usage(format!("--beta is {} but there is no --c", self.beta())));
        }
        Ok(problem)
    }

    /// Fails if the extents are not those that are asked for, or are too large for this machine.
    fn possible(&self, problem: GemmProblem) -> Result<(), Failure> {
        let GemmProblem { m, n, k } = problem;
        for (name, asked, there) in [("--m", self.m, m), ("--n", self.n, n), ("--k", self.k, k)] {
            if let Some(asked) = asked.filter(|&asked| asked != there) {
                return Err(Failure::usage(format!("{name} is {asked}, the files have {there}")));
            }
            if there == 0 {
                return Err(Failure::usage(format!("{name} is 0, at least 1 was needed")));
            }
        }
        let needed = memory::checked(&[problem]);
        memory::enough(&format!("{m} x {n} x {k}"), needed, "--m, --n or --k")?;
        for (name, extent) in [("--m", m), ("--n", n), ("--k", k)] {
            if extent > i32::MAX as u32 {
                return Err(Failure::usage(format!("{name} is {extent}, at most {} is possible", i32::MAX)));
            }
        }
        Ok(())
    }
}
