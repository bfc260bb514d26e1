//! The space of a request: which kernels may compute it, and which of those are looked at.

use kernel::{Machine, alike};

use crate::formula::{MaskFormula, ScoreFormula};
use crate::request::AttentionRequest;
use crate::spec::{AttentionSpec, Lengths, Mask, Order, Parts};

impl AttentionRequest {
    /// Whether a kernel may compute it.
    pub(crate) fn admits(&self, spec: &AttentionSpec) -> bool {
        (self.workspace || !spec.parts.are_in_memory() && spec.order == Order::Dealt)
            && [self.spec().mask, self.mask].contains(&spec.mask)
            && (!self.fixed || self.fixed_specs().any(|of| of == *spec))
    }

    /// Rows of a tile per query, if the heads of Q that share one of K are rows of it; in latent attention, of several tiles if they are
    /// too many for one.
    pub(crate) fn share(&self) -> u32 {
        let [heads, shared] = self.problem.heads;
        let share = if shared > 0 && heads.is_multiple_of(shared) { heads / shared } else { 1 };
        match share {
            ..=64 => share.next_power_of_two(),
            _ if self.spec().is_latent() => 1 << share.trailing_zeros().min(6),
            _ => 1,
        }
    }

    /// Tiles of a kernel.
    fn tiles(&self, spec: &AttentionSpec) -> u32 {
        let [heads, shared] = self.problem.heads;
        let heads = heads / spec.rows_of_query(heads.checked_div(shared).unwrap_or(1)).max(1);
        let per_tile = (spec.tile[0] / spec.pack).max(1);
        let tiles =
            self.kinds().map(|([queries, _], count)| queries.div_ceil(per_tile).saturating_mul(count));
        tiles.fold(0, u32::saturating_add).saturating_mul(heads).max(1)
    }

    /// Whether a tile has all queries of a sequence.
    fn is_one_tile(&self, spec: &AttentionSpec) -> bool {
        self.problem.queries <= spec.tile[0] / spec.pack
    }

    /// How CTAs get their tiles. They draw those of lengths that differ, and may draw those of which later ones are longer: a tile that has all
    /// queries of a sequence is as long as all others.
    pub(crate) fn orders(&self, spec: &AttentionSpec, machine: &Machine) -> &'static [Order] {
        let differ = self.lengths == Lengths::Packed;
        if !self.workspace
            || !differ && (self.mask != Mask::Causal || self.is_one_tile(spec))
            || self.tiles(spec) <= machine.multiprocessors
        {
            return &[Order::Dealt];
        }
        if differ { &[Order::Drawn] } else { &[Order::Dealt, Order::Drawn] }
    }

    /// Numbers of CTAs that an SM has at the same time: two of short tiles, if there are more of these than SMs.
    pub(crate) fn ctas(&self, spec: &AttentionSpec, machine: &Machine) -> &'static [u32] {
        // The plan refuses two of long ones.
        if self.is_one_tile(spec) && self.tiles(spec) > machine.multiprocessors { &[1, 2] } else { &[1] }
    }

    /// Numbers of parts that fill a card once or twice, if a kernel's tiles do not, and some smaller ones; and clusters that are resident at once.
    pub(crate) fn parts(&self, spec: &AttentionSpec, machine: &Machine) -> Vec<Parts> {
        let (block, tiles) = (spec.tile[1], self.tiles(spec));
        let blocks = self.problem.keys.div_ceil(block);
        let mut all: Vec<u32> = [1, 2, 4].map(|twice| machine.multiprocessors * twice / 2 / tiles).to_vec();
        all.extend([2, 4]);
        all.retain(|&parts| parts > 1 && parts <= blocks.min(1024));
        // Few keys are done soonest if each block is a part. A power of two is the choice of many numbers of keys.
        let each = blocks.checked_next_power_of_two().filter(|&each| each > 1);
        all.extend(each.filter(|each| each.saturating_mul(tiles) <= machine.multiprocessors));
        all.sort_unstable();
        all.dedup();
        let few = self.workspace && tiles < 4 * machine.multiprocessors;
        let in_memory = all.into_iter().filter(|_| few).map(Parts::Count);
        // The largest cluster of which all are resident at once, and some smaller ones: the same ones for all numbers of keys that have so many blocks.
        let most_of_cluster = if spec.is_halved() { 0 } else { Parts::MOST_OF_CLUSTER };
        let fit = |&count: &u32| tiles <= machine.clusters[count as usize - 1];
        let most = (2..=most_of_cluster).rev().find(fit);
        let clusters = (2..=most_of_cluster)
            .filter(|count| Some(*count) == most || count.is_power_of_two() && fit(count));
        let clusters = clusters.filter(|&count| count <= blocks);
        in_memory.chain(clusters.map(Parts::Cluster)).collect()
    }

    /// Whether a kernel is one of its space, as far as lengths decide it.
    pub(crate) fn has(&self, spec: &AttentionSpec, machine: &Machine) -> bool {
        let divides = match spec.parts {
            Parts::Count(_) | Parts::Cluster(_) => self.parts(spec, machine).contains(&spec.parts),
            Parts::One | Parts::Keys(_) => true,
        };
        divides
            && (self.fixed || spec.parts != Parts::One || self.orders(spec, machine).contains(&spec.order))
    }

    /// Kernels that compute a row the same way in every batch, the first of which that is legal is taken. They do not depend on
    /// lengths, or on the number of sequences.
    pub(crate) fn fixed_specs(&self) -> impl Iterator<Item = AttentionSpec> + use<> {
        let (spec, pack) = (self.spec(), self.share());
        [128, 64, 32, 16].into_iter().map(move |block| AttentionSpec {
            tile: [64, block],
            pack,
            parts: Parts::Keys(1024),
            ..spec
        })
    }
}

/// The words of a spec that decide what a call's memory and numbers are, with their values; and whether the text of a spec says them.
pub(crate) fn memory(spec: &AttentionSpec) -> Vec<(&'static str, String, bool)> {
    let AttentionSpec {
        format,
        cache,
        output,
        head: [d, dv],
        lengths,
        pages,
        soft_cap,
        alibi,
        score,
        sees,
        sinks,
        ..
    } = *spec;
    let switch = |name, on| (name, if on { "on" } else { "off" }.to_owned(), on);
    let text = |name, text: Option<&str>| (name, text.unwrap_or("none").to_owned(), text.is_some());
    let packed = lengths == Lengths::Packed;
    let of_pages = pages.map_or_else(|| "none".to_owned(), |page| page.to_string());
    vec![
        ("format", format.name().to_owned(), true),
        ("cache", cache.unwrap_or(format).name().to_owned(), cache.is_some()),
        ("output", output.name().to_owned(), true),
        ("d", format!("{d}x{dv}"), true),
        ("lengths", if packed { "packed" } else { "equal" }.to_owned(), packed),
        ("pages", of_pages, pages.is_some()),
        switch("softcap", soft_cap),
        switch("alibi", alibi),
        text("score", score.map(ScoreFormula::text)),
        text("sees", sees.map(MaskFormula::text)),
        switch("sinks", sinks),
    ]
}

/// Those that the text of a spec says.
pub(crate) fn said(words: Vec<(&'static str, String, bool)>) -> Vec<(&'static str, String)> {
    words.into_iter().filter(|(.., said)| *said).map(|(key, value, _)| (key, value)).collect()
}

/// Refuses a kernel whose words are others than those of a problem.
pub(crate) fn differ(
    own: Vec<(&'static str, String, bool)>,
    asked: Vec<(&'static str, String, bool)>,
) -> Result<(), String> {
    alike(own.into_iter().zip(asked).map(|((key, own, _), (_, asked, _))| (key, own, asked)))
}
