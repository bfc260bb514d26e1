//! The machine as the model sees it: a handful of measured numbers.

use collective::Plan;

/// What the time of a kernel is predicted from.
///
/// [`Machine::h200`] holds the numbers of one card; change a field for a card with another clock or memory.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Machine {
    /// Multiprocessors.
    pub multiprocessors: u32,
    /// Multiprocessors that clusters of more than two CTAs can use: the groups they must fit into are not all equal.
    pub clustered_multiprocessors: u32,
    /// Cycles of a multiprocessor in a microsecond while few of them multiply.
    pub cycles: f64,
    /// By how much a multiplication takes longer when all multiprocessors multiply without pause, for each element of A and B
    /// that a multiply-add needs brought to its multiprocessor (1 / m + 1 / n in a tile of m x n): power.
    pub moved: f64,
    /// Microseconds from one k-tile to the next beside the multiplication, in tiles of 64 rows.
    pub step_alone: f64,
    /// The same in taller tiles, whose instructions cover each other's waits.
    pub step_shared: f64,
    /// By how much a k-tile takes longer where consumers take turns in clusters: a CTA waits for the turns of the others.
    pub coupled: f64,
    /// Bytes a microsecond that one CTA's threads copy into shared memory in pieces of 16, 8, 4 and fewer bytes. Those of
    /// fewer than 16 are not measured, but estimates from the instructions that it takes.
    pub copied: [f64; 4],
    /// Microseconds from asking for a tile to having it.
    pub latency: f64,
    /// By how much longer that takes in clusters, where the stage must be free in every CTA that gets a part of the tile.
    pub clustered_latency: f64,
    /// Microseconds from one kernel of a stream to the first multiplication of the next.
    pub launch: f64,
    /// Microseconds more until clusters of several CTAs have begun, and until they have ended together.
    pub clustered_launch: f64,
    /// Microseconds more in kernels that can divide tiles along K, whether they do or not.
    pub divided_launch: f64,
    /// Microseconds that a CTA takes to begin where another has ended.
    pub start: f64,
    /// Bytes a microsecond from L2 to all multiprocessors.
    pub l2: f64,
    /// By how much longer L2 takes for an operand whose rows do not begin at multiples of 32 B.
    pub part_sectors: f64,
    /// The same for rows that begin at multiples of 32 B, but not of a line of 128 B.
    pub part_lines: f64,
    /// Bytes that L2 keeps between waves.
    pub l2_bytes: f64,
    /// Bytes a microsecond between memory and L2.
    pub dram: f64,
    /// The part of an operand's bytes that comes from memory once more where several clusters of a wave read them.
    pub echo: f64,
    /// Elements of D a microsecond that one CTA converts and stores straight from registers.
    pub direct: f64,
    /// Bytes of D a microsecond that all CTAs store straight from registers: half-filled sectors.
    pub direct_bytes: f64,
    /// The part of both that is left where rows of D begin at odd elements and pairs cannot be stored.
    pub odd_rows: f64,
    /// The part of the speed of an epilogue that is left where D is stored transposed.
    pub transposed: f64,
    /// Elements of D a microsecond that one CTA converts into shared memory, from where copies take them.
    pub staged: f64,
    /// Microseconds that a tile takes longer where its number is drawn.
    pub draw: f64,
    /// Elements of sums a microsecond that one CTA writes for another, or adds up.
    pub exchanged: f64,
    /// Microseconds from a sum's last element to its reader.
    pub meeting: f64,
    /// How sharply the slowest resource decides: the exponent of the norm over the resources' times.
    pub sharpness: f64,
}

/// Bytes of shared memory of a multiprocessor, and what the system takes of each CTA's part.
const SHARED_BYTES: u32 = 228 << 10;
const RESERVED_BYTES: u32 = 1 << 10;
/// Registers and threads of a multiprocessor.
const REGISTERS: u32 = 64 << 10;
const THREADS: u32 = 2048;

impl Machine {
    /// An NVIDIA H200, fitted to the records `tests/selection/h200-*.json` (driver 580.159.04, burst).
    pub const fn h200() -> Self {
        Self {
            multiprocessors: 132,
            clustered_multiprocessors: 120,
            cycles: 1777.0,
            moved: 14.5,
            step_alone: 0.0031,
            step_shared: 0.000_07,
            coupled: 1.1,
            copied: [66e3, 30e3, 16e3, 5e3],
            latency: 1.29,
            clustered_latency: 0.094,
            launch: 2.13,
            clustered_launch: 0.9,
            divided_launch: 0.1,
            start: 1.49,
            l2: 13.8e6,
            part_sectors: 2.33,
            part_lines: 1.36,
            l2_bytes: 10.6e6,
            dram: 3.78e6,
            echo: 0.4,
            direct: 5400.0,
            direct_bytes: 1.16e6,
            odd_rows: 0.34,
            transposed: 0.4,
            staged: 22_000.0,
            draw: 0.037,
            exchanged: 7000.0,
            meeting: 5.83,
            sharpness: 4.97,
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
        let cluster = plan.cluster_size();
        let usable = if cluster > 2 { self.clustered_multiprocessors } else { self.multiprocessors };
        (usable * self.ctas(plan) / cluster).max(1)
    }
}
