//! Lowers the flat form of a function: a linear list of operations, and the graph of its blocks.
//!
//! A block at which several paths meet begins with an operation at which lanes wait for others of their warp
//! ([`Action::Meet`]). Lanes come to the first block of a loop by branches only, which count its rounds.

use std::collections::BTreeMap;

use ptx::inst::Inst;
use ptx::{Guard, Name, SourceSite, Statement};

use crate::graph::Graph;
use crate::program::{Action, Edge, Operation, Scope};

/// A step of the program before its blocks are known. Targets are indices of steps.
enum Step {
    Inst(Inst),
    /// An instruction of the lanes for which a condition holds.
    Guarded(Guard, Inst),
    Branch(Option<Guard>, Target),
    /// The end of the program, or one that is stated.
    Exit(bool),
}

enum Target {
    Label(Name),
    Step(usize),
}

/// What becomes of a body.
pub(crate) struct Lowered {
    pub(crate) ops: Vec<Operation>,
    pub(crate) scopes: Vec<Scope>,
    pub(crate) graph: Graph,
}

#[derive(Default)]
struct Lowering {
    steps: Vec<(Step, Option<SourceSite>, usize)>,
    labels: BTreeMap<Name, usize>,
    scopes: Vec<Scope>,
    scope: usize,
}

/// Lowers a flat body.
pub(crate) fn lower(body: &[Statement]) -> Lowered {
    let root = Scope { name: Name::new(""), parent: 0 };
    let mut lowering = Lowering { scopes: vec![root], ..Lowering::default() };
    lowering.block(body);
    lowering.push(Step::Exit(false), None);
    lowering.finish()
}

impl Lowering {
    fn push(&mut self, step: Step, site: Option<&SourceSite>) {
        self.steps.push((step, site.cloned(), self.scope));
    }

    fn block(&mut self, statements: &[Statement]) {
        for statement in statements {
            match statement {
                Statement::Inst { inst, site } => self.push(Step::Inst(inst.clone()), Some(site)),
                Statement::If { cond, then, otherwise, site } => {
                    for (block, negated) in [(then, false), (otherwise, true)] {
                        let guard = Guard { cond: *cond, negated };
                        for inst in block.iter().filter_map(Statement::inst) {
                            self.guarded(guard, Step::Inst(inst.clone()), site);
                        }
                    }
                }
                Statement::Branch { guard, target, site } => {
                    let target = Target::Label(target.clone());
                    match guard.map(|guard| (guard, guard.always())) {
                        Some((_, Some(false))) => {}
                        Some((guard, None)) => self.push(Step::Branch(Some(guard), target), Some(site)),
                        Some((_, Some(true))) | None => self.push(Step::Branch(None, target), Some(site)),
                    }
                }
                Statement::Exit { guard: None, site } => self.push(Step::Exit(true), Some(site)),
                Statement::Exit { guard: Some(guard), site } => self.guarded(*guard, Step::Exit(true), site),
                Statement::Label(name) => {
                    self.labels.insert(name.clone(), self.steps.len());
                }
                Statement::Scope { name, body } => {
                    let outer = self.scope;
                    self.scopes.push(Scope { name: name.clone(), parent: outer });
                    self.scope = self.scopes.len() - 1;
                    self.block(body);
                    self.scope = outer;
                }
                // The flat form has none.
                Statement::Loop { .. } | Statement::Break { .. } => {}
            }
        }
    }

    /// A step of the lanes for which a guard holds.
    fn guarded(&mut self, guard: Guard, step: Step, site: &SourceSite) {
        match (guard.always(), step) {
            (Some(false), _) => {}
            (Some(true), step) => self.push(step, Some(site)),
            (None, Step::Inst(inst)) if goes_on(&inst) => self.push(Step::Guarded(guard, inst), Some(site)),
            // The others go around it, and so do not wait for what it waits for.
            (None, step) => {
                let around = Guard { negated: !guard.negated, ..guard };
                let after = Target::Step(self.steps.len() + 2);
                self.push(Step::Branch(Some(around), after), Some(site));
                self.push(step, Some(site));
            }
        }
    }

    fn target(&self, target: &Target) -> usize {
        match target {
            Target::Step(step) => *step,
            // The verifier has seen that the label is there.
            Target::Label(name) => self.labels.get(name).copied().unwrap_or(self.steps.len() - 1),
        }
    }

    fn finish(self) -> Lowered {
        let count = self.steps.len();
        let mut begins = vec![false; count];
        begins[0] = true;
        for (at, (step, ..)) in self.steps.iter().enumerate() {
            if let Step::Branch(_, target) = step {
                begins[self.target(target)] = true;
            }
            if let (Step::Branch(..) | Step::Exit(_), true) = (step, at + 1 < count) {
                begins[at + 1] = true;
            }
        }
        let mut block_of = Vec::with_capacity(count);
        let mut blocks = 0;
        for begins in &begins {
            blocks += usize::from(*begins);
            block_of.push(blocks - 1);
        }
        let mut next = vec![Vec::new(); blocks];
        let mut paths = vec![0u32; blocks];
        // The program itself begins with the first block.
        paths[0] = 1;
        for (at, (step, ..)) in self.steps.iter().enumerate() {
            let last = at + 1 == count || begins[at + 1];
            let (target, falls) = match step {
                Step::Branch(guard, target) => (Some(block_of[self.target(target)]), guard.is_some()),
                Step::Exit(_) => (None, false),
                Step::Inst(_) | Step::Guarded(..) => (None, true),
            };
            let falls = (last && falls && at + 1 < count).then(|| block_of[at] + 1);
            for to in target.into_iter().chain(falls) {
                next[block_of[at]].push(to);
                paths[to] += 1;
            }
        }
        let graph = Graph::new(next);
        self.operations((&begins, &block_of, &paths), graph)
    }

    fn operations(self, (begins, block_of, paths): (&[bool], &[usize], &[u32]), graph: Graph) -> Lowered {
        let mut ops: Vec<Operation> = Vec::with_capacity(self.steps.len());
        let mut starts = vec![0; paths.len()];
        let targets: Vec<Option<usize>> = self
            .steps
            .iter()
            .map(|(step, ..)| match step {
                Step::Branch(_, target) => Some(block_of[self.target(target)]),
                Step::Inst(_) | Step::Guarded(..) | Step::Exit(_) => None,
            })
            .collect();
        let mut falls = false;
        for (at, (step, site, scope)) in self.steps.into_iter().enumerate() {
            let block = block_of[at];
            let mut push = |action, block| ops.push(Operation { action, site: site.clone(), scope, block });
            if begins[at] {
                if falls && graph.begins_loop(block) {
                    push(
                        Action::Branch { guard: None, edge: Edge { from: block - 1, to: block, target: 0 } },
                        block - 1,
                    );
                }
                starts[block] = ops.len();
                // Who comes to a stated end does not wait.
                if paths[block] > 1 && !matches!(step, Step::Exit(true)) {
                    ops.push(Operation { action: Action::Meet, site: site.clone(), scope, block });
                }
            }
            let mut push = |action| ops.push(Operation { action, site: site.clone(), scope, block });
            falls = !matches!(step, Step::Exit(_) | Step::Branch(None, _));
            match (step, targets[at]) {
                (Step::Inst(inst), _) => push(Action::Inst(inst)),
                (Step::Guarded(guard, inst), _) => push(Action::Guarded(guard, inst)),
                (Step::Branch(guard, _), to) => {
                    let edge = Edge { from: block, to: to.unwrap_or(block), target: 0 };
                    push(Action::Branch { guard, edge });
                }
                (Step::Exit(stated), _) => push(Action::Exit { stated }),
            }
        }
        for op in &mut ops {
            if let Action::Branch { edge, .. } = &mut op.action {
                edge.target = starts[edge.to];
            }
        }
        Lowered { ops, scopes: self.scopes, graph }
    }
}

/// Whether lanes that execute an instruction go on to the next one at once, so that the others need not go around it.
fn goes_on(inst: &Inst) -> bool {
    matches!(
        inst,
        Inst::Move { .. }
            | Inst::Binary { .. }
            | Inst::MulAdd { .. }
            | Inst::MulWide { .. }
            | Inst::Unary { .. }
            | Inst::Compare { .. }
            | Inst::Select { .. }
            | Inst::Convert { .. }
            | Inst::Pack { .. }
            | Inst::Unpack { .. }
            | Inst::ReadSpecial { .. }
            | Inst::LoadParam { .. }
            | Inst::ParamAddress { .. }
            | Inst::SharedBase { .. }
            | Inst::LocalBase { .. }
            | Inst::ConvertAddress { .. }
            | Inst::Alu(_)
            | Inst::Load { .. }
            | Inst::Store { .. }
            | Inst::MbarrierArrive(_)
            | Inst::Trap
    )
}
