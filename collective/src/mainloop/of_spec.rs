//! The mainloops of this crate as types, and from a spec to the mainloop it describes.

use std::sync::Arc;

use super::{
    CopyWgmma, Mainloop, MainloopEmitter, MmaPair, MmaSync, Simt, SimtPair, TensorCopies, ThreadCopies,
    TmaWgmma,
};
use crate::form::Forms;
use crate::operand::OperandPair;
use crate::plan::{MainloopNeeds, MainloopSpec, Producer};
use crate::tile::{TileShape, WarpRoles};

impl MainloopSpec {
    /// The emitter of the mainloop of this crate that the spec describes.
    pub fn emitter(&self) -> Arc<dyn MainloopEmitter> {
        match self.producer {
            Producer::Thread => Arc::new(TensorCopies),
            Producer::Warpgroup => Arc::new(ThreadCopies),
        }
    }
}

macro_rules! mainloops {
    ($($mainloop:ident of $pair:ident: $spec:expr;)*) => {$(
        impl<O: $pair, T: TileShape, R: WarpRoles> Mainloop for $mainloop<O, T, R> {
            const SPEC: MainloopSpec = $spec;
            const NEEDS: MainloopNeeds = MainloopNeeds::NONE;
            const FORMS: Forms = Forms::ALL;
            type Arguments = ();

            fn emitter() -> Arc<dyn MainloopEmitter> {
                Self::SPEC.emitter()
            }
        }
    )*};
}

mainloops! {
    TmaWgmma of OperandPair: MainloopSpec::of::<O, T, R>(Producer::Thread);
    CopyWgmma of OperandPair: MainloopSpec::of::<O, T, R>(Producer::Warpgroup);
    MmaSync of MmaPair: MainloopSpec::by::<T, R>(O::OPERANDS, O::ATOM, Producer::Warpgroup);
    Simt of SimtPair: MainloopSpec::by::<T, R>(O::OPERANDS, O::ATOM, Producer::Warpgroup);
}
