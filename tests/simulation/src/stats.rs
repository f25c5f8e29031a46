//! What schedules were made of: a simulation in which nothing happens finds nothing.

use std::collections::BTreeMap;

/// Counts of one schedule, or of many.
#[derive(Clone, Debug, Default)]
pub struct Stats {
    /// Schedules.
    pub schedules: u64,
    /// Things that happened.
    pub steps: u64,
    /// Faults that began, by kind.
    pub faults: BTreeMap<&'static str, u64>,
    /// What gateways' hosts have told their engines of effects that could not be applied, by kind.
    pub feedback: BTreeMap<&'static str, u64>,
    /// What clients have heard, by verdict or by the origin's word.
    pub answers: BTreeMap<String, u64>,
    /// What was done: orders made, units repaired, requests let pass, clicks used, …
    pub done: BTreeMap<&'static str, u64>,
}

impl Stats {
    /// A client has heard something.
    pub(crate) fn add_answer(&mut self, word: &str) {
        *self.answers.entry(word.into()).or_default() += 1;
    }

    /// Adds those of other schedules.
    pub fn add(&mut self, other: &Self) {
        self.schedules += other.schedules;
        self.steps += other.steps;
        for (kind, count) in &other.faults {
            *self.faults.entry(kind).or_default() += count;
        }
        for (kind, count) in &other.feedback {
            *self.feedback.entry(kind).or_default() += count;
        }
        for (what, count) in &other.done {
            *self.done.entry(what).or_default() += count;
        }
        for (word, count) in &other.answers {
            *self.answers.entry(word.clone()).or_default() += count;
        }
    }
}
