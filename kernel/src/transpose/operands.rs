//! Which operands of a call must be transposed, and the call that uses their transposes.

use collective::{Format, MatrixRef};
use cute_rs::atom::Major;

use super::{Transpose, Transposition};
use crate::problem::GemmProblem;
use crate::products::GroupedProblem;
use crate::select::{Machine, Request};

/// A request whose operands all are in directions that instructions multiply, and the transposes that it
/// needs: see [`Request::k_major`].
#[derive(Clone, Debug, PartialEq)]
pub struct KMajorRequest<'a> {
    /// The same GEMMs, with the K-major transposes in place of the operands that are transposed.
    pub request: Request<'a>,
    /// How A and B are transposed, before the GEMM on its stream; `None` for an operand that is multiplied as it
    /// is.
    pub operands: [Option<(Transpose, Transposition)>; 2],
    /// Bytes of device memory for the transposes, from the address that was given.
    pub workspace: u64,
}

impl KMajorRequest<'_> {
    /// Whether no operand needs a transpose.
    pub fn is_empty(&self) -> bool {
        self.operands == [None; 2]
    }

    /// Bytes that the transposes read and write.
    pub fn traffic(&self) -> u64 {
        self.operands.iter().flatten().map(|(transpose, what)| transpose.traffic(what)).sum()
    }

    /// The model's time for the transposes, in microseconds.
    pub fn microseconds(&self, machine: &Machine) -> f64 {
        self.operands.iter().flatten().map(|(transpose, what)| transpose.microseconds(what, machine)).sum()
    }
}

/// Each transpose begins at a multiple of this number of bytes.
const ALIGNMENT: u64 = 128;

/// The kernel that transposes a format, if instructions multiply its elements only K-major.
fn along_k_alone(format: Format) -> Option<Transpose> {
    let by_wgmma = Format::operands().any(|operand| operand == format);
    let multiplied = format == Format::F64 || format.bits() != 16 && by_wgmma;
    Transpose::of(format).filter(|_| multiplied)
}

impl<'a> Request<'a> {
    /// The same request with K-major operands, where no instruction multiplies the given ones. These are
    /// operands of 8-bit elements, `tf32` or `f64` that are M-major or N-major. Their transposes are consecutive in
    /// device memory, from the address `workspace`, a multiple of 128 bytes. Their rows begin at multiples of
    /// 16 B.
    ///
    /// For GEMMs that device memory describes ([`GroupedProblem::PointerArray`]) nothing is transposed, because the host
    /// does not know their operands.
    ///
    /// ```
    /// use collective::Format;
    /// use cute_rs::atom::Major;
    /// use kernel::{GemmProblem, Machine, Request, fastest};
    ///
    /// let problem = GemmProblem { m: 4096, n: 4096, k: 4096 };
    /// let request = Request::packed(Format::E4m3, [Major::Mn, Major::K], problem);
    /// assert!(fastest(&request, &Machine::h200()).is_err());
    /// let first = request.k_major(1 << 20);
    /// assert_eq!((first.workspace, first.traffic()), (1 << 24, 1 << 25)); // A alone
    /// let multiply = fastest(&first.request, &Machine::h200()).expect("K-major").prediction.microseconds;
    /// assert!(first.microseconds(&Machine::h200()) < multiply);
    /// ```
    pub fn k_major(&self, workspace: u64) -> KMajorRequest<'a> {
        let mut all = KMajorRequest { request: *self, operands: [None; 2], workspace: 0 };
        if matches!(self.call.products, GroupedProblem::PointerArray { .. }) {
            return all;
        }
        let GemmProblem { m, n, k } = self.call.problem;
        let count = self.call.products.count();
        let (types, request) = (self.types, &mut all.request);
        let operands = [(types.a, m, &mut request.call.a), (types.b, n, &mut request.call.b)];
        for (i, (format, mn, matrix)) in operands.into_iter().enumerate() {
            let stored = types.weights[i].is_some() || types.sparse[i];
            let as_it_lies = self.majors[i] == Major::K || stored;
            let Some(transpose) = along_k_alone(format).filter(|_| !as_it_lies) else { continue };
            let bytes = u64::from(transpose.bytes());
            let ld = u64::from(k).next_multiple_of(16 / bytes);
            // One matrix if all GEMMs share it, or if the groups are parts of it.
            let one = matrix.stride == 0 || self.call.products.form().divides_k();
            let count = if one { count.min(1) } else { count };
            let stride = if one { 0 } else { (u64::from(mn) * ld).next_multiple_of(ALIGNMENT) };
            let d = MatrixRef::new(workspace + all.workspace, ld).every(stride);
            let what = Transposition { rows: k, columns: mn, count, a: *matrix, d };
            let each = if stride == 0 { u64::from(mn) * ld } else { stride * u64::from(count) };
            all.workspace += (each * bytes).next_multiple_of(ALIGNMENT);
            (*matrix, request.majors[i]) = (d, Major::K);
            all.operands[i] = Some((transpose, what));
        }
        all
    }
}
