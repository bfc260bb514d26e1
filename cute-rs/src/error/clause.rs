//! An error as a clause: a text with gaps, and the values that fill them.

use super::LayoutError;
use crate::int_tuple::MAX_LEAVES;
use crate::sentence::{Sentence, Word};

use Word::{Number, Text, Tuple};

impl LayoutError {
    /// The error as a clause. It is printed by `Display` at run time and by the compiler in constants.
    pub(crate) const fn sentence(&self) -> Sentence {
        Sentence::new().filled(self.clause(), &self.values())
    }

    /// The clause, with `{}` where a value stands.
    const fn clause(&self) -> &'static str {
        match *self {
            Self::Capacity { .. } => "{} leaves in one tuple, at most {} are held",
            Self::Depth { .. } => "a tuple is nested deeper than {} levels",
            Self::EmptyMode { .. } => "mode {} is empty",
            Self::Congruence { .. } => "shape {} and stride {} are nested differently",
            Self::Extent { .. } => "shape {} has an extent below 1",
            Self::StrideDivisibility { .. } => {
                "stride {} neither divides the extent {} it walks in nor is divided by it"
            }
            Self::ShapeDivisibility { .. } => "extent {} is not a multiple of the {} elements a mode offers",
            Self::Carry { .. } => "modes together reach coordinate {} of a mode of extent {}",
            Self::NegativeStride { .. } => "stride {} is negative, it must be 0 or more",
            Self::Width { .. } => "{} is no 32-bit unsigned integer",
            Self::NotInjective { stride: 0, .. } => "a stride of 0 repeats offsets",
            Self::NotInjective { .. } => {
                "stride {} is no positive multiple of {}, where the modes of smaller stride end"
            }
            Self::Rank { .. } => "{} {} where {} {} needed",
            Self::Order { .. } => "an order of {} modes must name each once, not mode {}",
            Self::Extents { .. } => "{} is {}, not a positive multiple of {}",
            Self::Range { .. } => "{} is {}, not in {}..={}",
            Self::Mode { .. } => "there is no mode {} among {}",
            Self::Profile { .. } => "{} is not nested as {} asks",
            Self::Sizes { .. } => "one layout has {} elements and the other {}",
            Self::Indivisible { .. } => "in {}, of extent {} and divisor {} neither divides the other",
            Self::Overflow { .. } => "{}:{} reaches beyond 2^62",
            Self::Wide { other: None, .. } => "the {} of {} leaves 64 bits",
            Self::Wide { .. } => "the {} of {} and {} leaves 64 bits",
            Self::Modes { .. } => "modes {}..{} are no range within 0..{}",
            Self::MixedSigns { .. } => "stride {} walks against the other modes, so that sums borrow",
            Self::Basis { .. } => "a stride of {} along a component that does not exist among {}",
            Self::BasisSplit { .. } => {
                "a stride of {} along a component of which another stride takes a part"
            }
            Self::Recast { .. } => "mode {}:{} cuts through groups of {} elements",
            Self::SwizzleBits { .. } => "Sw<{},{},{}> has overlapping bits or bits above 62",
            Self::SwizzlePair { .. } => "swizzles on bits {} and {} do not join to one",
            Self::PowerOfTwo { .. } => "{} is no power of two",
            Self::SwizzleReach { .. } => "the swizzle acts on {} bits, the layout's offsets end at {}",
            Self::Straddles { .. } => "mode {}:{} crosses columns of a tile of {} rows",
            Self::NotCompact { .. } => "a layout of size {} takes the numbers from 0 up only to {}",
            Self::Outside { .. } => "coordinate {} lies outside a tile of {} elements",
            Self::OtherThread { .. } => "an element of thread {} belongs to thread {}",
            Self::Box { .. } => "mode {}: {} is {}, {}{}",
            Self::Multiply { .. } => "{} are {} and {}, they must be equal",
        }
    }

    /// The values of the clause, in its order.
    const fn values(&self) -> [Word<'_>; 5] {
        match self {
            Self::Capacity { leaves } => counts([*leaves, MAX_LEAVES]),
            Self::Depth { limit } => counts([*limit]),
            Self::EmptyMode { mode } => counts([*mode]),
            Self::Congruence { shape, stride } | Self::Overflow { shape, stride } => {
                words([Tuple(shape), Tuple(stride)])
            }
            Self::Extent { shape } => words([Tuple(shape)]),
            Self::StrideDivisibility { shape, stride } => numbers([*stride, *shape]),
            Self::ShapeDivisibility { offered, wanted } => numbers([*wanted, *offered]),
            Self::Carry { extent, reach } => numbers([*reach, *extent]),
            Self::NegativeStride { stride } | Self::MixedSigns { stride } => numbers([*stride]),
            Self::Width { value } | Self::PowerOfTwo { value } => numbers([*value]),
            Self::NotInjective { stride, reach } => numbers([*stride, *reach]),
            Self::Rank { needed, given } => {
                let modes = if *given == 1 { "mode" } else { "modes" };
                let are = if *needed == 1 { "is" } else { "are" };
                words([count(*given), Text(modes), count(*needed), Text(are)])
            }
            Self::Order { mode, rank } => counts([*rank, *mode]),
            Self::Extents { name, extent, multiple } => {
                words([Text(name), Number(*extent as i64), Number(*multiple as i64)])
            }
            Self::Range { name, value, low, high } => {
                words([Text(name), Number(*value as i64), Number(*low as i64), Number(*high as i64)])
            }
            Self::Mode { mode, rank } => counts([*mode, *rank]),
            Self::Profile { tuple, profile } => words([Tuple(tuple), Tuple(profile)]),
            Self::Sizes { size, other } => numbers([*size, *other]),
            Self::Indivisible { shape, extent, divisor } => {
                words([Tuple(shape), Number(*extent), Number(*divisor)])
            }
            Self::Wide { number, tuple, other: None } => words([Text(number), Tuple(tuple)]),
            Self::Wide { number, tuple, other: Some(other) } => {
                words([Text(number), Tuple(tuple), Tuple(other)])
            }
            Self::Modes { begin, end, rank } => counts([*begin, *end, *rank]),
            Self::Basis { scale, components } => words([Number(*scale), count(*components)]),
            Self::BasisSplit { scale } => numbers([*scale]),
            Self::Recast { shape, stride, factor } => numbers([*shape, *stride, *factor]),
            Self::SwizzleBits { bits, base, shift } => numbers([*bits as i64, *base as i64, *shift as i64]),
            Self::SwizzlePair { first, second } => numbers([first.cast_signed(), second.cast_signed()]),
            Self::SwizzleReach { bits, cosize } => numbers([*bits as i64, *cosize]),
            Self::Straddles { shape, stride, rows } => numbers([*shape, *stride, *rows]),
            Self::NotCompact { size, run } => numbers([*size, *run - 1]),
            Self::Outside { last, size } => numbers([*last, *size]),
            Self::OtherThread { thread, other } => numbers([*thread, *other]),
            Self::Box { rule, mode, value, limit } => {
                let (what, bound) = rule.words();
                words([count(*mode), Text(what), Number(*value), Text(bound), Number(*limit)])
            }
            Self::Multiply { name, first, second } => words([Text(name), Number(*first), Number(*second)]),
        }
    }
}

const fn count<'w>(value: usize) -> Word<'w> {
    Word::Count(value)
}

const fn counts<'w, const N: usize>(values: [usize; N]) -> [Word<'w>; 5] {
    let mut all = [Text(""); 5];
    each!(i, 0..N, {
        all[i] = Word::Count(values[i]);
    });
    all
}

const fn numbers<'w, const N: usize>(values: [i64; N]) -> [Word<'w>; 5] {
    let mut all = [Text(""); 5];
    each!(i, 0..N, {
        all[i] = Number(values[i]);
    });
    all
}

/// Words in an array that has room for those of any clause.
const fn words<'w, const N: usize>(words: [Word<'w>; N]) -> [Word<'w>; 5] {
    let mut all = [Text(""); 5];
    each!(i, 0..N, {
        all[i] = words[i];
    });
    all
}
