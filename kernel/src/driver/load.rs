//! How a kernel's binary is obtained: from the folder of compiled kernels, from an assembler, or from the
//! driver's loader, which compiles the text. The driver's linker could return its binary, but what it
//! compiles is slow (`docs/hardware.md`).
#![cfg_attr(test, allow(unsafe_code, reason = "launches kernels"))]

use std::sync::{Arc, OnceLock};

use super::context::Context;
use super::library;
use super::module::Module;
use crate::assembler::Assembler;
use crate::disk::{Cache, CacheError, Compiled, Digest, Key, Kind};
use crate::error::EngineError;
use crate::program::Program;

/// Where a kernel's binary came from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Origin {
    /// The driver compiled its text.
    Compiled,
    /// The assembler that `FALCHION_PTXAS` names made it.
    Assembled,
    /// It was read from the folder of compiled kernels ([`disk`](crate::disk)).
    Disk,
    /// The caller passed it ([`Loaded::load_ahead`](super::Loaded::load_ahead)).
    Ahead,
}

/// A program that is loaded on the GPU.
pub(super) struct Image {
    pub(super) module: Module,
    pub(super) origin: Origin,
    /// What went wrong while loading, without making the kernel unusable.
    pub(super) warnings: Vec<CacheError>,
}

/// The cache folder of this process, chosen by its environment at the first use.
///
/// # Errors
/// The user named a folder that cannot be made. If there is no default folder, that is only a warning.
pub(super) fn of_process() -> Result<(Option<&'static Cache>, Option<CacheError>), EngineError> {
    static CACHE: OnceLock<Result<Option<Cache>, CacheError>> = OnceLock::new();
    let chosen = CACHE.get_or_init(|| {
        let cache = Cache::of_environment()?;
        // The platform's default folder is made with its first entry.
        cache.as_ref().filter(|cache| cache.is_named()).map_or(Ok(()), Cache::create)?;
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

/// What compiles programs in this process: the assembler that `FALCHION_PTXAS` names, or the driver, whose compiler is that of its version
/// of CUDA.
pub(super) fn compiler((major, minor): (i32, i32)) -> String {
    match Assembler::of_process() {
        Ok(Some(assembler)) => format!("{} ({})", assembler.release(), assembler.path().display()),
        Ok(None) => format!("the driver's, of CUDA {major}.{minor}"),
        Err(error) => error.to_string(),
    }
}

impl Context {
    /// The key of an entry on disk that belongs to this card, its driver, and this version of the library.
    ///
    /// # Errors
    /// A driver error, or a name of the card or the driver that a file cannot hold.
    pub fn key(&self, digest: Digest) -> Result<Key, EngineError> {
        let key = Key::new(self.name()?, self.driver().name(), digest);
        key.map_err(|source| EngineError::Cache { source })
    }

    /// The key of a program's binary on disk, as [`Loaded::load_in`](super::Loaded::load_in) looks for it.
    ///
    /// In addition to what [`key`](Self::key) depends on, it depends on the version of the assembler that
    /// `FALCHION_PTXAS` names, so a binary of another assembler is never used. If no assembler is named, the
    /// library writes no binary under this key, but loads one that something else has put there.
    ///
    /// # Errors
    /// As [`key`](Self::key), or the named assembler cannot be asked for its version.
    pub fn kernel_key(&self, program: &Program) -> Result<Key, EngineError> {
        let assembler = Assembler::of_process().map_err(|source| EngineError::Assembler { source })?;
        self.key(Digest::of_kernel(assembler.map_or("", Assembler::version), program.text()))
    }
}

/// Loads a program. A binary from the folder comes first. Otherwise the named assembler makes one, which is
/// kept in the folder. If no assembler is named, the driver compiles the program.
///
/// # Errors
/// The named assembler fails, or the driver rejects its binary; the compiler's log if the driver rejects the
/// text; or a driver error. What is wrong with the folder is only a warning.
pub(super) fn load(
    context: &Arc<Context>,
    program: &Program,
    cache: Option<&Cache>,
) -> Result<Image, EngineError> {
    let (version, needed) = (context.cuda_version(), library::needed(program.function().version()));
    if version < needed {
        return Err(EngineError::OldDriver { version, needed });
    }
    let assembler = Assembler::of_process().map_err(|source| EngineError::Assembler { source })?;
    let mut warnings = Vec::new();
    let entry = match cache.map(|cache| context.kernel_key(program).map(|key| (cache, key))).transpose() {
        Ok(entry) => entry,
        Err(EngineError::Cache { source }) => {
            warnings.push(source);
            None
        }
        Err(error) => return Err(error),
    };
    if let Some((cache, key)) = &entry
        && let Some(compiled) = stored(cache, key, &mut warnings)
    {
        match Module::load(context, program.name(), compiled) {
            Ok(module) => return Ok(Image { module, origin: Origin::Disk, warnings }),
            Err(error) => {
                // If the context is unusable it rejects everything, and the binary is not the cause.
                context.alive()?;
                let (path, reason) = (cache.path(Kind::Kernel, key), error.to_string());
                warnings.push(CacheError::Refused { path, reason });
                warnings.extend(cache.remove(Kind::Kernel, key).err());
            }
        }
    }
    let Some(assembler) = assembler else {
        let module = Module::compile(context, program.name(), program.text())?;
        return Ok(Image { module, origin: Origin::Compiled, warnings });
    };
    let failed = |source| EngineError::Assembler { source };
    let compiled = assembler.assemble(program.name(), program.text()).map_err(failed)?;
    if !compiled.is_whole() {
        return Err(failed(assembler.not_loaded(program.name(), "it is no whole ELF file of 64 bits")));
    }
    let payload = compiled.to_bytes();
    let module = match Module::load(context, program.name(), compiled) {
        Ok(module) => module,
        Err(error) => {
            context.alive()?;
            return Err(failed(assembler.not_loaded(program.name(), error)));
        }
    };
    if let Some((cache, key)) = &entry {
        warnings.extend(cache.put(Kind::Kernel, key, &payload).err());
    }
    Ok(Image { module, origin: Origin::Assembled, warnings })
}

/// The binary of an entry; `None` if there is none that can be used.
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

#[cfg(test)]
mod tests {
    use super::{Image, Origin};
    use crate::assembler;
    use crate::call::Call;
    use crate::disk::Cache;
    use crate::driver::counting::card;
    use crate::driver::module::Module;
    use crate::driver::{Loaded, LoadedProgram};
    use crate::engine::Engine;
    use crate::problem::GemmProblem;
    use crate::spec::KernelSpec;
    use half::bf16;

    /// With a GPU and an assembler: a kernel from disk is the one that was assembled, and gives the same
    /// result. Neither this kernel nor one that the driver compiles has spills, for all kernels in which
    /// consumers raise their register limit at run time.
    #[test]
    fn kernels_from_disk_are_those_that_were_assembled() -> Result<(), Box<dyn std::error::Error>> {
        let mut gemms = Vec::new();
        for name in ["64x64-direct-bf16-kk", "128x256-direct-bf16-kk", "256x192-stream-k-bf16-kk"] {
            gemms.push(crate::find(name)?);
        }
        for text in ["tile=256x192x64", "tile=128x192x64 roles=pingpong", "tile=128x320x64"] {
            gemms.push(text.parse::<KernelSpec>()?.kernel()?);
        }
        let Some(mut gpu) = card() else { return Ok(()) };
        if assembler::named().is_none() {
            crate::skipped::skipped("assembler that FALCHION_PTXAS names");
            return Ok(());
        }
        let folder = tempfile::tempdir()?;
        let cache = Cache::at(folder.path());
        for gemm in gemms {
            let (name, program) = (gemm.name(), gemm.program()?);
            let module = Module::compile(gpu.context(), program.name(), program.text())?;
            let image = Image { module, origin: Origin::Compiled, warnings: Vec::new() };
            let compiled = LoadedProgram::of_image(&program, image)?;
            assert_eq!((compiled.origin(), compiled.local_bytes()), (Origin::Compiled, 0), "{name}");
            let ones = bf16::ONE.to_le_bytes().repeat(64 * 64);
            let (operand, d) = (gpu.upload(&ones)?, gpu.allocate(ones.len())?);
            let mut numbers = Vec::new();
            for origin in [Origin::Assembled, Origin::Disk] {
                let loaded = Loaded::load_from(gpu.context(), gemm.clone(), program.clone(), Some(&cache))?;
                let kernel = loaded.program();
                assert_eq!((kernel.origin(), kernel.warnings()), (origin, &[][..]), "{name}");
                assert_eq!(kernel.local_bytes(), compiled.local_bytes(), "{name}");
                assert_eq!(kernel.advisories(), Vec::<String>::new(), "{name}");
                let resident = loaded.resident_clusters();
                numbers.push((kernel.registers(), resident, kernel.compile_log().to_owned()));
                let call = Call::of(GemmProblem { m: 64, n: 64, k: 64 });
                let call = call.a(operand.address, 64).b(operand.address, 64).d(d.address, 64);
                gpu.write(d, &[0xff; 64 * 64 * 2])?;
                // SAFETY: the stream is the GPU's, and so are all buffers, which stay until it has been read.
                unsafe { loaded.launch_raw(gpu.stream().raw(), &call)? };
                assert_eq!(
                    gpu.read(d)?,
                    bf16::from_f32(64.0).to_le_bytes().repeat(64 * 64),
                    "{name}, {origin:?}"
                );
            }
            assert_eq!(numbers[0], numbers[1], "{name}");
            assert!(numbers[0].2.contains("registers"), "the assembler has said something: {}", numbers[0].2);
        }
        Ok(())
    }
}
