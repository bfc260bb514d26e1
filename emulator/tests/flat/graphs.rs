//! Random graphs of blocks, most of which no structured program has. Each lane computes what it would alone, and all meet at the end.

use super::*;

struct Random(u64);

impl Random {
    fn below(&mut self, end: u32) -> u32 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        ((self.0 >> 33) % u64::from(end)) as u32
    }
}

/// What follows a block, after a lane's number has changed.
#[derive(Clone, Copy, Debug)]
enum End {
    /// The next block.
    Next,
    /// This block.
    Jump(u32),
    /// This block, if a bit of the number is set or is not; otherwise the next block.
    Branch(u32, u32, bool),
    /// The end of the thread, if a bit is set; otherwise the next block.
    Exit(u32),
}

const MULTIPLIER: u32 = 747_796_405;
/// Number of blocks that a lane goes through at most.
const ROUNDS: u32 = 40;

fn step(number: u32, block: u32) -> u32 {
    (number.wrapping_mul(MULTIPLIER).wrapping_add(2 * block + 1)) ^ (number >> 13)
}

/// What a lane computes, and whether it comes to the end of the program.
fn expected(blocks: &[End], lane: u32) -> (u32, bool) {
    let (mut number, mut at) = (lane, 0);
    for _ in 0..ROUNDS {
        let Some(end) = blocks.get(at as usize) else { return (number, true) };
        number = step(number, at);
        at = match *end {
            End::Next => at + 1,
            End::Jump(to) => to,
            End::Branch(to, bit, set) if (number >> bit & 1 == 1) == set => to,
            End::Branch(..) => at + 1,
            End::Exit(bit) if number >> bit & 1 == 1 => return (number, false),
            End::Exit(_) => at + 1,
        };
    }
    (number, true)
}

/// The program. The result is the lane's number, and in the last test the lanes that are together at the end.
fn program(blocks: &[End], together: bool) -> Flat {
    let mut flat = Flat::new(32);
    let lane = flat.lane;
    let (number, left, bit) = (flat.number(0), flat.number(ROUNDS), flat.number(0));
    let shifted = flat.number(0);
    flat.set(number, Operand::Reg(lane));
    for (index, end) in (0..).zip(blocks) {
        flat.label(&format!("$block_{index}"));
        let none = flat.compare(CompareOp::Eq, left, 0);
        flat.branch(Some((none, false)), "$end");
        flat.binary(BinaryOp::Sub, left, left, 1);
        flat.binary(BinaryOp::Shr, shifted, number, 13);
        flat.binary(BinaryOp::Mul, number, number, MULTIPLIER);
        flat.binary(BinaryOp::Add, number, number, 2 * index + 1);
        flat.binary(BinaryOp::Xor, number, number, shifted);
        let set = |flat: &mut Flat, which: u32| {
            flat.binary(BinaryOp::And, bit, number, 1 << which);
            flat.compare(CompareOp::Ne, bit, 0)
        };
        match *end {
            End::Next => {}
            End::Jump(to) => flat.branch(None, &format!("$block_{to}")),
            End::Branch(to, which, is) => {
                let cond = set(&mut flat, which);
                flat.branch(Some((cond, !is)), &format!("$block_{to}"));
            }
            End::Exit(which) => {
                let cond = set(&mut flat, which);
                let address = Address { base: Operand::Reg(flat.out), offset: 0 };
                let inst = Inst::Store {
                    space: Space::Global,
                    ty: Type::U32,
                    src: vec![Operand::Reg(if together { left } else { number })],
                    address,
                };
                let then = vec![Statement::Inst { inst, site: here() }];
                let (cond_, otherwise) = (Operand::Reg(cond), Vec::new());
                flat.function.body.push(Statement::If { cond: cond_, then, otherwise, site: here() });
                flat.exit(Some((cond, false)));
            }
        }
    }
    flat.label("$end");
    let active = flat.active();
    flat.store(if together { active } else { number });
    flat.exit(None);
    flat
}

fn draw(random: &mut Random) -> Vec<End> {
    let count = 2 + random.below(9);
    let block = |random: &mut Random| {
        let to = random.below(count + 1).min(count - 1);
        match random.below(8) {
            0 | 1 => End::Next,
            2 => End::Jump(to),
            7 => End::Exit(random.below(32)),
            _ => End::Branch(to, random.below(32), random.below(2) == 0),
        }
    };
    (0..count).map(|_| block(random)).collect()
}

#[test]
fn each_lane_computes_what_it_would_alone() {
    let mut random = Random(1);
    for _ in 0..300 {
        let blocks = draw(&mut random);
        let flat = program(&blocks, false);
        let want: Vec<u32> = (0..32).map(|lane| expected(&blocks, lane).0).collect();
        for options in schedules() {
            let got = flat.run(&options).unwrap_or_else(|failure| panic!("{blocks:?}: {failure}"));
            assert_eq!(got, want, "{blocks:?}, {:?} {}", options.schedule, options.seed);
        }
    }
}

#[test]
fn the_lanes_that_do_not_end_meet_at_the_end() {
    let mut random = Random(2);
    for _ in 0..300 {
        let blocks = draw(&mut random);
        let flat = program(&blocks, true);
        let there: Vec<bool> = (0..32).map(|lane| expected(&blocks, lane).1).collect();
        let all = (0..32).filter(|&lane| there[lane]).fold(0u32, |all, lane| all | 1 << lane);
        for options in schedules().filter(tells_who_is_there) {
            let got = flat.run(&options).unwrap_or_else(|failure| panic!("{blocks:?}: {failure}"));
            for (lane, got) in got.into_iter().enumerate().filter(|&(lane, _)| there[lane]) {
                assert_eq!(got, all, "lane {lane} of {blocks:?}, {:?} {}", options.schedule, options.seed);
            }
        }
    }
}
