//! When the last of some work is done that processors take in its order.

/// How long processors are busy that take the next piece of work as soon as they have done one, as SMs take the CTAs of a grid.
///
/// ```
/// use scheduler::Loads;
///
/// let mut loads = Loads::new(2);
/// loads.add(3, 2.0);
/// loads.add(1, 1.0);
/// assert_eq!(loads.last(), 4.0);
/// ```
#[derive(Clone, Debug)]
pub struct Loads {
    /// Times, of which later ones are less, and numbers of processors that are busy until then.
    busy: Vec<(f64, u32)>,
}

impl Loads {
    /// Processors that have nothing to do.
    pub fn new(processors: u32) -> Self {
        let processors = processors.max(1);
        Self { busy: vec![(0.0, processors)] }
    }

    /// So many pieces of work that each take as long.
    pub fn add(&mut self, mut count: u32, time: f64) {
        while count > 0 {
            let Some((first, free)) = self.busy.pop() else { return };
            let taken = free.min(count);
            count -= taken;
            if free > taken {
                self.busy.push((first, free - taken));
            }
            let until = first + time;
            let at = self.busy.partition_point(|&(other, _)| other > until);
            match self.busy.get_mut(at) {
                Some((other, processors)) if *other >= until => *processors += taken,
                _ => self.busy.insert(at, (until, taken)),
            }
        }
    }

    /// When the last one is done.
    pub fn last(&self) -> f64 {
        self.busy.first().map_or(0.0, |&(time, _)| time)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Against processors that are looked at one by one.
    #[test]
    fn the_last_one_is_done_when_the_last_processor_is() {
        // Small numbers in an order of their own: a linear congruential generator.
        let mut state = 64u32;
        let mut random = |most: u32| {
            state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
            (state >> 8) % most
        };
        for processors in [1, 2, 7, 132] {
            let (mut loads, mut each) = (Loads::new(processors), vec![0.0f64; processors as usize]);
            for _ in 0..40 {
                let (count, time) = (random(300), f64::from(1 + random(49)));
                loads.add(count, time);
                for _ in 0..count {
                    let next = each.iter_mut().min_by(|a, b| f64::total_cmp(a, b)).expect("at least one");
                    *next += time;
                }
                let last = each.iter().copied().fold(0.0, f64::max);
                assert_eq!(loads.last(), last, "{processors} processors");
            }
        }
    }
}
