//! Compares short links in Redis with a model and with an object of an edge: the same histories on all, every reply
//! compared.
//!
//! Redis' clock cannot be set. Lifetimes are therefore days, tests advance by whole hours, and rounding removes the
//! test's own seconds.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU32, Ordering};

use crate::support::{Redis, Server};
use proptest::prelude::*;
use proptest::test_runner::{Config, TestRunner};
use weir_base::resp::Value;
use weir_edge::shard::LinkCommand;
use weir_link::click::{BatchId, ClickId, Row, decode, encode};
use weir_link::code::LinkId;
use weir_link::record::Link;
use weir_link::redis::keys::{LinkKeys, link_clicks};
use weir_link::redis::link_read::{MARK_MS, Purpose, Read};
use weir_link::redis::{link_back, link_clicks, link_read};
use weir_scripts::Call;

const HOUR_MS: u64 = 3_600_000;
/// Not a whole number of hours in a lifetime of days: a test's milliseconds must not change what is renewed.
const RENEW_PERMILLE: u32 = 101;

/// Keys that no other test uses.
fn new_keys() -> LinkKeys {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    LinkKeys::new("links", &format!("s/code-{number}").parse().unwrap())
}

/// A link in the model. Times are in hours.
#[derive(Clone, Debug)]
struct Model {
    link: Link,
    remaining: Option<u64>,
    used: u64,
    used_left: Option<u64>,
    marks: BTreeMap<ClickId, ClickMark>,
}

/// The state of a click.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ClickMark {
    /// It was used, with this number of clicks left before it.
    Used(u64),
    /// It was returned.
    Back,
}

/// A click ID.
fn click(sequence: u64) -> ClickId {
    ClickId {
        counter: 1,
        sequence,
    }
}

impl Model {
    fn new(link: Link) -> Self {
        Self {
            remaining: (link.life_ms > 0).then_some(link.life_ms / HOUR_MS),
            link,
            used: 0,
            used_left: None,
            marks: BTreeMap::new(),
        }
    }

    fn read(&mut self, purpose: Purpose) -> Read {
        let counts = !self.link.is_disabled;
        let max = if counts { self.link.max_clicks } else { 0 };
        let life = if counts {
            self.link.life_ms / HOUR_MS
        } else {
            0
        };
        let mut clicks_left = (max > 0).then(|| max.saturating_sub(self.used));
        let click = purpose.click().filter(|_| max > 0);
        let mark = click.and_then(|click| self.marks.get(&click).copied());
        if let Some(ClickMark::Used(remaining)) = mark {
            clicks_left = Some(remaining);
        }
        let is_used_up = clicks_left == Some(0);
        let removed = life.saturating_sub(self.remaining.unwrap_or(0));
        if purpose != Purpose::Look
            && life > 0
            && !is_used_up
            && removed * 1_000 > life * u64::from(RENEW_PERMILLE)
        {
            self.remaining = Some(life);
            self.used_left = (self.used > 0).then_some(life);
        }
        if let (Some(click), None, Some(remaining)) = (click, mark, clicks_left)
            && remaining > 0
        {
            self.used += 1;
            self.used_left = self.remaining;
            self.marks.insert(click, ClickMark::Used(remaining));
        }
        Read {
            record: self.link.encode(),
            left_ms: self.remaining.map(|hours| hours * HOUR_MS),
            clicks_left,
        }
    }

    fn give_back(&mut self, click: ClickId) -> bool {
        let was_used = matches!(
            self.marks.insert(click, ClickMark::Back),
            Some(ClickMark::Used(_))
        );
        if was_used {
            self.used = self.used.saturating_sub(1);
        }
        was_used
    }
}

/// The same link in Redis, in the model and in an object.
struct Pair<'a> {
    redis: &'a mut Redis,
    keys: LinkKeys,
    model: Option<Model>,
    object: Object,
}

/// A link in an object. Its clock can be set.
struct Object {
    key: Vec<u8>,
    link: weir_edge::shard::Link,
    now_ms: u64,
}

impl Object {
    fn new(keys: &LinkKeys) -> Self {
        Self {
            key: keys.record(),
            link: weir_edge::shard::Link::default(),
            now_ms: 1_700_000_000_000,
        }
    }

    fn command(&mut self, words: &[&[u8]]) -> Value {
        let commands = [LinkCommand::from_redis(words, &self.key).unwrap()];
        let before = self.link.clone();
        let done = self.link.run(&commands, self.now_ms);
        // A command without a change is not logged.
        if !done.is_change {
            let mut again = before;
            again.run(&commands, self.now_ms);
            assert_eq!(again, self.link);
        }
        weir_base::resp::decode(&done.replies).unwrap().0
    }

    /// Runs a call. Markers outlive the test: those in Redis expire by its own clock.
    fn run(&mut self, call: &Call) -> Value {
        let (count, retained) = (call.keys.len().to_string(), "9000000000000000");
        let mut words: Vec<&[u8]> = vec![b"EVAL", call.script.source.as_bytes(), count.as_bytes()];
        let mark = MARK_MS.to_string();
        words.extend(call.words().map(|word| match word == mark.as_bytes() {
            true => retained.as_bytes(),
            false => word,
        }));
        self.command(&words)
    }
}

#[derive(Clone, Debug)]
enum Step {
    Put(Box<Link>),
    Read(Purpose),
    Back(ClickId),
    Pass { hours: u64 },
}

/// In whole hours: a test takes much less than half an hour.
fn rounded(left_ms: u64) -> u64 {
    (left_ms + HOUR_MS / 2) / HOUR_MS * HOUR_MS
}

impl Pair<'_> {
    fn put(&mut self, link: &Link) {
        let life_ms = link.life_ms.to_string();
        let record = link.encode();
        let mut command = vec![b"SET".to_vec(), self.keys.record(), record];
        if link.life_ms > 0 {
            command.extend([b"PX".to_vec(), life_ms.into_bytes()]);
        }
        let command: Vec<&[u8]> = command.iter().map(Vec::as_slice).collect();
        self.redis.command(&command);
        let now_ms = self.object.now_ms;
        self.object = Object {
            now_ms,
            ..Object::new(&self.keys)
        };
        self.object.command(&command);
        self.redis.command(&[b"DEL", &self.keys.clicks()]);
        for number in 0..8 {
            self.redis
                .command(&[b"DEL", &self.keys.mark(click(number))]);
        }
        self.model = Some(Model::new(link.clone()));
    }

    fn read(&mut self, purpose: Purpose) {
        let call = link_read::call(&self.keys, RENEW_PERMILLE, purpose);
        let read = |reply: &Value| {
            let read = link_read::parse(reply).unwrap();
            read.map(|read| Read {
                left_ms: read.left_ms.map(rounded),
                ..read
            })
        };
        let expected = self.model.as_mut().map(|model| model.read(purpose));
        assert_eq!(read(&self.redis.run(&call)), expected);
        assert_eq!(read(&self.object.run(&call)), expected, "in the object");
        self.check_clicks();
    }

    fn give_back(&mut self, click: ClickId) {
        let call = link_back::call(&self.keys, click);
        let was_used = link_back::parse(&self.redis.run(&call)).unwrap();
        let in_object = link_back::parse(&self.object.run(&call)).unwrap();
        assert_eq!(in_object, was_used, "in the object");
        let marked = self.model.as_mut().map(|model| model.give_back(click));
        // Redis still has the markers of an expired link.
        assert!(marked.is_none_or(|expected| was_used == expected));
        self.check_clicks();
    }

    /// The counter expires with its link.
    fn check_clicks(&mut self) {
        let key = self.keys.clicks();
        let used = self.redis.command(&[b"GET", &key]);
        let remaining = match self.redis.command(&[b"PTTL", &key]) {
            Value::Integer(remaining) if remaining >= 0 => {
                Some(rounded(remaining as u64) / HOUR_MS)
            }
            _ => None,
        };
        let expected = self.model.as_ref().filter(|model| model.used > 0);
        let text = |model: &Model| Value::Bulk(model.used.to_string().into_bytes());
        assert_eq!(used, expected.map_or(Value::Null, text));
        assert_eq!(self.object.command(&[b"GET", &key]), used, "in the object");
        assert_eq!(remaining, expected.and_then(|model| model.used_left));
    }

    /// Advances the time by shortening each key's lifetime.
    fn pass(&mut self, hours: u64) {
        for key in [self.keys.record(), self.keys.clicks()] {
            let Value::Integer(remaining) = self.redis.command(&[b"PTTL", &key]) else {
                panic!("no number");
            };
            if remaining >= 0 {
                let remaining = remaining - (hours * HOUR_MS) as i64;
                let remaining = remaining.max(0).to_string();
                self.redis
                    .command(&[b"PEXPIRE", &key, remaining.as_bytes()]);
            }
        }
        self.object.now_ms += hours * HOUR_MS;
        let Some(model) = &mut self.model else { return };
        let pass =
            |remaining: Option<u64>| remaining.map(|remaining| remaining.saturating_sub(hours));
        model.remaining = pass(model.remaining);
        model.used_left = pass(model.used_left);
        if model.used_left == Some(0) {
            model.used = 0;
        }
        if model.remaining == Some(0) {
            self.model = None;
        }
    }

    fn step(&mut self, step: &Step) {
        match step {
            Step::Put(link) => self.put(link),
            Step::Read(purpose) => self.read(*purpose),
            Step::Back(click) => self.give_back(*click),
            Step::Pass { hours } => self.pass(*hours),
        }
    }
}

fn link() -> impl Strategy<Value = Link> {
    let days = prop::option::of(1_u64..30);
    (days, 0_u64..4, any::<bool>()).prop_map(|(days, max_clicks, is_disabled)| Link {
        life_ms: days.map_or(0, |days| days * 24 * HOUR_MS),
        max_clicks,
        is_disabled,
        ..Link::to("https://t.example/")
    })
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        1 => link().prop_map(|link| Step::Put(Box::new(link))),
        2 => prop_oneof![Just(Purpose::Look), Just(Purpose::Renew)].prop_map(Step::Read),
        4 => (0_u64..8).prop_map(|number| Step::Read(Purpose::Click(click(number)))),
        2 => (0_u64..8).prop_map(|number| Step::Back(click(number))),
        3 => (1_u64..100).prop_map(|hours| Step::Pass { hours }),
    ]
}

#[test]
fn link_reads_renewals_and_clicks_match_the_model() {
    let server = Server::start();
    let redis = std::cell::RefCell::new(server.connect());
    let mut runner = TestRunner::new(Config::with_cases(300));
    let histories = prop::collection::vec(step(), 0..30);
    let run = |steps: Vec<Step>| {
        let keys = new_keys();
        let mut pair = Pair {
            redis: &mut redis.borrow_mut(),
            object: Object::new(&keys),
            keys,
            model: None,
        };
        steps.iter().for_each(|step| pair.step(step));
        Ok(())
    };
    runner.run(&histories, run).unwrap();
}

#[test]
fn thousand_concurrent_clicks_use_exactly_the_click_limit() {
    static NEXT: AtomicU32 = AtomicU32::new(0);
    let server = Server::start();
    let keys = new_keys();
    let link = Link {
        max_clicks: 300,
        ..Link::to("https://t.example/")
    };
    let record = link.encode();
    server.connect().command(&[b"SET", &keys.record(), &record]);
    let admitted: usize = std::thread::scope(|scope| {
        let clicks = || {
            let mut redis = server.connect();
            let read = |_| {
                let purpose = Purpose::Click(click(NEXT.fetch_add(1, Ordering::Relaxed).into()));
                let call = link_read::call(&keys, RENEW_PERMILLE, purpose);
                link_read::parse(&redis.run(&call)).unwrap().unwrap()
            };
            let remaining = (0..100).map(read).map(|read| read.clicks_left.unwrap());
            remaining.filter(|remaining| *remaining > 0).count()
        };
        let threads: Vec<_> = (0..10).map(|_| scope.spawn(clicks)).collect();
        threads
            .into_iter()
            .map(|thread| thread.join().unwrap())
            .sum()
    });
    assert_eq!(admitted, 300);
}

#[test]
fn click_is_charged_once_per_read_and_not_after_its_return() {
    let server = Server::start();
    let mut redis = server.connect();
    let keys = new_keys();
    let once = Link {
        max_clicks: 1,
        ..Link::to("https://t.example/")
    };
    redis.command(&[b"SET", &keys.record(), &once.encode()]);
    let remaining = |redis: &mut Redis, number| {
        let call = link_read::call(&keys, RENEW_PERMILLE, Purpose::Click(click(number)));
        let read = link_read::parse(&redis.run(&call)).unwrap().unwrap();
        read.clicks_left.unwrap()
    };
    let back = |redis: &mut Redis, number| {
        let call = link_back::call(&keys, click(number));
        link_back::parse(&redis.run(&call)).unwrap()
    };
    // The first reply is lost, and the click is read again.
    assert_eq!([remaining(&mut redis, 1), remaining(&mut redis, 1)], [1, 1]);
    assert_eq!(remaining(&mut redis, 2), 0);
    // The click was not redirected.
    assert_eq!([back(&mut redis, 1), back(&mut redis, 1)], [true, false]);
    // A delayed read of it uses none.
    assert_eq!(remaining(&mut redis, 1), 1);
    assert_eq!([remaining(&mut redis, 3), remaining(&mut redis, 4)], [1, 0]);
    // A click that is returned before it arrives uses none either.
    assert!(!back(&mut redis, 5));
    assert!(back(&mut redis, 3));
    assert_eq!(remaining(&mut redis, 5), 1);
    assert_eq!([remaining(&mut redis, 6), remaining(&mut redis, 7)], [1, 0]);
}

#[test]
fn malformed_record_is_returned_verbatim_and_unchanged() {
    let server = Server::start();
    let mut redis = server.connect();
    for bad in [
        &b""[..],
        b"x",
        b"1 {}",
        b"-1 1 {}",
        b"1.5 1 {}",
        b"\xff\x00",
    ] {
        let keys = new_keys();
        redis.command(&[b"SET", &keys.record(), bad]);
        let call = link_read::call(&keys, RENEW_PERMILLE, Purpose::Click(click(0)));
        let read = link_read::parse(&redis.run(&call)).unwrap().unwrap();
        assert_eq!(
            (read.record.as_slice(), read.left_ms, read.clicks_left),
            (bad, None, None)
        );
        assert_eq!(
            redis.command(&[b"EXISTS", &keys.clicks()]),
            Value::Integer(0)
        );
    }
}

#[test]
fn maximum_link_numbers_are_accepted() {
    let server = Server::start();
    let (mut redis, keys) = (server.connect(), new_keys());
    let link = Link {
        life_ms: u64::MAX,
        max_clicks: u64::MAX,
        ..Link::to("https://t.example/")
    };
    redis.command(&[b"SET", &keys.record(), &link.encode()]);
    let call = link_read::call(&keys, RENEW_PERMILLE, Purpose::Click(click(0)));
    let read = link_read::parse(&redis.run(&call)).unwrap().unwrap();
    assert_eq!(Link::decode(&read.record), Ok(link));
    assert!(read.clicks_left.unwrap() > 0);
}

#[test]
fn click_batch_is_appended_to_the_stream() {
    let server = Server::start();
    let mut redis = server.connect();
    let row = Row {
        link: "s/aZ3k9Qx".parse::<LinkId>().unwrap(),
        minute_ms: 60_000,
        last_ms: 61_000,
        clicks: 2,
        address: None,
        agent_hash: 1,
        agent: Default::default(),
        referrer: String::new(),
        language: Default::default(),
    };
    let id = BatchId {
        counter: 7,
        sequence: 1,
    };
    let call = link_clicks::call("links", id, encode(std::slice::from_ref(&row)));
    link_clicks::parse(&redis.run(&call)).unwrap();
    let key = link_clicks("links");
    let Value::Array(entries) = redis.command(&[b"XRANGE", &key, b"-", b"+"]) else {
        panic!("no entries");
    };
    let [Value::Array(entry)] = &entries[..] else {
        panic!("{entries:?}");
    };
    let [_, Value::Array(fields)] = &entry[..] else {
        panic!("{entry:?}");
    };
    let fields: BTreeMap<_, _> = fields
        .chunks(2)
        .map(|pair| (text(&pair[0]), text(&pair[1])))
        .collect();
    assert_eq!(fields["b"], id.to_string());
    assert_eq!(decode(fields["d"].as_bytes()), Ok(vec![row.clone()]));
    let field = |name: &[u8]| fields.get(str::from_utf8(name).unwrap());
    let read = link_clicks::read_entry(|name| field(name).map(String::as_bytes));
    assert_eq!(read, Ok((id, vec![row])));
}

fn text(value: &Value) -> String {
    match value {
        Value::Bulk(bytes) => String::from_utf8(bytes.clone()).unwrap(),
        other => panic!("{other:?}"),
    }
}
