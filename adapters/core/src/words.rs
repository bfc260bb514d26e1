//! What a description says in words: types, directions, the text of an epilogue.

use falchion::collective::{Code, Format, Formula};
use falchion::cute_rs::atom::Major;
use falchion::kernel::Types;

use crate::refusal::Refusal;

/// The types of a text, and D's format if the text says it.
///
/// # Errors
/// The text describes no types.
pub fn types(text: &str) -> Result<(Types, Option<Format>), Refusal> {
    let Some(types) = Types::named(text) else {
        if let Some((word, of)) = text.split('-').find_map(|word| Some((word, Format::ambiguous(word)?))) {
            return Err(Refusal::Invalid(format!("types is \"{text}\", {of} was needed for {word}")));
        }
        let all = Format::ALL.map(Format::name).join(", ");
        return Err(Refusal::Invalid(format!(
            "types is \"{text}\", one to three of {all} with `-` between them were needed, or for few-bit weights a code and its group, as bf16-s4g128 and bf16-e2m1g32 (MXFP4)"
        )));
    };
    // The words of scales, and of a sparse operand, follow those of the formats.
    let formats = text.split('-').filter(|word| *word != "sparse" && !word.ends_with("x128"));
    let said = formats.count() - usize::from(types.has_sparse()) >= 3;
    Ok((types, said.then_some(types.d)))
}

/// The format of a name. `argument` is what says it.
///
/// # Errors
/// There is no such format.
pub fn format(argument: &str, name: &str) -> Result<Format, Refusal> {
    let all = || Format::ALL.map(Format::name).join(", ");
    Format::named(name).ok_or_else(|| unknown(argument, name, all))
}

/// The code of few-bit weights of a name.
///
/// # Errors
/// There is no such code.
pub fn code(name: &str) -> Result<Code, Refusal> {
    let all = || Code::ALL.map(Code::name).join(", ");
    Code::named(name).ok_or_else(|| unknown("code", name, all))
}

fn unknown(argument: &str, name: &str, all: impl Fn() -> String) -> Refusal {
    let needed = Format::ambiguous(name).map_or_else(|| format!("one of {}", all()), str::to_owned);
    Refusal::Invalid(format!("{argument} is \"{name}\", {needed} was needed"))
}

/// The contiguous directions of A and B: `kk`, `kn`, `mk` or `mn`.
///
/// # Errors
/// Another text.
pub fn majors(layout: &str) -> Result<[Major; 2], Refusal> {
    match layout {
        "kk" => Ok([Major::K, Major::K]),
        "kn" => Ok([Major::K, Major::Mn]),
        "mk" => Ok([Major::Mn, Major::K]),
        "mn" => Ok([Major::Mn, Major::Mn]),
        other => Err(Refusal::Invalid(format!("layout is \"{other}\", one of kk, kn, mk, mn was needed"))),
    }
}

/// The formula of an epilogue's text, for operands of a format. D has the format `d`, if it is given.
///
/// # Errors
/// The text is no formula, or its result cannot have that format.
pub fn formula(text: &str, operand: Format, d: Option<Format>) -> Result<Formula, Refusal> {
    let read = |text: &str| text.parse::<Formula>();
    let formula = read(text).map_err(|error| Refusal::Invalid(format!("epilogue: {error}")))?;
    match d.filter(|&d| d != formula.output(operand)) {
        None => Ok(formula),
        Some(d) => read(&format!("{d}({})", formula.text())).map_err(|_| {
            let given = formula.output(operand);
            Refusal::Invalid(format!("epilogue: {text} gives {given}, and D is {d}: the same was needed"))
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The words of other libraries are those of every adapter, and what may mean two formats is said.
    #[test]
    fn formats_have_the_names_of_other_libraries() {
        for (text, own) in [
            ("fp16", "f16"),
            ("bfloat16-bfloat16-float32", "bf16-bf16-f32"),
            ("int8-uint8", "s8-u8"),
            ("float8_e4m3fn-1x128-128x128", "e4m3-1x128-128x128"),
            ("bfloat16-int4g128z", "bf16-s4g128z"),
            ("half-sparse-a", "f16-sparse-a"),
        ] {
            let [read, of] = [text, own].map(|text| types(text).map_err(|refusal| refusal.to_string()));
            assert!(read.is_ok() && read == of, "{text}: {read:?}");
        }
        let codes = ["int4", "uint4", "int8", "fp4"].map(|name| code(name).ok());
        assert_eq!(codes, ["s4", "u4", "s8", "e2m1"].map(Code::named));
        for (refused, words) in [
            (types("fp8").err(), "types is \"fp8\", e4m3 or e5m2 was needed for fp8"),
            (types("bf16-fp8g128").err(), "one to three of f32, bf16"),
            (code("fp8").err(), "code is \"fp8\", e4m3 or e5m2 was needed"),
            (format("type", "fp8").err(), "type is \"fp8\", e4m3 or e5m2 was needed"),
            (format("type", "f15").err(), "type is \"f15\", one of f32, bf16"),
            (
                formula("relu", Format::Bf16, None).err(),
                "epilogue: `relu` is a function: write relu(alpha*acc), or relu(alpha*acc+bias[n])",
            ),
        ] {
            let said = refused.map(|refusal| refusal.to_string()).unwrap_or_default();
            assert!(said.contains(words), "{said}");
        }
    }
}
