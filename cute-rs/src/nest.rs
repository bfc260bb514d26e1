//! Rust tuples as integer tuples.

use crate::int_tuple::{IntTuple, MAX_LEAVES};

/// A value that converts into an [`IntTuple`]: an `i64`, or a Rust tuple of 1 to 8 such values.
///
/// A tuple of more than [`MAX_LEAVES`] integers stops the build.
///
/// ```
/// # use cute_rs::IntTuple;
/// assert_eq!(IntTuple::from(8).to_string(), "8");
/// assert_eq!(IntTuple::from(((8, 16), (64, 1), 0)).to_string(), "((8,16),(64,1),0)");
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` is no nested tuple of `i64`",
    note = "an `IntTuple` is made from an `i64` or from a tuple of 1 to 8 things that are made into one"
)]
pub trait Nest {
    /// The number of integers.
    const LEAVES: usize;

    /// Converts the value into an integer tuple with the same nesting.
    fn nest(self) -> IntTuple;
}

impl Nest for i64 {
    const LEAVES: usize = 1;

    fn nest(self) -> IntTuple {
        IntTuple::int(self)
    }
}

/// Implements [`Nest`] for tuples of these members.
macro_rules! nest_tuples {
    ($($member:ident)+) => {
        impl<$($member: Nest),+> Nest for ($($member,)+) {
            const LEAVES: usize = 0 $(+ $member::LEAVES)+;

            fn nest(self) -> IntTuple {
                const { assert!(Self::LEAVES <= MAX_LEAVES, "an integer tuple holds at most 32 leaves") }
                #[allow(non_snake_case, reason = "members are named by their types")]
                let ($($member,)+) = self;
                match IntTuple::tuple(&[$($member.nest()),+]) {
                    Ok(tuple) => tuple,
                    Err(_) => unreachable!("the leaves were counted, and no type is nested 255 levels deep"),
                }
            }
        }
    };
}

nest_tuples!(A);
nest_tuples!(A B);
nest_tuples!(A B C);
nest_tuples!(A B C D);
nest_tuples!(A B C D E);
nest_tuples!(A B C D E F);
nest_tuples!(A B C D E F G);
nest_tuples!(A B C D E F G H);

impl<T: Nest> From<T> for IntTuple {
    fn from(nested: T) -> Self {
        nested.nest()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_nesting_is_kept() {
        let (two, three) = (IntTuple::int(2), IntTuple::int(3));
        let pair = IntTuple::tuple(&[two, three]).unwrap();
        for (why, got, want) in [
            ("an integer", IntTuple::from(2), Ok(two)),
            ("a tuple of one is not its member", IntTuple::from((2,)), IntTuple::tuple(&[two])),
            ("flat", IntTuple::from((2, 3)), Ok(pair)),
            ("nested on the left", IntTuple::from(((2, 3), 2)), IntTuple::tuple(&[pair, two])),
            (
                "four, nested",
                IntTuple::from((2, (2, 3), 3, (2, 3))),
                IntTuple::tuple(&[two, pair, three, pair]),
            ),
        ] {
            assert_eq!(Ok(got), want, "{why}");
        }
    }

    #[test]
    fn up_to_eight_members() {
        let eight = IntTuple::from((1, 2, 3, (4, 5), 6, 7, 8, 9));
        assert_eq!((eight.rank(), eight.len(), eight.depth()), (8, 9, 2));
        assert_eq!(IntTuple::from((1, 2, 3, 4, 5)).product(), Ok(120));
    }

    #[test]
    fn as_many_leaves_as_fit() {
        let eight = ((1, 2, 3, 4), (5, 6, 7, 8));
        let all = IntTuple::from((eight, eight, eight, eight));
        assert_eq!((all.len(), all.depth()), (MAX_LEAVES, 3));
    }
}
