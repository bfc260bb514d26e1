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

/// A call that is a problem and the device addresses of the `N` pieces of its memory, for a kernel whose problem says all else of them.
///
/// ```
/// use kernel::Addressed;
/// use kernel::words::Sizes;
///
/// let call = Addressed { at: [0x1000, 0x2000], ..Addressed::of(Sizes([7, 264])) };
/// assert_eq!(call.problem.to_string(), "7x264");
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Addressed<P, const N: usize> {
    /// The problem.
    pub problem: P,
    /// The address of each piece.
    pub at: [u64; N],
}

impl<P, const N: usize> Addressed<P, N> {
    /// A call without memory.
    pub const fn of(problem: P) -> Self {
        Self { problem, at: [0; N] }
    }
}

/// The default problem, without memory.
impl<P: Default, const N: usize> Default for Addressed<P, N> {
    fn default() -> Self {
        Self::of(P::default())
    }
}

#[cfg(test)]
mod tests {
    use collective::operands::{Contents, Visit};
    use ptx::VerifyError;

    use super::*;
    use crate::{Launch, Program};

    /// A kernel that accesses some pieces of memory, and is never run.
    struct Accesses;

    impl Kernel<Vec<(u64, Extents)>> for Accesses {
        fn program(&self) -> Result<Program, VerifyError> {
            unreachable!("it is never run")
        }

        fn launch(&self, _call: &Vec<(u64, Extents)>, _resident: u32) -> Result<Option<Launch>, LaunchError> {
            Ok(None)
        }

        fn visit(&self, call: &mut Vec<(u64, Extents)>, visit: &mut dyn Visit) {
            for (address, extents) in call {
                let (extents, contents) = (*extents, Contents::Elements(2));
                visit.memory(Memory { name: "x", address, extents, contents, writes: false });
            }
        }
    }

    #[test]
    fn the_first_piece_that_is_wrong_is_told() {
        let name = "x";
        let line = Extents::line(16, 12);
        let matrix = Extents { bits: 16, length: 12, lines: 3, ld: 16, count: 1, stride: 0 };
        let several = Extents { count: 3, stride: 64, ..matrix };
        let end = |bytes: u64| 0u64.wrapping_sub(bytes);
        let past = |address, bytes| Err(LaunchError::End { name, address, bytes });
        for (why, pieces, wanted) in [
            ("nothing", vec![], Ok(())),
            ("a line has no pitch", vec![(0x1008, Extents::line(16, 13))], Ok(())),
            (
                "between two pieces of 8 bytes",
                vec![(0x1004, line)],
                Err(LaunchError::Address { name, address: 0x1004, alignment: 8 }),
            ),
            ("a line to the end", vec![(end(24), line)], Ok(())),
            ("a line behind it", vec![(end(16), line)], past(end(16), 24)),
            ("nothing is accessed", vec![(0, Extents { lines: 0, ..matrix })], Ok(())),
            ("a matrix to the end", vec![(end(2 * 32 + 24), matrix)], Ok(())),
            ("a matrix behind it", vec![(end(80), matrix)], past(end(80), 2 * 32 + 24)),
            (
                "rows that overlap",
                vec![(0x1000, Extents { ld: 8, ..matrix })],
                Err(LaunchError::ShortLd { name, ld: 8, needed: 12 }),
            ),
            ("several", vec![(0x1000, several)], Ok(())),
            (
                "several, between two pieces",
                vec![(0x1000, Extents { stride: 66, ..several })],
                Err(LaunchError::Distance { name, bytes: 132, alignment: 8 }),
            ),
            (
                "the first of two",
                vec![(0x1008, line), (0, matrix), (0x1004, line)],
                Err(LaunchError::Null { name }),
            ),
        ] {
            assert_eq!(check_accessed(&Accesses, &pieces, |_| 8), wanted, "{why}");
        }
    }
}
