//! Which statements may follow which, and which ones a branch decides on.
//!
//! Statements have the numbers of [`Statement::all`]: those of a block and of the blocks in it, in pre-order.

use std::collections::{BTreeSet, HashMap};

use ptx::inst::Reg;
use ptx::{Name, Statement};

use super::kinds::register;

/// A statement.
pub(super) struct Node<'f> {
    pub(super) statement: &'f Statement,
    /// The conditions of the blocks around it.
    pub(super) guards: Vec<Reg>,
    /// The statements that may follow; the number of all statements for the end.
    next: Vec<usize>,
}

impl Node<'_> {
    /// The register that decides what follows.
    pub(super) fn decides(&self) -> Option<Reg> {
        match self.statement {
            Statement::If { cond, .. } | Statement::Break { cond, .. } => register(*cond),
            Statement::Branch { guard, .. } | Statement::Exit { guard, .. } => register((*guard)?.cond),
            Statement::Inst { .. }
            | Statement::Loop { .. }
            | Statement::Scope { .. }
            | Statement::Label(_) => None,
        }
    }
}

/// The statements of a program.
pub(super) struct Flow<'f> {
    pub(super) nodes: Vec<Node<'f>>,
    /// For each statement, the first one that all ways from it to the end go through. The end's is itself.
    meet: Vec<Option<usize>>,
}

impl<'f> Flow<'f> {
    pub(super) fn new(body: &'f [Statement]) -> Self {
        let mut making = Making::default();
        let last = making.block(body, Vec::new(), &[]);
        let end = making.nodes.len();
        last.into_iter().for_each(|node| making.nodes[node].next.push(end));
        for node in making.ends {
            making.nodes[node].next.push(end);
        }
        for (node, target) in making.branches {
            let target = making.labels.get(target).copied().unwrap_or(end);
            making.nodes[node].next.push(target);
        }
        let mut flow = Self { nodes: making.nodes, meet: Vec::new() };
        flow.meet = flow.meets();
        flow
    }

    /// The statements that may follow one; the number of all for the end.
    pub(super) fn next(&self, node: usize) -> &[usize] {
        self.nodes.get(node).map_or(&[], |node| &node.next)
    }

    /// The statements that are executed or not, and how often, as a branch decides.
    pub(super) fn decided(&self, branch: usize) -> BTreeSet<usize> {
        let decided = self.until(branch, self.meet[branch]);
        // Some threads never come to where the others go on.
        let is_endless = decided.iter().any(|&node| self.meet[node].is_none());
        if is_endless { self.until(branch, None) } else { decided }
    }

    /// The statements between two.
    fn until(&self, branch: usize, stop: Option<usize>) -> BTreeSet<usize> {
        let mut between = BTreeSet::new();
        let mut left = self.next(branch).to_vec();
        while let Some(node) = left.pop() {
            if Some(node) != stop && node < self.nodes.len() && between.insert(node) {
                left.extend_from_slice(self.next(node));
            }
        }
        between
    }

    /// Whether a statement may be executed again without one outside of a set.
    pub(super) fn repeats(&self, node: usize, within: &BTreeSet<usize>) -> bool {
        let (mut seen, mut left) = (BTreeSet::new(), self.next(node).to_vec());
        while let Some(other) = left.pop() {
            if other == node {
                return true;
            }
            if within.contains(&other) && seen.insert(other) {
                left.extend_from_slice(self.next(other));
            }
        }
        false
    }

    /// Immediate postdominators. Source: Cooper, Harvey, Kennedy, "A simple, fast dominance algorithm", on the reversed graph.
    fn meets(&self) -> Vec<Option<usize>> {
        let end = self.nodes.len();
        let mut before = vec![Vec::new(); end + 1];
        for (node, inner) in self.nodes.iter().enumerate() {
            inner.next.iter().for_each(|&next| before[next].push(node));
        }
        // The order in which ways back from the end leave the statements.
        let (mut order, mut place) = (Vec::new(), vec![None; end + 1]);
        let (mut seen, mut stack) = (vec![false; end + 1], vec![(end, 0)]);
        seen[end] = true;
        while let Some((node, tried)) = stack.pop() {
            if let Some(&other) = before[node].get(tried) {
                stack.push((node, tried + 1));
                if !seen[other] {
                    seen[other] = true;
                    stack.push((other, 0));
                }
            } else {
                place[node] = Some(order.len());
                order.push(node);
            }
        }
        let mut meet = vec![None; end + 1];
        meet[end] = Some(end);
        let common = |meet: &[Option<usize>], mut a: usize, mut b: usize| {
            while a != b {
                let lower = if place[a] < place[b] { &mut a } else { &mut b };
                *lower = meet[*lower].unwrap_or(end);
            }
            a
        };
        loop {
            let mut changed = false;
            for &node in order.iter().rev().filter(|&&node| node != end) {
                let known = self.nodes[node].next.iter().copied().filter(|&next| meet[next].is_some());
                let new = known.reduce(|a, b| common(&meet, a, b));
                changed |= new != meet[node];
                meet[node] = new;
            }
            if !changed {
                return meet;
            }
        }
    }
}

#[derive(Default)]
struct Making<'f> {
    nodes: Vec<Node<'f>>,
    labels: HashMap<&'f Name, usize>,
    branches: Vec<(usize, &'f Name)>,
    /// Statements that may end the thread.
    ends: Vec<usize>,
    /// The breaks of the open loops, innermost last.
    breaks: Vec<Vec<usize>>,
}

impl<'f> Making<'f> {
    /// Adds a block that follows some statements, and returns those that what comes after it follows.
    fn block(&mut self, block: &'f [Statement], mut from: Vec<usize>, guards: &[Reg]) -> Vec<usize> {
        for statement in block {
            let node = self.nodes.len();
            from.iter().for_each(|&before| self.nodes[before].next.push(node));
            self.nodes.push(Node { statement, guards: guards.to_vec(), next: Vec::new() });
            from = self.statement(statement, node, guards);
        }
        from
    }

    fn statement(&mut self, statement: &'f Statement, node: usize, guards: &[Reg]) -> Vec<usize> {
        match statement {
            Statement::Inst { .. } => vec![node],
            Statement::If { cond, then, otherwise, .. } => {
                let inner: Vec<Reg> = guards.iter().copied().chain(register(*cond)).collect();
                let mut last = self.block(then, vec![node], &inner);
                last.extend(self.block(otherwise, vec![node], &inner));
                last
            }
            Statement::Loop { body, .. } => {
                self.breaks.push(Vec::new());
                let last = self.block(body, vec![node], guards);
                last.into_iter().for_each(|last| self.nodes[last].next.push(node));
                self.breaks.pop().unwrap_or_default()
            }
            Statement::Break { .. } => {
                self.breaks.last_mut().into_iter().for_each(|breaks| breaks.push(node));
                vec![node]
            }
            Statement::Scope { body, .. } => self.block(body, vec![node], guards),
            Statement::Label(name) => {
                self.labels.insert(name, node);
                vec![node]
            }
            Statement::Branch { guard, target, .. } => {
                self.branches.push((node, target));
                guard.iter().map(|_| node).collect()
            }
            Statement::Exit { guard, .. } => {
                self.ends.push(node);
                guard.iter().map(|_| node).collect()
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use ptx::read::{Launch, Module};

    use super::Flow;

    /// The lines of the statements that the branch in a line decides on.
    fn decided(body: &str, line: u32) -> Vec<u32> {
        let text = format!(
            ".version 8.0\n.target sm_90a\n.address_size 64\n.visible .entry k()\n.reqntid 32, 1, 1\n{{ .reg .pred %p<9>; .reg .b32 %r<9>;\n{body}\nret; }}"
        );
        let module = Module::parse(&text, "k").expect("read");
        let function = module.entry("k", &Launch::default()).expect("an entry");
        let flow = Flow::new(&function.body);
        let line_of = |statement: &ptx::Statement| match statement {
            ptx::Statement::Inst { site, .. }
            | ptx::Statement::Branch { site, .. }
            | ptx::Statement::Exit { site, .. } => site.line() - 6,
            ptx::Statement::If { .. }
            | ptx::Statement::Break { .. }
            | ptx::Statement::Loop { .. }
            | ptx::Statement::Scope { .. }
            | ptx::Statement::Label(_) => 0,
        };
        let branch = flow.nodes.iter().position(|node| {
            matches!(node.statement, ptx::Statement::Branch { .. }) && line_of(node.statement) == line
        });
        let nodes = flow.decided(branch.expect("a branch"));
        let mut lines: Vec<u32> = nodes.iter().map(|&node| line_of(flow.nodes[node].statement)).collect();
        lines.retain(|&line| line != 0);
        lines
    }

    #[test]
    fn a_branch_decides_on_what_is_not_on_all_ways() {
        let forward = "@%p1 bra $a;\nmov.u32 %r1, 1;\n$a:\nmov.u32 %r2, 2;";
        assert_eq!(decided(forward, 1), [2]);
        let back = "$a:\nmov.u32 %r1, 1;\n@%p1 bra $a;\nmov.u32 %r2, 2;";
        assert_eq!(decided(back, 3), [2, 3]);
        let poll = "@%p1 bra $c;\n$a:\nmov.u32 %r1, 1;\n@%p2 bra $b;\nbra $a;\n$b:\n$c:\nmov.u32 %r2, 2;";
        assert_eq!(decided(poll, 1), [3, 4, 5]);
        assert_eq!(decided(poll, 4), [3, 4, 5]);
        // Without an end, everything that follows is decided on.
        assert_eq!(decided("@%p1 bra $a;\nret;\n$a:\nmov.u32 %r1, 1;\nbra $a;", 1), [2, 4, 5]);
    }
}
