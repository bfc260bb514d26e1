//! `--dtype-b gptq` and `awq`: weights from the files of GPTQ and AWQ models.

use crate::verify::{Format as Oracle, HostMatrix, Order};
use collective::{Code, Format, WeightsSpec, weights};

use kernel::GemmProblem;

use crate::cli::Failure;
use crate::cli::files::{self, Found as File, Matrix, held};
use crate::cli::scales::Scaling;
use crate::cli::weights::{FewBits, Found};

/// The kind of file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Packing {
    Gptq,
    Awq,
}

/// A layer of such a file, without its codes.
pub(crate) struct Layer {
    pub(crate) code: Code,
    /// Number of elements along K in a group.
    group: u32,
    /// One row per group.
    scales: HostMatrix,
    zeros: HostMatrix,
    /// A permutation of K that makes each group contiguous; `None` if the groups are contiguous already.
    pub(crate) order: Option<Vec<u32>>,
}

impl Layer {
    /// The operand with these scales; `scaling` is the scale of the other operand.
    pub(crate) fn found(
        &self,
        few_bits: FewBits,
        codes: &Matrix,
        scaling: Scaling,
    ) -> Result<Found, Failure> {
        let Scaling::Number(_) = scaling else {
            refuse!(
                "--scale-a has a scale per row or block: with weights in few bits, one number was needed"
            );
        };
        let (scales, zeros) = (Some(self.scales.clone()), Some(self.zeros.clone()));
        let weights = Some(few_bits.weights(codes, self.group, scales, zeros)?);
        Ok(Found { spec: WeightsSpec { code: self.code, group: self.group, zeros: true }, weights, scaling })
    }
}

impl Packing {
    pub(crate) fn named(name: &str) -> Option<Self> {
        match name {
            "gptq" => Some(Self::Gptq),
            "awq" => Some(Self::Awq),
            _ => None,
        }
    }

    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Gptq => "gptq",
            Self::Awq => "awq",
        }
    }

    /// Reads the layer `FILE.safetensors:LAYER`. Its codes are K x N. Its tensors are `LAYER.qweight`,
    /// `LAYER.qzeros`, `LAYER.scales` and, if the groups are not contiguous along K, `LAYER.g_idx`. `fits` makes
    /// the problem of K and N, before any elements are read.
    pub(crate) fn read(
        self,
        name: &str,
        wide: Format,
        fits: &dyn Fn([u32; 2]) -> Result<GemmProblem, Failure>,
    ) -> Result<(GemmProblem, Matrix, Layer), Failure> {
        let no_layer = || {
            usage!(
                "--b is {name}, FILE.safetensors:LAYER was needed for --dtype-b {}: tensors LAYER.qweight, LAYER.qzeros and LAYER.scales are read",
                self.name()
            )
        };
        let (file, layer) = name.split_once(".safetensors:").ok_or_else(no_layer)?;
        let tensors = Tensors { file, layer };
        let (qweight, qzeros, scales) =
            (tensors.look("qweight")?, tensors.look("qzeros")?, tensors.look("scales")?);
        let (groups, n) = (scales.rows, scales.columns);
        let (bits, k) = self.extents(&tensors, [&qweight, &qzeros], [groups, n])?;
        let group = k / groups.max(1);
        if ![32, 64, 128].contains(&group) || group * groups != k {
            let needed = "a K of 32, 64 or 128 per group".to_owned();
            return Err(tensors.wrong("qweight", &qweight, [groups, n], needed));
        }
        let problem = fits([k, n])?;
        let (packed, packed_zeros) = (tensors.words("qweight", qweight)?, tensors.words("qzeros", qzeros)?);
        let scales = scales.read()?;
        let failed = |error: weights::WeightsError| usage!("{name}: {error}");
        let (mut codes, zeros) = match self {
            Self::Gptq => (
                weights::of_gptq(bits, [n, k], &packed).map_err(failed)?,
                weights::zeros_of_gptq(bits, [groups, n], &packed_zeros, 1).map_err(failed)?,
            ),
            Self::Awq => (
                weights::of_awq([n, k], &packed).map_err(failed)?,
                weights::zeros_of_awq([groups, n], &packed_zeros).map_err(failed)?,
            ),
        };
        let order = if self == Self::Gptq { tensors.order(name, [k, group])? } else { None };
        if let Some(order) = &order {
            codes = codes.chunks(k as usize).flat_map(|row| weights::permuted(row, order)).collect();
        }
        let format = Oracle::named(wide.name()).unwrap_or(Oracle::F16);
        let ld = n.next_multiple_of(16);
        let lines = |of: &str, value: &dyn Fn(u32, u32) -> f64| -> Result<HostMatrix, Failure> {
            files::filled(format, [groups, n], Order::RowMajor, ld, |group, column| {
                let value = value(group, column);
                held(format, value).map_err(|needed| {
                    usage!("{} has {value} in row {group}, column {column}: {needed}", tensors.name(of))
                })
            })
        };
        let layer = Layer {
            code: if bits == 4 { Code::U4 } else { Code::U8 },
            group,
            scales: lines("scales", &|group, column| scales.get(group, column))?,
            zeros: lines("qzeros", &|group, column| zeros[(group * n + column) as usize].into())?,
            order,
        };
        Ok((problem, Matrix::of_columns([k, n], codes), layer))
    }

    /// The bits of a code, and K, which follow from the extents of the tensors. `scales` are those of the scales.
    fn extents(
        self,
        tensors: &Tensors<'_>,
        [qweight, qzeros]: [&File; 2],
        scales: [u32; 2],
    ) -> Result<(u32, u32), Failure> {
        let [groups, n] = scales;
        let wrong = |of: &str, matrix: &File, needed: String| tensors.wrong(of, matrix, scales, needed);
        // The number of words per row of zero points determines the bits of a code.
        let bits = match self {
            Self::Awq => 4,
            Self::Gptq if n > 0 && qzeros.columns == n / 8 => 4,
            Self::Gptq if n > 0 && qzeros.columns == n / 4 => 8,
            Self::Gptq => {
                return Err(wrong("qzeros", qzeros, format!("{groups} x {} or {groups} x {}", n / 8, n / 4)));
            }
        };
        let k = match self {
            Self::Gptq if qweight.columns == n => qweight.rows.saturating_mul(32 / bits),
            Self::Awq if qweight.columns == n / 8 => qweight.rows,
            Self::Gptq => return Err(wrong("qweight", qweight, format!("K/{} x {n}", 32 / bits))),
            Self::Awq => return Err(wrong("qweight", qweight, format!("K x {}", n / 8))),
        };
        Ok((bits, k))
    }
}

/// The tensors of a layer in a file.
struct Tensors<'n> {
    file: &'n str,
    layer: &'n str,
}

impl Tensors<'_> {
    /// The name of one of them.
    fn name(&self, of: &str) -> String {
        format!("{}.safetensors:{}.{of}", self.file, self.layer)
    }

    fn look(&self, of: &str) -> Result<File, Failure> {
        files::look_any_rank(&self.name(of))
    }

    /// The elements of a tensor of 32-bit integers.
    fn words(&self, of: &str, found: File) -> Result<Vec<u32>, Failure> {
        let no_words = || usage!("{} holds no 32-bit integers, I32 was needed", self.name(of));
        found.read()?.words().ok_or_else(no_words)
    }

    /// The error of a tensor whose extents do not fit those of the scales.
    fn wrong(&self, of: &str, matrix: &File, [groups, n]: [u32; 2], needed: String) -> Failure {
        let (rows, columns) = (matrix.rows, matrix.columns);
        usage!(
            "{} is {rows} x {columns}, and LAYER.scales is {groups} x {n}: {needed} was needed",
            self.name(of)
        )
    }

    /// The permutation of K that makes each group contiguous; `None` if the groups are contiguous already.
    fn order(&self, name: &str, [k, group]: [u32; 2]) -> Result<Option<Vec<u32>>, Failure> {
        if !files::has_tensor(&self.name("g_idx"))? {
            return Ok(None);
        }
        let g_idx = self.words("g_idx", self.look("g_idx")?)?;
        let found = weights::order_of_groups(&g_idx, group).map_err(|error| usage!("{name}: {error}"))?;
        if found.len() != k as usize {
            refuse!("{} has {} numbers, {k} were needed", self.name("g_idx"), found.len());
        }
        Ok((!found.is_sorted()).then_some(found))
    }
}
