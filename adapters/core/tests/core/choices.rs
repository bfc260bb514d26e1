//! Choices are made once, and forgotten when there are too many.

use std::cell::Cell;

use falchion_core::Choices;

#[test]
fn a_choice_is_made_once() {
    let (all, made) = (Choices::<u32, String>::new(2), Cell::new(0));
    let get = |of: u32| {
        all.get(of, |of| {
            made.set(made.get() + 1);
            if *of == 13 { Err("none for 13") } else { Ok(of.to_string()) }
        })
    };
    // What is asked for, and how many were made until then.
    for (of, count) in [(1, 1), (1, 1), (2, 2), (1, 2), (2, 2), (3, 3), (3, 3), (1, 4), (3, 4), (2, 5)] {
        assert_eq!(get(of).map(|known| (*known).clone()), Ok(of.to_string()));
        assert_eq!(made.get(), count, "{of}");
    }
    // A failure is not kept, and nothing is forgotten for it.
    for count in [6, 7] {
        assert_eq!((get(13), made.get()), (Err("none for 13"), count));
    }
    assert_eq!(format!("{all:?}"), "Choices { most: 2, .. }");
}
