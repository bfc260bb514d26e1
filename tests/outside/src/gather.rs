//! A mainloop that gathers: row i of the product is row `indices[i]` of A, times B. Threads copy A's rows by `cp.async`, and
//! one of them starts the tensor copies of B. CUTLASS's example 52.

use std::marker::PhantomData;

use falchion::collective::{Origin, Pass, TensorCopy};
use falchion::prelude::family::*;
use falchion::prelude::*;

use crate::{Kk, products};

/// The mainloop as a type. A's and B's rows begin at multiples of 16 B.
pub struct Gather<T, R>(PhantomData<(T, R)>);
/// Device address of a row number of A, below M, for each row of D.
#[derive(Clone, Debug, Default)]
pub struct Indices(u64);
#[derive(Clone, Copy)]
struct Device<'f> {
    a: Value<'f, u64>,
    ld: Value<'f, u64>,
    indices: Value<'f, u64>,
    m: Value<'f, u32>,
    b: Value<'f, u64>,
    k: Value<'f, u32>,
}

/// The name of the memory.
const INDICES: &str = "the indices";

impl<T: TileShape, R: WarpRoles> Mainloop for Gather<T, R> {
    const NAME: &'static str = "gather";
    const SPEC: MainloopSpec = <CopyWgmma<Kk, T, R> as Mainloop>::SPEC;
    const NEEDS: MainloopNeeds = MainloopNeeds { whole_k: false, producer: 144, ..MainloopNeeds::ALL };
    type Arguments = Indices;
    fn check(_: &Indices, a: Matrix, b: Matrix) -> Result<(), String> {
        let aligned = |of: Matrix| of.address.is_multiple_of(16) && of.ld.is_multiple_of(8);
        if aligned(a) && aligned(b) {
            Ok(())
        } else {
            Err("rows of A and B must begin at multiples of 16 B".into())
        }
    }
    fn state(of: &MainloopSite<'_>, visit: &mut dyn Visit) {
        visit.address("a", of.name(0));
        visit.number("a_ld", of.matrix(0).map(|a| a.ld * 2));
        visit.number("rows", of.matrix(0).map(|a| a.mn));
        of.map(1, ["b_map", "b_step"], visit);
        visit.number("k", of.matrix(0).map(|a| a.k));
    }
    fn visit(own: &mut Indices, &OwnSite { problem: [m, ..], .. }: &OwnSite<'_>, visit: &mut dyn Visit) {
        visit.input("indices", (INDICES, &mut own.0), Extents::line(32, m.into()), Contents::Indices(m));
    }
    fn device<'f>(f: &'f Builder, _: &Plan) -> DeviceMainloop<'f> {
        let device = Device {
            a: f.parameter("a"),
            ld: f.parameter("a_ld"),
            indices: f.parameter("indices"),
            m: f.parameter("rows"),
            b: f.parameter("b_map"),
            k: f.parameter("k"),
        };
        DeviceMainloop::new().with_load(move |pass, _| device.load(pass))
    }
}

/// Elements of a `cp.async` of 16 B.
const CHUNK: u32 = 8;

impl<'f> Device<'f> {
    fn load(&self, pass: Pass<'_, 'f>) {
        let Pass { f, plan, ring, unit } = pass;
        let thread = f.special(Special::ThreadX) % 128;
        let [tile_m, _, tile_k] = plan.mainloop.tile;
        let [a_tile, b_tile] = plan.operands;
        let (chunks, layout, b) = (tile_k / CHUNK, a_tile.layout(), TensorCopy::new(b_tile));
        let (line, element, lines) = (thread / chunks, thread % chunks * CHUNK, 128 / chunks);
        // The thread's rows of A, the same in all k-tiles.
        let row = |pass: u32| {
            let (row, index) = (line + pass * lines, f.variable(0u32));
            let inside = (unit.m + row).less_than(self.m);
            f.if_(inside, || index.set(f.load_global(self.indices + (unit.m + row).mul_wide(4), 0)));
            let source = self.a + index.get().cast::<u64>() * self.ld + element.mul_wide(2);
            // (BLK_M, BLK_K)
            let place = layout.apply_modes(&[row, element]).expect("two modes") * 2 + plan.ring.offset(0);
            (source, place, inside)
        };
        let rows: Vec<_> = (0..tile_m / lines).map(row).collect();
        ring.fill_by_threads([unit.k_begin, unit.k_end], |stage, k_tile| {
            let first = k_tile * tile_k;
            let left = (self.k - first.min(self.k)).max(element) - element;
            for &(source, place, inside) in &rows {
                let size = (left.min(CHUNK) * 2).where_or(inside, 0);
                f.copy_async(2 * CHUNK, stage.address + place, (source + first.mul_wide(2), 0), Some(size));
            }
            f.if_(thread.equals(0), || {
                // Its own arrival comes later, so the phase cannot end before these bytes are announced.
                f.mbarrier_transact(false, stage.full, plan.ring.tile_bytes(1), true);
                b.load(f, stage, Origin::alone(self.b), [unit.n, first]);
            });
        });
    }
}

/// The mainloop in kernels of two tiles, one of which splits K, as a family.
pub struct GatherGemm;

impl GemmFamily for GatherGemm {
    const NAME: &'static str = "gather-gemm";
    type Problem = GemmProblem;
    type Arguments = WithMainloop<Indices, LinearArguments>;
    fn kernels() -> Vec<AnyGemm> {
        type Large = Gather<Tile<U128, U64, U64>, Cooperative<U2, Cluster<U1, U1>, U3>>;
        type Small = Gather<Tile<U64, U64, U64>, Cooperative<U1, Cluster<U1, U1>, U3>>;
        vec![
            AnyGemm::of::<Composed<Large, LinearCombination<f32>, Persistent<AlongM>>>("128x64"),
            AnyGemm::of::<Composed<Small, LinearCombination<f32>, StreamK<AlongM, Ordered, EveryTile<U2>>>>(
                "64x64-stream-k",
            ),
        ]
    }
    fn call(problem: &GemmProblem) -> Call<Self::Arguments> {
        Call::of(*problem).with_mainloop(Indices::default())
    }

    fn row(problem: &GemmProblem, row: usize, inputs: &Inputs<'_>) -> Result<Vec<(f64, f64)>, String> {
        let index = inputs.elements("the indices", row, 1)[0];
        Ok(products(*problem, index as usize, "B", inputs))
    }
}
