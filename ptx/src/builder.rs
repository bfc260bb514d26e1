//! The builder of functions: each method appends a statement to the innermost open block.
//!
//! A host `for` unrolls, [`Builder::repeat`] emits a loop. Closures open the blocks of the structured control
//! flow, so each block is also closed.

mod atomic;
mod bulk;
mod mbarrier;
mod stated;
mod tensor;
mod tensor_map;
mod warp;

pub use atomic::Location;
pub use bulk::BulkLoad;
pub use tensor::TensorLoad;
pub use tensor_map::{MapChange, MapPlace};

use std::cell::RefCell;
use std::collections::BTreeMap;

use crate::abi::TENSOR_MAP_BYTES;
use crate::function::{Function, Region, Statement};
use crate::inst::{Address, BinaryOp, CompareOp, Inst, Operand, Reg, Special};
use crate::name::Name;
use crate::param::{Param, ParamKind};
use crate::site::SourceSite;
use crate::target::Target;
use crate::types::{Integer, Number, Scalar, Space, Type};
use crate::value::{Source, Value, Var};
use crate::verify::Violation;

/// The name, target and launch shape of a function.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The entry's name: a C identifier.
    pub name: String,
    /// The instruction set.
    pub target: Target,
    /// The number of threads per CTA (one-dimensional), a multiple of 32.
    pub threads: u32,
    /// Bytes of dynamic shared memory per CTA.
    pub shared_bytes: u32,
    /// CTAs per cluster along x, y and z; all 1 without clusters.
    pub cluster: [u32; 3],
}

/// A function under construction.
#[derive(Debug)]
pub struct Builder {
    state: RefCell<State>,
}

#[derive(Debug, Default)]
struct State {
    params: Vec<Param>,
    /// What the program has of each parameter.
    loaded_as: Vec<Type>,
    /// Of each open block, the parameters that were loaded in it, and what holds them.
    loaded: Vec<Vec<(u32, Operand)>>,
    registers: Vec<Type>,
    /// The open blocks, innermost last.
    blocks: Vec<Vec<Statement>>,
    refusals: Vec<Violation>,
    /// The line that statements are attributed to, within [`Builder::for_caller`].
    site: Option<SourceSite>,
    regions: Vec<Region>,
    ordered_sums: bool,
    resident: u32,
    /// Registers that hold addresses in dynamic shared memory, with the offset of each in bytes.
    shared: BTreeMap<Reg, u32>,
}

/// The operands of several values.
fn operands<'f, T: Scalar>(values: impl IntoIterator<Item = Value<'f, T>>) -> Vec<Operand> {
    values.into_iter().map(Value::operand).collect()
}

impl Function {
    /// Builds a function: `body` is called once with the builder.
    pub fn build(entry: Entry, body: impl FnOnce(&Builder)) -> Self {
        let state = State { blocks: vec![Vec::new()], loaded: vec![Vec::new()], ..State::default() };
        let builder = Builder { state: RefCell::new(state) };
        body(&builder);
        let mut state = builder.state.into_inner();
        let Entry { name, target, threads, shared_bytes, cluster } = entry;
        let body = state.blocks.pop().unwrap_or_default();
        Self {
            name,
            target,
            params: state.params,
            registers: state.registers,
            refusals: state.refusals,
            regions: state.regions,
            ordered_sums: state.ordered_sums,
            resident: state.resident.max(1),
            names: Vec::new(),
            variables: Vec::new(),
            block: [threads, 1, 1],
            static_shared: 0,
            shared_bytes,
            local_bytes: 0,
            cluster,
            body,
        }
    }
}

impl Builder {
    // ---- registers, parameters, constants ----

    /// A new register of type `ty`, not written yet.
    pub fn register(&self, ty: Type) -> Reg {
        let mut state = self.state.borrow_mut();
        state.registers.push(ty);
        Reg(u32::try_from(state.registers.len() - 1).unwrap_or(u32::MAX))
    }

    pub(crate) fn push(&self, statement: Statement) {
        if let Some(block) = self.state.borrow_mut().blocks.last_mut() {
            block.push(statement);
        }
    }

    /// Appends an instruction without checks. Prefer the typed methods.
    #[track_caller]
    pub fn emit(&self, inst: Inst) {
        let site = self.site();
        self.push(Statement::Inst { inst, site });
    }

    // ---- whose line reports name ----

    /// The line to which the next statement is attributed: that of [`for_caller`](Self::for_caller) if there
    /// is one, else the caller's.
    #[track_caller]
    fn site(&self) -> SourceSite {
        let here = SourceSite::caller();
        self.state.borrow().site.clone().unwrap_or(here)
    }

    /// Attributes the statements that `body` emits to the caller of this function, and so to the caller of
    /// the function marked `#[track_caller]` that calls this one. A part of a library uses it where it emits
    /// from closures, whose own lines reports would name otherwise. The outermost call holds.
    #[track_caller]
    pub fn for_caller<R>(&self, body: impl FnOnce() -> R) -> R {
        let site = self.site();
        self.attributed(Some(site), body)
    }

    /// Ends [`for_caller`](Self::for_caller) for `body`: code that the caller has passed in, whose lines are
    /// its own.
    pub fn of_caller<R>(&self, body: impl FnOnce() -> R) -> R {
        self.attributed(None, body)
    }

    fn attributed<R>(&self, site: Option<SourceSite>, body: impl FnOnce() -> R) -> R {
        let outer = core::mem::replace(&mut self.state.borrow_mut().site, site);
        let result = body();
        self.state.borrow_mut().site = outer;
        result
    }

    /// Appends an instruction that writes one new register.
    #[track_caller]
    pub(crate) fn define<T: Scalar>(&self, inst: impl FnOnce(Reg) -> Inst) -> Value<'_, T> {
        let dst = self.register(T::TYPE);
        self.emit(inst(dst));
        Value::new(self, Operand::Reg(dst))
    }

    /// Declares the next kernel parameter. [`parameter`](Self::parameter) gives it as a value of type `ty`: that of the parameter, or
    /// for a `u32` the predicate that it is not 0, or its bits as `s32`. A tensor map is an address.
    pub fn declare(&self, param: Param, ty: Type) {
        let mut state = self.state.borrow_mut();
        state.params.push(param);
        state.loaded_as.push(ty);
    }

    /// The parameter that was declared with this name: a scalar's value, or a tensor map's generic address. It is loaded where it is
    /// asked for first, and once more in blocks where that load is not seen. If there is none, or one of another type, the function is illegal.
    #[track_caller]
    pub fn parameter<T: Scalar>(&self, name: &str) -> Value<'_, T> {
        let state = self.state.borrow();
        let index = state.params.iter().position(|param| param.name == name);
        let found = index.map(|index| (u32::try_from(index).unwrap_or(u32::MAX), state.loaded_as[index]));
        drop(state);
        match found {
            Some((param, ty)) if ty == T::TYPE => Value::new(self, self.loaded(param, ty)),
            Some((_, ty)) => {
                self.absent(&format!("the parameter `{name}` is of {ty}, {} was needed", T::TYPE))
            }
            None => self.absent(&format!("no parameter `{name}` is declared")),
        }
    }

    /// Loads all parameters here, in order.
    #[track_caller]
    pub fn load_parameters(&self) {
        let types = self.state.borrow().loaded_as.clone();
        (0..).zip(types).for_each(|(param, ty)| _ = self.loaded(param, ty));
    }

    /// What holds a parameter, which is loaded if it is not there yet.
    #[track_caller]
    fn loaded(&self, param: u32, ty: Type) -> Operand {
        let state = self.state.borrow();
        let known = state.loaded.iter().flatten().find(|(known, _)| *known == param).map(|known| known.1);
        let kind = state.params.get(param as usize).map(|param| param.kind);
        drop(state);
        if let Some(operand) = known {
            return operand;
        }
        const { assert!(TENSOR_MAP_BYTES == 128) };
        let operand = match (kind, ty) {
            (Some(ParamKind::TensorMap), _) => self
                .define::<u64>(|dst| Inst::ParamAddress { generic: true, dst, param, offset: 0 })
                .operand(),
            (Some(ParamKind::Scalar(Type::U32)), Type::Pred) => {
                self.param_value::<u32>(param).differs_from(0).operand()
            }
            (Some(ParamKind::Scalar(Type::U32)), Type::S32) => {
                self.param_value::<u32>(param).bits_as::<i32>().operand()
            }
            _ => {
                let dst = self.register(ty);
                self.emit(Inst::LoadParam { ty, dst: vec![dst], param, offset: 0 });
                Operand::Reg(dst)
            }
        };
        if let Some(block) = self.state.borrow_mut().loaded.last_mut() {
            block.push((param, operand));
        }
        operand
    }

    #[track_caller]
    fn param_value<T: Scalar>(&self, param: u32) -> Value<'_, T> {
        self.define(|dst| Inst::LoadParam { ty: T::TYPE, dst: vec![dst], param, offset: 0 })
    }

    /// A value of a function that is illegal.
    #[track_caller]
    fn absent<T: Scalar>(&self, reason: &str) -> Value<'_, T> {
        self.refuse(reason);
        Value::new(self, Operand::Reg(self.register(T::TYPE)))
    }

    #[track_caller]
    fn declared<T: Scalar>(&self, name: Name, kind: ParamKind, number: bool) -> Value<'_, T> {
        self.declare(Param { name, kind, number }, T::TYPE);
        let param = u32::try_from(self.state.borrow().params.len() - 1).unwrap_or(u32::MAX);
        Value::new(self, self.loaded(param, T::TYPE))
    }

    /// Declares the next kernel parameter and loads it. A `u64` parameter is an address in global memory; for
    /// other 64-bit numbers use [`number`](Self::number).
    #[track_caller]
    pub fn param<T: Scalar>(&self, name: impl Into<Name>) -> Value<'_, T> {
        self.declared(name.into(), ParamKind::Scalar(T::TYPE), false)
    }

    /// As [`param`](Self::param), for a `u64` that is not an address: a leading dimension, a count, a seed.
    #[track_caller]
    pub fn number<T: Scalar>(&self, name: impl Into<Name>) -> Value<'_, T> {
        self.declared(name.into(), ParamKind::Scalar(T::TYPE), true)
    }

    /// Declares the next kernel parameter as a tensor map of [`TENSOR_MAP_BYTES`] bytes, and returns its
    /// generic address.
    #[track_caller]
    pub fn tensor_map(&self, name: impl Into<Name>) -> Value<'_, u64> {
        self.declared(name.into(), ParamKind::TensorMap, false)
    }

    /// Makes the function illegal. The verifier reports `reason` as a violation.
    #[track_caller]
    pub fn refuse(&self, reason: &str) {
        let violation = Violation { site: Some(self.site()), message: reason.to_owned() };
        self.state.borrow_mut().refusals.push(violation);
    }

    /// A constant.
    pub fn constant<T: Scalar>(&self, value: T) -> Value<'_, T> {
        Value::new(self, Operand::Imm(value.to_bits64()))
    }

    /// A new variable with an initial value.
    #[track_caller]
    pub fn variable<'f, T: Scalar>(&'f self, value: impl Source<'f, T>) -> Var<'f, T> {
        let var = self.uninitialised();
        var.set(value);
        var
    }

    /// A new variable without an initial value. It must be written before it is read; for accumulators.
    pub fn uninitialised<T: Scalar>(&self) -> Var<'_, T> {
        Var::new(self, self.register(T::TYPE))
    }

    /// Reads a special register.
    #[track_caller]
    pub fn special(&self, special: Special) -> Value<'_, u32> {
        self.define(|dst| Inst::ReadSpecial { dst, special })
    }

    /// The shared address at which dynamic shared memory begins.
    #[track_caller]
    pub fn shared_base(&self) -> Value<'_, u32> {
        let base = self.define(|dst| Inst::SharedBase { dst, offset: 0 });
        self.note_shared(base.operand(), 0);
        base
    }

    /// Notes that a register holds the address of this offset in dynamic shared memory.
    fn note_shared(&self, address: Operand, offset: u32) {
        if let Operand::Reg(register) = address {
            self.state.borrow_mut().shared.insert(register, offset);
        }
    }

    /// The offset in dynamic shared memory of an address: [`shared_base`](Self::shared_base), or a constant
    /// number of bytes after it. `None` for other addresses.
    fn shared_offset(&self, address: Operand) -> Option<u32> {
        match address {
            Operand::Reg(register) => self.state.borrow().shared.get(&register).copied(),
            Operand::Imm(_) => None,
        }
    }

    // ---- control flow ----

    fn block(&self, body: impl FnOnce()) -> Vec<Statement> {
        self.open();
        body();
        self.close()
    }

    // Apart from the generic function `block`, so that they are compiled once.
    fn open(&self) {
        let mut state = self.state.borrow_mut();
        state.blocks.push(Vec::new());
        state.loaded.push(Vec::new());
    }

    fn close(&self) -> Vec<Statement> {
        let mut state = self.state.borrow_mut();
        state.loaded.pop();
        state.blocks.pop().unwrap_or_default()
    }

    /// Runs `then` in the threads where `cond` holds.
    #[track_caller]
    pub fn if_(&self, cond: Value<'_, bool>, then: impl FnOnce()) {
        self.if_else(cond, then, || ());
    }

    /// Runs `then` in the threads where `cond` holds and `otherwise` in the others.
    #[track_caller]
    pub fn if_else(&self, cond: Value<'_, bool>, then: impl FnOnce(), otherwise: impl FnOnce()) {
        let site = self.site();
        match cond.operand() {
            Operand::Imm(0) => otherwise(),
            Operand::Imm(_) => then(),
            cond @ Operand::Reg(_) => {
                let then = self.block(then);
                let otherwise = self.block(otherwise);
                self.push(Statement::If { cond, then, otherwise, site });
            }
        }
    }

    /// Emits a loop that only [`Builder::break_if`] leaves.
    #[track_caller]
    pub fn loop_(&self, body: impl FnOnce()) {
        let site = self.site();
        let body = self.block(body);
        self.push(Statement::Loop { body, site });
    }

    /// Leaves the innermost loop in the threads where `cond` holds.
    #[track_caller]
    pub fn break_if(&self, cond: Value<'_, bool>) {
        let site = self.site();
        self.push(Statement::Break { cond: cond.operand(), site });
    }

    /// Emits a loop that runs while `cond` holds.
    #[track_caller]
    pub fn while_<'f>(&'f self, cond: impl FnOnce() -> Value<'f, bool>, body: impl FnOnce()) {
        let site = self.site();
        let body = self.block(|| {
            let cond = cond();
            let stop = self.attributed(Some(site.clone()), || !cond);
            self.push(Statement::Break { cond: stop.operand(), site: site.clone() });
            body();
        });
        self.push(Statement::Loop { body, site });
    }

    /// Emits a loop over `start..end`.
    #[track_caller]
    pub fn repeat_from<'f, T: Integer + From<u8>>(
        &'f self,
        start: impl Source<'f, T>,
        end: Value<'f, T>,
        body: impl FnOnce(Value<'f, T>),
    ) {
        let (site, index) = (self.site(), self.variable(start));
        self.while_(
            || self.attributed(Some(site.clone()), || index.get().less_than(end)),
            || {
                body(index.get());
                self.attributed(Some(site.clone()), || index.set(index.get() + T::from(1)));
            },
        );
    }

    /// Emits a loop over `0..count`.
    #[track_caller]
    pub fn repeat<'f, T: Integer + From<u8>>(&'f self, count: Value<'f, T>, body: impl FnOnce(Value<'f, T>)) {
        self.repeat_from(T::from(0), count, body);
    }

    /// Names a part of the program: a warp role or a phase. The name appears in the emulator's reports and as
    /// a comment in PTX.
    pub fn scope(&self, name: impl Into<Name>, body: impl FnOnce()) {
        let body = self.block(body);
        self.push(Statement::Scope { name: name.into(), body });
    }

    // ---- arithmetic that has no operator ----

    #[track_caller]
    pub(crate) fn compare<T: Number>(&self, op: CompareOp, a: Operand, b: Operand) -> Value<'_, bool> {
        match crate::fold::compare(op, T::TYPE, a, b) {
            Some(known) => self.constant(known),
            None => self.define(|dst| Inst::Compare { op, ty: T::TYPE, dst, a, b }),
        }
    }

    #[track_caller]
    pub(crate) fn binary<T: Scalar>(&self, op: BinaryOp, a: Operand, b: Operand) -> Value<'_, T> {
        let ty = T::TYPE;
        match crate::fold::binary(op, ty, a, b) {
            crate::fold::Folded::Operand(operand) => Value::new(self, operand),
            crate::fold::Folded::Cheaper(op, a, imm) => {
                self.define(|dst| Inst::Binary { op, ty, dst, a, b: Operand::Imm(imm) })
            }
            crate::fold::Folded::No => {
                let value = self.define(|dst| Inst::Binary { op, ty, dst, a, b });
                if let (BinaryOp::Add, Operand::Imm(bytes), Some(offset)) = (op, b, self.shared_offset(a)) {
                    self.note_shared(value.operand(), offset.wrapping_add(bytes as u32));
                }
                value
            }
        }
    }

    /// Rounds two floats to `T` (`f16` or `bf16`), to nearest even, and packs them into one 32-bit register.
    #[track_caller]
    pub fn pack<'f, T: Scalar>(&'f self, low: Value<'f, f32>, high: Value<'f, f32>) -> Value<'f, u32> {
        self.define(|dst| Inst::Pack { ty: T::TYPE, dst, low: low.operand(), high: high.operand() })
    }

    /// The two 16-bit halves of a 32-bit register, low first.
    #[track_caller]
    pub fn unpack<'f, T: Scalar>(&'f self, value: Value<'f, u32>) -> [Value<'f, T>; 2] {
        let (low, high) = (self.register(T::TYPE), self.register(T::TYPE));
        self.emit(Inst::Unpack { low, high, src: value.operand() });
        [low, high].map(|reg| Value::new(self, Operand::Reg(reg)))
    }

    /// The value that lane `lane` of the warp holds.
    #[track_caller]
    pub fn shuffle<'f, T: Scalar>(&'f self, value: Value<'f, T>, lane: impl Source<'f, u32>) -> Value<'f, T> {
        let lane = lane.operand();
        self.define(|dst| Inst::ShuffleIndex { dst, src: value.operand(), lane })
    }

    /// The value that lane `own ^ mask` of the warp holds.
    #[track_caller]
    pub fn shuffle_xor<'f, T: Scalar>(&'f self, value: Value<'f, T>, mask: u32) -> Value<'f, T> {
        self.define(|dst| Inst::ShuffleXor { dst, src: value.operand(), mask })
    }

    /// `elect.sync`: true in exactly one lane of the warp, which must be converged.
    #[track_caller]
    pub fn elect(&self) -> Value<'_, bool> {
        self.define(|dst| Inst::Elect { dst })
    }

    /// The warp's index in its CTA. It goes through a shuffle, so that the compiler knows it to be uniform in
    /// the warp.
    #[track_caller]
    pub fn warp_index(&self) -> Value<'_, u32> {
        let warp = self.special(Special::ThreadX) / 32;
        self.shuffle(warp, 0)
    }

    // ---- memory ----

    /// Loads from global memory at `address + offset` bytes.
    #[track_caller]
    pub fn load_global<'f, T: Scalar>(&'f self, address: Value<'f, u64>, offset: i32) -> Value<'f, T> {
        let [value] = self.load_global_vector(address, offset);
        value
    }

    /// Loads `N` (1, 2 or 4) consecutive elements from global memory.
    #[track_caller]
    pub fn load_global_vector<'f, T: Scalar, const N: usize>(
        &'f self,
        address: Value<'f, u64>,
        offset: i32,
    ) -> [Value<'f, T>; N] {
        self.load(Space::Global, address.operand(), offset)
    }

    /// Loads `N` (1, 2 or 4) consecutive elements from the CTA's shared memory.
    #[track_caller]
    pub fn load_shared_vector<'f, T: Scalar, const N: usize>(
        &'f self,
        address: Value<'f, u32>,
        offset: i32,
    ) -> [Value<'f, T>; N] {
        self.load(Space::Shared, address.operand(), offset)
    }

    /// Loads `N` (1, 2 or 4) consecutive elements from the shared memory of any CTA of the cluster
    /// (`.shared::cluster`). [`map_shared`](Self::map_shared) gives the address.
    #[track_caller]
    pub fn load_cluster<'f, T: Scalar, const N: usize>(
        &'f self,
        address: Value<'f, u32>,
        offset: i32,
    ) -> [Value<'f, T>; N] {
        self.load(Space::SharedCluster, address.operand(), offset)
    }

    /// Stores `N` (1, 2 or 4) consecutive elements to global memory.
    #[track_caller]
    pub fn store_global<'f, T: Scalar, const N: usize>(
        &'f self,
        address: Value<'f, u64>,
        offset: i32,
        values: [Value<'f, T>; N],
    ) {
        self.store(Space::Global, address.operand(), offset, values);
    }

    /// Stores `N` (1, 2 or 4) consecutive elements to the CTA's shared memory.
    #[track_caller]
    pub fn store_shared<'f, T: Scalar, const N: usize>(
        &'f self,
        address: Value<'f, u32>,
        offset: i32,
        values: [Value<'f, T>; N],
    ) {
        self.store(Space::Shared, address.operand(), offset, values);
    }

    #[track_caller]
    fn load<T: Scalar, const N: usize>(&self, space: Space, base: Operand, offset: i32) -> [Value<'_, T>; N] {
        let dst: [Reg; N] = core::array::from_fn(|_| self.register(T::TYPE));
        self.emit(Inst::Load { space, ty: T::TYPE, dst: dst.to_vec(), address: Address { base, offset } });
        dst.map(|reg| Value::new(self, Operand::Reg(reg)))
    }

    #[track_caller]
    fn store<T: Scalar, const N: usize>(
        &self,
        space: Space,
        base: Operand,
        offset: i32,
        values: [Value<'_, T>; N],
    ) {
        let (src, address) = (operands(values), Address { base, offset });
        self.emit(Inst::Store { space, ty: T::TYPE, src, address });
    }
}
