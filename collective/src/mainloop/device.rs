//! A mainloop inside a kernel: what it emits for each role.

use std::rc::Rc;

use ptx::{Builder, Value};

use super::{Accumulators, Consumer, Finish, Fragment, Pass, WorkUnit, multiplier};
use crate::pipeline::{ClusterPosition, Position};
use crate::plan::Plan;
use crate::stage::{AnyTile, Loading, load};

type Once<'f> = Rc<dyn Fn(&'f Builder) + 'f>;
type Prepare<'f> = Rc<dyn Fn(&'f Builder, &Plan) + 'f>;
type Prologue<'f> = Rc<dyn Fn(&'f Builder, &Plan, Consumer<'f>) + 'f>;
type Range<'f> = Rc<dyn Fn(&'f Builder, &Plan, WorkUnit<'f>) -> Option<[Value<'f, u32>; 2]> + 'f>;
type Skip<'f> = Rc<dyn Fn(&'f Builder, &Plan, WorkUnit<'f>) + 'f>;
type Load<'f> = Rc<dyn Fn(Pass<'_, 'f>, ClusterPosition<'f>) + 'f>;
type Ahead<'f> = Rc<dyn Fn(Loading<'f>, Value<'f, u32>) + 'f>;
type Multiply<'f> = Rc<dyn Fn(Pass<'_, 'f>, Consumer<'f>, Finish<'_, 'f>) + 'f>;
type Both<'f> = Rc<dyn Fn(Pass<'_, 'f>, Consumer<'f>, Position<'f>) -> Accumulators<'f> + 'f>;

/// A mainloop inside a kernel: what is emitted at each place where a mainloop can have code.
///
/// [`Mainloop::device`](super::Mainloop::device) makes one, of [stage tiles](crate::stage::StageTile) that load themselves or with a load of its
/// own. What it does not say is as usual: stages hold A's tile and then B's, and consumers multiply them by `wgmma`. One of ours can be
/// changed in one place: `Ours::device(f, plan).with_range(..)`. A clone emits the same code.
///
/// ```
/// use collective::pipeline::ClusterPosition;
/// use collective::stage::OperandMap;
/// use collective::{DeviceMainloop, Pass, Plan, TensorCopy};
/// use ptx::Builder;
///
/// /// Loads A and B of one CTA.
/// fn device<'f>(f: &'f Builder, _plan: &Plan) -> DeviceMainloop<'f> {
///     let maps = [["a_map", "a_step"], ["b_map", "b_step"]].map(|names| OperandMap::of(f, names, false));
///     DeviceMainloop::new().with_load(move |Pass { f, plan, ring, unit }, _| {
///         f.repeat_from(unit.k_begin, unit.k_end, |k_tile| {
///             ring.produce(f.constant(plan.ring.transaction_bytes()), |stage| {
///                 for ((tile, map), mn) in plan.operands.into_iter().zip(maps).zip(unit.first()) {
///                     TensorCopy::new(tile).load(f, stage, map.origin(unit), [mn, k_tile * plan.mainloop.tile[2]]);
///                 }
///             });
///         });
///     })
/// }
/// ```
#[derive(Clone, Default)]
pub struct DeviceMainloop<'f> {
    prefetch: Option<Once<'f>>,
    initialise: Option<Once<'f>>,
    prologue: Option<Prologue<'f>>,
    prepare: Option<Prepare<'f>>,
    range: Option<Range<'f>>,
    skip: Option<Skip<'f>>,
    ahead: Option<Ahead<'f>>,
    load: Option<Load<'f>>,
    multiply: Option<Multiply<'f>>,
    load_and_multiply: Option<Both<'f>>,
}

impl core::fmt::Debug for DeviceMainloop<'_> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("DeviceMainloop").finish_non_exhaustive()
    }
}

/// What it is made of.
impl<'f> DeviceMainloop<'f> {
    /// One that loads nothing yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// One whose stages have these tiles. One thread of the producer loads them, for a work unit's k-tiles one after the other.
    pub fn of_tiles(tiles: Vec<AnyTile<'f>>) -> Self {
        Self::of_shared_tiles(tiles.into())
    }

    pub(super) fn of_shared_tiles(tiles: Rc<[AnyTile<'f>]>) -> Self {
        let [prefetched, prepared, ahead] = [(); 3].map(|()| tiles.clone());
        Self::new()
            .with_prefetch(move |f| prefetched.iter().for_each(|tile| tile.prefetch(f)))
            .with_prepare(move |f, _| prepared.iter().for_each(|tile| tile.prepare(f)))
            .with_ahead(move |of, k_tile| ahead.iter().for_each(|tile| tile.ahead(of, k_tile)))
            .with_load(move |Pass { f, ring, unit, .. }, cluster| {
                let (bytes, load) = load(&tiles, Loading { f, cluster, unit, loads: None });
                f.repeat_from(unit.k_begin, unit.k_end, |k_tile| {
                    ring.produce(bytes, |stage| load(stage, k_tile));
                });
            })
    }

    /// Emitted for one thread at the start: prefetches what the copies will need.
    #[must_use]
    pub fn with_prefetch(self, prefetch: impl Fn(&'f Builder) + 'f) -> Self {
        Self { prefetch: Some(Rc::new(prefetch)), ..self }
    }

    /// Emitted for one thread at the start: initialises mbarriers of the mainloop's own, which are in its own
    /// memory ([`Plan::own_offset`]). A fence of initialised mbarriers follows, and a barrier of all threads.
    #[must_use]
    pub fn with_initialise(self, initialise: impl Fn(&'f Builder) + 'f) -> Self {
        Self { initialise: Some(Rc::new(initialise)), ..self }
    }

    /// Emitted once for each consumer warpgroup, before its first work unit: what all work units need.
    #[must_use]
    pub fn with_prologue(self, prologue: impl Fn(&'f Builder, &Plan, Consumer<'f>) + 'f) -> Self {
        Self { prologue: Some(Rc::new(prologue)), ..self }
    }

    /// Emitted in a grouped launch for the lanes of a CTA's first warp, after the wait for the kernels before.
    /// A barrier follows.
    #[must_use]
    pub fn with_prepare(self, prepare: impl Fn(&'f Builder, &Plan) + 'f) -> Self {
        Self { prepare: Some(Rc::new(prepare)), ..self }
    }

    /// Emitted per work unit, for every role: the k-tiles that are needed, if the device knows that some are not,
    /// such as those of a triangle. All roles get the part of the work unit's own range that lies in it, which may be
    /// empty. A split of K works with that: units add up what they have.
    #[must_use]
    pub fn with_range(
        self,
        range: impl Fn(&'f Builder, &Plan, WorkUnit<'f>) -> [Value<'f, u32>; 2] + 'f,
    ) -> Self {
        Self { range: Some(Rc::new(move |f, plan, unit| Some(range(f, plan, unit)))), ..self }
    }

    /// Emitted for a pingpong consumer that leaves a work unit to another one: advances its positions in rings of the
    /// mainloop's own ([`Position::skip`]). Its position in the kernel's ring is advanced already.
    #[must_use]
    pub fn with_skip(self, skip: impl Fn(&'f Builder, &Plan, WorkUnit<'f>) + 'f) -> Self {
        Self { skip: Some(Rc::new(skip)), ..self }
    }

    /// Emitted for the thread that loads, for a work unit and the number of a k-tile, perhaps before the kernels before this one have ended:
    /// prefetches to L2 ([`StageTile::ahead`](crate::stage::StageTile::ahead)).
    #[must_use]
    pub fn with_ahead(self, ahead: impl Fn(Loading<'f>, Value<'f, u32>) + 'f) -> Self {
        Self { ahead: Some(Rc::new(ahead)), ..self }
    }

    /// Emitted for the producer: copies a work unit into stages. [`MainloopSpec::producer`](crate::MainloopSpec::producer) says whether one
    /// thread or the warpgroup runs it. A mainloop with a producer must have it; without, the program is illegal.
    #[must_use]
    pub fn with_load(self, load: impl Fn(Pass<'_, 'f>, ClusterPosition<'f>) + 'f) -> Self {
        Self { load: Some(Rc::new(load)), ..self }
    }

    /// Emitted for a consumer warpgroup: multiplies a work unit and calls `finish` with the accumulators and
    /// the plan of a tile of their width. By default it multiplies by `wgmma` from stages that hold A's tile
    /// and then B's, laid out as [`Plan::operands`] says. A comes from registers if the spec's atom takes it
    /// from there.
    #[must_use]
    pub fn with_multiply(self, multiply: impl Fn(Pass<'_, 'f>, Consumer<'f>, Finish<'_, 'f>) + 'f) -> Self {
        Self { multiply: Some(Rc::new(multiply)), ..self }
    }

    /// Emitted for every warpgroup of a kernel without a producer ([`Roles::Unspecialised`](crate::Roles)):
    /// loads a work unit and multiplies it. The position is that of the thread that fills stages. A mainloop
    /// without a producer must have it; without, the program is illegal.
    #[must_use]
    pub fn with_load_and_multiply(
        self,
        both: impl Fn(Pass<'_, 'f>, Consumer<'f>, Position<'f>) -> Accumulators<'f> + 'f,
    ) -> Self {
        Self { load_and_multiply: Some(Rc::new(both)), ..self }
    }
}

/// What it emits.
impl<'f> DeviceMainloop<'f> {
    /// See [`with_prefetch`](Self::with_prefetch).
    pub fn prefetch(&self, f: &'f Builder) {
        if let Some(prefetch) = &self.prefetch {
            prefetch(f);
        }
    }

    /// See [`with_initialise`](Self::with_initialise).
    pub fn initialise(&self, f: &'f Builder) {
        if let Some(initialise) = &self.initialise {
            initialise(f);
        }
    }

    /// See [`with_prologue`](Self::with_prologue).
    pub fn prologue(&self, f: &'f Builder, plan: &Plan, consumer: Consumer<'f>) {
        if let Some(prologue) = &self.prologue {
            prologue(f, plan, consumer);
        }
    }

    /// See [`with_prepare`](Self::with_prepare).
    pub fn prepare(&self, f: &'f Builder, plan: &Plan) {
        if let Some(prepare) = &self.prepare {
            prepare(f, plan);
        }
    }

    /// See [`with_range`](Self::with_range). `None` if all k-tiles are needed.
    pub fn range(&self, f: &'f Builder, plan: &Plan, unit: WorkUnit<'f>) -> Option<[Value<'f, u32>; 2]> {
        self.range.as_ref().and_then(|range| range(f, plan, unit))
    }

    /// See [`with_skip`](Self::with_skip).
    pub fn skip(&self, f: &'f Builder, plan: &Plan, unit: WorkUnit<'f>) {
        if let Some(skip) = &self.skip {
            skip(f, plan, unit);
        }
    }

    /// See [`with_ahead`](Self::with_ahead).
    pub fn ahead(&self, of: Loading<'f>, k_tile: Value<'f, u32>) {
        if let Some(ahead) = &self.ahead {
            ahead(of, k_tile);
        }
    }

    /// See [`with_load`](Self::with_load).
    pub fn load(&self, pass: Pass<'_, 'f>, cluster: ClusterPosition<'f>) {
        match &self.load {
            Some(load) => load(pass, cluster),
            None => pass.f.refuse(
                "the mainloop's SPEC has a producer: give its `DeviceMainloop` a load (`of_tiles`, `with_load`)",
            ),
        }
    }

    /// See [`with_multiply`](Self::with_multiply).
    pub fn multiply(&self, pass: Pass<'_, 'f>, consumer: Consumer<'f>, finish: Finish<'_, 'f>) {
        match &self.multiply {
            Some(multiply) => multiply(pass, consumer, finish),
            None => multiplier::ring(pass, consumer, finish),
        }
    }

    /// See [`with_load_and_multiply`](Self::with_load_and_multiply).
    pub fn load_and_multiply(
        &self,
        pass: Pass<'_, 'f>,
        consumer: Consumer<'f>,
        ahead: Position<'f>,
    ) -> Accumulators<'f> {
        if let Some(both) = &self.load_and_multiply {
            return both(pass, consumer, ahead);
        }
        let Pass { f, plan, unit, .. } = pass;
        f.refuse("the mainloop's SPEC has no producer: write `DeviceMainloop::with_load_and_multiply`");
        Accumulators::F32(Fragment {
            blocks: Vec::new(),
            elements: plan.mainloop.product().elements(),
            shared: consumer.shared,
            warpgroup: consumer.warpgroup,
            first: unit.first(),
            columns: plan.mainloop.tile[1],
            thread: consumer.thread,
        })
    }
}
