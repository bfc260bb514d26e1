//! A mainloop from the library's parts: `D = A * (B1 + B2)` by two products per stage. A stage holds three
//! operand tiles.

use falchion::collective::operands::{OwnSite, Visit};
use falchion::collective::stage::OperandMap;
use falchion::collective::{
    Consumer, DeviceMainloop, Finish, Form, Format, Forms, InFlight, Mainloop, MainloopNeeds, MainloopSite,
    MainloopSpec, Matrix, OperandTile, Pass, TensorCopy, TileLayout, WarpgroupMma,
};
use falchion::cute_rs::atom::Major;
use falchion::prelude::*;
use falchion::ptx::Builder;

use crate::layout::Slab;

type One = TmaWgmma<Operands<KMajor<bf16, Slab>, KMajor<bf16>>, Tile<U128, U64, U64>, Cooperative<U2>>;
const SECOND: OperandTile = OperandTile::checked(Format::Bf16, Major::K, [64, 64], TileLayout::Widest);

/// The mainloop as a type.
pub struct TwoB;
/// The second B, of the same shape as the first.
#[derive(Clone, Default)]
pub struct Second(pub Option<Matrix>);

/// The kernel parameters: three tensor maps.
const NAMES: [[&str; 2]; 3] = [["a_map", "a_step"], ["b_map", "b_step"], ["second_map", "second_step"]];

impl Mainloop for TwoB {
    const NAME: &'static str = "two_b";
    const SPEC: MainloopSpec = {
        let mut spec = <One as Mainloop>::SPEC;
        spec.more[0] = SECOND.room();
        spec.registers = spec.product().accumulators();
        spec
    };
    /// D is linear in A * B1 and A * B2, so partial results may be added up. The rest stays as it is by default: whole tiles,
    /// and no cluster.
    const NEEDS: MainloopNeeds = MainloopNeeds { whole_k: false, ..MainloopNeeds::ALL };
    /// Each GEMM of a batch has its own matrices, or shares them.
    const FORMS: Forms = Forms::SINGLE.and(Form::Batched);
    type Arguments = Second;
    fn check(own: &Second, _: Matrix, b: Matrix) -> Result<(), String> {
        match own.0 {
            Some(Matrix { mn, k, batch, .. }) if (mn, k, batch.count) == (b.mn, b.k, b.batch.count) => Ok(()),
            Some(Matrix { mn, k, batch, .. }) => Err(format!(
                "the second B is {} of {mn} x {k}, {} of {} x {} was needed",
                batch.count, b.batch.count, b.mn, b.k
            )),
            None => Err("the second B is missing: bind it".into()),
        }
    }
    fn state(of: &MainloopSite<'_>, visit: &mut dyn Visit) {
        (0..2).for_each(|i| of.map(i, NAMES[i], visit));
    }
    fn visit(own: &mut Second, of: &OwnSite<'_>, visit: &mut dyn Visit) {
        visit.form(own.0.is_some().into());
        if let Some(second) = &mut own.0 {
            visit.operand("the second B", (1, Format::Bf16), Major::K, second);
        }
        if let Some(plan) = of.plan {
            let given = (plan.form == Form::Batched, own.0.filter(|_| of.launched));
            SECOND.state(NAMES[2], "the second B", given, visit);
        }
    }
    fn device<'f>(f: &'f Builder, plan: &Plan) -> DeviceMainloop<'f> {
        let maps = NAMES.map(|names| OperandMap::of(f, names, plan.form == Form::Batched));
        DeviceMainloop::new()
            .with_load(move |Pass { f, plan, ring, unit }, _| {
                let (copies, origins) = (tiles(plan).map(TensorCopy::new), maps.map(|map| map.origin(unit)));
                let bytes = f.constant(plan.ring.transaction_bytes());
                f.repeat_from(unit.k_begin, unit.k_end, |k_tile| {
                    ring.produce(bytes, |stage| {
                        for ((copy, origin), mn) in copies.iter().zip(origins).zip([unit.m, unit.n, unit.n]) {
                            copy.load(f, stage, origin, [mn, k_tile * plan.mainloop.tile[2]]);
                        }
                    });
                });
            })
            .with_multiply(multiply)
    }
}

fn tiles(plan: &Plan) -> [OperandTile; 3] {
    let [a, b] = plan.operands;
    [a, b, SECOND.at(plan.ring.offset(2))]
}

fn multiply<'f>(pass: Pass<'_, 'f>, consumer: Consumer<'f>, finish: Finish<'_, 'f>) {
    let Pass { f, plan, unit, .. } = pass;
    let [_, b, second] = tiles(plan);
    let product = |b| WarpgroupMma::<f32>::new(f, plan.product().by(b), consumer.part);
    let (sums, others) = (product(b), product(second));
    consumer.each_stage(
        pass,
        InFlight::One,
        &|stage, accumulate| {
            let both = [sums.find(stage), others.find(stage)];
            f.wgmma_fence();
            both.iter().for_each(|found| found.issue(accumulate));
            f.wgmma_commit();
        },
        &|multiplied| {
            if !multiplied {
                sums.clear();
                others.clear();
            }
        },
    );
    for (sum, other) in sums.accumulators().iter().flatten().zip(others.accumulators().iter().flatten()) {
        sum.set(sum.get() + other.get());
    }
    finish(plan, sums.sums(consumer, unit.first()));
}
