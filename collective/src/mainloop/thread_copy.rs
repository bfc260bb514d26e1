//! Loading by threads: `cp.async` of as many bytes as addresses allow, or element by element, into a swizzled
//! tile.

use cute_rs::ComposedLayout;
use cute_rs::atom::Major;
use ptx::{Builder, Scalar, Value, Var};

use crate::form::displaced;
use crate::operand::Matrix;
use crate::operands::{Parameter, Visit};
use crate::pipeline::Stage;
use crate::plan::{OperandTile, Producer, element_offset, element_place};

/// The matrix from which threads copy an operand's tiles.
#[derive(Clone, Copy, Debug)]
pub struct ThreadOrigin<'f> {
    pub(super) address: Value<'f, u64>,
    /// Leading dimension in bytes, from one row (K-major) or column (MN-major) to the next.
    pub(super) ld: Value<'f, u64>,
    /// Extent along M or N.
    pub(super) mn: Value<'f, u32>,
    /// Bytes per copy: what the alignment of every 16 B of a tile allows.
    pub(super) width: Value<'f, u32>,
    /// Bytes from one matrix of a batch to the next; `None` if there is only one.
    pub(super) batch: Option<Value<'f, u64>>,
}

impl OperandTile {
    /// States the parameters that [`ThreadOrigin::of`] finds under these names, for tiles of a matrix in memory that was visited
    /// under the name `within`. The matrix is `None` where no launch is made. If groups of rows may begin `anywhere` in a line,
    /// nothing is aligned.
    pub fn state_threads(
        &self,
        [address, ld, mn, width]: [&'static str; 4],
        within: &'static str,
        matrix: Option<Matrix>,
        anywhere: bool,
        visit: &mut dyn Visit,
    ) {
        let Self { major, split, .. } = *self;
        let bits = self.bits();
        let pitch = |elements: u64| elements * u64::from(bits / 8);
        let widest = |matrix: Matrix| {
            // Byte offset of the right half in a line that holds both halves.
            let half = if split && major == Major::Mn { u64::from(matrix.mn / 2 * (bits / 8)) } else { 0 };
            let places = matrix.address | pitch(matrix.ld) | pitch(matrix.batch.stride) | half;
            let fits = |width: &u32| !anywhere && places.is_multiple_of((*width).into());
            WIDTHS.into_iter().find(fits).unwrap_or(bits / 8)
        };
        match matrix {
            Some(Matrix { address: 0, .. }) => visit.parameter(Parameter::unread(address, within)),
            _ => visit.address(address, within),
        }
        visit.number(ld, matrix.map(|matrix| pitch(matrix.ld)));
        visit.number(mn, matrix.map(|matrix| matrix.mn));
        visit.number(width, matrix.map(widest));
    }
}

impl<'f> ThreadOrigin<'f> {
    /// Finds the parameters of a matrix under these names, which [`OperandTile::state_threads`] states: address, leading dimension in
    /// bytes, number of rows, and bytes per copy.
    #[track_caller]
    pub fn of(f: &'f Builder, [address, ld, mn, width]: [&'static str; 4]) -> Self {
        Self {
            address: f.parameter(address),
            ld: f.parameter(ld),
            mn: f.parameter(mn),
            width: f.parameter(width),
            batch: None,
        }
    }

    /// The matrix of a group.
    pub(super) fn of_group(self, group: Option<Value<'f, u32>>) -> Self {
        Self { address: displaced(self.address, self.batch, group), ..self }
    }
}

/// Bytes that one `cp.async` can copy, the widest first.
pub(super) const WIDTHS: [u32; 3] = [16, 8, 4];

/// Bytes per chunk. A swizzle keeps a chunk together.
const CHUNK: u32 = 16;

/// The threads that copy: the executing thread's index, the number of threads, and the number of chunks that
/// a thread holds at a time when it copies element by element.
#[derive(Clone, Copy, Debug)]
pub(super) struct Copying<'f> {
    pub(super) thread: Value<'f, u32>,
    pub(super) threads: u32,
    pub(super) chunks: u32,
}

/// Copies of one operand's tile by the 128 threads of a warpgroup.
///
/// Each thread arrives on a stage's full barrier when its own copies have landed: see
/// [`Position::fill_by_threads`](crate::pipeline::Position::fill_by_threads). Elements outside the matrix
/// become zero.
///
/// ```
/// use collective::pipeline::Position;
/// use collective::{Format, OperandTile, ThreadCopy, ThreadOrigin, TileLayout};
/// use cute_rs::atom::Major;
/// use ptx::{Builder, Special, Value};
///
/// const TILE: OperandTile = OperandTile::checked(Format::Bf16, Major::K, [128, 64], TileLayout::Widest);
///
/// /// Fills stages with the tiles of rows `row..row + 128`, `count` of them along K, of a matrix with `k` columns.
/// fn load<'f>(f: &'f Builder, ring: Position<'f>, row: Value<'f, u32>, count: Value<'f, u32>, k: Value<'f, u32>) {
///     let thread = f.special(Special::ThreadX) % 128;
///     let origin = ThreadOrigin::of(f, ["x", "x_pitch", "x_rows", "x_width"]);
///     let copy = ThreadCopy::new(f, TILE, origin, k, thread);
///     ring.fill_by_threads([f.constant(0), count], |stage, k_tile| copy.copy(stage, [row, k_tile * 64]));
/// }
/// ```
pub struct ThreadCopy<'f> {
    /// One copier for the whole tile; for a split matrix, one per half.
    parts: Vec<Copier<'f>>,
}

impl std::fmt::Debug for ThreadCopy<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ThreadCopy").field("parts", &self.parts.len()).finish()
    }
}

impl<'f> ThreadCopy<'f> {
    /// The copies of a tile by the executing thread, number `thread` of its warpgroup, from a matrix with `k`
    /// columns.
    #[track_caller]
    pub fn new(
        f: &'f Builder,
        tile: OperandTile,
        origin: ThreadOrigin<'f>,
        k: Value<'f, u32>,
        thread: Value<'f, u32>,
    ) -> Self {
        let chunks = Producer::chunks(tile.bits());
        f.for_caller(|| Self::by(f, tile, origin, k, Copying { thread, threads: 128, chunks }))
    }

    /// As [`new`](Self::new), by other threads.
    pub(super) fn by(
        f: &'f Builder,
        tile: OperandTile,
        origin: ThreadOrigin<'f>,
        k: Value<'f, u32>,
        copying: Copying<'f>,
    ) -> Self {
        Self { parts: Copier::halves(f, tile, origin, k, copying) }
    }

    /// Starts the copies of the tile whose first element is `(mn, k)`, into a stage.
    #[track_caller]
    pub fn copy(&self, stage: Stage<'f>, first: [Value<'f, u32>; 2]) {
        stage.address.builder().for_caller(|| self.copy_to(stage.address, first));
    }

    /// As [`copy`](Self::copy), into the stage at a shared address.
    pub(super) fn copy_to(&self, stage: Value<'f, u32>, first: [Value<'f, u32>; 2]) {
        for part in &self.parts {
            part.copy(first, stage + part.tile.offset);
        }
    }
}

/// Copies one operand's tiles. A *line* is a row of a K-major operand or a column of an MN-major one. A tile
/// consists of blocks of lines of one swizzle width. All threads together copy the chunks of some consecutive
/// lines at a time, one chunk per thread, and then those of the next lines.
struct Copier<'f> {
    f: &'f Builder,
    source: ThreadOrigin<'f>,
    tile: OperandTile,
    layout: ComposedLayout,
    copying: Copying<'f>,
    /// Number of lines of the matrix, and elements per line.
    extent: [Value<'f, u32>; 2],
    /// The thread's first chunk in the tile: its line, and its first element in the line.
    own: [Value<'f, u32>; 2],
    /// Offset of that chunk in shared memory, in bytes from the tile's start.
    place: Value<'f, u32>,
    /// Line and element of the tile at which this copier's part begins.
    skipped: [u32; 2],
}

/// Source and destination of 16 B of a tile.
struct Chunk<'f> {
    source: Value<'f, u64>,
    destination: Value<'f, u32>,
    /// Whether its line is inside the matrix.
    inside: Value<'f, bool>,
    /// Whether this thread has the chunk; `None` if every thread has one.
    own: Option<Value<'f, bool>>,
}

impl<'f> Copier<'f> {
    fn new(
        f: &'f Builder,
        tile: OperandTile,
        source: ThreadOrigin<'f>,
        k: Value<'f, u32>,
        copying: Copying<'f>,
    ) -> Self {
        // (BLK_MN, BLK_K)
        let (layout, bits, thread) = (tile.layout(), tile.bits(), copying.thread);
        let chunks = tile.swizzle.bytes() / CHUNK;
        let own = [thread / chunks, thread % chunks * (CHUNK * 8 / bits)];
        let place = element_place(&layout, ordered(tile.major, own)) * (bits / 8);
        let extent = ordered(tile.major, [source.mn, k]);
        Self { f, source, tile, layout, copying, extent, own, place, skipped: [0, 0] }
    }

    /// The copiers of a tile: one for the whole tile; for a split matrix, one per half.
    fn halves(
        f: &'f Builder,
        tile: OperandTile,
        source: ThreadOrigin<'f>,
        k: Value<'f, u32>,
        copying: Copying<'f>,
    ) -> Vec<Self> {
        let whole = Self::new(f, tile, source, k, copying);
        if !tile.split {
            return vec![whole];
        }
        let mn = source.mn >> 1;
        let distance = match tile.major {
            Major::K => mn.cast::<u64>() * source.ld,
            Major::Mn => mn.mul_wide(tile.bits() / 8),
        };
        let half = |address, skipped| Self {
            source: ThreadOrigin { address, mn, ..source },
            tile: OperandTile { mn: tile.mn / 2, ..tile },
            extent: ordered(tile.major, [mn, k]),
            skipped: ordered(tile.major, [skipped, 0]),
            ..whole
        };
        vec![half(source.address, 0), half(source.address + distance, tile.mn / 2)]
    }

    /// Number of lines of the tile that all threads copy at a time.
    fn lines_at_once(&self) -> u32 {
        self.copying.threads * CHUNK / self.tile.swizzle.bytes()
    }

    /// Copies the tile whose first element is `(mn, k)` to a shared address.
    fn copy(&self, first: [Value<'f, u32>; 2], address: Value<'f, u32>) {
        let [line, column] = ordered(self.tile.major, first);
        let [own_line, own_column] = self.own;
        let (line, column) = (line + own_line, column + own_column);
        let source =
            self.source.address + line.cast::<u64>() * self.source.ld + column.mul_wide(self.tile.bits() / 8);
        let place = address + self.place;
        self.in_widths(&WIDTHS, &|width| self.blocks([line, column], source, place, width));
    }

    /// Emits `copy` for each width, selected at run time by the operand's; 0 stands for element by element.
    fn in_widths(&self, widths: &[u32], copy: &dyn Fn(u32)) {
        match widths {
            [] => copy(0),
            [width, rest @ ..] => self.f.if_else(
                self.source.width.equals(*width),
                || copy(*width),
                || self.in_widths(rest, copy),
            ),
        }
    }

    /// Copies the executing thread's chunks of all blocks, `width` bytes at a time.
    fn blocks(
        &self,
        [line, column]: [Value<'f, u32>; 2],
        source: Value<'f, u64>,
        place: Value<'f, u32>,
        width: u32,
    ) {
        let OperandTile { major, swizzle, mn, k, .. } = self.tile;
        let bits = self.tile.bits();
        let [tile_lines, tile_columns] = ordered(major, [mn, k]);
        let (at_once, columns) = (self.lines_at_once(), swizzle.elements(bits));
        let [lines, extent] = self.extent;
        for block in 0..tile_columns / columns {
            let first = column + block * columns;
            // Number of elements of this block's chunks that are inside the matrix.
            let left = (extent - first).where_or(first.less_than(extent), 0).min(CHUNK * 8 / bits);
            let mut chunks = Vec::new();
            let mut source = source + u64::from(block * swizzle.bytes());
            for pass in 0..tile_lines.div_ceil(at_once) {
                let skipped = pass * at_once;
                // Chunks of different passes are whole periods of the swizzle apart.
                let [first_line, first_column] = self.skipped;
                let at = ordered(major, [first_line + skipped, first_column + block * columns]);
                let offset = element_offset(self.layout.at_modes(&at.map(i64::from))) * (bits / 8);
                if pass > 0 {
                    source = source + self.source.ld * u64::from(at_once);
                }
                let own =
                    (skipped + at_once > tile_lines).then(|| self.own[0].less_than(tile_lines - skipped));
                let destination = place + offset;
                let inside = (line + skipped).less_than(lines);
                chunks.push(Chunk { source, destination, inside, own });
            }
            for chunks in chunks.chunks(self.copying.chunks as usize) {
                match width {
                    0 => self.by_elements(chunks, left),
                    _ => chunks.iter().for_each(|chunk| self.asynchronously(chunk, left, width)),
                }
            }
        }
    }

    /// Emits `body` for the threads that have the chunk.
    fn owned(&self, chunk: &Chunk<'f>, body: impl FnOnce()) {
        match chunk.own {
            Some(own) => self.f.if_(own, body),
            None => body(),
        }
    }

    /// Starts the copies of a chunk; `left` of its elements are inside the matrix.
    fn asynchronously(&self, chunk: &Chunk<'f>, left: Value<'f, u32>, width: u32) {
        let bytes = left * (self.tile.bits() / 8);
        self.owned(chunk, || {
            for skipped in (0..CHUNK).step_by(width as usize) {
                let size = (bytes.max(skipped) - skipped).min(width).where_or(chunk.inside, 0);
                let source = (chunk.source, skipped.cast_signed());
                self.f.copy_async(width, chunk.destination + skipped, source, Some(size));
            }
        });
    }

    /// Copies chunks element by element, all loads before all stores; `left` elements of each are inside the
    /// matrix.
    fn by_elements(&self, chunks: &[Chunk<'f>], left: Value<'f, u32>) {
        match self.tile.bits() {
            8 => self.by::<u8>(chunks, left, 0),
            64 => self.by::<u64>(chunks, left, 0),
            16 => self.by::<u16>(chunks, left, 0),
            _ => self.by::<u32>(chunks, left, 0),
        }
    }

    /// As [`by_elements`](Self::by_elements), for elements of type `T`.
    fn by<T: Scalar>(&self, chunks: &[Chunk<'f>], left: Value<'f, u32>, zero: T) {
        let (bits, bytes) = (T::TYPE.bits(), T::TYPE.bits() / 8);
        let elements = CHUNK / bytes;
        let load = |chunk: &Chunk<'f>| -> Vec<Var<'f, T>> {
            let values: Vec<_> = (0..elements).map(|_| self.f.variable(zero)).collect();
            self.owned(chunk, || {
                for (element, value) in (0u32..).zip(&values) {
                    self.f.if_(left.more_than(element) & chunk.inside, || {
                        value.set(self.f.load_global::<T>(chunk.source, (element * bytes).cast_signed()));
                    });
                }
            });
            values
        };
        let loaded: Vec<_> = chunks.iter().map(load).collect();
        for (chunk, values) in chunks.iter().zip(&loaded) {
            self.owned(chunk, || {
                if let [low, high] = values[..] {
                    return self.f.store_shared(chunk.destination, 0, [low.get(), high.get()]);
                }
                // The first element in the lowest bits.
                let join = |word: &[Var<'f, T>]| {
                    let parts: Vec<_> = word.iter().map(|part| part.get().cast::<u32>()).collect();
                    let joined =
                        (0u32..).zip(parts).reduce(|(_, low), (i, part)| (i, low | part << (bits * i)));
                    joined.map_or(self.f.constant(0), |(_, word)| word)
                };
                let words: Vec<_> = values.chunks((4 / bytes) as usize).map(join).collect();
                if let [a, b, c, d] = words[..] {
                    self.f.store_shared(chunk.destination, 0, [a, b, c, d]);
                }
            });
        }
    }
}

/// `(mn, k)` as `(line, column)`, and the inverse.
fn ordered<V>(major: Major, [mn, k]: [V; 2]) -> [V; 2] {
    match major {
        Major::K => [mn, k],
        Major::Mn => [k, mn],
    }
}
