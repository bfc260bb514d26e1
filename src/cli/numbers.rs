//! Parsers for numbers on the command line, with more precise errors than clap's own.

use crate::collective;
use crate::collective::tree::Arithmetic;
use crate::verify::Format;

use crate::cli::Failure;

/// A factor: a finite f64. A number beyond the range of f64 is refused, not rounded to infinity or to zero.
pub(crate) fn factor(text: &str) -> Result<f64, String> {
    let value: f64 = text.parse().map_err(|_| "a number was needed, as 0.5 or -2e3".to_owned())?;
    let mantissa = text.split(['e', 'E']).next().unwrap_or_default();
    let written = mantissa.contains(|c: char| c.is_ascii_digit());
    if value.is_nan() || value.is_infinite() && !written {
        return Err(format!("{value} is not finite, a finite number was needed"));
    }
    if value.is_infinite() {
        return Err(format!("it is more than an f64 holds, {:e} at most", f64::MAX));
    }
    if value == 0.0 && mantissa.contains(|c: char| ('1'..='9').contains(&c)) {
        return Err("it is less than an f64 holds, 5e-324 at least, and would be 0".to_owned());
    }
    Ok(value)
}

/// Checks that a kernel with a D of this format takes a factor: in f64 or in integers as it is, else rounded to f32.
pub(crate) fn taken(flag: &str, factor: f64, d: Format) -> Result<(), Failure> {
    let d = collective::Format::named(d.name()).unwrap_or(collective::Format::F32);
    Arithmetic::of(d).takes(factor).map_err(|reason| usage!("{flag} is {factor:?}, and {reason}"))
}

/// An extent of a matrix.
pub(crate) fn extent(text: &str) -> Result<u32, String> {
    let number = text.parse().ok().filter(|&extent: &u32| extent > 0);
    number.ok_or_else(|| format!("a number from 1 to {} was needed", u32::MAX))
}

/// The number of rows of a group.
pub(crate) fn rows(text: &str) -> Result<u32, String> {
    text.parse().map_err(|_| format!("a number of rows from 0 to {} was needed, as in 300,0,17", u32::MAX))
}

/// The K of a group.
pub(crate) fn lengths(text: &str) -> Result<u32, String> {
    text.parse().map_err(|_| format!("a K from 0 to {} was needed, as in 128,0,384", u32::MAX))
}

/// A number of bytes, with an optional unit. Units are powers of 1000, as in printed sizes.
pub(crate) fn size(text: &str) -> Result<u64, String> {
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (number, unit) = text.split_at(digits);
    let needed = || "a number of bytes was needed, as 500000, 20kB, 200MB or 1GB".to_owned();
    let factor = match unit.trim_start().to_ascii_lowercase().as_str() {
        "" | "b" => 1,
        "k" | "kb" => 1000,
        "m" | "mb" => 1_000_000,
        "g" | "gb" => 1_000_000_000,
        _ => return Err(needed()),
    };
    if number.is_empty() {
        return Err(needed());
    }
    let bytes = number.parse().ok().and_then(|number: u64| number.checked_mul(factor));
    bytes.ok_or_else(|| format!("it is more than {} B", u64::MAX))
}

#[cfg(test)]
mod tests {
    use crate::verify::Format;

    use super::{factor, size, taken};

    #[test]
    fn factors_are_taken_as_d_is_computed() {
        for (text, format, is_taken) in [
            ("0.1", Format::F64, true),
            ("1e300", Format::F64, true),
            ("1e-300", Format::F64, true),
            ("0.5", Format::S32, false),
            ("16777217", Format::S32, true),
            ("-2147483648", Format::S32, false),
            ("0.1", Format::Bf16, true),
            ("16777217", Format::F32, true),
            ("3.5e38", Format::F32, false),
            ("-1e-60", Format::Bf16, false),
        ] {
            let factor = factor(text).expect("a number");
            assert_eq!(taken("--alpha", factor, format).is_ok(), is_taken, "{text} for {}", format.name());
        }
    }

    #[test]
    fn sizes_have_units() {
        for (text, want) in [
            ("0", Ok(0)),
            ("500000", Ok(500_000)),
            ("7B", Ok(7)),
            ("20kB", Ok(20_000)),
            ("20 kb", Ok(20_000)),
            ("200M", Ok(200_000_000)),
            ("1GB", Ok(1_000_000_000)),
            ("18446744073709551615", Ok(u64::MAX)),
            ("18446744073709551616", Err("more than")),
            ("18446744073709552k", Err("more than")),
            ("1.5GB", Err("a number of bytes")),
            ("-1", Err("a number of bytes")),
            ("MB", Err("a number of bytes")),
            ("5MiB", Err("a number of bytes")),
            ("", Err("a number of bytes")),
        ] {
            match (size(text), want) {
                (Err(error), Err(words)) => assert!(error.contains(words), "{text}: {error}"),
                (size, want) => assert_eq!(size.ok(), want.ok(), "{text}"),
            }
        }
    }

    #[test]
    fn factors_are_finite() {
        for (text, want) in [
            ("1", Ok(1.0)),
            ("-2.5e3", Ok(-2500.0)),
            ("0e5", Ok(0.0)),
            ("-0.0", Ok(-0.0)),
            ("0.1", Ok(0.1)),
            ("1.7976931348623157e308", Ok(f64::MAX)),
            ("5e-324", Ok(f64::from_bits(1))),
            ("1e400", Err("more than an f64 holds, 1.7976931348623157e308 at most")),
            ("1e-400", Err("less than an f64")),
            ("inf", Err("inf is not finite")),
            ("-inf", Err("-inf is not finite")),
            ("nan", Err("NaN is not finite")),
            ("two", Err("a number was needed")),
            ("", Err("a number was needed")),
        ] {
            match (factor(text), want) {
                (Ok(value), Ok(want)) => assert_eq!(value.to_bits(), f64::to_bits(want), "{text}"),
                (Err(error), Err(words)) => assert!(error.contains(words), "{text}: {error}"),
                (value, want) => panic!("{text}: {value:?}, {want:?} was expected"),
            }
        }
    }
}
