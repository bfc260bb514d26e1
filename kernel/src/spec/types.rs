//! A spec as the Rust type to paste into a program. Types of forms, roles, cache policies, schedulers and reductions have the names of their values.

use collective::{
    AccumulatorType, Arrivals, CachePolicy, Form, Format, MainloopSpec, MmaKind, OperandSpec, Producer,
    Roles, StorePath, TileLayout, WeightsSpec,
};
use cute_rs::atom::{Major, SwizzleMode};
use scheduler::{DivideSpec, Rule, SchedulerSpec};

use super::{EpilogueKind, KernelSpec};

impl KernelSpec {
    /// The kernel's type as Rust source, with the names that `kernel`, `collective`, `scheduler`, `half` and
    /// `typenum` export. It is what [`Gemm`](crate::Gemm) takes.
    pub fn rust_type(&self) -> String {
        let roles = [mainloop(&self.mainloop), self.epilogue_type(), schedule(self.scheduler)];
        let composed = format!("Composed<{}>", roles.join(", "));
        let name = format!("{:?}", self.form);
        if self.form == Form::Single {
            composed
        } else if self.form.has_table() {
            let (most, usual) = (number(self.most_groups), number(Form::TABLES[0]));
            generic(&name, &[(&composed, ""), (&most, &usual)])
        } else {
            generic(&name, &[(&composed, "")])
        }
    }

    fn epilogue_type(&self) -> String {
        let (format, layout) =
            (self.store.format.rust_type(), atom(self.store.layout, Major::K, self.store.format));
        let buffers = match self.store.way {
            StorePath::Direct => String::new(),
            StorePath::Tma { buffers } => number(buffers),
        };
        let store = match self.store.way {
            StorePath::Direct => "DirectStore".to_owned(),
            StorePath::Tma { .. } => generic("TmaStore", &[(&buffers, "U2"), (&layout, "")]),
        };
        let store = if self.store.transposed { format!("Transposed<{store}>") } else { store };
        match self.epilogue {
            EpilogueKind::Linear => format!("LinearCombination<{format}, {store}>"),
            EpilogueKind::Sourced => {
                generic("SourcedCombination", &[(format, ""), (&buffers, ""), (&layout, "")])
            }
            EpilogueKind::Fused(fusion) => {
                let tree = fusion.lowered(self.mainloop.operands[0].format).rust_type();
                format!("TreeEpilogue<{format}, {store}, {tree}>")
            }
        }
    }
}

/// A type with its arguments, without the last ones that are the default.
fn generic(name: &str, arguments: &[(&str, &str)]) -> String {
    let given = arguments.iter().rposition(|(argument, usual)| argument != usual).map_or(0, |last| last + 1);
    let given: Vec<&str> = arguments[..given].iter().map(|(argument, _)| *argument).collect();
    if given.is_empty() { name.to_owned() } else { format!("{name}<{}>", given.join(", ")) }
}

/// A number's type.
fn number(number: u32) -> String {
    format!("U{number}")
}

/// The layout atom of a tile as Rust; empty for the default.
fn atom(layout: TileLayout, major: Major, format: Format) -> String {
    let TileLayout::Slabs(mode) = layout else { return String::new() };
    let (bits, width) = (mode.byte_swizzle().bits, mode.elements(format.bits()));
    let base = SwizzleMode::B128.swizzle(format.bits()).base;
    let rows = match major {
        Major::K => format!("RowMajor<(U8, U{width})>"),
        Major::Mn => format!("ColumnMajor<(U{width}, U8)>"),
    };
    format!("Swizzled<Sw<U{bits}, U{base}, U3>, {rows}>")
}

fn operand(OperandSpec { format, major, layout, scaled, weights, sparse, cache, .. }: OperandSpec) -> String {
    let name = if major == Major::K { "KMajor" } else { "MnMajor" };
    let mut matrix = generic(name, &[(format.rust_type(), ""), (&atom(layout, major, format), "")]);
    if scaled > 0 {
        matrix = format!("BlockScaled<{matrix}, U{scaled}>");
    }
    if let Some(WeightsSpec { code, group, zeros }) = weights {
        let code = code.rust_type();
        let code = if zeros { format!("ZeroPoints<{code}>") } else { code.to_owned() };
        matrix = format!("Quantized<{matrix}, {code}, U{group}>");
    }
    if sparse {
        matrix = format!("Sparse<{matrix}>");
    }
    if cache == CachePolicy::Normal { matrix } else { format!("{cache:?}<{matrix}>") }
}

fn mainloop(spec: &MainloopSpec) -> String {
    let name = match (spec.atom.types.multiply(), spec.producer) {
        (MmaKind::Wgmma, Producer::Thread) => "TmaWgmma",
        (MmaKind::Wgmma, Producer::Warpgroup) => "CopyWgmma",
        (MmaKind::MmaSync, _) => "MmaSync",
        (MmaKind::Simt, _) => "Simt",
    };
    let [m, n, k] = spec.tile;
    let tile = format!("Tile<U{m}, U{n}, U{k}>");
    let tile = if spec.step > 0 { format!("Fitted<{tile}, U{}>", spec.step) } else { tile };
    let mut sums = match spec.atom.promote {
        0 => String::new(),
        every => format!("Promoted<U{every}>"),
    };
    if spec.atom.sums() == AccumulatorType::F16 {
        sums = generic("InHalf", &[(&sums, "")]);
    }
    if spec.waves > 1 {
        sums = generic("InWaves", &[(&number(spec.waves), ""), (&sums, "")]);
    }
    let [a, b] = spec.operands.map(operand);
    let operands = generic("Operands", &[(&a, ""), (&b, ""), (&sums, "")]);
    format!("{name}<{operands}, {tile}, {}>", roles(spec))
}

fn roles(spec: &MainloopSpec) -> String {
    let stages = spec.stages.map_or_else(|| "AsManyAsFit".to_owned(), number);
    let stages = match spec.arrivals {
        Arrivals::Warpgroup => stages,
        each @ (Arrivals::Warp | Arrivals::Thread) => format!("Each{each:?}<{stages}>"),
    };
    let ([m, n], consumers) = (spec.cluster, number(spec.consumers));
    let (consumers, stages) = ((consumers.as_str(), ""), (stages.as_str(), "AsManyAsFit"));
    let cluster = format!("Cluster<U{m}, U{n}>");
    match spec.roles {
        Roles::Unspecialised => generic("Unspecialised", &[consumers, stages]),
        roles @ (Roles::Cooperative | Roles::Pingpong) => {
            generic(&format!("{roles:?}"), &[consumers, (&cluster, "Cluster<U1, U1>"), stages])
        }
    }
}

fn schedule(SchedulerSpec { raster, rule }: SchedulerSpec) -> String {
    let order = raster.rust_type(crate::rust_type::shortened);
    match rule {
        Rule::OneTile | Rule::Persistent | Rule::Dynamic => format!("{rule:?}<{order}>"),
        Rule::DividedTail { parts, least } => {
            generic("DividedTail", &[(&order, ""), (&number(parts), "U3"), (&number(least), "U16")])
        }
        Rule::ClusterK { parts } => format!("ClusterK<{order}, U{parts}>"),
        Rule::NarrowTail { parts } => format!("NarrowTail<{order}, U{parts}>"),
        Rule::StreamK { reduction, divide, least } => {
            let (reduction, least) = (format!("{reduction:?}"), number(least));
            let least = (least.as_str(), "U4");
            let divide = match divide {
                DivideSpec::Remainder => generic("Remainder", &[least]),
                DivideSpec::EveryTile(parts) => generic("EveryTile", &[(&number(parts), ""), least]),
                DivideSpec::Heuristic { gain } => generic("Heuristic", &[(&number(gain), "U28"), least]),
            };
            generic("StreamK", &[(&order, ""), (&reduction, "Ordered"), (&divide, "Heuristic")])
        }
    }
}
