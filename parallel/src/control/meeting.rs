//! Where ranks meet: an address that all know, or one that rank 0 writes to a file.

use std::io::Write;
use std::net::{IpAddr, Ipv4Addr, TcpListener, TcpStream, ToSocketAddrs, UdpSocket};
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use super::frame::host;
use crate::error::Error;

/// How often a rank tries to reach rank 0.
const PAUSE: Duration = Duration::from_millis(30);

/// Connects to the first of some addresses that answers.
pub(super) fn connect(
    addresses: impl Fn() -> Result<Vec<String>, Error>,
    began: Instant,
    within: Duration,
) -> Result<TcpStream, Error> {
    let mut last = None;
    loop {
        let found = addresses();
        for address in found.as_deref().unwrap_or_default() {
            let resolved = address.to_socket_addrs().map(Iterator::collect::<Vec<_>>);
            match resolved {
                Ok(resolved) => {
                    for socket in resolved {
                        match TcpStream::connect_timeout(&socket, Duration::from_secs(2)) {
                            Ok(stream) => {
                                let _ = stream.set_nodelay(true);
                                return Ok(stream);
                            }
                            Err(error) => last = Some(format!("{address}: {error}")),
                        }
                    }
                }
                Err(error) => last = Some(format!("{address}: {error}")),
            }
        }
        if began.elapsed() > within {
            let reason = last.or_else(|| found.err().map(|error| error.to_string())).unwrap_or_default();
            return Err(Error::Meeting(format!(
                "rank 0 was not reached within {} s: {reason}",
                within.as_secs_f64()
            )));
        }
        thread::sleep(PAUSE);
    }
}

/// Listens at a port; 0 is any.
pub(crate) fn listen(port: u16) -> Result<TcpListener, Error> {
    let every = IpAddr::V4(Ipv4Addr::UNSPECIFIED);
    TcpListener::bind((every, port)).map_err(|error| {
        Error::Meeting(format!("rank 0 cannot listen at port {port}: {error}; FALCHION_MEETING=tcp://HOST:PORT chooses another one"))
    })
}

/// Addresses of this host at which others may reach a port.
fn own_addresses(port: u16) -> Vec<String> {
    // Which address the host has to the outside: no packet is sent.
    let outside = UdpSocket::bind(("0.0.0.0", 0)).and_then(|socket| {
        socket.connect(("192.0.2.1", 9))?;
        socket.local_addr()
    });
    let outside = outside.map(|address| address.ip().to_string()).ok();
    [outside, Some(host()), Some("127.0.0.1".to_owned())]
        .into_iter()
        .flatten()
        .map(|host| format!("{host}:{port}"))
        .collect()
}

/// Writes rank 0's addresses to a file, which appears whole or not at all.
pub(crate) fn publish(path: &Path, port: u16) -> Result<(), Error> {
    let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let write = || {
        let mut file = tempfile::NamedTempFile::new_in(folder)?;
        for address in own_addresses(port) {
            writeln!(file, "{address}")?;
        }
        file.as_file().sync_all()?;
        file.persist(path).map_err(|error| error.error)
    };
    write()
        .map(|_| ())
        .map_err(|error| Error::system(format!("rank 0 cannot write {}", path.display()), &error))
}

/// The addresses in a file.
pub(crate) fn published(path: &Path) -> Result<Vec<String>, Error> {
    let text = std::fs::read_to_string(path);
    let text =
        text.map_err(|error| Error::system(format!("the meeting's file {}", path.display()), &error))?;
    Ok(text.lines().map(str::trim).filter(|line| !line.is_empty()).map(str::to_owned).collect())
}
