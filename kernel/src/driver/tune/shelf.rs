//! The records of a card: this process's, and those on disk.

use core::any::{Any, TypeId};
use core::marker::PhantomData;
use core::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::SystemTime;

use super::super::context::{Context, lock};
use super::super::load::of_process;
use super::Times;
use crate::disk::records::RecordsOf;
use crate::disk::{Cache, CacheError, Key, Kind};
use crate::error::EngineError;
use crate::family::{Family, Predicted};
use crate::select::Machine;

/// How often this process has kept what it measured: what was [chosen](super::chosen) before may be chosen otherwise after.
pub fn times_kept() -> u64 {
    KEPT.load(Relaxed)
}

static KEPT: AtomicU64 = AtomicU64::new(0);

/// The records of a family on a card, and where they are kept on disk.
struct Place {
    key: Key,
    /// The folder, and the file there.
    file: Option<(&'static Cache, PathBuf)>,
    /// What this process knows, also if no folder keeps it.
    known: Mutex<OfFamily>,
}

/// What this process knows of a family's kernels on a card.
struct OfFamily {
    /// [`RecordsOf`] the family.
    records: Box<dyn Any + Send>,
    /// The file that was read last: when it was written, and its bytes. Nothing else is in it while it is that one.
    read: Option<(SystemTime, u64)>,
}

/// Places by family and the card's number.
type Places = HashMap<(TypeId, usize), Arc<Place>>;

/// Those of this process. Equal cards share theirs.
static PLACES: Mutex<Option<Places>> = Mutex::new(None);

/// The records of a card: this process's, and those on disk.
pub(super) struct Shelf<K> {
    place: Arc<Place>,
    family: PhantomData<K>,
}

impl<K: Family> Shelf<K> {
    pub(super) fn new(context: &Context, warnings: &mut Vec<CacheError>) -> Result<Self, EngineError> {
        let (cache, warning) = of_process()?;
        warnings.extend(warning);
        let of = (TypeId::of::<K>(), context.ordinal());
        let known = lock(&PLACES).get_or_insert_default().get(&of).cloned();
        let place = match known {
            Some(place) => place,
            None => {
                let key = context.key(RecordsOf::<K>::digest())?;
                let mut all = lock(&PLACES);
                let all = all.get_or_insert_default();
                let equal = all.iter().find(|((family, _), place)| *family == of.0 && place.key == key);
                let place = equal.map(|(_, place)| Arc::clone(place)).unwrap_or_else(|| {
                    let file = cache.map(|cache| (cache, cache.path(Kind::Records, &key)));
                    let known = OfFamily { records: Box::new(RecordsOf::<K>::default()), read: None };
                    Arc::new(Place { key, file, known: Mutex::new(known) })
                });
                all.insert(of, Arc::clone(&place));
                place
            }
        };
        Ok(Self { place, family: PhantomData })
    }

    /// Accesses the records of this process, and which file it has read.
    fn known<T>(&self, look: impl FnOnce(&mut RecordsOf<K>, &mut Option<(SystemTime, u64)>) -> T) -> T {
        let OfFamily { records, read } = &mut *lock(&self.place.known);
        match records.downcast_mut() {
            Some(records) => look(records, read),
            // Its place is that of the family's type.
            None => look(&mut RecordsOf::default(), read),
        }
    }

    /// The fastest measured kernel that can compute the call, from this process's records or else from disk. Whoever asks for each of many
    /// problems reads the file once, and asks for the machine where something was measured.
    pub(super) fn find(
        &self,
        request: &K::Request<'_>,
        machine: impl Fn() -> Result<Machine, EngineError>,
        warnings: &mut Vec<CacheError>,
    ) -> Result<Option<Predicted<K>>, EngineError> {
        let of_process = || {
            let own = self.known(|records, _| match records.is_empty() {
                true => None,
                false => Some(records.of_problem(&K::problem(request))),
            });
            match own.filter(|own| !own.is_empty()) {
                Some(own) => machine().map(|machine| own.best(request, &machine)),
                None => Ok(None),
            }
        };
        if let Some(recorded) = of_process()? {
            return Ok(Some(recorded));
        }
        let Some((cache, path)) = &self.place.file else { return Ok(None) };
        let file = std::fs::metadata(path).ok();
        let Some(file) = file.and_then(|file| Some((file.modified().ok()?, file.len()))) else {
            return Ok(None);
        };
        if self.known(|_, read| *read == Some(file)) {
            return Ok(None);
        }
        let (saved, unused) = RecordsOf::load(cache, &self.place.key);
        // Report each warning once.
        warnings.extend(unused.into_iter().filter(|warning| !warnings.contains(warning)).collect::<Vec<_>>());
        self.known(|records, read| {
            records.merge(saved);
            *read = Some(file);
        });
        of_process()
    }

    /// Keeps measured times.
    pub(super) fn keep(&self, problem: &K::Problem, times: Times<K>, warnings: &mut Vec<CacheError>) {
        let mut own = RecordsOf::<K>::default();
        for (kernel, microseconds) in times {
            warnings.extend(own.keep(problem.clone(), &kernel, microseconds).err());
        }
        self.known(|records, _| records.merge(own.clone()));
        KEPT.fetch_add(1, Relaxed);
        if let Some((cache, _)) = &self.place.file {
            // Unusable lines of the file were reported when it was read.
            warnings.extend(own.save(cache, &self.place.key).err());
        }
    }
}
