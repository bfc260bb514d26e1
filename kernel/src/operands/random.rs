//! What random inputs are filled with, again and again.

use collective::{Format, sparse};

use super::Contents;

/// Random data for memory with these contents, to be repeated. It is empty for contents that are no random
/// numbers. With `zeros`, an operand has a zero for each element that a sparse one does not keep.
pub fn random_contents(contents: Contents, zeros: bool) -> Vec<u8> {
    use Contents::{
        Codes, Elements, Exponents, GroupScales, Indices, Logarithms, Metadata, Multiplied, Order, Output,
        Records, Report, Scales, Slots, Source, Table, Workspace,
    };
    match contents {
        Multiplied(_, format) if zeros => pruned(format),
        Multiplied(_, format) | Source(format) | GroupScales(format) => random(format),
        // Every bit pattern is a code.
        Codes(..) | Elements(_) => random(Format::E4m3),
        // 1/8 to 8, again and again.
        Exponents => (124..=130).collect(),
        Scales => factors(),
        Logarithms => random(Format::F32),
        Metadata(format) => metadata(format),
        Indices(below) | Order(below) => indices(below).into_iter().flat_map(u32::to_le_bytes).collect(),
        Slots { bits, below } => {
            let narrow = |slot: u32| u64::from(slot).to_le_bytes().into_iter().take((bits / 8) as usize);
            indices(below).into_iter().flat_map(narrow).collect()
        }
        Workspace => vec![0; 1 << 16],
        Output(_) | Table | Records | Report => Vec::new(),
    }
}

/// Random numbers below this one, each once: pages of a cache that are read twice come from L2. Of very many, some.
fn indices(below: u32) -> Vec<u32> {
    const MOST: u32 = 1 << 20;
    let mut random = fastrand::Rng::with_seed(4);
    let mut all: Vec<u32> = (0..below.clamp(1, MOST)).collect();
    if below > MOST {
        all.fill_with(|| random.u32(..below));
    }
    random.shuffle(&mut all);
    all
}

/// Random normal values of a format, to fill matrices by repetition; integers have a deviation of 32.
pub fn random(format: Format) -> Vec<u8> {
    let mut random = fastrand::Rng::with_seed(1);
    let (bytes, size) = (format.bytes() as usize, if format.is_float() { 1.0 } else { 32.0 });
    let narrow = |value: f32| format.encode(f64::from(value) * size).to_le_bytes().into_iter().take(bytes);
    // An odd count, so that rows of a repeated matrix differ.
    let count = (1 << 20) + 1;
    let normal = |random: &mut fastrand::Rng| {
        let (radius, angle) = (1.0 - random.f32(), random.f32() * core::f32::consts::TAU);
        (-2.0 * radius.ln()).sqrt() * angle.cos()
    };
    (0..count).flat_map(|_| narrow(normal(&mut random))).collect()
}

/// Random factors of blocks, from 0.5 to 1.5.
fn factors() -> Vec<u8> {
    let mut random = fastrand::Rng::with_seed(2);
    (0..(1 << 16) + 1).flat_map(|_| (0.5 + random.f32()).to_le_bytes()).collect()
}

/// The same of which half of each chunk along K is zero: those that a sparse operand does not keep. Chunks begin at multiples of their length.
fn pruned(format: Format) -> Vec<u8> {
    let bytes = format.bytes() as usize;
    let element = |of: &[u8]| of.iter().rev().fold(0, |bits, &byte| bits << 8 | u32::from(byte));
    let mut elements: Vec<u32> = random(format).chunks_exact(bytes).map(element).collect();
    // Whole chunks, and no power of two of them, so that rows of a repeated matrix differ.
    let length = elements.len() as u32 - 1 - 4;
    elements.truncate(length as usize);
    // Formats that no sparse instruction multiplies stay as they are.
    let _ = sparse::prune(format, [1, length], &mut elements);
    elements.iter().flat_map(|element| element.to_le_bytes().into_iter().take(bytes)).collect()
}

/// Random metadata of a sparse operand: each four bits name elements that a compressor may have kept.
fn metadata(format: Format) -> Vec<u8> {
    const PAIRS: [[u32; 2]; 6] = [[0, 1], [0, 2], [0, 3], [1, 2], [1, 3], [2, 3]];
    const SINGLES: [[u32; 2]; 2] = [[0, 1], [1, 0]];
    let mut random = fastrand::Rng::with_seed(3);
    let all: &[[u32; 2]] = if sparse::chunk(format) == 2 { &SINGLES } else { &PAIRS };
    let mut word =
        || (0..8).fold(0, |word, i| word | sparse::bits(format, all[random.usize(..all.len())]) << (4 * i));
    (0..(1 << 16) + 1).flat_map(|_| u32::to_le_bytes(word())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Whatever part of a matrix they are, metadata names elements, and pruned rows are sparse.
    #[test]
    fn sparse_data_is_legal() {
        for format in Format::operands() {
            let bytes = format.bytes() as usize;
            let extents = [128, 2 * sparse::unit_k(format)];
            let words = metadata(format);
            let word = |of: &[u8]| u32::from_le_bytes([of[0], of[1], of[2], of[3]]);
            let metadata: Vec<u32> = words.chunks_exact(4).skip(1000).map(word).take(512).collect();
            let values = vec![1; (extents[0] * sparse::kept(format, extents[1])) as usize];
            let compressed = sparse::Compressed { values, metadata };
            assert!(sparse::restore(format, extents, &compressed).is_ok(), "{format}");

            let data = pruned(format);
            let element = |of: &[u8]| of.iter().rev().fold(0, |bits, &byte| bits << 8 | u32::from(byte));
            let elements: Vec<u32> = data.chunks_exact(bytes).map(element).collect();
            let (length, zeros) = (elements.len(), elements.iter().filter(|&&bits| bits == 0).count());
            assert!(length.is_multiple_of(4) && !length.is_power_of_two(), "{format}: {length}");
            assert!((length / 2..length * 3 / 5).contains(&zeros), "{format}: {zeros} of {length}");
            assert!(sparse::compress(format, [1, length as u32], &elements).is_ok(), "{format}");
        }
    }
}
