//! A kernel as the proof sees it: a program and its problems.

use core::ops::Deref;

use kernel::{AnyGemm, Buffer, Call, GemmProblem, Launch, LaunchError, Program};
use ptx::{Function, VerifyError};

use super::trial::{self, Case};

/// A kernel of the proof.
pub(super) trait Subject: Send + Sync {
    /// The name in the tables.
    fn name(&self) -> &str;

    /// The unbroken program.
    fn program(&self) -> Result<Program, VerifyError>;

    /// The problems that the program and its mutants run on.
    fn cases(&self, function: &Function) -> Result<Vec<Case>, String>;
}

/// A GEMM, called as a plain one, whatever its epilogue is. A fused one has the conversion of a plain call to a
/// call of its tree.
pub(super) struct Gemm {
    gemm: AnyGemm,
    tree: Option<Tree>,
}

/// What a tree needs in addition to the matrices of a GEMM.
pub(super) struct Tree {
    /// Bytes of memory that the tree writes in addition to D. They are after the kernel's own workspace, and
    /// zero at first.
    pub(super) more: Box<dyn Fn(GemmProblem) -> u64 + Send + Sync>,
    /// Makes the launch of a call, given the address of those bytes.
    pub(super) launch: Box<Launches>,
}

type Launches = dyn Fn(&AnyGemm, &Call, u64, u32) -> Result<Option<Launch>, LaunchError> + Send + Sync;

impl Gemm {
    /// A kernel with a tree.
    pub(super) fn fused(gemm: AnyGemm, tree: Tree) -> Self {
        Self { gemm, tree: Some(tree) }
    }

    /// Whether the epilogue is the linear one, which allows C and D to be the same matrix.
    pub(super) fn is_linear(&self) -> bool {
        self.tree.is_none()
    }

    /// Bytes of the kernel's own workspace, rounded up to the begin of the tree's memory.
    fn own(&self, call: &Call, resident: u32) -> u64 {
        self.gemm.workspace(call, resident).next_multiple_of(256)
    }

    /// Bytes of the kernel's workspace, including the memory that its tree writes.
    pub(super) fn workspace(&self, call: &Call, resident: u32) -> u64 {
        match &self.tree {
            Some(tree) => self.own(call, resident) + (tree.more)(call.problem),
            None => self.gemm.workspace(call, resident),
        }
    }

    /// The grid and the arguments of a call.
    pub(super) fn launch(&self, call: &Call, resident: u32) -> Result<Option<Launch>, LaunchError> {
        let Some(tree) = &self.tree else { return self.gemm.launch(call, resident) };
        let begin = call.workspace.map_or(0, |workspace| workspace.address);
        // The tree's memory is none of the kernel's workspace.
        let bytes = self.gemm.workspace(call, resident);
        let workspace = (bytes > 0).then(|| Buffer::new(begin, bytes));
        let call = Call { workspace, ..*call };
        (tree.launch)(&self.gemm, &call, begin + self.own(&call, resident), resident)
    }
}

impl From<AnyGemm> for Gemm {
    fn from(gemm: AnyGemm) -> Self {
        Self { gemm, tree: None }
    }
}

impl Deref for Gemm {
    type Target = AnyGemm;

    fn deref(&self) -> &AnyGemm {
        &self.gemm
    }
}

impl Subject for Gemm {
    fn name(&self) -> &str {
        self.gemm.name()
    }

    fn program(&self) -> Result<Program, VerifyError> {
        self.gemm.program()
    }

    fn cases(&self, function: &Function) -> Result<Vec<Case>, String> {
        trial::cases(self, function)
    }
}
