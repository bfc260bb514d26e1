//! Your own layouts: operand tiles and store buffers with other slab widths give the same results as any
//! kernel.

mod support;

use collective::{
    Cluster, ColumnMajor, Cooperative, CopyWgmma, Fitted, KMajor, LinearCombination, MnMajor, Operands,
    Pingpong, Plan, RowMajor, SourcedCombination, Sw, Swizzled, Tile, TmaStore, TmaWgmma, Unspecialised,
};
use cute_rs::atom::SwizzleMode;
use half::bf16;
use kernel::{Batched, Composed, Emulator, Engine, Gemm, GemmProblem, Gpu, KernelSpec};
use scheduler::{AlongM, AlongN, Grouped, Persistent};
use typenum::{U0, U1, U2, U3, U8, U16, U32, U64, U96, U128};

type Rows128 = Swizzled<Sw<U3, U3, U3>, RowMajor<(U8, U64)>>;
type Rows64 = Swizzled<Sw<U2, U3, U3>, RowMajor<(U8, U32)>>;
type Rows32 = Swizzled<Sw<U1, U3, U3>, RowMajor<(U8, U16)>>;
type Rows16 = Swizzled<Sw<U0, U3, U3>, RowMajor<(U8, U8)>>;
type Columns64 = Swizzled<Sw<U2, U3, U3>, ColumnMajor<(U32, U8)>>;
type Columns32 = Swizzled<Sw<U1, U3, U3>, ColumnMajor<(U16, U8)>>;
type Columns16 = Swizzled<Sw<U0, U3, U3>, ColumnMajor<(U8, U8)>>;

type Linear<M, L> = Composed<M, LinearCombination<bf16, TmaStore<U2, L>>, Persistent<AlongM>>;
type Sourced<M, L> = Composed<M, SourcedCombination<bf16, U2, L>, Persistent<AlongM>>;

/// Runs each kernel on problems with partial tiles.
macro_rules! runs {
    ($($kernel:ty),* $(,)?) => {
        let run = |engine: &mut dyn Engine| {
            for (m, n, k) in [(130, 200, 200), (64, 72, 8)] {
                $(support::check::<$kernel>(engine, GemmProblem { m, n, k });)*
            }
        };
        run(&mut Emulator::new().with_multiprocessors(4));
        if let Ok(mut gpu) = Gpu::new(0) {
            run(&mut gpu);
        }
    };
}

#[test]
fn tensor_copies_bring_slabs_of_any_width() {
    type Kk = Operands<KMajor<bf16, Rows64>, KMajor<bf16, Rows32>>;
    type Mn = Operands<MnMajor<bf16, Columns64>, MnMajor<bf16, Columns32>>;
    type None = Operands<KMajor<bf16, Rows16>, MnMajor<bf16, Columns16>>;
    runs!(
        Linear<TmaWgmma<Kk, Tile<U128, U96, U64>, Cooperative<U2>>, Rows32>,
        Linear<TmaWgmma<Kk, Tile<U128, U96, U64>, Cooperative<U2, Cluster<U2, U1>>>, Rows64>,
        Linear<TmaWgmma<Mn, Tile<U64, U96, U64>, Pingpong<U2, Cluster<U1, U2>>>, Rows16>,
        Linear<TmaWgmma<None, Tile<U128, U96, U64>, Unspecialised<U2>>, Rows32>,
        Linear<TmaWgmma<Kk, Fitted<Tile<U64, U96, U64>, U16>, Cooperative<U1>>, Rows32>,
        Sourced<TmaWgmma<Kk, Tile<U128, U128, U64>, Cooperative<U2>>, Rows64>,
    );
}

#[test]
fn threads_copy_into_slabs_of_any_width() {
    type Kn = Operands<KMajor<bf16, Rows16>, MnMajor<bf16, Columns32>>;
    type Mk = Operands<MnMajor<bf16, Columns16>, KMajor<bf16, Rows64>>;
    runs!(
        Composed<
            CopyWgmma<Kn, Tile<U64, U96, U64>, Cooperative<U1>>,
            LinearCombination<bf16>,
            Persistent<AlongM>,
        >,
        Composed<
            CopyWgmma<Mk, Tile<U64, U64, U32>, Cooperative<U1>>,
            LinearCombination<bf16>,
            Persistent<AlongM>,
        >,
    );
}

/// Types, specs and texts of the same layouts give the same kernel.
#[test]
fn specs_carry_layouts() {
    type Kn = Operands<KMajor<bf16, Rows64>, MnMajor<bf16, Columns32>>;
    type Mine = Batched<
        Composed<
            TmaWgmma<Kn, Tile<U128, U96, U64>, Cooperative<U2>>,
            LinearCombination<bf16, TmaStore<U2, Rows16>>,
            Persistent<Grouped<AlongN, U8>>,
        >,
    >;
    let kernel = Gemm::<Mine>::kernel();
    let spec = kernel.spec().expect("roles of ours");
    let text =
        "form=batched dtype=bf16 layout=kn tile=128x96x64 swizzle-a=64 swizzle-b=32 swizzle-d=none raster=n8";
    assert_eq!(spec.to_string(), text);
    assert_eq!(text.parse(), Ok(spec));
    let again = spec.kernel().expect("legal");
    assert_eq!((again.plan(), again.entry_name()), (kernel.plan(), Gemm::<Mine>::name()));
    assert_eq!(
        spec.rust_type(),
        "Batched<Composed<TmaWgmma<Operands<KMajor<bf16, Swizzled<Sw<U2, U3, U3>, RowMajor<(U8, U32)>>>, \
         MnMajor<bf16, Swizzled<Sw<U1, U3, U3>, ColumnMajor<(U16, U8)>>>>, Tile<U128, U96, U64>, Cooperative<U2>>, \
         LinearCombination<bf16, TmaStore<U2, Swizzled<Sw<U0, U3, U3>, RowMajor<(U8, U8)>>>>, Persistent<Grouped<AlongN, U8>>>>"
    );
    // Naming the default layout gives another spec of the same program.
    type Named =
        TmaWgmma<Operands<KMajor<bf16, Rows128>, KMajor<bf16>>, Tile<U128, U128, U64>, Cooperative<U2>>;
    let named: Plan = Gemm::<Linear<Named, Rows128>>::PLAN;
    assert_eq!(named.operands[0].swizzle(), SwizzleMode::B128);
    assert_eq!(named.staging.swizzle, SwizzleMode::B128);
}

#[test]
fn layouts_that_do_not_fit_are_refused() {
    for (text, words) in [
        (
            "tile=128x128x32 swizzle-a=128",
            "the tile of A has 32 contiguous elements, its layout has slabs of 64",
        ),
        ("tile=128x96x64 layout=kn swizzle-b=128", "the tile of B has 96 contiguous elements"),
        ("tile=128x96x64 swizzle-d=128", "a row of an output tile is 96 elements"),
        ("out=f32 swizzle-d=none", "threads store 8 side by side: choose a wider swizzle"),
        ("swap=yes swizzle-d=64", "a transposed store lays a buffer out"),
        ("store=direct swizzle-d=64", "swizzle-d=64 belongs to store=tma"),
        ("swizzle-a=16", "swizzle-a is `16`, one of widest, 128, 64, 32, none was needed"),
    ] {
        let error = text.parse::<KernelSpec>().expect_err(text).to_string();
        assert!(error.contains(words), "{text}: {error}");
    }
}
