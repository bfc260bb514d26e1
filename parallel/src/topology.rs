//! What connects the ranks: GPUs, links, hosts, and what each pair of them reaches.

use core::fmt;
use std::ffi::OsStr;
use std::time::Instant;

use nvml_wrapper::Nvml;
use serde::{Deserialize, Serialize};

use crate::error::Error;
use crate::group::Group;

/// Bytes per second of an NVLink of a Hopper GPU, in each direction.
const NVLINK: f64 = 25e9;

/// Numbers that a pair exchanges when it is measured.
const NUMBERS: usize = 16 << 20;

/// A rank's place in the machine.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct RankLocation {
    /// Its host.
    pub host: String,
    /// Its GPU and driver, or the emulator, in words.
    pub machine: String,
    /// The GPU's address on the host's bus; `None` if NVML does not say it.
    pub bus: Option<String>,
    /// Number of active NVLinks; `None` if NVML does not say it.
    pub links: Option<u32>,
}

/// All ranks, and what connects them.
#[derive(Clone, Debug, PartialEq)]
pub struct Topology {
    /// By rank.
    pub locations: Vec<RankLocation>,
    /// Bytes per second from each rank to each other one, both directions at once; zero to itself.
    pub rates: Vec<Vec<f64>>,
}

impl Topology {
    /// Asks NVML, and measures each pair of ranks. All ranks do.
    ///
    /// # Errors
    /// The group has failed.
    pub fn of(group: &mut Group) -> Result<Self, Error> {
        let own = RankLocation::of(group);
        let bytes = serde_json::to_vec(&own).unwrap_or_default();
        let all = group.exchange("the ranks' locations", &bytes)?;
        let locations: Vec<RankLocation> =
            all.iter().map(|bytes| serde_json::from_slice(bytes).unwrap_or_default()).collect();
        let size = locations.len();
        let numbers = if group.members()[0].gpu.is_some() { NUMBERS } else { 1 << 10 };
        let from = group.zeros::<f32>(numbers)?;
        let mut to = group.zeros::<f32>(numbers)?;
        let mut rates = vec![vec![0.0; size]; size];
        let pairs = (0..size).flat_map(|first| (first + 1..size).map(move |second| (first, second)));
        for (first, second) in pairs {
            let rank = group.rank() as usize;
            let mut counts = vec![0; size];
            if let Some(peer) = [(first, second), (second, first)].iter().find(|(own, _)| *own == rank) {
                counts[peer.1] = numbers;
            }
            let some = if counts.iter().all(|&count| count == 0) { 0 } else { numbers };
            let mut seconds = f64::INFINITY;
            for _ in 0..4 {
                group.wait()?;
                group.barrier()?;
                let began = Instant::now();
                group.all_to_all(
                    (from.view().part(..some)?, &counts),
                    (to.view_mut().part(..some)?, &counts),
                )?;
                group.wait()?;
                seconds = seconds.min(began.elapsed().as_secs_f64());
            }
            let all = group.exchange("a pair's time", &seconds.to_le_bytes())?;
            let time = |rank: usize| f64::from_le_bytes(all[rank][..].try_into().unwrap_or_default());
            let rate = 4.0 * numbers as f64 / time(first).max(time(second));
            (rates[first][second], rates[second][first]) = (rate, rate);
        }
        Ok(Self { locations, rates })
    }

    /// What connects two ranks; `None` if there is no such rank.
    pub fn interconnect(&self, first: usize, second: usize) -> Option<Interconnect> {
        let (a, b) = (self.locations.get(first)?, self.locations.get(second)?);
        Some(match (a.host == b.host, a.links, b.links) {
            (false, ..) => Interconnect::Network,
            (true, Some(a), Some(b)) if a > 0 && b > 0 => Interconnect::NvLink(a.min(b)),
            (true, ..) => Interconnect::Host,
        })
    }
}

/// What connects two ranks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Interconnect {
    /// This number of NVLinks each.
    NvLink(u32),
    /// PCIe, or the host's memory.
    Host,
    /// The network between hosts.
    Network,
}

impl fmt::Display for Interconnect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NvLink(links) => write!(f, "NV{links}"),
            Self::Host => f.write_str("host"),
            Self::Network => f.write_str("net"),
        }
    }
}

impl RankLocation {
    fn of(group: &Group) -> Self {
        let member = &group.members()[group.rank() as usize];
        let location = Self { host: member.host.clone(), machine: group.describe(), bus: None, links: None };
        let Some(gpu) = &member.gpu else { return location };
        // As NVML writes it.
        let [a, b, c, d, e] = [&gpu[..8], &gpu[8..12], &gpu[12..16], &gpu[16..20], &gpu[20..]];
        let uuid = format!("GPU-{a}-{b}-{c}-{d}-{e}");
        let nvml = Nvml::builder().lib_path(OsStr::new("libnvidia-ml.so.1")).init();
        let Ok(nvml) = nvml.or_else(|_| Nvml::init()) else { return location };
        let Ok(device) = nvml.device_by_uuid(uuid) else { return location };
        let active =
            (0..18).filter(|&link| device.link_wrapper_for(link).is_active().unwrap_or(false)).count();
        let known = device.link_wrapper_for(0).is_active().is_ok();
        let links = known.then_some(active as u32);
        Self { bus: device.pci_info().ok().map(|info| info.bus_id), links, ..location }
    }
}

impl fmt::Display for Topology {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut host = "";
        for (rank, location) in self.locations.iter().enumerate() {
            if location.host != host {
                host = &location.host;
                writeln!(f, "+-- {host}")?;
            }
            let bus = location.bus.as_deref().map_or(String::new(), |bus| format!(", {bus}"));
            let links = location.links.map_or(String::new(), |links| {
                format!(", {links} NVLinks ({:.0} GB/s each way)", f64::from(links) * NVLINK / 1e9)
            });
            writeln!(f, "|   rank {rank}: {}{bus}{links}", location.machine)?;
        }
        writeln!(f, "\nGB/s each way, while both send:\n")?;
        write!(f, "        ")?;
        (0..self.locations.len()).try_for_each(|rank| write!(f, "{:>12}", format!("rank {rank}")))?;
        for (first, rates) in self.rates.iter().enumerate() {
            write!(f, "\nrank {first:<3}")?;
            for (second, rate) in rates.iter().enumerate() {
                let cell = match self.interconnect(first, second) {
                    Some(interconnect) if first != second => format!("{interconnect} {}", rate_text(*rate)),
                    _ => "-".to_owned(),
                };
                write!(f, "{cell:>12}")?;
            }
        }
        writeln!(f)
    }
}

/// GB/s with as many digits as say something.
fn rate_text(rate: f64) -> String {
    let digits = (1.0 - (rate / 1e9).log10()).clamp(1.0, 4.0) as usize;
    format!("{:.digits$}", rate / 1e9)
}

#[cfg(test)]
mod tests {
    use super::{Interconnect, RankLocation, Topology};

    #[test]
    fn interconnects_follow_hosts_and_links() {
        let location = |host: &str, links| RankLocation {
            host: host.to_owned(),
            machine: "m".to_owned(),
            bus: None,
            links,
        };
        let locations = vec![
            location("a", Some(18)),
            location("a", Some(18)),
            location("a", None),
            location("b", Some(18)),
        ];
        let topology = Topology { locations, rates: vec![vec![200e9; 4]; 4] };
        assert_eq!(topology.interconnect(0, 1), Some(Interconnect::NvLink(18)));
        assert_eq!(topology.interconnect(0, 2), Some(Interconnect::Host));
        assert_eq!(topology.interconnect(0, 3), Some(Interconnect::Network));
        let text = topology.to_string();
        for words in
            ["+-- a", "+-- b", "18 NVLinks (450 GB/s each way)", "NV18 200.0", "host 200.0", "net 200.0"]
        {
            assert!(text.contains(words), "{text}");
        }
    }

    #[test]
    fn emulated_ranks_have_a_topology_too() {
        let ranks: Vec<_> = crate::Group::emulated(3)
            .expect("a group")
            .into_iter()
            .map(|mut group| std::thread::spawn(move || Topology::of(&mut group)))
            .collect();
        for topology in ranks {
            let topology = topology.join().expect("no panic").expect("all came");
            assert_eq!(topology.interconnect(0, 2), Some(Interconnect::Host));
            assert!(topology.rates[1][2] > 0.0 && topology.rates[1][1] == 0.0);
        }
    }
}
