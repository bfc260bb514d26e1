//! The blocks of keys of a CTA.
//!
//! Where it has one alone, that is the block of its number. Otherwise the CTA walks over blocks: the thread that loads draws one from a counter
//! in memory when it has loaded the last tile of the block before, finds its place, and passes it on through a ring. So K, V and the first
//! tiles of the next block are there when consumers have handed over dK and dV.
//!
//! Blocks are begun in their order: those that others wait for were drawn before.

use collective::heads::DeviceLengths;
use collective::pipeline::{Ring, Stage};
use ptx::{AtomicOp, AtomicSem, Builder, Location, Scope, Special, Value};

use super::{Kernel, Roles};
use crate::backward::plan::BackwardPlan;
use crate::backward::spec::BackwardSpec;

/// Which blocks a CTA has.
pub(super) enum Blocks<'f> {
    /// One.
    Own(Box<KeyBlock<'f>>),
    /// Those that are drawn. The ring passes them on.
    Drawn(Ring<'f>),
}

/// Which threads of a role go from block to block.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Reader {
    /// One, which draws for all.
    Draws,
    /// One.
    Thread,
    /// Whole warps.
    Warps,
}

/// A block of keys.
#[derive(Clone, Copy)]
pub(super) struct KeyBlock<'f> {
    /// Its number among all in their order; if CTAs share it, that of the CTA.
    pub(super) number: Value<'f, u32>,
    /// Its number in its sequence, and its first key.
    pub(super) block: Value<'f, u32>,
    pub(super) first: Value<'f, u32>,
    /// Head of keys, and sequence.
    pub(super) head: Value<'f, u32>,
    pub(super) batch: Value<'f, u32>,
    /// Queries and keys of its sequence.
    pub(super) lengths: [Value<'f, u32>; 2],
    pub(super) packed: Option<PackedBlock<'f>>,
    pub(super) apart: Option<BlockApart<'f>>,
}

/// What belongs to a block of keys if heads of queries are computed apart.
#[derive(Clone, Copy)]
pub(super) struct BlockApart<'f> {
    /// The first head of queries, and how many there are.
    pub(super) heads: [Value<'f, u32>; 2],
    /// Which of the CTAs is this one that share the tiles of a head, and how many there are.
    pub(super) part: [Value<'f, u32>; 2],
    /// The block's number among those of which heads of queries are apart.
    pub(super) index: Value<'f, u32>,
    /// Whether the CTA is the first one of such a block.
    pub(super) is_first: Value<'f, bool>,
    /// Whether it is not one of these, but has all heads of queries, if some have.
    pub(super) is_whole: Option<Value<'f, bool>>,
}

/// What belongs to a block of keys if lengths differ.
#[derive(Clone, Copy)]
pub(super) struct PackedBlock<'f> {
    /// Queries and keys of the sequences before.
    pub(super) before: [Value<'f, u32>; 2],
    /// Number of the sequence's first tile of queries among those of a head.
    pub(super) first_tile: Value<'f, u32>,
    /// Whether there is such a block.
    pub(super) exists: Value<'f, bool>,
}

impl<'a, 'f> Roles<'a, 'f> {
    /// Emits what a role does at each block that exists.
    pub(super) fn each_block(&self, reader: Reader, body: impl FnOnce(&Kernel<'a, 'f>)) {
        self.each_block_or(reader, body, || ());
    }

    /// As [`each_block`](Self::each_block), and what it does in place of a block that does not exist.
    pub(super) fn each_block_or(
        &self,
        reader: Reader,
        body: impl FnOnce(&Kernel<'a, 'f>),
        otherwise: impl FnOnce(),
    ) {
        self.walk(reader, |keys| {
            let exists = keys.packed.map_or(self.f.constant(true), |packed| packed.exists);
            self.f.if_else(exists, || body(&self.at(keys)), otherwise);
        });
    }

    /// Emits something for each block, whether it exists or not.
    pub(super) fn walk(&self, reader: Reader, body: impl FnOnce(KeyBlock<'f>)) {
        let f = self.f;
        let ring = match &self.blocks {
            Blocks::Own(keys) => return body(**keys),
            Blocks::Drawn(ring) => ring,
        };
        let (all, ctas) = (self.all_blocks(), f.special(Special::GridX));
        let position = match reader {
            Reader::Draws => ring.producer(),
            Reader::Thread | Reader::Warps => ring.consumer(),
        };
        f.loop_(|| {
            let keys = match reader {
                Reader::Draws => self.pass_on(position.claim(), [all, ctas]),
                Reader::Thread | Reader::Warps => {
                    let stage = position.acquire();
                    let [number] = f.load_shared_vector(stage.address, 0);
                    f.break_if(number.at_least(all));
                    self.read(stage, reader)
                }
            };
            // The place of the CTA's own block was found while the programs before end.
            self.await_programs();
            body(keys);
            f.break_if(!draws([all, ctas]));
        });
    }

    /// Waits for the programs before.
    fn await_programs(&self) {
        if self.plan.cta.overlaps {
            self.f.grid_wait();
        }
    }

    fn at(&self, keys: KeyBlock<'f>) -> Kernel<'a, 'f> {
        let Self { f, plan, scores, shared, .. } = *self;
        let counts = scores.counts().into_iter().map(|name| f.parameter(name)).collect();
        let reals = scores.reals().into_iter().map(|name| f.parameter(name)).collect();
        Kernel { f, plan, scores, counts, reals, shared, keys }
    }

    fn all_blocks(&self) -> Value<'f, u32> {
        let [heads, blocks] = ["all_heads", "blocks"].map(|name| self.f.parameter::<u32>(name));
        heads * blocks
    }

    /// Draws a block, and passes it on. If there is none, leaves the loop, as who reads its number does.
    fn pass_on(&self, stage: Stage<'f>, [all, ctas]: [Value<'f, u32>; 2]) -> KeyBlock<'f> {
        let f = self.f;
        let number = f.variable(f.special(Special::CtaX));
        f.if_(draws([all, ctas]), || {
            self.await_programs();
            let (at, order) = (Location::global(f.parameter("drawn"), 0), (AtomicSem::Relaxed, Scope::Gpu));
            // Each CTA finds none once: after the last one, the counter is zero.
            number.set(f.atomic(AtomicOp::Inc, at, all + ctas - 1, order));
        });
        let number = number.get();
        f.store_shared(stage.address, 0, [number]);
        f.if_(number.at_least(all), || f.mbarrier_arrive(stage.full));
        f.break_if(number.at_least(all));
        // Its number is not held until its place is found: few registers are left.
        let keys = KeyBlock::of(f, self.plan, number);
        for (word, at) in keys.words().into_iter().zip((0..).step_by(4)).skip(1) {
            f.store_shared(stage.address, at, [word]);
        }
        f.mbarrier_arrive(stage.full);
        keys
    }

    /// Reads a block, and gives its stage back.
    fn read(&self, stage: Stage<'f>, reader: Reader) -> KeyBlock<'f> {
        let (f, count) = (self.f, self.plan.block_bytes() / 4);
        let at = |word: u32| (word * 4).cast_signed();
        let fours = (0..count / 4).flat_map(|i| f.load_shared_vector::<u32, 4>(stage.address, at(4 * i)));
        let others = (count / 4 * 4..count).map(|i| f.load_shared_vector::<u32, 1>(stage.address, at(i))[0]);
        let keys = KeyBlock::of_words(f, self.plan, fours.chain(others));
        if reader == Reader::Warps {
            f.warp_sync();
            f.if_(f.special(Special::Lane).equals(0), || f.mbarrier_arrive(stage.empty));
        } else {
            f.mbarrier_arrive(stage.empty);
        }
        keys
    }
}

/// Whether blocks are drawn. If there are no more than CTAs, each CTA has the one of its number.
fn draws<'f>([all, ctas]: [Value<'f, u32>; 2]) -> Value<'f, bool> {
    all.more_than(ctas)
}

impl<'f> KeyBlock<'f> {
    /// The block with these words.
    fn of_words(
        f: &'f Builder,
        plan: &BackwardPlan,
        mut words: impl Iterator<Item = Value<'f, u32>>,
    ) -> Self {
        let mut next = || words.next().unwrap_or(f.constant(0));
        let [number, block, head, batch] = [(); 4].map(|()| next());
        let first = block * plan.spec.tile[1];
        let lengths = ["queries", "keys"].map(|name| f.parameter(name));
        let of = Self { number, block, first, head, batch, lengths, packed: None, apart: None };
        if !plan.is_packed() {
            return of;
        }
        let [lengths, before] = [(); 2].map(|()| [(); 2].map(|()| next()));
        let packed = PackedBlock { before, first_tile: next(), exists: first.less_than(lengths[1]) };
        Self { lengths, packed: Some(packed), ..of }
    }

    /// What differs from block to block, if no CTAs share one.
    fn words(&self) -> Vec<Value<'f, u32>> {
        let Self { number, block, head, batch, lengths, packed, .. } = *self;
        let of_sequence = packed.map(|PackedBlock { before, first_tile, .. }| {
            [lengths[0], lengths[1], before[0], before[1], first_tile]
        });
        [number, block, head, batch].into_iter().chain(of_sequence.into_iter().flatten()).collect()
    }

    /// The block with this number, that of its CTA if it has one alone: of each section of heads, first the first keys of all its heads, since these are
    /// seen by the most queries if a mask is causal. The last section has the heads that are left, too. If dQ is added in a fixed order, a block follows
    /// those that it waits for.
    pub(super) fn of(f: &'f Builder, plan: &BackwardPlan, number: Value<'f, u32>) -> Self {
        let [heads, all_heads, blocks] =
            ["heads", "all_heads", "blocks"].map(|name| f.parameter::<u32>(name));
        let order = ["section", "last"].map(|name| f.parameter::<u32>(name));
        let packed = plan.is_packed().then(|| DeviceLengths::of(f, true));
        let BackwardSpec { split, apart, whole, .. } = plan.spec;
        // Heads of keys of which all heads of queries have one CTA, and whether this one is of them.
        let whole = (whole > 0).then(|| {
            let whole = f.parameter::<u32>("whole");
            (whole, number.less_than(whole * blocks))
        });
        let (index, all_heads, [section, last]) = match whole {
            None => (number / split.max(apart), all_heads, order),
            Some((whole, is_whole)) => {
                let of_whole = ["section_of_whole", "last_of_whole"].map(|name| f.parameter::<u32>(name));
                let index = number.where_or(is_whole, (number - whole * blocks) / apart);
                let order = [0, 1].map(|i| of_whole[i].where_or(is_whole, order[i]));
                (index, whole.where_or(is_whole, all_heads), order)
            }
        };
        let first = (index / (section * blocks) * section).min(last);
        let together = (all_heads - first).where_or(first.equals(last), section);
        let within = index - first * blocks;
        let (block, head) = (within / together, first + within % together);
        let [rows, height] = plan.spec.tile;
        let apart = (apart > 0).then(|| BlockApart::of(f, plan, [number, head, block], whole));
        let (head, apart) = apart.map_or((head, None), |(head, of)| (head, Some(of)));
        let Some((lengths, of_keys)) = packed.and_then(|lengths| Some((lengths, lengths.keys?))) else {
            let (first, batch) = (block * height, head / heads);
            let lengths = ["queries", "keys"].map(|name| f.parameter(name));
            let head = head % heads;
            return Self { number, block, first, head, batch, lengths, packed: None, apart };
        };
        let (batch, block) = lengths.find(of_keys, height, block);
        let [(before_q, queries), (before_k, keys)] = [lengths.queries, of_keys].map(|of| of.sequence(batch));
        let first = block * height;
        let packed = PackedBlock {
            before: [before_q, before_k],
            first_tile: lengths.queries.first_tile(rows, batch),
            exists: first.less_than(keys),
        };
        let lengths = [queries, keys];
        Self { number, block, first, head, batch, lengths, packed: Some(packed), apart }
    }
}

impl<'f> BlockApart<'f> {
    /// The head of keys of all sequences, and what belongs to its block. `head` is that one if the CTA is `whole`; otherwise it counts those heads of
    /// queries that are apart.
    fn of(
        f: &'f Builder,
        plan: &BackwardPlan,
        [cta, head, block]: [Value<'f, u32>; 3],
        whole: Option<(Value<'f, u32>, Value<'f, bool>)>,
    ) -> (Value<'f, u32>, Self) {
        let [share, heads, blocks] = ["share", "heads", "blocks"].map(|name| f.parameter::<u32>(name));
        let parts = f.constant(plan.spec.apart);
        let (of_queries, index) = (head, head / share * blocks + block);
        let Some((whole, is_whole)) = whole else {
            let (first, part) = (of_queries % (heads * share), cta % parts);
            let is_first = (first % share).equals(0) & part.equals(0);
            let of =
                Self { heads: [first, f.constant(1)], part: [part, parts], index, is_first, is_whole: None };
            return (head / share, of);
        };
        let head = head.where_or(is_whole, whole + head / share);
        let first = (head * share).where_or(is_whole, whole * share + of_queries) % (heads * share);
        let part = f.constant(0u32).where_or(is_whole, (cta - whole * blocks) % parts);
        let of = Self {
            heads: [first, share.where_or(is_whole, 1)],
            part: [part, f.constant(1u32).where_or(is_whole, parts)],
            index,
            is_first: !is_whole & (first % share).equals(0) & part.equals(0),
            is_whole: Some(is_whole),
        };
        (head, of)
    }
}
