//! Every element size and every accumulator type. Roles ask the atom, so other types need only another spec,
//! and no other code.

use core::marker::PhantomData;

use collective::{
    Atom, Cluster, Cooperative, DeviceMainloop, DirectStore, EachWarp, Format, KMajor, LinearCombination,
    Mainloop, MainloopNeeds, MainloopSpec, Operands, Plan, Source, Tile, TmaWgmma,
};
use half::bf16;
use kernel::{Composed, GemmConfig, GemmProblem};
use ptx::inst::{Fp8, Int8};
use ptx::{Builder, WgmmaTypes};
use scheduler::{AlongM, Ordered, Persistent, StreamK};
use typenum::{U1, U2, U64};

use crate::support::{Elements, compare, on_every_engine, run, sum};

/// The types of a GEMM: its atom, and the elements of A and B.
trait Types: 'static {
    const TYPES: WgmmaTypes;
    /// For integers, a format of the same size: a stage depends only on sizes.
    const ELEMENTS: Format;

    /// Changes the values to those that the instruction reads.
    fn read(_: &mut Elements) {}

    /// Largest distance of a sum of `k` products from the exact one, if their magnitudes add up to `all`.
    fn bound(k: u32, all: f64) -> f64 {
        f64::from(k) * f64::from(f32::EPSILON) * all
    }
}

struct Bytes;
impl Types for Bytes {
    const TYPES: WgmmaTypes = WgmmaTypes::Fp8F32(Fp8::E4m3, Fp8::E4m3);
    const ELEMENTS: Format = Format::E4m3;

    /// The instruction keeps 13 bits of each product.
    fn bound(_: u32, all: f64) -> f64 {
        all * 2f64.powi(-10)
    }
}

struct Words;
impl Types for Words {
    const TYPES: WgmmaTypes = WgmmaTypes::Tf32F32;
    const ELEMENTS: Format = Format::F32;

    /// The low 13 bits are not read.
    fn read(elements: &mut Elements) {
        for value in &mut elements.values {
            *value = f64::from(f32::from_bits((*value as f32).to_bits() & !0x1FFF));
        }
    }
}

struct Integers;
impl Types for Integers {
    const TYPES: WgmmaTypes = WgmmaTypes::Int8 { a: Int8::S8, b: Int8::S8, saturate: false };
    const ELEMENTS: Format = Format::E4m3;

    /// The bytes as integers.
    fn read(elements: &mut Elements) {
        elements.values = elements.bytes.iter().map(|&byte| f64::from(byte.cast_signed())).collect();
    }

    /// Accumulators below 2^24 are exact in `f32`, too.
    fn bound(_: u32, _: f64) -> f64 {
        0.0
    }
}

struct Copied;
struct Threads;
struct Registers;

/// What loads the operands, and where A comes from.
trait Way: 'static {
    const SOURCE: Source = Source::Shared;
    const PRODUCER: collective::Producer = collective::Producer::Thread;
}

impl Way for Copied {}
impl Way for Registers {
    const SOURCE: Source = Source::Registers;
}
impl Way for Threads {
    const PRODUCER: collective::Producer = collective::Producer::Warpgroup;
}

struct Of<T, W>(PhantomData<(T, W)>);

impl<T: Types, W: Way> Mainloop for Of<T, W> {
    const NAME: &'static str = "of_atom";
    const SPEC: MainloopSpec = {
        type Ours = TmaWgmma<
            Operands<KMajor<bf16>, KMajor<bf16>>,
            Tile<U64, U64, U64>,
            Cooperative<U1, Cluster<U1, U1>, EachWarp<U2>>,
        >;
        let mut spec = <Ours as Mainloop>::SPEC;
        spec.operands[0].format = T::ELEMENTS;
        spec.operands[1].format = T::ELEMENTS;
        spec.atom = Atom { a: W::SOURCE, ..Atom::shared(T::TYPES) };
        spec.producer = W::PRODUCER;
        spec.registers = 48;
        spec
    };
    const NEEDS: MainloopNeeds = MainloopNeeds { whole_k: false, ..MainloopNeeds::ALL };
    type Arguments = ();

    fn device<'f>(f: &'f Builder, plan: &Plan) -> DeviceMainloop<'f> {
        Self::SPEC.mainloop().device(f, plan)
    }
}

type Whole<M> = Composed<M, LinearCombination<f32, DirectStore>, Persistent<AlongM>>;
type Divided<M> = Composed<M, LinearCombination<f32, DirectStore>, StreamK<AlongM, Ordered>>;

/// Elements as the instruction reads them.
fn elements<T: Types>(extents: [u32; 2], seed: u32) -> Elements {
    let mut elements = Elements::random(T::ELEMENTS, extents, seed);
    T::read(&mut elements);
    elements
}

fn check<T: Types, C: GemmConfig>(what: &str, [m, n, k]: [u32; 3])
where
    C::Mainloop: Mainloop<Arguments = ()>,
    C::Epilogue: collective::Epilogue<Arguments = collective::LinearArguments>,
{
    on_every_engine(&|engine| {
        let (a, b) = (elements::<T>([m, k], 1), elements::<T>([n, k], 2));
        let operands = [a.upload(engine), b.upload(engine)];
        let got = run::<C>(engine, GemmProblem { m, n, k }, operands, &());
        compare(what, [m, n], &got, |i, j| {
            let [want, all] = sum(k, |k| a.at(i, k) * b.at(j, k));
            [want, T::bound(k, all)]
        });
    });
}

#[test]
fn elements_of_every_width() {
    let extents = [72, 80, 208];
    check::<Bytes, Whole<Of<Bytes, Copied>>>("8-bit floats", extents);
    check::<Words, Whole<Of<Words, Copied>>>("tf32", extents);
    check::<Integers, Whole<Of<Integers, Copied>>>("integers", extents);
}

#[test]
fn copied_by_threads() {
    // Rows aligned only to one element.
    let extents = [72, 80, 207];
    check::<Bytes, Whole<Of<Bytes, Threads>>>("8-bit floats", extents);
    check::<Words, Whole<Of<Words, Threads>>>("tf32", extents);
    check::<Integers, Whole<Of<Integers, Threads>>>("integers", extents);
}

#[test]
fn from_registers() {
    let extents = [72, 80, 208];
    check::<Bytes, Whole<Of<Bytes, Registers>>>("8-bit floats", extents);
    check::<Words, Whole<Of<Words, Registers>>>("tf32", extents);
    check::<Integers, Whole<Of<Integers, Registers>>>("integers", extents);
}

#[test]
fn integers_of_divided_tiles_are_added_as_integers() {
    check::<Integers, Divided<Of<Integers, Copied>>>("integers", [72, 80, 1040]);
}
