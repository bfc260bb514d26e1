//! The gallery of layouts: each has its notation and a sentence about it.

use cute_rs::atom::{Major, SwizzleMode, smem, stmatrix, wgmma};
use cute_rs::{Layout, LayoutError, ThreadValue, TiledCopy};
use serde_json::{Value, json};

/// A layout of the gallery: a title, what the picture shows, and the layout in CuTe's notation. The view is `offsets`,
/// `owners` of a tile whose elements threads own, or `banks` for elements of some bits.
fn card(
    (group, view): (&str, &str),
    [title, layout, sentence]: [&str; 3],
    tile: Option<[i64; 2]>,
    bits: Option<u32>,
) -> Value {
    json!({
        "title": title,
        "sentence": sentence,
        "layout": layout,
        "view": view,
        "tile": tile,
        "bits": bits,
        "group": group,
    })
}

pub(super) fn cards() -> Result<Vec<Value>, LayoutError> {
    let mut cards = plain();
    for (major, name) in [(Major::K, "K-major"), (Major::Mn, "MN-major")] {
        for mode in SwizzleMode::ALL {
            cards.push(swizzled(major, name, mode)?);
        }
    }
    cards.extend(owned()?);
    Ok(cards)
}

fn plain() -> Vec<Value> {
    let card = |title, layout, sentence| card(("Layouts", "offsets"), [title, layout, sentence], None, None);
    vec![
        card(
            "Column-major",
            "(4,8):(1,4)",
            "The next row is the next element: stride 1 down a column, 4 along a row.",
        ),
        card(
            "Row-major",
            "(4,8):(8,1)",
            "The next column is the next element: stride 8 down a column, 1 along a row.",
        ),
        card(
            "Padded rows",
            "(8,8):(9,1)",
            "Rows begin 9 elements apart: no two elements of a column are in the same bank.",
        ),
        card(
            "Tiles of 2 x 4",
            "((2,2),(4,2)):((4,16),(1,8))",
            "Each mode is a pair: the position within a tile, and the tile. The elements of a tile are contiguous.",
        ),
        card(
            "One row for all",
            "(4,8):(0,1)",
            "Stride 0 repeats: every row is the same eight elements, like a bias that is added to each row of a matrix.",
        ),
    ]
}

fn swizzled(major: Major, name: &str, mode: SwizzleMode) -> Result<Value, LayoutError> {
    let width = mode.elements(16);
    let (mn, k) = if major == Major::K { (8, width) } else { (width, 8) };
    let tile = smem::tile(major, mode, 16, mn, k)?;
    let bytes = mode.bytes();
    let sentence = match mode {
        SwizzleMode::None => {
            "Without a swizzle, rows are 16 bytes long and consecutive: eight rows fill all 32 banks."
                .to_owned()
        }
        SwizzleMode::B32 | SwizzleMode::B64 | SwizzleMode::B128 => format!(
            "Rows of {bytes} bytes. The index of a 16-byte chunk is XORed with the number of its 128-byte line, so that eight rows of one chunk \
             are in different banks."
        ),
    };
    let title = match mode {
        SwizzleMode::None => format!("No swizzle, {name}"),
        SwizzleMode::B32 | SwizzleMode::B64 | SwizzleMode::B128 => format!("{bytes} B swizzle, {name}"),
    };
    let group = ("Operands in shared memory (bf16)", "banks");
    Ok(card(group, [&title, &tile.to_string(), &sentence], None, Some(16)))
}

fn owned() -> Result<Vec<Value>, LayoutError> {
    let group = ("Registers: which thread has which element", "owners");
    let card = |title, fragment: ThreadValue, sentence| {
        card(group, [title, &fragment.layout().to_string(), sentence], Some(fragment.tile().into()), None)
    };
    let of_copy = |layout: Layout, tile: [i64; 2]| ThreadValue::new(layout, tile[0], tile[1]);
    let (load, store) = (stmatrix::ldmatrix(4, false)?, stmatrix::stmatrix(4, false)?);
    let (threads, values) = (Layout::flat(&[4, 8], &[8, 1])?, Layout::flat(&[2, 2], &[2, 1])?);
    let copy = TiledCopy::new(&threads, &values)?;
    Ok(vec![
        card(
            "wgmma accumulator, m64n16",
            wgmma::accumulator(16)?,
            "Warp w has rows 16w to 16w + 15; four adjacent lanes share a row, with two columns each.",
        ),
        card(
            "wgmma A from registers, 16 bit",
            wgmma::operand_a(16)?,
            "A register holds two adjacent elements along K. The pattern is that of the accumulators, so accumulators can become an operand in place.",
        ),
        card(
            "ldmatrix.x4: what lanes get",
            of_copy(load.destination(), [16, 16])?,
            "Four 8 x 8 matrices: each lane gets two adjacent elements of a row of each.",
        ),
        card(
            "stmatrix.x4: whose address",
            of_copy(store.destination(), [16, 16])?,
            "Lane 8i + r gives the address of row r of matrix i: 16 bytes that are stored at once.",
        ),
        card(
            "A partition of threads and values",
            of_copy(copy.source(), [8, 16])?,
            "4 x 8 threads, each with 2 x 2 values of a tile of 8 x 16.",
        ),
    ])
}
