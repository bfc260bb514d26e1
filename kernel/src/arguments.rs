//! Arguments of a kernel's epilogue, as a [`Call`](crate::Call) carries them.

use core::any::type_name;
use core::fmt;

use collective::operands::{Extents, Legal, MainloopArguments, Site, Visit};
use collective::tree::{AnyNode, Node, Shape};
use collective::{
    Epilogue, EpilogueEmitter, Format, FormulaArguments, LinearArguments, Matrix, MatrixRef, Output,
    StoreSpec, Treed,
};
use ptx::abi::Argument;

use crate::error::LaunchError;
use crate::gemm::AnyGemm;
use crate::matrix_rule::check_c;

/// Arguments of an epilogue.
pub trait Visited {
    /// Visits every part, for the extents of D in a format, in a launch of `products` GEMMs.
    fn visit(&mut self, d: Extents, of: (Format, u32), visit: &mut dyn Visit);

    /// Visits arguments of the mainloop, as [`MainloopArguments::visit`]. By default there are none.
    fn visit_mainloop(&mut self, _problem: [u32; 3], _visit: &mut dyn Visit) {}
}

impl Visited for () {
    fn visit(&mut self, _: Extents, _: (Format, u32), _: &mut dyn Visit) {}
}

impl Visited for LinearArguments {
    fn visit(&mut self, d: Extents, (format, _): (Format, u32), visit: &mut dyn Visit) {
        Self::visit(self, d, format, visit);
    }
}

/// Arguments of an epilogue: [`LinearArguments`] (alpha, beta and C), a formula's ([`FormulaArguments`]), a
/// [`Tree`]'s, or those of an epilogue of your [`EpilogueArgs`]. [`WithMainloop`] adds arguments of a mainloop of your own.
pub trait Arguments: Visited {
    /// The same arguments as alpha, beta and C, if they are that. By default they are not.
    fn linear(&self) -> Option<&LinearArguments> {
        None
    }

    /// The same, to be changed. Whoever implements one implements both.
    fn linear_mut(&mut self) -> Option<&mut LinearArguments> {
        None
    }

    /// Whether A and B are read: unless alpha is 0.
    fn multiplied(&self) -> bool {
        self.linear().is_none_or(LinearArguments::multiplied)
    }

    /// The same arguments with another C, if they have one. Used where records in device memory hold C's
    /// address.
    #[must_use]
    fn with_c(mut self, c: MatrixRef) -> Self
    where
        Self: Sized,
    {
        if let Some(linear) = self.linear_mut() {
            linear.c = Some(c);
        }
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
    fn check(&self, kernel: &AnyGemm, product: Shape) -> Result<(), LaunchError>;

    /// Values of the epilogue's parameters; empty for a kernel with another epilogue.
    fn parameters(&self, kernel: &AnyGemm, d: Output) -> Vec<Argument>;

    /// Values of the mainloop's parameters for these operands, checked. By default, with the mainloop's default
    /// arguments.
    ///
    /// # Errors
    /// The mainloop refuses its arguments, or the kernel has another mainloop.
    fn operands(&self, kernel: &AnyGemm, operands: [Matrix; 2]) -> Result<Vec<Argument>, LaunchError> {
        kernel.default_operands(operands)
    }
}

impl Arguments for LinearArguments {
    fn linear(&self) -> Option<&LinearArguments> {
        Some(self)
    }

    fn linear_mut(&mut self) -> Option<&mut LinearArguments> {
        Some(self)
    }

    fn admits(&self, kernel: &AnyGemm, product: Shape) -> Result<(), LaunchError> {
        if kernel.epilogue.linear().is_none() {
            return Err(LaunchError::NotLinear { epilogue: kernel.epilogue.name() });
        }
        check_c(self, kernel.plan.epilogue.output.bits(), [product.m, product.n])
    }

    fn check(&self, kernel: &AnyGemm, product: Shape) -> Result<(), LaunchError> {
        self.admits(kernel, product)?;
        let Some(host) = kernel.epilogue.linear() else { return Ok(()) };
        Ok(Legal::check(|visit| host.visit(&mut { *self }, product, &mut Site::root(1, visit)))?)
    }

    fn parameters(&self, kernel: &AnyGemm, d: Output) -> Vec<Argument> {
        kernel.epilogue.linear().map_or_else(Vec::new, |host| host.parameters(&kernel.plan, self, d))
    }
}

/// Stand-in for arguments that are not known yet, of any epilogue. The rest of a call can be checked with it;
/// nothing can be launched.
#[derive(Clone, Copy, Debug)]
pub(crate) struct UnknownArguments;

impl Visited for UnknownArguments {
    fn visit(&mut self, _: Extents, _: (Format, u32), _: &mut dyn Visit) {}
}

impl Arguments for UnknownArguments {
    fn admits(&self, _kernel: &AnyGemm, _product: Shape) -> Result<(), LaunchError> {
        Ok(())
    }

    fn check(&self, _kernel: &AnyGemm, _product: Shape) -> Result<(), LaunchError> {
        Ok(())
    }

    fn parameters(&self, _kernel: &AnyGemm, _d: Output) -> Vec<Argument> {
        Vec::new()
    }
}

/// Arguments of the epilogue tree `X`, for a kernel that has this tree with any store.
pub struct Tree<X: Node>(pub X::Arguments);

/// Arguments of the epilogue `E`, also of one of your own.
pub struct EpilogueArgs<E: Epilogue>(pub E::Arguments);

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
    fn visit(&mut self, d: Extents, of: (Format, u32), visit: &mut dyn Visit) {
        self.epilogue.visit(d, of, visit);
    }

    fn visit_mainloop(&mut self, problem: [u32; 3], visit: &mut dyn Visit) {
        self.mainloop.visit(problem, visit);
    }
}

impl<A: MainloopArguments, E: Arguments> Arguments for WithMainloop<A, E> {
    fn linear(&self) -> Option<&LinearArguments> {
        self.epilogue.linear()
    }

    fn linear_mut(&mut self) -> Option<&mut LinearArguments> {
        self.epilogue.linear_mut()
    }

    fn admits(&self, kernel: &AnyGemm, product: Shape) -> Result<(), LaunchError> {
        self.epilogue.admits(kernel, product)
    }

    fn check(&self, kernel: &AnyGemm, product: Shape) -> Result<(), LaunchError> {
        self.epilogue.check(kernel, product)
    }

    fn parameters(&self, kernel: &AnyGemm, d: Output) -> Vec<Argument> {
        self.epilogue.parameters(kernel, d)
    }

    fn operands(&self, kernel: &AnyGemm, operands: [Matrix; 2]) -> Result<Vec<Argument>, LaunchError> {
        kernel.operands_with(&self.mainloop, operands)
    }
}

impl<X: Node> Clone for Tree<X> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<E: Epilogue> Clone for EpilogueArgs<E> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<X: Node> fmt::Debug for Tree<X> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Tree({})", X::name())
    }
}

impl<E: Epilogue> fmt::Debug for EpilogueArgs<E> {
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

impl<X: Node> Tree<X> {
    fn of(kernel: &AnyGemm) -> Result<Treed<X>, LaunchError> {
        tree_of(kernel, X::name, Treed::<X>::new)
    }
}

/// The root of a tree in a launch of `products` GEMMs, and the shape of a D with these extents.
fn root<'a>(d: Extents, products: u32, visit: &'a mut dyn Visit) -> (Shape, Site<'a>) {
    // D has fewer than 2^31 columns.
    (Shape { m: d.lines, n: d.length as u32 }, Site::root(products, visit))
}

impl<X: Node> Visited for Tree<X> {
    fn visit(&mut self, d: Extents, (_, products): (Format, u32), visit: &mut dyn Visit) {
        let (shape, mut site) = root(d, products, visit);
        X::visit(&mut self.0, shape, &mut site);
    }
}

impl<X: Node> Arguments for Tree<X> {
    fn admits(&self, kernel: &AnyGemm, _product: Shape) -> Result<(), LaunchError> {
        Self::of(kernel).map(|_| ())
    }

    fn check(&self, kernel: &AnyGemm, product: Shape) -> Result<(), LaunchError> {
        let tree = Self::of(kernel)?;
        Ok(Legal::check(|visit| tree.visit(&mut self.0.clone(), product, &mut Site::root(1, visit)))?)
    }

    fn parameters(&self, kernel: &AnyGemm, d: Output) -> Vec<Argument> {
        Self::of(kernel).map_or_else(|_| Vec::new(), |tree| tree.parameters(&kernel.plan, &self.0, d))
    }
}

/// The kernel's epilogue as the tree of a formula with these arguments.
fn formula_of(kernel: &AnyGemm, given: &FormulaArguments) -> Result<Treed<AnyNode>, LaunchError> {
    tree_of(kernel, || given.tree().name().to_owned(), |store| Treed::lowered(given.tree(), store))
}

impl Visited for FormulaArguments {
    fn visit(&mut self, d: Extents, (_, products): (Format, u32), visit: &mut dyn Visit) {
        let (shape, mut site) = root(d, products, visit);
        AnyNode::visit(self.nodes_mut(), shape, &mut site);
    }
}

impl Arguments for FormulaArguments {
    fn admits(&self, kernel: &AnyGemm, _product: Shape) -> Result<(), LaunchError> {
        formula_of(kernel, self).map(|_| ())
    }

    fn check(&self, kernel: &AnyGemm, product: Shape) -> Result<(), LaunchError> {
        let (tree, mut nodes) = (formula_of(kernel, self)?, self.nodes().clone());
        Ok(Legal::check(|visit| tree.visit(&mut nodes, product, &mut Site::root(1, visit)))?)
    }

    fn parameters(&self, kernel: &AnyGemm, d: Output) -> Vec<Argument> {
        formula_of(kernel, self)
            .map_or_else(|_| Vec::new(), |tree| tree.parameters(&kernel.plan, self.nodes(), d))
    }
}

impl<E: Epilogue> Visited for EpilogueArgs<E> {
    fn visit(&mut self, d: Extents, (_, products): (Format, u32), visit: &mut dyn Visit) {
        let (Shape { m, n }, mut site) = root(d, products, visit);
        E::visit(&mut self.0, Shape { m, n: n << E::SPEC.halvings }, &mut site);
    }
}

impl<E: Epilogue> Arguments for EpilogueArgs<E> {
    fn linear(&self) -> Option<&LinearArguments> {
        E::linear(&self.0)
    }

    fn linear_mut(&mut self) -> Option<&mut LinearArguments> {
        E::linear_mut(&mut self.0)
    }

    fn admits(&self, kernel: &AnyGemm, _product: Shape) -> Result<(), LaunchError> {
        let (epilogue, own) = (kernel.epilogue.name(), E::emitter().name());
        if own == epilogue { Ok(()) } else { Err(LaunchError::OtherTree { epilogue, tree: own }) }
    }

    fn check(&self, kernel: &AnyGemm, product: Shape) -> Result<(), LaunchError> {
        self.admits(kernel, product)?;
        let own = &mut self.0.clone();
        Ok(Legal::check(|visit| E::visit(own, product, &mut Site::root(1, visit)))?)
    }

    fn parameters(&self, kernel: &AnyGemm, d: Output) -> Vec<Argument> {
        E::parameters(&kernel.plan, &self.0, d)
    }
}

impl AnyGemm {
    /// Values of the mainloop's parameters for these operands, with its default arguments.
    fn default_operands(&self, operands: [Matrix; 2]) -> Result<Vec<Argument>, LaunchError> {
        let known = self.mainloop_type.as_ref();
        // A built-in mainloop has no arguments of its own.
        let built_in = || Ok(self.mainloop.arguments(&self.plan, operands[0], operands[1]));
        known.and_then(|known| (known.operands)(&self.plan, None, operands)).unwrap_or_else(built_in)
    }

    /// The same with arguments of the mainloop's own.
    fn operands_with<A: MainloopArguments>(
        &self,
        own: &A,
        operands: [Matrix; 2],
    ) -> Result<Vec<Argument>, LaunchError> {
        let known = self.mainloop_type.as_ref();
        known.and_then(|known| (known.operands)(&self.plan, Some(own), operands)).unwrap_or_else(|| {
            let mainloop = self.mainloop.name(&self.plan.mainloop);
            Err(LaunchError::OtherMainloop { mainloop, given: type_name::<A>() })
        })
    }
}
