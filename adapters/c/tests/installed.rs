//! The files of an installation, and the programs of the pages: compiled against a prefix, and run.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A folder as an installation makes it, with a name of its own.
fn installed(name: &str) -> PathBuf {
    let own = Path::new(env!("CARGO_MANIFEST_DIR"));
    let test = std::env::current_exe().expect("a path");
    let libraries = test.parent().expect("a folder");
    let prefix = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    for (from, to) in [
        (own.join("include/falchion.h"), "include/falchion.h"),
        (own.join("include/falchion.hpp"), "include/falchion.hpp"),
        (own.join("falchion.pc"), "lib/pkgconfig/falchion.pc"),
        (own.join("cmake/FalchionConfig.cmake"), "lib/cmake/Falchion/FalchionConfig.cmake"),
        (own.join("cmake/FalchionConfigVersion.cmake"), "lib/cmake/Falchion/FalchionConfigVersion.cmake"),
        (libraries.join("libfalchion_c.so"), "lib/libfalchion_c.so"),
    ] {
        let to = prefix.join(to);
        fs::create_dir_all(to.parent().expect("a folder")).expect("made");
        fs::copy(&from, &to).unwrap_or_else(|error| panic!("{}: {error}", from.display()));
    }
    prefix
}

/// The output of a program that ends well.
fn output(command: &mut Command) -> String {
    let output = command.output().unwrap_or_else(|error| panic!("{command:?}: {error}"));
    let words = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{command:?}: {words}{}", String::from_utf8_lossy(&output.stderr));
    words
}

fn there(program: &str) -> bool {
    let there = Command::new(program).arg("--version").output().is_ok_and(|output| output.status.success());
    if !there {
        eprintln!("skipped: this machine has no {program}");
    }
    there
}

/// Compiles a program against a prefix, and runs it.
fn run(compiler: &[&str], source: &Path, prefix: &Path) -> String {
    let program = prefix.join("program");
    let mut compile = Command::new(compiler[0]);
    compile
        .args(&compiler[1..])
        .args(["-Wall", "-Wextra", "-Wshadow", "-Werror"])
        .arg(source)
        .arg("-o")
        .arg(&program);
    compile.arg("-I").arg(prefix.join("include")).arg("-L").arg(prefix.join("lib")).arg("-lfalchion_c");
    output(&mut compile);
    output(Command::new(&program).env("LD_LIBRARY_PATH", prefix.join("lib")))
}

#[test]
fn the_header_for_cpp_frees_and_throws() {
    if there("c++") {
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("examples/fused.cpp");
        let words = run(&["c++", "-std=c++11"], &source, &installed("cpp"));
        assert!(
            words.starts_with("refused: epilogue: `)` was needed") && words.ends_with("verified\n"),
            "{words}"
        );
    }
}

#[test]
fn pkg_config_finds_it() {
    if there("pkg-config") {
        let prefix = installed("pkg-config");
        let mut ask = Command::new("pkg-config");
        ask.args(["--cflags", "--libs", "falchion"]).env("PKG_CONFIG_PATH", prefix.join("lib/pkgconfig"));
        let words = output(&mut ask);
        assert!(words.contains("-lfalchion_c") && words.contains("/include"), "{words}");
    }
}

#[test]
fn cmake_finds_it() {
    if there("cmake") && there("c++") {
        let prefix = installed("cmake");
        let (own, source) = (Path::new(env!("CARGO_MANIFEST_DIR")), prefix.join("source"));
        fs::create_dir_all(&source).expect("made");
        let program = own.join("examples/fused.cpp");
        // Other versions do not do.
        let text = format!(
            "cmake_minimum_required(VERSION 3.10)\nproject(fused CXX)\n\
             foreach(other 0.0.9 0.1.99 0.2 1.0)\nfind_package(Falchion ${{other}} QUIET)\n\
             if(Falchion_FOUND)\nmessage(FATAL_ERROR \"found for ${{other}}\")\nendif()\nendforeach()\n\
             find_package(Falchion {version} EXACT REQUIRED)\nfind_package(Falchion 0.1 REQUIRED)\n\
             message(STATUS \"of ${{Falchion_VERSION}}\")\n\
             add_executable(fused {})\ntarget_link_libraries(fused falchion::falchion)\n",
            program.display(),
            version = env!("CARGO_PKG_VERSION"),
        );
        fs::write(source.join("CMakeLists.txt"), text).expect("written");
        let built = source.join("built");
        let find = format!("-DCMAKE_PREFIX_PATH={}", prefix.display());
        let words = output(Command::new("cmake").arg("-S").arg(&source).arg("-B").arg(&built).arg(find));
        assert!(words.contains(concat!("of ", env!("CARGO_PKG_VERSION"))), "{words}");
        output(Command::new("cmake").arg("--build").arg(&built));
        assert!(output(&mut Command::new(built.join("fused"))).ends_with("verified\n"));
    }
}

#[test]
fn the_files_have_the_librarys_version() {
    let version = env!("CARGO_PKG_VERSION");
    for (text, line) in [
        (include_str!("../falchion.pc"), format!("Version: {version}")),
        (include_str!("../cmake/FalchionConfigVersion.cmake"), format!("set(PACKAGE_VERSION {version})")),
    ] {
        assert!(text.lines().any(|found| found == line), "{line}");
    }
}

/// A process that runs for long, and one that forks.
#[test]
#[cfg(target_os = "linux")]
fn memory_is_given_back_and_forks_multiply() {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/process.c");
    let words = run(&["cc", "-std=gnu99"], &source, &installed("process"));
    let grown: Vec<i64> = words.split_whitespace().map(|word| word.parse().expect("a number")).collect();
    println!("{grown:?} kB more");
    // A kernel's program has some hundred kB, and what was considered for some epilogues 3 MB each.
    assert!(grown.len() == 2 && grown.iter().all(|&kilobytes| kilobytes < 60_000), "{grown:?} kB more");
}

/// The page's first program prints what the page says.
#[test]
fn the_first_program_is_right() {
    let page = include_str!("../README.md");
    let block = |text: &'static str, language: &str| {
        let begin = format!("```{language}\n");
        let (_, rest) = text.split_once(begin.as_str()).expect("a block");
        rest.split_once("```").expect("its end")
    };
    let (program, rest) = block(page, "c");
    let (expected, _) = block(rest, "text");
    let prefix = installed("front");
    fs::write(prefix.join("front.c"), program).expect("written");
    assert_eq!(run(&["cc", "-std=c99"], &prefix.join("front.c"), &prefix), expected);
}
