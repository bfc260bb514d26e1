//! Operations on mbarriers.

use super::super::error::Read;
use super::super::syntax::OperandKind;
use super::Translator;
use super::form::Form;
use crate::inst::{
    Arrival, Inst, MbarrierArrive, MbarrierOrder, MbarrierPhase, MbarrierTest, Operand, Scope,
};
use crate::types::{Space, Type};

const SHARED: [(&str, Space); 3] =
    [("shared", Space::Shared), ("shared::cta", Space::Shared), ("shared::cluster", Space::SharedCluster)];

impl<'t> Translator<'_, 't> {
    /// `mbarrier.<operation>`.
    pub(super) fn mbarrier(&mut self, form: &mut Form<'_, 't>) -> Read<()> {
        let operation = form.left().first().copied().unwrap_or("");
        form.first(operation);
        form.ignore(&["b64"]);
        let space = form.choose(&SHARED);
        match operation {
            "init" => {
                let barrier = self.at_shared(form, space)?;
                let count = self.src(form, Type::U32)?;
                self.emit(Inst::MbarrierInit { barrier, count });
            }
            "inval" => {
                let barrier = self.at_shared(form, space)?;
                self.emit(Inst::MbarrierInvalidate { barrier });
            }
            "arrive" | "arrive_drop" => return self.arrival(operation == "arrive_drop", space, form),
            "expect_tx" | "complete_tx" => {
                form.takes("relaxed");
                let scope = Self::mbarrier_scope(form);
                let barrier = self.at_shared(form, space)?;
                let bytes = self.src(form, Type::U32)?;
                let space = space.unwrap_or(Space::Shared);
                let complete = operation == "complete_tx";
                self.emit(Inst::MbarrierTransact { complete, barrier, space, bytes, scope });
            }
            "test_wait" | "try_wait" => return self.test(operation == "try_wait", space, form),
            "pending_count" => {
                let dst = self.dst(form, Type::U32)?;
                let state = self.src(form, Type::U64)?;
                self.emit(Inst::MbarrierPending { dst, state });
            }
            _ => return form.wrong("this operation on an mbarrier is not read"),
        }
        Ok(())
    }

    fn mbarrier_scope(form: &mut Form<'_, 't>) -> Scope {
        form.choose(&[("cta", Scope::Cta), ("cluster", Scope::Cluster)]).unwrap_or(Scope::Cta)
    }

    /// The ordering of an operation; PTX's default is that of the CTA.
    fn mbarrier_order(form: &mut Form<'_, 't>, sync: &str) -> MbarrierOrder {
        let relaxed = form.takes("relaxed");
        form.takes(sync);
        let scope = Self::mbarrier_scope(form);
        if relaxed { MbarrierOrder::Relaxed(scope) } else { MbarrierOrder::Sync(scope) }
    }

    fn arrival(&mut self, drop: bool, space: Option<Space>, form: &mut Form<'_, 't>) -> Read<()> {
        let (expect, silent) = (form.takes("expect_tx"), form.takes("noComplete"));
        let order = Self::mbarrier_order(form, "release");
        // Without a result, the address stands first.
        let state = match form.peek().map(|word| &word.kind) {
            Some(OperandKind::Address { .. }) => None,
            Some(OperandKind::Name("_")) => form.operand().map(|_| None)?,
            _ => Some(self.dst(form, Type::U64)?),
        };
        let barrier = self.at_shared(form, space)?;
        let number = if form.more() { self.src(form, Type::U32)? } else { Operand::Imm(1) };
        let arrival = match (expect, silent) {
            (true, _) => Arrival::Expect(number),
            (false, true) => Arrival::NoComplete(number),
            (false, false) => Arrival::Count(number),
        };
        let space = space.unwrap_or(Space::Shared);
        self.emit(Inst::MbarrierArrive(MbarrierArrive { barrier, space, arrival, drop, state, order }));
        Ok(())
    }

    /// `test_wait` and `try_wait`. For how long the latter waits is a hint.
    fn test(&mut self, patient: bool, space: Option<Space>, form: &mut Form<'_, 't>) -> Read<()> {
        let parity = form.takes("parity");
        let order = Self::mbarrier_order(form, "acquire");
        if space == Some(Space::SharedCluster) {
            return form.wrong("waits are for mbarriers of the own CTA");
        }
        let dst = self.dst(form, Type::Pred)?;
        let barrier = self.at_shared(form, space)?;
        let phase = if parity {
            MbarrierPhase::Parity(self.src(form, Type::U32)?)
        } else {
            MbarrierPhase::State(self.src(form, Type::U64)?)
        };
        if patient && form.more() {
            self.src(form, Type::U32)?;
        }
        self.emit(Inst::MbarrierTest(MbarrierTest { dst, barrier, phase, patient, order }));
        Ok(())
    }
}
