//! A kernel with the arguments of its epilogue by name, whose launches are kept and moved to new addresses.
#![allow(unsafe_code, reason = "reads the caller's records")]

use std::sync::Arc;

use falchion::collective::tree::Shape;
use falchion::collective::{Format, Formula, Input, Record};
use falchion::cute_rs::atom::Major;
use falchion::kernel::driver::{Context, Loaded, Tuned, Tuning};
use falchion::kernel::operands::{Contents, EpilogueOf, Extents, Layouts, Memory, Visit, Visited};
use falchion::kernel::{
    AnyGemm, Buffer, Call, EngineError, GemmProblem, GroupedProblem, Kernel, Launch, LaunchError,
    LinearArguments, Program, Request,
};
use falchion::ptx::VerifyError;

use crate::host::Hosted;
use crate::picked::Offered;
use crate::slots::{Kind, Slot, slots};

/// The arguments of a call's epilogue.
#[derive(Clone, Debug)]
pub enum Epilogue {
    /// Alpha, beta and C.
    Linear(LinearArguments),
    /// Those of a text: one per [`Slot`], in their order, `None` where it is not given; and the number of GEMMs.
    Fused(Arc<[Slot]>, Vec<Option<Input>>, u32),
}

impl Visited for Epilogue {
    fn visit(&mut self, of: &EpilogueOf<'_>, visit: &mut dyn Visit) {
        match self {
            Self::Linear(linear) => linear.visit(of.d, of.format, visit),
            Self::Fused(slots, inputs, count) => {
                for (slot, input) in slots.iter().zip(inputs) {
                    visit.form(input.is_some().into());
                    if let Some(input) = input {
                        visit_input(*slot, input, *count, visit);
                    }
                }
            }
        }
    }
}

/// Visits an argument. `count` is the number of GEMMs.
fn visit_input(Slot { name, kind }: Slot, input: &mut Input, count: u32, visit: &mut dyn Visit) {
    let (bits, [lines, length], writes) = match kind {
        Kind::Memory { format, extents, writes, .. } => (format.bits(), extents, writes),
        Kind::Scalar | Kind::Scratch(_) | Kind::Mask => (8, [1, 0], true),
    };
    let contents = Contents::Elements(bits.div_ceil(8));
    let one = Extents { bits, length: length.into(), lines, ld: 0, count: 1, stride: 0 };
    let mut memory = |address: &mut u64, extents| {
        visit.memory(Memory { name, address, extents, contents, writes });
    };
    match input {
        Input::Scalar(number) => visit.factor(number),
        Input::Address(address) => memory(address, one),
        Input::Matrix(matrix) => {
            memory(&mut matrix.address, Extents { ld: matrix.ld, ..one });
            // Of several GEMMs, a tile reads rows that the next one's writes.
            if !writes && count == 1 {
                visit.in_place();
            }
            visit.length(&mut matrix.ld);
        }
        Input::Each { address, ld, stride } => {
            let stride_elements = *stride * 8 / u64::from(bits);
            memory(address, Extents { ld: *ld, count, stride: stride_elements, ..one });
            visit.length(ld);
            visit.length(stride);
        }
        Input::Scratch(scratch) => {
            memory(&mut scratch.address, Extents::line(8, scratch.bytes));
            visit.length(&mut scratch.bytes);
        }
        Input::Dropout(mask) => {
            visit.single(&mut mask.probability);
            visit.length(&mut mask.seed);
            visit.length(&mut mask.offset);
        }
        // No slot asks for another kind.
        _ => {}
    }
}

/// A kernel whose epilogue is linear or a formula.
#[derive(Clone, Debug)]
pub struct Described {
    gemm: AnyGemm,
    formula: Option<Formula>,
    slots: Arc<[Slot]>,
}

impl Described {
    fn new(gemm: AnyGemm, request: &Request<'_>) -> Self {
        let (formula, operand) = (request.fusion, gemm.plan().mainloop.operands[0].format);
        let all = formula.map_or_else(Vec::new, |formula| slots(formula, operand, shape_of(request)));
        Self { gemm, formula, slots: all.into() }
    }

    /// The kernel.
    pub fn gemm(&self) -> &AnyGemm {
        &self.gemm
    }

    /// What the epilogue's text takes; nothing without a text.
    pub fn slots(&self) -> &Arc<[Slot]> {
        &self.slots
    }

    /// The format that a formula's vectors have by default.
    fn operand(&self) -> Format {
        self.gemm.plan().mainloop.operands[0].format
    }
}

impl Kernel<Call<Epilogue>> for Described {
    fn program(&self) -> Result<Program, VerifyError> {
        self.gemm.program()
    }

    fn workspace(&self, call: &Call<Epilogue>, slots: u32) -> u64 {
        self.gemm.workspace(call, slots)
    }

    fn lend_workspace(&self, call: &mut Call<Epilogue>, workspace: Option<Buffer>) {
        call.workspace = workspace;
    }

    fn total_work(&self, call: &Call<Epilogue>) -> u128 {
        let linear = match &call.epilogue {
            Epilogue::Linear(linear) => *linear,
            Epilogue::Fused(..) => LinearArguments::default(),
        };
        self.gemm.total_work(&call.clone().with(linear))
    }

    fn launch(&self, call: &Call<Epilogue>, slots: u32) -> Result<Option<Launch>, LaunchError> {
        let arguments = match (&call.epilogue, self.formula) {
            (Epilogue::Linear(linear), _) => return self.gemm.launch(&call.clone().with(*linear), slots),
            (Epilogue::Fused(..), None) => {
                let epilogue = "a text".to_owned();
                return Err(LaunchError::NotLinear { epilogue });
            }
            (Epilogue::Fused(slots, inputs, _), Some(formula)) => {
                let given = slots.iter().zip(inputs);
                let given: Vec<_> = given.filter_map(|(slot, input)| Some((slot.name, (*input)?))).collect();
                let problem = call.problem;
                let shape = Shape { m: problem.m, n: problem.n >> formula.halvings() };
                formula.bind(self.operand(), shape, &given)?
            }
        };
        self.gemm.launch(&call.clone().with(arguments), slots)
    }

    fn visit(&self, call: &mut Call<Epilogue>, visit: &mut dyn Visit) {
        let multiplied = match &call.epilogue {
            Epilogue::Linear(linear) => linear.multiplied(),
            Epilogue::Fused(..) => true,
        };
        call.visit(&Layouts { multiplied, ..Layouts::of(&self.gemm) }, visit);
    }
}

impl Offered for AnyGemm {
    type Runs = Described;
    type Arguments = Call<Epilogue>;
    const BY_CARD: bool = true;

    fn runs(self, request: &Request<'_>) -> Described {
        Described::new(self, request)
    }

    fn text(&self) -> String {
        self.entry_name()
    }

    fn measure(
        context: &Arc<Context>,
        request: &Request<'_>,
        tuning: Tuning,
    ) -> Result<Tuned<Self>, EngineError> {
        let Some(formula) = request.fusion else { return Loaded::tuned(context, request, tuning) };
        let (operand, shape) = (request.types.a, shape_of(request));
        let slots = slots(formula, operand, shape);
        let given: Vec<_> = slots.iter().map(|slot| (slot.name, slot.placeholder())).collect();
        let arguments = formula.bind(operand, shape, &given).map_err(|error| {
            let kernel = formula.name().to_owned();
            EngineError::Call { kernel, source: LaunchError::Problem { reason: error.to_string() } }
        })?;
        Loaded::tuned_with(context, request, &arguments, tuning)
    }
}

/// The extents of D.
fn shape_of(request: &Request<'_>) -> Shape {
    let GemmProblem { m, n, .. } = request.call.problem;
    Shape { m, n: n >> request.fusion.map_or(0, |formula| formula.halvings()) }
}

impl Hosted<Call<Epilogue>> for Described {
    fn check_tables(
        &self,
        call: &Call<Epilogue>,
        read: &dyn Fn(u64, u64) -> Vec<u32>,
    ) -> Result<(), LaunchError> {
        let (table, count) = match call.products {
            GroupedProblem::GroupedContiguous { count, offsets }
            | GroupedProblem::KGrouped { count, offsets } => (offsets, u64::from(count) + 1),
            GroupedProblem::GroupedMasked { count, rows, .. } => (rows, count.into()),
            GroupedProblem::One | GroupedProblem::Batched { .. } | GroupedProblem::PointerArray { .. } => {
                return Ok(());
            }
        };
        let [.., step] = self.gemm.plan().mainloop.tile;
        call.products.check_table(call.problem, step, &read(table, count))
    }

    unsafe fn records(&self, call: &Call<Epilogue>) -> Vec<Record> {
        let GroupedProblem::PointerArray { count, records } = call.products else { return Vec::new() };
        let first = core::ptr::with_exposed_provenance::<u64>(records as usize);
        let word = |i: usize, word: usize| {
            // SAFETY: the caller guarantees that the records can be read; the launch has checked their address.
            unsafe { first.add(10 * i + word).read_unaligned() }
        };
        let record = |i: usize| Record {
            m: word(i, 0) as u32,
            n: (word(i, 0) >> 32) as u32,
            k: word(i, 1) as u32,
            addresses: [2, 3, 4, 5].map(|at| word(i, at)),
            lds: [6, 7, 8, 9].map(|at| word(i, at)),
        };
        (0..count as usize).map(record).collect()
    }

    fn visit_records(&self, call: &Call<Epilogue>, records: &mut [Record], visit: &mut dyn Visit) {
        let [of_a, of_b, of_d] = self.gemm.formats();
        let [a, b] = self.gemm.plan().majors();
        let halvings = self.formula.map_or(0, |formula| formula.halvings());
        let beta = match &call.epilogue {
            Epilogue::Linear(linear) => linear.beta != 0.0,
            Epilogue::Fused(slots, inputs, _) => slots.iter().zip(inputs).any(|(slot, input)| {
                slot.name == "beta" && !matches!(input, None | Some(Input::Scalar(0.0)))
            }),
        };
        for Record { m, n, k, addresses, lds } in records {
            let turned = |major, mn: u32| if major == Major::K { [mn, *k] } else { [*k, mn] };
            let columns = *n >> halvings;
            let shapes = [turned(a, *m), turned(b, *n), [if beta { *m } else { 0 }, columns], [*m, columns]];
            let formats = [of_a, of_b, of_d, of_d];
            for (i, (name, format)) in ["A", "B", "C", "D"].into_iter().zip(formats).enumerate() {
                let [lines, length] = shapes[i];
                let bits = format.bits();
                let extents = Extents { bits, length: length.into(), lines, ld: lds[i], count: 1, stride: 0 };
                let contents = Contents::Elements(bits.div_ceil(8));
                visit.memory(Memory { name, address: &mut addresses[i], extents, contents, writes: i == 3 });
                if i == 2 {
                    visit.in_place();
                }
            }
        }
    }

    fn move_records(&self, call: &mut Call<Epilogue>, address: u64) {
        call.products = call.products.at(address);
    }
}
