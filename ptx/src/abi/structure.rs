//! Arguments that are structures: bytes, with tensor maps in them.
//!
//! ```
//! use ptx::abi::{Argument, Structure};
//!
//! // struct { float *out; int count; }
//! let mut params = Structure::new(16);
//! params.put(0, &0x1000u64.to_le_bytes());
//! params.put(8, &300u32.to_le_bytes());
//! assert_eq!((params.bytes[0], params.bytes[1]), (0, 0x10));
//! let argument = Argument::from(params);
//! # assert!(matches!(argument, Argument::Bytes(_)));
//! ```

use super::{Argument, Im2colMap, MapDescription, TensorMap};

/// The value of a parameter of the kind [`ParamKind::Bytes`](crate::ParamKind::Bytes).
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Structure {
    /// The bytes, of which those of tensor maps are replaced.
    pub bytes: Vec<u8>,
    /// Tiled tensor maps, each with its offset in bytes.
    pub tiled: Vec<(usize, TensorMap)>,
    /// Im2col tensor maps, each with its offset in bytes.
    pub im2col: Vec<(usize, Im2colMap)>,
}

impl Structure {
    /// A structure of this many zeros.
    pub fn new(bytes: usize) -> Self {
        Self { bytes: vec![0; bytes], ..Self::default() }
    }

    /// The tensor maps, each with its offset in bytes.
    pub fn maps(&self) -> impl Iterator<Item = (usize, MapDescription<'_>)> {
        let tiled = self.tiled.iter().map(|(at, map)| (*at, MapDescription::Tiled(map)));
        tiled.chain(self.im2col.iter().map(|(at, map)| (*at, MapDescription::Im2col(map))))
    }

    /// Writes bytes at an offset. Those beyond the end are left out.
    pub fn put(&mut self, offset: usize, bytes: &[u8]) {
        let place = self.bytes.iter_mut().skip(offset);
        place.zip(bytes).for_each(|(place, byte)| *place = *byte);
    }
}

impl From<Structure> for Argument {
    fn from(structure: Structure) -> Self {
        Self::Bytes(structure)
    }
}
