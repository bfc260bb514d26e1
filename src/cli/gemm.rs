//! `falchion gemm`: runs one GEMM, or several in one launch, and checks the result.

mod few_bits;
mod inputs;
mod products;
mod report;
mod transposed;

use std::io::Write;
use std::path::PathBuf;

use crate::verify::family::FamilyError;
use crate::verify::matrix::Distribution;
use crate::verify::product::{formats, random_scales, scaled};
use crate::verify::storage::{self, of_few_bits};
use crate::verify::tree::Checked;
use crate::verify::{
    Bench, Format, Formula, FusedGemm, GemmCase, HostMatrix, Order, TreeError, Weights, fusions,
};
use collective::WeightsSpec;
use kernel::{AnyGemm, GemmProblem, Types};

use self::inputs::Inputs;
use self::report::{report, verdict, words};
use self::transposed::transposes;
use crate::cli::call::{Launched, SEVERAL};
use crate::cli::engine::{Choice, Chosen, machine};
use crate::cli::files;
use crate::cli::named;
use crate::cli::options::{Given, Verb};
use crate::cli::output::out;
use crate::cli::scales::Scaling;
use crate::cli::types::TypeArgs;
use crate::cli::weights::Found;
use crate::cli::{Command, Failure, catalogue, memory, numbers, types};

pub(crate) const COMMAND: Command = Command {
    verb: Verb::GEMM,
    about: "Run one GEMM, D = alpha * A * B + beta * C, and check it against an f64 reference.

Without files the matrices are random. The last line is `verified`, or `WRONG` and the first wrong value.",
    examples: "Examples:\n  falchion gemm\n  falchion gemm --m 300 --n 129 --k 72 --alpha 0.5 --beta 2\n  \
               falchion gemm --epilogue bias-gelu --m 300 --n 256\n  falchion gemm --batch 3 --m 100\n  falchion gemm --sparse a --m 300\n  \
               falchion gemm --dtype-b s4g128 --m 16\n  falchion gemm --rows 3,0,170\n  falchion gemm --k-groups 128,0,384\n  \
               falchion gemm --a A.npy --b weights.safetensors:up_proj --out D.npy --dtype f16",
    run: |given| GemmArgs { given, types: TypeArgs::read(given) }.run(),
};

/// The epilogue of 8-bit operands that were quantised row by row, and column by column. D has the format `d`, if it is given.
fn row_column_scaled(operand: collective::Format, d: Option<collective::Format>) -> Result<Formula, Failure> {
    let formula = Formula::named("row-column-scaled").expect("it has a name");
    match d.filter(|&d| d != formula.output(operand)) {
        None => Ok(formula),
        Some(d) => format!("{d}({})", formula.text()).parse().map_err(|_| {
            let given = formula.output(operand);
            usage!("--out-dtype is {d}, and scales of rows or columns give floats: {given} was needed, or another float")
        }),
    }
}

/// The options of the command.
#[derive(Debug)]
pub(crate) struct GemmArgs<'g> {
    given: &'g Given,
    types: TypeArgs<'g>,
}

impl GemmArgs<'_> {
    pub(crate) fn run(&self) -> Result<(), Failure> {
        if let Some(flag) = self.given.first(&SEVERAL) {
            return self.several(flag);
        }
        let named = named::kernel(self.given)?.map(|name| catalogue::find(&name)).transpose()?;
        if let Some(kernel) = named.clone().and_then(FusedGemm::of) {
            let name = kernel.name().to_owned();
            let own = format!(
                "kernel {name}: its fused epilogue {} runs once, on random matrices and with its own arguments",
                kernel.fusion.name()
            );
            return self.fused(kernel.fusion, self.random_problem()?, Some(kernel), &own);
        }
        if let Some(fusion) = self.given.get::<Formula>("epilogue") {
            let problem = self.random_problem()?;
            let kernel = self.ranked(fusion, problem)?;
            return self.fused(fusion, problem, kernel, "--epilogue");
        }
        self.plain(named)
    }

    /// Runs a kernel without a fused epilogue.
    fn plain(&self, named: Option<AnyGemm>) -> Result<(), Failure> {
        let (engine, repeat): (Choice, u32) = (self.given.value("engine"), self.given.value("repeat"));
        let written = self.given.get::<PathBuf>("out");
        if let Some(path) = &written {
            files::writable(path)?;
        }
        let mut few_bits = if named.is_some() { None } else { self.few_bits()? };
        let inputs = self.inputs()?;
        if let Some((few_bits, layer)) = few_bits.as_mut().zip(inputs.layer.as_ref()) {
            few_bits.coded.code = layer.code;
        }
        let found = few_bits.map(|few_bits| self.found(few_bits, &inputs)).transpose()?;
        let (spec, weights, scaling) = match found {
            None => {
                let blocks = named.as_ref().and_then(scaled);
                (None, None, self.scaling(inputs.problem, blocks)?)
            }
            Some(Found { spec, weights, scaling }) => (Some(spec), weights, scaling),
        };
        let with = if named.is_some() { "--kernel" } else { "such operands" };
        let entry = match named {
            Some(entry) => {
                catalogue::one_product(&entry)?;
                entry
            }
            None => self.kernel(&inputs, &scaling, spec)?,
        };
        let [.., of_d] = formats(&entry);
        let product = self.product(&inputs, &entry, scaling, weights)?;
        self.given.finish(with)?;
        let Chosen { mut engine, emulated, why } = engine.open()?;
        memory::work(&*engine, &entry, &[inputs.problem], "--m, --n or --k")?;

        let program = entry.program()?;
        let mut out = out();
        writeln!(out, "engine    {} ({why})", engine.describe())?;
        self.announce(&mut out, (&entry, program.name()), &product, inputs.problem)?;
        transposes(&mut out, &entry, &product)?;
        let outcome = product.run_times(&entry, engine.as_mut(), repeat)?;
        report(&mut out, &outcome, inputs.problem.operations(), emulated)?;
        match outcome.wrapped {
            Some(wrapped) if inputs.files.is_some() => return Err(Failure::usage(wrapped)),
            Some(wrapped) => writeln!(out, "wrapped   {wrapped}")?,
            None => {}
        }
        if let Some(path) = &written {
            let GemmProblem { m, n, .. } = inputs.problem;
            let extents = ([m, n], self.given.turned());
            files::write(path, of_d, extents, &outcome.d[..m as usize * n as usize])?;
            writeln!(out, "written   {}", path.display())?;
        }
        verdict(&mut out, outcome.mismatch, repeat)
    }

    /// Says what is computed, and by which kernel.
    fn announce(
        &self,
        out: &mut impl Write,
        (entry, program): (&AnyGemm, &str),
        product: &GemmCase,
        GemmProblem { m, n, k }: GemmProblem,
    ) -> Result<(), Failure> {
        let plan = entry.plan();
        writeln!(
            out,
            "product   {m} x {n} x {k} {}, alpha {}, beta {}",
            words(entry),
            product.alpha,
            self.beta()
        )?;
        if self.given.turned() {
            writeln!(
                out,
                "layout    D is column-major: its transpose is computed, as the product of B and A transposed"
            )?;
        }
        writeln!(out, "kernel    {} ({program})", entry.name())?;
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
        Ok(())
    }

    fn alpha(&self) -> f64 {
        self.given.value("alpha")
    }

    fn beta(&self) -> f64 {
        self.given.value("beta")
    }

    /// The first kernel of the ranking for a fused epilogue, in 16 bits also one that stores any number of columns.
    fn ranked(&self, fusion: Formula, problem: GemmProblem) -> Result<Option<FusedGemm>, Failure> {
        let types = self.types.types()?;
        let any = types == Types::of(types.a)
            && types.a.bytes() == 2
            && self.given.layout().is_none_or(|layout| layout == "kk");
        let launched = Launched::shape(problem, None);
        match catalogue::chosen(self.given, &launched, Some(fusion), machine()) {
            Err(_) if any => {
                fusions::any_columns(fusion, of_reference(types.a)).map(Some).map_err(Failure::usage)
            }
            other => other.map(FusedGemm::of),
        }
    }

    /// Runs a kernel with a fused epilogue, and compares its results with the epilogue's tree. `with` says what an
    /// option that is left cannot be used with.
    fn fused(
        &self,
        fusion: Formula,
        problem: GemmProblem,
        kernel: Option<FusedGemm>,
        with: &str,
    ) -> Result<(), Failure> {
        let kernel = kernel.ok_or_else(|| {
            usage!("--epilogue is {}, and no kernel of such operands has it", fusion.name())
        })?;
        catalogue::one_product(&kernel.gemm)?;
        memory::fused(problem, fusion)?;
        let (engine, seed): (Choice, u64) = (self.given.value("engine"), self.given.value("seed"));
        self.given.finish(with)?;
        let Chosen { mut engine, emulated, why } = engine.open()?;
        memory::work(&*engine, &kernel.gemm, &[problem], "--m, --n or --k")?;
        let GemmProblem { m, n, k } = problem;
        let mut out = out();
        writeln!(out, "engine    {} ({why})", engine.describe())?;
        writeln!(out, "product   {m} x {n} x {k} {}", words(&kernel.gemm))?;
        writeln!(out, "epilogue  D = {}", fusion.text())?;
        writeln!(out, "kernel    {}", kernel.name())?;
        let outcome = kernel.check(&mut Bench::new(engine.as_mut(), seed), problem);
        checked(&mut out, outcome, emulated)
    }

    /// The kernel that the model ranks first for the shape and the directions of the files.
    fn kernel(
        &self,
        inputs: &Inputs,
        scaling: &Scaling,
        weights: Option<WeightsSpec>,
    ) -> Result<AnyGemm, Failure> {
        let format = of_reference(self.types.multiplied()?);
        let quantised = weights.is_some();
        let blocks = scaling.rows().filter(|_| !quantised).unwrap_or(self.types.scaled());
        let fused = match scaling {
            Scaling::Vectors(_) => Some(row_column_scaled(self.types.multiplied()?, self.types.out())?),
            Scaling::Number(_) | Scaling::Blocks(_) => None,
        };
        let types = self.types.with(weights, blocks)?;
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
        let asked = if quantised { Some("kk".to_owned()) } else { self.given.layout() };
        let layout = asked.unwrap_or_else(|| format!("{a_direction}{b_direction}"));
        types::sparse_as_it_lies(types, &layout, false)?;
        let request = catalogue::asked(types, &layout, inputs.problem);
        let request = fused.map_or(request, |formula| request.fused(formula));
        let mut request = request.k_major(1 << 20).request;
        request.call.epilogue.beta = self.beta();
        request.call.epilogue.c = Some(request.call.d);
        catalogue::ranked(self.given, request, machine())
    }

    /// The product of these inputs, as a kernel computes it.
    fn product(
        &self,
        inputs: &Inputs,
        entry: &AnyGemm,
        scaling: Scaling,
        weights: Option<Weights>,
    ) -> Result<GemmCase, Failure> {
        let (orders, [.., of_d]) = (self.orders(entry)?, formats(entry));
        let mut random = Random { given: self.given, generator: None };
        if inputs.files.is_some() {
            self.given
                .unused("seed", "--a and --b: the matrices are those of the files, and nothing is random");
        }
        self.check_scales(inputs, entry, &scaling)?;
        let ([a, b], c) = self.matrices(inputs, entry, orders, &mut random)?;
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
        let name = match self.given.first(&["scale-a", "scale-b"]) {
            Some(_) => "--alpha times the scales",
            None => "--alpha",
        };
        let beta = self.beta();
        numbers::taken(name, alpha, of_d)?;
        numbers::taken("--beta", beta, of_d)?;
        let scales = match (scales, scaled(entry)) {
            (None, Some(_)) => random_scales(entry, inputs.problem, random.generator()),
            (scales, _) => scales,
        };
        let ([a, b], weights) = stored(inputs, entry, [a, b], weights, &mut random)?;
        Ok(GemmCase { scales, weights, vectors, c, alpha, beta, ..GemmCase::new(a, b) })
    }

    /// Checks that the kernel takes such scales.
    fn check_scales(&self, inputs: &Inputs, entry: &AnyGemm, scaling: &Scaling) -> Result<(), Failure> {
        let (wanted, found) = (scaled(entry), scaling.rows());
        let of_blocks = |rows: [u32; 2]| format!("scales of blocks of {} and {} by 128", rows[0], rows[1]);
        if let Some(found) = found.filter(|_| found != wanted) {
            refuse!(
                "kernel {} has {}, and --scale-a and --scale-b are {}",
                entry.name(),
                wanted.map_or_else(|| "no block scales".to_owned(), of_blocks),
                of_blocks(found)
            );
        }
        let [operand, .., stored] = entry.formats();
        let is_own = |formula| {
            [None, Some(stored)].iter().any(|d| row_column_scaled(operand, *d).ok() == Some(formula))
        };
        let vectors = entry.spec().and_then(|spec| spec.fusion()).is_some_and(is_own);
        if matches!(scaling, Scaling::Vectors(_)) && !vectors {
            refuse!(
                "kernel {} has no scales of rows and columns, and --scale-a and --scale-b are some: leave out --kernel",
                entry.name()
            );
        }
        if vectors && (self.beta() != 0.0 || inputs.c.is_some()) {
            refuse!("scales of rows and columns cannot be used with --beta and --c: leave these out");
        }
        Ok(())
    }

    /// A, B and C: those of the files, or random ones.
    fn matrices(
        &self,
        inputs: &Inputs,
        entry: &AnyGemm,
        [a_order, b_order]: [Order; 2],
        random: &mut Random<'_>,
    ) -> Result<([HostMatrix; 2], Option<HostMatrix>), Failure> {
        let (GemmProblem { m, n, k }, [of_a, of_b, of_d]) = (inputs.problem, formats(entry));
        // Such operands are copied by tensor copies only, so their leading dimensions are padded.
        let plan = entry.plan();
        let copied = scaled(entry).is_some() || of_few_bits(entry).is_some() || plan.mainloop.is_sparse();
        let multiple = |format: Format| if copied { 16 / format.bytes() } else { 1 };
        let mut fill = |format, extents, order| {
            HostMatrix::random(
                format,
                extents,
                order,
                multiple(format),
                Distribution::Normal,
                random.generator(),
            )
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
        Ok(([a, b], c))
    }
}

/// A and B as the kernel stores them, with the weights in few bits or the pruned elements that it needs.
fn stored(
    inputs: &Inputs,
    entry: &AnyGemm,
    [a, b]: [HostMatrix; 2],
    weights: Option<Weights>,
    random: &mut Random<'_>,
) -> Result<([HostMatrix; 2], Option<Weights>), Failure> {
    let ([of_a, of_b, _], sparse) = (formats(entry), entry.plan().mainloop.is_sparse());
    if let (None, Some(_), Some((spec, _))) = (&weights, &inputs.files, of_few_bits(entry)) {
        refuse!(
            "kernel {} multiplies weights of {}: name them by --dtype-b, and leave out --kernel",
            entry.name(),
            spec.code
        );
    }
    Ok(match (weights, of_few_bits(entry)) {
        (Some(of), Some((_, false))) => ([of.matrix(of_a, false), b], Some(of)),
        (Some(of), _) => ([a, of.matrix(of_b, true)], Some(of)),
        (None, _) if sparse && inputs.files.is_some() => {
            let side = if storage::is_b(entry) { "--b" } else { "--a" };
            storage::pruned(entry, [&a, &b]).map_err(|error| usage!("{side}: {error}"))?;
            ([a, b], None)
        }
        // Dense matrices of files are what they are.
        (None, None) if !sparse => ([a, b], None),
        (None, _) => storage::fitted(entry, inputs.problem, [a, b], random.generator()),
    })
}

/// Random numbers from --seed, which is taken when the first of them is drawn.
struct Random<'g> {
    given: &'g Given,
    generator: Option<fastrand::Rng>,
}

impl Random<'_> {
    fn generator(&mut self) -> &mut fastrand::Rng {
        self.generator.get_or_insert_with(|| fastrand::Rng::with_seed(self.given.value("seed")))
    }
}

/// A format of an operand as the reference knows it.
fn of_reference(format: collective::Format) -> Format {
    Format::named(format.name()).unwrap_or(Format::Bf16)
}

/// Reports the check of a kernel with a fused epilogue.
fn checked(out: &mut impl Write, outcome: Result<Checked, TreeError>, emulated: bool) -> Result<(), Failure> {
    match outcome {
        Ok(checked) => {
            if let Some(time) = checked.time.filter(|_| !emulated) {
                writeln!(out, "time      {:.1} us on the device (one cold run)", time.as_secs_f64() * 1e6)?;
            }
            let (ratio, compared) = (checked.ratio, checked.compared);
            let sample = if checked.complete { "" } else { ", a sample" };
            writeln!(out, "error     at most {ratio:.4} of the bound, of {compared} elements{sample}")?;
            writeln!(out, "verified")?;
            Ok(out.flush()?)
        }
        Err(TreeError::Check(FamilyError::Call(error))) => Err(Failure::from(error)),
        Err(TreeError::Check(FamilyError::Engine(error))) => Err(Failure::from(error)),
        Err(error) => {
            writeln!(out, "WRONG {error}")?;
            Err(Failure::Wrong)
        }
    }
}
