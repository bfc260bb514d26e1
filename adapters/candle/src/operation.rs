//! Operations on tensors in one place, as candle's custom operations.

#[cfg(feature = "cuda")]
use candle_core::CudaStorage;
use candle_core::{CpuStorage, CustomOp1, CustomOp2, CustomOp3, Error, Layout, Result, Shape, Tensor};

use crate::plain::{Owned, Part, Stored};

/// An operation on `N` tensors, which are in the host's memory, or on one card.
pub(crate) trait Operation<const N: usize>: Send + Sync {
    const NAME: &'static str;

    /// The result, and its shape.
    fn run(&self, tensors: [Part<'_>; N]) -> Result<(Owned, Shape)>;

    /// The gradients of the tensors, from the result and its gradient.
    fn gradients(
        &self,
        _tensors: [&Tensor; N],
        _result: &Tensor,
        _grad: &Tensor,
    ) -> Result<[Option<Tensor>; N]> {
        Err(Error::BackwardNotSupported { op: Self::NAME })
    }
}

/// An operation for candle.
pub(crate) struct Of<T>(pub(crate) T);

impl<T> Of<T> {
    fn on_host<const N: usize>(&self, tensors: [(&CpuStorage, &Layout); N]) -> Result<(CpuStorage, Shape)>
    where
        T: Operation<N>,
    {
        let (result, shape) = self.0.run(tensors.map(|(of, layout)| (Stored::Host(of), layout)))?;
        Ok((result.host()?, shape))
    }

    #[cfg(feature = "cuda")]
    fn on_card<const N: usize>(&self, tensors: [(&CudaStorage, &Layout); N]) -> Result<(CudaStorage, Shape)>
    where
        T: Operation<N>,
    {
        let (result, shape) = self.0.run(tensors.map(|(of, layout)| (Stored::Card(of), layout)))?;
        Ok((result.card()?, shape))
    }
}

impl<T: Operation<1>> CustomOp1 for Of<T> {
    fn name(&self) -> &'static str {
        T::NAME
    }

    fn cpu_fwd(&self, a: &CpuStorage, of_a: &Layout) -> Result<(CpuStorage, Shape)> {
        self.on_host([(a, of_a)])
    }

    #[cfg(feature = "cuda")]
    fn cuda_fwd(&self, a: &CudaStorage, of_a: &Layout) -> Result<(CudaStorage, Shape)> {
        self.on_card([(a, of_a)])
    }
}

impl<T: Operation<2>> CustomOp2 for Of<T> {
    fn name(&self) -> &'static str {
        T::NAME
    }

    fn cpu_fwd(
        &self,
        a: &CpuStorage,
        of_a: &Layout,
        b: &CpuStorage,
        of_b: &Layout,
    ) -> Result<(CpuStorage, Shape)> {
        self.on_host([(a, of_a), (b, of_b)])
    }

    #[cfg(feature = "cuda")]
    fn cuda_fwd(
        &self,
        a: &CudaStorage,
        of_a: &Layout,
        b: &CudaStorage,
        of_b: &Layout,
    ) -> Result<(CudaStorage, Shape)> {
        self.on_card([(a, of_a), (b, of_b)])
    }

    fn bwd(
        &self,
        a: &Tensor,
        b: &Tensor,
        result: &Tensor,
        grad: &Tensor,
    ) -> Result<(Option<Tensor>, Option<Tensor>)> {
        self.0.gradients([a, b], result, grad).map(Into::into)
    }
}

impl<T: Operation<3>> CustomOp3 for Of<T> {
    fn name(&self) -> &'static str {
        T::NAME
    }

    fn cpu_fwd(
        &self,
        a: &CpuStorage,
        of_a: &Layout,
        b: &CpuStorage,
        of_b: &Layout,
        c: &CpuStorage,
        of_c: &Layout,
    ) -> Result<(CpuStorage, Shape)> {
        self.on_host([(a, of_a), (b, of_b), (c, of_c)])
    }

    #[cfg(feature = "cuda")]
    fn cuda_fwd(
        &self,
        a: &CudaStorage,
        of_a: &Layout,
        b: &CudaStorage,
        of_b: &Layout,
        c: &CudaStorage,
        of_c: &Layout,
    ) -> Result<(CudaStorage, Shape)> {
        self.on_card([(a, of_a), (b, of_b), (c, of_c)])
    }

    fn bwd(
        &self,
        a: &Tensor,
        b: &Tensor,
        c: &Tensor,
        result: &Tensor,
        grad: &Tensor,
    ) -> Result<(Option<Tensor>, Option<Tensor>, Option<Tensor>)> {
        self.0.gradients([a, b, c], result, grad).map(Into::into)
    }
}
