//! Experts that are divided: tokens travel to them and back.

mod scratch;

use std::collections::HashMap;

use falchion::collective::{Format, Formula, Input as Of};
use falchion::cute_rs::atom::Major;
use falchion::kernel::{GemmProblem, LinearArguments, Request, Transpose, Types};
use falchion::rows::{Gathered, Gathering, RowGather};
use falchion_core::{Epilogue, Kept, Kind as SlotKind, Slot, aligned};

use self::scratch::{Scratch, Widths};
use super::cut::{Cut, Weights, divided};
use super::product::{multiplied, stored};
use super::{Input, half};
use crate::device::nccl::{Collective, Message};
use crate::device::{Memory, Ready};
use crate::element::{Element, Kind};
use crate::error::Error;
use crate::group::{Group, exactly};
use crate::tensor::SliceMut;

/// Which experts a rank's tokens go to, on the host.
#[derive(Clone, Copy, Debug)]
pub struct Routes<'a> {
    /// Of each token its experts, one after the other.
    pub experts: &'a [u32],
    /// What the result of each of them is multiplied by.
    pub weights: &'a [f32],
}

/// Layers of experts: `Y[t] = sum over the experts e of t of weight * f(X[t] Up[e]^T) Down[e]^T`. Each rank has neighbouring
/// experts and tokens of its own, maybe none. Rows go to the experts' ranks and back by all-to-all, and what a rank
/// receives is one grouped GEMM per layer, whatever the number of rows per expert.
///
/// `A` is `bf16` or `f16`, and so is `D`; or `A` is `e4m3` and `D` is `bf16`. Then weights and tokens have block scales, which travel
/// with the rows, and the first layer's results are quantised with a scale per 128 columns of a row.
///
/// Ranks first exchange how many rows go where, through the host: so each call waits for the host, and cannot be part
/// of a CUDA graph.
#[derive(Debug)]
pub struct Experts<A, D = A> {
    /// Experts of all ranks, and of each.
    count: [u32; 2],
    layers: [Grouped; 2],
    dispatch: Kept<RowGather>,
    combine: Kept<RowGather>,
    /// For scales: their rows are gathered, and both layouts of them.
    scales: Option<(Kept<RowGather>, Kept<Transpose>)>,
    of: core::marker::PhantomData<(A, D)>,
}

/// A rank's grouped GEMMs of one layer.
#[derive(Debug)]
struct Grouped {
    types: Types,
    formula: Option<Formula>,
    /// Outputs and inputs of an expert.
    extents: [u32; 2],
    weight: Memory,
    scales: Option<Memory>,
    /// By the number of rows, rounded up.
    prepared: HashMap<u32, Ready>,
}

/// The memory of grouped GEMMs: where the groups begin, and both matrices with their scales, if they have some.
struct Grouping {
    offsets: u64,
    a: [u64; 2],
    d: [u64; 2],
}

/// The epilogue's argument for the scales of its results.
const SCALES: &str = "scales";

impl Grouped {
    fn new<A: Element>(group: &Group, name: &str, all: &Weights<'_>, count: u32) -> Result<Self, Error> {
        let dtype = format!("the dtype of {name}");
        if all.kind() != A::KIND {
            return Err(Error::argument(dtype, all.kind().name(), A::KIND.name()));
        }
        let [rows, k] = all.extents();
        let part = all.rows_of(&Cut::Rows, (group.rank(), group.size()))?;
        let types = multiplied(&dtype, all.kind(), &part)?;
        let (step, reason) = match (types.is_scaled(), types.a) {
            (true, _) => (128, ", each with whole blocks of scales"),
            (false, Format::E4m3) => {
                return Err(Error::argument(format!("the scales of {name}"), "missing", "one per 128 x 128"));
            }
            (false, _) => (1, ""),
        };
        if !rows.is_multiple_of(count * step) {
            let needed = format!("a multiple of {}, for {count} experts{reason}", count * step);
            return Err(Error::argument(format!("the rows of {name}"), rows, needed));
        }
        let (weight, scales) = stored(group, &part)?;
        Ok(Self {
            types,
            formula: None,
            extents: [rows / count, k],
            weight,
            scales,
            prepared: HashMap::new(),
        })
    }

    /// Sets the epilogue of the first of two layers.
    fn fuse(&mut self, text: Option<&str>) -> Result<(), Error> {
        let text = match (text, self.types.is_scaled()) {
            (None, false) => return Ok(()),
            (Some(text), false) => text.to_owned(),
            (text, true) => {
                self.types.d = self.types.a;
                // What is computed once comes before the result.
                let (before, result) =
                    text.unwrap_or("acc").rsplit_once(';').unwrap_or(("", text.unwrap_or("acc")));
                let before = if before.is_empty() { String::new() } else { format!("{before};") };
                format!("{before}quantize_e4m3({SCALES}, {result})")
            }
        };
        self.formula = Some(falchion_core::formula(&text, self.types.a, Some(self.types.d))?);
        Ok(())
    }

    fn columns(&self) -> u32 {
        self.extents[0] >> self.formula.map_or(0, Formula::halvings)
    }

    /// Enqueues the GEMMs of these groups of rows.
    fn enqueue(&mut self, group: &mut Group, rows: &[u32], at: &Grouping) -> Result<(), Error> {
        let [n, k] = self.extents;
        let m: u32 = rows.iter().sum();
        if m == 0 {
            return Ok(());
        }
        let shapes: Vec<_> = rows.iter().map(|&m| GemmProblem { m, n, k }).collect();
        let request = Request::packed(self.types, [Major::K; 2], GemmProblem { m, n, k });
        let request = self.formula.map_or(request, |formula| request.fused(formula));
        let mut request = request.ragged(&shapes);
        request.call.b.address = self.weight.buffer.address;
        (request.call.a.address, request.call.d.address) = (aligned(256), aligned(256));
        if let (Some(scales), Some(own)) = (&mut request.call.scales, &self.scales) {
            (scales.a.address, scales.b.address) = (at.a[1], own.buffer.address);
        }
        let key = m.checked_next_power_of_two().unwrap_or(u32::MAX);
        let mut ready = match self.prepared.remove(&key) {
            Some(ready) => ready,
            None => Ready::new(group.gemm(&request)?),
        };
        let slots = ready.gemm.kernel().slots();
        let strange = |slot: &&Slot| slot.name != SCALES && !matches!(slot.kind, SlotKind::Scalar);
        if let Some(slot) = slots.iter().find(strange) {
            let field = format!("the argument `{}` of the experts' epilogue", slot.name);
            return Err(Error::argument(field, "a vector or a matrix", "none: numbers, functions and gates"));
        }
        let epilogue = match self.formula {
            None => Epilogue::Linear(LinearArguments::default()),
            Some(_) => {
                let scales = Of::matrix(at.d[1], m.next_multiple_of(4).into());
                let inputs = slots.iter().map(|slot| (slot.name == SCALES).then_some(scales)).collect();
                Epilogue::Fused(slots.clone(), inputs, rows.len() as u32)
            }
        };
        let mut call = request.call.with(epilogue);
        (call.a.address, call.d.address) = (at.a[0], at.d[0]);
        call.products = call.products.at(at.offsets);
        group.device().fit(&mut ready, &call)?;
        let enqueued = group.device().multiply(&ready, call);
        self.prepared.insert(key, ready);
        enqueued
    }
}

impl<A: Element, D: Element> Experts<A, D> {
    /// A rank's part of `count` experts: their weights `up` and `down`, one expert below the other, and the epilogue of the
    /// first layer, such as `silu(acc)` or `gated(silu, acc)`.
    ///
    /// # Errors
    /// Experts that do not divide by the number of ranks; weights whose extents do not fit each other; no formula, or
    /// one with vectors; the device has not enough memory.
    pub fn new(
        group: &Group,
        count: u32,
        [up, down]: [&Weights<'_>; 2],
        epilogue: Option<&str>,
    ) -> Result<Self, Error> {
        if count == 0 {
            return Err(Error::argument("the number of experts", count, "at least 1"));
        }
        let own = divided("the number of experts", count, group.size())?;
        let mut layers =
            [Grouped::new::<A>(group, "`up`", up, count)?, Grouped::new::<A>(group, "`down`", down, count)?];
        let format = half::<D>("the output's dtype", Kind::Float(layers[1].types.d))?;
        layers[0].fuse(epilogue)?;
        let ([first, last], inner) = ([layers[0].extents[1], layers[1].extents[0]], layers[0].columns());
        for (field, found, needed) in [
            ("the columns of `down`", layers[1].extents[1], inner),
            ("the rows of an expert of `down`", last, first),
        ] {
            if found != needed {
                return Err(Error::argument(field, found, format!("{needed}, as `up` has")));
            }
        }
        let step = 16 / A::KIND.bytes() as u32;
        for (field, found) in [("the columns of `up`", first), ("the columns of `down`", inner)] {
            if found % step != 0 {
                return Err(Error::argument(field, found, format!("a multiple of {step}")));
            }
        }
        let gather = |how| Kept::of(RowGather { format, how });
        let transpose = Transpose::of(Format::F32).filter(|_| layers[0].types.is_scaled());
        let scales = transpose.map(|transpose| (gather(Gathering::Words), Kept::of(transpose)));
        let (dispatch, combine) = (gather(Gathering::Copied), gather(Gathering::Weighted));
        Ok(Self { count: [count, own], layers, dispatch, combine, scales, of: core::marker::PhantomData })
    }

    /// Enqueues the layers: of the rank's tokens `x`, with the same number of experts each.
    ///
    /// # Errors
    /// Lengths that do not fit; an expert that is not there; no kernel; the group has failed.
    pub fn forward<'x>(
        &mut self,
        group: &mut Group,
        x: impl Into<Input<'x, A>>,
        routes: Routes<'_>,
        y: SliceMut<'_, D>,
    ) -> Result<(), Error> {
        let (x, columns, [count, own]) = (x.into(), self.layers[0].extents[1], self.count);
        let tokens = x.tokens(columns, self.scales.is_some())?;
        exactly("the output", y.len(), x.values.len())?;
        let plan = Plan::new(group, [columns, count, own], tokens, routes)?;
        let blocks = if self.scales.is_some() { columns.div_ceil(128) } else { 0 };
        let widths = Widths {
            columns: [columns, self.layers[1].extents[1]],
            bytes: [A::KIND.bytes(), D::KIND.bytes()],
            inner: self.layers[0].columns(),
            blocks,
        };
        let at = Scratch::new(group, &plan, routes.weights, tokens, &widths)?;
        let alone = group.size() == 1;
        let to = if alone { at.arrived } else { at.sorted };
        let [of_x, of_y] = [A::KIND, D::KIND].map(|kind| columns as usize * kind.bytes());
        let sent = plan.order.len();
        let dispatched = at.gathered([x.values.address(), at.order, to], of_x, sent, tokens);
        group.enqueue_checked(&self.dispatch, &dispatched)?;
        let mut dispatch = vec![(A::KIND, plan.to_experts(at.sorted, at.arrived, columns))];
        if let (Some(scales), Some(own)) = (&self.scales, x.scales) {
            at.sort_scales(group, scales, (own.address(), tokens), (sent as u32, blocks))?;
            dispatch.push((f32::KIND, plan.to_experts(at.sorted_scales, at.arrived_scales, blocks)));
        }
        if !alone {
            group.collectives(&dispatch)?;
        }
        if let (Some((_, transpose)), Some(_)) = (&self.scales, x.scales) {
            at.turn_scales(group, transpose, (plan.received(), blocks))?;
        }
        let up = Grouping { offsets: at.offsets, a: [at.arrived, at.scales], d: [at.inner, at.inner_scales] };
        self.layers[0].enqueue(group, &plan.rows, &up)?;
        let down = Grouping { offsets: at.offsets, a: [at.inner, at.inner_scales], d: [at.results, 0] };
        self.layers[1].enqueue(group, &plan.rows, &down)?;
        if !alone {
            group.collectives(&[(D::KIND, plan.to_tokens(at.results, at.returned, columns))])?;
        }
        let from = if alone { at.results } else { at.returned };
        let combined = at.gathered([from, at.position, y.address()], of_y, tokens as usize, sent as u32);
        group.enqueue_checked(&self.combine, &Gathered { choices: plan.choices, ..combined })
    }
}

/// Which rows go where.
struct Plan {
    choices: u32,
    /// Of each row that the rank sends, in the order of experts: its token.
    order: Vec<u32>,
    /// Of each choice of each token: its row.
    position: Vec<u32>,
    /// Rows of each of the rank's experts, and where they begin.
    rows: Vec<u32>,
    offsets: Vec<u32>,
    /// Rows that are sent, and received.
    there: Vec<Message>,
    here: Vec<Message>,
}

/// What is sent and received from here to there.
fn travels(from: u64, to: u64, [sent, received]: [&[Message]; 2], width: u32) -> Collective {
    let rows = |of: &[Message]| of.iter().map(|of| of.times(width as usize)).collect();
    Collective::AllToAll { from, to, sent: rows(sent), received: rows(received) }
}

impl Plan {
    /// Rows that the rank receives.
    fn received(&self) -> u32 {
        self.rows.iter().sum()
    }

    /// Rows of `width` numbers on their way to the experts' ranks.
    fn to_experts(&self, from: u64, to: u64, width: u32) -> Collective {
        travels(from, to, [&self.there, &self.here], width)
    }

    /// The same rows on their way back.
    fn to_tokens(&self, from: u64, to: u64, width: u32) -> Collective {
        travels(from, to, [&self.here, &self.there], width)
    }

    fn new(
        group: &mut Group,
        [columns, count, own]: [u32; 3],
        tokens: u32,
        Routes { experts, weights }: Routes<'_>,
    ) -> Result<Self, Error> {
        let tokens = tokens as usize;
        let choices = experts.len().checked_div(tokens).unwrap_or(0);
        exactly("the routes' experts", experts.len(), tokens * choices)?;
        exactly("the routes' weights", weights.len(), experts.len())?;
        if tokens > 0 && choices == 0 {
            return Err(Error::argument("the routes' experts", "none", "at least one per token"));
        }
        if u32::try_from(experts.len()).is_err() {
            return Err(Error::argument("the routes' experts", experts.len(), "less than 2^32"));
        }
        if let Some(expert) = experts.iter().find(|&&expert| expert >= count) {
            return Err(Error::argument("an expert of the routes", expert, format!("less than {count}")));
        }
        let mut sent = vec![0u32; count as usize];
        experts.iter().for_each(|&expert| sent[expert as usize] += 1);
        let mut next: Vec<u32> = sent
            .iter()
            .scan(0, |end, rows| {
                *end += rows;
                Some(*end - rows)
            })
            .collect();
        let begins = next.clone();
        let (mut order, mut position) = (vec![0; experts.len()], Vec::with_capacity(experts.len()));
        for (i, &expert) in experts.iter().enumerate() {
            let row = &mut next[expert as usize];
            order[*row as usize] = (i / choices) as u32;
            position.push(*row);
            *row += 1;
        }
        let what = format!("rows for {count} experts of {columns} columns");
        let all: Vec<Vec<u32>> = group
            .exchange(&what, &crate::element::bytes(&sent))?
            .iter()
            .map(|bytes| crate::element::numbers(bytes))
            .collect();
        let message =
            |peer: u32, first: u32, rows: u32| Message { peer, first: first as usize, count: rows as usize };
        let there = (0..).zip(begins.iter().zip(&sent));
        let there = there.map(|(expert, (&first, &rows))| message(expert / own, first, rows)).collect();
        let (mut offsets, mut rows, mut here, mut end) = (vec![0], Vec::new(), Vec::new(), 0u32);
        for expert in own * group.rank()..own * (group.rank() + 1) {
            let first = end;
            for (peer, sent) in (0..).zip(&all) {
                let rows = sent[expert as usize];
                here.push(message(peer, end, rows));
                end = end.checked_add(rows).ok_or_else(|| {
                    Error::argument("the rows that a rank receives", "2^32 or more", "less")
                })?;
            }
            rows.push(end - first);
            offsets.push(end);
        }
        let choices = choices as u32;
        Ok(Self { choices, order, position, rows, offsets, there, here })
    }
}
