//! Static persistent scheduling: as many workers as can be resident; each walks the tiles with a fixed
//! stride.

use core::marker::PhantomData;

use crate::{OfSpec, Raster, Rule, SchedulerSpec};

/// Static persistent scheduling: worker `w` of `W` computes tiles `w`, `w + W`, `w + 2W`, … of the order `R`.
/// The default choice for outputs of several waves.
///
/// Loads of the next tile overlap the epilogue of the current one. Tiles that are neighbours in the order run
/// at the same time, so the order determines which operands are in L2.
#[derive(Clone, Copy, Debug, Default)]
pub struct Persistent<R>(PhantomData<R>);

impl<R: Raster> OfSpec for Persistent<R> {
    const SPEC: SchedulerSpec = SchedulerSpec { raster: R::RASTER, rule: Rule::Persistent };
}
