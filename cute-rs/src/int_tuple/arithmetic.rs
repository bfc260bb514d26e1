//! Arithmetic on the leaves of integer tuples.
//!
//! A sum or product that does not fit into 64 bits is an error. So nothing here panics, and no result is
//! wrong.

use super::{IntTuple, MAX_LEAVES};
use crate::error::LayoutError;

/// The greatest common divisor, 0 or more, of two numbers above `i64::MIN`.
pub(crate) const fn gcd(a: i64, b: i64) -> i64 {
    unsigned_gcd(a.unsigned_abs(), b.unsigned_abs()).cast_signed()
}

/// The greatest common divisor.
pub(super) const fn unsigned_gcd(mut a: u64, mut b: u64) -> u64 {
    while b != 0 {
        (a, b) = (b, a % b);
    }
    a
}

/// `a / b`, rounded up, for `b > 0`.
pub(crate) const fn div_up(a: i64, b: i64) -> i64 {
    a / b + if a % b > 0 { 1 } else { 0 }
}

/// The number as an `i64`, if it fits.
const fn narrow(number: i128) -> Option<i64> {
    if number < i64::MIN as i128 || number > i64::MAX as i128 { None } else { Some(number as i64) }
}

/// An operation on a pair of leaves.
#[derive(Clone, Copy)]
enum Pairwise {
    CeilDiv,
    RoundUp,
    Scale,
    Add,
    Max,
    Min,
}

impl Pairwise {
    /// `None` if the result does not fit into 64 bits. The divisor must be 1 or more.
    const fn of(self, a: i64, b: i64) -> Option<i64> {
        match self {
            Self::CeilDiv => Some(div_up(a, b)),
            Self::RoundUp => div_up(a, b).checked_mul(b),
            Self::Scale => a.checked_mul(b),
            Self::Add => a.checked_add(b),
            Self::Max => Some(if a > b { a } else { b }),
            Self::Min => Some(if a < b { a } else { b }),
        }
    }

    const fn divides(self) -> bool {
        matches!(self, Self::CeilDiv | Self::RoundUp)
    }

    /// The name of the result, for errors.
    const fn name(self) -> &'static str {
        match self {
            Self::CeilDiv => "quotient",
            Self::RoundUp => "rounded multiple",
            Self::Scale => "elementwise product",
            Self::Add => "elementwise sum",
            Self::Max => "maximum",
            Self::Min => "minimum",
        }
    }
}

impl IntTuple {
    /// The product of each mode: `(2,(3,4))` gives `(2,12)`. An integer stays as it is.
    ///
    /// `R_i = product(T_i)`
    ///
    /// ```
    /// # use cute_rs::IntTuple;
    /// assert_eq!(IntTuple::from((2, (3, 4))).product_each()?.to_string(), "(2,12)");
    /// # Ok::<(), cute_rs::LayoutError>(())
    /// ```
    ///
    /// # Errors
    /// [`LayoutError::Wide`] if a product does not fit into 64 bits.
    pub const fn product_each(&self) -> Result<Self, LayoutError> {
        if self.is_int() {
            return Ok(*self);
        }
        let mut products = Self::EMPTY;
        let mut i = 0;
        while i < self.rank() {
            products.leaves[i] = ok!(self.mode(i).product());
            i += 1;
        }
        products.len = i as u8;
        Ok(products.enclosed())
    }

    /// The products at the leaves of `profile`: `(2,((3,4),5))` with profile `(0,(0,0))` gives `(2,(12,5))`.
    ///
    /// ```
    /// # use cute_rs::IntTuple;
    /// let profile = IntTuple::from((0, (0, 0)));
    /// assert_eq!(IntTuple::from((2, ((3, 4), 5))).product_like(&profile)?.to_string(), "(2,(12,5))");
    /// # Ok::<(), cute_rs::LayoutError>(())
    /// ```
    ///
    /// # Errors
    /// [`LayoutError::Profile`] unless `profile` has the nesting of the tuple or a coarser one;
    /// [`LayoutError::Wide`] if a product does not fit into 64 bits.
    pub const fn product_like(&self, profile: &Self) -> Result<Self, LayoutError> {
        if !profile.weakly_congruent(self) {
            return Err(LayoutError::Profile { tuple: *self, profile: *profile });
        }
        if self.is_empty() {
            return Ok(profile.filled(1));
        }
        // Each leaf of the profile takes leaves of the tuple until its parentheses are closed.
        let mut products = [1; MAX_LEAVES];
        let (mut i, mut from) = (0, 0);
        while i < profile.len() {
            // The number of parentheses of the tuple that belong to this leaf alone.
            let mut depth = self.opens[from] as i32 - profile.opens[i] as i32;
            let mut part = Self::EMPTY;
            loop {
                part.leaves[part.len as usize] = self.leaves[from];
                part.len += 1;
                depth -= self.closes[from] as i32;
                from += 1;
                if depth <= 0 || from == self.len() {
                    break;
                }
                depth += self.opens[from] as i32;
            }
            products[i] = match part.checked_product() {
                Some(product) => product,
                None => return Err(LayoutError::Wide { number: "product", tuple: *self, other: None }),
            };
            i += 1;
        }
        Ok(profile.with_leaves(&products))
    }

    /// The sum of all leaves.
    ///
    /// ```
    /// # use cute_rs::IntTuple;
    /// assert_eq!(IntTuple::from((2, (3, 4))).sum()?, 9);
    /// # Ok::<(), cute_rs::LayoutError>(())
    /// ```
    ///
    /// # Errors
    /// [`LayoutError::Wide`] if the sum does not fit into 64 bits.
    pub const fn sum(&self) -> Result<i64, LayoutError> {
        let mut sum: i128 = 0;
        each!(i, 0..self.len(), {
            sum += self.leaves[i] as i128;
        });
        match narrow(sum) {
            Some(sum) => Ok(sum),
            None => Err(LayoutError::Wide { number: "sum", tuple: *self, other: None }),
        }
    }

    /// The largest leaf; 0 for `()`.
    ///
    /// ```
    /// # use cute_rs::IntTuple;
    /// assert_eq!(IntTuple::from((2, (7, 4))).max(), 7);
    /// ```
    pub const fn max(&self) -> i64 {
        let mut max = self.leaf(0);
        each!(i, 1..self.len(), {
            if self.leaves[i] > max {
                max = self.leaves[i];
            }
        });
        max
    }

    /// The smallest leaf; 0 for `()`.
    ///
    /// ```
    /// # use cute_rs::IntTuple;
    /// assert_eq!(IntTuple::from((3, (7, 2))).min(), 2);
    /// ```
    pub const fn min(&self) -> i64 {
        let mut min = self.leaf(0);
        each!(i, 1..self.len(), {
            if self.leaves[i] < min {
                min = self.leaves[i];
            }
        });
        min
    }

    /// The greatest common divisor of all leaves, 0 or more.
    ///
    /// ```
    /// # use cute_rs::IntTuple;
    /// assert_eq!(IntTuple::from((12, (8, 20))).gcd()?, 4);
    /// # Ok::<(), cute_rs::LayoutError>(())
    /// ```
    ///
    /// # Errors
    /// [`LayoutError::Wide`] for 2^63: the result if a leaf is `i64::MIN` and all others are 0 or `i64::MIN`.
    pub const fn gcd(&self) -> Result<i64, LayoutError> {
        let mut all = 0;
        each!(i, 0..self.len(), {
            all = unsigned_gcd(all, self.leaves[i].unsigned_abs());
        });
        if all > i64::MAX.unsigned_abs() {
            let number = "greatest common divisor";
            return Err(LayoutError::Wide { number, tuple: *self, other: None });
        }
        Ok(all.cast_signed())
    }

    /// The least common multiple of all leaves, 0 or more.
    ///
    /// ```
    /// # use cute_rs::IntTuple;
    /// assert_eq!(IntTuple::from((4, (6, 10))).lcm()?, 60);
    /// # Ok::<(), cute_rs::LayoutError>(())
    /// ```
    ///
    /// # Errors
    /// [`LayoutError::Wide`] if the multiple does not fit into 64 bits.
    pub const fn lcm(&self) -> Result<i64, LayoutError> {
        // Products of two 64-bit numbers fit.
        let mut all: Option<u128> = Some(1);
        each!(i, 0..self.len(), {
            let leaf = self.leaves[i].unsigned_abs();
            all = match all {
                _ if leaf == 0 => return Ok(0),
                Some(all) if all <= i64::MAX as u128 => {
                    Some(all / unsigned_gcd(all as u64, leaf) as u128 * leaf as u128)
                }
                Some(_) | None => None,
            };
        });
        match all {
            Some(all) if all <= i64::MAX as u128 => Ok(all as i64),
            Some(_) | None => {
                Err(LayoutError::Wide { number: "least common multiple", tuple: *self, other: None })
            }
        }
    }

    /// The absolute value of each leaf.
    ///
    /// ```
    /// # use cute_rs::IntTuple;
    /// assert_eq!(IntTuple::from((-2, (3, -4))).abs()?.to_string(), "(2,(3,4))");
    /// # Ok::<(), cute_rs::LayoutError>(())
    /// ```
    ///
    /// # Errors
    /// [`LayoutError::Wide`] for `i64::MIN`.
    pub const fn abs(&self) -> Result<Self, LayoutError> {
        let mut leaves = self.leaves;
        each!(i, 0..self.len(), {
            leaves[i] = match leaves[i].checked_abs() {
                Some(leaf) => leaf,
                None => {
                    return Err(LayoutError::Wide { number: "absolute value", tuple: *self, other: None });
                }
            };
        });
        Ok(self.with_leaves(&leaves))
    }

    /// The sign of each leaf: -1, 0 or 1.
    ///
    /// ```
    /// # use cute_rs::IntTuple;
    /// assert_eq!(IntTuple::from((-2, (0, 4))).signum().to_string(), "(-1,(0,1))");
    /// ```
    pub const fn signum(&self) -> Self {
        let mut leaves = self.leaves;
        each!(i, 0..self.len(), {
            leaves[i] = leaves[i].signum();
        });
        self.with_leaves(&leaves)
    }

    /// `sum over leaves of a_i * b_i`.
    ///
    /// ```
    /// # use cute_rs::IntTuple;
    /// assert_eq!(IntTuple::from((2, (3, 4))).inner_product(&IntTuple::from((1, (10, 100))))?, 432);
    /// # Ok::<(), cute_rs::LayoutError>(())
    /// ```
    ///
    /// # Errors
    /// [`LayoutError::Profile`] if the nesting differs; [`LayoutError::Wide`] if the sum does not fit into 64
    /// bits, or an intermediate sum does not fit into 128 bits.
    pub const fn inner_product(&self, other: &Self) -> Result<i64, LayoutError> {
        if !self.congruent(other) {
            return Err(LayoutError::Profile { tuple: *self, profile: *other });
        }
        let mut sum: Option<i128> = Some(0);
        each!(i, 0..self.len(), {
            let product = self.leaves[i] as i128 * other.leaves[i] as i128;
            sum = match sum {
                Some(sum) => sum.checked_add(product),
                None => None,
            };
        });
        if let Some(sum) = sum
            && let Some(sum) = narrow(sum)
        {
            return Ok(sum);
        }
        Err(LayoutError::Wide { number: "inner product", tuple: *self, other: Some(*other) })
    }

    /// Multiplies leaf by leaf: `R_i = a_i * b_i`. Where `self` has an integer and `other` a tuple, `b_i` is
    /// the tuple's product.
    ///
    /// ```
    /// # use cute_rs::IntTuple;
    /// assert_eq!(IntTuple::from((2, 3)).elem_scale(&IntTuple::from((4, 5)))?.to_string(), "(8,15)");
    /// assert_eq!(IntTuple::from((2, 3)).elem_scale(&IntTuple::from((4, (5, 6))))?.to_string(), "(8,90)");
    /// # Ok::<(), cute_rs::LayoutError>(())
    /// ```
    ///
    /// # Errors
    /// [`LayoutError::Profile`] unless `other` has the nesting of `self` or a finer one;
    /// [`LayoutError::Wide`] if a product does not fit into 64 bits.
    pub const fn elem_scale(&self, other: &Self) -> Result<Self, LayoutError> {
        self.pairwise(&ok!(other.product_like(self)), Pairwise::Scale)
    }

    /// Adds leaf by leaf: `R_i = a_i + b_i`. Use it to move a coordinate `b` by a start `a`.
    ///
    /// ```
    /// # use cute_rs::IntTuple;
    /// assert_eq!(IntTuple::from((64, 32)).elem_add(&IntTuple::from((5, 6)))?.to_string(), "(69,38)");
    /// # Ok::<(), cute_rs::LayoutError>(())
    /// ```
    ///
    /// # Errors
    /// [`LayoutError::Profile`] if the nesting differs; [`LayoutError::Wide`] if a sum does not fit into 64
    /// bits.
    pub const fn elem_add(&self, other: &Self) -> Result<Self, LayoutError> {
        self.pairwise(other, Pairwise::Add)
    }

    /// The larger leaf of each pair: `R_i = max(a_i, b_i)`.
    ///
    /// ```
    /// # use cute_rs::IntTuple;
    /// assert_eq!(IntTuple::from((2, 8)).elem_max(&IntTuple::from((5, 6)))?.to_string(), "(5,8)");
    /// # Ok::<(), cute_rs::LayoutError>(())
    /// ```
    ///
    /// # Errors
    /// [`LayoutError::Profile`] if the nesting differs.
    pub const fn elem_max(&self, other: &Self) -> Result<Self, LayoutError> {
        self.pairwise(other, Pairwise::Max)
    }

    /// The smaller leaf of each pair: `R_i = min(a_i, b_i)`.
    ///
    /// ```
    /// # use cute_rs::IntTuple;
    /// assert_eq!(IntTuple::from((2, 8)).elem_min(&IntTuple::from((5, 6)))?.to_string(), "(2,6)");
    /// # Ok::<(), cute_rs::LayoutError>(())
    /// ```
    ///
    /// # Errors
    /// [`LayoutError::Profile`] if the nesting differs.
    pub const fn elem_min(&self, other: &Self) -> Result<Self, LayoutError> {
        self.pairwise(other, Pairwise::Min)
    }

    /// Divides and rounds up: `R_i = ceil(product(a_i) / b_i)`, at the leaves of the divisor. Modes without a
    /// divisor stay as they are. If the divisor is the shape of a tile, the result is the shape of the grid
    /// of tiles.
    ///
    /// ```
    /// # use cute_rs::IntTuple;
    /// let grid = IntTuple::from((1000, 512, 3)).ceil_div(&IntTuple::from((128, 256)))?;
    /// assert_eq!(grid.to_string(), "(8,2,3)");
    /// # Ok::<(), cute_rs::LayoutError>(())
    /// ```
    ///
    /// # Errors
    /// [`LayoutError::Profile`] if the divisor is finer than the tuple; [`LayoutError::Extent`] for a divisor
    /// below 1; [`LayoutError::Wide`] if a product does not fit into 64 bits.
    pub const fn ceil_div(&self, divisor: &Self) -> Result<Self, LayoutError> {
        self.padded_pairwise(divisor, Pairwise::CeilDiv)
    }

    /// Rounds up to multiples: `R_i = ceil(product(a_i) / b_i) * b_i`, at the leaves of the divisor. Modes
    /// without a divisor stay as they are.
    ///
    /// ```
    /// # use cute_rs::IntTuple;
    /// assert_eq!(IntTuple::from((1000, 512)).round_up(&IntTuple::from((128, 256)))?.to_string(), "(1024,512)");
    /// # Ok::<(), cute_rs::LayoutError>(())
    /// ```
    ///
    /// # Errors
    /// Those of [`ceil_div`](Self::ceil_div).
    pub const fn round_up(&self, divisor: &Self) -> Result<Self, LayoutError> {
        self.padded_pairwise(divisor, Pairwise::RoundUp)
    }

    /// The shape that remains after its leftmost elements are divided away. An integer divisor `b` is applied
    /// to the leaves from the left. Where `b` divides `a_i`, `R_i = a_i / b`. Where `a_i` divides `b`,
    /// `R_i = 1`, and `b / a_i` is applied to the next leaf. A tuple divides mode by mode.
    ///
    /// `product(R) = product(a) / product(b)` if the division is exact. If the divisor exceeds the last leaf
    /// it is applied to, only 1 is left: `product(R) = ceil(product(a) / product(b))`.
    ///
    /// ```
    /// # use cute_rs::IntTuple;
    /// let shape = IntTuple::from((3, 6, 2, 8));
    /// assert_eq!(shape.shape_div(&IntTuple::int(3))?.to_string(), "(1,6,2,8)");
    /// assert_eq!(shape.shape_div(&IntTuple::int(9))?.to_string(), "(1,2,2,8)");
    /// assert_eq!(shape.shape_div(&IntTuple::int(72))?.to_string(), "(1,1,1,4)");
    /// assert_eq!(IntTuple::from((8, 6)).shape_div(&IntTuple::from((4, 3)))?.to_string(), "(2,2)");
    /// # Ok::<(), cute_rs::LayoutError>(())
    /// ```
    ///
    /// # Errors
    /// [`LayoutError::Indivisible`] if neither number divides the other; [`LayoutError::Extent`] for a number
    /// below 1; [`LayoutError::Profile`] for a tuple with another nesting; [`LayoutError::Wide`] if the
    /// product of a divisor does not fit into 64 bits.
    pub const fn shape_div(&self, divisor: &Self) -> Result<Self, LayoutError> {
        let low = if self.min() < 1 { self } else { divisor };
        if low.min() < 1 && !low.is_empty() {
            return Err(LayoutError::Extent { shape: *low });
        }
        if !divisor.is_int() && !divisor.weakly_congruent(self) && !self.weakly_congruent(divisor) {
            return Err(LayoutError::Profile { tuple: *self, profile: *divisor });
        }
        self.divided(divisor)
    }

    const fn divided(&self, divisor: &Self) -> Result<Self, LayoutError> {
        if self.is_int() || divisor.is_int() {
            let mut quotients = self.leaves;
            let mut rest = ok!(divisor.product());
            each!(i, 0..self.len(), {
                let a = self.leaves[i];
                if a % rest == 0 {
                    (quotients[i], rest) = (a / rest, 1);
                } else if rest % a == 0 {
                    (quotients[i], rest) = (1, rest / a);
                } else {
                    return Err(LayoutError::Indivisible { shape: *self, extent: a, divisor: rest });
                }
            });
            return Ok(self.with_leaves(&quotients));
        }
        let mut quotients = Self::EMPTY;
        each!(i, 0..self.rank(), {
            ok!(quotients.extend(&ok!(self.mode(i).divided(&divisor.mode(i)))));
        });
        quotients.close()
    }

    /// The shape of the first `count` coordinates of a shape. `b`, which begins as `count`, is applied to the
    /// leaves from the left: `R_i = min(a_i, b)`, and `b / R_i` is applied to the next leaf. The result is
    /// what [`shape_div`](Self::shape_div) divides away.
    ///
    /// `product(R) = count`, and `R` refines `count`.
    ///
    /// ```
    /// # use cute_rs::IntTuple;
    /// let shape = IntTuple::from((3, 6, 2, 8));
    /// assert_eq!(shape.shape_mod(6)?.to_string(), "(3,2,1,1)");
    /// assert_eq!(shape.shape_mod(9)?.to_string(), "(3,3,1,1)");
    /// # Ok::<(), cute_rs::LayoutError>(())
    /// ```
    ///
    /// # Errors
    /// [`LayoutError::Indivisible`] if neither of a leaf and the rest of `count` divides the other, or if the
    /// shape has fewer than `count` elements; [`LayoutError::Extent`] for a number below 1.
    pub const fn shape_mod(&self, count: i64) -> Result<Self, LayoutError> {
        if count < 1 || self.min() < 1 && !self.is_empty() {
            return Err(LayoutError::Extent { shape: if count < 1 { Self::int(count) } else { *self } });
        }
        let mut taken = self.leaves;
        let mut rest = count;
        each!(i, 0..self.len(), {
            let a = self.leaves[i];
            if a % rest == 0 {
                (taken[i], rest) = (rest, 1);
            } else if rest % a == 0 {
                (taken[i], rest) = (a, rest / a);
            } else {
                return Err(LayoutError::Indivisible { shape: *self, extent: a, divisor: rest });
            }
        });
        if rest > 1 {
            return Err(LayoutError::Indivisible { shape: *self, extent: self.size(), divisor: count });
        }
        Ok(self.with_leaves(&taken))
    }

    const fn pairwise(&self, other: &Self, operation: Pairwise) -> Result<Self, LayoutError> {
        if !self.congruent(other) {
            return Err(LayoutError::Profile { tuple: *self, profile: *other });
        }
        let mut leaves = self.leaves;
        each!(i, 0..self.len(), {
            if operation.divides() && other.leaves[i] < 1 {
                return Err(LayoutError::Extent { shape: *other });
            }
            leaves[i] = match operation.of(leaves[i], other.leaves[i]) {
                Some(leaf) => leaf,
                None => {
                    let number = operation.name();
                    return Err(LayoutError::Wide { number, tuple: *self, other: Some(*other) });
                }
            };
        });
        Ok(self.with_leaves(&leaves))
    }

    /// The operation with a divisor of fewer or coarser modes.
    const fn padded_pairwise(&self, divisor: &Self, operation: Pairwise) -> Result<Self, LayoutError> {
        if divisor.is_int() {
            return Self::int(ok!(self.product())).pairwise(divisor, operation);
        }
        if self.is_int() || divisor.rank() > self.rank() {
            return Err(LayoutError::Profile { tuple: *self, profile: *divisor });
        }
        let mut result = Self::EMPTY;
        each!(i, 0..self.rank(), {
            let mode = self.mode(i);
            let mode = if i < divisor.rank() {
                ok!(mode.padded_pairwise(&divisor.mode(i), operation))
            } else {
                mode
            };
            ok!(result.extend(&mode));
        });
        result.close()
    }
}
