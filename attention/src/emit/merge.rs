//! Merging the parts of keys: with `s_p` the log-sum-exp of part `p`, and `s` that of all, `O = sum exp(s_p - s) * O_p`.
//!
//! Of parts in memory, a CTA that has finished its own merges its share of all tiles. CTAs share a tile if there are fewer tiles than CTAs. It waits until
//! all parts of the tile are there.
//!
//! No CTA waits for ever: it waits after its last part only, so those for whose parts it waits never wait for it, and all run, since a
//! launch has at most as many CTAs as are resident at once ([`launch`](kernel::Kernel::launch)).

use collective::{Accuracy, Consumer, Fast, Real};
use ptx::{AtomicOp, AtomicSem, Builder, LoadOrder, Scope, Special, Value, Var};

use super::softmax::exp2;
use super::{Kernel, Output, QueryTile};
use crate::parts::{Part, Parts};
use crate::spec::{self, AttentionSpec};

/// How a warp merges a piece of a row. Groups of its lanes have the same columns, and every so many of the parts each, so that one step loads
/// all parts of a piece: steps wait for each other, about 0.5 us on an H200.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Pieces {
    /// Groups of lanes.
    groups: u32,
    /// Neighbouring columns of O of a lane.
    pub(super) own: u32,
    /// Parts that a lane loads in a step.
    pub(super) together: u32,
    /// Pieces that a warp merges at the same time.
    at_once: u32,
}

impl Pieces {
    /// Groups of lanes, of many parts and of some; and parts of some that a lane loads in a step.
    const MANY: u32 = 8;
    const SOME: u32 = 2;
    const LOADED: u32 = 8;

    /// Those of rows with `dv` columns. A program that merges parts in memory is one for few parts or for many, whatever their number: a cache that grows
    /// needs no other. Of what a cluster has left, all lanes load from one CTA at a time: to divide parts among groups of lanes, or to load several
    /// pieces together, takes up to 1.5 times as long.
    pub(crate) fn of(parts: spec::Parts, dv: u32) -> Self {
        let [groups, together] = match parts {
            spec::Parts::Cluster(count) => [1, count],
            spec::Parts::Count(_) if parts.are_many() => [Self::MANY, 16],
            spec::Parts::One | spec::Parts::Count(_) | spec::Parts::Keys(_) => [Self::SOME, Self::LOADED],
        };
        // Where the lanes of the last piece of a row are too many, the others have as much as they can.
        let own = [4, 2, 1].into_iter().find(|own| dv.is_multiple_of(own * 32 / groups)).unwrap_or(4);
        Self { groups, own, together, at_once: 1 }
    }

    /// The same of some parts, fewer than a lane can load: those of several pieces are loaded together.
    fn few(self) -> Option<Self> {
        let [together, at_once] = if self.groups == Self::MANY { [8, 2] } else { [2, 4] };
        (together * at_once == self.together).then_some(Self { together, at_once, ..self })
    }

    /// Pieces of a row with `dv` columns.
    pub(crate) const fn of_row(self, dv: u32) -> u32 {
        dv.div_ceil(self.own * 32 / self.groups)
    }

    /// Parts that a step loads.
    pub(crate) const fn of_step(self) -> u32 {
        self.groups * self.together
    }

    /// [`few`](Self::few), if one of its steps loads all `parts` parts.
    #[cfg(feature = "records")]
    pub(crate) fn few_serve(self, parts: f64) -> Option<Self> {
        self.few().filter(|few| parts <= f64::from(few.of_step()))
    }

    /// Parts that are loaded of a piece of `parts`: those of whole steps, the last part in the place of others. Two to four, of which several
    /// pieces are loaded together, count as they are.
    #[cfg(feature = "records")]
    pub(crate) fn loaded(self, parts: f64) -> f64 {
        let few = self.few_serve(parts);
        let of_step = f64::from(few.unwrap_or(self).of_step());
        if self.groups == Self::SOME && few.is_some() { parts } else { (parts / of_step).ceil() * of_step }
    }

    /// Parts that a lane loads in a step over those that it does of some parts.
    #[cfg(feature = "records")]
    pub(crate) fn loads(self) -> f64 {
        f64::from(self.together * self.at_once) / f64::from(Self::LOADED)
    }

    /// Steps of a warp that merges `pieces` pieces of `parts` parts.
    #[cfg(feature = "records")]
    pub(crate) fn steps(self, pieces: f64, parts: f64) -> f64 {
        let own = self.few_serve(parts).unwrap_or(self);
        (pieces / f64::from(own.at_once)).ceil() * (parts / f64::from(own.of_step())).ceil()
    }
}

/// A piece of a row that a warp merges.
pub(super) struct Place<'f> {
    /// Whether there is one. If not, it is some other one, which is not stored.
    pub(super) exists: Value<'f, bool>,
    /// Its query, and head.
    of: [Value<'f, u32>; 2],
    /// Its row, in the order of the log-sum-exp, and the lane's first column of it.
    line: Value<'f, u64>,
    pub(super) column: Value<'f, u32>,
}

/// A warp's share of the tiles that are merged.
#[derive(Clone, Copy)]
pub(super) struct Share<'f> {
    /// Its first tile.
    tile: Value<'f, u32>,
    /// Its first piece of each of them.
    first: Value<'f, u32>,
}

impl<'f> Kernel<'_, 'f> {
    /// Rows of O, in the order of the log-sum-exp, before the first query of a head of a tile's sequence.
    pub(super) fn rows_before(&self, unit: &QueryTile<'f>, head: Value<'f, u32>) -> Value<'f, u64> {
        match self.lengths() {
            None => (unit.batch * (self.number("heads") * self.packed()) + head).mul_wide(self.most()[0]),
            Some(lengths) => head.mul_wide(lengths.queries.rows) + unit.before[0].cast::<u64>(),
        }
    }

    /// Emitted for a consumer warpgroup that has stored a part of a tile: it says so, with all others that have the same rows.
    pub(super) fn arrive(&self, unit: QueryTile<'f>, consumer: Consumer<'f>) {
        let (Some(part), Some(parts)) = (unit.part, self.parts()) else { return };
        self.meet(consumer);
        let speaks = consumer.thread.equals(0);
        let speaks = if self.plan.halves.is_some() { speaks & consumer.warpgroup.equals(0) } else { speaks };
        self.f.if_(speaks, || {
            let order = (AtomicSem::Release, Scope::Gpu);
            self.f.reduce(AtomicOp::Add, parts.counter(part), [self.f.constant(1u32)], order);
        });
    }

    /// The warp's share of all tiles, emitted before the first block is waited for: at the end its divisions would delay the results. Scores of
    /// 192 keys leave no registers for it.
    pub(super) fn early_share(&self, consumer: Consumer<'f>) -> Option<Share<'f>> {
        if self.plan.spec.tile[1] < 192 { self.share(consumer) } else { None }
    }

    /// The warp's share of all tiles; `None` without parts.
    fn share(&self, consumer: Consumer<'f>) -> Option<Share<'f>> {
        let (parts, cta) = (self.parts()?, self.f.special(Special::CtaX));
        // CTAs that share a tile. Each of their warps has every so many-th piece, and so has each CTA about as many.
        let sharing = self.sharing(parts);
        let warp = consumer.warpgroup * 4 + consumer.thread / 32;
        Some(Share { tile: cta / sharing, first: warp * sharing + cta % sharing })
    }

    /// CTAs that share a tile.
    fn sharing(&self, parts: Parts<'f>) -> Value<'f, u32> {
        (self.f.special(Special::GridX) / (self.number("tiles") / parts.most)).max(1)
    }

    /// Emitted for a consumer warpgroup that has finished its tiles: merges its share of all.
    pub(super) fn merge(&self, consumer: Consumer<'f>, early: Option<Share<'f>>) {
        let share = early.or_else(|| self.share(consumer));
        let (Some(parts), Some(share)) = (self.parts(), share) else { return };
        let (f, spec, consumers) = (self.f, self.plan.spec, self.plan.cta.consumers);
        let [tiles, across] = ["tiles", "across"].map(|name| self.number(name));
        let (all, sharing, lane) = (tiles / parts.most, self.sharing(parts), consumer.thread % 32);
        let (first, step) = (share.first, sharing * (consumers * 4));
        let tile = f.variable(share.tile);
        let own = Pieces::of(spec.parts, spec.head[1]);
        let of_row = own.of_row(spec.head[1]);
        let arrivals = if self.plan.rows_are_divided() { consumers } else { 1 };
        f.while_(
            || tile.get().less_than(all),
            || {
                let part = Part { number: f.constant(0), count: f.constant(0), counter: tile.get() };
                let unit = self.tile_of([tile.get() % across, tile.get() / across], Some(part));
                let (part, exists) = (unit.part.unwrap_or(part), unit.exists.unwrap_or(f.constant(true)));
                let queries = (unit.lengths[0] - unit.row).min(self.queries_per_tile());
                let pieces = queries * (spec.pack * of_row);
                f.if_(exists & first.less_than(pieces), || {
                    f.if_(lane.equals(0), || {
                        let (counter, arrived) = (parts.counter(part), part.count * arrivals);
                        let waits = || {
                            let [count] = f.load_ordered::<u32, 1>(LoadOrder::Acquire(Scope::Gpu), counter);
                            count.less_than(arrived)
                        };
                        f.while_(waits, || {});
                        // The last warp that has waited wraps the counter to zero, for the next launch.
                        let last = arrived + pieces.min(step) - 1;
                        f.atomic(AtomicOp::Inc, counter, last, (AtomicSem::Relaxed, Scope::Gpu));
                    });
                    f.warp_sync();
                    let merge = |of: Pieces| {
                        let piece = f.variable(first);
                        f.while_(
                            || piece.get().less_than(pieces),
                            || {
                                let place =
                                    |i| self.place_of(of, &unit, (piece.get() + step * i, pieces), lane);
                                let places: Vec<_> = (0..of.at_once).map(place).collect();
                                self.merge_pieces(of, &unit, (part, parts), lane, &places);
                                piece.set(piece.get() + step * of.at_once);
                            },
                        );
                    };
                    match own.few() {
                        None => merge(own),
                        Some(few) => {
                            f.if_else(part.count.at_most(few.of_step()), || merge(few), || merge(own));
                        }
                    }
                });
                tile.set(tile.get() + f.special(Special::GridX) / sharing);
            },
        );
    }

    /// The place of piece number `piece` of a tile's `pieces`.
    pub(super) fn place_of(
        &self,
        of: Pieces,
        unit: &QueryTile<'f>,
        (piece, pieces): (Value<'f, u32>, Value<'f, u32>),
        lane: Value<'f, u32>,
    ) -> Place<'f> {
        let (of_row, lanes) = (of.of_row(self.plan.spec.head[1]), 32 / of.groups);
        let own = piece.min(pieces - 1);
        let [at, head] = self.query(unit, own / of_row);
        let is_query = at.less_than(unit.lengths[0]);
        // Rows that are none have the place of a query of the same tile: parts of other tiles may not be there yet.
        let at = at.where_or(is_query, unit.row);
        let place = Place {
            exists: piece.less_than(pieces) & is_query,
            of: [at, head],
            line: self.rows_before(unit, head) + at.cast::<u64>(),
            column: (own % of_row * lanes + lane % lanes) * of.own,
        };
        let dv = self.plan.spec.head[1];
        if dv.is_multiple_of(lanes * of.own) {
            return place;
        }
        // Columns that are none have the place of the last ones.
        let Place { exists, column, .. } = place;
        Place { exists: exists & column.less_than(dv), column: column.min(dv - of.own), ..place }
    }

    /// Emitted for a warp: merges the parts of some pieces of rows.
    fn merge_pieces(
        &self,
        of: Pieces,
        unit: &QueryTile<'f>,
        (part, parts): (Part<'f>, Parts<'f>),
        lane: Value<'f, u32>,
        places: &[Place<'f>],
    ) {
        let f = self.f;
        let group = lane / (32 / of.groups);
        let sums: Vec<_> = places.iter().map(|_| Merged::new(f, of)).collect();
        let first = f.variable(group);
        f.while_(
            || (first.get() - group).less_than(part.count),
            || {
                let load = |&Place { line, column, .. }: &Place<'f>, i: u32| {
                    let number = first.get() + i * of.groups;
                    // After the last part it is loaded again, and has no weight.
                    let (there, number) = (number.less_than(part.count), number.min(part.count - 1));
                    let none = f.constant(f32::NEG_INFINITY);
                    let exponent = parts.sum(number, line).where_or(there, none);
                    let from = parts.output(number, line, self.plan) + column.mul_wide(4u32);
                    let elements: Vec<Value<'f, f32>> = match of.own {
                        4 => f.load_global_vector::<f32, 4>(from, 0).into(),
                        2 => f.load_global_vector::<f32, 2>(from, 0).into(),
                        _ => vec![f.load_global(from, 0)],
                    };
                    (exponent, elements)
                };
                let of_place = |place| (0..of.together).map(|i| load(place, i)).collect::<Vec<_>>();
                let loaded: Vec<_> = places.iter().map(of_place).collect();
                sums.iter().zip(loaded).for_each(|(sum, loaded)| sum.add(loaded));
                first.set(first.get() + of.of_step());
            },
        );
        sums.iter().zip(places).for_each(|(sum, place)| self.store_merged(of, unit, (sum, place), group));
    }

    /// Emitted for a warp, whose lanes have merged the parts of a piece: stores it, and the log-sum-exp of its row if it is the first.
    pub(super) fn store_merged(
        &self,
        of: Pieces,
        unit: &QueryTile<'f>,
        (sum, place): (&Merged<'f>, &Place<'f>),
        group: Value<'f, u32>,
    ) {
        let (f, AttentionSpec { output, .. }) = (self.f, self.plan.spec);
        let Output::Direct(o, _) = self.output() else {
            return f.refuse("parts are merged into an O that is stored directly");
        };
        let log_sum_exp = f.parameter::<u64>("log_sum_exp");
        let base = sum.of_groups(of);
        let (none, total) = (sum.total.get().equals(0.0), sum.total.get());
        let factor = f.constant(0.0).where_or(none, Fast::divide(f.constant(1.0), total));
        let bytes = output.bytes();
        let target = self.row_of_o(o, unit, place.of) + place.column.mul_wide(bytes);
        f.if_(place.exists & group.equals(0), || {
            for (value, column) in sum.values.iter().zip((0..).step_by(bytes as usize)) {
                let value = value.get() * factor;
                let [element, _] = output.unpack(f, output.pack(f, [value, value]));
                element.store_global(target, column);
            }
        });
        let is_first = (place.column + group).equals(0);
        f.if_(place.exists & is_first & log_sum_exp.differs_from(0), || {
            let value = Fast::ln(total) + base;
            let value = f.constant(f32::NEG_INFINITY).where_or(none, value);
            f.store_global(log_sum_exp + place.line * 4, 0, [value]);
        });
    }
}

/// What a lane has merged: sums of weights, and of what they are multiplied by, relative to the largest exponent.
pub(super) struct Merged<'f> {
    most: Var<'f, f32>,
    total: Var<'f, f32>,
    values: Vec<Var<'f, f32>>,
}

/// What exponents are relative to: 0 if nothing was seen.
fn base(most: Value<'_, f32>) -> Value<'_, f32> {
    most.builder().constant(0.0).where_or(most.equals(f32::NEG_INFINITY), most)
}

/// The weight of an exponent.
fn weight<'f>(exponent: Value<'f, f32>, base: Value<'f, f32>) -> Value<'f, f32> {
    exp2((exponent - base) * core::f32::consts::LOG2_E)
}

impl<'f> Merged<'f> {
    pub(super) fn new(f: &'f Builder, of: Pieces) -> Self {
        let zero = || f.variable(0.0f32);
        Self {
            most: f.variable(f32::NEG_INFINITY),
            total: zero(),
            values: (0..of.own).map(|_| zero()).collect(),
        }
    }

    /// Multiplies all sums.
    fn scale(&self, by: Value<'f, f32>) {
        self.values.iter().chain([&self.total]).for_each(|sum| sum.set(sum.get() * by));
    }

    /// Adds parts: their exponents, and the elements that these weigh.
    pub(super) fn add(&self, loaded: Vec<(Value<'f, f32>, Vec<Value<'f, f32>>)>) {
        let most = loaded.iter().fold(self.most.get(), |most, (exponent, _)| Real::max(most, *exponent));
        let base = base(most);
        self.scale(weight(self.most.get(), base));
        self.most.set(most);
        for (exponent, elements) in loaded {
            let weight = weight(exponent, base);
            self.total.set(self.total.get() + weight);
            for (value, element) in self.values.iter().zip(elements) {
                value.set(element.mul_add(weight, value.get()));
            }
        }
    }

    /// Adds up those of all groups of lanes, in each lane. Returns what exponents are relative to then.
    fn of_groups(&self, of: Pieces) -> Value<'f, f32> {
        let f = self.most.get().builder();
        let masks = || [16, 8, 4, 2, 1].into_iter().filter(|mask| mask * of.groups >= 32);
        let most = masks().fold(self.most.get(), |most, mask| Real::max(most, f.shuffle_xor(most, mask)));
        let base = base(most);
        self.scale(weight(self.most.get(), base));
        for sum in self.values.iter().chain([&self.total]) {
            masks().for_each(|mask| sum.set(sum.get() + f.shuffle_xor(sum.get(), mask)));
        }
        base
    }
}
