//! A mainloop with an argument of its own: the address of a number in device memory.

use collective::operands::{Contents, Extents, Memory, OwnSite, Visit};
use collective::{
    Cooperative, DeviceMainloop, KMajor, Mainloop, MainloopSpec, Operands, Pass, Plan, Tile, TmaWgmma,
    WorkUnit,
};
use half::bf16;
use ptx::Builder;
use typenum::{U1, U64};

pub(crate) type Ours = TmaWgmma<Operands<KMajor<bf16>, KMajor<bf16>>, Tile<U64, U64, U64>, Cooperative<U1>>;

/// Multiplies k-tiles beginning with one whose number is in device memory.
pub(crate) struct Later;

/// Address of the first k-tile's number.
#[derive(Clone, Debug, Default)]
pub(crate) struct First(pub(crate) u64);

impl Mainloop for Later {
    const NAME: &'static str = "later";
    const SPEC: MainloopSpec = <Ours as Mainloop>::SPEC;
    type Arguments = First;

    fn visit(own: &mut First, _: &OwnSite<'_>, visit: &mut dyn Visit) {
        let (extents, contents) = (Extents::line(32, 1), Contents::Indices(1));
        visit.memory(Memory { name: "first", address: &mut own.0, extents, contents, writes: false });
        visit.address("first", "first");
    }

    fn device<'f>(f: &'f Builder, plan: &Plan) -> DeviceMainloop<'f> {
        let (ours, first) = (Ours::device(f, plan), f.parameter::<u64>("first"));
        ours.clone().with_load(move |pass, cluster| {
            let Pass { f, unit, .. } = pass;
            // The same number of k-tiles, beginning with the one that memory names.
            let first = f.load_global::<u32>(first, 0);
            let unit = WorkUnit { k_begin: unit.k_begin + first, k_end: unit.k_end + first, ..unit };
            ours.load(Pass { unit, ..pass }, cluster);
        })
    }
}
