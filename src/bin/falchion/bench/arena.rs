//! Inputs on the device: random numbers written once, of which every shape takes its matrices.

use collective::{BlockScales, Format};
use kernel::{AnyGemm, Buffer, Call, Engine, GemmProblem, Gpu, Types, WorkspaceRef};

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
    types: Types,
    /// A's and B's.
    operands: [Buffer; 2],
    outputs: Buffer,
    /// Of A's blocks and B's, where they have any: the same for every set.
    scales: Option<[Buffer; 2]>,
}

/// A set of matrices, by their addresses; the peer is given the same.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Set {
    pub(super) a: u64,
    pub(super) b: u64,
    pub(super) d: u64,
    /// Of A's blocks and B's; 0 where there are none.
    pub(super) scales: [u64; 2],
}

/// Bytes of a shape's A, B and D, each up to where the next may begin.
fn bytes(types: Types, GemmProblem { m, n, k }: GemmProblem) -> [u64; 3] {
    let [a, b, d] = types.bytes().map(u64::from);
    [(m, k, a), (n, k, b), (m, n, d)].map(|(rows, columns, bytes)| {
        (u64::from(rows) * u64::from(columns) * bytes).next_multiple_of(ALIGNMENT)
    })
}

/// Extents of the scales of A's blocks, and of B's, the leading dimension last.
fn scales(types: Types, GemmProblem { m, n, k }: GemmProblem) -> [[u32; 2]; 2] {
    BlockScales::packed_extents([m, n, k], types.scaled)
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
    // Sets are several only where they are small. No element is larger than 4 B.
    let [m, n, k] = [m, n, k].map(u128::from);
    let all = u128::from(ROTATION_BYTES) + 4 * (m * k + n * k + m * n);
    memory::enough(&format!("{m} x {n} x {k}"), all, "M, N or K")
}

/// How many sets do not fit the L2 cache together.
fn count(types: Types, shape: GemmProblem) -> u64 {
    (ROTATION_BYTES / bytes(types, shape).iter().sum::<u64>().max(1) + 1).min(MOST_SETS)
}

/// Random normal values of a format, enough to fill matrices by repetition; integers have a deviation of 32.
pub(super) fn random(format: Format) -> Vec<u8> {
    let mut random = fastrand::Rng::with_seed(1);
    let (bytes, size) = (format.bytes() as usize, if format.is_float() { 1.0 } else { 32.0 });
    let narrow = |value: f32| format.encode(f64::from(value) * size).to_le_bytes().into_iter().take(bytes);
    // An odd count, so that rows of a repeated matrix differ.
    let count = (8 << 20) + 1;
    let normal = |random: &mut fastrand::Rng| {
        let (radius, angle) = (1.0 - random.f32(), random.f32() * core::f32::consts::TAU);
        (-2.0 * radius.ln()).sqrt() * angle.cos()
    };
    (0..count).flat_map(|_| narrow(normal(&mut random))).collect()
}

/// So many bytes of data, repeated.
fn repeated(data: &[u8], bytes: usize) -> Result<Vec<u8>, Failure> {
    let mut content = Vec::new();
    content.try_reserve_exact(bytes).map_err(|_| {
        Failure::environment(format!("{bytes} B of operands are more than this machine's memory"))
    })?;
    while content.len() < bytes {
        content.extend_from_slice(&data[..data.len().min(bytes - content.len())]);
    }
    Ok(content)
}

impl Arena {
    /// Memory for all of these shapes, one at a time.
    pub(super) fn new(gpu: &mut Gpu, types: Types, shapes: &[GemmProblem]) -> Result<Self, Failure> {
        let most = |of: &dyn Fn(GemmProblem) -> u64| {
            usize::try_from(shapes.iter().map(|&shape| of(shape)).max().unwrap_or(0)).unwrap_or(usize::MAX)
        };
        let part = |i: usize| most(&|shape| bytes(types, shape)[i] * count(types, shape));
        let data = random(types.a);
        let a = gpu.upload(&repeated(&data, part(0))?)?;
        let other = (types.b != types.a).then(|| random(types.b));
        let b = gpu.upload(&repeated(other.as_deref().unwrap_or(&data), part(1))?)?;
        let outputs = gpu.allocate(part(2))?;
        let scale_bytes =
            |i: usize| most(&|shape| 4 * scales(types, shape)[i].map(u64::from).iter().product::<u64>());
        let mut random = fastrand::Rng::with_seed(2);
        let mut factors = |bytes: usize| -> Vec<u8> {
            (0..bytes / 4).flat_map(|_| (0.5 + random.f32()).to_le_bytes()).collect()
        };
        let scales = match types.is_scaled() {
            true => Some([gpu.upload(&factors(scale_bytes(0)))?, gpu.upload(&factors(scale_bytes(1)))?]),
            false => None,
        };
        Ok(Self { types, operands: [a, b], outputs, scales })
    }

    /// What its matrices consist of.
    pub(super) const fn types(&self) -> Types {
        self.types
    }

    /// A shape's sets.
    pub(super) fn sets(&self, shape: GemmProblem) -> Vec<Set> {
        let [a, b, d] = bytes(self.types, shape);
        let [of_a, of_b] = self.operands.map(|buffer| buffer.address);
        let scales = self.scales.map_or([0; 2], |scales| scales.map(|buffer| buffer.address));
        let set = |i| Set { a: of_a + i * a, b: of_b + i * b, d: self.outputs.address + i * d, scales };
        (0..count(self.types, shape)).map(set).collect()
    }

    pub(super) fn free(self, gpu: &mut Gpu) -> Result<(), Failure> {
        let scales = self.scales.into_iter().flatten();
        for buffer in self.operands.into_iter().chain(scales) {
            gpu.free(buffer)?;
        }
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
        let types = Types::of_kernel(entry);
        let extents = scales(types, problem);
        let scales = types.is_scaled().then(|| BlockScales::packed(self.scales, extents));
        Call { workspace, scales, ..call }
    }
}

#[cfg(test)]
mod tests {
    use collective::Format;
    use kernel::{Buffer, GemmProblem, Types};

    use super::{Arena, Set, bytes, count, scales};

    #[test]
    fn sets_lie_side_by_side() {
        let shape = GemmProblem { m: 100, n: 30, k: 8 };
        let types = Types::of(Format::Bf16);
        assert_eq!(bytes(types, shape), [1792, 512, 6144], "1600, 480 and 6000 B up to the next 256");
        let buffer = |address| Buffer { address, bytes: 0 };
        let operands = [buffer(1 << 20), buffer(1 << 25)];
        let sets = Arena { types, operands, outputs: buffer(1 << 30), scales: None }.sets(shape);
        let at = |i: u64| Set {
            a: (1 << 20) + 1792 * i,
            b: (1 << 25) + 512 * i,
            d: (1 << 30) + 6144 * i,
            scales: [0; 2],
        };
        assert_eq!(sets, (0..8).map(at).collect::<Vec<_>>());
    }

    #[test]
    fn bytes_and_scales_follow_from_the_types() {
        let shape = GemmProblem { m: 300, n: 512, k: 640 };
        let types = Types::of(Format::E4m3).scaled([1, 128]);
        assert_eq!(bytes(types, shape), [300 * 640, 512 * 640, 300 * 512 * 2]);
        assert_eq!(
            scales(types, shape),
            [[5, 300], [4, 8]],
            "5 blocks of K, up to the next 4 where they lie together"
        );
    }

    #[test]
    fn sets_are_more_than_the_cache() {
        for (extent, want) in [(512, 8), (4096, 2), (8192, 1), (2048, 8)] {
            let shape = GemmProblem { m: extent, n: extent, k: extent };
            assert_eq!(count(Types::of(Format::Bf16), shape), want, "{extent}");
        }
    }
}
