//! Distinguishes an outage from a poison event.

use std::collections::VecDeque;

/// Minimum number of outcomes for a decision: a single failure is more than half of one, and may be a poison event.
const OUTCOMES_MIN: usize = 5;

/// Number of outcomes to remember.
const REMEMBERED: usize = 20;

/// Outcomes of recent first attempts.
#[derive(Clone, Debug, Default)]
pub struct Health {
    /// Whether each event was handled, oldest first.
    latest: VecDeque<bool>,
}

impl Health {
    /// Whether these outcomes indicate an outage of the handler's target: more than half of them failed. Earlier
    /// outcomes are included if there are too few.
    pub fn is_outage(&self, outcomes: &[bool]) -> bool {
        let is_failure = |ok: &&bool| !**ok;
        let before = OUTCOMES_MIN.saturating_sub(outcomes.len());
        let before: Vec<&bool> = self.latest.iter().rev().take(before).collect();
        let count = outcomes.len() + before.len();
        let failures = outcomes.iter().filter(is_failure).count();
        let failures = failures + before.into_iter().filter(is_failure).count();
        outcomes.contains(&false) && count >= OUTCOMES_MIN && 2 * failures > count
    }

    /// Records outcomes.
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
    fn outage_needs_more_than_half_failures_and_several_events() {
        check("", "-", false);
        check("", "----", false);
        check("", "-----", true);
        check("", "+++---", false);
        check("", "++----", true);
        check("", "++++++", false);
    }

    #[test]
    fn single_event_batches_include_earlier_outcomes() {
        check("++++", "-", false);
        check("++-", "-", false);
        check("++--", "-", true);
        check("----", "+", false);
        // Old outcomes no longer count.
        check("-------++++", "-", false);
    }

    #[test]
    fn health_history_is_bounded() {
        let mut health = Health::default();
        health.note(&[true; 1_000]);
        assert_eq!(health.latest.len(), REMEMBERED);
    }
}
