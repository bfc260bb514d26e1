//! A vector along the rows where one along the columns is needed.

use collective::tree::{ColumnArgument, Node, RowVector};
use half::bf16;

fn bias(address: u64) -> <RowVector<bf16> as Node>::Arguments {
    ColumnArgument { address, len: 64 }
}

fn main() {
    let _ = bias(0);
}
