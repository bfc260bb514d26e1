//! Causal linear attention, chunk by chunk: `O_t = Q_t * (sum over s <= t of K_s^T V_s)`, per head. One CTA has a head at a time; the
//! state K^T V stays in the accumulators of a consumer, and is a tile of B for the next chunk. Four products per chunk of 64 rows.

use falchion::collective::heads::{HeadTensor, HeadsRef};
use falchion::collective::pipeline::{ClusterPosition, Release, Ring, Stage, Turns};
use falchion::collective::skeleton::Cta;
use falchion::collective::{
    Arrivals, Atom, Consumer, CtaPlan, Fragments, OperandTile, Peers, Producer, ProductSpec, RingPlan,
    RoleRegisters, TensorCopy, TileLayout, WarpgroupMma,
};
use falchion::cute_rs::atom::Major;
use falchion::prelude::bf16;
use falchion::prelude::family::*;
use falchion::ptx::{ProxySpace, WgmmaTypes};

/// Elements of a head, and rows of a chunk.
const D: u32 = 64;

/// A kernel with so many stages of Q, K and V.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Linear {
    stages: u32,
}

/// Heads and their length; Q, K, V (heads, length, 64) in `bf16`, with strides of their own, O the same in `f32`, packed.
#[derive(Clone, Copy, Debug, Default)]
pub struct LinearCall {
    heads: u32,
    length: u32,
    qkv: [HeadsRef; 3],
    o: u64,
}

/// The names of the memory, and of the tensor maps.
const NAMES: [[&str; 2]; 3] = [["Q", "q_map"], ["K", "k_map"], ["V", "v_map"]];

const fn tile(major: Major) -> OperandTile {
    OperandTile::checked(Format::Bf16, major, [D, D], TileLayout::Widest)
}

/// The tiles of a stage as copies fill them: rows of Q and K, columns of V.
const COPIED: [OperandTile; 3] = [tile(Major::K), tile(Major::K), tile(Major::Mn)];
/// The state as B: rows are those of K^T, and elements of V are contiguous.
const STATE: OperandTile = tile(Major::Mn);

/// What is in shared memory, and the products: scores, O of the state, O of the scores, and what is added to the state.
struct Parts {
    ring: RingPlan,
    cta: CtaPlan,
    tiles: [OperandTile; 3],
    products: [ProductSpec; 4],
}

impl Linear {
    fn parts(&self) -> Parts {
        let ring = RingPlan::of(&COPIED.map(|tile| tile.room())).arrivals(1, 1);
        let ([ring], shared_bytes) = RingPlan::placed_together([ring], [self.stages], STATE.room().bytes);
        let tiles = [0, 1, 2].map(|i| COPIED[i].at(ring.offset(i)));
        let ([q, k, v], across) = (tiles, tile(Major::Mn).at(ring.offset(1)));
        let types = WgmmaTypes::Bf16F32;
        let product = |atom, tiles| ProductSpec::checked(atom, tiles, 1);
        let shared = |tiles| product(Atom::shared(types), tiles);
        let products = [
            shared([q, k]),
            shared([q, STATE]),
            product(Atom::registers(types), [q, v]),
            shared([across, v]),
        ];
        let cta = CtaPlan {
            producer: Some(Producer::Thread),
            consumers: 1,
            registers: RoleRegisters::divided(1, Some(24)),
            shared_bytes,
            cluster: 1,
            resident: 1,
            peers: Peers::Apart,
            overlaps: true,
            turns: false,
        };
        Parts { ring, cta, tiles, products }
    }
}

/// What every role knows.
struct Emission<'f> {
    f: &'f Builder,
    parts: Parts,
    shared: Value<'f, u32>,
    heads: Value<'f, u32>,
    length: Value<'f, u32>,
    stages: Ring<'f>,
}

impl<'f> Emission<'f> {
    /// Emits what is done for each head of the CTA, and each chunk of it: its first row, and the head.
    fn each(&self, head: &dyn Fn(), chunk: &dyn Fn([Value<'f, u32>; 2])) {
        let Self { f, heads, length, .. } = *self;
        let at = f.variable(f.special(Special::CtaX));
        f.while_(
            || at.get().less_than(heads),
            || {
                head();
                f.repeat(length.div_ceil(D), |i| chunk([i * D, at.get()]));
                at.set(at.get() + f.special(Special::GridX));
            },
        );
    }

    fn produce(&self) {
        let (f, position, zero) = (self.f, self.stages.producer(), self.f.constant(0));
        let maps = NAMES.map(|[_, map]| f.parameter(map));
        self.each(&|| {}, &|[first, head]| {
            position.produce(f.constant(self.parts.ring.transaction_bytes()), |stage| {
                for (tile, map) in self.parts.tiles.into_iter().zip(maps) {
                    TensorCopy::new(tile).load_head(f, stage, (map, head), [first, zero]);
                }
            });
        });
    }

    fn consume(&self, warpgroup: Value<'f, u32>) {
        let (f, shared, length, o) = (self.f, self.shared, self.length, self.f.parameter::<u64>("o"));
        let thread = f.special(Special::ThreadX) % 128;
        let release = Release::new(f, Arrivals::Warpgroup, ClusterPosition::new(f, [1, 1]), shared, thread);
        let part = f.constant(0);
        let consumer = Consumer { shared, warpgroup, part, thread, release, turns: Turns::none(f) };
        let products = self.parts.products;
        let weights = Fragments::new(f, products[2], consumer);
        let [scores, of_state, out, state] = products.map(|of| WarpgroupMma::<f32>::new(f, of, part));
        let position = self.stages.consumer();
        let meet = || f.barrier_sync(CtaPlan::consumer_barrier(warpgroup), 128);
        self.each(&|| state.clear(), &|[first, head]| {
            // The state before this chunk, as B. All have multiplied the one before.
            meet();
            let held = state.fragment(consumer, [part; 2]);
            let [row, column] = held.start();
            for of in held.variables(0) {
                for pair in of.elements.chunks(2) {
                    let place = STATE.place([column + pair[0].0, row + of.row]);
                    f.store_shared(shared + place * 2, 0, [f.pack::<bf16>(pair[0].1.get(), pair[1].1.get())]);
                }
            }
            f.fence_proxy_async(ProxySpace::Shared);
            meet();
            let stage = position.acquire();
            scores.multiply(stage, false);
            f.wgmma_wait(0);
            let masked = scores.fragment(consumer, [part; 2]);
            let [row, key] = masked.start();
            for of in masked.variables(0) {
                for (column, score) in of.elements {
                    score.set(score.get().where_or((key + column).at_most(row + of.row), 0.0));
                }
            }
            weights.pack(scores.accumulators());
            let found = of_state.find_in([stage, Stage { address: shared, ..stage }]);
            f.wgmma_fence();
            found.issue(false);
            out.find(stage).issue_registers(&weights, false);
            state.find(stage).issue(true);
            f.wgmma_commit();
            f.wgmma_wait(0);
            release.arrive(stage.empty);
            for (sum, other) in
                out.accumulators().iter().flatten().zip(of_state.accumulators().iter().flatten())
            {
                sum.set(sum.get() + other.get());
            }
            let fragment = out.fragment(consumer, [first, part]);
            for row in fragment.rows(fragment.start(), 0) {
                f.if_(row.row.less_than(length), || {
                    row.store(f, Format::F32, o + (head * length + row.row).mul_wide(4 * D), None);
                });
            }
        });
    }
}

fn emit(f: &Builder, parts: Parts) {
    let (shared, cta) = (f.shared_base(), parts.cta);
    let [heads, length] = ["heads", "length"].map(|name| f.parameter(name));
    let stages = Ring::named(f, "the ring of Q, K and V", parts.ring, shared);
    let of = Emission { f, parts, shared, heads, length, stages };
    let cta = Cta::begin(f, cta, || {
        NAMES.iter().for_each(|[_, map]| f.prefetch_tensor_map(f.parameter(map)));
        stages.initialise();
    });
    cta.roles(|| of.produce(), |warpgroup| of.consume(warpgroup));
}

/// Q, K and V.
fn tensors([heads, length]: [u32; 2], qkv: &mut [HeadsRef; 3]) -> Vec<HeadTensor<'_>> {
    let shape = [1, heads, length, D];
    let of = |(i, at)| HeadTensor::copied(NAMES[i], COPIED[i], at, shape, Some(usize::from(i > 0)));
    qkv.iter_mut().enumerate().map(of).collect()
}

impl Kernel<LinearCall> for Linear {
    fn program(&self) -> Result<Program, VerifyError> {
        let parts = self.parts();
        Program::of(self, parts.cta.entry(format!("linear_attention_{}", self.stages)), |f| emit(f, parts))
    }

    fn launch(&self, call: &LinearCall, resident: u32) -> Result<Option<Launch>, LaunchError> {
        let LinearCall { heads, length, .. } = *call;
        let rows = u64::from(heads) * u64::from(length);
        LaunchError::unless(rows <= 1 << 24, ("the number of rows of all heads", rows), "at most 2^24")?;
        tensors([heads, length], &mut call.qkv.clone()).iter().try_for_each(check_heads)?;
        Launch::of(self, call, |_| 16, if length > 0 { resident.min(heads) } else { 0 })
    }

    fn visit(&self, LinearCall { heads, length, qkv, o }: &mut LinearCall, visit: &mut dyn Visit) {
        visit.counted("heads", heads);
        visit.counted("length", length);
        HeadTensor::state_all(tensors([*heads, *length], qkv), visit);
        let all = Extents { lines: *heads * *length, ..Extents::line(32, D.into()) };
        visit.output("o", ("O", o), all, Format::F32);
    }
}

impl Family for Linear {
    const NAME: &'static str = "linear-attention";
    type Request<'r> = Sizes<2>;
    type Problem = Sizes<2>;
    type Spec = Numbers;
    type Call = LinearCall;

    fn of_spec(spec: &Numbers) -> Result<Self, String> {
        spec.within([("stages", 2..=8)]).map(|[stages]| Self { stages })
    }

    fn spec(&self) -> Option<Numbers> {
        Some(Numbers::new([("stages", self.stages)]))
    }

    fn call(&Sizes([heads, length]): &Sizes<2>) -> LinearCall {
        LinearCall { heads, length, qkv: [HeadsRef::heads_first(0, [heads, length, D]); 3], o: 0 }
    }

    fn ranked(of: &Sizes<2>, machine: &Machine, most: usize) -> Result<Vec<Predicted<Self>>, String> {
        let Sizes([heads, length]) = *of;
        let rounds = f64::from(heads.div_ceil(machine.multiprocessors) * length.div_ceil(D));
        cheapest([2, 4].map(|stages| Numbers::new([("stages", stages)])), most, |kernel: &Self| {
            rounds * (1.0 + 1.0 / f64::from(kernel.stages))
        })
    }

    fn operations(Sizes([heads, length]): &Sizes<2>) -> f64 {
        8.0 * f64::from(*heads) * f64::from(*length) * f64::from(D * D)
    }

    fn expect(
        &self,
        &Sizes([heads, length]): &Sizes<2>,
        _: &LinearCall,
        inputs: &Inputs<'_>,
    ) -> Result<Vec<Expected>, String> {
        let [d, heads, length] = [D, heads, length].map(|extent| extent as usize);
        let row = |row: usize| {
            let first = row / length * length;
            let [q, k, v] = [("Q", row, 1), ("K", first, row - first + 1), ("V", first, row - first + 1)]
                .map(|(name, row, rows)| inputs.elements(name, row * d, rows * d));
            let mut sums = vec![(0.0, 1e-6); d];
            for (k, v) in k.chunks(d).zip(v.chunks(d)) {
                let score: f64 = q.iter().zip(k).map(|(q, k)| q * k).sum();
                let size: f64 = q.iter().zip(k).map(|(q, k)| (q * k).abs()).sum();
                for ((sum, bound), v) in sums.iter_mut().zip(v) {
                    *sum += score * v;
                    // Scores, or the state, are rounded to `bf16`; sums are in `f32`.
                    *bound += size * v.abs() * (2f64.powi(-8) + length as f64 * 2f64.powi(-22));
                }
            }
            (row * d, sums)
        };
        Ok(vec![Expected::near("O", inputs.rows(heads * length, row))])
    }
}
