//! The example's ranks agree. `cargo test` builds examples before tests run.

#[test]
fn ranks_of_the_example_agree() {
    let test = std::env::current_exe().expect("a test");
    let folder = test.ancestors().nth(2).expect("a target folder");
    let run = std::process::Command::new(folder.join("examples/tensor_parallel")).output().expect("built");
    let words = String::from_utf8_lossy(&run.stdout);
    assert!(run.status.success(), "{words}{}", String::from_utf8_lossy(&run.stderr));
    assert!(words.contains("4 ranks: prompt") && words.ends_with("all agree\n"), "{words}");
}
