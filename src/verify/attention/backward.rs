//! Checks the backward pass: random inputs, an f64 reference, a bound per element, and memory around the gradients that must not
//! change.
//!
//! O and the log-sum-exp are those of the forward pass: of the reference, or, for problems that are large, of a kernel on the
//! same engine.
//!
//! ```
//! use falchion::attention::AttentionProblem;
//! use falchion::attention::backward::AttentionBackward;
//! use falchion::prelude::Emulator;
//! use falchion::verify::attention::Case;
//!
//! let kernel = AttentionBackward::new("d=64 tile=64x64 mask=causal".parse()?)?;
//! let case = Case::new(AttentionProblem::new(1, 2, [70, 100], 64));
//! let checked = case.check_backward(&mut Emulator::new(), &kernel, None)?;
//! assert!(checked.d_q.ratio <= 1.0 && checked.rows == 140 + 200);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

#[cfg(test)]
mod tests;

use attention::backward::{AttentionBackward, BackwardCall};
use attention::{Attention, AttentionCall, AttentionProblem, AttentionSpec, Lengths, Packed, Scope};
use collective::Bounded;
use kernel::{Buffer, Engine, EngineError, Kernel};
use reference::Wanted;
use reference::attention::sequences::{Gradients, Places};
use reference::attention::{Row, Score};

use super::{AttentionFault, Case, Largest, Tensor, named};

/// What was found right.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Checked {
    /// Errors of dQ.
    pub d_q: Largest,
    /// Errors of dK.
    pub d_k: Largest,
    /// Errors of dV.
    pub d_v: Largest,
    /// Number of queries and keys that were compared.
    pub rows: usize,
}

/// A case in the memory of an engine.
pub struct Uploaded<'a> {
    case: &'a Case,
    kernel: &'a AttentionBackward,
    places: Places,
    /// Q, K, V, O, dO, dQ, dK and dV.
    tensors: [Tensor; 8],
    log_sum_exp: Vec<f64>,
    buffers: Vec<Buffer>,
    /// The call.
    pub call: BackwardCall,
}

impl core::fmt::Debug for Uploaded<'_> {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Uploaded").field("case", self.case).field("call", &self.call).finish_non_exhaustive()
    }
}

/// Whether a query sees a key, by a kernel's mask.
fn sees(
    (kernel, places): (&AttentionBackward, &Places),
    counts: &[i32],
    reals: &[f32],
    place: [usize; 4],
) -> bool {
    let counts: Vec<i64> = counts.iter().map(|&count| count.into()).collect();
    let reals: Vec<_> = reals.iter().map(|&real| Bounded::exact(real.into())).collect();
    let [queries, keys] = [0, 1].map(|side| places.rows(place[0], side) as i64);
    let [batch, head, row, key] = place.map(|number| number as i64);
    kernel.sees(&Scope { queries, keys, head, batch, counts: &counts, reals: &reals }, row, key)
}

/// Which of the tensors are compared.
const GRADIENTS: [usize; 3] = [5, 6, 7];

impl Case {
    /// Runs the backward pass of the case on an engine, and compares its results. With `forward`, O and the log-sum-exp are
    /// that kernel's, and not the reference's.
    ///
    /// # Errors
    /// The first wrong result, or why the engine could not run it.
    pub fn check_backward(
        &self,
        engine: &mut dyn Engine,
        kernel: &AttentionBackward,
        forward: Option<&Attention>,
    ) -> Result<Checked, AttentionFault> {
        let uploaded = self.upload_backward(engine, kernel, forward)?;
        let ran = kernel.run(engine, &uploaded.call).map_err(AttentionFault::from);
        let checked = ran.and_then(|_| uploaded.compare(engine));
        uploaded.free(engine)?;
        checked
    }

    /// Allocates the case's memory on an engine. The gradients are NaN.
    ///
    /// # Errors
    /// The engine has not enough memory, or could not run the forward pass.
    pub fn upload_backward<'a>(
        &'a self,
        engine: &mut dyn Engine,
        kernel: &'a AttentionBackward,
        forward: Option<&Attention>,
    ) -> Result<Uploaded<'a>, EngineError> {
        let spec = kernel.plan().spec;
        let packed = spec.lengths == Lengths::Packed;
        let (problem, sequences) =
            self.sequences(&AttentionSpec { lengths: spec.lengths, ..AttentionSpec::DEFAULT });
        let AttentionProblem { batch, heads, queries, keys, .. } = problem;
        let lengths = match packed {
            true => sequences.iter().map(|of| of.rows).collect(),
            false => vec![[queries, keys]; batch as usize],
        };
        let places = Places::of(lengths, heads, packed);
        let (format, [d, dv]) = (named(spec.format), spec.head);
        let [first_q, first_k] = [0, 1].map(|side| places.extents(side));
        let with = |[batch, heads, rows]: [u32; 3], d| [batch, heads, rows, d];
        let nothing = |extents| Tensor::new(format, self.layout, extents, || format.round(f64::NAN));
        let [mut q, mut k, mut v] = self.operands(first_q, [first_k; 2], [format; 2], [d, dv]);
        let mut o = nothing(with(first_q, dv));
        let mut d_o = self.uniform(0x5678, format, with(first_q, dv));
        if packed {
            // Queries without keys, and keys without queries: no other sequence may be affected.
            let alone = |side: usize, index: usize| {
                let [sequence, ..] = places.place(side, index);
                places.rows(sequence, 1 - side) == 0
            };
            for row in (0..q.rows()).filter(|&row| alone(0, row)) {
                [&mut q, &mut d_o].into_iter().for_each(|tensor| tensor.poison(row));
            }
            for row in (0..k.rows()).filter(|&row| alone(1, row)) {
                [&mut k, &mut v].into_iter().for_each(|tensor| tensor.poison(row));
            }
        }
        let table = |side: usize| -> Vec<u8> {
            let begins = places.sequences.iter().map(|of| of.before[side]).chain([places.all(side)]);
            begins.flat_map(u32::to_le_bytes).collect()
        };
        let tables = [engine.upload(&table(0))?, engine.upload(&table(1))?];
        let rows = [places.all(0), places.all(1)];
        let packed = Packed { begins: tables.map(|table| table.address), rows };
        let mut tensors = [q, k, v];
        let log_sum_exp = match forward {
            Some(forward) => self.forward(engine, forward, (problem, packed), &tensors, &mut o)?,
            None => self.reference(kernel, &places, &tensors, &mut o),
        };
        let [q, k, v] = &mut tensors;
        let take = |tensor: &mut Tensor| core::mem::replace(tensor, nothing([0; 4]));
        let tensors = [
            take(q),
            take(k),
            take(v),
            o,
            d_o,
            nothing(with(first_q, d)),
            nothing(with(first_k, d)),
            nothing(with(first_k, dv)),
        ];
        let mut buffers = Vec::new();
        for tensor in &tensors {
            buffers.push(engine.upload(&tensor.bytes)?);
        }
        let rows: Vec<u8> = log_sum_exp.iter().flat_map(|&value| (value as f32).to_le_bytes()).collect();
        buffers.push(engine.upload(&[&rows[..], &[0xff; 32]].concat())?);
        let at = |i: usize| tensors[i].placed(buffers[i].address);
        let forward = AttentionCall {
            log_sum_exp: buffers[8].address,
            packed,
            counts: self.counts.clone(),
            reals: self.reals.clone(),
            ..AttentionCall::new(problem, [at(0), at(1), at(2)], at(3))
        };
        let mut call = BackwardCall::of(forward, at(4), [at(5), at(6), at(7)]);
        // What is in the workspace does not matter: it is NaN.
        let Buffer { bytes, .. } = Buffer::new(0, kernel.workspace(&problem, &packed));
        let memory = engine.allocate(bytes)?;
        engine.repeat(memory, &[0xff])?;
        call.workspace = Some(memory);
        buffers.push(memory);
        buffers.extend(tables);
        Ok(Uploaded { case: self, kernel, places, tensors, log_sum_exp, buffers, call })
    }

    /// Fills O by a kernel, and returns the log-sum-exp.
    fn forward(
        &self,
        engine: &mut dyn Engine,
        forward: &Attention,
        (problem, packed): (AttentionProblem, Packed),
        operands: &[Tensor; 3],
        o: &mut Tensor,
    ) -> Result<Vec<f64>, EngineError> {
        let mut buffers = Vec::new();
        for tensor in operands.iter().chain([&*o]) {
            buffers.push(engine.upload(&tensor.bytes)?);
        }
        buffers.push(engine.allocate(o.rows() * 4)?);
        let at = |i: usize| operands[i].placed(buffers[i].address);
        let call = AttentionCall {
            log_sum_exp: buffers[4].address,
            packed,
            counts: self.counts.clone(),
            reals: self.reals.clone(),
            ..AttentionCall::new(problem, [at(0), at(1), at(2)], o.placed(buffers[3].address))
        };
        forward.run(engine, &call)?;
        o.bytes = engine.read(buffers[3])?;
        let rows = engine.read(buffers[4])?;
        buffers.into_iter().try_for_each(|buffer| engine.free(buffer))?;
        let value = |bytes: &[u8]| {
            f64::from(f32::from_bits(bytes.iter().rev().fold(0, |bits, &byte| bits << 8 | u32::from(byte))))
        };
        Ok(rows.chunks_exact(4).take(o.rows()).map(value).collect())
    }

    /// Fills O by the reference, and returns the log-sum-exp.
    fn reference(
        &self,
        kernel: &AttentionBackward,
        places: &Places,
        operands: &[Tensor; 3],
        o: &mut Tensor,
    ) -> Vec<f64> {
        let ([q, k, v], [heads, shared]) = (operands, places.heads);
        let width = o.format.bytes() as usize;
        let mut log_sum_exp = Vec::new();
        for index in 0..o.rows() {
            let [b, h, r] = places.place(0, index);
            let (query, mut row, mut seen) = (q.values(index), Row::new(q.format, 64), Vec::new());
            let visible = |key| sees((kernel, places), &self.counts, &self.reals, [b, h, r, key]);
            for key in (0..places.rows(b, 1)).filter(|&key| visible(key)) {
                let at = places.index(1, [b, h / (heads / shared), key]);
                row.key(Score::of(&query, &k.values(at), self.problem.scale));
                seen.push(at);
            }
            let place = o.byte(index);
            let wanted = row.outputs(o.format, o.extents[3] as usize, &|key| v.values(seen[key]));
            for (at, wanted) in (place..place + o.row_bytes()).step_by(width).zip(wanted) {
                let bits = o.format.round(wanted.value).to_le_bytes();
                o.bytes[at..at + width].copy_from_slice(&bits[..width]);
            }
            log_sum_exp.push(f64::from(row.log_sum_exp().value as f32));
        }
        log_sum_exp
    }
}

impl Uploaded<'_> {
    /// Compares what the programs have written.
    ///
    /// # Errors
    /// The first wrong result, or a failure of the engine.
    pub fn compare(&self, engine: &mut dyn Engine) -> Result<Checked, AttentionFault> {
        let mut checked = Checked::default();
        let after = self.gradients(engine)?;
        for (i, memory) in GRADIENTS.into_iter().zip(&after) {
            let tensor = &self.tensors[i];
            if !tensor.is_same_around(memory) {
                return Err(AttentionFault::Memory("memory around a gradient was written"));
            }
            if tensor.keeps_an_element(memory) {
                return Err(AttentionFault::Memory("an element of a gradient was not written"));
            }
        }
        let mut random = fastrand::Rng::with_seed(self.case.seed);
        let [d_q, d_k, d_v] = &after[..] else { return Ok(checked) };
        let Case { counts, reals, problem, .. } = self.case;
        let expected = Gradients {
            places: &self.places,
            scale: problem.scale,
            format: self.tensors[0].format,
            sees: &|place| sees((self.kernel, &self.places), counts, reals, place),
            row: &|name, index| {
                let tensor = self.tensors.iter().zip(NAMES).find(|(_, of)| *of == name);
                tensor.map_or_else(Vec::new, |(tensor, _)| tensor.values(index))
            },
            log_sum_exp: &|index| self.log_sum_exp[index],
        };
        for (of_queries, count) in [(true, self.tensors[5].rows()), (false, self.tensors[6].rows())] {
            let rows = count.min(self.case.rows);
            for i in 0..rows {
                let index = if rows == count { i } else { random.usize(0..count) };
                if of_queries {
                    self.compare_row((5, index), d_q, &expected.query(index), &mut checked.d_q)?;
                } else {
                    let [of_k, of_v] = expected.key(index);
                    self.compare_row((6, index), d_k, &of_k, &mut checked.d_k)?;
                    self.compare_row((7, index), d_v, &of_v, &mut checked.d_v)?;
                }
            }
            checked.rows += rows;
        }
        Ok(checked)
    }

    /// The bytes of dQ, dK and dV with the memory around them.
    ///
    /// # Errors
    /// A failure of the engine.
    pub fn gradients(&self, engine: &mut dyn Engine) -> Result<Vec<Vec<u8>>, EngineError> {
        GRADIENTS.into_iter().map(|i| engine.read(self.buffers[i])).collect()
    }

    /// Compares a row of a gradient.
    fn compare_row(
        &self,
        (i, index): (usize, usize),
        memory: &[u8],
        wanted: &[Wanted],
        largest: &mut Largest,
    ) -> Result<(), AttentionFault> {
        let tensor = &self.tensors[i];
        for (column, bits) in tensor.row(memory, index).enumerate() {
            let (wanted, got) = (wanted[column], tensor.format.decode(bits));
            if !wanted.admits(bits) {
                let place = self.places.place(usize::from(i > 5), index).map(|number| number as u32);
                let what = format!("element {column} of {}", NAMES[i]);
                return Err(AttentionFault::Value { what, place, keys: 0, got, wanted });
            }
            largest.add(&wanted, got);
        }
        Ok(())
    }

    /// Frees the memory.
    ///
    /// # Errors
    /// The engine's.
    pub fn free(self, engine: &mut dyn Engine) -> Result<(), EngineError> {
        self.buffers.into_iter().try_for_each(|buffer| engine.free(buffer))
    }
}

/// The names of the tensors of a call, in the order of [`Uploaded`].
const NAMES: [&str; 8] = ["Q", "K", "V", "O", "dO", "dQ", "dK", "dV"];
