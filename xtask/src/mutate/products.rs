//! The arguments of a launch for a kernel of any form, and the memory that they need.

use collective::{Form, Plan, Producer, Record};
use emulator::Memory;
use kernel::operands::{Layouts, Piece, Places};
use kernel::{Buffer, Call, GemmProblem, Launch, LaunchError, LinearArguments, MatrixRef};

use super::subject::Gemm;
use super::trial::{Purpose, Size};

/// The number of GEMMs of the problem's shape in a launch: 2 for batched kernels and for groups along K,
/// otherwise 1.
pub(super) fn count(gemm: &Gemm) -> u32 {
    if gemm.form().outputs() { 2 } else { 1 }
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
    let divided = if let Size::Divided { tiles, .. } = purpose.size {
        Some(tiles)
    } else {
        (purpose.size == Size::DividedShort).then_some(6)
    };
    // Not sorted by width.
    let mut groups: Vec<u32> = match divided {
        Some(tiles) => (0..tiles).map(|tile| rows(widths(plan) - 3 * tile % widths(plan))).collect(),
        None => (0..widths(plan)).map(|i| rows((3 * i) % widths(plan) + 1)).collect(),
    };
    groups.insert(1, 0);
    if purpose.odd && divided.is_none() {
        groups.push(plan.mainloop.tile[1] + step);
    }
    // More groups than a warp has lanes, so that several warps write the table. Most have no rows.
    if purpose.odd && purpose.size == Size::Small {
        groups.splice(4..4, [0; 32]);
    }
    // The last group has exactly one tile of the smallest width.
    if divided.is_none() {
        groups.push(step);
    }
    groups
}

/// The arguments of one launch.
pub(super) struct Products {
    call: Call,
    /// What the launch accesses, in the order of allocation.
    pub(super) memory: Vec<Piece>,
}

impl Products {
    /// The arguments of a problem. Rows begin at multiples of 16 bytes; for some purposes they do not.
    pub(super) fn new(gemm: &Gemm, problem: GemmProblem, purpose: Purpose) -> Self {
        let (plan, form, layouts) = (&gemm.plan(), gemm.form(), Layouts::of(gemm));
        let GemmProblem { m, n, k } = problem;
        // The copy width depends on the alignment of rows: 16, 8, 4 or 2 bytes.
        let padding = match (plan.mainloop.producer, purpose) {
            (Producer::Warpgroup, Purpose { size: Size::Small, beta, odd, .. }) => {
                [[0, 4], [1, 2]][usize::from(odd)][usize::from(beta == 0.0)]
            }
            _ => 0,
        };
        // Of groups of rows, the second has none. Of groups along K, the first has fewer k-tiles, or none.
        let third = plan.mainloop.tile[2];
        let k_first = k.div_ceil(third).saturating_sub(1) / 2 * third;
        let group = |m, k| GemmProblem { m, n, k };
        let groups: Vec<GemmProblem> = match form {
            Form::Single | Form::PointerArray => vec![problem],
            Form::Batched => vec![problem; count(gemm) as usize],
            Form::KGrouped => vec![group(m, k_first), group(m, k - k_first)],
            Form::GroupedContiguous if plan.balanced() => {
                fitted(plan, purpose).into_iter().map(|rows| group(rows, k)).collect()
            }
            Form::GroupedContiguous => [m / 2 + 3, 0, m - m / 2 - 3].map(|rows| group(rows, k)).to_vec(),
            // The first group fills its buffer.
            Form::GroupedMasked => [m, 0, m / 3 / 2 + 3].map(|rows| group(rows, k)).to_vec(),
        };
        let several = groups.len() as u32;
        let products = match form {
            Form::Single | Form::PointerArray => kernel::GroupedProblem::One,
            Form::Batched => kernel::GroupedProblem::Batched { count: several },
            Form::GroupedContiguous => {
                kernel::GroupedProblem::GroupedContiguous { count: several, offsets: 0 }
            }
            Form::GroupedMasked => {
                kernel::GroupedProblem::GroupedMasked { count: several, rows: 0, room: m / several }
            }
            Form::KGrouped => kernel::GroupedProblem::KGrouped { count: several, offsets: 0 },
        };
        let mut call = Call { products, ..layouts.packed(problem, 16) };
        for (i, operand) in [&mut call.a, &mut call.b].into_iter().enumerate() {
            operand.ld += if plan.call_operands()[i].weights.is_some() { 0 } else { padding };
        }
        let c = MatrixRef { ld: call.d.ld + u64::from(purpose.odd), ..call.d };
        // C is there even if it is not read.
        let c = (!purpose.in_place).then_some(c);
        // Alpha is 1 in some calls and another number in others.
        let alpha = if purpose.beta == 0.0 && !purpose.odd { 0.5 } else { 1.0 };
        call.epilogue = LinearArguments::of([alpha, 1.0], c);
        call = Call { workspace: None, ..layouts.apart(call) };
        let mut memory = Memory::new();
        let mut allocate = |bytes| memory.allocate(bytes);
        let mut places = Places::new(&mut allocate).with(products.table(&groups));
        if form == Form::PointerArray {
            call.visit(&layouts, &mut places);
            let matrices = [call.a, call.b, call.epilogue.c.unwrap_or(call.d), call.d];
            let [addresses, lds] = [matrices.map(|matrix| matrix.address), matrices.map(|matrix| matrix.ld)];
            let record = Record { m, n, k, addresses, lds }.to_bytes();
            let words = record.chunks_exact(4);
            places.words =
                words.map(|word| u32::from_le_bytes([word[0], word[1], word[2], word[3]])).collect();
            call.products = kernel::GroupedProblem::PointerArray { count: 1, records: 0 };
        }
        let bytes = gemm.workspace(&call, purpose.resident_clusters(plan));
        call.workspace = Some(Buffer::new(0, bytes));
        call.visit(&layouts, &mut places);
        if purpose.in_place {
            call.epilogue.c = Some(call.d);
        }
        call.epilogue.beta = purpose.beta;
        Self { call, memory: places.pieces }
    }

    /// The grid and the arguments for an engine with `resident` resident clusters.
    pub(super) fn launch(&self, gemm: &Gemm, resident: u32) -> Result<Option<Launch>, LaunchError> {
        gemm.launch(&self.call, resident)
    }
}
