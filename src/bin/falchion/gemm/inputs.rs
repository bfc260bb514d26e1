//! The matrices of one GEMM: from files, or random ones of the requested extents.

use kernel::GemmProblem;

use super::GemmArgs;
use crate::files::{self, Matrix};
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
    pub(super) fn inputs(&self) -> Result<Inputs, Failure> {
        let (files, layer) = match (&self.a, &self.b, self.packing()?) {
            (Some(a), Some(b), Some((packing, wide))) => {
                let (a, (codes, layer)) = (files::read(a)?, packing.read(b, wide)?);
                // Permute A's columns into the order of the groups, so that each group is contiguous along K.
                let a = match &layer.order {
                    Some(order) if order.len() == a.columns as usize => a.with_columns(order),
                    _ => a,
                };
                (Some([a, codes]), Some(layer))
            }
            (Some(a), Some(b), None) => (Some([files::read(a)?, files::read(b)?]), None),
            (_, _, Some(_)) => {
                return Err(Failure::usage(
                    "--dtype-b gptq and awq read a layer of a file: --a and --b were needed",
                ));
            }
            (_, _, None) => (None, None),
        };
        let c = self.c.as_deref().map(files::read).transpose()?;
        let shape = |matrix: &Matrix| format!("{} x {}", matrix.rows, matrix.columns);
        let problem = match &files {
            None => {
                let or_default = |extent: Option<u32>| extent.unwrap_or(256);
                GemmProblem { m: or_default(self.m), n: or_default(self.n), k: or_default(self.k) }
            }
            Some([a, b]) => {
                if a.columns != b.rows {
                    return Err(Failure::usage(format!(
                        "A is {} and B is {}: A's number of columns must be B's number of rows",
                        shape(a),
                        shape(b)
                    )));
                }
                GemmProblem { m: a.rows, n: b.columns, k: a.columns }
            }
        };
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
        if let Some(c) = c.as_ref().filter(|c| [c.rows, c.columns] != [m, n]) {
            return Err(Failure::usage(format!(
                "C is {}, D is {m} x {n}: the shapes must be equal",
                shape(c)
            )));
        }
        if self.c.is_some() && self.beta.is_none() {
            return Err(Failure::usage(
                "--c is given and --beta is not, so beta is 0 and C has no effect: give --beta 1, or another factor",
            ));
        }
        if self.beta() != 0.0 && files.is_some() && c.is_none() {
            return Err(Failure::usage(format!("--beta is {} but there is no --c", self.beta())));
        }
        Ok(Inputs { problem, files, layer, c })
    }
}
