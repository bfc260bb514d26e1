//! Messages between a rank and the coordinator: a header in JSON, and bytes.

use std::io::{self, Read, Write};

use serde::{Deserialize, Serialize};

/// Who a rank is, as far as others need to know.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Member {
    /// Its host.
    pub host: String,
    /// Its process.
    pub process: u32,
    /// The UUID of its GPU; `None` in the emulator.
    pub gpu: Option<String>,
    /// NCCL's version, as `major.minor.patch`; `None` in the emulator.
    pub nccl: Option<String>,
}

impl Member {
    /// This process, without a GPU.
    pub fn here() -> Self {
        Self { host: host(), process: std::process::id(), gpu: None, nccl: None }
    }
}

/// The host's name.
pub(crate) fn host() -> String {
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname").unwrap_or_default();
    if name.trim().is_empty() { "localhost".to_owned() } else { name.trim().to_owned() }
}

/// The version of this protocol.
pub(crate) const PROTOCOL: u32 = 1;

#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) enum Message {
    /// The first one of a rank.
    Hello { protocol: u32, key: String, rank: u32, size: u32, member: Member },
    /// To all, when everybody has come.
    Welcome { members: Vec<Member> },
    /// To all, if the group cannot be formed.
    Refused { reason: String },
    /// A rank's part of an exchange, as bytes.
    Part { sequence: u64, what: String },
    /// All parts of an exchange, one after the other.
    Parts { sequence: u64, lengths: Vec<u64> },
    /// The group has failed.
    Failed { reason: String },
    /// A rank leaves.
    Leave,
    /// Nothing new.
    Alive,
}

/// A header is small: whoever sends a longer one is no rank.
const HEADER: u32 = 1 << 20;
/// Bytes that follow a header.
const PAYLOAD: u64 = 1 << 34;

pub(crate) fn write(to: &mut impl Write, message: &Message, payload: &[u8]) -> io::Result<()> {
    let header = serde_json::to_vec(message).map_err(io::Error::other)?;
    let mut frame = Vec::with_capacity(12 + header.len());
    frame.extend_from_slice(&(header.len() as u32).to_le_bytes());
    frame.extend_from_slice(&(payload.len() as u64).to_le_bytes());
    frame.extend_from_slice(&header);
    to.write_all(&frame)?;
    to.write_all(payload)?;
    to.flush()
}

pub(crate) fn read(from: &mut impl Read) -> io::Result<(Message, Vec<u8>)> {
    let (mut header, mut payload) = ([0; 4], [0; 8]);
    from.read_exact(&mut header)?;
    from.read_exact(&mut payload)?;
    let (header, payload) = (u32::from_le_bytes(header), u64::from_le_bytes(payload));
    if header > HEADER || payload > PAYLOAD {
        return Err(io::Error::other("no frame of a rank"));
    }
    let mut text = vec![0; header as usize];
    from.read_exact(&mut text)?;
    let message = serde_json::from_slice(&text).map_err(io::Error::other)?;
    // Grows as bytes come: a length alone allocates nothing.
    let mut bytes = Vec::new();
    from.take(payload).read_to_end(&mut bytes)?;
    if bytes.len() as u64 != payload {
        return Err(io::ErrorKind::UnexpectedEof.into());
    }
    Ok((message, bytes))
}

#[cfg(test)]
mod tests {
    use super::{Message, read, write};

    #[test]
    fn what_is_written_is_read() {
        let messages = [
            (Message::Part { sequence: 7, what: "tokens: 5".to_owned() }, b"bytes".to_vec()),
            (Message::Leave, Vec::new()),
        ];
        let mut bytes = Vec::new();
        for (message, payload) in &messages {
            write(&mut bytes, message, payload).expect("memory");
        }
        let mut from = bytes.as_slice();
        for expected in messages {
            assert_eq!(read(&mut from).expect("a frame"), expected);
        }
        assert!(read(&mut from).is_err(), "nothing is left");
    }

    #[test]
    fn strangers_are_no_ranks() {
        for bytes in [
            &b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"[..],
            &[0xff; 64],
            &[2, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, b'{', b'}'],
        ] {
            assert!(read(&mut &bytes[..]).is_err());
        }
    }
}
