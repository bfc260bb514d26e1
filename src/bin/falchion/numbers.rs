//! Numbers of the command line that clap alone does not explain.

/// A factor: a finite f32. What an f32 cannot hold is refused, not rounded to infinity or to zero.
pub(crate) fn factor(text: &str) -> Result<f32, String> {
    let value: f32 = text.parse().map_err(|_| "a number was needed, as 0.5 or -2e3".to_owned())?;
    let mantissa = text.split(['e', 'E']).next().unwrap_or_default();
    let written = mantissa.contains(|c: char| c.is_ascii_digit());
    if value.is_nan() || value.is_infinite() && !written {
        return Err(format!("{value} is not finite, a finite number was needed"));
    }
    if value.is_infinite() {
        return Err(format!("it is more than an f32 holds, {:e} at most", f32::MAX));
    }
    if value == 0.0 && mantissa.contains(|c: char| ('1'..='9').contains(&c)) {
        return Err("it is less than an f32 holds, 1e-45 at least, and would be 0".to_owned());
    }
    Ok(value)
}

#[cfg(test)]
mod tests {
    use super::factor;

    #[test]
    fn factors_are_finite() {
        for (text, want) in [
            ("1", Ok(1.0)),
            ("-2.5e3", Ok(-2500.0)),
            ("0e5", Ok(0.0)),
            ("-0.0", Ok(-0.0)),
            ("3.4028235e38", Ok(f32::MAX)),
            ("1e-45", Ok(f32::from_bits(1))),
            ("1e400", Err("more than an f32 holds, 3.4028235e38 at most")),
            ("3.5e38", Err("more than an f32")),
            ("1e-60", Err("less than an f32")),
            ("inf", Err("inf is not finite")),
            ("-inf", Err("-inf is not finite")),
            ("nan", Err("NaN is not finite")),
            ("two", Err("a number was needed")),
            ("", Err("a number was needed")),
        ] {
            match (factor(text), want) {
                (Ok(value), Ok(want)) => assert_eq!(value.to_bits(), f32::to_bits(want), "{text}"),
                (Err(error), Err(words)) => assert!(error.contains(words), "{text}: {error}"),
                (value, want) => panic!("{text}: {value:?}, {want:?} was expected"),
            }
        }
    }
}
