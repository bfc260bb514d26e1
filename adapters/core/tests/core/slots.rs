//! The arguments of texts, by name.

use falchion::collective::Format::{self, Bf16, F32};
use falchion::collective::tree::Shape;
use falchion_core::{Kind, slots};

const SHAPE: Shape = Shape { m: 40, n: 24 };

fn memory(format: Format, extents: [u32; 2], matrix: bool) -> Kind {
    Kind::Memory { format, extents, matrix, writes: false, identity: None, each: false }
}

#[test]
fn each_argument_says_what_it_is() {
    let vector = |extents| memory(Bf16, extents, false);
    let each = Kind::Memory {
        format: Bf16,
        extents: [1, 24],
        matrix: false,
        writes: false,
        identity: None,
        each: true,
    };
    for (text, wanted) in [
        ("relu(acc)", vec![]),
        ("alpha * acc", vec![("alpha", Kind::Scalar)]),
        ("acc + bias[n]", vec![("bias", vector([1, 24]))]),
        ("acc + shift[m]", vec![("shift", vector([1, 40]))]),
        ("acc + bias[l,n]", vec![("bias", each)]),
        ("acc + x[m,n]", vec![("x", memory(Bf16, [40, 24], true))]),
        ("acc * scale[n] + bias[n]", vec![("bias", vector([1, 24])), ("scale", vector([1, 24]))]),
    ] {
        let formula = text.parse().unwrap_or_else(|error| panic!("{text}: {error}"));
        let found: Vec<_> = slots(formula, Bf16, SHAPE).iter().map(|slot| (slot.name, slot.kind)).collect();
        assert_eq!(found, wanted, "{text}");
    }
}

/// What a kernel writes besides D: where it combines values with what is there, it says with what that begins.
#[test]
fn results_say_so() {
    let of = |text: &str| {
        let formula = text.parse().unwrap_or_else(|error| panic!("{text}: {error}"));
        slots(formula, Bf16, SHAPE)
    };
    let result = |format, extents, matrix, identity| Kind::Memory {
        format,
        extents,
        matrix,
        writes: true,
        identity,
        each: false,
    };
    for (text, name, kind) in [
        ("reduce_sum(sums[n], acc)", "sums", result(F32, [1, 24], false, Some(0.0))),
        ("reduce_max(largest[m], acc)", "largest", result(F32, [1, 40], false, Some(f32::NEG_INFINITY))),
    ] {
        let found = of(text);
        assert_eq!(found.iter().find(|slot| slot.name == name).map(|slot| slot.kind), Some(kind), "{text}");
    }
}
