//! The warp-specialised mainloop for operands at any address: threads fill the swizzled tiles that `wgmma` reads.
//!
//! A tensor copy wants rows that begin at multiples of 16 B. Here the producer's 128 threads copy instead, 16 B of a
//! tile at a time, in as large pieces as an operand's address and leading dimension allow: `cp.async` of 16, 8 or 4 B,
//! or single elements through registers. What lies outside of the matrix becomes zero.

use core::marker::PhantomData;
use std::sync::Arc;

use cute_rs::ComposedLayout;
use cute_rs::atom::{Major, smem};
use ptx::abi::Argument;
use ptx::{Builder, Special, Value, Var};

use super::multiplier::Side;
use super::{DeviceMainloop, Mainloop, MainloopEmitter, Piece};
use crate::form::{Forms, displaced};
use crate::operand::{Matrix, OperandPair};
use crate::pipeline::{ClusterPosition, Position, Stage};
use crate::plan::{MainloopSpec, Plan, Producer};
use crate::record::Described;
use crate::tile::{TileShape, WarpRoles};

/// Operand pair `O`, tile shape `T`, warp roles `R`, for operands at any address and with any leading dimension.
///
/// Every thread of the producer warpgroup copies a part of each stage. It says that a stage is full when its copies of
/// that stage have landed, some stages behind the newest it has started. Consumers do what those of
/// [`TmaWgmma`](super::TmaWgmma) do.
#[derive(Clone, Copy, Debug)]
pub struct CopyWgmma<O, T, R>(PhantomData<(O, T, R)>);

/// The operands on the device.
#[derive(Clone, Copy, Debug)]
struct Sources<'f> {
    a: Source<'f>,
    b: Source<'f>,
    k: Value<'f, u32>,
}

/// One operand on the device.
#[derive(Clone, Copy, Debug)]
struct Source<'f> {
    address: Value<'f, u64>,
    /// Bytes from one row (K-major) or column (MN-major) to the next.
    pitch: Value<'f, u64>,
    /// Extent along M or N.
    mn: Value<'f, u32>,
    /// Bytes that can be copied at once wherever 16 B of the tile come from.
    width: Value<'f, u32>,
    /// Bytes from one matrix to the next, if there are several.
    batch: Option<Value<'f, u64>>,
}

impl Source<'_> {
    /// Where groups of rows may begin at any element of a line, nothing is aligned: `anywhere`.
    fn arguments(matrix: Matrix, side: Side, batched: bool, anywhere: bool) -> Vec<Argument> {
        let Side { major, bits, split, .. } = side;
        let [pitch, batch] = [matrix.pitch, matrix.batch.stride].map(|stride| stride * u64::from(bits / 8));
        // Where the right half begins in a line of both.
        let half = if split && major == Major::Mn { u64::from(matrix.mn / 2 * (bits / 8)) } else { 0 };
        let fits = |width: &u32| {
            !anywhere && (matrix.address | pitch | batch | half).is_multiple_of((*width).into())
        };
        let width = WIDTHS.into_iter().find(fits).unwrap_or(bits / 8);
        let mut arguments = vec![matrix.address.into(), pitch.into(), matrix.mn.into(), width.into()];
        if batched {
            arguments.push(batch.into());
        }
        arguments
    }
}

impl<'f> Sources<'f> {
    /// Those of a piece.
    fn of(self, f: &'f Builder, plan: &Plan, piece: Piece<'f>) -> Self {
        let Some(record) = piece.record else {
            return Self { a: self.a.of(piece.group), b: self.b.of(piece.group), ..self };
        };
        let [m, n, k] = record.extents(f, plan);
        let bits = plan.mainloop.types.element_bits();
        let source = |Described { address, pitch }: Described<'f>, mn| {
            let pitch = pitch * u64::from(bits / 8);
            let width = WIDTHS.into_iter().rev().fold(f.constant(bits / 8), |narrow, width| {
                let fits = ((address | pitch) & u64::from(width - 1)).equals(0);
                f.constant(width).where_or(fits, narrow)
            });
            Source { address, pitch, mn, width, batch: None }
        };
        let [a, b] = record.operands(f, plan);
        Self { a: source(a, m), b: source(b, n), k }
    }
}

impl<'f> Source<'f> {
    /// The matrix of a group.
    fn of(self, group: Option<Value<'f, u32>>) -> Self {
        Self { address: displaced(self.address, self.batch, group), ..self }
    }
}

/// Bytes that `cp.async` copies at once.
const WIDTHS: [u32; 3] = [16, 8, 4];

/// Most stages that copies go on for while the next one is filled.
const AHEAD: u32 = 4;

/// Bytes of a chunk, which swizzles leave together.
const CHUNK: u32 = 16;

impl<O: OperandPair, T: TileShape, R: WarpRoles> Mainloop for CopyWgmma<O, T, R> {
    type Accumulator = f32;
    const SPEC: MainloopSpec = MainloopSpec::of::<O, T, R>(Producer::Warpgroup);
    const FORMS: Forms = Forms::ALL;
    type Arguments = ();

    fn emitter() -> Arc<dyn MainloopEmitter> {
        Arc::new(ThreadCopies)
    }
}

/// [`CopyWgmma`] as a value: the plan says the rest.
#[derive(Clone, Copy, Debug)]
pub struct ThreadCopies;

impl MainloopEmitter for ThreadCopies {
    fn name(&self, spec: &MainloopSpec) -> String {
        format!("{}_copied", spec.name())
    }

    fn is_built_in(&self) -> bool {
        true
    }

    fn declare<'f>(&self, f: &'f Builder, plan: &Plan) -> Box<dyn DeviceMainloop<'f> + 'f> {
        if plan.form.described() {
            let (wide, narrow) = (f.constant(0), f.constant(0));
            let nowhere = Source { address: wide, pitch: wide, mn: narrow, width: narrow, batch: None };
            return Box::new(Sources { a: nowhere, b: nowhere, k: narrow });
        }
        let source = |[address, pitch, mn, width, batch]: [&'static str; 5], batched: bool| Source {
            address: f.param(address),
            pitch: f.number(pitch),
            mn: f.param(mn),
            width: f.param(width),
            batch: batched.then(|| f.number(batch)),
        };
        let [a_batched, b_batched] = plan.operand_batches();
        Box::new(Sources {
            a: source(["a", "a_pitch", "a_rows", "a_width", "a_batch"], a_batched),
            b: source(["b", "b_pitch", "b_rows", "b_width", "b_batch"], b_batched),
            k: f.param("k"),
        })
    }

    fn arguments(&self, plan: &Plan, a: Matrix, b: Matrix) -> Vec<Argument> {
        if plan.form.described() {
            return Vec::new();
        }
        let [a_batched, b_batched] = plan.operand_batches();
        let MainloopSpec { a_major, b_major, .. } = plan.mainloop;
        let [a_rows, b_rows] = plan.shares_rows();
        let a_anywhere = a_rows && a_major == Major::Mn;
        let mut arguments = Source::arguments(a, Side::a(plan), a_batched, a_anywhere);
        let b_anywhere = b_rows && b_major == Major::Mn;
        arguments.extend(Source::arguments(b, Side::b(plan), b_batched, b_anywhere));
        arguments.push(a.k.into());
        arguments
    }
}

impl<'f> DeviceMainloop<'f> for Sources<'f> {
    fn load(
        &self,
        f: &'f Builder,
        plan: &Plan,
        _cluster: ClusterPosition<'f>,
        ring: Position<'f>,
        piece: Piece<'f>,
    ) {
        let thread = f.special(Special::ThreadX) % 128;
        let Sources { a, b, k } = self.of(f, plan, piece);
        let a = Copier::new(f, Side::a(plan), a, k, thread);
        let b = Copier::halves(f, Side::b(plan), b, k, thread);
        let n = if plan.epilogue.split { piece.n >> 1 } else { piece.n };
        // Stages whose copies may be on their way while the next one is claimed. Consumers hold one until the one behind it
        // is full, so two of the ring are theirs.
        let ahead = (plan.stages / 2).min(plan.stages - 2).min(AHEAD);
        let behind = ring.behind();
        f.repeat_from(piece.k_begin, piece.k_end, |k_tile| {
            let Stage { address, .. } = ring.claim();
            let k = k_tile * plan.mainloop.tile[2];
            a.copy([piece.m, k], address);
            b.iter().for_each(|half| half.copy([n, k], address + plan.stage.b_offset));
            f.copy_commit();
            f.if_((k_tile - piece.k_begin).at_least(ahead), || {
                f.copy_wait(ahead);
                behind.publish();
            });
        });
        f.copy_wait(0);
        f.repeat((piece.k_end - piece.k_begin).min(ahead), |_| behind.publish());
    }
}

/// Copies one operand's tiles. A *line* is a row of a K-major operand or a column of an MN-major one; a tile consists of
/// blocks of lines of one swizzle width. Threads take the chunks of as many lines as there are threads for, side by side,
/// and then those of the next lines.
struct Copier<'f> {
    f: &'f Builder,
    source: Source<'f>,
    side: Side,
    tile: ComposedLayout,
    /// Lines of the matrix, and elements of each.
    extent: [Value<'f, u32>; 2],
    /// The thread's first chunk in the tile: its line and the first of its elements.
    own: [Value<'f, u32>; 2],
    /// Where it lies in shared memory, in bytes from the tile's start.
    place: Value<'f, u32>,
    /// The line and the element of the tile where this copier's part of it begins.
    skipped: [u32; 2],
}

/// Where 16 B of a tile come from and go to.
struct Chunk<'f> {
    source: Value<'f, u64>,
    destination: Value<'f, u32>,
    /// Whether its line is inside of the matrix.
    inside: Value<'f, bool>,
    /// Whether the executing thread has it at all; `None` where every thread has.
    own: Option<Value<'f, bool>>,
}

impl<'f> Copier<'f> {
    fn new(
        f: &'f Builder,
        side: Side,
        source: Source<'f>,
        k: Value<'f, u32>,
        thread: Value<'f, u32>,
    ) -> Self {
        let planned = "the plan admits only tiles that have a canonical layout";
        let tile = smem::tile(side.major, side.swizzle, side.bits, side.mn, side.k).expect(planned);
        let chunks = side.swizzle.bytes() / CHUNK;
        let own = [thread / chunks, thread % chunks * (CHUNK * 8 / side.bits)];
        let place = tile.apply_modes(&ordered(side.major, own)).expect(planned) * (side.bits / 8);
        let extent = ordered(side.major, [source.mn, k]);
        Self { f, source, side, tile, extent, own, place, skipped: [0, 0] }
    }

    /// What copies a tile: one for all of it, or for a split matrix one for the part from either half.
    fn halves(
        f: &'f Builder,
        side: Side,
        source: Source<'f>,
        k: Value<'f, u32>,
        thread: Value<'f, u32>,
    ) -> Vec<Self> {
        let whole = Self::new(f, side, source, k, thread);
        if !side.split {
            return vec![whole];
        }
        let mn = source.mn >> 1;
        let distance = match side.major {
            Major::K => mn.cast::<u64>() * source.pitch,
            Major::Mn => mn.mul_wide(side.bits / 8),
        };
        let half = |address, skipped| Self {
            source: Source { address, mn, ..source },
            side: Side { mn: side.mn / 2, ..side },
            extent: ordered(side.major, [mn, k]),
            skipped: ordered(side.major, [skipped, 0]),
            ..whole
        };
        vec![half(source.address, 0), half(source.address + distance, side.mn / 2)]
    }

    /// Lines of the tile that all threads take at once.
    fn lines_at_once(&self) -> u32 {
        128 * CHUNK / self.side.swizzle.bytes()
    }

    /// Copies the tile whose first element is `(mn, k)` to a shared address.
    fn copy(&self, first: [Value<'f, u32>; 2], address: Value<'f, u32>) {
        let [line, column] = ordered(self.side.major, first);
        let [own_line, own_column] = self.own;
        let (line, column) = (line + own_line, column + own_column);
        let source = self.source.address
            + line.cast::<u64>() * self.source.pitch
            + column.mul_wide(self.side.bits / 8);
        let place = address + self.place;
        self.in_widths(&WIDTHS, &|width| self.blocks([line, column], source, place, width));
    }

    /// Emits `copy` for each width, to be chosen by the operand's; zero stands for element by element.
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
        let Side { major, swizzle, bits, mn, k, .. } = self.side;
        let [tile_lines, tile_columns] = ordered(major, [mn, k]);
        let (at_once, columns) = (self.lines_at_once(), swizzle.elements(bits));
        let [lines, extent] = self.extent;
        for block in 0..tile_columns / columns {
            let first = column + block * columns;
            // Elements of the chunks of this block that are inside of the matrix.
            let left = (extent - first).where_or(first.less_than(extent), 0).min(CHUNK * 8 / bits);
            let mut chunks = Vec::new();
            let mut source = source + u64::from(block * swizzle.bytes());
            for pass in 0..tile_lines.div_ceil(at_once) {
                let skipped = pass * at_once;
                // Chunks of other passes are whole periods of the swizzle away.
                let [first_line, first_column] = self.skipped;
                let at = ordered(major, [first_line + skipped, first_column + block * columns]);
                let offset = self.tile.at_modes(&at.map(i64::from));
                let offset = u32::try_from(offset).expect("a tile is small") * (bits / 8);
                if pass > 0 {
                    source = source + self.source.pitch * u64::from(at_once);
                }
                let own =
                    (skipped + at_once > tile_lines).then(|| self.own[0].less_than(tile_lines - skipped));
                let destination = place + offset;
                let inside = (line + skipped).less_than(lines);
                chunks.push(Chunk { source, destination, inside, own });
            }
            for chunks in chunks.chunks(Producer::CHUNKS as usize) {
                match width {
                    0 => self.by_elements(chunks, left),
                    _ => chunks.iter().for_each(|chunk| self.asynchronously(chunk, left, width)),
                }
            }
        }
    }

    /// Emits something for the threads that have the chunk.
    fn owned(&self, chunk: &Chunk<'f>, body: impl FnOnce()) {
        match chunk.own {
            Some(own) => self.f.if_(own, body),
            None => body(),
        }
    }

    /// Starts the copies of a chunk of which `left` elements are inside of the matrix.
    fn asynchronously(&self, chunk: &Chunk<'f>, left: Value<'f, u32>, width: u32) {
        let bytes = left * (self.side.bits / 8);
        self.owned(chunk, || {
            for skipped in (0..CHUNK).step_by(width as usize) {
                let size = (bytes.max(skipped) - skipped).min(width).where_or(chunk.inside, 0);
                let source = (chunk.source, skipped.cast_signed());
                self.f.copy_async(width, chunk.destination + skipped, source, Some(size));
            }
        });
    }

    /// Copies chunks of which `left` elements are inside of the matrix, 16-bit elements one by one: all loads, then all
    /// stores.
    fn by_elements(&self, chunks: &[Chunk<'f>], left: Value<'f, u32>) {
        let elements = CHUNK * 8 / self.side.bits;
        let load = |chunk: &Chunk<'f>| -> Vec<Var<'f, u16>> {
            let values: Vec<_> = (0..elements).map(|_| self.f.variable(0u16)).collect();
            self.owned(chunk, || {
                for (element, value) in (0u32..).zip(&values) {
                    self.f.if_(left.more_than(element) & chunk.inside, || {
                        value.set(self.f.load_global::<u16>(chunk.source, (element * 2).cast_signed()));
                    });
                }
            });
            values
        };
        let loaded: Vec<_> = chunks.iter().map(load).collect();
        for (chunk, values) in chunks.iter().zip(&loaded) {
            self.owned(chunk, || {
                let word = |i: usize| {
                    let [low, high] = [0, 1].map(|half| values[2 * i + half].get().cast::<u32>());
                    low | high << 16
                };
                self.f.store_shared(chunk.destination, 0, [0, 1, 2, 3].map(word));
            });
        }
    }
}

/// `(mn, k)` as `(line, column)`, or the other way round.
fn ordered<V>(major: Major, [mn, k]: [V; 2]) -> [V; 2] {
    match major {
        Major::K => [mn, k],
        Major::Mn => [k, mn],
    }
}
