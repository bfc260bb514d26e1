//! The plan section: a kernel's numbers, and what each warpgroup of a CTA does.

use collective::{Format, Producer, Roles};
use kernel::AnyGemm;
use serde_json::{Value, json};

use super::traits::traits;

/// The numbers of a kernel.
pub fn of(entry: &AnyGemm) -> Value {
    let plan = entry.plan();
    json!({
        "name": entry.name(),
        "entry": entry.entry_name(),
        "spec": entry.spec().map(|spec| spec.to_string()),
        "rust_type": format!("Gemm<{}>", entry.rust_type()),
        "schedule": entry.schedule(),
        // Formats of A, B and D, and of the accumulators.
        "formats": entry.formats().map(Format::name),
        "sums": plan.mainloop.atom.sums().suffix(),
        "tile": plan.mainloop.tile,
        "cluster": plan.mainloop.cluster,
        "stages": plan.ring.stages,
        "threads": plan.threads,
        "shared_bytes": plan.shared_bytes,
        // Whether the kernel computes the transpose of D (swap-AB).
        "swapped": plan.swapped(),
        "form": entry.form().words(),
        // Name, value and note, as `falchion plan` prints them.
        "traits": traits(entry),
        "warpgroups": warpgroups(entry),
    })
}

/// The warpgroups of 128 threads, and what each does.
fn warpgroups(entry: &AnyGemm) -> Vec<Value> {
    let plan = entry.plan();
    let (spec, registers) = (plan.mainloop, plan.registers);
    let rows = spec.tile[0] / spec.sharing();
    let mut all = Vec::new();
    let loads = match spec.producer {
        Producer::Thread => "one thread starts the tensor copies that fill the stages",
        Producer::Warpgroup => "every thread copies a part of each stage",
    };
    if spec.roles != Roles::Unspecialised {
        all.push(json!({ "role": "producer", "registers": registers.producer, "does": loads }));
    }
    for consumer in 0..spec.consumers {
        let (first, last) = (consumer * rows, (consumer + 1) * rows - 1);
        let (role, does) = match spec.roles {
            Roles::Cooperative => {
                ("consumer", format!("multiplies rows {first} to {last} of the tile and stores them"))
            }
            Roles::Pingpong => {
                ("consumer", "multiplies a whole tile while another consumer stores its own".to_owned())
            }
            Roles::Unspecialised => {
                ("worker", format!("multiplies rows {first} to {last} of the tile; one thread loads"))
            }
        };
        let role = format!("{role} {consumer}");
        all.push(json!({ "role": role, "registers": registers.consumer, "does": does }));
    }
    all
}
