//! A Rust model of `room_state.lua`, `room_tick.lua` and `room_ask.lua`. Tests compare it with the scripts on a real
//! Redis.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use crate::setting::Setting;
use crate::state::{
    ENTRY_COST, GRACE_MS, LATE_MS, Renewal, RoomState, SETTLE_MS, SLOT_MS, SLOTS, Snapshot, Status,
    Terms, WAITS, wait_class,
};
use crate::visitor::Visitor;

/// A visitor's request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct VisitorRequest {
    /// The visitor.
    pub visitor: Visitor,
    /// The position in the visitor's token; 0 for none.
    pub place: u64,
    /// The position after a draw.
    pub order: u64,
    /// When the visitor arrived, in milliseconds since the Unix epoch.
    pub joined_ms: u64,
    /// The hash of the address; `None` without a limit per address.
    pub address: Option<[u8; 8]>,
}

/// Positions called in one step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Window {
    at_ms: u64,
    /// The last one.
    to: u64,
    /// How many of them have not been claimed.
    remaining: u64,
}

/// A called visitor who waits for capacity.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct CapacityWait {
    /// The position after a draw.
    order: u64,
    /// When the visitor loses it without a new request, by the claim clock.
    ends_ms: u64,
}

/// A room in Redis. One value contains all its numbers, except those of visitors and addresses.
#[derive(Clone, Debug, Default)]
pub struct Model {
    state: Option<State>,
    setting: Option<Setting>,
    inside: BTreeMap<Visitor, u64>,
    places: BTreeMap<Visitor, i64>,
    holds: BTreeMap<Visitor, CapacityWait>,
    addresses: BTreeMap<[u8; 8], (u64, u64)>,
    /// Entries by waiting time.
    pub waits: [u64; WAITS],
    /// Entries per time slot.
    entries: BTreeMap<u64, u64>,
}

#[derive(Clone, Debug, Default)]
struct State {
    observed: RoomState,
    settles_ms: u64,
    credit: u64,
    credit_ms: u64,
    ghosts: u64,
    ghosts_ms: u64,
    opening: u64,
    joined: u64,
    entered: u64,
    missed: u64,
    windows: Vec<Window>,
    /// Called positions up to this one have expired, unless a hold keeps them. `seen.floor` stays below all holds.
    lapsed: u64,
    /// The clock for windows and holds. It follows the time, but advances by at most a quarter of `claim` per call, and
    /// stops before an opening.
    clock_ms: u64,
}

/// The context of a call.
#[derive(Clone, Copy, Debug)]
pub struct CallContext {
    /// The fixed parameters.
    pub terms: Terms,
    /// The settings, in case Redis has none.
    pub setting: Setting,
    /// The caller's state of the room.
    pub observed: RoomState,
    /// When the call was made, by the clock of Redis as the caller estimates it; 0 if unknown.
    pub asked_ms: u64,
}

/// One call in progress.
struct RunningCall<'a> {
    model: &'a mut Model,
    state: State,
    terms: Terms,
    setting: Setting,
    now_ms: u64,
    is_late: bool,
}

impl Model {
    /// Redis loses all data.
    pub fn lose(&mut self) {
        *self = Self::default();
    }

    /// Redis loses the room's numbers only.
    pub fn lose_state(&mut self) {
        self.state = None;
    }

    /// Redis loses the active sessions.
    pub fn lose_inside(&mut self) {
        self.inside.clear();
    }

    /// Redis loses the visitors' positions.
    pub fn lose_places(&mut self) {
        self.places.clear();
    }

    /// Redis loses the visitors who wait for capacity.
    pub fn lose_holds(&mut self) {
        self.holds.clear();
    }

    /// Drops all holds, to simulate a defect.
    pub fn forget_holds(&mut self) {
        self.holds.clear();
        if let Some(state) = &mut self.state {
            state.observed.floor = state.lapsed;
        }
    }

    /// `room_set.lua`. Returns whether the settings are newer than the stored ones.
    pub fn set(&mut self, setting: Setting) -> bool {
        let is_newer = self.setting.is_none_or(|old| old.version < setting.version);
        if is_newer {
            self.setting = Some(setting);
        }
        is_newer
    }

    /// `room_tick.lua`: advances the time and renews these sessions.
    pub fn tick(&mut self, now_ms: u64, context: &CallContext, renewed: &[Renewal]) -> Snapshot {
        let mut turn = RunningCall::begin(self, now_ms, context);
        for renewal in renewed {
            turn.renew(*renewal);
        }
        turn.call();
        turn.end()
    }

    /// `room_ask.lua`: these visitors request positions or admission, in this order.
    pub fn ask(
        &mut self,
        now_ms: u64,
        context: &CallContext,
        asks: &[VisitorRequest],
    ) -> (Snapshot, Vec<(Status, u64)>) {
        let mut turn = RunningCall::begin(self, now_ms, context);
        let before = turn.state.observed.seq;
        let mut replies: Vec<_> = asks.iter().map(|ask| turn.ask(ask)).collect();
        turn.call();
        for ((status, place), ask) in replies.iter_mut().zip(asks) {
            let is_new = *status == Status::Waiting && *place > before;
            if is_new && !turn.is_lobby() && *place <= turn.state.observed.head {
                if !turn.model.inside.contains_key(&ask.visitor) {
                    turn.enter(ask, *place);
                }
                *status = Status::Inside;
            }
        }
        (turn.end(), replies)
    }

    /// Entries in the last minute, as `room_look.lua` returns them.
    pub fn entered_last_minute(&self, now_ms: u64) -> u64 {
        let slot = now_ms / SLOT_MS;
        let recent = self.entries.range((slot + 1).saturating_sub(SLOTS)..=slot);
        recent.map(|(_, count)| count).sum()
    }

    /// Active sessions in Redis.
    pub fn inside(&self) -> usize {
        self.inside.len()
    }
}

impl<'a> RunningCall<'a> {
    fn begin(model: &'a mut Model, now_ms: u64, context: &CallContext) -> Self {
        let terms = context.terms;
        let fresh = || State {
            settles_ms: now_ms + SETTLE_MS,
            credit_ms: now_ms,
            ghosts_ms: now_ms + terms.session_ms + GRACE_MS,
            clock_ms: now_ms,
            ..State::default()
        };
        let mut turn = Self {
            state: model.state.take().unwrap_or_else(fresh),
            setting: model.setting.unwrap_or(context.setting),
            model,
            terms,
            now_ms,
            is_late: context.asked_ms > 0 && now_ms.saturating_sub(context.asked_ms) > LATE_MS,
        };
        turn.model.inside.retain(|_, until_ms| *until_ms > now_ms);
        let elapsed_ms = now_ms.saturating_sub(turn.state.credit_ms);
        if !turn.is_lobby() {
            turn.state.clock_ms += elapsed_ms.min(terms.claim_ms / 4);
        }
        // The clock of Redis was set back.
        let back_ms = turn.state.credit_ms.saturating_sub(now_ms);
        turn.state.settles_ms = turn.state.settles_ms.saturating_sub(back_ms);
        turn.state.ghosts_ms = turn.state.ghosts_ms.saturating_sub(back_ms);
        turn.recover_holds();
        turn.merge(&context.observed);
        turn.lapse();
        turn.raise_floor();
        turn.prepare_opening(&context.observed);
        turn.accrue();
        turn
    }

    /// Redis has lost the holds: their visitors get another claim period.
    fn recover_holds(&mut self) {
        let state = &mut self.state;
        if self.model.holds.is_empty() && state.observed.floor < state.lapsed {
            let (at_ms, to, remaining) = (state.clock_ms, state.lapsed, 0);
            state.windows.insert(
                0,
                Window {
                    at_ms,
                    to,
                    remaining,
                },
            );
            state.lapsed = state.observed.floor;
        }
    }

    fn merge(&mut self, observed: &RoomState) {
        let now_ms = self.now_ms;
        let state = &mut self.state;
        state.observed.floor = state.observed.floor.max(observed.floor);
        state.lapsed = state.lapsed.max(state.observed.floor);
        if observed.head > state.observed.head {
            state.observed.head = observed.head;
            let (at_ms, to, remaining) = (state.clock_ms, observed.head, 0);
            state.windows.push(Window {
                at_ms,
                to,
                remaining,
            });
        }
        let unknown = observed.called.saturating_sub(self.called());
        let is_settling = self.is_settling();
        let state = &mut self.state;
        if let Some(last) = state.windows.last_mut().filter(|_| is_settling) {
            last.remaining += unknown;
        }
        state.observed.seq = state
            .observed
            .seq
            .max(observed.seq)
            .max(state.observed.head);
        if observed.drew > state.observed.drew {
            (
                state.observed.drew,
                state.observed.base,
                state.observed.drawn,
            ) = (observed.drew, observed.base, observed.drawn);
            state.opening = observed.drew;
        }
        if now_ms >= state.ghosts_ms {
            state.ghosts = 0;
        } else if now_ms < state.settles_ms {
            let existing = self.model.inside.len() as u64;
            state.ghosts = state.ghosts.max(observed.inside.saturating_sub(existing));
        }
    }

    fn window_ms(&self) -> u64 {
        self.terms.claim_ms / 32
    }

    /// The number of visitors with positions in this range who wait for capacity.
    fn holding(&self, first: u64, last: u64) -> u64 {
        let holds = self.model.holds.values();
        holds
            .filter(|hold| (first..=last).contains(&hold.order))
            .count() as u64
    }

    /// Expires positions that were called and not claimed.
    fn lapse(&mut self) {
        let (clock_ms, lapsed) = (self.state.clock_ms, self.state.lapsed);
        self.model.holds.retain(|_, hold| {
            let is_over = hold.ends_ms <= clock_ms;
            self.state.missed += u64::from(is_over && hold.order <= lapsed);
            !is_over
        });
        let life_ms = self.terms.claim_ms + self.window_ms();
        let is_over = |window: &&Window| window.at_ms + life_ms <= clock_ms;
        let count = self.state.windows.iter().take_while(is_over).count();
        let over: Vec<_> = self.state.windows.drain(..count).collect();
        for window in over {
            let holding = self.holding(self.state.lapsed + 1, window.to);
            self.state.missed += window.remaining.saturating_sub(holding);
            self.state.lapsed = self.state.lapsed.max(window.to);
        }
    }

    fn raise_floor(&mut self) {
        let first = self
            .model
            .holds
            .values()
            .map(|hold| hold.order.saturating_sub(1))
            .min();
        let lapsed = self.state.lapsed;
        let floor = first.map_or(lapsed, |first| lapsed.min(first));
        self.state.observed.floor = self.state.observed.floor.max(floor);
    }

    /// Prepares a new opening. It takes effect after all visitors of the last draw have passed, and draws all who wait.
    /// An opening before the last draw is already done.
    fn prepare_opening(&mut self, observed: &RoomState) {
        let state = &mut self.state;
        if let Some(opening) = state.observed.next_opening(self.setting.opens_at_ms) {
            state.opening = opening;
        }
        let has_none = state.opening > 0 && state.observed.seed_of != state.opening;
        if has_none && observed.seed_of == state.opening {
            (state.observed.seed_of, state.observed.seed) = (observed.seed_of, observed.seed);
        }
        let is_due = state.opening > 0
            && state.observed.drew != state.opening
            && state.opening <= self.now_ms
            && state.observed.seed_of == state.opening
            && self.now_ms >= state.settles_ms;
        if is_due {
            state.observed.drew = state.opening;
            (state.observed.base, state.observed.drawn) = (state.observed.head, state.observed.seq);
        }
    }

    fn accrue(&mut self) {
        let state = &mut self.state;
        // No rate needs longer for one entry.
        let elapsed_ms = self.now_ms.saturating_sub(state.credit_ms).min(ENTRY_COST);
        let cap = ENTRY_COST.max(self.setting.per_minute * 2_000);
        state.credit = (state.credit + elapsed_ms * self.setting.per_minute).min(cap);
        state.credit_ms = self.now_ms;
    }

    fn is_settling(&self) -> bool {
        self.now_ms < self.state.settles_ms
    }

    fn is_lobby(&self) -> bool {
        self.state.opening > 0 && self.state.observed.drew != self.state.opening
    }

    fn inside(&self) -> u64 {
        self.model.inside.len() as u64 + self.state.ghosts
    }

    fn called(&self) -> u64 {
        let remaining = self.state.windows.iter().map(|window| window.remaining);
        remaining.sum::<u64>() + self.holding(1, self.state.lapsed)
    }

    fn renew(&mut self, renewal: Renewal) {
        let until_ms = self.now_ms + self.terms.session_ms + GRACE_MS;
        if self
            .model
            .inside
            .insert(renewal.visitor, until_ms)
            .is_some()
        {
            return;
        }
        match renewal.entered_at {
            // Only their number was known, not their IDs.
            None => self.state.ghosts = self.state.ghosts.saturating_sub(1),
            Some(0) => self.count_entry(),
            Some(order) => {
                self.count_entry();
                self.take_up(renewal.visitor, order);
            }
        }
    }

    /// Calls the positions that rate and capacity allow.
    fn call(&mut self) {
        let is_held = self.is_settling() || self.is_lobby() || !self.setting.mode.calls();
        let mut count = self.state.observed.seq - self.state.observed.head;
        if self.setting.per_minute > 0 {
            count = count.min(self.state.credit / ENTRY_COST);
        }
        if self.setting.active_max > 0 {
            let accepted = self.inside() + self.called();
            count = count.min(self.setting.active_max.saturating_sub(accepted));
        }
        if is_held || count == 0 {
            return;
        }
        if self.setting.per_minute > 0 {
            self.state.credit -= count * ENTRY_COST;
        }
        self.state.observed.head += count;
        let (at_ms, window_ms, to) = (
            self.state.clock_ms,
            self.window_ms(),
            self.state.observed.head,
        );
        match self.state.windows.last_mut() {
            Some(last) if at_ms < last.at_ms + window_ms => {
                last.to = to;
                last.remaining += count;
            }
            _ => self.state.windows.push(Window {
                at_ms,
                to,
                remaining: count,
            }),
        }
    }

    fn ask(&mut self, ask: &VisitorRequest) -> (Status, u64) {
        let until_ms = self.now_ms + self.terms.session_ms + GRACE_MS;
        if let Some(ends_ms) = self.model.inside.get_mut(&ask.visitor) {
            *ends_ms = until_ms;
            return (Status::Inside, ask.place);
        }
        let existing = self.model.places.get(&ask.visitor).copied().unwrap_or(0);
        if ask.place == 0 {
            return self.give(ask, existing);
        }
        if ask.order > self.state.observed.head || self.is_lobby() {
            return (Status::Waiting, ask.place);
        }
        let is_used = existing < 0 && existing.unsigned_abs() > self.state.observed.floor;
        let hold = self.model.holds.get(&ask.visitor);
        let is_held = hold.is_some_and(|hold| hold.order == ask.order);
        if (ask.order <= self.state.lapsed && !is_held) || is_used {
            // A repeated request: the first reply may have been lost.
            let is_same = i64::try_from(ask.place) == Ok(existing);
            return self.give(ask, if is_same { 0 } else { existing });
        }
        if self.is_settling() {
            return (Status::Hold, ask.place);
        }
        if !self.has_room(ask.order) {
            self.hold(ask);
            return (Status::Hold, ask.place);
        }
        self.enter(ask, ask.order);
        (Status::Inside, ask.place)
    }

    /// Whether there is capacity for a called position and for all visitors who were called earlier. Visitors of the
    /// same window without a request do not count.
    fn has_room(&self, order: u64) -> bool {
        if self.setting.active_max == 0 {
            return true;
        }
        let mut last = self.state.lapsed;
        let mut ahead = self.holding(1, last.min(order.saturating_sub(1)));
        for window in &self.state.windows {
            if window.to >= order {
                ahead += self.holding(last + 1, order.saturating_sub(1));
                break;
            }
            ahead += window.remaining.max(self.holding(last + 1, window.to));
            last = window.to;
        }
        self.setting.active_max.saturating_sub(self.inside()) > ahead
    }

    /// Keeps the position of a called visitor without capacity for another claim period.
    fn hold(&mut self, ask: &VisitorRequest) {
        let hold = CapacityWait {
            order: ask.order,
            ends_ms: self.state.clock_ms + self.terms.claim_ms + self.window_ms(),
        };
        self.model.holds.insert(ask.visitor, hold);
        let mut last = self.state.lapsed;
        if ask.order <= last {
            return;
        }
        for at in 0..self.state.windows.len() {
            let to = self.state.windows.get(at).map_or(0, |window| window.to);
            let holding = self.holding(last + 1, to);
            if let Some(window) = self.state.windows.get_mut(at).filter(|_| to >= ask.order) {
                // After data loss, the number of called positions is unknown.
                window.remaining = window.remaining.max(holding);
                return;
            }
            last = to;
        }
    }

    /// Whether a position may still be called or claimed.
    fn is_open(&self, place: u64) -> bool {
        let RoomState { base, drawn, .. } = self.state.observed;
        let lapsed = self.state.lapsed;
        match place > base && place <= drawn {
            true => lapsed < drawn,
            false => place > lapsed,
        }
    }

    fn give(&mut self, ask: &VisitorRequest, existing: i64) -> (Status, u64) {
        let place = u64::try_from(existing).unwrap_or(0);
        let is_held = self.model.holds.contains_key(&ask.visitor);
        if place > 0 && (is_held || self.is_open(place)) {
            return (Status::Waiting, place);
        }
        if self.is_settling() || self.is_late {
            return (Status::Settling, 0);
        }
        if !self.setting.mode.takes_newcomers() {
            return (Status::Closed, 0);
        }
        let waiting = self.state.observed.seq - self.state.observed.head;
        if self.terms.queue_max > 0 && waiting >= self.terms.queue_max {
            return (Status::Full, 0);
        }
        if !self.charge(ask.address) {
            return (Status::Address, 0);
        }
        self.state.observed.seq += 1;
        self.state.joined += 1;
        let place = self.state.observed.seq;
        let retained = i64::try_from(place).unwrap_or(i64::MAX);
        self.model.places.insert(ask.visitor, retained);
        (Status::Waiting, place)
    }

    fn charge(&mut self, address: Option<[u8; 8]>) -> bool {
        let Some(address) = address.filter(|_| self.terms.address_max > 0) else {
            return true;
        };
        let window = self.now_ms / self.terms.address_ms;
        let entry = self.model.addresses.entry(address).or_default();
        if entry.0 != window {
            *entry = (window, 0);
        }
        let is_free = entry.1 < self.terms.address_max;
        entry.1 += u64::from(is_free);
        is_free
    }

    /// A called visitor enters, which uses up the position.
    fn take_up(&mut self, visitor: Visitor, order: u64) {
        let used = i64::try_from(order).unwrap_or(i64::MAX);
        self.model.places.insert(visitor, -used);
        self.model.holds.remove(&visitor);
        let has_lapsed = order <= self.state.lapsed;
        let mut windows = self.state.windows.iter_mut();
        if let Some(window) = windows.find(|window| !has_lapsed && window.to >= order) {
            window.remaining = window.remaining.saturating_sub(1);
        }
    }

    fn count_entry(&mut self) {
        self.state.entered += 1;
        *self.model.entries.entry(self.now_ms / SLOT_MS).or_default() += 1;
    }

    fn enter(&mut self, ask: &VisitorRequest, order: u64) {
        let until_ms = self.now_ms + self.terms.session_ms + GRACE_MS;
        self.model.inside.insert(ask.visitor, until_ms);
        self.take_up(ask.visitor, order);
        self.count_entry();
        let from_ms = ask.joined_ms.max(self.state.observed.drew);
        let class = wait_class(self.now_ms.saturating_sub(from_ms));
        if let Some(count) = self.model.waits.get_mut(class) {
            *count += 1;
        }
    }

    fn end(mut self) -> Snapshot {
        self.raise_floor();
        let snapshot = Snapshot {
            observed: RoomState {
                inside: self.inside(),
                called: self.called(),
                ..self.state.observed
            },
            is_settling: self.is_settling(),
            is_lobby: self.is_lobby(),
            setting: self.setting,
            opening: self.state.opening,
            joined: self.state.joined,
            entered: self.state.entered,
            missed: self.state.missed,
            now_ms: self.now_ms,
        };
        self.model.state = Some(self.state);
        snapshot
    }
}
