//! The PTX text around a place.

use ptx::SourceSite;

use super::launch::Kernel;

/// The text of the statement at a line and a column, both from 1 on, with single blanks. `None` if there is none.
pub(super) fn statement(text: &str, line: u32, column: u32) -> Option<String> {
    let at = offset(text, line, column)?;
    let rest = text.get(at..)?;
    let end = rest
        .find([';', '\n'])
        .map_or(rest.len(), |end| if rest[end..].starts_with(';') { end + 1 } else { end });
    let words: Vec<&str> = rest[..end].split_whitespace().collect();
    (!words.is_empty()).then(|| words.join(" "))
}

/// How many statements of the same text come before a place. `None` if there is no statement.
pub(super) fn ordinal(text: &str, line: u32, column: u32) -> Option<usize> {
    let wanted = statement(text, line, column)?;
    let before = text.get(..offset(text, line, column)?)?.split_whitespace().collect::<Vec<_>>().join(" ");
    Some(before.matches(&wanted).count())
}

/// The line of the source that a line of the PTX was made from, where the last `.loc` before it states `stated`. LLVM counts the lines of
/// an inline assembly on from its own: what is true of all of them is the first.
pub(super) fn origin(text: &str, line: u32, stated: u32) -> u32 {
    let before: Vec<&str> = text.lines().take(line as usize).collect();
    let is = |line: &str, what: &str| line.trim_start().starts_with(what);
    let Some(begin) = before.iter().rposition(|line| is(line, "// begin inline asm")) else { return stated };
    let inside = &before[begin..];
    if inside.iter().any(|line| is(line, "// end inline asm")) {
        return stated;
    }
    let numbers = inside.iter().filter_map(|line| line.trim_start().strip_prefix(".loc"));
    let mut lines = numbers.filter_map(|line| line.split_whitespace().nth(1)?.parse().ok());
    lines.next().unwrap_or(stated)
}

fn offset(text: &str, line: u32, column: u32) -> Option<usize> {
    let mut start = 0;
    for _ in 1..line {
        start += text.get(start..)?.find('\n')? + 1;
    }
    let skipped = text.get(start..)?.chars().take(column.checked_sub(1)? as usize);
    Some(start + skipped.map(char::len_utf8).sum::<usize>())
}

/// The kernel whose PTX a place is in.
pub(super) fn kernel<'k>(kernels: &'k [Kernel], site: &SourceSite) -> Option<&'k Kernel> {
    kernels.iter().find(|kernel| kernel.file == site.file())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn inline_assembly_is_of_its_first_line() {
        let text = ".loc 1 7 2\n// begin inline asm\n\t.loc\t1 7 2\nmov;\n\t.loc 1 8 2\nld;\n// end inline asm\n.loc 1 9 2\nst;";
        assert_eq!((origin(text, 4, 7), origin(text, 6, 8), origin(text, 9, 9)), (7, 7, 9));
    }

    const TEXT: &str = "{\n\tbar.sync  0;\n\tld.shared.b32 %r1,\n [%r2]; mov.b32 %r3, %r1;\n\tbar.sync 0;\n}";

    #[test]
    fn statements_are_found_by_their_places() {
        for (line, column, want) in [
            (2, 2, Some("bar.sync 0;")),
            (4, 9, Some("mov.b32 %r3, %r1;")),
            (3, 2, Some("ld.shared.b32 %r1,")),
            (9, 1, None),
            (1, 0, None),
        ] {
            assert_eq!(statement(TEXT, line, column).as_deref(), want, "{line}:{column}");
        }
        assert_eq!((ordinal(TEXT, 2, 2), ordinal(TEXT, 5, 2), ordinal(TEXT, 9, 1)), (Some(0), Some(1), None));
    }
}
