//! `--scale-a` and `--scale-b`: scales from files, whose shapes say what they are scales of.

use falchion::verify::{Format, HostMatrix, Scales};
use kernel::GemmProblem;

use crate::Failure;
use crate::files::{self, Matrix};

/// What operands are multiplied by.
#[derive(Debug)]
pub(crate) struct Scaling {
    /// A factor of the product.
    pub(crate) factor: f32,
    /// The scales of A's blocks and of B's.
    pub(crate) blocks: Option<[Scales; 2]>,
}

/// Scales of one operand.
enum Kind {
    /// One for all of it.
    Number(f32),
    /// One for each block of some rows (columns of B) by 128 of K.
    Blocks(Scales),
}

impl Scaling {
    /// Reads the files that are given, for operands of such extents.
    pub(crate) fn read(
        [a, b]: [Option<&str>; 2],
        GemmProblem { m, n, k }: GemmProblem,
    ) -> Result<Self, Failure> {
        let a = a.map(|name| of_a(name, m, k)).transpose()?;
        let b = b.map(|name| of_b(name, n, k)).transpose()?;
        let number = |kind: &Option<Kind>| match kind {
            Some(Kind::Number(number)) => *number,
            Some(Kind::Blocks(_)) | None => 1.0,
        };
        let factor = number(&a) * number(&b);
        let blocks = match (a, b) {
            (Some(Kind::Blocks(a)), Some(Kind::Blocks(b))) => Some([a, b]),
            (Some(Kind::Blocks(_)), other) => return Err(alone("--scale-a", "--scale-b", other.is_some())),
            (other, Some(Kind::Blocks(_))) => return Err(alone("--scale-b", "--scale-a", other.is_some())),
            (_, _) => None,
        };
        Ok(Self { factor, blocks })
    }
}

fn alone(given: &str, other: &str, number: bool) -> Failure {
    let is = if number { "has one number" } else { "is not given" };
    Failure::usage(format!(
        "{given} has a scale for each block and {other} {is}: both operands' blocks have scales, or neither's"
    ))
}

/// Scales of A, `M x K / 128` or `M / 128 x K / 128`.
fn of_a(name: &str, m: u32, k: u32) -> Result<Kind, Failure> {
    let matrix = files::read_any_rank(name)?;
    let at = |line, block| matrix.get(line, block);
    kind("--scale-a", (&matrix, [matrix.rows, matrix.columns]), [m, k], at, |[lines, blocks]| {
        format!("{lines} x {blocks}")
    })
}

/// Scales of B, `K / 128 x N` or `K / 128 x N / 128`.
fn of_b(name: &str, n: u32, k: u32) -> Result<Kind, Failure> {
    let matrix = files::read_any_rank(name)?;
    let at = |line, block| matrix.get(block, line);
    kind("--scale-b", (&matrix, [matrix.columns, matrix.rows]), [n, k], at, |[lines, blocks]| {
        format!("{blocks} x {lines}")
    })
}

/// What scales `[lines, blocks along K]` of an operand `(mn, k)` are.
fn kind(
    flag: &str,
    (matrix, found): (&Matrix, [u32; 2]),
    extents: [u32; 2],
    at: impl Fn(u32, u32) -> f64,
    shape: impl Fn([u32; 2]) -> String,
) -> Result<Kind, Failure> {
    if [matrix.rows, matrix.columns] == [1, 1] {
        return Ok(Kind::Number(matrix.get(0, 0) as f32));
    }
    let rows = [1, 128].into_iter().find(|&rows| Scales::extents(extents, rows) == found);
    let Some(rows) = rows else {
        let [each, shared] = [1, 128].map(|rows| shape(Scales::extents(extents, rows)));
        return Err(Failure::usage(format!(
            "{flag} is {} scales of an operand of {}; one number, {each} or {shared} was needed",
            shape(found),
            shape(extents)
        )));
    };
    let [lines, blocks] = found;
    let order = Scales::order(rows);
    let contiguous = if order == falchion::verify::Order::RowMajor { blocks } else { lines };
    let pitch = contiguous.next_multiple_of(4);
    Ok(Kind::Blocks(Scales { rows, values: HostMatrix::from_fn(Format::F32, found, order, pitch, at) }))
}
