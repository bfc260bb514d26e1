//! The texts of records that come with the library: `kernel/src/sheet.rs` says what is in them.

use std::collections::BTreeMap;

/// Microseconds and specs, the fastest first.
pub(crate) type Kernels = Vec<(String, String)>;

/// Whether the texts are written, not compared.
pub(crate) fn is_writing() -> bool {
    std::env::var_os("RECORDS").is_some()
}

/// Rounds to four digits.
pub(crate) fn digits(microseconds: f64) -> String {
    let before = microseconds.log10().floor() as i32 + 1;
    let text = format!("{microseconds:.*}", usize::try_from(4 - before).unwrap_or(0));
    if text.contains('.') { text.trim_end_matches('0').trim_end_matches('.').to_owned() } else { text }
}

/// The problems of a text, each with its kernels.
pub(crate) fn read(text: &str) -> Vec<(String, Kernels)> {
    let (mut specs, mut problems) = (BTreeMap::new(), Vec::new());
    for line in text.lines().filter(|line| !line.starts_with('#')) {
        let words: Vec<&str> = line.split(' ').collect();
        let (first, of_spec) = (words[0], words[0].parse::<usize>().is_ok());
        if of_spec {
            specs.insert(first, words[1..].join(" "));
            continue;
        }
        let kernel = |word: &&str| {
            let (number, time) = word.split_once(':')?;
            Some((time.to_owned(), String::clone(specs.get(number)?)))
        };
        let problem = words.iter().take_while(|word| !word.contains(':')).copied().collect::<Vec<_>>();
        problems.push((problem.join(" "), words.iter().filter_map(kernel).collect()));
    }
    problems
}

/// The text of problems with the comments of the one before.
pub(crate) fn written(before: &str, problems: impl Iterator<Item = (String, Kernels)>) -> String {
    let (mut numbers, mut specs, mut lines) = (BTreeMap::new(), String::new(), String::new());
    for (problem, kernels) in problems {
        lines += &problem;
        for (time, spec) in kernels {
            let next = numbers.len();
            let line = format!("{next} {spec}");
            let number = *numbers.entry(spec).or_insert_with(|| {
                specs += line.trim_end();
                specs.push('\n');
                next
            });
            lines += &format!(" {number}:{time}");
        }
        lines.push('\n');
    }
    let comments = before.lines().filter(|line| line.starts_with('#')).map(|line| format!("{line}\n"));
    comments.chain([specs, lines]).collect()
}
