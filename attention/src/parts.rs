//! Parts of the keys of a tile, each of which a CTA of its own computes: how a call has them, and how a program finds them.

use collective::operands::WORKSPACE;
use kernel::operands::Visit;
use ptx::{Builder, Location, Value};

use crate::call::AttentionCall;
use crate::kernel::Attention;
use crate::plan::AttentionPlan;
use crate::problem::AttentionProblem;
use crate::spec::{self, AttentionSpec, Lengths};
use crate::tiles::Tiles;

/// How the keys of a call are divided.
pub(crate) struct Divided {
    /// Most parts of a tile.
    count: u32,
    /// Rows of O.
    rows: u64,
    /// Bytes of the workspace before the counters, the log-sum-exps of parts, and their O.
    offsets: [u64; 3],
    /// Bytes of the workspace after that of the counter of tiles.
    pub(crate) bytes: u64,
}

/// The parameters of parts: most of them and rows of O, and what is in the workspace.
const NUMBERS: [&str; 2] = ["parts", "part_rows"];
const PLACES: [&str; 3] = ["part_counters", "part_sums", "part_outputs"];

impl Attention {
    /// How the keys of a call are divided, if they are.
    pub(crate) fn divided(&self, call: &AttentionCall) -> Option<Divided> {
        let AttentionProblem { batch, heads: [heads, _], queries, .. } = call.problem;
        let AttentionSpec { parts, head: [_, dv], lengths, .. } = self.plan.spec;
        if !parts.are_in_memory() {
            return None;
        }
        let Tiles { parts: count, heads: of_tiles, sequences, across, .. } = self.tiles(call);
        let all = match lengths {
            Lengths::Equal => u64::from(batch) * u64::from(queries),
            Lengths::Packed => call.packed.rows[0].into(),
        };
        let rows = u64::from(heads).saturating_mul(all);
        // One per tile.
        let counters = across.saturating_mul(sequences.into()).saturating_mul(of_tiles.into());
        let aligned = |bytes: u64| bytes.checked_next_multiple_of(256).unwrap_or(u64::MAX);
        let sums = aligned(counters.saturating_mul(4));
        let outputs = aligned(rows.saturating_mul(u64::from(count) * 4)).saturating_add(sums);
        let bytes = rows.saturating_mul(u64::from(count) * u64::from(dv) * 4).saturating_add(outputs);
        let offsets = [0, sums, outputs].map(|offset| offset.saturating_add(self.of_counter()));
        Some(Divided { count, rows, offsets, bytes })
    }
}

impl Divided {
    /// States the parameters.
    pub(crate) fn state(&self, visit: &mut dyn Visit) {
        let [most, rows] = NUMBERS;
        visit.number(most, Some(self.count));
        visit.number(rows, Some(self.rows));
        let places = PLACES.into_iter().zip(self.offsets);
        places.for_each(|(name, offset)| visit.address_in(name, WORKSPACE, offset));
    }
}

/// The parameters of parts in memory.
#[derive(Clone, Copy)]
pub(crate) struct Parts<'f> {
    /// Most parts of a tile.
    pub(crate) most: Value<'f, u32>,
    /// Rows of O.
    pub(crate) rows: Value<'f, u64>,
    /// Addresses of the counters, and, of all parts, of the log-sum-exps and of O.
    counters: Value<'f, u64>,
    pub(crate) sums: Value<'f, u64>,
    outputs: Value<'f, u64>,
}

/// A part of a tile's keys.
#[derive(Clone, Copy)]
pub(crate) struct Part<'f> {
    /// Its number.
    pub(crate) number: Value<'f, u32>,
    /// Parts of the tile, at least one.
    pub(crate) count: Value<'f, u32>,
    /// The number of the tile, apart from parts.
    pub(crate) counter: Value<'f, u32>,
}

impl<'f> Part<'f> {
    pub(crate) fn numbers(&self) -> [Value<'f, u32>; 3] {
        [self.number, self.count, self.counter]
    }

    pub(crate) fn of([number, count, counter]: [Value<'f, u32>; 3]) -> Self {
        Self { number, count, counter }
    }

    /// Its blocks, of all blocks of a tile, and how many parts there are, at most `most`. The division depends on these blocks alone.
    pub(crate) fn of_tile(
        self,
        [begin, end]: [Value<'f, u32>; 2],
        most: Value<'f, u32>,
        spec: &AttentionSpec,
    ) -> ([Value<'f, u32>; 2], Self) {
        // Parts of a fixed number of keys begin at multiples of it.
        let (first, each) = match spec.parts {
            spec::Parts::Keys(keys) => {
                let each = keys / spec.tile[1];
                (begin / each * each, begin.builder().constant(each))
            }
            spec::Parts::One | spec::Parts::Count(_) | spec::Parts::Cluster(_) => {
                (begin, (end - begin + most - 1) / most)
            }
        };
        let count = (end - first + each - 1) / each;
        // A sequence may be longer than the launch says. Nobody computes, or waits for, more parts than there are.
        let count = if matches!(spec.parts, spec::Parts::Keys(_)) { count.min(most) } else { count };
        let own = (first + self.number * each).min(end);
        let blocks = [own.max(begin), (own + each).min(end)];
        (blocks, Self { count, ..self })
    }
}

impl<'f> Parts<'f> {
    pub(crate) fn of(f: &'f Builder) -> Self {
        let [most, rows] = NUMBERS;
        let (most, rows) = (f.parameter(most), f.parameter(rows));
        let [counters, sums, outputs] = PLACES.map(|name| f.parameter(name));
        Self { most, rows, counters, sums, outputs }
    }

    /// The address of a row of a part's O.
    pub(crate) fn output(
        &self,
        part: Value<'f, u32>,
        row: Value<'f, u64>,
        plan: &AttentionPlan,
    ) -> Value<'f, u64> {
        self.outputs + (part.cast::<u64>() * self.rows + row) * (u64::from(plan.spec.head[1]) * 4)
    }

    /// The counter of a tile. It counts the parts that are there, for each of the consumers that divide rows, and after these the warps
    /// that merge them. It is zero before and after a launch.
    pub(crate) fn counter(&self, part: Part<'f>) -> Location {
        Location::global(self.counters + part.counter.mul_wide(4u32), 0)
    }

    /// The log-sum-exp of a row of a part.
    pub(crate) fn sum(&self, part: Value<'f, u32>, row: Value<'f, u64>) -> Value<'f, f32> {
        part.builder().load_global(self.sums + (part.cast::<u64>() * self.rows + row) * 4, 0)
    }
}
