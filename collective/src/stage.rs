//! The tiles of a stage on the device: each finds its kernel parameters and loads itself.

mod im2col;

use ptx::{Builder, TensorLoad, Value};

pub use im2col::{Axis, Im2col, Im2colTile, Images};

use crate::mainloop::{Origin, OwnMaps, TensorCopy, WorkUnit, tensor_load};
use crate::pipeline::{ClusterPosition, Stage};
use crate::plan::{CachePolicy, Plan};

/// What one thread of a CTA loads: a work unit.
#[derive(Clone, Copy, Debug)]
pub struct Loading<'f> {
    /// The program that is built.
    pub f: &'f Builder,
    /// The CTA's place in its cluster.
    pub cluster: ClusterPosition<'f>,
    /// The work unit.
    pub unit: WorkUnit<'f>,
    /// Whether the executing thread is the one that loads; `None` if no other thread executes this.
    pub loads: Option<Value<'f, bool>>,
}

/// Starts the copies of a k-tile, by its number, into a stage.
pub type LoadTile<'a, 'f> = Box<dyn Fn(Stage<'f>, Value<'f, u32>) + 'a>;

/// A tile of a stage that loads itself, or several tiles that share coordinates. One thread starts its tensor copies, whose bytes arrive
/// on the stage's full barrier.
///
/// The library's are [`OperandTiles`], [`BoxTile`] and [`Im2colTile`]. With
/// [`DeviceMainloop::of_tiles`](crate::DeviceMainloop::of_tiles) a tile of your own is a mainloop of your own.
pub trait StageTile<'f> {
    /// Emitted for one thread at the start: prefetches the tensor maps.
    fn prefetch(&self, f: &'f Builder);

    /// As [`DeviceMainloop::with_prepare`](crate::DeviceMainloop::with_prepare).
    fn prepare(&self, _f: &'f Builder) {}

    /// Emitted once per work unit. Returns the number of bytes per stage, and what is emitted per k-tile.
    fn load<'a>(&'a self, of: Loading<'f>) -> (Value<'f, u32>, LoadTile<'a, 'f>);

    /// Emitted for a work unit and the number of a k-tile: prefetches to L2 what L2 should evict first
    /// ([`EvictFirst`](crate::EvictFirst)). The kernels before may still write it, so that nothing may be read. By default nothing is prefetched.
    fn ahead(&self, _of: Loading<'f>, _k_tile: Value<'f, u32>) {}
}

/// One of the tiles of a stage.
pub type AnyTile<'f> = Box<dyn StageTile<'f> + 'f>;

/// Emitted once per work unit: the bytes per stage of some tiles, and what is emitted per k-tile.
pub(crate) fn load<'a, 'f>(tiles: &'a [AnyTile<'f>], of: Loading<'f>) -> (Value<'f, u32>, LoadTile<'a, 'f>) {
    let (bytes, loads): (Vec<_>, Vec<_>) = tiles.iter().map(|tile| tile.load(of)).unzip();
    let bytes = bytes.into_iter().fold(of.f.constant(0), |sum, bytes| sum + bytes);
    (bytes, Box::new(move |stage, k_tile| loads.iter().for_each(|load| load(stage, k_tile))))
}

/// The parameters of a tensor map on the device, for one matrix or for a batch.
///
/// ```
/// use collective::operands::Visit;
/// use collective::stage::OperandMap;
/// use collective::{MainloopSite, Plan};
/// use ptx::Builder;
///
/// /// States the maps of A and of B, in any form of kernel in which the host knows the matrices.
/// fn state(of: &MainloopSite<'_>, visit: &mut dyn Visit) {
///     (0..2).for_each(|i| of.map(i, OperandMap::NAMES[i], visit));
/// }
///
/// /// Finds them.
/// fn device<'f>(f: &'f Builder, plan: &Plan) -> [OperandMap<'f>; 2] {
///     let batched = plan.operand_batches();
///     [0, 1].map(|i| OperandMap::of(f, OperandMap::NAMES[i], batched[i]))
/// }
/// ```
#[derive(Clone, Copy, Debug)]
pub struct OperandMap<'f> {
    /// Generic address of the map.
    pub address: Value<'f, u64>,
    /// Distance between the coordinates of consecutive GEMMs in the map, 1 or 0; `None` if it has no batch.
    step: Option<Value<'f, u32>>,
}

impl OperandMap<'_> {
    /// The names of the parameters of A's map and of B's in kernels of the library.
    pub const NAMES: [[&'static str; 2]; 2] = [["a_map", "a_step"], ["b_map", "b_step"]];
}

impl<'f> OperandMap<'f> {
    /// Finds the parameters `map` and, for a batch, `step`, which [`OperandTile::state`](crate::OperandTile::state) states.
    pub fn of(f: &'f Builder, [map, step]: [&'static str; 2], batched: bool) -> Self {
        Self { address: f.parameter(map), step: batched.then(|| f.parameter(step)) }
    }

    /// The matrix of a work unit's GEMM, for this CTA only.
    #[track_caller]
    pub fn origin(&self, unit: WorkUnit<'f>) -> Origin<'f> {
        let f = self.address.builder();
        f.for_caller(|| Origin { matrix: self.coordinate(unit), ..Origin::alone(self.address) })
    }

    /// The coordinate of a work unit's GEMM; `None` if the map has no batch.
    fn coordinate(&self, unit: WorkUnit<'f>) -> Option<Value<'f, u32>> {
        self.step.zip(unit.group).map(|(step, group)| group * step)
    }

    /// Starts the copy of one box of a work unit's GEMM. `first` is where it begins, innermost coordinate first.
    #[track_caller]
    pub fn copy(&self, f: &'f Builder, load: TensorLoad<'f>, first: Vec<Value<'f, u32>>, unit: WorkUnit<'f>) {
        f.for_caller(|| tensor_load(f, load, first.into_iter().chain(self.coordinate(unit))));
    }
}

/// The tiles of A and B, or of one of them, as the library's own mainloop loads them: in slices of a cluster, as wide as a work unit, from
/// the matrices of its GEMM. They have the same extent along K.
#[derive(Debug)]
pub struct OperandTiles<'f> {
    plan: Plan,
    /// By operand: its number and its map.
    maps: Vec<(usize, OperandMap<'f>)>,
    /// The maps that replace them in a grouped launch, where device memory describes the matrices.
    own: Option<OwnMaps<'f>>,
}

impl<'f> OperandTiles<'f> {
    /// The tiles of these operands of a plan, A (0) and B (1), whose maps are stated under [the library's names](OperandMap::NAMES), as
    /// [`Mainloop::state`](crate::Mainloop::state) does.
    pub fn of(f: &'f Builder, plan: &Plan, operands: &[usize]) -> AnyTile<'f> {
        let find = |&i: &usize| (i, OperandMap::of(f, OperandMap::NAMES[i], plan.operand_batches()[i]));
        let maps = operands.iter().map(find).collect();
        Box::new(Self { plan: *plan, maps, own: plan.form.described().then(|| OwnMaps::of(f, plan)) })
    }

    fn addresses(&self) -> Vec<Value<'f, u64>> {
        self.maps.iter().map(|(_, map)| map.address).collect()
    }

    fn bytes(&self, Loading { f, unit, .. }: Loading<'f>) -> Value<'f, u32> {
        let of_tile = |i| self.plan.ring.tile_bytes(i);
        match unit.columns {
            None => f.constant(self.maps.iter().map(|&(i, _)| of_tile(i)).sum()),
            Some(columns) => {
                let [part, parts] = self.plan.mainloop.parts();
                columns.div_ceil(part) * (of_tile(1) / parts) + of_tile(0)
            }
        }
    }
}

impl<'f> StageTile<'f> for OperandTiles<'f> {
    fn prefetch(&self, f: &'f Builder) {
        if self.own.is_none() {
            self.addresses().into_iter().for_each(|map| f.prefetch_tensor_map(map));
        }
    }

    fn prepare(&self, f: &'f Builder) {
        if let Some(own) = self.own {
            own.prepare(f, &self.plan, self.addresses());
        }
    }

    fn load<'a>(&'a self, of: Loading<'f>) -> (Value<'f, u32>, LoadTile<'a, 'f>) {
        let (plan, Loading { f, cluster, unit, loads }) = (&self.plan, of);
        let bytes = self.bytes(of);
        let own = self.own.map(|own| own.of_unit(f, plan, unit, loads).to_vec());
        let sources = self.maps.iter().zip(own.unwrap_or_else(|| self.addresses()));
        let sources: Vec<_> =
            sources.map(|(&(i, map), address)| (i, address, map.coordinate(unit))).collect();
        let load = move |stage: Stage<'f>, k_tile: Value<'f, u32>| {
            let k = k_tile * plan.operands[sources[0].0].k;
            let [m, n] = [unit.m, if plan.epilogue.split { unit.n >> 1 } else { unit.n }];
            let origins = sources.iter().map(|&(i, map, matrix)| {
                let (mn, slice, receivers) = match i {
                    0 => (m, cluster.n, cluster.row_mask()),
                    _ => (n, cluster.m, cluster.column_mask()),
                };
                (i, mn, Origin { matrix, slice, receivers, ..Origin::alone(map) })
            });
            for (i, mn, origin) in origins.collect::<Vec<_>>() {
                let copy = TensorCopy::new(plan.operands[i]);
                match unit.columns.filter(|_| i == 1) {
                    None => copy.load(f, stage, origin, [mn, k]),
                    Some(columns) => {
                        copy.load_columns(f, stage, origin, [mn, k], (columns, plan.mainloop.cluster[0]));
                    }
                }
            }
        };
        (bytes, Box::new(load))
    }

    fn ahead(&self, Loading { f, cluster, unit, .. }: Loading<'f>, k_tile: Value<'f, u32>) {
        for &(i, map) in &self.maps {
            let tile = self.plan.operands[i];
            if self.own.is_none() && tile.cache == CachePolicy::EvictFirst {
                let slice = if i == 0 { cluster.n } else { cluster.m };
                let n = if self.plan.epilogue.split { unit.n >> 1 } else { unit.n };
                let first = [[unit.m, n][i], k_tile * tile.k];
                TensorCopy::new(tile).prefetch(f, Origin { slice, ..map.origin(unit) }, first);
            }
        }
    }
}

/// A tile that one box fills, for this CTA alone: scales, zero points, metadata.
pub struct BoxTile<'f> {
    map: OperandMap<'f>,
    /// Its offset in the stage, and its bytes.
    at: [u32; 2],
    place: Place<'f>,
}

/// Where the box of a k-tile of a work unit begins, innermost coordinate first.
type Place<'f> = Box<dyn Fn(WorkUnit<'f>, Value<'f, u32>) -> Vec<Value<'f, u32>> + 'f>;

impl core::fmt::Debug for BoxTile<'_> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("BoxTile").field("map", &self.map).field("at", &self.at).finish_non_exhaustive()
    }
}

impl<'f> BoxTile<'f> {
    /// A tile at this offset of a stage with this number of bytes ([`RingPlan::place`](crate::RingPlan::place)), of the box that begins where `place` says for a
    /// work unit and the number of a k-tile. A batch has one more coordinate, which is added.
    pub fn of(
        map: OperandMap<'f>,
        at: [u32; 2],
        place: impl Fn(WorkUnit<'f>, Value<'f, u32>) -> Vec<Value<'f, u32>> + 'f,
    ) -> AnyTile<'f> {
        Box::new(Self { map, at, place: Box::new(place) })
    }
}

impl<'f> StageTile<'f> for BoxTile<'f> {
    fn prefetch(&self, f: &'f Builder) {
        f.prefetch_tensor_map(self.map.address);
    }

    fn load<'a>(&'a self, Loading { f, unit, .. }: Loading<'f>) -> (Value<'f, u32>, LoadTile<'a, 'f>) {
        let [offset, bytes] = self.at;
        let load = move |stage: Stage<'f>, k_tile| {
            let (map, dst) = (self.map.address, stage.address + offset);
            let load = TensorLoad { map, dst, barrier: stage.full, multicast: None, hint: None };
            self.map.copy(f, load, (self.place)(unit, k_tile), unit);
        };
        (f.constant(bytes), Box::new(load))
    }
}
