//! The arguments of an epilogue's text.

use std::sync::Arc;

use falchion::collective::tree::{DropoutArgument, Scratch};
use falchion::collective::{Input, MatrixRef};

use super::gemm::{ProductRun, double};
use super::gemms::Asked;
use super::{Argument, Kind, Structure};
use crate::refusal::Refusal;
use crate::slots::{Kind as SlotKind, Slot};

/// An argument of an epilogue's text as it is given.
#[derive(Clone, Debug)]
pub struct NamedInput {
    slots: Arc<[Slot]>,
    /// Which one it is.
    at: Option<usize>,
    address: u64,
    ld: u64,
    stride: u64,
    value: f64,
    mask: [u64; 2],
}

/// A field of an argument that only some arguments have.
const fn only(
    row: Argument<NamedInput>,
    unused: fn(&NamedInput) -> Option<&'static str>,
) -> Argument<NamedInput> {
    row.unless(unused)
}

const fn mask<const I: usize>(c: &'static str) -> Argument<NamedInput> {
    let row = Argument::said(c, Kind::Long, |of: &mut NamedInput, value| {
        of.mask[I] = value.long();
        Ok(())
    });
    only(row, |of| (of.kind() != SlotKind::Mask).then_some("it is no mask"))
}

/// An argument of an epilogue's text.
pub static INPUT: &Structure<NamedInput> = &Structure {
    name: "falchion_input",
    later: "value_f64",
    fields: &[
        Argument::said("name", Kind::Text, |of: &mut NamedInput, value| of.named(value.text())),
        Argument::said("address", Kind::Address, |of: &mut NamedInput, value| {
            of.address = value.address();
            Ok(())
        }),
        only(
            Argument::said("ld", Kind::Long, |of: &mut NamedInput, value| {
                of.ld = value.long();
                Ok(())
            }),
            |of| {
                let rows = matches!(of.kind(), SlotKind::Memory { matrix: true, .. });
                (!rows).then_some("the epilogue has no matrix of this name")
            },
        ),
        only(
            Argument::said("stride", Kind::Long, |of: &mut NamedInput, value| {
                of.stride = value.long();
                Ok(())
            }),
            |of| (!of.each()).then_some("its index has no l"),
        ),
        only(
            Argument::said("value", Kind::Single, |of: &mut NamedInput, value| {
                of.value = value.real();
                Ok(())
            }),
            |of| of.is_memory().then_some("it is memory"),
        ),
        Argument::zero("reserved"),
        mask::<0>("seed"),
        mask::<1>("offset"),
        only(
            Argument::said("value_f64", Kind::Double, |of: &mut NamedInput, value| {
                double("value", &mut of.value, value)
            }),
            |of| of.is_memory().then_some("it is memory"),
        ),
    ],
};

impl NamedInput {
    /// Nothing yet, for a text with these arguments.
    pub fn new(slots: Arc<[Slot]>) -> Self {
        Self { slots, at: None, address: 0, ld: 0, stride: 0, value: 0.0, mask: [0; 2] }
    }

    fn named(&mut self, name: &str) -> Result<(), Refusal> {
        let own = ["alpha", "beta", "c"].contains(&name);
        self.at = self.slots.iter().position(|slot| slot.name == name);
        match self.at {
            None => Err(Refusal::Invalid(format!(
                "input `{name}` is no argument of the epilogue: they are {}",
                names(&self.slots)
            ))),
            Some(_) if own => {
                Err(Refusal::Invalid(format!("input `{name}`: it is a field of falchion_gemm_args")))
            }
            Some(_) => Ok(()),
        }
    }

    fn kind(&self) -> SlotKind {
        self.at.map_or(SlotKind::Scalar, |at| self.slots[at].kind)
    }

    /// Whether each GEMM has its own.
    fn each(&self) -> bool {
        matches!(self.kind(), SlotKind::Memory { each: true, .. })
    }

    fn is_memory(&self) -> bool {
        matches!(self.kind(), SlotKind::Memory { .. } | SlotKind::Scratch(_))
    }

    /// Which argument of the text it is, and its value.
    ///
    /// # Errors
    /// It has no name; an address that is missing, or not needed.
    pub fn input(&self) -> Result<(usize, Input), Refusal> {
        let &Self { address, ld, stride, value, mask: [seed, offset], .. } = self;
        let Some(at) = self.at else {
            return Err(Refusal::Invalid(format!(
                "input `NULL` is no argument of the epilogue: they are {}",
                names(&self.slots)
            )));
        };
        let Slot { name, kind } = self.slots[at];
        let memory = self.is_memory();
        if memory == (address == 0) {
            let needed = if memory { "an address" } else { "value, and no address," };
            return Err(Refusal::Invalid(format!(
                "input `{name}` has address {address:#x}, {needed} was needed"
            )));
        }
        let input = match kind {
            SlotKind::Scalar => Input::Scalar(value),
            SlotKind::Mask => Input::Dropout(DropoutArgument { probability: value as f32, seed, offset }),
            SlotKind::Scratch(bytes) => Input::Scratch(Scratch { address, bytes }),
            SlotKind::Memory { format, extents: [rows, columns], matrix, each, .. } => {
                let ld = if ld == 0 { columns.into() } else { ld };
                let packed = u64::from(rows).saturating_mul(ld).saturating_mul(format.bytes().into());
                let stride = if stride == 0 { packed } else { stride };
                match (each, matrix) {
                    (true, _) => Input::Each { address, ld, stride },
                    (false, true) => Input::matrix(address, ld),
                    (false, false) => Input::Address(address),
                }
            }
        };
        Ok((at, input))
    }
}

/// The names of arguments, for errors.
fn names(slots: &[Slot]) -> String {
    let names: Vec<&str> = slots.iter().map(|slot| slot.name).collect();
    if names.is_empty() { "none".to_owned() } else { names.join(", ") }
}

impl ProductRun {
    /// The arguments of the epilogue's text: those that were given by name, alpha, beta and C.
    ///
    /// # Errors
    /// One that is given twice, or not; a factor that the text does not have.
    pub fn inputs(&self, given: &[(usize, Input)]) -> Result<Vec<Option<Input>>, Refusal> {
        let Self { slots, alpha, beta, asked: Asked { c, .. }, .. } = self;
        let mut all = vec![None; slots.len()];
        for &(at, input) in given {
            if all[at].replace(input).is_some() {
                let name = slots[at].name;
                return Err(Refusal::Invalid(format!("input `{name}` is given twice, once was needed")));
            }
        }
        let factor = slots.iter().any(|slot| slot.name == "beta");
        for (slot, input) in slots.iter().zip(&mut all) {
            match slot.name {
                "alpha" => *input = Some(Input::Scalar(*alpha)),
                "beta" => *input = Some(Input::Scalar(*beta)),
                "c" if factor && *beta == 0.0 => {}
                "c" if c.address == 0 => {
                    let words = "c is NULL, an address was needed: the epilogue adds it";
                    return Err(Refusal::Invalid(words.to_owned()));
                }
                "c" => *input = Some(of_c(*slot, *c)),
                name if input.is_none() => {
                    return Err(Refusal::Invalid(format!(
                        "input `{name}` is not given: the epilogue's are {}",
                        names(slots)
                    )));
                }
                _ => {}
            }
        }
        for (name, value) in [("alpha", *alpha), ("beta", *beta)] {
            let unused = value != 0.0 && !(name == "alpha" && value == 1.0);
            if unused && !slots.iter().any(|slot| slot.name == name) {
                return Err(Refusal::Invalid(format!(
                    "{name} is {value}, and the epilogue does not use it: leave it out"
                )));
            }
        }
        Ok(all)
    }
}

/// C as an argument of the epilogue's text.
fn of_c(slot: Slot, MatrixRef { address, ld, stride }: MatrixRef) -> Input {
    match slot.kind {
        SlotKind::Memory { each: true, format, .. } => {
            Input::Each { address, ld, stride: stride.saturating_mul(format.bytes().into()) }
        }
        _ => Input::matrix(address, ld),
    }
}
