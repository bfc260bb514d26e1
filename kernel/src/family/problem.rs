//! What a GEMM's record is kept under.

use core::fmt;
use core::str::FromStr;

use collective::{Form, Format, LinearArguments, MatrixRef};
use cute_rs::atom::Major;

use crate::call::Call;
use crate::named::Named;
use crate::problem::GemmProblem;
use crate::products::GroupedProblem;
use crate::select::Request;
use crate::types::Types;
use crate::words::{Worded, pairs};

/// A problem: everything that decides which kernel is fastest.
///
/// [`of`](Self::of) makes one from a [`Request`].
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Problem {
    /// One GEMM per launch, or several.
    pub form: Form,
    /// The [`Types`], as text: `bf16`, for example, `e4m3-1x128-128x128` or `bf16-sparse-a`. D's format is that which the epilogue stores.
    pub element: String,
    /// Contiguous directions of A and B.
    pub majors: [Major; 2],
    /// Rows of A and D; for groups of rows, the sum over all groups.
    pub m: u32,
    /// Columns of B and D; for GEMMs described by records, the largest.
    pub n: u32,
    /// Columns of A, rows of B; for groups along K, of all groups; for GEMMs described by records, the largest.
    pub k: u32,
    /// Number of GEMMs of the launch; 1 for [`Form::Single`].
    pub groups: u32,
    /// Name of the epilogue: `linear`, `linear+c` if C is read, or the name of a fusion.
    pub epilogue: String,
    /// Whether all rows of A, of B and of D begin at multiples of 16 bytes, so that tensor copies can access
    /// them.
    pub aligned: [bool; 3],
}

impl Problem {
    /// One GEMM `[m, n, k]` of packed matrices with the epilogue `linear`.
    pub fn single(element: impl Into<String>, majors: [Major; 2], [m, n, k]: [u32; 3]) -> Self {
        let (element, epilogue) = (element.into(), "linear".to_owned());
        let aligned = packed(&element, majors, [m, n, k]);
        Self { form: Form::Single, element, majors, m, n, k, groups: 1, epilogue, aligned }
    }

    /// The problem of a request.
    pub fn of(request: &Request<'_>) -> Self {
        let (call, types) = (&request.call, request.stored());
        let groups = request.groups().unwrap_or_else(|| vec![call.problem]);
        let most = |of: fn(&GemmProblem) -> u32| groups.iter().map(of).max().unwrap_or(0);
        let sum = |of: fn(&GemmProblem) -> u32| groups.iter().map(of).fold(0, u32::saturating_add);
        let along_k = call.products.form().divides_k();
        let epilogue = match request.fusion {
            Some(fusion) => fusion.name(),
            None if call.epilogue.beta != 0.0 => "linear+c",
            None => "linear",
        };
        let is_aligned = |matrix: MatrixRef, bytes: u32| {
            let bytes = u64::from(bytes);
            let all = matrix.address | matrix.ld.wrapping_mul(bytes) | matrix.stride.wrapping_mul(bytes);
            all.is_multiple_of(16)
        };
        let ([a, b, d], described) = (types.bytes(), call.products.form().described());
        Self {
            form: call.products.form(),
            element: types.to_string(),
            majors: request.majors,
            m: if along_k { call.problem.m } else { sum(|group| group.m) },
            n: most(|group| group.n),
            k: if along_k { call.problem.k } else { most(|group| group.k) },
            groups: call.products.count(),
            epilogue: epilogue.to_owned(),
            // The host does not know where described matrices are.
            aligned: [(call.a, a), (call.b, b), (call.d, d)]
                .map(|(matrix, bytes)| described || is_aligned(matrix, bytes)),
        }
    }

    /// A request of this problem. Groups are equally large, as far as their number divides what they share. Matrices are packed; where
    /// [`aligned`](Self::aligned) says otherwise, their rows are some elements longer. C of `linear+c` is a matrix of its own, whose
    /// factor is 1/2, or 2 where D is computed in integers.
    ///
    /// # Errors
    /// The first field that no request has, with its value and what was needed.
    pub fn request(&self) -> Result<Request<'static>, String> {
        let Self { form, element, majors, m, n, k, groups, epilogue, .. } = self;
        let types = Types::named(element).ok_or_else(|| {
            format!("element is `{element}`, types such as bf16, e4m3-e5m2 or bf16-s4g128 were needed")
        })?;
        let divided = |extent: u32| match groups {
            0 => Err("groups is 0, at least 1 was needed".to_owned()),
            _ if !extent.is_multiple_of(*groups) => {
                Err(format!("m is {extent}, a multiple of the {groups} groups was needed"))
            }
            _ => Ok(extent / groups),
        };
        let (count, address) = (*groups, 1 << 20);
        let products = match form {
            Form::Single if count != 1 => {
                return Err(format!("groups is {count}, 1 was needed: form is single"));
            }
            Form::Single => GroupedProblem::One,
            Form::Batched => GroupedProblem::Batched { count },
            Form::GroupedContiguous => GroupedProblem::GroupedContiguous { count, offsets: address },
            Form::GroupedMasked => GroupedProblem::GroupedMasked { count, rows: address, room: divided(*m)? },
            Form::KGrouped => GroupedProblem::KGrouped { count, offsets: address },
            Form::PointerArray => GroupedProblem::PointerArray { count, records: address },
        };
        let m = if matches!(form, Form::PointerArray) { divided(*m)? } else { *m };
        let mut request = Request::packed(types, *majors, GemmProblem { m, n: *n, k: *k });
        let beta = if types.d == Format::S32 { 2.0 } else { 0.5 };
        match epilogue.as_str() {
            "linear" => {}
            "linear+c" => {
                request.call.epilogue =
                    LinearArguments { beta, c: Some(request.call.d), ..request.call.epilogue }
            }
            text => request = request.fused(text.parse().map_err(|error| format!("epilogue: {error}"))?),
        }
        let stored = request.stored();
        if stored != types {
            return Err(format!("element is `{element}`, `{stored}` was needed: so the epilogue stores D"));
        }
        let Call { a, b, d, .. } = &mut request.call;
        for (i, matrix) in [a, b, d].into_iter().enumerate() {
            let step = u64::from(16 / types.bytes()[i].clamp(1, 16));
            match self.aligned[i] {
                true => matrix.ld = matrix.ld.next_multiple_of(step),
                false if matrix.ld.is_multiple_of(step) && step > 1 => matrix.ld += 1,
                false => {}
            }
        }
        request.call.epilogue.c = request.call.epilogue.c.map(|_| request.call.d);
        let request = request.several(products);
        match Self::of(&request) {
            same if same == *self => Ok(request),
            other => Err(format!("`{other}` was needed")),
        }
    }

    /// Whether `aligned` is the same as for packed matrices.
    fn is_packed(&self) -> bool {
        self.aligned == packed(&self.element, self.majors, [self.m, self.n, self.k])
    }

    /// The order of problems.
    fn rank(&self) -> impl Ord {
        let Self { form, element, majors, m, n, k, groups, epilogue, aligned } = self;
        (form.word(), element, majors.word(), epilogue, [*m, *n, *k, *groups], aligned)
    }
}

/// Whether rows of packed A, B and D of `[m, n, k]` begin at multiples of 16 bytes. For unknown types: yes.
fn packed(element: &str, majors: [Major; 2], [m, n, k]: [u32; 3]) -> [bool; 3] {
    let Some(types) = Types::named(element) else { return [true; 3] };
    let kept = types.kept(k);
    let contiguous = |i: usize, mn| if majors[i] == Major::K { kept[i] } else { mn };
    let rows = [contiguous(0, m), contiguous(1, n), n];
    let [a, b, d] = types.bytes();
    [0, 1, 2].map(|i| (u64::from(rows[i]) * u64::from([a, b, d][i])).is_multiple_of(16))
}

impl From<Request<'_>> for Problem {
    fn from(request: Request<'_>) -> Self {
        Self::of(&request)
    }
}

impl TryFrom<Problem> for Request<'_> {
    type Error = String;

    fn try_from(problem: Problem) -> Result<Self, String> {
        problem.request()
    }
}

impl Ord for Problem {
    fn cmp(&self, other: &Self) -> core::cmp::Ordering {
        self.rank().cmp(&other.rank())
    }
}

impl PartialOrd for Problem {
    fn partial_cmp(&self, other: &Self) -> Option<core::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

/// For example `single 4096x4096x4096 bf16 kk epilogue=linear`. With several GEMMs, `groups=` says how many. `aligned=` is there
/// unless alignment is that of packed matrices: of A, B and D, `1` or `0` each. The epilogue is last, because it may have spaces.
impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { form, element, majors, m, n, k, groups, epilogue, aligned } = self;
        write!(f, "{} {m}x{n}x{k} {element} {}", form.word(), majors.word())?;
        if *groups != 1 {
            write!(f, " groups={groups}")?;
        }
        if !self.is_packed() {
            let [a, b, d] = aligned.map(u8::from);
            write!(f, " aligned={a}{b}{d}")?;
        }
        write!(f, " epilogue={epilogue}")
    }
}

impl FromStr for Problem {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let (words, epilogue) = text
            .split_once(" epilogue=")
            .ok_or_else(|| format!("`{text}` has no epilogue, ` epilogue=..` was needed at the end"))?;
        let mut words = words.split(' ');
        let mut next = |what: &str| words.next().ok_or_else(|| format!("`{text}` has no {what}"));
        let form = next("form")?;
        let form = Form::named(form).ok_or_else(|| {
            format!("form is `{form}`, single, batched, ragged, masked, k-grouped or grouped was needed")
        })?;
        let extents = next("extents")?;
        let numbers =
            <[u32; 3]>::read(extents).ok_or_else(|| format!("extents are `{extents}`, MxNxK was needed"))?;
        let element = next("element")?.to_owned();
        let layout = next("layout")?;
        let majors = Named::named(layout)
            .ok_or_else(|| format!("layout is `{layout}`, kk, kn, mk or mn was needed"))?;
        let mut problem =
            Self { form, epilogue: epilogue.to_owned(), ..Self::single(element, majors, numbers) };
        let rest: Vec<_> = words.collect();
        for (key, value) in pairs(&rest.join(" ")) {
            match (key, value) {
                ("groups", Some(count)) => {
                    let count = count.parse();
                    problem.groups =
                        count.map_err(|error| format!("groups: {error}, a number was needed"))?;
                }
                ("aligned", Some(bits @ ("000" | "001" | "010" | "011" | "100" | "101" | "110" | "111"))) => {
                    problem.aligned = [0, 1, 2].map(|i| bits.as_bytes().get(i) == Some(&b'1'));
                }
                _ => {
                    return Err(format!(
                        "`{}` was found, groups=COUNT or aligned=ABD was needed",
                        value.map_or(key.to_owned(), |value| format!("{key}={value}"))
                    ));
                }
            }
        }
        Ok(problem)
    }
}
