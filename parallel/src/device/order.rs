//! Which work on several streams is ordered, so that the emulator finds what a card would not.

use crate::error::Error;

/// Counts of the work of each stream.
pub(crate) type Clock = Vec<u64>;

/// Memory that work on a stream touched.
#[derive(Clone, Debug, PartialEq)]
struct Access {
    begin: u64,
    end: u64,
    stream: usize,
    writes: bool,
    at: u64,
}

/// What each stream has enqueued, and waited for. The emulator runs everything at once; work that touches memory of
/// another stream's work without waiting for an event after it is an error.
#[derive(Debug)]
pub(crate) struct Order {
    /// Of each stream: the work of every stream that comes before its next.
    clocks: Vec<Clock>,
    current: usize,
    accesses: Vec<Access>,
}

impl Default for Order {
    fn default() -> Self {
        Self { clocks: vec![vec![0]], current: 0, accesses: Vec::new() }
    }
}

impl Order {
    /// A new stream. It waits for nothing.
    pub(crate) fn open(&mut self) -> usize {
        self.clocks.iter_mut().for_each(|clock| clock.push(0));
        self.clocks.push(vec![0; self.clocks.len() + 1]);
        self.clocks.len() - 1
    }

    /// The host has waited for a stream.
    pub(crate) fn close(&mut self, stream: usize) {
        let ended = self.clocks[stream].clone();
        for clock in &mut self.clocks {
            clock.iter_mut().zip(&ended).for_each(|(own, ended)| *own = (*own).max(*ended));
        }
    }

    /// Makes a stream the current one, and returns the one before.
    pub(crate) fn enter(&mut self, stream: usize) -> usize {
        core::mem::replace(&mut self.current, stream)
    }

    /// The point that the current stream has reached.
    pub(crate) fn mark(&self) -> Clock {
        self.clocks[self.current].clone()
    }

    /// What the current stream does next comes after a mark.
    pub(crate) fn after(&mut self, mark: &Clock) {
        self.clocks[self.current].iter_mut().zip(mark).for_each(|(own, mark)| *own = (*own).max(*mark));
    }

    /// The host has waited for all streams.
    pub(crate) fn waited(&mut self) {
        let all: Clock = (0..self.clocks.len()).map(|stream| self.clocks[stream][stream]).collect();
        self.clocks.fill(all);
        self.accesses.clear();
    }

    /// The host writes memory after the current stream's work, and waits for that: what comes later comes after it.
    ///
    /// # Errors
    /// As [`work`](Self::work).
    pub(crate) fn write(&mut self, begin: u64, bytes: u64) -> Result<(), Error> {
        self.work(&[("memory that the host writes", begin, bytes, true)])?;
        let (current, end) = (self.current, begin + bytes);
        self.accesses.retain(|of| (of.begin, of.end, of.stream, of.writes) != (begin, end, current, true));
        Ok(())
    }

    /// Memory is freed, for which the host waits.
    pub(crate) fn forget(&mut self, begin: u64, bytes: u64) {
        self.accesses.retain(|of| of.end <= begin || begin + bytes <= of.begin);
    }

    /// The next work of the current stream touches these bytes: name, address, bytes, and whether it writes them.
    ///
    /// # Errors
    /// Another stream's work touches them too, one of both writes, and neither waits for the other.
    pub(crate) fn work(&mut self, touched: &[(&str, u64, u64, bool)]) -> Result<(), Error> {
        let Self { clocks, current, accesses } = self;
        let clock = &mut clocks[*current];
        clock[*current] += 1;
        for &(name, begin, bytes, writes) in touched.iter().filter(|(_, _, bytes, _)| *bytes > 0) {
            let end = begin + bytes;
            let raced = accesses.iter().find(|of| {
                of.begin < end && begin < of.end && (of.writes || writes) && clock[of.stream] < of.at
            });
            if let Some(of) = raced {
                let done = if of.writes { "written" } else { "read" };
                let found = format!("{bytes} B at {begin:#x}, {done} on another stream");
                return Err(Error::argument(name, found, "to wait for an event after that work"));
            }
            let own = Access { begin, end, stream: *current, writes, at: clock[*current] };
            let same = |of: &&mut Access| {
                [of.begin, of.end] == [begin, end] && of.stream == own.stream && of.writes == writes
            };
            match accesses.iter_mut().find(same) {
                Some(of) => *of = own,
                None => accesses.push(own),
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::Order;

    #[test]
    fn work_on_two_streams_is_ordered_by_events_alone() {
        for (why, first, second, event, refused) in [
            ("written, then read", (0, 64, true), (32, 64, false), false, true),
            ("read, then written", (0, 64, false), (0, 8, true), false, true),
            ("both read", (0, 64, false), (0, 64, false), false, false),
            ("other bytes", (0, 64, true), (64, 64, true), false, false),
            ("an event between", (0, 64, true), (0, 64, true), true, false),
        ] {
            let mut order = Order::default();
            let side = order.open();
            let work = |(begin, bytes, writes)| [("D", begin, bytes, writes)];
            order.work(&work(first)).expect("the first");
            let mark = order.mark();
            assert_eq!(order.enter(side), 0);
            if event {
                order.after(&mark);
            }
            assert_eq!(order.work(&work(second)).is_err(), refused, "{why}");
        }
    }

    #[test]
    fn what_the_host_writes_is_there_for_all_streams() {
        let mut order = Order::default();
        let side = order.open();
        order.write(0, 64).expect("the first");
        order.enter(side);
        order.work(&[("D", 0, 64, false)]).expect("it is there");
        order.enter(0);
        order.write(0, 8).expect_err("it is being read");
    }

    #[test]
    fn the_host_and_freed_memory_end_an_order() {
        let mut order = Order::default();
        let side = order.open();
        order.work(&[("D", 0, 64, true), ("E", 100, 10, true)]).expect("the first");
        order.enter(side);
        order.forget(0, 64);
        order.work(&[("D", 0, 64, true)]).expect("freed");
        order.work(&[("E", 100, 1, false)]).expect_err("not freed");
        order.waited();
        order.work(&[("E", 100, 1, false)]).expect("waited");
    }
}
