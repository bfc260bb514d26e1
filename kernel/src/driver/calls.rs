//! Launches that are kept by the shape of their call. A call with only new addresses reuses the parameter
//! block of an earlier one and changes the addresses in it.

use core::fmt;
use core::num::NonZeroUsize;
use std::hash::{BuildHasherDefault, Hasher};

use lru::LruCache;
use ptx::abi::{Argument, Grid, TENSOR_MAP_BYTES};

use crate::error::{EngineError, LaunchError};
use crate::filled::{Launch, Named};
use crate::operands::{Memory, Overlaps, Visit};

/// Makes launches of calls `C`.
pub(super) trait LaunchBuilder<C>: Blocks {
    /// Checks a call and makes its launch; `None` if there is nothing to compute.
    fn launch(&self, call: &C) -> Result<Option<Launch>, EngineError>;

    /// An illegal argument, as an error of the kernel.
    fn refused(&self, source: LaunchError) -> EngineError;

    /// Visits every part of a call.
    fn visit(&self, call: &mut C, visit: &mut dyn Visit);
}

/// Makes parameter blocks.
pub(super) trait Blocks {
    /// Lays out arguments as a parameter block.
    fn block(&self, arguments: &[Argument]) -> Result<Vec<u8>, EngineError>;

    /// Offset of each argument in the block, in bytes.
    fn offsets(&self) -> &[usize];

    /// Changes the address of an encoded tensor map.
    fn readdress(&self, map: &mut [u8; TENSOR_MAP_BYTES], address: u64) -> Result<(), EngineError>;
}

/// Number of shapes that are kept: the layers of a model, with a margin. Beyond that, the least recently used
/// is forgotten.
const KEPT: NonZeroUsize = NonZeroUsize::new(1024).unwrap();

/// Launches by the shapes of their calls.
pub(super) struct LaunchCache {
    kept: LruCache<Box<[u64]>, Kept, BuildHasherDefault<Mix>>,
    /// The parts of the last call. Their memory is used again.
    parts: Parts,
}

impl Default for LaunchCache {
    fn default() -> Self {
        let kept = LruCache::with_hasher(KEPT, BuildHasherDefault::default());
        Self { kept, parts: Parts::default() }
    }
}

impl fmt::Debug for LaunchCache {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LaunchCache").field("kept", &self.kept.len()).finish_non_exhaustive()
    }
}

/// A launch's grid and parameter block.
type Ready<'a> = Option<(Grid, &'a [u8])>;

/// The launch of one shape.
#[derive(Debug)]
struct Kept {
    /// The addresses that the block has now.
    addresses: Box<[u64]>,
    /// `None` if there is nothing to compute.
    launch: Option<(Grid, Vec<u8>)>,
    /// Where addresses are in the block.
    moves: Vec<Move>,
}

/// Where an address is in a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Move {
    /// Index among the call's addresses.
    which: usize,
    /// Bytes from the call's address to the one in the block.
    beyond: u64,
    /// Offset in the block, in bytes.
    offset: usize,
    /// Whether it is part of a tensor map.
    map: bool,
}

impl LaunchCache {
    /// Number of shapes that are kept.
    pub(super) fn len(&self) -> usize {
        self.kept.len()
    }

    /// The launch of a call. If the shape is kept, it is the same block with other addresses; otherwise a new
    /// block.
    ///
    /// # Errors
    /// Those of the maker.
    pub(super) fn get<C: Clone>(
        &mut self,
        maker: &impl LaunchBuilder<C>,
        call: &C,
    ) -> Result<Ready<'_>, EngineError> {
        let Self { kept, parts } = self;
        parts.read(|parts| maker.visit(&mut call.clone(), parts));
        let Parts { shape, addresses, overlaps } = parts;
        // What was found to be apart need not be looked at again.
        let apart = || {
            let checked = overlaps.check(|visit| maker.visit(&mut call.clone(), visit));
            checked.map_err(|source| maker.refused(source))
        };
        let new = match kept.get_mut(&**shape) {
            Some(known) if *known.addresses == **addresses => Ok(None),
            Some(known) => {
                apart()?;
                known.move_to(maker, addresses).map(|()| None)
            }
            None => Kept::new(maker, call, addresses).and_then(|new| {
                apart()?;
                Ok(Some(new))
            }),
        };
        match new {
            Ok(None) => {}
            Ok(Some(new)) => _ = kept.put(shape.as_slice().into(), new),
            Err(error) => {
                // The block may have only some of the new addresses.
                kept.pop(&**shape);
                return Err(error);
            }
        }
        Ok(kept.peek(&**shape).and_then(Kept::ready))
    }
}

impl Kept {
    fn new<C: Clone>(
        maker: &impl LaunchBuilder<C>,
        call: &C,
        addresses: &[u64],
    ) -> Result<Self, EngineError> {
        let Some(launch) = maker.launch(call)? else {
            return Ok(Self { addresses: addresses.into(), launch: None, moves: Vec::new() });
        };
        let block = maker.block(&launch.arguments)?;
        let mut memory = Named::default();
        maker.visit(&mut call.clone(), &mut memory);
        let moves = moves_of(&launch, &memory, maker.offsets());
        Ok(Self { addresses: addresses.into(), launch: Some((launch.grid, block)), moves })
    }

    /// Changes the block to these addresses.
    fn move_to(&mut self, maker: &impl Blocks, addresses: &[u64]) -> Result<(), EngineError> {
        if let Some((_, block)) = &mut self.launch {
            for &Move { which, beyond, offset, map } in &self.moves {
                if addresses[which] == self.addresses[which] {
                    continue;
                }
                let address = addresses[which].wrapping_add(beyond);
                let place = &mut block[offset..];
                match place.first_chunk_mut::<TENSOR_MAP_BYTES>().filter(|_| map) {
                    Some(bytes) => maker.readdress(bytes, address)?,
                    None => place[..8].copy_from_slice(&address.to_le_bytes()),
                }
            }
        }
        self.addresses.copy_from_slice(addresses);
        Ok(())
    }

    fn ready(&self) -> Ready<'_> {
        self.launch.as_ref().map(|(grid, block)| (*grid, block.as_slice()))
    }
}

/// Where the addresses of a launch are in its block, as the kernel's interface says. Each is in a piece of the call's memory, which the
/// launch's builder has checked.
fn moves_of(Launch { arguments, places, .. }: &Launch, memory: &Named, offsets: &[usize]) -> Vec<Move> {
    let all = places.iter().zip(arguments).zip(offsets);
    let moves = all.filter_map(|((place, argument), &offset)| {
        let (piece, beyond) = place.within?;
        let which = memory.find(piece)?;
        Some(Move { which, beyond, offset, map: !matches!(argument, Argument::Scalar(..)) })
    });
    moves.collect()
}

/// What [a class](classes) tells of an address: up to which power of two it is a multiple.
const ALIGNMENT: u64 = 256;

/// The parts of a call: its addresses, and all others as words.
#[derive(Debug, Default)]
struct Parts {
    /// LaunchCache with equal words give launches that differ only in addresses.
    shape: Vec<u64>,
    addresses: Vec<u64>,
    overlaps: Overlaps,
}

impl Visit for Parts {
    fn memory(&mut self, memory: Memory<'_>) {
        self.addresses.push(*memory.address);
        self.overlaps.memory(memory);
    }

    fn lines(&mut self, length: u64, repeats: [(u32, u64); 3]) {
        self.overlaps.lines(length, repeats);
    }

    fn in_place(&mut self) {
        self.overlaps.in_place();
    }

    fn ordered(&mut self) {
        self.overlaps.ordered();
    }

    fn length(&mut self, length: &mut u64) {
        self.shape.push(*length);
    }

    fn count(&mut self, count: &mut u32) {
        self.shape.push((*count).into());
    }

    fn factor(&mut self, factor: &mut f64) {
        self.shape.push(factor.to_bits());
    }

    fn form(&mut self, form: u32) {
        self.shape.push(form.into());
    }
}

impl Parts {
    /// Takes a call apart.
    fn read(&mut self, visit: impl FnOnce(&mut Self)) {
        self.shape.clear();
        self.addresses.clear();
        self.overlaps.clear();
        visit(self);
        self.shape.extend(self.addresses.chunks(16).map(classes));
    }
}

/// What a choice may depend on: which of up to 16 addresses are 0, and which powers of two divide the others.
fn classes(addresses: &[u64]) -> u64 {
    let most = ALIGNMENT.trailing_zeros();
    let class = |address: &u64| match address {
        0 => u64::from(most) + 1,
        address => address.trailing_zeros().min(most).into(),
    };
    addresses.iter().fold(0, |classes, address| classes << 4 | class(address))
}

/// A hash of words by multiplication. The keys are calls of this program, so collisions by intent are not a
/// concern.
#[derive(Default)]
struct Mix(u64);

impl Hasher for Mix {
    fn write(&mut self, bytes: &[u8]) {
        let (words, rest) = bytes.as_chunks();
        words.iter().for_each(|&word| self.write_u64(u64::from_le_bytes(word)));
        if !rest.is_empty() {
            let mut word = [0; 8];
            word[..rest.len()].copy_from_slice(rest);
            self.write_u64(u64::from_le_bytes(word));
        }
    }

    fn write_u64(&mut self, word: u64) {
        // An odd number without a pattern: the fraction of the golden ratio.
        let product = u128::from(self.0 ^ word) * 0x9e37_79b9_7f4a_7c15;
        self.0 = (product >> 64) as u64 ^ product as u64 ^ 0x5bd1;
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

#[cfg(test)]
mod tests;
