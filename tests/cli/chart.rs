//! `falchion chart`: the chart of the README is drawn from the records, and what cannot be drawn is refused.

use std::fs;
use std::path::Path;

use super::{falchion, folder, refused};

/// The README's chart is what this command draws (in a shell, where braces are expanded).
const COMMAND: &str = "falchion chart tests/selection/h200_{fresh,few_drawn,formats}.jsonl \
                       --card \"H200, driver 580.159.04, cuBLASLt 13.1.0, in CUDA graphs\" -o docs/pictures/ratios.svg";

#[test]
fn the_chart_of_the_readme_is_drawn_from_the_records() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let records = ["fresh", "few_drawn", "formats"]
        .map(|name| root.join(format!("tests/selection/h200_{name}.jsonl")).display().to_string());
    let mut arguments = vec!["chart"];
    arguments.extend(records.iter().map(String::as_str));
    arguments.extend(["--card", "H200, driver 580.159.04, cuBLASLt 13.1.0, in CUDA graphs"]);
    let run = falchion(&arguments);
    assert_eq!(run.code, Some(0), "{}", run.stderr);
    let read = |name: &str| fs::read_to_string(root.join(name)).expect("a text file");
    assert!(
        run.stdout == read("docs/pictures/ratios.svg"),
        "the picture is older than the records: {COMMAND}"
    );
    assert!(read("docs/evidence/performance.md").contains(COMMAND), "the page has no `{COMMAND}`");
    // Means of the tables in docs/evidence/performance.md, and the number of shapes in bf16.
    for mean in [">1.12<", ">1.20<", ">1.24<", ">1.91<", ">0.89<", ">70<", "M or N up to 128"] {
        assert!(run.stdout.contains(mean), "no `{mean}`");
    }
}

#[test]
fn what_is_no_record_is_not_drawn() {
    let folder = folder("chart");
    let file = |name: &str, text: &str| {
        let path = folder.join(name);
        fs::write(&path, text).expect("a writable folder");
        path.display().to_string()
    };
    let line = |times: &str| {
        format!(
            r#"{{"m":64,"n":64,"k":64,"dtype":"bf16","layout":"kk","state":"burst","kernels":[{{"spec":"","slots":132,"quick":2.0,"microseconds":2.0}}],{times}}}"#
        )
    };
    let dense = line(r#""cublaslt_first":3.0,"cublaslt_fastest":2.5"#);
    let sparse = line(
        r#""cublaslt_first":null,"cublaslt_fastest":null,"cusparselt_first":3.0,"cusparselt_fastest":2.0"#,
    );
    let alone = line(r#""cublaslt_first":null,"cublaslt_fastest":null"#);
    let [dense, sparse, alone, empty, other] = [
        ("dense", &*dense),
        ("sparse", &*sparse),
        ("alone", &*alone),
        ("empty", ""),
        ("other", "{}\nno line"),
    ]
    .map(|(name, text)| file(name, text));
    refused(
        "chart",
        &[
            ("nothing", &["--card", "x"], &["RECORD"]),
            ("no card", &[&dense], &["--card"]),
            ("no file", &["none.jsonl", "--card", "x"], &["none.jsonl"]),
            ("a device", &["/dev/zero", "--card", "x"], &["/dev/zero"]),
            ("no lines", &[&empty, "--card", "x"], &["no lines"]),
            ("no record", &[&other, "--card", "x"], &["line 1", "missing field"]),
            ("no library", &[&alone, "--card", "x"], &["64x64x64", "no times of cuBLASLt"]),
            ("two libraries", &[&dense, &sparse, "--card", "x"], &["cuBLASLt and with cuSPARSELt"]),
        ],
    );
    let run = falchion(&["chart", &sparse, "--card", "a card & <more>"]);
    assert!(run.stdout.contains("cuSPARSELt's fastest") && run.stdout.contains("a card &amp; &lt;more>"));
    assert!(run.stdout.contains(">1.00<") && !run.stdout.contains("NaN"), "{}", run.stdout);
}
