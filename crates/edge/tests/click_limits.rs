//! Links with a click limit whose clicks are counted in objects: the engine of links calls the link's object, here one
//! in memory.

use std::collections::BTreeSet;
use std::rc::Rc;

use serde_json::{Value, json};
use weir_base::feed::document::seal;
use weir_base::key::SigningKey;
use weir_base::resp::decode;
use weir_base::shared_data::LocalData;
use weir_edge::edge::EdgeSetup;
use weir_edge::knowledge::Feed;
use weir_edge::object_calls::{ObjectCall, PendingRequest};
use weir_edge::shard::{Link, LinkCommand, ObjectCommands};
use weir_edge::store::MemoryStore;
use weir_edge::{Decision, Edge, FirstOutcome, RequestOutcome};
use weir_engine::Headers;
use weir_engine::event::PlainRequest;
use weir_engine::redis::{DefiniteFailure, Reply, UnknownFailure};
use weir_link::feed::{DomainList, Entry, Page, Source, State};
use weir_link::record::Link as Record;

const NOW_MS: u64 = 1_700_000_000_000;
const SECRET: &str = "edge-secret-edge-secret-edge-secret";
const KEY: &str = "weir:link:{s/max}";

fn config() -> Value {
    json!({
        "edge": "test-1",
        "keys": [{ "id": "e1", "secret": { "env": "SECRET" } }],
        "click_limits_in_objects": true,
        "links": { "redis": { "key_prefix": "weir" } },
    })
}

fn edge_of(config: &Value, seed: u64, counts_exactly: bool) -> Result<Edge<MemoryStore>, String> {
    let setup = EdgeSetup {
        variable: Box::new(|_| Some(SECRET.into())),
        seed,
        data: Rc::new(LocalData::default()),
        counts_exactly,
    };
    let json = config.to_string();
    let edge = Edge::new(json.as_bytes(), setup, MemoryStore::default());
    edge.map_err(|error| error.to_string())
}

fn record(max_clicks: u64) -> Record {
    Record {
        max_clicks,
        ..Record::to("https://t.example/")
    }
}

fn text(record: &Record) -> String {
    String::from_utf8(record.encode()).unwrap()
}

fn command(words: &[&[u8]]) -> [LinkCommand; 1] {
    [LinkCommand::from_redis(words, KEY.as_bytes()).unwrap()]
}

fn to_link(ask: &ObjectCall) -> &[LinkCommand] {
    match &ask.commands {
        ObjectCommands::Link(commands) => commands,
        ObjectCommands::Shard(_) => panic!("{ask:?}"),
    }
}

/// What happens to a reply.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ReplyFate {
    Comes,
    /// The commands have run, but the reply is lost.
    Lost,
    /// The commands have not arrived, and the result is uncertain.
    Stuck,
    /// The object confirms that nothing has run.
    Refused,
}

/// The outcome of a click.
#[derive(Clone, Debug, PartialEq, Eq)]
enum ClickOutcome {
    /// Redirected.
    Redirected,
    /// Answered with this status.
    Answered(u16),
    ToGateway,
}

/// An edge that knows two links, and the object of the one with a click limit.
struct World {
    edge: Edge<MemoryStore>,
    object: Link,
    now_ms: u64,
}

impl World {
    fn new(max_clicks: u64) -> Self {
        Self::with_feed(max_clicks, Some("weir"), State::Counted)
    }

    /// A world whose origin reports the link with this state.
    fn with_feed(max_clicks: u64, prefix: Option<&str>, state: fn(String) -> State) -> Self {
        let mut edge = edge_of(&config(), 3, true).unwrap();
        let record = text(&record(max_clicks));
        hear(&mut edge, prefix, state(record.clone()));
        let mut object = Link::default();
        let set = command(&[b"SET", KEY.as_bytes(), record.as_bytes()]);
        object.run(&set, NOW_MS);
        Self {
            edge,
            object,
            now_ms: NOW_MS,
        }
    }

    fn write(&mut self, words: &[&[u8]]) {
        self.object.run(&command(words), self.now_ms);
    }

    /// The number of clicks that the object counts as used.
    fn used(&mut self) -> u64 {
        let get = command(&[b"GET", format!("{KEY}:clicks").as_bytes()]);
        let done = self.object.run(&get, self.now_ms);
        match decode(&done.replies).unwrap().0 {
            weir_base::resp::Value::Bulk(used) => String::from_utf8(used).unwrap().parse().unwrap(),
            _ => 0,
        }
    }

    fn run(&mut self, ask: &ObjectCall, fate: ReplyFate) -> Reply {
        assert_eq!(ask.object, KEY);
        match fate {
            ReplyFate::Stuck => return Err(UnknownFailure::Timeout.into()),
            ReplyFate::Refused => return Err(DefiniteFailure::Refused("no".into()).into()),
            ReplyFate::Comes | ReplyFate::Lost => {}
        }
        let done = self.object.run(to_link(ask), self.now_ms);
        match fate {
            ReplyFate::Lost => Err(UnknownFailure::Lost.into()),
            _ => Ok(done.replies),
        }
    }

    fn ask_all(&mut self, request: &mut PendingRequest, fate: ReplyFate) {
        loop {
            let asks = request.take_asks();
            if asks.is_empty() {
                return;
            }
            for ask in asks {
                let reply = self.run(&ask, fate);
                self.edge.answered(request, &ask, reply, self.now_ms);
            }
        }
    }

    fn begin(&mut self) -> FirstOutcome {
        self.edge.begin(&click(self.now_ms))
    }

    /// A click whose first call has this fate; later returns succeed.
    fn click(&mut self, fate: ReplyFate) -> ClickOutcome {
        let mut request = match self.begin() {
            FirstOutcome::Decided(decision) => return outcome_of(decision),
            FirstOutcome::Asks(request) => request,
        };
        self.ask_all(&mut request, fate);
        let sold = self.edge.request_outcome(&request, &click(self.now_ms));
        for _ in 0..5 {
            self.edge.ended(&mut request, None, self.now_ms);
            self.ask_all(&mut request, ReplyFate::Comes);
            self.now_ms += 200;
        }
        assert!(!request.owes());
        self.edge.finish(request);
        match sold {
            RequestOutcome::Answer(answer) => outcome_of(Decision::Answer(answer)),
            RequestOutcome::ToGateway(_) => ClickOutcome::ToGateway,
            RequestOutcome::ToOrigin(_) => panic!("nobody buys"),
        }
    }
}

fn outcome_of(decision: Decision) -> ClickOutcome {
    match decision {
        Decision::Answer(answer) if answer.status == 302 => ClickOutcome::Redirected,
        Decision::Answer(answer) => ClickOutcome::Answered(answer.status),
        Decision::Forward(_) => ClickOutcome::ToGateway,
    }
}

fn click(now_ms: u64) -> PlainRequest {
    PlainRequest {
        headers: Headers::new(&[
            (":method", "GET"),
            (":path", "/max"),
            (":authority", "s.example"),
        ]),
        peer_address: b"192.0.2.1:4711".to_vec(),
        now_ms,
    }
}

fn hear(edge: &mut Edge<MemoryStore>, prefix: Option<&str>, state: State) {
    let ring = SigningKey::new("e1", SECRET.as_bytes()).unwrap().into();
    let domains = json!({ "domains": [{ "id": "s", "hosts": ["s.example"] }] });
    let list = DomainList {
        version: 1,
        domains: serde_json::from_value(domains).unwrap(),
        click_limits_in_objects: prefix.map(str::to_owned),
    };
    let page = Page {
        source: Source::new("f1").unwrap(),
        after: 0,
        next: 1,
        is_last: true,
        links: vec![Entry {
            seq: 1,
            id: "s/max".parse().unwrap(),
            state,
        }],
    };
    let domains = seal(&ring, NOW_MS, &list).unwrap();
    let page = seal(&ring, NOW_MS, &page).unwrap();
    edge.take(Feed::Domains, 200, domains.as_bytes(), NOW_MS)
        .unwrap();
    edge.take(Feed::Links, 200, page.as_bytes(), NOW_MS)
        .unwrap();
}

#[test]
fn link_redirects_up_to_its_limit_and_object_counts_clicks() {
    let mut world = World::new(3);
    let outcomes: Vec<ClickOutcome> = (0..6).map(|_| world.click(ReplyFate::Comes)).collect();
    let redirected = outcomes
        .iter()
        .filter(|outcome| **outcome == ClickOutcome::Redirected);
    assert_eq!(redirected.count(), 3, "{outcomes:?}");
    assert_eq!(outcomes[5], ClickOutcome::Answered(410));
    assert_eq!(world.used(), 3);
}

#[test]
fn click_with_unknown_outcome_is_refused_and_refunded() {
    for route in [ReplyFate::Lost, ReplyFate::Stuck] {
        let mut world = World::new(1);
        assert_eq!(world.click(route), ClickOutcome::Answered(503), "{route:?}");
        assert_eq!(world.used(), 0, "{route:?}");
        assert_eq!(
            world.click(ReplyFate::Comes),
            ClickOutcome::Redirected,
            "{route:?}"
        );
        assert_eq!(
            world.click(ReplyFate::Comes),
            ClickOutcome::Answered(410),
            "{route:?}"
        );
    }
}

#[test]
fn click_that_did_not_run_is_forwarded_and_uses_nothing() {
    let mut world = World::new(1);
    assert_eq!(world.click(ReplyFate::Refused), ClickOutcome::ToGateway);
    assert_eq!(world.used(), 0);
    // A link that the object does not have is counted elsewhere, or is no longer counted.
    let key = KEY.as_bytes();
    let clicks = format!("{KEY}:clicks");
    world.write(&[b"UNLINK", key, clicks.as_bytes()]);
    assert_eq!(world.click(ReplyFate::Comes), ClickOutcome::ToGateway);
}

#[test]
fn object_record_wins_over_the_feed() {
    let mut world = World::new(50);
    let lower = text(&record(1));
    world.write(&[b"SET", KEY.as_bytes(), lower.as_bytes()]);
    assert_eq!(world.click(ReplyFate::Comes), ClickOutcome::Redirected);
    assert_eq!(world.click(ReplyFate::Comes), ClickOutcome::Answered(410));
    let disabled = Record {
        is_disabled: true,
        ..record(50)
    };
    world.write(&[b"SET", KEY.as_bytes(), text(&disabled).as_bytes()]);
    // An exhausted click limit is cached for a second.
    world.now_ms += 1_100;
    assert_eq!(world.click(ReplyFate::Comes), ClickOutcome::Answered(410));
    assert_eq!(world.used(), 1);
}

/// Two instances may get requests of one client at the same instant: click IDs still differ.
#[test]
fn click_ids_differ_between_engines() {
    let mut world = World::new(100);
    let mut other = edge_of(&config(), 4, true).unwrap();
    hear(&mut other, Some("weir"), State::Counted(text(&record(100))));
    // All are in progress at once, so each has its own engine.
    let mut requests = Vec::new();
    for _ in 0..10 {
        requests.push(world.begin());
        requests.push(other.begin(&click(NOW_MS)));
    }
    let mut names = BTreeSet::new();
    for started in &mut requests {
        let FirstOutcome::Asks(request) = started else {
            panic!("nobody was asked");
        };
        let asks = request.take_asks();
        let [ask] = &asks[..] else {
            panic!("one question: {asks:?}");
        };
        names.insert(ask.commands.to_json());
        world.object.run(to_link(ask), NOW_MS);
    }
    assert_eq!(names.len(), 20);
    assert_eq!(world.used(), 20);
}

#[test]
fn edge_counts_nothing_when_origin_disagrees() {
    // The origin counts click limits elsewhere, or its feed says nothing, and the edge still has an older record.
    for prefix in [None, Some("other")] {
        let mut world = World::with_feed(5, prefix, State::Counted);
        assert_eq!(world.click(ReplyFate::Comes), ClickOutcome::Answered(503));
        assert_eq!(world.used(), 0);
    }
    // Gateways count links that the origin assigns to gateways.
    let mut world = World::with_feed(5, None, |_| State::AtGateway);
    assert_eq!(world.click(ReplyFate::Comes), ClickOutcome::ToGateway);
    // An edge without objects defers links with a click limit to gateways.
    let mut plain = config();
    plain["click_limits_in_objects"] = json!(false);
    plain["links"] = json!({});
    let mut world = World::new(5);
    world.edge = edge_of(&plain, 3, false).unwrap();
    let counted = State::Counted(text(&record(5)));
    hear(&mut world.edge, Some("weir"), counted);
    assert_eq!(world.click(ReplyFate::Comes), ClickOutcome::ToGateway);
    // Outdated data is not used.
    let mut world = World::new(5);
    world.now_ms += 60_001;
    assert_eq!(world.click(ReplyFate::Comes), ClickOutcome::ToGateway);
    assert_eq!(world.used(), 0);
}

#[test]
fn click_counting_requires_objects_and_links() {
    let refused = |config: &Value, counts| edge_of(config, 3, counts).err().unwrap();
    let elsewhere = refused(&config(), false);
    assert!(elsewhere.contains("click_limits_in_objects"), "{elsewhere}");
    let mut without = config();
    without.as_object_mut().unwrap().remove("links");
    assert!(refused(&without, true).starts_with("links"));
    let mut with_cluster = config();
    with_cluster["links"]["redis"]["cluster"] = json!("x");
    assert!(refused(&with_cluster, true).starts_with("links.redis.cluster"));
    let mut with_clicks = config();
    with_clicks["links"]["clicks"] = json!({});
    assert!(refused(&with_clicks, true).starts_with("links.clicks"));
    let mut redis_alone = config();
    redis_alone["click_limits_in_objects"] = json!(false);
    assert!(refused(&redis_alone, true).starts_with("links.redis"));
}
