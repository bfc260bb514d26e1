//! Kernels of several products by name, beside the [`catalogue`](crate::catalogue) of those of one.

use collective::{
    Cluster, Cooperative, CopyWgmma, DirectStore, KMajor, LinearCombination, MnMajor, MultipliesWith,
    Operand, Operands, Pingpong, Tile, TmaStore, TmaWgmma, Transposed,
};
use half::{bf16, f16};
use scheduler::{AlongM, Grouped, Persistent, StreamK};
use typenum::{U1, U2, U8, U16, U64, U128, U256};

use crate::catalogue::{AnyGemm, entry};
use crate::config::Composed;
use crate::form::{Batched, Ragged};

/// D stored by tensor copies, persistent.
type Copied<A, B, T, Shape, Roles> = Composed<
    TmaWgmma<Operands<A, B>, Shape, Roles>,
    LinearCombination<T, TmaStore>,
    Persistent<Grouped<AlongM, U8>>,
>;

/// A 128 x 256 tile, two consumer warpgroups.
type Staged<A, B, T> = Copied<A, B, T, Tile<U128, U256, U64>, Cooperative<U2>>;

/// A 256 x 128 tile in clusters of two that share A.
type Duo<A, B, T> = Copied<A, B, T, Tile<U256, U128, U64>, Cooperative<U2, Cluster<U1, U2>>>;

/// A 64 x 256 tile for each of two consumer warpgroups that take turns: for few rows.
type Flat<A, B, T> = Copied<A, B, T, Tile<U64, U256, U64>, Pingpong>;

/// A 128 x 128 tile, two consumer warpgroups, any row length of D.
type Medium<A, B, T> = Composed<
    TmaWgmma<Operands<A, B>, Tile<U128, U128, U64>, Cooperative<U2>>,
    LinearCombination<T>,
    Persistent<Grouped<AlongM, U8>>,
>;

/// As [`Staged`], with the last waves divided along K. A 256 x 192 tile leaves no registers for the number of the product.
type Stream<A, B, T> = Composed<
    TmaWgmma<Operands<A, B>, Tile<U128, U256, U64>, Cooperative<U2>>,
    LinearCombination<T, TmaStore>,
    StreamK<Grouped<AlongM, U8>>,
>;

/// The transpose of D: for up to 16 rows of each product.
type Swap16<A, B, T> = Composed<
    TmaWgmma<Operands<B, A>, Tile<U64, U16, U128>, Cooperative<U1>>,
    LinearCombination<T, Transposed<DirectStore>>,
    Persistent<AlongM>,
>;

/// Operands at any address.
type Unaligned<A, B, T> = Composed<
    CopyWgmma<Operands<A, B>, Tile<U128, U128, U64>, Cooperative<U2>>,
    LinearCombination<T>,
    Persistent<Grouped<AlongM, U8>>,
>;

/// Every kernel of several products, in a fixed order.
///
/// A name is `<kind>-<element>-<A's direction><B's direction>` as in the [`catalogue`](crate::catalogue); the kinds
/// `batched…` are for products of one shape, the kinds `ragged…` for groups of rows.
pub fn several() -> Vec<Box<dyn AnyGemm>> {
    let mut all = Vec::new();
    all_directions::<bf16>(&mut all);
    all_directions::<f16>(&mut all);
    all
}

fn all_directions<T: MultipliesWith<T>>(all: &mut Vec<Box<dyn AnyGemm>>) {
    all_kinds::<KMajor<T>, KMajor<T>, T>(all);
    all_kinds::<KMajor<T>, MnMajor<T>, T>(all);
    all_kinds::<MnMajor<T>, KMajor<T>, T>(all);
    all_kinds::<MnMajor<T>, MnMajor<T>, T>(all);
}

fn all_kinds<A, B, T>(all: &mut Vec<Box<dyn AnyGemm>>)
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
    all.push(entry::<Ragged<Staged<A, B, T>>>("ragged"));
    all.push(entry::<Ragged<Duo<A, B, T>>>("ragged-duo"));
    all.push(entry::<Ragged<Flat<A, B, T>>>("ragged-flat"));
    all.push(entry::<Ragged<Medium<A, B, T>>>("ragged-direct"));
    all.push(entry::<Ragged<Swap16<A, B, T>>>("ragged-swap16"));
    all.push(entry::<Ragged<Unaligned<A, B, T>>>("ragged-unaligned"));
}
