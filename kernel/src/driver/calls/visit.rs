//! The parts of a call: which are addresses, and which decide what its launch is.

use collective::{BlockScales, GroupScales, LinearArguments, MatrixRef};

use crate::problem::{Call, GemmProblem, WorkspaceRef};
use crate::products::Products;

/// Sees the parts of a call, one after the other.
pub(super) trait Visit {
    /// A device address; 0 if there is none.
    fn address(&mut self, address: &mut u64);

    /// A leading dimension, a stride, or a number of bytes.
    fn length(&mut self, length: &mut u64);

    /// An extent, or a number of GEMMs or of rows.
    fn count(&mut self, count: &mut u32);

    /// A factor.
    fn factor(&mut self, factor: &mut f32);

    /// Which of several forms a part has: for example whether it is given.
    fn form(&mut self, form: u32);
}

/// Part of a call. Every implementation names all fields of its type, without `..`: a new field does not
/// compile until it is an address or decides what a launch is.
pub(super) trait Visited {
    fn visit(&mut self, visit: &mut impl Visit);
}

impl<T: Visited> Visited for Option<T> {
    fn visit(&mut self, visit: &mut impl Visit) {
        visit.form(self.is_some().into());
        if let Some(given) = self {
            given.visit(visit);
        }
    }
}

impl Visited for Call {
    fn visit(&mut self, visit: &mut impl Visit) {
        let Self { problem, products, a, b, scales, group_scales, metadata, d, epilogue, workspace } = self;
        problem.visit(visit);
        products.visit(visit);
        a.visit(visit);
        b.visit(visit);
        scales.visit(visit);
        group_scales.visit(visit);
        metadata.visit(visit);
        d.visit(visit);
        epilogue.visit(visit);
        workspace.visit(visit);
    }
}

impl Visited for GemmProblem {
    fn visit(&mut self, visit: &mut impl Visit) {
        let Self { m, n, k } = self;
        visit.count(m);
        visit.count(n);
        visit.count(k);
    }
}

impl Visited for Products {
    fn visit(&mut self, visit: &mut impl Visit) {
        match self {
            Self::One => visit.form(0),
            Self::Batched { count } => {
                visit.form(1);
                visit.count(count);
            }
            Self::Ragged { count, offsets } => {
                visit.form(2);
                visit.count(count);
                visit.address(offsets);
            }
            Self::Masked { count, rows, room } => {
                visit.form(3);
                visit.count(count);
                visit.address(rows);
                visit.count(room);
            }
            Self::KGrouped { count, offsets } => {
                visit.form(4);
                visit.count(count);
                visit.address(offsets);
            }
            Self::Grouped { count, records } => {
                visit.form(5);
                visit.count(count);
                visit.address(records);
            }
        }
    }
}

impl Visited for MatrixRef {
    fn visit(&mut self, visit: &mut impl Visit) {
        let Self { address, pitch, stride } = self;
        visit.address(address);
        visit.length(pitch);
        visit.length(stride);
    }
}

impl Visited for BlockScales {
    fn visit(&mut self, visit: &mut impl Visit) {
        let Self { a, b } = self;
        a.visit(visit);
        b.visit(visit);
    }
}

impl Visited for GroupScales {
    fn visit(&mut self, visit: &mut impl Visit) {
        let Self { scales, zeros } = self;
        scales.visit(visit);
        zeros.visit(visit);
    }
}

impl Visited for LinearArguments {
    fn visit(&mut self, visit: &mut impl Visit) {
        let Self { alpha, beta, c } = self;
        visit.factor(alpha);
        visit.factor(beta);
        c.visit(visit);
    }
}

impl Visited for WorkspaceRef {
    fn visit(&mut self, visit: &mut impl Visit) {
        let Self { address, bytes } = self;
        visit.address(address);
        visit.length(bytes);
    }
}
