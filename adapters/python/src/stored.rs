//! Operands that are stored in fewer bits than are multiplied, or with half of their elements.

use falchion::collective::{Code, Format, GroupScales, MatrixRef, WeightsSpec, sparse, weights};
use falchion::kernel::Types;
use falchion_core::{AlignedLines, Refusal, WeightGroups, Weights};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use crate::array::{Access, Array, Elements, Found, Library, Rule, format_of, invalid, type_name};
use crate::error::of_refusal;

/// A prepared operand: few-bit weights, or a sparse matrix. `falchion.weights` and `falchion.sparse` make it.
#[pyclass(frozen, module = "falchion")]
pub(crate) struct Operand {
    values: Py<PyAny>,
    scales: Option<Py<PyAny>>,
    zeros: Option<Py<PyAny>>,
    metadata: Option<Py<PyAny>>,
    /// The order along K of its places in the other operand; `None` is the same order.
    order: Option<Py<PyAny>>,
    /// Rows and columns as they are multiplied.
    #[pyo3(get)]
    shape: (i64, i64),
    /// Number of matrices, one per group of rows; 0 is one matrix.
    #[pyo3(get)]
    count: u32,
    /// Whether its columns are stored, one after the other: it is a B.
    is_b: bool,
    format: Format,
    weights: Option<WeightsSpec>,
}

#[pymethods]
impl Operand {
    #[expect(clippy::too_many_arguments, reason = "keywords of Python")]
    #[new]
    #[pyo3(signature = (values, shape, dtype, *, is_b, code=None, group=0, scales=None, zeros=None, metadata=None, order=None, count=0))]
    fn new(
        values: Bound<'_, PyAny>,
        shape: (i64, i64),
        dtype: &str,
        is_b: bool,
        code: Option<&str>,
        group: u32,
        scales: Option<Py<PyAny>>,
        zeros: Option<Py<PyAny>>,
        metadata: Option<Py<PyAny>>,
        order: Option<Py<PyAny>>,
        count: u32,
    ) -> PyResult<Self> {
        let Some(format) = format_of(dtype) else {
            return invalid(format!("dtype is \"{dtype}\", the type that is multiplied was needed"));
        };
        let weights = match code {
            None => None,
            Some(name) => Some(WeightsSpec { code: self::code(name)?, group, zeros: zeros.is_some() }),
        };
        let values = values.unbind();
        let [columns, rows] = [shape.1, shape.0];
        if !(0..1 << 31).contains(&rows) || !(0..1 << 31).contains(&columns) {
            return invalid(format!("shape is ({rows}, {columns}), extents below 2^31 were needed"));
        }
        Ok(Self { values, scales, zeros, metadata, order, shape, count, is_b, format, weights })
    }

    /// Operands of the same kind as the Bs of groups of rows: `matmul(a, stack, groups=...)`.
    #[staticmethod]
    fn stacked(operands: Vec<Bound<'_, Self>>) -> PyResult<Self> {
        let Some(first) = operands.first() else {
            return invalid("operands is empty, one per group was needed");
        };
        let (py, first) = (first.py(), first.get());
        for (i, operand) in operands.iter().enumerate() {
            let Self { shape, format, weights, is_b, count, ref order, .. } = *operand.get();
            let same = shape == first.shape && format == first.format && weights == first.weights && is_b;
            if !same || count != 0 || order.is_some() || weights.is_none() {
                return invalid(format!(
                    "operand {i} has another shape, type, code or group than the first, mixed groups, or no few bits: the same was needed"
                ));
            }
        }
        let joined = |part: fn(&Self) -> Option<&Py<PyAny>>| -> PyResult<Option<Py<PyAny>>> {
            let parts: Vec<_> = operands.iter().filter_map(|operand| part(operand.get())).collect();
            let Some(one) = parts.first() else { return Ok(None) };
            let (module, name) = match Found::of("operands", one.bind(py))?.library() {
                Library::Numpy => ("numpy", "concatenate"),
                Library::Torch => ("torch", "cat"),
            };
            Ok(Some(py.import(module)?.call_method1(name, (parts,))?.unbind()))
        };
        let values = joined(|operand| Some(&operand.values))?;
        let Some(values) = values else { return invalid("operands is empty, one per group was needed") };
        let count = u32::try_from(operands.len()).unwrap_or(u32::MAX);
        let (scales, zeros) =
            (joined(|operand| operand.scales.as_ref())?, joined(|operand| operand.zeros.as_ref())?);
        Ok(Self { values, scales, zeros, metadata: None, order: None, count, ..*first })
    }

    /// The same on a device of torch, for example "cuda".
    fn to(&self, py: Python<'_>, device: Bound<'_, PyAny>) -> PyResult<Self> {
        let torch = py.import("torch")?;
        let moved = |array: &Py<PyAny>| -> PyResult<Py<PyAny>> {
            // torch takes over numpy's own types only: the bytes move.
            let array = array.bind(py);
            let Ok(bytes) = array.call_method1("view", ("uint8",)) else {
                return Ok(array.call_method1("to", (&device,))?.unbind());
            };
            Ok(torch.call_method1("as_tensor", (bytes,))?.call_method1("to", (&device,))?.unbind())
        };
        let maybe = |array: &Option<Py<PyAny>>| array.as_ref().map(moved).transpose();
        let order = self.order.as_ref().map(|order| -> PyResult<Py<PyAny>> {
            Ok(torch.call_method1("as_tensor", (order,))?.call_method1("to", (&device,))?.unbind())
        });
        Ok(Self {
            order: order.transpose()?,
            values: moved(&self.values)?,
            scales: maybe(&self.scales)?,
            zeros: maybe(&self.zeros)?,
            metadata: maybe(&self.metadata)?,
            ..*self
        })
    }

    fn __repr__(&self) -> String {
        let (rows, columns) = self.shape;
        let format = type_name(self.format);
        let many = if self.count > 0 { format!("{} of ", self.count) } else { String::new() };
        match self.weights {
            Some(WeightsSpec { code, group, .. }) => {
                format!(
                    "<falchion.Operand of {many}{rows} x {columns}: {code} in groups of {group}, multiplied in {format}>"
                )
            }
            None => format!("<falchion.Operand of {rows} x {columns}: 2:4 sparse {format}>"),
        }
    }
}

fn code(name: &str) -> PyResult<Code> {
    falchion_core::code(name).map_err(|refusal| of_refusal(&refusal))
}

/// Code, K of a group, units, lines of scales and of zero points, and the order along K.
type Parts<'py> = (
    &'static str,
    u32,
    Bound<'py, PyBytes>,
    Option<(usize, Bound<'py, PyBytes>)>,
    Option<(usize, Bound<'py, PyBytes>)>,
    Option<Vec<u32>>,
);

/// What is read of weights, for `Operand`.
fn parts<'py>(
    py: Python<'py>,
    dtype: &str,
    read: impl FnOnce(Format) -> Result<Weights, Refusal> + Send,
) -> PyResult<Parts<'py>> {
    let Some(format) = format_of(dtype) else {
        return invalid(format!("dtype is \"{dtype}\", bfloat16 or float16 was needed"));
    };
    let read = py.detach(|| read(format)).map_err(|refusal| of_refusal(&refusal))?;
    let Weights { spec, units, scales, zeros, order, .. } = read;
    let lines =
        |lines: AlignedLines| (lines.pitch > 0).then(|| (lines.pitch, PyBytes::new(py, &lines.bytes)));
    Ok((spec.code.name(), spec.group, PyBytes::new(py, &units), lines(scales), lines(zeros), order))
}

/// The array of an argument that the package reads itself: its elements have one of these types, or any that some argument may have.
#[pyfunction]
pub(crate) fn admitted<'py>(
    name: &str,
    object: Bound<'py, PyAny>,
    types: Vec<String>,
) -> PyResult<Bound<'py, PyAny>> {
    let found = Found::of(name, &object)?;
    found.one_of(name, &types)?;
    Ok(found.object().clone())
}

/// Weights of codes, one per byte and row by row.
#[pyfunction]
pub(crate) fn pack<'py>(
    py: Python<'py>,
    code: &str,
    dtype: &str,
    shape: [u32; 2],
    codes: &[u8],
    scales: Option<&[u8]>,
    zeros: Option<&[u8]>,
) -> PyResult<Parts<'py>> {
    let code = self::code(code)?;
    parts(py, dtype, |format| Weights::new(code, format, shape, codes, [scales, zeros]))
}

/// Weights of a GPTQ file.
#[expect(clippy::too_many_arguments, reason = "the tensors of a file")]
#[pyfunction]
pub(crate) fn gptq<'py>(
    py: Python<'py>,
    numbers: (u32, u16),
    dtype: &str,
    shape: [u32; 2],
    count: u32,
    qweight: &[u8],
    scales: &[u8],
    qzeros: &[u8],
    index: Option<&[u8]>,
) -> PyResult<Parts<'py>> {
    let groups = WeightGroups { count, index };
    parts(py, dtype, |format| Weights::gptq(numbers, format, shape, groups, [qweight, scales, qzeros]))
}

/// Weights of an AWQ file.
#[pyfunction]
pub(crate) fn awq<'py>(
    py: Python<'py>,
    dtype: &str,
    shape: [u32; 2],
    groups: u32,
    qweight: &[u8],
    scales: &[u8],
    qzeros: &[u8],
) -> PyResult<Parts<'py>> {
    parts(py, dtype, |format| Weights::awq(format, shape, groups, [qweight, scales, qzeros]))
}

/// Weights in MXFP4.
#[pyfunction]
pub(crate) fn mxfp4<'py>(
    py: Python<'py>,
    dtype: &str,
    shape: [u32; 2],
    blocks: &[u8],
    scales: &[u8],
) -> PyResult<Parts<'py>> {
    parts(py, dtype, |format| Weights::mxfp4(format, shape, [blocks, scales]))
}

/// Weights in fp8 with scales of blocks.
#[pyfunction]
pub(crate) fn fp8<'py>(
    py: Python<'py>,
    dtype: &str,
    shape: [u32; 2],
    codes: &[u8],
    scales: Vec<f32>,
) -> PyResult<Parts<'py>> {
    parts(py, dtype, |format| Weights::fp8(format, shape, codes, &scales))
}

/// The kept elements of a matrix and their metadata. Elements are given as `uint32`, row by row.
#[pyfunction]
pub(crate) fn compress<'py>(
    py: Python<'py>,
    dtype: &str,
    shape: [u32; 2],
    elements: &[u8],
    prune: bool,
) -> PyResult<(Bound<'py, PyBytes>, Bound<'py, PyBytes>)> {
    let Some(format) = format_of(dtype) else {
        return invalid(format!("weight has elements of {dtype}, a type of a kernel was needed"));
    };
    let words = elements.as_chunks().0.iter().map(|word| u32::from_le_bytes(*word));
    let mut elements: Vec<u32> = words.collect();
    let compressed = py.detach(|| {
        if prune {
            sparse::prune(format, shape, &mut elements)?;
        }
        sparse::compress(format, shape, &elements)
    });
    let compressed = compressed.or_else(|error| invalid(format!("weight: {error}")))?;
    let bytes = |words: &[u32]| words.iter().flat_map(|word| word.to_le_bytes()).collect::<Vec<u8>>();
    Ok((PyBytes::new(py, &bytes(&compressed.values)), PyBytes::new(py, &bytes(&compressed.metadata))))
}

/// What the parts of an operand are.
const BITS: Rule<'_> = Rule::new(Elements::Bits, Access::Read);

impl Operand {
    /// Rows, or columns of a B, and K.
    fn extents(&self, name: &str) -> PyResult<[u32; 2]> {
        let (rows, columns) = self.shape;
        let extents = if self.is_b { [columns, rows] } else { [rows, columns] };
        match extents.map(u32::try_from) {
            [Ok(mn), Ok(k)] => Ok([mn, k]),
            _ => invalid(format!("{name} has shape ({rows}, {columns}), extents below 2^31 were needed")),
        }
    }

    /// Checks that the parts have what a kernel reads of them.
    fn reaches(
        &self,
        name: &str,
        values: &Array<'_>,
        [scales, zeros, metadata]: [Option<&Array<'_>>; 3],
    ) -> PyResult<()> {
        let ([mn, k], count) = (self.extents(name)?, u64::from(self.count.max(1)));
        let size = u64::from(self.format.bytes());
        let bytes = |array: &Array<'_>| {
            array.shape().iter().map(|extent| extent.unsigned_abs()).product::<u64>()
                * u64::from(array.bytes())
        };
        let whole = |part: &str, array: &Array<'_>, needed: u64| match bytes(array) {
            _ if !array.is_packed() => {
                invalid(format!("{name} has {part} with gaps, packed ones were needed"))
            }
            found if found < needed => {
                invalid(format!("{name} has {found} bytes of {part}, {needed} were needed"))
            }
            _ => Ok(()),
        };
        let lines = |part: &str, array: &Array<'_>, [lines, length]: [u64; 2]| {
            let ([found, stride], [columns, step]) = (array.last(1), array.last(0));
            let row = columns.unsigned_abs() * u64::from(array.bytes());
            let apart = found < 2 || stride >= columns;
            if array.rank() != 2 || found.unsigned_abs() < lines || row < length || step != 1 || !apart {
                return invalid(format!(
                    "{name} has {part} of shape {}, {lines} lines of {length} bytes were needed",
                    array.shape_words()
                ));
            }
            Ok(())
        };
        let Some(weights) = self.weights else {
            let Some(metadata) = metadata else {
                return invalid(format!("{name} has no code and no metadata: one of them was needed"));
            };
            if scales.or(zeros).is_some() {
                return invalid(format!("{name} has scales or zeros, and a sparse operand uses none"));
            }
            lines("values", values, [mn.into(), u64::from(sparse::kept(self.format, k)) * size])?;
            let words =
                u64::from(mn.div_ceil(sparse::ROWS)).saturating_mul(sparse::metadata_ld(self.format, k));
            return whole("metadata", metadata, 4 * words);
        };
        let each = weights::bytes(weights.code, [mn, k])
            .map_err(|error| PyValueError::new_err(format!("{name}: {error}")))?;
        whole("values", values, count.saturating_mul(each))?;
        match (weights.group, scales) {
            (0, None) if zeros.or(metadata).is_none() => Ok(()),
            (1.., Some(scales)) if metadata.is_none() => {
                let of = count * u64::from(k.div_ceil(weights.group));
                lines("scales", scales, [of, u64::from(mn) * u64::from(weights.scale_bytes())])?;
                zeros.map_or(Ok(()), |zeros| lines("zeros", zeros, [of, u64::from(mn) * size]))
            }
            (group, _) => invalid(format!(
                "{name} has groups of {group}: scales were needed with groups and alone, zeros with scales, and metadata without a code"
            )),
        }
    }
}

/// A prepared operand of a call.
pub(crate) struct Stored<'py> {
    /// Codes, or the elements that are kept.
    pub(crate) values: Array<'py>,
    pub(crate) matrix: MatrixRef,
    /// Rows and columns as they are multiplied.
    pub(crate) shape: [i64; 2],
    pub(crate) count: u32,
    pub(crate) groups: Option<GroupScales>,
    pub(crate) metadata: Option<MatrixRef>,
    weights: Option<WeightsSpec>,
    format: Format,
    pub(crate) kept: Vec<Bound<'py, PyAny>>,
}

/// The other operand in the order along K of a prepared one.
pub(crate) fn ordered<'py>(
    object: &Bound<'py, PyAny>,
    of: &Bound<'py, PyAny>,
) -> PyResult<Bound<'py, PyAny>> {
    let Ok(operand) = of.cast::<Operand>() else { return Ok(object.clone()) };
    let Some(order) = &operand.get().order else { return Ok(object.clone()) };
    match Found::of("a", object)?.library() {
        Library::Numpy => object.call_method1("take", (order, -1)),
        Library::Torch => object.call_method1("index_select", (-1, order)),
    }
}

/// The prepared operand of an argument; `None` for an array.
pub(crate) fn of<'py>(i: usize, object: &Bound<'py, PyAny>) -> PyResult<Option<Stored<'py>>> {
    let Ok(operand) = object.cast::<Operand>() else { return Ok(None) };
    let (py, name, operand) = (object.py(), ["a", "b"][i], operand.get());
    if operand.is_b != (i == 1) {
        return invalid(format!("{name} was prepared as the other operand: is_b={} was needed", i == 1));
    }
    let values = Found::of(name, operand.values.bind(py))?.admit(name, &BITS)?;
    let mut kept = vec![object.clone(), values.object().clone()];
    let beside = BITS.at(values.place(), "its values");
    let mut array = |part: &Option<Py<PyAny>>| -> PyResult<Option<Array<'py>>> {
        let Some(part) = part else { return Ok(None) };
        let array = Found::of(name, part.bind(py))?.admit(name, &beside)?;
        kept.push(array.object().clone());
        Ok(Some(array))
    };
    let [scales, zeros, metadata] =
        [array(&operand.scales)?, array(&operand.zeros)?, array(&operand.metadata)?];
    let (rows, columns) = operand.shape;
    let [mn, k] = operand.extents(name)?;
    operand.reaches(name, &values, [scales.as_ref(), zeros.as_ref(), metadata.as_ref()])?;
    // Arrays of bytes: the distance of rows is counted in elements of their format.
    let row = |array: &Array<'_>, bytes: u32| {
        let ld = array.last(1)[1].unsigned_abs() * u64::from(array.bytes()) / u64::from(bytes);
        MatrixRef::new(array.address(), ld)
    };
    // Those of groups of rows follow each other.
    let every = |matrix: MatrixRef, lines: u32| match operand.count {
        0 | 1 => matrix,
        _ => matrix.every(u64::from(lines) * matrix.ld),
    };
    let matrix = match operand.weights {
        Some(WeightsSpec { code, .. }) => {
            every(MatrixRef::new(values.address(), weights::ld(code, k)), mn.next_multiple_of(64))
        }
        None => row(&values, operand.format.bytes()),
    };
    let groups = operand.weights.filter(|weights| weights.group > 0).and_then(|weights| {
        let lines = k.div_ceil(weights.group);
        let scales = every(row(scales.as_ref()?, weights.scale_bytes()), lines);
        let of_zeros = |zeros| every(row(zeros, operand.format.bytes()), lines);
        let zeros = zeros.as_ref().map_or(MatrixRef::NONE, of_zeros);
        Some(GroupScales { scales, zeros })
    });
    let of_metadata =
        |array: Array<'_>| MatrixRef::new(array.address(), sparse::metadata_ld(operand.format, k));
    let metadata = metadata.map(of_metadata);
    let (shape, format, weights, count) = ([rows, columns], operand.format, operand.weights, operand.count);
    Ok(Some(Stored { values, matrix, shape, count, groups, metadata, weights, format, kept }))
}

/// The types of a GEMM with a prepared operand, and D's if it was asked for.
pub(crate) fn types(
    stored: &[Option<Stored<'_>>; 2],
    arrays: [&Found<'_>; 2],
    out: Option<&Found<'_>>,
) -> PyResult<(Types, Option<Format>)> {
    let format = |i: usize| match &stored[i] {
        Some(stored) => Ok(stored.format),
        None => match arrays[i].format() {
            Some(format) => Ok(format),
            None => arrays[i].multiplied(["a", "b"][i]),
        },
    };
    let [a, b] = [format(0)?, format(1)?];
    if a != b && (stored.iter().flatten().any(|of| of.weights.is_some())) {
        return invalid(format!(
            "a is multiplied in {} and b in {}: the same type was needed",
            type_name(a),
            type_name(b)
        ));
    }
    let weights = [0, 1].map(|i| stored[i].as_ref().and_then(|of| of.weights));
    let sparse = [0, 1].map(|i| stored[i].as_ref().is_some_and(|of| of.metadata.is_some()));
    let types = Types::of(a).with_b(b).weights(weights).sparse(sparse);
    let said = out.and_then(|out| out.format());
    Ok((said.map_or(types, |d| types.stored(d)), said))
}
