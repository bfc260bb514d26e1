//! The sourced epilogue: D = alpha * acc + beta * C, with C loaded by tensor copies in advance.

use core::cell::RefCell;
use core::marker::PhantomData;

use ptx::{Builder, TensorLoad, Value, Var};
use typenum::U2;

use super::OnDevice;
use super::factors::Factors;
use super::staging::{Staging, Through};
use super::store::{Combine, Output, StoreSpec};
use super::tma::TmaDevice;
use crate::element::{Format, Packed};
use crate::extent::Extent;
use crate::form::Batch;
use crate::mainloop::{Consumer, Fragment, FragmentRow, Pass, begin};
use crate::operand::{MatrixRef, Widest};
use crate::operands::Visit;
use crate::plan::{MBARRIER_BYTES, Plan};
use crate::tree::Site;

/// The linear epilogue `D = alpha * acc + beta * C`, as [`LinearCombination`](super::LinearCombination) with
/// [`TmaStore`](super::TmaStore) computes it. The difference: tensor copies load C as well, into the buffers from which D is
/// stored.
///
/// Before a consumer warpgroup multiplies a tile, it starts the copies of the tile's first parts, one per
/// buffer. They arrive during the mainloop. Each part is combined in place. When its copy to D has left the
/// buffer, the next part of C is loaded there. With as many buffers as the warpgroup's fragment has parts
/// ([`staging`](field@Plan::staging)), C is never waited for, but the buffers take memory from pipeline
/// stages. `Buffers` is 2 by default.
///
/// C is read only if `beta` is not zero. Then its address and leading dimension must be multiples of 16 B, as
/// D's. C may be D itself. Tiles must be whole: Stream-K, where the last CTA to arrive finishes a tile, is
/// refused.
///
/// ```
/// use collective::{Cooperative, Epilogue, KMajor, Mainloop, Operands, Plan, SourcedCombination, Tile, TmaWgmma};
/// use half::bf16;
/// use typenum::{U2, U4, U64, U128, U256};
///
/// type M = TmaWgmma<Operands<KMajor<bf16>, KMajor<bf16>>, Tile<U128, U256, U64>, Cooperative<U2>>;
/// const TWO: Plan = Plan::checked(M::SPEC, SourcedCombination::<bf16>::SPEC);
/// const FOUR: Plan = Plan::checked(M::SPEC, SourcedCombination::<bf16, U4>::SPEC);
/// assert_eq!((TWO.ring.stages, FOUR.ring.stages), (4, 3));
/// ```
#[derive(Clone, Copy, Debug)]
pub struct SourcedCombination<T, Buffers = U2, L = Widest>(PhantomData<(T, Buffers, L)>);

/// The names of C's kernel parameters.
const C: [&str; 2] = ["c_map", "c_step"];

/// The kernel parameters of [`SourcedCombination`] on the device, and its state from tile to tile.
#[derive(Clone, Copy, Debug)]
pub(super) struct SourcedDevice<'f> {
    store: StoreSpec,
    factors: Factors<'f>,
    c_map: Value<'f, u64>,
    /// Distance between the matrix coordinates of consecutive GEMMs' C, 1 or 0; `None` if there is only one.
    c_step: Option<Value<'f, u32>>,
    d: TmaDevice<'f>,
    /// 1 after an odd number of tiles, else 0.
    odd: Var<'f, u32>,
}

impl<'f> SourcedDevice<'f> {
    /// Finds the kernel parameters.
    pub(super) fn of_kernel(f: &'f Builder, plan: &Plan, store: StoreSpec) -> Self {
        Self {
            store: store.moved(),
            factors: Factors::of_kernel(f, store.format),
            c_map: f.parameter(C[0]),
            c_step: plan.form.outputs().then(|| f.parameter(C[1])),
            d: TmaDevice::of_kernel(f, plan),
            odd: f.variable(0u32),
        }
    }

    fn reads_c(&self) -> Value<'f, bool> {
        self.factors.reads_c()
    }

    /// C's tensor map, and the coordinate of the GEMM's C in it.
    fn source(&self, group: Option<Value<'f, u32>>) -> (Value<'f, u64>, Option<Value<'f, u32>>) {
        (self.c_map, self.c_step.zip(group).map(|(step, group)| group * step))
    }
}

/// The copies of C by one thread of a warpgroup.
struct Copies<'f> {
    f: &'f Builder,
    staging: Staging,
    c: (Value<'f, u64>, Option<Value<'f, u32>>),
    /// Shared addresses of the warpgroup's first buffer and of its first mbarrier.
    buffers: Value<'f, u32>,
    barriers: Value<'f, u32>,
    /// Number of buffers, and bytes of each.
    count: u32,
    bytes: u32,
    /// Number of parts of the warpgroup's fragment of a tile.
    parts: u32,
    /// First element of the warpgroup's fragment in the output.
    first: [Value<'f, u32>; 2],
}

impl<'f> Copies<'f> {
    fn new(
        format: Format,
        f: &'f Builder,
        plan: &Plan,
        [shared, warpgroup]: [Value<'f, u32>; 2],
        c: (Value<'f, u64>, Option<Value<'f, u32>>),
        first: [Value<'f, u32>; 2],
    ) -> Self {
        let staging = Staging::new(format, plan);
        let (count, bytes) = (plan.staging.buffers, plan.staging.buffer_bytes);
        Self {
            f,
            c,
            buffers: staging.base(plan, shared, warpgroup),
            barriers: shared + warpgroup * (count * MBARRIER_BYTES) + plan.source_barriers_offset(),
            count,
            bytes,
            parts: staging.parts(plan),
            first,
            staging,
        }
    }

    fn barrier(&self, part: u32) -> Value<'f, u32> {
        self.barriers + part % self.count * MBARRIER_BYTES
    }

    /// Starts the copy of a part into its buffer, which must be free. One thread calls it.
    fn start(&self, part: u32) {
        let (f, barrier) = (self.f, self.barrier(part));
        f.mbarrier_arrive_expect(barrier, self.bytes);
        let dst = self.buffers + part % self.count * self.bytes;
        let (map, matrix) = self.c;
        let load = TensorLoad { map, dst, barrier, multicast: None, hint: None };
        let [row, column] = self.staging.coordinates(self.first, part);
        match matrix {
            Some(matrix) => f.tensor_load(load, [column, row, matrix].map(Value::cast)),
            None => f.tensor_load(load, [column, row].map(Value::cast)),
        }
    }

    /// Waits until a part has arrived. `odd` is 1 after an odd number of tiles. By then, the mbarrier of each
    /// buffer has completed one phase per tile and per part that uses the buffer.
    fn wait(&self, part: u32, odd: Value<'f, u32>) {
        let of_buffer = part % self.count;
        let each_tile = (self.parts - of_buffer).div_ceil(self.count);
        let in_tile = part / self.count % 2;
        let parity = if each_tile.is_multiple_of(2) { self.f.constant(in_tile) } else { odd ^ in_tile };
        self.f.mbarrier_wait(self.barrier(part), parity);
    }
}

/// Refuses a C that tensor copies cannot load.
pub(super) fn check(store: StoreSpec, c: MatrixRef, site: &mut Site<'_>) {
    let [ld, batch] = [c.ld, c.stride].map(|stride| stride.saturating_mul(store.format.bytes().into()));
    let alignment = u64::from(store.alignment());
    for (what, value) in [("address", c.address), ("pitch in bytes", ld), ("stride in bytes", batch)] {
        if !value.is_multiple_of(alignment) {
            let needed = format!("the {what} is {value:#x}, a multiple of {alignment} was needed");
            return site.refuse(format!("{needed}: tensor copies load it"));
        }
    }
}

/// States C's kernel parameters.
pub(super) fn state(
    format: Format,
    plan: &Plan,
    c: Option<MatrixRef>,
    d: Option<Output>,
    visit: &mut dyn Visit,
) {
    let source = d.map(|d| {
        c.map_or(d, |c| Output {
            address: c.address,
            ld: c.ld,
            batch: Batch { stride: if d.batch.count > 1 { c.stride } else { 0 }, ..d.batch },
            ..d
        })
    });
    // If C is not read, D's map serves as a placeholder.
    let within = if c.is_some() { "C" } else { "D" };
    visit.tensor_map(C[0], within, source.map(|source| source.tensor_map(format, plan)));
    if plan.form.outputs() {
        visit.number(C[1], source.map(|source| u32::from(source.batch.stride != 0)));
    }
}

impl<'f> OnDevice<'f> for SourcedDevice<'f> {
    fn begin(&self, Pass { f, plan, unit, .. }: Pass<'_, 'f>, _extent: Extent<'f>, consumer: Consumer<'f>) {
        let elements = plan.mainloop.product().elements();
        f.if_(self.reads_c() & consumer.thread.equals(0), || {
            let first = begin(&elements, [unit.m, unit.n], [None, Some(consumer.part)]);
            let place = [consumer.shared, consumer.warpgroup];
            let copies = Copies::new(self.store.format, f, plan, place, self.source(unit.group), first);
            // The last tile may still be in the buffers.
            f.bulk_wait(0, true);
            for part in 0..copies.count {
                copies.start(part);
            }
        });
    }

    fn store(&self, f: &'f Builder, plan: &Plan, extent: Extent<'f>, fragment: Fragment<'f, f32>) {
        let format = self.store.format;
        let place = [fragment.shared, fragment.warpgroup];
        let copies = Copies::new(format, f, plan, place, self.source(extent.group), fragment.first);
        let staging = &copies.staging;
        let staged = staging.staged_rows(fragment.thread);
        let copy = |address, [row, column]: [Value<'f, u32>; 2]| {
            extent.tensor_store(f, plan, self.d.map, address, [column, row]);
        };
        let fill = |address, rows: [&[Packed<'f>]; 2]| staged.fill(f, address, rows);
        let scaled = |row: &FragmentRow<'f, f32>| {
            row.pairs.iter().map(|pair| pair.values.map(|v| self.factors.scaled(v))).collect()
        };
        let without = || {
            let values = |_block: u32, rows: &[FragmentRow<'f, f32>]| rows.iter().map(scaled).collect();
            let combine = Combine { pairs_at_once: None, reads: false, turns: false, values: &values };
            staging.store(f, plan, &fragment, combine, &Through { fill: &fill, copy: &copy, partly: None });
        };
        let with = || {
            let odd = self.odd.get();
            // C's pairs of a part, by row.
            let source = RefCell::new([Vec::new(), Vec::new()]);
            let values = |_block: u32, rows: &[FragmentRow<'f, f32>]| {
                let with_source = |(row, source): (&FragmentRow<'f, f32>, &Vec<[Value<'f, f32>; 2]>)| {
                    let scaled: Vec<[Value<'f, f32>; 2]> = scaled(row);
                    scaled
                        .iter()
                        .zip(source)
                        .map(|(&[low, high], &[c_low, c_high])| {
                            [self.factors.with(c_low, low), self.factors.with(c_high, high)]
                        })
                        .collect()
                };
                rows.iter().zip(&*source.borrow()).map(with_source).collect()
            };
            let combine =
                Combine { pairs_at_once: Some(usize::MAX), reads: true, turns: false, values: &values };
            let (rows, issues) = (staging.rows(plan, &fragment), fragment.thread.equals(0));
            for part in 0..copies.parts {
                copies.wait(part, odd);
                let address = copies.buffers + part % copies.count * copies.bytes;
                let pairs = staging.columns as usize / 8;
                *source.borrow_mut() = staged.drain(f, address, pairs);
                // Lanes store to places that other lanes have read.
                f.warp_sync();
                if let [upper, lower] = &staging.packed(f, plan, &rows, part, combine)[..] {
                    fill(address, [upper, lower]);
                }
                f.fence_proxy_async(ptx::ProxySpace::Shared);
                f.barrier_sync(fragment.barrier(), 128);
                f.if_(issues, || {
                    copy(address, staging.coordinates(fragment.first, part));
                    f.bulk_commit();
                    if part + copies.count < copies.parts {
                        f.bulk_wait(0, true);
                        copies.start(part + copies.count);
                    }
                });
            }
            self.odd.set(odd ^ 1);
        };
        f.if_else(self.reads_c(), with, without);
    }

    fn store_integers(&self, f: &'f Builder, plan: &Plan, extent: Extent<'f>, fragment: Fragment<'f, i32>) {
        self.store(f, plan, extent, self.factors.registers(f, fragment));
    }

    fn finish(&self, f: &'f Builder, plan: &Plan, thread: Value<'f, u32>) {
        self.store.finish(f, plan, thread);
    }
}
