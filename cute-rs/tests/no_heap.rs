//! Tests that operations on layouts of rank 8 allocate no heap memory.

#![expect(unsafe_code, reason = "allocations can only be counted by an allocator, which is an unsafe trait")]

use std::alloc::{GlobalAlloc, Layout as Block, System};
use std::cell::Cell;
use std::hint::black_box;

use cute_rs::{Basis, Coord, CoordLayout, IntTuple, Layout, LayoutError, Swizzle, Tiler};

thread_local! {
    /// The number of allocations of this thread.
    static ASKED: Cell<u64> = const { Cell::new(0) };
}

/// The system's allocator with a count of the allocations per thread.
struct Counting;

fn count() {
    // A thread that is ending no longer has a counter.
    let _ = ASKED.try_with(|asked| asked.set(asked.get() + 1));
}

// SAFETY: all calls go unchanged to the system's allocator, and counting allocates no memory.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, block: Block) -> *mut u8 {
        count();
        // SAFETY: the caller guarantees what the system's allocator requires.
        unsafe { System.alloc(block) }
    }

    unsafe fn realloc(&self, old: *mut u8, block: Block, size: usize) -> *mut u8 {
        count();
        // SAFETY: as above.
        unsafe { System.realloc(old, block, size) }
    }

    unsafe fn dealloc(&self, old: *mut u8, block: Block) {
        // SAFETY: as above.
        unsafe { System.dealloc(old, block) }
    }
}

#[global_allocator]
static COUNTING: Counting = Counting;

/// The result of `run`, and the number of its allocations.
fn allocations(run: impl FnOnce() -> bool) -> (bool, u64) {
    let before = ASKED.get();
    let result = black_box(run());
    (result, ASKED.get() - before)
}

/// A layout of eight modes; one of them is nested.
fn eight() -> Result<Layout, LayoutError> {
    let (front, back) = ((2, (3, 2), 4, 2), (3, 2, 2, 5));
    let shape = IntTuple::concat(&[front.into(), back.into()])?;
    Layout::row_major(shape)
}

#[test]
fn what_allocates_is_counted() {
    assert_eq!(allocations(|| vec![1, 2, 3].len() == 3), (true, 1));
    assert_eq!(allocations(|| "no heap".len() == 7), (true, 0));
}

#[test]
fn nothing_allocates() -> Result<(), LayoutError> {
    let layout = eight()?;
    let shape = layout.shape();
    assert_eq!(layout.rank(), 8);
    let padded = Layout::new(shape, layout.stride().map(|stride| 2 * stride))?;
    let walk = Layout::column_major(shape)?;
    let grid = Layout::flat(&[2; 8], &[1, 2, 4, 8, 16, 32, 64, 128])?;
    let tile = Layout::flat(&[2, 2], &[1, 6])?;
    let half = Layout::flat(&[1], &[1])?.mode(0);
    let tilers = [Tiler::By(&half), Tiler::Keep, Tiler::By(&half)];
    let tiler = Tiler::Modes(&tilers);
    let by_shape = IntTuple::from((2, (3, 1), 2));
    let coord = shape.idx2crd(1234);
    let mut fixed = [None; 8];
    (fixed[1], fixed[5]) = (Some(4), Some(1));
    let deep = [Coord::At(1), Coord::Modes(&[Coord::Keep, Coord::At(1)])];
    let coords = CoordLayout::identity(shape)?;
    let composed = Swizzle::new(2, 1, 3)?.after(layout);
    let sevenths = Layout::flat(&[4], &[7])?;
    let pair = layout.take(0, 2)?;
    let order = [7, 6, 5, 4, 3, 2, 1, 0];
    let eight_times = [4, 12, 8, 4, 6, 4, 4, 10];
    let cases: &[(&str, &dyn Fn() -> bool)] = &[
        ("evaluation", &|| layout.at(1234) > 0 && layout.at_coord(&coord).is_ok()),
        ("with operators", &|| layout.apply(1234_u32).is_ok() && layout.apply_modes(&[1_u32; 8]).is_ok()),
        ("cosize", &|| layout.cosize() > 0),
        ("shape arithmetic", &|| shape.shape_div(&IntTuple::int(12)).is_ok() && shape.gcd() == Ok(1)),
        ("relations", &|| shape.compatible(&shape) && coord.elem_less(&shape) && coord.colex_less(&shape)),
        ("coordinates", &|| shape.crd2idx(&coord) == Ok(1234) && shape.coords().take(9).count() == 9),
        ("coordinates in order", &|| shape.coords_in(&shape).is_ok_and(|mut coords| coords.next().is_some())),
        ("leaves and modes", &|| shape.leaves().sum::<i64>() > 0 && shape.modes().count() == 8),
        ("new", &|| Layout::new(shape, layout.stride()).is_ok()),
        ("ordered", &|| Layout::ordered(shape, &coord).is_ok()),
        ("compact_like", &|| padded.compact_like().is_ok() && padded.fragment_like().is_ok()),
        ("coalesce", &|| layout.coalesce().rank() > 0 && layout.coalesce_x().rank() > 0),
        ("coalesce_by", &|| layout.coalesce_by(&shape).is_ok() && layout.filter_by(&shape).is_ok()),
        ("edits", &|| {
            layout.group(2, 6).is_ok() && layout.reverse().rank() == 8 && layout.zip(&padded).is_ok()
        }),
        ("insert", &|| {
            layout.insert(3, &tile).is_ok() && layout.remove(3).is_ok() && layout.replace(3, &tile).is_ok()
        }),
        ("select", &|| layout.select(&order).is_ok() && layout.take(2, 7).is_ok()),
        ("slice", &|| layout.slice(&fixed).is_ok() && layout.dice(&fixed).is_ok()),
        ("slice_at", &|| pair.slice_at(&Coord::Modes(&deep)).is_ok()),
        ("coord_of", &|| layout.coord_of(1234).is_some() && layout.index_of(1234).is_some()),
        ("composition", &|| layout.composition(&walk).is_ok()),
        ("composition_by", &|| layout.composition_by(&tiler).is_ok()),
        ("with_shape", &|| layout.with_shape(IntTuple::int(layout.size())).is_ok()),
        ("complement", &|| padded.complement(1 << 20).is_ok() && padded.complement_all().is_ok()),
        ("right_inverse", &|| layout.right_inverse().is_ok()),
        ("left_inverse", &|| padded.left_inverse().is_ok()),
        ("nullspace", &|| layout.nullspace().is_ok()),
        ("common", &|| layout.max_common_layout(&padded).is_ok() && layout.max_alignment() > 0),
        ("domain_distribute", &|| Layout::domain_distribute(shape, 64).is_ok()),
        ("logical_divide", &|| walk.logical_divide(&tile).is_ok()),
        ("divides by mode", &|| {
            layout.zipped_divide_by(&tiler).is_ok() && layout.flat_divide(&tiler).is_ok()
        }),
        ("divides by a shape", &|| layout.tiled_divide(&Tiler::Shape(&by_shape)).is_ok()),
        ("logical_product", &|| layout.logical_product(&grid).is_ok()),
        ("products by mode", &|| {
            layout.zipped_product(&tiler).is_ok() && layout.flat_product(&tiler).is_ok()
        }),
        ("blocked", &|| layout.blocked_product(&grid).is_ok() && layout.raked_product(&grid).is_ok()),
        ("tile_to_shape", &|| layout.tile_to_shape(&eight_times, &order).is_ok()),
        ("recast", &|| padded.recast(16, 32).is_ok() && layout.downcast(2).is_ok()),
        ("swizzled", &|| {
            composed.at(1234) > 0 && composed.slice(&fixed).is_ok() && composed.left_inverse().is_ok()
        }),
        ("swizzled tiles", &|| composed.zipped_divide_by(&tiler).is_ok() && composed.downcast(2).is_ok()),
        ("yielding coordinates", &|| coords.at(1234) == coord && coords.slice(&fixed).is_ok()),
        ("coordinates of tiles", &|| coords.zipped_divide_by(&tiler).is_ok() && coords.coshape() == shape),
        ("walking along components", &|| layout.composition_coords(&coords).is_ok()),
        ("coprofile", &|| Basis::coprofile(&[coords.stride(3), coords.stride(0)]).is_ok()),
        ("a refusal", &|| layout.composition(&sevenths).is_err()),
    ];
    for (what, run) in cases {
        assert_eq!(allocations(run), (true, 0), "{what}: (has a result, allocations)");
    }
    Ok(())
}
