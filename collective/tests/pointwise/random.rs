//! Tests the counter-based generator as a device program against the host's.

use collective::random::{philox, uniform};

use crate::device::run;

#[test]
fn the_emulator_draws_the_words_of_the_host() {
    let counters: Vec<[f32; 2]> = (0..300u32)
        .map(|i| [f32::from_bits(i.wrapping_mul(0x9E37_79B9)), f32::from_bits(i << 20 | 7)])
        .collect();
    let (key, other) = (0xDEAD_BEEF, 0x0BAD_CAFE);
    for word in 0..4 {
        let got = run(&[f32::from_bits(key)], &counters, |scalars, counter| {
            let [a, b] = counter.map(|value| value.bits_as::<u32>());
            let f = a.builder();
            let key = [scalars[0].bits_as(), f.constant(other)];
            philox([a, b, f.constant(3), f.constant(0)], key)[word].bits_as()
        });
        let fractions = run(&[], &counters, |_, [a, _]| uniform(a.bits_as::<u32>()));
        for ((counter, got), fraction) in counters.iter().zip(got).zip(fractions) {
            let [a, b] = counter.map(f32::to_bits);
            assert_eq!(got.to_bits(), philox([a, b, 3, 0], [key, other])[word], "word {word} of {counter:?}");
            assert_eq!(fraction, uniform(a));
        }
    }
}
