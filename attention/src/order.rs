//! The order of tiles: which of them CTAs compute at the same time, and how many blocks of keys each has.

use crate::kernel::Attention;
use crate::spec::{AttentionSpec, Lengths, Mask, Order};

impl Attention {
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
fn of_section(all: u64, most: u64, bytes: u64) -> u32 {
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
