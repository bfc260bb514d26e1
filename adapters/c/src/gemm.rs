//! The kernel object of the C interface: chosen, loaded, launched, emulated.

use core::ffi::c_void;
use std::ffi::CString;

use falchion::collective::{Input, LinearArguments};
use falchion::kernel::{AnyGemm, Call, GroupedProblem};
use falchion_core::{
    Asked, Epilogue, GEMM, Gemms, INPUT, Kind, NamedInput, OptionalArgument, Picked, ProductRun, Slot, bind,
    refuse_unused,
};

use crate::fields::Values;
use crate::object::{Choice, Object, failed};
use crate::{Failure, invalid, text};

/// A kernel for GEMMs of one shape: `falchion_gemm`.
pub struct Gemm {
    pub(crate) name: CString,
    pub(crate) ptx: CString,
    gemm: Picked<AnyGemm>,
    asked: Asked,
    /// Size of the caller's structure of arguments; 0 for its first version.
    args_size: usize,
}

impl core::fmt::Debug for Gemm {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Gemm").field("name", &self.name).finish_non_exhaustive()
    }
}

impl Gemm {
    /// A kernel that is chosen, or with a budget measured.
    ///
    /// # Safety
    /// The description is null, or has as many bytes as its size says, and its strings are null or end in a zero.
    pub(crate) unsafe fn new(description: *const c_void, budget: Option<u32>) -> Result<Self, Failure> {
        // SAFETY: the caller guarantees it.
        let values = unsafe { Values::sized(GEMM.described, description) }?;
        let mut product = Gemms::default();
        GEMM.described.say(&mut product, &values.all, GEMM.without)?;
        let asked = product.asked()?;
        let request = &asked.request;
        let gemm = Choice::of(&values, budget).kernel::<AnyGemm>(request)?;
        let slots = gemm.kernel().slots();
        let ordered = slots.iter().find(|slot| matches!(slot.kind, Kind::Scratch(_)));
        if let Some(Slot { name, .. }) = ordered {
            return invalid(format!(
                "epilogue: `{name}` is memory for sums in a fixed order, which this interface does not pass: use reduce_sum"
            ));
        }
        let why = OptionalArgument::C.unused(request, slots);
        let each = |slot: &Slot| matches!(slot.kind, Kind::Memory { each: true, .. });
        let shared = request.fusion.is_some() && !slots.iter().any(|slot| slot.name == "c" && each(slot));
        let of_stride =
            shared.then_some("the epilogue's c is one matrix for all GEMMs; c[l,m,n] is one for each");
        let (ld, stride) = (product.lds[2], product.strides[2]);
        refuse_unused("ldc", ld, ld != 0, why, "0")?;
        refuse_unused("stride_c", stride, stride != 0, why.or(of_stride), "0")?;
        let own = ["alpha", "beta", "c"];
        let types = request.types;
        let later = match request.call.products {
            GroupedProblem::One | GroupedProblem::Batched { .. } => None,
            _ => Some("groups"),
        };
        let later = later
            .or(slots.iter().any(|slot| !own.contains(&slot.name)).then_some("inputs"))
            .or(types.has_weights().then_some("group_scales"))
            .or(types.is_scaled().then_some("scale_a and scale_b"))
            .or(types.has_sparse().then_some("metadata"));
        let args_size = values.number("args_size") as usize;
        if let Some(field) = later.filter(|_| args_size == 0) {
            let (_, needed) = GEMM.given.laid_out();
            return invalid(format!(
                "args_size is 0, sizeof({}), {needed}, was needed, which covers {field}",
                GEMM.given.name
            ));
        }
        let program = gemm.program().map_err(|error| failed(&error))?;
        Ok(Self { name: text(gemm.name()), ptx: text(program.text()), gemm, asked, args_size })
    }

    /// The arguments of the epilogue's text that are given by name.
    ///
    /// # Safety
    /// As [`call`](Self::call).
    unsafe fn inputs(&self, values: &Values<'_, ProductRun>) -> Result<Vec<(usize, Input)>, Failure> {
        let [address, count, size] =
            ["inputs", "input_count", "input_size"].map(|name| values.number(name) as usize);
        if address == 0 && count > 0 {
            return invalid(format!("inputs is NULL and input_count {count}, an array was needed"));
        }
        // Who knows the field has the structure of today, who does not has that of the first version.
        let known = self.args_size > GEMM.given.offset("input_size");
        let first = INPUT.offset(INPUT.later);
        let size = match size {
            0 if known => INPUT.laid_out().1,
            0 => first,
            size => size,
        };
        let inputs = core::ptr::with_exposed_provenance::<c_void>(address);
        let one = |i: usize| {
            // SAFETY: the caller guarantees that number of them, of that size.
            let values = unsafe { Values::read(INPUT, inputs.byte_add(i * size), size) }?;
            let mut input = NamedInput::new(self.gemm.kernel().slots().clone());
            let name = values.text("name").unwrap_or("NULL");
            let said = INPUT.say(&mut input, &values.all, &[]);
            said.map_err(|refusal| refusal.of(&format!("input `{name}`")))?;
            Ok(input.input()?)
        };
        (0..count).map(one).collect()
    }

    pub(crate) fn microseconds(&self) -> f64 {
        self.gemm.microseconds()
    }

    pub(crate) fn workspace(&self) -> Result<u64, Failure> {
        self.card()?;
        let linear = Epilogue::Linear(LinearArguments::default());
        Ok(self.gemm.workspace(&self.asked.request.call.with(linear)).unwrap_or(0))
    }
}

impl Object for Gemm {
    const NAME: &'static str = "gemm";
    const NOT_LOADED: &'static str = "the kernel is not loaded: call falchion_gemm_load first";
    type Family = AnyGemm;

    fn picked(&self) -> &Picked<AnyGemm> {
        &self.gemm
    }

    unsafe fn call(&self, arguments: *const c_void) -> Result<Call<Epilogue>, Failure> {
        // SAFETY: the caller guarantees it.
        let values = unsafe { Values::given(GEMM.given, arguments, self.args_size) }?;
        let kernel = self.gemm.kernel();
        let mut given = ProductRun::new(self.asked.clone(), kernel.slots().clone());
        let memory = GEMM.given.say(&mut given, &values.all, &[])?;
        let ProductRun { alpha, beta, .. } = given;
        let epilogue = match self.asked.request.fusion {
            None => {
                let c = (beta != 0.0).then_some(given.asked.c);
                Epilogue::Linear(LinearArguments::of([alpha, beta], c))
            }
            Some(_) => {
                // SAFETY: the caller guarantees it.
                let inputs = given.inputs(&unsafe { self.inputs(&values) }?)?;
                let count = given.asked.request.call.products.count();
                Epilogue::Fused(kernel.slots().clone(), inputs, count)
            }
        };
        let mut call = given.asked.request.call;
        bind(kernel.gemm(), &mut call, &memory)?;
        call.workspace = values.workspace()?;
        Ok(call.with(epilogue))
    }
}
