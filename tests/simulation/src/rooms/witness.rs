//! The invariants of a waiting room.
//!
//! **A position never gets worse** while the visitor keeps its pass, whatever is lost: gateways and passes report the
//! queue's progress to Redis.
//!
//! **An admitted visitor in state `hold` keeps the position** while the visitor polls, whatever is lost.
//!
//! **No position is issued twice**, if Redis loses nothing, or everything while the gateways live: an empty Redis waits
//! for their reports. A Redis that lost only its last moments does not notice it. Then two visitors may have one
//! position, and both enter.
//!
//! If Redis loses no acknowledged data:
//! - **No visitor gets a second position**, unless an admitted one has expired.
//! - **At most `active_max` visitors are inside**: sessions outlive a schedule.
//! - **The pace holds**: from the first poll on, at most one more than the pace allows enters.

use std::collections::{BTreeMap, BTreeSet};

use super::plan::{Plan, Room};

/// Checks a schedule.
#[derive(Debug)]
pub(super) struct Witness {
    room: Room,
    loses_data: bool,
    /// Whether a visitor's issued position may be lost.
    forgets: bool,
    /// The owner of each position.
    owners: BTreeMap<u64, usize>,
    /// The last position number and queue position of each visitor.
    reported: BTreeMap<usize, (u64, u64)>,
    /// The position of an admitted visitor who waits for capacity.
    held: BTreeMap<usize, u64>,
    pub(super) entered: BTreeSet<usize>,
    /// Visitors who requested a position.
    pub(super) arrived: BTreeSet<usize>,
}

impl Witness {
    pub(super) fn new(plan: &Plan) -> Self {
        Self {
            room: plan.room,
            loses_data: plan.loses_data(),
            forgets: plan.forgets(),
            owners: BTreeMap::new(),
            reported: BTreeMap::new(),
            held: BTreeMap::new(),
            entered: BTreeSet::new(),
            arrived: BTreeSet::new(),
        }
    }

    /// A visitor got a pass with a position. Returns the violation, if any.
    pub(super) fn place(&mut self, visitor: usize, place: u64, is_held: bool) -> Option<String> {
        let held = self.held.get(&visitor).copied();
        if let Some(held) = held.filter(|held| *held != place) {
            return Some(format!(
                "{visitor} waited for room at {held}, and is at {place} now"
            ));
        }
        if is_held {
            self.held.insert(visitor, place);
        }
        let owner = *self.owners.entry(place).or_insert(visitor);
        (owner != visitor && !self.forgets)
            .then(|| format!("place {place} is {owner}'s, and now {visitor}'s"))
    }

    /// A visitor with this position was told this queue position. Returns the violation, if any.
    pub(super) fn position(&mut self, visitor: usize, place: u64, position: u64) -> Option<String> {
        let before = self.reported.insert(visitor, (place, position));
        let (_, before) = before.filter(|(same, before)| *same == place && *before < position)?;
        Some(format!("{visitor} was {before}., and is {position}. now"))
    }

    /// A visitor has entered. Returns the violation, if any.
    pub(super) fn enter(&mut self, visitor: usize, now_us: u64) -> Option<String> {
        self.entered.insert(visitor);
        if self.loses_data {
            return None;
        }
        let (
            count,
            Room {
                per_minute,
                active_max,
            },
        ) = (self.entered.len() as u64, self.room);
        if active_max > 0 && count > active_max {
            return Some(format!("{count} are inside, {active_max} may be"));
        }
        let allowed = 1 + now_us / 1_000 * per_minute / 60_000;
        (per_minute > 0 && count > allowed)
            .then(|| format!("{count} have entered, {allowed} may have"))
    }

    /// Checks the positions that Redis has issued, and those that have expired.
    pub(super) fn counted(&self, joined: u64, missed: u64) -> Option<String> {
        let received = self.arrived.len() as u64;
        (!self.loses_data && joined > received + missed).then(|| {
            format!("{joined} places for {received} visitors, of which {missed} passed on")
        })
    }
}
