//! Kernels over rows of heads at other strides than a check's, in place, and under several schedules; and slots that are none.

use emulator::Schedule;
use kernel::{Buffer, Emulator, Engine, Kernel};
use reference::Format;
use rows::{AppendedPages, MergedAttention, RowAppendPages, RowMergeAttention};

use collective::heads::HeadsRef;

/// What tells an element that was not written.
const POISON: f64 = -77.0;

fn upload(engine: &mut Emulator, format: Format, values: &[f64]) -> Buffer {
    let bytes: Vec<u8> = values.iter().flat_map(|value| bytes_of(format, *value)).collect();
    engine.upload(&bytes).expect("memory")
}

fn bytes_of(format: Format, value: f64) -> Vec<u8> {
    format.round(value).to_le_bytes()[..format.bytes() as usize].to_vec()
}

fn read(engine: &mut Emulator, format: Format, buffer: Buffer) -> Vec<f64> {
    format.values(&engine.read(buffer).expect("a buffer"))
}

/// Strides of `(batch, heads, rows, d)` in this order of dimensions, the innermost last, with a gap after each row; and elements in all.
fn placed([batch, heads, rows, d]: [u32; 4], order: [usize; 3], gap: u64) -> (HeadsRef, u64) {
    let (counts, mut strides, mut next) = ([rows, heads, batch].map(u64::from), [0; 3], u64::from(d) + gap);
    for i in order {
        strides[i] = next;
        next *= counts[i];
    }
    let [row, head, batch] = strides;
    (HeadsRef { address: 0, row, head, batch }, next)
}

/// The first element of a row of a head of a sequence.
fn first(of: &HeadsRef, [batch, head, row]: [u32; 3]) -> usize {
    (u64::from(batch) * of.batch + u64::from(head) * of.head + u64::from(row) * of.row) as usize
}

fn places([batch, heads, rows, _]: [u32; 4]) -> impl Iterator<Item = [u32; 3]> {
    (0..batch).flat_map(move |i| (0..heads).flat_map(move |j| (0..rows).map(move |k| [i, j, k])))
}

/// In place or not, whatever the strides: what formulas in f64 say. A row without keys is not read, and the other one is kept bit for bit.
#[test]
fn results_of_attention_are_merged_at_any_strides() {
    let mut random = fastrand::Rng::with_seed(5);
    let cases = [
        ([2, 3, 7, 40], Format::Bf16, [0, 1, 2], 0),
        ([2, 3, 7, 40], Format::F16, [1, 0, 2], 8),
        ([3, 2, 5, 264], Format::F32, [2, 0, 1], 4),
        ([1, 5, 70, 8], Format::Bf16, [1, 2, 0], 16),
    ];
    for ((shape, format, order, gap), place) in cases.into_iter().flat_map(|of| [0, 1, 2].map(|i| (of, i))) {
        let seed = random.u64(..);
        let mut engine = Emulator::new().with_schedule(Schedule::Random, seed);
        let (at, count) = placed(shape, order, gap);
        let sums: [Vec<f64>; 2] = [0, 1].map(|_| {
            let sum = |_| {
                [f64::NEG_INFINITY, f64::from(random.f32() * 20.0 - 10.0)][usize::from(random.u8(..4) > 0)]
            };
            places(shape).map(sum).collect()
        });
        let from: [Vec<f64>; 2] = [0, 1].map(|i| {
            let mut all = vec![POISON; count as usize];
            for (number, place) in places(shape).enumerate() {
                for element in &mut all[first(&at, place)..][..shape[3] as usize] {
                    let x = format.values(&bytes_of(format, random.f64() * 2.0 - 1.0))[0];
                    *element = if sums[i][number] == f64::NEG_INFINITY { f64::NAN } else { x };
                }
            }
            all
        });
        let own = [0, 1].map(|i| upload(&mut engine, format, &from[i]));
        let of_sums = [0, 1].map(|i| upload(&mut engine, Format::F32, &sums[i]));
        let o = *own.get(place).unwrap_or(&upload(&mut engine, format, &vec![POISON; count as usize]));
        let all =
            *of_sums.get(place).unwrap_or(&upload(&mut engine, Format::F32, &vec![POISON; sums[0].len()]));
        let call = MergedAttention {
            shape,
            results: own.map(|buffer| HeadsRef { address: buffer.address, ..at }),
            sums: of_sums.map(|buffer| buffer.address),
            o: HeadsRef { address: o.address, ..at },
            log_sum_exp: all.address,
        };
        let kernel = RowMergeAttention(collective::Format::named(format.name()).expect("a format"));
        kernel.run(&mut engine, &call).unwrap_or_else(|error| panic!("{shape:?}: {error}"));
        let (found, all) = (read(&mut engine, format, o), read(&mut engine, Format::F32, all));
        let mut gaps = vec![true; count as usize];
        for (number, place) in places(shape).enumerate() {
            let [a, b] = [0, 1].map(|i| sums[i][number]);
            let most = a.max(b);
            let weights = [a, b].map(|sum| if sum == f64::NEG_INFINITY { 0.0 } else { (sum - most).exp() });
            let sum = weights[0] + weights[1];
            let want = if sum > 0.0 { most + sum.ln() } else { f64::NEG_INFINITY };
            let alone = a == f64::NEG_INFINITY || b == f64::NEG_INFINITY;
            let exact = |tolerance: f64| if alone { 0.0 } else { tolerance };
            assert!(
                all[number] == want || (all[number] - want).abs() <= exact(1e-5),
                "{}: {want}",
                all[number]
            );
            for at in first(&at, place)..first(&at, place) + shape[3] as usize {
                gaps[at] = false;
                let x = |i: usize| if weights[i] == 0.0 { 0.0 } else { from[i][at] * weights[i] / sum };
                let (want, ulp) = (x(0) + x(1), if format == Format::F32 { 1e-6 } else { 1.0 / 128.0 });
                assert!(
                    (found[at] - want).abs() <= exact(ulp),
                    "{shape:?} {format:?} {at}: {} {want}",
                    found[at]
                );
            }
        }
        assert!(
            (0..count as usize).all(|at| !gaps[at] || found[at] == POISON),
            "{shape:?}: a gap was written"
        );
    }
}

/// A result that shares some bytes with another one, and rows that are not whole vectors, are refused.
#[test]
fn what_cannot_be_merged_is_refused() {
    let kernel = RowMergeAttention(collective::Format::Bf16);
    let of = |address| HeadsRef::heads_first(address, [2, 4, 64]);
    let call = MergedAttention {
        shape: [1, 2, 4, 64],
        results: [of(0x10000), of(0x20000)],
        sums: [0x30000, 0x40000],
        o: of(0x50000),
        log_sum_exp: 0x60000,
    };
    assert!(kernel.launch(&call, 132).is_ok_and(|launch| launch.is_some()));
    for (call, words) in [
        (MergedAttention { o: of(0x10080), ..call }, "O"),
        (MergedAttention { o: HeadsRef::length_first(0x10000, [2, 4, 64]), ..call }, "O"),
        (MergedAttention { log_sum_exp: 0x30004, ..call }, "the log-sum-exp"),
        (
            MergedAttention { shape: [1, 2, 4, 60], ..call },
            "a head of O_a has 60 elements, a multiple of 8 was needed",
        ),
        (MergedAttention { o: of(0x50008), ..call }, "O"),
        (MergedAttention { o: HeadsRef { row: 68, ..of(0x50000) }, ..call }, "O"),
        (MergedAttention { shape: [1 << 12, 1 << 12, 1 << 12, 64], ..call }, "68719476736 rows were given"),
    ] {
        let refused = kernel.launch(&call, 132).map_err(|error| error.to_string());
        assert!(refused.as_ref().is_err_and(|error| error.contains(words)), "{refused:?}: {words}");
    }
}

/// A cache of 3 pages of 5 keys for two heads, with gaps; its slots may have 64 bits.
fn appended(slots: &[i64], wide: bool) -> Result<[Vec<f64>; 2], String> {
    let (format, mut engine) = (Format::Bf16, Emulator::new().with_schedule(Schedule::Random, 3));
    let (rows, heads, columns) = (slots.len() as u32, 2, [24, 8]);
    let shapes = columns.map(|d| ([1, heads, rows, d], [3, heads, 5, d]));
    let number = |i: usize| ((i * 7) % 251) as f64;
    // K has its heads after its rows, V before; keys of a page follow each other in K's cache, and heads in V's.
    let orders = [([1, 0, 2], [0, 1, 2]), ([0, 1, 2], [1, 0, 2])];
    let [k, v] = [0, 1].map(|i| {
        let ((new, cache), (of_new, of_cache)) = (shapes[i], orders[i]);
        let ((new_at, new_count), (cache_at, cache_count)) =
            (placed(new, of_new, 8), placed(cache, of_cache, 8));
        let elements: Vec<f64> = (0..new_count as usize).map(number).collect();
        let from = upload(&mut engine, format, &elements);
        let to = upload(&mut engine, format, &vec![POISON; cache_count as usize]);
        (elements, new_at, from, cache_at, to)
    });
    let bytes = slots.iter().flat_map(|slot| slot.to_le_bytes()[..if wide { 8 } else { 4 }].to_vec());
    let slots_at = engine.upload(&bytes.collect::<Vec<u8>>()).expect("memory");
    let at = |of: &HeadsRef, buffer: Buffer| HeadsRef { address: buffer.address, ..*of };
    let call = AppendedPages {
        rows,
        heads,
        columns,
        pages: [3, 5],
        new: [at(&k.1, k.2), at(&v.1, v.2)],
        caches: [at(&k.3, k.4), at(&v.3, v.4)],
        slots: slots_at.address,
        wide,
    };
    let known = call.check(slots);
    let run = RowAppendPages(collective::Format::Bf16).run(&mut engine, &call);
    assert_eq!(known.is_ok(), run.is_ok(), "{known:?} {run:?}");
    run.map_err(|error| format!("{}; {error}", known.expect_err("it is wrong")))?;
    Ok([(k, 0), (v, 1)].map(|((elements, from, _, at, to), i)| {
        let (found, columns) = (read(&mut engine, format, to), columns[i] as usize);
        let mut want = vec![POISON; found.len()];
        for (row, slot) in (0..).zip(slots).filter(|(_, slot)| **slot >= 0) {
            for head in 0..heads {
                let line = &elements[first(&from, [0, head, row])..][..columns];
                let place = [*slot as u32 / 5, head, *slot as u32 % 5];
                want[first(&at, place)..][..columns].copy_from_slice(line);
            }
        }
        assert_eq!(found, want, "{slots:?} {wide}");
        found
    }))
}

/// Rows go where their slots say, at any strides, and nothing else of the cache is written.
#[test]
fn keys_are_appended_at_any_strides() {
    for slots in
        [&[0][..], &[14, 3, -1, 7, 0], &[-1, -1], &[4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 0, 1, 2, 3]]
    {
        for wide in [false, true] {
            appended(slots, wide).unwrap_or_else(|error| panic!("{slots:?}: {error}"));
        }
    }
}

/// A slot that is not in the cache is a trap with a name. Of slots that the host knows it says so, and which rows have the same.
#[test]
fn slots_of_no_key_trap() {
    let outside = "a slot that is not in the cache";
    for (slots, wide, words) in [
        (&[3, 15][..], false, ["slot 15 of row 1 is not in the cache of 15 keys, -1 or", outside]),
        (&[-2], false, ["slot -2 of row 0 is not in the cache", outside]),
        (&[-2], true, ["slot -2 of row 0 is not in the cache", outside]),
        (&[2, 1 << 32], true, ["slot 4294967296 of row 1 is not in the cache", outside]),
        (&[0xFFFF_FFFF], true, ["slot 4294967295 of row 0 is not in the cache", outside]),
    ] {
        let error = appended(slots, wide).expect_err("a wrong slot");
        assert!(words.iter().all(|words| error.contains(words)), "{slots:?}: {error}");
    }
    let cache = AppendedPages { pages: [3, 5], ..AppendedPages::default() };
    let twice = "rows 1 and 3 both have slot 7, another one for each was needed";
    assert_eq!(cache.check(&[1, 7, -1, 7, -1]), Err(twice.to_owned()));
}

/// Caches that share memory with what is appended, or are too large, are refused.
#[test]
fn what_cannot_be_appended_is_refused() {
    let of = |address| HeadsRef::length_first(address, [2, 9, 64]);
    let cache = |address| HeadsRef::heads_first(address, [2, 16, 64]);
    let call = AppendedPages {
        rows: 9,
        heads: 2,
        columns: [64, 64],
        pages: [3, 16],
        new: [of(0x10000), of(0x20000)],
        caches: [cache(0x30000), cache(0x40000)],
        slots: 0x50000,
        wide: true,
    };
    let kernel = RowAppendPages(collective::Format::F16);
    assert!(kernel.launch(&call, 132).is_ok_and(|launch| launch.is_some()));
    let none = AppendedPages { rows: 0, new: [HeadsRef::default(); 2], slots: 0, ..call };
    assert!(kernel.launch(&none, 132).is_ok_and(|launch| launch.is_none()));
    for (call, words) in [
        (AppendedPages { caches: [cache(0x10000), cache(0x40000)], ..call }, "the cache of K"),
        (AppendedPages { caches: [cache(0x30000), cache(0x30000)], ..call }, "the cache of K"),
        (AppendedPages { caches: [cache(0x30000), cache(0x4FF00)], ..call }, "the slots"),
        (
            AppendedPages { pages: [1 << 16, 1 << 16], ..call },
            "the cache has 4294967296 keys, at most 4294967294",
        ),
        (
            AppendedPages { columns: [64, 60], ..call },
            "a head of V has 60 elements, a multiple of 8 was needed",
        ),
        (AppendedPages { slots: 0x50004, ..call }, "the slots"),
        (AppendedPages { rows: 1 << 30, ..call }, "17179869184 vectors of 16 bytes were given"),
    ] {
        let refused = kernel.launch(&call, 132).map_err(|error| error.to_string());
        assert!(refused.as_ref().is_err_and(|error| error.contains(words)), "{refused:?}: {words}");
    }
}
