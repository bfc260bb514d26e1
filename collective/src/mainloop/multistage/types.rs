//! The two mainloops without `wgmma`, as types.

use core::marker::PhantomData;

use half::{bf16, f16};

use crate::element::{Element, Tf32};
use crate::operand::{Operand, Operands};
use crate::plan::{Atom, MmaKind, OperandSpec};

/// A mainloop with operand pair `O`, tile shape `T` and warp roles `R` that multiplies by `mma.sync`: the
/// multistage kernel of Ampere.
///
/// All warps copy by `cp.async`, some k-tiles ahead, and all multiply: `ldmatrix` loads fragments from the
/// stages into registers. `R` is [`Unspecialised`](crate::Unspecialised). Operands may be at any address.
/// Each warp of a warpgroup computes 16 rows of every 64. Warpgroups with several times 64 rows and up to 256
/// columns reuse what they load.
///
/// `wgmma` is faster. Use this kernel to compare with, to learn from, and for `f64`.
///
/// ```
/// use collective::{Epilogue, KMajor, LinearCombination, Mainloop, MmaSync, Operands, Plan, Tile, Unspecialised};
/// use half::bf16;
/// use typenum::{U2, U3, U64, U128, U256};
///
/// type M = MmaSync<Operands<KMajor<bf16>, KMajor<bf16>>, Tile<U256, U128, U64>, Unspecialised<U2, U3>>;
/// const PLAN: Plan = Plan::checked(M::SPEC, <LinearCombination<bf16> as Epilogue>::SPEC);
/// assert_eq!((PLAN.threads, PLAN.ring.stages), (256, 3));
/// ```
#[derive(Clone, Copy, Debug)]
pub struct MmaSync<O, T, R>(PhantomData<(O, T, R)>);

/// A mainloop with operand pair `O` of `f32`, tile shape `T` and warp roles `R` that multiplies by `fma`: the
/// last step of most worklogs on matrix multiplication without tensor cores.
///
/// Loading is that of [`MmaSync`]. Each thread computes a *register tile*: a quarter of the columns of two
/// rows of every 64 of its warpgroup. For a warpgroup with 192 rows and 64 columns these are 6 x 16 elements.
/// Each `fma` rounds once, in `f32`. NVIDIA specifies 67 TFLOP/s of it for an H100, and 494 of `tf32`, which
/// keeps 13 bits fewer of each element.
///
/// ```
/// use collective::{Epilogue, KMajor, LinearCombination, Mainloop, MnMajor, Operands, Plan, Simt, Tile, Unspecialised};
/// use typenum::{U2, U3, U16, U128};
///
/// type M = Simt<Operands<KMajor<f32>, MnMajor<f32>>, Tile<U128, U128, U16>, Unspecialised<U2, U3>>;
/// const PLAN: Plan = Plan::checked(M::SPEC, <LinearCombination<f32> as Epilogue>::SPEC);
/// assert_eq!(PLAN.registers.accumulators, 64);
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Simt<O, T, R>(PhantomData<(O, T, R)>);

/// Element types that `mma.sync` multiplies together.
#[diagnostic::on_unimplemented(
    message = "no `mma.sync` of this crate multiplies `{Self}` by `{Other}`",
    note = "A and B are both `bf16`, both `f16`, both `Tf32` or both `f64`, or each `i8` or `u8`"
)]
pub trait MmaSyncWith<Other: Element>: Element {}

impl MmaSyncWith<Self> for bf16 {}
impl MmaSyncWith<Self> for f16 {}
impl MmaSyncWith<Self> for Tf32 {}
impl MmaSyncWith<Self> for i8 {}
impl MmaSyncWith<u8> for i8 {}
impl MmaSyncWith<i8> for u8 {}
impl MmaSyncWith<Self> for u8 {}
impl MmaSyncWith<Self> for f64 {}

/// Operands of [`MmaSync`].
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a pair of operands that `mma.sync` multiplies",
    note = "write `Operands<A, B>` with A and B both of `bf16`, `f16`, `Tf32` or `f64`, or of 8-bit integers"
)]
pub trait MmaPair: 'static {
    /// A and B.
    const OPERANDS: [OperandSpec; 2];
    /// The multiply atom.
    const ATOM: Atom;
}

impl<A: Operand, B: Operand> MmaPair for Operands<A, B>
where
    A::Element: MmaSyncWith<B::Element>,
{
    const OPERANDS: [OperandSpec; 2] = [A::SPEC, B::SPEC];
    const ATOM: Atom = checked::<A, B>(MmaKind::MmaSync);
}

/// Operands of [`Simt`].
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a pair of operands that plain instructions multiply",
    note = "write `Operands<A, B>` with A and B of `f32`; tensor cores multiply other elements: `MmaSync` or `TmaWgmma`"
)]
pub trait SimtPair: 'static {
    /// A and B.
    const OPERANDS: [OperandSpec; 2];
    /// The multiply atom.
    const ATOM: Atom;
}

impl<A: Operand<Element = f32>, B: Operand<Element = f32>> SimtPair for Operands<A, B> {
    const OPERANDS: [OperandSpec; 2] = [A::SPEC, B::SPEC];
    const ATOM: Atom = checked::<A, B>(MmaKind::Simt);
}

/// The atom for element types that a trait has admitted.
const fn checked<A: Operand, B: Operand>(by: MmaKind) -> Atom {
    match by.atom(A::Element::FORMAT, B::Element::FORMAT) {
        Some(atom) => atom,
        None => panic!("the traits of elements admit pairs that have an instruction"),
    }
}
