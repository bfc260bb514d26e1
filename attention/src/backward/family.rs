//! The backward pass as a family of kernels: what is asked, the space of specs, and a prediction.

use kernel::{Family, Machine, Predicted, cheapest};

use super::call::BackwardCall;
use super::kernel::AttentionBackward;
use super::spec::BackwardSpec;
use crate::family::AttentionRequest;
use crate::kernel::Attention;
use crate::problem::{AttentionProblem, HeadsRef};
use crate::spec::{Lengths, Mask};

/// Operations of a `wgmma` of 16-bit formats, per SM and cycle of an H200.
const RATE: f64 = 4096.0;
/// Cycles of an SM for a score in addition to its products: what is not covered by those of the other consumer.
const SCORE: f64 = 0.055;
/// Cycles of a tile of queries, and of a block of keys, in addition.
const TILE: f64 = 250.0;
const BLOCK: f64 = 4000.0;
/// Microseconds of three launches; and megabytes per microsecond of the first and the last program.
const LAUNCHES: f64 = 6.0;
const MEGABYTES: f64 = 2.5;

impl AttentionBackward {
    /// Predicted microseconds. The numbers of this model are from a few kernels on an H100.
    fn predict(&self, problem: &AttentionProblem, machine: &Machine) -> f64 {
        let AttentionProblem { batch, heads: [heads, shared], queries, keys, .. } = *problem;
        let BackwardSpec { tile: [rows, block], mask, .. } = self.plan().spec;
        let wide = f64::from(self.plan().wide);
        let scores = f64::from(rows) * f64::from(block);
        let tile = scores * (10.0 * wide / (RATE * machine.tensor) + SCORE) + TILE;
        let share = f64::from(heads) / f64::from(shared.max(1));
        let part = if mask == Mask::Full { 1.0 } else { 0.5 };
        let tiles = f64::from(queries.div_ceil(rows)) * part + if mask == Mask::Full { 0.0 } else { 0.5 };
        let blocks = f64::from(batch) * f64::from(shared) * f64::from(keys.div_ceil(block));
        let multiprocessors = f64::from(machine.multiprocessors);
        // CTAs of a mask differ, so no wave ends at once.
        let waves = blocks / multiprocessors;
        let waves = if mask == Mask::Full { waves.ceil() } else { waves.max(1.0) + 0.5 };
        let elements = f64::from(batch) * f64::from(heads) * f64::from(queries) * wide;
        let passes = elements * 14.0 / 1e6 / MEGABYTES;
        LAUNCHES + passes + waves * (tiles * share * tile + BLOCK) / machine.cycles
    }
}

/// The request's part of a spec.
fn words(request: &AttentionRequest) -> Result<BackwardSpec, String> {
    let AttentionRequest { format, cache, output, head: [d, dv], mask, lengths, pages, fixed, .. } = *request;
    if !matches!(mask, Mask::Full | Mask::Causal) {
        return Err(format!("mask is {}, full or causal was needed for a gradient", mask.name()));
    }
    if lengths != Lengths::Equal || pages.is_some() || cache.is_some() || fixed {
        return Err("lengths=packed, pages, cache and fixed=on are words of the forward pass".to_owned());
    }
    if output != format {
        return Err(format!("output is {output}, {format} was needed: all tensors have one format"));
    }
    if d != dv {
        return Err(format!("heads of Q have {d} elements and those of V {dv}, the same number was needed"));
    }
    Ok(BackwardSpec { format, head: d, mask, ..BackwardSpec::DEFAULT })
}

impl Family for AttentionBackward {
    const NAME: &'static str = "attention-backward";
    type Request<'r> = AttentionRequest;
    type Problem = String;
    type Spec = BackwardSpec;
    type Call = BackwardCall;

    fn of_spec(spec: &BackwardSpec) -> Result<Self, String> {
        Self::new(*spec).map_err(|error| error.to_string())
    }

    fn spec(&self) -> Option<BackwardSpec> {
        self.has_mask_of_spec().then_some(self.plan().spec)
    }

    /// As of the forward pass: `4x16/16x4096x4096 mask=causal`.
    fn problem(request: &AttentionRequest) -> String {
        Attention::problem(request)
    }

    fn call(request: &AttentionRequest) -> BackwardCall {
        let AttentionRequest { head: [d, dv], problem, .. } = *request;
        let AttentionProblem { heads: [heads, shared], queries, keys, .. } = problem;
        let packed = |heads, length, d| HeadsRef::heads_first(0, [heads, length, d]);
        BackwardCall {
            problem,
            q: packed(heads, queries, d),
            k: packed(shared, keys, d),
            v: packed(shared, keys, dv),
            o: packed(heads, queries, dv),
            d_o: packed(heads, queries, dv),
            log_sum_exp: 0,
            d_q: packed(heads, queries, d),
            d_k: packed(shared, keys, d),
            d_v: packed(shared, keys, dv),
            workspace: None,
            counts: Vec::new(),
            reals: Vec::new(),
        }
    }

    fn serves(&self, request: &AttentionRequest) -> Result<(), String> {
        let (spec, asked) = (self.plan().spec, words(request)?);
        let differs = |field: &str, own: &dyn core::fmt::Display, asked: &dyn core::fmt::Display| {
            Err(format!("the kernel's {field} is {own}, {asked} was needed, as the problem says"))
        };
        if spec.format != asked.format {
            return differs("format", &spec.format, &asked.format);
        }
        if spec.head != asked.head { differs("d", &spec.head, &asked.head) } else { Ok(()) }
    }

    fn ranked(
        request: &AttentionRequest,
        machine: &Machine,
        most: usize,
    ) -> Result<Vec<Predicted<Self>>, String> {
        let spec = words(request)?;
        // The plan refuses what does not fit; the first one says why, if nothing does.
        let queries = [64, 128, 80, 48, 32].into_iter();
        let tiles = queries.flat_map(|queries| [128, 64].into_iter().map(move |keys| [queries, keys]));
        let space = tiles.map(|tile| BackwardSpec { tile, ..spec });
        cheapest(space, most, |kernel: &Self| kernel.predict(&request.problem, machine))
    }

    fn operations(request: &AttentionRequest) -> f64 {
        words(request).map_or(0.0, |spec| spec.operations(&request.problem))
    }
}
