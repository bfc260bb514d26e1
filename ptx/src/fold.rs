//! Constant folding: operations on constants are evaluated while the program is built. Identities that are
//! common in index arithmetic (`x + 0`, `x * 1`, `x / 8`, `x % 8`) emit no instruction or a cheap one.
//!
//! Only integers and predicates are folded. Floats are not: the device decides about rounding and NaN.

use crate::inst::{BinaryOp, CompareOp, Operand};
use crate::types::Type;

/// The result of folding an operation.
pub(crate) enum Folded {
    /// The value of the operation is this operand.
    Operand(Operand),
    /// The operation equals this cheaper operation with an immediate.
    Cheaper(BinaryOp, Operand, u64),
    /// The operation has to be emitted.
    No,
}

/// The result of integers, if it is one for the assembler too: the high half of a product is left to the
/// device, and so are a division by zero and the quotient that overflows.
fn constant(op: BinaryOp, ty: Type, a: u64, b: u64) -> Option<u64> {
    let divides = matches!(op, BinaryOp::Div | BinaryOp::Rem);
    let overflows = ty == Type::S64 && (ty.extend(a), ty.extend(b)) == (i64::MIN, -1);
    let left = op == BinaryOp::MulHigh || divides && (b == 0 || overflows);
    (!left).then(|| op.of_integers(ty, a, b))
}

/// Folds `a op b`.
pub(crate) fn binary(op: BinaryOp, ty: Type, a: Operand, b: Operand) -> Folded {
    if ty.is_float() {
        return Folded::No;
    }
    match (a, b) {
        (Operand::Imm(x), Operand::Imm(y)) => {
            constant(op, ty, x, y).map_or(Folded::No, |value| Folded::Operand(Operand::Imm(value)))
        }
        (x, Operand::Imm(y)) => with_constant(op, ty, x, y),
        (Operand::Imm(x), y) if commutes(op) => with_constant(op, ty, y, x),
        _ => Folded::No,
    }
}

fn commutes(op: BinaryOp) -> bool {
    matches!(
        op,
        BinaryOp::Add
            | BinaryOp::Mul
            | BinaryOp::Min
            | BinaryOp::Max
            | BinaryOp::And
            | BinaryOp::Or
            | BinaryOp::Xor
    )
}

fn with_constant(op: BinaryOp, ty: Type, x: Operand, y: u64) -> Folded {
    let ones = ty.wrap(u64::MAX);
    let power = y.is_power_of_two().then(|| u64::from(y.trailing_zeros()));
    match (op, y) {
        (BinaryOp::Add | BinaryOp::Sub | BinaryOp::Or | BinaryOp::Xor | BinaryOp::Shl | BinaryOp::Shr, 0)
        | (BinaryOp::Mul | BinaryOp::Div, 1) => Folded::Operand(x),
        (BinaryOp::Mul | BinaryOp::And, 0) => Folded::Operand(Operand::Imm(0)),
        (BinaryOp::Rem, 1) => Folded::Operand(Operand::Imm(0)),
        (BinaryOp::And, _) if y == ones => Folded::Operand(x),
        (BinaryOp::Or, _) if y == ones => Folded::Operand(Operand::Imm(ones)),
        (BinaryOp::Mul, _) => match power {
            Some(shift) if ty != Type::Pred => Folded::Cheaper(BinaryOp::Shl, x, shift),
            _ => Folded::No,
        },
        (BinaryOp::Div, _) if !ty.is_signed() => match power {
            Some(shift) => Folded::Cheaper(BinaryOp::Shr, x, shift),
            None => Folded::No,
        },
        (BinaryOp::Rem, _) if !ty.is_signed() && power.is_some() => Folded::Cheaper(BinaryOp::And, x, y - 1),
        _ => Folded::No,
    }
}

/// Folds a comparison of two integer constants.
pub(crate) fn compare(op: CompareOp, ty: Type, a: Operand, b: Operand) -> Option<bool> {
    let (Operand::Imm(a), Operand::Imm(b)) = (a, b) else { return None };
    if ty.is_float() {
        return None;
    }
    Some(if ty.is_signed() { op.holds(ty.extend(a), ty.extend(b)) } else { op.holds(a, b) })
}

#[cfg(test)]
mod tests {
    use crate::{Builder, Entry, Function, Operand, Special, Statement, Target};

    /// The statements that `build` appends after a value `x` has been read.
    fn instructions(build: impl FnOnce(&Builder)) -> Vec<Statement> {
        let entry = Entry {
            name: "probe".into(),
            target: Target::Sm90a,
            threads: 32,
            shared_bytes: 0,
            cluster: [1, 1, 1],
        };
        Function::build(entry, build).body
    }

    #[test]
    fn index_arithmetic_on_constants_costs_nothing() {
        let body = instructions(|f| {
            let seven = f.constant(7u32);
            for (why, value, want) in [
                ("sum", seven + 3, 10),
                ("difference wraps", seven - 8, u32::MAX),
                ("product", seven * 6, 42),
                ("quotient", seven / 2, 3),
                ("remainder", seven % 4, 3),
                ("shift", seven << 31, 1 << 31),
                ("shift beyond the width", seven << 32, 0),
                ("and", seven & 5, 5),
                ("exclusive or", seven ^ 2, 5),
                ("smaller", seven.min(5), 5),
                ("larger", seven.max(9), 9),
            ] {
                assert_eq!(value.operand(), Operand::Imm(want.into()), "{why}");
            }
            let minus = f.constant(-7i32);
            assert_eq!((minus / 2).operand(), Operand::Imm(u64::from((-3i32).cast_unsigned())), "truncates");
            assert_eq!(
                (minus >> 1).operand(),
                Operand::Imm(u64::from((-4i32).cast_unsigned())),
                "keeps the sign"
            );
            assert_eq!(minus.less_than(0).operand(), Operand::Imm(1), "signed order");
        });
        assert_eq!(body, []);
    }

    #[test]
    fn identities_cost_nothing() {
        let body = instructions(|f| {
            let x = f.special(Special::ThreadX);
            let [zero, one] = [0, 1];
            for (why, value, want) in [
                ("x + 0", x + 0, x.operand()),
                ("x - 0", x - 0, x.operand()),
                ("x * 1", x * 1, x.operand()),
                ("x / 1", x / 1, x.operand()),
                ("x * 0", x * zero, Operand::Imm(0)),
                ("x % 1", x % one, Operand::Imm(0)),
                ("x & all", x & u32::MAX, x.operand()),
                ("x >> 0", x >> 0, x.operand()),
            ] {
                assert_eq!(value.operand(), want, "{why}");
            }
        });
        assert_eq!(body.len(), 1, "only the read of x");
    }

    #[test]
    fn division_by_zero_is_left_to_the_device() {
        let body = instructions(|f| {
            let _ = f.constant(1u32) / 0;
        });
        assert_eq!(body.len(), 1);
    }

    #[test]
    fn a_condition_that_is_known_picks_its_branch_while_building() {
        let body = instructions(|f| f.if_else(f.constant(true), || f.trap(), || f.warp_sync()));
        assert!(matches!(body.as_slice(), [Statement::Inst { inst: crate::Inst::Trap, .. }]));
    }
}
