//! Names: of nodes in error messages, and of a tree's arguments.

use core::marker::PhantomData;

use super::{Begin, Bounded, Given, Host, Node, NodeTraits, Shape, Site, Spell, Supplied, Supply};

/// A name as a type.
pub trait Label: 'static {
    /// The name.
    const NAME: &'static str;
}

/// X, named `L` in error messages instead of by its path.
#[derive(Clone, Copy, Debug)]
pub struct Named<L, X>(PhantomData<(L, X)>);

impl<L: Label, X: Node> Node for Named<L, X> {
    type Arguments = X::Arguments;
    const TRAITS: NodeTraits = X::TRAITS;

    fn name() -> String {
        X::name()
    }

    fn spell(out: &mut Spell) {
        out.named(L::NAME);
        X::spell(out);
    }

    fn visit(arguments: &mut X::Arguments, shape: Shape, site: &mut Site<'_>) {
        X::visit(arguments, shape, &mut site.named([L::NAME; 2]));
    }

    fn device<'f>(given: &mut Given<'f>) -> Begin<'f> {
        X::device(given)
    }

    fn evaluate(host: &mut Host<'_>, arguments: &X::Arguments, at: [u32; 2]) -> Bounded {
        X::evaluate(host, arguments, at)
    }
}

impl<L: Label, X: Supplied> Supplied for Named<L, X> {
    fn supply(from: &mut dyn Supply, shape: Shape) -> Self::Arguments {
        X::supply(from, shape)
    }
}

/// Defines types that are names: `labels! { pub Bias = "bias"; }`.
#[macro_export]
macro_rules! labels {
    ($($(#[$doc:meta])* $vis:vis $name:ident = $text:literal;)*) => {$(
        #[doc = concat!("The name `", $text, "`.")]
        $(#[$doc])*
        #[derive(Clone, Copy, Debug)]
        $vis struct $name;
        impl $crate::tree::Label for $name {
            const NAME: &'static str = $text;
        }
    )*};
}

/// Defines a node of a tree whose arguments are a struct with named fields, and says where each of them is among
/// the tree's arguments.
///
/// ```
/// use collective::functions::{Add, Tanh};
/// use collective::tree::{Accumulator, Compute, Named, Node, RowArgument, RowVector};
///
/// collective::labels! {
///     Bias = "bias";
/// }
/// collective::epilogue! {
///     /// `tanh(acc + bias)`.
///     pub struct BiasTanh<T>: Compute<Tanh, (Compute<Add, (Accumulator, Named<Bias, RowVector<T>>)>,)>;
///     arguments RowArgument, [bias] = ((), (((), ((), bias)),));
/// }
/// assert_eq!(BiasTanh::<half::bf16>::name(), "tanh_add_acc_rbf16");
/// ```
#[macro_export]
macro_rules! epilogue {
    ($(
        $(#[$doc:meta])* $vis:vis struct $name:ident $(<$t:ident>)? : $tree:ty;
        arguments $arguments:ty, [$($pattern:tt)+] = $tuple:tt;
    )*) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, Debug)]
        $vis struct $name $(<$t>(::core::marker::PhantomData<$t>))?;

        impl $(<$t: $crate::Element>)? $name $(<$t>)? {
            fn of_tree(given: &$arguments) -> <$tree as $crate::tree::Node>::Arguments {
                let $($pattern)+ = *given;
                $tuple
            }
        }

        impl $(<$t: $crate::Element>)? $crate::tree::Node for $name $(<$t>)? {
            type Arguments = $arguments;
            const TRAITS: $crate::tree::NodeTraits = <$tree as $crate::tree::Node>::TRAITS;

            fn name() -> String {
                <$tree as $crate::tree::Node>::name()
            }

            fn spell(out: &mut $crate::tree::Spell) {
                <$tree as $crate::tree::Node>::spell(out);
            }

            fn visit(
                given: &mut $arguments,
                shape: $crate::tree::Shape,
                site: &mut $crate::tree::Site<'_>,
            ) {
                let mut arguments = Self::of_tree(given);
                <$tree as $crate::tree::Node>::visit(&mut arguments, shape, site);
                let $tuple = arguments;
                *given = $($pattern)+;
            }

            fn device<'f>(given: &mut $crate::tree::Given<'f>) -> $crate::tree::Begin<'f> {
                <$tree as $crate::tree::Node>::device(given)
            }
            fn evaluate(
                host: &mut $crate::tree::Host<'_>,
                arguments: &$arguments,
                at: [u32; 2],
            ) -> $crate::tree::Bounded {
                <$tree as $crate::tree::Node>::evaluate(host, &Self::of_tree(arguments), at)
            }
        }
    )*};
}
