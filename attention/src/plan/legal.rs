//! The rules that a spec must keep, before any number is computed.

use collective::{Format, RoleRegisters};

use super::{CLUSTER, HalvesPlan, is_direct, multiplied, of_bytes, refused, sixteen_bits};
use crate::error::AttentionError;
use crate::head;
use crate::masks::of_spec;
use crate::spec::{AttentionSpec, Mask, Order, Parts};

/// Checks a spec. Returns the instruction types of its products.
pub(super) fn checked(spec: &AttentionSpec) -> Result<ptx::WgmmaTypes, AttentionError> {
    let types = formats(spec)?;
    extents(spec)?;
    parts(spec)?;
    ctas(spec)?;
    formulas(spec)?;
    loaders(spec)?;
    Ok(types)
}

/// Checks the formats of Q, of the cache and of O.
fn formats(spec: &AttentionSpec) -> Result<ptx::WgmmaTypes, AttentionError> {
    let AttentionSpec { format, output, .. } = *spec;
    let Some(types) = multiplied(format) else {
        return Err(refused("format", format, "bf16, f16 or e4m3"));
    };
    let (bytes, halved) = (of_bytes(spec), spec.is_halved());
    if let Some(cache) = spec.cache
        && (bytes || cache != Format::E4m3)
    {
        let needed = if bytes { "Q's format alone" } else { "e4m3" };
        return Err(refused("cache", cache, needed));
    }
    if halved && bytes {
        return Err(refused("format", format, "bf16 or f16 with 512 elements of V"));
    }
    if halved && let Some(format) = spec.cache {
        let needed = "Q's format alone with 512 elements of V";
        return Err(refused("cache", format, needed));
    }
    let direct = is_direct(spec);
    let sixteen = if bytes { sixteen_bits(output).is_some() && direct } else { output == format };
    if !(sixteen || output == Format::F32 && direct) {
        let needed = if bytes {
            "bf16, f16 or f32 with store=direct, parts or a cluster"
        } else {
            "the format of Q, K and V, or f32 with store=direct, parts or a cluster,"
        };
        return Err(refused("output", output, needed));
    }
    Ok(types)
}

/// Checks the elements of a head, and the queries and keys of a tile.
fn extents(spec: &AttentionSpec) -> Result<(), AttentionError> {
    let AttentionSpec { head: [d, dv], tile: [rows, keys], .. } = *spec;
    let (bytes, latent, halved) = (of_bytes(spec), spec.is_latent(), spec.is_halved());
    if d == AttentionSpec::LATENT[0] && !latent {
        let needed = "512 with 576 of Q and K, of which V is the first ones,";
        return Err(refused("d of V and O", dv, needed));
    }
    if !halved {
        head::checked(spec.head, "a multiple of 16 from 32 to 256, 512 with as many of V, or 576")?;
    }
    if halved && let Some((field, value, needed)) = HalvesPlan::refused(spec) {
        return Err(refused(field, value, needed));
    }
    if !matches!(rows, 64 | 128 | 192) {
        return Err(refused("the number of queries per tile", rows, "64, 128 or 192"));
    }
    if !(16..=256).contains(&keys) || !keys.is_multiple_of(16) {
        return Err(refused("the number of keys per block", keys, "a multiple of 16 from 16 to 256"));
    }
    if bytes && !keys.is_multiple_of(32) {
        return Err(refused("the number of keys per block", keys, "a multiple of 32 with 8-bit operands"));
    }
    if bytes && spec.lazy {
        // Weights are up to 2^8 already.
        return Err(refused("lazy", 1, "off with 8-bit operands"));
    }
    Ok(())
}

/// Checks scores and masks as text.
pub(crate) fn formulas(spec: &AttentionSpec) -> Result<(), AttentionError> {
    let AttentionSpec { score, sees, mask, soft_cap, alibi, pack, .. } = *spec;
    if score.is_none() && sees.is_none() {
        return Ok(());
    }
    if mask != Mask::Full {
        return Err(refused("mask", mask.name(), "full with score or sees, which say the mask,"));
    }
    for (name, on) in [("softcap", soft_cap), ("alibi", alibi)] {
        if on {
            return Err(refused(name, "on", "off with score or sees, which say the scores,"));
        }
    }
    let all = |arrays: &mut dyn Iterator<Item = (&'static str, Format, usize)>| arrays.collect::<Vec<_>>();
    let of_score = score.map_or_else(Vec::new, |of| all(&mut of.arrays()));
    for (name, format, dimensions) in sees.map_or_else(Vec::new, |of| all(&mut of.arrays())) {
        let other = of_score.iter().find(|(other, ..)| *other == name);
        if other.is_some_and(|other| *other != (name, format, dimensions)) {
            return Err(refused("the array", name, "the same format and dimensions in score and sees"));
        }
    }
    if pack > 1 && of_spec(spec).masks_by_head() {
        return Err(refused("pack", pack, "1 with sees that depends on the head"));
    }
    Ok(())
}

/// Checks the CTAs of an SM.
fn ctas(spec: &AttentionSpec) -> Result<(), AttentionError> {
    let AttentionSpec { ctas, tile: [rows, _], parts, .. } = *spec;
    let field = "ctas, the CTAs of an SM,";
    match ctas {
        1 => Ok(()),
        2 if rows > 64 || spec.is_halved() => {
            Err(refused(field, ctas, "1 with more than 64 queries per tile, or 512 elements of V"))
        }
        2 if parts.of_cluster() > 1 => {
            Err(refused(field, ctas, "1 with cluster, whose CTAs would share SMs"))
        }
        2 => Ok(()),
        _ => Err(refused(field, ctas, "1 or 2")),
    }
}

/// Checks the warps that load.
fn loaders(spec: &AttentionSpec) -> Result<(), AttentionError> {
    let (loaders, field) = (spec.loaders, "loaders, the warps that load slabs side by side,");
    match loaders {
        1 => Ok(()),
        _ if !spec.is_latent() => Err(refused(field, loaders, "1 without d=576x512")),
        2..=HalvesPlan::MOST_LOADERS => Ok(()),
        _ => Err(refused(field, loaders, "1 to 4 with d=576x512")),
    }
}

/// Checks parts of keys, pages, and heads that are rows of a tile.
fn parts(spec: &AttentionSpec) -> Result<(), AttentionError> {
    let [_, keys] = spec.tile;
    match spec.parts {
        Parts::Count(count) if !(2..=1024).contains(&count) => {
            return Err(refused("the number of parts", count, "1 to 1024"));
        }
        Parts::Keys(part) if part == 0 || !part.is_multiple_of(keys) => {
            return Err(refused(
                "the number of keys of a part",
                part,
                "a multiple of the number of keys per block",
            ));
        }
        Parts::Cluster(count) if !(2..=Parts::MOST_OF_CLUSTER).contains(&count) => {
            return Err(refused(CLUSTER, count, "2 to 8"));
        }
        Parts::Cluster(count) if spec.is_halved() => {
            return Err(refused(CLUSTER, count, "parts, or none, with 512 elements of V"));
        }
        Parts::Cluster(_) if spec.order == Order::Drawn => {
            return Err(refused(
                "order",
                "drawn",
                "dealt with cluster, whose CTAs have one tile of queries,",
            ));
        }
        Parts::Cluster(_) if spec.overlap => {
            return Err(refused("overlap", "on", "off with cluster, whose CTAs have one tile of queries,"));
        }
        Parts::One | Parts::Count(_) | Parts::Keys(_) | Parts::Cluster(_) => {}
    }
    if let Some(page) = spec.pages {
        if !matches!(page, 16 | 32 | 64 | 128 | 256) {
            return Err(refused("pages, the number of keys in a page,", page, "16, 32, 64, 128 or 256"));
        }
        if !keys.is_multiple_of(page) && !page.is_multiple_of(keys) {
            return Err(refused(
                "pages, the number of keys in a page,",
                page,
                "a divisor or a multiple of the number of keys per block",
            ));
        }
    }
    if !spec.pack.is_power_of_two() || spec.pack > 64 {
        return Err(refused(
            "pack, the heads that are rows of a tile,",
            spec.pack,
            "a power of two up to 64",
        ));
    }
    Ok(())
}

impl HalvesPlan {
    /// The first field that two consumers with the same queries do not allow: its name, its value, and what was needed.
    fn refused(spec: &AttentionSpec) -> Option<(&'static str, u32, &'static str)> {
        let AttentionSpec { tile: [rows, keys], stages, overlap, .. } = *spec;
        let needed = Self::tile(spec);
        if rows != needed[0] {
            return Some(("the number of queries per tile", rows, "64 with 512 elements of V"));
        }
        if keys != needed[1] {
            let needed = if spec.is_latent() { "64 with d=576x512" } else { "32 with d=512" };
            return Some(("the number of keys per block", keys, needed));
        }
        if let Some(stages) = stages
            && stages != Self::BLOCKS
        {
            return Some(("stages", stages, "2 or auto with 512 elements of V"));
        }
        if overlap {
            return Some((
                "overlap",
                1,
                "off with 512 elements of V, since shared memory has one tile of queries,",
            ));
        }
        None
    }
}

/// Registers of a consumer apart from accumulators, weights and scores: addresses, statistics, loop state.
const WORKING: u32 = 28;
/// Registers with which all weights of a block are computed before O is rescaled: 1 to 2 % faster then, and 2 % slower with fewer.
const SPARE: u32 = 16;

/// The registers of the roles, and whether they suffice to compute all weights of a block before O is rescaled.
pub(super) fn registers(
    spec: &AttentionSpec,
    consumers: u32,
    dv: u32,
) -> Result<(RoleRegisters, bool), AttentionError> {
    let AttentionSpec { format, tile: [rows, keys], .. } = *spec;
    let (bytes, halved) = (of_bytes(spec), spec.is_halved());
    // The pages of a block are looked up together. One consumer leaves registers for that.
    let producer = match (consumers, spec.pages) {
        // A thread converts 64 elements at the same time, or 32.
        (1, _) if spec.is_scaled() => 128,
        (2, _) if bytes => 40,
        (_, _) if bytes => 56,
        (2, _) if spec.cache.is_some() => 64,
        (_, _) if spec.cache.is_some() => {
            return Err(refused("the number of queries per tile", rows, "64 or 128 with a cache"));
        }
        (3, _) => 32,
        (1, Some(_)) => 96,
        // Blocks are small, so consumers need few.
        (2, _) if halved && !spec.is_latent() => 72,
        // More would be taken from consumers.
        (2, Some(page)) if page < 64 => 40,
        (2, _) if halved => 40,
        _ => 24,
    };
    let registers = RoleRegisters::divided_among(spec.ctas, consumers, Some(producer));
    let have = registers.consumer;
    let need = dv / 2 + keys / 2 + keys * format.bits() / 64 + WORKING;
    if need > have {
        return Err(AttentionError::Registers { need, have, rows, keys, fewer: "keys per block" });
    }
    Ok((registers, need + SPARE <= have))
}
