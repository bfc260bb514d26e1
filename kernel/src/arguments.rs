//! Arguments of a kernel's epilogue, as a call carries them.

use core::fmt;

use collective::tree::{Node, Path, Shape};
use collective::{Epilogue, EpilogueEmitter, LinearArguments, MatrixRef, Output, Treed};
use ptx::abi::Argument;

use crate::check::check_c;
use crate::error::LaunchError;
use crate::gemm::AnyGemm;

/// Arguments of an epilogue: [`LinearArguments`], those of a [`Tree`], or those of an epilogue of your [`Own`].
pub trait Arguments: Given {}

impl<T: Given> Arguments for T {}

/// What a launch asks them.
pub trait Given {
    /// Whether A and B are read.
    fn multiplied(&self) -> bool {
        true
    }

    /// The same for a product whose C, if it reads one, is this: records say where it lies.
    fn with_c(self, _c: MatrixRef) -> Self
    where
        Self: Sized,
    {
        self
    }

    /// Whether the kernel's epilogue takes them, whatever the product.
    ///
    /// # Errors
    /// It does not.
    fn admits(&self, kernel: &AnyGemm, product: Shape) -> Result<(), LaunchError>;

    /// Whether the kernel has them, and they are legal for a product of this shape.
    ///
    /// # Errors
    /// The first that is not.
    fn check(&self, kernel: &AnyGemm, product: Shape, path: &Path<'_>) -> Result<(), LaunchError>;

    /// The values of the epilogue's parameters; none for a kernel of another epilogue.
    fn parameters(&self, kernel: &AnyGemm, d: Output) -> Vec<Argument>;

    /// The same, if all of them are linear.
    fn linear(&self) -> Option<&LinearArguments> {
        None
    }
}

impl Given for LinearArguments {
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

/// Arguments that nobody knows yet, of any epilogue: the rest of a call can be checked with them, and nothing launched.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Whatever;

impl Given for Whatever {
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

/// Arguments of the tree `X`, for a kernel that has it, however it stores.
pub struct Tree<'a, X: Node>(pub &'a X::Arguments);

/// Arguments of the epilogue `E`, one of your own among them.
pub struct Own<'a, E: Epilogue>(pub &'a E::Arguments);

impl<X: Node> Clone for Tree<'_, X> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<X: Node> Copy for Tree<'_, X> {}

impl<E: Epilogue> Clone for Own<'_, E> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<E: Epilogue> Copy for Own<'_, E> {}

impl<X: Node> fmt::Debug for Tree<'_, X> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Tree({})", X::name())
    }
}

impl<E: Epilogue> fmt::Debug for Own<'_, E> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Own({})", E::emitter().name())
    }
}

impl<X: Node> Tree<'_, X> {
    fn of(kernel: &AnyGemm) -> Result<Treed<X>, LaunchError> {
        let tree = kernel.epilogue.store().map(Treed::<X>::new);
        tree.filter(|tree| EpilogueEmitter::name(tree) == kernel.epilogue.name())
            .ok_or_else(|| LaunchError::OtherTree { epilogue: kernel.epilogue.name(), tree: X::name() })
    }
}

impl<X: Node> Given for Tree<'_, X> {
    fn admits(&self, kernel: &AnyGemm, _product: Shape) -> Result<(), LaunchError> {
        Self::of(kernel).map(|_| ())
    }

    fn check(&self, kernel: &AnyGemm, product: Shape, path: &Path<'_>) -> Result<(), LaunchError> {
        self.admits(kernel, product)?;
        Ok(Treed::<X>::check(self.0, product, path)?)
    }

    fn parameters(&self, kernel: &AnyGemm, d: Output) -> Vec<Argument> {
        Self::of(kernel).map_or_else(|_| Vec::new(), |tree| tree.parameters(&kernel.plan, self.0, d))
    }
}

impl<E: Epilogue> Given for Own<'_, E> {
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
