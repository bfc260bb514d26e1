//! The command line of groups of ranks.

mod bench;

use std::process::ExitCode;
use std::time::Duration;

use clap::{Args, Parser, Subcommand};
use falchion::kernel::Machine;
use falchion_parallel::bench::LAYERS;
use falchion_parallel::predict::{self, Links};
use falchion_parallel::topology::Topology;
use falchion_parallel::verify::{Drawn, LayerFailure};
use falchion_parallel::{Error, Group, Limits};

/// Layers that are divided among GPUs.
#[derive(Parser)]
#[command(version)]
struct Options {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Compares random layers with the whole product in f64.
    Check(Check),
    /// Times layers of models beside the sequence of NCCL and cuBLASLt.
    Bench(bench::Bench),
    /// Prints what connects the ranks, and what each pair of them reaches.
    Topology(Ranks),
    /// Predicts the times of layers of models on 1 to 16 H200s.
    Predict(Predict),
}

/// Which ranks there are. Without options, torchrun, Slurm or MPI says it.
#[derive(Args, Clone)]
struct Ranks {
    /// Ranks in this process, one per GPU: its numbers.
    #[arg(long, value_delimiter = ',', value_name = "NUMBERS")]
    gpus: Option<Vec<usize>>,
    /// Ranks in this process, each with an emulator.
    #[arg(long, value_name = "COUNT", conflicts_with = "gpus")]
    ranks: Option<u32>,
    /// Emulators instead of GPUs, where a launcher says the ranks.
    #[arg(long, conflicts_with_all = ["gpus", "ranks"])]
    emulated: bool,
    /// Seconds in which all ranks come to the meeting.
    #[arg(long, default_value_t = 60.0)]
    meeting: f64,
    /// Seconds in which all ranks come to a layer, and a GPU ends what was enqueued.
    #[arg(long, default_value_t = 30.0)]
    timeout: f64,
    /// Seconds without a sign of life after which a rank is lost.
    #[arg(long, default_value_t = 10.0)]
    silence: f64,
}

#[derive(Args)]
struct Check {
    #[command(flatten)]
    ranks: Ranks,
    /// Number of layers.
    #[arg(long, default_value_t = 100)]
    layers: usize,
    /// Runs of each layer, which all have the same bits.
    #[arg(long, default_value_t = 1)]
    runs: u32,
    /// Seed of the layers. All ranks need the same.
    #[arg(long, default_value_t = 1)]
    seed: u64,
}

#[derive(Args)]
struct Predict {
    /// Tokens of all ranks.
    #[arg(long, default_value_t = 8192)]
    tokens: u32,
    /// GPUs of a host.
    #[arg(long, default_value_t = 8, value_parser = clap::value_parser!(u32).range(1..))]
    per_host: u32,
    /// GB/s that a GPU receives from other hosts.
    #[arg(long, default_value_t = 45.0)]
    network: f64,
}

impl Predict {
    fn run(&self) -> Result<(), Error> {
        if !(self.network > 0.0 && self.network.is_finite()) {
            let (field, found) = ("--network".to_owned(), self.network.to_string());
            return Err(Error::Argument { field, found, needed: "more than 0 GB/s".to_owned() });
        }
        let links = Links { per_host: self.per_host, between: self.network * 1e9, ..Links::default() };
        let machine = Machine::h200();
        println!(
            "{} tokens, bf16, H200s, {} per host; microseconds: product + collective, one after the other",
            self.tokens, self.per_host
        );
        println!(
            "inside a host {:.0} GB/s between two, {:.0} among more, and {:.0} us (measured on two and four H100s); between hosts {:.0} GB/s and {:.0} us per host (assumed)",
            links.inside / 1e9,
            links.among / 1e9,
            links.inside_latency * 1e6,
            links.between / 1e9,
            links.between_latency * 1e6
        );
        println!("| layer | 1 | 2 | 4 | 8 | 16 |");
        println!("|---|---|---|---|---|---|");
        for layer in LAYERS {
            let mut row = format!("| {} |", layer.name);
            for ranks in [1, 2, 4, 8, 16] {
                let [product, collective] =
                    predict::layer(&machine, &links, layer, (ranks, self.tokens), false)?;
                row += &format!(" {:.0} + {:.0} |", product * 1e6, collective * 1e6);
            }
            println!("{row}");
        }
        Ok(())
    }
}

impl Ranks {
    fn limits(&self) -> Result<Limits, Error> {
        let of = |name: &str, seconds: f64| {
            let needed = || Error::Argument {
                field: format!("--{name}"),
                found: seconds.to_string(),
                needed: "more than 0 seconds".to_owned(),
            };
            Duration::try_from_secs_f64(seconds).ok().filter(|time| !time.is_zero()).ok_or_else(needed)
        };
        Ok(Limits {
            meeting: of("meeting", self.meeting)?,
            timeout: of("timeout", self.timeout)?,
            silence: of("silence", self.silence)?,
        })
    }

    /// Does the same on each rank of this process; whether all could.
    fn each<E: core::fmt::Display + Send>(&self, work: impl Fn(Group) -> Result<(), E> + Sync) -> ExitCode {
        let failed = |error: &dyn core::fmt::Display| {
            eprintln!("falchion-parallel: {error}");
            ExitCode::FAILURE
        };
        let groups = self.limits().and_then(|limits| match (&self.gpus, self.ranks) {
            (Some(gpus), _) => Group::gpus(gpus, limits),
            (None, Some(ranks)) => Group::emulated_within(ranks, limits),
            (None, None) if self.emulated => {
                Group::emulated_from_environment(limits).map(|group| vec![group])
            }
            (None, None) => Group::from_environment(limits).map(|group| vec![group]),
        });
        let groups = match groups {
            Ok(groups) => groups,
            Err(error) => return failed(&error),
        };
        let results: Vec<_> = std::thread::scope(|scope| {
            let work = &work;
            let rank = |group: Group| (group.rank(), scope.spawn(move || work(group)));
            let ranks: Vec<_> = groups.into_iter().map(rank).collect();
            ranks.into_iter().map(|(rank, work)| (rank, work.join())).collect()
        });
        let mut code = ExitCode::SUCCESS;
        for (rank, result) in results {
            match result {
                Ok(Ok(())) => {}
                Ok(Err(error)) => code = failed(&format!("rank {rank}: {error}")),
                Err(_) => code = failed(&format!("rank {rank}: panicked")),
            }
        }
        code
    }
}

fn main() -> ExitCode {
    match Options::parse().command {
        Command::Check(check) => check.ranks.each(|group| check.run(group)),
        Command::Bench(bench) => match bench.torch() {
            Ok(torch) => bench.ranks.each(|group| bench.run(group, &torch)),
            Err(error) => {
                eprintln!("falchion-parallel: {error}");
                ExitCode::FAILURE
            }
        },
        Command::Topology(ranks) => ranks.each(|mut group| {
            let topology = Topology::of(&mut group)?;
            if group.rank() == 0 {
                print!("{topology}");
            }
            Ok::<_, Error>(())
        }),
        Command::Predict(predict) => match predict.run() {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => {
                eprintln!("falchion-parallel: {error}");
                ExitCode::FAILURE
            }
        },
    }
}

impl Check {
    fn run(&self, mut group: Group) -> Result<(), LayerFailure> {
        let (rank, size) = (group.rank(), group.size());
        if rank == 0 {
            println!("{size} ranks, each with {}", group.describe());
        }
        let mut of = fastrand::Rng::with_seed(self.seed);
        for i in 0..self.layers {
            Drawn::new(&mut of, size).check(&mut group, self.runs)?;
            if rank == 0 && (i + 1) % 10 == 0 {
                println!("{} layers", i + 1);
            }
        }
        if rank == 0 {
            println!("{} layers equal the whole product", self.layers);
        }
        Ok(())
    }
}
