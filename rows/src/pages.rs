//! New keys and values, written to pages of a cache.

use std::collections::BTreeMap;

use collective::Format;
use collective::heads::{DeviceTensor, HeadRows, HeadTensor, HeadUse, HeadsRef};
use kernel::operands::{Contents, Extents, Visit};
use kernel::{Kernel, Launch, LaunchError, Program};
use ptx::{Builder, Special, VerifyError};

use crate::common::{THREADS, VECTOR, each_part, launch_heads, load_words, program};

/// Copies rows of K and V to a cache in pages: row `i` to slot `slots[i]`, which is key `slot % keys` of page `slot / keys`. A row whose slot is
/// -1 is left out, and every key that is no row's slot is kept.
///
/// No key that is not in the cache is written: the kernel traps. No two rows have the same slot: which of them the cache keeps is unknown.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct RowAppendPages(pub Format);

/// What is copied, and where to.
#[derive(Clone, Copy, Debug, Default)]
pub struct AppendedPages {
    /// Rows.
    pub rows: u32,
    /// Heads of K and V.
    pub heads: u32,
    /// Elements of a head of K and of V, multiples of 8. V may have none: that of latent attention is in K.
    pub columns: [u32; 2],
    /// Pages of the cache, and keys of a page: fewer than 2^32 - 1 keys in all.
    pub pages: [u32; 2],
    /// New K and V. Their `batch` is not used.
    pub new: [HeadsRef; 2],
    /// The cache of K and of V, whose strides named `batch` are those from one page to the next.
    pub caches: [HeadsRef; 2],
    /// A slot per row.
    pub slots: u64,
    /// Whether slots are numbers of 64 bits; otherwise they have 32.
    pub wide: bool,
}

/// New rows, and the cache: memory, and parameters.
const FROM: [(&str, [&str; 4]); 2] =
    [("K", ["k", "k_row", "k_head", "k_batch"]), ("V", ["v", "v_row", "v_head", "v_batch"])];
const CACHES: [(&str, [&str; 4]); 2] = [
    ("the cache of K", ["k_cache", "k_cache_row", "k_cache_head", "k_cache_page"]),
    ("the cache of V", ["v_cache", "v_cache_row", "v_cache_head", "v_cache_page"]),
];
/// Elements of a head.
const COLUMNS: [&str; 2] = ["k_columns", "v_columns"];

impl AppendedPages {
    /// Checks slots that the host knows.
    ///
    /// # Errors
    /// The first row whose slot is not in the cache, or that of another row, too.
    pub fn check(&self, slots: &[i64]) -> Result<(), String> {
        let (keys, mut rows) = (self.keys(), BTreeMap::new());
        for (row, &slot) in slots.iter().enumerate().filter(|(_, slot)| **slot != -1) {
            if u64::try_from(slot).map_or(true, |slot| slot >= keys) {
                return Err(format!(
                    "slot {slot} of row {row} is not in the cache of {keys} keys, -1 or a number below {keys} was needed"
                ));
            }
            if let Some(first) = rows.insert(slot, row) {
                return Err(format!(
                    "rows {first} and {row} both have slot {slot}, another one for each was needed"
                ));
            }
        }
        Ok(())
    }

    /// Keys of the cache.
    fn keys(&self) -> u64 {
        let [pages, keys] = self.pages.map(u64::from);
        pages * keys
    }

    /// Vectors of the longer one of K and V, of all rows.
    fn vectors(&self) -> u64 {
        let longest = u64::from(self.columns[0].max(self.columns[1]).div_ceil(VECTOR));
        longest.saturating_mul(self.rows.into()).saturating_mul(self.heads.into())
    }

    /// K, V and their caches.
    fn tensors(&mut self, format: Format) -> Vec<HeadTensor<'_>> {
        let Self { rows, heads, columns, pages: [pages, keys], new, caches, .. } = self;
        let of = |((name, parameters), at), shape, used| {
            HeadTensor::strided(name, parameters, at, shape, (format, used))
        };
        let new = FROM.into_iter().zip(new).zip(*columns);
        let new = new.map(|(names, d)| of(names, [1, *heads, *rows, d], HeadUse::Read));
        let caches = CACHES.into_iter().zip(caches).zip(*columns).map(|(names, d)| {
            let cache = of(names, [*pages, *heads, *keys, d], HeadUse::Updated);
            HeadTensor { rows: HeadRows::Page, ..cache }
        });
        new.chain(caches).collect()
    }
}

impl Kernel<AppendedPages> for RowAppendPages {
    fn program(&self) -> Result<Program, VerifyError> {
        program(self, format!("append_pages_{}", self.0.name()), 0, emit)
    }

    fn launch(&self, call: &AppendedPages, resident: u32) -> Result<Option<Launch>, LaunchError> {
        if call.keys() >= u32::MAX.into() {
            let (keys, most) = (call.keys(), u32::MAX - 1);
            let reason = format!("the cache has {keys} keys, at most {most} were needed");
            return Err(LaunchError::Problem { reason });
        }
        let work = ("vectors of 16 bytes", call.vectors(), THREADS);
        launch_heads(self, call, &call.clone().tensors(self.0), work, resident)
    }

    fn total_work(&self, call: &AppendedPages) -> u128 {
        u128::from(call.vectors()).div_ceil(THREADS.into())
    }

    fn visit(&self, call: &mut AppendedPages, visit: &mut dyn Visit) {
        call.tensors(self.0).into_iter().for_each(|tensor| HeadTensor::state_all(vec![tensor], visit));
        let (bits, below) = (if call.wide { 64 } else { 32 }, u32::try_from(call.keys()).unwrap_or(u32::MAX));
        let line = Extents::line(bits, call.rows.into());
        visit.input("slots", ("the slots", &mut call.slots), line, Contents::Slots { bits, below });
        visit.form(call.wide.into());
        visit.flag("wide", Some(call.wide));
        visit.counted("rows", &mut call.rows);
        visit.counted("heads", &mut call.heads);
        for (name, columns) in COLUMNS.into_iter().zip(&mut call.columns) {
            visit.counted(name, columns);
        }
        for (name, extent) in ["pages", "keys"].into_iter().zip(&mut call.pages) {
            visit.counted(name, extent);
        }
    }
}

fn emit(f: &Builder) {
    let [from, caches] = [FROM, CACHES].map(|all| all.map(|(_, parameters)| DeviceTensor::of(f, parameters)));
    let (slots, wide) = (f.parameter::<u64>("slots"), f.parameter::<bool>("wide"));
    let [rows, heads] = ["rows", "heads"].map(|name| f.parameter::<u32>(name));
    let vectors = COLUMNS.map(|name| f.parameter::<u32>(name) / VECTOR);
    let [pages, keys] = ["pages", "keys"].map(|name| f.parameter::<u32>(name));
    let longest = vectors[0].max(vectors[1]);
    let count = rows * heads * longest;
    each_part(f, (count, f.constant(THREADS)), |first| {
        let number = first + f.special(Special::ThreadX);
        f.if_(number.less_than(count), || {
            let (vector, head) = (number % longest, number / longest % heads);
            let row = number / longest / heads;
            // A number of 32 bits is none if all of them are set, and so is one of 64 bits.
            let slot = slots + row.mul_wide(f.constant(8u32).where_or(wide, 4));
            let low = f.load_global::<u32>(slot, 0);
            let high = f.variable(f.constant(u32::MAX).where_or(low.equals(u32::MAX), 0));
            f.if_(wide, || high.set(f.load_global::<u32>(slot, 4)));
            let (high, zero) = (high.get(), f.constant(0));
            f.if_else(
                low.less_than(pages * keys) & high.equals(0),
                || {
                    let place = [low % keys, head, low / keys];
                    for ((from, cache), vectors) in from.into_iter().zip(caches).zip(vectors) {
                        f.if_(vector.less_than(vectors), || {
                            let at = vector.mul_wide(16);
                            let words = load_words(f, from.row([row, head, zero]) + at);
                            f.store_global(cache.row(place) + at, 0, words);
                        });
                    }
                },
                || {
                    let wrong = low.differs_from(u32::MAX) | high.differs_from(u32::MAX);
                    f.if_(wrong, || f.scope("a slot that is not in the cache", || f.trap()));
                },
            );
        });
    });
}
