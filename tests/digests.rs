//! The program texts of every named kernel, of kernels whose stages hold more than the tiles of A and B, of some of attention, and of
//! every kernel over rows must not change unnoticed.
//!
//! `tests/digests.txt` has a digest of each text without the entry's name. An intended change updates that
//! table and gives its reason in the commit; `DIGESTS=write cargo test --test digests` writes the table.

use std::collections::BTreeMap;
use std::fmt::Write;

use collective::Formula;
use falchion::attention::Attention;
use falchion::attention::backward::AttentionBackward;
use falchion::rows::{RowKind, RowSpec, Rows};
use falchion::verify::Format;
use falchion::verify::fusions::any_columns;
use kernel::{AnyGemm, Family, Kernel, Program};
use rayon::prelude::*;

const TABLE: &str = include_str!("digests.txt");

/// 64-bit FNV-1a hash of a kernel's text, with `kernel` in place of the entry's name. The header has the version with which
/// the table was begun: the printed one follows from the instructions.
fn digest(gemm: &AnyGemm) -> u64 {
    digest_of(&gemm.program().unwrap_or_else(|error| panic!("{}: {error}", gemm.name())))
}

fn digest_of(program: &Program) -> u64 {
    let text = program.text().replace(program.name(), "kernel");
    let text = text.split_once('\n').map_or(String::new(), |(_, body)| format!(".version 8.4\n{body}"));
    text.bytes().fold(0xCBF2_9CE4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01B3)
    })
}

/// Kernels with scales, zero points or metadata in their stages; each also batched and in clusters.
const STAGES_OF_MORE: [&str; 10] = [
    "dtype=e4m3 scale-a=1x128 scale-b=128x128 tile=128x64x128",
    "dtype=e4m3 scale-a=1x128 scale-b=1x128 tile=128x64x128",
    "dtype=e4m3 scale-a=128x128 scale-b=128x128 tile=128x64x128",
    "dtype=e4m3 scale-a=1x128 scale-b=128x128 tile=256x32x128 waves=2",
    "weights-b=s4 group=128 swap=yes tile=128x32x64",
    "weights-b=u4 group=64 zeros=yes swap=yes tile=128x32x128",
    "weights-b=u8 swap=yes tile=128x16x64",
    "weights-b=e2m1 group=32 swap=yes tile=128x32x64",
    "sparse=a tile=128x32x128",
    "dtype=e4m3 sparse=b swap=yes tile=128x32x128",
];

/// Other forms and roles of them. Here, tiles begin at rows that only the device knows.
const FORMS_OF_MORE: [&str; 7] = [
    "form=ragged dtype=e4m3 scale-a=1x128 scale-b=128x128 tile=64x64x128 consumers=1",
    "form=masked dtype=e4m3 scale-a=1x128 scale-b=1x128 swap=yes tile=64x64x128 consumers=1",
    "form=k-grouped dtype=e4m3 scale-a=1x128 scale-b=1x128 tile=64x64x128 consumers=1",
    "form=ragged weights-b=e2m1 group=32 swap=yes tile=128x32x64",
    "form=masked weights-b=u4 group=64 zeros=yes swap=yes tile=128x32x128",
    "form=ragged dtype=e4m3 sparse=b swap=yes tile=128x32x128",
    "sparse=a tile=64x32x128 roles=pingpong l2-a=evict-first l2-b=evict-last",
];

/// Kernels with tables of more than 320 groups.
const MANY_GROUPS: [&str; 5] = [
    "form=ragged most-groups=512 tile=128x256x64",
    "form=masked most-groups=4096 tile=128x128x64 store=direct",
    "form=grouped most-groups=1024 tile=128x128x64 store=direct",
    "form=ragged most-groups=512 tile=128x256x64 step=32 swap=yes scheduler=dynamic raster=m",
    "form=masked most-groups=4096 tile=128x128x64 step=16 swap=yes",
];

/// Kernels of attention.
const ATTENTION: [&str; 21] = [
    "d=64 tile=192x128 mask=causal",
    "tile=128x128 mask=causal lazy=on overlap=on",
    "d=64 tile=64x32 pages=32 pack=4 part=64 mask=causal",
    "d=128 cache=e4m3 tile=64x64 pages=32 pack=4 parts=3",
    "tile=64x64 mask=causal pack=4 cluster=8",
    "d=64 tile=64x64 pack=8 ctas=2",
    "d=576x512 tile=64x64 pack=64",
    "d=576x512 tile=64x64 pack=64 parts=8 pages=64 mask=causal",
    "d=576x512 tile=64x64 pack=16 lengths=packed mask=causal part=1024 order=drawn",
    "d=576x512 tile=64x64 lazy=on softcap=on alibi=on sinks=on store=direct output=f32",
    "d=64 tile=128x64 score=softcap(x,30)+bias[b,h,q,k]:bf16 sees=q>=k&document[b,q]:s32==document[b,k]:s32",
    "d=64 tile=64x64 pack=4 sees=q+keys-queries>=k&k<length[b]:s32",
    "d=576x512 tile=64x64 pack=64 loaders=4",
    "d=576x512 tile=64x64 pack=64 parts=8 pages=16 mask=causal loaders=4",
    "d=576x512 tile=64x64 pack=16 lengths=packed mask=causal part=1024 order=drawn loaders=4",
    "d=80 tile=128x160 mask=causal lazy=on overlap=on",
    "d=112x80 tile=64x64 pages=32 pack=4 cluster=2",
    "d=80 cache=e4m3 tile=64x64 pack=4 parts=3",
    "format=e4m3 d=112 tile=128x128 store=direct",
    "d=512 tile=64x32 mask=causal lazy=on",
    "d=512 tile=64x32 pages=64 pack=4 parts=3",
];

/// Kernels of attention's backward pass.
const BACKWARD: [&str; 16] = [
    "mask=causal",
    "tile=80x128",
    "d=64 tile=128x128",
    "deterministic=on lengths=packed",
    "d=256 tile=64x64 mask=window",
    "d=192x128 tile=64x64 deterministic=on",
    "d=64 tile=64x64 mask=causal split=2",
    "d=256 tile=64x64 deterministic=on split=4",
    "tile=64x128 mask=causal apart=1",
    "d=256 tile=64x64 apart=2",
    "d=64 tile=64x64 lengths=packed apart=1 whole=3",
    "mask=causal softcap=on alibi=on",
    "d=256 tile=64x64 softcap=on alibi=on",
    "tile=64x128 score=x-slope[h]*abs(q-k) sees=q>=k",
    "d=80 tile=64x128 mask=causal",
    "d=208x112 tile=64x64 split=2",
];

fn attention_programs() -> impl Iterator<Item = (String, Program)> {
    let forward = ATTENTION.into_iter().map(|text| {
        let kernel = Attention::of_spec(&text.parse().expect("a spec")).expect("legal");
        (format!("attention {text}"), kernel.program().expect("a program"))
    });
    let backward = BACKWARD.into_iter().flat_map(|text| {
        let kernel = AttentionBackward::of_spec(&text.parse().expect("a spec")).expect("legal");
        let programs = kernel.programs().expect("programs").into_iter().enumerate();
        programs.map(move |(i, program)| (format!("attention-backward {text}, program {i}"), program))
    });
    forward.chain(backward)
}

/// Every kernel over rows, by its spec.
fn row_programs() -> impl Iterator<Item = (String, Program)> {
    let all = RowKind::all().flat_map(|kind| {
        [collective::Format::Bf16, collective::Format::F16, collective::Format::F32]
            .into_iter()
            .flat_map(move |format| [false, true].map(|words| RowSpec { kind, format, words }))
    });
    let legal = all.filter_map(|spec| Some((spec, Rows::new(&spec).ok()?)));
    legal.map(|(spec, kernel)| (format!("rows {spec}"), kernel.program().expect("a program")))
}

fn kernels_of_more() -> impl Iterator<Item = AnyGemm> {
    let placed =
        |spec| ["", " form=batched", " cluster=2x1", " cluster=1x2"].map(|place| format!("{spec}{place}"));
    let texts = STAGES_OF_MORE
        .into_iter()
        .flat_map(placed)
        .chain(FORMS_OF_MORE.into_iter().chain(MANY_GROUPS).map(str::to_owned));
    texts.map(|text| kernel::find(&text).unwrap_or_else(|error| panic!("{text}: {error}")))
}

/// Every named kernel, the kernels that fusions fall back to, and those with more in their stages.
fn kernels() -> Vec<AnyGemm> {
    let formats = [Format::Bf16, Format::F16];
    let fallback = |(fusion, format)| any_columns(fusion, format).expect("legal").gemm;
    let all = Formula::all().flat_map(|fusion| formats.map(|format| (fusion, format)));
    kernel::all().into_iter().chain(all.map(fallback)).chain(kernels_of_more()).collect()
}

#[test]
fn programs_are_what_they_were() {
    let mut now: BTreeMap<String, u64> =
        kernels().par_iter().map(|gemm| (gemm.name().to_owned(), digest(gemm))).collect();
    now.extend(attention_programs().chain(row_programs()).map(|(name, program)| (name, digest_of(&program))));
    if std::env::var_os("DIGESTS").is_some() {
        let mut table = String::new();
        for (name, digest) in &now {
            let _ = writeln!(table, "{name} {digest:016x}");
        }
        std::fs::write("tests/digests.txt", table).expect("a writable folder");
        return;
    }
    let before: BTreeMap<String, u64> = TABLE
        .lines()
        .map(|line| {
            let (name, digest) = line.rsplit_once(' ').expect("a name and a digest");
            (name.to_owned(), u64::from_str_radix(digest, 16).expect("a digest"))
        })
        .collect();
    let changed: Vec<&String> =
        now.iter().filter(|(name, digest)| before.get(*name) != Some(digest)).map(|(name, _)| name).collect();
    let gone: Vec<&String> = before.keys().filter(|name| !now.contains_key(*name)).collect();
    assert!(changed.is_empty() && gone.is_empty(), "changed or new: {changed:?}; gone: {gone:?}");
    assert_eq!(now.len(), 667);
}

/// What the self-test of compilers finds wrong concerns no program: no kernel adds to pairs of 16-bit integers, and none takes the larger
/// or smaller of an integer and its negation.
#[test]
fn no_program_has_what_compilers_get_wrong() {
    let gemms: Vec<String> = kernels()
        .par_iter()
        .map(|gemm| {
            gemm.program().unwrap_or_else(|error| panic!("{}: {error}", gemm.name())).text().to_owned()
        })
        .collect();
    let others =
        attention_programs().map(|(_, program)| program).chain(row_programs().map(|(_, program)| program));
    let (mut sums, mut found) = (0, Vec::new());
    for text in gemms.into_iter().chain(others.map(|program| program.text().to_owned())) {
        let mut negated = std::collections::BTreeSet::new();
        for line in text.lines().map(str::trim) {
            let (name, operands) = line.split_once(' ').unwrap_or((line, ""));
            let operands: Vec<&str> = operands.trim_end_matches(';').split(", ").collect();
            sums += usize::from(name.starts_with("add."));
            match (name, &operands[..]) {
                ("neg.s32" | "neg.s64", [minus, of]) => {
                    negated.insert((*minus, *of));
                }
                ("min.s32" | "max.s32" | "min.s64" | "max.s64", [_, a, b])
                    if negated.contains(&(*a, *b)) || negated.contains(&(*b, *a)) =>
                {
                    found.push(line.to_owned());
                }
                _ if name.starts_with("add") && name.ends_with("16x2") && !name.contains('f') => {
                    found.push(line.to_owned());
                }
                _ => {}
            }
        }
    }
    assert!(found.is_empty() && sums > 1000, "{sums}: {found:?}");
}

/// A kernel's spec makes the same kernel again. So does the text of the spec, with defaults written out or
/// not.
#[test]
fn specs_are_their_kernels() {
    let wrong: Vec<String> = kernels()
        .par_iter()
        .filter_map(|gemm| {
            let spec = gemm.spec()?;
            let words: Vec<String> =
                spec.words().into_iter().map(|(key, value)| format!("{key}={value}")).collect();
            for text in [spec.to_string(), words.join(" ")] {
                let again = kernel::KernelSpec::parse(&text).expect("a spec");
                let kernel = again.kernel().expect("legal");
                if again != spec || digest(&kernel) != digest(gemm) || kernel.plan() != gemm.plan() {
                    return Some(format!("{}: {text}", gemm.name()));
                }
            }
            None
        })
        .collect();
    assert_eq!(wrong, [""; 0]);
    assert!(kernels().iter().all(|gemm| gemm.spec().is_some()));
}
