//! Parameters that are structures, local memory, generic addresses, registers without a type, names of registers.

use ptx::abi::Structure;
use ptx::{Name, Param, ParamKind, Variable};

use super::*;

fn at(base: Reg, offset: i32) -> Address {
    Address { base: Operand::Reg(base), offset }
}

#[test]
fn structures_are_loaded_in_parts() {
    let mut flat = Flat::new(32);
    flat.function.params.push(Param {
        name: "params".into(),
        kind: ParamKind::Bytes { bytes: 24, alignment: 8 },
        number: false,
    });
    let [a, b, c, d, byte] = [(); 5].map(|()| flat.register(Type::B32));
    let dst = vec![a, b];
    flat.inst(Inst::LoadParam { ty: Type::U32, dst, param: 1, offset: 8 });
    // The same by address, in the space and generic; a byte is sign-extended.
    let address = flat.register(Type::B64);
    flat.inst(Inst::ParamAddress { generic: false, dst: address, param: 1, offset: 0 });
    flat.inst(Inst::Load { space: Space::Param, ty: Type::B32, dst: vec![c], address: at(address, 16) });
    flat.inst(Inst::ConvertAddress {
        space: Space::Param,
        to: false,
        dst: address,
        src: Operand::Reg(address),
    });
    flat.inst(Inst::Load { space: Space::Generic, ty: Type::U16, dst: vec![d], address: at(address, 0) });
    flat.inst(Inst::Load { space: Space::Generic, ty: Type::S8, dst: vec![byte], address: at(address, 2) });
    for other in [b, c, d, byte] {
        flat.binary(BinaryOp::Add, a, a, other);
    }
    flat.store(a);
    flat.exit(None);
    let mut memory = Memory::new();
    let out = memory.upload(&[0; 128]);
    let mut params = Structure::new(24);
    params.put(0, &[0x34, 0x12, 0xFF, 7]);
    params.put(8, &[1000u32, 20_000].map(u32::to_le_bytes).concat());
    params.put(16, &300_000u32.to_le_bytes());
    flat.launch(&[out.into(), params.into()], &memory, &Options::default()).unwrap();
    let want = 1000 + 20_000 + 300_000 + 0x1234 - 1u32;
    assert_eq!(memory.read(out, 4).unwrap(), want.to_le_bytes());
    let short = flat.launch(&[out.into(), Structure::new(20).into()], &memory, &Options::default());
    assert!(short.unwrap_err().to_string().contains("`params`"));
}

/// Each lane has its own local memory; a generic pointer selects it, shared or global memory per lane.
#[test]
fn generic_addresses_name_all_spaces() {
    let mut flat = Flat::new(32);
    flat.function.local_bytes = 64;
    let (lane, out) = (flat.lane, flat.out);
    let [local, shared, chosen] = [(); 3].map(|()| flat.register(Type::B64));
    let [base, value, third] = [(); 3].map(|()| flat.register(Type::B32));
    flat.inst(Inst::LocalBase { dst: local, offset: 16 });
    flat.inst(Inst::ConvertAddress { space: Space::Local, to: false, dst: local, src: Operand::Reg(local) });
    flat.inst(Inst::SharedBase { dst: base, offset: 1024 });
    flat.binary(BinaryOp::Shl, value, lane, 2);
    flat.binary(BinaryOp::Add, base, base, value);
    flat.inst(Inst::Convert { from: Type::U32, to: Type::U64, dst: shared, src: Operand::Reg(base) });
    flat.inst(Inst::ConvertAddress {
        space: Space::Shared,
        to: false,
        dst: shared,
        src: Operand::Reg(shared),
    });
    // Lanes 0, 3, 6 .. local, 1, 4, .. shared, 2, 5, .. global.
    flat.binary(BinaryOp::Rem, third, lane, 3);
    let (one, two) = (flat.compare(CompareOp::Eq, third, 1), flat.compare(CompareOp::Eq, third, 2));
    let select = |flat: &mut Flat, a: Reg, b: Reg, cond: Reg| {
        let (a, b, cond) = (Operand::Reg(a), Operand::Reg(b), Operand::Reg(cond));
        flat.inst(Inst::Select { ty: Type::B64, dst: chosen, a, b, cond });
    };
    select(&mut flat, shared, local, one);
    select(&mut flat, out, chosen, two);
    let src = vec![Operand::Reg(lane)];
    flat.inst(Inst::Store { space: Space::Generic, ty: Type::B32, src, address: at(chosen, 0) });
    flat.inst(Inst::Load { space: Space::Generic, ty: Type::B32, dst: vec![value], address: at(chosen, 0) });
    // The same byte by the address in its space.
    flat.branch(Some((one, true)), "$other");
    flat.inst(Inst::ConvertAddress {
        space: Space::Shared,
        to: true,
        dst: shared,
        src: Operand::Reg(shared),
    });
    flat.inst(Inst::Convert { from: Type::U64, to: Type::U32, dst: base, src: Operand::Reg(shared) });
    flat.inst(Inst::Load { space: Space::Shared, ty: Type::B32, dst: vec![third], address: at(base, 0) });
    flat.binary(BinaryOp::Add, value, value, third);
    flat.label("$other");
    flat.binary(BinaryOp::Add, value, value, 1000);
    flat.store(value);
    flat.exit(None);
    for options in schedules() {
        let got = flat.run(&options).unwrap_or_else(|failure| panic!("{failure}"));
        let want: Vec<u32> = (0..32).map(|lane| lane * if lane % 3 == 1 { 2 } else { 1 } + 1000).collect();
        assert_eq!(got, want);
    }
}

/// Each mistake with memory that is a thread's own, and what the report says of it.
#[test]
fn mistakes_with_local_memory_and_parameters() {
    type Body = fn(&mut Flat, Reg, Reg);
    let cases: [(&str, Body); 5] = [
        ("4 B at byte 16 are outside the .local memory, which has 16 B", |flat, local, value| {
            let address = at(local, 16);
            flat.inst(Inst::Load { space: Space::Local, ty: Type::B32, dst: vec![value], address });
        }),
        ("4 B at byte 8 of local memory are used, but not all were written", |flat, local, value| {
            flat.inst(Inst::Load {
                space: Space::Local,
                ty: Type::B32,
                dst: vec![value],
                address: at(local, 8),
            });
            flat.store(value);
        }),
        ("byte 2 of .local memory is not a multiple of 4 B", |flat, local, value| {
            flat.inst(Inst::Load {
                space: Space::Local,
                ty: Type::B32,
                dst: vec![value],
                address: at(local, 2),
            });
        }),
        ("byte 0 of the parameters is written", |flat, local, _| {
            flat.inst(Inst::ParamAddress { generic: true, dst: local, param: 0, offset: 0 });
            let (src, address) = (vec![Operand::Imm(1)], at(local, 0));
            flat.inst(Inst::Store { space: Space::Generic, ty: Type::B32, src, address });
        }),
        ("8 B at byte 8 are outside the .param memory, which has 8 B", |flat, local, _| {
            flat.inst(Inst::ParamAddress { generic: true, dst: local, param: 0, offset: 0 });
            let (dst, address) = (vec![local], at(local, 8));
            flat.inst(Inst::Load { space: Space::Generic, ty: Type::B64, dst, address });
        }),
    ];
    for (wanted, body) in cases {
        let mut flat = Flat::new(32);
        flat.function.local_bytes = 16;
        let (local, value) = (flat.register(Type::B64), flat.register(Type::B32));
        flat.inst(Inst::LocalBase { dst: local, offset: 0 });
        body(&mut flat, local, value);
        flat.exit(None);
        let failure = flat.run(&Options::default()).expect_err(wanted);
        assert!(failure.to_string().contains(wanted), "{failure}");
    }
}

/// Variables of the module are allocated and filled by whoever launches, and passed as the last arguments.
#[test]
fn variables_are_parameters() {
    let mut flat = Flat::new(32);
    let table = Name::from("table");
    let kind = ParamKind::Scalar(Type::U64);
    flat.function.params.push(Param { name: table.clone(), kind, number: false });
    let content = (0..32u32).flat_map(|lane| (lane * lane).to_le_bytes()).collect();
    flat.function.variables.push(Variable { name: table, content, alignment: 4, constant: true });
    let (base, own, value) = (flat.register(Type::B64), flat.register(Type::B64), flat.register(Type::B32));
    flat.inst(Inst::LoadParam { ty: Type::B64, dst: vec![base], param: 1, offset: 0 });
    let (lane, ty) = (flat.lane, Type::U64);
    flat.inst(Inst::MulWide { dst: own, a: Operand::Reg(lane), b: Operand::Imm(4) });
    flat.inst(Inst::Binary { op: BinaryOp::Add, ty, dst: base, a: Operand::Reg(base), b: Operand::Reg(own) });
    flat.inst(Inst::Load { space: Space::Global, ty: Type::B32, dst: vec![value], address: at(base, 0) });
    flat.store(value);
    flat.exit(None);
    let mut memory = Memory::new();
    let out = memory.upload(&[0; 128]);
    let mut arguments: Vec<Argument> = vec![out.into()];
    arguments.extend(flat.program().upload_variables(&mut memory));
    flat.launch(&arguments, &memory, &Options::default()).unwrap();
    assert_eq!(memory.read(out + 4 * 31, 4).unwrap(), (31u32 * 31).to_le_bytes());
}

/// A `mov` may copy what nothing has written, as compilers leave it; a use of the copy may not.
#[test]
fn what_nothing_has_written_may_be_copied() {
    for used in [false, true] {
        let mut flat = Flat::new(32);
        let (never, copy) = (flat.register(Type::B32), flat.register(Type::B32));
        let lane = flat.lane;
        flat.set(copy, Operand::Reg(never));
        let upper = flat.compare(CompareOp::Ge, lane, if used { 31 } else { 0 });
        flat.branch(Some((upper, true)), "$end");
        flat.set(copy, Operand::Imm(5));
        flat.label("$end");
        flat.binary(BinaryOp::Add, copy, copy, 1);
        flat.store(copy);
        flat.exit(None);
        match flat.run(&Options::default()) {
            Ok(got) => assert_eq!((used, got), (false, vec![6; 32])),
            Err(failure) => {
                let wanted = format!("register {} is read before anything has written it", never.0);
                assert!(used && failure.to_string().contains(&wanted), "{failure}");
            }
        }
    }
}

/// The report of a register's fault has the name that the program gives it.
#[test]
fn registers_have_the_names_of_the_program() {
    let mut flat = Flat::new(32);
    let never = flat.number(0);
    let lane = flat.lane;
    let first = flat.compare(CompareOp::Eq, lane, 0);
    // Lane 0 has not written it.
    flat.function.body.pop();
    let defined = flat.register(Type::U32);
    flat.inst(Inst::Compare {
        op: CompareOp::Eq,
        ty: Type::U32,
        dst: first,
        a: Operand::Reg(lane),
        b: Operand::Imm(0),
    });
    flat.branch(Some((first, false)), "$end");
    flat.set(defined, Operand::Reg(never));
    flat.label("$end");
    flat.binary(BinaryOp::Add, defined, defined, 1);
    flat.store(defined);
    flat.exit(None);
    let names = (0..flat.function.registers.len()).map(|index| Name::from(format!("%my{index}")));
    flat.function.names = names.collect();
    let failure = flat.run(&Options::default()).expect_err("a path has not written it");
    let wanted = format!("register {0} is %my{0}", defined.0);
    assert!(failure.to_string().contains(&wanted), "{failure}");
    let text = ptx::module_text(&flat.function.clone().verify().unwrap());
    assert!(text.contains(&format!("add.u32 %my{0}, %my{0}, 1;", defined.0)), "{text}");
    assert!(text.contains(".reg .b32 %my"), "{text}");
}
