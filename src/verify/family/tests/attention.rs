//! Attention as a family: what is expected of a request, drawn of it, and told of a kernel.

use attention::backward::AttentionBackward;
use attention::{Attention, AttentionRequest};
use kernel::{Emulator, Family, Needed};
use reference::Format;

use crate::verify::family::{Agreed, FamilyError, check};
use crate::verify::tampered::{Mistake, Tampered, edge};

fn kernel(spec: &str) -> Attention {
    let parsed = spec.parse().unwrap_or_else(|error| panic!("{spec}: {error}"));
    Attention::new(parsed).unwrap_or_else(|error| panic!("{spec}: {error}"))
}

fn request(text: &str) -> AttentionRequest {
    Attention::request(text).unwrap_or_else(|error| panic!("{text}: {error}"))
}

/// Heads that share keys, masks, lengths that differ, pages, factors, and values that are keys: the reference says of
/// every element what kernels compute, and nearly as exactly.
#[test]
fn every_element_of_a_request_is_expected() {
    for (text, spec, queries) in [
        ("2x4/2x9x14 d=64", "", 2 * 9),
        ("2x2x9x14 d=64 mask=window left=5 right=2", "mask=window", 2 * 9),
        ("3x4/2x9 d=64 lengths=packed mask=causal", "lengths=packed mask=causal", 9 + 6 + 3),
        ("2x4/2x3x70 d=64 pages=16 mask=causal", "pages=16 mask=causal", 2 * 3),
        ("2x4/2x3x70 d=64 pages=64", "pages=64 pack=2 parts=2", 2 * 3),
        ("2x4/2x9x14 d=64 cache=e4m3", "cache=e4m3", 2 * 9),
        ("2x2x9x14 d=64 format=e4m3", "format=e4m3 output=bf16 store=direct", 2 * 9),
        ("2x8/1x1x40 d=576x512", "d=576x512 tile=64x64 pack=8", 2),
    ] {
        let spec = if spec.contains("d=") { spec.to_owned() } else { format!("d=64 tile=64x64 {spec}") };
        let (kernel, request) = (kernel(&spec), request(text));
        let agreed = check(&mut Emulator::new(), &kernel, &request, (7, usize::MAX));
        let agreed = agreed.unwrap_or_else(|error| panic!("{text}: {error}"));
        let count = queries * request.problem.heads[0] as usize * (request.head[1] as usize + 1);
        assert_eq!((agreed.compared, agreed.total), (count, count), "{text}");
        assert!(agreed.ratio > 0.1, "{text}: {agreed:?}");
    }
}

/// What is needed of each block, and how the work is shared.
#[test]
fn blocks_are_those_of_the_mask() {
    use Needed::{All, Nothing, Some};
    for (text, spec, needed, of, turns) in [
        (
            "1x1x130x130 d=64",
            "",
            vec![vec![All; 3]; 3],
            "130 queries, 130 keys.",
            "One warpgroup computes everything.",
        ),
        (
            "2x1x128x160 d=64 mask=causal",
            "parts=2 mask=causal",
            vec![vec![Some, Some, Nothing], vec![All, Some, Some]],
            "128 queries, 160 keys. The keys of a tile are divided among CTAs.",
            "One warpgroup computes everything.",
        ),
        (
            "1x2/1x60x64 d=64 mask=window left=20 right=0",
            "pack=2 mask=window",
            vec![vec![Some], vec![Some]],
            "60 queries, 64 keys.",
            "One warpgroup computes everything.",
        ),
        (
            "2x1x200 d=64 lengths=packed",
            "tile=128x64 lengths=packed",
            vec![vec![All; 4]; 2],
            "200 queries, 200 keys.",
            "2 warpgroups take turns: while one multiplies, the others compute weights.",
        ),
        (
            "1x1x64 d=64",
            "tile=192x64 turns=off",
            vec![vec![All]],
            "64 queries, 64 keys.",
            "3 warpgroups compute without turns.",
        ),
    ] {
        let tile = if spec.contains("tile") { "" } else { "tile=64x64" };
        let kernel = kernel(&format!("d=64 {tile} {spec}"));
        let blocks = kernel.blocks(&request(text)).expect("a picture");
        assert_eq!(blocks.needed, needed, "{text}");
        assert_eq!(blocks.of, format!("The first sequence and head: {of}"), "{text}");
        assert_eq!(blocks.turns, turns, "{text}");
        assert_eq!(blocks.axes, ["queries", "keys"]);
    }
}

/// Numbers that a spec gives are told.
#[test]
fn numbers_are_those_of_the_plan() {
    let stages = ["consumer warpgroups", "stages of Q", "stages of K", "stages of V"];
    for (spec, names, want) in [
        ("d=64 tile=64x64 stages=1", &stages[..], &[1, 2, 1, 1][..]),
        ("d=64 tile=128x64 stages=3", &stages, &[2, 2, 3, 3]),
        ("d=576x512 tile=64x64 pack=64", &stages[..3], &[2, 1, 18]),
    ] {
        let numbers = kernel(spec).numbers();
        let (rings, registers) = numbers.split_at(names.len());
        let values: Vec<u32> = numbers.iter().map(|[_, value, _]| value.parse().expect("a number")).collect();
        assert!(rings.iter().map(|[name, ..]| name).eq(names), "{numbers:?}");
        assert_eq!(&values[..names.len()], want, "{spec}: {numbers:?}");
        let registers: Vec<_> = registers.iter().map(|[name, ..]| &name[..]).collect();
        assert_eq!(registers, ["registers, producer", "registers, consumer"], "{spec}");
        assert!(values[names.len()..].iter().all(|count| (24..=255).contains(count)), "{spec}: {values:?}");
    }
}

/// Numbers of the plan are told.
#[test]
fn numbers_of_the_backward_pass_are_those_of_the_plan() {
    for (spec, want) in [("d=64 tile=64x64", [1, 2, 2, 2]), ("d=64 tile=128x128", [2, 2, 2, 2])] {
        let kernel = AttentionBackward::new(spec.parse().expect("a spec")).expect("legal");
        let numbers = kernel.numbers();
        let names: Vec<_> = numbers.iter().map(|[name, ..]| &name[..]).collect();
        let told = ["consumer warpgroups", "stages of Q", "stages of dO", "buffers of dS"];
        assert_eq!(names, [&told[..], &["registers, producer", "registers, consumer"]].concat(), "{spec}");
        let values: Vec<u32> = numbers.iter().map(|[_, value, _]| value.parse().expect("a number")).collect();
        assert_eq!(values[..4], want, "{spec}: {numbers:?}");
        assert!(values[4..].iter().all(|count| (24..=255).contains(count)), "{spec}: {values:?}");
    }
}

/// Sequences of different lengths: an element of any row is right up to its bound and not beyond, and no two rows are taken for each
/// other. O is the fourth piece of memory, or dQ the sixth, and so on: of queries, of keys and of values.
#[test]
fn mistakes_of_attention_are_found() {
    const LARGE: u64 = 0x4780;
    type Judge = fn(usize, Vec<Mistake>) -> Result<Agreed, FamilyError>;
    let forward: Judge = |piece, mistakes| {
        let kernel = kernel("d=64 tile=64x64 mask=causal lengths=packed");
        check(&mut Tampered::new(piece, mistakes), &kernel, &request(PACKED), (7, usize::MAX))
    };
    let backward: Judge = |piece, mistakes| {
        let spec = "d=64 tile=64x64 mask=causal lengths=packed".parse().expect("a spec");
        let kernel = AttentionBackward::new(spec).expect("legal");
        let request = AttentionBackward::request(PACKED).expect("a problem");
        check(&mut Tampered::new(piece, mistakes), &kernel, &request, (7, usize::MAX))
    };
    // 4 heads of queries, 2 of keys; sequences of 9, 6 and 3.
    const PACKED: &str = "3x4/2x9 d=64 lengths=packed mask=causal";
    let bf16 = (Format::Bf16, 64, LARGE);
    for (name, judge, piece, rows, (format, width, large)) in [
        ("O", forward, 3, 4 * 18, bf16),
        ("the log-sum-exp", forward, 4, 4 * 18, (Format::F32, 1, 0x4780_0000)),
        ("dQ", backward, 5, 4 * 18, bf16),
        ("dK", backward, 6, 2 * 18, bf16),
        ("dV", backward, 7, 2 * 18, bf16),
    ] {
        let set = |at: usize, bits| Mistake::element(format, at * format.bytes() as usize, bits);
        for row in [0, 8, 9, 14, 15, 17, 18, rows - 1] {
            let at = row * width + width / 2;
            let found = judge(piece, set(at, large)).expect_err("it is large");
            let FamilyError::Element { name: of, index, expected, bound, .. } = found else {
                panic!("{name}, row {row}: {found}");
            };
            assert_eq!((of, index), (name, at));
            let [within, beyond] = edge(format, expected, bound);
            assert!(judge(piece, set(at, within)).is_ok(), "{name}, row {row}: within the bound");
            assert!(judge(piece, set(at, beyond)).is_err(), "{name}, row {row}: beyond the bound");
        }
        let bytes = width * format.bytes() as usize;
        let left_out =
            judge(piece, vec![Mistake::Unwritten(11 * bytes..11 * bytes + format.bytes() as usize)]);
        let unwritten = matches!(left_out, Err(FamilyError::Unwritten { index, .. }) if index == 11 * width);
        assert!(unwritten, "{name}: one element is left out: {left_out:?}");
    }
}
