//! Tensor copies in im2col mode.

use ptx::abi::Im2colMap;
use ptx::inst::{Im2col, Operand};

use super::Flow;
use super::bulk::tensor_reduction;
use crate::machine::Machine;
use crate::tensor_map::Map;
use crate::trap::{Fault, Stop};

/// The mode of a tensor copy: over a box, or over pixels with the operands of the filter offset.
#[derive(Clone, Copy, Debug)]
pub(super) enum Mode<'a> {
    Tile,
    Im2col(&'a [Operand]),
}

/// Refuses a base outside the bounding box and an offset with too many bits. Stores the offset in the map.
pub(super) fn placed(map: &mut Map, start: &[i64; 5], offsets: [u32; 3]) -> Result<(), Fault> {
    let (bits, spatial) = (Im2colMap::corner_bits(map.rank), map.rank - 2);
    let Some(walk) = &mut map.walk else { return Err(Fault::TensorMode { im2col: false }) };
    for dim in 0..spatial {
        let ((low, high), base) = (walk.bounds[dim], start[dim + 1]);
        if !(low..=high).contains(&base) {
            return Err(Fault::Im2colBase { dim: dim as u32, base, low, high });
        }
        let offset = offsets[dim];
        if offset >> bits != 0 {
            return Err(Fault::Im2colOffset { dim: dim as u32, offset, bits });
        }
        walk.offsets[dim] = offset.into();
    }
    Ok(())
}

impl Machine<'_> {
    pub(super) fn im2col(&mut self, warp: usize, inst: &Im2col) -> Result<Flow, Stop> {
        match inst {
            Im2col::Load { map, coords, offsets, dst, barrier, multicast, hint: _ } => {
                let places = (*dst, *barrier);
                return self.tensor_load(warp, *map, (coords, Mode::Im2col(offsets)), places, *multicast);
            }
            Im2col::Store { reduce, map, coords, src, hint: _ } => {
                let boxes = self.boxes(warp, *map, coords, Mode::Im2col(&[]))?;
                let sources = self.warps[warp].registers.read(*src)?;
                for boxed in boxes {
                    let (lane, element) = (boxed.lane, boxed.map.element);
                    let reduce = reduce.map(|op| tensor_reduction(op, element)).transpose();
                    let issued =
                        reduce.and_then(|reduce| self.issue_store(warp, boxed, sources[lane], reduce));
                    issued.map_err(|fault| fault.lane(lane))?;
                }
            }
            Im2col::Prefetch { map, coords, offsets } => {
                drop(self.boxes(warp, *map, coords, Mode::Im2col(offsets))?);
            }
        }
        Ok(Flow::Next)
    }
}
