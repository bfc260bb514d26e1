//! Forms of tensor copies: loads and stores in every mode, reducing copies, and tensor maps that the kernel
//! changes.

use ptx::abi::{Argument, Promotion, TensorElement, TensorMap, TensorSwizzle};
use ptx::inst::{AtomicOp, AtomicType, Reduction, Scope};
use ptx::{MapChange, TensorLoad, Type};

use super::copies::{Body, LINE, THREADS, awaiting, fill, finished, first, line, out, set, zero};
use super::{InstructionCase, InstructionForm};

/// Every form.
pub(super) fn forms() -> Vec<InstructionForm> {
    let mut all = boxes();
    all.extend(tensor_reductions());
    all.push(changed_map());
    all
}

/// A form with tensor maps of the inputs and outputs of its only case.
pub(super) fn tensor<M: Into<Argument>>(
    (family, name): (&str, String),
    (ty, input, output): (Type, u32, u32),
    maps: impl Fn(u64, u64) -> Vec<M> + Send + Sync + 'static,
    body: Body,
) -> InstructionForm {
    let form = line((family, name), (1, input, output), ty, None, body);
    let cases = form.cases;
    InstructionForm {
        maps: Some(Box::new(move |input, output| maps(input, output).into_iter().map(M::into).collect())),
        cases: Box::new(move |random| cases(random).into_iter().take(1).collect()),
        ..form
    }
}

/// The tensors of the forms of boxes: extents and box of each rank in words, and where a load and a store
/// begin. A load is clipped on both sides. A store is clipped only at the tensor's end, because it must not
/// begin before the tensor.
fn shape(rank: usize, swizzle: TensorSwizzle, address: u64) -> (TensorMap, [Vec<i32>; 2]) {
    let extents = [60, 5, 3, 2, 2];
    let boxes = [swizzle.span().map_or(20, |span| span / 4), 4, 2, 2, 1];
    // The innermost start is a multiple of 16 bytes.
    let load = [if swizzle == TensorSwizzle::None { 44 } else { -4 }, -1, 2, -1, 1];
    let store = [if swizzle == TensorSwizzle::None { 44 } else { 56 }, 3, 2, 1, 1];
    let mut strides = vec![256u64];
    for dim in 1..4 {
        strides.push(strides[dim - 1] * extents[dim]);
    }
    let map = TensorMap {
        element: TensorElement::U32,
        address,
        dims: extents[..rank].to_vec(),
        strides: strides[..rank - 1].to_vec(),
        box_dims: boxes[..rank].to_vec(),
        swizzle,
        promotion: Promotion::default(),
        reach: None,
    };
    (map, [load, store].map(|starts| starts[..rank].to_vec()))
}

/// Size of the tensor of rank 5 in bytes.
const TENSOR: u32 = 256 * 5 * 3 * 2 * 2;

fn boxes() -> Vec<InstructionForm> {
    let mut all = Vec::new();
    for rank in 1..=5 {
        for swizzle in [TensorSwizzle::None, TensorSwizzle::B32, TensorSwizzle::B64, TensorSwizzle::B128] {
            // Copies of rank 1 have no swizzle.
            if rank == 1 && swizzle != TensorSwizzle::None {
                continue;
            }
            let (map, [load_starts, store_starts]) = shape(rank, swizzle, 0);
            let bytes = u32::try_from(map.box_bytes()).unwrap_or(0);
            let whole = bytes.next_multiple_of(128);
            let load: Body = Box::new(move |f, [_, output], shared| {
                let map = f.tensor_map("map");
                // Bytes that the box does not fill are zeros.
                zero(f, shared, whole);
                let barrier = awaiting(f, shared, bytes);
                f.if_(first(f), || {
                    let load = TensorLoad { map, dst: shared, barrier, multicast: None, hint: None };
                    f.tensor_load(load, load_starts.iter().map(|&at| f.constant(at)));
                });
                f.mbarrier_wait(barrier, 0);
                out(f, shared, output, whole);
            });
            let span = swizzle.span().unwrap_or(0);
            let name = format!("cp.async.bulk.tensor.{rank}d load swizzle {span}");
            let maps = move |input, _| vec![shape(rank, swizzle, input).0];
            let sizes = (Type::U32, TENSOR, whole);
            all.push(tensor(("cp.async.bulk.tensor load", name), sizes, maps, load));

            let store: Body = Box::new(move |f, [input, output], shared| {
                let map = f.tensor_map("map");
                set(f, output, TENSOR, 7);
                fill(f, input, shared, whole);
                f.if_(first(f), || {
                    f.tensor_store(map, shared, store_starts.iter().map(|&at| f.constant(at)));
                    finished(f);
                });
            });
            let name = format!("cp.async.bulk.tensor.{rank}d store swizzle {span}");
            let maps = move |_, output| vec![shape(rank, swizzle, output).0];
            let sizes = (Type::U32, whole, TENSOR);
            all.push(tensor(("cp.async.bulk.tensor store", name), sizes, maps, store));
        }
    }
    all
}

/// The tensor map of a packed matrix of these numbers of columns and rows, copied in boxes of `box_dims`.
fn rows(element: TensorElement, address: u64, [columns, rows]: [u32; 2], box_dims: [u32; 2]) -> TensorMap {
    TensorMap {
        element,
        address,
        dims: vec![columns.into(), rows.into()],
        strides: vec![(columns * element.bytes()).into()],
        box_dims: box_dims.to_vec(),
        swizzle: TensorSwizzle::None,
        promotion: Promotion::default(),
        reach: None,
    }
}

fn tensor_reductions() -> Vec<InstructionForm> {
    let elements = [
        (TensorElement::U32, AtomicType::U32),
        (TensorElement::S32, AtomicType::S32),
        (TensorElement::U64, AtomicType::U64),
        (TensorElement::S64, AtomicType::S64),
        (TensorElement::F16, AtomicType::F16),
        (TensorElement::Bf16, AtomicType::Bf16),
        (TensorElement::F32, AtomicType::F32),
    ];
    let mut all = Vec::new();
    for (element, ty) in elements {
        for op in AtomicOp::ALL {
            if !(Reduction { op, ty }).in_global() {
                continue;
            }
            // Eight rows of 64 bytes. The reduction covers 5 inner rows, from row 2.
            let body: Body = Box::new(move |f, [input, output], shared| {
                let map = f.tensor_map("map");
                fill(f, input, shared, LINE);
                f.if_(first(f), || {
                    f.bulk_store(output, shared, LINE);
                    finished(f);
                });
                f.barrier_sync(0, THREADS);
                fill(f, input + u64::from(LINE), shared, LINE);
                f.if_(first(f), || {
                    f.tensor_reduce(op, map, shared, [f.constant(0), f.constant(2)]);
                    finished(f);
                });
            });
            let maps = move |_, output| {
                let columns = 64 / element.bytes();
                vec![rows(element, output, [columns, 7], [columns, 8])]
            };
            let name = format!("cp.reduce.async.bulk.tensor{}", Reduction { op, ty }.suffix());
            let sizes = (ty.register(), 2 * LINE, LINE);
            all.push(tensor(("cp.reduce.async.bulk.tensor", name), sizes, maps, body));
        }
    }
    all
}

/// A map of one row of words becomes one of every second row of a matrix, and a box of it is loaded.
fn changed_map() -> InstructionForm {
    let body: Body = Box::new(|f, [input, output], shared| {
        let map = f.tensor_map("map");
        let (copy, slot) = (shared + 4096, output + u64::from(LINE));
        f.copy_tensor_map(map, copy);
        f.warp_sync();
        f.if_(first(f), || {
            for change in [
                MapChange::Address(input + 64u64),
                MapChange::Rank(2),
                MapChange::Extent(0, f.constant(15)),
                MapChange::Extent(1, f.constant(6)),
                MapChange::Stride(1, f.constant(64)),
                MapChange::Box(0, f.constant(16)),
                MapChange::Box(1, f.constant(8)),
                MapChange::ElementStride(1, f.constant(2)),
                MapChange::Element(TensorElement::U32),
                MapChange::Swizzle(TensorSwizzle::B64),
            ] {
                f.replace_tensor_map(copy, change);
            }
        });
        f.warp_sync();
        f.publish_tensor_map(slot, copy, Scope::Gpu);
        f.acquire_tensor_map(slot, Scope::Gpu);
        zero(f, shared, LINE);
        let barrier = awaiting(f, shared, 256);
        f.if_(first(f), || {
            let load = TensorLoad { map: slot, dst: shared, barrier, multicast: None, hint: None };
            f.tensor_load(load, [f.constant(0), f.constant(1)]);
        });
        f.mbarrier_wait(barrier, 0);
        out(f, shared, output, LINE);
    });
    let maps = |input, _| vec![rows(TensorElement::F32, input, [4, 1], [4, 1])];
    let named = ("tensormap.replace", "tensormap.replace of every field".to_owned());
    let form = tensor(named, (Type::U32, LINE, LINE + 128), maps, body);
    let cases = form.cases;
    // The bytes of the map itself are undefined.
    let defined: Vec<bool> = (0..(LINE + 128) / 4).map(|word| word < LINE / 4).collect();
    InstructionForm {
        cases: Box::new(move |random| {
            let told = |case| InstructionCase { defined: Some(defined.clone()), ..case };
            cases(random).into_iter().map(told).collect()
        }),
        ..form
    }
}
