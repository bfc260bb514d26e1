//! Tests of numbers computed from integer tuples: correct within 64 bits, and an error that names the tuple
//! beyond.

use cute_rs::{ComposedLayout, IntTuple, Layout, LayoutError, Swizzle};

const HALF: i64 = 1 << 62;

/// The text of a result: of its value or of its error.
fn said<T: ToString>(result: Result<T, LayoutError>) -> String {
    result.map_or_else(|error| error.to_string(), |value| value.to_string())
}

#[test]
fn numbers_end_at_64_bits() {
    let (pair, nested) = (IntTuple::from((HALF, HALF)), IntTuple::from((2, (HALF, 4))));
    let least = IntTuple::int(i64::MIN);
    let ones = IntTuple::from((1, 1));
    for (why, got, want) in [
        ("a product", said(pair.product()), "the product of (H,H) leaves 64 bits"),
        ("a zero makes any product 0", said(IntTuple::from((HALF, HALF, 0)).product()), "0"),
        ("the least number is a product", said(IntTuple::from((HALF, -2)).product()), "L"),
        ("each mode", said(nested.product_each()), "the product of (H,4) leaves 64 bits"),
        ("modes one by one fit", said(pair.product_each()), "(H,H)"),
        ("at leaves", said(nested.product_like(&ones)), "the product of (2,(H,4)) leaves 64 bits"),
        ("the last leaf is in no prefix", said(IntTuple::from((HALF, 4)).prefix_product()), "(1,H)"),
        (
            "a prefix",
            said(IntTuple::from((HALF, 4, 1)).prefix_product()),
            "the running product of (H,4,1) leaves 64 bits",
        ),
        ("a sum", said(pair.sum()), "the sum of (H,H) leaves 64 bits"),
        ("only the whole sum counts", said(IntTuple::from((HALF, HALF, -HALF)).sum()), "H"),
        ("2^63", said(least.gcd()), "the greatest common divisor of L leaves 64 bits"),
        ("a divisor of the least number", said(IntTuple::from((i64::MIN, 6)).gcd()), "2"),
        (
            "the least number and 0",
            said(IntTuple::from((i64::MIN, 0)).gcd()),
            "the greatest common divisor of (L,0) leaves 64 bits",
        ),
        (
            "a multiple",
            said(IntTuple::from((HALF, 3)).lcm()),
            "the least common multiple of (H,3) leaves 64 bits",
        ),
        ("a multiple that was reached", said(IntTuple::from((HALF, HALF)).lcm()), "H"),
        ("a zero after it", said(IntTuple::from((HALF, 3, 5, 0)).lcm()), "0"),
        ("of the least number", said(least.lcm()), "the least common multiple of L leaves 64 bits"),
        ("a size", said(least.abs()), "the absolute value of L leaves 64 bits"),
        ("each size", said(IntTuple::from((-HALF, i64::MAX)).abs()), "(H,9223372036854775807)"),
        (
            "products of leaves",
            said(IntTuple::from((HALF, 1)).inner_product(&IntTuple::from((2, 1)))),
            "the inner product of (H,1) and (2,1) leaves 64 bits",
        ),
        ("that cancel", said(pair.inner_product(&IntTuple::from((HALF, -HALF)))), "0"),
        (
            "leaf plus leaf",
            said(pair.elem_add(&pair)),
            "the elementwise sum of (H,H) and (H,H) leaves 64 bits",
        ),
        (
            "leaf times leaf",
            said(pair.elem_scale(&IntTuple::from((1, 2)))),
            "the elementwise product of (H,H) and (1,2) leaves 64 bits",
        ),
        (
            "a rounded multiple",
            said(IntTuple::int(i64::MAX).round_up(&IntTuple::int(HALF))),
            "the rounded multiple of 9223372036854775807 and H leaves 64 bits",
        ),
        (
            "a product that is divided",
            said(pair.ceil_div(&IntTuple::int(2))),
            "the product of (H,H) leaves 64 bits",
        ),
        (
            "a product that divides",
            said(IntTuple::int(8).shape_div(&pair)),
            "the product of (H,H) leaves 64 bits",
        ),
        (
            "an index",
            said(pair.crd2idx(&IntTuple::from((0, 2)))),
            "the index of (0,2) and (H,H) leaves 64 bits",
        ),
        (
            "a coordinate of 0 after the last step",
            said(IntTuple::from((HALF, HALF, 2)).crd2idx(&IntTuple::from((3, 1, 0)))),
            "4611686018427387907",
        ),
    ] {
        let want = want.replace('H', &HALF.to_string()).replace('L', &i64::MIN.to_string());
        assert_eq!(got, want, "{why}");
    }
}

#[test]
fn relations_hold_beyond_64_bits() {
    let wide = IntTuple::from((HALF, 4));
    for (why, got, want) in [
        ("no integer is as large", IntTuple::int(i64::MAX).compatible(&wide), false),
        ("a power of two divides", wide.evenly_divides(&IntTuple::int(HALF)), true),
        ("a third does not", wide.evenly_divides(&IntTuple::int(3)), false),
        ("a negative one does", wide.evenly_divides(&IntTuple::int(-8)), true),
        ("nothing is divided by 0", wide.evenly_divides(&IntTuple::int(0)), false),
        ("a product of 0 by anything", IntTuple::from((0, 7)).evenly_divides(&IntTuple::int(3)), true),
        (
            "no coordinate follows in an empty shape",
            IntTuple::int(i64::MIN).increment(&IntTuple::int(0)).is_some(),
            false,
        ),
    ] {
        assert_eq!(got, want, "{why}");
    }
}

#[test]
fn layouts_are_not_joined_beyond_their_range() {
    let long = Layout::new(IntTuple::int(1 << 40), IntTuple::int(1)).unwrap();
    let composed = ComposedLayout { swizzle: Swizzle::NONE, offset: i64::MAX, layout: long };
    for (why, got, want) in [
        ("sizes multiply", said(Layout::concat(&[long, long])), "reaches beyond 2^62"),
        (
            "offsets add",
            said(composed.domain_offset(&IntTuple::int(1))),
            "the sum of 9223372036854775807 and 1 leaves",
        ),
        ("and are multiplied", said(composed.downcast(4)), "the product of 9223372036854775807 and 4 leaves"),
    ] {
        assert!(got.contains(want), "{why}: {got}");
    }
}

/// The same functions, evaluated at compile time.
#[test]
fn constants_are_checked_too() {
    const SIZE: i64 = match IntTuple::flat(&[6, 4]) {
        Ok(shape) => match shape.product() {
            Ok(size) => size,
            Err(_) => 0,
        },
        Err(_) => 0,
    };
    const WIDE: bool = match IntTuple::flat(&[HALF, HALF]) {
        Ok(shape) => shape.sum().is_err() && shape.lcm().is_ok() && shape.prefix_product().is_ok(),
        Err(_) => false,
    };
    assert_eq!((SIZE, WIDE), (24, true));
}

#[test]
fn modes_of_an_integer() {
    let four = IntTuple::int(4);
    for (why, got, want) in [
        ("its own mode 0", said(four.get(&[0])), "4"),
        ("at any depth", said(four.get(&[0, 0])), "4"),
        ("and no other", said(four.get(&[1])), "there is no mode 1 among 1"),
        ("in a tuple", said(IntTuple::from((2, (3, 4))).get(&[1, 1, 0])), "4"),
        ("a range that runs backwards", said(four.take(3, 1)), "modes 3..1 are no range within 0..1"),
        ("too long a range", said(four.take(0, 2)), "there is no mode 1 among 1"),
        ("an empty range", said(four.take(1, 1)), "()"),
    ] {
        assert_eq!(got, want, "{why}");
    }
}
