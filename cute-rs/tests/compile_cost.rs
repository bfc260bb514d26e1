//! What 200 static layouts add to `cargo check`: at most two seconds.
//!
//! `cargo test -p cute-rs --test compile_cost -- --ignored --nocapture` writes a crate under the build's temporary folder,
//! checks it with and without the layouts, and prints the difference.

use std::fmt::Write as _;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

const LAYOUTS: u64 = 200;

/// Different types, each of several operations: tiles of matrices, swizzled tiles, compositions, copies, inverses.
fn source(layouts: u64) -> String {
    let mut text = String::from("#![allow(unused_imports)]\n");
    text.push_str("use cute_rs::{ComposedLayout, Layout, StaticComposed, StaticLayout};\n");
    text.push_str("use cute_rs::{typenum::*, types::*};\n");
    for i in 0..layouts {
        let (n, k) = (8 * (1 + i % 16), 8 * (1 + i / 16));
        let expression = match i % 5 {
            0 => format!("ZippedDivide<RowMajor<(U{n}, (U8, U{k}))>, (U8, Strided<U4, U2>)>"),
            1 => format!("Compose<ColumnMajor<(U{n}, U{k})>, RightInverse<RowMajor<(U{k}, U{n})>>>"),
            2 => format!("TileToShape<RowMajor<(U8, U8)>, (U{n}, U{k}), (U1, U0)>"),
            3 => format!("Coalesce<BlockedProduct<RowMajor<(U2, U4)>, ColumnMajor<(U{n}, U{k})>>>"),
            _ => {
                let tile = format!(
                    "Swizzled<Sw<U3, U3, U3>, TileToShape<RowMajor<(U8, U64)>, (U{n}, U64), (U0, U1)>>"
                );
                let slices = format!("Slice<TiledDivide<{tile}, (U8, U16)>, (Keep, U0, U{})>", i % 4);
                writeln!(text, "const _: ComposedLayout = <{slices}>::COMPOSED;").expect("a string");
                continue;
            }
        };
        writeln!(text, "const _: Layout = <{expression}>::LAYOUT;").expect("a string");
    }
    text
}

/// The fastest of three checks of the crate with this source.
fn check(folder: &Path, source: &str) -> Duration {
    let run = |i: u32| {
        // Cargo tells a changed file by its time.
        std::thread::sleep(Duration::from_millis(1100));
        std::fs::write(folder.join("src/lib.rs"), format!("{source}// Run {i}.\n"))
            .expect("a writable folder");
        let start = Instant::now();
        let cargo = Command::new(env!("CARGO"))
            .args(["check", "--quiet", "--offline"])
            .env("CARGO_INCREMENTAL", "0")
            .current_dir(folder)
            .status();
        assert!(cargo.expect("cargo runs").success(), "the layouts are legal");
        start.elapsed()
    };
    run(0);
    (1..=3).map(run).min().expect("three runs")
}

#[test]
#[ignore = "measures the compiler, which takes a while"]
fn two_hundred_static_layouts() {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("compile-cost");
    std::fs::create_dir_all(folder.join("src")).expect("a writable folder");
    let manifest = format!(
        "[package]\nname = \"compile-cost\"\nedition = \"2024\"\n\n[workspace]\n\n[dependencies]\ncute-rs = {{ path = {:?} }}\n",
        env!("CARGO_MANIFEST_DIR")
    );
    // The crate needs the workspace's registry, which is in the lock file.
    std::fs::write(folder.join("Cargo.toml"), manifest).expect("a writable folder");
    let lock = Path::new(env!("CARGO_MANIFEST_DIR")).join("../Cargo.lock");
    let _ = std::fs::copy(lock, folder.join("Cargo.lock"));
    let (without, with) = (check(&folder, &source(0)), check(&folder, &source(LAYOUTS)));
    let added = with.saturating_sub(without);
    println!("{LAYOUTS} layouts: {with:?}, none: {without:?}, added {added:?}");
    assert!(added < Duration::from_secs(2), "{LAYOUTS} static layouts add {added:?}");
}
