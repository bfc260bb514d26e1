//! The arguments for number formats, block scales and sparse operands.

use collective::{Code, Format};
use cute_rs::atom::Major;
use kernel::{KernelSpec, Types};

use crate::{Failure, catalogue};

/// The formats of the operands and of D.
#[derive(clap::Args, Debug)]
pub(crate) struct TypeArgs {
    /// Number format of A and B: bf16, f16, tf32, f32, f64, e4m3, e5m2, s8 or u8 [default: bf16]. If
    /// --dtype-b has 16 bits, A may also be weights in few bits: a code and the number of elements along K
    /// that share a scale, such as s4g128.
    #[arg(long, value_parser = operand)]
    dtype: Option<String>,
    /// Number format of B, if it differs from A's: another 8-bit format. If A has 16 bits, B may also be
    /// weights in few bits: a code and the number of elements along K that share a scale, such as s4g128, or
    /// u4g64z with zero points.
    #[arg(long, value_parser = operand)]
    dtype_b: Option<String>,
    /// Number format of D [default: that of A and B; bf16 for 8-bit floats, s32 for 8-bit integers, f32 for
    /// tf32].
    #[arg(long, value_parser = Format::ALL.map(Format::name))]
    out_dtype: Option<String>,
    /// Block of A that shares a scale, as rows x elements along K. For 8-bit floats.
    #[arg(long, requires = "scale_b", value_parser = KINDS)]
    scale_a: Option<String>,
    /// Block of B that shares a scale, as columns x elements along K. For 8-bit floats.
    #[arg(long, requires = "scale_a", value_parser = KINDS)]
    scale_b: Option<String>,
    /// Operand that is 2:4 sparse along K, a or b: of four neighbours two are stored, of tf32 one of two.
    #[arg(long, value_name = "OPERAND", value_parser = SIDES)]
    sparse: Option<String>,
}

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

/// The blocks that can have a scale.
const KINDS: [&str; 2] = ["1x128", "128x128"];

/// Parses the name of an operand format, or of a code and its group.
fn operand(text: &str) -> Result<String, String> {
    let names = operands();
    let few_bits = || Types::named(&format!("bf16-{text}")).is_some_and(|types| types.has_weights());
    if names.contains(&text) || few_bits() {
        return Ok(text.to_owned());
    }
    let codes = Code::ALL.map(Code::name).join(", ");
    Err(format!(
        "one of {}, or one of {codes} with its group size along K, as s4g128, was needed",
        names.join(", ")
    ))
}

/// Fails if no sparse instruction multiplies the formats that `--dtype` and `--dtype-b` name.
pub(crate) fn can_be_sparse(side: &str, names: [Option<&str>; 2]) -> Result<(), Failure> {
    let formats: Vec<&str> = Format::operands().map(Format::name).collect();
    for (flag, name) in ["--dtype", "--dtype-b"].into_iter().zip(names) {
        let Some(name) = name.filter(|name| !formats.contains(name)) else { continue };
        let instead = match Format::named(name) {
            Some(_) => format!("one of {} was needed", formats.join(", ")),
            None => {
                "weights in few bits are multiplied with a dense operand; leave out one of both".to_owned()
            }
        };
        return Err(Failure::usage(format!("--sparse is {side}, and {flag} is {name}: {instead}")));
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
    let refused = |why: String| Err(Failure::usage(format!("--sparse is {side}, and {why}")));
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

/// The types of a GEMM: A's format, the formats of B and D if they are named, and the rows of the scaled
/// blocks (0 for none).
pub(crate) fn named(a: Format, b: Option<&str>, d: Option<&str>, scaled: [u32; 2]) -> Result<Types, Failure> {
    let types = Types::of(a).scaled(scaled);
    let types = b.and_then(Format::named).map_or(types, |b| types.with_b(b));
    let types = d.and_then(Format::named).map_or(types, |d| types.stored(d));
    catalogue::possible(types)?;
    Ok(types)
}

impl TypeArgs {
    /// The requested types; `None` if no argument is given.
    pub(crate) fn given(&self) -> Result<Option<Types>, Failure> {
        let Self { dtype, dtype_b, out_dtype, scale_a, scale_b, sparse } = self;
        let all = [dtype, dtype_b, out_dtype, scale_a, scale_b, sparse];
        if all.into_iter().all(Option::is_none) { Ok(None) } else { self.types().map(Some) }
    }

    /// The requested types, with defaults for what is not given.
    pub(crate) fn types(&self) -> Result<Types, Failure> {
        let rows = |kind: &Option<String>| match kind.as_deref() {
            None => 0,
            Some("1x128") => 1,
            Some(_) => 128,
        };
        let (a, b) = (self.dtype.as_deref().unwrap_or("bf16"), self.dtype_b.as_deref());
        let scaled = [rows(&self.scale_a), rows(&self.scale_b)];
        let weights = Types::named(&[a, b.unwrap_or(a)].join("-")).filter(Types::has_weights);
        self.is_possible(a)?;
        if let Some(types) = weights {
            let types = self.out_dtype.as_deref().and_then(Format::named).map_or(types, |d| types.stored(d));
            catalogue::possible(types.scaled(scaled))?;
            return Ok(types);
        }
        let few_bits = [Some(a), b].into_iter().flatten().find(|name| Format::named(name).is_none());
        if let Some(name) = few_bits {
            return Err(Failure::usage(format!(
                "{name} is a code of few bits, which needs an operand of 16 bits: --dtype or --dtype-b of bf16 or f16 was needed"
            )));
        }
        let types = named(Format::named(a).unwrap_or(Format::Bf16), b, self.out_dtype.as_deref(), scaled)?;
        let types = types.sparse(sparse(self.sparse.as_deref()));
        catalogue::possible(types)?;
        Ok(types)
    }

    /// Fails where a sparse operand goes with nothing else that is asked for.
    fn is_possible(&self, dtype: &str) -> Result<(), Failure> {
        let Some(side) = &self.sparse else { return Ok(()) };
        if let Some(scale) = &self.scale_a {
            return Err(Failure::usage(format!(
                "--sparse is {side}, and --scale-a is {scale}: blocks with scales are multiplied dense; leave out --sparse, or --scale-a and --scale-b"
            )));
        }
        can_be_sparse(side, [Some(dtype), self.dtype_b.as_deref()])
    }
}
