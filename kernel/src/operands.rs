//! What a call accesses, stated once: each piece of device memory with its extents and its contents, and each
//! number that decides what the call's launch is.
//!
//! Whatever handles the arguments of a call is a [`Visit`]: the check that memory is lent, the keys of kept
//! launches and the addresses in them, random inputs, the memory of a proof. So a new argument is stated here
//! and nowhere else.

mod packed;
mod places;
#[cfg(any(feature = "tune", test))]
mod random;
#[cfg(test)]
mod tests;

use collective::operands::WORKSPACE;
use collective::{BlockScales, Format, GroupScales, METADATA, Record, sparse, weights};
use cute_rs::atom::{Major, unit};

pub use crate::arguments::{EpilogueOf, Visited};
use crate::buffer::Buffer;
use crate::call::Call;
use crate::gemm::AnyGemm;
use crate::interface::{Stated, WORKSPACE_PARAMETER};
pub use crate::overlap::Overlaps;
use crate::problem::GemmProblem;
use crate::products::GroupedProblem;
use crate::types::Types;
pub use collective::operands::{Contents, Declares, Extents, Kind, Memory, OwnSite, Parameter, Path, Visit};
pub use places::{Fill, Piece, Places};
#[cfg(any(feature = "tune", test))]
pub use random::{random, random_contents};

/// How the matrices of a call are stored. With the call's extents it says how far each of them reaches.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Layouts {
    /// Formats, scales, weights and sparsity.
    pub types: Types,
    /// Contiguous directions of A and B.
    pub majors: [Major; 2],
    /// D has `N >> halvings` columns.
    pub halvings: u32,
    /// Whether A and B are read, and what belongs to them.
    pub multiplied: bool,
    /// Whether a call gives A and B as matrices ([`MainloopNeeds::matrices`](collective::MainloopNeeds)).
    pub given: [bool; 2],
}

impl Layouts {
    /// Matrices of these types; D has N columns.
    pub const fn new(types: Types, majors: [Major; 2]) -> Self {
        Self { types, majors, halvings: 0, multiplied: true, given: [true; 2] }
    }

    /// The matrices of a kernel.
    pub fn of(gemm: &AnyGemm) -> Self {
        let plan = &gemm.plan;
        let halvings = plan.epilogue.halvings;
        Self { halvings, given: plan.given(), ..Self::new(Types::of_plan(plan), plan.majors()) }
    }

    /// A (0) or B (1) with `mn` rows or columns, as one matrix.
    pub(crate) fn operand(&self, i: usize, [mn, k]: [u32; 2]) -> (Contents, Extents) {
        let (types, format) = (&self.types, [self.types.a, self.types.b][i]);
        let one = Extents { count: 1, bits: format.bits(), ..Extents::default() };
        if let Some(weights) = types.weights[i] {
            // Quantized weights are stored in blocks of 64 rows, in whole units along K.
            // Extents of 2^31 and more are refused elsewhere.
            let lines = mn.checked_next_multiple_of(unit::ROWS).unwrap_or(u32::MAX);
            let bits = weights.code.bits();
            let length = weights::ld(weights.code, k);
            return (Contents::Codes(i, weights.code), Extents { bits, lines, length, ..one });
        }
        let [lines, length] = match self.majors[i] {
            Major::K => [mn, types.kept(k)[i]],
            Major::Mn => [k, mn],
        };
        (Contents::Multiplied(i, format), Extents { lines, length: length.into(), ..one })
    }
}

impl<E: Visited> Call<E> {
    /// Visits every part of the call that any kernel reads. Arguments of a mainloop of your own are visited by
    /// [the kernel](crate::Kernel::visit) that has it.
    pub fn visit(&mut self, layouts: &Layouts, visit: &mut dyn Visit) {
        self.state(layouts, None, visit);
    }

    /// Visits every part of the call for a kernel, and states the kernel's parameters for it if asked. All fields are named, without `..`: a new one does not
    /// compile until it is visited.
    pub(crate) fn state(&mut self, layouts: &Layouts, kernel: Option<Stated<'_>>, visit: &mut dyn Visit) {
        // What roles of a kernel get of their own is visited by all, parameters by those that see them.
        let (of_kernel, kernel) = (kernel, kernel.filter(|_| visit.sees_parameters()));
        let Self { problem, products, a, b, scales, group_scales, metadata, d, epilogue, workspace } = self;
        let GemmProblem { m, n, k } = problem;
        visit.count(m);
        visit.count(n);
        visit.count(k);
        let (problem, of) =
            (GemmProblem { m: *m, n: *n, k: *k }, Reached::new(layouts, [*m, *n, *k], products));
        products.visit(of.written, visit);
        // Where records describe the operands, their tensor maps are in the workspace.
        let described = kernel.is_some_and(|kernel| kernel.gemm.plan.form.described());
        if described {
            Buffer::visit_workspace(workspace, of.launched, visit);
        }
        for (i, operand) in [a, b].into_iter().enumerate() {
            let (contents, extents) = of.operand(i, problem);
            visit.matrix(["A", "B"][i], (contents, false), operand, extents);
        }
        visit.form(scales.is_some().into());
        for (i, (name, scales)) in scales.iter_mut().flat_map(BlockScales::named).enumerate() {
            visit.matrix(name, (Contents::Scales, false), scales, of.scales(i, problem));
        }
        visit.form(group_scales.is_some().into());
        for (i, (name, factors)) in group_scales.iter_mut().flat_map(GroupScales::named).enumerate() {
            let (contents, extents) = of.groups(problem, i == 1);
            visit.matrix(name, (contents, false), factors, extents);
        }
        visit.form(metadata.is_some().into());
        if let Some(metadata) = metadata {
            let (contents, extents) = of.metadata(problem);
            visit.matrix(METADATA, (contents, false), metadata, extents);
        }
        let k = if of.read { problem.k } else { 0 };
        if let Some(kernel) = kernel {
            kernel.operands(visit);
        }
        let stated = kernel.map(|kernel| kernel.gemm);
        let own = OwnSite {
            problem: if of.written { [problem.m, problem.n, k] } else { [0; 3] },
            plan: stated.map(|gemm| &gemm.plan),
            launched: kernel.is_some_and(|kernel| kernel.filled.is_some()),
        };
        if let Some(Stated { gemm, .. }) = of_kernel {
            gemm.mainloop.visit(epilogue.mainloop(), &own, visit);
        }
        if let Some(kernel) = kernel {
            kernel.products(*products, visit);
        }
        let (format, extents) = of.output(problem);
        visit.matrix("D", (Contents::Output(format), true), d, extents);
        let output = kernel.and_then(|kernel| kernel.filled).map(|filled| filled.d);
        epilogue.visit(
            &EpilogueOf { d: extents, format, products: products.count(), gemm: stated, output },
            visit,
        );
        if let Some(kernel) = of_kernel {
            kernel.schedule(epilogue, (GemmProblem { k, ..problem }, products), visit);
        }
        if !described {
            Buffer::visit_workspace(workspace, of.launched, visit);
        }
        if kernel.is_some_and(|kernel| kernel.gemm.works_in_memory()) {
            visit.address(WORKSPACE_PARAMETER, WORKSPACE);
        }
    }
}

impl GroupedProblem {
    fn visit(&mut self, written: bool, visit: &mut dyn Visit) {
        let form = self.form() as u32;
        visit.form(form);
        let mut table = |address: &mut u64, (name, contents), words: u64, count: u64| {
            let extents = Extents::line(32, if written { words * count } else { 0 });
            visit.memory(Memory { name, address, extents, contents, writes: false });
        };
        match self {
            Self::One => {}
            Self::Batched { count } => visit.count(count),
            Self::GroupedContiguous { count, offsets } | Self::KGrouped { count, offsets } => {
                table(offsets, (Self::OFFSETS, Contents::Table), 1, u64::from(*count) + 1);
                visit.count(count);
            }
            Self::GroupedMasked { count, rows, room } => {
                table(rows, (Self::ROWS, Contents::Table), 1, (*count).into());
                visit.count(count);
                visit.count(room);
            }
            Self::PointerArray { count, records } => {
                let words = u64::from(Record::BYTES[0] / 4);
                table(records, (Self::RECORDS, Contents::Records), words, (*count).into());
                visit.count(count);
            }
        }
    }
}

/// Which matrices a call of some extents reaches.
struct Reached<'a> {
    layouts: &'a Layouts,
    /// Number of A, B and D matrices; 0 of those that are not accessed.
    counts: [u32; 3],
    /// Whether anything is multiplied.
    read: bool,
    /// Whether D is written.
    written: bool,
    /// Whether there is anything to launch.
    launched: bool,
}

impl<'a> Reached<'a> {
    fn new(layouts: &'a Layouts, [m, n, k]: [u32; 3], products: &GroupedProblem) -> Self {
        let count = products.count();
        let described = products.form().described();
        // Records say where the matrices of described GEMMs are.
        let written = !described && m > 0 && n > 0 && count > 0;
        let [a, b, d] = products.matrices();
        let read = written && layouts.multiplied && k > 0;
        let [of_a, of_b] = layouts.given.map(|given| given && read);
        let counts = [(a, of_a), (b, of_b), (d, written)].map(|(count, there)| if there { count } else { 0 });
        Self {
            layouts,
            counts,
            read,
            written: written || described,
            launched: written || (described && count > 0),
        }
    }

    /// A or B.
    fn operand(&self, i: usize, GemmProblem { m, n, k }: GemmProblem) -> (Contents, Extents) {
        let (contents, one) = self.layouts.operand(i, [[m, n][i], k]);
        (contents, Extents { count: self.counts[i], ..one })
    }

    /// Block scales of A or B.
    fn scales(&self, i: usize, GemmProblem { m, n, k }: GemmProblem) -> Extents {
        let (rows, count) = (self.layouts.types.scaled[i], self.counts[i]);
        let [lines, length] = BlockScales::extents([m, n][i], k, rows.max(1));
        Extents {
            bits: 32,
            lines,
            length: length.into(),
            count: if rows > 0 { count } else { 0 },
            ..Extents::default()
        }
    }

    /// Scales, or zero points, of the operand in few bits.
    fn groups(&self, GemmProblem { m, n, k }: GemmProblem, zeros: bool) -> (Contents, Extents) {
        let types = &self.layouts.types;
        let i = usize::from(types.weights[0].is_none());
        let contents = Contents::GroupScales([types.a, types.b][i]);
        match types.weights[i].filter(|weights| weights.group > 0 && (weights.zeros || !zeros)) {
            None => (contents, Extents::default()),
            Some(weights) => {
                let powers = !zeros && weights.scale_bytes() == 1;
                let [lines, length] = GroupScales::extents(weights, [m, n][i], k);
                let (bits, count) = (if powers { 8 } else { 16 }, self.counts[i]);
                let extents = Extents { bits, lines, length: length.into(), count, ..Extents::default() };
                (if powers { Contents::Exponents } else { contents }, extents)
            }
        }
    }

    /// Metadata of the sparse operand.
    fn metadata(&self, GemmProblem { m, n, k }: GemmProblem) -> (Contents, Extents) {
        let types = &self.layouts.types;
        let i = usize::from(!types.sparse[0]);
        let format = [types.a, types.b][i];
        let (lines, length) = ([m, n][i].div_ceil(sparse::ROWS), sparse::metadata_ld(format, k));
        let count = if types.has_sparse() { self.counts[i] } else { 0 };
        let extents = Extents { bits: 32, lines, length, count, ..Extents::default() };
        (Contents::Metadata(format), extents)
    }

    /// D.
    fn output(&self, GemmProblem { m, n, .. }: GemmProblem) -> (Format, Extents) {
        let Layouts { types: Types { d, .. }, halvings, .. } = self.layouts;
        let length = u64::from(n >> halvings);
        let extents =
            Extents { bits: d.bits(), lines: m, length, count: self.counts[2], ..Extents::default() };
        (*d, extents)
    }
}
