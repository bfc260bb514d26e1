//! The converters: blocks of K and V, as they are in memory, become operands of products.

use collective::OperandTile;
use collective::pipeline::Stage;
use collective::queue::QueueRole;
use ptx::inst::AluOp;
use ptx::{ProxySpace, Special, Value};

use super::Kernel;
use crate::plan::{CHUNK, CONVERTERS};

/// Chunks of a row, and rows, that a warp converts at the same time.
///
/// Eight lanes access shared memory together. They have four chunks each of rows `r` and `r ^ 5`: in tiles with a swizzle of 128
/// bytes, what they load and what they store is in different banks.
const WIDTH: u32 = 4;
const ROWS: u32 = 8;

/// Address of a byte of a row, in a tile of `rows` rows at address 0.
fn offset<'f>(tile: &OperandTile, rows: u32, row: Value<'f, u32>, byte: Value<'f, u32>) -> Value<'f, u32> {
    let width = tile.swizzle().bytes();
    let linear = byte / width * (rows * width) + row * width + byte % width;
    tile.swizzle().byte_swizzle().apply_to(linear)
}

/// How a thread converts a block, with addresses that are computed once.
enum Conversion<'f> {
    /// Elements become wider: those of a row of this many chunks.
    Widen(Vec<Chunk<'f>>, u32),
    /// Rows of keys become rows of columns. Where the lane's row of 16 bytes is loaded from in the first 16 keys, by pair of chunks; and
    /// the column that it stores in the first 32.
    Transpose(Vec<Value<'f, u32>>, Value<'f, u32>),
}

/// A chunk of each row: the first lane's number of it, and where it is loaded from and stored to, in the first rows of a tile.
struct Chunk<'f> {
    first: u32,
    source: Value<'f, u32>,
    stores: [Value<'f, u32>; 2],
}

impl<'f> Kernel<'_, 'f> {
    /// Emitted for the converting warps: each block of K and of V that is converted, in the order in which they are loaded.
    pub(super) fn convert(&self, tiles: [Option<OperandTile>; 2]) {
        let conversions = [0, 1].map(|i| {
            let tiles = [tiles[i]?, self.plan.tiles[i + 1]];
            Some((
                tiles,
                self.conversion(tiles, self.plan.spec.head[i]),
                self.narrow[i]?.consumer(),
                self.rings[i + 1].producer(),
            ))
        });
        let block = |i: usize| {
            if let Some((tiles, conversion, from, to)) = &conversions[i] {
                self.convert_block(tiles, conversion, [from.acquire(), to.claim()]);
            }
        };
        self.in_order(QueueRole::Reader, &|_| {}, [&|_, _| block(0), &|_, _| block(1)]);
    }

    /// How rows of `d` elements are converted.
    fn conversion(&self, [narrow, wide]: [OperandTile; 2], d: u32) -> Conversion<'f> {
        let [keys, _] = narrow.extents();
        let lane = self.f.special(Special::ThreadX) % 32;
        if wide.bits() == narrow.bits() {
            // Lanes give the addresses of 4 matrices of 8 rows: two of 16 keys, and the same of the next 16 columns.
            let (row, matrix) = (lane % 8, lane / 8);
            let source =
                |pair: u32| offset(&narrow, keys, matrix % 2 * 8 + row, (matrix / 2 + pair * 2) * CHUNK);
            // Of each 16 columns, the even ones and the odd ones.
            let column = matrix / 2 * 16 + row * 2 + matrix % 2;
            return Conversion::Transpose((0..d.div_ceil(2 * CHUNK)).map(source).collect(), column);
        }
        let (group, within) = (lane / WIDTH, lane % WIDTH);
        let row = (group / 2) ^ (group % 2 * 5);
        let chunk = |step: u32| {
            let byte = (within + step * WIDTH) * CHUNK;
            let stores = [0, CHUNK].map(|half| offset(&wide, keys, row, byte * 2 + half));
            Chunk { first: step * WIDTH, source: offset(&narrow, keys, row, byte), stores }
        };
        let chunks = d / CHUNK;
        Conversion::Widen((0..chunks.div_ceil(WIDTH)).map(chunk).collect(), chunks)
    }

    /// Converts a block.
    fn convert_block(&self, tiles: &[OperandTile; 2], of: &Conversion<'f>, [from, to]: [Stage<'f>; 2]) {
        let f = self.f;
        match of {
            Conversion::Widen(chunks, count) => {
                self.widen(tiles, (chunks, *count), [from.address, to.address]);
            }
            Conversion::Transpose(sources, column) => {
                self.transpose(tiles, (sources, *column), [from.address, to.address]);
            }
        }
        // Products read through the async proxy.
        f.fence_proxy_async(ProxySpace::Shared);
        f.warp_sync();
        f.if_(f.special(Special::Lane).equals(0), || {
            f.mbarrier_arrive(from.empty);
            f.mbarrier_arrive(to.full);
        });
    }

    /// Emits a loop over groups of a block: each warp has every third one.
    fn groups(&self, groups: u32, body: impl FnOnce(Value<'f, u32>)) {
        let f = self.f;
        let next = f.variable(f.warp_index() - 1);
        f.while_(
            || next.get().less_than(groups),
            || {
                body(next.get());
                next.set(next.get() + CONVERTERS);
            },
        );
    }

    /// Columns of keys become rows. Within 16 keys, the order is that of [`Fragments::pack`](collective::Fragments::pack).
    fn transpose(
        &self,
        [narrow, wide]: &[OperandTile; 2],
        (sources, column): (&[Value<'f, u32>], Value<'f, u32>),
        [from, to]: [Value<'f, u32>; 2],
    ) {
        let f = self.f;
        let ([keys, _], [d, _]) = (narrow.extents(), wide.extents());
        self.groups(keys / CHUNK, |group| {
            let source = from + group * (CHUNK * narrow.swizzle().bytes());
            let target = to + offset(wide, d, column, group * CHUNK);
            for (pair, &own) in (0..).zip(sources) {
                let [a, b, c, d] = f.load_matrix(source + own, true);
                // The even, and the odd bytes of two words.
                let bytes = |words: [Value<'f, u32>; 2], selected: u32| -> Value<'f, u32> {
                    let [low, high] = words.map(|word| word.operand());
                    f.alu(AluOp::Permute, &[low, high, f.constant(selected).operand()])
                };
                let columns = [[a, b], [c, d]].map(|words| [bytes(words, 0x6420), bytes(words, 0x7531)]);
                let [[even, odd], [next_even, next_odd]] = columns;
                let step = pair * (2 * CHUNK * wide.swizzle().bytes());
                f.store_matrix(target + step, [even, odd, next_even, next_odd], false);
            }
        });
    }

    /// Elements become those of the format that is multiplied.
    fn widen(
        &self,
        [narrow, wide]: &[OperandTile; 2],
        (chunks, count): (&[Chunk<'f>], u32),
        [from, to]: [Value<'f, u32>; 2],
    ) {
        let f = self.f;
        let [keys, _] = narrow.extents();
        let (format, lane) = (self.plan.spec.format, f.special(Special::ThreadX) % 32);
        // Only the last step of a row may have fewer chunks than lanes.
        let inside = |first: u32| (first + WIDTH > count).then(|| (lane % WIDTH).less_than(count - first));
        self.groups(keys / ROWS, |group| {
            let [read, written] = [narrow, wide].map(|tile| group * (ROWS * tile.swizzle().bytes()));
            let (source, target) = (from + read, to + written);
            let load = |chunk: &Chunk<'f>| -> [Value<'f, u32>; 4] {
                // A chunk after the last one of a row is not stored; the first one is loaded in its place.
                let none = f.constant(0);
                let own =
                    inside(chunk.first).map_or(chunk.source, |inside| chunk.source.where_or(inside, none));
                f.load_shared_vector(source + own, 0)
            };
            let loaded: Vec<_> = chunks.iter().map(load).collect();
            for (&Chunk { first, stores, .. }, words) in chunks.iter().zip(loaded) {
                let store = || {
                    for (to, words) in stores.into_iter().zip([[words[0], words[1]], [words[2], words[3]]]) {
                        let wide = |word| narrow.format().widen_word(word, format).unwrap_or([word; 2]);
                        let [low, high] = words.map(wide);
                        f.store_shared(target + to, 0, [low[0], low[1], high[0], high[1]]);
                    }
                };
                match inside(first) {
                    Some(inside) => f.if_(inside, store),
                    None => store(),
                }
            }
        });
    }
}
