//! A tile of pixels that im2col copies gather: an operand of a convolution as an implicit GEMM.

use cute_rs::atom::Major;
use ptx::abi::Im2colMap;
use ptx::{Builder, TensorLoad, Value, Var};

use super::{AnyTile, LoadTile, Loading, StageTile};
use crate::element::Format;
use crate::mainloop::tensor_swizzle;
use crate::operand::Matrix;
use crate::operands::{Contents, Extents, Memory, OwnSite, Visit};
use crate::pipeline::Stage;
use crate::plan::{OperandTile, Plan};

/// One dimension of pixels, and how a filter moves along it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Axis {
    /// Pixels of an image.
    pub pixels: u32,
    /// Taps of the filter.
    pub taps: u32,
    /// Pixels from one position of the filter to the next: its stride, 1 to 8.
    pub step: u32,
    /// Pixels of zeros before the first one and after the last one.
    pub padding: [u32; 2],
    /// Pixels from one tap to the next.
    pub dilation: u32,
}

impl Axis {
    /// A filter of this many taps, at every pixel, without padding.
    pub const fn new(pixels: u32, taps: u32) -> Self {
        Self { pixels, taps, step: 1, padding: [0; 2], dilation: 1 }
    }

    /// Pixels between the first and the last tap.
    const fn reach(&self) -> u32 {
        self.taps.saturating_sub(1).saturating_mul(self.dilation)
    }

    /// Positions of the filter: output pixels.
    pub const fn outputs(&self) -> u32 {
        let [before, after] = self.padding;
        let padded = self.pixels.saturating_add(before).saturating_add(after);
        match padded.checked_sub(self.reach()) {
            None | Some(0) => 0,
            Some(_) if self.step == 0 || self.taps == 0 => 0,
            Some(positions) => (positions - 1) / self.step + 1,
        }
    }
}

/// Where a filter reads a tensor of images, with channels contiguous: (images, .., height, width, channels), packed. Its pixels are
/// the rows of an operand (output pixels, taps x channels).
///
/// ```
/// use collective::stage::{Axis, Im2col};
///
/// let three = Axis { padding: [1, 1], ..Axis::new(56, 3) };
/// let of = Im2col { images: 2, axes: [three, Axis { step: 2, ..three }], channels: 64 };
/// assert_eq!((of.rows(), of.depth()), (2 * 28 * 56, 9 * 64));
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Im2col<const D: usize> {
    /// Images.
    pub images: u32,
    /// The dimensions of pixels, the innermost (width) first: 1 to 3.
    pub axes: [Axis; D],
    /// Channels.
    pub channels: u32,
}

/// Largest filter offset, and padding.
const MOST_OFFSET: u32 = 127;

impl<const D: usize> Im2col<D> {
    /// Rows of the operand: output pixels of all images.
    pub fn rows(&self) -> u32 {
        self.axes.iter().fold(self.images, |rows, axis| rows.saturating_mul(axis.outputs()))
    }

    /// Columns of the operand: channels of all taps. Channels are contiguous.
    pub fn depth(&self) -> u32 {
        self.axes.iter().fold(self.channels, |depth, axis| depth.saturating_mul(axis.taps))
    }

    /// The tensor's extents in memory, for elements of some bits.
    pub fn extents(&self, bits: u32) -> Extents {
        let lines =
            self.axes.iter().skip(1).fold(self.images, |lines, axis| lines.saturating_mul(axis.pixels));
        let length = self.axes.first().map_or(0, |axis| u64::from(axis.pixels) * u64::from(self.channels));
        Extents { lines, ld: length, ..Extents::line(bits, length) }
    }

    /// Checks that tiles of this extent along K can be copied.
    ///
    /// # Errors
    /// A sentence: which number, its value, and what is allowed.
    fn check(&self, tile_k: u32) -> Result<(), String> {
        if tile_k == 0 || self.channels == 0 || !self.channels.is_multiple_of(tile_k) {
            let found = self.channels;
            return Err(format!(
                "there are {found} channels, a multiple of the {tile_k} of a k-tile was needed"
            ));
        }
        for (axis, name) in self.axes.iter().zip(["width", "height", "depth"]) {
            let Axis { taps, step, padding, dilation, .. } = *axis;
            for (what, found, [least, most]) in [
                ("stride", step, [1, 8]),
                ("number of taps", taps, [1, MOST_OFFSET]),
                ("dilation", dilation, [1, MOST_OFFSET]),
                ("distance from the first tap to the last", axis.reach(), [0, MOST_OFFSET]),
                ("padding before it", padding[0], [0, MOST_OFFSET]),
                ("padding after it", padding[1], [0, MOST_OFFSET]),
            ] {
                if !(least..=most).contains(&found) {
                    return Err(format!(
                        "the {what} along the {name} is {found}, {least} to {most} was needed"
                    ));
                }
            }
        }
        Ok(())
    }

    fn map(&self, tile: &OperandTile, address: u64) -> Im2colMap {
        let element = u64::from(tile.bits() / 8);
        let mut strides = vec![u64::from(self.channels) * element];
        for axis in &self.axes {
            strides.push(strides[strides.len() - 1].saturating_mul(axis.pixels.into()));
        }
        let dims = [self.channels].into_iter().chain(self.axes.map(|axis| axis.pixels)).chain([self.images]);
        Im2colMap {
            element: tile.format.tensor(),
            address,
            dims: dims.map(u64::from).collect(),
            strides,
            lower: self.axes.map(|axis| -axis.padding[0].cast_signed()).to_vec(),
            upper: self.axes.map(|axis| axis.padding[1].cast_signed() - axis.reach().cast_signed()).to_vec(),
            channels: tile.swizzle.elements(tile.bits()),
            pixels: tile.mn / tile.slices,
            steps: self.axes.map(|axis| axis.step).to_vec(),
            swizzle: tensor_swizzle(tile.swizzle),
        }
    }
}

impl<const D: usize> Default for Im2col<D> {
    /// No images.
    fn default() -> Self {
        Self { images: 0, axes: [Axis::new(0, 0); D], channels: 0 }
    }
}

/// Images in device memory that a mainloop reads as an operand: [arguments of its own](crate::Mainloop::Arguments). By default there are
/// none.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Images<const D: usize> {
    /// Device address of the first pixel.
    pub address: u64,
    /// Where the filter reads them.
    pub of: Im2col<D>,
}

impl<const D: usize> Images<D> {
    /// Checks that tiles of this extent along K can be copied, and that the images are the operand of the call's extents.
    ///
    /// # Errors
    /// There are no images; a number of them, its value, and what copies allow; other extents than the call's.
    pub fn check(&self, tile_k: u32, operand: Matrix) -> Result<(), String> {
        if *self == Self::default() {
            return Err("the images are missing".to_owned());
        }
        self.of.check(tile_k)?;
        match ([self.of.rows(), self.of.depth()], [operand.mn, operand.k]) {
            (given, needed) if given == needed => Ok(()),
            (given, needed) => Err(format!(
                "the images have {given:?} output pixels and elements of all taps, {needed:?} was needed"
            )),
        }
    }

    /// Visits the images as the operand A (0) or B (1) of a mainloop, memory of this name in a format, with every number of them, and
    /// states the parameters of their [tile](Im2colTile).
    pub fn visit(
        &mut self,
        name: &'static str,
        (operand, format): (usize, Format),
        site: &OwnSite<'_>,
        visit: &mut dyn Visit,
    ) {
        let Self { address, of } = self;
        let (extents, contents) = (of.extents(format.bits()), Contents::Multiplied(operand, format));
        visit.memory(Memory { name, address, extents, contents, writes: false });
        visit.count(&mut of.images);
        visit.count(&mut of.channels);
        for Axis { pixels, taps, step, padding: [before, after], dilation } in &mut of.axes {
            [pixels, taps, step, before, after, dilation].into_iter().for_each(|count| visit.count(count));
        }
        if let Some(plan) = site.plan {
            Im2colTile::state(plan, operand, name, site.launched.then_some(*self), visit);
        }
    }
}

/// The names of the kernel parameters of operand A and of B: the map, the numbers of each axis, and the k-tiles of channels.
const MAPS: [&str; 2] = ["a_im2col", "b_im2col"];
const NUMBERS: [[[&str; 5]; 3]; 2] = [
    [
        ["a_outputs_0", "a_step_0", "a_before_0", "a_taps_0", "a_dilation_0"],
        ["a_outputs_1", "a_step_1", "a_before_1", "a_taps_1", "a_dilation_1"],
        ["a_outputs_2", "a_step_2", "a_before_2", "a_taps_2", "a_dilation_2"],
    ],
    [
        ["b_outputs_0", "b_step_0", "b_before_0", "b_taps_0", "b_dilation_0"],
        ["b_outputs_1", "b_step_1", "b_before_1", "b_taps_1", "b_dilation_1"],
        ["b_outputs_2", "b_step_2", "b_before_2", "b_taps_2", "b_dilation_2"],
    ],
];
const BLOCKS: [&str; 2] = ["a_channel_tiles", "b_channel_tiles"];

/// One of the tiles of a stage: A's (0) or B's (1) of a plan, K-major, gathered by im2col copies. Each CTA of a cluster that shares the tile
/// loads a slice of its pixels.
#[derive(Debug)]
pub struct Im2colTile<'f, const D: usize> {
    tile: OperandTile,
    bytes: u32,
    operand: usize,
    map: Value<'f, u64>,
    axes: [AxisDevice<'f>; D],
    /// k-tiles of the channels of a tap.
    blocks: Value<'f, u32>,
}

/// The numbers of an axis on the device.
#[derive(Clone, Copy, Debug)]
struct AxisDevice<'f> {
    outputs: Value<'f, u32>,
    step: Value<'f, u32>,
    before: Value<'f, u32>,
    taps: Value<'f, u32>,
    dilation: Value<'f, u32>,
}

impl<'f, const D: usize> Im2colTile<'f, D> {
    /// States the parameters of operand A (0) or B (1), in memory that was visited under the name `within`. What is read is `None` where no
    /// launch is made; otherwise it was [checked](Images::check).
    fn state(
        plan: &Plan,
        operand: usize,
        within: &'static str,
        of: Option<Images<D>>,
        visit: &mut dyn Visit,
    ) {
        let tile = &plan.operands[operand];
        visit.im2col_map(MAPS[operand], within, of.map(|Images { address, of }| of.map(tile, address)));
        for (i, names) in NUMBERS[operand].iter().enumerate().take(D) {
            let axis = of.map(|images| images.of.axes[i]);
            let numbers =
                axis.map(|axis| [axis.outputs(), axis.step, axis.padding[0], axis.taps, axis.dilation]);
            for (j, name) in names.iter().enumerate() {
                visit.number(name, numbers.map(|numbers| numbers[j]));
            }
        }
        visit.number(BLOCKS[operand], of.map(|images| images.of.channels / tile.k));
    }

    /// Finds the parameters that [`Images::visit`] states.
    pub fn of(f: &'f Builder, plan: &Plan, operand: usize) -> AnyTile<'f> {
        let tile = plan.operands[operand];
        if tile.major == Major::Mn || tile.split {
            f.refuse("im2col copies gather pixels as rows of a K-major operand, which no epilogue splits");
        }
        if tile.turns > 1 {
            f.refuse("im2col copies load slices of a multiple of 8 pixels, and the cluster's CTAs cannot divide the tile into such: change tile N or the cluster");
        }
        let axis = |i: usize| {
            let [outputs, step, before, taps, dilation] = NUMBERS[operand][i].map(|name| f.parameter(name));
            AxisDevice { outputs, step, before, taps, dilation }
        };
        Box::new(Self {
            tile,
            bytes: plan.ring.tile_bytes(operand),
            operand,
            map: f.parameter(MAPS[operand]),
            axes: core::array::from_fn(axis),
            blocks: f.parameter(BLOCKS[operand]),
        })
    }

    /// The base of the filter for an output pixel: along each axis, and its image.
    fn base(&self, pixel: Value<'f, u32>) -> ([Value<'f, u32>; D], Value<'f, u32>) {
        let mut rest = pixel;
        let base = self.axes.map(|AxisDevice { outputs, step, before, .. }| {
            let at = rest % outputs;
            rest = rest / outputs;
            at * step - before
        });
        (base, rest)
    }
}

impl<'f, const D: usize> StageTile<'f> for Im2colTile<'f, D> {
    fn prefetch(&self, f: &'f Builder) {
        f.prefetch_tensor_map(self.map);
    }

    fn load<'a>(
        &'a self,
        Loading { f, cluster, unit, .. }: Loading<'f>,
    ) -> (Value<'f, u32>, LoadTile<'a, 'f>) {
        let OperandTile { swizzle, mn, k, slices, offset, .. } = self.tile;
        let (pixels, width) = (mn / slices, swizzle.elements(self.tile.bits()));
        let row_bytes = width * self.tile.bits() / 8;
        let (slice, receivers) = match self.operand {
            0 => (cluster.n, cluster.row_mask()),
            _ => (cluster.m, cluster.column_mask()),
        };
        let (base, image) = self.base(unit.first()[self.operand] + slice * pixels);
        // The k-tile's taps and channels, kept up to date from one to the next.
        let mut tap = unit.k_begin / self.blocks;
        let block = f.variable(unit.k_begin % self.blocks);
        let taps: [Var<'f, u32>; D] = self.axes.map(|axis| {
            let at = f.variable(tap % axis.taps);
            tap = tap / axis.taps;
            at
        });
        let load = move |stage: Stage<'f>, _: Value<'f, u32>| {
            for slab in 0..k / width {
                let dst = stage.address + (offset + slab * mn * row_bytes) + slice * (pixels * row_bytes);
                let hint = self.tile.cache.bits();
                let load = TensorLoad { map: self.map, dst, barrier: stage.full, multicast: receivers, hint };
                let channel = block.get() * k + slab * width;
                let coords = [channel].into_iter().chain(base).chain([image]).map(Value::cast::<i32>);
                let offsets = taps.iter().zip(self.axes).map(|(tap, axis)| tap.get() * axis.dilation);
                f.im2col_load(load, coords, offsets.map(Value::cast::<u16>));
            }
            block.set(block.get() + 1);
            f.if_(block.get().equals(self.blocks), || {
                block.set(0);
                self.next_tap(f, &taps);
            });
        };
        (f.constant(self.bytes), Box::new(load))
    }
}

impl<'f, const D: usize> Im2colTile<'f, D> {
    /// Steps to the next tap: along the first axis, and from its end to the next axis.
    fn next_tap(&self, f: &'f Builder, taps: &[Var<'f, u32>]) {
        let axis = D - taps.len();
        let Some((tap, outer)) = taps.split_first() else { return };
        tap.set(tap.get() + 1);
        if !outer.is_empty() {
            f.if_(tap.get().equals(self.axes[axis].taps), || {
                tap.set(0);
                self.next_tap(f, outer);
            });
        }
    }
}
