//! The doors and the tables of arguments: the header for C and the stubs for Python have each argument of the tables, and no other; and each
//! piece of memory that kernels reach is an argument.

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;

use falchion::attention::backward::AttentionBackward;
use falchion::attention::{Attention, AttentionProblem, AttentionRequest, Lengths};
use falchion::collective::Format;
use falchion::cute_rs::atom::Major;
use falchion::kernel::operands::Memory;
use falchion::kernel::{AnyGemm, Family, GemmProblem, GroupedProblem, Kernel, Machine, Request, Types};
use falchion::rows::Rows;
use falchion_core::{
    APPEND_PAGES, ARRAY, ATTENTION, FieldKind, GEMM, GRADIENT, Goes, INPUT, MERGE_ATTENTION, MergedHeads,
    NewKeys, Operation, Placed, Python, Structure, Switch,
};

fn read(path: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("..").join(path);
    std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// A text without C's comments.
fn without_comments(text: &str) -> String {
    let mut parts = text.split("/*");
    let first = parts.next().unwrap_or_default().to_owned();
    parts.fold(first, |all, part| all + part.split_once("*/").map_or("", |(_, after)| after))
}

/// The fields of a structure of the header, with their types: `lda` of `uint64_t`.
fn declared(header: &str, name: &str) -> Vec<(String, String)> {
    let header = without_comments(header);
    let end = header.find(&format!("}} {name};")).unwrap_or_else(|| panic!("the header has no {name}"));
    let body = &header[header[..end].rfind("typedef struct {").expect("a structure")..end];
    let fields = body.trim_start_matches("typedef struct {").split(';');
    let field = |line: &str| -> Vec<(String, String)> {
        let words: Vec<&str> = line.split_whitespace().collect();
        let Some(at) = words.iter().position(|word| {
            !["const", "void", "char", "float", "double", "size_t"].contains(word)
                && !word.ends_with("_t")
                && !["falchion_input", "falchion_array"].contains(word)
        }) else {
            return Vec::new();
        };
        let of = words[..at].iter().filter(|word| **word != "const").copied().collect::<Vec<_>>().join(" ");
        let one = |declarator: &str| -> Vec<(String, String)> {
            let declarator = declarator.trim();
            let name = declarator.trim_start_matches('*');
            let of = if name == declarator { of.clone() } else { format!("{of} *") };
            match name.split_once('[') {
                None => vec![(name.to_owned(), of)],
                Some((name, count)) => {
                    let count: usize = count.trim_end_matches(']').parse().expect("a number");
                    (0..count).map(|i| (format!("{name}[{i}]"), of.clone())).collect()
                }
            }
        };
        words[at..].join(" ").split(',').flat_map(one).collect()
    };
    fields.flat_map(field).collect()
}

/// The types of C that a kind of field has.
fn types(kind: FieldKind) -> &'static [&'static str] {
    match kind {
        FieldKind::Whole => &["uint32_t"],
        FieldKind::Long => &["uint64_t", "size_t"],
        FieldKind::Signed => &["int32_t"],
        FieldKind::Single => &["float"],
        FieldKind::Double => &["double"],
        FieldKind::Text => &["char *"],
        FieldKind::Address => &["void *", "float *", "uint32_t *", "falchion_input *", "falchion_array *"],
    }
}

/// How a structure of the header differs from its table.
fn structure<T>(header: &str, table: &Structure<T>) -> Vec<String> {
    let name = table.name;
    let declared = declared(header, name);
    let known: BTreeMap<&str, FieldKind> = table.fields.iter().map(|field| (field.c, field.kind)).collect();
    let missing = table.fields.iter().filter(|field| !declared.iter().any(|(of, _)| of == field.c));
    let mut all: Vec<String> =
        missing.map(|field| format!("{name} has no field {}, the table has", field.c)).collect();
    for (field, of) in &declared {
        match known.get(field.as_str()) {
            None => all.push(format!("{name}.{field} is in no table")),
            Some(kind) if !types(*kind).contains(&of.as_str()) => {
                all.push(format!("{name}.{field} is of type {of}, the table has {kind:?}"));
            }
            Some(_) => {}
        }
    }
    let order = declared.iter().map(|(field, _)| field.as_str()).filter(|field| known.contains_key(field));
    let own = table.fields.iter().map(|field| field.c).filter(|c| declared.iter().any(|(of, _)| of == c));
    if order.ne(own) {
        all.push(format!("{name} has its fields in another order than the table"));
    }
    if !table.later.is_empty() && !known.contains_key(table.later) {
        all.push(format!("{name} has no field {}, with which its second version begins", table.later));
    }
    all
}

/// How the flags of the header differ from those of tables.
fn flags(header: &str, known: &[(&str, u32)]) -> Vec<String> {
    let defined = header.lines().filter_map(|line| {
        let (name, value) = line.strip_prefix("#define ")?.split_once(' ')?;
        Some((name, value.strip_suffix('u')?.parse::<u32>().ok()?))
    });
    let defined: BTreeSet<(&str, u32)> = defined.collect();
    let known: BTreeSet<(&str, u32)> = known.iter().copied().collect();
    defined.symmetric_difference(&known).map(|(name, bit)| format!("{name} is {bit} on one side")).collect()
}

fn switches<T>(table: &Structure<T>) -> Vec<&'static Switch<T>> {
    let of = |goes: &'static Goes<T>| if let Goes::Switches(all) = goes { *all } else { &[] };
    table.fields.iter().flat_map(|field| of(&field.goes)).collect()
}

/// Structures that kernels read, not this library.
const READ_BY_KERNELS: [&str; 1] = ["falchion_record"];

/// How the header differs from the tables.
fn header(text: &str) -> Vec<String> {
    let all = [
        structure(text, GEMM.described),
        structure(text, GEMM.given),
        structure(text, INPUT),
        structure(text, ARRAY),
        structure(text, ATTENTION.described),
        structure(text, ATTENTION.given),
        structure(text, GRADIENT.given),
        structure(text, MERGE_ATTENTION.given),
        structure(text, APPEND_PAGES.given),
    ];
    let known = [
        GEMM.described.name,
        GEMM.given.name,
        INPUT.name,
        ARRAY.name,
        ATTENTION.described.name,
        ATTENTION.given.name,
        GRADIENT.given.name,
        MERGE_ATTENTION.given.name,
        APPEND_PAGES.given.name,
    ];
    let bare = without_comments(text);
    let structures = bare.split("typedef struct {").skip(1).filter_map(|part| {
        let (_, after) = part.split_once('}')?;
        after.split(';').next().map(|name| name.trim().to_owned())
    });
    let others = structures.filter(|name| !known.contains(&&**name) && !READ_BY_KERNELS.contains(&&**name));
    let others = others.map(|name| format!("{name} has no table"));
    let of_gemm = switches(GEMM.described).into_iter().map(|switch| (switch.c, switch.bit));
    let of_attention = switches(ATTENTION.described).into_iter().map(|switch| (switch.c, switch.bit));
    let flags = flags(text, &of_gemm.chain(of_attention).collect::<Vec<_>>());
    all.into_iter().flatten().chain(others).chain(flags).collect()
}

/// Arguments of Python's functions that no table has.
const OWN: [(&str, &str, &str); 6] = [
    ("matmul", "**inputs", "the arguments of the epilogue's text, by their own names"),
    ("check", "schedules", "the number of runs in the emulator"),
    ("check", "**keywords", "the arguments of the call"),
    ("plan", "card", "the card to choose for, by name"),
    ("plan", "most", "the number of kernels to return"),
    ("tune", "budget", "the number of kernels to measure"),
];

/// The arguments of a function of the stubs: how each is given.
fn stub(stubs: &str, function: &str) -> Vec<(String, bool, bool)> {
    let start = stubs.find(&format!("\ndef {function}(")).unwrap_or_else(|| panic!("no {function}"));
    let rest = &stubs[start..];
    let all = &rest[rest.find('(').expect("arguments") + 1..rest.find(") ->").expect("a result")];
    let (mut keyword, mut depth, mut word, mut words) = (false, 0, String::new(), Vec::new());
    for c in all.chars().chain([',']) {
        match c {
            '[' => depth += 1,
            ']' => depth -= 1,
            ',' if depth == 0 => words.push(std::mem::take(&mut word)),
            _ => {}
        }
        if c != ',' || depth > 0 {
            word.push(c);
        }
    }
    let mut found = Vec::new();
    for word in words.iter().map(|word| word.trim()).filter(|word| !word.is_empty()) {
        if word == "*" {
            keyword = true;
            continue;
        }
        let name = word.split([':', '=']).next().unwrap_or_default().trim();
        found.push((name.to_owned(), keyword, word.contains('=')));
    }
    found
}

/// How a function of the stubs differs from its operation's table.
fn function<D, G>(stubs: &str, operation: &Operation<D, G>) -> Vec<String> {
    let function = operation.name;
    let found = stub(stubs, function);
    let mut all = Vec::new();
    let mut positional = Vec::new();
    let mut names = BTreeSet::new();
    for python in operation.python() {
        let name = python.name().unwrap_or_default();
        names.insert(name);
        let how = match python {
            Python::Needed(_) => (false, false),
            Python::Positional(_) => (false, true),
            Python::Keyword(_) | Python::No => (true, true),
        };
        match found.iter().find(|(of, ..)| of == name) {
            None => all.push(format!("{function} has no argument {name}, the table has")),
            Some((_, keyword, default)) if (*keyword, *default) != how => {
                all.push(format!("{function}'s {name} is given in another way than the table says"));
            }
            Some(_) if !how.0 => positional.push(name),
            Some(_) => {}
        }
    }
    let own = |name: &str| OWN.iter().any(|(of, own, _)| *of == function && *own == name);
    let unknown = found.iter().filter(|(name, ..)| !names.contains(name.as_str()) && !own(name));
    all.extend(unknown.map(|(name, ..)| format!("{function}'s {name} is in no table")));
    let order = found.iter().filter(|(_, keyword, _)| !keyword).map(|(name, ..)| name.as_str());
    let order = order.filter(|name| positional.contains(name));
    if order.ne(positional.iter().copied()) {
        all.push(format!("{function} has its arguments in another order than the table"));
    }
    all
}

/// How the stubs differ from the tables. `plan` and `tune` have words of the description.
fn stubs(text: &str) -> Vec<String> {
    let mut all = [
        function(text, &GEMM),
        function(text, &ATTENTION),
        function(text, &GRADIENT),
        function(text, &MERGE_ATTENTION),
        function(text, &APPEND_PAGES),
    ]
    .concat();
    let described = GEMM.described.fields.iter().map(|field| field.c);
    let known: Vec<&str> = described
        .chain(GEMM.python().filter_map(Python::name))
        .chain(OWN.iter().map(|(_, name, _)| *name))
        .collect();
    // Those that plan or tune a call take its arguments.
    let of_heads = ATTENTION.python().chain(GRADIENT.python()).filter_map(Python::name);
    let of_heads: Vec<&str> = of_heads.chain(OWN.iter().map(|(_, name, _)| *name)).collect();
    for (functions, known) in [
        (&["plan", "tune", "check", "plan_matmul"][..], known),
        (
            &["plan_attention", "tune_attention", "plan_attention_backward", "tune_attention_backward"],
            of_heads,
        ),
    ] {
        for function in functions {
            let found = stub(text, function).into_iter().filter(|(name, ..)| !known.contains(&name.as_str()));
            all.extend(found.map(|(name, ..)| format!("{function}'s {name} is in no table")));
        }
    }
    all
}

const HEADER: &str = "c/include/falchion.h";
const STUBS: &str = "python/python/falchion/_native.pyi";

#[test]
fn the_header_and_the_stubs_have_the_arguments_of_the_tables() {
    assert_eq!(header(&read(HEADER)), Vec::<String>::new());
    assert_eq!(stubs(&read(STUBS)), Vec::<String>::new());
}

/// What is on one side alone is named.
#[test]
fn an_argument_that_is_missing_is_named() {
    let text = read(HEADER);
    for (from, to, words) in [
        ("uint64_t lda, ldb", "uint64_t ldb", "falchion_gemm_desc has no field lda"),
        ("uint64_t lda, ldb", "uint64_t lda, lde, ldb", "falchion_gemm_desc.lde is in no table"),
        ("uint64_t lda, ldb", "uint64_t ldb, lda", "falchion_gemm_desc has its fields in another order"),
        ("int32_t window[2]", "int32_t window[3]", "falchion_attention_desc.window[2] is in no table"),
        ("int32_t window[2]", "int64_t window[2]", "window[0] is of type int64_t, the table has Signed"),
        ("double value_f64;", "", "falchion_input has no field value_f64"),
        ("const uint32_t *begins_q, *begins_k;", "const uint32_t *begins_q;", "has no field begins_k"),
        ("const void *d_o;", "const void *d_o, *d_s;", "falchion_attention_backward_args.d_s is in no table"),
        ("uint32_t slot_bits;", "uint64_t slot_bits;", "slot_bits is of type uint64_t"),
        ("#define FALCHION_CAUSAL 1u", "", "FALCHION_CAUSAL is 1"),
        (
            "#define FALCHION_CAUSAL 1u",
            "#define FALCHION_CAUSAL 1u\n#define FALCHION_SINKS 32u",
            "SINKS is 32",
        ),
        ("} falchion_record;", "} falchion_other;", "falchion_other has no table"),
    ] {
        assert!(text.contains(from), "{from}");
        let found = header(&text.replacen(from, to, 1));
        assert!(found.iter().any(|found| found.contains(words)), "{words}: {found:?}");
    }
    let text = read(STUBS);
    for (from, to, words) in [
        ("    scale_a: Any | None = None,\n", "", "matmul has no argument scale_a"),
        (
            "    scale_a: Any",
            "    scale_c: Any | None = None,\n    scale_a: Any",
            "matmul's scale_c is in no table",
        ),
        ("    b: Any,\n    *,", "    b: Any = None,\n    *,", "matmul's b is given in another way"),
        ("    a: Any,\n    b: Any,", "    b: Any,\n    a: Any,", "matmul has its arguments in another order"),
        ("    block_table: Any | None = None,\n", "", "attention has no argument block_table"),
        (
            "    deterministic: bool = False,\n    cu_seqlens_q: Any = None,\n",
            "    cu_seqlens_q: Any = None,\n",
            "attention_backward has no argument deterministic",
        ),
        ("    most: int = 1,\n", "    least: int = 1,\n", "plan's least is in no table"),
    ] {
        assert!(text.contains(from), "{from}");
        let found = stubs(&text.replacen(from, to, 1));
        assert!(found.iter().any(|found| found.contains(words)), "{words}: {found:?}");
    }
}

/// The names of the memory that a call of a kernel reaches.
fn reached<C>(kernel: &impl Kernel<C>, mut call: C) -> BTreeSet<&'static str> {
    let mut all = BTreeSet::new();
    kernel.visit(&mut call, &mut |memory: Memory<'_>| {
        all.insert(memory.name);
    });
    all
}

/// The names of memory that have arguments.
fn named<T>(table: &Structure<T>) -> BTreeSet<&'static str> {
    let of = |goes: &'static Goes<T>| if let Goes::Memory(names) = goes { *names } else { &[] };
    table.fields.iter().flat_map(|field| of(&field.goes)).copied().collect()
}

/// Memory of kernels that no argument names: what no door offers, and what launches are lent.
const NOT_NAMED: [&str; 1] = ["the workspace"];

#[test]
fn memory_of_kernels_has_arguments() {
    let machine = Machine::h200();
    let problem = AttentionProblem::new(2, 2, [64; 2], 64);
    let plain = AttentionRequest::new(problem, 64);
    let mut attention = BTreeSet::new();
    for request in [
        AttentionRequest { lengths: Lengths::Packed, ..plain },
        AttentionRequest { pages: Some(16), log_sum_exp: true, ..plain },
        AttentionRequest {
            cache: Some(Format::E4m3),
            sinks: true,
            alibi: true,
            soft_cap: Some(2.0),
            ..plain
        },
    ] {
        let kernel = Attention::first(&request, &machine).expect("a kernel").kernel;
        attention.append(&mut reached(&kernel, Attention::call(&request)));
    }
    let mut arguments = named(ATTENTION.given);
    arguments.extend(NOT_NAMED);
    assert_eq!(attention, arguments);
    let request = AttentionRequest { lengths: Lengths::Packed, alibi: true, ..plain };
    let kernel = AttentionBackward::first(&request, &machine).expect("a kernel").kernel;
    assert_eq!(reached(&kernel, AttentionBackward::call(&request)), named(GRADIENT.given));
    let merged = MergedHeads::default();
    let kernel = Rows::first(&merged.request(), &machine).expect("a kernel").kernel;
    assert_eq!(reached(&kernel, merged.call()), named(MERGE_ATTENTION.given));
    let new = NewKeys::default();
    let kernel = Rows::first(&new.request(), &machine).expect("a kernel").kernel;
    let values = Placed { field: "v_cache", names: &["the cache of V"], address: 256 };
    assert_eq!(reached(&kernel, new.call(&[values]).expect("legal")), named(APPEND_PAGES.given));
    let mut gemm = BTreeSet::new();
    let several = [
        GroupedProblem::GroupedContiguous { count: 2, offsets: 256 },
        GroupedProblem::GroupedMasked { count: 2, rows: 256, room: 64 },
        GroupedProblem::PointerArray { count: 2, records: 256 },
    ];
    let types = ["bf16", "e4m3-1x128-128x128", "bf16-s4g128z", "bf16-sparse-b"];
    for text in types {
        let (types, _): (Types, _) = falchion_core::types(text).expect("types");
        let request = Request::packed(types, [Major::K; 2], GemmProblem { m: 128, n: 128, k: 128 });
        let kernel = AnyGemm::first(&request, &machine).expect("a kernel").kernel;
        gemm.append(&mut reached(&kernel, AnyGemm::call(&request)));
        for products in several {
            gemm.append(&mut reached(
                &kernel,
                falchion::kernel::Call { products, ..AnyGemm::call(&request) },
            ));
        }
    }
    // C is said, and not named: it is not read where beta is 0, and an argument of the text where there is one.
    let mut arguments = named(GEMM.given);
    arguments.extend(["C", "the workspace"]);
    assert_eq!(gemm, arguments);
}
