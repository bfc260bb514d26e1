//! Where lanes meet, what ends them, and what waits for them.

use emulator::Fault;
use ptx::inst::barrier::EVERYONE;
use ptx::inst::{BarrierOp, BarrierReduce, MbarrierOrder, MbarrierPhase, MbarrierTest, Shuffle};

use super::*;

const ALL: Operand = Operand::Imm(u32::MAX as u64);

/// Sums the numbers of all lanes that are there, by shuffles.
fn shuffled(flat: &mut Flat, value: Reg, members: Operand) -> Reg {
    let dst = flat.register(Type::U32);
    let (lane, found) = (Operand::Imm(1), None);
    flat.inst(Inst::Warp(WarpInst::Shuffle {
        mode: Shuffle::Butterfly,
        dst,
        found,
        src: Operand::Reg(value),
        lane,
        width: 32,
        members,
    }));
    dst
}

/// `loop { if lane < i { if lane == i - 1 { break } }; shuffle }`, in which the inner branch leaves the loop: its block and the rest meet
/// again before the shuffle, although the block does not always come there.
#[test]
fn lanes_meet_behind_a_block_that_may_leave_the_loop() {
    let mut flat = Flat::new(32);
    let (i, seen, lane) = (flat.number(0), flat.number(0), flat.lane);
    flat.label("$loop");
    flat.binary(BinaryOp::Add, i, i, 1);
    let low = flat.compare(CompareOp::Lt, lane, i);
    flat.branch(Some((low, true)), "$rest");
    let last = flat.compare(CompareOp::Eq, i, 40);
    flat.branch(Some((last, false)), "$end");
    flat.label("$rest");
    let active = flat.active();
    flat.binary(BinaryOp::Or, seen, active, 0);
    let other = shuffled(&mut flat, lane, ALL);
    flat.binary(BinaryOp::Xor, other, other, 1);
    let wrong = flat.compare(CompareOp::Ne, other, lane);
    flat.function.body.push(Statement::If {
        cond: Operand::Reg(wrong),
        then: vec![Statement::Inst { inst: Inst::Trap, site: here() }],
        otherwise: Vec::new(),
        site: here(),
    });
    flat.branch(None, "$loop");
    flat.label("$end");
    flat.store(seen);
    for options in schedules().filter(tells_who_is_there) {
        assert_eq!(flat.run(&options).unwrap(), [u32::MAX; 32]);
    }
}

/// Lanes leave a loop in different rounds, by its only exit, in a loop around it.
#[test]
fn lanes_meet_behind_a_loop_in_a_loop() {
    let mut flat = Flat::new(32);
    let (i, j, seen, lane) = (flat.number(0), flat.number(0), flat.number(u32::MAX), flat.lane);
    flat.label("$outer");
    flat.binary(BinaryOp::Add, i, i, 1);
    flat.binary(BinaryOp::Rem, j, lane, 5);
    flat.label("$inner");
    let done = flat.compare(CompareOp::Eq, j, 0);
    flat.branch(Some((done, false)), "$behind");
    flat.binary(BinaryOp::Sub, j, j, 1);
    flat.branch(None, "$inner");
    flat.label("$behind");
    let active = flat.active();
    flat.binary(BinaryOp::And, seen, seen, active);
    let again = flat.compare(CompareOp::Lt, i, 3);
    flat.branch(Some((again, false)), "$outer");
    flat.store(seen);
    for options in schedules().filter(tells_who_is_there) {
        assert_eq!(flat.run(&options).unwrap(), [u32::MAX; 32]);
    }
}

/// Lanes that begin the next round early (`continue`) wait for the others before it.
#[test]
fn a_round_begins_with_all_lanes() {
    let mut flat = Flat::new(32);
    let (i, odd, lane) = (flat.number(0), flat.number(0), flat.lane);
    let count = flat.number(0);
    flat.label("$loop");
    let active = flat.active();
    let whole = flat.compare(CompareOp::Eq, active, u32::MAX);
    flat.function.body.push(Statement::If {
        cond: Operand::Reg(whole),
        then: vec![Statement::Inst {
            inst: Inst::Binary {
                op: BinaryOp::Add,
                ty: Type::U32,
                dst: count,
                a: Operand::Reg(count),
                b: Operand::Imm(1),
            },
            site: here(),
        }],
        otherwise: Vec::new(),
        site: here(),
    });
    flat.binary(BinaryOp::Add, i, i, 1);
    let done = flat.compare(CompareOp::Gt, i, 10);
    flat.branch(Some((done, false)), "$end");
    flat.binary(BinaryOp::Add, odd, lane, i);
    flat.binary(BinaryOp::And, odd, odd, 1);
    let again = flat.compare(CompareOp::Eq, odd, 1);
    flat.branch(Some((again, false)), "$loop");
    flat.binary(BinaryOp::Add, odd, odd, 1);
    flat.branch(None, "$loop");
    flat.label("$end");
    flat.store(count);
    for options in schedules().filter(tells_who_is_there) {
        assert_eq!(flat.run(&options).unwrap(), [11; 32]);
    }
}

/// Threads that have ended count neither for instructions of the warp nor for a barrier of the CTA.
#[test]
fn threads_that_have_ended_are_not_waited_for() {
    for (why, branch) in [("exit", false), ("a branch to the end", true)] {
        let mut flat = Flat::new(96);
        let (lane, result) = (flat.lane, flat.number(0));
        let warp = flat.register(Type::U32);
        flat.inst(Inst::ReadSpecial { dst: warp, special: Special::ThreadX });
        flat.binary(BinaryOp::Shr, warp, warp, 5);
        // The last warp, and the upper lanes of the others.
        let last = flat.compare(CompareOp::Eq, warp, 2);
        flat.exit(Some((last, false)));
        let upper = flat.compare(CompareOp::Ge, lane, 10);
        if branch {
            flat.branch(Some((upper, false)), "$end");
        } else {
            flat.exit(Some((upper, false)));
        }
        let other = shuffled(&mut flat, lane, ALL);
        flat.inst(Inst::BarrierSync { id: Operand::Imm(0), threads: EVERYONE });
        let (id, threads, src, dst) = (Operand::Imm(1), EVERYONE, Operand::Imm(1), flat.register(Type::Pred));
        flat.inst(Inst::BarrierReduce(BarrierReduce { op: BarrierOp::And, id, threads, dst, src }));
        let (ty, a, b, cond) = (Type::U32, Operand::Imm(100), Operand::Imm(0), Operand::Reg(dst));
        flat.inst(Inst::Select { ty, dst: result, a, b, cond });
        flat.binary(BinaryOp::Add, result, other, result);
        flat.store(result);
        flat.label("$end");
        flat.exit(None);
        for options in schedules() {
            let got = flat.run(&options).unwrap_or_else(|failure| panic!("{why}: {failure}"));
            for (thread, got) in (0u32..).zip(got) {
                let there = thread < 64 && thread % 32 < 10;
                assert_eq!(
                    got,
                    if there { (thread % 32) ^ 1 } else { 0 } + 100 * u32::from(there),
                    "{why}: {thread}"
                );
            }
        }
    }
}

#[test]
fn a_shuffle_of_lanes_that_are_elsewhere_traps() {
    let mut flat = Flat::new(32);
    let (lane, result) = (flat.lane, flat.number(0));
    let upper = flat.compare(CompareOp::Ge, lane, 16);
    flat.branch(Some((upper, false)), "$else");
    let other = shuffled(&mut flat, lane, ALL);
    flat.set(result, Operand::Reg(other));
    flat.label("$else");
    flat.store(result);
    flat.exit(None);
    for options in schedules() {
        let failure = flat.run(&options).expect_err("half of the warp is elsewhere");
        let Failure::Trap(trap) = &failure else { panic!("{failure}") };
        assert!(matches!(trap.fault, Fault::Members { active: 0xFFFF, .. }), "{failure}");
    }
}

/// The threads of a block of three dimensions that is no multiple of a warp.
#[test]
fn blocks_have_dimensions() {
    let mut flat = Flat::new(32);
    flat.function.block = [5, 3, 3];
    let (result, part) = (flat.number(0), flat.register(Type::U32));
    for special in [Special::ThreadZ, Special::ThreadY, Special::ThreadX, Special::ThreadsY] {
        flat.inst(Inst::ReadSpecial { dst: part, special });
        flat.binary(BinaryOp::Mul, result, result, 10);
        flat.binary(BinaryOp::Add, result, result, part);
    }
    let index = flat.register(Type::U32);
    let thread = flat.register(Type::U32);
    // `out` is by `%tid.x`: move it to the thread's number.
    flat.inst(Inst::ReadSpecial { dst: index, special: Special::ThreadZ });
    flat.binary(BinaryOp::Mul, index, index, 3);
    flat.inst(Inst::ReadSpecial { dst: thread, special: Special::ThreadY });
    flat.binary(BinaryOp::Add, index, index, thread);
    flat.binary(BinaryOp::Mul, index, index, 20);
    let wide = flat.register(Type::U64);
    flat.inst(Inst::Convert { from: Type::U32, to: Type::U64, dst: wide, src: Operand::Reg(index) });
    let (ty, out) = (Type::U64, flat.out);
    flat.inst(Inst::Binary { op: BinaryOp::Add, ty, dst: out, a: Operand::Reg(out), b: Operand::Reg(wide) });
    // The whole of the last warp is 13 lanes.
    let active = flat.active();
    flat.binary(BinaryOp::Shr, active, active, 12);
    flat.binary(BinaryOp::And, active, active, 1);
    let _other = shuffled(&mut flat, active, ALL);
    flat.store(result);
    flat.exit(None);
    let failure = flat.run(&Options::default()).expect_err("lane 12 reads lane 13, which is not there");
    assert!(failure.to_string().contains("the shuffle reads lane 13"), "{failure}");
    let shuffle =
        flat.function.body.iter().rposition(|one| {
            matches!(one, Statement::Inst { inst: Inst::Warp(WarpInst::Shuffle { .. }), .. })
        });
    flat.function.body.remove(shuffle.unwrap());
    for (thread, got) in (0u32..).zip(flat.results()) {
        let (x, y, z) = (thread % 5, thread / 5 % 3, thread / 15);
        assert_eq!(got, z * 1000 + y * 100 + x * 10 + 3, "thread {thread}");
    }
}

/// Lanes that poll an mbarrier which nobody arrives at, in a loop of tests: all lanes, or the first one while the others are behind.
#[test]
fn a_loop_of_tests_hangs_as_a_wait_does() {
    for (patient, alone) in [(true, false), (false, false), (true, true), (false, true)] {
        let mut flat = Flat::new(32);
        let (base, lane) = (flat.register(Type::U32), flat.lane);
        flat.inst(Inst::SharedBase { dst: base, offset: 0 });
        let first = flat.compare(CompareOp::Eq, lane, 0);
        flat.branch(Some((first, true)), "$ready");
        flat.inst(Inst::MbarrierInit { barrier: Operand::Reg(base), count: Operand::Imm(1) });
        flat.label("$ready");
        flat.inst(Inst::BarrierSync { id: Operand::Imm(0), threads: EVERYONE });
        if alone {
            flat.branch(Some((first, true)), "$behind");
        }
        let dst = flat.register(Type::Pred);
        flat.label("$test");
        let phase = MbarrierPhase::Parity(Operand::Imm(0));
        let (barrier, order) = (Operand::Reg(base), MbarrierOrder::CTA);
        flat.inst(Inst::MbarrierTest(MbarrierTest { dst, barrier, phase, patient, order }));
        flat.branch(Some((dst, true)), "$test");
        flat.label("$behind");
        flat.inst(Inst::BarrierSync { id: Operand::Imm(0), threads: EVERYONE });
        flat.exit(None);
        for options in schedules() {
            let failure = flat.run(&options).expect_err("nobody arrives");
            let Failure::Trap(trap) = &failure else { panic!("{failure}") };
            let Fault::Hang { waiting, .. } = &trap.fault else { panic!("{failure}") };
            let on = waiting[0].on.to_string();
            assert!(on.contains("byte 0 of shared memory, parity 0: phase 0 is current"), "{on}");
        }
    }
}
