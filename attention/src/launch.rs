//! From a call to a launch: what is checked, how many tiles there are, and the tensor maps.

use collective::OperandTile;
use kernel::{Buffer, Launch, LaunchError, check_accessed};
use ptx::abi::Grid;

use crate::checks::{LIMIT, check_begin, check_packed, check_pages, check_tensor, refused};
use crate::interface::Facts;
use crate::kernel::Attention;
use crate::maps::{Rows, map_of, map_of_pages, outside};
use crate::problem::{AttentionCall, AttentionProblem, HeadsRef};
use crate::spec::{AttentionSpec, Lengths};

/// The extents of a call's tensors in memory.
struct Extents {
    /// Whether sequences have lengths of their own.
    differ: bool,
    /// Rows of Q and O, and of K and V, in a head of the ones below.
    queries: u32,
    keys: u32,
    /// Sequences of Q and O. Packed ones are one of all rows.
    sequences: u32,
    /// Sequences or pages of K and V.
    caches: u32,
}

/// The tiles of a call.
struct Tiles {
    /// Most parts of the keys of a tile.
    parts: u32,
    /// Heads of Q that are rows of a tile.
    share: u32,
    /// Heads of tiles.
    groups: u32,
    /// All tiles, and those of a head; if lengths differ, as many as there are at most.
    all: u32,
    across: u32,
}

impl Attention {
    /// The launch of a call. `None` if there is nothing to compute.
    pub(crate) fn launched(
        &self,
        call: &AttentionCall,
        resident: u32,
    ) -> Result<Option<Launch>, LaunchError> {
        call.problem.check()?;
        self.check_heads(call)?;
        self.check_arguments(call)?;
        let AttentionProblem { batch, heads: [heads, _], queries, .. } = call.problem;
        let extents = self.extents(call);
        if batch == 0 || heads == 0 || queries == 0 || extents.queries == 0 {
            return Ok(None);
        }
        let (keys_and_values, reads_keys) = self.check_tensors(call, &extents)?;
        // Tables, factors and sums, too.
        check_accessed(self, call, |of| u64::from(of.bits / 8))?;
        Buffer::workspace_address(call.workspace, self.workspace(call))?;
        let tiles = self.tiles(call, &extents)?;
        self.check_begins(call, &extents, keys_and_values)?;
        // CTAs that merge parts wait for others, so all must be resident.
        let ctas = resident.min(tiles.all).max(1);
        let facts = self.facts(call, &extents, (keys_and_values, reads_keys), &tiles, ctas);
        let grid = Grid { ctas: [ctas, 1, 1] };
        Launch::new(grid, |visit| self.interface(&mut call.clone(), Some(&facts), visit)).map(Some)
    }

    /// Checks that a tile has rows for the heads that share K and V, and that there is no V of its own with latent attention.
    fn check_heads(&self, call: &AttentionCall) -> Result<(), LaunchError> {
        let ([heads, shared], pack) = (call.problem.heads, self.plan.spec.pack);
        let latent = self.plan.latent.is_some();
        let too_many = pack > 1 && u64::from(heads) > u64::from(shared) * u64::from(pack);
        if too_many && (!latent || !(heads / shared).is_multiple_of(pack)) {
            let multiple = if latent { ", or a multiple of that," } else { "" };
            return refused(format!(
                "{heads} heads of queries and {shared} of keys were given, at most {pack} times as many of queries{multiple} were needed by pack={pack}"
            ));
        }
        if latent && call.v != HeadsRef::default() {
            return refused(format!(
                "V is at {:#x}, no V was needed: with d=576x512 it is the first 512 columns of K (AttentionCall::latent)",
                call.v.address
            ));
        }
        Ok(())
    }

    /// Checks that the mask and the scores have the arguments that they take.
    fn check_arguments(&self, call: &AttentionCall) -> Result<(), LaunchError> {
        let given = [call.counts.len(), call.reals.len()];
        let needed = [self.scores.counts().len(), self.scores.reals().len()];
        if given != needed {
            let [[counts, reals], [needed_counts, needed_reals]] = [given, needed];
            let reason = format!(
                "{} takes {needed_counts} whole and {needed_reals} real arguments, {counts} and {reals} were given",
                self.scores.name()
            );
            return Err(LaunchError::Problem { reason });
        }
        Ok(())
    }

    fn extents(&self, call: &AttentionCall) -> Extents {
        let AttentionProblem { batch, queries, keys, .. } = call.problem;
        let differ = self.plan.spec.lengths == Lengths::Packed;
        let [queries, keys] = if differ { call.packed.rows } else { [queries, keys] };
        let sequences = if differ { 1 } else { batch };
        let (keys, caches) = match self.plan.spec.pages {
            Some(page) => (page, call.pages.count),
            None => (keys, sequences),
        };
        Extents { differ, queries, keys, sequences, caches }
    }

    /// Checks the tables of sequences and pages, and that Q, K, V and O are where they can be copied. Returns K and V, and
    /// whether they are read.
    fn check_tensors(
        &self,
        call: &AttentionCall,
        extents: &Extents,
    ) -> Result<([HeadsRef; 2], bool), LaunchError> {
        let AttentionCall { problem, q, k, v, o, packed, pages, .. } = call;
        let AttentionProblem { heads: [heads, shared], keys, .. } = *problem;
        let plan = &self.plan;
        let AttentionSpec { format, output, head: [d, dv], cache, pages: page, .. } = plan.spec;
        let Extents { differ, queries: all_queries, keys: all_keys, sequences, caches } = *extents;
        if differ {
            check_packed(packed, if page.is_some() { 1 } else { 2 })?;
        }
        if let Some(page) = page {
            check_pages(pages, page, keys)?;
        }
        check_tensor(("Q", *q), [sequences, heads, all_queries, d], (format, 16))?;
        let reads_keys = keys > 0 && all_keys > 0 && caches > 0;
        let keys_and_values = if reads_keys {
            let cache = cache.unwrap_or(format);
            check_tensor(("K", *k), [caches, shared, all_keys, d], (cache, 16))?;
            if plan.latent.is_none() {
                check_tensor(("V", *v), [caches, shared, all_keys, dv], (cache, 16))?;
            }
            [*k, *v]
        } else {
            // Nothing is read. The tensor maps must still be legal, and begin in memory.
            [HeadsRef { address: q.address, row: dv.max(d).into(), head: 16, batch: 16 }; 2]
        };
        let alignment = if plan.output.is_some() { 16 } else { output.bytes().into() };
        check_tensor(("O", *o), [sequences, heads, all_queries, dv], (output, alignment))?;
        Ok((keys_and_values, reads_keys))
    }

    /// Counts the tiles of a call.
    fn tiles(&self, call: &AttentionCall, extents: &Extents) -> Result<Tiles, LaunchError> {
        let AttentionProblem { batch, heads: [heads, shared], queries, .. } = call.problem;
        let AttentionSpec { tile: [rows, _], pack, .. } = self.plan.spec;
        let parts = self.divided(call).map_or(1, |divided| divided.count);
        let queries_per_tile = rows / pack;
        let share = self.plan.spec.rows_of_query(heads / shared);
        let groups = heads / share;
        let across = if extents.differ {
            u64::from(extents.queries / queries_per_tile) + u64::from(batch)
        } else {
            queries.div_ceil(queries_per_tile).into()
        };
        let of_parts = u128::from(groups) * u128::from(parts);
        let all = u128::from(across) * of_parts * u128::from(extents.sequences);
        let Some(all) = u32::try_from(all).ok().filter(|&all| all < LIMIT) else {
            let (m, n) = (across.into(), of_parts * u128::from(extents.sequences));
            return Err(LaunchError::TooManyTiles { m, n, most: LIMIT - 1 });
        };
        // As many as tiles at most.
        let across = all / groups / parts / extents.sequences;
        Ok(Tiles { parts, share, groups, all, across })
    }

    /// The rows of Q and O, and those of K and V.
    fn rows(&self, call: &AttentionCall, extents: &Extents) -> [Rows; 2] {
        let AttentionProblem { queries, keys, .. } = call.problem;
        let rows = |most: u32, all: u32| Rows {
            most: if all == 0 { 1 } else { most },
            all: extents.differ.then_some(all),
        };
        let of_keys = rows(self.plan.spec.pages.unwrap_or(keys), extents.keys);
        [rows(queries, extents.queries), of_keys]
    }

    /// Checks that the tensor maps of tensors that are read from their beginnings on can begin before them.
    fn check_begins(
        &self,
        call: &AttentionCall,
        extents: &Extents,
        [k, v]: [HeadsRef; 2],
    ) -> Result<(), LaunchError> {
        let AttentionSpec { format, output, cache, pages, .. } = self.plan.spec;
        let (differ, cache) = (extents.differ, cache.unwrap_or(format));
        let [q_rows, k_rows] = self.rows(call, extents);
        for (name, of, rows, (begins, bytes)) in [
            ("Q", call.q, q_rows, (differ, format.bytes())),
            ("K", k, k_rows, (differ || pages.is_some(), cache.bytes())),
            ("V", v, k_rows, (differ || pages.is_some(), cache.bytes())),
            ("O", call.o, q_rows, (differ, output.bytes())),
        ] {
            if begins && !(name == "V" && self.plan.latent.is_some()) {
                check_begin((name, of), rows.most, bytes)?;
            }
        }
        Ok(())
    }

    /// What the program is told of a call with these tiles, which `ctas` CTAs compute.
    fn facts(
        &self,
        call: &AttentionCall,
        extents: &Extents,
        ([k, v], reads_keys): ([HeadsRef; 2], bool),
        tiles: &Tiles,
        ctas: u32,
    ) -> Facts {
        let AttentionCall { problem, q, o, .. } = *call;
        let AttentionProblem { batch, heads: [heads, shared], keys, .. } = problem;
        let plan = &self.plan;
        let AttentionSpec { format, head: [d, dv], pack, .. } = plan.spec;
        let Tiles { parts, share, groups, all, across } = *tiles;
        let [q_rows, k_rows] = self.rows(call, extents);
        let of_keys = |tile: &OperandTile, of: HeadsRef, d: u32| match plan.spec.pages {
            Some(page) => map_of_pages(tile, of, [extents.caches, shared, page, d]),
            None => map_of(tile, of, [batch, shared, d], k_rows, [1, 1]),
        };
        let read = plan.copied().into_iter().zip([(k, d), (v, dv)]).take(plan.operands() - 1);
        let of_keys: Vec<_> = read.map(|(tile, (of, d))| of_keys(&tile, of, d)).collect();
        // Heads of tiles that share a head of keys.
        let sharing = groups / shared;
        let of_key = if plan.latent.is_some() { d } else { d + dv };
        let key_bytes = of_key * plan.spec.cache.unwrap_or(format).bytes();
        let of_head = u64::from(keys) * u64::from(key_bytes) / u64::from(sharing.max(1));
        Facts {
            q: map_of(&plan.tiles[0], q, [batch, heads, d], q_rows, [pack, share]),
            without_keys: of_keys.iter().map(|map| outside(map, q.address)).collect(),
            of_keys,
            o: plan.output.map(|tile| map_of(&tile, o, [batch, heads, dv], q_rows, [pack, share])),
            reads_keys,
            heads: groups,
            share: if pack > 1 { share } else { sharing },
            sharing,
            tiles: all,
            across,
            section: self.section(
                [extents.sequences, groups * parts, sharing * parts],
                [across, ctas],
                (keys, of_head),
            ),
        }
    }
}
