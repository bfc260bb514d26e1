//! Words and syntax: what stands in a text, and what is wrong with one.

use crate::read::lex::{Kind, Number, tokens};
use crate::read::syntax::{Base, Initial, Item, OperandKind, Space, Text};
use crate::read::{Module, parse};

fn kinds(text: &str) -> Vec<Kind<'_>> {
    tokens(text).expect("words").into_iter().map(|token| token.kind).collect()
}

#[test]
fn words() {
    use Kind::{Dot, End, Sign, Word};
    let number = |value| Kind::Number(Number::Integer(value, false));
    for (text, want) in [
        ("", vec![End]),
        ("a // b\n/* c\n */ d", vec![Word, Word, End]),
        ("%r1 $L_1: _", vec![Word, Word, Sign(':'), Word, End]),
        ("st.shared::cta.v2", vec![Word, Dot("shared::cta"), Dot("v2"), End]),
        ("%tid.x", vec![Word, Dot("x"), End]),
        (".L2::128B", vec![Dot("L2::128B"), End]),
        ("a:b", vec![Word, Sign(':'), Word, End]),
        (
            "10 0x1F 0b101 017 0 4294967295U",
            [10, 31, 5, 15, 0, 0xFFFF_FFFF].map(number).into_iter().chain([End]).collect(),
        ),
        ("0xFFFFFFFFFFFFFFFF", vec![number(u64::MAX), End]),
        (
            "0f3F800000 0d3FF0000000000000",
            vec![Kind::Number(Number::Single(0x3F80_0000)), Kind::Number(Number::Double(0x3FF0 << 48)), End],
        ),
        (
            "1.5 1e3 2.5e-1",
            [1.5f64, 1000.0, 0.25]
                .map(|x| Kind::Number(Number::Double(x.to_bits())))
                .into_iter()
                .chain([End])
                .collect(),
        ),
        ("\"a \\\" b\"\0", vec![Kind::Text("a \\\" b"), End]),
        ("-1", vec![Sign('-'), number(1), End]),
    ] {
        assert_eq!(kinds(text), want, "{text:?}");
    }
}

const HEAD: &str = ".version 8.4\n.target sm_90a\n.address_size 64\n";

fn tree(text: &str) -> Text<'_> {
    parse::parse(text).unwrap_or_else(|mistake| panic!("{mistake:?} in\n{text}"))
}

#[test]
fn a_module() {
    let text = format!(
        "{HEAD}.file 1 \"a.cu\", 12, 34\n.extern .shared .align 1024 .b8 smem[];
        .global .align 4 .u32 counter = 5;
        .visible .const .align 8 .b8 table[2][3] = {{{{1, 2, 0xFF}}, {{-1}}}};
        .global .u64 place = generic(counter) + 4;
        .extern .func (.param .b32 func_retval0) vprintf (.param .b64 vprintf_param_0, .param .b64 b);
        .section .debug_str {{ info: .b8 95,95\n }}
        .func (.param .b32 out) half(.param .b32 x) .noreturn {{ ret; }}
        .visible .entry scale(.param .u64 .ptr .global .align 16 data, .param .align 64 .b8 map[128])
        .maxntid 128, 1, 1 .minnctapersm 1 .explicitcluster .pragma \"nounroll\";
        {{ ret; }}"
    );
    let tree = tree(&text);
    assert_eq!(tree.files, [(1, "a.cu")]);
    let names: Vec<_> = tree.variables.iter().map(|variable| (variable.name.text, variable.space)).collect();
    let globals = [("counter", Space::Global), ("table", Space::Constant), ("place", Space::Global)];
    assert_eq!(names[0], ("smem", Space::Shared));
    assert_eq!(names[1..], globals);
    assert!(tree.variables[0].external && tree.variables[0].extents == [None]);
    assert_eq!(tree.variables[2].extents, [Some(2), Some(3)]);
    assert!(matches!(&tree.variables[2].initial, Some(Initial::List(rows)) if rows.len() == 2));
    let Some(Initial::Address(name)) = &tree.variables[3].initial else {
        panic!("{:?}", tree.variables[3]);
    };
    assert_eq!(name.text, "generic");
    let functions: Vec<_> = tree.functions.iter().map(|f| (f.name.text, f.entry, f.body.is_some())).collect();
    assert_eq!(functions, [("vprintf", false, false), ("half", false, true), ("scale", true, true)]);
    let scale = &tree.functions[2];
    let directives: Vec<_> = scale.directives.iter().map(|d| (d.name.text, &d.values[..])).collect();
    assert_eq!(directives, [("maxntid", &[128, 1, 1][..]), ("minnctapersm", &[1]), ("explicitcluster", &[])]);
    assert_eq!(scale.params[1].align, Some(64));
    assert_eq!(Module::parse(&text, "a.ptx").expect("PTX").entries(), ["scale"]);
}

fn body(text: &str) -> String {
    format!("{HEAD}.visible .entry k() {{\n{text}\n}}")
}

#[test]
fn a_body() {
    let text = body(
        ".reg .b32 %r<8>, %x;
        .loc 1 2 3, function_name $name + 16, inlined_at 1 4 5
        $L: @!p mad.lo.s32 %r1, %r2, -3, %x;
        { .param .b64 p0; st.param.b64 [p0], %rd1; call.uni (r0), f, (p0, p1); }
        t: .branchtargets $L, $M;
        cp.async.bulk.tensor.2d.shared::cluster.global.tile.mbarrier::complete_tx::bytes [%r1], [%rd2, {%r3, 0}], [%r4+-8];
        mov.b64 {%r1, _}, smem+16; setp.lt.and.s32 p|q, %r1, 0x10, !r; mov.u32 %r1, %tid.x;",
    );
    let tree = tree(&text);
    let items = tree.functions[0].body.as_ref().expect("a body");
    assert!(
        matches!(&items[0], Item::Registers(registers) if registers.names[0].1 == Some(8) && registers.names.len() == 2)
    );
    assert!(matches!(items[1], Item::Line(line) if (line.file, line.line, line.column) == (1, 2, 3)));
    assert!(matches!(items[2], Item::Label(name) if name.text == "$L"));
    assert!(matches!(&items[4], Item::Block(inner) if inner.len() == 3));
    assert!(matches!(&items[5], Item::Targets { labels, .. } if labels.len() == 2));
    let instruction = |item: usize| match &items[item] {
        Item::Instruction(instruction) => instruction,
        other => panic!("{other:?}"),
    };
    let mad = instruction(3);
    assert_eq!((mad.name, &mad.modifiers[..]), ("mad", &["lo", "s32"][..]));
    assert!(mad.guard.is_some_and(|(name, negated)| name.text == "p" && negated));
    assert!(matches!(mad.operands[2].kind, OperandKind::Number(Number::Integer(3, true))));
    let copy = instruction(6);
    assert_eq!(copy.modifiers[7], "mbarrier::complete_tx::bytes");
    let OperandKind::Address { base: Base::Name("%rd2"), coordinates: Some(at), .. } = &copy.operands[1].kind
    else {
        panic!("{copy:?}");
    };
    assert_eq!(at.len(), 2);
    assert!(matches!(copy.operands[2].kind, OperandKind::Address { offset: -8, .. }));
    assert!(matches!(instruction(7).operands[1].kind, OperandKind::Offset("smem", 16)));
    assert!(matches!(instruction(8).operands[0].kind, OperandKind::Pair("p", "q")));
    assert!(matches!(instruction(8).operands[3].kind, OperandKind::Not("r")));
    assert!(matches!(instruction(9).operands[1].kind, OperandKind::Component("%tid", "x")));
}

/// Each text is wrong at a place, and the error names what was found and what was needed.
#[test]
fn what_is_wrong_is_named_with_its_place() {
    for (text, line, column, words) in [
        ("", 1, 1, "the text ends, `.version` was needed"),
        ("hello", 1, 1, "found `hello`, `.version` was needed"),
        (".version 8\n", 1, 10, "found `8`, a version such as 8.4"),
        (".version 8.4\n.target", 2, 8, "the name of a target"),
        (&format!("{HEAD}§"), 4, 1, "'§' does not belong to PTX"),
        (&format!("{HEAD}/* open"), 4, 1, "has no `*/`"),
        (&format!("{HEAD}.file 1 \"open\n\""), 4, 9, "no second `\"`"),
        (".version 8.4 .target sm_90a .address_size 32", 1, 29, "addresses of 32 bits"),
        (&format!("{HEAD}.visible .entry 1\n"), 4, 17, "the name of a function"),
        (&format!("{HEAD}.visible .entry k(\n.u64 a)"), 5, 1, "a parameter (`.param` or `.reg`)"),
        (&format!("{HEAD}.visible .entry k()\n{{ ret;"), 5, 7, "the text ends"),
        (&format!("{HEAD}.global .b8 a[x];"), 4, 15, "the extent of an array"),
        (&format!("{HEAD}.section .debug {{ {{ }}"), 4, 1, "has no `}`"),
        (&body("add.s32 %r1 %r2;"), 5, 13, "found `%r2`, `,` was needed"),
        (&body("add.s32 %r1, 12ab;"), 5, 14, "`12ab` is not a number"),
        (&body("add.s32 %r1, 0f12;"), 5, 14, "8 hexadecimal digits"),
        (&body("add.s32 %r1, 99999999999999999999;"), 5, 14, "at most 64 bits"),
        (&body("ld.b32 %r1, [%r2+%r3];"), 5, 18, "an offset in bytes"),
        (&body("ld.b32 %r1, [%r2"), 6, 1, "`]` was needed"),
        (&body(".reg %r1;"), 5, 6, "the type of registers"),
        (&body(".reg .b32 %r<x>;"), 5, 14, "the number of registers"),
        (&body("@ ;"), 5, 3, "the predicate of a guard"),
        (&body("mov.b32 %r1, ;"), 5, 14, "an operand was needed"),
        (&body(".loc 1 2 3, somewhere"), 5, 13, "`function_name` or `inlined_at`"),
        (&body(&"{".repeat(100)), 5, 65, "more than 64 braces"),
        (&body(&format!("mov.b32 {}", "{".repeat(100))), 5, 73, "more than 64 braces"),
    ] {
        let error = Module::parse(text, "a.ptx").map(|module| module.entries().len()).expect_err(text);
        assert!(error.message.contains(words), "{text}: {error}");
        assert_eq!((error.line, error.column), (line, column), "{text}: {error}");
    }
}
