//! The first CTA of a cluster adds up partial sums in the shared memory of its peers. A peer that has nothing
//! more to do exits, and its shared memory is released.

use emulator::Memory;
use ptx::abi::Argument;
use ptx::{Builder, LoadOrder, Location, Scope, Special};

use super::exhibit::Exhibit;

pub(crate) const EXHIBIT: Exhibit = Exhibit {
    name: "peer-exits",
    shipped: &["triton PR#9413", "triton#10656", "triton#11731"],
    bug: "A CTA ends while its peer may still read its shared memory.",
    mended: "A second cluster barrier comes after the reads.",
    hidden: "The shared memory of a CTA that has ended keeps its bytes until another CTA starts in its \
             place. In a grid that fits on the card at once, none does.",
    threads: 32,
    cluster: 2,
    dependent: false,
    silent: None,
    arguments,
    program,
};

fn arguments(memory: &mut Memory) -> Vec<Argument> {
    vec![memory.allocate(128).into()]
}

fn program(f: &Builder, mended: bool) {
    let sums = f.param::<u64>("sums");
    let (part, thread) = (f.shared_base(), f.special(Special::ThreadX));
    let rank = f.special(Special::ClusterRank);

    f.store_shared(part + thread * 4, 0, [thread]);
    f.cluster_arrive(false);
    f.cluster_wait();
    f.scope("rank 0 adds up", || {
        f.if_(rank.equals(0), || {
            let own = f.load_shared_vector::<u32, 1>(part + thread * 4, 0)[0];
            let theirs = Location::cluster(f.map_shared(part + thread * 4, 1), 0);
            let [theirs] = f.load_ordered::<u32, 1>(LoadOrder::Relaxed(Scope::Cluster), theirs);
            f.store_global(sums + thread.mul_wide(4), 0, [own + theirs]);
        });
    });
    if mended {
        f.cluster_arrive(false);
        f.cluster_wait();
    }
}
