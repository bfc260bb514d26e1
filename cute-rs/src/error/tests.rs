//! Tests that every error message contains its numbers.

use super::*;
use std::string::ToString;

#[test]
fn every_clause_holds_its_numbers() {
    let (shape, stride) = (IntTuple::from((4, (2, 2))), IntTuple::from((1, 4, 8)));
    let name = "N of wgmma";
    for (error, want) in [
        (LayoutError::Capacity { leaves: 40 }, "40 leaves in one tuple, at most 32 are held"),
        (LayoutError::Depth { limit: 255 }, "a tuple is nested deeper than 255 levels"),
        (LayoutError::EmptyMode { mode: 1 }, "mode 1 is empty"),
        (
            LayoutError::Congruence { shape, stride },
            "shape (4,(2,2)) and stride (1,4,8) are nested differently",
        ),
        (LayoutError::Extent { shape }, "shape (4,(2,2)) has an extent below 1"),
        (
            LayoutError::StrideDivisibility { shape: 6, stride: 4 },
            "stride 4 neither divides the extent 6 it walks in nor is divided by it",
        ),
        (
            LayoutError::ShapeDivisibility { offered: 6, wanted: 9 },
            "extent 9 is not a multiple of the 6 elements a mode offers",
        ),
        (
            LayoutError::Carry { extent: 6, reach: 7 },
            "modes together reach coordinate 7 of a mode of extent 6",
        ),
        (LayoutError::NegativeStride { stride: -3 }, "stride -3 is negative, it must be 0 or more"),
        (LayoutError::Width { value: 1 << 32 }, "4294967296 is no 32-bit unsigned integer"),
        (
            LayoutError::NotInjective { stride: 3, reach: 2 },
            "stride 3 is no positive multiple of 2, where the modes of smaller stride end",
        ),
        (LayoutError::NotInjective { stride: 0, reach: 1 }, "a stride of 0 repeats offsets"),
        (LayoutError::Rank { needed: 2, given: 3 }, "3 modes where 2 are needed"),
        (LayoutError::Rank { needed: 2, given: 1 }, "1 mode where 2 are needed"),
        (LayoutError::Order { mode: 1, rank: 2 }, "an order of 2 modes must name each once, not mode 1"),
        (
            LayoutError::Extents { name, extent: 12, multiple: 8 },
            "N of wgmma is 12, not a positive multiple of 8",
        ),
        (LayoutError::Range { name, value: 264, low: 8, high: 256 }, "N of wgmma is 264, not in 8..=256"),
        (LayoutError::Mode { mode: 3, rank: 2 }, "there is no mode 3 among 2"),
        (LayoutError::Profile { tuple: stride, profile: shape }, "(1,4,8) is not nested as (4,(2,2)) asks"),
        (LayoutError::Sizes { size: 4, other: 8 }, "one layout has 4 elements and the other 8"),
        (
            LayoutError::Indivisible { shape, extent: 4, divisor: 3 },
            "in (4,(2,2)), of extent 4 and divisor 3 neither divides the other",
        ),
        (LayoutError::Overflow { shape, stride }, "(4,(2,2)):(1,4,8) reaches beyond 2^62"),
        (
            LayoutError::Wide { number: "product", tuple: shape, other: None },
            "the product of (4,(2,2)) leaves 64 bits",
        ),
        (
            LayoutError::Wide { number: "index", tuple: stride, other: Some(shape) },
            "the index of (1,4,8) and (4,(2,2)) leaves 64 bits",
        ),
        (LayoutError::Modes { begin: 3, end: 1, rank: 2 }, "modes 3..1 are no range within 0..2"),
        (
            LayoutError::MixedSigns { stride: -2 },
            "stride -2 walks against the other modes, so that sums borrow",
        ),
        (
            LayoutError::Basis { scale: 2, components: 1 },
            "a stride of 2 along a component that does not exist among 1",
        ),
        (
            LayoutError::BasisSplit { scale: 1 },
            "a stride of 1 along a component of which another stride takes a part",
        ),
        (
            LayoutError::Recast { shape: 3, stride: 1, factor: 2 },
            "mode 3:1 cuts through groups of 2 elements",
        ),
        (
            LayoutError::SwizzleBits { bits: 3, base: 4, shift: 2 },
            "Sw<3,4,2> has overlapping bits or bits above 62",
        ),
        (LayoutError::SwizzlePair { first: 3, second: 6 }, "swizzles on bits 3 and 6 do not join to one"),
        (LayoutError::PowerOfTwo { value: 6 }, "6 is no power of two"),
        (
            LayoutError::SwizzleReach { bits: 9, cosize: 64 },
            "the swizzle acts on 9 bits, the layout's offsets end at 64",
        ),
        (
            LayoutError::Straddles { shape: 4, stride: 3, rows: 8 },
            "mode 4:3 crosses columns of a tile of 8 rows",
        ),
        (
            LayoutError::NotCompact { size: 4, run: 2 },
            "a layout of size 4 takes the numbers from 0 up only to 1",
        ),
        (LayoutError::Outside { last: 18, size: 16 }, "coordinate 18 lies outside a tile of 16 elements"),
        (
            LayoutError::Box { rule: BoxRule::Extent, mode: 1, value: 512, limit: 256 },
            "mode 1: the extent of the box is 512, it may be at most 256",
        ),
        (
            LayoutError::Multiply { name: "M of A and C", first: 64, second: 16 },
            "M of A and C are 64 and 16, they must be equal",
        ),
        (LayoutError::OtherThread { thread: 1, other: 5 }, "an element of thread 1 belongs to thread 5"),
    ] {
        assert_eq!(error.to_string(), want);
        assert!(!error.remedy().is_empty(), "{error} has a remedy");
    }
}
