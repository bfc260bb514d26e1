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
