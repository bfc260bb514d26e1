//! Hazards of global memory that CTAs share: reads of data that another CTA has written.

use emulator::Fault;
use ptx::inst::ProxySpace;
use ptx::{AtomicOp, AtomicSem, LoadOrder, Location, Scope, Special, Value};

use crate::{BOX_BYTES, Case, Kernel};

/// The steps by which CTA 0 passes data to CTA 1. [`SOUND`] is correct.
#[derive(Clone, Copy)]
struct HandOver {
    /// Whether the writers synchronise before the flag is set.
    writers_meet: bool,
    /// The scope of a fence before the flag is set.
    fence: Option<Scope>,
    /// How the flag is read.
    look: Option<LoadOrder>,
    /// Whether the readers synchronise after the flag was seen.
    readers_meet: bool,
}

const SOUND: HandOver = HandOver {
    writers_meet: true,
    fence: Some(Scope::Gpu),
    look: Some(LoadOrder::Acquire(Scope::Gpu)),
    readers_meet: true,
};

impl<'f> Kernel<'f> {
    pub(crate) fn in_cta(self, number: u32, body: impl FnOnce()) {
        self.f.if_(self.f.special(Special::CtaX).equals(number), body);
    }

    /// Thread 0 of a CTA.
    pub(crate) fn once_in(self, number: u32, body: impl FnOnce()) {
        self.in_cta(number, || self.once(body));
    }

    pub(crate) fn word(self) -> Value<'f, u64> {
        self.data + self.thread.mul_wide(4)
    }

    /// Thread 0 sets the flag.
    pub(crate) fn raise(self) {
        let (f, flag) = (self.f, Location::global(self.flag, 0));
        self.once(|| f.reduce(AtomicOp::Add, flag, [f.constant(1u32)], (AtomicSem::Relaxed, Scope::Gpu)));
    }

    /// Thread 0 waits until the flag is set.
    pub(crate) fn await_flag(self, look: Option<LoadOrder>) {
        let f = self.f;
        self.once(|| {
            f.loop_(|| {
                let [seen] = match look {
                    Some(order) => f.load_ordered::<u32, 1>(order, Location::global(self.flag, 0)),
                    None => [f.load_global(self.flag, 0)],
                };
                f.break_if(seen.differs_from(0));
            });
        });
    }

    fn hand_over(self, how: HandOver) {
        let f = self.f;
        self.in_cta(0, || {
            f.store_global(self.word(), 0, [self.thread]);
            if how.writers_meet {
                f.barrier_sync(0, 64);
            }
            if let Some(scope) = how.fence {
                self.once(|| f.fence(scope));
            }
            self.raise();
        });
        self.in_cta(1, || {
            self.await_flag(how.look);
            if how.readers_meet {
                f.barrier_sync(0, 64);
            }
            let value = f.load_global::<u32>(self.word(), 0);
            f.store_global(self.out + self.thread.mul_wide(4), 0, [value]);
        });
    }
}

fn race(fault: &Fault) -> bool {
    matches!(fault, Fault::GlobalRace { .. })
}

pub(crate) fn cases() -> Vec<Case> {
    let two = |why, program: fn(Kernel<'_>)| Case { ctas: 2, ..Case::new(why, 64, race, program) };
    let cases = [
        two("two CTAs that write one word", |k| {
            let cta = k.f.special(Special::CtaX);
            k.once(|| k.f.store_global(k.out + if k.broken { cta / 2 } else { cta }.mul_wide(4), 0, [cta]));
        }),
        two("two CTAs that add to one word, one of them plainly", |k| {
            let f = k.f;
            k.once(|| {
                f.reduce(
                    AtomicOp::Add,
                    Location::global(k.data, 0),
                    [k.thread],
                    (AtomicSem::Relaxed, Scope::Gpu),
                );
                if k.broken {
                    let _seen = f.load_global::<u32>(k.data, 0);
                }
            });
        }),
        two("atomics for the own CTA alone", |k| {
            let scope = if k.broken { Scope::Cta } else { Scope::Gpu };
            let at = Location::global(k.data, 0);
            k.once(|| k.f.reduce(AtomicOp::Add, at, [k.thread], (AtomicSem::Relaxed, scope)));
        }),
        two("a flag raised before the other writers are done", |k| {
            k.hand_over(HandOver { writers_meet: !k.broken, ..SOUND });
        }),
        two("a flag raised without a fence", |k| {
            k.hand_over(HandOver { fence: (!k.broken).then_some(Scope::Gpu), ..SOUND });
        }),
        two("a fence for the own CTA alone", |k| {
            let scope = if k.broken { Scope::Cta } else { Scope::Gpu };
            k.hand_over(HandOver { fence: Some(scope), ..SOUND });
        }),
        two("a flag read without acquiring", |k| {
            let relaxed = k.broken.then_some(LoadOrder::Relaxed(Scope::Gpu));
            k.hand_over(HandOver { look: relaxed.or(SOUND.look), ..SOUND });
        }),
        two("a flag polled by plain loads", |k| {
            k.hand_over(HandOver { look: SOUND.look.filter(|_| !k.broken), ..SOUND });
        }),
        two("readers that do not wait for the one who saw the flag", |k| {
            k.hand_over(HandOver { readers_meet: !k.broken, ..SOUND });
        }),
        Case {
            ctas: 2,
            ..Case::new(
                "a flag that nobody raises",
                32,
                |fault| matches!(fault, Fault::Hang { .. } | Fault::Fuel { .. }),
                |k| {
                    k.in_cta(1, || {
                        k.in_twin(|| k.raise());
                    });
                    k.in_cta(0, || k.await_flag(SOUND.look));
                },
            )
        },
        two("a tensor store whose source alone has been waited for", |k| {
            let f = k.f;
            k.in_cta(0, || {
                k.zero(BOX_BYTES);
                k.store(k.base);
                k.once(|| {
                    f.bulk_wait(0, k.broken);
                    f.fence(Scope::Gpu);
                });
                k.raise();
            });
            k.in_cta(1, || {
                k.await_flag(SOUND.look);
                f.barrier_sync(0, 64);
                let _value = f.load_global::<u32>(k.out + k.thread.mul_wide(4), 0);
            });
        }),
        Case {
            ctas: 2,
            ..Case::new(
                "a tensor load of what another CTA stored, without a proxy fence",
                64,
                |fault| matches!(fault, Fault::GlobalUnfenced { .. }),
                |k| {
                    let f = k.f;
                    k.in_cta(0, || {
                        f.store_global(k.word(), 0, [k.thread]);
                        f.barrier_sync(0, 64);
                        k.once(|| f.fence(Scope::Gpu));
                        k.raise();
                    });
                    k.in_cta(1, || {
                        k.init();
                        k.await_flag(SOUND.look);
                        k.in_twin(|| k.once(|| f.fence_proxy_async(ProxySpace::Global)));
                        k.load(k.base);
                        k.once(|| f.mbarrier_wait(k.barrier(), 0));
                    });
                },
            )
        },
    ];
    cases.into_iter().collect()
}
