//! How a kernel comes to the card: as a binary from the folder of compiled kernels, or compiled.
#![cfg_attr(test, allow(unsafe_code, reason = "launches kernels"))]

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

#[cfg(test)]
mod tests {
    use super::Origin;
    use crate::disk::Cache;
    use crate::driver::counting::card;
    use crate::driver::{Kernel, parameter_block};
    use crate::engine::Engine;
    use crate::problem::{Call, GemmProblem};
    use half::bf16;

    /// With a GPU: a kernel that comes from disk is the one that was compiled, and gives the same product.
    #[test]
    fn kernels_from_disk_are_those_that_were_compiled() -> Result<(), Box<dyn std::error::Error>> {
        let Some(mut gpu) = card() else { return Ok(()) };
        let folder = tempfile::tempdir()?;
        let cache = Cache::at(folder.path());
        for name in ["small-bf16-kk", "large-bf16-kk", "stream-bf16-kk"] {
            let gemm = crate::find(name)?;
            let program = gemm.program()?;
            let ones = bf16::ONE.to_le_bytes().repeat(64 * 64);
            let (operand, d) = (gpu.upload(&ones)?, gpu.allocate(ones.len())?);
            let mut numbers = Vec::new();
            for origin in [Origin::Compiled, Origin::Disk] {
                let kernel = Kernel::load_from(gpu.context(), &program, Some(&cache))?;
                assert_eq!((kernel.origin(), kernel.warnings()), (origin, &[][..]), "{name}");
                assert_eq!(kernel.advisories(), Vec::<String>::new(), "{name}");
                let slots = kernel.max_active_clusters()?;
                numbers.push((
                    kernel.registers(),
                    kernel.local_bytes(),
                    slots,
                    kernel.compile_log().to_owned(),
                ));
                let call = Call::of(GemmProblem { m: 64, n: 64, k: 64 });
                let call = call.a(operand.address, 64).b(operand.address, 64).d(d.address, 64);
                let workspace = gpu.workspace(gemm.workspace(&call, slots))?;
                let call = Call { workspace, ..call };
                let launch = gemm.launch(&call, slots)?.ok_or("an empty product")?;
                let block = parameter_block(&program, &launch.arguments)?;
                gpu.write(d, &[0xff; 64 * 64 * 2])?;
                // SAFETY: the stream is the GPU's, and so are all buffers, which stay until it has been read.
                unsafe { kernel.launch_raw(gpu.stream().raw(), launch.grid, &block)? };
                assert_eq!(
                    gpu.read(d)?,
                    bf16::from_f32(64.0).to_le_bytes().repeat(64 * 64),
                    "{name}, {origin:?}"
                );
            }
            assert_eq!(numbers[0], numbers[1], "{name}");
            assert!(numbers[0].3.contains("registers"), "the compiler has said something: {}", numbers[0].3);
        }
        Ok(())
    }
}
