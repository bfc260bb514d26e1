//! Launches that are kept by the shape of their call. A call with only new addresses reuses the parameter
//! block of an earlier one and changes the addresses in it.

use core::fmt;
use core::num::NonZeroUsize;
use std::hash::{BuildHasherDefault, Hasher};

use collective::{LinearArguments, MatrixRef};
use lru::LruCache;
use ptx::Scalar;
use ptx::abi::{Argument, Grid, TENSOR_MAP_BYTES, TensorMap};

use crate::arguments::Given;
use crate::error::EngineError;
use crate::problem::{Call, GemmProblem, Launch, WorkspaceRef};
use crate::products::Products;

/// Makes launches and parameter blocks.
pub(super) trait Maker {
    /// Checks a call and makes its launch; `None` if there is nothing to compute.
    ///
    /// An address of the call may only appear in the arguments as the address itself, or plus a fixed number
    /// of bytes; or it may decide a choice, by being zero or by being a multiple of a power of two up to
    /// [`Addresses::ALIGNMENT`]. Launches are kept only if this was found to hold.
    fn launch<E: Given + Clone>(&self, call: &Call<E>) -> Result<Option<Launch>, EngineError>;

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
    /// The addresses that the block has now.
    addresses: Addresses,
    /// `None` if there is nothing to compute.
    launch: Option<(Grid, Vec<u8>)>,
    /// Where addresses are in the block; `None` if that is not known.
    moves: Option<Vec<Move>>,
    /// The arguments that the block was made from, for a call whose epilogue is not linear. They are compared
    /// with every later call's arguments.
    arguments: Vec<Argument>,
}

/// Where an address is in a block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Move {
    /// Index among the [`Addresses`].
    which: usize,
    /// Bytes from the call's address to the one in the block.
    beyond: u64,
    /// Offset in the block, in bytes.
    offset: usize,
    /// Whether it is part of a tensor map.
    map: bool,
}

impl Calls {
    /// Number of shapes that are kept.
    pub(super) fn len(&self) -> usize {
        self.kept.len()
    }

    /// The launch of a call. If the shape is kept, it is the same block with other addresses; otherwise a new
    /// block.
    ///
    /// # Errors
    /// Those of the maker.
    pub(super) fn get<E: Given + Clone>(
        &mut self,
        maker: &impl Maker,
        call: &Call<E>,
    ) -> Result<Ready<'_>, EngineError> {
        let products = call.lend();
        let (shape, changed) = match call.epilogue.linear() {
            Some(&linear) if call.scales.is_none() => {
                let call = products.with(linear);
                let (shape, addresses) = split(&call);
                let moved = self.kept.get_mut(&shape).map(|kept| kept.move_to(maker, addresses));
                let made = |changed| changed_or(changed, || Kept::new(maker, &call, addresses));
                (shape, made(moved))
            }
            Some(_) | None => {
                let (mut shape, addresses) = split(&products.with(LinearArguments::default()));
                // Separate from all linear calls. Alignment need not be part of the shape: choices by
                // alignment show in the arguments.
                (shape[0], shape[9]) = (shape[0] | 1 << 63, 0);
                let launch = maker.launch(call)?;
                let moved = self.kept.get_mut(&shape).map(|kept| kept.change_to(maker, launch.as_ref()));
                (shape, changed_or(moved, || Kept::of(maker, launch, addresses)))
            }
        };
        match changed {
            Ok(None) => {}
            Ok(Some(kept)) => _ = self.kept.put(shape, kept),
            Err(error) => {
                // The block may have only some of the new addresses.
                self.kept.pop(&shape);
                return Err(error);
            }
        }
        Ok(self.kept.peek(&shape).and_then(Kept::ready))
    }
}

/// What to keep for a shape that is missing or whose block could not be changed; `None` if the block was
/// changed.
fn changed_or(
    changed: Option<Result<bool, EngineError>>,
    new: impl FnOnce() -> Result<Kept, EngineError>,
) -> Result<Option<Kept>, EngineError> {
    match changed {
        Some(Ok(true)) => Ok(None),
        Some(Err(error)) => Err(error),
        Some(Ok(false)) | None => new().map(Some),
    }
}

impl Kept {
    fn new(maker: &impl Maker, call: &Call, addresses: Addresses) -> Result<Self, EngineError> {
        let arguments = Vec::new();
        let Some(launch) = maker.launch(call)? else {
            return Ok(Self { addresses, launch: None, moves: Some(Vec::new()), arguments });
        };
        let block = maker.block(&launch.arguments)?;
        let moves = maker.launch(&addresses.displaced().of(call)).ok().flatten();
        let moves = moves.and_then(|other| moves_between(addresses, &launch, &other, maker.offsets()));
        Ok(Self { addresses, launch: Some((launch.grid, block)), moves, arguments })
    }

    /// A launch whose arguments are kept as well.
    fn of(maker: &impl Maker, launch: Option<Launch>, addresses: Addresses) -> Result<Self, EngineError> {
        let Some(Launch { grid, arguments }) = launch else {
            return Ok(Self { addresses, launch: None, moves: None, arguments: Vec::new() });
        };
        let block = maker.block(&arguments)?;
        Ok(Self { addresses, launch: Some((grid, block)), moves: None, arguments })
    }

    /// Changes the block to the arguments of this launch. New arguments are written; returns `false` if a
    /// tensor map differs in more than its address, because it must be encoded again.
    fn change_to(&mut self, maker: &impl Maker, launch: Option<&Launch>) -> Result<bool, EngineError> {
        let (Some((grid, block)), Some(launch)) = (&mut self.launch, launch) else {
            return Ok(self.launch.is_none() && launch.is_none());
        };
        if self.arguments.len() != launch.arguments.len() || self.arguments.len() != maker.offsets().len() {
            return Ok(false);
        }
        for ((kept, new), &offset) in self.arguments.iter_mut().zip(&launch.arguments).zip(maker.offsets()) {
            if kept == new {
                continue;
            }
            let place = &mut block[offset..];
            match (&*kept, new) {
                (Argument::Scalar(before, _), Argument::Scalar(ty, bits)) if before == ty => {
                    let bytes = ty.bytes() as usize;
                    place[..bytes].copy_from_slice(&bits.to_le_bytes()[..bytes]);
                }
                (Argument::TensorMap(before), Argument::TensorMap(after))
                    if *after == (TensorMap { address: after.address, ..before.clone() }) =>
                {
                    let Some(map) = place.first_chunk_mut::<TENSOR_MAP_BYTES>() else { return Ok(false) };
                    maker.readdress(map, after.address)?;
                }
                _ => return Ok(false),
            }
            *kept = new.clone();
        }
        *grid = launch.grid;
        Ok(true)
    }

    /// Changes the block to these addresses; returns `false` if their positions are not known.
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

/// Where the arguments of two launches differ whose calls differ by [`Addresses::displaced`]; `None` if more
/// than addresses differ.
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

/// A call's addresses: A, B, C, D, the workspace, and the groups' offsets, row counts or records. A missing
/// one is 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Addresses([u64; Addresses::COUNT]);

impl Addresses {
    const COUNT: usize = 6;

    /// Addresses of calls of one shape are multiples of the same powers of two, up to this number of bytes.
    const ALIGNMENT: u64 = 256;

    /// How far each address is displaced for the comparison: a prime number times a multiple of every
    /// alignment. So no sum of two displacements, and no multiple of one, equals another.
    const fn distance(which: usize) -> u64 {
        [101, 103, 107, 109, 113, 127][which] << 36
    }

    /// The same addresses, with every one that is not 0 displaced.
    fn displaced(self) -> Self {
        let mut moved = self;
        for (i, address) in moved.0.iter_mut().enumerate() {
            if *address != 0 {
                *address = address.wrapping_add(Self::distance(i));
            }
        }
        moved
    }

    /// What a choice may depend on: which addresses are 0, and which powers of two divide the others.
    fn classes(self) -> u64 {
        let most = Self::ALIGNMENT.trailing_zeros();
        let class = |address: u64| match address {
            0 => u64::from(most) + 1,
            _ => address.trailing_zeros().min(most).into(),
        };
        self.0.into_iter().fold(0, |classes, address| classes << 4 | class(address))
    }

    /// A call with these addresses in place of its own.
    fn of(self, call: &Call) -> Call {
        let [a, b, c, d, workspace, table] = self.0;
        let matrix = |matrix: MatrixRef, address| MatrixRef { address, ..matrix };
        let LinearArguments { alpha, beta, c: source } = call.epilogue;
        let products = match call.products {
            Products::One | Products::Batched { .. } => call.products,
            Products::Ragged { count, .. } => Products::Ragged { count, offsets: table },
            Products::Masked { count, room, .. } => Products::Masked { count, rows: table, room },
            Products::KGrouped { count, .. } => Products::KGrouped { count, offsets: table },
            Products::Grouped { count, .. } => Products::Grouped { count, records: table },
        };
        Call {
            products,
            a: matrix(call.a, a),
            b: matrix(call.b, b),
            d: matrix(call.d, d),
            epilogue: LinearArguments { alpha, beta, c: source.map(|given| matrix(given, c)) },
            workspace: call.workspace.map(|given| WorkspaceRef { address: workspace, ..given }),
            ..*call
        }
    }
}

/// A call without its addresses, as words. Calls with equal words give launches that differ only in
/// addresses.
type Shape = [u64; 14];

fn split(call: &Call) -> (Shape, Addresses) {
    let Call { problem: GemmProblem { m, n, k }, products, a, b, d, epilogue, workspace, .. } = *call;
    let LinearArguments { alpha, beta, c } = epilogue;
    let (kind, table) = match products {
        Products::One => (0, 0),
        Products::Batched { .. } => (1, 0),
        Products::Ragged { offsets, .. } => (2, offsets),
        Products::Grouped { records, .. } => (3, records),
        Products::Masked { rows, .. } => (4, rows),
        Products::KGrouped { offsets, .. } => (5, offsets),
    };
    let c_given = c.is_some();
    let c = c.unwrap_or(MatrixRef::NONE);
    let workspace = workspace.unwrap_or(WorkspaceRef { address: 0, bytes: 0 });
    let addresses = Addresses([a.address, b.address, c.address, d.address, workspace.address, table]);
    let pair = |high: u32, low: u32| u64::from(high) << 32 | u64::from(low);
    let shape = [
        pair(kind, products.count()),
        pair(m, n),
        pair(k, c_given.into()),
        pair(alpha.to_bits(), beta.to_bits()),
        a.pitch,
        b.pitch,
        c.pitch,
        d.pitch,
        workspace.bytes,
        addresses.classes(),
        a.stride,
        b.stride,
        c.stride,
        d.stride,
    ];
    (shape, addresses)
}

/// A hash of words by multiplication. The keys are calls of this program, so collisions by intent are not a
/// concern.
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
