//! Links with a click limit, counted in Durable Objects: many concurrent clicks, and crashes of objects.

use serde_json::json;
use weir_base::resp::{Value, encode_command};
use weir_conformance::hosts::served::client::{Ask, send};
use weir_conformance::shop::{self, HOST, LIMITED, LINK};
use weir_link::click::ClickId;
use weir_link::record::Link;
use weir_link::redis::keys::LinkKeys;
use weir_link::redis::link_back;
use weir_link::redis::link_read::{self, Purpose, Read};
use weir_scripts::Call;

use super::{Object, now_ms};

const MAX: u64 = 50;
const CLICKS: usize = 200;

/// The object's name: the prefix of all keys of the link.
const NAME: &str = "weir:link:{d/max}";

fn keys() -> LinkKeys {
    LinkKeys::new("weir", &"d/max".parse().unwrap())
}

fn record(max_clicks: u64) -> Vec<u8> {
    let link = Link {
        max_clicks,
        ..Link::to("https://t.example/")
    };
    link.encode()
}

/// A click, as from an ordinary client.
fn visit(path: &str) -> Ask {
    Ask {
        head: [b"GET".to_vec(), path.into(), HOST.into()],
        ..Ask::default()
    }
}

impl Object {
    /// Starts an edge that counts in Durable Objects and has read its feeds; the link's object has its record.
    fn counting(prefix: Option<&str>) -> Option<Self> {
        let mut config = shop::config();
        config["click_limits_in_objects"] = json!(true);
        // For a busy machine.
        config["links"] = json!({ "redis": { "key_prefix": "weir", "deadline_ms": 5_000 } });
        let object = Self::start_as(&config)?;
        object.world.traffic().gateway = Some((299, Vec::new(), String::new()));
        let record = String::from_utf8(record(MAX)).unwrap();
        object.set(&record);
        let feeds = shop::click_limits_in_objects(prefix, &record, now_ms()).unwrap();
        object.world.traffic().feeds = feeds;
        object.wait_until_heard();
        Some(object)
    }

    /// Waits until the edge has read the feeds: until then it forwards clicks.
    fn wait_until_heard(&self) {
        let has_heard = (0..600).any(|_| {
            std::thread::sleep(std::time::Duration::from_millis(50));
            self.status(LINK) == 302
        });
        assert!(has_heard, "{}", self.server.log());
        self.world.traffic().seen.clear();
    }

    /// The status of the answer; 0 for none.
    fn status(&self, path: &str) -> u16 {
        send(self.server.address, &visit(path)).map_or(0, |actual| actual.status)
    }

    fn set(&self, record: &str) {
        let set = self.words(&[b"SET", NAME.as_bytes(), record.as_bytes()]);
        assert_eq!(set, Value::Simple(b"OK".to_vec()));
    }

    fn words(&self, words: &[&[u8]]) -> Value {
        let mut commands = Vec::new();
        encode_command(&mut commands, words.iter().copied());
        self.command(NAME, &commands)
    }

    fn call(&self, call: &Call) -> Value {
        let mut commands = Vec::new();
        call.encode_eval(&mut commands);
        self.command(NAME, &commands)
    }

    fn used(&self) -> u64 {
        match self.words(&[b"GET", &keys().clicks()]) {
            Value::Bulk(used) => String::from_utf8(used).unwrap().parse().unwrap(),
            _ => 0,
        }
    }

    /// Concurrent clicks, each on a new connection, during `deaths` crashes of the object. Returns each click's status.
    fn rush_of(&self, clicks: usize, deaths: usize) -> Vec<u16> {
        std::thread::scope(|scope| {
            let click = || self.status(LIMITED);
            let threads: Vec<_> = (0..clicks).map(|_| scope.spawn(click)).collect();
            for _ in 0..deaths {
                std::thread::sleep(std::time::Duration::from_millis(30));
                self.kill(NAME);
            }
            threads
                .into_iter()
                .map(|thread| thread.join().unwrap())
                .collect()
        })
    }
}

fn redirected(statuses: &[u16]) -> u64 {
    statuses.iter().filter(|status| **status == 302).count() as u64
}

#[test]
fn click_limit_is_exact_under_load_and_failures() {
    let Some(mut object) = Object::counting(Some("weir")) else {
        return;
    };
    let first = object.counted_storm(CLICKS, 8);
    let mut sum = redirected(&first);
    // Clients that were told to retry do so: returned clicks are available to others.
    for _ in 0..20 {
        if sum == MAX && object.used() == MAX {
            break;
        }
        std::thread::sleep(std::time::Duration::from_millis(600));
        sum += redirected(&object.counted_storm(20, 0));
    }
    assert_eq!(sum, MAX, "{first:?} {}", object.server.log());
    assert_eq!(object.used(), MAX);
    // The answered clicks are on disk, permanently.
    object.server.crash().unwrap();
    object.wait_until_heard();
    let last = object.rush_of(20, 0);
    assert_eq!(redirected(&last), 0, "{last:?}");
    assert_eq!(object.used(), MAX);
    assert_eq!(object.world.traffic().seen.len(), 0, "no gateway was asked");
}

impl Object {
    /// A storm in which only these statuses occur.
    fn counted_storm(&self, clicks: usize, deaths: usize) -> Vec<u16> {
        let statuses = self.rush_of(clicks, deaths);
        let is_known = |status: &u16| matches!(status, 302 | 410 | 503);
        assert!(statuses.iter().all(is_known), "{statuses:?}");
        statuses
    }
}

#[test]
fn repeated_click_id_is_counted_and_refunded_once() {
    let Some(object) = Object::counting(Some("weir")) else {
        return;
    };
    let click = |sequence| ClickId {
        counter: 7,
        sequence,
    };
    let remaining = |sequence| {
        let call = link_read::call(&keys(), 100, Purpose::Click(click(sequence)));
        let read: Option<Read> = link_read::parse(&object.call(&call)).unwrap();
        read.unwrap().clicks_left.unwrap()
    };
    let back = |sequence| {
        let reply = object.call(&link_back::call(&keys(), click(sequence)));
        link_back::parse(&reply).unwrap()
    };
    assert_eq!([remaining(1), remaining(1)], [MAX, MAX]);
    object.kill(NAME);
    assert_eq!([remaining(1), remaining(2)], [MAX, MAX - 1]);
    assert_eq!([back(1), back(1)], [true, false]);
    object.kill(NAME);
    // It arrives late, and uses no click.
    assert_eq!(remaining(1), MAX - 1);
    assert_eq!(object.used(), 1);
    // The whole log at once, including a record.
    for sequence in 3..263 {
        remaining(sequence);
        back(sequence);
    }
    object.kill(NAME);
    assert_eq!([remaining(2), object.used()], [MAX - 1, 1]);
}

#[test]
fn edge_counts_nothing_in_objects_when_limits_are_elsewhere() {
    for prefix in [None, Some("other")] {
        let Some(object) = Object::counting(prefix) else {
            return;
        };
        let actual = object.send(&visit(LIMITED));
        let text = String::from_utf8_lossy(&actual.body).into_owned();
        assert_eq!(actual.status, 503, "{text}");
        assert!(text.contains("click_limits_in_objects"), "{text}");
        assert_eq!(object.used(), 0);
    }
}

#[test]
fn link_that_its_object_lacks_is_forwarded() {
    let Some(object) = Object::counting(Some("weir")) else {
        return;
    };
    assert_eq!(object.status(LIMITED), 302);
    // An edit removed its click limit.
    object.set(&String::from_utf8(record(0)).unwrap());
    object.words(&[b"UNLINK", &keys().clicks()]);
    assert_eq!(object.status(LIMITED), 299);
}
