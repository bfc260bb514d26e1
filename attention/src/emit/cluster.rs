//! Parts of a tile's keys that the CTAs of a cluster have computed: each leaves its part in its shared memory, and all merge what all have left
//! there. So a part costs no trip to memory, and nobody waits for CTAs that run elsewhere.

use collective::skeleton;
use collective::{Consumer, FragmentRow};
use ptx::Value;

use super::merge::{Merged, Pieces};
use super::{Kernel, QueryTile};
use crate::parts::Part;
use crate::plan::ClusterPlan;

impl<'f> Kernel<'_, 'f> {
    /// Emitted for a consumer: leaves the log-sum-exp of a row of the tile for the cluster.
    pub(super) fn leave_sum(&self, of: ClusterPlan, row: Value<'f, u32>, value: Value<'f, f32>) {
        self.f.store_shared(self.shared + row * 4, of.sums.cast_signed(), [value]);
    }

    /// Emitted for a consumer: leaves its rows of O for the cluster.
    pub(super) fn leave(&self, of: ClusterPlan, unit: &QueryTile<'f>, rows: &[FragmentRow<'f, f32>]) {
        for row in rows {
            let [at, _] = self.query(unit, row.row);
            self.f.if_(at.less_than(unit.lengths[0]), || {
                let to = self.shared + row.row * of.pitch + row.column * 4;
                for pair in &row.pairs {
                    self.f.store_shared(to, (of.outputs + pair.column * 4).cast_signed(), pair.values);
                }
            });
        }
    }

    /// Emitted for a consumer warpgroup that has left its part, if there is one: meets the cluster, and merges its share of the tile's rows.
    pub(super) fn merge_in_cluster(&self, of: ClusterPlan, consumer: Consumer<'f>, unit: &QueryTile<'f>) {
        let (f, spec) = (self.f, self.plan.spec);
        skeleton::meet(f, false);
        let Some((part, exists)) = unit.part.zip(unit.exists) else { return };
        let own = Pieces::of(spec.parts, spec.head[1]);
        let of_row = own.of_row(spec.head[1]);
        let queries = (unit.lengths[0] - unit.row).min(self.queries_per_tile());
        let pieces = queries * (spec.pack * of_row);
        let (warp, lane) = (consumer.warpgroup * 4 + consumer.thread / 32, consumer.thread % 32);
        // Each CTA has every so many-th piece.
        let (first, step) = (warp * part.count + part.number, part.count * (self.plan.cta.consumers * 4));
        // Those without a part have no share either.
        f.if_(exists, || {
            let piece = f.variable(first);
            f.while_(
                || piece.get().less_than(pieces),
                || {
                    let place = self.place_of(own, unit, (piece.get(), pieces), lane);
                    // Of rows that are no query nobody has left anything; the first one always is.
                    let row = (piece.get() / of_row).where_or(place.exists, 0);
                    let left = |rank| self.left(of, (part, rank), own, [row, place.column]);
                    let sum = Merged::new(f, own);
                    sum.add((0..own.together).map(left).collect());
                    self.store_merged(own, unit, (&sum, &place), f.constant(0));
                    piece.set(piece.get() + step);
                },
            );
        });
    }

    /// What the CTA of a rank has left of a lane's columns of a row of the tile: the row's log-sum-exp, and O.
    fn left(
        &self,
        of: ClusterPlan,
        (part, rank): (Part<'f>, u32),
        own: Pieces,
        [row, column]: [Value<'f, u32>; 2],
    ) -> (Value<'f, f32>, Vec<Value<'f, f32>>) {
        let f = self.f;
        // After the last part it is loaded again, and has no weight.
        let (there, rank) = (part.count.more_than(rank), (part.count - 1).min(rank));
        let at = |address| f.map_shared(address, rank);
        let [sum] = f.load_cluster::<f32, 1>(at(self.shared + row * 4), of.sums.cast_signed());
        let (from, offset) = (at(self.shared + row * of.pitch + column * 4), of.outputs.cast_signed());
        let elements = match own.own {
            4 => f.load_cluster::<f32, 4>(from, offset).into(),
            2 => f.load_cluster::<f32, 2>(from, offset).into(),
            _ => f.load_cluster::<f32, 1>(from, offset).into(),
        };
        (sum.where_or(there, f.constant(f32::NEG_INFINITY)), elements)
    }
}
