//! Any kernel over rows, as one kernel with one kind of call.

use collective::Format;
use kernel::operands::Visit;
use kernel::words::WordError;
use kernel::{Kernel, Launch, LaunchError, Program};
use ptx::VerifyError;

use crate::add::{Added, RowAdd};
use crate::gather::{Gathered, Gathering, RowGather};
use crate::loss::{Differentiated, Merged, Peaked, RowGradient, RowMerge, RowPeak};
use crate::pages::{AppendedPages, RowAppendPages};
use crate::spec::{RowKind, RowSpec};
use crate::states::{MergedAttention, RowMergeAttention};

/// A kernel over rows.
///
/// ```
/// use kernel::{Kernel, MatrixRef};
/// use rows::{Added, RowCall, Rows};
///
/// let kernel = Rows::new(&"kernel=add format=f16".parse()?)?;
/// let [x, d] = [0x1000, 0x2000].map(|address| MatrixRef::new(address, 64));
/// let call = RowCall::Add(Added { rows: 3, columns: 64, x, d });
/// assert_eq!(kernel.launch(&call, 132)?.map(|launch| launch.grid.ctas), Some([3, 1, 1]));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Rows {
    /// [`RowKind::Add`].
    Add(RowAdd),
    /// [`RowKind::Gather`] and its sums.
    Gather(RowGather),
    /// [`RowKind::Peak`].
    Peak(RowPeak),
    /// [`RowKind::Merge`].
    Merge(RowMerge),
    /// [`RowKind::Gradient`].
    Gradient(RowGradient),
    /// [`RowKind::MergeAttention`].
    MergeAttention(RowMergeAttention),
    /// [`RowKind::AppendPages`].
    AppendPages(RowAppendPages),
}

/// A call of the kernel with the same name.
#[derive(Clone, Copy, Debug)]
pub enum RowCall {
    /// Of [`RowAdd`].
    Add(Added),
    /// Of [`RowGather`].
    Gather(Gathered),
    /// Of [`RowPeak`].
    Peak(Peaked),
    /// Of [`RowMerge`].
    Merge(Merged),
    /// Of [`RowGradient`].
    Gradient(Differentiated),
    /// Of [`RowMergeAttention`].
    MergeAttention(MergedAttention),
    /// Of [`RowAppendPages`].
    AppendPages(AppendedPages),
}

impl Rows {
    /// The kernel of a spec.
    ///
    /// # Errors
    /// The first field of the spec that is illegal.
    pub fn new(spec: &RowSpec) -> Result<Self, WordError> {
        spec.check()?;
        let RowSpec { kind, format, words } = *spec;
        let gather = |how| Self::Gather(RowGather { format, how });
        Ok(match kind {
            RowKind::Add => Self::Add(RowAdd { format }),
            RowKind::Gather => gather(if words { Gathering::Words } else { Gathering::Copied }),
            RowKind::GatherSum => gather(Gathering::Summed),
            RowKind::GatherWeighted => gather(Gathering::Weighted),
            RowKind::Peak => Self::Peak(RowPeak(format)),
            RowKind::Merge => Self::Merge(RowMerge),
            RowKind::Gradient => Self::Gradient(RowGradient(format)),
            RowKind::MergeAttention => Self::MergeAttention(RowMergeAttention(format)),
            RowKind::AppendPages => Self::AppendPages(RowAppendPages(format)),
        })
    }

    /// The kernel as plain data.
    pub fn spec(&self) -> RowSpec {
        let (kind, format) = match *self {
            Self::Add(RowAdd { format }) => (RowKind::Add, format),
            Self::Gather(RowGather { format, how }) => match how {
                Gathering::Copied | Gathering::Words => (RowKind::Gather, format),
                Gathering::Summed => (RowKind::GatherSum, format),
                Gathering::Weighted => (RowKind::GatherWeighted, format),
            },
            Self::Peak(RowPeak(format)) => (RowKind::Peak, format),
            Self::Merge(RowMerge) => (RowKind::Merge, Format::F32),
            Self::Gradient(RowGradient(format)) => (RowKind::Gradient, format),
            Self::MergeAttention(RowMergeAttention(format)) => (RowKind::MergeAttention, format),
            Self::AppendPages(RowAppendPages(format)) => (RowKind::AppendPages, format),
        };
        let words = matches!(self, Self::Gather(RowGather { how: Gathering::Words, .. }));
        RowSpec { kind, format, words }
    }
}

impl Kernel<RowCall> for Rows {
    fn program(&self) -> Result<Program, VerifyError> {
        match self {
            Self::Add(of) => of.program(),
            Self::Gather(of) => of.program(),
            Self::Peak(of) => of.program(),
            Self::Merge(of) => of.program(),
            Self::Gradient(of) => of.program(),
            Self::MergeAttention(of) => of.program(),
            Self::AppendPages(of) => of.program(),
        }
    }

    fn launch(&self, call: &RowCall, resident: u32) -> Result<Option<Launch>, LaunchError> {
        match (self, call) {
            (Self::Add(of), RowCall::Add(call)) => of.launch(call, resident),
            (Self::Gather(of), RowCall::Gather(call)) => of.launch(call, resident),
            (Self::Peak(of), RowCall::Peak(call)) => of.launch(call, resident),
            (Self::Merge(of), RowCall::Merge(call)) => of.launch(call, resident),
            (Self::Gradient(of), RowCall::Gradient(call)) => of.launch(call, resident),
            (Self::MergeAttention(of), RowCall::MergeAttention(call)) => of.launch(call, resident),
            (Self::AppendPages(of), RowCall::AppendPages(call)) => of.launch(call, resident),
            _ => {
                let (own, other) = (self.spec().kind.name(), call.name());
                let reason = format!("the call is one of {other}, one of {own} was needed");
                Err(LaunchError::Problem { reason })
            }
        }
    }

    fn total_work(&self, call: &RowCall) -> u128 {
        match (self, call) {
            (Self::Add(of), RowCall::Add(call)) => of.total_work(call),
            (Self::Gather(of), RowCall::Gather(call)) => of.total_work(call),
            (Self::Peak(of), RowCall::Peak(call)) => of.total_work(call),
            (Self::Merge(of), RowCall::Merge(call)) => of.total_work(call),
            (Self::Gradient(of), RowCall::Gradient(call)) => of.total_work(call),
            (Self::MergeAttention(of), RowCall::MergeAttention(call)) => of.total_work(call),
            (Self::AppendPages(of), RowCall::AppendPages(call)) => of.total_work(call),
            _ => 0,
        }
    }

    /// Of another kernel's call it visits nothing: [`launch`](Self::launch) refuses it.
    fn visit(&self, call: &mut RowCall, visit: &mut dyn Visit) {
        match (self, call) {
            (Self::Add(of), RowCall::Add(call)) => of.visit(call, visit),
            (Self::Gather(of), RowCall::Gather(call)) => of.visit(call, visit),
            (Self::Peak(of), RowCall::Peak(call)) => of.visit(call, visit),
            (Self::Merge(of), RowCall::Merge(call)) => of.visit(call, visit),
            (Self::Gradient(of), RowCall::Gradient(call)) => of.visit(call, visit),
            (Self::MergeAttention(of), RowCall::MergeAttention(call)) => of.visit(call, visit),
            (Self::AppendPages(of), RowCall::AppendPages(call)) => of.visit(call, visit),
            _ => {}
        }
    }
}

impl RowCall {
    /// What its kernel is called.
    const fn name(&self) -> &'static str {
        match self {
            Self::Add(_) => "add",
            Self::Gather(_) => "gather",
            Self::Peak(_) => "peak",
            Self::Merge(_) => "merge",
            Self::Gradient(_) => "gradient",
            Self::MergeAttention(_) => "merge-attention",
            Self::AppendPages(_) => "append-pages",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kernels_have_their_specs() {
        for kind in RowKind::all() {
            for format in [Format::Bf16, Format::F16, Format::F32] {
                for words in [false, true] {
                    let spec = RowSpec { kind, format, words };
                    match Rows::new(&spec) {
                        Ok(kernel) => assert_eq!(kernel.spec(), spec),
                        Err(error) => assert_eq!(spec.check(), Err(error)),
                    }
                }
            }
        }
    }

    #[test]
    fn another_kernels_call_is_refused() {
        let call = RowCall::Merge(Merged::default());
        for kind in RowKind::all().filter(|kind| *kind != RowKind::Merge) {
            let kernel = Rows::new(&RowSpec::new(kind)).expect("legal");
            let refused = kernel.launch(&call, 132).map_err(|error| error.to_string());
            let words = format!("the call is one of merge, one of {} was needed", kind.name());
            assert!(refused.as_ref().is_err_and(|error| error.contains(&words)), "{refused:?}");
        }
    }
}
