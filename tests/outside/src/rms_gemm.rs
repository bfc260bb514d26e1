//! A mainloop that normalises A's rows: `D = A * B / sqrt(mean of the row's squares + eps)`. Consumers have A in registers, where they
//! add up squares beside the multiplication. (The weights of RMSNorm are multiplied into B, once.)

use std::marker::PhantomData;

use falchion::collective::{Atom, Consumer, EachWarp, Finish, Fragments, InFlight, Pass, Real, WarpgroupMma};
use falchion::prelude::family::*;
use falchion::prelude::*;
use falchion::ptx::WgmmaTypes;

use crate::{Kk, products};

/// The mainloop as a type.
pub struct Normalised<T, R>(PhantomData<(T, R)>);
/// What is added to the mean.
#[derive(Clone, Debug, Default)]
pub struct Eps(f32);

impl<T: TileShape, R: WarpRoles> Mainloop for Normalised<T, R> {
    const NAME: &'static str = "normalised";
    const SPEC: MainloopSpec = {
        let mut spec = <TmaWgmma<Kk, T, R> as Mainloop>::SPEC;
        spec.atom = Atom::registers(WgmmaTypes::Bf16F32);
        // A's fragments, and squares of two rows per block.
        spec.registers = spec.product().blocks() * (spec.product().steps() * 4 + 2);
        spec
    };
    type Arguments = Eps;

    fn check(own: &Eps, _: Matrix, _: Matrix) -> Result<(), String> {
        if own.0 >= 0.0 { Ok(()) } else { Err(format!("eps is {}, 0 at least was needed", own.0)) }
    }

    fn state(of: &MainloopSite<'_>, visit: &mut dyn Visit) {
        Self::SPEC.mainloop().state(of, visit);
        visit.number("depth", of.matrix(0).map(|a| a.k));
    }

    fn visit(own: &mut Eps, _: &OwnSite<'_>, visit: &mut dyn Visit) {
        visit.single(&mut own.0);
        visit.number("eps", Some(own.0));
    }

    fn device<'f>(f: &'f Builder, plan: &Plan) -> DeviceMainloop<'f> {
        let (eps, k) = (f.parameter::<f32>("eps"), f.parameter::<u32>("depth"));
        Self::SPEC.mainloop().device(f, plan).with_multiply(move |pass, consumer, finish| {
            multiply(pass, consumer, finish, (eps, k));
        })
    }
}

fn multiply<'f>(
    pass: Pass<'_, 'f>,
    consumer: Consumer<'f>,
    finish: Finish<'_, 'f>,
    (eps, k): (Value<'f, f32>, Value<'f, u32>),
) {
    let Pass { f, plan, unit, .. } = pass;
    let product = WarpgroupMma::<f32>::new(f, plan.product(), consumer.part);
    let a = Fragments::new(f, plan.product(), consumer);
    let (blocks, steps) = (product.spec().blocks(), product.spec().steps());
    let squares: Vec<_> = (0..blocks).map(|_| [0.0, 0.0].map(|zero| f.variable(zero))).collect();
    consumer.each_stage(
        pass,
        InFlight::None,
        &|stage, accumulate| {
            a.load(stage);
            for (block, sums) in (0..).zip(&squares) {
                for four in (0..steps).filter_map(|step| a.get(block, step)) {
                    for (sum, register) in sums.iter().cycle().zip(four) {
                        for x in f.unpack::<bf16>(register.get()).map(|x| x.cast::<f32>()) {
                            sum.set(x.mul_add(x, sum.get()));
                        }
                    }
                }
            }
            // Not before: registers of A may not even be read while wgmma uses them.
            product.multiply_registers(&a, stage, accumulate);
        },
        &|multiplied| {
            if !multiplied {
                product.clear();
            }
        },
    );
    let fragment = product.fragment(consumer, unit.first());
    for (block, sums) in (0..).zip(&squares) {
        for (row, sum) in fragment.variables(block).iter().zip(sums) {
            // The four threads of a row.
            let all = [1, 2].into_iter().fold(sum.get(), |sum, mask| sum + f.shuffle_xor(sum, mask));
            let scale = f.constant(1.0) / (all / k.cast::<f32>() + eps).sqrt();
            row.elements.iter().for_each(|(_, of)| of.set(of.get() * scale));
        }
    }
    finish(plan, product.sums(consumer, unit.first()));
}

/// The kernels, as a family.
pub struct RmsGemm;
const EPS: f32 = 1e-3;

impl GemmFamily for RmsGemm {
    const NAME: &'static str = "rms-gemm";
    type Problem = GemmProblem;
    type Arguments = WithMainloop<Eps, LinearArguments>;

    fn kernels() -> Vec<AnyGemm> {
        type Large = Normalised<Tile<U128, U128, U64>, Cooperative<U2, Cluster<U1, U1>, EachWarp<U3>>>;
        type Small = Normalised<Tile<U64, U64, U64>, Pingpong<U2, Cluster<U1, U1>, EachWarp<U3>>>;
        type With<M> = Composed<M, LinearCombination<bf16, TmaStore>, Persistent<AlongM>>;
        vec![AnyGemm::of::<With<Large>>("128x128"), AnyGemm::of::<With<Small>>("64x64-pingpong")]
    }

    fn call(problem: &GemmProblem) -> Call<Self::Arguments> {
        Call::of(*problem).with_mainloop(Eps(EPS))
    }

    fn row(problem: &GemmProblem, row: usize, inputs: &Inputs<'_>) -> Result<Vec<(f64, f64)>, String> {
        let k = problem.k as usize;
        let mean = inputs.elements("A", row * k, k).iter().map(|a| a * a).sum::<f64>() / k as f64;
        let scale = 1.0 / (mean + f64::from(EPS)).sqrt();
        let element =
            |(sum, error): (f64, f64)| (sum * scale, error * scale + (sum * scale).abs() * 2f64.powi(-8));
        Ok(products(*problem, row, "B", inputs).into_iter().map(element).collect())
    }
}
