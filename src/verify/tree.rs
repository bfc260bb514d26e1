//! Checks kernels whose epilogue is a tree against the tree itself. Use it for your own kernels and
//! epilogues.
//!
//! A [`Bench`] remembers what it uploads. [`Checks`] of a kernel have memory of their own with these contents, and random operands; the tree
//! is evaluated on the host with the kernel's own arguments, and everything that the kernel writes is compared.
//!
//! ```
//! use falchion::collective::functions::Add;
//! use falchion::collective::tree::{Accumulator, Compute, RowArgument, RowVector};
//! use falchion::prelude::*;
//! use falchion::verify::{Bench, Format};
//!
//! /// D = A * B + bias, with an element of bias for each column.
//! type Biased = Compute<Add, (Accumulator, RowVector<bf16>)>;
//! type MyGemm = Composed<
//!     TmaWgmma<Operands<KMajor<bf16>, KMajor<bf16>>, Tile<U64, U32, U64>, Cooperative<U1>>,
//!     TreeEpilogue<bf16, DirectStore, Biased>,
//!     OneTile<AlongN>,
//! >;
//!
//! let mut engine = Emulator::new();
//! let mut bench = Bench::new(&mut engine, 1);
//! let bias = bench.random(Format::Bf16, 40, 0)?;
//! bench.check::<MyGemm>(GemmProblem { m: 70, n: 40, k: 64 }, &((), ((), RowArgument { address: bias, len: 40 })))?;
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::time::Duration;

use collective::operands::Memory;
use collective::tree::{AnyNode, Host, Node, Scratch, Shape};
use collective::{Bounded, Epilogue, FormulaArguments};
use kernel::operands::Layouts;
use kernel::{
    AnyGemm, Arguments, Buffer, Call, Engine, EngineError, EpilogueArgs, Filled, Gemm, GemmConfig,
    GemmProblem, LaunchError, MatrixRef, Request, UnknownConfig,
};

use super::family::{Agreed, Checks, FamilyError};
use super::matrix::Distribution;
use super::product::{self, ROWS};
use super::{Format, HostMatrix, Order};

/// Why a kernel does not compute what its tree says, or could not be run.
#[derive(Debug, thiserror::Error)]
pub enum TreeError {
    /// The kernel is wrong, or could not be run.
    #[error(transparent)]
    Check(#[from] FamilyError),
    /// The kernel's scheduler does not compute every tile, or computes a tile twice.
    #[error(transparent)]
    Schedule(#[from] scheduler::CoverageError),
    /// A kernel without a counterpart in the catalogue.
    #[error(transparent)]
    Unknown(#[from] UnknownConfig),
}

impl From<EngineError> for TreeError {
    fn from(error: EngineError) -> Self {
        Self::Check(error.into())
    }
}

impl From<ptx::VerifyError> for TreeError {
    fn from(error: ptx::VerifyError) -> Self {
        Self::Check(error.into())
    }
}

impl From<LaunchError> for TreeError {
    fn from(error: LaunchError) -> Self {
        Self::Check(error.into())
    }
}

/// The outcome of a check that found no error.
#[derive(Clone, Debug)]
pub struct Checked {
    /// Device time; `None` if there was nothing to launch.
    pub time: Option<Duration>,
    /// The largest error as a fraction of its bound, 1 at most.
    pub ratio: f64,
    /// Number of elements compared, in D and in everything else that the tree writes.
    pub compared: usize,
    /// Whether these are all elements: of a large product they are a sample.
    pub complete: bool,
    /// D, row by row without padding.
    pub d: Vec<f64>,
}

/// An engine, and the host's copies of what was uploaded to it: arguments of kernels, which are checked on random matrices.
pub struct Bench<'e> {
    engine: &'e mut dyn Engine,
    random: fastrand::Rng,
    /// By address.
    uploads: BTreeMap<u64, Buffer>,
    contents: BTreeMap<u64, Vec<u8>>,
    scratch: Vec<Buffer>,
    /// Whether sampled vectors and matrices begin at aligned addresses, packed.
    aligned: bool,
    /// Number of multiplications up to which all of D is compared.
    most: u64,
}

impl core::fmt::Debug for Bench<'_> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Bench").field("uploads", &self.uploads.len()).finish_non_exhaustive()
    }
}

/// Above this number of elements of D only a sample is compared.
const MOST_ELEMENTS: u64 = 1 << 22;

/// The value of an epilogue with some arguments at a row and a column of D.
type Evaluates<'a, G> = &'a dyn Fn(&mut Host<'_>, &G, [u32; 2]) -> Bounded;

impl<'e> Bench<'e> {
    /// A bench on an engine. The seed determines the random values.
    pub fn new(engine: &'e mut dyn Engine, seed: u64) -> Self {
        Self {
            engine,
            random: fastrand::Rng::with_seed(seed),
            uploads: BTreeMap::new(),
            contents: BTreeMap::new(),
            scratch: Vec::new(),
            aligned: false,
            most: reference::oracle::COMPLETE,
        }
    }

    /// The same, but only a sample of D is compared if a product has more than `most` multiplications, in place
    /// of 2^33. What a tree reduces to one number is compared as a whole: some columns of D, some rows, or all.
    #[must_use]
    pub fn sampled_above(self, most: u64) -> Self {
        Self { most, ..self }
    }

    /// As [`new`](Self::new), for measurements: the arguments that [`Sample`](super::Sample) draws are
    /// aligned and packed, and none of them is left out.
    pub fn aligned(engine: &'e mut dyn Engine, seed: u64) -> Self {
        Self { aligned: true, ..Self::new(engine, seed) }
    }

    /// Allocates zeroed memory for a tree's partial results. Its contents are not compared.
    ///
    /// # Errors
    /// The engine fails.
    pub fn scratch(&mut self, bytes: u64) -> Result<Scratch, EngineError> {
        let buffer = self.engine.upload(&vec![0; usize::try_from(bytes).unwrap_or(usize::MAX)])?;
        self.scratch.push(buffer);
        Ok(Scratch { address: buffer.address, bytes })
    }

    /// The buffers of everything that was uploaded.
    pub fn buffers(&self) -> Vec<Buffer> {
        self.uploads.values().copied().chain(self.scratch.iter().copied()).collect()
    }

    /// Draws an offset from an aligned address, or a gap between rows, in elements.
    pub(super) fn shift(&mut self) -> u32 {
        if self.aligned { 0 } else { self.choose(3) }
    }

    /// Draws whether to leave out an optional argument.
    pub(super) fn omits(&mut self) -> bool {
        !self.aligned && self.choose(3) == 0
    }

    /// Uploads bytes, and returns their device address.
    ///
    /// # Errors
    /// The engine fails.
    pub fn upload(&mut self, bytes: &[u8]) -> Result<u64, EngineError> {
        let buffer = self.engine.upload(bytes)?;
        self.uploads.insert(buffer.address, buffer);
        self.contents.insert(buffer.address, bytes.to_vec());
        Ok(buffer.address)
    }

    /// Uploads `count` normally distributed values, `shift` elements after an aligned address, and returns
    /// the device address of the first.
    ///
    /// # Errors
    /// The engine fails.
    pub fn random(&mut self, format: Format, count: u32, shift: u32) -> Result<u64, EngineError> {
        let extents = [1, count + shift];
        let values =
            HostMatrix::random(format, extents, Order::RowMajor, 1, Distribution::Normal, &mut self.random);
        Ok(self.upload(&values.bytes())? + u64::from(shift) * u64::from(format.bytes()))
    }

    /// A random integer in 0..`below`.
    pub fn choose(&mut self, below: u32) -> u32 {
        self.random.u32(..below.max(1))
    }

    /// A random number in -2..2.
    pub fn number(&mut self) -> f32 {
        self.random.f32() * 4.0 - 2.0
    }

    /// Reserves `bytes` bytes of NaN for a tree to write to. Returns the device address.
    ///
    /// # Errors
    /// The engine fails.
    pub fn output(&mut self, bytes: usize) -> Result<u64, EngineError> {
        self.upload(&vec![POISON; bytes])
    }

    /// The contents of a buffer after the last check, from its address to its end.
    ///
    /// # Errors
    /// The address is of no buffer.
    pub fn read(&self, address: u64) -> Result<Vec<u8>, EngineError> {
        let found = self.contents.get(&address).cloned();
        found.ok_or(EngineError::Buffer { address, bytes: 0, needed: 1 })
    }

    /// Runs a kernel on random operands with a packed D, and compares everything that it writes with its
    /// tree.
    ///
    /// # Errors
    /// The first mismatch, or why the kernel could not be run.
    pub fn check<C>(
        &mut self,
        problem: GemmProblem,
        arguments: &<C::Epilogue as collective::Epilogue>::Arguments,
    ) -> Result<Checked, TreeError>
    where
        C: GemmConfig,
    {
        self.check_at::<C>(problem, arguments, packed_d(&Gemm::<C>::kernel(), problem))
    }

    /// As [`check`](Self::check), for a kernel whose epilogue is a formula.
    ///
    /// # Errors
    /// The first mismatch, or why the kernel could not be run.
    pub fn check_formula(
        &mut self,
        gemm: &AnyGemm,
        problem: GemmProblem,
        arguments: &FormulaArguments,
    ) -> Result<Checked, TreeError> {
        let call = random_operands(gemm, problem, packed_d(gemm, problem)).with(arguments.clone());
        self.run(gemm, (call, &[]), &evaluated)
    }

    /// As [`check`](Self::check), with the caller's D: its address and leading dimension.
    ///
    /// # Errors
    /// The first mismatch, or why the kernel could not be run.
    pub fn check_at<C>(
        &mut self,
        problem: GemmProblem,
        arguments: &<C::Epilogue as collective::Epilogue>::Arguments,
        d: MatrixRef,
    ) -> Result<Checked, TreeError>
    where
        C: GemmConfig,
    {
        let gemm = Gemm::<C>::kernel();
        self.check_product::<C>(&random_operands(&gemm, problem, d).with(arguments))
    }

    /// Runs a kernel on matrices that were uploaded, or written by a kernel that was checked, and compares
    /// everything that it writes with its tree.
    ///
    /// # Errors
    /// The first mismatch, or why the kernel could not be run.
    pub fn check_product<C>(
        &mut self,
        call: &Call<&<C::Epilogue as collective::Epilogue>::Arguments>,
    ) -> Result<Checked, TreeError>
    where
        C: GemmConfig,
    {
        let given = EpilogueArgs::<C::Epilogue>(call.epilogue.clone());
        let evaluates = |host: &mut Host<'_>, given: &EpilogueArgs<C::Epilogue>, at| {
            C::Epilogue::evaluate(host, &given.0, at)
        };
        self.run(&Gemm::<C>::kernel(), (call.with(given), &[]), &evaluates)
    }

    /// Checks a kernel with memory that has the contents of what was uploaded at the call's addresses, the words of its table, and random
    /// contents elsewhere. Then what the kernel has written is remembered.
    pub(super) fn run<G: Arguments + Clone>(
        &mut self,
        gemm: &AnyGemm,
        (mut call, words): (Call<G>, &[u32]),
        evaluates: Evaluates<'_, G>,
    ) -> Result<Checked, TreeError> {
        let program = gemm.program()?;
        let GemmProblem { m, n, k } = call.problem;
        gemm.covers(gemm.tiles(call.problem), self.engine.resident_clusters(&program)?)?;
        let all = [m, n, k].into_iter().map(u128::from).product::<u128>() <= self.most.into()
            && u64::from(m) * u64::from(n) <= MOST_ELEMENTS;
        let sample = (self.random.u64(..), if all { usize::MAX } else { ROWS });
        // Where the pieces of memory are that the caller gives.
        let mut given = Vec::new();
        let mut see = |of: Memory<'_>| given.extend((of.extents.bytes() > 0).then_some(*of.address));
        kernel::Kernel::visit(gemm, &mut call, &mut see);
        let contents = &self.contents;
        let fill = |call: &mut Call<G>, pieces: &mut [Filled]| {
            let known = given.iter().map(|&address| known(contents, address));
            for (of, known) in pieces.iter_mut().zip(known) {
                let bytes = known.unwrap_or_default();
                let count = bytes.len().min(of.piece.bytes);
                of.bytes[..count].copy_from_slice(&bytes[..count]);
            }
            share(gemm, call, pieces, &given);
        };
        let checks = Checks::of(self.engine, gemm, (call, &fill), &|_| words.to_vec(), sample)?;
        let expects = |call: &Call<G>, inputs: &kernel::Inputs<'_>| {
            let linear = call.epilogue.linear().copied().unwrap_or_default();
            let request = Request { fusion: None, ..product::request(gemm, call.clone().with(linear)) };
            gemm.evaluated(&request, inputs, &|host, at| evaluates(host, &call.epilogue, at))
        };
        let agreed = checks.check_by(self.engine, gemm, [1, 1], &expects);
        let memory = checks.memory(self.engine)?;
        let mut d = Vec::new();
        for ((of, now), address) in memory.into_iter().zip(given) {
            if of.piece.name == "D" {
                d = of.values(&now, 0, of.count());
            }
            if of.piece.writes {
                self.remember(address, &now[..of.piece.bytes]);
            }
        }
        checks.free(self.engine)?;
        let Agreed { compared, total, ratio, time, .. } = agreed?;
        Ok(Checked { time, ratio, compared, complete: compared == total, d })
    }

    /// Changes what is known of a buffer from an address on.
    fn remember(&mut self, address: u64, bytes: &[u8]) {
        let Some((&begin, known)) = self.contents.range_mut(..=address).next_back() else { return };
        let begin = (address - begin) as usize;
        if let Some(known) = known.get_mut(begin..begin + bytes.len()) {
            known.copy_from_slice(bytes);
        }
    }
}

/// A byte that, repeated, is NaN in every float format.
const POISON: u8 = 0xff;

/// What is known of memory from an address on.
fn known(contents: &BTreeMap<u64, Vec<u8>>, address: u64) -> Option<&[u8]> {
    let (&begin, bytes) = contents.range(..=address).next_back()?;
    bytes.get(usize::try_from(address - begin).ok()?..)
}

/// Memory that is read and is, by the caller's addresses, memory that is written becomes the latter.
fn share<G: Arguments + Clone>(gemm: &AnyGemm, call: &mut Call<G>, pieces: &[Filled], given: &[u64]) {
    let of_output = |at: usize| {
        let same = |&(other, of): &(usize, &Filled)| of.piece.writes && given[other] == given[at];
        pieces.iter().enumerate().find(same).filter(|_| given[at] > 0).map(|(_, of)| of.piece.address)
    };
    let addresses: Vec<u64> =
        (0..pieces.len()).map(|at| of_output(at).unwrap_or(pieces[at].piece.address)).collect();
    let mut addresses = addresses.into_iter();
    let mut moves = |of: Memory<'_>| {
        if of.extents.bytes() > 0
            && let Some(address) = addresses.next()
        {
            *of.address = address;
        }
    };
    kernel::Kernel::visit(gemm, call, &mut moves);
}

/// The largest number of elements that are evaluated of a D of this shape. `whole` says that the tree reduces all of D to one number.
pub(super) fn at_most(Shape { m, n }: Shape, whole: bool) -> u64 {
    let elements = u64::from(m) * u64::from(n);
    if whole || elements <= MOST_ELEMENTS { elements } else { ROWS as u64 * u64::from(m.max(n)) }
}

/// The value of a formula.
pub(super) fn evaluated(host: &mut Host<'_>, given: &FormulaArguments, at: [u32; 2]) -> Bounded {
    AnyNode::evaluate(host, given.nodes(), at)
}

/// A packed D at no address.
fn packed_d(gemm: &AnyGemm, GemmProblem { n, .. }: GemmProblem) -> MatrixRef {
    MatrixRef::new(0, (n >> gemm.plan().epilogue.halvings).into())
}

/// A call on operands at no addresses, with rows at multiples of 16 bytes.
pub(super) fn random_operands(gemm: &AnyGemm, problem: GemmProblem, d: MatrixRef) -> Call {
    let layouts = Layouts::of(gemm);
    let mut call = Call { workspace: None, ..layouts.packed(problem, 16) };
    nowhere(&layouts, &mut call);
    Call { d, ..call }
}

/// Gives memory of a call the address 0.
pub(super) fn nowhere(layouts: &Layouts, call: &mut Call) {
    call.visit(layouts, &mut |of: Memory<'_>| *of.address = 0);
}
