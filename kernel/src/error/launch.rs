//! Why a call is not legal.

use core::fmt::Display;

use collective::Form;

/// Why a GEMM call is not legal.
#[derive(Clone, Debug, PartialEq, thiserror::Error)]
#[non_exhaustive]
pub enum LaunchError {
    /// An extent is too large.
    #[error("{name} is {extent}, it must be below {limit}")]
    Extent {
        /// M, N or K.
        name: &'static str,
        /// The extent in elements; for groups of rows, the sum over all groups.
        extent: u64,
        /// The extent must be below this.
        limit: u32,
    },
    /// The output has more tiles than a launch can number.
    #[error(
        "there are {m} x {n} tiles, a launch of this kernel numbers at most {most}: take a larger tile, or launch in parts"
    )]
    TooManyTiles {
        /// Tiles along M, of all GEMMs.
        m: u128,
        /// Tiles along N, of all GEMMs.
        n: u128,
        /// The largest number of tiles.
        most: u32,
    },
    /// A band of the raster order has more tiles than can be counted.
    #[error(
        "a band of the raster order has {band} x {tiles} tiles, at most 2^32 - 1 are possible: take a larger tile or a narrower band"
    )]
    Band {
        /// Tiles across the band.
        band: u32,
        /// Tiles along the band.
        tiles: u32,
    },
    /// The launch has more CTAs than a grid can have.
    #[error(
        "the launch has {ctas} CTAs, a grid has at most {most}: take a larger tile, or a scheduler of persistent CTAs"
    )]
    Grid {
        /// CTAs of all clusters.
        ctas: u64,
        /// The largest number of CTAs.
        most: u32,
    },
    /// A matrix would end beyond the address space.
    #[error(
        "{name} begins at {address:#x} and takes {bytes} B, which ends beyond the last address, 2^64 - 1"
    )]
    End {
        /// Which matrix, or which matrices of a batch.
        name: &'static str,
        /// Its device address.
        address: u64,
        /// Bytes from there to the end of its last row.
        bytes: u128,
    },
    /// The epilogue needs whole rows, and the output is wider than a tile.
    #[error("N is {n}, at most tile N = {tile_n} was needed: the epilogue looks at whole rows")]
    WholeRows {
        /// Columns of the output, N.
        n: u32,
        /// Columns of a tile.
        tile_n: u32,
    },
    /// The epilogue takes gates from one half of B's columns and up-projections from the other half; N does
    /// not divide accordingly.
    #[error("N is {n}, a multiple of {step} was needed: gates and up-projections are its two halves")]
    Halves {
        /// Columns of the problem, N.
        n: u32,
        /// N must be a multiple of this.
        step: u32,
    },
    /// A matrix has no address.
    #[error("{name} is a null pointer, a device address was needed")]
    Null {
        /// Which matrix.
        name: &'static str,
    },
    /// A matrix's address is not aligned.
    #[error(
        "{name} begins at {address:#x}, a multiple of {alignment} B was needed{}", other_kernels(name, *alignment)
    )]
    Address {
        /// Which matrix.
        name: &'static str,
        /// Its device address.
        address: u64,
        /// Alignment needed, in bytes.
        alignment: u64,
    },
    /// A leading dimension is so small that rows or columns of the matrix would overlap.
    #[error("{name}'s leading dimension is {ld} elements, at least {needed} were needed")]
    ShortLd {
        /// Which matrix.
        name: &'static str,
        /// Its leading dimension in elements.
        ld: u64,
        /// Number of contiguous elements per row (or column).
        needed: u32,
    },
    /// A leading dimension that the kernel's copies cannot follow.
    #[error(
        "{name}'s leading dimension is {bytes} B, a multiple of {alignment} B below 2^40 was needed: \
         pad the rows (for packed 16-bit operands, the contiguous extent must be a multiple of 8){}",
        other_kernels(name, *alignment)
    )]
    Pitch {
        /// Which matrix.
        name: &'static str,
        /// Its leading dimension in bytes.
        bytes: u128,
        /// It must be a multiple of this number of bytes.
        alignment: u64,
    },
    /// An output whose rows end in the middle of what a tensor store writes.
    #[error(
        "{name}'s rows are {bytes} B, a multiple of {alignment} B was needed: tensor stores write whole chunks of \
         16 B; take a kernel that stores directly"
    )]
    Row {
        /// Which matrix.
        name: &'static str,
        /// Bytes per row.
        bytes: u64,
        /// The bytes per row must be a multiple of this.
        alignment: u64,
    },
    /// The call has block scales, and the kernel takes none.
    #[error(
        "the call has block scales, but the kernel's operands have none: take a kernel with BlockScaled operands (`scale-a=1x128 scale-b=128x128`)"
    )]
    NotScaled,
    /// The kernel multiplies by block scales, and the call has none.
    #[error("the kernel's operands have block scales, but the call has none: Call::scales was needed")]
    NoScales,
    /// The call has group scales, and the kernel takes none.
    #[error(
        "the call has group scales, but the kernel's weights have none: take a kernel with Quantized weights (`weights-b=s4 group=128 swap=yes`)"
    )]
    NotGroupScaled,
    /// The kernel multiplies by group scales, and the call has none.
    #[error(
        "the groups of the kernel's weights have scales, but the call has none: Call::group_scales was needed"
    )]
    NoGroupScales,
    /// The call has metadata, and the kernel's operands are dense.
    #[error(
        "the call has metadata, but the kernel's operands are dense: take a kernel with a Sparse operand (`sparse=a`)"
    )]
    NotSparse,
    /// The kernel has a sparse operand, and the call has no metadata.
    #[error("an operand of the kernel is sparse, but the call has no metadata: Call::metadata was needed")]
    NoMetadata,
    /// A problem that the kernel does not solve.
    #[error("{reason}")]
    Problem {
        /// Which number, its value, and what is needed.
        reason: String,
    },
    /// An argument of the mainloop's own is illegal. If the call has none, it is a default one.
    #[error(
        "mainloop `{mainloop}` refuses its arguments, {arguments}: {reason} (`Call::with_mainloop` passes them)"
    )]
    Mainloop {
        /// The mainloop's name.
        mainloop: String,
        /// The type of its own arguments.
        arguments: &'static str,
        /// Which one, and what is needed.
        reason: String,
    },
    /// The arguments are not of the type that the kernel's mainloop takes.
    #[error(
        "the mainloop is `{mainloop}`, and it does not take {given}: pass the `Arguments` of the kernel's own mainloop; \
         a kernel made from a spec takes none"
    )]
    OtherMainloop {
        /// The kernel's mainloop.
        mainloop: String,
        /// The type of the arguments.
        given: &'static str,
    },
    /// What the scheduler gets from the call is illegal.
    #[error("the scheduler is `{scheduler}`: {reason}")]
    Scheduler {
        /// The scheduler's name.
        scheduler: String,
        /// Which words or number, and what is needed.
        reason: String,
    },
    /// The call is for a kernel with another scheduler.
    #[error(
        "the scheduler is `{scheduler}`, and the call gives one that is `{given}`: pass the kernel's own"
    )]
    OtherScheduler {
        /// The kernel's scheduler.
        scheduler: String,
        /// The call's.
        given: String,
    },
    /// An argument of the epilogue is illegal.
    #[error(transparent)]
    Epilogue(#[from] collective::tree::NodeError),
    /// The workspace is missing or too small.
    #[error(
        "the workspace has {bytes} B, {needed} B were needed: allocate what `Gemm::workspace` says and zero it once"
    )]
    Workspace {
        /// Bytes given; 0 if there is no workspace.
        bytes: u64,
        /// Bytes needed.
        needed: u64,
    },
    /// The distance between the matrices of a batch is one that the kernel's copies cannot follow.
    #[error(
        "{name}'s matrices lie {bytes} B from each other, a multiple of {alignment} B below 2^40 was needed{}",
        other_kernels(name, *alignment)
    )]
    Distance {
        /// Which matrix.
        name: &'static str,
        /// Distance from the first element of one matrix to that of the next, in bytes.
        bytes: u128,
        /// It must be a multiple of this number of bytes.
        alignment: u64,
    },
    /// The D matrices of a batch overlap.
    #[error(
        "D's matrices of {m} x {n} in rows of {ld} elements lie {stride} elements from each other, so that they overlap: \
         each must end before the next begins, or their rows lie side by side"
    )]
    Overlap {
        /// Distance from the first element of one D to that of the next, in elements.
        stride: u64,
        /// Rows.
        m: u32,
        /// Columns.
        n: u32,
        /// Leading dimension: elements from one row to the next.
        ld: u64,
    },
    /// What is written shares memory with something else that the call accesses.
    #[error(
        "{written} at {:#x} is written and shares memory with {other} at {:#x}{}: memory of its own was needed{}",
        addresses[0],
        addresses[1],
        if *.writes { ", which is written, too" } else { "" },
        if *.in_place { ", or exactly the same: the same address, leading dimension and stride" } else { "" }
    )]
    Shared {
        /// What is written.
        written: String,
        /// What it shares memory with.
        other: String,
        /// Where both begin.
        addresses: [u64; 2],
        /// Whether the other one is written, too.
        writes: bool,
        /// Whether the other one may be exactly what is written.
        in_place: bool,
    },
    /// The groups' buffers have more rows than M.
    #[error("{count} groups in buffers of {room} rows need {needed} rows, and M is {rows}", needed = u64::from(*count) * u64::from(*room))]
    Room {
        /// Number of groups.
        count: u32,
        /// Rows per buffer.
        room: u32,
        /// M.
        rows: u32,
    },
    /// More groups than the kernel's table holds.
    #[error("there are {groups} groups, at most {most} are possible: {}", fewer_groups(*groups))]
    Groups {
        /// Number of groups.
        groups: u32,
        /// Largest number of groups.
        most: u32,
    },
    /// The kernel's form is not the call's.
    #[error(
        "the kernel computes {}, and the call is {}: take a kernel for the call's `products`, `Batched<..>`, `GroupedContiguous<..>`, \
         `GroupedMasked<..>`, `KGrouped<..>` or `PointerArray<..>` of its type, or one for a single product",
        kernel.words(),
        call.words()
    )]
    Form {
        /// The form that the kernel computes.
        kernel: Form,
        /// The form of the call.
        call: Form,
    },
    /// The epilogue needs other arguments than alpha, beta and C.
    #[error("the epilogue `{epilogue}` has arguments of its own, but the call has only alpha, beta and C")]
    NotLinear {
        /// The epilogue's name.
        epilogue: String,
    },
    /// The arguments are those of another epilogue tree than the kernel's.
    #[error("the epilogue is `{epilogue}`, and the arguments are those of the tree `{tree}`")]
    OtherTree {
        /// The kernel's epilogue.
        epilogue: String,
        /// The tree of the arguments.
        tree: String,
    },
    /// C is needed and missing.
    #[error("beta is {beta} but there is no C: pass C, or beta = 0")]
    MissingC {
        /// The factor of C.
        beta: f64,
    },
}

impl LaunchError {
    /// Refuses a number of a call that is not legal: its name, its value, and what was needed.
    ///
    /// ```
    /// use kernel::LaunchError;
    ///
    /// let columns = 12;
    /// let refused = LaunchError::unless(columns % 8 == 0, ("columns", columns), "a multiple of 8");
    /// assert!(refused.is_err_and(|error| error.to_string() == "columns is 12, a multiple of 8 was needed"));
    /// ```
    ///
    /// # Errors
    /// [`Problem`](Self::Problem), unless it is legal.
    pub fn unless(
        legal: bool,
        (name, value): (&str, impl Display),
        needed: impl Display,
    ) -> Result<(), Self> {
        let reason = || format!("{name} is {value}, {needed} was needed");
        if legal { Ok(()) } else { Err(Self::Problem { reason: reason() }) }
    }
}

impl From<scheduler::TooManyTiles> for LaunchError {
    fn from(scheduler::TooManyTiles { m, n, most }: scheduler::TooManyTiles) -> Self {
        Self::TooManyTiles { m, n, most }
    }
}

/// Names the kernels that take a matrix which tensor copies cannot access.
fn other_kernels(name: &str, alignment: u64) -> &'static str {
    match (name, alignment) {
        ("A" | "B", 16) => {
            ", or use a kernel without tensor copies of operands (mainloop `CopyWgmma`, `load=copy` in a spec, names with `unaligned`)"
        }
        (_, 16) => ", or use a kernel that stores directly (`DirectStore`, `store=direct` in a spec)",
        _ => "",
    }
}

/// What to do about more groups than a kernel's table holds.
fn fewer_groups(groups: u32) -> String {
    if groups > Form::MOST_GROUPS {
        return "launch them in parts".to_owned();
    }
    let most = Form::GroupedContiguous.table_for(groups);
    format!("use a kernel of `most-groups={most}` (in its type, the form's second parameter is U{most})")
}
