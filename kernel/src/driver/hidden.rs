//! The check that the memory of a GEMM is lent which is not visited: what records describe, and what the
//! arguments of an epilogue or of a mainloop of one's own point to.

use collective::tree::{Path, Reach};
use collective::{MatrixRef, Record};
use ptx::Param;
use ptx::abi::Argument;

use super::footprint;
use super::memory::DeviceSlice;
use crate::arguments::Arguments;
use crate::error::EngineError;
use crate::gemm::AnyGemm;
use crate::launch::Made;
use crate::problem::{Call, GemmProblem};
use crate::products::GroupedProblem;
use crate::program::Program;

/// Checks that the memory of a call that is not visited is lent.
///
/// # Errors
/// The first memory that is not, records that were not lent as [`Records`](super::Records), or arguments that
/// do not report all memory they name.
pub(crate) fn check<E: Arguments + Clone>(
    gemm: &AnyGemm,
    call: &Call<E>,
    kernel: (&Program, u32),
    lent: &[DeviceSlice<'_>],
) -> Result<(), EngineError> {
    let (name, epilogue) = (kernel.0.name(), &call.epilogue);
    let GroupedProblem::PointerArray { count, records } = call.products else {
        return check_one(gemm, (call, call), kernel, lent);
    };
    let unknown = || EngineError::Described { kernel: name.to_owned() };
    if count == 0 {
        return Ok(());
    }
    let known = lent.iter().find_map(|slice| slice.records(records)).ok_or_else(unknown)?;
    for (index, record) in known.as_slice().get(..count as usize).ok_or_else(unknown)?.iter().enumerate() {
        let Record { m, n, k, addresses, lds } = *record;
        let [a, b, c, d] = [0, 1, 2, 3].map(|i| MatrixRef::new(addresses[i], lds[i]));
        let (problem, epilogue) = (GemmProblem { m, n, k }, epilogue.clone().with_c(c));
        let product = Call { products: GroupedProblem::One, a, b, d, workspace: None, ..Call::of(problem) }
            .with(epilogue);
        footprint::check(gemm, name, &product, lent)
            .and_then(|()| check_one(gemm, (call, &product), kernel, lent))
            .map_err(|source| EngineError::Record { index, source: Box::new(source) })?;
    }
    Ok(())
}

/// Checks that the memory is lent which the epilogue of one GEMM accesses, and what a mainloop of the user's
/// own accesses in addition to A and B.
fn check_one<E: Arguments + Clone>(
    gemm: &AnyGemm,
    (call, product): (&Call<E>, &Call<E>),
    (program, slots): (&Program, u32),
    lent: &[DeviceSlice<'_>],
) -> Result<(), EngineError> {
    let (name, epilogue) = (program.name(), &product.epilogue);
    let count = product.products.count();
    let covers = |address, bytes, writes| lent.iter().any(|slice| slice.covers(address, bytes, writes));
    let reach = Reach::new(count, &covers);
    let refused = |source| EngineError::Call { kernel: name.to_owned(), source };
    let multiplied = epilogue.multiplied();
    let checked = gemm.checked(product, multiplied, &Path::within(&reach)).map_err(refused)?;
    let built_in = epilogue.linear().is_some() && gemm.mainloop.is_built_in();
    if checked.is_none() || built_in {
        return Ok(());
    }
    let made = gemm.make(call, &Path::ROOT, slots).map_err(refused)?;
    let Some(Made { launch, of_mainloop, of_epilogue, operands }) = made else { return Ok(()) };
    let of_own = Reach::new(count, &covers);
    call.epilogue.operands(gemm, operands, &Path::within(&of_own)).map_err(refused)?;
    let given = program.function().params.iter().zip(launch.arguments);
    let address = |(param, mut argument): (&Param, Argument)| {
        argument.address().filter(|_| !param.number).map_or(0, |address| *address)
    };
    let given: Vec<u64> = given.map(address).collect();
    let known = operands.map(|operand| operand.address);
    // Of a linear epilogue the library knows what it reads.
    let of_epilogue = if gemm.epilogue.linear().is_some() { 0..0 } else { of_epilogue };
    for (role, reach, range, known) in
        [("epilogue", reach, of_epilogue, &[call.d.address][..]), ("mainloop", of_own, of_mainloop, &known)]
    {
        let others = given[range].iter().filter(|&address| *address != 0 && !known.contains(address));
        let (told, addresses) = (reach.told(), others.count());
        if told < addresses {
            return Err(EngineError::Untold { kernel: name.to_owned(), role, told, addresses });
        }
    }
    Ok(())
}
