//! The tiles of a call: how many there are, and which of them CTAs compute together.

use kernel::{LaunchError, MOST_ROWS};

use crate::call::AttentionCall;
use crate::kernel::Attention;
use crate::problem::AttentionProblem;
use crate::spec::{AttentionSpec, Lengths, Parts};

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
    /// Tiles, or parts of them, that CTAs walk over; those that clusters have.
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
            Parts::Count(count) | Parts::Cluster(count) => count,
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
        let AttentionSpec { format, cache, head: [d, dv], pack, .. } = self.plan.spec;
        // CTAs that merge parts in memory wait for others, so all must be resident. A cluster is, and has one tile.
        let cluster = self.plan.spec.parts.of_cluster();
        let ctas = if cluster > 1 { all } else { resident.min(all).max(1) };
        let (all, parts) = (all / cluster, parts / cluster);
        let AttentionProblem { heads: [_, shared], keys, .. } = call.problem;
        let sharing = heads / shared;
        let of_key = if self.plan.spec.is_latent() { d } else { d + dv };
        let key_bytes = of_key * cache.unwrap_or(format).bytes();
        let of_head = u64::from(keys) * u64::from(key_bytes) / u64::from(sharing.max(1));
        let of_parts = [sequences, heads * parts, sharing * parts];
        let section = self.section(of_parts, [across, ctas], (keys, of_head));
        let share = if pack > 1 { share } else { sharing };
        Ok((Filled { heads, share, sharing, tiles: all, across, section }, ctas))
    }
}
