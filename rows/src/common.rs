//! What kernels over rows have in common: their programs, launches and interfaces, and loops over rows and vectors.

use collective::heads::HeadTensor;
use kernel::operands::{Contents, Extents, Visit};
use kernel::{Kernel, Launch, LaunchError, MatrixRef, Program, check_heads};
use ptx::{Builder, Entry, Scalar, Special, Target, Type, Value, VerifyError};

/// Threads of a CTA.
pub(crate) const THREADS: u32 = 128;
/// Elements that a thread loads at a time.
pub(crate) const VECTOR: u32 = 8;
/// Most numbers that the CTAs of a grid share: their sums with those of one more step are numbers of 32 bits, too.
const MOST: u64 = 1 << 31;
/// CTAs of the largest grid per SM.
pub(crate) const PER_SM: u32 = 16;

/// The program of a row kernel, whose interface declares its parameters.
pub(crate) fn program<C: Default>(
    kernel: &impl Kernel<C>,
    name: String,
    shared_bytes: u32,
    body: impl FnOnce(&Builder),
) -> Result<Program, VerifyError> {
    let entry = Entry { name, target: Target::Sm90a, threads: THREADS, shared_bytes, cluster: [1; 3] };
    Program::of(kernel, entry, body)
}

/// The launch of a call over rows, of matrices whose columns are whole vectors of so many 16-bit numbers; none without rows.
pub(crate) fn launch<C: Clone>(
    kernel: &impl Kernel<C>,
    call: &C,
    (columns, vector): (u32, u32),
    [rows, resident]: [u32; 2],
) -> Result<Option<Launch>, LaunchError> {
    if rows == 0 {
        return Ok(None);
    }
    let (name, needed) = (("columns", columns), format_args!("a multiple of {vector}"));
    LaunchError::unless(columns.is_multiple_of(vector), name, needed)?;
    let alignment = |of: &Extents| if of.bits == 16 { 2 * u64::from(vector) } else { 4 };
    Launch::of(kernel, call, alignment, rows.min(resident.clamp(1, i32::MAX as u32 / PER_SM) * PER_SM))
}

/// The launch of a call over `work` numbers of a kernel whose CTAs have `each` of them at a time, after a check of its tensors; none without work.
/// A head of them has whole vectors of 16 bytes.
pub(crate) fn launch_heads<C: Clone>(
    kernel: &impl Kernel<C>,
    call: &C,
    tensors: &[HeadTensor<'_>],
    (what, work, each): (&str, u64, u32),
    resident: u32,
) -> Result<Option<Launch>, LaunchError> {
    if work == 0 {
        return Ok(None);
    }
    for HeadTensor { name, shape: [.., d], format, .. } in tensors {
        let vector = 128 / format.bits();
        if !d.is_multiple_of(vector) {
            let reason = format!("a head of {name} has {d} elements, a multiple of {vector} was needed");
            return Err(LaunchError::Problem { reason });
        }
    }
    if work > MOST {
        let reason = format!("{work} {what} were given, at most {MOST} were needed: divide the call");
        return Err(LaunchError::Problem { reason });
    }
    tensors.iter().try_for_each(check_heads)?;
    let ctas =
        work.div_ceil(each.into()).min(u64::from(resident.clamp(1, i32::MAX as u32 / PER_SM) * PER_SM));
    // Tensors have been checked; what else is there are numbers.
    Launch::of(kernel, call, |of| u64::from(of.bits / 8), ctas)
}

/// Where a row of a matrix of 16-bit elements begins: the parameters `name` and its leading dimension, in bytes.
pub(crate) fn matrix<'f>(f: &'f Builder, [name, ld]: [&str; 2]) -> impl Fn(Value<'f, u32>) -> Value<'f, u64> {
    let (address, ld) = (f.parameter::<u64>(name), f.parameter::<u64>(ld));
    move |row| address + row.cast::<u64>() * ld
}

/// States a matrix of 16-bit elements: memory, its address `name`, and its leading dimension in bytes.
pub(crate) fn visit_matrix(
    visit: &mut dyn Visit,
    [name, ld]: [&'static str; 2],
    (within, contents, writes): (&'static str, Contents, bool),
    matrix: &mut MatrixRef,
    extents: Extents,
) {
    visit.matrix(within, (contents, writes), matrix, extents);
    visit.address(name, within);
    visit.number(ld, Some(matrix.ld.saturating_mul(2)));
}

/// Each row of the CTA.
pub(crate) fn each_row<'f>(f: &'f Builder, rows: Value<'f, u32>, body: impl FnOnce(Value<'f, u32>)) {
    let row = f.variable(f.special(Special::CtaX));
    f.while_(
        || row.get().less_than(rows),
        || {
            body(row.get());
            row.set(row.get() + f.special(Special::GridX));
        },
    );
}

/// Each vector of a row of `columns`: its number.
pub(crate) fn each_vector<'f>(f: &'f Builder, columns: Value<'f, u32>, body: impl FnOnce(Value<'f, u32>)) {
    each_of(f, columns / VECTOR, body);
}

/// Each of `count` numbers from 0, which the threads share.
pub(crate) fn each_of<'f>(f: &'f Builder, count: Value<'f, u32>, body: impl FnOnce(Value<'f, u32>)) {
    let number = f.variable(f.special(Special::ThreadX));
    f.while_(
        || number.get().less_than(count),
        || {
            body(number.get());
            number.set(number.get() + THREADS);
        },
    );
}

/// Each of `count` numbers that all CTAs of the grid share: a CTA has `each` that follow each other, and then others. The body is given the
/// first of them.
pub(crate) fn each_part<'f>(
    f: &'f Builder,
    (count, each): (Value<'f, u32>, Value<'f, u32>),
    body: impl FnOnce(Value<'f, u32>),
) {
    let first = f.variable(f.special(Special::CtaX) * each);
    f.while_(
        || first.get().less_than(count),
        || {
            body(first.get());
            first.set(first.get() + f.special(Special::GridX) * each);
        },
    );
}

/// Steps of a CTA's threads over all vectors of a matrix: what takes time.
pub(crate) fn steps(rows: u32, columns: u32) -> u128 {
    u128::from(rows) * u128::from(columns.div_ceil(VECTOR * THREADS))
}

/// The words of a vector.
pub(crate) type Words<'f> = [Value<'f, u32>; 4];

/// The words of a vector in memory.
pub(crate) fn load_words<'f>(f: &'f Builder, at: Value<'f, u64>) -> Words<'f> {
    f.load_global_vector(at, 0)
}

/// The elements of a vector of 16-bit numbers.
pub(crate) fn load<'f, T: Scalar>(f: &'f Builder, at: Value<'f, u64>) -> Vec<Value<'f, f32>> {
    numbers::<T>(f, load_words(f, at))
}

/// The elements of a vector of `f32`, or of 16-bit numbers.
pub(crate) fn numbers<'f, T: Scalar>(f: &'f Builder, words: Words<'f>) -> Vec<Value<'f, f32>> {
    if T::TYPE == Type::F32 {
        return words.map(|word| word.bits_as()).to_vec();
    }
    words.into_iter().flat_map(|word| f.unpack::<T>(word)).map(|element| element.cast()).collect()
}

/// Stores a vector of 16-bit numbers.
pub(crate) fn store<'f, T: Scalar>(f: &'f Builder, at: Value<'f, u64>, numbers: &[Value<'f, f32>]) {
    f.store_global(at, 0, words::<T>(f, numbers));
}

/// The words of a vector of `f32`, or of 16-bit numbers.
pub(crate) fn words<'f, T: Scalar>(f: &'f Builder, numbers: &[Value<'f, f32>]) -> Words<'f> {
    let word = |i: usize| match T::TYPE == Type::F32 {
        true => numbers[i].bits_as(),
        false => f.pack::<T>(numbers[2 * i], numbers[2 * i + 1]),
    };
    core::array::from_fn(word)
}
