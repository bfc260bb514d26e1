//! Broken texts: whatever stands in a text, reading it ends with a program or with an error.
//!
//! `READ_FUZZ_SECONDS=1800 cargo test --profile ci -p falchion-ptx broken_texts` goes on for half an hour. `READ_FUZZ_FILES` may name more
//! texts to break, with colons between them.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::{Duration, Instant};

use super::calls;
use super::lowered;
use crate::module_text;
use crate::read::lex::tokens;
use crate::read::{Launch, Module};

/// A sequence of numbers that a seed determines.
struct Numbers(u64);

impl Numbers {
    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    fn below(&mut self, bound: usize) -> usize {
        (self.next() % bound.max(1) as u64) as usize
    }
}

/// Words that mean something in places where they do not stand.
const WORDS: [&str; 40] = [
    "{",
    "}",
    "[",
    "]",
    "(",
    ")",
    ";",
    ",",
    ":",
    "|",
    "!",
    "@",
    "+",
    "-",
    "_",
    "0",
    "1",
    "-1",
    "0xFFFFFFFFFFFFFFFF",
    "0f7FC00000",
    "0d7FF0000000000000",
    "1e400",
    ".reg",
    ".param",
    ".shared",
    ".local",
    ".b8",
    ".b64",
    ".f32",
    ".pred",
    ".v4",
    ".sync",
    ".entry",
    ".func",
    "%r1",
    "%p1",
    "%d1",
    "ret",
    "call",
    "\"",
];

/// A text with some of its bytes or words changed.
fn broken(text: &str, all: &[&str], numbers: &mut Numbers) -> String {
    let mut bytes = text.as_bytes().to_vec();
    for _ in 0..=numbers.below(2) {
        if bytes.is_empty() {
            break;
        }
        let text = String::from_utf8_lossy(&bytes).into_owned();
        let words = tokens(&text).unwrap_or_default();
        let at = numbers.below(bytes.len());
        if words.len() < 2 || numbers.below(3) == 0 {
            match numbers.below(5) {
                0 => bytes[at] ^= 1 << numbers.below(8),
                1 => _ = bytes.remove(at),
                2 => bytes.insert(at, (numbers.next() & 0x7F) as u8),
                3 => bytes.truncate(at),
                _ => {
                    let end = (at + numbers.below(200)).min(bytes.len());
                    let part = bytes[at..end].to_vec();
                    let to = numbers.below(bytes.len());
                    bytes.splice(to..to, part);
                }
            }
            continue;
        }
        let [first, second] =
            [numbers.below(words.len() - 1), numbers.below(words.len() - 1)].map(|index| words[index]);
        let range = first.at.0..first.at.0 + first.text.len();
        let other = match numbers.below(4) {
            0 => WORDS[numbers.below(WORDS.len())].to_owned(),
            1 => {
                let other = all[numbers.below(all.len())];
                let words = tokens(other).unwrap_or_default();
                words.get(numbers.below(words.len())).map_or_else(String::new, |word| word.text.to_owned())
            }
            2 => String::new(),
            _ => second.text.to_owned(),
        };
        bytes = [&text.as_bytes()[..range.start], other.as_bytes(), &text.as_bytes()[range.end..]].concat();
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

fn read(text: &str) -> usize {
    let Ok(module) = Module::parse(text, "fuzz.ptx") else { return 0 };
    let mut legal = 0;
    for name in module.entries() {
        let launch = Launch { threads: Some([64, 1, 1]), ..Launch::default() };
        let read = module.entry(name, &Launch::default()).or_else(|_| module.entry(name, &launch));
        if let Ok(Ok(verified)) = read.map(crate::Function::verify) {
            legal += usize::from(!module_text(&verified).is_empty());
        }
    }
    legal
}

#[test]
fn broken_texts() {
    let seconds = std::env::var("READ_FUZZ_SECONDS").ok().and_then(|seconds| seconds.parse().ok());
    let until = seconds.map(|seconds| Instant::now() + Duration::from_secs(seconds));
    let mut texts = [lowered::texts(), calls::texts()].concat();
    for file in
        std::env::var("READ_FUZZ_FILES").unwrap_or_default().split(':').filter(|file| !file.is_empty())
    {
        texts.push(std::fs::read_to_string(file).expect("a file"));
    }
    let all: Vec<&str> = texts.iter().map(String::as_str).collect();
    let mut numbers = Numbers(0x9E37_79B9_7F4A_7C15);
    let (mut round, mut legal) = (0u64, 0);
    while until.map_or(round < 6000, |until| Instant::now() < until) {
        let text = broken(all[numbers.below(all.len())], &all, &mut numbers);
        match catch_unwind(AssertUnwindSafe(|| read(&text))) {
            Ok(programs) => legal += programs,
            Err(_) => panic!("round {round}, after {legal} programs:\n{text}"),
        }
        round += 1;
    }
    println!("{round} texts, {legal} programs");
    // Most are refused, but not all: the changes reach what comes after the syntax.
    assert!(legal > 100, "{legal} programs of {round} texts");
}
