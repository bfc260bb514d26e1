//! A mainloop as a value: what kernels keep of its type.

use core::any::{Any, type_name};
use core::fmt;

use ptx::Builder;

use super::{DeviceMainloop, Mainloop, MainloopSite};
use crate::operand::Matrix;
use crate::operands::{Legal, OwnSite, Visit};
use crate::plan::{MainloopSpec, Plan};

/// Checks arguments for a site and its operands. `None` if the mainloop takes arguments of another type; without any, the default ones are
/// checked.
type Check = fn(Option<&dyn Any>, &OwnSite<'_>, [Matrix; 2]) -> Option<Result<(), String>>;

/// A [`Mainloop`] as a value.
#[derive(Clone, Copy)]
pub struct AnyMainloop {
    name: fn(&MainloopSpec) -> String,
    built_in: bool,
    state: fn(&MainloopSite<'_>, &mut dyn Visit),
    device: for<'f> fn(&'f Builder, &Plan) -> DeviceMainloop<'f>,
    visit: fn(Option<&mut dyn Any>, &OwnSite<'_>, &mut dyn Visit),
    check: Check,
    arguments: fn() -> &'static str,
}

impl fmt::Debug for AnyMainloop {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AnyMainloop").field("built_in", &self.built_in).finish_non_exhaustive()
    }
}

impl AnyMainloop {
    /// The value of a type.
    pub fn of<M: Mainloop>() -> Self {
        Self {
            name: |spec| {
                let [m, n, k] = spec.tile;
                format!("{}_{m}x{n}x{k}", M::NAME)
            },
            built_in: false,
            state: M::state,
            device: M::device,
            visit: |own, of, visit| match own.and_then(|own| own.downcast_mut::<M::Arguments>()) {
                Some(own) => M::visit(own, of, visit),
                None => M::visit(&mut M::Arguments::default(), of, visit),
            },
            check: |own, of, operands| match own {
                None => Some(checked::<M>(M::Arguments::default(), of, operands)),
                Some(own) => {
                    own.downcast_ref().map(|own: &M::Arguments| checked::<M>(own.clone(), of, operands))
                }
            },
            arguments: type_name::<M::Arguments>,
        }
    }

    /// A mainloop of this crate, which takes no arguments and which a spec describes completely.
    pub(super) const fn built_in(
        name: fn(&MainloopSpec) -> String,
        state: fn(&MainloopSite<'_>, &mut dyn Visit),
        device: for<'f> fn(&'f Builder, &Plan) -> DeviceMainloop<'f>,
    ) -> Self {
        Self {
            name,
            built_in: true,
            state,
            device,
            visit: |_, _, _| {},
            check: |own, _, _| own.is_none_or(|own| own.is::<()>()).then_some(Ok(())),
            arguments: type_name::<()>,
        }
    }

    /// An identifier for kernel names.
    pub fn name(&self, spec: &MainloopSpec) -> String {
        (self.name)(spec)
    }

    /// Whether the spec describes the mainloop completely: true for the mainloops of this crate.
    pub const fn is_built_in(&self) -> bool {
        self.built_in
    }

    /// See [`Mainloop::state`].
    pub fn state(&self, of: &MainloopSite<'_>, visit: &mut dyn Visit) {
        (self.state)(of, visit);
    }

    /// See [`Mainloop::device`].
    pub fn device<'f>(&self, f: &'f Builder, plan: &Plan) -> DeviceMainloop<'f> {
        (self.device)(f, plan)
    }

    /// See [`Mainloop::visit`]. Without arguments, and with those of another mainloop, the default ones are visited.
    pub fn visit(&self, own: Option<&mut dyn Any>, of: &OwnSite<'_>, visit: &mut dyn Visit) {
        (self.visit)(own, of, visit);
    }

    /// Checks arguments, without any the default ones, for a kernel's operands A and B. `None` if the mainloop takes arguments of another
    /// type.
    pub fn check(
        &self,
        own: Option<&dyn Any>,
        of: &OwnSite<'_>,
        operands: [Matrix; 2],
    ) -> Option<Result<(), String>> {
        (self.check)(own, of, operands)
    }

    /// The name of the arguments' type.
    pub fn arguments(&self) -> &'static str {
        (self.arguments)()
    }
}

fn checked<M: Mainloop>(mut own: M::Arguments, of: &OwnSite<'_>, [a, b]: [Matrix; 2]) -> Result<(), String> {
    M::check(&own, a, b)?;
    Legal::check(|visit| M::visit(&mut own, of, visit)).map_err(|error| error.to_string())
}
