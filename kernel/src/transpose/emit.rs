//! The transposing program. Tiles of A are written to shared memory as tiles of D, and copied from there.

use collective::{Plan, element_offset, element_place};
use cute_rs::{ComposedLayout, Layout, Swizzle};
use ptx::inst::AluOp;
use ptx::{Builder, Entry, Function, Operand, Scalar, Special, Value};

/// Threads per CTA: 8 chunks of 16 B of a row of A, times 32 groups of rows.
const THREADS: u32 = 256;

/// Rows of A per tile, which are columns of D.
pub(super) const ROWS: u32 = 128;

/// Bytes per row of A in a tile.
const ROW_BYTES: u32 = 128;

/// Bytes per chunk. One instruction moves one chunk.
const CHUNK: u32 = 16;

/// Columns of A per tile, which are rows of D.
pub(super) const fn columns(bytes: u32) -> u32 {
    ROW_BYTES / bytes
}

/// The layout of D's tile in shared memory, in elements: row-major, with chunks of 16 B permuted. Eight
/// threads write to eight rows at once, one word each; these rows are a chunk of A's columns apart, and the
/// permutation puts their words in different banks. The chunks of one row are in different banks anyway.
pub(super) const fn tile(bytes: u32) -> ComposedLayout {
    TILES[bytes.ilog2() as usize]
}

/// The layouts for elements of 1, 2, 4 and 8 bytes.
const TILES: [ComposedLayout; 4] = [tile_of(1), tile_of(2), tile_of(4), tile_of(8)];

const fn tile_of(bytes: u32) -> ComposedLayout {
    let (columns, chunk) = (columns(bytes), (CHUNK / bytes).ilog2());
    let rows = Layout::flat(&[columns as i64, ROWS as i64], &[ROWS as i64, 1]);
    // Three bits, seven apart.
    let swizzle = Swizzle::new(3, chunk, (CHUNK / bytes * ROWS).ilog2().cast_signed() - chunk.cast_signed());
    match (swizzle, rows) {
        (Ok(swizzle), Ok(rows)) => swizzle.after(rows),
        _ => panic!("a matrix has rows, and the swizzle permutes its chunks"),
    }
}

/// The program for elements of `bytes` bytes: 1, 2, 4 or 8.
pub(super) fn function(bytes: u32, declare: impl FnOnce(&Builder)) -> Function {
    let entry = Entry {
        name: format!("transpose_{}", bytes * 8),
        target: Plan::TARGET,
        threads: THREADS,
        shared_bytes: ROWS * ROW_BYTES,
        cluster: [1, 1, 1],
    };
    Function::build(entry, |f| {
        declare(f);
        let own = Matrices::params(f, bytes);
        let z = f.variable(f.special(Special::CtaZ));
        f.while_(
            || z.get().less_than(own.count),
            || {
                let tile = own.tile(f, z.get());
                match bytes {
                    1 => tile.transpose::<u8>(f),
                    2 => tile.transpose::<u16>(f),
                    4 => tile.transpose::<u32>(f),
                    _ => tile.transpose::<u64>(f),
                }
                // The next matrix's tile uses the same shared memory.
                f.barrier_sync(0, THREADS);
                z.set(z.get() + f.special(Special::GridZ));
            },
        );
    })
}

/// A matrix as the kernel's parameters describe it.
#[derive(Clone, Copy)]
struct Lines<'f> {
    address: Value<'f, u64>,
    /// Bytes from one row to the next.
    ld: Value<'f, u64>,
    /// Bytes from one matrix to the next.
    stride: Value<'f, u64>,
    /// Whether all rows begin at multiples of 16 B.
    whole: Value<'f, bool>,
}

impl<'f> Lines<'f> {
    /// The address of an element of matrix `z`.
    fn at(&self, z: Value<'f, u32>, [row, column]: [Value<'f, u32>; 2], bytes: u32) -> Value<'f, u64> {
        let before = z.cast::<u64>() * self.stride + row.cast::<u64>() * self.ld;
        self.address + before + column.mul_wide(bytes)
    }
}

/// The kernel's parameters.
struct Matrices<'f> {
    bytes: u32,
    a: Lines<'f>,
    d: Lines<'f>,
    rows: Value<'f, u32>,
    columns: Value<'f, u32>,
    count: Value<'f, u32>,
}

impl<'f> Matrices<'f> {
    fn params(f: &'f Builder, bytes: u32) -> Self {
        let [a, d] = ["a", "d"].map(|name| f.parameter(name));
        let [rows, columns, count] = ["rows", "columns", "count"].map(|name| f.parameter(name));
        let [a_ld, d_ld] = ["a_pitch", "d_pitch"].map(|name| f.parameter(name));
        let [a_stride, d_stride] = ["a_stride", "d_stride"].map(|name| f.parameter(name));
        let [a_whole, d_whole] = ["a_whole", "d_whole"].map(|name| f.parameter::<bool>(name));
        Self {
            bytes,
            a: Lines { address: a, ld: a_ld, stride: a_stride, whole: a_whole },
            d: Lines { address: d, ld: d_ld, stride: d_stride, whole: d_whole },
            rows,
            columns,
            count,
        }
    }

    /// The CTA's tile of matrix `z`.
    fn tile<'a>(&'a self, f: &'f Builder, z: Value<'f, u32>) -> TileOf<'a, 'f> {
        let across = self.columns.div_ceil(columns(self.bytes));
        let index = f.special(Special::CtaX);
        let first = [index / across * ROWS, index % across * columns(self.bytes)];
        TileOf { all: self, layout: tile(self.bytes), shared: f.shared_base(), z, first }
    }
}

/// A tile on its way from A to D.
struct TileOf<'a, 'f> {
    all: &'a Matrices<'f>,
    layout: ComposedLayout,
    shared: Value<'f, u32>,
    z: Value<'f, u32>,
    /// Its first row and column in A.
    first: [Value<'f, u32>; 2],
}

impl<'f> TileOf<'_, 'f> {
    /// Elements per word of 32 bits; at least one.
    fn of_word(&self) -> u32 {
        (4 / self.all.bytes).max(1)
    }

    /// Elements per chunk.
    fn of_chunk(&self) -> u32 {
        CHUNK / self.all.bytes
    }

    /// The shared address of an element of D's tile.
    fn place(&self, [row, column]: [Value<'f, u32>; 2]) -> Value<'f, u32> {
        let offset = element_place(&self.layout, [row, column]);
        self.shared + offset * self.all.bytes
    }

    fn transpose<T: Scalar>(&self, f: &'f Builder) {
        let Matrices { rows, columns: all_columns, a, d, .. } = *self.all;
        let [row, column] = self.first;
        let inside = (row + ROWS).at_most(rows) & (column + columns(self.all.bytes)).at_most(all_columns);
        f.scope("load", || self.load::<T>(f, inside & a.whole));
        f.barrier_sync(0, THREADS);
        f.scope("store", || self.store::<T>(f, inside & d.whole));
    }

    /// Each thread loads one chunk of each of several rows (as many rows as a word has elements), and repeats
    /// this.
    fn load<T: Scalar>(&self, f: &'f Builder, whole: Value<'f, bool>) {
        let (of_word, of_chunk) = (self.of_word(), self.of_chunk());
        let thread = f.special(Special::ThreadX);
        let column = thread % (ROW_BYTES / CHUNK) * of_chunk;
        let group = thread / (ROW_BYTES / CHUNK);
        let row = |pass: u32| (group + pass * (THREADS * CHUNK / ROW_BYTES)) * of_word;
        let passes = ROWS / of_word / (THREADS * CHUNK / ROW_BYTES);
        // Words are transposed in registers: larger elements are not.
        if self.all.bytes > 4 {
            (0..passes).for_each(|pass| self.elements::<T>(f, [row(pass), column]));
            return;
        }
        f.if_else(
            whole,
            || {
                // Issue all loads before the first one is waited for.
                let loaded: Vec<_> = (0..passes).map(|pass| self.chunks(f, [row(pass), column])).collect();
                (0u32..).zip(&loaded).for_each(|(pass, chunks)| self.keep(f, [row(pass), column], chunks));
            },
            || {
                for pass in 0..passes {
                    let (at, [m, n]) = ([row(pass), column], self.first);
                    let Matrices { rows, columns, a, .. } = *self.all;
                    let inside =
                        (m + at[0] + of_word).at_most(rows) & (n + column + of_chunk).at_most(columns);
                    f.if_else(
                        inside & a.whole,
                        || self.keep(f, at, &self.chunks(f, at)),
                        || self.elements::<T>(f, at),
                    );
                }
            },
        );
    }

    /// One chunk of each of several rows: as many rows as a word has elements.
    fn chunks(&self, f: &'f Builder, [row, column]: [Value<'f, u32>; 2]) -> Vec<[Value<'f, u32>; 4]> {
        let Matrices { a, bytes, .. } = *self.all;
        let [m, n] = self.first;
        let first = a.at(self.z, [m + row, n + column], bytes);
        let line = |i: u32| if i == 0 { first } else { first + a.ld * u64::from(i) };
        (0..self.of_word()).map(|i| f.load_global_vector(line(i), 0)).collect()
    }

    /// Stores chunks to shared memory, transposed: one word per row of D.
    fn keep(&self, f: &'f Builder, [row, column]: [Value<'f, u32>; 2], chunks: &[[Value<'f, u32>; 4]]) {
        let place = self.place([column, row]);
        for word in 0..4 {
            let lines: Vec<_> = chunks.iter().map(|chunk| chunk[word as usize]).collect();
            for (i, turned) in (0u32..).zip(turned(f, &lines)) {
                // The swizzle does not change the order of rows inside a chunk.
                let below = self.layout.layout.at_modes(&[i64::from(word * self.of_word() + i), 0]);
                let below = element_offset(below) * self.all.bytes;
                f.store_shared(place, below.cast_signed(), [turned]);
            }
        }
    }

    /// The same one element at a time, for the elements inside the matrix.
    fn elements<T: Scalar>(&self, f: &'f Builder, [row, column]: [Value<'f, u32>; 2]) {
        let Matrices { a, bytes, rows, columns, .. } = *self.all;
        let [m, n] = self.first;
        f.repeat(f.constant(self.of_word()), |i| {
            f.repeat(f.constant(self.of_chunk()), |j| {
                let at = [row + i, column + j];
                let global = [m + at[0], n + at[1]];
                f.if_(global[0].less_than(rows) & global[1].less_than(columns), || {
                    let element = f.load_global::<T>(a.at(self.z, global, bytes), 0);
                    f.store_shared(self.place([at[1], at[0]]), 0, [element]);
                });
            });
        });
    }

    /// Each thread stores some chunks of D's rows.
    fn store<T: Scalar>(&self, f: &'f Builder, whole: Value<'f, bool>) {
        let Matrices { d, bytes, rows, columns: all_columns, .. } = *self.all;
        let (of_chunk, [m, n]) = (self.of_chunk(), self.first);
        let of_row = ROWS / of_chunk;
        let thread = f.special(Special::ThreadX);
        let at = |pass: u32| {
            let index = thread + pass * THREADS;
            [index / of_row, index % of_row * of_chunk]
        };
        let copy = |at: [Value<'f, u32>; 2]| {
            let chunk: [Value<'f, u32>; 4] = f.load_shared_vector(self.place(at), 0);
            f.store_global(d.at(self.z, [n + at[0], m + at[1]], bytes), 0, chunk);
        };
        let passes = ROWS * ROW_BYTES / CHUNK / THREADS;
        f.if_else(
            whole,
            || (0..passes).map(at).for_each(copy),
            || {
                for at in (0..passes).map(at) {
                    let (row, column) = (n + at[0], m + at[1]);
                    let there = row.less_than(all_columns);
                    f.if_else(
                        there & d.whole & (column + of_chunk).at_most(rows),
                        || copy(at),
                        || {
                            f.repeat(f.constant(of_chunk), |i| {
                                f.if_(there & (column + i).less_than(rows), || {
                                    let [element] =
                                        f.load_shared_vector::<T, 1>(self.place([at[0], at[1] + i]), 0);
                                    f.store_global(d.at(self.z, [row, column + i], bytes), 0, [element]);
                                });
                            });
                        },
                    );
                }
            },
        );
    }
}

/// Transposes a square of elements in registers. Each line is one word.
fn turned<'f>(f: &'f Builder, lines: &[Value<'f, u32>]) -> Vec<Value<'f, u32>> {
    // Hexadecimal digits of the selector choose the bytes of the result, the lowest first: 0 to 3 from the
    // first word, 4 to 7 from the second.
    let bytes = |a: Value<'f, u32>, b: Value<'f, u32>, selector: u64| {
        f.alu::<u32>(AluOp::Permute, &[a.operand(), b.operand(), Operand::Imm(selector)])
    };
    let halves = |a, b| [bytes(a, b, 0x5410), bytes(a, b, 0x7632)];
    match *lines {
        [a, b] => halves(a, b).to_vec(),
        [a, b, c, d] => {
            let [low, high] = [0x5140, 0x7362].map(|pairs| halves(bytes(a, b, pairs), bytes(c, d, pairs)));
            [low, high].concat()
        }
        _ => lines.to_vec(),
    }
}
