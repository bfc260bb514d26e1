//! Tests of shared memory.

use super::*;

#[test]
fn loads_see_stores_and_nothing_else() {
    let mut shared = Shared::new(64);
    shared.store(BASE + 4, &[1, 2, 3, 4]).unwrap();
    assert_eq!(shared.load(BASE + 4, 4).unwrap(), [1, 2, 3, 4]);
    for (why, offset, bytes, want) in [
        ("never written", BASE, 4, Fault::SharedUninitialised { offset: 0, bytes: 4 }),
        ("half written", BASE, 8, Fault::SharedUninitialised { offset: 0, bytes: 8 }),
        ("not aligned", BASE + 6, 4, Fault::SharedMisaligned { offset: 6, alignment: 4 }),
        ("past the end", BASE + 64, 4, Fault::SharedOutOfBounds { offset: 64, bytes: 4, size: 64 }),
        ("before the beginning", BASE - 4, 4, Fault::SharedOutOfBounds { offset: -4, bytes: 4, size: 64 }),
    ] {
        assert_eq!(shared.load(offset, bytes).unwrap_err(), want, "{why}");
    }
}

#[test]
fn asynchronous_work_owns_its_bytes() {
    let mut shared = Shared::new(256);
    shared.take_write(BASE, 32).unwrap();
    let load = |write| Fault::SharedInFlight { offset: 16, bytes: 4, owner: Owner::TensorLoad, write };
    assert_eq!(shared.load(BASE + 16, 4).unwrap_err(), load(false));
    assert_eq!(shared.store(BASE + 16, &[0; 4]).unwrap_err(), load(true));
    assert!(shared.take_write(BASE + 16, 16).is_err() && shared.take_read(BASE, true).is_err());
    shared.release_write(BASE, 32);
    shared.take_read(BASE, true).unwrap();
    assert!(shared.load(BASE, 4).is_ok(), "two may read");
    assert!(matches!(
        shared.store(BASE, &[0; 4]),
        Err(Fault::SharedInFlight { owner: Owner::AsyncRead, write: true, .. })
    ));
    shared.release_read(BASE);
    shared.store(BASE, &[0; 4]).unwrap();
}

#[test]
fn asynchronous_stores_own_their_bytes_alone() {
    let mut shared = Shared::new(64);
    shared.store(BASE, &[0; 16]).unwrap();
    shared.take_joint(BASE + 4, 4, true).unwrap();
    shared.take_joint(BASE + 4, 8, true).unwrap();
    assert!(shared.take_joint(BASE + 8, 4, false).is_err(), "a store is no reduction");
    assert!(shared.take_joint(BASE + 12, 4, false).is_ok(), "next to them");
    shared.release_joint(BASE + 12, 4);
    assert!(shared.load(BASE, 4).is_ok() && shared.store(BASE + 12, &[0; 4]).is_ok(), "next to them");
    assert!(shared.load(BASE + 4, 4).is_err() && shared.store(BASE + 8, &[0; 4]).is_err());
    shared.release_joint(BASE + 4, 4);
    assert!(shared.load(BASE + 4, 4).is_err(), "the other one is in flight");
    shared.release_joint(BASE + 4, 8);
    assert!(shared.load(BASE + 4, 4).is_ok() && shared.load(BASE + 8, 4).is_ok());
    let nobody = Clock::default();
    shared.mark_landed((BASE, 16), (0, 1), 0, false);
    let mut friend = Clock::default();
    friend.raise(0, 1);
    shared.mark_landed((BASE + 4, 4), (1, 1), 8, false);
    for (why, offset, known, seen) in [
        ("all bytes, not observed", 0, &nobody, false),
        ("all bytes, observed", 0, &friend, true),
        ("some bytes, not observed", 4, &friend, false),
    ] {
        assert_eq!(shared.observed(BASE + offset, 4, known).is_ok(), seen, "{why}");
    }
}

#[test]
fn a_live_barrier_is_no_memory() {
    let mut shared = Shared::new(64);
    shared.initialise_barrier(BASE + 8, 1, 0).unwrap();
    assert_eq!(shared.store(BASE + 8, &[0; 8]).unwrap_err(), Fault::SharedBarrier { offset: 8 });
    shared.store(BASE, &[0; 8]).unwrap();
    assert!(shared.take_write(BASE, 16).is_err());
    assert!(matches!(shared.initialise_barrier(BASE + 8, 1, 0), Err(Fault::MbarrierLive { offset: 8 })));
    shared.invalidate_barrier(BASE + 8).unwrap();
    assert!(shared.barrier(BASE + 8).is_err());
}
