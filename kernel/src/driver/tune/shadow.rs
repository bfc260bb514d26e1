//! A copy of an epilogue's arguments that points to memory of its own. The memory that the caller's arguments
//! point to is neither read nor written.

use core::cell::RefCell;

use collective::MatrixRef;
use collective::tree::{Path, Reach};

use crate::arguments::Arguments;
use crate::buffer::Buffer;
use crate::engine::Engine;
use crate::error::EngineError;
use crate::gemm::AnyGemm;
use crate::launch::Made;
use crate::problem::{Call, Launch};
use crate::products::GroupedProblem;
use crate::program::Program;

/// Zeroed memory in place of what a call's epilogue accesses.
#[derive(Debug, Default)]
pub(super) struct Shadow {
    spans: Vec<Span>,
}

/// A range that the caller's arguments point to, and the memory in its place.
#[derive(Clone, Copy, Debug)]
struct Span {
    address: u64,
    bytes: u64,
    own: Buffer,
}

/// Allocations are multiples of this number of bytes, and keep an address's offset from such a multiple.
const ALIGNMENT: u64 = 256;

/// An address where no memory is.
const NOWHERE: u64 = 1 << 60;

impl Shadow {
    /// Allocates memory for what the epilogue of a kernel accesses with some arguments, as far as it reports
    /// it.
    ///
    /// # Errors
    /// The kernel's epilogue rejects the arguments, or the card has too little memory.
    pub(super) fn new<E: Arguments + Clone>(
        engine: &mut dyn Engine,
        gemm: &AnyGemm,
        call: &Call<E>,
        groups: &[crate::GemmProblem],
    ) -> Result<Self, EngineError> {
        let told = RefCell::new(Vec::<(u64, u64)>::new());
        let note = |address, bytes, _writes| {
            told.borrow_mut().push((address, bytes));
            true
        };
        let refused = |source| EngineError::Call { kernel: gemm.entry_name(), source };
        let (count, multiplied) = (call.products.count(), call.epilogue.multiplied());
        let check = |product: &Call<E>, count| {
            let reach = Reach::new(count, &note);
            gemm.checked(product, multiplied, &Path::within(&reach)).map(|_| ()).map_err(refused)
        };
        if let GroupedProblem::PointerArray { .. } = call.products {
            // Records hold the addresses of the matrices, C among them. These are only legal ones to check.
            let place = MatrixRef::new(NOWHERE, 1 << 31);
            for &problem in groups {
                let (a, b, d) = (place, place, place);
                let product = Call { problem, products: GroupedProblem::One, a, b, d, ..call.clone() };
                check(&product.with(call.epilogue.clone().with_c(place)), 1)?;
            }
        } else {
            check(call, count)?;
        }
        let mut spans = Self::default();
        for (address, bytes) in told.into_inner().into_iter().filter(|&(address, _)| address != NOWHERE) {
            spans.cover(engine, address, bytes)?;
        }
        Ok(spans)
    }

    fn find(&self, address: u64) -> Option<&Span> {
        self.spans.iter().find(|span| (span.address..span.address + span.bytes).contains(&address))
    }

    /// Allocates memory for `bytes` bytes at an address, unless there is some already.
    fn cover(&mut self, engine: &mut dyn Engine, address: u64, bytes: u64) -> Result<(), EngineError> {
        let covered = self.find(address).is_some_and(|span| address + bytes <= span.address + span.bytes);
        if bytes == 0 || covered {
            return Ok(());
        }
        let room = usize::try_from(bytes + ALIGNMENT).unwrap_or(usize::MAX);
        let own = engine.allocate(room)?;
        // Of two ranges that begin at one address, the longer comes first.
        self.spans.insert(0, Span { address, bytes, own });
        engine.repeat(own, &[0; 1 << 16])
    }

    /// The launch with its epilogue's addresses replaced.
    ///
    /// # Errors
    /// An address that the epilogue did not report.
    pub(super) fn redirect(
        &self,
        program: &Program,
        Made { mut launch, of_epilogue, .. }: Made,
        d: u64,
    ) -> Result<Launch, EngineError> {
        let (mut told, mut addresses) = (0, 0);
        let given = program.function().params.iter().zip(&mut launch.arguments).enumerate();
        for (_, (param, argument)) in given.filter(|(i, _)| of_epilogue.contains(i)) {
            let Some(address) = argument.address().filter(|_| !param.number) else { continue };
            if *address == 0 || *address == d {
                continue;
            }
            addresses += 1;
            if let Some(span) = self.find(*address) {
                told += 1;
                let low = span.address % ALIGNMENT;
                *address = span.own.address + low + (*address - span.address);
            }
        }
        if told < addresses {
            let (kernel, role) = (program.name().to_owned(), "epilogue");
            return Err(EngineError::Untold { kernel, role, told, addresses });
        }
        Ok(launch)
    }

    /// Frees the memory, except what prepared launches keep.
    pub(super) fn free(self, engine: &mut dyn Engine) -> Result<(), EngineError> {
        self.spans.into_iter().try_for_each(|span| engine.free(span.own))
    }
}
