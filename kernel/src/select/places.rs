//! Which product a tile of a launch is of, as the host's model of it goes.

use collective::Form;
use scheduler::Tiles;
use scheduler::groups::Groups;

use super::Request;
use crate::gemm::AnyGemm;
use crate::problem::GemmProblem;

/// The products of a launch as a kernel sees them, and the tiles of all of them as its scheduler numbers them.
pub(super) struct Places {
    pub(super) tiles: Tiles<u32>,
    /// Elements of all outputs.
    pub(super) outputs: f64,
    /// Whether groups of rows share a matrix.
    pub(super) ragged: bool,
    /// Whether each product has matrices of its own anywhere.
    pub(super) described: bool,
    groups: Groups<'static, u32>,
    /// The products one by one, or the one that all are like.
    problems: Vec<GemmProblem>,
}

/// A tile of a product.
pub(super) struct Place {
    pub(super) group: u32,
    pub(super) problem: GemmProblem,
    pub(super) tile: [u32; 2],
}

impl Places {
    /// The products of a call on a machine that runs `slots` workers at once.
    pub(super) fn new(gemm: &AnyGemm, request: &Request<'_>, slots: u32) -> Self {
        let (plan, call) = (&gemm.plan, &request.call);
        let (products, copies) = match request.groups() {
            Some(products) => (products, 1),
            None => (vec![call.problem], call.products.count()),
        };
        let workers = |tiles| gemm.workers(tiles, slots);
        let groups = gemm.groups(&products, products.len() * copies as usize, &workers);
        // Tiles of a legal call can be numbered.
        let groups = groups.unwrap_or(Groups::Single(Tiles { m: 0, n: 0, k: 0 }));
        let area = |one: &GemmProblem| f64::from(one.m) * f64::from(one.n);
        Self {
            tiles: groups.tiles(),
            outputs: products.iter().map(area).sum::<f64>() * f64::from(copies),
            ragged: plan.form == Form::Ragged,
            described: plan.form.described(),
            groups,
            problems: products.into_iter().map(|one| gemm.seen(one)).collect(),
        }
    }

    /// The product of a tile of the launch, and which of its own it is.
    pub(super) fn of(&self, tile: [u32; 2]) -> Place {
        // Counted in tiles, not in elements.
        let place = self.groups.place(tile, &[1, 1]);
        let group = place.group.unwrap_or(0);
        let last = self.problems.len().saturating_sub(1);
        let none = GemmProblem { m: 0, n: 0, k: 0 };
        let problem = self.problems.get(last.min(group as usize)).copied().unwrap_or(none);
        Place { group, problem, tile: place.tile }
    }
}
