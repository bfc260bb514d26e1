//! A kernel as a type: three roles, one program.

use core::marker::PhantomData;

use collective::pipeline::{ClusterPosition, Release, Ring};
use collective::queue::{self, Part, Queue, QueuePlan};
use collective::{
    Consumer, Element, Epilogue, Extent, FixUp, Form, LinearArguments, Mainloop, MainloopSpec, Piece, Plan,
    Producer, Roles, Share,
};
use cute_rs::atom::Major;
use ptx::{Builder, Entry, Function, Special, Value, Var};
use scheduler::{Divided, Draw, ReductionKind, TileScheduler, Tiles, Work};

use crate::error::LaunchError;
use crate::form::{Groups, Outputs, Place};
use crate::groups::Several;
use crate::problem::{Call, GemmProblem, Launch, Matrices};
use crate::program::Program;

/// What a kernel is made of.
///
/// ```
/// use collective::{Cooperative, KMajor, LinearCombination, Operands, Plan, Tile, TmaWgmma};
/// use half::bf16;
/// use kernel::{Gemm, GemmConfig};
/// use scheduler::{AlongM, Grouped, Persistent};
/// use typenum::{U2, U8, U64, U128, U256};
///
/// struct MyGemm;
/// impl GemmConfig for MyGemm {
///     type Mainloop = TmaWgmma<Operands<KMajor<bf16>, KMajor<bf16>>, Tile<U128, U256, U64>, Cooperative<U2>>;
///     type Epilogue = LinearCombination<bf16>;
///     type Scheduler = Persistent<Grouped<AlongM, U8>>;
/// }
/// const PLAN: Plan = Gemm::<MyGemm>::PLAN; // illegal numbers stop the build here
/// assert_eq!(PLAN.stages, 4);
/// ```
pub trait GemmConfig: 'static {
    /// Brings operand tiles in and multiplies them.
    type Mainloop: Mainloop;
    /// Turns accumulators into the output.
    type Epilogue: Epilogue<Accumulator = <Self::Mainloop as Mainloop>::Accumulator>;
    /// Deals output tiles to CTAs.
    type Scheduler: TileScheduler;
    /// Whether the kernel may begin while the kernel before it in its stream still runs (programmatic dependent launch):
    /// its CTAs then start and set up their barriers, and wait for that kernel before they touch global memory. Nothing
    /// that a kernel computes depends on it.
    const OVERLAPS: bool = true;
    /// How many products a launch computes: [`Batched`](crate::Batched) and [`Ragged`](crate::Ragged)
    /// and [`PointerArray`](crate::PointerArray) make it several.
    const FORM: Form = Form::Single;
}

/// Three roles put together on the spot, for configurations that need no name of their own.
#[derive(Clone, Copy, Debug)]
pub struct Composed<M, E, S>(PhantomData<(M, E, S)>);

impl<M, E, S> GemmConfig for Composed<M, E, S>
where
    M: Mainloop,
    E: Epilogue<Accumulator = M::Accumulator>,
    S: TileScheduler,
{
    type Mainloop = M;
    type Epilogue = E;
    type Scheduler = S;
}

/// What is emitted for each piece of work.
type Body<'b, 'f> = &'b dyn Fn(Piece<'f>, Extent<'f>, Option<Share<'f>>);

/// The queue of a kernel as its scheduler sees it.
struct Drawn<'f>(Queue<'f>);

impl<'f> Draw<'f> for Drawn<'f> {
    fn ask(&self, numbers: Value<'f, u32>) {
        self.0.ask(numbers);
    }

    fn answer(&self) -> Value<'f, u32> {
        self.0.answer()
    }
}

/// The kernel of a configuration: `D = alpha * A * B + beta * C`.
#[derive(Clone, Copy, Debug)]
pub struct Gemm<C>(PhantomData<C>);

impl<C: GemmConfig> Gemm<C> {
    /// Every number of the kernel. Evaluating it for an illegal configuration stops the build with the reason.
    pub const PLAN: Plan = {
        let epilogue = <C::Epilogue as Epilogue>::SPEC;
        let (divides, draws) =
            (<C::Scheduler as TileScheduler>::REDUCTION.is_some(), <C::Scheduler as TileScheduler>::DRAWS);
        assert!(
            !(epilogue.sourced && divides),
            "SourcedCombination brings C for whole tiles, and this scheduler divides them: use LinearCombination or \
             a scheduler of whole tiles"
        );
        assert!(
            !(<C::Mainloop as Mainloop>::SPEC.step > 0 && divides)
                || matches!(<C::Scheduler as TileScheduler>::REDUCTION, Some(ReductionKind::Ordered)),
            "sums of tiles that are narrowed are added up in order alone: use Ordered, or leave Fitted<_, _> out"
        );
        assert!(
            !(epilogue.split && C::FORM.described()),
            "halves of split weights are found by maps that the host makes, and records say where matrices lie: let gates \
             and ups alternate"
        );
        let MainloopSpec { a_major, b_major, producer, .. } = <C::Mainloop as Mainloop>::SPEC;
        let rows = if epilogue.transposed { b_major } else { a_major };
        assert!(
            !(C::FORM.shares_rows() && matches!(rows, Major::Mn) && matches!(producer, Producer::Thread)),
            "groups of rows begin at any row, and tensor copies at multiples of 16 bytes of a line: use KMajor for A, or \
             CopyWgmma"
        );
        let separate = matches!(<C::Scheduler as TileScheduler>::REDUCTION, Some(ReductionKind::Separate));
        assert!(
            !(epilogue.needs.whole && separate),
            "the epilogue finishes whole tiles and Separate divides them among CTAs: add up by Ordered or Atomic"
        );
        assert!(
            <C::Mainloop as Mainloop>::FORMS.has(C::FORM),
            "the mainloop brings in the operands of one product alone: name the form among its FORMS where it takes those of \
             `Piece::group`, or use TmaWgmma or CopyWgmma"
        );
        assert!(
            <C::Epilogue as Epilogue>::FORMS.has(C::FORM),
            "the epilogue stores the output of one product alone: name the form among its FORMS where it takes that of \
             `Extent::group`, or use LinearCombination or TreeEpilogue"
        );
        assert!(
            !matches!(C::FORM, Form::Batched) || <C::Scheduler as TileScheduler>::BATCHES,
            "the scheduler deals out the tiles of one output alone: set its BATCHES where it does those of many, or use \
             Persistent"
        );
        let several = !matches!(C::FORM, Form::Single);
        assert!(
            !(epilogue.sourced && (C::FORM.shares_rows() || C::FORM.described())),
            "SourcedCombination copies by maps that the host makes, and a ragged tile may have rows of the next group: use \
             LinearCombination<T, TmaStore>, which stores such tiles directly"
        );
        assert!(
            !(epilogue.needs.single && several),
            "the epilogue counts the tiles of one output, and this kernel has several: reduce with ReduceRow, \
             ReduceColumn or ReduceScalar"
        );
        let slots = if draws { QueuePlan::SLOTS } else { 0 };
        Plan::checked_of(C::FORM, <C::Mainloop as Mainloop>::SPEC, epilogue, slots)
    };

    /// The kernel's name: its mainloop, epilogue and scheduler.
    pub fn name() -> String {
        let form = C::FORM.suffix();
        format!("gemm{form}_{}_{}_{}", C::Mainloop::name(), C::Epilogue::name(), C::Scheduler::name())
    }

    /// Builds, verifies and prints the kernel.
    ///
    /// # Errors
    /// What the verifier finds; a mainloop, epilogue or scheduler of your own may emit an illegal program.
    pub fn program() -> Result<Program, ptx::VerifyError> {
        let program = Program::new(Function::build(Self::entry(), Self::emit))?;
        Ok(program.of_kernel(C::Scheduler::name(), C::FORM.described()))
    }

    fn entry() -> Entry {
        Entry {
            name: Self::name(),
            target: Plan::TARGET,
            threads: Self::PLAN.threads,
            shared_bytes: Self::PLAN.shared_bytes,
            cluster: [Self::PLAN.cluster_size(), 1, 1],
        }
    }

    /// The kernel, top to bottom.
    fn emit<'f>(f: &'f Builder) {
        let plan = &const { Self::PLAN };
        let mainloop = C::Mainloop::declare(f, plan);
        let extent = Extent { m: f.param("m"), n: f.param("n"), group: None, record: None };
        let k_tiles = f.param::<u32>("k_tiles");
        let groups = Groups::declare(f, C::FORM);
        let epilogue = C::Epilogue::declare(f, plan);
        let scheduler = C::Scheduler::declare(f);
        let workspace = Self::WORKS_IN_MEMORY.then(|| f.param::<u64>("workspace"));

        let shared = f.shared_base();
        let ring = Ring::new(f, plan, shared);
        let cluster = ClusterPosition::new(f, plan);
        let warp = f.warp_index();
        f.if_(warp.equals(0), || {
            f.if_(f.elect(), || {
                C::Mainloop::prefetch(f, mainloop);
                queue::initialise(f, plan, shared);
                ring.initialise(plan);
            });
        });
        Self::meet(f, plan, true);
        if C::OVERLAPS {
            f.grid_launch_dependents();
            f.grid_wait();
        }

        if C::FORM.described() {
            f.if_(warp.equals(0), || C::Mainloop::prepare(f, plan, mainloop));
        }
        let outputs = Outputs::new::<C::Scheduler>(f, plan, groups, extent, k_tiles, Self::cluster_tile());
        let each_piece = |part, body: Body<'_, 'f>| {
            let queue = workspace.filter(|_| plan.queue.slots > 0);
            let queue = queue.map(|workspace| Queue::new(f, plan, shared, workspace, part));
            Self::each_piece(f, plan, cluster, scheduler, outputs, queue, body);
        };
        let thread = f.special(Special::ThreadX) % 128;
        let produce = || {
            f.set_max_registers(false, plan.registers.producer);
            let load = || {
                let position = ring.producer();
                let part = match plan.mainloop.producer {
                    Producer::Thread => Part::Loader,
                    Producer::Warpgroup => Part::Loaders,
                };
                each_piece(part, &|piece, _, _| {
                    C::Mainloop::load(f, plan, mainloop, cluster, position, piece);
                });
            };
            match plan.mainloop.producer {
                Producer::Thread => f.if_(warp.equals(0), || f.if_(f.elect(), load)),
                Producer::Warpgroup => load(),
            }
        };
        let consumer = |warpgroup: Value<'f, u32>| {
            let shares = plan.mainloop.sharing() > 1;
            Consumer {
                shared,
                warpgroup,
                part: if shares { warpgroup } else { f.constant(0) },
                thread,
                release: Release::new(f, plan, cluster, shared, thread),
                turns: ring.turns(plan, warpgroup, thread),
            }
        };
        let store = |narrowed: &Plan, fragment, extent, share| {
            let finish = |plan: &Plan, fragment| {
                f.scope("epilogue", || C::Epilogue::store(f, plan, epilogue, extent, fragment));
            };
            match (Self::FIX_UP, workspace, share) {
                (Some(fix_up), Some(workspace), Some(share)) => {
                    let (plans, sums) = ([plan, narrowed], workspace + Self::COUNTER_BYTES);
                    f.scope("fix-up", || fix_up.exchange(f, plans, sums, share, fragment, &finish));
                }
                _ => finish(narrowed, fragment),
            }
        };
        let consume = || {
            f.set_max_registers(true, plan.registers.consumer);
            let consumer = consumer(warp / 4 - 1);
            let position = ring.consumer();
            let multiply = |piece, extent, share| {
                C::Epilogue::begin(f, plan, epilogue, extent, consumer, piece);
                C::Mainloop::multiply(f, plan, consumer, position, piece, &|plan, fragment| {
                    store(plan, fragment, extent, share);
                });
            };
            match plan.mainloop.roles {
                Roles::Pingpong => {
                    let turn = f.variable(0u32);
                    each_piece(Part::Reader, &|piece, extent, share| {
                        let own = Self::next_turn(f, plan, turn).equals(consumer.warpgroup);
                        f.if_else(
                            own,
                            || multiply(piece, extent, share),
                            || position.skip(piece.k_end - piece.k_begin),
                        );
                    });
                }
                Roles::Cooperative | Roles::Unspecialised => each_piece(Part::Reader, &multiply),
            }
            C::Epilogue::finish(f, plan, thread);
        };
        let alone = || {
            let consumer = consumer(warp / 4);
            let positions = [ring.consumer(), ring.consumer()];
            each_piece(Part::Loaders, &|piece, extent, share| {
                C::Epilogue::begin(f, plan, epilogue, extent, consumer, piece);
                let fragment = C::Mainloop::load_and_multiply(f, plan, mainloop, consumer, positions, piece);
                store(plan, fragment, extent, share);
            });
            C::Epilogue::finish(f, plan, thread);
        };
        match plan.mainloop.roles {
            Roles::Unspecialised => f.scope("consumer", alone),
            Roles::Cooperative | Roles::Pingpong => {
                f.if_else(
                    warp.less_than(4),
                    || f.scope("producer", produce),
                    || f.scope("consumer", consume),
                );
            }
        }
        if plan.cluster_size() > 1 {
            // No CTA may leave while others still write to its shared memory or arrive on its barriers.
            Self::meet(f, plan, false);
        }
    }

    /// Whose turn the next piece is. Every consumer walks all pieces of its CTA, works on its own, and goes past the
    /// stages of the others.
    fn next_turn<'f>(f: &'f Builder, plan: &Plan, turn: Var<'f, u32>) -> Value<'f, u32> {
        let now = turn.get();
        let (next, first) = (now + 1, f.constant(0u32));
        turn.set(first.where_or(next.equals(plan.mainloop.consumers), next));
        now
    }

    /// All threads of the CTA, or of the cluster, wait for each other; `relaxed` where no memory has to be published
    /// but what a fence has published already.
    fn meet(f: &Builder, plan: &Plan, relaxed: bool) {
        if plan.cluster_size() > 1 {
            f.cluster_arrive(relaxed);
            f.cluster_wait();
        } else {
            f.barrier_sync(0, plan.threads);
        }
    }

    /// What a cluster computes at a time: M and N in elements.
    const fn cluster_tile() -> [u32; 2] {
        let MainloopSpec { tile, cluster, .. } = Self::PLAN.mainloop;
        [tile[0] * cluster[0], tile[1] * cluster[1]]
    }

    /// Emits the scheduler's loop around one role's work.
    fn each_piece<'f>(
        f: &'f Builder,
        plan: &Plan,
        cluster: ClusterPosition<'f>,
        scheduler: <C::Scheduler as TileScheduler>::Device<'f>,
        outputs: Outputs<'f>,
        queue: Option<Queue<'f>>,
        body: Body<'_, 'f>,
    ) {
        let tiles = outputs.tiles;
        let worker = f.special(Special::CtaX) / plan.cluster_size();
        let workers = f.special(Special::GridX) / plan.cluster_size();
        let drawn = queue.map(Drawn);
        let draw = drawn.as_ref().map(|drawn| drawn as &dyn Draw<'f>);
        C::Scheduler::emit(f, scheduler, tiles, worker, workers, draw, |work: Work<Value<'f, u32>>| {
            let Place { first: [m, n], extent, k } = outputs.place(plan, cluster, [work.m, work.n]);
            let Work { k_begin, mut k_end, .. } = work;
            if extent.record.is_some() {
                k_end = k;
            }
            let share = work.split.map(|split| Share {
                unit: split.unit,
                first: split.first,
                last: split.last,
                tile: split.tile,
                k_begin,
                k_end,
                k: tiles.k,
            });
            let columns = Self::columns(f, plan, n, extent);
            let (group, record) = (extent.group, extent.record);
            body(Piece { m, n, k_begin, k_end, columns, group, record }, extent, share);
        });
    }

    /// How many columns of a tile that begins at column `n` are computed, where it may be narrowed.
    fn columns<'f>(
        f: &'f Builder,
        plan: &Plan,
        n: Value<'f, u32>,
        extent: Extent<'f>,
    ) -> Option<Value<'f, u32>> {
        let MainloopSpec { tile: [_, tile_n, _], step, .. } = plan.mainloop;
        (step > 0).then(|| {
            let left = (extent.n - n).where_or(n.less_than(extent.n), f.constant(1)).min(tile_n);
            left.div_ceil(step) * step
        })
    }

    /// A problem in the kernel's eyes: transposed where its epilogue transposes back.
    pub(crate) fn seen(problem: GemmProblem) -> GemmProblem {
        if Self::PLAN.swapped() { problem.transposed() } else { problem }
    }

    /// The output tiles of a problem, one a cluster, and its reduction tiles, as the scheduler numbers them: where
    /// [`Plan::swapped`], along M those of the problem's N.
    pub fn tiles(problem: GemmProblem) -> Tiles<u32> {
        let problem = Self::seen(problem);
        let ([m, n], k) = (Self::cluster_tile(), Self::PLAN.mainloop.tile[2]);
        Tiles { m: problem.m.div_ceil(m), n: problem.n.div_ceil(n), k: problem.k.div_ceil(k) }
    }

    /// How sums of divided tiles are added up.
    pub(crate) const FIX_UP: Option<FixUp> = match <C::Scheduler as TileScheduler>::REDUCTION {
        Some(ReductionKind::Ordered) => Some(FixUp::Ordered),
        Some(ReductionKind::Atomic) => Some(FixUp::Atomic),
        Some(ReductionKind::Separate) => Some(FixUp::Separate),
        None => None,
    };

    /// Whether the kernel needs memory of the caller's beside its matrices.
    pub(crate) const WORKS_IN_MEMORY: bool = <C::Scheduler as TileScheduler>::DRAWS || Self::FIX_UP.is_some();

    /// Bytes at the start of the workspace in front of what sums are exchanged in: the counter that tiles are drawn from.
    const COUNTER_BYTES: u64 =
        if <C::Scheduler as TileScheduler>::DRAWS { QueuePlan::WORKSPACE_BYTES } else { 0 };

    pub(crate) fn workspace_bytes(tiles: Tiles<u32>, workers: u32) -> u64 {
        let Divided { units, tiles } = C::Scheduler::divided(tiles, workers);
        let sums = Self::FIX_UP.map_or(0, |fix_up| fix_up.workspace_bytes(&Self::PLAN, units, tiles));
        Self::COUNTER_BYTES + sums
    }

    /// Bytes of device memory that a problem needs beside its matrices ([`Call::workspace`]), on a machine that runs
    /// `slots` of the kernel's clusters at once. Zero for schedulers that deal out whole tiles beforehand.
    pub fn workspace(problem: GemmProblem, slots: u32) -> u64 {
        Self::workspace_of(problem, &Several::One, slots)
    }

    /// Checks a product and the epilogue's arguments, and works out grid and arguments of the kernel, for a machine that
    /// runs `slots` of the kernel's clusters at once ([`Engine::slots`](crate::Engine::slots)).
    /// `None` where there is nothing to do: M = 0 or N = 0.
    ///
    /// # Errors
    /// The first argument that is illegal, with its value and what was needed.
    pub fn launch_with(
        matrices: &Matrices,
        epilogue: &<C::Epilogue as Epilogue>::Arguments,
        slots: u32,
    ) -> Result<Option<Launch>, LaunchError> {
        Self::bind(&Default::default()).launch_with(matrices, epilogue, slots)
    }

    /// As [`launch_with`](Self::launch_with) for `D = alpha * A * B + beta * C`.
    ///
    /// # Errors
    /// The first argument that is illegal, with its value and what was needed.
    pub fn launch(call: &Call, slots: u32) -> Result<Option<Launch>, LaunchError>
    where
        C::Epilogue: Epilogue<Arguments = LinearArguments>,
    {
        let c_bits = <<C::Epilogue as Epilogue>::Output as Element>::BITS;
        Self::launch_with(&call.matrices(), &call.linear(c_bits)?, slots)
    }
}
