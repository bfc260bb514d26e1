//! What is checked of PTX, and what is reported.

use clap::value_parser;

use super::super::Many::{Positionals, Repeated};
use super::super::Preset::{Is, None, Says};
use super::super::{Row, Verb};
use super::{FILE, SWITCH, count, row};
use crate::check::Suppression;

pub(super) const ROWS: &[Row] = &[
    row(
        "kernels",
        FILE,
        &[(Verb::CHECK, None)],
        "PTX, or the description of a launch (`.toml`), which names its PTX; without that it is the file of the same name.",
    )
    .many(Positionals),
    row(
        "launch",
        FILE,
        &[(Verb::CHECK, Says("the PTX file's name with `.launch.toml`, beside it"))],
        "Description of the launch: grid, memory, arguments, wanted results.",
    ),
    row(
        "schedules",
        ("N", count!(u64, 0..=10_000_000)),
        &[(Verb::CHECK, Is("50"))],
        "Number of random schedules, after the four fixed ones. --seed is that of the first, and the next ones have the next seeds.",
    ),
    row(
        "suppress",
        ("RULE[:LINE[-LINE]]", || value_parser!(Suppression).into()),
        &[(Verb::CHECK, None)],
        "Do not report findings of this rule, or those at these lines of the PTX. A description has the same as `suppress`.",
    )
    .many(Repeated),
    row(
        "baseline",
        FILE,
        &[(Verb::CHECK, None)],
        "Do not report findings that are in this file, which --write-baseline wrote.",
    ),
    row(
        "deny-warnings",
        SWITCH,
        &[(Verb::CHECK, None)],
        "Exit with 1 for warnings too.",
    ),
    row(
        "mutate",
        SWITCH,
        &[(Verb::CHECK, None)],
        "Measure how much a check finds: leave out each synchronising instruction, one at a time, and print which of these broken \
         kernels no schedule finds.",
    )
    .excludes(&["sarif", "baseline", "write-baseline", "trace", "svg", "suppress", "deny-warnings", "rules"]),
    row(
        "against-device",
        SWITCH,
        &[(Verb::CHECK, None)],
        "Run each launch on the GPU and in the emulator instead, and compare the bits of all memory after each kernel. Where they \
         differ, find the first statement after which a register does.",
    )
    .excludes(&[
        "json", "sarif", "baseline", "write-baseline", "trace", "svg", "suppress", "deny-warnings", "rules", "mutate", "schedules",
        "seed",
    ]),
    row(
        "compiler",
        SWITCH,
        &[(Verb::CHECK, None)],
        "Test on the GPU the compiler of kernels instead: the driver's, or the assembler that FALCHION_PTXAS names. Micro-kernels with \
         known bits are compiled, run and compared, and the time is compared with that of a kernel's first load. Exits with 1 if a bit \
         is wrong.",
    )
    .excludes(&[
        "launch", "json", "sarif", "baseline", "write-baseline", "trace", "svg", "suppress", "deny-warnings", "rules",
        "mutate", "schedules", "seed", "against-device",
    ]),
    row(
        "ptxas",
        FILE,
        &[(Verb::CHECK, None)],
        "Test this assembler, too, with --compiler: NVIDIA's `ptxas` of any version that the driver loads binaries of. Repeatable.",
    )
    .many(Repeated)
    .needs(&["compiler"]),
    row("rules", SWITCH, &[(Verb::CHECK, None)], "List the rules that findings name, instead of checking."),
    row("sarif", FILE, &[(Verb::CHECK, None)], "Write the findings as SARIF 2.1.0."),
    row(
        "write-baseline",
        FILE,
        &[(Verb::CHECK, None)],
        "Write the findings to this file, and those of --baseline, and report no error.",
    ),
    row(
        "trace",
        FILE,
        &[(Verb::CHECK, None)],
        "Write the timeline of the first schedule that found something, or else of `paced`, as JSON for Perfetto or Chrome.",
    ),
];
