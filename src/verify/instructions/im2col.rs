//! Forms of tensor copies in im2col mode: with one to three dimensions of pixels, in every swizzle, across
//! the edges of the tensor and of its bounding box. They are compared with a list of all bases.

use ptx::abi::{Im2colMap, TensorElement, TensorSwizzle};
use ptx::inst::AtomicOp;
use ptx::{TensorLoad, Type};

use super::copies::{Body, awaiting, fill, finished, first, out, set, zero};
use super::tensors::tensor;
use super::{InstructionCase, InstructionForm};

/// Extents of the largest tensor: words of channels, pixels, and images.
const EXTENTS: [i32; 5] = [60, 5, 3, 2, 2];
/// Stride of pixels in bytes.
const PIXEL: u32 = 256;
/// Size of the tensor of rank 5 in bytes.
const TENSOR: u32 = PIXEL * 5 * 3 * 2 * 2;
/// Number of pixels per copy.
const PIXELS: u32 = 24;
/// The contents of a tensor before a store.
const OLD: u32 = 7;

const SWIZZLES: [TensorSwizzle; 4] =
    [TensorSwizzle::None, TensorSwizzle::B32, TensorSwizzle::B64, TensorSwizzle::B128];

/// One copy: the tensor's map without its address, the base, and the filter offset.
#[derive(Clone)]
struct Copy {
    map: Im2colMap,
    base: Vec<i32>,
    offset: Vec<u16>,
}

/// Corners of a bounding box.
type Corners = [[i32; 3]; 2];

/// The bounding box of a load, which extends beyond the tensor.
const AROUND: Corners = [[-2, -1, -1], [1, 0, 0]];
/// The bounding box of a store, which must not extend beyond the tensor on either side.
const INSIDE: Corners = [[0; 3], [-1, 0, 0]];

/// A copy of a rank, from the second base of each dimension, with or without steps and a filter offset.
fn copy(rank: usize, swizzle: TensorSwizzle, [lower, upper]: Corners, moved: bool) -> Copy {
    let spatial = rank - 2;
    let channels = swizzle.span().map_or(20, |span| span / 4);
    let mut dims: Vec<u64> = EXTENTS[..rank - 1].iter().map(|&extent| extent as u64).collect();
    dims.push(2);
    let mut strides = vec![u64::from(PIXEL)];
    for dim in 1..rank - 1 {
        strides.push(strides[dim - 1] * dims[dim]);
    }
    let (lower, steps) = (lower[..spatial].to_vec(), if moved { [2, 1, 2] } else { [1, 2, 1] });
    let steps = steps[..spatial].to_vec();
    let second = lower.iter().zip(&steps).map(|(&lower, &step): (&i32, &u32)| lower + step as i32);
    // The last channels of a pixel are outside the tensor.
    let base = [64 - channels as i32].into_iter().chain(second).chain([0]).collect();
    let offset = if moved { vec![2, 1, 1][..spatial].to_vec() } else { vec![0; spatial] };
    let map = Im2colMap {
        element: TensorElement::U32,
        address: 0,
        dims,
        strides,
        lower,
        upper: upper[..spatial].to_vec(),
        channels,
        pixels: PIXELS,
        steps,
        swizzle,
    };
    Copy { map, base, offset }
}

/// The offset of each word of the copied image in the tensor, in bytes; `None` outside the tensor. The pixels
/// are those that follow the base in the list of all bases of all images.
fn places(copy: &Copy) -> Vec<Option<usize>> {
    let Copy { map, base, offset } = copy;
    let spatial = map.rank() - 2;
    let lattice = |dim: usize| -> Vec<i32> {
        let last = map.dims[dim + 1] as i32 - 1 + map.upper[dim];
        (map.lower[dim]..=last).step_by(map.steps[dim] as usize).collect()
    };
    // Outermost first: images, then depth to width.
    let mut bases: Vec<Vec<i32>> = (0..PIXELS as i32 + 1).map(|image| vec![image]).collect();
    for dim in (0..spatial).rev() {
        let all = lattice(dim);
        let longer = |base: &Vec<i32>| {
            let base = base.clone();
            all.iter().map(move |&at| [vec![at], base.clone()].concat()).collect::<Vec<_>>()
        };
        bases = bases.iter().flat_map(longer).collect();
    }
    let start = bases.iter().position(|at| at[..] == base[1..]).unwrap_or(0);
    let pixel = |at: &Vec<i32>| -> Option<usize> {
        let mut place = 0;
        for (dim, &coordinate) in at.iter().enumerate() {
            let coordinate = coordinate + offset.get(dim).map_or(0, |&offset| i32::from(offset));
            if coordinate < 0 || coordinate >= map.dims[dim + 1] as i32 {
                return None;
            }
            place += coordinate as usize * map.strides[dim] as usize;
        }
        Some(place)
    };
    let words = |at: &Vec<i32>| {
        let place = pixel(at);
        (0..map.channels as i32).map(move |channel| {
            let channel = base[0] + channel;
            place.filter(|_| channel < EXTENTS[0]).map(|place| place + channel as usize * 4)
        })
    };
    bases[start..start + PIXELS as usize].iter().flat_map(words).collect()
}

/// The offset of a word of the copied image in shared memory, in bytes. The swizzle XORs bits of the line
/// number onto the chunk number.
fn swizzled(word: usize, swizzle: TensorSwizzle) -> usize {
    let (byte, chunks) = (word * 4, swizzle.span().map_or(1, |span| span as usize / 16));
    let (line, chunk, rest) = (byte / 128, byte / 16 % 8, byte % 16);
    line * 128 + (chunk ^ (line % chunks)) * 16 + rest
}

/// A form with the expected outputs of its cases.
fn expecting(
    form: InstructionForm,
    expected: impl Fn(&[u8]) -> Vec<u8> + Send + Sync + 'static,
) -> InstructionForm {
    let cases = form.cases;
    let told = move |case: InstructionCase| InstructionCase { expected: Some(expected(&case.input)), ..case };
    InstructionForm { cases: Box::new(move |random| cases(random).into_iter().map(&told).collect()), ..form }
}

fn word(bytes: &[u8], at: usize) -> [u8; 4] {
    bytes.get(at..at + 4).and_then(|word| word.try_into().ok()).unwrap_or_default()
}

/// Every form.
pub(super) fn forms() -> Vec<InstructionForm> {
    let mut all = Vec::new();
    for rank in 3..=5 {
        for swizzle in SWIZZLES {
            all.extend([false, true].map(|moved| load(rank, swizzle, moved)));
        }
        for swizzle in [TensorSwizzle::None, TensorSwizzle::B128] {
            all.push(store(rank, swizzle, None));
        }
        all.push(store(rank, TensorSwizzle::B64, Some(AtomicOp::Add)));
    }
    all
}

fn load(rank: usize, swizzle: TensorSwizzle, moved: bool) -> InstructionForm {
    let copied = copy(rank, swizzle, AROUND, moved);
    let bytes = copied.map.box_bytes() as u32;
    let whole = bytes.next_multiple_of(128);
    let own = copied.clone();
    let body: Body = Box::new(move |f, [_, output], shared| {
        let map = f.tensor_map("map");
        // Bytes that the image does not fill are zeros.
        zero(f, shared, whole);
        let barrier = awaiting(f, shared, bytes);
        f.if_(first(f), || {
            let load = TensorLoad { map, dst: shared, barrier, multicast: None, hint: None };
            let offsets = own.offset.iter().map(|&offset| f.constant(offset));
            f.im2col_load(load, own.base.iter().map(|&at| f.constant(at)), offsets);
        });
        f.mbarrier_wait(barrier, 0);
        out(f, shared, output, whole);
    });
    let span = swizzle.span().unwrap_or(0);
    let offset = if moved { " with offsets" } else { "" };
    let name = format!("cp.async.bulk.tensor.{rank}d.im2col load swizzle {span}{offset}");
    let of = copied.map.clone();
    let maps = move |address, _| vec![Im2colMap { address, ..of.clone() }];
    let sizes = (Type::U32, TENSOR, whole);
    let form = tensor(("cp.async.bulk.tensor.im2col load", name), sizes, maps, body);
    expecting(form, move |input| {
        let mut image = vec![0; whole as usize];
        for (index, place) in places(&copied).into_iter().enumerate() {
            let at = swizzled(index, swizzle);
            image[at..at + 4].copy_from_slice(&place.map_or([0; 4], |place| word(input, place)));
        }
        image
    })
}

fn store(rank: usize, swizzle: TensorSwizzle, reduce: Option<AtomicOp>) -> InstructionForm {
    let copied = copy(rank, swizzle, INSIDE, false);
    let whole = (copied.map.box_bytes() as u32).next_multiple_of(128);
    let own = copied.clone();
    let body: Body = Box::new(move |f, [input, output], shared| {
        let map = f.tensor_map("map");
        set(f, output, TENSOR, OLD);
        // The copy overwrites through the asynchronous proxy what threads have written; `fill` fences.
        fill(f, input, shared, whole);
        f.if_(first(f), || {
            f.im2col_store(map, shared, own.base.iter().map(|&at| f.constant(at)), reduce);
            finished(f);
        });
    });
    let (span, what) = (swizzle.span().unwrap_or(0), if reduce.is_some() { "add" } else { "store" });
    let name = format!("cp.async.bulk.tensor.{rank}d.im2col_no_offs {what} swizzle {span}");
    let of = copied.map.clone();
    let maps = move |_, address| vec![Im2colMap { address, ..of.clone() }];
    let sizes = (Type::U32, whole, TENSOR);
    let form = tensor(("cp.async.bulk.tensor.im2col store", name), sizes, maps, body);
    expecting(form, move |input| {
        let mut tensor: Vec<u8> = (0..TENSOR / 4).flat_map(|_| OLD.to_le_bytes()).collect();
        for (index, place) in places(&copied).into_iter().enumerate() {
            let Some(place) = place else { continue };
            let new = u32::from_le_bytes(word(input, swizzled(index, swizzle)));
            let old = if reduce.is_some() { OLD } else { 0 };
            tensor[place..place + 4].copy_from_slice(&old.wrapping_add(new).to_le_bytes());
        }
        tensor
    })
}
