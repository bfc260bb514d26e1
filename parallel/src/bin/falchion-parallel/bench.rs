//! `bench`: layers of models beside the sequence of NCCL and cuBLASLt, PyTorch's operators, and the model.

use std::collections::HashMap;
use std::fs::{File, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::Command;

use clap::{Args, ValueEnum};
use falchion_parallel::bench::{self, LAYERS, Times};
use falchion_parallel::predict::{self, Links};
use falchion_parallel::{Error, Group};
use serde::{Deserialize, Serialize};

use crate::Ranks;

/// Times PyTorch's operators, under torchrun.
const TORCH: &str = include_str!("torch_layers.py");

#[derive(Args)]
pub(crate) struct Bench {
    #[command(flatten)]
    pub(crate) ranks: Ranks,
    /// Tokens of all ranks.
    #[arg(long, value_delimiter = ',', default_value = "512,2048,8192,16384", value_name = "COUNTS")]
    tokens: Vec<u32>,
    /// What is multiplied.
    #[arg(long, value_delimiter = ',', default_value = "bf16,e4m3", value_name = "FORMATS")]
    dtype: Vec<Multiplied>,
    /// Layers whose names contain this.
    #[arg(long, default_value = "")]
    layer: String,
    /// Kernels to measure per product before it is timed, as cuBLASLt's algorithms are. 0: the model's choice.
    #[arg(long, default_value_t = 0, value_name = "COUNT")]
    tune: u32,
    /// A Python with PyTorch: its operators are timed first, in processes of their own, in bf16, on the GPUs of --gpus.
    #[arg(long, value_name = "PYTHON", requires = "gpus")]
    torch: Option<PathBuf>,
    /// Append the times of each layer, one line of JSON per number of tokens. The tour of `falchion explore --tour` shows such a record.
    #[arg(long, value_name = "FILE")]
    jsonl: Option<PathBuf>,
}

/// A line of the record: microseconds of the slowest rank.
#[derive(Serialize)]
struct Line<'a> {
    /// The program's arguments.
    command: &'a str,
    /// One rank's card and driver.
    card: &'a str,
    nccl: &'a str,
    ranks: u32,
    layer: &'a str,
    /// Whether the layer's outputs are divided, or its inputs.
    column: bool,
    /// Outputs and inputs of all ranks.
    n: u32,
    k: u32,
    tokens: u32,
    dtype: &'a str,
    /// Our layer, and the same recorded and replayed.
    ours: f64,
    recorded: f64,
    /// NCCL, and cuBLASLt's first and fastest algorithm.
    first: f64,
    fastest: f64,
    /// The collective alone.
    collective: f64,
}

#[derive(Clone, Copy, ValueEnum)]
enum Multiplied {
    /// bf16.
    Bf16,
    /// e4m3 with a scale per 1 x 128 and per 128 x 128 numbers.
    E4m3,
}

/// A row of the script: microseconds of the sequence of a collective and a product, and of the operator that overlaps them.
#[derive(Deserialize)]
struct Row {
    layer: String,
    tokens: u32,
    sequence: f64,
    overlapped: Option<f64>,
}

/// PyTorch's times by layer and tokens.
pub(crate) type Torch = HashMap<(String, u32), [f64; 2]>;

impl Bench {
    fn layers(&self) -> impl Iterator<Item = bench::LayerShape> {
        LAYERS.into_iter().filter(|layer| layer.name.contains(&self.layer))
    }

    /// Runs PyTorch's operators, if they are asked for.
    pub(crate) fn torch(&self) -> Result<Torch, Error> {
        let (Some(python), Some(gpus)) = (&self.torch, &self.ranks.gpus) else { return Ok(Torch::new()) };
        let failed =
            |reason: String| Error::System { what: format!("{} with PyTorch", python.display()), reason };
        let io = |error: std::io::Error| failed(error.to_string());
        let mut script = tempfile::Builder::new().suffix(".py").tempfile().map_err(io)?;
        script.write_all(TORCH.as_bytes()).map_err(io)?;
        let layers: Vec<_> = self
            .layers()
            .map(|of| format!("{}:{}:{}:{}", of.name, u8::from(of.column), of.n, of.k))
            .collect();
        let list = |numbers: Vec<String>| numbers.join(",");
        let output = Command::new(python)
            .args([
                "-m",
                "torch.distributed.run",
                "--standalone",
                "--nproc-per-node",
                &gpus.len().to_string(),
            ])
            .arg(script.path())
            .args([layers.join(","), list(self.tokens.iter().map(u32::to_string).collect())])
            .env("CUDA_VISIBLE_DEVICES", list(gpus.iter().map(usize::to_string).collect()))
            .output()
            .map_err(io)?;
        if !output.status.success() {
            let words = String::from_utf8_lossy(&output.stderr);
            return Err(failed(words.lines().last().unwrap_or("no words").to_owned()));
        }
        let text = String::from_utf8_lossy(&output.stdout);
        let rows = text.lines().filter_map(|line| serde_json::from_str::<Row>(line).ok());
        Ok(rows.map(|of| ((of.layer, of.tokens), [of.sequence, of.overlapped.unwrap_or(f64::NAN)])).collect())
    }

    pub(crate) fn run(&self, mut group: Group, torch: &Torch) -> Result<(), Error> {
        let (rank, size) = (group.rank(), group.size());
        let Some(nccl) = group.members()[0].nccl.clone() else {
            let (field, found) = ("a rank's machine".to_owned(), group.describe());
            return Err(Error::Argument { field, found, needed: "a GPU".to_owned() });
        };
        group.tune(self.tune);
        let command = std::env::args().skip(1).collect::<Vec<_>>().join(" ");
        let here = Here { command, card: group.describe(), nccl, ranks: size };
        let file = |path: &PathBuf| OpenOptions::new().create(true).append(true).open(path);
        let mut record = match (&self.jsonl, rank) {
            (Some(path), 0) => Some(file(path).map_err(|error| self.unwritten(error))?),
            _ => None,
        };
        if rank == 0 {
            self.print_heading(&here);
        }
        let mut logarithms = [const { Vec::new() }; 3];
        for &dtype in &self.dtype {
            for layer in self.layers() {
                let scaled = matches!(dtype, Multiplied::E4m3);
                let times = bench::layer(&mut group, layer, &self.tokens, scaled)?;
                for (&tokens, times) in self.tokens.iter().zip(times) {
                    let model =
                        predict::layer(group.machine(), &Links::default(), layer, (size, tokens), scaled)?;
                    let predicted = (model[0] + model[1]) * 1e6;
                    let ours = times.ours;
                    let ratios = [ours / times.first, ours / times.fastest, ours / predicted];
                    logarithms.iter_mut().zip(ratios).for_each(|(all, own)| all.push(own.ln()));
                    if rank == 0 {
                        let known = torch.get(&(layer.name.to_owned(), tokens)).filter(|_| !scaled);
                        let dtype = if scaled { "e4m3" } else { "bf16" };
                        if let Some(file) = &mut record {
                            self.append(file, &here.line(layer, (tokens, dtype), &times))?;
                        }
                        print_row((layer.name, tokens, dtype), &times, known, model);
                    }
                }
            }
        }
        if rank == 0 {
            let mean = |of: &[f64]| (of.iter().sum::<f64>() / of.len() as f64).exp();
            let [first, fastest, model] = logarithms.each_ref().map(|all| mean(all));
            let apart = logarithms[2].iter().map(|of| of.abs()).fold(0.0, f64::max).exp();
            println!(
                "geometric mean: {first:.3} of the sequence with cuBLASLt's first algorithm, {fastest:.3} with its fastest; {model:.3} of the prediction, at most a factor of {apart:.3} from it"
            );
        }
        Ok(())
    }

    /// Prints what is compared, and the heads of the columns.
    fn print_heading(&self, Here { card, nccl, ranks, .. }: &Here) {
        let chosen = match self.tune {
            0 => "the model's first kernel".to_owned(),
            count => format!("the fastest of {count} measured kernels"),
        };
        println!(
            "{ranks} x {card}, NCCL {nccl}, {chosen}; microseconds, the slowest rank; ratios: ours / theirs"
        );
        println!(
            "| layer | tokens | dtype | ours | recorded | two at once | NCCL + cuBLASLt, first | its fastest | ratio to first | to fastest | torch | torch overlapped | predicted | host: ours | recorded | NCCL + cuBLASLt | NCCL alone |"
        );
        println!("|{}", "---|".repeat(17));
    }

    /// Appends a line to the record.
    fn append(&self, file: &mut File, line: &Line<'_>) -> Result<(), Error> {
        let line = serde_json::to_string(line).map_err(|error| self.unwritten(error.into()))?;
        writeln!(file, "{line}").map_err(|error| self.unwritten(error))
    }

    /// The error of a record that cannot be written.
    fn unwritten(&self, error: std::io::Error) -> Error {
        Error::System {
            what: format!("--jsonl {}", self.jsonl.as_deref().unwrap_or(Path::new("")).display()),
            reason: error.to_string(),
        }
    }
}

/// What all lines of a record have in common.
struct Here {
    command: String,
    card: String,
    nccl: String,
    ranks: u32,
}

impl Here {
    fn line<'a>(
        &'a self,
        bench::LayerShape { name: layer, column, n, k }: bench::LayerShape,
        (tokens, dtype): (u32, &'a str),
        times: &Times,
    ) -> Line<'a> {
        let Self { command, card, nccl, ranks } = self;
        let Times { ours, recorded, first, fastest, collective, .. } = *times;
        Line {
            command,
            card,
            nccl,
            ranks: *ranks,
            layer,
            column,
            n,
            k,
            tokens,
            dtype,
            ours,
            recorded,
            first,
            fastest,
            collective,
        }
    }
}

/// Prints the row of a layer. `known` are PyTorch's times, if there are any; `model` predicts seconds of the product and of what is moved.
fn print_row(
    (name, tokens, dtype): (&str, u32, &str),
    times: &Times,
    known: Option<&[f64; 2]>,
    model: [f64; 2],
) {
    let Times { ours, overlapped, recorded, first, fastest, collective, host } = *times;
    let ratios = [ours / first, ours / fastest];
    let [sequence, operator] =
        [0, 1].map(|i| known.map_or("-".to_owned(), |times| format!("{:.1}", times[i])));
    let [product, moved] = model.map(|seconds| seconds * 1e6);
    let host = host.map(|time| format!(" {time:.1} |")).concat();
    println!(
        "| {name} | {tokens} | {dtype} | {ours:.1} | {recorded:.1} | {overlapped:.1} | {first:.1} | {fastest:.1} | {:.3} | {:.3} | {sequence} | {operator} | {product:.0} + {moved:.0} (collective {collective:.0}) |{host}",
        ratios[0], ratios[1]
    );
}
