//! The random inputs of a case: what is in Q and K, and in which pages.

use super::*;

/// Every sequence has as many pages as its keys need, each page of the cache has one owner at most, and each seed
/// another order.
#[test]
fn pages_are_in_any_order() {
    let of = |seed| Case { seed, spare: 3, ..case(1) };
    let rows = [[1, 40], [1, 0], [1, 16], [1, 130]];
    let sequences = rows.map(|rows| Sequence { before: [0; 2], rows });
    let mut orders = Vec::new();
    for seed in 0..64 {
        let (pages, count) = of(seed).pages(Some(16), &sequences);
        assert_eq!((pages.iter().map(Vec::len).collect::<Vec<_>>(), count), (vec![3, 0, 1, 9], 16));
        let order = pages.concat();
        let mut sorted = order.clone();
        sorted.sort_unstable();
        sorted.dedup();
        assert!(sorted.len() == 13 && sorted.iter().all(|&page| page < 16), "{order:?}");
        orders.push(order);
    }
    orders.sort_unstable();
    orders.dedup();
    assert_eq!(orders.len(), 64, "orders of 64 seeds");
    assert_eq!(of(0).pages(None, &sequences), (Vec::new(), 0));
}

/// Rows of K count among those of `(batch, heads, rows)`: of a sequence, of all sequences, or of a page.
#[test]
fn keys_have_rows() {
    let pages = [vec![4, 1], vec![0, 3]];
    for (spec, extents, want) in [
        // Head and key of the second sequence, before which there are 9 keys.
        ("", [2, 3, 20], [([0, 0], 60), ([0, 19], 79), ([2, 7], (3 + 2) * 20 + 7)]),
        ("lengths=packed", [1, 3, 20], [([0, 0], 9), ([0, 10], 19), ([2, 7], 2 * 20 + 9 + 7)]),
        ("pages=16", [5, 3, 16], [([0, 5], 5), ([0, 16], 3 * 3 * 16), ([2, 23], (3 * 3 + 2) * 16 + 7)]),
        (
            "pages=16 lengths=packed",
            [5, 3, 16],
            [([1, 0], 16), ([1, 15], 31), ([2, 31], (3 * 3 + 2) * 16 + 15)],
        ),
    ] {
        let text = format!("d=64 tile=64x64 {spec}");
        let parsed = text.parse().expect("a spec");
        let keys = Keys { spec: &parsed, pages: &pages, extents };
        for ([head, key], row) in want {
            assert_eq!(keys.row((1, 9), head, key), row, "{spec}: head {head}, key {key}");
        }
    }
}

/// Q, K and V of 64 rows of 64 elements in two heads.
fn operands(values: Values) -> [Vec<Vec<f64>>; 3] {
    let case = Case { values, ..case(1) };
    let tensors = case.operands([1, 2, 64], [[1, 2, 64]; 2], [Format::F32; 2], [64; 2]);
    tensors.map(|tensor| (0..128).map(|row| tensor.values(row)).collect())
}

/// The mean and the standard deviation.
fn moments(all: impl Iterator<Item = f64> + Clone) -> [f64; 2] {
    let count = all.clone().count() as f64;
    let mean = all.clone().sum::<f64>() / count;
    [mean, (all.map(|of| (of - mean).powi(2)).sum::<f64>() / count).sqrt()]
}

/// Scores are products over the square root of 64.
fn scores(q: &[Vec<f64>], k: &[Vec<f64>]) -> Vec<f64> {
    let score = |(q, k): (&Vec<f64>, &Vec<f64>)| q.iter().zip(k).map(|(q, k)| q * k).sum::<f64>() / 8.0;
    q.iter().flat_map(|q| k.iter().map(move |k| (q, k))).map(score).collect()
}

#[test]
fn normal_values_are_around_zero() {
    for scale in [1.0, 0.25, 20.0] {
        let [q, k, v] = operands(Values::Normal(scale));
        for (name, tensor, want) in
            [("Q", &q, scale.sqrt()), ("K", &k, scale.sqrt()), ("V", &v, (4f64 / 3.0).sqrt())]
        {
            let [mean, deviation] = moments(tensor.iter().flatten().copied());
            assert!(
                mean.abs() < 0.1 * want && (deviation / want - 1.0).abs() < 0.1,
                "{name}: {mean}, {deviation}"
            );
            let most = if name == "V" { 2.0 } else { 3.0 * want };
            assert!(tensor.iter().flatten().all(|of| of.abs() <= most * 1.0001), "{name}");
        }
        let [mean, deviation] = moments(scores(&q, &k).into_iter());
        assert!(
            mean.abs() < 0.1 * scale && (deviation / scale - 1.0).abs() < 0.2,
            "{scale}: {mean}, {deviation}"
        );
    }
}

/// Two elements of a query, and one of a key that a query also has: scores of both signs.
#[test]
fn large_values_are_few() {
    for scale in [1e4, 1e-4] {
        let [q, k, _] = operands(Values::Large(scale));
        for (name, tensor, columns) in [("Q", &q, &[3, 9][..]), ("K", &k, &[3])] {
            for row in tensor {
                let some: Vec<_> = (0..64).filter(|&column| row[column] != 0.0).collect();
                assert_eq!(some, columns, "{name}");
            }
        }
        let scores = scores(&q, &k);
        for sign in [1.0, -1.0] {
            let of_sign = scores.iter().map(|score| score * sign / scale).filter(|score| *score > 0.0);
            assert!(of_sign.clone().count() > scores.len() / 3, "{scale}");
            assert!(of_sign.clone().all(|score| (0.249..2.26).contains(&score)), "{scale}");
        }
    }
}
