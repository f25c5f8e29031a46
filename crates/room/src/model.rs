//! What the scripts do, in Rust: `room_state.lua`, `room_tick.lua` and `room_ask.lua` are compared with it on a real Redis.

use alloc::collections::BTreeMap;
use alloc::vec::Vec;

use crate::setting::Setting;
use crate::state::{
    ENTRY_COST, GRACE_MS, RoomState, SETTLE_MS, Snapshot, Status, Terms, WAITS, wait_class,
};
use crate::visitor::Visitor;

/// A visitor who asks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ask {
    /// Who.
    pub visitor: Visitor,
    /// The place in the visitor's pass; 0 for none.
    pub place: u64,
    /// The same, in the order after a draw.
    pub order: u64,
    /// When the visitor came.
    pub joined_ms: u64,
    /// The hash of the address; `None` if addresses do not count.
    pub address: Option<[u8; 8]>,
}

/// Places that were called in one go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Window {
    at_ms: u64,
    /// The last of them.
    to: u64,
    /// How many were not taken up.
    left: u64,
}

/// A room in Redis. All numbers but those of visitors and addresses are in one value.
#[derive(Clone, Debug, Default)]
pub struct Model {
    state: Option<State>,
    setting: Option<Setting>,
    inside: BTreeMap<Visitor, u64>,
    places: BTreeMap<Visitor, i64>,
    addresses: BTreeMap<[u8; 8], (u64, u64)>,
    /// How many entered, by how long they waited.
    pub waits: [u64; WAITS],
}

#[derive(Clone, Debug, Default)]
struct State {
    seen: RoomState,
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
}

/// What a call brings.
#[derive(Clone, Copy, Debug)]
pub struct Brought {
    /// The terms.
    pub terms: Terms,
    /// The setting, for when Redis has none.
    pub setting: Setting,
    /// What the caller knows.
    pub seen: RoomState,
}

/// One call on its way.
struct Turn<'a> {
    model: &'a mut Model,
    state: State,
    terms: Terms,
    setting: Setting,
    now_ms: u64,
}

impl Model {
    /// Redis has lost all of it.
    pub fn lose(&mut self) {
        *self = Self::default();
    }

    /// Redis has lost the room's numbers, and not the others.
    pub fn lose_state(&mut self) {
        self.state = None;
    }

    /// Redis has lost who is inside.
    pub fn lose_inside(&mut self) {
        self.inside.clear();
    }

    /// Redis has lost who has which place.
    pub fn lose_places(&mut self) {
        self.places.clear();
    }

    /// `room_set.lua`. Whether the setting is newer than the one that was there.
    pub fn set(&mut self, setting: Setting) -> bool {
        let is_newer = self.setting.is_none_or(|old| old.version < setting.version);
        if is_newer {
            self.setting = Some(setting);
        }
        is_newer
    }

    /// `room_tick.lua`: time passes, and these visitors inside were there.
    pub fn tick(&mut self, now_ms: u64, brought: &Brought, renewed: &[Visitor]) -> Snapshot {
        let mut turn = Turn::begin(self, now_ms, brought);
        for visitor in renewed {
            turn.renew(*visitor);
        }
        turn.call();
        turn.end()
    }

    /// `room_ask.lua`: these visitors ask for places or entry, in this order.
    pub fn ask(
        &mut self,
        now_ms: u64,
        brought: &Brought,
        asks: &[Ask],
    ) -> (Snapshot, Vec<(Status, u64)>) {
        let mut turn = Turn::begin(self, now_ms, brought);
        let before = turn.state.seen.seq;
        let mut told: Vec<_> = asks.iter().map(|ask| turn.ask(ask)).collect();
        turn.call();
        for ((status, place), ask) in told.iter_mut().zip(asks) {
            let is_new = *status == Status::Waiting && *place > before;
            if is_new && !turn.is_lobby() && *place <= turn.state.seen.head {
                if !turn.model.inside.contains_key(&ask.visitor) {
                    turn.enter(ask, *place);
                }
                *status = Status::Inside;
            }
        }
        (turn.end(), told)
    }

    /// How many are inside, as far as Redis knows.
    pub fn inside(&self) -> usize {
        self.inside.len()
    }
}

impl<'a> Turn<'a> {
    fn begin(model: &'a mut Model, now_ms: u64, brought: &Brought) -> Self {
        let terms = brought.terms;
        let fresh = || State {
            settles_ms: now_ms + SETTLE_MS,
            credit_ms: now_ms,
            ghosts_ms: now_ms + terms.session_ms + GRACE_MS,
            ..State::default()
        };
        let mut turn = Self {
            state: model.state.take().unwrap_or_else(fresh),
            setting: model.setting.unwrap_or(brought.setting),
            model,
            terms,
            now_ms,
        };
        turn.model.inside.retain(|_, until_ms| *until_ms > now_ms);
        turn.merge(&brought.seen);
        turn.lapse();
        turn.prepare_opening(&brought.seen);
        turn.accrue();
        turn
    }

    fn merge(&mut self, seen: &RoomState) {
        let now_ms = self.now_ms;
        let state = &mut self.state;
        state.seen.floor = state.seen.floor.max(seen.floor);
        if seen.head > state.seen.head {
            state.seen.head = seen.head;
            let (at_ms, to, left) = (now_ms, seen.head, 0);
            state.windows.push(Window { at_ms, to, left });
        }
        state.seen.seq = state.seen.seq.max(seen.seq).max(state.seen.head);
        if seen.drew > state.seen.drew {
            (state.seen.drew, state.seen.base, state.seen.drawn) =
                (seen.drew, seen.base, seen.drawn);
            state.opening = seen.drew;
        }
        if now_ms >= state.ghosts_ms {
            state.ghosts = 0;
        } else if now_ms < state.settles_ms {
            let known = self.model.inside.len() as u64;
            state.ghosts = state.ghosts.max(seen.inside.saturating_sub(known));
        }
    }

    fn window_ms(&self) -> u64 {
        self.terms.claim_ms / 32
    }

    /// Places that were called and not taken up pass on.
    fn lapse(&mut self) {
        let ends_ms = self.terms.claim_ms + self.window_ms();
        let state = &mut self.state;
        let over = |window: &Window| window.at_ms + ends_ms <= self.now_ms;
        let count = state
            .windows
            .iter()
            .take_while(|window| over(window))
            .count();
        for window in state.windows.drain(..count) {
            state.seen.floor = state.seen.floor.max(window.to);
            state.missed += window.left;
        }
    }

    /// A new opening counts when all of the last draw have passed; it draws all that wait. One before the last draw was then.
    fn prepare_opening(&mut self, seen: &RoomState) {
        let state = &mut self.state;
        if let Some(opening) = state.seen.next_opening(self.setting.opens_at_ms) {
            state.opening = opening;
        }
        let has_none = state.opening > 0 && state.seen.seed_of != state.opening;
        if has_none && seen.seed_of == state.opening {
            (state.seen.seed_of, state.seen.seed) = (seen.seed_of, seen.seed);
        }
        let is_due = state.opening > 0
            && state.seen.drew != state.opening
            && state.opening <= self.now_ms
            && state.seen.seed_of == state.opening
            && self.now_ms >= state.settles_ms;
        if is_due {
            state.seen.drew = state.opening;
            (state.seen.base, state.seen.drawn) = (state.seen.head, state.seen.seq);
        }
    }

    fn accrue(&mut self) {
        let state = &mut self.state;
        // No pace needs longer for one entry.
        let elapsed_ms = self.now_ms.saturating_sub(state.credit_ms).min(ENTRY_COST);
        let cap = ENTRY_COST.max(self.setting.per_minute * 2_000);
        state.credit = (state.credit + elapsed_ms * self.setting.per_minute).min(cap);
        state.credit_ms = self.now_ms;
    }

    fn is_settling(&self) -> bool {
        self.now_ms < self.state.settles_ms
    }

    fn is_lobby(&self) -> bool {
        self.state.opening > 0 && self.state.seen.drew != self.state.opening
    }

    fn inside(&self) -> u64 {
        self.model.inside.len() as u64 + self.state.ghosts
    }

    fn called(&self) -> u64 {
        self.state.windows.iter().map(|window| window.left).sum()
    }

    fn renew(&mut self, visitor: Visitor) {
        let until_ms = self.now_ms + self.terms.session_ms + GRACE_MS;
        if self.model.inside.insert(visitor, until_ms).is_none() {
            self.state.ghosts = self.state.ghosts.saturating_sub(1);
        }
    }

    /// Calls whom pace and room allow.
    fn call(&mut self) {
        let is_held = self.is_settling() || self.is_lobby() || !self.setting.mode.calls();
        let mut count = self.state.seen.seq - self.state.seen.head;
        if self.setting.per_minute > 0 {
            count = count.min(self.state.credit / ENTRY_COST);
        }
        if self.setting.active_max > 0 {
            let taken = self.inside() + self.called();
            count = count.min(self.setting.active_max.saturating_sub(taken));
        }
        if is_held || count == 0 {
            return;
        }
        if self.setting.per_minute > 0 {
            self.state.credit -= count * ENTRY_COST;
        }
        self.state.seen.head += count;
        let (now_ms, window_ms, to) = (self.now_ms, self.window_ms(), self.state.seen.head);
        match self.state.windows.last_mut() {
            Some(last) if now_ms < last.at_ms + window_ms => {
                last.to = to;
                last.left += count;
            }
            _ => self.state.windows.push(Window {
                at_ms: now_ms,
                to,
                left: count,
            }),
        }
    }

    fn ask(&mut self, ask: &Ask) -> (Status, u64) {
        let until_ms = self.now_ms + self.terms.session_ms + GRACE_MS;
        if let Some(ends_ms) = self.model.inside.get_mut(&ask.visitor) {
            *ends_ms = until_ms;
            return (Status::Inside, ask.place);
        }
        let known = self.model.places.get(&ask.visitor).copied().unwrap_or(0);
        if ask.place == 0 {
            return self.give(ask, known);
        }
        if ask.order > self.state.seen.head || self.is_lobby() {
            return (Status::Waiting, ask.place);
        }
        let is_used = known < 0 && known.unsigned_abs() > self.state.seen.floor;
        if ask.order <= self.state.seen.floor || is_used {
            return self.give(ask, 0);
        }
        let is_full = self.setting.active_max > 0 && self.inside() >= self.setting.active_max;
        if self.is_settling() || is_full {
            return (Status::Hold, ask.place);
        }
        self.enter(ask, ask.order);
        (Status::Inside, ask.place)
    }

    /// Whether a place may still be called or taken up.
    fn is_open(&self, place: u64) -> bool {
        let RoomState {
            base, drawn, floor, ..
        } = self.state.seen;
        match place > base && place <= drawn {
            true => floor < drawn,
            false => place > floor,
        }
    }

    fn give(&mut self, ask: &Ask, known: i64) -> (Status, u64) {
        let place = u64::try_from(known).unwrap_or(0);
        if place > 0 && self.is_open(place) {
            return (Status::Waiting, place);
        }
        if self.is_settling() {
            return (Status::Settling, 0);
        }
        if !self.setting.mode.takes_newcomers() {
            return (Status::Closed, 0);
        }
        let waiting = self.state.seen.seq - self.state.seen.head;
        if self.terms.queue_max > 0 && waiting >= self.terms.queue_max {
            return (Status::Full, 0);
        }
        if !self.charge(ask.address) {
            return (Status::Address, 0);
        }
        self.state.seen.seq += 1;
        self.state.joined += 1;
        let place = self.state.seen.seq;
        let kept = i64::try_from(place).unwrap_or(i64::MAX);
        self.model.places.insert(ask.visitor, kept);
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

    fn enter(&mut self, ask: &Ask, order: u64) {
        let until_ms = self.now_ms + self.terms.session_ms + GRACE_MS;
        self.model.inside.insert(ask.visitor, until_ms);
        let used = i64::try_from(order).unwrap_or(i64::MAX);
        self.model.places.insert(ask.visitor, -used);
        let mut windows = self.state.windows.iter_mut();
        if let Some(window) = windows.find(|window| window.to >= order) {
            window.left = window.left.saturating_sub(1);
        }
        self.state.entered += 1;
        let from_ms = ask.joined_ms.max(self.state.seen.drew);
        let class = wait_class(self.now_ms.saturating_sub(from_ms));
        if let Some(count) = self.model.waits.get_mut(class) {
            *count += 1;
        }
    }

    fn end(self) -> Snapshot {
        let snapshot = Snapshot {
            seen: RoomState {
                inside: self.inside(),
                ..self.state.seen
            },
            called: self.called(),
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
