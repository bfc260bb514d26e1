//! The memory that records of GEMMs of any shapes describe.

use collective::{Format, MatrixRef, Record};
use cute_rs::atom::Major;

use crate::operands::{Contents, Extents, Visit};
use crate::problem::GemmProblem;
use crate::products::GroupedProblem;
use crate::select::Request;

/// Visits A, B, C and D of each GEMM that records describe, and returns the records' words. Rows of A and B begin at multiples of 16 bytes,
/// and so do those of D, if all have such lengths; otherwise D begins at any element.
pub(super) fn describe(request: &Request<'_>, visit: &mut dyn Visit) -> Vec<u32> {
    let GroupedProblem::PointerArray { .. } = request.call.products else { return Vec::new() };
    let (types, groups) = (request.stored(), request.groups().unwrap_or_default());
    let unit = |format: Format| u64::from((16 / format.bytes()).max(1));
    let whole = groups.iter().all(|group| u64::from(group.n).is_multiple_of(unit(types.d)));
    let step = if whole { unit(types.d) } else { 1 };
    let record = |(i, GemmProblem { m, n, k }): (u64, GemmProblem)| {
        let operand = |which: usize, mn: u32| {
            let format = [types.a, types.b][which];
            let [lines, length] = if request.majors[which] == Major::K { [mn, k] } else { [k, mn] };
            let ld = u64::from(length).next_multiple_of(unit(format));
            (Contents::Multiplied(which, format), format, [lines, length], [0, ld])
        };
        let of_d = |contents, shift| (contents, types.d, [m, n], [shift * step, u64::from(n) + i % 3 * step]);
        let all = [
            ("A", operand(0, m)),
            ("B", operand(1, n)),
            ("C", of_d(Contents::Source(types.d), 0)),
            ("D", of_d(Contents::Output(types.d), i % 5)),
        ];
        let matrices = all.map(|(name, (contents, format, [lines, length], [shift, ld]))| {
            let mut matrix = MatrixRef::new(shift * u64::from(format.bytes()), ld);
            let (bits, length) = (format.bits(), length.into());
            let extents = Extents { bits, length, lines, count: 1, ..Extents::default() };
            visit.matrix(name, (contents, matches!(contents, Contents::Output(_))), &mut matrix, extents);
            matrix
        });
        let [addresses, lds] = [matrices.map(|matrix| matrix.address), matrices.map(|matrix| matrix.ld)];
        Record { m, n, k, addresses, lds }.to_bytes()
    };
    let bytes: Vec<u8> = (0..).zip(groups).flat_map(record).collect();
    bytes.chunks_exact(4).map(|word| u32::from_le_bytes([word[0], word[1], word[2], word[3]])).collect()
}
