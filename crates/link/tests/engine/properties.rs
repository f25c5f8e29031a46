//! With random events in random order, every request is answered once, and nothing is lost or kept forever.

use std::collections::BTreeMap;

use proptest::prelude::*;
use weir_engine::pump::BATCH_MAX;
use weir_engine::{BatchId, StreamId};
use weir_link::record::Link;

use crate::host::{Host, link};

/// Small limits.
const CONFIG: &str = r#"{"redis":{"waiting_max":150,"batches_max":3},
    "breaker":{"min_requests":20,"open_ms":300},
    "origin":{"limit":{"rate":100,"per":"1s","burst":20},"waiting_max":100},
    "cache":{"entries_max":4,"unknown_max":2,"fresh_ms":1000,"unknown_ms":1000},
    "clicks":{"flush_ms":200}}"#;

/// Maximum waiting requests: in the pump, in batches in flight, and for the origin.
const WAITING_MAX: usize = 150 + 3 * BATCH_MAX + 100;

/// Links by number. The first two are in Redis. The third has a click limit. Only the origin has the fourth. The others
/// do not exist until they are created.
const LINKS: usize = 7;

#[derive(Clone, Debug)]
enum Step {
    Request { link: usize, is_head: bool },
    Crowd { link: usize, count: usize },
    Close(usize),
    Advance(u64),
    Turn,
    RunCall(usize),
    Reply(usize),
    Lose(usize),
    RunLate,
    RunLookup(usize),
    Respond(usize),
    Fail(usize),
    Edit(usize),
    LoseChanges,
    Connect(bool),
    Ready(bool),
    Origin(bool),
}

fn step() -> impl Strategy<Value = Step> {
    let nth = || 0..10_000_usize;
    prop_oneof![
        8 => (0..LINKS, any::<bool>()).prop_map(|(link, is_head)| Step::Request { link, is_head }),
        1 => (0..LINKS, 1..100_usize).prop_map(|(link, count)| Step::Crowd { link, count }),
        4 => nth().prop_map(Step::Close),
        3 => (0..300_u64).prop_map(Step::Advance),
        8 => Just(Step::Turn),
        4 => nth().prop_map(Step::RunCall),
        8 => nth().prop_map(Step::Reply),
        2 => nth().prop_map(Step::Lose),
        1 => Just(Step::RunLate),
        2 => nth().prop_map(Step::RunLookup),
        4 => nth().prop_map(Step::Respond),
        1 => nth().prop_map(Step::Fail),
        2 => (0..LINKS).prop_map(Step::Edit),
        1 => Just(Step::LoseChanges),
        1 => prop::bool::weighted(0.8).prop_map(Step::Connect),
        1 => prop::bool::weighted(0.8).prop_map(Step::Ready),
        1 => prop::bool::weighted(0.8).prop_map(Step::Origin),
    ]
}

/// A host, and the invariants of its responses.
struct World {
    host: Host,
    /// The version of each link, from 1, as its target contains it; 0 if it does not exist.
    versions: [u32; LINKS],
    /// The versions when Redis ran a poll.
    polled: BTreeMap<BatchId, [u32; LINKS]>,
    /// The versions that the last poll has reported.
    reported: [u32; LINKS],
    /// Clicks on the link with a click limit.
    counted: Vec<StreamId>,
}

impl World {
    fn new() -> Self {
        let mut world = Self {
            host: Host::with(CONFIG),
            versions: [0; LINKS],
            polled: BTreeMap::new(),
            reported: [0; LINKS],
            counted: vec![],
        };
        for number in 0..3 {
            world.versions[number] = 1;
            let record = world.record(number);
            world.host.redis.records.insert(id(number), record);
        }
        world.versions[3] = 1;
        let record = world.record(3);
        world.host.cold.insert(id(3), record);
        world.host.redis.tell_of("s/another");
        world.host.advance(250);
        world
    }

    fn record(&self, number: usize) -> Link {
        let version = self.versions[number];
        Link {
            max_clicks: if number == 2 { 3 } else { 0 },
            ..link(&format!("https://{number}.example/{version}"))
        }
    }

    fn take(&mut self, step: &Step) {
        match *step {
            Step::Request { link, is_head } => self.request(link, is_head),
            Step::Crowd { link, count } => (0..count).for_each(|_| self.request(link, false)),
            Step::Close(number) => {
                if let Some(stream) = nth(self.host.open(), number) {
                    self.host.close(stream);
                }
            }
            Step::Advance(ms) => self.host.now_ms += ms,
            Step::Turn => self.host.tick(),
            Step::RunCall(number) => {
                if let Some(batch) = nth(self.host.calls.keys().copied(), number) {
                    self.run_call(batch);
                }
            }
            Step::Reply(number) => {
                if let Some(batch) = nth(self.host.calls.keys().copied(), number) {
                    self.reply(batch);
                }
            }
            Step::Lose(number) => {
                if let Some(batch) = nth(self.host.calls.keys().copied(), number) {
                    self.polled.remove(&batch);
                    // Redis runs it later, unless it already has.
                    self.host.lose_unrun(batch);
                }
            }
            Step::RunLate => self.host.run_late(),
            Step::RunLookup(number) => {
                if let Some(fetch) = nth(self.host.lookups.keys().copied(), number) {
                    self.host.run_lookup(fetch);
                }
            }
            Step::Respond(number) => {
                if let Some(fetch) = nth(self.host.lookups.keys().copied(), number) {
                    self.host.respond(fetch);
                }
            }
            Step::Fail(number) => {
                if let Some(fetch) = nth(self.host.lookups.keys().copied(), number) {
                    self.host.fail(fetch);
                }
            }
            Step::Edit(number) => {
                self.versions[number] += 1;
                let record = self.record(number);
                self.host.redis.edit(&id(number), record);
            }
            Step::LoseChanges => self.lose_changes(),
            Step::Connect(is_connected) => self.host.is_connected = is_connected,
            Step::Ready(is_ready) => self.host.is_ready = is_ready,
            Step::Origin(has_origin) => self.host.has_origin = has_origin,
        }
        assert!(self.host.engine.waiting() <= WAITING_MAX);
    }

    /// Redis loses the stream of changes. The next entry is added at once, because two empty streams look alike.
    fn lose_changes(&mut self) {
        self.host.redis.changes.clear();
        self.host.redis.tell_of("s/another");
    }

    fn request(&mut self, number: usize, is_head: bool) {
        let method = if is_head { "HEAD" } else { "GET" };
        let stale = self.host.metric("found_total.place.stale");
        let stream = self.host.request(method, &format!("/link{number}"), &[]);
        if number == 2 && !is_head {
            self.counted.push(stream);
        }
        // An answer from the cache is never older than the last poll's report, unless Redis is down.
        let is_stale = self.host.metric("found_total.place.stale") > stale;
        let version = match self.host.status(stream) {
            302 if !is_stale => version_of(&self.host.location(stream)),
            404 => 0,
            _ => return,
        };
        let reply = self.reported[number];
        assert!(
            version >= reply,
            "{version} of link {number}, told of {reply}"
        );
    }

    fn run_call(&mut self, batch: BatchId) {
        if self.host.is_poll(batch) {
            self.polled.entry(batch).or_insert(self.versions);
        }
        self.host.run_call(batch);
    }

    fn reply(&mut self, batch: BatchId) {
        self.run_call(batch);
        // The poll takes effect when its reply arrives.
        let response = self.polled.remove(&batch);
        self.host.reply(batch);
        self.reported = response.unwrap_or(self.reported);
    }

    /// Ends everything in flight, some of it without a reply.
    fn end(&mut self) {
        self.host.is_connected = true;
        self.host.has_origin = true;
        for _ in 0..25 {
            self.host.advance(100);
        }
        self.host.run_late();
        for _ in 0..25 {
            self.host.advance(100);
        }
        assert!(self.host.calls.is_empty() && self.host.lookups.is_empty());
    }

    fn check(&mut self) {
        let host = &mut self.host;
        assert_eq!(host.engine.waiting(), 0);
        let waiting: Vec<_> = host
            .open()
            .filter(|stream| host.status(*stream) == 0)
            .collect();
        assert!(waiting.is_empty(), "nobody has answered {waiting:?}");
        // Every used click has redirected a client, within the limit.
        let statuses = self.counted.iter().map(|stream| host.status(*stream));
        let admitted = statuses.filter(|status| *status == 302).count() as u64;
        let used = host.redis.used.get(&id(2)).copied().unwrap_or_default();
        assert_eq!(used, admitted);
        assert!(admitted <= 3);
        let counted = host.metric("clicks_total.outcome.counted");
        assert_eq!(counted, host.gets_redirected());
        assert_eq!(
            host.clicks() + host.metric("clicks_total.outcome.dropped"),
            counted
        );
        assert_eq!(host.clicks(), host.metric("clicks_total.outcome.sent"));
        let answered: u64 = ["redirect", "gone", "unknown", "overloaded", "unavailable"]
            .map(|kind| host.metric(&format!("answers_total.answer.{kind}")))
            .iter()
            .sum();
        assert_eq!(answered, host.answered());
    }
}

fn id(number: usize) -> String {
    format!("s/link{number}")
}

fn version_of(location: &str) -> u32 {
    location.rsplit('/').next().unwrap().parse().unwrap()
}

fn nth<T>(all: impl Iterator<Item = T>, number: usize) -> Option<T> {
    let mut all: Vec<T> = all.collect();
    let count = all.len();
    (count > 0).then(|| all.swap_remove(number % count))
}

proptest! {
    #[test]
    fn each_request_is_answered_once_and_each_click_counted_once(
        steps in prop::collection::vec(step(), 1..200),
    ) {
        let mut world = World::new();
        for step in &steps {
            world.take(step);
        }
        world.end();
        world.check();
    }

    #[test]
    fn state_of_disconnected_clients_is_dropped(steps in prop::collection::vec(step(), 1..200)) {
        let mut world = World::new();
        for step in &steps {
            world.take(step);
        }
        let open: Vec<_> = world.host.open().collect();
        open.into_iter().for_each(|stream| world.host.close(stream));
        prop_assert_eq!(world.host.engine.waiting(), 0);
        // Later replies for them are answered to no stream: the host would refuse it.
        world.end();
        world.check();
    }
}
