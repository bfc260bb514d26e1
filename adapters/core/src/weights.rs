//! Few-bit weights as kernels read them, from codes or from the files of other tools.

use falchion::collective::{Code, Format, WeightsSpec, weights};

use crate::refusal::Refusal;

/// Few-bit weights of N rows of K, in the host's memory.
#[derive(Clone, Debug)]
pub struct Weights {
    /// Code, group, and whether there are zero points.
    pub spec: WeightsSpec,
    /// Format that is multiplied.
    pub format: Format,
    /// N and K.
    pub shape: [u32; 2],
    /// Codes in the order that kernels read.
    pub units: Vec<u8>,
    /// A line of N scales per group; nothing without scales.
    pub scales: AlignedLines,
    /// A line of N zero points per group; nothing without zero points.
    pub zeros: AlignedLines,
    /// The place along K, in the caller's order, of each place in the weights' order. `None` is the same order. The other operand
    /// must be in the weights' order.
    pub order: Option<Vec<u32>>,
}

/// Lines that begin at multiples of 16 bytes.
#[derive(Clone, Debug, Default)]
pub struct AlignedLines {
    /// Bytes from one line to the next.
    pub pitch: usize,
    /// All lines.
    pub bytes: Vec<u8>,
}

impl AlignedLines {
    /// The same lines, each `times` times.
    fn of(bytes: &[u8], line: usize, times: usize) -> Self {
        let pitch = line.next_multiple_of(16);
        let padded = |line: &[u8]| [line, &vec![0; pitch - line.len()]].concat();
        let lines = bytes.chunks(line.max(1)).flat_map(|line| padded(line).repeat(times));
        Self { pitch, bytes: lines.collect() }
    }

    /// Number of lines.
    pub fn count(&self) -> usize {
        self.bytes.len().checked_div(self.pitch).unwrap_or(0)
    }
}

fn refused(error: weights::WeightsError) -> Refusal {
    Refusal::Invalid(error.to_string())
}

fn invalid<T>(words: String) -> Result<T, Refusal> {
    Err(Refusal::Invalid(words))
}

/// Little-endian words.
fn words(bytes: &[u8]) -> Vec<u32> {
    bytes.as_chunks().0.iter().map(|word| u32::from_le_bytes(*word)).collect()
}

/// Where the groups of K of a file are: their number, and for each place along K which one it is in, if the file says so.
#[derive(Clone, Copy, Debug)]
pub struct WeightGroups<'a> {
    /// Number of groups: lines of scales.
    pub count: u32,
    /// GPTQ's `g_idx`: K numbers (`i32`); nothing if the groups follow each other.
    pub index: Option<&'a [u8]>,
}

impl Weights {
    /// Weights of codes, one per byte and row by row. Scales, and zero points, are lines of N in the format that is multiplied, or
    /// bytes for `e2m1`, without gaps; there are as many lines as groups of K.
    ///
    /// # Errors
    /// Extents, groups or codes that do not fit.
    pub fn new(
        code: Code,
        format: Format,
        [n, k]: [u32; 2],
        codes: &[u8],
        [scales, zeros]: [Option<&[u8]>; 2],
    ) -> Result<Self, Refusal> {
        if format.bits() != 16 || !format.is_float() {
            return invalid(format!("weights are multiplied in {format}, bf16 or f16 was needed"));
        }
        let units = weights::reorder(code, [n, k], codes).map_err(refused)?;
        let mut spec = WeightsSpec { zeros: zeros.is_some(), ..WeightsSpec::of(code) };
        let [of_scale, of_zero] = [spec.scale_bytes(), 2].map(|bytes| n as usize * bytes as usize);
        let mut times = 1;
        if let Some(scales) = scales {
            let count = scales.len().checked_div(of_scale).unwrap_or(0);
            let Some((group, repeated)) = group_of(k, count).filter(|_| scales.len() == count * of_scale)
            else {
                return invalid(format!(
                    "scales have {} bytes, lines of {of_scale} were needed: one per group of 32, 64, 128 or a multiple of 128 of K {k}",
                    scales.len()
                ));
            };
            (spec.group, times) = (group, repeated);
        }
        if let Some(zeros) = zeros {
            let needed = scales.map_or(0, |scales| scales.len() / of_scale.max(1) * of_zero);
            if zeros.len() != needed || needed == 0 {
                return invalid(format!(
                    "zero points have {} bytes, {needed} were needed: one per scale, which weights with zero points need",
                    zeros.len()
                ));
            }
        }
        // The last of repeated lines may reach beyond K.
        let groups = if spec.group == 0 { 0 } else { k.div_ceil(spec.group) as usize };
        let lines = |bytes: Option<&[u8]>, line| {
            let mut all =
                bytes.map_or_else(AlignedLines::default, |bytes| AlignedLines::of(bytes, line, times));
            all.bytes.truncate(groups * all.pitch);
            all
        };
        let (scales, zeros) = (lines(scales, of_scale), lines(zeros, of_zero));
        Ok(Self { spec, format, shape: [n, k], units, scales, zeros, order: None })
    }

    /// Weights of a GPTQ file: `qweight` (K * bits / 32, N), `scales` (G, N) in the format that is multiplied, `qzeros` (G, N * bits /
    /// 32). `less` is 1 for files that hold zero points less one, and 0 for `gptq_v2`. Codes have 4 or 8 bits.
    ///
    /// # Errors
    /// Sizes that do not fit, or groups of unequal size.
    pub fn gptq(
        (bits, less): (u32, u16),
        format: Format,
        [n, k]: [u32; 2],
        groups: WeightGroups<'_>,
        [qweight, scales, qzeros]: [&[u8]; 3],
    ) -> Result<Self, Refusal> {
        let mut codes = weights::of_gptq(bits, [n, k], &words(qweight)).map_err(refused)?;
        let zeros = weights::zeros_of_gptq(bits, [groups.count, n], &words(qzeros), less).map_err(refused)?;
        let index = groups.index.map(words);
        if let Some(index) = index.as_ref().filter(|index| index.len() != k as usize) {
            let count = index.len();
            return invalid(format!("g_idx has {count} numbers, {k} were needed, one per place along K"));
        }
        let size = k.div_ceil(groups.count.max(1));
        let mixed = index.filter(|index| !index.is_sorted());
        let order = mixed.map(|index| weights::order_of_groups(&index, size).map_err(refused)).transpose()?;
        if let Some(order) = &order {
            codes = codes.chunks(k as usize).flat_map(|row| weights::permuted(row, order)).collect();
        }
        let code = if bits == 4 { Code::U4 } else { Code::U8 };
        let given = [Some(scales), Some(&*small(&zeros, format))];
        Ok(Self { order, ..Self::new(code, format, [n, k], &codes, given)? })
    }

    /// Weights of an AWQ file: `qweight` (K, N / 8), `scales` (G, N) in the format that is multiplied, `qzeros` (G, N / 8).
    ///
    /// # Errors
    /// Sizes that do not fit.
    pub fn awq(
        format: Format,
        [n, k]: [u32; 2],
        groups: u32,
        [qweight, scales, qzeros]: [&[u8]; 3],
    ) -> Result<Self, Refusal> {
        let codes = weights::of_awq([n, k], &words(qweight)).map_err(refused)?;
        let zeros = weights::zeros_of_awq([groups, n], &words(qzeros)).map_err(refused)?;
        Self::new(Code::U4, format, [n, k], &codes, [Some(scales), Some(&small(&zeros, format))])
    }

    /// Weights in MXFP4: `blocks` (N, K / 2) of two codes per byte, the first in the low half, and `scales` (N, K / 32), bytes that
    /// mean `2^(e - 127)`. They are multiplied in `bf16`.
    ///
    /// # Errors
    /// Another format; sizes that do not fit.
    pub fn mxfp4(format: Format, [n, k]: [u32; 2], [blocks, scales]: [&[u8]; 2]) -> Result<Self, Refusal> {
        if format != Format::Bf16 {
            return invalid(format!(
                "MXFP4 is multiplied in {format}, bf16 was needed, which holds its scales"
            ));
        }
        let codes = weights::of_pairs([n, k], blocks).map_err(refused)?;
        let groups = k.div_ceil(32) as usize;
        if scales.len() != n as usize * groups {
            let needed = n as usize * groups;
            return invalid(format!(
                "scales have {} bytes, {needed} were needed: one per 32 of K",
                scales.len()
            ));
        }
        let line = |group: usize| scales.iter().skip(group).step_by(groups).copied();
        let scales: Vec<u8> = (0..groups).flat_map(line).collect();
        Self::new(Code::E2m1, format, [n, k], &codes, [Some(&scales), None])
    }

    /// Weights in fp8 with a scale per 128 x 128, as DeepSeek's and Qwen's files have them: `codes` (N, K) of `e4m3`, and `scales`
    /// (N / 128, K / 128), rounded up. The scales are rounded to the format that is multiplied.
    ///
    /// # Errors
    /// Sizes that do not fit.
    pub fn fp8(format: Format, [n, k]: [u32; 2], codes: &[u8], scales: &[f32]) -> Result<Self, Refusal> {
        let [rows, blocks] = [n, k].map(|extent| extent.div_ceil(128) as usize);
        if scales.len() != rows * blocks {
            let (found, needed) = (scales.len(), rows * blocks);
            return invalid(format!("there are {found} scales, {needed} were needed: one per 128 x 128"));
        }
        let scale =
            |block: usize, row: usize| format.encode(scales[row / 128 * blocks + block].into()) as u16;
        let lines = (0..blocks).flat_map(|block| (0..n as usize).map(move |row| (block, row)));
        let lines: Vec<u8> = lines.flat_map(|(block, row)| scale(block, row).to_le_bytes()).collect();
        Self::new(Code::E4m3, format, [n, k], codes, [Some(&lines), None])
    }
}

/// The K of a group of a kernel, and how many of them are one of the file's, for a number of lines of scales.
fn group_of(k: u32, count: usize) -> Option<(u32, usize)> {
    let legal = WeightsSpec::GROUPS.into_iter().find(|&size| k.div_ceil(size) as usize == count);
    legal.map(|size| (size, 1)).or_else(|| {
        let size = k / u32::try_from(count).ok().filter(|&count| count > 0 && k.is_multiple_of(count))?;
        if count == 1 {
            Some((128, k.div_ceil(128) as usize))
        } else {
            size.is_multiple_of(128).then_some((128, size as usize / 128))
        }
    })
}

/// Small integers in a format.
fn small(numbers: &[u16], format: Format) -> Vec<u8> {
    numbers.iter().flat_map(|&number| (format.encode(number.into()) as u16).to_le_bytes()).collect()
}
