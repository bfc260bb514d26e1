//! The words of a text: identifiers, dotted names, numbers, strings and signs. Comments and blanks are left out.
//!
//! Source: PTX ISA "Syntax".

use super::error::{At, Read};

/// A word of the text and where it stands.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Token<'t> {
    pub(crate) kind: Kind<'t>,
    /// As it stands in the text.
    pub(crate) text: &'t str,
    pub(crate) at: At,
}

/// The kind of a word.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Kind<'t> {
    /// An identifier, also of a register (`%r1`) or of a label (`$L1`).
    Word,
    /// A name after a dot, without the dot; `::` may stand in it.
    Dot(&'t str),
    /// A number without a sign.
    Number(Number),
    /// A string, without its quotes.
    Text(&'t str),
    /// A sign.
    Sign(char),
    /// The end of the text.
    End,
}

/// A constant. A floating-point one is its bits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Number {
    /// An integer: the magnitude, and whether a minus stands before it.
    Integer(u64, bool),
    /// `0f` with the bits of an `.f32`.
    Single(u32),
    /// `0d` with the bits of an `.f64`, or a decimal fraction.
    Double(u64),
}

/// The words of a text, and at last [`Kind::End`].
pub(crate) fn tokens(text: &str) -> Read<Vec<Token<'_>>> {
    let mut lexer = Lexer { text, at: 0 };
    let mut tokens = Vec::with_capacity(text.len() / 4);
    loop {
        lexer.skip()?;
        let start = lexer.at;
        let kind = lexer.token()?;
        let text = text.get(start..lexer.at).unwrap_or_default();
        tokens.push(Token { kind, text, at: At(start) });
        if kind == Kind::End {
            return Ok(tokens);
        }
    }
}

struct Lexer<'t> {
    text: &'t str,
    /// An offset at which a character begins.
    at: usize,
}

const fn in_word(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'$')
}

impl<'t> Lexer<'t> {
    fn rest(&self) -> &'t str {
        self.text.get(self.at..).unwrap_or_default()
    }

    /// The byte so far ahead; 0 after the end.
    fn byte(&self, ahead: usize) -> u8 {
        self.text.as_bytes().get(self.at + ahead).copied().unwrap_or(0)
    }

    /// Skips blanks, comments, and the zero at the end of C's strings.
    fn skip(&mut self) -> Read<()> {
        loop {
            let rest = self.rest();
            let blanks = rest.trim_start_matches(|c: char| c.is_ascii_whitespace() || c == '\0');
            self.at += rest.len() - blanks.len();
            if blanks.starts_with("//") {
                self.at += blanks.find('\n').unwrap_or(blanks.len());
            } else if let Some(comment) = blanks.strip_prefix("/*") {
                match comment.find("*/") {
                    Some(end) => self.at += end + 4,
                    None => return At(self.at).wrong("the comment that begins here has no `*/`"),
                }
            } else {
                return Ok(());
            }
        }
    }

    fn token(&mut self) -> Read<Kind<'t>> {
        let start = self.at;
        let Some(first) = self.rest().chars().next() else { return Ok(Kind::End) };
        match first {
            'a'..='z' | 'A'..='Z' | '_' | '$' => {
                self.word();
                Ok(Kind::Word)
            }
            '%' if in_word(self.byte(1)) => {
                self.at += 1;
                self.word();
                Ok(Kind::Word)
            }
            '.' if in_word(self.byte(1)) => {
                self.at += 1;
                self.dotted();
                Ok(Kind::Dot(self.text.get(start + 1..self.at).unwrap_or_default()))
            }
            '0'..='9' => self.number().map(Kind::Number),
            '"' => self.string().map(Kind::Text),
            sign if sign.is_ascii_punctuation() => {
                self.at += 1;
                Ok(Kind::Sign(sign))
            }
            other => At(start).wrong(format!("the character {other:?} does not belong to PTX")),
        }
    }

    fn word(&mut self) {
        while in_word(self.byte(0)) {
            self.at += 1;
        }
    }

    /// A word whose parts may be joined by `::`.
    fn dotted(&mut self) {
        self.word();
        while self.byte(0) == b':' && self.byte(1) == b':' && in_word(self.byte(2)) {
            self.at += 2;
            self.word();
        }
    }

    fn string(&mut self) -> Read<&'t str> {
        let start = self.at;
        self.at += 1;
        let mut escaped = false;
        for (offset, c) in self.rest().char_indices() {
            match c {
                '\n' => break,
                '"' if !escaped => {
                    let inner = self.text.get(start + 1..self.at + offset).unwrap_or_default();
                    self.at += offset + 1;
                    return Ok(inner);
                }
                _ => escaped = c == '\\' && !escaped,
            }
        }
        At(start).wrong("the string that begins here has no second `\"` in its line")
    }

    fn number(&mut self) -> Read<Number> {
        let start = self.at;
        let (radix, prefix) = match (self.byte(0), self.byte(1)) {
            (b'0', b'f' | b'F') => return self.bits(8).map(|bits| Number::Single(bits as u32)),
            (b'0', b'd' | b'D') => return self.bits(16).map(Number::Double),
            (b'0', b'x' | b'X') => (16, 2),
            (b'0', b'b' | b'B') => (2, 2),
            (b'0', b'0'..=b'9') => (8, 1),
            _ => (10, 0),
        };
        self.word();
        let fraction = self.byte(0) == b'.' && self.byte(1).is_ascii_digit();
        let digits = self.text.get(start..self.at).unwrap_or_default();
        let exponent = radix != 16 && radix != 2 && digits.contains(['e', 'E']);
        if fraction || exponent {
            return self.decimal(start);
        }
        let digits = digits.get(prefix..).unwrap_or_default();
        let digits = digits.strip_suffix(['U', 'u']).unwrap_or(digits);
        match u64::from_str_radix(digits, radix) {
            Ok(value) if !digits.starts_with('+') => Ok(Number::Integer(value, false)),
            _ => self.no_number(start, "an integer of at most 64 bits"),
        }
    }

    /// The bits of a floating-point constant: so many hexadecimal digits after two characters.
    fn bits(&mut self, digits: usize) -> Read<u64> {
        let start = self.at;
        self.word();
        let text = self.text.get(start + 2..self.at).unwrap_or_default();
        match u64::from_str_radix(text, 16) {
            Ok(bits) if text.len() == digits => Ok(bits),
            _ => self.no_number(start, &format!("{digits} hexadecimal digits after `0f` or `0d`")),
        }
    }

    /// A decimal fraction or a number with an exponent.
    fn decimal(&mut self, start: usize) -> Read<Number> {
        if self.byte(0) == b'.' {
            self.at += 1;
            self.word();
        }
        let signed = matches!(self.byte(0), b'+' | b'-') && self.byte(1).is_ascii_digit();
        if signed && self.text.get(start..self.at).is_some_and(|text| text.ends_with(['e', 'E'])) {
            self.at += 1;
            self.word();
        }
        let text = self.text.get(start..self.at).unwrap_or_default();
        match text.parse::<f64>() {
            Ok(value) => Ok(Number::Double(value.to_bits())),
            Err(_) => self.no_number(start, "a decimal fraction"),
        }
    }

    fn no_number<T>(&self, start: usize, needed: &str) -> Read<T> {
        let text = self.text.get(start..self.at).unwrap_or_default();
        At(start).wrong(format!("`{text}` is not a number: {needed} was needed"))
    }
}
