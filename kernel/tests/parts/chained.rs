//! Two chained GEMMs, as in attention: `D = bf16(Q * Key) * V`. The accumulators of the first become A of the
//! second, in registers. Q has its own ring with one stage. A stage of the kernel's ring holds tiles of Key
//! and of V, and none of A.

use collective::operands::{OwnSite, Visit};
use collective::pipeline::{Position, Ring};
use collective::{
    Atom, Cluster, Consumer, Cooperative, DeviceMainloop, DirectStore, EachWarp, Finish, Format, Fragments,
    KMajor, LinearCombination, Mainloop, MainloopSite, MainloopSpec, Matrix, MnMajor, OperandTile, Operands,
    Origin, Pass, Plan, ProductSpec, RingPlan, TensorCopy, Tile, TileLayout, TmaWgmma, WarpgroupMma,
};
use cute_rs::atom::Major;
use half::bf16;
use kernel::{Composed, GemmProblem};
use ptx::{Builder, Value, WgmmaTypes};
use scheduler::{AlongM, Persistent};
use typenum::{U1, U2, U32, U64, U128};

use crate::support::{Elements, compare, on_every_engine, run, sum};

/// Rows of Q, elements of a head, rows of Key and V per stage.
const ROWS: u32 = 128;
const HEAD: u32 = 64;
const KEYS: u32 = 32;

const Q: OperandTile = OperandTile::checked(Format::Bf16, Major::K, [ROWS, HEAD], TileLayout::Widest);
const KEY: OperandTile = OperandTile::checked(Format::Bf16, Major::K, [KEYS, HEAD], TileLayout::Widest);

/// The second GEMM. Its B is V: `(N, K)` with N contiguous.
type Second = TmaWgmma<
    Operands<KMajor<bf16>, MnMajor<bf16>>,
    Tile<U128, U64, U32>,
    Cooperative<U2, Cluster<U1, U1>, EachWarp<U2>>,
>;
const SECOND: MainloopSpec = {
    let mut spec = <Second as Mainloop>::SPEC;
    spec.operands[0].staged = false;
    spec.atom = Atom::registers(WgmmaTypes::Bf16F32);
    spec.more[0] = KEY.room();
    spec.own_bytes = OWN.start + OWN.stage_bytes + OWN.barrier_bytes();
    // The scores, and the same as fragments.
    spec.registers = FIRST.spec().accumulators() + 2 * SCORES;
    spec
};
/// A thread's scores as 16-bit elements.
const SCORES: u32 = ROWS / 2 / 64 * KEYS / 16 * 4;

/// The first GEMM: rows of Q times rows of Key.
const FIRST: ProductSpec = ProductSpec::checked(Atom::shared(WgmmaTypes::Bf16F32), [Q, KEY], 2);

/// Q's ring, in the mainloop's own shared memory.
const OWN: RingPlan = RingPlan::of(&[Q.room()]).placed(1, 0, Q.room().bytes).arrivals(1, 2 * 4);

struct Chained;

#[derive(Clone, Default)]
struct Queries(Option<[Matrix; 2]>);

#[derive(Clone, Copy)]
struct Device<'f> {
    maps: [Value<'f, u64>; 3],
    filled: Position<'f>,
    read: Position<'f>,
}

impl Mainloop for Chained {
    const NAME: &'static str = "chained";
    const SPEC: MainloopSpec = SECOND;
    type Arguments = Queries;

    fn check(own: &Queries, _: Matrix, _: Matrix) -> Result<(), String> {
        own.0.map(|_| ()).ok_or_else(|| "Q and Key are missing: bind them".to_owned())
    }

    fn state(of: &MainloopSite<'_>, visit: &mut dyn Visit) {
        of.map(1, ["v_map", "v_step"], visit);
    }

    fn visit(own: &mut Queries, of: &OwnSite<'_>, visit: &mut dyn Visit) {
        for (i, (name, operand)) in ["Q", "Key"].into_iter().zip(own.0.iter_mut().flatten()).enumerate() {
            visit.operand(name, (i, Format::Bf16), Major::K, operand);
        }
        let given = own.0.filter(|_| of.launched);
        visit.tensor_map("q_map", "Q", given.map(|[q, _]| Q.tensor_map(q)));
        visit.tensor_map("key_map", "Key", given.map(|[_, key]| KEY.tensor_map(key)));
    }

    fn device<'f>(f: &'f Builder, plan: &Plan) -> DeviceMainloop<'f> {
        let maps = ["q_map", "key_map", "v_map"].map(|name| f.parameter(name));
        let q = Ring::new(f, OWN, f.shared_base() + plan.own_offset);
        let device = Device { maps, filled: q.producer(), read: q.consumer() };
        DeviceMainloop::new()
            .with_initialise(move |_| q.initialise())
            .with_load(move |pass, _| device.load(pass))
            .with_multiply(move |pass, consumer, finish| device.multiply(pass, consumer, finish))
    }
}

impl<'f> Device<'f> {
    fn load(&self, Pass { f, plan, ring, unit }: Pass<'_, 'f>) {
        let [q, key, v] = [Q, KEY.at(plan.ring.offset(2)), plan.operands[1]].map(TensorCopy::new);
        let [q_map, key_map, v_map] = self.maps.map(Origin::alone);
        let zero = f.constant(0);
        self.filled
            .produce(f.constant(OWN.transaction_bytes()), |stage| q.load(f, stage, q_map, [unit.m, zero]));
        f.repeat_from(unit.k_begin, unit.k_end, |tile| {
            ring.produce(f.constant(plan.ring.transaction_bytes()), |stage| {
                key.load(f, stage, key_map, [tile * KEYS, zero]);
                v.load(f, stage, v_map, [unit.n, tile * KEYS]);
            });
        });
    }

    fn multiply(
        &self,
        Pass { f, plan, ring, unit }: Pass<'_, 'f>,
        consumer: Consumer<'f>,
        finish: Finish<'_, 'f>,
    ) {
        let first = FIRST.by(KEY.at(plan.ring.offset(2)));
        let scores = WarpgroupMma::<f32>::new(f, first, consumer.part);
        let out = WarpgroupMma::<f32>::new(f, plan.product(), consumer.part);
        let p = Fragments::new(f, plan.product(), consumer);
        let q = self.read.acquire();
        out.clear();
        f.repeat_from(unit.k_begin, unit.k_end, |_| {
            let stage = ring.acquire();
            let found = scores.find_in([q, stage]);
            f.wgmma_fence();
            found.issue(false);
            f.wgmma_commit();
            f.wgmma_wait(0);
            p.pack(scores.accumulators());
            out.multiply_registers(&p, stage, true);
            f.wgmma_wait(0);
            consumer.release.arrive(stage.empty);
        });
        consumer.release.arrive(q.empty);
        finish(plan, out.sums(consumer, unit.first()));
    }
}

type Kernel = Composed<Chained, LinearCombination<f32, DirectStore>, Persistent<AlongM>>;

#[test]
fn the_sums_of_one_product_are_operand_a_of_the_next() {
    on_every_engine(&|engine| {
        for (rows, keys) in [(128, 32), (328, 200)] {
            let (q, key) = (
                Elements::random(Format::Bf16, [rows, HEAD], 1),
                Elements::random(Format::Bf16, [keys, HEAD], 2),
            );
            let v = Elements::random(Format::Bf16, [keys, HEAD], 3);
            let own = Queries(Some([q.operand(engine, HEAD), key.operand(engine, HEAD)]));
            let operands = [collective::MatrixRef::NONE, v.upload(engine)];
            let problem = GemmProblem { m: rows, n: HEAD, k: keys };
            let got = run::<Kernel>(engine, problem, operands, &own);
            let score = |i, k| {
                let [sum, _] = sum(HEAD, |h| q.at(i, h) * key.at(k, h));
                Format::Bf16.decode(Format::Bf16.encode(sum))
            };
            compare("chained", [rows, HEAD], &got, |i, j| {
                let [want, all] = sum(keys, |k| score(i, k) * v.at(k, j));
                // A score is rounded to 8 bits, possibly in the other direction.
                [want, all * 2f64.powi(-8)]
            });
        }
    });
}
