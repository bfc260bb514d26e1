//! D = alpha * acc + beta * C, from registers straight to global memory.

use core::marker::PhantomData;

use ptx::abi::Argument;
use ptx::{Builder, Value};

use super::{Epilogue, Extent};
use crate::element::Element;
use crate::mainloop::Fragment;
use crate::plan::{EpilogueSpec, Plan};

/// `D = alpha * acc + beta * C` with row-major C and D of type `T`.
///
/// C is read only where `beta` is not zero, as in BLAS. Each thread holds two neighbouring columns at a time and
/// moves them with one access where N and both pitches are even and both addresses are multiples of 4 B.
#[derive(Clone, Copy, Debug)]
pub struct LinearCombination<T>(PhantomData<T>);

/// Arguments of [`LinearCombination`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LinearArguments {
    /// Factor of the product.
    pub alpha: f32,
    /// Factor of C.
    pub beta: f32,
    /// Columns of C and D.
    pub n: u32,
    /// Address of C; not read where `beta` is zero.
    pub c: u64,
    /// Elements from one row of C to the next.
    pub c_pitch: u64,
    /// Address of D.
    pub d: u64,
    /// Elements from one row of D to the next.
    pub d_pitch: u64,
}

/// Parameters of [`LinearCombination`] on the device.
#[derive(Clone, Copy, Debug)]
pub struct LinearDevice<'f> {
    alpha: Value<'f, f32>,
    beta: Value<'f, f32>,
    c: Value<'f, u64>,
    c_pitch: Value<'f, u64>,
    d: Value<'f, u64>,
    d_pitch: Value<'f, u64>,
    pairs: Value<'f, u32>,
}

/// How a part of the output is stored: which of the variants is being emitted.
#[derive(Clone, Copy)]
struct Variant {
    /// Two columns an access.
    pairs: bool,
    /// C is read and added.
    source: bool,
}

/// Two neighbouring elements of one row, per thread.
struct Pair<'f, 'a> {
    accumulators: [Value<'f, f32>; 2],
    /// First column, counted from the thread's own first.
    column: u32,
    row: &'a Row<'f>,
}

/// One row of a thread.
struct Row<'f> {
    /// Address of the thread's first element in C.
    c: Value<'f, u64>,
    /// Address of the thread's first element in D.
    d: Value<'f, u64>,
    /// How many columns lie between the thread's first and the edge; none where the row is outside.
    columns: Value<'f, u32>,
}

impl<T: Element> Epilogue for LinearCombination<T> {
    type Accumulator = f32;
    type Output = T;
    type Arguments = LinearArguments;
    type Device<'f> = LinearDevice<'f>;
    const SPEC: EpilogueSpec = EpilogueSpec { shared_bytes: 0, registers: 24 };

    fn name() -> String {
        "linear".to_owned()
    }

    fn declare<'f>(f: &'f Builder, _plan: &Plan) -> Self::Device<'f> {
        LinearDevice {
            alpha: f.param("alpha"),
            beta: f.param("beta"),
            c: f.param("c"),
            c_pitch: f.param("c_pitch"),
            d: f.param("d"),
            d_pitch: f.param("d_pitch"),
            pairs: f.param("pairs"),
        }
    }

    fn parameters(arguments: &LinearArguments) -> Vec<Argument> {
        let LinearArguments { alpha, beta, n, c, c_pitch, d, d_pitch } = *arguments;
        let even = |address: u64, pitch: u64| address.is_multiple_of(4) && pitch.is_multiple_of(2);
        let pairs = n.is_multiple_of(2) && even(d, d_pitch) && (beta == 0.0 || even(c, c_pitch));
        vec![
            alpha.into(),
            beta.into(),
            c.into(),
            c_pitch.into(),
            d.into(),
            d_pitch.into(),
            u32::from(pairs).into(),
        ]
    }

    fn store<'f>(
        f: &'f Builder,
        _plan: &Plan,
        device: LinearDevice<'f>,
        extent: Extent<'f>,
        fragment: Fragment<'f, f32>,
    ) {
        let both = |pairs| {
            f.if_else(
                device.beta.differs_from(0.0),
                || store_fragment::<T>(f, device, extent, &fragment, Variant { pairs, source: true }),
                || store_fragment::<T>(f, device, extent, &fragment, Variant { pairs, source: false }),
            );
        };
        f.if_else(device.pairs.differs_from(0), || both(true), || both(false));
    }
}

fn store_fragment<'f, T: Element>(
    f: &'f Builder,
    device: LinearDevice<'f>,
    extent: Extent<'f>,
    fragment: &Fragment<'f, f32>,
    variant: Variant,
) {
    let (thread_row, column) = (fragment.thread_row(), fragment.thread_column());
    let columns_left = (extent.n - column).where_or(column.less_than(extent.n), 0);

    for (block, accumulators) in (0u32..).zip(&fragment.blocks) {
        let values = u32::try_from(accumulators.len()).unwrap_or(0);
        let mut offsets: Vec<u32> = (0..values).map(|value| fragment.value_row(value)).collect();
        offsets.sort_unstable();
        offsets.dedup();
        for offset in offsets {
            let row = thread_row + (block * 64 + offset);
            let address = |base: Value<'f, u64>, pitch: Value<'f, u64>| {
                let element = row.cast::<u64>().mul_add(pitch, column.cast::<u64>());
                base + element * u64::from(T::BITS / 8)
            };
            let row = Row {
                c: if variant.source { address(device.c, device.c_pitch) } else { f.constant(0) },
                d: address(device.d, device.d_pitch),
                columns: columns_left.where_or(row.less_than(extent.m), 0),
            };
            // Values come in pairs of neighbouring columns: (v, v + 1).
            let mut pairs = Vec::new();
            for value in (0..values).step_by(2).filter(|&value| fragment.value_row(value) == offset) {
                let [low, high] = [value, value + 1].map(|v| accumulators[v as usize].get());
                pairs.push(Pair {
                    accumulators: [low, high],
                    column: fragment.value_column(value),
                    row: &row,
                });
            }
            store_row::<T>(f, device, &pairs, variant);
        }
    }
}

/// All pairs of one row: every load of C is started before the first value is used.
fn store_row<'f, T: Element>(
    f: &'f Builder,
    device: LinearDevice<'f>,
    pairs: &[Pair<'f, '_>],
    variant: Variant,
) {
    let sources: Vec<[ptx::Var<'f, f32>; 2]> = pairs
        .iter()
        .filter(|_| variant.source)
        .map(|pair| {
            let source = [f.variable(0.0), f.variable(0.0)];
            pair.load::<T>(f, variant, source);
            source
        })
        .collect();
    for (i, pair) in pairs.iter().enumerate() {
        let mut result = pair.accumulators.map(|accumulator| accumulator * device.alpha);
        if let Some(source) = sources.get(i) {
            result = [0, 1].map(|i| source[i].get().mul_add(device.beta, result[i]));
        }
        pair.store::<T>(f, variant, result);
    }
}

impl<'f> Pair<'f, '_> {
    fn offset<T: Element>(&self, column: u32) -> i32 {
        ((self.column + column) * T::BITS / 8).cast_signed()
    }

    fn inside(&self, column: u32) -> Value<'f, bool> {
        self.row.columns.more_than(self.column + column)
    }

    fn load<T: Element>(&self, f: &'f Builder, variant: Variant, into: [ptx::Var<'f, f32>; 2]) {
        if variant.pairs {
            f.if_(self.inside(0), || {
                let both = f.load_global_vector::<T, 2>(self.row.c, self.offset::<T>(0));
                for (into, value) in into.into_iter().zip(both) {
                    into.set(T::widen(value));
                }
            });
        } else {
            for (i, into) in (0u32..).zip(into) {
                f.if_(self.inside(i), || {
                    into.set(T::widen(f.load_global::<T>(self.row.c, self.offset::<T>(i))));
                });
            }
        }
    }

    fn store<T: Element>(&self, f: &'f Builder, variant: Variant, [low, high]: [Value<'f, f32>; 2]) {
        let packed = f.pack::<T>(low, high);
        if variant.pairs {
            f.if_(self.inside(0), || f.store_global(self.row.d, self.offset::<T>(0), [packed]));
        } else {
            let halves = f.unpack::<T>(packed);
            for (i, half) in (0u32..).zip(halves) {
                f.if_(self.inside(i), || f.store_global(self.row.d, self.offset::<T>(i), [half]));
            }
        }
    }
}
