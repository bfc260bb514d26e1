//! Finds the legal spec that is nearest to an illegal one.

use super::KernelSpec;

/// Largest distance of the values of a number that are tried, nearest first.
const FAR: u32 = 512;

/// Selects a number of a spec, if the spec has it.
type Number = fn(&mut KernelSpec) -> Option<&mut u32>;

impl KernelSpec {
    /// The change of one number that makes the spec legal, as `key=value`: the smallest change relative to
    /// the number. `None` if no such change does.
    pub fn nearest_legal(&self) -> Option<String> {
        let numbers: [(&'static str, Number); 10] = [
            ("tile", |spec| Some(&mut spec.mainloop.tile[0])),
            ("tile", |spec| Some(&mut spec.mainloop.tile[1])),
            ("tile", |spec| Some(&mut spec.mainloop.tile[2])),
            ("consumers", |spec| Some(&mut spec.mainloop.consumers)),
            ("stages", |spec| spec.mainloop.stages.as_mut()),
            ("cluster", |spec| Some(&mut spec.mainloop.cluster[0])),
            ("cluster", |spec| Some(&mut spec.mainloop.cluster[1])),
            ("step", |spec| Some(&mut spec.mainloop.step)),
            ("promote", |spec| Some(&mut spec.mainloop.atom.promote)),
            ("waves", |spec| Some(&mut spec.mainloop.waves)),
        ];
        let changed = |(key, number): (&'static str, Number)| {
            let mut spec = *self;
            let given = *number(&mut spec)?;
            (1..=FAR).find_map(|distance| {
                let nearby = [given.checked_sub(distance), given.checked_add(distance)];
                nearby.into_iter().flatten().find_map(|value| {
                    *number(&mut spec)? = value;
                    spec.plan().ok()?;
                    let word = spec.words().into_iter().find(|(known, _)| *known == key);
                    let part = f64::from(distance) / f64::from(given.max(1));
                    word.map(|(_, value)| (part, format!("{key}={value}")))
                })
            })
        };
        let found = numbers.into_iter().filter_map(changed).min_by(|a, b| a.0.total_cmp(&b.0));
        found.map(|(_, word)| word)
    }
}
