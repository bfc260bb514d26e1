//! Which CTAs of the main program store zeros for the sums of dQ to which later ones add.

use collective::operands::Visit;

/// The first CTA stores those of the `each` tiles that follow `before`, which the first program stores, the second one those of the next, and so
/// on. A CTA is as many CTAs ahead of those that need its zeros as the blocks of a section of heads have, so it begins before them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Ahead {
    each: u32,
    before: u32,
    /// All tiles.
    count: u32,
}

impl Ahead {
    /// The names of its numbers.
    pub(super) const NAMES: [&'static str; 3] = ["zeros", "zeros_before", "tiles"];

    /// Most bytes of sums of heads that are computed together, if their zeros are stored ahead: L2 holds these beside what CTAs work with. On an H200, with 63 MB at
    /// `2x28/4x6000`, calls took 1.0 % longer than if the first program stores all zeros; with 8 MB at `4x16x4096 mask=causal` 1.9 % less.
    const HELD: u64 = 16 << 20;

    /// For `heads` heads, of which at most `section` are computed together. Each has `tiles` tiles of `bytes` bytes, to which `ctas` CTAs add.
    pub(super) fn of([heads, section]: [u32; 2], [tiles, ctas]: [u32; 2], bytes: u32) -> Self {
        let count = heads.saturating_mul(tiles);
        let least = |number: u64| u32::try_from(number.min(count.into())).unwrap_or(count);
        let each = u64::from(tiles.div_ceil(ctas.max(1)));
        let of_section = each.saturating_mul(u64::from(section) * u64::from(ctas));
        // Without any CTA, there are sums nevertheless.
        let all = ctas == 0 || of_section.saturating_mul(bytes.into()) > Self::HELD;
        let before = if all { count.into() } else { of_section };
        Self { each: least(each), before: least(before), count }
    }

    /// The part of all tiles whose zeros CTAs store.
    #[cfg(feature = "records")]
    pub(super) fn part(self) -> f64 {
        1.0 - f64::from(self.before) / f64::from(self.count.max(1))
    }

    /// States its numbers.
    pub(super) fn state(self, visit: &mut dyn Visit) {
        let numbers = [self.each, self.before, self.count];
        Self::NAMES.into_iter().zip(numbers).for_each(|(name, number)| visit.number(name, Some(number)));
    }
}

#[cfg(test)]
mod tests {
    use super::Ahead;

    /// No CTA waits for one that begins after it, whatever the numbers are: all tiles have zeros, by CTAs before the first one of their section.
    #[test]
    fn zeros_are_stored_by_cta_that_began_before() {
        let (mut random, mut stored) = (fastrand::Rng::with_seed(5), 0);
        for _ in 0..20_000 {
            let [heads, tiles, ctas] = [random.u32(1..40), random.u32(0..60), random.u32(0..60)];
            // The last section has the heads that are left, too.
            let section = random.u32(1..=heads);
            let last = (heads / section - 1) * section;
            let of = Ahead::of([heads, heads - last], [tiles, ctas], 64);
            assert_eq!(of.count, heads * tiles);
            let end = of.before + of.each.saturating_mul(heads * ctas);
            assert!(end >= of.count, "{of:?}: tiles without zeros");
            for tile in of.before..of.count {
                let first_head = (tile / tiles / section * section).min(last);
                let cta = (tile - of.before) / of.each;
                assert!(
                    cta < first_head * ctas,
                    "{of:?}: {heads} heads, {section}, {tiles} tiles, {ctas} CTAs"
                );
                stored += 1;
            }
        }
        assert!(stored > 100_000, "{stored}");
        // What L2 does not hold is stored before.
        assert_eq!(Ahead::of([10, 1], [1024, 64], 16 << 10).before, 1024);
        assert_eq!(Ahead::of([10, 1], [1025, 64], 16 << 10).before, 10 * 1025);
    }
}
