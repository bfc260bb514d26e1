//! Expressions to trees.

use std::collections::BTreeMap;

use super::dialect::{Epilogue, Expr, Index, Place};
use super::kinds::{
    self, ACCUMULATOR, BOUND, CYCLIC, EACH, Function, GATES, LET, LITERAL, REDUCTIONS, SCALAR, STORE, read,
    residual, store, words,
};
use super::own;
use crate::element::Format;
use crate::expression::{self, FormulaError, Operator, stored};
use crate::tree::{self, Argument, Arithmetic, Item, NodeTraits, NodeValue, NodeWord, Takes};

type Is = expression::Is<Epilogue>;

/// A tree, with the traits of its root.
pub(super) struct Root {
    pub(super) items: Vec<Item>,
    pub(super) traits: NodeTraits,
}

/// Lowers an expression whose vectors and matrices have a format unless they say otherwise. Of `s32` or `f64`, the tree
/// computes in that.
pub(super) fn lower(expr: &Expr, format: Format, text: &str) -> Result<Root, FormulaError> {
    let arithmetic = Arithmetic::of(format);
    let (items, bound, used) = (Vec::new(), Vec::new(), BTreeMap::new());
    let mut tree = Lower { text, format, arithmetic, items, bound, used, gated: false };
    let mut root = expr;
    if let Is::Call { name, given } = &expr.is
        && stored(name).is_some()
    {
        [root] = tree.counted(expr, (name, given), ["x"])?.each_ref();
    }
    let traits = tree.expr(root)?;
    if traits.halvings.is_none() {
        return Err(tree.error(expr, "the formula has no `acc`, the element of A * B"));
    }
    Ok(Root { items: tree.items, traits })
}

/// D's format, if the expression says it.
pub(super) fn output(expr: &Expr) -> Option<Format> {
    let Is::Call { name, .. } = &expr.is else { return None };
    let word = tree::words().find(|word| word.name == *name);
    stored(name).or_else(|| word?.output)
}

/// Whether a word is a function of one number, without further arguments.
pub(super) fn is_function(name: &str) -> bool {
    own::function(name).is_some_and(|function| function.node.children() == 1 && function.scalars.is_empty())
}

/// What a name without an index stands for.
const NUMBER: &str = "a number of the host";

struct Lower<'a> {
    text: &'a str,
    format: Format,
    arithmetic: Arithmetic,
    items: Vec<Item>,
    /// The names of enclosing bindings, outermost first.
    bound: Vec<String>,
    /// What the names of arguments stand for.
    used: BTreeMap<String, String>,
    /// Whether the value has twice the columns of D.
    gated: bool,
}

impl Lower<'_> {
    fn error(&self, at: &Expr, reason: impl Into<String>) -> FormulaError {
        FormulaError { text: self.text.to_owned(), column: at.at, reason: reason.into() }
    }

    /// A name of an argument, which is kept for the life of the process. Everywhere it must stand for the
    /// same.
    fn named(&mut self, at: &Expr, name: &str, what: &str) -> Result<&'static str, FormulaError> {
        let gated = if self.gated && what != NUMBER { " inside of a gate" } else { "" };
        let what = format!("{what}{gated}");
        match self.used.get(name) {
            Some(known) if *known != what => {
                let reason = format!("`{name}` is {what} here, and {known} elsewhere: give it another name");
                return Err(self.error(at, reason));
            }
            Some(_) => {}
            None => drop(self.used.insert(name.to_owned(), what)),
        }
        Ok(super::inputs::kept(name))
    }

    fn push(&mut self, node: &'static NodeValue, label: &'static str, inputs: Vec<Argument>) {
        self.items.push(Item { node, number: 0.0, arithmetic: self.arithmetic, label, inputs });
    }

    /// A node with its children, without arguments.
    fn plain(
        &mut self,
        at: &Expr,
        node: &'static NodeValue,
        children: &[&Expr],
    ) -> Result<NodeTraits, FormulaError> {
        self.node(at, node, ("", Vec::new()), children)
    }

    /// A node that has one argument, and its children.
    fn labelled(
        &mut self,
        at: &Expr,
        node: &'static NodeValue,
        label: &'static str,
        children: &[&Expr],
    ) -> Result<NodeTraits, FormulaError> {
        self.node(at, node, (label, vec![Argument::Named(label)]), children)
    }

    /// A node with its children.
    fn node(
        &mut self,
        at: &Expr,
        node: &'static NodeValue,
        (label, inputs): (&'static str, Vec<Argument>),
        children: &[&Expr],
    ) -> Result<NodeTraits, FormulaError> {
        self.push(node, label, inputs);
        let traits: Vec<NodeTraits> =
            children.iter().map(|child| self.expr(child)).collect::<Result<_, _>>()?;
        let traits = (node.traits)(&traits).map_err(|reason| self.error(at, reason))?;
        match self.arithmetic {
            arithmetic if traits.computes_in(arithmetic) => Ok(traits),
            Arithmetic::S32 => Err(self.error(
                at,
                "D is s32, computed in integers, which this is not: read and write s32, s8 or u8, and neither gate nor reduce",
            )),
            Arithmetic::F32 | Arithmetic::F64 => Err(self.error(
                at,
                "D is f64, and this is computed in f32 alone: read any format, write f64 or f32, and neither gate nor reduce",
            )),
        }
    }

    fn expr(&mut self, expr: &Expr) -> Result<NodeTraits, FormulaError> {
        match &expr.is {
            Is::Number(number) => {
                let number = self.number(expr, *number)?;
                let inputs = vec![Argument::Number(number)];
                self.items.push(Item {
                    node: &LITERAL,
                    number,
                    arithmetic: self.arithmetic,
                    label: "",
                    inputs,
                });
                Ok(NodeTraits::LEAF)
            }
            Is::Name(name) => self.name(expr, name),
            Is::Place(place) => self.place(expr, place),
            Is::Call { name, given } => self.call(expr, name, given),
            Is::Binary { operator, of } => self.binary(expr, *operator, &of[0], &of[1]),
            Is::Negative(of) => self.function(expr, "neg", &[of]),
            Is::Not(_) => Err(self.error(expr, "an epilogue has no truths")),
            Is::Let { name, value, body } => {
                if self.bound.contains(name) || self.used.contains_key(name) {
                    return Err(self.error(
                        expr,
                        format!("`{name}` has a meaning already: give the value another name"),
                    ));
                }
                self.push(&LET, "", Vec::new());
                let value = self.expr(value)?;
                self.bound.push(name.clone());
                let body = self.expr(body)?;
                self.bound.pop();
                (LET.traits)(&[value, body]).map_err(|reason| self.error(expr, reason))
            }
        }
    }

    /// A number of the formula, in what the tree computes in.
    fn number(&self, expr: &Expr, number: f64) -> Result<f64, FormulaError> {
        match self.arithmetic {
            Arithmetic::F32 | Arithmetic::F64 => Ok(self.arithmetic.held(number)),
            Arithmetic::S32 if number.fract() == 0.0 && number.abs() < 2f64.powi(31) => Ok(number),
            Arithmetic::S32 => {
                let reason =
                    format!("`{number}` is no integer below 2^31, and D is s32, computed in integers");
                Err(self.error(expr, reason))
            }
        }
    }

    fn name(&mut self, expr: &Expr, name: &str) -> Result<NodeTraits, FormulaError> {
        if name == "acc" {
            return self.plain(expr, &ACCUMULATOR, &[]);
        }
        if name == "c" {
            return Err(self
                .error(expr, "C is read where a number of the host multiplies it: write beta*c, or c[m,n]"));
        }
        if let Some(depth) = self.bound.iter().rev().position(|bound| bound == name) {
            let Some(node) = BOUND.get(depth) else {
                let reason = format!(
                    "`{name}` is bound {} bindings further out: at most {} are legal",
                    depth,
                    BOUND.len() - 1
                );
                return Err(self.error(expr, reason));
            };
            return self.plain(expr, node, &[]);
        }
        let name = self.named(expr, name, NUMBER)?;
        self.labelled(expr, &SCALAR, name, &[])
    }

    fn place(&mut self, expr: &Expr, place: &Place) -> Result<NodeTraits, FormulaError> {
        let format = place.format.unwrap_or(self.format);
        let Some(node) = read(place.index, format) else {
            let columns = CYCLIC.map(|columns| columns.to_string()).join(", ");
            return Err(self.error(expr, format!("a repeated matrix has one of {columns} columns")));
        };
        let name = self.named(expr, &place.name, &place.to_string())?;
        if place.each {
            self.push(&EACH, "", vec![Argument::Named(name)]);
        }
        self.labelled(expr, node, name, &[])
    }

    /// A place that is written.
    fn written(
        &mut self,
        expr: &Expr,
        indices: &[Index],
        needed: &str,
    ) -> Result<(&'static str, Place), FormulaError> {
        let needed =
            || self.error(expr, format!("a place to write to was needed before the value: {needed}"));
        let Is::Place(place) = &expr.is else { return Err(needed()) };
        if place.each {
            return Err(self.error(expr, "what is written is shared by all GEMMs of a launch: leave `l` out"));
        }
        if !indices.contains(&place.index) {
            return Err(needed());
        }
        let name = self.named(expr, &place.name, &format!("written as {place}"))?;
        Ok((name, place.clone()))
    }

    fn binary(
        &mut self,
        expr: &Expr,
        operator: Operator,
        a: &Expr,
        b: &Expr,
    ) -> Result<NodeTraits, FormulaError> {
        match operator {
            Operator::Add => {
                if let (None, Some([x, y])) = (of_c(b), factors(a)) {
                    return self.function(expr, "mul_add", &[x, y, b]);
                }
                if let (None, Some([x, y])) = (of_c(a), factors(b)) {
                    return self.function(expr, "mul_add", &[x, y, a]);
                }
                self.function(expr, "add", &[a, b])
            }
            Operator::Subtract => self.function(expr, "sub", &[a, b]),
            Operator::Divide => self.function(expr, "div", &[a, b]),
            Operator::Multiply => {
                if let Some(beta) = of_c(expr) {
                    if self.bound.contains(beta) {
                        return Err(self.error(
                            expr,
                            format!("C's factor is a number of the host, and `{beta}` is a value"),
                        ));
                    }
                    let beta = self.named(expr, beta, NUMBER)?;
                    let c = self.named(expr, "c", "C")?;
                    let inputs = vec![Argument::Named(beta), Argument::Named(c)];
                    let node =
                        residual(self.format).ok_or_else(|| self.error(expr, "C has no such format"))?;
                    return self.node(expr, node, (c, inputs), &[]);
                }
                let [x, y] = ordered(a, b);
                self.function(expr, "mul", &[x, y])
            }
            Operator::Or
            | Operator::And
            | Operator::Equal
            | Operator::Differs
            | Operator::Less
            | Operator::AtMost
            | Operator::More
            | Operator::AtLeast
            | Operator::Remainder => {
                Err(self.error(expr, format!("an epilogue has no `{}`", operator.sign())))
            }
        }
    }

    /// A function of values, none of its arguments a number of the host.
    fn function(&mut self, expr: &Expr, name: &str, x: &[&Expr]) -> Result<NodeTraits, FormulaError> {
        match own::function(name) {
            Some(function) => {
                self.computes(expr, function)?;
                self.plain(expr, &function.node, x)
            }
            None => Err(self.unknown(expr, name)),
        }
    }

    /// Checks that a function can be computed in what the tree computes in.
    fn computes(&self, expr: &Expr, function: &Function) -> Result<(), FormulaError> {
        self.arithmetic.has((function.needs)()).map_err(|reason| self.error(expr, reason))
    }

    fn unknown(&self, expr: &Expr, name: &str) -> FormulaError {
        let functions = kinds::functions().keys().cloned().chain(own::names());
        let names: Vec<String> = functions.chain(words().map(str::to_owned)).collect();
        let names = names.join(", ");
        self.error(
            expr,
            format!("`{name}` is no function; the functions are {names}, and what Formula::define adds"),
        )
    }

    /// The expressions that are given, if they are as many as needed.
    fn counted<'e, const N: usize>(
        &self,
        expr: &Expr,
        (name, given): (&str, &'e [Expr]),
        needed: [&str; N],
    ) -> Result<&'e [Expr; N], FormulaError> {
        given.try_into().map_err(|_| self.miscounted(expr, (name, given.len()), &needed))
    }

    fn miscounted(&self, expr: &Expr, (name, given): (&str, usize), needed: &[&str]) -> FormulaError {
        let (s, were) = (if needed.len() == 1 { "" } else { "s" }, if given == 1 { "was" } else { "were" });
        let (count, needed) = (needed.len(), needed.join(", "));
        self.error(expr, format!("`{name}` takes {count} argument{s} ({needed}), {given} {were} given"))
    }

    /// Numbers of the host, or of the formula.
    fn scalars(&mut self, given: &[Expr]) -> Result<Vec<Argument>, FormulaError> {
        let mut scalar = |expr: &Expr| {
            if let Is::Number(number) = expr.is {
                return Ok(Argument::Number(self.number(expr, number)?));
            }
            if let Is::Name(name) = &expr.is
                && name != "acc"
                && name != "c"
                && !self.bound.contains(name)
            {
                return Ok(Argument::Named(self.named(expr, name, NUMBER)?));
            }
            Err(self.error(expr, "this is a number for the whole matrix: write a number, or a name of one"))
        };
        given.iter().map(&mut scalar).collect()
    }

    /// A function of values, followed by numbers.
    fn apply(
        &mut self,
        expr: &Expr,
        (name, function): (&str, &'static Function),
        given: &[Expr],
    ) -> Result<NodeTraits, FormulaError> {
        let (children, scalars) = (function.node.children(), function.scalars);
        if given.len() != children + scalars.len() {
            let names: Vec<&str> =
                ["x", "y", "z"].into_iter().take(children).chain(scalars.iter().copied()).collect();
            return Err(self.miscounted(expr, (name, given.len()), &names));
        }
        self.computes(expr, function)?;
        let (x, scalars) = given.split_at(children);
        let inputs = self.scalars(scalars)?;
        let x: Vec<&Expr> = x.iter().collect();
        self.node(expr, &function.node, ("", inputs), &x)
    }

    fn call(&mut self, expr: &Expr, name: &str, given: &[Expr]) -> Result<NodeTraits, FormulaError> {
        // A product and a sum inside of a GELU: its halves are taken of what many elements share.
        if let (Some(fused), [sum]) =
            (name.strip_prefix("gelu_tanh").map(|of| format!("mul_add_gelu_tanh{of}")), given)
            && let Is::Binary { operator: Operator::Add, of } = &sum.is
            && kinds::functions().contains_key(&fused)
        {
            let [a, b] = &**of;
            let parts = match (factors(a), factors(b)) {
                (Some([x, y]), _) if of_c(b).is_none() => Some([x, y, b]),
                (_, Some([x, y])) if of_c(a).is_none() => Some([x, y, a]),
                _ => None,
            };
            if let Some(parts) = parts {
                return self.function(expr, &fused, &parts);
            }
        }
        if let Some(function) = own::function(name) {
            return self.apply(expr, (name, function), given);
        }
        if let Some((_, functions)) = GATES.iter().find(|(order, _)| *order == name) {
            return self.gate(expr, name, functions, given);
        }
        if let Some((_, nodes)) = REDUCTIONS.iter().find(|(known, _)| *known == name) {
            let [to, x] = self.counted(expr, (name, given), ["a place", "x"])?;
            let needed = "a row sums[n], a column sums[m] or a number sum[0]";
            let (label, place) = self.written(to, &[Index::Column, Index::Row, Index::Zero], needed)?;
            if !matches!(place.format, None | Some(Format::F32)) {
                return Err(self.error(to, "values are reduced in f32"));
            }
            let node = match place.index {
                Index::Column => &nodes[0],
                Index::Row => &nodes[1],
                Index::Zero | Index::Both | Index::Cyclic(_) => &nodes[2],
            };
            let mut inputs = vec![Argument::Named(label)];
            if name.starts_with("ordered") {
                let scratch = self.named(to, &format!("{label}_scratch"), "scratch memory")?;
                inputs.push(Argument::Named(scratch));
            }
            return self.node(expr, node, (label, inputs), &[x]);
        }
        if let Some(word) = tree::words().find(|word| word.name == name) {
            return self.word(expr, word, given);
        }
        match name {
            STORE => {
                let [to, x] = self.counted(expr, (name, given), ["a matrix", "x"])?;
                let (label, place) = self.written(to, &[Index::Both], "a matrix aux[m,n]")?;
                let node = store(place.format.unwrap_or(self.format));
                let node = node.ok_or_else(|| self.error(to, "no matrix has such a format"))?;
                self.labelled(expr, node, label, &[x])
            }
            _ if stored(name).is_some() => {
                Err(self.error(expr, format!("`{name}` says D's format: it stands around all else")))
            }
            _ => Err(self.unknown(expr, name)),
        }
    }

    /// A node that is called by a name.
    fn word(
        &mut self,
        expr: &Expr,
        word: &'static NodeWord,
        given: &[Expr],
    ) -> Result<NodeTraits, FormulaError> {
        if given.len() != word.takes.len() {
            let needed: Vec<String> = word.takes.iter().map(Takes::said).collect();
            let needed: Vec<&str> = needed.iter().map(String::as_str).collect();
            return Err(self.miscounted(expr, (word.name, given.len()), &needed));
        }
        let (mut label, mut inputs, mut values) = ("", Vec::new(), Vec::new());
        for (takes, given) in word.takes.iter().zip(given) {
            match (takes, &given.is) {
                (Takes::Value(_), _) => values.push(given),
                (Takes::Name { is, .. }, Is::Name(name)) => {
                    label = self.named(given, name, is)?;
                    inputs.push(Argument::Named(label));
                }
                (Takes::Name { .. }, _) => {
                    return Err(self.error(given, format!("{} was needed, without an index", takes.said())));
                }
            }
        }
        self.node(expr, &word.node, (label, inputs), &values)
    }

    fn gate(
        &mut self,
        expr: &Expr,
        order: &str,
        functions: &'static [Function],
        given: &[Expr],
    ) -> Result<NodeTraits, FormulaError> {
        let names = || functions.iter().map(|function| (function.name)()).collect::<Vec<_>>().join(", ");
        let [gate, rest @ ..] = given else { return Err(self.unknown(expr, order)) };
        let named = if let Is::Name(name) = &gate.is { name.as_str() } else { "" };
        let Some(function) = functions.iter().find(|function| (function.name)() == named) else {
            return Err(self.error(gate, format!("the function of the gate was needed: one of {}", names())));
        };
        self.gated = true;
        let traits = self.apply(expr, (order, function), rest);
        self.gated = false;
        traits
    }
}

/// The factors of a product, that with the accumulator first; `None` for a multiple of C.
fn factors(expr: &Expr) -> Option<[&Expr; 2]> {
    let Is::Binary { operator: Operator::Multiply, of } = &expr.is else { return None };
    if of_c(expr).is_none() { Some(ordered(&of[0], &of[1])) } else { None }
}

/// Two factors, that with the accumulator first.
fn ordered<'e>(a: &'e Expr, b: &'e Expr) -> [&'e Expr; 2] {
    if leads(b) && !leads(a) { [b, a] } else { [a, b] }
}

/// The factor of C, if the expression is a multiple of it.
fn of_c(expr: &Expr) -> Option<&String> {
    let Is::Binary { operator: Operator::Multiply, of } = &expr.is else { return None };
    match [&of[0].is, &of[1].is] {
        [Is::Name(beta), Is::Name(c)] | [Is::Name(c), Is::Name(beta)]
            if c == "c" && beta != "c" && beta != "acc" =>
        {
            Some(beta)
        }
        _ => None,
    }
}

/// Whether an expression has the accumulator in it.
fn leads(expr: &Expr) -> bool {
    match &expr.is {
        Is::Number(_) | Is::Place(_) => false,
        Is::Name(name) => name == "acc",
        Is::Call { given, .. } => given.iter().any(leads),
        Is::Binary { of, .. } => of.iter().any(leads),
        Is::Negative(of) | Is::Not(of) => leads(of),
        Is::Let { value, body, .. } => leads(value) || leads(body),
    }
}
