//! The device compresses sparse operands bit for bit as the host does, and both refuse the same chunk.

#[cfg(feature = "driver")]
#[path = "support/skipped.rs"]
mod skipped;

use collective::sparse::{self, SparseError};
use collective::{Format, MatrixRef};
use emulator::Schedule;
use kernel::{Compress, Compression, Emulator, Engine, Kernel, LaunchError};

/// A matrix to compress on both sides.
struct Case {
    format: Format,
    rows: u32,
    k: u32,
    /// Row-major.
    elements: Vec<u32>,
}

fn memory(format: Format, elements: impl Iterator<Item = u32>) -> Vec<u8> {
    let bytes = format.bytes() as usize;
    elements.flat_map(|element| element.to_le_bytes().into_iter().take(bytes)).collect()
}

/// Numbers of elements between rows, and before the first row.
#[derive(Clone, Copy)]
struct Gaps {
    dense: [u32; 2],
    values: [u32; 2],
    blocks: u32,
}

const POISON: u8 = 0xa5;

impl Case {
    /// Compresses on both sides and compares all of the device's memory.
    fn check(&self, engine: &mut dyn Engine, gaps: Gaps) -> Result<(), SparseError> {
        let Self { format, rows, k, elements } = self;
        let (format, rows, k) = (*format, *rows, *k);
        let (bytes, kept) = (format.bytes(), sparse::kept(format, k));
        let line = |[before, beside]: [u32; 2], contiguous: u32| (before, contiguous + beside);
        let (dense_before, dense_pitch) = line(gaps.dense, k);
        let (values_before, values_pitch) = line(gaps.values, kept);
        let mut dense = vec![u32::MAX; (dense_before + rows * dense_pitch) as usize];
        for (row, line) in elements.chunks(k.max(1) as usize).enumerate() {
            let at = dense_before as usize + row * dense_pitch as usize;
            dense[at..at + line.len()].copy_from_slice(line);
        }
        let words = sparse::metadata_ld(format, k) as u32;
        let (blocks, ld) = (rows.div_ceil(sparse::ROWS), words + gaps.blocks);
        let from = engine.upload(&memory(format, dense.into_iter())).expect("memory");
        let mut wanted = vec![POISON; ((values_before + rows * values_pitch) * bytes) as usize + 32];
        let mut wanted_words = vec![POISON; (blocks * ld) as usize * 4 + 32];
        let values = engine.upload(&wanted).expect("memory");
        let metadata = engine.upload(&wanted_words).expect("memory");
        let found = engine.upload(&Compress::NOTHING).expect("memory");
        let at = |address: u64, before: u32, ld: u32| {
            MatrixRef::new(address + u64::from(before * bytes), ld.into())
        };
        let what = Compression {
            rows,
            k,
            dense: at(from.address, dense_before, dense_pitch),
            values: at(values.address, values_before, values_pitch),
            metadata: MatrixRef::new(metadata.address, ld.into()),
            found: found.address,
        };
        let compress = Compress::of(format).expect("a format of operands");
        let time = compress.run(engine, &what).unwrap_or_else(|error| panic!("{error}"));
        assert_eq!(time.is_none(), rows == 0 || k == 0);
        let verdict = compress.check(k, &engine.read(found).expect("read"));
        let host = sparse::compress(format, [rows, k], elements);
        if let Ok(host) = &host {
            for (row, line) in host.values.chunks(kept.max(1) as usize).enumerate() {
                let line = memory(format, line.iter().copied());
                let at = ((values_before + row as u32 * values_pitch) * bytes) as usize;
                wanted[at..at + line.len()].copy_from_slice(&line);
            }
            for (block, line) in host.metadata.chunks(words.max(1) as usize).enumerate() {
                let line: Vec<u8> = line.iter().flat_map(|word| word.to_le_bytes()).collect();
                let at = block * ld as usize * 4;
                wanted_words[at..at + line.len()].copy_from_slice(&line);
            }
            assert!(engine.read(values).expect("read") == wanted, "values of {format} {rows} x {k}");
            assert!(
                engine.read(metadata).expect("read") == wanted_words,
                "metadata of {format} {rows} x {k}"
            );
        }
        for buffer in [from, values, metadata, found] {
            engine.free(buffer).expect("the engine's");
        }
        let host = host.map(|_| ());
        assert_eq!(verdict, host, "{format} {rows} x {k}");
        host
    }
}

/// Packed, with rows padded to multiples of 16 B.
fn packed(format: Format, k: u32) -> Gaps {
    let of_line = 16 / format.bytes();
    let rest = |extent: u32| extent.next_multiple_of(of_line) - extent;
    Gaps { dense: [0, rest(k)], values: [0, rest(sparse::kept(format, k))], blocks: 0 }
}

/// Zeros of either sign, NaN and other values. Integers have only one zero.
fn kinds(format: Format) -> Vec<u32> {
    let sign = 1u32 << (format.bits() - 1);
    let mask = if format.bits() == 32 { u32::MAX } else { (1 << format.bits()) - 1 };
    // The smallest non-zero value; a NaN of every float; bits below those that `tf32` multiplies.
    vec![0, sign, 1, sign | 1, mask, mask ^ sign]
}

/// Every chunk with zeros, -0, the smallest value, NaN and others in each position. Chunks with too many
/// non-zero values are found one by one.
fn chunks(engine: &mut dyn Engine) {
    for format in Format::operands() {
        let (kinds, chunk) = (kinds(format), sparse::chunk(format) as usize);
        let all = kinds.len().pow(chunk as u32);
        let of = |mut number: usize| -> Vec<u32> {
            (0..chunk)
                .map(|_| {
                    let kind = kinds[number % kinds.len()];
                    number /= kinds.len();
                    kind
                })
                .collect()
        };
        let worth = |bits: &u32| format.decode(u64::from(*bits)) != 0.0;
        let (legal, dense): (Vec<Vec<u32>>, Vec<Vec<u32>>) = (0..all)
            .map(of)
            .partition(|chunk| chunk.iter().filter(|&bits| worth(bits)).count() * 2 <= chunk.len());
        assert!(legal.len() > 4 && dense.len() > 4, "{format}");
        // All legal chunks in one matrix.
        let k = 16 * chunk as u32;
        let mut elements: Vec<u32> = legal.concat();
        elements.resize(elements.len().next_multiple_of(k as usize), 0);
        let rows = elements.len() as u32 / k;
        let mut case = Case { format, rows, k, elements };
        assert_eq!(case.check(engine, packed(format, k)), Ok(()), "{format}");
        // Each of the other chunks in its own position, alone and together with a later one.
        for (i, dense) in dense.iter().enumerate().step_by(7) {
            let before = case.elements.clone();
            let place = i * 13 % (case.elements.len() / chunk);
            case.elements[place * chunk..][..chunk].copy_from_slice(dense);
            if i % 2 == 1 {
                let last = case.elements.len() - chunk;
                case.elements[last..].copy_from_slice(dense);
            }
            let (row, column) = ((place * chunk) as u32 / k, (place * chunk) as u32 % k);
            let error = SparseError::Dense { row, column, chunk: chunk as u32 };
            assert_eq!(case.check(engine, packed(format, k)), Err(error), "{format} {dense:?}");
            case.elements = before;
        }
    }
}

/// Pruned matrices of any extents, with rows at any address.
fn shapes(engine: &mut dyn Engine) {
    let mut random = 1u32;
    let mut draw = move || {
        random = random.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        random >> 8
    };
    for format in Format::operands() {
        let mask = if format.bits() == 32 { u32::MAX } else { (1 << format.bits()) - 1 };
        for [rows, k] in [
            [1, 1],
            [1, 64],
            [64, 64],
            [65, 128],
            [63, 66],
            [9, 31],
            [130, 200],
            [7, 3],
            [129, 97],
            [0, 8],
            [8, 0],
        ] {
            let mut element = || match draw() % 4 {
                0 => 0,
                1 if format.is_float() => 1 << (format.bits() - 1),
                _ => (draw() << 8 ^ draw()) & mask,
            };
            let mut elements: Vec<u32> = (0..rows * k).map(|_| element()).collect();
            sparse::prune(format, [rows, k], &mut elements).expect("a format of operands");
            let case = Case { format, rows, k, elements };
            for gaps in [
                packed(format, k),
                Gaps { dense: [0, 0], values: [0, 0], blocks: 128 },
                Gaps { dense: [1, 3], ..packed(format, k) },
                Gaps { values: [3, 1], ..packed(format, k) },
            ] {
                assert_eq!(case.check(engine, gaps), Ok(()), "{format} {rows} x {k}");
            }
        }
    }
}

#[test]
fn every_chunk_is_as_on_the_host() {
    chunks(&mut Emulator::new());
}

#[test]
fn every_shape_is_as_on_the_host() {
    shapes(&mut Emulator::new());
}

#[cfg(feature = "driver")]
#[test]
fn a_card_does_the_same() {
    match kernel::Gpu::new(0) {
        Ok(mut gpu) => {
            chunks(&mut gpu);
            shapes(&mut gpu);
        }
        Err(_) => skipped::skipped("GPU"),
    }
}

#[test]
fn no_schedule_finds_a_hazard() {
    for (schedule, seed) in Schedule::sweep(4) {
        let mut engine = Emulator::new().with_schedule(schedule, seed);
        for format in [Format::Bf16, Format::S8, Format::Tf32] {
            let (rows, k) = (70, 130);
            let mut elements: Vec<u32> = (0..rows * k).map(|i| i % 113 + 1).collect();
            sparse::prune(format, [rows, k], &mut elements).expect("a format of operands");
            let mut case = Case { format, rows, k, elements };
            assert_eq!(case.check(&mut engine, packed(format, k)), Ok(()));
            // Several dense chunks, of which the first is found.
            for row in [69, 40, 3] {
                case.elements[(row * k + 8) as usize..][..4].fill(7);
            }
            let chunk = sparse::chunk(format);
            assert_eq!(
                case.check(&mut engine, packed(format, k)),
                Err(SparseError::Dense { row: 3, column: 8, chunk })
            );
        }
    }
}

#[test]
fn what_cannot_be_compressed_is_refused() {
    assert_eq!(Compress::of(Format::F32), Err(SparseError::Format { format: Format::F32 }));
    let compress = Compress::of(Format::Bf16).expect("a format of operands");
    let legal = Compression {
        rows: 100,
        k: 200,
        dense: MatrixRef::new(1 << 16, 200),
        values: MatrixRef::new(1 << 20, 100),
        metadata: MatrixRef::new(1 << 21, 512),
        found: 4096,
    };
    assert_eq!(compress.launch(&legal, 1).expect("legal").expect("not empty").grid.ctas, [8, 1, 1]);
    for (what, words) in [
        (Compression { k: 1 << 31, ..legal }, "K is 2147483648, it must be below"),
        (Compression { dense: MatrixRef::NONE, ..legal }, "the dense operand is a null pointer"),
        (
            Compression { dense: MatrixRef::new(1 << 16, 199), ..legal },
            "leading dimension is 199 elements, at least 200",
        ),
        (
            Compression { values: MatrixRef::new(4097, 100), ..legal },
            "the values matrix begins at 0x1001, a multiple of 2 B",
        ),
        (
            Compression { values: MatrixRef::new(4096, 99), ..legal },
            "the values matrix's leading dimension is 99 elements, at least 100",
        ),
        (
            Compression { metadata: MatrixRef::new(4096, 384), ..legal },
            "the metadata's leading dimension is 384 elements, at least 512",
        ),
        (Compression { found: 0, ..legal }, "the report is a null pointer"),
        (Compression { found: 4100, ..legal }, "begins at 0x1004, a multiple of 8 B"),
    ] {
        let error = compress.launch(&what, 1).expect_err(words).to_string();
        assert!(error.contains(words), "`{words}`: {error}");
    }
    let huge = Compression {
        rows: i32::MAX as u32,
        k: i32::MAX as u32,
        dense: MatrixRef::new(4096, 1 << 31),
        values: MatrixRef::new(4096, 1 << 31),
        metadata: MatrixRef::new(4096, 1 << 36),
        found: 4096,
    };
    // There is no room for it in 64 bits.
    assert!(matches!(
        compress.launch(&huge, 1),
        Err(LaunchError::Grid { .. } | LaunchError::Shared { .. } | LaunchError::End { .. })
    ));
    let short = SparseError::Elements { what: "bytes of the report", rows: 1, k: 200, found: 4, needed: 8 };
    assert_eq!(compress.check(200, &[0; 4]), Err(short));
}
