//! Fat binaries: PTX and binaries for several cards in one container. The format is not documented; this is what tools of others read.

use crate::image::{Image, Packed, Packing};

/// What a fat binary begins with.
pub(crate) const MAGIC: [u8; 4] = 0xba55_ed50_u32.to_le_bytes();
/// What the compiler puts before one: this, a version, and a pointer to it.
pub(crate) const WRAPPER: [u8; 4] = 0x4662_43b1_u32.to_le_bytes();

/// Kinds of parts.
const PTX: u16 = 1;
const ELF: u16 = 2;
/// Flags of a part: how it is compressed.
const LZ4: u64 = 0x2000;
const ZSTD: u64 = 0x8000;
/// Bytes of a part's header that are read.
const HEADER: usize = 64;

/// Reads bytes at an offset; `None` beyond the end.
pub(crate) type Read<'a> = dyn Fn(usize, usize) -> Option<Vec<u8>> + 'a;

/// The parts of a fat binary. What is not understood is left out.
pub(crate) fn image(read: &Read<'_>) -> Image {
    let mut image = Image::default();
    let _ = parts(read, &mut image);
    image
}

/// The bytes of a fat binary that begins here.
pub(crate) fn size(read: &Read<'_>) -> Option<usize> {
    let head = read(0, 16)?;
    (head[..4] == MAGIC).then_some(())?;
    usize::from(u16_at(&head, 6)?).checked_add(usize::try_from(u64_at(&head, 8)?).ok()?)
}

fn parts(read: &Read<'_>, image: &mut Image) -> Option<()> {
    let end = size(read)?;
    let mut at = usize::from(u16_at(&read(0, 16)?, 6)?);
    while at.checked_add(HEADER)? <= end {
        let head = read(at, HEADER)?;
        let (kind, header) = (u16_at(&head, 0)?, u32_at(&head, 4)? as usize);
        let padded = usize::try_from(u64_at(&head, 8)?).ok()?;
        let (stored, target, flags) = (u32_at(&head, 16)? as usize, u32_at(&head, 28)?, u64_at(&head, 40)?);
        let whole = usize::try_from(u64_at(&head, 56)?).ok()?;
        let start = at.checked_add(header)?;
        let next = start.checked_add(padded)?;
        if header < HEADER || next > end {
            return None;
        }
        let packing = match (flags & LZ4 != 0, flags & ZSTD != 0) {
            (true, _) => Packing::Lz4(whole),
            (_, true) => Packing::Zstd(whole),
            _ => Packing::Plain,
        };
        let bytes = if packing == Packing::Plain || stored == 0 { padded } else { stored.min(padded) };
        match kind {
            PTX => image.texts.push(Packed { target, bytes: read(start, bytes)?, packing }),
            // It is counted, but not read: there may be gigabytes.
            ELF => image.binaries.push((bytes, 0)),
            _ => {}
        }
        at = next;
    }
    Some(())
}

fn u16_at(bytes: &[u8], at: usize) -> Option<u16> {
    bytes.get(at..)?.first_chunk().copied().map(u16::from_le_bytes)
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    bytes.get(at..)?.first_chunk().copied().map(u32::from_le_bytes)
}

fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    bytes.get(at..)?.first_chunk().copied().map(u64::from_le_bytes)
}

#[cfg(test)]
mod tests {
    use super::{HEADER, LZ4, MAGIC};
    use crate::image::Image;

    /// A part: kind, flags, bytes, and the size that they are decompressed to.
    fn part((kind, flags): (u16, u64), bytes: &[u8], whole: u64) -> Vec<u8> {
        let mut part = vec![0; HEADER];
        let padded = bytes.len().next_multiple_of(8);
        part[..2].copy_from_slice(&kind.to_le_bytes());
        part[4..8].copy_from_slice(&(HEADER as u32).to_le_bytes());
        part[8..16].copy_from_slice(&(padded as u64).to_le_bytes());
        part[16..20].copy_from_slice(&(bytes.len() as u32).to_le_bytes());
        part[28..32].copy_from_slice(&90u32.to_le_bytes());
        part[40..48].copy_from_slice(&flags.to_le_bytes());
        part[56..64].copy_from_slice(&whole.to_le_bytes());
        part.extend(bytes);
        part.resize(HEADER + padded, 0);
        part
    }

    fn fat(parts: &[Vec<u8>]) -> Vec<u8> {
        let body = parts.concat();
        let mut all = MAGIC.to_vec();
        all.extend(1u16.to_le_bytes());
        all.extend(16u16.to_le_bytes());
        all.extend((body.len() as u64).to_le_bytes());
        all.extend(body);
        all
    }

    #[test]
    fn every_readable_part_is_found() {
        let block = [0x35, b'a', b'b', b'c', 3, 0, 0x50, b'e', b'n', b'd', b'.', b'.'];
        let all = [
            part((2, 1), b"\x7fELF....", 0),
            part((1, LZ4), &block, 17),
            part((1, 0), b".version 8.0\n\0", 0),
        ];
        let image = Image::of_bytes(&fat(&all));
        let texts: Vec<_> = image.texts.iter().map(|text| text.text().expect("readable")).collect();
        assert_eq!(texts, ["abcabcabcabcend..", ".version 8.0\n"]);
        assert_eq!((image.texts[0].target, image.binaries.len()), (90, 1));
    }

    #[test]
    fn a_broken_one_is_read_as_far_as_it_goes() {
        let mut bytes = fat(&[part((1, 0), b".version 8.0\n\0", 0), part((1, 0), b"second", 0)]);
        let first = Image::of_bytes(&bytes).texts.len();
        bytes.truncate(bytes.len() - 4);
        assert_eq!((first, Image::of_bytes(&bytes).texts.len()), (2, 1));
        assert_eq!(Image::of_bytes(&MAGIC).texts.len(), 0);
    }
}
