//! Tensors of a file, by name and in the format that a layer needs.

use std::borrow::Cow;

use falchion::collective::Format;

use crate::refusal::Refusal;

/// A tensor of a file.
#[derive(Clone, Debug)]
pub struct Stored<'a> {
    /// Its whole name, for messages.
    pub name: String,
    /// Its extents.
    pub shape: Vec<usize>,
    /// Its elements, row by row.
    pub bytes: Cow<'a, [u8]>,
}

impl Stored<'_> {
    /// The tensor, if it has these extents.
    ///
    /// # Errors
    /// It has others.
    pub fn of(self, shape: &[usize]) -> Result<Self, Refusal> {
        if self.shape == shape { Ok(self) } else { Err(self.wrong(&format!("{shape:?}"))) }
    }

    /// That the tensor's extents do not fit.
    pub(crate) fn wrong(&self, needed: &str) -> Refusal {
        Refusal::Invalid(format!("{} has shape {:?}, {needed} was needed", self.name, self.shape))
    }
}

/// Where a layer's tensors are: a file, or tensors that were read from one.
pub trait Tensors {
    /// The whole name of a layer's tensor.
    fn name(&self, name: &str) -> String;

    /// Whether there is a tensor.
    fn has(&self, name: &str) -> bool;

    /// A tensor in a format: `s32` for whole numbers of 32 bits, `u8` for bytes. A float of 16 bits or more is rounded to another; other
    /// formats are not converted.
    ///
    /// # Errors
    /// It is missing, or has another format.
    fn read(&self, name: &str, format: Format) -> Result<Stored<'_>, Refusal>;
}

/// That there is no such tensor.
pub fn missing(name: &str, needed: Format) -> Refusal {
    Refusal::Invalid(format!("there is no tensor {name}, one of {needed} was needed"))
}

/// A layer's tensors in a safetensors file: those whose names begin with a prefix, and a dot or an underscore after it.
#[cfg(feature = "safetensors")]
#[derive(Clone, Copy, Debug)]
pub struct Prefixed<'a> {
    /// The file.
    pub file: &'a safetensors::SafeTensors<'a>,
    /// What the names begin with; nothing for a file of one layer.
    pub prefix: &'a str,
}

#[cfg(feature = "safetensors")]
mod safe {
    use safetensors::Dtype;
    use safetensors::tensor::TensorView;

    use super::{Cow, Format, Prefixed, Refusal, Stored, Tensors, missing};

    impl Tensors for Prefixed<'_> {
        fn name(&self, name: &str) -> String {
            let all = if self.prefix.is_empty() {
                [name.to_owned(), name.to_owned()]
            } else {
                ['.', '_'].map(|joint| format!("{}{joint}{name}", self.prefix.trim_end_matches('.')))
            };
            let [first, second] = all;
            if self.file.tensor(&first).is_err() && self.file.tensor(&second).is_ok() {
                second
            } else {
                first
            }
        }

        fn has(&self, name: &str) -> bool {
            self.file.tensor(&self.name(name)).is_ok()
        }

        fn read(&self, name: &str, format: Format) -> Result<Stored<'_>, Refusal> {
            let name = self.name(name);
            let Ok(view) = self.file.tensor(&name) else { return Err(missing(&name, format)) };
            let bytes = elements(&name, &view, format)?;
            Ok(Stored { shape: view.shape().to_vec(), name, bytes })
        }
    }

    /// The elements of a tensor in a format.
    fn elements<'a>(name: &str, view: &TensorView<'a>, format: Format) -> Result<Cow<'a, [u8]>, Refusal> {
        let of = match view.dtype() {
            Dtype::F32 => Some(Format::F32),
            Dtype::BF16 => Some(Format::Bf16),
            Dtype::F16 => Some(Format::F16),
            Dtype::F8_E4M3 => Some(Format::E4m3),
            Dtype::I32 | Dtype::U32 => Some(Format::S32),
            Dtype::U8 | Dtype::F8_E8M0 => Some(Format::U8),
            _ => None,
        };
        let wide = |of: Format| of.is_float() && of.bits() >= 16;
        match of {
            Some(of) if of == format => Ok(Cow::Borrowed(view.data())),
            Some(of) if wide(of) && wide(format) => rounded(name, view.data(), of, format).map(Cow::Owned),
            _ => Err(Refusal::Invalid(format!(
                "{name} has elements of {:?}, {format} was needed",
                view.dtype()
            ))),
        }
    }

    /// Numbers in another format, which must hold them.
    fn rounded(name: &str, bytes: &[u8], from: Format, to: Format) -> Result<Vec<u8>, Refusal> {
        let [of, size] = [from, to].map(|format| format.bytes() as usize);
        let mut all = Vec::with_capacity(bytes.len() / of * size);
        for element in bytes.chunks_exact(of) {
            let mut word = [0; 8];
            word[..of].copy_from_slice(element);
            let value = from.decode(u64::from_le_bytes(word));
            let code = to.encode(value);
            if value.is_finite() && !to.decode(code).is_finite() {
                let words = format!("{name} has an element {value}, a number that {to} holds was needed");
                return Err(Refusal::Invalid(words));
            }
            all.extend_from_slice(&code.to_le_bytes()[..size]);
        }
        Ok(all)
    }
}
