//! While a stream is captured, doors ask the driver for nothing that waits, allocates or loads: what would need it is refused, and the sentence
//! says what to do. With a stand-in for the driver, which notes and fails such calls.
#![allow(unsafe_code, reason = "launches on the stand-in")]

use falchion::attention::backward::{AttentionBackward, BackwardCall};
use falchion::attention::{Attention, AttentionProblem, AttentionRequest, HeadsRef};
use falchion::collective::{Format, LinearArguments};
use falchion::cute_rs::atom::Major;
use falchion::kernel::operands::Memory;
use falchion::kernel::{AnyGemm, Buffer, EngineError, Family, GemmProblem, Kernel, Request};
use falchion_core::{Epilogue, Offered, Picked};

use crate::stand_in::{is_stand_in, noted, other, run_again};

/// A call of a kernel at an address of another library's memory, with a workspace.
fn lent<K: Offered>(picked: &Picked<K>, mut call: K::Arguments) -> K::Arguments {
    let mut next = 1 << 40;
    picked.kernel().visit(&mut call, &mut |memory: Memory<'_>| {
        if memory.extents.bytes() > 0 {
            *memory.address = next;
            next += 1 << 36;
        }
    });
    let bytes = picked.kernel().workspace(&call, 132);
    picked.lend(&mut call, (bytes > 0).then_some(Buffer::new(1 << 45, bytes)));
    call
}

/// Launches of a kernel in a capture: before it was loaded, and after.
fn captured<K: Offered>(request: &K::Request<'_>, call: &K::Arguments) {
    let picked = Picked::<K>::on(request, None, Some(0)).expect("a kernel");
    let call = lent(&picked, call.clone());
    let stream = core::ptr::without_provenance_mut(0x5000);
    // SAFETY: the stand-in runs nothing.
    let launch = || unsafe { picked.launch(0, stream, &call) };
    let (loaded, launched) = (noted("loaded"), noted("launched"));
    other::capture(|| {
        let again = Picked::<K>::on(request, None, Some(0)).expect("a choice is no load");
        assert_eq!(again.name(), picked.name());
        let error = launch().expect_err("it is not loaded");
        assert!(matches!(error, EngineError::Captured { .. }), "{error}");
        assert!(error.to_string().contains("enqueue the same once, before the capture begins"), "{error}");
    });
    assert_eq!(noted("loaded"), loaded);
    launch().unwrap_or_else(|error| panic!("{}: {error}", K::NAME));
    let (loaded, launches) = (noted("loaded"), noted("launched") - launched);
    assert!(launches > 0);
    other::capture(|| (0..3).for_each(|_| launch().expect("it is loaded")));
    assert_eq!((noted("loaded"), noted("launched")), (loaded, launched + launches), "they are captured");
    assert_eq!(noted("in a capture"), 0, "{}", K::NAME);
}

#[test]
fn what_is_not_loaded_is_refused_in_a_capture() {
    if !is_stand_in() {
        let test = "captured::what_is_not_loaded_is_refused_in_a_capture";
        return run_again(test, "captured", &[], &[]);
    }
    let problem = AttentionProblem { heads: [8, 2], ..AttentionProblem::new(2, 8, [1, 1000], 128) };
    let request = AttentionRequest { workspace: true, ..AttentionRequest::new(problem, 128) };
    captured::<Attention>(&request, &Attention::call(&request));
    let equal = AttentionProblem { queries: 1000, ..problem };
    let request = AttentionRequest { problem: equal, ..request };
    let at = |heads| HeadsRef::heads_first(0, [heads, 1000, 128]);
    let call = BackwardCall::of(Attention::call(&request), at(8), [at(8), at(2), at(2)]);
    captured::<AttentionBackward>(&request, &call);
    let problem = GemmProblem { m: 300, n: 512, k: 4096 };
    let request = Request::packed(Format::Bf16, [Major::K; 2], problem);
    let linear = Epilogue::Linear(LinearArguments::default());
    captured::<AnyGemm>(&request, &request.call.with(linear));
}
