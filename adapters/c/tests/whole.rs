//! What a description can ask for beyond plain GEMMs, in the emulator, on small integers, which are exact.

mod structures;
#[path = "whole/support.rs"]
mod support;

use core::ffi::{CStr, c_void};
use core::ptr::{null, null_mut};

use structures::{
    Arguments, Description, Gemm, INVALID, NamedInput, OK, REPRODUCIBLE, falchion_gemm_create,
    falchion_gemm_destroy, falchion_gemm_emulate, falchion_sparse_compress, falchion_sparse_sizes,
    falchion_weights_bytes, falchion_weights_reorder,
};

use support::{Aligned, EXTENTS, description, e4m3, emulate, f16, last, product, small, zeros};

#[test]
fn epilogues_are_text() {
    let [m, n, k] = EXTENTS;
    let (a, b) = (small(m * k, 5), small(n * k, 3));
    let bias: Vec<f32> = (0..n).map(|j| j as f32 - 20.0).collect();
    let (of_a, of_b) = (Aligned::of(&a, i8::to_le_bytes), Aligned::of(&b, i8::to_le_bytes));
    let (of_bias, d, aux) = (
        Aligned::of(&bias, f32::to_le_bytes),
        Aligned::new(&vec![0; 4 * m * n], 0),
        Aligned::new(&vec![0; 4 * m * n], 0),
    );
    let input = |name: &'static CStr, memory: &Aligned| NamedInput {
        name: name.as_ptr(),
        address: memory.at(),
        ..zeros()
    };
    let low = NamedInput { name: c"low".as_ptr(), value: -5.0, ..zeros() };
    let inputs = [input(c"bias", &of_bias), input(c"aux", &aux), low];
    let description = Description {
        epilogue: c"max(store(aux[m,n]:f32, alpha*acc + bias[n]:f32), low)".as_ptr(),
        ..description(c"s8", EXTENTS)
    };
    let arguments = Arguments {
        a: of_a.at(),
        b: of_b.at(),
        d: d.at().cast_mut(),
        alpha: 2.0,
        inputs: inputs.as_ptr(),
        input_count: inputs.len(),
        ..zeros()
    };
    emulate("text", &description, &arguments);
    let linear: Vec<f32> =
        product(&a, &b, EXTENTS).iter().enumerate().map(|(at, x)| 2.0 * x + bias[at % n]).collect();
    assert_eq!(aux.f32s(m * n), linear);
    assert_eq!(d.f32s(m * n), linear.iter().map(|x| x.max(-5.0)).collect::<Vec<_>>());
    // What is wrong is named.
    let mut gemm: *mut Gemm = null_mut();
    let wrong = NamedInput { name: c"bais".as_ptr(), ..inputs[0] };
    for (inputs, count, words) in [
        (inputs.as_ptr(), 2, "input `low` is not given"),
        (&raw const wrong, 1, "input `bais` is no argument of the epilogue: they are alpha, aux, bias, low"),
        (null(), 3, "inputs is NULL and input_count 3"),
    ] {
        // SAFETY: as above.
        unsafe {
            assert_eq!(falchion_gemm_create(&description, &mut gemm), OK);
            let arguments = Arguments { inputs, input_count: count, ..arguments };
            assert_ne!(falchion_gemm_emulate(gemm, &arguments), OK);
            assert!(last().contains(words), "{}", last());
            falchion_gemm_destroy(gemm);
        }
    }
}

#[test]
fn blocks_have_scales() {
    let [m, n, k] = EXTENTS;
    let (a, b) = (small(m * k, 5), small(n * k, 3));
    // Two blocks along K: of A with M contiguous, of B one line of four.
    let of_a: Vec<f32> = (0..2 * m).map(|i| [0.5, 1.0, 2.0][i % 3]).collect();
    let of_b = [4.0f32, 0.25, 0.0, 0.0];
    let memory = (Aligned::of(&a, e4m3), Aligned::of(&b, e4m3));
    let scales = (Aligned::of(&of_a, f32::to_le_bytes), Aligned::of(&of_b, f32::to_le_bytes));
    let d = Aligned::new(&vec![0; 4 * m * n], 0);
    let description = description(c"e4m3-e4m3-f32-1x128-128x128", EXTENTS);
    let arguments = Arguments {
        a: memory.0.at(),
        b: memory.1.at(),
        d: d.at().cast_mut(),
        alpha: 1.0,
        scale_a: scales.0.at(),
        scale_b: scales.1.at(),
        ..zeros()
    };
    emulate("scales", &description, &arguments);
    let want = (0..m * n).map(|at| {
        let block = |block: usize| {
            let sum: i32 = (block * 128..(block + 1) * 128)
                .map(|l| i32::from(a[at / n * k + l]) * i32::from(b[at % n * k + l]))
                .sum();
            sum as f32 * of_a[block * m + at / n] * of_b[block]
        };
        block(0) + block(1)
    });
    assert_eq!(d.f32s(m * n), want.collect::<Vec<_>>());
}

#[test]
fn weights_have_few_bits() {
    let [m, n, k] = EXTENTS;
    let (a, b) = (small(m * k, 5), small(n * k, 3));
    let codes: Vec<u8> = b.iter().map(|&code| code as u8 & 15).collect();
    let scales: Vec<f32> = (0..2 * n).map(|i| [0.5, 1.0, 2.0][i % 3]).collect();
    let mut bytes = 0;
    // SAFETY: the structures and the memory that they name are valid.
    let units = unsafe {
        assert_eq!(falchion_weights_bytes(c"s4".as_ptr(), n as u32, k as u32, &mut bytes), OK);
        let mut units = vec![0; bytes as usize];
        let status =
            falchion_weights_reorder(c"s4".as_ptr(), n as u32, k as u32, codes.as_ptr(), units.as_mut_ptr());
        assert_eq!(status, OK, "{}", last());
        units
    };
    let a_memory = Aligned::of(&a, |value| f16(value.into()));
    let (units, of_scales, d) =
        (Aligned::new(&units, 0), Aligned::of(&scales, f16), Aligned::new(&vec![0; 4 * m * n], 0));
    let arguments = Arguments {
        a: a_memory.at(),
        b: units.at(),
        d: d.at().cast_mut(),
        alpha: 1.0,
        group_scales: of_scales.at(),
        ..zeros()
    };
    emulate("weights", &description(c"f16-s4g128-f32", EXTENTS), &arguments);
    let want = (0..m * n).map(|at| {
        let term = |l: usize| {
            f32::from(a[at / n * k + l]) * f32::from(b[at % n * k + l]) * scales[l / 128 * n + at % n]
        };
        (0..k).map(term).sum::<f32>()
    });
    assert_eq!(d.f32s(m * n), want.collect::<Vec<_>>());
}

#[test]
fn operands_are_sparse() {
    let [m, n, k] = EXTENTS;
    let (a, mut b) = (small(m * k, 5), small(n * k, 3));
    b.iter_mut().enumerate().filter(|(at, _)| at % 4 == 1 || at % 4 == 2).for_each(|(_, value)| *value = 0);
    let (mut kept, mut bytes) = (0, 0);
    // SAFETY: as above.
    let (values, metadata) = unsafe {
        let (n, k) = (n as u32, k as u32);
        assert_eq!(falchion_sparse_sizes(c"s8".as_ptr(), n, k, &mut kept, &mut bytes), OK);
        let (mut values, mut metadata) = (vec![0; (n * kept) as usize], vec![0; bytes as usize]);
        let (to, from) = (values.as_mut_ptr(), b.as_ptr().cast());
        let status = falchion_sparse_compress(c"s8".as_ptr(), n, k, from, to, metadata.as_mut_ptr());
        assert_eq!(status, OK, "{}", last());
        (values, metadata)
    };
    let memory = (Aligned::of(&a, i8::to_le_bytes), Aligned::new(&values, 0), Aligned::new(&metadata, 0));
    let d = Aligned::new(&vec![0; 4 * m * n], 0);
    let arguments = Arguments {
        a: memory.0.at(),
        b: memory.1.at(),
        d: d.at().cast_mut(),
        alpha: 1.0,
        metadata: memory.2.at(),
        ..zeros()
    };
    emulate("sparse", &description(c"s8-sparse-b", EXTENTS), &arguments);
    let found: Vec<f32> = d.f32s(m * n).iter().map(|bits| bits.to_bits().cast_signed() as f32).collect();
    assert_eq!(found, product(&a, &b, EXTENTS));
}

/// Sizes are right, or refused with the limit: none is a remainder.
#[test]
fn sizes_of_what_is_prepared_do_not_wrap() {
    let (mut bytes, mut kept) = (7, 7);
    let codes: [(&CStr, [u32; 2], Result<u64, &str>); 5] = [
        (c"s4", [64, 64], Ok(2048)),
        (c"s8", [1, 1 << 30], Ok(64 << 30)),
        (c"s4", [u32::MAX, 1], Ok((1 << 32) * 32)),
        (c"s8", [u32::MAX; 2], Err("weights of 4294967295 x 4294967295 are too many: at most 2^40")),
        (c"e4m3", [1 << 31, 1 << 31], Err("at most 2^40")),
    ];
    for (code, [rows, k], wanted) in codes {
        // SAFETY: the name is a string, and the number may be written.
        let status = unsafe { falchion_weights_bytes(code.as_ptr(), rows, k, &mut bytes) };
        match wanted {
            Ok(wanted) => assert_eq!((status, bytes), (OK, wanted), "{code:?} {rows} x {k}"),
            Err(words) => assert!(status == INVALID && last().contains(words), "{rows} x {k}: {}", last()),
        }
    }
    // 128 words for 64 rows and 64 of K, or 32 of tf32.
    for (name, [rows, k], wanted) in [
        (c"bf16", [65, 100], (50, 4 * 2 * 2 * 128)),
        (c"bf16", [u32::MAX; 2], (1 << 31, 4 << 26 << 26 << 7)),
        (c"tf32", [1, u32::MAX], (1 << 31, 4 << 27 << 7)),
    ] {
        // SAFETY: as above.
        let status = unsafe { falchion_sparse_sizes(name.as_ptr(), rows, k, &mut kept, &mut bytes) };
        assert_eq!((status, (kept, bytes)), (OK, wanted), "{name:?} {rows} x {k}");
    }
}

/// C of an epilogue's text is one for all GEMMs, or each GEMM's own.
#[test]
fn an_epilogues_c_is_shared_or_each_ones() {
    let [m, n, k] = [8, 16, 16];
    let (a, b) = (small(2 * m * k, 5), small(2 * n * k, 3));
    let c: Vec<f32> = (0..2 * m * n).map(|i| (i % 11) as f32).collect();
    let memory = (
        Aligned::of(&a, i8::to_le_bytes),
        Aligned::of(&b, i8::to_le_bytes),
        Aligned::of(&c, f32::to_le_bytes),
    );
    for (text, own) in [(c"acc + c[m,n]:f32", false), (c"acc + c[l,m,n]:f32", true)] {
        let d = Aligned::new(&vec![0; 2 * 4 * m * n], 0);
        let description = Description { batch: 2, epilogue: text.as_ptr(), ..description(c"s8", [m, n, k]) };
        let arguments = Arguments {
            a: memory.0.at(),
            b: memory.1.at(),
            c: memory.2.at(),
            d: d.at().cast_mut(),
            ..zeros()
        };
        emulate("C of a text", &description, &arguments);
        let one = |i: usize| product(&a[i * m * k..], &b[i * n * k..], [m, n, k]);
        let wanted: Vec<f32> = (0..2)
            .flat_map(|i| one(i).into_iter().zip(&c[if own { i * m * n } else { 0 }..]).map(|(x, c)| x + c))
            .collect();
        assert_eq!(d.f32s(2 * m * n), wanted, "{text:?}");
        let strided = Description { strides: [0, 0, 1024, 0], ..description };
        let mut gemm: *mut Gemm = null_mut();
        // SAFETY: the description is valid.
        let status = unsafe { falchion_gemm_create(&strided, &mut gemm) };
        assert_eq!(status == OK, own, "{}", last());
        if own {
            // SAFETY: it was created.
            unsafe { falchion_gemm_destroy(gemm) };
        } else {
            assert!(last().contains("stride_c is 1024, and the epilogue's c is one matrix"), "{}", last());
        }
    }
}

/// Groups of rows, in one launch and in any order of sizes; and groups along K.
#[test]
fn groups_have_matrices_of_their_own() {
    let [m, n, k] = EXTENTS;
    let (a, b) = (small(m * k, 5), small(3 * n * k, 3));
    let memory = (Aligned::of(&a, i8::to_le_bytes), Aligned::of(&b, i8::to_le_bytes));
    let ints = |d: &Aligned, count| -> Vec<f32> {
        d.f32s(count).iter().map(|bits| bits.to_bits().cast_signed() as f32).collect()
    };
    let offsets = [0u32, 17, 17, 40];
    let table = Aligned::of(&offsets, u32::to_le_bytes);
    let d = Aligned::new(&vec![0; 4 * m * n], 0);
    let arguments = Arguments {
        a: memory.0.at(),
        b: memory.1.at(),
        d: d.at().cast_mut(),
        alpha: 1.0,
        groups: table.at(),
        ..zeros()
    };
    let rows = Description { batch: 3, form: 1, flags: REPRODUCIBLE, ..description(c"s8", EXTENTS) };
    emulate("rows", &rows, &arguments);
    let mut want = Vec::new();
    for group in 0..3 {
        let [from, to] = [offsets[group] as usize, offsets[group + 1] as usize];
        want.extend(product(&a[from * k..to * k], &b[group * n * k..], [to - from, n, k]));
    }
    assert_eq!(ints(&d, m * n), want);
    // As many experts as models have: the last has the B of the third.
    let many: Vec<i8> = b.iter().copied().cycle().take(384 * n * k).collect();
    let mut ends = [17u32; 385];
    (ends[0], ends[384]) = (0, 40);
    let tables = (Aligned::of(&many, i8::to_le_bytes), Aligned::of(&ends, u32::to_le_bytes));
    let d_of_many = Aligned::new(&vec![0; 4 * m * n], 0);
    let of_many =
        Arguments { b: tables.0.at(), d: d_of_many.at().cast_mut(), groups: tables.1.at(), ..arguments };
    emulate("many rows", &Description { batch: 384, ..rows }, &of_many);
    assert_eq!(ints(&d_of_many, m * n), want);

    let table = Aligned::of(&[0u32, 128, 256], u32::to_le_bytes);
    let d = Aligned::new(&vec![0; 4 * 2 * m * n], 0);
    let arguments = Arguments { d: d.at().cast_mut(), groups: table.at(), ..arguments };
    emulate("k", &Description { batch: 2, form: 3, ..description(c"s8", EXTENTS) }, &arguments);
    let half = |x: &[i8], rows: usize, part: usize| -> Vec<i8> {
        (0..rows).flat_map(|row| x[row * k + part * 128..row * k + (part + 1) * 128].to_vec()).collect()
    };
    let want = (0..2).flat_map(|part| product(&half(&a, m, part), &half(&b, n, part), [m, n, 128]));
    assert_eq!(ints(&d, 2 * m * n), want.collect::<Vec<_>>());
}

/// What is created runs: random extents, leading dimensions, alignments and epilogues, and no run is refused.
#[test]
fn what_is_created_is_launched() {
    let mut state = 12345u64;
    let mut random = |below: u64| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) % below
    };
    let mut copied = 0;
    for round in 0..60 {
        // Half of the rows are multiples of 16 bytes.
        let step = if random(2) == 0 { 16 } else { 1 };
        let [m, n] = [1 + random(60), 1 + random(60)].map(|extent| extent as usize);
        let k = ((1 + random(80)) * step).min(96) as usize;
        let alignment = if step == 16 { 16 << random(3) } else { 1u32 << random(6) };
        let [lda, ldb, ldd] = [k, k, n].map(|extent| extent as u64 + step * random(3));
        let (a, b) = (small(m * lda as usize, 5), small(n * ldb as usize, 3));
        let offset = if alignment >= 32 { 0 } else { alignment as usize };
        let at = |values: &[i8]| {
            Aligned::new(&values.iter().map(|&value| value as u8).collect::<Vec<_>>(), offset)
        };
        let (of_a, of_b) = (at(&a), at(&b));
        let d = Aligned::new(&vec![0x55; 4 * m * ldd as usize], offset.next_multiple_of(4));
        let fused = random(2) == 1;
        let description = Description {
            alignment,
            lds: [lda, ldb, 0, ldd],
            epilogue: if fused { c"3*acc".as_ptr() } else { null() },
            ..description(c"s8", [m, n, k])
        };
        let arguments = Arguments { a: of_a.at(), b: of_b.at(), d: d.at().cast_mut(), alpha: 1.0, ..zeros() };
        let why = format!(
            "round {round}: {m} x {n} x {k}, {lda} {ldb} {ldd}, alignment {alignment}, fused {fused}"
        );
        copied += usize::from(emulate(&why, &description, &arguments).contains("load=copy"));
        let rows = |x: &[i8], rows: usize, ld: usize| -> Vec<i8> {
            (0..rows).flat_map(|row| x[row * ld..row * ld + k].to_vec()).collect()
        };
        let want = product(&rows(&a, m, lda as usize), &rows(&b, n, ldb as usize), [m, n, k]);
        for (at, found) in d.f32s(m * ldd as usize).into_iter().enumerate() {
            let (row, column) = (at / ldd as usize, at % ldd as usize);
            if column >= n {
                assert_eq!(found.to_bits(), 0x5555_5555, "{why}: beyond row {row}");
                continue;
            }
            let found = if fused { found / 3.0 } else { found.to_bits().cast_signed() as f32 };
            assert_eq!(found, want[row * n + column], "{why}: ({row}, {column})");
        }
    }
    assert!((10..55).contains(&copied), "{copied} kernels without tensor copies");
}

/// `falchion_record`.
#[repr(C, align(16))]
#[derive(Clone, Copy)]
struct Record {
    extents: [u32; 4],
    matrices: [*const c_void; 4],
    lds: [u64; 4],
}

/// GEMMs of different shapes, two of which store next to each other into one matrix.
#[test]
fn pointer_arrays_have_any_shapes() {
    let shapes = [[40, 48, 64], [16, 32, 128], [40, 64, 64], [0, 16, 16]];
    let lines = 112; // D of the first and the third
    let parts: Vec<[Vec<i8>; 2]> =
        shapes.iter().map(|&[m, n, k]| [small(m * k, 5), small(n * k, 3)]).collect();
    let memory: Vec<[Aligned; 2]> =
        parts.iter().map(|both| both.each_ref().map(|of| Aligned::of(of, i8::to_le_bytes))).collect();
    let shared = Aligned::new(&vec![0; 4 * 40 * lines], 0);
    let own = Aligned::new(&vec![0; 4 * 16 * 32], 0);
    let at = |i: usize| match i {
        0 => (shared.at(), lines),
        2 => (shared.at().wrapping_byte_add(4 * 48), lines),
        _ => (own.at(), 32),
    };
    let record = |i: usize| {
        let [m, n, k] = shapes[i];
        let ((d, ld), [a, b]) = (at(i), &memory[i]);
        let lds = [k, k, ld, ld].map(|ld| ld as u64);
        let extents = [m as u32, n as u32, k as u32, 0];
        Record { extents, matrices: [a.at(), b.at(), null(), d], lds }
    };
    let records: [Record; 4] = core::array::from_fn(record);
    let description = Description { batch: 4, form: 4, ..description(c"s8", [40, 64, 64]) };
    let arguments = Arguments { groups: records.as_ptr().cast(), alpha: 1.0, ..zeros() };
    let name = emulate("pointer arrays", &description, &arguments);
    assert!(name.contains("form=grouped"), "{name}");
    let ints = |memory: &Aligned, count| -> Vec<f32> {
        memory.f32s(count).iter().map(|bits| bits.to_bits().cast_signed() as f32).collect()
    };
    let whole = ints(&shared, 40 * lines);
    for (i, first) in [(0, 0), (2, 48)] {
        let [m, n, _] = shapes[i];
        let found: Vec<f32> = (0..m * n).map(|at| whole[at / n * lines + first + at % n]).collect();
        assert_eq!(found, product(&parts[i][0], &parts[i][1], shapes[i]), "GEMM {i}");
    }
    assert_eq!(ints(&own, 16 * 32), product(&parts[1][0], &parts[1][1], shapes[1]));
    let mut gemm: *mut Gemm = null_mut();
    let refused = Description { lds: [64, 0, 0, 0], ..description };
    // SAFETY: the description is valid.
    assert_ne!(unsafe { falchion_gemm_create(&refused, &mut gemm) }, OK);
    assert!(last().contains("the records say the rest"), "{}", last());
}

/// Each group has the scales, the zero points and the metadata of its own B.
#[test]
fn groups_have_scales_and_metadata_of_their_own() {
    let [m, n, k] = EXTENTS;
    let (a, b) = (small(m * k, 5), small(3 * n * k, 3));
    let offsets = [0u32, 17, 17, m as u32];
    let table = Aligned::of(&offsets, u32::to_le_bytes);
    let group = |row: usize| offsets[1..].iter().position(|&end| row < end as usize).unwrap_or(2);
    let grouped = |types| Description { batch: 3, form: 1, ..description(types, EXTENTS) };
    let d = Aligned::new(&vec![0; 4 * m * n], 0);
    let arguments = Arguments { d: d.at().cast_mut(), alpha: 1.0, groups: table.at(), ..zeros() };

    // Weights: three times the units, and three times two lines of scales and of zero points.
    let codes: Vec<u8> = b.iter().map(|&code| (code + 8) as u8).collect();
    let scales: Vec<f32> = (0..3 * 2 * n).map(|i| [0.5, 1.0, 2.0, 0.25][i * 7 / 3 % 4]).collect();
    let zeros_of: Vec<f32> = (0..3 * 2 * n).map(|i| (7 + i * 5 / 2 % 3) as f32).collect();
    let mut bytes = 0;
    // SAFETY: the structures and the memory that they name are valid.
    let units: Vec<u8> = unsafe {
        assert_eq!(falchion_weights_bytes(c"u4".as_ptr(), n as u32, k as u32, &mut bytes), OK);
        let one = |i: usize| {
            let mut units = vec![0; bytes as usize];
            let from = codes[i * n * k..].as_ptr();
            let status =
                falchion_weights_reorder(c"u4".as_ptr(), n as u32, k as u32, from, units.as_mut_ptr());
            assert_eq!(status, OK, "{}", last());
            units
        };
        (0..3).flat_map(one).collect()
    };
    let memory = (Aligned::of(&a, |value| f16(value.into())), Aligned::new(&units, 0));
    let lines = (Aligned::of(&scales, f16), Aligned::of(&zeros_of, f16));
    let all = Arguments {
        a: memory.0.at(),
        b: memory.1.at(),
        group_scales: lines.0.at(),
        group_zeros: lines.1.at(),
        ..arguments
    };
    emulate("weights of groups", &grouped(c"f16-u4g128z-f32"), &all);
    let want = (0..m * n).map(|at| {
        let (row, column) = (at / n, at % n);
        let term = |l: usize| {
            let line = (group(row) * 2 + l / 128) * n + column;
            let code = f32::from(codes[(group(row) * n + column) * k + l]);
            f32::from(a[row * k + l]) * (code - zeros_of[line]) * scales[line]
        };
        (0..k).map(term).sum::<f32>()
    });
    assert_eq!(d.f32s(m * n), want.collect::<Vec<_>>());

    // Blocks: a line of four scales for each B.
    let of_a: Vec<f32> = (0..2 * m).map(|i| [0.5, 1.0, 2.0][i % 3]).collect();
    let of_b = [4.0f32, 0.25, 0.0, 0.0, 9.0, 9.0, 0.0, 0.0, 1.0, 8.0, 0.0, 0.0];
    let memory = (Aligned::of(&a, e4m3), Aligned::of(&b, e4m3));
    let scales = (Aligned::of(&of_a, f32::to_le_bytes), Aligned::of(&of_b, f32::to_le_bytes));
    let all = Arguments {
        a: memory.0.at(),
        b: memory.1.at(),
        scale_a: scales.0.at(),
        scale_b: scales.1.at(),
        ..arguments
    };
    emulate("scales of groups", &grouped(c"e4m3-e4m3-f32-1x128-128x128"), &all);
    let want = (0..m * n).map(|at| {
        let (row, column) = (at / n, at % n);
        let term = |l: usize| i32::from(a[row * k + l]) * i32::from(b[(group(row) * n + column) * k + l]);
        let block = |i: usize| (i * 128..(i + 1) * 128).map(term).sum::<i32>() as f32 * of_a[i * m + row];
        (0..2).map(|i| block(i) * of_b[group(row) * 4 + i]).sum::<f32>()
    });
    assert_eq!(d.f32s(m * n), want.collect::<Vec<_>>());

    // Sparse.
    let mut b = b;
    b.iter_mut()
        .enumerate()
        .filter(|(at, _)| [1, 2].contains(&((at + at / (n * k)) % 4)))
        .for_each(|(_, value)| *value = 0);
    let (mut kept, mut bytes) = (0, 0);
    let (mut values, mut metadata) = (Vec::new(), Vec::new());
    for one in b.chunks(n * k) {
        // SAFETY: as above.
        unsafe {
            let (n, k) = (n as u32, k as u32);
            assert_eq!(falchion_sparse_sizes(c"s8".as_ptr(), n, k, &mut kept, &mut bytes), OK);
            let (mut of_values, mut of_metadata) = (vec![0; (n * kept) as usize], vec![0; bytes as usize]);
            let (to, from) = (of_values.as_mut_ptr(), one.as_ptr().cast());
            let status = falchion_sparse_compress(c"s8".as_ptr(), n, k, from, to, of_metadata.as_mut_ptr());
            assert_eq!(status, OK, "{}", last());
            values.extend(of_values);
            metadata.extend(of_metadata);
        }
    }
    let memory = (Aligned::of(&a, i8::to_le_bytes), Aligned::new(&values, 0), Aligned::new(&metadata, 0));
    let all = Arguments { a: memory.0.at(), b: memory.1.at(), metadata: memory.2.at(), ..arguments };
    emulate("sparse groups", &grouped(c"s8-sparse-b"), &all);
    for (at, found) in d.f32s(m * n).iter().enumerate() {
        let (row, column) = (at / n, at % n);
        let term = |l: usize| i32::from(a[row * k + l]) * i32::from(b[(group(row) * n + column) * k + l]);
        assert_eq!(found.to_bits().cast_signed(), (0..k).map(term).sum::<i32>(), "{row} {column}");
    }
}

/// Factors and numbers of a GEMM of `f64`, in double where the arguments have room for it; contradictions are refused.
#[test]
fn factors_are_doubles() {
    let extents @ [m, n, k] = [40, 24, 32];
    let (a, b) = (small(m * k, 5), small(n * k, 3));
    let of = |all: &[i8]| Aligned::of(all, |x: i8| f64::from(x).to_le_bytes());
    let (of_a, of_b, of_c) = (of(&a), of(&b), of(&small(m * n, 4)));
    let d = Aligned::new(&vec![0; 8 * m * n], 0);
    let name = c"low".as_ptr();
    let [old, new] = [core::mem::offset_of!(NamedInput, value_f64), size_of::<NamedInput>()];
    let plain = Arguments { a: of_a.at(), b: of_b.at(), c: of_c.at(), d: d.at().cast_mut(), ..zeros() };
    let run = |text: Option<&CStr>, args_size: usize, arguments: &Arguments| {
        let epilogue = text.map_or(null(), CStr::as_ptr);
        let description = Description { epilogue, args_size, ..description(c"f64", extents) };
        let mut gemm: *mut Gemm = null_mut();
        // SAFETY: the structures are valid, and so is the memory that they name.
        let status = unsafe {
            assert_eq!(falchion_gemm_create(&description, &mut gemm), OK, "{}", last());
            let status = falchion_gemm_emulate(gemm, arguments);
            falchion_gemm_destroy(gemm);
            status
        };
        if status == OK { Ok(()) } else { Err(last()) }
    };
    let whole = size_of::<Arguments>();
    let before = core::mem::offset_of!(Arguments, input_size);
    let (tenth, third) = (0.1, -1.0 / 3.0);
    let single = |x: f64| f64::from(x as f32);
    // The factors that are meant, or the words of the error.
    for (why, size, [alpha, beta], [alpha_f64, beta_f64], want) in [
        ("double", whole, [0.0; 2], [tenth, third], Ok([tenth, third])),
        ("both", whole, [0.1, -1.0 / 3.0], [tenth, third], Ok([tenth, third])),
        ("float", whole, [0.1, -1.0 / 3.0], [0.0; 2], Ok([single(tenth), single(third)])),
        ("old arguments", before, [0.1, 0.0], [tenth, third], Ok([single(tenth), 0.0])),
        ("others", whole, [0.5, 0.0], [tenth, 0.0], Err("alpha is 0.5 and alpha_f64 0.1: the same number")),
        (
            "other C's",
            whole,
            [1.0, 1.0],
            [0.0, 1e-9],
            Err("beta is 1 and beta_f64 0.000000001: the same number"),
        ),
    ] {
        let arguments = Arguments { alpha, beta, alpha_f64, beta_f64, ..plain };
        match (run(None, size, &arguments), want) {
            (Ok(()), Ok([alpha, beta])) => {
                let sums = product(&a, &b, extents);
                for ((found, sum), c) in d.f64s(m * n).into_iter().zip(sums).zip(of_c.f64s(m * n)) {
                    assert_eq!(found, c.mul_add(beta, f64::from(sum) * alpha), "{why}");
                }
            }
            (Err(error), Err(words)) => assert!(error.contains(words), "{why}: {error}"),
            (found, _) => panic!("{why}: {found:?}"),
        }
    }
    for (why, input_size, value, value_f64, want) in [
        ("double", new, 0.0, tenth, Ok(tenth)),
        ("old inputs", old, 0.1, tenth, Ok(single(tenth))),
        ("no size", 0, 0.0, tenth, Ok(tenth)),
        ("others", new, 0.5, tenth, Err("input `low`: value is 0.5 and value_f64 0.1")),
        ("no structure", 8, 0.0, tenth, Err("size is 8, sizeof(falchion_input), ")),
    ] {
        let input = NamedInput { name, value, value_f64, ..zeros() };
        let c = core::ptr::null();
        let arguments = Arguments { inputs: &raw const input, input_count: 1, input_size, c, ..plain };
        match (run(Some(c"acc*low"), whole, &arguments), want) {
            (Ok(()), Ok(low)) => {
                let wanted: Vec<f64> =
                    product(&a, &b, extents).iter().map(|&sum| f64::from(sum) * low).collect();
                assert_eq!(d.f64s(m * n), wanted, "{why}");
            }
            (Err(error), Err(words)) => assert!(error.contains(words), "{why}: {error}"),
            (found, _) => panic!("{why}: {found:?}"),
        }
    }
    // D over A.
    let over = Arguments { alpha: 1.0, d: of_a.at().cast_mut(), ..plain };
    let error = run(None, whole, &over).expect_err("D is A");
    assert!(
        error.contains("D at 0x") && error.contains("is written and shares memory with A at 0x"),
        "{error}"
    );
}
