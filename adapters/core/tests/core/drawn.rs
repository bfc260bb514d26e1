//! Problems that are drawn: as `falchion plan` reads them, and as a door is told them.

use falchion::attention::Lengths;
use falchion::collective::Format;
use falchion::kernel::{AnyGemm, Family, GemmProblem, Request, Types};
use falchion_core::{Gemms, Heads, formula, majors};

/// Numbers without a pattern.
pub struct Draw(u64);

impl Draw {
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// A number below another one. SplitMix64.
    pub fn below(&mut self, most: u32) -> u32 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        ((u128::from(z ^ (z >> 31)) * u128::from(most)) >> 64) as u32
    }

    pub fn of<T: Copy>(&mut self, all: &[T]) -> T {
        all[self.below(all.len() as u32) as usize]
    }

    /// A length: as many short ones as long ones.
    pub fn length(&mut self, most: u32) -> u32 {
        let power = 1 + self.below(most);
        1 + self.below(1 << power)
    }
}

/// Attention: the words of a problem, and what a door says of it.
#[derive(Clone, Debug)]
pub struct DrawnHeads {
    pub problem: String,
    pub format: &'static str,
    pub batch: u32,
    /// Of Q and of K.
    pub heads: [u32; 2],
    /// Queries and keys.
    pub lengths: [u32; 2],
    pub d: [u32; 2],
    pub causal: bool,
    pub window: Option<[i32; 2]>,
    pub packed: bool,
    pub page: Option<u32>,
    pub soft_cap: Option<f32>,
    /// Scores and mask as text.
    pub texts: [Option<&'static str>; 2],
    /// Whether the bits of a gradient are the same in every run.
    pub fixed: bool,
}

impl DrawnHeads {
    /// A problem of the forward pass, or of the backward pass, which has no pages.
    pub fn draw(random: &mut Draw, backward: bool) -> Self {
        let shared = random.of(&[1, 2, 4, 8]);
        let heads = [shared * random.of(&[1, 2, 3, 4, 7, 8]), shared];
        let keys = random.length(if backward { 13 } else { 16 });
        // Sometimes there is nothing to see.
        let keys = if random.below(50) == 0 { 0 } else { keys };
        let queries = match random.below(3) {
            0 => 1 + random.below(4),
            1 => random.length(8),
            _ => keys,
        };
        let d = random.of(&[[64, 64], [96, 96], [128, 128], [192, 128], [256, 256], [80, 80], [112, 80]]);
        let format = random.of(&["bf16", "f16"]);
        let page = (!backward && random.below(5) == 0).then(|| random.of(&[16, 64, 128]));
        let packed = page.is_none() && queries == keys && random.below(3) == 0;
        let (causal, window) = match random.below(4) {
            0 => (false, None),
            1 => (random.below(2) == 0, Some([random.length(10) as i32, 0])),
            _ => (true, None),
        };
        let fixed = backward && random.below(4) == 0;
        let batch = 1 + random.below(24);
        // A cache of pages has whole ones.
        let keys = page.map_or(keys, |page| keys.next_multiple_of(page));
        let mut words = format!("{batch}x{}/{shared}x{queries}x{keys} d={}x{}", heads[0], d[0], d[1]);
        let mut word = |word: &str, value: &str| words += &format!(" {word}={value}");
        word("format", format);
        match (causal, window) {
            (_, Some([left, right])) => {
                word("mask", "window");
                word("left", &left.to_string());
                word("right", &right.to_string());
            }
            (true, None) => word("mask", "causal"),
            (false, None) => {}
        }
        if packed {
            word("lengths", "packed");
        }
        if let Some(page) = page {
            word("pages", &page.to_string());
        }
        let plain = !causal && window.is_none() && random.below(2) == 0;
        let scores = [None, Some("x-slope[h]*abs(q-k)"), Some("x+bias[b,h,q,k]:bf16")];
        let masks = [None, Some("q>=k&q-k<100"), Some("document[b,q]:s32==document[b,k]:s32")];
        let texts = if plain { [random.of(&scores), random.of(&masks)] } else { [None; 2] };
        for (name, text) in ["score", "sees"].into_iter().zip(texts) {
            text.into_iter().for_each(|text| word(name, text));
        }
        let capped = texts == [None; 2] && random.below(8) == 0;
        let soft_cap = capped.then(|| random.of(&[0.5, 30.0, 50.25]));
        if let Some(cap) = soft_cap {
            word("softcap", &cap.to_string());
        }
        if fixed {
            word("fixed", "on");
        }
        let lengths = [queries, keys];
        Self {
            problem: words,
            format,
            batch,
            heads,
            lengths,
            d,
            causal,
            window,
            packed,
            page,
            soft_cap,
            texts,
            fixed,
        }
    }
}

/// One GEMM or several: the problem, and what a door says of it.
#[derive(Clone, Debug)]
pub struct DrawnGemms {
    pub problem: String,
    pub described: Gemms,
}

impl DrawnGemms {
    pub fn draw(random: &mut Draw) -> Self {
        let types = random.of(&["bf16", "f16", "bf16-bf16-f32", "e4m3", "e4m3-1x128-128x128", "s8"]);
        let narrow = types.starts_with("e4m3") || types == "s8";
        let layout = if narrow { "kk" } else { random.of(&["kk", "kn", "mk", "mn"]) };
        let step = if random.below(8) == 0 && !narrow { 1 } else { 16 };
        let mut extent = |most| random.length(most).next_multiple_of(step);
        let extents @ [m, n, k] = [extent(13), extent(13), extent(13)];
        let batch = if types.contains("128") || random.below(4) > 0 { 1 } else { 2 + random.below(30) };
        let epilogue = (types == "bf16" && batch == 1 && random.below(3) == 0)
            .then(|| random.of(&["gelu(acc + bias[n])", "alpha*acc + beta*c", "max(acc, 0)"]).to_owned());
        let described = Gemms {
            types: types.to_owned(),
            layout: layout.to_owned(),
            extents,
            batch,
            epilogue: epilogue.clone(),
            ..Gemms::default()
        };
        let named = Types::named(types).expect("types");
        let mut request = Request::packed(named, majors(layout).expect("a layout"), GemmProblem { m, n, k });
        if let Some(text) = &epilogue {
            request = request.fused(formula(text, named.a, None).expect("a formula"));
        }
        if batch > 1 {
            request = request.batched(batch);
        }
        Self { problem: AnyGemm::problem(&request).to_string(), described }
    }
}

impl DrawnHeads {
    /// As a door says it that has no tensors.
    pub fn heads(&self) -> Heads {
        let mut heads = Heads::default();
        let format = Format::named(self.format).expect("a format");
        (heads.request.format, heads.request.output) = (format, format);
        heads.request.problem.batch = self.batch;
        heads.request.problem.heads = [self.heads[0]; 2];
        [heads.request.problem.queries, heads.request.problem.keys] = self.lengths;
        (heads.request.head, heads.dv, heads.shared) = ([self.d[0]; 2], Some(self.d[1]), Some(self.heads[1]));
        (heads.causal, heads.window, heads.request.pages) = (self.causal, self.window, self.page);
        heads.request.soft_cap = self.soft_cap;
        let [score, sees] = self.texts;
        heads.request.score = score.map(|text| text.parse().expect("scores"));
        heads.request.sees = sees.map(|text| text.parse().expect("a mask"));
        (heads.request.workspace, heads.request.fixed) = (true, self.fixed);
        if self.packed {
            heads.request.lengths = Lengths::Packed;
        }
        heads
    }
}
