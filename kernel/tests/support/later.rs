//! A mainloop with an argument of its own: the address of a number in device memory.

use std::sync::Arc;

use collective::operands::{Contents, Extents, MainloopArguments, Memory, OwnSite, Visit};
use collective::pipeline::ClusterPosition;
use collective::{
    Cooperative, DeviceMainloop, KMajor, Mainloop, MainloopEmitter, MainloopSite, MainloopSpec, Operands,
    Pass, Plan, Tile, TmaWgmma, WorkUnit,
};
use half::bf16;
use ptx::{Builder, Value};
use typenum::{U1, U64};

pub(crate) type Ours = TmaWgmma<Operands<KMajor<bf16>, KMajor<bf16>>, Tile<U64, U64, U64>, Cooperative<U1>>;

/// Multiplies k-tiles beginning with one whose number is in device memory.
pub(crate) struct Later;

/// Address of the first k-tile's number.
#[derive(Clone, Debug, Default)]
pub(crate) struct First(pub(crate) u64);

impl MainloopArguments for First {
    fn visit(&mut self, _: &OwnSite<'_>, visit: &mut dyn Visit) {
        let (extents, contents) = (Extents::line(32, 1), Contents::Indices(1));
        visit.memory(Memory { name: "first", address: &mut self.0, extents, contents, writes: false });
        visit.address("first", "first");
    }
}

/// Its emitter.
#[derive(Debug)]
struct LaterEmitter;

struct LaterDevice<'f> {
    ours: Box<dyn DeviceMainloop<'f> + 'f>,
    first: Value<'f, u64>,
}

impl Mainloop for Later {
    const SPEC: MainloopSpec = <Ours as Mainloop>::SPEC;
    type Arguments = First;

    fn emitter() -> Arc<dyn MainloopEmitter> {
        Arc::new(LaterEmitter)
    }
}

impl MainloopEmitter for LaterEmitter {
    fn name(&self, _: &MainloopSpec) -> String {
        "later".to_owned()
    }

    fn state(&self, of: &MainloopSite<'_>, visit: &mut dyn Visit) {
        Ours::emitter().state(of, visit);
    }

    fn device<'f>(&self, f: &'f Builder, plan: &Plan) -> Box<dyn DeviceMainloop<'f> + 'f> {
        Box::new(LaterDevice { ours: Ours::emitter().device(f, plan), first: f.parameter("first") })
    }
}

impl<'f> DeviceMainloop<'f> for LaterDevice<'f> {
    fn load(&self, pass: Pass<'_, 'f>, cluster: ClusterPosition<'f>) {
        let Pass { f, unit, .. } = pass;
        // The same number of k-tiles, beginning with the one that memory names.
        let first = f.load_global::<u32>(self.first, 0);
        let unit = WorkUnit { k_begin: unit.k_begin + first, k_end: unit.k_end + first, ..unit };
        self.ours.load(Pass { unit, ..pass }, cluster);
    }
}
