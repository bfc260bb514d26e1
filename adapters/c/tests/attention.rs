//! Attention in the emulator, compared with double precision; and what is refused.

mod structures;

use core::ffi::{CStr, c_void};
use core::ptr::null_mut;

use structures::{
    ALIBI, ArrayArgument, AttentionArguments, AttentionDescription, AttentionKernel, CAUSAL,
    FACTORS_PER_HEAD, OK, PACKED, SINKS, SLOPES_PER_SEQUENCE, falchion_attention_create,
    falchion_attention_destroy, falchion_attention_emulate, falchion_attention_launch,
    falchion_attention_name, falchion_attention_ptx, falchion_attention_tune, falchion_last_error,
};

fn last() -> String {
    // SAFETY: the text lives until the thread's next failure.
    unsafe { CStr::from_ptr(falchion_last_error()) }.to_string_lossy().into_owned()
}

fn described(types: &'static CStr) -> AttentionDescription {
    // SAFETY: the structure may be zero.
    let zeros: AttentionDescription = unsafe { core::mem::zeroed() };
    AttentionDescription {
        size: size_of::<AttentionDescription>(),
        types: types.as_ptr(),
        batch: 2,
        heads: 4,
        kv_heads: 2,
        queries: 70,
        keys: 90,
        d: 64,
        args_size: size_of::<AttentionArguments>(),
        ..zeros
    }
}

/// Numbers that `bf16` has, in a room that begins at a multiple of 256 bytes.
struct Room(Vec<u16>, usize);

impl Room {
    fn new(count: usize, by: usize) -> Self {
        let mut all = vec![0u16; count + 128];
        let start = all.as_ptr().align_offset(256);
        for i in 0..count {
            let value = ((i * by % 31) as f32 - 15.0) / 16.0;
            all[start + i] = (value.to_bits() >> 16) as u16;
        }
        Self(all, start)
    }

    fn at(&self) -> *const c_void {
        self.0[self.1..].as_ptr().cast()
    }

    fn value(&self, i: usize) -> f64 {
        f32::from_bits(u32::from(self.0[self.1 + i]) << 16).into()
    }
}

/// O and the log-sum-exp of a query. `place` are its sequence, its head and its number.
fn expected(
    of: &AttentionDescription,
    tensors: [&Room; 3],
    place: [usize; 3],
    length_first: bool,
) -> (Vec<f64>, f64) {
    expected_of(of, tensors, place, length_first, (&|score, _| score, f64::NEG_INFINITY))
}

/// The same with a function of a score and the number of keys from the query's own, and with a sink.
fn expected_of(
    of: &AttentionDescription,
    [q, k, v]: [&Room; 3],
    [batch, head, query]: [usize; 3],
    length_first: bool,
    (changed, sink): (&dyn Fn(f64, f64) -> f64, f64),
) -> (Vec<f64>, f64) {
    let [heads, shared, queries, keys, d] =
        [of.heads, of.kv_heads, of.queries, of.keys, of.d].map(|extent| extent as usize);
    let at = |[heads, length]: [usize; 2], head: usize, row: usize, x: usize| match length_first {
        true => ((batch * length + row) * heads + head) * d + x,
        false => ((batch * heads + head) * length + row) * d + x,
    };
    let of_kv = head / (heads / shared);
    let seen = if of.flags & CAUSAL == 0 { keys } else { (query + 1 + keys).saturating_sub(queries) };
    let scores: Vec<f64> = (0..seen)
        .map(|key| {
            let dot: f64 = (0..d)
                .map(|x| {
                    q.value(at([heads, queries], head, query, x)) * k.value(at([shared, keys], of_kv, key, x))
                })
                .sum();
            changed(dot / (d as f64).sqrt(), (query + keys) as f64 - (key + queries) as f64)
        })
        .collect();
    let sum: f64 = scores.iter().chain([&sink]).map(|score| score.exp()).sum();
    let o = (0..d).map(|x| {
        let weighted = scores.iter().enumerate();
        weighted.map(|(key, score)| score.exp() * v.value(at([shared, keys], of_kv, key, x))).sum::<f64>()
            / sum
    });
    (o.collect(), sum.ln())
}

/// Scores that are capped and fall with the distance, by slopes of each sequence, and a sink of each head.
#[test]
fn scores_are_changed() {
    let mut of = described(c"bf16-f32");
    (of.flags, of.softcap) = (CAUSAL | ALIBI | SLOPES_PER_SEQUENCE | SINKS, 3.0);
    let tensors = [(2 * 4 * 70 * 64, 7), (2 * 2 * 90 * 64, 5), (2 * 2 * 90 * 64, 3)];
    let [q, k, v] = tensors.map(|(count, by)| Room::new(count, by));
    let slopes: Vec<f32> = (0..8).map(|i| 0.02 + i as f32 / 16.0).collect();
    let sinks = [-20.0f32, 1.5, 0.0, 4.0];
    let mut o = vec![f32::NAN; 2 * 4 * 70 * 64];
    let mut sums = vec![f32::NAN; 2 * 4 * 70];
    // SAFETY: the structure may be zero.
    let zeros: AttentionArguments = unsafe { core::mem::zeroed() };
    let arguments = AttentionArguments {
        q: q.at(),
        k: k.at(),
        v: v.at(),
        o: o.as_mut_ptr().cast(),
        log_sum_exp: sums.as_mut_ptr().cast(),
        slopes: slopes.as_ptr().cast(),
        sinks: sinks.as_ptr().cast(),
        ..zeros
    };
    let mut kernel: *mut AttentionKernel = null_mut();
    // SAFETY: the structures are valid, and so is the memory that they name.
    unsafe {
        for (wrong, words) in [
            (
                AttentionDescription { softcap: -1.0, ..of },
                "softcap is -1, a number from 0.000001 to 4096 was needed",
            ),
            (AttentionDescription { cache: c"e5m2".as_ptr(), ..of }, "cache is \"e5m2\", e4m3 was needed"),
        ] {
            assert_ne!(falchion_attention_create(&wrong, &mut kernel), OK);
            assert!(last().contains(words), "{}", last());
        }
        assert_eq!(falchion_attention_create(&of, &mut kernel), OK, "{}", last());
        for (wrong, words) in [
            (AttentionArguments { slopes: core::ptr::null(), ..arguments }, "slopes"),
            (AttentionArguments { sinks: core::ptr::null(), ..arguments }, "the sinks"),
            (
                AttentionArguments { factors: [q.at(); 3], ..arguments },
                "which have no factor: NULL was needed",
            ),
        ] {
            assert_ne!(falchion_attention_emulate(kernel, &wrong), OK);
            assert!(last().contains(words), "{words}: {}", last());
        }
        assert_eq!(falchion_attention_emulate(kernel, &arguments), OK, "{}", last());
        falchion_attention_destroy(kernel);
    }
    for (at, found) in o.chunks(64).enumerate() {
        let [batch, head, query] = [at / 280, at / 70 % 4, at % 70];
        let slope = f64::from(slopes[batch * 4 + head]);
        let changed = |score: f64, before: f64| 3.0 * (score / 3.0).tanh() - slope * before.abs();
        let scores: (&dyn Fn(f64, f64) -> f64, f64) = (&changed, sinks[head].into());
        let (wanted, sum) = expected_of(&of, [&q, &k, &v], [batch, head, query], false, scores);
        assert!((f64::from(sums[at]) - sum).abs() < 4e-3, "{at}: {} {sum}", sums[at]);
        for (&found, wanted) in found.iter().zip(wanted) {
            assert!((f64::from(found) - wanted).abs() <= 1e-2, "query {at}: {found}, {wanted}");
        }
    }
}

/// K and V in 8 bits, with a factor for each of their heads.
#[test]
fn a_cache_has_factors() {
    let mut of = described(c"bf16-f32");
    (of.cache, of.flags) = (c"e4m3".as_ptr(), FACTORS_PER_HEAD);
    let q = Room::new(2 * 4 * 70 * 64, 7);
    // Numbers of 8 bits, two in each of 16; and the same as numbers.
    let [(k, wide_k), (v, wide_v)] = [5, 3].map(|by| {
        let (mut bytes, mut wide) = (Room::new(2 * 90 * 64, 0), Room::new(2 * 2 * 90 * 64, 0));
        for i in 0..2 * 2 * 90 * 64 {
            let code = (i * by % 61) as u8 + if i % 2 == 0 { 0 } else { 0x80 };
            let (exponent, fraction) = (i32::from(code >> 3 & 15), f32::from(code & 7) / 8.0);
            let size = if exponent == 0 {
                fraction * 2f32.powi(-6)
            } else {
                (1.0 + fraction) * 2f32.powi(exponent - 7)
            };
            let value = if code >= 0x80 { -size } else { size };
            let before = if i % 2 == 0 { 0 } else { bytes.0[bytes.1 + i / 2] };
            bytes.0[bytes.1 + i / 2] = before | u16::from(code) << (i % 2 * 8);
            wide.0[wide.1 + i] = (value.to_bits() >> 16) as u16;
        }
        (bytes, wide)
    });
    let factors = [[0.5f32, 2.0], [4.0, 0.25]];
    let mut o = vec![f32::NAN; 2 * 4 * 70 * 64];
    // SAFETY: the structure may be zero.
    let zeros: AttentionArguments = unsafe { core::mem::zeroed() };
    let [of_k, of_v] = [0, 1].map(|i| factors[i].as_ptr().cast());
    let o_at = o.as_mut_ptr().cast();
    let tensors = AttentionArguments { q: q.at(), k: k.at(), v: v.at(), o: o_at, ..zeros };
    let arguments = AttentionArguments { factors: [core::ptr::null(), of_k, of_v], ..tensors };
    let mut kernel: *mut AttentionKernel = null_mut();
    // SAFETY: the structures are valid, and so is the memory that they name.
    unsafe {
        assert_eq!(falchion_attention_create(&of, &mut kernel), OK, "{}", last());
        let wrong = AttentionArguments { factors: [of_k; 3], ..arguments };
        assert_ne!(falchion_attention_emulate(kernel, &wrong), OK);
        assert!(last().contains("factors[0] is"), "{}", last());
        assert_eq!(falchion_attention_emulate(kernel, &arguments), OK, "{}", last());
        falchion_attention_destroy(kernel);
    }
    for (at, found) in o.chunks(64).enumerate() {
        let [batch, head, query] = [at / 280, at / 70 % 4, at % 70];
        let [of_k, of_v] = factors.map(|of| f64::from(of[head / 2]));
        let changed = |score: f64, _: f64| score * of_k;
        let scores: (&dyn Fn(f64, f64) -> f64, f64) = (&changed, f64::NEG_INFINITY);
        let (wanted, _) = expected_of(&of, [&q, &wide_k, &wide_v], [batch, head, query], false, scores);
        for (&found, wanted) in found.iter().zip(wanted) {
            let wanted = wanted * of_v;
            assert!(
                (f64::from(found) - wanted).abs() <= 1e-2 * (1.0 + wanted.abs()),
                "query {at}: {found}, {wanted}"
            );
        }
    }
}

/// Scores and a mask as text read arrays in the caller's memory.
#[test]
fn formulas_read_arrays() {
    let mut of = described(c"bf16-f32");
    (of.score, of.sees) = (c"x - slope[b, h] * abs(q - k)".as_ptr(), c"q - k >= least[0]:s32".as_ptr());
    let tensors = [(2 * 4 * 70 * 64, 7), (2 * 2 * 90 * 64, 5), (2 * 2 * 90 * 64, 3)];
    let [q, k, v] = tensors.map(|(count, by)| Room::new(count, by));
    // The sequences have the same slopes.
    let (slopes, least): ([f32; 4], [i32; 1]) = ([0.02, 0.25, 0.0, -0.125], [-30]);
    let array = |name: &'static CStr, address: *const c_void, shape: [u32; 2], strides: [u64; 2]| {
        let ([a, b], [of_a, of_b]) = (shape, strides);
        ArrayArgument { name: name.as_ptr(), address, shape: [a, b, 0, 0], strides: [of_a, of_b, 0, 0] }
    };
    let arrays = [
        array(c"least", least.as_ptr().cast(), [1, 0], [0, 0]),
        array(c"slope", slopes.as_ptr().cast(), [2, 4], [0, 1]),
    ];
    let mut o = vec![f32::NAN; 2 * 4 * 70 * 64];
    // SAFETY: the structure may be zero.
    let zeros: AttentionArguments = unsafe { core::mem::zeroed() };
    let tensors = AttentionArguments { q: q.at(), k: k.at(), v: v.at(), o: o.as_mut_ptr().cast(), ..zeros };
    let arguments = AttentionArguments { arrays: arrays.as_ptr(), array_count: 2, ..tensors };
    of.alignment = 4;
    let mut kernel: *mut AttentionKernel = null_mut();
    let wrong = [
        array(c"least", least.as_ptr().cast(), [1, 1], [0, 0]),
        array(c"slope", slopes.as_ptr().cast(), [1, 4], [0, 1]),
        array(c"other", slopes.as_ptr().cast(), [2, 4], [0, 1]),
    ];
    // SAFETY: the structures are valid, and so is the memory that they name.
    unsafe {
        let unknown = AttentionDescription { score: c"x + y".as_ptr(), ..of };
        assert_ne!(falchion_attention_create(&unknown, &mut kernel), OK);
        assert!(last().contains("score: `y` is no name of scores"), "{}", last());
        let masked = AttentionDescription { flags: CAUSAL, ..of };
        assert_ne!(falchion_attention_create(&masked, &mut kernel), OK);
        assert!(last().contains("mask is causal, full with score or sees"), "{}", last());
        assert_eq!(falchion_attention_create(&of, &mut kernel), OK, "{}", last());
        for (wrong, words) in [
            (&wrong[..1], "arrays has no slope, which the formula reads: 2 dimensions of f32 were needed"),
            (&[wrong[0], arrays[1]], "the array least has 2 dimensions and 2 strides, 1 were needed"),
            (
                &[arrays[0], wrong[1]],
                "the array slope has 1 elements along dimension 0, 2 sequences at least",
            ),
            (&[arrays[0], arrays[1], wrong[2]], "arrays has other, which neither score nor sees reads"),
            (&[arrays[0], arrays[1], arrays[0]], "arrays[2] is least once more, each array once was needed"),
            (&[], "arrays has no slope"),
        ] {
            let arguments =
                AttentionArguments { arrays: wrong.as_ptr(), array_count: wrong.len(), ..tensors };
            assert_ne!(falchion_attention_emulate(kernel, &arguments), OK);
            assert!(last().contains(words), "{words}: {}", last());
        }
        let none = AttentionArguments { array_count: 1, ..tensors };
        assert_ne!(falchion_attention_emulate(kernel, &none), OK);
        assert!(last().contains("arrays is NULL and array_count 1"), "{}", last());
        assert_eq!(falchion_attention_emulate(kernel, &arguments), OK, "{}", last());
        falchion_attention_destroy(kernel);
    }
    for (at, found) in o.chunks(64).enumerate() {
        let [b, h, query] = [at / 280, at / 70 % 4, at % 70];
        let changed = |score: f64, distance: f64| {
            let own = distance - 20.0;
            if own < -30.0 { f64::NEG_INFINITY } else { score - f64::from(slopes[h]) * own.abs() }
        };
        let (wanted, _) = expected_of(&of, [&q, &k, &v], [b, h, query], false, (&changed, f64::NEG_INFINITY));
        for (x, (&found, wanted)) in found.iter().zip(wanted).enumerate() {
            assert!((f64::from(found) - wanted).abs() <= 1e-2, "row {at}, element {x}: {found}, {wanted}");
        }
    }
}

/// V is the first 512 of the 576 elements of K, and NULL.
#[test]
fn latent_attention_has_no_v() {
    let mut of = described(c"bf16-f32");
    (of.heads, of.kv_heads, of.queries, of.d, of.dv, of.alignment) = (16, 1, 1, 576, 512, 4);
    let (q, k) = (Room::new(2 * 16 * 576, 7), Room::new(2 * 90 * 576, 5));
    let mut o = vec![f32::NAN; 2 * 16 * 512];
    // SAFETY: the structure may be zero.
    let zeros: AttentionArguments = unsafe { core::mem::zeroed() };
    let arguments = AttentionArguments { q: q.at(), k: k.at(), o: o.as_mut_ptr().cast(), ..zeros };
    let mut kernel: *mut AttentionKernel = null_mut();
    // SAFETY: the structures are valid, and so is the memory that they name.
    unsafe {
        of.rows[2] = 512;
        assert_ne!(falchion_attention_create(&of, &mut kernel), OK);
        assert!(last().contains("the strides of V are [512, 0, 0], zeros were needed"), "{}", last());
        of.rows[2] = 0;
        assert_eq!(falchion_attention_create(&of, &mut kernel), OK, "{}", last());
        assert_eq!(falchion_attention_emulate(kernel, &arguments), OK, "{}", last());
        let given = AttentionArguments { v: k.at(), ..arguments };
        assert_ne!(falchion_attention_emulate(kernel, &given), OK);
        assert!(last().contains("no V was needed"), "{}", last());
        falchion_attention_destroy(kernel);
    }
    for (at, found) in o.chunks(512).enumerate() {
        let (wanted, _) = expected(&of, [&q, &k, &k], [at / 16, at % 16, 0], false);
        for (x, (&found, wanted)) in found.iter().zip(wanted).enumerate() {
            assert!((f64::from(found) - wanted).abs() <= 1e-2, "head {at}, element {x}: {found}, {wanted}");
        }
    }
}

#[test]
fn attention_is_emulated_on_the_hosts_memory() {
    for (flags, length_first, spec) in
        [(0, false, None), (CAUSAL, false, Some(c"tile=64x64")), (CAUSAL, true, None)]
    {
        let mut of = described(c"bf16-f32");
        of.flags = flags;
        of.spec = spec.map_or(core::ptr::null(), CStr::as_ptr);
        let [heads, shared, queries, keys, d] =
            [of.heads, of.kv_heads, of.queries, of.keys, of.d].map(u64::from);
        if length_first {
            of.rows = [heads, shared, shared, heads].map(|heads| heads * d);
            of.head_strides = [d; 4];
            of.sequences =
                [queries * heads, keys * shared, keys * shared, queries * heads].map(|rows| rows * d);
        }
        let [q, k, v] =
            [(2 * heads * queries * d, 7), (2 * shared * keys * d, 5), (2 * shared * keys * d, 11)]
                .map(|(count, by)| Room::new(count as usize, by));
        let mut o = vec![f32::NAN; (2 * heads * queries * d) as usize];
        let mut sums = vec![f32::NAN; (2 * heads * queries) as usize];
        let arguments = AttentionArguments {
            q: q.at(),
            k: k.at(),
            v: v.at(),
            o: o.as_mut_ptr().cast(),
            log_sum_exp: sums.as_mut_ptr().cast(),
            // SAFETY: the structure may be zero.
            ..unsafe { core::mem::zeroed() }
        };
        of.alignment = 4;
        let mut kernel: *mut AttentionKernel = null_mut();
        // SAFETY: the structures are valid, and so is the memory that they name.
        unsafe {
            assert_eq!(falchion_attention_create(&of, &mut kernel), OK, "{}", last());
            assert_eq!(falchion_attention_emulate(kernel, &arguments), OK, "{}", last());
            assert!(CStr::from_ptr(falchion_attention_ptx(kernel)).to_string_lossy().contains("sm_90a"));
            let name = CStr::from_ptr(falchion_attention_name(kernel)).to_string_lossy();
            assert!(
                name.contains("store=direct") && name.contains("mask=causal") == (flags == CAUSAL),
                "{name}"
            );
            assert_ne!(falchion_attention_launch(kernel, null_mut(), &arguments), OK);
            assert!(last().contains("falchion_attention_load first"), "{}", last());
            falchion_attention_destroy(kernel);
        }
        let [heads, queries, d] = [heads, queries, d].map(|extent| extent as usize);
        for (at, &sum) in sums.iter().enumerate() {
            let place = [at / (heads * queries), at / queries % heads, at % queries];
            let [batch, head, query] = place;
            let (want, of_sum) = expected(&of, [&q, &k, &v], place, length_first);
            let row = if length_first { (batch * queries + query) * heads + head } else { at };
            for (x, want) in want.iter().enumerate() {
                let found = f64::from(o[row * d + x]);
                assert!((found - want).abs() < 0.01, "{place:?}, {x}: {found} and {want}");
            }
            assert!((f64::from(sum) - of_sum).abs() < 1e-3, "{place:?}: {sum} and {of_sum}");
        }
    }
}

#[test]
fn what_is_refused_is_named() {
    let mut kernel: *mut AttentionKernel = null_mut();
    let plain = described(c"bf16");
    for (words, of) in [
        ("size is 8", AttentionDescription { size: 8, ..plain }),
        ("types is \"s8\", one of bf16", described(c"s8")),
        ("flags is 0x200", AttentionDescription { flags: 512, ..plain }),
        ("flags is 0x10", AttentionDescription { flags: 16, ..plain }),
        ("window is (2147483647, 0)", AttentionDescription { flags: 2, window: [i32::MAX, 0], ..plain }),
        ("keys in a page, is 7", AttentionDescription { page: 7, ..plain }),
        ("alignment is 3", AttentionDescription { alignment: 3, ..plain }),
        ("is 72, a multiple of 16", AttentionDescription { d: 72, ..plain }),
        ("spec: `tile=1`", AttentionDescription { spec: c"tile=1".as_ptr(), ..plain }),
        ("4 heads of queries and 3 of keys", AttentionDescription { kv_heads: 3, ..plain }),
        ("K", AttentionDescription { rows: [0, 65, 0, 0], ..plain }),
        ("scale is -1", AttentionDescription { scale: -1.0, ..plain }),
        ("the number of sequences is 4294967295", AttentionDescription { batch: u32::MAX, ..plain }),
        (
            "the number of sequences is 4294967295, it must be below 2147483648",
            AttentionDescription { batch: u32::MAX, flags: PACKED, ..plain },
        ),
        ("the number of queries is 2147483648", AttentionDescription { queries: 1 << 31, ..plain }),
        ("Q", AttentionDescription { batch: 1 << 30, heads: 1 << 30, kv_heads: 1, ..plain }),
        (
            "window[1] is 3, and flags has no FALCHION_WINDOW",
            AttentionDescription { window: [0, 3], ..plain },
        ),
        (
            "sequence[2] is 64, and packed",
            AttentionDescription { flags: PACKED, sequences: [0, 0, 64, 0], ..plain },
        ),
        ("spec: mask is `causal`", AttentionDescription { spec: c"mask=causal".as_ptr(), ..plain }),
    ] {
        // SAFETY: the description is valid.
        assert_ne!(unsafe { falchion_attention_create(&of, &mut kernel) }, OK, "{words}");
        assert!(last().contains(words), "{} has no {words}", last());
    }
    // SAFETY: the description is valid.
    assert_ne!(unsafe { falchion_attention_tune(&plain, 3, &mut kernel) }, OK);
    assert!(last().contains("card is 0"), "{}", last());
}
