//! The arguments of an epilogue that is linear or a formula.

use collective::operands::Visit;
use collective::tree::{Distance, DropoutArgument, ResidualArgument, Scratch, Shape, Supply};
use collective::{Arithmetic, Format, Formula, FormulaArguments, LinearArguments, MatrixRef};

use super::{Arguments, EpilogueOf, Visited};
use crate::error::LaunchError;
use crate::gemm::AnyGemm;

/// The arguments of an epilogue that is linear or a formula.
#[derive(Clone, Debug, PartialEq)]
pub enum GemmArguments {
    /// Alpha, beta and C.
    Linear(LinearArguments),
    /// Those of a formula.
    Formula(FormulaArguments),
}

impl GemmArguments {
    /// Those of a formula for operands of a format and a D of this shape: some numbers, and packed vectors and matrices at addresses of
    /// no memory.
    pub fn of(formula: Formula, operand: Format, shape: Shape) -> Self {
        let arithmetic = formula.lowered(operand).arithmetic();
        Self::Formula(formula.draw(operand, shape, &mut Packed { arithmetic, numbers: 0 }))
    }
}

/// Numbers of the host one after the other, and packed memory at address 0.
struct Packed {
    arithmetic: Arithmetic,
    numbers: usize,
}

impl Packed {
    /// An integer where that is needed, and a number that `f32` has not where it is taken in `f64`.
    fn number(&mut self) -> f64 {
        let number: f64 = [0.75, 1.5, -1.25, 0.5][self.numbers % 4];
        self.numbers += 1;
        match self.arithmetic {
            Arithmetic::S32 => (number * 4.0).round(),
            Arithmetic::F32 => number,
            Arithmetic::F64 => number / 3.0,
        }
    }
}

impl Supply for Packed {
    fn scalars(&mut self, names: &[&str], values: &mut [f64]) {
        values.fill_with(|| self.number());
        if names == ["low", "high"] {
            values.sort_by(f64::total_cmp);
        }
    }

    fn vector(&mut self, _format: Format, _len: u32) -> u64 {
        0
    }

    fn matrix(&mut self, _format: Format, shape: Shape) -> MatrixRef {
        MatrixRef::new(0, shape.n.into())
    }

    fn residual(&mut self, format: Format, shape: Shape) -> ResidualArgument {
        ResidualArgument { beta: self.number(), c: Some(self.matrix(format, shape)) }
    }

    fn output(&mut self, format: Format, shape: Shape) -> MatrixRef {
        self.matrix(format, shape)
    }

    fn reduced(&mut self, _identity: f32, _len: u32) -> u64 {
        0
    }

    fn scratch(&mut self, bytes: u64) -> Scratch {
        Scratch { address: 0, bytes }
    }

    fn dropout(&mut self) -> DropoutArgument {
        DropoutArgument { probability: 0.25, seed: 7, offset: 11 }
    }

    fn distance(&mut self) -> Distance {
        Distance::default()
    }
}

impl From<LinearArguments> for GemmArguments {
    fn from(linear: LinearArguments) -> Self {
        Self::Linear(linear)
    }
}

impl Visited for GemmArguments {
    fn visit(&mut self, of: &EpilogueOf<'_>, visit: &mut dyn Visit) {
        match self {
            Self::Linear(linear) => Visited::visit(linear, of, visit),
            Self::Formula(formula) => formula.visit(of, visit),
        }
    }
}

impl Arguments for GemmArguments {
    fn linear(&self) -> Option<&LinearArguments> {
        if let Self::Linear(linear) = self { Some(linear) } else { None }
    }

    fn linear_mut(&mut self) -> Option<&mut LinearArguments> {
        if let Self::Linear(linear) = self { Some(linear) } else { None }
    }

    fn admits(&self, kernel: &AnyGemm, product: Shape) -> Result<(), LaunchError> {
        match self {
            Self::Linear(linear) => linear.admits(kernel, product),
            Self::Formula(formula) => formula.admits(kernel, product),
        }
    }

    fn check(&self, kernel: &AnyGemm, product: Shape) -> Result<(), LaunchError> {
        match self {
            Self::Linear(linear) => linear.check(kernel, product),
            Self::Formula(formula) => formula.check(kernel, product),
        }
    }
}
