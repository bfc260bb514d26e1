//! Specs: texts that parse back, types that lower to them, and what is refused.

use collective::functions::MultiplyAddGelu;
use collective::tree::{Accumulator, Compute, RowVector, Scalar};
use collective::{
    Cluster, Cooperative, CopyWgmma, EachWarp, EvictFirst, F8E4M3, F8E5M2, Fastest, Fitted, Format, KMajor,
    LinearCombination, MnMajor, Operands, Pingpong, SourcedCombination, Tf32, Tile, TmaStore, TmaWgmma,
    Transposed, TreeEpilogue, Unspecialised,
};
use half::{bf16, f16};
use kernel::{Batched, Composed, Gemm, GemmConfig, GroupedContiguous, KernelSpec, SpecError};
use scheduler::{
    AlongM, AlongN, Atomic, ClusterK, DividedTail, Dynamic, EveryTile, Grouped, Hilbert, OneTile, Persistent,
    StreamK,
};
use typenum::{U1, U2, U3, U4, U5, U6, U8, U16, U32, U64, U128, U160, U192, U256};

type Kk<T> = Operands<KMajor<T>, KMajor<T>>;

type BiasGelu = Compute<MultiplyAddGelu<Fastest>, (Accumulator, Scalar, RowVector<bf16>)>;

/// A type's spec prints the type, parses back, and gives the type's program.
fn lowers<C: GemmConfig>(want: &str) {
    let gemm = Gemm::<C>::kernel();
    let spec = gemm.spec().expect("built-in roles");
    assert_eq!(spec.to_string(), want);
    assert_eq!(KernelSpec::parse(want).as_ref(), Ok(&spec), "{want}");
    let again = spec.kernel().expect("the type is legal");
    assert_eq!(again.plan(), gemm.plan(), "{want}");
    let texts = [again, gemm].map(|gemm| gemm.program().expect("a legal program").text().to_owned());
    assert!(texts[0] == texts[1], "{want}");
}

#[test]
fn types_lower_to_specs() {
    lowers::<
        Composed<
            TmaWgmma<Kk<bf16>, Tile<U192, U160, U64>, Cooperative<U3>>,
            LinearCombination<bf16, TmaStore>,
            StreamK<AlongN, Atomic, EveryTile<U3, U8>>,
        >,
    >(
        "dtype=bf16 layout=kk tile=192x160x64 scheduler=stream-k raster=n reduction=atomic divide=split3 min-k-tiles=8",
    );
    lowers::<
        Composed<
            TmaWgmma<Kk<f16>, Tile<U128, U128, U64>, Pingpong<U2, Cluster<U2, U1>, EachWarp<U3>>>,
            SourcedCombination<f16, U4>,
            Persistent<Grouped<AlongM, U8>>,
        >,
    >(
        "dtype=f16 layout=kk epilogue=sourced tile=128x128x64 cluster=2x1 roles=pingpong stages=3 arrivals=warp buffers=4",
    );
    lowers::<
        Composed<
            TmaWgmma<Kk<bf16>, Tile<U128, U128, U64>, Cooperative<U2>>,
            LinearCombination<bf16>,
            ClusterK<AlongM, U6>,
        >,
    >("dtype=bf16 layout=kk tile=128x128x64 store=direct scheduler=cluster-k raster=m splits=6");
    // The kernel's A is the caller's B.
    lowers::<
        GroupedContiguous<
            Composed<
                TmaWgmma<
                    Operands<EvictFirst<MnMajor<bf16>>, KMajor<bf16>>,
                    Fitted<Tile<U128, U256, U64>, U32>,
                    Cooperative<U2>,
                >,
                LinearCombination<bf16, Transposed<TmaStore>>,
                DividedTail<Hilbert<U4>, U5>,
            >,
        >,
    >(
        "form=ragged dtype=bf16 layout=kn tile=128x256x64 step=32 l2-b=evict-first swap=yes scheduler=dynamic-tail raster=hilbert4 splits=5",
    );
    lowers::<
        Batched<
            Composed<
                TmaWgmma<Kk<bf16>, Tile<U64, U16, U32>, Unspecialised<U1>>,
                LinearCombination<f32>,
                OneTile<AlongM>,
            >,
        >,
    >(
        "form=batched dtype=bf16 layout=kk out=f32 tile=64x16x32 roles=unspecialised store=direct scheduler=one-tile raster=m",
    );
    lowers::<
        Composed<
            TmaWgmma<Operands<KMajor<F8E4M3>, KMajor<F8E5M2>>, Tile<U128, U128, U128>, Cooperative<U2>>,
            LinearCombination<bf16, TmaStore>,
            Persistent<Grouped<AlongM, U8>>,
        >,
    >("dtype=e4m3 dtype-b=e5m2 layout=kk tile=128x128x128");
    // D is stored transposed: the kernel's A is the caller's B.
    lowers::<
        Composed<
            TmaWgmma<Operands<KMajor<u8>, KMajor<i8>>, Tile<U128, U128, U128>, Cooperative<U2>>,
            LinearCombination<i32, Transposed<TmaStore>>,
            Persistent<Grouped<AlongM, U8>>,
        >,
    >("dtype=s8 dtype-b=u8 layout=kk tile=128x128x128 swap=yes");
    lowers::<
        Composed<
            CopyWgmma<Kk<Tf32>, Tile<U128, U64, U32>, Pingpong<U2>>,
            LinearCombination<f16>,
            Persistent<Grouped<AlongM, U8>>,
        >,
    >("dtype=tf32 layout=kk out=f16 tile=128x64x32 roles=pingpong load=copy store=direct");
    lowers::<
        Composed<
            TmaWgmma<Kk<i8>, Tile<U128, U160, U64>, Cooperative<U2>>,
            SourcedCombination<F8E4M3>,
            Persistent<Grouped<AlongM, U8>>,
        >,
    >("dtype=s8 layout=kk epilogue=sourced out=e4m3 tile=128x160x64");
    lowers::<
        Composed<
            TmaWgmma<Kk<bf16>, Tile<U128, U256, U64>, Cooperative<U2>>,
            TreeEpilogue<bf16, TmaStore, BiasGelu>,
            Dynamic<Grouped<AlongN, U16>>,
        >,
    >("dtype=bf16 layout=kk epilogue=bias-gelu tile=128x256x64 scheduler=dynamic raster=n16");
}

#[test]
fn what_is_no_spec_is_refused_with_the_word() {
    for (text, words) in [
        ("tile", "`tile` is not a `key=value`"),
        ("tail=1x1x1", "no key `tail`; the keys are form, most-groups, dtype"),
        ("tile=1x1", "tile is `1x1`, 3 numbers up to 4096"),
        ("tile=64x64x64 tile=64x64x64", "`tile` is given twice"),
        ("tile=64x64x99999999999999999999", "3 numbers up to 4096"),
        ("roles=warp", "one of cooperative, pingpong, unspecialised"),
        ("stages=many", "stages is `many`, auto, or a number"),
        ("raster=x8", "raster is `x8`, one of m, n, m8, n8, hilbert8"),
        (
            "epilogue=tanh",
            "epilogue is neither linear nor sourced: `tanh` is a function: write tanh(alpha*acc)",
        ),
        ("epilogue=relu(acc tile=64x64x64", "`)` was needed, here is `tile`"),
        ("epilogue='acc + f(acc)' tile=64x64x64", "`f` is no function"),
        ("scheduler=persistent splits=3", "splits=3 belongs to scheduler=dynamic-tail"),
        ("store=direct buffers=3", "buffers=3 belongs to store=tma"),
        ("scheduler=one-tile reduction=atomic", "reduction=atomic belongs to scheduler=stream-k"),
    ] {
        let error = text.parse::<KernelSpec>().expect_err(text).to_string();
        assert!(error.contains(words), "{text}: {error}");
    }
}

#[test]
fn an_illegal_spec_is_refused_with_the_rule_and_the_nearest_legal_one() {
    for (text, rule, nearest) in [
        ("tile=192x163x64", "163", Some("tile=192x160x64")),
        ("tile=128x256x64 stages=6", "232448", Some("stages=4")),
        ("tile=128x256x60", "60", Some("tile=128x256x64")),
        ("tile=256x256x64 consumers=2", "registers", Some("tile=256x208x64")),
        ("cluster=3x3", "", None),
        ("cluster=4x4", "change it (Cluster<M, N>, cluster=MxN)", Some("cluster=2x4")),
        ("dtype=f64 layout=mk", "tensor cores read MN-major operands only of 16 bits", None),
        ("dtype=f64 sparse=a", "multiplied by sparse instructions, of 16 bits, 8 bits or tf32", None),
        ("dtype=f64 weights-a=s4", "multiplied as bf16 or f16", None),
        ("dtype=f16 dtype-b=bf16", "both bf16, both f16, both tf32, both f32 or both f64", None),
        ("dtype=e4m3 dtype-b=s8", "each e4m3 or e5m2, or each s8 or u8", None),
        (
            "dtype=e4m3 layout=kn",
            "B is MN-major with elements of 8 bits, and tensor cores read MN-major operands only of 16 bits",
            None,
        ),
        ("dtype=tf32 layout=mk", "A is MN-major with elements of 32 bits", None),
        (
            "dtype=e4m3 tile=128x256x48",
            "tile K is 48, not a positive multiple of 32",
            Some("tile=128x256x32"),
        ),
        ("dtype=s8 tile=128x200x128", "in steps of 16 where it sums integers", Some("tile=128x192x128")),
        ("dtype=s8 tile=128x256x128 step=8", "multiples of 16 columns", None),
        ("dtype=bf16 out=s32", "sums of floats are stored as f32, bf16, f16, e4m3 or e5m2", None),
        ("dtype=bf16 out=s8", "D is s8, and sums of floats are stored as f32", None),
        ("dtype=s8 out=tf32", "D is tf32, and sums of integers are stored as s32, s8, u8, f32", None),
        ("dtype=tf32 out=tf32", "D is tf32, and sums of floats are stored as f32", None),
        (
            "epilogue=sourced step=16",
            "an epilogue that loads C by tensor copies multiplies whole tiles",
            None,
        ),
        (
            "dtype=f64 epilogue=bias-gelu",
            "exponentials, roots and their like are computed in f32 alone",
            None,
        ),
        (
            "dtype=s8 epilogue=bias out=s32",
            "a D of s32 is computed in integers, and is what a formula says",
            None,
        ),
        ("scheduler=dynamic-tail splits=17", "17 parts", None),
        ("scheduler=cluster-k splits=9", "9 parts were given: 2 to 8 CTAs", None),
        ("scheduler=cluster-k splits=1", "2 to 8 CTAs", None),
        ("scheduler=cluster-k cluster=2x1", "leave out the mainloop's cluster", None),
        ("tile=128x128x64 scheduler=cluster-k roles=pingpong", "one tile", None),
        ("tile=128x256x64 stages=2 scheduler=cluster-k", "smaller tile or more stages", None),
        ("tile=128x256x64 epilogue=bias-sums-ordered scheduler=cluster-k", "whole tiles", None),
        ("form=ragged scheduler=cluster-k", "Persistent", None),
        ("raster=hilbert3", "power of two", None),
        ("epilogue=sourced scheduler=stream-k", "whole tiles", None),
        ("form=ragged scheduler=one-tile", "Persistent", None),
        ("tile=0x0x0", "", None),
        ("tile=4096x4096x4096 cluster=4096x4096 stages=4096 consumers=3", "", None),
    ] {
        let error = text.parse::<KernelSpec>().expect_err(text);
        let SpecError::Illegal { nearest: found, .. } = &error else { panic!("{text}: {error}") };
        assert!(error.to_string().contains(rule), "{text}: {error}");
        if nearest.is_some() {
            assert_eq!(found.as_deref(), nearest, "{text}: {error}");
        }
    }
}

/// Roles that need a narrower tile than others have one by default.
#[test]
fn roles_alone_are_a_legal_spec() {
    for roles in ["cooperative", "pingpong"] {
        for dtype in ["bf16", "e4m3", "tf32", "s8"] {
            let spec = format!("dtype={dtype} roles={roles}");
            assert!(spec.parse::<KernelSpec>().is_ok(), "{spec}: {:?}", spec.parse::<KernelSpec>());
        }
    }
}

/// The defaults that a CUTLASS user expects: 128 bytes along K, and the usual result format.
#[test]
fn formats_have_defaults() {
    for (text, k, output) in [
        ("", 64, Format::Bf16),
        ("dtype=f16", 64, Format::F16),
        ("dtype=tf32", 32, Format::F32),
        ("dtype=e4m3", 128, Format::Bf16),
        ("dtype=e5m2 dtype-b=e4m3", 128, Format::Bf16),
        ("dtype=s8", 128, Format::S32),
        ("dtype=u8 dtype-b=s8", 128, Format::S32),
    ] {
        let spec: KernelSpec = text.parse().expect(text);
        let gemm = spec.kernel().expect(text);
        assert_eq!((spec.mainloop.tile, spec.store.format), ([128, 256, k], output), "{text}");
        assert_eq!(gemm.formats()[2], output, "{text}");
        // The type gives the same.
        assert_eq!(gemm.spec(), Some(spec), "{text}");
    }
}

/// The printed type of every named kernel is compiled in `ui.rs`. This test checks that it names what
/// differs.
#[test]
fn specs_print_types() {
    let spec = KernelSpec::parse("tile=192x160x64 cluster=2x1 scheduler=stream-k raster=m8").expect("a spec");
    assert_eq!(
        spec.rust_type(),
        "Composed<TmaWgmma<Operands<KMajor<bf16>, KMajor<bf16>>, Tile<U192, U160, U64>, Cooperative<U3, Cluster<U2, U1>>>, \
         LinearCombination<bf16, TmaStore>, StreamK<Grouped<AlongM, U8>>>"
    );
}

/// A spec in a file is its text; a text that is not a spec gives an error.
#[cfg(feature = "serde")]
#[test]
fn specs_are_kept_in_files() {
    for kernel in kernel::catalogue().into_iter().chain(kernel::several()).step_by(7) {
        let spec = kernel.spec().expect("built-in");
        let file = serde_json::to_string(&spec).expect("text");
        assert_eq!(file, format!("\"{spec}\""));
        assert_eq!(serde_json::from_str::<KernelSpec>(&file).expect("a spec"), spec);
    }
    for (file, words) in [("\"tile=65x64x64\"", "64"), ("\"roles=none\"", "roles"), ("3", "string")] {
        let error = serde_json::from_str::<KernelSpec>(file).expect_err("no spec").to_string();
        assert!(error.contains(words), "{file}: {error}");
    }
}
