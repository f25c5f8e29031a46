//! Queries over a customer's events: the last N, a count within a window, A and then B within a time, a funnel.
//!
//! All functions take one customer's events in ascending order of time, and read them once.

use alloc::vec::Vec;

use crate::envelope::Envelope;

/// An item with a type and a time.
pub trait Occurrence {
    /// The type.
    fn event_type(&self) -> &str;

    /// The time, in milliseconds since the Unix epoch.
    fn at_ms(&self) -> u64;
}

impl Occurrence for Envelope {
    fn event_type(&self) -> &str {
        self.event_type.as_str()
    }

    fn at_ms(&self) -> u64 {
        self.at_ms
    }
}

impl<E: Occurrence> Occurrence for &E {
    fn event_type(&self) -> &str {
        (**self).event_type()
    }

    fn at_ms(&self) -> u64 {
        (**self).at_ms()
    }
}

/// The last `count` events of a type, the latest first.
pub fn last<'e, E: Occurrence>(events: &'e [E], event_type: &str, count: usize) -> Vec<&'e E> {
    let newest_first = events.iter().rev();
    newest_first
        .filter(|event| event.event_type() == event_type)
        .take(count)
        .collect()
}

/// The number of events of a type in the `window_ms` before `end_ms`. Events at `end_ms` count; events exactly
/// `window_ms` older do not.
pub fn count_within<E: Occurrence>(
    events: &[E],
    event_type: &str,
    end_ms: u64,
    window_ms: u64,
) -> usize {
    let is_within = |event: &&E| {
        let age_ms = end_ms.checked_sub(event.at_ms());
        age_ms.is_some_and(|age_ms| age_ms < window_ms)
    };
    events
        .iter()
        .filter(is_within)
        .filter(|event| event.event_type() == event_type)
        .count()
}

/// The maximum number of events of a type in any `window_ms`.
pub fn most_within<E: Occurrence>(events: &[E], event_type: &str, window_ms: u64) -> usize {
    let is_one = |event: &&E| event.event_type() == event_type;
    let mut oldest = events.iter().filter(is_one).peekable();
    let (mut count, mut most) = (0_usize, 0);
    for event in events.iter().filter(is_one) {
        count += 1;
        let is_over = |old: &&E| event.at_ms().saturating_sub(old.at_ms()) >= window_ms;
        while count > 0 && oldest.next_if(is_over).is_some() {
            count -= 1;
        }
        most = most.max(count);
    }
    most
}

/// Each event of type `then` that follows one of type `first` within `within_ms`, with the latest such one. Events of
/// the same millisecond keep their order in the list. An event does not follow itself.
pub fn sequences<'e, E: Occurrence>(
    events: &'e [E],
    first: &str,
    then: &str,
    within_ms: u64,
) -> Vec<(&'e E, &'e E)> {
    let mut latest: Option<&E> = None;
    let mut found = Vec::new();
    for event in events {
        let event_type = event.event_type();
        let is_followed = |before: &&E| event.at_ms().saturating_sub(before.at_ms()) <= within_ms;
        if event_type == then
            && let Some(before) = latest.filter(is_followed)
        {
            found.push((before, event));
        }
        if event_type == first {
            latest = Some(event);
        }
    }
    found
}

/// The number of `steps` that a customer completes in order within `within_ms` of an event of the first type: the most
/// of any such event. The types must differ. Events of the same millisecond keep their order in the list.
pub fn steps_within<E: Occurrence, const N: usize>(
    events: &[E],
    steps: [&str; N],
    within_ms: u64,
) -> usize {
    // For each step, the latest start of a sequence that has completed it. The latest start has the latest deadline.
    let mut starts: [Option<u64>; N] = [None; N];
    let mut most = 0;
    for event in events {
        let at_ms = event.at_ms();
        let mut start_ms = Some(at_ms);
        for (at, (step, latest)) in steps.iter().zip(&mut starts).enumerate() {
            let is_in_time = |start: &u64| at_ms.saturating_sub(*start) <= within_ms;
            if event.event_type() == *step
                && let Some(start) = start_ms.filter(is_in_time)
            {
                *latest = Some(latest.map_or(start, |latest| latest.max(start)));
                most = most.max(at + 1);
            }
            start_ms = *latest;
        }
    }
    most
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::{String, ToString};
    use proptest::prelude::*;

    #[derive(Clone, Debug, PartialEq)]
    struct TimedEvent(String, u64);

    impl Occurrence for TimedEvent {
        fn event_type(&self) -> &str {
            &self.0
        }

        fn at_ms(&self) -> u64 {
            self.1
        }
    }

    fn course(events: &[(&str, u64)]) -> Vec<TimedEvent> {
        let events = events.iter();
        events
            .map(|(name, at_ms)| TimedEvent((*name).to_string(), *at_ms))
            .collect()
    }

    fn day() -> Vec<TimedEvent> {
        course(&[
            ("view", 10),
            ("view", 20),
            ("cart", 25),
            ("view", 30),
            ("order", 125),
            ("order", 126),
        ])
    }

    fn times(events: &[&TimedEvent]) -> Vec<u64> {
        events.iter().map(|event| event.1).collect()
    }

    #[test]
    fn last_events_are_listed_newest_first() {
        let day = day();
        assert_eq!(times(&last(&day, "view", 2)), [30, 20]);
        assert_eq!(times(&last(&day, "view", 9)), [30, 20, 10]);
        assert!(last(&day, "view", 0).is_empty() && last(&day, "none", 9).is_empty());
    }

    #[test]
    fn time_window_includes_only_its_end() {
        let count = |end_ms, window_ms| count_within(&day(), "view", end_ms, window_ms);
        assert_eq!((count(30, 10), count(30, 11), count(30, 21)), (1, 2, 3));
        assert_eq!((count(29, 10), count(9, 100), count(30, 0)), (1, 0, 0));
        assert_eq!(count(u64::MAX, u64::MAX), 3);
        assert_eq!(most_within(&day(), "view", 11), 2);
        assert_eq!(most_within(&day(), "view", 0), 0);
    }

    #[test]
    fn second_event_pairs_with_latest_first_event_in_time_limit() {
        let day = day();
        let pairs = |first, then, within_ms| -> Vec<_> {
            let found = sequences(&day, first, then, within_ms);
            found.iter().map(|(a, b)| (a.1, b.1)).collect()
        };
        assert_eq!(pairs("view", "cart", 5), [(20, 25)]);
        assert_eq!(pairs("view", "cart", 4), []);
        assert_eq!(pairs("cart", "order", 100), [(25, 125)]);
        assert_eq!(pairs("cart", "order", 101), [(25, 125), (25, 126)]);
        assert_eq!(pairs("view", "view", 10), [(10, 20), (20, 30)]);
        assert_eq!(pairs("order", "view", 1_000), []);
    }

    #[test]
    fn funnel_steps_follow_in_order_within_the_time_of_the_first() {
        let day = day();
        let steps = |within_ms| steps_within(&day, ["view", "cart", "order"], within_ms);
        assert_eq!((steps(4), steps(5), steps(104), steps(105)), (1, 2, 2, 3));
        assert_eq!(steps_within(&day, ["order", "view"], 1_000), 1);
        assert_eq!(steps_within(&day, ["none", "view"], 1_000), 0);
        // The second view has its order in time, but its cart came before it.
        let times = course(&[("view", 1), ("cart", 2), ("view", 50), ("order", 60)]);
        assert_eq!(steps_within(&times, ["view", "cart", "order"], 30), 2);
        assert_eq!(steps_within(&times, ["view", "order"], 10), 2);
        let same = course(&[("view", 5), ("cart", 5)]);
        assert_eq!(steps_within(&same, ["view", "cart"], 0), 2);
    }

    fn courses() -> impl Strategy<Value = Vec<TimedEvent>> {
        let event = ("[abc]", 0_u64..100).prop_map(|(name, at_ms)| TimedEvent(name, at_ms));
        prop::collection::vec(event, 0..30).prop_map(|mut events| {
            events.sort_by_key(|event| event.1);
            events
        })
    }

    proptest! {
        /// Compares with a naive implementation of the definitions.
        #[test]
        fn window_functions_agree_with_their_definitions(events in courses(), end_ms in 0_u64..120, window_ms in 0_u64..50) {
            let of = |name: &str| -> Vec<&TimedEvent> { events.iter().filter(|event| event.0 == name).collect() };
            let within = |end_ms: u64| {
                of("a").iter().filter(|event| event.1 <= end_ms && event.1 + window_ms > end_ms).count()
            };
            prop_assert_eq!(count_within(&events, "a", end_ms, window_ms), within(end_ms));
            let most = (0..100).map(within).max().unwrap_or(0);
            prop_assert_eq!(most_within(&events, "a", window_ms), most);
            let mut expected = Vec::new();
            for (at, event) in events.iter().enumerate().filter(|(_, event)| event.0 == "b") {
                let before = events[..at].iter().rfind(|event| event.0 == "a");
                if let Some(before) = before && event.1 - before.1 <= window_ms {
                    expected.push((before, event));
                }
            }
            prop_assert_eq!(sequences(&events, "a", "b", window_ms), expected);
            let mut steps = 0;
            for (one, a) in events.iter().enumerate().filter(|(_, event)| event.0 == "a") {
                steps = steps.max(1);
                let later = |event: &TimedEvent| event.1 - a.1 <= window_ms;
                let rest = &events[one + 1..];
                let Some(two) = rest.iter().position(|event| event.0 == "b" && later(event)) else { continue };
                steps = steps.max(2);
                if rest[two + 1..].iter().any(|event| event.0 == "c" && later(event)) {
                    steps = 3;
                }
            }
            prop_assert_eq!(steps_within(&events, ["a", "b", "c"], window_ms), steps);
        }
    }
}
