//! What stands between the products of a block, as kernels of our own: a residual with the norm of its rows, and rotated
//! queries and keys with a cache. One CTA computes a row after the other.

use falchion::collective::{Accuracy, Elementary, Fast, Format};
use falchion::kernel::operands::{Contents, Extents, Memory, Visit};
use falchion::kernel::{Kernel, Launch, LaunchError, Program};
use falchion::ptx::{Builder, Entry, Special, Target, Value, VerifyError};
use half::bf16;

const THREADS: u32 = 128;
/// Elements that a thread loads at a time.
const VECTOR: u32 = 8;
/// Elements of a head.
pub(crate) const HEAD: u32 = 64;

/// `X += delta`, then `Y = X * w / sqrt(mean(X^2) + 1e-5)`, row by row.
#[derive(Clone, Copy, Debug)]
pub(crate) struct AddNorm;

/// Packed matrices of `bf16`, and a row of weights.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Residual {
    pub(crate) rows: u32,
    pub(crate) columns: u32,
    pub(crate) x: u64,
    pub(crate) delta: u64,
    pub(crate) weights: u64,
    pub(crate) y: u64,
}

/// Rotates queries and keys by their positions; writes queries to a matrix, keys and values to a cache.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rotate;

/// Of each token the rank's heads of queries, keys and values, one after the other.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Heads {
    pub(crate) tokens: u32,
    /// The first token's position.
    pub(crate) position: u32,
    /// Heads of queries, and of keys.
    pub(crate) heads: [u32; 2],
    pub(crate) from: u64,
    /// Cosine and sine of each position and pair, `f32`.
    pub(crate) angles: u64,
    pub(crate) queries: u64,
    pub(crate) keys: u64,
    pub(crate) values: u64,
    /// Tokens of a cache.
    pub(crate) most: u32,
}

/// States memory, and its address as a parameter.
fn memory(
    parameter: &'static str,
    (name, contents): (&'static str, Contents),
    address: &mut u64,
    (bits, length): (u32, u64),
    visit: &mut dyn Visit,
) {
    let writes = matches!(contents, Contents::Output(_));
    visit.memory(Memory { name, address, extents: Extents::line(bits, length), contents, writes });
    visit.address(parameter, name);
}

fn program<C: Default>(
    kernel: &impl Kernel<C>,
    name: &str,
    shared_bytes: u32,
    body: impl FnOnce(&Builder),
) -> Result<Program, VerifyError> {
    let entry = Entry {
        name: name.to_owned(),
        target: Target::Sm90a,
        threads: THREADS,
        shared_bytes,
        cluster: [1; 3],
    };
    Program::of(kernel, entry, body)
}

fn launch<C: Clone>(kernel: &impl Kernel<C>, call: &C, rows: u32) -> Result<Option<Launch>, LaunchError> {
    Launch::of(kernel, call, |_| 16, rows.min(4096))
}

impl Kernel<Residual> for AddNorm {
    fn program(&self) -> Result<Program, VerifyError> {
        program(self, "add_norm", THREADS / 8, add_norm)
    }

    fn launch(&self, call: &Residual, _: u32) -> Result<Option<Launch>, LaunchError> {
        let columns = call.columns;
        if !columns.is_multiple_of(VECTOR) {
            let reason = format!("{columns} columns, a multiple of 8 was needed");
            return Err(LaunchError::Problem { reason });
        }
        launch(self, call, call.rows)
    }

    fn visit(&self, call: &mut Residual, visit: &mut dyn Visit) {
        let Residual { rows, columns, x, delta, weights, y } = call;
        let (line, all) = (u64::from(*columns), u64::from(*columns) * u64::from(*rows));
        let [read, write] = [Contents::Source(Format::Bf16), Contents::Output(Format::Bf16)];
        memory("x", ("X", write), x, (16, all), visit);
        memory("delta", ("delta", read), delta, (16, all), visit);
        memory("weights", ("the weights", read), weights, (16, line), visit);
        memory("y", ("Y", write), y, (16, all), visit);
        visit.counted("rows", rows);
        visit.counted("columns", columns);
    }
}

impl Kernel<Heads> for Rotate {
    fn program(&self) -> Result<Program, VerifyError> {
        program(self, "rotate", 0, rotate)
    }

    fn launch(&self, call: &Heads, _: u32) -> Result<Option<Launch>, LaunchError> {
        let Heads { tokens, position, most, .. } = *call;
        if position.checked_add(tokens).is_none_or(|end| end > most) {
            let reason = format!("{tokens} tokens from position {position} on, a cache has {most}");
            return Err(LaunchError::Problem { reason });
        }
        launch(self, call, tokens)
    }

    fn visit(&self, call: &mut Heads, visit: &mut dyn Visit) {
        let Heads {
            tokens,
            position,
            heads: [of_queries, of_keys],
            from,
            angles,
            queries,
            keys,
            values,
            most,
        } = call;
        let of = |heads: u32, tokens: u32| (16, u64::from(heads) * u64::from(HEAD) * u64::from(tokens));
        let [read, write] = [Contents::Source(Format::Bf16), Contents::Output(Format::Bf16)];
        memory("from", ("the heads", read), from, of(*of_queries + 2 * *of_keys, *tokens), visit);
        let of_angles = (32, u64::from(HEAD) * u64::from(*most));
        memory("angles", ("the angles", Contents::Source(Format::F32)), angles, of_angles, visit);
        memory("queries", ("queries", write), queries, of(*of_queries, *tokens), visit);
        memory("keys", ("keys", write), keys, of(*of_keys, *most), visit);
        memory("values", ("values", write), values, of(*of_keys, *most), visit);
        visit.counted("tokens", tokens);
        visit.counted("of_queries", of_queries);
        visit.counted("of_keys", of_keys);
        visit.counted("position", position);
        visit.count(most);
    }
}

fn each<'f>(
    f: &'f Builder,
    first: Special,
    step: Value<'f, u32>,
    end: Value<'f, u32>,
    body: impl FnOnce(Value<'f, u32>),
) {
    let i = f.variable(f.special(first));
    f.while_(
        || i.get().less_than(end),
        || {
            body(i.get());
            i.set(i.get() + step);
        },
    );
}

fn load<'f>(f: &'f Builder, at: Value<'f, u64>) -> Vec<Value<'f, f32>> {
    let words = f.load_global_vector::<u32, 4>(at, 0);
    words.into_iter().flat_map(|word| f.unpack::<bf16>(word)).map(|element| element.cast()).collect()
}

fn store<'f>(f: &'f Builder, at: Value<'f, u64>, numbers: &[Value<'f, f32>]) {
    let word = |i: usize| f.pack::<bf16>(numbers[2 * i], numbers[2 * i + 1]);
    f.store_global(at, 0, [word(0), word(1), word(2), word(3)]);
}

fn add_norm(f: &Builder) {
    let [x, delta, weights, y] = ["x", "delta", "weights", "y"].map(|name| f.parameter::<u64>(name));
    let [rows, columns] = ["rows", "columns"].map(|name| f.parameter::<u32>(name));
    let (threads, thread) = (f.constant(THREADS), f.special(Special::ThreadX));
    each(f, Special::CtaX, f.special(Special::GridX), rows, |row| {
        let row = row.cast::<u64>() * columns.cast::<u64>() * 2;
        let sum = f.variable(0.0f32);
        each(f, Special::ThreadX, threads, columns / VECTOR, |vector| {
            let at = row + vector.mul_wide(16);
            let added: Vec<_> =
                load(f, x + at).into_iter().zip(load(f, delta + at)).map(|(x, d)| x + d).collect();
            store(f, x + at, &added);
        });
        // A thread reads what it has written itself.
        each(f, Special::ThreadX, threads, columns / VECTOR, |vector| {
            load(f, x + (row + vector.mul_wide(16)))
                .into_iter()
                .for_each(|x| sum.set(x.mul_add(x, sum.get())));
        });
        let of_warp = [1, 2, 4, 8, 16].iter().fold(sum.get(), |sum, &mask| sum + f.shuffle_xor(sum, mask));
        f.barrier_sync(0, THREADS);
        f.if_((thread % 32).equals(0), || f.store_shared(f.shared_base() + thread / 8, 0, [of_warp]));
        f.barrier_sync(0, THREADS);
        let sums = f.load_shared_vector::<f32, 4>(f.shared_base(), 0);
        let mean =
            Fast::divide(sums.into_iter().reduce(|a, b| a + b).expect("four warps"), columns.cast::<f32>());
        let factor = Fast::of(Elementary::Rsqrt, mean + 1e-5);
        each(f, Special::ThreadX, threads, columns / VECTOR, |vector| {
            let at = vector.mul_wide(16);
            let pairs = load(f, x + (row + at)).into_iter().zip(load(f, weights + at));
            store(f, y + (row + at), &pairs.map(|(x, weight)| x * factor * weight).collect::<Vec<_>>());
        });
    });
}

fn rotate(f: &Builder) {
    let [from, angles, queries, keys, values] =
        ["from", "angles", "queries", "keys", "values"].map(|name| f.parameter::<u64>(name));
    let [tokens, of_queries, of_keys, position] =
        ["tokens", "of_queries", "of_keys", "position"].map(|name| f.parameter::<u32>(name));
    // Vectors of a head.
    let per_head = HEAD / VECTOR;
    each(f, Special::CtaX, f.special(Special::GridX), tokens, |token| {
        let all = (of_queries + of_keys * 2) * per_head;
        let place = (token + position).cast::<u64>();
        let row = from + token.cast::<u64>() * all.mul_wide(16);
        each(f, Special::ThreadX, f.constant(THREADS), all, |vector| {
            let numbers = load(f, row + vector.mul_wide(16));
            let head = vector / per_head;
            let (is_query, is_value) = (head.less_than(of_queries), head.at_least(of_queries + of_keys));
            // Four pairs of a cosine and a sine.
            let at = angles + place * u64::from(4 * HEAD) + (vector % per_head).mul_wide(32);
            let pairs = [0, 16].map(|offset| f.load_global_vector::<f32, 4>(at, offset)).concat();
            let rotated: Vec<_> = (0..8)
                .map(|i| {
                    let (pair, [cos, sin]) = (i & !1, [pairs[i & !1], pairs[i | 1]]);
                    let (a, b) = (numbers[pair], numbers[pair + 1]);
                    let turned = if i == pair { a * cos - b * sin } else { a * sin + b * cos };
                    numbers[i].where_or(is_value, turned)
                })
                .collect();
            let own = (vector - (of_queries * per_head).where_or(!is_query, 0)).mul_wide(16);
            let shift = (of_keys * per_head).mul_wide(16);
            let in_cache = place * shift;
            let to = queries + token.cast::<u64>() * (of_queries * per_head).mul_wide(16);
            f.if_else(
                is_query,
                || store(f, to + own, &rotated),
                || {
                    f.if_else(
                        is_value,
                        || store(f, values + in_cache + own - shift, &rotated),
                        || store(f, keys + in_cache + own, &rotated),
                    );
                },
            );
        });
    });
}
