//! A spec as the Rust type to paste into a program.

use collective::{
    AccumulatorType, Arrivals, CachePolicy, Form, Format, MainloopSpec, MmaKind, Producer, Roles, StorePath,
    TileLayout, WeightsSpec,
};
use cute_rs::atom::{Major, SwizzleMode};
use scheduler::{
    Clustered, DivideSpec, Drawn, Narrowed, RasterSpec, ReductionKind, SchedulerSpec, Streamed, Tailed, Walk,
    Whole,
};

use super::{EpilogueKind, KernelSpec};

impl KernelSpec {
    /// The kernel's type as Rust source, with the names that `kernel`, `collective`, `scheduler`, `half` and
    /// `typenum` export. It is what [`Gemm`](crate::Gemm) takes.
    pub fn rust_type(&self) -> String {
        let roles =
            format!("{}, {}, {}", mainloop(&self.mainloop), self.epilogue_type(), schedule(self.scheduler));
        let composed = format!("Composed<{roles}>");
        match self.form {
            Form::Single => composed,
            Form::Batched => format!("Batched<{composed}>"),
            Form::GroupedContiguous => format!("GroupedContiguous<{composed}>"),
            Form::GroupedMasked => format!("GroupedMasked<{composed}>"),
            Form::KGrouped => format!("KGrouped<{composed}>"),
            Form::PointerArray => format!("PointerArray<{composed}>"),
        }
    }

    fn epilogue_type(&self) -> String {
        let format = self.store.format.rust_type();
        let way = match self.store.way {
            StorePath::Direct => "DirectStore".to_owned(),
            StorePath::Tma { buffers } => {
                match (atom(self.store.layout, Major::K, self.store.format), buffers) {
                    (None, 2) => "TmaStore".to_owned(),
                    (None, _) => format!("TmaStore<U{buffers}>"),
                    (Some(atom), _) => format!("TmaStore<U{buffers}, {atom}>"),
                }
            }
        };
        let store = if self.store.transposed { format!("Transposed<{way}>") } else { way };
        match (self.epilogue, self.store.way) {
            (EpilogueKind::Linear, _) => format!("LinearCombination<{format}, {store}>"),
            (EpilogueKind::Sourced, StorePath::Tma { buffers }) => {
                match atom(self.store.layout, Major::K, self.store.format) {
                    None => format!("SourcedCombination<{format}, U{buffers}>"),
                    Some(atom) => format!("SourcedCombination<{format}, U{buffers}, {atom}>"),
                }
            }
            (EpilogueKind::Sourced, StorePath::Direct) => format!("SourcedCombination<{format}>"),
            (EpilogueKind::Fused(fusion), _) => {
                let tree = fusion.lowered(self.mainloop.operands[0].format).rust_type();
                format!("TreeEpilogue<{format}, {store}, {tree}>")
            }
        }
    }
}

/// The layout atom of a tile as Rust; `None` for the default.
fn atom(layout: TileLayout, major: Major, format: Format) -> Option<String> {
    let TileLayout::Slabs(mode) = layout else { return None };
    let (bits, width) = (mode.byte_swizzle().bits, mode.elements(format.bits()));
    let base = SwizzleMode::B128.swizzle(format.bits()).base;
    let rows = match major {
        Major::K => format!("RowMajor<(U8, U{width})>"),
        Major::Mn => format!("ColumnMajor<(U{width}, U8)>"),
    };
    Some(format!("Swizzled<Sw<U{bits}, U{base}, U3>, {rows}>"))
}

fn mainloop(spec: &MainloopSpec) -> String {
    let [a, b] = spec.operands.map(|operand| {
        let format = operand.format.rust_type();
        let name = match operand.major {
            Major::K => "KMajor",
            Major::Mn => "MnMajor",
        };
        let matrix = match atom(operand.layout, operand.major, operand.format) {
            None => format!("{name}<{format}>"),
            Some(atom) => format!("{name}<{format}, {atom}>"),
        };
        let matrix = match operand.scaled {
            0 => matrix,
            rows => format!("BlockScaled<{matrix}, U{rows}>"),
        };
        let matrix = match operand.weights {
            None => matrix,
            Some(WeightsSpec { code, group, zeros }) => {
                let code = code.rust_type();
                let code = if zeros { format!("ZeroPoints<{code}>") } else { code.to_owned() };
                format!("Quantized<{matrix}, {code}, U{group}>")
            }
        };
        let matrix = if operand.sparse { format!("Sparse<{matrix}>") } else { matrix };
        match operand.cache {
            CachePolicy::Normal => matrix,
            CachePolicy::EvictFirst => format!("EvictFirst<{matrix}>"),
            CachePolicy::EvictLast => format!("EvictLast<{matrix}>"),
        }
    });
    let name = match (spec.atom.types.multiply(), spec.producer) {
        (MmaKind::Wgmma, Producer::Thread) => "TmaWgmma",
        (MmaKind::Wgmma, Producer::Warpgroup) => "CopyWgmma",
        (MmaKind::MmaSync, _) => "MmaSync",
        (MmaKind::Simt, _) => "Simt",
    };
    let [m, n, k] = spec.tile;
    let tile = format!("Tile<U{m}, U{n}, U{k}>");
    let tile = if spec.step > 0 { format!("Fitted<{tile}, U{}>", spec.step) } else { tile };
    let half = matches!(spec.atom.sums(), AccumulatorType::F16);
    let sums = match (spec.atom.promote, half) {
        (0, false) => None,
        (0, true) => Some("InHalf".to_owned()),
        (every, false) => Some(format!("Promoted<U{every}>")),
        (every, true) => Some(format!("InHalf<Promoted<U{every}>>")),
    };
    let sums = match (spec.waves, sums) {
        (1, sums) => sums,
        (waves, None) => Some(format!("InWaves<U{waves}>")),
        (waves, Some(sums)) => Some(format!("InWaves<U{waves}, {sums}>")),
    };
    let sums = sums.map_or_else(String::new, |sums| format!(", {sums}"));
    format!("{name}<Operands<{a}, {b}{sums}>, {tile}, {}>", roles(spec))
}

fn roles(spec: &MainloopSpec) -> String {
    let stages = spec.stages.map_or_else(|| "AsManyAsFit".to_owned(), |stages| format!("U{stages}"));
    let stages = match spec.arrivals {
        Arrivals::Warpgroup => stages,
        Arrivals::Warp => format!("EachWarp<{stages}>"),
        Arrivals::Thread => format!("EachThread<{stages}>"),
    };
    let ([m, n], consumers) = (spec.cluster, spec.consumers);
    let usual = stages == "AsManyAsFit";
    let name = match spec.roles {
        Roles::Cooperative => "Cooperative",
        Roles::Pingpong => "Pingpong",
        Roles::Unspecialised => {
            let stages = if usual { String::new() } else { format!(", {stages}") };
            return format!("Unspecialised<U{consumers}{stages}>");
        }
    };
    match (usual, [m, n] == [1, 1]) {
        (true, true) => format!("{name}<U{consumers}>"),
        (true, false) => format!("{name}<U{consumers}, Cluster<U{m}, U{n}>>"),
        (false, _) => format!("{name}<U{consumers}, Cluster<U{m}, U{n}>, {stages}>"),
    }
}

fn raster(raster: RasterSpec) -> String {
    match raster {
        RasterSpec::AlongM => "AlongM".to_owned(),
        RasterSpec::AlongN => "AlongN".to_owned(),
        RasterSpec::BandsOfM(group) => format!("Grouped<AlongM, U{group}>"),
        RasterSpec::BandsOfN(group) => format!("Grouped<AlongN, U{group}>"),
        RasterSpec::Hilbert(side) => format!("Hilbert<U{side}>"),
    }
}

fn schedule(spec: SchedulerSpec) -> String {
    let order = raster(spec.raster());
    match spec {
        SchedulerSpec::OneTile(Whole { .. }) => format!("OneTile<{order}>"),
        SchedulerSpec::Persistent(Walk { .. }) => format!("Persistent<{order}>"),
        SchedulerSpec::Dynamic(Drawn { .. }) => format!("Dynamic<{order}>"),
        SchedulerSpec::DividedTail(Tailed { parts: 3, least: 16, .. }) => format!("DividedTail<{order}>"),
        SchedulerSpec::DividedTail(Tailed { parts, least, .. }) => {
            format!("DividedTail<{order}, U{parts}, U{least}>")
        }
        SchedulerSpec::ClusterK(Clustered { parts, .. }) => format!("ClusterK<{order}, U{parts}>"),
        SchedulerSpec::NarrowTail(Narrowed { parts, .. }) => format!("NarrowTail<{order}, U{parts}>"),
        SchedulerSpec::StreamK(Streamed { reduction, divide, least, .. }) => {
            let reduction = match reduction {
                ReductionKind::Ordered => "Ordered",
                ReductionKind::Atomic => "Atomic",
                ReductionKind::Separate => "Separate",
                ReductionKind::Clustered => "Clustered",
            };
            let least = if least == 4 { None } else { Some(format!("U{least}")) };
            let (name, number) = match divide {
                DivideSpec::Remainder => ("Remainder", None),
                DivideSpec::EveryTile(parts) => ("EveryTile", Some(parts)),
                DivideSpec::HEURISTIC if least.is_none() => ("Heuristic", None),
                DivideSpec::Heuristic { gain } => ("Heuristic", Some(gain)),
            };
            let numbers: Vec<String> =
                number.map(|number| format!("U{number}")).into_iter().chain(least).collect();
            let divide =
                if numbers.is_empty() { name.to_owned() } else { format!("{name}<{}>", numbers.join(", ")) };
            match (reduction, divide.as_str()) {
                ("Ordered", "Heuristic") => format!("StreamK<{order}>"),
                (_, "Heuristic") => format!("StreamK<{order}, {reduction}>"),
                _ => format!("StreamK<{order}, {reduction}, {divide}>"),
            }
        }
    }
}
