//! Numbers and code of the README, compared with their sources.

use falchion::collective::MainloopSpec;
use falchion::prelude::*;

const README: &str = include_str!("../README.md");

/// The README's kernel.
struct MyGemm;
impl GemmConfig for MyGemm {
    type Mainloop = TmaWgmma<Operands<KMajor<bf16>, KMajor<bf16>>, Tile<U128, U256, U64>, Cooperative<U2>>;
    type Epilogue = LinearCombination<bf16, TmaStore>;
    type Scheduler = Persistent<Grouped<AlongM, U8>>;
}

/// The text of the README on one line.
fn words() -> String {
    README.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[test]
fn six_stages_are_refused_in_these_words() {
    let plan = Gemm::<MyGemm>::PLAN;
    let six = MainloopSpec { stages: Some(6), ..plan.mainloop };
    let error = Plan::new(six, plan.epilogue).expect_err("too many stages").to_string();
    assert!(words().contains(&format!("*{error}*")), "{error}");
}

#[test]
fn its_kernel_is_the_one_that_is_tested() {
    let code = "type Mainloop = TmaWgmma<Operands<KMajor<bf16>, KMajor<bf16>>, Tile<U128, U256, U64>, Cooperative<U2>>; \
                type Epilogue = LinearCombination<bf16, TmaStore>; type Scheduler = Persistent<Grouped<AlongM, U8>>;";
    assert!(words().contains(code));
}

#[test]
fn counts_are_those_of_the_records() {
    let lines = |text: &str| text.lines().filter(|line| !line.starts_with('#')).count();
    let [wgmma, others] = [include_str!("silicon/wgmma.txt"), include_str!("silicon/others.txt")].map(lines);
    let proof = include_str!("../docs/proof.md");
    let killed =
        proof.split("**").find(|part| part.ends_with(" %") && part.len() < 10).expect("the share of kills");
    let killed: f64 = killed.trim_end_matches(" %").parse().expect("a number");
    let notices = format!("the emulator notices {killed:.2} %");
    let plain = kernel::catalogue().len() + kernel::several().len();
    let fused = falchion::verify::fused_catalogue().len();
    for (text, page) in [
        (format!("{wgmma} of `wgmma` (each type, sparse, registers) and {others} others"), words()),
        (notices, words()),
        (format!("{plain} plain kernels of the catalogue"), proof.to_owned()),
        (format!("{fused} kernels with a fused"), proof.to_owned()),
    ] {
        assert!(page.contains(&text), "{text}");
    }
}
