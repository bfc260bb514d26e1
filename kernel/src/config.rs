//! A kernel as a type: three roles that become one program.

use core::borrow::Borrow;
use core::fmt;
use core::marker::PhantomData;

use collective::{Epilogue, Form, Mainloop, Plan};
use scheduler::{TileScheduler, Tiles};

use crate::arguments::EpilogueArgs;
use crate::call::Call;
use crate::error::LaunchError;
use crate::filled::Launch;
use crate::gemm::{AnyGemm, Built};
use crate::legal;
use crate::problem::GemmProblem;
use crate::program::Program;

/// The three roles of a kernel, as types. Implement it for a type of your own and pass that type to [`Gemm`].
///
/// ```
/// use collective::{Cooperative, KMajor, LinearCombination, Operands, Plan, Tile, TmaWgmma};
/// use half::bf16;
/// use kernel::{Gemm, GemmConfig};
/// use scheduler::{AlongM, Grouped, Persistent};
/// use typenum::{U2, U8, U64, U128, U256};
///
/// struct MyGemm;
/// impl GemmConfig for MyGemm {
///     type Mainloop = TmaWgmma<Operands<KMajor<bf16>, KMajor<bf16>>, Tile<U128, U256, U64>, Cooperative<U2>>;
///     type Epilogue = LinearCombination<bf16>;
///     type Scheduler = Persistent<Grouped<AlongM, U8>>;
/// }
/// const PLAN: Plan = Gemm::<MyGemm>::PLAN; // illegal numbers stop the build here
/// assert_eq!(PLAN.ring.stages, 4);
/// ```
pub trait GemmConfig: 'static {
    /// Loads operand tiles and multiplies them.
    type Mainloop: Mainloop;
    /// Turns accumulators into the output D.
    type Epilogue: Epilogue;
    /// Assigns output tiles to CTAs.
    type Scheduler: TileScheduler;
    /// Whether the kernel may start while the previous kernel in its stream still runs (programmatic
    /// dependent launch). Its CTAs then start, set up their barriers and may prefetch to L2, and wait for the previous kernel
    /// before they access global memory. Results do not depend on this. Default: `true`.
    const OVERLAPS: bool = true;
    /// Whether a launch computes one GEMM or several. [`Batched`](crate::Batched), [`GroupedContiguous`](crate::GroupedContiguous),
    /// [`GroupedMasked`](crate::GroupedMasked), [`KGrouped`](crate::KGrouped) and [`PointerArray`](crate::PointerArray) set it. Default: one.
    const FORM: Form = Form::Single;
    /// Most groups of a launch, for forms that keep a table of them: one of [`Form::TABLES`]. The second parameter of the
    /// form's type sets it. Default: 320.
    const MOST_GROUPS: u32 = Form::TABLES[0];
}

/// A configuration made of three roles in place, when it needs no named type of its own.
#[derive(Clone, Copy, Debug)]
pub struct Composed<M, E, S>(PhantomData<(M, E, S)>);

impl<M, E, S> GemmConfig for Composed<M, E, S>
where
    M: Mainloop,
    E: Epilogue,
    S: TileScheduler,
{
    type Mainloop = M;
    type Epilogue = E;
    type Scheduler = S;
}

/// The kernel of a configuration: `D = alpha * A * B + beta * C`.
///
/// Its methods are those of [`AnyGemm`], the value that this type lowers to. Only [`PLAN`](Self::PLAN) is
/// computed at compile time. With the feature `driver`, `Gemm::load` compiles it for a GPU, where its type says which slices it takes.
pub struct Gemm<C: GemmConfig> {
    kernel: AnyGemm,
    of: PhantomData<fn() -> C>,
}

impl<C: GemmConfig> Gemm<C> {
    /// Every number of the kernel: tile, stages, shared memory, registers, threads. For an illegal
    /// configuration, evaluating this constant stops the build with the reason.
    pub const PLAN: Plan = legal::checked(
        (C::FORM, C::MOST_GROUPS),
        (<C::Mainloop as Mainloop>::SPEC, <C::Mainloop as Mainloop>::NEEDS, <C::Mainloop as Mainloop>::FORMS),
        (<C::Epilogue as Epilogue>::SPEC, <C::Epilogue as Epilogue>::FORMS),
        <C::Scheduler as TileScheduler>::TRAITS,
    );

    /// The kernel as a value that keeps its type.
    #[cfg(feature = "driver")]
    pub(crate) fn typed() -> Self {
        Self { kernel: Self::kernel(), of: PhantomData }
    }

    /// The kernel as a value.
    pub fn kernel() -> AnyGemm {
        let mut kernel = AnyGemm::of::<C>("");
        kernel.name = kernel.entry_name();
        kernel
    }

    /// The kernel's name, made of the names of its form, mainloop, epilogue and scheduler.
    pub fn name() -> String {
        Self::kernel().entry_name()
    }

    /// Builds, verifies and prints the kernel's program.
    ///
    /// # Errors
    /// The faults that the verifier found. Only a mainloop, epilogue or scheduler of your own can emit an
    /// illegal program.
    pub fn program() -> Result<Program, ptx::VerifyError> {
        Self::kernel().program()
    }

    /// Numbers of output tiles and K-tiles of a problem: see [`AnyGemm::tiles`].
    pub fn tiles(problem: GemmProblem) -> Tiles<u32> {
        Self::kernel().tiles(problem)
    }

    /// Bytes of workspace that a call needs: see [`AnyGemm::workspace`].
    pub fn workspace<E>(call: &Call<E>, resident: u32) -> u64 {
        Self::kernel().workspace(call, resident)
    }

    /// `D = A * B` with packed matrices at these device addresses of A, B and D. K-major operands are `(M, K)` for A and `(N, K)` for B in
    /// row-major order; MN-major operands are the transposes of these. D is `(M, N)`, row-major.
    pub fn packed(problem: GemmProblem, [a, b, d]: [u64; 3]) -> Call {
        let mut call = Call::packed(Self::PLAN.majors(), problem);
        (call.a.address, call.b.address, call.d.address) = (a, b, d);
        call
    }

    /// Checks a call and returns its grid and arguments: see [`AnyGemm::launch`]. The call's epilogue
    /// arguments are those of the configuration's epilogue, or a reference to them: `call.with(&arguments)`. The mainloop's own arguments are the
    /// default ones; [`Call::with_mainloop`] passes others to the [kernel](Self::kernel) as a value.
    ///
    /// # Errors
    /// The first illegal argument, with its value and what is allowed; or the call is of another form than
    /// the kernel.
    pub fn launch<E>(call: &Call<E>, resident: u32) -> Result<Option<Launch>, LaunchError>
    where
        E: Borrow<<C::Epilogue as Epilogue>::Arguments>,
    {
        let epilogue = EpilogueArgs::<C::Epilogue>(call.epilogue.borrow().clone());
        Self::kernel().launch(&call.lend().with(epilogue), resident)
    }
}

impl<C: GemmConfig> AsRef<AnyGemm> for Gemm<C> {
    fn as_ref(&self) -> &AnyGemm {
        &self.kernel
    }
}

impl<C: GemmConfig> Clone for Gemm<C> {
    fn clone(&self) -> Self {
        Self { kernel: self.kernel.clone(), of: PhantomData }
    }
}

impl<C: GemmConfig> fmt::Debug for Gemm<C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Gemm").field(&self.kernel).finish()
    }
}

impl AnyGemm {
    /// The kernel of a configuration type, under a name of your choice.
    pub fn of<C: GemmConfig>(name: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            rust_type: crate::rust_type::of::<C>(),
            overlaps: C::OVERLAPS,
            plan: Gemm::<C>::PLAN,
            mainloop: C::Mainloop::value(),
            epilogue: C::Epilogue::value(),
            scheduler: C::Scheduler::schedule(),
            traits: <C::Scheduler as TileScheduler>::TRAITS,
            built: Built::default(),
        }
    }
}
