//! A kernel with two rings that is no GEMM: two layers, `D = relu(X * W1) * W2`, whose hidden units are never in memory. It uses
//! the skeleton of the library's kernels, and its parts.

use std::fmt;
use std::str::FromStr;

use falchion::collective::operands::{Contents, Extents, Memory, Visit};
use falchion::collective::pipeline::{ClusterPosition, Release, Ring, Turns};
use falchion::collective::skeleton::Cta;
use falchion::collective::{
    Arrivals, Atom, Batch, Consumer, CtaPlan, Format, Fragments, MainloopSpec, Matrix, OperandSpec,
    OperandTile, Origin, Peers, Producer, Real, RingPlan, RoleRegisters, TensorCopy, TileLayout,
    WarpgroupMma, WorkUnit,
};
use falchion::cute_rs::atom::Major;
use falchion::kernel::{
    Expected, Family, Inputs, Kernel, KernelSpec, Launch, LaunchError, Machine, Predicted, Program, cheapest,
    check_accessed, declare,
};
use falchion::ptx::abi::Grid;
use falchion::ptx::{Builder, Function, Special, Value, VerifyError, WgmmaTypes};

/// Elements of a row of X, of D, and hidden units per stage.
const WIDTH: u32 = 64;

/// A kernel with so many consumers, of 64 rows each, and stages of weights.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Mlp {
    consumers: u32,
    stages: u32,
}

/// Rows of X, and hidden units.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Layers {
    pub rows: u32,
    pub hidden: u32,
}

/// X (rows, 64), W1 (hidden, 64) and W2 (64, hidden) in `bf16`, D (rows, 64) in `f32`: packed, row-major.
#[derive(Clone, Copy, Debug, Default)]
pub struct MlpCall {
    layers: Layers,
    x: u64,
    weights: [u64; 2],
    d: u64,
}

impl fmt::Display for Mlp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "consumers={} stages={}", self.consumers, self.stages)
    }
}

impl FromStr for Mlp {
    type Err = String;
    fn from_str(text: &str) -> Result<Self, String> {
        let parts = text.strip_prefix("consumers=").and_then(|text| text.split_once(" stages="));
        let parts =
            parts.and_then(|(consumers, stages)| Some([consumers.parse().ok()?, stages.parse().ok()?]));
        let [consumers, stages] =
            parts.ok_or_else(|| format!("`{text}` was found, consumers=COUNT stages=COUNT was needed"))?;
        Ok(Self { consumers, stages })
    }
}

/// The tiles of X, W1 and W2, and the rings of X and of the weights, in a CTA.
struct Parts {
    tiles: [OperandTile; 3],
    rings: [RingPlan; 2],
    cta: CtaPlan,
    product: MainloopSpec,
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
            peers: Peers::Apart,
            overlaps: true,
            turns: false,
        };
        let operands = [OperandSpec::k_major(Format::Bf16); 2];
        let tile = [64 * consumers, WIDTH, WIDTH];
        Parts {
            tiles,
            rings,
            cta,
            product: MainloopSpec { operands, tile, consumers, ..KernelSpec::DEFAULT.mainloop },
        }
    }
}

fn emit<'f>(f: &'f Builder, Parts { tiles, rings, cta, product }: Parts) {
    let maps = ["x_map", "first_map", "second_map"].map(|name| f.parameter::<u64>(name));
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
        let planned = "tiles of 64 columns";
        // (BLK_M, HIDDEN) = (BLK_M, K) * (HIDDEN, K), (BLK_M, N) += (BLK_M, HIDDEN) * (N, HIDDEN)
        let second = MainloopSpec { atom: Atom::registers(WgmmaTypes::Bf16F32), ..product };
        let units = WarpgroupMma::<f32>::new(f, &product, [tiles[0], tiles[1]], part).expect(planned);
        let out = WarpgroupMma::<f32>::new(f, &second, [tiles[0], tiles[2]], part).expect(planned);
        let activated = Fragments::new(f, &second, tiles[0], consumer).expect(planned);
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
            let unit = WorkUnit {
                m: row,
                n: zero,
                k_begin: zero,
                k_end: blocks,
                columns: None,
                group: None,
                record: None,
            };
            let fragment = out.fragment(consumer, unit);
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
        Program::new(Function::build(entry, |f| {
            declare(self, f);
            emit(f, parts);
        }))
    }

    fn launch(&self, call: &MlpCall, resident: u32) -> Result<Option<Launch>, LaunchError> {
        let Layers { rows, hidden } = call.layers;
        if rows == 0 {
            return Ok(None);
        }
        check_accessed(self, call, |_| 16)?;
        if hidden % 8 != 0 || rows.max(hidden) > 1 << 24 {
            let reason = format!(
                "there are {rows} rows and {hidden} hidden units, at most 2^24 and a multiple of 8 were needed"
            );
            return Err(LaunchError::Problem { reason });
        }
        let grid = Grid { ctas: [resident.min(rows.div_ceil(64 * self.consumers)), 1, 1] };
        Launch::new(grid, |visit| self.visit(&mut call.clone(), visit)).map(Some)
    }

    fn visit(&self, MlpCall { layers, x, weights: [first, second], d }: &mut MlpCall, visit: &mut dyn Visit) {
        let Layers { rows, hidden } = layers;
        let of = |lines: u32, length: u32, bits| Extents {
            lines,
            ld: length.into(),
            ..Extents::line(bits, length.into())
        };
        let read = if *rows > 0 { *hidden } else { 0 };
        let tiles = self.parts().tiles;
        let inputs = [
            (["x_map", "X"], 0, x, [*rows, WIDTH], of(*rows, WIDTH, 16)),
            (["first_map", "W1"], 1, first, [*hidden, WIDTH], of(read, WIDTH, 16)),
            (["second_map", "W2"], 1, second, [WIDTH, *hidden], of(WIDTH, read, 16)),
        ];
        for (tile, ([parameter, name], which, address, [mn, k], extents)) in tiles.iter().zip(inputs) {
            let contents = Contents::Multiplied(which, Format::Bf16);
            // Without hidden units nothing is read. The tensor maps must still be legal.
            let matrix = Matrix { address: *address, mn, k, ld: k.max(8).into(), batch: Batch::ONE };
            visit.memory(Memory { name, address, extents, contents, writes: false });
            visit.tensor_map(parameter, name, Some(tile.tensor_map(matrix)));
        }
        let (extents, contents) = (of(*rows, WIDTH, 32), Contents::Output(Format::F32));
        visit.memory(Memory { name: "D", address: d, extents, contents, writes: true });
        visit.address("d", "D");
        visit.counted("rows", rows);
        visit.counted("hidden", hidden);
    }
}

impl Family for Mlp {
    const NAME: &'static str = "mlp";
    type Request<'r> = Layers;
    type Problem = String;
    type Spec = Self;
    type Call = MlpCall;

    fn of_spec(spec: &Self) -> Result<Self, String> {
        match [spec.consumers, spec.stages] {
            [1..=3, 2..=8] => Ok(*spec),
            found => Err(format!("consumers and stages are {found:?}, 1 to 3 and 2 to 8 were needed")),
        }
    }

    fn spec(&self) -> Option<Self> {
        Some(*self)
    }

    fn request(text: &str) -> Result<Layers, String> {
        let extents =
            text.split_once('x').and_then(|(rows, hidden)| Some([rows.parse().ok()?, hidden.parse().ok()?]));
        let [rows, hidden] = extents.ok_or_else(|| format!("`{text}` was found, ROWSxHIDDEN was needed"))?;
        Ok(Layers { rows, hidden })
    }

    fn problem(Layers { rows, hidden }: &Layers) -> String {
        format!("{rows}x{hidden}")
    }

    fn call(layers: &Layers) -> MlpCall {
        MlpCall { layers: *layers, ..MlpCall::default() }
    }

    fn ranked(layers: &Layers, machine: &Machine, most: usize) -> Result<Vec<Predicted<Self>>, String> {
        cheapest(
            [[2, 6], [1, 2]].map(|[consumers, stages]| Self { consumers, stages }),
            most,
            |kernel: &Self| {
                let waves = layers.rows.div_ceil(64 * kernel.consumers).div_ceil(machine.multiprocessors);
                // A consumer waits for each of its products; the products of several overlap.
                f64::from(waves)
                    * f64::from(layers.hidden.div_ceil(WIDTH))
                    * (1.0 + 0.2 * f64::from(kernel.consumers))
            },
        )
    }

    fn operations(Layers { rows, hidden }: &Layers) -> f64 {
        4.0 * f64::from(*rows) * f64::from(*hidden) * f64::from(WIDTH)
    }

    fn expect(
        &self,
        &Layers { rows, hidden }: &Layers,
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
        Ok(vec![Expected { name: "D", elements: inputs.rows(rows as usize, row) }])
    }
}
