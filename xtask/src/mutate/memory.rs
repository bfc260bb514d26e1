//! The memory that a launch accesses, and what is in it.

use collective::Format;
use emulator::Memory;
use kernel::operands::{self, Contents, Visit};

/// A piece of the memory that a launch accesses.
pub(super) struct Piece {
    pub(super) contents: Contents,
    pub(super) bytes: usize,
    pub(super) writes: bool,
    /// The words of a table or of records.
    words: Vec<u32>,
}

/// Gives a call memory of its own.
#[derive(Default)]
pub(super) struct Places {
    // It returns the same addresses for the same sizes in the same order.
    memory: Memory,
    pub(super) pieces: Vec<Piece>,
    /// The words of a table or of records that are visited.
    pub(super) words: Vec<u32>,
}

impl Visit for Places {
    fn memory(&mut self, place: operands::Memory<'_>) {
        let operands::Memory { address, extents, contents, writes, .. } = place;
        let bytes = usize::try_from(extents.bytes()).unwrap_or(usize::MAX);
        if bytes > 0 {
            *address = self.memory.allocate(bytes);
            let told = matches!(contents, Contents::Table | Contents::Records);
            let words = if told { self.words.clone() } else { Vec::new() };
            self.pieces.push(Piece { contents, bytes, writes, words });
        }
    }
}

impl Places {
    /// Places for a call with a table of these words.
    pub(super) fn with(words: Vec<u32>) -> Self {
        Self { words, ..Self::default() }
    }
}

/// Which pieces a launch writes.
pub(super) fn outputs(memory: &[Piece]) -> Vec<usize> {
    (0..memory.len()).filter(|&at| memory[at].writes).collect()
}

/// SplitMix64, by S. Vigna.
pub(super) struct Random(pub(super) u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let z = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    /// The contents of a piece of memory before a launch.
    pub(super) fn fill(&mut self, piece: &Piece) -> Vec<u8> {
        let mut matrix = |format: Format| self.matrix(format, piece.bytes);
        match piece.contents {
            // A pattern that shows elements that were not written.
            _ if piece.writes && !matches!(piece.contents, Contents::Workspace | Contents::Report) => {
                vec![0xA5; piece.bytes]
            }
            Contents::Multiplied(_, format) | Contents::Source(format) | Contents::GroupScales(format) => {
                matrix(format)
            }
            Contents::Report => vec![0xFF; piece.bytes],
            Contents::Scales => matrix(Format::F32),
            // Valid metadata: each chunk keeps two of its four elements, or one of two.
            Contents::Metadata(format) => {
                let named: &[u32] = if format.bits() == 32 { &[4, 14] } else { &[4, 8, 9, 12, 13, 14] };
                let mut word =
                    || (0..8).fold(0, |word, _| word << 4 | named[self.next() as usize % named.len()]);
                (0..piece.bytes / 4).flat_map(|_| word().to_le_bytes()).collect()
            }
            Contents::Workspace => vec![0; piece.bytes],
            Contents::Table | Contents::Records => {
                piece.words.iter().flat_map(|word| word.to_le_bytes()).collect()
            }
            // Any bits are legal.
            Contents::Codes(..) | Contents::Exponents | Contents::Elements(_) | Contents::Output(_) => {
                (0..piece.bytes).map(|_| self.next() as u8).collect()
            }
        }
    }

    /// Bytes of random elements between -1 and 1.
    pub(super) fn matrix(&mut self, format: Format, length: usize) -> Vec<u8> {
        let size = format.bytes() as usize;
        let mut bytes = Vec::with_capacity(length);
        for _ in 0..length / size {
            let value = (self.next() >> 40) as f64 / (1u64 << 23) as f64 - 1.0;
            bytes.extend(&format.encode(value).to_le_bytes()[..size]);
        }
        bytes
    }
}
