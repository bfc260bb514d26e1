//! A check that printer and reader agree on a program.

use super::{Launch, Module};
use crate::print::module_text;
use crate::verify::Verified;

/// Reads what the printer writes of a program, and prints that again: the two texts must be the same, without comments, labels that no
/// branch names, and the way in which integers are written.
///
/// ```
/// let entry = ptx::Entry { name: "k".into(), target: ptx::Target::Sm90a, threads: 32, shared_bytes: 64, cluster: [1, 1, 1] };
/// let program = ptx::Function::build(entry, |f| f.repeat(f.special(ptx::Special::CtaX), |_| f.warp_sync())).verify()?;
/// assert_eq!(ptx::read::agree(&program), Ok(()));
/// # Ok::<(), ptx::VerifyError>(())
/// ```
///
/// # Errors
/// The text is not read, it becomes no legal program, or the first line in which the texts differ.
pub fn agree(program: &Verified) -> Result<(), String> {
    let text = module_text(program);
    let read = || {
        let module = Module::parse(&text, "printed.ptx")?;
        module.entry(&program.name, &Launch { shared_bytes: program.shared_bytes, ..Launch::default() })
    };
    let again = read().map_err(|error| format!("{error}\n{text}"))?;
    let shape = (again.block, again.cluster, again.static_shared, again.shared_bytes);
    if shape != (program.block, program.cluster, program.static_shared, program.shared_bytes) {
        return Err(format!("the program that is read has another shape: {shape:?}\n{text}"));
    }
    let again = again.verify().map_err(|error| format!("{error}\n{text}"))?;
    let (first, second) = (lines(&text), lines(&module_text(&again)));
    let differs = first.iter().zip(&second).find(|(first, second)| first != second);
    match differs {
        Some((first, second)) => Err(format!("`{first}` is read as `{second}`\n{text}")),
        None if first.len() != second.len() => {
            Err(format!("{} lines are read as {}\n{text}", first.len(), second.len()))
        }
        None => Ok(()),
    }
}

/// The lines of a text without comments and labels that no branch names, where integers are decimal.
fn lines(text: &str) -> Vec<String> {
    let targets: std::collections::HashSet<&str> = text
        .lines()
        .filter_map(|line| line.split_once("bra ").map(|(_, target)| target.trim_end_matches(';')))
        .collect();
    let plain = text.lines().map(|line| line.split("//").next().unwrap_or_default().trim());
    let named = |line: &&str| line.strip_suffix(':').is_none_or(|label| targets.contains(label));
    plain.filter(|line| !line.is_empty()).filter(named).map(decimal).collect()
}

/// A line with decimal integers without signs, which say the same of `.s32`, `.u32` and `.b32`.
fn decimal(line: &str) -> String {
    let ends = [' ', ',', ';', '[', '+', '{', '}'];
    let instruction = line.split_whitespace().find(|word| !word.starts_with('@')).unwrap_or_default();
    let bits = match instruction.rsplit_once('.') {
        Some((_, "b16" | "s16")) => Some(16),
        Some((_, "b32" | "s32")) => Some(32),
        Some((_, "b64" | "s64")) => Some(64),
        _ => None,
    };
    let words = line.split_inclusive(ends).map(|word| {
        let digits = word.trim_end_matches(ends);
        let unsigned = |number: i64| {
            let number = number.cast_unsigned();
            bits.map(|bits: u32| number & u64::MAX >> (64 - bits))
        };
        let number = match digits.strip_prefix("0x") {
            Some(digits) => u64::from_str_radix(digits, 16).ok(),
            None if digits.starts_with('-') => digits.parse().ok().and_then(unsigned),
            None => None,
        };
        number.map_or_else(|| word.to_owned(), |number| format!("{number}{}", &word[digits.len()..]))
    });
    words.collect()
}
