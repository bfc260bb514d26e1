//! A thread's numbers in memory by fours, each of which follows those of the 127 threads after it: a warp reads and writes 512 bytes at a time.

use ptx::{Builder, Value, Var};

/// Bytes from four numbers of a thread to its next four.
const APART: u32 = 128 * 16;

/// Stores a thread's numbers. Its first four begin at `own`.
pub fn store_fours<'f>(f: &'f Builder, own: Value<'f, u32>, numbers: &[Var<'f, f32>]) {
    for (i, four) in (0..).zip(numbers.chunks_exact(4)) {
        let values = [four[0], four[1], four[2], four[3]].map(|number| number.get());
        f.store_shared(own, (i * APART).cast_signed(), values);
    }
}

/// Loads what belongs to a thread's numbers from device memory, where it is as in shared memory. The first four begin at `own`.
pub fn load_fours<'f>(
    f: &'f Builder,
    own: Value<'f, u64>,
    numbers: &[Var<'f, f32>],
    take: impl Fn(Var<'f, f32>, Value<'f, f32>),
) {
    for (i, four) in (0..).zip(numbers.chunks_exact(4)) {
        let loaded = f.load_global_vector::<f32, 4>(own, (i * APART).cast_signed());
        four.iter().zip(loaded).for_each(|(&number, value)| take(number, value));
    }
}

/// What each CTA of a cluster has [stored](store_fours) for a thread at the same place of its shared memory. All have met since then, and meet
/// again before one of them exits.
#[derive(Clone, Debug)]
pub struct ClusterFours<'f> {
    f: &'f Builder,
    of_ranks: Vec<Value<'f, u32>>,
}

impl<'f> ClusterFours<'f> {
    /// Those of the CTAs with the first `ranks` ranks, which begin at `own`.
    pub fn new(f: &'f Builder, own: Value<'f, u32>, ranks: u32) -> Self {
        Self { f, of_ranks: (0..ranks).map(|rank| f.map_shared(own, rank)).collect() }
    }

    /// Their sums in the order of the ranks: `count` fours from four `first` on.
    pub fn sums(&self, first: u32, count: u32) -> Vec<[Value<'f, f32>; 4]> {
        let four = |i: u32| {
            let at = |of: &Value<'f, u32>| self.f.load_cluster::<f32, 4>(*of, (i * APART).cast_signed());
            let mut of_ranks = self.of_ranks.iter().map(at);
            let first = of_ranks.next().unwrap_or([self.f.constant(0.0); 4]);
            of_ranks.fold(first, |sums, more| core::array::from_fn(|i| sums[i] + more[i]))
        };
        (first..first + count).map(four).collect()
    }
}
