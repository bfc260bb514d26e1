//! The scratch memory of a call: what the host says, the rows on their way, and their scales.

use falchion::collective::MatrixRef;
use falchion::kernel::{Transpose, Transposition};

use super::Plan;
use crate::error::Error;
use crate::group::Group;
use crate::layer::product::scale_count;
use falchion::rows::{Gathered, RowGather};
use falchion_core::Kept;

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

/// How wide rows are.
pub(super) struct Widths {
    /// Columns that each layer reads.
    pub(super) columns: [u32; 2],
    /// Bytes of a number of a token, and of a result.
    pub(super) bytes: [usize; 2],
    /// Numbers that the first layer writes.
    pub(super) inner: u32,
    /// Blocks of scales of a token; 0 without scales.
    pub(super) blocks: u32,
}

/// Addresses in scratch memory.
pub(super) struct Scratch {
    /// What the plan says, and the weights of the routes.
    pub(super) order: u64,
    pub(super) position: u64,
    weights: u64,
    pub(super) offsets: u64,
    /// Rows of tokens as they are sent, and as they arrive.
    pub(super) sorted: u64,
    pub(super) arrived: u64,
    /// Rows of what the layers compute, and what returns of them.
    pub(super) inner: u64,
    pub(super) results: u64,
    pub(super) returned: u64,
    /// Of the scales: rows of tokens, sent, received; and as both layers take them.
    by_token: u64,
    pub(super) sorted_scales: u64,
    pub(super) arrived_scales: u64,
    pub(super) scales: u64,
    pub(super) inner_scales: u64,
}

impl Scratch {
    /// Takes the memory of a call with this plan. What the host says comes first, then the rows.
    pub(super) fn new(
        group: &mut Group,
        plan: &Plan,
        weights: &[f32],
        tokens: u32,
        widths: &Widths,
    ) -> Result<Self, Error> {
        let Widths { columns, bytes, inner, blocks } = *widths;
        let [sent, received] = [plan.order.len(), plan.received() as usize];
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
            say(crate::element::bytes(weights)),
            say(words(&plan.offsets)),
        ];
        let [of_x, of_y] = bytes.map(|bytes| columns[0] as usize * bytes);
        let inner = inner as usize * bytes[0];
        let taken = [sent * of_x, received * of_x, received * inner, received * of_y, sent * of_y]
            .map(|bytes| places.take(bytes));
        let row = blocks as usize * 4;
        let [by_layer, by_inner] =
            columns.map(|k| if blocks > 0 { 4 * scale_count(received as u32, k) } else { 0 });
        let scaled = [tokens as usize * row, sent * row, received * row, by_layer, by_inner]
            .map(|bytes| places.take(bytes));
        let scratch = group.scratch_of(places.0, &front)?;
        let [order, position, weights, offsets] = told.map(|at| scratch + at as u64);
        let [sorted, arrived, inner, results, returned] = taken.map(|at| scratch + at as u64);
        let [by_token, sorted_scales, arrived_scales, scales, inner_scales] =
            scaled.map(|at| scratch + at as u64);
        Ok(Self {
            order,
            position,
            weights,
            offsets,
            sorted,
            arrived,
            inner,
            results,
            returned,
            by_token,
            sorted_scales,
            arrived_scales,
            scales,
            inner_scales,
        })
    }

    /// Rows of 16-bit numbers, or of what has as many bits.
    pub(super) fn gathered(
        &self,
        [from, index, d]: [u64; 3],
        bytes: usize,
        rows: usize,
        of: u32,
    ) -> Gathered {
        let ld = bytes as u64 / 2;
        Gathered {
            rows: rows as u32,
            columns: ld as u32,
            choices: 1,
            table: (MatrixRef::new(from, ld), of),
            first: 0,
            limit: u32::MAX,
            index,
            weights: self.weights,
            d: MatrixRef::new(d, ld),
        }
    }

    /// Enqueues the scales of `tokens` in the order in which `sent` rows are sent.
    pub(super) fn sort_scales(
        &self,
        group: &mut Group,
        (gather, transpose): &(Kept<RowGather>, Kept<Transpose>),
        (own, tokens): (u64, u32),
        (sent, blocks): (u32, u32),
    ) -> Result<(), Error> {
        let a = [(own, tokens.next_multiple_of(4)), (self.by_token, blocks)];
        group.enqueue_checked(transpose, &turned([blocks, tokens], a))?;
        let to = if group.size() == 1 { self.arrived_scales } else { self.sorted_scales };
        let (row, sent) = (blocks as usize * 4, sent as usize);
        group.enqueue_checked(gather, &self.gathered([self.by_token, self.order, to], row, sent, tokens))
    }

    /// Enqueues the scales of `received` rows as the first layer takes them.
    pub(super) fn turn_scales(
        &self,
        group: &mut Group,
        transpose: &Kept<Transpose>,
        (received, blocks): (u32, u32),
    ) -> Result<(), Error> {
        let a = [(self.arrived_scales, blocks), (self.scales, received.next_multiple_of(4))];
        group.enqueue_checked(transpose, &turned([received, blocks], a))
    }
}

/// A transposition of a matrix with these addresses and leading dimensions.
fn turned([rows, columns]: [u32; 2], [a, d]: [(u64, u32); 2]) -> Transposition {
    let [a, d] = [a, d].map(|(address, ld)| MatrixRef::new(address, ld.into()));
    Transposition { rows, columns, count: 1, a, d }
}
