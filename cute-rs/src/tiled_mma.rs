//! Matrix multiplies by groups of threads: which thread holds which elements of a tile of A, B and C.

use crate::algebra::Tiler;
use crate::error::LayoutError;
use crate::int_tuple::IntTuple;
use crate::layout::Layout;
use crate::partition::{Partition, Pattern};
use crate::thread_value::ThreadValue;

/// One instruction, `C (M x N) += A (M x K) * B (N x K)`, and the elements of A, B and C that each of its
/// threads holds.
///
/// An operand in shared memory belongs to no thread. Its layout has stride 0 along threads, and all elements
/// as values.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct MmaAtom {
    a: ThreadValue,
    b: ThreadValue,
    c: ThreadValue,
}

/// A matrix of a multiply: an operand or the accumulator.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Operand {
    /// A, M x K.
    A,
    /// B, N x K.
    B,
    /// C, M x N.
    C,
}

impl Operand {
    /// Which of M, N and K its two modes are.
    const fn modes(self) -> [usize; 2] {
        match self {
            Self::A => [0, 2],
            Self::B => [1, 2],
            Self::C => [0, 1],
        }
    }
}

impl MmaAtom {
    /// Creates an instruction from the thread-value layouts of A, B and C.
    ///
    /// # Errors
    /// [`LayoutError::Multiply`] unless the tiles are `M x K`, `N x K` and `M x N`, and all have the same
    /// number of threads.
    pub const fn new(a: ThreadValue, b: ThreadValue, c: ThreadValue) -> Result<Self, LayoutError> {
        let ((m, k), (n, other_k), (other_m, other_n)) = (a.tile(), b.tile(), c.tile());
        let threads = c.layout().mode(0).size();
        let facts = [
            ("M of A and C", m, other_m),
            ("N of B and C", n, other_n),
            ("K of A and B", k, other_k),
            ("threads of A and C", a.layout().mode(0).size(), threads),
            ("threads of B and C", b.layout().mode(0).size(), threads),
        ];
        each!(i, 0..facts.len(), {
            let (name, first, second) = facts[i];
            if first != second {
                return Err(LayoutError::Multiply { name, first, second });
            }
        });
        Ok(Self { a, b, c })
    }

    /// The extents M, N and K.
    pub const fn shape(&self) -> [i64; 3] {
        let ((m, n), (_, k)) = (self.c.tile(), self.a.tile());
        [m, n, k]
    }

    /// Number of threads that execute the instruction together.
    pub const fn threads(&self) -> i64 {
        self.c.layout().mode(0).size()
    }

    /// The elements of a matrix that each thread holds.
    pub const fn operand(&self, operand: Operand) -> ThreadValue {
        match operand {
            Operand::A => self.a,
            Operand::B => self.b,
            Operand::C => self.c,
        }
    }
}

/// Adjacent instructions: groups of threads that each execute their own instruction and together multiply a
/// tile.
///
/// There are `groups` of threads along M, N and K. Group `(i,j,l)` executes the instruction at `(i,j,l)`,
/// then the instructions one whole tile further, until the matrix is covered. A *permutation* of a mode
/// renames the mode's elements first: element `x` is then element `permutation(x)` of the matrix.
///
/// ```
/// # use cute_rs::{CoordLayout, IntTuple, Layout, Operand, TiledMma, atom::wgmma};
/// // Two warpgroups share 256 rows: the first has rows 0 to 127, the second has the others.
/// let rows = Layout::flat(&[64, 2, 2], &[1, 128, 64])?;
/// let mma = TiledMma::new(wgmma::atom(64, 16)?, [2, 1, 1])?.permuted([Some(rows), None, None])?;
/// assert_eq!((mma.tile_shape(), mma.threads()), ([256, 64, 16], 256));
///
/// // Which elements of C does thread 37 of the second warpgroup have?
/// let parts = mma.partition(Operand::C, &CoordLayout::identity(IntTuple::from((256, 64)))?)?;
/// let (part, start) = parts.at(&[Some(37), Some(1), Some(0), Some(0)])?;
/// assert_eq!(start.to_string(), "(145,2)");
/// assert_eq!(part.to_string(), "((2,2,8),2,1):((1@1,8@0,8@1),64@0,0)");
/// assert_eq!(mma.fragment(Operand::C, [256, 64])?.to_string(), "((2,2,8),2,1):((1,2,4),32,64)");
/// # Ok::<(), cute_rs::LayoutError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct TiledMma {
    atom: MmaAtom,
    groups: [i64; 3],
    permutations: [Option<Layout>; 3],
}

impl TiledMma {
    /// Creates a multiply by `groups[i]` groups of threads along M, N and K, each with its own instruction.
    ///
    /// # Errors
    /// [`LayoutError::Extent`] for less than one group.
    pub const fn new(atom: MmaAtom, groups: [i64; 3]) -> Result<Self, LayoutError> {
        each!(i, 0..3, {
            if groups[i] < 1 {
                return Err(LayoutError::Extent { shape: IntTuple::int(groups[i]) });
            }
        });
        Ok(Self { atom, groups, permutations: [None; 3] })
    }

    /// The same multiply with the elements of M, N and K renamed: element `x` is element `permutation(x)` of
    /// the matrix.
    ///
    /// # Errors
    /// [`LayoutError::NotCompact`] if a layout is not a permutation; [`LayoutError::ShapeDivisibility`] if
    /// its size is not a multiple of the extent that the groups multiply together.
    pub const fn permuted(mut self, permutations: [Option<Layout>; 3]) -> Result<Self, LayoutError> {
        each!(i, 0..3, {
            if let Some(permutation) = permutations[i] {
                let unit = self.atom.shape()[i] * self.groups[i];
                if permutation.size() % unit != 0 {
                    return Err(LayoutError::ShapeDivisibility { offered: unit, wanted: permutation.size() });
                }
                match ok!(permutation.right_inverse()) {
                    inverse if inverse.size() == permutation.size() => {}
                    inverse => {
                        return Err(LayoutError::NotCompact {
                            size: permutation.size(),
                            run: inverse.size(),
                        });
                    }
                }
            }
        });
        self.permutations = permutations;
        Ok(self)
    }

    /// The instruction.
    pub const fn atom(&self) -> &MmaAtom {
        &self.atom
    }

    /// Number of threads of all groups.
    pub const fn threads(&self) -> i64 {
        self.atom.threads() * self.groups[0] * self.groups[1] * self.groups[2]
    }

    /// M, N and K of the tile that all groups multiply before they repeat: one instruction per group, or a
    /// whole permutation.
    pub const fn tile_shape(&self) -> [i64; 3] {
        let mut shape = self.atom.shape();
        each!(i, 0..3, {
            shape[i] = match self.permutations[i] {
                Some(permutation) => permutation.size(),
                None => shape[i] * self.groups[i],
            };
        });
        shape
    }

    /// Partitions a matrix by what each thread holds. Part `(thread, i, j, l)` belongs to thread `thread` of
    /// group `(i,j,l)`. The part is `(value, rest, rest)`: the thread's values in every instruction that the
    /// group executes. Threads of all groups count in that order, so a single integer also selects a part.
    ///
    /// `part(v, (r0,r1)) = L(operand(thread, v) + instruction extent * (group + groups * r))`, mode by mode
    ///
    /// # Errors
    /// [`LayoutError::Rank`] unless the layout has two modes; those of [`Layout::inner_partition`] and
    /// [`Layout::composition`].
    pub fn partition<L: Pattern>(&self, operand: Operand, layout: &L) -> Result<Partition<L>, LayoutError> {
        Ok(self.parts(operand, layout.function())?.of(layout))
    }

    /// [`partition`](Self::partition) of a plain layout, as a `const fn`.
    ///
    /// # Errors
    /// Those of [`partition`](Self::partition).
    pub const fn parts(&self, operand: Operand, layout: &Layout) -> Result<Partition<Layout>, LayoutError> {
        if layout.rank() != 2 {
            return Err(LayoutError::Rank { needed: 2, given: layout.rank() });
        }
        let [first, second] = operand.modes();
        let renamed = Layout::concat(&[
            ok!(self.renamed(first, &layout.mode(0))),
            ok!(self.renamed(second, &layout.mode(1))),
        ]);
        let shape = self.atom.shape();
        let instructions =
            ok!(renamed).inner_partition(&Tiler::Shape(&ok!(IntTuple::flat(&[shape[first], shape[second]]))));
        let instructions = ok!(instructions);
        let owned = ok!(instructions.part().composition(&self.atom.operand(operand).layout()));
        let groups = instructions
            .starts()
            .outer_partition(&Tiler::Shape(&ok!(IntTuple::flat(&[self.groups[first], self.groups[second]]))));
        let groups = ok!(groups);
        // Groups along the mode that the matrix does not have share its elements.
        let mut starts = [owned.mode(0), Layout::EMPTY, Layout::EMPTY, Layout::EMPTY];
        each!(i, 0..3, {
            starts[i + 1] = if i == first {
                groups.starts().mode(0)
            } else if i == second {
                groups.starts().mode(1)
            } else {
                Layout::leaf(self.groups[i], 0)
            };
        });
        let rest = groups.part();
        let part = Layout::concat(&[owned.mode(1), rest.mode(0), rest.mode(1)]);
        Ok(Partition::new(ok!(part), ok!(Layout::concat(&starts))))
    }

    /// A mode of a matrix in the order of its permutation.
    const fn renamed(&self, mode: usize, layout: &Layout) -> Result<Layout, LayoutError> {
        match &self.permutations[mode] {
            Some(permutation) => layout.logical_divide(permutation),
            None => Ok(*layout),
        }
    }

    /// The layout of a thread's registers for its part of a matrix with these extents: the part's shape,
    /// column-major.
    ///
    /// # Errors
    /// Those of [`partition`](Self::partition).
    pub const fn fragment(&self, operand: Operand, extents: [i64; 2]) -> Result<Layout, LayoutError> {
        Layout::column_major(ok!(self.fragment_shape(operand, extents)))
    }

    /// The shape `(value, rest, rest)` of a thread's part of a matrix with these extents.
    ///
    /// # Errors
    /// Those of [`partition`](Self::partition).
    pub const fn fragment_shape(&self, operand: Operand, extents: [i64; 2]) -> Result<IntTuple, LayoutError> {
        let whole = Layout::column_major(ok!(IntTuple::flat(&extents)));
        Ok(ok!(self.parts(operand, &ok!(whole))).part().shape())
    }

    /// The elements that every thread of all groups holds of a matrix with these extents, as one thread-value
    /// layout.
    ///
    /// ```
    /// # use cute_rs::{Operand, TiledMma, atom::wgmma};
    /// let mma = TiledMma::new(wgmma::atom(16, 16)?, [2, 1, 1])?;
    /// assert_eq!(mma.thread_value(Operand::C, [128, 16])?.coord(128 + 37, 2), (64 + 17 + 8, 2));
    /// # Ok::<(), cute_rs::LayoutError>(())
    /// ```
    ///
    /// # Errors
    /// Those of [`partition`](Self::partition).
    pub const fn thread_value(
        &self,
        operand: Operand,
        extents: [i64; 2],
    ) -> Result<ThreadValue, LayoutError> {
        let whole = Layout::column_major(ok!(IntTuple::flat(&extents)));
        let parts = ok!(self.parts(operand, &ok!(whole)));
        let layout = ok!(Layout::concat(&[parts.starts(), parts.part()]));
        ThreadValue::new(layout, extents[0], extents[1])
    }
}
