//! The plan section: a kernel's numbers, and what each warpgroup of a CTA does.

use collective::{Format, Producer, Roles};
use kernel::AnyGemm;
use serde::Serialize;

use crate::catalogue;

/// The numbers of a kernel.
#[derive(Debug, Serialize)]
pub(super) struct Overview {
    name: String,
    entry: String,
    spec: Option<String>,
    rust_type: String,
    schedule: String,
    /// Formats of A, B and D.
    formats: [&'static str; 3],
    /// The format of the accumulators.
    sums: &'static str,
    tile: [u32; 3],
    cluster: [u32; 2],
    stages: u32,
    threads: u32,
    shared_bytes: u32,
    /// Whether the kernel computes the transpose of D (swap-AB).
    swapped: bool,
    form: &'static str,
    /// Name, value and note, as `falchion plan` prints them.
    traits: Vec<[String; 3]>,
    warpgroups: Vec<Warpgroup>,
}

/// A warpgroup of 128 threads, and what it does.
#[derive(Debug, Serialize)]
struct Warpgroup {
    role: String,
    registers: u32,
    does: String,
}

impl Overview {
    pub(super) fn of(entry: &AnyGemm) -> Self {
        let plan = entry.plan();
        Self {
            name: entry.name().to_owned(),
            entry: entry.entry_name(),
            spec: entry.spec().map(|spec| spec.to_string()),
            rust_type: format!("Gemm<{}>", entry.rust_type()),
            schedule: entry.schedule(),
            formats: entry.formats().map(Format::name),
            sums: plan.mainloop.atom.sums().suffix(),
            tile: plan.mainloop.tile,
            cluster: plan.mainloop.cluster,
            stages: plan.ring.stages,
            threads: plan.threads,
            shared_bytes: plan.shared_bytes,
            swapped: plan.swapped(),
            form: entry.form().words(),
            traits: catalogue::traits(entry),
            warpgroups: warpgroups(entry),
        }
    }
}

fn warpgroups(entry: &AnyGemm) -> Vec<Warpgroup> {
    let plan = entry.plan();
    let (spec, registers) = (plan.mainloop, plan.registers);
    let rows = spec.tile[0] / spec.sharing();
    let mut all = Vec::new();
    let loads = match spec.producer {
        Producer::Thread => "one thread starts the tensor copies that fill the stages",
        Producer::Warpgroup => "every thread copies a part of each stage",
    };
    if spec.roles != Roles::Unspecialised {
        let (role, registers) = ("producer".to_owned(), registers.producer);
        all.push(Warpgroup { role, registers, does: loads.to_owned() });
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
        all.push(Warpgroup { role, registers: registers.consumer, does });
    }
    all
}
