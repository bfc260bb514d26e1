//! Fragments of A in registers: a tile's elements in the order in which `wgmma` takes them from a warpgroup,
//! converted on the way if needed.

use std::collections::BTreeMap;

use cute_rs::{ComposedLayout, LayoutError, Tensor};
use ptx::inst::{Fp8, WgmmaElement};
use ptx::{Builder, Value, Var};

use super::Consumer;
use crate::element::{Format, Narrow, Packed};
use crate::pipeline::Stage;
use crate::plan::{OperandTile, ProductSpec, element_offset};

/// A's tile in the registers of a consumer warpgroup: four registers per block of its rows and per
/// instruction along K.
///
/// Threads load the tile from a stage, so its [`Format`] there may differ from the one that is multiplied.
/// Registers that an instruction reads must not be written before it is complete. So a mainloop either waits
/// for its instructions before it loads the next stage ([`InFlight::None`](super::InFlight::None)), or uses
/// two of these.
///
/// ```
/// use collective::{Accumulators, Consumer, Format, Fragments, InFlight, Pass, WarpgroupMma};
///
/// /// A's elements are 8-bit floats in memory and are multiplied as bf16.
/// fn multiply<'f>(pass: Pass<'_, 'f>, consumer: Consumer<'f>) -> Accumulators<'f> {
///     let Pass { f, plan, unit, .. } = pass;
///     let product = WarpgroupMma::<f32>::new(f, plan.product(), consumer.part);
///     let a = Fragments::new(f, plan.product(), consumer);
///     consumer.each_stage(
///         pass,
///         InFlight::None,
///         &|stage, accumulate| {
///             a.load_converted(stage, &|pair| {
///                 let wide = pair.map(|element| Format::E4m3.widen(element));
///                 f.pack::<half::bf16>(wide[0], wide[1])
///             });
///             product.multiply_registers(&a, stage, accumulate);
///         },
///         &|multiplied| if !multiplied { product.clear() },
///     );
///     product.sums(consumer, unit.first())
/// }
/// ```
#[derive(Debug)]
pub struct Fragments<'f> {
    f: &'f Builder,
    tile: OperandTile,
    /// The element type that is multiplied.
    element: WgmmaElement,
    /// The elements of the executing thread, by value, block and step.
    own: Tensor<ComposedLayout, Value<'f, u32>>,
    /// By block and step.
    registers: Vec<Vec<[Var<'f, u32>; 4]>>,
}

/// Converts two neighbours along K to one register of two 16-bit elements, the first in the low half.
pub type Convert<'a, 'f> = &'a dyn Fn([Narrow<'f>; 2]) -> Value<'f, u32>;

impl<'f> Fragments<'f> {
    /// The registers of a consumer for A's tile of a product whose atom takes A from registers.
    #[track_caller]
    pub fn new(f: &'f Builder, product: ProductSpec, consumer: Consumer<'f>) -> Self {
        f.for_caller(|| {
            if !product.takes_fragments() {
                f.refuse("the product's atom takes A from shared memory: make it by `Atom::registers`");
            }
            let found = Self::found(f, product, consumer);
            found.expect("a product is checked when it is made")
        })
    }

    fn found(f: &'f Builder, product: ProductSpec, consumer: Consumer<'f>) -> Result<Self, LayoutError> {
        let (spec, [tile, _]) = (product.spec(), product.tiles());
        // (BLK_M, BLK_K) -> (VAL, BLOCKS, STEPS), per thread and part
        let parts = spec.tiled()?.partition(cute_rs::Operand::A, &tile.layout())?;
        let own = [Some(consumer.thread), Some(consumer.part), Some(f.constant(0)), Some(f.constant(0))];
        let own = parts.tensor(f.constant(0), &own)?;
        let four = || core::array::from_fn(|_| f.uninitialised());
        // (4, STEPS, BLOCKS)
        let registers = (0..spec.blocks()).map(|_| (0..spec.steps()).map(|_| four()).collect()).collect();
        Ok(Self { f, tile, element: product.types().a(), own, registers })
    }

    /// The four registers of a block and a step along K; `None` if the indices are out of range.
    pub fn get(&self, block: u32, step: u32) -> Option<[Var<'f, u32>; 4]> {
        self.steps(block).get(step as usize).copied()
    }

    /// The registers of a block, by step along K; none if the index is out of range.
    pub fn steps(&self, block: u32) -> &[[Var<'f, u32>; 4]] {
        self.registers.get(block as usize).map_or(&[], Vec::as_slice)
    }

    /// Rounds the accumulators of another product, by block, to elements of A in 16 bits, or in an 8-bit float format. Accumulators of
    /// `K` columns become A of a product over these `K`; every thread already holds the elements that it needs.
    ///
    /// In 8 bits, each 16 columns have another order along K, in which B must have its rows: 0, 1, 8, 9, 2, 3, 10, 11, 4, 5, 12, 13, 6,
    /// 7, 14, 15.
    #[track_caller]
    pub fn pack(&self, accumulators: &[Vec<Var<'f, f32>>]) {
        if let WgmmaElement::Fp8(of) = self.element {
            return self.pack_bytes(if of == Fp8::E4m3 { Format::E4m3 } else { Format::E5m2 }, accumulators);
        }
        let held = |block: &Vec<[Var<'f, u32>; 4]>| block.len() * 8;
        let fits = self.registers.iter().map(held).eq(accumulators.iter().map(Vec::len));
        let Some(format) = self.format().filter(|_| fits) else {
            self.f.refuse("accumulators are packed as a 16-bit A whose K is their number of columns: change the product's tile");
            return;
        };
        for (steps, sums) in self.registers.iter().zip(accumulators) {
            for (register, pair) in steps.iter().flatten().zip(sums.chunks_exact(2)) {
                if let Packed::Word(word) = format.pack(self.f, [pair[0].get(), pair[1].get()]) {
                    register.set(word);
                }
            }
        }
    }

    /// Sets each register to two neighbours in 16 bits, the accumulators of this number and of the next one in a block: as
    /// [`pack`](Self::pack), one pair after the other.
    #[track_caller]
    pub fn pack_pairs(&self, mut pair: impl FnMut(u32, usize) -> [Value<'f, f32>; 2]) {
        let Some(format) = self.format() else {
            self.f.refuse("pairs are packed as a 16-bit A: change the product's type");
            return;
        };
        for (block, steps) in (0..).zip(&self.registers) {
            for (i, register) in steps.iter().flatten().enumerate() {
                if let Packed::Word(word) = format.pack(self.f, pair(block, 2 * i)) {
                    register.set(word);
                }
            }
        }
    }

    fn pack_bytes(&self, format: Format, accumulators: &[Vec<Var<'f, f32>>]) {
        let f = self.f;
        let held = |block: &Vec<[Var<'f, u32>; 4]>| block.len() * 16;
        if !self.registers.iter().map(held).eq(accumulators.iter().map(Vec::len)) {
            f.refuse("accumulators are packed as an A whose K is their number of columns: change the product's tile");
            return;
        }
        for (steps, sums) in self.registers.iter().zip(accumulators) {
            // Two groups of 8 columns, each with two of its columns in two rows.
            for (registers, sums) in steps.as_flattened().chunks_exact(2).zip(sums.chunks_exact(8)) {
                for (register, row) in registers.iter().zip([0, 2]) {
                    let half = |first: usize| match format.pack(f, [sums[first].get(), sums[first + 1].get()])
                    {
                        Packed::Half(half) => half.cast::<u32>(),
                        Packed::Pair(_) | Packed::Word(_) | Packed::Doubles(_) => f.constant(0),
                    };
                    register.set(half(row) | (half(row + 4) << 16));
                }
            }
        }
    }

    /// The format that is multiplied, if it has 16 bits.
    fn format(&self) -> Option<Format> {
        match self.element {
            WgmmaElement::Bf16 => Some(Format::Bf16),
            WgmmaElement::F16 => Some(Format::F16),
            WgmmaElement::Tf32 | WgmmaElement::Fp8(_) | WgmmaElement::Int8(_) | WgmmaElement::B1 => None,
        }
    }

    /// Loads a stage's tile: unchanged if it has the width that is multiplied, otherwise converted from one
    /// float format to another of 16 bits.
    #[track_caller]
    pub fn load(&self, stage: Stage<'f>) {
        let same = self.tile.bits() == self.element.bits();
        let (f, stored) = (self.f, self.tile.format);
        f.for_caller(|| match self.format() {
            _ if same => self.each(stage, &|address| f.load_shared_vector::<u32, 1>(address, 0)[0]),
            Some(format) => self.load_converted(stage, &|pair| match format
                .pack(f, pair.map(|element| stored.widen(element)))
            {
                Packed::Word(word) => word,
                Packed::Pair(_) | Packed::Half(_) | Packed::Doubles(_) => f.constant(0),
            }),
            None => f.refuse("A can be converted only to 16-bit elements: store it as it is multiplied"),
        });
    }

    /// Loads a stage's tile and converts it to 16-bit elements, two neighbours along K at a time.
    #[track_caller]
    pub fn load_converted(&self, stage: Stage<'f>, convert: Convert<'_, 'f>) {
        if self.element.bits() != 16 {
            self.f.refuse("A can be converted only to 16-bit elements: store it as it is multiplied");
            return;
        }
        let f = self.f;
        f.for_caller(|| {
            self.each(stage, &|address| {
                let pair = self.tile.format.load_shared_pair(f, address);
                f.of_caller(|| convert(pair))
            });
        });
    }

    /// Sets every register to what `load` returns for the shared address of its first element.
    fn each(&self, stage: Stage<'f>, load: &dyn Fn(Value<'f, u32>) -> Value<'f, u32>) {
        let base = stage.address + self.tile.offset;
        let Tensor { layout, start } = self.own;
        let bytes = self.tile.bits() / 8;
        let period = i64::from(self.tile.swizzle.alignment() / bytes);
        let packed = i64::from(32 / self.element.bits());
        // Whole periods of the swizzle are added after it is applied, so that addresses within a period are
        // computed once.
        let mut within = BTreeMap::new();
        for (block, steps) in (0i64..).zip(&self.registers) {
            for (step, registers) in (0i64..).zip(steps) {
                for (index, register) in (0i64..).zip(registers) {
                    let place = layout.layout.at_modes(&[index * packed, block, step]);
                    let near = *within.entry(place % period).or_insert_with(|| {
                        let near = element_offset(place % period);
                        base + layout.swizzle.apply_to(start + near) * bytes
                    });
                    let far = element_offset(place / period * period) * bytes;
                    register.set(load(near + far));
                }
            }
        }
    }
}
