//! Tests that the pictures of the manual are those that [`cute_rs::draw`] makes.
//!
//! The pictures are in `src/pictures/`, as HTML that rustdoc shows. Set `PICTURES=overwrite` to write them
//! again.

use std::fs;
use std::path::Path;

use cute_rs::draw::{Access, DrawError, Picture};
use cute_rs::{IntTuple, Layout, Swizzle, ThreadValue, Tiler};

const DIGITS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

fn base64(bytes: &[u8]) -> String {
    let digits = |chunk: &[u8]| {
        let byte = |i: usize| u32::from(chunk.get(i).copied().unwrap_or(0));
        let bits = byte(0) << 16 | byte(1) << 8 | byte(2);
        let digit = |i: usize| match i <= chunk.len() {
            true => char::from(DIGITS[(bits >> (18 - 6 * i)) as usize % 64]),
            false => '=',
        };
        (0..4).map(digit).collect::<String>()
    };
    bytes.chunks(3).map(digits).collect()
}

/// The HTML that shows pictures next to each other.
fn html(words: &str, pictures: &[Picture]) -> String {
    let image = |picture: &Picture| {
        format!(
            "<img alt=\"{words}\" src=\"data:image/svg+xml;base64,{}\">\n",
            base64(picture.svg().as_bytes())
        )
    };
    format!("<p>\n{}</p>\n", pictures.iter().map(image).collect::<String>())
}

fn manual() -> Result<Vec<(&'static str, String)>, DrawError> {
    let interleaved = Layout::new(IntTuple::from((4, (2, 4))), IntTuple::from((2, (1, 8))))?;
    let rows = Layout::flat(&[4, 8], &[8, 1])?;
    let layouts = [rows, interleaved]
        .map(|layout| Picture::of_layout(&layout))
        .into_iter()
        .collect::<Result<Vec<_>, _>>()?;

    // The tiles as threads and the elements of a tile as their values, for two tilers.
    let matrix = Layout::column_major(IntTuple::from((6, 8)))?;
    let neighbours = matrix.zipped_divide_by(&Tiler::Shape(&IntTuple::from((3, 4))))?;
    let (two, four) = (Layout::flat(&[3], &[2])?.mode(0), Layout::flat(&[4], &[2])?.mode(0));
    let scattered = matrix.zipped_divide_by(&Tiler::Modes(&[Tiler::By(&two), Tiler::By(&four)]))?;
    let tiles = [(neighbours, "<3,4>"), (scattered, "<3:2,4:2>")].map(|(tiles, tiler)| {
        let owners = ThreadValue::new(tiles.select(&[1, 0])?, 6, 8)?;
        Ok(Picture::of_thread_value(&owners)?.titled(&format!("a 6 x 8 matrix in tiles by {tiler}")))
    });
    let tiles = tiles.into_iter().collect::<Result<Vec<_>, DrawError>>()?;

    // 8 rows of 8 chunks of 16 bytes.
    let chunks = Layout::flat(&[8, 8], &[8, 1])?;
    let swizzles = [Swizzle::NONE, Swizzle::new(3, 0, 3)?];
    let banks =
        swizzles.map(|swizzle| Picture::of_banks(&swizzle.after(chunks), 128, &Access::column(0, 16)));
    let banks = banks.into_iter().collect::<Result<Vec<_>, _>>()?;
    Ok(vec![
        ("layouts", html("offsets of a row-major and of an interleaved layout", &layouts)),
        ("tiles", html("tiles of neighbours and of scattered elements", &tiles)),
        ("banks", html("banks of a tile without and with a swizzle", &banks)),
    ])
}

#[test]
fn pictures_of_the_manual_are_current() -> Result<(), DrawError> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/pictures");
    for (name, text) in manual()? {
        let path = folder.join(format!("{name}.html"));
        if std::env::var_os("PICTURES").is_some_and(|value| value == "overwrite") {
            fs::write(&path, &text).expect("a writable folder");
        }
        let old = fs::read_to_string(&path).unwrap_or_default();
        assert!(old == text, "{name} has changed; `PICTURES=overwrite` writes it anew");
    }
    Ok(())
}

#[test]
fn base64_of_every_length() {
    for (bytes, want) in [("", ""), ("f", "Zg=="), ("fo", "Zm8="), ("foo", "Zm9v"), ("foob", "Zm9vYg==")] {
        assert_eq!(base64(bytes.as_bytes()), want);
    }
}
