//! Checks kernels of any [`Family`]: random inputs, an f64 reference, and a bound per element; and their
//! synchronisation, by breaking it.
//!
//! A family says what its kernels must write ([`Family::expect`]). [`check`] runs one on any engine. [`prove`] runs
//! the [mutants](ptx::mutate) of any [`Kernel`] in the emulator, and [`trace`] records what it does.

mod broken;
mod error;
mod placed;
mod proof;

use std::time::Duration;

use kernel::operands::{Contents, Fill, Memory, Piece, Places, Visit};
use kernel::{Buffer, Demand, Engine, EngineError, Expected, Family, Filled, Inputs, Kernel};

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
    /// The error there.
    pub error: f64,
    /// The bound there.
    pub bound: f64,
    /// The least of the largest fractions of all results: bounds that say nothing make it 0.
    pub least: f64,
    /// The first integer that is computed modulo 2^32 because 32 bits do not hold it: its number, and what it is.
    pub wraps: Option<(usize, f64)>,
    /// Time of the last launch; `None` if there was nothing to launch, or it is not known.
    pub time: Option<Duration>,
}

impl Agreed {
    /// Nothing was compared yet.
    pub(super) const NONE: Self = Self {
        compared: 0,
        total: 0,
        ratio: 0.0,
        error: 0.0,
        bound: 0.0,
        least: f64::INFINITY,
        wraps: None,
        time: None,
    };
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

/// What changes a call and the contents of its memory before a check: a matrix that is added may be the one that is written, and
/// whatever must be this or that can be put into memory.
pub type Fills<'a, C> = dyn Fn(&mut C, &mut [Filled]) + 'a;

/// What a kernel must write for a call on these inputs, or why it is not known.
pub type Expects<'a, C> = dyn Fn(&C, &Inputs<'_>) -> Result<Vec<Expected>, String> + 'a;

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
        Self::given(engine, kernel, request, (K::call(request), &|_, _| ()), sample)
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
        given: (C, &Fills<'_, C>),
        sample: (u64, usize),
    ) -> Result<Self, FamilyError> {
        kernel.serves(request).map_err(FamilyError::Other)?;
        let tables = |visit: &mut dyn Visit| {
            let records = K::describe(request, visit);
            if records.is_empty() { K::words(request, Contents::Table) } else { records }
        };
        Self::of(engine, kernel, given, &tables, sample)
    }

    /// The same for a kernel of no family. `tables` visits what records in memory describe, and gives the words of tables.
    ///
    /// # Errors
    /// Those of [`given`](Self::given), but that the kernel is one for other requests.
    pub fn of(
        engine: &mut dyn Engine,
        kernel: &(impl Kernel<C> + ?Sized),
        (mut call, fill): (C, &Fills<'_, C>),
        tables: &dyn Fn(&mut dyn Visit) -> Vec<u32>,
        sample: (u64, usize),
    ) -> Result<Self, FamilyError> {
        // What was there before, what is there after, and what was expected.
        engine.admit(&Demand::of(kernel, &call, engine.multiprocessors())?, 3)?;
        let (mut empty, mut results) = (Vec::new(), Vec::new());
        let mut see = |of: Memory<'_>| {
            empty.extend((of.extents.bytes() == 0).then_some(of.name));
            results.extend(is_result(of.writes, of.contents).then_some(of.name));
        };
        tables(&mut see);
        kernel.visit(&mut call, &mut see);
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
        let visits = &mut |call: &mut C, places: &mut Places<'_>| {
            places.words = tables(places);
            kernel.visit(call, places);
        };
        let mut pieces = filled(&mut call, visits, &mut allocate, sample.0);
        if let Some(error) = failed {
            buffers.into_iter().try_for_each(|buffer| engine.free(buffer))?;
            return Err(error.into());
        }
        pieces.iter_mut().for_each(|of| of.bytes.resize(of.piece.bytes + margin, POISON));
        fill(&mut call, &mut pieces);
        let placed = |(before, buffer): (Filled, Buffer)| {
            let of = Placed::new(buffer, before);
            engine.write(buffer, &of.bytes())?;
            Ok(of)
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
        self.check_repeated(engine, kernel, request, 1)
    }

    /// The same for a number of launches, each of which must write the same bits.
    ///
    /// # Errors
    /// As [`check`], and the first byte that is another after a later launch.
    pub fn check_repeated<K: Family<Call = C>>(
        &self,
        engine: &mut dyn Engine,
        kernel: &K,
        request: &K::Request<'_>,
        launches: u32,
    ) -> Result<Agreed, FamilyError> {
        kernel.serves(request).map_err(FamilyError::Other)?;
        let expects = |call: &C, inputs: &Inputs<'_>| kernel.expect(request, call, inputs);
        self.check_by(engine, kernel, [2, launches], &expects)
    }

    /// The same for a kernel of no family, which must write what is expected: after so many launches, if it has a workspace, and with the same
    /// bits after each of so many.
    ///
    /// # Errors
    /// As [`check_repeated`](Self::check_repeated).
    pub fn check_by(
        &self,
        engine: &mut dyn Engine,
        kernel: &(impl Kernel<C> + ?Sized),
        [first, launches]: [u32; 2],
        expects: &Expects<'_, C>,
    ) -> Result<Agreed, FamilyError> {
        let mut call = self.call.clone();
        let program = kernel.program()?;
        let resident = engine.resident_clusters(&program)?;
        let workspace = engine.workspace(kernel.workspace(&call, resident))?;
        kernel.lend_workspace(&mut call, workspace);
        let ran = self.launched(engine, kernel, &call, if workspace.is_some() { first } else { 1 });
        let agreed = ran.and_then(|time| Ok(Agreed { time, ..self.compare_by(engine, expects)? }));
        let agreed = agreed.and_then(|agreed| {
            self.same_bits(engine, kernel, &call, launches)?;
            Ok(agreed)
        });
        if let Some(workspace) = workspace {
            engine.free(workspace)?;
        }
        agreed
    }

    /// Runs a kernel a number of times for a call of this memory, each time after what was in the memory that it writes is restored.
    fn launched(
        &self,
        engine: &mut dyn Engine,
        kernel: &(impl Kernel<C> + ?Sized),
        call: &C,
        launches: u32,
    ) -> Result<Option<Duration>, FamilyError> {
        let mut time = None;
        for _ in 0..launches {
            for of in self.pieces.iter().filter(|of| of.before.piece.writes) {
                engine.write(of.buffer, &of.bytes())?;
            }
            time = match kernel.run(engine, call) {
                Ok(time) => time,
                Err(EngineError::Call { source, .. }) => return Err(FamilyError::Call(source)),
                Err(error) => return Err(error.into()),
            };
        }
        Ok(time)
    }

    /// Runs a kernel for launches 2 to `launches`. Each must write the bits that are there.
    fn same_bits(
        &self,
        engine: &mut dyn Engine,
        kernel: &(impl Kernel<C> + ?Sized),
        call: &C,
        launches: u32,
    ) -> Result<(), FamilyError> {
        if launches < 2 {
            return Ok(());
        }
        let results: Vec<&Placed> = self.pieces.iter().filter(|of| of.is_result()).collect();
        let read = |engine: &mut dyn Engine| -> Result<Vec<Vec<u8>>, EngineError> {
            results.iter().map(|of| engine.read(of.buffer)).collect()
        };
        let first = read(engine)?;
        for launch in 2..=launches {
            self.launched(engine, kernel, call, 1)?;
            for (of, (first, now)) in results.iter().zip(first.iter().zip(read(engine)?)) {
                if let Some(byte) = first.iter().zip(&now).position(|(first, now)| first != now) {
                    let (name, [first, now]) = (of.before.piece.name, [first[byte], now[byte]]);
                    let byte = byte - of.before.piece.begin();
                    return Err(FamilyError::Changed { name, byte, launch, first, now });
                }
            }
        }
        Ok(())
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
        self.compare_by(engine, &|call, inputs| kernel.expect(request, call, inputs))
    }

    fn compare_by(&self, engine: &mut dyn Engine, expects: &Expects<'_, C>) -> Result<Agreed, FamilyError> {
        let expected = self.expected(expects)?;
        let mut agreed = Agreed::NONE;
        for (at, of) in self.pieces.iter().enumerate() {
            let same = |other: &&Placed| other.before.piece.name == of.before.piece.name;
            let begin = self.pieces[..at].iter().filter(same).map(|of| of.before.count()).sum();
            let ends = self.pieces[at + 1..].iter().find(same).is_none();
            of.compare(&expected, (begin, ends), &engine.read(of.buffer)?, &mut agreed)?;
        }
        Ok(Agreed { least: agreed.least.min(agreed.ratio), ..agreed })
    }

    /// The bytes of the memory of a name, one piece after the other; nothing, if it has none.
    ///
    /// # Errors
    /// The engine's.
    pub fn read(&self, engine: &mut dyn Engine, name: &str) -> Result<Vec<u8>, EngineError> {
        let mut all = Vec::new();
        for of in self.pieces.iter().filter(|of| of.before.piece.name == name) {
            all.extend_from_slice(&engine.read(of.buffer)?[of.before.piece.begin()..]);
        }
        Ok(all)
    }

    /// All memory: what was there before a launch, and the bytes of each piece now.
    ///
    /// # Errors
    /// The engine's.
    pub fn memory(&self, engine: &mut dyn Engine) -> Result<Vec<(&Filled, Vec<u8>)>, EngineError> {
        let now = |of: &Placed, engine: &mut dyn Engine| {
            Ok(engine.read(of.buffer)?.split_off(of.before.piece.begin()))
        };
        self.pieces.iter().map(|of| Ok((&of.before, now(of, engine)?))).collect()
    }

    /// What the reference expects of the kernel's results; nothing, if they have no elements.
    fn expected(&self, expects: &Expects<'_, C>) -> Result<Vec<Expected>, FamilyError> {
        if !self.pieces.iter().any(Placed::is_result) {
            return Ok(Vec::new());
        }
        let inputs = Inputs::new(self.pieces.iter().map(|of| &of.before), &self.empty, self.sample);
        let expected = expects(&self.call, &inputs).map_err(FamilyError::Unexpected)?;
        inputs.answered()?;
        let strange = expected.iter().find(|own| {
            let pieces = self.pieces.iter().map(|of| &of.before.piece);
            let written = pieces.filter(|piece| piece.writes).any(|piece| piece.name == own.name);
            !written && !self.results.contains(&own.name)
        });
        if let Some(&Expected { name, .. }) = strange {
            return Err(FamilyError::NotWritten { name, writes: self.results.join(", ") });
        }
        let has = |name| self.pieces.iter().any(|of| of.before.piece.name == name);
        let beyond = expected
            .iter()
            .find(|own| self.empty.contains(&own.name) && !has(own.name) && !own.elements.is_empty());
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

/// Memory for what `visits` visits of a call, filled at random from a seed.
fn filled<C>(
    call: &mut C,
    visits: &mut dyn FnMut(&mut C, &mut Places<'_>),
    allocate: &mut dyn FnMut(usize) -> u64,
    seed: u64,
) -> Vec<Filled> {
    let mut places = Places::new(allocate);
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
