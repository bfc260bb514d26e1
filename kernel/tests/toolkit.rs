//! No build looks for a CUDA toolkit. The library is the same whatever is installed.

#[cfg(unix)]
#[path = "support/skipped.rs"]
mod skipped;

use std::path::{Path, PathBuf};
use std::process::Command;

fn cargo(arguments: &[&str]) -> Command {
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command.current_dir(env!("CARGO_MANIFEST_DIR")).args(arguments).args(["--offline", "--locked"]);
    command
}

/// The host's target triple.
fn host() -> String {
    let output = Command::new("rustc").arg("-vV").output().expect("rustc runs");
    let version = String::from_utf8(output.stdout).expect("text");
    version.lines().find_map(|line| line.strip_prefix("host: ")).expect("a host").to_owned()
}

/// A crate that looks for a toolkit does so in its build script. No build script of the default features
/// does.
#[test]
fn no_build_script_looks_for_a_toolkit() {
    let tree = ["tree", "-p", "falchion", "-e", "normal,build", "--prefix", "none", "--format", "{p}"];
    let output = cargo(&tree).output().expect("cargo runs");
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let built = String::from_utf8(output.stdout).expect("text");
    assert!(built.contains("falchion-kernel") && built.contains("nvml-wrapper"), "{built}");
    // Only the host's packages: a fresh machine has not downloaded those of other systems.
    let metadata = ["metadata", "--format-version", "1", "--filter-platform", &host()];
    let packages = cargo(&metadata).output().expect("cargo runs");
    let packages: serde_json::Value = serde_json::from_slice(&packages.stdout).expect("JSON");
    let mut scripts = 0;
    for package in packages["packages"].as_array().expect("packages") {
        let [name, version] = ["name", "version"].map(|key| package[key].as_str().expect("text"));
        if !built.lines().any(|line| line.starts_with(&format!("{name} v{version}"))) {
            continue;
        }
        for target in package["targets"].as_array().expect("targets") {
            if target["kind"][0] == "custom-build" {
                let script = target["src_path"].as_str().expect("text");
                let text = std::fs::read_to_string(script).expect("its text");
                let looks = ["nvcc", "CUDA_HOME", "CUDA_PATH"].iter().find(|word| text.contains(**word));
                assert_eq!(looks, None, "{name}'s {script}");
                scripts += 1;
            }
        }
    }
    assert!(scripts > 3, "{scripts} build scripts were read");
    assert!(!built.contains("cudarc v"), "only the feature `cudarc` depends on it");
}

/// Toolkits older and newer than any known, and one with a senseless version.
#[cfg(unix)]
#[test]
#[ignore = "checks the library and all that it depends on once more, which takes minutes: `cargo xtask test --long`"]
fn made_up_toolkits_change_nothing() {
    if std::env::var_os("FALCHION_LONG").is_none() {
        return skipped::skipped("FALCHION_LONG");
    }
    use std::os::unix::fs::PermissionsExt;
    let temporary = Path::new(env!("CARGO_TARGET_TMPDIR"));
    let asked = temporary.join("nvcc-was-asked");
    let _ = std::fs::remove_file(&asked);
    for (i, says) in [
        "Cuda compilation tools, release 11.8, V11.8.89",
        "Cuda compilation tools, release 99.0, V99.0.1",
        "no version",
    ]
    .into_iter()
    .enumerate()
    {
        let home: PathBuf = temporary.join(format!("toolkit-{i}"));
        std::fs::create_dir_all(home.join("bin")).expect("a writable folder");
        let nvcc = home.join("bin/nvcc");
        let text = format!("#!/bin/sh\ntouch {}\nprintf 'a\\nb\\nc\\n{says}\\n'\n", asked.display());
        std::fs::write(&nvcc, text).expect("a writable folder");
        std::fs::set_permissions(&nvcc, std::fs::Permissions::from_mode(0o755)).expect("it is ours");
        let path = std::env::var("PATH").unwrap_or_default();
        let mut check = cargo(&["check", "-p", "falchion-peers"]);
        check.arg("--target-dir").arg(temporary.join("with-toolkits"));
        check.env("PATH", format!("{}:{path}", home.join("bin").display()));
        for variable in ["CUDA_HOME", "CUDA_PATH", "CUDA_ROOT", "CUDA_TOOLKIT_ROOT_DIR"] {
            check.env(variable, &home);
        }
        let output = check.output().expect("cargo runs");
        assert!(output.status.success(), "{says}: {}", String::from_utf8_lossy(&output.stderr));
        assert!(!asked.exists(), "{says}: a build asked nvcc");
    }
}
