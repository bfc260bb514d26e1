//! 8-bit floats with block scales, one per 128 elements along K: each pair of granularities, in every form
//! that supports them.

use collective::{
    AsManyAsFit, BlockScaled, BlockScales, Cluster, Cooperative, DirectStore, EachWarp, F8E4M3, F8E5M2,
    Format, KMajor, LinearArguments, LinearCombination, MatrixRef, Operands, Tile, TmaWgmma,
};
use emulator::Numerics;
use kernel::{
    AnyGemm, Call, Composed, Emulator, Engine, GemmProblem, GroupedProblem, KernelSpec, LaunchError,
};
use scheduler::{AlongM, Grouped, Persistent};
use typenum::{U1, U2, U8, U64, U128};

use crate::support::{Elements, compare, on_every_engine, sum};

/// An operand of all GEMMs of a launch, as a kernel reads it, and the number of rows that share a scale.
struct Operand {
    elements: Elements,
    scales: Elements,
    rows: u32,
    /// Rows of one GEMM's matrix, and rows of its scales.
    each: [u32; 2],
}

impl Operand {
    fn new(format: Format, [mn, k]: [u32; 2], rows: u32, count: u32, seed: u32) -> Self {
        let [outer, inner] = BlockScales::extents(mn, k, rows);
        let inner = inner.next_multiple_of(4);
        Self {
            elements: Elements::random(format, [mn * count, k.next_multiple_of(16)], seed),
            scales: Elements::random(Format::F32, [outer * count, inner], seed + 2),
            rows,
            each: [mn, outer],
        }
    }

    fn upload(&self, engine: &mut dyn Engine) -> [MatrixRef; 2] {
        let of = |engine: &mut dyn Engine, elements: &Elements, rows: u32| {
            let matrix = elements.upload(engine);
            matrix.every(u64::from(rows) * matrix.ld)
        };
        [of(engine, &self.elements, self.each[0]), of(engine, &self.scales, self.each[1])]
    }

    /// An element of a GEMM's matrix, times its scale.
    fn at(&self, product: u32, row: u32, k: u32) -> f64 {
        let block = k / 128;
        let [outer, inner] = if self.rows == 1 { [block, row] } else { [row / self.rows, block] };
        let scale = self.scales.at(product * self.each[1] + outer, inner);
        scale * self.elements.at(product * self.each[0] + row, k)
    }
}

/// Rows of D that are compared: from, to, and their GEMM.
type Rows = Vec<(u32, u32, u32)>;

fn check(engine: &mut dyn Engine, text: &str, problem: GemmProblem, products: (GroupedProblem, &[u32])) {
    let gemm = text.parse::<KernelSpec>().expect(text).kernel().expect("legal");
    let GemmProblem { m, n, k } = problem;
    let ([of_a, of_b, _], plan) = (gemm.formats(), gemm.plan());
    let scaled = plan.call_operands().map(|operand| operand.scaled);
    let (kind, offsets) = products;
    let (count, several) = (kind.count(), matches!(kind, GroupedProblem::Batched { .. }));
    let along_k = matches!(kind, GroupedProblem::KGrouped { .. });
    let of_a = Operand::new(of_a, [m, k], scaled[0], if several { count } else { 1 }, 1);
    let of_b = Operand::new(of_b, [n, k], scaled[1], if along_k { 1 } else { count }, 2);
    let ([a, a_scales], [b, b_scales]) = (of_a.upload(engine), of_b.upload(engine));
    let all = if several || along_k { m * count } else { m };
    let nothing = f32::NAN.to_le_bytes().repeat((all * n) as usize);
    let d = engine.upload(&nothing).expect("memory");
    let table: Vec<u8> = offsets.iter().flat_map(|row| row.to_le_bytes()).collect();
    let kind = match kind {
        GroupedProblem::GroupedContiguous { count, .. } => GroupedProblem::GroupedContiguous {
            count,
            offsets: engine.upload(&table).expect("memory").address,
        },
        GroupedProblem::GroupedMasked { count, room, .. } => GroupedProblem::GroupedMasked {
            count,
            room,
            rows: engine.upload(&table).expect("memory").address,
        },
        GroupedProblem::KGrouped { count, .. } => {
            GroupedProblem::KGrouped { count, offsets: engine.upload(&table).expect("memory").address }
        }
        GroupedProblem::One | GroupedProblem::Batched { .. } | GroupedProblem::PointerArray { .. } => kind,
    };
    let program = gemm.program().unwrap_or_else(|error| panic!("{text}: {error}"));
    let resident = engine.resident_clusters(&program).expect("a program that loads");
    let d_ref = MatrixRef::new(d.address, n.into()).every(u64::from(m) * u64::from(n));
    let call = Call { products: kind, a, b, d: d_ref, ..Call::of(problem) };
    let call = call.scaled(BlockScales { a: a_scales, b: b_scales }).with(LinearArguments::scaled(0.5));
    let workspace = engine.workspace(gemm.workspace(&call, resident)).expect("memory");
    let launch = gemm.launch(&Call { workspace, ..call }, resident).expect(text).expect("not empty");
    engine.launch(&program, launch.grid, &launch.arguments).unwrap_or_else(|error| panic!("{text}: {error}"));
    let bytes = engine.read(d).expect("no fault");
    let word = |word: &[u8]| f32::from_le_bytes([word[0], word[1], word[2], word[3]]).into();
    let got: Vec<f64> = bytes.chunks_exact(4).map(word).collect();
    let rows: Rows = match kind {
        GroupedProblem::GroupedMasked { room, .. } => {
            (0..).zip(offsets).map(|(i, rows)| (i * room, i * room + rows, i)).collect()
        }
        GroupedProblem::GroupedContiguous { .. } => {
            (0..).zip(offsets.windows(2)).map(|(i, of)| (of[0], of[1], i)).collect()
        }
        GroupedProblem::One
        | GroupedProblem::Batched { .. }
        | GroupedProblem::KGrouped { .. }
        | GroupedProblem::PointerArray { .. } => {
            (0..all / m.max(1)).map(|i| (i * m, (i + 1) * m, i)).collect()
        }
    };
    for (from, to, product) in rows {
        let part = &got[(from * n) as usize..(to * n) as usize];
        compare(text, [to - from, n], part, |i, j| {
            // Groups of rows share one A, in which they are consecutive.
            let (of, row) = if several { (product, i) } else { (0, from + i) };
            // Groups along K share A and B, and the kernel's tile K is that of a block.
            let [want, all] = if along_k {
                let ends = [0, 1].map(|end| offsets[product as usize + end].min(k));
                sum(ends[1] - ends[0], |k| 0.5 * of_a.at(0, i, ends[0] + k) * of_b.at(0, j, ends[0] + k))
            } else {
                sum(k, |k| 0.5 * of_a.at(of, row, k) * of_b.at(product, j, k))
            };
            // On a GPU: per block, four instructions of 33 terms below 1, each truncated after 13 bits.
            let cut = f64::from(k.div_ceil(128)) * 2.0 * (33.0 + 8.0) / 8192.0;
            [want, f64::from(k) * f64::from(f32::EPSILON) * all + cut]
        });
    }
}

#[test]
fn blocks_are_scaled() {
    let of = |text: &str| format!("dtype=e4m3 out=f32 store=direct {text}");
    on_every_engine(&|engine| {
        for (number, text) in [
            "scale-a=1x128 scale-b=128x128",
            "scale-a=1x128 scale-b=1x128 tile=128x64x128",
            "scale-a=128x128 scale-b=1x128 tile=256x32x128",
            "scale-a=128x128 scale-b=128x128 tile=64x128x128 consumers=1",
            "scale-a=1x128 scale-b=128x128 tile=64x96x128 consumers=1",
            "scale-a=1x128 scale-b=128x128 tile=128x160x128",
            "scale-a=1x128 scale-b=128x128 tile=128x56x128 l2-b=evict-first scheduler=one-tile",
            "scale-a=1x128 scale-b=128x128 tile=64x112x128 consumers=1",
            "scale-a=128x128 scale-b=128x128 tile=128x40x128 scheduler=stream-k raster=m",
            "scale-a=1x128 scale-b=128x128 swap=yes tile=128x56x128",
            "scale-a=128x128 scale-b=128x128 tile=192x64x128 consumers=3",
            "dtype-b=e5m2 scale-a=1x128 scale-b=128x128 tile=64x128x128 roles=pingpong stages=3",
            "scale-a=1x128 scale-b=1x128 tile=64x32x128 cluster=2x1",
            "scale-a=1x128 scale-b=128x128 tile=64x64x128 scheduler=stream-k raster=m",
            // The weights' rows are the tile's rows.
            "scale-a=1x128 scale-b=128x128 swap=yes tile=128x32x128",
            "scale-a=1x128 scale-b=128x128 swap=yes tile=256x16x128 arrivals=thread",
        ]
        .into_iter()
        .enumerate()
        {
            // Without `cargo xtask test --long`, every second one, in turns.
            let long = std::env::var_os("FALCHION_LONG").is_some();
            let (from, step) = if long { (0, 1) } else { (number % 2, 2) };
            let shapes = [(128, 128, 128), (200, 136, 336), (1, 8, 640), (70, 264, 16)];
            for (m, n, k) in shapes.into_iter().skip(from).step_by(step) {
                check(engine, &of(text), GemmProblem { m, n, k }, (GroupedProblem::One, &[]));
            }
        }
        for text in [
            "form=batched scale-a=1x128 scale-b=128x128 tile=64x64x128",
            "form=batched scale-a=128x128 scale-b=1x128 tile=64x64x128 swap=yes",
        ] {
            let batch = GroupedProblem::Batched { count: 3 };
            check(engine, &of(text), GemmProblem { m: 70, n: 136, k: 336 }, (batch, &[]));
        }
        for text in [
            "form=ragged scale-a=1x128 scale-b=128x128 tile=64x64x128",
            "form=ragged scale-a=1x128 scale-b=1x128 tile=64x64x128 cluster=1x2",
            "form=ragged scale-a=1x128 scale-b=128x128 tile=128x16x128 swap=yes",
        ] {
            let groups = GroupedProblem::GroupedContiguous { count: 4, offsets: 0 };
            let offsets = [0, 3, 3, 100, 170];
            check(engine, &of(text), GemmProblem { m: 170, n: 136, k: 336 }, (groups, &offsets));
        }
        for text in [
            "form=k-grouped scale-a=1x128 scale-b=1x128 tile=64x64x128",
            "form=k-grouped scale-a=1x128 scale-b=128x128 tile=128x64x128",
            "form=k-grouped scale-a=1x128 scale-b=1x128 tile=128x64x128 swap=yes cluster=2x1",
            "form=k-grouped scale-a=1x128 scale-b=1x128 tile=64x64x128 roles=pingpong scheduler=dynamic",
            "form=k-grouped scale-a=1x128 scale-b=1x128 tile=64x64x128 scheduler=one-tile",
        ] {
            let groups = GroupedProblem::KGrouped { count: 5, offsets: 0 };
            // Groups of one block and of several, empty ones, and one that ends in the middle of a block.
            let offsets = [0, 128, 128, 512, 720, 720];
            check(engine, &of(text), GemmProblem { m: 70, n: 136, k: 720 }, (groups, &offsets));
        }
        for text in [
            "form=masked scale-a=1x128 scale-b=128x128 tile=64x64x128",
            "form=masked scale-a=1x128 scale-b=128x128 tile=128x16x128 swap=yes",
        ] {
            let groups = GroupedProblem::GroupedMasked { count: 4, rows: 0, room: 70 };
            check(engine, &of(text), GemmProblem { m: 281, n: 136, k: 336 }, (groups, &[3, 0, 70, 64]));
        }
    });
}

/// Scales that span 30 powers of two lose no precision: each block's sum is precise enough by itself.
#[test]
fn scales_of_any_size_lose_nothing() {
    let engine = &mut Emulator::new().with_numerics(Numerics::Exact);
    let (m, n, k) = (64, 64, 1024);
    let [a, b] = [1, 2].map(|seed| Elements::random(Format::E4m3, [64, k], seed));
    let power = |block: u32| f64::powi(2.0, 4 * block.cast_signed() - 16);
    let of = |values: Vec<f64>, ld| Elements {
        bytes: values.iter().flat_map(|value| (*value as f32).to_le_bytes()).collect(),
        values,
        ld,
    };
    let of_a = of((0..k / 128).flat_map(|block| (0..m).map(move |_| power(block))).collect(), m);
    let of_b = of((0..k / 128).map(|block| 1.0 / power(block)).collect(), k / 128);
    let text = "dtype=e4m3 out=f32 store=direct tile=64x64x128 scale-a=1x128 scale-b=128x128";
    let gemm = text.parse::<KernelSpec>().expect("a spec").kernel().expect("legal");
    let d = engine.allocate((m * n * 4) as usize).expect("memory");
    let scales = BlockScales { a: of_a.upload(engine), b: of_b.upload(engine) };
    let (a_ref, b_ref) = (a.upload(engine), b.upload(engine));
    let call = Call {
        a: a_ref,
        b: b_ref,
        d: MatrixRef::new(d.address, n.into()),
        ..Call::of(GemmProblem { m, n, k })
    };
    let launch = gemm.launch(&call.scaled(scales), 4).expect("legal").expect("not empty");
    let program = gemm.program().expect("legal");
    engine.launch(&program, launch.grid, &launch.arguments).unwrap_or_else(|error| panic!("{error}"));
    let word = |word: &[u8]| f64::from(f32::from_le_bytes([word[0], word[1], word[2], word[3]]));
    let got: Vec<f64> = engine.read(d).expect("no fault").chunks_exact(4).map(word).collect();
    compare("powers", [m, n], &got, |i, j| {
        let [want, all] = sum(k, |k| a.at(i, k) * b.at(j, k));
        [want, 8.0 * 4.0 * 41.0 / 8192.0 + f64::from(f32::EPSILON) * all]
    });
}

/// The type that a spec prints is the kernel that the spec gives.
#[test]
fn a_spec_is_its_type() {
    type Rows = BlockScaled<KMajor<F8E4M3>, U1>;
    type Blocks = BlockScaled<KMajor<F8E5M2>, U128>;
    type Roles = Cooperative<U2, Cluster<U1, U1>, EachWarp<AsManyAsFit>>;
    type Kernel = Composed<
        TmaWgmma<Operands<Rows, Blocks>, Tile<U128, U64, U128>, Roles>,
        LinearCombination<f32, DirectStore>,
        Persistent<Grouped<AlongM, U8>>,
    >;
    let text = "dtype=e4m3 dtype-b=e5m2 layout=kk out=f32 scale-a=1x128 scale-b=128x128 tile=128x64x128 store=direct";
    let spec: KernelSpec = text.parse().expect("legal");
    assert_eq!(AnyGemm::of::<Kernel>("k").spec(), Some(spec));
    assert_eq!(spec.to_string(), text);
    let words = "TmaWgmma<Operands<BlockScaled<KMajor<F8E4M3>, U1>, BlockScaled<KMajor<F8E5M2>, U128>>, Tile<U128, U64, U128>, \
                 Cooperative<U2, Cluster<U1, U1>, EachWarp<AsManyAsFit>>>";
    assert!(spec.rust_type().contains(words), "{}", spec.rust_type());
}

#[test]
fn operands_that_cannot_be_scaled_are_refused() {
    for (text, words) in [
        ("dtype=bf16", "blocks with scales are of 8-bit floats"),
        ("dtype=s8", "blocks with scales are of 8-bit floats"),
        ("dtype=e4m3 scale-b=none", "only one operand has block scales"),
        ("dtype=e4m3 scale-a=2x128", "rows that share a scale is 2, 1 or 128 was needed"),
        ("dtype=e4m3 tile=128x128x64", "tile K of blocks with scales is 64, 128 was needed"),
        (
            "dtype=e4m3 tile=128x72x128",
            "tile N of blocks of 128 columns is 72, at most eight times the largest power of two",
        ),
        ("dtype=e4m3 tile=64x320x128 consumers=1", "tile N of blocks with scales is 320"),
        ("dtype=e4m3 tile=128x256x128", "a consumer thread needs"),
        ("dtype=e4m3 sums=f16", "summed in f32"),
        ("dtype=e4m3 promote=4", "leave the promotion out"),
        ("dtype=e4m3 step=32", "not narrowed"),
        ("dtype=e4m3 load=copy", "blocks with scales need tensor copies"),
        ("dtype=e4m3 roles=unspecialised", "blocks with scales need a producer"),
        ("dtype=e4m3 arrivals=warpgroup", "threads read scales from the stage"),
        ("dtype=e4m3 form=grouped", "records describe matrices, not scales"),
        ("dtype=e4m3 form=k-grouped scheduler=stream-k", "only the device knows the K of each group"),
        ("dtype=e4m3 form=ragged scale-a=128x128", "each row has a scale of its own"),
    ] {
        let both = ["scale-a=1x128", "scale-b=128x128"].map(|word| {
            let key = word.split('=').next().unwrap_or_default();
            if text.contains(key) { "" } else { word }
        });
        let spec = KernelSpec::parse(&format!("{text} {} {}", both[0], both[1])).expect(text);
        let error = spec.kernel().expect_err(text).to_string();
        assert!(error.contains(words), "{text}: {error}");
    }
    let words = KernelSpec::parse("dtype=e4m3 scale-a=1x64").expect_err("no such scale").to_string();
    assert_eq!(words, "scale-a is `1x64`, none, 1x128 or 128x128 was needed");
}

#[test]
fn scales_that_do_not_fit_are_refused() {
    let gemm = |text: &str| text.parse::<KernelSpec>().expect(text).kernel().expect("legal");
    let (kernel, plain) = (gemm("dtype=e4m3 scale-a=1x128 scale-b=128x128"), gemm("dtype=e4m3"));
    let swapped = gemm("dtype=e4m3 scale-a=1x128 scale-b=128x128 swap=yes");
    let call = Call::of(GemmProblem { m: 200, n: 136, k: 336 }).a(4096, 336).b(4096, 336).d(1 << 30, 136);
    let good = BlockScales { a: MatrixRef::new(4096, 200), b: MatrixRef::new(4096, 4) };
    let a = |a| BlockScales { a, ..good };
    let b = |b| BlockScales { b, ..good };
    for (why, own, words) in [
        ("good", good, ""),
        ("none", a(MatrixRef::NONE), "A's scales are at 0x0"),
        ("A's address", a(MatrixRef::new(4104, 200)), "A's scales are at 0x1008"),
        ("A's rows", a(MatrixRef::new(4096, 196)), "A's scales is 196, a multiple of 4 from 200"),
        ("B's rows", b(MatrixRef::new(4096, 0)), "B's scales is 0, a multiple of 4 from 3"),
        ("no number of bytes", a(MatrixRef::new(4096, u64::MAX - 3)), "below 2^38"),
        ("B's steps", b(MatrixRef::new(4096, 6)), "B's scales is 6, a multiple of 4"),
        ("B's stride", b(MatrixRef::new(4096, 4).every(2)), "the stride of B's scales is 2"),
    ] {
        for kernel in [&kernel, &swapped] {
            match kernel.launch(&call.scaled(own), 4) {
                Ok(_) => assert_eq!(words, "", "{why}"),
                Err(error) => {
                    let text = error.to_string();
                    assert!(!words.is_empty() && text.contains(words), "{why}: {text}");
                }
            }
        }
    }
    assert_eq!(kernel.launch(&call, 4), Err(LaunchError::NoScales));
    assert_eq!(plain.launch(&call.scaled(good), 4), Err(LaunchError::NotScaled));
    let nothing = call.with(LinearArguments::scaled(0.0));
    assert!(kernel.launch(&nothing, 4).is_ok_and(|launch| launch.is_some()), "nothing is multiplied");
}
