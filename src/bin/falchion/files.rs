//! Matrix files, `.npy` and tensors of `.safetensors`, and text files that commands write.
//!
//! A file may hold f16, bf16, f32, f64, 8-bit floats or 8-bit integers, row-major or column-major. Values are
//! rounded to the requested format, to nearest, ties to even. Only the header and the one matrix are read.
//! The header and the file's length bound every read; a device or a pipe is refused.

mod npy;

use std::fs::{self, File};
use std::io::{BufWriter, Read, Seek, SeekFrom, Write};
use std::path::Path;

use falchion::verify::{Format, HostMatrix, Order};
use half::{bf16, f16};
use safetensors::Dtype;
use safetensors::tensor::Metadata;

use crate::output::{listed, shortened};
use crate::{Failure, memory};

/// A matrix of a file, with its elements as the file holds them.
#[derive(Debug)]
pub(crate) struct Matrix {
    pub(crate) rows: u32,
    pub(crate) columns: u32,
    pub(crate) order: Order,
    kind: Kind,
    /// Whether numbers are big-endian.
    big: bool,
    bytes: Vec<u8>,
}

/// The format of an element in a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    F16,
    Bf16,
    F32,
    F64,
    /// 32-bit integers.
    Word,
    /// An 8-bit float or integer, in a format of the reference.
    Byte(Format),
}

impl Kind {
    fn bytes(self) -> usize {
        match self {
            Self::Byte(_) => 1,
            Self::F16 | Self::Bf16 => 2,
            Self::F32 | Self::Word => 4,
            Self::F64 => 8,
        }
    }

    fn value(self, bytes: &[u8], big: bool) -> f64 {
        let mut word = [0; 8];
        word[..bytes.len()].copy_from_slice(bytes);
        if big {
            word[..bytes.len()].reverse();
        }
        let bits = u64::from_le_bytes(word);
        match self {
            Self::Byte(format) => format.decode(bits),
            Self::F16 => f16::from_bits(bits as u16).to_f64(),
            Self::Bf16 => bf16::from_bits(bits as u16).to_f64(),
            Self::F32 => f32::from_bits(bits as u32).into(),
            Self::F64 => f64::from_bits(bits),
            Self::Word => (bits as u32).cast_signed().into(),
        }
    }
}

/// Reads a matrix: `FILE.npy`, or `FILE.safetensors[:TENSOR]`.
pub(crate) fn read(name: &str) -> Result<Matrix, Failure> {
    read_shaped(name, &extents)
}

/// Reads a number, a row or a matrix.
pub(crate) fn read_any_rank(name: &str) -> Result<Matrix, Failure> {
    read_shaped(name, &|path, shape| match shape {
        [] => Ok([1, 1]),
        [length] => extents(path, &[1, *length]),
        _ => extents(path, shape),
    })
}

/// Makes rows and columns of a file's shape.
type Shape<'a> = &'a dyn Fn(&Path, &[u64]) -> Result<[u32; 2], Failure>;

fn read_shaped(name: &str, shape: Shape<'_>) -> Result<Matrix, Failure> {
    match name.split_once(".safetensors") {
        Some((stem, rest)) if rest.is_empty() || rest.starts_with(':') => {
            let tensor = rest.strip_prefix(':').filter(|tensor| !tensor.is_empty());
            safetensor(Path::new(&format!("{stem}.safetensors")), tensor, shape)
        }
        _ if name.ends_with(".npy") => npy(Path::new(name), shape),
        _ => Err(Failure::usage(format!(
            "{} is neither FILE.npy nor FILE.safetensors[:TENSOR]",
            shortened(name)
        ))),
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

/// Fails unless a file can be written at that path. An existing file is not changed.
pub(crate) fn writable(path: &Path) -> Result<(), Failure> {
    let there = path.exists();
    let opened = fs::OpenOptions::new().append(true).create(true).open(path);
    opened.map_err(|error| unwritten(path, &error))?;
    if !there {
        // Remove only a file that this function created, so that a failed run leaves nothing.
        let _ = fs::remove_file(path);
    }
    Ok(())
}

/// Writes a file.
pub(crate) fn write_text(path: &Path, text: &(impl AsRef<[u8]> + ?Sized)) -> Result<(), Failure> {
    fs::write(path, text).map_err(|error| unwritten(path, &error))
}

fn unwritten(path: &Path, error: &std::io::Error) -> Failure {
    Failure::environment(format!("cannot write {}: {error}", path.display()))
}

fn unread(path: &Path, error: &std::io::Error) -> Failure {
    Failure::usage(format!("cannot read {}: {error}", path.display()))
}

/// Opens a file for reading, and returns its length. A device or a pipe is refused: it has no length, and
/// opening it may block.
pub(crate) fn open(path: &Path) -> Result<(File, u64), Failure> {
    let metadata = fs::metadata(path).map_err(|error| unread(path, &error))?;
    if !metadata.is_file() {
        let is = if metadata.is_dir() { "a folder" } else { "a device or a pipe" };
        return Err(Failure::usage(format!("{} is {is}, a file was needed", path.display())));
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
    Err(Failure::usage(format!(
        "{} became shorter while it was read: {bytes} B were needed at {begin}, {} B are there",
        path.display(),
        read.len()
    )))
}

fn extents(path: &Path, shape: &[u64]) -> Result<[u32; 2], Failure> {
    let seen = shortened(&format!("{shape:?}"));
    let bad = |needed: &str| {
        Err(Failure::usage(format!("{} has shape {seen}, {needed} was needed", path.display())))
    };
    let [rows, columns] = shape else { return bad("a matrix") };
    match (u32::try_from(*rows), u32::try_from(*columns)) {
        (Ok(0), Ok(_)) | (Ok(_), Ok(0)) => bad("a matrix with at least 1 row and 1 column"),
        (Ok(rows), Ok(columns)) => Ok([rows, columns]),
        _ => bad("a matrix with extents below 2^32"),
    }
}

fn npy(path: &Path, shape: Shape<'_>) -> Result<Matrix, Failure> {
    let (mut file, length) = open(path)?;
    let header = npy::Header::read(&mut file, length)
        .map_err(|error| Failure::usage(format!("{} is no .npy file: {error}", path.display())))?;
    let [rows, columns] = shape(path, &header.shape)?;
    // `ml_dtypes` writes the full name of its type, and NumPy writes two raw bytes.
    let kind = match header.element.trim_start_matches(['<', '>', '|', '=']) {
        "f2" => Kind::F16,
        "V2" | "bfloat16" => Kind::Bf16,
        "f4" => Kind::F32,
        "f8" => Kind::F64,
        "i1" => Kind::Byte(Format::S8),
        "u1" => Kind::Byte(Format::U8),
        "float8_e4m3fn" => Kind::Byte(Format::E4m3),
        "float8_e5m2" => Kind::Byte(Format::E5m2),
        "V1" => {
            return Err(Failure::usage(format!(
                "{} holds elements of type V1, which may be any 8-bit float: a .safetensors file says which",
                path.display()
            )));
        }
        _ => {
            return Err(Failure::usage(format!(
                "{} holds elements of type {}; f16, bf16 (as V2), f32, f64, i1, u1, float8_e4m3fn or float8_e5m2 was needed",
                path.display(),
                shortened(&header.element)
            )));
        }
    };
    let needed = u128::from(rows) * u128::from(columns) * kind.bytes() as u128;
    let there = length.saturating_sub(header.bytes);
    let bytes = match u64::try_from(needed) {
        Ok(needed) if needed <= there => part(path, &mut file, header.bytes, needed)?,
        _ => {
            return Err(Failure::usage(format!(
                "{} is truncated: {rows} x {columns} elements are {needed} B, {there} B are there",
                path.display()
            )));
        }
    };
    let order = if header.fortran { Order::ColumnMajor } else { Order::RowMajor };
    Ok(Matrix { rows, columns, order, kind, big: header.element.starts_with('>'), bytes })
}

/// Largest size of a `.safetensors` header in bytes, by the format's definition.
const MOST_HEADER: u64 = 100_000_000;

/// A file's header, and where its tensors begin.
fn safetensors(path: &Path, file: &mut File, length: u64) -> Result<(Metadata, u64), Failure> {
    let none = |error: String| {
        Failure::usage(format!("{} is no .safetensors file: {}", path.display(), shortened(&error)))
    };
    let start = part(path, file, 0, 8.min(length))?;
    let size = start.try_into().map(u64::from_le_bytes);
    let size = size.map_err(|_| none(format!("it has {length} B, a header's length alone has 8")))?;
    if size > MOST_HEADER.min(length - 8) {
        return Err(none(format!(
            "its header has {size} B, the file {length} B in all; a header has at most {MOST_HEADER} B"
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

fn safetensor(path: &Path, name: Option<&str>, shape: Shape<'_>) -> Result<Matrix, Failure> {
    let (mut file, length) = open(path)?;
    let (metadata, begin) = safetensors(path, &mut file, length)?;
    let mut names = metadata.offset_keys();
    names.sort_unstable();
    let list = listed(&names);
    let name = match (name, names.as_slice()) {
        (Some(name), _) => name,
        (None, [only]) => only,
        (None, _) => {
            return Err(Failure::usage(format!(
                "{} holds {} tensors ({list}): name one as {}:NAME",
                path.display(),
                names.len(),
                path.display()
            )));
        }
    };
    let shown = shortened(name);
    let tensor = metadata.info(name).ok_or_else(|| {
        Failure::usage(format!("{} has no tensor `{shown}`; there are: {list}", path.display()))
    })?;
    let found: Vec<u64> = tensor.shape.iter().map(|&extent| extent as u64).collect();
    let [rows, columns] = shape(path, &found)?;
    let kinds = [
        (Dtype::F16, Kind::F16),
        (Dtype::BF16, Kind::Bf16),
        (Dtype::F32, Kind::F32),
        (Dtype::F64, Kind::F64),
        (Dtype::I32, Kind::Word),
        (Dtype::F8_E4M3, Kind::Byte(Format::E4m3)),
        (Dtype::F8_E5M2, Kind::Byte(Format::E5m2)),
        (Dtype::I8, Kind::Byte(Format::S8)),
        (Dtype::U8, Kind::Byte(Format::U8)),
    ];
    let Some((_, kind)) = kinds.into_iter().find(|(dtype, _)| *dtype == tensor.dtype) else {
        return Err(Failure::usage(format!(
            "tensor `{shown}` of {} holds elements of type {:?}; F16, BF16, F32, F64, I32, F8_E4M3, F8_E5M2, I8 or U8 was needed",
            path.display(),
            tensor.dtype
        )));
    };
    // The header has been checked against the shapes and the file's length.
    let (from, to) = tensor.data_offsets;
    let bytes = part(path, &mut file, begin + from as u64, (to - from) as u64)?;
    Ok(Matrix { rows, columns, order: Order::RowMajor, kind, big: false, bytes })
}

impl Matrix {
    /// A column-major matrix of bytes.
    pub(crate) fn of_columns([rows, columns]: [u32; 2], bytes: Vec<u8>) -> Self {
        Self { rows, columns, order: Order::ColumnMajor, kind: Kind::Byte(Format::U8), big: false, bytes }
    }

    /// The elements of a matrix of 32-bit integers, row by row; `None` for other elements.
    pub(crate) fn words(&self) -> Option<Vec<u32>> {
        let word = |bytes: &[u8]| u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]);
        let whole = self.kind == Kind::Word && !self.big && self.order == Order::RowMajor;
        whole.then(|| self.bytes.chunks_exact(4).map(word).collect())
    }

    /// The matrix with its columns permuted: column `i` of the result is column `order[i]`.
    pub(crate) fn with_columns(&self, order: &[u32]) -> Self {
        let width = self.kind.bytes();
        let at = |row: u32, column: u32| match self.order {
            Order::RowMajor => row as usize * self.columns as usize + column as usize,
            Order::ColumnMajor => column as usize * self.rows as usize + row as usize,
        };
        let place = |row: u32, column: u32| &self.bytes[at(row, column) * width..][..width];
        let rows = (0..self.rows).flat_map(|row| order.iter().map(move |&column| (row, column)));
        let bytes = rows.flat_map(|(row, column)| place(row, column).iter().copied()).collect();
        Self { order: Order::RowMajor, bytes, ..*self }
    }

    pub(crate) fn get(&self, row: u32, column: u32) -> f64 {
        let (row, column) = (row as usize, column as usize);
        let at = match self.order {
            Order::RowMajor => row * self.columns as usize + column,
            Order::ColumnMajor => column * self.rows as usize + row,
        };
        let width = self.kind.bytes();
        self.kind.value(&self.bytes[at * width..][..width], self.big)
    }

    /// Converts the matrix to a format and an order. The leading dimension is a multiple of `multiple`
    /// elements.
    pub(crate) fn to_host(&self, format: Format, order: Order, multiple: u32) -> HostMatrix {
        let pitch = if order == Order::RowMajor { self.columns } else { self.rows };
        let pitch = pitch.next_multiple_of(multiple);
        let extents = [self.rows, self.columns];
        HostMatrix::from_fn(format, extents, order, pitch, |row, column| self.get(row, column))
    }
}

/// Writes a row-major matrix as .npy: f16 and f64 unchanged, s32 as 32-bit integers, every other format as
/// f32, which represents all of its values.
pub(crate) fn write(path: &Path, format: Format, extents: [u32; 2], bits: &[u64]) -> Result<(), Failure> {
    let written = || -> std::io::Result<()> {
        let mut file = BufWriter::new(File::create(path)?);
        let (kind, exact) = match (format.is_integer(), format.bytes()) {
            (true, 4) => ("<i4", true),
            _ if format == Format::F16 => ("<f2", true),
            _ if format == Format::F64 => ("<f8", true),
            _ => ("<f4", false),
        };
        file.write_all(&npy::Header::of_matrix(kind, extents))?;
        if exact {
            file.write_all(&format.memory(bits))?;
        } else {
            let single = |&bits: &u64| (format.decode(bits) as f32).to_le_bytes();
            bits.iter().map(single).try_for_each(|bytes| file.write_all(&bytes))?;
        }
        file.flush()
    };
    written().map_err(|error| unwritten(path, &error))
}
