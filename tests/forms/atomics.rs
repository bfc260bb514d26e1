//! Atomics and ordered accesses.

use ptx::inst::{Address, AtomicInst, AtomicOp, AtomicSem, AtomicType, LoadOrder, OrderedInst, StoreOrder};
use ptx::{Builder, Inst, Operand, Reg, Scope, Space, Type};

use crate::assembled;

/// New registers of a type.
pub(crate) fn registers(f: &Builder, ty: Type, count: usize) -> Vec<Reg> {
    (0..count).map(|_| f.register(ty)).collect()
}

/// Initialised registers of a type.
pub(crate) fn written(f: &Builder, ty: Type, count: usize) -> Vec<Operand> {
    let registers = registers(f, ty, count);
    for &dst in &registers {
        f.emit(Inst::Move { ty, dst, src: Operand::Imm(0) });
    }
    registers.into_iter().map(Operand::Reg).collect()
}

pub(crate) fn addresses(f: &Builder) -> [(Space, Address); 3] {
    let (global, shared) = (f.param::<u64>("global"), f.shared_base());
    let peer = f.map_shared(shared, 1);
    let at = |base: Operand| Address { base, offset: 32 };
    [
        (Space::Global, at(global.operand())),
        (Space::Shared, at(shared.operand())),
        (Space::SharedCluster, at(peer.operand())),
    ]
}

#[test]
#[ignore = "needs ptxas: run `cargo xtask test`"]
fn atomics() {
    let count = assembled("atomics", |forms| {
        let f = forms.f;
        let places = addresses(f);
        for op in AtomicOp::ALL {
            for ty in AtomicType::ALL {
                for elements in [1, 2, 4, 8] {
                    let src = written(f, ty.register(), elements);
                    for returns in [false, true] {
                        for sem in AtomicSem::ALL {
                            for scope in Scope::ALL {
                                for (space, address) in places {
                                    let dst = registers(f, ty.register(), if returns { elements } else { 0 });
                                    let swap = (op == AtomicOp::CompareSwap).then(|| src[0]);
                                    let src = src.clone();
                                    let atomic =
                                        AtomicInst { op, ty, space, sem, scope, dst, address, src, swap };
                                    let rules = atomic.check();
                                    forms.add(Inst::Atomic(atomic), rules);
                                }
                            }
                        }
                    }
                }
            }
        }
    });
    // Operations and types of one element: 9 additions, 4 + 4 extremes, 2 steps, 6 logic; with exchanges 2 + 2. `atom`
    // has 4 orders, `red` 2; 4 scopes, 3 spaces. Vectors, in global memory: `.f32` 2, halves 3 x 3 x 2, pairs 3 x 2 x 2.
    let scalars = (25 * 2 + 29 * 4) * 4 * 3;
    let vectors = (2 + 18 + 12) * (2 + 4) * 4;
    assert_eq!(count, scalars + vectors);
}

#[test]
#[ignore = "needs ptxas: run `cargo xtask test`"]
fn ordered_accesses() {
    let count = assembled("ordered", |forms| {
        let f = forms.f;
        let places = addresses(f);
        let scopes = Scope::ALL;
        let loads = scopes.map(LoadOrder::Relaxed).into_iter().chain(scopes.map(LoadOrder::Acquire));
        let loads: Vec<_> = loads.chain([LoadOrder::Volatile]).collect();
        let stores = scopes.map(StoreOrder::Relaxed).into_iter().chain(scopes.map(StoreOrder::Release));
        let stores: Vec<_> = stores.chain([StoreOrder::Volatile]).collect();
        for ty in [Type::U16, Type::U32, Type::S32, Type::U64, Type::F16, Type::Bf16, Type::F32, Type::F64] {
            for elements in [1, 2, 4] {
                if elements * ty.bytes() as usize > 16 {
                    continue;
                }
                let src = written(f, ty, elements);
                for (space, address) in places {
                    for &order in &loads {
                        let dst = registers(f, ty, elements);
                        forms
                            .add(Inst::Ordered(OrderedInst::Load { order, space, ty, dst, address }), Ok(()));
                    }
                    for &order in &stores {
                        let src = src.clone();
                        forms.add(
                            Inst::Ordered(OrderedInst::Store { order, space, ty, src, address }),
                            Ok(()),
                        );
                    }
                }
            }
        }
    });
    assert_eq!(count, (6 * 3 + 2 * 2) * 3 * 18);
}
