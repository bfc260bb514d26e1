//! The traits of schedulers: as a type, which is what one implements, and as an object.

use core::fmt;
use std::sync::Arc;

use ptx::{Builder, Value};
use typenum::Unsigned;

use crate::{Divided, ScheduleVisit, SchedulerSpec, SchedulerTraits, Tiles, Work};

/// A tile scheduler: the third role of a kernel, after mainloop and epilogue. It assigns work units to workers.
///
/// Implement it for a type of your own. [`TRAITS`](Self::TRAITS) is what the plan needs at compile time; the methods are the
/// host model and the device code. [`schedule`](Self::schedule) makes an object of them.
///
/// A kernel's scheduler is the default value. Fields are for what a call gives: addresses of [words](Self::visit) in device memory. Nothing
/// but `visit` depends on them.
///
/// Every implementation must compute each k-tile of each output tile exactly once over all workers.
/// [`covers`](crate::covers) checks that.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a tile scheduler",
    note = "write `Persistent<Grouped<AlongM, U8>>`, or implement `TileScheduler` for a type of your own"
)]
pub trait TileScheduler: Clone + Default + fmt::Debug + Send + Sync + 'static {
    /// What a kernel has to know about the scheduler.
    const TRAITS: SchedulerTraits;

    /// The name that kernel names contain: an identifier.
    fn name(&self) -> String;

    /// A description in words, for output to people.
    fn describe(&self) -> String;

    /// The number of workers to launch if the GPU holds `resident` workers at once. 0 if there are too many
    /// tiles to [count](Tiles::count).
    fn workers(&self, tiles: Tiles<u32>, resident: u32) -> u32;

    /// The workspace that split tiles need. By default none: no tile is split.
    fn divided(&self, _tiles: Tiles<u32>, _workers: u32) -> Divided {
        Divided::default()
    }

    /// The scheduler's own kernel parameters: name and value. The names and their order are the same for all tiles; the extents are
    /// not among them. [`emit`](Self::emit) gets each by its name ([`Builder::parameter`]). By default there are none.
    fn parameters(&self, _tiles: Tiles<u32>, _workers: u32) -> Vec<(&'static str, u32)> {
        Vec::new()
    }

    /// The host model: the work units of worker `worker` of `workers`, in order. Empty if there are too many
    /// tiles to [count](Tiles::count). If workers [draw](SchedulerTraits::draws), these are the work units that they
    /// would get if all were equally fast.
    fn work(&self, tiles: Tiles<u32>, worker: u32, workers: u32) -> Box<dyn Iterator<Item = Work<u32>>>;

    /// Visits what the scheduler gets from a call: words in device memory, and numbers. Their names and their order are the same for all
    /// tiles and values. By default there are none.
    ///
    /// The host model does not know the words. It computes as if an [order](crate::WordContents::Order) were 0, 1, 2, …
    fn visit(&mut self, _tiles: Tiles<u32>, _visit: &mut dyn ScheduleVisit) {}

    /// Emits the device code of the same schedule.
    fn emit<'f>(&self, f: &'f Builder, loop_: &mut WorkLoop<'_, 'f>);

    /// Emits what each thread that loads operands does before it loads those of a work unit: it waits until they are there
    /// ([`await_flag`](crate::await_flag)). By default they are there at once. C, and what the epilogue reads otherwise, is not waited for.
    ///
    /// If CTAs of the same launch make them ([`SchedulerTraits::feeds`]), no unit may wait for one that a worker computes only after it.
    fn ready<'f>(&self, _f: &'f Builder, _tiles: Tiles<Value<'f, u32>>, _work: Work<Value<'f, u32>>) {}

    /// The scheduler as an object.
    fn schedule() -> Arc<dyn Schedule> {
        Arc::new(Typed(Self::default()))
    }
}

/// A tile scheduler as an object: a type's ([`TileScheduler::schedule`], where the methods are explained), or one that is described
/// by plain data ([`SchedulerSpec::schedule`]).
pub trait Schedule: fmt::Debug + Send + Sync {
    /// The name that kernel names contain.
    fn name(&self) -> String;

    /// A description in words.
    fn describe(&self) -> String;

    /// What a kernel has to know about the scheduler.
    fn traits(&self) -> SchedulerTraits;

    /// The scheduler as plain data; `None` for a scheduler of your own.
    fn spec(&self) -> Option<SchedulerSpec>;

    /// The number of workers to launch.
    fn workers(&self, tiles: Tiles<u32>, resident: u32) -> u32;

    /// The workspace that split tiles need.
    fn divided(&self, tiles: Tiles<u32>, workers: u32) -> Divided;

    /// The scheduler's own kernel parameters.
    fn parameters(&self, tiles: Tiles<u32>, workers: u32) -> Vec<(&'static str, u32)>;

    /// The work units of a worker, in order.
    fn work(&self, tiles: Tiles<u32>, worker: u32, workers: u32) -> Box<dyn Iterator<Item = Work<u32>>>;

    /// Whether the scheduler may get something from a call. By default it does not.
    fn is_given(&self) -> bool {
        false
    }

    /// Visits what the scheduler gets from a call that gives nothing: addresses are 0. By default it gets nothing.
    fn visit(&self, _tiles: Tiles<u32>, _visit: &mut dyn ScheduleVisit) {}

    /// Emits the device code.
    fn emit<'f>(&self, f: &'f Builder, loop_: &mut WorkLoop<'_, 'f>);

    /// Emits the wait before a work unit is loaded. By default there is none.
    fn ready<'f>(&self, _f: &'f Builder, _tiles: Tiles<Value<'f, u32>>, _work: Work<Value<'f, u32>>) {}
}

/// A scheduler that is a rule of this crate and an order of tiles: its type says the same as plain data.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a tile scheduler",
    note = "write `Persistent<Grouped<AlongM, U8>>`, or implement `TileScheduler` for a type of your own"
)]
pub trait OfSpec: Clone + Default + fmt::Debug + Send + Sync + 'static {
    /// The scheduler as plain data.
    const SPEC: SchedulerSpec;
}

impl<S: OfSpec> TileScheduler for S {
    const TRAITS: SchedulerTraits = S::SPEC.checked_traits();

    fn name(&self) -> String {
        Schedule::name(&S::SPEC)
    }

    fn describe(&self) -> String {
        Schedule::describe(&S::SPEC)
    }

    fn workers(&self, tiles: Tiles<u32>, resident: u32) -> u32 {
        Schedule::workers(&S::SPEC, tiles, resident)
    }

    fn divided(&self, tiles: Tiles<u32>, workers: u32) -> Divided {
        Schedule::divided(&S::SPEC, tiles, workers)
    }

    fn parameters(&self, tiles: Tiles<u32>, workers: u32) -> Vec<(&'static str, u32)> {
        Schedule::parameters(&S::SPEC, tiles, workers)
    }

    fn work(&self, tiles: Tiles<u32>, worker: u32, workers: u32) -> Box<dyn Iterator<Item = Work<u32>>> {
        Schedule::work(&S::SPEC, tiles, worker, workers)
    }

    fn emit<'f>(&self, f: &'f Builder, loop_: &mut WorkLoop<'_, 'f>) {
        Schedule::emit(&S::SPEC, f, loop_);
    }

    fn schedule() -> Arc<dyn Schedule> {
        S::SPEC.schedule()
    }
}

/// The object of a type.
#[derive(Debug)]
struct Typed<S>(S);

impl<S: TileScheduler> Schedule for Typed<S> {
    fn name(&self) -> String {
        self.0.name()
    }

    fn describe(&self) -> String {
        self.0.describe()
    }

    fn traits(&self) -> SchedulerTraits {
        S::TRAITS
    }

    fn spec(&self) -> Option<SchedulerSpec> {
        None
    }

    fn workers(&self, tiles: Tiles<u32>, resident: u32) -> u32 {
        self.0.workers(tiles, resident)
    }

    fn divided(&self, tiles: Tiles<u32>, workers: u32) -> Divided {
        self.0.divided(tiles, workers)
    }

    fn parameters(&self, tiles: Tiles<u32>, workers: u32) -> Vec<(&'static str, u32)> {
        self.0.parameters(tiles, workers)
    }

    fn work(&self, tiles: Tiles<u32>, worker: u32, workers: u32) -> Box<dyn Iterator<Item = Work<u32>>> {
        self.0.work(tiles, worker, workers)
    }

    fn is_given(&self) -> bool {
        true
    }

    fn visit(&self, tiles: Tiles<u32>, visit: &mut dyn ScheduleVisit) {
        self.0.clone().visit(tiles, visit);
    }

    fn emit<'f>(&self, f: &'f Builder, loop_: &mut WorkLoop<'_, 'f>) {
        self.0.emit(f, loop_);
    }

    fn ready<'f>(&self, f: &'f Builder, tiles: Tiles<Value<'f, u32>>, work: Work<Value<'f, u32>>) {
        self.0.ready(f, tiles, work);
    }
}

/// A number as a type, of `typenum`.
pub trait Natural: Unsigned + fmt::Debug + Send + Sync + 'static {}

impl<N: Unsigned + fmt::Debug + Send + Sync + 'static> Natural for N {}

/// The inputs of [`TileScheduler::emit`].
pub struct WorkLoop<'a, 'f> {
    /// The problem's extent in tiles.
    pub tiles: Tiles<Value<'f, u32>>,
    /// The number of this worker, from 0.
    pub worker: Value<'f, u32>,
    /// The number of workers.
    pub workers: Value<'f, u32>,
    /// Where schedules that [draw](SchedulerTraits::draws) get their next tile number. With `None` they use the numbers
    /// of the host model.
    pub draw: Option<&'a dyn crate::Draw<'f>>,
    /// Emits the body of the loop. Called once; the statements run once per work unit.
    pub body: &'a mut dyn FnMut(Work<Value<'f, u32>>),
}

impl fmt::Debug for WorkLoop<'_, '_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WorkLoop").field("tiles", &self.tiles).finish_non_exhaustive()
    }
}
