//! A kernel that may start before its inputs are written must not read them before it has waited.

use kernel::Program;
use ptx::Statement;
use ptx::inst::Inst;

/// What is wrong with a kernel: nothing before `griddepcontrol.wait` may access global memory, and every
/// thread must wait.
pub(crate) fn fault(program: &Program) -> Option<String> {
    let everybodys = program.function().body.iter().any(|statement| {
        matches!(statement, Statement::Inst { inst: Inst::GridDependency { wait: true }, .. })
    });
    if everybodys { fault_of_text(program.text()) } else { Some("a branch is around the wait".to_owned()) }
}

/// The same for its text.
pub(crate) fn fault_of_text(text: &str) -> Option<String> {
    let Some((before, after)) = text.split_once("griddepcontrol.wait;") else {
        return Some("it never waits".to_owned());
    };
    let touched = ["global", "cp.async", "cp.reduce"].into_iter().find(|access| before.contains(access));
    match touched {
        Some(access) => Some(format!("{access} before the wait")),
        None if after.contains("global") || after.contains("cp.async") => None,
        None => Some("it touches no memory at all".to_owned()),
    }
}
