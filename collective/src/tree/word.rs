//! Nodes that formulas call by a name: each node's file says its own.

use super::value::{CHILD, NodeValue};
use crate::element::Format;

/// What stands for the name of an argument in a [`NodeWord::text`].
pub(crate) const NAME: char = '\u{3}';

/// A node that formulas call by a name.
#[derive(Debug)]
pub(crate) struct NodeWord {
    /// Its name.
    pub(crate) name: &'static str,
    /// What it takes, in this order.
    pub(crate) takes: &'static [Takes],
    pub(crate) node: NodeValue,
    /// D's format, if the word says it around all else.
    pub(crate) output: Option<Format>,
}

/// What a word takes.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Takes {
    /// A value, a child of the node; under this name in errors.
    Value(&'static str),
    /// The name of an argument of the node.
    Name {
        /// What it is the name of: `the scales`.
        of: &'static str,
        /// What the argument is: `the scales of a quantiser`.
        is: &'static str,
    },
}

impl NodeWord {
    /// A word that says no format.
    pub(super) const fn new(name: &'static str, takes: &'static [Takes], node: NodeValue) -> Self {
        Self { name, takes, node, output: None }
    }

    /// How it is written, with marks for values and names.
    pub(crate) fn text(&self) -> String {
        let mark = |takes: &Takes| String::from(if let Takes::Value(_) = takes { CHILD } else { NAME });
        format!("{}({})", self.name, self.takes.iter().map(mark).collect::<Vec<_>>().join(","))
    }
}

impl Takes {
    /// What it is, in errors.
    pub(crate) fn said(&self) -> String {
        match self {
            Self::Value(name) => (*name).to_owned(),
            Self::Name { of, .. } => format!("the name of {of}"),
        }
    }
}
