//! A kernel as a type: three roles, one program.

use core::borrow::Borrow;
use core::fmt;
use core::marker::PhantomData;

use collective::tree::Path;
use collective::{Epilogue, Form, Mainloop, Plan};
use scheduler::{TileScheduler, Tiles};

use crate::arguments::Own;
use crate::error::LaunchError;
use crate::gemm::AnyGemm;
use crate::launch::TypedOperands;
use crate::legal;
use crate::problem::{Call, GemmProblem, Launch};
use crate::program::Program;

/// What a kernel is made of.
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
    /// Brings operand tiles in and multiplies them.
    type Mainloop: Mainloop;
    /// Turns accumulators into the output.
    type Epilogue: Epilogue;
    /// Deals output tiles to CTAs.
    type Scheduler: TileScheduler;
    /// Whether the kernel may begin while the kernel before it in its stream still runs (programmatic dependent launch):
    /// its CTAs then start and set up their barriers, and wait for that kernel before they touch global memory. Nothing
    /// that a kernel computes depends on it.
    const OVERLAPS: bool = true;
    /// How many products a launch computes: [`Batched`](crate::Batched) and [`Ragged`](crate::Ragged)
    /// and [`PointerArray`](crate::PointerArray) make it several.
    const FORM: Form = Form::Single;
}

/// Three roles put together on the spot, for configurations that need no name of their own.
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
/// Everything but the plan is [`AnyGemm`]'s, the value that the type lowers to.
#[derive(Clone, Copy, Debug)]
pub struct Gemm<C>(PhantomData<C>);

impl<C: GemmConfig> Gemm<C> {
    /// Every number of the kernel. Evaluating it for an illegal configuration stops the build with the reason.
    pub const PLAN: Plan = legal::checked(
        C::FORM,
        (<C::Mainloop as Mainloop>::SPEC, <C::Mainloop as Mainloop>::FORMS),
        (<C::Epilogue as Epilogue>::SPEC, <C::Epilogue as Epilogue>::FORMS),
        <C::Scheduler as TileScheduler>::FACTS,
    );

    /// The kernel as a value.
    pub fn kernel() -> AnyGemm {
        let mut kernel = AnyGemm::of::<C>("");
        kernel.name = kernel.entry_name();
        kernel
    }

    /// The kernel's name: its mainloop, epilogue and scheduler.
    pub fn name() -> String {
        Self::kernel().entry_name()
    }

    /// Builds, verifies and prints the kernel.
    ///
    /// # Errors
    /// What the verifier finds; a mainloop, epilogue or scheduler of your own may emit an illegal program.
    pub fn program() -> Result<Program, ptx::VerifyError> {
        Self::kernel().program()
    }

    /// As [`AnyGemm::tiles`].
    pub fn tiles(problem: GemmProblem) -> Tiles<u32> {
        Self::kernel().tiles(problem)
    }

    /// As [`AnyGemm::workspace`].
    pub fn workspace<E>(call: &Call<E>, slots: u32) -> u64 {
        Self::kernel().workspace(call, slots)
    }

    /// The kernel with arguments of its mainloop's own ([`Mainloop::Arguments`]); launches without them use the default ones.
    pub fn bind(mainloop: &<C::Mainloop as Mainloop>::Arguments) -> Bound<'_, C> {
        Bound { mainloop }
    }

    /// As [`AnyGemm::launch`], with the arguments of the configuration's epilogue or a reference to them:
    /// `call.with(&arguments)`.
    ///
    /// # Errors
    /// The first argument that is illegal, with its value and what was needed; a kernel of another form.
    pub fn launch<E>(call: &Call<E>, slots: u32) -> Result<Option<Launch>, LaunchError>
    where
        E: Borrow<<C::Epilogue as Epilogue>::Arguments>,
    {
        Self::bind(&Default::default()).launch(call, slots)
    }
}

/// A kernel whose mainloop has been given its own arguments: see [`Gemm::bind`].
pub struct Bound<'a, C: GemmConfig> {
    mainloop: &'a <C::Mainloop as Mainloop>::Arguments,
}

impl<C: GemmConfig> fmt::Debug for Bound<'_, C> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Bound").field("kernel", &Gemm::<C>::name()).finish_non_exhaustive()
    }
}

impl<C: GemmConfig> Bound<'_, C> {
    /// As [`Gemm::launch`].
    ///
    /// # Errors
    /// The first argument that is illegal, with its value and what was needed; a kernel of another form.
    pub fn launch<E>(&self, call: &Call<E>, slots: u32) -> Result<Option<Launch>, LaunchError>
    where
        E: Borrow<<C::Epilogue as Epilogue>::Arguments>,
    {
        let call = call.lend().with(Own::<C::Epilogue>(call.epilogue.borrow()));
        let operands = TypedOperands::<C::Mainloop>(self.mainloop);
        let made = Gemm::<C>::kernel().make(&call, &operands, &Path::ROOT, slots)?;
        Ok(made.map(|made| made.launch))
    }
}

impl AnyGemm {
    /// The kernel of a type, under a name of your own.
    pub fn of<C: GemmConfig>(name: impl Into<String>) -> Self {
        Self {
            name: name.into(),
            rust_type: crate::rust_type::of::<C>(),
            overlaps: C::OVERLAPS,
            plan: Gemm::<C>::PLAN,
            mainloop: C::Mainloop::emitter(),
            epilogue: C::Epilogue::emitter(),
            scheduler: C::Scheduler::schedule(),
            facts: <C::Scheduler as TileScheduler>::FACTS,
        }
    }
}
