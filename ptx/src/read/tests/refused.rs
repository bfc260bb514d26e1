//! Texts that are PTX and are not read: each error has a place, and names what was found and what was needed.

use crate::read::{Launch, Module, ReadError};

const HEAD: &str = ".version 8.4\n.target sm_90a\n.address_size 64\n";

fn refusal(text: &str, launch: &Launch) -> ReadError {
    let module = Module::parse(text, "a.ptx").unwrap_or_else(|error| panic!("{error}"));
    module.entry("k", launch).map(|function| function.name).expect_err(text)
}

/// The error of a body, whose lines count from 1.
fn of_body(body: &str) -> (u32, u32, String) {
    let registers = ".reg .pred %p<3>; .reg .b16 %h<3>; .reg .b32 %r<3>; .reg .f32 %f<3>; .reg .b64 %d<3>;";
    let functions = ".extern .func g(.param .b32 a); .func f(.param .b32 a) { call f, (a); ret; }";
    let text =
        format!("{HEAD}{functions}\n.entry k(.param .u64 out) .reqntid 32 {{ {registers}\n{body}\nret; }}");
    let ReadError { line, column, message, .. } = refusal(&text, &Launch::default());
    (line.wrapping_sub(5), column, message)
}

#[test]
fn instructions() {
    for (body, line, column, words) in [
        ("frobnicate.b32 %r1;", 1, 1, "`frobnicate.b32`: this instruction is not read"),
        ("add.u32 %r1, %r2;", 1, 1, "`add.u32`: 2 operands, one more was needed"),
        ("add.u32 %r1, %r2, %r0, %r0;", 1, 24, "`add.u32` has an operand too many"),
        ("add.frob.u32 %r1, %r2, %r0;", 1, 1, "`add.frob.u32`: `.frob` is not known here"),
        ("add %r1, %r2, %r0;", 1, 1, "`add`: a type was needed"),
        ("\nadd.u32 %r1, %d2, %r0;", 2, 14, "`%d2` is .b64, .u32 was needed"),
        ("add.u32 %r7, %r1, %r0;", 1, 9, "`%r7` is not declared"),
        ("add.u32 %r01, %r1, %r0;", 1, 9, "`%r01` is not declared"),
        ("add.f32 %f1, %f2, 1;", 1, 19, "an integer where a .f32 is needed"),
        ("add.u32 5, %r1, %r0;", 1, 9, "a register that receives a result was needed"),
        ("mov.u32 %r1, %tid.w;", 1, 14, "`%tid.w` is not declared, nor a special register"),
        ("mov.u32 %r1, nothing;", 1, 14, "`nothing` is not declared"),
        ("mov.b64 {%r1, %r2, %r0}, %d1;", 1, 1, "3 parts of a register of 64 bits"),
        (".reg .b32 x; .reg .b32 x;", 1, 24, "`x` is declared twice in this block"),
        ("L: L: bra L;", 1, 4, "`L` is declared twice in this block"),
        ("bra nowhere;", 1, 5, "there is no label `nowhere` here"),
        ("{ L: } bra L;", 1, 12, "there is no label `L` here"),
        ("bra %r1;", 1, 5, "`%r1` is not a label"),
        ("brx.idx %r1, %r2;", 1, 14, "`%r2` is not a list of labels"),
        ("@%r1 bra L; L:", 1, 2, "`%r1` is .b32, .pred was needed"),
        ("setp.like.u32 %p1, %r1, %r2;", 1, 1, "a relation was needed: .eq, .ne,"),
        ("shf.l.b32 %r1, %r2, %r0, 1;", 1, 1, "a mode was needed: .wrap, .clamp"),
        ("ld.global.b32 %r1, %d1;", 1, 20, "an address in brackets was needed"),
        ("ld.global.v2.b32 {%r1, %r2, %r0}, [%d1];", 1, 1, "3 registers, 2 were needed"),
        ("ld.acquire.global.b32 %r1, [%d1];", 1, 1, "a scope was needed: .cta, .cluster, .gpu, .sys"),
        ("st.param.b32 [out], %r1;", 1, 14, "a parameter of a call was needed: the kernel's are only read"),
        ("ld.param.b32 %r1, [out+-4];", 1, 19, "`out` -4 is before the parameter"),
        ("atom.global.frob.b32 %r1, [%d1], 1;", 1, 1, "an operation was needed"),
        ("bar.sync 0, %r1;", 1, 1, "the number of threads must be a number, or a register that holds one"),
        ("shfl.sync.idx.b32 %r1, %r2, 0, 5, -1;", 1, 1, "segments of 0x5"),
        (
            "wgmma.mma_async.sync.aligned.m64n8k16.f32.bf16.f16 {%f0}, %d1, %d1, 1, 1, 1, 0, 0;",
            1,
            1,
            "products of this shape and these types are not read",
        ),
        (
            "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes [%r1], [%d1, {0}], [%r2];",
            1,
            84,
            "1 coordinates, 2 were needed",
        ),
        ("fence.proxy.alias;", 1, 1, "of proxies, `.async` and `.tensormap::generic` are read"),
        (
            "call g, (%r1);",
            1,
            6,
            "`g` is defined elsewhere: of such functions, `vprintf` and `__assertfail` are read",
        ),
        ("call h, (%r1);", 1, 6, "`h` is not a function of this text"),
        (
            "{ .param .b32 a; st.param.b32 [a], %r1; call f, (a, a); }",
            1,
            46,
            "`f` has 1 parameters, 2 were given",
        ),
        (".reg .texref x; .reg .b32 y; mov.b32 y, 0;", 1, 6, "registers of type `.texref` are not read"),
    ] {
        let (found_line, found_column, message) = of_body(body);
        assert!(message.contains(words), "{body}: {message}");
        assert_eq!((found_line, found_column), (line, column), "{body}: {message}");
    }
    // What a called function does is at its own place.
    let (line, _, message) = of_body("{ .param .b32 a; st.param.b32 [a], %r1; call f, (a); }");
    assert_eq!((line, &*message), (u32::MAX, "`f` calls itself: recursion is not read"));
}

#[test]
fn kernels_and_launches() {
    let threads = |threads| Launch { threads: Some(threads), ..Launch::default() };
    for (header, launch, words) in [
        ("k() {", Launch::default(), "`k` does not say its number of threads: a launch must"),
        (
            "k() .reqntid 32, 2 {",
            threads([64, 1, 1]),
            "a launch of [64, 1, 1] threads: the text requires [32, 2, 1]",
        ),
        ("k() .maxntid 64 {", threads([65, 1, 1]), "the text allows [64, 1, 1]"),
        ("k() .reqntid 32 .frob 1 {", Launch::default(), "the directive `.frob` is not read"),
        ("k() .reqntid 0 {", Launch::default(), "`.reqntid 0` is not in 1..=65536"),
        (
            "k() .reqntid 32 .reqnctapercluster 2 {",
            Launch { cluster: Some([1; 3]), ..Launch::default() },
            "a launch in clusters of [1, 1, 1]: the text requires [2, 1, 1]",
        ),
        (
            "k(.param .align 3 .b8 p[4]) .reqntid 32 {",
            Launch::default(),
            "an alignment of 3 B, not a power of two",
        ),
        ("k(.param .b8 p[100000]) .reqntid 32 {", Launch::default(), "the parameter `p` has 100000 B"),
        ("other() .reqntid 32 {", Launch::default(), "there is no kernel `k`, only [\"other\"]"),
    ] {
        let error = refusal(&format!("{HEAD}.entry {header} ret; }}"), &launch);
        assert!(error.message.contains(words), "{header}: {error}");
    }
}

#[test]
fn variables() {
    for (variable, words) in [
        (".extern .global .b32 x;", "`x` is defined in another module"),
        (".global .b64 x = other;", "`other` as a first value: addresses are not read there"),
        (".global .b128x2 x;", "variables of type `.b128x2` are not read"),
        (".global .b32 x[18446744073709551615];", "the size of `x` does not fit 64 bits"),
        (".global .b32 x[4294967295];", "`x` needs 17179869180 B of memory"),
        (".shared .b32 x[4294967295];", "`x` needs 17179869180 B of memory"),
        (".global .b16 x = 0f3F800000;", "a floating-point number as the first value of 2 B"),
    ] {
        let body = ".reg .b64 %d; mov.u64 %d, x; ret;";
        let error =
            refusal(&format!("{HEAD}{variable}\n.entry k() .reqntid 32 {{ {body} }}"), &Launch::default());
        assert!(error.message.contains(words), "{variable}: {error}");
        assert_eq!(error.line, 4, "{variable}: {error}");
    }
}
