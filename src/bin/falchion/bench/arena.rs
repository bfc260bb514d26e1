//! Inputs on the device: random numbers written once, of which every shape takes its matrices.

use half::{bf16, f16};
use kernel::{AnyGemm, Buffer, Call, Engine, GemmProblem, Gpu, WorkspaceRef};

use cute_rs::atom::Major;

use crate::{Failure, memory};

/// Bytes of inputs that are sure not to stay in an L2 cache of 60 MB.
const ROTATION_BYTES: u64 = 200_000_000;

/// Most sets of matrices that are taken in turn.
const MOST_SETS: u64 = 8;

/// Where matrices begin.
const ALIGNMENT: u64 = 256;

/// Device memory for the largest shape: operands, and outputs, which are never read as operands.
pub(super) struct Arena {
    operands: Buffer,
    outputs: Buffer,
}

/// A set of matrices, by their addresses; the peer is given the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Set {
    pub(super) a: u64,
    pub(super) b: u64,
    pub(super) d: u64,
}

/// Bytes of a shape's A, B and D, each up to where the next may begin.
fn bytes(GemmProblem { m, n, k }: GemmProblem) -> [u64; 3] {
    [[m, k], [n, k], [m, n]]
        .map(|[rows, columns]| (u64::from(rows) * u64::from(columns) * 2).next_multiple_of(ALIGNMENT))
}

/// Fails for a shape whose matrices cannot be numbered, or filled on this machine.
pub(super) fn possible(shape: GemmProblem) -> Result<(), Failure> {
    let GemmProblem { m, n, k } = shape;
    for (name, extent) in [("M", m), ("N", n), ("K", k)] {
        if extent > i32::MAX as u32 {
            return Err(Failure::usage(format!(
                "{name} is {extent} in {m} x {n} x {k}, at most {} is possible",
                i32::MAX
            )));
        }
    }
    // Sets are several only where they are small.
    let [m, n, k] = [m, n, k].map(u128::from);
    let all = u128::from(ROTATION_BYTES) + 2 * (m * k + n * k + m * n);
    memory::enough(&format!("{m} x {n} x {k}"), all, "M, N or K")
}

/// How many sets do not fit the L2 cache together.
fn count(shape: GemmProblem) -> u64 {
    (ROTATION_BYTES / bytes(shape).iter().sum::<u64>().max(1) + 1).min(MOST_SETS)
}

/// Random normal values of the element type, enough to fill matrices by repetition.
pub(super) fn random(dtype: &str) -> Result<Vec<u8>, Failure> {
    let narrow: fn(f32) -> [u8; 2] = match dtype {
        "bf16" => |value| bf16::from_f32(value).to_le_bytes(),
        "f16" => |value| f16::from_f32(value).to_le_bytes(),
        other => return Err(Failure::usage(format!("--dtype is `{other}`, one of bf16 and f16 was needed"))),
    };
    let mut random = fastrand::Rng::with_seed(1);
    // An odd count, so that rows of a repeated matrix differ.
    let count = (8 << 20) + 1;
    let normal = |random: &mut fastrand::Rng| {
        let (radius, angle) = (1.0 - random.f32(), random.f32() * core::f32::consts::TAU);
        (-2.0 * radius.ln()).sqrt() * angle.cos()
    };
    Ok((0..count).flat_map(|_| narrow(normal(&mut random))).collect())
}

impl Arena {
    /// Memory for all of these shapes, one at a time.
    pub(super) fn new(gpu: &mut Gpu, data: &[u8], shapes: &[GemmProblem]) -> Result<Self, Failure> {
        let most = |part: fn([u64; 3]) -> u64| {
            let bytes = shapes.iter().map(|&shape| part(bytes(shape)) * count(shape)).max().unwrap_or(0);
            usize::try_from(bytes).unwrap_or(usize::MAX)
        };
        let (operand_bytes, output_bytes) = (most(|[a, b, _]| a + b), most(|[_, _, d]| d));
        let mut content = Vec::new();
        content.try_reserve_exact(operand_bytes).map_err(|_| {
            Failure::environment(format!("{operand_bytes} B of operands are more than this machine's memory"))
        })?;
        while content.len() < operand_bytes {
            content.extend_from_slice(&data[..data.len().min(operand_bytes - content.len())]);
        }
        Ok(Self { operands: gpu.upload(&content)?, outputs: gpu.allocate(output_bytes)? })
    }

    /// A shape's sets.
    pub(super) fn sets(&self, shape: GemmProblem) -> Vec<Set> {
        let [a, b, d] = bytes(shape);
        let set = |i| {
            let start = self.operands.address + i * (a + b);
            Set { a: start, b: start + a, d: self.outputs.address + i * d }
        };
        (0..count(shape)).map(set).collect()
    }

    pub(super) fn free(self, gpu: &mut Gpu) -> Result<(), Failure> {
        gpu.free(self.operands)?;
        Ok(gpu.free(self.outputs)?)
    }
}

impl Set {
    /// The call of a kernel on this set, matrices packed.
    pub(super) fn call(
        &self,
        problem: GemmProblem,
        entry: &AnyGemm,
        workspace: Option<WorkspaceRef>,
    ) -> Call {
        let [a_major, b_major] = entry.plan().majors();
        let pitch = |major, mn: u32| u64::from(if major == Major::K { problem.k } else { mn });
        let [a, b] = [pitch(a_major, problem.m), pitch(b_major, problem.n)];
        let call = Call::of(problem).a(self.a, a).b(self.b, b).d(self.d, problem.n.into());
        Call { workspace, ..call }
    }
}

#[cfg(test)]
mod tests {
    use kernel::{Buffer, GemmProblem};

    use super::{Arena, Set, bytes, count};

    #[test]
    fn sets_lie_side_by_side() {
        let shape = GemmProblem { m: 100, n: 30, k: 8 };
        assert_eq!(bytes(shape), [1792, 512, 6144], "1600, 480 and 6000 B up to the next 256");
        let buffer = |address| Buffer { address, bytes: 0 };
        let sets = Arena { operands: buffer(1 << 20), outputs: buffer(1 << 30) }.sets(shape);
        let at =
            |i: u64| Set { a: (1 << 20) + 2304 * i, b: (1 << 20) + 2304 * i + 1792, d: (1 << 30) + 6144 * i };
        assert_eq!(sets, (0..8).map(at).collect::<Vec<_>>());
    }

    #[test]
    fn sets_are_more_than_the_cache() {
        for (extent, want) in [(512, 8), (4096, 2), (8192, 1), (2048, 8)] {
            assert_eq!(count(GemmProblem { m: extent, n: extent, k: extent }), want, "{extent}");
        }
    }
}
