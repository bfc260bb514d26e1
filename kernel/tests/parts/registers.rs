//! A from registers: 8-bit floats in memory, multiplied as bf16.

use collective::{
    Atom, Cluster, Consumer, Cooperative, DeviceMainloop, DirectStore, EachWarp, Finish, Format, Fragments,
    InFlight, KMajor, LinearCombination, Mainloop, MainloopSpec, Operands, Pass, Plan, Tile, TmaWgmma,
    WarpgroupMma,
};
use half::bf16;
use kernel::{Composed, GemmProblem};
use ptx::{Builder, WgmmaTypes};
use scheduler::{AlongM, Persistent};
use typenum::{U1, U2, U64, U128, U192};

use crate::support::{Elements, compare, on_every_engine, run, sum};

type Ours<M> = TmaWgmma<
    Operands<KMajor<bf16>, KMajor<bf16>>,
    Tile<M, U64, U64>,
    Cooperative<U1, Cluster<U1, U1>, EachWarp<U2>>,
>;

/// What changes: A's elements in memory, the atom, and the registers of A's fragments.
const fn mixed(mut spec: MainloopSpec) -> MainloopSpec {
    spec.operands[0].format = Format::E4m3;
    spec.atom = Atom::registers(WgmmaTypes::Bf16F32);
    spec.registers = spec.product().blocks() * spec.product().steps() * 4 + 16;
    spec
}

/// Loads by tensor copies, and converts as the library's mainloops do.
struct ByCopies<M>(core::marker::PhantomData<M>);

impl<M: typenum::Unsigned + 'static> Mainloop for ByCopies<M> {
    const NAME: &'static str = "by_copies";
    const SPEC: MainloopSpec = mixed(<Ours<M> as Mainloop>::SPEC);
    type Arguments = ();

    fn device<'f>(f: &'f Builder, plan: &Plan) -> DeviceMainloop<'f> {
        Self::SPEC.mainloop().device(f, plan)
    }
}

/// Loads by threads, and converts with its own function: twice the element.
#[derive(Debug)]
struct Doubled;

impl Mainloop for Doubled {
    const NAME: &'static str = "doubled";
    const SPEC: MainloopSpec = {
        let mut spec = mixed(<Ours<U128> as Mainloop>::SPEC);
        spec.producer = collective::Producer::Warpgroup;
        spec
    };
    type Arguments = ();

    fn device<'f>(f: &'f Builder, plan: &Plan) -> DeviceMainloop<'f> {
        Self::SPEC.mainloop().device(f, plan).with_multiply(Self::multiply)
    }
}

impl Doubled {
    fn multiply<'f>(pass: Pass<'_, 'f>, consumer: Consumer<'f>, finish: Finish<'_, 'f>) {
        let Pass { f, plan, unit, .. } = pass;
        let product = WarpgroupMma::<f32>::new(f, plan.product(), consumer.part);
        let a = Fragments::new(f, plan.product(), consumer);
        consumer.each_stage(
            pass,
            InFlight::None,
            &|stage, accumulate| {
                a.load_converted(stage, &|pair| {
                    let [low, high] = pair.map(|element| Format::E4m3.widen(element) * 2.0);
                    f.pack::<bf16>(low, high)
                });
                product.multiply_registers(&a, stage, accumulate);
            },
            &|multiplied| {
                if !multiplied {
                    product.clear();
                }
            },
        );
        finish(plan, product.sums(consumer, unit.first()));
    }
}

type Kernel<M> = Composed<M, LinearCombination<f32, DirectStore>, Persistent<AlongM>>;

fn check<M: Mainloop<Arguments = ()>>(what: &str, factor: f64, [m, n, k]: [u32; 3]) {
    on_every_engine(&|engine| {
        let (a, b) = (Elements::random(Format::E4m3, [m, k], 1), Elements::random(Format::Bf16, [n, k], 2));
        let operands = [a.upload(engine), b.upload(engine)];
        let got = run::<Kernel<M>>(engine, GemmProblem { m, n, k }, operands, &());
        compare(what, [m, n], &got, |i, j| {
            let [want, all] = sum(k, |k| factor * a.at(i, k) * b.at(j, k));
            [want, f64::from(k) * f64::from(f32::EPSILON) * all]
        });
    });
}

#[test]
fn a_from_registers_is_converted() {
    check::<ByCopies<U64>>("one block", 1.0, [64, 64, 128]);
    check::<ByCopies<U192>>("three blocks, ragged", 1.0, [200, 72, 336]);
    check::<Doubled>("doubled", 2.0, [130, 40, 100]);
}
