//! Runs a case on an engine, and compares everything that the launch may write with the reference.

use attention::{Attention, AttentionCall, AttentionProblem, AttentionSpec, HeadsRef, Scope, Scores};
use collective::Bounded;
use kernel::{Engine, Kernel};
use reference::attention::{Row, Score};
use reference::{Format, Wanted};

/// How the heads of a tensor lie in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Layout {
    /// `(batch, heads, length, d)`.
    HeadsFirst,
    /// `(batch, length, heads, d)`.
    LengthFirst,
    /// `(batch, heads, length, d)`, with gaps everywhere.
    Gaps,
}

/// What Q and K contain.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Values {
    /// Numbers around zero, so that scores are about as large as this.
    Normal(f64),
    /// Scores of this magnitude and of both signs, which differ from key to key. Few elements are not zero.
    Large(f64),
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Case {
    pub(crate) batch: u32,
    pub(crate) heads: [u32; 2],
    pub(crate) queries: u32,
    pub(crate) keys: u32,
    pub(crate) layout: Layout,
    pub(crate) values: Values,
    pub(crate) seed: u64,
}

impl Case {
    pub(crate) const fn new(queries: u32, keys: u32) -> Self {
        let (layout, values) = (Layout::HeadsFirst, Values::Normal(1.0));
        Self { batch: 1, heads: [1, 1], queries, keys, layout, values, seed: 1 }
    }
}

fn reference_format(format: collective::Format) -> Format {
    Format::ALL.into_iter().find(|of| of.name() == format.name()).expect("the reference has every format")
}

/// A tensor on the host: elements, and where each is.
struct Tensor {
    format: Format,
    extents: [u32; 4],
    at: HeadsRef,
    bits: Vec<u64>,
    bytes: Vec<u8>,
}

/// Elements before a tensor and after it, which nobody may touch.
const AROUND: u64 = 64;

impl Tensor {
    /// All memory is NaN, except for the elements.
    fn new(format: Format, layout: Layout, extents: [u32; 4], mut value: impl FnMut() -> f64) -> Self {
        let [batch, heads, rows, d] = extents;
        let mut at = match layout {
            Layout::HeadsFirst => HeadsRef::heads_first(0, [heads, rows, d]),
            Layout::LengthFirst => HeadsRef::length_first(0, [heads, rows, d]),
            Layout::Gaps => {
                let row = u64::from(d) + 8;
                let head = (u64::from(rows) + 1) * row + 16;
                HeadsRef { address: 0, row, head, batch: u64::from(heads) * head + 24 }
            }
        };
        at.row = at.row.max(8);
        let elements = at.reach(extents) + 2 * AROUND;
        let width = format.bytes() as usize;
        let nan = format.round(f64::NAN).to_le_bytes();
        let mut tensor =
            Self { format, extents, at, bits: Vec::new(), bytes: nan[..width].repeat(elements as usize) };
        for index in 0..batch as usize * heads as usize * rows as usize * d as usize {
            let bits = format.round(value());
            let byte = tensor.byte(index);
            tensor.bytes[byte..byte + width].copy_from_slice(&bits.to_le_bytes()[..width]);
            tensor.bits.push(bits);
        }
        tensor
    }

    /// Where an element is, by its index in `(batch, heads, rows, d)`.
    fn byte(&self, index: usize) -> usize {
        let [_, heads, rows, d] = self.extents.map(|extent| extent as usize);
        let [b, h, r, c] = [index / d / rows / heads, index / d / rows % heads, index / d % rows, index % d];
        let HeadsRef { row, head, batch, .. } = self.at;
        let place = AROUND + b as u64 * batch + h as u64 * head + r as u64 * row + c as u64;
        place as usize * self.format.bytes() as usize
    }

    /// The elements of a row.
    fn row(&self, [b, h, r]: [u32; 3]) -> Vec<f64> {
        let [_, heads, rows, d] = self.extents;
        let first = ((b * heads + h) * rows + r) as usize * d as usize;
        self.bits[first..first + d as usize].iter().map(|&bits| self.format.decode(bits)).collect()
    }

    fn placed(&self, address: u64) -> HeadsRef {
        HeadsRef { address: address + AROUND * u64::from(self.format.bytes()), ..self.at }
    }
}

/// The largest error as a fraction of its bound, for O and for the log-sum-exp.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Ratios {
    pub(crate) o: f64,
    pub(crate) log_sum_exp: f64,
}

/// Runs a case and compares O, the log-sum-exp and the memory around O.
pub(crate) fn check<S: Scores>(
    engine: &mut dyn Engine,
    attention: &Attention,
    case: Case,
    (counts, reals): (&[i32], &[f32]),
) -> Result<Ratios, String> {
    let spec = attention.plan().spec;
    let Case { batch, heads: [heads, shared], queries, keys, layout, values, seed } = case;
    let [d, dv] = spec.head;
    let (format, output) = (reference_format(spec.format), reference_format(spec.output));
    let mut random = fastrand::Rng::with_seed(seed);
    let mut normal = move || (0..6).map(|_| random.f64() - 0.5).sum::<f64>() * 1.4;
    let mut random = fastrand::Rng::with_seed(seed ^ 77);
    let mut index = 0;
    let mut operand = |query: bool| match values {
        Values::Normal(scale) => normal() * scale.sqrt(),
        Values::Large(scale) => {
            // One element in eight is not zero, always the same ones.
            index += 1;
            let sign = if random.bool() { 1.0 } else { -1.0 };
            let one = (index - 1) % d == 3 || query && (index - 1) % d == 9;
            if one { sign * (scale.sqrt() * f64::from(d).powf(0.25) * (0.5 + random.f64())) } else { 0.0 }
        }
    };
    let q = Tensor::new(format, layout, [batch, heads, queries, d], || operand(true));
    let k = Tensor::new(format, layout, [batch, shared, keys, d], || operand(false));
    let mut random = fastrand::Rng::with_seed(seed ^ 1234);
    let v = Tensor::new(format, layout, [batch, shared, keys, dv], || random.f64() * 4.0 - 2.0);
    let o = Tensor::new(output, layout, [batch, heads, queries, dv], || f64::NAN);
    let rows = (batch * heads * queries) as usize;
    let failed = |error: kernel::EngineError| error.to_string();
    let buffers = [&q, &k, &v, &o].map(|tensor| engine.upload(&tensor.bytes));
    let [q_at, k_at, v_at, o_at] = buffers.map(|buffer| buffer.expect("memory"));
    let lse_at = engine.upload(&[0xff; 4].repeat(rows + 8)).map_err(failed)?;
    let problem = AttentionProblem {
        heads: [heads, shared],
        ..AttentionProblem::new(batch, heads, [queries, keys], d)
    };
    let tensors = [q.placed(q_at.address), k.placed(k_at.address), v.placed(v_at.address)];
    let call = AttentionCall {
        log_sum_exp: lse_at.address,
        counts: counts.to_vec(),
        reals: reals.to_vec(),
        ..AttentionCall::new(problem, tensors, o.placed(o_at.address))
    };
    attention.run(engine, &call).map_err(failed)?;
    let after = engine.read(o_at).map_err(failed)?;
    let lse = engine.read(lse_at).map_err(failed)?;
    for buffer in [q_at, k_at, v_at, o_at, lse_at] {
        engine.free(buffer).map_err(failed)?;
    }

    let mut untouched = o.bytes.clone();
    let width = output.bytes() as usize;
    for index in 0..o.bits.len() {
        let byte = o.byte(index);
        untouched[byte..byte + width].copy_from_slice(&after[byte..byte + width]);
    }
    if untouched != after {
        return Err("memory around O was written".to_owned());
    }
    if lse[rows * 4..].iter().any(|&byte| byte != 0xff) {
        return Err("memory after the log-sum-exp was written".to_owned());
    }
    let counts: Vec<i64> = counts.iter().map(|&count| count.into()).collect();
    let reals: Vec<_> = reals.iter().map(|&real| Bounded::exact(real.into())).collect();
    let mut ratios = Ratios::default();
    for index in 0..rows {
        let place = [index as u32 / queries / heads, index as u32 / queries % heads, index as u32 % queries];
        let [b, h, r] = place;
        let group = h / (heads / shared);
        let of = Scope {
            queries: i64::from(queries),
            keys: i64::from(keys),
            head: h.into(),
            batch: b.into(),
            counts: &counts,
            reals: &reals,
        };
        let query = q.row(place);
        let mut row = Row::new(format, spec.tile[1]);
        let mut seen: Vec<Vec<f64>> = Vec::new();
        for key in 0..keys {
            if S::MASKS && !S::sees(&of, r.into(), key.into()) {
                continue;
            }
            let Score { value, error } = Score::of(&query, &k.row([b, group, key]), problem.scale);
            let x = Bounded::new(value, error);
            let Bounded { value, error } =
                if S::CHANGES { S::score(&of, r.into(), key.into(), x) } else { x };
            row.key(Score { value, error });
            seen.push(v.row([b, group, key]));
        }
        let fault = |what: String, got: f64, wanted: Wanted| {
            format!(
                "{what} of sequence {b}, head {h}, query {r} is {got}, {} +- {} was expected ({} keys)",
                wanted.value,
                wanted.bound(),
                row.keys()
            )
        };
        let bits = u32::from_le_bytes(lse[index * 4..][..4].try_into().expect("four bytes"));
        let (wanted, got) = (row.log_sum_exp(), f64::from(f32::from_bits(bits)));
        if !wanted.admits(bits.into()) {
            return Err(fault("the log-sum-exp".to_owned(), got, wanted));
        }
        ratios.log_sum_exp = ratios.log_sum_exp.max(wanted.ratio(got));
        let value = |key: usize, column: usize| seen[key][column];
        for column in 0..dv as usize {
            let byte = o.byte(index * dv as usize + column);
            let bits =
                after[byte..byte + width].iter().rev().fold(0, |bits, &byte| bits << 8 | u64::from(byte));
            let wanted = row.output(output, |key| value(key, column));
            let got = output.decode(bits);
            if !wanted.admits(bits) {
                return Err(fault(format!("element {column}"), got, wanted));
            }
            ratios.o = ratios.o.max(wanted.ratio(got));
        }
    }
    Ok(ratios)
}

/// The kernel of a spec's text.
pub(crate) fn attention(spec: &str) -> Attention {
    let spec: AttentionSpec = spec.parse().unwrap_or_else(|error| panic!("{spec}: {error}"));
    Attention::new(spec).unwrap_or_else(|error| panic!("{spec}: {error}"))
}
