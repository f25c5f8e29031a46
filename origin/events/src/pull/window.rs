//! Tracks which rows of a table were taken recently.
//!
//! A database assigns row numbers before the transactions commit, so a smaller number may appear after a greater one.
//! The window remembers all numbers above the greatest number of some time ago; the gaps may still be filled. Text
//! format: the first number, then alternating counts of taken and missing numbers. After a semicolon come the greatest
//! numbers, each with its time:
//!
//! ```text
//! 100:50,1,49;1700000000000=150,1700000018750=199
//! ```

use std::fmt::Write as _;

/// Maximum number of runs. A full window takes no new rows until old runs expire. This happens after many concurrent
/// inserts, or if the numbers have gaps.
const RUNS_MAX: usize = 100_000;

/// Number of intervals in the look-back.
const PARTS: u64 = 16;

/// The numbers taken recently, and when.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Window {
    /// First and last number of each run, sorted. Runs are never adjacent.
    runs: Vec<(u64, u64)>,
    /// The greatest number at a time, in milliseconds since the Unix epoch.
    greatest: Vec<(u64, u64)>,
}

impl Window {
    /// Parses the text format.
    pub fn read(text: &str) -> Option<Self> {
        if text.is_empty() {
            return Some(Self::default());
        }
        let (runs, greatest) = text.split_once(';')?;
        Some(Self {
            runs: read_runs(runs)?,
            greatest: read_greatest(greatest)?,
        })
    }

    /// Writes the text format.
    pub fn to_text(&self) -> String {
        let mut text = String::new();
        let mut before: Option<u64> = None;
        for (first, last) in &self.runs {
            // Writing to a string cannot fail.
            let _ = match before {
                None => write!(text, "{first}:"),
                Some(before) => write!(text, ",{},", first - before - 1),
            };
            let _ = write!(text, "{}", u128::from(last - first) + 1);
            before = Some(*last);
        }
        if before.is_some() {
            let each = self.greatest.iter();
            let each: Vec<String> = each.map(|(at_ms, n)| format!("{at_ms}={n}")).collect();
            let _ = write!(text, ";{}", each.join(","));
        }
        text
    }

    /// The greatest number taken.
    pub fn greatest(&self) -> Option<u64> {
        self.runs.last().map(|(_, last)| *last)
    }

    /// Whether the maximum number of runs is reached.
    pub fn is_full(&self) -> bool {
        self.runs.len() >= RUNS_MAX
    }

    /// Whether this number was taken.
    pub fn has(&self, number: u64) -> bool {
        self.run_of(number).is_ok()
    }

    /// The last number of the run that contains this number; the number itself if no run contains it.
    pub fn end_of_run(&self, number: u64) -> u64 {
        let run = self.run_of(number).ok().and_then(|n| self.runs.get(n));
        run.map_or(number, |(_, last)| *last)
    }

    fn run_of(&self, number: u64) -> Result<usize, usize> {
        self.runs.binary_search_by(|(first, last)| {
            if *last < number {
                std::cmp::Ordering::Less
            } else if *first > number {
                std::cmp::Ordering::Greater
            } else {
                std::cmp::Ordering::Equal
            }
        })
    }

    /// Marks a number as taken.
    pub fn take(&mut self, number: u64) {
        let Err(at) = self.run_of(number) else { return };
        let follows = |run: Option<&(u64, u64)>| run.is_some_and(|(_, last)| last + 1 == number);
        let precedes = |run: Option<&(u64, u64)>| run.is_some_and(|(first, _)| first - 1 == number);
        let before = at.checked_sub(1);
        let joins_before = follows(before.and_then(|before| self.runs.get(before)));
        let joins_behind = precedes(self.runs.get(at));
        match (joins_before, joins_behind) {
            (true, true) => {
                let (_, last) = self.runs.remove(at);
                if let Some(run) = self.runs.get_mut(at - 1) {
                    run.1 = last;
                }
            }
            (true, false) => {
                if let Some(run) = self.runs.get_mut(at - 1) {
                    run.1 = number;
                }
            }
            (false, true) => {
                if let Some(run) = self.runs.get_mut(at) {
                    run.0 = number;
                }
            }
            (false, false) => self.runs.insert(at, (number, number)),
        }
    }

    /// Records the current greatest number, and drops numbers below the greatest of `look_back_ms` ago.
    pub fn pass(&mut self, now_ms: u64, look_back_ms: u64) {
        let Some(greatest) = self.greatest() else {
            return;
        };
        let last = self.greatest.last();
        let is_due = last.is_none_or(|(at_ms, number)| {
            now_ms >= at_ms.saturating_add(look_back_ms / PARTS) && *number < greatest
        });
        if is_due {
            self.greatest.push((now_ms, greatest));
        }
        let is_old = |(at_ms, _): &(u64, u64)| at_ms.saturating_add(look_back_ms) <= now_ms;
        let old = self.greatest.iter().take_while(|one| is_old(one)).count();
        // Keep the latest old entry: it is the floor.
        self.greatest.drain(..old.saturating_sub(1));
        if let Some(floor) = self.floor(now_ms, look_back_ms) {
            self.runs.retain(|(_, last)| *last >= floor);
        }
    }

    /// No new rows appear below this number; `None`: nothing is old yet.
    fn floor(&self, now_ms: u64, look_back_ms: u64) -> Option<u64> {
        let (at_ms, number) = self.greatest.first()?;
        (at_ms.saturating_add(look_back_ms) <= now_ms).then_some(*number)
    }

    /// Late rows may appear after this number; `None`: the look-back has not passed yet.
    pub fn begin(&self, now_ms: u64, look_back_ms: u64) -> Option<u64> {
        let floor = self.floor(now_ms, look_back_ms)?;
        Some(self.end_of_run(floor))
    }
}

fn read_runs(text: &str) -> Option<Vec<(u64, u64)>> {
    let (first, lens) = text.split_once(':')?;
    let mut next: u64 = first.parse().ok()?;
    let mut runs = Vec::new();
    let mut lens = lens.split(',').map(str::parse::<u64>);
    loop {
        let last = next.checked_add(lens.next()?.ok()?.checked_sub(1)?)?;
        runs.push((next, last));
        let Some(gap) = lens.next() else {
            return Some(runs);
        };
        let gap = gap.ok().filter(|gap| *gap > 0)?;
        next = last.checked_add(1)?.checked_add(gap)?;
    }
}

fn read_greatest(text: &str) -> Option<Vec<(u64, u64)>> {
    let one = |text: &str| {
        let (at_ms, number) = text.split_once('=')?;
        Some((at_ms.parse().ok()?, number.parse().ok()?))
    };
    text.split(',').map(one).collect()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    const LOOK_BACK_MS: u64 = 1_600;

    fn window(numbers: impl IntoIterator<Item = u64>) -> Window {
        let mut window = Window::default();
        numbers.into_iter().for_each(|number| window.take(number));
        window
    }

    #[test]
    fn window_equals_a_set_for_any_insertion_order() {
        let mut state = 7_u64;
        for _ in 0..200 {
            let mut set = BTreeSet::new();
            let mut window = Window::default();
            for _ in 0..60 {
                state = state
                    .wrapping_mul(6_364_136_223_846_793_005)
                    .wrapping_add(1);
                let number = (state >> 33) % 80;
                set.insert(number);
                window.take(number);
            }
            for number in 0..100 {
                assert_eq!(
                    window.has(number),
                    set.contains(&number),
                    "{number} {set:?}"
                );
            }
            assert_eq!(window.greatest(), set.last().copied());
            let touching = window.runs.windows(2).find(|two| two[0].1 + 1 >= two[1].0);
            assert_eq!(touching, None);
            window.pass(1_000, LOOK_BACK_MS);
            assert_eq!(Window::read(&window.to_text()), Some(window));
        }
    }

    #[test]
    fn window_text_is_short_for_consecutive_numbers() {
        let mut window = window((100..150).chain(151..200));
        window.pass(1_000, LOOK_BACK_MS);
        assert_eq!(window.to_text(), "100:50,1,49;1000=199");
        assert_eq!(Window::read(""), Some(Window::default()));
        assert_eq!(Window::default().to_text(), "");
        for bad in [
            "x",
            "1",
            "1:",
            "1:0;",
            "1:1;",
            "1:1,0,1;1=1",
            "1:1,1;1=1",
            "9:9;a=1",
        ] {
            assert_eq!(Window::read(bad), None, "{bad}");
        }
        let last = Window::read(&format!("{}:1;1=1", u64::MAX)).unwrap();
        assert_eq!(last.greatest(), Some(u64::MAX));
        assert_eq!(Window::read(&format!("{}:2;1=1", u64::MAX)), None);
    }

    #[test]
    fn missing_number_is_awaited_exactly_for_the_lookback() {
        let mut window = window([1, 2, 4]);
        window.pass(10_000, LOOK_BACK_MS);
        assert_eq!(window.begin(10_000, LOOK_BACK_MS), None);
        window.take(5);
        window.pass(10_050, LOOK_BACK_MS);
        window.take(6);
        window.pass(10_200, LOOK_BACK_MS);
        assert_eq!(window.greatest, [(10_000, 4), (10_200, 6)]);
        // 3 may appear until then. Afterwards everything up to 4 is old, and all later numbers were taken.
        assert_eq!(window.begin(11_599, LOOK_BACK_MS), None);
        assert_eq!(window.begin(11_600, LOOK_BACK_MS), Some(6));
        window.pass(11_600, LOOK_BACK_MS);
        assert_eq!(window.runs, [(4, 6)]);
        // 8 appeared before 7.
        window.take(8);
        window.pass(11_700, LOOK_BACK_MS);
        assert_eq!(window.begin(11_700, LOOK_BACK_MS), Some(6));
        window.pass(13_300, LOOK_BACK_MS);
        assert_eq!(window.begin(13_300, LOOK_BACK_MS), Some(8));
        assert_eq!(window.to_text(), "8:1;11700=8");
    }

    #[test]
    fn backward_clock_delays_expiry_and_never_hastens_it() {
        let mut window = window([1, 3]);
        window.pass(1_000_000, LOOK_BACK_MS);
        window.take(5);
        window.pass(500_000, LOOK_BACK_MS);
        assert_eq!(window.begin(500_000 + LOOK_BACK_MS, LOOK_BACK_MS), None);
        assert_eq!(
            window.begin(1_000_000 + LOOK_BACK_MS, LOOK_BACK_MS),
            Some(3)
        );
    }

    #[test]
    fn window_reports_when_it_is_full() {
        let mut window = window((0..RUNS_MAX as u64).map(|n| 2 * n));
        assert!(window.is_full());
        window.take(1);
        assert!(!window.is_full());
    }
}
