//! The machine as the model sees it: a handful of measured numbers.

use collective::Plan;

/// What the time of a kernel is predicted from.
///
/// [`Machine::h200`] holds the numbers of one card; change a field for a card with another clock or memory.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Machine {
    /// Multiprocessors.
    pub multiprocessors: u32,
    /// Clusters of 1, 2, … 8 CTAs that run at once where each CTA fills a multiprocessor: the groups they must fit into are not all equal.
    pub clusters: [u32; 8],
    /// Cycles of a multiprocessor in a microsecond while few of them multiply.
    pub cycles: f64,
    /// By how much everything takes longer when all multiprocessors multiply without pause.
    pub power: f64,
    /// The part of a cycle that shared memory takes for 128 bytes that a `wgmma` reads or a copy writes.
    pub shared: f64,
    /// The part of a cycle that a sparse `wgmma` takes for 128 bytes that it reads: it reads twice the K of B in the time of a dense one.
    pub sparse: f64,
    /// By how much multiplications are delayed by a warp's instruction that adds their sums to others, as a part of a cycle: both use the
    /// registers.
    pub promoted: f64,
    /// Microseconds that a k-tile takes longer whose sums are added to others while no other consumer multiplies.
    pub alone: f64,
    /// Cycles for each instruction that makes operands of codes.
    pub converted: f64,
    /// The part of the multiplications that these instructions do not cover.
    pub uncovered: f64,
    /// Microseconds from asking for a stage to having it.
    pub latency: f64,
    /// By how much longer that takes in clusters, where the stage must be free in every CTA that gets a part of it.
    pub clustered_latency: f64,
    /// Stages of a ring that nobody fills at a time.
    pub drained: f64,
    /// Microseconds of a k-tile beside what decides it, divided by the consumers: they cover each other's waits.
    pub step: f64,
    /// By how much longer a k-tile takes where consumers take turns in clusters.
    pub coupled: f64,
    /// Bytes a microsecond that come into one multiprocessor.
    pub ingest: f64,
    /// By how much longer a tile takes for each cluster more that asks for it at the same time.
    pub crowded: f64,
    /// Bytes a microsecond that one CTA's threads copy into shared memory in pieces of 16, 8, 4 and fewer bytes. Those of
    /// fewer than 16 are not measured, but estimates from the instructions that it takes.
    pub copied: [f64; 4],
    /// Microseconds from one kernel of a stream to the first multiplication of the next.
    pub launch: f64,
    /// Microseconds more until clusters of several CTAs have begun, and until they have ended together.
    pub clustered_launch: f64,
    /// Microseconds more in kernels that can divide tiles along K, whether they do or not.
    pub divided_launch: f64,
    /// Microseconds more in kernels whose CTAs look for a next tile.
    pub persistent_launch: f64,
    /// Microseconds more for each byte of the first stage.
    pub filling: f64,
    /// Microseconds that a CTA takes to begin where another has ended.
    pub start: f64,
    /// Microseconds from one tile to the next beside its k-tiles and its epilogue.
    pub tile: f64,
    /// Elements of D a microsecond that one CTA converts and stores, or puts into shared memory, from where copies take them.
    pub stored: f64,
    /// The part of that speed that is left where rows of D begin at odd elements and threads cannot store pairs.
    pub odd_rows: f64,
    /// The speed of an epilogue that stores D transposed, over that of one that does not.
    pub transposed: f64,
    /// By how much longer an epilogue takes for each time that a row of its tile is shorter than 64 elements.
    pub narrow: f64,
    /// Microseconds that a fused epilogue takes longer until it has what it reads beside the sums.
    pub reading: f64,
    /// By how much longer a fused epilogue takes than one that scales sums, where it stores D as it is, and transposed.
    pub fused: [f64; 2],
    /// Microseconds that a tile takes longer where its number is drawn.
    pub draw: f64,
    /// Elements of sums a microsecond that one CTA writes for another, or adds up.
    pub exchanged: f64,
    /// Microseconds from a sum's last element to its reader.
    pub meeting: f64,
    /// Microseconds in which the CTAs of a cluster meet to exchange sums, and elements that each puts down and adds up in one.
    pub near: [f64; 2],
    /// By how much longer k-tiles take of tiles that are divided at different places along K.
    pub unaligned: f64,
    /// Bytes a microsecond from L2 to all multiprocessors.
    pub l2: f64,
    /// By how much longer L2 takes for an operand whose rows do not begin at multiples of 32 B.
    pub part_sectors: f64,
    /// The same for rows that begin at multiples of 32 B, but not of a line of 128 B.
    pub part_lines: f64,
    /// Bytes of an operand that L2 keeps until a band of tiles has gone along it.
    pub l2_bytes: f64,
    /// Bytes a microsecond between memory and L2.
    pub dram: f64,
    /// The part of an operand that leaves L2 first that comes from memory again for each further tile that reads it.
    pub refetched: f64,
    /// The part of an operand that memory is asked for once more where several clusters read it.
    pub echo: f64,
}

/// Bytes of shared memory of a multiprocessor, and what the system takes of each CTA's part.
const SHARED_BYTES: u32 = 228 << 10;
const RESERVED_BYTES: u32 = 1 << 10;
/// Registers and threads of a multiprocessor.
const REGISTERS: u32 = 64 << 10;
const THREADS: u32 = 2048;

impl Machine {
    /// An NVIDIA H200, fitted to the record `tests/selection/fitted.jsonl` (driver 580.159.04, burst).
    pub const fn h200() -> Self {
        Self {
            multiprocessors: 132,
            // Of 7 there is room where there is for 8.
            clusters: [132, 66, 39, 30, 22, 17, 15, 15],
            cycles: 2005.0,
            power: 0.1994,
            shared: 0.7458,
            // Of three measured products of 8192 cubed (docs/performance.md).
            sparse: 1.27,
            promoted: 1.22,
            alone: 0.079,
            converted: 1.2,
            uncovered: 0.55,
            latency: 0.7788,
            clustered_latency: 0.5689,
            drained: 0.9488,
            step: 0.02458,
            coupled: 1.02,
            ingest: 278.4e3,
            crowded: 0.01151,
            copied: [66e3, 30e3, 16e3, 5e3],
            launch: 1.106,
            clustered_launch: 0.4846,
            divided_launch: 0.4562,
            persistent_launch: 0.467,
            filling: 2.06e-5,
            start: 2.129,
            tile: 0.4246,
            odd_rows: 0.3084,
            stored: 19080.0,
            transposed: 1.022,
            narrow: 0.8191,
            reading: 0.8,
            fused: [0.2, 1.0],
            draw: 0.03379,
            exchanged: 4818.0,
            meeting: 2.207,
            near: [2.268, 16800.0],
            unaligned: 0.2192,
            l2: 17.6e6,
            part_sectors: 2.761,
            part_lines: 1.657,
            l2_bytes: 10.52e6,
            dram: 3.915e6,
            refetched: 0.105,
            echo: 0.4251,
        }
    }

    /// CTAs of a kernel that one multiprocessor runs at once.
    pub fn ctas(&self, plan: &Plan) -> u32 {
        let shared = SHARED_BYTES / (plan.shared_bytes + RESERVED_BYTES);
        let registers = REGISTERS / (plan.registers.launch * plan.threads).max(1);
        shared.min(registers).min(THREADS / plan.threads.max(1)).max(1)
    }

    /// Clusters of a kernel that run at once: what [`Engine::slots`](crate::Engine::slots) says on such a card.
    pub fn slots(&self, plan: &Plan) -> u32 {
        self.at_once(plan.cluster_size(), plan)
    }

    /// Clusters of so many CTAs of a kernel that run at once.
    pub fn at_once(&self, cluster: u32, plan: &Plan) -> u32 {
        let alone = cluster.checked_sub(1).and_then(|index| self.clusters.get(index as usize));
        (alone.copied().unwrap_or(0) * self.ctas(plan)).max(1)
    }
}
