//! How a kernel comes to the card: as a binary from the folder of compiled kernels, or compiled.

use std::sync::{Arc, OnceLock};

use super::context::Context;
use super::jit;
use super::module::Module;
use super::sys::RawFunction;
use crate::disk::{Cache, CacheError, Compiled, Digest, Key, Kind};
use crate::error::EngineError;
use crate::program::Program;

/// Where the binary of a kernel came from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Origin {
    /// The driver compiled its text.
    Compiled,
    /// The folder of compiled kernels ([`disk`](crate::disk)).
    Disk,
    /// The caller had it ([`Kernel::load_ahead`](super::Kernel::load_ahead)).
    Ahead,
}

/// A program on the card.
pub(super) struct Image {
    pub(super) module: Module,
    pub(super) function: RawFunction,
    pub(super) origin: Origin,
    /// What went wrong on the way and did not matter to the kernel.
    pub(super) warnings: Vec<CacheError>,
}

/// The folder of this process, as its environment says at the first use.
///
/// # Errors
/// The user named a folder that cannot be made. Where the platform's folder cannot be had it is a warning.
pub(super) fn of_process() -> Result<(Option<&'static Cache>, Option<CacheError>), EngineError> {
    static CACHE: OnceLock<Result<Option<Cache>, CacheError>> = OnceLock::new();
    let chosen = CACHE.get_or_init(|| {
        let cache = Cache::of_environment()?;
        cache.as_ref().map_or(Ok(()), Cache::create)?;
        Ok(cache)
    });
    match chosen {
        Ok(cache) => Ok((cache.as_ref(), None)),
        Err(source @ CacheError::Folder { named: true, .. }) => {
            Err(EngineError::Cache { source: source.clone() })
        }
        Err(error) => Ok((None, Some(error.clone()))),
    }
}

impl Context {
    /// The key of an entry on disk that belongs to this card, its driver, and this version of the library.
    ///
    /// # Errors
    /// A driver error, or a card or driver whose name no file can hold.
    pub fn key(&self, digest: Digest) -> Result<Key, EngineError> {
        let key = Key::new(self.name()?, self.driver().name(), digest);
        key.map_err(|source| EngineError::Cache { source })
    }
}

/// Loads a program from the folder, or else compiles it and keeps the binary there; without a folder it compiles it.
///
/// # Errors
/// The compiler's log where it refused the text, or a driver error. What is wrong with the folder is a warning.
pub(super) fn load(
    context: &Arc<Context>,
    program: &Program,
    cache: Option<&Cache>,
) -> Result<Image, EngineError> {
    let mut warnings = Vec::new();
    let Some(cache) = cache else { return compile(context, program, warnings) };
    let key = match context.key(Digest::of(program.text())) {
        Ok(key) => key,
        Err(EngineError::Cache { source }) => {
            warnings.push(source);
            return compile(context, program, warnings);
        }
        Err(error) => return Err(error),
    };
    if let Some(compiled) = stored(cache, &key, &mut warnings) {
        match binary(context, program, compiled) {
            Ok((module, function)) => return Ok(Image { module, function, origin: Origin::Disk, warnings }),
            Err(error) => {
                // A context that is lost refuses everything: the binary is not to blame.
                context.alive()?;
                let (path, reason) = (cache.path(Kind::Kernel, &key), error.to_string());
                warnings.push(CacheError::Refused { path, reason });
                warnings.extend(cache.remove(Kind::Kernel, &key).err());
            }
        }
    }
    // The linker gives the binary away. Whatever it cannot do, the loader may still be able to.
    let linked = jit::compile(context, program.name(), program.text());
    let reason = match linked {
        Ok(compiled) if compiled.is_whole() => {
            let payload = compiled.to_bytes();
            match binary(context, program, compiled) {
                Ok((module, function)) => {
                    warnings.extend(cache.put(Kind::Kernel, &key, &payload).err());
                    return Ok(Image { module, function, origin: Origin::Compiled, warnings });
                }
                Err(error) => error.to_string(),
            }
        }
        Ok(_) => "it gave no binary".to_owned(),
        Err(error @ EngineError::Compile { .. }) => return Err(error),
        Err(error) => error.to_string(),
    };
    context.alive()?;
    warnings.push(CacheError::NotLinked { kernel: program.name().to_owned(), reason });
    compile(context, program, warnings)
}

/// The binary of an entry; `None` where there is none that can be used.
fn stored(cache: &Cache, key: &Key, warnings: &mut Vec<CacheError>) -> Option<Compiled> {
    match cache.get(Kind::Kernel, key) {
        Ok(None) => None,
        Ok(Some(payload)) => {
            let compiled = Compiled::of_bytes(&payload);
            if compiled.is_none() {
                let (path, why) = (cache.path(Kind::Kernel, key), "it holds no binary".to_owned());
                warnings.push(CacheError::Damaged { path, why });
            }
            compiled
        }
        Err(error) => {
            warnings.push(error);
            None
        }
    }
}

/// Loads a binary and looks the program's entry up in it.
pub(super) fn binary(
    context: &Arc<Context>,
    program: &Program,
    compiled: Compiled,
) -> Result<(Module, RawFunction), EngineError> {
    let module = Module::load(context, program.name(), compiled)?;
    let function = module.function(program.name())?;
    Ok((module, function))
}

/// Has the driver's loader compile the text.
pub(super) fn compile(
    context: &Arc<Context>,
    program: &Program,
    warnings: Vec<CacheError>,
) -> Result<Image, EngineError> {
    let module = Module::compile(context, program.name(), program.text())?;
    let function = module.function(program.name())?;
    Ok(Image { module, function, origin: Origin::Compiled, warnings })
}
