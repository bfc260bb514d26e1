//! A kernel object is the one that `falchion plan` ranks first for the lengths that came; what was measured on a card is taken from then on.

mod structures;

#[cfg(target_os = "linux")]
#[path = "../../../kernel/tests/support/stand_in.rs"]
mod stand_in;

#[path = "../../core/tests/core/drawn.rs"]
#[allow(dead_code, reason = "some of it is for other doors")]
mod drawn;

use core::ffi::{CStr, c_char};
use core::ptr::{null, null_mut};
use std::ffi::CString;

use drawn::{Draw, DrawnGemms, DrawnHeads};
use falchion::attention::Attention;
use falchion::attention::backward::AttentionBackward;
use falchion::kernel::{AnyGemm, Family, Machine};
use structures::{
    AttentionArguments, AttentionDescription, AttentionKernel, BackwardArguments, BackwardKernel, CAUSAL,
    DETERMINISTIC, Description, Gemm, OK, PACKED, WINDOW, WORKSPACE, falchion_attention_backward_create,
    falchion_attention_backward_destroy, falchion_attention_backward_microseconds,
    falchion_attention_backward_name, falchion_attention_backward_tune, falchion_attention_create,
    falchion_attention_destroy, falchion_attention_microseconds, falchion_attention_name,
    falchion_attention_tune, falchion_gemm_create, falchion_gemm_destroy, falchion_gemm_name,
    falchion_last_error,
};

/// Kernels whose programs are emitted too; the arguments alone are compared of many more in the tests of `adapters/core`.
const COUNT: usize = 60;

fn words(text: *const c_char) -> String {
    // SAFETY: the library's texts end in a zero, and live as long as what they are of.
    unsafe { CStr::from_ptr(text) }.to_string_lossy().into_owned()
}

fn last() -> String {
    words(falchion_last_error())
}

/// The spec that `falchion plan` ranks first for a problem's words, and its time; `None` if there is none.
fn planned<K: Family>(problem: &str) -> Option<(String, f64)> {
    let request = K::request(problem).unwrap_or_else(|error| panic!("{problem}: {error}"));
    let first = K::ranked(&request, &Machine::h200(), 1).ok()?.remove(0);
    Some((first.kernel.spec()?.to_string(), first.microseconds))
}

fn described(drawn: &DrawnHeads, args_size: usize) -> AttentionDescription {
    // SAFETY: the structure may be zero.
    let zeros: AttentionDescription = unsafe { core::mem::zeroed() };
    let types = if drawn.format == "bf16" { c"bf16" } else { c"f16" };
    let on = |flag, asked: bool| if asked { flag } else { 0 };
    // They live as long as the descriptions do: until the process ends.
    let text = |of: Option<&str>| {
        of.map_or(null(), |of| CString::new(of).expect("no zeros").into_raw().cast_const())
    };
    let [score, sees] = drawn.texts.map(text);
    let (windowed, fixed) = (on(WINDOW, drawn.window.is_some()), on(DETERMINISTIC, drawn.fixed));
    AttentionDescription {
        size: size_of::<AttentionDescription>(),
        types: types.as_ptr(),
        batch: drawn.batch,
        heads: drawn.heads[0],
        kv_heads: drawn.heads[1],
        queries: drawn.lengths[0],
        keys: drawn.lengths[1],
        d: drawn.d[0],
        dv: drawn.d[1],
        flags: on(CAUSAL, drawn.causal) | windowed | on(PACKED, drawn.packed) | fixed,
        window: drawn.window.unwrap_or_default(),
        softcap: drawn.soft_cap.unwrap_or_default(),
        score,
        sees,
        page: drawn.page.unwrap_or(0),
        args_size,
        ..zeros
    }
}

#[test]
fn attention_is_what_is_planned() {
    let mut random = Draw::new(21);
    let mut count = 0;
    for _ in 0..COUNT {
        let drawn = DrawnHeads::draw(&mut random, false);
        let mut of = described(&drawn, size_of::<AttentionArguments>());
        of.flags |= WORKSPACE;
        let mut made: *mut AttentionKernel = null_mut();
        // SAFETY: the description is valid, and what is made is freed once.
        let (status, name, microseconds) = unsafe {
            let status = falchion_attention_create(&of, &mut made);
            if status != OK {
                continue;
            }
            let found = (status, words(falchion_attention_name(made)), falchion_attention_microseconds(made));
            falchion_attention_destroy(made);
            found
        };
        let (spec, wanted) = planned::<Attention>(&drawn.problem).expect("one was made");
        assert_eq!(status, OK);
        // A cache that grows has its kernel from a list, which loses less than a hundredth.
        assert!(name == spec || microseconds < 1.01 * wanted, "{}: {name}, not {spec}", drawn.problem);
        count += usize::from(name == spec);
    }
    assert!(count > COUNT * 4 / 5, "{count}: {}", last());
}

#[test]
fn gradients_are_what_is_planned() {
    let (mut random, mut count) = (Draw::new(22), 0);
    for _ in 0..COUNT {
        let drawn = DrawnHeads::draw(&mut random, true);
        let of = described(&drawn, size_of::<BackwardArguments>());
        let mut made: *mut BackwardKernel = null_mut();
        // SAFETY: the description is valid, and what is made is freed once.
        unsafe {
            if falchion_attention_backward_create(&of, &mut made) == OK {
                let (spec, _) = planned::<AttentionBackward>(&drawn.problem).expect("one was made");
                assert_eq!(words(falchion_attention_backward_name(made)), spec, "{}", drawn.problem);
                falchion_attention_backward_destroy(made);
                count += 1;
            }
        }
    }
    assert!(count > COUNT * 4 / 5, "{count}: {}", last());
}

#[test]
fn gemms_are_what_is_planned() {
    let (mut random, mut count) = (Draw::new(23), 0);
    for _ in 0..COUNT {
        let DrawnGemms { problem, described } = DrawnGemms::draw(&mut random);
        // SAFETY: the structure may be zero.
        let zeros: Description = unsafe { core::mem::zeroed() };
        let text = |text: &str| CString::new(text).expect("no zeros");
        let (types, layout) = (text(&described.types), text(&described.layout));
        let epilogue = described.epilogue.as_deref().map(text);
        let [m, n, k] = described.extents;
        let of = Description {
            size: size_of::<Description>(),
            types: types.as_ptr(),
            layout: layout.as_ptr(),
            epilogue: epilogue.as_ref().map_or(core::ptr::null(), |text| text.as_ptr()),
            batch: described.batch,
            args_size: size_of::<structures::Arguments>(),
            m,
            n,
            k,
            ..zeros
        };
        let mut made: *mut Gemm = null_mut();
        // SAFETY: the description is valid, and what is made is freed once.
        unsafe {
            if falchion_gemm_create((&raw const of).cast(), &mut made) == OK {
                let (spec, _) = planned::<AnyGemm>(&problem).expect("one was made");
                assert_eq!(words(falchion_gemm_name(made)), spec, "{problem}");
                falchion_gemm_destroy(made);
                count += 1;
            }
        }
    }
    assert!(count > COUNT * 4 / 5, "{count}: {}", last());
}

/// With a stand-in for the driver: what is tuned is kept, and found when kernels are made for the card.
#[test]
#[cfg(target_os = "linux")]
fn attention_that_was_measured_is_found() {
    stand_in::with_stand_in("attention_that_was_measured_is_found", &[], &[], || {
        let drawn = DrawnHeads {
            problem: String::new(),
            format: "bf16",
            batch: 2,
            heads: [8, 2],
            lengths: [300, 300],
            d: [128, 128],
            causal: true,
            window: None,
            soft_cap: None,
            texts: [None; 2],
            packed: false,
            page: None,
            fixed: false,
        };
        let card = |of| AttentionDescription { card: 1, ..of };
        let forward = card(described(&drawn, size_of::<AttentionArguments>()));
        let backward = card(described(&drawn, size_of::<BackwardArguments>()));
        let (mut tuned, mut made): (*mut AttentionKernel, *mut AttentionKernel) = (null_mut(), null_mut());
        let (mut tuned_back, mut made_back): (*mut BackwardKernel, *mut BackwardKernel) =
            (null_mut(), null_mut());
        // SAFETY: the descriptions are valid, and what is made lives until it is freed.
        unsafe {
            assert_eq!(falchion_attention_tune(&forward, 3, &mut tuned), OK, "{}", last());
            assert_eq!(falchion_attention_create(&forward, &mut made), OK, "{}", last());
            assert_eq!(falchion_attention_microseconds(made), falchion_attention_microseconds(tuned));
            assert_eq!(falchion_attention_backward_tune(&backward, 3, &mut tuned_back), OK, "{}", last());
            assert_eq!(falchion_attention_backward_create(&backward, &mut made_back), OK, "{}", last());
            let [first, second] =
                [tuned_back, made_back].map(|of| falchion_attention_backward_microseconds(of));
            assert_eq!(first, second);
            falchion_attention_destroy(tuned);
            falchion_attention_destroy(made);
            falchion_attention_backward_destroy(tuned_back);
            falchion_attention_backward_destroy(made_back);
        }
    });
    // SAFETY: the rest of the description may be zero.
    let plain = unsafe {
        let zeros: AttentionDescription = core::mem::zeroed();
        AttentionDescription {
            size: size_of::<AttentionDescription>(),
            types: c"bf16".as_ptr(),
            d: 64,
            ..zeros
        }
    };
    let mut kernel: *mut BackwardKernel = null_mut();
    // SAFETY: the description is valid.
    assert_ne!(unsafe { falchion_attention_backward_tune(&plain, 3, &mut kernel) }, OK);
    assert!(last().contains("card is 0"), "{}", last());
}
