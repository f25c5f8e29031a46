//! Statistics of schedules: a simulation in which nothing happens finds nothing.

use std::collections::BTreeMap;

/// Counts of one schedule, or of many.
#[derive(Clone, Debug, Default)]
pub struct Stats {
    /// Schedules.
    pub schedules: u64,
    /// Events.
    pub steps: u64,
    /// Faults that began, by kind.
    pub faults: BTreeMap<&'static str, u64>,
    /// Feedback about failed effects from hosts to engines, by kind.
    pub feedback: BTreeMap<&'static str, u64>,
    /// Answers to clients, by verdict or the origin's code.
    pub answers: BTreeMap<String, u64>,
    /// Completed work: created orders, repaired units, passed requests, used clicks, and so on.
    pub done: BTreeMap<&'static str, u64>,
}

impl Stats {
    /// Counts a client's answer.
    pub(crate) fn add_answer(&mut self, word: &str) {
        *self.answers.entry(word.into()).or_default() += 1;
    }

    /// Adds the statistics of other schedules.
    pub fn add(&mut self, other: &Self) {
        self.schedules += other.schedules;
        self.steps += other.steps;
        for (kind, count) in &other.faults {
            *self.faults.entry(kind).or_default() += count;
        }
        for (kind, count) in &other.feedback {
            *self.feedback.entry(kind).or_default() += count;
        }
        for (subject, count) in &other.done {
            *self.done.entry(subject).or_default() += count;
        }
        for (word, count) in &other.answers {
            *self.answers.entry(word.clone()).or_default() += count;
        }
    }
}
