//! The check of all memory that a call accesses, as its kernel visits it.

use collective::MatrixRef;

use crate::error::LaunchError;
use crate::kernel::Kernel;
use crate::matrix_rule::{MatrixRule, within};
use crate::operands::{Extents, Memory};
use crate::overlap::check_apart;

/// Checks all memory that a call of a kernel accesses: addresses, leading dimensions, distances and ends, and that nothing
/// else shares memory with what is written ([`check_apart`]). `alignment` is what a
/// piece of memory must begin at multiples of, in bytes.
///
/// # Errors
/// Those of [`MatrixRule::check`] and [`MatrixRule::batch`], of the first piece that is wrong, and of [`check_apart`].
pub fn check_accessed<C: Clone>(
    kernel: &(impl Kernel<C> + ?Sized),
    call: &C,
    alignment: impl Fn(&Extents) -> u64,
) -> Result<(), LaunchError> {
    let mut result = Ok(());
    kernel.visit(&mut call.clone(), &mut |Memory { name, address, extents, .. }: Memory<'_>| {
        let Extents { length, lines, ld, count, stride, .. } = extents;
        if result.is_err() || extents.bytes() == 0 {
            return;
        }
        let rule = MatrixRule::of(name, &extents, alignment(&extents));
        let matrix = MatrixRef { address: *address, ld, stride };
        let checked = if lines == 1 && ld == length {
            // A line has no pitch.
            rule.begins(*address).and_then(|()| within(name, *address, extents.bytes().into()))
        } else {
            rule.check(matrix)
        };
        result = checked.and_then(|()| rule.batch(count, matrix)).map(drop);
    });
    result?;
    check_apart(kernel, call)
}
