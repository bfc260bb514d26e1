//! Checks kernels whose epilogue is a tree against the tree itself. Use it for your own kernels and
//! epilogues.
//!
//! A [`Bench`] remembers what it uploads, so that it can evaluate the tree on the host with the kernel's own
//! arguments. It compares D and everything else that the tree writes, and looks for writes where there should
//! be none.
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

mod places;
#[cfg(test)]
mod tests;
mod written;

use core::ops::Range;
use std::collections::BTreeMap;
use std::time::Duration;

use collective::operands::Memory;
use collective::tree::{AnyNode, Host, Node, Scratch, Shape, Site};
use collective::{
    Arithmetic, Bounded, Epilogue, EpilogueSite, EpilogueSpec, Evaluated, FormulaArguments, Treed,
};
use kernel::{
    AnyGemm, Arguments, Buffer, Call, Engine, EngineError, EpilogueArgs, Gemm, GemmConfig, GemmProblem,
    KernelSpec, Launch, LaunchError, MatrixRef, Program, UnknownConfig,
};
use reference::memory::{BufferFault, Compared, Contents, Writes};
use reference::{Elements, Wanted};

pub(super) use self::written::evaluated_bytes;

use self::places::Places;
use self::written::{Element, Output, POISON, Remembered, wanted, writes};
use super::matrix::Distribution;
use super::product::{accumulators, formats, orders, random_scales, scaled};
use super::session::Upload;
use super::{AccumulatorPrecision, Format, HostMatrix, Order, Scales, storage};

/// An epilogue with its arguments, on the host.
#[derive(Clone, Copy)]
struct OnHost<'e> {
    /// Evaluates it on the accumulator at (row, column), and records what it writes in addition to D.
    evaluate: &'e dyn Fn(&mut Host<'_>, [u32; 2]) -> Bounded,
    /// Visits the arguments.
    visit: &'e dyn Fn(&EpilogueSite<'_>, &mut Site<'_>),
}

impl OnHost<'_> {
    /// The memory that the epilogue writes in addition to a D of this shape.
    fn written(&self, d: Shape) -> Vec<Range<u64>> {
        let mut written = Vec::new();
        let mut see = |Memory { address, extents, writes, .. }: Memory<'_>| {
            if writes {
                written.push(*address..address.saturating_add(extents.bytes()));
            }
        };
        (self.visit)(&EpilogueSite::of_shape(d), &mut Site::root(1, &mut see));
        written
    }
}

/// Why a kernel does not compute what its tree says, or could not be run.
#[derive(Debug, thiserror::Error)]
pub enum TreeError {
    /// The kernel's program is illegal.
    #[error(transparent)]
    Program(#[from] ptx::VerifyError),
    /// The kernel's scheduler does not compute every tile, or computes a tile twice.
    #[error(transparent)]
    Schedule(#[from] scheduler::CoverageError),
    /// The kernel refuses the arguments.
    #[error(transparent)]
    Launch(#[from] LaunchError),
    /// The engine could not run it.
    #[error(transparent)]
    Engine(#[from] EngineError),
    /// A kernel without a counterpart in the catalogue.
    #[error(transparent)]
    Unknown(#[from] UnknownConfig),
    /// The problem has no elements.
    #[error("the product is empty, at least one row and one column were needed")]
    Empty,
    /// An element differs from the tree's value by more than its bound.
    #[error("{place} is {got}, {} within {:e} was expected", expected.value, expected.bound())]
    Value {
        /// Which element.
        place: String,
        /// Its value.
        got: f64,
        /// The tree's value, with its bound.
        expected: Wanted,
    },
    /// An element of D still has the content of before the run.
    #[error("D({row}, {column}) was not written")]
    Unwritten {
        /// Its row.
        row: u32,
        /// Its column.
        column: u32,
    },
    /// A byte was written where the tree writes nothing.
    #[error("the byte at {address:#x} was {was:#04x} and is {is:#04x}, but the tree does not write there")]
    Beside {
        /// Its address.
        address: u64,
        /// Its value before the run.
        was: u8,
        /// Its value after the run.
        is: u8,
    },
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
    /// Number of rows and of columns of D at which the tree was evaluated: a sample if the product is large.
    pub places: [usize; 2],
    /// Whether these are all of D.
    pub complete: bool,
    /// D at these places, row by row without padding.
    pub d: Vec<f64>,
}

/// An engine, and the host's copies of what was uploaded to it. Checks kernels on random matrices.
pub struct Bench<'e> {
    engine: &'e mut dyn Engine,
    random: fastrand::Rng,
    /// By address.
    uploads: BTreeMap<u64, Buffer>,
    contents: Contents,
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

/// A kernel and its tree without their types, so that the code below is compiled once.
struct Subject<'a> {
    /// Formats of A and B.
    formats: [Format; 2],
    orders: [Order; 2],
    /// Numbers of rows of A, and of columns of B, that share a block scale; `None` without block scales.
    scaled: Option<[u32; 2]>,
    accumulators: AccumulatorPrecision,
    /// D has `N >> halvings` columns of this format.
    halvings: u32,
    output: collective::Format,
    program: Program,
    /// Makes the launch for an engine that runs a given number of clusters at the same time.
    launch: &'a dyn Fn(u32) -> Result<Option<Launch>, LaunchError>,
    /// Evaluates the tree for an element of D, and writes the value to an address.
    element: Element<'a>,
    host: OnHost<'a>,
}

/// Number of bytes after a matrix that must not change.
const GUARD: usize = 64;

impl Upload for Bench<'_> {
    fn upload(&mut self, bytes: &[u8]) -> Result<u64, EngineError> {
        Self::upload(self, bytes)
    }
}

impl<'e> Bench<'e> {
    /// A bench on an engine. The seed determines the random values.
    pub fn new(engine: &'e mut dyn Engine, seed: u64) -> Self {
        Self {
            engine,
            random: fastrand::Rng::with_seed(seed),
            uploads: BTreeMap::new(),
            contents: Contents::default(),
            scratch: Vec::new(),
            aligned: false,
            most: Places::MOST,
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

    /// The engine.
    pub(super) fn engine(&mut self) -> &mut dyn Engine {
        self.engine
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

    /// Reserves `bytes` bytes of NaN for a tree to write to, followed by bytes that it must not change.
    /// Returns the device address.
    ///
    /// # Errors
    /// The engine fails.
    pub fn output(&mut self, bytes: usize) -> Result<u64, EngineError> {
        self.upload(&vec![POISON; bytes + GUARD])
    }

    /// Runs a kernel on random operands with a packed D, and compares everything that it writes with its
    /// tree.
    ///
    /// # Errors
    /// The first mismatch, or why the kernel could not be run.
    pub fn check<C>(
        &mut self,
        problem: GemmProblem,
        arguments: &<C::Epilogue as Epilogue>::Arguments,
    ) -> Result<Checked, TreeError>
    where
        C: GemmConfig,
        C::Epilogue: Evaluated,
    {
        let gemm = Gemm::<C>::kernel();
        let d = self.packed_d(&gemm, problem)?;
        self.check_at::<C>(problem, arguments, d)
    }

    /// Memory for a packed D.
    fn packed_d(
        &mut self,
        gemm: &AnyGemm,
        GemmProblem { m, n, .. }: GemmProblem,
    ) -> Result<MatrixRef, EngineError> {
        let epilogue = gemm.plan().epilogue;
        let columns = n >> epilogue.halvings;
        let bytes = m as usize * columns as usize * epilogue.output.bytes() as usize;
        Ok(MatrixRef::new(self.output(bytes)?, columns.into()))
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
        let d = self.packed_d(gemm, problem)?;
        let nodes = arguments.nodes();
        let evaluate = |host: &mut Host<'_>, at| AnyNode::evaluate(host, nodes, at);
        let tree = Treed::lowered(arguments.tree(), KernelSpec::DEFAULT.store);
        let visit = |of: &EpilogueSite<'_>, site: &mut Site<'_>| tree.visit(&mut nodes.clone(), of, site);
        let host = OnHost { evaluate: &evaluate, visit: &visit };
        self.check_given(gemm, problem, (arguments.clone(), host), d)
    }

    /// As [`check`](Self::check), with the caller's D: its address and leading dimension.
    ///
    /// # Errors
    /// The first mismatch, or why the kernel could not be run.
    pub fn check_at<C>(
        &mut self,
        problem: GemmProblem,
        arguments: &<C::Epilogue as Epilogue>::Arguments,
        d: MatrixRef,
    ) -> Result<Checked, TreeError>
    where
        C: GemmConfig,
        C::Epilogue: Evaluated,
    {
        let evaluate = |host: &mut Host<'_>, at| C::Epilogue::evaluate(host, arguments, at);
        let visit =
            |of: &EpilogueSite<'_>, site: &mut Site<'_>| C::Epilogue::visit(&mut arguments.clone(), of, site);
        let host = OnHost { evaluate: &evaluate, visit: &visit };
        let given = EpilogueArgs::<C::Epilogue>(arguments.clone());
        self.check_given(&Gemm::<C>::kernel(), problem, (given, host), d)
    }

    /// `given` are the epilogue's arguments, and `host` is the epilogue with them.
    fn check_given<G: Arguments + Clone>(
        &mut self,
        gemm: &AnyGemm,
        problem: GemmProblem,
        (given, host): (G, OnHost<'_>),
        d: MatrixRef,
    ) -> Result<Checked, TreeError> {
        let GemmProblem { m, n, k } = problem;
        let ([of_a, of_b, _], [a_order, b_order]) = (formats(gemm), orders(gemm));
        let mut operand = |format: Format, extents, order| {
            HostMatrix::random(
                format,
                extents,
                order,
                16 / format.bytes(),
                Distribution::Normal,
                &mut self.random,
            )
        };
        let random = [operand(of_a, [m, k], a_order), operand(of_b, [k, n], b_order)];
        let ([host_a, host_b], weights) = storage::fitted(gemm, problem, random, &mut self.random);
        let scales = random_scales(gemm, problem, &mut self.random);
        let resident = self.engine.resident_clusters(&gemm.program()?)?;
        let multiplied @ [a, b] = [self.matrices([&host_a])?, self.matrices([&host_b])?];
        let scales = scales.as_ref().map(|scales| scales.each_ref().map(core::slice::from_ref));
        let scales = scales.map(|scales| self.scales(scales)).transpose()?;
        let mut call = Call { a, b, scales, d, ..Call::of(problem) };
        let operands = [&host_a, &host_b].map(core::slice::from_ref);
        storage::bring(gemm, &mut call, operands, weights.as_slice(), self)?;
        let call = call.with(given);
        let workspace = self.engine.workspace(gemm.workspace(&call, resident))?;
        self.check_call(gemm, &Call { workspace, ..call }, host, multiplied)
    }

    /// The contents of a buffer after the last check, from its address to its end.
    ///
    /// # Errors
    /// The address is of no buffer.
    pub fn read(&self, address: u64) -> Result<Vec<u8>, EngineError> {
        match self.contents.buffer(address) {
            Some(bytes) => Ok(bytes.to_vec()),
            None => Err(EngineError::Buffer { address, bytes: 0, needed: 1 }),
        }
    }

    /// Runs a kernel on matrices that were uploaded, or written by a kernel that was checked, and compares
    /// everything that it writes with its tree.
    ///
    /// # Errors
    /// The first mismatch, or why the kernel could not be run.
    pub fn check_product<C>(
        &mut self,
        call: &Call<&<C::Epilogue as Epilogue>::Arguments>,
    ) -> Result<Checked, TreeError>
    where
        C: GemmConfig,
        C::Epilogue: Evaluated,
    {
        let arguments = call.epilogue;
        let evaluate = |host: &mut Host<'_>, at| C::Epilogue::evaluate(host, arguments, at);
        let visit =
            |of: &EpilogueSite<'_>, site: &mut Site<'_>| C::Epilogue::visit(&mut arguments.clone(), of, site);
        let host = OnHost { evaluate: &evaluate, visit: &visit };
        let given = EpilogueArgs::<C::Epilogue>(arguments.clone());
        self.check_call(&Gemm::<C>::kernel(), &call.with(given), host, [call.a, call.b])
    }

    /// The matrices `[a, b]` are the multiplied A and B. If the kernel reads another form of an operand (few
    /// bits, or sparse), both forms are in memory.
    fn check_call<G: Arguments + Clone>(
        &mut self,
        gemm: &AnyGemm,
        call: &Call<G>,
        on_host: OnHost<'_>,
        [a, b]: [MatrixRef; 2],
    ) -> Result<Checked, TreeError> {
        let EpilogueSpec { output, halvings, .. } = gemm.plan().epilogue;
        let program = gemm.program()?;
        let tiles = gemm.tiles(call.problem);
        gemm.covers(tiles, self.engine.resident_clusters(&program)?)?;
        let subject = Subject {
            formats: [formats(gemm)[0], formats(gemm)[1]],
            orders: orders(gemm),
            scaled: scaled(gemm),
            accumulators: accumulators(gemm),
            halvings,
            output,
            program,
            launch: &|resident| gemm.launch(call, resident),
            element: &|host, address, at| {
                let value = (on_host.evaluate)(host, at);
                host.write(output, address, value);
            },
            host: on_host,
        };
        self.check_subject(&Call { a, b, ..call.clone().with(()) }, &subject)
    }

    fn check_subject(&mut self, call: &Call<()>, subject: &Subject<'_>) -> Result<Checked, TreeError> {
        let (GemmProblem { m, n, k }, d) = (call.problem, call.d);
        let Subject {
            formats: [of_a, of_b],
            orders: [a_order, b_order],
            scaled,
            accumulators,
            halvings,
            output: format,
            program,
            ..
        } = subject;
        let format = *format;
        let resident = self.engine.resident_clusters(program)?;
        let launch = (subject.launch)(resident)?;
        let operand = |format, extents, order, matrix: MatrixRef| {
            let ld = u32::try_from(matrix.ld).unwrap_or(u32::MAX);
            self.contents.matrix(format, extents, order, (matrix.address, ld))
        };
        let (a, b) = (operand(*of_a, [m, k], *a_order, call.a), operand(*of_b, [k, n], *b_order, call.b));
        let scales_of = |mn, rows, scales| Scales {
            rows,
            values: operand(Format::F32, Scales::extents([mn, k], rows), Scales::order(rows), scales),
        };
        let scales = call.scales.zip(*scaled);
        let scales = scales.map(|(of, [a, b])| [scales_of(m, a, of.a), scales_of(n, b, of.b)]);
        let time = match launch {
            Some(launch) => Some(self.engine.launch(program, launch.grid, &launch.arguments)?),
            None => None,
        };

        let oracle = match &scales {
            None => Elements::new(*accumulators, &a, &b),
            Some(scales) => Elements::in_blocks(&a, &b, scales.each_ref()),
        };
        let d = Output { shape: Shape { m, n: n >> halvings }, address: d.address, ld: d.ld, format };
        let reduces = |at| {
            let (memory, one) = (Remembered(&self.contents), |_| Bounded::exact(1.0));
            let mut host = Host::new(d.shape, &memory, &one).computing_in(Arithmetic::of(format));
            (subject.host.evaluate)(&mut host, at);
            host.finish().into_iter().filter_map(|(at, written)| written.unrounded.then_some(at)).collect()
        };
        let places = Places::of(call.problem, d.shape, self.most, &reduces);
        let all = places.all.then(|| oracle.all(&|_| ()));
        let accumulator = |[row, column]: [u32; 2]| {
            let sum = match &all {
                Some(all) => all.sums[row as usize * n as usize + column as usize],
                None => oracle.at(row, column),
            };
            let (value, error) = sum.in_single(k);
            Bounded { value, error }
        };
        let mut writes = writes(&self.contents, &accumulator, (d, &places), subject.element);
        if !places.all {
            writes = writes.among(d.rows().chain(subject.host.written(d.shape)));
        }
        let compared = self.compared(&writes, (!places.all).then_some(d))?;
        let Compared { ratio, elements, d } = compared;
        let Places { rows, columns, all } = places;
        let (places, complete) = ([rows.len(), columns.len()], all);
        Ok(Checked { time, ratio, compared: elements, places, complete, d })
    }

    /// Compares everything that was uploaded with what has to be there now. `sampled` is a D of which only a
    /// sample is in `writes`.
    fn compared(&mut self, writes: &Writes, sampled: Option<Output>) -> Result<Compared, TreeError> {
        let mut compared = Compared::default();
        for (&begin, &buffer) in &self.uploads {
            let after = self.engine.read(buffer)?;
            if let Some(d) = sampled.filter(|d| (begin..begin + after.len() as u64).contains(&d.address)) {
                let before = self.contents.buffer(begin).unwrap_or_default();
                if let Some([row, column]) = d.unwritten(begin, before, &after) {
                    return Err(TreeError::Unwritten { row, column });
                }
            }
            self.contents.compare(begin, &after, writes, &mut compared).map_err(|fault| match fault {
                BufferFault::Beside { byte, was, is } => {
                    TreeError::Beside { address: begin + byte as u64, was, is }
                }
                BufferFault::Value { byte, place, got, expected } => {
                    let place = match place {
                        Some([row, column]) => format!("D({row}, {column})"),
                        None => {
                            format!("the element at {:#x}, byte {byte} of its buffer,", begin + byte as u64)
                        }
                    };
                    TreeError::Value { place, got, expected }
                }
            })?;
        }
        Ok(compared)
    }

    /// Compares everything that was uploaded with what `evaluate` writes. It also tells the place in D of each
    /// address.
    pub(super) fn check_memory(
        &mut self,
        time: Option<Duration>,
        (accumulator, arithmetic): (&dyn Fn([u32; 2]) -> Bounded, Arithmetic),
        evaluate: impl FnOnce(&mut Host<'_>, &mut BTreeMap<u64, [u32; 2]>),
    ) -> Result<Checked, TreeError> {
        let mut of_d = BTreeMap::new();
        let writes = {
            let memory = Remembered(&self.contents);
            let shape = Shape { m: 0, n: 0 };
            let mut host = Host::new(shape, &memory, accumulator).computing_in(arithmetic);
            evaluate(&mut host, &mut of_d);
            Writes::new(wanted(host), of_d.iter().map(|(&address, &place)| (address, place)).collect())
        };
        let Compared { ratio, elements, d } = self.compared(&writes, None)?;
        Ok(Checked { time, ratio, compared: elements, places: [of_d.len(), 1], complete: true, d })
    }
}
