//! The catalogue: configurations by name, for the command line and for selection at run time.

use core::marker::PhantomData;

use collective::{
    Cluster, Cooperative, CopyWgmma, DirectStore, Element, Epilogue, EvictFirst, Form, KMajor,
    LinearArguments, LinearCombination, Mainloop, MnMajor, MultipliesWith, Operand, Operands, Pingpong, Plan,
    SourcedCombination, Tile, TmaStore, TmaWgmma, Transposed,
};
use cute_rs::atom::Major;
use half::{bf16, f16};
use scheduler::{
    AlongM, Dynamic, Grouped, Heuristic, OneTile, Ordered, Persistent, ReductionKind, Separate, StreamK,
    TileScheduler, Tiles, Work,
};
use typenum::{U1, U2, U4, U8, U12, U16, U64, U128, U192, U256, U320};

use crate::config::{Composed, Gemm, GemmConfig};
use crate::error::LaunchError;
use crate::groups::{BatchedCall, GroupedCall, RaggedCall};
use crate::problem::{Call, GemmProblem, Launch};
use crate::program::Program;
use crate::rust_type;
use crate::several::several;

/// A GEMM kernel whose type has been forgotten.
pub trait AnyGemm: Send + Sync {
    /// The catalogue's name.
    fn name(&self) -> &str;

    /// Name of the element type of A, B, C and D: `bf16` or `f16`.
    fn element(&self) -> &'static str;

    /// Bits of an element of C and D.
    fn output_bits(&self) -> u32;

    /// How tiles are dealt out, in words.
    fn schedule(&self) -> String;

    /// Every number of the kernel.
    fn plan(&self) -> Plan;

    /// Builds, verifies and prints the kernel.
    ///
    /// # Errors
    /// What the verifier finds.
    fn program(&self) -> Result<Program, ptx::VerifyError>;

    /// Checks a call and works out its grid and arguments for an engine with that many slots; see [`Gemm::launch`].
    ///
    /// # Errors
    /// The first argument that is illegal.
    fn launch(&self, call: &Call, slots: u32) -> Result<Option<Launch>, LaunchError>;

    /// How many products a launch computes.
    fn form(&self) -> Form;

    /// As [`launch`](AnyGemm::launch) for several products of one shape; see [`Gemm::launch_batched`].
    ///
    /// # Errors
    /// The first argument that is illegal, or a kernel of another form.
    fn launch_batched(&self, call: &BatchedCall, slots: u32) -> Result<Option<Launch>, LaunchError>;

    /// As [`launch`](AnyGemm::launch) for groups of rows; see [`Gemm::launch_ragged`].
    ///
    /// # Errors
    /// The first argument that is illegal, or a kernel of another form.
    fn launch_ragged(&self, call: &RaggedCall, slots: u32) -> Result<Option<Launch>, LaunchError>;

    /// As [`launch`](AnyGemm::launch) for products that device memory describes; see [`Gemm::launch_grouped`].
    ///
    /// # Errors
    /// The first argument that is illegal, or a kernel of another form.
    fn launch_grouped(&self, call: &GroupedCall, slots: u32) -> Result<Option<Launch>, LaunchError>;

    /// Bytes of device memory that products described by device memory need beside their matrices.
    fn workspace_grouped(&self, slots: u32) -> u64;

    /// Bytes of device memory that several products of one shape need beside their matrices.
    fn workspace_batched(&self, problem: GemmProblem, count: u32, slots: u32) -> u64;

    /// The kernel's type as Rust, with the names that `collective`, `scheduler`, `half` and `typenum` export.
    fn rust_type(&self) -> String;

    /// The output tiles of a problem, one a cluster, and its reduction tiles.
    fn tiles(&self, problem: GemmProblem) -> Tiles<u32>;

    /// The tiles of some products of one launch; see [`Gemm::tiles_of`].
    fn tiles_of(&self, products: &[GemmProblem]) -> Tiles<u32>;

    /// The columns that each tile of a launch multiplies; see [`Gemm::widths_of`].
    fn widths_of(&self, products: &[GemmProblem], workers: u32) -> Option<Vec<u32>>;

    /// Whether workers draw their tiles while the kernel runs.
    fn draws(&self) -> bool;

    /// Bytes of device memory that a problem needs beside its matrices; see [`Gemm::workspace`].
    fn workspace(&self, problem: GemmProblem, slots: u32) -> u64;

    /// How many workers are launched where `slots` run at once.
    fn workers(&self, tiles: Tiles<u32>, slots: u32) -> u32;

    /// How the sums of divided tiles are added up; `None` where no tile is divided.
    fn reduction(&self) -> Option<ReductionKind>;

    /// What one worker computes, in order.
    fn work(&self, tiles: Tiles<u32>, worker: u32, workers: u32) -> Box<dyn Iterator<Item = Work<u32>>>;
}

struct Entry<C> {
    name: String,
    config: PhantomData<fn() -> C>,
}

impl<C: GemmConfig> AnyGemm for Entry<C>
where
    C::Epilogue: Epilogue<Arguments = LinearArguments>,
{
    fn name(&self) -> &str {
        &self.name
    }

    fn element(&self) -> &'static str {
        <C::Mainloop as Mainloop>::A::NAME
    }

    fn output_bits(&self) -> u32 {
        <<C::Epilogue as Epilogue>::Output as Element>::BITS
    }

    fn schedule(&self) -> String {
        C::Scheduler::describe()
    }

    fn plan(&self) -> Plan {
        Gemm::<C>::PLAN
    }

    fn program(&self) -> Result<Program, ptx::VerifyError> {
        Gemm::<C>::program()
    }

    fn launch(&self, call: &Call, slots: u32) -> Result<Option<Launch>, LaunchError> {
        Gemm::<C>::launch(call, slots)
    }

    fn form(&self) -> Form {
        C::FORM
    }

    fn launch_batched(&self, call: &BatchedCall, slots: u32) -> Result<Option<Launch>, LaunchError> {
        Gemm::<C>::launch_batched(call, slots)
    }

    fn launch_ragged(&self, call: &RaggedCall, slots: u32) -> Result<Option<Launch>, LaunchError> {
        Gemm::<C>::launch_ragged(call, slots)
    }

    fn launch_grouped(&self, call: &GroupedCall, slots: u32) -> Result<Option<Launch>, LaunchError> {
        Gemm::<C>::launch_grouped(call, slots)
    }

    fn workspace_grouped(&self, slots: u32) -> u64 {
        Gemm::<C>::workspace_grouped(slots)
    }

    fn workspace_batched(&self, problem: GemmProblem, count: u32, slots: u32) -> u64 {
        Gemm::<C>::workspace_batched(problem, count, slots)
    }

    fn rust_type(&self) -> String {
        rust_type::of::<C>()
    }

    fn tiles(&self, problem: GemmProblem) -> Tiles<u32> {
        Gemm::<C>::tiles(problem)
    }

    fn tiles_of(&self, products: &[GemmProblem]) -> Tiles<u32> {
        Gemm::<C>::tiles_of(products)
    }

    fn widths_of(&self, products: &[GemmProblem], workers: u32) -> Option<Vec<u32>> {
        Gemm::<C>::widths_of(products, workers)
    }

    fn draws(&self) -> bool {
        C::Scheduler::DRAWS
    }

    fn workspace(&self, problem: GemmProblem, slots: u32) -> u64 {
        Gemm::<C>::workspace(problem, slots)
    }

    fn workers(&self, tiles: Tiles<u32>, slots: u32) -> u32 {
        C::Scheduler::workers(tiles, slots)
    }

    fn reduction(&self) -> Option<ReductionKind> {
        C::Scheduler::REDUCTION
    }

    fn work(&self, tiles: Tiles<u32>, worker: u32, workers: u32) -> Box<dyn Iterator<Item = Work<u32>>> {
        C::Scheduler::work(tiles, worker, workers)
    }
}

/// Forgets a kernel's type: a kernel of your own beside those of the catalogue.
pub fn erased<C: GemmConfig>(name: impl Into<String>) -> Box<dyn AnyGemm>
where
    C::Epilogue: Epilogue<Arguments = LinearArguments>,
{
    Box::new(Entry::<C> { name: name.into(), config: PhantomData })
}

/// `D = alpha * A * B + beta * C` with all matrices of element type `T`.
pub(crate) type Linear<A, B, T, Shape, Roles, S> =
    Composed<TmaWgmma<Operands<A, B>, Shape, Roles>, LinearCombination<T>, S>;

/// A 128 x 256 tile, two consumer warpgroups, persistent: for outputs of many tiles.
pub(crate) type Large<A, B, T> =
    Linear<A, B, T, Tile<U128, U256, U64>, Cooperative<U2>, Persistent<Grouped<AlongM, U8>>>;

/// D stored by tensor copies that overlap the next tile, persistent in bands of `G` tiles.
pub(crate) type Copied<A, B, T, Shape, Roles, G> = Composed<
    TmaWgmma<Operands<A, B>, Shape, Roles>,
    LinearCombination<T, TmaStore>,
    Persistent<Grouped<AlongM, G>>,
>;

/// A 256 x 192 tile, two consumer warpgroups: the least traffic for a multiplication, where there are many tiles.
type Wide<A, B, T> = Copied<A, B, T, Tile<U256, U192, U64>, Cooperative<U2>, U8>;

/// A 128 x 256 tile, two consumer warpgroups: for outputs of many tiles.
type Staged<A, B, T> = Copied<A, B, T, Tile<U128, U256, U64>, Cooperative<U2>, U12>;

/// A 128 x 320 tile, two consumer warpgroups of two instructions side by side: fewer waves than [`Staged`] where those of
/// [`Wide`] leave too much of the last one empty.
type Broad<A, B, T> = Copied<A, B, T, Tile<U128, U320, U64>, Cooperative<U2>, U16>;

/// As [`Staged`], with C brought by tensor copies while its tile is multiplied.
type Sourced<A, B, T> = Composed<
    TmaWgmma<Operands<A, B>, Tile<U128, U256, U64>, Cooperative<U2>>,
    SourcedCombination<T>,
    Persistent<Grouped<AlongM, U12>>,
>;

/// As [`Staged`], whose workers draw their tiles: for when other kernels run beside this one.
type Drawn<A, B, T> = Composed<
    TmaWgmma<Operands<A, B>, Tile<U128, U256, U64>, Cooperative<U2>>,
    LinearCombination<T, TmaStore>,
    Dynamic<Grouped<AlongM, U12>>,
>;

/// As [`Duo`], whose clusters draw their tiles.
type DrawnDuo<A, B, T> = Composed<
    TmaWgmma<Operands<A, B>, Tile<U256, U128, U64>, Cooperative<U2, Cluster<U1, U2>>>,
    LinearCombination<T, TmaStore>,
    Dynamic<Grouped<AlongM, U8>>,
>;

/// As [`Staged`] in clusters of 2 x 2: half the traffic from L2, which decides where rows begin inside of sectors.
type Quad<A, B, T> = Copied<A, B, T, Tile<U128, U256, U64>, Cooperative<U2, Cluster<U2, U2>>, U8>;

/// As [`Wide`], with the last waves divided along K where they leave too many multiprocessors idle.
type Stream<A, B, T> = Composed<
    TmaWgmma<Operands<A, B>, Tile<U256, U192, U64>, Cooperative<U2>>,
    LinearCombination<T, TmaStore>,
    StreamK<Grouped<AlongM, U8>>,
>;

/// A 256 x 128 tile in clusters of two that share A: nearly the traffic of [`Wide`] with more tiles to deal out, and hardly
/// slower where rows begin inside of sectors.
pub(crate) type Duo<A, B, T> = Copied<A, B, T, Tile<U256, U128, U64>, Cooperative<U2, Cluster<U1, U2>>, U8>;

/// A 128 x 64 tile, two consumer warpgroups, a CTA a tile: for outputs of about a hundred such tiles.
type Slim<A, B, T> = Composed<
    TmaWgmma<Operands<A, B>, Tile<U128, U64, U64>, Cooperative<U2>>,
    LinearCombination<T, TmaStore>,
    OneTile<AlongM>,
>;

/// A tile of 64 x `N`, one consumer warpgroup, in clusters of two CTAs one above the other, which share B; a CTA a tile:
/// for few rows and large weights, which L2 gives up first.
type Paired<A, B, T, N> = Composed<
    TmaWgmma<Operands<A, EvictFirst<B>>, Tile<U64, N, U64>, Cooperative<U1, Cluster<U2, U1>>>,
    LinearCombination<T, TmaStore>,
    OneTile<AlongM>,
>;

/// A 64 x 64 tile: for 128 rows and long sums.
type Pair64<A, B, T> = Paired<A, B, T, U64>;

/// A 64 x 128 tile: for 128 rows.
type Pair128<A, B, T> = Paired<A, B, T, U128>;

/// As [`PingPong`] in clusters of two CTAs one above the other, which share B: for 256 rows.
type PingPong2<A, B, T> = Copied<A, B, T, Tile<U128, U128, U64>, Pingpong<U2, Cluster<U2, U1>>, U8>;

/// A 128 x 128 tile in clusters of 2 x 2, every tile divided along K: for small outputs of long sums.
type Deep<A, B, T> =
    Linear<A, B, T, Tile<U128, U128, U64>, Cooperative<U2, Cluster<U2, U2>>, StreamK<AlongM, Separate>>;

/// A 128 x 128 tile for each of two consumer warpgroups that take turns: for short reductions.
type PingPong<A, B, T> = Copied<A, B, T, Tile<U128, U128, U64>, Pingpong, U8>;

/// A 128 x 128 tile, two consumer warpgroups, persistent: for outputs of some hundred tiles.
pub(crate) type Medium<A, B, T> =
    Linear<A, B, T, Tile<U128, U128, U64>, Cooperative<U2>, Persistent<Grouped<AlongM, U8>>>;

/// A 64 x 64 tile, one consumer warpgroup, a CTA a tile: for small outputs.
type Small<A, B, T> = Linear<A, B, T, Tile<U64, U64, U64>, Cooperative<U1>, OneTile<AlongM>>;

/// D's transpose is computed, from B's side: B's columns fill the tile's 64 rows, and A's rows its `Rows` columns. For so
/// few rows that B's way from memory decides; the ring holds more than 100 KiB of it, and L2 gives it up first.
pub(crate) type Swapped<A, B, T, Rows, K, Shape, S> = Composed<
    TmaWgmma<Operands<EvictFirst<B>, A>, Tile<U64, Rows, K>, Cooperative<U1, Shape>>,
    LinearCombination<T, Transposed<DirectStore>>,
    S,
>;

/// Up to 16 rows. The little that is exchanged where tiles are divided costs hardly anything beside what memory brings.
type Swap16<A, B, T> = Swapped<A, B, T, U16, U128, Cluster<U1, U1>, StreamK<AlongM, Ordered, Heuristic<U4>>>;

/// Up to 64 rows.
type Swap64<A, B, T> = Swapped<A, B, T, U64, U128, Cluster<U1, U1>, Persistent<AlongM>>;

/// Up to 128 rows, which two CTAs share.
type Swap128<A, B, T> = Swapped<A, B, T, U128, U64, Cluster<U2, U1>, Persistent<AlongM>>;

/// Operands at any address, D stored directly.
pub(crate) type Copying<A, B, T, Shape, Roles, S> =
    Composed<CopyWgmma<Operands<A, B>, Shape, Roles>, LinearCombination<T>, S>;

/// As [`Medium`] for operands whose rows no tensor copy can follow.
pub(crate) type Unaligned<A, B, T> =
    Copying<A, B, T, Tile<U128, U128, U64>, Cooperative<U2>, Persistent<Grouped<AlongM, U8>>>;

/// As [`Small`] for operands whose rows no tensor copy can follow.
type SmallUnaligned<A, B, T> = Copying<A, B, T, Tile<U64, U64, U64>, Cooperative<U1>, OneTile<AlongM>>;

const _: Plan = Gemm::<Large<KMajor<bf16>, KMajor<bf16>, bf16>>::PLAN;
const _: Plan = Gemm::<Wide<KMajor<bf16>, KMajor<bf16>, bf16>>::PLAN;
const _: Plan = Gemm::<Broad<KMajor<bf16>, KMajor<bf16>, bf16>>::PLAN;
const _: Plan = Gemm::<Quad<KMajor<bf16>, KMajor<bf16>, bf16>>::PLAN;
const _: Plan = Gemm::<Stream<KMajor<bf16>, KMajor<bf16>, bf16>>::PLAN;
const _: Plan = Gemm::<Duo<KMajor<bf16>, KMajor<bf16>, bf16>>::PLAN;
const _: Plan = Gemm::<Drawn<KMajor<bf16>, KMajor<bf16>, bf16>>::PLAN;
const _: Plan = Gemm::<DrawnDuo<KMajor<bf16>, KMajor<bf16>, bf16>>::PLAN;
const _: Plan = Gemm::<Slim<KMajor<bf16>, KMajor<bf16>, bf16>>::PLAN;
const _: Plan = Gemm::<Pair64<KMajor<bf16>, KMajor<bf16>, bf16>>::PLAN;
const _: Plan = Gemm::<Pair128<KMajor<bf16>, KMajor<bf16>, bf16>>::PLAN;
const _: Plan = Gemm::<PingPong2<KMajor<bf16>, KMajor<bf16>, bf16>>::PLAN;
const _: Plan = Gemm::<Deep<KMajor<bf16>, KMajor<bf16>, bf16>>::PLAN;
const _: Plan = Gemm::<PingPong<KMajor<bf16>, KMajor<bf16>, bf16>>::PLAN;
const _: Plan = Gemm::<Staged<KMajor<bf16>, KMajor<bf16>, bf16>>::PLAN;
const _: Plan = Gemm::<Sourced<KMajor<bf16>, KMajor<bf16>, bf16>>::PLAN;
const _: Plan = Gemm::<Medium<KMajor<bf16>, KMajor<bf16>, bf16>>::PLAN;
const _: Plan = Gemm::<Small<KMajor<bf16>, KMajor<bf16>, bf16>>::PLAN;
const _: Plan = Gemm::<Swap16<KMajor<bf16>, KMajor<bf16>, bf16>>::PLAN;
const _: Plan = Gemm::<Swap64<KMajor<bf16>, KMajor<bf16>, bf16>>::PLAN;
const _: Plan = Gemm::<Swap128<KMajor<bf16>, KMajor<bf16>, bf16>>::PLAN;
const _: Plan = Gemm::<Unaligned<KMajor<bf16>, KMajor<bf16>, bf16>>::PLAN;
const _: Plan = Gemm::<SmallUnaligned<KMajor<bf16>, KMajor<bf16>, bf16>>::PLAN;

/// Every kernel of the catalogue, in a fixed order; the first that fits a call is the usual choice.
///
/// A name is `<kind>-<element>-<A's direction><B's direction>`, where the direction `k` or `m` (for B: `n`) is the
/// contiguous one.
pub fn catalogue() -> Vec<Box<dyn AnyGemm>> {
    let mut all = Vec::new();
    all_directions::<bf16>(&mut all);
    all_directions::<f16>(&mut all);
    all
}

fn all_directions<T: MultipliesWith<T>>(all: &mut Vec<Box<dyn AnyGemm>>) {
    all_sizes::<KMajor<T>, KMajor<T>, T>(all);
    all_sizes::<KMajor<T>, MnMajor<T>, T>(all);
    all_sizes::<MnMajor<T>, KMajor<T>, T>(all);
    all_sizes::<MnMajor<T>, MnMajor<T>, T>(all);
}

fn all_sizes<A, B, T>(all: &mut Vec<Box<dyn AnyGemm>>)
where
    A: Operand<Element = T>,
    B: Operand<Element = T>,
    T: MultipliesWith<T>,
{
    all.push(entry::<Staged<A, B, T>>("staged"));
    all.push(entry::<Sourced<A, B, T>>("sourced"));
    all.push(entry::<Wide<A, B, T>>("wide"));
    all.push(entry::<Broad<A, B, T>>("broad"));
    all.push(entry::<Quad<A, B, T>>("quad"));
    all.push(entry::<Stream<A, B, T>>("stream"));
    all.push(entry::<Duo<A, B, T>>("duo"));
    all.push(entry::<PingPong<A, B, T>>("pingpong"));
    all.push(entry::<Large<A, B, T>>("large"));
    all.push(entry::<Medium<A, B, T>>("medium"));
    all.push(entry::<Small<A, B, T>>("small"));
    all.push(entry::<Slim<A, B, T>>("slim"));
    all.push(entry::<Pair64<A, B, T>>("pair64"));
    all.push(entry::<Pair128<A, B, T>>("pair128"));
    all.push(entry::<PingPong2<A, B, T>>("pingpong2"));
    all.push(entry::<Deep<A, B, T>>("deep"));
    all.push(entry::<Swap16<A, B, T>>("swap16"));
    all.push(entry::<Swap64<A, B, T>>("swap64"));
    all.push(entry::<Swap128<A, B, T>>("swap128"));
    all.push(entry::<Drawn<A, B, T>>("dynamic"));
    all.push(entry::<DrawnDuo<A, B, T>>("dynamicduo"));
    all.push(entry::<Unaligned<A, B, T>>("unaligned"));
    all.push(entry::<SmallUnaligned<A, B, T>>("unaligned64"));
}

pub(crate) fn entry<C: GemmConfig>(size: &str) -> Box<dyn AnyGemm>
where
    C::Epilogue: Epilogue<Arguments = LinearArguments>,
{
    let majors = Gemm::<C>::PLAN.majors();
    let direction = |major, mn| if major == Major::K { 'k' } else { mn };
    let (a, b) = (direction(majors[0], 'm'), direction(majors[1], 'n'));
    let element = <C::Mainloop as Mainloop>::A::NAME;
    erased::<C>(format!("{size}-{element}-{a}{b}"))
}

/// The kernel of a name, of [`catalogue`] or of [`several`].
///
/// # Errors
/// The name, with every name there is.
pub fn find(name: &str) -> Result<Box<dyn AnyGemm>, UnknownConfig> {
    let mut all = catalogue();
    all.extend(several());
    match all.iter().position(|entry| entry.name() == name) {
        Some(i) => Ok(all.swap_remove(i)),
        None => {
            let known = all.iter().map(|entry| entry.name().to_owned()).collect();
            Err(UnknownConfig { name: name.to_owned(), known })
        }
    }
}

/// A name that is not in the catalogue.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("there is no configuration `{name}`{}; `falchion configs` lists all {}", self.question(), known.len())]
pub struct UnknownConfig {
    /// What was asked for.
    pub name: String,
    /// Every name there is.
    pub known: Vec<String>,
}

impl UnknownConfig {
    /// Up to three names like the one that was asked for, the likest first.
    pub fn alike(&self) -> Vec<&str> {
        let distance = |known: &&str| strsim::damerau_levenshtein(known, &self.name);
        let mut names: Vec<&str> = self.known.iter().map(String::as_str).collect();
        names.retain(|known| distance(known) <= known.len() / 3);
        names.sort_by_key(distance);
        names.truncate(3);
        names
    }

    fn question(&self) -> String {
        let alike = self.alike();
        if alike.is_empty() { String::new() } else { format!(", did you mean {}?", alike.join(" or ")) }
    }
}
