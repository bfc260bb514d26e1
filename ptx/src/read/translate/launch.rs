//! The shape of a launch, and the kernel's parameters.

use super::super::error::{At, Read};
use super::super::launch::Launch;
use super::super::syntax::{Directive, Function as Kernel, Variable};
use super::Translator;
use super::form::scalar;
use super::layout::{alignment, bytes};
use super::names::Meaning;
use crate::name::Name;
use crate::param::{Param, ParamKind};
use crate::types::Type;

/// The shape of a launch.
#[derive(Clone, Copy, Debug)]
pub(super) struct Shape {
    pub(super) block: [u32; 3],
    pub(super) shared_bytes: u32,
    pub(super) cluster: [u32; 3],
    /// CTAs whose registers an SM has.
    pub(super) resident: u32,
    /// Whether the text or the launch states clusters, of one CTA or more.
    pub(super) in_clusters: bool,
}

/// The shape of a launch of a kernel: what its text requires, and what the launch says.
pub(super) fn shape(kernel: &Kernel<'_>, launch: &Launch) -> Read<Shape> {
    let stated = |name: &str| kernel.directives.iter().find(|directive| directive.name.text == name);
    for directive in &kernel.directives {
        known(directive)?;
    }
    let at = kernel.name.at;
    let required = stated("reqntid").map(extents).transpose()?;
    let most = stated("maxntid").map(extents).transpose()?;
    let block = match (required, launch.threads, most) {
        (Some(required), Some(given), _) if required != given => {
            return at.wrong(format!(
                "a launch of {given:?} threads: the text requires {required:?} (`.reqntid`)"
            ));
        }
        (Some(required), ..) => required,
        (None, Some(given), Some(most)) if product(given) > product(most) => {
            return at.wrong(format!("a launch of {given:?} threads: the text allows {most:?} (`.maxntid`)"));
        }
        (None, Some(given), _) => given,
        (None, None, Some(most)) => most,
        (None, None, None) => {
            return at
                .wrong(format!("`{}` does not say its number of threads: a launch must", kernel.name.text));
        }
    };
    let required = stated("reqnctapercluster").map(extents).transpose()?;
    let cluster = match (required, launch.cluster) {
        (Some(required), Some(given)) if required != given => {
            return at.wrong(format!(
                "a launch in clusters of {given:?}: the text requires {required:?} (`.reqnctapercluster`)"
            ));
        }
        (Some(required), _) => required,
        (None, given) => given.unwrap_or([1; 3]),
    };
    let in_clusters = required.is_some() || launch.cluster.is_some() || stated("explicitcluster").is_some();
    let [resident, ..] = stated("minnctapersm").map_or(Ok([1; 3]), extents)?;
    Ok(Shape { block, shared_bytes: launch.shared_bytes, cluster, resident, in_clusters })
}

/// Refuses directives that are not known. What a compiler is told about registers and occupancy says nothing about what is computed.
fn known(directive: &Directive<'_>) -> Read<()> {
    match directive.name.text {
        "reqntid" | "maxntid" | "minnctapersm" | "maxnctapersm" | "maxnreg" | "reqnctapercluster"
        | "explicitcluster" | "maxclusterrank" | "noreturn" | "unique" | "blocksareclusters" => Ok(()),
        other => directive.name.at.wrong(format!("the directive `.{other}` is not read")),
    }
}

fn product(extents: [u32; 3]) -> u64 {
    extents.iter().map(|&extent| u64::from(extent)).product()
}

/// Up to three numbers; those that are left out are 1.
fn extents(directive: &Directive<'_>) -> Read<[u32; 3]> {
    let mut extents = [1; 3];
    if !(1..=3).contains(&directive.values.len()) {
        return directive.name.at.wrong(format!("`.{}` needs one to three numbers", directive.name.text));
    }
    for (extent, &value) in extents.iter_mut().zip(&directive.values) {
        match u32::try_from(value) {
            Ok(value) if (1..=1 << 16).contains(&value) => *extent = value,
            _ => {
                return directive
                    .name
                    .at
                    .wrong(format!("`.{} {value}` is not in 1..=65536", directive.name.text));
            }
        }
    }
    Ok(extents)
}

/// A name of which a program has only letters, digits and `_`.
pub(super) fn identifier(name: &str) -> String {
    let plain: String = name.chars().map(|c| if c.is_ascii_alphanumeric() { c } else { '_' }).collect();
    if plain.starts_with(|c: char| c.is_ascii_digit()) { format!("_{plain}") } else { plain }
}

impl<'t> Translator<'_, 't> {
    /// Declares the kernel's parameters, and the variables of the module that it uses.
    pub(super) fn declare(&mut self, kernel: &Kernel<'t>) -> Read<()> {
        for variable in &kernel.params {
            let (kind, number) = (kind(variable)?, !variable.pointer);
            let name = self.param_name(variable.name.text);
            self.params.push(Param { name, kind, number });
        }
        for (_, variable) in &self.layout.globals {
            let name = self.param_name(&variable.name);
            self.params.push(Param { name, kind: ParamKind::Scalar(Type::U64), number: false });
        }
        self.names.open();
        self.declare_variables()?;
        // A parameter hides a variable of its name.
        self.names.open();
        for (index, variable) in (0..).zip(&kernel.params) {
            self.names.define(variable.name, Meaning::Param(index))?;
        }
        Ok(())
    }

    fn declare_variables(&mut self) -> Read<()> {
        use super::super::syntax::Space;
        for variable in &self.text.variables {
            let meaning = match variable.space {
                Space::Shared => Meaning::Shared(self.layout.offset(variable)),
                Space::Local => Meaning::Local(self.layout.offset(variable)),
                Space::Global | Space::Constant => match self.global(variable.name.at) {
                    Some(param) => Meaning::Global(param),
                    // It is not used.
                    None => continue,
                },
                Space::Param | Space::Register => continue,
            };
            self.names.define(variable.name, meaning)?;
        }
        Ok(())
    }

    /// The parameter that is the address of a variable in global memory, given the place of its declaration.
    pub(super) fn global(&self, at: At) -> Option<u32> {
        let index = self.layout.globals.iter().position(|(declared, _)| *declared == at)?;
        u32::try_from(self.params.len() - self.layout.globals.len() + index).ok()
    }

    fn param_name(&self, name: &str) -> Name {
        let mut plain = identifier(name);
        while self.params.iter().any(|param| param.name == *plain) {
            plain.push('_');
        }
        plain.into()
    }
}

fn kind(variable: &Variable<'_>) -> Read<ParamKind> {
    let (bytes, alignment) = (bytes(variable)?, alignment(variable)?);
    let [Ok(bytes), Ok(alignment)] = [bytes, alignment].map(u32::try_from) else {
        return variable.name.at.wrong(format!("the parameter `{}` has {bytes} B", variable.name.text));
    };
    if bytes > 1 << 15 {
        return variable.name.at.wrong(format!("the parameter `{}` has {bytes} B", variable.name.text));
    }
    Ok(match scalar(variable.ty.text) {
        Some(ty) if variable.extents.is_empty() && variable.vector == 1 => ParamKind::Scalar(ty),
        _ if (bytes, alignment) == (128, 64) => ParamKind::TensorMap,
        _ => ParamKind::Bytes { bytes, alignment },
    })
}
