//! Benchmarks of operations on layouts of rank 4 at run time. The operations allocate no heap memory.

use std::hint::black_box;

use criterion::{Criterion, criterion_group, criterion_main};
use cute_rs::{IntTuple, Layout, Tiler};

fn layout(shape: impl Into<IntTuple>, stride: impl Into<IntTuple>) -> Layout {
    Layout::new(shape.into(), stride.into()).expect("a layout")
}

fn operations(criterion: &mut Criterion) {
    // `a` is a padded tensor, and `b` permutes its modes.
    let a = layout((8, 4, 6, 16), (2048, 512, 80, 1));
    let b = layout((4, 6, 8, 16), (8, 32, 1, 192));
    let gaps = layout((2, 4, 3, 2), (1, 8, 64, 2));
    let tiler = layout((4, 2, 3, 2), (2, 8, 64, 1));
    let grid = layout((2, 2, 3), (2, 1, 4));
    let tile = IntTuple::from((4, 2, 3, 8));
    let mut bench = |name: &str, run: &dyn Fn() -> bool| {
        assert!(run(), "{name} has a result");
        criterion.bench_function(name, |bencher| bencher.iter(run));
    };
    bench("coalesce", &|| black_box(&a).coalesce().rank() > 0);
    bench("composition", &|| black_box(&a).composition(black_box(&b)).is_ok());
    bench("complement", &|| black_box(&gaps).complement(black_box(1 << 12)).is_ok());
    bench("logical_divide", &|| black_box(&a).logical_divide(black_box(&tiler)).is_ok());
    bench("zipped_divide", &|| black_box(&a).zipped_divide_by(&Tiler::Shape(black_box(&tile))).is_ok());
    bench("logical_product", &|| black_box(&gaps).logical_product(black_box(&grid)).is_ok());
    bench("right_inverse", &|| black_box(&a).right_inverse().is_ok());
    bench("at", &|| black_box(&a).at(black_box(1234)) > 0);
}

criterion_group!(benches, operations);
criterion_main!(benches);
