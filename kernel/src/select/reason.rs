//! A sentence that says what limits a kernel's time.

use super::step::Step;
use super::{Machine, Prediction};
use crate::gemm::AnyGemm;

/// For example `4 waves of 128x256 tiles, the last 88 % full; the tensor cores decide`.
pub(super) fn sentence(gemm: &AnyGemm, machine: &Machine, prediction: &Prediction) -> String {
    let plan = gemm.plan();
    let [m, n, _] = plan.mainloop.tile;
    let tile = match plan.mainloop.cluster {
        [1, 1] => format!("{m}x{n} tiles"),
        [across, along] => format!("{m}x{n} tiles in clusters of {across}x{along}"),
    };
    let resident = f64::from(machine.resident_clusters(&plan));
    let waves = prediction.waves;
    let filling = if waves <= 1.0 {
        format!("{:.0} {tile} for {resident:.0} slots", waves * resident)
    } else {
        let last = waves - (waves.ceil() - 1.0);
        format!("{:.0} waves of {tile}, the last {:.0} % full", waves.ceil(), 100.0 * last)
    };
    format!("{filling}; {}", bound(prediction))
}

/// The same for a kernel that a correction moved forward. `factor` is the estimated ratio of measured to
/// predicted time.
pub(super) fn corrected(
    gemm: &AnyGemm,
    machine: &Machine,
    prediction: &Prediction,
    factor: Option<&f64>,
) -> String {
    let sentence = sentence(gemm, machine, prediction);
    match factor {
        Some(factor) => format!("measured at near shapes: {factor:.2} of the model's time; {sentence}"),
        None => sentence,
    }
}

/// Names the resource that takes the most time.
fn bound(prediction: &Prediction) -> &'static str {
    let Prediction { launch, multiply, epilogue, l2, dram, step, .. } = *prediction;
    let loop_of = match step {
        Step::Multiplications => "the tensor cores decide",
        Step::SharedMemory => "shared memory, which the multiplications read, decides",
        Step::Copies => "the bytes that an SM loads decide",
        Step::Conversions => "the conversion of weights in few bits decides",
        Step::Latency => "the time until tiles arrive decides",
    };
    let bounds = [
        (launch, "launching and filling the ring decide"),
        (multiply, loop_of),
        (epilogue, "the epilogue, which nothing overlaps, decides"),
        (l2, "reads from L2 decide"),
        (dram, "memory decides"),
    ];
    bounds.into_iter().max_by(|a, b| a.0.total_cmp(&b.0)).map_or("", |(_, words)| words)
}
