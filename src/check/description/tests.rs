//! Descriptions that are read, and mistakes in them.

use super::*;
use crate::check::{Argument, Content, Data, Expect, MapKind};

const LAUNCH: &str = r#"
ptx = "k.ptx"
grid = [4, 2, 1]
threads = [128, 1, 1]
cluster = [2, 1, 1]
shared = 49152
dependent = true
launches = 3
suppress = ["hang", "shared-race:120-140"]

[[buffer]]
name = "a"
element = "bf16"
shape = [64, 128]
file = "a.bin"
at = 16
unchanged = true

[[buffer]]
name = "table"
bytes = 64
align = 64
zeros = true
pointers = [{ at = 8, buffer = "a", offset = 256 }]
restore = true

[[buffer]]
name = "o"
element = "f16"
count = 4
want = { hex = "00 3c 00 3c 00 3c 00 3c", rtol = 1e-2, atol = 1e-3 }

[[argument]]
name = "for readers"
tensor_map = { buffer = "a", element = "bf16", dims = [128, 64], strides = [256], box = [64, 64], swizzle = "128B" }

[[argument]]
buffer = "o"
offset = 2

[[argument]]
null = true

[[argument]]
scalar = "s32"
value = -7

[[argument]]
scalar = "u64"
value = "0xffffffffffffffff"

[[argument]]
scalar = "f32"
value = "inf"

[[argument]]
bytes = 16
values = [{ at = 8, scalar = "u16", value = 258 }]
pointers = [{ at = 0, buffer = "table" }]
"#;

#[test]
fn every_key_has_its_meaning() {
    let launch = Launch::read(LAUNCH).expect("a description");
    assert_eq!((launch.launches, launch.suppressions.len()), (3, 2));
    let kernel = &launch.kernels[0];
    assert_eq!(
        (kernel.grid, kernel.threads, kernel.cluster),
        ([4, 2, 1], Some([128, 1, 1]), Some([2, 1, 1]))
    );
    assert_eq!((kernel.shared, kernel.dependent, kernel.file.as_str()), (49152, true, "k.ptx"));
    let [a, table, o] = &launch.buffers[..] else { panic!("three buffers") };
    assert_eq!((a.bytes(), a.align, &a.expect), (16384, 256, &Expect::Unchanged));
    assert_eq!(a.content, Content::Data(Data::File { file: "a.bin".into(), at: 16 }));
    assert_eq!((table.element, table.bytes(), table.align, table.restore), (Element::U8, 64, 64, true));
    assert_eq!(table.pointers, [(8, Pointer { buffer: Some("a".into()), offset: 256 })]);
    assert!(matches!(&o.expect, Expect::Values(want) if want.rtol == 1e-2 && want.element == Element::F16));
    assert!(
        matches!(&kernel.arguments[0], Argument::Map(Map { kind: MapKind::Tiled(map), .. }) if map.dims == [128, 64])
    );
    let scalars = kernel.arguments.iter().filter_map(|argument| match argument {
        Argument::Scalar(bytes) => Some(&bytes[..]),
        Argument::Pointer(_) | Argument::Map(_) | Argument::Structure { .. } => None,
    });
    assert_eq!(
        scalars.collect::<Vec<_>>(),
        [&(-7i32).to_le_bytes()[..], &[0xFF; 8], &f32::INFINITY.to_le_bytes()]
    );
    assert_eq!(kernel.arguments[2], Argument::Pointer(Pointer::default()));
    let Argument::Structure { data: Data::Bytes(bytes), .. } = &kernel.arguments[6] else {
        panic!("a structure")
    };
    assert_eq!(bytes[8..10], [2, 1]);
}

#[test]
fn mistakes_are_named() {
    for (from, to, told) in [
        ("launches = 3", "launch = 3", "unknown field `launch`"),
        ("launches = 3", "launches = 0", "launches: it is 0"),
        ("grid = [4, 2, 1]", "", "grid: it is missing"),
        ("grid = [4, 2, 1]", "grid = [4, 2]", "array of length 3"),
        (
            "grid = [4, 2, 1]",
            "grid = [4, 65536, 1]",
            "grid: is [4, 65536, 1]; x from 1 to 2147483647, y to 65535",
        ),
        ("threads = [128, 1, 1]", "threads = [1024, 2, 1]", "threads: is [1024, 2, 1]; x from 1 to 1024"),
        ("\"hang\"", "\"hangs\"", "there is no rule `hangs`"),
        ("120-140", "140-120", "`140-120` is no line"),
        ("element = \"bf16\"\nshape", "element = \"half\"\nshape", "unknown variant `half`"),
        ("shape = [64, 128]", "", "buffer `a`: one of `count`, `shape` and `bytes` was needed"),
        ("at = 16\nunchanged", "zeros = true\nunchanged", "buffer `a`: only one of `zeros`"),
        (
            "unchanged = true",
            "unchanged = true\nscratch = true",
            "only one of `want`, `unchanged` and `scratch`",
        ),
        ("unchanged = true", "unchangd = true", "unknown field `unchangd`"),
        ("align = 64", "align = 48", "align is 48, a power of two"),
        ("name = \"table\"", "name = \"a\"", "two are named `a`"),
        ("buffer = \"table\"", "buffer = \"tables\"", "`tables` is named, but there are only: a, table, o"),
        ("00 3c 00 3c 00 3c 00 3c", "00 3", "is not bytes in hexadecimal"),
        ("rtol = 1e-2", "rtol = -1.0", "rtol is -1"),
        ("value = -7", "", "argument 3: `scalar` needs `value`"),
        ("value = -7", "value = 2147483648", "argument 3: 2147483648 is no s32"),
        ("value = \"inf\"", "value = \"infinite\"", "argument 5: `infinite` is no number"),
        ("null = true", "", "argument 2: one of `buffer`, `null`"),
        (
            "null = true",
            "null = true\nscalar = \"s32\"\nvalue = 1",
            "argument 2: only one of `buffer`, `null`",
        ),
        ("null = true", "null = true\noffset = 8", "argument 2: `offset` needs `buffer`"),
        ("bytes = 16", "bytes = 9", "the value at byte 8 is beyond the 9 B"),
        ("swizzle = \"128B\"", "swizzle = \"256B\"", "unknown variant `256B`"),
        (
            "swizzle = \"128B\"",
            "fill = \"nan\"",
            "argument 0: tensor maps that fill with NaN are not modelled",
        ),
        ("swizzle = \"128B\"", "interleave = \"16B\"", "interleaved tensor maps are not modelled"),
        ("box = [64, 64]", "box = [64, 512]", "argument 0: box extent 512"),
        ("element = \"bf16\", dims", "element = \"e4m3\", dims", "`e4m3` is no element of a tensor map"),
        (
            "[[argument]]\nname",
            "[[kernel]]\ngrid = [1, 1, 1]\n\n[[argument]]\nname",
            "`ptx` must be in one of them",
        ),
    ] {
        let text = LAUNCH.replacen(from, to, 1);
        assert_ne!(text, LAUNCH, "{from}");
        let error = Launch::read(&text).expect_err(told).to_string();
        assert!(error.contains(told), "{told}: {error}");
    }
}

#[test]
fn files_are_fetched_and_measured() {
    let mut launch = Launch::read(LAUNCH).expect("a description");
    let fetch = |file: &str| match file {
        "k.ptx" => Ok(b".version 8.0".to_vec()),
        "a.bin" => Ok(vec![7; 16400]),
        other => Err(format!("{other} is not there")),
    };
    launch.load(&fetch).expect("all files are there");
    assert_eq!(launch.kernels[0].text, ".version 8.0");
    assert!(launch.is_loaded());
    let mut launch = Launch::read(LAUNCH).expect("a description");
    let error = launch
        .load(&|file| fetch(file).map(|bytes| bytes[..bytes.len().min(100)].to_vec()))
        .expect_err("short");
    assert_eq!(error.to_string(), "buffer `a`: a.bin has 100 B, 16384 B from byte 16 on were needed");
    let error = launch.load(&|_| Err("it is not there".to_owned())).expect_err("no file");
    assert!(error.to_string().contains("it is not there"), "{error}");
}

#[test]
fn several_kernels_share_buffers() {
    let launch = Launch::read(
        r#"
        [[buffer]]
        name = "x"
        element = "f32"
        count = 8

        [[kernel]]
        ptx = "first.ptx"
        grid = [1, 1, 1]
        argument = [{ buffer = "x" }]

        [[kernel]]
        ptx = "second.ptx"
        entry = "finish"
        grid = [2, 1, 1]
        dependent = true
        "#,
    )
    .expect("a description");
    let names: Vec<&str> = launch.kernels.iter().map(|kernel| kernel.file.as_str()).collect();
    assert_eq!((names, launch.launches), (vec!["first.ptx", "second.ptx"], 2));
}
