//! Integers: packed sums, extremes, quotients, chains of selections, conversions that saturate.

use half::f16;
use ptx::inst::{AluOp, Cvt, PairOp, Rounding};
use ptx::{Source, Value};

use super::program::{Inputs, Micro, Site, WORDS, each};

pub(super) const MICROS: &[Micro] = &[
    Micro {
        name: "packed-add",
        about: "adds a constant to pairs of 16-bit integers, and uses one half (triton-lang/triton#11581)",
        ours: false,
        emit: packed_add,
        want: packed_sums,
    },
    Micro {
        name: "extremes",
        about: "takes the largest and smallest of absolute values (pytorch/pytorch#190973)",
        ours: false,
        emit: extremes,
        want: extreme_values,
    },
    Micro {
        name: "quotients",
        about: "divides by constants and by a value that is the same for all",
        ours: true,
        emit: quotients,
        want: divided,
    },
    Micro {
        name: "selections",
        about: "selects by predicates of masked and permuted bytes (triton-lang/triton#2941)",
        ours: true,
        emit: selections,
        want: selected,
    },
    Micro {
        name: "saturation",
        about: "converts numbers that leave the range of the other type",
        ours: true,
        emit: saturation,
        want: saturated,
    },
];

const ADDED: [u32; 2] = [0x0005_0003, 0x7FFF_8001];

fn packed_add<'f>(site: &Site<'f>) -> [Value<'f, u32>; WORDS] {
    let Site { f, words, .. } = site;
    let own = site.shared + site.thread * 16;
    f.store_shared(own, 0, [0u32; 4].map(|zero| f.constant(zero)));
    for (at, half) in [(0, 0), (1, 1), (2, 0), (3, 1)] {
        let added = f.variable(ADDED[at / 2]).get();
        let op = AluOp::Pair { op: PairOp::Add, signed: true };
        let sum = f.alu::<u32>(op, &[words[at].operand(), added.operand()]);
        f.store_shared(own, 4 * at as i32, [f.unpack::<f16>(sum)[half]]);
    }
    f.load_shared_vector(own, 0)
}

fn packed_sums(inputs: &Inputs) -> Inputs {
    each(inputs, |_, words| {
        core::array::from_fn(|at| {
            let half = |word: u32| (word >> (at % 2 * 16)) as u16;
            half(words[at]).wrapping_add(half(ADDED[at / 2])).into()
        })
    })
}

fn extremes<'f>(site: &Site<'f>) -> [Value<'f, u32>; WORDS] {
    let [x, y, z, w] = site.words.map(|word| word.bits_as::<i32>());
    let size = |value: Value<'f, i32>| value.max(-value);
    let results = [size(x).max(size(y)), size(x).max(z), x.min(-x).min(w), size(z).min(size(w)).max(-y)];
    results.map(|result| result.bits_as())
}

fn extreme_values(inputs: &Inputs) -> Inputs {
    each(inputs, |_, words| {
        let [x, y, z, w] = words.map(u32::cast_signed);
        let size = |value: i32| value.max(value.wrapping_neg());
        let least = x.min(x.wrapping_neg()).min(w);
        [size(x).max(size(y)), size(x).max(z), least, size(z).min(size(w)).max(y.wrapping_neg())]
            .map(i32::cast_unsigned)
    })
}

fn quotients<'f>(site: &Site<'f>) -> [Value<'f, u32>; WORDS] {
    let [x, y, z, w] = site.words;
    // The same for all threads, which the compiler cannot know.
    let divisor = (site.f.load_global::<u32>(site.input, 0) & 0x3FF) + 3;
    let signed = w.bits_as::<i32>();
    let low = (z >> 16).cast::<u16>() % 1000;
    [
        x / 7 + x % 1000,
        y / divisor + (y % divisor) * 16,
        low.cast::<u32>() + z / 641,
        (signed / 9 + signed % divisor.bits_as::<i32>()).bits_as(),
    ]
}

fn divided(inputs: &Inputs) -> Inputs {
    let divisor = (inputs[0][0] & 0x3FF) + 3;
    each(inputs, |_, [x, y, z, w]| {
        let signed = w.cast_signed();
        [
            x / 7 + x % 1000,
            (y / divisor).wrapping_add(y % divisor * 16),
            (z >> 16) % 1000 + z / 641,
            (signed / 9).wrapping_add(signed % divisor.cast_signed()).cast_unsigned(),
        ]
    })
}

/// Bytes that are permuted: bytes 7, 2, 5 and 0 of eight.
const PERMUTED: u32 = 0x7250;
/// `(a & b) ^ c`.
const TABLE: u8 = (0xF0 & 0xCC) ^ 0xAA;

fn selections<'f>(site: &Site<'f>) -> [Value<'f, u32>; WORDS] {
    let f = site.f;
    let mut values = site.words;
    for step in 0..6 {
        let [a, b, c, d] = values;
        let permuted = f.alu::<u32>(AluOp::Permute, &[a.operand(), b.operand(), PERMUTED.operand()]);
        let masked = (permuted & 0x0101_0101).differs_from(0x0101_0001);
        let mixed = f.alu::<u32>(AluOp::Logic3(TABLE), &[b.operand(), c.operand(), d.operand()]);
        let is_set = (mixed & (0x11 << step)).equals(0);
        let e = (a + b).where_or(masked & !is_set, a ^ c);
        values =
            [b.where_or(is_set, c), d.where_or(masked ^ is_set, e), e, (a * 5).where_or(masked | is_set, d)];
    }
    values
}

fn selected(inputs: &Inputs) -> Inputs {
    each(inputs, |_, mut values| {
        for step in 0..6 {
            let [a, b, c, d] = values;
            let bytes = [a.to_le_bytes(), b.to_le_bytes()].concat();
            let permuted = u32::from_le_bytes([bytes[0], bytes[5], bytes[2], bytes[7]]);
            let masked = permuted & 0x0101_0101 != 0x0101_0001;
            let is_set = ((b & c) ^ d) & (0x11 << step) == 0;
            let e = if masked && !is_set { a.wrapping_add(b) } else { a ^ c };
            values = [
                if is_set { b } else { c },
                if masked != is_set { d } else { e },
                e,
                if masked || is_set { a.wrapping_mul(5) } else { d },
            ];
        }
        values
    })
}

/// A power of two from 2^-4 to 2^11, with a sign.
fn power(bits: u32) -> u32 {
    (bits & 0x8000_0000) | ((bits & 15) + 123) << 23
}

fn saturation<'f>(site: &Site<'f>) -> [Value<'f, u32>; WORDS] {
    let f = site.f;
    let [x, y, z, w] = site.words;
    let power = |bits: Value<'f, u32>| ((bits & 0x8000_0000) | ((bits & 15) + 123) << 23).bits_as::<f32>();
    let codes = Cvt::PackFp8 { e5m2: false, relu: false };
    let codes = f.alu::<u16>(AluOp::Cvt(codes), &[power(x).operand(), power(y).operand()]);
    let [high, low] = [z, w].map(|word| word.bits_as::<i32>() >> 22);
    let bytes = Cvt::PackInt8 { signed: true };
    let bytes = f.alu::<u32>(AluOp::Cvt(bytes), &[high.operand(), low.operand(), 0x1234u32.operand()]);
    let number = (z.bits_as::<i32>() >> 8).cast::<f32>() * 0.25;
    let rounded = f.alu::<u32>(AluOp::Cvt(Cvt::ToUnsigned(Rounding::Nearest)), &[number.operand()]);
    let number = (w.bits_as::<i32>() >> 8).cast::<f32>() * 1024.0;
    let cut = f.alu::<i32>(AluOp::Cvt(Cvt::ToSigned(Rounding::Zero)), &[number.operand()]);
    [codes.cast(), bytes, rounded, cut.bits_as()]
}

fn saturated(inputs: &Inputs) -> Inputs {
    let code = |bits: u32| {
        let exponent = (power(bits) >> 23 & 0xFF) as i32 - 127;
        (bits >> 31 << 7) | if exponent > 8 { 0x7E } else { ((exponent + 7) << 3).cast_unsigned() }
    };
    each(inputs, |_, [x, y, z, w]| {
        let byte = |word: u32| u32::from((word.cast_signed() >> 22).clamp(-128, 127) as u8);
        let number = |word: u32| (word.cast_signed() >> 8) as f32;
        [
            code(x) << 8 | code(y),
            0x1234 << 16 | byte(z) << 8 | byte(w),
            (number(z) * 0.25).round_ties_even() as u32,
            ((number(w) * 1024.0) as i32).cast_unsigned(),
        ]
    })
}
