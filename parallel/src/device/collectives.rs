//! Collectives in the emulator, over the sockets of the group.

use falchion::collective::Format;
use falchion::kernel::Emulator;
use half::{bf16, f16};

use super::nccl::{Collective, Reduction};
use crate::control::Control;
use crate::element::{Element, Kind, bytes, numbers};
use crate::error::Error;

/// A collective in the emulator: what a rank sends goes over its socket.
pub(super) fn emulated(
    engine: &mut Emulator,
    control: &mut Control,
    kind: Kind,
    operation: &Collective,
) -> Result<(), Error> {
    let (rank, size, width) = (control.rank() as usize, control.members().len(), kind.bytes());
    match operation {
        Collective::AllGather { from, to, count } => {
            let own = peek(engine, *from, count * width)?;
            let all = control.exchange(&format!("all-gather of {count} {}", kind.name()), &own)?;
            poke(engine, *to, &all.concat())
        }
        Collective::AllReduce { from, to, count, by } => {
            let own = peek(engine, *from, count * width)?;
            let all = control.exchange(&format!("all-reduce of {count} {}", kind.name()), &own)?;
            poke(engine, *to, &reduced(kind, *by, &all)?)
        }
        Collective::ReduceScatter { from, to, count } => {
            let own = peek(engine, *from, size * count * width)?;
            let all = control.exchange(&format!("reduce-scatter of {count} {}", kind.name()), &own)?;
            let part = rank * count * width..(rank + 1) * count * width;
            let parts: Vec<_> = all.iter().map(|all| all[part.clone()].to_vec()).collect();
            poke(engine, *to, &reduced(kind, Reduction::Sum, &parts)?)
        }
        Collective::AllToAll { from, to, sent, received } => {
            // What goes to each rank, behind its bytes.
            let to_peers = (0..size).map(|peer| {
                let own = sent.iter().filter(|of| of.peer as usize == peer);
                let bytes = own.map(|of| peek(engine, from + (of.first * width) as u64, of.count * width));
                bytes.collect::<Result<Vec<_>, _>>().map(|bytes| bytes.concat())
            });
            let to_peers = to_peers.collect::<Result<Vec<_>, Error>>()?;
            let mut own: Vec<u8> =
                to_peers.iter().flat_map(|bytes| (bytes.len() as u64).to_le_bytes()).collect();
            own.extend(to_peers.concat());
            let all = control.exchange(&format!("all-to-all of {}", kind.name()), &own)?;
            for (peer, of_peer) in all.iter().enumerate() {
                let (lengths, bytes) = of_peer.split_at(8 * size);
                let lengths: Vec<usize> =
                    lengths.chunks_exact(8).map(|length| numbers_of(length) as usize).collect();
                let (begin, sent) = (lengths[..rank].iter().sum::<usize>(), lengths[rank]);
                let own = || received.iter().filter(|of| of.peer as usize == peer);
                let needed: usize = own().map(|of| of.count * width).sum();
                if sent != needed {
                    let needed = (needed / width).to_string();
                    return Err(Error::argument(format!("numbers from rank {peer}"), sent / width, needed));
                }
                let mut rest = &bytes[begin..begin + sent];
                for of in own() {
                    let (own, after) = rest.split_at(of.count * width);
                    poke(engine, to + (of.first * width) as u64, own)?;
                    rest = after;
                }
            }
            Ok(())
        }
    }
}

fn numbers_of(bytes: &[u8]) -> u64 {
    bytes.iter().rev().fold(0, |number, &byte| (number << 8) | u64::from(byte))
}

/// The sums or maxima of ranks' numbers, in the order of the ranks, rounded after each step as a ring does.
fn reduced(kind: Kind, by: Reduction, all: &[Vec<u8>]) -> Result<Vec<u8>, Error> {
    fn of<T: Element>(all: &[Vec<u8>], to: impl Fn(T, T) -> T) -> Vec<u8> {
        let mut parts = all.iter().map(|part| numbers::<T>(part));
        let mut sum = parts.next().unwrap_or_default();
        for part in parts {
            sum.iter_mut().zip(part).for_each(|(sum, other)| *sum = to(*sum, other));
        }
        bytes(&sum)
    }
    Ok(match (kind, by) {
        (Kind::Float(Format::Bf16), Reduction::Sum) => {
            of(all, |a: bf16, b| bf16::from_f32(a.to_f32() + b.to_f32()))
        }
        (Kind::Float(Format::F16), Reduction::Sum) => {
            of(all, |a: f16, b| f16::from_f32(a.to_f32() + b.to_f32()))
        }
        (Kind::Float(Format::F32), Reduction::Sum) => of(all, |a: f32, b| a + b),
        (Kind::Float(Format::F32), Reduction::Max) => of(all, f32::max),
        (kind, by) => {
            return Err(Error::argument(
                "a reduction",
                format!("{by:?} of {}", kind.name()),
                "a sum of bf16, f16 or f32, or a maximum of f32",
            ));
        }
    })
}

/// Bytes of the emulator's memory.
fn peek(engine: &mut Emulator, address: u64, bytes: usize) -> Result<Vec<u8>, Error> {
    engine.memory().read(address, bytes).map_err(|error| Error::Engine(error.to_string()))
}

fn poke(engine: &mut Emulator, address: u64, bytes: &[u8]) -> Result<(), Error> {
    engine.memory().write(address, bytes).map_err(|error| Error::Engine(error.to_string()))
}
