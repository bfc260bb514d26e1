//! What a kernel is to everything that launches, keeps, measures and proves kernels: one program, and the
//! launch and the memory of a call.

use std::time::Duration;

use ptx::{Builder, Name, VerifyError};

use crate::buffer::Buffer;
use crate::demand::Demand;
use crate::engine::Engine;
use crate::error::{EngineError, LaunchError};
use crate::filled::{Launch, Named, Place};
use crate::lent::{Lent, Unlent};
use crate::operands::{Declares, Visit};
use crate::overlap::check_apart;
use crate::program::Program;

/// A kernel that takes calls `C`. [`AnyGemm`](crate::AnyGemm), and whatever [holds](AsRef) one, is one for a [`Call`](crate::Call) with the
/// arguments of any epilogue; [`Transpose`](crate::Transpose), [`Compress`](crate::Compress) and [`Ceiling`](crate::Ceiling) are others.
///
/// Whoever writes a kernel of another kind implements it once. [`Loaded`](crate::driver::Loaded) then compiles
/// the kernel, keeps the launches of its calls, and checks that their memory is lent.
///
/// ```
/// use collective::{Format, MatrixRef};
/// use kernel::operands::Memory;
/// use kernel::{Kernel, Transpose, Transposition};
///
/// let transpose = Transpose::of(Format::E4m3).expect("8 bits");
/// let (a, d) = (MatrixRef::new(1 << 20, 3), MatrixRef::new(2 << 20, 2));
/// let (mut call, mut names) = (Transposition { rows: 2, columns: 3, count: 1, a, d }, Vec::new());
/// transpose.visit(&mut call, &mut |memory: Memory<'_>| names.push(memory.name));
/// assert_eq!(names, ["A", "D"]);
/// ```
pub trait Kernel<C> {
    /// Builds, verifies and prints the program.
    ///
    /// # Errors
    /// The faults that the verifier found.
    fn program(&self) -> Result<Program, VerifyError>;

    /// Bytes of workspace that a call needs on a GPU that holds `resident` of the kernel's clusters at
    /// once.
    fn workspace(&self, _call: &C, _resident: u32) -> u64 {
        0
    }

    /// Gives a call a workspace. By default no call has one.
    fn lend_workspace(&self, _call: &mut C, _workspace: Option<Buffer>) {}

    /// Bytes of workspace that a call needs and does not have, if every launch leaves a workspace ready for any other call of the
    /// kernel. [`Loaded`](crate::driver::Loaded) then lends one that it keeps for the stream. By default 0: whoever makes a call lends it.
    fn missing_workspace(&self, _call: &C, _resident: u32) -> u64 {
        0
    }

    /// Checks a call and makes its launch, for a GPU that holds `resident` of the kernel's clusters at
    /// once. `None` if there is nothing to compute.
    ///
    /// [`Launch::of`] checks all memory that the call visits.
    ///
    /// An address of the call may only appear in the arguments as the address itself, or plus a fixed number
    /// of bytes; or it may decide a choice, by being zero or by being a multiple of a power of two up to 256.
    ///
    /// # Errors
    /// The first illegal argument, with its value and what is allowed.
    fn launch(&self, call: &C, resident: u32) -> Result<Option<Launch>, LaunchError>;

    /// Blocks that the CTAs of a call multiply or store: of a GEMM, the k-tiles of all tiles, and the tiles; of attention, the blocks of
    /// keys of all tiles, and the tiles. Time and events of an emulated run are proportional to them. A call whose blocks only
    /// the device knows, or a kernel that does not say, has 0: then its CTAs count.
    fn total_work(&self, _call: &C) -> u128 {
        0
    }

    /// The programs of a call in the order in which they run, each as a kernel of its own, if there are several.
    /// [`program`](Self::program) and [`launch`](Self::launch) are then those of the longest one. By default the
    /// kernel's program is the only one, and there are no steps.
    fn steps(&self) -> Vec<Box<dyn Kernel<C> + '_>> {
        Vec::new()
    }

    /// All programs of the kernel, in the order in which they run.
    ///
    /// # Errors
    /// The faults that the verifier found in the first illegal one.
    fn programs(&self) -> Result<Vec<Program>, VerifyError> {
        match self.steps() {
            steps if steps.is_empty() => Ok(vec![self.program()?]),
            steps => steps.iter().map(|step| step.program()).collect(),
        }
    }

    /// Runs a call on an engine, to its end, and returns the time that it took. `None` if there is nothing to
    /// compute.
    ///
    /// # Errors
    /// The verifier's faults, the first illegal argument, or those of [`Engine::launch`].
    fn run(&self, engine: &mut dyn Engine, call: &C) -> Result<Option<Duration>, EngineError>
    where
        C: Clone,
    {
        let steps = self.steps();
        if !steps.is_empty() {
            let kernel = || steps[0].program().map_or_else(|_| String::new(), |of| of.name().to_owned());
            check_apart(self, call).map_err(|source| EngineError::Call { kernel: kernel(), source })?;
            let mut time = None;
            for step in steps {
                time = step.run(engine, call)?.map(|own| time.unwrap_or_default() + own).or(time);
            }
            return Ok(time);
        }
        // The call's memory is there.
        engine.admit(&Demand { bytes: 0, work: self.total_work(call) }, 0)?;
        let (program, launch) = prepared(self, call, |program| engine.resident_clusters(program))?;
        let run = |launch: Launch| engine.launch(&program, launch.grid, &launch.arguments);
        launch.map(run).transpose()
    }

    /// The kernel's interface: visits every part of a call. These are all memory that its launch accesses, all else that decides
    /// what the launch is, and the program's parameters, in order. The program [declares](declare) them by it, and
    /// [`Launch::new`] fills them in.
    fn visit(&self, call: &mut C, visit: &mut dyn Visit);

    /// Checks what records in device memory describe, and that this memory is lent. By default there are no records.
    ///
    /// # Errors
    /// The first illegal record, the first memory that is not lent, or [records](Lent::records) that were not lent as such.
    fn check_records(&self, _call: &C, _lent: &dyn Lent) -> Result<(), EngineError> {
        Ok(())
    }
}

/// Refuses a kernel of several programs where only one is launched.
#[cfg(feature = "driver")]
pub(crate) fn alone<C>(kernel: &(impl Kernel<C> + ?Sized), name: &str) -> Result<(), EngineError> {
    match kernel.steps().len() {
        0 => Ok(()),
        count => {
            let reason = format!("it has {count} programs: launch each of its `steps`, one after the other");
            Err(EngineError::Call { kernel: name.to_owned(), source: LaunchError::Problem { reason } })
        }
    }
}

/// Declares the parameters of a kernel's program, as the kernel's interface states them for any call. [`Builder::parameter`] then
/// gives each by its name.
pub fn declare<C: Default>(kernel: &(impl Kernel<C> + ?Sized), f: &Builder) {
    kernel.visit(&mut C::default(), &mut Declares(f));
}

/// A kernel's program.
pub(crate) fn written<C>(kernel: &(impl Kernel<C> + ?Sized)) -> Result<Program, EngineError> {
    kernel.program().map_err(|error| illegal(kernel, &error))
}

/// All programs of a kernel.
#[cfg(all(feature = "driver", feature = "tune"))]
pub(crate) fn all_written<C>(kernel: &(impl Kernel<C> + ?Sized)) -> Result<Vec<Program>, EngineError> {
    kernel.programs().map_err(|error| illegal(kernel, &error))
}

fn illegal<C>(kernel: &(impl Kernel<C> + ?Sized), error: &VerifyError) -> EngineError {
    let kernel = core::any::type_name_of_val(kernel).to_owned();
    EngineError::Compile { kernel, log: error.to_string() }
}

/// The program of a kernel, and the launch of a call. `resident` says how many clusters of a program are resident.
pub(crate) fn prepared<C: Clone>(
    kernel: &(impl Kernel<C> + ?Sized),
    call: &C,
    resident: impl FnOnce(&Program) -> Result<u32, EngineError>,
) -> Result<(Program, Option<Launch>), EngineError> {
    let program = written(kernel)?;
    let resident = resident(&program)?;
    let refused = |source| EngineError::Call { kernel: program.name().to_owned(), source };
    let launch = kernel.launch(call, resident).map_err(refused)?;
    launch.iter().try_for_each(|launch| as_stated(kernel, &program, call, launch))?;
    if launch.is_some() {
        check_apart(kernel, call).map_err(refused)?;
    }
    Ok((program, launch))
}

/// Checks that all memory that a call visits is lent.
///
/// # Errors
/// The first memory that is not.
pub(crate) fn check_lent<C: Clone>(
    kernel: &(impl Kernel<C> + ?Sized),
    name: &str,
    call: &C,
    lent: &dyn Lent,
) -> Result<(), EngineError> {
    let mut visit = Unlent::new(name, lent);
    kernel.visit(&mut call.clone(), &mut visit);
    visit.result
}

/// Checks that a launch was filled in by the interface that the call's visit shows: the program's parameters, and the memory that
/// they are in.
///
/// # Errors
/// The parameters, if they are others, or the first one with another address.
pub(crate) fn as_stated<C: Clone>(
    kernel: &(impl Kernel<C> + ?Sized),
    program: &Program,
    call: &C,
    Launch { arguments, places, .. }: &Launch,
) -> Result<(), EngineError> {
    let (name, given) = (program.name(), places.iter().map(|place| Name::from(place.name)));
    let declared = program.function().params.iter().map(|param| param.name.clone());
    if !declared.clone().eq(given.clone()) {
        let (declared, given) = (declared.collect(), given.collect());
        return Err(EngineError::Parameters { kernel: name.to_owned(), declared, given });
    }
    let mut memory = Named::default();
    kernel.visit(&mut call.clone(), &mut memory);
    for (Place { name: parameter, within }, argument) in places.iter().zip(arguments) {
        let Some((piece, beyond)) = within else { continue };
        let address = argument.clone().address().map_or(0, |address| *address);
        let begin = memory.find(*piece).and_then(|which| memory.address(which));
        if begin.is_none_or(|begin| begin.wrapping_add(*beyond) != address) {
            return Err(EngineError::Untold { kernel: name.to_owned(), parameter, address });
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use collective::{Format, MatrixRef};

    use super::*;
    use crate::operands::Memory;
    use crate::{Emulator, Transpose, Transposition};

    /// A transposition that visits its first piece of memory only.
    struct Hides(Transpose);

    impl Kernel<Transposition> for Hides {
        fn program(&self) -> Result<Program, VerifyError> {
            Kernel::program(&self.0)
        }

        fn launch(&self, call: &Transposition, resident: u32) -> Result<Option<Launch>, LaunchError> {
            Kernel::launch(&self.0, call, resident)
        }

        fn visit(&self, call: &mut Transposition, visit: &mut dyn Visit) {
            let mut first = Some(visit);
            self.0.visit(call, &mut |memory: Memory<'_>| {
                if let Some(visit) = first.take() {
                    visit.memory(memory);
                }
            });
        }
    }

    #[test]
    fn an_address_that_is_not_visited_is_refused() {
        let engine = &mut Emulator::new();
        let [a, d] = [0, 1].map(|_| engine.upload(&[1; 64]).expect("memory").address);
        let (a, d) = (MatrixRef::new(a, 8), MatrixRef::new(d, 8));
        let call = Transposition { rows: 8, columns: 8, count: 1, a, d };
        let transpose = Transpose::of(Format::E4m3).expect("8 bits");
        transpose.run(engine, &call).expect("all is visited");
        let error = Hides(transpose).run(engine, &call).expect_err("D is not visited");
        assert!(matches!(error, EngineError::Untold { address, .. } if address == d.address), "{error}");
    }
}
