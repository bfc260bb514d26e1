//! Drawings, layouts, files that are written, the cache.

use clap::value_parser;

use super::super::Many::{Positional, Positionals};
use super::super::Preset::{Is, None, Says};
use super::super::Row;
use super::super::Verb;
use super::{FILE, SWITCH, count, row};
use crate::cli::{layout, numbers};

pub(super) const ROWS: &[Row] = &[
    // Drawings and layouts.
    row("records", ("RECORD", || value_parser!(std::path::PathBuf)), &[(Verb::CHART, None)], "Record of `falchion tune --jsonl`.")
        .many(Positionals),
    row(
        "card",
        ("TEXT", || value_parser!(String)),
        &[(Verb::CHART, None)],
        "Card, driver and library of the records, for the caption.",
    ),
    row(
        "expr",
        ("EXPR", || value_parser!(String)),
        &[(Verb::LAYOUT, None)],
        "Expression: a layout `(4,(2,3)):(1,(4,8))`, a shape, `Sw<3,4,3> o 0 o L`, or a call such as `composition(A,B)`.",
    )
    .many(Positional)
    .excludes(&["atom"]),
    row(
        "atom",
        ("NAME", || value_parser!(String)),
        &[(Verb::LAYOUT, None)],
        "Name of an instruction's layout: `wgmma-m64n64k16-bf16-c`, `…-a`, `stmatrix-x4-source`, \
         `ldmatrix-x2-trans-destination`, `smem-k-128B-bf16-64x64`, `smem-mn-64B-…`.",
    ),
    row(
        "table",
        SWITCH,
        &[(Verb::LAYOUT, None)],
        "Print a grid before the result: offsets, banks (with --banks), or owners (with --tile or an --atom in \
         registers).",
    ),
    row(
        "tile",
        ("MxN", || layout::tile.into()),
        &[(Verb::LAYOUT, None)],
        "Read the layout as `(thread, value) -> m + M n` of a tile of M x N elements.",
    )
    .signed()
    .needs(&["table", "svg", "latex"])
    .excludes(&["atom", "banks"]),
    row(
        "banks",
        ("BITS", || value_parser!(u32).into()),
        &[(Verb::LAYOUT, None)],
        "Show shared-memory banks, for elements of this width.",
    )
    .unit("bits"),
    row(
        "access",
        ("ACCESS", || value_parser!(String)),
        &[(Verb::LAYOUT, Says("row"))],
        "Elements that the 32 lanes of a warp access: `row`, `column`, or a layout from lanes to coordinates. An atom is \
         a `smem-…` one.",
    )
    .needs(&["banks", "atom"]),
    row(
        "lane-bytes",
        ("BYTES", || value_parser!(u32).into()),
        &[(Verb::LAYOUT, Says("one element; 16 for a `smem-…` atom"))],
        "What each lane moves: 1, 2, 4, 8 or 16. An atom is a `smem-…` one.",
    )
    .unit("bytes")
    .needs(&["banks", "atom"]),
    row(
        "lines",
        ("N", count!(u32, 2..)),
        &[(Verb::SCHEDULE, Is("24"))],
        "Largest number of slots in the text drawing.",
    )
    .unit("lines")
    .excludes(&["list"]),
    row(
        "width",
        ("N", count!(u32, 8..=1000)),
        &[(Verb::SCHEDULE, Is("96"))],
        "Width of the text drawing.",
    )
    .unit("characters")
    .excludes(&["list"]),
    row(
        "list",
        SWITCH,
        &[(Verb::SCHEDULE, None)],
        "List every work unit instead of drawing. For a slice of a tile, also its columns in the tile.",
    ),
    // Files that are written.
    row(
        "out",
        FILE,
        &[
            (Verb::GEMM, None),
            (Verb::EMIT, Says("standard output")),
            (Verb::CHART, Says("standard output")),
            (Verb::TRACE, None),
            (Verb::EXPLORE, Says("the kernel's name and `.html`, in the current folder")),
        ],
        "Write the result to this file: `gemm` D as .npy (f16 and f64 unchanged, s32 as 32-bit integers, other formats as \
         f32), `emit` the PTX, `trace` the timeline as JSON for Perfetto or Chrome, `explore` the page, `chart` the picture as SVG.",
    )
    .short('o'),
    row(
        "svg",
        FILE,
        &[(Verb::CHECK, None), (Verb::TRACE, None), (Verb::BENCH, None), (Verb::LAYOUT, None), (Verb::SCHEDULE, None)],
        "Write a picture as SVG: `trace` the timeline, `check` that of --trace, `bench` a roofline and the ratios to the library's fastest, \
         `layout` the layout, `schedule` every slot and the tiles in D.",
    ),
    row("latex", FILE, &[(Verb::LAYOUT, None)], "Write the picture as LaTeX."),
    row(
        "json",
        FILE,
        &[(Verb::BENCH, None), (Verb::VERIFY, None), (Verb::CHECK, None)],
        "Write as JSON: `bench` every figure, `check` every finding, `verify` the verdicts of --suite instructions.",
    ),
    row("csv", FILE, &[(Verb::BENCH, None)], "Write every figure as CSV."),
    row("jsonl", FILE, &[(Verb::TUNE, None)], "Append the measurements, one line of JSON per shape."),
    row("record", FILE, &[(Verb::VERIFY, None)], "Write the GPU's outputs of --suite instructions."),
    // The cache.
    row(
        "keep",
        ("BYTES", || numbers::size.into()),
        &[(Verb::TRIM, None)],
        "Keep at most this much, for example 500000, 20kB, 200MB or 1GB (powers of 1000). The most recently used entries \
         stay.",
    )
    .unit("bytes")
    .excludes(&["older-than"]),
    row(
        "older-than",
        ("DAYS", || value_parser!(u32).into()),
        &[(Verb::TRIM, None)],
        "Remove entries that were not used for longer than this.",
    )
    .unit("days"),
];
