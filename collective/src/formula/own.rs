//! Functions of your own in formulas.

use std::any::TypeId;
use std::collections::BTreeMap;

use super::dialect::Epilogue;
use super::kinds::{self, Function, functions};
use super::{Formula, FormulaError};
use crate::expression::{Dialect as _, formats};
use crate::functions::{Gradient, Pointwise};
use crate::process::Locked;
use crate::real::Needs;
use crate::tree::{AnyNode, Compute, NodeValue, combined};

/// A function that formulas can have: of one, two or three numbers. Every [`Pointwise`] of them is.
#[diagnostic::on_unimplemented(
    message = "formulas have no functions of {INPUTS} numbers",
    note = "define a function of one, two or three numbers"
)]
pub trait FormulaFunction<const INPUTS: usize>: Pointwise<INPUTS> {
    /// The nodes that it adds: itself, and for a function of one number its gradient.
    #[doc(hidden)]
    fn nodes() -> Vec<OwnFunction>;
}

/// A node that a function adds to formulas.
#[doc(hidden)]
pub struct OwnFunction(Function);

impl core::fmt::Debug for OwnFunction {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_tuple("OwnFunction").field(&(self.0.name)()).finish()
    }
}

macro_rules! function {
    ($f:ty: $n:literal ($($x:ident),+)) => {{
        let children = vec!["AnyNode"; $n].join(", ");
        let comma = if $n == 1 { "," } else { "" };
        let rust = format!("Compute<{}, ({children}{comma})>", core::any::type_name::<$f>());
        OwnFunction(Function {
            name: <$f as Pointwise<$n>>::name,
            scalars: <$f as Pointwise<$n>>::ARGUMENTS,
            needs: Needs::of::<$f, $n>,
            node: NodeValue::of::<Compute<$f, ($($x,)+)>>(
                super::inputs::kept(&rust),
                combined::<Compute<$f, ($($x,)+)>>,
            ),
        })
    }};
}
macro_rules! own {
    ($($n:literal ($($x:ident),+) $(and $gradient:ty)?;)*) => {$(
        impl<F: Pointwise<$n>> FormulaFunction<$n> for F {
            fn nodes() -> Vec<OwnFunction> {
                let itself = function!(F: $n ($($x),+));
                vec![itself $(, function!($gradient: 2 (AnyNode, AnyNode)))?]
            }
        }
    )*};
}

own! {
    1 (AnyNode) and Gradient<F>;
    2 (AnyNode, AnyNode);
    3 (AnyNode, AnyNode, AnyNode);
}

/// The functions that were defined, by name, with their types.
static OWN: Locked<BTreeMap<String, (TypeId, &'static Function)>> = Locked::new(BTreeMap::new());

/// The function of a formula with this name.
pub(super) fn function(name: &str) -> Option<&'static Function> {
    let own = || OWN.lock().get(name).map(|(_, function)| *function);
    functions().get(name).copied().or_else(own)
}

/// The names of the functions that were defined.
pub(super) fn names() -> Vec<String> {
    OWN.lock().keys().cloned().collect()
}

/// How a node that was defined is written.
pub(super) fn words(node: &str) -> Option<String> {
    let own = OWN.lock();
    let (name, (_, function)) = own.iter().find(|(_, (_, function))| (function.node.name)() == node)?;
    Some(super::spelled::call(name, function.node.children(), function.scalars.len()))
}

impl Formula {
    /// Gives formulas a function of your own under its [name](Pointwise::name), for the life of the process. What a formula
    /// computes on the device and what its check expects are both this function. A function of one number also brings its
    /// derivative: `d_name(gradient, x)`.
    ///
    /// ```
    /// use collective::{Formula, Pointwise, Real};
    ///
    /// /// `x / (1 + |x| / width)`.
    /// struct Squash;
    /// impl Pointwise for Squash {
    ///     type Arguments = f64;
    ///     const ARGUMENTS: &'static [&'static str] = &["width"];
    ///     fn name() -> String {
    ///         "squash".into()
    ///     }
    ///     fn apply<R: Real>(width: R, [x]: [R; 1]) -> R {
    ///         x / (x.abs() / width).plus(1.0)
    ///     }
    /// }
    ///
    /// assert!("squash(acc + bias[n], 4)".parse::<Formula>().is_err());
    /// Formula::define::<Squash, 1>()?;
    /// let formula: Formula = "squash(acc + bias[n], 4)".parse()?;
    /// # Ok::<(), collective::FormulaError>(())
    /// ```
    ///
    /// # Errors
    /// The name is no word of letters, digits and `_`, or has a meaning already.
    pub fn define<F: FormulaFunction<INPUTS> + 'static, const INPUTS: usize>() -> Result<(), FormulaError> {
        let of = TypeId::of::<(F, [(); INPUTS])>();
        let mut own = OWN.lock();
        for OwnFunction(function) in F::nodes() {
            let name = (function.name)();
            let refused =
                |reason: &str| FormulaError { text: name.clone(), column: 0, reason: reason.to_owned() };
            let word = name.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_')
                && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
            if !word {
                return Err(refused("a function's name is a word of letters, digits and `_`"));
            }
            let others = Epilogue::RESERVED.iter().copied().chain(formats().map(|format| format.name()));
            let mut others = others.chain(kinds::words());
            let known = own.get(&name).is_some_and(|(known, _)| *known != of);
            if known || functions().contains_key(&name) || others.any(|other| other == name) {
                return Err(refused("the name has a meaning in formulas already: give the function another"));
            }
            own.entry(name).or_insert_with(|| (of, Box::leak(Box::new(function))));
        }
        Ok(())
    }
}
