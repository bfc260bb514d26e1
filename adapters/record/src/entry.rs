//! Kernels in a PTX text, and their parameters.

/// A parameter of a kernel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Parameter {
    pub(crate) name: String,
    /// The type: `u64`, or `b8` for bytes.
    pub(crate) ty: String,
    pub(crate) offset: usize,
    pub(crate) bytes: usize,
}

/// What stands in the parentheses of a kernel.
fn list<'t>(text: &'t str, kernel: &str) -> Option<&'t str> {
    let after = text.match_indices(".entry").find_map(|(at, word)| {
        let rest = text[at + word.len()..].trim_start().strip_prefix(kernel)?;
        // Another name that begins alike is another kernel.
        let goes_on = rest.starts_with(|c: char| c.is_alphanumeric() || matches!(c, '_' | '$' | '%'));
        (!goes_on).then_some(rest)
    })?;
    match after.trim_start().strip_prefix('(') {
        Some(inside) => inside.find(')').map(|end| &inside[..end]),
        None => Some(""),
    }
}

/// Whether a text has a kernel.
pub(crate) fn has(text: &str, kernel: &str) -> bool {
    list(text, kernel).is_some()
}

/// The parameters of a kernel; `None` if the text does not have it, or says what is not understood.
pub(crate) fn parameters(text: &str, kernel: &str) -> Option<Vec<Parameter>> {
    let lines = list(text, kernel)?.lines().map(|line| line.split("//").next().unwrap_or(""));
    let plain: String = lines.collect::<Vec<_>>().join(" ");
    let mut offset = 0;
    plain
        .split(',')
        .filter(|part| !part.trim().is_empty())
        .map(|part| {
            let parameter = one(part, &mut offset)?;
            offset = parameter.offset + parameter.bytes;
            Some(parameter)
        })
        .collect()
}

fn one(text: &str, offset: &mut usize) -> Option<Parameter> {
    let (mut align, mut ty, mut is_address) = (None, None, false);
    let mut words = text.split_whitespace();
    let mut name = "";
    while let Some(word) = words.next() {
        match word {
            // What follows is the alignment of memory, and not of the parameter.
            ".ptr" => is_address = true,
            ".align" => {
                let number = words.next()?.parse::<usize>().ok()?;
                if !is_address {
                    align = Some(number);
                }
            }
            _ if word.starts_with('.') => ty = size(&word[1..]).map(|bytes| (&word[1..], bytes)).or(ty),
            _ => name = word,
        }
    }
    let (ty, size) = ty?;
    let (name, count) = match name.split_once('[') {
        Some((name, count)) => (name, count.trim_end_matches(']').parse::<usize>().ok()?),
        None => (name, 1),
    };
    let offset = offset.next_multiple_of(align.unwrap_or(size).max(1));
    Some(Parameter { name: name.into(), ty: ty.into(), offset, bytes: size * count })
}

/// Bytes of a type.
fn size(ty: &str) -> Option<usize> {
    match ty {
        "b8" | "u8" | "s8" => Some(1),
        "b16" | "u16" | "s16" | "f16" | "bf16" => Some(2),
        "b32" | "u32" | "s32" | "f32" | "f16x2" | "bf16x2" => Some(4),
        "b64" | "u64" | "s64" | "f64" => Some(8),
        "b128" => Some(16),
        _ => None,
    }
}

/// The architecture that a text names: 90 for `sm_90a`.
pub(crate) fn target(text: &str) -> Option<u32> {
    let at = text.find(".target")?;
    let name = text[at..].split_whitespace().nth(1)?.strip_prefix("sm_")?;
    let digits = name.find(|c: char| !c.is_ascii_digit()).unwrap_or(name.len());
    name[..digits].parse().ok()
}

/// Whether a text has variables outside of kernels, whose values at the launch are not known.
pub(crate) fn has_variables(text: &str) -> bool {
    let words = [
        "\n.visible .global",
        "\n.global",
        "\n.visible .const",
        "\n.const",
        "\n.extern .const",
        "\n.extern .global",
    ];
    words.iter().any(|word| text.contains(word))
}

#[cfg(test)]
mod tests {
    use super::{has, parameters, target};

    const TEXT: &str = "
.version 8.4
.target sm_90a, debug
.visible .entry add_all( .param .u64 a ) { ret; }
.visible .entry add(
    .param .u64 .ptr .global .align 16 x, // an address
    .param .u32 n,
    .param .align 64 .b8 map[128],
    .param .align 8 .b8 pair[24]
)
.reqntid 64, 1, 1
{ ret; }
.entry bare { ret; }
";

    #[test]
    fn parameters_have_a_place() {
        let all = parameters(TEXT, "add").expect("it is there");
        let places: Vec<_> =
            all.iter().map(|one| (one.name.as_str(), one.ty.as_str(), one.offset, one.bytes)).collect();
        let want = [("x", "u64", 0, 8), ("n", "u32", 8, 4), ("map", "b8", 64, 128), ("pair", "b8", 192, 24)];
        assert_eq!(places, want);
        assert_eq!(parameters(TEXT, "bare"), Some(Vec::new()));
        assert_eq!(parameters(TEXT, "ad"), None);
    }

    #[test]
    fn kernels_are_found_by_their_whole_name() {
        assert!(has(TEXT, "add_all") && has(TEXT, "add") && !has(TEXT, "add_"));
        assert_eq!(target(TEXT), Some(90));
    }
}
