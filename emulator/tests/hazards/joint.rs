//! Hazards of asynchronous stores and reductions that are in flight together. Each pair of operations is combined
//! with each of the two mbarriers that a reader can forget.

use ptx::{AtomicOp, AtomicType, Value};

use crate::tools::{race, unready};
use crate::{Case, Kernel};

const ADD: (AtomicOp, AtomicType) = (AtomicOp::Add, AtomicType::U32);
/// Bytes that each operation is announced with; the smaller ones bring the rest by a store of their own.
const BYTES: u32 = 16;

/// An operation on words in the shared memory of a peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Operation {
    /// `st.async` of four words.
    Store,
    /// `red.async` of one word, and `st.async` of as many bytes elsewhere.
    Reduce,
    /// `cp.reduce.async.bulk` of four words.
    Bulk,
}

use Operation::{Bulk, Reduce, Store};

impl Operation {
    const fn name(self) -> &'static str {
        match self {
            Store => "st.async",
            Reduce => "red.async",
            Bulk => "cp.reduce.async.bulk",
        }
    }
}

impl<'f> Kernel<'f> {
    /// One thread of rank 0 starts an operation on the first words of rank 1, counted by this mbarrier of it.
    fn begins(self, operation: Operation, number: u32) {
        let f = self.f;
        let [dst, barrier] = [self.base, self.bar(number)].map(|at| f.map_shared(at, 1));
        let words = [self.thread; 4];
        self.in_rank(0, || {
            self.once(|| match operation {
                Store => f.store_async((dst, barrier), words),
                Reduce => {
                    f.reduce_async(ADD, (dst, barrier), self.thread);
                    let [a, b, _, _] = words;
                    let elsewhere: Value<'f, u32> = dst + (256 + 64 * number);
                    f.store_async((elsewhere, barrier), [a, b]);
                    f.store_async((elsewhere + 16, barrier), [a]);
                }
                Bulk => f.bulk_share((dst, barrier), self.base + 512, BYTES, Some(ADD)),
            });
        });
    }

    /// Both mbarriers of both ranks, and shared memory with zeros that copies may read.
    fn prepared(self) {
        let f = self.f;
        self.zero(1024);
        f.fence_proxy_async(ptx::ProxySpace::Shared);
        self.once(|| {
            for number in 0..2 {
                f.mbarrier_init(self.bar(number), 1);
            }
            f.fence_mbarrier_init();
        });
        self.meet();
        self.in_rank(1, || {
            self.once(|| {
                for number in 0..2 {
                    f.mbarrier_arrive_expect(self.bar(number), BYTES);
                }
            });
        });
    }
}

/// Two operations that add to one word, counted by two mbarriers, one of which the reader does not wait for.
fn forgotten(first: Operation, second: Operation, missing: u32) -> Case {
    let which = if missing == 0 { "first" } else { "second" };
    let why: &'static str =
        format!("{}, then {} to one word, the {which} not waited for", first.name(), second.name()).leak();
    let body = move |k: Kernel<'_>| {
        k.prepared();
        k.begins(first, 0);
        k.begins(second, 1);
        k.in_rank(1, || {
            for number in (0..2).filter(|number| !k.broken || *number != missing) {
                k.f.mbarrier_wait(k.bar(number), 0);
            }
            k.once(|| k.peek(k.base));
            for number in 0..2 {
                k.f.mbarrier_wait(k.bar(number), 0);
            }
        });
        k.meet();
    };
    Case::in_cluster(why, |f| race(f) || unready(f), body).isa("red.async: asynchronous operation")
}

/// Two operations on one word, of which at least one does not add: nothing says which comes first.
fn unordered(first: Operation, second: Operation) -> Case {
    let why: &'static str =
        format!("{}, then {} to the same word before it has come", first.name(), second.name()).leak();
    let body = move |k: Kernel<'_>| {
        k.prepared();
        k.begins(first, 0);
        if !k.broken {
            k.in_rank(1, || k.f.mbarrier_wait(k.bar(0), 0));
            k.meet();
        }
        k.begins(second, 1);
        k.in_rank(1, || {
            for number in 0..2 {
                k.f.mbarrier_wait(k.bar(number), 0);
            }
            k.once(|| k.peek(k.base));
        });
        k.meet();
    };
    Case::in_cluster(why, |f| race(f) || unready(f), body).isa("st.async: asynchronous operation")
}

pub(crate) fn cases() -> Vec<Case> {
    let mut all = Vec::new();
    for (first, second) in [(Reduce, Reduce), (Reduce, Bulk), (Bulk, Reduce), (Bulk, Bulk)] {
        all.extend([0, 1].map(|missing| forgotten(first, second, missing)));
    }
    let one_stores = [(Store, Store), (Store, Reduce), (Reduce, Store), (Store, Bulk), (Bulk, Store)];
    all.extend(one_stores.map(|(first, second)| unordered(first, second)));
    all
}
