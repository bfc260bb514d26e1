//! CTAs of a cluster that load for each other, and how consumers give their stages back.

use ptx::{Builder, Special, Value};

use crate::plan::Arrivals;

/// The position of a CTA in its cluster.
#[derive(Clone, Copy, Debug)]
pub struct ClusterPosition<'f> {
    /// Row of the cluster: which tile along M.
    pub m: Value<'f, u32>,
    /// Column of the cluster: which tile along N.
    pub n: Value<'f, u32>,
    shape: [u32; 2],
}

impl<'f> ClusterPosition<'f> {
    /// Position of the executing CTA in a cluster of `shape` CTAs along M and N: `rank = m + n * shape[0]`.
    #[track_caller]
    pub fn new(f: &'f Builder, shape: [u32; 2]) -> Self {
        if shape == [1, 1] {
            return Self { m: f.constant(0), n: f.constant(0), shape };
        }
        let rank = f.special(Special::ClusterRank);
        Self { m: rank % shape[0], n: rank / shape[0], shape }
    }

    /// Multicast mask, one bit per rank, of this CTA's row: the CTAs that share its A. `None` if the row has
    /// one CTA.
    #[track_caller]
    pub fn row_mask(&self) -> Option<Value<'f, u16>> {
        let [rows, columns] = self.shape;
        let row = (0..columns).fold(0u32, |mask, n| mask | 1 << (n * rows));
        let f = self.m.builder();
        f.for_caller(|| (columns > 1).then(|| (f.constant(row) << self.m).cast()))
    }

    /// Multicast mask, one bit per rank, of this CTA's column: the CTAs that share its B. `None` if the
    /// column has one CTA.
    #[track_caller]
    pub fn column_mask(&self) -> Option<Value<'f, u16>> {
        let [rows, _] = self.shape;
        let column = (1u32 << rows) - 1;
        let f = self.m.builder();
        f.for_caller(|| (rows > 1).then(|| (f.constant(column) << (self.n * rows)).cast()))
    }

    /// Rank of the `i`-th CTA that loads into this one: the column first, then the rest of the row.
    #[track_caller]
    fn supplier(&self, i: Value<'f, u32>) -> Value<'f, u32> {
        let [rows, columns] = self.shape;
        let in_column = i + self.n * rows;
        if columns == 1 {
            return in_column;
        }
        // The row without this CTA: columns 0.., skipping the own one.
        let other = i - rows;
        let one = i.builder().constant(1u32);
        let column = other + one.where_or(other.at_least(self.n), 0);
        in_column.where_or(i.less_than(rows), self.m + column * rows)
    }
}

/// How a consumer warpgroup releases a stage: each of a few threads signals one CTA that loads into this one.
#[derive(Clone, Copy, Debug)]
pub struct Release<'f> {
    f: &'f Builder,
    speaks: Value<'f, bool>,
    /// Difference between a shared address in the peer CTA that this thread signals and the same address
    /// here.
    to_peer: Option<Value<'f, u32>>,
}

impl<'f> Release<'f> {
    /// The release of the executing warpgroup, in which the executing thread is `thread`. `arrivals` says
    /// which threads arrive.
    #[track_caller]
    pub fn new(
        f: &'f Builder,
        arrivals: Arrivals,
        position: ClusterPosition<'f>,
        base: Value<'f, u32>,
        thread: Value<'f, u32>,
    ) -> Self {
        let [rows, columns] = position.shape;
        let index = match arrivals {
            Arrivals::Warpgroup => thread,
            Arrivals::Warp => f.special(Special::Lane),
            Arrivals::Thread => f.constant(0),
        };
        let speaks = index.less_than(rows + columns - 1);
        let to_peer = f.for_caller(|| {
            (rows * columns > 1).then(|| {
                let zero = f.constant(0);
                let rank = position.supplier(index.where_or(speaks, zero));
                f.map_shared(base, rank) - base
            })
        });
        Self { f, speaks, to_peer }
    }

    /// Arrives on a stage's empty barrier, here and in each CTA that loads into this one.
    #[track_caller]
    pub fn arrive(&self, empty: Value<'f, u32>) {
        let arrive = || match self.to_peer {
            None => self.f.mbarrier_arrive(empty),
            Some(distance) => self.f.mbarrier_arrive_cluster(empty + distance),
        };
        self.f.for_caller(|| self.f.if_(self.speaks, arrive));
    }
}
