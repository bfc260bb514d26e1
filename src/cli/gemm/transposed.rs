//! `falchion gemm --layout`: operands in directions that the kernel does not read, which are transposed
//! first.

use std::io::Write;

use crate::verify::product::orders;
use crate::verify::storage::of_few_bits;
use crate::verify::transposed::{transposition, turned};
use crate::verify::{GemmCase, Order};
use cute_rs::atom::Major;
use kernel::{AnyGemm, MatrixRef};

use super::GemmArgs;
use crate::cli::engine::machine;
use crate::cli::{Failure, catalogue, memory};

impl GemmArgs<'_> {
    /// The order of A and B: what the kernel reads, or what --layout says.
    pub(super) fn orders(&self, entry: &AnyGemm) -> Result<[Order; 2], Failure> {
        let Some(layout) = self.given.layout() else { return Ok(orders(entry)) };
        let [a, b] = catalogue::majors(&layout);
        let a = if a == Major::K { Order::RowMajor } else { Order::ColumnMajor };
        let asked = [a, if b == Major::K { Order::ColumnMajor } else { Order::RowMajor }];
        let whole = !entry.plan().mainloop.is_sparse() && of_few_bits(entry).is_none();
        if whole || asked == orders(entry) {
            return Ok(asked);
        }
        Err(usage!(
            "--layout is {layout}, and kernel {} reads {}: it has an operand in few bits or a sparse one, which is always \
             contiguous along K, and none is transposed for it",
            entry.name(),
            catalogue::layout(entry)
        ))
    }
}

/// Prints which operands are transposed first, and the bytes that this reads and writes.
pub(super) fn transposes(out: &mut impl Write, entry: &AnyGemm, product: &GemmCase) -> Result<(), Failure> {
    let operands = [&product.a, &product.b];
    for (i, matrix) in operands.into_iter().enumerate().filter(|(i, _)| turned(entry, operands)[*i]) {
        let (transpose, what, workspace) = transposition(matrix, MatrixRef::NONE).map_err(Failure::usage)?;
        let (name, lies, traffic) = (["A", "B"][i], ["M", "N"][i], transpose.traffic(&what) as f64);
        let wanted = if orders(entry)[i] == [Order::RowMajor, Order::ColumnMajor][i] { "K" } else { lies };
        let lies = if wanted == "K" { lies } else { "K" };
        writeln!(
            out,
            "transpose {name} from {lies}-major to {wanted}-major: {} read and written, {} of workspace, {:.1} us predicted for an H200",
            memory::bytes(traffic),
            memory::bytes(workspace as f64),
            transpose.microseconds(&what, machine())
        )?;
    }
    Ok(())
}
