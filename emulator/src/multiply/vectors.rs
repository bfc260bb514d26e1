//! Work compiled for each of the vector units that the host may have.

/// Work on vectors of `W` elements of 32 bits.
pub(super) trait Vectors: Sized {
    /// Mark it `#[inline(always)]`, with loops in place of closures: then it is compiled once for each vector unit.
    fn run<const W: usize>(self);
}

/// Does the work on the widest vectors that the host has.
pub(super) fn dispatch(work: impl Vectors) {
    #[cfg(target_arch = "x86_64")]
    if is_x86_feature_detected!("avx2") {
        return on_avx(work);
    }
    work.run::<4>();
}

/// On a host with AVX2.
#[cfg(target_arch = "x86_64")]
#[expect(unsafe_code, reason = "calls of functions that are compiled for more than the crate's instructions")]
fn on_avx(work: impl Vectors) {
    #[target_feature(enable = "avx2")]
    fn of_256_bits(work: impl Vectors) {
        work.run::<8>();
    }

    #[target_feature(enable = "avx512f")]
    fn of_512_bits(work: impl Vectors) {
        work.run::<16>();
    }

    if is_x86_feature_detected!("avx512f") {
        // SAFETY: the host has AVX-512.
        unsafe { of_512_bits(work) }
    } else {
        // SAFETY: the caller has found AVX2.
        unsafe { of_256_bits(work) }
    }
}
