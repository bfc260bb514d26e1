//! Plain accesses to memory.

use emulator::Fault;

use crate::Case;

pub(crate) fn cases() -> Vec<Case> {
    vec![
        Case::new(
            "global out of bounds",
            32,
            |k| {
                let offset = if k.broken { 1024 - 31 * 4 } else { 0 };
                let _value = k.f.load_global::<u32>(k.data + k.thread.mul_wide(4), offset);
            },
            |f| matches!(f, Fault::GlobalOutOfBounds { bytes: 4, near: Some((_, 1024)), .. }),
        ),
        Case::new(
            "global misaligned",
            32,
            |k| {
                let _value = k.f.load_global::<u32>(k.data, if k.broken { 2 } else { 4 });
            },
            |f| matches!(f, Fault::GlobalMisaligned { alignment: 4, .. }),
        ),
        Case::new(
            "global uninitialised",
            32,
            |k| {
                if !k.broken {
                    k.f.store_global(k.out, 0, [k.f.constant(1u32)]);
                }
                let _value = k.f.load_global::<u32>(k.out, 0);
            },
            |f| matches!(f, Fault::GlobalUninitialised { bytes: 4, .. }),
        ),
        Case::new(
            "shared out of bounds",
            32,
            |k| {
                k.f.store_shared(k.base, if k.broken { 8192 } else { 8188 }, [k.thread]);
            },
            |f| matches!(f, Fault::SharedOutOfBounds { offset: 8192, bytes: 4, size: 8192 }),
        ),
        Case::new(
            "shared misaligned",
            32,
            |k| {
                k.f.store_shared(k.base, if k.broken { 4 } else { 8 }, [k.thread; 2]);
            },
            |f| matches!(f, Fault::SharedMisaligned { offset: 4, alignment: 8 }),
        ),
        Case::new(
            "shared uninitialised",
            32,
            |k| {
                k.f.store_shared(k.base + k.thread * 4, 0, [k.thread]);
                let _value =
                    k.f.load_shared_vector::<u32, 1>(k.base + k.thread * 4, if k.broken { 4 } else { 0 });
            },
            |f| matches!(f, Fault::SharedUninitialised { offset: 128, bytes: 4 }),
        ),
    ]
}
