//! Attention of sequences of different lengths, of pages of a cache and with a window, and its gradient, compared with double precision.

mod structures;

use core::ffi::{CStr, c_void};
use core::ptr::{null, null_mut};

use structures::*;

/// Heads of Q and of K, and elements of a head.
const HEADS: [usize; 2] = [4, 2];
const D: usize = 64;

fn last() -> String {
    // SAFETY: the text lives until the thread's next failure.
    unsafe { CStr::from_ptr(falchion_last_error()) }.to_string_lossy().into_owned()
}

/// Rows `(rows, heads, D)` of numbers that bf16 has, at a multiple of 16 bytes.
struct Rows {
    room: Vec<u16>,
    start: usize,
    heads: usize,
}

impl Rows {
    fn new(rows: usize, heads: usize, seed: u64) -> Self {
        let count = rows * heads * D;
        let mut room = vec![0x7fc0; count + 8];
        let start = room.as_ptr().align_offset(16);
        let mut state = seed;
        for to in &mut room[start..start + count] {
            state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
            *to = ((((state >> 56) as f32) / 128.0 - 1.0).to_bits() >> 16) as u16;
        }
        Self { room, start, heads }
    }

    fn at(&mut self) -> *mut c_void {
        self.room[self.start..].as_mut_ptr().cast()
    }

    fn row(&self, row: usize, head: usize) -> Vec<f64> {
        let begin = self.start + (row * self.heads + head) * D;
        self.room[begin..begin + D].iter().map(|&bits| f32::from_bits(u32::from(bits) << 16).into()).collect()
    }
}

fn dot(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

/// The weights of a query's keys, whose rows are given, and the log-sum-exp.
fn weights(q: &[f64], keys: &[Vec<f64>], seen: impl Fn(usize) -> bool) -> (Vec<f64>, f64) {
    let score = |key: usize| if seen(key) { (dot(q, &keys[key]) / (D as f64).sqrt()).exp() } else { 0.0 };
    let scores: Vec<f64> = (0..keys.len()).map(score).collect();
    let sum: f64 = scores.iter().sum();
    (scores.iter().map(|score| score / sum).collect(), sum.ln())
}

fn description(flags: u32) -> AttentionDescription {
    // SAFETY: the structure may be zero.
    let zeros: AttentionDescription = unsafe { core::mem::zeroed() };
    AttentionDescription {
        size: size_of::<AttentionDescription>(),
        types: c"bf16".as_ptr(),
        heads: HEADS[0] as u32,
        kv_heads: HEADS[1] as u32,
        d: D as u32,
        flags,
        args_size: size_of::<AttentionArguments>(),
        ..zeros
    }
}

/// Runs in the emulator.
fn emulate(of: &AttentionDescription, arguments: &AttentionArguments) -> String {
    let mut kernel: *mut AttentionKernel = null_mut();
    let mut bytes = 0;
    // SAFETY: the structures are valid, and so is the memory that they name.
    unsafe {
        assert_eq!(falchion_attention_create(of, &mut kernel), OK, "{}", last());
        assert_eq!(falchion_attention_emulate(kernel, arguments), OK, "{}", last());
        let name = CStr::from_ptr(falchion_attention_name(kernel)).to_string_lossy().into_owned();
        assert_eq!(falchion_attention_workspace(kernel, &mut bytes), OK, "{}", last());
        assert_eq!(bytes > 0, name.contains("part"), "{name}: {bytes}");
        falchion_attention_destroy(kernel);
        name
    }
}

#[test]
fn sequences_of_different_lengths_follow_each_other() {
    for window in [None, Some([9, 0])] {
        let lengths = [[30usize, 41usize], [1, 70], [66, 66]];
        let begins: [Vec<u32>; 2] = [0, 1].map(|i| {
            let sums = lengths.iter().scan(0, |sum, of| {
                *sum += of[i] as u32;
                Some(*sum)
            });
            [0].into_iter().chain(sums).collect()
        });
        let all = [begins[0][3], begins[1][3]];
        let mut q = Rows::new(all[0] as usize, HEADS[0], 1);
        let [mut k, mut v] = [2, 3].map(|seed| Rows::new(all[1] as usize, HEADS[1], seed));
        let mut o = Rows::new(all[0] as usize, HEADS[0], 4);
        let mut sums = vec![f32::NAN; HEADS[0] * all[0] as usize];
        let mut of = description(PACKED | if window.is_some() { WINDOW } else { CAUSAL });
        (of.batch, of.queries, of.keys, of.window) = (3, 66, 70, window.unwrap_or_default());
        let arguments = AttentionArguments {
            q: q.at(),
            k: k.at(),
            v: v.at(),
            o: o.at(),
            log_sum_exp: sums.as_mut_ptr().cast(),
            begins: [begins[0].as_ptr().cast(), begins[1].as_ptr().cast()],
            all,
            // SAFETY: the structure may be zero.
            ..unsafe { core::mem::zeroed() }
        };
        emulate(&of, &arguments);
        for (sequence, [queries, keys]) in lengths.into_iter().enumerate() {
            let [first, of_keys] = [begins[0][sequence] as usize, begins[1][sequence] as usize];
            for (row, head) in (0..queries).flat_map(|row| (0..HEADS[0]).map(move |head| (row, head))) {
                let shared = head / 2;
                let rows: Vec<_> = (0..keys).map(|key| k.row(of_keys + key, shared)).collect();
                let own = row + keys - queries;
                let seen = |key| key <= own && window.is_none_or(|[left, _]| key + left as usize >= own);
                let (weights, sum) = weights(&q.row(first + row, head), &rows, seen);
                let found = o.row(first + row, head);
                for (x, found) in found.iter().enumerate() {
                    let want: f64 = (0..keys).map(|key| weights[key] * v.row(of_keys + key, shared)[x]).sum();
                    assert!(
                        (found - want).abs() < 0.02,
                        "{window:?} {sequence} {row} {head} {x}: {found} {want}"
                    );
                }
                let found = sums[head * all[0] as usize + first + row];
                assert!((f64::from(found) - sum).abs() < 1e-3, "{sequence} {row} {head}: {found} {sum}");
            }
        }
    }
}

#[test]
fn keys_are_in_pages_of_a_cache() {
    let (page, pages, each) = (16usize, 90usize, 40usize);
    let lengths = [33u32, 630];
    let used = |sequence: usize| (lengths[sequence] as usize).div_ceil(page);
    // Pages in no order, and entries after the last one that are none.
    let mut table = vec![u32::MAX; 2 * each];
    for sequence in 0..2 {
        for i in 0..used(sequence) {
            table[sequence * each + i] = ((i * 7 + sequence * 45) % pages) as u32;
        }
    }
    let mut q = Rows::new(2, HEADS[0], 1);
    // (pages, page, heads, D) by strides.
    let [mut k, mut v] = [2, 3].map(|seed| Rows::new(pages * page, HEADS[1], seed));
    let mut names = Vec::new();
    for flags in [0, WORKSPACE] {
        let mut o = Rows::new(2, HEADS[0], 4);
        let mut of = description(CAUSAL | flags);
        (of.batch, of.queries, of.keys, of.page) = (2, 1, 640, page as u32);
        let row = (HEADS[1] * D) as u64;
        of.rows = [0, row, row, 0];
        of.head_strides = [0, D as u64, D as u64, 0];
        of.sequences = [0, row * page as u64, row * page as u64, 0];
        let arguments = AttentionArguments {
            q: q.at(),
            k: k.at(),
            v: v.at(),
            o: o.at(),
            lengths: lengths.as_ptr().cast(),
            table: table.as_ptr().cast(),
            each: each as u32,
            pages: pages as u32,
            // SAFETY: the structure may be zero.
            ..unsafe { core::mem::zeroed() }
        };
        names.push(emulate(&of, &arguments));
        for (sequence, head) in (0..2).flat_map(|sequence| (0..HEADS[0]).map(move |head| (sequence, head))) {
            let at = |key: usize| table[sequence * each + key / page] as usize * page + key % page;
            let keys = lengths[sequence] as usize;
            let rows: Vec<_> = (0..keys).map(|key| k.row(at(key), head / 2)).collect();
            let (weights, _) = weights(&q.row(sequence, head), &rows, |_| true);
            for (x, found) in o.row(sequence, head).into_iter().enumerate() {
                let want: f64 = (0..keys).map(|key| weights[key] * v.row(at(key), head / 2)[x]).sum();
                assert!((found - want).abs() < 0.02, "{sequence} {head} {x}: {found} {want}");
            }
        }
    }
    let divides = |name: &String| name.contains("part") || name.contains("cluster=");
    assert!(!names[0].contains("part") && names.iter().all(divides), "{names:?}");
}

#[test]
fn gradients_are_those_of_double_precision() {
    let [queries, keys] = [37usize, 50];
    for flags in [0, CAUSAL | DETERMINISTIC, WINDOW] {
        let mut q = Rows::new(queries, HEADS[0], 1);
        let [mut k, mut v] = [2, 3].map(|seed| Rows::new(keys, HEADS[1], seed));
        let [mut o, mut d_o, mut d_q] = [4, 5, 6].map(|seed| Rows::new(queries, HEADS[0], seed));
        let [mut d_k, mut d_v] = [7, 8].map(|seed| Rows::new(keys, HEADS[1], seed));
        let mut sums = vec![f32::NAN; HEADS[0] * queries];
        let mut of = description(flags & !DETERMINISTIC);
        (of.batch, of.queries, of.keys) = (1, queries as u32, keys as u32);
        of.window = if flags & WINDOW == 0 { [0; 2] } else { [5, 3] };
        // Rows before heads.
        let [rows, shared] = HEADS.map(|heads| (heads * D) as u64);
        (of.rows, of.head_strides) = ([rows, shared, shared, rows], [D as u64; 4]);
        let arguments = AttentionArguments {
            q: q.at(),
            k: k.at(),
            v: v.at(),
            o: o.at(),
            log_sum_exp: sums.as_mut_ptr().cast(),
            // SAFETY: the structure may be zero.
            ..unsafe { core::mem::zeroed() }
        };
        emulate(&of, &arguments);
        (of.flags, of.args_size) = (flags, size_of::<BackwardArguments>());
        let arguments = BackwardArguments {
            q: q.at(),
            k: k.at(),
            v: v.at(),
            o: o.at(),
            d_o: d_o.at(),
            log_sum_exp: sums.as_ptr().cast(),
            d_q: d_q.at(),
            d_k: d_k.at(),
            d_v: d_v.at(),
            // SAFETY: the structure may be zero.
            ..unsafe { core::mem::zeroed() }
        };
        let mut kernel: *mut BackwardKernel = null_mut();
        // SAFETY: the structures are valid, and so is the memory that they name.
        unsafe {
            assert_eq!(falchion_attention_backward_create(&of, &mut kernel), OK, "{}", last());
            assert_eq!(falchion_attention_backward_emulate(kernel, &arguments), OK, "{}", last());
            let mut bytes = 0;
            assert_eq!(falchion_attention_backward_workspace(kernel, &mut bytes), OK, "{}", last());
            assert!(bytes > 0);
            assert_ne!(falchion_attention_backward_launch(kernel, null_mut(), &arguments), OK);
            assert!(last().contains("falchion_attention_backward_load first"), "{}", last());
            falchion_attention_backward_destroy(kernel);
        }
        let scale = (D as f64).sqrt().recip();
        let mut of_k = vec![vec![vec![0.0; D]; HEADS[1]]; keys];
        let mut of_v = of_k.clone();
        for (row, head) in (0..queries).flat_map(|row| (0..HEADS[0]).map(move |head| (row, head))) {
            let shared = head / 2;
            let own = row + keys - queries;
            let seen = |key: usize| match flags & (CAUSAL | WINDOW) {
                0 => true,
                CAUSAL => key <= own,
                _ => key + 5 >= own && key <= own + 3,
            };
            let rows: Vec<_> = (0..keys).map(|key| k.row(key, shared)).collect();
            let (weights, _) = weights(&q.row(row, head), &rows, seen);
            let (of_o, of_row) = (d_o.row(row, head), q.row(row, head));
            let inner: Vec<f64> = (0..keys).map(|key| dot(&of_o, &v.row(key, shared))).collect();
            let mean = dot(&weights, &inner);
            let mut want = vec![0.0; D];
            for key in 0..keys {
                let of_score = weights[key] * (inner[key] - mean) * scale;
                for x in 0..D {
                    want[x] += of_score * rows[key][x];
                    of_k[key][shared][x] += of_score * of_row[x];
                    of_v[key][shared][x] += weights[key] * of_o[x];
                }
            }
            for (found, want) in d_q.row(row, head).iter().zip(&want) {
                assert!((found - want).abs() < 0.03, "flags {flags}, dQ {row} {head}: {found} {want}");
            }
        }
        for (key, head) in (0..keys).flat_map(|key| (0..HEADS[1]).map(move |head| (key, head))) {
            for (name, found, want) in [("dK", d_k.row(key, head), &of_k), ("dV", d_v.row(key, head), &of_v)]
            {
                for (found, want) in found.iter().zip(&want[key][head]) {
                    let bound = 0.03 * want.abs().max(1.0);
                    assert!(
                        (found - want).abs() < bound,
                        "flags {flags}, {name} {key} {head}: {found} {want}"
                    );
                }
            }
        }
    }
}

/// The gradient of sequences of different lengths is that of each sequence.
#[test]
fn gradients_of_packed_sequences_are_those_of_each() {
    let lengths = [[37usize, 50usize], [70, 70], [0, 9], [1, 3]];
    let begins = [0, 1].map(|i| -> Vec<u32> {
        (0..=lengths.len()).map(|count| lengths[..count].iter().map(|of| of[i] as u32).sum()).collect()
    });
    let all = [begins[0][4], begins[1][4]];
    let of_q = |seed| Rows::new(all[0] as usize, HEADS[0], seed);
    let of_k = |seed| Rows::new(all[1] as usize, HEADS[1], seed);
    let ([mut q, mut d_o, mut o], [mut k, mut v]) = ([1, 2, 3].map(of_q), [4, 5].map(of_k));
    let mut results = [(of_q(6), of_k(7), of_k(8)), (of_q(9), of_k(10), of_k(11))];
    let mut sums = vec![f32::NAN; HEADS[0] * all[0] as usize];
    let [rows, shared] = HEADS.map(|heads| (heads * D) as u64);
    for (packed, (d_q, d_k, d_v)) in [true, false].into_iter().zip(&mut results) {
        let runs = if packed { 0..1 } else { 0..lengths.len() };
        for i in runs {
            let ([queries, keys], [row, key]) = if packed {
                ([70, 70], [0, 0])
            } else {
                (lengths[i], [0, 1].map(|side| begins[side][i] as usize))
            };
            let mut of = description(CAUSAL | if packed { PACKED } else { 0 });
            (of.batch, of.queries, of.keys) = (if packed { 4 } else { 1 }, queries as u32, keys as u32);
            (of.rows, of.head_strides) = ([rows, shared, shared, rows], [D as u64; 4]);
            let at = |of: *mut c_void, row: usize, heads: usize| of.wrapping_byte_add(row * heads * D * 2);
            let [q, o, d_o] = [&mut q, &mut o, &mut d_o].map(|of| at(of.at(), row, HEADS[0]));
            let [k, v] = [&mut k, &mut v].map(|of| at(of.at(), key, HEADS[1]));
            let begins = if packed { [0, 1].map(|i| begins[i].as_ptr().cast()) } else { [null(); 2] };
            let (all, log_sum_exp) = (if packed { all } else { [0; 2] }, sums.as_mut_ptr().cast());
            // SAFETY: the structure may be zero.
            let zeros: AttentionArguments = unsafe { core::mem::zeroed() };
            emulate(&of, &AttentionArguments { q, k, v, o, log_sum_exp, begins, all, ..zeros });
            of.args_size = size_of::<BackwardArguments>();
            let arguments = BackwardArguments {
                q,
                k,
                v,
                o,
                d_o,
                log_sum_exp,
                d_q: at(d_q.at(), row, HEADS[0]),
                d_k: at(d_k.at(), key, HEADS[1]),
                d_v: at(d_v.at(), key, HEADS[1]),
                workspace: null_mut(),
                workspace_bytes: 0,
                begins,
                all,
                slopes: null(),
                arrays: null(),
                array_count: 0,
                array_size: 0,
            };
            let mut kernel: *mut BackwardKernel = null_mut();
            // SAFETY: the structures are valid, and so is the memory that they name.
            unsafe {
                assert_eq!(falchion_attention_backward_create(&of, &mut kernel), OK, "{}", last());
                assert_eq!(falchion_attention_backward_emulate(kernel, &arguments), OK, "{}", last());
                falchion_attention_backward_destroy(kernel);
            }
        }
    }
    let [(d_q, d_k, d_v), (e_q, e_k, e_v)] = &results;
    for (name, found, want, count) in
        [("dQ", d_q, e_q, all[0]), ("dK", d_k, e_k, all[1]), ("dV", d_v, e_v, all[1])]
    {
        for (row, head) in (0..count as usize).flat_map(|row| (0..found.heads).map(move |head| (row, head))) {
            for (found, want) in found.row(row, head).iter().zip(want.row(row, head)) {
                assert!(
                    (found - want).abs() <= 0.01 * want.abs().max(0.1),
                    "{name} {row} {head}: {found} {want}"
                );
            }
        }
    }
}

#[test]
fn what_a_gradient_cannot_have_is_refused() {
    let mut kernel: *mut BackwardKernel = null_mut();
    let plain = AttentionDescription { batch: 1, queries: 8, keys: 8, ..description(0) };
    for (words, of) in [
        ("that of Q and K", AttentionDescription { dv: 128, ..plain }),
        ("page is 16", AttentionDescription { page: 16, ..plain }),
        ("flags is 0x8", AttentionDescription { flags: WORKSPACE, ..plain }),
        ("attention-backward", AttentionDescription { d: 72, ..plain }),
    ] {
        // SAFETY: the description is valid.
        assert_ne!(unsafe { falchion_attention_backward_create(&of, &mut kernel) }, OK, "{words}");
        assert!(last().contains(words), "{} has no {words}", last());
    }
}

/// Where packed sequences begin is checked where the host can read it.
#[test]
fn packed_sequences_begin_and_end_in_their_tensors() {
    let all = [8u32, 8];
    let mut rows: [Rows; 9] = core::array::from_fn(|i| Rows::new(8, HEADS[usize::from(i % 3 > 0)], i as u64));
    let [mut o, mut d_o, mut d_q] = [10, 11, 12].map(|seed| Rows::new(8, HEADS[0], seed));
    let mut sums = vec![0f32; HEADS[0] * 8];
    let plain = AttentionDescription { batch: 2, queries: 5, keys: 5, ..description(PACKED) };
    for (words, of_q, of_k) in [
        ("", [0u32, 3, 8], [0u32, 5, 8]),
        ("the beginnings of queries have 9 as number 2, 8 was needed", [0, 3, 9], [0, 5, 8]),
        ("the beginnings of keys have 1000000 as number 2", [0, 3, 8], [0, 5, 1_000_000]),
        ("the beginnings of keys have 0 as number 0 and 6 as the next", [0, 3, 8], [0, 6, 8]),
        ("the beginnings of queries have 1 as number 0", [1, 3, 8], [0, 5, 8]),
        (
            "the beginnings of queries have 0 as number 0 and 4294967295 as the next",
            [0, u32::MAX, 8],
            [0, 5, 8],
        ),
    ] {
        let begins = [of_q.as_ptr().cast(), of_k.as_ptr().cast()];
        let [q, k, v, d_k, d_v] = [0, 1, 2, 4, 5].map(|i| rows[i].at());
        let (o, log_sum_exp) = (o.at(), sums.as_mut_ptr().cast());
        // SAFETY: the structure may be zero.
        let zeros: AttentionArguments = unsafe { core::mem::zeroed() };
        let forward = AttentionArguments { q, k, v, o, log_sum_exp, begins, all, ..zeros };
        let backward = BackwardArguments {
            q,
            k,
            v,
            o,
            d_o: d_o.at(),
            log_sum_exp,
            d_q: d_q.at(),
            d_k,
            d_v,
            workspace: null_mut(),
            workspace_bytes: 0,
            begins,
            all,
            slopes: null(),
            arrays: null(),
            array_count: 0,
            array_size: 0,
        };
        let of_backward = AttentionDescription { args_size: size_of::<BackwardArguments>(), ..plain };
        let (mut kernel, mut gradient) = (null_mut(), null_mut());
        // SAFETY: the structures are valid, and so is the memory that they name.
        let statuses = unsafe {
            assert_eq!(falchion_attention_create(&plain, &mut kernel), OK, "{}", last());
            assert_eq!(falchion_attention_backward_create(&of_backward, &mut gradient), OK, "{}", last());
            let first = (falchion_attention_emulate(kernel, &forward), last());
            let second = (falchion_attention_backward_emulate(gradient, &backward), last());
            falchion_attention_destroy(kernel);
            falchion_attention_backward_destroy(gradient);
            [first, second]
        };
        for (status, message) in statuses {
            match words {
                "" => assert_eq!(status, OK, "{message}"),
                words => assert!(status == INVALID && message.contains(words), "{words}: {status} {message}"),
            }
        }
    }
}
