//! Kernels over rows as a family: the call of a problem, the kernels for it, and a prediction.

use collective::MatrixRef;
use collective::heads::HeadsRef;
use kernel::{Expected, Family, Inputs, Machine, Predicted, alike, cheapest};

use crate::add::Added;
use crate::common::{PER_SM, THREADS};
use crate::expected::expected;
use crate::gather::Gathered;
use crate::loss::{Differentiated, Logits, Merged, Peaked};
use crate::pages::AppendedPages;
use crate::problem::RowProblem;
use crate::rows::{RowCall, Rows};
use crate::spec::{RowKind, RowSpec};
use crate::states::{MergedAttention, RowMergeAttention};

impl RowProblem {
    /// Columns, choices and ranks, and which part the rank has of all ranks' rows or columns.
    fn counts(&self) -> [f64; 4] {
        let part = f64::from(self.own()) / f64::from(self.limit.max(1));
        [self.columns.into(), self.choices.into(), self.ranks.into(), part]
    }

    /// Heads, columns of V, and bytes of an element and of a slot.
    fn of_heads(&self) -> [f64; 4] {
        let slot = if self.wide { 8.0 } else { 4.0 };
        [self.heads.into(), self.values.into(), self.format.bytes().into(), slot]
    }

    /// Bytes per row that the kernel reads and writes, each once. Of a table that the rank has a part of, as many rows
    /// are read as there are indices of that part, if all indices are equally likely.
    fn bytes(&self) -> f64 {
        let [columns, choices, ranks, part] = self.counts();
        let [heads, values, bytes, slot] = self.of_heads();
        let row = 2.0 * columns;
        match self.kind {
            RowKind::Add => 3.0 * row,
            RowKind::Gather => 2.0 * row + 4.0,
            RowKind::GatherSum => row + choices * (part * row + 4.0),
            RowKind::GatherWeighted => row + choices * (part * row + 8.0),
            RowKind::Peak => row + 20.0,
            RowKind::Merge => 16.0 * ranks + 8.0,
            RowKind::Gradient => 2.0 * row + 8.0,
            RowKind::MergeAttention => heads * (3.0 * columns * bytes + 12.0),
            RowKind::AppendPages => heads * 2.0 * bytes * (columns + values) + slot,
        }
    }

    /// Operations per row: one for each element that is copied, added, compared or multiplied, and for each exponential
    /// or logarithm; a multiplication that is added is two.
    fn operations(&self) -> f64 {
        let [columns, choices, ranks, _] = self.counts();
        let [heads, values, ..] = self.of_heads();
        match self.kind {
            RowKind::Add | RowKind::Gather => columns,
            RowKind::GatherSum => choices * columns,
            RowKind::GatherWeighted => 2.0 * choices * columns,
            // The largest; a difference, its exponential, and the sum of these. Or the factor.
            RowKind::Peak => 4.0 * columns,
            RowKind::Gradient => 3.0 * columns,
            // Two largest; a difference, its exponential, and a product that is added. Then a logarithm and two sums.
            RowKind::Merge => 6.0 * ranks + 3.0,
            // Two products and their sum; of a row's weights, the same as for two ranks, and two quotients.
            RowKind::MergeAttention => heads * (3.0 * columns + 17.0),
            RowKind::AppendPages => heads * (columns + values),
        }
    }

    /// Predicted microseconds of a kernel: a launch, and the longer of what DRAM takes for all rows and what the busiest
    /// SM takes for its own. An SM loads as much as its CTAs ask for, up to what it can. Not fitted to measurements.
    fn predict(&self, spec: &RowSpec, machine: &Machine) -> f64 {
        let lanes = RowMergeAttention(self.format).lanes(self.columns);
        let rows_of_cta = if self.kind == RowKind::Merge {
            THREADS
        } else if self.kind == RowKind::MergeAttention {
            (THREADS / lanes).div_ceil(self.heads.max(1))
        } else {
            1
        };
        let ctas = self.rows.div_ceil(rows_of_cta).div_ceil(machine.multiprocessors.max(1));
        let rows = f64::from(ctas) * f64::from(rows_of_cta.min(self.rows));
        // In pieces of 16 or 4 bytes.
        let copied = machine.copied[if spec.words { 2 } else { 0 }];
        let rate = machine.ingest.min(copied * f64::from(ctas.clamp(1, PER_SM)));
        let of_sm = rows * self.bytes() / rate;
        machine.launch + of_sm.max(f64::from(self.rows) * self.bytes() / machine.dram)
    }
}

impl Family for Rows {
    const NAME: &'static str = "rows";
    const VERSIONED: bool = true;
    type Request<'r> = RowProblem;
    type Problem = RowProblem;
    type Spec = RowSpec;
    type Call = RowCall;

    fn of_spec(spec: &RowSpec) -> Result<Self, String> {
        Self::new(spec).map_err(|error| error.to_string())
    }

    fn spec(&self) -> Option<RowSpec> {
        Some(Self::spec(self))
    }

    /// A packed call. The factor of a gradient is that of the losses' mean.
    fn call(request: &RowProblem) -> RowCall {
        let RowProblem { kind, rows, columns, table, choices, first, limit, ranks, .. } = *request;
        let matrix = MatrixRef::new(0, columns.into());
        let of = Logits { rows, columns, logits: matrix, first, limit, targets: 0 };
        match kind {
            RowKind::Add => RowCall::Add(Added { rows, columns, x: matrix, d: matrix }),
            RowKind::Gather | RowKind::GatherSum | RowKind::GatherWeighted => {
                let table = (matrix, table);
                let (d, none) = (matrix, Gathered::default());
                RowCall::Gather(Gathered { rows, columns, choices, table, first, limit, d, ..none })
            }
            RowKind::Peak => RowCall::Peak(Peaked { of, to: 0 }),
            RowKind::Merge => RowCall::Merge(Merged { rows, ranks, ..Merged::default() }),
            RowKind::Gradient => {
                let factor = 1.0 / rows.max(1) as f32;
                RowCall::Gradient(Differentiated { of, log_sum_exp: 0, factor, to: matrix })
            }
            RowKind::MergeAttention => {
                let heads = request.heads;
                let o = HeadsRef::heads_first(0, [heads, rows, columns]);
                let shape = [1, heads, rows, columns];
                RowCall::MergeAttention(MergedAttention {
                    shape,
                    results: [o; 2],
                    o,
                    ..MergedAttention::default()
                })
            }
            RowKind::AppendPages => {
                let RowProblem { heads, pages, keys, values, wide, .. } = *request;
                let columns = [columns, values];
                let of = |d| HeadsRef::length_first(0, [heads, rows, d]);
                let cache = |d| HeadsRef::heads_first(0, [heads, keys, d]);
                RowCall::AppendPages(AppendedPages {
                    rows,
                    heads,
                    columns,
                    pages: [pages, keys],
                    new: columns.map(of),
                    caches: columns.map(cache),
                    slots: 0,
                    wide,
                })
            }
        }
    }

    fn ranked(request: &RowProblem, machine: &Machine, most: usize) -> Result<Vec<Predicted<Self>>, String> {
        request.check().map_err(|error| error.to_string())?;
        cheapest(request.specs(), most, |kernel: &Self| request.predict(&Self::spec(kernel), machine))
    }

    fn operations(request: &RowProblem) -> f64 {
        f64::from(request.rows) * request.operations()
    }

    fn expect(
        &self,
        request: &RowProblem,
        _: &RowCall,
        inputs: &Inputs<'_>,
    ) -> Result<Vec<Expected>, String> {
        Ok(expected(request, inputs))
    }

    fn numbers(&self) -> Vec<[String; 3]> {
        let RowSpec { kind, words, .. } = Self::spec(self);
        let bytes = if words { 4 } else { 16 };
        // How many rows of heads a CTA has depends on their length.
        let of_heads = matches!(kind, RowKind::MergeAttention | RowKind::AppendPages);
        let rows = (!of_heads).then_some(if kind == RowKind::Merge { 128 } else { 1 });
        let bytes = ["bytes at a time".to_owned(), bytes.to_string(), "that a thread loads".to_owned()];
        let rows = rows.map(|rows| ["rows at a time".to_owned(), rows.to_string(), "of a CTA".to_owned()]);
        [bytes].into_iter().chain(rows).collect()
    }

    fn serves(&self, request: &RowProblem) -> Result<(), String> {
        let (own, specs) = (Self::spec(self), request.specs().collect::<Vec<_>>());
        let words = |of: &RowSpec| if of.words { "on" } else { "off" };
        let first = specs.first().filter(|_| !specs.contains(&own));
        alike([
            ("name", own.kind.name(), request.kind.name()),
            ("format", own.format.name(), request.format.name()),
            ("words", words(&own), words(first.unwrap_or(&own))),
        ])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> RowProblem {
        text.parse().unwrap_or_else(|error| panic!("{text}: {error}"))
    }

    /// Of rows of any length there are two kernels that copy; of others one each.
    #[test]
    fn kernels_of_a_problem_are_ranked() {
        for (text, want) in [
            ("add 70x264", &["kernel=add"][..]),
            ("gather 70x264 f16", &["kernel=gather format=f16", "kernel=gather format=f16 words=on"]),
            ("gather 70x6", &["kernel=gather words=on"]),
            ("gather-weighted 70x264", &["kernel=gather-weighted"]),
            ("peak 70x264 f16", &["kernel=peak format=f16"]),
            ("merge 70 ranks=2", &["kernel=merge"]),
            ("gradient 0x264", &["kernel=gradient"]),
            ("merge-attention 70x264 f32 heads=3", &["kernel=merge-attention format=f32"]),
            ("append-pages 70x264 values=0", &["kernel=append-pages"]),
        ] {
            let problem = read(text);
            let ranked =
                Rows::ranked(&problem, &Machine::h200(), 12).unwrap_or_else(|error| panic!("{error}"));
            let specs: Vec<_> = ranked.iter().map(|of| Rows::spec(&of.kernel).to_string()).collect();
            assert_eq!(specs, want, "{text}");
            for Predicted { kernel, microseconds, .. } in &ranked {
                assert!(microseconds.is_finite() && *microseconds > 0.5, "{text}: {microseconds}");
                assert_eq!(kernel.serves(&problem), Ok(()), "{text}");
            }
        }
        let illegal = RowProblem { ranks: 3, ..read("add 70x264") };
        let refused = Rows::ranked(&illegal, &Machine::h200(), 12).map(drop);
        assert_eq!(refused, Err("`ranks=3`: 0, as always for add, was needed".to_owned()));
    }

    /// Large problems take what DRAM takes for their bytes; small ones little more than a launch.
    #[test]
    fn predictions_are_those_of_bytes() {
        let machine = Machine::h200();
        for (text, bytes) in [
            ("add 65536x8192", 3.0 * 65536.0 * 16384.0),
            ("gather 65536x8192", 65536.0 * (2.0 * 16384.0 + 4.0)),
            ("gather-sum 65536x8192 choices=4 limit=131072", 65536.0 * (3.0 * 16384.0 + 16.0)),
            ("merge 16777216 ranks=8", 16_777_216.0 * 136.0),
            ("merge-attention 1048576x128 heads=8", 8.0 * 1_048_576.0 * 780.0),
            ("append-pages 1048576x128 heads=8 wide=on", 1_048_576.0 * (8.0 * 1024.0 + 8.0)),
        ] {
            let ranked = Rows::ranked(&read(text), &machine, 1).unwrap_or_else(|error| panic!("{error}"));
            let (found, want) = (ranked[0].microseconds - machine.launch, bytes / machine.dram);
            assert!((found / want - 1.0).abs() < 1e-9, "{text}: {found} and {want}");
        }
        let small = Rows::ranked(&read("add 4x64"), &machine, 1).unwrap_or_else(|error| panic!("{error}"));
        assert!(small[0].microseconds < machine.launch + 0.1, "{small:?}");
    }

    #[test]
    fn other_kernels_do_not_serve() {
        for (problem, spec, words) in [
            ("add 9x8", "kernel=peak", "the kernel's name is peak, add was needed, as the problem says"),
            ("add 9x8", "kernel=add format=f16", "the kernel's format is f16, bf16 was needed"),
            ("gather 9x6", "kernel=gather", "the kernel's words is off, on was needed"),
        ] {
            let kernel = Rows::new(&spec.parse().expect("a spec")).expect("legal");
            let refused = kernel.serves(&read(problem));
            assert!(refused.as_ref().is_err_and(|error| error.contains(words)), "{refused:?}");
        }
        let times = [("kernel=gather", 1.0), ("kernel=gather words=on", 2.0)];
        let times = times.map(|(spec, time)| (spec.parse().expect("a spec"), time));
        for (problem, want) in [("gather 9x8", Some(1.0)), ("gather 9x6", Some(2.0)), ("add 9x8", None)] {
            let found = Rows::measured(&read(problem), &Machine::h200(), &times);
            assert_eq!(found.map(|of| of.microseconds), want, "{problem}");
        }
    }

    #[test]
    fn operations_are_counted() {
        for (text, want) in [
            ("add 9x8", 72.0),
            ("gather 9x8", 72.0),
            ("gather-sum 9x8 choices=3", 216.0),
            ("gather-weighted 9x8 choices=3", 432.0),
            ("peak 9x8", 288.0),
            ("merge 9 ranks=2", 135.0),
            ("gradient 9x8", 216.0),
            ("merge-attention 9x8 heads=2", 738.0),
            ("append-pages 9x8 values=16 heads=2", 432.0),
        ] {
            assert_eq!(Rows::operations(&read(text)), want, "{text}");
        }
    }
}
