//! `falchion check`: proves PTX that anybody wrote.

use std::fmt::Display;
use std::io::Write;
use std::path::{Path, PathBuf};

mod compiler;

use serde::Serialize;

use crate::check::{
    self, Baseline, CheckError, Launch, Mutants, Options, Report, Sarif, Severity, Suppression, check,
};
use crate::cli::engine::Progress;
use crate::cli::options::{Given, Verb};
use crate::cli::output::{out, shortened};
use crate::cli::{Command, Failure, files};

pub(crate) const COMMAND: Command = Command {
    verb: Verb::CHECK,
    about: "Prove PTX that anybody wrote: find races, hangs, missing fences, accesses out of bounds and wrong results, without a GPU.

Each kernel runs in the emulator under four fixed schedules and under random ones. A finding has the line of the PTX, and that of the \
source where the PTX states it. What a kernel is launched with stands in a description beside it: for `kernel.ptx` in \
`kernel.launch.toml`. `falchion::check` documents its keys.

Exit codes: 0 nothing found, 1 findings, 2 a file that is not read.",
    examples: "Examples:\n  falchion check softmax.ptx\n  falchion check softmax.ptx --launch small.toml --schedules 200\n  \
               falchion check kernels/*.launch.toml --sarif found.sarif --baseline known.json\n  falchion check --rules\n  falchion check kernel.ptx --against-device\n  falchion check --compiler --ptxas /usr/local/cuda/bin/ptxas",
    run,
};

/// Largest PTX file and description in bytes.
const LARGEST: u64 = 1 << 28;

fn run(given: &Given) -> Result<(), Failure> {
    if given.flag("rules") {
        given.finish("--rules")?;
        return list();
    }
    let assemblers = given.list::<PathBuf>("ptxas");
    if given.flag("compiler") {
        given.finish("--compiler")?;
        return compiler::run(&assemblers);
    }
    let paths = given.list::<PathBuf>("kernels");
    let description = given.get::<PathBuf>("launch");
    let suppressions = given.list::<Suppression>("suppress");
    let [json, sarif, trace, svg] = ["json", "sarif", "trace", "svg"].map(|name| given.get::<PathBuf>(name));
    let [baseline, kept] = ["baseline", "write-baseline"].map(|name| given.get::<PathBuf>(name));
    let (schedules, seed) = (given.value("schedules"), given.value("seed"));
    let (is_strict, mutate) = (given.flag("deny-warnings"), given.flag("mutate"));
    let is_against = given.flag("against-device");
    given.finish("a check")?;
    if paths.is_empty() {
        refuse!("at least one FILE was needed, of PTX or a description of a launch; or --rules");
    }
    let alone = [("--launch", &description), ("--trace", &trace), ("--svg", &svg)];
    if let (Some((name, _)), [_, _, ..]) = (alone.iter().find(|(_, given)| given.is_some()), &paths[..]) {
        refuse!("{name} is for one FILE, {} were given", paths.len());
    }
    if is_against {
        return against(&paths, description.as_deref());
    }
    can_be_written([&json, &sarif, &trace, &svg, &kept], paths.iter().chain(&description))?;
    let mut known = match &baseline {
        Some(path) => parsed(path)?,
        None => Baseline::default(),
    };
    let (mut reports, mut broken) = (Vec::new(), Vec::new());
    for path in &paths {
        let launch = launch(path, description.as_deref())?;
        let about = |error| about(path, error);
        let bar = Progress::new(if mutate { "breaking" } else { "checking" });
        let show = |done, total| bar.show(done, total);
        let options = Options { schedules, seed, progress: Some(&show), ..Options::default() };
        if mutate {
            broken.push(check::mutants(&launch, &options, false).map_err(about)?);
            print(&broken[broken.len() - 1], broken.len() > 1)?;
            continue;
        }
        let mut report = check(&launch, &options).map_err(about)?;
        report.suppress(&[&launch.suppressions[..], &suppressions[..]].concat());
        report.compare(&known);
        print(&report, !reports.is_empty())?;
        if trace.is_some() || svg.is_some() {
            let recorded = check::trace(&launch, report.findings.first().map(|finding| finding.first));
            let recorded = recorded.map_err(about)?;
            let texts = [(&trace, recorded.chrome_json()), (&svg, recorded.svg())];
            for (path, text) in texts.iter().filter_map(|(path, text)| Some((path.as_ref()?, text))) {
                write(path, text)?;
            }
        }
        reports.push(report);
    }
    if let Some(path) = &json {
        write(
            path,
            &pretty(&Log { version: env!("CARGO_PKG_VERSION"), reports: &reports, mutants: &broken })?,
        )?;
    }
    if let Some(path) = &sarif {
        write(path, &pretty(&Sarif::new(&reports))?)?;
    }
    if let Some(path) = &kept {
        reports.iter().for_each(|report| known.add(report));
        write(path, &pretty(&known)?)?;
        return Ok(());
    }
    let unbroken = broken.iter().map(|mutants| &mutants.unbroken);
    let all: Vec<&Report> = reports.iter().chain(unbroken).collect();
    let count = |severity| all.iter().map(|report| report.count(severity)).sum::<usize>();
    let wrong = count(Severity::Error) + if is_strict { count(Severity::Warning) } else { 0 };
    if wrong > 0 { Err(Failure::Wrong) } else { Ok(()) }
}

/// Compares launches on the GPU with the emulator.
fn against(paths: &[PathBuf], description: Option<&Path>) -> Result<(), Failure> {
    let mut gpu = kernel::Gpu::new(0)?;
    let mut is_wrong = false;
    for (number, path) in paths.iter().enumerate() {
        let launch = launch(path, description)?;
        let comparison = check::against(&launch, &mut gpu).map_err(|error| about(path, error))?;
        print(&comparison, number > 0)?;
        is_wrong |= comparison.is_wrong();
    }
    if is_wrong { Err(Failure::Wrong) } else { Ok(()) }
}

/// An error of a launch, with its file.
fn about(path: &Path, error: CheckError) -> Failure {
    // These name the file themselves.
    let named = matches!(error, CheckError::Read(_) | CheckError::Entry { .. } | CheckError::Verify { .. });
    if let CheckError::Engine(error) = error {
        return error.into();
    }
    if named { usage!("{error}") } else { usage!("{}: {error}", path.display()) }
}

/// The launch of a PTX file, or of its description.
fn launch(path: &Path, description: Option<&Path>) -> Result<Launch, Failure> {
    let is_description = path.extension().is_some_and(|extension| extension == "toml");
    let beside = path.with_extension("launch.toml");
    let at = match description {
        Some(_) if is_description => {
            refuse!("{} is a description itself: leave --launch out", path.display())
        }
        Some(description) => description,
        None if is_description => path,
        None if beside.exists() => &beside,
        None => refuse!(
            "what {} is launched with is not known: {} was needed, or --launch FILE",
            path.display(),
            beside.display()
        ),
    };
    let about = |error: check::DescriptionError| usage!("{}: {error}", at.display());
    let mut launch = Launch::read(&text(at)?).map_err(about)?;
    let folder = at.parent().unwrap_or(Path::new(""));
    for kernel in &mut launch.kernels {
        let named = folder.join(&kernel.file);
        let file = match (is_description, kernel.file.is_empty()) {
            // The PTX that was named is the one that is checked.
            (false, _) => path.to_owned(),
            (true, false) => named,
            (true, true) => {
                let name = path.file_name().unwrap_or_default().to_string_lossy();
                let stem = name.strip_suffix(".toml").unwrap_or(&name);
                folder.join(format!("{}.ptx", stem.strip_suffix(".launch").unwrap_or(stem)))
            }
        };
        kernel.text = text(&file)?;
        kernel.file = file.display().to_string();
    }
    let fetch = |file: &str| {
        let path = folder.join(file);
        let read = || {
            let (mut file, length) = files::open(&path)?;
            files::part(&path, &mut file, 0, length)
        };
        read().map_err(|failure| match failure {
            Failure::Usage(why) | Failure::Environment(why) => why,
            Failure::Wrong | Failure::Closed => "it is not read".to_owned(),
        })
    };
    launch.load(&fetch).map_err(about)?;
    Ok(launch)
}

fn text(path: &Path) -> Result<String, Failure> {
    files::text(path, LARGEST).map_err(|error| usage!("cannot read {}: {error}", path.display()))
}

fn parsed<T: serde::de::DeserializeOwned>(path: &Path) -> Result<T, Failure> {
    let parsed = serde_json::from_str(&text(path)?);
    parsed.map_err(|error| usage!("{}: {}", path.display(), shortened(&error.to_string())))
}

fn pretty(value: &impl Serialize) -> Result<String, Failure> {
    serde_json::to_string_pretty(value).map(|text| text + "\n").map_err(Failure::environment)
}

/// Refuses reports that cannot be written, or would be written over each other or over what is read.
fn can_be_written<'a>(
    outputs: [&Option<PathBuf>; 5],
    inputs: impl Iterator<Item = &'a PathBuf>,
) -> Result<(), Failure> {
    let outputs: Vec<&PathBuf> = outputs.into_iter().flatten().collect();
    let inputs = inputs.flat_map(|path| [path.clone(), path.with_extension("launch.toml")]);
    let inputs: Vec<PathBuf> = inputs.filter_map(|path| path.canonicalize().ok()).collect();
    for (number, output) in outputs.iter().enumerate() {
        if output.canonicalize().is_ok_and(|path| inputs.contains(&path)) {
            refuse!("{} is read, and would be overwritten: another file was needed", output.display());
        }
        if output.as_os_str() != "-" && outputs[..number].contains(output) {
            refuse!("{} would be written twice: a file for each report was needed", output.display());
        }
    }
    outputs.iter().try_for_each(|path| files::writable(path))
}

/// What `--json` writes.
#[derive(Serialize)]
struct Log<'a> {
    version: &'static str,
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    reports: &'a [Report],
    #[serde(skip_serializing_if = "<[_]>::is_empty")]
    mutants: &'a [Mutants],
}

fn print(report: &impl Display, is_next: bool) -> Result<(), Failure> {
    let out = &mut out();
    if is_next {
        writeln!(out)?;
    }
    for line in report.to_string().lines() {
        writeln!(out, "{}", crate::cli::output::plain(line))?;
    }
    Ok(out.flush()?)
}

fn write(path: &Path, text: &str) -> Result<(), Failure> {
    files::write_text(path, text)?;
    Ok(writeln!(out(), "written   {}", path.display())?)
}

/// Prints the rules.
fn list() -> Result<(), Failure> {
    let out = &mut out();
    let width = check::rules().map(|rule| rule.name.len()).max().unwrap_or(0);
    for rule in check::rules() {
        writeln!(out, "{:width$}  {} [{}]", rule.name, rule.meaning, rule.section)?;
    }
    Ok(out.flush()?)
}
