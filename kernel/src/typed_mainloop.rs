//! Mainloops whose type is known: their own arguments, checked, as values of the kernel's parameters.

use core::any::{Any, type_name};
use std::sync::{Arc, OnceLock};

use collective::operands::{Legal, MainloopArguments};
use collective::{Mainloop, Matrix};
use ptx::abi::Argument;

use crate::error::LaunchError;
use crate::gemm::AnyGemm;

/// Values of a mainloop's parameters for its operands and for arguments of its own, the default ones if there are
/// none; `None` if the mainloop takes arguments of another type.
type Operands = fn(&AnyGemm, Option<&dyn Any>, [Matrix; 2]) -> Option<Result<Vec<Argument>, LaunchError>>;

/// The mainloop's type, for a kernel that was made from a type.
#[derive(Clone)]
pub(crate) struct MainloopType {
    operands: Operands,
    /// The name of the type of its own arguments.
    arguments: &'static str,
    /// Number of the mainloop's parameters, and of all parameters of the kernel, once they were counted.
    parameters: Arc<OnceLock<[usize; 2]>>,
}

impl MainloopType {
    pub(crate) fn of<M: Mainloop>() -> Self {
        Self {
            operands: |kernel, own, operands| match own {
                None => Some(kernel.operands_of::<M>(M::Arguments::default(), operands)),
                Some(own) => own.downcast_ref().cloned().map(|own| kernel.operands_of::<M>(own, operands)),
            },
            arguments: type_name::<M::Arguments>(),
            parameters: Arc::default(),
        }
    }
}

impl AnyGemm {
    /// Values of the mainloop's parameters for these operands, with its default arguments.
    pub(crate) fn default_operands(&self, operands: [Matrix; 2]) -> Result<Vec<Argument>, LaunchError> {
        let known = self.mainloop_type.as_ref();
        // A built-in mainloop has no arguments of its own.
        let built_in = || Ok(self.mainloop.arguments(&self.plan, operands[0], operands[1]));
        known.and_then(|known| (known.operands)(self, None, operands)).unwrap_or_else(built_in)
    }

    /// The same with arguments of the mainloop's own.
    pub(crate) fn operands_with<A: MainloopArguments>(
        &self,
        own: &A,
        operands: [Matrix; 2],
    ) -> Result<Vec<Argument>, LaunchError> {
        let known = self.mainloop_type.as_ref();
        known.and_then(|known| (known.operands)(self, Some(own), operands)).unwrap_or_else(|| {
            let mainloop = self.mainloop.name(&self.plan.mainloop);
            Err(LaunchError::OtherMainloop { mainloop, given: type_name::<A>() })
        })
    }

    fn operands_of<M: Mainloop>(
        &self,
        mut own: M::Arguments,
        [a, b]: [Matrix; 2],
    ) -> Result<Vec<Argument>, LaunchError> {
        let [m, n] = self.plan.oriented([a.mn, b.mn]);
        let legal = M::check(&own, a, b).and_then(|()| {
            Legal::check(|visit| own.visit([m, n, a.k], visit)).map_err(|error| error.to_string())
        });
        legal.map_err(|reason| LaunchError::Mainloop {
            mainloop: self.mainloop.name(&self.plan.mainloop),
            arguments: type_name::<M::Arguments>(),
            reason,
        })?;
        Ok(M::arguments(&self.plan, a, b, &own))
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
