//! The kernel's program, and the launch of a call: what is checked of it.

use collective::heads::HeadsRef;
use kernel::operands::Visit;
use kernel::{
    Buffer, Kernel, Launch, LaunchError, Program, check_accessed, check_heads, check_packed, check_pages,
};
use ptx::VerifyError;
use ptx::abi::Grid;

use crate::call::AttentionCall;
use crate::emit;
use crate::kernel::Attention;
use crate::order::blocks_seen;
use crate::problem::{AttentionProblem, refused};
use crate::spec::{AttentionSpec, Lengths};

impl Kernel<AttentionCall> for Attention {
    fn program(&self) -> Result<Program, VerifyError> {
        let plan = &self.plan;
        Program::of(self, plan.cta.entry(self.name()), |f| {
            emit::emit(f, plan, &*self.scores);
        })
    }

    fn launch(&self, call: &AttentionCall, resident: u32) -> Result<Option<Launch>, LaunchError> {
        call.problem.check()?;
        self.check_shares(call)?;
        call.check_arguments(&*self.scores)?;
        if !self.launches(call) {
            return Ok(None);
        }
        let page = self.plan.spec.pages;
        if self.plan.spec.lengths == Lengths::Packed {
            check_packed(&call.packed, if page.is_some() { 1 } else { 2 })?;
        }
        page.map_or(Ok(()), |page| check_pages(&call.pages, page, call.problem.keys))?;
        self.tensors(&mut call.clone()).iter().try_for_each(check_heads)?;
        // Tables, factors and sums, too.
        check_accessed(self, call, |of| u64::from(of.bits / 8))?;
        Buffer::workspace_address(call.workspace, self.workspace(call))?;
        let (filled, ctas) = self.filled(call, resident)?;
        let grid = Grid { ctas: [ctas, 1, 1] };
        Launch::new(grid, |visit| self.interface(&mut call.clone(), Some(&filled), visit)).map(Some)
    }

    fn workspace(&self, call: &AttentionCall, _slots: u32) -> u64 {
        Self::workspace(self, call)
    }

    fn total_work(&self, call: &AttentionCall) -> u128 {
        let AttentionProblem { queries, keys, .. } = call.problem;
        let AttentionSpec { tile: [rows, block], mask, pack, .. } = self.plan.spec;
        let tiles = self.tiles(call);
        let seen = blocks_seen(mask, &call.counts, [queries, keys], [rows / pack, block]);
        // A part of a tile stores as a tile does.
        tiles.whole() * (seen + u128::from(tiles.parts))
    }

    fn lend_workspace(&self, call: &mut AttentionCall, workspace: Option<Buffer>) {
        call.workspace = workspace;
    }

    fn visit(&self, call: &mut AttentionCall, visit: &mut dyn Visit) {
        self.interface(call, None, visit);
    }
}

impl Attention {
    /// Checks that a tile has rows for the heads that share K and V, and that there is no V of its own with latent attention.
    fn check_shares(&self, call: &AttentionCall) -> Result<(), LaunchError> {
        let ([heads, shared], pack) = (call.problem.heads, self.plan.spec.pack);
        let latent = self.plan.spec.is_latent();
        let too_many = pack > 1 && u64::from(heads) > u64::from(shared) * u64::from(pack);
        if too_many && (!latent || !(heads / shared).is_multiple_of(pack)) {
            let multiple = if latent { ", or a multiple of that," } else { "" };
            return refused(format!(
                "{heads} heads of queries and {shared} of keys were given, at most {pack} times as many of queries{multiple} were needed by pack={pack}"
            ));
        }
        if latent && call.v != HeadsRef::default() {
            return refused(format!(
                "V is at {:#x}, no V was needed: with d=576x512 it is the first 512 columns of K (AttentionCall::latent)",
                call.v.address
            ));
        }
        Ok(())
    }
}
