//! Accumulator precision: the digits that promotion keeps, accumulators in `f16`, and what a plan refuses.

#[path = "../examples/promotion.rs"]
mod promotion;

use falchion::kernel::KernelSpec;

/// Sums as the hardware does, bit by bit.
#[test]
fn promotion_keeps_digits() {
    let errors = promotion::errors(2048).expect("legal kernels");
    let all: Vec<f64> = errors.iter().map(|errors| errors.mean).collect();
    let [fast, eight, four, two, one, blocks, four_in_waves, blocks_in_waves] = all[..] else {
        panic!("{errors:?}")
    };
    assert_eq!((four_in_waves, blocks_in_waves), (four, blocks), "waves change no sum: {errors:?}");
    assert!(fast > 4.0 * four, "{errors:?}");
    assert!(eight > four && four > two && two > one, "{errors:?}");
    // A block has the K of four instructions.
    assert!((0.5..2.0).contains(&(blocks / four)), "{errors:?}");
    assert!(errors.iter().all(|errors| errors.most < 0.05), "{all:?}");
}

#[test]
fn what_does_not_fit_is_refused_with_the_numbers() {
    for (spec, words) in [
        ("dtype=e4m3 tile=128x64x128 promote=4", ""),
        ("dtype=e4m3 tile=128x64x128 promote=8", ""),
        ("dtype=e5m2 dtype-b=e4m3 tile=128x64x128 promote=1 roles=unspecialised", ""),
        ("dtype=bf16 tile=128x64x64 promote=2", ""),
        ("dtype=e4m3 tile=128x64x128 promote=3", "promoted every 3 instructions, and a tile's K has 4"),
        ("dtype=e4m3 tile=128x64x128 promote=6", "one must divide the other"),
        ("dtype=e4m3 tile=128x64x128 promote=8 roles=unspecialised", "use a mainloop with a producer"),
        ("dtype=e4m3 tile=128x64x128 promote=64", ""),
        ("dtype=e4m3 tile=128x64x128 promote=68", "every 68 instructions, 64 at most"),
        ("dtype=e4m3 tile=128x64x128 promote=4096", "promote more often"),
        ("dtype=e4m3 tile=128x64x128 promote=4294967292", "a number up to 4096"),
        ("dtype=s8 promote=4", "integer accumulators lose nothing"),
        ("dtype=e4m3 tile=128x256x128 promote=4", "a consumer thread needs 288 registers"),
        ("dtype=e4m3 tile=128x256x128 promote=4 waves=2", ""),
        ("dtype=e4m3 tile=256x128x128 promote=2 waves=4 cluster=1x2 scheduler=stream-k", ""),
        ("dtype=e4m3 scale-a=1x128 scale-b=128x128 tile=256x128x128 waves=2 cluster=1x2", ""),
        ("dtype=f16 tile=256x128x64 sums=f16 promote=2 waves=2", ""),
        ("dtype=e4m3 sparse=a tile=256x128x128 promote=2 waves=2", ""),
        ("dtype=bf16 sparse=b swap=yes tile=128x64x128 promote=1", ""),
        ("dtype=e4m3 sparse=a tile=128x64x128 promote=4", "promoted within a k-tile"),
        ("dtype=e4m3 sparse=a tile=128x64x128 waves=2", "leave InWaves out"),
        ("dtype=e4m3 tile=128x64x128 waves=2", "leave InWaves out"),
        ("dtype=e4m3 tile=128x64x128 promote=8 waves=2", "promoted within a k-tile"),
        (
            "dtype=e4m3 tile=192x64x128 consumers=1 promote=4 waves=2",
            "3 blocks of 64 rows and 64 columns, which do not divide into 2 waves",
        ),
        ("dtype=e4m3 tile=128x24x128 promote=4 waves=2", "a multiple of 8 columns"),
        ("dtype=e4m3 tile=128x64x128 promote=4 waves=0", "which do not divide into 0 waves"),
        (
            "dtype=e4m3 tile=128x64x128 step=16 promote=4 waves=2",
            "a tile that is narrowed has at most 256 columns",
        ),
        ("dtype=f16 tile=128x256x64 sums=f16", ""),
        ("dtype=f16 tile=128x256x64 sums=f16 promote=4", ""),
        ("dtype=f16 tile=256x128x64 sums=f16 promote=1 swap=yes scheduler=stream-k", ""),
        ("dtype=e4m3 dtype-b=e5m2 tile=128x128x128 sums=f16", ""),
        ("dtype=f16 tile=128x64x64 sums=f32", ""),
        ("dtype=bf16 sums=f16", "sums is `f16`, f32 for products of bf16 and bf16 was needed"),
        ("dtype=tf32 sums=f16", "f32 for products of tf32"),
        ("dtype=s8 sums=f16", "s32 for products of s8"),
        ("dtype=f16 sums=s32", "f32 or f16 for products of f16 and f16 was needed"),
        ("dtype=f16 sums=f64", "f32 or f16"),
    ] {
        match spec.parse::<KernelSpec>() {
            Ok(parsed) => {
                assert_eq!(words, "", "{spec}");
                let gemm = parsed.kernel().expect("a spec that parses is legal");
                assert_eq!(gemm.spec(), Some(parsed), "{spec}");
                assert_eq!(parsed.to_string().parse(), Ok(parsed), "{spec}");
                let (every, half) = (parsed.mainloop.atom.promote, spec.contains("sums=f16"));
                let name = gemm.rust_type();
                assert_eq!(name.contains(&format!("Promoted<U{every}>")), every > 0, "{name}");
                assert_eq!(name.contains("InHalf"), half, "{name}");
                let waves = parsed.mainloop.waves;
                assert_eq!(name.contains(&format!("InWaves<U{waves}")), waves > 1, "{name}");
            }
            Err(error) => {
                let text = error.to_string();
                assert!(!words.is_empty() && text.contains(words), "{spec}: {text}");
            }
        }
    }
}
