//! Where and how often it runs, and what is measured.

use clap::builder::EnumValueParser;
use clap::value_parser;

use super::super::Preset::{Is, None, Says};
use super::super::Row;
use super::super::Verb;
use super::{SEED, SWITCH, count, names, row};
use crate::cli::bench::suites;
use crate::cli::engine::{Choice, Engines};
use crate::cli::trace::Pace;
use crate::cli::verify;

pub(super) const ROWS: &[Row] = &[
    // Where it runs, and how often.
    row(
        "engine",
        ("ENGINE", || EnumValueParser::<Choice>::new().into()),
        &[(Verb::GEMM, Is("auto"))],
        "Where to run the kernel.",
    ),
    row(
        "engine",
        ("ENGINE", || EnumValueParser::<Engines>::new().into()),
        &[(Verb::VERIFY, Is("auto"))],
        "Where to run the cases.",
    ),
    row(
        "seed",
        SEED,
        &[(Verb::GEMM, Is("0")), (Verb::VERIFY, Is("0")), (Verb::CHECK, Is("0")), (Verb::TRACE, Is("0"))],
        "Seed of everything random: matrices, problems, specs, schedules.",
    ),
    row(
        "repeat",
        ("N", count!(u32, 1..=1_000_000)),
        &[(Verb::GEMM, Is("1")), (Verb::VERIFY, Is("1"))],
        "Number of runs of each GEMM. The first result is compared with the reference, every other result with the \
         first, bit for bit, on the device.",
    )
    .unit("runs"),
    row(
        "suite",
        ("SUITE", names!(verify::SUITES)),
        &[(Verb::VERIFY, Is("quick"))],
        "Cases to run: `quick`, `full` or `all` of the case tables; `fusions` for every kernel with a fused epilogue; \
         `instructions` for one program per form of an instruction, compared bit by bit.",
    )
    .excludes(&["kernel", "random-specs"]),
    row(
        "filter",
        ("TEXT", || value_parser!(String)),
        &[(Verb::VERIFY, None)],
        "Run only cases whose name or kernel contains this text.",
    )
    .excludes(&["kernel", "random-specs"]),
    row(
        "problems",
        ("N", count!(u64, 1..=10_000_000)),
        &[(Verb::VERIFY, Says("20"))],
        "Number of random problems for --kernel.",
    )
    .needs(&["kernel"]),
    row(
        "random-specs",
        ("N", count!(u64, 1..=10_000_000)),
        &[(Verb::VERIFY, None)],
        "Number of random specs, legal and illegal. Each legal one runs on a random problem: in the emulator, unless \
         --engine is `gpu` or `all`.",
    )
    .excludes(&["kernel"]),
    row(
        "schedules",
        ("N", count!(u64, 1..)),
        &[(Verb::VERIFY, None)],
        "Run each case in the emulator under every fixed schedule of warps and asynchronous work, and under this many \
         random schedules. A failure names the schedule and the seed that reproduce it. Unless --engine is given, no GPU is used.",
    )
    .excludes(&["kernel", "random-specs"]),
    row(
        "exact",
        SWITCH,
        &[(Verb::VERIFY, None)],
        "Accumulate in the emulator exactly as the hardware does, which takes about three times as long. With --engine \
         all, also compare the GPU's results with the emulator's, bit for bit. Unless --engine is given, no GPU is used.",
    ),
    row(
        "clusters",
        ("N", count!(u32, 1..)),
        &[(Verb::TRACE, Is("1"))],
        "Number of clusters that run at the same time. A persistent kernel launches that many.",
    )
    .unit("clusters"),
    row(
        "schedule",
        ("ORDER", || EnumValueParser::<Pace>::new().into()),
        &[(Verb::TRACE, Is("paced"))],
        "Order in which warps run and asynchronous work completes.",
    ),
    row(
        "run",
        ("MxNxK", || suites::parse.into()),
        &[(
            Verb::EXPLORE,
            Says("two cluster tiles, with a K of two k-tiles more than the ring has stages"),
        )],
        "Problem of the emulated run.",
    )
    .signed()
    .needs(&["kernel"]),
    row("tour", SWITCH, &[(Verb::EXPLORE, None)], "Write a tour of seven stops instead of a kernel's page.")
        .excludes(&["kernel", "run", "sms", "m", "n", "k", "rows"]),
    row(
        "sms",
        ("N", count!(u32, 1..=1024)),
        &[(Verb::SCHEDULE, Is("132")), (Verb::EXPLORE, Is("132"))],
        "Number of SMs of the GPU.",
    )
    .unit("SMs"),
    row(
        "card",
        ("CARD", names!(kernel::Card::NAMED.map(|(name, _)| name))),
        &[(Verb::PLAN, Is("h200"))],
        "Card to predict times for. Only the H200 and the H100 were measured.",
    )
    .excludes(&["kernel"]),
    row(
        "reproducible",
        SWITCH,
        &[(Verb::GEMM, None), (Verb::PLAN, None), (Verb::BENCH, None), (Verb::TUNE, None), (Verb::TRACE, None), (Verb::SCHEDULE, None)],
        "Choose among kernels that sum every element of D in the same order, whatever M, N, the batch and the groups are: a row \
         of D then has the same bits in every batch. In `bench`, also time the kernel that is chosen without this option, and \
         print the price.",
    )
    .excludes(&["kernel", "all-kernels"]),
    // Measuring.
    row("all-kernels", SWITCH, &[(Verb::BENCH, None)], "Measure every named kernel that can compute the shape.")
        .excludes(&["kernel", "k-groups"]),
    row(
        "budget",
        ("N", count!(u32, 1..)),
        &[(Verb::TUNE, Is("24"))],
        "Number of kernels to measure per shape.",
    )
    .unit("kernels"),
    row(
        "drawn",
        ("N", count!(u32, 0..)),
        &[(Verb::TUNE, Is("0"))],
        "Number of kernels to measure in addition, which are drawn from the rest of the space: what the model ranks last by \
         mistake is among them. The same ones for the same space.",
    )
    .unit("kernels"),
    row(
        "no-records",
        SWITCH,
        &[(Verb::TUNE, None)],
        "Rank kernels by the model alone, without the records that come with the library. For records that the model is \
         fitted to.",
    ),
    row(
        "turns",
        ("N", count!(u32, 1..)),
        &[(Verb::BENCH, Says("7; 3 for --suite selection")), (Verb::TUNE, Is("5"))],
        "Number of times that each candidate is timed, per state. In `tune`, each candidate near the best.",
    )
    .unit("turns"),
    row(
        "burst-only",
        SWITCH,
        &[(Verb::BENCH, None)],
        "Measure only the burst state, not the sustained one.",
    ),
    row(
        "sustained",
        SWITCH,
        &[(Verb::TUNE, None)],
        "Also measure the sustained state, with the GPU kept busy for seconds.",
    ),
    row(
        "seconds",
        ("SECONDS", || value_parser!(u64).into()),
        &[(Verb::TUNE, None)],
        "Stop before the next shape once this much time has passed.",
    )
    .unit("seconds"),
    row(
        "launch",
        SWITCH,
        &[(Verb::BENCH, None)],
        "Time the host's cost of a launch instead, and replay a launch from a CUDA graph.",
    ),
];
