//! The common interface of all simulations: a schedule is created from a seed, runs, and can be shrunk.

use std::fmt;
use std::ops::Range;

use crate::{Options, Report};

/// A simplification of a schedule.
pub type Step<S> = Box<dyn Fn(&mut S)>;

/// A schedule, determined only by its seed.
pub trait Schedule: Clone + PartialEq + fmt::Display {
    /// The simulated subject, one word.
    const SUBJECT: &'static str;

    /// Creates the schedule of a seed.
    fn new(seed: u64) -> Self;

    /// Its seed.
    fn seed(&self) -> u64;

    /// Runs it.
    fn run(&self, options: &Options) -> Report;

    /// The lengths of its lists of faults, clients, and so on: most entries are irrelevant to a failure.
    fn lists(&self) -> Vec<usize>;

    /// Removes entries from a list, by its index in [`Schedule::lists`].
    fn drop_entries(&mut self, list: usize, entries: Range<usize>);

    /// Simplifications, one change each. A step may change nothing.
    fn steps(&self) -> Vec<Step<Self>>;

    /// The size: shrinking ends when it no longer decreases.
    fn size(&self) -> u64;
}
