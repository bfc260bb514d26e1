//! What multiplies read of the shared memory, and for how long.

use super::granules::{Granule, Multiplied};
use super::{BASE, GRANULE, Mark, Shared, in_flight};
use crate::clock::View;
use crate::descriptor::{Chunks, Piece};
use crate::trap::{Fault, Owner};

impl Shared {
    /// Takes ownership of the chunks of an operand for a multiply of a warpgroup, and remembers that it reads them. `number` is
    /// the number of the multiply; `readers` are the warps of the warpgroup that read the operand, one bit each, if all of it is
    /// read by the same ones. Adds the marks of the chunks to a list, without duplicates.
    pub(crate) fn lend(
        &mut self,
        (group, number): (usize, u64),
        chunks: &Chunks,
        readers: Option<u8>,
        marks: &mut Vec<Mark>,
    ) -> Result<(), Fault> {
        let (first, last) = chunks.ends;
        let inside = first >= BASE && last as usize + GRANULE as usize <= self.bytes.len();
        if !(inside && self.parts.is_empty() && self.alike(chunks, marks)) {
            self.one_by_one(chunks, inside, marks)?;
        }
        for piece in &chunks.pieces {
            let page = self.granules.page(piece.first);
            page.lend(piece.mask);
            let (mask, readers) = (piece.mask, readers.unwrap_or(piece.quarters));
            page.read(Multiplied { mask, group, last: number as u32 + 1, readers });
        }
        Ok(())
    }

    /// Whether an operand may be read and each page of it has one state. If so, adds its marks.
    fn alike(&self, chunks: &Chunks, marks: &mut Vec<Mark>) -> bool {
        let (known, mut landed) = (marks.len(), (0, 0));
        for &Piece { first, .. } in &chunks.pieces {
            match self.granules.common(first).filter(|granule| granule.is_readable()) {
                Some(granule) => mark(granule, first, &mut landed, marks),
                None => {
                    marks.truncate(known);
                    return false;
                }
            }
        }
        true
    }

    /// Refuses an operand that may not be read, and adds its marks, chunk by chunk. `inside`: no chunk is out of bounds.
    fn one_by_one(&self, chunks: &Chunks, inside: bool, marks: &mut Vec<Mark>) -> Result<(), Fault> {
        let mut landed = (0, 0);
        for &chunk in &chunks.chunks {
            if !inside {
                self.bounds(chunk, GRANULE, GRANULE)?;
            }
            let at = (chunk / GRANULE) as usize;
            if !self.granules[at].is_readable() {
                self.readable(chunk, true)?;
            }
            mark(&self.granules[at], chunk, &mut landed, marks);
            for part in self.parts.get(&at).into_iter().flatten() {
                let (place, count) = part.landed;
                marks.push(Mark { place, count, chunk, barrier: part.through });
            }
        }
        Ok(())
    }

    /// Ends the ownership of the chunks of an operand.
    pub(crate) fn give_back(&mut self, chunks: &Chunks) {
        for piece in &chunks.pieces {
            self.granules.page(piece.first).give_back(piece.mask);
        }
    }

    /// Refuses to overwrite bytes that multiplies have read, if the thread does not know that they have been
    /// waited for.
    pub(super) fn multiplied(&self, offset: u32, bytes: u32, view: &View) -> Result<(), Fault> {
        for read in self.granules.multiplied(Self::range(offset, bytes)) {
            if self.multiplies(read.group).is_some_and(|place| view.executed(place) < read.last) {
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
        for read in
            self.granules.multiplied(Self::range(offset, bytes)).filter(|read| Some(read.group) == group)
        {
            let waited =
                |warp: usize| self.waited(warp).is_none_or(|place| view.executed(place) >= read.last);
            if (0..4).any(|quarter| read.readers >> quarter & 1 == 1 && !waited(4 * read.group + quarter)) {
                return Err(in_flight(offset, bytes, Owner::AsyncRead, true));
            }
        }
        Ok(())
    }
}

/// Adds the mark of a chunk, unless it is known. `landed` is that of the chunk before.
fn mark(granule: &Granule, chunk: u32, landed: &mut (u32, u32), marks: &mut Vec<Mark>) {
    if granule.landed != *landed && granule.landed.1 > 0 {
        *landed = granule.landed;
        let (place, count) = granule.landed;
        if !marks.iter().any(|known| (known.place, known.count) == (place, count)) {
            marks.push(Mark { place, count, chunk, barrier: granule.through });
        }
    }
}
