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

#[cfg(test)]
mod tests {
    use crate::{
        Builder, Entry, Function, Guard, Inst, Name, Operand, Reg, SourceSite, Statement, Target, Type,
    };

    /// A program whose first register is a predicate that is written, and whose second one is a number that is not.
    fn program(flat: Vec<Statement>) -> Function {
        let entry = Entry {
            name: "probe".into(),
            target: Target::Sm90a,
            threads: 32,
            shared_bytes: 0,
            cluster: [1, 1, 1],
        };
        let mut function = Function::build(entry, |f: &Builder| {
            let _first = f.variable(true);
            let _second = f.uninitialised::<u32>();
        });
        function.body.extend(flat);
        function
    }

    fn inst(inst: Inst) -> Statement {
        Statement::Inst { inst, site: SourceSite::caller() }
    }

    fn label(name: &'static str) -> Statement {
        Statement::Label(Name::new(name))
    }

    fn branch(guard: Option<Guard>, target: &'static str) -> Statement {
        Statement::Branch { guard, target: Name::new(target), site: SourceSite::caller() }
    }

    fn write() -> Statement {
        inst(Inst::Move { ty: Type::U32, dst: Reg(1), src: Operand::Imm(0) })
    }

    fn read() -> Statement {
        inst(Inst::Warp(crate::inst::WarpInst::Sleep { nanoseconds: Operand::Reg(Reg(1)) }))
    }

    const GUARD: Option<Guard> = Some(Guard { cond: Operand::Reg(Reg(0)), negated: false });

    #[test]
    fn paths_that_write_are_enough() {
        let site = SourceSite::caller;
        for (why, wanted, body) in [
            ("written on one of two paths", None, vec![branch(GUARD, "a"), write(), label("a"), read()]),
            ("written in the round before", None, vec![label("a"), read(), write(), branch(GUARD, "a")]),
            ("no path writes it", Some("no path has written it"), vec![label("a"), read()]),
            ("written behind", Some("no path has written it"), vec![label("a"), read(), write()]),
            ("no path comes here", None, vec![branch(None, "a"), read(), label("a")]),
            (
                "the path that writes it ends",
                Some("no path has written it"),
                vec![
                    branch(GUARD, "a"),
                    write(),
                    Statement::Exit { guard: None, site: site() },
                    label("a"),
                    read(),
                ],
            ),
            (
                "a copy",
                None,
                vec![label("a"), inst(Inst::Move { ty: Type::U32, dst: Reg(1), src: Operand::Reg(Reg(1)) })],
            ),
        ] {
            let result = program(body).verify();
            match (&result, wanted) {
                (Ok(_), None) => {}
                (Err(error), Some(wanted)) => assert!(error.to_string().contains(wanted), "{why}: {error}"),
                _ => panic!("{why}: {result:?}"),
            }
        }
    }

    #[test]
    fn forms_of_flat_bodies() {
        let site = SourceSite::caller;
        let guarded = |then: Vec<Statement>| Statement::If {
            cond: Operand::Reg(Reg(0)),
            then,
            otherwise: Vec::new(),
            site: site(),
        };
        let changes = || inst(Inst::Move { ty: Type::Pred, dst: Reg(0), src: Operand::Imm(0) });
        for (wanted, body) in [
            ("there is no label `b`", vec![label("a"), branch(None, "b")]),
            ("label `a` stands twice", vec![label("a"), label("a")]),
            (
                "a loop or a break among labels",
                vec![label("a"), Statement::Loop { body: Vec::new(), site: site() }],
            ),
            ("a guard of something else than instructions", vec![guarded(vec![label("a")])]),
            ("changes the guard of the next", vec![label("a"), guarded(vec![changes(), write()])]),
            (
                "register %r1 is .u32 where .pred is needed",
                vec![label("a"), branch(Some(Guard { cond: Operand::Reg(Reg(1)), negated: true }), "a")],
            ),
        ] {
            let error = program(body).verify().expect_err(wanted);
            assert!(error.to_string().contains(wanted), "{wanted}: {error}");
        }
        let legal = vec![label("a"), guarded(vec![write(), changes()])];
        let text = crate::module_text(&program(legal).verify().expect("the last one may change it"));
        assert!(text.contains("@%p0 mov.u32 %r1, 0;\n\t@%p0 mov.pred %p0, 0;"), "{text}");
    }

    /// What is printed as several lines cannot be guarded: the other threads jump over it.
    #[test]
    fn several_lines_are_jumped_over() {
        let order = crate::MbarrierOrder::CTA;
        let wait = Inst::MbarrierWait { barrier: Operand::Imm(0), parity: Operand::Imm(0), order };
        let then = vec![inst(wait)];
        let cond = Operand::Reg(Reg(0));
        let guarded = Statement::If { cond, then, otherwise: Vec::new(), site: SourceSite::caller() };
        let text = crate::module_text(&program(vec![label("a"), guarded]).verify().expect("legal"));
        assert!(text.contains("\t@!%p0 bra $over_1;\n\t{\n\t.reg .pred %done;\n$wait:\n"), "{text}");
        assert!(text.contains("\t@!%done bra $wait;\n\t}\n$over_1:\n"), "{text}");
    }
}
