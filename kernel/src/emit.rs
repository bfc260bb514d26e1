//! The emitter: it writes the program of every kernel from its [`AnyGemm`].

use collective::pipeline::{self, ClusterPosition, Release, Ring, Turns};
use collective::queue::{self, Queue, QueueRole};
use collective::skeleton::Cta;
use collective::stage::Loading;
use collective::{
    Accumulators, CachePolicy, Consumer, DeviceEpilogue, DeviceMainloop, Extent, Form, Fragment,
    MainloopSpec, Pass, Peers, Plan, Producer, Roles, Share, WorkUnit, exchange_in_cluster,
};
use ptx::{Builder, Number, Special, Value, Var};
use scheduler::{Draw, SchedulerTraits, Tiles, Work, WorkLoop};

use crate::gemm::AnyGemm;
use crate::interface::WORKSPACE_PARAMETER;
use crate::outputs::{GroupParameters, Outputs, Placed};

/// Whether each role of a kernel with roles of the library waits for the kernels before.
pub(crate) fn roles_wait(plan: &Plan, traits: SchedulerTraits, overlaps: bool) -> bool {
    let alone = matches!(plan.form, Form::Single | Form::Batched) && !traits.draws;
    let MainloopSpec { roles, producer, .. } = plan.mainloop;
    overlaps && alone && roles != Roles::Unspecialised && producer == Producer::Thread
}

/// Bytes of an operand that a CTA prefetches. On an H200, 32 KB and 180 KB gained less.
const AHEAD_BYTES: u32 = 96 << 10;

/// What is emitted per work unit.
type Body<'b, 'f> = &'b dyn Fn(WorkUnit<'f>, Extent<'f>, Option<Share<'f>>);

/// The kernel's queue of tile numbers, as its scheduler uses it.
struct Drawn<'f>(Queue<'f>);

impl<'f> Draw<'f> for Drawn<'f> {
    fn ask(&self, numbers: Value<'f, u32>) {
        self.0.ask(numbers);
    }

    fn answer(&self) -> Value<'f, u32> {
        self.0.answer()
    }
}

impl AnyGemm {
    /// Emits the kernel from beginning to end.
    pub(crate) fn emit<'f>(&self, f: &'f Builder) {
        let plan = &self.plan;
        // Each role loads its parameters.
        self.declare(f);
        let mainloop = self.mainloop.device(f, plan);
        let given = GroupParameters::of(f, plan.form);
        let epilogue = self.epilogue.device(f, plan);
        for (name, _) in self.scheduler.parameters(Tiles { m: 1, n: 1, k: 1 }, 1) {
            let _: Value<'f, u32> = f.parameter(name);
        }
        let workspace = self.works_in_memory().then(|| f.parameter::<u64>(WORKSPACE_PARAMETER));

        let shared = f.shared_base();
        let ring = Ring::of(f, plan, shared);
        let cluster = ClusterPosition::new(f, plan.mainloop.cluster);
        let (cta, peers) = (self.cta(), self.cta().peers);
        let initialise = || {
            mainloop.prefetch(f);
            mainloop.initialise(f);
            queue::initialise(f, plan, shared);
            pipeline::initialise(f, plan, ring);
        };
        let cta = match self.roles_wait() {
            true => Cta::begin_unawaited(f, cta, initialise),
            false => Cta::begin(f, cta, initialise),
        };
        if plan.form.described() {
            cta.first_warp(|| mainloop.prepare(f, plan));
        }
        let outputs = Outputs::new(f, self, cluster, given);
        let thread = f.special(Special::ThreadX) % 128;
        let roles =
            Emission { gemm: self, f, mainloop, epilogue, outputs, workspace, shared, ring, cluster, thread };
        cta.roles(
            || roles.produce(peers),
            |warpgroup| match plan.mainloop.roles {
                Roles::Unspecialised => roles.load_and_multiply(warpgroup),
                Roles::Cooperative | Roles::Pingpong => roles.consume(warpgroup),
            },
        );
    }

    /// Whether each role waits for the kernels before, after it has found its first work unit. Where that takes device memory, all threads
    /// wait first; so they do in kernels with roles of your own, which may read it anywhere.
    fn roles_wait(&self) -> bool {
        let built_in = self.mainloop.is_built_in() && self.scheduler.spec().is_some();
        built_in && roles_wait(&self.plan, self.traits, self.overlaps)
    }

    /// The operand that a CTA prefetches to L2 before the kernels before have ended, and how many of its k-tiles. `None` if it
    /// prefetches nothing.
    fn ahead(&self) -> Option<(usize, u32)> {
        let operands = self.plan.mainloop.operands;
        let first = operands.iter().position(|operand| operand.cache == CachePolicy::EvictFirst);
        let first = first.filter(|_| self.roles_wait() && self.plan.mainloop.weights().is_none())?;
        Some((first, AHEAD_BYTES / self.plan.ring.tile_bytes(first)))
    }

    /// Reduces the partial sums of a split tile, and finishes tiles that are complete.
    fn add_up<'f, T: Number + Default>(
        &self,
        f: &'f Builder,
        plans: [&Plan; 2],
        (workspace, share): (Option<Value<'f, u64>>, Option<Share<'f>>),
        fragment: Fragment<'f, T>,
        finish: &dyn Fn(&Plan, Fragment<'f, T>),
    ) {
        let [plan, narrowed] = plans;
        match (self.fix_up(), workspace, share) {
            (Some(fix_up), Some(workspace), Some(share)) => {
                let slots = workspace + self.counter_bytes();
                f.scope("fix-up", || fix_up.exchange(f, plans, slots, share, fragment, finish));
            }
            _ if self.traits.parts > 1 => {
                f.scope("fix-up", || exchange_in_cluster(f, plan, self.traits.parts, &fragment, finish));
            }
            _ => finish(narrowed, fragment),
        }
    }
}

/// What the roles of a CTA emit their work with.
struct Emission<'a, 'f> {
    gemm: &'a AnyGemm,
    f: &'f Builder,
    mainloop: DeviceMainloop<'f>,
    epilogue: DeviceEpilogue<'f>,
    outputs: Outputs<'a, 'f>,
    workspace: Option<Value<'f, u64>>,
    /// Address of shared memory.
    shared: Value<'f, u32>,
    ring: Ring<'f>,
    cluster: ClusterPosition<'f>,
    /// The thread's number in its warpgroup.
    thread: Value<'f, u32>,
}

impl<'f> Emission<'_, 'f> {
    /// The work of the producer: it loads what consumers multiply.
    fn produce(&self, peers: Peers) {
        let Self { gemm, f, mainloop, cluster, .. } = self;
        let position = self.ring.producer();
        let part = match gemm.plan.mainloop.producer {
            Producer::Thread => QueueRole::Loader,
            Producer::Warpgroup => QueueRole::Loaders,
        };
        let ahead = gemm.ahead().map(|(operand, k_tiles)| {
            // Each tile of the operand is read by one cluster.
            let others = if operand == 0 { self.outputs.tiles.n } else { self.outputs.tiles.m };
            f.variable(f.constant(k_tiles).where_or(others.equals(1), f.constant(0)))
        });
        self.each_piece(part, &|unit, _, _| {
            if gemm.roles_wait() {
                if let Some(ahead) = ahead {
                    let of = Loading { f, cluster: *cluster, unit, loads: None };
                    let end = unit.k_end.min(unit.k_begin + ahead.get());
                    f.repeat_from(unit.k_begin, end, |k_tile| mainloop.ahead(of, k_tile));
                    // Only of the first work unit.
                    ahead.set(0);
                }
                // Only the first wait takes time.
                f.grid_wait();
            }
            mainloop.load(Pass { f, plan: &gemm.plan, ring: position, unit }, *cluster);
        });
        if peers == Peers::Drain {
            position.drain();
        }
    }

    /// The work of a consumer: it multiplies and stores what the producer has loaded.
    fn consume(&self, warpgroup: Value<'f, u32>) {
        let Self { gemm, f, mainloop, epilogue, thread, .. } = self;
        if gemm.roles_wait() {
            f.grid_wait();
        }
        let (plan, consumer) = (&gemm.plan, self.consumer(warpgroup));
        let position = self.ring.consumer();
        mainloop.prologue(f, plan, consumer);
        let multiply = |unit, extent, share| {
            let pass = Pass { f, plan, ring: position, unit };
            epilogue.begin(pass, extent, consumer);
            mainloop.multiply(pass, consumer, &|plan, sums| self.store(plan, sums, extent, share));
        };
        match plan.mainloop.roles {
            Roles::Pingpong => {
                let turn = f.variable(0u32);
                self.each_piece(QueueRole::Reader, &|unit, extent, share| {
                    let own = next_turn(f, plan, turn).equals(consumer.warpgroup);
                    f.if_else(
                        own,
                        || multiply(unit, extent, share),
                        || {
                            position.skip(unit.k_end - unit.k_begin);
                            mainloop.skip(f, plan, unit);
                        },
                    );
                });
            }
            Roles::Cooperative | Roles::Unspecialised => self.each_piece(QueueRole::Reader, &multiply),
        }
        epilogue.finish(f, plan, *thread);
    }

    /// The work of a warpgroup without a producer: it loads, multiplies and stores.
    fn load_and_multiply(&self, warpgroup: Value<'f, u32>) {
        let Self { gemm, f, mainloop, epilogue, thread, .. } = self;
        let (plan, consumer) = (&gemm.plan, self.consumer(warpgroup));
        let [position, ahead] = [self.ring.consumer(), self.ring.consumer()];
        mainloop.prologue(f, plan, consumer);
        self.each_piece(QueueRole::Loaders, &|unit, extent, share| {
            let pass = Pass { f, plan, ring: position, unit };
            epilogue.begin(pass, extent, consumer);
            let sums = mainloop.load_and_multiply(pass, consumer, ahead);
            self.store(plan, sums, extent, share);
        });
        epilogue.finish(f, plan, *thread);
    }

    /// What a consumer is told of itself.
    fn consumer(&self, warpgroup: Value<'f, u32>) -> Consumer<'f> {
        let Self { f, shared, cluster, thread, .. } = *self;
        let plan = &self.gemm.plan;
        let shares = plan.mainloop.sharing() > 1;
        Consumer {
            shared,
            warpgroup,
            part: if shares { warpgroup } else { f.constant(0) },
            thread,
            release: Release::new(f, plan.mainloop.arrivals, cluster, shared, thread),
            turns: Turns::new(f, plan, shared, warpgroup, thread),
        }
    }

    /// Stores the sums of a work unit, in their own arithmetic. `narrowed` is the plan of the columns that it has.
    fn store(&self, narrowed: &Plan, sums: Accumulators<'f>, extent: Extent<'f>, share: Option<Share<'f>>) {
        let Self { gemm, f, epilogue, .. } = self;
        let finish = |plan: &Plan, fragment| {
            f.scope("epilogue", || epilogue.store(f, plan, extent, fragment));
        };
        let whole = |plan: &Plan, fragment: Fragment<'f, i32>| {
            f.scope("epilogue", || epilogue.store_integers(f, plan, extent, fragment));
        };
        let doubles = |plan: &Plan, fragment: Fragment<'f, f64>| {
            f.scope("epilogue", || epilogue.store_doubles(f, plan, extent, fragment));
        };
        let (plans, split) = ([&gemm.plan, narrowed], (self.workspace, share));
        match sums {
            Accumulators::F32(fragment) => gemm.add_up(f, plans, split, fragment, &finish),
            Accumulators::S32(fragment) => gemm.add_up(f, plans, split, fragment, &whole),
            Accumulators::F64(fragment) => gemm.add_up(f, plans, split, fragment, &doubles),
        }
    }

    /// Emits the scheduler's loop around one role's work.
    fn each_piece(&self, part: QueueRole, body: Body<'_, 'f>) {
        let Self { gemm, f, .. } = *self;
        let (plan, tiles) = (&gemm.plan, self.outputs.tiles);
        let queue = self.workspace.filter(|_| plan.queue.entries > 0);
        let queue = queue.map(|workspace| Queue::new(f, plan, self.shared, workspace, part));
        let worker = f.special(Special::CtaX) / plan.cluster_size();
        let workers = f.special(Special::GridX) / plan.cluster_size();
        let drawn = queue.map(Drawn);
        let draw = drawn.as_ref().map(|drawn| drawn as &dyn Draw<'f>);
        let mut body = |work: Work<Value<'f, u32>>| {
            if part != QueueRole::Reader {
                gemm.scheduler.ready(f, tiles, work);
            }
            let Placed { first: [m, mut n], mut extent, range } = self.outputs.place([work.m, work.n]);
            if let Some(slice) = work.slice {
                let width = plan.mainloop.step;
                n = n + slice.first * width;
                extent.n = extent.n.min(n + slice.count * width);
            }
            let [k_begin, k_end] = range.unwrap_or([work.k_begin, work.k_end]);
            let share = work.split.map(|split| Share {
                unit: split.unit,
                first: split.first,
                last: split.last,
                tile: split.tile,
                k_begin,
                k_end,
                k: tiles.k,
            });
            let columns = columns(f, plan, n, extent);
            let (group, record) = (extent.group, extent.record);
            let mut unit = WorkUnit { m, n, k_begin, k_end, columns, group, record };
            if let Some([first, end]) = self.mainloop.range(f, plan, unit) {
                unit.k_begin = k_begin.max(first);
                unit.k_end = k_end.min(end).max(unit.k_begin);
            }
            body(unit, extent, share);
        };
        gemm.scheduler.emit(f, &mut WorkLoop { tiles, worker, workers, draw, body: &mut body });
        if let Some(Drawn(queue)) = drawn.filter(|_| gemm.cta().peers == Peers::Drain) {
            queue.drain();
        }
    }
}

/// The number of the consumer that computes the next work unit. Every consumer walks all work units of its
/// CTA, computes its own, and skips the stages of the others.
fn next_turn<'f>(f: &'f Builder, plan: &Plan, turn: Var<'f, u32>) -> Value<'f, u32> {
    let now = turn.get();
    let (next, first) = (now + 1, f.constant(0u32));
    turn.set(first.where_or(next.equals(plan.mainloop.consumers), next));
    now
}

/// Number of columns to compute of a tile that begins at column `n`, if the kernel narrows tiles.
fn columns<'f>(f: &'f Builder, plan: &Plan, n: Value<'f, u32>, extent: Extent<'f>) -> Option<Value<'f, u32>> {
    let MainloopSpec { tile: [_, tile_n, _], step, .. } = plan.mainloop;
    (step > 0).then(|| {
        let left = (extent.n - n).where_or(n.less_than(extent.n), f.constant(1)).min(tile_n);
        left.div_ceil(step) * step
    })
}
