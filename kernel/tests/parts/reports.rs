//! Reports of the emulator name the line of the mainloop that called a part of the library, not a line of the
//! library, and they name stages and barriers.

use collective::pipeline::Stage;
use collective::{
    Cluster, Consumer, Cooperative, DeviceMainloop, DirectStore, EachWarp, Finish, Format, InFlight, KMajor,
    LinearCombination, Mainloop, MainloopSpec, Operands, Origin, Pass, Plan, Real, TensorCopy, Tile,
    TmaWgmma, WarpgroupMma,
};
use half::bf16;
use kernel::{Call, Composed, Emulator, Engine, Gemm, GemmProblem};
use ptx::{Builder, Value};
use scheduler::{AlongM, Persistent};
use typenum::{U1, U2, U64};

use crate::support::Elements;

type Ours = TmaWgmma<
    Operands<KMajor<bf16>, KMajor<bf16>>,
    Tile<U64, U64, U64>,
    Cooperative<U1, Cluster<U1, U1>, EachWarp<U2>>,
>;

/// Too many bytes are announced, so no stage becomes full.
const BYTES: u8 = 1;
/// Tiles are loaded twice into a stage.
const TWICE: u8 = 2;
/// The second operand is read where no tile is.
const ELSEWHERE: u8 = 3;
/// Accumulators are rounded, or used, while they are multiplied.
const ROUNDED: u8 = 4;
const USED: u8 = 5;
/// Threads write to a stage that is multiplied, without a fence.
const UNFENCED: u8 = 6;
/// The mainloop's own memory is 4 bytes too small.
const SMALL: u8 = 8;
/// Consumers do not release stages, so the producer waits.
const KEPT: u8 = 7;

struct Broken<const DEFECT: u8>;

impl<const DEFECT: u8> Mainloop for Broken<DEFECT> {
    const NAME: &'static str = "broken";
    const SPEC: MainloopSpec = {
        let mut spec = <Ours as Mainloop>::SPEC;
        spec.own_bytes = if DEFECT == SMALL { 508 } else { 512 };
        spec
    };
    type Arguments = ();

    fn device<'f>(f: &'f Builder, _: &Plan) -> DeviceMainloop<'f> {
        let maps = ["a_map", "b_map"].map(|name| f.parameter(name));
        DeviceMainloop::new().with_load(move |pass, _| Self::load(maps, pass)).with_multiply(Self::multiply)
    }
}

impl<const DEFECT: u8> Broken<DEFECT> {
    fn load<'f>(maps: [Value<'f, u64>; 2], Pass { f, plan, ring, unit }: Pass<'_, 'f>) {
        let copies = plan.operands.map(TensorCopy::new);
        let times = if DEFECT == TWICE { 2 } else { 1 };
        let more = if DEFECT == BYTES { 16 } else { 0 };
        let bytes = f.constant(plan.ring.transaction_bytes() * times + more);
        f.repeat_from(unit.k_begin, unit.k_end, |k_tile| {
            let load = |stage| {
                let tiles = || copies.iter().zip(maps).zip([unit.m, unit.n]);
                for ((copy, map), mn) in (0..times).flat_map(|_| tiles()) {
                    copy.load(f, stage, Origin::alone(map), [mn, k_tile * 64]); // line: load
                }
            };
            ring.produce(bytes, load); // line: produce
        });
    }

    fn multiply<'f>(pass: Pass<'_, 'f>, consumer: Consumer<'f>, finish: Finish<'_, 'f>) {
        let Pass { f, plan, ring, unit } = pass;
        let [_, b] = plan.operands;
        let b = if DEFECT == ELSEWHERE { b.at(plan.ring.stage_bytes) } else { b };
        let product = WarpgroupMma::<f32>::new(f, plan.product().by(b), consumer.part);
        let sums: Vec<_> = product.accumulators().iter().flatten().collect();
        if DEFECT == KEPT {
            product.clear();
            f.repeat_from(unit.k_begin, unit.k_end, |_| {
                product.multiply(ring.acquire(), true);
                f.wgmma_wait(0);
            });
            return finish(plan, product.sums(consumer, unit.first()));
        }
        let multiply = |stage: Stage<'f>, accumulate| {
            if DEFECT == UNFENCED {
                f.store_shared(stage.address + consumer.thread * 4, 0, [consumer.thread]); // line: store
                f.barrier_sync(1, 128);
            }
            let found = product.find(stage);
            f.wgmma_fence();
            found.issue(accumulate); // line: issue
            f.wgmma_commit();
            if DEFECT == ROUNDED {
                Format::Bf16.pack(f, [sums[0].get(), sums[1].get()]); // line: pack
            }
            if DEFECT == USED {
                sums[0].get().sigmoid(); // line: sigmoid
            }
        };
        let rest = |multiplied: bool| {
            if !multiplied {
                product.clear();
            }
        };
        consumer.each_stage(pass, InFlight::None, &multiply, &rest); // line: each stage
        f.store_shared(consumer.shared + plan.own_offset + consumer.thread * 4, 0, [consumer.thread]); // line: own
        finish(plan, product.sums(consumer, unit.first()));
    }
}

/// The emulator's report of a kernel with a defect.
fn report<const DEFECT: u8>() -> String {
    type Kernel<const DEFECT: u8> =
        Composed<Broken<DEFECT>, LinearCombination<f32, DirectStore>, Persistent<AlongM>>;
    let (problem, mut engine) = (GemmProblem { m: 64, n: 64, k: 512 }, Emulator::new());
    let [a, b] = [1, 2].map(|seed| Elements::random(Format::Bf16, [64, 512], seed).upload(&mut engine));
    let d = engine.allocate(64 * 64 * 4).expect("memory");
    let program = Gemm::<Kernel<DEFECT>>::program().unwrap_or_else(|error| panic!("{error}"));
    let call = Call::of(problem).a(a.address, a.ld).b(b.address, b.ld).d(d.address, 64);
    let launch = Gemm::<Kernel<DEFECT>>::launch(&call, 1).expect("legal").expect("not empty");
    let launched = engine.launch(&program, launch.grid, &launch.arguments);
    launched.map_or_else(|error| error.to_string(), |_| String::new())
}

/// The place in this file that the comment `// line: ...` marks.
fn place(mark: &str) -> String {
    let here =
        include_str!("reports.rs").lines().position(|line| line.ends_with(&format!("// line: {mark}")));
    format!("parts/reports.rs:{}", here.expect("a marked line") + 1)
}

#[test]
fn reports_name_the_callers_lines_and_the_stages() {
    assert_eq!(report::<0>(), "", "without a defect nothing is reported");
    let cases = [
        ("a wait of each_stage", report::<BYTES>(), "each stage", "the full barrier of stage 0 of the ring"),
        ("a wait of produce", report::<KEPT>(), "produce", "the empty barrier of stage 0 of the ring"),
        ("copies over each other", report::<TWICE>(), "load", "belongs to: A's tile in stage 0"),
        ("operands elsewhere", report::<ELSEWHERE>(), "issue", "belongs to: "),
        ("rounding sums in flight", report::<ROUNDED>(), "pack", "register"),
        ("a function of sums in flight", report::<USED>(), "sigmoid", "register"),
        ("a multiply of bytes that are not fenced", report::<UNFENCED>(), "issue", "A's tile in stage 0"),
        (
            "a byte beyond the mainloop's own memory",
            report::<SMALL>(),
            "own",
            "are outside the shared memory",
        ),
        ("the store that is not fenced", report::<UNFENCED>(), "store", "it was stored by"),
    ];
    let wrong: Vec<String> = cases
        .into_iter()
        .filter(|(_, report, mark, also)| {
            let names = report.contains(&place(mark)) && report.contains(also);
            !names || report.contains("collective/src")
        })
        .map(|(why, report, mark, also)| {
            format!("{why}: {} and `{also}`, no line of the library, in\n{report}", place(mark))
        })
        .collect();
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}
