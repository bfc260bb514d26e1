//! Messages that can be built in a constant. So the compiler's output for a refused layout contains the
//! layout's numbers.

use crate::algebra::Tiler;
use crate::int_tuple::IntTuple;
use crate::layout::{Coord, Layout};
use crate::swizzle::Swizzle;

/// Capacity in bytes, enough for the texts of several layouts. Longer text is cut off.
const CAPACITY: usize = 2048;

/// What fills a gap of a clause.
#[derive(Clone, Copy)]
pub(crate) enum Word<'w> {
    Text(&'w str),
    Number(i64),
    Count(usize),
    Tuple(&'w IntTuple),
}

/// ASCII text of bounded length.
#[derive(Clone, Copy)]
pub(crate) struct Sentence {
    bytes: [u8; CAPACITY],
    len: usize,
}

impl Sentence {
    pub(crate) const fn new() -> Self {
        Self { bytes: [0; CAPACITY], len: 0 }
    }

    const fn byte(mut self, byte: u8) -> Self {
        if self.len < CAPACITY {
            self.bytes[self.len] = byte;
            self.len += 1;
        }
        self
    }

    pub(crate) const fn text(mut self, text: &str) -> Self {
        let bytes = text.as_bytes();
        each!(i, 0..bytes.len(), {
            self = self.byte(bytes[i]);
        });
        self
    }

    pub(crate) const fn number(self, value: i64) -> Self {
        let signed = if value < 0 { self.byte(b'-') } else { self };
        signed.digits(value.unsigned_abs())
    }

    pub(crate) const fn count(self, value: usize) -> Self {
        self.digits(value as u64)
    }

    const fn digits(self, value: u64) -> Self {
        let higher = if value > 9 { self.digits(value / 10) } else { self };
        higher.byte(b'0' + (value % 10) as u8)
    }

    const fn repeated(mut self, byte: u8, count: usize) -> Self {
        each!(_i, 0..count, {
            self = self.byte(byte);
        });
        self
    }

    pub(crate) const fn tuple(mut self, tuple: &IntTuple) -> Self {
        if tuple.is_empty() {
            return self.text("()");
        }
        each!(i, 0..tuple.len(), {
            if i > 0 {
                self = self.byte(b',');
            }
            let (opens, closes) = tuple.parentheses(i);
            self = self.repeated(b'(', opens).number(tuple.leaf(i)).repeated(b')', closes);
        });
        self
    }

    pub(crate) const fn layout(self, layout: &Layout) -> Self {
        self.tuple(&layout.shape()).text(":").tuple(&layout.stride())
    }

    pub(crate) const fn swizzle(self, swizzle: Swizzle) -> Self {
        let name = self.text("Sw<").number(swizzle.bits as i64).text(",").number(swizzle.base as i64);
        name.text(",").number(swizzle.shift as i64).text(">")
    }

    pub(crate) const fn tiler(self, tiler: &Tiler<'_>) -> Self {
        match *tiler {
            Tiler::Keep => self.text("_"),
            Tiler::By(layout) => self.layout(layout),
            Tiler::Shape(shape) if shape.is_int() => self.tuple(shape).text(":1"),
            Tiler::Shape(shape) => self.text("the shape ").tuple(shape),
            Tiler::Modes(tilers) => {
                let mut say = self.text("<");
                each!(i, 0..tilers.len(), {
                    say = if i > 0 { say.text(",") } else { say };
                    say = say.tiler(&tilers[i]);
                });
                say.text(">")
            }
        }
    }

    pub(crate) const fn coord(self, coord: &Coord<'_>) -> Self {
        match *coord {
            Coord::Keep => self.text("_"),
            Coord::At(c) => self.number(c),
            Coord::Modes(modes) => {
                let mut say = self.text("(");
                each!(i, 0..modes.len(), {
                    say = if i > 0 { say.text(",") } else { say };
                    say = say.coord(&modes[i]);
                });
                say.text(")")
            }
        }
    }

    /// Appends a clause, in which each `{}` is a gap for the next word.
    pub(crate) const fn filled(mut self, clause: &str, words: &[Word<'_>]) -> Self {
        let bytes = clause.as_bytes();
        let mut next = 0;
        each!(i, 0..bytes.len(), {
            self = match bytes[i] {
                b'{' => self.word(&words[next]),
                b'}' => self,
                byte => self.byte(byte),
            };
            next += (bytes[i] == b'}') as usize;
        });
        self
    }

    const fn word(self, word: &Word<'_>) -> Self {
        match *word {
            Word::Text(text) => self.text(text),
            Word::Number(value) => self.number(value),
            Word::Count(value) => self.count(value),
            Word::Tuple(tuple) => self.tuple(tuple),
        }
    }

    /// Appends the text of another sentence.
    pub(crate) const fn then(self, other: &Self) -> Self {
        self.text(other.as_str())
    }

    pub(crate) const fn as_str(&self) -> &str {
        match core::str::from_utf8(self.bytes.split_at(self.len).0) {
            Ok(text) => text,
            Err(_) => "(not ASCII)",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::string::ToString;

    #[test]
    fn texts_equal_those_of_display() {
        let nested = IntTuple::tuple(&[IntTuple::int(-3), IntTuple::from((40, (0, 12)))]).unwrap();
        let one = IntTuple::tuple(&[IntTuple::int(7)]).unwrap();
        for (why, tuple) in [
            ("an integer has no parentheses", IntTuple::int(5)),
            ("the empty tuple", IntTuple::EMPTY),
            ("a tuple of one keeps its parentheses", one),
            ("signs, zeros and depth", nested),
            ("the smallest integer has no positive twin", IntTuple::int(i64::MIN)),
        ] {
            assert_eq!(Sentence::new().tuple(&tuple).as_str(), tuple.to_string(), "{why}");
        }
    }

    #[test]
    fn what_does_not_fit_is_cut_off() {
        let mut sentence = Sentence::new();
        for _ in 0..CAPACITY {
            sentence = sentence.text("ab");
        }
        assert_eq!(sentence.as_str().len(), CAPACITY);
    }
}
