//! The table: every option of every command.

use clap::builder::{EnumValueParser, ValueParser};
use clap::value_parser;
use collective::{Format, Formula};
use kernel::KernelSpec;

use super::Many::{List, Once, Positional, Positionals, Repeated};
use super::Preset::{Is, None, Says};
use super::Verb::{Bench, Chart, Emit, Explore, Gemm, Layout, Plan, Schedule, Trace, Trim, Tune, Verify};
use super::{Many, Preset, Row, Verb};
use crate::bench::suites::{self, Suite};
use crate::engine::{Choice, Engines};
use crate::trace::Pace;
use crate::types::{BLOCKS, SIDES, operand, operand_b};
use crate::{family, layout, numbers, verify};

/// A row without short name, unit and relations.
const fn row(
    name: &'static str,
    (value, parser): (&'static str, fn() -> ValueParser),
    takes: &'static [(Verb, Preset)],
    help: &'static str,
) -> Row {
    Row {
        name,
        short: Option::None,
        value,
        parser,
        signed: false,
        many: Once,
        unit: "",
        help,
        takes,
        needs: &[],
        excludes: &[],
    }
}

impl Row {
    const fn short(self, short: char) -> Self {
        Self { short: Some(short), ..self }
    }

    const fn signed(self) -> Self {
        Self { signed: true, ..self }
    }

    const fn many(self, many: Many) -> Self {
        Self { many, ..self }
    }

    const fn unit(self, unit: &'static str) -> Self {
        Self { unit, ..self }
    }

    const fn needs(self, needs: &'static [&'static str]) -> Self {
        Self { needs, ..self }
    }

    const fn excludes(self, excludes: &'static [&'static str]) -> Self {
        Self { excludes, ..self }
    }
}

type Value = (&'static str, fn() -> ValueParser);

const SWITCH: Value = ("", || value_parser!(bool));
const FILE: Value = ("FILE", || value_parser!(std::path::PathBuf));
const MATRIX: Value = ("FILE", || value_parser!(String));
const SEED: Value = ("SEED", || value_parser!(u64).into());

const KERNEL: Value = ("KERNEL", || value_parser!(String));

/// Help of a kernel.
const OF_KERNEL: &str = "Kernel: a name from `falchion configs`, or the `key=value` words of a spec. Words that are left \
     out have the defaults that `falchion plan --kernel \"\"` prints.";

/// What a kernel says itself.
const SAYS_KERNEL: &[&str] =
    &["dtype", "dtype-b", "out-dtype", "scale-block-a", "scale-block-b", "sparse", "epilogue"];

/// A parser of names.
macro_rules! names {
    ($names:expr) => {
        || clap::builder::PossibleValuesParser::new($names).into()
    };
}

/// A number from `$least` to `$most`.
macro_rules! count {
    ($type:ty, $range:expr) => {
        || value_parser!($type).range($range).into()
    };
}

/// The formats that D can have.
fn outputs() -> Vec<&'static str> {
    let can = |format: &Format| {
        let stored = format.is_output(false) || format.is_output(true);
        stored || KernelSpec::operands().any(|operand| operand.output() == *format)
    };
    Format::ALL.into_iter().filter(can).map(Format::name).collect()
}

/// Every option.
pub(super) const ROWS: &[Row] = &[
    // The kernel.
    row(
        "kernel",
        KERNEL,
        &[
            (Gemm, Says("the first that `falchion plan` ranks")),
            (Plan, None),
            (Emit, None),
            (Verify, None),
            (Trace, None),
            (Schedule, None),
            (Explore, Says("none: the page is a gallery of layouts")),
        ],
        OF_KERNEL,
    )
    .excludes(SAYS_KERNEL),
    row(
        "kernel",
        KERNEL,
        &[(Bench, Says("at each shape, the first that `falchion plan` ranks"))],
        OF_KERNEL,
    )
    .many(Repeated)
    .excludes(SAYS_KERNEL),
    row(
        "family",
        ("FAMILY", names!(family::names())),
        &[
            (Plan, Is("gemm")),
            (Emit, Is("gemm")),
            (Verify, Is("gemm")),
            (Trace, Is("gemm")),
            (Bench, Is("gemm")),
            (Tune, Is("gemm")),
        ],
        "Family of kernels. Those that are no GEMMs have specs and problems of their own: --kernel and --problem.",
    ),
    row(
        "problem",
        ("PROBLEM", || value_parser!(String)),
        &[(Plan, None), (Verify, None), (Trace, None), (Bench, None), (Tune, None)],
        "Problem of --family. attention: sequences x heads x queries x keys, then words of a spec: \
         `4x16x4096x4096 d=64 mask=causal`, or `4x16/4x4096` where 16 heads share 4 of K and V, with as many keys as queries.",
    )
    .many(Repeated)
    .needs(&["family"]),
    row(
        "compare",
        ("COUNT", count!(u32, 1..)),
        &[(Verify, Is("256"))],
        "Number of results of --family that are compared with the reference, chosen at random. attention: queries.",
    )
    .unit("results")
    .needs(&["family"]),
    // The extents.
    row(
        "m",
        ("M", || numbers::extent.into()),
        &[
            (Gemm, Says("256, or the files'")),
            (Plan, None),
            (Trace, Is("256")),
            (Bench, Is("8192")),
            (Schedule, None),
            (Explore, Says("4096; with swap-AB, the rows of D that a cluster computes")),
        ],
        "Rows of A and D, at least 1.",
    )
    .unit("rows")
    .excludes(&["rows", "group", "shape"]),
    row(
        "n",
        ("N", || numbers::extent.into()),
        &[
            (Gemm, Says("256, or the files'")),
            (Plan, None),
            (Trace, Is("256")),
            (Bench, Is("8192")),
            (Schedule, None),
            (Explore, Says("4096")),
        ],
        "Columns of B and D, at least 1.",
    )
    .unit("columns")
    .excludes(&["group", "shape"]),
    row(
        "k",
        ("K", || numbers::extent.into()),
        &[
            (Gemm, Says("256, or the files'")),
            (Plan, None),
            (Trace, Is("512")),
            (Bench, Is("8192")),
            (Schedule, None),
            (Explore, Says("4096")),
        ],
        "Columns of A, rows of B, at least 1.",
    )
    .unit("elements")
    .excludes(&["k-groups", "group", "shape"]),
    row("n", ("N", || numbers::extent.into()), &[(Tune, None)], "Columns of B and D of --rows, at least 1.")
        .unit("columns")
        .needs(&["rows"]),
    row("k", ("K", || numbers::extent.into()), &[(Tune, None)], "Columns of A, rows of B of --rows, at least 1.")
        .unit("elements")
        .needs(&["rows"]),
    row(
        "shape",
        ("MxNxK", || suites::parse.into()),
        &[(Bench, None), (Tune, None)],
        "Shape to measure.",
    )
    .many(List)
    .signed()
    .excludes(&["rows", "k-groups", "suite", "shapes"]),
    row("shapes", FILE, &[(Tune, None)], "File of shapes to measure, one `MxNxK` per line.").excludes(&["rows"]),
    row(
        "suite",
        ("SUITE", || EnumValueParser::<Suite>::new().into()),
        &[(Bench, None)],
        "List of shapes to measure.",
    )
    .excludes(&["m", "n", "k", "rows", "k-groups"]),
    // Several GEMMs in one launch.
    row(
        "batch",
        ("COUNT", count!(u32, 1..)),
        &[(Gemm, None), (Plan, None), (Tune, None), (Schedule, None)],
        "Number of GEMMs of one shape in one launch. `gemm` runs them on random matrices.",
    )
    .unit("GEMMs")
    .excludes(&["rows", "k-groups", "group"]),
    row(
        "rows",
        ("ROWS,..", || numbers::rows.into()),
        &[
            (Gemm, None),
            (Plan, None),
            (Bench, None),
            (Tune, None),
            (Schedule, None),
            (Explore, Says("300,0,17,129 for kernels `ragged…` and `masked…`")),
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
        &[(Gemm, None), (Plan, None), (Tune, None), (Schedule, None)],
        "Rows of the buffer that each group of --rows has. The group uses the first of them.",
    )
    .unit("rows")
    .needs(&["rows"]),
    row(
        "k-groups",
        ("K,..", || numbers::lengths.into()),
        &[(Gemm, None), (Plan, None), (Bench, None), (Schedule, None)],
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
        &[(Gemm, None), (Plan, None), (Schedule, None)],
        "Shape of a GEMM of a grouped launch (pointer array). Extents may be 0. `gemm` runs them on random matrices.",
    )
    .many(List)
    .signed(),
    // The matrices.
    row(
        "dtype",
        ("FORMAT", || operand.into()),
        &[
            (Gemm, Says("bf16; f16 for gptq and awq")),
            (Plan, Says("bf16")),
            (Bench, Says("bf16")),
            (Tune, Says("bf16")),
        ],
        "Number format of A and B: bf16, f16, tf32, f32, f64, e4m3, e5m2, s8 or u8. If --dtype-b has 16 bits, A may also \
         be quantised weights, as in --dtype-b. Values of files are rounded to it.",
    ),
    row(
        "dtype-b",
        ("FORMAT", || operand_b.into()),
        &[(Gemm, Says("A's")), (Plan, Says("A's")), (Bench, Says("A's")), (Tune, Says("A's"))],
        "Number format of B: another 8-bit format. If A has 16 bits, B may also be quantised weights: a code (s4, u4, s8, \
         u8, e4m3, e5m2, e2m1), `g` and the number of elements along K that share a scale (32, 64, 128), `z` for zero \
         points: s4, s4g128, u4g64z. In `gemm` gptq or awq is a layer of such a model, --b FILE.safetensors:LAYER.",
    ),
    row(
        "out-dtype",
        ("FORMAT", names!(outputs())),
        &[
            (Gemm, Says("A's; bf16 for 8-bit floats, s32 for 8-bit integers, f32 for tf32")),
            (Plan, Says("A's; bf16 for 8-bit floats, s32 for 8-bit integers, f32 for tf32")),
            (Bench, Says("A's; bf16 for 8-bit floats, s32 for 8-bit integers, f32 for tf32")),
            (Tune, Says("A's; bf16 for 8-bit floats, s32 for 8-bit integers, f32 for tf32")),
        ],
        "Number format of C and D. s32 is for 8-bit integers, f64 for f64.",
    )
    .excludes(&["epilogue"]),
    row(
        "scale-block-a",
        ("BLOCK", names!(BLOCKS)),
        &[(Gemm, None), (Plan, None), (Bench, None), (Tune, None)],
        "Block of A that shares a scale, rows x elements along K. For 8-bit floats.",
    )
    .needs(&["scale-block-b"])
    .excludes(&["sparse", "scale-a", "scale-b"]),
    row(
        "scale-block-b",
        ("BLOCK", names!(BLOCKS)),
        &[(Gemm, None), (Plan, None), (Bench, None), (Tune, None)],
        "Block of B that shares a scale, columns x elements along K. For 8-bit floats.",
    )
    .needs(&["scale-block-a"])
    .excludes(&["sparse", "scale-a", "scale-b"]),
    row(
        "sparse",
        ("OPERAND", names!(SIDES)),
        &[(Gemm, None), (Plan, None), (Bench, None), (Tune, None)],
        "Operand that is 2:4 sparse along K: of four neighbours two are stored, of tf32 one of two. `gemm` prunes random \
         operands; in a file the others must be zero.",
    )
    .excludes(&["scale-a", "scale-b"]),
    row(
        "layout",
        ("AB", names!(["kk", "kn", "mk", "mn"])),
        &[
            (Gemm, Says("the kernel's; else the files' for 16-bit formats, else kk")),
            (Plan, Is("kk")),
            (Bench, Says("the kernel's, or kk")),
            (Tune, Is("kk")),
        ],
        "Contiguous dimension of A (k or m) and of B (k or n). With kn, both are row-major. `gemm` and `plan` transpose \
         first what the kernel cannot read this way.",
    ),
    row(
        "epilogue",
        ("FORMULA", || str::parse::<Formula>.into()),
        &[(Gemm, None), (Plan, None), (Bench, None), (Tune, None)],
        "Fused epilogue, in place of alpha and beta: a formula such as `gelu(alpha*acc + bias[n])`, or the name of one, such \
         as `bias-gelu`. It determines D's format. `gemm` runs it on random matrices and checks everything that it writes. \
         `bench` times kernels with and without it, and cuBLASLt's own fusion.",
    )
    .signed(),
    row("alpha", ("ALPHA", || numbers::written.into()), &[(Gemm, Is("1"))], "Factor of A * B.").signed(),
    row(
        "beta",
        ("BETA", || numbers::written.into()),
        &[(Gemm, Is("0")), (Trace, Is("0"))],
        "Factor of C; 0 leaves C out.",
    )
    .signed(),
    // Files that are read.
    row("a", MATRIX, &[(Gemm, None)], "File of A, M x K: FILE.npy or FILE.safetensors[:TENSOR].").needs(&["b"]),
    row("b", MATRIX, &[(Gemm, None)], "File of B, K x N: FILE.npy or FILE.safetensors[:TENSOR].").needs(&["a"]),
    row(
        "c",
        MATRIX,
        &[(Gemm, None)],
        "File of C, M x N: FILE.npy or FILE.safetensors[:TENSOR]. Needs a --beta other than 0 to have an effect.",
    )
    .needs(&["a"]),
    row(
        "scale-a",
        MATRIX,
        &[(Gemm, None)],
        "File of A's scales: one number, M numbers (one per row), or one scale per block of 8-bit floats, M x K/128 or \
         M/128 x K/128. For quantised weights, M x K/GROUP.",
    ),
    row(
        "scale-b",
        MATRIX,
        &[(Gemm, None)],
        "File of B's scales: one number, N numbers (one per column), or one scale per block of 8-bit floats, K/128 x N or \
         K/128 x N/128. For quantised weights, K/GROUP x N.",
    ),
    row("zero-a", MATRIX, &[(Gemm, None)], "File of A's zero points, M x K/GROUP. For quantised weights."),
    row("zero-b", MATRIX, &[(Gemm, None)], "File of B's zero points, K/GROUP x N. For quantised weights."),
    row(
        "replay",
        FILE,
        &[(Verify, None)],
        "Read the GPU's outputs of --suite instructions from this file, which --record wrote, in place of a GPU.",
    )
    .excludes(&["record", "engine"]),
    // Where it runs, and how often.
    row(
        "engine",
        ("ENGINE", || EnumValueParser::<Choice>::new().into()),
        &[(Gemm, Is("auto"))],
        "Where to run the kernel.",
    ),
    row(
        "engine",
        ("ENGINE", || EnumValueParser::<Engines>::new().into()),
        &[(Verify, Is("auto"))],
        "Where to run the cases.",
    ),
    row(
        "seed",
        SEED,
        &[(Gemm, Is("0")), (Verify, Is("0")), (Trace, Is("0"))],
        "Seed of everything random: matrices, problems, specs, schedules.",
    ),
    row(
        "repeat",
        ("N", count!(u32, 1..=1_000_000)),
        &[(Gemm, Is("1")), (Verify, Is("1"))],
        "Number of runs of each GEMM. The first result is compared with the reference, every other result with the \
         first, bit for bit, on the device.",
    )
    .unit("runs"),
    row(
        "suite",
        ("SUITE", names!(verify::SUITES)),
        &[(Verify, Is("quick"))],
        "Cases to run: `quick`, `full` or `all` of the case tables; `fusions` for every kernel with a fused epilogue; \
         `instructions` for one program per form of an instruction, compared bit by bit.",
    )
    .excludes(&["kernel", "random-specs"]),
    row(
        "filter",
        ("TEXT", || value_parser!(String)),
        &[(Verify, None)],
        "Run only cases whose name or kernel contains this text.",
    )
    .excludes(&["kernel", "random-specs"]),
    row(
        "problems",
        ("N", count!(u64, 1..=10_000_000)),
        &[(Verify, Says("20"))],
        "Number of random problems for --kernel.",
    )
    .needs(&["kernel"]),
    row(
        "random-specs",
        ("N", count!(u64, 1..=10_000_000)),
        &[(Verify, None)],
        "Number of random specs, legal and illegal. Each legal one runs on a random problem: in the emulator, unless \
         --engine is `gpu` or `all`.",
    )
    .excludes(&["kernel"]),
    row(
        "schedules",
        ("N", count!(u64, 1..)),
        &[(Verify, None)],
        "Run each case in the emulator under every fixed schedule of warps and asynchronous work, and under this many \
         random schedules. A failure names the schedule and the seed that reproduce it.",
    )
    .excludes(&["kernel", "random-specs"]),
    row(
        "exact",
        SWITCH,
        &[(Verify, None)],
        "Accumulate in the emulator exactly as the hardware does, which takes about three times as long. With --engine \
         all, also compare the GPU's results with the emulator's, bit for bit.",
    ),
    row(
        "clusters",
        ("N", count!(u32, 1..)),
        &[(Trace, Is("1"))],
        "Number of clusters that run at the same time. A persistent kernel launches that many.",
    )
    .unit("clusters"),
    row(
        "schedule",
        ("ORDER", || EnumValueParser::<Pace>::new().into()),
        &[(Trace, Is("paced"))],
        "Order in which warps run and asynchronous work completes.",
    ),
    row(
        "run",
        ("MxNxK", || suites::parse.into()),
        &[(
            Explore,
            Says("two cluster tiles, with a K of two k-tiles more than the ring has stages"),
        )],
        "Problem of the emulated run.",
    )
    .signed()
    .needs(&["kernel"]),
    row("tour", SWITCH, &[(Explore, None)], "Write a tour of seven stops instead of a kernel's page.")
        .excludes(&["kernel", "run", "sms", "m", "n", "k", "rows"]),
    row(
        "sms",
        ("N", count!(u32, 1..=1024)),
        &[(Schedule, Is("132")), (Explore, Is("132"))],
        "Number of SMs of the GPU.",
    )
    .unit("SMs"),
    row(
        "card",
        ("CARD", names!(kernel::Card::NAMED.map(|(name, _)| name))),
        &[(Plan, Is("h200"))],
        "Card to predict times for. Only the H200 and the H100 were measured.",
    )
    .excludes(&["kernel"]),
    row(
        "reproducible",
        SWITCH,
        &[(Gemm, None), (Plan, None), (Bench, None), (Tune, None)],
        "Choose among kernels that sum every element of D in the same order, whatever M, N, the batch and the groups are: a row \
         of D then has the same bits in every batch. In `bench`, also time the kernel that is chosen without this option, and \
         print the price.",
    )
    .excludes(&["kernel", "all-kernels"]),
    // Measuring.
    row("all-kernels", SWITCH, &[(Bench, None)], "Measure every named kernel that can compute the shape.")
        .excludes(&["kernel", "k-groups"]),
    row(
        "budget",
        ("N", count!(u32, 1..)),
        &[(Tune, Is("24"))],
        "Number of kernels to measure per shape.",
    )
    .unit("kernels"),
    row(
        "no-records",
        SWITCH,
        &[(Tune, None)],
        "Rank kernels by the model alone, without the records that come with the library. For records that the model is \
         fitted to.",
    ),
    row(
        "turns",
        ("N", count!(u32, 1..)),
        &[(Bench, Says("7; 3 for --suite selection")), (Tune, Is("5"))],
        "Number of times that each candidate is timed, per state. In `tune`, each candidate near the best.",
    )
    .unit("turns"),
    row(
        "burst-only",
        SWITCH,
        &[(Bench, None)],
        "Measure only the burst state, not the sustained one.",
    ),
    row(
        "sustained",
        SWITCH,
        &[(Tune, None)],
        "Also measure the sustained state, with the GPU kept busy for seconds.",
    ),
    row(
        "seconds",
        ("SECONDS", || value_parser!(u64).into()),
        &[(Tune, None)],
        "Stop before the next shape once this much time has passed.",
    )
    .unit("seconds"),
    row(
        "launch",
        SWITCH,
        &[(Bench, None)],
        "Time the host's cost of a launch instead, and replay a launch from a CUDA graph.",
    ),
    // Drawings and layouts.
    row("records", ("RECORD", || value_parser!(std::path::PathBuf)), &[(Chart, None)], "Record of `falchion tune --jsonl`.")
        .many(Positionals),
    row(
        "card",
        ("TEXT", || value_parser!(String)),
        &[(Chart, None)],
        "Card, driver and library of the records, for the caption.",
    ),
    row(
        "expr",
        ("EXPR", || value_parser!(String)),
        &[(Layout, None)],
        "Expression: a layout `(4,(2,3)):(1,(4,8))`, a shape, `Sw<3,4,3> o 0 o L`, or a call such as `composition(A,B)`.",
    )
    .many(Positional)
    .excludes(&["atom"]),
    row(
        "atom",
        ("NAME", || value_parser!(String)),
        &[(Layout, None)],
        "Name of an instruction's layout: `wgmma-m64n64k16-bf16-c`, `…-a`, `stmatrix-x4-source`, \
         `ldmatrix-x2-trans-destination`, `smem-k-128B-bf16-64x64`, `smem-mn-64B-…`.",
    ),
    row(
        "table",
        SWITCH,
        &[(Layout, None)],
        "Print a grid before the result: offsets, banks (with --banks), or owners (with --tile or an --atom in \
         registers).",
    ),
    row(
        "tile",
        ("MxN", || layout::tile.into()),
        &[(Layout, None)],
        "Read the layout as `(thread, value) -> m + M n` of a tile of M x N elements.",
    )
    .signed()
    .excludes(&["atom", "banks"]),
    row(
        "banks",
        ("BITS", || value_parser!(u32).into()),
        &[(Layout, None)],
        "Show shared-memory banks, for elements of this width.",
    )
    .unit("bits"),
    row(
        "access",
        ("ACCESS", || value_parser!(String)),
        &[(Layout, Says("row"))],
        "Elements that the 32 lanes of a warp access: `row`, `column`, or a layout from lanes to coordinates. An atom is \
         a `smem-…` one.",
    )
    .needs(&["banks", "atom"]),
    row(
        "lane-bytes",
        ("BYTES", || value_parser!(u32).into()),
        &[(Layout, Says("one element; 16 for a `smem-…` atom"))],
        "What each lane moves: 1, 2, 4, 8 or 16. An atom is a `smem-…` one.",
    )
    .unit("bytes")
    .needs(&["banks", "atom"]),
    row(
        "lines",
        ("N", count!(u32, 2..)),
        &[(Schedule, Is("24"))],
        "Largest number of slots in the text drawing.",
    )
    .unit("lines")
    .excludes(&["list"]),
    row(
        "width",
        ("N", count!(u32, 8..=1000)),
        &[(Schedule, Is("96"))],
        "Width of the text drawing.",
    )
    .unit("characters")
    .excludes(&["list"]),
    row(
        "list",
        SWITCH,
        &[(Schedule, None)],
        "List every work unit instead of drawing. For a slice of a tile, also its columns in the tile.",
    ),
    // Files that are written.
    row(
        "out",
        FILE,
        &[
            (Gemm, None),
            (Emit, Says("standard output")),
            (Chart, Says("standard output")),
            (Trace, None),
            (Explore, Says("the kernel's name and `.html`, in the current folder")),
        ],
        "Write the result to this file: `gemm` D as .npy (f16 and f64 unchanged, s32 as 32-bit integers, other formats as \
         f32), `emit` the PTX, `trace` the timeline as JSON for Perfetto or Chrome, `explore` the page, `chart` the picture as SVG.",
    )
    .short('o'),
    row(
        "svg",
        FILE,
        &[(Trace, None), (Bench, None), (Layout, None), (Schedule, None)],
        "Write a picture as SVG: `trace` the timeline, `bench` a roofline and the ratios to the library's fastest, \
         `layout` the layout, `schedule` every slot and the tiles in D.",
    ),
    row("latex", FILE, &[(Layout, None)], "Write the picture as LaTeX."),
    row(
        "json",
        FILE,
        &[(Bench, None), (Verify, None)],
        "Write as JSON: `bench` every figure, `verify` the verdicts of --suite instructions.",
    ),
    row("csv", FILE, &[(Bench, None)], "Write every figure as CSV."),
    row("jsonl", FILE, &[(Tune, None)], "Append the measurements, one line of JSON per shape."),
    row("record", FILE, &[(Verify, None)], "Write the GPU's outputs of --suite instructions."),
    // The cache.
    row(
        "keep",
        ("BYTES", || numbers::size.into()),
        &[(Trim, None)],
        "Keep at most this much, for example 500000, 20kB, 200MB or 1GB (powers of 1000). The most recently used entries \
         stay.",
    )
    .unit("bytes")
    .excludes(&["older-than"]),
    row(
        "older-than",
        ("DAYS", || value_parser!(u32).into()),
        &[(Trim, None)],
        "Remove entries that were not used for longer than this.",
    )
    .unit("days"),
];
