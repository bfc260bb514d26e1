//! A convolution, as an implicit GEMM: `D = relu(conv(X, W) + bias)` of images X (images, height, width, channels), filters W (filters, taps
//! down, taps along, channels) and D (images, height, width, filters). Pixels are gathered by im2col copies; all else is the library's
//! GEMM.

use std::fmt;
use std::marker::PhantomData;
use std::str::FromStr;

use falchion::collective::stage::{Axis, Im2col, Im2colTile, OperandTiles};
use falchion::collective::tree::Shape;
use falchion::collective::{
    DeviceMainloop, Formula, FormulaArguments, Input, Mainloop, MainloopNeeds, MainloopSite, MainloopSpec,
    TileShape, WarpRoles,
};
use falchion::kernel::words::Worded;
use falchion::prelude::family::*;
use falchion::prelude::*;

/// Where the filters read, and how many there are.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Conv {
    pub of: Im2col<2>,
    pub filters: u32,
}

impl fmt::Display for Conv {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { of: Im2col { images, axes: [along, down], channels }, filters } = self;
        write!(
            f,
            "{images}x{}x{}x{channels} {filters}x{}x{}",
            down.pixels, along.pixels, down.taps, along.taps
        )?;
        write!(f, " {}x{} {}x{}", down.step, along.step, down.padding[0], along.padding[0])
    }
}

impl FromStr for Conv {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let read = || {
            let mut words = text.split(' ');
            let [images, height, width, channels] = Worded::read(words.next()?)?;
            let [filters, taps @ ..]: [u32; 3] = Worded::read(words.next()?)?;
            let [steps, padding]: [[u32; 2]; 2] =
                [Worded::read(words.next()?)?, Worded::read(words.next()?)?];
            let axis = |i: usize, pixels| Axis {
                step: steps[i],
                padding: [padding[i]; 2],
                ..Axis::new(pixels, taps[i])
            };
            Some(Self { of: Im2col { images, axes: [axis(1, width), axis(0, height)], channels }, filters })
        };
        let conv: Self = read().ok_or_else(|| {
            format!("`{text}` was found, NxHxWxC FxRxS, strides AxB and padding AxB were needed")
        })?;
        if conv.of.axes.iter().any(|axis| axis.outputs() == 0) {
            return Err(format!(
                "`{text}` has no results: strides from 1 on, and filters within the padded images were needed"
            ));
        }
        Ok(conv)
    }
}

/// What `wgmma` multiplies: pixels and filters, both with channels contiguous.
type Kk = Operands<KMajor<bf16>, KMajor<bf16>>;

/// The mainloop: A is gathered from X.
pub struct Pixels<T, R>(PhantomData<(T, R)>);
/// X's address, and where filters read it.
#[derive(Clone, Debug, Default)]
pub struct Images(Option<(u64, Im2col<2>)>);

/// The name of the memory.
const X: &str = "X";
/// B's parameters.
const W: [&str; 2] = ["b_map", "b_step"];

impl<T: TileShape, R: WarpRoles> Mainloop for Pixels<T, R> {
    const SPEC: MainloopSpec = <TmaWgmma<Kk, T, R> as Mainloop>::SPEC;
    const NEEDS: MainloopNeeds =
        MainloopNeeds { whole_k: false, alone: false, matrices: [false, true], ..MainloopNeeds::ALL };
    type Arguments = Images;

    fn name() -> String {
        let [m, n, k] = Self::SPEC.tile;
        format!("im2col_{m}x{n}x{k}")
    }

    fn check(own: &Images, a: Matrix, _: Matrix) -> Result<(), String> {
        let (_, of) = own.0.ok_or("the images are missing: pass them by `with_mainloop`")?;
        of.check(Self::SPEC.tile[2])?;
        let (given, needed) = ([of.rows(), of.depth()], [a.mn, a.k]);
        if given == needed {
            Ok(())
        } else {
            Err(format!("the images have {given:?}, {needed:?} was needed"))
        }
    }

    fn state(of: &MainloopSite<'_>, visit: &mut dyn Visit) {
        of.map(1, W, visit);
    }

    fn visit(own: &mut Images, of: &OwnSite<'_>, visit: &mut dyn Visit) {
        if let Some((address, images)) = &mut own.0 {
            images.visit(X, address, (0, Format::Bf16), visit);
        }
        if let Some(plan) = of.plan {
            Im2colTile::state(plan, 0, X, own.0.filter(|_| of.launched), visit);
        }
    }

    fn device<'f>(f: &'f Builder, plan: &Plan) -> DeviceMainloop<'f> {
        DeviceMainloop::of_tiles(vec![Im2colTile::<2>::of(f, plan, 0), OperandTiles::of(f, plan, &[(1, W)])])
    }
}

/// The kernels, as a family.
pub struct ConvGemm;
type With<T, R, S> = Composed<Pixels<T, R>, LinearCombination<bf16, TmaStore>, S>;

impl GemmFamily for ConvGemm {
    const NAME: &'static str = "convolution";
    type Problem = Conv;
    type Arguments = WithMainloop<Images, FormulaArguments>;

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

    fn gemm(Conv { of, filters }: &Conv) -> GemmProblem {
        GemmProblem { m: of.rows(), n: *filters, k: of.depth() }
    }

    fn call(conv: &Conv) -> Call<Self::Arguments> {
        let problem = Self::gemm(conv);
        let shape = Shape { m: problem.m, n: problem.n };
        let bias = relu().bind(Format::Bf16, shape, &[("bias", Input::Address(0))]).expect("one argument");
        Call::of(problem).with(bias).with_mainloop(Images(Some((0, conv.of))))
    }

    fn row(
        Conv { of: Im2col { axes: [along, down], channels, .. }, filters }: &Conv,
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
            let source = inputs.elements(X, pixel as usize * channels, channels);
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
