//! How long layers take on more GPUs than are there: a model, with what it assumes.

use falchion::collective::Format;
use falchion::cute_rs::atom::Major;
use falchion::kernel::{GemmProblem, Machine, Request, Types, fastest};

use crate::bench::LayerShape;
use crate::error::Error;

/// What connects GPUs.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Links {
    /// GPUs of a host.
    pub per_host: u32,
    /// Bytes per second that a GPU receives from the other one of two of its host, in a collective. Measured: two
    /// H100s receive 134 MB each in 564 us.
    pub inside: f64,
    /// The same among more GPUs of a host. Measured: four H100s receive 201 MB each in 670 us. Assumed of eight.
    pub among: f64,
    /// Seconds that a collective inside a host takes at least. Measured: 27 us, two H100s.
    pub inside_latency: f64,
    /// Bytes per second that a GPU receives from other hosts. Assumed: a network card of 400 Gb/s per GPU, of
    /// which collectives reach 0.9.
    pub between: f64,
    /// Seconds that are added per host. Assumed: 12 us.
    pub between_latency: f64,
}

impl Default for Links {
    fn default() -> Self {
        Self {
            per_host: 8,
            inside: 250e9,
            among: 310e9,
            inside_latency: 27e-6,
            between: 45e9,
            between_latency: 12e-6,
        }
    }
}

impl Links {
    /// Seconds for a collective that brings each of `ranks` ranks the parts of all others, of `bytes` bytes in
    /// all: an all-gather, or a reduce-scatter. An all-reduce is both.
    pub fn seconds(&self, ranks: u32, bytes: f64) -> f64 {
        if ranks < 2 {
            return 0.0;
        }
        let (ranks, hosts) = (f64::from(ranks), f64::from(ranks.div_ceil(self.per_host)));
        let inside = ranks.min(f64::from(self.per_host));
        let rate = if inside > 2.0 { self.among } else { self.inside };
        let others = bytes * (ranks - 1.0) / ranks;
        // As many rings as a host has network cards: a rank receives what all of them bring.
        let slowest = if hosts > 1.0 { rate.min(self.between * inside) } else { rate };
        self.inside_latency + self.between_latency * (hosts - 1.0) + others / slowest
    }
}

/// Seconds of the product of a rank, in bf16 or in e4m3 with block scales, and of its collective. They follow each other.
///
/// # Errors
/// No kernel; extents or tokens that do not divide by the number of ranks.
pub fn layer(
    machine: &Machine,
    links: &Links,
    LayerShape { column, n, k, .. }: LayerShape,
    (ranks, tokens): (u32, u32),
    scaled: bool,
) -> Result<[f64; 2], Error> {
    let [n, k] = match column {
        true => [crate::layer::divided("outputs", n, ranks)?, k],
        false => [n, crate::layer::divided("inputs", k, ranks)?],
    };
    let types = if scaled { Types::of(Format::E4m3).scaled([1, 128]) } else { Types::of(Format::Bf16) };
    let request = Request::packed(types, [Major::K; 2], GemmProblem { m: tokens, n, k });
    let ranked = fastest(&request, machine).map_err(|refused| {
        Error::Kernel(refused.map_or_else(|| "no kernel fits".to_owned(), |error| error.to_string()))
    })?;
    // Numbers in e4m3 travel with a scale per 128.
    let bytes = if scaled && column { 1.0 + 4.0 / 128.0 } else { 2.0 };
    let moved = f64::from(tokens) * f64::from(if column { k } else { n }) * bytes;
    Ok([ranked.prediction.microseconds * 1e-6, links.seconds(ranks, moved)])
}

#[cfg(test)]
mod tests {
    use falchion::kernel::Machine;

    use super::{Links, layer};
    use crate::bench::LAYERS;

    /// What was measured on two and on four H100s: tokens of all ranks, numbers of a token, and seconds.
    #[test]
    fn the_model_agrees_with_what_was_measured() {
        let links = Links::default();
        let measured = [
            (2, 16384, 8192, 564e-6),
            (2, 512, 8192, 44e-6),
            (4, 16384, 8192, 671e-6),
            (4, 16384, 7168, 604e-6),
            (4, 16384, 4096, 358e-6),
            (4, 2048, 8192, 112e-6),
            (4, 2048, 7168, 101e-6),
        ];
        for (ranks, tokens, width, seconds) in measured {
            let predicted = links.seconds(ranks, 2.0 * f64::from(tokens * width));
            assert!((predicted / seconds - 1.0).abs() < 0.1, "{predicted} for {seconds}");
        }
    }

    #[test]
    fn more_ranks_compute_less_and_move_more() {
        let links = Links::default();
        let of = |ranks| layer(&Machine::h200(), &links, LAYERS[0], (ranks, 8192), false).expect("divides");
        let all = [2, 4, 8, 16].map(of);
        for pair in all.windows(2) {
            assert!(pair[1][0] < pair[0][0], "{pair:?}");
            assert!(pair[1][1] > pair[0][1], "{pair:?}");
        }
        let slow = Links { between: 5e9, ..links };
        let two_hosts = |links: &Links| links.seconds(16, 1e9);
        assert!(two_hosts(&slow) > 3.0 * two_hosts(&links), "between hosts the network counts");
    }
}
