//! The comparison of a GEMM with its reference: each mistake is found, and nothing else.

use kernel::Buffer;
use ptx::abi::{Argument, Grid};

use super::*;
use crate::verify::matrix::Distribution;
use crate::verify::tampered::{Mistake, Tampered, edge};
use crate::verify::{Format, HostMatrix};

#[test]
fn kernels_and_the_oracle_have_the_same_formats() {
    let of_oracle = collective::Format::ALL.map(|format| Format::named(format.name()));
    assert_eq!(of_oracle.map(|format| format.map(of_kernels)), collective::Format::ALL.map(Some));
    assert_eq!(Format::ALL.len(), of_oracle.len());
}

/// An engine that writes `writes` to D, the third buffer, and computes nothing.
struct Sloppy {
    buffers: Vec<Vec<u8>>,
    writes: Vec<(usize, u16)>,
}

impl Engine for Sloppy {
    fn describe(&self) -> String {
        "one that computes nothing".to_owned()
    }

    fn multiprocessors(&self) -> u32 {
        1
    }

    fn allocate(&mut self, bytes: usize) -> Result<Buffer, EngineError> {
        self.buffers.push(vec![0; bytes]);
        Ok(Buffer { address: 256 * self.buffers.len() as u64, bytes })
    }

    fn write(&mut self, buffer: Buffer, bytes: &[u8]) -> Result<(), EngineError> {
        self.buffers[buffer.address as usize / 256 - 1][..bytes.len()].copy_from_slice(bytes);
        Ok(())
    }

    fn read(&mut self, buffer: Buffer) -> Result<Vec<u8>, EngineError> {
        Ok(self.buffers[buffer.address as usize / 256 - 1].clone())
    }

    fn free(&mut self, _: Buffer) -> Result<(), EngineError> {
        Ok(())
    }

    fn launch(&mut self, _: &Program, _: Grid, _: &[Argument]) -> Result<Duration, EngineError> {
        for &(place, bits) in &self.writes {
            self.buffers[2][place * 2..place * 2 + 2].copy_from_slice(&bits.to_le_bytes());
        }
        Ok(Duration::ZERO)
    }
}

/// A 2 x 8 GEMM whose D is NaN everywhere. D is eight elements after an aligned address, with rows of ten
/// elements.
fn mismatch(writes: Vec<(usize, u16)>) -> Option<Mismatch> {
    let mut random = fastrand::Rng::with_seed(1);
    let mut fill =
        |extents, order| HostMatrix::random(Format::Bf16, extents, order, 8, Distribution::Nan, &mut random);
    let (a, b) = (fill([2, 8], Order::RowMajor), fill([8, 8], Order::ColumnMajor));
    let sums = Sums::of(&a, &b, &|_| ());
    let product = GemmCase { d_ld: 10, d_offset: 8, ..GemmCase::new(a, b) };
    let entry = kernel::find("64x64-direct-bf16-kk").expect("a catalogue name");
    let program = entry.program().expect("a legal program");
    let mut engine = Sloppy { buffers: Vec::new(), writes };
    product.run(&entry, &program, &mut engine, &sums).expect("runs").mismatch
}

#[test]
fn what_was_not_written_or_should_not_have_been() {
    const NAN: u16 = 0x7fff;
    let all: Vec<_> = (0..2).flat_map(|row| (0..8).map(move |column| (8 + row * 10 + column, NAN))).collect();
    let with = |place, bits| [&all[..], &[(place, bits)]].concat();
    let beside = |place, got| Some(Mismatch::Beside { place, got });
    for (why, writes, want) in [
        ("NaN where NaN is expected", all.clone(), None),
        ("nothing written", Vec::new(), Some(Mismatch::Unwritten { row: 0, column: 0 })),
        ("all but the last", all[..15].to_vec(), Some(Mismatch::Unwritten { row: 1, column: 7 })),
        ("just before D", with(7, 0x3f80), beside(-1, 1.0)),
        ("in a row's padding", with(8 + 9, 0x3f80), beside(9, 1.0)),
        ("behind D", with(8 + 20, 0x4000), beside(20, 2.0)),
    ] {
        assert_eq!(mismatch(writes), want, "{why}");
    }
    let Some(Mismatch::Value { row: 1, column: 2, .. }) = mismatch(with(8 + 12, 0x3f80)) else {
        panic!("a number for NaN is a wrong value");
    };
}

/// A result is right up to its bound, and not beyond; and a later run must have the same bits.
#[test]
fn a_bound_is_reached_and_not_exceeded() {
    let mut random = fastrand::Rng::with_seed(2);
    let mut fill = |extents, order| {
        HostMatrix::random(Format::Bf16, extents, order, 8, Distribution::Normal, &mut random)
    };
    let (a, b) = (fill([20, 72], Order::RowMajor), fill([72, 40], Order::ColumnMajor));
    let entry = kernel::find("64x64-direct-bf16-kk").expect("a catalogue name");
    let (program, product) = (entry.program().expect("a legal program"), GemmCase::new(a, b));
    let sums = product.sums(accumulators(&entry), &|_| ());
    let run = |mistakes| {
        // D follows A and B.
        let mut engine = Tampered::new(2, mistakes);
        product.run(&entry, &program, &mut engine, &sums).expect("runs")
    };
    let right = run(Vec::new());
    assert_eq!((right.mismatch, right.compared), (None, 800));
    assert!(right.ratio > 0.5 && right.ratio <= 1.0, "{}", right.ratio);
    for [row, column] in [[0, 0], [7, 13], [19, 39]] {
        let sum = sums.sums[row * 40 + column];
        let expected = Expected::new(Format::Bf16, 72, [1.0, 0.0], sum, None);
        let at = |bits| Mistake::element(Format::Bf16, (row * 40 + column) * 2, bits);
        let [last, next] = edge(Format::Bf16, expected.value, expected.bound);
        let (within, beyond) = (run(at(last)), run(at(next)));
        assert_eq!(within.mismatch, None, "({row}, {column})");
        let place = [row as u32, column as u32];
        let found =
            matches!(beyond.mismatch, Some(Mismatch::Value { row, column, .. }) if [row, column] == place);
        assert!(found, "({row}, {column}): {:?}", beyond.mismatch);
        assert!(beyond.ratio > 1.0, "{}", beyond.ratio);
    }
}

/// Integers that no accumulator holds are right modulo 2^32, and said to be wrapped.
#[test]
fn integers_that_wrap_are_told() {
    let of = |value: f64| move |_, _| value;
    let entry = "dtype=s8".parse::<kernel::KernelSpec>().expect("a spec").kernel().expect("legal");
    let [.., format] = formats(&entry);
    for (k, wraps) in [(131_072, false), (133_184, true)] {
        let a = HostMatrix::from_fn(Format::S8, [1, k], Order::RowMajor, k, of(-128.0));
        let b = HostMatrix::from_fn(Format::S8, [k, 8], Order::ColumnMajor, k, of(-127.0));
        let product = GemmCase::new(a, b);
        let sums = product.sums(accumulators(&entry), &|_| ());
        let mut outcome = Outcome {
            time: None,
            transposed: None,
            ratio: 0.0,
            error: 0.0,
            bound: 0.0,
            compared: 0,
            mismatch: None,
            wrapped: None,
            d: Vec::new(),
        };
        let d: Vec<u64> = sums.sums.iter().map(|sum| format.round(sum.value)).collect();
        assert_eq!(product.compare(format, &sums, &d, &mut outcome), None, "K {k}");
        let exact = f64::from(k) * 128.0 * 127.0;
        let want = wraps.then_some(Wrapped { row: 0, column: 0, exact });
        assert_eq!(outcome.wrapped, want, "K {k}");
    }
}

/// D begins as poison, with poison around it; or as C, if it overwrites C.
#[test]
fn d_is_poison_or_c_before_a_run() {
    let matrix = |extents, order, ld| {
        HostMatrix::from_fn(Format::Bf16, extents, order, ld, |row, column| f64::from(row * 16 + column))
    };
    let (a, b) = (matrix([3, 8], Order::RowMajor, 8), matrix([8, 5], Order::ColumnMajor, 8));
    let own = GemmCase { d_ld: 7, d_offset: 2, ..GemmCase::new(a, b) };
    for order in [Order::RowMajor, Order::ColumnMajor] {
        for (why, in_place, c) in [
            ("D = AB", false, None),
            ("C is elsewhere", false, Some(matrix([3, 5], order, 6))),
            ("no C", true, None),
            ("D is C", true, Some(matrix([3, 5], order, 6))),
        ] {
            let is_c = in_place && c.is_some();
            let before = GemmCase { in_place, c, ..own.clone() }.d_before(Format::Bf16);
            assert_eq!(before.len(), 2 + 3 * 7 + GUARD, "{why}");
            for (at, bits) in before.into_iter().enumerate() {
                let [row, column] = [at.saturating_sub(2) / 7, at.saturating_sub(2) % 7];
                let inside = is_c && at >= 2 && row < 3 && column < 5;
                let want = if inside {
                    Format::Bf16.round((row * 16 + column) as f64)
                } else {
                    Format::Bf16.poison()
                };
                assert_eq!(bits, want, "{why}: element {at}");
            }
        }
    }
}

/// C is added, whether it is elsewhere or where D will be.
#[test]
fn c_is_read_where_it_is() {
    let mut random = fastrand::Rng::with_seed(3);
    let mut fill = |extents, order| {
        HostMatrix::random(Format::Bf16, extents, order, 8, Distribution::Normal, &mut random)
    };
    let (a, b) = (fill([20, 72], Order::RowMajor), fill([72, 40], Order::ColumnMajor));
    let own = GemmCase {
        c: Some(fill([20, 40], Order::RowMajor)),
        alpha: 0.5,
        beta: 2.0,
        d_ld: 43,
        ..GemmCase::new(a, b)
    };
    let entry = kernel::find("64x64-direct-bf16-kk").expect("a catalogue name");
    let (program, sums) =
        (entry.program().expect("a legal program"), own.sums(accumulators(&entry), &|_| ()));
    for in_place in [false, true] {
        let run = |mistakes| {
            // D follows A and B.
            let mut engine = Tampered::new(2, mistakes);
            GemmCase { in_place, ..own.clone() }
                .run(&entry, &program, &mut engine, &sums)
                .expect("runs")
                .mismatch
        };
        assert_eq!(run(Vec::new()), None, "in place: {in_place}");
        // An element that is left out is poison, or that of C.
        let left_out = run(vec![Mistake::Unwritten((3 * 43 + 7) * 2..(3 * 43 + 8) * 2)]);
        let wrong = match in_place {
            true => matches!(left_out, Some(Mismatch::Value { row: 3, column: 7, .. })),
            false => matches!(left_out, Some(Mismatch::Unwritten { row: 3, column: 7 })),
        };
        assert!(wrong, "in place: {in_place}: {left_out:?}");
    }
}
