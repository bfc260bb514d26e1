//! A product of two tiles: the instruction that multiplies them, and how warpgroups share the work.

use core::ops::Range;

use cute_rs::atom::Major;
use cute_rs::{CoordLayout, IntTuple, Layout, LayoutError, MmaAtom, Operand, Partition, TiledMma};
use ptx::WgmmaTypes;
use ptx::inst::WgmmaSum;

use super::{Atom, OperandTile, PlanError, Source};

/// Most columns of one instruction.
pub(super) const MOST_COLUMNS: u32 = 256;

/// The numbers of a product: an instruction, a tile, and who multiplies it. It says nothing of where the tiles come from. Whoever makes
/// one by hand may ask it anything; only [`ProductSpec::new`] and a plan say whether it can be multiplied.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct ProductShape {
    /// The instruction that multiplies.
    pub atom: Atom,
    /// Tile extents (M, N, K) in elements.
    pub tile: [u32; 3],
    /// Warpgroups that share the tile: each has an equal number of its rows.
    pub warpgroups: u32,
    /// What the columns of an instruction are a multiple of if several multiply a block's rows: of the instruction's widths
    /// ([`Atom::column_step`]) or, for an N-major B, of its swizzle.
    pub column_step: u32,
    /// As [`MainloopSpec::waves`](super::MainloopSpec::waves); 1 for all at once.
    pub waves: u32,
}

impl ProductShape {
    /// Number of blocks of the tile that one warpgroup computes. A block is the rows of one instruction. 0 without warpgroups.
    pub const fn blocks(&self) -> u32 {
        match self.tile[0].checked_div(self.warpgroups) {
            Some(rows) => rows / self.atom.rows(),
            None => 0,
        }
    }

    /// Number of instructions along K.
    pub const fn steps(&self) -> u32 {
        self.tile[2] / self.atom.k()
    }

    /// Number of instructions next to each other that multiply a block's rows by all columns of a tile: the
    /// fewest of at most 256 columns each, or one for each range of columns of a wave.
    pub const fn across(&self) -> u32 {
        let ranges = self.wave_ranges();
        if ranges > 1 {
            return ranges;
        }
        let step = self.step();
        // Columns beyond the last whole step below 256 cannot be used.
        self.tile[1].div_ceil(step).div_ceil(MOST_COLUMNS / step)
    }

    /// The step of columns, as far as it is one.
    const fn step(&self) -> u32 {
        match self.column_step {
            0 => 1,
            step @ 1..MOST_COLUMNS => step,
            MOST_COLUMNS.. => MOST_COLUMNS,
        }
    }

    /// First column of instruction `i` of them, and the number of columns it multiplies. The numbers are as
    /// equal as possible. Behind the last one, no columns.
    pub const fn columns_of(&self, i: u32) -> [u32; 2] {
        let across = self.across();
        if i >= across {
            return [self.tile[1], 0];
        }
        if across == 1 {
            return [0, self.tile[1]];
        }
        let (step, steps) = (self.step(), (self.tile[1] / self.step()) as u64);
        let first = (steps * i as u64 / across as u64) as u32 * step;
        let end = (steps * (i as u64 + 1) / across as u64) as u32 * step;
        [first, end - first]
    }

    /// Number of columns of the widest of them.
    pub const fn widest(&self) -> u32 {
        let (mut widest, mut i) = (0, 0);
        while i < self.across() {
            let [_, columns] = self.columns_of(i);
            widest = if columns > widest { columns } else { widest };
            i += 1;
        }
        widest
    }

    /// The largest number of columns that divides the width of each of them.
    pub(crate) const fn column_unit(&self) -> u32 {
        let ([_, mut unit], mut i) = (self.columns_of(0), 1);
        while i < self.across() {
            unit = gcd(unit, self.columns_of(i)[1]);
            i += 1;
        }
        unit
    }

    /// The same, which also divides the columns of B's tile and those of its slabs, if the tile has more than are multiplied.
    pub(crate) const fn column_unit_of(&self, b: &OperandTile) -> u32 {
        match b.extents()[0] {
            columns if columns == self.tile[1] => self.column_unit(),
            columns => gcd(self.column_unit(), gcd(columns, self.step())),
        }
    }

    /// Accumulators of a consumer thread per block. Equal to the number of registers, unless a register holds
    /// two.
    pub(crate) const fn block_sums(&self) -> u32 {
        self.tile[1] / 2
    }

    /// Number of blocks of rows of a wave.
    const fn wave_blocks(&self) -> u32 {
        let (blocks, waves) = (self.blocks(), self.waves);
        if waves == 0 || blocks <= waves { 1 } else { blocks / waves }
    }

    /// Number of ranges of columns into which waves divide a block; 1 if a wave has all columns.
    pub(super) const fn wave_ranges(&self) -> u32 {
        let (blocks, waves) = (self.blocks(), self.waves);
        if blocks == 0 || waves <= blocks { 1 } else { waves / blocks }
    }

    /// The blocks of a wave, and its instructions next to each other.
    pub(crate) const fn wave(&self, wave: u32) -> [Range<u32>; 2] {
        let (rows, ranges) = (self.wave_blocks(), self.wave_ranges());
        let (block, range) = (wave / ranges * rows, wave % ranges);
        let each = self.across() / ranges;
        [block..block + rows, range * each..(range + 1) * each]
    }

    /// Accumulator registers of a consumer thread, in 32-bit registers: those of a wave.
    pub const fn accumulators(&self) -> u32 {
        let columns = self.tile[1] / self.wave_ranges();
        let blocks = if self.waves == 1 { self.blocks() } else { self.wave_blocks() };
        blocks.saturating_mul(self.atom.accumulators(columns))
    }

    /// Checks that warpgroups can share the rows of the tile.
    pub(super) const fn rows(&self) -> Result<(), PlanError> {
        let (m, consumers) = (self.tile[0], self.warpgroups);
        if consumers == 0 || m == 0 || !m.is_multiple_of(self.atom.rows().saturating_mul(consumers)) {
            return Err(PlanError::TileM { m, consumers });
        }
        Ok(())
    }

    /// Checks that instructions multiply all columns of the tile.
    pub(super) const fn columns(&self) -> Result<(), PlanError> {
        let (n, step, across) = (self.tile[1], self.atom.column_step(), self.across());
        if n == 0 || !n.is_multiple_of(8) || (across > 1 && !n.is_multiple_of(step)) {
            return Err(PlanError::TileN { n, step });
        }
        let mut i = 0;
        while i < across {
            if !self.atom.allows(self.columns_of(i)[1]) {
                return Err(PlanError::TileN { n, step });
            }
            i += 1;
        }
        Ok(())
    }

    /// Checks that the tile's K is whole instructions.
    pub(super) const fn depth(&self) -> Result<(), PlanError> {
        let (k, step) = (self.tile[2], self.atom.k());
        if k == 0 || !k.is_multiple_of(step) {
            return Err(PlanError::TileK { k, step });
        }
        Ok(())
    }

    /// The multiply of the tile by all warpgroups that share it. Each has an equal number of rows, in
    /// consecutive blocks. Neighbouring instructions of different widths are treated as several of one common
    /// width.
    pub(crate) fn tiled(&self) -> Result<TiledMma, LayoutError> {
        self.tiled_by(self.atom.layout(self.column_unit())?)
    }

    /// As [`tiled`](Self::tiled), with another layout for the multiply of a block's rows.
    pub(crate) fn tiled_by(&self, atom: MmaAtom) -> Result<TiledMma, LayoutError> {
        let (blocks, rows, tile_m) =
            (i64::from(self.blocks()), i64::from(self.atom.rows()), i64::from(self.tile[0]));
        let parts = if blocks == 0 { 0 } else { tile_m / (rows * blocks) };
        let shares = Layout::flat(&[rows, parts, blocks], &[1, rows * blocks, rows])?;
        TiledMma::new(atom, [parts, 1, 1])?.permuted([Some(shares), None, None])
    }

    /// Which elements `(m, n)` of the tile the threads of its warpgroups hold.
    pub(crate) fn elements(&self) -> Partition<CoordLayout> {
        let [m, n, _] = self.tile;
        let output = CoordLayout::identity(IntTuple::from((i64::from(m), i64::from(n))));
        let parts = output.and_then(|output| self.tiled()?.partition(Operand::C, &output));
        parts.expect("a product's rows, columns and depth are checked before anything is emitted")
    }
}

/// The largest number that divides both.
const fn gcd(mut a: u32, mut b: u32) -> u32 {
    while b > 0 {
        (a, b) = (b, a % b);
    }
    a
}

/// A product of two tiles that are in shared memory, or of fragments in registers and a tile: checked when it is made, so that no later
/// step can fail.
///
/// ```
/// use collective::{Atom, Format, OperandTile, ProductSpec, TileLayout};
/// use cute_rs::atom::Major;
/// use ptx::WgmmaTypes;
///
/// const A: OperandTile = OperandTile::checked(Format::Bf16, Major::K, [128, 64], TileLayout::Widest);
/// const B: OperandTile = OperandTile::checked(Format::Bf16, Major::Mn, [96, 64], TileLayout::Widest);
/// /// Two warpgroups have 64 rows each.
/// const PRODUCT: ProductSpec = ProductSpec::checked(Atom::shared(WgmmaTypes::Bf16F32), [A, B.at(16384)], 2);
/// assert_eq!((PRODUCT.spec().tile, PRODUCT.spec().accumulators()), ([128, 96, 64], 48));
///
/// let error = ProductSpec::new(Atom::shared(WgmmaTypes::Bf16F32), [A, A], 3).unwrap_err();
/// assert_eq!(
///     error.to_string(),
///     "tile M is 128, not a multiple of 192 (64 rows for each of 3 consumer warpgroups): change tile M or the consumers"
/// );
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProductSpec {
    spec: ProductShape,
    tiles: [OperandTile; 2],
    /// A tile in place of A's or B's that has other extents than it, or another format.
    misfit: Option<OperandTile>,
}

impl ProductSpec {
    /// The product of A's tile (M, K) and B's (N, K), whose rows `warpgroups` consumer warpgroups share. If the atom takes A from registers,
    /// A's tile says what is in them.
    ///
    /// # Errors
    /// The rule that tiles, instruction and warpgroups break.
    pub const fn new(atom: Atom, tiles: [OperandTile; 2], warpgroups: u32) -> Result<Self, PlanError> {
        let [a, b] = tiles;
        let column_step = match b.major() {
            Major::K => atom.column_step(),
            Major::Mn => b.swizzle().elements(b.bits()),
        };
        let tile = [a.extents()[0], b.extents()[0], b.extents()[1]];
        let spec = ProductShape { atom, tile, warpgroups, column_step, waves: 1 };
        if atom.wgmma().is_none() || a.extents()[1] * atom.density() != tile[2] {
            return Err(PlanError::Product { a: a.extents(), b: b.extents() });
        }
        if let Err(error) = spec.rows() {
            return Err(error);
        }
        if let Err(error) = spec.columns() {
            return Err(error);
        }
        if let Err(error) = spec.depth() {
            return Err(error);
        }
        match atom.reads([(a.bits(), a.major()), (b.bits(), b.major())]) {
            Ok(()) => Ok(Self { spec, tiles, misfit: None }),
            Err(error) => Err(error),
        }
    }

    /// As [`new`](Self::new), in a constant. An illegal product stops the build.
    ///
    /// # Panics
    /// At compile time, with the error's sentence.
    pub const fn checked(atom: Atom, tiles: [OperandTile; 2], warpgroups: u32) -> Self {
        match Self::new(atom, tiles, warpgroups) {
            Ok(product) => product,
            Err(error) => panic!("{}", error.sentence().as_str()),
        }
    }

    /// The product of a plan, which has checked it.
    pub(super) const fn planned(spec: ProductShape, tiles: [OperandTile; 2]) -> Self {
        Self { spec, tiles, misfit: None }
    }

    /// The product of the first `columns` columns of B's tile and the first `depth` elements along K of both: what follows is in shared
    /// memory alone.
    ///
    /// ```
    /// use collective::{Atom, Format, OperandTile, ProductSpec, TileLayout};
    /// use cute_rs::atom::Major;
    /// use ptx::WgmmaTypes;
    ///
    /// /// 80 elements of each row, in two slabs of 64.
    /// const A: OperandTile = OperandTile::checked(Format::Bf16, Major::K, [64, 128], TileLayout::Widest);
    /// const PRODUCT: ProductSpec = ProductSpec::checked(Atom::shared(WgmmaTypes::Bf16F32), [A, A.at(16384)], 1);
    /// assert_eq!(PRODUCT.of_first([64, 80]).map(|of| of.spec().steps()), Ok(5));
    /// assert!(PRODUCT.of_first([64, 144]).is_err() && PRODUCT.of_first([72, 80]).is_err());
    /// ```
    ///
    /// # Errors
    /// The tiles have fewer columns or less depth, or no instruction multiplies that number.
    pub const fn of_first(self, [columns, depth]: [u32; 2]) -> Result<Self, PlanError> {
        let ([a, b], density) = (self.tiles, self.spec.atom.density());
        let spec = ProductShape { tile: [self.spec.tile[0], columns, depth], ..self.spec };
        if columns > b.extents()[0] || depth > b.extents()[1] {
            return Err(PlanError::Product { a: [a.extents()[0], depth / density], b: [columns, depth] });
        }
        if let Err(error) = spec.columns() {
            return Err(error);
        }
        match spec.depth() {
            Ok(()) => Ok(Self { spec, ..self }),
            Err(error) => Err(error),
        }
    }

    /// The same product of another B, of the same extents, format and contiguous direction. Any other makes the program illegal in which it
    /// is multiplied.
    #[must_use]
    pub fn by(self, b: OperandTile) -> Self {
        let of = |tile: OperandTile| (tile.extents(), tile.format(), tile.major(), tile.swizzle());
        if of(b) == of(self.tiles[1]) {
            Self { tiles: [self.tiles[0], b], ..self }
        } else {
            Self { misfit: Some(b), ..self }
        }
    }

    /// Its numbers.
    pub const fn spec(&self) -> &ProductShape {
        &self.spec
    }

    /// A's tile and B's.
    pub const fn tiles(&self) -> [OperandTile; 2] {
        self.tiles
    }

    /// The types of the instruction; those of `bf16` for a plan's product that is no `wgmma`.
    pub(crate) fn types(&self) -> WgmmaTypes {
        self.spec.atom.wgmma().unwrap_or(WgmmaTypes::Bf16F32)
    }

    /// Whether A comes from registers.
    pub const fn takes_fragments(&self) -> bool {
        matches!(self.spec.atom.a, Source::Registers)
    }

    /// Why it cannot be multiplied with accumulators of a type, if it cannot.
    pub(crate) fn refusal(&self, sums: WgmmaSum) -> Option<String> {
        if let Some(b) = self.misfit {
            let ([mn, k], [n, depth]) = (b.extents(), self.tiles[1].extents());
            let (found, needed) = (b.format(), self.tiles[1].format());
            return Some(format!(
                "a product's B was replaced by a tile of {mn} x {k} in {found}: {n} x {depth} in {needed} was needed, with the same contiguous direction and swizzle"
            ));
        }
        let own = self.spec.atom.wgmma().map(WgmmaTypes::d);
        (own != Some(sums)).then(|| {
            let found = own.map_or("no `wgmma`".to_owned(), |own| format!("a `wgmma` that sums in {own:?}"));
            format!("the product's atom is {found}, one that sums in {sums:?} was needed")
        })
    }
}
