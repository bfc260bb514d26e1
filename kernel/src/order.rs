//! The order of groups of rows that are cut into tiles of nearly equal width.
//!
//! A group's tiles begin together, those that multiply the same weights one behind the other: as they are equally wide but for
//! a step, they read the same k-tiles of them at nearly the same time, and memory is asked once.
//!
//! Among groups, those of wide tiles come first, so that workers end on narrow ones. In launches of many tiles, groups of few
//! rows, which memory decides, lie evenly among the others, whose time the multiplications take: so neither waits for the
//! other. Where there are few tiles for each worker, how evenly they end decides more.
//!
//! On the device, the table in shared memory begins with a word for each place in the order, `tiles << 9 | group`: the tiles of
//! all groups in front of that place, and the group that has it. Behind the places of all groups stands one with all tiles.
//! Then come the first rows of all groups, in their own order, and the last one's end.

use collective::{Form, Plan};
use ptx::{Builder, Special, Value};

use crate::form::{find_place, scan, write_rows};

/// Groups of fewer rows take longer to bring their weights from memory than to multiply them: 16-bit weights, some hundred
/// multiplications for each byte.
const FEW_ROWS: u32 = 192;

/// Groups' tiles along M for each worker, from which on there are many.
const MANY_TILES: u32 = 4;

/// Bits of a group's number.
const GROUP_BITS: u32 = 9;

/// Most tiles of a launch: what a word of the table counts.
pub(crate) const MOST_TILES: u32 = 1 << (32 - GROUP_BITS);

const _: () = assert!(Form::MOST_GROUPS < 1 << GROUP_BITS);

/// Where the first rows begin, in bytes from the table's start.
const ROWS_OFFSET: u32 = (Form::MOST_GROUPS + 1) * 4;

const _: () = assert!(2 * ROWS_OFFSET <= Form::Ragged.table_bytes());

/// Groups cut into tiles.
#[derive(Clone, Copy)]
pub(crate) struct Balanced<'f> {
    f: &'f Builder,
    /// The table's shared address.
    table: Value<'f, u32>,
    groups: Value<'f, u32>,
    /// Columns of a tile at most, and the steps in which it is narrowed.
    width: u32,
    step: u32,
    /// Tiles along M.
    height: Value<'f, u32>,
    /// Groups of fewer rows lie among the others: [`FEW_ROWS`], or 0 in launches of few tiles.
    few: Value<'f, u32>,
}

/// A tile of a group.
pub(crate) struct Part<'f> {
    pub(crate) group: Value<'f, u32>,
    /// Its tile along M.
    pub(crate) m: Value<'f, u32>,
    /// Its first row of all groups' rows, and one past its last.
    pub(crate) rows: [Value<'f, u32>; 2],
}

impl<'f> Balanced<'f> {
    /// Emitted for all threads of a CTA: writes the table. Returns the number of tiles.
    pub(crate) fn new(
        f: &'f Builder,
        plan: &Plan,
        table: Value<'f, u32>,
        [groups, rows]: [Value<'f, u32>; 2],
        offsets: Value<'f, u64>,
        height: Value<'f, u32>,
    ) -> (Self, Value<'f, u32>) {
        let [_, width, _] = plan.mainloop.tile;
        let workers = f.special(Special::GridX) / plan.cluster_size();
        let many = (groups * height).at_least(workers * MANY_TILES);
        let few = f.constant(FEW_ROWS).where_or(many, 0);
        let order = Self { f, table, groups, width, step: plan.mainloop.step, height, few };
        let warp = f.warp_index();
        f.if_(warp.equals(0), || write_rows(f, table + ROWS_OFFSET, [groups, rows], offsets));
        f.barrier_sync(0, plan.threads);
        let thread = f.special(Special::ThreadX);
        let each = |body: &dyn Fn(Value<'f, u32>)| {
            let group = f.variable(thread);
            f.while_(
                || group.get().less_than(groups),
                || {
                    body(group.get());
                    group.set(group.get() + plan.threads);
                },
            );
        };
        each(&|group| {
            let [begin, end] = order.rows(group);
            f.store_shared(table + group * 4, 0, [order.key(end - begin)]);
        });
        f.barrier_sync(0, plan.threads);
        // Keys are read by all before places replace them: so a thread has one group, or waits.
        let rounds = Form::MOST_GROUPS.div_ceil(plan.threads);
        let places: Vec<_> = (0..rounds).map(|round| order.place(thread + round * plan.threads)).collect();
        f.barrier_sync(0, plan.threads);
        for (round, place) in (0..rounds).zip(places) {
            let group = thread + round * plan.threads;
            f.if_(group.less_than(groups), || f.store_shared(table + place * 4, 0, [group]));
        }
        f.barrier_sync(0, plan.threads);
        f.if_(warp.equals(0), || order.count());
        f.barrier_sync(0, plan.threads);
        let [all] = f.load_shared_vector::<u32, 1>(table + groups * 4, 0);
        (order, all >> GROUP_BITS)
    }

    /// A group's first row and its end.
    fn rows(&self, group: Value<'f, u32>) -> [Value<'f, u32>; 2] {
        let at = self.table + group * 4 + ROWS_OFFSET;
        [0, 4].map(|offset| {
            let [row] = self.f.load_shared_vector::<u32, 1>(at, offset);
            row
        })
    }

    /// What decides a group's place: whether it has few rows, then how wide its tiles are.
    fn key(&self, rows: Value<'f, u32>) -> Value<'f, u32> {
        let f = self.f;
        let [steps, tiles] = [rows.div_ceil(self.step), rows.div_ceil(self.width).max(1)];
        let few = f.constant(1u32 << 16).where_or(rows.less_than(self.few), 0);
        few + (steps + tiles - 1) / tiles
    }

    /// A group's place, from the keys of all.
    fn place(&self, group: Value<'f, u32>) -> Value<'f, u32> {
        let (f, groups) = (self.f, self.groups);
        let key = |group: Value<'f, u32>| {
            let [key] = f.load_shared_vector::<u32, 1>(self.table + group * 4, 0);
            key
        };
        let own = key(group.min(groups - 1));
        let (before, alike) = (f.variable(0u32), f.variable(0u32));
        f.repeat(groups, |other| {
            let theirs = key(other);
            let one = f.constant(1u32);
            let same = ((theirs ^ own) >> 16u32).equals(0);
            let first = theirs.more_than(own) | (theirs.equals(own) & other.less_than(group));
            alike.set(alike.get() + one.where_or(same, 0));
            before.set(before.get() + one.where_or(same & first, 0));
        });
        let (rank, alike) = (before.get(), alike.get());
        let others = groups - alike;
        // The place among both kinds when each is spread over all: (2 rank + 1) / alike, of two that are equal the one of
        // many rows first.
        let (far, half) = ((rank * 2 + 1) * others, alike * 2);
        let few = own.at_least(1 << 16);
        let of_many = (far + half - 1 - alike).where_or(far.more_than(alike), 0) / half.max(1);
        let of_few = ((far + alike).where_or(far.at_least(alike), 0)) / half.max(1);
        rank + of_few.where_or(few, of_many).min(others)
    }

    /// Tiles along N of so many rows.
    fn tiles(&self, rows: Value<'f, u32>) -> Value<'f, u32> {
        rows.div_ceil(self.width)
    }

    /// Emitted for the lanes of a warp: adds up the tiles of the groups in their order.
    fn count(&self) {
        let Self { f, table, groups, height, .. } = *self;
        let lane = f.special(Special::Lane);
        let (tiles, base) = (f.variable(0u32), f.variable(0u32));
        f.while_(
            || base.get().less_than(groups),
            || {
                let place = base.get() + lane;
                let inside = place.less_than(groups);
                let [group] = f.load_shared_vector::<u32, 1>(table + place.min(groups - 1) * 4, 0);
                let [begin, end] = self.rows(group);
                let own = (self.tiles(end - begin) * height).where_or(inside, 0);
                let sum = scan(f, lane, own, &|a, b| a + b) + tiles.get();
                let word = ((sum - own) << GROUP_BITS) | group;
                // Lanes past the last group have read its word too.
                f.warp_sync();
                f.if_(inside, || f.store_shared(table + place * 4, 0, [word]));
                tiles.set(f.shuffle(sum, 31));
                base.set(base.get() + 32);
            },
        );
        f.if_(lane.equals(0), || f.store_shared(table + groups * 4, 0, [tiles.get() << GROUP_BITS]));
    }

    /// Emitted for a piece of work: the tile of a number.
    pub(crate) fn part(&self, number: Value<'f, u32>) -> Part<'f> {
        let Self { f, table, groups, step, .. } = *self;
        let before = |place: Value<'f, u32>| {
            let [word] = f.load_shared_vector::<u32, 1>(table + place * 4, 0);
            word
        };
        let place = find_place(f, groups, number, &|place| before(place) >> GROUP_BITS);
        let word = before(place);
        let (group, local) = (word & ((1 << GROUP_BITS) - 1), number - (word >> GROUP_BITS));
        let [begin, end] = self.rows(group);
        let rows = end - begin;
        let (tiles, steps) = (self.tiles(rows).max(1), rows.div_ceil(step));
        let (m, tile) = (local / tiles, local % tiles);
        // The first of them have a step more.
        let (least, more) = (steps / tiles, steps % tiles);
        let first = least * tile + tile.min(more);
        let own = least + f.constant(1u32).where_or(tile.less_than(more), 0);
        let first_row = begin + first * step;
        Part { group, m, rows: [first_row, (first_row + own * step).min(end)] }
    }
}

/// The columns that each tile multiplies, by its number, of groups of so many rows with `height` tiles along M each: what
/// [`Balanced`] cuts them into for `workers` workers.
pub(crate) fn widths(plan: &Plan, rows: &[u32], height: u32, workers: u32) -> Vec<u32> {
    let ([_, width, _], step) = (plan.mainloop.tile, plan.mainloop.step.max(1));
    let many = rows.len() as u64 * u64::from(height) >= u64::from(workers) * u64::from(MANY_TILES);
    let cut = |rows: u32| (rows.div_ceil(step), rows.div_ceil(width).max(1));
    let few = |rows: u32| many && rows < FEW_ROWS;
    // Each kind by the width of its tiles.
    let mut kinds = [false, true].map(|kind| -> Vec<u32> {
        let mut own: Vec<u32> = rows.iter().copied().filter(|&rows| few(rows) == kind).collect();
        own.sort_by_key(|&rows| {
            let (steps, tiles) = cut(rows);
            core::cmp::Reverse(steps.div_ceil(tiles))
        });
        own.reverse();
        own
    });
    let [of_many, of_few] = [kinds[0].len() as u64, kinds[1].len() as u64];
    let mut placed = Vec::new();
    for _ in rows {
        // The ranks of the next of both kinds.
        let [a, b] = [of_many - kinds[0].len() as u64, of_few - kinds[1].len() as u64];
        let first =
            kinds[1].is_empty() || !kinds[0].is_empty() && (2 * a + 1) * of_few <= (2 * b + 1) * of_many;
        placed.extend(kinds[usize::from(!first)].pop());
    }
    let of_group = |rows: u32| {
        let (steps, tiles) = cut(rows);
        let tiles = if rows == 0 { 0 } else { tiles };
        (0..height).flat_map(move |_| {
            (0..tiles).map(move |tile| (steps / tiles + u32::from(tile < steps % tiles)) * step)
        })
    };
    placed.into_iter().flat_map(of_group).collect()
}

#[cfg(test)]
mod tests {
    use collective::{Cooperative, Fitted, KMajor, LinearCombination, Operands, Tile, TmaStore, TmaWgmma};
    use collective::{Plan, Transposed};
    use half::bf16;
    use ptx::abi::Grid;
    use ptx::{Entry, Function, Special};
    use scheduler::{AlongM, Persistent};
    use typenum::{U2, U32, U64, U128, U256};

    use super::{Balanced, FEW_ROWS, MANY_TILES, Part};
    use crate::{Composed, Emulator, Engine, Gemm, Program, Ragged};

    type Config = Ragged<
        Composed<
            TmaWgmma<
                Operands<KMajor<bf16>, KMajor<bf16>>,
                Fitted<Tile<U128, U256, U64>, U32>,
                Cooperative<U2>,
            >,
            LinearCombination<bf16, Transposed<TmaStore>>,
            Persistent<AlongM>,
        >,
    >;

    const PLAN: Plan = Gemm::<Config>::PLAN;
    const WIDTH: u32 = 256;
    const STEP: u32 = 32;

    /// Writes down every tile: its group, its tile along M, its first row and its end. The first word says how many there are.
    fn lister() -> Program {
        let entry = Entry {
            name: "lister".to_owned(),
            target: Plan::TARGET,
            threads: PLAN.threads,
            shared_bytes: PLAN.shared_bytes,
            cluster: [1; 3],
        };
        let function = Function::build(entry, |f| {
            let [groups, rows, height] = ["groups", "rows", "height"].map(|name| f.param::<u32>(name));
            let [offsets, out] = ["offsets", "out"].map(|name| f.param::<u64>(name));
            let table = (f.shared_base() + (PLAN.table_offset + 4)) & !7;
            let (order, all) = Balanced::new(f, &PLAN, table, [groups, rows], offsets, height);
            let thread = f.special(Special::ThreadX);
            f.if_(thread.equals(0), || f.store_global(out, 0, [all]));
            let number = f.variable(thread);
            f.while_(
                || number.get().less_than(all),
                || {
                    let Part { group, m, rows: [first, end] } = order.part(number.get());
                    let place = out + number.get().mul_wide(16);
                    f.store_global(place, 16, [group, m, first, end]);
                    number.set(number.get() + PLAN.threads);
                },
            );
        });
        Program::new(function).expect("legal")
    }

    fn tiles(program: &Program, rows: &[u32], height: u32) -> Vec<[u32; 4]> {
        let mut engine = Emulator::new();
        let mut offsets = vec![0];
        offsets.extend(rows.iter().scan(0, |end, rows| {
            *end += rows;
            Some(*end)
        }));
        let all: u32 = rows.iter().map(|rows| rows.div_ceil(WIDTH) * height).sum();
        let bytes: Vec<u8> = offsets.iter().flat_map(|offset: &u32| offset.to_le_bytes()).collect();
        let offsets_at = engine.upload(&bytes).expect("memory");
        let out = engine.upload(&vec![0xee; 16 * (all as usize + 2)]).expect("memory");
        let count = rows.len() as u32;
        let arguments = [
            count.into(),
            offsets[rows.len()].into(),
            height.into(),
            offsets_at.address.into(),
            out.address.into(),
        ];
        engine.launch(program, Grid { ctas: [1, 1, 1] }, &arguments).expect("runs");
        let bytes = engine.read(out).expect("memory");
        let words: Vec<u32> = bytes
            .chunks_exact(4)
            .map(|word| u32::from_le_bytes([word[0], word[1], word[2], word[3]]))
            .collect();
        assert_eq!(words[0], all, "{rows:?}");
        assert!(words[4 * (all as usize + 1)..].iter().all(|&word| word == 0xeeee_eeee), "nothing behind");
        words[4..4 * (all as usize + 1)].chunks_exact(4).map(|w| [w[0], w[1], w[2], w[3]]).collect()
    }

    /// The order as it is documented: both kinds by the width of their tiles, each spread evenly over all.
    fn order(rows: &[u32], height: u32) -> Vec<u32> {
        // One worker.
        let few_rows = if rows.len() as u32 * height < MANY_TILES { 0 } else { FEW_ROWS };
        let width = |rows: u32| rows.div_ceil(STEP).div_ceil(rows.div_ceil(WIDTH).max(1));
        let kind = |few: bool| {
            let mut groups: Vec<u32> =
                (0..rows.len() as u32).filter(|&i| (rows[i as usize] < few_rows) == few).collect();
            groups.sort_by_key(|&i| core::cmp::Reverse(width(rows[i as usize])));
            let count = groups.len() as u64;
            let place = move |(rank, group): (u64, u32)| {
                // Of the lot, in parts that all group sizes divide exactly.
                let place = f64::from(2 * rank as u32 + 1) / f64::from(count as u32);
                ((place * 1e9).round() as u64, few, rank, group)
            };
            (0u64..).zip(groups).map(place).collect::<Vec<_>>()
        };
        let mut all = kind(false);
        all.extend(kind(true));
        all.sort_unstable();
        all.into_iter().map(|(.., group)| group).collect()
    }

    #[test]
    fn every_row_of_every_group_is_in_one_tile() {
        let program = lister();
        let mut state = 7u64;
        let mut random = |below: u32| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (state >> 33) as u32 % below
        };
        let mut cases: Vec<Vec<u32>> = vec![
            vec![0],
            vec![0, 0, 0],
            vec![1; 5],
            vec![0, 5000, 0],
            vec![170, 400],
            vec![400, 170, 90],
            vec![256, 257, 512, 513, 31, 32, 33],
            vec![1; 320],
            (0..320).map(|i| i * 7 % 600).collect(),
        ];
        for _ in 0..20 {
            let most = [1, 40, 300, 2000][random(4) as usize];
            let groups = 1 + random(89);
            cases.push((0..groups).map(|_| random(most + 1)).collect());
        }
        for rows in cases {
            let height = 1 + random(3);
            let tiles = tiles(&program, &rows, height);
            let widths = super::widths(&PLAN, &rows, height, 1);
            let own: Vec<u32> =
                tiles.iter().map(|[.., first, end]| (end - first).next_multiple_of(STEP)).collect();
            assert_eq!(widths, own, "the host's of {rows:?}");
            let mut groups: Vec<u32> = tiles.iter().map(|tile| tile[0]).collect();
            groups.dedup();
            let filled = |&group: &u32| rows[group as usize] > 0;
            let expected: Vec<u32> = order(&rows, height).into_iter().filter(filled).collect();
            assert_eq!(groups, expected, "{rows:?}");
            let mut first_row = 0;
            for (group, &count) in (0u32..).zip(&rows) {
                let own: Vec<_> = tiles.iter().filter(|tile| tile[0] == group).collect();
                for m in 0..height {
                    let mut next = first_row;
                    let mut widths = Vec::new();
                    for &&[_, _, first, end] in own.iter().filter(|tile| tile[1] == m) {
                        assert_eq!(first, next, "group {group} of {rows:?}");
                        assert!(first < end && end - first <= WIDTH, "group {group} of {rows:?}");
                        widths.push((end - first).div_ceil(STEP));
                        next = end;
                    }
                    assert_eq!(next, first_row + count, "group {group} of {rows:?}");
                    let (least, most) = (widths.iter().min(), widths.iter().max());
                    assert!(most.zip(least).is_none_or(|(most, least)| most - least <= 1), "{widths:?}");
                }
                // Tiles of the same weights lie behind each other.
                assert!(own.is_sorted_by_key(|tile| tile[1]), "group {group} of {rows:?}");
                first_row += count;
            }
        }
    }
}
