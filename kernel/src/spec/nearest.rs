//! The legal spec that is nearest to an illegal one.

use super::KernelSpec;

/// Values of a number that are looked at: nearest first, at most this far away.
const FAR: u32 = 512;

/// A number of a spec, where it has one.
type Number = fn(&mut KernelSpec) -> Option<&mut u32>;

impl KernelSpec {
    /// What would make the spec legal if one number of it were changed, as `key=value`: the change that is smallest as a
    /// part of the number. `None` where no such change does.
    pub fn nearest_legal(&self) -> Option<String> {
        let numbers: [(&'static str, Number); 9] = [
            ("tile", |spec| Some(&mut spec.mainloop.tile[0])),
            ("tile", |spec| Some(&mut spec.mainloop.tile[1])),
            ("tile", |spec| Some(&mut spec.mainloop.tile[2])),
            ("consumers", |spec| Some(&mut spec.mainloop.consumers)),
            ("stages", |spec| spec.mainloop.stages.as_mut()),
            ("cluster", |spec| Some(&mut spec.mainloop.cluster[0])),
            ("cluster", |spec| Some(&mut spec.mainloop.cluster[1])),
            ("step", |spec| Some(&mut spec.mainloop.step)),
            ("promote", |spec| Some(&mut spec.mainloop.atom.promote)),
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
