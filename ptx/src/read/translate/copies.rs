//! Asynchronous copies: `cp.async`, bulk copies and tensor copies, `st.async`, `red.async`.

use super::super::error::Read;
use super::super::syntax::{Base, Operand as Word, OperandKind};
use super::Translator;
use super::form::Form;
use super::memory::{ATOMICS, VECTORS, atomic_type};
use crate::inst::{AtomicType, Bulk, CopyAsync, Inst, Operand, Reduction};
use crate::types::{Space, Type};

const BYTES: &str = "mbarrier::complete_tx::bytes";
const SHARED: [&str; 3] = ["shared", "shared::cta", "shared::cluster"];

impl<'t> Translator<'_, 't> {
    /// `cp…`
    pub(super) fn copy(&mut self, form: &mut Form<'_, 't>) -> Read<()> {
        let reduce = form.first("reduce");
        if !form.first("async") {
            return form.wrong("`.async` was needed");
        }
        if form.first("bulk") {
            return if form.first("tensor") { self.tensor(reduce, form) } else { self.bulk(reduce, form) };
        }
        if reduce {
            return form.wrong("`.bulk` was needed");
        }
        let copy = if form.takes("commit_group") {
            CopyAsync::Commit
        } else if form.takes("wait_group") {
            CopyAsync::Wait { pending: form.count_of("a number of groups")? }
        } else if form.takes("wait_all") {
            CopyAsync::WaitAll
        } else if form.first_ones(&["mbarrier", "arrive"]) {
            let counted = form.takes("noinc");
            form.ignore(&["b64"]);
            let space = form.choose(&[("shared", Space::Shared), ("shared::cta", Space::Shared)]);
            CopyAsync::Arrive { barrier: self.at_shared(form, space)?, counted }
        } else {
            return self.copy_async(form);
        };
        self.emit(Inst::CopyAsync(copy));
        Ok(())
    }

    /// `cp.async.{ca|cg}.shared.global`. If a predicate says that the source is not read, it is as if 0 bytes of it were.
    fn copy_async(&mut self, form: &mut Form<'_, 't>) -> Read<()> {
        let past_l1 = form.need("a cache operator", &[("ca", false), ("cg", true)])?;
        let hinted = form.takes("L2::cache_hint");
        form.ignore_prefix("L2::");
        if !(form.first("shared") || form.first("shared::cta")) || !form.first("global") {
            return form.wrong("`.shared.global` was needed");
        }
        let dst = self.at(form, Space::Shared)?;
        let src = self.address(form, Space::Global)?;
        let bytes = form.count_of("a number of bytes")?;
        let left = form.count().saturating_sub(usize::from(hinted));
        let size = if left > 0 { Some(self.copied(bytes, form)?) } else { None };
        self.policy(hinted, form)?;
        self.emit(Inst::CopyAsync(CopyAsync::Copy { bytes, past_l1, dst, src, size }));
        Ok(())
    }

    /// How many bytes of the source are read: a number, or none of them if a predicate holds.
    fn copied(&mut self, bytes: u32, form: &mut Form<'_, 't>) -> Read<Operand> {
        let word = form.operand()?;
        let ignored = match word.kind {
            OperandKind::Not(_) => true,
            OperandKind::Name(name) => {
                let reg = self.register(name, word.at)?;
                self.names.ty(reg) == Type::Pred
            }
            _ => false,
        };
        if !ignored {
            return self.source(word, Type::U32);
        }
        let cond = self.source(word, Type::Pred)?;
        let dst = self.names.fresh(Type::B32)?;
        let (a, b) = (Operand::Imm(0), Operand::Imm(bytes.into()));
        self.emit(Inst::Select { ty: Type::U32, dst, a, b, cond });
        Ok(Operand::Reg(dst))
    }

    // ---- bulk copies ----

    /// `cp{.reduce}.async.bulk…` without a tensor map.
    fn bulk(&mut self, reduce: bool, form: &mut Form<'_, 't>) -> Read<()> {
        if form.first("commit_group") {
            self.emit(Inst::BulkCommit);
            return Ok(());
        }
        if form.first("wait_group") {
            let read = form.takes("read");
            let pending = form.count_of("a number of groups")?;
            self.emit(Inst::BulkWait { pending, read });
            return Ok(());
        }
        if form.first("prefetch") {
            return self.bulk_prefetch(form);
        }
        let hinted = form.takes("L2::cache_hint");
        let (multicast, group, counted) =
            (form.takes("multicast::cluster"), form.takes("bulk_group"), form.takes(BYTES));
        let to_shared = SHARED.iter().any(|space| form.first(space));
        if !to_shared && !form.first("global") {
            return form.wrong("the state space of the destination was needed");
        }
        let from_shared = form.first("shared::cta") || form.first("shared");
        if !from_shared && !form.first("global") {
            return form.wrong("the state space of the source was needed");
        }
        let reduce = if reduce { Some(Self::reduction(form)?) } else { None };
        let bulk = match (to_shared, from_shared) {
            (true, false) if counted && reduce.is_none() => {
                let (dst, src) = (self.at(form, Space::SharedCluster)?, self.at(form, Space::Global)?);
                let bytes = self.src(form, Type::U32)?;
                let barrier = self.at(form, Space::SharedCluster)?;
                let multicast = multicast.then(|| self.src(form, Type::U16)).transpose()?;
                Bulk::Load { dst, src, bytes, barrier, multicast, hint: self.hint(hinted, form)? }
            }
            (true, true) if counted && !hinted && !multicast => {
                let (dst, src) = (self.at(form, Space::SharedCluster)?, self.at(form, Space::Shared)?);
                let bytes = self.src(form, Type::U32)?;
                let barrier = self.at(form, Space::SharedCluster)?;
                Bulk::Share { dst, src, bytes, barrier, reduce }
            }
            (false, true) if group && !multicast => {
                let (dst, src) = (self.at(form, Space::Global)?, self.at(form, Space::Shared)?);
                let bytes = self.src(form, Type::U32)?;
                Bulk::Store { dst, src, bytes, reduce, hint: self.hint(hinted, form)? }
            }
            _ => return form.wrong("there is no bulk copy of this form"),
        };
        self.emit(Inst::Bulk(bulk));
        Ok(())
    }

    fn bulk_prefetch(&mut self, form: &mut Form<'_, 't>) -> Read<()> {
        if form.first("tensor") {
            return self.tensor_prefetch(form);
        }
        let hinted = form.takes("L2::cache_hint");
        if !form.first_ones(&["L2", "global"]) {
            return form.wrong("`.L2.global` was needed");
        }
        let src = self.at(form, Space::Global)?;
        let bytes = self.src(form, Type::U32)?;
        self.policy(hinted, form)?;
        self.emit(Inst::Bulk(Bulk::Prefetch { src, bytes }));
        Ok(())
    }

    fn reduction(form: &mut Form<'_, 't>) -> Read<Reduction> {
        let word = form.last_word()?;
        form.ignore(&["noftz"]);
        let op = form.need("an operation", &ATOMICS)?;
        match atomic_type(word) {
            Some(ty) => Ok(Reduction { op, ty }),
            None => form.wrong(format!("a reduction of .{word} is not read")),
        }
    }

    /// The cache policy of a copy.
    fn hint(&mut self, hinted: bool, form: &mut Form<'_, 't>) -> Read<Option<Operand>> {
        hinted.then(|| self.src(form, Type::U64)).transpose()
    }

    /// `st.async`.
    pub(super) fn store_async(&mut self, form: &mut Form<'_, 't>) -> Read<()> {
        let ty = form.last_type()?;
        form.ignore(&["weak", BYTES]);
        form.choose(&VECTORS);
        if !form.takes("shared::cluster") {
            return form.wrong("`.shared::cluster` was needed");
        }
        let dst = self.at(form, Space::SharedCluster)?;
        let words = self.vector(form)?;
        let src = words.iter().map(|word| self.source(word, ty)).collect::<Read<Vec<_>>>()?;
        let barrier = self.at(form, Space::SharedCluster)?;
        self.emit(Inst::Bulk(Bulk::AsyncStore { ty, src, dst, barrier }));
        Ok(())
    }

    /// `red.async`.
    pub(super) fn reduce_async(&mut self, form: &mut Form<'_, 't>) -> Read<()> {
        form.ignore(&["relaxed", "cluster", BYTES]);
        if !form.takes("shared::cluster") {
            return form.wrong("`.shared::cluster` was needed");
        }
        let reduce = Self::reduction(form)?;
        let dst = self.at(form, Space::SharedCluster)?;
        let src = self.src(form, AtomicType::register(reduce.ty))?;
        let barrier = self.at(form, Space::SharedCluster)?;
        self.emit(Inst::Bulk(Bulk::AsyncReduce { reduce, src, dst, barrier }));
        Ok(())
    }

    // ---- tensor copies ----

    /// `cp{.reduce}.async.bulk.tensor.<n>d…`
    fn tensor(&mut self, reduce: bool, form: &mut Form<'_, 't>) -> Read<()> {
        let rank = Self::rank(form)?;
        let hinted = form.takes("L2::cache_hint");
        let im2col = Self::mode(form);
        if form.first_ones(&["global", "shared::cta"]) {
            form.takes("bulk_group");
            let reduce = if reduce { Some(form.need("an operation", &ATOMICS)?) } else { None };
            let (map, coords) = self.tensor_place(rank, form)?;
            let src = self.at(form, Space::Shared)?;
            let hint = self.hint(hinted, form)?;
            self.emit(Inst::TensorStore { reduce, map, coords, im2col, src, hint });
            return Ok(());
        }
        let own = form.first_ones(&["shared::cta", "global"]);
        if reduce || !own && !form.first_ones(&["shared::cluster", "global"]) {
            return form.wrong("there is no tensor copy between these state spaces");
        }
        if !form.takes(BYTES) {
            return form.wrong(format!("`.{BYTES}` was needed"));
        }
        let multicast = form.takes("multicast::cluster");
        let dst = self.at(form, Space::SharedCluster)?;
        let (map, coords) = self.tensor_place(rank, form)?;
        let barrier = self.at(form, Space::SharedCluster)?;
        let im2col = if im2col { Some(self.group(form, Type::U16)?) } else { None };
        let multicast = multicast.then(|| self.src(form, Type::U16)).transpose()?;
        let hint = self.hint(hinted, form)?;
        self.emit(Inst::TensorLoad { map, coords, im2col, dst, barrier, multicast, hint });
        Ok(())
    }

    fn tensor_prefetch(&mut self, form: &mut Form<'_, 't>) -> Read<()> {
        let rank = Self::rank(form)?;
        let hinted = form.takes("L2::cache_hint");
        let im2col = Self::mode(form);
        if !form.first_ones(&["L2", "global"]) {
            return form.wrong("`.L2.global` was needed");
        }
        let (map, coords) = self.tensor_place(rank, form)?;
        let im2col = if im2col { Some(self.group(form, Type::U16)?) } else { None };
        self.policy(hinted, form)?;
        self.emit(Inst::TensorPrefetch { map, coords, im2col });
        Ok(())
    }

    fn rank(form: &mut Form<'_, 't>) -> Read<usize> {
        form.need("a number of dimensions", &[("1d", 1), ("2d", 2), ("3d", 3), ("4d", 4), ("5d", 5)])
    }

    /// Whether a copy is in im2col mode; tiles are the default.
    fn mode(form: &mut Form<'_, 't>) -> bool {
        form.takes("tile");
        form.takes("im2col") || form.takes("im2col_no_offs")
    }

    /// `[map, {coordinates}]`
    fn tensor_place(&mut self, rank: usize, form: &mut Form<'_, 't>) -> Read<(Operand, Vec<Operand>)> {
        let word = form.operand()?;
        let OperandKind::Address { base, offset, coordinates: Some(words) } = &word.kind else {
            return word.at.wrong("a tensor map and coordinates in brackets were needed: `[map, {x, y}]`");
        };
        if words.len() != rank {
            return word.at.wrong(format!("{} coordinates, {rank} were needed", words.len()));
        }
        let kind = OperandKind::Address { base: *base as Base<'t>, offset: *offset, coordinates: None };
        let map = self.at_of(&Word { at: word.at, kind }, Space::Generic)?;
        let coords = words.iter().map(|word| self.source(word, Type::S32)).collect::<Read<Vec<_>>>()?;
        Ok((map, coords))
    }

    /// Operands in braces.
    fn group(&mut self, form: &mut Form<'_, 't>, ty: Type) -> Read<Vec<Operand>> {
        self.vector(form)?.iter().map(|word| self.source(word, ty)).collect()
    }
}
