//! The kernel object of the C interface: chosen, loaded, launched, emulated.

use core::ffi::{CStr, c_char, c_int, c_void};
use std::ffi::CString;
use std::sync::{Mutex, PoisonError};

use falchion::collective::Format;
use falchion::cute_rs::atom::Major;
use falchion::kernel::driver::{Context, Loaded};
use falchion::kernel::{
    AnyGemm, Call, Emulator, Engine, EngineError, GemmProblem, KernelSpec, LinearArguments, Machine,
    MatrixRef, Products, Program, Request, Types, fastest,
};

use crate::{DRIVER, FAULT, Failure, INTERNAL, INVALID, NO_KERNEL, text};

/// The description of a GEMM: `falchion_gemm_desc`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Description {
    /// Number formats of A, B and D, for example `bf16` or `e4m3-e5m2-bf16`.
    pub types: *const c_char,
    /// Contiguous directions of A and B: `kk`, `kn`, `mk` or `mn`; null is `kk`.
    pub layout: *const c_char,
    /// Rows of A and D.
    pub m: u32,
    /// Columns of B and D.
    pub n: u32,
    /// Columns of A and rows of B.
    pub k: u32,
    /// Number of GEMMs in one launch; 0 means 1.
    pub batch: u32,
    /// Text of the kernel's spec; null lets the library choose.
    pub spec: *const c_char,
}

/// The arguments of a run: `falchion_gemm_args`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Arguments {
    /// Address of A.
    pub a: *const c_void,
    /// Address of B.
    pub b: *const c_void,
    /// Address of C; not read where `beta` is 0.
    pub c: *const c_void,
    /// Address of D.
    pub d: *mut c_void,
    /// Leading dimensions of A, B, C and D, in elements; 0 is packed.
    pub pitches: [u64; 4],
    /// Elements from one GEMM's matrix to the next one's, for A, B, C and D; 0 is packed.
    pub strides: [u64; 4],
    /// Factor of `A * B`.
    pub alpha: f32,
    /// Factor of C.
    pub beta: f32,
    /// Workspace in device memory, in addition to the matrices.
    pub workspace: *mut c_void,
    /// Size of the workspace in bytes.
    pub workspace_bytes: u64,
}

/// A kernel for GEMMs of one shape: `falchion_gemm`.
pub struct Gemm {
    pub(crate) name: CString,
    pub(crate) ptx: CString,
    gemm: AnyGemm,
    program: Program,
    problem: GemmProblem,
    batch: u32,
    majors: [Major; 2],
    loaded: Mutex<Option<Loaded>>,
}

impl core::fmt::Debug for Gemm {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Gemm").field("name", &self.name).finish_non_exhaustive()
    }
}

/// A C string; `None` for null.
///
/// # Safety
/// The pointer is null, or its string ends in a zero.
unsafe fn words<'a>(pointer: *const c_char, name: &str) -> Result<Option<&'a str>, Failure> {
    if pointer.is_null() {
        return Ok(None);
    }
    // SAFETY: the caller guarantees it.
    let found = unsafe { CStr::from_ptr(pointer) };
    found.to_str().map(Some).map_err(|_| Failure(INVALID, format!("{name} is {found:?}, UTF-8 was needed")))
}

fn invalid<T>(words: String) -> Result<T, Failure> {
    Err(Failure(INVALID, words))
}

fn failed(error: &EngineError) -> Failure {
    let status = match error {
        EngineError::Call { .. } => INVALID,
        _ => DRIVER,
    };
    Failure(status, error.to_string())
}

/// The names of the matrices, in the order of the arguments.
const NAMES: [&str; 4] = ["a", "b", "c", "d"];

impl Gemm {
    /// # Safety
    /// The strings are null or end in a zero.
    pub(crate) unsafe fn new(description: &Description) -> Result<Self, Failure> {
        let Description { types, layout, m, n, k, batch, spec } = *description;
        // SAFETY: the caller guarantees it.
        let (types, layout, spec) =
            unsafe { (words(types, "types")?, words(layout, "layout")?, words(spec, "spec")?) };
        let Some(named) = types else { return invalid("types is NULL, \"bf16\" say was needed".to_owned()) };
        let plain = |types: &Types| !types.is_scaled() && types.dense() == *types;
        let Some(types) = Types::named(named).filter(plain) else {
            let all = Format::ALL.map(Format::name).join(", ");
            return invalid(format!(
                "types is \"{named}\", one to three of {all} with `-` between them were needed"
            ));
        };
        let majors = match layout.unwrap_or("kk") {
            "kk" => [Major::K, Major::K],
            "kn" => [Major::K, Major::Mn],
            "mk" => [Major::Mn, Major::K],
            "mn" => [Major::Mn, Major::Mn],
            other => return invalid(format!("layout is \"{other}\", one of kk, kn, mk, mn was needed")),
        };
        let problem = GemmProblem { m, n, k };
        let (batch, batched) = (batch.max(1), batch > 1);
        let gemm = match spec {
            Some(spec) => {
                let layout = layout.unwrap_or("kk");
                let form = if batched { "form=batched " } else { "" };
                let [a, b, d] = [types.a, types.b, types.d].map(Format::name);
                let text = format!("{form}dtype={a} dtype-b={b} out={d} layout={layout} {spec}");
                let spec: KernelSpec =
                    text.parse().map_err(|error| Failure(INVALID, format!("spec: {error}")))?;
                spec.kernel().map_err(|error| Failure(INVALID, format!("spec: {error}")))?
            }
            None => {
                let request = Request::packed(types, majors, problem);
                let request = if batched { request.batched(batch) } else { request };
                let ranked = fastest(&request, &Machine::h200()).map_err(|refused| {
                    let reason = refused
                        .map_or_else(|| "no kernel of the space fits".to_owned(), |error| error.to_string());
                    Failure(NO_KERNEL, format!("{m} x {n} x {k} {types}: {reason}"))
                })?;
                ranked.gemm
            }
        };
        let program = gemm.program().map_err(|error| Failure(INTERNAL, error.to_string()))?;
        Ok(Self {
            name: text(&gemm.spec().map_or_else(|| gemm.entry_name(), |spec| spec.to_string())),
            ptx: text(program.text()),
            gemm,
            program,
            problem,
            batch,
            majors,
            loaded: Mutex::new(None),
        })
    }

    /// Leading dimension, stride, and number of elements of each matrix.
    fn matrices(&self, arguments: &Arguments) -> Result<[([u64; 2], u64); 4], Failure> {
        let [m, n, k] = [self.problem.m, self.problem.n, self.problem.k].map(u64::from);
        let of = |major, mn| if major == Major::K { [mn, k] } else { [k, mn] };
        // Contiguous lines, and the elements of one line.
        let extents = [of(self.majors[0], m), of(self.majors[1], n), [m, n], [m, n]];
        let mut all = [([0; 2], 0); 4];
        for (i, [lines, contiguous]) in extents.into_iter().enumerate() {
            let pitch = if arguments.pitches[i] == 0 { contiguous } else { arguments.pitches[i] };
            if pitch < contiguous {
                return invalid(format!("ld{} is {pitch}, {contiguous} or more was needed", NAMES[i]));
            }
            let one = lines.checked_sub(1).and_then(|before| before.checked_mul(pitch));
            let one = one.and_then(|before| before.checked_add(contiguous)).unwrap_or(0);
            let packed = lines.saturating_mul(pitch);
            let stride = if arguments.strides[i] == 0 { packed } else { arguments.strides[i] };
            let more =
                u64::from(self.batch - 1).checked_mul(stride).and_then(|before| before.checked_add(one));
            let Some(elements) = more.filter(|&elements| elements < 1 << 48) else {
                return invalid(format!("{} would have 2^48 elements or more, fewer were needed", NAMES[i]));
            };
            all[i] = ([pitch, stride], elements);
        }
        Ok(all)
    }

    /// The call for matrices at these addresses.
    fn call(&self, places: [[u64; 2]; 4], addresses: [u64; 4], arguments: &Arguments) -> Call {
        let matrix =
            |i: usize| MatrixRef { address: addresses[i], pitch: places[i][0], stride: places[i][1] };
        let call = Call::of(self.problem);
        let products = if self.batch > 1 { Products::Batched { count: self.batch } } else { call.products };
        let (alpha, beta) = (arguments.alpha, arguments.beta);
        let c = (beta != 0.0).then(|| matrix(2));
        Call {
            products,
            a: matrix(0),
            b: matrix(1),
            d: matrix(3),
            epilogue: LinearArguments { alpha, beta, c },
            ..call
        }
    }

    pub(crate) fn load(&self, device: c_int) -> Result<(), Failure> {
        let Ok(ordinal) = usize::try_from(device) else {
            return invalid(format!("device is {device}, 0 or more was needed"));
        };
        let context = Context::primary(ordinal).map_err(|error| failed(&error))?;
        let loaded = Loaded::load_in(&context, self.gemm.clone(), self.program.clone())
            .map_err(|error| failed(&error))?;
        *self.loaded.lock().unwrap_or_else(PoisonError::into_inner) = Some(loaded);
        Ok(())
    }

    /// Calls a function with the loaded kernel; an error if it is not loaded.
    fn with<T>(&self, call: impl FnOnce(&mut Loaded) -> Result<T, Failure>) -> Result<T, Failure> {
        match &mut *self.loaded.lock().unwrap_or_else(PoisonError::into_inner) {
            Some(loaded) => call(loaded),
            None => invalid("gemm is not loaded: call falchion_gemm_load first".to_owned()),
        }
    }

    pub(crate) fn workspace(&self) -> Result<u64, Failure> {
        self.with(|loaded| {
            let call = Call::of(self.problem);
            let products =
                if self.batch > 1 { Products::Batched { count: self.batch } } else { call.products };
            Ok(loaded.gemm().workspace(&Call { products, ..call }, loaded.slots()))
        })
    }

    /// # Safety
    /// As `falchion_gemm_launch`.
    pub(crate) unsafe fn launch(&self, stream: *mut c_void, arguments: &Arguments) -> Result<(), Failure> {
        let places = self.matrices(arguments)?.map(|(places, _)| places);
        let Arguments { a, b, c, d, workspace, workspace_bytes, .. } = *arguments;
        let addresses = [a.addr(), b.addr(), c.addr(), d.addr()].map(|address| address as u64);
        let call = self.call(places, addresses, arguments);
        let workspace = (!workspace.is_null()).then(|| falchion::kernel::WorkspaceRef {
            address: workspace.addr() as u64,
            bytes: workspace_bytes,
        });
        // SAFETY: the caller guarantees it.
        self.with(|loaded| unsafe {
            loaded.launch_raw(stream, &Call { workspace, ..call }).map_err(|error| failed(&error))
        })
    }

    /// # Safety
    /// As `falchion_gemm_emulate`.
    pub(crate) unsafe fn emulate(&self, arguments: &Arguments) -> Result<(), Failure> {
        let matrices = self.matrices(arguments)?;
        let [a, b, d] = self.gemm.formats().map(|format| u64::from(format.bytes()));
        let bytes = [a, b, d, d];
        let pointers = [arguments.a, arguments.b, arguments.c, arguments.d.cast_const()];
        let reads_c = arguments.beta != 0.0 && arguments.c != arguments.d.cast_const();
        let mut engine = Emulator::new();
        let (mut addresses, mut of_d) = ([0; 4], None);
        for i in 0..4 {
            let count = (matrices[i].1 * bytes[i]) as usize;
            if count == 0 || (i == 2 && !reads_c) {
                continue;
            }
            if pointers[i].is_null() {
                return invalid(format!("{} is NULL, a matrix of {count} bytes was needed", NAMES[i]));
            }
            // SAFETY: the caller guarantees that the matrix has this number of bytes.
            let matrix = unsafe { core::slice::from_raw_parts(pointers[i].cast::<u8>(), count) };
            let buffer = engine.upload(matrix).map_err(|error| failed(&error))?;
            addresses[i] = buffer.address;
            if i == 3 {
                of_d = Some(buffer);
            }
        }
        let Some(of_d) = of_d else { return Ok(()) };
        if !reads_c {
            addresses[2] = addresses[3];
        }
        let call = self.call(matrices.map(|(places, _)| places), addresses, arguments);
        let slots = engine.slots(&self.program).map_err(|error| failed(&error))?;
        let workspace =
            engine.workspace(self.gemm.workspace(&call, slots)).map_err(|error| failed(&error))?;
        let launch = self.gemm.launch(&Call { workspace, ..call }, slots);
        let launch = launch.map_err(|error| Failure(INVALID, error.to_string()))?;
        let Some(launch) = launch else { return Ok(()) };
        engine
            .launch(&self.program, launch.grid, &launch.arguments)
            .map_err(|error| Failure(FAULT, error.to_string()))?;
        let result = engine.read(of_d).map_err(|error| failed(&error))?;
        // SAFETY: the caller guarantees that D has this number of bytes, and that no other thread uses them.
        unsafe { core::ptr::copy_nonoverlapping(result.as_ptr(), arguments.d.cast::<u8>(), result.len()) };
        Ok(())
    }
}
