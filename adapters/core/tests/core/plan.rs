//! Every door makes the choice that `falchion plan` makes, for the lengths that came.

use falchion::attention::backward::AttentionBackward;
use falchion::attention::{Attention, AttentionRequest, HeadsRef};
use falchion::kernel::{AnyGemm, Family, Machine, Predicted};
use falchion_core::{Heads, choose};

use crate::drawn::{Draw, DrawnGemms, DrawnHeads};

/// Problems of each test.
const COUNT: usize = 2000;

/// What `falchion plan` ranks first for a problem's words.
fn planned<K: Family>(problem: &str) -> Result<Predicted<K>, String> {
    let request = K::request(problem).unwrap_or_else(|error| panic!("{problem}: {error}"));
    K::ranked(&request, &Machine::h200(), 1).map(|mut all| all.remove(0))
}

#[test]
fn gemms() {
    let (mut random, mut count) = (Draw::new(1), 0);
    for _ in 0..COUNT {
        let DrawnGemms { problem, described } = DrawnGemms::draw(&mut random);
        let asked = described.asked().unwrap_or_else(|error| panic!("{problem}: {error}")).request;
        let found = choose::<AnyGemm>(&asked, None, &Machine::h200(), None);
        match planned::<AnyGemm>(&problem) {
            Ok(wanted) => {
                let found = found.unwrap_or_else(|error| panic!("{problem}: {error}"));
                assert_eq!(found.kernel.spec(), wanted.kernel.spec(), "{problem}");
                count += 1;
            }
            Err(_) => assert!(found.is_err(), "{problem}"),
        }
    }
    assert!(count > COUNT * 9 / 10, "{count}");
}

/// The same heads as a door with tensors says them: where they are, with the queries of all sequences behind each other or heads in front.
fn placed(heads: Heads, drawn: &DrawnHeads) -> Heads {
    let DrawnHeads { heads: [own, shared], lengths: [queries, keys], d: [d, dv], .. } = *drawn;
    let rows = drawn.page.unwrap_or(keys);
    let at = |of| HeadsRef::heads_first(1 << 20, of);
    heads.at([at([own, queries, d]), at([shared, rows, d]), at([shared, rows, dv]), at([own, queries, dv])])
}

/// The request that a door makes of what it was told.
fn asked(heads: &Heads, problem: &str) -> AttentionRequest {
    heads.asked().unwrap_or_else(|error| panic!("{problem}: {error}")).request
}

/// A cache that grows has kernels from a list, which lose less than a hundredth of the time that the model says.
#[test]
fn attention() {
    let (mut random, mut equal, mut count) = (Draw::new(2), 0, 0);
    for _ in 0..COUNT {
        let drawn = DrawnHeads::draw(&mut random, false);
        let problem = &drawn.problem;
        let wanted = planned::<Attention>(problem);
        for heads in [drawn.heads(), placed(drawn.heads(), &drawn)] {
            let request = asked(&heads, problem);
            assert_eq!(
                Attention::problem(&request),
                Attention::problem(&Attention::request(problem).expect("read"))
            );
            let found = choose::<Attention>(&request, None, &Machine::h200(), None);
            match &wanted {
                Ok(wanted) => {
                    let found = found.unwrap_or_else(|error| panic!("{problem}: {error}"));
                    let ratio = found.microseconds / wanted.microseconds;
                    assert!((1.0..1.01).contains(&ratio), "{problem}: {ratio}");
                    equal += usize::from(found.kernel.spec() == wanted.kernel.spec());
                    count += 1;
                }
                Err(_) => assert!(found.is_err(), "{problem}"),
            }
        }
    }
    assert!(count > COUNT * 9 / 5 && equal * 100 > count * 95, "{equal} of {count}");
}

#[test]
fn gradients() {
    let (mut random, mut count) = (Draw::new(3), 0);
    for _ in 0..COUNT {
        let drawn = DrawnHeads::draw(&mut random, true);
        let problem = &drawn.problem;
        let wanted = planned::<AttentionBackward>(problem);
        // A gradient always has a workspace, whether a door says so or not.
        let mut silent = drawn.heads();
        silent.request.workspace = false;
        for heads in [drawn.heads(), silent, placed(drawn.heads(), &drawn)] {
            let found = choose::<AttentionBackward>(&asked(&heads, problem), None, &Machine::h200(), None);
            match &wanted {
                Ok(wanted) => {
                    let found = found.unwrap_or_else(|error| panic!("{problem}: {error}"));
                    assert_eq!(found.kernel.spec(), wanted.kernel.spec(), "{problem}");
                    count += 1;
                }
                Err(_) => assert!(found.is_err(), "{problem}"),
            }
        }
    }
    assert!(count > COUNT * 5 / 2, "{count}");
}
