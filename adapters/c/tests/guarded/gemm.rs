//! Random GEMMs on guarded memory: what D must hold, bit for bit.

use core::ffi::{CStr, c_void};
use core::ptr::null_mut;

use crate::structures::*;

use crate::number::Number;
use crate::pages::{Guarded, Random, Side};
use crate::{last, zeros};

/// Types, as the description names them.
pub(crate) struct Kind {
    pub(crate) types: &'static CStr,
    of: [Number; 3],
    /// Whether A and B may have any direction.
    turns: bool,
    more: More,
}

/// What an operand has in addition.
#[derive(Clone, Copy, PartialEq)]
enum More {
    Nothing,
    Scales,
    /// Weights with zero points, or without.
    Weights(bool),
    /// Which operand.
    Sparse(usize),
}

pub(crate) const KINDS: [Kind; 13] = {
    use More::{Nothing, Scales, Sparse, Weights};
    use Number::{Bf16, E4m3, F16, F32, F64, S8, S32};
    const fn kind(types: &'static CStr, of: [Number; 3], turns: bool, more: More) -> Kind {
        Kind { types, of, turns, more }
    }
    [
        kind(c"bf16", [Bf16; 3], true, Nothing),
        kind(c"bf16-bf16-f32", [Bf16, Bf16, F32], true, Nothing),
        kind(c"f16", [F16; 3], true, Nothing),
        kind(c"tf32", [F32; 3], false, Nothing),
        kind(c"f32", [F32; 3], true, Nothing),
        kind(c"f64", [F64; 3], true, Nothing),
        kind(c"s8", [S8, S8, S32], false, Nothing),
        kind(c"e4m3-e4m3-f32", [E4m3, E4m3, F32], false, Nothing),
        kind(c"e4m3-e4m3-f32-1x128-128x128", [E4m3, E4m3, F32], false, Scales),
        kind(c"f16-s4g128-f32", [F16, F16, F32], false, Weights(false)),
        kind(c"f16-u4g128z-f32", [F16, F16, F32], false, Weights(true)),
        kind(c"s8-sparse-b", [S8, S8, S32], false, Sparse(1)),
        kind(c"bf16-sparse-a", [Bf16; 3], false, Sparse(0)),
    ]
};

/// Texts of epilogues, each with what it names.
const TEXTS: [(&CStr, &[&str]); 5] = [
    (c"max(alpha*acc + bias[n]:f32, low)", &["alpha", "bias", "low"]),
    (c"alpha*acc + beta*c", &["alpha", "c"]),
    (c"alpha*acc + beta*c + bias[n]:f32", &["alpha", "c", "bias"]),
    (c"max(store(aux[m,n]:f32, alpha*acc + bias[n]:f32), low)", &["alpha", "bias", "low", "aux"]),
    (c"alpha*acc + each[l,n]:f32", &["alpha", "each"]),
];

/// Elements of matrices at an address: `count` of `lines` lines.
#[derive(Clone, Copy)]
struct Extents {
    count: usize,
    lines: usize,
    length: usize,
    ld: usize,
    stride: usize,
}

impl Extents {
    /// The first element of a line.
    fn at(&self, matrix: usize, line: usize) -> usize {
        matrix * self.stride + line * self.ld
    }

    /// Elements up to the last one's end.
    fn elements(&self) -> usize {
        match [self.count, self.lines, self.length].contains(&0) {
            true => 0,
            false => self.at(self.count - 1, self.lines - 1) + self.length,
        }
    }

    /// Bytes of all elements. What is between lines is `gap`.
    fn image(&self, of: Number, gap: u8, value: impl Fn([usize; 3]) -> f64) -> Vec<u8> {
        let mut bytes = vec![gap; self.elements() * of.size()];
        for (matrix, line) in
            (0..self.count).flat_map(|matrix| (0..self.lines).map(move |line| (matrix, line)))
        {
            for i in 0..self.length {
                let at = (self.at(matrix, line) + i) * of.size();
                bytes[at..at + of.size()].copy_from_slice(&of.encode(value([matrix, line, i])));
            }
        }
        bytes
    }
}

/// A GEMM, its memory, and what must be in it after a run.
pub(crate) struct Case {
    pub(crate) description: Description,
    pub(crate) arguments: Arguments,
    /// All arrays by their fields' names.
    pub(crate) arrays: Vec<(&'static str, Guarded)>,
    pub(crate) inputs: Vec<NamedInput>,
    /// What the epilogue's text names.
    pub(crate) named: &'static [&'static str],
    /// Arrays that the run writes, and what they hold then.
    expected: Vec<(&'static str, Number, Vec<u8>)>,
    pub(crate) words: String,
}

/// `falchion_record`.
#[repr(C, align(16))]
struct Record {
    extents: [u32; 4],
    matrices: [*const c_void; 4],
    lds: [u64; 4],
}

impl Case {
    /// A random case. `short` is the array that has an element less than described, and where, for the test of the test.
    pub(crate) fn draw(random: &mut Random, short: Option<(&str, Side)>) -> Self {
        let kind = &KINDS[if short.is_some() { 1 } else { random.number(KINDS.len()) }];
        let plain = kind.more == More::Nothing;
        let form = if short.is_some() { 0 } else { random.number(if plain { 5 } else { 3 }) };
        Self::of(random, kind, form, short)
    }

    fn of(random: &mut Random, kind: &Kind, form: usize, short: Option<(&str, Side)>) -> Self {
        if form == 4 {
            return Self::records(random, kind);
        }
        let side = short.map_or_else(|| random.side(), |(_, side)| side);
        let plain = kind.more == More::Nothing;
        let count = if form == 0 && random.once_in(2) { 1 } else { 1 + random.number(3) };
        let zero = short.is_none() && random.once_in(12);
        let n = [1 + random.number(40), 8 * (1 + random.number(8))][random.number(2)];
        let mut k = [1 + random.number(90), 16 * (1 + random.number(5))][random.number(2)];
        if !plain || form == 3 {
            k = 128 * (1 + random.number(2));
        }
        let mut rows: Vec<usize> = (0..count).map(|_| random.number(30)).collect();
        let m = match form {
            1 => rows.iter().sum::<usize>(),
            2 => count * 29,
            _ => usize::from(!zero) * (1 + random.number(60)),
        };
        let k = if zero && plain && form == 0 && random.once_in(2) { 0 } else { k };
        if form == 0 || form == 3 {
            rows = vec![m; count];
        }
        // Where each group begins along K.
        let ends: Vec<usize> =
            (0..count).map(|i| if i + 1 == count { k } else { k / 128 * (i + 1) / count * 128 }).collect();
        let layout =
            if kind.turns && short.is_none() { random.one(&[c"kk", c"kn", c"mk", c"mn"]) } else { c"kk" };
        let [a_turned, b_turned] = [0, 1].map(|i| layout.to_bytes()[i] != b'k');
        let texts = plain && kind.types != c"f64" && random.once_in(2) && short.is_none();
        let text = texts.then(|| TEXTS[random.number(TEXTS.len())]).filter(|(_, named)| {
            let one = form == 0 && count == 1;
            (one || !named.contains(&"aux")) && (form == 0 && count > 1 || !named.contains(&"each"))
        });
        let named = text.map_or(&["alpha", "c"][..], |(_, named)| named);
        let of_d = if text.is_some() && kind.types == c"s8" { Number::F32 } else { kind.of[2] };
        let beta = match short {
            Some(_) => 1.0,
            None if named.contains(&"c") => random.one(&[0.0, 1.0, -1.0]),
            None => 0.0,
        };
        let alpha = [1.0, 2.0, 0.0][if short.is_some() { 0 } else { random.number(3) }];
        let several = match form {
            0 => [true; 3],
            3 => [false, false, true],
            _ => [false, true, false],
        };
        let mut gap =
            |most: usize| if plain && random.once_in(2) && short.is_none() { random.number(most) } else { 0 };
        let mut extents = |i: usize, lines: usize, length: usize| {
            let ld = length + gap(9);
            let stride = lines * ld + if count > 1 && several[i] { gap(20) } else { 0 };
            Extents { count: if several[i] { count } else { 1 }, lines, length, ld, stride }
        };
        let a = if a_turned { extents(0, k, m) } else { extents(0, m, k) };
        let b = if b_turned { extents(1, k, n) } else { extents(1, n, k) };
        let d = extents(2, m, n);
        let numbers = |random: &mut Random, of: &Extents| -> Vec<i8> {
            (0..of.count * of.lines * of.length).map(|_| random.small()).collect()
        };
        let (mut of_a, mut of_b, of_c) = (numbers(random, &a), numbers(random, &b), numbers(random, &d));
        if let More::Sparse(i) = kind.more {
            let sparse = [&mut of_a, &mut of_b][i].iter_mut().enumerate();
            sparse.filter(|(at, _)| [1, 2].contains(&((at + at / k) % 4))).for_each(|(_, of)| *of = 0);
        }
        let at = |of: &Extents, [matrix, line, i]: [usize; 3]| (matrix * of.lines + line) * of.length + i;
        let value_a = |g: usize, row: usize, l: usize| {
            let place = if a_turned { [l, row] } else { [row, l] };
            of_a[at(&a, [if several[0] { g } else { 0 }, place[0], place[1]])]
        };
        let value_b = |g: usize, column: usize, l: usize| {
            let place = if b_turned { [l, column] } else { [column, l] };
            of_b[at(&b, [if several[1] { g } else { 0 }, place[0], place[1]])]
        };
        // Scales of blocks, and of groups of weights.
        let power = |i: usize| [0.5, 1.0, 2.0, 0.25][i * 7 / 3 % 4];
        let blocks = k.div_ceil(128);
        let [line_a, line_b, line_w] =
            [m.next_multiple_of(4), blocks.next_multiple_of(4), n.next_multiple_of(16)];
        let product = |g: usize, row: usize, column: usize| -> f64 {
            let range = match form {
                3 => g.checked_sub(1).map_or(0, |before| ends[before])..ends[g],
                _ => 0..k,
            };
            let term = |l: usize| {
                let (x, y) = (f64::from(value_a(g, row, l)), f64::from(value_b(g, column, l)));
                let (of_a, of_b) = (if several[0] { g } else { 0 }, if several[1] { g } else { 0 });
                let block = l / 128;
                let lines_b = n.div_ceil(128);
                let weight = (of_b * blocks + block) * line_w + column;
                match kind.more {
                    More::Scales => {
                        let scale_a = power((of_a * blocks + block) * line_a + row);
                        x * y * scale_a * power((of_b * lines_b + column / 128) * line_b + block)
                    }
                    More::Weights(false) => x * y * power(weight),
                    // Codes are 7 to 9, zero points 7 or 8.
                    More::Weights(true) => x * (y + 8.0 - (7 + weight % 2) as f64) * power(weight),
                    More::Nothing | More::Sparse(_) => x * y,
                }
            };
            range.map(term).sum()
        };
        let (bias, low): (Vec<f32>, f32) = ((0..n).map(|i| (i % 5) as f32 - 2.0).collect(), -3.0);
        let each: Vec<f32> = (0..count * n).map(|i| (i % 7) as f32 - 3.0).collect();
        let linear = |g: usize, row: usize, column: usize, c: f64| {
            let has = |name| named.contains(&name);
            let sum = if alpha == 0.0 { 0.0 } else { alpha * product(g, row, column) };
            sum + if has("c") { beta * c } else { 0.0 }
                + if has("bias") { f64::from(bias[column]) } else { 0.0 }
                + if has("each") { f64::from(each[g * n + column]) } else { 0.0 }
        };
        // The group of a row of D, and whether it is one's.
        let group = |matrix: usize, row: usize| match form {
            0 | 3 => Some(matrix),
            1 => {
                let ends = rows.iter().scan(0, |end, rows| {
                    *end += rows;
                    Some(*end)
                });
                ends.collect::<Vec<_>>().iter().position(|&end| row < end)
            }
            _ => Some(row / 29).filter(|&group| row % 29 < rows[group]),
        };
        let poison = 0xA5;
        // C may be D.
        // C of a text is one matrix for all GEMMs, in the format that a text's matrices have without one of their own.
        let c_number = match (text, kind.of[0]) {
            (None, _) => of_d,
            (Some(_), Number::E4m3) => Number::Bf16,
            (Some(_), Number::S8) => Number::F32,
            (Some(_), own) => own,
        };
        let c = Extents { count: if text.is_some() { 1 } else { d.count }, ..d };
        let of_c = |[matrix, row, column]: [usize; 3]| -> f64 {
            let matrix = if c.count == 1 { 0 } else { matrix };
            of_c[at(&d, [matrix, row, column])].into()
        };
        let aliased = beta != 0.0
                && c.count == d.count
                // What all GEMMs read is not what one of them writes.
                && (text.is_none() || count == 1)
                && c_number == of_d
                && random.once_in(3)
                && short.is_none();
        let c_image = c.image(c_number, poison, of_c);
        let d_before = if aliased { c_image.clone() } else { vec![poison; d.elements() * of_d.size()] };
        let mut after = d_before.clone();
        let mut aux = vec![poison; d.elements() * 4];
        for (matrix, row) in (0..d.count).flat_map(|matrix| (0..m).map(move |row| (matrix, row))) {
            let Some(g) = group(matrix, row) else { continue };
            for column in 0..n {
                let sum = linear(g, row, column, of_c([matrix, row, column]));
                let place = d.at(matrix, row) + column;
                let value = if named.contains(&"low") { sum.max(low.into()) } else { sum };
                after[place * of_d.size()..][..of_d.size()].copy_from_slice(&of_d.encode(value));
                aux[place * 4..][..4].copy_from_slice(&Number::F32.encode(sum));
            }
        }
        let mut images = vec![
            ("a", a.image(kind.of[0], 0xFF, |place| of_a[at(&a, place)].into())),
            ("b", b.image(kind.of[1], 0xFF, |place| of_b[at(&b, place)].into())),
        ];
        prepare(kind, [&of_a, &of_b], [m, n, k], side, &mut images);
        let one = |count: usize, lines: usize, line: usize, length: usize| {
            (count * lines).checked_sub(1).map_or(0, |before| before * line + length)
        };
        let of_b_count = b.count;
        match kind.more {
            More::Scales => {
                let line = |count: usize| (0..count).flat_map(|i| (power(i) as f32).to_le_bytes()).collect();
                images.push(("scale_a", line(one(a.count, blocks, line_a, m))));
                images.push(("scale_b", line(one(of_b_count, n.div_ceil(128), line_b, blocks))));
            }
            More::Weights(zeros) => {
                let count = one(of_b_count, blocks, line_w, n);
                let line =
                    |of: &dyn Fn(usize) -> f64| (0..count).flat_map(|i| Number::F16.encode(of(i))).collect();
                images.push(("group_scales", line(&power)));
                if zeros {
                    images.push(("group_zeros", line(&|i| (7 + i % 2) as f64)));
                }
            }
            More::Nothing | More::Sparse(_) => {}
        }
        if beta != 0.0 && !aliased {
            images.push(("c", c_image));
        }
        images.push(("d", d_before));
        let table: Vec<u32> = match form {
            1 => (0..=count).map(|i| rows[..i].iter().sum::<usize>() as u32).collect(),
            2 => rows.iter().map(|&rows| rows as u32).collect(),
            3 => [0].into_iter().chain(ends.iter().map(|&end| end as u32)).collect(),
            _ => Vec::new(),
        };
        if !table.is_empty() {
            images.push(("groups", table.iter().flat_map(|number| number.to_le_bytes()).collect()));
        }
        let line = |of: &[f32]| of.iter().flat_map(|value| value.to_le_bytes()).collect::<Vec<u8>>();
        for (name, image) in [("bias", line(&bias)), ("each", line(&each)), ("aux", vec![poison; aux.len()])]
        {
            if named.contains(&name) {
                images.push((name, image));
            }
        }
        // The matrices' addresses are multiples of what their sizes allow where they end at a page.
        let matrices = images.iter().filter(|(name, _)| ["a", "b", "c", "d"].contains(name));
        let alignment = match side {
            _ if short.is_some() => 2,
            Side::Before => random.one(&[0, 16, 256]),
            Side::Behind if !plain => 16,
            Side::Behind => {
                matrices.map(|(_, image)| 1 << image.len().trailing_zeros().min(4)).min().unwrap_or(16)
            }
        };
        let size = |name: &str| match name {
            "a" => kind.of[0].size(),
            "b" => kind.of[1].size(),
            "c" => c_number.size(),
            "d" => of_d.size(),
            _ => 4,
        };
        let mut arrays = Vec::new();
        for (name, image) in images {
            let matrix = ["a", "b", "c", "d"].contains(&name);
            let own = if matrix { usize::try_from(alignment).unwrap_or(16).clamp(1, 16) } else { 16 };
            let array = match short {
                Some((of, side)) if of == name => Guarded::short(&image, side, size(name)),
                _ => Guarded::new(&image, side, own),
            };
            arrays.push((name, array));
        }
        let find = |name: &str| {
            arrays.iter().find(|(of, _)| *of == name).map_or(core::ptr::null(), |(_, of)| of.at())
        };
        let mut inputs: Vec<NamedInput> = Vec::new();
        for (name, c_name) in [("bias", c"bias"), ("each", c"each"), ("aux", c"aux")] {
            if named.contains(&name) {
                let ld = if name == "aux" { d.ld as u64 } else { 0 };
                inputs.push(NamedInput { name: c_name.as_ptr(), address: find(name), ld, ..zeros() });
            }
        }
        if named.contains(&"low") {
            inputs.push(NamedInput { name: c"low".as_ptr(), value: low, ..zeros() });
        }
        let described = |of: &Extents, i: usize| {
            let gaps = of.ld > of.length || of.count > 1 && of.stride > of.lines * of.ld;
            let stride = if several[i] && count > 1 && gaps { of.stride as u64 } else { 0 };
            [if of.ld > of.length { of.ld as u64 } else { 0 }, stride]
        };
        let [lds_a, lds_b, lds_d] = [(a, 0), (b, 1), (d, 2)].map(|(of, i)| described(&of, i));
        let c = [if named.contains(&"c") { lds_d[0] } else { 0 }, if text.is_none() { lds_d[1] } else { 0 }];
        let all = [lds_a, lds_b, c, lds_d];
        let description = Description {
            size: size_of::<Description>(),
            args_size: size_of::<Arguments>(),
            types: kind.types.as_ptr(),
            layout: layout.as_ptr(),
            m: m as u32,
            n: n as u32,
            k: k as u32,
            batch: if form > 0 || count > 1 { count as u32 } else { random.below(2) as u32 },
            lds: all.map(|of| of[0]),
            strides: all.map(|of| of[1]),
            alignment,
            epilogue: text.map_or(core::ptr::null(), |(text, _)| text.as_ptr()),
            flags: random.below(2) as u32,
            form: form as u32,
            room: if form == 2 { 29 } else { 0 },
            ..zeros()
        };
        let c = if aliased { find("d") } else { find("c") };
        let arguments = Arguments {
            a: find("a"),
            b: find("b"),
            c,
            d: find("d").cast_mut(),
            alpha: alpha as f32,
            beta: beta as f32,
            scale_a: find("scale_a"),
            scale_b: find("scale_b"),
            group_scales: find("group_scales"),
            group_zeros: find("group_zeros"),
            metadata: find("metadata"),
            groups: find("groups"),
            ..zeros()
        };
        let words = format!(
            "{:?} {layout:?} form {form} x {count}, {m} x {n} x {k}, rows {rows:?}, {side:?}, alpha {alpha}, beta {beta}, {:?}, lds {:?}, strides {:?}, \
             alignment {alignment}, C is D {aliased}",
            kind.types, text, description.lds, description.strides
        );
        let mut expected = vec![("d", of_d, after)];
        if named.contains(&"aux") {
            expected.push(("aux", Number::F32, aux));
        }
        Self {
            description,
            arguments,
            arrays,
            inputs,
            named: if text.is_some() { named } else { &[] },
            expected,
            words,
        }
    }

    /// GEMMs of different shapes, whose matrices are packed.
    fn records(random: &mut Random, kind: &Kind) -> Self {
        let (side, count) = (random.side(), 1 + random.number(3));
        let mut arrays: Vec<(&'static str, Guarded)> = Vec::new();
        let (mut bytes, mut expected) = (Vec::new(), Vec::new());
        let mut words = format!("{:?} records, {side:?}:", kind.types);
        for i in 0..count {
            // Multiples of 16 bytes.
            let [m, n, k] = [1 + random.number(40), 16 * (1 + random.number(3)), 16 * (1 + random.number(5))];
            words += &format!(" {m} x {n} x {k}");
            let [a, b]: [Vec<i8>; 2] =
                [m * k, n * k].map(|count| (0..count).map(|_| random.small()).collect());
            let image = |of: &[i8], number: Number| {
                of.iter().flat_map(|&of| number.encode(of.into())).collect::<Vec<u8>>()
            };
            let d = (0..m * n).flat_map(|at| {
                let dot =
                    (0..k).map(|l| f64::from(a[at / n * k + l]) * f64::from(b[at % n * k + l])).sum::<f64>();
                kind.of[2].encode(dot)
            });
            let d: Vec<u8> = d.collect();
            let name = ["d of record 0", "d of record 1", "d of record 2"][i];
            let memory = [image(&a, kind.of[0]), image(&b, kind.of[1]), vec![0xA5; d.len()]];
            let memory = memory.map(|image| Guarded::new(&image, side, 16));
            let record = Record {
                extents: [m as u32, n as u32, k as u32, 0],
                matrices: [memory[0].at(), memory[1].at(), core::ptr::null(), memory[2].at()],
                lds: [k, k, n, n].map(|ld| ld as u64),
            };
            // SAFETY: the structure has no gaps.
            let record: [u8; size_of::<Record>()] = unsafe { core::mem::transmute(record) };
            bytes.extend(record);
            expected.push((name, kind.of[2], d));
            let [a, b, d] = memory;
            arrays.extend([("", a), ("", b), (name, d)]);
        }
        arrays.push(("groups", Guarded::new(&bytes, side, 16)));
        let description = Description {
            size: size_of::<Description>(),
            args_size: size_of::<Arguments>(),
            types: kind.types.as_ptr(),
            m: 40,
            n: 48,
            k: 64,
            batch: count as u32,
            form: 4,
            ..zeros()
        };
        let groups = arrays.last().map_or(core::ptr::null(), |(_, of)| of.at());
        let arguments = Arguments { groups, alpha: 1.0, ..zeros() };
        Self { description, arguments, arrays, inputs: Vec::new(), named: &[], expected, words }
    }

    pub(crate) fn array(&self, name: &str) -> Option<&Guarded> {
        self.arrays.iter().find(|(of, _)| *of == name).map(|(_, of)| of)
    }

    /// Creates the kernel and runs it. Returns the statuses, and the message if one is not OK.
    pub(crate) fn run(&self) -> (Status, String) {
        let arguments =
            Arguments { inputs: self.inputs.as_ptr(), input_count: self.inputs.len(), ..self.arguments };
        let input_size = size_of::<NamedInput>();
        let arguments =
            if self.inputs.is_empty() { self.arguments } else { Arguments { input_size, ..arguments } };
        let mut gemm: *mut Gemm = null_mut();
        // SAFETY: the structures are valid, and so is the memory that they name.
        unsafe {
            let mut status = falchion_gemm_create(&self.description, &mut gemm);
            if status == OK {
                status = falchion_gemm_emulate(gemm, &arguments);
            }
            let message = if status == OK { String::new() } else { last() };
            falchion_gemm_destroy(gemm);
            (status, message)
        }
    }

    /// What is wrong in memory after a run: the first element that differs. Zeros may have either sign.
    pub(crate) fn wrong(&self) -> Option<String> {
        self.expected.iter().find_map(|(name, number, expected)| {
            let (found, size) = (self.array(name)?.bytes(), number.size());
            let zero = |of: &[u8]| {
                let [rest @ .., last] = of else { return false };
                rest.iter().all(|&byte| byte == 0) && last & 0x7F == 0
            };
            let float = !matches!(number, Number::S8 | Number::S32);
            let same = |(x, y): (&[u8], &[u8])| x == y || float && zero(x) && zero(y);
            let at = found.chunks(size).zip(expected.chunks(size)).position(|pair| !same(pair))?;
            let [found, expected] = [found, expected].map(|of| &of[at * size..][..size]);
            Some(format!("element {at} of {name} has {found:x?}, {expected:x?} was expected"))
        })
    }
}

/// Puts weights, or a sparse operand, in the order that kernels read, on guarded memory, too.
fn prepare(
    kind: &Kind,
    of: [&[i8]; 2],
    [m, n, k]: [usize; 3],
    side: Side,
    images: &mut Vec<(&'static str, Vec<u8>)>,
) {
    let mut all = Vec::new();
    match kind.more {
        More::Nothing | More::Scales => {}
        More::Weights(zeros) => {
            let code = if zeros { c"u4" } else { c"s4" };
            let mut bytes = 0;
            for one in of[1].chunks(n * k) {
                let codes = one.iter().map(|&of| if zeros { (of + 8) as u8 } else { of as u8 & 15 });
                let codes = Guarded::new(&codes.collect::<Vec<u8>>(), side, 1);
                // SAFETY: the memory has the sizes that the functions say.
                unsafe {
                    let (name, n, k) = (code.as_ptr(), n as u32, k as u32);
                    assert_eq!(falchion_weights_bytes(name, n, k, &mut bytes), OK, "{}", last());
                    let out = Guarded::new(&vec![0; bytes as usize], side, 1);
                    let status =
                        falchion_weights_reorder(name, n, k, codes.at().cast(), out.at().cast_mut().cast());
                    assert_eq!(status, OK, "{}", last());
                    all.extend_from_slice(out.bytes());
                }
            }
            images[1].1 = all;
        }
        More::Sparse(i) => {
            let (rows, number) = ([m, n][i], kind.of[i]);
            let name = if number == Number::S8 { c"s8" } else { c"bf16" };
            let (mut kept, mut bytes, mut metadata) = (0, 0, Vec::new());
            for one in of[i].chunks((rows * k).max(1)) {
                let elements = one.iter().flat_map(|&of| number.encode(of.into())).collect::<Vec<u8>>();
                let elements = Guarded::new(&elements, side, 1);
                // SAFETY: as above.
                unsafe {
                    let (name, rows, k) = (name.as_ptr(), rows as u32, k as u32);
                    assert_eq!(falchion_sparse_sizes(name, rows, k, &mut kept, &mut bytes), OK, "{}", last());
                    let values = vec![0; (rows * kept) as usize * number.size()];
                    let [values, words] =
                        [values, vec![0; bytes as usize]].map(|of| Guarded::new(&of, side, 1));
                    let [to, of_words] = [&values, &words].map(|of| of.at().cast_mut().cast());
                    let status = falchion_sparse_compress(name, rows, k, elements.at().cast(), to, of_words);
                    assert_eq!(status, OK, "{}", last());
                    all.extend_from_slice(values.bytes());
                    metadata.extend_from_slice(words.bytes());
                }
            }
            images[i].1 = all;
            images.push(("metadata", metadata));
        }
    }
}
