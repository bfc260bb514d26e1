//! Top-k softmax: the softmax of the largest values of each row, as in the gate of a mixture of experts.

use core::marker::PhantomData;
use std::collections::BTreeMap;

use ptx::{Builder, Value};
use typenum::{U1, U2, U3, U4, U5, U6, U7, U8, Unsigned};

use super::{
    AnyNode, Begin, Bounded, Given, Host, Node, NodeState, NodeTraits, NodeValue, NodeWord, Pair, Part,
    Shape, Site, Spell, State, Supplied, Supply, Takes,
};
use crate::real::{Accuracy, Fast, Real};

/// The softmax over the `K` largest values of each row of X: `e^(x - max) / sum` if x is one of them, else
/// zero.
///
/// All values equal to the K-th largest are kept; the sum is still that of K values. One tile must hold a
/// whole row: N is at most tile N. X is computed twice, so no node inside it may write; place nodes that
/// write around it. NaN stays NaN, and does not affect the other values.
#[derive(Clone, Copy, Debug)]
pub struct TopKSoftmax<K, X, A = Fast>(PhantomData<(K, X, A)>);

/// The traits of a [`TopKSoftmax`] around a value.
///
/// # Errors
/// The value cannot be computed twice, or is known too late.
const fn ranked(x: NodeTraits) -> Result<NodeTraits, &'static str> {
    if x.effects {
        return Err(
            "a TopKSoftmax computes what is inside of it twice: put reductions and AuxStore around it",
        );
    }
    if x.surveys {
        return Err("a TopKSoftmax stands inside of another: rows are surveyed once");
    }
    if x.free > 0 {
        return Err("a Bound inside of TopKSoftmax names a Let around it: put the Let inside");
    }
    Ok(NodeTraits { surveys: true, whole_tiles: true, ..x.in_single() })
}

/// Inserts `x` into a list in descending order; the least value is dropped.
fn insert<R: Real>(list: &mut [R], x: R) {
    list.iter_mut().fold(x, |x, place| {
        let (more, less) = (place.max(x), Real::min(*place, x));
        *place = more;
        less
    });
}

/// The largest value, the least that is kept, and the factor of the exponentials.
fn summary<R: Real, A: Accuracy>(list: &[R], least: R) -> Option<[R; 3]> {
    let &largest = list.first()?;
    let sum = list.iter().map(|&x| A::exp(x - largest)).reduce(|sum, x| sum + x)?;
    Some([largest, least, A::divide(sum.constant(1.0), sum)])
}

/// The weight of a value.
fn weight<R: Real, A: Accuracy>(x: R, [largest, least, factor]: [R; 3]) -> R {
    x.less(least, x.constant(0.0), A::exp(x - largest) * factor)
}

/// The state of a [`TopKSoftmax`].
struct TopKState<'f, A> {
    /// Number of values that are kept.
    kept: usize,
    /// By row of the tile: the thread's largest values, in descending order.
    lists: BTreeMap<usize, Vec<Value<'f, f32>>>,
    summaries: BTreeMap<usize, [Value<'f, f32>; 3]>,
    x: [State<'f>; 1],
    accuracy: PhantomData<A>,
}

/// Combines the largest values of the four lanes that share a row.
fn across<'f>(f: &'f Builder, list: &mut [Value<'f, f32>]) {
    for mask in [1, 2] {
        let others: Vec<_> = list.iter().map(|&x| f.shuffle_xor(x, mask)).collect();
        for other in others {
            insert(list, other);
        }
    }
}

impl<'f, A: Accuracy> NodeState<'f> for TopKState<'f, A> {
    fn children(&mut self) -> &mut [State<'f>] {
        &mut self.x
    }

    fn survey(&mut self, part: &Part<'f>) {
        let f = part.tile.f;
        self.x[0].load(part);
        for pair in 0..part.pairs.len() {
            for (row, place) in part.rows.iter().enumerate() {
                let values = self.x[0].compute(part, row, pair);
                let nothing = || vec![f.constant(f32::NEG_INFINITY); self.kept];
                let list = self.lists.entry(place.index).or_insert_with(nothing);
                for (column, value) in (part.pairs[pair]..).zip(values) {
                    insert(list, part.inside_or(row, column, value, f32::NEG_INFINITY));
                }
            }
        }
    }

    fn load(&mut self, part: &Part<'f>) {
        for row in &part.rows {
            let Some(mut list) = self.lists.remove(&row.index) else { continue };
            across(part.tile.f, &mut list);
            let least = list[self.kept - 1];
            self.summaries.extend(summary::<_, A>(&list, least).map(|summary| (row.index, summary)));
        }
        self.x[0].load(part);
    }

    fn compute(&mut self, part: &Part<'f>, row: usize, pair: usize) -> Pair<'f> {
        let values = self.x[0].compute(part, row, pair);
        match self.summaries.get(&part.rows[row].index) {
            Some(&summary) => values.map(|x| weight::<_, A>(x.single(), summary).into()),
            // The epilogue surveys every row first, so this is not reached.
            None => [part.tile.f.constant(f32::NAN).into(); 2],
        }
    }
}

impl<K: Unsigned + 'static, X: Node, A: Accuracy> Node for TopKSoftmax<K, X, A> {
    type Arguments = X::Arguments;
    const TRAITS: NodeTraits = {
        assert!(K::U32 > 0, "the softmax of no values is none: use TopKSoftmax<U1, X> or more");
        assert!(K::U32 <= 32, "a TopKSoftmax keeps its largest values in registers: K is 32 at most");
        NodeTraits::legal(ranked(X::TRAITS))
    };

    fn name() -> String {
        format!("top{}softmax{}_{}", K::U32, A::SUFFIX, X::name())
    }

    fn spell(out: &mut Spell) {
        out.node::<Self>(&[X::name()]);
        X::spell(out);
    }

    fn visit(x: &mut X::Arguments, shape: Shape, site: &mut Site<'_>) {
        X::visit(x, shape, &mut site.then("softmax"));
    }

    fn device<'f>(given: &mut Given<'f>) -> Begin<'f> {
        let x = X::device(given);
        Box::new(move |tile| {
            let (lists, summaries) = (BTreeMap::new(), BTreeMap::new());
            let accuracy = PhantomData::<A>;
            Box::new(TopKState { kept: K::USIZE, lists, summaries, x: [x(tile)], accuracy })
        })
    }

    fn evaluate(host: &mut Host<'_>, x: &X::Arguments, at: [u32; 2]) -> Bounded {
        let row: Vec<Bounded> =
            (0..host.shape.n).map(|column| X::evaluate(host, x, [at[0], column])).collect();
        // Errors may change the order, but the i-th largest moves by at most the largest error.
        let error = row.iter().map(|x| x.error).fold(0.0, Real::max);
        let mut sorted: Vec<f64> = row.iter().map(|x| x.value).collect();
        sorted.sort_by(|a, b| b.total_cmp(a));
        sorted.truncate(K::USIZE);
        let list: Vec<Bounded> = sorted.iter().map(|&x| Bounded::new(x, error)).collect();
        // With fewer than K values, all are kept.
        let least = list.get(K::USIZE - 1).copied().unwrap_or(Bounded::exact(f64::NEG_INFINITY));
        match summary::<_, A>(&list, least) {
            Some(summary) => weight::<_, A>(row[at[1] as usize], summary),
            None => Bounded::exact(f64::NAN),
        }
    }
}

impl<K: Unsigned + 'static, X: Supplied, A: Accuracy> Supplied for TopKSoftmax<K, X, A> {
    fn supply(from: &mut dyn Supply, shape: Shape) -> Self::Arguments {
        X::supply(from, shape)
    }
}

/// How formulas call it, for the K that they have.
pub(super) static WORDS: [NodeWord; 8] = [
    word::<U1>("top1_softmax", "TopKSoftmax<U1, AnyNode>"),
    word::<U2>("top2_softmax", "TopKSoftmax<U2, AnyNode>"),
    word::<U3>("top3_softmax", "TopKSoftmax<U3, AnyNode>"),
    word::<U4>("top4_softmax", "TopKSoftmax<U4, AnyNode>"),
    word::<U5>("top5_softmax", "TopKSoftmax<U5, AnyNode>"),
    word::<U6>("top6_softmax", "TopKSoftmax<U6, AnyNode>"),
    word::<U7>("top7_softmax", "TopKSoftmax<U7, AnyNode>"),
    word::<U8>("top8_softmax", "TopKSoftmax<U8, AnyNode>"),
];

const fn word<K: Unsigned + 'static>(name: &'static str, rust: &'static str) -> NodeWord {
    let traits = |x: &[NodeTraits]| ranked(x.first().copied().unwrap_or(NodeTraits::LEAF));
    NodeWord::new(name, &[Takes::Value("x")], NodeValue::of::<TopKSoftmax<K, AnyNode>>(rust, traits))
}
