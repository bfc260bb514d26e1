//! A warp-specialised GEMM, and helpers that its tests share.

use half::bf16;
use ptx::abi::{Argument, Grid, Promotion, TensorElement, TensorMap, TensorSwizzle};
use ptx::inst::ProxySpace;
use ptx::{
    Builder, Entry, Function, Special, Target, TensorLoad, Value, Verified, WgmmaOperands, WgmmaTypes,
};

/// The shape of a CTA's tile, and the number of stages of its pipeline.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Tile {
    pub(crate) n: u32,
    pub(crate) stages: u32,
    pub(crate) cluster: u32,
}

pub(crate) const M: u32 = 128;
pub(crate) const K: u32 = 64;

/// The defect in the kernel. The emulator must find each one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Defect {
    None,
    /// The producer announces 128 bytes too many.
    TooManyBytes,
    /// Consumers do not wait for the stage to be full.
    NoFullWait,
    /// The producer does not wait for the stage to be empty.
    NoEmptyWait,
    /// Consumers release a stage before their multiply has read it.
    EarlyRelease,
    /// The epilogue stores without a proxy fence.
    NoProxyFence,
    /// The accumulators are read while the last multiplies are in flight.
    NoFinalWait,
    /// There is no `wgmma.fence` for the accumulators before the first multiply.
    NoWgmmaFence,
    /// The tensor store is not waited for.
    NoStoreWait,
}

pub(crate) fn descriptor<'f>(address: Value<'f, u32>) -> Value<'f, u64> {
    let start = ((address & 0x3_FFFF) >> 4).cast::<u64>();
    start | (0x4000_0040_0001_0000u64)
}

/// `D (M, N) = A (M, K) * B (N, K)`, all bf16 and K-major, by two consumer warpgroups of 64 rows each.
///
/// With a cluster of 2 along M the CTAs share B: each loads half and multicasts it.
pub(crate) fn gemm(tile: Tile, defect: Defect) -> Verified {
    let Tile { n, stages, cluster } = tile;
    let (a_bytes, b_bytes) = (M * K * 2, n * K * 2);
    let stage_bytes = a_bytes + b_bytes;
    let out = stages * stage_bytes;
    let barriers = out + M * n * 2;
    let entry = Entry {
        name: "gemm".into(),
        target: Target::Sm90a,
        threads: 384,
        shared_bytes: barriers + stages * 16,
        cluster: [cluster, 1, 1],
    };
    Function::build(entry, |f: &Builder| {
        let (map_a, map_b) = (f.tensor_map("a"), f.tensor_map("b"));
        let map_d = f.tensor_map("d");
        let k_tiles = f.param::<u32>("k_tiles");
        let base = f.shared_base();
        let warp = f.warp_index();
        let thread = f.special(Special::ThreadX);
        let rank = f.special(Special::ClusterRank);
        let (tile_m, tile_n) = (f.special(Special::CtaX), f.special(Special::CtaY));
        f.if_(thread.equals(0), || {
            for stage in 0..stages {
                f.mbarrier_init(base + (barriers + stage * 8), 1);
                f.mbarrier_init(base + (barriers + (stages + stage) * 8), 2 * cluster);
            }
            f.fence_mbarrier_init();
        });
        f.barrier_sync(0, 384);
        if cluster > 1 {
            f.cluster_arrive(false);
            f.cluster_wait();
        }
        f.if_else(
            warp.less_than(4),
            || {
                f.scope("producer", || {
                    f.set_max_registers(false, 40);
                    f.if_(warp.equals(0), || {
                        f.if_(f.elect(), || {
                            let (stage, phase) = (f.variable(0u32), f.variable(1u32));
                            f.repeat(k_tiles, |k_tile| {
                                f.scope("load", || {
                                    let bar = base + barriers + stage.get() * 8;
                                    if defect != Defect::NoEmptyWait {
                                        f.mbarrier_wait(bar + stages * 8, phase.get());
                                    }
                                    let extra = if defect == Defect::TooManyBytes { 128 } else { 0 };
                                    f.mbarrier_arrive_expect(bar, stage_bytes + extra);
                                    let at = base + stage.get() * stage_bytes;
                                    let k = (k_tile * K).cast::<i32>();
                                    let load = TensorLoad {
                                        map: map_a,
                                        dst: at,
                                        barrier: bar,
                                        multicast: None,
                                        hint: None,
                                    };
                                    f.tensor_load(load, [k, (tile_m * M).cast::<i32>()]);
                                    let part = n / cluster;
                                    let multicast = (cluster > 1).then(|| f.constant(3u16));
                                    let dst = at + a_bytes + rank * (part * K * 2);
                                    let load =
                                        TensorLoad { map: map_b, dst, barrier: bar, multicast, hint: None };
                                    f.tensor_load(load, [k, (tile_n * n + rank * part).cast::<i32>()]);
                                });
                                advance(f, stages, stage, phase);
                            });
                        });
                    });
                });
            },
            || {
                f.scope("consumer", || {
                    f.set_max_registers(true, 232);
                    consume(
                        f,
                        tile,
                        defect,
                        Places { base, barriers, out, k_tiles, thread, warp, map_d, tile_m, tile_n },
                    );
                });
            },
        );
        if cluster > 1 {
            f.cluster_arrive(false);
            f.cluster_wait();
        }
    })
    .verify()
    .unwrap()
}

fn advance<'f>(f: &'f Builder, stages: u32, stage: ptx::Var<'f, u32>, phase: ptx::Var<'f, u32>) {
    let next = stage.get() + 1;
    let wraps = next.equals(stages);
    phase.set((phase.get() ^ 1).where_or(wraps, phase.get()));
    stage.set(f.constant(0u32).where_or(wraps, next));
}

#[derive(Clone, Copy)]
struct Places<'f> {
    base: Value<'f, u32>,
    barriers: u32,
    out: u32,
    k_tiles: Value<'f, u32>,
    thread: Value<'f, u32>,
    warp: Value<'f, u32>,
    map_d: Value<'f, u64>,
    tile_m: Value<'f, u32>,
    tile_n: Value<'f, u32>,
}

fn consume<'f>(f: &'f Builder, tile: Tile, defect: Defect, at: Places<'f>) {
    let Tile { n, stages, cluster } = tile;
    let a_bytes = M * K * 2;
    let stage_bytes = a_bytes + n * K * 2;
    let group = at.warp / 4 - 1;
    let in_group = at.thread & 127;
    let accumulators: Vec<ptx::Var<'_, f32>> = (0..n / 2).map(|_| f.variable(0.0f32)).collect();
    let (stage, phase) = (f.variable(0u32), f.variable(0u32));
    f.repeat(at.k_tiles, |_| {
        let bar = at.base + at.barriers + stage.get() * 8;
        if defect != Defect::NoFullWait {
            f.scope("wait", || f.mbarrier_wait(bar, phase.get()));
        }
        let a = at.base + stage.get() * stage_bytes + group * (64 * K * 2);
        let b = at.base + stage.get() * stage_bytes + a_bytes;
        if defect != Defect::NoWgmmaFence {
            f.wgmma_fence();
        }
        for step in 0..4 {
            let (a, b) = (descriptor(a + step * 32), descriptor(b + step * 32));
            f.wgmma(WgmmaOperands::new(WgmmaTypes::Bf16F32, n, a, b), &accumulators);
        }
        f.wgmma_commit();
        let release = || {
            f.if_(in_group.less_than(cluster), || {
                if cluster > 1 {
                    let remote = f.map_shared(bar + stages * 8, in_group);
                    f.mbarrier_arrive_cluster(remote);
                } else {
                    f.mbarrier_arrive(bar + stages * 8);
                }
            });
        };
        if defect == Defect::EarlyRelease {
            release();
        }
        if defect != Defect::NoFinalWait {
            f.wgmma_wait(0);
        }
        if defect != Defect::EarlyRelease {
            release();
        }
        advance(f, stages, stage, phase);
    });
    // Rows of 64 columns with a 128-byte swizzle, one box per 64 columns.
    let lane = at.thread & 31;
    let row = (in_group / 32) * 16 + (lane & 15);
    let tile_out = at.base + at.out + group * (64 * n * 2);
    for j in 0..n / 16 {
        let values: [Value<'_, u32>; 4] = core::array::from_fn(|r| {
            let v = (8 * j) as usize + 2 * r;
            f.pack::<bf16>(accumulators[v].get(), accumulators[v + 1].get())
        });
        let chunk = (lane / 16) + (2 * j) % 8;
        let offset = row * 128 + ((chunk ^ (row & 7)) << 4) + (j / 4) * (64 * 128);
        f.store_matrix(tile_out + offset, values, false);
    }
    if defect != Defect::NoProxyFence {
        f.fence_proxy_async(ProxySpace::Shared);
    }
    f.barrier_sync(group + 1, 128);
    f.if_(in_group.equals(0), || {
        f.scope("store", || {
            for column in 0..n / 64 {
                let coords =
                    [(at.tile_n * n + column * 64).cast::<i32>(), (at.tile_m * M + group * 64).cast::<i32>()];
                f.tensor_store(at.map_d, tile_out + column * (64 * 128), coords);
            }
            f.bulk_commit();
            if defect != Defect::NoStoreWait {
                f.bulk_wait(0, true);
            }
        });
    });
}

/// Deterministic values with few bits, so that sums are exact.
pub(crate) fn values(count: usize, seed: u32) -> Vec<bf16> {
    let mut state = seed.wrapping_mul(2_654_435_761).wrapping_add(1);
    (0..count)
        .map(|_| {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            bf16::from_f32(((state >> 28) as f32 - 7.5) / 4.0)
        })
        .collect()
}

pub(crate) fn bytes(values: &[bf16]) -> Vec<u8> {
    values.iter().flat_map(|value| value.to_le_bytes()).collect()
}

/// A row-major matrix of bf16 in boxes of 64 columns.
pub(crate) fn matrix(address: u64, rows: u32, columns: u32, box_rows: u32) -> TensorMap {
    TensorMap {
        element: TensorElement::Bf16,
        address,
        dims: vec![columns.into(), rows.into()],
        strides: vec![u64::from(columns) * 2],
        box_dims: vec![64, box_rows],
        swizzle: TensorSwizzle::B128,
        promotion: Promotion::default(),
        reach: None,
    }
}

/// A problem in memory.
pub(crate) struct Problem {
    pub(crate) memory: emulator::Memory,
    pub(crate) grid: Grid,
    pub(crate) arguments: Vec<Argument>,
    pub(crate) a: Vec<bf16>,
    pub(crate) b: Vec<bf16>,
    pub(crate) d: u64,
    pub(crate) shape: [u32; 3],
}

impl Problem {
    pub(crate) fn new(tile: Tile, [m, n, k]: [u32; 3]) -> Self {
        let mut memory = emulator::Memory::new();
        let (a, b) = (values((m * k) as usize, 1), values((n * k) as usize, 2));
        let (at_a, at_b) = (memory.upload(&bytes(&a)), memory.upload(&bytes(&b)));
        let d = memory.allocate((m * n * 2) as usize);
        let arguments = vec![
            matrix(at_a, m, k, M).into(),
            matrix(at_b, n, k, tile.n / tile.cluster).into(),
            matrix(d, m, n, 64).into(),
            k.div_ceil(K).into(),
        ];
        let grid = Grid { ctas: [m.div_ceil(M).next_multiple_of(tile.cluster), n.div_ceil(tile.n), 1] };
        Self { memory, grid, arguments, a, b, d, shape: [m, n, k] }
    }

    /// Compares the output with sums in f64.
    pub(crate) fn check(&self) {
        let [m, n, k] = self.shape.map(|extent| extent as usize);
        let bytes = self.memory.read(self.d, m * n * 2).unwrap();
        assert!(self.memory.written(self.d, m * n * 2), "the whole output is written");
        let f = |values: &[bf16]| -> Vec<f32> { values.iter().map(|value| value.to_f32()).collect() };
        let (a, b) = (f(&self.a), f(&self.b));
        for row in 0..m {
            for column in 0..n {
                let (x, y) = (&a[row * k..(row + 1) * k], &b[column * k..(column + 1) * k]);
                // Quarters of small integers: f32 sums are exact.
                let sum: f32 = x.iter().zip(y).map(|(x, y)| x * y).sum();
                let at = (row * n + column) * 2;
                let got = bf16::from_le_bytes([bytes[at], bytes[at + 1]]);
                assert_eq!(got, bf16::from_f32(sum), "({row}, {column})");
            }
        }
    }
}
