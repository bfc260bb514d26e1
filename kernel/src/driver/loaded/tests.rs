//! With a GPU: what is launched again allocates nothing, and what was not lent is refused.
#![allow(unsafe_code, reason = "launches at plain addresses")]

use collective::Record;

use super::{Blocks, LaunchBuilder, Loaded, Making, lock};
use crate::call::Call;
use crate::driver::counting::{allocations, card};
use crate::driver::{DeviceSlice, Gpu};
use crate::engine::Engine;
use crate::gemm::AnyGemm;
use crate::problem::GemmProblem;
use crate::products::GroupedProblem;

fn call(address: u64) -> Call {
    Call::of(GemmProblem { m: 64, n: 64, k: 64 }).a(address, 64).b(address, 64).d(address, 64)
}

/// A kernel of the catalogue.
fn loaded(gpu: &Gpu, name: &str) -> Loaded<AnyGemm> {
    let gemm = crate::find(name).expect("a catalogue name");
    let program = gemm.program().expect("legal");
    Loaded::load_in(gpu.context(), gemm, program).expect("compiles")
}

/// With a GPU: the second of two equal calls allocates nothing, and both give the right result.
#[test]
fn equal_calls_are_launched_without_allocations() {
    let Some(mut gpu) = card() else { return };
    let ones = half::bf16::ONE.to_le_bytes().repeat(64 * 64);
    let (operand, d) = (gpu.upload(&ones).expect("memory"), gpu.allocate(ones.len()).expect("memory"));
    let mut call = call(operand.address);
    call.d.address = d.address;
    let loaded = loaded(&gpu, "64x64-direct-bf16-kk");
    let stream = gpu.stream().clone();
    let lent = [operand, d].map(|buffer| gpu.memory(buffer).expect("allocated"));
    let lent = lent.each_ref().map(DeviceSlice::from);
    let launch = || loaded.launch(&stream, &call, &lent).expect("legal");
    assert!(allocations(launch) > 0);
    assert_eq!(allocations(launch), 0);
    assert_eq!(gpu.read(d).expect("no fault"), half::bf16::from_f32(64.0).to_le_bytes().repeat(64 * 64));
}

/// With a GPU: a launch whose addresses were changed in the arguments of an earlier call gives the result
/// of the new matrices. Its parameter block equals a newly made one.
#[test]
fn new_addresses_of_a_known_shape_are_launched_without_allocations() {
    let Some(mut gpu) = card() else { return };
    for name in
        ["64x64-direct-bf16-kk", "128x256-bf16-kk", "128x256-sourced-bf16-kk", "128x128-unaligned-bf16-kk"]
    {
        let loaded = loaded(&gpu, name);
        let stream = gpu.stream().clone();
        for value in 1..5u8 {
            let numbers = half::bf16::from_f32(value.into()).to_le_bytes().repeat(64 * 64);
            let ones = half::bf16::ONE.to_le_bytes().repeat(64 * 64);
            let [a, b] = [&numbers, &ones].map(|bytes| gpu.upload(bytes).expect("memory"));
            let d = gpu.allocate(numbers.len()).expect("memory");
            let call = call(0).a(a.address, 64).b(b.address, 64).d(d.address, 64);
            let lent = [a, b, d].map(|buffer| gpu.memory(buffer).expect("allocated"));
            let lent = lent.each_ref().map(DeviceSlice::from);
            let count = allocations(|| loaded.launch(&stream, &call, &lent).expect("legal"));
            assert_eq!(count == 0, value > 1, "{name}: {count} allocations");
            let sums = half::bf16::from_f32(64.0 * f32::from(value)).to_le_bytes().repeat(64 * 64);
            assert_eq!(gpu.read(d).expect("no fault"), sums, "{name}");
            let Loaded { kernel, parts, kept, .. } = &loaded;
            let making = Making::<Call> { kernel, of: &parts[0] };
            let afresh = making.launch(&call).expect("legal").expect("not empty");
            let afresh = making.block(&afresh.arguments).expect("legal");
            let mut kept = lock(kept);
            let kept = kept[0].get(&making, &call).expect("legal");
            assert_eq!(kept.map(|(_, block)| block.to_vec()), Some(afresh), "{name}");
        }
    }
}

/// With a GPU: memory that was not lent is refused, and so are writes to memory that was lent to be read.
#[test]
fn memory_that_is_not_lent_is_refused() {
    let Some(mut gpu) = card() else { return };
    let ones = half::bf16::ONE.to_le_bytes().repeat(64 * 64);
    let (operand, d) = (gpu.upload(&ones).expect("memory"), gpu.upload(&ones).expect("memory"));
    let mut call = call(operand.address);
    call.d.address = d.address;
    let loaded = loaded(&gpu, "64x64-direct-bf16-kk");
    let stream = gpu.stream().clone();
    let lent = [operand, d].map(|buffer| gpu.memory(buffer).expect("allocated"));
    let all = lent.each_ref().map(DeviceSlice::from);
    let mut wide = call;
    wide.d.ld += 1;
    // SAFETY: it is the memory of the buffer.
    let read = unsafe { DeviceSlice::readable(d.address, d.bytes as u64) };
    for (why, call, lent, name) in [
        ("D is not lent", call, vec![all[0]], "D"),
        ("D is lent to be read", call, vec![all[0], read], "D"),
        ("A is not lent", call, vec![all[1]], "A"),
        ("D's last row goes beyond its buffer", wide, all.to_vec(), "D"),
    ] {
        let error = loaded.launch(&stream, &call, &lent).expect_err(why).to_string();
        assert!(error.contains(&format!(": {name} is ")), "{why}: {error}");
    }
    assert_eq!(gpu.read(d).expect("no fault"), ones, "nothing ran");
}

/// With a GPU: repeated launches of groups of rows and of described GEMMs allocate nothing either, and
/// graphs of them replay.
#[test]
fn launches_of_several_products_are_captured() {
    let Some(mut gpu) = card() else { return };
    let ones = half::bf16::ONE.to_le_bytes().repeat(64 * 64);
    let sums = half::bf16::from_f32(64.0).to_le_bytes().repeat(64 * 64);
    let (operand, d) = (gpu.upload(&ones).expect("memory"), gpu.allocate(ones.len()).expect("memory"));
    let mut rows = call(operand.address);
    rows.d.address = d.address;
    let offsets: Vec<u8> = [0u32, 5, 5, 64].iter().flat_map(|row| row.to_le_bytes()).collect();
    let offsets = gpu.upload(&offsets).expect("memory").address;
    let record = Record {
        m: 64,
        n: 64,
        k: 64,
        addresses: [operand.address, operand.address, 0, d.address],
        lds: [64; 4],
    };
    let records = gpu.upload(&record.to_bytes()).expect("memory").address;
    for name in ["ragged-128x256-bf16-kk", "ragged-128x256-step32-bf16-kk", "grouped-128x256-bf16-kk"] {
        let gemm = crate::find(name).expect("a name");
        let program = gemm.program().expect("legal");
        let resident = gpu.resident_clusters(&program).expect("compiles");
        let call = match gemm.form().described() {
            true => Call::grouped(1, records),
            false => Call { products: GroupedProblem::GroupedContiguous { count: 3, offsets }, ..rows },
        };
        let workspace = gpu.workspace(gemm.workspace(&call, resident)).expect("memory");
        let call = Call { workspace, ..call };
        let launch = gemm.launch(&call, resident);
        let launch = launch.expect("legal").expect("not empty");
        let prepared = gpu.prepare(&program, launch.grid, &launch.arguments).expect("legal");
        let graph = gpu.capture(&[&prepared, &prepared]).expect("captured");
        gpu.write(d, &vec![0; ones.len()]).expect("memory");
        gpu.time_many(&[&graph], 3).expect("replayed");
        assert_eq!(gpu.read(d).expect("no fault"), sums, "{name}: replayed");
        gpu.write(d, &vec![0; ones.len()]).expect("memory");
        let loaded = Loaded::load_in(gpu.context(), gemm, program).expect("compiles");
        let stream = gpu.stream().clone();
        // SAFETY: the matrices, and those that the record describes, are buffers of the GPU.
        let launch = || unsafe { loaded.launch_raw(stream.raw(), &call) }.expect("legal");
        assert!(allocations(launch) > 0, "{name}");
        assert_eq!(allocations(launch), 0, "{name}");
        assert_eq!(gpu.read(d).expect("no fault"), sums, "{name}");
    }
}
