//! `--scale-a` and `--scale-b`: scales from files. The shape of a file determines the kind of scale.

use crate::verify::{Format, HostMatrix, Order, Scales};
use kernel::GemmProblem;

use crate::cli::Failure;
use crate::cli::files::{self, Matrix};

/// The scales of both operands.
#[derive(Debug)]
pub(crate) enum Scaling {
    /// One factor of A * B.
    Number(f64),
    /// One factor per row of A, and one per column of B.
    Vectors([Vec<f32>; 2]),
    /// Block scales of A and of B.
    Blocks([Scales; 2]),
}

/// The scales of one operand, and how they may be read: one number for the whole operand, one per row of A or
/// column of B, or one per block. A line of scales is both where K is at most 128.
struct Given {
    /// The file; `None` for the number 1.
    matrix: Option<Matrix>,
    /// Whether it is B's file, with a column per N.
    turned: bool,
    extents: [u32; 2],
    /// Rows of A or columns of B that share a block scale.
    blocks: Vec<u32>,
    vector: bool,
}

impl Scaling {
    /// Reads the given files, for operands of a problem's extents. A file that is not given counts as the
    /// number 1. `blocks` are the rows of A and the columns of B per block scale that the kernel has, if it is
    /// known and has them.
    pub(crate) fn read(
        [a, b]: [Option<&str>; 2],
        GemmProblem { m, n, k }: GemmProblem,
        blocks: Option<[u32; 2]>,
    ) -> Result<Self, Failure> {
        let a = Given::read("--scale-a", a, [m, k], false)?;
        let b = Given::read("--scale-b", b, [n, k], true)?;
        let both = [&a, &b];
        if let Some(blocks) = blocks.filter(|&[rows, columns]| a.has(rows) && b.has(columns)) {
            return Ok(Self::Blocks([a.blocks(blocks[0]), b.blocks(blocks[1])]));
        }
        // Each reading is of both operands. Where several fit they mean the same, except for a row of scales that
        // is as long as K has blocks: these are blocks.
        let line = both.iter().any(|of| of.vector && of.is_line());
        if both.iter().all(|of| of.is_number()) {
            return Ok(Self::Number(a.number() * b.number()));
        }
        if both.iter().all(|of| of.vector || of.is_number())
            && (line || both.iter().any(|of| of.blocks.is_empty()))
        {
            return Ok(Self::Vectors([a.vector(), b.vector()]));
        }
        match (&a.blocks[..], &b.blocks[..]) {
            (&[rows, ..], &[columns, ..]) => Ok(Self::Blocks([a.blocks(rows), b.blocks(columns)])),
            _ => Err(usage!(
                "--scale-a has {} and --scale-b has {}: if the blocks of one operand have scales, those of the other need scales too",
                a.words(),
                b.words()
            )),
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

/// A pair of extents of A's file as extents of the operand's file: B's is transposed.
fn turn([mn, k]: [u32; 2], turned: bool) -> [u32; 2] {
    if turned { [k, mn] } else { [mn, k] }
}

impl Given {
    /// Reads the scales of an operand of extents `(mn, k)`. A's file has a row per M; B's file is transposed
    /// (`turned`), with a column per N.
    fn read(
        flag: &'static str,
        name: Option<&str>,
        extents: [u32; 2],
        turned: bool,
    ) -> Result<Self, Failure> {
        let Some(name) = name else {
            return Ok(Self { matrix: None, turned, extents, blocks: Vec::new(), vector: false });
        };
        let file = files::look_any_rank(name)?;
        let shape = |extents: [u32; 2]| {
            let [rows, columns] = turn(extents, turned);
            format!("{rows} x {columns}")
        };
        let (found, [mn, _]) = (turn([file.rows, file.columns], turned), extents);
        let blocks: Vec<u32> =
            [1, 128].into_iter().filter(|&rows| Scales::extents(extents, rows) == found).collect();
        let vector = found == [mn, 1] || found == [1, mn];
        if found != [1, 1] && blocks.is_empty() && !vector {
            let [each, shared] = [1, 128].map(|rows| shape(Scales::extents(extents, rows)));
            refuse!(
                "{flag} is {} scales of an operand of {}; one number, {mn} of them, {each} or {shared} was needed",
                shape(found),
                shape(extents)
            );
        }
        let matrix = file.read()?;
        for (row, column) in files::places(matrix.extents()) {
            let number = matrix.get(row, column) as f32;
            if !number.is_finite() {
                refuse!(
                    "{flag} has {number} in row {row}, column {column}: a finite number in f32 was needed"
                );
            }
        }
        Ok(Self { matrix: Some(matrix), turned, extents, blocks, vector })
    }

    /// Extents of the file, with a row per M or N.
    fn found(&self) -> [u32; 2] {
        self.matrix.as_ref().map_or([1, 1], |matrix| turn([matrix.rows, matrix.columns], self.turned))
    }

    fn is_number(&self) -> bool {
        self.found() == [1, 1]
    }

    /// Whether it is one scale per row, in one line along M or N.
    fn is_line(&self) -> bool {
        self.found() == [self.extents[0], 1]
    }

    /// Whether it may have a scale per block of this number of rows.
    fn has(&self, rows: u32) -> bool {
        self.blocks.contains(&rows)
    }

    fn words(&self) -> &'static str {
        match (self.is_number(), &self.blocks[..]) {
            (true, _) => "one number or is left out",
            (false, []) => "a scale per row or column",
            (false, _) => "a scale per block",
        }
    }

    fn at(&self, line: u32, block: u32) -> f64 {
        let [row, column] = turn([line, block], self.turned);
        self.matrix.as_ref().map_or(1.0, |matrix| matrix.get(row, column))
    }

    fn number(&self) -> f64 {
        self.at(0, 0)
    }

    /// One scale per row of A or column of B.
    fn vector(&self) -> Vec<f32> {
        let value = |i| match self.found() {
            [1, 1] => self.at(0, 0),
            [_, 1] => self.at(i, 0),
            _ => self.at(0, i),
        };
        (0..self.extents[0]).map(|i| value(i) as f32).collect()
    }

    /// The scales of blocks of 1 or 128 rows of A (columns of B) by 128 elements along K.
    fn blocks(&self, rows: u32) -> Scales {
        let [lines, blocks] = self.found();
        let order = Scales::order(rows);
        let ld = if order == Order::RowMajor { blocks } else { lines }.next_multiple_of(4);
        let at = |line, block| self.at(line, block);
        Scales { rows, values: HostMatrix::from_fn(Format::F32, [lines, blocks], order, ld, at) }
    }
}
