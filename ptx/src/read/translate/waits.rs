//! Loops that wait for a phase of an mbarrier become one instruction.
//!
//! A loop that asks until the answer is yes does what [`Inst::MbarrierWait`] does. Compilers write it as a test that branches back, or as
//! a test that branches out, followed by a branch back.

use std::collections::{HashMap, HashSet};

use super::plan::each_read;
use crate::function::{Guard, Statement};
use crate::inst::{Inst, MbarrierPhase, MbarrierTest, Operand, Reg};

/// The statements with such loops folded, without labels that no branch names. A wait keeps its label: the printer writes it.
pub(super) fn folded(body: Vec<Statement>) -> Vec<Statement> {
    let reads = reads(&body);
    let mut folded = Vec::with_capacity(body.len());
    let mut at = 0;
    while let Some(statement) = body.get(at) {
        folded.push(statement.clone());
        match wait(&body[at..], &reads) {
            Some((wait, length)) => {
                folded.extend(wait);
                at += length;
            }
            None => at += 1,
        }
    }
    let targets: HashSet<String> = folded.iter().filter_map(target).map(str::to_owned).collect();
    let waits: Vec<bool> = folded.iter().skip(1).map(is_wait).chain([false]).collect();
    let mut waits = waits.into_iter();
    folded.retain(|statement| {
        let waits = waits.next().unwrap_or(false);
        !matches!(statement, Statement::Label(name) if !waits && !targets.contains(&**name))
    });
    folded
}

fn is_wait(statement: &Statement) -> bool {
    matches!(statement.inst(), Some(Inst::MbarrierWait { .. }))
}

fn target(statement: &Statement) -> Option<&str> {
    if let Statement::Branch { target, .. } = statement { Some(target) } else { None }
}

/// How often each register is read.
fn reads(body: &[Statement]) -> HashMap<Reg, u32> {
    let mut reads = HashMap::new();
    each_read(body, &mut |operand| {
        if let Operand::Reg(reg) = operand {
            *reads.entry(reg).or_insert(0u32) += 1;
        }
    });
    reads
}

/// The wait at the beginning of statements: what stands for it after its first label, and how many statements it is.
fn wait(body: &[Statement], reads: &HashMap<Reg, u32>) -> Option<(Vec<Statement>, usize)> {
    let [
        Statement::Label(again),
        Statement::Inst { inst: Inst::MbarrierTest(test), site },
        branch,
        rest @ ..,
    ] = body
    else {
        return None;
    };
    let MbarrierTest { dst, barrier, phase: MbarrierPhase::Parity(parity), patient: true, order } = *test
    else {
        return None;
    };
    let Statement::Branch { guard: Some(Guard { cond, negated }), target, .. } = branch else { return None };
    if *cond != Operand::Reg(dst) || [barrier, parity].contains(&Operand::Reg(dst)) {
        return None;
    }
    let length = match (negated, rest) {
        // `@!done bra again;`
        (true, _) if target == again => 3,
        // `@done bra out; bra again; out:`
        (false, [Statement::Branch { guard: None, target: back, .. }, Statement::Label(out), ..])
            if back == again && target == out =>
        {
            4
        }
        _ => return None,
    };
    let mut folded =
        vec![Statement::Inst { inst: Inst::MbarrierWait { barrier, parity, order }, site: site.clone() }];
    if reads.get(&dst).is_some_and(|&reads| reads > 1) {
        // The answer is used once more: it was yes.
        let src = Operand::Imm(1);
        folded.push(Statement::Inst {
            inst: Inst::Move { ty: crate::types::Type::Pred, dst, src },
            site: site.clone(),
        });
    }
    Some((folded, length))
}
