//! Arguments of a kernel's epilogue, as a [`Call`](crate::Call) carries them.

use core::fmt;

use collective::tree::{AnyNode, Node, Path, Shape};
use collective::{
    Epilogue, EpilogueEmitter, Format, FormulaArguments, LinearArguments, Matrix, MatrixRef, Output,
    StoreSpec, Treed,
};
use ptx::abi::Argument;

use crate::check::check_c;
use crate::error::LaunchError;
use crate::gemm::AnyGemm;
use crate::operands::{Extents, MainloopArguments, Visit, Visited};

/// Arguments of an epilogue: [`LinearArguments`] (alpha, beta and C), a formula's ([`FormulaArguments`]), a
/// [`Tree`]'s, or those of an epilogue of your [`EpilogueArgs`]. [`WithMainloop`] adds arguments of a mainloop of your own.
pub trait Arguments: EpilogueArguments {}

impl<T: EpilogueArguments> Arguments for T {}

/// What a launch needs to know about the arguments of an epilogue.
pub trait EpilogueArguments: Visited {
    /// Whether A and B are read.
    fn multiplied(&self) -> bool {
        true
    }

    /// The same arguments with another C, if they have one. Used where records in device memory hold C's
    /// address.
    fn with_c(self, _c: MatrixRef) -> Self
    where
        Self: Sized,
    {
        self
    }

    /// Checks that the kernel's epilogue takes these arguments, whatever the problem.
    ///
    /// # Errors
    /// The kernel has another epilogue.
    fn admits(&self, kernel: &AnyGemm, product: Shape) -> Result<(), LaunchError>;

    /// Checks that the kernel's epilogue takes these arguments, and that they are legal for a GEMM of this
    /// shape.
    ///
    /// # Errors
    /// The first illegal argument.
    fn check(&self, kernel: &AnyGemm, product: Shape, path: &Path<'_>) -> Result<(), LaunchError>;

    /// Values of the epilogue's parameters; empty for a kernel with another epilogue.
    fn parameters(&self, kernel: &AnyGemm, d: Output) -> Vec<Argument>;

    /// Values of the mainloop's parameters for these operands, checked; the memory that they name is checked
    /// against `path`. By default, with the mainloop's default arguments.
    ///
    /// # Errors
    /// The mainloop refuses its arguments, or the kernel has another mainloop.
    fn operands(
        &self,
        kernel: &AnyGemm,
        operands: [Matrix; 2],
        path: &Path<'_>,
    ) -> Result<Vec<Argument>, LaunchError> {
        kernel.default_operands(operands, path)
    }

    /// The same arguments as alpha, beta and C, if they are nothing else.
    fn linear(&self) -> Option<&LinearArguments> {
        None
    }
}

impl EpilogueArguments for LinearArguments {
    fn multiplied(&self) -> bool {
        self.alpha != 0.0
    }

    fn with_c(self, c: MatrixRef) -> Self {
        Self { c: Some(c), ..self }
    }

    fn admits(&self, kernel: &AnyGemm, product: Shape) -> Result<(), LaunchError> {
        if kernel.epilogue.linear().is_none() {
            return Err(LaunchError::NotLinear { epilogue: kernel.epilogue.name() });
        }
        check_c(self, kernel.plan.epilogue.output.bits(), [product.m, product.n])
    }

    fn check(&self, kernel: &AnyGemm, product: Shape, path: &Path<'_>) -> Result<(), LaunchError> {
        self.admits(kernel, product)?;
        kernel.epilogue.linear().map_or(Ok(()), |host| Ok(host.check(self, product, path)?))
    }

    fn parameters(&self, kernel: &AnyGemm, d: Output) -> Vec<Argument> {
        kernel.epilogue.linear().map_or_else(Vec::new, |host| host.parameters(&kernel.plan, self, d))
    }

    fn linear(&self) -> Option<&LinearArguments> {
        Some(self)
    }
}

/// Stand-in for arguments that are not known yet, of any epilogue. The rest of a call can be checked with it;
/// nothing can be launched.
#[derive(Clone, Copy, Debug)]
pub(crate) struct UnknownArguments;

impl Visited for UnknownArguments {}

impl EpilogueArguments for UnknownArguments {
    fn admits(&self, _kernel: &AnyGemm, _product: Shape) -> Result<(), LaunchError> {
        Ok(())
    }

    fn check(&self, _kernel: &AnyGemm, _product: Shape, _path: &Path<'_>) -> Result<(), LaunchError> {
        Ok(())
    }

    fn parameters(&self, _kernel: &AnyGemm, _d: Output) -> Vec<Argument> {
        Vec::new()
    }
}

/// Arguments of the epilogue tree `X`, for a kernel that has this tree with any store.
pub struct Tree<'a, X: Node>(pub &'a X::Arguments);

/// Arguments of the epilogue `E`, also of one of your own.
pub struct EpilogueArgs<'a, E: Epilogue>(pub &'a E::Arguments);

/// Arguments of an epilogue, and those of a mainloop of your own. [`Call::with_mainloop`] makes it.
///
/// [`Call::with_mainloop`]: crate::Call::with_mainloop
#[derive(Clone, Debug)]
pub struct WithMainloop<A, E> {
    /// Arguments of the mainloop.
    pub mainloop: A,
    /// Arguments of the epilogue.
    pub epilogue: E,
}

impl<A: MainloopArguments, E: Visited> Visited for WithMainloop<A, E> {
    fn visit(&mut self, d: Extents, format: Format, visit: &mut dyn Visit) {
        self.epilogue.visit(d, format, visit);
    }

    fn visit_mainloop(&mut self, problem: [u32; 3], visit: &mut dyn Visit) {
        self.mainloop.visit(problem, visit);
    }
}

impl<A: MainloopArguments, E: EpilogueArguments> EpilogueArguments for WithMainloop<A, E> {
    fn multiplied(&self) -> bool {
        self.epilogue.multiplied()
    }

    fn with_c(self, c: MatrixRef) -> Self {
        Self { epilogue: self.epilogue.with_c(c), ..self }
    }

    fn admits(&self, kernel: &AnyGemm, product: Shape) -> Result<(), LaunchError> {
        self.epilogue.admits(kernel, product)
    }

    fn check(&self, kernel: &AnyGemm, product: Shape, path: &Path<'_>) -> Result<(), LaunchError> {
        self.epilogue.check(kernel, product, path)
    }

    fn parameters(&self, kernel: &AnyGemm, d: Output) -> Vec<Argument> {
        self.epilogue.parameters(kernel, d)
    }

    fn operands(
        &self,
        kernel: &AnyGemm,
        operands: [Matrix; 2],
        path: &Path<'_>,
    ) -> Result<Vec<Argument>, LaunchError> {
        kernel.operands_with(&self.mainloop, operands, path)
    }
}

impl<X: Node> Clone for Tree<'_, X> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<X: Node> Copy for Tree<'_, X> {}

impl<E: Epilogue> Clone for EpilogueArgs<'_, E> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<E: Epilogue> Copy for EpilogueArgs<'_, E> {}

impl<X: Node> fmt::Debug for Tree<'_, X> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Tree({})", X::name())
    }
}

impl<E: Epilogue> fmt::Debug for EpilogueArgs<'_, E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "EpilogueArgs({})", E::emitter().name())
    }
}

/// A kernel's epilogue as a tree, if it is the tree that `made` gives for the kernel's store.
fn tree_of<X: Node>(
    kernel: &AnyGemm,
    name: impl FnOnce() -> String,
    made: impl FnOnce(StoreSpec) -> Treed<X>,
) -> Result<Treed<X>, LaunchError> {
    let (tree, epilogue) = (kernel.epilogue.store().map(made), kernel.epilogue.name());
    tree.filter(|tree| EpilogueEmitter::name(tree) == epilogue)
        .ok_or_else(|| LaunchError::OtherTree { epilogue, tree: name() })
}

impl<X: Node> Tree<'_, X> {
    fn of(kernel: &AnyGemm) -> Result<Treed<X>, LaunchError> {
        tree_of(kernel, X::name, Treed::<X>::new)
    }
}

impl<X: Node> Visited for Tree<'_, X> {}

impl<X: Node> EpilogueArguments for Tree<'_, X> {
    fn admits(&self, kernel: &AnyGemm, _product: Shape) -> Result<(), LaunchError> {
        Self::of(kernel).map(|_| ())
    }

    fn check(&self, kernel: &AnyGemm, product: Shape, path: &Path<'_>) -> Result<(), LaunchError> {
        Ok(Self::of(kernel)?.check(self.0, product, path)?)
    }

    fn parameters(&self, kernel: &AnyGemm, d: Output) -> Vec<Argument> {
        Self::of(kernel).map_or_else(|_| Vec::new(), |tree| tree.parameters(&kernel.plan, self.0, d))
    }
}

/// The kernel's epilogue as the tree of a formula with these arguments.
fn formula_of(kernel: &AnyGemm, given: &FormulaArguments) -> Result<Treed<AnyNode>, LaunchError> {
    tree_of(kernel, || given.tree().name().to_owned(), |store| Treed::lowered(given.tree(), store))
}

impl Visited for FormulaArguments {}

impl EpilogueArguments for FormulaArguments {
    fn admits(&self, kernel: &AnyGemm, _product: Shape) -> Result<(), LaunchError> {
        formula_of(kernel, self).map(|_| ())
    }

    fn check(&self, kernel: &AnyGemm, product: Shape, path: &Path<'_>) -> Result<(), LaunchError> {
        Ok(formula_of(kernel, self)?.check(self.nodes(), product, path)?)
    }

    fn parameters(&self, kernel: &AnyGemm, d: Output) -> Vec<Argument> {
        formula_of(kernel, self)
            .map_or_else(|_| Vec::new(), |tree| tree.parameters(&kernel.plan, self.nodes(), d))
    }
}

impl<E: Epilogue> Visited for EpilogueArgs<'_, E> {}

impl<E: Epilogue> EpilogueArguments for EpilogueArgs<'_, E> {
    fn admits(&self, kernel: &AnyGemm, _product: Shape) -> Result<(), LaunchError> {
        let (epilogue, own) = (kernel.epilogue.name(), E::emitter().name());
        if own == epilogue { Ok(()) } else { Err(LaunchError::OtherTree { epilogue, tree: own }) }
    }

    fn check(&self, kernel: &AnyGemm, product: Shape, path: &Path<'_>) -> Result<(), LaunchError> {
        self.admits(kernel, product)?;
        Ok(E::check(self.0, product, path)?)
    }

    fn parameters(&self, kernel: &AnyGemm, d: Output) -> Vec<Argument> {
        E::parameters(&kernel.plan, self.0, d)
    }
}
