//! The arguments of a launch for a kernel of any form, and the memory that they need.

use collective::{
    BlockScales, Form, Format, GroupScales, Plan, Producer, Record, WeightsSpec, sparse, weights,
};
use cute_rs::atom::Major;
use emulator::Memory;
use kernel::{Call, GemmProblem, Launch, LaunchError, LinearArguments, MatrixRef, WorkspaceRef};

use super::subject::Gemm;
use super::trial::{Purpose, Size};

/// The number of GEMMs of the problem's shape in a launch: 2 for batched kernels and for groups along K,
/// otherwise 1.
pub(super) fn count(gemm: &Gemm) -> u32 {
    if gemm.form().outputs() { 2 } else { 1 }
}

/// The formats of A, B, C and D.
pub(super) fn formats(gemm: &Gemm) -> [Format; 4] {
    let [a, b, d] = gemm.formats();
    [a, b, d, d]
}

/// The number of tile widths of a kernel; 1 if its tiles are not narrowed.
pub(super) fn widths(plan: &Plan) -> u32 {
    plan.mainloop.tile[1].checked_div(plan.mainloop.step).unwrap_or(1)
}

/// The rows of each group for a kernel that narrows tiles. Each width of tile occurs. The last tile of a
/// group is partial, or for an odd purpose whole; an odd purpose also has a group of two tiles. One group has
/// no rows, and the last group has the rows of the narrowest tile.
pub(super) fn fitted(plan: &Plan, purpose: Purpose) -> Vec<u32> {
    let step = plan.mainloop.step;
    let rows = |width: u32| width * step - if purpose.odd { 0 } else { 5 };
    let mut groups: Vec<u32> = if let Size::Divided { tiles, .. } = purpose.size {
        (0..tiles).map(|tile| rows(widths(plan) - 3 * tile)).collect()
    } else {
        // Not sorted by width.
        (0..widths(plan)).map(|i| rows((3 * i) % widths(plan) + 1)).collect()
    };
    groups.insert(1, 0);
    if purpose.odd && !matches!(purpose.size, Size::Divided { .. }) {
        groups.push(plan.mainloop.tile[1] + step);
    }
    // More groups than a warp has lanes, so that several warps write the table. Most have no rows.
    if purpose.odd && purpose.size == Size::Small {
        groups.splice(4..4, [0; 32]);
    }
    // The last group has exactly one tile of the smallest width.
    if !matches!(purpose.size, Size::Divided { .. }) {
        groups.push(step);
    }
    groups
}

/// The arguments of one launch.
pub(super) struct Products {
    call: Call,
    /// Elements of A, B, C and D.
    pub(super) extents: [usize; 4],
    /// Bytes of the workspace.
    pub(super) workspace: usize,
    /// The offsets of groups of rows or along K, the rows per group, or the words of the record of a GEMM.
    pub(super) offsets: Vec<u32>,
    /// Number of block scales of A and of B.
    pub(super) scales: [usize; 2],
    /// Number of scales and of zero points of low-bit weights, each of 16 bits.
    pub(super) groups: [usize; 2],
    /// Number of words of a sparse operand's metadata.
    pub(super) metadata: usize,
}

impl Products {
    /// The arguments of a problem. Leading dimensions are multiples of 16 elements, plus padding for some
    /// purposes.
    pub(super) fn new(gemm: &Gemm, problem: GemmProblem, purpose: Purpose) -> Self {
        let plan = &gemm.plan();
        let GemmProblem { m, n, k } = problem;
        let pitch = |extent: u32| extent.max(1).next_multiple_of(16);
        // The copy width depends on the alignment of rows: 16, 8, 4 or 2 bytes.
        let padding = match (plan.mainloop.producer, purpose) {
            (Producer::Warpgroup, Purpose { size: Size::Small, beta, odd, .. }) => {
                [[0, 4], [1, 2]][usize::from(odd)][usize::from(beta == 0.0)]
            }
            _ => 0,
        };
        let shape = |major, mn| match major {
            Major::K => [mn, pitch(k) + padding],
            Major::Mn => [k, pitch(mn) + padding],
        };
        let c = [m, pitch(n) + u32::from(purpose.odd)];
        let [a_major, b_major] = plan.majors();
        // Low-bit weights: rows in units of 64, and the leading dimension of their format.
        let in_units = |shape: [u32; 2], weights: Option<WeightsSpec>| match weights {
            Some(weights) => [
                shape[0].next_multiple_of(64),
                u32::try_from(weights::pitch(weights.code, k)).unwrap_or(u32::MAX),
            ],
            None => shape,
        };
        let [of_a, of_b] = plan.weights();
        let [a, b] = [in_units(shape(a_major, m), of_a), in_units(shape(b_major, n), of_b)];
        let shapes = [a, b, c, [m, pitch(n)]];
        let each = shapes.map(|[rows, pitch]| rows as usize * pitch as usize);
        let form = gemm.form();
        // The second group has no rows.
        let groups = if plan.balanced() { fitted(plan, purpose) } else { vec![m / 2 + 3, 0, m - m / 2 - 3] };
        let of_each = match form {
            Form::Single | Form::Grouped => [1; 4],
            Form::Batched => [count(gemm) as usize; 4],
            Form::Ragged | Form::Masked => [1, groups.len(), 1, 1],
            Form::KGrouped => [1, 1, count(gemm) as usize, count(gemm) as usize],
        };
        let [a, b, c, d] = [0, 1, 2, 3].map(|matrix| each[matrix] * of_each[matrix]);
        // The emulator's memory returns the same addresses for the same sizes in the same order.
        let mut memory = Memory::new();
        let extents = [a, b, c, d];
        let bytes = formats(gemm).map(|format| format.bytes() as usize);
        let places = [0, 1, 2, 3].map(|at| memory.allocate(extents[at] * bytes[at]));
        let matrix = |at: usize| MatrixRef::new(places[at], shapes[at][1].into());
        let slots = purpose.slots(plan);
        let [a_ref, b_ref, c_ref, d_ref] =
            [0, 1, 2, 3].map(|at| matrix(at).every(if of_each[at] > 1 { each[at] as u64 } else { 0 }));
        let c_ref = if purpose.in_place { d_ref } else { c_ref };
        let linear = LinearArguments { beta: purpose.beta, c: Some(c_ref), ..LinearArguments::default() };
        let products = |table| match form {
            Form::Single => kernel::Products::One,
            Form::Batched => kernel::Products::Batched { count: count(gemm) },
            Form::Ragged => kernel::Products::Ragged { count: groups.len() as u32, offsets: table },
            Form::Masked => {
                let count = groups.len() as u32;
                kernel::Products::Masked { count, rows: table, room: m / count }
            }
            Form::KGrouped => kernel::Products::KGrouped { count: count(gemm), offsets: table },
            Form::Grouped => kernel::Products::Grouped { count: 1, records: table },
        };
        let call = Call { products: products(0), a: a_ref, b: b_ref, d: d_ref, ..Call::of(problem) };
        let bytes = gemm.workspace(&call, slots);
        let of_workspace = usize::try_from(bytes).unwrap_or(0);
        let address = memory.allocate(of_workspace);
        let offsets = match form {
            // The first group fills its buffer, and the second group has no rows.
            Form::Masked => vec![m, 0, m / groups.len() as u32 / 2 + 3],
            Form::Single | Form::Batched | Form::Ragged => {
                let ends = groups.iter().scan(0, |end, rows| {
                    *end += rows;
                    Some(*end)
                });
                core::iter::once(0).chain(ends).collect::<Vec<u32>>()
            }
            // The first group has one k-tile less than the second, or is empty.
            Form::KGrouped => {
                let tile = plan.mainloop.tile[2];
                vec![0, k.div_ceil(tile).saturating_sub(1) / 2 * tile, k]
            }
            Form::Grouped => {
                let matrices = [a_ref, b_ref, c_ref, d_ref];
                let [addresses, pitches] =
                    [matrices.map(|matrix| matrix.address), matrices.map(|matrix| matrix.pitch)];
                let bytes = Record { m, n, k, addresses, pitches }.to_bytes();
                let words = bytes.chunks_exact(4);
                words.map(|word| u32::from_le_bytes([word[0], word[1], word[2], word[3]])).collect()
            }
        };
        let table = memory.allocate(offsets.len() * 4);
        let workspace = Some(WorkspaceRef { address, bytes });
        let scaled = BlockScales::packed_extents([m, n, k], plan.scaled());
        let each = scaled.map(|[outer, pitch]| outer as usize * pitch as usize);
        let of_scales = match plan.mainloop.is_scaled() {
            true => [0, 1].map(|i| each[i] * of_each[i]),
            false => [0; 2],
        };
        let at = of_scales.map(|scales| memory.allocate(scales * 4));
        let stride = |i: usize| if of_each[i] > 1 { each[i] as u64 } else { 0 };
        let BlockScales { a, b } = BlockScales::packed(at, scaled);
        let scales = BlockScales { a: a.every(stride(0)), b: b.every(stride(1)) };
        let scales = plan.mainloop.is_scaled().then_some(scales);
        let (weights, rows) = if of_a.is_some() { (of_a, m) } else { (of_b, n) };
        let each = weights.map_or(0, |weights| {
            if weights.group == 0 { 0 } else { k.div_ceil(weights.group) as usize * pitch(rows) as usize }
        });
        let of_groups = [each, if weights.is_some_and(|weights| weights.zeros) { each } else { 0 }];
        let of_groups = of_groups.map(|each| each * of_each[usize::from(of_a.is_none())]);
        let at = of_groups.map(|elements| memory.allocate(elements * 2));
        let stride = if of_each[usize::from(of_a.is_none())] > 1 { each as u64 } else { 0 };
        let [scales_at, zeros_at] =
            at.map(|address| MatrixRef::new(address, pitch(rows).into()).every(stride));
        let group_scales = (each > 0).then_some(GroupScales { scales: scales_at, zeros: zeros_at });
        let of_b = plan.sparse()[1];
        let line = sparse::metadata_pitch(plan.mainloop.operands[0].format, k);
        let each = if of_b { n } else { m }.div_ceil(sparse::ROWS) as usize * line as usize;
        let words = if plan.mainloop.is_sparse() { each * of_each[usize::from(of_b)] } else { 0 };
        let stride = if of_each[usize::from(of_b)] > 1 { each as u64 } else { 0 };
        let metadata = MatrixRef::new(memory.allocate(words * 4), line.into()).every(stride);
        let metadata = (words > 0).then_some(metadata);
        let call = Call { products: products(table), workspace, scales, group_scales, metadata, ..call }
            .with(linear);
        Self {
            call,
            extents,
            workspace: of_workspace,
            offsets,
            scales: of_scales,
            groups: of_groups,
            metadata: words,
        }
    }

    /// The grid and the arguments for an engine with `slots` resident clusters.
    pub(super) fn launch(&self, gemm: &Gemm, slots: u32) -> Result<Option<Launch>, LaunchError> {
        gemm.launch(&self.call, slots)
    }
}
