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
        (0..count).try_for_each(|_| Drawn::new(&mut of, size).check(&mut group))
    });
    // One rank's failure is all ranks' failure: the one that has seen it says most.
    let errors: Vec<_> =
        results.into_iter().filter_map(|result| result.err().map(|error| error.to_string())).collect();
    assert!(errors.is_empty(), "{}", errors.join("\n"));
}

#[test]
fn layers_equal_the_whole_product() {
    for (size, count) in [(1, 10), (2, 12), (3, 10), (4, 10), (8, 6)] {
        random(size, count, u64::from(size));
    }
}

#[test]
#[ignore = "long"]
fn a_thousand_layers_equal_the_whole_product() {
    for size in 1..=8 {
        random(size, 125, 100 + u64::from(size));
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
            divided: false,
            seed: 1,
        };
        // Rank 1 has another seed, so other weights.
        Drawn { seed: 1 + u64::from(group.rank()), ..layer }.check(&mut group)
    });
    for result in results {
        assert!(result.expect_err("other numbers").to_string().contains(", number "));
    }
}

#[test]
fn bits_are_the_same_in_every_run() {
    let run = || {
        ranks(4, |mut group| {
            let numbers: Vec<f32> =
                (0..64).map(|i| (i as f32 + f32::from(group.rank() as u8)).sin()).collect();
            let own = group.upload(&numbers).expect("memory");
            let mut sums = group.zeros::<f32>(16).expect("memory");
            group.reduce_scatter(own.view(), sums.view_mut()).expect("all came");
            group.read(&sums).expect("runs").iter().map(|sum| sum.to_bits()).collect::<Vec<_>>()
        })
    };
    let first = run();
    for _ in 0..20 {
        assert_eq!(run(), first);
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
