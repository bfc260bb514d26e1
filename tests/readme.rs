//! Code, output and numbers of the README and of `docs/features.md`, compared with their sources.

use std::process::Command;

use falchion::collective::{Code, Format, MainloopSpec, MmaKind, Producer, WeightsSpec};
use falchion::cute_rs::atom::Major;
use falchion::kernel::{AnyGemm, KernelSpec, Known, Machine, Request, Types};
use falchion::prelude::*;

const README: &str = include_str!("../README.md");
const FEATURES: &str = include_str!("../docs/features.md");

/// The README's code. It is a program, and a function to add to it.
#[allow(dead_code, reason = "the function launches on a GPU")]
mod program {
    include!("readme/program.rs");
    #[cfg(feature = "cudarc")]
    include!("readme/launch.rs");

    pub(crate) type Kernel = MyGemm;

    pub(crate) fn run() {
        main().expect("the program ends well");
    }
}

/// A page on one line.
fn words(page: &str) -> String {
    page.split_whitespace().collect::<Vec<_>>().join(" ")
}

/// The blocks of code of the README in a language.
fn blocks(language: &str) -> Vec<&'static str> {
    let begin = format!("```{language}\n");
    README.split(begin.as_str()).skip(1).filter_map(|rest| rest.split("```").next()).collect()
}

#[test]
fn its_code_is_what_is_compiled() {
    assert_eq!(blocks("rust"), [include_str!("readme/program.rs"), include_str!("readme/launch.rs")]);
}

/// The program runs in a process of its own, for its output.
#[test]
fn its_program_prints_what_it_says() {
    const INSIDE: &str = "README_PROGRAM";
    if std::env::var_os(INSIDE).is_some() {
        return program::run();
    }
    let test = std::env::current_exe().expect("this test's path");
    let run = Command::new(test)
        .args(["--exact", "its_program_prints_what_it_says", "--nocapture"])
        .env(INSIDE, "1")
        .output()
        .expect("the test runs");
    let printed = String::from_utf8(run.stdout).expect("text");
    let [output, ..] = blocks("text")[..] else { panic!("the output is the README's first block of text") };
    assert!(run.status.success() && printed.contains(output), "it printed {printed}");
}

#[test]
fn six_stages_are_refused_in_these_words() {
    let plan = Gemm::<program::Kernel>::PLAN;
    let six = MainloopSpec { stages: Some(6), ..plan.mainloop };
    let error = Plan::new(six, plan.epilogue).expect_err("too many stages").to_string();
    assert!(words(README).contains(&format!("*{error}*")), "{error}");
}

/// The library's choices for operands of these types, which tensor copies can load or not.
fn chosen(types: Types, aligned: bool) -> Vec<AnyGemm> {
    let problem = GemmProblem { m: 256, n: 256, k: 384 };
    let request = Request::packed(types, [Major::K; 2], problem).known(Known::Nothing);
    let odd = if aligned { 0 } else { 1 };
    let call = request.call.a(request.call.a.address, u64::from(problem.k) + odd);
    let request = if aligned { request } else { Request { call, ..request } };
    let selection = kernel::select(&request, &Machine::h200());
    selection.ranked.into_iter().map(|ranked| ranked.gemm).collect()
}

/// A row of the README's table: its name, formats of A and B, more words of a spec, and the types of a request.
type Row = (&'static str, &'static [Format], &'static str, fn(Types) -> Types);

const WEIGHTS: WeightsSpec = WeightsSpec { code: Code::S4, group: 128, zeros: false };

/// The table of the README: which mainloop takes which operands, and which of them the library chooses.
#[test]
fn its_table_is_what_specs_and_choices_are() {
    let loads = [
        ("multiply=wgmma load=tma", MmaKind::Wgmma, Producer::Thread),
        ("multiply=wgmma load=copy", MmaKind::Wgmma, Producer::Warpgroup),
        ("multiply=mma.sync", MmaKind::MmaSync, Producer::Warpgroup),
        ("multiply=simt", MmaKind::Simt, Producer::Warpgroup),
    ];
    let rows: [Row; 9] = [
        ("`bf16`, `f16`", &[Format::Bf16, Format::F16], "", |types| types),
        ("`tf32`", &[Format::Tf32], "", |types| types),
        ("`e4m3`, `e5m2`", &[Format::E4m3, Format::E5m2], "", |types| types),
        (
            "the same with block scales",
            &[Format::E4m3, Format::E5m2],
            "scale-a=1x128 scale-b=128x128",
            |types| types.scaled([1, 128]),
        ),
        ("`s8`, `u8`", &[Format::S8, Format::U8], "", |types| types),
        (
            "16 bits by quantised weights",
            &[Format::Bf16, Format::F16],
            "weights-b=s4 group=128 swap=yes tile=128x32x64",
            |types| types.weights([None, Some(WEIGHTS)]),
        ),
        (
            "2:4 sparse",
            &[Format::Bf16, Format::F16, Format::Tf32, Format::E4m3, Format::E5m2, Format::S8, Format::U8],
            "sparse=a tile=128x32x128",
            |types| types.sparse([true, false]),
        ),
        ("`f32`", &[Format::F32], "", |types| types),
        ("`f64`", &[Format::F64], "", |types| types),
    ];
    for (row, formats, more, types) in rows {
        let line = README.lines().find(|line| line.starts_with(&format!("| {row} |")));
        let line = line.unwrap_or_else(|| panic!("the README has no row {row}"));
        let cells: Vec<&str> = line.split('|').skip(2).map(str::trim).collect();
        // The first of the row's formats is asked for all.
        let choices = [true, false].map(|aligned| chosen(types(Types::of(formats[0])), aligned)).concat();
        for ((load, multiply, producer), cell) in loads.into_iter().zip(cells) {
            let is = |gemm: &AnyGemm| {
                let mainloop = gemm.plan().mainloop;
                mainloop.atom.types.multiply() == multiply && mainloop.producer == producer
            };
            assert_eq!(choices.iter().any(is), cell.contains('C'), "{row}, {load}");
            for &format in formats {
                let text = format!("dtype={format} {load} {more}");
                let legal = text.parse::<KernelSpec>();
                assert_eq!(legal.is_ok(), !cell.is_empty(), "{row}, {text}: {:?}", legal.err());
            }
        }
    }
}

#[test]
fn counts_are_those_of_the_records() {
    let lines = |text: &str| text.lines().filter(|line| !line.starts_with('#')).count();
    let [wgmma, others] = [include_str!("silicon/wgmma.txt"), include_str!("silicon/others.txt")].map(lines);
    let proof = include_str!("../docs/proof.md");
    let killed =
        proof.split("**").find(|part| part.ends_with(" %") && part.len() < 10).expect("the share of kills");
    let killed: f64 = killed.trim_end_matches(" %").parse().expect("a number");
    let mutants = |line: &'static str| line.strip_prefix("* ")?.split_once(" mutants of ");
    let (mutants, _) = proof.lines().find_map(mutants).expect("the number of mutants");
    let (hazards, legal) =
        include_str!("../docs/hazards.md").split_once("## Unusual and legal").expect("both");
    let found =
        |line: &str| line.trim_end_matches(" |").rsplit(' ').next().and_then(|word| word.parse().ok());
    let found: Vec<u32> = hazards.lines().filter(|line| line.starts_with("| ")).filter_map(found).collect();
    let always = found.iter().filter(|schedules| **schedules == 54).count();
    // Two lines are the head of the table.
    let legal = legal.lines().filter(|line| line.starts_with('|')).count() - 2;
    let plain = kernel::catalogue().len() + kernel::several().len();
    let fused = falchion::verify::fused_catalogue().len();
    for (text, page) in [
        (format!("{wgmma} forms of `wgmma` and {others} others"), words(FEATURES)),
        (format!("of {mutants} mutants the emulator notices {killed:.2} %"), words(FEATURES)),
        (format!("{} mistakes with a corrected twin", found.len()), words(FEATURES)),
        (format!("{always} of them under all 54"), words(FEATURES)),
        (format!("{legal} unusual legal programs"), words(FEATURES)),
        (format!("{killed:.2} %"), words(README)),
        (format!("{plain} plain kernels of the catalogue"), proof.to_owned()),
        (format!("{fused} kernels with a fused"), proof.to_owned()),
    ] {
        assert!(page.contains(&text), "{text}");
    }
}

/// The call that ARCHITECTURE.md draws is that of the README's program.
#[test]
fn the_drawn_call_has_these_numbers() {
    let page = include_str!("../ARCHITECTURE.md");
    let plan = Gemm::<program::Kernel>::PLAN;
    let problem = GemmProblem { m: 300, n: 200, k: 136 };
    let call = Call::of(problem).a(1 << 20, 136).b(1 << 20, 136).d(1 << 20, 200);
    let launch = Gemm::<program::Kernel>::launch(&call, 132).expect("legal").expect("work");
    for text in [
        format!("{} stages of {} B, {} threads", plan.ring.stages, plan.ring.stage_bytes, plan.threads),
        format!("grid: {} CTAs", launch.grid.ctas[0]),
    ] {
        assert!(page.contains(&text), "{text}");
    }
}
