//! Random calls on memory next to pages that nobody can access: in one run each array ends where such a page begins, in another it begins where
//! one ends. A call is right, bit by bit or within a bound, and nothing else has changed; or, if something in it does not fit, refused with the
//! name of what it was.
//!
//! The seed is new in each run, and printed: `SEED=5 COUNT=1000` draws another one's cases, and more of them.

#![cfg(target_os = "linux")]

#[path = "guarded/attention.rs"]
mod attention;
#[path = "guarded/gemm.rs"]
mod gemm;
#[path = "guarded/number.rs"]
mod number;
#[path = "guarded/pages.rs"]
mod pages;
#[path = "guarded/spoil.rs"]
mod spoil;
mod structures;

use core::ffi::CStr;
use std::io::Write;
use std::os::unix::process::ExitStatusExt;
use std::process::Command;
use std::time::{SystemTime, UNIX_EPOCH};

use structures::{
    Arguments, Description, FAULT, Gemm, INVALID, NO_KERNEL, OK, Status, falchion_gemm_create,
    falchion_last_error,
};

use pages::{Random, Side};

/// A structure of zeros.
fn zeros<T: Copy>() -> T {
    // SAFETY: the structures of the interface may be zero.
    unsafe { core::mem::zeroed() }
}

fn last() -> String {
    // SAFETY: the text lives until the thread's next failure.
    unsafe { CStr::from_ptr(falchion_last_error()) }.to_string_lossy().into_owned()
}

fn number(name: &str) -> Option<u64> {
    std::env::var(name).ok()?.parse().ok()
}

/// The seed, which is printed even if a page ends the process, and the number of cases.
fn drawn(what: &str, count: u64) -> (u64, u64) {
    let now = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |since| since.as_nanos() as u64 % 1_000_000_000);
    let (seed, count) = (number("SEED").unwrap_or(now), number("COUNT").unwrap_or(count));
    // Not captured.
    let _ = writeln!(std::io::stderr(), "{count} calls of {what}: SEED={seed}");
    (seed, count)
}

/// What became of calls.
#[derive(Debug, Default)]
struct Found {
    right: u64,
    /// Calls that fit, and that no kernel can compute.
    impossible: u64,
    refused: u64,
}

impl Found {
    /// A call that fits: right, or one that no kernel can compute.
    fn fits(
        &mut self,
        (status, message): (Status, String),
        words: &str,
        wrong: impl FnOnce() -> Option<String>,
    ) {
        match status {
            OK => {
                self.right += 1;
                let wrong = wrong();
                assert!(wrong.is_none(), "{words}: {}", wrong.unwrap_or_default());
            }
            NO_KERNEL if !message.is_empty() => self.impossible += 1,
            FAULT => panic!("{words}: a fault: {message}"),
            _ => panic!("{words}: {status}, {message}"),
        }
    }

    /// A call that does not fit: refused, with one of the words.
    fn refused(&mut self, (status, message): (Status, String), words: &str, any: &[&str]) {
        assert!([INVALID, NO_KERNEL].contains(&status), "{words}, {any:?}: status {status}, {message}");
        match any.iter().any(|of| message.contains(of)) {
            true => self.refused += 1,
            // There was none before something was spoiled.
            false if status == NO_KERNEL => self.impossible += 1,
            false => panic!("{words}: none of {any:?} in: {message}"),
        }
    }

    fn close(&self, count: u64) {
        println!("{self:?}");
        assert!(self.right * 2 > count && self.refused * 5 > count, "of {count}: {self:?}");
    }
}

#[test]
fn gemms_are_right_or_refused() {
    let (seed, count) = drawn("GEMM", 200);
    let mut found = Found::default();
    for i in 0..count {
        let mut random = Random(seed.wrapping_add(i << 32));
        let mut case = gemm::Case::draw(&mut random, None);
        let spoiled = if i % 3 == 2 { spoil::gemm(&mut case, &mut random) } else { None };
        let words = format!("call {i} of SEED={seed}: {}", case.words);
        // A call that damages memory leaves nothing else behind.
        println!("{words}, spoiled: {spoiled:?}");
        match spoiled {
            None => found.fits(case.run(), &words, || case.wrong()),
            Some(any) => found.refused(case.run(), &words, any),
        }
    }
    found.close(count);
}

#[test]
fn attention_is_right_or_refused() {
    let (seed, count) = drawn("attention", 90);
    let mut found = Found::default();
    for i in 0..count {
        let mut random = Random(seed.wrapping_add(i << 32));
        let mut case = attention::Case::draw(&mut random, None);
        let spoiled = if i % 3 == 2 { spoil::attention(&mut case, &mut random) } else { None };
        let words = format!("call {i} of SEED={seed}: {}", case.words);
        // A call that damages memory leaves nothing else behind.
        println!("{words}, spoiled: {spoiled:?}");
        match spoiled {
            None => found.fits(case.run(), &words, || case.wrong()),
            Some(any) => found.refused(case.run(), &words, any),
        }
    }
    found.close(count);
}

/// The largest numbers as extents and counts of every kind and form: nothing wraps, and nobody takes them.
#[test]
fn extents_beyond_the_limit_are_refused() {
    for (types, form) in gemm::KINDS.iter().flat_map(|kind| [0, 1, 2, 3, 4].map(|form| (kind.types, form))) {
        for (extent, at) in
            [u32::MAX, 1 << 31].into_iter().flat_map(|extent| [0, 1, 2, 3, 4].map(|at| (extent, at)))
        {
            let room = if form == 2 { 128 } else { 0 };
            let mut numbers = [128, 128, 128, 2, room];
            numbers[at] = extent;
            let [m, n, k, batch, room] = numbers;
            let (size, args_size) = (size_of::<Description>(), size_of::<Arguments>());
            let sizes = Description { size, args_size, m, n, k, batch, form, room, ..zeros() };
            let description = Description { types: types.as_ptr(), alignment: 16, ..sizes };
            let mut gemm: *mut Gemm = core::ptr::null_mut();
            // SAFETY: the description's pointers are valid or null.
            let status = unsafe { falchion_gemm_create(&description, &mut gemm) };
            let words = format!("{types:?} form {form} {numbers:?}: {status}, {}", last());
            assert!([INVALID, NO_KERNEL].contains(&status), "{words}");
            assert!(form > 0 || at > 2 || last().contains(&extent.to_string()), "{words}");
        }
    }
}

/// The arrays of which an element is missing, one after the other, in the test of this test.
const PLANTED: [&str; 8] = ["a", "b", "c", "d", "q", "o", "log_sum_exp", "d_k"];

/// An element that is missing ends the process: the last one of an array, and the first one.
#[test]
fn a_planted_overrun_is_found() {
    if let Ok(planted) = std::env::var("PLANTED") {
        let (name, side) = planted.split_once(' ').expect("an array and a side");
        let (name, side) = (
            PLANTED.into_iter().find(|of| *of == name).expect("an array"),
            if side == "behind" { Side::Behind } else { Side::Before },
        );
        let (status, message) = match name.len() {
            1 if "abcd".contains(name) => gemm::Case::draw(&mut Random(1), Some((name, side))).run(),
            _ => attention::Case::draw(&mut Random(1), Some((name, side))).run(),
        };
        panic!("{planted}: status {status}, {message}");
    }
    let program = std::env::current_exe().expect("a path");
    for (name, side) in PLANTED.into_iter().flat_map(|name| [(name, "behind"), (name, "before")]) {
        let mut child = Command::new(&program);
        child.args(["--exact", "a_planted_overrun_is_found"]).env("PLANTED", format!("{name} {side}"));
        let ended = child.output().expect("this program runs");
        // SIGSEGV.
        assert_eq!(
            ended.status.signal(),
            Some(11),
            "{name} {side}: {:?}, {}",
            ended.status,
            String::from_utf8_lossy(&ended.stdout)
        );
    }
}
