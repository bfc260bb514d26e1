//! The options for number formats, block scales and sparse operands.

use collective::{Code, Format, WeightsSpec};
use cute_rs::atom::Major;
use kernel::{KernelSpec, Types};

use crate::cli::options::Given;
use crate::cli::packed::Packing;
use crate::cli::weights::Coded;
use crate::cli::{Failure, catalogue};

/// Operands that can be sparse.
pub(crate) const SIDES: [&str; 2] = ["a", "b"];

/// Which operand is sparse.
pub(crate) fn sparse(side: Option<&str>) -> [bool; 2] {
    SIDES.map(|name| side == Some(name))
}

/// The names of the formats that an operand can have.
pub(crate) fn operands() -> Vec<&'static str> {
    KernelSpec::operands().map(Format::name).collect()
}

/// The blocks that can have a scale: rows, or columns, by elements along K.
pub(crate) const BLOCKS: [&str; 2] = ["1x128", "128x128"];

/// Rows of a block's name; 0 without one.
fn block_rows(name: Option<&str>) -> u32 {
    name.map_or(0, |name| if name == BLOCKS[0] { 1 } else { 128 })
}

/// Parses the name of an operand's format, or of a code and its group. Returns the library's own name.
pub(crate) fn operand(text: &str) -> Result<String, String> {
    let format = Format::named(text).map(Format::name).filter(|name| operands().contains(name));
    if let Some(name) = format {
        return Ok(name.to_owned());
    }
    if let Some(coded) = Coded::named(text) {
        return Ok(coded.to_string());
    }
    let codes = Code::ALL.map(Code::name).join(", ");
    let all = || {
        format!(
            "one of {}, or quantised weights was needed: one of {codes}, with g32, g64 or g128 for groups that share a \
             scale and z for zero points, as s4g128",
            operands().join(", ")
        )
    };
    Err(Format::ambiguous(text).map_or_else(all, |names| format!("{names} was needed")))
}

/// The formats that D can have.
pub(crate) fn outputs() -> Vec<&'static str> {
    let can = |format: &Format| {
        let stored = format.is_output(false) || format.is_output(true);
        stored || KernelSpec::operands().any(|operand| operand.output() == *format)
    };
    Format::ALL.into_iter().filter(can).map(Format::name).collect()
}

/// Parses the name of D's format.
pub(crate) fn output(text: &str) -> Result<Format, String> {
    let format = Format::named(text).filter(|format| outputs().contains(&format.name()));
    let all = || format!("one of {}", outputs().join(", "));
    let needed = || Format::ambiguous(text).map_or_else(all, str::to_owned);
    format.ok_or_else(|| format!("{} was needed", needed()))
}

/// Parses the format of B, which may also be that of a file of another tool.
pub(crate) fn operand_b(text: &str) -> Result<String, String> {
    if Packing::named(text).is_some() { Ok(text.to_owned()) } else { operand(text) }
}

/// Fails if no sparse instruction multiplies the named formats.
fn can_be_sparse(side: &str, names: [(&str, &str); 2], quantised: bool) -> Result<(), Failure> {
    let formats: Vec<&str> = Format::operands().map(Format::name).collect();
    let refused = |flag: &str, name: &str, instead: &str| {
        Err(usage!("--sparse is {side}, and {flag} is {name}: {instead}"))
    };
    for (flag, name) in names {
        // Beside 16 bits, 8-bit floats and integers are codes too.
        let code = quantised && Format::named(name).is_none_or(|format| format.bits() != 16);
        if code {
            return refused(
                flag,
                name,
                "quantised weights are multiplied with a dense operand; leave out one of both",
            );
        }
        if !formats.contains(&name) {
            return refused(flag, name, &format!("one of {} was needed", formats.join(", ")));
        }
    }
    Ok(())
}

/// The sparse operand, as `--sparse` names it.
fn side(types: Types) -> Option<&'static str> {
    SIDES.into_iter().zip(types.sparse).find_map(|(name, sparse)| sparse.then_some(name))
}

/// Fails if the sparse operand is not K-major, or if it is the A of an MoE grouped GEMM.
pub(crate) fn sparse_as_it_lies(types: Types, layout: &str, groups: bool) -> Result<(), Failure> {
    let Some(side) = side(types) else { return Ok(()) };
    let refused = |why: String| Err(usage!("--sparse is {side}, and {why}"));
    if catalogue::majors(layout)[usize::from(side == "b")] != Major::K {
        return refused(format!(
            "--layout is {layout}: a sparse operand is contiguous along K, --layout {} or kk was needed",
            if side == "a" { "kn" } else { "mk" }
        ));
    }
    if groups && side == "a" {
        return refused(
            "--rows are groups of rows of A: the weights of each group can be sparse, --sparse b was needed"
                .to_owned(),
        );
    }
    Ok(())
}

/// The types of the options, and the directions in which kernels multiply them as they lie. `groups` says that the rows of
/// A are those of groups.
pub(crate) fn laid(given: &Given, groups: bool) -> Result<(Types, String), Failure> {
    let types = TypeArgs::read(given).types()?;
    let layout = given.layout().unwrap_or_else(|| "kk".to_owned());
    catalogue::multiplied_as_they_lie(types, &layout)?;
    sparse_as_it_lies(types, &layout, groups)?;
    Ok((types, layout))
}

/// What the options say about formats.
#[derive(Clone, Debug)]
pub(crate) struct TypeArgs<'g> {
    given: &'g Given,
    dtype: Option<String>,
    dtype_b: Option<String>,
    /// Rows of blocks that share a scale.
    scaled: [u32; 2],
    sparse: Option<String>,
}

impl<'g> TypeArgs<'g> {
    /// Takes the options, but for --out-dtype, which is taken where D's format is its.
    pub(crate) fn read(given: &'g Given) -> Self {
        let block = |name| block_rows(given.get::<String>(name).as_deref());
        let [dtype, dtype_b] = given.formats();
        Self {
            given,
            dtype,
            dtype_b,
            scaled: ["scale-block-a", "scale-block-b"].map(block),
            sparse: given.get("sparse"),
        }
    }

    /// The names of A's and B's formats. A layer of GPTQ or AWQ has 16-bit floats for scales, so A has `f16` then.
    fn names(&self) -> [&str; 2] {
        let usual = if self.packing().is_some() { "f16" } else { Format::Bf16.name() };
        let a = self.dtype.as_deref().unwrap_or(usual);
        [a, self.dtype_b.as_deref().unwrap_or(a)]
    }

    /// The kind of quantized file that B is in.
    pub(crate) fn packing(&self) -> Option<Packing> {
        self.dtype_b.as_deref().and_then(Packing::named)
    }

    /// The quantised operand, if there is one: whether it is B, its code, and the 16-bit format that is multiplied.
    ///
    /// # Errors
    /// Neither operand has 16 bits.
    pub(crate) fn weights(&self) -> Result<Option<(bool, Coded, Format)>, Failure> {
        let [a, b] = self.names();
        let wide = |name| Format::named(name).filter(|format| format.bits() == 16 && format.is_float());
        if self.packing().is_some() {
            let coded = Coded { code: Code::U4, group: None, zeros: true };
            return match wide(a) {
                Some(wide) => Ok(Some((true, coded, wide))),
                None => Err(usage!("--dtype is {a}, bf16 or f16 was needed for --dtype-b gptq and awq")),
            };
        }
        if let (Some(coded), Some(wide)) = (Coded::named(b), wide(a)) {
            return Ok(Some((true, coded, wide)));
        }
        if let (Some(coded), Some(wide)) = (Coded::named(a), wide(b)) {
            return Ok(Some((false, coded, wide)));
        }
        match [a, b].into_iter().find(|name| Format::named(name).is_none()) {
            None => Ok(None),
            Some(name) => Err(usage!(
                "{name} is a code of quantised weights, which are multiplied with 16 bits: --dtype or --dtype-b of bf16 or \
                 f16 was needed"
            )),
        }
    }

    /// The requested types.
    ///
    /// # Errors
    /// No kernel multiplies or stores such formats.
    pub(crate) fn types(&self) -> Result<Types, Failure> {
        if let Some(packing) = self.packing() {
            refuse!(
                "--dtype-b {} reads a layer of a file, with `falchion gemm --a FILE --b FILE.safetensors:LAYER`: one of \
                 u4g32, u4g64 and u4g128, with z, was needed here",
                packing.name()
            );
        }
        let spec = |(_, coded, _): (_, Coded, _)| coded.spec();
        self.with(self.weights()?.map(spec), self.scaled)
    }

    /// The requested types with scales of blocks of `scaled` rows, and with `weights` in place of the quantised
    /// operand's.
    ///
    /// # Errors
    /// No kernel multiplies or stores such formats.
    pub(crate) fn with(&self, weights: Option<WeightsSpec>, scaled: [u32; 2]) -> Result<Types, Failure> {
        let ([a, b], quantised) = (self.names(), self.weights()?);
        if let Some(side) = &self.sparse {
            can_be_sparse(side, [("--dtype", a), ("--dtype-b", b)], quantised.is_some())?;
        }
        let types = match quantised {
            Some((is_b, _, wide)) => {
                let of = if is_b { [None, weights] } else { [weights, None] };
                Types::of(wide).weights(of)
            }
            None => {
                let format = |name| Format::named(name).unwrap_or(Format::Bf16);
                Types::of(format(a)).with_b(format(b))
            }
        };
        let types = self.out().map_or(types, |d| types.stored(d)).scaled(scaled);
        let types = types.sparse(sparse(self.sparse.as_deref()));
        catalogue::possible(types)?;
        Ok(types)
    }

    /// D's format, where --out-dtype says it.
    pub(crate) fn out(&self) -> Option<Format> {
        self.given.get("out-dtype")
    }

    /// Rows of blocks that share a scale, as the options say; 0 without.
    pub(crate) fn scaled(&self) -> [u32; 2] {
        self.scaled
    }

    /// A's format as it is multiplied.
    pub(crate) fn multiplied(&self) -> Result<Format, Failure> {
        let [a, _] = self.names();
        Ok(match self.weights()? {
            Some((.., wide)) => wide,
            None => Format::named(a).unwrap_or(Format::Bf16),
        })
    }
}
