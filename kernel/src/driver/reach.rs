//! The memory that a launch's arguments point to, and whether it may be used.

use collective::Record;
use ptx::abi::{Argument, Im2colMap, TensorElement, TensorMap};
use ptx::{Name, Scalar};

use super::memory::{DeviceMemory, Memories};
use crate::error::EngineError;
use crate::program::Program;

/// The buffers that a launch's addresses are in.
///
/// A tensor map must be inside one buffer as a whole, or with all bytes that it says are accessed. For a scalar address only its first byte is known; how
/// far a program goes from there is not checked here, but by the emulator.
pub(super) fn buffers(
    memories: &Memories,
    program: &Program,
    arguments: &[Argument],
) -> Result<Vec<DeviceMemory>, EngineError> {
    let buffer = |(parameter, address, bytes)| {
        memories.containing(address, bytes).ok_or_else(|| {
            let kernel = program.name().to_owned();
            EngineError::Foreign { kernel, parameter, address, bytes }
        })
    };
    addresses(program, arguments).map(buffer).collect()
}

/// The records of a launch: index of their argument, their number, and their address.
pub(super) fn records(program: &Program, arguments: &[Argument]) -> Option<(usize, u32, u64)> {
    let of = |name: &str| {
        let index = program.function().params.iter().position(|param| param.name == name)?;
        match arguments.get(index)? {
            Argument::Scalar(_, bits) => Some((index, *bits)),
            Argument::TensorMap(_) | Argument::Im2colMap(_) | Argument::Bytes(_) => None,
        }
    };
    let ((_, count), (index, address)) = (of("groups")?, of("records")?);
    (program.is_described() && address != 0).then_some((index, count as u32, address))
}

/// Checks records as a kernel will read them. The matrices of a GEMM that is not empty must begin in buffers,
/// which are returned to be kept. An address that is not read is set to null.
pub(super) fn check_records(
    memories: &Memories,
    kernel: &str,
    records: &mut [u8],
) -> Result<Vec<DeviceMemory>, EngineError> {
    let mut held = Vec::new();
    for record in records.as_chunks_mut::<{ Record::BYTES[0] as usize }>().0 {
        let word = |i: usize| u32::from_le_bytes([record[i], record[i + 1], record[i + 2], record[i + 3]]);
        let [m, n, k] = [word(0), word(4), word(8)];
        let there = m > 0 && n > 0;
        for (place, needed) in [(16, there && k > 0), (24, there && k > 0), (32, false), (40, there)] {
            let mut bytes = [0; 8];
            bytes.copy_from_slice(&record[place..place + 8]);
            let address = u64::from_le_bytes(bytes);
            match memories.containing(address, 1) {
                Some(memory) => held.push(memory),
                None if needed => {
                    let (kernel, parameter) = (kernel.to_owned(), Name::new("records"));
                    return Err(EngineError::Foreign { kernel, parameter, address, bytes: 1 });
                }
                None => record[place..place + 8].fill(0),
            }
        }
    }
    Ok(held)
}

/// The addresses among a launch's arguments: the parameter's name, the address, and the number of bytes that
/// are known to be accessed from there. Nothing is read through a null address.
fn addresses<'a>(
    program: &'a Program,
    arguments: &'a [Argument],
) -> impl Iterator<Item = (Name, u64, u64)> + 'a {
    let given = program.function().params.iter().zip(arguments);
    let reached = given.filter_map(|(param, argument)| match argument {
        Argument::Scalar(ty, bits) if *ty == <u64 as Scalar>::TYPE && !param.number => {
            Some((param.name.clone(), *bits, 1))
        }
        // What a structure holds, the program does not say.
        Argument::Scalar(..) | Argument::Bytes(_) => None,
        Argument::TensorMap(TensorMap { address, reach: Some([first, end]), .. }) => {
            Some((param.name.clone(), address.wrapping_add(*first), end.saturating_sub(*first)))
        }
        Argument::TensorMap(TensorMap { element, address, dims, strides, .. })
        | Argument::Im2colMap(Im2colMap { element, address, dims, strides, .. }) => {
            Some((param.name.clone(), *address, tensor_bytes(*element, dims, strides)))
        }
    });
    reached.filter(|(_, address, _)| *address != 0)
}

/// Bytes from a tensor's first element to its last.
fn tensor_bytes(element: TensorElement, dims: &[u64], strides: &[u64]) -> u64 {
    let (first, others) = dims.split_first().unwrap_or((&0, &[]));
    let row = first.saturating_mul(element.bytes().into());
    others.iter().zip(strides).fold(row, |bytes, (&extent, &stride)| {
        bytes.saturating_add(extent.saturating_sub(1).saturating_mul(stride))
    })
}

#[cfg(test)]
mod tests {
    use collective::{Form, LinearArguments, MatrixRef};
    use ptx::abi::TensorElement;

    use super::{addresses, tensor_bytes};
    use crate::buffer::Buffer;
    use crate::call::Call;
    use crate::problem::GemmProblem;
    use crate::products::GroupedProblem;

    /// Leading dimensions, distances and counts are not addresses. Every address is inside a matrix of the
    /// call.
    #[test]
    fn kernels_say_which_arguments_are_addresses() {
        const MATRIX: u64 = 1 << 20;
        for gemm in crate::catalogue().into_iter().chain(crate::several()) {
            let workspace = Some(Buffer { address: 5 << 32, bytes: 1 << 30 });
            let one = Call::of(GemmProblem { m: 256, n: 256, k: 256 });
            let one = one.a(1 << 32, 512).b(2 << 32, 512).d(4 << 32, 512).plus(0.5, 3 << 32, 512);
            let three = GroupedProblem::Batched { count: 3 };
            let every = |matrix: MatrixRef| matrix.every(1 << 17);
            let c = one.epilogue.c.map(every);
            let all = one.with(LinearArguments { c, ..one.epilogue });
            let call = match gemm.form() {
                Form::Single => one,
                Form::Batched => {
                    Call { products: three, a: every(one.a), b: every(one.b), d: every(one.d), ..all }
                }
                Form::GroupedContiguous => {
                    let products = GroupedProblem::GroupedContiguous { count: 3, offsets: 6 << 32 };
                    Call { products, b: every(one.b), ..one }
                }
                Form::GroupedMasked => one.masked(3, 80, 6 << 32),
                Form::KGrouped => {
                    let products = GroupedProblem::KGrouped { count: 3, offsets: 6 << 32 };
                    Call { products, d: every(one.d), ..all }
                }
                Form::PointerArray => Call::grouped(3, 6 << 32).with(one.epilogue),
            };
            let launch = gemm.launch(&Call { workspace, ..call }, 132);
            let launch = launch.expect("legal").expect("not empty");
            let program = gemm.program().expect("legal");
            let found: Vec<_> = addresses(&program, &launch.arguments).collect();
            let name = gemm.name();
            assert!(!found.is_empty(), "{name}");
            for (parameter, address, bytes) in found {
                let (index, offset) = (address >> 32, address & u64::from(u32::MAX));
                let inside = (1..=6).contains(&index) && offset + bytes <= MATRIX;
                assert!(inside, "{name}: {parameter} names {bytes} B at {address:#x}");
            }
        }
    }

    /// Without factors nothing but D is accessed, and A, B and C may be anywhere.
    #[test]
    fn what_is_not_read_has_no_address() {
        for gemm in crate::catalogue().into_iter().chain(crate::by_threads()) {
            if gemm.form() != Form::Single || gemm.epilogue.linear().is_none() {
                continue;
            }
            let call = Call::of(GemmProblem { m: 256, n: 256, k: 256 });
            let call = call.a(1 << 32, 512).b(2 << 32, 512).d(4 << 32, 512).plus(0.0, 3 << 32, 512);
            let nothing = LinearArguments { c: call.epilogue.c, ..LinearArguments::scaled(0.0) };
            let workspace = Some(Buffer { address: 5 << 32, bytes: 1 << 30 });
            let launch = gemm.launch(&Call { workspace, ..call.with(nothing) }, 132);
            let launch = launch.expect("legal").expect("not empty");
            let program = gemm.program().expect("legal");
            for (parameter, address, _) in addresses(&program, &launch.arguments) {
                assert!(address >> 32 >= 4, "{}: {parameter} is at {address:#x}", gemm.name());
            }
        }
    }

    #[test]
    fn a_tensor_reaches_to_its_last_element() {
        for (why, dims, strides, want) in [
            ("a line", vec![64], vec![], 128),
            ("rows with gaps", vec![64, 3], vec![256], 2 * 256 + 128),
            ("one row", vec![64, 1], vec![1 << 39], 128),
            ("matrices", vec![64, 3, 2], vec![256, 4096], 4096 + 2 * 256 + 128),
            ("more than there is", vec![1 << 32, 1 << 32, 1 << 32], vec![1 << 39, 1 << 39], u64::MAX),
        ] {
            assert_eq!(tensor_bytes(TensorElement::Bf16, &dims, &strides), want, "{why}");
        }
    }
}
