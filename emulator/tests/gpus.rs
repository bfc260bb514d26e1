//! Programs that run on two emulated GPUs at the same time and share memory: each with a mistake that is found, and a twin that
//! differs in one step and passes.

#![allow(clippy::unwrap_used, reason = "a test that cannot be set up fails")]
#![allow(clippy::semicolon_if_nothing_returned, reason = "each program of the table is one expression")]

use emulator::{
    EmulatorError, Failure, Fault, Memory, Options, Program, Schedule, Together, launch_together,
};
use ptx::abi::{Argument, Grid};
use ptx::{
    AtomicOp, AtomicSem, Builder, Entry, Function, LoadOrder, Location, Scope, Special, StoreOrder, Target,
    Value,
};

/// What a program of one GPU works with.
#[derive(Clone, Copy)]
struct Kernel<'f> {
    f: &'f Builder,
    /// 64 words of each GPU that both may access.
    shared: [Value<'f, u64>; 2],
    /// 64 words of the first GPU alone.
    own: Value<'f, u64>,
    thread: Value<'f, u32>,
    /// Whether this is the program that traps.
    broken: bool,
}

impl<'f> Kernel<'f> {
    fn once(self, body: impl FnOnce()) {
        self.f.if_(self.thread.equals(0), body);
    }

    /// Sets a word of flags of a GPU.
    fn set(self, gpu: usize, scope: Scope) {
        let at = Location::global(self.shared[gpu], 128);
        self.f.store_ordered(StoreOrder::Release(scope), at, [self.f.constant(1u32)]);
    }

    /// Waits until the flag of a GPU is set.
    fn wait(self, gpu: usize, scope: Scope) {
        let f = self.f;
        f.while_(
            || {
                let at = Location::global(self.shared[gpu], 128);
                f.load_ordered::<u32, 1>(LoadOrder::Acquire(scope), at)[0].equals(0)
            },
            || {},
        );
    }

    fn write(self, gpu: usize) {
        self.f.store_global(self.shared[gpu], 0, [self.thread]);
    }

    fn read(self, gpu: usize) {
        let _word = self.f.load_global::<u32>(self.shared[gpu], 0);
    }
}

type Body = fn(Kernel<'_>);

/// One launch: its GPU, its program, and whether the GPU leaves after it.
type Launch = (u32, Body, bool);

struct Case {
    why: &'static str,
    launches: &'static [Launch],
    found: fn(&Fault) -> bool,
}

fn race(fault: &Fault) -> bool {
    matches!(fault, Fault::GlobalRace { .. })
}

const CASES: &[Case] = &[
    Case {
        why: "a flag of another GPU in the scope of one GPU",
        launches: &[
            (
                0,
                |k| {
                    k.once(|| {
                        k.write(1);
                        k.set(1, if k.broken { Scope::Gpu } else { Scope::System });
                    })
                },
                false,
            ),
            (
                1,
                |k| {
                    k.once(|| {
                        k.wait(1, Scope::System);
                        k.read(1);
                    })
                },
                false,
            ),
        ],
        found: race,
    },
    Case {
        why: "a flag that is read in the scope of one GPU",
        launches: &[
            (
                0,
                |k| {
                    k.once(|| {
                        k.write(1);
                        k.set(1, Scope::System);
                    })
                },
                false,
            ),
            (
                1,
                |k| {
                    k.once(|| {
                        k.wait(1, if k.broken { Scope::Gpu } else { Scope::System });
                        k.read(1);
                    })
                },
                false,
            ),
        ],
        found: race,
    },
    Case {
        why: "a sum of two GPUs by atomics of one GPU",
        launches: &[(0, |k| k.once(|| add(k)), false), (1, |k| k.once(|| add(k)), false)],
        found: race,
    },
    Case {
        why: "a peer that starts late overwrites what was sent to it",
        launches: &[
            (
                0,
                |k| {
                    k.once(|| {
                        if !k.broken {
                            k.wait(0, Scope::System);
                        }
                        k.write(1);
                        k.set(1, Scope::System);
                    })
                },
                false,
            ),
            (
                1,
                |k| {
                    k.once(|| {
                        k.write(1);
                        k.set(0, Scope::System);
                        k.wait(1, Scope::System);
                        k.read(1);
                    })
                },
                false,
            ),
        ],
        found: race,
    },
    Case {
        why: "a buffer that the next launch fills while the peer still reads",
        launches: &[
            (
                0,
                |k| {
                    k.once(|| {
                        k.write(0);
                        k.set(0, Scope::System);
                    })
                },
                false,
            ),
            (
                0,
                |k| {
                    k.once(|| {
                        if !k.broken {
                            k.wait(1, Scope::System);
                        }
                        k.write(0);
                    })
                },
                false,
            ),
            (
                1,
                |k| {
                    k.once(|| {
                        k.wait(0, Scope::System);
                        k.read(0);
                        k.set(1, Scope::System);
                    })
                },
                false,
            ),
        ],
        found: race,
    },
    Case {
        why: "a peer that leaves before the others have sent",
        launches: &[
            (
                0,
                |k| {
                    k.once(|| {
                        k.write(1);
                        k.set(1, Scope::System);
                    })
                },
                false,
            ),
            (
                1,
                |k| {
                    k.once(|| {
                        if !k.broken {
                            k.wait(1, Scope::System);
                        }
                    })
                },
                true,
            ),
        ],
        found: |fault| matches!(fault, Fault::PeerLeft { gpu: 1, .. }),
    },
    Case {
        why: "memory that its GPU does not share",
        launches: &[
            (0, |k| k.once(|| k.f.store_global(k.own, 0, [k.thread])), false),
            (
                1,
                |k| {
                    k.once(|| {
                        if k.broken {
                            k.f.store_global(k.own, 0, [k.thread])
                        }
                    })
                },
                false,
            ),
        ],
        found: |fault| matches!(fault, Fault::NotShared { gpu: 0, .. }),
    },
    Case {
        why: "a rendezvous to which one GPU does not come",
        launches: &[
            (
                0,
                |k| {
                    k.once(|| {
                        k.set(1, Scope::System);
                        k.wait(0, Scope::System);
                    })
                },
                false,
            ),
            (
                1,
                |k| {
                    k.once(|| {
                        k.wait(1, Scope::System);
                        if !k.broken {
                            k.set(0, Scope::System);
                        }
                    })
                },
                false,
            ),
        ],
        found: |fault| matches!(fault, Fault::Hang { .. } | Fault::Fuel { .. }),
    },
];

fn add(k: Kernel<'_>) {
    let scope = if k.broken { Scope::Gpu } else { Scope::System };
    let at = Location::global(k.shared[0], 0);
    k.f.reduce(AtomicOp::Add, at, [k.f.constant(1u32)], (AtomicSem::Relaxed, scope));
}

fn program(body: Body, broken: bool) -> Program {
    let entry = Entry {
        name: "gpus".into(),
        target: Target::Sm90a,
        threads: 32,
        shared_bytes: 0,
        cluster: [1, 1, 1],
    };
    let function = Function::build(entry, |f| {
        let shared = ["first", "second"].map(|name| f.param(name));
        let (own, thread) = (f.param("own"), f.special(Special::ThreadX));
        body(Kernel { f, shared, own, thread, broken });
    });
    Program::new(&function.verify().unwrap())
}

fn run(case: &Case, broken: bool, (schedule, seed): (Schedule, u64)) -> Result<(), Failure> {
    let mut memory = Memory::new();
    let shared = [0, 1].map(|gpu| {
        let address = memory.allocate_on(gpu, 256, true);
        memory.write(address, &[0; 256]).unwrap();
        address
    });
    let own = memory.allocate_on(0, 256, false);
    let programs: Vec<Program> = case.launches.iter().map(|(_, body, _)| program(*body, broken)).collect();
    let arguments: Vec<Argument> = vec![shared[0].into(), shared[1].into(), own.into()];
    let (grid, arguments) = (Grid { ctas: [1, 1, 1] }, &arguments[..]);
    let each = case.launches.iter().zip(&programs);
    let each = each.map(|(&(gpu, _, leaves), program)| Together { gpu, program, grid, arguments, leaves });
    let options = Options { schedule, seed, fuel: 1 << 20, threads: 1, ..Options::default() };
    launch_together(&each.collect::<Vec<_>>(), &memory, &options).map(drop)
}

#[test]
fn mistakes_between_gpus_are_found_and_their_twins_pass() {
    let mut wrong = String::new();
    for case in CASES {
        let mut found = 0;
        for schedule in Schedule::sweep(20) {
            match run(case, true, schedule) {
                Err(Failure::Trap(trap)) if (case.found)(&trap.fault) => {
                    found += 1;
                    assert!(trap.to_string().contains("GPU "), "{trap}");
                }
                Ok(()) => {}
                other => wrong += &format!("{} under {schedule:?}: {other:?}\n", case.why),
            }
            if let Err(failure) = run(case, false, schedule) {
                wrong += &format!("{}: the twin under {schedule:?}: {failure}\n", case.why);
            }
        }
        if found < 4 {
            wrong += &format!("{}: {found} of 24 schedules find it\n", case.why);
        }
    }
    assert!(wrong.is_empty(), "\n{wrong}");
}

#[test]
fn what_cannot_run_together_is_refused() {
    let program = program(|_| {}, false);
    let launch = |gpu| Together {
        gpu,
        program: &program,
        grid: Grid { ctas: [1, 1, 1] },
        arguments: &[],
        leaves: false,
    };
    for launches in [vec![], vec![launch(16)], vec![launch(0); 17]] {
        let refused = launch_together(&launches, &Memory::new(), &Options::default());
        assert!(matches!(refused, Err(Failure::Emulator(EmulatorError::Together { .. }))), "{refused:?}");
    }
}
