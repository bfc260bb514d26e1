//! The arguments of attention and of its gradient, and what they ask for.

use falchion::attention::backward::BackwardCall;
use falchion::attention::formula::{FormulaKind, TextFormula};
use falchion::attention::{
    ArrayRef, Attention, AttentionCall, AttentionProblem, AttentionRequest, HeadsRef, Lengths, Mask, Packed,
    Pages,
};
use falchion::collective::{Format, FormulaError};
use falchion::kernel::Family;

use super::rows::{packed, packed_rows};
use super::{Argument, Goes, Kind, Operation, Python, Structure, Switch};
use crate::refusal::{Refusal, aligned};

/// Attention.
pub static ATTENTION: Operation<Heads, Heads> = Operation {
    name: "attention",
    described: &DESCRIBED,
    given: &GIVEN,
    without: &[("FALCHION_DETERMINISTIC", "deterministic", "only a gradient has several orders of sums")],
};

/// The gradient of attention.
pub static GRADIENT: Operation<Heads, Heads> = Operation {
    name: "attention_backward",
    described: &DESCRIBED,
    given: &GIVEN_BACK,
    without: &[
        ("FALCHION_WORKSPACE", "", "a gradient always has a workspace"),
        ("", "types", "q says it"),
        ("spec", "spec", "gradients have no spec here"),
        ("page", "", "keys in pages have no gradient"),
        ("cache", "", "keys in another format have no gradient"),
        ("FALCHION_FACTORS_PER_HEAD", "", "tensors in 8 bits have no gradient"),
        ("FALCHION_SINKS", "", "the log-sum-exp has the sinks"),
    ],
};

/// Attention as a door describes it. What is not said has its default: as many heads of K and V as of Q, V's elements as K's, `1 / sqrt(d)`,
/// and tensors that are packed.
#[derive(Clone, Debug)]
pub struct Heads {
    /// The types, extents, and what else decides the kernel.
    pub request: AttentionRequest,
    /// Heads of K and V.
    pub shared: Option<u32>,
    /// Elements of a head of V and O.
    pub dv: Option<u32>,
    /// What products are multiplied by.
    pub scale: Option<f32>,
    /// Whether a query sees no key after its own.
    pub causal: bool,
    /// Most keys before a query's own and after it, if they are limited; a negative number is no limit.
    pub window: Option<[i32; 2]>,
    /// Whether a flag says that they are.
    pub limited: bool,
    /// Elements from one row, head, and sequence to the next, of Q, K, V and O.
    pub strides: [[Option<u64>; 3]; 4],
    /// The arrays of formulas, by their names.
    pub arrays: Vec<(String, ArrayRef)>,
    /// Bytes of which O's address is a multiple.
    pub alignment: u32,
    /// The addresses, the tables and the memory of the call.
    pub call: AttentionCall,
}

/// Rows of the strides of a tensor: from one row, head or sequence to the next.
const fn stride<const OF: usize, const I: usize>(c: &'static str) -> Argument<Heads> {
    let row = Argument::said(c, Kind::Long, |of: &mut Heads, value| {
        of.strides[I][OF] = Some(value.long());
        Ok(())
    });
    let follow = |of: &Heads| {
        let follow = OF == 2 && of.rows_follow(I);
        follow.then_some("packed sequences follow each other")
    };
    row.unless(follow)
}

/// The number of keys before a query's own (0), or after it (1).
const fn limit<const I: usize>(c: &'static str) -> Argument<Heads> {
    let row = Argument::said(c, Kind::Signed, |of: &mut Heads, value| {
        of.window.get_or_insert([0; 2])[I] = value.signed();
        Ok(())
    });
    row.python(Python::Keyword("window")).unless(|of| (!of.limited).then_some("flags has no FALCHION_WINDOW"))
}

static DESCRIBED: Structure<Heads> = Structure {
    name: "falchion_attention_desc",
    later: "window[0]",
    fields: &[
        Argument::own("size", Kind::Long, "the version of the caller's structure"),
        Argument::said("types", Kind::Text, |of: &mut Heads, value| of.types(value.text()))
            .needed(TYPES)
            .python(Python::Keyword("types")),
        Argument::said("batch", Kind::Whole, |of: &mut Heads, value| {
            of.request.problem.batch = value.whole();
            Ok(())
        }),
        Argument::said("heads", Kind::Whole, |of: &mut Heads, value| {
            of.request.problem.heads = [value.whole(); 2];
            Ok(())
        }),
        Argument::said("kv_heads", Kind::Whole, |of: &mut Heads, value| {
            of.shared = Some(value.whole());
            Ok(())
        }),
        Argument::said("queries", Kind::Whole, |of: &mut Heads, value| {
            of.request.problem.queries = value.whole();
            Ok(())
        })
        .python(Python::Keyword("max_seqlen_q")),
        Argument::said("keys", Kind::Whole, |of: &mut Heads, value| {
            of.request.problem.keys = value.whole();
            Ok(())
        })
        .python(Python::Keyword("max_seqlen_k")),
        Argument::said("d", Kind::Whole, |of: &mut Heads, value| {
            of.request.head[0] = value.whole();
            Ok(())
        }),
        Argument::said("dv", Kind::Whole, |of: &mut Heads, value| {
            of.dv = Some(value.whole());
            Ok(())
        }),
        Argument::said("scale", Kind::Single, |of: &mut Heads, value| {
            of.scale = Some(value.real() as f32);
            Ok(())
        })
        .python(Python::Keyword("scale")),
        Argument::new("flags", Kind::Whole, Goes::Switches(SWITCHES)),
        Argument::own("card", Kind::Whole, "the card to choose for"),
        Argument::own("spec", Kind::Text, "the kernel, instead of a choice").python(Python::Keyword("spec")),
        stride::<0, 0>("row[0]"),
        stride::<0, 1>("row[1]"),
        stride::<0, 2>("row[2]"),
        stride::<0, 3>("row[3]"),
        stride::<1, 0>("head[0]"),
        stride::<1, 1>("head[1]"),
        stride::<1, 2>("head[2]"),
        stride::<1, 3>("head[3]"),
        stride::<2, 0>("sequence[0]"),
        stride::<2, 1>("sequence[1]"),
        stride::<2, 2>("sequence[2]"),
        stride::<2, 3>("sequence[3]"),
        Argument::said("alignment", Kind::Whole, |of: &mut Heads, value| {
            of.alignment = value.whole();
            Ok(())
        }),
        Argument::zero("reserved"),
        Argument::own("args_size", Kind::Long, "the version of the caller's structure of arguments"),
        limit::<0>("window[0]"),
        limit::<1>("window[1]"),
        Argument::said("page", Kind::Whole, |of: &mut Heads, value| {
            of.request.pages = Some(value.whole());
            Ok(())
        }),
        Argument::said("softcap", Kind::Single, |of: &mut Heads, value| {
            of.request.soft_cap = (value.real() != 0.0).then_some(value.real() as f32);
            Ok(())
        })
        .python(Python::Keyword("softcap")),
        Argument::said("cache", Kind::Text, |of: &mut Heads, value| {
            of.request.cache = Some(format_of_cache(value.text())?);
            Ok(())
        }),
        Argument::said("score", Kind::Text, |of: &mut Heads, value| {
            of.request.score = Some(formula("score", value.text())?);
            Ok(())
        })
        .python(Python::Keyword("score")),
        Argument::said("sees", Kind::Text, |of: &mut Heads, value| {
            of.request.sees = Some(formula("sees", value.text())?);
            Ok(())
        })
        .python(Python::Keyword("sees")),
    ],
};

const SWITCHES: &[Switch<Heads>] = &[
    Switch {
        c: "FALCHION_CAUSAL",
        bit: 1,
        python: Python::Keyword("causal"),
        set: |of: &mut Heads| of.causal = true,
    },
    Switch {
        c: "FALCHION_WINDOW",
        bit: 2,
        python: Python::No,
        set: |of: &mut Heads| {
            of.limited = true;
            of.window.get_or_insert([0; 2]);
        },
    },
    Switch {
        c: "FALCHION_PACKED",
        bit: 4,
        python: Python::No,
        set: |of: &mut Heads| of.request.lengths = Lengths::Packed,
    },
    Switch {
        c: "FALCHION_WORKSPACE",
        bit: 8,
        python: Python::No,
        set: |of: &mut Heads| of.request.workspace = true,
    },
    Switch {
        c: "FALCHION_DETERMINISTIC",
        bit: 16,
        python: Python::Keyword("deterministic"),
        set: |of: &mut Heads| of.request.fixed = true,
    },
    switch("FALCHION_ALIBI", 32, |of| of.request.alibi = true),
    switch("FALCHION_SLOPES_PER_SEQUENCE", 64, |of| of.call.head_numbers.per_sequence = true),
    switch("FALCHION_SINKS", 128, |of| of.request.sinks = true),
    switch("FALCHION_FACTORS_PER_HEAD", 256, |of| of.call.factors.per_head = true),
];

/// A switch of C alone: in Python the arrays say it.
const fn switch(c: &'static str, bit: u32, set: fn(&mut Heads)) -> Switch<Heads> {
    Switch { c, bit, python: Python::No, set }
}

/// The formats of Q, K and V, and of O.
const TYPES: &str = "one of bf16, f16, bf16-f32, f16-f32, e4m3-bf16, e4m3-f16, e4m3-f32";

/// The format of keys and values in memory.
fn format_of_cache(text: &str) -> Result<Format, Refusal> {
    match text {
        "e4m3" => Ok(Format::E4m3),
        _ => Err(Refusal::Invalid(format!("cache is \"{text}\", e4m3 was needed, or nothing"))),
    }
}

/// Scores or a mask as text.
fn formula<K: FormulaKind>(name: &str, text: &str) -> Result<TextFormula<K>, Refusal> {
    text.parse().map_err(|error: FormulaError| Refusal::Invalid(format!("{name}: {error}")))
}

/// Why a call has no factors of Q (0), or of K and V.
const fn factors<const OF: usize>(of: &Heads) -> Option<&'static str> {
    let of_16_bits = of.request.format.bits() > 8;
    match (of_16_bits, of.request.cache.is_some()) {
        (false, _) => None,
        (true, true) if OF > 0 => None,
        (true, _) => Some("it has elements of 16 bits, which have no factor"),
    }
}

/// The factors of Q (0), K and V.
const fn factors_of<const OF: usize>(c: &'static str, python: &'static str) -> Argument<Heads> {
    const NAMES: [&[&str]; 3] = [&["the factors of Q"], &["the factors of K"], &["the factors of V"]];
    Argument::memory(c, NAMES[OF]).python(Python::Keyword(python)).unless(factors::<OF>)
}

/// Why a call has no beginnings of queries (0), or of keys.
const fn begins<const SIDE: usize>(of: &Heads) -> Option<&'static str> {
    match (of.request.lengths, of.request.pages) {
        (Lengths::Equal, _) => Some("flags has no FALCHION_PACKED"),
        (Lengths::Packed, Some(_)) if SIDE == 1 => Some("keys are in pages: lengths says how many"),
        (Lengths::Packed, _) => None,
    }
}

/// Why a call has no pages.
const fn pages(of: &Heads) -> Option<&'static str> {
    if of.request.pages.is_none() { Some("desc.page is 0") } else { None }
}

/// Where sequences begin, of queries (0) and of keys.
const fn beginnings<const SIDE: usize>(c: &'static str, python: &'static str) -> Argument<Heads> {
    const NAMES: [&[&str]; 2] = [&["the beginnings of queries"], &["the beginnings of keys"]];
    Argument::memory(c, NAMES[SIDE]).python(Python::Keyword(python)).unless(begins::<SIDE>)
}

/// The number of rows of all sequences.
const fn rows<const SIDE: usize>(c: &'static str) -> Argument<Heads> {
    let row = Argument::said(c, Kind::Whole, |of: &mut Heads, value| {
        of.call.packed.rows[SIDE] = value.whole();
        Ok(())
    });
    row.unless(begins::<SIDE>)
}

const SLOPES: Argument<Heads> = Argument::memory("slopes", &["slopes"])
    .python(Python::Keyword("alibi_slopes"))
    .unless(|of: &Heads| if of.request.alibi { None } else { Some("flags has no FALCHION_ALIBI") });

/// The arrays of formulas: where they are, how many, and the version of their structure.
const ARRAYS: Argument<Heads> = of_formulas("arrays", Kind::Address).python(Python::Keyword("arrays"));
const ARRAY_COUNT: Argument<Heads> = of_formulas("array_count", Kind::Long);
const ARRAY_SIZE: Argument<Heads> = of_formulas("array_size", Kind::Long);

const fn of_formulas(c: &'static str, kind: Kind) -> Argument<Heads> {
    Argument::own(c, kind, "the arrays of formulas").unless(|of: &Heads| {
        let none = of.request.score.is_none() && of.request.sees.is_none();
        none.then_some("desc has neither score nor sees")
    })
}

const LEND: &str = "the memory that a launch is lent";

static GIVEN: Structure<Heads> = Structure {
    name: "falchion_attention_args",
    later: "begins_q",
    fields: &[
        Argument::memory("q", &["Q"]).python(Python::Needed("q")),
        Argument::memory("k", &["K"]).python(Python::Needed("k")),
        Argument::memory("v", &["V"]).python(Python::Positional("v")),
        Argument::memory("o", &["O"]).python(Python::Keyword("out")),
        Argument::memory("log_sum_exp", &["the log-sum-exp"]).python(Python::Keyword("log_sum_exp")),
        beginnings::<0>("begins_q", "cu_seqlens_q"),
        beginnings::<1>("begins_k", "cu_seqlens_k"),
        rows::<0>("all_queries"),
        rows::<1>("all_keys"),
        Argument::memory("lengths", &["the numbers of keys"])
            .python(Python::Keyword("cache_seqlens"))
            .unless(pages),
        Argument::memory("table", &["the table of pages"])
            .python(Python::Keyword("block_table"))
            .unless(pages),
        Argument::said("each", Kind::Whole, |of: &mut Heads, value| {
            of.call.pages.each = value.whole();
            Ok(())
        })
        .unless(pages),
        Argument::said("pages", Kind::Whole, |of: &mut Heads, value| {
            of.call.pages.count = value.whole();
            Ok(())
        })
        .unless(pages),
        Argument::own("workspace", Kind::Address, LEND)
            .unless(|of: &Heads| (!of.request.workspace).then_some("flags has no FALCHION_WORKSPACE")),
        Argument::own("workspace_bytes", Kind::Long, LEND),
        SLOPES,
        Argument::memory("sinks", &["the sinks"])
            .python(Python::Keyword("sinks"))
            .unless(|of: &Heads| (!of.request.sinks).then_some("flags has no FALCHION_SINKS")),
        factors_of::<0>("factors[0]", "q_descale"),
        factors_of::<1>("factors[1]", "k_descale"),
        factors_of::<2>("factors[2]", "v_descale"),
        ARRAYS,
        ARRAY_COUNT,
        ARRAY_SIZE,
    ],
};

static GIVEN_BACK: Structure<Heads> = Structure {
    name: "falchion_attention_backward_args",
    later: "slopes",
    fields: &[
        Argument::memory("q", &["Q"]).python(Python::Needed("q")),
        Argument::memory("k", &["K"]).python(Python::Needed("k")),
        Argument::memory("v", &["V"]).python(Python::Needed("v")),
        Argument::memory("o", &["O"]).python(Python::Needed("o")),
        Argument::memory("d_o", &["dO"]).python(Python::Needed("d_o")),
        Argument::memory("log_sum_exp", &["the log-sum-exp"]).python(Python::Needed("log_sum_exp")),
        Argument::memory("d_q", &["dQ"]),
        Argument::memory("d_k", &["dK"]),
        Argument::memory("d_v", &["dV"]),
        Argument::own("workspace", Kind::Address, LEND),
        Argument::own("workspace_bytes", Kind::Long, LEND),
        beginnings::<0>("begins[0]", "cu_seqlens_q"),
        beginnings::<1>("begins[1]", "cu_seqlens_k"),
        rows::<0>("all[0]"),
        rows::<1>("all[1]"),
        SLOPES,
        ARRAYS,
        ARRAY_COUNT,
        ARRAY_SIZE,
    ],
};

/// What a description asks for.
#[derive(Clone, Debug)]
pub struct AskedHeads {
    /// The request for a kernel.
    pub request: AttentionRequest,
    /// The call, without addresses.
    pub call: AttentionCall,
}

impl Default for Heads {
    fn default() -> Self {
        Self::new(AttentionRequest::new(AttentionProblem::default(), 0))
    }
}

impl Heads {
    /// Attention of a request, of which nothing else is said.
    pub fn new(request: AttentionRequest) -> Self {
        Self {
            request,
            shared: None,
            dv: None,
            scale: None,
            causal: false,
            window: None,
            limited: false,
            strides: [[None; 3]; 4],
            arrays: Vec::new(),
            alignment: 256,
            call: AttentionCall::default(),
        }
    }

    /// The same with Q, K, V and O at these places; in latent attention V is a part of K, and nothing here.
    #[must_use]
    pub fn at(self, of: [HeadsRef; 4]) -> Self {
        let strides = of.map(|HeadsRef { row, head, batch, .. }| [row, head, batch].map(Some));
        let [q, k, v, o] = of;
        let call = AttentionCall { q, k, v, o, ..self.call };
        Self { strides, alignment: 1 << o.address.trailing_zeros().min(8), call, ..self }
    }

    /// The format of Q, K and V, and of O.
    fn types(&mut self, text: &str) -> Result<(), Refusal> {
        let known = [
            ("bf16", [Format::Bf16; 2]),
            ("f16", [Format::F16; 2]),
            ("bf16-f32", [Format::Bf16, Format::F32]),
            ("f16-f32", [Format::F16, Format::F32]),
            ("e4m3-bf16", [Format::E4m3, Format::Bf16]),
            ("e4m3-f16", [Format::E4m3, Format::F16]),
            ("e4m3-f32", [Format::E4m3, Format::F32]),
        ];
        let Some((_, [format, output])) = known.into_iter().find(|(name, _)| *name == text) else {
            return Err(Refusal::Invalid(format!("types is \"{text}\", {TYPES} was needed")));
        };
        (self.request.format, self.request.output) = (format, output);
        Ok(())
    }

    /// Whether the rows of all sequences of a tensor follow each other: those of K and V do not in pages.
    fn rows_follow(&self, i: usize) -> bool {
        self.request.lengths == Lengths::Packed && (self.request.pages.is_none() || i.is_multiple_of(3))
    }

    /// The mask, and its numbers.
    ///
    /// # Errors
    /// Numbers beyond 2^30.
    fn masked(&self) -> Result<(Mask, [i32; 2]), Refusal> {
        const MOST: i32 = 1 << 30;
        let Some([left, right]) = self.window.filter(|window| window.iter().any(|&keys| keys >= 0)) else {
            return Ok((if self.causal { Mask::Causal } else { Mask::Full }, [0; 2]));
        };
        if left > MOST || right > MOST {
            return Err(Refusal::Invalid(format!("window is ({left}, {right}), at most {MOST} was needed")));
        }
        let limited = |keys: i32| if keys < 0 { MOST } else { keys };
        let numbers = [limited(left), if self.causal { 0 } else { limited(right) }];
        let causal = numbers == [MOST, 0];
        Ok(if causal { (Mask::Causal, [0; 2]) } else { (Mask::Window, numbers) })
    }

    /// The request and its call. In latent attention V is a part of K, and nothing in the call.
    ///
    /// # Errors
    /// The first argument that is wrong.
    pub fn asked(&self) -> Result<AskedHeads, Refusal> {
        let Self { request, alignment, .. } = self;
        let AttentionProblem { batch, heads: [heads, _], queries, keys, .. } = request.problem;
        if !alignment.is_power_of_two() {
            return Err(Refusal::Invalid(format!(
                "alignment is {alignment}, 0 or a power of two was needed"
            )));
        }
        let [d, _] = request.head;
        let (shared, dv) = (self.shared.unwrap_or(heads), self.dv.unwrap_or(d));
        let problem = AttentionProblem::new(batch, heads, [queries, keys], d);
        let scale = self.scale.unwrap_or(problem.scale);
        let problem = AttentionProblem { heads: [heads, shared], scale, ..problem };
        let (mask, numbers) = self.masked()?;
        let rows = request.pages.unwrap_or(keys);
        let [q, k, v, o] = [[heads, queries, d], [shared, rows, d], [shared, rows, dv], [heads, queries, dv]];
        let [q, k, v, o] = [(0, q), (1, k), (2, v), (3, o)].map(|(i, shape)| self.placed(i, shape));
        let bytes = u64::from(request.output.bytes());
        let steps = [o.row, o.head, o.batch].map(|step| step.wrapping_mul(bytes));
        let aligned = alignment.is_multiple_of(16) && steps.iter().all(|step| step.is_multiple_of(16));
        let request = AttentionRequest { aligned, head: [d, dv], mask, numbers, problem, ..*request };
        request.check().map_err(|error| Refusal::Invalid(error.to_string()))?;
        let v = if request.is_latent() { HeadsRef::default() } else { v };
        let strides = self.strides[2].map(Option::unwrap_or_default);
        if request.is_latent() && strides != [0; 3] {
            return Err(Refusal::Invalid(format!(
                "v is a tensor of its own, the first {dv} of the {d} elements of each head of k were needed, a view of them or none: the strides of V are {strides:?}, zeros were needed"
            )));
        }
        for (on, used, words) in [
            (
                self.call.head_numbers.per_sequence,
                request.alibi,
                "FALCHION_SLOPES_PER_SEQUENCE and no FALCHION_ALIBI",
            ),
            (
                self.call.factors.per_head,
                request.cache.is_some() || request.format.bits() == 8,
                "FALCHION_FACTORS_PER_HEAD, and no tensor has 8 bits",
            ),
        ] {
            if on && !used {
                return Err(Refusal::Invalid(format!("flags has {words}: it was needed without the former")));
            }
        }
        let arrays = match self.arrays.as_slice() {
            [] if request.score.is_none() && request.sees.is_none() => Vec::new(),
            // They are nowhere yet.
            [] => {
                Attention::call(&request).arrays.into_iter().map(|of| ArrayRef { address: 0, ..of }).collect()
            }
            _ => self.ordered(&request)?,
        };
        let (counts, reals) = (request.counts().to_vec(), request.reals());
        let call = AttentionCall { problem, q, k, v, o, counts, reals, arrays, ..self.call.clone() };
        Ok(AskedHeads { request, call })
    }

    /// The arrays of the request's formulas, in their order.
    ///
    /// # Errors
    /// One that is missing, or that no formula reads.
    pub fn ordered(&self, request: &AttentionRequest) -> Result<Vec<ArrayRef>, Refusal> {
        let needed = request.arrays();
        if let Some((name, _)) =
            self.arrays.iter().find(|(name, _)| !needed.iter().any(|(of, ..)| of == name))
        {
            return Err(Refusal::Invalid(format!(
                "arrays has {name}, which neither score nor sees reads: arrays of their names were needed"
            )));
        }
        if let Some((i, (name, _))) = self
            .arrays
            .iter()
            .enumerate()
            .find(|(i, (name, _))| self.arrays.iter().take(*i).any(|(before, _)| before == name))
        {
            return Err(Refusal::Invalid(format!(
                "arrays[{i}] is {name} once more, each array once was needed"
            )));
        }
        let find = |(name, format, dimensions): (&'static str, Format, usize)| {
            let found = self.arrays.iter().find(|(of, _)| of == name).map(|(_, array)| array.clone());
            found.ok_or_else(|| {
                Refusal::Invalid(format!(
                    "arrays has no {name}, which the formula reads: {dimensions} dimensions of {format} were needed"
                ))
            })
        };
        needed.into_iter().map(find).collect()
    }

    /// The same with the request and the call that it asks for, for the arguments of a run.
    #[must_use]
    pub fn of(self, AskedHeads { request, call }: AskedHeads) -> Self {
        Self { request, call, ..self }
    }

    /// The call of the gradient, whose tensors have the strides of those of the forward pass.
    pub fn backward(self) -> BackwardCall {
        let AttentionCall { q, k, v, o, .. } = self.call;
        BackwardCall::of(self.call, o, [q, k, v])
    }

    /// Where a tensor is, by its strides: those that are not said are packed.
    fn placed(&self, i: usize, [heads, length, d]: [u32; 3]) -> HeadsRef {
        // The rows of packed sequences have all heads: how many there are is not known here.
        let packed = if self.rows_follow(i) { packed_rows } else { packed };
        let AttentionCall { q, k, v, o, .. } = &self.call;
        let HeadsRef { address, .. } = *[q, k, v, o][i];
        HeadsRef { address, ..packed(self.strides[i], [heads, length, d]) }
    }
}

impl AskedHeads {
    /// The call with packed sequences and pages of the size that the description allows, at addresses that fit.
    pub fn largest(&self) -> AttentionCall {
        let AttentionProblem { batch, queries, keys, .. } = self.call.problem;
        let (table, each) = (aligned(256), keys.div_ceil(self.request.pages.unwrap_or(1).max(1)));
        let all = [queries, keys].map(|rows| batch.saturating_mul(rows).min((1 << 31) - 1));
        AttentionCall {
            packed: Packed { begins: [table; 2], rows: all },
            pages: Pages { lengths: table, table, each, count: each.max(1) },
            ..self.call.clone()
        }
    }
}
