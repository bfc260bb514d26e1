//! The judge judged: a family of small kernels, each with one mistake, and references with one mistake each.

mod attention;
mod gemm;
mod heads;
mod rows;

use collective::Format as Type;
use kernel::operands::{Extents, Visit};
use kernel::{
    AnyGemm, Call, Emulator, GemmFamily, GemmProblem, Kernel, Launch, LaunchError, LinearArguments, Machine,
    MatrixRef, OwnGemm, Predicted, Program, cheapest, check_accessed,
};
use ptx::abi::Grid;
use ptx::inst::{AtomicOp, AtomicSem, Scope, StoreOrder};
use ptx::{Builder, Entry, Location, Special, Target, VerifyError};

use reference::Format;

use super::*;
use crate::verify::tampered::{Mistake, Tampered};

/// `D = 2 X` for a matrix of [`ROWS`] rows of [`COLUMNS`] elements, in lines of [`LD`]; and `N`, the number of each
/// element in 16 bits. The name is that of a mistake.
#[derive(Clone, Debug)]
struct Doubled(String);

const ROWS: u32 = 5;
const COLUMNS: u32 = 20;
const LD: u32 = 24;
/// The largest error that the reference allows.
const BOUND: f64 = 0.25;

/// Where X, D and N are.
#[derive(Clone, Copy, Debug, Default)]
struct Doubling {
    rows: u32,
    x: MatrixRef,
    d: MatrixRef,
    n: u64,
}

/// A number of rows, and what the reference says.
#[derive(Clone, Copy, Debug)]
struct Asked(u32, &'static str);

impl From<u32> for Asked {
    fn from(rows: u32) -> Self {
        Self(rows, "")
    }
}

impl From<Asked> for u32 {
    fn from(Asked(rows, _): Asked) -> Self {
        rows
    }
}

impl Kernel<Doubling> for Doubled {
    fn program(&self) -> Result<Program, VerifyError> {
        let name = format!("doubled_{}", self.0.replace(' ', "_"));
        let entry = Entry { name, target: Target::Sm90a, threads: 128, shared_bytes: 0, cluster: [1; 3] };
        Program::of(self, entry, |f| {
            emit(f, &self.0);
        })
    }

    fn launch(&self, call: &Doubling, _resident: u32) -> Result<Option<Launch>, LaunchError> {
        check_accessed(self, call, |_| 4)?;
        let launch = || Launch::new(Grid { ctas: [1; 3] }, |visit| self.visit(&mut call.clone(), visit));
        (call.rows > 0).then(launch).transpose()
    }

    fn visit(&self, call: &mut Doubling, visit: &mut dyn Visit) {
        let Doubling { rows, x, d, n } = call;
        let written = self.0 != "says nothing of what it writes";
        let lines = |bits| Extents { lines: *rows, ..Extents::line(bits, COLUMNS.into()) };
        visit.matrix("X", (Contents::Source(Type::F32), false), x, lines(32));
        visit.matrix("D", (Contents::Output(Type::F32), written), d, lines(32));
        let extents = Extents { ld: COLUMNS.into(), ..lines(16) };
        let contents = Contents::Elements(2);
        visit.memory(Memory { name: "N", address: n, extents, contents, writes: written });
        let (address, extents) = (&mut 0, Extents::line(32, 0));
        visit.memory(Memory { name: "none", address, extents, contents, writes: written });
        visit.address("x", "X");
        visit.address("d", "D");
        visit.address("n", "N");
    }
}

/// Thread `t` computes element `t`.
fn emit(f: &Builder, mistake: &str) {
    let [x, d, n] = ["x", "d", "n"].map(|name| f.parameter::<u64>(name));
    let thread = f.special(Special::ThreadX);
    let writes = match mistake {
        "leaves out the last elements" => ROWS * COLUMNS - 16,
        _ => ROWS * COLUMNS,
    };
    f.if_(thread.less_than(writes), || {
        let at = (thread / COLUMNS * LD + thread % COLUMNS).mul_wide(4);
        let of = f.load_global::<f32>(x + at, 0);
        let sum = f.variable(of + of);
        let by = match mistake {
            "errs by a little less than the bound" => BOUND - 0.001,
            "errs by a little more than the bound" => BOUND + 0.001,
            _ => 0.0,
        };
        if by > 0.0 {
            f.if_(thread.equals(57), || sum.set(sum.get() + by as f32));
        }
        f.store_global(d + at, 0, [sum.get()]);
        let number = if mistake == "a wrong number" { thread / 64 * 64 } else { thread };
        f.if_((thread % 2).equals(0), || {
            let pair = number + (number + 1) * 65536;
            f.store_global(n + thread.mul_wide(2), 0, [pair]);
        });
    });
    f.barrier_sync(0, 128);
    let last = ((ROWS - 1) * LD + COLUMNS) as i32 * 4;
    f.if_(thread.equals(0), || match mistake {
        "reads behind X" => {
            let [own, behind] = [0, last].map(|at| f.load_global::<f32>(x, at));
            f.store_global(d, 0, [own + own + behind]);
        }
        "writes behind D" => f.store_global(d, last, [f.constant(1u32)]),
        "writes far behind D" => f.store_global(d, last + 60, [f.constant(1u32)]),
        "writes between lines" => f.store_global(d, COLUMNS as i32 * 4, [f.constant(1u32)]),
        "writes X" => f.store_global(x, 8, [f.constant(1u32)]),
        _ => {}
    });
}

impl Family for Doubled {
    const NAME: &'static str = "doubled";
    type Request<'r> = Asked;
    type Problem = u32;
    type Spec = String;
    type Call = Doubling;

    fn of_spec(spec: &String) -> Result<Self, String> {
        Ok(Self(spec.clone()))
    }

    fn spec(&self) -> Option<String> {
        Some(self.0.clone())
    }

    fn call(&Asked(rows, _): &Asked) -> Doubling {
        let matrix = MatrixRef::new(0, LD.into());
        Doubling { rows, x: matrix, d: matrix, n: 0 }
    }

    fn ranked(_: &Asked, _: &Machine, most: usize) -> Result<Vec<Predicted<Self>>, String> {
        cheapest([String::new()], most, |_| 1.0)
    }

    fn operations(&Asked(rows, _): &Asked) -> f64 {
        rows.into()
    }

    fn expect(
        &self,
        &Asked(rows, says): &Asked,
        _: &Doubling,
        inputs: &Inputs<'_>,
    ) -> Result<Vec<Expected>, String> {
        assert!(rows > 0, "nothing is written");
        let (columns, count) = (COLUMNS as usize, (rows * COLUMNS) as usize);
        let bound = match says {
            "a bound that is none" => f64::NAN,
            "a bound below 0" => -1.0,
            "bounds that say nothing" => f64::INFINITY,
            _ => BOUND,
        };
        let row = |row: usize| {
            let x = inputs.elements("X", row * columns, columns);
            (row * columns, x.into_iter().map(|x| (2.0 * x, bound)).collect::<Vec<_>>())
        };
        let elements = match says {
            "asks for another name" => {
                vec![(0, inputs.elements("no such name", 0, 2).iter().map(|&x| (x, 0.0)).collect())]
            }
            "asks for numbers of another name" => {
                vec![(inputs.numbers("no such table", 0, 4)[3] as usize, Vec::new())]
            }
            "asks for numbers of floats" => vec![(inputs.numbers("X", 0, 4)[3] as usize, Vec::new())],
            "asks for more than there is" => vec![(0, vec![(inputs.elements("X", count - 1, 2)[1], 0.0)])],
            "asks far behind the end" => vec![(0, vec![(inputs.elements("X", usize::MAX, 2)[1], 0.0)])],
            "expects more than there is" => vec![(count - 1, vec![row(rows as usize - 1).1[columns - 1]; 2])],
            "expects nothing of D" => Vec::new(),
            "expects the same again" => [row, row].map(|row| inputs.rows(rows as usize, row)).concat(),
            _ => inputs.rows(rows as usize, row),
        };
        let numbers = Expected::near("N", vec![(0, (0..count).map(|i| (i as f64, 0.0)).collect())]);
        let of_d = Expected::near(if says == "expects X" { "X" } else { "D" }, elements);
        if says == "has no reference" {
            return Err(says.to_owned());
        }
        Ok(match says {
            "leaves out N" => vec![of_d],
            "expects nothing of what is empty" | "expects an element of what is empty" => {
                let some = says == "expects an element of what is empty";
                let elements = if some { vec![(0, vec![(1.0, 0.0)])] } else { Vec::new() };
                vec![of_d, numbers, Expected::near("none", elements)]
            }
            "expects E" => vec![of_d, numbers, Expected::near("E", Vec::new())],
            "is wrong of D's second half" => {
                let second = Expected::near("D", vec![(60, vec![(9.0, 0.1)])]);
                vec![of_d, numbers, second]
            }
            _ => vec![of_d, numbers],
        })
    }
}

/// What a check says.
fn said(engine: &mut dyn Engine, mistake: &str, asked: Asked, most: usize) -> String {
    match check(engine, &Doubled(mistake.to_owned()), &asked, (3, most)) {
        Ok(Agreed { compared, total, ratio, .. }) => format!("{compared} of {total}, {ratio:.2}"),
        Err(error) => error.to_string(),
    }
}

#[test]
fn each_mistake_of_a_kernel_is_found() {
    let all = Asked(ROWS, "");
    for (mistake, want) in [
        ("", "200 of 200, 0.00"),
        ("errs by a little less than the bound", "200 of 200, 1.00"),
        ("errs by a little more than the bound", "element 57 of D is "),
        ("a wrong number", "element 2 of N is 0, 2 was expected, with an error of 0 at most"),
        ("leaves out the last elements", "no element of D from 84 on was written, in 1 of them"),
        ("writes between lines", "byte 80 of D changed, and no element is there"),
        ("writes X", "byte 8 of X changed, and no element is there"),
        ("says nothing of what it writes", "no memory is visited as written"),
    ] {
        let found = said(&mut Emulator::new(), mistake, all, usize::MAX);
        assert!(found.starts_with(want), "{mistake}: {found}");
        // A margin changes nothing of that.
        assert_eq!(said(&mut Tampered::new(0, Vec::new()), mistake, all, usize::MAX), found, "{mistake}");
    }
}

/// An access right behind a piece of memory: the emulator traps; elsewhere what was written is found in a margin.
#[test]
fn nothing_behind_memory_is_accessed() {
    for (mistake, trap, margin) in [
        ("reads behind X", "offset 464 from the allocation of 464 B", "200 of 200, "),
        (
            "writes behind D",
            "offset 464 from the allocation of 464 B",
            "byte 464 of D changed, and no element is there",
        ),
        (
            "writes far behind D",
            "offset 524 from the allocation of 464 B",
            "byte 524 of D changed, and no element is there",
        ),
    ] {
        let found = said(&mut Emulator::new(), mistake, Asked(ROWS, ""), usize::MAX);
        assert!(found.contains(trap), "{mistake}: {found}");
        let found = said(&mut Tampered::new(0, Vec::new()), mistake, Asked(ROWS, ""), usize::MAX);
        assert!(found.starts_with(margin), "{mistake}: {found}");
    }
}

#[test]
fn each_mistake_of_a_reference_is_found() {
    for (says, most, want) in [
        ("", usize::MAX, "200 of 200, 0.00"),
        ("", 2, "140 of 200, 0.00"),
        ("", 0, "the kernel writes D, and of its 100 elements none was compared"),
        ("asks for another name", 9, "the reference asks for `no such name`, the call has X, D, N, none"),
        (
            "asks for numbers of another name",
            9,
            "the reference asks for `no such table`, the call has X, D, N, none",
        ),
        (
            "asks for numbers of floats",
            9,
            "the reference asks for numbers of 32 bits of X, it has elements of f32",
        ),
        ("asks for more than there is", 9, "the reference asks for 2 elements of X from 99 on, it has 100"),
        (
            "asks far behind the end",
            9,
            "the reference asks for 2 elements of X from 18446744073709551615 on, it has 100",
        ),
        ("expects more than there is", 9, "element 100 of D is expected, it has 100"),
        ("expects nothing of D", 9, "the kernel writes D, and of its 100 elements none was compared"),
        ("bounds that say nothing", 9, "the kernel writes D, and of its 100 elements none was compared"),
        ("leaves out N", 9, "the kernel writes N, and of its 100 elements none was compared"),
        ("expects E", 9, "the reference expects elements of `E`, the kernel writes D, N, none"),
        ("expects X", 9, "the reference expects elements of `X`, the kernel writes D, N, none"),
        ("expects nothing of what is empty", 9, "200 of 200, 0.00"),
        ("expects an element of what is empty", 9, "element 0 of none is expected, it has 0"),
        ("expects the same again", 9, "200 of 200, 0.00"),
        ("is wrong of D's second half", 9, "element 60 of D is "),
        ("a bound that is none", 9, "the bound of element 0 of D is NaN, a number from 0 on was needed"),
        ("has no reference", 9, "there is nothing to compare with: has no reference"),
        ("a bound below 0", 9, "the bound of element 0 of D is -1, a number from 0 on was needed"),
    ] {
        let found = said(&mut Emulator::new(), "", Asked(ROWS, says), most);
        assert!(found.starts_with(want), "{says}: {found}");
    }
    assert_eq!(said(&mut Emulator::new(), "", Asked(0, ""), 9), "0 of 0, 0.00", "nothing is written");
}

/// Of two CTAs the last one writes `D`: 8 words. A counter in the workspace says who it is, and is 0 again in the end.
#[derive(Clone, Debug)]
struct LastWrites;

#[derive(Clone, Copy, Debug, Default)]
struct Written {
    d: u64,
    workspace: Option<Buffer>,
}

impl Kernel<Written> for LastWrites {
    fn program(&self) -> Result<Program, VerifyError> {
        let name = "last_writes".to_owned();
        let entry = Entry { name, target: Target::Sm90a, threads: 32, shared_bytes: 0, cluster: [1; 3] };
        Program::of(self, entry, |f| {
            let [d, counter, many] = ["d", "counter", "many"].map(|name| f.parameter::<u64>(name));
            let lane = f.special(Special::ThreadX);
            f.if_(many.less_than(0), || {
                f.store_global(d, 0, [f.constant(1u32)]);
                f.barrier_sync(3, 32);
            });
            f.barrier_sync(1, 32);
            f.if_(lane.equals(0), || {
                let (at, order) = (Location::global(counter, 0), (AtomicSem::AcquireRelease, Scope::Gpu));
                let before = f.atomic(AtomicOp::Add, at, f.constant(1u32), order);
                f.if_(before.equals(1), || {
                    f.store_global(d, 0, [f.constant(7u32)]);
                    f.store_ordered(StoreOrder::Relaxed(Scope::Gpu), at, [f.constant(0u32)]);
                });
            });
        })
    }

    fn workspace(&self, _: &Written, _: u32) -> u64 {
        4
    }

    fn lend_workspace(&self, call: &mut Written, workspace: Option<Buffer>) {
        call.workspace = workspace;
    }

    fn launch(&self, call: &Written, _resident: u32) -> Result<Option<Launch>, LaunchError> {
        let grid = Grid { ctas: [2, 1, 1] };
        Launch::new(grid, |visit| self.visit(&mut call.clone(), visit)).map(Some)
    }

    fn visit(&self, call: &mut Written, visit: &mut dyn Visit) {
        let (extents, contents) = (Extents::line(32, 1), Contents::Elements(4));
        visit.memory(Memory { name: "D", address: &mut call.d, extents, contents, writes: true });
        visit.address("d", "D");
        Buffer::visit_workspace(&mut call.workspace, true, visit);
        visit.address("counter", "the workspace");
        visit.number("many", Some(1u64));
    }
}

/// What only a second launch shows is found, and survivors are told apart.
#[test]
fn mutants_are_launched_twice_and_survivors_have_classes() {
    let proof =
        prove(&LastWrites, (&Written { d: 0, workspace: None }, &[]), 2).expect("the unbroken kernel");
    let text = proof.to_string();
    let class = |words: &str| {
        let found = text.lines().find(|line| line.contains(words));
        found.and_then(|line| line.trim().split_once(':')).map_or("killed", |(class, _)| class)
    };
    assert_eq!(proof.launches, 2);
    assert!(text.contains("launched twice on one workspace: "), "{text}");
    for (mutant, want) in [("st.relaxed deleted", "killed"), ("atom.add deleted", "killed")] {
        assert_eq!(class(mutant), want, "{mutant}: {text}");
    }
    for (class, mutant) in [
        ("never reached", "bar.sync deleted"),
        ("equivalent, nothing-to-order", ""),
        // What the counter orders, the last CTA alone reads and writes.
        ("missed", "atom relaxed"),
    ] {
        assert!(text.contains(&format!("{class}: {mutant}")), "{class}, {mutant}: {text}");
    }
    assert!(proof.unreached.iter().all(|one| ["bar.sync", "if"].contains(&one.target)), "{text}");
    let survivors = proof.equivalent.len() + proof.unreached.len() + proof.missed.len();
    assert_eq!(proof.mutants(), proof.refused + proof.killed + survivors);
}

/// A GEMM of the catalogue as a family of one's own.
struct Plain;

impl GemmFamily for Plain {
    const NAME: &'static str = "plain";
    type Problem = GemmProblem;
    type Arguments = LinearArguments;

    fn kernels() -> Vec<AnyGemm> {
        vec![kernel::find("64x64-direct-bf16-kk").expect("a catalogue name")]
    }

    fn call(problem: &GemmProblem) -> Call<LinearArguments> {
        Call::of(*problem)
    }

    fn row(
        &GemmProblem { n, k, .. }: &GemmProblem,
        row: usize,
        inputs: &Inputs<'_>,
    ) -> Result<Vec<(f64, f64)>, String> {
        let (n, k) = (n as usize, k as usize);
        let a = inputs.elements("A", row * k, k);
        let column = |column: usize| {
            let b = inputs.elements("B", column * k, k);
            let products = a.iter().zip(&b).map(|(a, b)| a * b);
            (products.clone().sum(), 0.01 * products.map(f64::abs).sum::<f64>())
        };
        Ok((0..n).map(column).collect())
    }
}

/// Rows of D are expected where they are: all of them, or some.
#[test]
fn rows_of_ones_own_gemm_are_expected() {
    type Own = OwnGemm<Plain>;
    let kernel = Own::of_spec(&"64x64-direct-bf16-kk".to_owned()).expect("a name");
    let problem = Own::request("70x24x40").expect("a problem");
    assert_eq!(problem, GemmProblem { m: 70, n: 24, k: 40 });
    for (most, compared) in [(usize::MAX, 70 * 24), (70, 70 * 24), (3, 3 * 24)] {
        let agreed = check(&mut Emulator::new(), &kernel, &problem, (3, most)).expect("right");
        assert_eq!((agreed.compared, agreed.total), (compared, 70 * 24), "{most} rows");
        assert!(agreed.ratio > 0.1, "{agreed:?}");
    }
    let wrong = Mistake::element(Format::Bf16, (69 * 24 + 5) * 2, 0x4780);
    let found = check(&mut Tampered::new(2, wrong), &kernel, &problem, (3, usize::MAX));
    let last = matches!(found, Err(FamilyError::Element { name: "D", index, .. }) if index == 69 * 24 + 5);
    assert!(last, "{found:?}");
    for text in ["", "70x24", "70x24x40x1", "70x24xk", "070x24x40", "70x24x40 "] {
        let refused = Own::request(text).expect_err(text);
        assert_eq!(refused, format!("`{text}` was found, MxNxK was needed"));
    }
}
