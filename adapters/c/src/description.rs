//! The description of a GEMM: a structure of C, read and checked, as a request for a kernel.

use core::ffi::{CStr, c_char};

use falchion::collective::{
    BlockScales, Format, Formula, GroupScales, LinearArguments, MatrixRef, sparse, weights,
};
use falchion::cute_rs::atom::Major;
use falchion::kernel::{Call, GemmProblem, GroupedProblem, Request, Types};
use falchion_core::{Part, Refusal, aligned};

use crate::object::refuse_numbers;
use crate::{DRIVER, Failure, INTERNAL, INVALID, NO_KERNEL, invalid};

/// The description of a GEMM: `falchion_gemm_desc`.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct Description {
    /// Size of the caller's structure in bytes.
    pub size: usize,
    /// Number formats of A, B and D, for example `bf16` or `e4m3-e5m2-bf16`; scales, weights and sparse operands.
    pub types: *const c_char,
    /// Contiguous directions of A and B: `kk`, `kn`, `mk` or `mn`; null is `kk`.
    pub layout: *const c_char,
    /// Rows of A and D.
    pub m: u32,
    /// Columns of B and D.
    pub n: u32,
    /// Columns of A and rows of B.
    pub k: u32,
    /// Number of GEMMs, or of groups, in one launch; 0 means 1.
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
    /// The end of the structure's first version.
    pub args_size: usize,
    /// Text of the epilogue; null is `alpha * A * B + beta * C`.
    pub epilogue: *const c_char,
    /// `FALCHION_REPRODUCIBLE`.
    pub flags: u32,
    /// How `batch` divides the GEMMs: `falchion_form`.
    pub form: u32,
    /// Rows of each group's buffer, for `FALCHION_MASKED_ROWS`.
    pub room: u32,
    /// Zero.
    pub reserved: u32,
    /// Leading dimensions of the scales of A, of B, and of groups of weights; 0 is packed.
    pub scale_lds: [u64; 3],
}

/// Size of the structure's first version.
const FIRST: usize = core::mem::offset_of!(Description, args_size);

/// `FALCHION_REPRODUCIBLE`.
pub const REPRODUCIBLE: u32 = 1;

/// A structure of C that begins with its size, or whose size is known: missing fields are 0.
///
/// # Safety
/// `size` bytes can be read at the address, and all bytes of `T` may be 0.
pub(crate) unsafe fn sized<T: Copy>(
    address: *const T,
    size: usize,
    (first, name): (usize, &str),
) -> Result<T, Failure> {
    let own = size_of::<T>();
    if size < first || size > 1 << 16 {
        return invalid(format!("size is {size}, sizeof({name}), {own}, was needed"));
    }
    let bytes = address.cast::<u8>();
    if size > own {
        // SAFETY: the caller guarantees that number of bytes.
        let rest = unsafe { core::slice::from_raw_parts(bytes.add(own), size - own) };
        if rest.iter().any(|&byte| byte != 0) {
            return invalid(format!(
                "size is {size} and this library knows the first {own} bytes, zeros were needed after them"
            ));
        }
    }
    // SAFETY: zeros are a value of `T`, and no more bytes are copied than either side has.
    unsafe {
        let mut whole: T = core::mem::zeroed();
        core::ptr::copy_nonoverlapping(bytes, (&raw mut whole).cast(), size.min(own));
        Ok(whole)
    }
}

/// A C string; `None` for null.
///
/// # Safety
/// The pointer is null, or its string ends in a zero.
pub(crate) unsafe fn words<'a>(pointer: *const c_char, name: &str) -> Result<Option<&'a str>, Failure> {
    if pointer.is_null() {
        return Ok(None);
    }
    // SAFETY: the caller guarantees it.
    let found = unsafe { CStr::from_ptr(pointer) };
    found.to_str().map(Some).map_err(|_| Failure(INVALID, format!("{name} is {found:?}, UTF-8 was needed")))
}

impl From<Refusal> for Failure {
    fn from(refusal: Refusal) -> Self {
        let words = refusal.to_string();
        match refusal {
            Refusal::Invalid(_) => Self(INVALID, words),
            Refusal::NoKernel(_) => Self(NO_KERNEL, words),
            Refusal::Driver(_) => Self(DRIVER, words),
            Refusal::Internal(_) => Self(INTERNAL, words),
        }
    }
}

/// What a description asks for.
pub(crate) struct Asked {
    pub(crate) request: Request<'static>,
    /// C, as the request's call has the other matrices.
    pub(crate) c: MatrixRef,
    /// Size of the caller's structure of arguments; 0 for its first version.
    pub(crate) args_size: usize,
}

/// The names of the matrices, in the order of the arguments.
const NAMES: [&str; 4] = ["a", "b", "c", "d"];
/// Those of their strides.
const STRIDES: [&str; 4] = ["stride_a", "stride_b", "stride_c", "stride_d"];

impl Description {
    /// The description at an address. A caller's structure may be longer, if it says nothing there, and it may be the
    /// shorter one of an earlier version.
    ///
    /// # Safety
    /// The address is that of a `usize` and of as many bytes as it says.
    pub(crate) unsafe fn read(address: *const Self) -> Result<Self, Failure> {
        // SAFETY: the caller guarantees it.
        unsafe { sized(address, address.cast::<usize>().read(), (FIRST, "falchion_gemm_desc")) }
    }

    /// The request, and the text of the spec.
    ///
    /// # Safety
    /// The strings are null or end in a zero.
    pub(crate) unsafe fn asked<'a>(&self) -> Result<(Asked, Option<&'a str>), Failure> {
        let Self { m, n, k, batch, alignment, flags, form, room, .. } = *self;
        // SAFETY: the caller guarantees it.
        let (types, layout, spec, epilogue) = unsafe {
            (
                words(self.types, "types")?,
                words(self.layout, "layout")?,
                words(self.spec, "spec")?,
                words(self.epilogue, "epilogue")?,
            )
        };
        let Some(named) = types else { return invalid("types is NULL, \"bf16\" say was needed".to_owned()) };
        let (types, said) = falchion_core::types(named)?;
        let majors = falchion_core::majors(layout.unwrap_or("kk"))?;
        if alignment != 0 && !alignment.is_power_of_two() {
            return invalid(format!("alignment is {alignment}, 0 or a power of two was needed"));
        }
        if flags & !REPRODUCIBLE != 0 || self.reserved != 0 {
            return invalid(format!(
                "flags is {flags:#x} and reserved {}, 0 or FALCHION_REPRODUCIBLE and 0 were needed",
                self.reserved
            ));
        }
        let fusion = epilogue.map(|text| falchion_core::formula(text, types.a, said)).transpose()?;
        let count = batch.max(1);
        let table = aligned(16);
        let products = match form {
            0 if batch > 1 => GroupedProblem::Batched { count },
            0 => GroupedProblem::One,
            1 => GroupedProblem::GroupedContiguous { count, offsets: table },
            2 => GroupedProblem::GroupedMasked { count, rows: table, room },
            3 => GroupedProblem::KGrouped { count, offsets: table },
            4 => GroupedProblem::PointerArray { count, records: table },
            other => return invalid(format!("form is {other}, a falchion_form from 0 to 4 was needed")),
        };
        let types = fusion.map_or(types, |formula| types.stored(formula.output(types.a)));
        if form == 4 {
            let plain = types.dense() == types && !types.is_scaled();
            if !plain || self.lds != [0; 4] || self.strides != [0; 4] || alignment % 16 != 0 {
                return invalid(format!(
                    "form is FALCHION_POINTER_ARRAYS with types {named}, leading dimensions {:?}, strides {:?} and alignment {alignment}: \
                     formats alone, zeros, and 0 or a multiple of 16 were needed, because the records say the rest",
                    self.lds, self.strides
                ));
            }
        }
        let places = self.places(types, majors, fusion, form)?;
        let why = "form is not FALCHION_MASKED_ROWS";
        refuse_numbers([("room", room.into())], (form != 2).then_some(why))?;
        // What belongs to an operand of several GEMMs is there once for each.
        let several = [0, 1].map(|i| places[i][1] > 0);
        let alignment = if alignment == 0 { 256 } else { alignment.min(256) };
        let [a, b, c, d] = [(0, types.a), (1, types.b), (2, types.d), (3, types.d)].map(|(i, format)| {
            let [ld, stride] = places[i];
            // A multiple of the alignment, and of no more; an element is aligned in any case.
            MatrixRef { address: aligned(alignment.max(format.bytes())), ld, stride }
        });
        let request = Request::packed(types, majors, GemmProblem { m, n, k });
        let mut request = Request { fusion, reproducible: flags & REPRODUCIBLE != 0, ..request };
        let extents = [m, n, k];
        for (i, part) in [Part::Scales(0), Part::Scales(1), Part::GroupScales].into_iter().enumerate() {
            let field = ["ld_scale_a", "ld_scale_b", "ld_group_scales"][i];
            refuse_numbers([(field, self.scale_lds[i])], part.unused(&request, &[]))?;
        }
        request.call = Call {
            a,
            b,
            d,
            products,
            scales: types.is_scaled().then(|| self.scales(extents, types, several)),
            group_scales: self.group_scales(extents, types, several),
            metadata: types.has_sparse().then(|| {
                let i = usize::from(!types.sparse[0]);
                let ld = sparse::metadata_ld([types.a, types.b][i], k);
                lines(MatrixRef::new(table, ld), [m, n][i].div_ceil(sparse::ROWS).into(), several[i])
            }),
            epilogue: LinearArguments::default(),
            ..request.call
        };
        Ok((Asked { request, c, args_size: self.args_size }, spec))
    }

    fn scales(&self, extents: [u32; 3], types: Types, several: [bool; 2]) -> BlockScales {
        let packed = BlockScales::packed_extents(extents, types.scaled);
        let scales = BlockScales::packed([aligned(16); 2], packed);
        let of = |i: usize, matrix: MatrixRef| {
            let ld = if self.scale_lds[i] == 0 { matrix.ld } else { self.scale_lds[i] };
            lines(MatrixRef { ld, ..matrix }, packed[i][0], several[i])
        };
        BlockScales { a: of(0, scales.a), b: of(1, scales.b) }
    }

    fn group_scales(&self, [m, n, k]: [u32; 3], types: Types, several: [bool; 2]) -> Option<GroupScales> {
        let i = usize::from(types.weights[0].is_none());
        let (rows, weights) = ([m, n][i], types.weights[i]?);
        if weights.group == 0 {
            return None;
        }
        let packed = u64::from(rows).next_multiple_of(16);
        let ld = if self.scale_lds[2] == 0 { packed } else { self.scale_lds[2] };
        let matrix = lines(MatrixRef::new(aligned(16), ld), k.div_ceil(weights.group).into(), several[i]);
        Some(GroupScales { scales: matrix, zeros: if weights.zeros { matrix } else { MatrixRef::NONE } })
    }

    /// Leading dimension and stride of A, B, C and D.
    fn places(
        &self,
        types: Types,
        majors: [Major; 2],
        fusion: Option<Formula>,
        form: u32,
    ) -> Result<[[u64; 2]; 4], Failure> {
        let [m, n, k] = [self.m, self.n, self.k].map(u64::from);
        let operand = |i: usize, mn: u64, format: Format| match (types.weights[i], types.sparse[i], majors[i])
        {
            (Some(of), ..) => [mn.next_multiple_of(64), weights::ld(of.code, self.k)],
            (None, true, _) => [mn, sparse::kept(format, self.k).into()],
            (None, false, Major::K) => [mn, k],
            (None, false, Major::Mn) => [k, mn],
        };
        let columns = n >> fusion.map_or(0, |formula| formula.halvings());
        // Contiguous lines, and the elements of one line.
        let extents = [operand(0, m, types.a), operand(1, n, types.b), [m, columns], [m, columns]];
        // Which matrices there are several of: those of a batch, the Bs of groups of rows, the Ds of groups along K.
        let several = [
            [true; 4],
            [false, true, false, false],
            [false, true, false, false],
            [false, false, true, true],
            [false; 4],
        ];
        let several = several[form.min(4) as usize];
        let mut all = [[0; 2]; 4];
        for (i, [lines, contiguous]) in extents.into_iter().enumerate() {
            let Self { lds, strides, batch, .. } = self;
            // A batch of one may say how it would go on.
            let one = form > 0 || *batch == 0;
            let why = (!several[i] || form == 0 && one).then_some("there is one such matrix");
            refuse_numbers([(STRIDES[i], strides[i])], why)?;
            let ld = if lds[i] == 0 { contiguous } else { lds[i] };
            if ld < contiguous {
                return invalid(format!("ld{} is {ld}, {contiguous} or more was needed", NAMES[i]));
            }
            let one = lines.checked_sub(1).map_or(Some(0), |before| {
                before.checked_mul(ld).and_then(|before| before.checked_add(contiguous))
            });
            let packed = if several[i] && *batch > 1 { lines.saturating_mul(ld) } else { 0 };
            let stride = if strides[i] == 0 { packed } else { strides[i] };
            let others = u64::from((*batch).max(1) - 1).checked_mul(stride);
            let elements = one.zip(others).and_then(|(one, others)| one.checked_add(others));
            if elements.is_none_or(|elements| elements >= 1 << 48) {
                return invalid(format!("{} would have 2^48 elements or more, fewer were needed", NAMES[i]));
            }
            all[i] = [ld, stride];
        }
        Ok(all)
    }
}

/// A matrix of that many lines, one after the other where there are several.
fn lines(matrix: MatrixRef, count: u64, several: bool) -> MatrixRef {
    if several { matrix.every(count.saturating_mul(matrix.ld)) } else { matrix }
}
