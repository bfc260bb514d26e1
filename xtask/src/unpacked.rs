//! `cargo xtask package`: the published packages as their users get them. They are packed, unpacked outside the
//! repository, and built there: the pages as docs.rs builds them, and the command line, which has to be as fast as
//! the repository's.

use std::env;
use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

use crate::cargo;
use crate::error::Error;
use crate::msrv::list;
use crate::package::WRONG;

/// Settings of the repository that no user has.
const OF_THE_REPOSITORY: &str = "CUDARC_CUDA_VERSION";

/// What the two command lines run.
const RUN: [&str; 9] = ["gemm", "--engine", "emulator", "--m", "512", "--n", "512", "--k", "512"];

/// How many times longer the unpacked command line may take. Unoptimised, its emulator takes 19 times longer.
const SLOWER: u32 = 2;

/// Packs, unpacks and builds.
pub(crate) fn run() -> Result<(), Error> {
    let metadata = cargo::metadata(&["--no-deps"])?;
    let packages: Vec<&Value> =
        list(&metadata, "packages")?.iter().filter(|package| package["publish"].is_null()).collect();
    let target = cargo::target_directory()?;
    let folder = env::temp_dir().join(format!("falchion-packages-{}", std::process::id()));
    let outcome = unpack(&packages, &target, &folder).and_then(|patches| {
        for package in &packages {
            pages(package, &patches, &target, &folder)?;
        }
        command_line(&packages, &patches, &target, &folder)
    });
    let removed = fs::remove_dir_all(&folder).map_err(|source| Error::CannotWrite { path: folder, source });
    outcome.and(removed)
}

/// Packs the packages and unpacks them into a folder. Returns the arguments that make cargo take each from there.
fn unpack(packages: &[&Value], target: &Path, folder: &Path) -> Result<Vec<String>, Error> {
    let names: Vec<&str> = packages.iter().filter_map(|package| package["name"].as_str()).collect();
    let chosen = names.iter().flat_map(|name| ["--package", name]);
    let arguments: Vec<&str> =
        ["package", "--no-verify", "--allow-dirty", "--quiet"].into_iter().chain(chosen).collect();
    cargo::run(&arguments, |_| {})?;
    fs::create_dir_all(folder).map_err(|source| Error::CannotWrite { path: folder.to_owned(), source })?;
    let mut patches = Vec::new();
    for package in packages {
        let unpacked = folder.join(stem(package));
        let packed = target.join("package").join(format!("{}.crate", stem(package)));
        let mut tar = Command::new("tar");
        tar.arg("xzf").arg(packed).arg("-C").arg(folder);
        cargo::finish("tar xzf".to_owned(), &mut tar)?;
        let name = package["name"].as_str().unwrap_or_default();
        patches.push("--config".to_owned());
        patches.push(format!("patch.crates-io.{name}.path={:?}", unpacked.display().to_string()));
    }
    Ok(patches)
}

/// Builds a package's pages as docs.rs does: with the features that its manifest names, and warnings as errors.
fn pages(package: &Value, patches: &[String], target: &Path, folder: &Path) -> Result<(), Error> {
    let docs = &package["metadata"]["docs"]["rs"];
    let features = docs["features"].as_array().into_iter().flatten().filter_map(Value::as_str);
    let features = features.collect::<Vec<_>>().join(",");
    let mut arguments = vec!["doc", "--quiet", "--lib", "--no-deps"];
    if docs["all-features"] == true {
        arguments.push("--all-features");
    }
    arguments.extend(["--features", &features]);
    arguments.extend(patches.iter().map(String::as_str));
    cargo::run(&arguments, |command| {
        command.current_dir(folder.join(stem(package))).env_remove(OF_THE_REPOSITORY);
        command.env("DOCS_RS", "1").env("RUSTDOCFLAGS", "-D warnings --cfg docsrs");
        command.env("CARGO_TARGET_DIR", target.join("unpacked"));
    })
}

/// Builds the command line from the unpacked packages and compares its emulator's time with the repository's.
fn command_line(packages: &[&Value], patches: &[String], target: &Path, folder: &Path) -> Result<(), Error> {
    let of_the_program = packages.iter().find(|package| package["name"] == "falchion");
    let unpacked_in = folder.join(of_the_program.map(|package| stem(package)).unwrap_or_default());
    let build = ["build", "--quiet", "--release", "--bin", "falchion"];
    cargo::run(&build, |_| {})?;
    let unpacked: Vec<&str> = build.into_iter().chain(patches.iter().map(String::as_str)).collect();
    cargo::run(&unpacked, |command| {
        command.current_dir(&unpacked_in).env_remove(OF_THE_REPOSITORY);
        command.env("CARGO_TARGET_DIR", target.join("unpacked"));
    })?;
    let programs = [target.join("release/falchion"), target.join("unpacked/release/falchion")];
    let mut best = [Duration::MAX; 2];
    for _ in 0..3 {
        for (best, program) in best.iter_mut().zip(&programs) {
            *best = (*best).min(time(program)?);
        }
    }
    let [here, there] = best;
    let shown = format!("`falchion {}`: {here:.2?} here, {there:.2?} from unpacked packages", RUN.join(" "));
    eprintln!("\nxtask: {shown}");
    let slow = (there > here * SLOWER).then(|| {
        format!(
            "{shown}, at most {SLOWER} times longer was wanted: `[profile.release.package]` of the root Cargo.toml must \
             name each package"
        )
    });
    Error::if_any(slow.into_iter().collect(), WRONG)
}

fn time(program: &Path) -> Result<Duration, Error> {
    let begin = Instant::now();
    cargo::finish("falchion gemm".to_owned(), Command::new(program).args(RUN).stdout(Stdio::null()))?;
    Ok(begin.elapsed())
}

/// A package's name and version, as its file and its folder are called.
fn stem(package: &Value) -> String {
    let word = |key: &str| package[key].as_str().unwrap_or_default();
    format!("{}-{}", word("name"), word("version"))
}
