//! A rank's product: its part of the weight, and the kernels for each number of tokens.

use std::collections::HashMap;

use falchion::collective::{BlockScales, Format, Formula, Input};
use falchion::cute_rs::atom::Major;
use falchion::kernel::{Call, GemmProblem, LinearArguments, Request, Types};
use falchion_core::{Epilogue, Gemm, Kind as SlotKind, Slot, aligned};
use half::{bf16, f16};

use super::cut::{Part, divided};
use crate::device::{Memory, Ready};
use crate::element::{Element, Kind};
use crate::error::Error;
use crate::group::{Group, exactly};

/// An argument of an epilogue's text.
#[derive(Clone, Debug, PartialEq)]
pub enum Argument {
    /// A number.
    Scalar(f32),
    /// One number per column of the whole output. Each rank takes those of its columns.
    Columns(Vec<f32>),
}

/// The scales of `tokens` rows of `k` numbers.
pub(crate) fn scale_count(tokens: u32, k: u32) -> usize {
    let [[blocks, tokens], _] = BlockScales::packed_extents([tokens, 1, k], [1, 128]);
    blocks as usize * tokens as usize
}

/// The scales of a weight of `n` rows of `k` numbers.
pub(crate) fn weight_scale_count(n: u32, k: u32) -> usize {
    let [_, [rows, blocks]] = BlockScales::packed_extents([1, n, k], [1, 128]);
    rows as usize * blocks as usize
}

/// What a kernel was chosen for: tokens of a chunk, chunks, and the alignment of input and output.
type Key = (u32, u32, [u32; 2]);

pub(crate) struct Product {
    types: Types,
    /// The rank's part: outputs and inputs.
    pub(crate) extents: [u32; 2],
    weight: Memory,
    scales: Option<Memory>,
    formula: Option<Formula>,
    /// By name: a number, or a vector for the rank's columns.
    arguments: HashMap<String, Argument>,
    vectors: HashMap<&'static str, Memory>,
    prepared: HashMap<Key, Prepared>,
}

struct Prepared {
    ready: Ready,
    call: Call<Epilogue>,
}

impl Product {
    /// The product of numbers `A` that gives numbers `D`.
    pub(crate) fn new<A: Element, D: Element>(group: &Group, kind: Kind, part: &Part) -> Result<Self, Error> {
        if kind != A::KIND {
            return Err(Error::argument("the weight's dtype", kind.name(), A::KIND.name()));
        }
        let Kind::Float(format) = kind else {
            return Err(Error::argument("the weight's dtype", kind.name(), "bf16, f16 or e4m3"));
        };
        let types = match (format, &part.scales) {
            (Format::E4m3, Some(_)) => Types::of(format).scaled([1, 128]),
            (Format::E4m3 | Format::Bf16 | Format::F16, None) => Types::of(format),
            (other, _) => {
                return Err(Error::argument("the weight's dtype", other.name(), "bf16, f16 or e4m3"));
            }
        };
        if Kind::Float(types.d) != D::KIND {
            return Err(Error::argument("the output's dtype", D::KIND.name(), types.d.name()));
        }
        let store = |bytes: &[u8]| {
            let memory = group.device().allocate(bytes.len())?;
            group.device().write(&memory, bytes)?;
            Ok::<_, Error>(memory)
        };
        let [n, k] = part.extents;
        // Scales of the weight: rows of 128 outputs, whose blocks along K are padded.
        let scales = part.scales.as_ref().map(|scales| {
            let [_, [blocks, padded]] = BlockScales::packed_extents([1, n, k], [1, 128]);
            let mut bytes = Vec::new();
            for row in scales.chunks_exact(k.div_ceil(128) as usize) {
                let padding = core::iter::repeat_n(&0.0, padded as usize - row.len());
                row.iter()
                    .chain(padding)
                    .for_each(|scale: &f32| bytes.extend_from_slice(&scale.to_le_bytes()));
            }
            debug_assert_eq!(bytes.len(), (blocks * padded * 4) as usize);
            store(&bytes)
        });
        Ok(Self {
            types,
            extents: part.extents,
            weight: store(&part.bytes)?,
            scales: scales.transpose()?,
            formula: None,
            arguments: HashMap::new(),
            vectors: HashMap::new(),
            prepared: HashMap::new(),
        })
    }

    pub(crate) fn is_scaled(&self) -> bool {
        self.scales.is_some()
    }

    /// Columns of the rank's output.
    pub(crate) fn columns(&self) -> u32 {
        self.extents[0] >> self.halvings()
    }

    /// How many times the epilogue halves the columns.
    pub(crate) fn halvings(&self) -> u32 {
        self.formula.map_or(0, Formula::halvings)
    }

    /// Sets the epilogue: a formula of `acc`.
    pub(crate) fn fuse(&mut self, text: &str, arguments: HashMap<String, Argument>) -> Result<(), Error> {
        self.formula = Some(falchion_core::formula(text, self.types.a, Some(self.types.d))?);
        (self.arguments, self.prepared, self.vectors) = (arguments, HashMap::new(), HashMap::new());
        Ok(())
    }

    /// Enqueues the product of `chunks` times `tokens` rows. `a` and `scales` are the first chunk's.
    pub(crate) fn enqueue(
        &mut self,
        group: &mut Group,
        what: &str,
        [tokens, chunks]: [u32; 2],
        (a, scales): (u64, u64),
        d: u64,
    ) -> Result<(), Error> {
        let key = self.ready(group, what, [tokens, chunks], a, d)?;
        let Some(Prepared { ready, call }) = self.prepared.get(&key) else { return Ok(()) };
        let mut call = call.clone();
        (call.a.address, call.d.address) = (a, d);
        if let Some(own) = &mut call.scales {
            own.a.address = scales;
        }
        group.device().multiply(ready, call)
    }

    /// Prepares a product, and agrees on it with the other ranks: one that brings another shape must not reach
    /// their collective.
    pub(crate) fn ready(
        &mut self,
        group: &mut Group,
        what: &str,
        [tokens, chunks]: [u32; 2],
        a: u64,
        d: u64,
    ) -> Result<Key, Error> {
        let key = (tokens, chunks, [a, d].map(|address| address.trailing_zeros().min(8)));
        if tokens > 0 && !self.prepared.contains_key(&key) {
            let prepared = self.prepare(group, key)?;
            let [n, k] = self.extents;
            group.exchange(
                &format!("{what}: {chunks} x {tokens} tokens, {n} x {k} {} per rank", self.types),
                &[],
            )?;
            self.prepared.insert(key, prepared);
        }
        Ok(key)
    }

    fn prepare(&mut self, group: &Group, (tokens, chunks, aligned_to): Key) -> Result<Prepared, Error> {
        let [n, k] = self.extents;
        let request = Request::packed(self.types, [Major::K; 2], GemmProblem { m: tokens, n, k });
        let request = self.formula.map_or(request, |formula| request.fused(formula));
        let mut request = if chunks > 1 { request.batched(chunks) } else { request };
        let [a, d] = aligned_to.map(|zeros| aligned(1 << zeros));
        (request.call.a.address, request.call.d.address) = (a, d);
        request.call.b.address = self.weight.buffer.address;
        // All chunks have one weight.
        request.call.b.stride = 0;
        if let (Some(scales), Some(own)) = (&mut request.call.scales, &self.scales) {
            scales.a.address = aligned(256);
            (scales.b.address, scales.b.stride) = (own.buffer.address, 0);
        }
        let gemm = Gemm::new(&request, None, group.machine())?;
        let epilogue = match self.formula {
            None => Epilogue::Linear(LinearArguments::default()),
            Some(_) => {
                let slots = std::sync::Arc::clone(gemm.slots());
                let inputs = slots.iter().map(|slot| self.input(group, *slot)).collect::<Result<_, _>>()?;
                self.all_are_used(&slots)?;
                Epilogue::Fused(slots, inputs, chunks)
            }
        };
        let call = request.call.with(epilogue);
        let ready = group.device().prepare(gemm, &call)?;
        Ok(Prepared { ready, call })
    }

    fn all_are_used(&self, slots: &[Slot]) -> Result<(), Error> {
        let unused = self.arguments.keys().find(|name| slots.iter().all(|slot| slot.name != name.as_str()));
        unused.map_or(Ok(()), |name| {
            let names: Vec<_> = slots.iter().map(|slot| slot.name).collect();
            Err(Error::argument("an argument of the epilogue", name, format!("one of {}", names.join(", "))))
        })
    }

    /// The value of an argument of the epilogue.
    fn input(&mut self, group: &Group, Slot { name, kind }: Slot) -> Result<Option<Input>, Error> {
        let field = || format!("the epilogue's argument `{name}`");
        match (kind, self.arguments.get(name)) {
            (SlotKind::Scalar, Some(Argument::Scalar(number))) => Ok(Some(Input::Scalar(*number))),
            (SlotKind::Scalar, None) => Ok(None),
            (SlotKind::Scalar, Some(Argument::Columns(_))) => {
                Err(Error::argument(field(), "a vector", "a number"))
            }
            (
                SlotKind::Memory {
                    format, extents: [1, len], matrix: false, writes: false, each: false, ..
                },
                Some(Argument::Columns(numbers)),
            ) => {
                exactly(&field(), numbers.len(), len as usize)?;
                if let Some(memory) = self.vectors.get(name) {
                    return Ok(Some(Input::Address(memory.buffer.address)));
                }
                let mut bytes = Vec::new();
                for &number in numbers {
                    match format {
                        Format::F32 => bytes.extend_from_slice(&number.to_le_bytes()),
                        Format::Bf16 => bytes.extend_from_slice(&bf16::from_f32(number).to_le_bytes()),
                        Format::F16 => bytes.extend_from_slice(&f16::from_f32(number).to_le_bytes()),
                        other => {
                            return Err(Error::argument(
                                field(),
                                other.name(),
                                "a vector of f32, bf16 or f16",
                            ));
                        }
                    }
                }
                let memory = group.device().allocate(bytes.len())?;
                group.device().write(&memory, &bytes)?;
                let address = memory.buffer.address;
                self.vectors.insert(name, memory);
                Ok(Some(Input::Address(address)))
            }
            (SlotKind::Memory { .. }, None) => {
                Err(Error::argument(field(), "missing", "a vector, one number per column"))
            }
            (SlotKind::Memory { .. }, Some(Argument::Scalar(_))) => {
                Err(Error::argument(field(), "a number", "a vector, one number per column"))
            }
            _ => Err(Error::argument(
                field(),
                "a matrix, an output or a mask",
                "a number, or a vector along n",
            )),
        }
    }
}

impl core::fmt::Debug for Product {
    fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
        f.debug_struct("Product")
            .field("types", &self.types)
            .field("extents", &self.extents)
            .finish_non_exhaustive()
    }
}

/// A rank's part of the vectors among arguments. The `rows` outputs of all ranks are cut into these ranges, and
/// the epilogue halves the columns so many times.
pub(crate) fn cut_arguments(
    arguments: &[(&str, Argument)],
    rows: u32,
    ranges: &[[u32; 2]],
    halvings: u32,
) -> Result<HashMap<String, Argument>, Error> {
    let cut = |(name, argument): &(&str, Argument)| {
        let field = || format!("the epilogue's argument `{name}`");
        let own = match argument {
            Argument::Scalar(_) => argument.clone(),
            Argument::Columns(numbers) => {
                // Of the columns before the epilogue joins them, or after it.
                let joined = if numbers.len() == rows as usize { 0 } else { halvings };
                exactly(&field(), numbers.len(), (rows >> joined) as usize)?;
                if joined > 0 && ranges.len() > 1 {
                    // Which columns are joined is the formula's matter.
                    let needed = "none, as it follows joined columns and the weight is cut in parts";
                    return Err(Error::argument(field(), "a vector", needed));
                }
                let part = |&[first, count]: &[u32; 2]| {
                    let [first, end] = [first, first + count].map(|at| (at >> joined) as usize);
                    numbers[first..end].iter().copied()
                };
                Argument::Columns(ranges.iter().flat_map(part).collect())
            }
        };
        Ok(((*name).to_owned(), own))
    };
    arguments.iter().map(cut).collect()
}

/// The tokens of all ranks, of which each has a part.
pub(crate) fn part_of_tokens(tokens: u32, size: u32) -> Result<u32, Error> {
    divided("the number of tokens", tokens, size)
}
