//! Tiles that are worth trying, and the schedulers for each.

use collective::Roles;
use scheduler::{
    AlongM, AlongN, DivideSpec, Grouped, Raster, RasterSpec, ReductionKind, Rule, SchedulerSpec,
};
use typenum::{U8, U16};

/// Raster orders of large tiles. Which one is best for L2 depends on the numbers of tiles along M and N.
pub(super) const RASTERS: [RasterSpec; 3] =
    [Grouped::<AlongM, U8>::RASTER, Grouped::<AlongM, U16>::RASTER, Grouped::<AlongN, U8>::RASTER];

/// Ways to split tiles along K.
const DIVISIONS: [(ReductionKind, DivideSpec); 3] = [
    (ReductionKind::Ordered, DivideSpec::HEURISTIC),
    (ReductionKind::Separate, DivideSpec::Heuristic { gain: 4 }),
    (ReductionKind::Ordered, DivideSpec::Remainder),
];

/// Numbers of CTAs of a cluster that share a tile's K.
const PARTS: [u32; 6] = [2, 3, 4, 5, 6, 8];

/// The shape of a tile, and the warps that compute it.
#[derive(Clone, Copy)]
pub(super) struct Tile {
    pub(super) extents: [u32; 3],
    pub(super) roles: Roles,
    pub(super) consumers: u32,
    pub(super) cluster: [u32; 2],
    /// Whether the kernel is swap-AB: the caller's B fills the rows of the tile.
    pub(super) swapped: bool,
}

impl Tile {
    pub(super) const fn elements(&self) -> u32 {
        self.extents[0] * self.extents[1]
    }

    /// Whether it has all rows of a GEMM with block scales and up to 128 rows, so that no other tile reads its part of
    /// B: as many tiles as SMs are then narrow. (In bf16 they are 30 % slower than tiles of 64 rows.)
    pub(super) const fn reads_alone(&self, scaled: bool) -> bool {
        let ([m, n, _], cooperative) = (self.extents, matches!(self.roles, Roles::Cooperative));
        scaled && cooperative && !self.swapped && m == 128 && n <= 64 && matches!(self.cluster, [1, 1])
    }

    /// Whether its width lies between those of other tiles. Rows outside of a matrix take long to load, so that a tile that ends
    /// where the matrix does is up to 1.7 times as fast as the next wider one.
    const fn is_between(&self) -> bool {
        matches!(self.extents[1], 56 | 88 | 104 | 120 | 136 | 176)
    }

    /// Of those widths, the tiles that other CTAs of a cluster read columns of, or none.
    const fn fits_between(&self) -> bool {
        let [m, n, _] = self.extents;
        let rows = match n {
            56 => m == 64,
            176 => matches!(m, 128 | 192 | 256),
            _ => matches!(m, 64 | 128 | 192),
        };
        // Four CTAs share what begins inside of lines, of which each row is two requests, and few rows.
        let four = m == 128 && n == 176 && matches!(self.cluster, [2, 2]);
        let line = m == 128 && n <= 120 && self.is_in_line();
        rows && (matches!(self.cluster, [1, 1 | 2]) || self.is_of_eight() || line || four)
    }

    /// Whether four CTAs in a line read the same rows or columns.
    const fn is_in_line(&self) -> bool {
        matches!(self.cluster, [4, 1] | [1, 4])
    }

    /// Whether eight CTAs share operands.
    const fn is_of_eight(&self) -> bool {
        self.cluster[0] * self.cluster[1] == 8
    }

    /// Whether some shape may profit from it.
    pub(super) const fn is_worth_trying(&self, depth: u32, little: bool, scaled: bool) -> bool {
        let ([m, n, _], [across, along]) = (self.extents, self.cluster);
        let cooperative = matches!(self.roles, Roles::Cooperative);
        if self.reads_alone(scaled) {
            return depth <= 128 && n >= 16;
        }
        if self.is_between() {
            return cooperative && depth <= 128 && !little && !scaled && self.fits_between();
        }
        if n < 64 && (!cooperative || along > 1 || (!self.swapped && (m > 64 || across > 1))) {
            return false;
        }
        // They are stored in slabs of 16 and 32 bytes, which takes long in small tiles.
        if m == 64 && matches!(n, 144 | 200) {
            return false;
        }
        if self.is_in_line() {
            return cooperative && depth <= 128 && m == 128 && n <= 192 && !little && !scaled;
        }
        if across * along > 2 && !cooperative {
            return false;
        }
        // Eight gain where one wave of tiles loads more than it multiplies.
        match across * along {
            8 if little || scaled || n < 64 => return false,
            4 if self.elements() < 128 * 128 => return false,
            _ => {}
        }
        // Weights in few bits and sparse operands take less room. The conversion of weights takes less time in deep stages.
        match depth {
            0..=128 => true,
            129..=256 => little || m == 64,
            _ => little && n <= 64,
        }
    }
}

/// The schedulers for a tile, and whether the kernel may begin while the kernel before it still runs.
pub(super) fn schedulers(tile: Tile) -> Vec<(SchedulerSpec, bool)> {
    let small = tile.elements() <= 64 * 256;
    let cooperative = matches!(tile.roles, Roles::Cooperative);
    let mut all = Vec::new();
    if cooperative && small {
        all.push(SchedulerSpec { raster: AlongM::RASTER, rule: Rule::OneTile });
    }
    let rasters =
        if tile.elements() >= 128 * 192 && !tile.is_of_eight() { &RASTERS[..] } else { &RASTERS[..1] };
    all.extend(rasters.iter().map(|&raster| SchedulerSpec { raster, rule: Rule::Persistent }));
    if tile.is_between() && !tile.is_of_eight() || tile.is_in_line() || tile.is_of_eight() && !small {
        return all.into_iter().map(|scheduler| (scheduler, true)).collect();
    }
    if tile.cluster == [1, 1] && tile.extents[0].min(tile.extents[1]) >= 128 {
        all.push(SchedulerSpec { raster: RASTERS[0], rule: Rule::NarrowTail { parts: 2 } });
    }
    let mut in_order = Vec::new();
    if cooperative {
        let raster = if small { AlongM::RASTER } else { RASTERS[0] };
        let divided = DIVISIONS.map(|(reduction, divide)| SchedulerSpec {
            raster,
            rule: Rule::StreamK { reduction, divide, least: 4 },
        });
        all.extend(divided);
        let [m, n, _] = tile.extents;
        if tile.cluster == [1, 1] {
            // Equal parts of all tiles: CTAs that are launched in order, on SMs that are all free, read the same at once.
            in_order.extend([divided[0], divided[1]].map(|scheduler| (scheduler, false)));
            if m.min(n) >= 64 && tile.elements() <= 128 * 256 {
                let raster = AlongM::RASTER;
                all.extend(PARTS.map(|parts| SchedulerSpec { raster, rule: Rule::ClusterK { parts } }));
            }
        }
    }
    all.into_iter().map(|scheduler| (scheduler, true)).chain(in_order).collect()
}
