//! Experts that are divided: tokens travel to them and back.

use std::collections::HashMap;

use falchion::collective::{Formula, MatrixRef};
use falchion::cute_rs::atom::Major;
use falchion::kernel::{GemmProblem, GroupedProblem, LinearArguments, Request, Types};
use falchion_core::{Epilogue, Gemm, Kind as SlotKind, aligned};

use super::cut::{Cut, Weights, divided};
use super::half;
use crate::device::nccl::{Collective, Message};
use crate::device::{Memory, Ready};
use crate::element::Element;
use crate::error::Error;
use crate::group::{Group, exactly};
use crate::own::Own;
use crate::rows::{Gather, Gathered};
use crate::tensor::{Slice, SliceMut};

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
/// receives is one grouped GEMM per layer.
///
/// Ranks first exchange how many rows go where, through the host: so each call waits for the host, and cannot be part
/// of a CUDA graph. `T` is `bf16` or `f16`.
#[derive(Debug)]
pub struct Experts<T> {
    /// Experts of all ranks, and of each.
    count: [u32; 2],
    layers: [Grouped; 2],
    dispatch: Own<Gather>,
    combine: Own<Gather>,
    of: core::marker::PhantomData<T>,
}

/// A rank's grouped GEMMs of one layer.
#[derive(Debug)]
struct Grouped {
    types: Types,
    formula: Option<Formula>,
    /// Outputs and inputs of an expert.
    extents: [u32; 2],
    weight: Memory,
    /// By the number of rows, rounded up.
    prepared: HashMap<u32, Ready>,
}

impl Grouped {
    fn new<T: Element>(group: &Group, name: &str, all: &Weights<'_>, count: u32) -> Result<Self, Error> {
        let format = half::<T>(&format!("the dtype of {name}"), all.kind())?;
        let [rows, k] = all.extents();
        if !rows.is_multiple_of(count) {
            let needed = format!("a multiple of {count}, the number of experts");
            return Err(Error::argument(format!("the rows of {name}"), rows, needed));
        }
        let part = all.rows_of(&Cut::Rows, (group.rank(), group.size()))?;
        let weight = group.device().allocate(part.bytes.len())?;
        group.device().write(&weight, &part.bytes)?;
        let types = Types::of(format);
        Ok(Self { types, formula: None, extents: [rows / count, k], weight, prepared: HashMap::new() })
    }

    fn columns(&self) -> u32 {
        self.extents[0] >> self.formula.map_or(0, Formula::halvings)
    }

    /// Enqueues the GEMMs of these groups of rows, which begin at the numbers at `offsets`.
    fn enqueue(&mut self, group: &mut Group, rows: &[u32], [offsets, a, d]: [u64; 3]) -> Result<(), Error> {
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
        let key = m.checked_next_power_of_two().unwrap_or(u32::MAX);
        let mut ready = match self.prepared.remove(&key) {
            Some(ready) => ready,
            None => Ready::new(Gemm::new(&request, None, group.machine())?),
        };
        let slots = ready.gemm.slots();
        if let Some(slot) = slots.iter().find(|slot| !matches!(slot.kind, SlotKind::Scalar)) {
            let field = format!("the argument `{}` of the experts' epilogue", slot.name);
            return Err(Error::argument(field, "a vector or a matrix", "none: numbers, functions and gates"));
        }
        let epilogue = match self.formula {
            None => Epilogue::Linear(LinearArguments::default()),
            Some(_) => Epilogue::Fused(slots.clone(), vec![None; slots.len()], rows.len() as u32),
        };
        let mut call = request.call.with(epilogue);
        (call.a.address, call.d.address) = (a, d);
        if let GroupedProblem::GroupedContiguous { offsets: own, .. } = &mut call.products {
            *own = offsets;
        }
        group.device().fit(&mut ready, &call)?;
        let enqueued = group.device().multiply(&ready, call);
        self.prepared.insert(key, ready);
        enqueued
    }
}

/// Places in scratch memory, each at a multiple of 256 bytes.
#[derive(Default)]
struct Places(usize);

impl Places {
    fn take(&mut self, bytes: usize) -> usize {
        let at = self.0;
        self.0 = (at + bytes).next_multiple_of(256);
        at
    }
}

impl<T: Element> Experts<T> {
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
            [Grouped::new::<T>(group, "`up`", up, count)?, Grouped::new::<T>(group, "`down`", down, count)?];
        let format = layers[0].types.a;
        layers[0].formula =
            epilogue.map(|text| falchion_core::formula(text, format, Some(format))).transpose()?;
        let ([first, last], inner) = ([layers[0].extents[1], layers[1].extents[0]], layers[0].columns());
        for (field, found, needed) in [
            ("the columns of `down`", layers[1].extents[1], inner),
            ("the rows of an expert of `down`", last, first),
        ] {
            if found != needed {
                return Err(Error::argument(field, found, format!("{needed}, as `up` has")));
            }
        }
        for (field, found) in [("the columns of `up`", first), ("the columns of `down`", inner)] {
            if found % 8 != 0 {
                return Err(Error::argument(field, found, "a multiple of 8"));
            }
        }
        let gather = |weighted| Own::new(Gather { format, weighted });
        let (dispatch, combine) = (gather(false), gather(true));
        Ok(Self { count: [count, own], layers, dispatch, combine, of: core::marker::PhantomData })
    }

    /// Enqueues the layers: of the rank's tokens `x`, with the same number of experts each.
    ///
    /// # Errors
    /// Lengths that do not fit; an expert that is not there; no kernel; the group has failed.
    pub fn forward(
        &mut self,
        group: &mut Group,
        x: Slice<'_, T>,
        routes: Routes<'_>,
        y: SliceMut<'_, T>,
    ) -> Result<(), Error> {
        let (columns, [count, own]) = (self.layers[0].extents[1], self.count);
        let plan = Plan::new(group, [columns, count, own], x.len(), routes)?;
        exactly("the output", y.len(), x.len())?;
        let [sent, received] = [plan.order.len(), plan.rows.iter().sum::<u32>() as usize];
        let width = columns as usize * T::KIND.bytes();
        // What the host says comes first, then the rows.
        let (mut places, mut front) = (Places::default(), Vec::new());
        let mut say = |bytes: Vec<u8>| {
            let at = places.take(bytes.len());
            front.resize(at, 0);
            front.extend(bytes);
            at
        };
        let words = |numbers: &[u32]| crate::element::bytes(numbers);
        let told = [
            say(words(&plan.order)),
            say(words(&plan.position)),
            say(crate::element::bytes(routes.weights)),
            say(words(&plan.offsets)),
        ];
        let inner = self.layers[0].columns() as usize * T::KIND.bytes();
        let taken = [sent * width, received * width, received * inner, received * width, sent * width]
            .map(|bytes| places.take(bytes));
        let scratch = group.scratch_of(places.0, &front)?;
        let [order, position, weights, offsets] = told.map(|at| scratch + at as u64);
        let [sorted, arrived, inner, results, returned] = taken.map(|at| scratch + at as u64);
        let ld = u64::from(columns);
        let gathered = |from, index, choices, rows: usize, d| Gathered {
            rows: rows as u32,
            columns,
            choices,
            table: (MatrixRef::new(from, ld), if choices == 1 { plan.tokens } else { sent as u32 }),
            first: 0,
            limit: u32::MAX,
            index,
            weights,
            d: MatrixRef::new(d, ld),
        };
        let alone = group.size() == 1;
        let to = if alone { arrived } else { sorted };
        self.dispatch.enqueue(group, &gathered(x.address(), order, 1, sent, to))?;
        let travels = |group: &mut Group, [from, to]: [u64; 2], [there, here]: [&[Message]; 2]| match alone {
            true => Ok(()),
            false => {
                let (sent, received) = (there.to_vec(), here.to_vec());
                group.collectives(&[(T::KIND, Collective::AllToAll { from, to, sent, received })])
            }
        };
        travels(group, [sorted, arrived], [&plan.there, &plan.here])?;
        self.layers[0].enqueue(group, &plan.rows, [offsets, arrived, inner])?;
        self.layers[1].enqueue(group, &plan.rows, [offsets, inner, results])?;
        travels(group, [results, returned], [&plan.here, &plan.there])?;
        let from = if alone { results } else { returned };
        let mut combined = gathered(from, position, plan.choices, plan.tokens as usize, y.address());
        combined.table.1 = sent as u32;
        self.combine.enqueue(group, &combined)
    }
}

/// Which rows go where.
struct Plan {
    tokens: u32,
    choices: u32,
    /// Of each row that the rank sends, in the order of experts: its token.
    order: Vec<u32>,
    /// Of each choice of each token: its row.
    position: Vec<u32>,
    /// Rows of each of the rank's experts, and where they begin.
    rows: Vec<u32>,
    offsets: Vec<u32>,
    there: Vec<Message>,
    here: Vec<Message>,
}

impl Plan {
    fn new(
        group: &mut Group,
        [columns, count, own]: [u32; 3],
        elements: usize,
        Routes { experts, weights }: Routes<'_>,
    ) -> Result<Self, Error> {
        let (tokens, width) = (elements / columns as usize, columns as usize);
        exactly("the input", elements, tokens * width)?;
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
        let message = |peer: u32, first: u32, rows: u32| Message {
            peer,
            first: first as usize * width,
            count: rows as usize * width,
        };
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
        let (tokens, choices) = (tokens as u32, choices as u32);
        Ok(Self { tokens, choices, order, position, rows, offsets, there, here })
    }
}
