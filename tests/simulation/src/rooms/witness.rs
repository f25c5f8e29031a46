//! What must hold of a waiting room.
//!
//! **Nobody's position gets worse** as long as the visitor keeps its place, whatever is lost: gateways and passes tell Redis
//! how far the queue was.
//!
//! **A called visitor who is told `hold` keeps the place** for as long as the visitor asks, whatever is lost.
//!
//! **No place is given to two**, as long as Redis loses nothing, or everything, so that it waits for the gateways that could tell
//! it, and these live. One that has lost its last moments does not know it: then two may stand at one place, and both enter.
//!
//! As long as Redis loses nothing that it has acknowledged:
//! - **No visitor gets a second place**, unless a called one has passed on.
//! - **Never more are inside than `active_max`**: sessions outlive a schedule.
//! - **The pace is kept**: from the first look on, no more enter than it allows, and one.

use std::collections::{BTreeMap, BTreeSet};

use super::plan::{Plan, Room};

/// Watches a schedule.
#[derive(Debug)]
pub(super) struct Witness {
    room: Room,
    loses_data: bool,
    /// Whether a place may be gone that a visitor was told of.
    forgets: bool,
    /// Whose place it is.
    owners: BTreeMap<u64, usize>,
    /// The place and the position that a visitor was told last.
    told: BTreeMap<usize, (u64, u64)>,
    /// The place at which a called visitor waits for room.
    held: BTreeMap<usize, u64>,
    pub(super) entered: BTreeSet<usize>,
    /// Those who have asked for a place.
    pub(super) came: BTreeSet<usize>,
}

impl Witness {
    pub(super) fn new(plan: &Plan) -> Self {
        Self {
            room: plan.room,
            loses_data: plan.loses_data(),
            forgets: plan.forgets(),
            owners: BTreeMap::new(),
            told: BTreeMap::new(),
            held: BTreeMap::new(),
            entered: BTreeSet::new(),
            came: BTreeSet::new(),
        }
    }

    /// A visitor has got a pass with a place. What is wrong with that, if anything is.
    pub(super) fn place(&mut self, who: usize, place: u64, is_held: bool) -> Option<String> {
        let held = self.held.get(&who).copied();
        if let Some(held) = held.filter(|held| *held != place) {
            return Some(format!(
                "{who} waited for room at {held}, and is at {place} now"
            ));
        }
        if is_held {
            self.held.insert(who, place);
        }
        let owner = *self.owners.entry(place).or_insert(who);
        (owner != who && !self.forgets)
            .then(|| format!("place {place} is {owner}'s, and now {who}'s"))
    }

    /// A visitor who has this place was told this position.
    pub(super) fn position(&mut self, who: usize, place: u64, position: u64) -> Option<String> {
        let before = self.told.insert(who, (place, position));
        let (_, before) = before.filter(|(same, before)| *same == place && *before < position)?;
        Some(format!("{who} was {before}., and is {position}. now"))
    }

    /// A visitor has entered.
    pub(super) fn enter(&mut self, who: usize, now_us: u64) -> Option<String> {
        self.entered.insert(who);
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

    /// The places that Redis has given, and those that have passed on.
    pub(super) fn counted(&self, joined: u64, missed: u64) -> Option<String> {
        let came = self.came.len() as u64;
        (!self.loses_data && joined > came + missed)
            .then(|| format!("{joined} places for {came} visitors, of which {missed} passed on"))
    }
}
