//! From a call to a launch, and what is checked of it.

use collective::heads::HeadsRef;
use kernel::{Buffer, Launch, LaunchError, check_accessed, check_heads, check_packed, check_pages};
use ptx::abi::Grid;

use crate::call::AttentionCall;
use crate::kernel::Attention;
use crate::problem::refused;
use crate::spec::Lengths;

impl Attention {
    /// The launch of a call. `None` if there is nothing to compute.
    pub(crate) fn launched(
        &self,
        call: &AttentionCall,
        resident: u32,
    ) -> Result<Option<Launch>, LaunchError> {
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

    /// Checks that a tile has rows for the heads that share K and V, and that there is no V of its own with latent attention.
    fn check_shares(&self, call: &AttentionCall) -> Result<(), LaunchError> {
        let ([heads, shared], pack) = (call.problem.heads, self.plan.spec.pack);
        let latent = self.plan.latent.is_some();
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
