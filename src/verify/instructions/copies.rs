//! Forms of copies: `cp.async`, bulk copies, reducing copies, stores to a peer CTA, and states of
//! mbarriers.

use ptx::inst::{Arrival, AtomicOp, AtomicType, MbarrierOrder, MbarrierPhase, ProxySpace, Reduction};
use ptx::{Builder, BulkLoad, Special, Type, Value};

use super::memory::{plain, values};
use super::{InstructionCase, InstructionForm, tensors};

pub(super) const THREADS: u32 = 32;
/// The default ordering of operations on mbarriers.
const CTA: MbarrierOrder = MbarrierOrder::CTA;
/// Size of a line in bytes.
pub(super) const LINE: u32 = 512;
/// Offset of the barriers in shared memory, after a line and room for swizzles.
pub(super) const BARRIER: u32 = 8192;

/// Emits a program. Gets the addresses of the inputs, of the outputs and of shared memory.
pub(super) type Body = Box<dyn for<'f> Fn(&'f Builder, [Value<'f, u64>; 2], Value<'f, u32>) + Send + Sync>;

/// Calculates outputs from inputs.
type Expected = fn(&[u8]) -> Vec<u8>;

/// Every form.
pub(super) fn forms() -> Vec<InstructionForm> {
    let mut all = thread_copies();
    all.extend(lines());
    all.extend(reductions());
    all.extend(peers());
    all.extend(tensors::forms());
    all.push(states());
    all.push(last_arrivals());
    all
}

/// A form with one line of input and `output` bytes of output, which `expected` calculates from the input.
pub(super) fn line(
    named: (&str, String),
    (cluster, input, output): (u32, u32, u32),
    ty: Type,
    expected: Option<Expected>,
    body: Body,
) -> InstructionForm {
    let cases = move |random: &mut fastrand::Rng| {
        let case = |name| {
            let input = values(ty, input as usize, false, random);
            let expected = expected.map(|expected| expected(&input));
            InstructionCase { expected, ..plain(name, input, None, ty.bytes()) }
        };
        ["first", "second"].map(case).into()
    };
    let form = InstructionForm::new(
        named,
        THREADS,
        [input, output, ty.bytes()],
        move |f, inputs, outputs| body(f, [inputs, outputs], f.shared_base()),
        cases,
    );
    InstructionForm { shared_bytes: BARRIER + 64, cluster, ..form }
}

pub(super) fn first<'f>(f: &'f Builder) -> Value<'f, bool> {
    f.special(Special::ThreadX).equals(0)
}

/// Initialises a barrier for one arrival in every CTA, and arrives with `bytes` expected bytes.
pub(super) fn awaiting<'f>(f: &'f Builder, shared: Value<'f, u32>, bytes: u32) -> Value<'f, u32> {
    let barrier = shared + BARRIER;
    f.if_(first(f), || {
        f.mbarrier_init(barrier, 1);
        f.fence_mbarrier_init();
        f.mbarrier_arrive_expect(barrier, bytes);
    });
    f.cluster_arrive(false);
    f.cluster_wait();
    barrier
}

/// Copies `bytes` bytes of shared memory to global memory.
pub(super) fn out<'f>(f: &'f Builder, shared: Value<'f, u32>, to: Value<'f, u64>, bytes: u32) {
    let thread = f.special(Special::ThreadX);
    for at in (0..bytes).step_by(THREADS as usize * 4) {
        let [word] = f.load_shared_vector::<u32, 1>(shared + thread * 4 + at, 0);
        f.store_global(to + (thread * 4 + at).cast::<u64>(), 0, [word]);
    }
}

/// Copies `bytes` bytes of global memory to shared memory, and fences.
pub(super) fn fill<'f>(f: &'f Builder, from: Value<'f, u64>, shared: Value<'f, u32>, bytes: u32) {
    let thread = f.special(Special::ThreadX);
    for at in (0..bytes).step_by(THREADS as usize * 4) {
        let word = f.load_global::<u32>(from + (thread * 4 + at).cast::<u64>(), 0);
        f.store_shared(shared + thread * 4 + at, 0, [word]);
    }
    f.fence_proxy_async(ProxySpace::All);
    f.barrier_sync(0, THREADS);
}

/// Fills `bytes` bytes of shared memory with zeros, and fences.
pub(super) fn zero<'f>(f: &'f Builder, shared: Value<'f, u32>, bytes: u32) {
    let thread = f.special(Special::ThreadX);
    for at in (0..bytes).step_by(THREADS as usize * 4) {
        f.store_shared(shared + thread * 4 + at, 0, [f.constant(0u32)]);
    }
    f.fence_proxy_async(ProxySpace::All);
}

/// Fills `bytes` bytes of global memory with a word.
pub(super) fn set<'f>(f: &'f Builder, to: Value<'f, u64>, bytes: u32, word: u32) {
    let thread = f.special(Special::ThreadX);
    for at in (0..bytes).step_by(THREADS as usize * 4) {
        f.store_global(to + (thread * 4 + at).cast::<u64>(), 0, [f.constant(word)]);
    }
}

/// Commits the first thread's bulk group, and waits for it.
pub(super) fn finished(f: &Builder) {
    f.bulk_commit();
    f.bulk_wait(0, false);
}

fn thread_copies() -> Vec<InstructionForm> {
    let mut all = Vec::new();
    for bytes in [4, 8, 16] {
        for read in [None, Some(bytes / 2), Some(0)] {
            let what = read.map_or_else(String::new, |read| format!(" of which {read}"));
            let body: Body = Box::new(move |f, [input, output], shared| {
                let thread = f.special(Special::ThreadX);
                let (at, size) = (thread * bytes, read.map(|read| f.constant(read)));
                f.copy_async(bytes, shared + at, (input + at.cast::<u64>(), 0), size);
                f.copy_commit();
                f.copy_wait(0);
                f.barrier_sync(0, THREADS);
                out(f, shared, output, THREADS * bytes);
            });
            let expected: Option<Expected> = if read.is_none() { Some(<[u8]>::to_vec) } else { None };
            let sizes = (1, THREADS * bytes, THREADS * bytes);
            all.push(line(
                ("cp.async", format!("cp.async {bytes} B{what}")),
                sizes,
                Type::U32,
                expected,
                body,
            ));
        }
    }
    all
}

fn lines() -> Vec<InstructionForm> {
    let sizes = (1, LINE, LINE);
    let same: Option<Expected> = Some(<[u8]>::to_vec);
    let load: Body = Box::new(|f, [input, output], shared| {
        let barrier = awaiting(f, shared, LINE);
        f.if_(first(f), || {
            f.bulk_prefetch(input, LINE);
            let load = BulkLoad { src: input, dst: shared, barrier, multicast: None, hint: None };
            f.bulk_load(load, LINE);
        });
        f.mbarrier_wait(barrier, 0);
        out(f, shared, output, LINE);
    });
    let store: Body = Box::new(|f, [input, output], shared| {
        fill(f, input, shared, LINE);
        f.if_(first(f), || {
            f.bulk_store(output, shared, LINE);
            finished(f);
        });
    });
    let multicast: Body = Box::new(|f, [input, output], shared| {
        let barrier = awaiting(f, shared, LINE);
        let rank = f.special(Special::ClusterRank);
        f.if_(first(f), || {
            let part = rank * (LINE / 4);
            let multicast = Some(f.constant(0b1111u16));
            let (src, dst) = (input + part.cast::<u64>(), shared + part);
            f.bulk_load(BulkLoad { src, dst, barrier, multicast, hint: None }, LINE / 4);
        });
        f.mbarrier_wait(barrier, 0);
        out(f, shared, output + rank.mul_wide(LINE), LINE);
        f.cluster_arrive(false);
        f.cluster_wait();
    });
    let four: Option<Expected> = Some(|line| line.repeat(4));
    vec![
        line(("cp.async.bulk", "cp.async.bulk global to shared".into()), sizes, Type::U32, same, load),
        line(("cp.async.bulk", "cp.async.bulk shared to global".into()), sizes, Type::U32, same, store),
        line(
            ("cp.async.bulk", "cp.async.bulk multicast".into()),
            (4, LINE, 4 * LINE),
            Type::U32,
            four,
            multicast,
        ),
    ]
}

fn reductions() -> Vec<InstructionForm> {
    let mut all = Vec::new();
    for op in AtomicOp::ALL {
        for ty in AtomicType::ALL {
            let reduce = Reduction { op, ty };
            if reduce.in_global() {
                // The output starts as the first half of the inputs. The second half is added to it.
                let body: Body = Box::new(move |f, [input, output], shared| {
                    fill(f, input, shared, LINE);
                    f.if_(first(f), || {
                        f.bulk_store(output, shared, LINE);
                        finished(f);
                    });
                    f.barrier_sync(0, THREADS);
                    fill(f, input + u64::from(LINE), shared, LINE);
                    f.if_(first(f), || {
                        f.bulk_reduce((op, ty), output, shared, LINE);
                        finished(f);
                    });
                });
                let name = format!("cp.reduce.async.bulk.global{}", reduce.suffix());
                let sizes = (1, 2 * LINE, LINE);
                all.push(line(("cp.reduce.async.bulk.global", name), sizes, ty.register(), None, body));
            }
            if reduce.in_shared() {
                all.push(shared_reduction(reduce));
            }
        }
    }
    all
}

/// Rank 0 combines its line with that of rank 1, which holds the second half of the inputs.
fn shared_reduction(reduce: Reduction) -> InstructionForm {
    let body: Body = Box::new(move |f, [input, output], shared| {
        let rank = f.special(Special::ClusterRank);
        fill(f, input + rank.mul_wide(LINE), shared, LINE);
        let barrier = awaiting(f, shared, LINE);
        f.if_(rank.equals(0), || {
            f.if_(first(f), || {
                let to = (f.map_shared(shared, 1), f.map_shared(barrier, 1));
                f.bulk_share(to, shared, LINE, Some((reduce.op, reduce.ty)));
            });
        });
        f.if_(rank.equals(1), || {
            f.mbarrier_wait(barrier, 0);
            out(f, shared, output, LINE);
        });
        f.cluster_arrive(false);
        f.cluster_wait();
    });
    let name = format!("cp.reduce.async.bulk.shared::cluster{}", reduce.suffix());
    let named = ("cp.reduce.async.bulk.shared::cluster", name);
    line(named, (2, 2 * LINE, LINE), reduce.ty.register(), None, body)
}

fn peers() -> Vec<InstructionForm> {
    let share: Body = Box::new(|f, [input, output], shared| {
        let rank = f.special(Special::ClusterRank);
        fill(f, input, shared + LINE, LINE);
        let barrier = awaiting(f, shared, LINE);
        f.if_(first(f), || {
            let peer = rank ^ 1;
            f.bulk_share(
                (f.map_shared(shared, peer), f.map_shared(barrier, peer)),
                shared + LINE,
                LINE,
                None,
            );
        });
        f.mbarrier_wait(barrier, 0);
        out(f, shared, output + rank.mul_wide(LINE), LINE);
        f.cluster_arrive(false);
        f.cluster_wait();
    });
    let stores: Body = Box::new(|f, [input, output], shared| {
        let rank = f.special(Special::ClusterRank);
        let barrier = awaiting(f, shared, LINE);
        let (thread, peer) = (f.special(Special::ThreadX), rank ^ 1);
        let words = f.load_global_vector::<u32, 4>(input + thread.mul_wide(16), 0);
        f.store_async((f.map_shared(shared, peer) + thread * 16, f.map_shared(barrier, peer)), words);
        f.mbarrier_wait(barrier, 0);
        out(f, shared, output + rank.mul_wide(LINE), LINE);
        f.cluster_arrive(false);
        f.cluster_wait();
    });
    let both: Option<Expected> = Some(|line| line.repeat(2));
    let sizes = (2, LINE, 2 * LINE);
    let mut all = vec![
        line(("cp.async.bulk", "cp.async.bulk shared to a peer".into()), sizes, Type::U32, both, share),
        line(("st.async", "st.async.v4.b32".into()), sizes, Type::U32, both, stores),
    ];
    for op in AtomicOp::ALL {
        let ty = AtomicType::U32;
        let reduce = Reduction { op, ty };
        if reduce.of_one() {
            // The first words of the inputs are rank 1's, the next are rank 0's.
            let body: Body = Box::new(move |f, [input, output], shared| {
                let rank = f.special(Special::ClusterRank);
                fill(f, input, shared, 128);
                let barrier = awaiting(f, shared, 128);
                let thread = f.special(Special::ThreadX);
                f.if_(rank.equals(0), || {
                    let word = f.load_global::<u32>(input + thread.mul_wide(4), 128);
                    let to = (f.map_shared(shared, 1) + thread * 4, f.map_shared(barrier, 1));
                    f.reduce_async((op, ty), to, word);
                });
                f.if_(rank.equals(1), || {
                    f.mbarrier_wait(barrier, 0);
                    out(f, shared, output, 128);
                });
                f.cluster_arrive(false);
                f.cluster_wait();
            });
            let name = format!("red.async{}", reduce.suffix());
            all.push(line(("red.async", name), (2, 256, 128), Type::U32, None, body));
        }
    }
    all
}

/// What threads can read from an mbarrier's states: the number of missing arrivals, and whether a phase has
/// completed.
fn states() -> InstructionForm {
    let body: Body = Box::new(|f, [input, output], shared| {
        let thread = f.special(Special::ThreadX);
        let barrier = shared + BARRIER;
        f.if_(first(f), || {
            f.mbarrier_init(barrier, 40);
            let count = f.load_global::<u32>(input, 0) & 7;
            let state = f.mbarrier_arrive_state(barrier, Arrival::count(count + 1), false, CTA);
            let early = f.mbarrier_test(barrier, MbarrierPhase::state(state), false, CTA);
            let pending = f.mbarrier_pending(state);
            f.mbarrier_arrival(barrier, Arrival::count(2), true, false, CTA);
            let then = f.mbarrier_pending(f.mbarrier_arrive_state(
                barrier,
                Arrival::count(f.constant(37u32) - count),
                false,
                CTA,
            ));
            f.loop_(|| f.break_if(f.mbarrier_test(barrier, MbarrierPhase::state(state), true, CTA)));
            let next = f.mbarrier_pending(f.mbarrier_arrive_state(barrier, Arrival::count(1), false, CTA));
            let flag = f.constant(1u32).where_or(early, 0);
            f.store_global(output, 0, [pending, then, next, flag]);
        });
        f.store_global(output + thread.mul_wide(4), 16, [thread]);
    });
    line(("mbarrier", "mbarrier states".to_owned()), (1, 64, 144), Type::U32, None, body)
}

/// Arrivals that later phases no longer expect, and arrivals that must not complete their phase: the number
/// of missing arrivals.
fn last_arrivals() -> InstructionForm {
    let body: Body = Box::new(|f, [input, output], shared| {
        let barrier = shared + BARRIER;
        let thread = f.special(Special::ThreadX);
        f.if_(first(f), || {
            f.mbarrier_init(barrier, 8);
            let one = f.load_global::<u32>(input, 0) & 1 | 1;
            let states = [
                f.mbarrier_arrive_state(barrier, Arrival::no_complete(one * 3), false, CTA),
                f.mbarrier_arrive_state(barrier, Arrival::no_complete(one), true, CTA),
                f.mbarrier_arrive_state(barrier, Arrival::count(one * 2), true, CTA),
                f.mbarrier_arrive_state(barrier, Arrival::expect(one * 32), true, CTA),
            ];
            let missing = states.map(|state| f.mbarrier_pending(state));
            f.store_global(output, 0, missing);
            f.mbarrier_arrive(barrier);
            let early = f.mbarrier_test(barrier, MbarrierPhase::state(states[3]), false, CTA);
            f.mbarrier_transact(true, barrier, 32, false);
            let late = f.mbarrier_test(barrier, MbarrierPhase::state(states[3]), false, CTA);
            let next = f.mbarrier_pending(f.mbarrier_arrive_state(barrier, Arrival::count(4), false, CTA));
            let flag = |cond| f.constant(1u32).where_or(cond, 0);
            f.store_global(output, 16, [flag(early), flag(late), next, one]);
        });
        f.store_global(output + thread.mul_wide(4), 32, [thread]);
    });
    let expected: Expected = |_| {
        let words = [8, 5, 4, 2, 0, 1, 4, 1].into_iter().chain(0..THREADS);
        words.flat_map(u32::to_le_bytes).collect()
    };
    let named = ("mbarrier", "mbarrier last arrivals".to_owned());
    line(named, (1, 64, 32 + 4 * THREADS), Type::U32, Some(expected), body)
}
