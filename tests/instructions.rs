//! Forms of instructions in the emulator, compared with their definition and with recorded answers of a GPU.

use std::collections::HashMap;

use falchion::verify::instructions::forms;

/// Digests of a GPU's outputs, by the name of the form.
fn recorded() -> HashMap<&'static str, &'static str> {
    let files = [include_str!("silicon/wgmma.txt"), include_str!("silicon/others.txt")];
    let lines = files.into_iter().flat_map(str::lines).filter(|line| !line.starts_with('#'));
    lines.filter_map(|line| line.split_once(' ')).map(|(digest, form)| (form, digest)).collect()
}

/// Each form has a unique name. Of the `wgmma` forms one in 23 runs here; the command runs all.
#[test]
fn the_emulator_computes_what_is_defined_and_what_a_gpu_did() {
    let (forms, recorded) = (forms(), recorded());
    let names: std::collections::HashSet<_> = forms.iter().map(|form| &form.name).collect();
    assert_eq!(names.len(), forms.len(), "two forms have one name");
    let known = forms.iter().filter(|form| recorded.contains_key(form.name.as_str())).count();
    assert_eq!(known, recorded.len(), "every recorded form is still there");
    let multiplies = forms.iter().filter(|form| form.family.starts_with("wgmma"));
    for form in multiplies.step_by(23) {
        let verdict = form.prepare(0).and_then(|prepared| prepared.judge(None)).expect("a form that runs");
        assert!(verdict.passed() && verdict.elements > 0, "{verdict:#?}");
        if let Some(&digest) = recorded.get(form.name.as_str()) {
            assert_eq!(verdict.digest, digest, "{}: not what the GPU computed", form.name);
        }
    }
}

/// All forms except `wgmma`: each runs without a trap, gives the expected result where it is known, gives the
/// GPU's result where one is recorded, and gives the same result twice.
#[test]
fn other_instructions_give_what_a_gpu_did() {
    let (forms, recorded) = (forms(), recorded());
    let mut answered = 0;
    let mut families = std::collections::BTreeSet::new();
    for form in forms.iter().filter(|form| !form.family.starts_with("wgmma")) {
        let prepared = form.prepare(0).expect("legal");
        let verdict = prepared.judge(None).unwrap_or_else(|error| panic!("{}: {error}", form.name));
        assert!(verdict.passed() && verdict.elements > 0, "{verdict:#?}");
        if let Some(&digest) = recorded.get(form.name.as_str()) {
            assert_eq!(verdict.digest, digest, "{}: not what the GPU computed", form.name);
            answered += 1;
        }
        let again = prepared.run(&mut exact()).expect("it ran before");
        let verdict = prepared.judge(Some(&again)).expect("it ran before");
        assert_eq!(verdict.gpu_mismatches, Some(0), "{}: differs from run to run", form.name);
        families.insert(form.family.as_str());
    }
    assert!(families.len() >= 30, "{families:?}");
    assert_eq!(answered, 745, "forms that a GPU has answered");
}

/// The bound of `Numerics::Fast` plus the hardware's own, for magnitudes of products and old D up to 16.
#[test]
fn fast_sums_are_near_the_exact_ones() {
    let forms = forms();
    let multiplies = forms.iter().filter(|form| form.family.starts_with("wgmma"));
    let floats = multiplies.filter(|form| !form.family.contains(".s32.")).step_by(17);
    for form in floats {
        let prepared = form.prepare(0).expect("legal");
        let fast = prepared.run(&mut kernel::Emulator::new()).expect("it runs");
        let exact = prepared.run(&mut exact()).expect("it runs");
        let value = |bytes: &[u8]| match *bytes {
            [a, b] => half::f16::from_le_bytes([a, b]).to_f32(),
            [a, b, c, d] => f32::from_le_bytes([a, b, c, d]),
            _ => unreachable!("elements of 2 or 4 bytes"),
        };
        // The first case has magnitudes around one. Its sums are far larger than the tolerance.
        let size = form.element_bytes;
        let pairs = fast[..form.output_bytes].chunks_exact(size).zip(exact.chunks_exact(size));
        let mut large = 0;
        for (i, (fast, exact)) in pairs.enumerate() {
            let (fast, exact) = (value(fast), value(exact));
            let short = form.name.contains("e4m3") || form.name.contains("e5m2");
            let terms = if short { 65.0 * 16.0 / 8192.0 } else { 65.0 * 16.0 / 16_777_216.0 };
            let rounding = if size == 2 { 2.0 / 1024.0 } else { 1.0 / 4096.0 } * exact.abs().max(16.0);
            assert!((fast - exact).abs() <= terms + rounding, "{}, element {i}: {fast}, {exact}", form.name);
            large += usize::from(exact.abs() > 0.5);
        }
        assert!(large > form.output_bytes / size / 2, "{}: {large}", form.name);
    }
}

#[test]
fn other_bits_are_noticed_and_explained() {
    let forms = forms();
    let form = forms.iter().find(|form| form.name.contains("m64n8k16.f32.bf16")).expect("a form");
    let prepared = form.prepare(0).expect("legal");
    let mut outputs = prepared.run(&mut exact()).expect("it runs");
    outputs[8] ^= 1;
    let verdict = prepared.judge(Some(&outputs)).expect("it runs");
    assert_eq!((verdict.gpu_mismatches, verdict.emulator_mismatches), (Some(1), 0));
    let difference = &verdict.differences[0];
    assert_eq!(difference.element, 2, "{difference:?}");
    assert!(difference.inputs.starts_with("row 8 column 0: old D 0x"), "{difference:?}");
    assert!(prepared.judge(Some(&outputs[1..])).is_err(), "outputs of another size");
}

fn exact() -> kernel::Emulator {
    kernel::Emulator::new().with_numerics(emulator::Numerics::Exact)
}
