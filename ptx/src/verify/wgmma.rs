//! Checks that a combination of fields of `wgmma.mma_async` exists.

use super::Checker;
use crate::inst::{Inst, WgmmaA, WgmmaSum};

impl Checker<'_> {
    pub(super) fn wgmma(&mut self, inst: &Inst) {
        let Inst::Wgmma { types, n, sparse, d, a, negate_a, negate_b, transpose_a, transpose_b, .. } = inst
        else {
            return;
        };
        let name = types.suffix();
        self.require(types.allows(*n), || {
            let legal = match types.d() {
                WgmmaSum::S32 => "8, 16, 24, 32 or 48..=256 in steps of 16",
                WgmmaSum::F16 | WgmmaSum::F32 => "8..=256 in steps of 8",
            };
            format!("wgmma .{name} has no N = {n}: {legal}")
        });
        let needed = types.accumulators(*n) as usize;
        self.require(d.len() == needed, || {
            format!("{} accumulators for N = {n}, which has {needed}", d.len())
        });
        let mut sorted = d.clone();
        sorted.sort_unstable();
        sorted.dedup();
        self.require(sorted.len() == d.len(), || "an accumulator is named twice".to_owned());
        if let WgmmaA::Registers(fragment) = a {
            let shared = fragment.iter().any(|reg| d.contains(reg));
            self.require(!shared, || "a register of A is an accumulator too".to_owned());
        }
        let shared_a = matches!(a, WgmmaA::Shared(_));
        let legal = (!transpose_a || (types.allows_transpose() && shared_a))
            && (!transpose_b || types.allows_transpose());
        self.require(legal, || {
            format!(
                "wgmma .{name} cannot read a transposed operand there: 16-bit ones in shared memory can be"
            )
        });
        let negated = *negate_a || *negate_b;
        self.require(!negated || types.allows_negation(), || {
            format!("wgmma .{name} cannot negate an operand: floats can be")
        });
        if let Some(sparse) = sparse {
            match types.sparse_selectors() {
                None => self.fail(format!("wgmma .{name} has no sparse form")),
                Some(last) => self.require(sparse.selector <= last, || {
                    format!("wgmma.sp .{name} has no metadata selector {}: 0..={last}", sparse.selector)
                }),
            }
        }
    }
}
