//! Calls that are refused, each with what was given and what is needed; and calls with nothing to compute.

use collective::{Cooperative, KMajor, LinearCombination, MatrixRef, Operands, Record, Tile, TmaWgmma};
use half::bf16;
use kernel::{
    AnyGemm, Buffer, Call, Composed, Emulator, Engine, EpilogueArgs, Gemm, GemmConfig, GemmProblem, Kernel,
    KernelSpec, LaunchError, LinearArguments, PointerArray, find,
};
use ptx::abi::{Argument, Promotion};
use scheduler::{AlongM, Persistent};
use typenum::{U1, U64};

/// A legal call of `D (100, 40) = A (100, 64) * B (64, 40)`.
fn legal() -> Call {
    let call = Call::of(GemmProblem { m: 100, n: 40, k: 64 }).a(0x1000, 64).b(0x6000, 64);
    call.d(0x10000, 40).plus(1.0, 0x8000, 40)
}

#[test]
fn illegal_calls_say_what_was_needed() {
    let gemm = find("64x64-direct-bf16-kk").expect("a catalogue name");
    assert!(gemm.launch(&legal(), 132).expect("legal").is_some());
    let call = legal();
    let linear = call.epilogue;
    let cases = [
        (
            "a packed K-major operand whose rows are no multiple of 16 B",
            Call {
                problem: GemmProblem { k: 60, ..call.problem },
                a: MatrixRef { ld: 60, ..call.a },
                ..call
            },
            LaunchError::Pitch { name: "A", bytes: 120, alignment: 16 },
            "A's leading dimension is 120 B, a multiple of 16 B",
        ),
        (
            "rows that overlap",
            Call { b: MatrixRef { ld: 56, ..call.b }, ..call },
            LaunchError::ShortLd { name: "B", ld: 56, needed: 64 },
            "B's leading dimension is 56 elements, at least 64 were needed",
        ),
        (
            "an operand that tensor copies cannot reach",
            Call { a: MatrixRef { address: 0x1008, ..call.a }, ..call },
            LaunchError::Address { name: "A", address: 0x1008, alignment: 16 },
            "A begins at 0x1008, a multiple of 16 B",
        ),
        (
            "an output between two elements",
            Call { d: MatrixRef { address: 0x10001, ..call.d }, ..call },
            LaunchError::Address { name: "D", address: 0x10001, alignment: 2 },
            "D begins at 0x10001",
        ),
        (
            "no output",
            Call { d: MatrixRef { address: 0, ..call.d }, ..call },
            LaunchError::Null { name: "D" },
            "D is a null pointer",
        ),
        (
            "no C",
            call.with(LinearArguments { c: None, ..linear }),
            LaunchError::MissingC { beta: 1.0 },
            "pass C, or beta = 0",
        ),
        (
            "an extent beyond 31 bits",
            Call { problem: GemmProblem { m: 1 << 31, ..call.problem }, ..call },
            LaunchError::Extent { name: "M", extent: 1 << 31, limit: 1 << 31 },
            "M is 2147483648",
        ),
        (
            "an ld beyond 40 bits",
            Call { b: MatrixRef { ld: 1 << 40, ..call.b }, ..call },
            LaunchError::Pitch { name: "B", bytes: 1 << 41, alignment: 16 },
            "below 2^40",
        ),
        (
            "more tiles than a launch numbers",
            Call {
                problem: GemmProblem { m: (1 << 31) - 1, n: (1 << 31) - 8, k: 64 },
                epilogue: LinearArguments::default(),
                d: MatrixRef { ld: 1 << 31, ..call.d },
                ..call
            },
            LaunchError::TooManyTiles { m: 1 << 25, n: 1 << 25, most: (1 << 31) - 1 },
            "take a larger tile",
        ),
    ];
    for (why, call, want, words) in cases {
        let error = gemm.launch(&call, 132).expect_err(why);
        assert_eq!(error, want, "{why}");
        assert!(error.to_string().contains(words), "{why}: {error}");
    }
}

#[test]
fn tensor_stores_need_whole_chunks() {
    let (direct, staged) =
        (find("128x256-direct-bf16-kk").expect("a name"), find("128x256-bf16-kk").expect("a name"));
    let call = legal();
    let narrow = Call { problem: GemmProblem { n: 36, ..call.problem }, ..call };
    assert!(direct.launch(&narrow, 132).expect("legal").is_some());
    let error = staged.launch(&narrow, 132).expect_err("36 columns are 72 B");
    assert_eq!(error, LaunchError::Row { name: "D", bytes: 72, alignment: 16 });
    let shifted = Call { d: MatrixRef { address: 0x10008, ..call.d }, ..call };
    let error = staged.launch(&shifted, 132).expect_err("8 is no multiple of 16");
    assert_eq!(error, LaunchError::Address { name: "D", address: 0x10008, alignment: 16 });
}

#[test]
fn what_blas_leaves_unread_is_not_checked() {
    let gemm = find("64x64-direct-bf16-kk").expect("a catalogue name");
    let (call, nowhere) = (legal(), MatrixRef::NONE);
    let linear = call.epilogue;
    let grid = |call: &Call| gemm.launch(call, 132).map(|launch| launch.map(|launch| launch.grid.ctas));
    let empty = |problem| Call { problem, a: nowhere, b: nowhere, ..call };
    assert_eq!(grid(&empty(GemmProblem { m: 0, ..call.problem })), Ok(None), "M = 0 does nothing");
    assert_eq!(grid(&empty(GemmProblem { n: 0, ..call.problem })), Ok(None), "N = 0 does nothing");
    assert_eq!(grid(&empty(GemmProblem { k: 0, ..call.problem })), Ok(Some([2, 1, 1])), "K = 0 scales C");
    assert_eq!(
        grid(&Call { a: nowhere, b: nowhere, ..call.with(LinearArguments { alpha: 0.0, ..linear }) }),
        Ok(Some([2, 1, 1])),
        "alpha = 0"
    );
    assert_eq!(grid(&call.plus(0.0, 0, 0)), Ok(Some([2, 1, 1])), "beta = 0");
}

#[test]
fn an_unknown_name_suggests_known_ones() {
    for (name, first) in [
        ("128x256-bf17-kk", "128x256-bf16-kk"),
        ("256x192-bf16", "256x192-bf16-kk"),
        ("64x16-swap-fp16-mk", "64x16-swap-f16-mk"),
    ] {
        let Err(error) = find(name) else { panic!("found") };
        assert_eq!(error.alike()[0], first, "{name}");
        let words = error.to_string();
        assert!(words.contains(&format!("`{name}`; did you mean {first} or")), "{words}");
        assert!(words.len() < 200, "{words}");
    }
    let Err(error) = find("tiny") else { panic!("found") };
    assert!(error.to_string().starts_with("there is no kernel `tiny`; `falchion configs`"), "{error}");
}

/// A small output with a long K is split, and needs a workspace of the size that is stated.
#[test]
fn divided_tiles_need_a_workspace() {
    let gemm = find("128x128-stream-k-2x2-bf16-kk").expect("a catalogue name");
    let problem = GemmProblem { m: 256, n: 256, k: 8192 };
    let call = Call::of(problem).a(0x100_0000, 8192).b(0x200_0000, 8192).d(0x300_0000, 256);
    let needed = gemm.workspace(&call, 33);
    assert!(needed > 256 * 256 * 4, "{needed}");
    let given =
        |address, bytes| gemm.launch(&Call { workspace: Some(Buffer::new(address, bytes)), ..call }, 33);
    let none = LaunchError::Workspace { bytes: 0, needed };
    assert_eq!(gemm.launch(&call, 33).expect_err("no workspace"), none);
    assert!(none.to_string().contains("Gemm::workspace"), "{none}");
    let short = LaunchError::Workspace { bytes: needed - 1, needed };
    assert_eq!(given(0x400_0000, needed - 1).expect_err("a byte short"), short);
    let shifted = LaunchError::Address { name: "the workspace", address: 0x400_0004, alignment: 128 };
    assert_eq!(given(0x400_0004, needed).expect_err("not aligned"), shifted);
    assert!(given(0x400_0000, needed).expect("legal").is_some());
    assert_eq!(
        gemm.workspace(&Call::of(GemmProblem { m: u32::MAX, n: u32::MAX, k: 64 }), 33),
        0,
        "no launch is that large"
    );
    assert_eq!(find("128x256-bf16-kk").expect("a catalogue name").workspace(&call, 132), 0);
}

/// What L2 fetches for copies of A and B: single lines, pairs for groups of rows, and for what is read once what the card's memory wants.
#[test]
fn tiles_fetch_single_lines() {
    use collective::{CachePolicy, Form, MainloopSpec};

    for form in [Form::GroupedContiguous, Form::GroupedMasked] {
        let [grouped, single] =
            [form, Form::Single].map(|form| MainloopSpec::promotion(form, CachePolicy::Normal));
        assert_eq!((grouped, single), (Promotion::B256, Promotion::B128), "{form:?}");
    }
    let fetched = |gemm: &AnyGemm| {
        let call = legal().with(LinearArguments::default());
        let launch = gemm.launch(&call, 132).expect("legal").expect("rows");
        let maps = launch.arguments.iter().filter_map(|argument| match argument {
            Argument::TensorMap(map) => Some(map.promotion),
            Argument::Scalar(..) | Argument::Im2colMap(_) | Argument::Bytes(_) => None,
        });
        maps.take(2).collect::<Vec<_>>()
    };
    for (kind, promotions) in [
        ("64x16-swap", [Promotion::ByCard, Promotion::B128]),
        ("64x64-2x1", [Promotion::B128, Promotion::ByCard]),
        ("128x128-pingpong", [Promotion::B128; 2]),
        ("128x128-direct", [Promotion::B128; 2]),
        ("256x128-1x2", [Promotion::B128; 2]),
        ("128x320", [Promotion::B128; 2]),
    ] {
        let gemm = find(&format!("{kind}-bf16-kk")).expect("a catalogue name");
        assert_eq!(fetched(&gemm), promotions, "{kind}: A's and B's");
    }
    let spec: KernelSpec = "tile=128x256x64 l2-b=evict-first".parse().expect("a spec");
    assert_eq!(fetched(&spec.kernel().expect("legal")), [Promotion::B128, Promotion::ByCard]);
}

type Plain = Composed<
    TmaWgmma<Operands<KMajor<bf16>, KMajor<bf16>>, Tile<U64, U64, U64>, Cooperative<U1>>,
    LinearCombination<bf16>,
    Persistent<AlongM>,
>;

/// The ways to launch a kernel of a type.
const WAYS: [&str; 5] = ["a value", "a type's launch", "a reference", "its arguments", "with a mainloop's"];

/// Launches a call in one of the ways.
fn launch<C: GemmConfig<Epilogue = LinearCombination<bf16>>>(
    way: usize,
    engine: &mut Emulator,
    call: &Call,
) -> Result<(), Box<dyn std::error::Error>> {
    let (gemm, linear) = (Gemm::<C>::kernel(), call.epilogue);
    let own = call.with(EpilogueArgs::<C::Epilogue>(linear));
    let launch = match way {
        0 => gemm.launch(call, 4)?,
        1 => Gemm::<C>::launch(call, 4)?,
        2 => Gemm::<C>::launch(&call.with(&linear), 4)?,
        3 => return Ok(Kernel::run(&gemm, engine, &own).map(|_| ())?),
        _ => return Ok(Kernel::run(&gemm, engine, &own.with_mainloop(())).map(|_| ())?),
    };
    let launch = launch.ok_or("no work")?;
    engine.launch(&gemm.program()?, launch.grid, &launch.arguments)?;
    Ok(())
}

/// With alpha = 0, D is exactly beta * C, whatever is in A and B: they are not read, in no way to launch.
#[test]
fn without_alpha_nothing_is_multiplied() {
    let problem @ GemmProblem { m, n, k } = GemmProblem { m: 70, n: 40, k: 72 };
    let c: Vec<bf16> = (0..m * n).map(|i| bf16::from_f32((i % 251) as f32 - 125.0)).collect();
    let bytes = |all: &[bf16]| all.iter().flat_map(|x| x.to_le_bytes()).collect::<Vec<u8>>();
    let want = bytes(&c.iter().map(|&x| bf16::from_f32(2.0 * x.to_f32())).collect::<Vec<_>>());
    let nowhere = MatrixRef::NONE;
    for (way, name) in WAYS.into_iter().enumerate() {
        let mut engine = Emulator::new().with_multiprocessors(4);
        let nan = bytes(&vec![bf16::NAN; (m * k) as usize]);
        let a = engine.upload(&nan).expect("memory");
        let of_c = engine.upload(&bytes(&c)).expect("memory");
        let d = engine.upload(&nan[..want.len()]).expect("memory");
        let of_nan = MatrixRef::new(a.address, k.into());
        for (what, a) in [("NaN", of_nan), ("no memory", nowhere)] {
            let call = Call { a, b: a, ..Call::of(problem) }.d(d.address, n.into());
            let linear =
                LinearArguments { alpha: 0.0, beta: 2.0, c: Some(MatrixRef::new(of_c.address, n.into())) };
            launch::<Plain>(way, &mut engine, &call.with(linear))
                .unwrap_or_else(|error| panic!("{name}, {what}: {error}"));
            assert!(engine.read(d).expect("memory") == want, "{name}, {what}");
        }
        // Records hold each GEMM's C.
        let record = Record {
            m,
            n,
            k,
            addresses: [a.address, a.address, of_c.address, d.address],
            lds: [k, k, n, n].map(u64::from),
        };
        let records = engine.upload(&record.to_bytes()).expect("memory");
        let call = Call::grouped(1, records.address);
        let workspace = engine.workspace(Gemm::<PointerArray<Plain>>::workspace(&call, 4)).expect("memory");
        let linear = LinearArguments { alpha: 0.0, beta: 2.0, c: None };
        engine.write(d, &nan[..want.len()]).expect("memory");
        launch::<PointerArray<Plain>>(way, &mut engine, &Call { workspace, ..call.with(linear) })
            .unwrap_or_else(|error| panic!("{name}, a record: {error}"));
        assert!(engine.read(d).expect("memory") == want, "{name}, a record");
    }
}
