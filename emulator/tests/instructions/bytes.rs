//! Accesses of single bytes, and their conversions.

use emulator::Memory;
use ptx::Special;

use crate::{kernel, run};

#[test]
fn bytes_are_loaded_stored_selected_and_converted() {
    // Lane i reads byte i and writes byte 32 + i: the value is i + 100, wrapped, or 7 in lanes 16 to 31.
    let program = kernel(32, 1, |f| {
        let (data, lane) = (f.param::<u64>("data"), f.special(Special::Lane));
        let at = data + lane.cast::<u64>();
        let byte = f.load_global::<u8>(at, 0);
        let sum = (byte.cast::<u32>() + 100).cast::<u8>();
        let chosen = sum.where_or(lane.less_than(16), f.constant(7u8));
        f.store_global(at, 32, [chosen]);
        let shared = f.shared_base() + lane * 2;
        f.store_shared(shared, 0, [chosen, byte]);
        let [first, second] = f.load_shared_vector::<u8, 2>(shared, 0);
        f.store_global(at, 64, [second]);
        let single = first.cast::<f32>() * 0.5;
        f.store_global(at, 96, [single.cast::<u8>()]);
    });
    let mut memory = Memory::new();
    let input: Vec<u8> = (0..32u8).map(|lane| lane.wrapping_mul(37)).collect();
    let data = memory.upload(&[&input[..], &[0xAA; 97]].concat());
    run(&program, 1, &[data.into()], &memory);
    let bytes = memory.read(data, 129).unwrap();
    for (lane, &byte) in input.iter().enumerate() {
        let chosen = if lane < 16 { byte.wrapping_add(100) } else { 7 };
        assert_eq!(
            [bytes[lane], bytes[32 + lane], bytes[64 + lane], bytes[96 + lane]],
            [byte, chosen, byte, chosen / 2]
        );
    }
    assert_eq!(bytes[128], 0xAA, "behind the last");
}
