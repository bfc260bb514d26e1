//! Dropout, with a mask that need not be stored.

use core::marker::PhantomData;

use ptx::{Value, Var};

use super::{
    AnyNode, Begin, Bounded, Given, Host, Node, NodeState, NodeTraits, NodeValue, NodeWord, Number, Pair,
    Part, Shape, Site, Spell, State, Supplied, Supply, Takes, combined,
};
use crate::random::{Word, philox};

/// X times `1 / (1 - p)`, or zero with probability `p`.
///
/// Whether element (row, column) is kept depends only on the arguments, the row and the column
/// ([`DropoutArgument::keeps`]). So kernels with other tiles, and the backward pass, see the same mask. The
/// coordinates are those of X's value. A dropped element is zero for any X, even NaN.
#[derive(Clone, Copy, Debug)]
pub struct Dropout<X>(PhantomData<X>);

/// Arguments of [`Dropout`].
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct DropoutArgument {
    /// The fraction of elements that is dropped: at least 0, less than 1, in steps of 2^-32.
    pub probability: f32,
    /// The key of the generator.
    pub seed: u64,
    /// The upper half of the generator's counter: use a different one each time a seed is reused.
    pub offset: u64,
}

impl DropoutArgument {
    /// Elements whose word is below this are dropped.
    fn threshold(&self) -> u32 {
        // Less than 2^32, because no f32 is between 1 - 2^-24 and 1.
        (f64::from(self.probability) * 4_294_967_296.0).ceil() as u32
    }

    /// The factor of kept elements.
    pub fn scale(&self) -> f32 {
        1.0 / (1.0 - self.probability)
    }

    /// Whether the element at (row, column) is kept.
    ///
    /// Four elements share a counter: two neighbouring columns, the first even, in two rows 8 apart. Of the
    /// four words, number `2 (row / 8 mod 2) + column mod 2` is the element's. The element is kept if the
    /// word is at least `2^32 p`.
    pub fn keeps(&self, row: u32, column: u32) -> bool {
        let halves = |word: u64| [word as u32, (word >> 32) as u32];
        let words = words(row & !8, column / 2, halves(self.offset), halves(self.seed));
        words[(row >> 3 & 1) as usize * 2 + (column & 1) as usize] >= self.threshold()
    }
}

/// The words of a row with bit 3 clear and of the row 8 below, for two neighbouring columns each.
fn words<W: Word>(row: W, pair: W, offset: [W; 2], seed: [W; 2]) -> [W; 4] {
    philox([pair, row, offset[0], offset[1]], seed)
}

/// Arguments of a [`Dropout`] on the device.
#[derive(Clone, Copy)]
struct Device<'f> {
    threshold: Value<'f, u32>,
    scale: Value<'f, f32>,
    /// The low half first.
    seed: [Value<'f, u32>; 2],
    offset: [Value<'f, u32>; 2],
}

impl<'f> Device<'f> {
    /// The words of a pair of columns in row `first` and in the row 8 below.
    fn words(&self, part: &Part<'f>, first: Value<'f, u32>, pair: usize) -> [Value<'f, u32>; 4] {
        let (f, Self { threshold, seed, offset, .. }) = (part.tile.f, *self);
        let kept = [0; 4].map(|_: u32| f.variable(u32::MAX));
        // If nothing is dropped, nothing is drawn. The branch also keeps the assembler from interleaving the
        // generators of many elements, which would run out of registers.
        f.if_(threshold.differs_from(0), || {
            let column = (part.column >> 1) + part.pairs[pair] / 2;
            for (kept, word) in kept.iter().zip(words(first, column, offset, seed)) {
                kept.set(word);
            }
        });
        kept.map(Var::get)
    }
}

/// The state of a [`Dropout`] while code is emitted.
struct DropoutState<'f> {
    device: Device<'f>,
    /// The words of the last pair: for its first row and the row 8 below.
    words: Option<(usize, [Value<'f, u32>; 4])>,
    x: [State<'f>; 1],
}

impl<'f> NodeState<'f> for DropoutState<'f> {
    fn children(&mut self) -> &mut [State<'f>] {
        &mut self.x
    }

    fn load(&mut self, part: &Part<'f>) {
        self.words = None;
        self.x[0].load(part);
    }

    fn compute(&mut self, part: &Part<'f>, row: usize, pair: usize) -> Pair<'f> {
        let values = self.x[0].compute(part, row, pair).map(Number::single);
        let Device { threshold, scale, .. } = self.device;
        if !part.tile.aligned {
            let at = part.rows[row].row;
            let words = self.device.words(part, at & !8, pair);
            let below = ((at >> 3) & 1).equals(1);
            return [0, 1].map(|side| {
                let word = words[2 + side].where_or(below, words[side]);
                (values[side] * scale).where_or(word.at_least(threshold), 0.0).into()
            });
        }
        // A thread holds rows in pairs, 8 apart, in blocks that begin at multiples of 16.
        let lower = part.rows[row].index % 2;
        let words = match self.words {
            Some((of, words)) if of == pair && lower == 1 => words,
            _ => self.device.words(part, part.rows[row].row - lower as u32 * 8, pair),
        };
        self.words = Some((pair, words));
        [0, 1].map(|side| {
            (values[side] * scale).where_or(words[2 * lower + side].at_least(threshold), 0.0).into()
        })
    }
}

impl<X: Node> Node for Dropout<X> {
    type Arguments = (DropoutArgument, X::Arguments);
    const TRAITS: NodeTraits = X::TRAITS.in_single();

    fn name() -> String {
        format!("drop_{}", X::name())
    }

    fn spell(out: &mut Spell) {
        out.node::<Self>(&[X::name()]);
        X::spell(out);
    }

    fn visit((dropout, x): &mut Self::Arguments, shape: Shape, site: &mut Site<'_>) {
        let DropoutArgument { probability, seed, offset } = *dropout;
        if !(0.0..1.0).contains(&probability) {
            let reason = format!("the probability is {probability}, at least 0 and less than 1 was needed");
            site.then("dropout").refuse(reason);
        }
        site.visit.count(&mut dropout.threshold());
        site.visit.single(&mut dropout.scale());
        for word in [seed, offset] {
            site.visit.count(&mut (word as u32));
            site.visit.count(&mut ((word >> 32) as u32));
        }
        X::visit(x, shape, site);
    }

    fn device<'f>(given: &mut Given<'f>) -> Begin<'f> {
        let (threshold, scale) = (given.parameter(), given.parameter());
        let seed = [given.parameter(), given.parameter()];
        let offset = [given.parameter(), given.parameter()];
        let (device, x) = (Device { threshold, scale, seed, offset }, X::device(given));
        Box::new(move |tile| Box::new(DropoutState { device, words: None, x: [x(tile)] }))
    }

    fn evaluate(host: &mut Host<'_>, (dropout, x): &Self::Arguments, at: [u32; 2]) -> Bounded {
        let value = X::evaluate(host, x, at);
        if dropout.keeps(at[0], at[1]) {
            return value * Bounded::exact(dropout.scale().into());
        }
        Bounded::exact(0.0)
    }
}

impl<X: Supplied> Supplied for Dropout<X> {
    fn supply(from: &mut dyn Supply, shape: Shape) -> Self::Arguments {
        (from.dropout(), X::supply(from, shape))
    }
}

/// How formulas call it.
pub(super) static WORDS: [NodeWord; 1] = [NodeWord::new(
    "dropout",
    &[Takes::Name { of: "the mask", is: "the arguments of a mask" }, Takes::Value("x")],
    NodeValue::of::<Dropout<AnyNode>>("Dropout<AnyNode>", combined::<Dropout<AnyNode>>),
)];
