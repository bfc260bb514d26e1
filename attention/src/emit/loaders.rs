//! The loaders of latent attention: warps that load slabs side by side.
//!
//! One thread takes some 200 cycles for a slab: it waits until the slab's stage is empty, announces its bytes, and starts the copy. Consumers give
//! back several slabs at the same time. Of `n` loaders, warp `w` has slabs `w`, `w + n`, `w + 2n`, .. of Q and of each block of K. Each loader
//! walks all tiles and blocks, with positions of its own in the rings, and waits for its own slabs alone.

use collective::pipeline::{Position, Stage, StageRun};
use collective::queue::QueueRole;
use collective::{Origin, TensorCopy};
use ptx::{Value, Var};

use super::{Kernel, QueryTile};

/// A loader.
struct Loader<'a, 'f> {
    kernel: &'a Kernel<'a, 'f>,
    /// Number of loaders; and slabs of Q, which a block of K has too.
    all: u32,
    slabs: u32,
    /// Its own number, which is that of its first slab, and the first column of that.
    number: Value<'f, u32>,
    column: Value<'f, u32>,
    q: Position<'f>,
    /// Its first slab of the next block.
    k: Position<'f>,
    /// What the blocks of a tile have in common: the row of key 0, the sequence, and the head.
    keys: [Var<'f, u32>; 3],
}

impl<'f> Kernel<'_, 'f> {
    /// Emitted for one thread of each warp that loads: it loads the slabs of warp `number` of each tile.
    pub(super) fn load_slabs(&self, number: Value<'f, u32>) {
        let Self { f, plan, .. } = self;
        let [q, k, _] = self.rings.map(|ring| ring.producer());
        k.skip(number);
        let slabs = plan.stages_of_block();
        let loader = Loader {
            kernel: self,
            all: plan.spec.loaders,
            slabs,
            number,
            column: number * (plan.spec.head[0] / slabs),
            q,
            k,
            keys: [0u32; 3].map(|zero| f.variable(zero)),
        };
        let of_k = |tile, block| loader.load_keys(tile, block);
        self.in_order(QueueRole::LoaderOfWarp, &|tile| loader.load_queries(tile), [&of_k, &|_, _| {}]);
    }
}

impl<'f> Loader<'_, 'f> {
    /// Begins a tile, and loads its slabs of the queries.
    fn load_queries(&self, tile: QueryTile<'f>) {
        let Kernel { f, plan, .. } = *self.kernel;
        let [row, sequence] = self.kernel.place(&tile, 1);
        let head = self.kernel.head_of_keys(&tile);
        self.keys.iter().zip([row, sequence, head]).for_each(|(variable, number)| variable.set(number));
        let (origin, row) = self.kernel.queries(&tile);
        let (copy, of_slab) =
            (TensorCopy::new(plan.tiles[0]), plan.rings[0].transaction_bytes() / self.slabs);
        let fewest = f.constant(self.slabs / self.all * of_slab);
        let own = match self.slabs % self.all {
            0 => fewest,
            more => (fewest + of_slab).where_or(self.number.less_than(more), fewest),
        };
        self.q.produce(own, |stage| {
            let first = Stage { address: stage.address + self.number * of_slab, ..stage };
            self.each(|slab| {
                let stage = Stage { address: first.address + slab * of_slab, ..first };
                copy.slab(slab).load(f, stage, origin, [row, self.column]);
            });
        });
    }

    /// Loads its slabs of a block of keys.
    fn load_keys(&self, tile: QueryTile<'f>, block: Value<'f, u32>) {
        let Kernel { f, plan, .. } = *self.kernel;
        let [row, sequence, head] = self.keys.each_ref().map(|number| number.get());
        let [copy, _] = plan.copied().map(TensorCopy::new);
        let run = self.k.next_run(self.slabs);
        match self.kernel.pages() {
            Some(pages) => {
                let pages = pages.of_block([tile.batch, tile.lengths[1]], block);
                self.fill(run, |slab, stage| {
                    pages.each(|page| {
                        let (origin, row) = page.place((self.kernel.map_of(1, page.has_keys()), head));
                        copy.slab(slab).load(f, stage, origin, [row, self.column]);
                    });
                });
            }
            None => {
                let first = block * plan.spec.tile[1];
                let map = self.kernel.map_of(1, first.less_than(tile.lengths[1]));
                let origin = Origin { matrix: Some(head), batch: Some(sequence), ..Origin::alone(map) };
                let place = [row + first, self.column];
                self.fill(run, |slab, stage| copy.slab(slab).load(f, stage, origin, place));
            }
        }
    }

    /// Fills its stages of a block, whose first one is that of its first slab. `load` starts the copies of a slab.
    fn fill(&self, run: StageRun<'f>, load: impl Fn(u32, Stage<'f>)) {
        let (f, bytes) = (self.kernel.f, self.kernel.plan.rings[1].transaction_bytes());
        // Of a slab that every loader has, it asks while it loads the one before.
        let mut empty = None;
        self.each(|slab| {
            let stage = run.claim(slab, empty);
            let next = slab + self.all;
            empty = self.is_shared(next).then(|| run.is_empty(next));
            f.mbarrier_arrive_expect(stage.full, f.constant(bytes));
            load(slab, stage);
        });
    }

    /// Emits something for each of its slabs: how many slabs after its first one.
    fn each(&self, mut of_slab: impl FnMut(u32)) {
        for slab in (0..self.slabs).step_by(self.all as usize) {
            match self.is_shared(slab) {
                true => of_slab(slab),
                false => self.kernel.f.if_(self.number.less_than(self.slabs - slab), || of_slab(slab)),
            }
        }
    }

    /// Whether every loader has a slab `slab` places after its first one.
    const fn is_shared(&self, slab: u32) -> bool {
        slab + self.all <= self.slabs
    }
}
