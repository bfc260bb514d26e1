//! The rules that programs break: one per kind of fault, with a name that stays.
//!
//! ```
//! use emulator::{Fault, Rule};
//!
//! let rule = Fault::Trapped.rule();
//! assert_eq!((rule.name, rule.section), ("trapped", "trap"));
//! assert!(Rule::ALL.contains(rule));
//! ```

use super::{Fault, OwnFault, TensorFault};

/// What a kind of fault breaks.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Rule {
    /// The name of the fault's variant in kebab case, that of a [`TensorFault`] after `tensor-` and of an [`OwnFault`] after `own-`. Other tools may keep it.
    pub name: &'static str,
    /// What is wrong, as a sentence without the numbers of a case.
    pub meaning: &'static str,
    /// The section of the PTX ISA, or what the rule is about.
    pub section: &'static str,
}

/// The table: each fault with its rule.
macro_rules! rules {
    ($($fault:pat => $name:literal, $section:literal, $meaning:literal;)*) => {
        impl Rule {
            /// All rules, in the order of the table.
            pub const ALL: &[Self] = &[$(Self { name: $name, meaning: $meaning, section: $section },)*];
        }

        impl Fault {
            /// The rule that the program broke.
            pub fn rule(&self) -> &'static Rule {
                match self {
                    $($fault => &Rule { name: $name, meaning: $meaning, section: $section },)*
                }
            }
        }
    };
}

rules! {
    Fault::GlobalOutOfBounds { .. } => "global-out-of-bounds", "State Spaces",
        "An access to global memory outside every allocation.";
    Fault::GlobalMisaligned { .. } => "global-misaligned", "Addresses as Operands: alignment",
        "A global address that is not aligned as its access needs.";
    Fault::GlobalUninitialised { .. } => "global-uninitialised", "ld: undefined value",
        "A read of global memory that nothing has written.";
    Fault::GlobalRace { .. } => "global-race", "Memory Consistency Model, Conflict and data-races",
        "Two accesses to global memory, at least one of which writes, that nothing orders.";
    Fault::ConstantWritten { .. } => "constant-written", "ld.global.nc",
        "A load of constant memory (ld.global.nc) that the same kernel writes.";
    Fault::GridNotAwaited { .. } => "grid-not-awaited", "griddepcontrol.wait",
        "A dependent grid accesses global memory before it has waited for the grids before it.";
    Fault::GlobalUnfenced { .. } => "global-unfenced", "Memory Consistency Model, Proxies",
        "The async proxy accesses global memory that was written through another proxy, without a proxy fence between the two.";
    Fault::NotShared { .. } => "not-shared", "Memory of several GPUs",
        "An access to memory of another GPU that it does not share.";
    Fault::PeerLeft { .. } => "peer-left", "Memory of several GPUs",
        "An access to memory of another GPU whose process has ended.";
    Fault::SumsUnordered { .. } => "sums-unordered", "Floating-point sums",
        "Two floating-point additions to a word that nothing orders, in a program that promises an order.";
    Fault::SharedRace { .. } => "shared-race", "Memory Consistency Model, Conflict and data-races",
        "Two accesses to shared memory, at least one of which writes, that nothing orders.";
    Fault::SharedOutOfBounds { .. } => "shared-out-of-bounds", "State Spaces",
        "An access outside the CTA's shared memory.";
    Fault::SharedMisaligned { .. } => "shared-misaligned", "Addresses as Operands: alignment",
        "A shared address that is not aligned as its instruction needs.";
    Fault::SharedUninitialised { .. } => "shared-uninitialised", "ld: undefined value",
        "A read of shared memory that nothing has written.";
    Fault::SharedOtherCta { .. } => "shared-other-cta", "Cluster of Cooperative Thread Arrays; mapa",
        "A shared address of a CTA that does not exist, or that the instruction cannot use.";
    Fault::SharedInFlight { .. } => "shared-in-flight", "Asynchronous operations: completion mechanisms",
        "An access to shared memory that asynchronous work still reads or writes.";
    Fault::SharedBarrier { .. } => "shared-barrier", "mbarrier.init",
        "A plain access to shared memory that is a live mbarrier.";
    Fault::MissingProxyFence { .. } => "missing-proxy-fence", "Memory Consistency Model, Proxies",
        "The async proxy reads what a thread stored, and the thread has executed no proxy fence since.";
    Fault::PeerExited { .. } => "peer-exited", "Cluster of Cooperative Thread Arrays; mapa",
        "An access to the shared memory of a CTA that has exited.";
    Fault::PeerNotStarted { .. } => "peer-not-started", "Cluster of Cooperative Thread Arrays; mapa",
        "An access to the shared memory of a CTA that may not have started.";
    Fault::PeerUnordered { .. } => "peer-unordered", "Cluster of Cooperative Thread Arrays; mapa",
        "An access to the shared memory of a CTA that may have exited.";
    Fault::RegisterUninitialised { .. } => "register-uninitialised", "ld: undefined value",
        "A register is read before anything has written it.";
    Fault::RegisterInFlight { .. } => "register-in-flight", "wgmma.wait_group",
        "An access to a register that a wgmma in flight uses.";
    Fault::MissingWgmmaFence { .. } => "missing-wgmma-fence", "wgmma.fence",
        "A wgmma uses a register after another instruction did, without a wgmma.fence between them.";
    Fault::Divergence { .. } => "divergence", ".aligned",
        "Only some lanes of a warp execute an instruction that needs all of them together.";
    Fault::Members { .. } => "members", "vote.sync, shfl.sync: membermask",
        "The lanes that execute an instruction are not those of its member mask.";
    Fault::ShuffleSource { .. } => "shuffle-source", "vote.sync, shfl.sync: membermask",
        "A shuffle reads a lane that is not in its member mask.";
    Fault::CopySize { .. } => "copy-size", "cp.async",
        "A cp.async that reads more bytes than it writes.";
    Fault::NotUniform { .. } => "not-uniform", "bar.sync, bar.arrive",
        "The lanes of a warp pass different values for an operand that must be the same.";
    Fault::WarpgroupDisagrees { .. } => "warpgroup-disagrees", "wgmma.mma_async",
        "The warps of a warpgroup execute different collective instructions.";
    Fault::WarpgroupIncomplete { .. } => "warpgroup-incomplete", "wgmma.mma_async",
        "A CTA ends before every warp of a warpgroup has executed a collective instruction.";
    Fault::BarrierIncomplete { .. } => "barrier-incomplete", "bar.sync, bar.arrive",
        "A CTA ends before every thread has arrived that a barrier waits for.";
    Fault::NoWarpgroup { .. } => "no-warpgroup", "wgmma.mma_async",
        "An instruction of a warpgroup by a warp that is in no complete one.";
    Fault::BarrierId { .. } => "barrier-id", "bar.sync, bar.arrive",
        "A named barrier that does not exist.";
    Fault::BarrierThreads { .. } => "barrier-threads", "bar.sync, bar.arrive",
        "Warps give the same barrier different numbers of threads.";
    Fault::BarrierTwice { .. } => "barrier-twice", "bar.sync, bar.arrive",
        "A warp arrives at a barrier twice in one round.";
    Fault::ClusterBarrier { .. } => "cluster-barrier", "barrier.cluster",
        "Arrivals and waits of the cluster barrier do not alternate.";
    Fault::MbarrierUninitialised { .. } => "mbarrier-uninitialised", "mbarrier.init",
        "A use of an mbarrier where none is initialised, or before the initialisation is known.";
    Fault::MbarrierLive { .. } => "mbarrier-live", "mbarrier.init",
        "An initialisation of an mbarrier where one is live.";
    Fault::MbarrierCount { .. } => "mbarrier-count", "mbarrier.init",
        "An mbarrier with a count that does not exist.";
    Fault::MbarrierNoComplete { .. } => "mbarrier-no-complete", "mbarrier: phases and tx-count",
        "An arrival marked .noComplete that would complete the phase.";
    Fault::MbarrierOverArrival { .. } => "mbarrier-over-arrival", "mbarrier: phases and tx-count",
        "More arrivals at an mbarrier than its phase needs.";
    Fault::MbarrierBytes { .. } => "mbarrier-bytes", "mbarrier: phases and tx-count",
        "More outstanding bytes than an mbarrier can count.";
    Fault::MbarrierNotFenced { .. } => "mbarrier-not-fenced", "fence.mbarrier_init",
        "The async proxy or another CTA uses an mbarrier whose initialisation was not fenced.";
    Fault::MbarrierState { .. } => "mbarrier-state", "mbarrier.test_wait",
        "A wait for a state that the mbarrier does not have.";
    Fault::MbarrierMissed { .. } => "mbarrier-missed", "mbarrier.test_wait",
        "A wait for an mbarrier that comes a phase too late, so that its parity says the wrong thing.";
    Fault::MbarrierNotObserved { .. } => "mbarrier-not-observed", "Asynchronous operations: completion mechanisms",
        "An access to what asynchronous work wrote, by a thread that has not observed its mbarrier.";
    Fault::Tensor(TensorFault::Map { .. }) => "tensor-map", "tensormap.replace",
        "A tensor copy with an address that is no tensor map.";
    Fault::Tensor(TensorFault::MapFields { .. }) => "tensor-map-fields", "tensormap.replace",
        "A tensor map with fields that are not valid.";
    Fault::Tensor(TensorFault::MapUnfenced { .. }) => "tensor-map-unfenced", "fence.proxy.tensormap",
        "A copy uses a tensor map that was written without both fences of the tensormap proxy.";
    Fault::Tensor(TensorFault::MapInFlight { .. }) => "tensor-map-in-flight", "fence.proxy.tensormap",
        "A tensor map is changed while a copy uses it.";
    Fault::Tensor(TensorFault::Reduction { .. }) => "tensor-reduction", "cp.reduce.async.bulk.tensor",
        "A tensor reduction that does not exist for its elements.";
    Fault::Tensor(TensorFault::Rank { .. }) => "tensor-rank", "cp.async.bulk.tensor",
        "A tensor copy with another number of coordinates than its map has dimensions.";
    Fault::Tensor(TensorFault::Mode { .. }) => "tensor-mode", "cp.async.bulk.tensor",
        "A tensor copy in another mode than that of its map.";
    Fault::Tensor(TensorFault::Alignment { .. }) => "tensor-alignment", "cp.async.bulk.tensor",
        "A tensor copy that does not begin at a multiple of 16 bytes.";
    Fault::Tensor(TensorFault::Base { .. }) => "tensor-base", "cp.async.bulk.tensor",
        "A tensor copy of nothing, through a map whose address is no memory.";
    Fault::Tensor(TensorFault::Before { .. }) => "tensor-before", "cp.async.bulk.tensor",
        "A tensor store that begins before its tensor.";
    Fault::Tensor(TensorFault::Im2colBounds { .. }) => "tensor-im2col-bounds", "Tensors: im2col mode",
        "An im2col store through a map with a bounding box that is not inside its tensor.";
    Fault::Tensor(TensorFault::Im2colBase { .. }) => "tensor-im2col-base", "Tensors: im2col mode",
        "A copy in im2col mode with a base outside the bounding box.";
    Fault::Tensor(TensorFault::Im2colOffset { .. }) => "tensor-im2col-offset", "Tensors: im2col mode",
        "A filter offset with more bits than the rank of its map allows.";
    Fault::Own(OwnFault::OutOfBounds { .. }) => "own-out-of-bounds", "State Spaces",
        "An access outside a thread's local memory, or outside the kernel's parameters.";
    Fault::Own(OwnFault::Misaligned { .. }) => "own-misaligned", "Addresses as Operands: alignment",
        "An address of local memory or parameters that is not aligned as its access needs.";
    Fault::Own(OwnFault::Uninitialised { .. }) => "own-uninitialised", "ld: undefined value",
        "A read of local memory that the thread has not written.";
    Fault::Own(OwnFault::ReadOnly { .. }) => "own-read-only", "Parameter State Space",
        "A store to the kernel's parameters.";
    Fault::Own(OwnFault::Atomic { .. }) => "own-atomic", "atom",
        "An atomic operation in memory that no other thread has.";
    Fault::BulkSize { .. } => "bulk-size", "cp.async.bulk",
        "A bulk copy with a size that is not a multiple of 16 bytes.";
    Fault::Multicast { .. } => "multicast", "cp.async.bulk.tensor",
        "A multicast mask that is empty, or names CTAs outside the cluster.";
    Fault::Descriptor { .. } => "descriptor", "wgmma.mma_async",
        "A matrix descriptor that is not valid.";
    Fault::SparseMetadata { .. } => "sparse-metadata", "wgmma.mma_async",
        "Metadata of a sparse wgmma that is not valid.";
    Fault::Registers { .. } => "registers", "setmaxnreg",
        "A setmaxnreg in the wrong direction.";
    Fault::RegistersTwice { .. } => "registers-twice", "setmaxnreg",
        "A warpgroup executes setmaxnreg again before its warps have synchronised.";
    Fault::ExitInFlight { .. } => "exit-in-flight", "exit; completion of asynchronous operations",
        "A thread or a CTA ends while its asynchronous work is in flight.";
    Fault::Trapped => "trapped", "trap",
        "The program executed trap.";
    Fault::Fuel { .. } => "fuel", "loop that nobody ends",
        "A livelock: the cluster executed more instructions than its limit.";
    Fault::Hang { .. } => "hang", "barrier that nobody completes",
        "No warp can continue, and nothing asynchronous is pending.";
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_those_of_the_variants_in_kebab_case() {
        let faults = [
            Fault::Trapped,
            Fault::SharedBarrier { offset: 0 },
            Fault::BarrierId { id: 16 },
            Fault::Tensor(TensorFault::Im2colOffset { dim: 0, offset: 0, bits: 0 }),
            Fault::Fuel { limit: 1, warps: Vec::new() },
        ];
        for fault in faults {
            let variant = format!("{fault:?}").replacen("Tensor(", "Tensor", 1);
            let variant = variant.split([' ', '{', '(']).next().unwrap_or_default();
            let mut kebab = String::new();
            for letter in variant.chars() {
                if letter.is_uppercase() && !kebab.is_empty() {
                    kebab.push('-');
                }
                kebab.extend(letter.to_lowercase());
            }
            assert_eq!(fault.rule().name, kebab);
        }
    }

    #[test]
    fn each_rule_has_a_name_of_its_own_and_a_sentence() {
        let mut names: Vec<&str> = Rule::ALL.iter().map(|rule| rule.name).collect();
        names.sort_unstable();
        names.dedup();
        assert_eq!(names.len(), Rule::ALL.len());
        assert!(Rule::ALL.iter().all(|rule| rule.meaning.ends_with('.') && !rule.section.is_empty()));
    }
}
