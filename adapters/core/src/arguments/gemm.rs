//! The arguments of GEMMs, and what they ask for.

use std::sync::Arc;

use falchion::collective::{FACTORS, METADATA, MatrixRef, SCALES};
use falchion::kernel::GroupedProblem;

use super::gemms::Asked;
use super::{Argument, Goes, Kind, Operation, Python, Structure, Switch, Value};
use crate::refusal::Refusal;
use crate::slots::Slot;
use crate::unused::OptionalArgument;

/// GEMMs.
pub static GEMM: Operation<Gemms, ProductRun> =
    Operation { name: "matmul", described: &DESCRIBED, given: &GIVEN, without: &[] };

/// GEMMs as a door describes them. Leading dimensions, strides and alignment of 0 have their defaults: packed, and 256.
#[derive(Clone, Debug, Default)]
pub struct Gemms {
    /// The text of the types.
    pub types: String,
    /// The text of the contiguous directions of A and B; empty for `kk`.
    pub layout: String,
    /// M, N and K.
    pub extents: [u32; 3],
    /// Number of GEMMs, or of groups.
    pub batch: u32,
    /// Elements from one contiguous line to the next, of A, B, C and D.
    pub lds: [u64; 4],
    /// Elements from one GEMM's matrix to the next one's.
    pub strides: [u64; 4],
    /// Bytes of which every address is a multiple.
    pub alignment: u32,
    /// The text of the epilogue.
    pub epilogue: Option<String>,
    /// Whether the bits of a row depend on nothing but the row, B and the epilogue.
    pub reproducible: bool,
    /// How `batch` divides the GEMMs: `falchion_form`.
    pub form: u32,
    /// Rows of each group's buffer, of groups that use a part of theirs.
    pub room: u32,
    /// Leading dimensions of the scales of A, of B, and of groups of weights.
    pub scale_lds: [u64; 3],
}

/// The leading dimension of a matrix.
const fn ld<const I: usize>(c: &'static str) -> Argument<Gemms> {
    Argument::said(c, Kind::Long, |of: &mut Gemms, value| {
        of.lds[I] = value.long();
        Ok(())
    })
}

/// The distance of a matrix from the next one.
const fn stride<const I: usize>(c: &'static str) -> Argument<Gemms> {
    let row = Argument::said(c, Kind::Long, |of: &mut Gemms, value| {
        of.strides[I] = value.long();
        Ok(())
    });
    row.unless(|of| {
        // A batch of one may say how it would go on.
        let one = of.form > 0 || of.batch == 0;
        let several = of.several()[I] && !(of.form == 0 && one);
        (of.form < RECORDS && !several).then_some("there is one such matrix")
    })
}

/// The leading dimension of scales.
const fn scale_ld<const I: usize>(c: &'static str) -> Argument<Gemms> {
    Argument::said(c, Kind::Long, |of: &mut Gemms, value| {
        of.scale_lds[I] = value.long();
        Ok(())
    })
}

/// An extent.
const fn extent<const I: usize>(c: &'static str) -> Argument<Gemms> {
    Argument::said(c, Kind::Whole, |of: &mut Gemms, value| {
        of.extents[I] = value.whole();
        Ok(())
    })
}

/// The form whose GEMMs are in records.
pub(super) const RECORDS: u32 = 4;

static DESCRIBED: Structure<Gemms> = Structure {
    name: "falchion_gemm_desc",
    later: "args_size",
    fields: &[
        Argument::own("size", Kind::Long, "the version of the caller's structure"),
        Argument::said("types", Kind::Text, |of: &mut Gemms, value| {
            of.types = value.text().to_owned();
            Ok(())
        })
        .needed("\"bf16\" say")
        .python(Python::Keyword("types")),
        Argument::said("layout", Kind::Text, |of: &mut Gemms, value| {
            of.layout = value.text().to_owned();
            Ok(())
        }),
        extent::<0>("m"),
        extent::<1>("n"),
        extent::<2>("k"),
        Argument::said("batch", Kind::Whole, |of: &mut Gemms, value| {
            of.batch = value.whole();
            Ok(())
        }),
        Argument::own("spec", Kind::Text, "the kernel, instead of a choice").python(Python::Keyword("spec")),
        ld::<0>("lda"),
        ld::<1>("ldb"),
        ld::<2>("ldc"),
        ld::<3>("ldd"),
        stride::<0>("stride_a"),
        stride::<1>("stride_b"),
        stride::<2>("stride_c"),
        stride::<3>("stride_d"),
        Argument::said("alignment", Kind::Whole, |of: &mut Gemms, value| {
            of.alignment = value.whole();
            Ok(())
        }),
        Argument::own("card", Kind::Whole, "the card to choose for"),
        Argument::own("args_size", Kind::Long, "the version of the caller's structure of arguments"),
        Argument::said("epilogue", Kind::Text, |of: &mut Gemms, value| {
            of.epilogue = Some(value.text().to_owned());
            Ok(())
        })
        .python(Python::Keyword("epilogue")),
        Argument::new(
            "flags",
            Kind::Whole,
            Goes::Switches(&[Switch {
                c: "FALCHION_REPRODUCIBLE",
                bit: 1,
                python: Python::Keyword("reproducible"),
                set: |of: &mut Gemms| of.reproducible = true,
            }]),
        ),
        Argument::said("form", Kind::Whole, |of: &mut Gemms, value| {
            of.form = value.whole();
            Ok(())
        }),
        Argument::said("room", Kind::Whole, |of: &mut Gemms, value| {
            of.room = value.whole();
            Ok(())
        })
        .unless(|of: &Gemms| {
            (of.form != 2 && of.form <= RECORDS).then_some("form is not FALCHION_MASKED_ROWS")
        }),
        Argument::zero("reserved"),
        scale_ld::<0>("ld_scale_a"),
        scale_ld::<1>("ld_scale_b"),
        scale_ld::<2>("ld_group_scales"),
    ],
};

/// What a run is given, and for what.
#[derive(Clone, Debug)]
pub struct ProductRun {
    /// What was described.
    pub asked: Asked,
    /// The arguments of the epilogue's text.
    pub slots: Arc<[Slot]>,
    /// Factor of `A * B`.
    pub alpha: f64,
    /// Factor of C.
    pub beta: f64,
    /// Number of arguments of the epilogue's text.
    inputs: u64,
}

impl ProductRun {
    /// Nothing yet, of what was asked for.
    pub fn new(asked: Asked, slots: Arc<[Slot]>) -> Self {
        let c = MatrixRef { address: 0, ..asked.c };
        Self { asked: Asked { c, ..asked }, slots, alpha: 0.0, beta: 0.0, inputs: 0 }
    }

    fn unused(&self, part: OptionalArgument) -> Option<&'static str> {
        part.unused(&self.asked.request, &self.slots)
    }
}

/// A number that is given in `f32`, and perhaps in `f64` too.
pub(super) fn double(name: &str, number: &mut f64, value: Value<'_>) -> Result<(), Refusal> {
    let (single, double) = (*number as f32, value.real());
    if single != 0.0 && single != double as f32 {
        return Err(Refusal::Invalid(format!(
            "{name} is {single} and {name}_f64 {double}: the same number, or 0 for one of them, was needed"
        )));
    }
    *number = double;
    Ok(())
}

const LEND: &str = "the memory that a launch is lent";
const LIST: &str = "the list of the arguments of the epilogue's text";

static GIVEN: Structure<ProductRun> = Structure {
    name: "falchion_gemm_args",
    later: "scale_a",
    fields: &[
        Argument::memory("a", &["A"])
            .python(Python::Needed("a"))
            .unless(|of: &ProductRun| of.unused(OptionalArgument::Matrices)),
        Argument::memory("b", &["B"])
            .python(Python::Needed("b"))
            .unless(|of: &ProductRun| of.unused(OptionalArgument::Matrices)),
        // It is not read where beta is 0, and in a text it is an argument of that.
        Argument::said("c", Kind::Address, |of: &mut ProductRun, value| {
            of.asked.c.address = value.address();
            Ok(())
        })
        .python(Python::Keyword("c"))
        .unless(|of: &ProductRun| of.unused(OptionalArgument::C)),
        Argument::memory("d", &["D"])
            .python(Python::Keyword("out"))
            .unless(|of: &ProductRun| of.unused(OptionalArgument::Matrices)),
        Argument::said("alpha", Kind::Single, |of: &mut ProductRun, value| {
            of.alpha = value.real();
            Ok(())
        })
        .python(Python::Keyword("alpha")),
        Argument::said("beta", Kind::Single, |of: &mut ProductRun, value| {
            of.beta = value.real();
            Ok(())
        })
        .python(Python::Keyword("beta")),
        Argument::own("workspace", Kind::Address, LEND),
        Argument::own("workspace_bytes", Kind::Long, LEND),
        Argument::memory("scale_a", &[SCALES[0]])
            .python(Python::Keyword("scale_a"))
            .unless(|of: &ProductRun| of.unused(OptionalArgument::Scales(0))),
        Argument::memory("scale_b", &[SCALES[1]])
            .python(Python::Keyword("scale_b"))
            .unless(|of: &ProductRun| of.unused(OptionalArgument::Scales(1))),
        Argument::memory("group_scales", &[FACTORS[0]])
            .unless(|of: &ProductRun| of.unused(OptionalArgument::GroupScales)),
        Argument::memory("group_zeros", &[FACTORS[1]])
            .unless(|of: &ProductRun| of.unused(OptionalArgument::GroupZeros)),
        Argument::memory("metadata", &[METADATA])
            .unless(|of: &ProductRun| of.unused(OptionalArgument::Metadata)),
        Argument::memory("groups", &[GroupedProblem::OFFSETS, GroupedProblem::ROWS, GroupedProblem::RECORDS])
            .python(Python::Keyword("groups"))
            .unless(|of: &ProductRun| of.unused(OptionalArgument::Groups)),
        Argument::own("inputs", Kind::Address, LIST),
        Argument::said("input_count", Kind::Long, |of: &mut ProductRun, value| {
            of.inputs = value.long();
            Ok(())
        })
        .unless(|of: &ProductRun| of.unused(OptionalArgument::Inputs)),
        Argument::own("input_size", Kind::Long, LIST),
        Argument::said("alpha_f64", Kind::Double, |of: &mut ProductRun, value| {
            double("alpha", &mut of.alpha, value)
        }),
        Argument::said("beta_f64", Kind::Double, |of: &mut ProductRun, value| {
            double("beta", &mut of.beta, value)
        }),
    ],
};
