//! A rank's part of a weight.

use falchion::collective::Format;
use safetensors::Dtype;
use safetensors::tensor::TensorView;

use crate::element::{Element, Kind, bytes};
use crate::error::Error;

/// A weight `(N, K)` on the host, row-major: `N` outputs of `K` inputs each, as PyTorch keeps it.
#[derive(Clone, Debug)]
pub struct Weights<'a> {
    bytes: std::borrow::Cow<'a, [u8]>,
    kind: Kind,
    rows: u32,
    columns: u32,
    scales: Option<Scales<'a>>,
}

/// The scales of a weight in `e4m3`, one per 128 x 128 numbers: `(ceil(N / 128), ceil(K / 128))`, row-major.
#[derive(Clone, Debug)]
pub struct Scales<'a>(std::borrow::Cow<'a, [f32]>);

impl<'a> From<&'a [f32]> for Scales<'a> {
    fn from(scales: &'a [f32]) -> Self {
        Self(scales.into())
    }
}

/// How the rows of a weight are divided among ranks.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Cut {
    /// Each rank takes the same number of neighbouring rows.
    #[default]
    Rows,
    /// The weight is several, one below the other, with these numbers of rows (queries, keys and values; gate
    /// and up). Of each, a rank takes its part.
    Parts(Vec<u32>),
}

/// Numbers that share a scale, in both directions.
const BLOCK: u32 = 128;

impl<'a> Weights<'a> {
    /// A weight of `rows` outputs and `columns` inputs.
    ///
    /// # Errors
    /// Another number of elements.
    pub fn new<T: Element>(data: &'a [T], [rows, columns]: [u32; 2]) -> Result<Self, Error> {
        some([rows, columns])?;
        crate::group::exactly("the weight", data.len(), rows as usize * columns as usize)?;
        Ok(Self { bytes: bytes(data).into(), kind: T::KIND, rows, columns, scales: None })
    }

    /// A weight of a safetensors file. Only a rank's part is copied from the file.
    ///
    /// # Errors
    /// It is no matrix of bf16, f16 or e4m3.
    pub fn of_view(view: &TensorView<'a>) -> Result<Self, Error> {
        let kind = match view.dtype() {
            Dtype::BF16 => Kind::Float(Format::Bf16),
            Dtype::F16 => Kind::Float(Format::F16),
            Dtype::F8_E4M3 => Kind::Float(Format::E4m3),
            other => {
                return Err(Error::argument(
                    "the weight's dtype",
                    format!("{other:?}"),
                    "BF16, F16 or F8_E4M3",
                ));
            }
        };
        let extents: Vec<u32> =
            view.shape().iter().filter_map(|&extent| u32::try_from(extent).ok()).collect();
        let &[rows, columns] = &extents[..] else {
            return Err(Error::argument(
                "the weight's shape",
                format!("{:?}", view.shape()),
                "two extents below 2^32",
            ));
        };
        some([rows, columns])?;
        Ok(Self { bytes: view.data().into(), kind, rows, columns, scales: None })
    }

    /// Adds scales.
    ///
    /// # Errors
    /// Another number of them than blocks; a weight that is not e4m3.
    pub fn scaled(self, scales: impl Into<Scales<'a>>) -> Result<Self, Error> {
        let scales = scales.into();
        if self.kind != Kind::Float(Format::E4m3) {
            return Err(Error::argument("the weight's dtype", self.kind.name(), "e4m3, as it has scales"));
        }
        crate::group::exactly(
            "the weight's scales",
            scales.0.len(),
            (self.rows.div_ceil(BLOCK) * self.columns.div_ceil(BLOCK)) as usize,
        )?;
        Ok(Self { scales: Some(scales), ..self })
    }

    pub(crate) fn kind(&self) -> Kind {
        self.kind
    }

    pub(crate) fn extents(&self) -> [u32; 2] {
        [self.rows, self.columns]
    }

    /// A rank's rows.
    pub(crate) fn rows_of(&self, cut: &Cut, (rank, size): (u32, u32)) -> Result<Part, Error> {
        let ranges = cut.ranges(self.rows, (rank, size))?;
        if self.scales.is_some() {
            let whole = |[first, count]: &[u32; 2]| {
                first % BLOCK == 0 && (count % BLOCK == 0 || first + count == self.rows)
            };
            if let Some([first, count]) = ranges.iter().find(|range| !whole(range)) {
                let found = format!("rows {first} to {}", first + count);
                return Err(Error::argument(
                    format!("the part of rank {rank}"),
                    found,
                    "whole blocks of 128 rows, as the weights have scales",
                ));
            }
        }
        let row = self.columns as usize * self.kind.bytes();
        let of = |[first, count]: [u32; 2]| &self.bytes[first as usize * row..(first + count) as usize * row];
        let bytes = ranges.iter().flat_map(|&range| of(range)).copied().collect();
        let scales = self.scales.as_ref().map(|scales| {
            let blocks = self.columns.div_ceil(BLOCK) as usize;
            let of = |&[first, count]: &[u32; 2]| {
                &scales.0
                    [(first / BLOCK) as usize * blocks..(first + count).div_ceil(BLOCK) as usize * blocks]
            };
            ranges.iter().flat_map(of).copied().collect()
        });
        Ok(Part { bytes, extents: [ranges.iter().map(|[_, count]| count).sum(), self.columns], scales })
    }

    /// A rank's columns.
    pub(crate) fn columns_of(&self, (rank, size): (u32, u32)) -> Result<Part, Error> {
        let count = divided("the weight's columns (K)", self.columns, size)?;
        if self.scales.is_some() && count % BLOCK != 0 {
            return Err(Error::argument(
                "a rank's part of the weight's columns (K)",
                count,
                "a multiple of 128, as the weights have scales",
            ));
        }
        let [width, row, first] =
            [count, self.columns, rank * count].map(|columns| columns as usize * self.kind.bytes());
        let bytes =
            self.bytes.chunks_exact(row).flat_map(|row| &row[first..first + width]).copied().collect();
        let scales = self.scales.as_ref().map(|scales| {
            let [all, own] = [self.columns / BLOCK, count / BLOCK].map(|blocks| blocks as usize);
            let first = own * rank as usize;
            scales.0.chunks_exact(all).flat_map(|row| &row[first..first + own]).copied().collect()
        });
        Ok(Part { bytes, extents: [self.rows, count], scales })
    }
}

/// Checks that a weight has elements.
fn some([rows, columns]: [u32; 2]) -> Result<(), Error> {
    match rows.min(columns) {
        0 => Err(Error::argument("the weight's extents", format!("{rows} x {columns}"), "at least 1 x 1")),
        _ => Ok(()),
    }
}

/// What a rank keeps of a weight.
#[derive(Debug)]
pub(crate) struct Part {
    pub(crate) bytes: Vec<u8>,
    pub(crate) extents: [u32; 2],
    pub(crate) scales: Option<Vec<f32>>,
}

impl Cut {
    /// First row and number of rows of each of a rank's parts.
    pub(crate) fn ranges(&self, rows: u32, (rank, size): (u32, u32)) -> Result<Vec<[u32; 2]>, Error> {
        let parts = match self {
            Self::Rows => &[rows][..],
            Self::Parts(parts) => parts,
        };
        let sum: u64 = parts.iter().map(|&part| u64::from(part)).sum();
        if sum != u64::from(rows) {
            return Err(Error::argument(
                "the rows of all parts",
                sum,
                format!("{rows}, the weight's rows (N)"),
            ));
        }
        let mut first = 0;
        let range = |&part: &u32| {
            let count = divided("the rows (N) of a weight, or of a part of it", part, size)?;
            let begin = first + rank * count;
            first += part;
            Ok([begin, count])
        };
        parts.iter().map(range).collect()
    }
}

/// A rank's part of an extent.
pub(crate) fn divided(field: &str, extent: u32, size: u32) -> Result<u32, Error> {
    match extent % size {
        0 => Ok(extent / size),
        _ => Err(Error::argument(field, extent, format!("a multiple of {size}, the number of ranks"))),
    }
}

#[cfg(test)]
mod tests {
    use super::{Cut, Weights};

    #[test]
    fn every_row_and_column_has_one_owner() {
        let data: Vec<u32> = (0..24 * 6).collect();
        let weights = Weights::new(&data, [24, 6]).expect("extents");
        let read = |bytes: &[u8]| {
            bytes.chunks_exact(4).map(|b| u32::from_le_bytes([b[0], b[1], b[2], b[3]])).collect::<Vec<_>>()
        };
        for (cut, first) in
            [(Cut::Rows, vec![[8, 8]]), (Cut::Parts(vec![12, 6, 6]), vec![[4, 4], [14, 2], [20, 2]])]
        {
            assert_eq!(cut.ranges(24, (1, 3)).expect("divides"), first);
            let mut all: Vec<u32> = (0..3)
                .flat_map(|rank| read(&weights.rows_of(&cut, (rank, 3)).expect("divides").bytes))
                .collect();
            all.sort_unstable();
            assert_eq!(all, data);
        }
        let part = weights.columns_of((2, 3)).expect("divides");
        assert_eq!((part.extents, &read(&part.bytes)[..4]), ([24, 2], &[4, 5, 10, 11][..]));
    }

    #[test]
    fn what_does_not_divide_is_named() {
        let data = vec![0u32; 24 * 6];
        let weights = Weights::new(&data, [24, 6]).expect("extents");
        let words = |error: crate::Error| error.to_string();
        assert!(
            words(weights.rows_of(&Cut::Rows, (0, 5)).expect_err("5")).contains("is 24, a multiple of 5")
        );
        assert!(words(weights.columns_of((0, 4)).expect_err("4")).contains("(K) is 6, a multiple of 4"));
        let parts = Cut::Parts(vec![12, 6]);
        assert!(words(weights.rows_of(&parts, (0, 2)).expect_err("18")).contains("is 18, 24"));
        assert!(words(Weights::new::<u32>(&[], [0, 5]).expect_err("0")).contains("0 x 5, at least 1 x 1"));
        assert!(words(Weights::new(&data, [24, 5]).expect_err("5")).contains("is 144, 120"));
    }
}
