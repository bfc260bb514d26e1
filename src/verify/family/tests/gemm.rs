//! GEMM as a family: results of every form, type and direction are expected; mistakes are found; and what is not known is said.

use kernel::{AnyGemm, Emulator, Family, Machine, Request};
use reference::Format;

use crate::verify::family::{FamilyError, check};
use crate::verify::tampered::{Mistake, Tampered};

fn request(text: &str) -> Request<'static> {
    AnyGemm::request(text).unwrap_or_else(|error| panic!("{text}: {error}"))
}

/// Problems, and the number of elements of D.
const PROBLEMS: [(&str, usize); 53] = [
    ("single 70x40x136 bf16 kk epilogue=linear", 2800),
    ("single 72x40x136 bf16 mn epilogue=linear+c", 2880),
    ("single 72x40x136 f16 mk epilogue=linear", 2880),
    ("single 70x40x136 bf16 kn epilogue=linear+c", 2800),
    ("single 33x17x65 bf16 kk epilogue=linear", 561),
    ("single 33x24x64 bf16 kk aligned=010 epilogue=linear", 792),
    ("single 40x24x64 s8 kk epilogue=linear", 960),
    ("single 40x24x64 u8-s8 kk epilogue=linear+c", 960),
    ("single 40x24x72 tf32 kk epilogue=linear", 960),
    ("single 40x24x72 f64 kk epilogue=linear+c", 960),
    ("single 70x136x300 e4m3-e5m2 kk epilogue=linear", 9520),
    ("single 70x136x320 e4m3-1x128-128x128 kk epilogue=linear", 9520),
    ("single 72x136x256 e4m3-1x128-1x128 kk epilogue=linear+c", 9792),
    ("batched 70x40x136 bf16 kn groups=3 epilogue=linear+c", 8400),
    ("batched 20x136x256 e4m3-1x128-128x128 kk groups=2 epilogue=linear", 5440),
    ("ragged 100x40x136 bf16 kk groups=3 epilogue=linear", 4000),
    ("ragged 2x40x136 bf16 kn groups=3 epilogue=linear+c", 80),
    ("ragged 100x136x256 e4m3-1x128-128x128 kk groups=3 epilogue=linear", 13600),
    ("masked 96x40x136 bf16 kk groups=3 epilogue=linear", 3840),
    ("masked 96x136x256 e4m3-1x128-128x128 kk groups=3 epilogue=linear", 13056),
    ("k-grouped 40x24x500 bf16 mn groups=3 epilogue=linear", 2880),
    ("k-grouped 40x136x528 e4m3-1x128-1x128 kk groups=2 epilogue=linear", 10880),
    ("single 64x64x128 bf16-sparse-a kk epilogue=linear+c", 4096),
    ("single 40x72x256 e4m3-sparse-b kk epilogue=linear", 2880),
    ("batched 64x64x128 f16-sparse-a kk groups=2 epilogue=linear", 8192),
    ("single 16x200x256 bf16-s4g128 kk epilogue=linear", 3200),
    ("single 16x64x304 f16-u8g0 kk epilogue=linear", 1024),
    ("single 24x64x256 bf16-e2m1g32 kk epilogue=linear+c", 1536),
    ("ragged 24x64x256 bf16-u4g64z kk groups=2 epilogue=linear", 1536),
    ("single 5x8x0 bf16 kk epilogue=linear", 40),
    ("single 0x8x8 bf16 kk epilogue=linear", 0),
    ("single 24x64x256 bf16-e4m3g128 kk epilogue=linear", 1536),
    ("single 24x64x256 f16-e5m2g0 kk epilogue=linear", 1536),
    ("grouped 72x40x136 bf16 kk groups=3 epilogue=linear", 2880),
    ("grouped 70x41x64 bf16 mn groups=2 aligned=111 epilogue=linear", 2870),
    ("single 70x40x136 bf16 kk epilogue=bias-gelu", 2800),
    ("single 70x40x136 bf16 kk epilogue=residual", 2800),
    ("single 70x64x136 bf16 kk epilogue=swiglu", 2240),
    ("single 70x128x136 f16 kk epilogue=swiglu-split", 4480),
    ("single 70x256x72 bf16 kk epilogue=rope", 70 * 256),
    ("single 70x40x136 bf16 kk epilogue=bias-sums", 2800 + 40),
    ("single 70x40x136 bf16 kk epilogue=bias-sums-ordered", 2800 + 40),
    ("single 70x40x136 bf16 kk epilogue=bias-amax", 2800 + 1),
    ("single 70x48x136 bf16-bf16-e4m3 kk epilogue=bias-fp8", 3360 + 1),
    ("single 70x256x136 bf16-bf16-e4m3 kk epilogue=quantized", 70 * 256 + 2 * 70),
    ("single 70x40x136 bf16 kk epilogue=bias-dropout", 2800),
    ("single 40x24x64 s8-s8-f32 kk epilogue=row-column-scaled", 960),
    ("single 64x64x128 bf16-sparse-a kk epilogue=bias-gelu", 4096),
    ("single 24x64x256 bf16-s4g128 kk epilogue=bias-relu", 1536),
    ("single 72x136x256 e4m3-1x128-128x128 kk epilogue=bias", 9792),
    ("batched 70x40x136 bf16 kn groups=3 epilogue=bias-sums", 8400 + 40),
    ("ragged 100x40x136 bf16 kk groups=3 epilogue=row-scaled", 4000),
    ("masked 96x64x136 bf16 kk groups=3 epilogue=swiglu", 3072),
];

/// Each kernel that is ranked first computes all of it, and comes near to what the bound allows.
#[test]
fn every_element_of_a_gemm_is_expected() {
    for (text, count) in PROBLEMS {
        let request = request(text);
        assert_eq!(AnyGemm::problem(&request).to_string(), text);
        let ranked = AnyGemm::ranked(&request, &Machine::h200(), 2);
        for of in ranked.unwrap_or_else(|error| panic!("{text}: {error}")) {
            let mut engine = Emulator::new().with_multiprocessors(3);
            let agreed = check(&mut engine, &of.kernel, &request, (7, usize::MAX));
            let agreed = agreed.unwrap_or_else(|error| panic!("{text}, {}: {error}", of.kernel.name()));
            assert_eq!((agreed.compared, agreed.total), (count, count), "{text}");
            // Of the products of 24-bit numbers, f64 loses nothing.
            let exact = count == 0 || ["s8 ", "s8+", "f64", "x0 "].iter().any(|word| text.contains(word));
            assert!(exact || agreed.ratio > 0.01, "{text}: bounds that say nothing: {agreed:?}");
        }
    }
}

/// An element of any GEMM of a launch, far from what it must be; D is the piece of this number, and the element has a place in its memory.
#[test]
fn mistakes_in_gemms_are_found() {
    for (text, piece, at, element) in [
        ("single 70x40x136 bf16 kk epilogue=linear", 2, 70 * 40 - 1, 70 * 40 - 1),
        ("single 72x40x136 bf16 mn epilogue=linear+c", 2, 7, 7),
        ("batched 70x40x136 bf16 kn groups=3 epilogue=linear", 2, 2 * 70 * 40 + 11, 2 * 70 * 40 + 11),
        ("ragged 100x40x136 bf16 kk groups=3 epilogue=linear", 3, 34 * 40, 34 * 40),
        ("masked 96x40x136 bf16 kk groups=3 epilogue=linear", 3, 95 * 40 + 39, 95 * 40 + 39),
        ("single 70x136x256 e4m3-1x128-128x128 kk epilogue=linear", 4, 69 * 136, 69 * 136),
        // D of the second GEMM follows its A, B and C, and all of the first; it has longer lines, and begins later.
        ("grouped 70x40x136 bf16 kk groups=2 epilogue=linear", 7, 35 * 40, 64 * 40),
        ("single 70x40x136 bf16 kk epilogue=bias-gelu", 2, 70 * 40 - 1, 70 * 40 - 1),
        ("single 70x64x136 bf16 kk epilogue=swiglu", 2, 33, 33),
    ] {
        let request = request(text);
        let first = AnyGemm::first(&request, &Machine::h200()).unwrap_or_else(|error| panic!("{error}"));
        let wrong = Mistake::element(Format::Bf16, at * 2, 0x4780);
        let found = check(&mut Tampered::new(piece, wrong), &first.kernel, &request, (7, usize::MAX));
        let found = found.expect_err(text);
        let right = matches!(found, FamilyError::Element { name: "D", index, found, .. } if index == element && found == 65536.0);
        assert!(right, "{text}: {found}");
    }
}

/// Nothing passes because nothing was compared; and no kernel is checked at a problem of other matrices.
#[test]
fn what_is_not_known_of_gemms_is_said() {
    for (text, spec, words) in [
        (
            "single 64x64x64 bf16 kk epilogue=linear",
            "dtype=f16",
            "the kernel's types is f16, bf16 was needed",
        ),
        ("single 64x64x64 bf16 kk epilogue=linear", "layout=kn", "the kernel's layout is kn, kk was needed"),
        ("single 64x64x64 bf16 kk epilogue=linear", "form=ragged", "the kernel's form is ragged, single was"),
        (
            "single 64x64x64 bf16 kk epilogue=linear",
            "epilogue=relu(acc)",
            "the kernel's epilogue is relu(acc), linear was needed",
        ),
        (
            "single 64x64x64 bf16 kk epilogue=relu(acc)",
            "",
            "the kernel's epilogue is linear, relu(acc) was needed",
        ),
    ] {
        let tile = if spec.contains("tile") { "" } else { "tile=64x64x64 consumers=1 store=direct" };
        let spec = format!("{spec} {tile}").trim().parse().unwrap_or_else(|error| panic!("{spec}: {error}"));
        let kernel = AnyGemm::of_spec(&spec).unwrap_or_else(|error| panic!("{spec}: {error}"));
        let found = check(&mut Emulator::new(), &kernel, &request(text), (7, 9)).expect_err(text).to_string();
        assert!(found.contains(words), "{text}, {spec}: {found}");
    }
    for (text, words) in [
        ("single 8x8x8 bf17 kk epilogue=linear", "element is `bf17`"),
        ("single 8x8x8 bf16 kk groups=2 epilogue=linear", "groups is 2, 1 was needed"),
        ("masked 7x8x8 bf16 kk groups=2 epilogue=linear", "m is 7, a multiple of the 2 groups was needed"),
        ("masked 8x8x8 bf16 kk groups=0 epilogue=linear", "groups is 0, at least 1 was needed"),
        ("single 8x8x8 bf16 kk epilogue=acc+", "epilogue: "),
        ("single 8x8x8 bf16-bf16-f32 kk epilogue=relu(acc)", "`bf16` was needed"),
    ] {
        let refused = AnyGemm::request(text).map(drop).expect_err(text);
        assert!(refused.contains(words), "{text}: {refused}");
    }
}
