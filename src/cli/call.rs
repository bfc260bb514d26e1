//! The GEMMs of a launch, as the options say them.

use crate::explore;
use collective::Form;
use kernel::{AnyGemm, GemmProblem, Request};

use crate::cli::Failure;
use crate::cli::options::Given;

/// The GEMMs of a launch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Launched {
    pub(crate) form: Form,
    /// The extents of each GEMM. For groups of rows M is 0, for groups along K K is 0, for a pointer array all are.
    pub(crate) one: GemmProblem,
    /// The GEMMs one by one, unless there is one, or a batch.
    pub(crate) groups: Vec<GemmProblem>,
    /// Number of GEMMs of a batch; 1 otherwise.
    pub(crate) batch: u32,
    /// Rows of the buffer of each group; 0 without buffers of one size.
    pub(crate) max_rows: u32,
}

/// The options that say a launch of several GEMMs.
pub(crate) const SEVERAL: [&str; 4] = ["batch", "rows", "k-groups", "group"];

/// The rows of the buffer that each group of `rows` has, if --max-rows says them.
///
/// # Errors
/// A group has more.
pub(crate) fn max_rows(given: &Given, rows: &[u32]) -> Result<Option<u32>, Failure> {
    let max_rows = given.get("max-rows");
    match rows.iter().max().zip(max_rows) {
        Some((most, max)) if *most > max => {
            Err(usage!("--rows has {most}, and --max-rows is {max}: a group has at most --max-rows rows"))
        }
        _ => Ok(max_rows),
    }
}

/// The sum of the extents that an option gives to groups.
pub(crate) fn total(option: &str, of: &str, extents: impl Iterator<Item = u32>) -> Result<u32, Failure> {
    let all: u64 = extents.map(u64::from).sum();
    u32::try_from(all).ok().filter(|&all| all > 0 && all <= i32::MAX as u32).ok_or_else(|| {
        usage!("{option} has {all}{of} in all; 1 to 2147483647 were needed, in groups of any size")
    })
}

impl Launched {
    /// GEMMs of one shape.
    pub(crate) fn shape(one: GemmProblem, batch: Option<u32>) -> Self {
        let form = if batch.is_some() { Form::Batched } else { Form::Single };
        Self { form, one, groups: Vec::new(), batch: batch.unwrap_or(1), max_rows: 0 }
    }

    /// Groups of rows, each with a B of its own.
    pub(crate) fn of_rows(rows: &[u32], [n, k]: [u32; 2]) -> Self {
        let one = GemmProblem { m: 0, n, k };
        let groups = rows.iter().map(|&m| GemmProblem { m, ..one }).collect();
        Self { form: Form::GroupedContiguous, groups, ..Self::shape(one, None) }
    }

    /// Groups of these lengths along K, each with a D of its own.
    pub(crate) fn of_lengths(lengths: &[u32], [m, n]: [u32; 2]) -> Self {
        let one = GemmProblem { m, n, k: 0 };
        let groups = lengths.iter().map(|&k| GemmProblem { k, ..one }).collect();
        Self { form: Form::KGrouped, groups, ..Self::shape(one, None) }
    }

    /// Takes the options. `missing` is the extent that is not given, by its name.
    ///
    /// # Errors
    /// An extent is missing, or there are more rows in all, or K, than can be numbered.
    pub(crate) fn read(
        given: &Given,
        missing: impl Fn(&str) -> Result<u32, Failure>,
    ) -> Result<Self, Failure> {
        let extent = |name: &str| given.get(name).map_or_else(|| missing(name), Ok);
        Ok(match given.first(&SEVERAL) {
            Some("rows") => {
                let rows = given.list::<u32>("rows");
                let contiguous = Self::of_rows(&rows, [extent("n")?, extent("k")?]);
                match max_rows(given, &rows)? {
                    Some(max_rows) => Self { form: Form::GroupedMasked, max_rows, ..contiguous },
                    None => contiguous,
                }
            }
            Some("k-groups") => {
                Self::of_lengths(&given.list::<u32>("k-groups"), [extent("m")?, extent("n")?])
            }
            Some("group") => {
                let launched = Self::shape(GemmProblem { m: 0, n: 0, k: 0 }, None);
                Self { form: Form::PointerArray, groups: given.list("group"), ..launched }
            }
            _ => {
                let one = GemmProblem { m: extent("m")?, n: extent("n")?, k: extent("k")? };
                Self::shape(one, given.get("batch"))
            }
        })
    }

    /// The options that say a launch of a form.
    pub(crate) const fn options(form: Form) -> &'static str {
        match form {
            Form::Single => "--m, --n and --k",
            Form::Batched => "--batch",
            Form::GroupedContiguous => "--rows",
            Form::GroupedMasked => "--rows and --max-rows",
            Form::KGrouped => "--k-groups",
            Form::PointerArray => "--group",
        }
    }

    /// Fails for a kernel of another form.
    pub(crate) fn suits(&self, name: &str, form: Form) -> Result<(), Failure> {
        // One GEMM is a batch of one.
        if form == self.form || (form, self.form) == (Form::Batched, Form::Single) {
            return Ok(());
        }
        let ([option, given], [of, is]) =
            ([form, self.form].map(Self::options), [form, self.form].map(Form::words));
        Err(usage!("kernel {name} computes {of}, and {given} means {is}: give {option}, or another kernel"))
    }

    /// The extents of the whole: the rows of all groups, or their K.
    pub(crate) fn whole(&self) -> Result<GemmProblem, Failure> {
        let sum = |of: &dyn Fn(&GemmProblem) -> u32| self.groups.iter().map(|one| u64::from(of(one))).sum();
        let (flag, what, sum): (_, _, u64) = match self.form {
            Form::GroupedContiguous => ("--rows", "rows", sum(&|one| one.m)),
            Form::GroupedMasked => {
                ("--rows and --max-rows", "rows", self.groups.len() as u64 * u64::from(self.max_rows))
            }
            Form::KGrouped => ("--k-groups", "along K", sum(&|one| one.k)),
            Form::Single | Form::Batched | Form::PointerArray => return Ok(self.one),
        };
        let sum = u32::try_from(sum)
            .ok()
            .filter(|&sum| sum <= i32::MAX as u32)
            .ok_or_else(|| usage!("{flag}: {sum} {what} in all, at most {} are possible", i32::MAX))?;
        Ok(match self.form {
            Form::KGrouped => GemmProblem { k: sum, ..self.one },
            Form::Single
            | Form::Batched
            | Form::GroupedContiguous
            | Form::GroupedMasked
            | Form::PointerArray => GemmProblem { m: sum, ..self.one },
        })
    }

    /// The request for such a launch, with the extents of [`Self::whole`] or of one GEMM.
    pub(crate) fn request<'a>(&'a self, request: Request<'a>) -> Request<'a> {
        explore::request(self.form, (self.batch, self.max_rows), &self.groups, request)
    }

    /// The GEMMs in words.
    pub(crate) fn described(&self) -> String {
        let (GemmProblem { m, n, k }, count) = (self.one, self.groups.len());
        let all = |of: fn(&GemmProblem) -> u32| self.groups.iter().map(|one| u64::from(of(one))).sum::<u64>();
        match self.form {
            Form::Single => format!("{m} x {n} x {k}"),
            Form::Batched => format!("{} of {m} x {n} x {k}", self.batch),
            Form::GroupedContiguous | Form::GroupedMasked => {
                format!("{count} groups, {} rows in all, N {n}, K {k}", all(|one| one.m))
            }
            Form::KGrouped => {
                format!("{count} groups along K, K {} in all, {m} x {n} each,", all(|one| one.k))
            }
            Form::PointerArray => format!("{count} of any shapes"),
        }
    }

    /// The GEMMs one by one.
    pub(crate) fn products(&self) -> Vec<GemmProblem> {
        match self.form {
            Form::Single | Form::Batched => vec![self.one; self.batch as usize],
            Form::GroupedContiguous | Form::GroupedMasked | Form::KGrouped | Form::PointerArray => {
                self.groups.clone()
            }
        }
    }

    /// Fails unless each group along K begins at a multiple of the kernel's tile K or at the end of K.
    pub(crate) fn begin_at_tiles(&self, entry: &AnyGemm) -> Result<(), Failure> {
        let (tile, end) = (entry.plan().mainloop.tile[2], self.whole()?.k);
        let mut begin = 0;
        for group in &self.groups {
            if begin < end && !u32::is_multiple_of(begin, tile) {
                refuse!(
                    "--k-groups: a group begins at K = {begin}, a multiple of tile K = {tile} was needed for kernel {}",
                    entry.name()
                );
            }
            begin += group.k;
        }
        Ok(())
    }

    /// The extents that a request begins with, before it is one of several GEMMs.
    pub(crate) fn extents(&self) -> Result<GemmProblem, Failure> {
        let whole = self.whole()?;
        Ok(if self.form == Form::GroupedMasked { self.one } else { whole })
    }
}
