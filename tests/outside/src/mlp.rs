//! A kernel with two rings that is no GEMM: two layers, `D = relu(X * W1) * W2`, whose hidden units are never in memory. It uses
//! the skeleton of the library's kernels, and its parts.

use falchion::collective::pipeline::{ClusterPosition, Release, Ring, Turns};
use falchion::collective::skeleton::Cta;
use falchion::collective::{
    Arrivals, Atom, Consumer, CtaPlan, Fragments, OperandTile, Origin, Peers, Producer, ProductSpec, Real,
    RingPlan, RoleRegisters, TensorCopy, TileLayout, WarpgroupMma,
};
use falchion::cute_rs::atom::Major;
use falchion::prelude::family::*;
use falchion::ptx::WgmmaTypes;

/// Elements of a row of X, of D, and hidden units per stage.
const WIDTH: u32 = 64;

/// A kernel with so many consumers, of 64 rows each, and stages of weights.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Mlp {
    consumers: u32,
    stages: u32,
}

/// Rows and hidden units; X (rows, 64), W1 (hidden, 64) and W2 (64, hidden) in `bf16`, D (rows, 64) in `f32`: packed, row-major.
type MlpCall = Addressed<Sizes<2>, 4>;

/// The names of the inputs, and of their tensor maps.
const INPUTS: [(&str, &str); 3] = [("X", "x_map"), ("W1", "first_map"), ("W2", "second_map")];

/// The tiles of X, W1 and W2, and the rings of X and of the weights, in a CTA.
struct Parts {
    tiles: [OperandTile; 3],
    rings: [RingPlan; 2],
    cta: CtaPlan,
    products: [ProductSpec; 2],
}

impl Mlp {
    fn parts(&self) -> Parts {
        let Self { consumers, stages } = *self;
        let tile = |mn| OperandTile::checked(Format::Bf16, Major::K, [mn, WIDTH], TileLayout::Widest);
        let [x, weights] = [tile(64 * consumers), tile(WIDTH)];
        let ring = RingPlan::of(&[weights.room(), weights.room()]);
        let tiles = [x, weights.at(ring.offset(0)), weights.at(ring.offset(1))];
        let rings = [RingPlan::of(&[x.room()]), ring].map(|ring| ring.arrivals(1, consumers));
        let (rings, shared_bytes) = RingPlan::placed_together(rings, [2, stages], 0);
        let cta = CtaPlan {
            producer: Some(Producer::Thread),
            consumers,
            registers: RoleRegisters::divided(consumers, Some(24)),
            shared_bytes,
            cluster: 1,
            resident: 1,
            peers: Peers::Apart,
            overlaps: true,
            turns: false,
        };
        let atoms = [Atom::shared(WgmmaTypes::Bf16F32), Atom::registers(WgmmaTypes::Bf16F32)];
        let products = [0, 1].map(|i| ProductSpec::checked(atoms[i], [x, tiles[1 + i]], consumers));
        Parts { tiles, rings, cta, products }
    }
}

fn emit<'f>(f: &'f Builder, Parts { tiles, rings, cta, products }: Parts) {
    let maps = INPUTS.map(|(_, map)| f.parameter::<u64>(map));
    let d = f.parameter::<u64>("d");
    let [rows, hidden] = ["rows", "hidden"].map(|name| f.parameter::<u32>(name));
    let shared = f.shared_base();
    let names = ["the ring of X", "the ring of weights"];
    let rings = [0, 1].map(|i| Ring::named(f, names[i], rings[i], shared));
    let (tile_rows, blocks) = (tiles[0].extents()[0], hidden.div_ceil(WIDTH));
    let each_tile = |body: &dyn Fn(Value<'f, u32>)| {
        let tile = f.variable(f.special(Special::CtaX) * tile_rows);
        f.while_(
            || tile.get().less_than(rows),
            || {
                body(tile.get());
                tile.set(tile.get() + f.special(Special::GridX) * tile_rows);
            },
        );
    };
    let produce = || {
        let [x, weights] = rings.map(|ring| ring.producer());
        let (copies, zero) = (tiles.map(TensorCopy::new), f.constant(0));
        let load = |i: usize, stage, first| copies[i].load(f, stage, Origin::alone(maps[i]), first);
        each_tile(&|row| {
            x.produce(f.constant(tiles[0].room().bytes), |stage| load(0, stage, [row, zero]));
            f.repeat(blocks, |block| {
                weights.produce(f.constant(2 * tiles[1].room().bytes), |stage| {
                    load(1, stage, [block * WIDTH, zero]);
                    load(2, stage, [zero, block * WIDTH]);
                });
            });
        });
    };
    let consume = |warpgroup: Value<'f, u32>| {
        let thread = f.special(Special::ThreadX) % 128;
        let release = Release::new(f, Arrivals::Warpgroup, ClusterPosition::new(f, [1, 1]), shared, thread);
        let part = if cta.consumers > 1 { warpgroup } else { f.constant(0) };
        let consumer = Consumer { shared, warpgroup, part, thread, release, turns: Turns::none(f) };
        // (BLK_M, HIDDEN) = (BLK_M, K) * (HIDDEN, K), (BLK_M, N) += (BLK_M, HIDDEN) * (N, HIDDEN)
        let [units, out] = products.map(|product| WarpgroupMma::<f32>::new(f, product, part));
        let activated = Fragments::new(f, products[1], consumer);
        let [x, weights] = rings.map(|ring| ring.consumer());
        each_tile(&|row| {
            let of_x = x.acquire();
            out.clear();
            f.repeat(blocks, |_| {
                let stage = weights.acquire();
                let found = units.find_in([of_x, stage]);
                f.wgmma_fence();
                found.issue(false);
                f.wgmma_commit();
                f.wgmma_wait(0);
                for unit in units.accumulators().iter().flatten() {
                    unit.set(Real::max(unit.get(), f.constant(0.0)));
                }
                activated.pack(units.accumulators());
                out.multiply_registers(&activated, stage, true);
                f.wgmma_wait(0);
                release.arrive(stage.empty);
            });
            release.arrive(of_x.empty);
            let zero = f.constant(0);
            let fragment = out.fragment(consumer, [row, zero]);
            for row in fragment.rows(fragment.start(), 0) {
                f.if_(row.row.less_than(rows), || {
                    let at = d + (row.row * WIDTH + row.column).mul_wide(4);
                    row.pairs.iter().for_each(|pair| f.store_global(at, 4 * pair.column as i32, pair.values));
                });
            }
        });
    };
    let cta = Cta::begin(f, cta, || {
        maps.iter().for_each(|&map| f.prefetch_tensor_map(map));
        for ring in rings {
            ring.initialise();
        }
    });
    cta.roles(produce, consume);
}

impl Kernel<MlpCall> for Mlp {
    fn program(&self) -> Result<Program, VerifyError> {
        let parts = self.parts();
        let entry = parts.cta.entry(format!("mlp_{}_{}", self.consumers, self.stages));
        Program::of(self, entry, |f| emit(f, parts))
    }

    fn launch(&self, call: &MlpCall, resident: u32) -> Result<Option<Launch>, LaunchError> {
        let Sizes([rows, hidden]) = call.problem;
        LaunchError::unless(rows <= 1 << 24, ("the number of rows", rows), "at most 2^24")?;
        let whole = hidden % 8 == 0 && hidden <= 1 << 24;
        LaunchError::unless(whole, ("the number of hidden units", hidden), "a multiple of 8 up to 2^24")?;
        Launch::of(self, call, |_| 16, resident.min(rows.div_ceil(64 * self.consumers)))
    }

    fn visit(&self, call: &mut MlpCall, visit: &mut dyn Visit) {
        let Addressed { problem: Sizes([rows, hidden]), at: [inputs @ .., d] } = call;
        let extents = [[*rows, WIDTH], [*hidden, WIDTH], [WIDTH, *hidden]];
        for (i, address) in inputs.iter_mut().enumerate() {
            self.parts().tiles[i].state_packed(INPUTS[i], address, (extents[i], usize::from(i > 0)), visit);
        }
        let all = Extents { lines: *rows, ..Extents::line(32, WIDTH.into()) };
        visit.output("d", ("D", d), all, Format::F32);
        visit.counted("rows", rows);
        visit.counted("hidden", hidden);
    }
}

impl Family for Mlp {
    const NAME: &'static str = "mlp";
    type Request<'r> = Sizes<2>;
    type Problem = Sizes<2>;
    type Spec = Numbers;
    type Call = MlpCall;

    fn of_spec(spec: &Numbers) -> Result<Self, String> {
        let [consumers, stages] = spec.within([("consumers", 1..=3), ("stages", 2..=8)])?;
        Ok(Self { consumers, stages })
    }

    fn spec(&self) -> Option<Numbers> {
        Some(Numbers::new([("consumers", self.consumers), ("stages", self.stages)]))
    }

    fn call(problem: &Sizes<2>) -> MlpCall {
        MlpCall::of(*problem)
    }

    fn ranked(of: &Sizes<2>, machine: &Machine, most: usize) -> Result<Vec<Predicted<Self>>, String> {
        let Sizes([rows, hidden]) = *of;
        let space = [[2, 6], [1, 2]]
            .map(|[consumers, stages]| Numbers::new([("consumers", consumers), ("stages", stages)]));
        cheapest(space, most, |&Self { consumers, .. }: &Self| {
            let waves = rows.div_ceil(64 * consumers).div_ceil(machine.multiprocessors);
            // A consumer waits for each of its products; the products of several overlap.
            f64::from(waves) * f64::from(hidden.div_ceil(WIDTH)) * (1.0 + 0.2 * f64::from(consumers))
        })
    }

    fn operations(Sizes([rows, hidden]): &Sizes<2>) -> f64 {
        4.0 * f64::from(*rows) * f64::from(*hidden) * f64::from(WIDTH)
    }

    fn expect(
        &self,
        &Sizes([rows, hidden]): &Sizes<2>,
        _: &MlpCall,
        inputs: &Inputs<'_>,
    ) -> Result<Vec<Expected>, String> {
        let (width, hidden, eps) = (WIDTH as usize, hidden as usize, 2f64.powi(-23));
        let [first, second] = ["W1", "W2"].map(|name| inputs.elements(name, 0, width * hidden));
        let row = |row: usize| {
            let x = inputs.elements("X", row * width, width);
            let unit = |weights: &[f64]| {
                let terms = x.iter().zip(weights).map(|(x, weight)| x * weight);
                let [sum, all] = terms.fold([0.0, 0.0], |[sum, all], term| [sum + term, all + term.abs()]);
                // Rounded to `bf16` for the second product.
                (f64::max(sum, 0.0), all * 64.0 * eps + sum.abs() * 2f64.powi(-8))
            };
            let units: Vec<_> = first.chunks(width).map(unit).collect();
            let element = |n: usize| {
                let terms = units.iter().zip(&second[n * hidden..]).map(|(&(unit, error), weight)| {
                    (unit * weight, (error + unit * hidden as f64 * eps) * weight.abs())
                });
                terms.fold((0.0, 1e-6), |(sum, bound), (term, error)| (sum + term, bound + error))
            };
            (row * width, (0..width).map(element).collect())
        };
        Ok(vec![Expected::near("D", inputs.rows(rows as usize, row))])
    }
}
