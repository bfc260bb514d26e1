//! Bank conflicts: the number of wavefronts of an access to shared memory.

/// Banks of shared memory, each 4 bytes wide.
const BANKS: usize = 32;

/// The number of wavefronts of an access, and the number that its bytes would take without conflicts.
/// `places` are the offsets that the lanes access, `None` for an inactive lane; `lanes` lanes are served
/// together.
pub(crate) fn wavefronts(places: &[Option<u32>], bytes: u32, lanes: usize) -> (u64, u64) {
    let mut taken = 0;
    let mut all = Vec::new();
    for part in places.chunks(lanes.max(1)) {
        let mut words: Vec<u32> = part.iter().flatten().flat_map(|&place| words(place, bytes)).collect();
        words.sort_unstable();
        words.dedup();
        let mut load = [0u64; BANKS];
        for word in &words {
            load[*word as usize % BANKS] += 1;
        }
        taken += load.into_iter().max().unwrap_or(0);
        all.extend(words);
    }
    all.sort_unstable();
    all.dedup();
    (taken, all.len().div_ceil(BANKS) as u64)
}

/// The 4-byte words of an access.
fn words(place: u32, bytes: u32) -> impl Iterator<Item = u32> {
    place / 4..place.saturating_add(bytes).div_ceil(4)
}

/// The number of lanes that are served together if each accesses `bytes` bytes.
pub(crate) fn together(bytes: u32) -> usize {
    match bytes {
        0..=4 => 32,
        5..=8 => 16,
        _ => 8,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn conflicts() {
        for (why, stride, bytes, want) in [
            ("a row of words", 4, 4, (1, 1)),
            ("everybody reads one word", 0, 4, (1, 1)),
            ("every second bank", 8, 4, (2, 1)),
            ("a column of a matrix 128 B wide", 128, 4, (32, 1)),
            ("a padded column", 132, 4, (1, 1)),
            ("halves of words share them", 2, 2, (1, 1)),
            ("a row of 8-byte units", 8, 8, (2, 2)),
            ("a row of 16-byte units", 16, 16, (4, 4)),
            ("16-byte units in a column of a matrix 128 B wide", 128, 16, (32, 4)),
            ("16-byte units in a column of a matrix 144 B wide", 144, 16, (4, 4)),
        ] {
            let places: Vec<Option<u32>> = (0..32).map(|lane| Some(lane * stride)).collect();
            assert_eq!(wavefronts(&places, bytes, together(bytes)), want, "{why}");
        }
        assert_eq!(wavefronts(&[None; 32], 4, 32), (0, 0), "nobody takes part");
    }
}
