//! Block scales as a third tile of a stage: `D = sum over k-tiles t of scale(m, t) * (A_t * B_t)`, promoted
//! in registers.

use collective::operands::{Contents, Extents, Memory, OwnSite, Visit};
use collective::{
    Accumulators, Cluster, Consumer, Cooperative, DeviceMainloop, DirectStore, EachWarp, Finish, Format,
    Fragment, InFlight, KMajor, LinearCombination, Mainloop, MainloopSite, MainloopSpec, Operands, Origin,
    Pass, Plan, StageSlot, TensorCopy, Tile, TmaWgmma, WarpgroupMma,
};
use half::bf16;
use kernel::{Composed, GemmProblem};
use ptx::{Builder, BulkLoad, Value};
use scheduler::{AlongM, Persistent};
use typenum::{U1, U2, U3, U64, U128};

use crate::support::{Elements, compare, on_every_engine, run, sum};

type Ours = TmaWgmma<
    Operands<KMajor<bf16>, KMajor<bf16>>,
    Tile<U128, U64, U64>,
    Cooperative<U2, Cluster<U1, U1>, EachWarp<U3>>,
>;
const OURS: MainloopSpec = <Ours as Mainloop>::SPEC;
/// Bytes of the scales of a tile's rows.
const LINE: u32 = 128 * 4;

struct Scaled;

/// The address of the scales: 128 per k-tile of each tile of rows, one k-tile after the other.
#[derive(Clone, Default)]
struct Scales(u64);

impl Mainloop for Scaled {
    const NAME: &'static str = "scaled";
    const SPEC: MainloopSpec = {
        let mut spec = OURS;
        spec.more[0] = StageSlot::line(LINE);
        spec.registers = OURS.product().accumulators();
        spec
    };
    type Arguments = Scales;

    fn state(of: &MainloopSite<'_>, visit: &mut dyn Visit) {
        of.map(0, ["a_map", "a_step"], visit);
        of.map(1, ["b_map", "b_step"], visit);
        visit.number("scales_k", of.matrix(0).map(|a| a.k.div_ceil(of.plan.mainloop.tile[2])));
    }

    fn visit(own: &mut Scales, &OwnSite { problem: [m, _, k], .. }: &OwnSite<'_>, visit: &mut dyn Visit) {
        let extents = Extents::line(32, u64::from(m.div_ceil(128) * 128) * u64::from(k.div_ceil(64)));
        let (name, contents) = ("the scales", Contents::Scales);
        visit.memory(Memory { name, address: &mut own.0, extents, contents, writes: false });
        visit.address("scales", name);
    }

    fn device<'f>(f: &'f Builder, _: &Plan) -> DeviceMainloop<'f> {
        let maps: [Value<'f, u64>; 2] = ["a_map", "b_map"].map(|name| f.parameter(name));
        let (scales, k_tiles) = (f.parameter::<u64>("scales"), f.parameter::<u32>("scales_k"));
        DeviceMainloop::new()
            .with_load(move |Pass { f, plan, ring, unit }, _| {
                let copies = plan.operands.map(TensorCopy::new);
                f.repeat_from(unit.k_begin, unit.k_end, |k_tile| {
                    let k = k_tile * plan.mainloop.tile[2];
                    ring.produce(f.constant(plan.ring.transaction_bytes()), |stage| {
                        for ((copy, map), mn) in copies.iter().zip(maps).zip([unit.m, unit.n]) {
                            copy.load(f, stage, Origin::alone(map), [mn, k]);
                        }
                        let line = unit.m / plan.mainloop.tile[0] * k_tiles + k_tile;
                        let (src, dst) = (scales + line.mul_wide(LINE), stage.address + plan.ring.offset(2));
                        f.bulk_load(
                            BulkLoad { src, dst, barrier: stage.full, multicast: None, hint: None },
                            LINE,
                        );
                    });
                });
            })
            .with_multiply(Self::multiply)
    }
}

impl Scaled {
    fn multiply<'f>(pass: Pass<'_, 'f>, consumer: Consumer<'f>, finish: Finish<'_, 'f>) {
        let Pass { f, plan, unit, .. } = pass;
        let product = WarpgroupMma::<f32>::new(f, plan.product(), consumer.part);
        let zeros = |block: &Vec<_>| block.iter().map(|_| f.variable(0.0f32)).collect::<Vec<_>>();
        let sums: Vec<_> = product.accumulators().iter().map(zeros).collect();
        let fragment = product.fragment(consumer, unit.first());
        // The position of the scale of the thread's first row in a stage.
        let [row, _] = fragment.start();
        let own = (row - unit.m) * 4 + plan.ring.offset(2);
        consumer.each_stage(
            pass,
            InFlight::None,
            &|stage, _| {
                product.multiply(stage, false);
                f.wgmma_wait(0);
                let elements = fragment.elements.part();
                for (block, (sums, products)) in (0i64..).zip(sums.iter().zip(product.accumulators())) {
                    for (value, (sum, product)) in (0i64..).zip(sums.iter().zip(products)) {
                        let row = elements.at_modes(&[value, block, 0]).leaf(0) as u32;
                        let [scale] = f.load_shared_vector::<f32, 1>(stage.address + own + row * 4, 0);
                        sum.set(product.get().mul_add(scale, sum.get()));
                    }
                }
            },
            &|_| {},
        );
        finish(plan, Accumulators::F32(Fragment { blocks: sums, ..fragment }));
    }
}

type Kernel = Composed<Scaled, LinearCombination<f32, DirectStore>, Persistent<AlongM>>;

#[test]
fn scales_of_blocks_are_a_tile_of_a_stage() {
    on_every_engine(&|engine| {
        for (m, n, k) in [(128, 64, 64), (200, 72, 328)] {
            let elements = |rows, seed| Elements::random(Format::Bf16, [rows, k], seed);
            let (a, b) = (elements(m, 1), elements(n, 2));
            let operands = [a.upload(engine), b.upload(engine)];
            let k_tiles = k.div_ceil(64);
            let scales = Elements::random(Format::F32, [m.div_ceil(128) * k_tiles, 128], 3);
            let own = Scales(engine.upload(&scales.bytes).expect("memory").address);
            let got = run::<Kernel>(engine, GemmProblem { m, n, k }, operands, &own);
            compare("scaled", [m, n], &got, |i, j| {
                let scale = |k: u32| scales.at(i / 128 * k_tiles + k / 64, i % 128);
                let [want, all] = sum(k, |k| scale(k) * a.at(i, k) * b.at(j, k));
                [want, f64::from(k) * f64::from(f32::EPSILON) * all]
            });
        }
    });
}
