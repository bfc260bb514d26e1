//! The GPU as the model sees it: measured numbers.

use collective::Plan;

use super::Calibration;

/// The numbers from which the model predicts a kernel's time. All times are in microseconds.
///
/// [`Machine::h200`] holds the numbers of the card that was measured. [`Machine::of`] derives those of another Hopper
/// card from what its driver reports.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Machine {
    /// The card's facts, from which other numbers were derived.
    pub card: Card,
    /// Number of SMs.
    pub multiprocessors: u32,
    /// Number of clusters of 1, 2, … 8 CTAs that are resident at once if each CTA fills an SM. The groups of
    /// SMs that a cluster must fit into are not all of one size.
    pub clusters: [u32; 8],
    /// SM cycles per microsecond while few SMs multiply.
    pub cycles: f64,
    /// Rate of `wgmma` per SM and cycle, as a fraction of an H200's.
    pub tensor: f64,
    /// Fraction by which everything takes longer if all SMs multiply without pause.
    pub power: f64,
    /// Fraction of a cycle that shared memory takes for 128 bytes that a `wgmma` reads or a copy writes.
    pub shared: f64,
    /// Factor by which a k-tile of a slice takes longer than one of a tile with as few columns.
    pub sliced: f64,
    /// The part of a cycle that a sparse `wgmma` takes for 128 bytes that it reads: it reads twice the K of B in the time of a dense one.
    pub sparse: f64,
    /// Cycles by which multiplications are delayed by a warp's instruction that adds an accumulator to a sum: both use the registers.
    pub promoted: f64,
    /// The same of the instructions that read a column's scale, multiply it by a row's, and add an accumulator times that to a sum.
    pub columns: f64,
    /// Fraction by which multiplications take longer if two instructions next to each other multiply a tile.
    pub wide: f64,
    /// Microseconds that a k-tile takes longer if its accumulators are added to sums while no other consumer
    /// multiplies; and for each accumulator of a thread.
    pub alone: f64,
    /// See [`alone`](Self::alone).
    pub added: f64,
    /// The same for block-scaled operands while another consumer multiplies.
    pub beside: f64,
    /// Microseconds that a k-tile takes longer for each further run of columns that share a scale: its scale is loaded, and
    /// multiplied by those of the rows.
    pub runs: f64,
    /// Cycles per instruction that converts weights to operands.
    pub converted: f64,
    /// Fraction of the multiplications that these instructions do not overlap.
    pub uncovered: f64,
    /// Microseconds from the request of a stage to its arrival.
    pub latency: f64,
    /// Fraction by which that takes longer in clusters, where a stage must be free in every CTA that receives
    /// a part of it.
    pub clustered_latency: f64,
    /// Number of ring stages that are not being filled at any time.
    pub drained: f64,
    /// Microseconds per k-tile in addition to what limits it, divided by the number of consumers, which hide
    /// each other's waits.
    pub step: f64,
    /// Factor by which a k-tile takes longer in clusters for pingpong consumers, and for block-scaled operands in
    /// one wave; without clusters for those in several waves.
    pub coupled: f64,
    /// Bytes per microsecond that one SM can load.
    pub ingest: f64,
    /// Fraction by which a tile takes longer for each further cluster that requests it at the same time.
    pub crowded: f64,
    /// Fraction of a load's time that its requests take, which the CTAs of a cluster share.
    pub requesting: f64,
    /// How long operands take to arrive, and to be read, in clusters of eight over other ones.
    pub eight: f64,
    /// Factors by which requests take longer for rows that begin inside of lines, and inside of sectors.
    pub part_requests: [f64; 2],
    /// Microseconds for each request of 128 bytes of a row that lies outside of its matrix. Such requests wait for each other, from
    /// whatever SMs they come.
    pub outside: f64,
    /// Bytes per microsecond that the threads of one CTA copy to shared memory in pieces of 16, 8, 4 and
    /// fewer bytes. Only that for 16 is measured. The others are estimated from the number of instructions.
    pub copied: [f64; 4],
    /// Microseconds from one kernel of a graph to the first multiplication of the next.
    pub launch: f64,
    /// Additional microseconds for kernels that begin only when the one before has ended.
    pub serial_launch: f64,
    /// Additional microseconds until the CTAs of a cluster that share a tile's K have ended together.
    pub clustered_launch: f64,
    /// Additional microseconds of kernels of one tile per CTA in clusters along M.
    pub clustered_tile: f64,
    /// Additional microseconds of all kernels in clusters.
    pub together: f64,
    /// Additional microseconds for kernels that can split tiles along K, whether they do or not.
    pub divided_launch: f64,
    /// Microseconds of these that pass before the kernels before have ended, if each role waits for them by itself.
    pub awaited: f64,
    /// Additional microseconds for kernels whose CTAs look for a next tile.
    pub persistent_launch: f64,
    /// Microseconds saved if L2 is told to evict an operand first, and the microseconds of DRAM from which on they are.
    pub evicting: [f64; 2],
    /// Fraction of DRAM's time for an operand that is saved so if only one tile reads each part of it.
    pub streamed: f64,
    /// Fraction of the same time that is saved if CTAs prefetch such an operand before the kernels before have ended, and most
    /// microseconds of it.
    pub ahead: [f64; 2],
    /// Additional microseconds per byte of the first stage.
    pub filling: f64,
    /// Microseconds that a CTA takes to start after another one has ended.
    pub start: f64,
    /// Microseconds from one tile to the next, in addition to its k-tiles and its epilogue.
    pub tile: f64,
    /// Additional microseconds per tile for each group that is measured to find the tile's among those of a table's entry
    /// ([`TablePlan::span`](collective::TablePlan::span)). Estimated from the number of instructions and the latency of L1.
    pub walked: f64,
    /// Elements of D per microsecond that one CTA converts and stores, or writes to shared memory for a
    /// tensor store.
    pub stored: f64,
    /// Additional microseconds of an epilogue whose threads store to global memory, if no tile is split.
    pub by_threads: f64,
    /// Additional microseconds of an epilogue that finishes a part of a split tile through shared memory.
    pub staged: f64,
    /// Fraction of that speed that is left if rows of D begin at odd elements, so that threads cannot store
    /// pairs.
    pub odd_rows: f64,
    /// Speed of an epilogue that stores D transposed, relative to one that does not.
    pub transposed: f64,
    /// Factor by which the store of a tile takes longer for each slab of a swizzle in addition to one per 128 bytes of a row.
    pub slabs: f64,
    /// Fraction by which an epilogue takes longer, times `64 / row - 1`, if rows of its tile have fewer than
    /// 64 elements.
    pub narrow: f64,
    /// Microseconds that a fused epilogue takes longer because it waits for its inputs other than the
    /// accumulators.
    pub reading: f64,
    /// Fraction by which a fused epilogue takes longer than a linear one, if D is not transposed, and if it
    /// is.
    pub fused: [f64; 2],
    /// Additional microseconds per tile if its number is taken from a counter.
    pub draw: f64,
    /// Elements of partial sums per microsecond that one CTA writes for another, or adds.
    pub exchanged: f64,
    /// Microseconds from the last element of a partial sum to its reader.
    pub meeting: f64,
    /// Parts of a tile whose sums are added up separately in no more time than two; and microseconds for each further part and
    /// element of the tile.
    pub gathered: [f64; 2],
    /// Microseconds in which two CTAs of a cluster meet to exchange partial sums, elements per microsecond
    /// that each CTA writes and adds, and additional microseconds for each further CTA.
    pub near: [f64; 3],
    /// Fraction by which k-tiles take longer if tiles are split at different places along K.
    pub unaligned: f64,
    /// Bytes per microsecond from L2 to all SMs.
    pub l2: f64,
    /// Factor by which L2 takes longer for an operand whose rows do not begin at multiples of 32 B.
    pub part_sectors: f64,
    /// The same for rows that begin at multiples of 32 B, but not of a 128 B line.
    pub part_lines: f64,
    /// Bytes of an operand that stay in L2 until a band of tiles has been computed.
    pub l2_bytes: f64,
    /// Bytes per microsecond between DRAM and L2.
    pub dram: f64,
    /// Microseconds until DRAM works at that rate.
    pub ramp: f64,
    /// Fraction by which DRAM takes longer for what is written than for what is read.
    pub written: f64,
    /// Bytes per microsecond of these that two neighbouring SMs load.
    pub paired: f64,
    /// Fraction of the mean of both rates that is left where DRAM and pairs of SMs are about as fast.
    pub merged: f64,
    /// Fraction by which DRAM takes longer for D if tensor copies store rows that are not whole sectors of 32 B.
    pub torn: f64,
    /// Fraction of an evict-first operand that is read from DRAM again for each further tile that uses it.
    pub refetched: f64,
    /// Fraction of an operand that is read from DRAM a second time if several clusters read it, unless their
    /// requests are joined before L2.
    pub echo: f64,
    /// Fraction by which that is less if DRAM only writes.
    pub echoed: f64,
}

/// What the driver reports of a card. [`Context::card`](crate::driver::Context::card) asks it.
///
/// ```
/// use kernel::{Card, Machine};
///
/// assert_eq!(Machine::of(&Card::H200), Machine::h200());
/// let h100 = Card { memory_bandwidth: 3.35e12, l2_bytes: 50 << 20, ..Card::H200 };
/// assert!(Machine::of(&h100).dram < Machine::h200().dram);
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Card {
    /// Number of SMs.
    pub multiprocessors: u32,
    /// Highest clock of the SMs, in kHz.
    pub kilohertz: u32,
    /// Peak memory bandwidth in bytes per second: memory clock, times two transfers per cycle, times bus width.
    pub memory_bandwidth: f64,
    /// Size of L2 in bytes.
    pub l2_bytes: u32,
    /// Rate of `wgmma` per SM and cycle, as a fraction of an H200's. The driver does not report it.
    pub tensor: f64,
}

impl Card {
    /// The card that [`Machine::h200`] was fitted to, as its driver (580.159.04) reports it.
    pub const H200: Self = Self {
        multiprocessors: 132,
        kilohertz: 1_980_000,
        memory_bandwidth: 2.0 * 3_201_000e3 * 6016.0 / 8.0,
        l2_bytes: 60 << 20,
        tensor: 1.0,
    };

    /// An H100 (SXM) with 80 GB, as its driver (580.159.04) reports it.
    pub const H100: Self =
        Self { memory_bandwidth: 2.0 * 2_619_000e3 * 5120.0 / 8.0, l2_bytes: 50 << 20, ..Self::H200 };

    /// Hopper cards by name. Those of the H200 and the H100 are what drivers report; the others are published, and were not measured.
    pub const NAMED: [(&'static str, Self); 5] = [
        ("h200", Self::H200),
        ("h100", Self::H100),
        (
            "h100-pcie",
            Self {
                multiprocessors: 114,
                kilohertz: 1_755_000,
                memory_bandwidth: 2.0 * 1_593_000e3 * 5120.0 / 8.0,
                l2_bytes: 50 << 20,
                tensor: 1.0,
            },
        ),
        ("gh200", Self { memory_bandwidth: 2.0 * 2_619_000e3 * 6144.0 / 8.0, ..Self::H200 }),
        (
            "h20",
            Self {
                multiprocessors: 78,
                memory_bandwidth: 2.0 * 2_619_000e3 * 6144.0 / 8.0,
                tensor: Self::H20_TENSOR,
                ..Self::H200
            },
        ),
    ];

    /// Of 148 TFLOP/s with 78 SMs, next to 989 with 132 (bf16, published).
    const H20_TENSOR: f64 = 0.25;

    /// The facts, with another card's in place of those that are 0.
    fn or(&self, other: &Self) -> Self {
        let count = |own: u32, other: u32| if own > 0 { own } else { other };
        let speed = |own: f64, other: f64| if own > 0.0 { own } else { other };
        Self {
            multiprocessors: count(self.multiprocessors, other.multiprocessors),
            kilohertz: count(self.kilohertz, other.kilohertz),
            memory_bandwidth: speed(self.memory_bandwidth, other.memory_bandwidth),
            l2_bytes: count(self.l2_bytes, other.l2_bytes),
            tensor: speed(self.tensor, other.tensor),
        }
    }

    /// The rate of `wgmma` of a card that the driver names so: that of an H200, unless the card is known for less.
    #[cfg(feature = "driver")]
    pub(crate) fn tensor_of(name: &str) -> f64 {
        let is_h20 = name.split(|c: char| !c.is_ascii_alphanumeric()).any(|word| word == "H20");
        if is_h20 { Self::H20_TENSOR } else { 1.0 }
    }
}

/// Bytes of shared memory per SM, and bytes that the system reserves of each CTA's.
const SHARED_BYTES: u32 = 228 << 10;
const RESERVED_BYTES: u32 = 1 << 10;
/// Registers and threads per SM.
const REGISTERS: u32 = 64 << 10;
const THREADS: u32 = 2048;

impl Machine {
    /// An NVIDIA H200, fitted to the records of H200s in `tests/selection` (driver 580.159.04, burst; docs/evidence/lab-notes.md,
    /// "Rows outside of a matrix" and "Lines of a neighbour").
    pub const fn h200() -> Self {
        Self {
            card: Card::H200,
            multiprocessors: 132,
            // For clusters of 7 as many fit as for clusters of 8.
            clusters: [132, 66, 39, 30, 22, 17, 15, 15],
            cycles: 2043.6,
            tensor: 1.0,
            power: 0.3004,
            shared: 0.7323,
            // Of three measured products of 8192 cubed (docs/evidence/performance.md).
            sliced: 1.15,
            sparse: 1.27,
            // Of one kernel with promote=4 (docs/evidence/lab-notes.md).
            promoted: 0.375,
            columns: 1.523,
            wide: 0.009581,
            alone: 0.03684,
            added: 0.0007854,
            beside: 0.05382,
            runs: 0.007447,
            converted: 1.2,
            uncovered: 0.55,
            latency: 0.9875,
            clustered_latency: 0.2209,
            drained: 0.5599,
            step: 0.01048,
            coupled: 1.01,
            ingest: 168.2e3,
            crowded: 3.718e-04,
            requesting: 0.1218,
            // Of 61 shapes (docs/evidence/lab-notes.md, "Clusters of eight").
            eight: 0.83,
            part_requests: [4.816, 8.555],
            outside: 2.7e-05,
            copied: [66e3, 30e3, 16e3, 5e3],
            launch: 1.121,
            serial_launch: 0.7763,
            clustered_launch: 0.8172,
            clustered_tile: 0.45,
            together: 0.164,
            divided_launch: 0.7034,
            // Of 25 shapes with and without (docs/evidence/lab-notes.md, "Before the wait"), as `ahead`.
            awaited: 0.5,
            persistent_launch: 0.378,
            evicting: [0.09162, 2.0],
            streamed: 0.02929,
            ahead: [0.1, 1.3],
            filling: 4.6e-06,
            start: 1.596,
            tile: 0.1935,
            walked: 0.03,
            odd_rows: 0.3084,
            stored: 26389.4,
            by_threads: 0.259,
            staged: 0.5863,
            transposed: 0.918,
            slabs: 0.02496,
            narrow: 0.06626,
            reading: 0.8,
            fused: [0.2, 1.0],
            draw: 0.03379,
            exchanged: 6200.0,
            meeting: 1.229,
            gathered: [8.0, 1.25e-5],
            near: [0.3918, 6029.5, 0.09283],
            unaligned: 0.1187,
            l2: 18.78e6,
            part_sectors: 2.563,
            part_lines: 1.612,
            l2_bytes: 11.57e6,
            dram: 4.087e6,
            ramp: 0.469,
            written: 0.2117,
            paired: 89.5e3,
            merged: 0.8557,
            torn: 0.6813,
            refetched: 0.04184,
            echo: 0.385,
            echoed: 0.91,
        }
    }

    /// The numbers of a card, derived from those of an H200. For an H200 they are exactly [`Machine::h200`].
    ///
    /// * Numbers of SMs and of resident clusters are proportional to the SMs. Clusters are rounded down.
    /// * What an SM computes, copies and stores per microsecond is proportional to the clock.
    /// * DRAM's speed is proportional to the peak memory bandwidth, and the part of L2 that keeps operands to its size.
    /// * L2's speed is assumed to be proportional to the SMs and their clock. That was not measured on other cards.
    /// * The rate of `wgmma`, and with it the effect of power, is proportional to [`Card::tensor`].
    /// * Latencies and launches are those of the H200. A card with a lower power limit is predicted too fast where the tensor cores
    ///   decide.
    ///
    /// An H100 (SXM) is [calibrated](Self::calibrated) by what was measured of one. A fact that the driver reports as 0 counts as the H200's.
    pub fn of(card: &Card) -> Self {
        let (h200, of, card) = (Self::h200(), Card::H200, card.or(&Card::H200));
        let multiprocessors = card.multiprocessors;
        let sms = f64::from(multiprocessors) / f64::from(of.multiprocessors);
        let clock = f64::from(card.kilohertz) / f64::from(of.kilohertz);
        let [meeting, rate, further] = h200.near;
        let derived = Self {
            card,
            multiprocessors,
            clusters: h200.clusters.map(|clusters| (f64::from(clusters) * sms).max(1.0) as u32),
            cycles: h200.cycles * clock,
            tensor: card.tensor,
            power: h200.power * card.tensor,
            ingest: h200.ingest * clock,
            copied: h200.copied.map(|rate| rate * clock),
            stored: h200.stored * clock,
            exchanged: h200.exchanged * clock,
            near: [meeting, rate * clock, further],
            l2: h200.l2 * sms * clock,
            l2_bytes: h200.l2_bytes * f64::from(card.l2_bytes) / f64::from(of.l2_bytes),
            dram: h200.dram * (card.memory_bandwidth / of.memory_bandwidth),
            paired: h200.paired * clock,
            ..h200
        };
        if card == Card::H100 { derived.calibrated(&Calibration::H100) } else { derived }
    }

    /// The same machine with what was measured of the card in place of what was derived: DRAM's and L2's speed, the time of a launch, and
    /// the rate of `wgmma`. Each changes by as much as the measurement differs from that of the reference card.
    #[must_use]
    pub fn calibrated(&self, measured: &Calibration) -> Self {
        let (reference, of) = (Self::h200(), Calibration::H200);
        let sms = f64::from(self.multiprocessors) / f64::from(reference.multiprocessors);
        Self {
            dram: reference.dram * measured.copy / of.copy,
            l2: reference.l2 * measured.l2 / of.l2,
            launch: (reference.launch + measured.launch - of.launch).max(0.5 * reference.launch),
            tensor: measured.multiply / of.multiply / sms * reference.cycles / self.cycles,
            ..*self
        }
    }

    /// Whether its SMs are those of another card: as many, with the same clock.
    pub(super) fn multiplies_as(&self, other: &Card) -> bool {
        let of = |card: &Card| (card.multiprocessors, card.kilohertz, card.tensor);
        of(&self.card) == of(other)
    }

    /// Number of a kernel's CTAs that are resident on one SM.
    pub fn ctas(&self, plan: &Plan) -> u32 {
        let shared = SHARED_BYTES / (plan.shared_bytes + RESERVED_BYTES);
        let registers = REGISTERS / (plan.registers.launch * plan.threads).max(1);
        shared.min(registers).min(THREADS / plan.threads.max(1)).max(1)
    }

    /// Number of a kernel's clusters that are resident at once; the same as
    /// [`Engine::resident_clusters`](crate::Engine::resident_clusters) on such a card.
    pub fn resident_clusters(&self, plan: &Plan) -> u32 {
        self.at_once(plan.cluster_size(), plan)
    }

    /// Number of clusters of `cluster` CTAs of a kernel that are resident at once.
    pub fn at_once(&self, cluster: u32, plan: &Plan) -> u32 {
        let alone = cluster.checked_sub(1).and_then(|index| self.clusters.get(index as usize));
        (alone.copied().unwrap_or(0) * self.ctas(plan)).max(1)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// `(SMs, kHz, kHz of memory, bits of its bus, MiB of L2)`.
    fn card([multiprocessors, kilohertz, memory, bits, l2]: [u32; 5]) -> Card {
        let memory_bandwidth = 2.0 * f64::from(memory) * 1e3 * f64::from(bits) / 8.0;
        Card { multiprocessors, kilohertz, memory_bandwidth, l2_bytes: l2 << 20, tensor: 1.0 }
    }

    #[test]
    fn cards_with_slow_tensor_cores_are_known_by_name() {
        for (name, want) in [
            ("NVIDIA H20", 0.25),
            ("NVIDIA H20-3e", 0.25),
            ("NVIDIA H200", 1.0),
            ("NVIDIA H100 PCIe", 1.0),
            ("NVIDIA GH200 480GB", 1.0),
        ] {
            assert_eq!(Card::tensor_of(name), want, "{name}");
        }
        // Without other limits, a quarter of the rate takes four times as long: of 78 SMs, as the vendor's 148 TFLOP/s say.
        let [(_, h200), .., (name, h20)] = Card::NAMED;
        let rate = |card: &Card| {
            let machine = Machine::of(card);
            machine.cycles * machine.tensor * f64::from(machine.multiprocessors)
        };
        assert_eq!(name, "h20");
        assert!((rate(&h20) / rate(&h200) / (148.0 / 989.0) - 1.0).abs() < 0.02);
    }

    #[test]
    fn machines_are_derived_from_facts_of_cards() {
        let h200 = Machine::h200();
        for (why, facts, sms, pairs, cycles, dram) in [
            ("H200", [132, 1_980_000, 3_201_000, 6016, 60], 132, 66, 1.0, 1.0),
            ("H100 SXM, 3.35 TB/s", [132, 1_980_000, 2_619_000, 5120, 50], 132, 66, 1.0, 2.79 / 3.861),
            (
                "H100 PCIe, 2.0 TB/s",
                [114, 1_755_000, 1_593_000, 5120, 50],
                114,
                57,
                1.755 / 1.98,
                2.039 / 4.814,
            ),
            ("H20, 4.0 TB/s", [78, 1_980_000, 2_619_000, 6144, 60], 78, 39, 1.0, 4.023 / 4.814),
            ("nothing is known", [0; 5], 132, 66, 1.0, 1.0),
        ] {
            let machine = Machine::of(&card(facts));
            assert_eq!(
                (machine.multiprocessors, machine.clusters[0], machine.clusters[1]),
                (sms, sms, pairs),
                "{why}"
            );
            for (number, found, want) in
                [("cycles", machine.cycles / h200.cycles, cycles), ("dram", machine.dram / h200.dram, dram)]
            {
                assert!(
                    (found / want - 1.0).abs() < 1e-3,
                    "{why}: {number} is {found} of the H200's, not {want}"
                );
            }
            let same = Machine { card: h200.card, ..machine } == h200;
            assert_eq!(same, matches!(why, "H200" | "nothing is known"), "{why}");
            assert_eq!(machine.multiplies_as(&h200.card), matches!(sms, 132), "{why}");
            assert!(machine.clusters.iter().all(|&clusters| clusters > 0), "{why}");
        }
    }
}
