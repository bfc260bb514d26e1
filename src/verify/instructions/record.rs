//! A file of a GPU's outputs, for comparisons on a machine without a GPU.
//!
//! The file is a sequence of records. Each has the length of a form's name (4 bytes, little-endian), the
//! name, the length of the form's outputs (4 bytes), and the outputs.

use std::collections::BTreeMap;

/// The outputs of forms, by the form's name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Record {
    outputs: BTreeMap<String, Vec<u8>>,
}

/// Why outputs cannot be read from a record.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RecordError {
    /// The file is no record, or is truncated.
    #[error("the record breaks off or is none: {bytes} bytes, {at} of them read")]
    Malformed {
        /// Size of the file in bytes.
        bytes: usize,
        /// Number of bytes read before the error.
        at: usize,
    },
    /// The form is not in the record.
    #[error("the record has no outputs of form `{form}`")]
    Missing {
        /// The form's name.
        form: String,
    },
}

impl Record {
    /// Adds a form's outputs.
    pub fn insert(&mut self, form: &str, outputs: Vec<u8>) {
        self.outputs.insert(form.to_owned(), outputs);
    }

    /// A form's outputs.
    ///
    /// # Errors
    /// [`RecordError::Missing`].
    pub fn get(&self, form: &str) -> Result<&[u8], RecordError> {
        let outputs = self.outputs.get(form).map(Vec::as_slice);
        outputs.ok_or_else(|| RecordError::Missing { form: form.to_owned() })
    }

    /// Serialises the record as a file.
    pub fn to_bytes(&self) -> Vec<u8> {
        let mut bytes = Vec::new();
        for (name, outputs) in &self.outputs {
            for part in [name.as_bytes(), outputs] {
                bytes.extend(u32::try_from(part.len()).unwrap_or(u32::MAX).to_le_bytes());
                bytes.extend(part);
            }
        }
        bytes
    }

    /// Reads a record from a file's bytes.
    ///
    /// # Errors
    /// [`RecordError::Malformed`].
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, RecordError> {
        fn part<'a>(rest: &mut &'a [u8]) -> Option<&'a [u8]> {
            let (length, tail) = rest.split_first_chunk::<4>()?;
            let (part, tail) = tail.split_at_checked(u32::from_le_bytes(*length) as usize)?;
            *rest = tail;
            Some(part)
        }
        let mut outputs = BTreeMap::new();
        let mut rest = bytes;
        while !rest.is_empty() {
            let malformed = RecordError::Malformed { bytes: bytes.len(), at: bytes.len() - rest.len() };
            let name = part(&mut rest).and_then(|name| String::from_utf8(name.to_vec()).ok());
            let (Some(name), Some(own)) = (name, part(&mut rest)) else { return Err(malformed) };
            outputs.insert(name, own.to_vec());
        }
        Ok(Self { outputs })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_survives_its_file() {
        let mut record = Record::default();
        record.insert("one", vec![1, 2, 3]);
        record.insert("two", vec![]);
        let bytes = record.to_bytes();
        assert_eq!(Record::from_bytes(&bytes), Ok(record.clone()));
        assert_eq!(record.get("one"), Ok(&[1, 2, 3][..]));
        assert!(matches!(record.get("three"), Err(RecordError::Missing { form }) if form == "three"));
        let broken = Record::from_bytes(&bytes[..bytes.len() - 1]);
        assert_eq!(broken, Err(RecordError::Malformed { bytes: bytes.len() - 1, at: 14 }));
    }
}
