//! A sentence that can be built in a constant, for compiler messages.

/// Text with numbers in it, at most [`Sentence::CAPACITY`] bytes. Text beyond that is dropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sentence {
    bytes: [u8; Self::CAPACITY],
    len: usize,
}

impl Default for Sentence {
    fn default() -> Self {
        Self::new()
    }
}

impl Sentence {
    /// Bytes a sentence can hold.
    pub const CAPACITY: usize = 240;

    /// An empty sentence.
    pub const fn new() -> Self {
        Self { bytes: [0; Self::CAPACITY], len: 0 }
    }

    /// Appends ASCII text.
    #[must_use]
    pub const fn text(mut self, text: &str) -> Self {
        let text = text.as_bytes();
        let mut i = 0;
        while i < text.len() && self.len < Self::CAPACITY {
            self.bytes[self.len] = text[i];
            self.len += 1;
            i += 1;
        }
        self
    }

    /// Appends a number in decimal.
    #[must_use]
    pub const fn number(self, number: u32) -> Self {
        let rest = if number > 9 { self.number(number / 10) } else { self };
        let digit = [b'0' + (number % 10) as u8];
        match core::str::from_utf8(&digit) {
            Ok(digit) => rest.text(digit),
            Err(_) => rest,
        }
    }

    /// The sentence.
    pub const fn as_str(&self) -> &str {
        match core::str::from_utf8(self.bytes.split_at(self.len).0) {
            Ok(text) => text,
            Err(_) => "",
        }
    }
}
