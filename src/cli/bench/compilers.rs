//! Compiles kernels ahead of their use in other processes, because a driver compiles only one program per
//! process at a time.
//!
//! The compiled kernels are in the driver's cache, or in the folder of [`kernel::disk`] if FALCHION_PTXAS
//! names an assembler.

use std::collections::VecDeque;
use std::io::{self, BufRead, BufReader, Write};
use std::process::{self, Child, ChildStdin, ChildStdout, Stdio};
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::{self, JoinHandle};

use kernel::{Gpu, KernelSpec};

use crate::cli::options::Verb;
use crate::cli::output::out;
use crate::cli::{Command, Failure};

pub(crate) const COMMAND: Command = Command {
    verb: Verb::COMPILE,
    about: "Compile kernels for the GPU ahead of their use.

Reads one spec per line from standard input, and answers each with a line. The kernels go to the driver's cache, or, if \
FALCHION_PTXAS names an assembler, to the folder that `falchion cache` shows.",
    examples: "",
    run: |_| compile(),
};

fn compile() -> Result<(), Failure> {
    let mut gpu = Gpu::new(0)?;
    for line in io::stdin().lock().lines() {
        let spec: KernelSpec = line?.parse().map_err(Failure::usage)?;
        let program = spec.kernel().map_err(Failure::usage)?.program()?;
        match gpu.kernel(&program) {
            Ok(_) => writeln!(out(), "compiled")?,
            Err(error) => writeln!(out(), "{}", error.to_string().replace('\n', " "))?,
        }
        out().flush()?;
    }
    Ok(())
}

/// The specs that are still to be compiled, and the progress.
#[derive(Default)]
struct Queue {
    specs: VecDeque<(usize, String)>,
    /// Number of specs left in each group.
    left: Vec<usize>,
}

/// Processes that compile groups of specs, one group after the other.
pub(super) struct Compilers {
    queue: Arc<(Mutex<Queue>, Condvar)>,
    threads: Vec<JoinHandle<()>>,
}

impl Compilers {
    /// Starts `count` processes.
    pub(super) fn new(count: usize, groups: Vec<Vec<String>>) -> Self {
        let left = groups.iter().map(Vec::len).collect();
        let each = |(group, specs): (usize, Vec<String>)| specs.into_iter().map(move |spec| (group, spec));
        let mut seen = std::collections::HashSet::new();
        let mut queue = Queue { specs: VecDeque::new(), left };
        for (group, spec) in groups.into_iter().enumerate().flat_map(each) {
            if seen.insert(spec.clone()) {
                queue.specs.push_back((group, spec));
            } else {
                queue.left[group] -= 1;
            }
        }
        let queue = Arc::new((Mutex::new(queue), Condvar::new()));
        let thread = |_| {
            let queue = Arc::clone(&queue);
            thread::spawn(move || serve(&queue))
        };
        Self { threads: (0..count).map(thread).collect(), queue }
    }

    /// Waits until a group is compiled, or until no process is left.
    pub(super) fn wait(&self, group: usize) {
        let (queue, done) = &*self.queue;
        let mut queue = queue.lock().unwrap_or_else(PoisonError::into_inner);
        while queue.left[group] > 0 && !self.threads.iter().all(JoinHandle::is_finished) {
            let waited = done.wait_timeout(queue, std::time::Duration::from_millis(50));
            queue = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}

impl Drop for Compilers {
    fn drop(&mut self) {
        self.queue.0.lock().unwrap_or_else(PoisonError::into_inner).specs.clear();
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
    }
}

/// One compiling process.
struct Compiler {
    child: Child,
    input: ChildStdin,
    output: BufReader<ChildStdout>,
}

impl Compiler {
    fn new() -> io::Result<Self> {
        let mut child = process::Command::new(std::env::current_exe()?)
            .arg("compile")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()?;
        let missing = || io::Error::other("a pipe is missing");
        let input = child.stdin.take().ok_or_else(missing)?;
        let output = BufReader::new(child.stdout.take().ok_or_else(missing)?);
        Ok(Self { child, input, output })
    }

    fn compile(&mut self, spec: &str) -> io::Result<()> {
        writeln!(self.input, "{spec}")?;
        self.input.flush()?;
        match self.output.read_line(&mut String::new())? {
            0 => Err(io::ErrorKind::UnexpectedEof.into()),
            _ => Ok(()),
        }
    }
}

/// Compiles specs until none is left. If a process ends early, its kernels are compiled at their first use.
fn serve((queue, done): &(Mutex<Queue>, Condvar)) {
    let Ok(mut compiler) = Compiler::new() else { return };
    loop {
        let next = queue.lock().unwrap_or_else(PoisonError::into_inner).specs.pop_front();
        let Some((group, spec)) = next else { break };
        let compiled = compiler.compile(&spec);
        queue.lock().unwrap_or_else(PoisonError::into_inner).left[group] -= 1;
        done.notify_all();
        if compiled.is_err() {
            break;
        }
    }
    let Compiler { mut child, input, output } = compiler;
    drop((input, output));
    let _ = child.wait();
}
