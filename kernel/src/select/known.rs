//! Measurements for a call. They take precedence over the model.

use std::collections::HashMap;
use std::sync::OnceLock;

use collective::{Form, Format};
use cute_rs::atom::Major;

use super::{Machine, Request};
use crate::spec::KernelSpec;
use crate::types::Types;

/// Which measurements a selection uses.
///
/// ```
/// use collective::Format;
/// use cute_rs::atom::Major;
/// use kernel::{GemmProblem, KernelSpec, Known, Machine, Request, fastest};
///
/// let problem = GemmProblem { m: 1000, n: 5000, k: 2056 };
/// let request = Request::packed(Format::Bf16, [Major::K; 2], problem);
/// let mine = [("tile=128x160x64 roles=pingpong".parse::<KernelSpec>()?, 31.5)];
/// let best = fastest(&request.known(Known::Measured(&mine)), &Machine::h200()).expect("a kernel");
/// assert_eq!((best.gemm.spec(), best.measured), (Some(mine[0].0), Some(31.5)));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub enum Known<'a> {
    /// The records that come with this library, measured on an H200. At other shapes, measurements of similar
    /// shapes correct the model. This is the default.
    #[default]
    Shipped,
    /// Specs and their times in microseconds, measured for exactly this call. The fastest legal one is ranked
    /// first. The feature `records` keeps such records on disk (`kernel::disk::records`).
    Measured(&'a [(KernelSpec, f64)]),
    /// No measurements: only the model decides.
    Nothing,
}

/// The record of an H200, for plain GEMMs of packed bf16 matrices, both K-major.
const H200: &str = include_str!("h200.txt");

/// Measurements at one shape: microseconds per spec, the fastest first.
pub(super) struct Shape {
    pub(super) extents: [u32; 3],
    pub(super) kernels: Vec<(KernelSpec, f64)>,
}

/// All records that come with the library.
pub(super) struct Shipped {
    pub(super) shapes: Vec<Shape>,
    by_extents: HashMap<[u32; 3], usize>,
}

impl Shipped {
    fn parse(text: &str) -> Self {
        let (mut specs, mut shapes) = (HashMap::new(), Vec::new());
        for (first, rest) in text.lines().filter_map(|line| line.split_once(' ')) {
            if first.contains('x') {
                shapes.extend(Shape::parse(first, rest, &specs));
            } else if let Ok(spec) = KernelSpec::parse(rest) {
                specs.insert(first, spec);
            }
        }
        let by_extents = shapes.iter().enumerate().map(|(i, shape)| (shape.extents, i)).collect();
        Self { shapes, by_extents }
    }
}

impl Shape {
    /// Parses, for example, `1024x320x11072` and `17:19.8 4:20.1`.
    fn parse(extents: &str, kernels: &str, specs: &HashMap<&str, KernelSpec>) -> Option<Self> {
        let extents: Vec<u32> = extents.split('x').filter_map(|extent| extent.parse().ok()).collect();
        let kernel = |word: &str| {
            let (number, microseconds) = word.split_once(':')?;
            Some((*specs.get(number)?, microseconds.parse().ok()?))
        };
        let kernels: Vec<(KernelSpec, f64)> = kernels.split(' ').filter_map(kernel).collect();
        Some(Self { extents: extents.try_into().ok()?, kernels })
    }
}

/// The records that come with the library, parsed at the first use.
pub(super) fn shipped() -> &'static Shipped {
    static ALL: OnceLock<Shipped> = OnceLock::new();
    ALL.get_or_init(|| Shipped::parse(H200))
}

/// Whether the library's records apply to such calls on such a machine.
pub(super) fn is_recorded(request: &Request<'_>, machine: &Machine) -> bool {
    request.known == Known::Shipped
        && request.types == Types::of(Format::Bf16)
        && request.majors == [Major::K; 2]
        && request.fusion.is_none()
        && request.call.products.form() == Form::Single
        && request.call.epilogue.beta == 0.0
        && *machine == Machine::h200()
}

/// The measurements for a call, the fastest first.
pub(super) fn of(request: &Request<'_>, machine: &Machine) -> Vec<(KernelSpec, f64)> {
    let mut known = match request.known {
        Known::Measured(measured) => measured.to_vec(),
        Known::Shipped if is_recorded(request, machine) => {
            let (all, problem) = (shipped(), request.call.problem);
            let found = all.by_extents.get(&[problem.m, problem.n, problem.k]);
            found.map_or_else(Vec::new, |&i| all.shapes[i].kernels.clone())
        }
        Known::Shipped | Known::Nothing => Vec::new(),
    };
    known.sort_by(|a, b| a.1.total_cmp(&b.1));
    known
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_line_of_the_record_is_a_legal_spec() {
        let lines = |shape| {
            let first = |line: &&str| line.split(' ').next().is_some_and(|word| word.contains('x') == shape);
            H200.lines().filter(|line| !line.starts_with('#')).filter(first).count()
        };
        let all = shipped();
        assert_eq!((all.shapes.len(), all.by_extents.len()), (lines(true), lines(true)));
        assert!(all.shapes.len() > 100, "{}", all.shapes.len());
        let mut specs = std::collections::HashSet::new();
        for Shape { extents, kernels } in &all.shapes {
            assert!(!kernels.is_empty() && kernels.is_sorted_by(|a, b| a.1 <= b.1), "{extents:?}");
            for (spec, microseconds) in kernels {
                assert!(*microseconds > 0.5, "{extents:?}: {microseconds}");
                specs.insert(*spec);
            }
        }
        assert_eq!(specs.len(), lines(false));
        for spec in specs {
            assert!(spec.plan().is_ok(), "{spec}");
        }
    }
}
