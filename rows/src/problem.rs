//! What is asked of a kernel over rows: [`RowProblem`].

use core::cmp::Ordering;
use core::fmt;
use core::str::FromStr;

use collective::Format;
use kernel::words::{self, As, At, SpecKey, WordError, Worded};

use crate::spec::{NAME, RowKind, RowSpec, refused};

/// The extents of a call, and what decides its kernel. Its text ([`Display`](fmt::Display), [`FromStr`]) is a kernel's name, rows x
/// columns (of `merge` rows alone), the format, and what differs from [`RowProblem::new`] as `key=value` words.
///
/// ```
/// use rows::{RowKind, RowProblem};
///
/// let problem: RowProblem = "gather-sum 70x264 bf16 table=100 choices=2 first=100 limit=400".parse()?;
/// assert_eq!((problem.kind, problem.rows, problem.choices), (RowKind::GatherSum, 70, 2));
/// assert_eq!("add 70x264".parse::<RowProblem>()?.to_string(), "add 70x264 bf16");
/// let refused = "add 70x12".parse::<RowProblem>().expect_err("no whole vectors");
/// assert_eq!(refused.to_string(), "`columns=12`: a multiple of 8 was needed");
/// # Ok::<(), kernel::words::WordError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct RowProblem {
    /// What is computed.
    pub kind: RowKind,
    /// The format, as that of a [`RowSpec`].
    pub format: Format,
    /// Rows of the result.
    pub rows: u32,
    /// Columns of all matrices; 0 for [`RowKind::Merge`].
    pub columns: u32,
    /// Rows of the table that is gathered from; 0 for others.
    pub table: u32,
    /// Indices per row that is gathered; 0 for others.
    pub choices: u32,
    /// The number of the table's first row, or of the first column of a rank's logits, among those of all ranks.
    pub first: u32,
    /// Indices of rows, or targets, are below it: the number of all ranks' rows, or columns.
    pub limit: u32,
    /// Ranks whose statistics are merged; 0 for others.
    pub ranks: u32,
    /// Heads, each of which has the rows and columns; 0 where there are none.
    pub heads: u32,
    /// Pages of a cache; 0 for others.
    pub pages: u32,
    /// Keys of a page; 0 for others.
    pub keys: u32,
    /// Columns of V, where those of K are the problem's; 0 for others.
    pub values: u32,
    /// Whether slots of a cache are numbers of 64 bits.
    pub wide: bool,
}

impl RowProblem {
    /// A problem of these rows and columns on one rank and of one head, whose table has as many rows as the result, with an index for each; and
    /// whose cache has pages of 16 keys, as many as hold the rows.
    pub const fn new(kind: RowKind, [rows, columns]: [u32; 2]) -> Self {
        let format = RowSpec::new(kind).format;
        let table = if kind.gathers() { rows } else { 0 };
        let appends = matches!(kind, RowKind::AppendPages);
        let problem = Self {
            kind,
            format,
            rows,
            columns,
            table,
            choices: kind.gathers() as u32,
            first: 0,
            limit: 0,
            ranks: matches!(kind, RowKind::Merge) as u32,
            heads: matches!(kind, RowKind::MergeAttention | RowKind::AppendPages) as u32,
            pages: if appends { rows.div_ceil(KEYS_OF_A_PAGE) } else { 0 },
            keys: if appends { KEYS_OF_A_PAGE } else { 0 },
            values: if appends { columns } else { 0 },
            wide: false,
        };
        Self { limit: problem.own(), ..problem }
    }

    /// The kernels that compute it, the one with the widest loads first.
    pub fn specs(&self) -> impl Iterator<Item = RowSpec> + use<> {
        let Self { kind, format, columns, .. } = *self;
        let of = move |words| RowSpec { kind, format, words };
        let whole = columns.is_multiple_of(8).then(|| of(false));
        whole.into_iter().chain((kind == RowKind::Gather).then(|| of(true)))
    }

    /// Checks the extents, and that only fields of this kind are given.
    ///
    /// # Errors
    /// The first field that is illegal, with its value and what was needed.
    pub fn check(&self) -> Result<(), WordError> {
        let Self { kind, format, rows, columns, table, first, limit, ranks, pages, keys, values, .. } = *self;
        RowSpec { kind, format, words: false }.check()?;
        if kind == RowKind::Merge && columns != 0 {
            return Err(refused("columns", columns, "0, as merge has none,"));
        }
        let usual = Self { format, ..Self::new(kind, [rows, columns]) };
        let known = Self::keys(kind);
        for key in KEYS.iter().filter(|key| known.iter().all(|known| known.name != key.name)) {
            // The limit of rows that are copied is their number.
            let usual = if key.name == "limit" { Some(self.own().to_string()) } else { key.text(&usual) };
            if key.text(self) != usual {
                let (value, needed) = (key.text(self).unwrap_or_default(), usual.unwrap_or_default());
                return Err(refused(key.name, value, format!("{needed}, as always for {},", kind.name())));
            }
        }
        let multiple = if kind == RowKind::Gather { 2 } else { 8 };
        if !columns.is_multiple_of(multiple) {
            return Err(refused("columns", columns, format!("a multiple of {multiple}")));
        }
        if !values.is_multiple_of(8) {
            return Err(refused("values", values, "a multiple of 8"));
        }
        if let Some(most) = (u32::MAX - 1).checked_div(keys).filter(|&most| pages > most) {
            return Err(refused("pages", pages, format!("at most {most}, of {keys} keys,")));
        }
        if kind == RowKind::Gather && table == 0 && rows > 0 {
            return Err(refused("table", table, "at least 1, as its rows are copied,"));
        }
        if kind == RowKind::Merge && ranks == 0 {
            return Err(refused("ranks", ranks, "at least 1"));
        }
        let own = self.own();
        let Some(end) = first.checked_add(own) else {
            return Err(refused("first", first, format!("at most {}, before {own} others,", u32::MAX - own)));
        };
        if limit < end {
            return Err(refused("limit", limit, format!("at least {end}, the end of the rank's own,")));
        }
        Ok(())
    }

    /// Rows of the table, or columns of the logits: what the rank has of all ranks'.
    pub(crate) const fn own(&self) -> u32 {
        match self.kind {
            RowKind::Gather | RowKind::GatherSum | RowKind::GatherWeighted => self.table,
            RowKind::Peak | RowKind::Gradient => self.columns,
            RowKind::Add | RowKind::Merge | RowKind::MergeAttention | RowKind::AppendPages => 0,
        }
    }

    /// The keys that problems of a kind have.
    fn keys(kind: RowKind) -> &'static [SpecKey<Self>] {
        let all = match kind {
            RowKind::Add => 0..0,
            RowKind::Gather => 0..1,
            RowKind::GatherSum | RowKind::GatherWeighted => 0..4,
            RowKind::Peak | RowKind::Gradient => 2..4,
            RowKind::Merge => 4..5,
            RowKind::MergeAttention => 5..6,
            RowKind::AppendPages => 5..10,
        };
        &KEYS[all]
    }

    /// The order of problems.
    fn rank(&self) -> impl Ord {
        let Self { kind, format, rows, columns, table, choices, first, limit, ranks, .. } = *self;
        let Self { heads, pages, keys, values, wide, .. } = *self;
        let of_heads = ([heads, pages, keys, values], wide);
        (kind, format.name(), [rows, columns, table, choices, first, limit, ranks], of_heads)
    }

    /// With what follows from the rank's own part.
    fn ended(self) -> Self {
        Self { limit: self.first.saturating_add(self.own()), ..self }
    }
}

/// Keys of a page, if nothing else is said.
const KEYS_OF_A_PAGE: u32 = 16;

/// Every key, in the order in which a problem is printed: those of tables, those of parts, that of statistics, and those of heads.
static KEYS: [SpecKey<RowProblem>; 10] = [
    SpecKey::by(
        "table",
        "a number of rows",
        &As(|of| of.table, |of, table| *of = RowProblem { table, ..*of }.ended()),
    ),
    SpecKey::at("choices", "a number of indices", &At(|of| &mut of.choices)),
    SpecKey::by(
        "first",
        "a number of rows or columns",
        &As(|of| of.first, |of, first| *of = RowProblem { first, ..*of }.ended()),
    ),
    SpecKey::at("limit", "a number of rows or columns", &At(|of| &mut of.limit)),
    SpecKey::at("ranks", "a number of ranks", &At(|of| &mut of.ranks)),
    SpecKey::at("heads", "a number of heads", &At(|of| &mut of.heads)),
    SpecKey::at("pages", "a number of pages", &At(|of| &mut of.pages)),
    SpecKey::at("keys", "a number of keys", &At(|of| &mut of.keys)),
    SpecKey::at("values", "a number of columns", &At(|of| &mut of.values)),
    SpecKey::at("wide", "on or off", &At(|of| &mut of.wide)),
];

impl fmt::Display for RowProblem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { kind, format, rows, columns, .. } = *self;
        let usual = Self { format, ..Self::new(kind, [rows, columns]) };
        write!(f, "{} {rows}", kind.name())?;
        if kind != RowKind::Merge {
            write!(f, "x{columns} {format}")?;
        }
        f.write_str(if *self == usual { "" } else { " " })?;
        words::write(Self::keys(kind), self, usual, f)
    }
}

impl FromStr for RowProblem {
    type Err = WordError;

    fn from_str(text: &str) -> Result<Self, WordError> {
        let (plain, others) = words::divided(text);
        let &[name, extents, ref format @ ..] = &plain[..] else {
            return Err(refused(
                "problem",
                text,
                "a kernel's name, extents and words, as `add 70x264 bf16`,",
            ));
        };
        let kind = RowKind::read(name).ok_or_else(|| refused("kernel", name, NAME))?;
        let (extents, format) = if kind == RowKind::Merge {
            let rows = u32::read(extents).ok_or_else(|| refused("extents", extents, "ROWS"))?;
            ([rows, 0], (Some(Format::F32), format))
        } else {
            let read = <[u32; 2]>::read(extents);
            let read = read.ok_or_else(|| refused("extents", extents, "ROWSxCOLUMNS"))?;
            match format {
                [] => (read, (Some(Format::Bf16), format)),
                [own, more @ ..] => (read, (Format::read(own), more)),
            }
        };
        let (Some(format), []) = format else {
            let last = plain.last().copied().unwrap_or_default();
            let formats =
                if kind == RowKind::Merge { "words such as ranks=4" } else { RowSpec::formats(kind) };
            return Err(refused("format", last, formats));
        };
        let (usual, keys) = (Self { format, ..Self::new(kind, extents) }, Self::keys(kind));
        if let (Some((key, value)), []) = (words::words(&others)?.first(), keys) {
            return Err(refused(key, value, format!("nothing after the format of {name}")));
        }
        let problem = words::read(keys, usual, &others)?;
        problem.check().map(|()| problem)
    }
}

impl Ord for RowProblem {
    fn cmp(&self, other: &Self) -> Ordering {
        self.rank().cmp(&other.rank())
    }
}

impl PartialOrd for RowProblem {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> RowProblem {
        text.parse().unwrap_or_else(|error| panic!("{text}: {error}"))
    }

    #[test]
    fn problems_read_back() {
        for (text, want) in [
            ("add 70x264 bf16", "add 70x264 bf16"),
            ("add 0x0", "add 0x0 bf16"),
            ("add 70x264 f16", "add 70x264 f16"),
            ("gather 9x6 f16 table=100", "gather 9x6 f16 table=100"),
            ("gather 9x8 bf16 table=9", "gather 9x8 bf16"),
            ("gather 0x8 bf16", "gather 0x8 bf16"),
            ("gather-sum 9x8 first=5 limit=14", "gather-sum 9x8 bf16 first=5"),
            ("gather-sum 9x8 limit=20", "gather-sum 9x8 bf16 limit=20"),
            (
                "limit=40 table=3 choices=0 gather-weighted 9x8 bf16 first=5",
                "gather-weighted 9x8 bf16 table=3 choices=0 first=5 limit=40",
            ),
            ("peak 9x0", "peak 9x0 bf16"),
            ("peak 9x64 f16 first=64 limit=256", "peak 9x64 f16 first=64 limit=256"),
            ("gradient 9x64 limit=128", "gradient 9x64 bf16 limit=128"),
            ("merge 9", "merge 9"),
            ("merge 9 ranks=4", "merge 9 ranks=4"),
            ("merge-attention 9x64 f32 heads=3", "merge-attention 9x64 f32 heads=3"),
            ("merge-attention 9x64 heads=1", "merge-attention 9x64 bf16"),
            ("append-pages 33x64 pages=3 keys=16 values=64 wide=off", "append-pages 33x64 bf16"),
            (
                "wide=on append-pages 9x576 f16 values=0 heads=1 pages=70 keys=64",
                "append-pages 9x576 f16 pages=70 keys=64 values=0 wide=on",
            ),
            ("gradient 4294967295x4294967288 bf16", "gradient 4294967295x4294967288 bf16"),
        ] {
            let problem = read(text);
            assert_eq!(problem.to_string(), want);
            assert_eq!(read(want), problem, "{text}");
        }
    }

    #[test]
    fn problems_are_in_order() {
        let texts =
            ["add 9x8 bf16", "add 9x16 bf16", "add 9x8 f16", "gather 1x8 bf16", "merge 1", "merge 1 ranks=2"];
        let problems = texts.map(read);
        assert!(problems.is_sorted() && problems.windows(2).all(|pair| pair[0] < pair[1]));
    }

    #[test]
    fn what_is_no_problem_is_refused() {
        for (text, words) in [
            ("", "a kernel's name, extents and words, as `add 70x264 bf16`, was needed"),
            ("add", "`problem=add`: a kernel's name"),
            ("norm 9x8", "`kernel=norm`: add, gather, gather-sum"),
            ("add 9", "`extents=9`: ROWSxCOLUMNS was needed"),
            ("add 9x8x8", "`extents=9x8x8`: ROWSxCOLUMNS was needed"),
            ("add 9x4294967296", "`extents=9x4294967296`: ROWSxCOLUMNS was needed"),
            ("merge 9x8", "`extents=9x8`: ROWS was needed"),
            ("add 9x8 f32", "`format=f32`: bf16 or f16 was needed"),
            ("add 9x8 quarter", "`format=quarter`: bf16 or f16 was needed"),
            ("add 9x8 f16 f16", "`format=f16`: bf16 or f16 was needed"),
            ("merge 9 f16", "`format=f16`: words such as ranks=4 was needed"),
            ("add 9x12", "`columns=12`: a multiple of 8 was needed"),
            ("gather 9x7", "`columns=7`: a multiple of 2 was needed"),
            ("gather-sum 9x6", "`columns=6`: a multiple of 8 was needed"),
            ("peak 9x260", "`columns=260`: a multiple of 8 was needed"),
            ("add 9x8 ranks=3", "`ranks=3`: nothing after the format of add was needed"),
            ("gather 9x8 limit=3", "`limit=3`: one of the keys table was needed"),
            ("gather 9x8 table=0", "`table=0`: at least 1, as its rows are copied, was needed"),
            ("gather-sum 9x8 table=many", "`table=many`: a number of rows was needed"),
            ("gather-sum 9x8 first=1 first=2", "`first=2`: `first` is given already"),
            (
                "gather-sum 9x8 table=20 limit=19",
                "`limit=19`: at least 20, the end of the rank's own, was needed",
            ),
            (
                "peak 9x8 first=4294967295",
                "`first=4294967295`: at most 4294967287, before 8 others, was needed",
            ),
            ("peak 9x8 table=3", "`table=3`: one of the keys first, limit was needed"),
            ("merge 9 ranks=0", "`ranks=0`: at least 1 was needed"),
            ("merge-attention 9x12", "`columns=12`: a multiple of 8 was needed"),
            ("merge-attention 9x8 e4m3", "`format=e4m3`: bf16, f16 or f32 was needed"),
            ("merge-attention 9x8 quarter", "`format=quarter`: bf16, f16 or f32 was needed"),
            ("merge-attention 9x8 keys=3", "`keys=3`: one of the keys heads was needed"),
            ("append-pages 9x8 values=4", "`values=4`: a multiple of 8 was needed"),
            (
                "append-pages 9x8 pages=65538 keys=65535",
                "`pages=65538`: at most 65536, of 65535 keys, was needed",
            ),
        ] {
            let error = text.parse::<RowProblem>().expect_err(text).to_string();
            assert!(error.contains(words), "{text}: {error}");
        }
    }

    /// What a text cannot say is refused too.
    #[test]
    fn fields_of_other_kinds_are_refused() {
        let [add, gather, merge] = ["add 9x8", "gather 9x8 table=3", "merge 9"].map(read);
        for (problem, words) in [
            (RowProblem { ranks: 2, ..add }, "`ranks=2`: 0, as always for add, was needed"),
            (RowProblem { table: 2, ..add }, "`table=2`: 0, as always for add, was needed"),
            (RowProblem { limit: 9, ..gather }, "`limit=9`: 3, as always for gather, was needed"),
            (RowProblem { choices: 2, ..gather }, "`choices=2`: 1, as always for gather, was needed"),
            (RowProblem { columns: 8, ..merge }, "`columns=8`: 0, as merge has none, was needed"),
            (
                RowProblem { format: Format::F16, ..merge },
                "`format=f16`: f32, as statistics have, was needed",
            ),
        ] {
            assert_eq!(problem.check().map_err(|error| error.to_string()), Err(words.to_owned()));
        }
    }
}
