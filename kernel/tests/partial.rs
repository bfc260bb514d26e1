//! A partial result of one's own: the log-sum-exp of rows. Each CTA has some of the columns; the last one merges, in order.

use collective::{Partial, Real, Share, Slot, SlotPlan, Slots};
use emulator::Schedule;
use kernel::{Emulator, Engine, Program};
use ptx::abi::{Argument, Grid};
use ptx::{Entry, Function, Special, Target, Value, Var};

/// Tiles of 128 rows, CTAs per tile, and columns per CTA.
const TILES: u32 = 2;
const UNITS: u32 = 3;
const COLUMNS: u32 = 5;

/// 16 bytes per thread.
const SLOTS: SlotPlan = SlotPlan { cluster: 1, sharing: 1, bytes: 128 * 16 };

/// The largest number of a thread's row, and the sum of the exponentials of its numbers relative to it.
struct LogSum<'f> {
    most: Var<'f, f32>,
    sum: Var<'f, f32>,
}

impl<'f> LogSum<'f> {
    fn merge_one(&self, most: Value<'f, f32>, sum: Value<'f, f32>) {
        let before = self.most.get();
        self.most.set(Real::max(before, most));
        let [kept, added] =
            [before, most].map(|of| ((of - self.most.get()) * std::f32::consts::LOG2_E).exp2());
        self.sum.set(self.sum.get() * kept + sum * added);
    }
}

impl<'f> Partial<'f> for LogSum<'f> {
    fn store(&self, slot: Slot<'f>) {
        let [most, sum] = [self.most.get(), self.sum.get()];
        slot.store(0, [most, sum, most, sum]);
    }

    fn merge(&self, count: Value<'f, u32>, slot: &dyn Fn(Value<'f, u32>) -> Slot<'f>) {
        count.builder().repeat(count, |i| {
            let [most, sum, _, _] = slot(i).load(0);
            self.merge_one(most, sum);
        });
    }
}

fn program() -> Program {
    let entry = Entry {
        name: "log_sum_exp".to_owned(),
        target: Target::Sm90a,
        threads: 128,
        shared_bytes: 0,
        cluster: [1; 3],
    };
    let function = Function::build(entry, |f| {
        let [x, d, workspace] = ["x", "d", "workspace"].map(|name| f.param::<u64>(name));
        let (unit, thread) = (f.special(Special::CtaX), f.special(Special::ThreadX));
        let (tile, k_begin) = (unit / UNITS, unit % UNITS * COLUMNS);
        let row = tile * 128 + thread;
        let first = x + (row * (UNITS * COLUMNS) + k_begin).mul_wide(4);
        let partial = LogSum { most: f.variable(f32::MIN), sum: f.variable(0.0) };
        for column in 0..COLUMNS {
            partial.merge_one(f.load_global(first, 4 * column.cast_signed()), f.constant(1.0));
        }
        let share = Share {
            unit,
            first: tile * UNITS,
            last: tile * UNITS + (UNITS - 1),
            tile,
            k_begin,
            k_end: k_begin + COLUMNS,
            k: f.constant(UNITS * COLUMNS),
        };
        let slots = Slots { f, plan: SLOTS, workspace, warpgroup: f.constant(0), thread };
        f.if_(slots.merge_in_order(share, &partial), || {
            let log = partial.sum.get().ln() + partial.most.get();
            f.store_global(d + row.mul_wide(4), 0, [log]);
        });
    });
    Program::new(function).unwrap_or_else(|error| panic!("{error}"))
}

#[test]
fn partial_results_are_merged_in_order() {
    let (rows, columns) = (TILES * 128, UNITS * COLUMNS);
    let at = |i: u32| ((i.wrapping_mul(2_654_435_761) >> 16) as f32 / 65536.0 - 0.5) * 40.0;
    let numbers: Vec<f32> = (0..rows * columns).map(at).collect();
    let bytes: Vec<u8> = numbers.iter().flat_map(|x| x.to_le_bytes()).collect();
    let (program, mut first) = (program(), None);
    for (schedule, seed) in Schedule::sweep(8) {
        let mut engine = Emulator::new().with_multiprocessors(2).with_schedule(schedule, seed);
        let x = engine.upload(&bytes).expect("memory");
        let bytes = SLOTS.workspace_bytes(TILES * UNITS);
        let workspace = engine.workspace(bytes).expect("memory").expect("there are slots");
        // Twice: a launch leaves its flags as it found them.
        for _ in 0..2 {
            let d = engine.upload(&f32::NAN.to_le_bytes().repeat(rows as usize)).expect("memory");
            let arguments = [x.address, d.address, workspace.address].map(Argument::from);
            let grid = Grid { ctas: [TILES * UNITS, 1, 1] };
            engine.launch(&program, grid, &arguments).unwrap_or_else(|error| panic!("{error}"));
            let got = engine.read(d).expect("no fault");
            for (row, word) in numbers.chunks(columns as usize).zip(got.chunks_exact(4)) {
                let want = row.iter().map(|&x| f64::from(x).exp()).sum::<f64>().ln();
                let got = f64::from(f32::from_le_bytes([word[0], word[1], word[2], word[3]]));
                assert!((got - want).abs() < 2e-5, "{got} is not {want}");
            }
            assert_eq!(*first.get_or_insert_with(|| got.clone()), got, "{schedule:?} {seed}: other bits");
        }
    }
}
