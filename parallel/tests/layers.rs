//! Random layers on 1 to 8 emulated ranks, beside the whole product in `f64`.

use falchion_parallel::verify::{Drawn, Kind, Numbers};
use falchion_parallel::{Group, Tokens};

/// Each rank does the same in a thread of its own.
fn ranks<T: Send>(size: u32, work: impl Fn(Group) -> T + Sync) -> Vec<T> {
    std::thread::scope(|scope| {
        let groups = Group::emulated(size).expect("a group").into_iter();
        let ranks: Vec<_> = groups.map(|group| scope.spawn(|| work(group))).collect();
        ranks.into_iter().map(|rank| rank.join().expect("no panic")).collect()
    })
}

fn random(size: u32, count: usize, seed: u64) {
    let results = ranks(size, |mut group| {
        let mut of = fastrand::Rng::with_seed(seed);
        (0..count).try_for_each(|_| Drawn::new(&mut of, size).check(&mut group, 1))
    });
    // One rank's failure is all ranks' failure: the one that has seen it says most.
    let errors: Vec<_> =
        results.into_iter().filter_map(|result| result.err().map(|error| error.to_string())).collect();
    assert!(errors.is_empty(), "{}", errors.join("\n"));
}

/// In long runs, a thousand.
#[test]
fn layers_equal_the_whole_product() {
    let long = std::env::var_os("FALCHION_LONG").is_some();
    for (size, count) in [(1, 10), (2, 12), (3, 10), (4, 10), (5, 0), (6, 0), (7, 0), (8, 6)] {
        random(size, if long { 125 } else { count }, u64::from(size));
    }
}

/// A wrong result is found: the check can fail.
#[test]
fn a_layer_of_other_numbers_is_wrong() {
    let results = ranks(2, |mut group| {
        let layer = Drawn {
            kind: Kind::Row,
            numbers: Numbers::Bf16,
            tokens: 4,
            n: 16,
            k: 64,
            bias: false,
            residual: false,
            side: false,
            divided: false,
            seed: 1,
        };
        // Rank 1 has another seed, so other weights.
        Drawn { seed: 1 + u64::from(group.rank()), ..layer }.check(&mut group, 1)
    });
    for result in results {
        assert!(result.expect_err("other numbers").to_string().contains(", number "));
    }
}

/// A layer that adds up products of all ranks, and one whose rows travel.
#[test]
fn bits_are_the_same_in_100_runs() {
    for kind in [Kind::Row, Kind::Experts] {
        let layer = Drawn {
            kind,
            numbers: Numbers::Bf16,
            tokens: 6,
            n: 16,
            k: 64,
            bias: true,
            residual: false,
            side: false,
            divided: true,
            seed: 7,
        };
        for result in ranks(3, |mut group| Drawn { k: 96, n: 48, ..layer.clone() }.check(&mut group, 100)) {
            result.expect("the same bits");
        }
    }
}

#[test]
fn collectives_equal_their_definition() {
    const SIZE: usize = 3;
    let results = ranks(SIZE as u32, |mut group| {
        let rank = group.rank() as usize;
        let own: Vec<u32> = (0..6).map(|i| (100 * rank + i) as u32).collect();
        let from = group.upload(&own)?;
        let mut all = group.zeros::<u32>(6 * SIZE)?;
        group.all_gather(from.view(), all.view_mut())?;
        // To rank r go r + 1 numbers.
        let mut some = group.zeros::<u32>(SIZE * (rank + 1))?;
        group.all_to_all((from.view(), &[1, 2, 3]), (some.view_mut(), &[rank + 1; SIZE]))?;
        let ones = group.upload(&[rank as f32, 1.0])?;
        let mut largest = group.zeros::<f32>(2)?;
        group.all_max(ones.view(), largest.view_mut())?;
        Ok::<_, falchion_parallel::Error>((group.read(&all)?, group.read(&some)?, group.read(&largest)?))
    });
    for (rank, result) in results.into_iter().enumerate() {
        let (all, some, largest) = result.expect("all came");
        assert_eq!(
            all,
            (0..SIZE).flat_map(|rank| (0..6).map(move |i| (100 * rank + i) as u32)).collect::<Vec<_>>()
        );
        let first = [0, 1, 3][rank];
        let of = |peer: usize| (first..first + rank + 1).map(move |i| (100 * peer + i) as u32);
        assert_eq!(some, (0..SIZE).flat_map(of).collect::<Vec<_>>());
        assert_eq!(largest, [2.0, 1.0]);
    }
}

#[test]
fn what_does_not_fit_is_named_before_anything_is_sent() {
    use falchion_parallel::{ColumnParallel, Cut, RowParallel, Weights};
    use half::bf16;
    let data = vec![bf16::ONE; 96 * 64];
    for words in ranks(2, |mut group| {
        let weights = Weights::new(&data, [96, 64]).expect("extents");
        let mut words = Vec::new();
        let mut say = |error: falchion_parallel::Error| words.push(error.to_string());
        let mut column =
            ColumnParallel::<bf16>::new(&group, &weights, &Cut::Rows, Tokens::Whole).expect("divides");
        let x = group.upload(&[bf16::ONE; 65]).expect("memory");
        let mut y = group.zeros::<bf16>(49).expect("memory");
        say(column.forward(&mut group, x.view(), y.view_mut()).expect_err("65 numbers"));
        say(column
            .forward(&mut group, x.view().part(..64).expect("a part"), y.view_mut())
            .expect_err("49 outputs"));
        say(ColumnParallel::<half::f16, bf16>::new(&group, &weights, &Cut::Rows, Tokens::Whole)
            .expect_err("f16"));
        say(ColumnParallel::<bf16, half::f16>::new(&group, &weights, &Cut::Rows, Tokens::Whole)
            .expect_err("f16"));
        let mut row = RowParallel::<bf16>::new(&group, &weights, Tokens::Divided).expect("divides");
        let x = group.upload(&[bf16::ONE; 3 * 32]).expect("memory");
        say(row.forward(&mut group, x.view(), y.view_mut()).expect_err("3 tokens"));
        let column =
            ColumnParallel::<bf16>::new(&group, &weights, &Cut::Rows, Tokens::Whole).expect("divides");
        say(column.with_epilogue(&group, "gelu(acc", &[]).expect_err("a bracket"));
        say(x.view().part(90..100).expect_err("too long"));
        let fused = |cut: &Cut, text: &str, count: usize| {
            let column = ColumnParallel::<bf16>::new(&group, &weights, cut, Tokens::Whole).expect("divides");
            let bias = [("bias", falchion_parallel::Argument::Columns(vec![0.0; count]))];
            column.with_epilogue(&group, text, &bias).map(|_| ()).expect_err("a vector that does not fit")
        };
        say(fused(&Cut::Rows, "acc + bias[n]", 97));
        say(fused(&Cut::Parts(vec![48, 48]), "gated(silu, acc)", 48));
        words
    }) {
        for (found, expected) in words.iter().zip([
            "the length of the input is 65, a multiple of 64",
            "the length of the output is 49, 48",
            "the weight's dtype is bf16, f16",
            "the output's dtype is f16, bf16",
            "the number of tokens is 3, a multiple of 2",
            "epilogue",
            "a range is 90..100, a part of 0..96",
            "`bias` is 97, 96",
            "`bias` is a vector, none, as it follows joined columns",
        ]) {
            assert!(found.contains(expected), "{found}");
        }
    }
}

/// A record is replayed on new numbers in the same tensors, and keeps its scratch memory while others grow theirs.
#[test]
fn records_are_replayed() {
    use falchion_parallel::{ColumnParallel, Cut, Experts, Routes, Weights};
    use half::bf16;
    let [one, two] = [1.0, 2.0].map(bf16::from_f32);
    for (first, second, refused) in ranks(2, |mut group| {
        let weights = vec![one; 32 * 64];
        let weights = Weights::new(&weights, [32, 64]).expect("extents");
        let layer = ColumnParallel::<bf16>::new(&group, &weights, &Cut::Rows, Tokens::Divided);
        let mut layer = layer.expect("divides");
        let mut larger =
            ColumnParallel::<bf16>::new(&group, &weights, &Cut::Rows, Tokens::Divided).expect("divides");
        let mut x = group.upload(&[one; 4 * 64]).expect("memory");
        let mut y = group.zeros::<bf16>(8 * 16).expect("memory");
        let (from, to) =
            (group.upload(&[two; 4 * 64]).expect("memory"), group.upload(&[one; 64 * 64]).expect("memory"));
        let mut much = group.zeros::<bf16>(128 * 16).expect("memory");
        let mut record =
            group.record(|group| layer.forward(group, x.view(), y.view_mut())).expect("recorded");
        larger.forward(&mut group, to.view(), much.view_mut()).expect("runs");
        record.replay(&mut group).expect("replayed");
        drop(record);
        let first = group.read(&y).expect("runs");
        x = group.upload(&[two; 4 * 64]).expect("memory");
        let mut record =
            group.record(|group| layer.forward(group, x.view(), y.view_mut())).expect("recorded");
        record.replay(&mut group).expect("replayed");
        drop(record);
        let second = group.read(&y).expect("runs");
        // Experts need the host.
        let table = vec![one; 2 * 64 * 64];
        let table = Weights::new(&table, [2 * 64, 64]).expect("extents");
        let mut experts = Experts::<bf16>::new(&group, 2, [&table; 2], None).expect("divides");
        let mut z = group.zeros::<bf16>(4 * 64).expect("memory");
        let routes = Routes { experts: &[0, 1, 0, 1], weights: &[1.0; 4] };
        let mut record = group
            .record(|group| experts.forward(group, from.view(), routes, z.view_mut()))
            .expect("ran once");
        let refused = record.replay(&mut group).expect_err("needs the host").to_string();
        (first, second, refused)
    }) {
        assert!(first.iter().all(|&y| y == bf16::from_f32(64.0)));
        assert!(second.iter().all(|&y| y == bf16::from_f32(128.0)));
        assert!(refused.ends_with("is part of a record, outside: it needs the host was needed"), "{refused}");
    }
}

/// As many experts as models have, on one rank and on two. Expert `i` multiplies by a power of two of `i`.
#[test]
fn experts_are_many() {
    use falchion_parallel::{Experts, Routes, Weights};
    use half::bf16;
    const COUNT: usize = 768;
    let number = |expert: usize| f32::from([1u8, 2, 4][expert % 3]);
    for size in [1, 2] {
        for y in ranks(size, |mut group| {
            let up: Vec<bf16> = (0..COUNT * 16 * 16).map(|i| bf16::from_f32(number(i / 256))).collect();
            let down = vec![bf16::from_f32(0.5); COUNT * 16 * 16];
            let [up, down] =
                [&up, &down].map(|all| Weights::new(all, [COUNT as u32 * 16, 16]).expect("extents"));
            let mut experts =
                Experts::<bf16>::new(&group, COUNT as u32, [&up, &down], None).expect("divides");
            let x = group.upload(&[bf16::ONE; 3 * 16]).expect("memory");
            let mut y = group.zeros::<bf16>(3 * 16).expect("memory");
            let routes = Routes { experts: &[0, 383, 767], weights: &[1.0; 3] };
            experts.forward(&mut group, x.view(), routes, y.view_mut()).expect("runs");
            group.read(&y).expect("runs")
        }) {
            let want = [0, 383, 767].map(|expert| bf16::from_f32(16.0 * number(expert) * 8.0));
            assert!(
                y.chunks(16).zip(want).all(|(row, want)| row.iter().all(|&y| y == want)),
                "{size}: {y:?}"
            );
        }
    }
}

/// Two layers at once, then one of both results. Without the event between them the emulator refuses it, on every rank.
#[test]
fn layers_on_two_streams_wait_for_events() {
    use falchion_parallel::{ColumnParallel, Cut, RowParallel, Weights};
    use half::bf16;
    let data: Vec<bf16> = (0..64 * 64).map(|i| bf16::from_f32((i % 7) as f32 - 3.0)).collect();
    for waits in [true, false] {
        let results = ranks(2, |mut group| {
            let weights = Weights::new(&data, [64, 64]).expect("extents");
            let mut up = ColumnParallel::<bf16>::new(&group, &weights, &Cut::Rows, Tokens::Divided)?;
            let mut down = RowParallel::<bf16>::new(&group, &weights, Tokens::Divided)?;
            let x = group.upload(&data[..4 * 64])?;
            let part: Vec<bf16> = (0..8).flat_map(|row| data[row * 32..(row + 1) * 32].to_vec()).collect();
            let part = group.upload(&part)?;
            let (mut inner, mut y) = (group.zeros::<bf16>(8 * 32)?, group.zeros::<bf16>(4 * 64)?);
            let mut last = group.zeros::<bf16>(4 * 64)?;
            let mut side = group.stream()?;
            let done = group.on(&mut side, |group| {
                up.forward(group, x.view(), inner.view_mut())?;
                group.event()
            })?;
            down.forward(&mut group, part.view(), y.view_mut())?;
            if waits {
                group.after(&done)?;
            }
            down.forward(&mut group, inner.view(), last.view_mut())?;
            // The same, one after the other.
            let own = group.read(&last)?;
            up.forward(&mut group, x.view(), inner.view_mut())?;
            down.forward(&mut group, inner.view(), y.view_mut())?;
            Ok::<_, falchion_parallel::Error>(own == group.read(&y)?)
        });
        for result in results {
            match (waits, result) {
                (true, result) => assert!(result.expect("ordered")),
                (false, result) => {
                    let words = result.expect_err("not ordered").to_string();
                    // The one that sees it first says it, the other one that the group has failed.
                    assert!(
                        words.contains("written on another stream") || words.contains("has failed"),
                        "{words}"
                    );
                }
            }
        }
    }
}

/// Arguments of an epilogue that come with a call are checked there.
#[test]
fn operands_that_do_not_fit_are_named() {
    use falchion_parallel::{ColumnParallel, Cut, Weights};
    use half::bf16;
    let data = vec![bf16::ONE; 64 * 64];
    for words in ranks(2, |mut group| {
        let weights = Weights::new(&data, [64, 64]).expect("extents");
        let layer = |text| {
            let layer = ColumnParallel::<bf16>::new(&group, &weights, &Cut::Rows, Tokens::Whole);
            layer.expect("divides").with_epilogue(&group, text, &[]).expect("a formula")
        };
        let mut layers =
            ["acc + c[m,n]", "store(aux[m,n], acc)", "acc + c[l,m,n]", "acc * scale[m]:f32"].map(layer);
        let x = group.upload(&[bf16::ONE; 4 * 64]).expect("memory");
        let mut y = group.zeros::<bf16>(4 * 32).expect("memory");
        let (c, scales) =
            (group.zeros::<bf16>(4 * 32).expect("memory"), group.upload(&[2.0f32; 4]).expect("memory"));
        let mut words = Vec::new();
        let mut say = |which: usize, operands: &[(&str, falchion_parallel::Operand<'_>)]| {
            let done = layers[which].forward_with(&mut group, x.view(), operands, y.view_mut());
            words.push(done.map_or_else(|error| error.to_string(), |()| "done".to_owned()));
        };
        let part = |count| c.view().part(..count).expect("a part").into();
        say(0, &[]);
        say(0, &[("c", part(4 * 32)), ("d", part(4 * 32))]);
        say(0, &[("c", part(4 * 31))]);
        say(0, &[("c", scales.view().into())]);
        say(1, &[("aux", part(4 * 32))]);
        say(2, &[("c", part(4 * 32))]);
        say(3, &[("scale", scales.view().into())]);
        words.push(format!("{:?}", group.read(&y).expect("runs")[0].to_f32()));
        words
    }) {
        for (found, expected) in words.iter().zip([
            "`c` is missing, a matrix, with the layer or the call",
            "an operand of the call is d, one of c was needed",
            "`c` is 124, 128",
            "`c` is f32, bf16",
            "`aux` is read only, memory that is written",
            "one without `l`",
            "done",
            "128.0",
        ]) {
            assert!(found.contains(expected), "{found} for {expected}");
        }
    }
}
