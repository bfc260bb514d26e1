//! What was measured of a call: it comes before what the model says.

use std::collections::HashMap;
use std::sync::OnceLock;

use collective::Form;
use cute_rs::atom::Major;

use super::{Machine, Request};
use crate::spec::KernelSpec;

/// Where a selection takes from what was measured for a call. Groups of rows and described products are chosen from a list by the
/// model alone.
///
/// ```
/// use cute_rs::atom::Major;
/// use kernel::{GemmProblem, KernelSpec, Known, Machine, Request, fastest};
///
/// let problem = GemmProblem { m: 1000, n: 5000, k: 2056 };
/// let request = Request::packed("bf16", [Major::K; 2], problem);
/// let mine = [("tile=128x160x64 roles=pingpong".parse::<KernelSpec>()?, 31.5)];
/// let best = fastest(&request.known(Known::Measured(&mine)), &Machine::h200()).expect("a kernel");
/// assert_eq!((best.gemm.spec(), best.measured), (Some(mine[0].0), Some(31.5)));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub enum Known<'a> {
    /// The records that come with this library: some of an H200.
    #[default]
    Shipped,
    /// Specs and their microseconds, measured for this very call: of them the fastest that is legal is ranked first. Feature
    /// `records` keeps such records on disk (`kernel::disk::records`).
    Measured(&'a [(KernelSpec, f64)]),
    /// Nothing: the model alone decides.
    Nothing,
}

/// The record of an H200; of a plain product of packed bf16 matrices that lie along K.
const H200: &str = include_str!("h200.txt");

/// Extents, the fastest spec, and its microseconds.
type Shipped = HashMap<[u32; 3], (KernelSpec, f64)>;

fn shipped() -> &'static Shipped {
    static ALL: OnceLock<Shipped> = OnceLock::new();
    ALL.get_or_init(|| H200.lines().filter_map(line).collect())
}

/// `1024x320x11072 19.8 tile=...`
fn line(text: &str) -> Option<([u32; 3], (KernelSpec, f64))> {
    let (shape, rest) = text.split_once(' ')?;
    let (microseconds, spec) = rest.split_once(' ')?;
    let extents: Vec<u32> = shape.split('x').filter_map(|extent| extent.parse().ok()).collect();
    Some((extents.try_into().ok()?, (KernelSpec::parse(spec).ok()?, microseconds.parse().ok()?)))
}

/// What is known of a call, the fastest first.
pub(super) fn of(request: &Request<'_>, machine: &Machine) -> Vec<(KernelSpec, f64)> {
    let mut known = match request.known {
        Known::Nothing => Vec::new(),
        Known::Measured(measured) => measured.to_vec(),
        Known::Shipped => {
            let (call, problem) = (&request.call, request.call.problem);
            let plain = request.element == "bf16"
                && request.majors == [Major::K; 2]
                && request.fusion.is_none()
                && call.products.form() == Form::Single
                && call.epilogue.beta == 0.0
                && *machine == Machine::h200();
            let found = shipped().get(&[problem.m, problem.n, problem.k]).filter(|_| plain);
            found.into_iter().copied().collect()
        }
    };
    known.sort_by(|a, b| a.1.total_cmp(&b.1));
    known
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_line_of_the_record_is_a_legal_spec() {
        let lines = H200.lines().filter(|line| !line.starts_with('#')).count();
        assert_eq!(shipped().len(), lines);
        assert!(lines > 100, "{lines}");
        for (extents, (spec, microseconds)) in shipped() {
            assert!(spec.plan().is_ok(), "{extents:?}: {spec}");
            assert!(*microseconds > 0.5, "{extents:?}: {microseconds}");
        }
    }
}
