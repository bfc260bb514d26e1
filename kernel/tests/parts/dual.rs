//! Two GEMMs with one A: `D = (A * B) silu(A * Gate)`. Gates have a ring of their own, also where consumers alternate; a
//! warpgroup has two sets of accumulators.

use std::marker::PhantomData;

use collective::functions::Silu;
use collective::operands::{OwnSite, Visit};
use collective::pipeline::{Position, Ring, Stage};
use collective::{
    Consumer, Cooperative, DeviceMainloop, DirectStore, EachWarp, Finish, Format, InFlight, KMajor,
    LinearCombination, Mainloop, MainloopSpec, Matrix, OperandTile, Operands, Origin, Pass, Pingpong, Plan,
    Pointwise, TensorCopy, Tile, TileLayout, TmaWgmma, WarpRoles, WarpgroupMma,
};
use cute_rs::atom::Major;
use half::bf16;
use kernel::{Composed, GemmProblem};
use ptx::{Builder, Value};
use scheduler::{AlongM, Persistent};
use typenum::{U2, U3, U64, U128};

use crate::support::{Elements, compare, on_every_engine, run, sum};

/// Tile, roles and ring are those of one GEMM.
type One<R> = TmaWgmma<Operands<KMajor<bf16>, KMajor<bf16>>, Tile<U128, U64, U64>, R>;

/// The gates' tile: a stage of the mainloop's own ring.
const GATE: OperandTile = OperandTile::checked(Format::Bf16, Major::K, [64, 64], TileLayout::Widest);

struct Dual<R>(PhantomData<R>);

/// The second B, as large as the first.
#[derive(Clone, Default)]
struct Gate(Option<Matrix>);

#[derive(Clone, Copy)]
struct Device<'f> {
    maps: [Value<'f, u64>; 3],
    /// Positions of producer and consumer among the gates.
    positions: [Position<'f>; 2],
}

impl<R: WarpRoles> Mainloop for Dual<R> {
    const NAME: &'static str = "dual";
    const SPEC: MainloopSpec = {
        let mut spec = <One<R> as Mainloop>::SPEC;
        spec.own_stage = GATE.room();
        spec.registers = spec.product().accumulators();
        spec
    };
    type Arguments = Gate;

    fn check(own: &Gate, _: Matrix, b: Matrix) -> Result<(), String> {
        match own.0 {
            Some(gate) if gate.mn == b.mn && gate.k == b.k => Ok(()),
            Some(gate) => Err(format!("Gate is {} x {}, B's {} x {} was needed", gate.mn, gate.k, b.mn, b.k)),
            None => Err("Gate is missing: bind it".to_owned()),
        }
    }

    fn visit(own: &mut Gate, of: &OwnSite<'_>, visit: &mut dyn Visit) {
        own.0.iter_mut().for_each(|gate| visit.operand("the gates", (1, Format::Bf16), Major::K, gate));
        let gate = own.0.filter(|_| of.launched).map(|gate| GATE.tensor_map(gate));
        visit.tensor_map("gate_map", "the gates", gate);
    }

    fn device<'f>(f: &'f Builder, plan: &Plan) -> DeviceMainloop<'f> {
        let gates = Ring::named(f, "the ring of gates", plan.own_ring, f.shared_base());
        let device = Device {
            maps: ["a_map", "b_map", "gate_map"].map(|name| f.parameter(name)),
            positions: [gates.producer(), gates.consumer()],
        };
        DeviceMainloop::new()
            .with_skip(move |_, _, unit| device.positions[1].skip(unit.k_end - unit.k_begin))
            .with_load(move |pass, _| device.load(pass))
            .with_multiply(move |pass, consumer, finish| device.multiply(pass, consumer, finish))
    }
}

impl<'f> Device<'f> {
    fn load(&self, Pass { f, plan, ring, unit }: Pass<'_, 'f>) {
        let [a, b] = plan.operands;
        let [a, b, gate] = [a, b, GATE].map(TensorCopy::new);
        let origins = self.maps.map(Origin::alone);
        f.repeat_from(unit.k_begin, unit.k_end, |k_tile| {
            let k = k_tile * plan.mainloop.tile[2];
            ring.produce(f.constant(plan.ring.transaction_bytes()), |stage| {
                a.load(f, stage, origins[0], [unit.m, k]);
                b.load(f, stage, origins[1], [unit.n, k]);
            });
            self.positions[0].produce(f.constant(GATE.room().bytes), |stage| {
                gate.load(f, stage, origins[2], [unit.n, k]);
            });
        });
    }

    fn multiply(&self, pass: Pass<'_, 'f>, consumer: Consumer<'f>, finish: Finish<'_, 'f>) {
        let Pass { f, plan, ring, unit } = pass;
        let [_, b] = plan.operands;
        let product = |b| WarpgroupMma::<f32>::new(f, plan.product().by(b), consumer.part);
        let (product, gates) = (product(b), product(GATE));
        let multiply = |[stage, gate]: [Stage<'f>; 2], _, accumulate| {
            let both = [product.find(stage), gates.find_in([stage, gate])];
            f.wgmma_fence();
            both.iter().for_each(|found| found.issue(accumulate));
            f.wgmma_commit();
        };
        let rest = |multiplied: bool| {
            if !multiplied {
                product.clear();
                gates.clear();
            }
        };
        let rings = [ring, self.positions[1]];
        consumer.each_stage_of(pass, rings, InFlight::One, &multiply, &rest);
        for (sum, gate) in product.accumulators().iter().flatten().zip(gates.accumulators().iter().flatten())
        {
            sum.set(sum.get() * <Silu as Pointwise<1>>::apply((), [gate.get()]));
        }
        finish(plan, product.sums(consumer, unit.first()));
    }
}

type Kernel<R> = Composed<Dual<R>, LinearCombination<f32, DirectStore>, Persistent<AlongM>>;
type Alone = collective::Cluster<typenum::U1, typenum::U1>;

#[test]
fn two_products_with_rings_of_their_own() {
    dual::<Cooperative<U2, Alone, EachWarp<U3>>>();
    dual::<Pingpong<U2, Alone, EachWarp<U3>>>();
}

fn dual<R: WarpRoles>() {
    on_every_engine(&|engine| {
        for (m, n, k) in [(128, 64, 64), (400, 72, 328), (8, 136, 16)] {
            let elements = |rows, seed| Elements::random(Format::Bf16, [rows, k], seed);
            let (a, b, gate) = (elements(m, 1), elements(n, 2), elements(n, 3));
            let operands = [a.upload(engine), b.upload(engine)];
            let own = Gate(Some(gate.operand(engine, k)));
            let got = run::<Kernel<R>>(engine, GemmProblem { m, n, k }, operands, &own);
            compare("dual", [m, n], &got, |i, j| {
                let [x, x_all] = sum(k, |k| a.at(i, k) * b.at(j, k));
                let [y, y_all] = sum(k, |k| a.at(i, k) * gate.at(j, k));
                let silu = y / (1.0 + (-y).exp());
                // Accumulators are rounded at each step; the slope of silu is at most 1.1.
                let step = f64::from(k) * f64::from(f32::EPSILON);
                [x * silu, step * (x_all * silu.abs() + 1.1 * y_all * x.abs()) + 1e-6]
            });
        }
    });
}
