//! Sequences of attention: of one length, of different lengths that follow each other, or with keys in pages of a cache.

use falchion::attention::{Packed, Pages};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

use crate::array::{Array, Found, invalid, shape_words};
use crate::whole::Whole;

/// The arguments that say where sequences are.
#[derive(Default)]
pub(crate) struct Given<'py> {
    /// Of queries and of keys.
    pub(crate) cu_seqlens: [Option<Bound<'py, PyAny>>; 2],
    pub(crate) max_seqlen: [Option<u32>; 2],
    pub(crate) block_table: Option<Bound<'py, PyAny>>,
    pub(crate) cache_seqlens: Option<Bound<'py, PyAny>>,
}

/// The longest sequences of queries and of keys, as their arguments say.
pub(crate) fn most([queries, keys]: [Option<Whole>; 2]) -> PyResult<[Option<u32>; 2]> {
    let of = |name: &str, given: Option<Whole>| {
        given.map(|given| given.from(name, [0, i32::MAX as u32])).transpose()
    };
    Ok([of("max_seqlen_q", queries)?, of("max_seqlen_k", keys)?])
}

/// Sequences, with what their tables are in.
pub(crate) struct Sequences<'py> {
    pub(crate) batch: i64,
    pub(crate) queries: i64,
    pub(crate) keys: i64,
    /// Whether queries of different lengths follow each other.
    pub(crate) packed: Option<Packed>,
    /// Keys of a page.
    pub(crate) pages: Option<(u32, Pages)>,
    /// Extents that K and V must have, without that of a head.
    pub(crate) of_keys: Vec<i64>,
    _kept: Vec<Array<'py>>,
}

const NAMES: [&str; 2] = ["cu_seqlens_q", "cu_seqlens_k"];

/// A table of whole numbers of 32 bits, in the place of Q, with this number of dimensions; packed.
fn table<'py>(name: &str, object: &Bound<'py, PyAny>, rank: usize, q: &Found<'py>) -> PyResult<Array<'py>> {
    let table = Found::of(name, object)?.table(name, q.place(), "q")?;
    if table.rank() != rank {
        let dimensions = if rank == 1 { "one dimension was needed" } else { "two dimensions were needed" };
        return invalid(format!("{name} has shape {}, {dimensions}", table.shape_words()));
    }
    if table.is_packed() { Ok(table) } else { table.copied(name, false) }
}

/// Where sequences of the rows of an array begin: the table's address, and the length of the longest.
fn begins(
    name: &str,
    table: &Array<'_>,
    most: Option<u32>,
    (of, array): (&str, &Found<'_>),
) -> PyResult<(u64, i64)> {
    let all = array.last(1)[0];
    let longest = match table.numbers()? {
        None => None,
        Some(found) => {
            let steps = found.windows(2).map(|pair| pair[1] - pair[0]);
            if found.first() != Some(&0) || found.last() != Some(&all) || steps.clone().any(|step| step < 0) {
                // Other libraries have the heads after the rows.
                let [heads, _] = array.last(2);
                let hint = if found.last() == Some(&heads) && heads != all {
                    format!(
                        ": {of} has shape {}, which is (heads, rows, d); for (rows, heads, d) pass the view {of}.swapaxes(0, 1)",
                        array.shape_words()
                    )
                } else {
                    String::new()
                };
                return invalid(format!(
                    "{name} is {found:?}, numbers from 0 to {all} that do not fall were needed{hint}"
                ));
            }
            steps.max()
        }
    };
    let side = name.trim_start_matches("cu_seqlens_");
    match (longest, most.map(i64::from)) {
        (Some(longest), Some(most)) if most < longest => {
            invalid(format!("max_seqlen_{side} is {most}, and a sequence has {longest}: that was needed"))
        }
        (Some(longest), None) => Ok((table.address(), longest)),
        (_, Some(most)) => Ok((table.address(), most)),
        (None, None) => invalid(format!(
            "max_seqlen_{side} is not given, and {name} is on a card: the longest sequence was needed"
        )),
    }
}

impl<'py> Given<'py> {
    /// Sequences of different lengths: where they begin, the tables that say so, and the number of sequences with the longest of queries and
    /// keys. `of_q` is where queries begin.
    fn packed(
        &self,
        of_q: &Bound<'py, PyAny>,
        q: &Found<'py>,
        k: &Found<'py>,
    ) -> PyResult<(Packed, [Array<'py>; 2], [i64; 3])> {
        let Self { cu_seqlens: [_, of_k], max_seqlen, block_table, .. } = self;
        let (mut queries, mut keys) = (q.last(1)[0], k.last(1)[0]);
        if block_table.is_some() && of_k.is_some() {
            return invalid(
                "cu_seqlens_k and block_table are given: cache_seqlens says how many keys sequences have, and cu_seqlens_k was not needed",
            );
        }
        let [begins_q, begins_k] = [(0, Some(of_q)), (1, of_k.as_ref().or(Some(of_q)))]
            .map(|(i, object)| object.map(|object| table(NAMES[i], object, 1, q)).transpose());
        let (Some(begins_q), Some(begins_k)) = (begins_q?, begins_k?) else {
            return Err(PyValueError::new_err("cu_seqlens_q was needed"));
        };
        let batch = begins_q.last(0)[0] - 1;
        if q.rank() != 3 || batch < 1 || begins_k.last(0)[0] != batch + 1 {
            return invalid(format!(
                "q has shape {}, cu_seqlens_q {} and cu_seqlens_k {}: (heads, all queries, d), and one number more than sequences in both, were needed",
                q.shape_words(),
                begins_q.shape_words(),
                begins_k.shape_words()
            ));
        }
        let rows = [queries, keys].map(|rows| u32::try_from(rows).unwrap_or(u32::MAX));
        let mut table = Packed { begins: [0; 2], rows };
        (table.begins[0], queries) = begins(NAMES[0], &begins_q, max_seqlen[0], ("q", q))?;
        if block_table.is_none() {
            let most = if of_k.is_some() { max_seqlen[1] } else { max_seqlen[1].or(max_seqlen[0]) };
            (table.begins[1], keys) = begins(NAMES[1], &begins_k, most, ("k", k))?;
        }
        Ok((table, [begins_q, begins_k], [batch, queries, keys]))
    }
}

/// An extent as tables of pages have it.
fn number(extent: i64) -> u32 {
    u32::try_from(extent).unwrap_or(u32::MAX)
}

/// Keys in pages of a cache: the table, the keys of a page, and the arrays of the tables of pages and of lengths.
fn paged<'py>(
    [block_table, lengths]: [&Bound<'py, PyAny>; 2],
    batch: i64,
    most: Option<u32>,
    [q, k]: [&Found<'py>; 2],
) -> PyResult<(Pages, i64, [Array<'py>; 2])> {
    let all = table("block_table", block_table, 2, q)?;
    let lengths = table("cache_seqlens", lengths, 1, q)?;
    let (each, count, page) = (all.last(0)[0], k.last(3)[0], k.last(1)[0]);
    if k.rank() != 4 || all.last(1)[0] != batch || lengths.last(0)[0] != batch {
        return invalid(format!(
            "k has shape {}, block_table {} and cache_seqlens {}: (pages, heads, keys of a page, d), ({batch}, pages) and ({batch},) were needed",
            k.shape_words(),
            all.shape_words(),
            lengths.shape_words()
        ));
    }
    let table =
        Pages { lengths: lengths.address(), table: all.address(), each: number(each), count: number(count) };
    check_pages(&table, [&lengths, &all], most, k)?;
    Ok((table, page, [lengths, all]))
}

/// Checks the numbers of a table of pages, and those of the keys of sequences, if the host can read them.
fn check_pages(
    table: &Pages,
    [lengths, all]: [&Array<'_>; 2],
    most: Option<u32>,
    k: &Found<'_>,
) -> PyResult<()> {
    let (each, count, page) = (all.last(0)[0], k.last(3)[0], k.last(1)[0]);
    let (Some(lengths), Some(all)) = (lengths.numbers()?, all.numbers()?) else { return Ok(()) };
    let longest = lengths.iter().max().copied().unwrap_or(0);
    if let Some(most) = most.filter(|&most| i64::from(most) < longest) {
        return invalid(format!("max_seqlen_k is {most}, and cache_seqlens has {longest}: that was needed"));
    }
    if let Some(length) = lengths.iter().find(|&&length| length < 0) {
        return invalid(format!("cache_seqlens has {length}, 0 or more was needed"));
    }
    let used = |at: usize| at as i64 % each * page < lengths[at / each as usize];
    if let Some(at) = (0..all.len()).find(|&at| all[at] < 0 && used(at)) {
        let (sequence, last) = (at as i64 / each, count - 1);
        return invalid(format!(
            "block_table has page {} in sequence {sequence}, which has {} keys: 0 to {last} was needed",
            all[at], lengths[sequence as usize]
        ));
    }
    let small = |numbers: Vec<i64>| numbers.into_iter().map(number).collect::<Vec<u32>>();
    let checked = table.check(number(page), &small(lengths), &small(all));
    checked.map_err(|error| {
        let shape = k.shape_words();
        PyValueError::new_err(format!(
            "block_table: {error}, as k of shape {shape} says, (pages, heads, keys of a page, d)"
        ))
    })?;
    Ok(())
}

impl<'py> Sequences<'py> {
    /// Reads the arguments.
    pub(crate) fn of(given: &Given<'py>, q: &Found<'py>, k: &Found<'py>) -> PyResult<Self> {
        let Given { cu_seqlens: [of_q, of_k], max_seqlen, block_table, cache_seqlens } = given;
        let [shared, _] = k.last(2);
        let mut kept = Vec::new();
        let (mut batch, mut queries) = (q.last(3)[0], q.last(1)[0]);
        let mut keys = k.last(1)[0];
        let mut of_keys = if q.rank() == 4 { vec![batch, shared, keys] } else { vec![shared, keys] };
        let mut packed = None;
        if let Some(of_q) = of_q {
            let (table, tables, extents) = given.packed(of_q, q, k)?;
            [batch, queries, keys] = extents;
            packed = Some(table);
            kept.extend(tables);
        } else if of_k.is_some() || max_seqlen[0].is_some() {
            let given = if of_k.is_some() { NAMES[1] } else { "max_seqlen_q" };
            return invalid(format!("{given} is given and cu_seqlens_q is not: it was needed"));
        }
        let mut pages = None;
        match (block_table, cache_seqlens) {
            (Some(block_table), Some(lengths)) => {
                let (table, page, tables) = paged([block_table, lengths], batch, max_seqlen[1], [q, k])?;
                keys = max_seqlen[1].map_or(tables[1].last(0)[0] * page, i64::from);
                of_keys = vec![k.last(3)[0], shared, page];
                pages = Some((number(page), table));
                kept.extend(tables);
            }
            (None, None) if max_seqlen[1].is_none() || packed.is_some() => {}
            (None, None) => {
                return invalid(
                    "max_seqlen_k is given, and cu_seqlens_q and block_table are not: one of them was needed",
                );
            }
            (table, _) => {
                let names = ["block_table", "cache_seqlens"];
                let [given, missing] = if table.is_some() { names } else { [names[1], names[0]] };
                return invalid(format!("{given} is given and {missing} is not: both were needed"));
            }
        }
        Ok(Self { batch, queries, keys, packed, pages, of_keys, _kept: kept })
    }

    /// Shape of K, or of V, with heads of `d` elements.
    pub(crate) fn keys_of(&self, d: i64) -> Vec<i64> {
        [&self.of_keys[..], &[d]].concat()
    }

    /// That shape, for errors.
    pub(crate) fn words(&self, d: i64) -> String {
        shape_words(&self.keys_of(d))
    }
}
