//! From the arguments of `matmul` to a kernel and its call.

use std::sync::Arc;

use falchion::collective::{Format, Formula, LinearArguments, MatrixRef};
use falchion::cute_rs::atom::Major;
use falchion::kernel::{AnyGemm, Call, GemmProblem, GroupedProblem, Request, Types};
use falchion_core::{Choices, Epilogue, Picked, Run, aligned};
use pyo3::prelude::*;
use pyo3::types::PyString;

use crate::array::{Access, Array, Elements, Fill, Found, Place, Rule, extent, invalid, shape_words, short};
use crate::epilogue::{self, Given, Scaled};
use crate::error::{about, of_refusal};
use crate::many::{Many, many};
use crate::named::Named;
use crate::operand::{Operand, Sides, row_major};
use crate::place::{Chosen, KEPT};
use crate::scales::{self, Scales};
use crate::stored::{self, Stored};

/// The arguments of `matmul`, and how A and B are seen.
#[derive(Default)]
pub(crate) struct Arguments<'py> {
    pub(crate) named: Named<'py>,
    pub(crate) views: Views,
}

/// What of A and B, and of the result, is multiplied.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Views {
    /// Names of A and B, for errors.
    pub(crate) names: [&'static str; 2],
    /// Whether A and B are matrices with all rows of their leading dimensions; A's are the result's.
    pub(crate) rows: [bool; 2],
    /// Whether they are transposed then.
    pub(crate) turned: [bool; 2],
    /// Whether nothing is recorded for a gradient, as the caller knows.
    pub(crate) plain: bool,
}

impl Default for Views {
    fn default() -> Self {
        Self { names: ["a", "b"], rows: [false; 2], turned: [false; 2], plain: false }
    }
}

impl Views {
    fn of<'py>(&self, i: usize, array: Found<'py>) -> PyResult<Found<'py>> {
        let array = if self.rows[i] { array.rows(self.names[i])? } else { array };
        Ok(if self.turned[i] { array.turned() } else { array })
    }
}

/// What a choice depends on.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Key {
    place: Place,
    types: Types,
    majors: [Major; 2],
    extents: [u32; 3],
    /// Which GEMMs: one, a batch or groups; and their number.
    many: (u8, u32),
    /// Leading dimension, stride and alignment of A, B, C and D.
    matrices: [[u64; 3]; 4],
    formula: Option<Formula>,
    reads_c: bool,
    reproducible: bool,
    spec: Option<String>,
}

static CHOSEN: Choices<Key, Chosen<AnyGemm>> = Choices::new(KEPT);

/// A checked call, with what must live until it has been enqueued.
pub(crate) struct Prepared<'py> {
    pub(crate) chosen: Arc<Chosen<AnyGemm>>,
    pub(crate) call: Call<Epilogue>,
    a: Array<'py>,
    result: Bound<'py, PyAny>,
    /// The arguments of which an error of the kernel is one.
    who: String,
    _kept: Vec<Bound<'py, PyAny>>,
}

/// Types of A, B and D, and D's if it was asked for.
fn types_of(
    given: Option<&str>,
    names: [&str; 2],
    [a, b]: [&Found<'_>; 2],
    out: Option<&Found<'_>>,
) -> PyResult<(Types, Option<Format>)> {
    let of_out = out.and_then(|out| out.format());
    let Some(text) = given else {
        let types = Types::of(a.multiplied(names[0])?).with_b(b.multiplied(names[1])?);
        return Ok((of_out.map_or(types, |d| types.stored(d)), of_out));
    };
    let (types, said) = falchion_core::types(&short(text)).map_err(|refusal| of_refusal(&refusal))?;
    if types.is_scaled() || types.dense() != types {
        return invalid(format!(
            "types is \"{text}\", formats alone were needed: scales and prepared operands are arguments"
        ));
    }
    // Unsigned integers may be the bits of anything.
    let said = said.or(of_out.filter(|&of| of != Format::U8));
    Ok((said.map_or(types, |d| types.stored(d)), said))
}

/// Checks the arguments, chooses a kernel, and makes its call.
pub(crate) fn prepare<'py>(py: Python<'py>, asked: &Arguments<'py>) -> PyResult<Prepared<'py>> {
    let mut kept = Vec::new();
    let Arguments { named, views } = asked;
    let mut views = *views;
    let [object_a, object_b] = [named.needed("a")?, named.needed("b")?];
    let types_given = named.text("types")?;
    let names = views.names;
    let stored = [stored::of(0, object_a)?, stored::of(1, object_b)?];
    let ordered = stored::ordered(object_a, object_b)?;
    let found = |i: usize, object: &Bound<'py, PyAny>| match &stored[i] {
        Some(Stored { values, .. }) => Ok((**values).clone()),
        None => Found::of(names[i], object),
    };
    let [a, b] = [found(0, &ordered)?, found(1, object_b)?];
    // Rows of all leading dimensions, as a layer's inputs are.
    views.rows[0] |=
        a.rank() != 2 && stored[0].is_none() && stored[1].as_ref().is_some_and(|of| of.count == 0);
    let lead = (views.rows[0] && !views.turned[0]).then(|| a.shape()).filter(|shape| shape.len() != 2);
    let [a, b] = [views.of(0, a)?, views.of(1, b)?];
    let out = named.get("out").map(|out| Found::of("out", out)).transpose()?;
    let place = if stored[0].is_some() { b.place() } else { a.place() };
    let instead = (!views.plain).then_some("falchion.torch.linear");
    // The shapes.
    let of_a = stored[0].as_ref().map_or_else(|| [a.last(1)[0], a.last(0)[0]], |of| of.shape);
    let of_b = stored[1].as_ref().map_or_else(|| [b.last(1)[0], b.last(0)[0]], |of| of.shape);
    if stored.iter().all(Option::is_none) && (a.rank() < 2 || b.rank() < 2) || of_a[1] != of_b[0] {
        let words = |i: usize, array: &Found<'_>, shape: [i64; 2]| match &stored[i] {
            Some(_) => shape_words(&shape),
            None => array.shape_words(),
        };
        let hint = if stored[1].is_none() && b.rank() > 1 && of_a[1] == of_b[1] {
            "; a view of b with its last two dimensions swapped has that"
        } else {
            ""
        };
        let [of_a, of_b] = [words(0, &a, of_a), words(1, &b, of_b)];
        return match views.turned {
            [false, true] => invalid(format!(
                "{} has shape {} and {} {}, (..., in) and (out, in) were needed",
                names[0],
                shape_words(&lead.unwrap_or_else(|| a.shape())),
                names[1],
                shape_words(&[b.last(0)[0], b.last(1)[0]])
            )),
            _ => invalid(format!(
                "{} has shape {of_a} and {} {of_b}, (M, K) and (K, N) were needed{hint}",
                names[0], names[1]
            )),
        };
    }
    let [m, n, k] =
        [extent(names[0], &a, of_a[0])?, extent(names[1], &b, of_b[1])?, extent(names[0], &a, of_a[1])?];
    let groups = named.get("groups").map(|groups| -> PyResult<Array<'py>> {
        Found::of("groups", groups)?.table("groups", place, names[0])
    });
    let groups = groups.transpose()?;
    let several = match stored.iter().any(Option::is_some) {
        false => many(&a, &b, [n.into(), b.last(2)[0]], groups)?,
        true if stored[1].as_ref().is_some_and(|of| of.count > 0) && groups.is_some() => {
            many(&a, &b, [n.into(), stored[1].as_ref().map_or(0, |of| of.count.into())], groups)?
        }
        true if groups.is_some()
            || stored.iter().flatten().any(|of| of.count > 0)
            || a.rank() > 2
            || b.rank() > 2 =>
        {
            return invalid(
                "groups and batches are not there for one few-bit or sparse operand: one GEMM, or Operand.stacked and groups, were needed",
            );
        }
        true => Many { products: GroupedProblem::One, shape: vec![m.into(), n.into()], groups: None },
    };
    // The types.
    let (types, said) = match &stored {
        [None, None] => types_of(types_given.as_deref(), names, [&a, &b], out.as_ref())?,
        _ => match &types_given {
            None => stored::types(&stored, [&a, &b], out.as_ref())?,
            Some(text) => {
                return invalid(format!(
                    "types is \"{text}\", and a prepared operand says what is multiplied: none was needed"
                ));
            }
        },
    };
    // Whether somebody said what unsigned integers are.
    let bits = types_given.is_some();
    let elements = |format| if bits { Elements::OrBits(format) } else { Elements::Of(format) };
    let rule =
        |format, access| Rule::new(elements(format), access).at(place, names[0]).without_gradient(instead);
    let admit = |i: usize, array: Found<'py>, format| match &stored[i] {
        Some(Stored { values, .. }) => Ok(values.clone()),
        None => array.admit(names[i], &rule(format, Access::Copied)),
    };
    let [a, b] = [admit(0, a, types.a)?, admit(1, b, types.b)?];
    if let Some((i, array)) = [(0, &a), (1, &b)].into_iter().find(|(_, array)| array.place() != place) {
        let (found, needed) = (array.place().words(), place.words());
        return invalid(format!("{} is in {found}, {needed} was needed, as {}", names[i], names[1 - i]));
    }
    let own = several.groups.as_ref().map(|(offsets, _)| offsets.last(0)[0] - 1);
    let found = scales::of([named.get("scale_a"), named.get("scale_b")], [m, n, k], own, &a)?;
    let types = if let Scales::Blocks { rows, .. } = &found { types.scaled(*rows) } else { types };
    // The epilogue.
    let mut given = Vec::new();
    for (name, object) in named.rest() {
        given.push(Given::of(name.clone(), object)?);
    }
    let (mut alpha, beta) = (named.value::<f64>("alpha")?, named.value::<f64>("beta")?);
    let (epilogue, c) = (named.value::<Bound<'py, PyString>>("epilogue")?, named.get("c"));
    let mut scaled = Scaled(found.behind());
    if let Scales::Number(number) = found {
        if epilogue.is_some() {
            let name = if named.get("scale_a").is_some() { "scale_a" } else { "scale_b" };
            scaled = Scaled(if named.get("scale_a").is_some() { "*scale_a" } else { "*scale_b" });
            given.push(Given { name: name.to_owned(), value: epilogue::Value::Number(number) });
        } else {
            alpha = Some(alpha.unwrap_or(1.0) * number);
        }
    }
    let text = match &epilogue {
        Some(text) => Some(text.to_str()?),
        None if !scaled.0.is_empty() => Some("alpha*acc"),
        None => None,
    };
    // Alone, the text is no epilogue.
    let more = !given.is_empty() || !scaled.0.is_empty() || alpha.is_some() || beta.is_some() || c.is_some();
    let text = text.filter(|text| *text != "acc" || more);
    let fused = text.is_some();
    let mut linear = LinearArguments::of([alpha.unwrap_or(1.0), beta.unwrap_or(0.0)], None);
    let mut given_c = None;
    if fused {
        given.extend(found.given());
        let number = |name: &str, value: Option<f64>| {
            value.map(|value| Given { name: name.to_owned(), value: epilogue::Value::Number(value) })
        };
        given.extend(number("alpha", alpha).into_iter().chain(number("beta", beta)));
        if let Some(c) = c {
            given.push(Given::of("c".to_owned(), c)?);
        }
    } else if let Some(first) = given.first() {
        return invalid(format!("{} is given, and no epilogue uses it: epilogue= was needed", first.name));
    } else if let Some(c) = c {
        if beta.is_none() {
            return invalid("c is given and beta is not: beta was needed, which multiplies c");
        }
        let c = Found::of("c", c)?;
        if c.shape() != several.shape {
            let needed = shape_words(&several.shape);
            return invalid(format!("c has shape {}, {needed} was needed", c.shape_words()));
        }
        given_c = Some(c);
    } else if linear.beta != 0.0 {
        return invalid(format!("beta is {}, and c is not given: it was needed", linear.beta));
    }
    let formula = text.map(|text| epilogue::formula(text, &given, &scaled, (types.a, said))).transpose()?;
    let types = formula.map_or(types, |formula| types.stored(formula.output(types.a)));
    if let Some(c) = given_c {
        let c = c.admit("c", &rule(types.d, Access::Read))?;
        linear.c = Some(row_major("c", &c)?);
        kept.push(c.object().clone());
    }
    // The memory.
    let halvings = formula.map_or(0, |formula| formula.halvings());
    let mut shape = several.shape.clone();
    if let Some(last) = shape.last_mut() {
        *last >>= halvings;
    }
    let like = if stored[0].is_some() { &b } else { &a };
    let out = match out {
        Some(out) if out.shape() != shape => {
            let needed = shape_words(&shape);
            return invalid(format!("out has shape {}, {needed} was needed", out.shape_words()));
        }
        Some(out) => out.admit("out", &rule(types.d, Access::Written))?,
        None => {
            let whole = lead.map(|mut lead| {
                lead.splice(lead.len() - 1.., [shape[1]]);
                lead
            });
            result(like, whole.as_deref().unwrap_or(&shape), types.d, several.groups.as_ref())?
        }
    };
    let result = out.object().clone();
    let out = if out.rank() == shape.len() { out } else { out.in_rows("out")? };
    let d = row_major("out", &out)?;
    let aligned_alone = types.is_scaled() || types.has_weights() || types.has_sparse();
    let ragged = matches!(several.products, GroupedProblem::GroupedContiguous { .. });
    let sides = |i: usize, name, format| Sides {
        name,
        is_b: i == 1,
        format,
        aligned: aligned_alone,
        single: i == 0 && ragged,
    };
    let operand = |i: usize, array: Array<'py>, format| match &stored[i] {
        Some(stored) => Ok(Operand { array, matrix: stored.matrix, major: Major::K }),
        None => sides(i, names[i], format).of(array),
    };
    let [a, b] = [operand(0, a.clone(), types.a)?, operand(1, b, types.b)?];
    let (like, majors) =
        (if stored[0].is_some() { b.array.clone() } else { a.array.clone() }, [a.major, b.major]);
    let alignment = |matrix: MatrixRef| u64::from(1u32 << matrix.address.trailing_zeros().min(4));
    let of = |matrix: MatrixRef| [matrix.ld, matrix.stride, alignment(matrix)];
    let key = Key {
        place,
        types,
        majors,
        extents: [m, n, k],
        many: several.tag(),
        matrices: [of(a.matrix), of(b.matrix), linear.c.map_or([0; 3], of), of(d)],
        formula,
        reads_c: linear.beta != 0.0,
        reproducible: named.value("reproducible")?.unwrap_or(false),
        spec: named.text("spec")?,
    };
    let mut call = Call {
        a: a.matrix,
        b: b.matrix,
        d,
        products: several.products,
        epilogue: linear,
        ..Call::of(GemmProblem { m, n, k })
    };
    if let Scales::Blocks { scales, kept: arrays, .. } = &found {
        call.scales = Some(*scales);
        kept.extend(arrays.iter().map(|array| array.object().clone()));
    }
    for stored in stored.iter().flatten() {
        call.group_scales = call.group_scales.or(stored.groups);
        call.metadata = call.metadata.or(stored.metadata);
        kept.extend(stored.kept.iter().cloned());
    }
    let who = {
        let given = [("out", named.get("out").is_some()), ("types", bits), ("epilogue", epilogue.is_some())];
        let given = given.into_iter().filter(|(_, given)| *given).map(|(name, _)| name);
        names.into_iter().chain(given).collect::<Vec<_>>().join(", ")
    };
    let chosen = CHOSEN.get(key, |key| choose(py, key, &call)).map_err(|error| about(py, &who, error))?;
    let epilogue = match formula {
        None => Epilogue::Linear(linear),
        Some(_) => {
            let slots = chosen.kernel.kernel().slots();
            let count = several.products.count();
            let text = (text.unwrap_or_default(), bits);
            let (inputs, allocated) = epilogue::inputs(slots, &given, text, (&like, count, instead))?;
            kept.extend(allocated);
            Epilogue::Fused(Arc::clone(slots), inputs, count)
        }
    };
    let call = call.with(epilogue);
    kept.extend([b.array.object().clone(), a.array.object().clone()]);
    kept.extend(several.groups.map(|(offsets, _)| offsets.object().clone()));
    Ok(Prepared { chosen, call, a: like, result, who, _kept: kept })
}

/// A new array for the result. Rows of no group are zeros: the host knows which they are, and on a card all are set before the launch.
fn result<'py>(
    like: &Array<'py>,
    shape: &[i64],
    format: Format,
    groups: Option<&(Array<'py>, Option<[i64; 2]>)>,
) -> PyResult<Array<'py>> {
    let unknown = matches!(groups, Some((_, None)));
    let out = like.alike("out", shape, format, if unknown { Fill::Zeros } else { Fill::Nothing })?;
    if let Some((_, Some([first, last]))) = groups {
        out.clear_rows(0, *first)?;
        out.clear_rows(*last, shape[0])?;
    }
    Ok(out)
}

fn choose(py: Python<'_>, key: &Key, call: &Call) -> PyResult<Chosen<AnyGemm>> {
    let known = |matrix: MatrixRef| MatrixRef {
        address: aligned(1 << matrix.address.trailing_zeros().min(4)),
        ..matrix
    };
    let Key { types, majors, extents: [m, n, k], formula, reproducible, .. } = key.clone();
    let request = Request::packed(types, majors, GemmProblem { m, n, k });
    let mut request = Request { fusion: formula, reproducible, ..request };
    let c = call.epilogue.c.map(known);
    request.call = Call {
        a: known(call.a),
        b: known(call.b),
        d: known(call.d),
        products: call.products.at(aligned(16)),
        scales: call.scales,
        group_scales: call.group_scales,
        metadata: call.metadata,
        epilogue: LinearArguments { c, ..call.epilogue },
        ..request.call
    };
    let spec = key.spec.clone();
    let made = py.detach(|| Picked::on(&request, spec.as_deref(), key.place.card()));
    Ok(Chosen::new(made.map_err(|refusal| of_refusal(&refusal))?, true))
}

impl<'py> Prepared<'py> {
    /// Runs the call: enqueues it on the current stream of a card, or emulates it. Returns the result.
    pub(crate) fn run(mut self) -> PyResult<Bound<'py, PyAny>> {
        // SAFETY: the arrays are alive, and their extents and distances were read from them.
        let ran = unsafe { self.chosen.run(&self.a, &mut self.call) };
        ran.map_err(|error| about(self.a.object().py(), &self.who, error))?;
        Ok(self.result)
    }

    pub(crate) fn emulate(
        &self,
        ways: impl IntoIterator<Item = Run<'static>, IntoIter: Send>,
    ) -> PyResult<()> {
        let Self { chosen, call, a, .. } = self;
        if a.place() != Place::Host {
            return invalid(format!("a is in {}, the host's memory was needed", a.place().words()));
        }
        // SAFETY: the same.
        unsafe { chosen.emulate(a.object().py(), call, ways) }
    }
}
