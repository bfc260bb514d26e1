//! Checks of flat bodies: labels, branches, and which registers a path has written.
//!
//! A compiler may leave a register unwritten on paths on which its value does not matter, so here a read is a violation only if no
//! path to it writes the register. The emulator finds the others when they happen. A `mov` may copy a register that nothing wrote.

use std::collections::{BTreeMap, VecDeque};

use super::Checker;
use crate::function::{Guard, Statement};
use crate::inst::{Expect, Inst, Operand, Reg};
use crate::types::Type;

/// Statements that are executed one after the other, and what may follow them.
#[derive(Default)]
struct Block<'a> {
    statements: Vec<&'a Statement>,
    next: Vec<usize>,
    /// The registers that some path has written before it; `None` if there is no path to it.
    written: Option<Vec<bool>>,
}

/// A body as a graph of blocks.
struct Graph<'a> {
    blocks: Vec<Block<'a>>,
    /// The block that begins at each label.
    labels: BTreeMap<&'a str, usize>,
}

impl<'a> Graph<'a> {
    fn new(body: &'a [Statement]) -> Self {
        let mut graph = Self { blocks: vec![Block::default()], labels: BTreeMap::new() };
        graph.add(body);
        let last = graph.blocks.len() - 1;
        for (at, block) in graph.blocks.iter_mut().enumerate() {
            let target = block.statements.last().and_then(|statement| statement.target());
            let target = target.and_then(|target| graph.labels.get(&**target).copied());
            let falls = match block.statements.last() {
                Some(Statement::Branch { guard, .. } | Statement::Exit { guard, .. }) => {
                    guard.is_some_and(|guard| guard.always() != Some(true))
                }
                _ => true,
            };
            block.next = target.into_iter().chain((falls && at < last).then_some(at + 1)).collect();
        }
        graph
    }

    fn add(&mut self, statements: &'a [Statement]) {
        for statement in statements {
            if let Statement::Scope { body, .. } = statement {
                self.add(body);
                continue;
            }
            if let Statement::Label(name) = statement {
                self.blocks.push(Block::default());
                self.labels.entry(name).or_insert(self.blocks.len() - 1);
            }
            if let Some(block) = self.blocks.last_mut() {
                block.statements.push(statement);
            }
            if let Statement::Branch { .. } | Statement::Exit { .. } = statement {
                self.blocks.push(Block::default());
            }
        }
    }

    /// Follows every path from the beginning, until nothing more is found to be written.
    fn follow(&mut self, written: Vec<bool>) {
        self.blocks[0].written = Some(written);
        let mut queue = VecDeque::from([0]);
        while let Some(at) = queue.pop_front() {
            let mut after = self.blocks[at].written.clone().unwrap_or_default();
            for statement in &self.blocks[at].statements {
                for inst in statement
                    .blocks()
                    .into_iter()
                    .flatten()
                    .filter_map(Statement::inst)
                    .chain(statement.inst())
                {
                    mark(&mut after, inst);
                }
            }
            for next in self.blocks[at].next.clone() {
                let before = &mut self.blocks[next].written;
                let grows = match before {
                    None => {
                        *before = Some(after.clone());
                        true
                    }
                    Some(before) => {
                        let mut grows = false;
                        for (old, new) in before.iter_mut().zip(&after) {
                            grows |= *new && !*old;
                            *old |= new;
                        }
                        grows
                    }
                };
                if grows && !queue.contains(&next) {
                    queue.push_back(next);
                }
            }
        }
    }
}

fn mark(written: &mut [bool], inst: &Inst) {
    for (reg, _) in inst.operands().writes {
        if let Some(mark) = written.get_mut(reg.0 as usize) {
            *mark = true;
        }
    }
}

impl Checker<'_> {
    /// Checks a flat body. `written` are the registers that count as written at the beginning.
    pub(super) fn flat(&mut self, written: Vec<bool>) {
        let body = &self.function.body;
        let mut graph = Graph::new(body);
        graph.follow(written);
        let mut seen: Vec<&str> = Vec::new();
        for statement in Statement::all(body) {
            if let Statement::Label(name) = statement {
                self.require(!seen.contains(&&**name), || format!("label `{name}` stands twice"));
                seen.push(name);
            }
        }
        let everything = vec![true; self.function.registers.len()];
        for block in &graph.blocks {
            // What no path reaches reads nothing.
            let mut written = block.written.clone().unwrap_or_else(|| everything.clone());
            for statement in &block.statements {
                self.flat_statement(statement, &mut written, &graph.labels);
            }
        }
    }

    fn flat_statement(
        &mut self,
        statement: &Statement,
        written: &mut [bool],
        labels: &BTreeMap<&str, usize>,
    ) {
        match statement {
            Statement::Inst { inst, site } => {
                self.site = Some(site.clone());
                self.flat_inst(inst, written);
            }
            Statement::If { cond, then, otherwise, site } => {
                self.site = Some(site.clone());
                self.read(*cond, Expect::Type(Type::Pred), written);
                for block in [then, otherwise] {
                    for (at, statement) in block.iter().enumerate() {
                        let Statement::Inst { inst, site } = statement else {
                            self.fail("a guard of something else than instructions, among labels".to_owned());
                            continue;
                        };
                        self.site = Some(site.clone());
                        self.flat_inst(inst, written);
                        let last = at + 1 == block.len()
                            && (otherwise.is_empty() || core::ptr::eq(block, otherwise));
                        let changes = |reg: Reg| *cond == Operand::Reg(reg);
                        let changes = inst.operands().writes.iter().any(|&(reg, _)| changes(reg));
                        self.require(last || !changes, || {
                            "a guarded instruction changes the guard of the next".to_owned()
                        });
                    }
                }
            }
            Statement::Branch { guard, target, site } => {
                self.site = Some(site.clone());
                self.guard(*guard, written);
                self.require(labels.contains_key(&**target), || format!("there is no label `{target}`"));
            }
            Statement::Exit { guard, site } => {
                self.site = Some(site.clone());
                self.guard(*guard, written);
            }
            Statement::Loop { site, .. } | Statement::Break { site, .. } => {
                self.site = Some(site.clone());
                self.fail("a loop or a break among labels: branches are needed".to_owned());
            }
            // Its statements are in the blocks.
            Statement::Scope { .. } | Statement::Label(_) => {}
        }
    }

    fn guard(&mut self, guard: Option<Guard>, written: &[bool]) {
        if let Some(guard) = guard {
            self.read(guard.cond, Expect::Type(Type::Pred), written);
        }
    }

    fn flat_inst(&mut self, inst: &Inst, written: &mut [bool]) {
        if let Inst::Move { src: Operand::Reg(Reg(index)), .. } = inst
            && let Some(mark) = written.get_mut(*index as usize)
        {
            *mark = true;
        }
        self.inst(inst, written);
    }
}
