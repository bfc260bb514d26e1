//! What described GEMMs ask for.

use falchion::collective::{
    BlockScales, Format, Formula, GroupScales, LinearArguments, MatrixRef, sparse, weights,
};
use falchion::cute_rs::atom::Major;
use falchion::kernel::{Call, GemmProblem, GroupedProblem, Request, Types};

use super::gemm::{Gemms, RECORDS};
use crate::refusal::{Refusal, aligned};
use crate::unused::{OptionalArgument, refuse_unused};
use crate::words::{formula, majors, types};

/// The names of the matrices, in the order of the arguments.
const NAMES: [&str; 4] = ["a", "b", "c", "d"];

/// What a description asks for.
#[derive(Clone, Debug)]
pub struct Asked {
    /// The request for a kernel.
    pub request: Request<'static>,
    /// C, as the request's call has the other matrices.
    pub c: MatrixRef,
}

impl Gemms {
    /// The request, and C.
    ///
    /// # Errors
    /// The first argument that is wrong.
    pub fn asked(&self) -> Result<Asked, Refusal> {
        let Self { extents: [m, n, k], batch, alignment, form, room, reproducible, .. } = *self;
        let (types, said) = types(&self.types)?;
        let majors = majors(if self.layout.is_empty() { "kk" } else { &self.layout })?;
        if alignment != 0 && !alignment.is_power_of_two() {
            return Err(Refusal::Invalid(format!(
                "alignment is {alignment}, 0 or a power of two was needed"
            )));
        }
        let fusion = self.epilogue.as_ref().map(|text| formula(text, types.a, said)).transpose()?;
        let count = batch.max(1);
        let table = aligned(16);
        let products = match form {
            0 if batch > 1 => GroupedProblem::Batched { count },
            0 => GroupedProblem::One,
            1 => GroupedProblem::GroupedContiguous { count, offsets: table },
            2 => GroupedProblem::GroupedMasked { count, rows: table, room },
            3 => GroupedProblem::KGrouped { count, offsets: table },
            RECORDS => GroupedProblem::PointerArray { count, records: table },
            other => {
                let words = format!("form is {other}, a falchion_form from 0 to {RECORDS} was needed");
                return Err(Refusal::Invalid(words));
            }
        };
        let types = fusion.map_or(types, |formula| types.stored(formula.output(types.a)));
        self.check_records(types)?;
        let places = self.places(types, majors, fusion)?;
        // What belongs to an operand of several GEMMs is there once for each.
        let several = [0, 1].map(|i| places[i][1] > 0);
        let alignment = if alignment == 0 { 256 } else { alignment.min(256) };
        let [a, b, c, d] = [(0, types.a), (1, types.b), (2, types.d), (3, types.d)].map(|(i, format)| {
            let [ld, stride] = places[i];
            // A multiple of the alignment, and of no more; an element is aligned in any case.
            MatrixRef { address: aligned(alignment.max(format.bytes())), ld, stride }
        });
        let request = Request::packed(types, majors, GemmProblem { m, n, k });
        let mut request = Request { fusion, reproducible, ..request };
        for (i, part) in
            [OptionalArgument::Scales(0), OptionalArgument::Scales(1), OptionalArgument::GroupScales]
                .into_iter()
                .enumerate()
        {
            let (field, ld) = (["ld_scale_a", "ld_scale_b", "ld_group_scales"][i], self.scale_lds[i]);
            refuse_unused(field, ld, ld != 0, part.unused(&request, &[]), "0")?;
        }
        request.call = Call {
            a,
            b,
            d,
            products,
            scales: types.is_scaled().then(|| self.scales(types, several)),
            group_scales: self.group_scales(types, several),
            metadata: types.has_sparse().then(|| {
                let i = usize::from(!types.sparse[0]);
                let ld = sparse::metadata_ld([types.a, types.b][i], k);
                lines(MatrixRef::new(table, ld), [m, n][i].div_ceil(sparse::ROWS).into(), several[i])
            }),
            epilogue: LinearArguments::default(),
            ..request.call
        };
        Ok(Asked { request, c })
    }

    /// That records say where the matrices are, if there are any.
    fn check_records(&self, types: Types) -> Result<(), Refusal> {
        let Self { alignment, lds, strides, types: named, .. } = self;
        let plain = types.dense() == types && !types.is_scaled();
        if self.form != RECORDS
            || plain && *lds == [0; 4] && *strides == [0; 4] && alignment.is_multiple_of(16)
        {
            return Ok(());
        }
        Err(Refusal::Invalid(format!(
            "form is FALCHION_POINTER_ARRAYS with types {named}, leading dimensions {lds:?}, strides {strides:?} and alignment {alignment}: \
             formats alone, zeros, and 0 or a multiple of 16 were needed, because the records say the rest"
        )))
    }

    fn scales(&self, types: Types, several: [bool; 2]) -> BlockScales {
        let packed = BlockScales::packed_extents(self.extents, types.scaled);
        let scales = BlockScales::packed([aligned(16); 2], packed);
        let of = |i: usize, matrix: MatrixRef| {
            let ld = if self.scale_lds[i] == 0 { matrix.ld } else { self.scale_lds[i] };
            lines(MatrixRef { ld, ..matrix }, packed[i][0], several[i])
        };
        BlockScales { a: of(0, scales.a), b: of(1, scales.b) }
    }

    fn group_scales(&self, types: Types, several: [bool; 2]) -> Option<GroupScales> {
        let [m, n, k] = self.extents;
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

    /// Which matrices there are several of: those of a batch, the Bs of groups of rows, the Ds of groups along K.
    pub(super) const fn several(&self) -> [bool; 4] {
        match self.form {
            0 => [true; 4],
            1 | 2 => [false, true, false, false],
            3 => [false, false, true, true],
            _ => [false; 4],
        }
    }

    /// Leading dimension and stride of A, B, C and D.
    fn places(
        &self,
        types: Types,
        majors: [Major; 2],
        fusion: Option<Formula>,
    ) -> Result<[[u64; 2]; 4], Refusal> {
        let [m, n, k] = self.extents.map(u64::from);
        let [.., of_k] = self.extents;
        let operand = |i: usize, mn: u64, format: Format| match (types.weights[i], types.sparse[i], majors[i])
        {
            (Some(of), ..) => [mn.next_multiple_of(64), weights::ld(of.code, of_k)],
            (None, true, _) => [mn, sparse::kept(format, of_k).into()],
            (None, false, Major::K) => [mn, k],
            (None, false, Major::Mn) => [k, mn],
        };
        let columns = n >> fusion.map_or(0, |formula| formula.halvings());
        // Contiguous lines, and the elements of one line.
        let extents = [operand(0, m, types.a), operand(1, n, types.b), [m, columns], [m, columns]];
        let several = self.several();
        let mut all = [[0; 2]; 4];
        for (i, [lines, contiguous]) in extents.into_iter().enumerate() {
            let Self { lds, strides, batch, .. } = self;
            let ld = if lds[i] == 0 { contiguous } else { lds[i] };
            if ld < contiguous {
                let words = format!("ld{} is {ld}, {contiguous} or more was needed", NAMES[i]);
                return Err(Refusal::Invalid(words));
            }
            let one = lines.checked_sub(1).map_or(Some(0), |before| {
                before.checked_mul(ld).and_then(|before| before.checked_add(contiguous))
            });
            let packed = if several[i] && *batch > 1 { lines.saturating_mul(ld) } else { 0 };
            let stride = if strides[i] == 0 { packed } else { strides[i] };
            let others = u64::from((*batch).max(1) - 1).checked_mul(stride);
            let elements = one.zip(others).and_then(|(one, others)| one.checked_add(others));
            if elements.is_none_or(|elements| elements >= 1 << 48) {
                let words = format!("{} would have 2^48 elements or more, fewer were needed", NAMES[i]);
                return Err(Refusal::Invalid(words));
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
