//! How ranks find each other, agree, and learn that one of them is lost: small messages over TCP. No data of
//! layers goes this way, except in the emulator.

pub(crate) mod coordinator;
pub(crate) mod frame;
pub(crate) mod meeting;

use std::collections::VecDeque;
use std::fmt;
use std::io::ErrorKind;
use std::net::{Shutdown, TcpStream};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

use self::frame::{Member, Message, PROTOCOL};
use crate::error::Error;

/// How long ranks wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// For all ranks to come to the meeting. Default: 60 s.
    pub meeting: Duration,
    /// For all ranks to come to the same layer, and for a GPU to finish what was enqueued. Default: 30 s.
    pub timeout: Duration,
    /// For a sign of life of a rank, if its connection does not close: a host that is down, a stopped
    /// process. Default: 10 s.
    pub silence: Duration,
}

impl Default for Limits {
    fn default() -> Self {
        let [meeting, timeout, silence] = [60, 30, 10].map(Duration::from_secs);
        Self { meeting, timeout, silence }
    }
}

impl Limits {
    /// # Errors
    /// A time of 0, or of more than a year.
    pub(crate) fn check(self) -> Result<Self, Error> {
        let year = Duration::from_secs(365 * 24 * 3600);
        for (field, time) in [("meeting", self.meeting), ("timeout", self.timeout), ("silence", self.silence)]
        {
            if time.is_zero() || time > year {
                return Err(Error::argument(
                    format!("the limit `{field}`"),
                    format!("{time:?}"),
                    "more than 0, and at most a year",
                ));
            }
        }
        Ok(self)
    }
}

/// What is called when the group fails.
type Hook = Box<dyn FnOnce() + Send>;

#[derive(Default)]
struct State {
    /// Results of exchanges that nobody has taken.
    parts: VecDeque<(u64, Vec<Vec<u8>>)>,
    failed: Option<String>,
    hooks: Vec<Hook>,
    left: bool,
    /// Since when the rank waits for its GPU.
    waits: Option<Instant>,
}

struct Shared {
    state: Mutex<State>,
    changed: Condvar,
    stream: TcpStream,
    writer: Mutex<()>,
    limits: Limits,
    rank: u32,
}

/// A rank's connection to the coordinator.
pub(crate) struct Control {
    shared: Arc<Shared>,
    members: Vec<Member>,
    sequence: u64,
}

impl fmt::Debug for Control {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Control")
            .field("rank", &self.shared.rank)
            .field("size", &self.members.len())
            .finish_non_exhaustive()
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Shared {
    fn say(&self, message: &Message, bytes: &[u8]) -> std::io::Result<()> {
        let _one = lock(&self.writer);
        frame::write(&mut &self.stream, message, bytes)
    }

    /// The first reason counts.
    fn fail(&self, reason: String) {
        let hooks = {
            let mut state = lock(&self.state);
            if state.left || state.failed.is_some() {
                return;
            }
            state.failed = Some(reason);
            std::mem::take(&mut state.hooks)
        };
        hooks.into_iter().for_each(|hook| hook());
        self.changed.notify_all();
    }

    /// Reads what the coordinator says, until it has nothing more to say.
    fn listen(&self) {
        loop {
            match frame::read(&mut &self.stream) {
                Ok((Message::Parts { sequence, lengths }, mut bytes)) => {
                    let mut parts = Vec::with_capacity(lengths.len());
                    for length in lengths {
                        let rest = bytes.split_off((length as usize).min(bytes.len()));
                        parts.push(std::mem::replace(&mut bytes, rest));
                    }
                    lock(&self.state).parts.push_back((sequence, parts));
                    self.changed.notify_all();
                }
                Ok((Message::Failed { reason } | Message::Refused { reason }, _)) => {
                    return self.fail(reason);
                }
                Ok(_) => {}
                Err(error) => {
                    let silent = matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut);
                    let seconds = self.limits.silence.as_secs_f64();
                    let reason =
                        if silent { format!("was not heard of for {seconds} s") } else { "ended".to_owned() };
                    return self.fail(format!("rank 0, which coordinates the group, {reason}"));
                }
            }
        }
    }

    /// Says that the rank is alive, until the group ends; and that its GPU is late.
    fn beat(&self) {
        let pause = (self.limits.silence / 5).min(self.limits.timeout / 5).min(Duration::from_secs(1));
        loop {
            let state = lock(&self.state);
            let (state, _) = self.changed.wait_timeout(state, pause).unwrap_or_else(PoisonError::into_inner);
            if state.left || state.failed.is_some() {
                return;
            }
            let late = state.waits.is_some_and(|since| since.elapsed() > self.limits.timeout);
            drop(state);
            if late {
                let (rank, seconds) = (self.rank, self.limits.timeout.as_secs_f64());
                let reason = format!(
                    "the GPU of rank {rank} did not finish within {seconds} s: a rank may have left a layer out"
                );
                let _ = self.say(&Message::Failed { reason: reason.clone() }, &[]);
                self.fail(reason);
            }
            let _ = self.say(&Message::Alive, &[]);
        }
    }
}

impl Control {
    /// Joins the group at one of these addresses. Addresses may change until the coordinator is there.
    pub(crate) fn join(
        addresses: impl Fn() -> Result<Vec<String>, Error>,
        key: &str,
        (rank, size): (u32, u32),
        member: Member,
        limits: Limits,
    ) -> Result<Self, Error> {
        let began = Instant::now();
        let stream = meeting::connect(addresses, began, limits.meeting)?;
        let lost = |error: &std::io::Error| Error::system("the connection to rank 0", error);
        let hello = Message::Hello { protocol: PROTOCOL, key: key.to_owned(), rank, size, member };
        frame::write(&mut &stream, &hello, &[]).map_err(|error| lost(&error))?;
        // The coordinator says who is missing; it has a little longer than this rank.
        let grace = limits.meeting + limits.silence;
        let members = loop {
            let left = grace.saturating_sub(began.elapsed()).max(Duration::from_millis(1));
            stream.set_read_timeout(Some(left)).map_err(|error| lost(&error))?;
            match frame::read(&mut &stream) {
                Ok((Message::Welcome { members }, _)) => break members,
                Ok((Message::Refused { reason } | Message::Failed { reason }, _)) => {
                    return Err(Error::Meeting(reason));
                }
                Ok(_) => {}
                Err(error) => {
                    return Err(Error::Meeting(format!("rank 0 did not answer rank {rank}: {error}")));
                }
            }
        };
        let times = || {
            stream.set_read_timeout(Some(limits.silence))?;
            stream.set_write_timeout(Some(limits.timeout))
        };
        times().map_err(|error| lost(&error))?;
        let (state, changed, writer) = (Mutex::default(), Condvar::new(), Mutex::default());
        let shared = Arc::new(Shared { state, changed, stream, writer, limits, rank });
        type Work = fn(&Shared);
        for (name, work) in
            [("falchion-watch", Shared::listen as Work), ("falchion-alive", Shared::beat as Work)]
        {
            let shared = Arc::clone(&shared);
            let thread = thread::Builder::new().name(name.to_owned()).spawn(move || work(&shared));
            thread.map_err(|error| Error::system("a thread", &error))?;
        }
        Ok(Self { shared, members, sequence: 0 })
    }

    pub(crate) fn rank(&self) -> u32 {
        self.shared.rank
    }

    pub(crate) fn members(&self) -> &[Member] {
        &self.members
    }

    pub(crate) fn limits(&self) -> Limits {
        self.shared.limits
    }

    /// Every rank's bytes. All ranks call it with the same words, in the same order.
    pub(crate) fn exchange(&mut self, what: &str, bytes: &[u8]) -> Result<Vec<Vec<u8>>, Error> {
        self.alive()?;
        self.sequence += 1;
        let part = Message::Part { sequence: self.sequence, what: what.to_owned() };
        match self.shared.say(&part, bytes) {
            // Whoever listens says why the connection has ended.
            Err(error) if matches!(error.kind(), ErrorKind::BrokenPipe | ErrorKind::ConnectionReset) => {}
            Err(error) => self.shared.fail(format!("rank {} cannot reach rank 0: {error}", self.rank())),
            Ok(()) => {}
        }
        // The coordinator says who is late; this is for the case that it says nothing.
        let (began, grace) = (Instant::now(), self.shared.limits.timeout + self.shared.limits.silence);
        let mut state = lock(&self.shared.state);
        loop {
            if let Some(reason) = &state.failed {
                return Err(Error::Lost(reason.clone()));
            }
            while let Some((sequence, parts)) = state.parts.pop_front() {
                if sequence == self.sequence {
                    return Ok(parts);
                }
            }
            if began.elapsed() > grace {
                drop(state);
                self.fail(format!(
                    "rank {} heard nothing of `{what}` within {} s",
                    self.rank(),
                    grace.as_secs_f64()
                ));
                return self.alive().map(|()| Vec::new());
            }
            state =
                self.shared.changed.wait_timeout(state, grace / 8).unwrap_or_else(PoisonError::into_inner).0;
        }
    }

    /// # Errors
    /// The group has failed.
    pub(crate) fn alive(&self) -> Result<(), Error> {
        match &lock(&self.shared.state).failed {
            Some(reason) => Err(Error::Lost(reason.clone())),
            None => Ok(()),
        }
    }

    /// Ends the group for everybody.
    pub(crate) fn fail(&self, reason: String) {
        let _ = self.shared.say(&Message::Failed { reason: reason.clone() }, &[]);
        self.shared.fail(reason);
    }

    /// Calls something when the group fails, from another thread; at once if it has failed.
    pub(crate) fn when_failed(&self, hook: Hook) {
        let mut state = lock(&self.shared.state);
        if state.failed.is_some() {
            drop(state);
            hook();
        } else {
            state.hooks.push(hook);
        }
    }

    /// Does something that takes longer than allowed if another rank does not take part.
    pub(crate) fn timed<T>(&self, work: impl FnOnce() -> T) -> T {
        lock(&self.shared.state).waits = Some(Instant::now());
        let result = work();
        lock(&self.shared.state).waits = None;
        result
    }
}

impl Control {
    /// Says that the rank leaves, before NCCL waits for the others.
    pub(crate) fn going(&self) {
        // Who is not reached has failed, and says so.
        let _ = self.shared.say(&Message::Leave, &[]);
    }

    /// Leaves the group. A rank that panics has not left: the others must know.
    pub(crate) fn leave(&self) {
        if std::mem::replace(&mut lock(&self.shared.state).left, true) {
            return;
        }
        if !thread::panicking() {
            self.going();
        }
        self.shared.changed.notify_all();
        let _ = self.shared.stream.shutdown(Shutdown::Both);
    }
}

impl Drop for Control {
    fn drop(&mut self) {
        self.leave();
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::frame::{Member, Message, PROTOCOL};
    use super::{Control, Limits, coordinator, frame, meeting};

    const LIMITS: Limits = Limits {
        meeting: Duration::from_secs(4),
        timeout: Duration::from_secs(2),
        silence: Duration::from_secs(2),
    };

    /// What two ranks are told that come like this.
    fn meet(members: [Member; 2]) -> [Result<(), String>; 2] {
        let listener = meeting::listen(0).expect("a port");
        let port = listener.local_addr().expect("bound").port();
        coordinator::serve(listener, 2, "job".to_owned(), LIMITS).expect("a thread");
        let join = |rank: u32, member: Member| {
            let address = || Ok(vec![format!("127.0.0.1:{port}")]);
            Control::join(address, "job", (rank, 2), member, LIMITS)
                .map(|_| ())
                .map_err(|error| error.to_string())
        };
        let [first, second] = members;
        std::thread::scope(|scope| {
            let first = scope.spawn(|| join(0, first));
            std::thread::sleep(Duration::from_millis(100));
            let second = scope.spawn(|| join(1, second));
            [first.join().expect("no panic"), second.join().expect("no panic")]
        })
    }

    #[test]
    fn members_that_cannot_work_together_are_refused() {
        let of = |gpu: Option<&str>, nccl: Option<&str>| Member {
            host: "h".to_owned(),
            process: 7,
            gpu: gpu.map(str::to_owned),
            nccl: nccl.map(str::to_owned),
        };
        let two = Some("2.27.3");
        for (members, expected) in [
            ([of(Some("a"), two), of(Some("b"), two)], None),
            ([of(Some("a"), two), of(Some("a"), two)], Some("ranks 0 and 1 both take GPU a of h")),
            (
                [of(Some("a"), two), of(Some("b"), Some("2.26.2"))],
                Some("rank 0 has NCCL 2.27.3, rank 1 has 2.26.2"),
            ),
            ([of(Some("a"), two), of(None, None)], Some("only one has a GPU")),
        ] {
            for told in meet(members.clone()) {
                match (expected, told) {
                    (None, Ok(())) => {}
                    (Some(expected), Err(told)) if told.contains(expected) => {}
                    (_, told) => panic!("{members:?}: {told:?}"),
                }
            }
        }
    }

    #[test]
    fn another_protocol_is_refused() {
        let listener = meeting::listen(0).expect("a port");
        let port = listener.local_addr().expect("bound").port();
        coordinator::serve(listener, 2, "job".to_owned(), LIMITS).expect("a thread");
        let stream = std::net::TcpStream::connect(("127.0.0.1", port)).expect("listens");
        let hello = Message::Hello {
            protocol: PROTOCOL + 1,
            key: "job".to_owned(),
            rank: 1,
            size: 2,
            member: Member::here(),
        };
        frame::write(&mut &stream, &hello, &[]).expect("sent");
        let answer = loop {
            match frame::read(&mut &stream).expect("an answer").0 {
                Message::Alive => {}
                answer => break answer,
            }
        };
        assert!(matches!(answer, Message::Refused { reason } if reason.contains("protocol 2, 1 was needed")));
    }
}
