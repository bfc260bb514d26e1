//! `falchion check`: findings with lines, files that are written, and what is refused.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::{falchion, folder, refused};

/// Each of 64 threads stores its number in shared memory, and reads that of another one, into `y`.
pub(crate) const PTX: &str = ".version 8.0
.target sm_90a
.address_size 64

.visible .entry exchange(
	.param .u64 exchange_y
)
.reqntid 64, 1, 1
{
	.shared .align 4 .b8 words[256];
	.reg .b32 %r<6>;
	.reg .b64 %rd<4>;
	ld.param.u64 %rd1, [exchange_y];
	mov.u32 %r1, %tid.x;
	mov.u32 %r2, words;
	mad.lo.u32 %r3, %r1, 4, %r2;
	.loc 1 7 3
	st.shared.b32 [%r3], %r1;
	bar.sync 0;
	xor.b32 %r4, %r1, 63;
	mad.lo.u32 %r4, %r4, 4, %r2;
	.loc 1 9 5
	ld.shared.b32 %r5, [%r4];
	mul.wide.u32 %rd2, %r1, 4;
	add.s64 %rd3, %rd1, %rd2;
	st.global.b32 [%rd3], %r5;
	ret;
}
.file 1 \"exchange.cu\"
";

pub(crate) const LAUNCH: &str = "grid = [1, 1, 1]
argument = [{ buffer = \"y\" }]

[[buffer]]
name = \"y\"
element = \"u32\"
count = 64
";

/// A folder with a kernel that is right, and one whose barrier comes too late.
fn kernels(name: &str) -> PathBuf {
    let folder = folder(name);
    let barrier = "	bar.sync 0;\n";
    let late = PTX.replace(barrier, "").replace("	ret;", &format!("{barrier}	ret;"));
    for (name, text) in [("right", PTX), ("late", &late)] {
        fs::write(folder.join(format!("{name}.ptx")), text).expect("ours");
        fs::write(folder.join(format!("{name}.launch.toml")), LAUNCH).expect("ours");
    }
    folder
}

fn path(folder: &Path, name: &str) -> String {
    folder.join(name).display().to_string()
}

#[test]
fn findings_have_lines() {
    let folder = kernels("check-lines");
    let right = falchion(&["check", &path(&folder, "right.ptx"), "--schedules", "4"]);
    assert_eq!(right.code, Some(0), "{}{}", right.stdout, right.stderr);
    assert!(right.stdout.contains("2 launches under 8 schedules"), "{}", right.stdout);
    assert!(right.stdout.ends_with("found     0 errors, 0 warnings\n"), "{}", right.stdout);
    let late = falchion(&["check", &path(&folder, "late.launch.toml"), "--schedules", "4"]);
    assert_eq!(late.code, Some(1), "{}{}", late.stdout, late.stderr);
    for words in [
        "late.ptx:18:2: st.shared.b32 [%r3], %r1; (exchange.cu:7)",
        "late.ptx:22:2: ld.shared.b32 %r5, [%r4]; (exchange.cu:9)",
        "by CTA (0, 0, 0), warp",
        "in launch 1",
    ] {
        assert!(late.stdout.contains(words), "no `{words}` in {}", late.stdout);
    }
}

#[test]
fn files_are_written_and_read() {
    let folder = kernels("check-files");
    let late = path(&folder, "late.ptx");
    let [json, sarif, known, trace] =
        ["found.json", "found.sarif", "known.json", "trace.json"].map(|name| path(&folder, name));
    let written = ["--json", &json, "--sarif", &sarif, "--trace", &trace, "--write-baseline", &known];
    let run = falchion(&[&["check", &late, "--schedules", "4"], &written[..]].concat());
    assert_eq!(run.code, Some(0), "the findings are known from now on: {}{}", run.stdout, run.stderr);
    let read = |name: &str| -> serde_json::Value {
        serde_json::from_str(&fs::read_to_string(name).expect("it was written")).expect("JSON")
    };
    let report = &read(&json)["reports"][0];
    let count = report["findings"].as_array().map_or(0, Vec::len);
    assert!(count > 0 && report["schedules"] == 8, "{report}");
    let log = read(&sarif);
    assert_eq!(log["version"], "2.1.0");
    let run = &log["runs"][0];
    let (rules, results) = (&run["tool"]["driver"]["rules"], run["results"].as_array().expect("results"));
    assert_eq!(results.len(), count);
    for result in results {
        let place = result["ruleIndex"].as_u64().expect("a rule") as usize;
        assert_eq!(rules[place]["id"], result["ruleId"]);
        let location = &result["locations"][0]["physicalLocation"];
        assert_eq!(location["artifactLocation"]["uri"], "exchange.cu", "{result}");
        assert!(location["region"]["startLine"].as_u64() >= Some(7), "{result}");
        assert!(
            result["relatedLocations"][0]["physicalLocation"]["artifactLocation"]["uri"]
                .as_str()
                .is_some_and(|uri| uri.ends_with("late.ptx"))
        );
        assert_eq!(result["partialFingerprints"]["falchion/v1"].as_str().map(str::len), Some(16));
    }
    assert!(read(&trace)["traceEvents"].as_array().is_some_and(|events| !events.is_empty()));
    // Lines before the kernel do not make known findings new.
    let moved = format!("// Another line.\n\n{}", fs::read_to_string(&late).expect("ours"));
    fs::write(&late, moved).expect("ours");
    let again = falchion(&["check", &late, "--schedules", "4", "--baseline", &known]);
    assert_eq!(again.code, Some(0), "{}{}", again.stdout, again.stderr);
    assert!(again.stdout.contains("in the baseline"), "{}", again.stdout);
}

#[test]
fn expected_findings_are_not_reported() {
    let folder = kernels("check-expected");
    let late = path(&folder, "late.ptx");
    let all = ["--suppress", "shared-race", "--suppress", "shared-uninitialised"];
    let run = falchion(&[&["check", &late, "--schedules", "2"], &all[..]].concat());
    assert_eq!(run.code, Some(0), "{}{}", run.stdout, run.stderr);
    assert!(run.stdout.contains("suppressed") && !run.stdout.contains("\nerror"), "{}", run.stdout);
    let other = ["--suppress", "shared-race:1-3", "--suppress", "shared-uninitialised:1"];
    let run = falchion(&[&["check", &late, "--schedules", "2"], &other[..]].concat());
    assert_eq!(run.code, Some(1), "other lines: {}{}", run.stdout, run.stderr);
    let description = format!("suppress = [\"shared-race\", \"shared-uninitialised\"] # known\n{LAUNCH}");
    fs::write(folder.join("late.launch.toml"), description).expect("ours");
    let run = falchion(&["check", &late, "--schedules", "2"]);
    assert_eq!(run.code, Some(0), "in the description: {}{}", run.stdout, run.stderr);
}

#[test]
fn what_a_check_finds_is_measured() {
    let folder = kernels("check-mutants");
    let run = falchion(&["check", &path(&folder, "right.ptx"), "--schedules", "4", "--mutate"]);
    assert_eq!(run.code, Some(0), "{}{}", run.stdout, run.stderr);
    assert!(run.stdout.contains("bar.sync deleted"), "{}", run.stdout);
    assert!(
        run.stdout.ends_with("measured  1 of 1 mutants of statements that are needed, 100.0 %\n"),
        "{}",
        run.stdout
    );
}

#[test]
fn rules_are_listed() {
    let run = falchion(&["check", "--rules"]);
    assert_eq!(run.code, Some(0), "{}", run.stderr);
    assert!(run.stdout.lines().count() > 60, "{}", run.stdout);
    assert!(run.stdout.lines().any(|line| line.starts_with("hang ")), "{}", run.stdout);
}

#[test]
fn what_is_not_read_is_refused_with_its_place() {
    let folder = kernels("check-refused");
    let file = |name: &str, text: &str| {
        fs::write(folder.join(name), text).expect("ours");
        path(&folder, name)
    };
    let right = path(&folder, "right.ptx");
    let broken = file("broken.ptx", &PTX.replace("st.shared.b32", "st.nowhere.b32"));
    file("broken.launch.toml", LAUNCH);
    let alone = file("alone.ptx", PTX);
    let key = file("key.toml", &LAUNCH.replace("grid", "grids"));
    let count = file("count.toml", &LAUNCH.replace("argument = [", "argument = [{ null = true }, "));
    let data = file("data.toml", &LAUNCH.replace("count = 64", "count = 64\nfile = \"none.bin\""));
    refused(
        "check",
        &[
            ("nothing", &[], &["at least one FILE was needed"]),
            ("an instruction", &[&broken], &["broken.ptx:18:2", "st.nowhere.b32"]),
            (
                "no description",
                &[&alone],
                &["what", "alone.ptx is launched with is not known", "alone.launch.toml"],
            ),
            ("a key", &[&right, "--launch", &key], &["key.toml", "unknown field `grids`"]),
            (
                "two arguments",
                &[&right, "--launch", &count],
                &["`exchange` has 1 parameters, 2 arguments were given"],
            ),
            ("a file", &[&right, "--launch", &data], &["none.bin"]),
            ("a report over a kernel", &[&right, "--json", &right], &["is read, and would be overwritten"]),
            (
                "two reports",
                &[&right, "--json", "x.json", "--sarif", "x.json"],
                &["x.json would be written twice"],
            ),
            (
                "one launch of two",
                &[&right, &alone, "--launch", &key],
                &["--launch is for one FILE, 2 were given"],
            ),
            ("a rule", &[&right, "--suppress", "races"], &["there is no rule `races`"]),
            ("a baseline", &[&right, "--baseline", &key], &["key.toml"]),
            ("a file that is not there", &["none.ptx"], &["none.ptx"]),
            ("rules of a kernel", &[&right, "--rules"], &["FILE cannot be used with --rules"]),
            (
                "a comparison as findings",
                &[&right, "--against-device", "--sarif", "x"],
                &["--against-device cannot be used with --sarif"],
            ),
            (
                "mutants as findings",
                &[&right, "--mutate", "--sarif", "x"],
                &["--mutate cannot be used with --sarif"],
            ),
        ],
    );
}

/// On a stand-in for the driver, which executes nothing, every bit is compared, and the launch is found wrong.
#[cfg(target_os = "linux")]
#[test]
fn a_device_is_compared_with_the_emulator() {
    let folder = kernels("check-against");
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("kernel/src/driver/stand_in/cuda.rs");
    let mut compile = Command::new(std::env::var_os("RUSTC").unwrap_or_else(|| "rustc".into()));
    compile.args(["--edition=2024", "--crate-type=cdylib", "--crate-name=cuda", "--cap-lints=allow"]);
    compile.arg(source).arg("-o").arg(folder.join("libcuda.so.1"));
    assert!(compile.status().expect("rustc runs").success());
    let run = |library: &Path| {
        let mut run = Command::new(env!("CARGO_BIN_EXE_falchion"));
        run.args(["check", "right.ptx", "--against-device"]).current_dir(&folder);
        run.env("LD_LIBRARY_PATH", library).env("FALCHION_CACHE", "").env_remove("FALCHION_PTXAS");
        let output = run.output().expect("the binary runs");
        let text = [output.stdout, output.stderr].concat();
        (output.status.code(), String::from_utf8_lossy(&text).into_owned())
    };
    let (code, text) = run(&folder);
    assert_eq!(code, Some(1), "{text}");
    for part in [
        "device    Stand-in",
        "element [0] of buffer `y` after `exchange` in launch 1: 4294967295 (0xffffffff) on the device, 63 (0x0000003f)",
        "64 of 64 differ",
        "the device has recorded nothing",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
}
