//! Attention: masks and lengths of calls, specs, and a call on the host's memory.

use falchion::attention::backward::AttentionBackward;
use falchion::attention::{Attention, AttentionProblem, AttentionRequest, HeadsRef, Mask};
use falchion::collective::Format;
use falchion::kernel::{Family, Machine};
use falchion_core::{AskedHeads, Heads, Picked, Run};

use crate::{Aligned, bytes, numbers, refused, values};

/// A window has the most keys before a query's own, and after it; a negative number is no limit.
#[test]
fn masks() {
    const MOST: i32 = 1 << 30;
    let plain = Heads::new(request(AttentionProblem::new(1, 1, [8, 8], 64), 64));
    for (causal, window, wanted) in [
        (false, None, (Mask::Full, [0, 0])),
        (true, None, (Mask::Causal, [0, 0])),
        (false, Some([-1, -1]), (Mask::Full, [0, 0])),
        (true, Some([-1, -5]), (Mask::Causal, [0, 0])),
        (false, Some([3, 4]), (Mask::Window, [3, 4])),
        (false, Some([0, 0]), (Mask::Window, [0, 0])),
        (true, Some([3, 4]), (Mask::Window, [3, 0])),
        (false, Some([-1, 4]), (Mask::Window, [MOST, 4])),
        (false, Some([4, -1]), (Mask::Window, [4, MOST])),
        (false, Some([-1, 0]), (Mask::Causal, [0, 0])),
        (true, Some([-1, 7]), (Mask::Causal, [0, 0])),
        (false, Some([MOST, MOST]), (Mask::Window, [MOST, MOST])),
    ] {
        let asked = Heads { causal, window, ..plain.clone() }.asked();
        let found = asked.ok().map(|asked| (asked.request.mask, asked.request.numbers));
        assert_eq!(found, Some(wanted), "{causal}, {window:?}");
    }
    for window in [[MOST + 1, 0], [0, MOST + 1]] {
        let asked = Heads { window: Some(window), ..plain.clone() }.asked();
        assert!(refused(asked).starts_with("window is ("), "{window:?}");
    }
}

/// The kernel is the one for the true lengths, as the family ranks it, whatever was asked before.
#[test]
fn lengths() {
    let machine = Machine::h200();
    for (queries, keys) in
        [(1, 1000), (1, 1024), (1, 1025), (1, 33), (3, 5000), (700, 700), (64, 4097), (1, 100_000)]
    {
        let problem =
            AttentionProblem { heads: [16, 4], ..AttentionProblem::new(2, 16, [queries, keys], 128) };
        let request = AttentionRequest { workspace: true, ..request(problem, 128) };
        let ranked = Attention::ranked(&request, &machine, 1).expect("some fit");
        let found = Picked::<Attention>::new(&request, None, &machine, None).expect("one fits");
        let ratio = found.microseconds() / ranked[0].microseconds;
        assert!((1.0..1.005).contains(&ratio), "{queries} x {keys}: {}, {ratio}", found.name());
    }
}

fn request(problem: AttentionProblem, d: u32) -> AttentionRequest {
    AttentionRequest::new(problem, d)
}

/// What the tensors say may be left out in a spec, and may not be otherwise.
#[test]
fn specs() {
    let asked =
        AttentionRequest { mask: Mask::Causal, ..request(AttentionProblem::new(1, 2, [100, 100], 64), 64) };
    let of = |spec: &str, aligned| {
        Picked::<Attention>::new(&AttentionRequest { aligned, ..asked }, Some(spec), &Machine::h200(), None)
    };
    let name = |spec, aligned| {
        of(spec, aligned).map(|kernel| kernel.name().to_owned()).map_err(|error| error.to_string())
    };
    let short = name("tile=64x64", true).expect("legal");
    assert!(short.contains("d=64") && short.contains("mask=causal") && !short.contains("store="), "{short}");
    for spec in ["d=64 tile=64x64", "d=64x64 tile=64x64 mask=causal format=bf16 output=bf16"] {
        assert_eq!(name(spec, true).as_ref(), Ok(&short), "{spec}");
    }
    // What does not begin at multiples of 16 bytes is stored from registers.
    assert!(name("tile=64x64", false).expect("legal").contains("store=direct"));
    for (spec, words) in [
        ("format=f16", "spec: format is `f16`, `bf16` was needed, as the call says"),
        ("d=128", "spec: d is `128`, `64x64` was needed, as the call says"),
        ("mask=full", "spec: mask is `full`, `causal` was needed, as the call says"),
        ("tile=1x1", "spec: "),
    ] {
        let error = name(spec, true).expect_err(spec);
        assert!(error.starts_with(words), "{spec}: {error}");
    }
    let wide = AttentionRequest { output: Format::F32, ..asked };
    let kernel = Picked::<Attention>::new(&wide, Some("tile=64x64"), &Machine::h200(), None).expect("legal");
    assert!(
        kernel.name().contains("output=f32") && kernel.name().contains("store=direct"),
        "{}",
        kernel.name()
    );
    let chosen = Picked::<Attention>::new(&asked, None, &Machine::h200(), None).expect("a kernel");
    assert!(chosen.microseconds() > 0.0 && chosen.name().contains("mask=causal"), "{}", chosen.name());
    let same = of(chosen.name(), true).expect("legal");
    assert_eq!((same.microseconds(), same.name()), (chosen.microseconds(), chosen.name()));
    let none = refused(Picked::<Attention>::new(
        &request(AttentionProblem::new(1, 2, [9, 9], 65), 65),
        None,
        &Machine::h200(),
        None,
    ));
    assert!(none.contains("65"), "{none}");
}

/// Softmax of a head's scores, by hand.
#[test]
fn on_the_hosts_memory() {
    let (heads, rows, d) = (2_u32, 37_u32, 64_u32);
    let problem = AttentionProblem::new(1, heads, [rows, rows], d);
    let asked = request(problem, d);
    let kernel = Picked::<Attention>::new(&asked, None, &Machine::h200(), None).expect("a kernel");
    let count = (heads * rows * d) as usize;
    let all = [1, 2, 3].map(|seed| numbers(count, seed));
    let mut tensors = all.each_ref().map(|of| Aligned::new(&bytes(Format::Bf16, of)));
    let mut o = Aligned::new(&vec![0xFF; 2 * count]);
    let at = |address| HeadsRef::heads_first(address, [heads, rows, d]);
    let [q, k, v] = tensors.each_mut().map(|of| at(of.address()));
    let call = Heads::new(asked).at([q, k, v, at(o.address())]).asked().expect("a call").call;
    assert_eq!(kernel.layout(&call)[1..], [1, 37, 0]);
    // SAFETY: the tensors are alive, and as large as the call says.
    unsafe { kernel.emulate(&call, Run::default()) }.unwrap_or_else(|error| panic!("{error}"));
    let (got, [q, k, v]) = (values(Format::Bf16, o.bytes()), &all);
    let row =
        |of: &[f64], head: u32, row: u32| of[((head * rows + row) * d) as usize..][..d as usize].to_vec();
    for (head, query) in (0..heads).flat_map(|head| (0..rows).map(move |query| (head, query))) {
        let of_query = row(q, head, query);
        let score = |key| {
            of_query.iter().zip(row(k, head, key)).map(|(q, k)| q * k).sum::<f64>() / f64::from(d).sqrt()
        };
        let weights: Vec<f64> = (0..rows).map(|key| score(key).exp()).collect();
        let total: f64 = weights.iter().sum();
        for (column, got) in row(&got, head, query).into_iter().enumerate() {
            let wanted: f64 =
                (0..rows).map(|key| weights[key as usize] * row(v, head, key)[column]).sum::<f64>() / total;
            assert!(
                (got - wanted).abs() < 0.01,
                "head {head}, query {query}, column {column}: {got}, not {wanted}"
            );
        }
    }
    assert!(o.is_intact());
}

/// In latent attention V is a part of K; a window's numbers are the call's. What is not said has its default.
#[test]
fn calls() {
    let at = |address| HeadsRef::heads_first(address, [1, 70, 576]);
    let problem = AttentionProblem { heads: [16, 1], ..AttentionProblem::new(1, 16, [70, 70], 576) };
    let latent = Heads { shared: Some(1), dv: Some(512), ..Heads::new(request(problem, 576)) };
    let [q, k, o] = [1 << 20, 2 << 20, 3 << 20].map(at);
    let asked = latent.clone().at([q, k, HeadsRef::default(), o]).asked().expect("V is a part of K");
    assert_eq!((asked.call.k, asked.call.v, asked.request.head), (k, HeadsRef::default(), [576, 512]));
    let error = refused(latent.at([q, k, k, o]).asked());
    assert!(
        error.starts_with("v is a tensor of its own") && error.contains("the first 512 of the 576"),
        "{error}"
    );
    let plain = Heads::new(request(AttentionProblem::new(1, 16, [70, 70], 64), 64));
    let asked = plain.clone().at([q, k, k, o]).asked().expect("V is given");
    assert_eq!((asked.call.v, asked.call.counts), (k, vec![]));
    let AskedHeads { request, call } = plain.asked().expect("packed");
    let packed = HeadsRef::heads_first(0, [16, 70, 64]);
    assert_eq!(
        ([call.q, call.k, call.v, call.o], call.problem.heads, request.aligned),
        ([packed; 4], [16; 2], true)
    );
    assert_eq!(call.problem.scale, 0.125);
}

/// The gradient's kernel is the first that its family ranks for the true lengths; where that is asked, of those that add in order.
#[test]
fn gradients() {
    let machine = Machine::h200();
    for (d, [queries, keys]) in [(64, [40, 70]), (128, [4096, 4096]), (128, [1, 9000]), (256, [300, 300])] {
        let request = request(AttentionProblem::new(2, 4, [queries, keys], d), d);
        for fixed in [false, true] {
            let request = AttentionRequest { fixed, ..request };
            let ranked = AttentionBackward::ranked(&request, &machine, usize::MAX).expect("some fit");
            let found = Picked::<AttentionBackward>::new(&request, None, &machine, None).expect("one fits");
            let spec = found.kernel().plan().spec;
            assert_eq!(spec, ranked[0].kernel.plan().spec, "{d}, {queries} x {keys}");
            assert!(spec.deterministic || !fixed, "{spec}");
        }
    }
    let request = request(AttentionProblem::new(1, 1, [8, 8], 84), 84);
    let none = refused(Picked::<AttentionBackward>::new(&request, None, &machine, None));
    assert!(none.starts_with("attention-backward 1x1/1x8x8 ") && none.contains("84"), "{none}");
}
