//! Loads, stores and atomic operations of threads.

use super::super::error::Read;
use super::super::syntax::{Base, Operand as Word, OperandKind};
use super::Translator;
use super::form::Form;
use super::moves::SPACES;
use super::names::Meaning;
use crate::inst::{
    AtomicInst, AtomicOp, AtomicSem, AtomicType, Inst, LoadOrder, Operand, OrderedInst, Scope, StoreOrder,
};
use crate::types::{Space, Type};

/// Modifiers that say where data is kept, which changes nothing.
const CACHES: [&str; 24] = [
    "ca",
    "cg",
    "cs",
    "lu",
    "wb",
    "wt",
    "weak",
    "L1::evict_normal",
    "L1::evict_unchanged",
    "L1::evict_first",
    "L1::evict_last",
    "L1::no_allocate",
    "L2::64B",
    "L2::128B",
    "L2::256B",
    "L2::evict_last",
    "L2::evict_normal",
    "L2::evict_first",
    "unified",
    "mmio",
    "cta_group::1",
    "L2::fractional",
    "L1::normal",
    "L2::normal",
];

pub(super) const SCOPES: [(&str, Scope); 4] =
    [("cta", Scope::Cta), ("cluster", Scope::Cluster), ("gpu", Scope::Gpu), ("sys", Scope::System)];

/// The memory ordering of a load or a store.
enum Order {
    Plain,
    Volatile,
    Relaxed(Scope),
    /// Acquire or release.
    Sync(Scope),
}

impl<'t> Translator<'_, 't> {
    pub(super) fn ld(&mut self, form: &mut Form<'_, 't>) -> Read<()> {
        let ty = form.last_type()?;
        let (order, hinted) = Self::access(form, "acquire")?;
        let constant = form.takes("nc");
        let count = form.choose(&VECTORS).unwrap_or(1);
        let space = form.choose(&SPACES).unwrap_or(Space::Generic);
        let words = self.vector(form)?;
        if words.len() != count {
            return form.wrong(format!("{} registers, {count} were needed", words.len()));
        }
        let word = form.operand()?;
        if space == Space::Param
            && let Some((meaning, name, offset)) = self.parameter(word)?
        {
            return self.ld_param((meaning, name, offset), ty, &words, word);
        }
        let dst = words.iter().map(|word| self.result_extended(word, ty)).collect::<Read<Vec<_>>>()?;
        let address = self.address_in(word, space)?;
        self.policy(hinted, form)?;
        let order = match order {
            Order::Plain if constant => {
                self.emit(Inst::LoadConstant { ty, dst, address });
                return Ok(());
            }
            Order::Plain => {
                self.emit(Inst::Load { space, ty, dst, address });
                return Ok(());
            }
            Order::Volatile => LoadOrder::Volatile,
            Order::Relaxed(scope) => LoadOrder::Relaxed(scope),
            Order::Sync(scope) => LoadOrder::Acquire(scope),
        };
        self.emit(Inst::Ordered(OrderedInst::Load { order, space, ty, dst, address }));
        Ok(())
    }

    /// The parameter that an address names, and the offset there.
    fn parameter(&mut self, word: &Word<'t>) -> Read<Option<(Meaning<'t>, &'t str, i64)>> {
        let OperandKind::Address { base: Base::Name(name), offset, coordinates: None } = word.kind else {
            return Ok(None);
        };
        Ok(match self.names.find(name)? {
            Some(meaning @ (Meaning::Param(_) | Meaning::Cells(_))) => Some((meaning, name, offset)),
            _ => None,
        })
    }

    fn ld_param(
        &mut self,
        (meaning, name, offset): (Meaning<'t>, &'t str, i64),
        ty: Type,
        words: &[Word<'t>],
        word: &Word<'t>,
    ) -> Read<()> {
        let dst = words.iter().map(|word| self.result_extended(word, ty)).collect::<Read<Vec<_>>>()?;
        match meaning {
            Meaning::Param(param) => {
                let Ok(offset) = u32::try_from(offset) else {
                    return word.at.wrong(format!("`{name}` {offset:+} is before the parameter"));
                };
                self.emit(Inst::LoadParam { ty, dst, param, offset });
            }
            Meaning::Cells(cells) => {
                for (element, dst) in (0i64..).zip(dst) {
                    let at = offset.wrapping_add(element * i64::from(ty.bytes()));
                    let src = Operand::Reg(self.cell(cells, (at, ty.bits()), name, word.at)?);
                    let wide = self.names.ty(dst);
                    if wide.bits() == ty.bits() {
                        self.emit(Inst::Move { ty: ty.untyped(), dst, src });
                    } else {
                        let to = super::operands::unsigned(wide);
                        let from = if ty.is_untyped() { super::operands::unsigned(ty) } else { ty };
                        self.emit(Inst::Convert { from, to, dst, src });
                    }
                }
            }
            _ => return word.at.wrong(format!("`{name}` is not a parameter")),
        }
        Ok(())
    }

    pub(super) fn st(&mut self, form: &mut Form<'_, 't>) -> Read<()> {
        if form.first("async") {
            return self.store_async(form);
        }
        let ty = form.last_type()?;
        let (order, hinted) = Self::access(form, "release")?;
        let count = form.choose(&VECTORS).unwrap_or(1);
        let space = form.choose(&SPACES).unwrap_or(Space::Generic);
        let word = form.operand()?;
        let words = self.vector(form)?;
        if words.len() != count {
            return form.wrong(format!("{} operands, {count} were needed", words.len()));
        }
        if space == Space::Param {
            return match self.parameter(word)? {
                Some((Meaning::Cells(cells), _, offset)) => self.st_param((cells, offset), ty, &words),
                _ => word.at.wrong("a parameter of a call was needed: the kernel's are only read"),
            };
        }
        let address = self.address_in(word, space)?;
        let src = words.iter().map(|word| self.source_low(word, ty)).collect::<Read<Vec<_>>>()?;
        self.policy(hinted, form)?;
        let order = match order {
            Order::Plain => {
                self.emit(Inst::Store { space, ty, src, address });
                return Ok(());
            }
            Order::Volatile => StoreOrder::Volatile,
            Order::Relaxed(scope) => StoreOrder::Relaxed(scope),
            Order::Sync(scope) => StoreOrder::Release(scope),
        };
        self.emit(Inst::Ordered(OrderedInst::Store { order, space, ty, src, address }));
        Ok(())
    }

    fn st_param(&mut self, (cells, offset): (usize, i64), ty: Type, words: &[Word<'t>]) -> Read<()> {
        for (element, word) in (0i64..).zip(words) {
            let at = offset.wrapping_add(element * i64::from(ty.bytes()));
            let src = self.source_low(word, ty)?;
            let dst = self.cell_for(cells, at, ty)?;
            let wide = match src {
                Operand::Reg(reg) => self.names.ty(reg),
                Operand::Imm(_) => ty,
            };
            if wide.bits() == ty.bits() {
                self.emit(Inst::Move { ty: ty.untyped(), dst, src });
            } else {
                let (from, to) = (super::operands::unsigned(wide), super::operands::unsigned(ty));
                self.emit(Inst::Convert { from, to, dst, src });
            }
        }
        Ok(())
    }

    /// The ordering of an access, and whether it has a cache policy.
    fn access(form: &mut Form<'_, 't>, sync: &str) -> Read<(Order, bool)> {
        let order = if form.takes("volatile") || form.takes("cv") {
            Order::Volatile
        } else if form.takes("relaxed") {
            Order::Relaxed(form.need("a scope", &SCOPES)?)
        } else if form.takes(sync) {
            Order::Sync(form.need("a scope", &SCOPES)?)
        } else {
            Order::Plain
        };
        form.ignore(&CACHES);
        Ok((order, form.takes("L2::cache_hint")))
    }

    /// Takes a cache policy, which changes nothing.
    pub(super) fn policy(&mut self, hinted: bool, form: &mut Form<'_, 't>) -> Read<()> {
        if hinted {
            self.src(form, Type::B64)?;
        }
        Ok(())
    }

    // ---- atomic operations ----

    /// `atom` and `red`.
    pub(super) fn atomic(&mut self, name: &str, form: &mut Form<'_, 't>) -> Read<()> {
        if name == "red" && form.first("async") {
            return self.reduce_async(form);
        }
        let word = form.last_word()?;
        let hinted = form.takes("L2::cache_hint");
        form.ignore(&["noftz"]);
        let count = form.choose(&VECTORS).unwrap_or(1);
        let op = form.need("an operation", &ATOMICS)?;
        let Some(ty) = atomic_type(word) else { return form.wrong(format!("words of .{word} are not read")) };
        let sem = form.choose(&SEMANTICS).unwrap_or(AtomicSem::Relaxed);
        let scope = form.choose(&SCOPES).unwrap_or(Scope::Gpu);
        let space = form.choose(&SPACES).unwrap_or(Space::Generic);
        let register = ty.register();
        let mut dst = Vec::new();
        if name == "atom" {
            for word in &self.vector(form)? {
                dst.push(self.result(word, register)?);
            }
        }
        let address = self.address(form, space)?;
        let words = self.vector(form)?;
        let src = words.iter().map(|word| self.source(word, register)).collect::<Read<Vec<_>>>()?;
        let swap = if op == AtomicOp::CompareSwap { Some(self.src(form, register)?) } else { None };
        self.policy(hinted, form)?;
        if src.len() != count {
            return form.wrong(format!("{} operands, {count} were needed", src.len()));
        }
        self.emit(Inst::Atomic(AtomicInst { op, ty, space, sem, scope, dst, address, src, swap }));
        Ok(())
    }

    // ---- hints, and addresses of other CTAs ----

    /// Prefetches and policies: the program goes on without them. `createpolicy` gives L2's default policy.
    pub(super) fn hints(&mut self, name: &str, form: &mut Form<'_, 't>) -> Read<()> {
        if name == "prefetch" && form.takes("tensormap") {
            let space = form.choose(&SPACES).unwrap_or(Space::Generic);
            let at = form.at;
            let mut map = self.at(form, space)?;
            if let (Space::Param, Operand::Reg(address)) = (space, map) {
                map = Operand::Reg(self.generic(address, space, at)?);
            }
            self.emit(Inst::PrefetchTensorMap { map });
            return Ok(());
        }
        if name == "createpolicy" {
            return self.create_policy(form);
        }
        let space = form.choose(&SPACES).unwrap_or(Space::Generic);
        form.ignore(&CACHES);
        form.ignore(&["L1", "L2"]);
        self.at(form, space)?;
        if name != "prefetch" && name != "prefetchu" {
            form.number("a number of bytes")?;
        }
        Ok(())
    }

    fn create_policy(&mut self, form: &mut Form<'_, 't>) -> Read<()> {
        form.last_type()?;
        let fractional = form.first("fractional");
        let policy = form.choose(&[
            ("L2::evict_first", crate::inst::tma::EVICT_FIRST),
            ("L2::evict_last", crate::inst::tma::EVICT_LAST),
        ]);
        form.ignore_prefix("L2::");
        form.ignore(&["range", "cvt", "L2", "global"]);
        let dst = self.dst(form, Type::B64)?;
        let mut whole = true;
        while form.more() {
            let word = form.operand()?;
            match word.kind {
                OperandKind::Number(number) => {
                    let one = super::super::lex::Number::Single(1f32.to_bits());
                    let double = super::super::lex::Number::Double(1f64.to_bits());
                    whole &= number == one || number == double;
                }
                OperandKind::Address { .. } => _ = self.at_of(word, Space::Generic)?,
                _ => _ = self.source(word, Type::B32).or_else(|_| self.source(word, Type::B64))?,
            }
        }
        let known = policy.filter(|_| fractional && whole).unwrap_or(crate::inst::tma::EVICT_NORMAL);
        self.emit(Inst::Move { ty: Type::B64, dst, src: Operand::Imm(known) });
        Ok(())
    }

    /// `mapa`, of addresses in shared memory or generic ones.
    pub(super) fn mapa(&mut self, form: &mut Form<'_, 't>) -> Read<()> {
        let ty = form.last_type()?;
        let shared = form.takes("shared::cluster");
        if shared && ty.bits() == 32 {
            let dst = self.dst(form, Type::U32)?;
            let address = self.src(form, Type::U32)?;
            let rank = self.src(form, Type::U32)?;
            self.emit(Inst::MapShared { dst, address, rank });
            return Ok(());
        }
        let at = form.at;
        let dst = self.dst(form, Type::U64)?;
        let src = self.src(form, Type::U64)?;
        let rank = self.src(form, Type::U32)?;
        let address = if shared {
            self.converted(Type::U64, Type::U32, src)?
        } else {
            self.shared_of_generic(src, at)?
        };
        let mapped = self.names.fresh(Type::B32)?;
        self.emit(Inst::MapShared { dst: mapped, address, rank });
        if shared {
            self.emit(Inst::Convert { from: Type::U32, to: Type::U64, dst, src: Operand::Reg(mapped) });
        } else {
            let src = Operand::Reg(self.generic(mapped, Space::SharedCluster, at)?);
            self.emit(Inst::Move { ty: Type::B64, dst, src });
        }
        Ok(())
    }

    pub(super) fn getctarank(&mut self, form: &mut Form<'_, 't>) -> Read<()> {
        let ty = form.last_type()?;
        let shared = form.takes("shared::cluster");
        let dst = self.dst(form, Type::U32)?;
        let src = self.src(form, ty)?;
        let address = match (shared, ty.bits()) {
            (true, 32) => src,
            (true, _) => self.converted(Type::U64, Type::U32, src)?,
            (false, 32) => return form.wrong("generic addresses have 64 bits"),
            (false, _) => {
                let wide = self.names.fresh(Type::B64)?;
                self.emit(Inst::ConvertAddress { space: Space::SharedCluster, to: true, dst: wide, src });
                self.converted(Type::U64, Type::U32, Operand::Reg(wide))?
            }
        };
        self.emit(Inst::CtaRank { dst, address });
        Ok(())
    }
}

pub(super) const VECTORS: [(&str, usize); 3] = [("v2", 2), ("v4", 4), ("v8", 8)];

const SEMANTICS: [(&str, AtomicSem); 4] = [
    ("relaxed", AtomicSem::Relaxed),
    ("acquire", AtomicSem::Acquire),
    ("release", AtomicSem::Release),
    ("acq_rel", AtomicSem::AcquireRelease),
];

pub(super) const ATOMICS: [(&str, AtomicOp); 10] = [
    ("add", AtomicOp::Add),
    ("min", AtomicOp::Min),
    ("max", AtomicOp::Max),
    ("inc", AtomicOp::Inc),
    ("dec", AtomicOp::Dec),
    ("and", AtomicOp::And),
    ("or", AtomicOp::Or),
    ("xor", AtomicOp::Xor),
    ("exch", AtomicOp::Exchange),
    ("cas", AtomicOp::CompareSwap),
];

/// The type of a word in memory.
pub(super) fn atomic_type(word: &str) -> Option<AtomicType> {
    let untyped = match word {
        "b32" => Some(AtomicType::U32),
        "b64" => Some(AtomicType::U64),
        _ => None,
    };
    untyped.or_else(|| AtomicType::ALL.into_iter().find(|ty| ty.suffix() == word))
}
