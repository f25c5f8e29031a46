//! What all simulations have in common: a schedule comes from a seed, runs, and can be made smaller.

use std::fmt;
use std::ops::Range;

use crate::{Options, Report};

/// A step that makes a schedule simpler.
pub type Step<S> = Box<dyn Fn(&mut S)>;

/// Who takes part, who comes, and what goes wrong: made from a seed, and nothing else.
pub trait Schedule: Clone + PartialEq + fmt::Display {
    /// What is simulated, in one word.
    const SUBJECT: &'static str;

    /// The schedule of a seed.
    fn new(seed: u64) -> Self;

    /// What it was made from.
    fn seed(&self) -> u64;

    /// Runs it.
    fn run(&self, options: &Options) -> Report;

    /// How long its lists are, of faults, of clients, …: all but a few of their entries are of no use to a failure.
    fn lists(&self) -> Vec<usize>;

    /// Drops entries of a list, by its place in [`Schedule::lists`].
    fn drop_entries(&mut self, list: usize, entries: Range<usize>);

    /// What makes it simpler, one thing a step. A step may change nothing.
    fn steps(&self) -> Vec<Step<Self>>;

    /// How large it is: shrinking ends when this does not get less.
    fn size(&self) -> u64;
}
