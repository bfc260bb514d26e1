//! Random attention and gradients on guarded memory, compared with double precision.

use core::ffi::{CStr, c_void};
use core::ptr::{null, null_mut};

use crate::structures::*;

use crate::pages::{Guarded, Random, Side};
use crate::{last, zeros};

/// A tensor: where the rows of its sequences and heads are, in elements.
#[derive(Clone, Copy)]
struct Tensor {
    /// Sequences (or pages), heads, rows, and elements of a row.
    extents: [usize; 4],
    /// From one sequence, head and row to the next.
    strides: [usize; 3],
}

impl Tensor {
    /// Heads before rows, or rows before heads, with gaps after rows and sequences.
    fn new(extents: [usize; 4], heads_first: bool, gaps: [usize; 2]) -> Self {
        let [_, heads, rows, d] = extents;
        let strides = match heads_first {
            true => [heads * rows * (d + gaps[0]) + gaps[1], rows * (d + gaps[0]), d + gaps[0]],
            false => [rows * (heads * d + gaps[0]) + gaps[1], d, heads * d + gaps[0]],
        };
        Self { extents, strides }
    }

    fn at(&self, place: [usize; 3]) -> usize {
        place.into_iter().zip(self.strides).map(|(at, stride)| at * stride).sum()
    }

    fn elements(&self) -> usize {
        let [sequences, heads, rows, d] = self.extents;
        if self.extents.contains(&0) { 0 } else { self.at([sequences - 1, heads - 1, rows - 1]) + d }
    }
}

/// Elements of 2 or 4 bytes.
#[derive(Clone, Copy, PartialEq)]
enum Number {
    Bf16,
    F16,
    F32,
}

impl Number {
    const fn size(self) -> usize {
        if matches!(self, Self::F32) { 4 } else { 2 }
    }

    fn encode(self, value: f64) -> Vec<u8> {
        let bits = (value as f32).to_bits();
        match self {
            Self::F32 => bits.to_le_bytes().into(),
            Self::Bf16 => (((bits + 0x8000) >> 16) as u16).to_le_bytes().into(),
            Self::F16 => {
                let (sign, rounded) = ((bits >> 16 & 0x8000) as u16, (bits & 0x7FFF_FFFF) + 0x1000);
                let half = (rounded >> 13).saturating_sub(112 << 10) as u16;
                (sign | half).to_le_bytes().into()
            }
        }
    }

    fn decode(self, bytes: &[u8]) -> f64 {
        match self {
            Self::F32 => f32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]).into(),
            Self::Bf16 => f32::from_le_bytes([0, 0, bytes[0], bytes[1]]).into(),
            Self::F16 => {
                let bits = u32::from(u16::from_le_bytes([bytes[0], bytes[1]]));
                let (sign, rest) = (bits >> 15, bits & 0x7FFF);
                let size = if rest >> 10 == 0 {
                    rest as f32 * 2f32.powi(-24)
                } else if rest >> 10 == 31 {
                    f32::NAN
                } else {
                    f32::from_bits((rest << 13) + (112 << 23))
                };
                f64::from(if sign == 1 { -size } else { size })
            }
        }
    }
}

/// A sequence: where its queries and its keys begin, and their numbers.
#[derive(Clone, Copy)]
struct Sequence {
    first: [usize; 2],
    rows: [usize; 2],
}

/// What a tensor must hold: a value for each element that is written.
type Wanted = (&'static str, Tensor, Number, Vec<(usize, f64, f64)>);

/// A call, its memory, and what must be in it after a run.
pub(crate) struct Case {
    pub(crate) description: AttentionDescription,
    forward: AttentionArguments,
    gradient: Option<BackwardArguments>,
    arrays: Vec<(&'static str, Guarded)>,
    wanted: Vec<Wanted>,
    pub(crate) words: String,
}

const POISON: u8 = 0xA5;

impl Case {
    /// A random call. `short` is the array of which an element is missing, and where, for the test of the test.
    pub(crate) fn draw(random: &mut Random, short: Option<(&str, Side)>) -> Self {
        let side = short.map_or_else(|| random.side(), |(_, side)| side);
        let gradient = short.map_or_else(|| random.once_in(3), |(name, _)| name == "d_k");
        let (types, number, output) = match (short.is_some() || gradient, random.number(4)) {
            (true, 0) | (_, 1) => (c"bf16", Number::Bf16, Number::Bf16),
            (true, _) | (_, 2) => (c"f16", Number::F16, Number::F16),
            (_, 3) => (c"f16-f32", Number::F16, Number::F32),
            _ => (c"bf16-f32", Number::Bf16, Number::F32),
        };
        let [batch, shared, share] = [1 + random.number(3), 1 + random.number(2), 1 + random.number(3)];
        let (heads, d) = (shared * share, if random.once_in(4) { 128 } else { 64 });
        let mode = if short.is_some() { 0 } else { random.number(if gradient { 2 } else { 3 }) };
        let (packed, page) = (mode == 1, if mode == 2 { random.one(&[16, 32, 64]) } else { 0 });
        let flag = random.one(&[0, CAUSAL, WINDOW, CAUSAL | WINDOW]);
        let window = [random.number(40), random.number(9)];
        let plain_scores = short.is_some();
        let cap = if !plain_scores && random.once_in(4) { 0.5 + random.number(8) as f64 / 4.0 } else { 0.0 };
        let per_sequence = random.once_in(2);
        let slopes =
            if !plain_scores && random.once_in(4) { heads * if per_sequence { batch } else { 1 } } else { 0 };
        let slopes: Vec<f64> = (0..slopes).map(|_| random.number(9) as f64 / 16.0).collect();
        let sinks = if !plain_scores && random.once_in(4) { heads } else { 0 };
        let sinks: Vec<f64> = (0..sinks).map(|_| random.number(33) as f64 / 4.0 - 4.0).collect();
        // A query sees a key, if there is a gradient.
        let most = [1 + random.number(70), 1 + random.number(90)];
        let most = if gradient { [most[0].min(most[1]), most[1]] } else { most };
        let mut rows = vec![most; batch];
        if packed {
            for of in &mut rows {
                let keys = random.number(most[1] + 1);
                *of = [random.number(most[0].min(if gradient { keys } else { most[0] }) + 1), keys];
            }
            rows[batch - 1] = most;
        } else if page > 0 {
            rows.iter_mut().for_each(|of| of[1] = random.number(most[1] + 1));
        }
        let mut all = [0; 2];
        let sequences: Vec<Sequence> = rows
            .iter()
            .map(|&rows| {
                let first = all;
                all = [0, 1].map(|i| all[i] + rows[i]);
                Sequence { first, rows }
            })
            .collect();
        // Pages in any order, some of which nobody uses.
        let each = most[1].div_ceil(page.max(1)) + random.number(2);
        let pages = batch * each + random.number(3);
        let mut free: Vec<u32> = (0..pages as u32).collect();
        let mut table = vec![u32::MAX; batch * each];
        if page > 0 {
            for (b, of) in sequences.iter().enumerate() {
                for i in 0..of.rows[1].div_ceil(page) {
                    table[b * each + i] = free.swap_remove(random.number(free.len()));
                }
            }
        }
        let mut layout = |extents: [usize; 4], follow: bool| {
            let gaps = [8 * random.number(2), 8 * random.number(3)];
            let first = random.once_in(2);
            match follow || short.is_some() {
                true => Tensor::new(extents, !follow, [0; 2]),
                false => Tensor::new(extents, first, gaps),
            }
        };
        let of_queries = if packed { [1, heads, all[0], d] } else { [batch, heads, most[0], d] };
        let of_keys = match (packed, page) {
            (true, _) => [1, shared, all[1], d],
            (_, 0) => [batch, shared, most[1], d],
            (_, page) => [pages, shared, page, d],
        };
        let [q, o] = [(); 2].map(|()| layout(of_queries, packed));
        let [k, v] = [(); 2].map(|()| layout(of_keys, packed));
        let tensors = [q, k, v, o];
        // Only keys and values that are a sequence's are numbers.
        let key = |b: usize, key: usize| match (packed, page) {
            (true, _) => (0, sequences[b].first[1] + key),
            (_, 0) => (b, key),
            (_, page) => (table[b * each + key / page] as usize, key % page),
        };
        let query = |b: usize, row: usize| if packed { (0, sequences[b].first[0] + row) } else { (b, row) };
        let mut values: [Vec<f64>; 4] = tensors.map(|of| vec![f64::NAN; of.elements()]);
        let mut d_o = vec![f64::NAN; o.elements()];
        for (b, of) in sequences.iter().enumerate() {
            for (i, tensor) in tensors.iter().enumerate().take(3) {
                let (count, of_heads) = if i == 0 { (of.rows[0], heads) } else { (of.rows[1], shared) };
                for (row, head) in (0..count).flat_map(|row| (0..of_heads).map(move |head| (row, head))) {
                    let (b, row) = if i == 0 { query(b, row) } else { key(b, row) };
                    let at = tensor.at([b, head, row]);
                    values[i][at..at + d].fill_with(|| (random.number(17) as f64 - 8.0) / 8.0);
                }
            }
            for (row, head) in (0..of.rows[0]).flat_map(|row| (0..heads).map(move |head| (row, head))) {
                let (b, row) = query(b, row);
                let at = o.at([b, head, row]);
                d_o[at..at + d].fill_with(|| (random.number(17) as f64 - 8.0) / 8.0);
            }
        }
        let scale = (d as f64).sqrt().recip();
        let of_sum = |b: usize, head: usize, row: usize| match packed {
            true => head * all[0] + sequences[b].first[0] + row,
            false => (b * heads + head) * most[0] + row,
        };
        let sums = if packed { heads * all[0] } else { batch * heads * most[0] };
        let mut sum_values = vec![f64::NAN; sums];
        let (mut of_o, mut of_sums) = (Vec::new(), Vec::new());
        let mut gradients: [Vec<f64>; 3] = [0, 1, 2].map(|i| vec![0.0; values[i].len()]);
        for (b, of) in sequences.iter().enumerate() {
            let [queries, keys] = of.rows;
            for (row, head) in (0..queries).flat_map(|row| (0..heads).map(move |head| (row, head))) {
                let own = row as i64 + keys as i64 - queries as i64;
                let seen = |key: usize| {
                    let key = key as i64;
                    let right = if flag & CAUSAL != 0 { 0 } else { window[1] as i64 };
                    (flag & CAUSAL == 0 || key <= own)
                        && (flag & WINDOW == 0 || key + window[0] as i64 >= own && key <= own + right)
                };
                let seen: Vec<usize> = (0..keys).filter(|&key| seen(key)).collect();
                let of_query = {
                    let (b, row) = query(b, row);
                    [q.at([b, head, row]), o.at([b, head, row])]
                };
                let place = |of: &Tensor, at: usize| {
                    let (b, row) = key(b, at);
                    of.at([b, head / share, row])
                };
                let dot = |x: &[f64], y: &[f64]| x.iter().zip(y).map(|(x, y)| x * y).sum::<f64>();
                let own_q = &values[0][of_query[0]..][..d];
                let slope = slopes.get(if slopes.len() > heads { b * heads + head } else { head });
                // The exponential of a score, and the derivative of the score by the product.
                let scored = |&key: &usize| {
                    let x = scale * dot(own_q, &values[1][place(&k, key)..][..d]);
                    let bent = if cap > 0.0 { (x / cap).tanh() } else { 0.0 };
                    let capped = if cap > 0.0 { cap * bent } else { x };
                    let away = slope.map_or(0.0, |slope| slope * (own - key as i64).abs() as f64);
                    ((capped - away).exp(), 1.0 - bent * bent)
                };
                let (exps, bends): (Vec<f64>, Vec<f64>) = seen.iter().map(scored).unzip();
                let sum = exps.iter().sum::<f64>() + sinks.get(head).map_or(0.0, |sink| sink.exp());
                let mut result = vec![0.0; d];
                for (exp, &key) in exps.iter().zip(&seen) {
                    let row = &values[2][place(&v, key)..][..d];
                    result.iter_mut().zip(row).for_each(|(x, y)| *x += exp / sum * y);
                }
                sum_values[of_sum(b, head, row)] = sum.ln();
                of_sums.push((of_sum(b, head, row), sum.ln(), 1e-2));
                of_o.extend((0..d).map(|x| (of_query[1] + x, result[x], 0.02)));
                values[3][of_query[1]..][..d].copy_from_slice(&result);
                if !gradient {
                    continue;
                }
                let own_d = &d_o[of_query[1]..][..d];
                let mean = dot(own_d, &result);
                for ((exp, bend), &key) in exps.iter().zip(&bends).zip(&seen) {
                    let [of_k, of_v] = [place(&k, key), place(&v, key)];
                    let ds = exp / sum * (dot(own_d, &values[2][of_v..][..d]) - mean) * scale * bend;
                    for x in 0..d {
                        gradients[0][of_query[0] + x] += ds * values[1][of_k + x];
                        gradients[1][of_k + x] += ds * values[0][of_query[0] + x];
                        gradients[2][of_v + x] += exp / sum * own_d[x];
                    }
                }
            }
        }
        let image = |of: &[f64], number: Number| -> Vec<u8> {
            let nothing = number.encode(f64::NAN);
            of.iter().flat_map(|&x| if x.is_nan() { nothing.clone() } else { number.encode(x) }).collect()
        };
        let empty = |of: &Tensor, number: Number| vec![POISON; of.elements() * number.size()];
        let mut images: Vec<(&'static str, Vec<u8>, usize)> = vec![
            ("q", image(&values[0], number), 16),
            ("k", image(&values[1], number), 16),
            ("v", image(&values[2], number), 16),
        ];
        let mut wanted: Vec<Wanted> = Vec::new();
        let of_lse = Tensor { extents: [1, 1, sums, 1], strides: [0, 0, 1] };
        if gradient {
            images.extend([("o", image(&values[3], number), 16), ("d_o", image(&d_o, number), 16)]);
            images.push(("log_sum_exp", image(&sum_values, Number::F32), 4));
            for (i, name) in ["d_q", "d_k", "d_v"].into_iter().enumerate() {
                images.push((name, empty(&tensors[i], number), 16));
                // Elements of rows that are a sequence's.
                let of = values[i].iter().zip(&gradients[i]).enumerate();
                let of = of.filter(|(_, (value, _))| !value.is_nan());
                let bound = |want: f64| 0.04 * want.abs().max(1.0);
                let elements = of.map(|(at, (_, &want))| (at, want, bound(want))).collect();
                wanted.push((name, tensors[i], number, elements));
            }
        } else {
            images.push(("o", empty(&o, output), if short.is_some() { output.size() } else { 16 }));
            wanted.push(("o", o, output, of_o));
            if short.is_some() || random.once_in(2) {
                images.push(("log_sum_exp", vec![POISON; 4 * sums], 4));
                wanted.push(("log_sum_exp", of_lse, Number::F32, of_sums));
            }
        }
        let words = |of: &[u32]| of.iter().flat_map(|number| number.to_le_bytes()).collect::<Vec<u8>>();
        if packed {
            for (i, name) in ["begins_q", "begins_k"].into_iter().enumerate() {
                let begins = sequences.iter().map(|of| of.first[i] as u32).chain([all[i] as u32]);
                images.push((name, words(&begins.collect::<Vec<_>>()), 4));
            }
        }
        if page > 0 {
            images.push(("lengths", words(&rows.iter().map(|of| of[1] as u32).collect::<Vec<_>>()), 4));
            images.push(("table", words(&table), 4));
        }
        for (name, of) in [("slopes", &slopes), ("sinks", &sinks)] {
            // The log-sum-exp of a gradient has the sinks.
            if !(of.is_empty() || gradient && name == "sinks") {
                images.push((name, image(of, Number::F32), 4));
            }
        }
        let array = |(name, image, alignment): (&'static str, Vec<u8>, usize)| match short {
            // Sixteen bytes of those that begin at multiples of them.
            Some((of, side)) if of == name => (name, Guarded::short(&image, side, alignment)),
            _ => (name, Guarded::new(&image, side, alignment)),
        };
        let arrays: Vec<_> = images.into_iter().map(array).collect();
        let find = |name: &str| arrays.iter().find(|(of, _)| *of == name).map_or(null(), |(_, of)| of.at());
        let write = |name: &str| find(name).cast_mut();
        let plain = |of: &Tensor| of.strides == Tensor::new(of.extents, !packed, [0; 2]).strides;
        let stride = |i: usize| tensors.map(|of| if plain(&of) { 0 } else { of.strides[i] as u64 });
        let lends = !gradient && random.once_in(2);
        let description = AttentionDescription {
            size: size_of::<AttentionDescription>(),
            types: CStr::as_ptr(types),
            batch: batch as u32,
            heads: heads as u32,
            kv_heads: shared as u32,
            queries: most[0] as u32,
            keys: most[1] as u32,
            d: d as u32,
            flags: [
                (packed, PACKED),
                (lends, WORKSPACE),
                (!slopes.is_empty(), ALIBI),
                (slopes.len() > heads, SLOPES_PER_SEQUENCE),
                (!sinks.is_empty() && !gradient, SINKS),
            ]
            .into_iter()
            .fold(flag, |flags, (on, bit)| if on { flags | bit } else { flags }),
            softcap: cap as f32,
            rows: stride(2),
            head_strides: stride(1),
            sequences: if packed { [0; 4] } else { stride(0) },
            alignment: if short.is_some() && !gradient { output.size() as u32 } else { 0 },
            args_size: if gradient {
                size_of::<BackwardArguments>()
            } else {
                size_of::<AttentionArguments>()
            },
            window: if flag & WINDOW == 0 { [0; 2] } else { window.map(|keys| keys as i32) },
            page: page as u32,
            ..zeros()
        };
        let all = if packed { all.map(|rows| rows as u32) } else { [0; 2] };
        let begins = [find("begins_q"), find("begins_k")];
        let forward = AttentionArguments {
            q: find("q"),
            k: find("k"),
            v: find("v"),
            o: write("o"),
            log_sum_exp: write("log_sum_exp"),
            begins,
            all,
            lengths: find("lengths"),
            table: find("table"),
            each: if page > 0 { each as u32 } else { 0 },
            pages: if page > 0 { pages as u32 } else { 0 },
            slopes: find("slopes"),
            sinks: find("sinks"),
            workspace: null_mut(),
            workspace_bytes: 0,
            factors: [null(); 3],
            arrays: null(),
            array_count: 0,
            array_size: 0,
        };
        let backward = BackwardArguments {
            q: find("q"),
            k: find("k"),
            v: find("v"),
            o: find("o"),
            d_o: find("d_o"),
            log_sum_exp: find("log_sum_exp"),
            d_q: write("d_q"),
            d_k: write("d_k"),
            d_v: write("d_v"),
            workspace: null_mut(),
            workspace_bytes: 0,
            begins,
            all,
            slopes: find("slopes"),
            arrays: null(),
            array_count: 0,
            array_size: 0,
        };
        let words = format!(
            "{types:?}, gradient {gradient}, {batch} sequences {rows:?}, heads {heads}/{shared} of {d}, flags {:#x}, window {:?}, cap {cap}, page {page}, {side:?}, \
             strides {:?}",
            description.flags,
            description.window,
            tensors.map(|of| of.strides)
        );
        Self { description, forward, gradient: gradient.then_some(backward), arrays, wanted, words }
    }

    /// Creates the kernel and runs it. Returns the status, and the message if it is not OK.
    pub(crate) fn run(&self) -> (Status, String) {
        // SAFETY: the structures are valid, and so is the memory that they name.
        unsafe {
            let status = match &self.gradient {
                None => {
                    let mut kernel: *mut AttentionKernel = null_mut();
                    let mut status = falchion_attention_create(&self.description, &mut kernel);
                    if status == OK {
                        status = falchion_attention_emulate(kernel, &self.forward);
                    }
                    falchion_attention_destroy(kernel);
                    status
                }
                Some(arguments) => {
                    let mut kernel: *mut BackwardKernel = null_mut();
                    let mut status = falchion_attention_backward_create(&self.description, &mut kernel);
                    if status == OK {
                        status = falchion_attention_backward_emulate(kernel, arguments);
                    }
                    falchion_attention_backward_destroy(kernel);
                    status
                }
            };
            (status, if status == OK { String::new() } else { last() })
        }
    }

    /// What is wrong in memory after a run: the first element.
    pub(crate) fn wrong(&self) -> Option<String> {
        self.wanted.iter().find_map(|(name, tensor, number, elements)| {
            let (_, array) = self.arrays.iter().find(|(of, _)| of == name)?;
            let (bytes, size) = (array.bytes(), number.size());
            let mut written = vec![false; tensor.elements()];
            for &(at, want, bound) in elements {
                let found = number.decode(&bytes[at * size..][..size]);
                written[at] = true;
                let right = found == want || (found - want).abs() <= bound;
                if !right {
                    return Some(format!("element {at} of {name}: {found}, {want} was expected"));
                }
            }
            let changed =
                |at: &usize| !written[*at] && bytes[at * size..][..size].iter().any(|&byte| byte != POISON);
            let changed = (0..written.len()).find(changed)?;
            Some(format!("element {changed} of {name} is none of a row, and changed"))
        })
    }

    /// Spoils the arguments in one place.
    pub(crate) fn spoil(&mut self, random: &mut Random) -> Option<&'static [&'static str]> {
        let any = self.arrays[0].1.at();
        let packed = self.description.flags & PACKED != 0;
        let lends = self.description.flags & WORKSPACE != 0;
        let in_pages = self.description.page > 0;
        let place = random.number(12);
        if let Some(i) = [3, 4].iter().position(|&of| of == place && packed) {
            // Beyond the last row, in the first and the last number, or a number that falls.
            let (name, table) = self.arrays.iter().find(|(name, _)| *name == ["begins_q", "begins_k"][i])?;
            let at = random.number(table.bytes().len() / 4);
            // SAFETY: the array has this number, and nobody else uses it.
            unsafe { table.at().cast_mut().cast::<u32>().add(at).write(random.one(&[1 << 20, u32::MAX])) };
            return Some(if *name == "begins_q" {
                &["the beginnings of queries"]
            } else {
                &["the beginnings of keys"]
            });
        }
        if place == 5 && in_pages {
            let (_, lengths) = self.arrays.iter().find(|(name, _)| *name == "lengths")?;
            let numbers = lengths.bytes().as_chunks().0.iter().map(|&of| u32::from_le_bytes(of));
            let sequence = numbers.clone().position(|keys| keys > 0)?;
            let (_, table) = self.arrays.iter().find(|(name, _)| *name == "table")?;
            let at = sequence * self.forward.each as usize;
            // SAFETY: as above.
            unsafe { table.at().cast_mut().cast::<u32>().add(at).write(random.one(&[1 << 20, u32::MAX])) };
            return Some(&["page 0 of sequence"]);
        }
        if let Some(of) = &mut self.gradient {
            return Some(match place {
                0 if !packed => {
                    of.begins[0] = any;
                    &["begins_q is 0x", "begins[0] is 0x"]
                }
                1 if !packed => {
                    of.all[1] = 7;
                    &["all_keys is 7", "all[1] is 7"]
                }
                2 => {
                    of.workspace_bytes = 64;
                    &["workspace is NULL"]
                }
                6 => {
                    of.d_o = null();
                    &["dO"]
                }
                7 => {
                    of.d_v = of.d_v.wrapping_byte_add(2);
                    &["dV"]
                }
                8 => {
                    self.description.alignment = 8;
                    &["alignment is 8"]
                }
                9 => {
                    self.description.page = 16;
                    &["page is 16"]
                }
                _ => return None,
            });
        }
        let of = &mut self.forward;
        let number = |to: &mut u32| *to = 7;
        let pointer = |to: &mut *const c_void| *to = any;
        Some(match place {
            0 if !packed => {
                pointer(&mut of.begins[random.number(2)]);
                &["begins_q is 0x", "begins_k is 0x", "begins[0] is 0x", "begins[1] is 0x"]
            }
            1 if !packed => {
                number(&mut of.all[random.number(2)]);
                &["all_queries is 7", "all_keys is 7", "all[0] is 7", "all[1] is 7"]
            }
            2 if !lends => {
                of.workspace = any.cast_mut();
                &["workspace is 0x"]
            }
            6 if !in_pages => {
                pointer(if random.once_in(2) { &mut of.lengths } else { &mut of.table });
                &["lengths is 0x", "table is 0x"]
            }
            7 if !in_pages => {
                number(if random.once_in(2) { &mut of.each } else { &mut of.pages });
                &["each is 7", "pages is 7"]
            }
            8 => {
                of.q = null();
                &["Q"]
            }
            9 => {
                of.k = of.k.wrapping_byte_add(2);
                &["K"]
            }
            10 => {
                of.o = null_mut();
                &["O"]
            }
            11 => {
                of.workspace_bytes = 64;
                &["workspace is NULL"]
            }
            _ => return None,
        })
    }
}
