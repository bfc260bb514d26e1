//! scratch
#![allow(unsafe_code, reason="s")]
use std::hint::black_box;
use std::collections::BTreeMap;
use falchion::attention::{Attention, AttentionProblem, AttentionRequest, Shortlist, Mask};
use falchion::attention::backward::AttentionBackward;
use falchion::kernel::{Family, Machine, AnyGemm, Request, GemmProblem};
use falchion_core::Picked;

#[repr(C)] struct T { s: i64, n: i64 }
unsafe extern "C" { fn clock_gettime(id: i32, t: *mut T) -> i32; }
fn cpu() -> f64 {
    let mut t = T { s: 0, n: 0 };
    unsafe { clock_gettime(3, &mut t) };
    t.s as f64 * 1e6 + t.n as f64 / 1e3
}
fn time<T>(what: &str, count: usize, mut f: impl FnMut(usize) -> T) {
    let a = cpu();
    for i in 0..count { black_box(f(i)); }
    println!("{what:50} {:10.2} us", (cpu() - a) / count as f64);
}
fn main() {
    let machine = Machine::h200();
    for (batch, h, s, q, keys, d) in [(1, 32, 8, 1, 1000, 128), (4, 32, 8, 1, 4000, 128), (1,32,8,1,100,128), (1, 128, 1, 1, 5000, 576)] {
        let of = |keys| {
            let head = if d == 576 {[576, 512]} else {[d, d]};
            let problem = AttentionProblem { heads: [h, s], ..AttentionProblem::new(batch, h, [q, keys], d) };
            AttentionRequest { workspace: true, head, mask: Mask::Causal, ..AttentionRequest::new(problem, d) }
        };
        println!("{batch} {h} {s} {q} {keys} {d}");
        let request = of(keys);
        time("ranked", 20, |_| Attention::ranked(&request, &machine, 1).unwrap());
        let all = Attention::ranked(&request, &machine, usize::MAX).unwrap();
        println!("{} ranked", all.len());
        let spec = all[0].kernel.plan().spec;
        time("new", 1000, |_| Attention::new(spec).unwrap());
        time("programs", 5, |_| falchion::kernel::Kernel::programs(&all[0].kernel).unwrap());
        time("problem", 1000, |_| Attention::problem(&request));
        let list = Shortlist::new(&request, &machine).unwrap();
        time("best", 1000, |_| list.best(&request, &machine).unwrap());
        time("first seen", 1000, |_| Attention::first(&request, &machine).unwrap());
        time("first decode 256", 256, |i| Attention::first(&of(keys + 1 + i as u32), &machine).unwrap());
        time("Picked decode 256 after", 256, |i| Picked::<Attention>::new(&of(keys + 1 + i as u32), None, &machine, None).unwrap());
        time("Picked decode 256 again", 256, |i| Picked::<Attention>::new(&of(keys + 1 + i as u32), None, &machine, None).unwrap());
        let mut found = BTreeMap::new();
        let mut texts = BTreeMap::new();
        for i in 0..256 {
            let k = Attention::first(&of(keys + 1 + i), &machine).unwrap().kernel;
            *found.entry(k.spec().unwrap().to_string()).or_insert(0) += 1;
            let p = falchion::kernel::Kernel::programs(&k).unwrap();
            *texts.entry(p[0].text().to_owned()).or_insert(0) += 1;
        }
        println!("{found:?} {}", texts.len());
        let kernel = AttentionRequest { ..request };
        time("backward", 20, |_| AttentionBackward::first(&AttentionRequest{head:[128,128], ..kernel}, &machine).map(drop));
    }
    let r = |k| Request::packed(falchion::collective::Format::Bf16, [falchion::cute_rs::atom::Major::K; 2], GemmProblem { m: 1, n: 4096, k });
    time("gemm first", 100, |i| AnyGemm::first(&r(4096 + 8 * i as u32), &machine).unwrap());
    time("gemm Picked", 100, |i| Picked::<AnyGemm>::new(&r(4096 + 8 * i as u32), None, &machine, None).unwrap());
    time("gemm Picked again", 100, |i| Picked::<AnyGemm>::new(&r(4096 + 8 * i as u32), None, &machine, None).unwrap());
}
