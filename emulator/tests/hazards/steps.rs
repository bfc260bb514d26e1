//! Hazards of loops: a path that skips a step of a ring, and words that some threads change while others
//! still branch on them.

use ptx::{AtomicSem, ProxySpace};

use crate::tools::{ACQUIRE, Cursor, RELEASE, grid, hang, out_of_step, race, unready};
use crate::{BOX_BYTES, Case, Kernel};

impl Cursor<'_> {
    /// Goes `steps` further. With `one_turn`, every skip counts as one round.
    fn skips(self, steps: u32, one_turn: bool) {
        self.stage.set((self.stage.get() + steps) % self.stages);
        let flips = if one_turn { 1 } else { (steps / self.stages) & 1 };
        self.parity.set(self.parity.get() ^ flips);
    }
}

/// Two consumers of a ring with two stages. Each takes every other tile, which is four steps, and skips the
/// tiles between. `ordered` lets one of them wait for its stages only after the other one has ended its tile.
fn in_turn(k: Kernel<'_>, ordered: bool, one_turn: bool) {
    let (f, own) = (k.f, k.thread / 32);
    k.barriers([1; 4], 96);
    k.roles(
        || {
            let at = k.cursor(2);
            f.repeat(f.constant(16u32), |_| k.fills(at));
        },
        || {
            let at = k.cursor(2);
            k.in_warp(2, || {
                at.skips(4, one_turn);
                if ordered {
                    f.barrier_arrive(1, 64);
                }
            });
            f.repeat(f.constant(2u32), |_| {
                if ordered {
                    f.barrier_sync(own, 64);
                }
                f.repeat(f.constant(4u32), |_| k.takes(at));
                at.skips(4, one_turn);
                if ordered {
                    f.barrier_arrive(own ^ 3, 64);
                }
            });
            if ordered {
                k.in_warp(1, || f.barrier_sync(1, 64));
            }
        },
    );
}

/// A path that skips a step of a ring.
pub(crate) fn skipped() -> Vec<Case> {
    const PARITY: &str = "mbarrier.try_wait: phaseParity";
    vec![
        Case::new("an empty tile whose stage the consumer does not take", 64, out_of_step, |k| {
            k.barriers([1; 4], 64);
            k.roles(
                || {
                    let at = k.cursor(2);
                    k.f.repeat(k.f.constant(6u32), |_| k.fills(at));
                },
                || {
                    let at = k.cursor(2);
                    k.f.repeat(k.f.constant(6u32), |tile| {
                        k.f.if_else(tile.equals(2), || k.in_twin(|| k.takes(at)), || k.takes(at));
                    });
                },
            );
        })
        .isa("cp.async.bulk.tensor: completion mechanism"),
        Case::new("an empty tile that the producer skips and the consumer takes", 96, hang, |k| {
            k.barriers([1, 1, 1, 2, 2, 2], 96);
            k.roles(
                || {
                    let at = k.cursor(3);
                    k.f.repeat(k.f.constant(7u32), |tile| {
                        k.f.if_((tile % 3).differs_from(1), || k.fills(at));
                    });
                },
                || {
                    let at = k.cursor(3);
                    k.f.repeat(k.f.constant(7u32), |tile| {
                        k.f.if_else(
                            (tile % 3).equals(1),
                            || {
                                k.in_broken(|| k.takes(at));
                            },
                            || k.takes(at),
                        );
                    });
                },
            );
        })
        .isa("mbarrier.try_wait"),
        Case::new("a parity that turns only with the tiles that are stored", 64, out_of_step, |k| {
            // The first warp computes, and the second one stores all tiles but one.
            k.barriers([1, 1], 64);
            k.split(
                || {
                    let at = k.cursor(1);
                    k.f.repeat(k.f.constant(5u32), |tile| {
                        k.f.mbarrier_wait(k.empty(at), at.parity.get() ^ 1);
                        k.write(k.own(k.base), tile);
                        k.f.warp_sync();
                        k.leader(|| k.f.mbarrier_arrive(k.full(at)));
                        at.advance();
                    });
                },
                || {
                    let at = k.cursor(1);
                    k.f.repeat(k.f.constant(5u32), |tile| {
                        k.f.mbarrier_wait(k.full(at), at.parity.get());
                        k.f.if_(tile.differs_from(1), || k.peek(k.other(k.base)));
                        k.gives_back(at);
                        if k.broken {
                            k.f.if_(tile.differs_from(1), || at.advance());
                        } else {
                            at.advance();
                        }
                    });
                },
            );
        })
        .isa(PARITY),
        Case::new("a tile that is masked out and whose stage is not given back", 64, hang, |k| {
            k.barriers([1; 4], 64);
            k.roles(
                || {
                    let at = k.cursor(2);
                    k.f.repeat(k.f.constant(6u32), |_| k.fills(at));
                },
                || {
                    let at = k.cursor(2);
                    k.f.repeat(k.f.constant(6u32), |tile| {
                        k.f.mbarrier_wait(k.full(at), at.parity.get());
                        k.f.if_else(
                            tile.equals(1),
                            || k.in_twin(|| k.gives_back(at)),
                            || {
                                k.peek(k.base + at.stage.get() * 1024 + k.lane() * 4);
                                k.gives_back(at);
                            },
                        );
                        at.advance();
                    });
                },
            );
        })
        .isa("mbarrier.arrive: pending count"),
        Case::new(
            "two consumers in turn, and a skip of two rounds turns the parity once",
            96,
            out_of_step,
            |k| {
                in_turn(k, true, k.broken);
            },
        )
        .isa(PARITY),
        Case::new(
            "two consumers in turn, and nothing holds back the one that is ahead",
            96,
            out_of_step,
            |k| {
                in_turn(k, !k.broken, false);
            },
        )
        .isa("mbarrier.try_wait: the current and the immediately preceding phase alone"),
        Case::new(
            "a tile without a store that goes on to the next staging buffer",
            32,
            |f| unready(f) || race(f),
            |k| {
                k.zero(2 * BOX_BYTES);
                k.once(|| {
                    let at = k.cursor(2);
                    k.f.repeat(k.f.constant(3u32), |tile| {
                        k.f.bulk_wait(1, true);
                        let buffer = k.base + at.stage.get() * 1024;
                        k.f.if_else(
                            tile.equals(1),
                            || k.in_broken(|| at.advance()),
                            || {
                                k.write(buffer, tile);
                                k.f.fence_proxy_async(ProxySpace::Shared);
                                k.f.bulk_store(k.out + tile.mul_wide(64), buffer, 64);
                                k.f.bulk_commit();
                                at.advance();
                            },
                        );
                    });
                    k.f.bulk_wait(0, true);
                });
            },
        )
        .isa("cp.async.bulk.wait_group: N most recent groups"),
    ]
}

/// Words that some threads change while others still branch on them.
pub(crate) fn branches() -> Vec<Case> {
    const RACES: &str = "Memory Consistency Model, Conflict and data-races";
    vec![
        Case::new("the last block's mark cleared while its CTA still asks for it", 64, race, |k| {
            k.once(|| {
                let ticket = k.add(k.flag_at(0), AtomicSem::AcquireRelease);
                k.write(k.base, k.f.constant(1u32).where_or(ticket.equals(0), 0));
            });
            k.f.barrier_sync(0, 64);
            let last = k.read(k.base);
            k.f.if_(last.equals(1), || {
                k.touch(k.data + k.thread.mul_wide(4));
                k.in_twin(|| k.f.barrier_sync(1, 64));
                k.once(|| k.write(k.base, 0u32));
            });
        })
        .isa(RACES),
        Case::new("a loop until nothing changes, and the mark is cleared too soon", 128, race, |k| {
            // Each round, the threads that change something set the mark. The others set nothing.
            let (f, round) = (k.f, k.f.variable(0u32));
            k.zeroed(64, 128);
            f.loop_(|| {
                k.once(|| k.write(k.base, 0u32));
                f.barrier_sync(0, 128);
                k.f.if_(k.thread.equals(round.get() * 32) & round.get().less_than(3), || {
                    k.write(k.base, 1u32);
                });
                f.barrier_sync(0, 128);
                let changed = k.read(k.base);
                k.in_twin(|| f.barrier_sync(0, 128));
                f.break_if(changed.equals(0));
                round.set(round.get() + 1);
            });
        })
        .isa(RACES),
        Case::new("the next tile told through a slot that is still being read", 96, race, |k| {
            // The first warp draws tiles and tells them to the others, until there are none.
            let f = k.f;
            k.barriers([1, 2], 96);
            k.roles(
                || {
                    for round in 0..4 {
                        let tile = k.add(k.flag_at(0), AtomicSem::Relaxed);
                        f.mbarrier_wait(k.bar(1), round & 1 ^ 1);
                        k.write(k.base, tile);
                        f.mbarrier_arrive(k.bar(0));
                    }
                },
                || {
                    let at = k.cursor(1);
                    f.loop_(|| {
                        f.mbarrier_wait(k.bar(0), at.parity.get());
                        k.in_broken(|| k.gives_back(at));
                        let tile = k.read(k.base);
                        k.in_twin(|| k.gives_back(at));
                        at.advance();
                        f.break_if(tile.equals(3));
                    });
                },
            );
        })
        .isa("mbarrier.arrive: .release orders earlier accesses alone"),
        Case::new("the scheduler's next tile in a loop with one barrier", 64, race, |k| {
            let f = k.f;
            let draws = || {
                let tile = k.add(k.flag_at(0), AtomicSem::Relaxed);
                k.write(k.base, tile);
            };
            k.once(draws);
            f.barrier_sync(0, 64);
            f.while_(
                || k.read(k.base).less_than(3),
                || {
                    k.write(k.own(k.stage(1)), 0u32);
                    k.in_twin(|| f.barrier_sync(0, 64));
                    k.once(draws);
                    f.barrier_sync(0, 64);
                },
            );
        })
        .isa(RACES),
        grid("a count of tiles in global memory lowered while another CTA loops over it", 2, race, |k| {
            let f = k.f;
            k.once_in(0, || {
                f.store_global(k.flag, 0, [f.constant(3u32)]);
                k.set_flag(1, RELEASE);
                k.in_twin(|| k.poll(k.flag_at(2), ACQUIRE));
                f.store_global(k.flag, 0, [f.constant(2u32)]);
            });
            k.once_in(1, || {
                let tile = f.variable(0u32);
                k.poll(k.flag_at(1), ACQUIRE);
                f.while_(
                    || tile.get().less_than(f.load_global::<u32>(k.flag, 0)),
                    || {
                        k.touch(k.data + tile.get().mul_wide(128));
                        tile.set(tile.get() + 1);
                    },
                );
                k.set_flag(2, RELEASE);
            });
        })
        .isa(RACES),
    ]
}
