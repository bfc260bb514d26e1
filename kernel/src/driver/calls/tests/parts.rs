//! The parts of calls: each is an address or decides what a launch is.

use core::fmt;

use collective::tree::{DropoutArgument, Shape};
use collective::{
    BlockScales, Format, Formula, FormulaArguments, GroupScales, Input, LinearArguments, MatrixRef,
};
use cute_rs::atom::Major;
use ptx::{VerifyError, WgmmaTypes};

use super::Parts;
use crate::buffer::Buffer;
use crate::call::Call;
use crate::ceiling::{Ceiling, Rounds};
use crate::compress::{Compress, Compression};
use crate::error::LaunchError;
use crate::filled::Launch;
use crate::kernel::Kernel;
use crate::operands::{Layouts, Memory, Visit};
use crate::problem::GemmProblem;
use crate::products::GroupedProblem;
use crate::program::Program;
use crate::transpose::{Transpose, Transposition};
use crate::types::Types;

/// The keys of launches do not depend on how far matrices reach.
pub(super) const ANY: Layouts = Layouts::new(Types::of(Format::Bf16), [Major::K; 2]);

/// Stands for a GEMM kernel. It visits calls and launches nothing.
pub(super) struct Linear;

/// The same with a formula.
struct Fused;

impl Kernel<Call<FormulaArguments>> for Fused {
    fn program(&self) -> Result<Program, VerifyError> {
        unreachable!("it is not launched")
    }

    fn launch(&self, _: &Call<FormulaArguments>, _: u32) -> Result<Option<Launch>, LaunchError> {
        unreachable!("it is not launched")
    }

    fn visit(&self, call: &mut Call<FormulaArguments>, visit: &mut dyn Visit) {
        call.visit(&ANY, visit);
    }
}

impl Kernel<Call> for Linear {
    fn program(&self) -> Result<Program, VerifyError> {
        unreachable!("it is not launched")
    }

    fn launch(&self, _: &Call, _: u32) -> Result<Option<Launch>, LaunchError> {
        unreachable!("it is not launched")
    }

    fn visit(&self, call: &mut Call, visit: &mut dyn Visit) {
        call.visit(&ANY, visit);
    }
}

/// A call's shape and its addresses.
pub(super) fn split<C: Clone>(kernel: &impl Kernel<C>, call: &C) -> (Vec<u64>, Vec<u64>) {
    let (mut call, mut parts) = (call.clone(), Parts::default());
    parts.read(|parts| kernel.visit(&mut call, parts));
    (parts.shape, parts.addresses)
}

/// What is done with an address, and with everything else.
struct Changes<A, L>(A, L);

impl<A: FnMut(&mut u64), L: FnMut() -> bool> Visit for Changes<A, L> {
    fn memory(&mut self, memory: Memory<'_>) {
        (self.0)(memory.address);
    }

    fn length(&mut self, length: &mut u64) {
        *length ^= u64::from((self.1)());
    }

    fn count(&mut self, count: &mut u32) {
        *count ^= u32::from((self.1)());
    }

    fn factor(&mut self, factor: &mut f64) {
        *factor = f64::from_bits(factor.to_bits() ^ u64::from((self.1)()));
    }
}

/// The same call with every address that is not 0 changed.
pub(super) fn addressed<C: Clone>(kernel: &impl Kernel<C>, call: &C, mut change: impl FnMut(&mut u64)) -> C {
    let mut call = call.clone();
    let change = |address: &mut u64| {
        if *address != 0 {
            change(address);
        }
    };
    kernel.visit(&mut call, &mut Changes(change, || false));
    call
}

/// A call in which everything is given.
fn full() -> Call {
    let matrix = |i: u64| MatrixRef::new(i << 20, 64).every(4096);
    let call = Call {
        a: matrix(1),
        b: matrix(2),
        d: matrix(3),
        workspace: Some(Buffer { address: 4 << 20, bytes: 256 }),
        ..Call::of(GemmProblem { m: 64, n: 64, k: 64 })
    };
    let call = call.scaled(BlockScales { a: matrix(5), b: matrix(6) });
    let call = call.group_scaled(GroupScales { scales: matrix(7), zeros: matrix(8) });
    call.sparse(matrix(9)).with(LinearArguments { alpha: 2.0, beta: 3.0, c: Some(matrix(10)) })
}

const SEVERAL: [GroupedProblem; 6] = [
    GroupedProblem::One,
    GroupedProblem::Batched { count: 2 },
    GroupedProblem::GroupedContiguous { count: 2, offsets: 11 << 20 },
    GroupedProblem::GroupedMasked { count: 2, rows: 11 << 20, room: 32 },
    GroupedProblem::KGrouped { count: 2, offsets: 11 << 20 },
    GroupedProblem::PointerArray { count: 2, records: 11 << 20 },
];

/// Checks that every part of a call that is visited either is an address, which a kept launch gets anew, or
/// decides the shape. Returns the numbers of both.
fn parts_matter<C: Clone + PartialEq + fmt::Debug>(kernel: &impl Kernel<C>, base: &C) -> [usize; 2] {
    let (before, given) = split(kernel, base);
    let mut others = 0;
    loop {
        let (mut call, mut seen) = (base.clone(), 0);
        let mut turn = || {
            seen += 1;
            seen == others + 1
        };
        kernel.visit(&mut call, &mut Changes(|_: &mut u64| {}, &mut turn));
        if seen <= others {
            break;
        }
        assert_ne!(&call, base, "the {others}th part was changed");
        assert_ne!(split(kernel, &call).0, before, "{call:?}");
        others += 1;
    }
    for which in 0..given.len() {
        for (why, change) in [("as aligned", 1u64 << 30), ("less aligned", 8), ("none", 0)] {
            let mut index = 0;
            let call = addressed(kernel, base, |address| {
                if index == which {
                    *address = if change == 0 { 0 } else { *address ^ change };
                }
                index += 1;
            });
            let (shape, moved) = split(kernel, &call);
            assert_ne!(&call, base, "the {which}th address was changed");
            assert_eq!(shape == before, why == "as aligned", "{why}: {call:?}");
            let changed = (0..given.len()).filter(|&i| moved[i] != given[i]).collect::<Vec<_>>();
            assert_eq!(changed, [which], "{why}: {call:?}");
        }
    }
    [given.len(), others]
}

#[test]
fn every_part_of_a_call_is_an_address_or_changes_its_shape() {
    // Nine matrices and the workspace, and for four of six forms a table.
    for (products, table, counts) in SEVERAL
        .into_iter()
        .zip([0, 0, 1, 1, 1, 1])
        .zip([0, 1, 1, 2, 1, 1])
        .map(|((products, table), counts)| (products, table, counts))
    {
        let parts = parts_matter(&Linear, &Call { products, ..full() });
        assert_eq!(parts, [10 + table, 3 + 2 + 18 + 1 + counts], "{products:?}");
    }
    let at = |i: u64| MatrixRef::new(i << 20, 64).every(4096);
    let transpose = Transpose::of(Format::Bf16).expect("16 bits");
    let what = Transposition { rows: 64, columns: 64, count: 2, a: at(1), d: at(2) };
    assert_eq!(parts_matter(&transpose, &what), [2, 3 + 4]);
    let compress = Compress::of(Format::Bf16).expect("an operand");
    let (dense, values, metadata, found) = (at(1), at(2), at(3), 4 << 20);
    let what = Compression { rows: 64, k: 64, dense, values, metadata, found };
    assert_eq!(parts_matter(&compress, &what), [4, 2 + 6]);
    let rounds = Rounds { ctas: 132, rounds: 10, operands: 1 << 20, sums: 2 << 20 };
    assert_eq!(parts_matter(&Ceiling::dense(WgmmaTypes::Bf16F32), &rounds), [2, 2]);
}

/// The arguments of every kind of node are addresses, or change the shape. What a kernel is given of them is what is
/// visited, so none is left out.
#[test]
fn every_part_of_an_epilogue_is_an_address_or_changes_the_shape() {
    use Input::{Address, Each, Scalar, Scratch};
    let at = |i: u64| Address(i << 20);
    let matrix = |i: u64| Input::matrix(i << 20, 64);
    let scratch = Scratch(collective::tree::Scratch { address: 30 << 20, bytes: 1 << 20 });
    let each = |i: u64| Each { address: i << 20, ld: 64, stride: 4096 };
    let bound = |text: &str, given: &[(&str, Input)]| {
        let formula: Formula = text.parse().expect(text);
        formula.bind(Format::Bf16, Shape { m: 64, n: 64 >> formula.halvings() }, given).expect(text)
    };
    // Addresses, and other parts, of the epilogue alone.
    for (text, given, parts) in [
        ("alpha*acc", &[("alpha", Scalar(2.0))][..], [0, 1]),
        ("scale[0]*acc", &[("scale", at(20))], [1, 0]),
        ("gelu(acc + bias[n])", &[("bias", at(20))], [1, 0]),
        ("acc*scale[m]", &[("scale", at(20))], [1, 0]),
        ("acc + x[m,n]", &[("x", matrix(20))], [1, 1]),
        ("acc + x[m,n%32]", &[("x", matrix(20))], [1, 1]),
        ("acc + beta*c", &[("beta", Scalar(3.0)), ("c", matrix(20))], [1, 2]),
        ("clamp(acc, low, high)", &[("low", Scalar(-1.0)), ("high", Scalar(1.0))], [0, 2]),
        ("gated(silu, acc + bias[n])", &[("bias", at(20))], [1, 0]),
        ("rotate(acc, angles[m,n%64])", &[("angles", matrix(20))], [1, 1]),
        ("top2_softmax(acc*alpha)", &[("alpha", Scalar(2.0))], [0, 1]),
        ("store(aux[m,n], acc)", &[("aux", matrix(20))], [1, 1]),
        ("reduce_sum(sums[n], acc)", &[("sums", at(20))], [1, 0]),
        ("reduce_max(sums[m], acc)", &[("sums", at(20))], [1, 0]),
        ("reduce_amax(sums[0], acc)", &[("sums", at(20))], [1, 0]),
        ("ordered_sum(sums[n], acc)", &[("sums", at(20)), ("sums_scratch", scratch)], [2, 0]),
        ("quantize_e4m3(scales, acc)", &[("scales", matrix(20))], [1, 1]),
        ("acc + bias[l,n]", &[("bias", each(20))], [1, 1]),
        ("acc + x[l,m,n]", &[("x", each(20))], [1, 2]),
        ("y = acc + bias[n]; y*y", &[("bias", at(20))], [1, 0]),
    ] {
        let call = full().with(bound(text, given));
        let [addresses, others] = parts_matter(&Fused, &call);
        let without = parts_matter(&Fused, &full().with(bound("acc", &[])));
        assert_eq!([addresses - without[0], others - without[1]], parts, "{text}");
    }
    // A mask is given to a kernel as a threshold, a factor and words.
    let mask = DropoutArgument { probability: 0.5, seed: 1 << 40 | 7, offset: 1 << 40 | 9 };
    let shape =
        |mask| split(&Fused, &full().with(bound("dropout(mask, acc)", &[("mask", Input::Dropout(mask))]))).0;
    for other in [
        DropoutArgument { probability: 0.25, ..mask },
        DropoutArgument { seed: mask.seed ^ 1, ..mask },
        DropoutArgument { seed: mask.seed ^ 1 << 50, ..mask },
        DropoutArgument { offset: mask.offset ^ 1, ..mask },
        DropoutArgument { offset: mask.offset ^ 1 << 50, ..mask },
    ] {
        assert_ne!(shape(other), shape(mask), "{other:?}");
    }
}

/// What is given, and in which form, decides the shape too.
#[test]
fn calls_that_differ_in_what_is_given_have_other_shapes() {
    let all = SEVERAL.into_iter().flat_map(|products| {
        (0..32).map(move |given: u32| {
            let (full, has) = (full(), |bit: u32| given >> bit & 1 == 1);
            let c = full.epilogue.c.filter(|_| has(4));
            Call {
                products,
                scales: full.scales.filter(|_| has(0)),
                group_scales: full.group_scales.filter(|_| has(1)),
                metadata: full.metadata.filter(|_| has(2)),
                workspace: full.workspace.filter(|_| has(3)),
                ..full.with(LinearArguments { c, ..full.epilogue })
            }
        })
    });
    let all: Vec<Call> = all.collect();
    for (i, one) in all.iter().enumerate() {
        for (j, two) in all.iter().enumerate() {
            assert_eq!(split(&Linear, one).0 == split(&Linear, two).0, i == j, "{one:?} and {two:?}");
        }
    }
}
