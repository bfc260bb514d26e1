//! Kernels that compute several GEMMs in one launch.

use core::marker::PhantomData;

use collective::Form;
use typenum::{U320, Unsigned};

use crate::config::GemmConfig;

/// The kernel `C` for a batch: many GEMMs of one shape in one launch. The matrices of each operand are at a
/// fixed distance from each other, or all GEMMs use the same one. Every mainloop, epilogue and scheduler is
/// legal.
///
/// The scheduler sees one output that is `count` times as high (or as wide) as one D. It assigns and splits
/// the tiles of all GEMMs together.
///
/// ```
/// use collective::{Cooperative, KMajor, LinearCombination, Operands, Tile, TmaWgmma};
/// use half::bf16;
/// use kernel::{Batched, Call, Composed, Emulator, Engine, Gemm, GemmProblem};
/// use scheduler::{AlongM, Persistent};
/// use typenum::{U1, U64};
///
/// type Mine = Batched<
///     Composed<
///         TmaWgmma<Operands<KMajor<bf16>, KMajor<bf16>>, Tile<U64, U64, U64>, Cooperative<U1>>,
///         LinearCombination<bf16>,
///         Persistent<AlongM>,
///     >,
/// >;
/// let (problem, count) = (GemmProblem { m: 16, n: 8, k: 8 }, 3);
/// let mut engine = Emulator::new();
/// let ones = |count: usize| half::bf16::ONE.to_le_bytes().repeat(count);
/// let (a, b) = (engine.upload(&ones(3 * 16 * 8))?, engine.upload(&ones(8 * 8))?);
/// let d = engine.allocate(3 * 16 * 8 * 2)?;
/// let first = Call::of(problem).a(a.address, 8).b(b.address, 8).d(d.address, 8);
/// // One B for all.
/// let call = Call { b: first.b, ..first.batched(count) };
/// let program = Gemm::<Mine>::program()?;
/// if let Some(launch) = Gemm::<Mine>::launch(&call, engine.resident_clusters(&program)?)? {
///     engine.launch(&program, launch.grid, &launch.arguments)?;
/// }
/// assert_eq!(engine.read(d)?, bf16::from_f32(8.0).to_le_bytes().repeat(3 * 16 * 8));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Batched<C>(PhantomData<C>);

/// The kernel `C` for groups of consecutive rows, each with its own B (MoE grouped GEMM): for example the
/// tokens that are sent to the experts of a layer. The kernel reads from device memory where each group
/// begins, so the host need not wait for that to be computed. Groups may be empty.
///
/// Every mainloop and epilogue is legal. The scheduler must be one that does not need the number of tiles on
/// the host ([`SchedulerTraits::tiles_on_device`](scheduler::SchedulerTraits::tiles_on_device)).
///
/// `Most` is the largest number of groups of a launch: `U320`, `U512`, `U1024`, `U2048` or `U4096`
/// ([`Form::TABLES`]). More than 320 groups take no more shared memory, except in kernels that narrow tiles
/// ([`Plan::balanced`](collective::Plan::balanced)), but some time per tile.
///
/// ```
/// use collective::{Cooperative, KMajor, LinearCombination, Operands, Tile, TmaWgmma};
/// use half::bf16;
/// use kernel::{Call, Composed, Emulator, Engine, Gemm, GemmProblem, GroupedContiguous};
/// use scheduler::{AlongM, Persistent};
/// use typenum::{U1, U64};
///
/// type Mine = GroupedContiguous<
///     Composed<
///         TmaWgmma<Operands<KMajor<bf16>, KMajor<bf16>>, Tile<U64, U64, U64>, Cooperative<U1>>,
///         LinearCombination<bf16>,
///         Persistent<AlongM>,
///     >,
/// >;
/// // Five rows for the first of three experts, none for the second, eleven for the third.
/// let offsets: Vec<u8> = [0u32, 5, 5, 16].iter().flat_map(|row| row.to_le_bytes()).collect();
/// let problem = GemmProblem { m: 16, n: 8, k: 8 };
/// let mut engine = Emulator::new();
/// let weights: Vec<u8> =
///     [1.0, 2.0, 3.0].iter().flat_map(|&w| bf16::from_f32(w).to_le_bytes().repeat(64)).collect();
/// let a = engine.upload(&bf16::ONE.to_le_bytes().repeat(16 * 8))?;
/// let (b, offsets) = (engine.upload(&weights)?, engine.upload(&offsets)?);
/// let d = engine.allocate(16 * 8 * 2)?;
/// let call = Call::of(problem).a(a.address, 8).b(b.address, 8).d(d.address, 8).ragged(3, offsets.address);
/// let program = Gemm::<Mine>::program()?;
/// if let Some(launch) = Gemm::<Mine>::launch(&call, engine.resident_clusters(&program)?)? {
///     engine.launch(&program, launch.grid, &launch.arguments)?;
/// }
/// let row = |value| bf16::from_f32(value).to_le_bytes().repeat(8);
/// assert_eq!(engine.read(d)?, [row(8.0).repeat(5), row(24.0).repeat(11)].concat());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug)]
pub struct GroupedContiguous<C, Most = U320>(PhantomData<(C, Most)>);

/// The kernel `C` for groups of rows in buffers of one size ([`GroupedProblem::GroupedMasked`](crate::GroupedProblem::GroupedMasked)):
/// for example experts that each have room for the same number of tokens. A group uses the first rows of its
/// buffer. The kernel reads from device memory how many. `Most` is as for [`GroupedContiguous`].
#[derive(Clone, Copy, Debug)]
pub struct GroupedMasked<C, Most = U320>(PhantomData<(C, Most)>);

/// The kernel `C` for groups along K: each GEMM is a range of K of the same A and B, and has a D of its own
/// ([`GroupedProblem::KGrouped`](crate::GroupedProblem::KGrouped)). For example, the weight gradients of the experts of a
/// layer: K counts tokens. The kernel reads from device memory where each group begins. Groups may be empty.
///
/// Dense operands, with or without block scales, and every epilogue that a batch can have are legal. The
/// scheduler must be one that does not split K.
///
/// ```
/// use collective::{Cooperative, KMajor, LinearCombination, Operands, Tile, TmaWgmma};
/// use half::bf16;
/// use kernel::{Call, Composed, Emulator, Engine, Gemm, GemmProblem, KGrouped};
/// use scheduler::{AlongM, Persistent};
/// use typenum::{U1, U64};
///
/// type Mine = KGrouped<
///     Composed<
///         TmaWgmma<Operands<KMajor<bf16>, KMajor<bf16>>, Tile<U64, U64, U64>, Cooperative<U1>>,
///         LinearCombination<bf16>,
///         Persistent<AlongM>,
///     >,
/// >;
/// // 64 tokens for the first of three experts, none for the second, 128 for the third.
/// let offsets: Vec<u8> = [0u32, 64, 64, 192].iter().flat_map(|k| k.to_le_bytes()).collect();
/// let problem = GemmProblem { m: 16, n: 8, k: 192 };
/// let mut engine = Emulator::new();
/// let ones = |count: usize| bf16::ONE.to_le_bytes().repeat(count);
/// let (a, b) = (engine.upload(&ones(16 * 192))?, engine.upload(&ones(8 * 192))?);
/// let (d, offsets) = (engine.allocate(3 * 16 * 8 * 2)?, engine.upload(&offsets)?);
/// let call = Call::of(problem).a(a.address, 192).b(b.address, 192).d(d.address, 8);
/// let call = call.k_grouped(3, offsets.address);
/// let program = Gemm::<Mine>::program()?;
/// if let Some(launch) = Gemm::<Mine>::launch(&call, engine.resident_clusters(&program)?)? {
///     engine.launch(&program, launch.grid, &launch.arguments)?;
/// }
/// let gradient = |value| bf16::from_f32(value).to_le_bytes().repeat(16 * 8);
/// assert_eq!(engine.read(d)?, [gradient(64.0), gradient(0.0), gradient(128.0)].concat());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug)]
pub struct KGrouped<C>(PhantomData<C>);

/// The kernel `C` for an array of GEMMs of any shapes, with matrices at any address. A
/// [`Record`](collective::Record) in device memory describes each GEMM, so the host need not wait until the
/// records are computed. GEMMs may be empty.
///
/// Every mainloop and epilogue is legal. The scheduler must be one that does not need the number of tiles on
/// the host ([`SchedulerTraits::tiles_on_device`](scheduler::SchedulerTraits::tiles_on_device)). D is stored directly, whatever
/// the epilogue's store. `Most` is as for [`GroupedContiguous`].
#[derive(Clone, Copy, Debug)]
pub struct PointerArray<C, Most = U320>(PhantomData<(C, Most)>);

macro_rules! forms {
    ($($wrapper:ident $(<$most:ident>)?),+) => {
        $(impl<C: GemmConfig $(, $most: Unsigned + 'static)?> GemmConfig for $wrapper<C $(, $most)?> {
            type Mainloop = C::Mainloop;
            type Epilogue = C::Epilogue;
            type Scheduler = C::Scheduler;
            const OVERLAPS: bool = C::OVERLAPS;
            const FORM: Form = Form::$wrapper;
            $(const MOST_GROUPS: u32 = $most::U32;)?
        })+
    };
}

forms!(Batched, KGrouped, GroupedContiguous<Most>, GroupedMasked<Most>, PointerArray<Most>);
