//! Turns operations on values into types.

use crate::error::LayoutError;
use crate::layout::Layout;
use crate::sentence::Sentence;

/// An operation on layouts as a type, such as `Compose<A, B>` with layout types `A` and `B`.
///
/// This trait is a separate bound for the sake of compiler messages. If a member of the operation is not a
/// layout, the message says so; without the bound it would only say that `LAYOUT` does not exist.
#[diagnostic::on_unimplemented(
    message = "`{Self}` names no layout",
    label = "its members are not what the operation takes",
    note = "where an operation takes a layout, layout types are `Strided<Shape, Stride>`, `ColumnMajor<Shape>`, \
            `RowMajor<Shape>` and combinators of them such as `Compose<A, B>`; a number or a tuple of numbers is a shape"
)]
pub trait Operation {
    /// The layout; or the operation that was tried and the reason why it has no result.
    const RESULT: Result<Layout, Refused>;
}

/// The message of an operation without a result.
#[derive(Clone, Copy)]
#[expect(missing_debug_implementations, reason = "a text in a constant, which only the compiler shows")]
pub struct Refused {
    pub(super) tried: Sentence,
    pub(super) error: LayoutError,
}

/// Declares a layout type whose constant is the result of a `const fn`. Without a result, the build stops
/// with the message.
macro_rules! operations {
    ($($(#[$doc:meta])* $name:ident<$($member:ident: $bound:ident),+> = $result:expr, $tried:expr;)+) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default)]
        pub struct $name<$($member),+>(PhantomData<($($member,)+)>);

        impl<$($member),+> StaticLayout for $name<$($member),+>
        where
            Self: Operation,
        {
            const LAYOUT: Layout = match <Self as Operation>::RESULT {
                Ok(layout) => layout,
                Err(refused) => refuse(refused.tried.text(": "), &refused.error),
            };
        }

        impl<$($member: $bound),+> Operation for $name<$($member),+> {
            const RESULT: Result<Layout, Refused> = match $result {
                Ok(layout) => Ok(layout),
                Err(error) => Err(Refused { tried: $tried, error }),
            };
        }
    )+};
}

pub(super) use operations;
