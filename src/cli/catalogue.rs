//! `falchion configs`, `plan` and `emit`: lists kernels, prints their numbers, and prints their PTX.

use std::io::{self, Write};
use std::path::PathBuf;

use crate::explore::direction;
pub(crate) use crate::explore::{tile, traits};
use crate::verify::FusedGemm;
use collective::{Form, Formula, WeightsSpec};
use cute_rs::atom::Major;
use kernel::operands::Layouts;
use kernel::{
    AnyGemm, Call, Card, GemmProblem, GroupedProblem, KMajorRequest, KernelSpec, Machine, Program, Ranked,
    Refused, Request, Selection, Types, UnknownConfig,
};

use crate::cli::call::{Launched, SEVERAL};
use crate::cli::named;
use crate::cli::options::{Given, Verb};
use crate::cli::output::{out, shortened};
use crate::cli::types::TypeArgs;
use crate::cli::{Command, Failure, files, memory, types};

pub(crate) const CONFIGS: Command = Command {
    verb: Verb::CONFIGS,
    about: "List the named kernels.",
    examples: "",
    run: |_| Ok(list(&mut out())?),
};

pub(crate) const PLAN: Command = Command {
    verb: Verb::PLAN,
    about: "Print every number of a kernel, or rank the kernels for a shape.

With --kernel: prints every number of the kernel. With --m, --n and --k, or several GEMMs: ranks the kernels for \
a card: the fastest that was measured at this shape, then by predicted time. Prints the reason for the first and its Rust type.",
    examples: "Examples:\n  falchion plan --kernel 128x256-direct-bf16-kk\n  falchion plan --kernel \"tile=192x160x64 cluster=2x1 scheduler=stream-k\"\n  falchion plan --m 4096 --n 14336 --k 4096\n  falchion plan --rows 30,0,500 --n 4096 --k 7168\n  falchion plan --k-groups 512,0,2048 --m 4096 --n 7168\n  falchion plan --m 4096 --n 4096 --k 4096 --epilogue bias-gelu\n  \
                  falchion plan --m 2048 --n 2048 --k 512 --dtype f16 --layout kn\n  falchion plan --m 8192 --n 8192 --k 8192 --sparse a",
    run: plan,
};

pub(crate) const EMIT: Command = Command {
    verb: Verb::EMIT,
    about: "Print a kernel as PTX.",
    examples: "Examples:\n  falchion emit --kernel 64x64-direct-f16-mn\n  falchion emit --kernel 128x256-direct-bf16-kk -o large.ptx",
    run: emit,
};

fn list(out: &mut impl Write) -> io::Result<()> {
    let columns = "type   A  B  tile        stages shared B threads  tiles are assigned to";
    writeln!(out, "{:36} {columns}", "name")?;
    for kernel in kernel::all() {
        let plan = kernel.plan();
        writeln!(
            out,
            "{:36} {:5} {:>2} {:>2}  {:11} {:>6} {:>8} {:>7}  {}",
            kernel.name(),
            kernel.element(),
            direction(plan.majors()[0], "M"),
            direction(plan.majors()[1], "N"),
            tile(&plan),
            plan.ring.stages,
            plan.shared_bytes,
            plan.threads,
            kernel.schedule(),
        )?;
    }
    out.flush()
}

/// The kernel of a name from `falchion configs`, or of a spec's text.
pub(crate) fn find(name: &str) -> Result<AnyGemm, Failure> {
    Ok(kernel::find(name).map_err(|error| match error {
        UnknownConfig::Name { known, .. } => UnknownConfig::Name { name: shortened(name), known },
        other @ (UnknownConfig::Spec(_) | _) => other,
    })?)
}

/// Fails, with the reason, if no kernel multiplies such operands or stores such results.
pub(crate) fn possible(types: Types) -> Result<(), Failure> {
    find(&words(types)).map(|_| ())
}

/// A spec's words, without A's format and the directions.
pub(crate) fn own_words(spec: &str) -> String {
    let own = |word: &&str| !word.starts_with("dtype=") && !word.starts_with("layout=");
    spec.split(' ').filter(own).collect::<Vec<_>>().join(" ")
}

/// Types as words of a spec.
pub(crate) fn words(types: Types) -> String {
    let Types { a, b, d, scaled: [a_rows, b_rows], weights, sparse } = types;
    let mut spec = format!("dtype={} dtype-b={} out={}", a.name(), b.name(), d.name());
    if types.is_scaled() {
        spec += &format!(" scale-a={a_rows}x128 scale-b={b_rows}x128");
    }
    spec += match sparse {
        [false, false] => "",
        [true, false] => " sparse=a",
        [false, true] => " sparse=b swap=yes",
        [true, true] => " sparse=both",
    };
    for (name, of) in ["weights-a", "weights-b swap=yes"].into_iter().zip(weights) {
        let Some(WeightsSpec { code, group, zeros }) = of else { continue };
        let (key, swap) = name.split_once(' ').unwrap_or((name, ""));
        let group = if group == 0 { "none".to_owned() } else { group.to_string() };
        spec += &format!(" {key}={code} group={group} zeros={} {swap}", if zeros { "yes" } else { "no" });
    }
    spec
}

/// Finds a kernel for a command that has no arguments for a fused epilogue. For a kernel with one, `instead`
/// gets the name of the same kernel without it and the name of the epilogue, and says what to do instead.
pub(crate) fn plain(name: &str, instead: impl FnOnce(&str, &str) -> String) -> Result<AnyGemm, Failure> {
    let entry = find(name)?;
    match FusedGemm::of(entry.clone()) {
        None => Ok(entry),
        Some(kernel) => Err(usage!(
            "kernel {name} has the fused epilogue {}: {}",
            kernel.fusion.name(),
            instead(&kernel.plain_name(), kernel.fusion.name())
        )),
    }
}

/// Fails for a grouped kernel: a launch of one GEMM says too little about it.
pub(crate) fn one_product(entry: &AnyGemm) -> Result<(), Failure> {
    if matches!(entry.form(), Form::Single | Form::Batched) {
        return Ok(()); // one GEMM is a batch of one
    }
    let (option, of) = (Launched::options(entry.form()), entry.form().words());
    Err(usage!(
        "kernel {} computes {of}, and one GEMM was asked for: run it with `falchion gemm` and {option}",
        entry.name()
    ))
}

/// A call that the kernel accepts: rows of its matrices begin at multiples of 16 B.
pub(crate) fn legal(entry: &AnyGemm, problem: GemmProblem) -> Call {
    Layouts::of(entry).packed(problem, 16)
}

/// A request for operands whose rows begin at multiples of 16 B.
pub(crate) fn padded(types: impl Into<Types>, majors: [Major; 2], problem: GemmProblem) -> Request<'static> {
    let request = Request::packed(types, majors, problem);
    let call = Layouts::new(request.types, majors).packed(problem, 16);
    Request { call: Call { d: request.call.d, ..call }, ..request }
}

/// A request for one GEMM of such operands. Those that only tensor copies load have padded rows.
pub(crate) fn asked(types: Types, layout: &str, problem: GemmProblem) -> Request<'static> {
    match types.has_weights() || types.is_scaled() || types.has_sparse() {
        true => padded(types, majors(layout), problem),
        false => Request::packed(types, majors(layout), problem),
    }
}

/// The kernel of a command to which none is given: the one with the shortest predicted time for these GEMMs, of the types and
/// directions of the options, and of the kernels that --reproducible allows.
pub(crate) fn chosen(
    given: &Given,
    launched: &Launched,
    fusion: Option<Formula>,
    machine: &Machine,
) -> Result<AnyGemm, Failure> {
    let choose = || {
        let (types, layout) = types::laid(given, launched.form.shares_rows())?;
        let request = if launched.form == Form::Single && fusion.is_none() {
            asked(types, &layout, launched.one)
        } else {
            // The matrices of others have padded rows, so K may be anything.
            padded(types, majors(&layout), launched.extents()?)
        };
        let request = launched.request(request);
        ranked(given, fusion.map_or(request, |formula| request.fused(formula)), machine)
    };
    choose().map_err(|error| match given.first(&SEVERAL) {
        Some(flag) => error.about(&format!("--{flag}")),
        None => error,
    })
}

/// The kernel with the shortest predicted time, of those that --reproducible allows.
pub(crate) fn ranked(given: &Given, request: Request<'_>, machine: &Machine) -> Result<AnyGemm, Failure> {
    let request = Request { reproducible: given.flag("reproducible"), ..request };
    let mut selection = kernel::select(&request, machine);
    first(&selection, &request)?;
    Ok(selection.ranked.swap_remove(0).gemm)
}

fn plan(given: &Given) -> Result<(), Failure> {
    let out = &mut out();
    if let Some(name) = named::kernel(given)? {
        given.finish("--kernel")?;
        return Ok(explain(out, &find(&name)?)?);
    }
    let missing = |name: &str| {
        Err(usage!(
            "--{name} was needed: --m, --n and --k rank the kernels for a shape, and --kernel explains one"
        ))
    };
    let launched = Launched::read(given, missing)?;
    let types = TypeArgs::read(given).types()?;
    let layout = given.layout().unwrap_or_default();
    let majors = majors(&layout);
    types::sparse_as_it_lies(
        types,
        &layout,
        matches!(launched.form, Form::GroupedContiguous | Form::GroupedMasked),
    )?;
    let request = launched.request(Request::packed(types, majors, launched.extents()?));
    let fusion = given.get::<Formula>("epilogue");
    let request = fusion.map_or(request, |fusion| request.fused(fusion));
    let with = given.first(&SEVERAL).map_or_else(|| "a ranking".to_owned(), |flag| format!("--{flag}"));
    let request = Request { reproducible: given.flag("reproducible"), ..request };
    let card: String = given.value("card");
    given.finish(&with)?;
    let first_of_all = request.k_major(1 << 20);
    let machine = machine(&card);
    let selection = kernel::select(&first_of_all.request, &machine);
    first(&selection, &first_of_all.request)?;
    ranking(out, &request, (&layout, &card), &selection)?;
    Ok(transposes(out, &first_of_all, &selection, &machine)?)
}

/// Parses directions as in kernel names: `kn` is a K-major A and an N-major B.
pub(crate) fn majors(layout: &str) -> [Major; 2] {
    let major = |place: usize| if layout.as_bytes().get(place) == Some(&b'k') { Major::K } else { Major::Mn };
    [major(0), major(1)]
}

/// The kernel with the shortest predicted time, or the reason why there is none.
pub(crate) fn first<'s>(selection: &'s Selection, request: &Request<'_>) -> Result<&'s Ranked, Failure> {
    let none = || match selection.refused.first() {
        Some(Refused { error, .. }) => Failure::usage(error),
        None => none(request),
    };
    selection.ranked.first().ok_or_else(none)
}

/// Why there is no kernel for a request: the rule that the simplest one breaks.
fn none(request: &Request<'_>) -> Failure {
    let form = KernelSpec { form: request.call.products.form(), ..KernelSpec::DEFAULT };
    let form =
        form.words().into_iter().find(|(key, _)| *key == "form").map_or(String::new(), |(_, form)| form);
    let majors = request.majors.map(|major| major == Major::K);
    let layout = format!("{}{}", if majors[0] { "k" } else { "m" }, if majors[1] { "k" } else { "n" });
    let types = request.fusion.map_or(request.types, |of| request.types.stored(of.output(request.types.a)));
    let epilogue = request.fusion.map_or(String::new(), |of| format!(" epilogue={}", of.name()));
    let spec = format!("form={form} layout={layout} {}{epilogue}", words(types));
    match find(&spec) {
        Err(rule) => rule,
        Ok(_) => usage!("no kernel was found like `{spec}`"),
    }
}

/// What the GEMMs of a launch are, in words.
fn many(products: GroupedProblem) -> &'static str {
    match products {
        GroupedProblem::One => "GEMM",
        GroupedProblem::Batched { .. } => "GEMMs of this shape",
        GroupedProblem::GroupedContiguous { .. } | GroupedProblem::GroupedMasked { .. } => "groups of rows",
        GroupedProblem::KGrouped { .. } => "groups along K",
        GroupedProblem::PointerArray { .. } => "GEMMs of a pointer array",
    }
}

/// Number of kernels that a ranking shows.
const SHOWN: usize = 12;

fn ranking(
    out: &mut impl Write,
    request: &Request<'_>,
    (layout, card): (&str, &str),
    selection: &Selection,
) -> io::Result<()> {
    let GemmProblem { m, n, k } = request.call.problem;
    let products = match (request.fusion, request.call.products) {
        (Some(fusion), _) => format!(" with {}", fusion.name()),
        (None, GroupedProblem::One) => String::new(),
        (None, products) => format!(" in {} {}", products.count(), many(products)),
    };
    let types = request.types;
    // The choice is the first row: what was measured goes before what is predicted.
    let order = match selection.ranked.iter().any(|ranked| ranked.measured.is_some()) {
        true => ": the fastest that was measured at this shape, then the shortest predicted times",
        false => ": the shortest predicted times",
    };
    let card = card.to_uppercase();
    writeln!(out, "{m} x {n} x {k} {types}{products}, directions {layout}, on an {card}{order}\n")?;
    let operations = request.operations();
    writeln!(out, "{:>10} {:>8} {:>6}  {:9}  kernel", "us", "TFLOP/s", "waves", "time")?;
    for (i, Ranked { gemm, prediction, measured, reason }) in selection.ranked.iter().take(SHOWN).enumerate()
    {
        let microseconds = measured.unwrap_or(prediction.microseconds);
        let rate = operations / microseconds / 1e6;
        let from = if measured.is_some() { "measured" } else { "predicted" };
        writeln!(out, "{microseconds:10.1} {rate:8.0} {:6.2}  {from:9}  {}", prediction.waves, gemm.name())?;
        if i == 0 {
            writeln!(out, "{:38} {reason}", "")?;
        }
    }
    for Refused { name, error } in selection.refused.iter().take(SHOWN) {
        writeln!(out, "{:>10} {:>8} {:>6}  {:9}  {name}: {error}", "-", "-", "-", "refused")?;
    }
    if let Some(Ranked { gemm, .. }) = selection.ranked.first() {
        writeln!(out, "\nthe first as a type:\n\n    type Kernel = Gemm<{}>;", gemm.rust_type())?;
    }
    out.flush()
}

/// Prints which operands must be transposed before the ranked kernels run, and the predicted time of that.
fn transposes(
    out: &mut impl Write,
    first: &KMajorRequest<'_>,
    selection: &Selection,
    card: &Machine,
) -> io::Result<()> {
    let bytes = |count: u64| memory::bytes(count as f64);
    for ((transpose, what), (name, lies)) in
        first.operands.iter().zip([("A", "M"), ("B", "N")]).filter_map(|(of, name)| of.map(|of| (of, name)))
    {
        writeln!(
            out,
            "\n{name} is {lies}-major, and wgmma reads elements of {} bits only K-major: {name} is transposed first, {} read and written, {:.1} us",
            transpose.bytes() * 8,
            bytes(transpose.traffic(&what)),
            transpose.microseconds(&what, card)
        )?;
    }
    if let Some(Ranked { prediction, .. }) = selection.ranked.first().filter(|_| !first.is_empty()) {
        let (multiply, before) = (prediction.microseconds, first.microseconds(card));
        writeln!(
            out,
            "transposes {before:.1} us, then the first kernel {multiply:.1} us: {:.1} us in all; workspace of {}",
            before + multiply,
            bytes(first.workspace)
        )?;
    }
    out.flush()
}

/// Fails for directions that need a transpose before the multiplication. For commands that time GEMMs alone.
pub(crate) fn multiplied_as_they_lie(types: Types, layout: &str) -> Result<(), Failure> {
    let request = Request::packed(types, majors(layout), GemmProblem { m: 16, n: 16, k: 16 });
    if request.k_major(1 << 20).is_empty() {
        return Ok(());
    }
    Err(usage!(
        "no kernel multiplies elements of {} bits in directions {layout}: use K-major operands (KMajor, --layout kk), or see `falchion plan --layout \
         {layout}` for the time that transposing them first takes",
        types.a.bits()
    ))
}

fn explain(out: &mut impl Write, kernel: &AnyGemm) -> io::Result<()> {
    writeln!(out, "{} ({})", kernel.name(), kernel.entry_name())?;
    for [what, value, why] in traits(kernel) {
        writeln!(out, "{what:24} {value:>12}  {why}")?;
    }
    writeln!(out, "tiles are assigned to {}", kernel.schedule())?;
    if let Some(spec) = kernel.spec() {
        let words: Vec<String> = spec.words().iter().map(|(key, value)| format!("{key}={value}")).collect();
        writeln!(out, "\nspec: {spec}\nin full: {}", words.join(" "))?;
        writeln!(out, "as a type: Gemm<{}>", spec.rust_type())?;
    }
    out.flush()
}

fn emit(given: &Given) -> Result<(), Failure> {
    printed(given, &named::find(given)?.program()?)
}

/// Writes a program's PTX to --out.
pub(crate) fn printed(given: &Given, program: &Program) -> Result<(), Failure> {
    let path = given.get::<PathBuf>("out").unwrap_or_else(|| PathBuf::from("-"));
    given.finish("a kernel's PTX")?;
    files::writable(&path)?;
    files::write_text(&path, program.text())
}

/// The machine of a card's name.
pub(crate) fn machine(card: &str) -> Machine {
    let named = Card::NAMED.into_iter().find(|(name, _)| *name == card);
    named.map_or(Machine::h200(), |(_, card)| Machine::of(&card))
}

/// Contiguous directions of A and B, as in kernel names.
pub(crate) fn layout(entry: &AnyGemm) -> String {
    let [a, b] = entry.plan().majors();
    format!("{}{}", direction(a, "M"), direction(b, "N")).to_lowercase()
}

/// The kernels of the catalogue for these types and directions.
pub(crate) fn of(types: Types, directions: &str) -> Vec<AnyGemm> {
    let fits = |entry: &AnyGemm| Types::of_plan(&entry.plan()) == types && layout(entry) == directions;
    kernel::catalogue().into_iter().filter(|entry| fits(entry)).collect()
}
