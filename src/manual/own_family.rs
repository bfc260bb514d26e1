//! A convolution, as an implicit GEMM: `D = relu(conv(X, W) + bias)` of images X (images, height, width, channels), filters W (filters, taps
//! down, taps along, channels) and D (images, height, width, filters). Pixels are gathered by im2col copies; all else is the library's
//! GEMM.

use std::marker::PhantomData;

use falchion::collective::stage::{Im2col, Im2colTile, Images, OperandTiles};
use falchion::collective::tree::Shape;
use falchion::collective::{Formula, FormulaArguments, Input};
use falchion::prelude::family::*;
use falchion::prelude::*;

/// What `wgmma` multiplies: pixels and filters, both with channels contiguous.
type Kk = Operands<KMajor<bf16>, KMajor<bf16>>;

/// The mainloop: A is gathered from X.
pub struct Pixels<T, R>(PhantomData<(T, R)>);

impl<T: TileShape, R: WarpRoles> Mainloop for Pixels<T, R> {
    const NAME: &'static str = "im2col";
    const SPEC: MainloopSpec = <TmaWgmma<Kk, T, R> as Mainloop>::SPEC;
    const NEEDS: MainloopNeeds =
        MainloopNeeds { whole_k: false, alone: false, matrices: [false, true], ..MainloopNeeds::ALL };
    type Arguments = Images<2>;

    fn check(own: &Images<2>, a: Matrix, _: Matrix) -> Result<(), String> {
        own.check(Self::SPEC.tile[2], a)
    }

    fn visit(own: &mut Images<2>, of: &OwnSite<'_>, visit: &mut dyn Visit) {
        own.visit("X", (0, Format::Bf16), of, visit);
    }

    fn device<'f>(f: &'f Builder, plan: &Plan) -> DeviceMainloop<'f> {
        DeviceMainloop::of_tiles(vec![Im2colTile::<2>::of(f, plan, 0), OperandTiles::of(f, plan, &[1])])
    }
}

/// The kernels, as a family.
pub struct ConvGemm;
type With<T, R, S> = Composed<Pixels<T, R>, LinearCombination<bf16, TmaStore>, S>;

impl GemmFamily for ConvGemm {
    const NAME: &'static str = "convolution";
    type Problem = ConvProblem<2>;
    type Arguments = WithMainloop<Images<2>, FormulaArguments>;

    fn kernels() -> Vec<AnyGemm> {
        type Persist = Persistent<Grouped<AlongM, U8>>;
        type Split = StreamK<AlongM, Ordered, EveryTile<U2>>;
        let kernels = [
            AnyGemm::of::<With<Tile<U128, U64, U64>, Cooperative<U2, Cluster<U1, U1>, U3>, Persist>>(
                "128x64",
            ),
            AnyGemm::of::<With<Tile<U64, U64, U64>, Cooperative<U1, Cluster<U1, U1>, U3>, Split>>(
                "64x64-stream-k",
            ),
            AnyGemm::of::<With<Tile<U128, U64, U64>, Cooperative<U2, Cluster<U2, U2>, U3>, Persist>>(
                "128x64-2x2",
            ),
        ];
        kernels.iter().map(|kernel| kernel.with_epilogue(relu()).expect("legal")).collect()
    }

    fn call(conv: &ConvProblem<2>) -> Call<Self::Arguments> {
        let problem = GemmProblem::from(*conv);
        let shape = Shape { m: problem.m, n: problem.n };
        let bias = relu().bind(Format::Bf16, shape, &[("bias", Input::Address(0))]).expect("one argument");
        Call::of(problem).with(bias).with_mainloop(Images { address: 0, of: conv.of })
    }

    fn row(
        ConvProblem { of: Im2col { axes: [along, down], channels, .. }, filters }: &ConvProblem<2>,
        row: usize,
        inputs: &Inputs<'_>,
    ) -> Result<Vec<(f64, f64)>, String> {
        let (row, channels) = (row as u32, *channels as usize);
        let rest = row / along.outputs();
        let [image, at_down, at_along] =
            [rest / down.outputs(), rest % down.outputs() * down.step, row % along.outputs() * along.step];
        let mut sums = vec![(0.0, 0.0); *filters as usize];
        for (dy, dx) in (0..down.taps).flat_map(|dy| (0..along.taps).map(move |dx| (dy, dx))) {
            let [Some(y), Some(x)] = [(at_down + dy, down), (at_along + dx, along)]
                .map(|(at, axis)| at.checked_sub(axis.padding[0]).filter(|at| *at < axis.pixels))
            else {
                continue;
            };
            let pixel = (image * down.pixels + y) * along.pixels + x;
            let source = inputs.elements("X", pixel as usize * channels, channels);
            for ((sum, all), filter) in sums.iter_mut().zip(0..) {
                let taps = ((filter * down.taps + dy) * along.taps + dx) as usize * channels;
                for (x, w) in source.iter().zip(inputs.elements("B", taps, channels)) {
                    *sum += x * w;
                    *all += (x * w).abs();
                }
            }
        }
        let bias = inputs.elements("bias", 0, sums.len());
        let k = f64::from(down.taps * along.taps) * channels as f64;
        let element = |((sum, all), bias): ((f64, f64), f64)| {
            let value = (sum + bias).max(0.0);
            (value, all * k * 2f64.powi(-23) + value * 2f64.powi(-8) + 1e-6)
        };
        Ok(sums.into_iter().zip(bias).map(element).collect())
    }
}

fn relu() -> Formula {
    "relu(acc + bias[n])".parse().expect("a formula")
}
