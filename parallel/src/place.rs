//! Which rank a process is, as its launcher says: torchrun, Slurm, or MPI.

use std::path::PathBuf;

use crate::error::Error;

/// A process's place in its group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Place {
    /// The rank, from 0.
    pub rank: u32,
    /// Number of ranks.
    pub size: u32,
    /// The rank among those of its host: which GPU it takes.
    pub local_rank: u32,
    /// Where the ranks meet.
    pub meeting: Meeting,
    /// What tells this group from others that meet at the same place.
    pub key: String,
}

/// Where ranks meet.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Meeting {
    /// Rank 0 listens at this port of this host.
    Tcp {
        /// The host of rank 0.
        host: String,
        /// Its port.
        port: u16,
    },
    /// Rank 0 writes to this file where it listens. All ranks see the file.
    File(PathBuf),
}

/// A launcher: the variables that it sets.
struct Launcher {
    name: &'static str,
    rank: &'static str,
    size: &'static [&'static str],
    local: &'static str,
}

const LAUNCHERS: [Launcher; 5] = [
    Launcher { name: "torchrun", rank: "RANK", size: &["WORLD_SIZE"], local: "LOCAL_RANK" },
    Launcher {
        name: "Open MPI",
        rank: "OMPI_COMM_WORLD_RANK",
        size: &["OMPI_COMM_WORLD_SIZE"],
        local: "OMPI_COMM_WORLD_LOCAL_RANK",
    },
    Launcher {
        name: "MVAPICH",
        rank: "MV2_COMM_WORLD_RANK",
        size: &["MV2_COMM_WORLD_SIZE"],
        local: "MV2_COMM_WORLD_LOCAL_RANK",
    },
    Launcher {
        name: "Slurm",
        rank: "SLURM_PROCID",
        size: &["SLURM_STEP_NUM_TASKS", "SLURM_NTASKS"],
        local: "SLURM_LOCALID",
    },
    Launcher { name: "MPICH", rank: "PMI_RANK", size: &["PMI_SIZE"], local: "MPI_LOCALRANKID" },
];

/// The variable that says where ranks meet, whatever the launcher says.
const MEETING: &str = "FALCHION_MEETING";

impl Place {
    /// The place that the environment describes. `FALCHION_MEETING` (`tcp://HOST:PORT` or `file:PATH`) chooses
    /// another place to meet than the launcher's.
    ///
    /// # Errors
    /// A variable that is missing, is no number, or contradicts another one.
    pub fn from_environment() -> Result<Self, Error> {
        Self::from_variables(|name| std::env::var(name).ok())
    }

    /// The same for any variables.
    ///
    /// # Errors
    /// As [`from_environment`](Self::from_environment).
    pub fn from_variables(variable: impl Fn(&str) -> Option<String>) -> Result<Self, Error> {
        let of = Variables(&variable);
        let Some(launcher) = LAUNCHERS.iter().find(|launcher| of.get(launcher.rank).is_some()) else {
            let known: Vec<_> =
                LAUNCHERS.iter().map(|launcher| format!("{} ({})", launcher.rank, launcher.name)).collect();
            let needed = format!("it or one of {}", known[1..].join(", "));
            return Err(of.wrong("RANK", &needed));
        };
        let rank: u32 = of.number(launcher.rank)?;
        let size_name = launcher.size.iter().find(|name| of.get(name).is_some()).unwrap_or(&launcher.size[0]);
        let size = of.number(size_name)?;
        if size == 0 {
            return Err(of.wrong(size_name, "at least 1"));
        }
        if rank >= size {
            return Err(of.wrong(launcher.rank, &format!("less than {size}, as {size_name} says")));
        }
        if of.get("PMIX_RANK").is_some_and(|pmix| pmix != rank.to_string()) {
            return Err(of.wrong("PMIX_RANK", &format!("{rank}, as {} says", launcher.rank)));
        }
        let local_rank = match of.get(launcher.local) {
            Some(_) => of.number(launcher.local)?,
            None if size == 1 => 0,
            None => return Err(of.wrong(launcher.local, "the rank among those of its host")),
        };
        if local_rank > rank {
            return Err(of.wrong(launcher.local, &format!("at most {rank}, the rank")));
        }
        let job = ["TORCHELASTIC_RUN_ID", "PMIX_NAMESPACE", "SLURM_JOB_ID"]
            .into_iter()
            .find_map(|name| of.get(name));
        let step = of.get("SLURM_STEP_ID").map_or(String::new(), |step| format!(".{step}"));
        let key = job.map_or("no job".to_owned(), |job| format!("{job}{step}"));
        let meeting = match of.get(MEETING) {
            Some(text) => text.parse().map_err(|needed: &str| of.wrong(MEETING, needed))?,
            None => of.meeting(launcher, size, &key)?,
        };
        Ok(Self { rank, size, local_rank, meeting, key })
    }
}

impl core::str::FromStr for Meeting {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        const NEEDED: &str = "tcp://HOST:PORT or file:PATH";
        if let Some(path) = text.strip_prefix("file:").filter(|path| !path.is_empty()) {
            return Ok(Self::File(path.into()));
        }
        let (host, port) =
            text.strip_prefix("tcp://").and_then(|rest| rest.rsplit_once(':')).ok_or(NEEDED)?;
        let port = port.parse().ok().filter(|&port| port != 0).ok_or(NEEDED)?;
        if host.is_empty() { Err(NEEDED) } else { Ok(Self::Tcp { host: host.to_owned(), port }) }
    }
}

struct Variables<'a>(&'a dyn Fn(&str) -> Option<String>);

impl Variables<'_> {
    fn get(&self, name: &str) -> Option<String> {
        (self.0)(name).filter(|value| !value.is_empty())
    }

    fn wrong(&self, name: &str, needed: &str) -> Error {
        Error::Environment { name: name.to_owned(), found: self.get(name), needed: needed.to_owned() }
    }

    fn number<T: core::str::FromStr>(&self, name: &str) -> Result<T, Error> {
        let value = self.get(name).and_then(|value| value.parse().ok());
        value.ok_or_else(|| self.wrong(name, "a number"))
    }

    /// Where the ranks of a launcher meet.
    fn meeting(&self, launcher: &Launcher, size: u32, key: &str) -> Result<Meeting, Error> {
        if self.get("MASTER_ADDR").is_some() || launcher.name == "torchrun" {
            let host =
                self.get("MASTER_ADDR").ok_or_else(|| self.wrong("MASTER_ADDR", "the host of rank 0"))?;
            let port: u16 = self.number("MASTER_PORT")?;
            // The launcher itself may listen at its port.
            let taken = self
                .get("TORCHELASTIC_USE_AGENT_STORE")
                .is_some_and(|value| value.eq_ignore_ascii_case("true"));
            let port = port.checked_add(taken.into()).filter(|&port| port != 0);
            return Ok(Meeting::Tcp {
                host,
                port: port.ok_or_else(|| self.wrong("MASTER_PORT", "1 to 65534"))?,
            });
        }
        if launcher.name == "Slurm" {
            let name = ["SLURM_STEP_NODELIST", "SLURM_JOB_NODELIST"]
                .into_iter()
                .find(|name| self.get(name).is_some());
            let name = name.ok_or_else(|| self.wrong("SLURM_STEP_NODELIST", "the hosts of the step"))?;
            let list = self.get(name).unwrap_or_default();
            let host = first_host(&list).ok_or_else(|| self.wrong(name, "a list of hosts"))?;
            return Ok(Meeting::Tcp { host, port: port_of(key) });
        }
        let on_one_host = ["OMPI_COMM_WORLD_LOCAL_SIZE", "MV2_COMM_WORLD_LOCAL_SIZE", "MPI_LOCALNRANKS"];
        let on_one_host =
            on_one_host.into_iter().filter_map(|name| self.get(name)).any(|local| local == size.to_string());
        if size == 1 || (on_one_host && key != "no job") {
            return Ok(Meeting::Tcp { host: "127.0.0.1".to_owned(), port: port_of(key) });
        }
        let needed = "tcp://HOST:PORT, or file:PATH on a disk that all hosts share";
        Err(self.wrong(MEETING, &format!("{needed} ({} does not say where rank 0 is)", launcher.name)))
    }
}

/// A port for a job: the same on every rank, and another one for another job.
fn port_of(key: &str) -> u16 {
    // FNV-1a.
    let hash =
        key.bytes().fold(0x811c_9dc5u32, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193));
    20_000 + u16::try_from(hash % 20_000).unwrap_or(0)
}

/// The first host of a list such as `gpu[03-05,9],login`.
fn first_host(list: &str) -> Option<String> {
    let end = list.find(['[', ',']).unwrap_or(list.len());
    let (name, rest) = list.split_at(end);
    let host = match rest.strip_prefix('[') {
        None => name.to_owned(),
        Some(inside) => {
            let (numbers, after) = inside.split_once(']')?;
            let first = numbers.split([',', '-']).next().filter(|first| !first.is_empty())?;
            let after = after.split(',').next().unwrap_or_default();
            format!("{name}{first}{after}")
        }
    };
    (!host.is_empty()).then_some(host)
}

#[cfg(test)]
mod tests {
    use super::{Meeting, Place, first_host};

    fn place(variables: &[(&str, &str)]) -> Result<Place, String> {
        let get = |name: &str| {
            variables.iter().find(|(known, _)| *known == name).map(|(_, value)| (*value).to_owned())
        };
        Place::from_variables(get).map_err(|error| error.to_string())
    }

    #[test]
    fn launchers_say_where_a_process_is() {
        let torchrun = [
            ("RANK", "3"),
            ("WORLD_SIZE", "4"),
            ("LOCAL_RANK", "1"),
            ("MASTER_ADDR", "10.0.0.1"),
            ("MASTER_PORT", "29500"),
        ];
        let found = place(&torchrun).expect("a place");
        assert_eq!((found.rank, found.size, found.local_rank), (3, 4, 1));
        assert_eq!(found.meeting, Meeting::Tcp { host: "10.0.0.1".to_owned(), port: 29500 });
        let agent =
            [&torchrun[..], &[("TORCHELASTIC_USE_AGENT_STORE", "True"), ("TORCHELASTIC_RUN_ID", "a")]]
                .concat();
        let found = place(&agent).expect("a place");
        assert_eq!(found.meeting, Meeting::Tcp { host: "10.0.0.1".to_owned(), port: 29501 });
        assert_eq!(found.key, "a");

        let slurm = [
            ("SLURM_PROCID", "9"),
            ("SLURM_NTASKS", "16"),
            ("SLURM_LOCALID", "1"),
            ("SLURM_JOB_ID", "77"),
            ("SLURM_STEP_ID", "0"),
            ("SLURM_JOB_NODELIST", "gpu[03-04]"),
            ("PMIX_RANK", "9"),
        ];
        let found = place(&slurm).expect("a place");
        assert_eq!((found.rank, found.size, found.local_rank, found.key.as_str()), (9, 16, 1, "77.0"));
        assert!(matches!(found.meeting, Meeting::Tcp { host, .. } if host == "gpu03"));

        let mpi = [
            ("OMPI_COMM_WORLD_RANK", "1"),
            ("OMPI_COMM_WORLD_SIZE", "2"),
            ("OMPI_COMM_WORLD_LOCAL_RANK", "1"),
            ("FALCHION_MEETING", "file:/shared/meet"),
        ];
        assert_eq!(place(&mpi).expect("a place").meeting, Meeting::File("/shared/meet".into()));
    }

    #[test]
    fn what_is_wrong_is_named() {
        let base = [
            ("RANK", "0"),
            ("WORLD_SIZE", "2"),
            ("LOCAL_RANK", "0"),
            ("MASTER_ADDR", "h"),
            ("MASTER_PORT", "1"),
        ];
        for (name, value, words) in [
            ("RANK", "x", "RANK is `x`, a number was needed"),
            ("RANK", "2", "RANK is `2`, less than 2, as WORLD_SIZE says was needed"),
            ("WORLD_SIZE", "", "WORLD_SIZE is not set"),
            ("WORLD_SIZE", "0", "WORLD_SIZE is `0`, at least 1"),
            ("LOCAL_RANK", "", "LOCAL_RANK is not set"),
            ("LOCAL_RANK", "5", "LOCAL_RANK is `5`, at most 0"),
            ("MASTER_ADDR", "", "MASTER_ADDR is not set"),
            ("MASTER_PORT", "70000", "MASTER_PORT is `70000`"),
            ("PMIX_RANK", "1", "PMIX_RANK is `1`, 0, as RANK says"),
            (
                "FALCHION_MEETING",
                "udp://a:1",
                "FALCHION_MEETING is `udp://a:1`, tcp://HOST:PORT or file:PATH",
            ),
            ("FALCHION_MEETING", "tcp://a:0", "tcp://HOST:PORT"),
            ("FALCHION_MEETING", "tcp://:1", "tcp://HOST:PORT"),
        ] {
            let mut changed: Vec<_> = base.into_iter().filter(|(known, _)| *known != name).collect();
            changed.push((name, value));
            let error = place(&changed).expect_err(name);
            assert!(error.contains(words), "{name}={value}: {error}");
        }
        assert!(place(&[]).expect_err("nothing").contains("SLURM_PROCID (Slurm)"));
        let mpi = [("PMI_RANK", "1"), ("PMI_SIZE", "2"), ("MPI_LOCALRANKID", "0")];
        assert!(place(&mpi).expect_err("no meeting").contains("FALCHION_MEETING is not set"));
    }

    #[test]
    fn the_first_host_of_a_list() {
        for (list, host) in [
            ("gpu1", Some("gpu1")),
            ("gpu1,gpu2", Some("gpu1")),
            ("gpu[03-05,9],login", Some("gpu03")),
            ("r[7,9]-ib", Some("r7-ib")),
            ("", None),
            ("a[", None),
            ("a[]", None),
        ] {
            assert_eq!(first_host(list).as_deref(), host, "{list}");
        }
    }
}
