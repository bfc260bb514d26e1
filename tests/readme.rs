//! Code, output and numbers of the README and of `docs/features.md`, compared with their sources.

use std::path::{Path, PathBuf};
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

/// A row of the table of formats: its name, formats of A and B, more words of a spec, and the types of a request.
type Row = (&'static str, &'static [Format], &'static str, fn(Types) -> Types);

const WEIGHTS: WeightsSpec = WeightsSpec { code: Code::S4, group: 128, zeros: false };

/// The table of formats in `docs/features.md`: which mainloop takes which operands, and which of them the library chooses.
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
    let (table, _) = FEATURES.split_once("## Operands").expect("the table is before the operands");
    for (row, formats, more, types) in rows {
        let line = table.lines().find(|line| line.starts_with(&format!("| {row} |")));
        let line = line.unwrap_or_else(|| panic!("the table has no row {row}"));
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
    let proof = include_str!("../docs/evidence/proof.md");
    let killed =
        proof.split("**").find(|part| part.ends_with(" %") && part.len() < 10).expect("the share of kills");
    let killed: f64 = killed.trim_end_matches(" %").parse().expect("a number");
    let mutants = |line: &'static str| line.strip_prefix("* ")?.split_once(" mutants of ");
    let (mutants, _) = proof.lines().find_map(mutants).expect("the number of mutants");
    let (hazards, legal) =
        include_str!("../docs/evidence/hazards.md").split_once("## Unusual and legal").expect("both");
    let found =
        |line: &str| line.trim_end_matches(" |").rsplit(' ').next().and_then(|word| word.parse().ok());
    let found: Vec<u32> = hazards.lines().filter(|line| line.starts_with("| ")).filter_map(found).collect();
    let always = found.iter().filter(|schedules| **schedules == 54).count();
    // Two lines are the head of the table.
    let legal = legal.lines().filter(|line| line.starts_with('|')).count() - 2;
    let races = include_str!("../docs/races.md");
    let [races, found_races] = ["\n## ", "\n**Found** by "].map(|begin| races.matches(begin).count());
    let plain = kernel::catalogue().len() + kernel::several().len();
    let fused = falchion::verify::fused_catalogue().len();
    for (text, page) in [
        (format!("{wgmma} forms of `wgmma` and {others} others"), words(FEATURES)),
        (format!("of {mutants} mutants the emulator notices {killed:.2} %"), words(FEATURES)),
        (format!("{} mistakes with a corrected twin", found.len()), words(FEATURES)),
        (format!("{always} of them under all 54"), words(FEATURES)),
        (format!("{legal} unusual legal programs"), words(FEATURES)),
        (format!("{killed:.2} %"), words(README)),
        (format!("{found_races} of {races} [races"), words(README)),
        (format!("{races} races and hangs that other libraries shipped"), words(FEATURES)),
        (format!("{plain} plain kernels of the catalogue"), proof.to_owned()),
        (format!("{fused} kernels with a fused"), proof.to_owned()),
    ] {
        assert!(page.contains(&text), "{text}");
    }
}

/// The files of Rust below a folder, without build outputs.
fn sources(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in std::fs::read_dir(folder).expect("a folder") {
        let path = entry.expect("an entry").path();
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        if path.is_dir() && name != "target" && !name.starts_with('.') {
            sources(&path, found);
        } else if name.ends_with(".rs") {
            found.push(path);
        }
    }
}

/// Whether a line of a file allows `unsafe` where the workspace denies it, or has a block of it.
fn is_unsafe(line: &str) -> bool {
    let line = line.trim_start();
    let of_code = ["unsafe {", "unsafe fn ", "unsafe impl ", "unsafe extern "];
    !line.starts_with("//") && of_code.iter().any(|form| line.contains(form))
}

/// The folders that CONTRIBUTING.md names are those with `unsafe`: none is missing, and none is named without need.
#[test]
fn unsafe_is_where_the_rules_say() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let rule = include_str!("../CONTRIBUTING.md").split_once("`unsafe` only").expect("the rule").1;
    let (rule, _) = rule.split_once(", and tests").expect("its end");
    let named: Vec<&str> = rule.split('`').skip(1).step_by(2).collect();
    assert!(named.contains(&"kernel/src/driver"), "{named:?}");
    let mut files = Vec::new();
    sources(root, &mut files);
    let mut with: Vec<&str> = Vec::new();
    for path in files {
        let name = path.strip_prefix(root).expect("below the root").to_string_lossy().replace('\\', "/");
        if name.split('/').any(|part| part == "tests" || part == "benches" || part == "stand_in") {
            continue;
        }
        if std::fs::read_to_string(&path).expect("text").lines().any(is_unsafe) {
            let of = named.iter().find(|of| {
                let (before, after) = of.split_once('*').unwrap_or((of, ""));
                let rest = name.strip_prefix(before).filter(|_| of.contains('*'));
                name.starts_with(&format!("{of}/"))
                    || rest.is_some_and(|rest| {
                        rest.split_once('/').is_some_and(|(_, rest)| rest.starts_with(&after[1..]))
                    })
            });
            with.push(of.unwrap_or_else(|| {
                panic!("{name} has `unsafe`, and CONTRIBUTING.md does not name its folder")
            }));
        }
    }
    for of in named {
        assert!(with.contains(&of), "nothing in {of} is `unsafe`");
    }
}

/// The call that ARCHITECTURE.md draws is that of the README's program.
#[test]
fn the_drawn_call_has_these_numbers() {
    let page = include_str!("../ARCHITECTURE.md");
    let plan = Gemm::<program::Kernel>::PLAN;
    let problem = GemmProblem { m: 300, n: 200, k: 136 };
    let call = Call::of(problem).a(1 << 20, 136).b(1 << 20, 136).d(1 << 30, 200);
    let launch = Gemm::<program::Kernel>::launch(&call, 132).expect("legal").expect("work");
    for text in [
        format!("{} stages of {} B, {} threads", plan.ring.stages, plan.ring.stage_bytes, plan.threads),
        format!("grid: {} CTAs", launch.grid.ctas[0]),
    ] {
        assert!(page.contains(&text), "{text}");
    }
}
