//! Hazards of plain accesses to memory.

use emulator::Fault;
use ptx::inst::{Shuffle, WarpInst};
use ptx::{Inst, Operand};

use crate::Case;

pub(crate) fn cases() -> Vec<Case> {
    vec![
        Case::new(
            "global out of bounds",
            32,
            fault!(Fault::GlobalOutOfBounds { bytes: 4, near: Some((_, 1024)), .. }),
            |k| {
                let offset = if k.broken { 1024 - 31 * 4 } else { 0 };
                let _value = k.f.load_global::<u32>(k.data + k.thread.mul_wide(4), offset);
            },
        ),
        Case::new("global misaligned", 32, fault!(Fault::GlobalMisaligned { alignment: 4, .. }), |k| {
            let _value = k.f.load_global::<u32>(k.data, if k.broken { 2 } else { 4 });
        }),
        Case::new("global uninitialised", 32, fault!(Fault::GlobalUninitialised { bytes: 4, .. }), |k| {
            k.in_twin(|| k.f.store_global(k.out, 0, [k.f.constant(1u32)]));
            let _value = k.f.load_global::<u32>(k.out, 0);
        }),
        Case::new(
            "shared out of bounds",
            32,
            fault!(Fault::SharedOutOfBounds { offset: 8192, bytes: 4, size: 8192 }),
            |k| {
                k.f.store_shared(k.base, if k.broken { 8192 } else { 8188 }, [k.thread]);
            },
        ),
        Case::new(
            "shared misaligned",
            32,
            fault!(Fault::SharedMisaligned { offset: 4, alignment: 8 }),
            |k| {
                k.f.store_shared(k.base, if k.broken { 4 } else { 8 }, [k.thread; 2]);
            },
        ),
        Case::new(
            "shared uninitialised",
            32,
            fault!(Fault::SharedUninitialised { offset: 128, bytes: 4 }),
            |k| {
                k.f.store_shared(k.base + k.thread * 4, 0, [k.thread]);
                let _value =
                    k.f.load_shared_vector::<u32, 1>(k.base + k.thread * 4, if k.broken { 4 } else { 0 });
            },
        ),
        Case::new(
            "a thread's copy that reads more than it writes",
            32,
            fault!(Fault::CopySize { read: 20, bytes: 16 }),
            |k| {
                let read = k.thread / 32 + if k.broken { 20 } else { 12 };
                k.f.copy_async(16, k.base + k.thread * 16, (k.data + k.thread.mul_wide(16), 0), Some(read));
                k.f.copy_commit();
                k.f.copy_wait(0);
            },
        ),
        Case::new(
            "a shuffle from a lane that takes no part",
            32,
            fault!(Fault::ShuffleSource { from: 16, members: 0xFFFF }),
            |k| {
                k.f.if_(k.thread.less_than(16), || {
                    let dst = k.f.uninitialised::<u32>().reg();
                    let (src, lane) = (k.thread.operand(), Operand::Imm(if k.broken { 16 } else { 8 }));
                    let (mode, found, members) = (Shuffle::Butterfly, None, Operand::Imm(0xFFFF));
                    let width = 32;
                    k.f.emit(Inst::Warp(WarpInst::Shuffle { mode, dst, found, src, lane, width, members }));
                });
            },
        ),
    ]
}
