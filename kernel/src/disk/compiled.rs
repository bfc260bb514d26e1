//! The payload of a compiled kernel: the binary, and the assembler's log.

/// A kernel's binary.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Compiled {
    /// The binary, as the driver loads it.
    pub(crate) cubin: Vec<u8>,
    /// The log of the assembler that made it.
    pub(crate) log: String,
}

impl Compiled {
    /// Writes the log's length as 8 bytes, the log, and the binary.
    pub(crate) fn to_bytes(&self) -> Vec<u8> {
        [&(self.log.len() as u64).to_le_bytes()[..], self.log.as_bytes(), &self.cubin].concat()
    }

    /// Reads what [`to_bytes`](Self::to_bytes) wrote.
    pub(crate) fn of_bytes(bytes: &[u8]) -> Option<Self> {
        let (length, rest) = bytes.split_first_chunk()?;
        let length = usize::try_from(u64::from_le_bytes(*length)).ok()?;
        let (log, cubin) = rest.split_at_checked(length)?;
        let log = String::from_utf8(log.to_vec()).ok()?;
        Some(Self { cubin: cubin.to_vec(), log }).filter(Self::is_whole)
    }

    /// Whether the binary is a complete 64-bit ELF file, as long as its header says. The driver trusts the
    /// header: it is not told the size.
    pub(crate) fn is_whole(&self) -> bool {
        let word = |at: usize| self.cubin.get(at..at + 8)?.try_into().ok().map(u64::from_le_bytes);
        let half =
            |at: usize| Some(u64::from(u16::from_le_bytes(self.cubin.get(at..at + 2)?.try_into().ok()?)));
        // The end of a table, from its offset, the bytes per entry and the number of entries.
        let ends =
            |begin: usize, part: usize, count: usize| word(begin)?.checked_add(half(part)? * half(count)?);
        let whole = |end: Option<u64>| end.is_some_and(|end| end <= self.cubin.len() as u64);
        // Little-endian; the table of segments and that of sections.
        self.cubin.starts_with(b"\x7fELF\x02\x01") && whole(ends(32, 54, 56)) && whole(ends(40, 58, 60))
    }
}

#[cfg(test)]
mod tests {
    use super::Compiled;

    /// An ELF header of 64 bytes, followed by a table of sections.
    fn elf(sections: u16) -> Vec<u8> {
        let mut bytes = vec![0; 64];
        bytes[..6].copy_from_slice(b"\x7fELF\x02\x01");
        bytes[40..48].copy_from_slice(&64u64.to_le_bytes());
        bytes[58..60].copy_from_slice(&16u16.to_le_bytes());
        bytes[60..62].copy_from_slice(&sections.to_le_bytes());
        bytes.resize(64 + 32, 1);
        bytes
    }

    #[test]
    fn payloads_come_back() {
        let far = {
            let mut bytes = elf(2);
            bytes[40..48].copy_from_slice(&u64::MAX.to_le_bytes());
            bytes
        };
        for (why, cubin, log, want) in [
            ("a binary without a log", elf(2), "", true),
            ("a log", elf(2), "ptxas info : é", true),
            ("a log as long as others' headers", elf(0), "x", true),
            ("sections beyond the end", elf(3), "", false),
            ("sections beyond all numbers", far, "", false),
            ("half a header", elf(2)[..40].to_vec(), "", false),
            ("no binary", Vec::new(), "log", false),
            ("no ELF", b"//\n.version 8.4".to_vec(), "", false),
        ] {
            let compiled = Compiled { cubin, log: log.to_owned() };
            let back = Compiled::of_bytes(&compiled.to_bytes());
            assert_eq!(back.as_ref() == Some(&compiled), want, "{why}");
        }
        let beyond = [&u64::MAX.to_le_bytes()[..], b"\x7fELF"].concat();
        for (why, bytes) in
            [("nothing", &b""[..]), ("a short length", &[0; 7]), ("a log beyond the end", &beyond)]
        {
            assert_eq!(Compiled::of_bytes(bytes), None, "{why}");
        }
    }
}
