//! The warp-specialised mainloop for operands at any address: threads fill the swizzled tiles that `wgmma`
//! reads.
//!
//! A tensor copy needs rows that begin at multiples of 16 B. Here the producer's 128 threads copy instead.
//! Each copies 16 B of a tile at a time, in the largest units that the operand's address and leading
//! dimension allow: `cp.async` of 16, 8 or 4 B, or single elements through registers. Elements outside the
//! matrix become zero.

use core::marker::PhantomData;

use cute_rs::atom::Major;
use ptx::{Builder, Special, Value};

use super::thread_copy::{Copying, ThreadCopy, ThreadOrigin, WIDTHS};
use super::{AnyMainloop, DeviceMainloop, MainloopSite, Pass, WorkUnit, both_staged, multistage};
use crate::operand::Matrix;
use crate::operands::Visit;
use crate::plan::{OperandTile, Plan};
use crate::record::Described;

/// A warp-specialised mainloop with operand pair `O`, tile shape `T` and warp roles `R`, for operands at any
/// address and with any leading dimension. Use it if [`TmaWgmma`](super::TmaWgmma) cannot read the operands.
///
/// Every thread of the producer warpgroup copies a part of each stage. It arrives on the stage's full barrier
/// when its copies of that stage have landed, some stages after the newest stage that it has started.
/// Consumers work as those of `TmaWgmma` do.
#[derive(Clone, Copy, Debug)]
pub struct CopyWgmma<O, T, R>(PhantomData<(O, T, R)>);

/// The operands on the device.
#[derive(Clone, Copy, Debug)]
struct Sources<'f> {
    a: ThreadOrigin<'f>,
    b: ThreadOrigin<'f>,
    k: Value<'f, u32>,
}

impl<'f> Sources<'f> {
    /// The sources of a work unit.
    fn of(self, f: &'f Builder, plan: &Plan, unit: WorkUnit<'f>) -> Self {
        let Some(record) = unit.record else {
            return Self { a: self.a.of_group(unit.group), b: self.b.of_group(unit.group), ..self };
        };
        let [m, n, k] = record.extents(f, plan);
        let source = |Described { address, ld }: Described<'f>, mn, tile: OperandTile| {
            let bits = tile.bits();
            let ld = ld * u64::from(bits / 8);
            let width = WIDTHS.into_iter().rev().fold(f.constant(bits / 8), |narrow, width| {
                let fits = ((address | ld) & u64::from(width - 1)).equals(0);
                f.constant(width).where_or(fits, narrow)
            });
            ThreadOrigin { address, ld, mn, width, batch: None }
        };
        let [a, b] = record.operands(f, plan);
        let [a_tile, b_tile] = plan.operands;
        Self { a: source(a, m, a_tile), b: source(b, n, b_tile), k }
    }
}

/// The names of the parameters of A and of B, of the distance from one A or B to the next, and of K.
const NAMES: [[&str; 4]; 2] = [["a", "a_pitch", "a_rows", "a_width"], ["b", "b_pitch", "b_rows", "b_width"]];
const BATCHES: [&str; 2] = ["a_batch", "b_batch"];
const K: &str = "k";

/// The mainloop of [`CopyWgmma`]. The plan holds all numbers.
pub(super) const THREAD_COPIES: AnyMainloop =
    AnyMainloop::built_in(|spec| format!("{}_copied", spec.name()), state, device);

fn state(of: &MainloopSite<'_>, visit: &mut dyn Visit) {
    let plan = of.plan;
    if plan.form.described() {
        return;
    }
    for (i, names) in (0..).zip(NAMES).filter(|&(i, _)| plan.needs.matrices[i]) {
        let (tile, batched) = (&plan.operands[i], plan.operand_batches()[i]);
        let anywhere = plan.shares_rows()[i] && tile.major == Major::Mn;
        tile.state_threads(names, of.name(i), of.matrix(i), anywhere, visit);
        if batched {
            let stride = |matrix: Matrix| matrix.batch.stride * u64::from(tile.bits() / 8);
            visit.number(BATCHES[i], of.matrix(i).map(stride));
        }
    }
    visit.number(K, of.matrix(0).map(|a| a.k));
}

/// Finds the operands.
fn sources<'f>(f: &'f Builder, plan: &Plan) -> Sources<'f> {
    if plan.form.described() {
        let (wide, narrow) = (f.constant(0), f.constant(0));
        let nowhere = ThreadOrigin { address: wide, ld: wide, mn: narrow, width: narrow, batch: None };
        return Sources { a: nowhere, b: nowhere, k: narrow };
    }
    let batched = plan.operand_batches();
    let origin = |i: usize| {
        let origin = ThreadOrigin::of(f, NAMES[i]);
        ThreadOrigin { batch: batched[i].then(|| f.parameter(BATCHES[i])), ..origin }
    };
    // (M, K), (N, K), (BATCH) where there is one
    Sources { a: origin(0), b: origin(1), k: f.parameter(K) }
}

fn device<'f>(f: &'f Builder, plan: &Plan) -> DeviceMainloop<'f> {
    both_staged(f, plan);
    let sources = sources(f, plan);
    DeviceMainloop::new()
        .with_load(move |Pass { f, plan, ring, unit }, _| {
            let thread = f.special(Special::ThreadX) % 128;
            let Sources { a, b, k } = sources.of(f, plan, unit);
            let [a_tile, b_tile] = plan.operands;
            // (BLK_M, BLK_K, PIPE), (BLK_N, BLK_K, PIPE)
            let a = ThreadCopy::new(f, a_tile, a, k, thread);
            let b = ThreadCopy::new(f, b_tile, b, k, thread);
            let n = if plan.epilogue.split { unit.n >> 1 } else { unit.n };
            ring.fill_by_threads([unit.k_begin, unit.k_end], |stage, k_tile| {
                let k = k_tile * plan.mainloop.tile[2];
                a.copy(stage, [unit.m, k]);
                b.copy(stage, [n, k]);
            });
        })
        .with_load_and_multiply(move |Pass { f, plan, unit, .. }, consumer, _ahead| {
            let copying = Copying { thread: f.special(Special::ThreadX), threads: plan.threads, chunks: 1 };
            let Sources { a, b, k } = sources.of(f, plan, unit);
            let [a_tile, b_tile] = plan.operands;
            let a = ThreadCopy::by(f, a_tile, a, k, copying);
            let b = ThreadCopy::by(f, b_tile, b, k, copying);
            let n = if plan.epilogue.split { unit.n >> 1 } else { unit.n };
            multistage::multiply(f, plan, consumer, unit, &|stage, k_tile| {
                let k = k_tile * plan.mainloop.tile[2];
                a.copy_to(stage, [unit.m, k]);
                b.copy_to(stage, [n, k]);
            })
        })
}
