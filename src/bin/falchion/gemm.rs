//! `falchion gemm`: runs one GEMM, or several in one launch, and checks the result.

mod few_bits;
mod inputs;
mod products;
mod report;
mod sparse;
mod transposed;

use std::io::Write;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering};

use collective::WeightsSpec;
use cute_rs::atom::Major;
use falchion::verify::matrix::Fill;
use falchion::verify::product::{accumulators, formats, of_kernels, random_scales, scaled};
use falchion::verify::storage::{self, of_few_bits};
use falchion::verify::{
    Bench, Format, FusedGemm, Fusion, HostMatrix, Order, Product, RunError, TreeError, Weights, fusions,
};
use kernel::{AnyGemm, GemmProblem, KernelSpec, Machine, Request, Types};

use self::inputs::Inputs;
use self::report::report;
pub(crate) use self::report::{repeated, words};
use self::transposed::transposes;
use crate::bench::suites::{self, Group};
use crate::engine::{Choice, Chosen, Progress};
use crate::files;
use crate::named;
use crate::output::out;
use crate::scales::Scaling;
use crate::unranked::{Said, unranked};
use crate::weights::{self, FewBits, Found};
use crate::{Failure, catalogue, memory, numbers, types};

/// Run one GEMM, D = alpha * A * B + beta * C, and check it against an f64 reference.
///
/// Without files the matrices are random. The last line is `verified`, or `WRONG` and the first wrong
/// value.
#[derive(clap::Args, Debug)]
#[command(
    after_help = "Examples:\n  falchion gemm\n  falchion gemm --m 300 --n 129 --k 72 --alpha 0.5 --beta 2\n  \
                        falchion gemm --epilogue bias-gelu --m 300 --n 256\n  falchion gemm --batch 3 --m 100\n  falchion gemm --sparse a --m 300\n  falchion gemm --rows 3,0,170\n  falchion gemm --k-groups 128,0,384\n  falchion gemm --a A.npy --b weights.safetensors:up_proj --out D.npy --dtype f16"
)]
pub(crate) struct GemmArgs {
    /// Rows of A and D [default: 256, or the files'].
    #[arg(long)]
    m: Option<u32>,
    /// Columns of B and D [default: 256, or the files'].
    #[arg(long)]
    n: Option<u32>,
    /// Columns of A, rows of B [default: 256, or the files'].
    #[arg(long)]
    k: Option<u32>,
    /// File of A, M x K: FILE.npy or FILE.safetensors[:TENSOR].
    #[arg(long, value_name = "FILE", requires = "b")]
    a: Option<String>,
    /// File of B, K x N: FILE.npy or FILE.safetensors[:TENSOR].
    #[arg(long, value_name = "FILE", requires = "a")]
    b: Option<String>,
    /// File of C, M x N: FILE.npy or FILE.safetensors[:TENSOR]. Needs --beta.
    #[arg(long, value_name = "FILE", requires = "a")]
    c: Option<String>,
    /// File of A's scales: one number, M numbers (one per row), or one scale per block of 8-bit floats, M x
    /// K/128 or M/128 x K/128. For weights in few bits, M x K/GROUP.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["epilogue", "batch", "rows", "k_groups"])]
    scale_a: Option<String>,
    /// File of B's scales: one number, N numbers (one per column), or one scale per block of 8-bit floats,
    /// K/128 x N or K/128 x N/128. For weights in few bits, K/GROUP x N.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["epilogue", "batch", "rows", "k_groups"])]
    scale_b: Option<String>,
    /// Write D to this .npy file: f16 and f64 unchanged, s32 as 32-bit integers, other formats as f32.
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
    /// Number format of A and B: bf16, f16, tf32, f32, f64, e4m3, e5m2, s8 or u8 [default: that of --config or --spec, or bf16].
    /// Values of files are rounded to it.
    #[arg(long)]
    dtype: Option<String>,
    /// Number format of B, if it differs from A's: another 8-bit format. If one operand has 16 bits, the
    /// other may be weights in few bits: int4, uint4, int8, uint8, e4m3, e5m2 or mxfp4 (also s4, u4, s8, u8,
    /// e2m1). With gptq or awq, --b names a layer of such a model, FILE.safetensors:LAYER.
    #[arg(long, conflicts_with_all = ["config", "spec", "epilogue"])]
    dtype_b: Option<String>,
    /// File of A's zero points, M x K/GROUP. For weights in few bits.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["epilogue", "batch", "rows", "k_groups"])]
    zero_a: Option<String>,
    /// File of B's zero points, K/GROUP x N. For weights in few bits.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["epilogue", "batch", "rows", "k_groups"])]
    zero_b: Option<String>,
    /// Operand that is 2:4 sparse along K: a or b. Random operands are pruned. In a file, two of four neighbours
    /// along K must be zero.
    #[arg(long, value_name = "OPERAND", value_parser = types::SIDES,
        conflicts_with_all = ["config", "spec", "epilogue", "layout", "group", "k_groups", "scale_a", "scale_b", "zero_a", "zero_b"])]
    sparse: Option<String>,
    /// Number format of C and D [default: that of A and B; bf16 for 8-bit floats, s32 for 8-bit integers, f32
    /// for tf32].
    #[arg(long, value_parser = collective::Format::ALL.map(collective::Format::name),
        conflicts_with_all = ["config", "spec", "epilogue", "batch", "rows", "k_groups"])]
    out_dtype: Option<String>,
    /// Kernel name from `falchion configs` [default: the first of `falchion plan --m --n --k`]. A kernel with
    /// a fused epilogue runs on random matrices.
    #[arg(long, value_name = "NAME")]
    config: Option<String>,
    /// Kernel as `key=value` words. Words that are left out have the defaults that `falchion plan --spec ""`
    /// prints.
    #[arg(long, value_name = "WORDS", conflicts_with = "config", value_parser = named::spec)]
    spec: Option<KernelSpec>,
    /// Factor of A * B [default: 1].
    #[arg(long, value_parser = numbers::written, allow_hyphen_values = true)]
    alpha: Option<f64>,
    /// Factor of C [default: 0, which leaves C out].
    #[arg(long, value_parser = numbers::written, allow_hyphen_values = true)]
    beta: Option<f64>,
    /// Where to run the kernel.
    #[arg(long, value_enum, default_value = "auto")]
    engine: Choice,
    /// Name of a fused epilogue, in place of alpha and beta. Runs on random matrices; checks D and everything
    /// else that the epilogue writes.
    #[arg(long, value_name = "NAME", value_parser = fusion_names(),
        conflicts_with_all = ["a", "b", "c", "out", "config", "spec", "alpha", "beta"])]
    epilogue: Option<String>,
    /// Number of GEMMs in the batch, all of this shape, in one launch on random matrices.
    #[arg(long, value_name = "COUNT",
        conflicts_with_all = ["a", "b", "c", "out", "epilogue", "rows"], value_parser = clap::value_parser!(u32).range(1..))]
    batch: Option<u32>,
    /// Rows of each group of an MoE grouped GEMM, on random matrices. One launch; each group has its own B. A
    /// group may have 0 rows.
    #[arg(long, value_name = "ROWS,ROWS,..", value_delimiter = ',', allow_hyphen_values = true,
        value_parser = crate::numbers::rows, conflicts_with_all = ["a", "b", "c", "out", "epilogue", "m"])]
    rows: Option<Vec<u32>>,
    /// Rows of the buffer that each group of --rows has. The group uses the first of them.
    #[arg(long, value_name = "ROWS", requires = "rows", conflicts_with_all = ["batch", "epilogue"],
        value_parser = clap::value_parser!(u32).range(1..))]
    room: Option<u32>,
    /// K of each group along K, in place of --k, on random matrices. One launch; the groups are ranges of K of the
    /// same A and B, and each has its own D. A group may have K 0. Every group begins at a multiple of 128, or of
    /// the kernel's tile K.
    #[arg(long, value_name = "K,K,..", value_delimiter = ',', allow_hyphen_values = true,
        value_parser = crate::numbers::lengths, conflicts_with_all = ["a", "b", "c", "out", "epilogue", "k", "batch", "rows", "room"])]
    k_groups: Option<Vec<u32>>,
    /// Add one MxNxK GEMM to a grouped launch (pointer array), on random matrices. Repeatable. M may be 0.
    /// With --group, --config names a kernel `grouped…`. For weights in few bits, a number instead: the
    /// number of elements along K that share a scale, 32, 64 or 128.
    #[arg(long, value_name = "MxNxK", value_parser = suites::parse_group_or_size, allow_hyphen_values = true, conflicts_with = "epilogue")]
    group: Vec<Group>,
    /// Contiguous dimension of A (k or m) and of B (k or n) [default: that of --config or --spec, else that
    /// of the files for 16-bit formats, else kk]. Operands that the kernel cannot read this way are
    /// transposed first.
    #[arg(long, value_parser = ["kk", "kn", "mk", "mn"],
        conflicts_with_all = ["epilogue", "batch", "rows", "k_groups", "group", "scale_a", "scale_b"])]
    layout: Option<String>,
    /// Number of runs of the kernel. The first result is compared with the reference, every other result with
    /// the first, bit for bit, on the device.
    #[arg(long, value_name = "N", default_value_t = 1, conflicts_with = "epilogue",
        value_parser = clap::value_parser!(u32).range(1..=1_000_000))]
    repeat: u32,
    /// Seed of the random matrices.
    #[arg(long, default_value_t = 0)]
    seed: u64,
}

/// The names of fused epilogues.
pub(crate) fn fusion_names() -> Vec<&'static str> {
    Fusion::ALL.into_iter().map(Fusion::name).collect()
}

impl GemmArgs {
    pub(crate) fn run(&self) -> Result<(), Failure> {
        let format = self.format()?;
        let mut few_bits = self.few_bits()?;
        let records = self.records()?;
        let groups = self.rows.is_some() || self.k_groups.is_some();
        if self.batch.is_some() || groups || !records.is_empty() {
            return self.several(format, few_bits, &records);
        }
        if let Some(path) = &self.out {
            files::writable(path)?;
        }
        let named = self.config().as_deref().map(catalogue::find).transpose()?;
        let fused = named.clone().and_then(FusedGemm::of);
        if let Some(kernel) = &fused {
            self.suits(kernel)?;
        }
        let inputs = self.inputs()?;
        if let Some((few_bits, layer)) = few_bits.as_mut().zip(inputs.layer.as_ref()) {
            few_bits.code = layer.code;
        }
        let scale_files = [self.scale_a.as_deref(), self.scale_b.as_deref()];
        let found = few_bits.map(|few_bits| self.found(few_bits, &inputs)).transpose()?;
        let (spec, weights, scaling) = match found {
            None => {
                let blocks = named.as_ref().and_then(scaled);
                (None, None, Scaling::read(scale_files, inputs.problem, blocks)?)
            }
            Some(Found { spec, weights, scaling }) => (Some(spec), weights, scaling),
        };
        if let Some(kernel) = &fused {
            return self.fused(kernel.fusion.name(), format, inputs.problem, Some(kernel));
        }
        if let Some(name) = &self.epilogue {
            return self.fused(name, format, inputs.problem, None);
        }
        let entry = self.kernel(format, &inputs, &scaling, few_bits.zip(spec))?;
        let [.., of_d] = formats(&entry);
        let product = self.product(&inputs, &entry, scaling, weights)?;
        let Chosen { mut engine, emulated, why } = self.engine.open()?;

        let program = entry.program()?;
        let plan = entry.plan();
        let GemmProblem { m, n, k } = inputs.problem;
        let mut out = out();
        writeln!(out, "engine    {} ({why})", engine.describe())?;
        writeln!(
            out,
            "product   {m} x {n} x {k} {}, alpha {}, beta {}",
            words(&entry),
            product.alpha,
            self.beta()
        )?;
        writeln!(out, "kernel    {} ({})", entry.name(), program.name())?;
        writeln!(
            out,
            "plan      tile {}, {} stages, {} B shared, {} threads, {} + {} registers, {}",
            catalogue::tile(&plan),
            plan.ring.stages,
            plan.shared_bytes,
            plan.threads,
            plan.registers.producer,
            plan.registers.consumer,
            entry.schedule(),
        )?;

        transposes(&mut out, &entry, &product)?;
        let progress = Progress::new("reference");
        let rows = AtomicU64::new(0);
        let sums = product.sums(accumulators(&entry), &|total| {
            progress.show(rows.fetch_add(1, Ordering::Relaxed) + 1, total);
        });
        let outcome =
            product.run_times(&entry, &program, engine.as_mut(), &sums, self.repeat).map_err(|error| {
                match error {
                    RunError::Launch(error) => Failure::from(error),
                    RunError::Engine(error) => Failure::from(error),
                    RunError::Program(error) => Failure::from(error),
                    error @ RunError::Direction { .. } => Failure::usage(error),
                }
            })?;
        report(&mut out, &outcome, &sums, inputs.problem, emulated)?;
        match outcome.wrapped {
            Some(wrapped) if inputs.files.is_some() => return Err(Failure::usage(wrapped)),
            Some(wrapped) => writeln!(out, "wrapped   {wrapped}")?,
            None => {}
        }
        if let Some(path) = &self.out {
            files::write(path, of_d, [m, n], &outcome.d)?;
            writeln!(out, "written   {}", path.display())?;
        }
        match outcome.mismatch {
            None => {
                repeated(&mut out, self.repeat)?;
                writeln!(out, "verified")?;
                Ok(out.flush()?)
            }
            Some(mismatch) => {
                writeln!(out, "WRONG {mismatch}")?;
                Err(Failure::Wrong)
            }
        }
    }

    /// The requested format of A and B, or the format of A of the named kernel.
    fn format(&self) -> Result<Format, Failure> {
        let named = || self.config().as_deref().map(catalogue::find).transpose();
        if let Some((_, wide)) = self.packing()? {
            return Ok(Format::named(wide.name()).unwrap_or(Format::F16));
        }
        if let Some(few_bits) = self.names().and_then(|[a, b]| weights::of_names(a, b)) {
            return Ok(Format::named(few_bits.wide.name()).unwrap_or(Format::Bf16));
        }
        let Some(dtype) = &self.dtype else {
            return Ok(named()?.map_or(Format::Bf16, |kernel| formats(&kernel)[0]));
        };
        let all = types::operands();
        let format = Format::named(dtype).filter(|_| all.contains(&dtype.as_str()));
        format.ok_or_else(|| {
            Failure::usage(format!("--dtype is `{dtype}`, one of {} was needed", all.join(", ")))
        })
    }

    fn alpha(&self) -> f64 {
        self.alpha.unwrap_or(1.0)
    }

    fn beta(&self) -> f64 {
        self.beta.unwrap_or(0.0)
    }

    /// The requested kernel: a name, or the text of a spec.
    fn config(&self) -> Option<String> {
        self.config.clone().or_else(|| self.spec.map(|spec| spec.to_string()))
    }

    /// Fails if another argument does not apply to a kernel with a fused epilogue.
    fn suits(&self, kernel: &FusedGemm) -> Result<(), Failure> {
        catalogue::of_type(kernel.name(), kernel.gemm.element(), self.format()?.name())?;
        let given = [
            ("--a", self.a.is_some()),
            ("--c", self.c.is_some()),
            ("--scale-a", self.scale_a.is_some()),
            ("--scale-b", self.scale_b.is_some()),
            ("--out", self.out.is_some()),
            ("--alpha", self.alpha.is_some()),
            ("--beta", self.beta.is_some()),
            ("--repeat", self.repeat > 1),
        ];
        match given.into_iter().find(|(_, given)| *given) {
            Some((flag, _)) => Err(Failure::usage(format!(
                "kernel {} has the fused epilogue {}, which runs once, on random matrices and with its own arguments: leave \
                 out {flag}",
                kernel.name(),
                kernel.fusion.name()
            ))),
            None => Ok(()),
        }
    }

    /// Runs a kernel with a fused epilogue, and compares its results with the epilogue's tree.
    fn fused(
        &self,
        name: &str,
        format: Format,
        problem: GemmProblem,
        kernel: Option<&FusedGemm>,
    ) -> Result<(), Failure> {
        let fusion = Fusion::named(name)
            .ok_or_else(|| Failure::usage(format!("--epilogue is `{name}`, which is no fused epilogue")))?;
        memory::fused(problem, fusion)?;
        let Chosen { mut engine, emulated, why } = self.engine.open()?;
        let GemmProblem { m, n, k } = problem;
        let mut out = out();
        writeln!(out, "engine    {} ({why})", engine.describe())?;
        writeln!(out, "product   {m} x {n} x {k} {}", format.name())?;
        writeln!(out, "epilogue  D = {}", fusion.formula())?;
        let kernel = match kernel {
            Some(kernel) => Some(kernel.clone()),
            None if format.bytes() == 2 => fusions::ranked(fusion, format, problem).into_iter().next(),
            None => {
                let said = Said { epilogue: Some(fusion), ..Said::default() };
                // The bench pads leading dimensions, so K may be anything.
                FusedGemm::of(unranked(format, GemmProblem { k: 0, ..problem }, said)?)
            }
        };
        match &kernel {
            Some(kernel) => writeln!(out, "kernel    {}", kernel.name())?,
            None => writeln!(out, "kernel    one that stores any number of columns")?,
        }
        let mut bench = Bench::new(engine.as_mut(), self.seed);
        let outcome = match &kernel {
            Some(kernel) => kernel.check(&mut bench, problem),
            None => fusions::check(fusion, &mut bench, format, problem),
        };
        match outcome {
            Ok(checked) => {
                if let Some(time) = checked.time.filter(|_| !emulated) {
                    writeln!(
                        out,
                        "time      {:.1} us on the device (one cold run)",
                        time.as_secs_f64() * 1e6
                    )?;
                }
                let (ratio, compared, [rows, columns]) = (checked.ratio, checked.compared, checked.places);
                let sample = match checked.complete {
                    true => String::new(),
                    false => format!(", for {rows} rows and {columns} columns of D"),
                };
                writeln!(out, "error     at most {ratio:.2} of the bound, of {compared} elements{sample}")?;
                writeln!(out, "verified")?;
                Ok(out.flush()?)
            }
            Err(TreeError::Launch(error)) => Err(Failure::from(error)),
            Err(TreeError::Engine(error)) => Err(Failure::from(error)),
            Err(error) => {
                writeln!(out, "WRONG {error}")?;
                Err(Failure::Wrong)
            }
        }
    }

    /// The named kernel, or the one that the model ranks first for the shape and the directions of the files.
    fn kernel(
        &self,
        format: Format,
        inputs: &Inputs,
        scaling: &Scaling,
        few_bits: Option<(FewBits, WeightsSpec)>,
    ) -> Result<AnyGemm, Failure> {
        if let Some(name) = &self.config() {
            let entry = kernel::find(name)?;
            catalogue::of_type(name, entry.element(), format.name())?;
            catalogue::one_product(&entry)?;
            return Ok(entry);
        }
        let (dtype_b, out) = (self.dtype_b.as_deref(), self.out_dtype.as_deref());
        if let Some((few_bits, spec)) = few_bits {
            self.sparse(Types::of(of_kernels(format)))?;
            let request = catalogue::padded(few_bits.types(spec, out)?, [Major::K; 2], inputs.problem);
            let mut request = match scaling {
                Scaling::Vectors(_) => request.fused(Fusion::RowColumnScaled),
                Scaling::Number(_) | Scaling::Blocks(_) => request,
            };
            request.call.epilogue.beta = self.beta() as f32;
            request.call.epilogue.c = Some(request.call.d);
            return first(&request);
        }
        if matches!(scaling, Scaling::Vectors(_)) {
            let said = Said { dtype_b, out, epilogue: Some(Fusion::RowColumnScaled) };
            return unranked(format, inputs.problem, said);
        }
        let types = types::named(of_kernels(format), dtype_b, out, scaling.rows().unwrap_or_default())?;
        let types = self.sparse(types)?;
        let GemmProblem { m, n, k } = inputs.problem;
        // A file's direction can be kept if its contiguous extent is a multiple of 16 bytes.
        let whole = |extent: u32| extent.is_multiple_of(8);
        let [a, b] = match &inputs.files {
            Some([a, b]) if format.bytes() == 2 && !types.has_sparse() => [a.order, b.order],
            // Other formats and sparse operands must be K-major.
            _ => [Order::RowMajor, Order::ColumnMajor],
        };
        let turns = format.bytes() == 2 && inputs.files.is_some() && !types.has_sparse();
        let a_direction = match a {
            Order::ColumnMajor if whole(m) => 'm',
            Order::RowMajor if !whole(k) && whole(m) && turns => 'm',
            Order::RowMajor | Order::ColumnMajor => 'k',
        };
        let b_direction = match b {
            Order::RowMajor if whole(n) => 'n',
            Order::ColumnMajor if !whole(k) && whole(n) && turns => 'n',
            Order::RowMajor | Order::ColumnMajor => 'k',
        };
        let layout = self.layout.clone().unwrap_or_else(|| format!("{a_direction}{b_direction}"));
        let majors = catalogue::majors(&layout);
        let request = match types.is_scaled() || types.has_sparse() {
            // Only tensor copies load operands with block scales and sparse operands, so rows are padded.
            true => catalogue::padded(types, majors, inputs.problem),
            false => Request::packed(types, majors, inputs.problem),
        };
        let mut request = request.k_major(1 << 20).request;
        request.call.epilogue.beta = self.beta() as f32;
        request.call.epilogue.c = Some(request.call.d);
        first(&request)
    }

    fn product(
        &self,
        inputs: &Inputs,
        entry: &AnyGemm,
        scaling: Scaling,
        weights: Option<Weights>,
    ) -> Result<Product, Failure> {
        let GemmProblem { m, n, k } = inputs.problem;
        let ([a_order, b_order], [of_a, of_b, of_d]) = (self.orders(entry)?, formats(entry));
        let mut random = fastrand::Rng::with_seed(self.seed);
        let (wanted, found) = (scaled(entry), scaling.rows());
        let of_blocks = |rows: [u32; 2]| format!("scales of blocks of {} and {} by 128", rows[0], rows[1]);
        if let Some(found) = found.filter(|_| found != wanted) {
            return Err(Failure::usage(format!(
                "kernel {} has {}, and --scale-a and --scale-b are {}",
                entry.name(),
                wanted.map_or_else(|| "no block scales".to_owned(), of_blocks),
                of_blocks(found)
            )));
        }
        let vectors = entry.spec().is_some_and(|spec| spec.fusion() == Some(Fusion::RowColumnScaled));
        if matches!(scaling, Scaling::Vectors(_)) && !vectors {
            return Err(Failure::usage(format!(
                "kernel {} has no scales of rows and columns, and --scale-a and --scale-b are some: leave out --config or --spec",
                entry.name()
            )));
        }
        if vectors && (self.beta() != 0.0 || inputs.c.is_some()) {
            return Err(Failure::usage(
                "scales of rows and columns cannot be used with --beta and --c: leave these out",
            ));
        }
        // Such operands are copied by tensor copies only, so their leading dimensions are padded.
        let plan = entry.plan();
        let copied = wanted.is_some() || of_few_bits(entry).is_some() || plan.mainloop.is_sparse();
        let multiple = |format: Format| if copied { 16 / format.bytes() } else { 1 };
        let mut fill = |format, extents, order| {
            HostMatrix::random(format, extents, order, multiple(format), Fill::Normal, &mut random)
        };
        let (a, b) = match &inputs.files {
            None => (fill(of_a, [m, k], a_order), fill(of_b, [k, n], b_order)),
            Some([a, b]) => {
                let host = |flag, matrix: &files::Matrix, format, order| {
                    matrix.to_host(flag, format, order, multiple(format))
                };
                (host("--a", a, of_a, a_order)?, host("--b", b, of_b, b_order)?)
            }
        };
        let c = match &inputs.c {
            Some(c) => Some(c.to_host("--c", of_d, Order::RowMajor, 1)?),
            None if self.beta() != 0.0 => Some(fill(of_d, [m, n], Order::RowMajor)),
            None => None,
        };
        let mut alpha = self.alpha();
        let (mut scales, mut vectors) = (None, None);
        match scaling {
            Scaling::Number(number) => alpha *= number,
            Scaling::Blocks(blocks) => scales = Some(blocks),
            Scaling::Vectors([rows, columns]) => {
                // The epilogue has no alpha: multiply the row scales by it.
                let factor = alpha as f32;
                vectors = Some([rows.into_iter().map(|row| row * factor).collect(), columns]);
                alpha = 1.0;
            }
        }
        let name = if self.scale_a.is_some() || self.scale_b.is_some() {
            "--alpha times the scales"
        } else {
            "--alpha"
        };
        let alpha = numbers::in_single(name, alpha, of_d)?;
        let beta = numbers::in_single("--beta", self.beta(), of_d)?;
        let scales = scales.or_else(|| random_scales(entry, inputs.problem, &mut random));
        if let (None, Some(_), Some((spec, _))) = (&weights, &inputs.files, of_few_bits(entry)) {
            return Err(Failure::usage(format!(
                "kernel {} multiplies weights of {}: name them by --dtype-b, and leave out --config or --spec",
                entry.name(),
                spec.code
            )));
        }
        let (a, b, weights) = match (weights, of_few_bits(entry)) {
            (Some(of), Some((_, false))) => (of.matrix(of_a, false), b, Some(of)),
            (Some(of), _) => (a, of.matrix(of_b, true), Some(of)),
            (None, _) if plan.mainloop.is_sparse() && inputs.files.is_some() => {
                let side = if storage::is_b(entry) { "--b" } else { "--a" };
                storage::pruned(entry, [&a, &b])
                    .map_err(|error| Failure::usage(format!("{side}: {error}")))?;
                (a, b, None)
            }
            (None, _) => {
                let ([a, b], weights) = storage::fitted(entry, inputs.problem, [a, b], &mut random);
                (a, b, weights)
            }
        };
        Ok(Product {
            a,
            b,
            scales,
            weights,
            vectors,
            operand_offset: 0,
            c,
            alpha,
            beta,
            d_pitch: n,
            d_offset: 0,
            in_place: false,
        })
    }
}

/// The kernel with the shortest predicted time.
fn first(request: &Request<'_>) -> Result<AnyGemm, Failure> {
    let mut selection = kernel::select(request, &Machine::h200());
    catalogue::first(&selection)?;
    Ok(selection.ranked.swap_remove(0).gemm)
}
