//! The limit that nothing is faster than, measured.

use collective::Format;
use kernel::driver::Prepared;
use kernel::operands::random;
use kernel::{Buffer, Engine, Gpu, Types, ceiling};

use crate::Failure;

/// The multiply-only kernel with its operands on the device.
pub(super) struct Ceiling {
    operands: Buffer,
    sums: Buffer,
    pub(super) prepared: Prepared,
    pub(super) operations: f64,
}

impl Ceiling {
    pub(super) fn new(gpu: &mut Gpu, types: Types) -> Result<Self, Failure> {
        let rounds = 2000;
        let multiprocessors = gpu.multiprocessors();
        let no_product = || Failure::usage(Format::NO_PRODUCT);
        let format = types.a;
        let sparse = types.has_sparse();
        let types = format.multiplies(types.b).ok_or_else(no_product)?;
        let operands = gpu.upload(&random(format)[..ceiling::OPERAND_BYTES])?;
        let sums = gpu.allocate(ceiling::sum_bytes(multiprocessors))?;
        let program = if sparse { ceiling::sparse_program(types)? } else { ceiling::program(types)? };
        let (grid, arguments) = ceiling::launch(multiprocessors, operands.address, sums.address, rounds);
        let prepared = gpu.prepare(&program, grid, &arguments)?;
        Ok(Self { operands, sums, prepared, operations: ceiling::operations(types, multiprocessors, rounds) })
    }

    pub(super) fn free(self, gpu: &mut Gpu) -> Result<(), Failure> {
        gpu.free(self.operands)?;
        Ok(gpu.free(self.sums)?)
    }
}
