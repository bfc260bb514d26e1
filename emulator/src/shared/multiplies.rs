//! What multiplies read of the shared memory, and for how long.

use super::{GRANULE, Mark, Shared};
use crate::trap::Fault;

/// The warps of a warpgroup that read a chunk, one bit each: the same for all chunks, or by chunk.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Readers<'c> {
    All(u8),
    Each(&'c [u8]),
}

impl Shared {
    /// Takes ownership of the chunks of an operand for a multiply of a warpgroup, and remembers that it reads them. `number` is
    /// the number of the multiply. Adds the marks of the chunks to a list, without duplicates.
    pub(crate) fn lend(
        &mut self,
        (group, number): (usize, u64),
        (chunks, readers): (&[u32], Readers<'_>),
        marks: &mut Vec<Mark>,
    ) -> Result<(), Fault> {
        if self.multiplied.len() <= group {
            self.multiplied.resize(group + 1, Vec::new());
        }
        self.multiplied[group].resize(self.granules.len(), (0, 0));
        let (number, mut last) = (number as u32 + 1, (0, 0));
        for (index, &chunk) in chunks.iter().enumerate() {
            self.bounds(chunk, GRANULE, GRANULE)?;
            self.take_read(chunk, true)?;
            let at = (chunk / GRANULE) as usize;
            let readers = match readers {
                Readers::All(readers) => readers,
                Readers::Each(readers) => readers[index],
            };
            let multiplied = &mut self.multiplied[group][at];
            // Within one multiply, A and B may be the same bytes.
            let before = if multiplied.0 == number { multiplied.1 } else { 0 };
            *multiplied = (number, before | readers);
            let granule = &self.granules[at];
            if granule.landed != last && granule.landed.1 > 0 {
                last = granule.landed;
                let mark = Mark { place: last.0, count: last.1, chunk, barrier: granule.through };
                if !marks.iter().any(|known| (known.place, known.count) == last) {
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
        Ok(())
    }
}
