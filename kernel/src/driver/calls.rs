//! Launches that are kept by their shape: a call whose addresses alone are new moves the addresses of one.

use core::fmt;
use core::num::NonZeroUsize;
use std::hash::{BuildHasherDefault, Hasher};

use lru::LruCache;
use ptx::Scalar;
use ptx::abi::{Argument, Grid, TENSOR_MAP_BYTES, TensorMap};

use super::loaded::AnyCall;
use crate::error::EngineError;
use crate::groups::{BatchedCall, Experts, GroupedCall, RaggedCall, Strides};
use crate::problem::{Call, GemmProblem, Launch, MatrixRef, WorkspaceRef};

/// What launches are made with.
pub(super) trait Maker {
    /// Checks a call; `None` where there is nothing to do. What it makes of an address is the address itself, some bytes
    /// beyond it, or a choice by whether the address is zero or a multiple of powers of two up to
    /// [`Addresses::ALIGNMENT`]; calls are kept only as far as that was found to be so.
    fn launch(&self, call: &AnyCall) -> Result<Option<Launch>, EngineError>;

    /// Lays arguments out.
    fn block(&self, arguments: &[Argument]) -> Result<Vec<u8>, EngineError>;

    /// Where each argument lies in the block.
    fn offsets(&self) -> &[usize];

    /// Changes the address of an encoded tensor map.
    fn readdress(&self, map: &mut [u8; TENSOR_MAP_BYTES], address: u64) -> Result<(), EngineError>;
}

/// Shapes that are kept: a model's layers, and room to spare. Beyond, the one that was not called for longest is forgotten.
const KEPT: NonZeroUsize = NonZeroUsize::new(1024).unwrap();

/// Launches by the shapes of their calls.
pub(super) struct Calls {
    kept: LruCache<Shape, Kept, BuildHasherDefault<Mix>>,
}

impl Default for Calls {
    fn default() -> Self {
        Self { kept: LruCache::with_hasher(KEPT, BuildHasherDefault::default()) }
    }
}

impl fmt::Debug for Calls {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Calls").field("kept", &self.kept.len()).finish_non_exhaustive()
    }
}

/// A launch's grid and parameter block.
type Ready<'a> = Option<(Grid, &'a [u8])>;

/// The launch of one shape.
#[derive(Debug)]
struct Kept {
    /// Those that the block has now.
    addresses: Addresses,
    /// `None` is an empty product.
    launch: Option<(Grid, Vec<u8>)>,
    /// Where addresses lie in the block; `None` if that is not known.
    moves: Option<Vec<Move>>,
}

/// Where an address lies in a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Move {
    /// Which of the [`Addresses`].
    which: usize,
    /// Bytes from the call's address to the one in the block.
    beyond: u64,
    /// Bytes from the block's beginning.
    offset: usize,
    /// Whether a tensor map lies there.
    map: bool,
}

impl Calls {
    /// How many shapes are kept.
    pub(super) fn len(&self) -> usize {
        self.kept.len()
    }

    /// The launch of a call: of a shape that is kept the same block with other addresses, or a new one.
    ///
    /// # Errors
    /// Those of the maker.
    pub(super) fn get(&mut self, maker: &impl Maker, call: &AnyCall) -> Result<Ready<'_>, EngineError> {
        let (shape, addresses) = split(call);
        let moved = self.kept.get_mut(&shape).map(|kept| kept.move_to(maker, addresses));
        match moved {
            Some(Ok(true)) => {}
            Some(Err(error)) => {
                // The block may have some of the addresses.
                self.kept.pop(&shape);
                return Err(error);
            }
            Some(Ok(false)) | None => {
                let kept = Kept::new(maker, call, addresses)?;
                self.kept.put(shape, kept);
            }
        }
        Ok(self.kept.peek(&shape).and_then(Kept::ready))
    }
}

impl Kept {
    fn new(maker: &impl Maker, call: &AnyCall, addresses: Addresses) -> Result<Self, EngineError> {
        let Some(launch) = maker.launch(call)? else {
            return Ok(Self { addresses, launch: None, moves: Some(Vec::new()) });
        };
        let block = maker.block(&launch.arguments)?;
        let moves = maker.launch(&addresses.displaced().of(call)).ok().flatten();
        let moves = moves.and_then(|other| moves_between(addresses, &launch, &other, maker.offsets()));
        Ok(Self { addresses, launch: Some((launch.grid, block)), moves })
    }

    /// Whether the block has these addresses now.
    fn move_to(&mut self, maker: &impl Maker, addresses: Addresses) -> Result<bool, EngineError> {
        if addresses == self.addresses {
            return Ok(true);
        }
        let Some(moves) = &self.moves else { return Ok(false) };
        if let Some((_, block)) = &mut self.launch {
            for &Move { which, beyond, offset, map } in moves {
                if addresses.0[which] == self.addresses.0[which] {
                    continue;
                }
                let address = addresses.0[which].wrapping_add(beyond);
                let place = &mut block[offset..];
                match place.first_chunk_mut::<TENSOR_MAP_BYTES>().filter(|_| map) {
                    Some(bytes) => maker.readdress(bytes, address)?,
                    None => place[..8].copy_from_slice(&address.to_le_bytes()),
                }
            }
        }
        self.addresses = addresses;
        Ok(true)
    }

    fn ready(&self) -> Ready<'_> {
        self.launch.as_ref().map(|(grid, block)| (*grid, block.as_slice()))
    }
}

/// Where two launches differ whose calls differ by [`Addresses::displaced`]; `None` if they do in more than addresses.
fn moves_between(from: Addresses, one: &Launch, two: &Launch, offsets: &[usize]) -> Option<Vec<Move>> {
    let (given, other) = (&one.arguments, &two.arguments);
    if one.grid != two.grid || given.len() != other.len() || given.len() != offsets.len() {
        return None;
    }
    let mut moves = Vec::new();
    for ((given, other), &offset) in given.iter().zip(other).zip(offsets) {
        if given == other {
            continue;
        }
        let (before, after, map) = match (given, other) {
            (Argument::Scalar(one, before), Argument::Scalar(two, after)) if one == two => {
                (*before, *after, false)
            }
            (Argument::TensorMap(one), Argument::TensorMap(two)) => {
                let moved = TensorMap { address: two.address, ..one.clone() };
                if moved != *two {
                    return None;
                }
                (one.address, two.address, true)
            }
            _ => return None,
        };
        let is_address = map || matches!(given, Argument::Scalar(ty, _) if *ty == <u64 as Scalar>::TYPE);
        let distance = after.wrapping_sub(before);
        let which = (0..Addresses::COUNT).find(|&i| Addresses::distance(i) == distance);
        let which = which.filter(|_| is_address)?;
        moves.push(Move { which, beyond: before.wrapping_sub(from.0[which]), offset, map });
    }
    Some(moves)
}

/// A call's addresses: A, B, C, D, the workspace, and the groups' offsets or records. What it does not have is 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Addresses([u64; Addresses::COUNT]);

impl Addresses {
    const COUNT: usize = 6;

    /// Bytes: calls of one shape have addresses that are multiples of the same powers of two up to this.
    const ALIGNMENT: u64 = 256;

    /// How far each address is displaced for comparison: by a prime number of a multiple of every alignment, so that no sum
    /// of two, and no multiple of one, is as far as another.
    const fn distance(which: usize) -> u64 {
        [101, 103, 107, 109, 113, 127][which] << 36
    }

    /// The same with every address that is given displaced.
    fn displaced(self) -> Self {
        let mut moved = self;
        for (i, address) in moved.0.iter_mut().enumerate() {
            if *address != 0 {
                *address = address.wrapping_add(Self::distance(i));
            }
        }
        moved
    }

    /// What may be chosen by the addresses: which are 0, and what the others are multiples of.
    fn classes(self) -> u64 {
        let most = Self::ALIGNMENT.trailing_zeros();
        let class = |address: u64| match address {
            0 => u64::from(most) + 1,
            _ => address.trailing_zeros().min(most).into(),
        };
        self.0.into_iter().fold(0, |classes, address| classes << 4 | class(address))
    }

    /// A call with these addresses in place of its own.
    fn of(self, call: &AnyCall) -> AnyCall {
        let [a, b, c, d, workspace, table] = self.0;
        let matrix = |matrix: MatrixRef, address| MatrixRef { address, ..matrix };
        let space =
            |given: Option<WorkspaceRef>| given.map(|given| WorkspaceRef { address: workspace, ..given });
        let one = |call: Call| Call {
            a: matrix(call.a, a),
            b: matrix(call.b, b),
            c: call.c.map(|given| matrix(given, c)),
            d: matrix(call.d, d),
            workspace: space(call.workspace),
            ..call
        };
        match *call {
            AnyCall::One(call) => AnyCall::One(one(call)),
            AnyCall::Batched(call) => AnyCall::Batched(BatchedCall { first: one(call.first), ..call }),
            AnyCall::Ragged(RaggedCall { rows, experts }) => AnyCall::Ragged(RaggedCall {
                rows: one(rows),
                experts: Experts { offsets: table, ..experts },
            }),
            AnyCall::Grouped(call) => {
                AnyCall::Grouped(GroupedCall { records: table, workspace: space(call.workspace), ..call })
            }
        }
    }
}

/// A call without its addresses, in words: equal words are launches that differ in addresses alone.
type Shape = [u64; 14];

fn split(call: &AnyCall) -> (Shape, Addresses) {
    let (kind, count, strides, one, table) = match *call {
        AnyCall::One(call) => (0, 0, [0; 4], call, 0),
        AnyCall::Batched(BatchedCall { first, count, strides: Strides { a, b, c, d } }) => {
            (1, count, [a, b, c, d], first, 0)
        }
        AnyCall::Ragged(RaggedCall { rows, experts: Experts { count, offsets, b_stride } }) => {
            (2, count, [0, b_stride, 0, 0], rows, offsets)
        }
        AnyCall::Grouped(GroupedCall { count, records, alpha, beta, workspace }) => {
            let factors = Call { alpha, beta, workspace, ..Call::of(GemmProblem { m: 0, n: 0, k: 0 }) };
            (3, count, [0; 4], factors, records)
        }
    };
    let Call { problem: GemmProblem { m, n, k }, a, b, c, d, alpha, beta, workspace } = one;
    let c_given = c.is_some();
    let c = c.unwrap_or(MatrixRef { address: 0, pitch: 0 });
    let workspace = workspace.unwrap_or(WorkspaceRef { address: 0, bytes: 0 });
    let addresses = Addresses([a.address, b.address, c.address, d.address, workspace.address, table]);
    let pair = |high: u32, low: u32| u64::from(high) << 32 | u64::from(low);
    let shape = [
        pair(kind, count),
        pair(m, n),
        pair(k, c_given.into()),
        pair(alpha.to_bits(), beta.to_bits()),
        a.pitch,
        b.pitch,
        c.pitch,
        d.pitch,
        workspace.bytes,
        addresses.classes(),
        strides[0],
        strides[1],
        strides[2],
        strides[3],
    ];
    (shape, addresses)
}

/// A hash of words by multiplications: keys are calls of this program, which nobody chooses to collide.
#[derive(Default)]
struct Mix(u64);

impl Hasher for Mix {
    fn write(&mut self, bytes: &[u8]) {
        for chunk in bytes.chunks(8) {
            let mut word = [0; 8];
            word[..chunk.len()].copy_from_slice(chunk);
            // An odd number without a pattern: the fraction of the golden ratio.
            let product = u128::from(self.0 ^ u64::from_le_bytes(word)) * 0x9e37_79b9_7f4a_7c15;
            self.0 = (product >> 64) as u64 ^ product as u64 ^ 0x5bd1;
        }
    }

    fn finish(&self) -> u64 {
        self.0
    }
}

#[cfg(test)]
mod tests;
