//! The rules that a plan checks before it computes anything: rows, columns, narrowed tiles, clusters, formats.

use cute_rs::atom::Major;

use super::{
    AccumulatorType, Arrivals, EpilogueSpec, MainloopNeeds, MainloopSpec, Plan, PlanError, Producer, Roles,
    Source,
};
use crate::element::Format;

impl Plan {
    /// Checks that consumers can share the rows of a tile.
    pub(super) const fn rows(mainloop: &MainloopSpec) -> Result<(), PlanError> {
        let consumers = mainloop.consumers;
        if consumers == 0 || consumers > 3 {
            return Err(PlanError::Consumers { consumers });
        }
        mainloop.product().rows()
    }

    /// Checks that instructions multiply all columns of a tile.
    pub(super) const fn columns(mainloop: &MainloopSpec, epilogue: &EpilogueSpec) -> Result<(), PlanError> {
        let (n, product) = (mainloop.tile[1], mainloop.product());
        if let Err(error) = product.columns() {
            return Err(error);
        }
        let across = product.across();
        if across > 1 && mainloop.step > 0 {
            return Err(PlanError::Across { n, what: "a tile that is narrowed" });
        }
        if across > 1 && epilogue.split {
            return Err(PlanError::Across { n, what: "an epilogue of split weights" });
        }
        Ok(())
    }

    /// Checks that tiles can be narrowed in the given steps.
    pub(super) const fn narrowing(mainloop: &MainloopSpec, epilogue: &EpilogueSpec) -> Result<(), PlanError> {
        let MainloopSpec { tile: [_, n, k], step, atom, operands: [_, b], .. } = *mainloop;
        if step == 0 {
            return Ok(());
        }
        if matches!(mainloop.roles, Roles::Unspecialised) {
            return Err(PlanError::NotNarrowed { what: "a mainloop without a producer" });
        }
        if matches!(mainloop.producer, Producer::Warpgroup) {
            return Err(PlanError::NotNarrowed { what: "a producer that copies chunk by chunk" });
        }
        if epilogue.split {
            return Err(PlanError::NotNarrowed { what: "an epilogue of split weights" });
        }
        // A sourced epilogue derives the phases of its buffers from the tile count, so each tile must use the
        // same number of buffers.
        if epilogue.sourced {
            return Err(PlanError::NotNarrowed { what: "an epilogue that loads C by tensor copies" });
        }
        // Copies load whole periods of the swizzle, which is as wide as for the whole tile.
        let whole = step.is_multiple_of(8) && b.mode(n, k).elements(b.format.bits()).is_multiple_of(8);
        if !whole || !n.is_multiple_of(step) {
            return Err(PlanError::Narrowed { n, step, least: atom.column_step() });
        }
        // Each multiple of the step must be the width of an instruction.
        let mut width = step;
        while width <= n {
            if !atom.allows(width) {
                return Err(PlanError::Narrowed { n, step, least: atom.column_step() });
            }
            width += step;
        }
        Ok(())
    }

    /// Checks that the columns that belong together, for the mainloop or the epilogue, stay in one tile and one
    /// part of it.
    pub(super) const fn together(
        mainloop: &MainloopSpec,
        needs: MainloopNeeds,
        epilogue: &EpilogueSpec,
    ) -> Result<(), PlanError> {
        let [_, n, _] = mainloop.tile;
        if needs.consecutive && epilogue.split {
            return Err(PlanError::Rule {
                rule: "the epilogue takes a tile's columns from both halves of N (Split), and the mainloop's NEEDS say that they \
                       follow each other: use Alternating or Blocks<U8>, or load them from `unit.n / 2` on and set \
                       `consecutive: false` in NEEDS",
            });
        }
        if needs.whole_n && mainloop.step > 0 {
            return Err(PlanError::NeedsWholeN { n, step: mainloop.step });
        }
        if !n.is_multiple_of(8 << epilogue.halvings) {
            return Err(PlanError::Halved { n });
        }
        if !n.is_multiple_of(epilogue.needs.columns) {
            return Err(PlanError::Gates { n, block: epilogue.needs.columns });
        }
        let block = epilogue.needs.block;
        if block > 0
            && (!(n >> epilogue.halvings).is_multiple_of(block) || !mainloop.step.is_multiple_of(block))
        {
            return Err(PlanError::Blocks { n, block: block << epilogue.halvings });
        }
        let (columns, bits) = (n >> epilogue.halvings, epilogue.staged_bits);
        if !(columns * bits).is_multiple_of(128) {
            return Err(PlanError::StagedRow { n: columns, bits });
        }
        Ok(())
    }

    /// Checks that copies can load the tile.
    pub(super) const fn boxes(mainloop: &MainloopSpec) -> Result<(), PlanError> {
        let [m, _, k] = mainloop.tile;
        if m > 256 {
            return Err(PlanError::Box { extent: "tile M", elements: m });
        }
        if k > 256 {
            return Err(PlanError::Box { extent: "tile K", elements: k });
        }
        Ok(())
    }

    /// Checks the cluster. Each CTA of a row loads a slice of A, each CTA of a column a slice of B or all of it in turn.
    pub(super) const fn cluster(mainloop: &MainloopSpec) -> Result<(), PlanError> {
        let [m, n] = mainloop.cluster;
        let most = Self::TARGET.limits().cluster;
        if m == 0 || n == 0 || m > most || n > most || m * n > most {
            return Err(PlanError::Cluster { m, n, most });
        }
        let [tile_m, tile_n, tile_k] = mainloop.tile;
        let [a_operand, b_operand] = mainloop.operands;
        let (a, a_elements) = match a_operand.major {
            Major::K => ("tile M", tile_m),
            Major::Mn => ("tile K", tile_k),
        };
        // Rows of B that CTAs cannot divide are loaded in turn, unless tiles are narrowed.
        let b = match b_operand.major {
            Major::K if mainloop.step > 0 => Some(("tile N", tile_n)),
            Major::K => None,
            Major::Mn => Some(("tile K", tile_k)),
        };
        let clustered = m * n > 1;
        if clustered && matches!(mainloop.roles, Roles::Unspecialised) {
            return Err(PlanError::Alone { what: "a mainloop without a producer", m, n });
        }
        if matches!(mainloop.producer, Producer::Warpgroup) {
            if clustered {
                return Err(PlanError::Alone { what: "a producer that copies chunk by chunk", m, n });
            }
            if matches!(mainloop.roles, Roles::Unspecialised) && !mainloop.atom.by_threads() {
                return Err(PlanError::NoProducer);
            }
        }
        if clustered && matches!(mainloop.arrivals, Arrivals::Thread) {
            return Err(PlanError::Alone { what: "a ring in which every thread arrives", m, n });
        }
        if !a_elements.is_multiple_of(8 * n) {
            return Err(PlanError::Slice { extent: a, elements: a_elements, ctas: n });
        }
        if let Some((extent, elements)) = b
            && !elements.is_multiple_of(8 * m)
        {
            return Err(PlanError::Slice { extent, elements, ctas: m });
        }
        Ok(())
    }

    /// Checks that the CTAs of a cluster can load for each other.
    pub(super) const fn shared_loads(
        mainloop: &MainloopSpec,
        needs: MainloopNeeds,
        epilogue: &EpilogueSpec,
    ) -> Result<(), PlanError> {
        let [rows, columns] = mainloop.cluster;
        if needs.alone && rows * columns > 1 {
            return Err(PlanError::NeedsAlone { m: rows, n: columns });
        }
        let sharers = mainloop.cluster[0];
        if epilogue.split
            && sharers > 1
            && matches!(mainloop.operands[1].major, Major::K)
            && !sharers.is_multiple_of(2)
        {
            return Err(PlanError::Split { ctas: sharers });
        }
        Ok(())
    }

    /// Checks that the instruction can read what a stage holds, and that its accumulators can become D's
    /// elements.
    pub(super) const fn formats(mainloop: &MainloopSpec, epilogue: &EpilogueSpec) -> Result<(), PlanError> {
        let MainloopSpec { atom, operands: [a, b], .. } = *mainloop;
        let integers = matches!(atom.sums(), AccumulatorType::S32);
        let doubles = matches!(atom.sums(), AccumulatorType::F64);
        if doubles != matches!(epilogue.output, Format::F64) {
            return Err(PlanError::Doubles {
                rule: "A, B and D are all f64, or none is: change the format of D",
            });
        }
        if doubles && (epilogue.staged_bits > 0 || epilogue.transposed) {
            return Err(PlanError::Doubles {
                rule: "D is stored straight from registers, not transposed: use DirectStore, without swap-AB",
            });
        }
        if !doubles && !epilogue.output.is_output(integers) {
            return Err(PlanError::Output { format: epilogue.output, integers });
        }
        if matches!(atom.a, Source::Registers)
            && matches!(a.major, Major::K)
            && a.staged
            && matches!(mainloop.arrivals, Arrivals::Warpgroup)
        {
            return Err(PlanError::EarlyArrival);
        }
        atom.reads([(a.format.bits(), a.major), (b.format.bits(), b.major)])
    }
}
