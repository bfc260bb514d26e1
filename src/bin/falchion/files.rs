//! Matrices in files: `.npy`, and tensors of `.safetensors`.
//!
//! Files are read as users have them: f16, bf16, f32 or f64, rows or columns contiguous. Values are rounded to the
//! nearest element of the type that is asked for, ties to even.

use std::fs::{self, File};
use std::io::BufWriter;
use std::path::Path;

use falchion::verify::{Format, HostMatrix, Order};
use half::{bf16, f16};
use safetensors::{Dtype, SafeTensors};

use crate::Failure;

/// Numbers of a file, as they lie there.
#[derive(Debug)]
pub(crate) struct Matrix {
    pub(crate) rows: u32,
    pub(crate) columns: u32,
    pub(crate) order: Order,
    values: Vec<f64>,
}

/// How a number is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    F16,
    Bf16,
    F32,
    F64,
}

impl Kind {
    fn bytes(self) -> usize {
        match self {
            Self::F16 | Self::Bf16 => 2,
            Self::F32 => 4,
            Self::F64 => 8,
        }
    }

    /// Reads numbers of which `big` says whether their high byte comes first.
    fn read(self, bytes: &[u8], big: bool) -> Vec<f64> {
        let number = |chunk: &[u8]| {
            let mut word = [0; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            if big {
                word[..chunk.len()].reverse();
            }
            let bits = u64::from_le_bytes(word);
            match self {
                Self::F16 => f16::from_bits(bits as u16).to_f64(),
                Self::Bf16 => bf16::from_bits(bits as u16).to_f64(),
                Self::F32 => f32::from_bits(bits as u32).into(),
                Self::F64 => f64::from_bits(bits),
            }
        };
        bytes.chunks_exact(self.bytes()).map(number).collect()
    }
}

/// Reads `FILE.npy`, or `FILE.safetensors[:TENSOR]`.
pub(crate) fn read(name: &str) -> Result<Matrix, Failure> {
    match name.split_once(".safetensors") {
        Some((stem, rest)) if rest.is_empty() || rest.starts_with(':') => {
            let tensor = rest.strip_prefix(':').filter(|tensor| !tensor.is_empty());
            safetensor(Path::new(&format!("{stem}.safetensors")), tensor)
        }
        _ if name.ends_with(".npy") => npy(Path::new(name)),
        _ => Err(Failure::usage(format!("{name} is neither FILE.npy nor FILE.safetensors[:TENSOR]"))),
    }
}

/// Fails unless a file can be written at that path, and leaves what is there as it is.
pub(crate) fn writable(path: &Path) -> Result<(), Failure> {
    let there = path.exists();
    let opened = fs::OpenOptions::new().append(true).create(true).open(path);
    opened.map_err(|error| Failure::environment(format!("cannot write {}: {error}", path.display())))?;
    if !there {
        // Only what this function made: a run that fails leaves nothing behind.
        let _ = fs::remove_file(path);
    }
    Ok(())
}

fn whole(path: &Path) -> Result<Vec<u8>, Failure> {
    fs::read(path).map_err(|error| Failure::usage(format!("cannot read {}: {error}", path.display())))
}

/// Writes the type that `ml_dtypes` calls `bfloat16` as the two raw bytes that it is: the reader knows NumPy's own
/// types only. The header keeps its length.
fn name_raw(bytes: &mut [u8]) {
    const NAMED: &[u8] = b"'bfloat16'";
    const RAW: &[u8] = b"'<V2'     ";
    let header = bytes.iter().position(|&byte| byte == b'\n').unwrap_or(0);
    if let Some(at) = bytes[..header].windows(NAMED.len()).position(|window| window == NAMED) {
        bytes[at..at + RAW.len()].copy_from_slice(RAW);
    }
}

fn extents(path: &Path, shape: &[u64]) -> Result<[u32; 2], Failure> {
    let bad = || Failure::usage(format!("{} has shape {shape:?}, a matrix was needed", path.display()));
    let [rows, columns] = shape else { return Err(bad()) };
    match (u32::try_from(*rows), u32::try_from(*columns)) {
        (Ok(rows), Ok(columns)) => Ok([rows, columns]),
        _ => Err(bad()),
    }
}

fn npy(path: &Path) -> Result<Matrix, Failure> {
    let mut bytes = whole(path)?;
    name_raw(&mut bytes);
    let mut reader = bytes.as_slice();
    let header = npyz::NpyHeader::from_reader(&mut reader)
        .map_err(|error| Failure::usage(format!("{} is no .npy file: {error}", path.display())))?;
    let [rows, columns] = extents(path, header.shape())?;
    let described = header.dtype().descr();
    let described = described.trim_matches('\'');
    let kind = match described.trim_start_matches(['<', '>', '|', '=']) {
        "f2" => Kind::F16,
        "V2" => Kind::Bf16,
        "f4" => Kind::F32,
        "f8" => Kind::F64,
        _ => {
            return Err(Failure::usage(format!(
                "{} holds elements of type {described}; f16, bf16 (as V2), f32 or f64 was needed",
                path.display()
            )));
        }
    };
    let needed = u128::from(rows) * u128::from(columns) * kind.bytes() as u128;
    let Some(elements) = usize::try_from(needed).ok().and_then(|needed| reader.get(..needed)) else {
        return Err(Failure::usage(format!(
            "{} is truncated: {rows} x {columns} elements are {needed} B, {} B are there",
            path.display(),
            reader.len()
        )));
    };
    let order = match header.order() {
        npyz::Order::C => Order::RowMajor,
        npyz::Order::Fortran => Order::ColumnMajor,
    };
    let values = kind.read(elements, described.starts_with('>'));
    Ok(Matrix { rows, columns, order, values })
}

fn safetensor(path: &Path, name: Option<&str>) -> Result<Matrix, Failure> {
    let bytes = whole(path)?;
    let file = SafeTensors::deserialize(&bytes)
        .map_err(|error| Failure::usage(format!("{} is no .safetensors file: {error}", path.display())))?;
    let mut names = file.names();
    names.sort_unstable();
    let list = names.join(", ");
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
    let tensor = file.tensor(name).map_err(|_| {
        Failure::usage(format!("{} has no tensor `{name}`; there are: {list}", path.display()))
    })?;
    let shape: Vec<u64> = tensor.shape().iter().map(|&extent| extent as u64).collect();
    let [rows, columns] = extents(path, &shape)?;
    let kinds = [
        (Dtype::F16, Kind::F16),
        (Dtype::BF16, Kind::Bf16),
        (Dtype::F32, Kind::F32),
        (Dtype::F64, Kind::F64),
    ];
    let Some((_, kind)) = kinds.into_iter().find(|(dtype, _)| *dtype == tensor.dtype()) else {
        return Err(Failure::usage(format!(
            "tensor `{name}` of {} holds elements of type {:?}; F16, BF16, F32 or F64 was needed",
            path.display(),
            tensor.dtype()
        )));
    };
    Ok(Matrix { rows, columns, order: Order::RowMajor, values: kind.read(tensor.data(), false) })
}

impl Matrix {
    fn get(&self, row: u32, column: u32) -> f64 {
        let (row, column) = (row as usize, column as usize);
        let at = match self.order {
            Order::RowMajor => row * self.columns as usize + column,
            Order::ColumnMajor => column * self.rows as usize + row,
        };
        self.values[at]
    }

    /// The matrix as elements of a format, laid out as asked; rows (or columns) stay packed.
    pub(crate) fn to_host(&self, format: Format, order: Order) -> HostMatrix {
        let pitch = if order == Order::RowMajor { self.columns } else { self.rows };
        let extents = [self.rows, self.columns];
        HostMatrix::from_fn(format, extents, order, pitch, |row, column| self.get(row, column))
    }
}

/// Writes a row-major matrix: f16 as f16, bf16 as f32, which holds every bf16 exactly.
pub(crate) fn write(
    path: &Path,
    format: Format,
    [rows, columns]: [u32; 2],
    bits: &[u16],
) -> Result<(), Failure> {
    use npyz::WriterBuilder;
    let failed =
        |error: std::io::Error| Failure::environment(format!("cannot write {}: {error}", path.display()));
    let file = BufWriter::new(File::create(path).map_err(failed)?);
    let shape = [u64::from(rows), u64::from(columns)];
    match format {
        Format::F16 => {
            let mut writer = npyz::WriteOptions::new()
                .shape(&shape)
                .default_dtype()
                .writer(file)
                .begin_nd()
                .map_err(failed)?;
            writer.extend(bits.iter().map(|&bits| f16::from_bits(bits))).map_err(failed)?;
            writer.finish().map_err(failed)
        }
        Format::Bf16 => {
            let mut writer = npyz::WriteOptions::new()
                .shape(&shape)
                .default_dtype()
                .writer(file)
                .begin_nd()
                .map_err(failed)?;
            writer.extend(bits.iter().map(|&bits| bf16::from_bits(bits).to_f32())).map_err(failed)?;
            writer.finish().map_err(failed)
        }
    }
}
