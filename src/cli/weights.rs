//! `--dtype-b s4g128`: quantised weights, with scales and zero points from files.

use core::fmt;

use crate::verify::{Format as Oracle, HostMatrix, Order, Weights, weights};
use collective::{Code, Format, WeightsSpec};
use kernel::GemmProblem;

use crate::cli::Failure;
use crate::cli::files::{self, Found as File, Matrix, held};
use crate::cli::scales::Scaling;

/// Which operand is in few bits, its code, and the 16-bit format that it is converted to.
#[derive(Clone, Copy, Debug)]
pub(crate) struct FewBits {
    pub(crate) coded: Coded,
    pub(crate) is_b: bool,
    pub(crate) wide: Format,
}

/// The files about it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Said<'a> {
    /// `--scale-a`, `--scale-b`.
    pub(crate) scales: [Option<&'a str>; 2],
    /// `--zero-a`, `--zero-b`.
    pub(crate) zeros: [Option<&'a str>; 2],
}

/// The operand in few bits: its format in memory, its numbers if they are from files, and the scales that
/// remain for the epilogue.
pub(crate) struct Found {
    pub(crate) spec: WeightsSpec,
    pub(crate) weights: Option<Weights>,
    pub(crate) scaling: Scaling,
}

/// Quantised weights as `--dtype` and `--dtype-b` say them: a code, `g` and the group, `z` for zero points.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Coded {
    pub(crate) code: Code,
    /// Number of elements along K that share a scale; `None` if none do, or if a file of scales says it.
    pub(crate) group: Option<u32>,
    pub(crate) zeros: bool,
}

impl Coded {
    pub(crate) fn named(text: &str) -> Option<Self> {
        let (zeros, word) = text.strip_suffix('z').map_or((false, text), |word| (true, word));
        if let Some(code) = Code::named(word) {
            return Some(Self { code, group: None, zeros });
        }
        let (code, group) = word.rsplit_once('g')?;
        let size = group.parse().ok().filter(|size: &u32| size.to_string() == group)?;
        let group = WeightsSpec::GROUPS.contains(&size).then_some(size);
        (group.is_some() || size == 0).then_some(Self { code: Code::named(code)?, group, zeros })
    }

    /// The same without files.
    pub(crate) fn spec(self) -> WeightsSpec {
        WeightsSpec { code: self.code, group: self.group.unwrap_or(0), zeros: self.zeros }
    }
}

impl fmt::Display for Coded {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let group = self.group.map_or_else(String::new, |group| format!("g{group}"));
        write!(f, "{}{group}{}", self.code, if self.zeros { "z" } else { "" })
    }
}

impl FewBits {
    fn side(&self) -> &'static str {
        if self.is_b { "b" } else { "a" }
    }

    /// Reads the files of scales and zero points. `matrix` is the operand, if it is from a file.
    pub(crate) fn read(
        &self,
        said: Said<'_>,
        problem: GemmProblem,
        matrix: Option<&Matrix>,
    ) -> Result<Found, Failure> {
        let GemmProblem { m, n, k } = problem;
        let (of, other) = (usize::from(self.is_b), usize::from(!self.is_b));
        let rows = [m, n][of];
        if let Some(name) = said.zeros[other] {
            let (side, is) = (["a", "b"][other], self.side());
            refuse!(
                "--zero-{side} is `{name}`, but the operand in few bits is --dtype-{is}'s: give --zero-{is}"
            );
        }
        let names = if self.is_b { [said.scales[0], None] } else { [None, said.scales[1]] };
        let scaling = Scaling::read(names, problem, None)?;
        let Scaling::Number(factor) = scaling else {
            let side = ["a", "b"][other];
            refuse!(
                "--scale-{side} has a scale per row or block: with weights in few bits, one number was needed"
            );
        };
        let zeros =
            said.zeros[of].map(|name| self.lines("zero", name, [rows, k], self.coded.group)).transpose()?;
        // Scales of groups, if groups are asked for; otherwise as the file's shape says.
        let grouped = self.coded.group.is_some() || zeros.is_some();
        let scales = match said.scales[of] {
            None => None,
            Some(name) => match self.factors(name, [rows, k])?.filter(|_| !grouped) {
                None => Some(self.lines("scale", name, [rows, k], self.coded.group)?),
                Some(factors) => return self.of_channels(factors, factor, problem, matrix),
            },
        };
        let group = match (&scales, &zeros, self.coded.group) {
            (Some((group, _)), ..) => *group,
            (None, Some(_), _) => {
                let side = self.side();
                refuse!(
                    "--zero-{side} is given and --scale-{side} is not: zero points need scales per group"
                );
            }
            (None, None, Some(_)) if matrix.is_some() => {
                let side = self.side();
                refuse!("groups need scales per group: --scale-{side} was needed");
            }
            (None, None, group) => group.unwrap_or(0),
        };
        let differ =
            scales.as_ref().zip(zeros.as_ref()).filter(|((scaled, _), (zeroed, _))| scaled != zeroed);
        if let Some(((scaled, _), (zeroed, _))) = differ {
            refuse!("--scale-{0} has groups of {scaled}, and --zero-{0} has groups of {zeroed}", self.side());
        }
        if self.coded.zeros && matrix.is_some() && zeros.is_none() {
            let side = self.side();
            refuse!("the weights have zero points (z): --zero-{side} was needed");
        }
        let zero_points = zeros.is_some() || self.coded.zeros;
        let spec = WeightsSpec { code: self.coded.code, group, zeros: zero_points };
        let scales = scales.map(|(_, matrix)| matrix);
        let weights = matrix
            .map(|matrix| self.weights(matrix, group, scales, zeros.map(|(_, zeros)| zeros)))
            .transpose()?;
        Ok(Found { spec, weights, scaling: Scaling::Number(factor) })
    }

    /// One scale per row of A or column of B, which the epilogue applies.
    fn of_channels(
        &self,
        factors: Vec<f32>,
        factor: f64,
        GemmProblem { m, n, .. }: GemmProblem,
        matrix: Option<&Matrix>,
    ) -> Result<Found, Failure> {
        let weights = matrix.map(|matrix| self.weights(matrix, 0, None, None)).transpose()?;
        let spec = WeightsSpec::of(self.coded.code);
        let scaling = match factors[..] {
            [one] => Scaling::Number(f64::from(one) * factor),
            _ if self.is_b => Scaling::Vectors([vec![factor as f32; m as usize], factors]),
            _ => Scaling::Vectors([factors, vec![factor as f32; n as usize]]),
        };
        Ok(Found { spec, weights, scaling })
    }

    /// The scales of a file with one number, or with one number per row of A or column of B; `None` for other
    /// shapes. Up to a K of 128 a line may also be of one group, which is the same, except for codes whose scales
    /// of groups are powers of two.
    fn factors(&self, name: &str, [rows, k]: [u32; 2]) -> Result<Option<Vec<f32>>, Failure> {
        let file = files::look_any_rank(name)?;
        let (groups, found) = self.groups(&file);
        let line = found == rows && (k > 128 || self.coded.code != Code::E2m1);
        if groups != 1 || found != 1 && !line {
            return Ok(None);
        }
        let matrix = file.read()?;
        Ok(Some((0..found).map(|row| self.at(&matrix, row, 0) as f32).collect()))
    }

    /// Numbers of groups and rows of a file. B's file is groups by columns, A's is rows by groups.
    fn groups(&self, file: &File) -> (u32, u32) {
        if self.is_b { (file.rows, file.columns) } else { (file.columns, file.rows) }
    }

    fn at(&self, matrix: &Matrix, row: u32, group: u32) -> f64 {
        if self.is_b { matrix.get(group, row) } else { matrix.get(row, group) }
    }

    fn shape(&self, groups: u32, rows: u32) -> String {
        if self.is_b { format!("{groups} x {rows}") } else { format!("{rows} x {groups}") }
    }

    /// The possible shapes of scales, for an error.
    fn wanted(&self, [rows, k]: [u32; 2], group: Option<u32>) -> String {
        let shape = |group: u32| format!("{} (groups of {group})", self.shape(k.div_ceil(group), rows));
        match group {
            Some(group) => shape(group),
            None => format!("one number, {rows} of them, {}", WeightsSpec::GROUPS.map(shape).join(", ")),
        }
    }

    /// Reads a file with one number per group, and finds the group size. The resulting matrix has one row per
    /// group.
    fn lines(
        &self,
        what: &str,
        name: &str,
        [rows, k]: [u32; 2],
        group: Option<u32>,
    ) -> Result<(u32, HostMatrix), Failure> {
        let file = files::look_any_rank(name)?;
        let (groups, found) = self.groups(&file);
        let fitting: Vec<u32> = match group {
            Some(group) => vec![group],
            None => WeightsSpec::GROUPS.to_vec(),
        };
        let fitting: Vec<u32> = fitting
            .into_iter()
            .filter(|&group| group > 0 && k.div_ceil(group) == groups && found == rows)
            .collect();
        let side = self.side();
        let &[group] = &fitting[..] else {
            let operand = if self.is_b { format!("{k} x {rows}") } else { format!("{rows} x {k}") };
            return Err(Failure::usage(match fitting[..] {
                [] => format!(
                    "--{what}-{side} is {} of an operand of {operand}; {} was needed",
                    self.shape(groups, found),
                    self.wanted([rows, k], group)
                ),
                _ => format!(
                    "--{what}-{side} has one line, which fits groups of {fitting:?}: name the group, as {}g{}",
                    self.coded.code, fitting[0]
                ),
            }));
        };
        let powers = what == "scale" && self.coded.code == Code::E2m1;
        let format =
            if powers { Oracle::U8 } else { Oracle::named(self.wide.name()).unwrap_or(Oracle::Bf16) };
        let matrix = file.read()?;
        let ld = rows.next_multiple_of(16).max(16);
        let lines = files::filled(format, [groups, rows], Order::RowMajor, ld, |group, row| {
            let value = self.at(&matrix, row, group);
            let bits = match powers {
                true if value.fract() != 0.0 || !(0.0..255.0).contains(&value) => {
                    Err("a whole number e from 0 to 254, which means 2^(e - 127), was needed".to_owned())
                }
                false if !value.is_finite() => Err("a finite number was needed".to_owned()),
                _ => held(format, value),
            };
            bits.map_err(|needed| {
                usage!("--{what}-{side} has {value} for row {row} of group {group}: {needed}")
            })
        })?;
        Ok((group, lines))
    }

    /// The codes of an operand from a file. Each element must be a value of the code.
    pub(crate) fn weights(
        &self,
        matrix: &Matrix,
        group: u32,
        scales: Option<HostMatrix>,
        zeros: Option<HostMatrix>,
    ) -> Result<Weights, Failure> {
        let (rows, k) = if self.is_b { (matrix.columns, matrix.rows) } else { (matrix.rows, matrix.columns) };
        let code = weights::WeightFormat::named(self.coded.code.name()).unwrap_or(weights::WeightFormat::S4);
        let mut codes = Vec::with_capacity(rows as usize * k as usize);
        for (row, column) in files::places([rows, k]) {
            let value = if self.is_b { matrix.get(column, row) } else { matrix.get(row, column) };
            match self.coded.code.nearest(value).filter(|&code| self.coded.code.value(code) == Some(value)) {
                Some(code) => codes.push(code),
                None => {
                    let [line, place] = if self.is_b { [column, row] } else { [row, column] };
                    refuse!(
                        "--{} has {value} in row {line}, column {place}: a value of {} was needed",
                        self.side(),
                        self.coded.code
                    );
                }
            }
        }
        Ok(Weights { code, extents: [rows, k], codes, group, scales, zeros })
    }
}
