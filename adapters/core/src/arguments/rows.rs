//! The arguments of what surrounds attention: two of its results as one, and new keys and values in pages of a cache.

use falchion::attention::HeadsRef;
use falchion::collective::Format;
use falchion::rows::{AppendedPages, MergedAttention, RowCall, RowKind, RowProblem};

use super::{Argument, Kind, Operation, Placed, Python, Structure};
use crate::refusal::Refusal;

/// Two results of attention over different keys, as one.
pub static MERGE_ATTENTION: Operation<MergedHeads, MergedHeads> = Operation {
    name: "merge_attention",
    described: &Structure { name: "", fields: &[], later: "" },
    given: &MERGED,
    without: &[],
};

/// New keys and values, in pages of a cache.
pub static APPEND_PAGES: Operation<NewKeys, NewKeys> = Operation {
    name: "append_pages",
    described: &Structure { name: "", fields: &[], later: "" },
    given: &APPENDED,
    without: &[],
};

/// Two results of attention as a door describes them. Strides that are not said are packed.
#[derive(Clone, Copy, Debug)]
pub struct MergedHeads {
    /// The format of elements.
    pub format: Format,
    /// Strides of O_a, O_b and O: row, head and sequence.
    pub strides: [[Option<u64>; 3]; 3],
    /// Extents, and addresses.
    pub call: MergedAttention,
}

/// New keys and values as a door describes them. Strides that are not said are packed; of new rows, heads follow their row.
#[derive(Clone, Copy, Debug)]
pub struct NewKeys {
    /// The format of elements.
    pub format: Format,
    /// Strides of K, V and their caches: row, head and page.
    pub strides: [[Option<u64>; 3]; 4],
    /// Elements of a head of V: by default those of K, or none without a V.
    pub dv: Option<u32>,
    /// Bits of a slot.
    pub slot_bits: u32,
    /// Extents, and addresses.
    pub call: AppendedPages,
}

/// A stride of a tensor: of rows (0), heads, and sequences or pages.
const fn of_merged<const OF: usize, const I: usize>(c: &'static str) -> Argument<MergedHeads> {
    Argument::said(c, Kind::Long, |of: &mut MergedHeads, value| {
        of.strides[I][OF] = Some(value.long());
        Ok(())
    })
}

const fn of_new<const OF: usize, const I: usize>(c: &'static str) -> Argument<NewKeys> {
    Argument::said(c, Kind::Long, |of: &mut NewKeys, value| {
        of.strides[I][OF] = Some(value.long());
        Ok(())
    })
}

/// An extent of what is merged.
const fn extent<const I: usize>(c: &'static str) -> Argument<MergedHeads> {
    Argument::said(c, Kind::Whole, |of: &mut MergedHeads, value| {
        of.call.shape[I] = value.whole();
        Ok(())
    })
}

const SIZE: &str = "the version of the caller's structure";
const GIVEN: &str = "an address";

static MERGED: Structure<MergedHeads> = Structure {
    name: "falchion_merge_attention_args",
    later: "",
    fields: &[
        Argument::own("size", Kind::Long, SIZE),
        Argument::said("types", Kind::Text, |of: &mut MergedHeads, value| {
            of.format = format(value.text(), &[Format::Bf16, Format::F16, Format::F32])?;
            Ok(())
        })
        .needed("one of bf16, f16, f32")
        .python(Python::Keyword("types")),
        extent::<0>("batch"),
        extent::<1>("heads"),
        extent::<2>("rows"),
        extent::<3>("d"),
        Argument::zero("reserved"),
        of_merged::<0, 0>("row[0]"),
        of_merged::<0, 1>("row[1]"),
        of_merged::<0, 2>("row[2]"),
        of_merged::<1, 0>("head[0]"),
        of_merged::<1, 1>("head[1]"),
        of_merged::<1, 2>("head[2]"),
        of_merged::<2, 0>("sequence[0]"),
        of_merged::<2, 1>("sequence[1]"),
        of_merged::<2, 2>("sequence[2]"),
        Argument::memory("o_a", &["O_a"]).needed(GIVEN).python(Python::Needed("o_a")),
        Argument::memory("lse_a", &["the log-sum-exp of O_a"]).needed(GIVEN).python(Python::Needed("lse_a")),
        Argument::memory("o_b", &["O_b"]).needed(GIVEN).python(Python::Needed("o_b")),
        Argument::memory("lse_b", &["the log-sum-exp of O_b"]).needed(GIVEN).python(Python::Needed("lse_b")),
        Argument::memory("o", &["O"]).needed(GIVEN).python(Python::Keyword("out")),
        Argument::memory("log_sum_exp", &["the log-sum-exp"])
            .needed(GIVEN)
            .python(Python::Keyword("log_sum_exp")),
    ],
};

/// Why a call has no V.
const fn values(of: &NewKeys) -> Option<&'static str> {
    if matches!(of.dv, Some(0)) { Some("dv is 0") } else { None }
}

static APPENDED: Structure<NewKeys> = Structure {
    name: "falchion_append_pages_args",
    later: "",
    fields: &[
        Argument::own("size", Kind::Long, SIZE),
        Argument::said("types", Kind::Text, |of: &mut NewKeys, value| {
            of.format = format(value.text(), &[Format::Bf16, Format::F16])?;
            Ok(())
        })
        .needed("one of bf16, f16")
        .python(Python::Keyword("types")),
        Argument::said("tokens", Kind::Whole, |of: &mut NewKeys, value| {
            of.call.rows = value.whole();
            Ok(())
        }),
        Argument::said("kv_heads", Kind::Whole, |of: &mut NewKeys, value| {
            of.call.heads = value.whole();
            Ok(())
        }),
        Argument::said("d", Kind::Whole, |of: &mut NewKeys, value| {
            of.call.columns[0] = value.whole();
            Ok(())
        }),
        Argument::said("dv", Kind::Whole, |of: &mut NewKeys, value| {
            of.dv = Some(value.whole());
            Ok(())
        }),
        Argument::said("pages", Kind::Whole, |of: &mut NewKeys, value| {
            of.call.pages[0] = value.whole();
            Ok(())
        }),
        Argument::said("page", Kind::Whole, |of: &mut NewKeys, value| {
            of.call.pages[1] = value.whole();
            Ok(())
        }),
        Argument::said("slot_bits", Kind::Whole, |of: &mut NewKeys, value| {
            of.slot_bits = value.whole();
            Ok(())
        }),
        Argument::zero("reserved"),
        of_new::<0, 0>("row[0]"),
        of_new::<0, 1>("row[1]"),
        of_new::<0, 2>("row[2]"),
        of_new::<0, 3>("row[3]"),
        of_new::<1, 0>("head[0]"),
        of_new::<1, 1>("head[1]"),
        of_new::<1, 2>("head[2]"),
        of_new::<1, 3>("head[3]"),
        of_new::<2, 2>("page_step[0]"),
        of_new::<2, 3>("page_step[1]"),
        Argument::memory("k", &["K"]).python(Python::Needed("k")),
        Argument::memory("v", &["V"]).python(Python::Needed("v")).unless(values),
        Argument::memory("k_cache", &["the cache of K"]).needed(GIVEN).python(Python::Needed("k_cache")),
        Argument::memory("v_cache", &["the cache of V"]).python(Python::Needed("v_cache")).unless(values),
        Argument::memory("slots", &["the slots"]).python(Python::Needed("slots")),
    ],
};

/// The format of a text.
fn format(text: &str, all: &[Format]) -> Result<Format, Refusal> {
    let found = all.iter().find(|format| format.name() == text).copied();
    found.ok_or_else(|| {
        let names = all.iter().map(|format| format.name()).collect::<Vec<_>>().join(", ");
        Refusal::Invalid(format!("types is \"{text}\", one of {names} was needed"))
    })
}

/// The strides of a tensor, all of which are said.
fn strides(HeadsRef { row, head, batch, .. }: HeadsRef) -> [Option<u64>; 3] {
    [row, head, batch].map(Some)
}

/// Where a tensor is by its strides: of those that are not said, rows follow each other, then heads, then sequences.
pub(super) fn packed([row, head, batch]: [Option<u64>; 3], [heads, length, d]: [u32; 3]) -> HeadsRef {
    let row = row.unwrap_or(d.into());
    let head = head.unwrap_or_else(|| u64::from(length).saturating_mul(row));
    let batch = batch.unwrap_or_else(|| u64::from(heads).saturating_mul(head));
    HeadsRef { address: 0, row, head, batch }
}

/// The same of rows whose heads follow each other.
pub(super) fn packed_rows([row, head, batch]: [Option<u64>; 3], shape: [u32; 3]) -> HeadsRef {
    let [heads, _, d] = shape.map(u64::from);
    packed([Some(row.unwrap_or(heads.saturating_mul(d))), Some(head.unwrap_or(d)), batch], shape)
}

/// The problem of a kernel: nothing else of a call decides which one runs.
fn problem(kind: RowKind, format: Format) -> RowProblem {
    RowProblem { format, ..RowProblem::new(kind, [1, 8]) }
}

impl Default for MergedHeads {
    fn default() -> Self {
        Self { format: Format::Bf16, strides: [[None; 3]; 3], call: MergedAttention::default() }
    }
}

impl MergedHeads {
    /// What is asked of a kernel.
    pub fn request(&self) -> RowProblem {
        problem(RowKind::MergeAttention, self.format)
    }

    /// The same with O_a, O_b and O at these places.
    #[must_use]
    pub fn at(self, of: [HeadsRef; 3]) -> Self {
        let [a, b, o] = of;
        Self { strides: of.map(strides), call: MergedAttention { results: [a, b], o, ..self.call }, ..self }
    }

    /// The call. [`bind`](crate::bind) gives its memory other addresses.
    pub fn call(&self) -> RowCall {
        let MergedAttention { shape: [_, shape @ ..], results: [a, b], o, .. } = self.call;
        let [a, b, o] = [(a, 0), (b, 1), (o, 2)]
            .map(|(HeadsRef { address, .. }, i)| HeadsRef { address, ..packed(self.strides[i], shape) });
        RowCall::MergeAttention(MergedAttention { results: [a, b], o, ..self.call })
    }
}

impl Default for NewKeys {
    fn default() -> Self {
        let strides = [[None; 3]; 4];
        Self { format: Format::Bf16, strides, dv: None, slot_bits: 32, call: AppendedPages::default() }
    }
}

impl NewKeys {
    /// What is asked of a kernel.
    pub fn request(&self) -> RowProblem {
        problem(RowKind::AppendPages, self.format)
    }

    /// The same with K, V and their caches at these places.
    #[must_use]
    pub fn at(self, of: [HeadsRef; 4]) -> Self {
        let [k, v, k_cache, v_cache] = of;
        let call = AppendedPages { new: [k, v], caches: [k_cache, v_cache], ..self.call };
        Self { strides: of.map(strides), call, ..self }
    }

    /// The call. [`bind`](crate::bind) gives its memory other addresses, which are given here. Where the length of V is not said, there is a V if it, or its cache, has memory.
    ///
    /// # Errors
    /// Slots of another number of bits than 32 and 64.
    pub fn call(&self, memory: &[Placed]) -> Result<RowCall, Refusal> {
        if ![32, 64].contains(&self.slot_bits) {
            let words = format!("slot_bits is {}, 0, 32 or 64 was needed", self.slot_bits);
            return Err(Refusal::Invalid(words));
        }
        let AppendedPages { rows, heads, columns: [d, _], pages: [_, keys], .. } = self.call;
        let has_values =
            memory.iter().any(|of| of.names.iter().any(|name| ["V", "the cache of V"].contains(name)));
        let columns = [d, self.dv.unwrap_or(if has_values { d } else { 0 })];
        let AppendedPages { new, caches, .. } = self.call;
        let new = [0, 1].map(|i| {
            let packed = packed_rows(self.strides[i], [heads, rows, columns[i]]);
            HeadsRef { address: new[i].address, ..packed }
        });
        let caches = [0, 1].map(|i| {
            let packed = packed(self.strides[2 + i], [heads, keys, columns[i]]);
            HeadsRef { address: caches[i].address, ..packed }
        });
        let wide = self.slot_bits == 64;
        Ok(RowCall::AppendPages(AppendedPages { columns, new, caches, wide, ..self.call }))
    }
}
