//! A rank's product: its part of the weight, and the kernels for each number of tokens.

use std::collections::{HashMap, HashSet};

use falchion::collective::tree::Shape;
use falchion::collective::{BlockScales, Format, Formula, Input};
use falchion::cute_rs::atom::Major;
use falchion::kernel::{Call, GemmProblem, LinearArguments, Request, Types};
use falchion_core::{Epilogue, Kind as SlotKind, Slot, aligned};

use super::cut::{Part, divided};
use crate::device::{Memory, Ready};
use crate::element::{Element, Kind};
use crate::error::Error;
use crate::group::{Group, exactly};
use crate::tensor::{Slice, SliceMut};

/// An argument of an epilogue's text.
#[derive(Clone, Debug, PartialEq)]
pub enum Argument {
    /// A number.
    Scalar(f64),
    /// One number per column of the whole output. Each rank takes those of its columns.
    Columns(Vec<f32>),
}

/// Memory for an argument of an epilogue's text that comes with a call: a matrix such as `c[m,n]`, with the rows and columns of
/// the rank's output, a vector, or an output such as `store(aux[m,n], acc)`.
#[derive(Debug)]
pub struct Operand<'a> {
    address: u64,
    len: usize,
    kind: Kind,
    writes: bool,
    of: core::marker::PhantomData<&'a mut ()>,
}

impl<'a, T: Element> From<Slice<'a, T>> for Operand<'a> {
    fn from(of: Slice<'a, T>) -> Self {
        let (address, len) = (of.address(), of.len());
        Self { address, len, kind: T::KIND, writes: false, of: core::marker::PhantomData }
    }
}

impl<'a, T: Element> From<SliceMut<'a, T>> for Operand<'a> {
    fn from(of: SliceMut<'a, T>) -> Self {
        let (address, len) = (of.address(), of.len());
        Self { address, len, kind: T::KIND, writes: true, of: core::marker::PhantomData }
    }
}

/// Arguments by name that come with a call.
pub(crate) type Operands<'a> = &'a [(&'a str, Operand<'a>)];

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
    /// Tokens and chunks of which the other ranks know.
    agreed: HashSet<[u32; 2]>,
}

struct Prepared {
    ready: Ready,
    call: Call<Epilogue>,
    /// Which arguments of the epilogue come with a call, and whether they have something for each token.
    given: Vec<(usize, Slot, bool)>,
}

/// What is multiplied with a weight.
pub(crate) fn multiplied(field: &str, kind: Kind, part: &Part) -> Result<Types, Error> {
    match (kind, &part.scales) {
        (Kind::Float(format @ Format::E4m3), Some(_)) => Ok(Types::of(format).scaled([1, 128])),
        (Kind::Float(format @ (Format::E4m3 | Format::Bf16 | Format::F16)), None) => Ok(Types::of(format)),
        (other, _) => Err(Error::argument(field, other.name(), "bf16, f16 or e4m3")),
    }
}

/// Copies a rank's part of a weight to its device, and its scales as kernels want them: rows of 128 outputs, whose blocks
/// along K are padded.
pub(crate) fn stored(group: &Group, part: &Part) -> Result<(Memory, Option<Memory>), Error> {
    let store = |bytes: &[u8]| group.device().upload(bytes);
    let [n, k] = part.extents;
    let scales = part.scales.as_ref().map(|scales| {
        let [_, [blocks, padded]] = BlockScales::packed_extents([1, n, k], [1, 128]);
        let mut bytes = Vec::new();
        for row in scales.chunks_exact(k.div_ceil(128) as usize) {
            let padding = core::iter::repeat_n(&0.0, padded as usize - row.len());
            row.iter().chain(padding).for_each(|scale: &f32| bytes.extend_from_slice(&scale.to_le_bytes()));
        }
        debug_assert_eq!(bytes.len(), (blocks * padded * 4) as usize);
        store(&bytes)
    });
    Ok((store(&part.bytes)?, scales.transpose()?))
}

impl Product {
    /// The product of numbers `A` that gives numbers `D`.
    pub(crate) fn new<A: Element, D: Element>(group: &Group, kind: Kind, part: &Part) -> Result<Self, Error> {
        if kind != A::KIND {
            return Err(Error::argument("the weight's dtype", kind.name(), A::KIND.name()));
        }
        let types = multiplied("the weight's dtype", kind, part)?;
        if Kind::Float(types.d) != D::KIND {
            return Err(Error::argument("the output's dtype", D::KIND.name(), types.d.name()));
        }
        let (weight, scales) = stored(group, part)?;
        Ok(Self {
            types,
            extents: part.extents,
            weight,
            scales,
            formula: None,
            arguments: HashMap::new(),
            vectors: HashMap::new(),
            prepared: HashMap::new(),
            agreed: HashSet::new(),
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
        operands: Operands<'_>,
    ) -> Result<(), Error> {
        let launches = if operands.is_empty() { 1 } else { chunks };
        let [n, k] = [self.columns(), self.extents[1]].map(u64::from);
        let of = |format: Format, columns: u64| u64::from(tokens) * columns * u64::from(format.bytes());
        let [next_a, next_d] = [of(self.types.a, k), of(self.types.d, n)];
        let next_scales = 4 * scale_count(tokens, self.extents[1]) as u64;
        for i in 0..launches {
            let (a, d) = (a + u64::from(i) * next_a, d + u64::from(i) * next_d);
            let key = self.ready(group, what, [tokens, chunks / launches], a, d)?;
            let Some(Prepared { ready, call, given }) = self.prepared.get(&key) else { return Ok(()) };
            let mut call = call.clone();
            (call.a.address, call.d.address) = (a, d);
            if let Some(own) = &mut call.scales {
                own.a.address = scales + u64::from(i) * next_scales;
            }
            bind(&mut call.epilogue, given, operands, [i, launches])?;
            group.device().multiply(ready, call)?;
        }
        Ok(())
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
            // Addresses are a rank's own matter.
            if self.agreed.insert([tokens, chunks]) {
                group.exchange(
                    &format!("{what}: {chunks} x {tokens} tokens, {n} x {k} {} per rank", self.types),
                    &[],
                )?;
            }
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
        let gemm = group.gemm(&request)?;
        let (mut epilogue, mut given) = (Epilogue::Linear(LinearArguments::default()), Vec::new());
        if let Some(formula) = self.formula {
            let slots = std::sync::Arc::clone(gemm.kernel().slots());
            let inputs = slots.iter().map(|slot| self.input(group, *slot)).collect::<Result<Vec<_>, _>>()?;
            self.all_are_used(&slots)?;
            let shape = Shape { m: tokens + 1, n: self.columns() };
            let longer = falchion_core::slots(formula, self.types.a, shape);
            let of_call = slots.iter().zip(&longer).enumerate().filter(|(i, (slot, _))| {
                inputs[*i].is_none() && matches!(slot.kind, SlotKind::Memory { .. })
            });
            given.extend(of_call.map(|(i, (slot, longer))| (i, *slot, slot.kind != longer.kind)));
            epilogue = Epilogue::Fused(slots, inputs, chunks);
        }
        let call = request.call.with(epilogue);
        let ready = group.device().prepare(gemm, &call)?;
        Ok(Prepared { ready, call, given })
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
                if !matches!(format, Format::F32 | Format::Bf16 | Format::F16) {
                    return Err(Error::argument(field(), format.name(), "a vector of f32, bf16 or f16"));
                }
                let mut bytes = Vec::new();
                for &number in numbers {
                    let element = format.encode(number.into()).to_le_bytes();
                    bytes.extend_from_slice(&element[..format.bytes() as usize]);
                }
                let memory = group.device().upload(&bytes)?;
                let address = memory.buffer.address;
                self.vectors.insert(name, memory);
                Ok(Some(Input::Address(address)))
            }
            // It comes with a call.
            (SlotKind::Memory { each: false, .. }, None) => Ok(None),
            (SlotKind::Memory { .. }, Some(Argument::Scalar(_))) => {
                Err(Error::argument(field(), "a number", "a vector, one number per column"))
            }
            (SlotKind::Memory { each: false, .. }, Some(Argument::Columns(_))) => {
                let needed = "an operand of the call: only vectors along n are given to a layer";
                Err(Error::argument(field(), "a vector", needed))
            }
            (SlotKind::Memory { each: true, .. }, _) => {
                Err(Error::argument(field(), "an own one per GEMM", "one without `l`: a layer is one GEMM"))
            }
            (SlotKind::Scratch(_) | SlotKind::Mask, _) => {
                let needed = "a number, a vector or a matrix";
                Err(Error::argument(field(), "a mask, or memory of an ordered sum", needed))
            }
        }
    }
}

/// Sets the arguments of an epilogue that come with a call: those of a chunk of some.
fn bind(
    epilogue: &mut Epilogue,
    given: &[(usize, Slot, bool)],
    operands: Operands<'_>,
    [chunk, chunks]: [u32; 2],
) -> Result<(), Error> {
    let field = |name: &str| format!("the epilogue's argument `{name}`");
    if let Some((name, _)) =
        operands.iter().find(|(name, _)| given.iter().all(|(_, slot, _)| slot.name != *name))
    {
        let names: Vec<_> = given.iter().map(|(_, slot, _)| slot.name).collect();
        let needed =
            if names.is_empty() { "none".to_owned() } else { format!("one of {}", names.join(", ")) };
        return Err(Error::argument("an operand of the call", *name, needed));
    }
    let Epilogue::Fused(_, inputs, _) = epilogue else { return Ok(()) };
    for (i, Slot { name, kind }, each_token) in given {
        let SlotKind::Memory { format, extents, matrix, writes, .. } = *kind else { continue };
        let Some((_, of)) = operands.iter().find(|(given, _)| given == name) else {
            let what = if writes {
                "an output"
            } else if matrix {
                "a matrix"
            } else {
                "a vector"
            };
            return Err(Error::argument(
                field(name),
                "missing",
                format!("{what}, with the layer or the call"),
            ));
        };
        if of.kind != Kind::Float(format) {
            return Err(Error::argument(field(name), of.kind.name(), format.name()));
        }
        if writes && !of.writes {
            return Err(Error::argument(field(name), "read only", "memory that is written: `view_mut()`"));
        }
        let [rows, columns] = extents.map(|extent| extent as usize);
        let parts = if *each_token { [chunk, chunks] } else { [0, 1] }.map(|part| part as usize);
        exactly(&field(name), of.len, rows * columns * parts[1])?;
        let address = of.address + (parts[0] * rows * columns * of.kind.bytes()) as u64;
        inputs[*i] = Some(match matrix {
            true => Input::matrix(address, columns as u64),
            false => Input::Address(address),
        });
    }
    Ok(())
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
