//! Mainloops whose type is known: their own arguments, checked, as values of the kernel's parameters.

use core::any::{Any, type_name};
use std::sync::{Arc, OnceLock};

use collective::operands::{Legal, MainloopArguments};
use collective::{Mainloop, Matrix, Plan};
use ptx::abi::Argument;

use crate::error::LaunchError;

/// Values of a mainloop's parameters for its operands and for arguments of its own, the default ones if there are
/// none; `None` if the mainloop takes arguments of another type.
type Operands = fn(&Plan, Option<&dyn Any>, [Matrix; 2]) -> Option<Result<Vec<Argument>, LaunchError>>;

/// The mainloop's type, for a kernel that was made from a type.
#[derive(Clone)]
pub(crate) struct MainloopType {
    pub(crate) operands: Operands,
    /// The name of the type of its own arguments.
    pub(crate) arguments: &'static str,
    /// Number of the mainloop's parameters, and of all parameters of the kernel, once they were counted.
    pub(crate) parameters: Arc<OnceLock<[usize; 2]>>,
}

impl MainloopType {
    pub(crate) fn of<M: Mainloop>() -> Self {
        Self {
            operands: |plan, own, operands| match own {
                None => Some(operands_of::<M>(plan, M::Arguments::default(), operands)),
                Some(own) => own.downcast_ref().cloned().map(|own| operands_of::<M>(plan, own, operands)),
            },
            arguments: type_name::<M::Arguments>(),
            parameters: Arc::default(),
        }
    }
}

fn operands_of<M: Mainloop>(
    plan: &Plan,
    mut own: M::Arguments,
    [a, b]: [Matrix; 2],
) -> Result<Vec<Argument>, LaunchError> {
    let [m, n] = plan.oriented([a.mn, b.mn]);
    let legal = M::check(&own, a, b).and_then(|()| {
        Legal::check(|visit| own.visit([m, n, a.k], visit)).map_err(|error| error.to_string())
    });
    legal.map_err(|reason| LaunchError::Mainloop {
        mainloop: M::emitter().name(&plan.mainloop),
        arguments: type_name::<M::Arguments>(),
        reason,
    })?;
    Ok(M::arguments(plan, a, b, &own))
}
