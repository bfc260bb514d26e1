//! PTX of a newer version than a driver reads.

/// The version that a driver reads, if it has refused a text for its version: its message says which one it is, or else its release of CUDA.
pub(super) fn supported(message: &str, device: &str) -> Option<(u32, u32)> {
    if !message.contains("Unsupported .version") && !message.contains("UNSUPPORTED_PTX_VERSION") {
        return None;
    }
    let said = message.split_once("current version is '").and_then(|(_, rest)| pair(rest));
    said.or_else(|| of_cuda(pair(device.split_once("CUDA ")?.1)?))
}

/// The version of PTX of a release of CUDA. ISA "Release History".
fn of_cuda(release: (u32, u32)) -> Option<(u32, u32)> {
    match release {
        (12, minor @ 0..=5) => Some((8, minor)),
        (12, minor @ 6..) => Some((8, minor - 1)),
        (major @ 13.., minor) => Some((major - 4, minor)),
        _ => None,
    }
}

/// A text with a lower version, and the one that it had. `None` if it has no higher one.
pub(super) fn lowered(text: &str, to: (u32, u32)) -> Option<(String, (u32, u32))> {
    let at = text.match_indices(".version").map(|(at, _)| at);
    // Not in a comment.
    let at = at
        .into_iter()
        .find(|&at| text[..at].rsplit('\n').next().is_some_and(|line| line.trim().is_empty()))?;
    let rest = text[at..].strip_prefix(".version")?;
    let number = rest.trim_start();
    let had = pair(number).filter(|had| *had > to)?;
    let end = number.find(|letter: char| letter != '.' && !letter.is_ascii_digit()).unwrap_or(number.len());
    Some((format!("{}.version {}.{}{}", &text[..at], to.0, to.1, &number[end..]), had))
}

/// Two numbers with a dot between them, at the beginning of a text.
fn pair(text: &str) -> Option<(u32, u32)> {
    let end = text.find(|letter: char| letter != '.' && !letter.is_ascii_digit()).unwrap_or(text.len());
    let (major, minor) = text[..end].split_once('.')?;
    Some((major.parse().ok()?, minor.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::{lowered, of_cuda, supported};

    #[test]
    fn what_a_driver_reads_is_in_its_message_or_its_release() {
        let refused = "CUDA_ERROR_UNSUPPORTED_PTX_VERSION: ptxas application ptx input, line 5; fatal   : Unsupported .version 9.4; current version is '9.0'";
        assert_eq!(supported(refused, "a card"), Some((9, 0)));
        let short = "CUDA_ERROR_UNSUPPORTED_PTX_VERSION: it is too new";
        assert_eq!(supported(short, "NVIDIA H200, driver 580.159 (CUDA 13.0), sm_90"), Some((9, 0)));
        assert_eq!(supported("out of memory", "CUDA 13.0"), None);
        for (release, version) in
            [((12, 0), (8, 0)), ((12, 5), (8, 5)), ((12, 6), (8, 5)), ((12, 9), (8, 8)), ((13, 2), (9, 2))]
        {
            assert_eq!(of_cuda(release), Some(version), "{release:?}");
        }
    }

    #[test]
    fn a_version_is_only_lowered() {
        let text = "// of .version 9.9\n.version\t9.4\n.target sm_90a\n";
        let (new, had) = lowered(text, (9, 0)).expect("lowered");
        assert_eq!((new.as_str(), had), ("// of .version 9.9\n.version 9.0\n.target sm_90a\n", (9, 4)));
        assert!(lowered(text, (9, 4)).is_none() && lowered("", (9, 0)).is_none());
    }
}
