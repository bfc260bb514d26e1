//! Mainloops whose type is known: arguments of their own, checked and stated.

use core::any::{Any, type_name};

use collective::operands::{Legal, MainloopArguments, OwnSite, Visit};
use collective::{Mainloop, Matrix, Plan};

use crate::error::LaunchError;

/// Checks arguments of a mainloop's own, the default ones if there are none, for its operands; `None` if the mainloop takes
/// arguments of another type.
type Check = fn(&Plan, Option<&dyn Any>, [Matrix; 2]) -> Option<Result<(), LaunchError>>;

/// The mainloop's type, for a kernel that was made from a type.
#[derive(Clone)]
pub(crate) struct MainloopType {
    pub(crate) check: Check,
    /// Visits the default arguments.
    pub(crate) state: fn(&OwnSite<'_>, &mut dyn Visit),
}

impl MainloopType {
    pub(crate) fn of<M: Mainloop>() -> Self {
        Self {
            check: |plan, own, operands| match own {
                None => Some(checked::<M>(plan, M::Arguments::default(), operands)),
                Some(own) => own.downcast_ref().cloned().map(|own| checked::<M>(plan, own, operands)),
            },
            state: |of, visit| M::Arguments::default().visit(of, visit),
        }
    }
}

fn checked<M: Mainloop>(plan: &Plan, mut own: M::Arguments, [a, b]: [Matrix; 2]) -> Result<(), LaunchError> {
    let [m, n] = plan.oriented([a.mn, b.mn]);
    let legal = M::check(&own, a, b).and_then(|()| {
        let of = OwnSite { problem: [m, n, a.k], plan: None, launched: false };
        Legal::check(|visit| own.visit(&of, visit)).map_err(|error| error.to_string())
    });
    legal.map_err(|reason| LaunchError::Mainloop {
        mainloop: M::emitter().name(&plan.mainloop),
        arguments: type_name::<M::Arguments>(),
        reason,
    })
}
