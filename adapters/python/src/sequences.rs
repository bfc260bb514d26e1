//! Sequences of attention: of one length, of different lengths that follow each other, or with keys in pages of a cache.

use falchion::attention::{Lengths, Packed, Pages};
use falchion_core::Heads;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

use crate::array::{Array, Found, invalid};
use crate::heads::all;
use crate::named::Named;

/// Extents that K and V must have, and what tables are in.
pub(crate) struct Sequences<'py> {
    /// Without that of a head's elements.
    of_keys: Vec<i64>,
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

/// Sequences of different lengths: where they begin, the tables that say so, and the number of sequences with the longest of queries and
/// keys. `of_q` is where queries begin.
fn packed<'py>(
    named: &Named<'py>,
    of_q: &Bound<'py, PyAny>,
    [q, k]: [&Found<'py>; 2],
    most: [Option<u32>; 2],
) -> PyResult<(Packed, [Array<'py>; 2], [i64; 3])> {
    let (of_k, in_pages) = (named.get(NAMES[1]), named.get("block_table").is_some());
    let (mut queries, mut keys) = (q.last(1)[0], k.last(1)[0]);
    if in_pages && of_k.is_some() {
        return invalid(
            "cu_seqlens_k and block_table are given: cache_seqlens says how many keys sequences have, and cu_seqlens_k was not needed",
        );
    }
    let [begins_q, begins_k] =
        [(NAMES[0], of_q), (NAMES[1], of_k.unwrap_or(of_q))].map(|(name, object)| table(name, object, 1, q));
    let [begins_q, begins_k] = [begins_q?, begins_k?];
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
    (table.begins[0], queries) = begins(NAMES[0], &begins_q, most[0], ("q", q))?;
    if !in_pages {
        let most = if of_k.is_some() { most[1] } else { most[1].or(most[0]) };
        (table.begins[1], keys) = begins(NAMES[1], &begins_k, most, ("k", k))?;
    }
    Ok((table, [begins_q, begins_k], [batch, queries, keys]))
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
    /// Reads the arguments that say where sequences are, for `heads`.
    pub(crate) fn of(named: &Named<'py>, [q, k]: [&Found<'py>; 2], heads: &mut Heads) -> PyResult<Self> {
        let most = [named.whole("max_seqlen_q")?, named.whole("max_seqlen_k")?];
        let [of_heads, shared] = [q.last(2)[0], k.last(2)[0]];
        let mut kept = Vec::new();
        let mut extents = [q.last(3)[0], q.last(1)[0], k.last(1)[0]];
        let mut of_keys = if q.rank() == 4 { vec![extents[0], shared] } else { vec![shared] };
        of_keys.push(extents[2]);
        if let Some(of_q) = named.get(NAMES[0]) {
            let (table, tables, found) = packed(named, of_q, [q, k], most)?;
            extents = found;
            heads.request.lengths = Lengths::Packed;
            heads.call.packed = table;
            kept.extend(tables);
        } else if named.get(NAMES[1]).is_some() || most[0].is_some() {
            let given = if named.get(NAMES[1]).is_some() { NAMES[1] } else { "max_seqlen_q" };
            return invalid(format!("{given} is given and cu_seqlens_q is not: it was needed"));
        }
        match (named.get("block_table"), named.get("cache_seqlens")) {
            (Some(block_table), Some(lengths)) => {
                let (table, page, tables) = paged([block_table, lengths], extents[0], most[1], [q, k])?;
                extents[2] = most[1].map_or(tables[1].last(0)[0] * page, i64::from);
                of_keys = vec![k.last(3)[0], shared, page];
                heads.request.pages = Some(number(page));
                heads.call.pages = table;
                kept.extend(tables);
            }
            (None, None) if most[1].is_none() || heads.request.lengths == Lengths::Packed => {}
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
        let [batch, queries, keys] = extents;
        let Ok(extents) = all([batch, of_heads, shared, queries, keys].map(u32::try_from)) else {
            return invalid(format!("q has shape {}, extents below 2^31 were needed", q.shape_words()));
        };
        let problem = &mut heads.request.problem;
        let of_keys_and_values;
        [problem.batch, problem.heads[0], of_keys_and_values, problem.queries, problem.keys] = extents;
        heads.shared = Some(of_keys_and_values);
        Ok(Self { of_keys, _kept: kept })
    }

    /// Shape of K, or of V, with heads of `d` elements.
    pub(crate) fn keys_of(&self, d: i64) -> Vec<i64> {
        [&self.of_keys[..], &[d]].concat()
    }
}
