//! A mainloop of two products that share A: `D = silu(A * G) * (A * B)`, of any tile and roles. CUTLASS's example 45.

use std::marker::PhantomData;

use falchion::collective::{
    Batch, Consumer, Finish, InFlight, OperandTile, Origin, Pass, Real, TensorCopy, TileLayout, WarpgroupMma,
};
use falchion::cute_rs::atom::Major;
use falchion::prelude::family::*;
use falchion::prelude::*;

use crate::{Kk, products};

/// The mainloop as a type. Its NEEDS are the default ones: all of K, since D is not linear in the products.
pub struct Dual<T, R>(PhantomData<(T, R)>);
/// The gates, of B's shape.
#[derive(Clone, Debug, Default)]
pub struct Gates(Option<Matrix>);
const fn gate([_, n, k]: [u32; 3]) -> OperandTile {
    OperandTile::checked(Format::Bf16, Major::K, [n, k], TileLayout::Widest)
}

fn tiles(plan: &Plan) -> [OperandTile; 3] {
    let [a, b] = plan.operands;
    [a, b, gate(plan.mainloop.tile).at(plan.ring.offset(2))]
}

impl<T: TileShape, R: WarpRoles> Mainloop for Dual<T, R> {
    const NAME: &'static str = "dual";
    const SPEC: MainloopSpec = {
        let mut spec = <TmaWgmma<Kk, T, R> as Mainloop>::SPEC;
        spec.more[0] = gate(spec.tile).room();
        spec.registers = spec.product().accumulators();
        spec
    };
    type Arguments = Gates;
    fn check(own: &Gates, _: Matrix, b: Matrix) -> Result<(), String> {
        let gates = own.0.ok_or("the gates are missing: pass them by `with_mainloop`")?;
        let (given, needed) = ([gates.mn, gates.k], [b.mn, b.k]);
        if given == needed { Ok(()) } else { Err(format!("the gates are {given:?}, {needed:?} was needed")) }
    }
    fn visit(own: &mut Gates, of: &OwnSite<'_>, visit: &mut dyn Visit) {
        visit.form(own.0.is_some().into());
        if let Some(gates) = &mut own.0 {
            visit.operand("G", (1, Format::Bf16), Major::K, gates);
        }
        if let Some(plan) = of.plan {
            let map = |gates| gate(plan.mainloop.tile).tensor_map(gates);
            visit.tensor_map("gate_map", "G", own.0.filter(|_| of.launched).map(map));
        }
    }
    fn device<'f>(f: &'f Builder, _: &Plan) -> DeviceMainloop<'f> {
        let maps = ["a_map", "b_map", "gate_map"].map(|name| f.parameter(name));
        DeviceMainloop::new()
            .with_load(move |Pass { f, plan, ring, unit }, _| {
                let copies = tiles(plan).map(TensorCopy::new);
                f.repeat_from(unit.k_begin, unit.k_end, |k_tile| {
                    ring.produce(f.constant(plan.ring.transaction_bytes()), |stage| {
                        for ((copy, map), mn) in copies.iter().zip(maps).zip([unit.m, unit.n, unit.n]) {
                            copy.load(f, stage, Origin::alone(map), [mn, k_tile * plan.mainloop.tile[2]]);
                        }
                    });
                });
            })
            .with_multiply(multiply)
    }
}

fn multiply<'f>(pass: Pass<'_, 'f>, consumer: Consumer<'f>, finish: Finish<'_, 'f>) {
    let Pass { f, plan, unit, .. } = pass;
    // (BLK_M, BLK_K, PIPE), (BLK_N, BLK_K, PIPE), (BLK_N, BLK_K, PIPE)
    let [_, b, gate] = tiles(plan);
    let of = |b| WarpgroupMma::<f32>::new(f, plan.product().by(b), consumer.part);
    let (up, gate) = (of(b), of(gate));
    let both = |stage, accumulate| {
        let found = [up.find(stage), gate.find(stage)];
        f.wgmma_fence();
        found.iter().for_each(|found| found.issue(accumulate));
        f.wgmma_commit();
    };
    let rest = |multiplied: bool| {
        if !multiplied {
            [&up, &gate].into_iter().for_each(WarpgroupMma::clear);
        }
    };
    consumer.each_stage(pass, InFlight::One, &both, &rest);
    for (up, gate) in up.accumulators().iter().flatten().zip(gate.accumulators().iter().flatten()) {
        up.set(gate.get() * gate.get().sigmoid() * up.get());
    }
    finish(plan, up.sums(consumer, unit.first()));
}

/// The mainloop in two kernels, as a family: consumers share a tile, or alternate.
pub struct DualGemm;
type With<T, R> = Composed<Dual<T, R>, LinearCombination<f32>, Persistent<AlongM>>;

impl GemmFamily for DualGemm {
    const NAME: &'static str = "dual-gemm";
    type Problem = GemmProblem;
    type Arguments = WithMainloop<Gates, LinearArguments>;
    fn kernels() -> Vec<AnyGemm> {
        vec![
            AnyGemm::of::<With<Tile<U128, U64, U64>, Cooperative<U2, Cluster<U1, U1>, U2>>>("128x64"),
            AnyGemm::of::<With<Tile<U64, U64, U64>, Pingpong<U2, Cluster<U1, U1>, U2>>>("64x64-pingpong"),
        ]
    }
    fn call(problem: &GemmProblem) -> Call<Self::Arguments> {
        let GemmProblem { n, k, .. } = *problem;
        let gates = Matrix { address: 0, mn: n, k, ld: k.into(), batch: Batch::ONE };
        Call::of(*problem).with_mainloop(Gates(Some(gates)))
    }
    fn operations(problem: &GemmProblem) -> f64 {
        2.0 * problem.operations()
    }

    fn row(problem: &GemmProblem, row: usize, inputs: &Inputs<'_>) -> Result<Vec<(f64, f64)>, String> {
        let [ups, gates] = ["B", "G"].map(|b| products(*problem, row, b, inputs));
        let each = |(&(up, up_error), &(gate, gate_error)): (&(f64, f64), &(f64, f64))| {
            let silu = gate / (1.0 + (-gate).exp());
            // The slope of silu is at most 1.1; the sigmoid has a few roundings.
            let error = up_error * silu.abs() + 1.1 * gate_error * up.abs() + 1e-5 * (silu * up).abs();
            (silu * up, error + 1e-6)
        };
        Ok(ups.iter().zip(&gates).map(each).collect())
    }
}
