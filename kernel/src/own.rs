//! GEMM kernels with roles of your own as a family: chosen, tuned, recorded, checked and proven like the library's.

use core::fmt;
use core::marker::PhantomData;
use core::str::FromStr;

use crate::arguments::Arguments;
use crate::call::Call;
use crate::family::{Expected, Family, Inputs, Predicted, cheapest};
use crate::gemm::AnyGemm;
use crate::operands::Layouts;
use crate::problem::GemmProblem;
use crate::select::{Machine, Request};

/// GEMM kernels with a mainloop, an epilogue or a scheduler of your own, and what they must write. [`OwnGemm`] makes a [`Family`] of
/// them, whose specs are the kernels' names.
pub trait GemmFamily: 'static {
    /// The name, in errors and for the records on disk.
    const NAME: &'static str;

    /// What is asked of a kernel: [`GemmProblem`], or what is a GEMM, such as a convolution ([`ConvProblem`](crate::ConvProblem)).
    type Problem: Clone
        + Ord
        + fmt::Debug
        + fmt::Display
        + FromStr<Err: fmt::Display>
        + Into<GemmProblem>
        + Send
        + Sync
        + 'static;

    /// Arguments of calls: of the epilogue, and [of the mainloop](crate::WithMainloop).
    type Arguments: Arguments + Clone;

    /// The kernels, each with a name of its own.
    fn kernels() -> Vec<AnyGemm>;

    /// A call, with addresses of 0 and without a workspace.
    fn call(problem: &Self::Problem) -> Call<Self::Arguments>;

    /// Operations that a problem counts as, to compare kernels by their rates.
    fn operations(problem: &Self::Problem) -> f64 {
        problem.clone().into().operations()
    }

    /// A row of D: values, and how far a kernel's may be from them. By default nothing is known, and no kernel of the family can
    /// be checked.
    ///
    /// # Errors
    /// Why the row is not known, in a sentence.
    fn row(_problem: &Self::Problem, _row: usize, _inputs: &Inputs<'_>) -> Result<Vec<(f64, f64)>, String> {
        Err(format!("the family {} has no reference, `GemmFamily::row` was needed", Self::NAME))
    }
}

/// A kernel of a [`GemmFamily`].
pub struct OwnGemm<F> {
    kernel: AnyGemm,
    family: PhantomData<fn() -> F>,
}

impl<F> OwnGemm<F> {
    /// The kernel.
    pub const fn kernel(&self) -> &AnyGemm {
        &self.kernel
    }
}

impl<F> Clone for OwnGemm<F> {
    fn clone(&self) -> Self {
        Self { kernel: self.kernel.clone(), family: PhantomData }
    }
}

impl<F> fmt::Debug for OwnGemm<F> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("OwnGemm").field(&self.kernel).finish()
    }
}

impl<F> AsRef<AnyGemm> for OwnGemm<F> {
    fn as_ref(&self) -> &AnyGemm {
        &self.kernel
    }
}

impl<F: GemmFamily> Family for OwnGemm<F> {
    const NAME: &'static str = F::NAME;
    type Request<'r> = F::Problem;
    type Problem = F::Problem;
    type Spec = String;
    type Call = Call<F::Arguments>;

    fn of_spec(spec: &String) -> Result<Self, String> {
        let kernels = F::kernels();
        match kernels.iter().find(|kernel| kernel.name() == spec) {
            Some(kernel) => Ok(Self { kernel: kernel.clone(), family: PhantomData }),
            None => {
                let names: Vec<_> = kernels.iter().map(AnyGemm::name).collect();
                Err(format!("the kernel is `{spec}`, one of {} was needed", names.join(", ")))
            }
        }
    }

    fn spec(&self) -> Option<String> {
        Some(self.kernel.name().to_owned())
    }

    fn call(request: &F::Problem) -> Self::Call {
        F::call(request)
    }

    /// The model knows the tiles, stages and schedule of a kernel, and the operands of one GEMM.
    fn ranked(request: &F::Problem, machine: &Machine, most: usize) -> Result<Vec<Predicted<Self>>, String> {
        let names = F::kernels().iter().map(|kernel| kernel.name().to_owned()).collect::<Vec<_>>();
        cheapest(names, most, |Self { kernel, .. }: &Self| {
            let Layouts { types, majors, .. } = Layouts::of(kernel);
            machine.predict(kernel, &Request::packed(types, majors, request.clone().into())).microseconds
        })
    }

    fn operations(request: &F::Problem) -> f64 {
        F::operations(request)
    }

    fn expect(
        &self,
        problem: &F::Problem,
        &Call { problem: GemmProblem { m, n, .. }, .. }: &Self::Call,
        inputs: &Inputs<'_>,
    ) -> Result<Vec<Expected>, String> {
        let row = |row: usize| Ok((row * n as usize, F::row(problem, row, inputs)?));
        let elements = inputs.rows(m as usize, row).into_iter().collect::<Result<_, String>>()?;
        Ok(vec![Expected::near("D", elements)])
    }
}
