//! Scales of 8-bit operands: of a matrix, of rows and columns, or of blocks.

use falchion::collective::{BlockScales, Format, MatrixRef};
use pyo3::prelude::*;

use crate::array::{Access, Array, Elements, Fill, Found, Rule, invalid, number};
use crate::epilogue::{Given, Value};

/// The scales of both operands.
pub(crate) enum Scales<'py> {
    None,
    /// Numbers of the host, multiplied.
    Number(f64),
    /// In the epilogue: a number or a vector for A, and one for B.
    Epilogue(&'static str, [Option<Array<'py>>; 2]),
    /// Of blocks along K.
    Blocks {
        rows: [u32; 2],
        scales: BlockScales,
        kept: Vec<Array<'py>>,
    },
}

/// The names of the arguments.
const NAMES: [&str; 2] = ["scale_a", "scale_b"];

impl<'py> Scales<'py> {
    /// What follows `acc` in the text of the epilogue.
    pub(crate) fn behind(&self) -> &'static str {
        if let Self::Epilogue(text, _) = self { text } else { "" }
    }

    /// The arguments of that.
    pub(crate) fn given(&self) -> Vec<Given<'py>> {
        let Self::Epilogue(_, arrays) = self else { return Vec::new() };
        let named = NAMES.into_iter().zip(arrays);
        let given = named.filter_map(|(name, array)| Some((name, array.clone()?)));
        given
            .map(|(name, array)| Given { name: name.to_owned(), value: Value::Array((*array).clone()) })
            .collect()
    }
}

/// Blocks have this extent along K.
const BLOCK: i64 = 128;

/// The scales of both operands, for a GEMM of these extents. `groups` is the number of Bs of groups of rows: each may have scales of its
/// own.
pub(crate) fn of<'py>(
    given: [Option<&Bound<'py, PyAny>>; 2],
    [m, n, k]: [u32; 3],
    groups: Option<i64>,
    a: &Found<'py>,
) -> PyResult<Scales<'py>> {
    let [m, n, k] = [m, n, k].map(i64::from);
    if given.iter().all(Option::is_none) {
        return Ok(Scales::None);
    }
    let numbers = given.map(|given| given.map_or(Some(1.0), number));
    if let [Some(of_a), Some(of_b)] = numbers {
        return Ok(Scales::Number(of_a * of_b));
    }
    let arrays = admitted(given, a)?;
    let blocks = (k + BLOCK - 1) / BLOCK;
    // A's scales have the rows of A, B's the columns of B.
    let shape = |array: &Array<'_>| [array.last(1)[0], array.last(0)[0]];
    let block = |i: usize| -> Option<u32> {
        let own = |array: &&Array<'_>| i == 1 && array.rank() == 3 && Some(array.last(2)[0]) == groups;
        let array = arrays[i].as_ref().filter(|array| array.rank() == 2 || own(array))?;
        let [first, second] = shape(array);
        let (of_k, of_mn, mn) = if i == 0 { (second, first, m) } else { (first, second, n) };
        let whole = of_k == blocks && (blocks > 1 || of_mn != 1 || mn <= BLOCK);
        (whole && of_mn == mn).then_some(1).or((whole && of_mn == (mn + BLOCK - 1) / BLOCK).then_some(128))
    };
    let whole = |i: usize| arrays[i].as_ref().is_none_or(|array| array.rank() < 3 && shape(array) == [1, 1]);
    let vector = |i: usize| {
        arrays[i].as_ref().is_some_and(|array| match (array.rank(), i) {
            (1, _) => array.last(0)[0] == [m, n][i],
            (2, 0) => shape(array) == [m, 1],
            (2, 1) => shape(array) == [1, n],
            _ => false,
        })
    };
    if whole(0) && whole(1) {
        let text = match &arrays {
            [Some(_), Some(_)] => "*scale_a[0]:f32*scale_b[0]:f32",
            [Some(_), None] => "*scale_a[0]:f32",
            _ => "*scale_b[0]:f32",
        };
        return Ok(Scales::Epilogue(text, arrays));
    }
    if vector(0) && vector(1) {
        let flat = |i: usize| -> PyResult<Option<Array<'py>>> {
            let Some(array) = &arrays[i] else { return Ok(None) };
            array.flat(NAMES[i]).map(Some)
        };
        return Ok(Scales::Epilogue("*scale_a[m]:f32*scale_b[n]:f32", [flat(0)?, flat(1)?]));
    }
    if let (Some(of_a), Some(of_b)) = (block(0), block(1)) {
        return of_blocks(&arrays, [of_a, of_b]);
    }
    refused(&arrays, [m, n], blocks)
}

/// The arrays of both operands. None may be a number: then both would be.
fn admitted<'py>(
    given: [Option<&Bound<'py, PyAny>>; 2],
    a: &Found<'py>,
) -> PyResult<[Option<Array<'py>>; 2]> {
    let mut arrays = [None, None];
    for (i, given) in given.into_iter().enumerate() {
        let Some(object) = given else { continue };
        if number(object).is_some() {
            let other = NAMES[1 - i];
            return invalid(format!(
                "{} is a number and {other} an array: both as arrays were needed",
                NAMES[i]
            ));
        }
        let rule = Rule::new(Elements::Of(Format::F32), Access::Copied).at(a.place(), "a");
        arrays[i] = Some(Found::of(NAMES[i], object)?.admit(NAMES[i], &rule)?);
    }
    Ok(arrays)
}

/// The scales of blocks of these numbers of rows of A and columns of B.
fn of_blocks<'py>(arrays: &[Option<Array<'py>>; 2], rows: [u32; 2]) -> PyResult<Scales<'py>> {
    let (mut at, mut kept) = ([MatrixRef::NONE; 2], Vec::new());
    for (i, rows) in rows.into_iter().enumerate() {
        if let Some(array) = &arrays[i] {
            let (matrix, array) = laid_out(NAMES[i], array, (i == 0) == (rows == 1))?;
            at[i] = matrix;
            kept.push(array);
        }
    }
    Ok(Scales::Blocks { rows, scales: BlockScales { a: at[0], b: at[1] }, kept })
}

/// The error of arrays whose shapes fit no kind of scales. K has `blocks` blocks.
fn refused<T>(arrays: &[Option<Array<'_>>; 2], [m, n]: [i64; 2], blocks: i64) -> PyResult<T> {
    let words = |i: usize| {
        arrays[i].as_ref().map_or_else(
            || format!("{} is not given", NAMES[i]),
            |array| format!("{} has shape {}", NAMES[i], array.shape_words()),
        )
    };
    let (first, second) = if arrays[0].is_some() { (0, 1) } else { (1, 0) };
    let tiles = [(m + BLOCK - 1) / BLOCK, (n + BLOCK - 1) / BLOCK];
    invalid(format!(
        "{} and {}, numbers, vectors of {m} and {n}, or blocks of ({m}, {blocks}) or ({}, {blocks}) and \
         ({blocks}, {n}) or ({blocks}, {}), for each group or all, were needed",
        words(first),
        words(second),
        tiles[0],
        tiles[1]
    ))
}

/// The scales of blocks as kernels read them: in lines, each at a multiple of 16 bytes. `turned` says that the
/// columns of the array are the lines.
fn laid_out<'py>(name: &str, array: &Array<'py>, turned: bool) -> PyResult<(MatrixRef, Array<'py>)> {
    let [line, lines] = if turned { [array.last(1), array.last(0)] } else { [array.last(0), array.last(1)] };
    let [count, stride] = array.last(2);
    let distance = |stride: i64| u64::try_from(stride).unwrap_or(0);
    let (ld, stride) = (distance(lines[1]), if count > 1 { distance(stride) } else { 0 });
    let fits = line[0] <= 1 || line[1] == 1;
    let whole = array.address().is_multiple_of(16) && ld.is_multiple_of(4) && stride.is_multiple_of(4);
    if fits && whole && ld >= line[0].unsigned_abs() && (count <= 1 || stride > 0) {
        return Ok((MatrixRef::new(array.address(), ld).every(stride), array.clone()));
    }
    let [room, _] = array.in_lines(name, (4, Fill::Zeros), turned)?;
    let padded = room.last(0)[0];
    let stride = if count > 1 { lines[0] * padded } else { 0 };
    Ok((MatrixRef::new(room.address(), padded.unsigned_abs()).every(stride.unsigned_abs()), room))
}
