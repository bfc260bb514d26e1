//! A call on memory of its own: the pieces that it accesses, and what is in them before a launch.

use collective::{Code, Format};

use super::{Contents, Extents, Memory, Visit};

/// A piece of the memory that a launch accesses.
#[derive(Clone, Debug)]
pub struct Piece {
    /// What it is, in the words of errors.
    pub name: &'static str,
    /// Where it begins.
    pub address: u64,
    /// How far it reaches.
    pub extents: Extents,
    /// Elements of a line; and how often lines are repeated, at which distances in elements. All others are gaps.
    pub lines: (u64, [(u32, u64); 3]),
    /// What is there.
    pub contents: Contents,
    /// Its bytes.
    pub bytes: usize,
    /// Whether the kernel writes it.
    pub writes: bool,
    /// The words of a table or of records.
    words: Vec<u32>,
}

impl Piece {
    /// What addresses of memory are multiples of, where it is allocated.
    pub const ALIGNMENT: u64 = 256;

    /// Bytes between the beginning of the memory that was allocated for it, and the piece.
    pub const fn begin(&self) -> usize {
        (self.address % Self::ALIGNMENT) as usize
    }

    /// The format of its elements, if they are numbers.
    pub const fn format(&self) -> Option<Format> {
        match self.contents {
            Contents::Multiplied(_, format)
            | Contents::Source(format)
            | Contents::Output(format)
            | Contents::GroupScales(format) => Some(format),
            Contents::Scales | Contents::Logarithms => Some(Format::F32),
            Contents::Indices(_) | Contents::Order(_) => Some(Format::S32),
            Contents::Codes(..)
            | Contents::Exponents
            | Contents::Metadata(_)
            | Contents::Table
            | Contents::Records
            | Contents::Slots { .. }
            | Contents::Workspace
            | Contents::Elements(_)
            | Contents::Report => None,
        }
    }
}

/// Gives a call memory of its own, as far from multiples of 256 bytes as the addresses that the call had before.
///
/// ```
/// use collective::{Format, MatrixRef};
/// use kernel::operands::{Fill, Places};
/// use kernel::{Emulator, Engine, Kernel, Transpose, Transposition};
///
/// let mut engine = Emulator::new();
/// let transpose = Transpose::of(Format::E4m3).expect("8 bits");
/// let mut call = Transposition { rows: 2, columns: 3, count: 1, a: MatrixRef::new(0, 3), d: MatrixRef::new(0, 2) };
/// let mut allocate = |bytes| engine.allocate(bytes).map_or(0, |buffer| buffer.address);
/// let mut places = Places::new(&mut allocate);
/// transpose.visit(&mut call, &mut places);
/// let fill = Fill::new(1).bytes(&places.pieces[0]);
/// assert_eq!((places.pieces.len(), fill.len()), (2, 6));
/// ```
pub struct Places<'a> {
    allocate: &'a mut dyn FnMut(usize) -> u64,
    /// The pieces that were visited, in order, without empty ones.
    pub pieces: Vec<Piece>,
    /// The words of a table or of records that are visited.
    pub words: Vec<u32>,
    /// Whether the memory that was visited last is a piece.
    last: bool,
}

impl<'a> Places<'a> {
    /// Places in memory that `allocate` allocates, given a number of bytes. It returns multiples of 256.
    pub fn new(allocate: &'a mut dyn FnMut(usize) -> u64) -> Self {
        Self { allocate, pieces: Vec::new(), words: Vec::new(), last: false }
    }

    /// The same for a call with a table of these words.
    #[must_use]
    pub fn with(self, words: Vec<u32>) -> Self {
        Self { words, ..self }
    }

    /// Which pieces a launch writes.
    pub fn outputs(&self) -> Vec<usize> {
        (0..self.pieces.len()).filter(|&at| self.pieces[at].writes).collect()
    }
}

impl core::fmt::Debug for Places<'_> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Places").field("pieces", &self.pieces).finish_non_exhaustive()
    }
}

impl Visit for Places<'_> {
    fn memory(&mut self, place: Memory<'_>) {
        let Memory { name, address, extents, contents, writes } = place;
        let bytes = usize::try_from(extents.bytes()).unwrap_or(usize::MAX);
        self.last = bytes > 0;
        if self.last {
            let Extents { length, lines, ld, count, stride, .. } = extents;
            let lines = (length, [(lines, ld), (count, stride), (1, 0)]);
            let begin = *address % Piece::ALIGNMENT;
            *address = (self.allocate)(bytes.saturating_add(begin as usize)) + begin;
            let told = matches!(contents, Contents::Table | Contents::Records);
            let words = if told { self.words.clone() } else { Vec::new() };
            let address = *address;
            self.pieces.push(Piece { name, address, extents, lines, contents, bytes, writes, words });
        }
    }

    fn lines(&mut self, length: u64, repeats: [(u32, u64); 3]) {
        if let Some(last) = self.pieces.last_mut().filter(|_| self.last) {
            last.lines = (length, repeats);
        }
    }
}

/// Random contents of memory, by SplitMix64 of S. Vigna.
#[derive(Clone, Debug)]
pub struct Fill(u64);

/// Numbers of a large matrix.
const SOME: usize = 1 << 13;

impl Fill {
    /// The contents that follow from a seed.
    pub const fn new(seed: u64) -> Self {
        Self(seed)
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    /// The contents of a piece of memory before a launch.
    pub fn bytes(&mut self, piece: &Piece) -> Vec<u8> {
        let mut matrix = |format: Format| self.matrix(format, piece.bytes);
        match piece.contents {
            // A pattern that shows elements that were not written, but where they are read before.
            Contents::Source(format) if piece.writes => matrix(format),
            // Of floats it is a NaN that no instruction makes.
            Contents::Output(format) if piece.writes && format.is_float() => vec![0xFF; piece.bytes],
            _ if piece.writes && !matches!(piece.contents, Contents::Workspace | Contents::Report) => {
                vec![0xA5; piece.bytes]
            }
            Contents::Multiplied(_, format) | Contents::Source(format) | Contents::GroupScales(format) => {
                matrix(format)
            }
            Contents::Report => vec![0xFF; piece.bytes],
            // Without the sign: the largest of scaled numbers is the largest of them.
            Contents::Scales => {
                let mut bytes = matrix(Format::F32);
                bytes.iter_mut().skip(3).step_by(4).for_each(|byte| *byte &= 0x7F);
                bytes
            }
            // Valid metadata: each chunk keeps two of its four elements, or one of two.
            Contents::Metadata(format) => {
                let named: &[u32] = if format.bits() == 32 { &[4, 14] } else { &[4, 8, 9, 12, 13, 14] };
                let mut word =
                    || (0..8).fold(0, |word, _| word << 4 | named[self.next() as usize % named.len()]);
                (0..piece.bytes / 4).flat_map(|_| word().to_le_bytes()).collect()
            }
            Contents::Workspace => vec![0; piece.bytes],
            Contents::Indices(below) => {
                let index = |_| ((self.next() >> 32) as u32 % below.max(1)).to_le_bytes();
                (0..piece.bytes / 4).flat_map(index).collect()
            }
            Contents::Slots { bits, below } => self.slots(below, (bits / 8) as usize, piece.bytes),
            Contents::Logarithms => {
                (0..piece.bytes / 4).flat_map(|_| self.logarithm().to_le_bytes()).collect()
            }
            Contents::Order(count) => self.order(count).into_iter().flat_map(u32::to_le_bytes).collect(),
            Contents::Table | Contents::Records => {
                piece.words.iter().flat_map(|word| word.to_le_bytes()).collect()
            }
            // 1/8 to 8.
            Contents::Exponents => (0..piece.bytes).map(|_| 124 + (self.next() >> 40) as u8 % 7).collect(),
            Contents::Codes(_, code) => (0..piece.bytes).map(|_| self.code(code)).collect(),
            // Any bits are legal.
            Contents::Elements(_) | Contents::Output(_) => {
                (0..piece.bytes).map(|_| self.next() as u8).collect()
            }
        }
    }

    /// A byte of codes that are numbers.
    fn code(&mut self, code: Code) -> u8 {
        loop {
            let byte = self.next() as u8;
            // Of 4 bits, all are.
            if code.bits() < 8 || code.value(byte).is_some_and(f64::is_finite) {
                return byte;
            }
        }
    }

    /// The numbers below `count`, each once, in a random order.
    pub(crate) fn order(&mut self, count: u32) -> Vec<u32> {
        let mut order: Vec<u32> = (0..count).collect();
        for last in (1..order.len()).rev() {
            order.swap(last, (self.next() % (last as u64 + 1)) as usize);
        }
        order
    }

    /// Numbers below this one, none twice, at random distances; one in eight, and those for which none is left, has all its bits set.
    fn slots(&mut self, below: u32, size: usize, bytes: usize) -> Vec<u8> {
        let below = u64::from(below);
        let divisor = |mut a: u64, mut b: u64| {
            while b > 0 {
                (a, b) = (b, a % b);
            }
            a
        };
        // As many steps as there are numbers meet each of them once.
        let (first, mut step) = (self.next() % below.max(1), self.next() % below.max(1));
        while divisor(step, below) > 1 {
            step += 1;
        }
        let slot = |i: usize| {
            let skipped = i as u64 >= below || self.next().is_multiple_of(8);
            if skipped { u64::MAX } else { (first + i as u64 % below * step) % below }
        };
        let all: Vec<u64> = (0..bytes / size).map(slot).collect();
        all.iter().flat_map(|slot| slot.to_le_bytes().into_iter().take(size)).collect()
    }

    /// A number from -10 to 10; of eight, one is minus infinity.
    fn logarithm(&mut self) -> f32 {
        let bits = self.next() >> 32;
        if bits.is_multiple_of(8) {
            f32::NEG_INFINITY
        } else {
            (bits as f32 / (1u64 << 31) as f32 - 1.0) * 10.0
        }
    }

    /// Bytes of random elements: floats between -1 and 1, integers of the format's whole range. A large matrix has them from a few
    /// thousand numbers.
    pub fn matrix(&mut self, format: Format, length: usize) -> Vec<u8> {
        let size = format.bytes() as usize;
        let count = length / size;
        let mut element = || {
            let bits = self.next() >> 40;
            if format.is_float() {
                return format.encode(bits as f64 / (1u64 << 23) as f64 - 1.0).to_le_bytes();
            }
            // Any bits are an integer.
            bits.wrapping_mul(0x9E37_79B9_7F4A_7C15).to_le_bytes()
        };
        let some: Vec<_> = (0..count.min(SOME)).map(|_| element()).collect();
        match size {
            1 => self.spread::<1>(&some, count),
            2 => self.spread::<2>(&some, count),
            4 => self.spread::<4>(&some, count),
            _ => self.spread::<8>(&some, count),
        }
    }

    /// Elements of `N` bytes, and as many of them at random as make `count`.
    fn spread<const N: usize>(&mut self, some: &[[u8; 8]], count: usize) -> Vec<u8> {
        let some: Vec<[u8; N]> = some.iter().map(|of| core::array::from_fn(|i| of[i])).collect();
        let mut all = vec![[0; N]; count];
        let (first, others) = all.split_at_mut(some.len());
        first.copy_from_slice(&some);
        for element in others {
            *element = some[(self.next() >> 40) as usize % SOME];
        }
        all.into_flattened()
    }
}
