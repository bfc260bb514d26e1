//! Tensor stores of the same bytes to one place.

use crate::flight::Store;
use crate::machine::Machine;
use crate::tensor_map::swizzled;

impl Machine<'_> {
    /// Whether all stores of the cluster to the same box that nobody has waited for store the same bytes; if there are none, whether these
    /// bytes are there already.
    pub(super) fn repeated(&self, cta: usize, store: &Store) -> bool {
        if store.reduce.is_some() {
            return false;
        }
        let place = |one: &Store| (one.map_at, one.start, one.map.address);
        let all = self.warps.iter().flat_map(|warp| {
            let stores = warp.stores.iter().chain(&warp.unsettled);
            stores.filter(|other| place(other) == place(store)).map(move |other| (warp.cta, other))
        });
        let mut all = all.peekable();
        let mine = self.stored_bytes(cta, store);
        if all.peek().is_none() {
            return self.bytes_there(store) == mine;
        }
        all.all(|(owner, other)| {
            let equal = || match other.done {
                true => self.bytes_there(other) == mine,
                false => {
                    owner == cta && other.source == store.source || self.stored_bytes(owner, other) == mine
                }
            };
            other.reduce.is_none() && equal()
        })
    }

    /// The bytes that a store writes, row by row.
    fn stored_bytes(&self, cta: usize, store: &Store) -> Vec<u8> {
        let Store { source, map, start, .. } = store;
        let (shared, row_bytes) = (&self.ctas[cta].shared, map.row_bytes());
        let mut all = Vec::new();
        for index in 0..map.rows() {
            let Some(row) = map.stored_row(start, index) else { continue };
            let chunks = (source + index * row_bytes..).step_by(16).take(row_bytes.div_ceil(16) as usize);
            let bytes: Vec<u8> =
                chunks.flat_map(|chunk| shared.chunk(swizzled(chunk, map.swizzle))).collect();
            all.extend_from_slice(&bytes[row.start..row.end]);
        }
        all
    }

    /// What global memory holds where a store writes.
    fn bytes_there(&self, store: &Store) -> Vec<u8> {
        let rows = store.rows();
        let mut all = vec![0; rows.iter().map(|(_, bytes)| *bytes as usize).sum()];
        let mut rest = &mut all[..];
        for (address, bytes) in rows {
            let (row, others) = rest.split_at_mut(bytes as usize);
            // What was stored is in bounds.
            let _held = self.memory.load(address, row);
            rest = others;
        }
        all
    }
}
