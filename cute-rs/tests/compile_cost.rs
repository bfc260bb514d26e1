//! The cost of 200 static layouts in `cargo check`. The limit is the time in which the compiler counts to two
//! million: about two seconds on an idle machine.
//!
//! `cargo test -p cute-rs --test compile_cost -- --ignored --nocapture` writes a crate under the build's
//! temporary folder. It checks the crate with the layouts, without them, and with the counting alone, one
//! after the other, and compares the CPU times. If other programs run at the same time, all three take
//! longer.

use std::fmt::Write as _;
use std::path::Path;
use std::process::Command;
use std::time::{Duration, Instant};

const LAYOUTS: u64 = 200;

/// The number to which the compiler counts.
const COUNTED: u64 = 2_000_000;

/// The source of the yardstick: a constant that the compiler evaluates like layouts, but without code of this
/// crate.
fn counting(to: u64) -> String {
    format!(
        "#![allow(long_running_const_eval)]\n\
         const fn count(to: u64) -> u64 {{ let mut i = 0; while i < to {{ i += 1; }} i }}\n\
         const _: u64 = count({to});\n"
    )
}

/// The source with the layouts: different types of several operations each, such as tiles of matrices,
/// swizzled tiles, compositions, products and inverses.
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

/// The CPU time of this process's children, in the ticks of the system (usually hundredths of a second). If
/// the system does not report it, the time since `start` in hundredths of a second.
fn spent(start: Instant) -> f64 {
    let stat = std::fs::read_to_string("/proc/self/stat").unwrap_or_default();
    // After the program's name, which may contain any characters, come the state and numbers. Fields 13 and
    // 14, counted from the state as 0, are the children's times.
    let fields: Vec<&str> = stat.rsplit(')').next().unwrap_or_default().split_whitespace().collect();
    let ticks = |i: usize| fields.get(i).and_then(|field| field.parse::<f64>().ok());
    match (ticks(13), ticks(14)) {
        (Some(user), Some(system)) => user + system,
        (None, _) | (_, None) => start.elapsed().as_secs_f64() * 100.0,
    }
}

/// The cost of one `cargo check` of the crate with this source, in the unit of [`spent`].
fn check(folder: &Path, source: &str, run: u32) -> f64 {
    // Cargo recognises a changed file by its modification time.
    std::thread::sleep(Duration::from_millis(1100));
    std::fs::write(folder.join("src/lib.rs"), format!("{source}// Run {run}.\n")).expect("a writable folder");
    let start = Instant::now();
    let before = spent(start);
    let cargo = Command::new(env!("CARGO"))
        .args(["check", "--quiet", "--offline"])
        .env("CARGO_INCREMENTAL", "0")
        .current_dir(folder)
        .status();
    assert!(cargo.expect("cargo runs").success(), "the source is legal");
    spent(start) - before
}

/// The smallest cost of each source in three runs.
fn least<const N: usize>(folder: &Path, sources: &[String; N]) -> [f64; N] {
    check(folder, "", 0);
    let mut least = [f64::INFINITY; N];
    for run in 1..=3 {
        for (least, source) in least.iter_mut().zip(sources) {
            *least = least.min(check(folder, source, run));
        }
    }
    least
}

#[test]
#[ignore = "measures the compiler, which takes a while: `cargo xtask test --long`"]
fn two_hundred_static_layouts() {
    if std::env::var_os("FALCHION_LONG").is_none() {
        println!("left out of short runs: `cargo xtask test --long`");
        return;
    }
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("compile-cost");
    std::fs::create_dir_all(folder.join("src")).expect("a writable folder");
    let manifest = format!(
        "[package]\nname = \"compile-cost\"\nedition = \"2024\"\n\n[workspace]\n\n[dependencies]\ncute-rs = {{ path = {:?} }}\n",
        env!("CARGO_MANIFEST_DIR")
    );
    // The lock file of the workspace pins the dependencies, so that the offline check finds them.
    std::fs::write(folder.join("Cargo.toml"), manifest).expect("a writable folder");
    let lock = Path::new(env!("CARGO_MANIFEST_DIR")).join("../Cargo.lock");
    let _ = std::fs::copy(lock, folder.join("Cargo.lock"));
    let sources = [source(0), source(LAYOUTS), counting(0), counting(COUNTED)];
    let [without, with, nothing, counted] = least(&folder, &sources);
    let (added, measure) = (with - without, counted - nothing);
    println!("{LAYOUTS} layouts add {added:.0}, counting to {COUNTED} {measure:.0} hundredths of a second");
    assert!(measure > 10.0, "counting to {COUNTED} took {measure}: too little to measure by");
    assert!(
        added < measure,
        "{LAYOUTS} static layouts add {added}, more than the {measure} of counting to {COUNTED}"
    );
}
