//! A built-in kernel as plain data: [`KernelSpec`]. Its text is what the command line's `--kernel` takes, and
//! the selection searches specs.
//!
//! ```
//! use kernel::KernelSpec;
//!
//! let spec: KernelSpec = "tile=64x160x64 roles=pingpong scheduler=stream-k".parse()?;
//! let gemm = spec.kernel()?; // the same plan and the same program as the type's
//! assert_eq!(gemm.plan().mainloop.tile, [64, 160, 64]);
//! assert_eq!(gemm.spec(), Some(spec));
//! println!("type Kernel = Gemm<{}>;", spec.rust_type());
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```

mod error;
mod keys;
mod nearest;
#[cfg(feature = "serde")]
mod serde;
mod text;
mod types;
mod words;

use collective::{
    AnyEpilogue, Arrivals, Atom, EpilogueSpec, Form, Format, Formula, Linear, MainloopNeeds, MainloopSpec,
    OperandSpec, Plan, Producer, Roles, StageSlot, StorePath, StoreSpec, TileLayout,
};
use scheduler::{AlongM, Grouped, Raster, Rule, SchedulerSpec};
use typenum::U8;

pub use error::SpecError;

use crate::gemm::{AnyGemm, Built};
use crate::legal::{self, IllegalKernel};

/// The epilogue of a built-in kernel: what happens to the accumulators.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum EpilogueKind {
    /// `D = alpha * A * B + beta * C` ([`LinearCombination`](collective::LinearCombination)).
    Linear,
    /// The same, with C loaded by tensor copies ([`SourcedCombination`](collective::SourcedCombination)).
    Sourced,
    /// A tree from text, for example `gelu(alpha*acc + bias[n])`.
    Fused(Formula),
}

impl KernelSpec {
    /// The formula, if the epilogue is one.
    pub const fn fusion(&self) -> Option<Formula> {
        match self.epilogue {
            EpilogueKind::Fused(formula) => Some(formula),
            EpilogueKind::Linear | EpilogueKind::Sourced => None,
        }
    }
}

impl EpilogueKind {
    /// The epilogue's name in a spec's text.
    pub fn name(self) -> &'static str {
        match self {
            Self::Linear => "linear",
            Self::Sourced => "sourced",
            Self::Fused(formula) => formula.name(),
        }
    }
}

/// A built-in kernel as plain data: operands, tile, roles, store, epilogue, scheduler and form.
///
/// [`kernel`](Self::kernel) checks it by the same functions that check a type at compile time. Its text
/// ([`Display`](core::fmt::Display), [`FromStr`](core::str::FromStr)) names only what differs from the
/// [default](Self::DEFAULT). [`words`](Self::words) lists every key with its value.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct KernelSpec {
    /// One GEMM per launch, or several.
    pub form: Form,
    /// Most groups of a launch, for forms that keep a table of them: one of [`Form::TABLES`], 320 by default. Larger tables
    /// take some time per tile, and in kernels that narrow tiles more shared memory.
    pub most_groups: u32,
    /// Operands with their formats, tile, warp roles and ring of stages. A and B are the kernel's: with
    /// swap-AB (a transposed store), the kernel's A is the caller's B.
    pub mainloop: MainloopSpec,
    /// What happens to the accumulators.
    pub epilogue: EpilogueKind,
    /// How D is stored.
    pub store: StoreSpec,
    /// Which CTA computes which tile, and in which order.
    pub scheduler: SchedulerSpec,
    /// Whether the kernel may start while the previous kernel in its stream still runs (programmatic
    /// dependent launch).
    pub overlaps: bool,
}

impl KernelSpec {
    /// A 128 x 256 x 64 tile of bf16, both operands K-major, two consumer warpgroups, D stored by tensor
    /// copies, persistent CTAs.
    pub const DEFAULT: Self = Self {
        form: Form::Single,
        most_groups: Form::TABLES[0],
        mainloop: MainloopSpec {
            operands: [OperandSpec::k_major(Format::Bf16); 2],
            more: [StageSlot::NONE; MainloopSpec::MORE],
            atom: match Format::Bf16.multiplies(Format::Bf16) {
                Some(types) => Atom::shared(types),
                None => panic!("Hopper multiplies bf16"),
            },
            own_bytes: 0,
            own_stage: StageSlot::NONE,
            registers: 0,
            tile: [128, 256, 64],
            step: 0,
            roles: Roles::Cooperative,
            producer: Producer::Thread,
            consumers: 2,
            arrivals: Arrivals::Warpgroup,
            cluster: [1, 1],
            stages: None,
            waves: 1,
        },
        epilogue: EpilogueKind::Linear,
        store: StoreSpec {
            format: Format::Bf16,
            way: StorePath::Tma { buffers: 2 },
            layout: TileLayout::Widest,
            transposed: false,
        },
        scheduler: SchedulerSpec { raster: Grouped::<AlongM, U8>::RASTER, rule: Rule::Persistent },
        overlaps: true,
    };

    /// What the epilogue needs from the plan.
    const fn epilogue_spec(&self) -> Result<EpilogueSpec, IllegalKernel> {
        let store = self.store;
        if let StorePath::Tma { buffers: 0 } = store.way {
            return Err(IllegalKernel::Roles(
                "TmaStore has no buffer to store from: use TmaStore<U1> or more",
            ));
        }
        match self.epilogue {
            EpilogueKind::Linear => Ok(Linear { store, sourced: false }.spec()),
            EpilogueKind::Sourced if matches!(store.way, StorePath::Direct) || store.transposed => {
                Err(IllegalKernel::Roles(
                    "SourcedCombination stores by tensor copies in the caller's rows: use TmaStore, and exchange no operands",
                ))
            }
            EpilogueKind::Sourced => Ok(Linear { store, sourced: true }.spec()),
            EpilogueKind::Fused(formula) => match formula.spec(self.mainloop.operands[0].format, store) {
                Ok(spec) => Ok(spec),
                Err(words) => Err(IllegalKernel::Roles(words)),
            },
        }
    }

    /// Every number of the kernel: tile, stages, shared memory, registers, threads.
    ///
    /// # Errors
    /// The first rule that the spec breaks.
    pub const fn plan(&self) -> Result<Plan, IllegalKernel> {
        match self.roles() {
            Ok(epilogue) => legal::plan(
                (self.form, self.most_groups),
                (self.mainloop, MainloopNeeds::NONE),
                epilogue,
                self.scheduler.traits(),
            ),
            Err(error) => Err(error),
        }
    }

    /// The rules that each role alone breaks, and what the epilogue needs from the plan.
    pub(crate) const fn roles(&self) -> Result<EpilogueSpec, IllegalKernel> {
        let [a, b] = self.mainloop.operands;
        if self.mainloop.atom.types.multiply().atom(a.format, b.format).is_none() {
            return Err(IllegalKernel::Roles(Format::NO_PRODUCT));
        }
        if let Err(error) = self.scheduler.check() {
            return Err(IllegalKernel::Scheduler(error));
        }
        self.epilogue_spec()
    }

    fn epilogue(&self) -> AnyEpilogue {
        let store = self.store;
        match self.epilogue {
            EpilogueKind::Linear => Linear { store, sourced: false }.into(),
            EpilogueKind::Sourced => Linear { store, sourced: true }.into(),
            EpilogueKind::Fused(formula) => formula.epilogue(self.mainloop.operands[0].format, store),
        }
    }

    /// The kernel. Its name is the spec's text.
    ///
    /// # Errors
    /// The first rule that the spec breaks.
    pub fn kernel(&self) -> Result<AnyGemm, IllegalKernel> {
        Ok(self.with_texts(self.unnamed(self.plan()?)))
    }

    /// The kernel, under a name of your choice.
    ///
    /// # Errors
    /// The first rule that the spec breaks.
    pub fn named(&self, name: impl Into<String>) -> Result<AnyGemm, IllegalKernel> {
        Ok(AnyGemm { name: name.into(), rust_type: self.rust_type(), ..self.unnamed(self.plan()?) })
    }

    /// The kernel with the spec's texts.
    pub(crate) fn with_texts(&self, gemm: AnyGemm) -> AnyGemm {
        AnyGemm { name: self.to_string(), rust_type: self.rust_type(), ..gemm }
    }

    /// The kernel without its texts, which take longer than all else. `plan` is the spec's.
    pub(crate) fn unnamed(&self, plan: Plan) -> AnyGemm {
        AnyGemm {
            name: String::new(),
            rust_type: String::new(),
            overlaps: self.overlaps,
            plan,
            mainloop: self.mainloop.mainloop(),
            epilogue: self.epilogue(),
            scheduler: self.scheduler.schedule(),
            traits: self.scheduler.traits(),
            built: Built::default(),
        }
    }
}

impl AnyGemm {
    /// The same kernel with a formula's epilogue, whose D is stored as before; with a mainloop or scheduler of your own, too.
    ///
    /// # Errors
    /// The first rule that the kernel breaks with it, or the kernel's epilogue is one of your own, which stores D itself.
    pub fn with_epilogue(&self, formula: Formula) -> Result<Self, IllegalKernel> {
        let Some(store) = self.epilogue.store() else {
            let words = "an epilogue of your own stores D itself: begin with a kernel of LinearCombination";
            return Err(IllegalKernel::Roles(words));
        };
        // The step of a scheduler that slices tiles follows from its slices.
        let step = if self.traits.slices > 1 { 0 } else { self.plan.mainloop.step };
        let mainloop = MainloopSpec { step, ..self.plan.mainloop };
        let a = mainloop.operands[0].format;
        let epilogue = formula.spec(a, store).map_err(IllegalKernel::Roles)?;
        let form = (self.plan.form, self.plan.table.groups);
        let plan = legal::plan(form, (mainloop, self.plan.needs), epilogue, self.traits)?;
        let rust_type = format!("{} with the epilogue `{}`", self.rust_type, formula.text());
        Ok(Self { plan, rust_type, epilogue: formula.epilogue(a, store), ..self.clone() })
    }

    /// The kernel as plain data; `None` if the mainloop, epilogue or scheduler is not a built-in one.
    pub fn spec(&self) -> Option<KernelSpec> {
        let (scheduler, store) = (self.scheduler.spec()?, self.epilogue.store()?);
        let plan = &self.plan;
        let fused = |formula: &Formula| {
            formula.epilogue(plan.mainloop.operands[0].format, store).name() == self.epilogue.name()
        };
        let epilogue = match (plan.epilogue.sourced, self.epilogue.linear()) {
            (true, Some(_)) => EpilogueKind::Sourced,
            (false, Some(_)) => EpilogueKind::Linear,
            (_, None) => EpilogueKind::Fused(self.epilogue.formula().filter(fused)?),
        };
        // A spec's text names the operands and what multiplies them, but no further tiles per stage.
        let [a, b] = plan.mainloop.operands;
        let atom = plan.mainloop.atom.promoted(0);
        let usual = atom.types.multiply().atom(a.format, b.format).map(|atom| atom.taking(a));
        let said = (usual == Some(atom) || usual.and_then(Atom::in_half) == Some(atom))
            && a.staged
            && b.staged
            && plan.mainloop.more.iter().all(|room| room.bytes == 0)
            && (plan.mainloop.registers, plan.mainloop.own_bytes) == (0, 0)
            && plan.mainloop.own_stage == StageSlot::NONE;
        // The step of a scheduler that slices tiles follows from its slices.
        let step = if self.traits.slices > 1 { 0 } else { plan.mainloop.step };
        (said && self.mainloop.is_built_in()).then_some(KernelSpec {
            form: plan.form,
            most_groups: plan.table.groups,
            mainloop: MainloopSpec { step, ..plan.mainloop },
            epilogue,
            store,
            scheduler,
            overlaps: self.overlaps,
        })
    }
}
