//! What kernels over rows have in common: their programs, launches and interfaces, and loops over rows and vectors.

use kernel::operands::{Contents, Extents, Visit};
use kernel::{Kernel, Launch, LaunchError, MatrixRef, Program};
use ptx::{Builder, Entry, Scalar, Special, Target, Value, VerifyError};

/// Threads of a CTA.
pub(crate) const THREADS: u32 = 128;
/// Elements that a thread loads at a time.
pub(crate) const VECTOR: u32 = 8;
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

/// Steps of a CTA's threads over all vectors of a matrix: what takes time.
pub(crate) fn steps(rows: u32, columns: u32) -> u128 {
    u128::from(rows) * u128::from(columns.div_ceil(VECTOR * THREADS))
}

/// The elements of a vector of 16-bit numbers.
pub(crate) fn load<'f, T: Scalar>(f: &'f Builder, at: Value<'f, u64>) -> Vec<Value<'f, f32>> {
    let words = f.load_global_vector::<u32, 4>(at, 0);
    words.into_iter().flat_map(|word| f.unpack::<T>(word)).map(|element| element.cast()).collect()
}

/// Stores a vector of 16-bit numbers.
pub(crate) fn store<'f, T: Scalar>(f: &'f Builder, at: Value<'f, u64>, numbers: &[Value<'f, f32>]) {
    let word = |i: usize| f.pack::<T>(numbers[2 * i], numbers[2 * i + 1]);
    f.store_global(at, 0, [word(0), word(1), word(2), word(3)]);
}
