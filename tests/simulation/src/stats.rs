//! What schedules were made of: a simulation in which nothing happens finds nothing.

use std::collections::BTreeMap;

/// Counts of one schedule, or of many.
#[derive(Clone, Debug, Default)]
pub struct Stats {
    /// Schedules.
    pub schedules: u64,
    /// Things that happened.
    pub steps: u64,
    /// Orders that SQL has made.
    pub orders: u64,
    /// Faults that began, by kind.
    pub faults: BTreeMap<&'static str, u64>,
    /// What gateways' hosts have told their engines of effects that could not be applied, by kind.
    pub feedback: BTreeMap<&'static str, u64>,
    /// What clients have heard, by verdict or by the origin's word.
    pub answers: BTreeMap<String, u64>,
    /// Units that reconcilers have put back or taken after losses.
    pub units_repaired: u64,
}

impl Stats {
    /// Adds those of other schedules.
    pub fn add(&mut self, other: &Self) {
        self.schedules += other.schedules;
        self.steps += other.steps;
        self.orders += other.orders;
        self.units_repaired += other.units_repaired;
        for (kind, count) in &other.faults {
            *self.faults.entry(kind).or_default() += count;
        }
        for (kind, count) in &other.feedback {
            *self.feedback.entry(kind).or_default() += count;
        }
        for (word, count) in &other.answers {
            *self.answers.entry(word.clone()).or_default() += count;
        }
    }
}
