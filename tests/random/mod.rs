//! Trees drawn at random. A tree is normally a type. Here one type, [`Dynamic`], is a node whose kind is
//! known at run time, so thousands of trees need only one compilation. Each kind is the library's own node,
//! with [`Dynamic`] children.

use std::cell::RefCell;

use falchion::collective::functions::*;
use falchion::collective::tree::*;
use falchion::collective::{Fast, Fastest};
use falchion::kernel::EngineError;
use falchion::prelude::*;
use falchion::verify::{Bench, Sample};

thread_local! {
    /// The kinds of the tree's nodes, each before its children, and the number of nodes already taken.
    static TREE: RefCell<(Vec<Kind>, usize)> = const { RefCell::new((Vec::new(), 0)) };
}

/// Returns to the root.
fn restart() {
    TREE.with_borrow_mut(|(_, taken)| *taken = 0);
}

/// The next node, in the order of declaration.
fn next() -> Kind {
    TREE.with_borrow_mut(|(kinds, taken)| {
        *taken += 1;
        kinds[*taken - 1]
    })
}

macro_rules! kinds {
    ($($name:ident: $node:ty;)*) => {
        /// A node without its children.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub(crate) enum Kind { $($name),* }

        impl Kind {
            pub(crate) const COUNT: usize = [$(stringify!($name)),*].len();
        }

        pub(crate) enum Arguments { $($name(Box<<$node as Node>::Arguments>)),* }

        #[derive(Clone, Copy)]
        pub(crate) enum Device<'f> { $($name(&'f <$node as Node>::Device<'f>)),* }

        pub(crate) enum State<'f> { $($name(Box<<$node as Node>::State<'f>>)),* }

        /// A node whose kind is known at run time.
        pub(crate) struct Dynamic;

        impl Node for Dynamic {
            type Arguments = Arguments;
            type Device<'f> = Device<'f>;
            type State<'f> = State<'f>;
            const FACTS: Facts = Facts::LEAF;

            fn name() -> String {
                "random".into()
            }

            fn check(arguments: &Arguments, shape: Shape, path: &Path<'_>) -> Result<(), NodeError> {
                match arguments { $(Arguments::$name(arguments) => <$node>::check(arguments, shape, path)),* }
            }

            fn pairs(arguments: &Arguments) -> bool {
                match arguments { $(Arguments::$name(arguments) => <$node>::pairs(arguments)),* }
            }

            fn parameters(arguments: &Arguments, out: &mut Parameters) {
                match arguments { $(Arguments::$name(arguments) => <$node>::parameters(arguments, out)),* }
            }

            fn declare<'f>(declare: &mut Declare<'f>) -> Device<'f> {
                match next() {
                    $(Kind::$name => Device::$name(Box::leak(Box::new(<$node as Node>::declare(declare))))),*
                }
            }

            fn begin<'f>(tile: &Visit<'f>, device: &Device<'f>) -> State<'f> {
                match device {
                    $(Device::$name(device) => State::$name(Box::new(<$node as Node>::begin(tile, device)))),*
                }
            }

            fn survey<'f>(part: &Part<'f>, state: &mut State<'f>) {
                match state { $(State::$name(state) => <$node as Node>::survey(part, state)),* }
            }

            fn load<'f>(part: &Part<'f>, state: &mut State<'f>) {
                match state { $(State::$name(state) => <$node as Node>::load(part, state)),* }
            }

            fn compute<'f>(part: &Part<'f>, state: &mut State<'f>, row: usize, pair: usize) -> Pair<'f> {
                match state { $(State::$name(state) => <$node as Node>::compute(part, state, row, pair)),* }
            }

            fn end<'f>(tile: &Visit<'f>, state: &mut State<'f>) {
                match state { $(State::$name(state) => <$node as Node>::end(tile, state)),* }
            }

            fn evaluate(host: &mut Host<'_>, arguments: &Arguments, at: [u32; 2]) -> Bounded {
                match arguments {
                    $(Arguments::$name(arguments) => <$node as Node>::evaluate(host, arguments, at)),*
                }
            }
        }

        impl Sample for Dynamic {
            fn sample(bench: &mut Bench<'_>, shape: Shape) -> Result<Arguments, EngineError> {
                Ok(match next() {
                    $(Kind::$name => Arguments::$name(Box::new(<$node as Sample>::sample(bench, shape)?))),*
                })
            }
        }
    };
}

falchion::collective::labels! {
    Inner = "inner";
}

type One<F> = Compute<F, (Dynamic,)>;
type Two<F> = Compute<F, (Dynamic, Dynamic)>;

kinds! {
    Accumulator: Accumulator;
    Half: Constant<U1, U2>;
    Number: Scalar;
    Pointer: ScalarPointer<bf16>;
    Row: RowVector<bf16>;
    Column: ColumnVector<bf16>;
    Matrix: Load<bf16>;
    Residual: Residual<bf16>;
    Cycle: Cyclic<bf16, U16>;
    Bound: Bound;
    Outer: Bound<U1>;
    Relu: One<Relu>;
    Clamp: One<Clamp>;
    LeakyRelu: One<LeakyRelu>;
    Gelu: One<Gelu<Fast>>;
    GeluTanh: One<GeluTanh<Fastest>>;
    Silu: One<Silu<Fast>>;
    Sigmoid: One<Sigmoid<Fast>>;
    Negate: One<Negate>;
    Absolute: One<Absolute>;
    Add: Two<Add>;
    Subtract: Two<Subtract>;
    Multiply: Two<Multiply>;
    Maximum: Two<Maximum>;
    Gradient: Two<Gradient<Silu<Fast>>>;
    MultiplyAdd: Compute<MultiplyAdd, (Dynamic, Dynamic, Dynamic)>;
    Named: Named<Inner, Dynamic>;
    Let: Let<Dynamic, Dynamic>;
    Dropout: Dropout<Dynamic>;
    Rotate: Rotate<Dynamic, Dynamic>;
    AuxStore: AuxStore<bf16, Dynamic>;
    RowSum: ReduceRow<Sum, Dynamic>;
    RowMax: ReduceRow<Max, Dynamic>;
    ColumnSum: ReduceColumn<Sum, Dynamic>;
    ColumnAbsMax: ReduceColumn<AbsMax, Dynamic>;
    ScalarSum: ReduceScalar<Sum, Dynamic>;
    Amax: Amax<Dynamic>;
    OrderedRow: OrderedRow<Sum, Dynamic>;
    OrderedRowMax: OrderedRow<Max, Dynamic>;
    OrderedColumn: OrderedColumn<Sum, Dynamic>;
    OrderedScalar: OrderedScalar<Sum, Dynamic>;
    OrderedAmax: OrderedScalar<AbsMax, Dynamic>;
    Alternating: Gated<Glu<Silu<Fast>>, Dynamic>;
    Blocks: Gated<Maximum, Dynamic, Blocks>;
    Wide: Gated<Glu<Relu>, Dynamic, Blocks<U16>>;
    Halves: Gated<Glu<LeakyRelu>, Dynamic, Split>;
    Top: TopKSoftmax<U3, Dynamic>;
}

/// The properties of a tree that must be known from its type.
pub(crate) trait Family: 'static {
    const FACTS: Facts;
    /// The gated pair that its trees may have.
    const GATED: Option<Kind>;
    /// N must be a multiple of this.
    const STEP: u32;
    /// No ordered reductions: the family is for transposed stores.
    const UNORDERED: bool;
}

macro_rules! families {
    ($($name:ident: $gated:expr, $block:expr, $surveys:literal, $step:literal, $unordered:literal;)*) => {$(
        pub(crate) struct $name;
        impl Family for $name {
            const FACTS: Facts = Facts {
                halvings: Some(if $block > 0 { 1 } else { 0 }),
                gate_block: $block,
                effects: true,
                surveys: $surveys,
                whole_tiles: !$unordered,
                row_vectors: 2,
                ..Facts::LEAF
            };
            const GATED: Option<Kind> = $gated;
            const STEP: u32 = $step;
            const UNORDERED: bool = $unordered;
        }
    )*};
}

families! {
    // Rotations need an even number of columns, also of a gated value.
    Plain: None, 0, false, 2, false;
    Rows: None, 0, true, 2, false;
    InPairs: Some(Kind::Alternating), 1, false, 4, false;
    InEights: Some(Kind::Blocks), 8, false, 16, false;
    InSixteens: Some(Kind::Wide), 16, false, 32, false;
    InHalves: Some(Kind::Halves), Facts::SPLIT, false, 4, false;
    Turned: None, 0, false, 2, true;
}

/// The tree of a family that was drawn last on this thread.
pub(crate) struct Random<F>(std::marker::PhantomData<F>);

impl<F: Family> Node for Random<F> {
    type Arguments = Arguments;
    type Device<'f> = Device<'f>;
    type State<'f> = State<'f>;
    const FACTS: Facts = F::FACTS;

    fn name() -> String {
        Dynamic::name()
    }

    fn check(arguments: &Arguments, shape: Shape, path: &Path<'_>) -> Result<(), NodeError> {
        Dynamic::check(arguments, shape, path)
    }

    fn pairs(arguments: &Arguments) -> bool {
        Dynamic::pairs(arguments)
    }

    fn parameters(arguments: &Arguments, out: &mut Parameters) {
        Dynamic::parameters(arguments, out);
    }

    fn declare<'f>(declare: &mut Declare<'f>) -> Device<'f> {
        restart();
        Dynamic::declare(declare)
    }

    fn begin<'f>(tile: &Visit<'f>, device: &Device<'f>) -> State<'f> {
        Dynamic::begin(tile, device)
    }

    fn survey<'f>(part: &Part<'f>, state: &mut State<'f>) {
        Dynamic::survey(part, state);
    }

    fn load<'f>(part: &Part<'f>, state: &mut State<'f>) {
        Dynamic::load(part, state);
    }

    fn compute<'f>(part: &Part<'f>, state: &mut State<'f>, row: usize, pair: usize) -> Pair<'f> {
        Dynamic::compute(part, state, row, pair)
    }

    fn end<'f>(tile: &Visit<'f>, state: &mut State<'f>) {
        Dynamic::end(tile, state);
    }

    fn evaluate(host: &mut Host<'_>, arguments: &Arguments, at: [u32; 2]) -> Bounded {
        Dynamic::evaluate(host, arguments, at)
    }
}

impl<F: Family> Sample for Random<F> {
    fn sample(bench: &mut Bench<'_>, shape: Shape) -> Result<Arguments, EngineError> {
        restart();
        Dynamic::sample(bench, shape)
    }
}

/// The nodes that are allowed at a place of a tree.
#[derive(Clone, Copy)]
struct Place {
    /// Number of levels below.
    depth: u32,
    /// No node that writes.
    pure: bool,
    /// Number of enclosing bindings.
    bindings: usize,
    /// The gated pair between this place and its accumulators, if one is still to come; it halves the columns.
    gated: Option<Kind>,
    surveys: bool,
    /// No ordered reductions.
    unordered: bool,
    /// The subtree must contain an accumulator.
    leads: bool,
    /// The subtree must use the value of a binding, if there is one.
    uses: bool,
}

/// Draws the tree of this thread, at most `depth` deep, and returns it.
pub(crate) fn draw<F: Family>(random: &mut fastrand::Rng, depth: u32) -> Vec<Kind> {
    let mut kinds = Vec::new();
    let place = Place {
        depth,
        pure: false,
        bindings: 0,
        gated: F::GATED,
        surveys: F::FACTS.surveys,
        unordered: F::UNORDERED,
        leads: true,
        uses: false,
    };
    node(random, place, &mut kinds);
    TREE.set((kinds.clone(), 0));
    kinds
}

fn node(random: &mut fastrand::Rng, place: Place, out: &mut Vec<Kind>) {
    use Kind::*;
    let mut pick = |all: &[Kind]| all[random.usize(..all.len())];
    if place.depth <= 1 {
        if place.leads {
            out.extend(place.gated);
            out.push(Accumulator);
            return;
        }
        if place.uses && place.bindings > 0 {
            out.push(if place.bindings > 1 { Outer } else { Bound });
            return;
        }
        let mut leaves = vec![Half, Number, Pointer, Row, Row, Column, Matrix, Cycle, Residual];
        leaves.extend([Bound].repeat(3 * place.bindings.min(1)));
        leaves.extend([Outer].repeat(2 * place.bindings.saturating_sub(1)));
        if place.gated.is_none() {
            leaves.push(Accumulator);
        }
        out.push(pick(&leaves));
        return;
    }
    let below = Place { depth: place.depth - 1, ..place };
    let beside = Place { leads: false, uses: false, depth: 1.max(below.depth / 2), ..below };
    let one = [Relu, Clamp, LeakyRelu, Gelu, GeluTanh, Silu, Sigmoid, Negate, Absolute, Named, Dropout];
    let two = [Add, Subtract, Multiply, Maximum, Gradient, Let, MultiplyAdd, Rotate];
    let writes = [
        AuxStore,
        RowSum,
        RowMax,
        ColumnSum,
        ColumnAbsMax,
        ScalarSum,
        Amax,
        OrderedRow,
        OrderedRowMax,
        OrderedColumn,
        OrderedScalar,
        OrderedAmax,
    ];
    let mut groups: Vec<&[Kind]> = vec![&one, &two, &two];
    if !place.pure {
        groups.push(if place.unordered { &writes[..7] } else { &writes });
    }
    let gates: Vec<Kind> = place.gated.into_iter().collect();
    if place.gated.is_some() {
        groups.push(&gates);
    }
    if place.surveys {
        groups.push(&[Top]);
    }
    let group = groups[random.usize(..groups.len())];
    let kind = group[random.usize(..group.len())];
    out.push(kind);
    if kind == Let {
        node(random, Place { depth: beside.depth, ..below }, out);
        node(random, Place { bindings: place.bindings + 1, leads: false, uses: true, ..below }, out);
    } else if kind == Rotate {
        node(random, Place { bindings: 0, uses: false, ..below }, out);
        node(random, Place { bindings: 0, uses: false, ..beside }, out);
    } else if kind == Top {
        node(random, Place { bindings: 0, uses: false, pure: true, surveys: false, ..below }, out);
    } else if gates.contains(&kind) {
        let unordered = place.unordered || kind == Halves;
        node(random, Place { bindings: 0, uses: false, gated: None, unordered, ..below }, out);
    } else {
        node(random, below, out);
        let others = if kind == MultiplyAdd { 2 } else { usize::from(two.contains(&kind)) };
        for _ in 0..others {
            node(random, beside, out);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Family, InEights, InHalves, InPairs, InSixteens, Kind, Plain, Rows, draw};

    /// Draws trees of a family as the tests do.
    fn count<F: Family>(cases: std::ops::Range<u64>, counts: &mut std::collections::BTreeMap<String, u32>) {
        assert!(F::STEP.is_multiple_of(2.max(F::FACTS.gate_block.saturating_mul(2) % u32::MAX)));
        for case in cases {
            for kind in draw::<F>(&mut fastrand::Rng::with_seed(case), 1 + case as u32 % 4) {
                *counts.entry(format!("{kind:?}")).or_default() += 1;
            }
        }
    }

    #[test]
    fn every_kind_of_node_is_drawn() {
        let mut counts = std::collections::BTreeMap::new();
        count::<Plain>(0..300, &mut counts);
        count::<Rows>(300..500, &mut counts);
        count::<InPairs>(500..700, &mut counts);
        count::<InEights>(700..850, &mut counts);
        count::<InSixteens>(850..1000, &mut counts);
        count::<InHalves>(1000..1150, &mut counts);
        // A binding inside a binding is rarely drawn; typed trees have one.
        counts.insert("Outer".into(), 10);
        assert_eq!(counts.len(), Kind::COUNT, "{counts:?}");
        assert!(counts.values().all(|&count| count >= 10), "{counts:?}");
    }
}
