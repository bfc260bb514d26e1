//! Two results of attention as one, and new keys and values in pages of a cache, in the emulator; and what is refused.

mod structures;

use core::ffi::{CStr, c_void};
use core::ptr::null_mut;

use structures::{
    AppendArguments, MergeArguments, OK, falchion_append_pages_emulate, falchion_last_error,
    falchion_merge_attention, falchion_merge_attention_emulate,
};

fn last() -> String {
    // SAFETY: the text lives until the thread's next failure.
    unsafe { CStr::from_ptr(falchion_last_error()) }.to_string_lossy().into_owned()
}

/// Elements that begin at a multiple of 16 bytes.
struct Room<T>(Vec<T>, usize);

impl<T: Copy + Default> Room<T> {
    fn new(all: &[T]) -> Self {
        let mut room = vec![T::default(); all.len() + 16];
        let start = room.as_ptr().align_offset(16);
        room[start..start + all.len()].copy_from_slice(all);
        Self(room, start)
    }

    fn at(&self) -> *const c_void {
        self.0[self.1..].as_ptr().cast()
    }

    fn to(&mut self) -> *mut c_void {
        self.0[self.1..].as_mut_ptr().cast()
    }

    fn values(&self, count: usize) -> &[T] {
        &self.0[self.1..][..count]
    }
}

fn merged() -> MergeArguments {
    MergeArguments {
        size: size_of::<MergeArguments>(),
        types: c"f32".as_ptr(),
        shape: [2, 3, 5, 8],
        // SAFETY: the structure may be zero.
        ..unsafe { core::mem::zeroed() }
    }
}

fn appended() -> AppendArguments {
    AppendArguments {
        size: size_of::<AppendArguments>(),
        types: c"bf16".as_ptr(),
        tokens: 5,
        kv_heads: 2,
        d: 16,
        pages: 3,
        page: 4,
        // SAFETY: the structure may be zero.
        ..unsafe { core::mem::zeroed() }
    }
}

/// O is in the place of O_a, whose heads follow its rows; rows without keys become the other ones.
#[test]
fn results_are_merged_in_place() {
    const COUNT: usize = 2 * 3 * 5 * 8;
    let number = |i: usize, by: usize| ((i * by % 31) as f32 - 15.0) / 16.0;
    let [a, b] = [7, 11].map(|by| (0..COUNT).map(|i| number(i, by)).collect::<Vec<f32>>());
    let sum = |i: usize, by: usize| if i.is_multiple_of(by) { f32::NEG_INFINITY } else { number(i, by) };
    let [sums_a, sums_b] = [3, 5].map(|by| (0..COUNT / 8).map(|i| sum(i, by)).collect::<Vec<f32>>());
    let (mut o, other) = (Room::new(&a), Room::new(&b));
    let (mut sums, other_sums) = (Room::new(&sums_a), Room::new(&sums_b));
    let mut of = merged();
    (of.rows[0], of.heads[0], of.sequences[0]) = (3 * 8, 8, 3 * 5 * 8);
    (of.rows[2], of.heads[2], of.sequences[2]) = (3 * 8, 8, 3 * 5 * 8);
    (of.o_b, of.lse_b) = (other.at(), other_sums.at());
    (of.o, of.log_sum_exp) = (o.to(), sums.to());
    (of.o_a, of.lse_a) = (of.o, of.log_sum_exp);
    // SAFETY: the structure is valid, and so is the memory that it names.
    assert_eq!(unsafe { falchion_merge_attention_emulate(&of) }, OK, "{}", last());
    for row in 0..COUNT / 8 {
        let [of_a, of_b] = [sums_a[row], sums_b[row]].map(|sum| f64::from(sum).exp());
        let (all, found) = (of_a + of_b, f64::from(sums.values(COUNT / 8)[row]));
        assert!(found == all.ln() || (found - all.ln()).abs() < 1e-5, "row {row}: {found} {}", all.ln());
        let (sequence, head, query) = (row / 15, row / 5 % 3, row % 5);
        let at_a = ((sequence * 5 + query) * 3 + head) * 8;
        for x in 0..8 {
            let (a, b) = (f64::from(a[at_a + x]), f64::from(b[row * 8 + x]));
            let want = if all > 0.0 { (a * of_a + b * of_b) / all } else { 0.0 };
            let found = f64::from(o.values(COUNT)[at_a + x]);
            assert!((found - want).abs() < 1e-5, "row {row}, {x}: {found} {want}");
        }
    }
}

/// With slots of either size; what has none is left out, and so is V where there is none.
#[test]
fn keys_are_appended() {
    let slots = [11i64, -1, 0, 6, 2];
    for (wide, values) in [(false, true), (true, true), (true, false)] {
        let elements: Vec<u16> = (1..=5 * 2 * 16).collect();
        let (k, v) = (Room::new(&elements), Room::new(&elements));
        let [mut k_cache, mut v_cache] = [0, 1].map(|_| Room::new(&[0u16; 3 * 2 * 4 * 16]));
        let narrow = Room::new(&slots.map(|slot| slot as i32));
        let long = Room::new(&slots);
        let mut of = appended();
        (of.k, of.k_cache, of.slots) = (k.at(), k_cache.to(), if wide { long.at() } else { narrow.at() });
        of.slot_bits = if wide { 64 } else { 0 };
        if values {
            // Heads of V's new rows are in front of them, and its cache has them after the keys of a page.
            (of.v, of.v_cache) = (v.at(), v_cache.to());
            (of.rows[1], of.heads[1], of.rows[3], of.heads[3]) = (16, 5 * 16, 2 * 16, 16);
            of.page_steps[1] = 4 * 2 * 16;
        }
        // SAFETY: the structure is valid, and so is the memory that it names.
        assert_eq!(unsafe { falchion_append_pages_emulate(&of) }, OK, "{}", last());
        let mut want = [[0u16; 3 * 2 * 4 * 16]; 2];
        for (token, slot) in slots.iter().enumerate().filter(|(_, slot)| **slot >= 0) {
            let (page, key) = (*slot as usize / 4, *slot as usize % 4);
            for head in 0..2 {
                let of_k = &elements[(token * 2 + head) * 16..][..16];
                want[0][((page * 2 + head) * 4 + key) * 16..][..16].copy_from_slice(of_k);
                let of_v = &elements[(head * 5 + token) * 16..][..16];
                want[1][((page * 4 + key) * 2 + head) * 16..][..16].copy_from_slice(of_v);
            }
        }
        assert_eq!(k_cache.values(3 * 2 * 4 * 16), want[0]);
        let want = if values { want[1] } else { [0; 3 * 2 * 4 * 16] };
        assert_eq!(v_cache.values(3 * 2 * 4 * 16), want);
    }
}

#[test]
fn what_is_refused_is_named() {
    let (a, mut o) = (Room::new(&[0f32; 240]), Room::new(&[0f32; 240]));
    let (sums, mut all) = (Room::new(&[0f32; 30]), Room::new(&[0f32; 30]));
    let given = MergeArguments {
        o_a: a.at(),
        o_b: a.at(),
        lse_a: sums.at(),
        lse_b: sums.at(),
        o: o.to(),
        log_sum_exp: all.to(),
        ..merged()
    };
    for (words, of) in [
        (
            "size is 8, sizeof(falchion_merge_attention_args), 160, was needed",
            MergeArguments { size: 8, ..given },
        ),
        (
            "types is \"e4m3\", one of bf16, f16, f32 was needed",
            MergeArguments { types: c"e4m3".as_ptr(), ..given },
        ),
        ("lse_b is NULL, an address was needed", MergeArguments { lse_b: core::ptr::null(), ..given }),
        (
            "reserved is 3, and no version has a meaning for it: 0 was needed",
            MergeArguments { reserved: 3, ..given },
        ),
        ("a head of O_a has 6 elements", MergeArguments { shape: [2, 3, 5, 6], ..given }),
        ("O_b", MergeArguments { rows: [0, 9, 0], ..given }),
    ] {
        // SAFETY: the structure is valid, and so is the memory that it names.
        assert_ne!(unsafe { falchion_merge_attention_emulate(&of) }, OK, "{words}");
        assert!(last().contains(words), "{} has no {words}", last());
    }
    // SAFETY: nothing is launched.
    assert_ne!(unsafe { falchion_merge_attention(-1, null_mut(), (&raw const given).cast()) }, OK);
    assert!(last().contains("device is -1"), "{}", last());
    let (k, mut cache) = (Room::new(&[0u16; 160]), Room::new(&[0u16; 384]));
    for (words, slots, of) in [
        ("slot 12 of row 4 is not in the cache of 12 keys", [0, 1, 2, 3, 12], appended()),
        ("slot -2 of row 0 is not in the cache", [-2, 1, 2, 3, 4], appended()),
        ("rows 1 and 3 both have slot 7", [0, 7, 2, 7, 4], appended()),
        ("slot_bits is 16, 0, 32 or 64 was needed", [0; 5], AppendArguments { slot_bits: 16, ..appended() }),
        ("a head of K has 12 elements", [0; 5], AppendArguments { d: 12, ..appended() }),
        ("the cache of V", [0; 5], AppendArguments { v: k.at(), ..appended() }),
    ] {
        let slots = Room::new(&slots);
        let of = AppendArguments { k: k.at(), k_cache: cache.to(), slots: slots.at(), ..of };
        // SAFETY: the structure is valid, and so is the memory that it names.
        assert_ne!(unsafe { falchion_append_pages_emulate(&of) }, OK, "{words}");
        assert!(last().contains(words), "{} has no {words}", last());
    }
}
