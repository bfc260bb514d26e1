//! A tree of types as the list of its nodes, from which a formula is made.

use super::Node;
use super::value::CHILD;

/// The nodes of a tree of types, each before its children.
#[derive(Clone, Debug, Default)]
pub struct Spell {
    /// The names of the nodes, with [`CHILD`] for each child, and the names of their arguments.
    pub(crate) nodes: Vec<(String, Option<&'static str>)>,
    /// Whether a node cannot be written down.
    pub(crate) unknown: bool,
    label: Option<&'static str>,
}

impl Spell {
    /// Adds a node whose children have these names. They end its name, in order.
    pub fn node<N: Node>(&mut self, children: &[String]) {
        let name = N::name();
        let (mut head, mut tail) = (name.as_str(), String::new());
        for child in children.iter().rev() {
            let Some(before) = head.strip_suffix(child.as_str()) else {
                self.unknown = true;
                return;
            };
            let cut = before.strip_suffix("_in_").or(before.strip_suffix('_')).unwrap_or(before);
            tail = format!("{}{CHILD}{tail}", &before[cut.len()..]);
            head = cut;
        }
        self.nodes.push((format!("{head}{tail}"), self.label.take()));
    }

    /// Names the argument of the next node.
    pub fn named(&mut self, label: &'static str) {
        self.label = Some(label);
    }

    /// Says that no formula has the node.
    pub fn unknown(&mut self) {
        self.unknown = true;
    }
}
