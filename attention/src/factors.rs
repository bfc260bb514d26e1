//! The factors of operands in 8 bits: what a call says of them, and how a program finds them.

use kernel::operands::{Contents, Extents, Visit};
use ptx::{Builder, Value};

/// Of Q, K and V: the memory, and the parameter with its address.
const ALL: [[&str; 2]; 3] =
    [["the factors of Q", "q_factors"], ["the factors of K", "k_factors"], ["the factors of V", "v_factors"]];

/// The factors of Q, K and V in 8 bits: what their elements are multiplied by.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Factors {
    /// Device addresses of the factors of Q, of K and of V, `f32`, those of Q and K above zero; 0 if all are 1.
    pub addresses: [u64; 3],
    /// Whether each head of K and V, with the heads of Q that share it, has its own; if not, there is one for all.
    pub per_head: bool,
}

impl Factors {
    /// A factor for each head of K and V, of Q, of K and of V; 0 if all are 1.
    pub fn of_heads(addresses: [u64; 3]) -> Self {
        Self { addresses, per_head: true }
    }

    /// Visits the factors of this number of heads of K and V, if these are read, and states the parameters.
    pub(crate) fn visit(&mut self, heads: u32, is_read: bool, visit: &mut dyn Visit) {
        visit.form(self.per_head.into());
        let all = if self.per_head { heads.into() } else { 1 };
        for ([name, parameter], address) in ALL.into_iter().zip(&mut self.addresses) {
            let given = *address != 0;
            visit.form(given.into());
            let extents = Extents::line(32, if given && is_read { all } else { 0 });
            visit.input(parameter, (name, address), extents, Contents::Scales);
        }
        visit.number("factors_per_head", Some(u32::from(self.per_head)));
    }
}

/// The factors on the device.
#[derive(Clone, Copy)]
pub(crate) struct DeviceFactors<'f> {
    /// Their addresses; 0 if they are 1.
    addresses: [Value<'f, u64>; 3],
    /// 1 if each head has its own, else 0.
    per_head: Value<'f, u32>,
}

impl<'f> DeviceFactors<'f> {
    /// Finds the parameters.
    pub(crate) fn of(f: &'f Builder) -> Self {
        let addresses = ALL.map(|[_, parameter]| f.parameter(parameter));
        Self { addresses, per_head: f.parameter("factors_per_head") }
    }

    /// The factors of products and of values for a head of K and V, as bits; 1 if there are none.
    pub(crate) fn of_head(&self, head: Value<'f, u32>) -> [Value<'f, u32>; 2] {
        let f = head.builder();
        let [q, k, v] = self.addresses.map(|address| {
            let factor = f.variable(1f32.to_bits());
            let own = address + (head * self.per_head).mul_wide(4u32);
            f.if_(address.differs_from(0), || factor.set(f.load_global::<u32>(own, 0)));
            factor.get()
        });
        [(q.bits_as::<f32>() * k.bits_as::<f32>()).bits_as(), v]
    }
}
