//! Random arguments for epilogues.
//!
//! ```
//! use falchion::collective::functions::Add;
//! use falchion::collective::tree::{Accumulator, Compute, RowVector, Shape};
//! use falchion::prelude::*;
//! use falchion::verify::{Bench, Sample};
//!
//! let mut emulator = Emulator::new();
//! let mut bench = Bench::new(&mut emulator, 1);
//! type Biased = Compute<Add, (Accumulator, RowVector<bf16>)>;
//! let ((), ((), bias)) = Biased::sample(&mut bench, Shape { m: 70, n: 40 })?;
//! assert_eq!(bias.len, 40);
//! # Ok::<(), falchion::kernel::EngineError>(())
//! ```

use collective::tree::{Distance, DropoutArgument, ResidualArgument, Scratch, Shape, Supplied, Supply};
use collective::{Arithmetic, Formula, FormulaArguments, MatrixRef};
use kernel::EngineError;

use super::{Bench, Format};

/// A tree for which random arguments can be drawn.
pub trait Sample: Supplied {
    /// Draws arguments for a value of this shape: vectors and matrices of random numbers, uploaded to the
    /// bench's engine.
    ///
    /// # Errors
    /// The engine fails.
    fn sample(bench: &mut Bench<'_>, shape: Shape) -> Result<Self::Arguments, EngineError> {
        Drawn::by(bench, Arithmetic::F32, |drawn| Self::supply(drawn, shape))
    }
}

impl<X: Supplied> Sample for X {}

impl Bench<'_> {
    /// As [`Sample::sample`], for a formula. `operand` is the format of A and B.
    ///
    /// # Errors
    /// The engine fails.
    pub fn sample(
        &mut self,
        formula: Formula,
        operand: collective::Format,
        shape: Shape,
    ) -> Result<FormulaArguments, EngineError> {
        let arithmetic = formula.lowered(operand).arithmetic();
        Drawn::by(self, arithmetic, |drawn| formula.draw(operand, shape, drawn))
    }
}

/// Random arguments, uploaded to a bench's engine.
struct Drawn<'b, 'e> {
    bench: &'b mut Bench<'e>,
    arithmetic: Arithmetic,
    /// The first failure of the engine.
    error: Option<EngineError>,
}

impl<'b, 'e> Drawn<'b, 'e> {
    fn by<T>(
        bench: &'b mut Bench<'e>,
        arithmetic: Arithmetic,
        supply: impl FnOnce(&mut Self) -> T,
    ) -> Result<T, EngineError> {
        let mut drawn = Self { bench, arithmetic, error: None };
        let arguments = supply(&mut drawn);
        drawn.error.map_or(Ok(arguments), Err)
    }

    /// A number of the host; an integer, if that is needed, and one that `f32` has not, if it is taken in `f64`.
    fn number(&mut self) -> f64 {
        let number = f64::from(self.bench.number());
        match self.arithmetic {
            Arithmetic::S32 => (number * 4.0).round(),
            Arithmetic::F32 => number,
            Arithmetic::F64 => number / 3.0,
        }
    }

    fn kept<T>(&mut self, result: Result<T, EngineError>, other: T) -> T {
        result.unwrap_or_else(|error| {
            self.error.get_or_insert(error);
            other
        })
    }
}

fn named(format: collective::Format) -> Format {
    Format::named(format.name()).unwrap_or(Format::Bf16)
}

impl Supply for Drawn<'_, '_> {
    fn scalars(&mut self, names: &[&str], values: &mut [f64]) {
        values.fill_with(|| self.number());
        if names == ["low", "high"] {
            values.sort_by(f64::total_cmp);
        }
    }

    /// The first element is up to two elements after an aligned address.
    fn vector(&mut self, format: collective::Format, len: u32) -> u64 {
        let shift = self.bench.shift();
        let address = self.bench.random(named(format), len, shift);
        self.kept(address, 0)
    }

    /// There are up to two elements between rows.
    fn matrix(&mut self, format: collective::Format, Shape { m, n }: Shape) -> MatrixRef {
        let ld = n + self.bench.shift();
        let shift = self.bench.shift();
        let address = self.bench.random(named(format), m * ld, shift);
        MatrixRef::new(self.kept(address, 0), ld.into())
    }

    fn residual(&mut self, format: collective::Format, shape: Shape) -> ResidualArgument {
        if self.bench.omits() {
            return ResidualArgument::default();
        }
        ResidualArgument { beta: self.number(), c: Some(self.matrix(format, shape)) }
    }

    fn output(&mut self, format: collective::Format, Shape { m, n }: Shape) -> MatrixRef {
        let ld = n + self.bench.shift();
        let address = self.bench.output(m as usize * ld as usize * format.bytes() as usize);
        MatrixRef::new(self.kept(address, 0), ld.into())
    }

    /// Initial values that do not change a reduction's result.
    fn reduced(&mut self, identity: f32, len: u32) -> u64 {
        let address = self.bench.upload(&identity.to_le_bytes().repeat(len as usize));
        self.kept(address, 0)
    }

    fn scratch(&mut self, bytes: u64) -> Scratch {
        let scratch = self.bench.scratch(bytes);
        self.kept(scratch, Scratch { address: 0, bytes: 0 })
    }

    fn dropout(&mut self) -> DropoutArgument {
        let mut word =
            || u64::from(self.bench.choose(u32::MAX)) << 32 | u64::from(self.bench.choose(u32::MAX));
        let (seed, offset) = (word(), word());
        let probability = [0.0, 0.1, 0.5][self.bench.choose(3) as usize];
        DropoutArgument { probability, seed, offset }
    }

    /// All GEMMs share the data of the first.
    fn distance(&mut self) -> Distance {
        Distance::default()
    }
}
