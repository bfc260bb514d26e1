//! What does not fit: one thing in a call that is otherwise right, and the words of which an error must have one.

use core::ptr::null;

use crate::structures::{NamedInput, PACKED, WINDOW};

use crate::attention;
use crate::gemm::Case;
use crate::pages::Random;
use crate::zeros;

/// Words of an error.
type Words = &'static [&'static str];

/// Spoils a GEMM in one place. `None`: the place that was drawn is none of this call's.
pub(crate) fn gemm(case: &mut Case, random: &mut Random) -> Option<Words> {
    let places: &[fn(&mut Case, &mut Random) -> Option<Words>] = &[described, strides, given, inputs, tables];
    // Some place is one of every call's.
    (0..100).find_map(|_| places[random.number(places.len())](case, random))
}

/// The description.
fn described(case: &mut Case, random: &mut Random) -> Option<Words> {
    let of = &mut case.description;
    // The records say how large GEMMs are.
    match random.number(if of.form == 4 { 11 } else { 14 }) {
        0 => of.types = c"bf17".as_ptr(),
        1 => of.layout = c"kx".as_ptr(),
        2 => of.size = 8,
        3 => of.alignment = 3,
        4 => of.form = 5 + random.below(9) as u32,
        5 => of.flags = 2,
        6 => of.reserved = 1,
        7 if of.form != 2 => of.room = 7,
        8 => of.args_size = 8,
        9 => of.epilogue = c"acc +".as_ptr(),
        10 => of.spec = c"tile=1".as_ptr(),
        11 => of.m = random.one(&[u32::MAX, 1 << 31]),
        12 => of.n = random.one(&[u32::MAX, 1 << 31]),
        13 => of.k = random.one(&[u32::MAX, 1 << 31]),
        _ => return None,
    }
    // Extents that no memory holds: of more than one matrix the first is named.
    let huge: Words = &[
        "M is", "N is", "K is", "A", "B", "a would", "b would", "c would", "d would", "lda", "ldb", "ldc",
        "ldd", "memory", "tiles", "blocks",
    ];
    Some(match case.description {
        of if of.size == 8 => &["size is 8"],
        of if of.alignment == 3 => &["alignment is 3"],
        of if of.form > 4 => &["form is"],
        of if of.flags == 2 => &["flags is"],
        of if of.reserved == 1 => &["reserved is 1"],
        of if of.room == 7 => &["room is 7"],
        of if of.args_size == 8 => &["size is 8"],
        of if !of.spec.is_null() => &["spec"],
        of if [of.m, of.n, of.k].iter().any(|&extent| extent >= 1 << 31) => huge,
        _ => &["types is", "layout is", "epilogue"],
    })
}

/// Leading dimensions and strides.
fn strides(case: &mut Case, random: &mut Random) -> Option<Words> {
    let of = &mut case.description;
    let (i, records) = (random.number(4), of.form == 4);
    let sourced = of.epilogue.is_null() || case.named.contains(&"c");
    if records {
        of.lds[i] = 64;
        return Some(&["leading dimensions"]);
    }
    let long = random.one(&[1u64 << 50, u64::MAX]);
    let too_long: Words =
        &["a would", "b would", "c would", "d would", "A", "B", "C", "D", "ldc", "stride_c"];
    match random.number(4) {
        0 if i != 2 || sourced => {
            // An operand of no line has no end.
            if [of.m, of.n, of.k].iter().any(|&extent| extent < 2) {
                return None;
            }
            of.lds[i] = long;
            Some(too_long)
        }
        1 if of.form == 0 && of.batch == 0 => {
            of.strides[i] = 64;
            Some([&["stride_a is 64"], &["stride_b is 64"], &["stride_c is 64"], &["stride_d is 64"]][i])
        }
        2 if of.form == 1 || of.form == 2 => {
            of.strides[0] = 64;
            Some(&["stride_a is 64"])
        }
        3 if case.arguments.scale_a.is_null() => {
            of.scale_lds[1] = 16;
            Some(&["ld_scale_b is 16"])
        }
        _ => None,
    }
}

/// What is given and not used, and what is used and not given.
fn given(case: &mut Case, random: &mut Random) -> Option<Words> {
    let any = case.arrays.iter().find(|(name, _)| *name == "groups" || *name == "d")?.1.at();
    let (form, of) = (case.description.form, &mut case.arguments);
    let computes = case.description.m > 0;
    match random.number(12) {
        0 if !case.description.epilogue.is_null() && !case.named.contains(&"c") => {
            of.c = any;
            Some(&["c is 0x"])
        }
        1 if of.scale_a.is_null() => {
            of.scale_a = any;
            Some(&["scale_a is 0x"])
        }
        2 if of.scale_b.is_null() => {
            of.scale_b = any;
            Some(&["scale_b is 0x"])
        }
        3 if of.group_scales.is_null() => {
            of.group_scales = any;
            Some(&["group_scales is 0x"])
        }
        4 if of.group_zeros.is_null() => {
            of.group_zeros = any;
            Some(&["group_zeros is 0x"])
        }
        5 if of.metadata.is_null() => {
            of.metadata = any;
            Some(&["metadata is 0x"])
        }
        6 if form == 0 => {
            of.groups = any;
            Some(&["groups is 0x"])
        }
        7 if form == 4 => {
            of.a = any;
            Some(&["a is 0x"])
        }
        8 => {
            of.workspace_bytes = 64;
            Some(&["workspace is NULL"])
        }
        9 if form != 4 && computes => {
            of.d = core::ptr::null_mut();
            // C is another matrix, or has the same address.
            Some(&["D"])
        }
        10 if computes && (form == 1 || form == 3) => {
            of.groups = null();
            Some(&["groups"])
        }
        11 if !of.scale_a.is_null() && computes && of.alpha != 0.0 => {
            of.scale_a = null();
            Some(&["A's scales", "scale_a"])
        }
        _ => None,
    }
}

/// The arguments of an epilogue's text.
fn inputs(case: &mut Case, random: &mut Random) -> Option<Words> {
    let one = NamedInput { name: c"bias".as_ptr(), value: 1.0, ..zeros() };
    if case.description.epilogue.is_null() {
        case.inputs.push(one);
        return Some(&["input_count is 1"]);
    }
    if case.inputs.is_empty() {
        case.inputs.push(NamedInput { name: c"none".as_ptr(), ..one });
        return Some(&["input `none` is no argument"]);
    }
    let i = random.number(case.inputs.len());
    let number = case.inputs[i].address.is_null();
    let (vector, of) = (case.inputs[i].ld == 0, &mut case.inputs[i]);
    match random.number(8) {
        0 => of.reserved = 1,
        1 if !number => of.value = 2.0,
        2 if !number => of.address = null(),
        3 if number || vector => of.ld = 64,
        4 => of.mask = [1, 0],
        5 => of.mask = [0, 1],
        6 => {
            let same = *of;
            case.inputs.push(same);
            return Some(&["given twice"]);
        }
        7 => {
            case.inputs.remove(i);
            return Some(&["is not given"]);
        }
        _ => return None,
    }
    Some(&["input `"])
}

/// Tables of groups.
fn tables(case: &mut Case, random: &mut Random) -> Option<Words> {
    let form = case.description.form;
    if !(1..=3).contains(&form) || case.description.m == 0 {
        return None;
    }
    let groups = case.array("groups")?;
    let i = random.number(groups.bytes().len() / 4);
    // More rows than there are.
    let beyond = random.one(&[1u32 << 20, u32::MAX]);
    // SAFETY: the array has this number, and nobody else uses it.
    unsafe { groups.at().cast_mut().cast::<u32>().add(i).write(beyond) };
    Some(&["of the groups is"])
}

/// Spoils attention in one place.
pub(crate) fn attention(case: &mut attention::Case, random: &mut Random) -> Option<Words> {
    (0..100).find_map(|_| if random.once_in(2) { of_attention(case, random) } else { case.spoil(random) })
}

/// The description of attention.
fn of_attention(case: &mut attention::Case, random: &mut Random) -> Option<Words> {
    let of = &mut case.description;
    let long = random.one(&[1u64 << 50, u64::MAX / 2 + 1]);
    Some(match random.number(16) {
        0 => {
            of.types = c"s8".as_ptr();
            &["types is"]
        }
        1 => {
            of.size = 16;
            &["size is 16"]
        }
        2 => {
            of.flags |= 1 << 9;
            &["flags is"]
        }
        3 => {
            of.batch = random.one(&[u32::MAX, 1 << 31]);
            &["the number of sequences is"]
        }
        4 => {
            of.heads = u32::MAX;
            &["heads"]
        }
        5 => {
            of.queries = u32::MAX;
            &["the number of queries is"]
        }
        6 => {
            of.keys = u32::MAX;
            &["the number of keys is"]
        }
        7 => {
            of.d = 72;
            &["72"]
        }
        8 => {
            of.scale = -1.0;
            &["scale is -1"]
        }
        9 => {
            of.alignment = 3;
            &["alignment is 3"]
        }
        10 if of.flags & WINDOW == 0 => {
            of.window = [0, 7];
            &["window[1] is 7"]
        }
        11 if of.flags & PACKED != 0 => {
            of.sequences[0] = 64;
            &["sequence[0] is 64"]
        }
        12 => {
            of.rows[0] = long;
            &["Q"]
        }
        13 => {
            of.rows[1] = 9;
            &["K"]
        }
        14 if of.page == 0 => {
            of.page = 7;
            &["page, is 7", "page is 7"]
        }
        15 => {
            of.args_size = 9;
            &["size is 9"]
        }
        _ => return None,
    })
}
