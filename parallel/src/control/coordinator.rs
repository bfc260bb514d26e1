//! The coordinator: a thread of rank 0's process that all ranks are connected to, rank 0 too.
//!
//! It lets ranks in, hands out what they exchange, and tells everybody when one of them is lost.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::net::{TcpListener, TcpStream};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::thread;
use std::time::{Duration, Instant};

use super::Limits;
use super::frame::{self, Member, Message, PROTOCOL};
use crate::error::{Error, list};

/// How often the coordinator looks at its clocks, and says that it is alive.
const TICK: Duration = Duration::from_millis(50);

/// What the threads that read connections tell.
enum Event {
    Came(u64, TcpStream),
    Said(u64, Message, Vec<u8>),
    Closed(u64),
}

/// A rank that was let in.
struct Rank {
    connection: u64,
    stream: TcpStream,
    member: Member,
    heard: Instant,
    left: bool,
}

/// An exchange that not all ranks have come to.
struct Pending {
    sequence: u64,
    since: Instant,
    parts: BTreeMap<u32, (String, Vec<u8>)>,
}

struct Coordinator {
    size: u32,
    key: String,
    limits: Limits,
    strangers: BTreeMap<u64, TcpStream>,
    ranks: BTreeMap<u32, Rank>,
    pending: Option<Pending>,
    formed: bool,
    ended: Option<String>,
    /// Ranks that were told that there is no group.
    told: BTreeSet<u32>,
}

/// Serves a group of `size` ranks until all have left, or the group has failed and all are gone.
pub(crate) fn serve(
    listener: TcpListener,
    size: u32,
    key: String,
    limits: Limits,
) -> io::Result<thread::JoinHandle<()>> {
    listener.set_nonblocking(true)?;
    thread::Builder::new().name("falchion-coordinator".to_owned()).spawn(move || {
        let (events, heard) = channel();
        let coordinator = Coordinator {
            size,
            key,
            limits,
            strangers: BTreeMap::new(),
            ranks: BTreeMap::new(),
            pending: None,
            formed: false,
            ended: None,
            told: BTreeSet::new(),
        };
        coordinator.run(&listener, &events, &heard);
    })
}

/// Reads a connection until it closes.
fn listen(connection: u64, stream: TcpStream, events: &Sender<Event>) -> io::Result<()> {
    let (mut from, events) = (stream.try_clone()?, events.clone());
    from.set_nonblocking(false)?;
    // Before anything that is read from it.
    let _ = events.send(Event::Came(connection, stream));
    thread::Builder::new().name("falchion-connection".to_owned()).spawn(move || {
        while let Ok((message, bytes)) = frame::read(&mut from) {
            if events.send(Event::Said(connection, message, bytes)).is_err() {
                return;
            }
        }
        let _ = events.send(Event::Closed(connection));
    })?;
    Ok(())
}

impl Coordinator {
    fn run(mut self, listener: &TcpListener, events: &Sender<Event>, heard: &Receiver<Event>) {
        let (began, mut connections, mut said) = (Instant::now(), 0, Instant::now());
        loop {
            while let Ok((stream, _)) = listener.accept() {
                connections += 1;
                let _ = stream.set_nodelay(true);
                let _ = listen(connections, stream, events);
            }
            match heard.recv_timeout(if self.formed { TICK } else { TICK / 10 }) {
                Ok(event) => self.event(event),
                Err(RecvTimeoutError::Timeout) => {}
                Err(RecvTimeoutError::Disconnected) => return,
            }
            self.look(began);
            if said.elapsed() > self.limits.silence / 4 {
                said = Instant::now();
                self.tell(&Message::Alive);
            }
            if self.formed && self.ranks.values().all(|rank| rank.left) {
                return;
            }
            // Who comes late to a group that was refused is told so, too.
            let all_told =
                self.formed || self.told.len() as u32 == self.size || began.elapsed() > self.limits.meeting;
            if self.ended.is_some() && self.ranks.is_empty() && all_told {
                return;
            }
        }
    }

    fn event(&mut self, event: Event) {
        match event {
            Event::Came(connection, stream) => {
                self.strangers.insert(connection, stream);
            }
            Event::Said(connection, Message::Hello { protocol, key, rank, size, member }, _) => {
                if let Some(stream) = self.strangers.remove(&connection) {
                    self.hello((connection, stream), protocol, &key, (rank, size), member);
                }
            }
            Event::Said(connection, message, bytes) => {
                let Some(rank) = self.rank_of(connection) else { return };
                if let Some(known) = self.ranks.get_mut(&rank) {
                    known.heard = Instant::now();
                }
                match message {
                    Message::Part { sequence, what } => self.part(rank, sequence, what, bytes),
                    Message::Failed { reason } => self.fail(&reason),
                    Message::Leave => self.leave(rank),
                    _ => {}
                }
            }
            Event::Closed(connection) => {
                self.strangers.remove(&connection);
                let Some(rank) = self.rank_of(connection) else { return };
                let left = self.ranks.get(&rank).is_some_and(|known| known.left);
                if self.ended.is_some() || !left {
                    let member = self.ranks.remove(&rank).map(|rank| rank.member).unwrap_or_default();
                    let Member { host, process, .. } = member;
                    if !left {
                        self.fail(&format!("rank {rank} ended (process {process} on {host})"));
                    }
                }
            }
        }
    }

    fn rank_of(&self, connection: u64) -> Option<u32> {
        self.ranks.iter().find(|(_, rank)| rank.connection == connection).map(|(&rank, _)| rank)
    }

    fn hello(
        &mut self,
        (connection, stream): (u64, TcpStream),
        protocol: u32,
        key: &str,
        (rank, size): (u32, u32),
        member: Member,
    ) {
        if key != self.key {
            // It is of another job: this one goes on.
            let reason = format!("rank {rank} belongs to job `{key}`, this one is `{}`", self.key);
            let _ = frame::write(&mut &stream, &Message::Refused { reason }, &[]);
            return;
        }
        let reason = self.refusal(protocol, (rank, size), &member);
        if self.ended.is_none() && (reason.is_none() || !self.formed) {
            let (heard, left) = (Instant::now(), false);
            // A second rank of a number is told, too.
            let number = if self.ranks.contains_key(&rank) { self.size + rank } else { rank };
            self.ranks.insert(number, Rank { connection, stream, member, heard, left });
        } else if let Some(reason) = reason {
            let _ = frame::write(&mut &stream, &Message::Refused { reason }, &[]);
            self.told.insert(rank);
            return;
        }
        match reason {
            Some(reason) => self.fail(&reason),
            None if self.ranks.len() as u32 == self.size => {
                self.formed = true;
                let members = self.ranks.values().map(|rank| rank.member.clone()).collect();
                self.tell(&Message::Welcome { members });
            }
            None => {}
        }
    }

    /// Why a rank may not come in.
    fn refusal(&self, protocol: u32, (rank, size): (u32, u32), member: &Member) -> Option<String> {
        if let Some(reason) = &self.ended {
            return Some(reason.clone());
        }
        if protocol != PROTOCOL {
            return Some(format!(
                "rank {rank} speaks protocol {protocol}, {PROTOCOL} was needed: all ranks need one version of this library"
            ));
        }
        if size != self.size {
            return Some(format!("rank {rank} counts {size} ranks, rank 0 counts {}", self.size));
        }
        if rank >= size {
            return Some(format!("a rank is {rank}, less than {size} was needed"));
        }
        let place = |member: &Member| format!("process {} on {}", member.process, member.host);
        if let Some(known) = self.ranks.get(&rank) {
            return Some(format!("rank {rank} came twice: {} and {}", place(&known.member), place(member)));
        }
        for (other, known) in &self.ranks {
            let [first, second] = [(*other, &known.member), (rank, member)];
            if first.1.gpu.is_some() && first.1.gpu == second.1.gpu {
                let gpu = first.1.gpu.as_deref().unwrap_or_default();
                return Some(format!(
                    "ranks {} and {} both take GPU {gpu} of {}: each rank needs its own",
                    first.0, second.0, member.host
                ));
            }
            if first.1.gpu.is_some() != second.1.gpu.is_some() {
                return Some(format!(
                    "of ranks {} and {} only one has a GPU: all or none were needed",
                    first.0, second.0
                ));
            }
            if first.1.nccl != second.1.nccl {
                let version = |member: &Member| member.nccl.clone().unwrap_or_default();
                return Some(format!(
                    "rank {} has NCCL {}, rank {} has {}: the same was needed",
                    first.0,
                    version(first.1),
                    second.0,
                    version(second.1)
                ));
            }
        }
        None
    }

    fn part(&mut self, rank: u32, sequence: u64, what: String, bytes: Vec<u8>) {
        let since = Instant::now();
        let pending = self.pending.get_or_insert_with(|| Pending { sequence, since, parts: BTreeMap::new() });
        if pending.sequence != sequence {
            let reason =
                format!("rank {rank} came to exchange {sequence}, the others to {}", pending.sequence);
            return self.fail(&reason);
        }
        if let Some((other, (wanted, _))) = pending.parts.iter().find(|(_, (wanted, _))| *wanted != what) {
            let reason = format!("rank {other} wants `{wanted}`, rank {rank} wants `{what}`");
            return self.fail(&reason);
        }
        pending.parts.insert(rank, (what, bytes));
        if pending.parts.len() as u32 == self.size {
            let parts = self.pending.take().map(|pending| pending.parts).unwrap_or_default();
            let lengths = parts.values().map(|(_, bytes)| bytes.len() as u64).collect();
            let bytes: Vec<u8> = parts.into_values().flat_map(|(_, bytes)| bytes).collect();
            self.send(&Message::Parts { sequence, lengths }, &bytes);
        }
    }

    fn leave(&mut self, rank: u32) {
        if let Some(known) = self.ranks.get_mut(&rank) {
            known.left = true;
        }
    }

    /// Looks at the clocks.
    fn look(&mut self, began: Instant) {
        if self.ended.is_some() {
            // Who has not read it by now never will.
            if began.elapsed() > self.limits.timeout * 2 + self.limits.meeting {
                self.ranks.clear();
                self.strangers.clear();
            }
            return;
        }
        let Limits { meeting, timeout, silence } = self.limits;
        if !self.formed {
            if began.elapsed() > meeting {
                let missing: Vec<u32> =
                    (0..self.size).filter(|rank| !self.ranks.contains_key(rank)).collect();
                self.fail(&Error::late("the meeting", &missing, meeting));
            }
            return;
        }
        let quiet = self.ranks.iter().find(|(_, rank)| !rank.left && rank.heard.elapsed() > silence);
        if let Some((rank, known)) = quiet {
            let Member { host, process, .. } = &known.member;
            let seconds = silence.as_secs_f64();
            self.fail(&format!("rank {rank} was not heard of for {seconds} s (process {process} on {host})"));
        } else if let Some(pending) = &self.pending {
            let missing: Vec<u32> = (0..self.size).filter(|rank| !pending.parts.contains_key(rank)).collect();
            let gone: Vec<u32> = missing.iter().copied().filter(|rank| self.ranks[rank].left).collect();
            let what = pending.parts.values().next().map(|(what, _)| what.clone()).unwrap_or_default();
            if !gone.is_empty() {
                self.fail(&format!("rank {} has left the group, and others want `{what}`", list(&gone)));
            } else if pending.since.elapsed() > timeout {
                self.fail(&Error::late(&format!("`{what}`"), &missing, timeout));
            }
        }
    }

    /// Tells everybody that there is no group, or none any more. The first reason counts.
    fn fail(&mut self, reason: &str) {
        if self.ended.is_some() {
            return;
        }
        self.ended = Some(reason.to_owned());
        self.pending = None;
        self.told.extend(self.ranks.keys().copied().filter(|&rank| rank < self.size));
        let reason = reason.to_owned();
        self.tell(&if self.formed { Message::Failed { reason } } else { Message::Refused { reason } });
    }

    fn tell(&mut self, message: &Message) {
        self.send(message, &[]);
    }

    /// A rank that cannot be written to is noticed when its connection closes.
    fn send(&mut self, message: &Message, bytes: &[u8]) {
        for rank in self.ranks.values_mut() {
            let _ = rank.stream.set_write_timeout(Some(self.limits.silence));
            let _ = frame::write(&mut &rank.stream, message, bytes);
        }
    }
}
