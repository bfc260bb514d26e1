//! `--scale-a` and `--scale-b`: scales from files. The shape of a file determines the kind of scale.

use falchion::verify::{Format, HostMatrix, Order, Scales};
use kernel::GemmProblem;

use crate::Failure;
use crate::files;

/// The scales of both operands.
#[derive(Debug)]
pub(crate) enum Scaling {
    /// One factor of A * B.
    Number(f32),
    /// One factor per row of A, and one per column of B.
    Vectors([Vec<f32>; 2]),
    /// Block scales of A and of B.
    Blocks([Scales; 2]),
}

/// The scales of one operand.
enum Kind {
    /// One scale for the whole operand.
    Number(f32),
    /// One scale per row of A or column of B.
    Vector(Vec<f32>),
    /// One scale per block: 1 or 128 rows of A (columns of B) by 128 elements along K.
    Blocks(Scales),
}

impl Scaling {
    /// Reads the given files, for operands of a problem's extents. A file that is not given counts as the
    /// number 1.
    pub(crate) fn read(
        [a, b]: [Option<&str>; 2],
        GemmProblem { m, n, k }: GemmProblem,
    ) -> Result<Self, Failure> {
        let a = a.map_or(Ok(Kind::Number(1.0)), |name| Kind::read("--scale-a", name, [m, k], false))?;
        let b = b.map_or(Ok(Kind::Number(1.0)), |name| Kind::read("--scale-b", name, [n, k], true))?;
        let filled = |number: f32, count: u32| vec![number; count as usize];
        match (a, b) {
            (Kind::Number(a), Kind::Number(b)) => Ok(Self::Number(a * b)),
            (Kind::Blocks(a), Kind::Blocks(b)) => Ok(Self::Blocks([a, b])),
            (Kind::Vector(a), Kind::Vector(b)) => Ok(Self::Vectors([a, b])),
            (Kind::Vector(a), Kind::Number(b)) => Ok(Self::Vectors([a, filled(b, n)])),
            (Kind::Number(a), Kind::Vector(b)) => Ok(Self::Vectors([filled(a, m), b])),
            (a, b) => Err(Failure::usage(format!(
                "--scale-a has {} and --scale-b has {}: if the blocks of one operand have scales, those of the other need scales too",
                a.words(),
                b.words()
            ))),
        }
    }

    /// Rows of A and columns of B that share a block scale; `None` without block scales.
    pub(crate) fn rows(&self) -> Option<[u32; 2]> {
        match self {
            Self::Blocks(scales) => Some(scales.each_ref().map(|scales| scales.rows)),
            Self::Number(_) | Self::Vectors(_) => None,
        }
    }
}

impl Kind {
    fn words(&self) -> &'static str {
        match self {
            Self::Number(_) => "one number or is left out",
            Self::Vector(_) => "a scale per row or column",
            Self::Blocks(_) => "a scale per block",
        }
    }

    /// Reads the scales of an operand of extents `(mn, k)`. A's file has a row per M; B's file is transposed
    /// (`turned`), with a column per N.
    fn read(flag: &str, name: &str, [mn, k]: [u32; 2], turned: bool) -> Result<Self, Failure> {
        let matrix = files::read_any_rank(name)?;
        let turn = |[mn, k]: [u32; 2]| if turned { [k, mn] } else { [mn, k] };
        let shape = |extents: [u32; 2]| {
            let [rows, columns] = turn(extents);
            format!("{rows} x {columns}")
        };
        let single = |row, column| matrix.get(row, column) as f32;
        let at = |line, block| {
            let [row, column] = turn([line, block]);
            matrix.get(row, column)
        };
        let places = (0..matrix.rows).flat_map(|row| (0..matrix.columns).map(move |column| (row, column)));
        if let Some((row, column)) =
            places.into_iter().find(|&(row, column)| !single(row, column).is_finite())
        {
            let number = single(row, column);
            return Err(Failure::usage(format!(
                "{flag} has {number} in row {row}, column {column}: a finite number in f32 was needed"
            )));
        }
        let found = turn([matrix.rows, matrix.columns]);
        if found == [1, 1] {
            return Ok(Self::Number(matrix.get(0, 0) as f32));
        }
        if let Some(rows) = [1, 128].into_iter().find(|&rows| Scales::extents([mn, k], rows) == found) {
            let [lines, blocks] = found;
            let order = Scales::order(rows);
            let pitch = if order == Order::RowMajor { blocks } else { lines }.next_multiple_of(4);
            let values = HostMatrix::from_fn(Format::F32, found, order, pitch, at);
            return Ok(Self::Blocks(Scales { rows, values }));
        }
        if found == [mn, 1] || found == [1, mn] {
            let value = |i| if found == [mn, 1] { at(i, 0) } else { at(0, i) };
            return Ok(Self::Vector((0..mn).map(|i| value(i) as f32).collect()));
        }
        let [each, shared] = [1, 128].map(|rows| shape(Scales::extents([mn, k], rows)));
        Err(Failure::usage(format!(
            "{flag} is {} scales of an operand of {}; one number, {mn} of them, {each} or {shared} was needed",
            shape(found),
            shape([mn, k])
        )))
    }
}
