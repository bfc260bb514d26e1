//! Two GEMMs with one A: `D = (A * B) silu(A * Gate)`. A stage holds three operand tiles, a warpgroup two
//! sets of accumulators.

use std::sync::Arc;

use collective::functions::Silu;
use collective::pipeline::{ClusterPosition, Position};
use collective::{
    Consumer, Cooperative, DeviceMainloop, DirectStore, EachWarp, Finish, Format, InFlight, KMajor,
    LinearCombination, Mainloop, MainloopEmitter, MainloopSpec, Matrix, OperandTile, Operands, Origin, Plan,
    Pointwise, TensorCopy, Tile, TileLayout, TmaWgmma, WarpgroupMma, WorkUnit,
};
use cute_rs::atom::Major;
use half::bf16;
use kernel::{Composed, GemmProblem};
use ptx::abi::Argument;
use ptx::{Builder, Value};
use scheduler::{AlongM, Persistent};
use typenum::{U2, U3, U64, U128};

use crate::support::{Elements, compare, on_every_engine, run, sum};

/// Tile, roles and ring are those of one GEMM.
type One = TmaWgmma<
    Operands<KMajor<bf16>, KMajor<bf16>>,
    Tile<U128, U64, U64>,
    Cooperative<U2, collective::Cluster<typenum::U1, typenum::U1>, EachWarp<U3>>,
>;
const ONE: MainloopSpec = <One as Mainloop>::SPEC;

/// The gates' tile: the third of a stage.
const GATE: OperandTile = OperandTile::checked(Format::Bf16, Major::K, [64, 64], TileLayout::Widest);

struct Dual;

/// The second B, as large as the first.
#[derive(Default)]
struct Gate(Option<Matrix>);

#[derive(Debug)]
struct Emitter;

struct Device<'f> {
    maps: [Value<'f, u64>; 3],
}

impl Mainloop for Dual {
    const SPEC: MainloopSpec = {
        let mut spec = ONE;
        spec.more[0] = GATE.room();
        spec.registers = ONE.accumulators();
        spec
    };
    type Arguments = Gate;

    fn emitter() -> Arc<dyn MainloopEmitter> {
        Arc::new(Emitter)
    }

    fn check(own: &Gate, _: Matrix, b: Matrix) -> Result<(), String> {
        match own.0 {
            Some(gate) if gate.mn == b.mn && gate.k == b.k => Ok(()),
            Some(gate) => Err(format!("Gate is {} x {}, B's {} x {} was needed", gate.mn, gate.k, b.mn, b.k)),
            None => Err("Gate is missing: bind it".to_owned()),
        }
    }

    fn arguments(plan: &Plan, a: Matrix, b: Matrix, own: &Gate) -> Vec<Argument> {
        let [a_tile, b_tile] = plan.operands;
        let gate = own.0.unwrap_or(b);
        [(a_tile, a), (b_tile, b), (GATE, gate)].map(|(tile, matrix)| tile.tensor_map(matrix).into()).into()
    }
}

impl MainloopEmitter for Emitter {
    fn name(&self, _: &MainloopSpec) -> String {
        "dual".to_owned()
    }

    fn declare<'f>(&self, f: &'f Builder, _: &Plan) -> Box<dyn DeviceMainloop<'f> + 'f> {
        Box::new(Device { maps: ["a_map", "b_map", "gate_map"].map(|name| f.tensor_map(name)) })
    }

    fn arguments(&self, plan: &Plan, a: Matrix, b: Matrix) -> Vec<Argument> {
        Dual::arguments(plan, a, b, &Gate::default())
    }
}

/// The tiles of A, B and the gates in a stage.
fn tiles(plan: &Plan) -> [OperandTile; 3] {
    let [a, b] = plan.operands;
    [a, b, GATE.at(plan.ring.offset(2))]
}

impl<'f> DeviceMainloop<'f> for Device<'f> {
    fn load(
        &self,
        f: &'f Builder,
        plan: &Plan,
        _: ClusterPosition<'f>,
        ring: Position<'f>,
        piece: WorkUnit<'f>,
    ) {
        let copies = tiles(plan).map(TensorCopy::new);
        let bytes = f.constant(plan.ring.transaction_bytes());
        f.repeat_from(piece.k_begin, piece.k_end, |k_tile| {
            let k = k_tile * plan.mainloop.tile[2];
            ring.produce(bytes, |stage| {
                for ((copy, map), mn) in copies.iter().zip(self.maps).zip([piece.m, piece.n, piece.n]) {
                    copy.load(f, stage, Origin::alone(map), [mn, k]);
                }
            });
        });
    }

    fn multiply(
        &self,
        f: &'f Builder,
        plan: &Plan,
        consumer: Consumer<'f>,
        ring: Position<'f>,
        piece: WorkUnit<'f>,
        finish: Finish<'_, 'f>,
    ) {
        let [a, b, gate] = tiles(plan);
        let product =
            |b| WarpgroupMma::<f32>::new(f, &plan.mainloop, [a, b], consumer.part).expect("the spec's tile");
        let (product, gates) = (product(b), product(gate));
        consumer.each_stage(
            f,
            (ring, piece),
            InFlight::One,
            // Both multiplications of a stage are one group of instructions.
            &|stage, accumulate| {
                let both = [product.find(stage), gates.find(stage)];
                f.wgmma_fence();
                both.iter().for_each(|found| found.issue(accumulate));
                f.wgmma_commit();
            },
            &|multiplied| {
                if !multiplied {
                    product.clear();
                    gates.clear();
                }
            },
        );
        for (sum, gate) in product.accumulators().iter().flatten().zip(gates.accumulators().iter().flatten())
        {
            sum.set(sum.get() * <Silu as Pointwise<1>>::apply((), [gate.get()]));
        }
        finish(plan, product.sums(consumer, piece));
    }
}

type Kernel = Composed<Dual, LinearCombination<f32, DirectStore>, Persistent<AlongM>>;

#[test]
fn two_products_of_one_stage() {
    on_every_engine(&|engine| {
        for (m, n, k) in [(128, 64, 64), (200, 72, 328), (8, 136, 16)] {
            let elements = |rows, seed| Elements::random(Format::Bf16, [rows, k], seed);
            let (a, b, gate) = (elements(m, 1), elements(n, 2), elements(n, 3));
            let operands = [a.upload(engine), b.upload(engine)];
            let own = Gate(Some(gate.operand(engine, k)));
            let got = run::<Kernel>(engine, GemmProblem { m, n, k }, operands, &own);
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
