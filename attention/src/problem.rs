//! What a launch computes: lengths and heads, and where Q, K, V and O are.

use kernel::operands::Visit;
use kernel::{LaunchError, check_extent};

use crate::spec::Mask;

/// The extents of a launch.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct AttentionProblem {
    /// Number of sequences.
    pub batch: u32,
    /// Heads of Q and O, and heads of K and V. The first is a multiple of the second: consecutive heads of Q share
    /// one of K and V.
    pub heads: [u32; 2],
    /// Number of queries of a sequence; of the longest one, if lengths differ.
    pub queries: u32,
    /// Number of keys of a sequence; of the most, if lengths differ.
    pub keys: u32,
    /// What products of queries and keys are multiplied by, usually `1 / sqrt(d)`. Above zero.
    pub scale: f32,
}

impl AttentionProblem {
    /// A problem with as many heads of K and V as of Q, and the usual scale for heads of `d` elements.
    pub fn new(batch: u32, heads: u32, [queries, keys]: [u32; 2], d: u32) -> Self {
        Self { batch, heads: [heads; 2], queries, keys, scale: (f64::from(d).sqrt().recip()) as f32 }
    }

    /// Checks the numbers.
    pub(crate) fn check(&self) -> Result<(), LaunchError> {
        let AttentionProblem { batch, heads: [heads, shared], queries, keys, scale } = *self;
        for (name, extent) in [
            ("the number of sequences", batch),
            ("the number of heads", heads),
            ("the number of queries", queries),
            ("the number of keys", keys),
        ] {
            check_extent(name, extent)?;
        }
        if shared == 0 && heads > 0 || shared > 0 && !heads.is_multiple_of(shared) {
            return refused(format!(
                "there are {heads} heads of queries and {shared} of keys, a multiple of the latter was needed"
            ));
        }
        if !(scale > 0.0 && scale.is_finite()) {
            return refused(format!("the scale is {scale}, a finite number above zero was needed"));
        }
        Ok(())
    }

    /// Floating-point operations that products count as, with this number for each query and key. A causal mask counts as half; other masks count
    /// as none, since their arguments are those of a call.
    pub(crate) fn operations(&self, mask: Mask, each: u32) -> f64 {
        let Self { batch, heads: [heads, _], queries, keys, .. } = *self;
        let part = if mask == Mask::Causal { 0.5 } else { 1.0 };
        part * f64::from(batch) * f64::from(heads) * f64::from(queries) * f64::from(keys) * f64::from(each)
    }

    /// What scores are multiplied by to be exponents of 2, and natural ones. Those that are `scaled` were multiplied by the scale before.
    pub(crate) fn exponents(&self, scaled: bool) -> [f32; 2] {
        let factor = if scaled { 1.0 } else { self.scale };
        [factor * core::f32::consts::LOG2_E, factor]
    }

    /// Visits the numbers, which are parts of a call.
    pub(crate) fn visit(&mut self, visit: &mut dyn Visit) {
        let Self { batch, heads: [heads, shared], queries, keys, scale } = self;
        for count in [batch, heads, shared, queries, keys] {
            visit.count(count);
        }
        visit.single(scale);
    }

    /// States the program's parameter `scale`.
    pub(crate) fn state_scale(&self, visit: &mut dyn Visit) {
        visit.number("scale", Some(self.scale));
    }
}

pub(crate) fn refused<T>(reason: String) -> Result<T, LaunchError> {
    Err(LaunchError::Problem { reason })
}
