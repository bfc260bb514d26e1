//! Quantisation: values in blocks of a row with one scale each, as a block-scaled A operand needs.

use core::marker::PhantomData;
use std::collections::BTreeMap;

use ptx::Value;

use float8::{F8E4M3, F8E5M2};

use super::{
    AnyNode, Begin, Bounded, Given, Host, Node, NodeState, NodeTraits, NodeValue, NodeWord, Pair, Part,
    Shape, Site, Spell, State, Supplied, Supply, Takes,
};
use crate::element::{Element, Format};
use crate::operand::MatrixRef;
use crate::real::{Accuracy, Fast, Real};

/// Columns per block.
pub(super) const BLOCK: u32 = 128;

/// Lower bound of a block's largest magnitude, so that its scale is a normal number.
const LEAST: f64 = 7.888_609_052_210_118e-31; // 2^-100

/// X divided by a scale per 128 columns of a row, so that the largest magnitude there becomes the largest
/// value of `T`. `T` is an 8-bit float and must be D's format.
///
/// The scales are also written, in `f32`: `(M, ceil(N / 128))` with M contiguous, as
/// [`BlockScales::a`](crate::BlockScales) takes them for the next GEMM. A tile must have whole blocks: tile N
/// is a multiple of 128. X is computed twice, so no node inside it may write; place nodes that write around
/// it. NaN stays NaN, and does not affect its block's scale.
#[derive(Clone, Copy, Debug)]
pub struct Quantize<T, X>(PhantomData<(T, X)>);

/// The traits of a [`Quantize`] around a value.
///
/// # Errors
/// The value cannot be computed twice, or is known too late.
const fn quantized(x: NodeTraits) -> Result<NodeTraits, &'static str> {
    if x.effects {
        return Err("a Quantize computes what is inside of it twice: put reductions and AuxStore around it");
    }
    if x.surveys {
        return Err("a Quantize stands around a node that looks at rows: they are surveyed once");
    }
    if x.free > 0 {
        return Err("a Bound inside of Quantize names a Let around it: put the Let inside");
    }
    Ok(NodeTraits { surveys: true, block: BLOCK, effects: true, stores: true, ..x.in_single() })
}

/// The factor of a block's elements, and its scale.
fn factors<R: Real>(largest: R, format: Format) -> [R; 2] {
    let most = largest.constant(format.largest());
    let largest = largest.max(largest.constant(LEAST));
    [Fast::divide(most, largest), largest * largest.constant(1.0 / format.largest())]
}

/// The state of a [`Quantize`].
struct QuantizeState<'f> {
    format: Format,
    /// The scales: their address and their leading dimension.
    address: Value<'f, u64>,
    ld: Value<'f, u64>,
    /// By row of the tile and block: the largest magnitude among the thread's values.
    largest: BTreeMap<(usize, u32), Value<'f, f32>>,
    /// The factor of the elements, by the same keys.
    factors: BTreeMap<(usize, u32), Value<'f, f32>>,
    x: [State<'f>; 1],
}

impl<'f> NodeState<'f> for QuantizeState<'f> {
    fn children(&mut self) -> &mut [State<'f>] {
        &mut self.x
    }

    fn survey(&mut self, part: &Part<'f>) {
        let f = part.tile.f;
        self.x[0].load(part);
        for pair in 0..part.pairs.len() {
            for (row, place) in part.rows.iter().enumerate() {
                let values = self.x[0].compute(part, row, pair);
                let key = (place.index, part.pairs[pair] / BLOCK);
                let largest = self.largest.entry(key).or_insert_with(|| f.constant(0.0));
                for (column, value) in (part.pairs[pair]..).zip(values) {
                    *largest = Real::max(*largest, Real::abs(part.inside_or(row, column, value, 0.0)));
                }
            }
        }
    }

    fn load(&mut self, part: &Part<'f>) {
        let f = part.tile.f;
        let first_block = part.tile.first_column() / BLOCK;
        let writes = (part.tile.thread % 4).equals(0);
        for (row, place) in part.rows.iter().enumerate() {
            let of_row: Vec<_> = self.largest.range((place.index, 0)..(place.index + 1, 0)).collect();
            let blocks: Vec<_> = of_row.into_iter().map(|(&(_, block), &largest)| (block, largest)).collect();
            for (block, mut largest) in blocks {
                self.largest.remove(&(place.index, block));
                // Combines the four lanes that share the row.
                for mask in [1, 2] {
                    largest = Real::max(largest, f.shuffle_xor(largest, mask));
                }
                let [factor, scale] = factors(largest, self.format);
                self.factors.insert((place.index, block), factor);
                let element = (first_block + block).cast::<u64>().mul_add(self.ld, place.row.cast::<u64>());
                let address = self.address + element * u64::from(Format::F32.bytes());
                f.if_(writes, || {
                    part.if_inside(row, block * BLOCK, || f.store_global(address, 0, [scale]));
                });
            }
        }
        self.x[0].load(part);
    }

    fn compute(&mut self, part: &Part<'f>, row: usize, pair: usize) -> Pair<'f> {
        let values = self.x[0].compute(part, row, pair);
        match self.factors.get(&(part.rows[row].index, part.pairs[pair] / BLOCK)) {
            Some(&factor) => values.map(|x| (x.single() * factor).into()),
            // The epilogue surveys every row first, so this is not reached.
            None => [part.tile.f.constant(f32::NAN).into(); 2],
        }
    }
}

impl<T: Element, X: Node> Node for Quantize<T, X> {
    type Arguments = (MatrixRef, X::Arguments);
    const TRAITS: NodeTraits = {
        assert!(
            matches!(T::FORMAT, Format::E4m3 | Format::E5m2),
            "a Quantize makes 8-bit floats: use F8E4M3 or F8E5M2"
        );
        NodeTraits::legal(quantized(X::TRAITS))
    };

    fn name() -> String {
        format!("quantize{}_{}", T::FORMAT.name(), X::name())
    }

    fn spell(out: &mut Spell) {
        out.node::<Self>(&[X::name()]);
        X::spell(out);
    }

    fn visit((scales, x): &mut Self::Arguments, shape: Shape, site: &mut Site<'_>) {
        let of_blocks = Shape { m: shape.n.div_ceil(BLOCK), n: shape.m };
        site.then("scales").matrix(Format::F32, scales, of_blocks, true);
        X::visit(x, shape, site);
    }

    fn device<'f>(given: &mut Given<'f>) -> Begin<'f> {
        let (first, ld, x) = (given.parameter(), given.parameter(), X::device(given));
        Box::new(move |tile| {
            let (largest, factors) = (BTreeMap::new(), BTreeMap::new());
            let (format, address) = (T::FORMAT, tile.place(first));
            Box::new(QuantizeState { format, address, ld, largest, factors, x: [x(tile)] })
        })
    }

    fn evaluate(host: &mut Host<'_>, (scales, x): &Self::Arguments, at: [u32; 2]) -> Bounded {
        let ([row, column], n) = (at, host.shape.n);
        let block = column / BLOCK;
        let columns = block * BLOCK..n.min((block + 1) * BLOCK);
        let zero = Bounded::exact(0.0);
        let largest = columns.map(|column| X::evaluate(host, x, [row, column]).abs()).fold(zero, Real::max);
        let [factor, scale] = factors(largest, T::FORMAT);
        let element = u64::from(block) * scales.ld + u64::from(row);
        let address = scales.address + element * u64::from(Format::F32.bytes());
        host.write(Format::F32, address, scale);
        X::evaluate(host, x, at) * factor
    }
}

impl<T: Element, X: Supplied> Supplied for Quantize<T, X> {
    fn supply(from: &mut dyn Supply, shape: Shape) -> Self::Arguments {
        let of_blocks = Shape { m: shape.n.div_ceil(BLOCK), n: shape.m };
        (from.output(Format::F32, of_blocks), X::supply(from, shape))
    }
}

/// How formulas call it.
pub(super) static WORDS: [NodeWord; 2] = [
    word::<F8E4M3>("quantize_e4m3", "Quantize<F8E4M3, AnyNode>"),
    word::<F8E5M2>("quantize_e5m2", "Quantize<F8E5M2, AnyNode>"),
];

const fn word<T: Element>(name: &'static str, rust: &'static str) -> NodeWord {
    let traits = |x: &[NodeTraits]| quantized(x.first().copied().unwrap_or(NodeTraits::LEAF));
    let takes = &[Takes::Name { of: "the scales", is: "the scales of a quantiser" }, Takes::Value("x")];
    NodeWord {
        output: Some(T::FORMAT),
        ..NodeWord::new(name, takes, NodeValue::of::<Quantize<T, AnyNode>>(rust, traits))
    }
}
