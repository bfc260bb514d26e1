//! One case of `wgmma`: its operands as matrices, the bytes that a program reads, and the bytes that it must
//! write.

use cute_rs::atom::{smem, wgmma};
use fastrand::Rng;
use ptx::inst::WgmmaSum;
use reference::wgmma as definition;

use super::values::{Fields, Kind, Role};
use super::{Shape, THREADS, of_sum};

/// The operands of all instructions of a case, one word per element.
#[derive(Debug)]
pub(super) struct Problem {
    shape: Shape,
    /// A `(64, k_a)` per instruction, contiguous along K.
    a: Vec<Vec<u32>>,
    /// B `(n, k_b)` per instruction.
    b: Vec<Vec<u32>>,
    /// The positions along K of A's elements, per instruction.
    places: Vec<Vec<u32>>,
    /// The old D `(64, n)`.
    old: Vec<u32>,
}

impl Problem {
    pub(super) fn new(shape: Shape, kind: Kind, random: &mut Rng) -> Self {
        let (k_a, k_b, steps) = (shape.k_a() as usize, shape.k_b() as usize, shape.slices.1 as usize);
        let types = shape.types;
        let mut a = vec![vec![0; 64 * k_a]; steps];
        let mut b = vec![vec![0; shape.n as usize * k_b]; steps];
        a.iter_mut().flatten().for_each(|place| *place = kind.draw(random, types.a(), Role::A));
        b.iter_mut().flatten().for_each(|place| *place = kind.draw(random, types.b(), Role::B));
        if let (Kind::Cancelling, Some(fields)) = (kind, Fields::of(types.a())) {
            let sign = 1 << (fields.exponent + fields.fraction + fields.dropped);
            for pair in a.iter_mut().flat_map(|a| a.chunks_exact_mut(2)) {
                if random.u32(..8) > 0 {
                    pair[1] = pair[0] ^ sign;
                }
            }
            for row in b.iter_mut().flat_map(|b| b.chunks_exact_mut(k_b)) {
                let first = row[0];
                row.fill(first);
            }
        }
        let mask = if shape.bits() == 32 { u32::MAX } else { (1 << shape.bits()) - 1 };
        for element in a.iter_mut().chain(&mut b).flatten() {
            *element &= mask;
        }
        let places = (0..steps).map(|_| places(shape, random)).collect();
        let old = (0..64 * shape.n).map(|_| match types.d() {
            WgmmaSum::F16 => kind.draw(random, of_sum(types.d()), Role::Old) & 0xFFFF,
            WgmmaSum::F32 => kind.draw(random, of_sum(types.d()), Role::Old),
            WgmmaSum::S32 => kind.draw(random, types.a(), Role::Old),
        });
        Self { shape, a, b, places, old: old.collect() }
    }

    /// Row and column of value `v` of thread `t`.
    fn coord(&self, t: u32, v: u32) -> (usize, usize) {
        let (w, g, c) = (t / 32, t % 32 / 4, t % 4);
        ((16 * w + g + 8 * (v / 2 % 2)) as usize, (8 * (v / 4) + 2 * c + v % 2) as usize)
    }

    /// D's registers of all threads, given its elements.
    fn registers(&self, element: impl Fn(usize, usize) -> u32) -> Vec<u8> {
        let mut bytes = Vec::new();
        for t in 0..THREADS {
            for v in 0..self.shape.n / 2 {
                let (row, column) = self.coord(t, v);
                let bits = element(row, column).to_le_bytes();
                let width = if self.shape.types.d() == WgmmaSum::F16 { 2 } else { 4 };
                bytes.extend(&bits[..width]);
            }
        }
        bytes
    }

    fn old(&self, row: usize, column: usize) -> u32 {
        self.old[row * self.shape.n as usize + column]
    }

    /// The pairs of elements of A and B that are multiplied with each other.
    fn pairs(&self, step: usize, row: usize, column: usize) -> Vec<(u32, u32)> {
        let (k_a, k_b) = (self.shape.k_a() as usize, self.shape.k_b() as usize);
        let places = &self.places[step][row * k_a..][..k_a];
        let (a, b) = (&self.a[step][row * k_a..], &self.b[step][column * k_b..]);
        a.iter().zip(places).map(|(&a, &place)| (a, b[place as usize])).collect()
    }

    /// The bytes of the output.
    pub(super) fn expected(&self) -> Vec<u8> {
        let shape = &self.shape;
        let negate = shape.negate[0] != shape.negate[1];
        self.registers(|row, column| {
            let mut sum = shape.accumulate.then(|| self.old(row, column));
            for step in 0..self.a.len() {
                sum = Some(definition::sum(shape.types, &self.pairs(step, row, column), negate, sum));
            }
            sum.unwrap_or(0)
        })
    }

    /// Describes the inputs of an output element.
    pub(super) fn explain(&self, element: usize) -> String {
        let values = self.shape.n as usize / 2;
        let (t, v) = ((element / values) as u32, (element % values) as u32);
        let (row, column) = self.coord(t, v);
        let mut text = format!("row {row} column {column}: old D {:#x}", self.old(row, column));
        for step in 0..self.a.len() {
            text += " +";
            for (a, b) in self.pairs(step, row, column) {
                text += &format!(" {a:x}*{b:x}");
            }
        }
        text
    }

    /// The bytes of the input. Bytes that no instruction reads are random.
    pub(super) fn input(&self, random: &mut Rng) -> Vec<u8> {
        let (shape, places) = (self.shape, self.shape.places());
        let mut bytes: Vec<u8> = (0..places.end).map(|_| random.u8(..)).collect();
        let first = shape.slices.0;
        for (step, (a, b)) in (0u32..).zip(self.a.iter().zip(&self.b)) {
            if !shape.registers {
                let image = &mut bytes[places.a as usize..(places.a + places.a_bytes) as usize];
                self.image(image, 0, first + step, a);
            }
            self.image(&mut bytes[places.b as usize..places.image as usize], 1, first + step, b);
            if shape.registers {
                let at = (places.fragments + step * THREADS * 16) as usize;
                self.fragments(&mut bytes[at..], a);
            }
            if shape.sparse.is_some() {
                let at = (places.metadata + step * THREADS * 4) as usize;
                self.metadata(&mut bytes[at..], step as usize);
            }
        }
        let old = self.registers(|row, column| self.old(row, column));
        bytes[places.old as usize..][..old.len()].copy_from_slice(&old);
        bytes
    }

    /// Writes a slice of an operand in the tile's layout.
    fn image(&self, bytes: &mut [u8], operand: usize, slice: u32, elements: &[u32]) {
        let (bits, (mn, k)) = (self.shape.bits(), self.shape.tile(operand));
        let Ok(tile) = smem::tile(self.shape.major(operand), self.shape.mode, bits, mn, k) else { return };
        let (width, own) =
            ((bits / 8) as usize, if operand == 0 { self.shape.k_a() } else { self.shape.k_b() });
        for (row, elements) in (0i64..).zip(elements.chunks_exact(own as usize)) {
            for (at, element) in (i64::from(slice * own)..).zip(elements) {
                let offset = usize::try_from(tile.at_modes(&[row, at])).unwrap_or(0) * width;
                bytes[offset..][..width].copy_from_slice(&element.to_le_bytes()[..width]);
            }
        }
    }

    /// A's registers of all threads.
    fn fragments(&self, bytes: &mut [u8], a: &[u32]) {
        let Ok(layout) = wgmma::operand_a(self.shape.bits()) else { return };
        let (width, values) = ((self.shape.bits() / 8) as usize, 128 / self.shape.bits());
        for (t, v) in (0..THREADS).flat_map(|t| (0..values).map(move |v| (t, v))) {
            let (row, k) = layout.coord(t.into(), v.into());
            let element = a[(row * i64::from(self.shape.k_a()) + k) as usize];
            let at = t as usize * 16 + v as usize * width;
            bytes[at..][..width].copy_from_slice(&element.to_le_bytes()[..width]);
        }
    }

    /// The metadata registers of all threads. Lanes that are not read keep random values.
    fn metadata(&self, bytes: &mut [u8], step: usize) {
        let (k_a, bits) = (self.shape.k_a() as usize, self.shape.bits());
        let (kept, of) = if bits == 32 { (1, 2) } else { (2, 4) };
        let chunks = k_a / kept;
        let mut words = vec![None::<u32>; THREADS as usize];
        for row in 0..64usize {
            let (warp, g, upper) = (row / 16, row % 8, row / 8 % 2);
            for chunk in 0..chunks {
                let places = &self.places[step][row * k_a + chunk * kept..][..kept];
                let nibble = match places {
                    [one] => [0b0100, 0b1110][(one % of) as usize],
                    [low, high] => (low % of) | ((high % of) << 2),
                    _ => 0,
                };
                let half = chunk / (chunks / 2);
                let place = (chunk % (chunks / 2) * 4) as u32;
                let (c, shift) = if bits == 8 {
                    (upper + 2 * half, place)
                } else {
                    (2 * self.shape.sparse.unwrap_or(0) as usize + half, place + 16 * upper as u32)
                };
                let word = words[warp * 32 + 4 * g + c].get_or_insert(0);
                *word |= nibble << shift;
            }
        }
        for (place, word) in bytes.chunks_exact_mut(4).zip(words) {
            if let Some(word) = word {
                place.copy_from_slice(&word.to_le_bytes());
            }
        }
    }
}

/// The positions along K of A's elements in every row: the identity for a dense A, random for a sparse A.
fn places(shape: Shape, random: &mut Rng) -> Vec<u32> {
    let k_a = shape.k_a();
    if shape.sparse.is_none() {
        return (0..64).flat_map(|_| 0..k_a).collect();
    }
    const PAIRS: [[u32; 2]; 6] = [[0, 1], [0, 2], [0, 3], [1, 2], [1, 3], [2, 3]];
    let mut places = Vec::new();
    for _ in 0..64 {
        if shape.bits() == 32 {
            places.extend((0..k_a).map(|chunk| 2 * chunk + random.u32(..2)));
        } else {
            places.extend(
                (0..k_a / 2).flat_map(|chunk| PAIRS[random.usize(..6)].map(|place| 4 * chunk + place)),
            );
        }
    }
    places
}
