//! How an operation on values becomes a type.

/// Declares a layout type whose constant is a `const fn`'s result; where there is none, the build stops with the sentence.
macro_rules! operations {
    ($($(#[$doc:meta])* $name:ident<$($member:ident: $bound:ident),+> = $result:expr, $tried:expr;)+) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default)]
        pub struct $name<$($member),+>(PhantomData<($($member,)+)>);

        impl<$($member: $bound),+> StaticLayout for $name<$($member),+> {
            const LAYOUT: Layout = match $result {
                Ok(layout) => layout,
                Err(error) => refuse($tried.text(": "), &error),
            };
        }
    )+};
}

pub(super) use operations;
