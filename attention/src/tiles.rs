//! The tiles of a call: how many there are, and which of them CTAs compute together.

use kernel::{LaunchError, MOST_ROWS};

use crate::call::AttentionCall;
use crate::kernel::Attention;
use crate::problem::AttentionProblem;
use crate::spec::{AttentionSpec, Lengths, Mask, Order, Parts};

/// The tiles of a call.
#[derive(Clone, Copy)]
pub(crate) struct Tiles {
    /// Heads of Q that are rows of a tile.
    pub(crate) share: u32,
    /// Heads of tiles.
    pub(crate) heads: u32,
    /// Sequences, of which packed ones are one, and tiles of queries of each. If lengths differ, some are empty.
    pub(crate) sequences: u32,
    pub(crate) across: u64,
    /// Most parts of the keys of a tile.
    pub(crate) parts: u32,
}

/// What a launch computes of a call for its parameters.
pub(crate) struct Filled {
    /// Heads of tiles.
    pub(crate) heads: u32,
    /// Heads of Q per head of K and V; if heads are packed, those that are rows of one tile.
    pub(crate) share: u32,
    /// Heads of tiles per head of K and V.
    pub(crate) sharing: u32,
    pub(crate) tiles: u32,
    /// Tiles of queries per head.
    pub(crate) across: u32,
    /// Heads whose tiles are mixed.
    pub(crate) section: u32,
}

impl Tiles {
    /// All tiles, without parts.
    pub(crate) fn whole(&self) -> u128 {
        u128::from(self.across) * u128::from(self.sequences) * u128::from(self.heads)
    }
}

impl Attention {
    /// The tiles of a call.
    pub(crate) fn tiles(&self, call: &AttentionCall) -> Tiles {
        let AttentionProblem { batch, heads: [heads, shared], queries, keys, .. } = call.problem;
        let AttentionSpec { tile: [rows, _], lengths, pack, .. } = self.plan.spec;
        let (per_tile, share) = (rows / pack, heads.checked_div(shared).unwrap_or(1));
        let share = self.plan.spec.rows_of_query(share).max(1);
        let (sequences, across) = match lengths {
            Lengths::Equal => (batch, queries.div_ceil(per_tile).into()),
            Lengths::Packed => (1, u64::from(call.packed.rows[0] / per_tile) + u64::from(batch)),
        };
        let parts = match self.plan.spec.parts {
            Parts::One => 1,
            Parts::Count(count) => count,
            Parts::Keys(part) => keys.div_ceil(part).max(1),
        };
        Tiles { share, heads: heads / share, sequences, across, parts }
    }

    /// What a launch of a checked call on at most so many CTAs fills in, and the number of CTAs.
    pub(crate) fn filled(&self, call: &AttentionCall, resident: u32) -> Result<(Filled, u32), LaunchError> {
        let tiles @ Tiles { share, heads, sequences, across, parts } = self.tiles(call);
        let all = u32::try_from(tiles.whole() * u128::from(parts)).ok().filter(|&all| all < MOST_ROWS);
        let Some((all, across)) = all.zip(u32::try_from(across).ok()) else {
            let (m, n) = (across.into(), u128::from(heads) * u128::from(parts) * u128::from(sequences));
            return Err(LaunchError::TooManyTiles { m, n, most: MOST_ROWS - 1 });
        };
        // CTAs that merge parts wait for others, so all must be resident.
        let ctas = resident.min(all).max(1);
        let AttentionSpec { format, cache, head: [d, dv], pack, .. } = self.plan.spec;
        let AttentionProblem { heads: [_, shared], keys, .. } = call.problem;
        let sharing = heads / shared;
        let of_key = if self.plan.latent.is_some() { d } else { d + dv };
        let key_bytes = of_key * cache.unwrap_or(format).bytes();
        let of_head = u64::from(keys) * u64::from(key_bytes) / u64::from(sharing.max(1));
        let of_parts = [sequences, heads * parts, sharing * parts];
        let section = self.section(of_parts, [across, ctas], (keys, of_head));
        let share = if pack > 1 { share } else { sharing };
        Ok((Filled { heads, share, sharing, tiles: all, across, section }, ctas))
    }

    /// Heads of tiles that are mixed. If later queries see more keys, these are the fewest whose tiles fill their rounds, or, if tiles of
    /// equal lengths are drawn, those whose K and V L2 keeps; otherwise those that share K and V. `bytes` are those of a head's K and V, of `keys` keys.
    pub(crate) fn section(
        &self,
        [batch, heads, share]: [u32; 3],
        [across, ctas]: [u32; 2],
        (keys, bytes): (u32, u64),
    ) -> u32 {
        if !self.scores.grows() {
            return share;
        }
        let all = batch.saturating_mul(heads).max(1);
        let AttentionSpec { order, lengths, .. } = self.plan.spec;
        if order == Order::Drawn && lengths == Lengths::Equal {
            let most = if keys > SHORT.0 { LONG } else { SHORT.1 };
            return of_section(all.into(), most, bytes);
        }
        self.rounds(all, [across, ctas])
    }

    /// The fewest heads of `all` whose tiles fill their rounds.
    pub(crate) fn rounds(&self, all: u32, [across, ctas]: [u32; 2]) -> u32 {
        let idle = |heads: u32| {
            let tiles = u64::from(heads) * u64::from(across);
            // Per thousand tiles; up to 40 is as good as none.
            let rounded = tiles.next_multiple_of(ctas.into());
            ((rounded - tiles) * 1000 / tiles.max(1)).max(40)
        };
        let most = all.min((4 * ctas).div_ceil(across).max(4));
        (1..=most).min_by_key(|&heads| idle(heads)).unwrap_or(1)
    }
}

/// Up to how many keys reading K and V decides, and bytes of K and V of the heads that are mixed then, and otherwise. With a causal mask and
/// 512 keys, 12 MiB are 6 % slower than 8; from 2048 on, 40 are as fast, and the last long tile begins earlier.
const SHORT: (u32, u64) = (1024, 8 << 20);
const LONG: u64 = 32 << 20;

/// Heads of a section, if `all` are divided into equal ones of at most `most` bytes, and at least a head.
pub(crate) fn of_section(all: u64, most: u64, bytes: u64) -> u32 {
    let together = (most / bytes.max(1)).max(1);
    let sections = all.div_ceil(together).max(1);
    u32::try_from(all.div_ceil(sections)).unwrap_or(u32::MAX).max(1)
}

/// Blocks of `block` keys that `rows` queries see at most; in the mean, if a causal mask grows.
pub(crate) fn blocks_seen(
    mask: Mask,
    counts: &[i32],
    [queries, keys]: [u32; 2],
    [rows, block]: [u32; 2],
) -> u128 {
    let all = u128::from(keys.div_ceil(block));
    let around = |keys: u64| (u128::from(keys + u64::from(rows)).div_ceil(block.into()) + 1).min(all);
    let sum = || counts.iter().map(|&count| u64::from(count.max(0).cast_unsigned())).sum();
    match mask {
        Mask::Causal if keys >= queries => around(u64::from(keys - queries / 2)),
        Mask::Window | Mask::Chunked => around(sum()),
        Mask::Full | Mask::Causal => all,
    }
}
