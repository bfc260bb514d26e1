//! Two results of attention over different keys, as one.

use collective::heads::{DeviceTensor, HeadTensor, HeadUse, HeadsRef};
use collective::{Accuracy, Elementary, Fast, Format};
use half::{bf16, f16};
use kernel::operands::{Contents, Extents, Visit};
use kernel::{Kernel, Launch, LaunchError, Program};
use ptx::{Builder, Scalar, Special, Value, VerifyError};

use crate::common::{THREADS, Words, each_part, launch_heads, load_words, numbers, program, words};

/// Merges two results of attention over different keys, by the logarithms of their sums of exponentials: `O = (e^a O_a + e^b O_b) / (e^a + e^b)`
/// and `ln(e^a + e^b)` for each row of each head.
///
/// A row whose logarithm is minus infinity has no keys: it becomes the other one, bit for bit, whatever its elements are. If both have none, the
/// row becomes zeros and minus infinity.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RowMergeAttention(pub Format);

/// What is merged. O, and its logarithms, may be exactly in the place of those of either result.
#[derive(Clone, Copy, Debug, Default)]
pub struct MergedAttention {
    /// Sequences, heads, rows of a head, and elements of a row: a multiple of 8, in `f32` of 4.
    pub shape: [u32; 4],
    /// The two results, in `bf16`, `f16` or `f32`.
    pub results: [HeadsRef; 2],
    /// Their log-sum-exp, `f32`: packed `(batch, heads, rows)`.
    pub sums: [u64; 2],
    /// The merged result, in the same format.
    pub o: HeadsRef,
    /// Its log-sum-exp.
    pub log_sum_exp: u64,
}

/// The results and their log-sum-exp: memory, and parameters.
const FROM: [(&str, [&str; 4], [&str; 2]); 2] = [
    ("O_a", ["a", "a_row", "a_head", "a_batch"], ["the log-sum-exp of O_a", "a_sums"]),
    ("O_b", ["b", "b_row", "b_head", "b_batch"], ["the log-sum-exp of O_b", "b_sums"]),
];
const O: [&str; 4] = ["o", "o_row", "o_head", "o_batch"];
/// Extents.
const EXTENTS: [&str; 4] = ["batch", "heads", "rows", "columns"];

/// Bytes of a vector.
const VECTOR: u32 = 16;

impl MergedAttention {
    /// Rows of all heads.
    fn rows(&self) -> u64 {
        let [batch, heads, rows, d] = self.shape.map(u64::from);
        if d == 0 { 0 } else { batch.saturating_mul(heads).saturating_mul(rows) }
    }

    /// The two results, and the merged one.
    fn tensors(&mut self, format: Format) -> [HeadTensor<'_>; 3] {
        let (shape, [a, b]) = (self.shape, &mut self.results);
        let of =
            |name, parameters, at, used| HeadTensor::strided(name, parameters, at, shape, (format, used));
        let [a, b] = [(FROM[0], a), (FROM[1], b)]
            .map(|((name, parameters, _), at)| of(name, parameters, at, HeadUse::Read));
        [a, b, of("O", O, &mut self.o, HeadUse::Written)]
    }
}

impl RowMergeAttention {
    /// Lanes of a warp that have a row of so many elements: a power of two.
    pub(crate) const fn lanes(self, columns: u32) -> u32 {
        let vectors = columns.saturating_mul(self.0.bits() / 8).div_ceil(VECTOR);
        let lanes = if vectors < 32 { vectors.next_power_of_two() } else { 32 };
        if lanes == 0 { 1 } else { lanes }
    }
}

impl Kernel<MergedAttention> for RowMergeAttention {
    fn program(&self) -> Result<Program, VerifyError> {
        let half = if self.0 == Format::F16 { emit::<f16> } else { emit::<bf16> };
        let emit = if self.0 == Format::F32 { emit::<f32> } else { half };
        program(self, format!("merge_attention_{}", self.0.name()), 0, emit)
    }

    fn launch(&self, call: &MergedAttention, resident: u32) -> Result<Option<Launch>, LaunchError> {
        let each = THREADS / self.lanes(call.shape[3]);
        launch_heads(self, call, &call.clone().tensors(self.0), ("rows", call.rows(), each), resident)
    }

    fn total_work(&self, call: &MergedAttention) -> u128 {
        let vectors = call.shape[3].saturating_mul(self.0.bits() / 8).div_ceil(VECTOR);
        let (lanes, rows) = (self.lanes(call.shape[3]), u128::from(call.rows()));
        rows.div_ceil((THREADS / lanes).into()) * u128::from(vectors.div_ceil(lanes))
    }

    fn visit(&self, call: &mut MergedAttention, visit: &mut dyn Visit) {
        let line = Extents::line(32, call.rows());
        for tensor in call.tensors(self.0) {
            let reads = tensor.used == HeadUse::Read;
            HeadTensor::state_all(vec![tensor], visit);
            if reads {
                visit.in_place();
            }
        }
        for ((.., [name, parameter]), address) in FROM.into_iter().zip(&mut call.sums) {
            visit.input(parameter, (name, address), line, Contents::Logarithms);
            visit.in_place();
        }
        visit.output("sums", ("the log-sum-exp", &mut call.log_sum_exp), line, Format::F32);
        for (name, extent) in EXTENTS.into_iter().zip(&mut call.shape) {
            visit.counted(name, extent);
        }
        visit.number("lanes", Some(self.lanes(call.shape[3])));
    }
}

/// The weights of two results in a row.
struct Weights<'f> {
    /// What elements are multiplied by.
    factors: [Value<'f, f32>; 2],
    /// Whether a result has no keys there.
    none: [Value<'f, bool>; 2],
    /// The logarithm of the sum.
    all: Value<'f, f32>,
}

impl<'f> Weights<'f> {
    fn of([a, b]: [Value<'f, f32>; 2]) -> Self {
        let most = a.max(b);
        let [of_a, of_b] = [a, b].map(|sum| Fast::of(Elementary::Exp, sum - most));
        let sum = of_a + of_b;
        let none = [a, b].map(|sum| sum.equals(f32::NEG_INFINITY));
        let all = most + Fast::of(Elementary::Ln, sum);
        let all = a.where_or(none[1], b.where_or(none[0], all));
        Self { factors: [of_a / sum, of_b / sum], none, all }
    }

    /// A vector of the merged result.
    fn merged<T: Scalar>(&self, f: &'f Builder, [a, b]: [Words<'f>; 2]) -> Words<'f> {
        let (zero, [no_a, no_b]) = (f.constant(0u32), self.none);
        let both = numbers::<T>(f, a).into_iter().zip(numbers::<T>(f, b));
        let both = both.map(|(a, b)| b.mul_add(self.factors[1], a * self.factors[0])).collect::<Vec<_>>();
        let both = words::<T>(f, &both);
        core::array::from_fn(|i| {
            let alone = zero.where_or(no_a, a[i]);
            alone.where_or(no_b, b[i].where_or(no_a, both[i]))
        })
    }
}

fn emit<T: Scalar>(f: &Builder) {
    let [a, b] = FROM.map(|(_, parameters, _)| DeviceTensor::of(f, parameters));
    let o = DeviceTensor::of(f, O);
    let sums = FROM.map(|(.., [_, parameter])| f.parameter::<u64>(parameter));
    let all_sums = f.parameter::<u64>("sums");
    let [batch, heads, rows, columns] = EXTENTS.map(|name| f.parameter::<u32>(name));
    let lanes = f.parameter::<u32>("lanes");
    let thread = f.special(Special::ThreadX);
    // A few lanes of a warp have a row. The first of them alone reads the logarithms and writes theirs, which may be in the same place.
    let (own, lane) = (thread / lanes, thread % lanes);
    let leader = lane.equals(0);
    let vectors = columns / (VECTOR / (T::TYPE.bits() / 8));
    let count = batch * heads * rows;
    each_part(f, (count, f.constant(THREADS) / lanes), |first| {
        let row = first + own;
        let (is_row, at) = (row.less_than(count), row.mul_wide(4));
        let read = sums.map(|sums| {
            let sum = f.variable(f32::NEG_INFINITY);
            f.if_(is_row & leader, || sum.set(f.load_global::<f32>(sums + at, 0)));
            f.shuffle(sum.get(), thread % 32 - lane)
        });
        let weights = Weights::of(read);
        f.if_(is_row, || {
            let place = [row % rows, row / rows % heads, row / rows / heads];
            let [a, b, o] = [a, b, o].map(|tensor| tensor.row(place));
            let vector = f.variable(lane);
            f.while_(
                || vector.get().less_than(vectors),
                || {
                    let at = vector.get().mul_wide(VECTOR);
                    let merged = weights.merged::<T>(f, [a, b].map(|row| load_words(f, row + at)));
                    f.store_global(o + at, 0, merged);
                    vector.set(vector.get() + lanes);
                },
            );
            f.if_(leader, || f.store_global(all_sums + at, 0, [weights.all]));
        });
    });
}
