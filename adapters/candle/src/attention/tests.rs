//! Attention asks for what `falchion plan` is asked, for the lengths that came: the problem and the kernel of drawn calls. Nothing runs.

use candle_core::{CpuStorage, Device, Layout};
use falchion::attention::backward::AttentionBackward;
use falchion::kernel::{Family, Machine};
use falchion_core::choose;

use super::*;

#[path = "../../../core/tests/core/drawn.rs"]
#[allow(dead_code, reason = "some of it is for other doors")]
mod drawn;

use drawn::{Draw, DrawnHeads};

/// The request of a call with tensors of these extents.
fn requested(drawn: &DrawnHeads) -> Result<AttentionRequest> {
    let DrawnHeads { batch, heads: [heads, groups], lengths: [queries, keys], d: [d, dv], .. } = *drawn;
    let [batch, heads, groups, queries, keys, d, dv] =
        [batch, heads, groups, queries, keys, d, dv].map(|extent| extent as usize);
    let layout = |lead, heads, rows, d| Layout::contiguous((lead, heads, rows, d));
    let (sequences, [q, k, v]) = if drawn.packed {
        let begins = (0..=batch).map(|i| (i * queries) as u32).collect::<Vec<_>>();
        let begins = Tensor::new(begins, &Device::Cpu)?;
        let of = |heads, rows: usize, d| layout(1, heads, batch * rows, d);
        let sides = [queries, keys].map(|longest| Lines { begins: begins.clone(), longest });
        (Sequences::Packed(sides), [of(heads, queries, d), of(groups, keys, d), of(groups, keys, dv)])
    } else if let Some(page) = drawn.page {
        let (page, lengths) = (page as usize, Tensor::full(keys as u32, batch, &Device::Cpu)?);
        let table = Tensor::zeros((batch, keys / page), DType::U32, &Device::Cpu)?;
        let of = |d| layout(1, groups, page, d);
        (Sequences::Paged { table, lengths }, [layout(batch, heads, queries, d), of(d), of(dv)])
    } else {
        let of = |d| layout(batch, groups, keys, d);
        (Sequences::Equal, [layout(batch, heads, queries, d), of(d), of(dv)])
    };
    let (causal, window, soft_cap) = (drawn.causal, drawn.window, drawn.soft_cap);
    let what = Attention { causal, window, soft_cap, ..Attention::default() };
    let op = Op { what, sequences, sums: None };
    let format = Format::named(drawn.format).expect("a format");
    let storage = CpuStorage::F16(Vec::new());
    let asked = op.asked((Stored::Host(&storage), format), [&q, &k, &v], [1 << 20, 2 << 20, 3 << 20, 0])?;
    Ok(asked.request)
}

/// Whether a door's choice is as fast as the one that is ranked first, by the model.
fn compare<K: Family>(request: &K::Request<'_>, problem: &str) -> bool {
    let machine = Machine::h200();
    let asked = K::request(problem).unwrap_or_else(|error| panic!("{problem}: {error}"));
    assert_eq!(K::problem(request).to_string(), K::problem(&asked).to_string());
    let (found, wanted) = (choose::<K>(request, None, &machine, None), K::ranked(&asked, &machine, 1));
    let Ok(wanted) = wanted else {
        assert!(found.is_err(), "{problem}");
        return false;
    };
    let ratio = found.expect("one is ranked").microseconds / wanted[0].microseconds;
    assert!((1.0..1.01).contains(&ratio), "{problem}: {ratio}");
    true
}

#[test]
fn the_problem_is_the_one_that_came() -> Result<()> {
    let (mut random, mut count) = (Draw::new(11), 0);
    for i in 0..2000 {
        let mut drawn = DrawnHeads::draw(&mut random, i % 2 == 1);
        // No door of candle asks for a fixed order of sums, or has pages without keys.
        drawn.problem = drawn.problem.replace(" fixed=on", "");
        if drawn.page.is_some() && drawn.lengths[1] == 0 {
            continue;
        }
        let request = requested(&drawn)?;
        count += usize::from(match i % 2 {
            0 => compare::<falchion::attention::Attention>(&request, &drawn.problem),
            _ => compare::<AttentionBackward>(&request, &drawn.problem),
        });
    }
    assert!(count > 1700, "{count}");
    Ok(())
}

/// Nothing is measured on a CPU, and nothing afterwards because of it.
#[test]
fn kernels_are_measured_on_cards() -> Result<()> {
    let x = Tensor::zeros((1, 1, 2, 64), DType::F16, &Device::Cpu)?;
    let run = || attention(&x, &x, &x, Attention::default());
    let error = tuned(3, run).expect_err("no card").to_string();
    assert!(error.contains("q is in the host's memory, one on a card was needed"), "{error}");
    assert_eq!(run()?.dims(), [1, 1, 2, 64]);
    Ok(())
}
