//! A gather: row `i` of the product is row `indices[i]` of A, times B. Every thread of the producer keeps the
//! addresses of its rows, so it needs more registers than the library's copies, and says so.

#[path = "../../../tests/assembler/mod.rs"]
mod assembler;

use std::marker::PhantomData;

use collective::operands::{Contents, Extents, Memory, OwnSite, Visit};
use collective::{
    Cooperative, CopyWgmma, DeviceMainloop, DirectStore, Format, KMajor, LinearCombination, Mainloop,
    MainloopNeeds, MainloopSite, MainloopSpec, Matrix, Operands, Pass, Plan, ThreadCopy, ThreadOrigin, Tile,
    TileShape, TmaStore, WarpRoles,
};
use half::bf16;
use kernel::{Composed, Gemm, GemmProblem};
use ptx::{Builder, Special, Value};
use scheduler::{AlongM, Persistent};
use typenum::{U2, U64, U128, U256};

use crate::support::{Elements, compare, on_every_engine, run, sum};

type Both = Operands<KMajor<bf16>, KMajor<bf16>>;

struct Gather<T, R>(PhantomData<(T, R)>);

/// Device address of M row numbers, `i32`.
#[derive(Clone, Copy, Default)]
struct Indices(Option<u64>);

#[derive(Clone, Copy)]
struct Device<'f> {
    a: Value<'f, u64>,
    ld: Value<'f, u64>,
    indices: Value<'f, u64>,
    m: Value<'f, u32>,
    b: ThreadOrigin<'f>,
    k: Value<'f, u32>,
}

impl<T: TileShape, R: WarpRoles> Mainloop for Gather<T, R> {
    const NAME: &'static str = "gather";
    const SPEC: MainloopSpec = <CopyWgmma<Both, T, R> as Mainloop>::SPEC;
    const NEEDS: MainloopNeeds = MainloopNeeds { whole_k: false, producer: 144, ..MainloopNeeds::ALL };
    type Arguments = Indices;

    fn check(own: &Indices, _: Matrix, _: Matrix) -> Result<(), String> {
        own.0.map(|_| ()).ok_or_else(|| "the indices are missing: bind them".to_owned())
    }

    fn state(of: &MainloopSite<'_>, visit: &mut dyn Visit) {
        visit.address("a", of.name(0));
        visit.number("a_pitch", of.matrix(0).map(|a| a.ld * 2));
        visit.number("count", of.matrix(0).map(|a| a.mn));
        of.plan.operands[1].state_threads(B, of.name(1), of.matrix(1), false, visit);
        visit.number("k", of.matrix(0).map(|a| a.k));
    }

    fn visit(own: &mut Indices, &OwnSite { problem: [m, ..], .. }: &OwnSite<'_>, visit: &mut dyn Visit) {
        if let Some(address) = &mut own.0 {
            let (name, contents, extents) =
                ("the indices", Contents::Indices(m), Extents::line(32, m.into()));
            visit.memory(Memory { name, address, extents, contents, writes: false });
        }
        visit.address("indices", "the indices");
    }

    fn device<'f>(f: &'f Builder, _: &Plan) -> DeviceMainloop<'f> {
        let device = Device {
            a: f.parameter("a"),
            ld: f.parameter("a_pitch"),
            indices: f.parameter("indices"),
            m: f.parameter("count"),
            b: ThreadOrigin::of(f, B),
            k: f.parameter("k"),
        };
        DeviceMainloop::new().with_load(move |pass, _| device.load(pass))
    }
}

/// B's parameters.
const B: [&str; 4] = ["b", "b_pitch", "b_rows", "b_width"];

/// Bytes of a `cp.async`, and elements.
const CHUNK: [u32; 2] = [16, 8];

impl<'f> Device<'f> {
    fn load(&self, pass: Pass<'_, 'f>) {
        let Pass { f, plan, ring, unit } = pass;
        let thread = f.special(Special::ThreadX) % 128;
        let [tile_m, _, tile_k] = plan.mainloop.tile;
        let [a_tile, b_tile] = plan.operands;
        let b = ThreadCopy::new(f, b_tile, self.b, self.k, thread);
        let (chunks, layout) = (tile_k / CHUNK[1], a_tile.layout());
        let (line, element, lines) = (thread / chunks, thread % chunks * CHUNK[1], 128 / chunks);
        // The thread's rows of A, the same in all k-tiles.
        let rows: Vec<_> = (0..tile_m / lines)
            .map(|pass| {
                let (row, index) = (line + pass * lines, f.variable(0i32));
                let inside = (unit.m + row).less_than(self.m);
                f.if_(inside, || index.set(f.load_global(self.indices + (unit.m + row).mul_wide(4), 0)));
                let begin = index.get().cast::<u32>().cast::<u64>() * self.ld;
                let place = layout.apply_modes(&[row, element]).expect("two modes") * 2 + plan.ring.offset(0);
                (self.a + begin + element.mul_wide(2), place, inside)
            })
            .collect();
        ring.fill_by_threads([unit.k_begin, unit.k_end], |stage, k_tile| {
            let first = k_tile * tile_k;
            let left = (self.k - first.min(self.k)).max(element) - element;
            for &(source, place, inside) in &rows {
                let size = (left.min(CHUNK[1]) * 2).where_or(inside, 0);
                f.copy_async(CHUNK[0], stage.address + place, (source + first.mul_wide(2), 0), Some(size));
            }
            b.copy(stage, [unit.n, first]);
        });
    }
}

type Kernel<T> =
    Composed<Gather<T, Cooperative<U2>>, LinearCombination<f32, DirectStore>, Persistent<AlongM>>;

#[test]
fn rows_of_a_are_gathered() {
    on_every_engine(&|engine| {
        let (m, n, k) = (140, 72, 88);
        let elements = |rows, seed| Elements::random(Format::Bf16, [rows, k], seed);
        let (a, b) = (elements(m, 1), elements(n, 2));
        let row = |i: u32| i * 37 % m;
        let indices: Vec<u8> = (0..m).flat_map(|i| row(i).to_le_bytes()).collect();
        let own = Indices(Some(engine.upload(&indices).expect("memory").address));
        let operands = [a.upload(engine), b.upload(engine)];
        let got = run::<Kernel<Tile<U128, U64, U64>>>(engine, GemmProblem { m, n, k }, operands, &own);
        compare("gather", [m, n], &got, |i, j| {
            let [want, all] = sum(k, |k| a.at(row(i), k) * b.at(j, k));
            [want, all * f64::from(k) * f64::from(f32::EPSILON) + 1e-6]
        });
    });
}

/// With the 104 registers of the library's copies it spills 60 B.
#[test]
#[ignore = "needs ptxas: run `cargo xtask test`"]
fn a_producer_gets_the_registers_that_it_needs() {
    type Large = Composed<
        Gather<Tile<U128, U256, U64>, Cooperative<U2>>,
        LinearCombination<bf16, TmaStore>,
        Persistent<AlongM>,
    >;
    let program = Gemm::<Large>::program().unwrap_or_else(|error| panic!("{error}"));
    let report = assembler::assemble(program.name(), program.text());
    let clean = "0 bytes stack frame, 0 bytes spill stores, 0 bytes spill loads";
    assert!(report.accepted && report.log.contains(clean), "{}", report.log);
}
