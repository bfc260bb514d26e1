//! D = alpha * acc + beta * C in double precision, straight from registers.

use ptx::{Builder, Value};

use super::store::row_address;
use crate::element::Format;
use crate::extent::Extent;
use crate::mainloop::Fragment;

const FORMAT: Format = Format::F64;

/// C and D of a work unit, and their factors.
#[derive(Clone, Copy)]
pub(super) struct Doubles<'f> {
    /// Alpha and beta.
    pub(super) factors: [Value<'f, f64>; 2],
    /// Whether C is read.
    pub(super) reads_c: Value<'f, bool>,
    /// Whether rows of C and D consist of aligned pairs.
    pub(super) pairs: Value<'f, bool>,
    /// C's address and leading dimension.
    pub(super) c: [Value<'f, u64>; 2],
    /// D's address and leading dimension.
    pub(super) d: [Value<'f, u64>; 2],
}

/// Emitted for a consumer warpgroup: stores its fragment of a tile.
pub(super) fn store<'f>(f: &'f Builder, extent: Extent<'f>, fragment: &Fragment<'f, f64>, of: Doubles<'f>) {
    let rows = |reads: bool, pairs: bool| each_row(f, extent, fragment, of, [reads, pairs]);
    let either = |reads: bool| f.if_else(of.pairs, || rows(reads, true), || rows(reads, false));
    f.if_else(of.reads_c, || either(true), || either(false));
}

fn each_row<'f>(
    f: &'f Builder,
    extent: Extent<'f>,
    fragment: &Fragment<'f, f64>,
    Doubles { factors: [alpha, beta], c, d, .. }: Doubles<'f>,
    [reads, pairs]: [bool; 2],
) {
    let start = fragment.start();
    for (block, _) in (0u32..).zip(&fragment.blocks) {
        for row in fragment.rows(start, block) {
            let [c, d] = [c, d].map(|[address, ld]| row_address(FORMAT, address, ld, &row));
            let inside = row.columns_inside(extent);
            for pair in &row.pairs {
                let offset = |column: u32| (column * FORMAT.bytes()).cast_signed();
                let scaled = pair.values.map(|value| value * alpha);
                if pairs {
                    f.if_(inside.more_than(pair.column), || {
                        let mut values = scaled;
                        if reads {
                            let loaded = f.load_global_vector::<f64, 2>(c, offset(pair.column));
                            values = [0, 1].map(|i: usize| loaded[i].mul_add(beta, scaled[i]));
                        }
                        f.store_global(d, offset(pair.column), values);
                    });
                    continue;
                }
                for (column, scaled) in (pair.column..).zip(scaled) {
                    f.if_(inside.more_than(column), || {
                        let mut value = scaled;
                        if reads {
                            value = f.load_global::<f64>(c, offset(column)).mul_add(beta, scaled);
                        }
                        f.store_global(d, offset(column), [value]);
                    });
                }
            }
        }
    }
}
