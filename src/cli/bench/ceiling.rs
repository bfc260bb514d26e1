//! The limit that nothing is faster than, measured.

use collective::Format;
use kernel::driver::Prepared;
use kernel::operands::random;
use kernel::{Buffer, Engine, Gpu, Rounds, Types};

use crate::cli::Failure;

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
        let ceiling = kernel::Ceiling { types, sparse };
        let operands = gpu.upload(&random(format)[..kernel::Ceiling::OPERAND_BYTES])?;
        let sums = gpu.allocate(Rounds::sum_bytes(multiprocessors))?;
        let [of_operands, of_sums] = [operands, sums].map(|buffer| buffer.address);
        let call = Rounds { ctas: multiprocessors, rounds, operands: of_operands, sums: of_sums };
        let prepared = gpu.prepare_call(&ceiling, &call)?;
        let prepared = prepared.ok_or_else(|| Failure::environment("the GPU has no SMs"))?;
        Ok(Self { operands, sums, prepared, operations: ceiling.operations(&call) })
    }

    pub(super) fn free(self, gpu: &mut Gpu) -> Result<(), Failure> {
        gpu.free(self.operands)?;
        Ok(gpu.free(self.sums)?)
    }
}
