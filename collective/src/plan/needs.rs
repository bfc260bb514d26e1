//! What a mainloop needs of the kernel around it.

/// What a mainloop needs of work units, of the cluster and of registers. A kernel that does not provide it
/// does not compile.
///
/// The default of [`Mainloop::NEEDS`](crate::Mainloop::NEEDS) is [`ALL`](Self::ALL): a mainloop that says
/// nothing gets the whole K of whole tiles, in one CTA. Lift a need only if the mainloop does what its field
/// asks:
///
/// ```
/// use collective::MainloopNeeds;
///
/// /// Sums over ranges of K may be added up; tiles are loaded whole, by one CTA.
/// const NEEDS: MainloopNeeds = MainloopNeeds { whole_k: false, ..MainloopNeeds::ALL };
/// assert!(NEEDS.alone && NEEDS.whole_n);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct MainloopNeeds {
    /// A work unit must have all of its tile's K. False if the results of ranges of K may be added up. That
    /// is so if they are linear in the products: sums of them, but not `silu(A * B) * (A * C)`.
    pub whole_k: bool,
    /// A work unit must have all columns of its tile. False if the mainloop loads and multiplies only the
    /// [`WorkUnit::columns`](crate::WorkUnit::columns) of a tile that is narrowed or sliced.
    pub whole_n: bool,
    /// A tile's columns must follow each other in B. False if the mainloop loads the columns from
    /// `unit.n / 2` on where [`EpilogueSpec::split`](crate::EpilogueSpec::split) takes them from both halves
    /// of N.
    pub consecutive: bool,
    /// The cluster must be one CTA. False if the mainloop loads its slice of each tile for all CTAs that
    /// share the tile: see [`Origin`](crate::Origin) and
    /// [`ClusterPosition`](crate::pipeline::ClusterPosition).
    pub alone: bool,
    /// Registers that a producer thread needs. 0 for as many as it has in the mainloop of this crate with the
    /// same [`Producer`](crate::Producer): 24 if one thread starts copies, 104 or 144 if threads copy.
    /// ptxas reports how many it would use: if it spills, say more here.
    pub producer: u32,
    /// Whether a call must give the kernel's A and its B as matrices. False of one that the mainloop reads in another way, by
    /// [arguments of its own](crate::Mainloop::Arguments): the call's is not looked at.
    pub matrices: [bool; 2],
}

impl MainloopNeeds {
    /// No needs: those of the mainloops of this crate.
    pub const NONE: Self = Self {
        whole_k: false,
        whole_n: false,
        consecutive: false,
        alone: false,
        producer: 0,
        matrices: [true; 2],
    };

    /// Whole tiles, all of K, and no cluster.
    pub const ALL: Self = Self { whole_k: true, whole_n: true, consecutive: true, alone: true, ..Self::NONE };
}
