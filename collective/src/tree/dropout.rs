//! Dropout, with a mask that need not be stored.

use core::marker::PhantomData;

use ptx::{Value, Var};

use super::{
    Bounded, Declare, Host, Node, NodeError, NodeTraits, Pair, Parameters, Part, Path, Shape, Visit,
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
#[derive(Clone, Copy, Debug)]
pub struct DropoutDevice<'f> {
    threshold: Value<'f, u32>,
    scale: Value<'f, f32>,
    /// The low half first.
    seed: [Value<'f, u32>; 2],
    offset: [Value<'f, u32>; 2],
}

/// The state of a [`Dropout`] while code is emitted.
#[derive(Debug)]
pub struct DropoutState<'f, X> {
    device: DropoutDevice<'f>,
    /// The words of the last pair: for its first row and the row 8 below.
    words: Option<(usize, [Value<'f, u32>; 4])>,
    x: X,
}

impl<X> Dropout<X> {
    /// The words of a pair of columns in row `first` and in the row 8 below.
    fn words_of<'f>(
        part: &Part<'f>,
        device: &DropoutDevice<'f>,
        first: Value<'f, u32>,
        pair: usize,
    ) -> [Value<'f, u32>; 4] {
        let (f, DropoutDevice { threshold, seed, offset, .. }) = (part.tile.f, *device);
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

impl<X: Node> Node for Dropout<X> {
    type Arguments = (DropoutArgument, X::Arguments);
    type Device<'f> = (DropoutDevice<'f>, X::Device<'f>);
    type State<'f> = DropoutState<'f, X::State<'f>>;
    const TRAITS: NodeTraits = X::TRAITS;

    fn name() -> String {
        format!("drop_{}", X::name())
    }

    fn check((dropout, x): &Self::Arguments, shape: Shape, path: &Path<'_>) -> Result<(), NodeError> {
        let p = dropout.probability;
        if !(0.0..1.0).contains(&p) {
            let here = path.then("dropout");
            return Err(here.refuse(format!("the probability is {p}, at least 0 and less than 1 was needed")));
        }
        X::check(x, shape, path)
    }

    fn pairs((_, x): &Self::Arguments) -> bool {
        X::pairs(x)
    }

    fn parameters((dropout, x): &Self::Arguments, out: &mut Parameters) {
        out.push(dropout.threshold());
        out.push(dropout.scale());
        for word in [dropout.seed, dropout.offset] {
            out.push(word as u32);
            out.push((word >> 32) as u32);
        }
        X::parameters(x, out);
    }

    fn declare<'f>(declare: &mut Declare<'f>) -> Self::Device<'f> {
        let (threshold, scale) = (declare.param(), declare.param());
        let seed = [declare.param(), declare.param()];
        let offset = [declare.param(), declare.param()];
        (DropoutDevice { threshold, scale, seed, offset }, X::declare(declare))
    }

    fn begin<'f>(tile: &Visit<'f>, (device, x): &Self::Device<'f>) -> Self::State<'f> {
        DropoutState { device: *device, words: None, x: X::begin(tile, x) }
    }

    fn survey<'f>(part: &Part<'f>, state: &mut Self::State<'f>) {
        X::survey(part, &mut state.x);
    }

    fn load<'f>(part: &Part<'f>, state: &mut Self::State<'f>) {
        state.words = None;
        X::load(part, &mut state.x);
    }

    fn compute<'f>(part: &Part<'f>, state: &mut Self::State<'f>, row: usize, pair: usize) -> Pair<'f> {
        let values = X::compute(part, &mut state.x, row, pair);
        let DropoutDevice { threshold, scale, .. } = state.device;
        if !part.tile.aligned {
            let at = part.rows[row].row;
            let words = Self::words_of(part, &state.device, at & !8, pair);
            let below = ((at >> 3) & 1).equals(1);
            return [0, 1].map(|side| {
                let word = words[2 + side].where_or(below, words[side]);
                (values[side] * scale).where_or(word.at_least(threshold), 0.0)
            });
        }
        // A thread holds rows in pairs, 8 apart, in blocks that begin at multiples of 16.
        let lower = part.rows[row].index % 2;
        let words = match state.words {
            Some((of, words)) if of == pair && lower == 1 => words,
            _ => Self::words_of(part, &state.device, part.rows[row].row - lower as u32 * 8, pair),
        };
        state.words = Some((pair, words));
        [0, 1].map(|side| (values[side] * scale).where_or(words[2 * lower + side].at_least(threshold), 0.0))
    }

    fn end<'f>(tile: &Visit<'f>, state: &mut Self::State<'f>) {
        X::end(tile, &mut state.x);
    }

    fn evaluate(host: &mut Host<'_>, (dropout, x): &Self::Arguments, at: [u32; 2]) -> Bounded {
        let value = X::evaluate(host, x, at);
        if dropout.keeps(at[0], at[1]) {
            return value * Bounded::exact(dropout.scale().into());
        }
        Bounded::exact(0.0)
    }
}

#[cfg(test)]
mod tests {
    use super::DropoutArgument;
    use crate::random::philox;

    #[test]
    fn the_mask_is_the_generators_word_of_the_element() {
        let dropout =
            DropoutArgument { probability: 0.375, seed: 0x1234_5678_9ABC_DEF0, offset: 77 << 32 | 5 };
        for row in [0, 7, 8, 15, 16, 100, 1000] {
            for column in [0, 1, 2, 77, 4095] {
                let first = if row / 8 % 2 == 1 { row - 8 } else { row };
                let words = philox([column / 2, first, 5, 77], [0x9ABC_DEF0, 0x1234_5678]);
                let word = words[(row / 8 % 2 * 2 + column % 2) as usize];
                let want = f64::from(word) / 4_294_967_296.0 >= 0.375;
                assert_eq!(dropout.keeps(row, column), want, "({row}, {column})");
            }
        }
    }

    #[test]
    fn as_many_are_left_out_as_the_probability_says() {
        for probability in [0.0, 0.1, 0.5, 0.9] {
            let dropout = DropoutArgument { probability, seed: 1, offset: 2 };
            let kept = (0..200 * 200).filter(|i| dropout.keeps(i / 200, i % 200)).count();
            let (mean, n) = (1.0 - f64::from(probability), 40_000.0);
            let deviation = (n * mean * (1.0 - mean)).sqrt();
            assert!((kept as f64 - n * mean).abs() <= 4.0 * deviation, "{probability}: {kept}");
        }
    }
}
