//! An array of a formula of attention: its name, and where it is.

use falchion::attention::ArrayRef;

use super::{Argument, Kind, Structure};

/// An array of a formula as it is given.
#[derive(Clone, Debug, Default)]
pub struct NamedArray {
    /// Its name.
    pub name: String,
    /// Where it is, and its extents and strides: those after its last dimension are 0.
    pub array: ArrayRef,
}

const fn dimension<const I: usize>(c: &'static str) -> Argument<NamedArray> {
    Argument::said(c, Kind::Whole, |of: &mut NamedArray, value| {
        of.array.shape[I] = value.whole();
        Ok(())
    })
}

const fn distance<const I: usize>(c: &'static str) -> Argument<NamedArray> {
    Argument::said(c, Kind::Long, |of: &mut NamedArray, value| {
        of.array.strides[I] = value.long();
        Ok(())
    })
}

/// An array of a formula.
pub static ARRAY: &Structure<NamedArray> = &Structure {
    name: "falchion_array",
    later: "",
    fields: &[
        Argument::said("name", Kind::Text, |of: &mut NamedArray, value| {
            value.text().clone_into(&mut of.name);
            Ok(())
        }),
        Argument::said("address", Kind::Address, |of: &mut NamedArray, value| {
            of.array.address = value.address();
            Ok(())
        }),
        dimension::<0>("shape[0]"),
        dimension::<1>("shape[1]"),
        dimension::<2>("shape[2]"),
        dimension::<3>("shape[3]"),
        distance::<0>("strides[0]"),
        distance::<1>("strides[1]"),
        distance::<2>("strides[2]"),
        distance::<3>("strides[3]"),
    ],
};

impl NamedArray {
    /// An array that says nothing yet.
    pub fn new() -> Self {
        let array = ArrayRef { shape: vec![0; 4], strides: vec![0; 4], ..ArrayRef::default() };
        Self { array, ..Self::default() }
    }

    /// Its name, and the array with the dimensions that it has.
    pub fn given(mut self) -> (String, ArrayRef) {
        let dimensions = self.array.shape.iter().rposition(|&size| size > 0).map_or(0, |last| last + 1);
        self.array.shape.truncate(dimensions);
        self.array.strides.truncate(dimensions);
        (self.name, self.array)
    }
}
