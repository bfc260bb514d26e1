//! The shapes to time, and the parsers for shapes.

use clap::ValueEnum;
use kernel::GemmProblem;

use crate::cli::output::shortened;

/// A named list of shapes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Suite {
    /// Shapes at which GEMMs are commonly compared.
    Public,
    /// MoE layers, as grouped GEMMs: groups of rows, each with its own weights. Compares our kernels with a
    /// CUDA graph of cuBLASLt calls and with one dense GEMM.
    Grouped,
    /// Shapes at which different kernels are best, for the record that tests the selection. Burst only, short
    /// turns, only our kernels.
    Selection,
}

/// M, N, K.
const PUBLIC: [[u32; 3]; 16] = [
    [2048, 2048, 2048],
    [4096, 4096, 4096],
    [8192, 8192, 8192],
    [16384, 16384, 16384],
    [4096, 14336, 4096],
    [4096, 4096, 14336],
    [8192, 28672, 8192],
    [8192, 8192, 28672],
    [32768, 1024, 1024],
    [4096, 4096, 512],
    [4000, 4000, 4000],
    [3000, 5000, 1000],
    [8191, 8192, 8192],
    [2048, 6144, 2048],
    [1024, 1024, 1024],
    [512, 512, 512],
];

/// Every extent is a multiple of 8, so that every kernel takes every shape, except for the last few shapes.
const SELECTION: [[u32; 3]; 50] = [
    // Squares.
    [256, 256, 256],
    [512, 512, 512],
    [768, 768, 768],
    [1024, 1024, 1024],
    [1536, 1536, 1536],
    [2048, 2048, 2048],
    [2560, 2560, 2560],
    [3072, 3072, 3072],
    [4000, 4000, 4000],
    [4096, 4096, 4096],
    [5120, 5120, 5120],
    [6144, 6144, 6144],
    [8192, 8192, 8192],
    [16384, 16384, 16384],
    // Few rows or columns.
    [1, 8192, 8192],
    [16, 4096, 4096],
    [16, 28672, 8192],
    [64, 4096, 4096],
    [128, 8192, 8192],
    [128, 4096, 14336],
    [256, 8192, 8192],
    [256, 14336, 4096],
    [512, 4096, 14336],
    [1024, 4096, 4096],
    [8192, 128, 4096],
    [8192, 256, 8192],
    [16384, 512, 2048],
    // Short K.
    [4096, 4096, 64],
    [4096, 4096, 128],
    [4096, 4096, 256],
    [4096, 4096, 512],
    [8192, 8192, 512],
    [32768, 1024, 1024],
    [16384, 4096, 256],
    // Long K.
    [256, 256, 16384],
    [512, 512, 32768],
    [1024, 1024, 16384],
    [2048, 2048, 16384],
    // Layers of models.
    [2048, 6144, 2048],
    [2048, 11008, 4096],
    [4096, 14336, 4096],
    [4096, 4096, 14336],
    [4096, 12288, 4096],
    [8192, 28672, 8192],
    [8192, 8192, 28672],
    // Partial waves.
    [3000, 5000, 1000],
    [2176, 4352, 1024],
    [1000, 3304, 2000],
    [4096, 4096, 4104],
    // Rows of D that are no multiples of 16 bytes.
    [2047, 2047, 2048],
];

impl Suite {
    pub(super) fn shapes(self) -> Vec<GemmProblem> {
        let list: &[[u32; 3]] = match self {
            Self::Public => &PUBLIC,
            Self::Grouped => &[],
            Self::Selection => &SELECTION,
        };
        list.iter().map(|&[m, n, k]| GemmProblem { m, n, k }).collect()
    }
}

/// Whether a shape counts in geometric means. For smaller shapes, the time is that of launches.
pub(super) fn counts(shape: GemmProblem) -> bool {
    shape.operations() >= 1e10
}

/// Parses a shape such as `4096x14336x4096`.
pub(crate) fn parse(text: &str) -> Result<GemmProblem, String> {
    match extents(text) {
        Some([m, n, k]) if m > 0 && n > 0 && k > 0 => Ok(GemmProblem { m, n, k }),
        _ => Err(format!("`{}` is no shape; MxNxK was needed, as 4096x14336x4096", shortened(text))),
    }
}

/// Parses the shape of a GEMM of a grouped launch, which may be empty.
pub(crate) fn parse_group(text: &str) -> Result<GemmProblem, String> {
    match extents(text) {
        Some([m, n, k]) => Ok(GemmProblem { m, n, k }),
        _ => Err(format!(
            "`{}` is no shape; MxNxK was needed, where extents may be 0, as 300x512x64",
            shortened(text)
        )),
    }
}

fn extents(text: &str) -> Option<[u32; 3]> {
    let extents: Option<Vec<u32>> = text.split(['x', 'X']).map(|part| part.trim().parse().ok()).collect();
    extents?.try_into().ok()
}

#[cfg(test)]
mod tests {
    use clap::ValueEnum;
    use kernel::GemmProblem;

    use super::{Suite, counts, parse, parse_group};

    #[test]
    fn shapes_are_read() {
        let shape = |m, n, k| Some(GemmProblem { m, n, k });
        for (text, want) in [
            ("1x2x3", shape(1, 2, 3)),
            ("4096X14336X64", shape(4096, 14336, 64)),
            ("16 x 8 x 8", shape(16, 8, 8)),
            ("1x2", None),
            ("1x2x3x4", None),
            ("0x2x3", None),
            ("axbxc", None),
            ("", None),
            ("1x2x99999999999", None),
        ] {
            assert_eq!(parse(text).ok(), want, "`{text}`");
        }
        for (text, want) in
            [("0x2x3", shape(0, 2, 3)), ("4x0x3", shape(4, 0, 3)), ("4x2x0", shape(4, 2, 0)), ("4x2", None)]
        {
            assert_eq!(parse_group(text).ok(), want, "`{text}`");
        }
    }

    #[test]
    fn suites_hold_each_shape_once() {
        for suite in Suite::value_variants() {
            let mut shapes: Vec<_> = suite.shapes().iter().map(|shape| [shape.m, shape.n, shape.k]).collect();
            let count = shapes.len();
            shapes.sort_unstable();
            shapes.dedup();
            assert_eq!(shapes.len(), count, "{suite:?}");
        }
        let small: Vec<_> = Suite::Public.shapes().into_iter().filter(|&shape| !counts(shape)).collect();
        let cube = |extent| GemmProblem { m: extent, n: extent, k: extent };
        assert_eq!(small, [cube(1024), cube(512)]);
    }
}
