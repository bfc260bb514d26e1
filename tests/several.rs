//! Many GEMMs in one launch, in addition to the case tables: invalid offsets, epilogues that are trees, every
//! mainloop and scheduler, refused calls.

use collective::{
    Cluster, Cooperative, DirectStore, Fitted, Form, Formula, Input, KMajor, LinearCombination, Operands,
    Pingpong, Record, SourcedCombination, Tile, TmaStore, TmaWgmma, Transposed, Unspecialised,
};
use emulator::Schedule;
use falchion::verify::{Bench, Format, SeveralProducts};
use half::bf16;
use kernel::{
    AnyGemm, Batched, Buffer, Call, Composed, Emulator, Engine, GemmProblem, GroupedContiguous, KernelSpec,
    LaunchError, LinearArguments, PointerArray, several,
};
use scheduler::{AlongM, AlongN, DividedTail, Dynamic, Persistent};
use typenum::{U1, U2, U3, U32, U64, U128};

type Bf16 = Operands<KMajor<bf16>, KMajor<bf16>>;
type Tma<R> = TmaWgmma<Bf16, Tile<U128, U128, U64>, R>;

/// N and K.
const COLUMNS: [u32; 2] = [136, 72];

fn products(products: SeveralProducts) -> SeveralProducts {
    SeveralProducts { seed: 11, ..products }
}

fn batch(count: u32, m: u32) -> SeveralProducts {
    let [n, k] = COLUMNS;
    products(SeveralProducts::batch(GemmProblem { m, n, k }, count))
}

fn rows(rows: &[u32]) -> SeveralProducts {
    products(SeveralProducts::of_rows(rows, 1, COLUMNS))
}

/// The same with another K.
fn longer(products: SeveralProducts, k: u32) -> SeveralProducts {
    SeveralProducts { problem: GemmProblem { k, ..products.problem }, ..products }
}

#[test]
fn whatever_offsets_say_groups_stay_inside() {
    for (why, offsets, all) in [
        ("rows in front of the first group", vec![5, 9, 20], 20),
        ("less than one before", vec![0, 9, 4, 12], 15),
        ("beyond the last row", vec![0, 9, 4_000_000_000, 12], 15),
        ("all beyond", vec![99, 100], 15),
    ] {
        for name in [
            "ragged-128x256-bf16-kk",
            "ragged-128x256-step32-bf16-kn",
            "ragged-64x16-swap-bf16-kn",
            "ragged-128x128-unaligned-bf16-mk",
            "form=ragged most-groups=1024 tile=64x64x64",
            "form=ragged most-groups=1024 tile=64x64x64 step=16 swap=yes",
        ] {
            let entry = kernel::find(name).expect("a name or a spec");
            let problem = GemmProblem { m: all, n: COLUMNS[0], k: COLUMNS[1] };
            let case = products(SeveralProducts::groups(problem, offsets.clone()));
            let outcome = case.run(&entry, &mut Emulator::new()).expect("runs");
            assert_eq!(outcome.mismatch, None, "{why}: {name}");
        }
    }
}

/// Every kernel for groups of rows, with groups in buffers of one size. Rows that a group does not use stay
/// unchanged, for any values in memory.
#[test]
fn groups_with_room_use_their_first_rows() {
    let ragged = |gemm: &AnyGemm| gemm.form() == Form::GroupedContiguous && gemm.name().ends_with("bf16-kk");
    let kernels: Vec<AnyGemm> = several().into_iter().filter(ragged).collect();
    assert!(kernels.len() >= 8, "{}", kernels.len());
    for gemm in kernels {
        let spec = KernelSpec { form: Form::GroupedMasked, ..gemm.spec().expect("of built-in parts") };
        let entry = spec.kernel().unwrap_or_else(|error| panic!("{spec}: {error}"));
        assert!(spec.rust_type().starts_with("GroupedMasked<"), "{}", spec.rust_type());
        for (rows, room) in [
            (&[3, 0, 70, 64][..], 70),
            (&[130], 130),
            (&[0, 0], 8),
            (&[90, 4_000_000_000, 1], 90),
            (&[2; 40], 3),
        ] {
            let case = products(SeveralProducts::masked(rows, room, COLUMNS));
            let case = SeveralProducts { factors: [0.5, 2.0], ..case };
            let outcome = case.run(&entry, &mut Emulator::new()).expect("runs");
            assert_eq!(outcome.mismatch, None, "{spec}: {rows:?} of {room}");
        }
        let first = Call::of(GemmProblem { m: 20, n: 16, k: 16 }).a(0x1000, 16).b(0x2000, 16).d(0x4000, 16);
        let error = entry.launch(&first.masked(3, 7, 0x8000), 132).expect_err("too few rows").to_string();
        assert_eq!(error, "3 groups in buffers of 7 rows need 21 rows, and M is 20");
        let error = entry.launch(&first.masked(2, 10, 0), 132).expect_err("no table").to_string();
        assert!(error.contains("the groups' numbers of rows is a null pointer"), "{error}");
    }
}

/// Kernels outside the catalogue: with drawn tiles, and with C loaded by TMA.
#[test]
fn drawn_tiles_and_copied_sources() {
    type Roles = Cooperative<U2>;
    type Linear = LinearCombination<bf16, TmaStore>;
    let batch = |shared| SeveralProducts { shared, ..batch(3, 70) };
    let with_c = |products| SeveralProducts { factors: [0.5, 2.0], ..products };
    let drawn =
        AnyGemm::of::<GroupedContiguous<Composed<Tma<Roles>, Linear, Dynamic<AlongN>>>>("ragged, drawn");
    let batch_drawn = AnyGemm::of::<Batched<Composed<Tma<Roles>, Linear, Dynamic<AlongM>>>>("batched, drawn");
    let sourced = || {
        AnyGemm::of::<Batched<Composed<Tma<Roles>, SourcedCombination<bf16>, Persistent<AlongM>>>>(
            "batched, sourced",
        )
    };
    for (entry, case) in [
        (drawn, with_c(rows(&[0, 70, 3, 0, 130]))),
        (batch_drawn, with_c(batch([false; 3]))),
        (sourced(), with_c(batch([false; 3]))),
        (sourced(), with_c(batch([false, false, true]))),
    ] {
        let mut engine = Emulator::new().with_multiprocessors(2);
        let outcome = case.run(&entry, &mut engine).expect("runs");
        assert_eq!(outcome.mismatch, None, "{}", entry.name());
    }
}

/// The last tiles are split along K. The width of tiles, the order of draws and a second launch on the same
/// workspace must not change the result.
#[test]
fn tails_of_groups_are_divided() {
    type Narrowed<Shape> = Composed<
        TmaWgmma<
            Operands<KMajor<bf16>, KMajor<bf16>>,
            Fitted<Tile<U64, U64, U64>, U32>,
            Cooperative<U1, Shape>,
        >,
        LinearCombination<bf16, Transposed<DirectStore>>,
        DividedTail<AlongM, U3, U1>,
    >;
    let whole = AnyGemm::of::<
        GroupedContiguous<
            Composed<Tma<Cooperative<U2>>, LinearCombination<bf16>, DividedTail<AlongM, U2, U2>>,
        >,
    >;
    let rows = [&[0, 70, 3, 0, 130, 33][..], &[20], &[0, 0]];
    for (entry, rows) in rows.into_iter().flat_map(|rows| {
        [
            (AnyGemm::of::<GroupedContiguous<Narrowed<Cluster<U1, U1>>>>("narrowed"), rows),
            (AnyGemm::of::<GroupedContiguous<Narrowed<Cluster<U2, U1>>>>("narrowed pairs"), rows),
            (whole("whole"), rows),
        ]
    }) {
        let case = SeveralProducts { factors: [0.5, 2.0], ..longer(self::rows(rows), 328) };
        let mut first = None;
        for (schedule, seed) in [(Schedule::Default, 0), (Schedule::Latest, 0), (Schedule::Random, 1)] {
            let mut engine = Emulator::new().with_multiprocessors(6).with_schedule(schedule, seed);
            let outcome = case.run_times(&entry, &mut engine, 2).expect("runs");
            assert_eq!(outcome.mismatch, None, "{}: {rows:?}, {schedule:?}", entry.name());
            let bits = first.get_or_insert_with(|| outcome.d.clone());
            assert_eq!(*bits, outcome.d, "{}: {rows:?}, {schedule:?}", entry.name());
        }
    }
}

#[test]
fn every_schedule_of_warps_gives_the_same() {
    let rows = rows(&[0, 70, 3, 0, 130]);
    for (name, case) in [
        ("ragged-128x256-bf16-kk", rows.clone()),
        ("ragged-64x256-pingpong-bf16-kk", rows.clone()),
        ("ragged-256x128-1x2-bf16-kn", rows.clone()),
        ("ragged-128x256-step32-bf16-kk", rows.clone()),
        ("ragged-128x256-step32-2x1-bf16-kn", rows),
        ("batched-128x256-stream-k-bf16-kk", longer(batch(3, 70), 600)),
    ] {
        let entry = kernel::find(name).expect("a catalogue name");
        for seed in 0..3 {
            let mut engine = Emulator::new().with_multiprocessors(5).with_schedule(Schedule::Random, seed);
            let outcome = case.run(&entry, &mut engine).expect("runs");
            assert_eq!(outcome.mismatch, None, "{name}, seed {seed}");
        }
    }
}

/// Shapes that change from tile to tile, some of them empty. There are more shapes than a CTA has tensor
/// maps.
fn records() -> SeveralProducts {
    let shapes = vec![
        [70, 40, 72],
        [0, 5, 8],
        [130, 8, 200],
        [1, 1, 8],
        [3, 264, 0],
        [64, 64, 64],
        [5, 7, 16],
        [9, 130, 24],
        [2, 16, 80],
        [65, 3, 8],
    ];
    let products =
        SeveralProducts::array(shapes.into_iter().map(|[m, n, k]| GemmProblem { m, n, k }).collect());
    SeveralProducts { factors: [0.5, 2.0], d_padding: 1, seed: 4, ..products }
}

#[test]
fn products_that_memory_describes() {
    type Direct = LinearCombination<bf16>;
    type Copied = LinearCombination<bf16, TmaStore>;
    type Clustered = Cooperative<U2, Cluster<U2, U1>>;
    let all = [
        AnyGemm::of::<PointerArray<Composed<Tma<Cooperative<U2>>, Copied, Dynamic<AlongM>>>>(
            "drawn, as if copied",
        ),
        AnyGemm::of::<PointerArray<Composed<Tma<Clustered>, Direct, Dynamic<AlongN>>>>("clustered, drawn"),
        AnyGemm::of::<PointerArray<Composed<Tma<Pingpong>, Direct, Persistent<AlongM>>>>("taking turns"),
        AnyGemm::of::<PointerArray<Composed<Tma<Unspecialised<U1>>, Direct, Persistent<AlongM>>>>(
            "no producer",
        ),
    ];
    for entry in all {
        for (schedule, seed) in [(Schedule::Default, 0), (Schedule::Random, 1), (Schedule::Random, 2)] {
            let mut engine = Emulator::new().with_multiprocessors(2).with_schedule(schedule, seed);
            let outcome = records().run(&entry, &mut engine);
            let outcome = outcome.unwrap_or_else(|error| panic!("{}: {error}", entry.name()));
            assert_eq!(outcome.mismatch, None, "{}, {schedule:?} {seed}", entry.name());
        }
    }
}

#[test]
fn arrays_of_products_are_checked() {
    let grouped = kernel::find("grouped-128x256-bf16-kk").expect("a name");
    let legal = Call::grouped(3, 0x8000);
    let workspace = Some(Buffer::new(0x10000, grouped.workspace(&legal, 132)));
    let legal = Call { workspace, ..legal };
    assert!(grouped.launch(&legal, 132).expect("legal").is_some());
    assert!(grouped.launch(&legal.with(LinearArguments::scaled(0.0)), 132).expect("legal").is_some());
    assert_eq!(grouped.launch(&Call::grouped(0, 0x8000), 132).expect("no products"), None);
    for (call, words) in [
        (Call { workspace, ..Call::grouped(321, 0x8000) }, "there are 321 groups"),
        (Call { workspace, ..Call::grouped(3, 0) }, "the records is a null pointer"),
        (Call { workspace, ..Call::grouped(3, 0x8008) }, "the records begins at 0x8008, a multiple of 16 B"),
        (Call::grouped(3, 0x8000), "the workspace has 0 B"),
    ] {
        let error = grouped.launch(&call, 132).expect_err(words).to_string();
        assert!(error.contains(words), "{error}");
    }
    let single = kernel::find("64x64-direct-bf16-kk").expect("a name");
    let wrong = LaunchError::Form { kernel: Form::Single, call: Form::PointerArray };
    assert_eq!(single.launch(&legal, 132), Err(wrong));
}

/// Groups along K: the weight gradient of each expert is the product of its tokens' rows of two matrices,
/// which are read in place. A group without tokens has a gradient of zeros.
#[test]
fn groups_of_k_are_products_of_parts() {
    let (m, n, offsets) = (72_u32, 40_u32, [0_u32, 5, 5, 40, 100]);
    let tokens = offsets[4];
    let value = |i: u32| f64::from(i * 37 % 17) - 8.0;
    let bytes = |count: u32, first: u32| -> Vec<u8> {
        (0..count).flat_map(|i| bf16::from_f64(value(i + first)).to_le_bytes()).collect()
    };
    let mut engine = Emulator::new();
    // Tokens by M and tokens by N, row-major: an M-major A and an N-major B.
    let a = engine.upload(&bytes(tokens * m, 3)).expect("memory");
    let b = engine.upload(&bytes(tokens * n, 8)).expect("memory");
    let d = engine.upload(&[0xff; 4 * 72 * 40 * 2]).expect("memory");
    let record = |(group, range): (u64, &[u32])| Record {
        m,
        n,
        k: range[1] - range[0],
        addresses: [
            a.address + u64::from(range[0] * m) * 2,
            b.address + u64::from(range[0] * n) * 2,
            0,
            d.address + group * u64::from(m * n) * 2,
        ],
        lds: [m, n, n, n].map(u64::from),
    };
    let records: Vec<u8> =
        (0..).zip(offsets.windows(2)).map(record).flat_map(|record| record.to_bytes()).collect();
    let records = engine.upload(&records).expect("memory");
    let gemm = kernel::find("grouped-128x256-bf16-mn").expect("a catalogue name");
    let program = gemm.program().expect("legal");
    let resident = engine.resident_clusters(&program).expect("it loads");
    let call = Call::grouped(4, records.address);
    let workspace = engine.workspace(gemm.workspace(&call, resident)).expect("memory");
    let launch = gemm.launch(&Call { workspace, ..call }, resident).expect("legal").expect("products");
    engine.launch(&program, launch.grid, &launch.arguments).unwrap_or_else(|error| panic!("{error}"));
    let got = engine.read(d).expect("memory");
    for (at, word) in (0..).zip(got.chunks_exact(2)) {
        let (group, row, column) = (at / (m * n), at / n % m, at % n);
        let [begin, end] = [offsets[group as usize], offsets[group as usize + 1]];
        let exact: f64 = (begin..end).map(|t| value(t * m + row + 3) * value(t * n + column + 8)).sum();
        let found = bf16::from_le_bytes([word[0], word[1]]);
        assert_eq!(found, bf16::from_f64(exact), "group {group}, {row}, {column}");
    }
}

/// Vectors and matrices of each GEMM's own, and shared ones, in every form that the host describes. The second
/// GEMM's rows begin inside a tile.
#[test]
fn formulas_have_vectors_of_each_product() {
    let formula: Formula =
        "store(aux[m,n]:f32, relu(acc + bias[l,n])) * rows[l,m]:f32 + shared[n] - t[l,m,n]:f32"
            .parse()
            .expect("a formula");
    let groups = || SeveralProducts::of_rows(&[0, 5, 130, 0, 64, 1], 3, COLUMNS);
    let same = || SeveralProducts::batch(GemmProblem { m: 70, n: 136, k: 72 }, 3);
    for (spec, several, one_aux) in [
        ("form=batched tile=128x128x64", same(), false),
        ("form=batched tile=128x128x64 roles=pingpong store=direct scheduler=one-tile", same(), false),
        ("form=batched tile=128x128x64 roles=unspecialised store=direct scheduler=stream-k", same(), false),
        ("form=ragged tile=128x128x64", groups(), true),
        ("form=ragged tile=128x128x64 roles=pingpong raster=m4", groups(), true),
        ("form=ragged tile=128x128x64 roles=unspecialised store=direct", groups(), true),
        ("form=ragged tile=64x64x64 load=copy store=direct", groups(), true),
        ("form=masked tile=64x64x64", SeveralProducts::masked(&[3, 0, 70], 70, COLUMNS), true),
        ("form=k-grouped tile=64x64x64", SeveralProducts::of_lengths(&[64, 0, 128], [70, 136]), false),
    ] {
        // A matrix that all GEMMs write would be written several times.
        let text = if one_aux {
            formula.text().to_owned()
        } else {
            formula.text().replace("store(aux[m,n]:f32,", "abs(")
        };
        let formula: Formula = text.parse().expect("a formula");
        let gemm =
            KernelSpec::parse(&format!("{spec} epilogue={formula}")).expect(spec).kernel().expect(spec);
        let mut engine = Emulator::new().with_multiprocessors(6);
        let mut bench = Bench::new(&mut engine, 5);
        let (count, shape) = (several.products.count(), several.shape(formula));
        let mut each = |format: Format, rows: u32, columns: u32| {
            let ld = columns + 4;
            let address = bench.random(format, count * rows * ld, 0).expect("memory");
            let stride = u64::from(rows * ld * format.bytes());
            Input::Each { address, ld: ld.into(), stride }
        };
        let (bias, rows) = (each(Format::Bf16, 1, shape.n), each(Format::F32, 1, shape.m));
        let t = each(Format::F32, shape.m, shape.n);
        let shared = Input::Address(bench.random(Format::Bf16, shape.n, 0).expect("memory"));
        let mut given = vec![("bias", bias), ("rows", rows), ("t", t), ("shared", shared)];
        if one_aux {
            let aux = bench.output((shape.m * shape.n * 4) as usize).expect("memory");
            given.push(("aux", Input::matrix(aux, shape.n.into())));
        }
        let arguments = formula.bind(collective::Format::Bf16, shape, &given).expect("arguments");
        let checked = bench
            .check_several(&gemm, &several, &arguments)
            .unwrap_or_else(|error| panic!("{spec}: {error}"));
        assert!(checked.compared > 1000 && checked.ratio > 0.0, "{spec}: {checked:?}");
    }
}

#[test]
fn illegal_calls_say_what_was_needed() {
    let problem = GemmProblem { m: 16, n: 16, k: 16 };
    let first = Call::of(problem).a(0x1000, 16).b(0x2000, 16).d(0x4000, 16);
    let packed = first.batched(3);
    let batched = kernel::find("batched-128x256-bf16-kk").expect("a name");
    let launch = |call: Call| batched.launch(&call, 132);
    let [a, b, d] = [
        |call: Call, stride| Call { a: call.a.every(stride), ..call },
        |call: Call, stride| Call { b: call.b.every(stride), ..call },
        |call: Call, stride| Call { d: call.d.every(stride), ..call },
    ];
    assert!(launch(packed).expect("legal").is_some());
    assert!(launch(a(b(packed, 0), 0)).expect("one A, one B").is_some());
    assert!(launch(d(first.batched(1), 0)).expect("one D").is_some());
    assert_eq!(launch(first.batched(0)).expect("no products"), None);
    let cases = [
        (a(packed, 260), "A's matrices lie 520 B from each other, a multiple of 16 B"),
        (b(packed, 1 << 40), "B's matrices lie 2199023255552 B"),
        (d(packed, 252), "D's matrices lie 504 B"),
        (d(packed, 248), "D's matrices of 16 x 16 in rows of 16 elements lie 248"),
        (d(packed, 0), "overlap"),
    ];
    for (call, words) in cases {
        let error = launch(call).expect_err(words).to_string();
        assert!(error.contains(words), "{error}");
    }
    let ragged = kernel::find("ragged-128x256-bf16-kk").expect("a name");
    let legal = first.ragged(3, 0x8000);
    assert!(ragged.launch(&legal, 132).expect("legal").is_some());
    assert_eq!(ragged.launch(&first.ragged(0, 0x8000), 132).expect("no groups"), None);
    for (call, words) in [
        (first.ragged(321, 0x8000), "there are 321 groups, at most 320"),
        (first.ragged(3, 0), "the groups' offsets is a null pointer"),
        (first.ragged(3, 0x8002), "a multiple of 4 B"),
        (b(legal, 4), "B's matrices lie 8 B"),
    ] {
        let error = ragged.launch(&call, 132).expect_err(words).to_string();
        assert!(error.contains(words), "{error}");
    }
    let form = |kernel, call| Err(LaunchError::Form { kernel, call });
    assert_eq!(ragged.launch(&first, 132), form(Form::GroupedContiguous, Form::Single));
    assert_eq!(batched.launch(&legal, 132), form(Form::Batched, Form::GroupedContiguous));
    let single = kernel::find("64x64-direct-bf16-kk").expect("a name");
    assert_eq!(single.launch(&first.batched(2), 132), form(Form::Single, Form::Batched));
    assert!(batched.launch(&first, 132).expect("a batch of one").is_some());
}

#[test]
fn kernels_of_several_products_have_names_of_their_own() {
    let mut names: Vec<String> =
        kernel::catalogue().into_iter().chain(several()).map(|entry| entry.name().to_owned()).collect();
    let count = names.len();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), count);
    for entry in several() {
        assert_ne!(entry.form(), Form::Single, "{}", entry.name());
        let program = entry.program().expect("legal");
        let form = entry.form().suffix();
        assert!(program.name().starts_with(&format!("gemm{form}_")), "{}", program.name());
    }
}
