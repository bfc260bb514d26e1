//! Measures a card, so that the model's numbers are this card's.

use std::thread;
use std::time::Duration;

use collective::Format;
use ptx::WgmmaTypes;

use crate::bandwidth::{Moves, Traffic};
use crate::buffer::Buffer;
use crate::ceiling::{Ceiling, Rounds};
use crate::driver::gpu::Gpu;
use crate::driver::timing::{Enqueue, Prepared};
use crate::engine::Engine;
use crate::error::EngineError;
use crate::kernel::Kernel;
use crate::operands::random;
use crate::select::Calibration;

/// Bytes of a copy, which no L2 holds, and bytes that every L2 holds.
const COPIED: u64 = 1 << 30;
const KEPT: u64 = 12 << 20;

/// Number of launches in a graph that do nearly nothing.
const EMPTY: u32 = 200;

/// Number of measurements of each speed; their median counts.
const TURNS: usize = 5;

/// Rest before a measurement.
const REST: Duration = Duration::from_millis(80);

impl Gpu {
    /// Measures this card in about two seconds: memory and L2 bandwidth, the time of a launch, and the rate of `wgmma`. It needs 2 GiB
    /// of device memory, which it frees. Other work on the card makes the numbers worse.
    ///
    /// # Errors
    /// Too little memory, or a driver error.
    pub fn calibrate(&mut self) -> Result<Calibration, EngineError> {
        let mut buffers = Vec::new();
        let measured = self.measured(&mut buffers);
        let freed = buffers.into_iter().try_for_each(|buffer| self.free(buffer));
        measured.and_then(|measured| freed.map(|()| measured))
    }

    fn measured(&mut self, buffers: &mut Vec<Buffer>) -> Result<Calibration, EngineError> {
        let multiprocessors = self.multiprocessors();
        let copy = Traffic::new(multiprocessors, COPIED, 1);
        let kept = Traffic::new(multiprocessors, KEPT, 64);
        let mut memory = |gpu: &mut Self| {
            let buffer = gpu.allocate(copy.bytes())?;
            buffers.push(buffer);
            Ok::<u64, EngineError>(buffer.address)
        };
        let [source, target] = [memory(self)?, memory(self)?];
        let operands = self.upload(&random(Format::Bf16)[..Ceiling::OPERAND_BYTES])?;
        buffers.push(operands);

        let traffic =
            |gpu: &mut Self, moves, traffic: Traffic| ready(gpu, &moves, &traffic.between(source, target));
        let copies = traffic(self, Moves::Copies, copy)?;
        let reads = traffic(self, Moves::Reads, kept)?;
        // One CTA's worth: what it moves takes no time next to the launch.
        let nothing = traffic(self, Moves::Reads, Traffic::new(1, 1, 1))?;
        // As a graph, so that the host does not decide.
        let empty = self.capture(&[&nothing as &dyn Enqueue; EMPTY as usize])?;
        let ceiling = Ceiling::dense(WgmmaTypes::Bf16F32);
        let operands = operands.address;
        let rounds = Rounds { ctas: multiprocessors, rounds: 2000, operands, sums: target };
        let multiplies = ready(self, &ceiling, &rounds)?;
        let operations = ceiling.operations(&rounds);
        Ok(Calibration {
            copy: 2.0 * copy.read() / self.median(&copies, 4)?,
            l2: kept.read() / self.median(&reads, 8)?,
            launch: self.median(&empty, 4)? / f64::from(EMPTY),
            multiply: operations / self.median(&multiplies, 4)?,
        })
    }

    /// The median time of a launch in microseconds, of `count` in a row after a rest.
    fn median(&mut self, launch: &dyn Enqueue, count: usize) -> Result<f64, EngineError> {
        let launches = [launch];
        self.time_many(&launches, 2)?;
        let mut turn = || {
            thread::sleep(REST);
            self.time_many(&launches, count)
        };
        let mut times = (0..TURNS).map(|_| turn()).collect::<Result<Vec<f64>, _>>()?;
        times.sort_by(f64::total_cmp);
        Ok(times[TURNS / 2] * 1e6)
    }
}

/// Prepares a launch. It is never empty: every card has an SM.
fn ready<C: Clone>(gpu: &mut Gpu, kernel: &impl Kernel<C>, call: &C) -> Result<Prepared, EngineError> {
    let none = || EngineError::Buffer { address: 0, bytes: 0, needed: 1 };
    gpu.prepare_call(kernel, call)?.ok_or_else(none)
}
