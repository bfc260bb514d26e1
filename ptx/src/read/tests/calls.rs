//! Calls: functions of the text, and those of the CUDA runtime.

use super::printed::again;
use crate::module_text;

fn text(functions: &str, body: &str) -> String {
    format!(
        ".version 8.4\n.target sm_90a\n.address_size 64\n{functions}
        .visible .entry k(.param .u64 out) .reqntid 32, 1, 1 {{\n.reg .b32 %r<9>; .reg .b64 %d<3>; .reg .pred %p<2>;
        mov.u32 %r1, 1; mov.u32 %r2, 2; mov.u64 %d1, 3; setp.eq.u32 %p1, %r1, %r2; trap;\n{body}\nret; }}"
    )
}

/// Kernels with calls.
pub(super) fn texts() -> Vec<String> {
    vec![text(SUM, CALL), text(SUM, &format!("{CALL}\n{CALL}"))]
}

fn called(functions: &str, body: &str) -> String {
    let text = text(functions, body);
    let printed = module_text(&again(&text, 0).verify().unwrap_or_else(|error| panic!("{error}\n{text}")));
    let (_, statements) = printed.split_once("trap;\n").expect("a body");
    let statements: Vec<_> = statements.lines().map(str::trim).collect();
    statements.join(" ").trim_end_matches("ret; }").trim_end().to_owned()
}

const SUM: &str = ".func (.param .b32 func_retval0) sum(.param .b32 sum_param_0, .param .b32 sum_param_1) {
    .reg .b32 %r<4>; .reg .pred %p;
    ld.param.u32 %r1, [sum_param_0]; ld.param.u32 %r2, [sum_param_1];
    setp.eq.u32 %p, %r1, 0; @%p bra L;
    add.u32 %r3, %r1, %r2; st.param.b32 [func_retval0+0], %r3; ret;
    L: st.param.b32 [func_retval0+0], %r2; ret; }";

const CALL: &str =
    "{ .param .b32 param0; st.param.b32 [param0+0], %r1; .param .b32 param1; st.param.b32 [param1+0], %r2;
    .param .b32 retval0; call.uni (retval0), sum, (param0, param1); ld.param.b32 %r3, [retval0+0]; }";

#[test]
fn a_function_is_put_where_it_is_called() {
    let found = called(SUM, CALL);
    assert_eq!(
        found,
        "mov.b32 %t1, %r1; mov.b32 %t2, %r2; mov.b32 %r1_1, %t1; mov.b32 %r2_1, %t2; \
         setp.eq.u32 %p, %r1_1, 0; @%p bra L; add.u32 %r3, %r1_1, %r2_1; mov.b32 %t3, %r3; bra $after_sum; \
         L: mov.b32 %t3, %r2_1; bra $after_sum; $after_sum: mov.b32 %r3_1, %t3;"
    );
    // Each call has registers and labels of its own.
    let twice = called(SUM, &format!("{CALL}\n{CALL}"));
    assert!(twice.contains("L_1: ") && twice.contains("$after_sum_1: mov.b32 %r3_1,"), "{twice}");
}

#[test]
fn functions_with_registers_as_parameters() {
    let functions = ".func (.reg .b32 d) twice(.reg .b32 a) { add.u32 d, a, a; add.u32 a, a, 1; ret; }";
    assert_eq!(
        called(functions, "call (%r3), twice, (%r1); @%p1 call (%r3), twice, (5);"),
        "mov.b32 %t1, %r1; add.u32 %r3, %t1, %t1; add.u32 %t1, %t1, 1; bra $after_twice; $after_twice: \
         @!%p1 bra $over; mov.b32 %t2, 5; mov.b32 %t3, %t2; add.u32 %r3, %t3, %t3; add.u32 %t3, %t3, 1; bra $after_twice_1; \
         $after_twice_1: $over:"
    );
}

#[test]
fn functions_of_the_runtime() {
    let printf = ".extern .func (.param .b32 r) vprintf(.param .b64 a, .param .b64 b);";
    let call =
        "{ .param .b64 param0; st.param.b64 [param0], %d1; .param .b64 param1; st.param.b64 [param1], %d1;
        .param .b32 retval0; call.uni (retval0), vprintf, (param0, param1); ld.param.b32 %r3, [retval0]; }";
    assert_eq!(called(printf, call), "mov.b64 %t1, %d1; mov.b64 %t2, %d1; mov.u32 %t3, 0; mov.b32 %r3, %t3;");
    let fail = ".extern .func __assertfail(.param .b64 a) .noreturn;";
    let call = "{ .param .b64 param0; st.param.b64 [param0], %d1; call.uni __assertfail, (param0); }";
    assert_eq!(called(fail, call), "mov.b64 %t1, %d1; // a failed assertion { trap; // } a failed assertion");
}

#[test]
fn structures_are_passed_in_parts() {
    let functions =
        ".func f(.param .align 8 .b8 p[16]) { .reg .b64 %d<3>; .reg .b32 %r; ld.param.v2.b64 {%d1, %d2}, [p];
        ld.param.b32 %r, [p+8]; st.global.b32 [%d1], %r; ret; }";
    let parts = "{ .param .align 8 .b8 param0[16]; st.param.b64 [param0], %d1; st.param.b64 [param0+8], %d1; call f, (param0); }";
    let text = format!(
        ".version 8.4 .target sm_90a {functions} .entry k() .reqntid 32 {{ .reg .b64 %d<2>; mov.u64 %d1, 0; {parts} ret; }}"
    );
    let module = crate::read::Module::parse(&text, "a.ptx").expect("PTX");
    let error = module.entry("k", &crate::read::Launch::default()).expect_err("a part of 32 bits");
    assert_eq!(error.message, "`p` at 8: 32 bits are read where nothing so wide was written");
}
