//! The search for the knee: the highest level of load that still meets the objectives.

/// Doubles from a level that passes until one fails, then bisects between the two.
#[derive(Clone, Debug)]
pub struct Search {
    next: f64,
    least: f64,
    most: f64,
    tolerance: f64,
    whole: bool,
    passed: Option<f64>,
    failed: Option<f64>,
}

impl Search {
    /// From `start` to at most `most` and, if `start` fails, down to a sixteenth of it, until the knee is known
    /// within `tolerance` of itself, or exactly if levels are `whole` numbers close together.
    pub fn new(start: f64, most: f64, tolerance: f64, whole: bool) -> Self {
        let start = if whole { start.round().max(1.0) } else { start };
        let least = if whole { 1.0 } else { start / 16.0 };
        Self { next: start.min(most), least, most, tolerance, whole, passed: None, failed: None }
    }

    /// The level to try; `None` when the knee is known.
    pub fn level(&self) -> Option<f64> {
        let known = match (self.passed, self.failed) {
            (None, Some(failed)) => failed <= self.least,
            (Some(passed), None) => passed >= self.most,
            (Some(passed), Some(failed)) => {
                failed - passed <= self.tolerance * passed || self.whole && failed - passed <= 1.0
            }
            (None, None) => false,
        };
        (!known).then_some(self.next)
    }

    /// Takes the verdict on [`Search::level`].
    pub fn verdict(&mut self, pass: bool) {
        *(if pass { &mut self.passed } else { &mut self.failed }) = Some(self.next);
        let next = match (self.passed, self.failed) {
            (Some(passed), None) => (passed * 2.0).min(self.most),
            (None, Some(failed)) => failed / 2.0,
            (Some(passed), Some(failed)) => f64::midpoint(passed, failed),
            (None, None) => self.next,
        };
        self.next = if self.whole { next.floor().max(1.0) } else { next };
    }

    /// The highest level that passed.
    pub fn knee(&self) -> Option<f64> {
        self.passed
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn find(mut search: Search, capacity: f64) -> (Option<f64>, usize) {
        let mut levels = 0;
        while let Some(level) = search.level() {
            search.verdict(level <= capacity);
            levels += 1;
            assert!(levels < 50, "the search does not end");
        }
        (search.knee(), levels)
    }

    #[test]
    fn the_knee_is_found_within_the_tolerance() {
        for capacity in [0.3, 1.0, 5.7, 100.0, 333.3] {
            let (knee, levels) = find(Search::new(1.0, 1024.0, 0.1, false), capacity);
            let knee = knee.unwrap();
            assert!(knee <= capacity && knee * 1.1 >= capacity, "{knee} of {capacity}");
            assert!(levels <= 14, "{levels} levels for {capacity}");
        }
    }

    #[test]
    fn whole_levels_are_found_exactly_when_small() {
        assert_eq!(find(Search::new(1.0, 1024.0, 0.1, true), 7.0).0, Some(7.0));
        assert_eq!(find(Search::new(16.0, 1024.0, 0.1, true), 3.0).0, Some(3.0));
        assert_eq!(find(Search::new(16.0, 1024.0, 0.1, true), 0.0).0, None);
    }

    #[test]
    fn the_ramp_ends_at_its_bounds() {
        assert_eq!(find(Search::new(1.0, 100.0, 0.1, false), 1e9).0, Some(100.0));
        assert_eq!(find(Search::new(1.0, 100.0, 0.1, false), 0.0).0, None);
    }
}
