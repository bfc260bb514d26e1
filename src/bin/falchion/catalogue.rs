//! `falchion configs`, `plan` and `emit`: lists kernels, prints their numbers, and prints their PTX.

use std::io::{self, Write};
use std::path::PathBuf;

use collective::{
    BlockScales, Form, Format, Fusion, GroupScales, Plan, Producer, Roles, WeightsSpec, sparse, weights,
};
use cute_rs::atom::Major;
use falchion::verify::FusedGemm;
use kernel::{
    AnyGemm, Call, GemmProblem, KMajorRequest, KernelSpec, Machine, MatrixRef, Products, Ranked, Refused,
    Request, Selection, Types, UnknownConfig, UnknownName, WorkspaceRef,
};

use crate::gemm::fusion_names;
use crate::named::{self, KernelArgs};
use crate::output::{out, shortened};
use crate::types::TypeArgs;
use crate::{Failure, files, memory, types};

/// Print every number of a kernel, or rank the kernels for a shape.
///
/// With a name or --spec: prints every number of the kernel. With --m, --n and --k: ranks the kernels for the
/// shape by predicted time on an H200, fastest first, and prints the reason for the first and its Rust type.
#[derive(clap::Args, Debug)]
#[command(
    group(clap::ArgGroup::new("depth").args(["k", "k_groups"])),
    override_usage = "falchion plan <NAME>\n       falchion plan --spec <WORDS>\n       falchion plan [OPTIONS] --m <M> --n <N> --k <K>\n       falchion plan [OPTIONS] --rows <ROWS,ROWS,..> --n <N> --k <K>\n       falchion plan [OPTIONS] --k-groups <K,K,..> --m <M> --n <N>",
    after_help = "Examples:\n  falchion plan 128x256-direct-bf16-kk\n  falchion plan --spec \"tile=192x160x64 cluster=2x1 scheduler=stream-k\"\n  falchion plan 128x128-pingpong-bias-gelu-bf16-kk\n  falchion plan --m 4096 --n 14336 --k 4096\n  falchion plan --rows 30,0,500 --n 4096 --k 7168\n  falchion plan --k-groups 512,0,2048 --m 4096 --n 7168\n  falchion plan --m 4096 --n 4096 --k 4096 --epilogue bias-gelu\n  \
                  falchion plan --m 2048 --n 2048 --k 512 --dtype f16 --layout kn\n  falchion plan --m 8192 --n 8192 --k 8192 --sparse a"
)]
pub(crate) struct PlanArgs {
    /// Kernel name from `falchion configs`.
    #[arg(required_unless_present_any = ["m", "rows", "spec"], conflicts_with_all = ["m", "n", "k", "dtype", "dtype_b", "out_dtype", "scale_a", "scale_b", "sparse", "layout", "spec"])]
    name: Option<String>,
    /// Kernel as `key=value` words. Words that are left out have defaults; `--spec ""` prints them all.
    #[arg(long, value_name = "WORDS", conflicts_with_all = ["m", "n", "k", "dtype", "dtype_b", "out_dtype", "scale_a", "scale_b", "sparse", "layout"], value_parser = named::spec)]
    spec: Option<KernelSpec>,
    /// Rows of A and D.
    #[arg(long, requires = "n", requires = "depth", value_parser = clap::value_parser!(u32).range(1..))]
    m: Option<u32>,
    /// Columns of B and D.
    #[arg(long, requires = "depth", value_parser = clap::value_parser!(u32).range(1..))]
    n: Option<u32>,
    /// Columns of A, rows of B.
    #[arg(long, requires = "n", value_parser = clap::value_parser!(u32).range(1..))]
    k: Option<u32>,
    /// K of each group along K, in place of --k. One launch; the groups are ranges of K of the same A and B, and
    /// each has its own D. A group may have K 0.
    #[arg(long, value_name = "K,K,..", value_delimiter = ',', value_parser = crate::numbers::lengths, requires = "m", requires = "n",
        conflicts_with_all = ["name", "spec", "batch", "rows", "epilogue", "sparse"])]
    k_groups: Vec<u32>,
    /// Name of a fused epilogue.
    #[arg(long, value_name = "NAME", requires = "m", value_parser = fusion_names(),
        conflicts_with_all = ["name", "spec", "batch", "rows"])]
    epilogue: Option<String>,
    /// Number of GEMMs in the batch, all of this shape, in one launch.
    #[arg(long, value_name = "COUNT", requires = "m", conflicts_with_all = ["name", "spec"],
        value_parser = clap::value_parser!(u32).range(1..))]
    batch: Option<u32>,
    /// Rows of each group of an MoE grouped GEMM, in place of --m. One launch; each group has its own B. A
    /// group may have 0 rows.
    #[arg(long, value_name = "ROWS,ROWS,..", value_delimiter = ',', value_parser = crate::numbers::rows, requires = "n",
        conflicts_with_all = ["name", "spec", "m", "batch"])]
    rows: Vec<u32>,
    #[command(flatten)]
    types: TypeArgs,
    /// Contiguous dimension of A (k or m) and of B (k or n). With kn, both are row-major.
    #[arg(long, default_value = "kk", value_parser = ["kk", "kn", "mk", "mn"])]
    layout: String,
}

/// Print a kernel as PTX.
#[derive(clap::Args, Debug)]
#[command(
    override_usage = "falchion emit [OPTIONS] <NAME>\n       falchion emit [OPTIONS] --spec <WORDS>",
    after_help = "Examples:\n  falchion emit 64x64-direct-f16-mn\n  falchion emit 128x256-direct-bf16-kk -o large.ptx"
)]
pub(crate) struct EmitArgs {
    #[command(flatten)]
    kernel: KernelArgs,
    /// Write the PTX to this file instead of standard output.
    #[arg(short, long, value_name = "FILE")]
    output: Option<PathBuf>,
}

/// The tile as text, MxNxK.
pub(crate) fn tile(plan: &Plan) -> String {
    let [m, n, k] = plan.mainloop.tile;
    format!("{m}x{n}x{k}")
}

fn direction(major: Major, other: &'static str) -> &'static str {
    match major {
        Major::K => "K",
        Major::Mn => other,
    }
}

pub(crate) fn configs() -> Result<(), Failure> {
    Ok(list(&mut out())?)
}

fn list(out: &mut impl Write) -> io::Result<()> {
    writeln!(
        out,
        "{:36} {:5} {:>2} {:>2}  {:11} {:>6} {:>8} {:>7}  tiles are assigned to",
        "name", "type", "A", "B", "tile", "stages", "shared B", "threads"
    )?;
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
        UnknownConfig::Name(unknown) => UnknownName { name: shortened(name), ..unknown }.into(),
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
        Some(kernel) => Err(Failure::usage(format!(
            "kernel {name} has the fused epilogue {}: {}",
            kernel.fusion.name(),
            instead(&kernel.plain_name(), kernel.fusion.name())
        ))),
    }
}

/// Fails for a kernel of another element type than the requested one.
pub(crate) fn of_type(name: &str, element: &str, dtype: &str) -> Result<(), Failure> {
    if element == dtype {
        return Ok(());
    }
    Err(Failure::usage(format!("kernel {name} is for {element}, --dtype is {dtype}")))
}

/// Fails for a grouped kernel: a launch of one GEMM says too little about it.
pub(crate) fn one_product(entry: &AnyGemm) -> Result<(), Failure> {
    let form = entry.form();
    let (of, flag) = match form {
        // One GEMM is a batch of one.
        Form::Single | Form::Batched => return Ok(()),
        Form::Ragged => ("groups of rows", "--rows"),
        Form::Masked => ("groups of rows in buffers of one size", "--rows … --room …"),
        Form::KGrouped => ("groups along K", "--k-groups"),
        Form::Grouped => ("GEMMs of any shapes", "--group"),
    };
    Err(Failure::usage(format!(
        "kernel {} is {form:?}, for {of}: run it with `falchion gemm {flag}`",
        entry.name()
    )))
}

/// A call that the kernel accepts: rows of its matrices begin at multiples of 16 B.
pub(crate) fn legal(entry: &AnyGemm, problem: GemmProblem) -> Call {
    let plan = entry.plan();
    // The call is never run, so the addresses only have to be legal.
    let matrix = |of: Format, contiguous: u32, few_bits: Option<WeightsSpec>| {
        let elements = 16 / of.bytes();
        let pitch = u64::from(contiguous).next_multiple_of(elements.into());
        MatrixRef::new(1 << 20, few_bits.map_or(pitch, |of| weights::pitch(of.code, contiguous)))
    };
    let GemmProblem { m, n, k } = problem;
    let contiguous = |major, mn| if major == Major::K { k } else { mn };
    let [a, b] = plan.majors();
    let workspace = Some(WorkspaceRef { address: 1 << 20, bytes: u64::MAX });
    let [of_a, of_b, of_d] = entry.formats();
    let [a_weights, b_weights] = plan.weights();
    let (a, b) = (matrix(of_a, contiguous(a, m), a_weights), matrix(of_b, contiguous(b, n), b_weights));
    let (d, rows) = (matrix(of_d, n, None), if a_weights.is_some() { m } else { n });
    let of_groups = MatrixRef::new(1 << 20, u64::from(rows).next_multiple_of(16));
    let grouped = a_weights.or(b_weights).is_some_and(|weights| weights.group > 0);
    let format = plan.mainloop.operands[0].format;
    let metadata =
        plan.mainloop.is_sparse().then(|| MatrixRef::new(1 << 20, sparse::metadata_pitch(format, k).into()));
    let group_scales = grouped.then_some(GroupScales { scales: of_groups, zeros: of_groups });
    let scales = plan
        .mainloop
        .is_scaled()
        .then(|| BlockScales::packed([1 << 20; 2], BlockScales::packed_extents([m, n, k], plan.scaled())));
    Call { a, b, scales, group_scales, metadata, d, workspace, ..Call::of(problem) }
}

/// A request for operands whose rows begin at multiples of 16 B.
pub(crate) fn padded(types: impl Into<Types>, majors: [Major; 2], problem: GemmProblem) -> Request<'static> {
    let request = Request::packed(types, majors, problem);
    let [a_bytes, b_bytes, _] = request.types.bytes().map(u64::from);
    let whole =
        |matrix: MatrixRef, bytes| MatrixRef { pitch: matrix.pitch.next_multiple_of(16 / bytes), ..matrix };
    let call = request.call;
    Request { call: Call { a: whole(call.a, a_bytes), b: whole(call.b, b_bytes), ..call }, ..request }
}

impl PlanArgs {
    pub(crate) fn run(&self) -> Result<(), Failure> {
        let out = &mut out();
        let all = |sizes: &[u32]| sizes.iter().fold(0u32, |sum, &size| sum.saturating_add(size));
        let k = self.k.or((!self.k_groups.is_empty()).then(|| all(&self.k_groups)));
        if let (m, Some(n), Some(k)) = (self.m, self.n, k) {
            let majors = majors(&self.layout);
            let problem = GemmProblem { m: m.unwrap_or(all(&self.rows)), n, k };
            let groups: Vec<GemmProblem> = self.rows.iter().map(|&m| GemmProblem { m, ..problem }).collect();
            let along_k: Vec<GemmProblem> =
                self.k_groups.iter().map(|&k| GemmProblem { k, ..problem }).collect();
            let types = self.types.types()?;
            types::sparse_as_it_lies(types, &self.layout, !groups.is_empty())?;
            let request = Request::packed(types, majors, problem);
            let fusion = self.epilogue.as_deref().and_then(Fusion::named);
            let request = match (fusion, self.batch) {
                (Some(fusion), _) => request.fused(fusion),
                (None, Some(count)) => request.batched(count),
                (None, None) if !groups.is_empty() => request.ragged(&groups),
                (None, None) if !along_k.is_empty() => request.k_grouped(&along_k),
                (None, None) => request,
            };
            let first_of_all = request.k_major(1 << 20);
            let selection = kernel::select(&first_of_all.request, &Machine::h200());
            first(&selection)?;
            ranking(out, &request, &self.layout, &selection)?;
            return Ok(transposes(out, &first_of_all, &selection)?);
        }
        let kernel = match (&self.name, self.spec) {
            (Some(name), _) => find(name)?,
            (None, spec) => find(&spec.unwrap_or(KernelSpec::DEFAULT).to_string())?,
        };
        Ok(explain(out, &kernel)?)
    }
}

/// Parses directions as in kernel names: `kn` is a K-major A and an N-major B.
pub(crate) fn majors(layout: &str) -> [Major; 2] {
    let major = |place: usize| if layout.as_bytes().get(place) == Some(&b'k') { Major::K } else { Major::Mn };
    [major(0), major(1)]
}

/// The kernel with the shortest predicted time, or the reason why there is none.
pub(crate) fn first(selection: &Selection) -> Result<&Ranked, Failure> {
    let none = || match selection.refused.first() {
        Some(Refused { error, .. }) => Failure::usage(error),
        None => Failure::usage("there is no kernel for this element type and these directions"),
    };
    selection.ranked.first().ok_or_else(none)
}

/// What the GEMMs of a launch are, in words.
fn many(products: Products) -> &'static str {
    match products {
        Products::One => "GEMM",
        Products::Batched { .. } => "GEMMs of this shape",
        Products::Ragged { .. } | Products::Masked { .. } => "groups of rows",
        Products::KGrouped { .. } => "groups along K",
        Products::Grouped { .. } => "GEMMs of a pointer array",
    }
}

/// Number of kernels that a ranking shows.
const SHOWN: usize = 12;

fn ranking(
    out: &mut impl Write,
    request: &Request<'_>,
    layout: &str,
    selection: &Selection,
) -> io::Result<()> {
    let GemmProblem { m, n, k } = request.call.problem;
    let products = match (request.fusion, request.call.products) {
        (Some(fusion), _) => format!(" with {}", fusion.name()),
        (None, Products::One) => String::new(),
        (None, products) => format!(" in {} {}", products.count(), many(products)),
    };
    let types = request.types;
    let element = types.a.name();
    writeln!(out, "{m} x {n} x {k} {types}{products}, directions {layout}, predicted for an H200\n")?;
    let operations = request.operations();
    writeln!(out, "{:>10} {:>8} {:>6}  kernel", "us", "TFLOP/s", "waves")?;
    let own = |gemm: &AnyGemm| gemm.name().replace(&format!("dtype={element} layout={layout} "), "");
    for (i, Ranked { gemm, prediction, reason, .. }) in selection.ranked.iter().take(SHOWN).enumerate() {
        let microseconds = prediction.microseconds;
        let rate = operations / microseconds / 1e6;
        writeln!(out, "{microseconds:10.1} {rate:8.0} {:6.2}  {}", prediction.waves, own(gemm))?;
        if i == 0 {
            writeln!(out, "{:27} {reason}", "")?;
        }
    }
    for Refused { name, error } in selection.refused.iter().take(SHOWN) {
        writeln!(out, "{:>10} {:>8} {:>6}  {name}: {error}", "-", "-", "-")?;
    }
    if let Some(Ranked { gemm, .. }) = selection.ranked.first() {
        writeln!(out, "\nthe first as a type:\n\n    type Kernel = Gemm<{}>;", gemm.rust_type())?;
    }
    out.flush()
}

/// Prints which operands must be transposed before the ranked kernels run, and the predicted time of that.
fn transposes(out: &mut impl Write, first: &KMajorRequest<'_>, selection: &Selection) -> io::Result<()> {
    let card = Machine::h200();
    let bytes = |count: u64| memory::bytes(count as f64);
    for ((transpose, what), (name, lies)) in
        first.operands.iter().zip([("A", "M"), ("B", "N")]).filter_map(|(of, name)| of.map(|of| (of, name)))
    {
        writeln!(
            out,
            "\n{name} is {lies}-major, and wgmma reads elements of {} bits only K-major: {name} is transposed first, {} read and written, {:.1} us",
            transpose.bytes() * 8,
            bytes(transpose.traffic(&what)),
            transpose.microseconds(&what, &card)
        )?;
    }
    if let Some(Ranked { prediction, .. }) = selection.ranked.first().filter(|_| !first.is_empty()) {
        let (multiply, before) = (prediction.microseconds, first.microseconds(&card));
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
    Err(Failure::usage(format!(
        "no kernel multiplies elements of {} bits in directions {layout}: use K-major operands (KMajor, --layout kk), or see `falchion plan --layout \
         {layout}` for the time that transposing them first takes",
        types.a.bits()
    )))
}

fn explain(out: &mut impl Write, kernel: &AnyGemm) -> io::Result<()> {
    writeln!(out, "{} ({})", kernel.name(), kernel.entry_name())?;
    for [what, value, why] in facts(kernel) {
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

/// The numbers of a kernel's plan. Each row has a name, a value and a note.
pub(crate) fn facts(kernel: &AnyGemm) -> Vec<[String; 3]> {
    let plan = kernel.plan();
    let (ring, [a, b]) = (plan.ring, plan.operands);
    let mut rows = Vec::new();
    let mut row = |what: &str, value: String, why: &str| rows.push([what.to_owned(), value, why.to_owned()]);
    let formats = kernel.formats();
    let sums = plan.mainloop.atom.sums().suffix();
    if formats == [formats[0]; 3] {
        row(
            "element type",
            kernel.element().to_owned(),
            &format!("of A, B, C and D; accumulators are {sums}"),
        );
    } else {
        let names = formats.map(Format::name).join(", ");
        row("element types", names, &format!("of A, of B, of C and D; accumulators are {sums}"));
    }
    row(
        "contiguous directions",
        format!("{}, {}", direction(plan.majors()[0], "M"), direction(plan.majors()[1], "N")),
        "of A and of B",
    );
    if plan.swapped() {
        row(
            "operands",
            "swap-AB".to_owned(),
            "A and B are swapped and D's transpose is computed: below, M and A are the call's N and B",
        );
    }
    row("tile", tile(&plan), "M x N x K elements per CTA");
    let [m, n] = plan.mainloop.cluster;
    row("cluster", format!("{m}x{n}"), "CTAs that share operands by multicast");
    let by_threads = plan.mainloop.atom.by_threads();
    let beside = match plan.mainloop.roles {
        Roles::Cooperative | Roles::Pingpong => "in addition to one producer warpgroup",
        Roles::Unspecialised => "without a producer warpgroup",
    };
    row("consumer warpgroups", plan.mainloop.consumers.to_string(), beside);
    row("threads", plan.threads.to_string(), "per CTA");
    row("stages", ring.stages.to_string(), "of the ring between producer and consumers");
    row("bytes per stage", ring.stage_bytes.to_string(), "one A tile and one B tile");
    row("A tile bytes", a.room().bytes.to_string(), swizzle(a.swizzle().bytes()));
    row("B tile bytes", b.room().bytes.to_string(), swizzle(b.swizzle().bytes()));
    match plan.mainloop.producer {
        Producer::Thread => {
            row("transaction bytes", ring.transaction_bytes().to_string(), "that each full barrier expects");
        }
        Producer::Warpgroup if by_threads => {
            row("copied by", format!("{} threads", plan.threads), "that wait for each other");
        }
        Producer::Warpgroup => {
            row("copied by", "128 threads".to_owned(), "that all arrive at a full barrier");
        }
    }
    row("epilogue offset", plan.epilogue_offset.to_string(), "in bytes: where D is staged");
    row("barrier offset", ring.barriers.to_string(), "in bytes: where the mbarriers are");
    row("shared bytes", plan.shared_bytes.to_string(), "of the 232448 that a CTA can have");
    row("registers, launch", plan.registers.launch.to_string(), "per thread, at most");
    if !by_threads {
        row("registers, producer", plan.registers.producer.to_string(), "after setmaxnreg");
        row("registers, consumer", plan.registers.consumer.to_string(), "after setmaxnreg");
    }
    row("accumulators", plan.registers.accumulators.to_string(), "registers per consumer thread");
    if plan.mainloop.atom.promote > 0 {
        let (every, k) = (plan.mainloop.atom.promote, plan.mainloop.atom.k());
        let note = format!("wgmmas along K, {} elements, to f32 registers", every * k);
        row("promoted every", every.to_string(), &note);
    }
    rows
}

fn swizzle(bytes: u32) -> &'static str {
    match bytes {
        128 => "in rows of 128 bytes, swizzled",
        64 => "in rows of 64 bytes, swizzled",
        32 => "in rows of 32 bytes, swizzled",
        _ => "in rows of 16 bytes",
    }
}

impl EmitArgs {
    pub(crate) fn run(&self) -> Result<(), Failure> {
        let kernel = self.kernel.find()?;
        if let Some(path) = &self.output {
            files::writable(path)?;
        }
        let program = kernel.program()?;
        match &self.output {
            None => Ok(out().write_all(program.text().as_bytes())?),
            Some(path) => files::write_text(path, program.text()),
        }
    }
}

/// Contiguous directions of A and B, as in kernel names.
pub(crate) fn layout(entry: &AnyGemm) -> String {
    let [a, b] = entry.plan().majors();
    format!("{}{}", direction(a, "M"), direction(b, "N")).to_lowercase()
}

/// The kernels of the catalogue for these types and directions.
pub(crate) fn of(types: Types, directions: &str) -> Vec<AnyGemm> {
    let fits = |entry: &AnyGemm| Types::of_kernel(entry) == types && layout(entry) == directions;
    kernel::catalogue().into_iter().filter(|entry| fits(entry)).collect()
}
