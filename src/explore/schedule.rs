//! Which slot of a card computes which tile of a launch when.

use core::fmt;

use collective::Form;
use kernel::host::bytes_in_words as bytes;
use kernel::operands::Layouts;
use kernel::{AnyGemm, GemmProblem, LaunchError, Machine, Prediction, Request, Types};
use scheduler::{Activity, Slice, Span, Tiles, Timeline, Work};

use super::traits::tile;

/// Largest number of tiles in a picture.
const MOST_TILES: u64 = 1 << 18;

/// A kernel's schedule for one launch.
#[derive(Debug)]
pub struct Schedule {
    /// The kernel.
    pub entry: AnyGemm,
    /// The GEMMs of the launch, in words.
    described: String,
    /// Number of tiles of D along M and N, and of k-tiles.
    pub tiles: Tiles<u32>,
    /// Number of workers.
    pub workers: u32,
    /// Number of columns that each tile multiplies; `None` if all are equal.
    widths: Option<Vec<u32>>,
    /// What every slot does.
    pub timeline: Timeline,
    /// The card.
    pub machine: Machine,
    /// What the model predicts; `None` if the launch has no GEMM.
    pub prediction: Option<Prediction>,
}

/// The GEMMs of a launch.
pub struct Launched<'a> {
    /// The GEMMs one by one.
    pub products: &'a [GemmProblem],
    /// The same in words.
    pub described: String,
    /// The request for them, of one of the first.
    pub request: &'a dyn Fn(Request<'a>) -> Request<'a>,
}

impl fmt::Debug for Launched<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Launched").field("described", &self.described).finish_non_exhaustive()
    }
}

/// Why there is no schedule.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ScheduleError {
    /// The kernel does not take the call.
    #[error(transparent)]
    Call(#[from] LaunchError),
    /// An extent, or the number of tiles, is more than can be numbered.
    #[error("{0}")]
    Numbers(#[source] LaunchError),
    /// More tiles than are drawn.
    #[error("they make {tiles} tiles, a picture shows at most {most}: lower them")]
    Tiles {
        /// Number of tiles.
        tiles: u64,
        /// The most that are drawn.
        most: u64,
    },
}

impl Schedule {
    /// The schedule of a launch on a card.
    ///
    /// # Errors
    /// The kernel does not take such a call, or there are too many tiles.
    pub fn new(entry: AnyGemm, launched: Launched<'_>, machine: Machine) -> Result<Self, ScheduleError> {
        let Launched { products, described, request } = launched;
        let plan = entry.plan();
        let slots = machine.resident_clusters(&plan);
        // Groups in buffers of one size are drawn like contiguous groups.
        let form = if entry.form() == Form::GroupedMasked { Form::GroupedContiguous } else { entry.form() };
        let all = products.iter().fold(0u32, |sum, problem| sum.saturating_add(problem.k));
        let call = products.first().map(|&first| {
            let along_k = form == Form::KGrouped;
            Layouts::of(&entry).packed(GemmProblem { k: if along_k { all } else { first.k }, ..first }, 16)
        });
        if let (Form::Single, Some(call)) = (form, &call) {
            entry.launch(call, slots)?;
        }
        let tiles = entry.tiles_of(products).map_err(ScheduleError::Numbers)?;
        let all = u64::from(tiles.m) * u64::from(tiles.n);
        if all > MOST_TILES {
            return Err(ScheduleError::Tiles { tiles: all, most: MOST_TILES });
        }
        let workers = entry.workers(tiles, slots);
        // Each GEMM of a pointer array has its own K.
        let sums = (form == Form::PointerArray).then(|| {
            let of = |problem: &GemmProblem| {
                let tiles = entry.tiles(*problem);
                core::iter::repeat_n(tiles.k, (tiles.m * tiles.n) as usize)
            };
            products.iter().flat_map(of).collect::<Vec<u32>>()
        });
        // So has each group along K, whose tiles are next to each other in one direction.
        let along_k = products.first().filter(|_| form == Form::KGrouped).map(|&first| {
            let sums: Vec<u32> = products.iter().map(|&problem| entry.tiles(problem).k).collect();
            (entry.tiles(first), sums)
        });
        let work = |worker| -> Box<dyn Iterator<Item = Work<u32>>> {
            let work = entry.work(tiles, worker, workers);
            if let Some((one, sums)) = along_k.clone() {
                let group = move |work: &Work<u32>| {
                    if tiles.m > one.m { work.m / one.m } else { work.n / one.n }
                };
                return Box::new(work.map(move |work| Work { k_end: sums[group(&work) as usize], ..work }));
            }
            let Some(sums) = sums.clone() else { return work };
            Box::new(work.map(move |work| Work { k_end: sums[work.m as usize], ..work }))
        };
        let widths = entry.widths_of(products, workers);
        let full = u64::from(plan.mainloop.tile[1]);
        // The unit is a k-tile of full width.
        let length = |work: &Work<u32>| {
            let columns = widths.as_ref().and_then(|widths| widths.get(work.m as usize).copied());
            let [count, of] = work.slice.map_or([1, 1], |slice| [slice.count, slice.of]);
            let columns = columns.map_or(full, u64::from) * u64::from(count);
            (u64::from(work.k_end - work.k_begin) * columns).div_ceil(full * u64::from(of))
        };
        let (count, drawn) = ([workers, slots], entry.draws());
        let timeline = Timeline::of_lengths(tiles, count, entry.reduction(), work, drawn, &length);
        let prediction = call.map(|call| {
            let one = Request { call, ..Request::packed(Types::of_plan(&plan), plan.majors(), call.problem) };
            machine.predict(&entry, &request(one))
        });
        Ok(Schedule { entry, described, tiles, workers, widths, timeline, machine, prediction })
    }

    /// The position of a tile in D: row and column, in tiles.
    pub fn place(&self, work: &Work<u32>) -> [u32; 2] {
        self.entry.plan().oriented([work.m, work.n])
    }

    /// Numbers of D's tiles along M and N.
    pub fn grid(&self) -> [u32; 2] {
        let Tiles { m, n, .. } = self.tiles;
        self.entry.plan().oriented([m, n])
    }

    /// Number of slices per sliced tile; `None` if the scheduler never slices tiles.
    pub fn slices(&self) -> Option<u32> {
        let of = |span: &Span| does(&span.activity).1.slice.map(|slice| slice.of);
        self.timeline.spans.first().and_then(of)
    }

    /// The columns of each CTA's tile that a slice has: the first, and one past the last. Rows of D for a
    /// swap-AB kernel. `None` for a whole tile.
    pub fn slice(&self, work: &Work<u32>) -> Option<[u32; 2]> {
        let Slice { first, count, of } = work.slice.filter(|slice| slice.count < slice.of)?;
        let width = self.entry.plan().mainloop.tile[1] / of;
        Some([first * width, (first + count) * width])
    }

    /// The direction of D in which tiles are sliced.
    pub fn sliced_along(&self) -> &'static str {
        self.entry.plan().oriented(["rows", "columns"])[1]
    }

    /// Whether a work unit has a part of its tile's K.
    pub fn divided(&self, work: &Work<u32>) -> bool {
        self.entry.reduction().is_some() && work.k_end - work.k_begin < self.tiles.k
    }

    /// The numbers of the schedule, one line each.
    pub fn summary(&self) -> Vec<String> {
        let Self { entry, described, tiles, workers, timeline, .. } = self;
        let plan = entry.plan();
        let [rows, columns] = self.grid();
        let each = match plan.oriented(plan.mainloop.cluster) {
            [1, 1] => "a CTA each".to_owned(),
            [m, n] => format!("a cluster of {m} x {n} CTAs each"),
        };
        let slots = u64::from(timeline.slots);
        let (end, all) = (timeline.end, (slots * timeline.end).max(1));
        let multiplied = timeline.spent(|activity| matches!(activity, Activity::Multiply(_)));
        let waited = timeline.spent(|activity| matches!(activity, Activity::Wait(_)));
        let added = timeline.spent(|activity| matches!(activity, Activity::FixUp(_)));
        let idle = slots * end - multiplied - waited - added;
        let share = |part: u64| format!("{:.1} %", part as f64 * 100.0 / all as f64);
        let waves = f64::from(tiles.m) * f64::from(tiles.n) / f64::from(timeline.slots);
        let mut lines = vec![
            format!("{} at {described} on {} SMs", entry.name(), self.machine.multiprocessors),
            format!("schedule   {}", entry.schedule()),
            format!(
                "tiles      {rows} x {columns} of D, {} k-tiles each; CTAs multiply {}",
                tiles.k,
                tile(&plan)
            ),
            format!("workers    {workers} on {slots} slots, {each}"),
            format!("waves      {waves:.2}"),
            format!("time       {end} k-tiles: {} multiplying, {} idle", share(multiplied), share(idle)),
        ];
        if let Some(widths) = self.widths.as_ref().filter(|widths| !widths.is_empty()) {
            let (least, most) = (widths.iter().min().unwrap_or(&0), widths.iter().max().unwrap_or(&0));
            let full = f64::from(plan.mainloop.tile[1]);
            let all = widths.iter().map(|&width| f64::from(width)).sum::<f64>() / widths.len() as f64;
            lines.push(format!(
                "narrowed   to {least} to {most} columns, {:.2} of a tile on average; times are for full width",
                all / full
            ));
        }
        if let Some(of) = self.slices() {
            let (width, along) = (plan.mainloop.tile[1] / of, self.sliced_along());
            let multiplied = |span: &&Span| matches!(&span.activity, Activity::Multiply(work) if self.slice(work).is_some());
            lines.push(match timeline.spans.iter().filter(multiplied).count() as u32 / of {
                0 => format!(
                    "slices     none: there is no partial last wave, or {of} slices of each of its tiles are more than \
                     the workers"
                ),
                1 => format!("slices     1 tile of the last wave in {of} slices of {width} {along}"),
                tiles => {
                    format!("slices     {tiles} tiles of the last wave in {of} slices of {width} {along} each")
                }
            });
        }
        if entry.reduction().is_some() {
            lines.push(format!(
                "sums       {} waiting for partial sums of other workers, {} adding them",
                share(waited),
                share(added)
            ));
        }
        if let Some(prediction) = &self.prediction {
            let (l2, dram) = (prediction.l2 * self.machine.l2, prediction.dram_bytes);
            lines.push(format!(
                "traffic    {} from L2 to the SMs, {} between memory and L2 (predicted)",
                bytes(l2),
                bytes(dram)
            ));
        }
        if plan.swapped() {
            lines.push("operands   swapped (swap-AB): tiles are shown at their places in D".to_owned());
        }
        lines
    }
}

/// What a slot does, as a word, and the work unit that it does.
pub fn does(activity: &Activity) -> (&'static str, &Work<u32>) {
    match activity {
        Activity::Multiply(work) => ("multiply", work),
        Activity::Wait(work) => ("wait", work),
        Activity::FixUp(work) => ("add up", work),
    }
}
