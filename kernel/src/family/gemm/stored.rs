//! Operands whose form in memory is not the multiplied matrix, as numbers: weights in few bits, and sparse ones.

use collective::{FACTORS, METADATA, WeightsSpec, sparse, weights};
use reference::weights::WeightFormat;
use reference::{Format, HostMatrix, Order, Weights};

use super::Inputs;
use crate::types::Types;

/// Matrix number `matrix` among all A (0) or B (1), `(mn, k)` row by row, as the kernel multiplies it; `None` if memory has its elements.
/// Where memory cannot be read so, elements are NaN.
pub(super) fn stored(
    types: &Types,
    inputs: &Inputs<'_>,
    (i, matrix): (usize, usize),
    extents: [u32; 2],
) -> Option<Vec<f64>> {
    let [mn, k] = extents.map(|extent| extent as usize);
    let found = match (types.weights[i], types.sparse[i]) {
        (Some(spec), _) => of_codes(types, inputs, (i, matrix, spec), extents),
        (None, true) => of_kept(types, inputs, (i, matrix), extents),
        (None, false) => return None,
    };
    Some(found.unwrap_or_else(|| vec![f64::NAN; mn * k]))
}

/// The elements that the metadata names; the others are zero.
fn of_kept(
    types: &Types,
    inputs: &Inputs<'_>,
    (i, matrix): (usize, usize),
    [mn, k]: [u32; 2],
) -> Option<Vec<f64>> {
    let format = [types.a, types.b][i];
    let count = mn as usize * types.kept(k)[i] as usize;
    let words = mn.div_ceil(sparse::ROWS) as usize * usize::try_from(sparse::metadata_ld(format, k)).ok()?;
    let values = inputs.elements(["A", "B"][i], matrix * count, count);
    // In place of their bits, the elements' numbers from 1 on.
    let compressed = sparse::Compressed {
        values: (1..=u32::try_from(count).ok()?).collect(),
        metadata: inputs.numbers(METADATA, matrix * words, words),
    };
    let places = sparse::restore(format, [mn, k], &compressed).ok()?;
    let element = |place: u32| place.checked_sub(1).map_or(0.0, |at| values[at as usize]);
    Some(places.into_iter().map(element).collect())
}

/// What codes, scales and zero points represent.
fn of_codes(
    types: &Types,
    inputs: &Inputs<'_>,
    (i, matrix, spec): (usize, usize, WeightsSpec),
    [mn, k]: [u32; 2],
) -> Option<Vec<f64>> {
    let format = Format::named([types.a, types.b][i].name())?;
    let code = WeightFormat::named(spec.code.name())?;
    let count = usize::try_from(weights::bytes(spec.code, [mn, k]).ok()?).ok()?;
    let units = inputs.elements(["A", "B"][i], matrix * count, count);
    let units: Vec<u8> = units.into_iter().map(|unit| unit as u8).collect();
    let codes = weights::restore(spec.code, [mn, k], &units).ok()?;
    let lines = k.checked_div(spec.group).map_or(0, |_| k.div_ceil(spec.group));
    let factors = |name, format| {
        let (count, row) = ((lines * mn) as usize, |group: u32| (group * mn) as usize);
        let all = inputs.elements(name, matrix * count, count);
        let at = |group, line: u32| all[row(group) + line as usize];
        HostMatrix::from_fn(format, [lines, mn], Order::RowMajor, mn.max(1), at)
    };
    let of_scales = if code == WeightFormat::E2m1 { Format::U8 } else { format };
    let scales = (spec.group > 0).then(|| factors(FACTORS[0], of_scales));
    let zeros = spec.zeros.then(|| factors(FACTORS[1], format));
    let weights = Weights { code, extents: [mn, k], codes, group: spec.group, scales, zeros };
    let all = (0..mn).flat_map(|row| (0..k).map(move |column| (row, column)));
    Some(all.map(|(row, column)| weights.get(format, row, column)).collect())
}
