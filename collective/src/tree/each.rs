//! Vectors and matrices of which each GEMM of a launch has its own.

use core::marker::PhantomData;

use super::{Begin, Bounded, Given, Host, Node, NodeTile, NodeTraits, Shape, Site, Spell, Supplied, Supply};

/// X with its own vectors and matrices for each GEMM of a launch, at a fixed distance from each other: for
/// example, the biases of experts. Nodes outside `Each` are shared by all GEMMs.
///
/// In a kernel for a single GEMM, it is X.
///
/// ```
/// use collective::functions::Add;
/// use collective::tree::{Accumulator, Compute, Each, Node, RowVector};
/// use half::bf16;
///
/// /// The accumulator plus a bias of the GEMM's own.
/// type Biased = Compute<Add, (Accumulator, Each<RowVector<bf16>>)>;
/// assert_eq!(Biased::name(), "add_acc_each_rbf16");
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Each<X>(PhantomData<X>);

/// Bytes from the data of one GEMM to that of the next, a multiple of 4; 0 if all share the same.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Distance(pub u64);

impl Distance {
    fn visit(&mut self, site: &mut Site<'_>) {
        let Self(bytes) = self;
        if !bytes.is_multiple_of(4) {
            let reason =
                format!("the stride from one GEMM to the next is {bytes} B, a multiple of 4 B was needed");
            site.then("each").refuse(reason);
        }
        site.visit.length(bytes);
        // Two elements of the widest type are 8 bytes.
        site.visit.in_pairs(bytes.is_multiple_of(8));
    }
}

impl<X: Node> Node for Each<X> {
    type Arguments = (Distance, X::Arguments);
    const TRAITS: NodeTraits = X::TRAITS;

    fn name() -> String {
        format!("each_{}", X::name())
    }

    fn spell(out: &mut Spell) {
        out.node::<Self>(&[X::name()]);
        X::spell(out);
    }

    fn visit((own, x): &mut Self::Arguments, shape: Shape, site: &mut Site<'_>) {
        own.visit(site);
        X::visit(x, shape, &mut site.each(own.0));
    }

    fn device<'f>(given: &mut Given<'f>) -> Begin<'f> {
        let (distance, x) = (given.parameter::<u64>(), X::device(given));
        Box::new(move |tile| {
            let own = tile.extent.group.map(|group| group.cast::<u64>() * distance);
            let displacement = match (own, tile.displacement) {
                (Some(own), Some(outer)) => Some(own + outer),
                (own, outer) => own.or(outer),
            };
            x(&NodeTile { displacement, ..*tile })
        })
    }

    fn evaluate(host: &mut Host<'_>, (own, x): &Self::Arguments, at: [u32; 2]) -> Bounded {
        let outer = host.displacement;
        host.displacement += u64::from(host.group) * own.0;
        let value = X::evaluate(host, x, at);
        host.displacement = outer;
        value
    }
}

impl<X: Supplied> Supplied for Each<X> {
    fn supply(from: &mut dyn Supply, shape: Shape) -> Self::Arguments {
        (from.distance(), X::supply(from, shape))
    }
}
