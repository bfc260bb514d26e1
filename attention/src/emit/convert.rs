//! The converters: blocks of K and V, from memory's format to that of products.

use collective::OperandTile;
use collective::pipeline::{Ring, Stage};
use ptx::{ProxySpace, Special, Value};

use super::Kernel;
use crate::plan::CONVERTERS;

/// Elements that a thread loads together: 16 bytes.
const CHUNK: u32 = 16;

/// Chunks of a row, and rows, that a warp converts at the same time.
///
/// Eight lanes access shared memory together. They have four chunks each of rows `r` and `r ^ 5`: in tiles with a swizzle of 128
/// bytes, what they load and what they store is in different banks.
const WIDTH: u32 = 4;
const ROWS: u32 = 8;

/// Address of a byte of a row of keys, in a tile at address 0.
fn offset<'f>(tile: &OperandTile, keys: u32, row: Value<'f, u32>, byte: Value<'f, u32>) -> Value<'f, u32> {
    let width = tile.swizzle().bytes();
    let linear = byte / width * (keys * width) + row * width + byte % width;
    tile.swizzle().byte_swizzle().apply_to(linear)
}

/// How a block is converted by a thread: where it begins to load and to store, by the number of its chunk in a row.
struct Conversion<'f> {
    tiles: [OperandTile; 2],
    /// The chunk's number, and where it is loaded from and stored to, in the first rows of a tile.
    chunks: Vec<(u32, Value<'f, u32>, [Value<'f, u32>; 2])>,
}

impl<'f> Kernel<'_, 'f> {
    /// Emitted for the converting warps: each block of K and of V, in the order in which they are loaded.
    pub(super) fn convert(&self, [k, v]: [OperandTile; 2], narrow: [Ring<'f>; 2]) {
        let [_, wide_k, wide_v] = self.plan.tiles;
        let [_, to_k, to_v] = self.rings.map(|ring| ring.producer());
        let [from_k, from_v] = narrow.map(|ring| ring.consumer());
        let [of_k, of_v] = [[k, wide_k], [v, wide_v]].map(|tiles| self.conversion(tiles));
        let of_k = |_, _| self.convert_block(&of_k, [from_k.acquire(), to_k.claim()]);
        let of_v = |_, _| self.convert_block(&of_v, [from_v.acquire(), to_v.claim()]);
        self.in_order(&|_| {}, [&of_k, &of_v]);
    }

    fn conversion(&self, tiles: [OperandTile; 2]) -> Conversion<'f> {
        let [narrow, wide] = &tiles;
        let [keys, d] = narrow.extents();
        let lane = self.f.special(Special::ThreadX) % 32;
        let (group, within) = (lane / WIDTH, lane % WIDTH);
        let row = (group / 2) ^ (group % 2 * 5);
        let chunk = |step: u32| {
            let byte = (within + step * WIDTH) * CHUNK;
            let stores = [0, CHUNK].map(|half| offset(wide, keys, row, byte * 2 + half));
            (step * WIDTH, offset(narrow, keys, row, byte), stores)
        };
        Conversion { tiles, chunks: (0..(d / CHUNK).div_ceil(WIDTH)).map(chunk).collect() }
    }

    /// Converts a block. Each warp has every third group of rows.
    fn convert_block(&self, of: &Conversion<'f>, [from, to]: [Stage<'f>; 2]) {
        let f = self.f;
        let [narrow, wide] = &of.tiles;
        let [keys, d] = narrow.extents();
        let (format, groups) = (self.plan.spec.format, keys / ROWS);
        let (warp, lane) = (f.warp_index() - 1, f.special(Special::ThreadX) % 32);
        // Only the last step of a row may have fewer chunks than lanes.
        let inside =
            |first: u32| (first + WIDTH > d / CHUNK).then(|| (lane % WIDTH).less_than(d / CHUNK - first));
        let next = f.variable(warp);
        f.while_(
            || next.get().less_than(groups),
            || {
                let [read, written] = [narrow, wide].map(|tile| next.get() * (ROWS * tile.swizzle().bytes()));
                let (source, target) = (from.address + read, to.address + written);
                let load = |&(first, source_offset, _): &(u32, Value<'f, u32>, _)| {
                    // A chunk after the last one of a row is not stored; the first one is loaded in its place.
                    let none = f.constant(0);
                    let own =
                        inside(first).map_or(source_offset, |inside| source_offset.where_or(inside, none));
                    let words: [Value<'f, u32>; 4] = f.load_shared_vector(source + own, 0);
                    words
                };
                let loaded: Vec<_> = of.chunks.iter().map(load).collect();
                for (&(first, _, stores), words) in of.chunks.iter().zip(loaded) {
                    let store = || {
                        for (to, words) in
                            stores.into_iter().zip([[words[0], words[1]], [words[2], words[3]]])
                        {
                            let [low, high] = words
                                .map(|word| narrow.format().widen_word(word, format).unwrap_or([word; 2]));
                            f.store_shared(target + to, 0, [low[0], low[1], high[0], high[1]]);
                        }
                    };
                    match inside(first) {
                        Some(inside) => f.if_(inside, store),
                        None => store(),
                    }
                }
                next.set(next.get() + CONVERTERS);
            },
        );
        // Products read through the async proxy.
        f.fence_proxy_async(ProxySpace::Shared);
        f.warp_sync();
        f.if_(lane.equals(0), || {
            f.mbarrier_arrive(from.empty);
            f.mbarrier_arrive(to.full);
        });
    }
}
