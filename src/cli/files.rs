//! Matrix files, `.npy` and tensors of `.safetensors`, and text files that commands write.
//!
//! A file may hold f16, bf16, f32, f64, 8-bit floats or 8-bit integers, row-major or column-major. Values are
//! rounded to the requested format, to nearest, ties to even; a value that the format cannot hold is refused. The
//! header says the shape ([`look`]), and only the one matrix is read after it ([`Found::read`]). The header and
//! the file's length bound every read; a device or a pipe is refused.

mod npy;
mod write;

use std::fs::{self, File};
use std::io::{self, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};

use crate::verify::{Format, HostMatrix, Order};
use safetensors::Dtype;
use safetensors::tensor::Metadata;

pub(crate) use self::write::{writable, write, write_text};
use crate::cli::output::{listed, shortened};
use crate::cli::{Failure, memory};

/// A matrix that a file's header describes, before its elements are read.
#[derive(Debug)]
pub(crate) struct Found {
    pub(crate) rows: u32,
    pub(crate) columns: u32,
    order: Order,
    format: Format,
    big: bool,
    path: PathBuf,
    file: File,
    /// Offset of the first element.
    begin: u64,
    bytes: u64,
}

impl Found {
    /// The transpose.
    pub(crate) fn transposed(self) -> Self {
        let order = match self.order {
            Order::RowMajor => Order::ColumnMajor,
            Order::ColumnMajor => Order::RowMajor,
        };
        Self { rows: self.columns, columns: self.rows, order, ..self }
    }
}

/// A matrix of a file, with its elements as the file holds them.
#[derive(Debug)]
pub(crate) struct Matrix {
    pub(crate) rows: u32,
    pub(crate) columns: u32,
    pub(crate) order: Order,
    format: Format,
    /// Whether numbers are big-endian.
    big: bool,
    bytes: Vec<u8>,
}

/// Finds a matrix: `FILE.npy`, or `FILE.safetensors[:TENSOR]`.
pub(crate) fn look(name: &str) -> Result<Found, Failure> {
    look_shaped(name, &extents)
}

/// Finds a number, a row or a matrix.
pub(crate) fn look_any_rank(name: &str) -> Result<Found, Failure> {
    look_shaped(name, &|path, shape| match shape {
        [] => Ok([1, 1]),
        [length] => extents(path, &[1, *length]),
        _ => extents(path, shape),
    })
}

/// Makes rows and columns of a file's shape.
type Shape<'a> = &'a dyn Fn(&Path, &[u64]) -> Result<[u32; 2], Failure>;

fn look_shaped(name: &str, shape: Shape<'_>) -> Result<Found, Failure> {
    match name.split_once(".safetensors") {
        Some((stem, rest)) if rest.is_empty() || rest.starts_with(':') => {
            let tensor = rest.strip_prefix(':').filter(|tensor| !tensor.is_empty());
            safetensor(Path::new(&format!("{stem}.safetensors")), tensor, shape)
        }
        _ if name.ends_with(".npy") => npy(Path::new(name), shape),
        _ => Err(usage!("{} is neither FILE.npy nor FILE.safetensors[:TENSOR]", shortened(name))),
    }
}

/// Whether the file of the name `FILE.safetensors:TENSOR` has that tensor.
pub(crate) fn has_tensor(name: &str) -> Result<bool, Failure> {
    let Some((stem, tensor)) = name.split_once(".safetensors:") else { return Ok(false) };
    let path = format!("{stem}.safetensors");
    let path = Path::new(&path);
    let (mut file, length) = open(path)?;
    let (metadata, _) = safetensors(path, &mut file, length)?;
    Ok(metadata.info(tensor).is_some())
}

fn unread(path: &Path, error: &std::io::Error) -> Failure {
    usage!("cannot read {}: {error}", path.display())
}

/// Opens a file for reading, and returns its length. A device or a pipe is refused: it has no length, and
/// opening it may block.
pub(crate) fn open(path: &Path) -> Result<(File, u64), Failure> {
    let metadata = fs::metadata(path).map_err(|error| unread(path, &error))?;
    if !metadata.is_file() {
        let is = if metadata.is_dir() { "a folder" } else { "a device or a pipe" };
        refuse!("{} is {is}, a file was needed", path.display());
    }
    let file = File::open(path).map_err(|error| unread(path, &error))?;
    Ok((file, metadata.len()))
}

/// Reads `bytes` bytes of a file from offset `begin`. The caller has checked that the file has them.
pub(crate) fn part(path: &Path, file: &mut File, begin: u64, bytes: u64) -> Result<Vec<u8>, Failure> {
    memory::enough(
        &format!("{} from {}", memory::bytes(bytes as f64), path.display()),
        bytes.into(),
        "the extents",
    )?;
    let mut read = Vec::with_capacity(usize::try_from(bytes).unwrap_or(0));
    file.seek(SeekFrom::Start(begin)).map_err(|error| unread(path, &error))?;
    file.take(bytes).read_to_end(&mut read).map_err(|error| unread(path, &error))?;
    if read.len() as u64 == bytes {
        return Ok(read);
    }
    Err(usage!(
        "{} became shorter while it was read: {bytes} B were needed at {begin}, {} B are there",
        path.display(),
        read.len()
    ))
}

/// The text of a file of at most `most` bytes, which may be a pipe.
pub(crate) fn text(path: &Path, most: u64) -> io::Result<String> {
    let mut text = String::new();
    File::open(path)?.take(most + 1).read_to_string(&mut text)?;
    if text.len() as u64 > most {
        return Err(io::Error::other(format!("it has more than {most} B")));
    }
    Ok(text)
}

fn extents(path: &Path, shape: &[u64]) -> Result<[u32; 2], Failure> {
    let seen = shortened(&format!("{shape:?}"));
    let bad = |needed: &str| Err(usage!("{} has shape {seen}, {needed} was needed", path.display()));
    let [rows, columns] = shape else { return bad("a matrix") };
    match (u32::try_from(*rows), u32::try_from(*columns)) {
        (Ok(0), Ok(_)) | (Ok(_), Ok(0)) => bad("a matrix with at least 1 row and 1 column"),
        (Ok(rows), Ok(columns)) => Ok([rows, columns]),
        _ => bad("a matrix with extents below 2^32"),
    }
}

fn npy(path: &Path, shape: Shape<'_>) -> Result<Found, Failure> {
    let (mut file, length) = open(path)?;
    let header = npy::Header::read(&mut file, length)
        .map_err(|error| usage!("{} is no .npy file: {error}", path.display()))?;
    let [rows, columns] = shape(path, &header.shape)?;
    // `ml_dtypes` writes the full name of its type, and NumPy writes two raw bytes.
    let format = match header.element.trim_start_matches(['<', '>', '|', '=']) {
        "f2" => Format::F16,
        "V2" | "bfloat16" => Format::Bf16,
        "f4" => Format::F32,
        "f8" => Format::F64,
        "i1" => Format::S8,
        "u1" => Format::U8,
        "float8_e4m3fn" => Format::E4m3,
        "float8_e5m2" => Format::E5m2,
        "V1" => {
            refuse!(
                "{} holds elements of type V1, which may be any 8-bit float: a .safetensors file says which",
                path.display()
            );
        }
        _ => {
            refuse!(
                "{} holds elements of type {}; f16, bf16 (as V2), f32, f64, i1, u1, float8_e4m3fn or float8_e5m2 was needed",
                path.display(),
                shortened(&header.element)
            );
        }
    };
    let needed = u128::from(rows) * u128::from(columns) * u128::from(format.bytes());
    let there = length.saturating_sub(header.bytes);
    let Some(bytes) = u64::try_from(needed).ok().filter(|&needed| needed <= there) else {
        refuse!(
            "{} is truncated: {rows} x {columns} elements are {needed} B, {there} B are there",
            path.display()
        );
    };
    let order = if header.fortran { Order::ColumnMajor } else { Order::RowMajor };
    let (big, begin, path) = (header.element.starts_with('>'), header.bytes, path.to_owned());
    Ok(Found { rows, columns, order, format, big, path, file, begin, bytes })
}

/// Largest `.safetensors` header in bytes that is read. The format allows 100 MB; its text in memory is ten times
/// as large, and the headers of the largest models have a few MB.
const MOST_HEADER: u64 = 16_000_000;

/// A file's header, and where its tensors begin.
fn safetensors(path: &Path, file: &mut File, length: u64) -> Result<(Metadata, u64), Failure> {
    let none = |error: String| usage!("{} is no .safetensors file: {}", path.display(), shortened(&error));
    let start = part(path, file, 0, 8.min(length))?;
    let size = start.try_into().map(u64::from_le_bytes);
    let size = size.map_err(|_| none(format!("it has {length} B, a header's length alone has 8")))?;
    if size > MOST_HEADER.min(length - 8) {
        return Err(none(format!(
            "its header has {size} B, the file {length} B in all; at most {MOST_HEADER} B of a header are read"
        )));
    }
    let header = part(path, file, 8, size)?;
    let metadata: Metadata = serde_json::from_slice(&header).map_err(|error| none(error.to_string()))?;
    let (begin, tensors) = (8 + size, metadata.data_len() as u64);
    if length - begin != tensors {
        return Err(none(format!("its tensors are {tensors} B, {} B are after its header", length - begin)));
    }
    Ok((metadata, begin))
}

fn safetensor(path: &Path, name: Option<&str>, shape: Shape<'_>) -> Result<Found, Failure> {
    let (mut file, length) = open(path)?;
    let (metadata, begin) = safetensors(path, &mut file, length)?;
    let mut names = metadata.offset_keys();
    names.sort_unstable();
    let list = listed(&names);
    let name = match (name, names.as_slice()) {
        (Some(name), _) => name,
        (None, [only]) => only,
        (None, _) => {
            refuse!(
                "{} holds {} tensors ({list}): name one as {}:NAME",
                path.display(),
                names.len(),
                path.display()
            );
        }
    };
    let shown = shortened(name);
    let tensor = metadata
        .info(name)
        .ok_or_else(|| usage!("{} has no tensor `{shown}`; there are: {list}", path.display()))?;
    let found: Vec<u64> = tensor.shape.iter().map(|&extent| extent as u64).collect();
    let [rows, columns] = shape(path, &found)?;
    let formats = [
        (Dtype::F16, Format::F16),
        (Dtype::BF16, Format::Bf16),
        (Dtype::F32, Format::F32),
        (Dtype::F64, Format::F64),
        (Dtype::I32, Format::S32),
        (Dtype::F8_E4M3, Format::E4m3),
        (Dtype::F8_E5M2, Format::E5m2),
        (Dtype::I8, Format::S8),
        (Dtype::U8, Format::U8),
    ];
    let Some((_, format)) = formats.into_iter().find(|(dtype, _)| *dtype == tensor.dtype) else {
        refuse!(
            "tensor `{shown}` of {} holds elements of type {:?}; F16, BF16, F32, F64, I32, F8_E4M3, F8_E5M2, I8 or U8 was needed",
            path.display(),
            tensor.dtype
        );
    };
    // The header has been checked against the shapes and the file's length.
    let (from, to) = tensor.data_offsets;
    let (begin, bytes, path) = (begin + from as u64, (to - from) as u64, path.to_owned());
    Ok(Found { rows, columns, order: Order::RowMajor, format, big: false, path, file, begin, bytes })
}

impl Found {
    /// Reads the elements.
    pub(crate) fn read(self) -> Result<Matrix, Failure> {
        let Self { rows, columns, order, format, big, path, mut file, begin, bytes } = self;
        Ok(Matrix { rows, columns, order, format, big, bytes: part(&path, &mut file, begin, bytes)? })
    }
}

impl Matrix {
    /// A column-major matrix of bytes.
    pub(crate) fn of_columns([rows, columns]: [u32; 2], bytes: Vec<u8>) -> Self {
        Self { rows, columns, order: Order::ColumnMajor, format: Format::U8, big: false, bytes }
    }

    /// The elements of a matrix of 32-bit integers, row by row; `None` for other elements.
    pub(crate) fn words(&self) -> Option<Vec<u32>> {
        let word = |bytes: &[u8]| u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]);
        let whole = self.format == Format::S32 && !self.big && self.order == Order::RowMajor;
        whole.then(|| self.bytes.chunks_exact(4).map(word).collect())
    }

    /// The matrix with its columns permuted: column `i` of the result is column `order[i]`.
    pub(crate) fn with_columns(&self, order: &[u32]) -> Self {
        let rows = (0..self.rows).flat_map(|row| order.iter().map(move |&column| (row, column)));
        let bytes = rows.flat_map(|(row, column)| self.element(row, column).iter().copied()).collect();
        Self { order: Order::RowMajor, bytes, ..*self }
    }

    /// The bytes of an element.
    fn element(&self, row: u32, column: u32) -> &[u8] {
        let (row, column, width) = (row as usize, column as usize, self.format.bytes() as usize);
        let at = match self.order {
            Order::RowMajor => row * self.columns as usize + column,
            Order::ColumnMajor => column * self.rows as usize + row,
        };
        &self.bytes[at * width..][..width]
    }

    pub(crate) fn get(&self, row: u32, column: u32) -> f64 {
        let bytes = self.element(row, column);
        let bits = |bits, &byte: &u8| bits << 8 | u64::from(byte);
        self.format.decode(if self.big {
            bytes.iter().fold(0, bits)
        } else {
            bytes.iter().rev().fold(0, bits)
        })
    }

    /// Converts the matrix to a format and an order. The leading dimension is a multiple of `multiple`
    /// elements. `flag` names the matrix in the error for a value that the format cannot hold.
    pub(crate) fn to_host(
        &self,
        flag: &str,
        format: Format,
        order: Order,
        multiple: u32,
    ) -> Result<HostMatrix, Failure> {
        let ld = if order == Order::RowMajor { self.columns } else { self.rows };
        let ld = ld.next_multiple_of(multiple);
        filled(format, self.extents(), order, ld, |row, column| {
            let value = self.get(row, column);
            held(format, value)
                .map_err(|needed| usage!("{flag} has {value} in row {row}, column {column}: {needed}"))
        })
    }

    /// Rows and columns.
    pub(crate) fn extents(&self) -> [u32; 2] {
        [self.rows, self.columns]
    }
}

/// Every place of a matrix, row by row.
pub(crate) fn places([rows, columns]: [u32; 2]) -> impl Iterator<Item = (u32, u32)> {
    (0..rows).flat_map(move |row| (0..columns).map(move |column| (row, column)))
}

/// A matrix of the bits for each row and column.
pub(crate) fn filled(
    format: Format,
    extents: [u32; 2],
    order: Order,
    ld: u32,
    bits: impl Fn(u32, u32) -> Result<u64, Failure>,
) -> Result<HostMatrix, Failure> {
    let mut matrix = HostMatrix::from_fn(format, extents, order, ld, |_, _| 0.0);
    for (row, column) in places(extents) {
        let place = matrix.index(row, column);
        matrix.bits[place] = bits(row, column)?;
    }
    Ok(matrix)
}

/// The bits of a value, rounded to a format; or what the format holds instead.
pub(crate) fn held(format: Format, value: f64) -> Result<u64, String> {
    format.nearest(value).ok_or_else(|| {
        let [least, most] = format.range();
        format!("{} holds numbers from {least} to {most}", format.name())
    })
}
