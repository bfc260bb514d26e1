//! A kernel as a type: three roles, one program.

use core::fmt;
use core::marker::PhantomData;

use collective::{Epilogue, Form, LinearArguments, Mainloop, Plan};
use scheduler::{TileScheduler, Tiles};

use crate::error::LaunchError;
use crate::gemm::AnyGemm;
use crate::groups::{
    BatchedCall, Experts, Given, GroupedCall, Operands, RaggedCall, Several, Strides, Typed, TypedOperands,
};
use crate::legal;
use crate::problem::{Call, GemmProblem, Launch, Matrices};
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
/// assert_eq!(PLAN.stages, 4);
/// ```
pub trait GemmConfig: 'static {
    /// Brings operand tiles in and multiplies them.
    type Mainloop: Mainloop;
    /// Turns accumulators into the output.
    type Epilogue: Epilogue<Accumulator = <Self::Mainloop as Mainloop>::Accumulator>;
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
    E: Epilogue<Accumulator = M::Accumulator>,
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
    pub fn workspace(problem: GemmProblem, slots: u32) -> u64 {
        Self::kernel().workspace(problem, slots)
    }

    /// As [`AnyGemm::workspace_batched`].
    pub fn workspace_batched(problem: GemmProblem, count: u32, slots: u32) -> u64 {
        Self::kernel().workspace_batched(problem, count, slots)
    }

    /// As [`AnyGemm::workspace_grouped`].
    pub fn workspace_grouped(slots: u32) -> u64 {
        Self::kernel().workspace_grouped(slots)
    }

    /// The kernel with arguments of its mainloop's own ([`Mainloop::Arguments`]); launches without them use the default ones.
    pub fn bind(mainloop: &<C::Mainloop as Mainloop>::Arguments) -> Bound<'_, C> {
        Bound { mainloop }
    }

    /// Checks a product and the epilogue's arguments, and works out grid and arguments of the kernel, for a machine that
    /// runs `slots` of the kernel's clusters at once ([`Engine::slots`](crate::Engine::slots)).
    /// `None` where there is nothing to do: M = 0 or N = 0.
    ///
    /// # Errors
    /// The first argument that is illegal, with its value and what was needed.
    pub fn launch_with(
        matrices: &Matrices,
        epilogue: &<C::Epilogue as Epilogue>::Arguments,
        slots: u32,
    ) -> Result<Option<Launch>, LaunchError> {
        Self::bind(&Default::default()).launch_with(matrices, epilogue, slots)
    }

    /// As [`launch_with`](Self::launch_with) for `count` products: `matrices` are those of the first, and where the others'
    /// lie `strides` says, but for C's, which the epilogue's arguments say.
    ///
    /// # Errors
    /// The first argument that is illegal, or a kernel of another form.
    pub fn launch_batched_with(
        matrices: &Matrices,
        count: u32,
        strides: Strides,
        epilogue: &<C::Epilogue as Epilogue>::Arguments,
        slots: u32,
    ) -> Result<Option<Launch>, LaunchError> {
        Self::bind(&Default::default()).launch_batched_with(matrices, count, strides, epilogue, slots)
    }

    /// As [`launch_with`](Self::launch_with) for groups of rows: `matrices` are those of all rows and of the first B.
    ///
    /// # Errors
    /// The first argument that is illegal, or a kernel of another form.
    pub fn launch_ragged_with(
        matrices: &Matrices,
        experts: Experts,
        epilogue: &<C::Epilogue as Epilogue>::Arguments,
        slots: u32,
    ) -> Result<Option<Launch>, LaunchError> {
        Self::bind(&Default::default()).launch_ragged_with(matrices, experts, epilogue, slots)
    }

    /// As [`launch_with`](Self::launch_with) for products that device memory describes. Of the call's factors only an `alpha`
    /// of zero is looked at: the epilogue's arguments say what becomes of the sums.
    ///
    /// # Errors
    /// The first argument that is illegal, or a kernel of another form.
    pub fn launch_grouped_with(
        call: &GroupedCall,
        epilogue: &<C::Epilogue as Epilogue>::Arguments,
        slots: u32,
    ) -> Result<Option<Launch>, LaunchError> {
        Self::bind(&Default::default()).launch_grouped_with(call, epilogue, slots)
    }

    /// As [`launch_with`](Self::launch_with) for `D = alpha * A * B + beta * C`.
    ///
    /// # Errors
    /// The first argument that is illegal, with its value and what was needed.
    pub fn launch(call: &Call, slots: u32) -> Result<Option<Launch>, LaunchError>
    where
        C::Epilogue: Epilogue<Arguments = LinearArguments>,
    {
        Self::kernel().launch(call, slots)
    }

    /// As [`AnyGemm::launch_batched`].
    ///
    /// # Errors
    /// The first argument that is illegal, or a kernel of another form.
    pub fn launch_batched(call: &BatchedCall, slots: u32) -> Result<Option<Launch>, LaunchError>
    where
        C::Epilogue: Epilogue<Arguments = LinearArguments>,
    {
        Self::kernel().launch_batched(call, slots)
    }

    /// As [`AnyGemm::launch_ragged`].
    ///
    /// # Errors
    /// The first argument that is illegal, or a kernel of another form.
    pub fn launch_ragged(call: &RaggedCall, slots: u32) -> Result<Option<Launch>, LaunchError>
    where
        C::Epilogue: Epilogue<Arguments = LinearArguments>,
    {
        Self::kernel().launch_ragged(call, slots)
    }

    /// As [`AnyGemm::launch_grouped`].
    ///
    /// # Errors
    /// The first argument that is illegal, or a kernel of another form.
    pub fn launch_grouped(call: &GroupedCall, slots: u32) -> Result<Option<Launch>, LaunchError>
    where
        C::Epilogue: Epilogue<Arguments = LinearArguments>,
    {
        Self::kernel().launch_grouped(call, slots)
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
    fn operands(&self) -> TypedOperands<'_, C::Mainloop> {
        TypedOperands(self.mainloop)
    }

    fn launch(
        &self,
        matrices: &Matrices,
        several: &Several,
        epilogue: &<C::Epilogue as Epilogue>::Arguments,
        slots: u32,
    ) -> Result<Option<Launch>, LaunchError> {
        let roles = (&self.operands() as &dyn Operands, &Typed::<C::Epilogue>(epilogue) as &dyn Given);
        Gemm::<C>::kernel().launch_several(matrices, several, roles, slots)
    }

    /// Checks a product and the epilogue's arguments, and works out grid and arguments of the kernel, for a machine that
    /// runs `slots` of the kernel's clusters at once ([`Engine::slots`](crate::Engine::slots)).
    /// `None` where there is nothing to do: M = 0 or N = 0.
    ///
    /// # Errors
    /// The first argument that is illegal, with its value and what was needed.
    pub fn launch_with(
        &self,
        matrices: &Matrices,
        epilogue: &<C::Epilogue as Epilogue>::Arguments,
        slots: u32,
    ) -> Result<Option<Launch>, LaunchError> {
        self.launch(matrices, &Several::One, epilogue, slots)
    }

    /// As [`Gemm::launch_with`] for `count` products: `matrices` are those of the first, and where the others'
    /// lie `strides` says, but for C's, which the epilogue's arguments say.
    ///
    /// # Errors
    /// The first argument that is illegal, or a kernel of another form.
    pub fn launch_batched_with(
        &self,
        matrices: &Matrices,
        count: u32,
        strides: Strides,
        epilogue: &<C::Epilogue as Epilogue>::Arguments,
        slots: u32,
    ) -> Result<Option<Launch>, LaunchError> {
        let several = Several::Batch { count, strides };
        self.launch(matrices, &several, epilogue, slots)
    }

    /// As [`Gemm::launch_with`] for groups of rows: `matrices` are those of all rows and of the first B.
    ///
    /// # Errors
    /// The first argument that is illegal, or a kernel of another form.
    pub fn launch_ragged_with(
        &self,
        matrices: &Matrices,
        experts: Experts,
        epilogue: &<C::Epilogue as Epilogue>::Arguments,
        slots: u32,
    ) -> Result<Option<Launch>, LaunchError> {
        let several = Several::Rows(experts);
        self.launch(matrices, &several, epilogue, slots)
    }

    /// As [`Gemm::launch_with`] for products that device memory describes. Of the call's factors only an `alpha`
    /// of zero is looked at: the epilogue's arguments say what becomes of the sums.
    ///
    /// # Errors
    /// The first argument that is illegal, or a kernel of another form.
    pub fn launch_grouped_with(
        &self,
        call: &GroupedCall,
        epilogue: &<C::Epilogue as Epilogue>::Arguments,
        slots: u32,
    ) -> Result<Option<Launch>, LaunchError> {
        let kernel = Gemm::<C>::kernel();
        let roles = (&self.operands() as &dyn Operands, &Typed::<C::Epilogue>(epilogue) as &dyn Given);
        kernel.launch_records(call, roles, slots)
    }
}
