//! Tensor maps of heads: of sequences that are equally long, of packed ones, and of pages.

use collective::{Batch, Matrix, OperandTile};
use ptx::abi::TensorMap;

use crate::problem::HeadsRef;

/// The rows of a tensor: those of a sequence, or the most of one and all.
#[derive(Clone, Copy)]
pub(crate) struct Rows {
    pub(crate) most: u32,
    /// Rows of all sequences, if lengths differ.
    pub(crate) all: Option<u32>,
}

/// The tensor map of the heads of a tensor. It copies tiles whose rows are `pack` heads of each query. `emit` says how
/// sequences of different lengths are found in it.
pub(crate) fn map_of(
    tile: &OperandTile,
    of: HeadsRef,
    [batch, heads, d]: [u32; 3],
    rows: Rows,
    [pack, share]: [u32; 2],
) -> TensorMap {
    let [mn, k] = match tile.major() {
        cute_rs::atom::Major::K => [rows.most, d],
        cute_rs::atom::Major::Mn => [d, rows.most],
    };
    let bytes = u64::from(tile.format().bytes());
    let address = match rows.all {
        Some(_) => of.address.wrapping_sub(u64::from(rows.most) * of.row * bytes),
        None => of.address,
    };
    let mut map = tile.tensor_map(Matrix { address, mn, k, ld: of.row, batch: Batch::ONE });
    if pack > 1 {
        // A row is `pack` heads, and then the next query. Those after `share` heads are outside, and become zero.
        map.dims.insert(1, share.into());
        map.strides.insert(0, of.head * bytes);
        map.box_dims.insert(1, pack);
        map.box_dims[2] /= pack;
    }
    let (sequences, sequence) = match rows.all {
        Some(all) => (u64::from(all) + 1, of.row),
        None => (batch.into(), of.batch),
    };
    for (count, stride) in
        [(u64::from(heads / share), of.head.saturating_mul(share.into())), (sequences, sequence)]
    {
        // After the only one nothing follows, so any legal distance will do.
        let stride = if count > 1 { stride } else { of.row };
        map.dims.push(count.max(1));
        map.strides.push(stride * bytes);
        map.box_dims.push(1);
    }
    if let Some(all) = rows.all {
        let first = u64::from(rows.most) * of.row * bytes;
        map.reach = Some([first, first + of.reach([1, heads, all, d]) * bytes]);
    }
    map
}

/// As a tensor map of keys or values, for boxes that have none of them: every box that does not begin at its only element is
/// outside, and becomes zero. A card reads a map's first bytes for such a box, which is why they have to be memory; those of
/// maps that begin before their tensor need not be.
pub(crate) fn outside(map: &TensorMap, memory: u64) -> TensorMap {
    TensorMap { address: memory, dims: vec![1; map.dims.len()], reach: None, ..map.clone() }
}

/// The tensor map of the heads of a cache's pages of `page` rows.
///
/// A row has two coordinates with the same stride: its number, below `page`, and a beginning, from 0 to `page`. The map begins
/// `page` rows before the cache. At beginning `count`, row `page - count` is therefore the first row of a page, and the last row
/// that is inside is the page's row `count - 1`. So a copy reads the first `count` rows, which are keys; the others become zero.
pub(crate) fn map_of_pages(tile: &OperandTile, of: HeadsRef, [count, heads, page, d]: [u32; 4]) -> TensorMap {
    let [mn, k] = match tile.major() {
        cute_rs::atom::Major::K => [page, d],
        cute_rs::atom::Major::Mn => [d, page],
    };
    let bytes = u64::from(tile.format().bytes());
    let before = u64::from(page) * of.row * bytes;
    let address = of.address.wrapping_sub(before);
    let mut map = tile.tensor_map(Matrix { address, mn, k, ld: of.row, batch: Batch::ONE });
    for (count, stride) in [(page + 1, of.row), (heads, of.head), (count, of.batch)] {
        // After the only one nothing follows, so any legal distance will do.
        let stride = if count > 1 { stride } else { of.row };
        map.dims.push(u64::from(count.max(1)));
        map.strides.push(stride * bytes);
        map.box_dims.push(1);
    }
    map.reach = Some([before, before + of.reach([count, heads, page, d]) * bytes]);
    map
}
