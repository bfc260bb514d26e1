//! Forms of instructions in the emulator: against their definition, and against what a GPU answered.

use std::collections::HashMap;

use falchion::verify::instructions::forms;

/// Digests of a GPU's outputs by the name of the form.
fn recorded() -> HashMap<&'static str, &'static str> {
    let lines = include_str!("silicon/wgmma.txt").lines().filter(|line| !line.starts_with('#'));
    lines.filter_map(|line| line.split_once(' ')).map(|(digest, form)| (form, digest)).collect()
}

/// Each form has a name of its own, and one in eleven is run: the command runs them all.
#[test]
fn the_emulator_computes_what_is_defined_and_what_a_gpu_did() {
    let (forms, recorded) = (forms(), recorded());
    let names: std::collections::HashSet<_> = forms.iter().map(|form| &form.name).collect();
    assert_eq!(names.len(), forms.len(), "two forms have one name");
    let known = forms.iter().filter(|form| recorded.contains_key(form.name.as_str())).count();
    assert_eq!(known, recorded.len(), "every recorded form is still there");
    for form in forms.iter().step_by(11) {
        let verdict = form.prepare(0).and_then(|prepared| prepared.judge(None)).expect("a form that runs");
        assert!(verdict.passed() && verdict.elements > 0, "{verdict:#?}");
        if let Some(&digest) = recorded.get(form.name.as_str()) {
            assert_eq!(verdict.digest, digest, "{}: not what the GPU computed", form.name);
        }
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
