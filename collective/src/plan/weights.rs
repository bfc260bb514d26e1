//! Operand A in few bits: its layout in a stage, and what the plan checks.

use super::units::max;
use super::{Arrivals, EpilogueSpec, MainloopSpec, PlanError, Producer, Roles, Source, StageSlot};
use crate::element::{Code, Format};
use crate::form::Form;
use cute_rs::atom::unit;

/// The rule that weights of another format break.
const WIDE: &str = "weights in few bits are multiplied as bf16 or f16: use operands of these formats";

/// How a 16-bit operand is stored in fewer bits.
///
/// An element is `s * (q - z)`. `q` is the value of its code; `s` and `z` are the scale and the zero point of
/// its row's group along K. The difference and the product are each rounded to the operand's format. Codes
/// are stored in units of 64 rows ([`cute_rs::atom::unit`]); [`weights`](crate::weights) packs them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct WeightsSpec {
    /// Format of the stored codes.
    pub code: Code,
    /// K of a group with one scale: 32, 64 or 128; 0 without scales.
    pub group: u32,
    /// Whether each group has a zero point.
    pub zeros: bool,
}

impl WeightsSpec {
    /// The legal group lengths along K.
    pub const GROUPS: [u32; 3] = [32, 64, 128];

    /// Codes without scales.
    pub const fn of(code: Code) -> Self {
        Self { code, group: 0, zeros: false }
    }

    /// Whether scales are bytes that mean `2^(e - 127)`, as in MXFP4. Otherwise they have the operand's
    /// format.
    pub const fn powers(&self) -> bool {
        matches!(self.code, Code::E2m1)
    }

    /// Bytes per scale.
    pub const fn scale_bytes(&self) -> u32 {
        if self.powers() { 1 } else { 2 }
    }

    /// Bytes of a tile of `(mn, k)` codes.
    pub const fn bytes(&self, mn: u32, k: u32) -> u32 {
        mn * k * self.code.bits() / 8
    }

    /// Number of groups along K whose scales a k-tile needs: one if the k-tile is part of a group; 0 without
    /// scales.
    pub const fn groups(&self, k: u32) -> u32 {
        match k.checked_div(self.group) {
            Some(groups) => max(1, groups),
            None => 0,
        }
    }

    /// Its part of a kernel's name.
    pub(super) fn suffix(&self) -> String {
        let group = if self.group == 0 { String::new() } else { format!("_g{}", self.group) };
        format!("_of_{}{group}{}", self.code, if self.zeros { "_z" } else { "" })
    }
}

/// Number of instructions along K whose fragments of A a thread holds at a time.
const DEPTH: u32 = 4;

/// Most instructions along K per commit group.
const BATCH: u32 = 2;

impl MainloopSpec {
    /// How A is stored in fewer bits; `None` if it is not.
    pub const fn weights(&self) -> Option<WeightsSpec> {
        self.operands[0].weights
    }

    /// Sets of registers for A; each holds the fragments of one instruction along K.
    pub(crate) const fn depth(&self) -> u32 {
        let steps = self.tile[2] / self.atom.k();
        if steps < DEPTH { steps } else { DEPTH }
    }

    /// Instructions along K per commit group.
    pub(crate) const fn batch(&self) -> u32 {
        if self.depth() < BATCH { self.depth() } else { BATCH }
    }

    /// The tiles of a stage for weights, which replace A's: codes, scales and zero points.
    pub(super) const fn weight_rooms(&self, weights: WeightsSpec) -> [StageSlot; 3] {
        let [m, _, k] = self.tile;
        let groups = weights.groups(k);
        let zeros = if weights.zeros { 2 * m * groups } else { 0 };
        [
            StageSlot::line(weights.bytes(m, k)),
            StageSlot::line(m * groups * weights.scale_bytes()),
            if weights.zeros { StageSlot::line(zeros) } else { StageSlot::NONE },
        ]
    }

    /// Registers of a consumer thread for fragments of A, for the codes they are made from, and for scales
    /// and zero points.
    pub(super) const fn weight_registers(&self) -> u32 {
        match self.weights() {
            None => 0,
            Some(weights) => {
                let scales = if weights.group == 0 { 0 } else { 2 };
                let zeros = if weights.zeros { 2 } else { 0 };
                self.product().blocks() * (4 * self.depth() + 4 + scales + zeros) + CONVERTS
            }
        }
    }

    /// Checks that weights in few bits, if there are any, can be multiplied by this mainloop.
    pub(super) const fn weighing(&self, epilogue: &EpilogueSpec, form: Form) -> Result<(), PlanError> {
        let [a, b] = self.operands;
        if b.weights.is_some() {
            let rule = if a.weights.is_some() {
                "both operands are weights in few bits, and these are multiplied with a bf16 or f16 operand: leave one whole"
            } else if b.format.bits() != 16 || !b.format.is_float() {
                WIDE
            } else {
                "weights in few bits come from registers, so they are the kernel's operand A: swap A and B (swap=yes)"
            };
            return Err(PlanError::Rule { rule });
        }
        let Some(WeightsSpec { code, group, zeros }) = a.weights else { return Ok(()) };
        if a.format.bits() != 16 || !a.format.is_float() {
            return Err(PlanError::Rule { rule: WIDE });
        }
        let (k, unit_k) = (self.tile[2], unit::k(code.bits()));
        if !matches!(group, 0 | 32 | 64 | 128) {
            let what = "K of a group of weights";
            return Err(PlanError::Scaled { what, found: group, needed: "32, 64 or 128" });
        }
        if !k.is_multiple_of(unit_k) {
            let needed = if unit_k == 64 { "a multiple of 64" } else { "a multiple of 32" };
            return Err(PlanError::Scaled { what: "tile K of weights in few bits", found: k, needed });
        }
        if group > 0 && !k.is_multiple_of(group) && !group.is_multiple_of(k) {
            let what = "tile K of weights whose groups have scales";
            return Err(PlanError::Scaled { what, found: k, needed: "a part of a group, or whole groups," });
        }
        let blocks = self.tile[0] / self.atom.rows();
        if !blocks.is_multiple_of(self.cluster[1]) {
            let extent = "tile M of weights, in blocks of 64 rows";
            return Err(PlanError::Slice { extent, elements: blocks, ctas: self.cluster[1] });
        }
        let rule = if !matches!(self.atom.a, Source::Registers)
            || !matches!(self.atom.sums(), super::AccumulatorType::F32)
        {
            "weights in few bits are multiplied from registers, and summed in f32"
        } else if !matches!(a.major, cute_rs::atom::Major::K) {
            "weights in few bits are contiguous along K"
        } else if zeros && (!code.is_integer() || group == 0) {
            "zero points need integer codes and groups: use s4, u4, s8 or u8, and groups"
        } else if matches!(code, Code::E2m1) && group > 0 && !matches!(a.format, Format::Bf16) {
            "scales that are powers of two have the exponents of bf16: use operands of bf16"
        } else if self.more[2].bytes > 0 || self.more[3].bytes > 0 {
            "scales and zero points take two of the four tiles that a stage can have after A and B: leave the last two of `more` empty"
        } else if self.is_scaled() {
            "blocks with scales are of 8-bit floats, and weights in few bits are not: leave one out"
        } else if self.atom.promote > 0 {
            "sums of 16-bit products are not promoted: leave the promotion out"
        } else if self.step > 0 {
            "tiles of weights in few bits are not narrowed: use Tile, not Fitted"
        } else if matches!(self.producer, Producer::Warpgroup) {
            "weights in few bits need tensor copies: use TmaWgmma"
        } else if matches!(self.roles, Roles::Unspecialised) {
            "weights in few bits need a producer: use Cooperative or Pingpong"
        } else if matches!(self.arrivals, Arrivals::Warpgroup) {
            "threads read weights from the stage, so each warp releases it: write EachWarp<AsManyAsFit> as the roles' stages"
        } else if epilogue.split {
            "an epilogue of split weights reads them from both halves of N: let gates and ups alternate"
        } else if form.described() {
            "records describe matrices, not scales: use one product, a batch or groups of rows"
        } else if form.divides_k() {
            "groups along K are of dense operands, with or without block scales: use one product, a batch or groups of rows"
        } else if form.shares_rows() && !epilogue.transposed {
            "with groups of rows, weights are the caller's B: swap A and B (swap=yes)"
        } else {
            return Ok(());
        };
        Err(PlanError::Rule { rule })
    }
}

/// Registers in which a pair of codes is converted.
const CONVERTS: u32 = 8;
