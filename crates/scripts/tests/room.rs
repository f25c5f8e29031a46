//! Compares waiting rooms in Redis with a model: the same steps on both, every reply compared. Also checks invariants
//! of all histories.

mod costs;
mod holds;
mod outages;
mod random;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicU32, Ordering};

use crate::support::{Redis, Server};
use weir_base::resp::Value;
use weir_room::draw::Seed;
use weir_room::model::{self, Model};
use weir_room::redis::keys::RoomKeys;
use weir_room::redis::room::CallContext;
use weir_room::redis::room_ask::VisitorRequest;
use weir_room::redis::{room_ask, room_set, room_tick};
use weir_room::state::{SETTLE_MS, Status};
use weir_room::{Mode, Renewal, RoomName, RoomState, Setting, Snapshot, Terms, Visitor};

const NOW_MS: u64 = 1_700_000_000_000;
const SESSION_MS: u64 = 20_000;
const CLAIM_MS: u64 = 6_400;
const GATEWAYS: usize = 3;

fn terms() -> Terms {
    Terms {
        session_ms: SESSION_MS,
        claim_ms: CLAIM_MS,
        queue_max: 40,
        address_max: 12,
        address_ms: 30_000,
        life_ms: 86_400_000,
    }
}

fn visitor(number: u8) -> Visitor {
    Visitor::of_user(&[number])
}

fn name() -> RoomName {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    RoomName::new(&format!("r{}", NEXT.fetch_add(1, Ordering::Relaxed))).unwrap()
}

/// One room in Redis and in the model, with gateways and visitors' tokens.
struct Pair<'a> {
    redis: &'a mut Redis,
    keys: RoomKeys,
    model: Model,
    now_ms: u64,
    terms: Terms,
    /// The settings in the gateways' configuration.
    setting: Setting,
    observed: [RoomState; GATEWAYS],
    passes: BTreeMap<u8, u64>,
    /// The delay of Redis' replies, in milliseconds.
    late_ms: u64,
    last: Snapshot,
}

impl<'a> Pair<'a> {
    fn new(redis: &'a mut Redis, setting: Setting) -> Self {
        let mut pair = Self {
            redis,
            keys: RoomKeys::new("test", &name()),
            model: Model::default(),
            now_ms: NOW_MS,
            terms: terms(),
            setting,
            observed: [RoomState::default(); GATEWAYS],
            passes: BTreeMap::new(),
            late_ms: 0,
            last: Snapshot::default(),
        };
        pair.wait(0);
        pair
    }

    fn wait(&mut self, ms: u64) {
        self.now_ms += ms;
        self.redis.set_clock_us(self.now_ms * 1_000);
    }

    /// The gateway's context of a call: its seed is for the opening that the gateway has read.
    fn call_context(&self, gateway: usize) -> CallContext {
        let mut observed = self.observed[gateway];
        let setting = match self.last.setting.version {
            0 => self.setting,
            _ => self.last.setting,
        };
        let opening = observed.next_opening(setting.opens_at_ms).unwrap_or(0);
        if opening > observed.drew && observed.seed_of != opening {
            observed.seed_of = opening;
            observed.seed = Some(Seed::from_bytes([7; 32]));
        }
        CallContext {
            terms: self.terms,
            setting: self.setting,
            observed,
            asked_ms: self.now_ms - self.late_ms,
        }
    }

    fn apply_snapshot(&mut self, gateway: usize, snapshot: Snapshot) -> Snapshot {
        self.observed[gateway].apply_latest(&snapshot.observed);
        self.last = snapshot;
        snapshot
    }

    fn tick(&mut self, gateway: usize, renewed: &[u8]) -> Snapshot {
        let renewal = |number: &u8| Renewal::from(visitor(*number));
        self.tick_with(gateway, &renewed.iter().map(renewal).collect::<Vec<_>>())
    }

    fn tick_with(&mut self, gateway: usize, renewed: &[Renewal]) -> Snapshot {
        let call_context = self.call_context(gateway);
        let reply = self
            .redis
            .run(&room_tick::call(&self.keys, &call_context, renewed));
        let parsed = room_tick::parse(&reply).unwrap_or_else(|_| panic!("{reply:?}"));
        let expected = self
            .model
            .tick(self.now_ms, &of_model(&call_context), renewed);
        assert_eq!(parsed, expected);
        self.apply_snapshot(gateway, parsed)
    }

    fn entered_alone(&mut self, gateway: usize, visitors: &[u8]) -> Snapshot {
        let draw = self.observed[gateway].draw();
        let renewal = |number: &u8| {
            let place = self.passes.get(number).copied().unwrap_or(0);
            Renewal {
                visitor: visitor(*number),
                entered_at: Some(draw.as_ref().map_or(place, |draw| draw.order(place))),
            }
        };
        let renewed: Vec<_> = visitors.iter().map(renewal).collect();
        self.tick_with(gateway, &renewed)
    }

    fn ask(&mut self, gateway: usize, visitors: &[(u8, bool)]) -> Vec<(Status, u64)> {
        let draw = self.observed[gateway].draw();
        let ask = |(number, is_lost): &(u8, bool)| {
            let place = match is_lost {
                true => 0,
                false => self.passes.get(number).copied().unwrap_or(0),
            };
            VisitorRequest {
                visitor: visitor(*number),
                place,
                order: draw.as_ref().map_or(place, |draw| draw.order(place)),
                joined_ms: self.now_ms - u64::from(*number) * 100,
                address: (number % 3 > 0).then_some([number % 3; 8]),
            }
        };
        let asks: Vec<VisitorRequest> = visitors.iter().map(ask).collect();
        self.ask_with(gateway, &asks, visitors)
    }

    fn ask_with(
        &mut self,
        gateway: usize,
        asks: &[VisitorRequest],
        visitors: &[(u8, bool)],
    ) -> Vec<(Status, u64)> {
        let mut call_context = self.call_context(gateway);
        // Gateways also learn from tokens.
        let displayed = asks.iter().map(|ask| ask.place).max().unwrap_or(0);
        call_context.observed.seq = call_context.observed.seq.max(displayed);
        let reply = self
            .redis
            .run(&room_ask::call(&self.keys, &call_context, asks));
        let (snapshot, response) =
            room_ask::parse(&reply, asks.len()).unwrap_or_else(|_| panic!("{reply:?}"));
        let same: Vec<_> = asks.iter().map(same).collect();
        let (expected, outcomes) = self.model.ask(self.now_ms, &of_model(&call_context), &same);
        assert_eq!((snapshot, &response), (expected, &outcomes));
        self.apply_snapshot(gateway, snapshot);
        for ((number, _), (status, place)) in visitors.iter().zip(&response) {
            if *place > 0 && matches!(status, Status::Waiting | Status::Inside | Status::Hold) {
                self.passes.insert(*number, *place);
            }
        }
        response
    }

    fn set(&mut self, setting: Setting) {
        let reply = self.redis.run(&room_set::call(&self.keys, &setting));
        assert_eq!(room_set::parse(&reply), Ok(self.model.set(setting)));
    }

    fn lose(&mut self, subject: u8) {
        match subject {
            0 => {
                self.delete("*");
                self.model.lose();
            }
            1 => {
                self.delete("state");
                self.model.lose_state();
            }
            2 => {
                self.delete("inside");
                self.model.lose_inside();
            }
            3 => {
                self.delete("holds");
                self.model.lose_holds();
            }
            _ => {
                self.delete("p:*");
                self.model.lose_places();
            }
        }
    }

    /// Deletes keys of this room.
    fn delete(&mut self, name: &str) {
        let state = String::from_utf8(self.keys.state()).unwrap();
        let pattern = state.replace("state", name);
        let found = self.redis.command(&[b"KEYS", pattern.as_bytes()]);
        let Value::Array(found) = found else {
            panic!("{found:?}")
        };
        for key in found {
            let Value::Bulk(key) = key else {
                panic!("{key:?}")
            };
            self.redis.command(&[b"DEL", &key]);
        }
    }

    /// Advances the time while gateways poll.
    fn idle(&mut self, ms: u64, renewed: &[u8]) -> Snapshot {
        let end_ms = self.now_ms + ms;
        while self.now_ms < end_ms {
            self.wait(1_000.min(end_ms - self.now_ms));
            self.tick(self.now_ms as usize % GATEWAYS, renewed);
        }
        self.last
    }

    /// A room in use: its first two seconds are over.
    fn settled(mut self) -> Self {
        self.tick(0, &[]);
        self.wait(SETTLE_MS);
        for gateway in 0..GATEWAYS {
            self.tick(gateway, &[]);
        }
        self
    }
}

fn of_model(call_context: &CallContext) -> model::CallContext {
    model::CallContext {
        terms: call_context.terms,
        setting: call_context.setting,
        observed: call_context.observed,
        asked_ms: call_context.asked_ms,
    }
}

fn same(ask: &VisitorRequest) -> model::VisitorRequest {
    model::VisitorRequest {
        visitor: ask.visitor,
        place: ask.place,
        order: ask.order,
        joined_ms: ask.joined_ms,
        address: ask.address,
    }
}

fn open(per_minute: u64, active_max: u64) -> Setting {
    Setting {
        per_minute,
        active_max,
        ..Setting::default()
    }
}

/// First come, first served over all gateways, within the limit of active sessions.
#[test]
fn room_admits_in_order_and_never_exceeds_its_capacity() {
    let server = Server::start();
    let mut redis = server.connect();
    let mut pair = Pair::new(&mut redis, open(0, 3)).settled();
    let mut entered = Vec::new();
    for number in 0..10 {
        if pair.ask(usize::from(number) % GATEWAYS, &[(number, false)])[0].0 == Status::Inside {
            entered.push(number);
        }
    }
    assert_eq!(entered, [0, 1, 2], "there was room for three");
    for _ in 0..6 {
        // All visitors send requests in any order; active sessions end.
        pair.wait(SESSION_MS + 5_000);
        pair.tick(0, &[]);
        for number in (3..10)
            .rev()
            .filter(|number| !entered.contains(number))
            .collect::<Vec<_>>()
        {
            let reply = pair.ask(1, &[(number, false)]);
            if reply[0].0 == Status::Inside {
                entered.push(number);
            }
            assert!(pair.last.observed.inside <= 3);
        }
    }
    let mut sorted = entered[3..6].to_vec();
    sorted.sort_unstable();
    assert_eq!(sorted, [3, 4, 5], "{entered:?}");
    assert_eq!(entered.len(), 10);
}

#[test]
fn admission_pace_is_kept_whichever_gateway_ticks() {
    let server = Server::start();
    let mut redis = server.connect();
    let mut pair = Pair::new(&mut redis, open(120, 0)).settled();
    pair.terms.address_max = 0;
    for number in 0..40 {
        pair.ask(0, &[(number, false)]);
    }
    let before = pair.last.observed.head;
    for step in 0..100 {
        pair.wait(100);
        pair.tick(step % GATEWAYS, &[]);
    }
    // Two per second for ten seconds.
    assert_eq!(pair.last.observed.head - before, 20);
}

#[test]
fn unused_position_moves_on_and_double_exchange_is_one_session() {
    let server = Server::start();
    let mut redis = server.connect();
    let mut pair = Pair::new(&mut redis, open(0, 1)).settled();
    let replies: Vec<_> = (0..4)
        .map(|number| pair.ask(0, &[(number, false)])[0])
        .collect();
    assert_eq!(replies[0], (Status::Inside, 1));
    assert_eq!(replies[1], (Status::Waiting, 2));
    pair.wait(SESSION_MS + 5_000);
    assert_eq!(pair.tick(0, &[]).observed.head, 2, "the first one has left");
    assert_eq!(
        pair.ask(1, &[(2, false)])[0].0,
        Status::Waiting,
        "the second one is called"
    );
    let snapshot = pair.idle(CLAIM_MS + CLAIM_MS / 32, &[]);
    assert_eq!(
        (snapshot.observed.head, snapshot.missed),
        (3, 1),
        "it has not come"
    );
    let replies = pair.ask(2, &[(2, false), (2, false)]);
    assert_eq!(replies, [(Status::Inside, 3), (Status::Inside, 3)]);
    assert_eq!(pair.last.observed.inside, 1);
    // A late visitor moves to the end.
    assert_eq!(pair.ask(0, &[(1, false)]), [(Status::Waiting, 5)]);
}

#[test]
fn pass_is_valid_for_one_session() {
    let server = Server::start();
    let mut redis = server.connect();
    let mut pair = Pair::new(&mut redis, open(0, 2)).settled();
    pair.terms.claim_ms = 640_000;
    assert_eq!(pair.ask(0, &[(0, false)]), [(Status::Inside, 1)]);
    pair.wait(SESSION_MS + 5_000);
    let reply = pair.ask(1, &[(0, false)]);
    assert_eq!(
        reply,
        [(Status::Inside, 2)],
        "its session is over: it is a newcomer"
    );
}

#[test]
fn positions_are_restored_after_loss_and_none_is_given_twice() {
    let server = Server::start();
    let mut redis = server.connect();
    let mut pair = Pair::new(&mut redis, open(60, 0)).settled();
    pair.terms.address_max = 0;
    let mut input = BTreeSet::new();
    for number in 0..20 {
        let (_, place) = pair.ask(usize::from(number) % GATEWAYS, &[(number, false)])[0];
        assert!(input.insert(place), "{place} twice");
    }
    let head = pair.last.observed.head;
    // Only one gateway has seen the last position. Redis loses everything, and a gateway with older state calls first.
    pair.lose(0);
    pair.observed[0] = RoomState::default();
    assert_eq!(pair.ask(0, &[(100, false)]), [(Status::Settling, 0)]);
    for gateway in 0..GATEWAYS {
        pair.tick(gateway, &[]);
    }
    assert_eq!(pair.last.observed.head, head);
    pair.wait(SETTLE_MS);
    let (status, place) = pair.ask(0, &[(100, false)])[0];
    assert_eq!(status, Status::Waiting);
    assert!(input.insert(place), "{place} twice");
    // A position that was called before the loss can still be claimed.
    pair.wait(1_000);
    let head = pair.tick(1, &[]).observed.head;
    assert!(head > 1);
    let next = pair.passes.iter().find(|(_, place)| **place == head);
    let next = *next.unwrap().0;
    pair.lose(0);
    pair.tick(1, &[]);
    assert_eq!(pair.ask(1, &[(next, false)])[0].0, Status::Hold);
    pair.wait(SETTLE_MS);
    assert_eq!(pair.ask(1, &[(next, false)])[0].0, Status::Inside);
}

#[test]
fn visitors_inside_still_count_after_redis_data_loss() {
    let server = Server::start();
    let mut redis = server.connect();
    let mut pair = Pair::new(&mut redis, open(0, 4)).settled();
    for number in 0..8 {
        pair.ask(0, &[(number, false)]);
    }
    assert_eq!(pair.tick(0, &[]).observed.inside, 4);
    pair.lose(0);
    pair.tick(0, &[]);
    pair.wait(SETTLE_MS);
    let snapshot = pair.tick(0, &[0, 1, 2]);
    assert_eq!(
        (snapshot.observed.inside, snapshot.observed.head),
        (4, 4),
        "three and a ghost"
    );
    // The fourth has left without notice, so the session counts until it expires.
    pair.wait(SESSION_MS / 2);
    pair.tick(0, &[0, 1, 2]);
    pair.wait(SESSION_MS / 2 + 5_000 - SETTLE_MS);
    let snapshot = pair.tick(0, &[]);
    assert_eq!((snapshot.observed.inside, snapshot.observed.head), (3, 5));
}

#[test]
fn early_visitors_are_shuffled_and_late_ones_queue_behind() {
    let server = Server::start();
    let mut redis = server.connect();
    let opens_at_ms = NOW_MS + 20_000;
    let setting = Setting {
        opens_at_ms,
        ..open(6_000, 0)
    };
    let mut pair = Pair::new(&mut redis, setting).settled();
    pair.terms.address_max = 0;
    for number in 0..20 {
        assert_eq!(
            pair.ask(0, &[(number, false)])[0],
            (Status::Waiting, u64::from(number) + 1)
        );
    }
    assert!(pair.last.is_lobby && pair.last.observed.head == 0);
    pair.wait(opens_at_ms - pair.now_ms);
    pair.terms.claim_ms = 640_000;
    let snapshot = pair.tick(1, &[]);
    assert_eq!((snapshot.observed.base, snapshot.observed.drawn), (0, 20));
    let draw = snapshot.observed.draw().unwrap();
    pair.tick(0, &[]);
    assert_eq!(pair.ask(0, &[(50, false)])[0].1, 21);
    // They enter in the order of the draw.
    for order in 1..=snapshot.observed.head {
        let number = u8::try_from(draw.place(order) - 1).unwrap();
        assert_eq!(
            pair.ask(1, &[(number, false)])[0].0,
            Status::Inside,
            "{number}"
        );
    }
    // After a loss the draw is the same.
    pair.lose(0);
    for gateway in 0..GATEWAYS {
        pair.tick(gateway, &[]);
    }
    let again = pair.last.observed;
    assert_eq!(
        (again.base, again.drawn, again.seed),
        (0, 20, snapshot.observed.seed)
    );
}

#[test]
fn earlier_opening_draws_at_once_and_only_once() {
    let server = Server::start();
    let mut redis = server.connect();
    let opens_in = |version, ms| Setting {
        version,
        opens_at_ms: NOW_MS + ms,
        ..Setting::default()
    };
    let mut pair = Pair::new(&mut redis, opens_in(0, 3_600_000)).settled();
    let visitors: Vec<_> = (0..6).map(|number| (number, false)).collect();
    pair.ask(0, &visitors);
    pair.set(opens_in(1, 5_000));
    for gateway in [0, 1, 0] {
        assert!(pair.tick(gateway, &[]).is_lobby);
    }
    pair.wait(5_000);
    let drawn = pair.tick(1, &[]);
    assert!(!drawn.is_lobby);
    assert_eq!(
        (drawn.observed.drew, drawn.observed.drawn),
        (NOW_MS + 5_000, 6)
    );
    pair.idle(2 * terms().claim_ms, &[]);
    // An opening in the past has no effect.
    pair.set(opens_in(2, 1_000));
    pair.ask(0, &[(7, false), (8, false)]);
    for gateway in [0, 1, 0] {
        let reply = pair.tick(gateway, &[]);
        assert_eq!((reply.is_lobby, reply.observed.drawn), (false, 6));
    }
}

#[test]
fn one_address_takes_no_more_places_than_allowed() {
    let server = Server::start();
    let mut redis = server.connect();
    let mut pair = Pair::new(&mut redis, open(1, 0)).settled();
    let ask = |number: u8| VisitorRequest {
        visitor: visitor(number),
        place: 0,
        order: 0,
        joined_ms: NOW_MS,
        address: Some([9; 8]),
    };
    let mut statuses = Vec::new();
    for number in 0..15 {
        statuses.push(pair.ask_with(0, &[ask(number)], &[(number, false)])[0].0);
    }
    assert!(
        statuses[..12]
            .iter()
            .all(|status| *status != Status::Address)
    );
    assert!(
        statuses[12..]
            .iter()
            .all(|status| *status == Status::Address)
    );
    pair.wait(30_000);
    let reply = pair.ask_with(0, &[ask(14)], &[(14, false)]);
    assert_eq!(reply[0].0, Status::Waiting, "in the next window");
}

#[test]
fn older_setting_changes_nothing() {
    let server = Server::start();
    let mut redis = server.connect();
    let mut pair = Pair::new(&mut redis, open(0, 0)).settled();
    let version = |version, mode| Setting {
        version,
        mode,
        ..open(0, 0)
    };
    pair.set(version(2, Mode::Closed));
    pair.set(version(1, Mode::Open));
    assert_eq!(pair.ask(0, &[(1, false)]), [(Status::Closed, 0)]);
    pair.set(version(3, Mode::Paused));
    assert_eq!(pair.ask(0, &[(1, false)]), [(Status::Waiting, 1)]);
    pair.set(version(4, Mode::Draining));
    pair.tick(0, &[]);
    assert_eq!(
        pair.ask(0, &[(1, false), (2, false)]),
        [(Status::Inside, 1), (Status::Closed, 0)]
    );
}
