//! The catalogue: kernels by name, for the command line and for selection at run time.
//!
//! A name is `<kind>-<element>-<layout>`. Each kind is a [`KernelSpec`], one line of a table in this file.
//! Every function that takes a name also takes the text of a spec.

use collective::Formula;
use collective::process::Once;

use crate::gemm::AnyGemm;
use crate::spec::{EpilogueKind, KernelSpec, SpecError};

/// A kind of kernel, and the text of its spec.
type Kind = (&'static str, &'static str);

/// Kernels of one GEMM. The first one that fits a call is the usual choice.
const SINGLE: [Kind; 24] = [
    // Outputs of many tiles.
    ("128x256", "tile=128x256x64 raster=m12"),
    // C is loaded by tensor copies while its tile is multiplied.
    ("128x256-sourced", "tile=128x256x64 epilogue=sourced raster=m12"),
    // The least traffic per multiplication, for outputs of many tiles.
    ("256x192", "tile=256x192x64"),
    // Fewer waves than `128x256`, where the last wave of `256x192` would be too empty.
    ("128x320", "tile=128x320x64 raster=m16"),
    // Half the traffic from L2. This matters where rows begin inside a 32-byte sector.
    ("128x256-2x2", "tile=128x256x64 cluster=2x2"),
    // As `256x192`, with the last waves split along K where they would leave too many SMs idle.
    ("256x192-stream-k", "tile=256x192x64 scheduler=stream-k"),
    // Nearly as little traffic as `256x192`, with more tiles.
    ("256x128-1x2", "tile=256x128x64 cluster=1x2"),
    // Short K: one consumer stores its tile while the other multiplies.
    ("128x128-pingpong", "tile=128x128x64 roles=pingpong"),
    ("128x256-direct", "tile=128x256x64 store=direct"),
    // Outputs of some hundred tiles.
    ("128x128-direct", "tile=128x128x64 store=direct"),
    // Small outputs.
    ("64x64-direct", "tile=64x64x64 store=direct scheduler=one-tile raster=m"),
    ("128x64", "tile=128x64x64 scheduler=one-tile raster=m"),
    // 128 rows and a long K: weights are read once, and L2 evicts them first.
    ("64x64-2x1", "tile=64x64x64 cluster=2x1 l2-b=evict-first scheduler=one-tile raster=m"),
    ("64x128-2x1", "tile=64x128x64 cluster=2x1 l2-b=evict-first scheduler=one-tile raster=m"),
    // Few tiles with a long K: eight CTAs share what they load, four of them columns that they load in turn.
    ("64x104-stream-k-4x2", "tile=64x104x64 cluster=4x2 scheduler=stream-k raster=m"),
    // 256 rows.
    ("128x128-pingpong-2x1", "tile=128x128x64 roles=pingpong cluster=2x1"),
    // Small outputs with a long K.
    (
        "128x128-stream-k-2x2",
        "tile=128x128x64 cluster=2x2 store=direct scheduler=stream-k raster=m reduction=separate",
    ),
    // Up to 16, 64 and 128 rows, with swap-AB: the rows fill the instruction's N, the weights its M.
    (
        "64x16-swap",
        "tile=64x16x128 swap=yes l2-b=evict-first store=direct scheduler=stream-k raster=m divide=heuristic4",
    ),
    ("64x64-swap", "tile=64x64x128 swap=yes l2-b=evict-first store=direct raster=m"),
    ("64x128-swap-2x1", "tile=64x128x64 cluster=2x1 swap=yes l2-b=evict-first store=direct raster=m"),
    // For a card on which other kernels run at the same time.
    ("128x256-dynamic", "tile=128x256x64 scheduler=dynamic raster=m12"),
    ("256x128-dynamic-1x2", "tile=256x128x64 cluster=1x2 scheduler=dynamic"),
    // Operands with rows that tensor copies cannot read.
    ("128x128-unaligned", "tile=128x128x64 load=copy store=direct"),
    ("64x64-unaligned", "tile=64x64x64 load=copy store=direct scheduler=one-tile raster=m"),
];

/// Kernels without `wgmma`, in which every warp copies and multiplies. They are for comparison, for learning,
/// and for elements that `wgmma` does not multiply. Each has its element type and its layouts.
const THREADS: [(Kind, &str, &[&str]); 9] = [
    (MULTISTAGE, "bf16", &LAYOUTS),
    (MULTISTAGE_UNALIGNED, "bf16", &LAYOUTS),
    (MULTISTAGE, "f16", &["kk"]),
    (MULTISTAGE_UNALIGNED, "f16", &["kk"]),
    (("multistage", "tile=256x128x32 multiply=mma.sync stages=3"), "tf32", &["kk"]),
    (("multistage-unaligned", "tile=128x128x32 multiply=mma.sync stages=3 store=direct"), "tf32", &["kk"]),
    (("multistage", "tile=128x64x16 multiply=mma.sync consumers=1 stages=4"), "f64", &["kk"]),
    // 6 x 16 accumulators per thread.
    (("simt", "tile=192x64x16 consumers=1 stages=4"), "f32", &LAYOUTS),
    (("simt-unaligned", "tile=128x64x16 consumers=1 stages=4 store=direct"), "f32", &LAYOUTS),
];

/// 64 KB of operands in flight, and a tile of 32 x 128 per warp.
const MULTISTAGE: Kind = ("multistage", "tile=256x128x64 multiply=mma.sync stages=3");

/// The same for rows that tensor copies cannot store.
const MULTISTAGE_UNALIGNED: Kind =
    ("multistage-unaligned", "tile=128x128x64 multiply=mma.sync stages=3 store=direct");

/// Kernels of several GEMMs, with operands in any layout.
const SEVERAL: [Kind; 10] = [
    ("batched-128x256", "tile=128x256x64 form=batched"),
    ("batched-128x128-direct", "tile=128x128x64 form=batched store=direct"),
    // With a 256 x 192 tile no register is left for the number of the GEMM.
    ("batched-128x256-stream-k", "tile=128x256x64 form=batched scheduler=stream-k"),
    ("batched-64x16-swap", "tile=64x16x128 form=batched swap=yes l2-b=evict-first store=direct raster=m"),
    ("batched-128x128-unaligned", "tile=128x128x64 form=batched load=copy store=direct"),
    ("ragged-128x128-unaligned", "tile=128x128x64 form=ragged load=copy store=direct"),
    ("grouped-128x256", "tile=128x256x64 form=grouped store=direct"),
    ("grouped-128x128", "tile=128x128x64 form=grouped store=direct"),
    ("grouped-64x16-swap", "tile=64x16x128 form=grouped swap=yes l2-b=evict-first store=direct raster=m"),
    ("grouped-128x128-unaligned", "tile=128x128x64 form=grouped load=copy store=direct"),
];

/// Kernels of groups of rows. They need a row-major A: in a column-major A, a group may begin at any element
/// of a line, where no tensor copy can begin.
const RAGGED: [Kind; 8] = [
    ("ragged-128x256", "tile=128x256x64 form=ragged"),
    ("ragged-256x128-1x2", "tile=256x128x64 form=ragged cluster=1x2"),
    ("ragged-64x256-pingpong", "tile=64x256x64 form=ragged roles=pingpong"),
    ("ragged-128x128-direct", "tile=128x128x64 form=ragged store=direct"),
    // Swap-AB: weights fill the rows of a tile. Its columns are a group's tokens, up to 256, and the tile is
    // as wide as their number.
    ("ragged-128x256-step32", "tile=128x256x64 form=ragged step=32 swap=yes scheduler=dynamic raster=m"),
    (
        "ragged-128x256-step32-2x1",
        "tile=128x256x64 form=ragged step=32 cluster=2x1 swap=yes scheduler=dynamic raster=m",
    ),
    (
        "ragged-128x256-step32-tail",
        "tile=128x256x64 form=ragged step=32 cluster=2x1 swap=yes scheduler=dynamic-tail raster=m",
    ),
    ("ragged-64x16-swap", "tile=64x16x128 form=ragged swap=yes l2-b=evict-first store=direct raster=m"),
];

/// Kernels with a fused epilogue: the kinds that every fusion has.
const FUSED: [Kind; 4] = [
    ("128x256", "tile=128x256x64 raster=m12"),
    ("256x192", "tile=256x192x64"),
    // With four buffers the epilogue does not wait for a buffer, and more often ends before the other
    // consumer's multiplications.
    ("128x128-pingpong", "tile=128x128x64 roles=pingpong buffers=4"),
    ("256x128-1x2", "tile=256x128x64 cluster=1x2"),
];

/// More kinds, for the most used fusions.
const FUSED_MORE: [Kind; 6] = [
    // With two buffers there is shared memory for six stages, not five.
    ("128x128-pingpong-2buffers", "tile=128x128x64 roles=pingpong"),
    ("128x320", "tile=128x320x64 raster=m16"),
    ("128x256-2x2", "tile=128x256x64 cluster=2x2"),
    ("128x64", "tile=128x64x64 scheduler=one-tile raster=m"),
    ("64x128-2x1", "tile=64x128x64 cluster=2x1 l2-b=evict-first scheduler=one-tile raster=m"),
    ("64x64-direct", "tile=64x64x64 store=direct scheduler=one-tile raster=m"),
];

/// Kinds that split tiles, for fusions that leave enough registers.
const FUSED_DIVIDED: [Kind; 1] = [("256x192-stream-k", "tile=256x192x64 scheduler=stream-k")];

const ELEMENTS: [&str; 2] = ["bf16", "f16"];
const LAYOUTS: [&str; 4] = ["kk", "kn", "mk", "mn"];

/// The kernel of a kind for an element type and a layout, under its name.
fn named((kind, text): Kind, element: &str, layout: &str, fusion: Option<Formula>) -> AnyGemm {
    let spec = KernelSpec::parse(&format!("{text} dtype={element} layout={layout}"));
    let mut spec = spec.expect("the catalogue's specs are specs");
    let mut name = format!("{kind}-{element}-{layout}");
    if let Some(fusion) = fusion {
        spec.epilogue = EpilogueKind::Fused(fusion);
        spec.store.format = fusion.output(spec.store.format);
        name = format!("{kind}-{}-{element}-{layout}", fusion.name());
    }
    spec.named(name).expect("the catalogue's specs are legal")
}

fn in_layouts(kinds: &[Kind], element: &str, layouts: &[&str]) -> Vec<AnyGemm> {
    let of_layout =
        |layout: &&str| kinds.iter().map(|&kind| named(kind, element, layout, None)).collect::<Vec<_>>();
    layouts.iter().flat_map(of_layout).collect()
}

/// Every kernel of one GEMM, in a fixed order. The first one that fits a call is the usual choice.
///
/// A name is `<kind>-<element>-<direction of A><direction of B>`. The direction is the contiguous one: `k` or
/// `m` for A, `k` or `n` for B.
pub fn catalogue() -> Vec<AnyGemm> {
    static ALL: Once<Vec<AnyGemm>> = Once::new();
    ALL.get_or_init(|| ELEMENTS.iter().flat_map(|element| in_layouts(&SINGLE, element, &LAYOUTS)).collect())
        .clone()
}

/// Every kernel without `wgmma`, in a fixed order. Kinds `multistage…` multiply by `mma.sync`, kinds `simt…`
/// by plain `fma`.
///
/// They are slower than those of [`catalogue`]. Use them to compare, to learn, and for elements that those do
/// not have. Names have the same form.
pub fn by_threads() -> Vec<AnyGemm> {
    static ALL: Once<Vec<AnyGemm>> = Once::new();
    let of = |&(kind, element, layouts): &(Kind, &str, &[&str])| in_layouts(&[kind], element, layouts);
    ALL.get_or_init(|| THREADS.iter().flat_map(of).collect()).clone()
}

/// Every kernel of several GEMMs per launch, in a fixed order.
///
/// Kinds `batched…` are for GEMMs of one shape, kinds `ragged…` for groups of rows, kinds `grouped…` for
/// GEMMs that device memory describes. For groups of rows with a column-major A there is only the kind
/// `ragged-128x128-unaligned`.
pub fn several() -> Vec<AnyGemm> {
    static ALL: Once<Vec<AnyGemm>> = Once::new();
    let of_element = |element: &&str| {
        [in_layouts(&SEVERAL, element, &LAYOUTS), in_layouts(&RAGGED, element, &LAYOUTS[..2])].concat()
    };
    ALL.get_or_init(|| ELEMENTS.iter().flat_map(of_element).collect()).clone()
}

/// The kinds of a fusion for an element type. For `f16` there are only the usual ones.
fn kinds_of(fusion: Formula, element: &str) -> Vec<Kind> {
    // These two are for 8-bit operands, whose kernels have no names.
    let of_bytes = matches!(fusion.name(), "row-column-scaled" | "quantized");
    let mut kinds = if of_bytes { Vec::new() } else { FUSED.to_vec() };
    let divided = matches!(fusion.name(), "bias" | "bias-relu" | "bias-gelu");
    if (divided || fusion.name() == "residual") && element == "bf16" {
        kinds.extend(FUSED_MORE);
    }
    if divided && element == "bf16" {
        kinds.extend(FUSED_DIVIDED);
    }
    kinds
}

/// Every kernel with a fused epilogue, in a fixed order. A name is `<kind>-<fusion>-<element>-kk`.
pub fn fused() -> Vec<AnyGemm> {
    static ALL: Once<Vec<AnyGemm>> = Once::new();
    let of_fusion = |element: &'static str, fusion: Formula| {
        kinds_of(fusion, element).into_iter().map(move |kind| named(kind, element, "kk", Some(fusion)))
    };
    let of_element =
        |&element: &&'static str| Formula::all().flat_map(move |fusion| of_fusion(element, fusion));
    ALL.get_or_init(|| ELEMENTS.iter().flat_map(of_element).collect()).clone()
}

/// Every kernel that has a name.
pub fn all() -> Vec<AnyGemm> {
    [catalogue(), several(), fused(), by_threads()].concat()
}

/// The kernel with a name, or the kernel of a spec's text (any text that contains `=`).
///
/// # Errors
/// No kernel has the name (the error lists all names), or the text is not a legal spec.
pub fn find(name: &str) -> Result<AnyGemm, UnknownConfig> {
    if name.contains('=') {
        let spec: KernelSpec = name.parse()?;
        return Ok(spec.kernel()?);
    }
    let mut all = all();
    match all.iter().position(|entry| entry.name() == name) {
        Some(i) => Ok(all.swap_remove(i)),
        None => {
            let known = all.iter().map(|entry| entry.name().to_owned()).collect();
            Err(UnknownConfig::Name { name: name.to_owned(), known })
        }
    }
}

/// Why no kernel was found.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum UnknownConfig {
    /// A name that is not in the catalogue.
    #[error("there is no kernel `{name}`; {}`falchion configs` lists all {} names", question(&self.alike()), known.len())]
    Name {
        /// The name that was asked for.
        name: String,
        /// Every name in the catalogue.
        known: Vec<String>,
    },
    /// The text is not a legal spec.
    #[error(transparent)]
    Spec(#[from] SpecError),
}

impl From<crate::legal::IllegalKernel> for UnknownConfig {
    fn from(error: crate::legal::IllegalKernel) -> Self {
        Self::Spec(SpecError::Illegal { error, nearest: None })
    }
}

impl UnknownConfig {
    /// Up to three names similar to the one that was asked for, the most similar first.
    pub fn alike(&self) -> Vec<&str> {
        let Self::Name { name, known } = self else { return Vec::new() };
        let distance = |known: &&str| strsim::damerau_levenshtein(known, name);
        let mut names: Vec<&str> = known.iter().map(String::as_str).collect();
        names.retain(|known| distance(known) <= known.len() / 3);
        names.sort_by_key(distance);
        names.truncate(3);
        names
    }
}

fn question(alike: &[&str]) -> String {
    if alike.is_empty() { String::new() } else { format!("did you mean {}? ", alike.join(" or ")) }
}
