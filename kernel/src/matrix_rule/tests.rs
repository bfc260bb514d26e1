//! Each rule at its boundary: the last value that is legal, and the first that is not.

use super::*;

/// 5 lines of 24 elements of 16 bits, which copies read in pieces of 16 bytes.
const RULE: MatrixRule = MatrixRule { name: "A", contiguous: 24, lines: 5, bits: 16, alignment: 16 };

#[test]
fn matrices() {
    let name = "A";
    let at = MatrixRef::new;
    let last = |rule: MatrixRule, ld: u64, address: u64| rule.check(at(address, ld));
    for (why, rule, matrix, wanted) in [
        ("legal", RULE, at(0x1000, 32), Ok(())),
        ("rows without gaps", RULE, at(0x1000, 24), Ok(())),
        ("no address", RULE, at(0, 32), Err(LaunchError::Null { name })),
        (
            "between two pieces",
            RULE,
            at(0x1008, 32),
            Err(LaunchError::Address { name, address: 0x1008, alignment: 16 }),
        ),
        ("rows that overlap", RULE, at(0x1000, 16), Err(LaunchError::ShortLd { name, ld: 16, needed: 24 })),
        (
            "rows between two pieces",
            RULE,
            at(0x1000, 28),
            Err(LaunchError::Pitch { name, bytes: 56, alignment: 16 }),
        ),
        ("the longest row", RULE, at(0x1000, (1 << 39) - 8), Ok(())),
        (
            "a longer one",
            RULE,
            at(0x1000, 1 << 39),
            Err(LaunchError::Pitch { name, bytes: 1 << 40, alignment: 16 }),
        ),
        ("elements of half a byte", MatrixRule { bits: 4, ..RULE }, at(0x1000, 32), Ok(())),
        (
            "elements of half a byte, between two pieces",
            MatrixRule { bits: 4, ..RULE },
            at(0x1000, 40),
            Err(LaunchError::Pitch { name, bytes: 20, alignment: 16 }),
        ),
    ] {
        assert_eq!(rule.check(matrix), wanted, "{why}");
    }
    // Four lines of 64 bytes and the 48 bytes of the last one end where addresses do.
    let bytes = 4 * 64 + 48;
    let first = 0u64.wrapping_sub(bytes);
    assert_eq!(last(RULE, 32, first), Ok(()));
    let (address, bytes) = (first + 16, u128::from(bytes));
    assert_eq!(last(RULE, 32, address), Err(LaunchError::End { name, address, bytes }));
    // Without lines nothing is accessed but the first one.
    let none = MatrixRule { lines: 0, ..RULE };
    assert_eq!(last(none, 32, 0u64.wrapping_sub(48)), Ok(()));
    assert!(last(none, 32, 0u64.wrapping_sub(32)).is_err());
    assert_eq!(within("A", u64::MAX, 1), Ok(()));
    assert_eq!(within("A", u64::MAX, 2), Err(LaunchError::End { name: "A", address: u64::MAX, bytes: 2 }));
}

#[test]
fn distances() {
    let name = "A";
    let of = |count, stride, address| RULE.batch(count, MatrixRef::new(address, 32).every(stride));
    assert_eq!(of(1, 3, 0x1000), Ok(Batch { count: 1, stride: 0 }), "one has no distance");
    assert_eq!(of(0, 3, 0x1000), Ok(Batch { count: 0, stride: 0 }));
    assert_eq!(of(2, 8, 0x1000), Ok(Batch { count: 2, stride: 8 }));
    assert_eq!(of(3, 0, 0x1000), Ok(Batch { count: 3, stride: 0 }), "one for all");
    let wrong = |bytes| Err(LaunchError::Distance { name, bytes, alignment: 16 });
    assert_eq!(of(2, 4, 0x1000), wrong(8));
    assert_eq!(of(2, (1 << 39) - 8, 0x1000), Ok(Batch { count: 2, stride: (1 << 39) - 8 }));
    assert_eq!(of(2, 1 << 39, 0x1000), wrong(1 << 40));
    // The last one's first element ends where addresses do.
    let first = 0u64.wrapping_sub(2 * 16 + 2);
    assert_eq!(of(3, 8, first), Ok(Batch { count: 3, stride: 8 }));
    assert_eq!(of(4, 8, first), Err(LaunchError::End { name, address: first, bytes: 3 * 16 + 2 }));
}

#[test]
fn extents_become_a_rule() {
    let extents = Extents { bits: 4, length: 24, lines: 5, ld: 99, count: 7, stride: 1000 };
    let MatrixRule { name, contiguous, lines, bits, alignment } = MatrixRule::of("B", &extents, 2);
    assert_eq!((name, contiguous, lines, bits, alignment), ("B", 24, 5, 4, 2));
    let long = MatrixRule::of("B", &Extents { length: 1 << 32, ..extents }, 2);
    assert_eq!(long.contiguous, u32::MAX, "longer than any row");
}

/// C is checked where it is read: beta is not zero, and there are elements.
#[test]
fn sources() {
    let c = MatrixRef::new(0x1001, 40);
    let of =
        |beta, c, extents| check_c(&LinearArguments { beta, c, ..LinearArguments::default() }, 16, extents);
    let between = Err(LaunchError::Address { name: "C", address: 0x1001, alignment: 2 });
    for (why, beta, c, extents, wanted) in [
        ("not read", 0.0, Some(c), [8, 40], Ok(())),
        ("none is needed", 0.0, None, [8, 40], Ok(())),
        ("none", 2.0, None, [8, 40], Err(LaunchError::MissingC { beta: 2.0 })),
        ("none, and no elements", 2.0, None, [0, 40], Err(LaunchError::MissingC { beta: 2.0 })),
        ("no rows", 2.0, Some(c), [0, 40], Ok(())),
        ("no columns", 2.0, Some(c), [8, 0], Ok(())),
        ("between two elements", 2.0, Some(c), [8, 40], between),
        ("legal", 2.0, Some(MatrixRef::new(0x1002, 40)), [8, 40], Ok(())),
        (
            "rows that overlap",
            2.0,
            Some(MatrixRef::new(0x1002, 39)),
            [8, 40],
            Err(LaunchError::ShortLd { name: "C", ld: 39, needed: 40 }),
        ),
    ] {
        assert_eq!(of(beta, c, extents), wanted, "{why}");
    }
}
