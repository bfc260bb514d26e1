//! Trees of types as text.

use std::collections::BTreeMap;

use super::Formula;
use super::dialect::{Index, Place};
use super::kinds::{
    ACCUMULATOR, BOUND, CYCLIC, EACH, GATES, LET, REDUCTIONS, SCALAR, STORE, functions, item_name, read,
    residual, store,
};
use super::own;
use crate::expression::formats;
use crate::process::Once;
use crate::tree::{self, CHILD, NAME, Node, NodeValue, Spell};

impl Formula {
    /// The formula of a tree of types; `None` if it has a node of your own, or a number with more digits than a formula's
    /// name for it has. Arguments that the types do not [name](crate::tree::Named) are `x0`, `x1` and so on.
    ///
    /// ```
    /// use collective::Formula;
    /// use collective::functions::{Gelu, MultiplyAdd};
    /// use collective::tree::{Accumulator, Compute, RowVector, Scalar};
    /// use half::bf16;
    ///
    /// type Layer = Compute<Gelu, (Compute<MultiplyAdd, (Accumulator, Scalar, RowVector<bf16>)>,)>;
    /// let formula = Formula::of_tree::<Layer>().expect("nodes of the library");
    /// assert_eq!(formula.text(), "gelu(acc*x0+x1[n]:bf16)");
    /// ```
    pub fn of_tree<X: Node>() -> Option<Self> {
        let mut spelled = Spell::default();
        X::spell(&mut spelled);
        let nodes: Vec<&str> = spelled.nodes.iter().map(|(node, _)| node.as_str()).collect();
        let same = |formula: &Self| {
            let same = |tree: &super::Tree| tree.items.iter().map(item_name).eq(nodes.iter().copied());
            formula.0.trees.iter().flatten().any(same)
        };
        if spelled.unknown {
            return None;
        }
        if let Some(named) = Self::all().find(same) {
            return Some(named);
        }
        // Operators say the same as functions, unless they would join nodes that the types keep apart.
        [true, false].into_iter().find_map(|operators| {
            let mut writer = Writer { nodes: spelled.nodes.iter(), names: 0, bound: Vec::new(), operators };
            Self::read(&writer.next()?).ok().filter(same)
        })
    }
}

/// How each node of the library is written: its name as text, with marks for children and arguments.
fn words() -> &'static BTreeMap<String, String> {
    static KNOWN: Once<BTreeMap<String, String>> = Once::new();
    KNOWN.get_or_init(word_table)
}

fn word_table() -> BTreeMap<String, String> {
    let mut words = BTreeMap::new();
    let mut say = |node: &NodeValue, text: String| drop(words.insert((node.name)(), text));
    for (name, function) in functions() {
        say(&function.node, call(name, function.node.children(), function.scalars.len()));
    }
    for (order, functions) in &GATES {
        for function in *functions {
            let scalars = format!(",{NAME}").repeat(function.scalars.len());
            say(&function.node, format!("{order}({},{CHILD}{scalars})", (function.name)()));
        }
    }
    let index = [Index::Zero, Index::Column, Index::Row, Index::Both].into_iter();
    for index in index.chain(CYCLIC.map(Index::Cyclic)) {
        for format in formats() {
            let place = Place { name: NAME.to_string(), each: false, index, format: Some(format) };
            read(index, format).into_iter().for_each(|node| say(node, place.to_string()));
        }
    }
    for format in formats() {
        residual(format).into_iter().for_each(|node| say(node, format!("({NAME}*c)")));
        let aux = format!("{STORE}({NAME}[m,n]:{format},{CHILD})");
        store(format).into_iter().for_each(|node| say(node, aux.clone()));
    }
    for (name, nodes) in &REDUCTIONS {
        for (node, index) in nodes.iter().zip(["n", "m", "0"]) {
            say(node, format!("{name}({NAME}[{index}],{CHILD})"));
        }
    }
    tree::words().for_each(|word| say(&word.node, word.text()));
    say(&ACCUMULATOR, "acc".to_owned());
    say(&SCALAR, NAME.to_string());
    words
}

/// A function as it is called.
pub(super) fn call(name: &str, children: usize, scalars: usize) -> String {
    let given = core::iter::repeat_n(CHILD, children).chain(core::iter::repeat_n(NAME, scalars));
    format!("{name}({})", given.map(String::from).collect::<Vec<_>>().join(","))
}

/// Functions as operators.
const OPERATORS: [(&str, &str); 6] = [
    ("add(", "(\u{1}+\u{1})"),
    ("sub(", "(\u{1}-\u{1})"),
    ("mul(", "(\u{1}*\u{1})"),
    ("div(", "(\u{1}/\u{1})"),
    ("neg(", "-(\u{1})"),
    ("mul_add(", "(\u{1}*\u{1}+\u{1})"),
];

struct Writer<'a> {
    nodes: core::slice::Iter<'a, (String, Option<&'static str>)>,
    /// Number of arguments without a name.
    names: u32,
    /// The names of enclosing bindings, outermost first.
    bound: Vec<String>,
    operators: bool,
}

impl Writer<'_> {
    fn name(&mut self) -> String {
        self.names += 1;
        format!("x{}", self.names - 1)
    }

    /// The next node, with its children.
    fn next(&mut self) -> Option<String> {
        let (node, label) = self.nodes.next()?;
        if *node == (LET.name)() {
            let (name, value) = (self.name(), self.next()?);
            self.bound.push(name.clone());
            let body = self.next()?;
            self.bound.pop();
            return Some(format!("({name}={value};{body})"));
        }
        if let Some(depth) = BOUND.iter().position(|bound| *node == (bound.name)()) {
            return self.bound.iter().rev().nth(depth).cloned();
        }
        if *node == (EACH.name)() {
            return Some(self.next()?.replacen('[', "[l,", 1));
        }
        if let Some((n, d)) = node.split_once('d')
            && let (Ok(n), Ok(d)) = (n.parse::<u32>(), d.parse::<u32>())
        {
            return Some((f64::from(n) / f64::from(d)).to_string());
        }
        let own = own::words(node);
        let words = words().get(node).or(own.as_ref())?;
        let operator = OPERATORS.iter().find(|(call, _)| self.operators && words.starts_with(call));
        let words = operator.map_or(words.as_str(), |(_, operator)| operator);
        let mut text = String::new();
        for character in words.chars() {
            match (character, label) {
                (CHILD, _) => text.push_str(&self.next()?),
                (NAME, Some(label)) => text.push_str(&label.replace(' ', "_")),
                (NAME, None) => text.push_str(&self.name()),
                _ => text.push(character),
            }
        }
        Some(text)
    }
}
