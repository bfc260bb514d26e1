//! The kernel object of the C interface: chosen, loaded, launched, emulated.

use core::ffi::{CStr, c_char, c_int, c_void};
use std::ffi::CString;
use std::sync::{Mutex, PoisonError};

use falchion::collective::Format;
use falchion::cute_rs::atom::Major;
use falchion::kernel::driver::{Context, Loaded};
use falchion::kernel::{
    AnyGemm, Buffer, Call, Emulator, Engine, EngineError, GemmProblem, KernelSpec, LinearArguments, Machine,
    MatrixRef, Program, Request, Types, WorkspaceRef, fastest, rank,
};

use crate::{DRIVER, FAULT, Failure, INTERNAL, INVALID, NO_KERNEL, text};

/// The description of a GEMM: `falchion_gemm_desc`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Description {
    /// Size of the caller's structure in bytes.
    pub size: usize,
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
    /// Leading dimensions of A, B, C and D, in elements; 0 is packed.
    pub lds: [u64; 4],
    /// Elements from one GEMM's matrix to the next one's, for A, B, C and D; 0 is packed.
    pub strides: [u64; 4],
    /// Bytes of which every matrix address is a multiple; 0 is 256.
    pub alignment: u32,
    /// The card to choose for, counted from 1; 0 is an H200, whether there is a card or not.
    pub card: u32,
}

impl Description {
    /// The description at an address. A caller's structure may be longer, if it says nothing there.
    ///
    /// # Safety
    /// The address is that of a `usize` and of as many bytes as it says.
    pub(crate) unsafe fn read(address: *const Self) -> Result<Self, Failure> {
        let own = size_of::<Self>();
        // SAFETY: the caller guarantees it.
        let size = unsafe { address.cast::<usize>().read() };
        if size < own || size > 1 << 16 {
            return invalid(format!("size is {size}, sizeof(falchion_gemm_desc), {own}, was needed"));
        }
        // SAFETY: the caller guarantees that number of bytes.
        let rest = unsafe { core::slice::from_raw_parts(address.cast::<u8>().add(own), size - own) };
        if rest.iter().any(|&byte| byte != 0) {
            return invalid(format!(
                "size is {size} and this library knows the first {own} bytes, zeros were needed after them"
            ));
        }
        // SAFETY: it has as many bytes.
        Ok(unsafe { address.read() })
    }
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
    /// The call, with matrices at addresses of the described alignment.
    call: Call,
    /// C as [`call`](Self::call) has the others.
    c: MatrixRef,
    /// Number of elements of A, B, C and D, from the first to the last.
    elements: [u64; 4],
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

/// Where the matrices of a description are.
struct Places {
    /// Leading dimension and stride of each.
    places: [[u64; 2]; 4],
    /// Number of elements of each, from the first to the last.
    elements: [u64; 4],
}

impl Places {
    fn new(description: &Description, majors: [Major; 2]) -> Result<Self, Failure> {
        let [m, n, k] = [description.m, description.n, description.k].map(u64::from);
        let of = |major, mn| if major == Major::K { [mn, k] } else { [k, mn] };
        // Contiguous lines, and the elements of one line.
        let extents = [of(majors[0], m), of(majors[1], n), [m, n], [m, n]];
        let mut all = Self { places: [[0; 2]; 4], elements: [0; 4] };
        for (i, [lines, contiguous]) in extents.into_iter().enumerate() {
            let Description { lds, strides, batch, .. } = description;
            let ld = if lds[i] == 0 { contiguous } else { lds[i] };
            if ld < contiguous {
                return invalid(format!("ld{} is {ld}, {contiguous} or more was needed", NAMES[i]));
            }
            let one = lines.checked_sub(1).map_or(Some(0), |before| {
                before.checked_mul(ld).and_then(|before| before.checked_add(contiguous))
            });
            let stride = if strides[i] == 0 { lines.saturating_mul(ld) } else { strides[i] };
            let others = u64::from((*batch).max(1) - 1).checked_mul(stride);
            let elements = one.zip(others).and_then(|(one, others)| one.checked_add(others));
            let Some(elements) = elements.filter(|&elements| elements < 1 << 48) else {
                return invalid(format!("{} would have 2^48 elements or more, fewer were needed", NAMES[i]));
            };
            (all.places[i], all.elements[i]) = ([ld, stride], elements);
        }
        Ok(all)
    }
}

/// The spec of a text, in which the description's types, layout and batch may be left out but not be others.
fn of_text(text: &str, types: Types, layout: &str, batched: bool) -> Result<AnyGemm, Failure> {
    let [a, b, d] = [types.a, types.b, types.d].map(Format::name);
    let form = if batched { "batched" } else { "single" };
    let mut whole = text.to_owned();
    for (key, value, from) in [
        ("form", form, "batch"),
        ("dtype", a, "types"),
        ("dtype-b", b, "types"),
        ("out", d, "types"),
        ("layout", layout, "layout"),
    ] {
        let words = text.split([' ', ',', '\t', '\n']).filter_map(|word| word.split_once('='));
        match words.into_iter().find(|(known, _)| *known == key) {
            None => whole = format!("{key}={value} {whole}"),
            Some((_, given)) if given == value => {}
            Some((_, given)) => {
                return invalid(format!("spec: {key} is `{given}`, `{value}` was needed, as {from} says"));
            }
        }
    }
    let failed = |error: String| Failure(INVALID, format!("spec: {error}"));
    let spec: KernelSpec =
        whole.parse().map_err(|error: falchion::kernel::SpecError| failed(error.to_string()))?;
    spec.kernel().map_err(|error| failed(error.to_string()))
}

/// The kernel of a spec, if it serves a request.
fn served(gemm: AnyGemm, request: &Request<'_>, machine: &Machine) -> Result<AnyGemm, Failure> {
    let mut selection = rank(vec![gemm], request, machine);
    match (selection.ranked.pop(), selection.refused.pop()) {
        (Some(ranked), _) => Ok(ranked.gemm),
        (None, Some(refused)) => invalid(format!("spec: {}", refused.error)),
        (None, None) => invalid("spec: `epilogue=linear` or `epilogue=sourced` was needed".to_owned()),
    }
}

impl Gemm {
    /// # Safety
    /// The strings are null or end in a zero.
    pub(crate) unsafe fn new(description: &Description) -> Result<Self, Failure> {
        let Description { types, layout, m, n, k, batch, spec, alignment, card, .. } = *description;
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
        let layout = layout.unwrap_or("kk");
        let majors = match layout {
            "kk" => [Major::K, Major::K],
            "kn" => [Major::K, Major::Mn],
            "mk" => [Major::Mn, Major::K],
            "mn" => [Major::Mn, Major::Mn],
            other => return invalid(format!("layout is \"{other}\", one of kk, kn, mk, mn was needed")),
        };
        if alignment != 0 && !alignment.is_power_of_two() {
            return invalid(format!("alignment is {alignment}, 0 or a power of two was needed"));
        }
        let Places { places, elements } = Places::new(description, majors)?;
        let alignment = if alignment == 0 { 256 } else { alignment.min(256) };
        let [a, b, c, d] = [(0, types.a), (1, types.b), (2, types.d), (3, types.d)].map(|(i, format)| {
            let [ld, stride] = places[i];
            // A multiple of the alignment, and of no more; an element is aligned in any case.
            let address = (1 << 20) | u64::from(alignment.max(format.bytes()));
            MatrixRef { address, ld, stride }
        });
        let request = Request::packed(types, majors, GemmProblem { m, n, k });
        let mut request = if batch > 1 { request.batched(batch) } else { request };
        request.call = Call { a, b, d, ..request.call };
        let machine = match card.checked_sub(1) {
            None => Machine::h200(),
            Some(ordinal) => {
                let context = Context::primary(ordinal as usize).map_err(|error| failed(&error))?;
                context.machine().map_err(|error| failed(&error))?
            }
        };
        let gemm = match spec {
            Some(spec) => served(of_text(spec, types, layout, batch > 1)?, &request, &machine)?,
            None => {
                let ranked = fastest(&request, &machine).map_err(|refused| {
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
            call: Call { workspace: None, ..request.call },
            c,
            elements,
            loaded: Mutex::new(None),
        })
    }

    /// The call for matrices at these addresses.
    fn call(&self, [a, b, c, d]: [u64; 4], arguments: &Arguments) -> Call {
        let at = |matrix: MatrixRef, address| MatrixRef { address, ..matrix };
        let (alpha, beta) = (arguments.alpha, arguments.beta);
        let c = (beta != 0.0).then(|| at(self.c, c));
        Call {
            a: at(self.call.a, a),
            b: at(self.call.b, b),
            d: at(self.call.d, d),
            epilogue: LinearArguments { alpha, beta, c },
            ..self.call
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
        self.with(|loaded| Ok(loaded.kernel().workspace(&self.call, loaded.slots())))
    }

    /// # Safety
    /// As `falchion_gemm_launch`.
    pub(crate) unsafe fn launch(&self, stream: *mut c_void, arguments: &Arguments) -> Result<(), Failure> {
        let Arguments { workspace, workspace_bytes, .. } = *arguments;
        let call = self.call(addresses(arguments), arguments);
        let workspace = (!workspace.is_null())
            .then(|| WorkspaceRef { address: workspace.addr() as u64, bytes: workspace_bytes });
        // SAFETY: the caller guarantees it.
        self.with(|loaded| unsafe {
            loaded.launch_raw(stream, &Call { workspace, ..call }).map_err(|error| failed(&error))
        })
    }

    /// # Safety
    /// As `falchion_gemm_emulate`.
    pub(crate) unsafe fn emulate(&self, arguments: &Arguments) -> Result<(), Failure> {
        let mut engine = Emulator::new();
        let slots = engine.slots(&self.program).map_err(|error| failed(&error))?;
        let checked = |call: &Call| {
            let kernel = self.program.name().to_owned();
            let launch = self.gemm.launch(call, slots);
            launch.map_err(|source| failed(&EngineError::Call { kernel, source }))
        };
        // The caller's own addresses are checked, as a launch checks them. Only the workspace is the emulator's.
        let given = self.call(addresses(arguments), arguments);
        let room = WorkspaceRef { address: 1 << 20, bytes: u64::MAX };
        if checked(&Call { workspace: Some(room), ..given })?.is_none() {
            return Ok(());
        }
        let [a, b, d] = self.gemm.formats().map(|format| u64::from(format.bytes()));
        let bytes = [a, b, d, d];
        let reads_c = arguments.beta != 0.0 && arguments.c != arguments.d.cast_const();
        let multiplies = arguments.alpha != 0.0 && self.call.problem.k > 0;
        let mut own = [(0, Buffer { address: 0, bytes: 0 }); 4];
        let matrices = [arguments.a, arguments.b, arguments.c, arguments.d.cast_const()];
        for (i, matrix) in matrices.into_iter().enumerate() {
            if (i == 2 && !reads_c) || (i < 2 && !multiplies) {
                continue;
            }
            let count = (self.elements[i] * bytes[i]) as usize;
            // As far after a multiple of 256 as the caller's matrix.
            let before = matrix.addr() % 256;
            let mut copy = vec![0; before];
            // SAFETY: the caller guarantees that the matrix has this number of bytes; its address was checked.
            copy.extend_from_slice(unsafe { core::slice::from_raw_parts(matrix.cast::<u8>(), count) });
            own[i] = (before, engine.upload(&copy).map_err(|error| failed(&error))?);
        }
        if !reads_c {
            own[2] = own[3];
        }
        let call = self.call(own.map(|(before, buffer)| buffer.address + before as u64), arguments);
        let workspace =
            engine.workspace(self.gemm.workspace(&call, slots)).map_err(|error| failed(&error))?;
        let Some(launch) = checked(&Call { workspace, ..call })? else { return Ok(()) };
        engine
            .launch(&self.program, launch.grid, &launch.arguments)
            .map_err(|error| Failure(FAULT, error.to_string()))?;
        let (before, of_d) = own[3];
        let result = engine.read(of_d).map_err(|error| failed(&error))?;
        let result = &result[before..];
        // SAFETY: the caller guarantees that D has this number of bytes, and that no other thread uses them.
        unsafe { core::ptr::copy_nonoverlapping(result.as_ptr(), arguments.d.cast::<u8>(), result.len()) };
        Ok(())
    }
}

/// The addresses of A, B, C and D.
fn addresses(arguments: &Arguments) -> [u64; 4] {
    let Arguments { a, b, c, d, .. } = *arguments;
    [a.addr(), b.addr(), c.addr(), d.addr()].map(|address| address as u64)
}
