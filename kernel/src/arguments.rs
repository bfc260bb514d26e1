//! Arguments of a kernel's epilogue, as a [`Call`](crate::Call) carries them.

mod gemm;

use core::any::{Any, type_name};
use core::fmt;

use collective::operands::{Extents, Legal, OwnSite, Site, Visit};
use collective::tree::{AnyNode, Node, Shape};
use collective::{
    Epilogue, EpilogueSite, Format, FormulaArguments, LinearArguments, Matrix, MatrixRef, Output, StoreSpec,
    Treed,
};

use scheduler::{TileScheduler, Tiles};

use crate::error::LaunchError;
use crate::gemm::AnyGemm;
use crate::matrix_rule::check_c;
use crate::scheduled::Given;

pub use gemm::GemmArguments;

/// For what the arguments of a call's epilogue are visited.
#[derive(Clone, Copy, Debug)]
pub struct EpilogueOf<'a> {
    /// The extents of D.
    pub d: Extents,
    /// D's format.
    pub format: Format,
    /// Number of GEMMs.
    pub products: u32,
    /// The kernel whose parameters are stated; `None` if none is chosen yet.
    pub gemm: Option<&'a AnyGemm>,
    /// D, if a launch is made.
    pub output: Option<Output>,
}

impl EpilogueOf<'_> {
    /// A GEMM of this shape, without a launch.
    fn of_shape(gemm: &AnyGemm, Shape { m, n }: Shape) -> EpilogueSite<'_> {
        let (columns, bits) = (n >> gemm.plan.epilogue.halvings, gemm.plan.epilogue.output.bits());
        let d = Extents { lines: m, ..Extents::line(bits, columns.into()) };
        EpilogueSite { d, n: Some(n), plan: None, output: None }
    }

    fn site(&self) -> EpilogueSite<'_> {
        EpilogueSite { d: self.d, n: None, plan: self.gemm.map(|gemm| &gemm.plan), output: self.output }
    }
}

/// Arguments of an epilogue.
pub trait Visited {
    /// Visits every part. For a kernel, it also states the epilogue's parameters.
    fn visit(&mut self, of: &EpilogueOf<'_>, visit: &mut dyn Visit);

    /// Arguments of the mainloop. By default there are none, and the mainloop's default ones are visited.
    fn mainloop(&mut self) -> Option<&mut dyn Any> {
        None
    }

    /// Visits what the kernel's scheduler gets, as [`TileScheduler::visit`]. By default nothing is given: addresses are 0.
    fn visit_scheduler(&mut self, gemm: &AnyGemm, tiles: Tiles<u32>, visit: &mut dyn Visit) {
        gemm.scheduler.visit(tiles, &mut Given(visit));
    }
}

impl Visited for () {
    fn visit(&mut self, _: &EpilogueOf<'_>, _: &mut dyn Visit) {}
}

impl Visited for LinearArguments {
    fn visit(&mut self, of: &EpilogueOf<'_>, visit: &mut dyn Visit) {
        match of.gemm.and_then(|gemm| gemm.epilogue.linear()) {
            Some(linear) => linear.visit(self, &of.site(), &mut Site::root(of.products, visit)),
            None => Self::visit(self, of.d, of.format, visit),
        }
    }
}

/// Arguments of an epilogue: [`LinearArguments`] (alpha, beta and C), a formula's ([`FormulaArguments`]), a
/// [`Tree`]'s, or those of an epilogue of your own ([`EpilogueArgs`]). [`WithRole`] adds arguments of a mainloop or a scheduler of your own.
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

    /// Checks arguments of the mainloop for these operands. By default, the mainloop's default arguments.
    ///
    /// # Errors
    /// The mainloop refuses its arguments, or the kernel has another mainloop.
    fn check_mainloop(&self, kernel: &AnyGemm, operands: [Matrix; 2]) -> Result<(), LaunchError> {
        kernel.check_mainloop(None, "none", operands)
    }

    /// Checks what the kernel's scheduler gets for these tiles. By default nothing is given.
    ///
    /// # Errors
    /// It needs something, or the kernel has another scheduler.
    fn check_scheduler(&self, kernel: &AnyGemm, tiles: Tiles<u32>) -> Result<(), LaunchError> {
        kernel.check_words(|visit| kernel.scheduler.visit(tiles, visit))
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
        let of = EpilogueOf::of_shape(kernel, product);
        Ok(Legal::check(|visit| host.visit(&mut { *self }, &of, &mut Site::root(1, visit)))?)
    }
}

/// Stand-in for arguments that are not known yet, of any epilogue. The rest of a call can be checked with it, and a program has the
/// parameters that are stated of it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct UnknownArguments;

impl Visited for UnknownArguments {
    fn visit(&mut self, of: &EpilogueOf<'_>, visit: &mut dyn Visit) {
        if let Some(gemm) = of.gemm {
            gemm.epilogue.state(&of.site(), visit);
        }
    }
}

impl Arguments for UnknownArguments {
    fn admits(&self, _kernel: &AnyGemm, _product: Shape) -> Result<(), LaunchError> {
        Ok(())
    }

    fn check(&self, _kernel: &AnyGemm, _product: Shape) -> Result<(), LaunchError> {
        Ok(())
    }
}

/// Arguments of the epilogue tree `X`, for a kernel that has this tree with any store.
pub struct Tree<X: Node>(pub X::Arguments);

/// Arguments of the epilogue `E`, also of one of your own.
pub struct EpilogueArgs<E: Epilogue>(pub E::Arguments);

/// Arguments of an epilogue, and those of another role of your own: [`OfMainloop`] or [`OfScheduler`]. [`Call::with_mainloop`] and
/// [`Call::with_scheduler`] make it; with both, one is the other's `epilogue`.
///
/// [`Call::with_mainloop`]: crate::Call::with_mainloop
/// [`Call::with_scheduler`]: crate::Call::with_scheduler
#[derive(Clone, Debug)]
pub struct WithRole<R, E> {
    /// Arguments of the role.
    pub role: R,
    /// Arguments of the epilogue.
    pub epilogue: E,
}

/// Arguments of a mainloop of your own.
#[derive(Clone, Debug)]
pub struct OfMainloop<A>(pub A);

/// What a scheduler of your own gets: the kernel's scheduler, with its addresses.
#[derive(Clone, Debug)]
pub struct OfScheduler<S>(pub S);

/// Arguments of an epilogue, and those of a mainloop of your own.
pub type WithMainloop<A, E> = WithRole<OfMainloop<A>, E>;

/// Arguments of an epilogue, and what a scheduler of your own gets.
pub type WithScheduler<S, E> = WithRole<OfScheduler<S>, E>;

/// Arguments of a mainloop or of a scheduler. What a role does not say, the epilogue's arguments say.
pub trait RoleArguments {
    /// As [`Visited::mainloop`].
    fn mainloop(&mut self) -> Option<&mut dyn Any> {
        None
    }

    /// As [`Arguments::check_mainloop`].
    fn check_mainloop(&self, _kernel: &AnyGemm, _operands: [Matrix; 2]) -> Option<Result<(), LaunchError>> {
        None
    }

    /// The scheduler that [`Visited::visit_scheduler`] visits.
    fn visit_scheduler(&mut self, _tiles: Tiles<u32>, _visit: &mut dyn Visit) -> Option<()> {
        None
    }

    /// As [`Arguments::check_scheduler`].
    fn check_scheduler(&self, _kernel: &AnyGemm, _tiles: Tiles<u32>) -> Option<Result<(), LaunchError>> {
        None
    }
}

impl<A: Any> RoleArguments for OfMainloop<A> {
    fn mainloop(&mut self) -> Option<&mut dyn Any> {
        Some(&mut self.0)
    }

    fn check_mainloop(&self, kernel: &AnyGemm, operands: [Matrix; 2]) -> Option<Result<(), LaunchError>> {
        Some(kernel.check_mainloop(Some(&self.0), type_name::<A>(), operands))
    }
}

impl<S: TileScheduler> RoleArguments for OfScheduler<S> {
    fn visit_scheduler(&mut self, tiles: Tiles<u32>, visit: &mut dyn Visit) -> Option<()> {
        self.0.visit(tiles, &mut Given(visit));
        Some(())
    }

    fn check_scheduler(&self, kernel: &AnyGemm, tiles: Tiles<u32>) -> Option<Result<(), LaunchError>> {
        let [scheduler, given] = [kernel.scheduler.name(), self.0.name()];
        Some(if scheduler == given {
            kernel.check_words(|visit| self.0.clone().visit(tiles, visit))
        } else {
            Err(LaunchError::OtherScheduler { scheduler, given })
        })
    }
}

impl<R: RoleArguments, E: Visited> Visited for WithRole<R, E> {
    fn visit(&mut self, of: &EpilogueOf<'_>, visit: &mut dyn Visit) {
        self.epilogue.visit(of, visit);
    }

    fn mainloop(&mut self) -> Option<&mut dyn Any> {
        self.role.mainloop().or_else(|| self.epilogue.mainloop())
    }

    fn visit_scheduler(&mut self, gemm: &AnyGemm, tiles: Tiles<u32>, visit: &mut dyn Visit) {
        if self.role.visit_scheduler(tiles, visit).is_none() {
            self.epilogue.visit_scheduler(gemm, tiles, visit);
        }
    }
}

impl<R: RoleArguments, E: Arguments> Arguments for WithRole<R, E> {
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

    fn check_mainloop(&self, kernel: &AnyGemm, operands: [Matrix; 2]) -> Result<(), LaunchError> {
        let own = self.role.check_mainloop(kernel, operands);
        own.unwrap_or_else(|| self.epilogue.check_mainloop(kernel, operands))
    }

    fn check_scheduler(&self, kernel: &AnyGemm, tiles: Tiles<u32>) -> Result<(), LaunchError> {
        let own = self.role.check_scheduler(kernel, tiles);
        own.unwrap_or_else(|| self.epilogue.check_scheduler(kernel, tiles))
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
        write!(f, "EpilogueArgs({})", E::name())
    }
}

/// A kernel's epilogue as a tree, if it is the tree that `made` gives for the kernel's store.
fn tree_of<X: Node>(
    kernel: &AnyGemm,
    name: impl FnOnce() -> String,
    made: impl FnOnce(StoreSpec) -> Treed<X>,
) -> Result<Treed<X>, LaunchError> {
    let (tree, epilogue) = (kernel.epilogue.store().map(made), kernel.epilogue.name());
    tree.filter(|tree| tree.name() == epilogue)
        .ok_or_else(|| LaunchError::OtherTree { epilogue, tree: name() })
}

impl<X: Node> Tree<X> {
    fn of(kernel: &AnyGemm) -> Result<Treed<X>, LaunchError> {
        tree_of(kernel, X::name, Treed::<X>::new)
    }
}

impl<X: Node> Visited for Tree<X> {
    fn visit(&mut self, of: &EpilogueOf<'_>, visit: &mut dyn Visit) {
        let (to, site) = (of.site(), &mut Site::root(of.products, visit));
        match of.gemm.and_then(|gemm| Self::of(gemm).ok()) {
            Some(tree) => tree.visit(&mut self.0, &to, site),
            None => X::visit(&mut self.0, to.shape(), site),
        }
    }
}

impl<X: Node> Arguments for Tree<X> {
    fn admits(&self, kernel: &AnyGemm, _product: Shape) -> Result<(), LaunchError> {
        Self::of(kernel).map(|_| ())
    }

    fn check(&self, kernel: &AnyGemm, product: Shape) -> Result<(), LaunchError> {
        let tree = Self::of(kernel)?;
        let of = EpilogueOf::of_shape(kernel, product);
        Ok(Legal::check(|visit| tree.visit(&mut self.0.clone(), &of, &mut Site::root(1, visit)))?)
    }
}

/// The kernel's epilogue as the tree of a formula with these arguments.
fn formula_of(kernel: &AnyGemm, given: &FormulaArguments) -> Result<Treed<AnyNode>, LaunchError> {
    tree_of(kernel, || given.tree().name().to_owned(), |store| Treed::lowered(given.tree(), store))
}

impl Visited for FormulaArguments {
    fn visit(&mut self, of: &EpilogueOf<'_>, visit: &mut dyn Visit) {
        let (to, site) = (of.site(), &mut Site::root(of.products, visit));
        match of.gemm.and_then(|gemm| formula_of(gemm, self).ok()) {
            Some(tree) => tree.visit(self.nodes_mut(), &to, site),
            None => AnyNode::visit(self.nodes_mut(), to.shape(), site),
        }
    }
}

impl Arguments for FormulaArguments {
    fn admits(&self, kernel: &AnyGemm, _product: Shape) -> Result<(), LaunchError> {
        formula_of(kernel, self).map(|_| ())
    }

    fn check(&self, kernel: &AnyGemm, product: Shape) -> Result<(), LaunchError> {
        let (tree, mut nodes) = (formula_of(kernel, self)?, self.nodes().clone());
        let of = EpilogueOf::of_shape(kernel, product);
        Ok(Legal::check(|visit| tree.visit(&mut nodes, &of, &mut Site::root(1, visit)))?)
    }
}

impl<E: Epilogue> Visited for EpilogueArgs<E> {
    fn visit(&mut self, of: &EpilogueOf<'_>, visit: &mut dyn Visit) {
        E::visit(&mut self.0, &of.site(), &mut Site::root(of.products, visit));
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
        let (epilogue, own) = (kernel.epilogue.name(), E::name());
        if own == epilogue { Ok(()) } else { Err(LaunchError::OtherTree { epilogue, tree: own }) }
    }

    fn check(&self, kernel: &AnyGemm, product: Shape) -> Result<(), LaunchError> {
        self.admits(kernel, product)?;
        let (own, of) = (&mut self.0.clone(), EpilogueOf::of_shape(kernel, product));
        Ok(Legal::check(|visit| E::visit(own, &of, &mut Site::root(1, visit)))?)
    }
}

impl AnyGemm {
    /// Checks arguments of the mainloop's own, the default ones if there are none, for these operands.
    fn check_mainloop(
        &self,
        own: Option<&dyn Any>,
        given: &'static str,
        operands: [Matrix; 2],
    ) -> Result<(), LaunchError> {
        let ([a, b], mainloop) = (operands, self.mainloop.name(&self.plan.mainloop));
        let [m, n] = self.plan.oriented([a.mn, b.mn]);
        let of = OwnSite { problem: [m, n, a.k], plan: None, launched: false };
        match self.mainloop.check(own, &of, operands) {
            None => Err(LaunchError::OtherMainloop { mainloop, given }),
            Some(Ok(())) => Ok(()),
            Some(Err(reason)) => {
                Err(LaunchError::Mainloop { mainloop, arguments: self.mainloop.arguments(), reason })
            }
        }
    }
}
