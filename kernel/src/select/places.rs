//! Which product a tile of a launch is of, as the host's model of it goes.

use collective::Form;
use scheduler::Tiles;

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
    groups: Groups,
    along: Along,
}

/// The products one by one.
enum Groups {
    /// All of one shape, with so many tiles along M and N.
    Same { problem: GemmProblem, tiles: [u32; 2] },
    /// Each with the tiles in front of it, in the direction in which products lie, and its rows of tiles.
    Each(Vec<(GemmProblem, u32, u32)>),
}

/// Where products lie among the tiles of a launch.
#[derive(Clone, Copy)]
enum Along {
    Rows,
    Columns,
    /// One column of tiles, those of each product column by column.
    Both,
}

/// A tile of a product.
pub(super) struct Place {
    pub(super) group: u32,
    pub(super) problem: GemmProblem,
    pub(super) tile: [u32; 2],
}

impl Places {
    pub(super) fn new(gemm: &AnyGemm, request: &Request<'_>) -> Self {
        let (plan, call) = (&gemm.plan, &request.call);
        let ragged = plan.form == Form::Ragged;
        let along = match plan.form {
            Form::Grouped => Along::Both,
            Form::Ragged if plan.balanced() => Along::Both,
            Form::Ragged if plan.swapped() => Along::Columns,
            Form::Single | Form::Ragged => Along::Rows,
            Form::Batched if gemm.facts.rows_last => Along::Rows,
            Form::Batched => Along::Columns,
        };
        let area = |one: &GemmProblem| f64::from(one.m) * f64::from(one.n);
        // Tiles of a legal call can be numbered.
        let none = Tiles { m: 0, n: 0, k: 0 };
        let (groups, tiles, outputs) = match request.groups() {
            None => {
                let problem = call.problem;
                let Tiles { m, n, .. } = gemm.tiles(problem);
                let tiles = gemm.all_tiles(problem, &call.products).unwrap_or(none);
                let same =
                    Groups::Same { problem: gemm.seen(problem), tiles: [m, n].map(|tiles| tiles.max(1)) };
                (same, tiles, area(&problem) * f64::from(call.products.count()))
            }
            Some(products) => {
                let length = |Tiles { m, n, .. }: Tiles<u32>| match along {
                    Along::Rows => m,
                    Along::Columns => n,
                    Along::Both => m.saturating_mul(n),
                };
                let mut before = 0u32;
                let each = products.iter().map(|&one| {
                    let (first, tiles) = (before, gemm.tiles(one));
                    before = before.saturating_add(length(tiles));
                    (gemm.seen(one), first, tiles.m.max(1))
                });
                let each = Groups::Each(each.collect());
                let tiles = gemm.tiles_of(&products).unwrap_or(none);
                (each, tiles, products.iter().map(area).sum())
            }
        };
        Self { tiles, outputs, ragged, described: plan.form.described(), groups, along }
    }

    /// The product of a tile of the launch, and which of its own it is.
    pub(super) fn of(&self, [m, n]: [u32; 2]) -> Place {
        match &self.groups {
            Groups::Same { problem, tiles } => {
                let (group, tile) = match self.along {
                    Along::Columns => (n / tiles[1], [m, n % tiles[1]]),
                    Along::Rows | Along::Both => (m / tiles[0], [m % tiles[0], n]),
                };
                Place { group, problem: *problem, tile }
            }
            Groups::Each(each) => {
                let number = if matches!(self.along, Along::Columns) { n } else { m };
                let group = each.partition_point(|&(_, before, _)| before <= number).saturating_sub(1);
                let none = (GemmProblem { m: 0, n: 0, k: 0 }, 0, 1);
                let (problem, before, height) = each.get(group).copied().unwrap_or(none);
                let own = number - before;
                let tile = match self.along {
                    Along::Rows => [own, n],
                    Along::Columns => [m, own],
                    Along::Both => [own % height, own / height],
                };
                Place { group: group as u32, problem, tile }
            }
        }
    }
}
