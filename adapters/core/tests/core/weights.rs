//! Weights in few bits: where codes, scales and zero points of files come to be in memory.

use falchion::collective::{Code, Format, weights};
use falchion_core::{WeightGroups, Weights};

use crate::{bytes, refused, values};

/// Codes of N rows of K, each another one than its neighbours.
fn codes(n: usize, k: usize, most: usize) -> Vec<u8> {
    (0..n * k).map(|i| ((i / k * 5 + i % k * 3) % most) as u8).collect()
}

fn restored(weights: &Weights) -> Vec<u8> {
    weights::restore(weights.spec.code, weights.shape, &weights.units).expect("units")
}

/// Groups are as long as their number says; a line of scales begins at a multiple of 16 bytes.
#[test]
fn groups_of_codes() {
    let n = 20;
    for (k, count, group, lines) in [
        (128, 4, 32, 4),
        (128, 2, 64, 2),
        (256, 2, 128, 2),
        // The last group is not whole.
        (160, 5, 32, 5),
        // One of the file is several of a kernel.
        (512, 2, 128, 4),
        (384, 1, 128, 3),
        // One for less than a group.
        (64, 1, 64, 1),
        (96, 1, 128, 1),
    ] {
        let codes = codes(n, k, 16);
        let scales: Vec<f64> = (0..count * n).map(|i| 1.0 + i as f64 / 64.0).collect();
        let scales = bytes(Format::F16, &scales);
        let shape = [n as u32, k as u32];
        let made = Weights::new(Code::U4, Format::F16, shape, &codes, [Some(&scales), None]);
        let made = made.unwrap_or_else(|error| panic!("K {k}, {count}: {error}"));
        assert_eq!((made.spec.group, made.spec.zeros, made.shape), (group, false, shape), "K {k}, {count}");
        assert_eq!(
            (made.scales.pitch, made.scales.count(), made.zeros.count()),
            (48, lines, 0),
            "K {k}, {count}"
        );
        assert_eq!(restored(&made), codes, "K {k}, {count}");
        // Which line of the file each line is.
        for (at, line) in made.scales.bytes.chunks(48).enumerate() {
            let of = at * count / lines;
            assert_eq!(line[..2 * n], scales[2 * n * of..][..2 * n], "K {k}, {count}: line {at}");
            assert_eq!(line[2 * n..], [0; 8]);
        }
    }
    let none =
        Weights::new(Code::S4, Format::Bf16, [20, 64], &codes(20, 64, 16), [None; 2]).expect("no scales");
    assert_eq!((none.spec.group, none.scales.count(), none.scales.pitch, none.order), (0, 0, 0, None));
}

#[test]
fn sizes_that_do_not_fit() {
    let (n, k) = (20, 256);
    let all = codes(n, k, 16);
    let of = |format, codes: &[u8], scales: Option<usize>, zeros: Option<usize>| {
        let [scales, zeros] = [scales, zeros].map(|count| count.map(|count| vec![0; count]));
        let given = [scales.as_deref(), zeros.as_deref()];
        Weights::new(Code::U4, format, [n as u32, k as u32], codes, given).map(drop)
    };
    for (why, found) in [
        ("weights are multiplied in f32, bf16 or f16 was needed", of(Format::F32, &all, None, None)),
        ("weights are multiplied in s8, bf16 or f16 was needed", of(Format::S8, &all, None, None)),
        ("scales have 81 bytes, lines of 40 were needed", of(Format::Bf16, &all, Some(81), None)),
        ("scales have 0 bytes, lines of 40 were needed", of(Format::Bf16, &all, Some(0), None)),
        // 3 lines of 256.
        ("scales have 120 bytes, lines of 40 were needed", of(Format::Bf16, &all, Some(120), None)),
        ("zero points have 40 bytes, 80 were needed", of(Format::Bf16, &all, Some(80), Some(40))),
        ("zero points have 40 bytes, 0 were needed", of(Format::Bf16, &all, None, Some(40))),
    ] {
        let error = refused(found);
        assert!(error.starts_with(why), "{why}: {error}");
    }
    assert!(of(Format::Bf16, &all, Some(80), Some(80)).is_ok());
    assert!(of(Format::Bf16, &all[1..], None, None).is_err());
}

/// 4-bit codes of a GPTQ file: eight of one column per word.
fn gptq_words(codes: &[u8], [n, k]: [usize; 2]) -> Vec<u8> {
    let word = |line: usize, row: usize| {
        (0..8).fold(0u32, |word, i| word | u32::from(codes[row * k + 8 * line + i]) << (4 * i))
    };
    (0..k / 8).flat_map(|line| (0..n).flat_map(move |row| word(line, row).to_le_bytes())).collect()
}

/// Zero points are stored less one, or as they are; mixed groups are put together.
#[test]
fn gptq() {
    let [n, k] = [16, 128];
    let (codes, format) = (codes(n, k, 16), Format::Bf16);
    let qweight = gptq_words(&codes, [n, k]);
    let scales = bytes(format, &(0..2 * n).map(|i| 1.0 + i as f64 / 32.0).collect::<Vec<_>>());
    // Zero points 0 to 7, twice, in each of two groups.
    let qzeros = 0x7654_3210_u32.to_le_bytes().repeat(2 * n / 8);
    let of = |less, index: Option<&[u8]>, all: [&[u8]; 3]| {
        Weights::gptq((4, less), format, [n as u32, k as u32], WeightGroups { count: 2, index }, all)
    };
    let index = |group: &dyn Fn(usize) -> usize, count: usize| -> Vec<u8> {
        (0..count).flat_map(|place| (group(place) as u32).to_le_bytes()).collect()
    };
    for less in [0, 1] {
        let found =
            of(less, Some(&index(&|place| place / 64, k)), [&qweight, &scales, &qzeros]).expect("a file");
        assert_eq!((found.spec.code, found.spec.group, found.spec.zeros), (Code::U4, 64, true));
        assert_eq!((restored(&found), found.order), (codes.clone(), None));
        let zeros = values(format, &found.zeros.bytes);
        let wanted: Vec<f64> = (0..2 * n).map(|i| (i % 8) as f64 + f64::from(less)).collect();
        assert_eq!(zeros, wanted);
    }
    // Even places are of group 0.
    let mixed = index(&|place| place % 2, k);
    let found = of(1, Some(&mixed), [&qweight, &scales, &qzeros]).expect("a file");
    let order = found.order.clone().expect("mixed");
    assert_eq!(order, (0..k as u32).step_by(2).chain((1..k as u32).step_by(2)).collect::<Vec<_>>());
    let permuted: Vec<u8> =
        codes.chunks(k).flat_map(|row| order.iter().map(|&place| row[place as usize])).collect();
    assert_eq!(restored(&found), permuted);
    let short = refused(of(1, Some(&index(&|_| 0, 100)), [&qweight, &scales, &qzeros]));
    assert_eq!(short, "g_idx has 100 numbers, 128 were needed, one per place along K");
    assert!(of(1, None, [&qweight[4..], &scales, &qzeros]).is_err());
    assert!(of(1, None, [&qweight, &scales, &qzeros[4..]]).is_err());
}

/// AWQ stores eight columns per word, in an order of its own.
#[test]
fn awq() {
    let [n, k] = [16, 64];
    let codes = codes(n, k, 16);
    let word = |of: &dyn Fn(usize) -> u32| {
        [0, 2, 4, 6, 1, 3, 5, 7].into_iter().enumerate().fold(0, |word, (i, at)| word | of(at) << (4 * i))
    };
    let lines = (0..k).flat_map(|line| (0..n / 8).map(move |of| (line, of)));
    let qweight: Vec<u8> = lines
        .flat_map(|(line, of)| word(&|at| codes[(8 * of + at) * k + line].into()).to_le_bytes())
        .collect();
    let qzeros: Vec<u8> = (0..2 * n / 8).flat_map(|_| word(&|at| at as u32).to_le_bytes()).collect();
    let scales = bytes(Format::F16, &[0.5; 32]);
    let found = Weights::awq(Format::F16, [16, 64], 2, [&qweight, &scales, &qzeros]).expect("a file");
    assert_eq!((found.spec.code, found.spec.group, restored(&found)), (Code::U4, 32, codes));
    let wanted: Vec<f64> = (0..32).map(|i| f64::from(i % 8)).collect();
    assert_eq!(values(Format::F16, &found.zeros.bytes), wanted);
    assert!(Weights::awq(Format::F16, [16, 64], 2, [&qweight[4..], &scales, &qzeros]).is_err());
}

/// MXFP4's scales are a column per group in the file, and a line in memory.
#[test]
fn mxfp4() {
    let [n, k] = [20, 96];
    let codes = codes(n, k, 16);
    let blocks: Vec<u8> = codes.chunks(2).map(|two| two[0] | two[1] << 4).collect();
    let scales: Vec<u8> = (0..n * 3).map(|i| 100 + i as u8).collect();
    let found = Weights::mxfp4(Format::Bf16, [20, 96], [&blocks, &scales]).expect("a file");
    assert_eq!((found.spec.code, found.spec.group, restored(&found)), (Code::E2m1, 32, codes));
    assert_eq!((found.scales.pitch, found.scales.count()), (32, 3));
    for (group, line) in found.scales.bytes.chunks(32).enumerate() {
        let wanted: Vec<u8> = (0..n).map(|row| scales[row * 3 + group]).collect();
        assert_eq!(line[..n], wanted, "{group}");
    }
    let few = refused(Weights::mxfp4(Format::Bf16, [20, 96], [&blocks, &scales[1..]]));
    assert_eq!(few, "scales have 59 bytes, 60 were needed: one per 32 of K");
    let other = refused(Weights::mxfp4(Format::F16, [20, 96], [&blocks, &scales]));
    assert_eq!(other, "MXFP4 is multiplied in f16, bf16 was needed, which holds its scales");
}

/// A scale per 128 x 128 becomes one per row and 128 of K; the last blocks are not whole.
#[test]
fn fp8() {
    let [n, k] = [144, 256];
    let codes = codes(n, k, 64);
    let scales = [1.0, 2.0, 3.0, 4.0];
    let found = Weights::fp8(Format::Bf16, [144, 256], &codes, &scales).expect("a file");
    assert_eq!((found.spec.code, found.spec.group, restored(&found)), (Code::E4m3, 128, codes.clone()));
    let lines: Vec<Vec<f64>> =
        found.scales.bytes.chunks(found.scales.pitch).map(|line| values(Format::Bf16, line)).collect();
    for (block, line) in lines.iter().enumerate() {
        for (row, &scale) in line[..n].iter().enumerate() {
            assert_eq!(scale, f64::from(scales[row / 128 * 2 + block]), "block {block}, row {row}");
        }
    }
    let few = refused(Weights::fp8(Format::Bf16, [144, 256], &codes, &scales[1..]));
    assert_eq!(few, "there are 3 scales, 4 were needed: one per 128 x 128");
}
