//! The keys of a spec: one row of a table for each.

use collective::{
    AccumulatorType, Arrivals, Atom, Format, MainloopSpec, MmaKind, OperandSpec, Producer, Roles, StorePath,
    TileLayout, WeightsSpec,
};
use scheduler::{DivideSpec, ReductionKind, Rule};

use super::error::SpecError;
use super::words::{Group, Operand, Scales, Word, refused};
use super::{EpilogueKind, KernelSpec};

/// A spec as its keys say it: with A and B in the caller's order, and with parts that are not known yet.
#[derive(Clone, Copy, Debug)]
pub(super) struct Draft {
    spec: KernelSpec,
    multiply: MmaKind,
    sums: AccumulatorType,
    /// Whether the tile was given.
    tiled: bool,
}

/// A key.
pub(super) struct Key {
    pub(super) name: &'static str,
    /// What it belongs to, if it does not belong to every spec.
    pub(super) of: &'static str,
    value: &'static (dyn Value + Sync),
}

/// The value of a key in a draft.
trait Value {
    /// Reads it. `false` if the key does not belong to the draft.
    fn read(&self, draft: &mut Draft, key: &'static str, text: &str) -> Result<bool, SpecError>;

    /// Its text; `None` if the key does not belong to the draft.
    fn write(&self, draft: Draft) -> Option<String>;
}

/// A value with a place in the draft.
struct At<W>(fn(&mut Draft) -> Option<&mut W>);

impl<W: Word> Value for At<W> {
    fn read(&self, draft: &mut Draft, key: &'static str, text: &str) -> Result<bool, SpecError> {
        let Some(place) = (self.0)(draft) else { return Ok(false) };
        *place = W::read(key, text)?;
        Ok(true)
    }

    fn write(&self, mut draft: Draft) -> Option<String> {
        (self.0)(&mut draft).map(|value| value.text())
    }
}

/// A value that is in several places, or not as its text says it: how it is got and set.
struct As<W>(fn(&Draft) -> Option<W>, fn(&mut Draft, W));

impl<W: Word> Value for As<W> {
    fn read(&self, draft: &mut Draft, key: &'static str, text: &str) -> Result<bool, SpecError> {
        let there = (self.0)(draft).is_some();
        if there {
            (self.1)(draft, W::read(key, text)?);
        }
        Ok(there)
    }

    fn write(&self, draft: Draft) -> Option<String> {
        (self.0)(&draft).map(|value| value.text())
    }
}

const fn key(name: &'static str, value: &'static (dyn Value + Sync)) -> Key {
    Key { name, of: "every spec", value }
}

const fn key_of(of: &'static str, name: &'static str, value: &'static (dyn Value + Sync)) -> Key {
    Key { name, of, value }
}

/// Every key, in the order in which a spec is printed. The default of a key depends only on keys before it, except that of the tile.
pub(super) static KEYS: [Key; 41] = [
    key("form", &At(|of| Some(&mut of.spec.form))),
    key_of(
        "form=ragged, form=masked and form=grouped",
        "most-groups",
        &At(|of| of.spec.form.has_table().then_some(&mut of.spec.most_groups)),
    ),
    key("dtype", &As(|of| Some(Operand(of.operand(0).format)), |of, a| of.operands()[0].format = a.0)),
    key("dtype-b", &As(|of| Some(Operand(of.operand(1).format)), |of, b| of.operands()[1].format = b.0)),
    key(
        "layout",
        &As(|of| Some(of.each(|operand| operand.major)), |of, all| of.set(all, |of| &mut of.major)),
    ),
    key("multiply", &At(|of| Some(&mut of.multiply))),
    key("epilogue", &At(|of| Some(&mut of.spec.epilogue))),
    key("out", &At(|of| Some(&mut of.spec.store.format))),
    key("scale-a", &As(|of| Some(Scales(of.operand(0).scaled)), |of, rows| of.operands()[0].scaled = rows.0)),
    key("scale-b", &As(|of| Some(Scales(of.operand(1).scaled)), |of, rows| of.operands()[1].scaled = rows.0)),
    key(
        "sparse",
        &As(|of| Some(of.each(|operand| operand.sparse)), |of, all| of.set(all, |of| &mut of.sparse)),
    ),
    key("weights-a", &At(|of| Some(&mut of.operands()[0].weights))),
    key("weights-b", &At(|of| Some(&mut of.operands()[1].weights))),
    key(
        "tile",
        &As(|of| Some(of.spec.mainloop.tile), |of, tile| (of.spec.mainloop.tile, of.tiled) = (tile, true)),
    ),
    key("step", &At(|of| Some(&mut of.spec.mainloop.step))),
    key("sums", &At(|of| Some(&mut of.sums))),
    key("promote", &At(|of| Some(&mut of.spec.mainloop.atom.promote))),
    key("waves", &At(|of| Some(&mut of.spec.mainloop.waves))),
    key("cluster", &At(|of| Some(&mut of.spec.mainloop.cluster))),
    key("roles", &At(|of| Some(&mut of.spec.mainloop.roles))),
    key("consumers", &At(|of| Some(&mut of.spec.mainloop.consumers))),
    key("stages", &At(|of| Some(&mut of.spec.mainloop.stages))),
    key("arrivals", &At(|of| Some(&mut of.spec.mainloop.arrivals))),
    key("load", &At(|of| Some(&mut of.spec.mainloop.producer))),
    key("l2-a", &At(|of| Some(&mut of.operands()[0].cache))),
    key("l2-b", &At(|of| Some(&mut of.operands()[1].cache))),
    key("swizzle-a", &At(|of| Some(&mut of.operands()[0].layout))),
    key("swizzle-b", &At(|of| Some(&mut of.operands()[1].layout))),
    key_of(
        "weights-a and weights-b",
        "group",
        &As(
            |of| of.weights().map(|weights| Group(weights.group)),
            |of, group| of.each_weights(|of| of.group = group.0),
        ),
    ),
    key_of(
        "weights-a and weights-b",
        "zeros",
        &As(
            |of| of.weights().map(|weights| weights.zeros),
            |of, zeros| of.each_weights(|of| of.zeros = zeros),
        ),
    ),
    key("store", &At(|of| Some(&mut of.spec.store.way))),
    key_of(
        "store=tma",
        "buffers",
        &At(|of| match &mut of.spec.store.way {
            StorePath::Tma { buffers } => Some(buffers),
            StorePath::Direct => None,
        }),
    ),
    key_of(
        "store=tma",
        "swizzle-d",
        &At(|of| (of.spec.store.way != StorePath::Direct).then_some(&mut of.spec.store.layout)),
    ),
    key("swap", &At(|of| Some(&mut of.spec.store.transposed))),
    key("scheduler", &At(|of| Some(&mut of.spec.scheduler.rule))),
    key("raster", &At(|of| Some(&mut of.spec.scheduler.raster))),
    key_of(
        "scheduler=dynamic-tail, scheduler=cluster-k and scheduler=narrow-tail",
        "splits",
        &At(|of| match &mut of.spec.scheduler.rule {
            Rule::DividedTail { parts, .. } | Rule::ClusterK { parts } | Rule::NarrowTail { parts } => {
                Some(parts)
            }
            Rule::OneTile | Rule::Persistent | Rule::Dynamic | Rule::StreamK { .. } => None,
        }),
    ),
    key_of("scheduler=stream-k", "reduction", &At(|of| of.streamed().map(|(reduction, _)| reduction))),
    key_of("scheduler=stream-k", "divide", &At(|of| of.streamed().map(|(_, divide)| divide))),
    key_of(
        "scheduler=stream-k and scheduler=dynamic-tail",
        "min-k-tiles",
        &At(|of| match &mut of.spec.scheduler.rule {
            Rule::DividedTail { least, .. } | Rule::StreamK { least, .. } => Some(least),
            Rule::OneTile
            | Rule::Persistent
            | Rule::Dynamic
            | Rule::ClusterK { .. }
            | Rule::NarrowTail { .. } => None,
        }),
    ),
    key("pdl", &At(|of| Some(&mut of.spec.overlaps))),
];

impl Key {
    /// Reads its value. `false` if the key does not belong to the draft.
    pub(super) fn read(&self, draft: &mut Draft, text: &str) -> Result<bool, SpecError> {
        self.value.read(draft, self.name, text)
    }

    /// The text of its value; `None` if the key does not belong to the draft.
    pub(super) fn write(&self, draft: Draft) -> Option<String> {
        self.value.write(draft)
    }
}

impl Draft {
    /// The draft of no words.
    pub(super) fn empty() -> Self {
        Self { tiled: false, ..Self::of(KernelSpec::DEFAULT) }
    }

    /// The draft of a spec.
    pub(super) fn of(mut spec: KernelSpec) -> Self {
        let atom = spec.mainloop.atom;
        if spec.store.transposed {
            spec.mainloop.operands.swap(0, 1);
        }
        Self { spec, multiply: atom.types.multiply(), sums: atom.sums(), tiled: true }
    }

    /// The spec of the draft.
    ///
    /// # Errors
    /// No instruction of the kind multiplies the operands, or none has such accumulators.
    pub(super) fn spec(mut self) -> Result<KernelSpec, SpecError> {
        let (atom, [a, b]) = (self.atom(), self.operands().map(|operand| operand.format));
        if atom.is_none() && self.multiply != MmaKind::Wgmma {
            let needed = format!("an instruction that multiplies the formats of A and B, {a} and {b},");
            return Err(refused("multiply", self.multiply.name(), needed));
        }
        let (mut spec, promote) = (self.spec, self.spec.mainloop.atom.promote);
        if spec.store.transposed {
            spec.mainloop.operands.swap(0, 1);
        }
        if spec.store.way == StorePath::Direct {
            spec.store.layout = TileLayout::Widest;
        }
        // Formats without an instruction are refused by the plan.
        let atom = atom.unwrap_or(KernelSpec::DEFAULT.mainloop.atom.taking(spec.mainloop.operands[0]));
        let usual = atom.sums();
        let half = atom.in_half().filter(|half| half.sums() == self.sums);
        let Some(atom) = (self.sums == usual).then_some(atom).or(half) else {
            let others = atom.in_half().map_or("", |_| " or f16");
            let needed = format!("{}{others} for products of {a} and {b}", usual.suffix());
            return Err(refused("sums", self.sums.suffix(), needed));
        };
        let mainloop = MainloopSpec { atom: atom.promoted(promote), ..spec.mainloop };
        Ok(KernelSpec { mainloop, ..spec })
    }

    /// Sets a key to its default, if that depends on keys before it.
    pub(super) fn usual(&mut self, key: &str) {
        let by_threads = self.multiply != MmaKind::Wgmma;
        let [a, b] = *self.operands();
        let sparse = a.sparse || b.sparse;
        let stored = sparse || a.scaled + b.scaled > 0 || self.weights().is_some();
        let KernelSpec { mainloop, epilogue, store, .. } = &mut self.spec;
        match key {
            "dtype-b" => mainloop.operands[1].format = a.format,
            "multiply" => self.multiply = MmaKind::fastest(a.format, b.format).unwrap_or(MmaKind::Wgmma),
            "out" => {
                store.format = match epilogue {
                    EpilogueKind::Fused(formula) => formula.output(a.format),
                    EpilogueKind::Linear | EpilogueKind::Sourced => a.format.output(),
                };
            }
            "tile" => {
                let n = if stored || by_threads { 128 } else { 256 };
                mainloop.tile = [128, n, if sparse { 2048 } else { 1024 } / a.format.bits()];
            }
            "sums" => self.sums = self.atom().map_or(AccumulatorType::F32, Atom::sums),
            "roles" => mainloop.roles = if by_threads { Roles::Unspecialised } else { Roles::Cooperative },
            "consumers" => {
                let pingpong = mainloop.roles == Roles::Pingpong;
                if pingpong && !self.tiled {
                    mainloop.tile[1] = 128;
                }
                mainloop.consumers = match mainloop.tile[0] {
                    m if pingpong || m.is_multiple_of(128) => 2,
                    m if m.is_multiple_of(192) => 3,
                    _ => 1,
                };
            }
            "arrivals" => mainloop.arrivals = if stored { Arrivals::Warp } else { Arrivals::Warpgroup },
            "load" => mainloop.producer = if by_threads { Producer::Warpgroup } else { Producer::Thread },
            "store" => {
                let direct = store.format == Format::F64;
                store.way = if direct { StorePath::Direct } else { StorePath::Tma { buffers: 2 } };
            }
            _ => {}
        }
    }

    /// The atom that multiplies the kernel's operands; `None` if there is none.
    fn atom(&self) -> Option<Atom> {
        let [a, b] = if self.spec.store.transposed { [1, 0] } else { [0, 1] }.map(|i| self.operand(i));
        self.multiply.atom(a.format, b.format).map(|atom| atom.taking(a))
    }

    fn operand(&self, i: usize) -> OperandSpec {
        self.spec.mainloop.operands[i]
    }

    fn operands(&mut self) -> &mut [OperandSpec; 2] {
        &mut self.spec.mainloop.operands
    }

    fn each<T>(&self, of: fn(OperandSpec) -> T) -> [T; 2] {
        self.spec.mainloop.operands.map(of)
    }

    fn set<T>(&mut self, values: [T; 2], place: fn(&mut OperandSpec) -> &mut T) {
        self.operands().iter_mut().zip(values).for_each(|(operand, value)| *place(operand) = value);
    }

    fn weights(&self) -> Option<WeightsSpec> {
        self.operand(0).weights.or(self.operand(1).weights)
    }

    fn each_weights(&mut self, change: impl FnMut(&mut WeightsSpec)) {
        self.operands().iter_mut().filter_map(|operand| operand.weights.as_mut()).for_each(change);
    }

    /// How a Stream-K kernel adds up, and what it splits.
    fn streamed(&mut self) -> Option<(&mut ReductionKind, &mut DivideSpec)> {
        let Rule::StreamK { reduction, divide, .. } = &mut self.spec.scheduler.rule else { return None };
        Some((reduction, divide))
    }
}
