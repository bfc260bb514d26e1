//! Weights of 4 bits by a codebook of one's own: `D = (codebook[code] * scale) * B`, with a scale per row and 64 of K (NF4, for
//! example). The library loads codes, scales and B; this looks codes up, while the instructions of the stage before run.

use std::marker::PhantomData;

use falchion::collective::pipeline::Stage;
use falchion::collective::{
    Code, Consumer, EachWarp, Finish, Fragments, GroupScales, Older, Pass, Quantized, Uint4, WarpgroupMma,
    weights,
};
use falchion::prelude::family::*;
use falchion::prelude::*;

type Inner<T, R> = TmaWgmma<Operands<Quantized<KMajor<bf16>, Uint4, U64>, KMajor<bf16>>, T, R>;

/// The mainloop as a type.
pub struct LookedUp<T, R>(PhantomData<(T, R)>);
/// Device address of the codebook: 16 `f32`.
#[derive(Clone, Debug, Default)]
pub struct Codebook(u64);

impl<T: TileShape, R: WarpRoles> Mainloop for LookedUp<T, R> {
    const NAME: &'static str = "looked_up";
    const SPEC: MainloopSpec = {
        let mut spec = <Inner<T, R> as Mainloop>::SPEC;
        // Pairs of looked-up numbers, by pair of codes.
        spec.own_bytes = 4 * 256;
        spec
    };
    const NEEDS: MainloopNeeds = MainloopNeeds { whole_k: false, ..MainloopNeeds::ALL };
    type Arguments = Codebook;

    fn visit(own: &mut Codebook, _: &OwnSite<'_>, visit: &mut dyn Visit) {
        let (extents, contents) = (Extents::line(32, 16), Contents::Source(Format::F32));
        visit.input("codebook", ("the codebook", &mut own.0), extents, contents);
    }

    fn device<'f>(f: &'f Builder, plan: &Plan) -> DeviceMainloop<'f> {
        let codebook = f.parameter::<u64>("codebook");
        Inner::<T, R>::device(f, plan)
            .with_prologue(move |f, plan, consumer| look_up_pairs(f, plan, consumer, codebook))
            .with_multiply(multiply)
    }
}

/// Fills the table of pairs.
fn look_up_pairs<'f>(f: &'f Builder, plan: &Plan, consumer: Consumer<'f>, codebook: Value<'f, u64>) {
    let table = consumer.shared + plan.own_offset;
    f.if_(consumer.warpgroup.equals(0), || {
        for half in 0..2 {
            let pair = consumer.thread + 128 * half;
            let [low, high] =
                [pair % 16, pair / 16].map(|code| f.load_global::<f32>(codebook + code.mul_wide(4), 0));
            f.store_shared(table + pair * 4, 0, [f.pack::<bf16>(low, high)]);
        }
    });
    f.barrier_sync(plan.own_barriers().start, plan.mainloop.consumers * 128);
}

fn multiply<'f>(pass: Pass<'_, 'f>, consumer: Consumer<'f>, finish: Finish<'_, 'f>) {
    let Pass { f, plan, unit, .. } = pass;
    let product = WarpgroupMma::<f32>::new(f, plan.product(), consumer.part);
    // One set is filled while the instructions of the stage before read the other.
    let a = Fragments::new(f, plan.product(), consumer);
    let (table, [tile_m, _, tile_k]) = (consumer.shared + plan.own_offset, plan.mainloop.tile);
    let blocks = product.spec().blocks();
    let block_bytes = 64 * tile_k / 2;
    let codes = consumer.part * (blocks * block_bytes) + consumer.thread * 16 + plan.ring.offset(0);
    let row = consumer.part * (blocks * 64) + consumer.thread / 32 * 16 + consumer.thread % 32 / 4;
    let scales = row * 2 + plan.ring.offset(2);
    let convert = |stage: Stage<'f>| {
        for (block, group) in (0..blocks).flat_map(|block| (0..tile_k / 64).map(move |group| (block, group)))
        {
            let at = (block * block_bytes + group * 2048).cast_signed();
            let words = f.load_shared_vector::<u32, 4>(stage.address + codes, at);
            let factors = [0, 8].map(|below| {
                let at = 2 * (group * tile_m + block * 64 + below);
                let [scale] = f.load_shared_vector::<bf16, 1>(stage.address + scales, at.cast_signed());
                scale.cast::<f32>()
            });
            for (step, word) in (0..).zip(words) {
                for (i, register) in (0..).zip(a.get(block, group * 4 + step).into_iter().flatten()) {
                    let pair = ((word >> (4 * i)) & 15) | ((word >> (12 + 4 * i)) & 240);
                    let [both] = f.load_shared_vector::<u32, 1>(table + pair * 4, 0);
                    let [low, high] =
                        f.unpack::<bf16>(both).map(|x| x.cast::<f32>() * factors[i as usize % 2]);
                    register.set(f.pack::<bf16>(low, high));
                }
            }
        }
    };
    let stage = |stage: Stage<'f>, older: Older<'_>| {
        // Nothing reads the registers any more.
        if let Some(older) = older {
            f.wgmma_wait(0);
            older();
        }
        convert(stage);
        product.multiply_registers(&a, stage, older.is_some());
    };
    consumer.each_stage_in_sets(pass, &stage, &|| product.clear());
    finish(plan, product.sums(consumer, unit.first()));
}

/// The kernels, as a family.
pub struct Nf4Gemm;

impl GemmFamily for Nf4Gemm {
    const NAME: &'static str = "nf4-gemm";
    type Problem = GemmProblem;
    type Arguments = WithMainloop<Codebook, LinearArguments>;

    fn kernels() -> Vec<AnyGemm> {
        type Large = LookedUp<Tile<U128, U64, U128>, Cooperative<U2, Cluster<U1, U1>, EachWarp<U3>>>;
        type Small = LookedUp<Tile<U64, U64, U64>, Cooperative<U1, Cluster<U1, U1>, EachWarp<U3>>>;
        type Split = StreamK<AlongM, Ordered, EveryTile<U2>>;
        vec![
            AnyGemm::of::<Composed<Large, LinearCombination<f32>, Persistent<AlongM>>>("128x64"),
            AnyGemm::of::<Composed<Small, LinearCombination<f32>, Split>>("64x64-stream-k"),
        ]
    }

    fn call(&GemmProblem { m, n, k }: &GemmProblem) -> Call<Self::Arguments> {
        let scales = GroupScales { scales: MatrixRef::new(0, m.into()), ..GroupScales::NONE };
        let call = Call::of(GemmProblem { m, n, k }).a(0, weights::ld(Code::U4, k));
        call.group_scaled(scales).with_mainloop(Codebook::default())
    }

    fn row(
        &GemmProblem { m, n, k }: &GemmProblem,
        row: usize,
        inputs: &Inputs<'_>,
    ) -> Result<Vec<(f64, f64)>, String> {
        let bytes = weights::bytes(Code::U4, [m, k]).map_err(|error| error.to_string())?;
        let bytes = inputs.elements("A", 0, bytes as usize);
        let bytes: Vec<u8> = bytes.into_iter().map(|byte| byte as u8).collect();
        let codes = weights::restore(Code::U4, [m, k], &bytes).map_err(|error| error.to_string())?;
        let [m, n, k] = [m, n, k].map(|extent| extent as usize);
        let (codebook, b) = (inputs.elements("the codebook", 0, 16), inputs.elements("B", 0, n * k));
        let weight = |at: usize| {
            let scale = inputs.elements("the scales of weights", at / 64 * m + row, 1)[0];
            let looked_up = bf16::from_f64(codebook[codes[row * k + at] as usize]).to_f64();
            bf16::from_f64(looked_up * scale).to_f64()
        };
        let a: Vec<f64> = (0..k).map(weight).collect();
        let element = |column: usize| {
            let terms = a.iter().zip(&b[column * k..]).map(|(a, b)| a * b);
            let [sum, all] = terms.fold([0.0; 2], |[sum, all], term| [sum + term, all + term.abs()]);
            (sum, all * k as f64 * 2f64.powi(-23) + 1e-6)
        };
        Ok((0..n).map(element).collect())
    }
}
