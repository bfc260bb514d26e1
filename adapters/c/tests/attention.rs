//! Attention in the emulator, compared with double precision; and what is refused.

mod structures;

use core::ffi::{CStr, c_void};
use core::ptr::null_mut;

use structures::{
    AttentionArguments, AttentionDescription, AttentionKernel, CAUSAL, OK, PACKED, falchion_attention_create,
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
    [q, k, v]: [&Room; 3],
    [batch, head, query]: [usize; 3],
    length_first: bool,
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
            dot / (d as f64).sqrt()
        })
        .collect();
    let sum: f64 = scores.iter().map(|score| score.exp()).sum();
    let o = (0..d).map(|x| {
        let weighted = scores.iter().enumerate();
        weighted.map(|(key, score)| score.exp() * v.value(at([shared, keys], of_kv, key, x))).sum::<f64>()
            / sum
    });
    (o.collect(), sum.ln())
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
        ("flags is 0x20", AttentionDescription { flags: 32, ..plain }),
        ("flags is 0x10", AttentionDescription { flags: 16, ..plain }),
        ("window is (2147483647, 0)", AttentionDescription { flags: 2, window: [i32::MAX, 0], ..plain }),
        ("keys in a page, is 7", AttentionDescription { page: 7, ..plain }),
        ("alignment is 3", AttentionDescription { alignment: 3, ..plain }),
        ("is 80, 64, 96, 128", AttentionDescription { d: 80, ..plain }),
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
