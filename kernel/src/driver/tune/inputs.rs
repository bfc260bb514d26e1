//! Memory in which calls are measured. None of it is the caller's.

use std::collections::HashMap;

use collective::operands::Legal;
use collective::{Form, Record};

use crate::buffer::Buffer;
use crate::call::Call;
use crate::engine::Engine;
use crate::error::EngineError;
use crate::family::Family;
use crate::gemm::AnyGemm;
use crate::operands::{Contents, EpilogueOf, Extents, Memory, Visit, Visited, random_contents};
use crate::problem::GemmProblem;
use crate::products::GroupedProblem;
use crate::select::Request;

/// Bytes of inputs that surely do not stay in an L2 cache of 60 MB.
const ROTATION_BYTES: u64 = 200_000_000;

/// Largest number of sets of matrices.
const MOST_SETS: u64 = 8;

/// Matrices begin at a multiple of this, plus the offset of the caller's matrix from such a multiple.
const ALIGNMENT: u64 = 256;

/// Memory of a call on the device, several sets of it where one would stay in the L2 cache, and at most eight: inputs are random numbers, and nobody else has
/// the outputs. Rows lie as far apart, and begin at multiples of the same powers of two, as the call's.
#[derive(Debug)]
pub struct Inputs<C = Call<()>> {
    sets: Vec<C>,
    buffers: Vec<Buffer>,
}

/// Visits a call of a request.
type Visits<'a, C> = &'a dyn Fn(&mut C, &mut dyn Visit);

/// The words of a table or of records.
type Words<'a> = &'a dyn Fn(Contents) -> Vec<u32>;

/// A piece of the memory of each set.
struct Piece {
    contents: Contents,
    /// Offset from a multiple of [`ALIGNMENT`].
    low: u64,
    /// Bytes from one set to the next; 0 if the piece is not accessed.
    stride: u64,
    /// Where the first set's memory begins.
    base: u64,
}

impl Piece {
    fn new(contents: Contents, address: u64, bytes: u64) -> Self {
        let told = matches!(contents, Contents::Table | Contents::Records);
        let low = if told { 0 } else { address % ALIGNMENT };
        let stride = if bytes == 0 { 0 } else { (bytes + low).next_multiple_of(ALIGNMENT) };
        Self { contents, low, stride, base: 0 }
    }

    /// Whether its words describe the call.
    fn is_told(&self) -> bool {
        matches!(self.contents, Contents::Table | Contents::Records)
    }

    /// Whether each set has its own. Scales and tables are small, and the same for every set.
    fn turns(&self) -> bool {
        use Contents::{Codes, Elements, Metadata, Multiplied, Output, Source};
        matches!(
            self.contents,
            Multiplied(..) | Codes(..) | Metadata(_) | Output(_) | Source(_) | Elements(_)
        )
    }

    fn address(&self, set: u64) -> u64 {
        self.base + self.low + if self.turns() { set * self.stride } else { 0 }
    }
}

/// Number of sets of `bytes` bytes each that together do not fit into the L2 cache.
fn count(bytes: u64) -> u64 {
    (ROTATION_BYTES / bytes.max(1) + 1).min(MOST_SETS)
}

impl<C: Clone> Inputs<C> {
    /// Allocates and fills memory for a request of a family's kernels on an engine. It stays allocated until it is
    /// [freed](Self::free) or the engine is dropped.
    ///
    /// # Errors
    /// The card has too little memory, or another driver error.
    pub fn of<K: Family<Call = C>>(
        engine: &mut dyn Engine,
        kernels: &[K],
        request: &K::Request<'_>,
    ) -> Result<Self, EngineError> {
        // All kernels of a request access the same memory.
        let Some(kernel) = kernels.first() else { return Ok(Self { sets: Vec::new(), buffers: Vec::new() }) };
        let visits = |call: &mut C, visit: &mut dyn Visit| kernel.visit(call, visit);
        let words = |contents| K::words(request, contents);
        Self::made(engine, |inputs, engine| {
            inputs.sets = inputs.fill(engine, &[K::call(request)], &visits, &words, [false; 2])?.concat();
            Ok(())
        })
    }

    /// The call on each set, without a workspace.
    pub fn sets(&self) -> &[C] {
        &self.sets
    }

    /// Frees the memory.
    ///
    /// # Errors
    /// It belongs to another engine.
    pub fn free(self, engine: &mut dyn Engine) -> Result<(), EngineError> {
        self.buffers.into_iter().try_for_each(|buffer| engine.free(buffer))
    }

    fn made(
        engine: &mut dyn Engine,
        fill: impl FnOnce(&mut Self, &mut dyn Engine) -> Result<(), EngineError>,
    ) -> Result<Self, EngineError> {
        let mut inputs = Self { sets: Vec::new(), buffers: Vec::new() };
        match fill(&mut inputs, engine) {
            Ok(()) => Ok(inputs),
            Err(error) => {
                // Report the first error.
                let _ = inputs.free(engine);
                Err(error)
            }
        }
    }

    fn allocate(&mut self, engine: &mut dyn Engine, bytes: u64) -> Result<Buffer, EngineError> {
        let buffer = engine.allocate(usize::try_from(bytes).unwrap_or(usize::MAX))?;
        self.buffers.push(buffer);
        Ok(buffer)
    }

    /// Allocates and fills the memory of calls that are launched together. Returns these calls for each set.
    fn fill<T: Clone>(
        &mut self,
        engine: &mut dyn Engine,
        calls: &[T],
        visits: Visits<'_, T>,
        words: Words<'_>,
        zeros: [bool; 2],
    ) -> Result<Vec<Vec<T>>, EngineError> {
        let mut pieces = Vec::new();
        let mut see = |Memory { address, extents, contents, .. }: Memory<'_>| {
            pieces.push(Piece::new(contents, *address, extents.bytes()));
        };
        calls.iter().for_each(|call| visits(&mut call.clone(), &mut see));
        let sets = count(pieces.iter().filter(|piece| piece.turns()).map(|piece| piece.stride).sum());
        let mut data: HashMap<(Contents, bool), Vec<u8>> = HashMap::new();
        for piece in pieces.iter_mut().filter(|piece| piece.stride > 0) {
            let zeros = matches!(piece.contents, Contents::Multiplied(i, _) if zeros[i]);
            let all = if piece.turns() { sets * piece.stride } else { piece.stride };
            let buffer = self.allocate(engine, all)?;
            piece.base = buffer.address;
            if piece.is_told() {
                let numbers = words(piece.contents).into_iter().flat_map(u32::to_le_bytes);
                engine.write(buffer, &numbers.collect::<Vec<u8>>())?;
                continue;
            }
            // A and B of one format have the same numbers.
            let mut contents = piece.contents;
            if let Contents::Multiplied(which, _) = &mut contents {
                *which = 0;
            }
            let data = data.entry((contents, zeros)).or_insert_with(|| random_contents(contents, zeros));
            if !data.is_empty() {
                engine.repeat(buffer, data)?;
            }
        }
        let of_set = |set| {
            let (mut calls, mut pieces) = (calls.to_vec(), pieces.iter());
            let mut place = |Memory { address, .. }: Memory<'_>| {
                *address = pieces.next().map_or(0, |piece| piece.address(set));
            };
            calls.iter_mut().for_each(|call| visits(call, &mut place));
            calls
        };
        Ok((0..sets).map(of_set).collect())
    }
}

impl Inputs {
    /// Memory for a request of a GEMM, without the epilogue's.
    ///
    /// # Errors
    /// As [`of`](Self::of).
    pub fn new(engine: &mut dyn Engine, request: &Request<'_>) -> Result<Self, EngineError> {
        Self::with_epilogue(engine, request, &())
    }

    /// The same for a request of dense operands, of which A, or B, has a zero for each element that a 2:4 sparse one does not keep. Rows of
    /// a pruned operand lie along K, a multiple of 4 elements apart.
    ///
    /// # Errors
    /// As [`of`](Self::of).
    pub fn pruned(
        engine: &mut dyn Engine,
        request: &Request<'_>,
        zeros: [bool; 2],
    ) -> Result<Self, EngineError> {
        Self::gemm(engine, request, &(), zeros)
    }
}

impl<E: Visited + Clone> Inputs<Call<E>> {
    /// Memory for a request of a GEMM and for its epilogue with these arguments. What they point to is not accessed.
    ///
    /// # Errors
    /// As [`of`](Self::of).
    pub fn with_epilogue(
        engine: &mut dyn Engine,
        request: &Request<'_>,
        epilogue: &E,
    ) -> Result<Self, EngineError> {
        Self::gemm(engine, request, epilogue, [false; 2])
    }

    /// The same memory, with calls without epilogue arguments.
    pub fn without_epilogue(self) -> Inputs {
        Inputs { sets: self.sets.iter().map(Call::lend).collect(), buffers: self.buffers }
    }

    fn gemm(
        engine: &mut dyn Engine,
        request: &Request<'_>,
        epilogue: &E,
        zeros: [bool; 2],
    ) -> Result<Self, EngineError> {
        let groups = request.groups().unwrap_or_default();
        let call = Call { workspace: None, ..request.call.with(epilogue.clone()) };
        Self::made(engine, |inputs, engine| {
            if let GroupedProblem::PointerArray { .. } = call.products {
                return inputs.describe(engine, (request, &call), &groups);
            }
            let layouts = request.layouts();
            let visits = |call: &mut Call<E>, visit: &mut dyn Visit| call.visit(&layouts, visit);
            Legal::check(|visit| visits(&mut call.clone(), visit)).map_err(|error| {
                EngineError::NoKernel {
                    call: AnyGemm::problem(request).to_string(),
                    reason: error.to_string(),
                }
            })?;
            let words = |_| call.products.table(&groups);
            inputs.sets = inputs.fill(engine, core::slice::from_ref(&call), &visits, &words, zeros)?.concat();
            Ok(())
        })
    }

    /// GEMMs described by records. Their matrices are packed, with rows padded so that tensor copies can
    /// access them. What the epilogue accesses is as large as the largest of them needs.
    fn describe(
        &mut self,
        engine: &mut dyn Engine,
        (request, base): (&Request<'_>, &Call<E>),
        groups: &[GemmProblem],
    ) -> Result<(), EngineError> {
        let layouts = request.layouts();
        let call = |&group: &GemmProblem| {
            let call = Call { workspace: None, ..layouts.packed(group, 16) };
            if request.call.epilogue.beta == 0.0 { call } else { call.plus(1.0, call.d.address, call.d.ld) }
        };
        let calls: Vec<Call> = groups.iter().map(call).collect();
        let visits = |call: &mut Call, visit: &mut dyn Visit| call.visit(&layouts, visit);
        let (none, dense) = (|_| Vec::new(), [false; 2]);
        let sets = self.fill(engine, &calls, &visits, &none, dense)?;
        let most = |extent: fn(&GemmProblem) -> u32| groups.iter().map(extent).max().unwrap_or(0);
        let [m, n] = [most(|group| group.m), most(|group| group.n) >> layouts.halvings];
        let d = layouts.types.d;
        let of_d = Extents { lines: m, count: 1, ..Extents::line(d.bits(), n.into()) };
        let of = EpilogueOf { d: of_d, format: d, products: 1, gemm: None, output: None };
        let visits = |epilogue: &mut E, visit: &mut dyn Visit| epilogue.visit(&of, visit);
        let epilogues = core::slice::from_ref(&base.epilogue);
        let epilogues = self.fill(engine, epilogues, &visits, &none, dense)?.concat();
        for (set, epilogue) in sets.into_iter().zip(epilogues.iter().cycle()) {
            let record = |Call { problem: GemmProblem { m, n, k }, a, b, d, epilogue, .. }: Call| {
                let all = [a, b, epilogue.c.unwrap_or(d), d];
                let (addresses, lds) = (all.map(|matrix| matrix.address), all.map(|matrix| matrix.ld));
                Record { m, n, k, addresses, lds }.to_bytes()
            };
            let records: Vec<u8> = set.into_iter().flat_map(record).collect();
            let buffer = self.allocate(engine, records.len() as u64)?;
            engine.write(buffer, &records)?;
            let (count, records) = (base.products.count(), buffer.address);
            let products = GroupedProblem::PointerArray { count, records };
            self.sets.push(Call { products, epilogue: epilogue.clone(), ..base.clone() });
        }
        Ok(())
    }
}

impl Request<'_> {
    /// Whether the request computes nothing, so that there is nothing to time.
    pub(super) fn is_empty(&self) -> bool {
        let one = self.call.problem;
        match self.call.products.form() {
            Form::Single | Form::Batched | Form::KGrouped => {
                one.m == 0 || one.n == 0 || self.call.products.count() == 0
            }
            Form::GroupedContiguous | Form::GroupedMasked | Form::PointerArray => {
                self.groups().unwrap_or_default().iter().all(|group| group.m == 0 || group.n == 0)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{ALIGNMENT, Piece, count};
    use crate::operands::Contents;
    use collective::Format;

    #[test]
    fn matrices_begin_as_the_callers_do() {
        for (why, address, bytes, want) in [
            ("at a multiple of 256", 1 << 20, 1600, [0x1000, 0x1000 + 1792]),
            ("beside it", (1 << 20) + 6, 1600, [0x1006, 0x1006 + 1792]),
            ("all of its room used", 768 + 192, 64, [0x10c0, 0x10c0 + 256]),
        ] {
            let contents = Contents::Output(Format::Bf16);
            let piece = Piece { base: 0x1000, ..Piece::new(contents, address, bytes) };
            assert_eq!([piece.address(0), piece.address(1)], want, "{why}");
            assert!(piece.base.is_multiple_of(ALIGNMENT));
        }
    }

    #[test]
    fn sets_are_more_than_the_cache() {
        for (extent, want) in [(512, 8), (4096, 2), (8192, 1), (2048, 8)] {
            assert_eq!(count(6 * extent * extent), want, "{extent}");
        }
    }
}
