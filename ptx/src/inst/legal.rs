//! Which forms of an instruction exist.

use super::{AtomicOp, Inst, MbarrierTest, mbarrier};

impl Inst {
    /// Checks that the form of an instruction of a family exists, and that of a tensor copy or of an operation
    /// on an mbarrier. The verifier checks the others, for which it needs the function.
    ///
    /// # Errors
    /// The rule that is broken, as a sentence.
    #[expect(clippy::wildcard_enum_match_arm, reason = "the verifier has the list of the others")]
    pub fn check(&self) -> Result<(), String> {
        let ranked = |rank: usize, im2col: bool| {
            let (mode, ranks) = if im2col { (" in im2col mode", 3..=5) } else { ("", 1..=5) };
            let refusal = || format!("{}{mode} of {rank} dimensions, not {ranks:?}", self.name());
            if ranks.contains(&rank) { Ok(()) } else { Err(refusal()) }
        };
        match self {
            Self::Atomic(atomic) => atomic.check(),
            Self::CopyAsync(copy) => copy.check(),
            Self::WarpMatrix(matrix) => matrix.check(),
            Self::Warp(exchange) => exchange.check(),
            Self::Alu(alu) => alu.check(),
            Self::TensorMap(map) => map.check(),
            Self::Bulk(bulk) => bulk.check(self.name()),
            Self::MbarrierArrive(arrival) => arrival.check(),
            Self::MbarrierTransact { space, .. } if !space.is_shared() => {
                Err("an mbarrier that is not in shared memory".to_owned())
            }
            Self::MbarrierTransact { scope, .. } => mbarrier::check_scope(*scope),
            Self::MbarrierTest(MbarrierTest { order, .. }) | Self::MbarrierWait { order, .. } => {
                order.check()
            }
            Self::TensorLoad { coords, im2col, .. } | Self::TensorPrefetch { coords, im2col, .. } => {
                let (rank, offsets) = (coords.len(), im2col.as_ref().map(Vec::len));
                ranked(rank, im2col.is_some())?;
                match offsets {
                    Some(count) if count + 2 != rank => Err(format!(
                        "{} in im2col mode of {rank} dimensions with {count} offsets, not {}",
                        self.name(),
                        rank - 2
                    )),
                    _ => Ok(()),
                }
            }
            Self::TensorStore { reduce: Some(op @ (AtomicOp::Exchange | AtomicOp::CompareSwap)), .. } => {
                Err(format!("{}.{} does not exist", self.name(), op.name()))
            }
            Self::TensorStore { coords, im2col, .. } => ranked(coords.len(), *im2col),
            _ => Ok(()),
        }
    }
}
