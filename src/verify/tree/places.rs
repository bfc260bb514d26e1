//! The elements of D at which a tree is evaluated: all of them, or a sample of a large product.

use std::collections::BTreeSet;

use collective::tree::Shape;
use kernel::GemmProblem;
use reference::oracle::{COMPLETE, SAMPLE, spread};

/// Above this number of elements of D only a sample is evaluated.
const MOST_ELEMENTS: u64 = 1 << 22;

/// Number of columns, or of rows, that are evaluated whole because the tree reduces them.
const WHOLE: u32 = 16;

/// Rows and columns of D.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Places {
    pub(super) rows: Vec<u32>,
    pub(super) columns: Vec<u32>,
    /// Whether these are all elements of D.
    pub(super) all: bool,
}

/// Which elements are reduced to one number together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Reduced {
    /// Elements of a row.
    rows: bool,
    /// Elements of a column.
    columns: bool,
}

impl Reduced {
    /// `at` gives the addresses to which a tree reduces its value of an element. Neighbours and the far ends of
    /// the first row and of the first column are compared with the first element.
    fn of(Shape { m, n }: Shape, at: &dyn Fn([u32; 2]) -> BTreeSet<u64>) -> Self {
        let first = at([0, 0]);
        if first.is_empty() {
            return Self::default();
        }
        let meets = |places: [[u32; 2]; 2]| {
            places.into_iter().any(|place| place != [0, 0] && !first.is_disjoint(&at(place)))
        };
        Self { rows: meets([[0, 1.min(n - 1)], [0, n - 1]]), columns: meets([[1.min(m - 1), 0], [m - 1, 0]]) }
    }
}

impl Places {
    /// For a D of this shape. Up to `most` multiplications all elements are evaluated, and of a larger product
    /// a sample. What a tree reduces to one number is evaluated whole: some columns, some rows, or all of D.
    pub(super) fn of(
        problem: GemmProblem,
        shape: Shape,
        most: u64,
        reduces: &dyn Fn([u32; 2]) -> BTreeSet<u64>,
    ) -> Self {
        let (Shape { m, n }, products) = (shape, [problem.m, problem.n, problem.k].map(u128::from));
        let all = || Self { rows: (0..m).collect(), columns: (0..n).collect(), all: true };
        let elements = u64::from(m) * u64::from(n);
        let small = products.iter().product::<u128>() <= most.into();
        if elements == 0 || small && elements <= MOST_ELEMENTS {
            return all();
        }
        let (rows, columns) = match Reduced::of(shape, reduces) {
            Reduced { rows: true, columns: true } => return all(),
            Reduced { rows: false, columns: false } => (spread(m, SAMPLE), spread(n, SAMPLE)),
            Reduced { rows: true, .. } => (spread(m, WHOLE), (0..n).collect()),
            Reduced { columns: true, .. } => ((0..m).collect(), spread(n, WHOLE)),
        };
        let all = rows.len() as u64 * columns.len() as u64 == elements;
        Self { rows, columns, all }
    }

    /// Number of multiplications up to which all elements are evaluated.
    pub(super) const MOST: u64 = COMPLETE;

    /// The largest number of elements that are evaluated of a D of this shape. `whole` says that the tree reduces
    /// all of D to one number.
    pub(super) fn at_most(Shape { m, n }: Shape, whole: bool) -> u64 {
        let elements = u64::from(m) * u64::from(n);
        if whole || elements <= MOST_ELEMENTS {
            return elements;
        }
        u64::from(WHOLE) * u64::from(m.max(n)).max(u64::from(SAMPLE))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_reduced_is_evaluated_whole() {
        let problem = GemmProblem { m: 4096, n: 2048, k: 4096 };
        let shape = Shape { m: 4096, n: 2048 };
        let at = |address: u64| BTreeSet::from([address]);
        let of = |most, reduces: &dyn Fn([u32; 2]) -> BTreeSet<u64>| {
            let Places { rows, columns, all } = Places::of(problem, shape, most, reduces);
            [rows.len(), columns.len(), usize::from(all)]
        };
        for (why, reduces, want) in [
            ("nothing", &(|_| BTreeSet::new()) as &dyn Fn([u32; 2]) -> BTreeSet<u64>, [96, 96, 0]),
            ("columns", &|[_, column]| at(column.into()), [4096, 16, 0]),
            ("rows", &|[row, _]| at(row.into()), [16, 2048, 0]),
            ("everything", &|_| at(0), [4096, 2048, 1]),
            (
                "blocks of rows",
                &|[row, column]| at(u64::from(row) << 32 | u64::from(column / 128)),
                [16, 2048, 0],
            ),
            (
                "blocks of both",
                &|[row, column]| at(u64::from(row / 8) << 32 | u64::from(column / 8)),
                [4096, 2048, 1],
            ),
            (
                "a number for each element",
                &|[row, column]| at(u64::from(row) << 32 | u64::from(column)),
                [96, 96, 0],
            ),
        ] {
            assert_eq!(of(Places::MOST, reduces), want, "{why}");
        }
        let none = |_: [u32; 2]| BTreeSet::new();
        let small = GemmProblem { m: 100, n: 100, k: 1 };
        let places = |most| Places::of(small, Shape { m: 100, n: 100 }, most, &none);
        assert_eq!((places(10_000).all, places(9_999).all), (true, false));
        let wide = GemmProblem { m: 4096, n: 4096, k: 1 };
        assert!(!Places::of(wide, Shape { m: 4096, n: 4096 }, Places::MOST, &none).all, "many elements");
    }

    /// The far end alone may be reduced with the first element, and no element is asked for that D does not have.
    #[test]
    fn ends_of_rows_and_columns_are_asked() {
        let shape @ Shape { m, n } = Shape { m: 40, n: 30 };
        for (why, reduces, want) in [
            ("nothing", (|_| None) as fn([u32; 2]) -> Option<u32>, [false, false]),
            ("a row's ends", |[row, column]| Some(row * 29 + column % 29), [true, false]),
            ("a column's ends", |[row, column]| Some(row % 39 * 30 + column), [false, true]),
            ("both", |[row, column]| Some(row % 39 + column % 29), [true, true]),
            ("all but the first", |[row, column]| (row + column > 0).then_some(7), [false, false]),
        ] {
            let at = |place: [u32; 2]| {
                assert!(place[0] < m && place[1] < n, "{why}: {place:?} of {m} x {n}");
                reduces(place).map(u64::from).into_iter().collect()
            };
            let Reduced { rows, columns } = Reduced::of(shape, &at);
            assert_eq!([rows, columns], want, "{why}");
        }
        // One that has no neighbours is reduced with none.
        let Reduced { rows, columns } = Reduced::of(Shape { m: 1, n: 1 }, &|_| BTreeSet::from([3]));
        assert_eq!([rows, columns], [false, false]);
    }

    /// No more elements are evaluated than the memory is admitted for, and of a large D far fewer than all.
    #[test]
    fn the_most_elements_are_counted() {
        type Reduces = fn([u32; 2]) -> BTreeSet<u64>;
        let none: Reduces = |_| BTreeSet::new();
        let rows: Reduces = |[row, _]| BTreeSet::from([row.into()]);
        let columns: Reduces = |[_, column]| BTreeSet::from([column.into()]);
        let whole: Reduces = |_| BTreeSet::from([0]);
        for [m, n] in [[0, 7], [1, 1], [100, 100], [2048, 2048], [2049, 2048], [3, 1 << 21], [9000, 700]] {
            let (problem, shape) = (GemmProblem { m, n, k: 1 << 20 }, Shape { m, n });
            let all = u64::from(m) * u64::from(n);
            for most in [0, u64::MAX] {
                for (reduces, to_one) in [(none, false), (rows, false), (columns, false), (whole, true)] {
                    let places = Places::of(problem, shape, most, &reduces);
                    let count = places.rows.len() as u64 * places.columns.len() as u64;
                    assert!(count <= Places::at_most(shape, to_one), "{m} x {n}: {count}");
                }
            }
            assert_eq!(Places::at_most(shape, true), all);
        }
        for (shape, most) in [
            (Shape { m: 100, n: 100 }, 10_000),
            (Shape { m: 2048, n: 2048 }, 1 << 22),
            (Shape { m: 4096, n: 2048 }, 4096 * 16),
            (Shape { m: 65536, n: 131_072 }, 131_072 * 16),
        ] {
            assert_eq!(Places::at_most(shape, false), most, "{shape:?}");
        }
    }
}
