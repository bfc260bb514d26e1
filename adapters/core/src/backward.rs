//! What adapters add to the gradient of attention.

use falchion::attention::backward::{AttentionBackward, BackwardCall};
use falchion::attention::{AttentionRequest, ChoiceKey, Lengths};
use falchion::kernel::LaunchError;

use crate::attention::check_packed;
use crate::choices::Shared;
use crate::host::Hosted;
use crate::picked::Offered;

impl Hosted<BackwardCall> for AttentionBackward {
    fn check_tables(
        &self,
        call: &BackwardCall,
        read: &dyn Fn(u64, u64) -> Vec<u32>,
    ) -> Result<(), LaunchError> {
        match self.plan().spec.lengths {
            Lengths::Packed => check_packed(&call.forward.packed, &call.forward.problem, 2, read),
            Lengths::Equal => Ok(()),
        }
    }
}

impl Offered for AttentionBackward {
    type Runs = Self;
    type Arguments = BackwardCall;

    fn runs(self, _request: &AttentionRequest) -> Self {
        self
    }
}

impl Shared for AttentionBackward {
    type Key = ChoiceKey;

    fn key(request: &AttentionRequest) -> ChoiceKey {
        request.key()
    }
}
