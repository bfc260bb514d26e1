//! The mainloops of this crate as types, and from a spec to the mainloop it describes.

use ptx::Builder;

use super::copy_wgmma::THREAD_COPIES;
use super::tma_wgmma::TENSOR_COPIES;
use super::{
    AnyMainloop, CopyWgmma, DeviceMainloop, Mainloop, MainloopSite, MmaPair, MmaSync, Simt, SimtPair,
    TmaWgmma,
};
use crate::form::Forms;
use crate::operand::OperandPair;
use crate::operands::Visit;
use crate::plan::{MainloopNeeds, MainloopSpec, Plan, Producer};
use crate::tile::{TileShape, WarpRoles};

impl MainloopSpec {
    /// The mainloop of this crate that the spec describes.
    pub const fn mainloop(&self) -> AnyMainloop {
        match self.producer {
            Producer::Thread => TENSOR_COPIES,
            Producer::Warpgroup => THREAD_COPIES,
        }
    }
}

macro_rules! mainloops {
    ($($mainloop:ident of $pair:ident: $spec:expr;)*) => {$(
        impl<O: $pair, T: TileShape, R: WarpRoles> Mainloop for $mainloop<O, T, R> {
            const NAME: &'static str = stringify!($mainloop);
            const SPEC: MainloopSpec = $spec;
            const NEEDS: MainloopNeeds = MainloopNeeds::NONE;
            const FORMS: Forms = Forms::ALL;
            type Arguments = ();

            fn state(of: &MainloopSite<'_>, visit: &mut dyn Visit) {
                Self::value().state(of, visit);
            }

            fn device<'f>(f: &'f Builder, plan: &Plan) -> DeviceMainloop<'f> {
                Self::value().device(f, plan)
            }

            fn value() -> AnyMainloop {
                Self::SPEC.mainloop()
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
