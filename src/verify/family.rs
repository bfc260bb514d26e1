//! Checks kernels of any [`Family`]: random inputs, an f64 reference, and a bound per element; and their
//! synchronisation, by breaking it.
//!
//! A family says what its kernels must write ([`Family::expect`]). [`check`] runs one on any engine. [`prove`] runs
//! the [mutants](ptx::mutate) of any [`Kernel`](kernel::Kernel) in the emulator, and [`trace`] records what it does.

mod broken;
mod error;
mod placed;
mod proof;

use kernel::operands::{Contents, Fill, Memory, Piece, Places, Visit};
use kernel::{Buffer, Demand, Engine, EngineError, Expected, Family, Filled, Inputs};

pub use broken::Relaunched;
pub use error::FamilyError;
pub use proof::{Proof, Traced, prove, trace};

use placed::{MARGIN, POISON, Placed, is_result};

/// A check that found no error.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Agreed {
    /// Number of elements compared, each once. Above 0, unless there are none at all.
    pub compared: usize,
    /// Number of elements that the kernel writes.
    pub total: usize,
    /// The largest error as a fraction of its bound, 1 at most.
    pub ratio: f64,
    /// The least of the largest fractions of all results: bounds that say nothing make it 0.
    pub least: f64,
}

/// Runs a kernel of a request, twice if it has a workspace, on random inputs from a seed, and compares what it writes with the reference: everything, or a number of
/// results where the reference leaves the choice. Nothing else may change. In the emulator an access beside a piece of
/// memory is a trap; on a card, bytes after each piece must not change.
///
/// # Errors
/// The first element that is wrong or the first byte that changed; a reference that asks for memory that is not there,
/// expects elements that the kernel does not write, or leaves out what it writes; or why the kernel could not be run.
pub fn check<K: Family>(
    engine: &mut dyn Engine,
    kernel: &K,
    request: &K::Request<'_>,
    sample: (u64, usize),
) -> Result<Agreed, FamilyError> {
    let checks = Checks::new(engine, kernel, request, sample)?;
    let agreed = checks.check(engine, kernel, request);
    // The first error is reported.
    let freed = checks.free(engine);
    agreed.and_then(|agreed| Ok(freed.map(|()| agreed)?))
}

/// What changes the contents of memory before a check.
pub type Fills<'a> = dyn Fn(&mut [Filled]) + 'a;

/// Random inputs of a request in an engine's memory, on which its kernels are checked one after another; or those of one launch
/// ([`Relaunched`]), on which programs that may be broken run in the emulator.
#[derive(Clone, Debug)]
pub struct Checks<C> {
    call: C,
    pieces: Vec<Placed>,
    /// The memory that has no elements.
    empty: Vec<&'static str>,
    /// The results, those without elements too.
    results: Vec<&'static str>,
    sample: (u64, usize),
}

impl<C: Clone> Checks<C> {
    /// Allocates and fills the memory that any kernel of the request accesses. A seed and a number of results say what is compared.
    ///
    /// # Errors
    /// Those of [`given`](Self::given).
    pub fn new<K: Family<Call = C>>(
        engine: &mut dyn Engine,
        kernel: &K,
        request: &K::Request<'_>,
        sample: (u64, usize),
    ) -> Result<Self, FamilyError> {
        Self::given(engine, kernel, request, (K::call(request), &|_| ()), sample)
    }

    /// The same for another call of the request: with strides of its own, or with what a call may have and the request does not say. `fill`
    /// changes the random contents of its memory.
    ///
    /// # Errors
    /// The kernel is one for other requests, the call is illegal, it writes no memory that could be compared, or the engine or the host has
    /// too little memory, which is found before anything is allocated.
    pub fn given<K: Family<Call = C>>(
        engine: &mut dyn Engine,
        kernel: &K,
        request: &K::Request<'_>,
        (mut call, fill): (C, &Fills<'_>),
        sample: (u64, usize),
    ) -> Result<Self, FamilyError> {
        kernel.serves(request).map_err(FamilyError::Other)?;
        // What was there before, what is there after, and what was expected.
        engine.admit(&Demand::of(kernel, &call, engine.multiprocessors())?, 3)?;
        let (mut empty, mut results) = (Vec::new(), Vec::new());
        kernel.visit(&mut call, &mut |of: Memory<'_>| {
            empty.extend((of.extents.bytes() == 0).then_some(of.name));
            results.extend(is_result(of.writes, of.contents).then_some(of.name));
        });
        if results.is_empty() {
            return Err(FamilyError::Nothing);
        }
        let margin = if engine.traps_outside() { 0 } else { MARGIN };
        let (mut buffers, mut failed) = (Vec::new(), None);
        let mut allocate = |bytes: usize| match engine.allocate(bytes + margin) {
            Ok(buffer) => {
                buffers.push(buffer);
                buffer.address
            }
            Err(error) => {
                failed.get_or_insert(error);
                0
            }
        };
        let visits = &mut |call: &mut C, visit: &mut dyn Visit| kernel.visit(call, visit);
        let words = K::words(request, Contents::Table);
        let mut pieces = filled(&mut call, visits, words, &mut allocate, sample.0);
        if let Some(error) = failed {
            buffers.into_iter().try_for_each(|buffer| engine.free(buffer))?;
            return Err(error.into());
        }
        pieces.iter_mut().for_each(|of| of.bytes.resize(of.piece.bytes + margin, POISON));
        fill(&mut pieces);
        let placed = |(before, buffer): (Filled, Buffer)| {
            engine.write(buffer, &before.bytes)?;
            Ok(Placed::new(buffer, before))
        };
        let pieces = pieces.into_iter().zip(buffers).map(placed).collect::<Result<_, EngineError>>()?;
        Ok(Self { call, pieces, empty, results, sample })
    }

    /// The call, without a workspace.
    pub fn call(&self) -> &C {
        &self.call
    }

    /// Runs a kernel, and compares what it writes with the reference. With a workspace it runs twice: the second launch finds it as the
    /// first one has left it.
    ///
    /// # Errors
    /// As [`check`].
    pub fn check<K: Family<Call = C>>(
        &self,
        engine: &mut dyn Engine,
        kernel: &K,
        request: &K::Request<'_>,
    ) -> Result<Agreed, FamilyError> {
        kernel.serves(request).map_err(FamilyError::Other)?;
        let mut call = self.call.clone();
        let program = kernel.program()?;
        let resident = engine.resident_clusters(&program)?;
        let workspace = engine.workspace(kernel.workspace(&call, resident))?;
        kernel.lend_workspace(&mut call, workspace);
        let launches = if workspace.is_some() { 2 } else { 1 };
        let ran = (0..launches).try_for_each(|_| self.run_restored(engine, kernel, &call));
        if let Some(workspace) = workspace {
            engine.free(workspace)?;
        }
        ran.and_then(|()| self.compare(engine, kernel, request))
    }

    /// Restores what was in the memory that the kernel writes, and runs it for a call of this memory.
    fn run_restored<K: Family<Call = C>>(
        &self,
        engine: &mut dyn Engine,
        kernel: &K,
        call: &C,
    ) -> Result<(), FamilyError> {
        for of in self.pieces.iter().filter(|of| of.before.piece.writes) {
            engine.write(of.buffer, &of.before.bytes)?;
        }
        match kernel.run(engine, call) {
            Ok(_) => Ok(()),
            Err(EngineError::Call { source, .. }) => Err(FamilyError::Call(source)),
            Err(error) => Err(error.into()),
        }
    }

    /// Compares what launches of the [call](Self::call) have written with the reference.
    ///
    /// # Errors
    /// As [`check`].
    pub fn compare<K: Family<Call = C>>(
        &self,
        engine: &mut dyn Engine,
        kernel: &K,
        request: &K::Request<'_>,
    ) -> Result<Agreed, FamilyError> {
        let expected = self.expected(kernel, request)?;
        let mut agreed = Agreed { compared: 0, total: 0, ratio: 0.0, least: f64::INFINITY };
        for of in &self.pieces {
            of.compare(&expected, &engine.read(of.buffer)?, &mut agreed)?;
        }
        Ok(Agreed { least: agreed.least.min(agreed.ratio), ..agreed })
    }

    /// The bytes of a piece of memory, by its name; nothing, if it has none.
    ///
    /// # Errors
    /// The engine's.
    pub fn read(&self, engine: &mut dyn Engine, name: &str) -> Result<Vec<u8>, EngineError> {
        let found = self.pieces.iter().find(|of| of.before.piece.name == name);
        found.map_or_else(|| Ok(Vec::new()), |of| engine.read(of.buffer))
    }

    /// What the reference expects of the kernel's results; nothing, if they have no elements.
    fn expected<K: Family<Call = C>>(
        &self,
        kernel: &K,
        request: &K::Request<'_>,
    ) -> Result<Vec<Expected>, FamilyError> {
        if !self.pieces.iter().any(Placed::is_result) {
            return Ok(Vec::new());
        }
        let inputs = Inputs::new(self.pieces.iter().map(|of| &of.before), &self.empty, self.sample);
        let expected = kernel.expect(request, &self.call, &inputs).map_err(FamilyError::Unexpected)?;
        inputs.answered()?;
        let strange = expected.iter().find(|own| {
            let pieces = self.pieces.iter().map(|of| &of.before.piece);
            let written = pieces.filter(|piece| piece.writes).any(|piece| piece.name == own.name);
            !written && !self.results.contains(&own.name)
        });
        if let Some(&Expected { name, .. }) = strange {
            return Err(FamilyError::NotWritten { name, writes: self.results.join(", ") });
        }
        let beyond = expected.iter().find(|own| self.empty.contains(&own.name) && !own.elements.is_empty());
        match beyond {
            Some(&Expected { name, .. }) => Err(FamilyError::Extents { name, index: 0, count: 0 }),
            None => Ok(expected),
        }
    }

    /// Frees the memory.
    ///
    /// # Errors
    /// It belongs to another engine.
    pub fn free(self, engine: &mut dyn Engine) -> Result<(), EngineError> {
        self.pieces.into_iter().try_for_each(|of| engine.free(of.buffer))
    }
}

/// Memory for what `visits` visits of a call, with the words of its tables, filled at random from a seed.
fn filled<C>(
    call: &mut C,
    visits: &mut dyn FnMut(&mut C, &mut dyn Visit),
    words: Vec<u32>,
    allocate: &mut dyn FnMut(usize) -> u64,
    seed: u64,
) -> Vec<Filled> {
    let mut places = Places::new(allocate).with(words);
    visits(call, &mut places);
    let mut random = Fill::new(seed);
    let filled = |piece: Piece| {
        let mut bytes = random.bytes(&piece);
        // A table that nobody described.
        bytes.resize(piece.bytes, 0);
        Filled::new(piece, bytes)
    };
    places.pieces.into_iter().map(filled).collect()
}

#[cfg(test)]
mod tests;
