//! A kernel's numbers in words.

use collective::{Format, Plan, Producer, Roles};
use cute_rs::atom::Major;
use kernel::AnyGemm;

/// The numbers of a kernel's plan. Each row has a name, a value and a note.
pub fn traits(kernel: &AnyGemm) -> Vec<[String; 3]> {
    let plan = kernel.plan();
    let (ring, [a, b]) = (plan.ring, plan.operands);
    let mut rows = Vec::new();
    let mut row = |what: &str, value: String, why: &str| rows.push([what.to_owned(), value, why.to_owned()]);
    let formats = kernel.formats();
    let sums = plan.mainloop.atom.sums().suffix();
    if formats == [formats[0]; 3] {
        row(
            "element type",
            kernel.element().to_owned(),
            &format!("of A, B, C and D; accumulators are {sums}"),
        );
    } else {
        let names = formats.map(Format::name).join(", ");
        row("element types", names, &format!("of A, of B, of C and D; accumulators are {sums}"));
    }
    row(
        "contiguous directions",
        format!("{}, {}", direction(plan.majors()[0], "M"), direction(plan.majors()[1], "N")),
        "of A and of B",
    );
    if plan.swapped() {
        row(
            "operands",
            "swap-AB".to_owned(),
            "A and B are swapped and D's transpose is computed: below, M and A are the call's N and B",
        );
    }
    row("tile", tile(&plan), "M x N x K elements per CTA");
    let [m, n] = plan.mainloop.cluster;
    row("cluster", format!("{m}x{n}"), "CTAs that share operands by multicast");
    let by_threads = plan.mainloop.atom.by_threads();
    let beside = match plan.mainloop.roles {
        Roles::Cooperative | Roles::Pingpong => "in addition to one producer warpgroup",
        Roles::Unspecialised => "without a producer warpgroup",
    };
    row("consumer warpgroups", plan.mainloop.consumers.to_string(), beside);
    row("threads", plan.threads.to_string(), "per CTA");
    row("stages", ring.stages.to_string(), "of the ring between producer and consumers");
    row("bytes per stage", ring.stage_bytes.to_string(), "one A tile and one B tile");
    row("A tile bytes", a.room().bytes.to_string(), swizzle(a.swizzle().bytes()));
    row("B tile bytes", b.room().bytes.to_string(), swizzle(b.swizzle().bytes()));
    match plan.mainloop.producer {
        Producer::Thread => {
            row("transaction bytes", ring.transaction_bytes().to_string(), "that each full barrier expects");
        }
        Producer::Warpgroup if by_threads => {
            row("copied by", format!("{} threads", plan.threads), "that wait for each other");
        }
        Producer::Warpgroup => {
            row("copied by", "128 threads".to_owned(), "that all arrive at a full barrier");
        }
    }
    row("epilogue offset", plan.epilogue_offset.to_string(), "in bytes: where D is staged");
    row("barrier offset", ring.barriers.to_string(), "in bytes: where the mbarriers are");
    row("shared bytes", plan.shared_bytes.to_string(), "of the 232448 that a CTA can have");
    row("registers, launch", plan.registers.launch.to_string(), "per thread, at most");
    if !by_threads {
        row("registers, producer", plan.registers.producer.to_string(), "after setmaxnreg");
        row("registers, consumer", plan.registers.consumer.to_string(), "after setmaxnreg");
    }
    row("accumulators", plan.registers.accumulators.to_string(), "registers per consumer thread");
    if plan.mainloop.atom.promote > 0 {
        let (every, k) = (plan.mainloop.atom.promote, plan.mainloop.atom.k());
        let note = format!("wgmmas along K, {} elements, to f32 registers", every * k);
        row("promoted every", every.to_string(), &note);
    }
    rows
}

fn swizzle(bytes: u32) -> &'static str {
    match bytes {
        128 => "in rows of 128 bytes, swizzled",
        64 => "in rows of 64 bytes, swizzled",
        32 => "in rows of 32 bytes, swizzled",
        _ => "in rows of 16 bytes",
    }
}

/// The tile as text, MxNxK.
pub fn tile(plan: &Plan) -> String {
    let [m, n, k] = plan.mainloop.tile;
    format!("{m}x{n}x{k}")
}

/// A contiguous direction: K, or the other one of its matrix.
pub fn direction(major: Major, other: &'static str) -> &'static str {
    match major {
        Major::K => "K",
        Major::Mn => other,
    }
}
