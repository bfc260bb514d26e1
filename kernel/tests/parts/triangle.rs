//! A range of K that the device knows: A is a lower triangle, so a tile needs the k-tiles up to its diagonal. What lies
//! beyond is never read, also where a scheduler splits K.

use collective::{
    Cooperative, DeviceMainloop, DirectStore, Format, KMajor, LinearCombination, Mainloop, MainloopNeeds,
    MainloopSpec, Operands, Plan, Tile, TmaWgmma,
};
use half::bf16;
use kernel::{Composed, GemmConfig, GemmProblem};
use ptx::Builder;
use scheduler::{AlongM, Persistent, StreamK};
use typenum::{U2, U64, U128};

use crate::support::{Elements, compare, on_every_engine, run, sum};

type One = TmaWgmma<Operands<KMajor<bf16>, KMajor<bf16>>, Tile<U128, U64, U64>, Cooperative<U2>>;

struct Triangle;

impl Mainloop for Triangle {
    const NAME: &'static str = "triangle";
    const SPEC: MainloopSpec = <One as Mainloop>::SPEC;
    const NEEDS: MainloopNeeds = MainloopNeeds { whole_k: false, ..MainloopNeeds::ALL };
    type Arguments = ();

    fn device<'f>(f: &'f Builder, plan: &Plan) -> DeviceMainloop<'f> {
        One::device(f, plan).with_range(|f, plan, unit| {
            let [m, _, k] = plan.mainloop.tile;
            [f.constant(0), (unit.m + m).div_ceil(k)]
        })
    }
}

fn triangle<C: GemmConfig<Mainloop = Triangle, Epilogue = LinearCombination<f32, DirectStore>>>(what: &str) {
    on_every_engine(&|engine| {
        for (m, n) in [(304, 72), (64, 200), (520, 8)] {
            let k = m;
            let mut a = Elements::random(Format::Bf16, [m, k], 1);
            for (row, column) in (0..m).flat_map(|i| (i + 1..k).map(move |j| (i, j))) {
                let beyond = column >= (row / 128 + 1) * 128;
                let value = if beyond { f64::NAN } else { 0.0 };
                a.set(Format::Bf16, [row, column], value);
            }
            let b = Elements::random(Format::Bf16, [n, k], 2);
            let operands = [a.upload(engine), b.upload(engine)];
            let got = run::<C>(engine, GemmProblem { m, n, k }, operands, &());
            compare(what, [m, n], &got, |i, j| {
                let [want, all] = sum(i + 1, |k| a.at(i, k) * b.at(j, k));
                [want, all * f64::from(k) * f64::from(f32::EPSILON) + 1e-6]
            });
        }
    });
}

#[test]
fn tiles_end_at_the_diagonal() {
    triangle::<Composed<Triangle, LinearCombination<f32, DirectStore>, Persistent<AlongM>>>("whole tiles");
    triangle::<Composed<Triangle, LinearCombination<f32, DirectStore>, StreamK<AlongM>>>("split tiles");
}
