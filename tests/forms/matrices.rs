//! `cp.async`, `ldmatrix` and `mma.sync`.

use ptx::inst::{Address, CopyAsync, MmaTypes, WarpMatrix};
use ptx::{Inst, Operand, Type};

use crate::assembled;
use crate::atomics::{registers, written};

#[test]
#[ignore = "needs ptxas: run `cargo xtask test`"]
fn copies_by_threads() {
    let count = assembled("copies", |forms| {
        let f = forms.f;
        let (global, shared) = (f.param::<u64>("global"), f.shared_base());
        let some = written(f, Type::U32, 1)[0];
        let mut add = |copy: CopyAsync| {
            let rules = copy.check();
            forms.add(Inst::CopyAsync(copy), rules);
        };
        for bytes in [1, 2, 4, 8, 16, 32] {
            for past_l1 in [false, true] {
                for size in [None, Some(Operand::Imm(0)), Some(Operand::Imm(u64::from(bytes))), Some(some)] {
                    let src = Address { base: global.operand(), offset: 32 };
                    add(CopyAsync::Copy { bytes, past_l1, dst: shared.operand(), src, size });
                }
            }
        }
        add(CopyAsync::Commit);
        add(CopyAsync::WaitAll);
        for pending in 0..3 {
            add(CopyAsync::Wait { pending });
        }
        for counted in [false, true] {
            add(CopyAsync::Arrive { barrier: shared.operand(), counted });
        }
    });
    assert_eq!(count, 4 * 4 + 2 + 3 + 2);
}

#[test]
#[ignore = "needs ptxas: run `cargo xtask test`"]
fn matrices_of_a_warp() {
    let count = assembled("matrices", |forms| {
        let f = forms.f;
        let address = f.shared_base().operand();
        for transpose in [false, true] {
            for matrices in 1..=4 {
                let dst = registers(f, Type::U32, matrices);
                let load = WarpMatrix::Load { dst, address, transpose };
                let rules = load.check();
                forms.add(Inst::WarpMatrix(load), rules);
            }
        }
        let mut types = vec![MmaTypes::Bf16F32, MmaTypes::F16F32, MmaTypes::F16F16, MmaTypes::Tf32F32];
        for bits in 0..8 {
            let flag = |bit: u32| bits >> bit & 1 == 1;
            types.push(MmaTypes::Int8 { signed_a: flag(0), signed_b: flag(1), saturate: flag(2) });
        }
        types.push(MmaTypes::F64);
        for types in types {
            let (ty, count) = types.accumulators();
            let (a, b) = (written(f, types.operand(), 4), written(f, types.operand(), 2));
            for given in [count, count + 1] {
                let (d, c) = (registers(f, ty, given), written(f, ty, given));
                let multiply =
                    WarpMatrix::Multiply { types, d, a: [a[0], a[1], a[2], a[3]], b: [b[0], b[1]], c };
                let rules = multiply.check();
                forms.add(Inst::WarpMatrix(multiply), rules);
            }
        }
    });
    assert_eq!(count, 2 * 3 + 13);
}
