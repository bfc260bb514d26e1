//! The comparison of a GEMM with its reference: each mistake is found, and nothing else.

use kernel::{Buffer, Program};
use ptx::abi::{Argument, Grid};
use reference::{Expected, Sums};

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

/// What is wrong with a 2 x 8 GEMM whose D is NaN everywhere. D is eight elements after an aligned address, with rows of ten elements.
fn mismatch(writes: Vec<(usize, u16)>) -> String {
    let mut random = fastrand::Rng::with_seed(1);
    let mut fill =
        |extents, order| HostMatrix::random(Format::Bf16, extents, order, 8, Distribution::Nan, &mut random);
    let (a, b) = (fill([2, 8], Order::RowMajor), fill([8, 8], Order::ColumnMajor));
    let product = GemmCase { d_ld: 10, d_offset: 8, ..GemmCase::new(a, b) };
    let entry = kernel::find("64x64-direct-bf16-kk").expect("a catalogue name");
    let mut engine = Sloppy { buffers: Vec::new(), writes };
    let mismatch = product.run(&entry, &mut engine).expect("runs").mismatch;
    mismatch.map_or_else(String::new, |wrong| wrong.to_string())
}

#[test]
fn what_was_not_written_or_should_not_have_been() {
    const NAN: u16 = 0x7fff;
    let all: Vec<_> = (0..2).flat_map(|row| (0..8).map(move |column| (8 + row * 10 + column, NAN))).collect();
    let with = |place, bits| [&all[..], &[(place, bits)]].concat();
    let unwritten = |index| format!("no element of D from {index} on was written, in 1 of them");
    let beside = |byte| format!("byte {byte} of D changed, and no element is there");
    for (why, writes, want) in [
        ("NaN where NaN is expected", all.clone(), String::new()),
        ("nothing written", Vec::new(), unwritten(0)),
        ("all but the last", all[..15].to_vec(), unwritten(15)),
        ("just before D", with(7, 0x3f80), beside(-1)),
        ("in a row's padding", with(8 + 9, 0x3f80), beside(18)),
        ("behind D", with(8 + 20, 0x4000), beside(40)),
    ] {
        assert_eq!(mismatch(writes), want, "{why}");
    }
    let wrong = mismatch(with(8 + 12, 0x3f80));
    assert!(wrong.starts_with("element 10 of D is 1, NaN was expected"), "{wrong}");
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
    let (sums, product) = (Sums::of(&a, &b, &|_| ()), GemmCase::new(a, b));
    let run = |mistakes| {
        // D follows A and B.
        let mut engine = Tampered::new(2, mistakes);
        product.run(&entry, &mut engine).expect("runs")
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
        let found = beyond.mismatch.as_ref().map(Mismatch::error);
        let right = matches!(found, Some(FamilyError::Element { index, .. }) if *index == row * 40 + column);
        assert!(right, "({row}, {column}): {found:?}");
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
        let sums = Sums::of(&a, &b, &|_| ());
        let exact = f64::from(k) * 128.0 * 127.0;
        for sum in sums.sums {
            let expected = Expected::new(format, k, [1.0, 0.0], sum, None);
            assert_eq!(expected.wraps, wraps.then_some(exact), "K {k}");
            assert!(expected.admits(format, expected.value), "K {k}");
        }
    }
    // A small one, whose D does not hold it.
    let fill = |extents, order| HostMatrix::from_fn(Format::S8, extents, order, 16, of(-128.0));
    let product = GemmCase {
        alpha: 65536.0,
        ..GemmCase::new(fill([1, 16], Order::RowMajor), fill([16, 8], Order::ColumnMajor))
    };
    let entry =
        "dtype=s8 store=direct".parse::<kernel::KernelSpec>().expect("a spec").kernel().expect("legal");
    let outcome = product.run(&entry, &mut kernel::Emulator::new()).expect("runs");
    assert_eq!(outcome.mismatch, None);
    assert_eq!(outcome.wrapped, Some(Wrapped { row: 0, column: 0, exact: f64::from(1 << 18) * 65536.0 }));
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
    for in_place in [false, true] {
        let run = |mistakes| {
            // D follows A and B, C is behind it.
            let mut engine = Tampered::new(2, mistakes);
            GemmCase { in_place, ..own.clone() }.run(&entry, &mut engine).expect("runs").mismatch
        };
        assert_eq!(run(Vec::new()), None, "in place: {in_place}");
        // An element that is left out is poison, or that of C.
        let left_out = run(vec![Mistake::Unwritten((3 * 43 + 7) * 2..(3 * 43 + 8) * 2)]);
        let left_out = left_out.as_ref().map(Mismatch::error);
        let wrong = match in_place {
            true => matches!(left_out, Some(FamilyError::Element { index: 127, .. })),
            false => matches!(left_out, Some(FamilyError::Unwritten { index: 127, .. })),
        };
        assert!(wrong, "in place: {in_place}: {left_out:?}");
    }
}

/// What a kernel cannot be given is an error, whoever made it.
#[test]
fn operands_that_a_kernel_does_not_read_are_refused() {
    let ones = |extents, order| HostMatrix::from_fn(Format::Bf16, extents, order, 64, |_, _| 1.0);
    let [a, b] = [ones([64, 64], Order::RowMajor), ones([64, 64], Order::ColumnMajor)];
    let case = GemmCase::new(a, b);
    let of = |text: &str| text.parse::<kernel::KernelSpec>().expect("a spec").kernel().expect("legal");
    let error = |case: &GemmCase, gemm: &AnyGemm| match case.run(gemm, &mut kernel::Emulator::new()) {
        Err(error) => error.to_string(),
        Ok(outcome) => panic!("{outcome:?}"),
    };
    let sparse = error(&case, &of("sparse=a"));
    assert!(sparse.starts_with("A: ") && sparse.contains("more than 2 are not zero"), "{sparse}");
    let gemm = of("weights-b=s4 group=128 swap=yes tile=128x16x128");
    let mut random = fastrand::Rng::with_seed(1);
    let ([a, b], weights) = storage::fitted(&gemm, case.problem(), [case.a.clone(), case.b], &mut random);
    let mut weights = weights.expect("a kernel of weights in few bits");
    weights.codes[0] = 0xFF;
    let codes = error(&GemmCase { weights: Some(weights), ..GemmCase::new(a, b) }, &gemm);
    assert!(codes.starts_with("B: "), "{codes}");
}
