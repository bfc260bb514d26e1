//! The kernel, what it computes, and the files that are read.

use clap::builder::EnumValueParser;
use clap::value_parser;
use collective::Formula;

use super::super::Many::{List, Repeated};
use super::super::Preset::{Is, None, Says};
use super::super::Row;
use super::super::Verb;
use super::{FILE, KERNEL, MATRIX, OF_KERNEL, SAYS_KERNEL, count, each, names, row};
use crate::cli::bench::suites::{self, Suite};
use crate::cli::types::{BLOCKS, SIDES, operand, operand_b, output};
use crate::cli::{family, numbers};

pub(super) const ROWS: &[Row] = &[
    // The kernel.
    row(
        "kernel",
        KERNEL,
        &[
            (Verb::GEMM, Says("the first that `falchion plan` ranks")),
            (Verb::PLAN, None),
            (Verb::EMIT, None),
            (Verb::VERIFY, None),
            (Verb::TRACE, Says("the first that `falchion plan` ranks")),
            (Verb::SCHEDULE, Says("the first that `falchion plan` ranks")),
            (Verb::EXPLORE, Says("none: the page is a gallery of layouts")),
        ],
        OF_KERNEL,
    )
    .excludes(SAYS_KERNEL),
    row(
        "kernel",
        KERNEL,
        &[(Verb::BENCH, Says("at each shape, the first that `falchion plan` ranks"))],
        OF_KERNEL,
    )
    .many(Repeated)
    .excludes(SAYS_KERNEL),
    row(
        "family",
        ("FAMILY", names!(family::names())),
        each!(Says("GEMMs, as options say them") => Verb::PLAN, Verb::EMIT, Verb::VERIFY, Verb::TRACE, Verb::BENCH, Verb::TUNE, Verb::EXPLORE),
        "Family of kernels, whose specs and problems are texts: --kernel and --problem.",
    ),
    row(
        "problem",
        ("PROBLEM", || value_parser!(String)),
        each!(None => Verb::PLAN, Verb::VERIFY, Verb::TRACE, Verb::BENCH, Verb::TUNE, Verb::EXPLORE),
        "Problem of --family. gemm: form, MxNxK, types, layout, epilogue: `single 4096x4096x4096 bf16 kk epilogue=linear`, or \
         `ragged 4096x512x512 bf16 kk groups=8 epilogue=linear`. attention: sequences x heads x queries x keys, then words of a spec: \
         `4x16x4096x4096 d=64 mask=causal`, or `4x16/4x4096` where 16 heads share 4 of K and V, with as many keys as queries. \
         rows: a kernel, rows x columns, a format: `add 4096x8192 bf16`.",
    )
    .many(Repeated)
    .needs(&["family"]),
    row(
        "compare",
        ("COUNT", count!(u32, 1..)),
        &[(Verb::VERIFY, Is("256"))],
        "Number of results of --family that are compared with the reference, chosen at random. gemm: rows. attention: queries. rows: rows.",
    )
    .unit("results")
    .needs(&["family"]),
    // The extents.
    row(
        "m",
        ("M", || numbers::extent.into()),
        &[
            (Verb::GEMM, Says("256, or the files'")),
            (Verb::PLAN, None),
            (Verb::TRACE, Is("256")),
            (Verb::BENCH, Is("8192")),
            (Verb::SCHEDULE, None),
            (Verb::EXPLORE, Says("4096; with swap-AB, the rows of D that a cluster computes")),
        ],
        "Rows of A and D, at least 1.",
    )
    .unit("rows")
    .excludes(&["rows", "group", "shape"]),
    row(
        "n",
        ("N", || numbers::extent.into()),
        &[
            (Verb::GEMM, Says("256, or the files'")),
            (Verb::PLAN, None),
            (Verb::TRACE, Is("256")),
            (Verb::BENCH, Is("8192")),
            (Verb::SCHEDULE, None),
            (Verb::EXPLORE, Says("4096")),
        ],
        "Columns of B and D, at least 1.",
    )
    .unit("columns")
    .excludes(&["group", "shape"]),
    row(
        "k",
        ("K", || numbers::extent.into()),
        &[
            (Verb::GEMM, Says("256, or the files'")),
            (Verb::PLAN, None),
            (Verb::TRACE, Is("512")),
            (Verb::BENCH, Is("8192")),
            (Verb::SCHEDULE, None),
            (Verb::EXPLORE, Says("4096")),
        ],
        "Columns of A, rows of B, at least 1.",
    )
    .unit("elements")
    .excludes(&["k-groups", "group", "shape"]),
    row("n", ("N", || numbers::extent.into()), &[(Verb::TUNE, None)], "Columns of B and D of --rows, at least 1.")
        .unit("columns")
        .needs(&["rows"]),
    row("k", ("K", || numbers::extent.into()), &[(Verb::TUNE, None)], "Columns of A, rows of B of --rows, at least 1.")
        .unit("elements")
        .needs(&["rows"]),
    row(
        "shape",
        ("MxNxK", || suites::parse.into()),
        &[(Verb::BENCH, None), (Verb::TUNE, None)],
        "Shape to measure.",
    )
    .many(List)
    .signed()
    .excludes(&["rows", "k-groups", "suite", "shapes"]),
    row("shapes", FILE, &[(Verb::TUNE, None)], "File of shapes to measure, one `MxNxK` per line.").excludes(&["rows"]),
    row(
        "suite",
        ("SUITE", || EnumValueParser::<Suite>::new().into()),
        &[(Verb::BENCH, None)],
        "List of shapes to measure.",
    )
    .excludes(&["m", "n", "k", "rows", "k-groups"]),
    // Several GEMMs in one launch.
    row(
        "batch",
        ("COUNT", count!(u32, 1..)),
        each!(None => Verb::GEMM, Verb::PLAN, Verb::TUNE, Verb::SCHEDULE),
        "Number of GEMMs of one shape in one launch. `gemm` runs them on random matrices.",
    )
    .unit("GEMMs")
    .excludes(&["rows", "k-groups", "group"]),
    row(
        "rows",
        ("ROWS,..", || numbers::rows.into()),
        &[
            (Verb::GEMM, None),
            (Verb::PLAN, None),
            (Verb::BENCH, None),
            (Verb::TUNE, None),
            (Verb::SCHEDULE, None),
            (Verb::EXPLORE, Says("300,0,17,129 for kernels `ragged…` and `masked…`")),
        ],
        "Rows of each group of an MoE grouped GEMM, in place of --m: one launch, and each group has its own B. A group \
         may have 0 rows. `gemm` runs them on random matrices.",
    )
    .many(List)
    .signed()
    .unit("rows")
    .excludes(&["k-groups", "group"]),
    row(
        "max-rows",
        ("ROWS", count!(u32, 1..)),
        each!(None => Verb::GEMM, Verb::PLAN, Verb::TUNE, Verb::SCHEDULE),
        "Rows of the buffer that each group of --rows has. The group uses the first of them.",
    )
    .unit("rows")
    .needs(&["rows"]),
    row(
        "k-groups",
        ("K,..", || numbers::lengths.into()),
        each!(None => Verb::GEMM, Verb::PLAN, Verb::BENCH, Verb::SCHEDULE),
        "K of each group along K, in place of --k: one launch; the groups are ranges of K of the same A and B, and each \
         has its own D. A group may have K 0. Each begins at a multiple of 128, or of the kernel's tile K. `gemm` runs \
         them on random matrices.",
    )
    .many(List)
    .signed()
    .unit("elements")
    .excludes(&["group"]),
    row(
        "group",
        ("MxNxK", || suites::parse_group.into()),
        &[(Verb::GEMM, None), (Verb::PLAN, None), (Verb::SCHEDULE, None)],
        "Shape of a GEMM of a grouped launch (pointer array). Extents may be 0. `gemm` runs them on random matrices.",
    )
    .many(List)
    .signed(),
    // The matrices.
    row(
        "dtype",
        ("FORMAT", || operand.into()),
        &[
            (Verb::GEMM, Says("bf16; f16 for gptq and awq")),
            (Verb::PLAN, Says("bf16")),
            (Verb::BENCH, Says("bf16")),
            (Verb::TUNE, Says("bf16")),
            (Verb::TRACE, Says("bf16")),
            (Verb::SCHEDULE, Says("bf16")),
        ],
        "Number format of A and B: bf16, f16, tf32, f32, f64, e4m3, e5m2, s8 or u8; names of other libraries, such as \
         bfloat16, fp16 and int8, are read too. If --dtype-b has 16 bits, A may also \
         be quantised weights, as in --dtype-b. Values of files are rounded to it.",
    ),
    row(
        "dtype-b",
        ("FORMAT", || operand_b.into()),
        each!(Says("A's") => Verb::GEMM, Verb::PLAN, Verb::BENCH, Verb::TUNE, Verb::TRACE, Verb::SCHEDULE),
        "Number format of B: another 8-bit format. If A has 16 bits, B may also be quantised weights: a code (s4, u4, s8, \
         u8, e4m3, e5m2, e2m1), `g` and the number of elements along K that share a scale (32, 64, 128), `z` for zero \
         points: s4, s4g128, u4g64z. In `gemm` gptq or awq is a layer of such a model, --b FILE.safetensors:LAYER.",
    ),
    row(
        "out-dtype",
        ("FORMAT", || output.into()),
        each!(Says("A's; bf16 for 8-bit floats, s32 for 8-bit integers, f32 for tf32") => Verb::GEMM, Verb::PLAN, Verb::BENCH, Verb::TUNE, Verb::TRACE, Verb::SCHEDULE),
        "Number format of C and D: f32, bf16, f16, e4m3 or e5m2; s8, u8 and s32 are for 8-bit integers, f64 for f64.",
    )
    .excludes(&["epilogue"]),
    row(
        "scale-block-a",
        ("BLOCK", names!(BLOCKS)),
        each!(None => Verb::GEMM, Verb::PLAN, Verb::BENCH, Verb::TUNE, Verb::TRACE, Verb::SCHEDULE),
        "Block of A that shares a scale, rows x elements along K. For 8-bit floats.",
    )
    .needs(&["scale-block-b"])
    .excludes(&["sparse", "scale-a", "scale-b"]),
    row(
        "scale-block-b",
        ("BLOCK", names!(BLOCKS)),
        each!(None => Verb::GEMM, Verb::PLAN, Verb::BENCH, Verb::TUNE, Verb::TRACE, Verb::SCHEDULE),
        "Block of B that shares a scale, columns x elements along K. For 8-bit floats.",
    )
    .needs(&["scale-block-a"])
    .excludes(&["sparse", "scale-a", "scale-b"]),
    row(
        "sparse",
        ("OPERAND", names!(SIDES)),
        each!(None => Verb::GEMM, Verb::PLAN, Verb::BENCH, Verb::TUNE, Verb::TRACE, Verb::SCHEDULE),
        "Operand that is 2:4 sparse along K: of four neighbours two are stored, of tf32 one of two. `gemm` prunes random \
         operands; in a file the others must be zero.",
    )
    .excludes(&["scale-a", "scale-b"]),
    row(
        "layout",
        ("ABD", names!(super::super::layout::ALL)),
        &[
            (Verb::GEMM, Says("the kernel's; else the files' for 16-bit formats, else kk")),
            (Verb::PLAN, Is("kk")),
            (Verb::BENCH, Says("the kernel's, or kk")),
            (Verb::TUNE, Is("kk")),
            (Verb::TRACE, Says("the kernel's, or kk")),
            (Verb::SCHEDULE, Says("the kernel's, or kk")),
        ],
        "Contiguous dimension of A (k or m), of B (k or n), and of C and D (n, which may be left out, or m). With kn, A, B \
         and D are row-major, with mkm column-major. `gemm` and `plan` transpose first what the kernel cannot read this way. \
         A column-major D is for them, and for one GEMM or a batch without --epilogue: its transpose is computed, of B and A.",
    ),
    row(
        "epilogue",
        ("FORMULA", || str::parse::<Formula>.into()),
        each!(None => Verb::GEMM, Verb::PLAN, Verb::BENCH, Verb::TUNE),
        "Fused epilogue, in place of alpha and beta: a formula such as `gelu(alpha*acc + bias[n])`, or the name of one, such \
         as `bias-gelu`. It determines D's format. `gemm` runs it on random matrices and checks everything that it writes. \
         `bench` times kernels with and without it, and cuBLASLt's own fusion.",
    )
    .signed(),
    row("alpha", ("ALPHA", || numbers::factor.into()), &[(Verb::GEMM, Is("1"))], "Factor of A * B.").signed(),
    row(
        "beta",
        ("BETA", || numbers::factor.into()),
        &[(Verb::GEMM, Is("0")), (Verb::TRACE, Is("0"))],
        "Factor of C; 0 leaves C out.",
    )
    .signed(),
    // Files that are read.
    row("a", MATRIX, &[(Verb::GEMM, None)], "File of A, M x K: FILE.npy or FILE.safetensors[:TENSOR].").needs(&["b"]),
    row("b", MATRIX, &[(Verb::GEMM, None)], "File of B, K x N: FILE.npy or FILE.safetensors[:TENSOR].").needs(&["a"]),
    row(
        "c",
        MATRIX,
        &[(Verb::GEMM, None)],
        "File of C, M x N: FILE.npy or FILE.safetensors[:TENSOR]. Needs a --beta other than 0 to have an effect.",
    )
    .needs(&["a"]),
    row(
        "scale-a",
        MATRIX,
        &[(Verb::GEMM, None)],
        "File of A's scales: one number, M numbers (one per row), or one scale per block of 8-bit floats, M x K/128 or \
         M/128 x K/128. For quantised weights, M x K/GROUP.",
    ),
    row(
        "scale-b",
        MATRIX,
        &[(Verb::GEMM, None)],
        "File of B's scales: one number, N numbers (one per column), or one scale per block of 8-bit floats, K/128 x N or \
         K/128 x N/128. For quantised weights, K/GROUP x N.",
    ),
    row("zero-a", MATRIX, &[(Verb::GEMM, None)], "File of A's zero points, M x K/GROUP. For quantised weights."),
    row("zero-b", MATRIX, &[(Verb::GEMM, None)], "File of B's zero points, K/GROUP x N. For quantised weights."),
    row(
        "replay",
        FILE,
        &[(Verb::VERIFY, None)],
        "Read the GPU's outputs of --suite instructions from this file, which --record wrote, in place of a GPU.",
    )
    .excludes(&["record", "engine"]),
];
