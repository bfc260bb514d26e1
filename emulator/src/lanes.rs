//! The 32 lanes of a warp: masks of them, and a value of each.

/// Every lane.
pub(crate) const ALL: u32 = u32::MAX;

/// One value per lane.
pub(crate) type Lanes<T> = [T; 32];

/// Extends the hash `all` of a sequence of numbers by one more number.
pub(crate) fn mix(all: u64, value: u64) -> u64 {
    (all ^ value).wrapping_mul(0x9E37_79B9_7F4A_7C15).rotate_left(29)
}

/// The lanes of a mask, lowest first.
#[inline]
pub(crate) fn lanes(mask: u32) -> impl Iterator<Item = usize> + Clone {
    let mut rest = mask;
    core::iter::from_fn(move || {
        let lane = (rest != 0).then_some(rest.trailing_zeros() as usize);
        rest &= rest.wrapping_sub(1);
        lane
    })
}

// What is done to each lane is a loop over an array that is there: of that the compiler makes vector instructions, of
// `array::map` and `array::from_fn` 32 scalar ones.

/// A function of each lane.
#[inline(always)]
pub(crate) fn map<T: Copy, U: Copy + Default>(a: &Lanes<T>, f: impl Fn(T) -> U) -> Lanes<U> {
    let mut all = [U::default(); 32];
    for (to, &a) in all.iter_mut().zip(a) {
        *to = f(a);
    }
    all
}

/// A function of each lane of two values.
#[inline(always)]
pub(crate) fn map2<T: Copy, S: Copy, U: Copy + Default>(
    a: &Lanes<T>,
    b: &Lanes<S>,
    f: impl Fn(T, S) -> U,
) -> Lanes<U> {
    let mut all = [U::default(); 32];
    for ((to, &a), &b) in all.iter_mut().zip(a).zip(b) {
        *to = f(a, b);
    }
    all
}

/// The same for a function that takes long: lanes that have what the lane before them has get its result.
#[inline]
pub(crate) fn map2_runs<T: Copy + PartialEq, S: Copy + PartialEq, U: Copy>(
    a: &Lanes<T>,
    b: &Lanes<S>,
    f: impl Fn(T, S) -> U,
) -> Lanes<U> {
    let mut all = [f(a[0], b[0]); 32];
    for lane in 1..32 {
        let same = a[lane] == a[lane - 1] && b[lane] == b[lane - 1];
        all[lane] = if same { all[lane - 1] } else { f(a[lane], b[lane]) };
    }
    all
}

/// The lanes for which a relation holds, as a mask.
#[inline(always)]
pub(crate) fn mask2<T: Copy>(a: &Lanes<T>, b: &Lanes<T>, holds: impl Fn(T, T) -> bool) -> u32 {
    let flags = map2(a, b, |a, b| u8::from(holds(a, b)));
    let (bytes, _) = flags.as_chunks::<8>();
    // The product moves bit 8i to bit 56 + i.
    let gathered = |eight: [u8; 8]| u64::from_le_bytes(eight).wrapping_mul(0x0102_0408_1020_4080) >> 56;
    bytes.iter().rev().fold(0, |mask, &eight| mask << 8 | gathered(eight) as u32)
}

/// Replaces the lanes of a mask.
#[inline]
pub(crate) fn merge<T: Copy>(into: &mut Lanes<T>, values: &Lanes<T>, mask: u32) {
    if mask == ALL {
        *into = *values;
        return;
    }
    for lane in lanes(mask) {
        into[lane] = values[lane];
    }
}

/// Of each lane in the mask the value of `a`, of the others that of `b`.
pub(crate) fn choose<T: Copy>(mask: u32, a: &Lanes<T>, b: &Lanes<T>) -> Lanes<T> {
    let mut all = *b;
    merge(&mut all, a, mask);
    all
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn masks() {
        assert_eq!(lanes(0b1010).collect::<Vec<_>>(), [1, 3]);
        assert_eq!(lanes(ALL).count(), 32);
        let (a, b): (Lanes<u32>, Lanes<u32>) = (core::array::from_fn(|lane| lane as u32), [9; 32]);
        assert_eq!(mask2(&a, &b, |a, b| a < b), 0x1FF);
        assert_eq!(mask2(&a, &b, |a, b| a % b == 4), 1 << 4 | 1 << 13 | 1 << 22 | 1 << 31);
        let chosen = choose(1 << 31 | 6, &a, &b);
        assert_eq!((chosen[0], chosen[1], chosen[2], chosen[3], chosen[31]), (9, 1, 2, 9, 31));
    }

    #[test]
    fn runs_of_equal_lanes_are_computed_once() {
        let calls = core::cell::Cell::new(0);
        let a: Lanes<u32> = core::array::from_fn(|lane| lane as u32 / 16);
        let b: Lanes<u32> = core::array::from_fn(|lane| lane as u32 / 8);
        let sums = map2_runs(&a, &b, |a, b| {
            calls.set(calls.get() + 1);
            a + b
        });
        assert_eq!((sums, calls.get()), (map2(&a, &b, |a, b| a + b), 4));
    }
}
