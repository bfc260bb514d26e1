//! The lines of tensor copies, and of the products that read what they have copied.

use super::{BYTES, Line, hinted, multicast};
use crate::inst::{AtomicOp, Expect, Inst, Operand, WgmmaA};
use crate::types::Type;

/// A place in a tensor: its map, the coordinates, and the filter offsets in im2col mode.
type Tensor<'a> = (Operand, &'a [Operand], Option<&'a [Operand]>);

impl Line<'_> {
    pub(super) fn tensor_load(
        self,
        (map, coords, im2col): Tensor<'_>,
        (dst, barrier): (Operand, Operand),
        mask: Option<Operand>,
        hint: Option<Operand>,
    ) -> Self {
        let (rank, mode) = (coords.len(), if im2col.is_some() { "im2col" } else { "tile" });
        let line = self.op("cp.async.bulk.tensor", format_args!(".{rank}d.shared::cluster.global"));
        let line = line.raw(format_args!(".{mode}.{BYTES}"));
        let line = line.raw(multicast(mask)).raw(hinted(hint)).at(dst, Type::U32);
        let line = line.tensor(map, coords).at(barrier, Type::U32);
        let offsets = im2col.iter().fold(line, |line, offsets| line.group(offsets, Type::U16));
        offsets.option(mask, Type::U16).policy(hint)
    }

    pub(super) fn tensor_store(
        self,
        reduce: Option<AtomicOp>,
        (map, coords, im2col): (Operand, &[Operand], bool),
        src: Operand,
        hint: Option<Operand>,
    ) -> Self {
        let (rank, mode) = (coords.len(), if im2col { "im2col_no_offs" } else { "tile" });
        let (name, dot, op) = match reduce {
            Some(op) => ("cp.reduce.async.bulk.tensor", ".", op.name()),
            None => ("cp.async.bulk.tensor", "", ""),
        };
        let line = self.op(name, format_args!(".{rank}d.global.shared::cta{dot}{op}.{mode}"));
        let line = line.raw(".bulk_group").raw(hinted(hint)).tensor(map, coords);
        line.at(src, Type::U32).policy(hint)
    }

    pub(super) fn tensor_prefetch(self, (map, coords, im2col): Tensor<'_>) -> Self {
        let (rank, mode) = (coords.len(), if im2col.is_some() { "im2col" } else { "tile" });
        let line = self.op("cp.async.bulk.prefetch.tensor", format_args!(".{rank}d.L2.global.{mode}"));
        let line = line.tensor(map, coords);
        im2col.iter().fold(line, |line, offsets| line.group(offsets, Type::U16))
    }

    pub(super) fn wgmma(self, inst: &Inst) -> Self {
        let Inst::Wgmma { types, n, sparse, d, a, b, accumulate, .. } = inst else { return self };
        let (sp, k) = if sparse.is_some() { (".sp", 2 * types.k()) } else { ("", types.k()) };
        let line = self.op("wgmma.mma_async", sp);
        let line = line.raw(format_args!(".sync.aligned.m64n{n}k{k}.{}", types.suffix()));
        let line = line.set_group(d, Expect::Accumulator);
        let line = match a {
            WgmmaA::Shared(descriptor) => line.read(*descriptor, Type::U64),
            WgmmaA::Registers(regs) => {
                let line = line.also("{").glue("");
                let regs = regs.iter().map(|&reg| Operand::Reg(reg));
                regs.fold(line, |line, reg| line.bits(reg, Type::U32)).raw("}").glue(", ")
            }
        };
        let line = line.read(*b, Type::U64);
        let line = sparse.iter().fold(line, |line, sparse| {
            line.read(Operand::Reg(sparse.metadata), Type::U32).also(sparse.selector)
        });
        line.read(*accumulate, Type::Pred).wgmma_flags(inst)
    }

    /// The signs of A and B, and whether they are transposed, as far as these types have a choice.
    fn wgmma_flags(self, inst: &Inst) -> Self {
        let Inst::Wgmma { types, a, negate_a, negate_b, transpose_a, transpose_b, .. } = inst else {
            return self;
        };
        let mut line = self;
        let sign = |negate: bool| if negate { -1 } else { 1 };
        if types.allows_negation() {
            line = line.also(sign(*negate_a)).also(sign(*negate_b));
        }
        if types.allows_transpose() && matches!(a, WgmmaA::Shared(_)) {
            line = line.also(u8::from(*transpose_a));
        }
        if types.allows_transpose() { line.also(u8::from(*transpose_b)) } else { line }
    }
}
