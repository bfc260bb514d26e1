//! A mainloop around one of the library's: `D = A * B * factor`. Before its first work unit, a CTA reads the factor once
//! from device memory.

use std::sync::Arc;

use falchion::collective::operands::{Contents, Extents, MainloopArguments, Memory, OwnSite, Visit};
use falchion::collective::pipeline::ClusterPosition;
use falchion::collective::{
    Accumulators, Consumer, DeviceMainloop, Finish, Format, Mainloop, MainloopEmitter, MainloopNeeds,
    MainloopSite, MainloopSpec, Pass, TensorCopies,
};
use falchion::prelude::*;
use falchion::ptx::{Builder, Value, Var};

type Inner = crate::Tma<crate::Kk>;

pub struct Factored;
/// The address of the factor, an `f32`.
#[derive(Clone, Default)]
pub struct Factor(pub u64);

impl MainloopArguments for Factor {
    fn visit(&mut self, _: &OwnSite<'_>, visit: &mut dyn Visit) {
        let (extents, contents) = (Extents::line(32, 1), Contents::Source(Format::F32));
        visit.memory(Memory { name: "the factor", address: &mut self.0, extents, contents, writes: false });
        visit.address("factor", "the factor");
    }
}

#[derive(Debug)]
struct Emitter;
struct Device<'f> {
    inner: Box<dyn DeviceMainloop<'f> + 'f>,
    address: Value<'f, u64>,
    /// The factor in each thread of a consumer.
    factor: Var<'f, f32>,
}

impl Mainloop for Factored {
    const SPEC: MainloopSpec = {
        let mut spec = <Inner as Mainloop>::SPEC;
        spec.own_bytes = 16;
        spec.registers = 1;
        spec
    };
    const NEEDS: MainloopNeeds = MainloopNeeds { whole_k: false, ..MainloopNeeds::ALL };
    type Arguments = Factor;
    fn emitter() -> Arc<dyn MainloopEmitter> {
        Arc::new(Emitter)
    }
}

impl MainloopEmitter for Emitter {
    fn name(&self, _: &MainloopSpec) -> String {
        "factored".into()
    }
    fn state(&self, of: &MainloopSite<'_>, visit: &mut dyn Visit) {
        TensorCopies.state(of, visit);
    }
    fn device<'f>(&self, f: &'f Builder, plan: &Plan) -> Box<dyn DeviceMainloop<'f> + 'f> {
        let inner = TensorCopies.device(f, plan);
        Box::new(Device { inner, address: f.parameter("factor"), factor: f.variable(0.0) })
    }
}

impl<'f> DeviceMainloop<'f> for Device<'f> {
    fn prologue(&self, f: &'f Builder, plan: &Plan, consumer: Consumer<'f>) {
        let place = consumer.shared + plan.own_offset;
        f.if_(consumer.warpgroup.equals(0) & consumer.thread.equals(0), || {
            f.store_shared(place, 0, [f.load_global::<f32>(self.address, 0)]);
        });
        // The producer does not take part, so this is no barrier of the library.
        f.barrier_sync(plan.own_barriers().start, plan.mainloop.consumers * 128);
        let [factor] = f.load_shared_vector(place, 0);
        self.factor.set(factor);
    }

    fn load(&self, pass: Pass<'_, 'f>, cluster: ClusterPosition<'f>) {
        self.inner.load(pass, cluster);
    }

    fn multiply(&self, pass: Pass<'_, 'f>, consumer: Consumer<'f>, finish: Finish<'_, 'f>) {
        self.inner.multiply(pass, consumer, &|plan, sums| {
            if let Accumulators::F32(fragment) = &sums {
                fragment.blocks.iter().flatten().for_each(|sum| sum.set(sum.get() * self.factor.get()));
            }
            finish(plan, sums);
        });
    }
}
