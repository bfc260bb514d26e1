//! Tilers: the argument that says what an operation does to each mode.

use crate::error::LayoutError;
use crate::int_tuple::IntTuple;
use crate::layout::Layout;

/// What an operation does to each mode of a layout, written `<4:1,_,<2:1,8:2>>`. CuTe's tiler.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Tiler<'a> {
    /// `_`: the mode stays as it is.
    Keep,
    /// This layout, applied to the whole mode as a function of integers.
    By(&'a Layout),
    /// A shape. Each of its leaves `s` stands for the layout `s:1`: `(4,8)` is `<4:1,8:1>`.
    Shape(&'a IntTuple),
    /// One tiler per mode. Modes beyond the last tiler stay as they are.
    Modes(&'a [Self]),
}

/// The operation that is applied where the tiler has a layout.
#[derive(Clone, Copy)]
pub(super) enum Operation {
    Compose,
    Divide,
    Product,
}

impl Operation {
    const fn of(self, layout: &Layout, tiler: &Layout) -> Result<Layout, LayoutError> {
        match self {
            Self::Compose => layout.composition(tiler),
            Self::Divide => layout.logical_divide(tiler),
            Self::Product => layout.logical_product(tiler),
        }
    }
}

/// A tiler's shape, layout, or number of modes.
#[expect(clippy::large_enum_variant, reason = "short-lived, and nothing here may allocate")]
enum Part<'a> {
    Keep,
    By(Layout),
    Modes(Modes<'a>),
}

/// The tilers of the modes of a part.
#[derive(Clone, Copy)]
enum Modes<'a> {
    Tilers(&'a [Tiler<'a>]),
    Shape(&'a IntTuple),
}

impl<'a> Tiler<'a> {
    const fn part(&self) -> Result<Part<'a>, LayoutError> {
        match *self {
            Self::Keep => Ok(Part::Keep),
            Self::By(layout) => Ok(Part::By(*layout)),
            Self::Shape(shape) if shape.is_int() => Ok(Part::By(ok!(Layout::new(*shape, IntTuple::int(1))))),
            Self::Shape(shape) => Ok(Part::Modes(Modes::Shape(shape))),
            Self::Modes(tilers) => Ok(Part::Modes(Modes::Tilers(tilers))),
        }
    }
}

impl Modes<'_> {
    const fn len(self) -> usize {
        match self {
            Self::Tilers(tilers) => tilers.len(),
            Self::Shape(shape) => shape.rank(),
        }
    }

    /// Refuses more tilers than modes.
    const fn fit(self, layout: &Layout) -> Result<(), LayoutError> {
        let rank = layout.rank();
        if self.len() > rank { Err(LayoutError::Rank { needed: rank, given: self.len() }) } else { Ok(()) }
    }
}

/// Tile and rest. There is no tile if the tiler keeps everything.
type Split = (Option<Layout>, Layout);

impl Layout {
    /// Applies the operation to every mode that has a tiler.
    pub(super) const fn by_mode(&self, tiler: &Tiler<'_>, operation: Operation) -> Result<Self, LayoutError> {
        let modes = match ok!(tiler.part()) {
            Part::Keep => return Ok(*self),
            Part::By(layout) => return operation.of(self, &layout),
            Part::Modes(modes) => modes,
        };
        ok!(modes.fit(self));
        let mut result = Self::EMPTY;
        let rank = self.rank();
        each!(i, 0..rank, {
            let mode = match modes {
                _ if i >= modes.len() => Ok(self.mode(i)),
                Modes::Tilers(tilers) => self.mode(i).by_mode(&tilers[i], operation),
                Modes::Shape(shape) => self.mode(i).by_mode(&Tiler::Shape(&shape.mode(i)), operation),
            };
            match mode {
                Ok(mode) => {
                    ok!(result.extend(&mode));
                }
                Err(error) => return Err(error),
            }
        });
        result.close()
    }

    /// Applies the operation to every mode that has a tiler, and gathers the first and the second halves.
    pub(super) const fn split(&self, tiler: &Tiler<'_>, operation: Operation) -> Result<Split, LayoutError> {
        let modes = match ok!(tiler.part()) {
            Part::Keep => return Ok((None, *self)),
            Part::By(layout) => {
                return match operation.of(self, &layout) {
                    Ok(both) => Ok((Some(both.mode(0)), both.mode(1))),
                    Err(error) => Err(error),
                };
            }
            Part::Modes(modes) => modes,
        };
        ok!(modes.fit(self));
        let (mut tiles, mut rests) = (Self::EMPTY, Self::EMPTY);
        let rank = self.rank();
        each!(i, 0..rank, {
            let parts = match modes {
                _ if i >= modes.len() => Ok((None, self.mode(i))),
                Modes::Tilers(tilers) => self.mode(i).split(&tilers[i], operation),
                Modes::Shape(shape) => self.mode(i).split(&Tiler::Shape(&shape.mode(i)), operation),
            };
            let (tile, rest) = ok!(parts);
            if let Some(tile) = tile {
                ok!(tiles.extend(&tile));
            }
            ok!(rests.extend(&rest));
        });
        let tile = if tiles.shape_ref().is_empty() { Ok(None) } else { some(tiles.close()) };
        Ok((ok!(tile), ok!(rests.close())))
    }

    /// Gathers the halves of the first `count` modes, which are pairs: `((A0,B0),(A1,B1),C,…)` becomes
    /// `((A0,A1),(B0,B1,C,…))`.
    ///
    /// `R(((a0,a1),(b0,b1,c))) = L(((a0,b0),(a1,b1),c))`
    ///
    /// ```
    /// # use cute_rs::{IntTuple, Layout};
    /// let pairs = Layout::new(IntTuple::from(((2, 3), (4, 5), 6)), IntTuple::from(((1, 2), (6, 24), 120)))?;
    /// assert_eq!(pairs.tile_unzip(2)?.to_string(), "((2,4),(3,5,6)):((1,6),(2,24,120))");
    /// # Ok::<(), cute_rs::LayoutError>(())
    /// ```
    ///
    /// # Errors
    /// [`LayoutError::Rank`] if there are fewer than `count` modes, or one of them is not a pair.
    pub const fn tile_unzip(&self, count: usize) -> Result<Self, LayoutError> {
        let rank = self.rank();
        if count > rank || count == 0 {
            return Err(LayoutError::Rank { needed: count, given: rank });
        }
        let (mut tiles, mut rests) = (Self::EMPTY, Self::EMPTY);
        each!(i, 0..rank, {
            let mode = self.mode(i);
            let mut rest = mode;
            if i < count {
                if mode.rank() != 2 {
                    return Err(LayoutError::Rank { needed: 2, given: mode.rank() });
                }
                ok!(tiles.extend(&mode.mode(0)));
                rest = mode.mode(1);
            }
            ok!(rests.extend(&rest));
        });
        Self::concat(&[ok!(tiles.close()), ok!(rests.close())])
    }
}

/// Which parentheses of `(tile, rest)` are removed.
#[derive(Clone, Copy)]
pub(super) enum Arrangement {
    /// `((t0,t1),(r0,r1))`
    Zipped,
    /// `((t0,t1),r0,r1)`
    Tiled,
    /// `(t0,t1,r0,r1)`
    Flat,
}

/// Tile and rest as one layout.
pub(super) const fn arranged(
    split: Result<Split, LayoutError>,
    arrangement: Arrangement,
) -> Result<Layout, LayoutError> {
    let (tile, rest) = match ok!(split) {
        (Some(tile), rest) => (tile, rest),
        (None, rest) => (Layout::leaf(1, 0), rest),
    };
    let mut result = Layout::EMPTY;
    let added = match arrangement {
        Arrangement::Flat => result.extend_modes(&tile),
        Arrangement::Zipped | Arrangement::Tiled => result.extend(&tile),
    };
    ok!(added);
    let added = match arrangement {
        Arrangement::Zipped => result.extend(&rest),
        Arrangement::Tiled | Arrangement::Flat => result.extend_modes(&rest),
    };
    ok!(added);
    result.close()
}

const fn some(layout: Result<Layout, LayoutError>) -> Result<Option<Layout>, LayoutError> {
    Ok(Some(ok!(layout)))
}
