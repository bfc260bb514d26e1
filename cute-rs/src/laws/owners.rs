//! The law of thread-value layouts.

use super::{Broken, Oracle, Verdict, equal};
use crate::layout::Layout;
use crate::thread_value::ThreadValue;

/// Checks a thread-value layout. Value `v` of thread `t` is at row `offset % rows` and column
/// `offset / rows`. The projections to rows and to columns give the same numbers. A projection may have no
/// result only if the steps that are not whole columns add up to at least one column.
///
/// # Errors
/// [`Broken`] if the law does not hold.
pub fn thread_value(layout: &Layout, rows: i64, columns: i64) -> Result<Verdict, Broken> {
    let Ok(owners) = ThreadValue::new(*layout, rows, columns) else { return Ok(Verdict::NoResult) };
    let oracle = Oracle::of(layout);
    let (threads, values) = (oracle.modes()[0].size(), oracle.modes()[1].size());
    let places = oracle.offsets();
    for (i, &offset) in (0..).zip(&places) {
        let want = (offset % rows, offset / rows);
        equal(&owners.coord(i % threads, i / threads), &want, &[layout], format_args!("coordinate {i}"))?;
    }
    equal(&(places.len() as i64), &(threads * values), &[layout], "values of all threads")?;
    let (Ok(row), Ok(column)) = (owners.rows(), owners.columns()) else {
        // Then the steps that are not whole columns add up to at least one column.
        let down = oracle.leaves().iter().filter(|leaf| leaf.1 % rows != 0);
        let reach: i64 = down.map(|leaf| (leaf.0 - 1) * leaf.1).sum();
        equal(
            &(reach >= rows),
            &true,
            &[layout],
            format_args!("projections of a tile of {rows} x {columns}"),
        )?;
        return Ok(Verdict::NoResult);
    };
    let of = |layout: &Layout| Oracle::of(layout).offsets();
    let want = |project: fn(i64, i64) -> i64| places.iter().map(|&offset| project(offset, rows)).collect();
    equal(&of(&row), &want(|offset, rows| offset % rows), &[layout, &row], "rows")?;
    equal(&of(&column), &want(|offset, rows| offset / rows), &[layout, &column], "columns")?;
    Ok(Verdict::Held)
}
