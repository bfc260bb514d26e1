//! Measurements for a call. They take precedence over the model.

use std::collections::HashMap;

use collective::process::Once;
use collective::{Form, Format};
use cute_rs::atom::Major;

use super::space::Entry;
use super::{Card, Machine, Request};
use crate::sheet::Sheet;
use crate::spec::KernelSpec;
use crate::types::Types;
use crate::words::Worded;

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
    /// The records that come with this library, measured on an H200 and on an H100 (SXM): of bf16, and of e4m3 with a scale per
    /// 1 x 128 of A and 128 x 128 of B. This is the default.
    ///
    /// On these cards they take precedence over the model at the measured shapes, and correct it at similar shapes. On another card
    /// with the same SMs and clock those of an H200 only correct it: the ratio of measured to predicted time is mostly that of what an
    /// SM does. On other cards only the model decides.
    #[default]
    Shipped,
    /// Specs and their times in microseconds, measured for exactly this call. The fastest legal one is ranked
    /// first. The feature `records` keeps such records on disk (`kernel::disk::records`).
    Measured(&'a [(KernelSpec, f64)]),
    /// No measurements: only the model decides.
    Nothing,
}

/// Cards, formats, and records of plain GEMMs of packed matrices of these formats, both K-major.
const RECORDS: [(Card, Types, &str); 4] = [
    (Card::H200, Types::of(Format::Bf16), include_str!("h200.txt")),
    (Card::H200, Types::of(Format::E4m3).scaled([1, 128]), include_str!("h200_scaled.txt")),
    (Card::H100, Types::of(Format::Bf16), include_str!("h100.txt")),
    (Card::H100, Types::of(Format::E4m3).scaled([1, 128]), include_str!("h100_scaled.txt")),
];

/// A kernel at a shape, as a point. The squared distance of two points says how similar they are.
pub(super) type Point = [f32; COORDINATES];
pub(super) const COORDINATES: usize = 32;

/// A measured kernel.
pub(super) struct Row {
    pub(super) point: Point,
    /// The logarithm of measured over predicted time.
    pub(super) error: f32,
    /// The variance of the unexplained rest. Kernels far from the best are measured and predicted with less
    /// care.
    pub(super) doubt: f32,
}

/// Measurements at one shape.
pub(super) struct Shape {
    pub(super) extents: [u32; 3],
    /// Numbers of specs and microseconds, the fastest first: for example `17:19.8 4:20.1`.
    kernels: &'static str,
    /// Whether more than one kernel was measured.
    pub(super) compares: bool,
    /// Whether launches were replayed in graphs, not enqueued one by one.
    pub(super) in_graphs: bool,
    /// The logarithms of the extents.
    pub(super) logarithms: [f64; 3],
    /// What corrects the model; made when a choice first needs it.
    pub(super) rows: Once<Vec<Row>>,
}

/// Records of a card. A text is parsed when it is first needed: a choice needs few of them.
pub(super) struct Shipped {
    pub(super) card: Card,
    pub(super) types: Types,
    pub(super) shapes: Vec<Shape>,
    by_extents: HashMap<[u32; 3], usize>,
    specs: Sheet<Entry>,
}

impl Shipped {
    fn parse((card, types, text): (Card, Types, &'static str)) -> Self {
        let (specs, shapes) = Sheet::parse(text, |spec| KernelSpec::parse(spec).ok().and_then(Entry::of));
        let shapes: Vec<_> = shapes.into_iter().filter_map(Shape::parse).collect();
        let by_extents = shapes.iter().enumerate().map(|(i, shape)| (shape.extents, i)).collect();
        Self { card, types, shapes, by_extents, specs }
    }

    /// The kernels measured at a shape and their microseconds, the fastest first.
    pub(super) fn kernels<'s>(&'s self, shape: &Shape) -> impl Iterator<Item = (&'s Entry, f64)> {
        self.specs.kernels(shape.kernels)
    }
}

impl Shape {
    fn parse((shape, kernels): (&str, &'static str)) -> Option<Self> {
        let graphs = shape.strip_suffix(" graphs");
        let (in_graphs, extents) = (graphs.is_some(), Worded::read(graphs.unwrap_or(shape))?);
        let (compares, logarithms) = (kernels.contains(' '), logarithms(extents));
        Some(Self { extents, kernels, compares, in_graphs, logarithms, rows: Once::new() })
    }
}

pub(super) fn logarithms(extents: [u32; 3]) -> [f64; 3] {
    extents.map(|extent| f64::from(extent.max(1)).log2())
}

/// One of the records, read at the first use.
fn shipped(place: usize) -> &'static Shipped {
    static ALL: [Once<Shipped>; RECORDS.len()] = [const { Once::new() }; RECORDS.len()];
    ALL[place].get_or_init(|| Shipped::parse(RECORDS[place]))
}

/// Whether the library's records may be of such calls, if they are of these formats.
fn is_recorded(request: &Request<'_>) -> bool {
    request.known == Known::Shipped
        && request.majors == [Major::K; 2]
        && request.fusion.is_none()
        && request.call.products.form() == Form::Single
        && request.call.epilogue.beta == 0.0
        // The measured kernels load by tensor copies.
        && !request.copied()
}

/// The library's records that correct the model for such calls on such a machine: those of the card, or else those of an H200
/// if it has the same SMs.
pub(super) fn correcting(request: &Request<'_>, machine: &Machine) -> Option<&'static Shipped> {
    let of = |card: Card| {
        RECORDS.iter().position(|(of, types, _)| (*of, *types) == (card, request.types)).map(shipped)
    };
    let like = || of(Card::H200).filter(|_| machine.multiplies_as(&Card::H200));
    is_recorded(request).then(|| of(machine.card).or_else(like)).flatten()
}

/// The measurements for a call, the fastest first.
pub(super) fn of(request: &Request<'_>, machine: &Machine) -> Vec<(KernelSpec, f64)> {
    let mut known = match request.known {
        Known::Measured(measured) => measured.to_vec(),
        Known::Shipped => {
            let problem = request.call.problem;
            let all = correcting(request, machine).filter(|all| all.card == machine.card);
            let found = all.and_then(|all| {
                let at = all.by_extents.get(&[problem.m, problem.n, problem.k])?;
                Some(all.kernels(&all.shapes[*at]).map(|(of, time)| (of.spec, time)).collect())
            });
            found.unwrap_or_default()
        }
        Known::Nothing => Vec::new(),
    };
    known.sort_by(|a, b| a.1.total_cmp(&b.1));
    known
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_line_of_the_records_is_a_legal_spec() {
        for (place, least) in [(0, 900), (1, 45), (2, 290), (3, 70)] {
            let ((card, types, text), all) = (RECORDS[place], shipped(place));
            assert_eq!((all.card, all.types), (card, types));
            let lines = |shape| {
                let first =
                    |line: &&str| line.split(' ').next().is_some_and(|word| word.contains('x') == shape);
                text.lines().filter(|line| !line.starts_with('#')).filter(first).count()
            };
            assert_eq!((all.shapes.len(), all.by_extents.len()), (lines(true), lines(true)));
            assert!(all.shapes.len() > least, "{}", all.shapes.len());
            let mut specs = std::collections::HashSet::new();
            for shape in &all.shapes {
                let (extents, kernels): (_, Vec<_>) = (shape.extents, all.kernels(shape).collect());
                assert_eq!(
                    kernels.len(),
                    shape.kernels.split(' ').count(),
                    "{extents:?}: every spec is legal"
                );
                assert!(kernels.is_sorted_by(|a, b| a.1 <= b.1), "{extents:?}");
                for (entry, microseconds) in kernels {
                    assert!(microseconds > 0.5, "{extents:?}: {microseconds}");
                    specs.insert(entry.spec);
                }
            }
            assert_eq!(specs.len(), lines(false));
            let numbers = text.lines().filter_map(|line| line.split(' ').next()?.parse::<usize>().ok());
            assert!(numbers.eq(0..specs.len()));
        }
    }
}
