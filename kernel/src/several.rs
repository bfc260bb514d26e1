//! Kernels of several products by name, beside the [`catalogue`](crate::catalogue) of those of one.

use collective::{
    Cluster, Cooperative, Fitted, KMajor, LinearCombination, MnMajor, MultipliesWith, Operand, Operands,
    Pingpong, Tile, TmaStore, TmaWgmma, Transposed,
};
use half::{bf16, f16};
use scheduler::{AlongM, DividedTail, Dynamic, Grouped, Persistent, StreamK};
use typenum::{U1, U2, U8, U16, U32, U64, U128, U256};

use crate::catalogue::{Copied, Duo, Large, Medium, Swapped, Unaligned, entry};
use crate::config::Composed;
use crate::form::{Batched, PointerArray, Ragged};
use crate::gemm::AnyGemm;

/// A 128 x 256 tile, two consumer warpgroups.
type Staged<A, B, T> = Copied<A, B, T, Tile<U128, U256, U64>, Cooperative<U2>, U8>;

/// A 64 x 256 tile for each of two consumer warpgroups that take turns: for few rows.
type Flat<A, B, T> = Copied<A, B, T, Tile<U64, U256, U64>, Pingpong, U8>;

/// As [`Staged`], with the last waves divided along K. A 256 x 192 tile leaves no registers for the number of the product.
type Stream<A, B, T> = Composed<
    TmaWgmma<Operands<A, B>, Tile<U128, U256, U64>, Cooperative<U2>>,
    LinearCombination<T, TmaStore>,
    StreamK<Grouped<AlongM, U8>>,
>;

/// Up to 16 rows of each product.
type Swap16<A, B, T> = Swapped<A, B, T, U16, U128, Cluster<U1, U1>, Persistent<AlongM>>;

/// D's transpose, from B's side: 128 columns of weights, and as many rows of a group as it has, up to 256. Groups are cut
/// into tiles of nearly equal width, which the workers draw.
type Exchanged<A, B, T, Shape> = Composed<
    TmaWgmma<Operands<B, A>, Fitted<Tile<U128, U256, U64>, U32>, Cooperative<U2, Shape>>,
    LinearCombination<T, Transposed<TmaStore>>,
    Dynamic<AlongM>,
>;

/// As [`Exchanged`] in clusters of two, for few groups: the last tiles of few waves are divided along K.
type Tailed<A, B, T> = Composed<
    TmaWgmma<Operands<B, A>, Fitted<Tile<U128, U256, U64>, U32>, Cooperative<U2, Cluster<U2, U1>>>,
    LinearCombination<T, Transposed<TmaStore>>,
    DividedTail<AlongM>,
>;

/// Every kernel of several products, in a fixed order.
///
/// A name is `<kind>-<element>-<A's direction><B's direction>` as in the [`catalogue`](crate::catalogue); the kinds
/// `batched…` are for products of one shape, the kinds `ragged…` for groups of rows, the kinds
/// `grouped…` for products that device memory describes. Groups of rows of a column-major A have kind `ragged-unaligned` alone.
pub fn several() -> Vec<AnyGemm> {
    let mut all = Vec::new();
    all_directions::<bf16>(&mut all);
    all_directions::<f16>(&mut all);
    all
}

fn all_directions<T: MultipliesWith<T>>(all: &mut Vec<AnyGemm>) {
    all_kinds::<KMajor<T>, KMajor<T>, T>(all);
    all_kinds::<KMajor<T>, MnMajor<T>, T>(all);
    all_kinds::<MnMajor<T>, KMajor<T>, T>(all);
    all_kinds::<MnMajor<T>, MnMajor<T>, T>(all);
    ragged::<KMajor<T>, KMajor<T>, T>(all);
    ragged::<KMajor<T>, MnMajor<T>, T>(all);
}

/// Rows of a column-major A begin where no tensor copy can: at any element of a line.
fn ragged<A, B, T>(all: &mut Vec<AnyGemm>)
where
    A: Operand<Element = T>,
    B: Operand<Element = T>,
    T: MultipliesWith<T>,
{
    all.push(entry::<Ragged<Staged<A, B, T>>>("ragged"));
    all.push(entry::<Ragged<Duo<A, B, T>>>("ragged-duo"));
    all.push(entry::<Ragged<Flat<A, B, T>>>("ragged-flat"));
    all.push(entry::<Ragged<Medium<A, B, T>>>("ragged-direct"));
    all.push(entry::<Ragged<Exchanged<A, B, T, Cluster<U1, U1>>>>("ragged-fitted"));
    all.push(entry::<Ragged<Exchanged<A, B, T, Cluster<U2, U1>>>>("ragged-fitted2"));
    all.push(entry::<Ragged<Tailed<A, B, T>>>("ragged-tail"));
    all.push(entry::<Ragged<Swap16<A, B, T>>>("ragged-swap16"));
}

fn all_kinds<A, B, T>(all: &mut Vec<AnyGemm>)
where
    A: Operand<Element = T>,
    B: Operand<Element = T>,
    T: MultipliesWith<T>,
{
    all.push(entry::<Batched<Staged<A, B, T>>>("batched"));
    all.push(entry::<Batched<Medium<A, B, T>>>("batched-direct"));
    all.push(entry::<Batched<Stream<A, B, T>>>("batched-stream"));
    all.push(entry::<Batched<Swap16<A, B, T>>>("batched-swap16"));
    all.push(entry::<Batched<Unaligned<A, B, T>>>("batched-unaligned"));
    all.push(entry::<Ragged<Unaligned<A, B, T>>>("ragged-unaligned"));
    all.push(entry::<PointerArray<Large<A, B, T>>>("grouped"));
    all.push(entry::<PointerArray<Medium<A, B, T>>>("grouped-medium"));
    all.push(entry::<PointerArray<Swap16<A, B, T>>>("grouped-swap16"));
    all.push(entry::<PointerArray<Unaligned<A, B, T>>>("grouped-unaligned"));
}
