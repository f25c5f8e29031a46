//! Tells an outage from a poisoned event.

use std::collections::VecDeque;

/// Fewer outcomes than these tell nothing: one event of one is more than half, and may still be poisoned.
const OUTCOMES_MIN: usize = 5;

/// How many outcomes are remembered.
const REMEMBERED: usize = 20;

/// How the latest events fared, each at its first try.
#[derive(Clone, Debug, Default)]
pub struct Health {
    /// Whether each was handled, the latest last.
    latest: VecDeque<bool>,
}

impl Health {
    /// Whether these outcomes mean that what handles events is away: more than half of them are failures. If they are few,
    /// those before them count, too.
    pub fn is_outage(&self, outcomes: &[bool]) -> bool {
        let is_failure = |ok: &&bool| !**ok;
        let before = OUTCOMES_MIN.saturating_sub(outcomes.len());
        let before: Vec<&bool> = self.latest.iter().rev().take(before).collect();
        let count = outcomes.len() + before.len();
        let failures = outcomes.iter().filter(is_failure).count();
        let failures = failures + before.into_iter().filter(is_failure).count();
        outcomes.contains(&false) && count >= OUTCOMES_MIN && 2 * failures > count
    }

    /// Remembers outcomes.
    pub fn note(&mut self, outcomes: &[bool]) {
        self.latest.extend(outcomes);
        let over = self.latest.len().saturating_sub(REMEMBERED);
        self.latest.drain(..over);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn outcomes(text: &str) -> Vec<bool> {
        text.chars().map(|char| char == '+').collect()
    }

    fn check(before: &str, now: &str, is_outage: bool) {
        let mut health = Health::default();
        health.note(&outcomes(before));
        assert_eq!(
            health.is_outage(&outcomes(now)),
            is_outage,
            "{before} {now}"
        );
    }

    #[test]
    fn more_than_half_is_an_outage_and_one_event_is_none() {
        check("", "-", false);
        check("", "----", false);
        check("", "-----", true);
        check("", "+++---", false);
        check("", "++----", true);
        check("", "++++++", false);
    }

    #[test]
    fn where_events_come_one_by_one_those_before_count() {
        check("++++", "-", false);
        check("++-", "-", false);
        check("++--", "-", true);
        check("----", "+", false);
        // Long ago counts no more.
        check("-------++++", "-", false);
    }

    #[test]
    fn little_is_remembered() {
        let mut health = Health::default();
        health.note(&[true; 1_000]);
        assert_eq!(health.latest.len(), REMEMBERED);
    }
}
