//! The compressing program: one CTA per unit of metadata, one thread per word of it.

use collective::sparse::{self, ROWS, WORDS};
use collective::{Format, Plan};
use cute_rs::Layout;
use ptx::inst::{AluOp, BitOp};
use ptx::{
    AtomicOp, AtomicSem, Builder, Entry, Function, Location, Operand, Scalar, Scope, Special, Value, Var,
};

/// Groups of four bits per word.
const GROUPS: u32 = 8;

/// Words of a row that a thread compresses at once: 32 bytes.
const PIECE: usize = 8;

/// The report is read after the launch, so its atomics need no order.
const ORDER: (AtomicSem, Scope) = (AtomicSem::Relaxed, Scope::Gpu);

/// The program for a format.
pub(super) fn function(format: Format, declare: impl FnOnce(&Builder)) -> Function {
    let entry = Entry {
        name: format!("compress_{format}"),
        target: Plan::TARGET,
        threads: WORDS,
        shared_bytes: 0,
        cluster: [1, 1, 1],
    };
    Function::build(entry, |f| {
        declare(f);
        match format.bytes() {
            1 => Compressor::new(f, format).emit::<u8>(),
            2 => Compressor::new(f, format).emit::<u16>(),
            _ => Compressor::new(f, format).emit::<u32>(),
        }
    })
}

/// A matrix as the kernel's parameters describe it.
#[derive(Clone, Copy)]
struct Lines<'f> {
    address: Value<'f, u64>,
    /// Bytes from one row to the next.
    ld: Value<'f, u64>,
}

impl<'f> Lines<'f> {
    fn at(&self, row: Value<'f, u32>, bytes: Value<'f, u64>) -> Value<'f, u64> {
        self.address + row.cast::<u64>() * self.ld + bytes
    }
}

/// The kernel's parameters, and the CTA's unit.
struct Compressor<'f> {
    f: &'f Builder,
    format: Format,
    dense: Lines<'f>,
    values: Lines<'f>,
    metadata: Lines<'f>,
    found: Value<'f, u64>,
    rows: Value<'f, u32>,
    k: Value<'f, u32>,
    /// Whether rows of both matrices begin at multiples of 16 B.
    whole: Value<'f, bool>,
    /// Maps the position of a group of four bits in a unit to `row + ROWS * chunk`.
    inverse: Layout,
    block: Value<'f, u32>,
    unit: Value<'f, u32>,
}

/// What is kept of a chunk.
struct Kept<'f> {
    /// The chunk's four bits of metadata.
    bits: Value<'f, u32>,
    /// Whether more than half of the chunk is not zero.
    dense: Value<'f, bool>,
    /// A byte-permute selector that extracts the kept elements from the chunk's words: for elements of 8
    /// bits, two in the lowest byte; for 16 bits, two in two bytes.
    selector: Value<'f, u32>,
}

impl<'f> Compressor<'f> {
    fn new(f: &'f Builder, format: Format) -> Self {
        let [dense, values, metadata, found] =
            ["dense", "values", "metadata", "found"].map(|name| f.parameter(name));
        let [rows, k] = ["rows", "k"].map(|name| f.parameter::<u32>(name));
        let lds = ["dense_pitch", "values_pitch", "metadata_pitch"].map(|name| f.parameter(name));
        let [of_dense, of_values] = ["dense_whole", "values_whole"].map(|name| f.parameter::<bool>(name));
        let units = k.div_ceil(sparse::unit_k(format));
        let index = f.special(Special::CtaX);
        let lines = |address, ld: usize| Lines { address, ld: lds[ld] };
        Self {
            f,
            format,
            dense: lines(dense, 0),
            values: lines(values, 1),
            metadata: lines(metadata, 2),
            found,
            rows,
            k,
            whole: of_dense & of_values,
            inverse: sparse::unit(format).right_inverse().expect("a permutation of small numbers"),
            block: index / units,
            unit: index % units,
        }
    }

    /// Elements per chunk.
    fn chunk(&self) -> u32 {
        sparse::chunk(self.format)
    }

    /// Chunks per row.
    fn chunks(&self) -> Value<'f, u32> {
        self.k.div_ceil(self.chunk())
    }

    /// The row and the chunk of a position in the CTA's unit.
    fn at(&self, place: Value<'f, u32>) -> [Value<'f, u32>; 2] {
        let within = self.inverse.apply(place).expect("a unit is small");
        let of_unit = sparse::unit_k(self.format) / self.chunk();
        [self.block * ROWS + within % ROWS, self.unit * of_unit + within / ROWS]
    }

    fn emit<T: Scalar>(&self) {
        let f = self.f;
        let thread = f.special(Special::ThreadX);
        let [row, first] = self.at(thread * GROUPS);
        // In a metadata word, the chunks of one row are consecutive: as many as a thread compresses at once.
        let of_piece = (PIECE as u32) * 4 / self.format.bytes() / self.chunk();
        let (word, dense) = (f.variable(0u32), f.variable(0u32));
        for begin in (0..GROUPS).step_by(of_piece as usize) {
            let within = self.inverse.at(begin.into()) as u32;
            assert!(within < ROWS, "a word's pieces are of other rows");
            let row = row + within;
            let kept = self.piece::<T>([row, first], of_piece);
            for (i, chunk) in (begin..).zip(&kept) {
                word.set(word.get() | chunk.bits << (4 * i));
                dense.set(dense.get() | f.constant(1u32 << i).where_or(chunk.dense, 0));
            }
        }
        let offset = (self.unit * WORDS + thread).mul_wide(4);
        f.store_global(self.metadata.at(self.block, offset), 0, [word.get()]);
        f.if_(dense.get().differs_from(0), || {
            // The lowest bit stands for the first chunk of the first row.
            let reversed = f.alu::<u32>(AluOp::Bits(BitOp::Reverse, u32::TYPE), &[dense.get().operand()]);
            let first = f.alu::<u32>(AluOp::Bits(BitOp::LeadingZeros, u32::TYPE), &[reversed.operand()]);
            let [row, chunk] = self.at(thread * GROUPS + first);
            let place = row.mul_wide(self.chunks()) + chunk.cast::<u64>();
            f.reduce(AtomicOp::Min, Location::global(self.found, 0), [place], ORDER);
        });
    }

    /// Compresses `chunks` consecutive chunks of a row.
    fn piece<T: Scalar>(&self, [row, first]: [Value<'f, u32>; 2], chunks: u32) -> Vec<Kept<'f>> {
        let (f, bytes) = (self.f, self.format.bytes());
        let words: Vec<Var<'f, u32>> = (0..PIECE).map(|_| f.variable(0u32)).collect();
        let inside = row.less_than(self.rows);
        let column = first * self.chunk();
        let whole = inside & self.whole & (column + chunks * self.chunk()).at_most(self.k);
        let dense = self.dense.at(row, column.mul_wide(bytes));
        f.if_else(
            whole,
            || {
                for (i, half) in (0i32..).zip(words.chunks(4)) {
                    let loaded: [_; 4] = f.load_global_vector::<u32, 4>(dense, 16 * i);
                    half.iter().zip(loaded).for_each(|(word, loaded)| word.set(loaded));
                }
            },
            || {
                f.if_(inside, || {
                    for i in 0..PIECE as u32 * 4 / bytes {
                        let word = words[(i * bytes / 4) as usize];
                        f.if_((column + i).less_than(self.k), || {
                            let element = f.load_global::<T>(dense, (i * bytes).cast_signed()).cast::<u32>();
                            word.set(word.get() | element << (i * bytes % 4 * 8));
                        });
                    }
                });
            },
        );
        let words: Vec<_> = words.iter().map(|word| word.get()).collect();
        let of_chunk = words.len() / chunks as usize;
        let kept: Vec<Kept<'f>> = words.chunks(of_chunk).map(|words| self.select(words)).collect();
        let values = self.packed(&words, &kept);
        // The kept elements take half of the bytes.
        let place = self.values.at(row, (first * (self.chunk() / 2)).mul_wide(bytes));
        f.if_else(
            whole,
            || {
                if let [a, b, c, d] = values[..] {
                    f.store_global(place, 0, [a, b, c, d]);
                }
            },
            || {
                f.if_(inside, || {
                    for i in 0..PIECE as u32 * 2 / bytes {
                        let chunk = first + i / (self.chunk() / 2);
                        f.if_(chunk.less_than(self.chunks()), || {
                            let value = values[(i * bytes / 4) as usize] >> (i * bytes % 4 * 8);
                            f.store_global(place, (i * bytes).cast_signed(), [value.cast::<T>()]);
                        });
                    }
                });
            },
        );
        kept
    }

    /// Packs the kept elements into four words.
    fn packed(&self, words: &[Value<'f, u32>], kept: &[Kept<'f>]) -> Vec<Value<'f, u32>> {
        let permute = |a: Value<'f, u32>, b: Value<'f, u32>, selector: Value<'f, u32>| {
            let operands: [Operand; 3] = [a.operand(), b.operand(), selector.operand()];
            self.f.alu::<u32>(AluOp::Permute, &operands)
        };
        // Each word of kept elements comes from two words.
        let of_words = words.chunks(2).zip(kept.chunks(kept.len() * 2 / words.len().max(1)));
        let packed = of_words.filter_map(|(words, kept)| match (words, kept) {
            (&[a, b], [low, high]) => Some(permute(a, b, low.selector | (high.selector + 0x44) << 8)),
            (&[a, b], [both]) => Some(permute(a, b, both.selector)),
            _ => None,
        });
        packed.collect()
    }

    /// Chooses the elements of a chunk to keep.
    fn select(&self, words: &[Value<'f, u32>]) -> Kept<'f> {
        let (f, count) = (self.f, self.chunk());
        let bits = self.format.bits();
        let element = |i: u32| {
            let shifted = words[(i * bits / 32) as usize] >> (i * bits % 32);
            if bits == 32 { shifted } else { shifted & ((1 << bits) - 1) }
        };
        // The key is lowest for zeros, then for -0. Of equal elements, the first has the highest key.
        let key = |i: u32| {
            let (element, rank) = (element(i), count - 1 - i);
            let zero = f.constant(rank).where_or(element.equals(0), 2 * count + rank);
            if !self.format.is_float() {
                return zero;
            }
            f.constant(count + rank).where_or(element.equals(1 << (bits - 1)), zero)
        };
        let place = |key: Value<'f, u32>| (key & (count - 1)) ^ (count - 1);
        if count == 2 {
            let (a, b) = (key(0), key(1));
            let second = b.more_than(a);
            let [of_first, of_second] = [[0, 1], [1, 0]].map(|places| sparse::bits(self.format, places));
            return Kept {
                bits: f.constant(of_second).where_or(second, of_first),
                dense: a.min(b).at_least(2 * count),
                selector: f.constant(0x7654u32).where_or(second, 0x3210),
            };
        }
        let ([a, b], [c, d]) = ([key(0), key(1)], [key(2), key(3)]);
        let (left, right) = ([a.max(b), a.min(b)], [c.max(d), c.min(d)]);
        let (middle, low) = (left[0].min(right[0]), left[1].max(right[1]));
        let [one, other] = [left[0].max(right[0]), middle.max(low)].map(place);
        let (first, second) = (one.min(other), one.max(other));
        let selector = if bits == 8 {
            first | second << 4
        } else {
            // The bytes of each half.
            (first | second << 8) * 0x22 + 0x1010
        };
        Kept { bits: first | second << 2, dense: middle.min(low).at_least(2 * count), selector }
    }
}
