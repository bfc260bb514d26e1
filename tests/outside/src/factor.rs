//! A mainloop around one of the library's: `D = A * B * factor`. Before its first work unit, a CTA reads the factor once
//! from device memory.

use falchion::collective::operands::{Contents, Extents, OwnSite, Visit};
use falchion::collective::{Accumulators, DeviceMainloop, Format, Mainloop, MainloopNeeds, MainloopSpec};
use falchion::prelude::*;
use falchion::ptx::Builder;

type Inner = crate::Tma<crate::Kk>;

pub struct Factored;
/// The address of the factor, an `f32`.
#[derive(Clone, Default)]
pub struct Factor(pub u64);

impl Mainloop for Factored {
    const NAME: &'static str = "factored";
    const SPEC: MainloopSpec = {
        let mut spec = <Inner as Mainloop>::SPEC;
        spec.own_bytes = 16;
        spec.registers = 1;
        spec
    };
    const NEEDS: MainloopNeeds = MainloopNeeds { whole_k: false, ..MainloopNeeds::ALL };
    type Arguments = Factor;
    fn visit(own: &mut Factor, _: &OwnSite<'_>, visit: &mut dyn Visit) {
        let (extents, contents) = (Extents::line(32, 1), Contents::Source(Format::F32));
        visit.input("factor", ("the factor", &mut own.0), extents, contents);
    }
    fn device<'f>(f: &'f Builder, plan: &Plan) -> DeviceMainloop<'f> {
        let (inner, address) = (Inner::device(f, plan), f.parameter::<u64>("factor"));
        // The factor in each thread of a consumer.
        let own = f.variable(0.0);
        let inner_too = inner.clone();
        inner
            .with_prologue(move |f, plan, consumer| {
                let place = consumer.shared + plan.own_offset;
                f.if_(consumer.warpgroup.equals(0) & consumer.thread.equals(0), || {
                    f.store_shared(place, 0, [f.load_global::<f32>(address, 0)]);
                });
                // The producer does not take part, so this is no barrier of the library.
                f.barrier_sync(plan.own_barriers().start, plan.mainloop.consumers * 128);
                let [factor] = f.load_shared_vector(place, 0);
                own.set(factor);
            })
            .with_multiply(move |pass, consumer, finish| {
                inner_too.multiply(pass, consumer, &|plan, sums| {
                    if let Accumulators::F32(fragment) = &sums {
                        fragment.blocks.iter().flatten().for_each(|sum| sum.set(sum.get() * own.get()));
                    }
                    finish(plan, sums);
                });
            })
    }
}
