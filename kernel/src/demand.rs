//! What a call takes of the engine that runs it, known before anything is allocated.

use crate::buffer::Buffer;
use crate::error::{EngineError, LaunchError};
use crate::host::check_memory;
use crate::kernel::Kernel;
use crate::operands::Memory;

/// What a call takes of the engine that runs it: memory and work. Found from what the call visits and from the kernel's blocks, for
/// kernels of any family, before anything is allocated.
///
/// ```
/// use collective::{Format, MatrixRef};
/// use kernel::{Demand, Emulator, Engine, Transpose, Transposition};
///
/// let transpose = Transpose::of(Format::E4m3).expect("8 bits");
/// let (a, d) = (MatrixRef::new(0, 1 << 24), MatrixRef::new(0, 1 << 20));
/// let call = Transposition { rows: 1 << 20, columns: 1 << 24, count: 1, a, d };
/// let demand = Demand::of(&transpose, &call, 132)?;
/// assert_eq!(demand.bytes, 2 << 44);
/// assert!(Emulator::new().admit(&demand, 0).is_err());
/// # Ok::<(), kernel::LaunchError>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Demand {
    /// Bytes of all memory that the call accesses, and of its workspace.
    pub bytes: u128,
    /// Blocks that its CTAs multiply or store ([`Kernel::total_work`]), at least as many as CTAs.
    pub work: u128,
}

impl Demand {
    /// Blocks of the largest call that is emulated. They take hours.
    pub const MOST_EMULATED: u128 = 1 << 24;

    /// Blocks of the largest call that is traced. Each has some hundred events of all warps; all take a minute or two.
    pub const MOST_TRACED: u128 = 1 << 16;

    /// Bytes of a traced block's events.
    const TRACED_BYTES: u128 = 40_000;

    /// What a call takes on an engine that holds `resident` of the kernel's clusters at once. The call's own addresses do not count:
    /// they may be 0.
    ///
    /// # Errors
    /// The first argument that is illegal whatever the addresses are.
    pub fn of<C: Clone>(
        kernel: &(impl Kernel<C> + ?Sized),
        call: &C,
        resident: u32,
    ) -> Result<Self, LaunchError> {
        let (mut call, mut bytes, mut next) = (call.clone(), 0u128, FIRST);
        kernel.lend_workspace(&mut call, None);
        kernel.visit(&mut call, &mut |Memory { address, extents, .. }: Memory<'_>| {
            let own = extents.bytes();
            if own > 0 {
                *address = next;
                bytes += u128::from(own);
                next = next.saturating_add(own).checked_next_multiple_of(256).unwrap_or(next);
            }
        });
        let workspace = kernel.workspace(&call, resident);
        bytes += u128::from(workspace);
        if workspace > 0 {
            kernel.lend_workspace(&mut call, Some(Buffer::new(next, workspace)));
        }
        let steps = kernel.steps();
        let mut work = 0;
        if bytes < u128::from(FIRST) {
            let mut add = |own: u128, launch: Option<crate::filled::Launch>| {
                let ctas = launch.map_or(0, |launch| launch.grid.ctas.map(u128::from).iter().product());
                work += own.max(ctas);
            };
            match &steps[..] {
                [] => add(kernel.total_work(&call), kernel.launch(&call, resident)?),
                steps => steps.iter().try_for_each(|step| {
                    step.launch(&call, resident).map(|of| add(step.total_work(&call), of))
                })?,
            }
        } else {
            // More than any machine has: the addresses would not be legal ones.
            work = kernel.total_work(&call) + steps.iter().map(|step| step.total_work(&call)).sum::<u128>();
        }
        Ok(Self { bytes, work })
    }

    /// Checks that the call can be traced on this machine.
    ///
    /// # Errors
    /// [`EngineError::Work`] or [`EngineError::Memory`], with the number and the limit.
    pub fn traced(&self) -> Result<(), EngineError> {
        self.at_most(Self::MOST_TRACED)?;
        check_memory(self.bytes + self.on_emulator() + self.work * Self::TRACED_BYTES)
    }

    /// Bytes of the call's memory on an emulator, which also keeps which of them were written.
    pub(crate) fn on_emulator(&self) -> u128 {
        self.bytes + self.bytes / 8
    }

    pub(crate) fn at_most(&self, most: u128) -> Result<(), EngineError> {
        let work = self.work;
        if work <= most { Ok(()) } else { Err(EngineError::Work { work, most }) }
    }
}

/// The first address of a call that is never launched: so far from 0 that tensor maps may begin before it.
const FIRST: u64 = 1 << 60;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::engine::Engine;
    use crate::{Call, Emulator, GemmProblem, GroupedProblem, find};

    /// Matrices in bf16, and a block per k-tile and per epilogue, whatever is empty or larger than any memory.
    #[test]
    fn gemms_are_counted() {
        let kernel = find("64x64-direct-bf16-kk").unwrap_or_else(|error| panic!("{error}"));
        let batched = find("batched-128x128-direct-bf16-kk").unwrap_or_else(|error| panic!("{error}"));
        let of = |m, n, k| Call::of(GemmProblem { m, n, k });
        let count = |call: &Call| {
            let kernel = if call.products == GroupedProblem::One { &kernel } else { &batched };
            Demand::of(kernel, call, 132)
        };
        for (call, bytes, work) in [
            (of(64, 64, 64), 3 * 64 * 64 * 2, 2),
            (of(65, 64, 72), 2 * (65 * 72 + 64 * 72 + 65 * 64), 2 * 3),
            (of(128, 64, 0), 2 * 128 * 64, 2),
            (of(0, 64, 64), 0, 0),
            (of(128, 128, 64).batched(5), 5 * 3 * 128 * 64 * 2 + 5 * 128 * 64 * 2, 10),
            (of(1 << 30, 1 << 30, 64), 2 * (2 * (1 << 36) + (1 << 60)), 2 << 48),
        ] {
            let demand = count(&call);
            assert_eq!(demand, Ok(Demand { bytes, work }), "{:?}", call.problem);
        }
        let tiles = count(&of(1 << 29, 1 << 29, 64)).map_err(|error| error.to_string());
        assert!(tiles.is_err_and(|words| words.contains("tiles")));
    }

    /// Work is refused by its number; memory, too. What is traced has its own limit.
    #[test]
    fn what_is_too_much_is_refused_with_the_number_and_the_limit() {
        let emulator = Emulator::new();
        let (most, traced) = (Demand::MOST_EMULATED, Demand::MOST_TRACED);
        let words = |found: Result<(), EngineError>| found.map_err(|error| error.to_string());
        assert_eq!(words(emulator.admit(&Demand { bytes: 8, work: most }, 3)), Ok(()));
        let refused = words(emulator.admit(&Demand { bytes: 8, work: most + 1 }, 3));
        assert!(refused.is_err_and(|of| of.contains("16777217 blocks") && of.contains("at most 16777216")));
        let refused = words(emulator.admit(&Demand { bytes: 1 << 80, work: 1 }, 0));
        assert!(refused.is_err_and(|of| of.contains("GB of memory are needed")));
        assert_eq!(words(Demand { bytes: 8, work: 9 }.traced()), Ok(()));
        let refused = words(Demand { bytes: 8, work: traced + 1 }.traced());
        assert!(refused.is_err_and(|of| of.contains("65537 blocks") && of.contains("at most 65536")));
        let refused = words(Emulator::new().allocate(usize::MAX / 2).map(drop));
        assert!(refused.is_err_and(|of| of.contains("GB of memory are needed")));
    }
}
