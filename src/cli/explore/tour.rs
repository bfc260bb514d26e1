//! The tour: a page with a stop per idea, drawn from kernels, orders and runs of the library.

use crate::explore::run::small;
use crate::explore::{cluster, memory, multiply, order, overview};
use collective::Format;
use cute_rs::atom::Major;
use kernel::{Card, GemmProblem, Machine, Request, search};
use serde_json::{Map, Value, json};

use super::{node, run};
use crate::cli::call::Launched;
use crate::cli::{Failure, catalogue, schedule};

/// What a choice shows.
#[derive(Clone, Copy)]
enum Shows {
    Order(GemmProblem),
    Memory,
    Multiply,
    Cluster,
    Run,
}

/// Something to look at: the sections of a kernel's page that a stop needs, and the view, if it is not the stop's.
fn choice(name: &str, spec: &str, shows: Shows, view: Option<&str>) -> Result<Value, Failure> {
    let entry = catalogue::find(spec)?;
    let memory = || memory::of(&entry).map_err(Failure::environment);
    let mut sections = Map::from_iter([("overview".to_owned(), overview::of(&entry))]);
    let mut section = |name: &str, data: Value| sections.insert(name.to_owned(), data);
    match shows {
        Shows::Order(one) => {
            let (launched, sms) = (Launched::shape(one, None), Card::H200.multiprocessors);
            let schedule = schedule::of(entry.clone(), &launched, sms, "the extents of the tour")?;
            section("order", order::of(&schedule, &[one]));
        }
        Shows::Memory => drop(section("memory", memory()?)),
        Shows::Multiply => {
            section("multiply", multiply::of(&entry).map_err(Failure::environment)?);
        }
        Shows::Cluster => drop(section("cluster", cluster::of(&entry))),
        Shows::Run => {
            section("memory", memory()?);
            let small = small(&entry, GemmProblem { m: 4096, n: 4096, k: 4096 });
            section("run", run::of(&entry, small)?);
        }
    }
    Ok(json!({ "name": name, "view": view, "spec": spec, "sections": sections }))
}

/// An output of as many waves as are easy to see.
const SQUARE: GemmProblem = GemmProblem { m: 4096, n: 4096, k: 4096 };
/// An output whose tiles do not fill the last wave.
const UNEVEN: GemmProblem = GemmProblem { m: 2304, n: 2560, k: 4096 };

/// The tour: stops, each with what it shows, of what there is a choice, the page's function that draws it, and what to try;
/// cards; and a node.
pub(super) fn tour() -> Result<Value, Failure> {
    let stops = [raster()?, card(), wgmma()?, barriers()?, clusters()?, scheduling()?, whole_node()];
    Ok(json!({ "stops": stops, "cards": cards(), "node": node::of()? }))
}

/// Which tiles run together.
fn raster() -> Result<Value, Failure> {
    Ok(json!({
        "id": "raster",
        "name": "Raster order",
        "view": "order",
        "says": "A GEMM's output is cut into tiles, and the GPU computes one per SM at a time. Which tiles run together decides how often the rows of A \
               and the columns of B are read again. Bands of tiles need fewer distinct bytes per wave than whole columns.",
        "tries": [
            "Step through the waves with ← and →, and compare the marks at the edges: they are what the wave reads.",
            "Compare `distinct` in wave 0 of column by column and of bands.",
        ],
        "choices": [
            ordered("Column by column", "tile=128x256x64 raster=m")?,
            ordered("Row by row", "tile=128x256x64 raster=n")?,
            ordered("Bands of 8 along M", "tile=128x256x64 raster=m8")?,
            ordered("Hilbert curve", "tile=128x256x64 raster=hilbert8")?,
        ],
    }))
}

/// What a card has, and what it limits.
fn card() -> Value {
    json!({
        "id": "card",
        "name": "The card",
        "view": "card",
        "says": "A card is a number of SMs with shared memory and tensor cores, an L2 cache, and memory. A small GEMM does not fill the SMs; a large one is \
               limited by the tensor cores. The times are those of the library's model, which was fitted to measurements of an H200.",
        "tries": ["Set 8 CTAs per cluster: SMs that fit no whole cluster stay idle."],
        "choices": [],
    })
}

/// The instruction, and the tiles that it reads.
fn wgmma() -> Result<Value, Failure> {
    Ok(json!({
        "id": "wgmma",
        "name": "wgmma, swizzle",
        "view": "multiply",
        "says": "One `wgmma` multiplies 64 rows with up to 256 columns by 128 threads. It reads operands from shared memory, where the chunks of a tile are \
               swizzled so that eight rows of a column of chunks lie in different banks. The sums stay in registers.",
        "tries": [
            "Point at an element of the accumulator to see its thread and its register.",
            "In the swizzle, follow one column of chunks: each row of it is in another group of banks.",
        ],
        "choices": [
            choice("The instruction", "tile=128x256x64", Shows::Multiply, None)?,
            choice("128 B swizzle", "tile=128x256x64", Shows::Memory, Some("memory"))?,
            choice("32 B swizzle", "tile=128x128x16", Shows::Memory, Some("memory"))?,
            choice("A from registers", "weights-b=s4 swap=yes", Shows::Multiply, None)?,
        ],
    }))
}

/// Who waits for whom in a CTA.
fn barriers() -> Result<Value, Failure> {
    Ok(json!({
        "id": "barriers",
        "name": "Barriers",
        "view": "timeline",
        "says": "A producer fills stages, consumers empty them, and two mbarriers per stage say which is due: `full` counts the bytes that the copies wrote, \
               `empty` the consumers that are done. This is a run of the real program in the emulator, step by step.",
        "tries": [
            "Choose a wait: its mbarrier, its phase, and who completes it are shown.",
            "Compare the epilogue of the pingpong kernel: another consumer multiplies meanwhile.",
        ],
        "choices": [
            recorded("Two consumers per tile", "tile=128x64x64 stages=3")?,
            recorded("A tile per consumer", "tile=64x64x64 roles=pingpong stages=3")?,
            recorded("One warpgroup does all", "64x64-direct-bf16-kk")?,
        ],
    }))
}

/// What CTAs of a cluster send each other.
fn clusters() -> Result<Value, Failure> {
    Ok(json!({
        "id": "cluster",
        "name": "Cluster",
        "view": "cluster",
        "says": "CTAs of a cluster run on neighbouring SMs. Those that need the same tile of A or B copy a part each, and multicast it to the others: fewer \
               bytes come from L2.",
        "tries": ["Choose a CTA: what it sends is bright in each CTA that receives it."],
        "choices": [
            clustered("2 x 1", "tile=128x256x64 cluster=2x1")?,
            clustered("1 x 2", "tile=256x128x64 cluster=1x2")?,
            clustered("2 x 2", "tile=128x192x64 cluster=2x2")?,
            clustered("No cluster", "tile=128x256x64")?,
        ],
    }))
}

/// What is done with a last wave that is not full.
fn scheduling() -> Result<Value, Failure> {
    Ok(json!({
        "id": "schedule",
        "name": "Tile scheduling",
        "view": "order",
        "says": "Tiles rarely fill the last wave. A scheduler can leave the rest idle, divide tiles along K among SMs, or slice the tiles of the last wave.",
        "tries": [
            "Look at `The slots`: gaps are idle time. Stream-K leaves hardly any, and pays with partial sums that are added up.",
        ],
        "choices": [
            uneven("Whole tiles", "tile=128x256x64")?,
            uneven("Stream-K", "tile=128x256x64 scheduler=stream-k")?,
            uneven("Halves of K", "tile=128x256x64 scheduler=stream-k divide=split2")?,
            uneven("Sliced last wave", "tile=128x256x64 scheduler=narrow-tail splits=2")?,
        ],
    }))
}

/// A GEMM of all GPUs of a node.
fn whole_node() -> Value {
    json!({
        "id": "node",
        "name": "The node",
        "view": "node",
        "says": "The GPUs of a node can share a GEMM. Each computes a part, by a kernel chosen for that part, and then they exchange results. Times of the parts \
               are the model's; those of the exchange are bytes divided by the speed of NVLink. The crate `falchion-parallel` has such layers: products by the library's \
               kernels, and all-gather, reduce-scatter and all-reduce by NCCL. Without GPUs, its ranks run in emulators.",
        "tries": [
            "For few rows, compare dividing N and K: what is exchanged is the same output, once or as partial sums.",
            "Run `falchion-parallel check --ranks 2`: random layers on two emulated ranks, compared with the whole product.",
        ],
        "choices": [],
    })
}

fn ordered(name: &str, spec: &str) -> Result<Value, Failure> {
    choice(name, spec, Shows::Order(SQUARE), None)
}

fn uneven(name: &str, spec: &str) -> Result<Value, Failure> {
    choice(name, spec, Shows::Order(UNEVEN), None)
}

fn clustered(name: &str, spec: &str) -> Result<Value, Failure> {
    choice(name, spec, Shows::Cluster, None)
}

fn recorded(name: &str, spec: &str) -> Result<Value, Failure> {
    choice(name, spec, Shows::Run, None)
}

/// The time of the best kernel that the model finds, and its spec.
pub(super) fn best(machine: &Machine, problem: GemmProblem) -> (f64, String) {
    let request = Request::packed(Format::Bf16, [Major::K; 2], problem);
    let first = search(&request, machine, 1).ranked.into_iter().next();
    let spec =
        |gemm: &kernel::AnyGemm| gemm.spec().map_or_else(|| gemm.entry_name(), |spec| spec.to_string());
    first.map_or((f64::NAN, String::new()), |first| (first.prediction.microseconds, spec(&first.gemm)))
}

/// The cards, and predicted times on each.
fn cards() -> Vec<Value> {
    let of = |&(name, card): &(&'static str, Card)| {
        let machine = Machine::of(&card);
        let squares = [256, 512, 1024, 2048, 4096, 8192, 16384].map(|extent: u32| {
            let problem = GemmProblem { m: extent, n: extent, k: extent };
            let bytes = 3.0 * 2.0 * f64::from(extent) * f64::from(extent);
            (extent, best(&machine, problem).0, problem.operations(), bytes)
        });
        json!({
            "name": name,
            "sms": card.multiprocessors,
            "megahertz": card.kilohertz / 1000,
            // Bytes per second.
            "memory_bandwidth": card.memory_bandwidth,
            "l2_bytes": card.l2_bytes,
            // Dense operations per second of 16-bit formats, at the highest clock.
            "peak": f64::from(card.multiprocessors) * 4096.0 * card.tensor * f64::from(card.kilohertz) * 1e3,
            // How many clusters of 1 to 8 CTAs, one per SM, are resident at once.
            "clusters": machine.clusters,
            // M = N = K, microseconds, operations and bytes of the matrices.
            "squares": squares,
        })
    };
    Card::NAMED.iter().map(of).collect()
}
