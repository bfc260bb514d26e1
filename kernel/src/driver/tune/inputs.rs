//! Memory in which calls are measured. None of it is the caller's.

use collective::{BlockScales, Form, GroupScales, MatrixRef, Record};
use cute_rs::atom::Major;

use super::data::{factors, metadata, pruned, random};
use crate::buffer::Buffer;
use crate::driver::footprint::{self, Matrices};
use crate::engine::Engine;
use crate::error::EngineError;
use crate::problem::{Call, GemmProblem};
use crate::products::Products;
use crate::select::Request;

/// Bytes of inputs that surely do not stay in an L2 cache of 60 MB.
const ROTATION_BYTES: u64 = 200_000_000;

/// Largest number of sets of matrices.
const MOST_SETS: u64 = 8;

/// Matrices begin at a multiple of this, plus the offset of the caller's matrix from such a multiple.
const ALIGNMENT: u64 = 256;

/// Matrices of a request on the device, several sets of them where one would stay in the L2 cache: A, B, scales and metadata of random numbers,
/// and a D that nobody else has. Rows lie as far apart, and begin at multiples of the same powers of two, as the request's.
#[derive(Debug)]
pub struct Inputs {
    sets: Vec<Call<()>>,
    buffers: Vec<Buffer>,
}

/// The memory of one matrix in each set.
#[derive(Clone, Copy)]
struct Part {
    /// Bytes from one set to the next.
    stride: u64,
    /// Offset of the matrix from a multiple of [`ALIGNMENT`].
    low: u64,
}

impl Part {
    fn new(address: u64, bytes: u64) -> Self {
        let low = address % ALIGNMENT;
        Self { stride: (bytes + low).next_multiple_of(ALIGNMENT), low }
    }

    fn of_set(self, base: u64, set: u64) -> u64 {
        base + set * self.stride + self.low
    }
}

/// Number of sets of `bytes` bytes each that together do not fit into the L2 cache.
fn count(bytes: u64) -> u64 {
    (ROTATION_BYTES / bytes.max(1) + 1).min(MOST_SETS)
}

impl Inputs {
    /// Allocates and fills memory for a request on an engine. It stays allocated until it is
    /// [freed](Self::free) or the engine is dropped.
    ///
    /// # Errors
    /// The card has too little memory, or another driver error.
    pub fn new(engine: &mut dyn Engine, request: &Request<'_>) -> Result<Self, EngineError> {
        Self::pruned(engine, request, [false; 2])
    }

    /// The same for a request of dense operands, of which A, or B, has a zero for each element that a 2:4 sparse one does not keep. Rows of
    /// a pruned operand lie along K, a multiple of 4 elements apart.
    ///
    /// # Errors
    /// As [`new`](Self::new).
    pub fn pruned(
        engine: &mut dyn Engine,
        request: &Request<'_>,
        pruned: [bool; 2],
    ) -> Result<Self, EngineError> {
        let mut inputs = Self { sets: Vec::new(), buffers: Vec::new() };
        match inputs.fill(engine, request, pruned) {
            Ok(()) => Ok(inputs),
            Err(error) => {
                // Report the first error.
                let _ = inputs.free(engine);
                Err(error)
            }
        }
    }

    /// The request's call on each set, without a workspace and without epilogue arguments.
    pub fn sets(&self) -> &[Call<()>] {
        &self.sets
    }

    /// Frees the memory.
    ///
    /// # Errors
    /// It belongs to another engine.
    pub fn free(self, engine: &mut dyn Engine) -> Result<(), EngineError> {
        self.buffers.into_iter().try_for_each(|buffer| engine.free(buffer))
    }

    fn allocate(&mut self, engine: &mut dyn Engine, bytes: u64) -> Result<Buffer, EngineError> {
        let buffer = engine.allocate(usize::try_from(bytes).unwrap_or(usize::MAX))?;
        self.buffers.push(buffer);
        Ok(buffer)
    }

    /// Allocates memory and fills it by repeating `data`.
    fn filled(&mut self, engine: &mut dyn Engine, bytes: u64, data: &[u8]) -> Result<Buffer, EngineError> {
        let buffer = self.allocate(engine, bytes)?;
        engine.repeat(buffer, data)?;
        Ok(buffer)
    }

    fn fill(
        &mut self,
        engine: &mut dyn Engine,
        request: &Request<'_>,
        zeros: [bool; 2],
    ) -> Result<(), EngineError> {
        let (types, call) = (request.stored(), request.call.lend());
        let groups = request.groups().unwrap_or_default();
        if let Products::Grouped { .. } = call.products {
            return self.describe(engine, request, &groups);
        }
        // D may have fewer columns; the extra memory does no harm.
        let matrices = Matrices {
            majors: request.majors,
            bytes: types.bytes().map(u64::from),
            halvings: 0,
            scaled: types.scaled,
            weights: types.weights,
            sparse: [types.sparse[0].then_some(types.a), types.sparse[1].then_some(types.b)],
        };
        let spans = footprint::spans(matrices, &call, true).map(|span| span.bytes);
        let given = call.scales.unwrap_or(BlockScales::NONE);
        let part = |matrix: MatrixRef, span: usize| Part::new(matrix.address, spans[span]);
        let [a, b, d] = [part(call.a, 0), part(call.b, 1), part(call.d, 2)];
        // Scales are small, and the same for every set.
        let scales = [part(given.a, 6), part(given.b, 7)];
        let words = part(call.metadata.unwrap_or(MatrixRef::NONE), 10);
        let sets = count(a.stride + b.stride + d.stride + words.stride);
        let numbers = |format, zeros| if zeros { pruned(format) } else { random(format) };
        let data = numbers(types.a, zeros[0]);
        let of_a = self.filled(engine, sets * a.stride, &data)?.address;
        let differs = (types.b, zeros[1]) != (types.a, zeros[0]);
        let other = differs.then(|| numbers(types.b, zeros[1]));
        let of_b = self.filled(engine, sets * b.stride, other.as_deref().unwrap_or(&data))?.address;
        let of_d = self.allocate(engine, sets * d.stride)?.address;
        let scales = match call.scales {
            None => None,
            Some(given) => {
                let factors = factors();
                let [a, b] = [scales[0], scales[1]];
                let place_a = self.filled(engine, a.stride, &factors)?.address;
                let place_b = self.filled(engine, b.stride, &factors)?.address;
                let at = |matrix: MatrixRef, address| MatrixRef { address, ..matrix };
                Some(BlockScales {
                    a: at(given.a, a.of_set(place_a, 0)),
                    b: at(given.b, b.of_set(place_b, 0)),
                })
            }
        };
        let group_scales = match call.group_scales {
            None => None,
            Some(given) => {
                let mut place = |matrix: MatrixRef, span: usize| {
                    let part = part(matrix, span);
                    let base = self.filled(engine, part.stride.max(ALIGNMENT), &data)?.address;
                    Ok::<_, EngineError>(MatrixRef { address: part.of_set(base, 0), ..matrix })
                };
                Some(GroupScales { scales: place(given.scales, 8)?, zeros: place(given.zeros, 9)? })
            }
        };
        let of_words = match call.metadata {
            None => 0,
            Some(_) => {
                let format = if types.sparse[0] { types.a } else { types.b };
                self.filled(engine, sets * words.stride, &metadata(format))?.address
            }
        };
        let products = self.table(engine, call.products, &groups)?;
        self.sets = (0..sets)
            .map(|set| {
                let at = |matrix: MatrixRef, part: Part, base| MatrixRef {
                    address: part.of_set(base, set),
                    ..matrix
                };
                let (a, b, d) = (at(call.a, a, of_a), at(call.b, b, of_b), at(call.d, d, of_d));
                let metadata = call.metadata.map(|of| at(of, words, of_words));
                Call { a, b, d, scales, group_scales, metadata, products, workspace: None, ..call }
            })
            .collect();
        Ok(())
    }

    /// The GEMMs of the request, with a table of groups in device memory if they need one.
    fn table(
        &mut self,
        engine: &mut dyn Engine,
        products: Products,
        groups: &[GemmProblem],
    ) -> Result<Products, EngineError> {
        let upload = |inputs: &mut Self, engine: &mut dyn Engine, numbers: &mut dyn Iterator<Item = u32>| {
            let bytes: Vec<u8> = numbers.flat_map(u32::to_le_bytes).collect();
            let buffer = inputs.allocate(engine, bytes.len() as u64)?;
            engine.write(buffer, &bytes)?;
            Ok::<u64, EngineError>(buffer.address)
        };
        let ends = |of: fn(&GemmProblem) -> u32| {
            let mut end = 0u32;
            let ends = groups.iter().map(move |group| {
                end = end.saturating_add(of(group));
                end
            });
            core::iter::once(0).chain(ends)
        };
        Ok(match products {
            Products::Ragged { count, .. } => {
                let offsets = upload(self, engine, &mut ends(|group| group.m))?;
                Products::Ragged { count, offsets }
            }
            Products::KGrouped { count, .. } => {
                let offsets = upload(self, engine, &mut ends(|group| group.k))?;
                Products::KGrouped { count, offsets }
            }
            Products::Masked { count, room, .. } => {
                let mut rows = groups.iter().map(|group| group.m);
                Products::Masked { count, room, rows: upload(self, engine, &mut rows)? }
            }
            Products::One | Products::Batched { .. } | Products::Grouped { .. } => products,
        })
    }

    /// GEMMs described by records. Their matrices are packed, with rows padded so that tensor copies can
    /// access them.
    fn describe(
        &mut self,
        engine: &mut dyn Engine,
        request: &Request<'_>,
        groups: &[GemmProblem],
    ) -> Result<(), EngineError> {
        let (types, [a_major, b_major]) = (request.stored(), request.majors);
        let [a_bytes, b_bytes, d_bytes] = types.bytes().map(u64::from);
        let pitch = |major, mn: u32, k: u32, bytes: u64| {
            let contiguous = if major == Major::K { k } else { mn };
            u64::from(contiguous).next_multiple_of(16 / bytes)
        };
        let lines = |major, mn: u32, k: u32| u64::from(if major == Major::K { mn } else { k });
        let of = |GemmProblem { m, n, k }: GemmProblem| {
            let pitches = [pitch(a_major, m, k, a_bytes), pitch(b_major, n, k, b_bytes), u64::from(n)];
            let sizes = [
                lines(a_major, m, k) * pitches[0] * a_bytes,
                lines(b_major, n, k) * pitches[1] * b_bytes,
                u64::from(m) * pitches[2] * d_bytes,
            ];
            (pitches, sizes.map(|bytes| bytes.next_multiple_of(ALIGNMENT)))
        };
        let mut all = [0; 3];
        for &group in groups {
            let (_, sizes) = of(group);
            (0..3).for_each(|i| all[i] += sizes[i]);
        }
        let sets = count(all.iter().sum());
        let data = random(types.a);
        let a = self.filled(engine, sets * all[0], &data)?.address;
        let other = (types.b != types.a).then(|| random(types.b));
        let b = self.filled(engine, sets * all[1], other.as_deref().unwrap_or(&data))?.address;
        // The same memory is also C, if C is read.
        let d = self.filled(engine, sets * all[2], &[0; 1 << 16])?.address;
        let mut next = [a, b, d];
        for _ in 0..sets {
            let mut records = Vec::new();
            for &group in groups {
                let GemmProblem { m, n, k } = group;
                let ([of_a, of_b, of_d], sizes) = of(group);
                let [a, b, d] = next;
                let (addresses, pitches) = ([a, b, d, d], [of_a, of_b, of_d, of_d]);
                records.extend(Record { m, n, k, addresses, pitches }.to_bytes());
                (0..3).for_each(|i| next[i] += sizes[i]);
            }
            let buffer = self.allocate(engine, records.len() as u64)?;
            engine.write(buffer, &records)?;
            let products =
                Products::Grouped { count: request.call.products.count(), records: buffer.address };
            self.sets.push(Call { products, workspace: None, ..request.call.lend() });
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
            Form::Ragged | Form::Masked | Form::Grouped => {
                self.groups().unwrap_or_default().iter().all(|group| group.m == 0 || group.n == 0)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Part, count};

    #[test]
    fn matrices_begin_as_the_callers_do() {
        for (why, address, bytes, want) in [
            ("at a multiple of 256", 1 << 20, 1600, [0x1000, 0x1000 + 1792]),
            ("beside it", (1 << 20) + 6, 1600, [0x1006, 0x1006 + 1792]),
            ("all of its room used", 768 + 192, 64, [0x10c0, 0x10c0 + 256]),
        ] {
            let part = Part::new(address, bytes);
            assert_eq!([part.of_set(0x1000, 0), part.of_set(0x1000, 1)], want, "{why}");
        }
    }

    #[test]
    fn sets_are_more_than_the_cache() {
        for (extent, want) in [(512, 8), (4096, 2), (8192, 1), (2048, 8)] {
            assert_eq!(count(6 * extent * extent), want, "{extent}");
        }
    }
}
