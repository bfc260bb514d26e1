//! Mainloops whose type is known: their own arguments, checked, as values of the kernel's parameters.

use core::any::{TypeId, type_name};
use std::sync::{Arc, OnceLock};

use collective::tree::Path;
use collective::{Mainloop, Matrix};
use ptx::abi::Argument;

use crate::error::LaunchError;
use crate::gemm::AnyGemm;

/// Values of a mainloop's parameters for its operands.
type Operands = fn(&AnyGemm, [Matrix; 2], &Path<'_>) -> Result<Vec<Argument>, LaunchError>;

/// The mainloop's type, for a kernel that was made from a type.
#[derive(Clone)]
pub(crate) struct MainloopType {
    id: TypeId,
    /// Values of the mainloop's parameters with its default arguments.
    default: Operands,
    /// The name of the type of its own arguments.
    arguments: &'static str,
    /// Number of the mainloop's parameters, and of all parameters of the kernel, once they were counted.
    parameters: Arc<OnceLock<[usize; 2]>>,
}

impl MainloopType {
    pub(crate) fn of<M: Mainloop>() -> Self {
        Self {
            id: TypeId::of::<M>(),
            default: |kernel, operands, path| {
                kernel.operands_of::<M>(&M::Arguments::default(), operands, path)
            },
            arguments: type_name::<M::Arguments>(),
            parameters: Arc::default(),
        }
    }
}

impl AnyGemm {
    /// Values of the mainloop's parameters for these operands, with its default arguments.
    pub(crate) fn default_operands(
        &self,
        operands: [Matrix; 2],
        path: &Path<'_>,
    ) -> Result<Vec<Argument>, LaunchError> {
        match &self.mainloop_type {
            Some(known) => (known.default)(self, operands, path),
            // A built-in mainloop, which has no arguments of its own.
            None => Ok(self.mainloop.arguments(&self.plan, operands[0], operands[1])),
        }
    }

    /// Values of the mainloop's parameters for these operands, with arguments of its own. What memory they
    /// name is checked against `path`.
    pub(crate) fn operands_of<M: Mainloop>(
        &self,
        own: &M::Arguments,
        [a, b]: [Matrix; 2],
        path: &Path<'_>,
    ) -> Result<Vec<Argument>, LaunchError> {
        let mainloop = self.mainloop.name(&self.plan.mainloop);
        if self.mainloop_type.as_ref().is_none_or(|known| known.id != TypeId::of::<M>()) {
            return Err(LaunchError::OtherMainloop { mainloop, given: type_name::<M>() });
        }
        M::check(own, a, b)
            .and_then(|()| M::accesses(own, a, b, &path.then("mainloop")).map_err(|error| error.to_string()))
            .map_err(|reason| {
                let arguments = type_name::<M::Arguments>();
                LaunchError::Mainloop { mainloop, arguments, reason }
            })?;
        Ok(M::arguments(&self.plan, a, b, own))
    }

    /// Checks that the roles gave a value for every parameter that they declare, and no more: `operands` by
    /// the mainloop, `all` by all of them.
    ///
    /// The roles of a kernel that was made from a spec are built-in ones, which do.
    pub(crate) fn check_counts(&self, operands: usize, all: usize) -> Result<(), LaunchError> {
        let Some(MainloopType { arguments, parameters, .. }) = &self.mainloop_type else { return Ok(()) };
        let &[of_mainloop, of_kernel] = parameters.get_or_init(|| self.count_parameters());
        if operands != of_mainloop {
            let role = format!("mainloop `{}`", self.mainloop.name(&self.plan.mainloop));
            let own = Some(*arguments);
            return Err(LaunchError::Parameters { role, own, given: operands, declared: of_mainloop });
        }
        if all != of_kernel {
            let role =
                format!("epilogue `{}` or scheduler `{}`", self.epilogue.name(), self.scheduler.name());
            let [given, declared] = [all, of_kernel].map(|count| count - operands);
            return Err(LaunchError::Parameters { role, own: None, given, declared });
        }
        Ok(())
    }
}
