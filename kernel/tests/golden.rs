//! The PTX of two small kernels, letter by letter: a change of any printed instruction shows in review.
//!
//! `INSTA_UPDATE=always cargo test -p falchion-kernel --test golden` rewrites them.

#[test]
fn printed_kernels() {
    for name in ["small-bf16-kk", "small-f16-mn"] {
        let program = kernel::find(name).expect("a catalogue name").program().expect("a legal program");
        insta::assert_snapshot!(name, program.text());
    }
}

#[test]
fn building_is_a_function_of_the_type() {
    for entry in kernel::catalogue() {
        let text = || entry.program().expect("a legal program").text().to_owned();
        assert_eq!(text(), text(), "{}", entry.name());
    }
}
