//! The linear epilogue: D = alpha * acc + beta * C, with any store of D.

use core::marker::PhantomData;
use std::sync::Arc;

use ptx::{Builder, Value, Var};
use typenum::Unsigned;

use super::direct::DirectStore;
use super::doubles::{self, Doubles};
use super::factors::{self, Factors};
use super::sourced::{self, SourcedCombination, SourcedDevice};
use super::store::{Access, Combine, Output, Store, StoreDevice, StoreSpec, Stored};
use super::tma::TmaStore;
use super::transposed::Line;
use super::{AnyEpilogue, DeviceEpilogue, Emitter, Epilogue, EpilogueSite, OnDevice};
use crate::element::{Element, Format};
use crate::extent::Extent;
use crate::form::{Forms, displaced};
use crate::mainloop::{Fragment, FragmentRow};
use crate::operand::{MatrixRef, TileAtom};
use crate::operands::{Contents, Extents, Parameter, Visit};
use crate::plan::{EpilogueSpec, Plan};
use crate::real::Arithmetic;
use crate::tree::{Bounded, Host, Path, Site};

/// The linear epilogue `D = alpha * acc + beta * C` with row-major C and D of type `T`. `S` is the store:
/// [`DirectStore`] (the default) or [`TmaStore`](super::TmaStore).
///
/// C is read only if `beta` is not zero, as in BLAS. Each thread holds two neighbouring columns at a time. It
/// moves them with one access if N and the leading dimensions are even and the addresses are multiples of 4
/// B.
///
/// Everything is computed in `f32`, to which the factors are rounded; integer accumulators are first converted to the nearest `f32`. Two types
/// differ. For `T = i32`, everything is computed exactly in integers modulo 2^32; then `alpha` and `beta`
/// must be integers. For `T = f64`, accumulators, factors, C and D are `f64`.
#[derive(Clone, Copy, Debug)]
pub struct LinearCombination<T, S = DirectStore>(PhantomData<(T, S)>);

/// Arguments of [`LinearCombination`].
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct LinearArguments {
    /// Factor of A * B; an integer if D is `s32`. With 0, A and B are not read, as in BLAS.
    pub alpha: f64,
    /// Factor of C; an integer if D is `s32`. With 0, C is not read, as in BLAS.
    pub beta: f64,
    /// C, row-major. May be `None` if `beta` is zero. May be exactly D.
    pub c: Option<MatrixRef>,
}

/// `D = A * B`.
impl Default for LinearArguments {
    fn default() -> Self {
        Self::scaled(1.0)
    }
}

impl LinearArguments {
    /// `D = alpha * A * B + beta * C`, of alpha and beta.
    pub fn of([alpha, beta]: [f64; 2], c: Option<MatrixRef>) -> Self {
        Self { alpha, beta, c }
    }

    /// `D = alpha * A * B`, without C.
    pub fn scaled(alpha: f64) -> Self {
        Self::of([alpha, 0.0], None)
    }

    /// Alpha and beta.
    pub fn factors(&self) -> [f64; 2] {
        [self.alpha, self.beta]
    }

    /// Whether A and B are read.
    pub fn multiplied(&self) -> bool {
        self.alpha != 0.0
    }

    /// Visits the arguments. C has the extents of D, in this format. If there is none, its address is 0.
    pub fn visit(&mut self, d: Extents, format: Format, visit: &mut dyn Visit) {
        let Self { alpha, beta, c } = self;
        visit.factor(alpha);
        visit.factor(beta);
        visit.form(c.is_some().into());
        let (mut none, missing) = (MatrixRef::NONE, c.is_none());
        let extents = Extents { lines: if missing || *beta == 0.0 { 0 } else { d.lines }, ..d };
        visit.matrix("C", (Contents::Source(format), false), c.as_mut().unwrap_or(&mut none), extents);
        visit.in_place();
        if missing && *beta != 0.0 {
            let reason = format!("there is none and beta is {beta}: pass C, or beta = 0");
            visit.illegal(Path::ROOT.then("C").refuse(reason));
        }
    }
}

macro_rules! linear {
    ($([$($generics:tt)*] $epilogue:ty => $value:expr;)*) => {$(
        impl<$($generics)*> Epilogue for $epilogue {
            type Arguments = LinearArguments;
            const SPEC: EpilogueSpec = $value.spec();
            const FORMS: Forms = Forms::ALL;

            fn name() -> String {
                $value.name()
            }

            fn linear(arguments: &LinearArguments) -> Option<&LinearArguments> {
                Some(arguments)
            }

            fn linear_mut(arguments: &mut LinearArguments) -> Option<&mut LinearArguments> {
                Some(arguments)
            }

            fn visit(arguments: &mut LinearArguments, of: &EpilogueSite<'_>, site: &mut Site<'_>) {
                $value.visit(arguments, of, site);
            }

            fn device<'f>(f: &'f Builder, plan: &Plan) -> DeviceEpilogue<'f> {
                $value.device(f, plan)
            }

            fn evaluate(host: &mut Host<'_>, arguments: &LinearArguments, at: [u32; 2]) -> Bounded {
                $value.evaluate(host, arguments, at)
            }

            fn value() -> AnyEpilogue {
                $value.into()
            }
        }
    )*};
}

linear! {
    [T: Element, S: Store] LinearCombination<T, S> =>
        Linear { store: StoreSpec::of::<S>(T::FORMAT), sourced: false };
    [T: Element, B: Unsigned + 'static, L: TileAtom] SourcedCombination<T, B, L> =>
        Linear { store: StoreSpec::of::<TmaStore<B, L>>(T::FORMAT), sourced: true };
}

/// A number rounded to `f32`: integer accumulators may have more digits.
fn single(x: Bounded) -> Bounded {
    Bounded { error: x.error + x.value.abs() / 16_777_216.0, ..x }
}

/// In integers modulo 2^32: numbers and factors are integers.
fn whole(terms: [(f64, Bounded); 2]) -> Bounded {
    let product = |(factor, x): (f64, Bounded)| (factor as i64 as i32).wrapping_mul(x.value as i64 as i32);
    let [product, more] = terms.map(product);
    Bounded::exact(product.wrapping_add(more).into())
}

/// In `f64`, where the factors are exact: two products and a sum are rounded.
fn in_doubles(terms: [(f64, Bounded); 2]) -> Bounded {
    let value = terms.iter().map(|(factor, x)| factor * x.value).sum();
    let error = |(factor, x): &(f64, Bounded)| factor.abs() * (x.error + 4.0 * f64::EPSILON * x.value.abs());
    Bounded { value, error: terms.iter().map(error).sum() }
}

/// [`LinearCombination`] or [`SourcedCombination`] as a value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Linear {
    /// How D is stored. Sourced: through shared memory, not transposed.
    pub store: StoreSpec,
    /// Whether tensor copies load C.
    pub sourced: bool,
}

impl Linear {
    /// The epilogue's name.
    pub fn name(self) -> String {
        format!("{}{}", if self.sourced { "sourced" } else { "linear" }, self.store.suffix())
    }

    /// What the epilogue asks of the plan.
    pub const fn spec(self) -> EpilogueSpec {
        EpilogueSpec { registers: 24, sourced: self.sourced, ..EpilogueSpec::of(self.store) }
    }

    /// As [`Epilogue::visit`].
    pub fn visit(self, arguments: &mut LinearArguments, of: &EpilogueSite<'_>, site: &mut Site<'_>) {
        let format = self.store.format;
        arguments.visit(of.d, format, site.visit);
        factors::check(format, arguments.factors(), site);
        if let Some(c) = arguments.c.filter(|_| self.sourced && arguments.beta != 0.0) {
            sourced::check(self.store, c, &mut site.then("C"));
        }
        if let Some(plan) = of.plan {
            self.stated(*arguments, plan, of.output, site.visit);
        }
    }

    fn evaluate(self, host: &mut Host<'_>, arguments: &LinearArguments, at: [u32; 2]) -> Bounded {
        let [row, column] = at.map(u64::from);
        let (format, [alpha, beta]) = (self.store.format, arguments.factors());
        let of_c =
            |c: MatrixRef| host.read(format, c.address + (row * c.ld + column) * u64::from(format.bytes()));
        let c = arguments.c.filter(|_| beta != 0.0).map(of_c);
        let sum = Some(host.accumulator(at)).filter(|_| arguments.multiplied());
        let terms = [(alpha, sum), (beta, c)]
            .map(|(factor, x)| (Arithmetic::of(format).held(factor), x.unwrap_or(Bounded::exact(0.0))));
        if format == Format::S32 {
            whole(terms)
        } else if format == Format::F64 {
            in_doubles(terms)
        } else {
            let [product, more] = terms.map(|(factor, x)| Bounded::exact(factor) * single(x));
            product + more
        }
    }

    /// States the kernel parameters, of this output if a launch is made.
    fn stated(self, arguments: LinearArguments, plan: &Plan, d: Option<Output>, visit: &mut dyn Visit) {
        let (format, c) = (self.store.format, arguments.c.filter(|_| arguments.beta != 0.0));
        factors::state(format, arguments.factors(), visit);
        if self.sourced {
            sourced::state(format, plan, c, d, visit);
        } else if plan.form.described() {
            return;
        } else {
            let MatrixRef { address, ld, stride } = c.unwrap_or(MatrixRef::NONE);
            let pair = u64::from(format.bits() / 4);
            let even = |address: u64, strides: u64| address.is_multiple_of(pair) && strides.is_multiple_of(2);
            match c {
                Some(_) => visit.address(C, "C"),
                None => visit.parameter(Parameter::unread(C, "C")),
            }
            visit.number(C_PITCH, Some(ld));
            if plan.form.outputs() {
                visit.number(C_BATCH, Some(stride * u64::from(format.bytes())));
            }
            let pairs = d.map(|d| {
                let whole = d.n.is_multiple_of(2) && even(d.address, d.ld | d.batch.stride);
                u32::from(whole && even(address, ld | stride))
            });
            visit.number(PAIRS, pairs);
        }
        self.store.state(plan, d, visit);
    }
}

/// The names of the kernel parameters: where C is, its leading dimension, bytes from one C to the next, and whether rows consist of
/// aligned pairs.
const C: &str = "c";
const C_PITCH: &str = "c_pitch";
const C_BATCH: &str = "c_batch";
const PAIRS: &str = "pairs";

impl From<Linear> for AnyEpilogue {
    fn from(linear: Linear) -> Self {
        Self(Arc::new(linear))
    }
}

impl Emitter for Linear {
    fn store(&self) -> Option<StoreSpec> {
        Some(self.store)
    }

    fn linear(&self) -> Option<Self> {
        Some(*self)
    }

    fn name(&self) -> String {
        Self::name(*self)
    }

    fn state(&self, of: &EpilogueSite<'_>, visit: &mut dyn Visit) {
        self.visit(&mut LinearArguments::default(), of, &mut Site::root(1, visit));
    }

    fn device<'f>(&self, f: &'f Builder, plan: &Plan) -> DeviceEpilogue<'f> {
        if self.sourced {
            return DeviceEpilogue::of(SourcedDevice::of_kernel(f, plan, self.store));
        }
        let described = plan.form.described().then(|| f.constant(0u64));
        DeviceEpilogue::of(LinearDevice {
            store: self.store.moved(),
            factors: Factors::of_kernel(f, self.store.format),
            c: described.unwrap_or_else(|| f.parameter(C)),
            c_ld: described.unwrap_or_else(|| f.parameter(C_PITCH)),
            c_batch: plan.form.outputs().then(|| f.parameter(C_BATCH)),
            pairs: if described.is_some() { f.constant(0) } else { f.parameter(PAIRS) },
            d: self.store.device(f, plan),
        })
    }
}

/// Parameters of [`Linear`] on the device.
#[derive(Clone, Copy, Debug)]
struct LinearDevice<'f> {
    store: StoreSpec,
    factors: Factors<'f>,
    c: Value<'f, u64>,
    c_ld: Value<'f, u64>,
    c_batch: Option<Value<'f, u64>>,
    pairs: Value<'f, u32>,
    d: StoreDevice<'f>,
}

impl<'f> OnDevice<'f> for LinearDevice<'f> {
    fn store(&self, f: &'f Builder, plan: &Plan, extent: Extent<'f>, fragment: Fragment<'f, f32>) {
        let Self { store: spec, .. } = *self;
        let mut pairs = self.pairs.differs_from(0);
        let mut device = LinearDevice { c: displaced(self.c, self.c_batch, extent.group), ..*self };
        if let Some(record) = extent.record {
            // Rows of a transposed tile are columns of the caller's D.
            let columns = if spec.transposed { extent.m } else { extent.n };
            let c = record.c(f);
            pairs = record.d(f).pairs(spec.format, columns)
                & (c.pairs(spec.format, columns) | device.factors.leaves_c());
            (device.c, device.c_ld) = (c.address, c.ld);
        }
        let emit = |source: bool, pairs: bool, copies: bool| {
            let row = |row: &FragmentRow<'f, f32>| {
                let source = source.then(|| Source::load(f, &device, extent, row, pairs));
                row.pairs
                    .iter()
                    .enumerate()
                    .map(|(i, pair)| {
                        let scaled = pair.values.map(|value| device.factors.scaled(value));
                        source.as_ref().map_or(scaled, |source| {
                            let [low, high] = source.pairs[i].map(Var::get);
                            [device.factors.with(low, scaled[0]), device.factors.with(high, scaled[1])]
                        })
                    })
                    .collect()
            };
            let values =
                |_block: u32, rows: &[FragmentRow<'f, f32>]| rows.iter().map(row).collect::<Vec<_>>();
            let combine = Combine { pairs_at_once: None, reads: source, turns: false, values: &values };
            // Rows that tensor copies can store consist of aligned pairs.
            let pairs = pairs || spec.staged_bits() > 0 && !copies && plan.form.shares_rows();
            let access = Access { pairs, whole: false, copies };
            spec.store(f, plan, device.d, &Stored { extent, fragment: &fragment, access }, combine);
        };
        let store = |copies: bool| {
            f.if_else(
                device.factors.reads_c(),
                || {
                    // A transposed C is loaded element by element, and a staged D is stored by rows.
                    let depends = f.constant(!(spec.transposed && spec.keeps_inside() && copies));
                    f.if_else(pairs | !depends, || emit(true, true, copies), || emit(true, false, copies));
                },
                || {
                    let depends = f.constant(spec.uses_pairs() || plan.form.described());
                    f.if_else(pairs | !depends, || emit(false, true, copies), || emit(false, false, copies));
                },
            );
        };
        if spec.staged_bits() == 0 || spec.keeps_inside() || !plan.form.shares_rows() {
            return store(!plan.form.described());
        }
        let (begin, size, end) = match spec.transposed {
            true => (fragment.first[1], plan.mainloop.tile[1], extent.n),
            false => (fragment.first[0], plan.blocks() * plan.block_rows(), extent.m),
        };
        f.if_else((begin + size).at_most(end), || store(true), || store(false));
    }

    fn store_integers(&self, f: &'f Builder, plan: &Plan, extent: Extent<'f>, fragment: Fragment<'f, i32>) {
        self.store(f, plan, extent, self.factors.registers(f, fragment));
    }

    fn store_doubles(&self, f: &'f Builder, _plan: &Plan, extent: Extent<'f>, fragment: Fragment<'f, f64>) {
        let StoreDevice::Direct(direct) = self.d else {
            f.refuse("f64 accumulators are stored straight from registers: use DirectStore");
            return;
        };
        let mut pairs = self.pairs.differs_from(0);
        let mut c = [displaced(self.c, self.c_batch, extent.group), self.c_ld];
        if let Some(record) = extent.record {
            let of_c = record.c(f);
            pairs = record.d(f).pairs(self.store.format, extent.n)
                & (of_c.pairs(self.store.format, extent.n) | self.factors.leaves_c());
            c = [of_c.address, of_c.ld];
        }
        let (factors, reads_c) = (self.factors.doubles(), self.factors.reads_c());
        let of = Doubles { factors, reads_c, pairs, c, d: direct.place(extent) };
        doubles::store(f, extent, &fragment, of);
    }

    fn finish(&self, f: &'f Builder, plan: &Plan, thread: Value<'f, u32>) {
        self.store.finish(f, plan, thread);
    }
}

/// One row of C in the registers of a thread, zero outside the matrix.
struct Source<'f> {
    pairs: Vec<[Var<'f, f32>; 2]>,
}

impl<'f> Source<'f> {
    /// Starts all loads of the row before the first value is used.
    fn load(
        f: &'f Builder,
        device: &LinearDevice<'f>,
        extent: Extent<'f>,
        row: &FragmentRow<'f, f32>,
        pairs: bool,
    ) -> Self {
        let format = device.store.format;
        if device.store.transposed {
            return Self::load_transposed(format, f, [device.c, device.c_ld], extent, row);
        }
        let base = super::store::row_address(format, device.c, device.c_ld, row);
        let columns = row.columns_inside(extent);
        let load = |column: u32| {
            let values = [f.variable(0.0), f.variable(0.0)];
            let offset = |column: u32| (column * format.bytes()).cast_signed();
            if pairs {
                f.if_(columns.more_than(column), || {
                    let both = format.load_pair(f, base, offset(column));
                    for (value, loaded) in values.into_iter().zip(both) {
                        value.set(format.widen(loaded));
                    }
                });
            } else {
                for (column, value) in (column..).zip(values) {
                    f.if_(columns.more_than(column), || {
                        value.set(format.widen(format.load(f, base, offset(column))));
                    });
                }
            }
            values
        };
        Self { pairs: row.pairs.iter().map(|pair| load(pair.column)).collect() }
    }

    /// As [`load`](Self::load), when the row is a column of C.
    fn load_transposed(
        format: Format,
        f: &'f Builder,
        [c, ld]: [Value<'f, u64>; 2],
        extent: Extent<'f>,
        row: &FragmentRow<'f, f32>,
    ) -> Self {
        let line = Line::new(format, [c, ld], extent, row);
        let load = |column: u32| {
            let value = f.variable(0.0);
            f.if_(line.inside(column), || {
                value.set(format.widen(format.load(f, line.address(column), 0)));
            });
            value
        };
        let pairs = row.pairs.iter().map(|pair| [load(pair.column), load(pair.column + 1)]).collect();
        Self { pairs }
    }
}
