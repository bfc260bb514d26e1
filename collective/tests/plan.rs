//! Plans: the numbers of legal configurations, and the errors of illegal ones.

use collective::{
    Arrivals, Atom, EpilogueSpec, Form, Format, MainloopNeeds, MainloopSpec, OperandSpec, Plan, PlanError,
    Producer, ProductShape, Roles, StageSlot, TileLayout, TileNeeds,
};
use cute_rs::atom::{Major, SwizzleMode};
use ptx::WgmmaTypes;
use ptx::inst::{Fp8, Int8, MmaTypes};

const SIGNED: WgmmaTypes = WgmmaTypes::Int8 { a: Int8::S8, b: Int8::S8, saturate: false };

const PLAIN: EpilogueSpec = EpilogueSpec {
    output: Format::Bf16,
    alignment: 2,
    staged_bits: 0,
    buffers: 0,
    staging: TileLayout::Widest,
    registers: 24,
    halvings: 0,
    split: false,
    needs: TileNeeds::NONE,
    transposed: false,
    sourced: false,
};

fn spec(tile: [u32; 3], consumers: u32, stages: Option<u32>) -> MainloopSpec {
    MainloopSpec {
        operands: [OperandSpec::k_major(Format::Bf16); 2],
        more: [StageSlot::NONE; MainloopSpec::MORE],
        atom: Atom::shared(WgmmaTypes::Bf16F32),
        own_bytes: 0,
        own_stage: StageSlot::NONE,
        registers: 0,
        tile,
        step: 0,
        roles: Roles::Cooperative,
        producer: Producer::Thread,
        consumers,
        arrivals: Arrivals::Warpgroup,
        cluster: [1, 1],
        stages,
        waves: 1,
    }
}

fn majors(majors: [Major; 2]) -> [OperandSpec; 2] {
    majors.map(|major| OperandSpec { major, ..OperandSpec::k_major(Format::Bf16) })
}

#[test]
fn numbers_of_legal_plans() {
    // (why, tile, consumers, asked stages, stages, threads, consumer registers, accumulators)
    let cases = [
        ("the large kernel", [128, 256, 64], 2, None, 4, 384, 240, 128),
        ("a medium kernel", [128, 128, 64], 2, None, 7, 384, 240, 64),
        ("one consumer", [64, 64, 64], 1, None, 14, 256, 240, 32),
        ("two blocks a consumer", [256, 128, 64], 2, None, 4, 384, 240, 128),
        ("three consumers", [192, 128, 64], 3, None, 5, 512, 160, 64),
        ("stages as asked", [128, 256, 64], 2, Some(2), 2, 384, 240, 128),
        ("two instructions side by side", [128, 320, 64], 2, None, 4, 384, 240, 160),
        ("three of 88 columns are two of 136 and 128", [64, 264, 64], 1, None, 5, 256, 240, 132),
        ("the narrowest tile", [64, 8, 16], 1, Some(3), 3, 256, 240, 4),
    ];
    for (why, tile, consumers, asked, stages, threads, registers, accumulators) in cases {
        let plan = Plan::new(spec(tile, consumers, asked), PLAIN).expect(why);
        assert_eq!(plan.ring.stages, stages, "{why}: stages");
        assert_eq!(plan.threads, threads, "{why}: threads");
        assert_eq!(plan.registers.consumer, registers, "{why}: registers");
        assert_eq!(plan.registers.accumulators, accumulators, "{why}: accumulators");
    }
}

/// Rules that hold for every plan, over a grid of configurations.
#[test]
fn every_plan_keeps_the_hardware_s_rules() {
    let limits = Plan::TARGET.limits();
    let mut plans = 0;
    for m in (64..=256).step_by(64) {
        for n in (8..=400).step_by(8) {
            for k in [16, 32, 48, 64, 128, 256] {
                for (consumers, a_major, b_major) in
                    [(1, Major::K, Major::K), (2, Major::Mn, Major::K), (3, Major::K, Major::Mn)]
                {
                    let spec = MainloopSpec {
                        operands: majors([a_major, b_major]),
                        ..spec([m, n, k], consumers, None)
                    };
                    let Ok(plan) = Plan::new(
                        spec,
                        EpilogueSpec {
                            output: Format::Bf16,
                            alignment: 16,
                            staged_bits: 16,
                            buffers: 2,
                            staging: TileLayout::Widest,
                            registers: 40,
                            halvings: 0,
                            split: false,
                            needs: TileNeeds::NONE,
                            transposed: false,
                            sourced: false,
                        },
                    ) else {
                        continue;
                    };
                    plans += 1;
                    assert!(plan.ring.stages >= 2, "{plan:?}");
                    assert!(plan.shared_bytes <= limits.shared_bytes, "{plan:?}");
                    assert!(
                        plan.ring.stage_bytes.is_multiple_of(1024),
                        "stages keep every swizzle's period: {plan:?}"
                    );
                    let [a, b] = plan.operands.map(|tile| tile.room());
                    assert!(plan.ring.offset(1) >= a.bytes, "{plan:?}");
                    assert!(plan.ring.offset(1).is_multiple_of(b.alignment), "{plan:?}");
                    assert!(plan.ring.offset(1) + b.bytes <= plan.ring.stage_bytes, "{plan:?}");
                    assert!(plan.epilogue_offset >= plan.ring.stages * plan.ring.stage_bytes, "{plan:?}");
                    let staging = consumers * plan.staging.buffers * plan.staging.buffer_bytes;
                    assert!(plan.ring.barriers >= plan.epilogue_offset + staging, "{plan:?}");
                    assert!(staging > 0 && staging <= m * n * 2, "{plan:?}");
                    assert!(plan.ring.barriers + 16 * plan.ring.stages <= plan.shared_bytes, "{plan:?}");
                    let registers = plan.registers;
                    let pool = registers.launch * plan.threads;
                    assert!(pool <= limits.registers, "{plan:?}");
                    assert!(128 * (registers.producer + consumers * registers.consumer) <= pool, "{plan:?}");
                    assert!(registers.accumulators + 40 <= registers.consumer, "{plan:?}");
                }
            }
        }
    }
    assert!(plans > 500, "{plans}");
}

#[test]
fn narrow_tiles_take_narrower_swizzles() {
    for (k, want) in
        [(64, SwizzleMode::B128), (32, SwizzleMode::B64), (16, SwizzleMode::B32), (128, SwizzleMode::B128)]
    {
        let plan = Plan::new(spec([64, 64, k], 1, Some(2)), PLAIN).expect("legal");
        assert_eq!(plan.operands[0].swizzle(), want, "tile K {k}");
    }
    let rows = MainloopSpec { operands: majors([Major::K, Major::Mn]), ..spec([64, 8, 64], 1, Some(2)) };
    assert_eq!(
        Plan::new(rows, PLAIN).expect("legal").operands[1].swizzle(),
        SwizzleMode::None,
        "8 contiguous columns"
    );
}

/// Neighbouring instructions: the number of columns of each, in order.
#[test]
fn columns_of_instructions_side_by_side() {
    for (n, b_major, want) in [
        (256, Major::K, &[256][..]),
        (8, Major::Mn, &[8]),
        (264, Major::K, &[128, 136]),
        (320, Major::K, &[160, 160]),
        // If B's columns are contiguous, a swizzle is 64 columns wide, and no instruction begins inside one.
        (320, Major::Mn, &[128, 192]),
        (384, Major::Mn, &[192, 192]),
        // The swizzle is 32 columns wide.
        (288, Major::Mn, &[128, 160]),
        (576, Major::K, &[192, 192, 192]),
    ] {
        let spec =
            MainloopSpec { operands: majors([Major::K, b_major]), ..spec([64, n, 64], 1, None) }.product();
        let parts: Vec<_> = (0..spec.across()).map(|i| spec.columns_of(i)).collect();
        let widths: Vec<_> = parts.iter().map(|part| part[1]).collect();
        assert_eq!(widths, want, "{n} columns, {b_major:?}");
        assert_eq!(spec.widest(), want.iter().copied().max().unwrap_or(0), "{n} columns, {b_major:?}");
        let mut next = 0;
        for [first, columns] in parts {
            assert_eq!(first, next, "{n} columns, {b_major:?}: one begins where the other ends");
            next += columns;
        }
        assert_eq!(next, n, "all columns");
    }
}

/// A mainloop in which every warp copies and multiplies.
fn multistage(types: MmaTypes) -> MainloopSpec {
    MainloopSpec {
        atom: Atom::mma_sync(types),
        roles: Roles::Unspecialised,
        producer: Producer::Warpgroup,
        ..spec([64, 64, 64], 1, None)
    }
}

/// Widths of instructions with integer accumulators are multiples of 16.
#[test]
fn columns_of_integers() {
    for (n, want) in [(24, &[24][..]), (272, &[128, 144]), (320, &[160, 160])] {
        let spec = MainloopSpec { atom: Atom::shared(SIGNED), ..spec([64, n, 64], 1, None) }.product();
        let widths: Vec<_> = (0..spec.across()).map(|i| spec.columns_of(i)[1]).collect();
        assert_eq!(widths, want, "{n} columns");
    }
}

/// A shape that was made by hand answers whatever its numbers are, and no instruction has columns beyond the tile's.
#[test]
fn no_number_of_a_shape_makes_it_fail() {
    let numbers = [0, 1, 7, 64, 256, 300, u32::MAX];
    let of = |i: usize| numbers[i % numbers.len()];
    let shape = spec([128, 128, 64], 2, None).product();
    for i in 0..numbers.len().pow(5) {
        let [m, n, warpgroups, column_step, waves] = [1, 7, 49, 343, 2401].map(|place| of(i / place));
        let shape = ProductShape { tile: [m, n, m], warpgroups, column_step, waves, ..shape };
        let (across, words) = (shape.across(), format!("{shape:?}"));
        assert_eq!(warpgroups == 0 || m / 64 / warpgroups == 0, shape.blocks() == 0, "{words}");
        let _ = (shape.steps(), shape.accumulators());
        for part in (0..across.min(9)).chain(across.saturating_sub(1)..across).chain([across, u32::MAX]) {
            let [first, columns] = shape.columns_of(part);
            assert!(u64::from(first) + u64::from(columns) <= n.into(), "{part} of {words}");
            assert!(columns == 0 || part < across, "{part} of {words}");
        }
        if across < 1000 {
            assert!(shape.widest() <= n, "{words}");
        }
    }
    let none = spec([128, 128, 64], 0, None);
    assert_eq!((none.product().blocks(), none.product().accumulators()), (0, 0));
}

#[test]
fn reasons_of_illegal_plans() {
    let cases = [
        (spec([128, 128, 64], 0, None), PlanError::Consumers { consumers: 0 }, "1 to 3 are possible"),
        (
            MainloopSpec { step: 48, ..spec([128, 256, 64], 2, None) },
            PlanError::Narrowed { n: 256, step: 48, least: 8 },
            "tile N is 256, which is narrowed in steps of 48",
        ),
        (
            MainloopSpec { step: 32, roles: Roles::Unspecialised, ..spec([64, 64, 64], 1, None) },
            PlanError::NotNarrowed { what: "a mainloop without a producer" },
            "multiplies whole tiles: leave Fitted<_, _> out",
        ),
        (
            MainloopSpec { step: 32, producer: Producer::Warpgroup, ..spec([64, 64, 64], 1, None) },
            PlanError::NotNarrowed { what: "a producer that copies chunk by chunk" },
            "leave Fitted<_, _> out",
        ),
        (spec([96, 128, 64], 1, None), PlanError::TileM { m: 96, consumers: 1 }, "not a multiple of 64"),
        (spec([0, 128, 64], 1, None), PlanError::TileM { m: 0, consumers: 1 }, "change tile M"),
        (spec([512, 64, 64], 2, None), PlanError::Box { extent: "tile M", elements: 512 }, "at most 256"),
        (spec([64, 0, 64], 1, None), PlanError::TileN { n: 0, step: 8 }, "8 to 256 in steps of 8"),
        (spec([64, 260, 64], 1, None), PlanError::TileN { n: 260, step: 8 }, "8 to 256 in steps of 8"),
        (
            MainloopSpec { atom: Atom::shared(SIGNED), ..spec([64, 264, 64], 1, None) },
            PlanError::TileN { n: 264, step: 16 },
            "in steps of 16 where it sums integers",
        ),
        (
            MainloopSpec { atom: Atom::shared(SIGNED), step: 8, ..spec([64, 64, 64], 1, None) },
            PlanError::Narrowed { n: 64, step: 8, least: 16 },
            "multiples of 16 columns",
        ),
        (
            MainloopSpec { step: 32, ..spec([128, 320, 64], 2, None) },
            PlanError::Across { n: 320, what: "a tile that is narrowed" },
            "tile N is 320, and a tile that is narrowed has at most 256 columns",
        ),
        (
            spec([128, 448, 64], 2, None),
            PlanError::Registers { need: 288, have: 240, consumers: 2 },
            "lower tile M or N",
        ),
        (spec([64, 64, 24], 1, None), PlanError::TileK { k: 24, step: 16 }, "not a positive multiple of 16"),
        (spec([64, 64, 272], 1, None), PlanError::Box { extent: "tile K", elements: 272 }, "lower it"),
        (spec([64, 64, 64], 1, Some(1)), PlanError::Stages { stages: 1, least: 2 }, "2 or more"),
        (
            spec([256, 256, 64], 2, None),
            PlanError::Registers { need: 320, have: 240, consumers: 2 },
            "a consumer thread needs 320 registers",
        ),
        (
            // ptxas reports 138 for the instruction with 112 accumulators in a CTA of 512 threads.
            spec([192, 224, 64], 3, None),
            PlanError::Registers { need: 138, have: 128, consumers: 3 },
            "lower tile M or N",
        ),
        (
            MainloopSpec {
                operands: [OperandSpec { scaled: 1, ..OperandSpec::k_major(Format::E4m3) }; 2],
                atom: Atom::shared(WgmmaTypes::Fp8F32(Fp8::E4m3, Fp8::E4m3)),
                arrivals: Arrivals::Warp,
                more: [StageSlot::NONE, StageSlot::NONE, StageSlot::line(16), StageSlot::NONE],
                ..spec([64, 64, 128], 1, None)
            },
            PlanError::Rule {
                rule: "scales take two of the four tiles that a stage can have after A and B: leave the last two of `more` empty",
            },
            "leave the last two of `more` empty",
        ),
        (
            // 512 threads begin with 128 registers each; a producer thread can only give some of them up.
            MainloopSpec { producer: Producer::Warpgroup, ..spec([192, 64, 128], 3, None) },
            PlanError::Copies { need: 144, have: 128, consumers: 3 },
            "take fewer consumers",
        ),
        (
            MainloopSpec { atom: Atom::simt(), ..spec([64, 64, 64], 1, None) },
            PlanError::ByThreads {
                rule: "every warp copies and multiplies: use Unspecialised<U2>, or roles=unspecialised load=copy",
            },
            "of plain instructions: every warp copies and multiplies",
        ),
        (
            MainloopSpec { arrivals: Arrivals::Warp, ..multistage(MmaTypes::Bf16F32) },
            PlanError::ByThreads {
                rule: "threads meet at a barrier and release no stage: leave EachWarp and EachThread out",
            },
            "leave EachWarp and EachThread out",
        ),
        (
            MainloopSpec { cluster: [2, 1], ..multistage(MmaTypes::Bf16F32) },
            PlanError::Alone { what: "a mainloop without a producer", m: 2, n: 1 },
            "use Cluster<U1, U1>",
        ),
        (
            multistage(MmaTypes::F16F16),
            PlanError::ByThreads { rule: "no sums are kept in f16: use MmaTypes::F16F32" },
            "no sums are kept in f16",
        ),
        (
            MainloopSpec { stages: Some(1), ..multistage(MmaTypes::Bf16F32) },
            PlanError::Stages { stages: 1, least: 2 },
            "2 or more",
        ),
        (
            MainloopSpec { tile: [64, 40, 64], ..multistage(MmaTypes::Bf16F32) },
            PlanError::TileN { n: 40, step: 16 },
            "change tile N",
        ),
        (
            MainloopSpec {
                operands: [OperandSpec::k_major(Format::F64); 2],
                tile: [64, 64, 16],
                ..multistage(MmaTypes::F64)
            },
            PlanError::Doubles { rule: "A, B and D are all f64, or none is: change the format of D" },
            "with f64 operands",
        ),
        (
            MainloopSpec { roles: Roles::Pingpong, ..spec([96, 64, 64], 2, None) },
            PlanError::TileM { m: 96, consumers: 1 },
            "not a multiple of 64",
        ),
        (
            MainloopSpec { roles: Roles::Unspecialised, ..spec([64, 64, 64], 1, Some(0)) },
            PlanError::Stages { stages: 0, least: 1 },
            "1 or more",
        ),
        (
            MainloopSpec { roles: Roles::Unspecialised, cluster: [2, 1], ..spec([64, 64, 64], 1, None) },
            PlanError::Alone { what: "a mainloop without a producer", m: 2, n: 1 },
            "use Cluster<U1, U1>",
        ),
        (
            MainloopSpec { arrivals: Arrivals::Thread, cluster: [1, 2], ..spec([64, 64, 64], 1, None) },
            PlanError::Alone { what: "a ring in which every thread arrives", m: 1, n: 2 },
            "needs clusters of one CTA",
        ),
        (
            MainloopSpec { producer: Producer::Warpgroup, cluster: [2, 1], ..spec([64, 64, 64], 1, None) },
            PlanError::Alone { what: "a producer that copies chunk by chunk", m: 2, n: 1 },
            "use Cluster<U1, U1>",
        ),
        (
            MainloopSpec {
                producer: Producer::Warpgroup,
                roles: Roles::Unspecialised,
                ..spec([64, 64, 64], 1, None)
            },
            PlanError::NoProducer,
            "use Cooperative",
        ),
    ];
    for (spec, want, words) in cases {
        let error = Plan::new(spec, PLAIN).expect_err(words);
        assert_eq!(error, want);
        assert!(error.to_string().contains(words), "{error}");
    }
    let shared = |cluster| MainloopSpec { cluster, step: 24, ..spec([128, 120, 64], 2, None) };
    let cases = [
        (
            [3, 3],
            PlanError::Cluster { m: 3, n: 3, most: 8 },
            "the cluster is 3 x 3 CTAs, 1 to 8 are possible",
        ),
        ([0, 1], PlanError::Cluster { m: 0, n: 1, most: 8 }, "change it (Cluster"),
        ([2, 1], PlanError::Slice { extent: "tile N", elements: 120, ctas: 2 }, "not a multiple of 16"),
    ];
    for (cluster, want, words) in cases {
        let error = Plan::new(shared(cluster), PLAIN).expect_err(words);
        assert_eq!(error, want);
        assert!(error.to_string().contains(words), "{error}");
    }
    let bytes = EpilogueSpec {
        output: Format::Bf16,
        alignment: 16,
        staged_bits: 8,
        buffers: 2,
        staging: TileLayout::Widest,
        registers: 24,
        halvings: 0,
        split: false,
        needs: TileNeeds::NONE,
        transposed: false,
        sourced: false,
    };
    let error = Plan::new(spec([128, 24, 64], 2, None), bytes).expect_err("rows of 24 B");
    assert_eq!(error, PlanError::StagedRow { n: 24, bits: 8 });
    assert!(error.to_string().contains("24 elements of 8 bits"), "{error}");
    let hungry = EpilogueSpec {
        output: Format::Bf16,
        alignment: 16,
        staged_bits: 32,
        buffers: 16,
        staging: TileLayout::Widest,
        registers: 24,
        halvings: 0,
        split: false,
        needs: TileNeeds::NONE,
        transposed: false,
        sourced: false,
    };
    let error = Plan::new(spec([128, 256, 128], 2, None), hungry).expect_err("no room for two stages");
    assert!(matches!(error, PlanError::Shared { stages: 2, .. }), "{error}");
}

/// A mainloop of one's own that says nothing gets whole tiles, all of K and one CTA.
#[test]
fn needs_of_a_mainloop_are_refused_with_the_numbers() {
    let of = |spec, needs| Plan::of_form((Form::Single, Form::TABLES[0]), (spec, needs), PLAIN, 0);
    let plain = spec([128, 128, 64], 2, None);
    let none = MainloopNeeds::NONE;
    let cases = [
        (
            "a cluster",
            MainloopSpec { cluster: [2, 1], ..plain },
            MainloopNeeds { alone: true, ..none },
            PlanError::NeedsAlone { m: 2, n: 1 },
            "the cluster is 2 x 1 CTAs, and the mainloop's NEEDS say that it loads for one CTA: use Cluster<U1, U1>",
        ),
        (
            "narrowed tiles",
            MainloopSpec { step: 32, ..plain },
            MainloopNeeds { whole_n: true, ..none },
            PlanError::NeedsWholeN { n: 128, step: 32 },
            "tile N is 128 and is narrowed in steps of 32",
        ),
        (
            "a producer with more registers than each thread is launched with",
            plain,
            MainloopNeeds { producer: 200, ..none },
            PlanError::Copies { need: 200, have: 168, consumers: 2 },
            "with 2 consumer warpgroups it has 168: take fewer consumers",
        ),
    ];
    for (why, spec, needs, want, words) in cases {
        assert!(of(spec, none).is_ok(), "{why}: legal without needs");
        for needs in [needs, MainloopNeeds { whole_n: true, alone: true, ..needs }] {
            let error = of(spec, needs).expect_err(why);
            assert_eq!(error, want, "{why}");
            assert!(error.to_string().contains(words), "{why}: {error}");
        }
    }
    let split = EpilogueSpec {
        split: true,
        halvings: 1,
        needs: TileNeeds { columns: 16, ..TileNeeds::NONE },
        ..PLAIN
    };
    let of_split = |needs| Plan::of_form((Form::Single, Form::TABLES[0]), (plain, needs), split, 0);
    assert!(of_split(none).is_ok());
    let error = of_split(MainloopNeeds { consecutive: true, ..none }).expect_err("columns of both halves");
    assert!(error.to_string().contains("use Alternating or Blocks<U8>"), "{error}");
    let plan = of(plain, MainloopNeeds { producer: 99, ..none }).expect("legal");
    assert_eq!((plan.registers.producer, plan.registers.consumer), (104, 200), "taken from the consumers");
}

/// What a mainloop holds while it multiplies is dead when the epilogue stores.
#[test]
fn registers_are_counted_by_phase() {
    let direct = EpilogueSpec { staged_bits: 0, registers: 64, ..PLAIN };
    // Attention with head 128: scores, the same as fragments, two rows' statistics.
    let attention = MainloopSpec { registers: 104, ..spec([128, 128, 128], 2, Some(2)) };
    for (why, registers, legal) in [
        ("scores and fragments, a direct store", 104, true),
        ("all that is left while multiplying", 128, true),
        ("more than there is while multiplying", 129, false),
    ] {
        let plan = Plan::new(MainloopSpec { registers, ..attention }, direct);
        assert_eq!(plan.is_ok(), legal, "{why}: {plan:?}");
    }
}

/// If no stage holds A, no thread reads a stage: one thread per warpgroup may release it.
#[test]
fn a_stage_without_a_is_released_by_one_thread() {
    let atom = Atom::registers(WgmmaTypes::Bf16F32);
    for (why, staged, arrivals, legal) in [
        ("threads load A from the stage", true, Arrivals::Warpgroup, false),
        ("each warp releases it", true, Arrivals::Warp, true),
        ("wgmma alone reads the stage", false, Arrivals::Warpgroup, true),
    ] {
        let [a, b] = spec([128, 128, 64], 2, None).operands;
        let operands = [OperandSpec { staged, ..a }, b];
        let plan =
            Plan::new(MainloopSpec { atom, operands, arrivals, ..spec([128, 128, 64], 2, None) }, PLAIN);
        assert_eq!(plan.err(), (!legal).then_some(PlanError::EarlyArrival), "{why}");
    }
}

/// The mainloop's own memory is the last, and has as many bytes as were asked for.
#[test]
fn shared_memory_ends_with_the_mainloops_own() {
    for own_bytes in [0, 1, 1000, 1024, 1025, 100_000, 190_000] {
        let plan =
            Plan::new(MainloopSpec { own_bytes, ..spec([64, 64, 32], 1, None) }, PLAIN).expect("legal");
        assert_eq!(plan.shared_bytes, plan.own_offset + own_bytes, "{own_bytes}: {plan:?}");
        assert!(plan.shared_bytes <= Plan::TARGET.limits().shared_bytes, "{own_bytes}: {plan:?}");
        assert!(own_bytes == 0 || plan.own_offset.is_multiple_of(1024), "{own_bytes}: {plan:?}");
        let more = MainloopSpec { own_bytes, ..spec([64, 64, 32], 1, Some(plan.ring.stages + 1)) };
        assert!(
            matches!(Plan::new(more, PLAIN), Err(PlanError::Shared { .. })),
            "{own_bytes}: a stage more fits"
        );
        // With a ring of its own, both rings get as many stages as fit.
        let own_stage = StageSlot { bytes: 8192, alignment: 1024 };
        let own = |stages| MainloopSpec { own_bytes, own_stage, ..spec([64, 64, 32], 1, stages) };
        let both = match Plan::new(own(None), PLAIN) {
            Ok(both) => both,
            Err(error) => panic!("{own_bytes}: {error}"),
        };
        let ring = both.own_ring;
        assert_eq!((ring.stages, ring.stage_bytes), (both.ring.stages, 8192), "{own_bytes}");
        assert!(ring.start.is_multiple_of(1024) && ring.start >= both.own_offset + own_bytes, "{own_bytes}");
        assert_eq!(ring.barriers, ring.start + ring.stages * 8192, "{own_bytes}");
        assert_eq!(both.shared_bytes, ring.barriers + ring.barrier_bytes(), "{own_bytes}");
        assert!(both.shared_bytes <= Plan::TARGET.limits().shared_bytes, "{own_bytes}");
        assert!(both.ring.stages < plan.ring.stages, "{own_bytes}");
        assert!(Plan::new(own(Some(ring.stages + 1)), PLAIN).is_err(), "{own_bytes}: a stage more fits");
    }
}

/// A part divides the tile. Each of its elements has a place of its own in the buffer, and the buffer has no
/// other places. Rows of a part are whole sectors of 32 B if rows of the tile are.
#[test]
fn staged_parts_divide_a_tile() {
    for (staged_bits, transposed) in [(8, false), (16, false), (32, false), (16, true), (32, true)] {
        for n in (8..=256).step_by(8) {
            let epilogue = EpilogueSpec { alignment: 16, staged_bits, buffers: 2, transposed, ..PLAIN };
            let plan = match Plan::new(spec([64, n, 64], 1, None), epilogue) {
                Ok(plan) => plan,
                Err(_) if n * staged_bits % 128 != 0 => continue,
                Err(error) => panic!("{n} columns of {staged_bits} bits: {error}"),
            };
            let (columns, layout) = (plan.staging.columns, plan.staged_layout().expect("D is staged"));
            let elements = 64 * columns;
            assert_eq!((n % columns, plan.staging.buffer_bytes), (0, elements * staged_bits / 8), "{plan:?}");
            let mut places: Vec<i64> = (0..columns.into())
                .flat_map(|column| (0..64).map(move |row| [row, column]))
                .map(|at| layout.at_modes(&at))
                .collect();
            places.sort_unstable();
            assert!(places.into_iter().eq(0..elements.into()), "{plan:?}");
            let sectors = |columns: u32| transposed || (columns * staged_bits).is_multiple_of(256);
            assert!(sectors(columns) || !sectors(n), "{plan:?}");
        }
    }
    assert_eq!(Plan::new(spec([64, 64, 64], 1, None), PLAIN).unwrap().staged_layout(), None);
    let parts = |n: u32, transposed: bool| {
        let epilogue = EpilogueSpec { alignment: 16, staged_bits: 16, buffers: 2, transposed, ..PLAIN };
        Plan::new(spec([64, n, 64], 1, None), epilogue).unwrap().staging.columns
    };
    let widths = [8, 24, 80, 96, 112, 144, 192, 200];
    assert_eq!(widths.map(|n| parts(n, false)), [8, 24, 80, 32, 112, 48, 64, 40]);
    assert_eq!(widths.map(|n| parts(n, true)), [8, 24, 40, 32, 56, 48, 64, 40]);
}
