//! What multiplies read of the shared memory, and for how long.

use super::{BASE, GRANULE, Mark, Shared, in_flight};
use crate::clock::View;
use crate::descriptor::Chunks;
use crate::trap::{Fault, Owner};

impl Shared {
    /// Takes ownership of the chunks of an operand for a multiply of a warpgroup, and remembers that it reads them. `number` is
    /// the number of the multiply; `readers` has the warps of the warpgroup that read the chunk with an index, one bit
    /// each. Adds the marks of the chunks to a list, without duplicates.
    pub(crate) fn lend(
        &mut self,
        (group, number): (usize, u64),
        chunks: &Chunks,
        readers: impl Fn(usize) -> u8,
        marks: &mut Vec<Mark>,
    ) -> Result<(), Fault> {
        if self.multiplied.len() <= group {
            self.multiplied.resize(group + 1, Vec::new());
        }
        self.multiplied[group].resize(self.granules.len(), (0, 0));
        let (first, last) = chunks.ends;
        let inside = first >= BASE && last as usize + GRANULE as usize <= self.bytes.len();
        let (number, mut landed) = (number as u32 + 1, (0, 0));
        let bounds = |chunk: &u32| self.bounds(*chunk, GRANULE, GRANULE);
        let beyond =
            if inside { None } else { chunks.chunks.iter().position(|chunk| bounds(chunk).is_err()) };
        for (index, &chunk) in chunks.chunks.iter().enumerate().take(beyond.unwrap_or(usize::MAX)) {
            let at = (chunk / GRANULE) as usize;
            if !self.granules[at].is_readable() {
                self.readable(chunk, true)?;
            }
            let (granule, multiplied) = (&mut self.granules[at], &mut self.multiplied[group][at]);
            granule.reads += 1;
            // Within one multiply, A and B may be the same bytes.
            let before = if multiplied.0 == number { multiplied.1 } else { 0 };
            *multiplied = (number, before | readers(index));
            if granule.landed != landed && granule.landed.1 > 0 {
                landed = granule.landed;
                let mark = Mark { place: landed.0, count: landed.1, chunk, barrier: granule.through };
                if !marks.iter().any(|known| (known.place, known.count) == landed) {
                    marks.push(mark);
                }
            }
            if self.parts.is_empty() {
                continue;
            }
            for part in self.parts.get(&at).into_iter().flatten() {
                let (place, count) = part.landed;
                marks.push(Mark { place, count, chunk, barrier: part.through });
            }
        }
        beyond.map_or(Ok(()), |index| self.bounds(chunks.chunks[index], GRANULE, GRANULE))
    }

    /// Refuses to overwrite bytes that multiplies have read, if the thread does not know that they have been
    /// waited for.
    pub(super) fn multiplied(&self, offset: u32, bytes: u32, view: &View) -> Result<(), Fault> {
        for (group, table) in self.multiplied.iter().enumerate() {
            let last =
                table.get(Self::range(offset, bytes)).unwrap_or_default().iter().map(|(last, _)| *last).max();
            let (last, place) = (last.unwrap_or(0), self.multiplies(group));
            if place.is_some_and(|place| view.executed(place) < last) {
                return Err(in_flight(offset, bytes, Owner::AsyncRead, true));
            }
        }
        Ok(())
    }

    /// Refuses a write of a thread to bytes that asynchronous work has written or multiplies have read, if the thread does
    /// not know it to be over. Its warpgroup is one of this CTA, if it has one: the warp's own wait for a multiply is about
    /// the warp's own part of it, and the other three warps of the warpgroup may still read.
    pub(crate) fn may_write(
        &self,
        (offset, bytes): (u32, u32),
        view: &View,
        group: Option<usize>,
    ) -> Result<(), Fault> {
        self.observed(offset, bytes, &view.known)?;
        self.multiplied(offset, bytes, view)?;
        let Some((group, table)) = group.and_then(|group| Some((group, self.multiplied.get(group)?))) else {
            return Ok(());
        };
        for &(last, readers) in table.get(Self::range(offset, bytes)).unwrap_or_default() {
            let waited = |warp: usize| self.waited(warp).is_none_or(|place| view.executed(place) >= last);
            if (0..4).any(|quarter| readers >> quarter & 1 == 1 && !waited(4 * group + quarter)) {
                return Err(in_flight(offset, bytes, Owner::AsyncRead, true));
            }
        }
        Ok(())
    }
}
