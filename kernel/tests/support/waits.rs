//! A kernel that may start before its inputs are written must not read them before it has waited.

use kernel::Program;
use ptx::Statement;
use ptx::inst::Inst;

/// Where the code of a role begins, in a text.
const ROLES: [&str; 2] = ["// producer {", "// consumer {"];

/// What is wrong with a kernel: no thread may access global memory before its `griddepcontrol.wait`. Either all threads wait at the
/// same place, or each role waits.
pub(crate) fn fault(program: &Program) -> Option<String> {
    let everybodys = program.function().body.iter().any(|statement| {
        matches!(statement, Statement::Inst { inst: Inst::GridDependency { wait: true }, .. })
    });
    if everybodys { fault_of_text(program.text()) } else { fault_of_roles(program.text()) }
}

/// The same for the text of a kernel whose roles wait.
pub(crate) fn fault_of_roles(text: &str) -> Option<String> {
    let [producer, consumer] = ROLES.map(|role| text.find(role));
    let (Some(producer), Some(consumer)) = (producer, consumer) else {
        return Some("a branch is around the wait".to_owned());
    };
    [&text[..consumer], &text[consumer..]]
        .into_iter()
        .find_map(fault_of_text)
        .or_else(|| text[..producer].contains("griddepcontrol.wait").then(|| "it waits twice".to_owned()))
}

/// The same for the text of all threads, or of those of a role. Prefetches access nothing.
pub(crate) fn fault_of_text(text: &str) -> Option<String> {
    let Some((before, after)) = text.split_once("griddepcontrol.wait;") else {
        return Some("it never waits".to_owned());
    };
    let accesses = |line: &str| !line.contains("cp.async.bulk.prefetch");
    let touched = ["global", "cp.async", "cp.reduce"]
        .into_iter()
        .find(|access| before.lines().any(|line| accesses(line) && line.contains(access)));
    match touched {
        Some(access) => Some(format!("{access} before the wait")),
        None if after.contains("global") || after.contains("cp.async") => None,
        None => Some("it touches no memory at all".to_owned()),
    }
}
