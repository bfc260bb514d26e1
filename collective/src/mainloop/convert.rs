//! Conversion of codes to pairs of 16-bit elements, in few instructions.
//!
//! The two codes of a pair are 16 bits apart in a word, so one mask extracts both. Integers are placed in the
//! mantissa of a float whose last place is 1; then that float is subtracted. Floats of few bits are moved to
//! the sign, exponent and mantissa of a wider float, and multiplied by the power of two by which the exponent
//! biases differ. Both conversions are exact.

use std::collections::BTreeMap;

use ptx::inst::{AluOp, FloatOp, HalfType};
use ptx::{Builder, Value};

use crate::element::{Code, Format};

/// Converts codes to pairs of `format`.
#[derive(Clone, Copy, Debug)]
pub(super) struct Converter<'f> {
    f: &'f Builder,
    code: Code,
    /// `bf16` if true, else `f16`.
    bf16: bool,
    /// The last step: an operation on the pair and this constant pair. It is in a register, because
    /// instructions on 16-bit pairs take only registers.
    last: Option<(FloatOp, Value<'f, u32>)>,
}

/// `(a & b) | c` as a table of `lop3`.
const AND_OR: u8 = (0xF0 & 0xCC) | 0xAA;

/// `(!a & b) | c`.
const NOT_AND_OR: u8 = (0x0F & 0xCC) | 0xAA;

/// The same 16 bits in both halves of a word.
pub(super) const fn both(bits: u16) -> u32 {
    bits as u32 * 0x0001_0001
}

/// A word shifted right by `by` bits; unchanged if `by` is 0.
fn right(word: Value<'_, u32>, by: u32) -> Value<'_, u32> {
    if by == 0 { word } else { word >> by }
}

/// 128 in `bf16`, 1024 in `f16`: numbers whose last mantissa place is 1.
const fn counter(bf16: bool) -> u16 {
    if bf16 { 0x4300 } else { 0x6400 }
}

/// Number of exponent bits and of mantissa bits.
const fn fields(bf16: bool) -> [u32; 2] {
    if bf16 { [8, 7] } else { [5, 10] }
}

/// The power of two by which the bias of a float with `exponent` exponent bits differs from that of the wider
/// format, encoded in the wider format. `None` if the biases are equal.
const fn biases(bf16: bool, exponent: u32) -> Option<u16> {
    let ([wide, mantissa], narrow) = (fields(bf16), (1 << (exponent - 1)) - 1);
    let bias = (1 << (wide - 1)) - 1;
    // The exponent field is the power plus the bias.
    if bias == narrow { None } else { Some(((bias - narrow + bias) << mantissa) as u16) }
}

impl<'f> Converter<'f> {
    pub(super) fn new(f: &'f Builder, code: Code, format: Format) -> Self {
        let bf16 = matches!(format, Format::Bf16);
        let less = |number: u16| Some((FloatOp::Sub, counter(bf16) + number));
        let times = |exponent| biases(bf16, exponent).map(|power| (FloatOp::Mul, power));
        let last = match code {
            // The sign bit of signed 4-bit codes is flipped, so a stored code is the number plus 8.
            Code::S4 => less(8),
            Code::U4 => less(0),
            Code::U8 if !bf16 => less(0),
            Code::S8 => None,
            // `bf16` has only seven mantissa bits: 128 was subtracted where the eighth bit is not set, and is
            // added here.
            Code::U8 => Some((FloatOp::Add, counter(bf16))),
            Code::E4m3 => times(4),
            Code::E5m2 => times(5),
            Code::E2m1 => times(2),
        };
        let last = last.map(|(op, half)| (op, f.variable(both(half)).get()));
        Self { f, code, bf16, last }
    }

    /// Words of codes per instruction along K: one for 4-bit codes, two for 8-bit codes.
    pub(super) const fn words(code: Code) -> usize {
        code.bits() as usize / 4
    }

    /// The four registers of A for one instruction.
    pub(super) fn convert(&self, words: &[Value<'f, u32>]) -> [Value<'f, u32>; 4] {
        core::array::from_fn(|i| match words {
            [word] => self.pair(*word, 4 * i as u32),
            words => self.pair(words[i / 2], 8 * (i as u32 % 2)),
        })
    }

    /// The pair whose codes begin at bit `at` of each half of a word.
    fn pair(&self, word: Value<'f, u32>, at: u32) -> Value<'f, u32> {
        let pair = match self.code {
            Code::S4 | Code::U4 => self.counted(word, at, 15),
            Code::U8 if !self.bf16 => self.counted(word, at, 255),
            Code::S8 => self.seven(word, at, AND_OR),
            Code::U8 => self.seven(word, at, NOT_AND_OR),
            Code::E4m3 => self.float(word, at, [7, 3]),
            Code::E5m2 => self.float(word, at, [7, 2]),
            Code::E2m1 => self.small(word, at / 4),
        };
        self.last.map_or(pair, |(op, other)| self.half(op, pair, other))
    }

    /// An integer plus the counter.
    fn counted(&self, word: Value<'f, u32>, at: u32, mask: u16) -> Value<'f, u32> {
        self.logic(AND_OR, right(word, at), both(mask), self.f.constant(both(counter(self.bf16))))
    }

    /// The low seven bits of a number, minus 128 if the eighth bit is set (or not set, depending on `table`).
    fn seven(&self, word: Value<'f, u32>, at: u32, table: u8) -> Value<'f, u32> {
        let (word, base) = (right(word, at), counter(self.bf16));
        let field = self.logic(AND_OR, word, both(0x7F), self.f.constant(both(base)));
        // In bf16, the last place of 128 is also the lowest bit of its exponent, so -128 becomes -256. In
        // f16, -1024 becomes -1152.
        let less = self.logic(table, word, both(0x80), self.f.constant(both(base | 0x8000)));
        self.half(FloatOp::Add, field, less)
    }

    /// A float whose code has its sign at bit `top` and this number of mantissa bits, before the exponent
    /// bias is corrected.
    fn float(&self, word: Value<'f, u32>, at: u32, [top, mantissa]: [u32; 2]) -> Value<'f, u32> {
        let [_, wide] = fields(self.bf16);
        let moved = |to: u32, from: u32| if to > from { word << (to - from) } else { right(word, from - to) };
        let size = moved(wide - mantissa, at) & both(((1 << top) - 1) << (wide - mantissa));
        self.logic(AND_OR, moved(15, at + top), both(0x8000), size)
    }

    /// A 4-bit float before the exponent bias is corrected. Fields with the same shift are extracted by one
    /// mask.
    fn small(&self, word: Value<'f, u32>, index: u32) -> Value<'f, u32> {
        let ([_, wide], [mantissa, exponent, _, sign]) = (fields(self.bf16), self.code.places(index));
        let parts = [(sign, 15, 1), (exponent, wide, 3), (mantissa, wide - 1, 1)];
        let mut masks = BTreeMap::<i32, u16>::new();
        for (from, to, ones) in parts {
            *masks.entry(to.cast_signed() - from.cast_signed()).or_default() |= ones << to;
        }
        let part = |(by, mask): (i32, u16)| {
            let moved = if by > 0 { word << by.unsigned_abs() } else { right(word, by.unsigned_abs()) };
            (moved, both(mask))
        };
        let mut parts = masks.into_iter().map(part);
        let first = parts.next().map_or(word, |(moved, mask)| moved & mask);
        parts.fold(first, |field, (moved, mask)| self.logic(AND_OR, moved, mask, field))
    }

    fn logic(&self, table: u8, a: Value<'f, u32>, b: u32, c: Value<'f, u32>) -> Value<'f, u32> {
        let b = self.f.constant(b);
        self.f.alu(AluOp::Logic3(table), &[a.operand(), b.operand(), c.operand()])
    }

    /// `a * b + c` on pairs.
    pub(super) fn fma(&self, a: Value<'f, u32>, b: Value<'f, u32>, c: Value<'f, u32>) -> Value<'f, u32> {
        self.of_pairs(FloatOp::Fma, &[a, b, c])
    }

    /// An operation on pairs.
    pub(super) fn half(&self, op: FloatOp, a: Value<'f, u32>, b: Value<'f, u32>) -> Value<'f, u32> {
        self.of_pairs(op, &[a, b])
    }

    fn of_pairs(&self, op: FloatOp, pairs: &[Value<'f, u32>]) -> Value<'f, u32> {
        let ty = if self.bf16 { HalfType::Bf16x2 } else { HalfType::F16x2 };
        let operands: Vec<_> = pairs.iter().map(|pair| pair.operand()).collect();
        self.f.alu(AluOp::Half { op, ty, nan: false, relu: false }, &operands)
    }
}
