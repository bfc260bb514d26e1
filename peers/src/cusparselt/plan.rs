//! The descriptors of one product, and its sparse operand compressed.
#![allow(unsafe_code, reason = "calls cuSPARSELt")]

use core::ffi::{c_int, c_void};
use core::fmt;
use core::ptr;
use std::sync::Arc;

use kernel::EngineError;
use kernel::driver::{DeviceMemory, Gpu};

use super::algorithm::{Algorithm, Choice};
use super::symbols::{Opaque, Symbols, algorithm, number};
use super::{Handle, refused};
use crate::matmul::{Matmul, Stored};
use crate::{buffer, data_type};

/// Bytes that matrices begin at multiples of.
const ALIGNMENT: u32 = 16;

/// A product that the library multiplies.
#[derive(Clone, Debug)]
pub struct Plan {
    pub(super) of: Arc<Descriptors>,
}

/// What the library knows of a product.
pub(super) struct Descriptors {
    pub(super) handle: Arc<Handle>,
    pub(super) product: Matmul,
    pub(super) matmul: Opaque,
    /// A, B and D: those that were made.
    matrices: Vec<Opaque>,
}

impl fmt::Debug for Descriptors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Descriptors").field("product", &self.product).finish_non_exhaustive()
    }
}

/// A sparse operand as the library's products of one [`Plan`] read it.
#[derive(Clone, Debug)]
pub struct CompressedMatrix {
    pub(super) values: DeviceMemory,
    /// The plan's, whose algorithms read it.
    pub(super) of: Arc<Descriptors>,
}

impl Descriptors {
    /// Describes the next matrix, of which half is kept where it is sparse.
    fn matrix(
        &mut self,
        Stored { rows, columns, .. }: Stored,
        format: c_int,
        sparse: bool,
    ) -> Result<(), EngineError> {
        let matrix = Opaque::new();
        let [rows, columns] = [rows, columns].map(i64::from);
        let (raw, order) = (matrix.raw(), number::ROW_MAJOR);
        let name =
            if sparse { "cusparseLtStructuredDescriptorInit" } else { "cusparseLtDenseDescriptorInit" };
        self.handle.call(name, |Symbols { functions, .. }, handle| {
            // SAFETY: the handle is alive, and there is room for the descriptor. The only sparsity is number 0: a half.
            unsafe {
                match sparse {
                    true => {
                        (functions.sparse)(handle, raw, rows, columns, columns, ALIGNMENT, format, order, 0)
                    }
                    false => (functions.dense)(handle, raw, rows, columns, columns, ALIGNMENT, format, order),
                }
            }
        })?;
        self.matrices.push(matrix);
        Ok(())
    }

    /// The sparse operand's descriptor, and the matrix.
    fn sparse(&self) -> (&Opaque, Stored) {
        let place = usize::from(self.product.types.sparse[1]);
        (&self.matrices[place], self.product.row_major()[place])
    }
}

impl Drop for Descriptors {
    fn drop(&mut self) {
        for matrix in &self.matrices {
            // SAFETY: the library made the descriptor, and no algorithm is left that points to it.
            self.handle.destroy(|symbols| unsafe { (symbols.functions.matrix_destroy)(matrix.raw()) });
        }
    }
}

impl Plan {
    pub(super) fn new(handle: Arc<Handle>, matmul: &Matmul) -> Result<Self, EngineError> {
        let types = matmul.types;
        let [of_a, of_b] = types.sparse;
        if of_a == of_b || types.is_scaled() || types.has_weights() {
            let needed = format!("{types}: one sparse operand without scales was needed");
            return Err(refused("cusparseLtMatmulDescriptorInit", needed));
        }
        // What was made is destroyed with it, also where a later step fails.
        let mut of = Descriptors { handle, product: *matmul, matmul: Opaque::new(), matrices: Vec::new() };
        let [a, b] = matmul.row_major();
        let d = Stored { rows: matmul.size.m, columns: matmul.size.n, transposed: false };
        let sparse = [of_a, of_b, false];
        for ((stored, format), sparse) in [(a, types.a), (b, types.b), (d, types.d)].into_iter().zip(sparse) {
            of.matrix(stored, data_type::of(format), sparse)?;
        }
        let compute = if types.a.is_float() { number::COMPUTE_F32 } else { number::COMPUTE_S32 };
        let raw = [0, 1, 2].map(|i: usize| of.matrices[i].raw());
        of.handle.call("cusparseLtMatmulDescriptorInit", |symbols, handle| {
            let ([first, second], [a_matrix, b_matrix, d_matrix]) = ([a, b].map(operation), raw);
            // SAFETY: handle and descriptors are alive, and there is room for the new one. C is described as D is.
            unsafe {
                (symbols.functions.matmul_init)(
                    handle,
                    of.matmul.raw(),
                    first,
                    second,
                    a_matrix,
                    b_matrix,
                    d_matrix,
                    d_matrix,
                    compute,
                )
            }
        })?;
        Ok(Self { of: Arc::new(of) })
    }

    /// The number of the library's algorithms for the product.
    ///
    /// # Errors
    /// It has none, or a call failed.
    pub fn algorithms(&self) -> Result<u32, EngineError> {
        let count = Algorithm::new(&self.of, Choice::FIRST, false)?.attribute(algorithm::ALL)?;
        u32::try_from(count)
            .map_err(|_| refused("cusparseLtMatmulAlgGetAttribute", format!("{count} algorithms")))
    }

    /// One of the library's algorithms, ready to run.
    ///
    /// # Errors
    /// The library does not multiply the product so.
    pub fn algorithm(&self, choice: Choice) -> Result<Algorithm, EngineError> {
        Algorithm::new(&self.of, choice, true)
    }

    /// Compresses the sparse operand, of which every element lies at a device address: a half of each chunk along K is zero. Waits until it
    /// is done.
    ///
    /// # Errors
    /// The operand is not part of a buffer of the GPU, or a call failed.
    pub fn compress(&self, gpu: &mut Gpu, dense: u64) -> Result<CompressedMatrix, EngineError> {
        let Descriptors { handle, product, .. } = &*self.of;
        let (descriptor, stored) = self.of.sparse();
        let format = if product.types.sparse[1] { product.types.b } else { product.types.a };
        let buffer = buffer(&handle.memories, dense, [stored.rows, stored.columns], format.bytes())?;
        let (mut values, mut scratch) = (0_usize, 0_usize);
        handle.call("cusparseLtSpMMACompressedSize2", |symbols, raw| {
            // SAFETY: handle and descriptor are alive, and two numbers are written.
            unsafe { (symbols.functions.compressed_size)(raw, descriptor.raw(), &mut values, &mut scratch) }
        })?;
        let values = DeviceMemory::new(&handle.context, values)?;
        let scratch = DeviceMemory::new(&handle.context, scratch)?;
        let stream = Arc::clone(gpu.stream());
        let pointer = |address: u64| ptr::without_provenance_mut::<c_void>(address as usize);
        handle.call("cusparseLtSpMMACompress2", |symbols, raw| {
            // SAFETY: handle and descriptor are alive; the operand is part of a buffer, and the others have as many bytes as the
            // library asks for. All of them stay until the stream has been waited for.
            unsafe {
                (symbols.functions.compress)(
                    raw,
                    descriptor.raw(),
                    c_int::from(!product.types.sparse[1]),
                    operation(stored),
                    pointer(dense),
                    pointer(values.address()),
                    pointer(scratch.address()),
                    stream.raw(),
                )
            }
        })?;
        stream.wait()?;
        drop((scratch, buffer));
        Ok(CompressedMatrix { values, of: Arc::clone(&self.of) })
    }

    /// Times the library's algorithms briefly and returns the fastest: each by itself, then the best of them with other ways to divide K.
    /// Those that the library refuses do not take part.
    ///
    /// # Errors
    /// All of them are refused, or a driver error.
    pub fn fastest(
        &self,
        gpu: &mut Gpu,
        sparse: &CompressedMatrix,
        dense: u64,
        d: u64,
    ) -> Result<Choice, EngineError> {
        let mut times: Vec<(f64, Choice)> = Vec::new();
        let mut first = None;
        let mut look = |choice: Choice, times: &mut Vec<(f64, Choice)>| {
            match self.time(gpu, choice, (sparse, dense, d)) {
                Ok(seconds) => times.push((seconds, choice)),
                Err(error @ EngineError::Library { .. }) => {
                    first.get_or_insert(error);
                }
                Err(error) => return Err(error),
            }
            Ok(())
        };
        look(Choice::FIRST, &mut times)?;
        for id in 0..self.algorithms()? {
            look(Choice { id: Some(id), ..Choice::FIRST }, &mut times)?;
        }
        times.sort_by(|a, b| a.0.total_cmp(&b.0));
        for (_, choice) in times.clone().into_iter().take(DIVIDED) {
            for split in Choice::SPLITS {
                look(Choice { split: Some(split), ..choice }, &mut times)?;
            }
        }
        let fastest = times.into_iter().min_by(|a, b| a.0.total_cmp(&b.0));
        fastest.map(|(_, choice)| choice).ok_or_else(|| {
            first.unwrap_or_else(|| refused("cusparseLtMatmul", "no algorithm runs this product".to_owned()))
        })
    }

    /// Seconds of a product by an algorithm, from a few of them.
    fn time(
        &self,
        gpu: &mut Gpu,
        choice: Choice,
        (sparse, dense, d): (&CompressedMatrix, u64, u64),
    ) -> Result<f64, EngineError> {
        let run = self.algorithm(choice)?.with(sparse, dense, d)?;
        // The first run loads its kernels; the best of three short series sees the fewest disturbances.
        gpu.time_many(&[&run], 1)?;
        (0..3).try_fold(f64::INFINITY, |least, _| Ok(gpu.time_many(&[&run], 5)?.min(least)))
    }
}

/// The library's number of what is done to a matrix before it is multiplied.
const fn operation(stored: Stored) -> c_int {
    if stored.transposed { number::TRANSPOSED } else { number::AS_IT_IS }
}

/// The fastest algorithms, which are also timed with other ways to divide K.
const DIVIDED: usize = 3;
