//! An edge alone: what it answers, what it passes, and what it must not do.

use std::cell::Cell;
use std::rc::Rc;

use proptest::prelude::*;
use weir_base::feed::DocumentRejection;
use weir_base::feed::document::seal;
use weir_base::headers::{CLAIM, EDGE, EDGE_SIGNATURE, IDEMPOTENCY_KEY, SOLUTION, USER};
use weir_base::id::{SaleId, UserId};
use weir_base::key::{KeyRing, SigningKey};
use weir_base::shared_data::LocalData;
use weir_base::stamp::Stamp;
use weir_edge::edge::EdgeSetup;
use weir_edge::exact::{ExactLimits, Probe};
use weir_edge::knowledge::{Feed, TakeError};
use weir_edge::store::{MemoryStore, NotWritten};
use weir_edge::{Decision, Edge, Store};
use weir_engine::Headers;
use weir_engine::event::PlainRequest;
use weir_link::feed::{DomainList, Entry, Page, Source, State};
use weir_link::record::Link;
use weir_sale::challenge::{Challenge, check};
use weir_sale::feed::{FRESH_MS, SaleList};
use weir_sale::sale::{Band, Catalogue};

const NOW_MS: u64 = 1_700_000_000_000;
const SECRET: &str = "edge-secret-edge-secret-edge-secret";

const CONFIG: &str = r#"{
  "edge": "fra-1",
  "keys": [{ "id": "e1", "secret": { "env": "EDGE" } }],
  "links": {},
  "gate": {
    "routes": [{ "path": "/sales/{sale}/orders" }],
    "checkout_routes": [{ "path": "/sales/{sale}/checkout" }],
    "status_routes": [{ "path": "/sales/{sale}" }],
    "token": { "keys": [{ "id": "t1", "secret": { "env": "TOKEN" } }] },
    "user_header": "x-user-id"
  },
  "limits": {
    "rules": [{ "name": "coarse", "key": ["address"], "limit": { "rate": 5, "per": "1m" }, "store": "local", "match": { "path": { "exact": "/limited" } } }]
  }
}"#;

fn ring() -> KeyRing {
    SigningKey::new("e1", SECRET.as_bytes()).unwrap().into()
}

fn setup() -> EdgeSetup {
    let variable = |name: &str| match name {
        "EDGE" | "TOKEN" => Some(SECRET.into()),
        _ => None,
    };
    EdgeSetup {
        variable: Box::new(variable),
        seed: 3,
        data: Rc::new(LocalData::default()),
        counts_exactly: false,
    }
}

fn on<S: Store>(store: S) -> Edge<S> {
    Edge::new(CONFIG.as_bytes(), setup(), store).unwrap()
}

fn edge() -> Edge<MemoryStore> {
    on(MemoryStore::default())
}

fn sales(version: u64, band: Band, at_ms: u64) -> String {
    let mut catalogue: Catalogue = serde_json::from_value(serde_json::json!({
        "version": version,
        "sales": [{
            "id": "s", "starts_at_ms": 1, "ends_at_ms": u64::MAX, "shards": 4, "user_cap": 1, "state": "open",
        }],
    }))
    .unwrap();
    catalogue.sales[0].band = band;
    let list = SaleList {
        fresh_ms: FRESH_MS,
        catalogue,
        stock_in_objects: None,
    };
    seal(&ring(), at_ms, &list).unwrap()
}

fn domains(at_ms: u64) -> String {
    let domains = serde_json::json!({ "domains": [{ "id": "s", "hosts": ["s.example"] }] });
    let list = DomainList {
        version: 1,
        domains: serde_json::from_value(domains).unwrap(),
        click_limits_in_objects: None,
    };
    seal(&ring(), at_ms, &list).unwrap()
}

fn page(after: u64, links: &[(u64, &str, State)], at_ms: u64) -> String {
    let entry = |(seq, code, state): &(u64, &str, State)| Entry {
        seq: *seq,
        id: format!("s/{code}").parse().unwrap(),
        state: state.clone(),
    };
    let page = Page {
        source: Source::new("f1").unwrap(),
        after,
        next: links.last().map_or(after, |(seq, ..)| *seq),
        is_last: true,
        links: links.iter().map(entry).collect(),
    };
    seal(&ring(), at_ms, &page).unwrap()
}

fn record(target: &str) -> State {
    State::Record(String::from_utf8(Link::to(target).encode()).unwrap())
}

fn take<S: Store>(
    edge: &mut Edge<S>,
    feed: Feed,
    text: &str,
    now_ms: u64,
) -> Result<(), TakeError> {
    edge.take(feed, 200, text.as_bytes(), now_ms)
}

/// Gives an edge one link and a sale with this band.
fn with_feeds<S: Store>(mut edge: Edge<S>, band: Band) -> Edge<S> {
    take(&mut edge, Feed::SoldOut, &sales(1, band, NOW_MS), NOW_MS).unwrap();
    take(&mut edge, Feed::Domains, &domains(NOW_MS), NOW_MS).unwrap();
    let links = [
        (1, "abc", record("https://1.example/")),
        (2, "max", State::AtGateway),
    ];
    take(&mut edge, Feed::Links, &page(0, &links, NOW_MS), NOW_MS).unwrap();
    edge
}

fn request(method: &str, path: &str, more: &[(&str, &str)], now_ms: u64) -> PlainRequest {
    let mut headers = vec![
        (":method", method),
        (":path", path),
        (":authority", "s.example"),
        ("x-user-id", "alice"),
    ];
    headers.extend(more);
    PlainRequest {
        headers: Headers::new(&headers),
        peer_address: b"192.0.2.1:4711".to_vec(),
        now_ms,
    }
}

/// The response status, or 0 if the request passes.
fn ask<S: Store>(edge: &mut Edge<S>, method: &str, path: &str, now_ms: u64) -> u16 {
    match edge.decide(&request(method, path, &[], now_ms)) {
        Decision::Answer(answer) => answer.status,
        Decision::Forward(_) => 0,
    }
}

fn location<S: Store>(edge: &mut Edge<S>, path: &str, now_ms: u64) -> Option<String> {
    match edge.decide(&request("GET", path, &[], now_ms)) {
        Decision::Answer(answer) => {
            let location = answer.headers.get("location")?;
            Some(String::from_utf8(location.into_owned()).unwrap())
        }
        Decision::Forward(_) => None,
    }
}

#[test]
fn cached_requests_are_answered_and_others_forwarded() {
    let mut edge = with_feeds(edge(), Band::High);
    for (method, path, status) in [
        ("GET", "/abc", 302),
        ("POST", "/abc", 405),
        // A link with a click limit, and one that the feed does not contain.
        ("GET", "/max", 0),
        ("GET", "/other", 0),
        ("GET", "/robots.txt", 200),
        ("GET", "/sales/s", 200),
        ("POST", "/sales/s/checkout", 200),
        ("POST", "/sales/none/checkout", 404),
        ("POST", "/sales/s/orders", 0),
    ] {
        assert_eq!(
            ask(&mut edge, method, path, NOW_MS),
            status,
            "{method} {path}"
        );
    }
}

#[test]
fn edge_without_feeds_forwards_every_request() {
    let mut edge = edge();
    for (method, path) in [
        ("GET", "/abc"),
        ("GET", "/sales/s"),
        ("POST", "/sales/s/checkout"),
        ("POST", "/sales/s/orders"),
    ] {
        assert_eq!(ask(&mut edge, method, path, NOW_MS), 0, "{path}");
    }
}

/// Only Redis can check a challenge's token.
#[test]
fn challenge_is_answered_and_its_solution_forwarded() {
    let mut edge = with_feeds(edge(), Band::High);
    let mut list: SaleList = SaleList {
        fresh_ms: FRESH_MS,
        catalogue: serde_json::from_value(serde_json::json!({ "version": 2, "sales": [{
            "id": "s", "starts_at_ms": 1, "ends_at_ms": u64::MAX, "shards": 4, "user_cap": 1, "state": "open", "token": true,
        }] }))
        .unwrap(),
        stock_in_objects: None,
    };
    list.catalogue.sales[0].challenge = Some(Challenge::ProofOfWork { bits: 8 });
    let sealed = seal(&ring(), NOW_MS, &list).unwrap();
    take(&mut edge, Feed::SoldOut, &sealed, NOW_MS).unwrap();
    let checkout = |more: &[(&str, &str)]| request("POST", "/sales/s/checkout", more, NOW_MS);
    let Decision::Answer(requested) = edge.decide(&checkout(&[])) else {
        panic!("it goes on");
    };
    assert_eq!(requested.status, 403);
    let requested: serde_json::Value = serde_json::from_slice(&requested.body).unwrap();
    let text = requested["challenge"]["proof_of_work"]["text"]
        .as_str()
        .unwrap();
    let keys = SigningKey::new("t1", SECRET.as_bytes()).unwrap().into();
    let (sale, user) = (SaleId::new("s").unwrap(), UserId::new("alice").unwrap());
    let mut solutions = (0..).map(|counter: u64| format!("{text}:{counter}"));
    let solution = solutions
        .find(|text| check(&keys, text.as_bytes(), &sale, &user, 8, NOW_MS).is_ok())
        .unwrap();
    let solved = [(SOLUTION, solution.as_str())];
    let Decision::Forward(headers) = edge.decide(&checkout(&solved)) else {
        panic!("it is answered");
    };
    let sent = headers.iter().find(|(name, _)| name == SOLUTION);
    assert_eq!(sent.unwrap().1, solution.as_bytes());
    // The next request gets the challenge again: the engine that called Redis does not wait for a reply.
    assert_eq!(ask(&mut edge, "POST", "/sales/s/checkout", NOW_MS), 403);
    let wrong = [(SOLUTION, "t1.a.b:1")];
    assert!(matches!(
        edge.decide(&checkout(&wrong)),
        Decision::Answer(_)
    ));
}

/// It must not oversell: requests that may succeed pass, and refusals follow only from the origin's signed data.
#[test]
fn buyer_is_refused_only_while_the_feed_lists_sold_out() {
    let buy = ("POST", "/sales/s/orders");
    let mut full = with_feeds(edge(), Band::Low);
    let mut empty = with_feeds(edge(), Band::None);
    assert_eq!(ask(&mut full, buy.0, buy.1, NOW_MS), 0);
    assert_eq!(ask(&mut empty, buy.0, buy.1, NOW_MS), 409);
    // An attempt with a key may have a claim, which only Redis contains.
    let attempt = request(
        buy.0,
        buy.1,
        &[(IDEMPOTENCY_KEY, "\"attempt-number-1\"")],
        NOW_MS,
    );
    assert!(matches!(empty.decide(&attempt), Decision::Forward(_)));
    // Units are back in stock.
    let later_ms = NOW_MS + 1_000;
    take(
        &mut empty,
        Feed::SoldOut,
        &sales(2, Band::Low, later_ms),
        later_ms,
    )
    .unwrap();
    assert_eq!(ask(&mut empty, buy.0, buy.1, later_ms), 0);
    // The older list arrives again, as from a cache.
    let older = take(
        &mut empty,
        Feed::SoldOut,
        &sales(1, Band::None, later_ms),
        later_ms,
    );
    assert_eq!(older, Err(DocumentRejection::Older.into()));
    assert_eq!(ask(&mut empty, buy.0, buy.1, later_ms), 0);
}

#[test]
fn feeds_expire_without_origin_replies_or_with_a_wrong_clock() {
    let mut edge = with_feeds(edge(), Band::None);
    for (now_ms, sale, link) in [
        (NOW_MS + FRESH_MS, 409, 302),
        (NOW_MS + FRESH_MS + 1, 0, 302),
        (NOW_MS + 60_000, 0, 302),
        (NOW_MS + 60_001, 0, 0),
        (NOW_MS - 60_000, 0, 0),
        (0, 0, 0),
        (NOW_MS * 1_000, 0, 0),
        (NOW_MS, 409, 302),
    ] {
        assert_eq!(
            ask(&mut edge, "POST", "/sales/s/orders", now_ms),
            sale,
            "{now_ms}"
        );
        assert_eq!(ask(&mut edge, "GET", "/abc", now_ms), link, "{now_ms}");
    }
}

#[test]
fn edit_applies_at_once_and_removed_link_is_forwarded() {
    let mut edge = with_feeds(edge(), Band::High);
    assert_eq!(
        location(&mut edge, "/abc", NOW_MS).unwrap(),
        "https://1.example/"
    );
    let edited = page(2, &[(3, "abc", record("https://2.example/"))], NOW_MS);
    take(&mut edge, Feed::Links, &edited, NOW_MS).unwrap();
    assert_eq!(
        location(&mut edge, "/abc", NOW_MS).unwrap(),
        "https://2.example/"
    );
    // The same page again, and the one before it.
    let older = page(0, &[(1, "abc", record("https://1.example/"))], NOW_MS);
    for again in [&edited, &older] {
        let refused = take(&mut edge, Feed::Links, again, NOW_MS);
        assert_eq!(refused, Err(DocumentRejection::Elsewhere.into()));
    }
    assert_eq!(
        location(&mut edge, "/abc", NOW_MS).unwrap(),
        "https://2.example/"
    );
    for (seq, state) in [(4, State::AtGateway), (5, State::Gone)] {
        let page = page(seq - 1, &[(seq, "abc", state)], NOW_MS);
        take(&mut edge, Feed::Links, &page, NOW_MS).unwrap();
        assert_eq!(ask(&mut edge, "GET", "/abc", NOW_MS), 0);
    }
}

#[test]
fn restarted_feed_invalidates_everything_read_before() {
    let mut edge = with_feeds(edge(), Band::High);
    edge.take(Feed::Links, 410, b"", NOW_MS).unwrap();
    assert_eq!(ask(&mut edge, "GET", "/abc", NOW_MS), 0);
    let page = page(0, &[(1, "abd", record("https://3.example/"))], NOW_MS);
    take(&mut edge, Feed::Links, &page, NOW_MS).unwrap();
    assert_eq!(ask(&mut edge, "GET", "/abd", NOW_MS), 302);
    assert_eq!(ask(&mut edge, "GET", "/abc", NOW_MS), 0);
}

#[test]
fn instances_on_one_store_share_feeds() {
    let store = Rc::new(MemoryStore::default());
    drop(with_feeds(on(Rc::clone(&store)), Band::None));
    let mut second = on(Rc::clone(&store));
    assert_eq!(ask(&mut second, "GET", "/abc", NOW_MS), 302);
    assert_eq!(ask(&mut second, "POST", "/sales/s/orders", NOW_MS), 409);
    assert_eq!(
        ask(
            &mut second,
            "POST",
            "/sales/s/orders",
            NOW_MS + FRESH_MS + 1
        ),
        0
    );
    // It continues after the first instance. Other data in the store is valid only with the origin's signature.
    let (_, path) = std::iter::from_fn(|| second.due(NOW_MS)).last().unwrap();
    assert!(path.ends_with("?after=f1.2"), "{path}");
    let forged = SigningKey::new("e1", &[9; 32]).unwrap().into();
    let list = SaleList {
        fresh_ms: FRESH_MS,
        catalogue: Catalogue::default(),
        stock_in_objects: None,
    };
    let forged = seal(&forged, NOW_MS, &list).unwrap();
    store.put("feed/sold-out", forged.as_bytes()).unwrap();
    let mut third = on(store);
    assert_eq!(ask(&mut third, "GET", "/sales/s", NOW_MS), 0);
}

/// A store that accepts this many writes, and then none, as if the edge crashed.
struct FailingStore {
    store: Rc<MemoryStore>,
    writes_left: Cell<usize>,
}

impl Store for FailingStore {
    fn get(&self, key: &str) -> Option<Vec<u8>> {
        self.store.get(key)
    }

    fn put(&self, key: &str, value: &[u8]) -> Result<(), NotWritten> {
        let remaining = self.writes_left.get().checked_sub(1).ok_or(NotWritten)?;
        self.writes_left.set(remaining);
        self.store.put(key, value)
    }
}

#[test]
fn page_is_read_again_after_a_crash_while_storing_it() {
    let links = [
        (1, "aaa", record("https://1.example/")),
        (2, "bbb", record("https://2.example/")),
    ];
    let page = page(0, &links, NOW_MS);
    for writes in 0..3 {
        let store = Rc::new(MemoryStore::default());
        let mut edge = on(FailingStore {
            store: Rc::clone(&store),
            writes_left: Cell::new(writes),
        });
        let accepted = take(&mut edge, Feed::Links, &page, NOW_MS);
        assert_eq!(accepted, Err(NotWritten.into()), "after {writes} writes");
        let mut next = on(store);
        let requests: Vec<_> = std::iter::from_fn(|| next.due(NOW_MS)).collect();
        assert!(
            requests.iter().any(|(_, path)| path.ends_with("/links")),
            "{requests:?}"
        );
        take(&mut next, Feed::Domains, &domains(NOW_MS), NOW_MS).unwrap();
        take(&mut next, Feed::Links, &page, NOW_MS).unwrap();
        assert_eq!(
            location(&mut next, "/bbb", NOW_MS).unwrap(),
            "https://2.example/"
        );
    }
}

#[test]
fn forwarded_request_has_edge_assertion_and_no_forged_headers() {
    let mut edge = with_feeds(edge(), Band::High);
    let forged = [
        (EDGE, "v1;0;fra-1;;POST;/"),
        (EDGE_SIGNATURE, "e1;00"),
        (CLAIM, "v1;s;0;1;1;1;mallory"),
        (USER, "v1;1;mallory"),
        ("x-mine", "kept"),
        ("x-forwarded-for", "198.51.100.7"),
        ("connection", "x-mine"),
    ];
    let path = "/sales/s/orders?q=1";
    let Decision::Forward(headers) = edge.decide(&request("POST", path, &forged, NOW_MS)) else {
        panic!("it was answered");
    };
    let all = |name: &str| -> Vec<&str> {
        let headers = headers.iter().filter(|(existing, _)| existing == name);
        headers
            .map(|(_, value)| std::str::from_utf8(value).unwrap())
            .collect()
    };
    let (stamp, signature) = (all(EDGE), all(EDGE_SIGNATURE));
    assert_eq!((stamp.len(), signature.len()), (1, 1));
    let stamp = Stamp::verify(&ring(), stamp[0], signature[0], ("POST", path), NOW_MS).unwrap();
    assert_eq!((stamp.edge, stamp.client), ("fra-1", "192.0.2.1"));
    assert_eq!(all("x-mine"), ["kept"]);
    assert_eq!(all("x-forwarded-for"), ["198.51.100.7, 192.0.2.1"]);
    for absent in [CLAIM, USER, "connection", ":path"] {
        assert!(all(absent).is_empty(), "{absent}");
    }
}

#[test]
fn local_limits_count_on_this_edge() {
    let mut edge = edge();
    let statuses: Vec<u16> = (0..7)
        .map(|_| ask(&mut edge, "GET", "/limited", NOW_MS))
        .collect();
    assert_eq!(statuses, [0, 0, 0, 0, 0, 429, 429]);
    assert_eq!(ask(&mut edge, "GET", "/free", NOW_MS), 0);
}

#[test]
fn config_with_claim_secret_or_redis_is_refused() {
    for (at, field, json) in [
        ("\"gate\": {", "gate.claim", "\"claim\": { \"keys\": [] },"),
        ("\"gate\": {", "gate.redis", "\"redis\": {},"),
        ("\"links\": {", "links.clicks", "\"clicks\": {}"),
        ("\"limits\": {", "limits.reload", "\"reload\": true,"),
        ("\"gate\": {", "gate.nothing", "\"nothing\": 1,"),
    ] {
        let config = CONFIG.replace(at, &format!("{at}{json}"));
        let refused = Edge::new(config.as_bytes(), setup(), MemoryStore::default());
        let error = refused.err().unwrap().to_string();
        assert!(error.starts_with(field), "{field}: {error}");
    }
}

#[test]
fn unresponsive_origin_is_polled_at_intervals() {
    let edge = edge();
    let due = |now_ms| -> Vec<Feed> {
        std::iter::from_fn(|| edge.due(now_ms))
            .map(|(feed, _)| feed)
            .collect()
    };
    assert_eq!(due(NOW_MS), Feed::ALL);
    assert_eq!(due(NOW_MS + 999), []);
    assert_eq!(due(NOW_MS + 1_000), [Feed::SoldOut]);
    assert_eq!(due(NOW_MS + 2_000), Feed::ALL);
    assert_eq!(due(NOW_MS - 50_000), Feed::ALL, "the clock was set back");
}

proptest! {
    /// Arbitrary bytes as a feed: unsigned data never changes an edge's answers.
    #[test]
    fn arbitrary_bytes_are_never_accepted_as_feeds(bytes in prop::collection::vec(any::<u8>(), 0..200), status: u16, which in 0..3_usize) {
        let mut edge = with_feeds(edge(), Band::None);
        let (feed, is_anew) = (Feed::ALL[which], which == 2 && status == 410);
        let _ = edge.take(feed, status, &bytes, NOW_MS);
        prop_assert_eq!(ask(&mut edge, "POST", "/sales/s/orders", NOW_MS), 409);
        prop_assert_eq!(ask(&mut edge, "GET", "/abc", NOW_MS), if is_anew { 0 } else { 302 });
    }

    /// Arbitrary requests do not panic an edge.
    #[test]
    fn arbitrary_requests_never_panic_an_edge(
        method in "[A-Z]{1,8}", path in ".{0,60}", headers in prop::collection::vec(("[a-z-]{1,12}", ".{0,30}"), 0..6),
    ) {
        let mut edge = with_feeds(edge(), Band::High);
        let headers: Vec<(&str, &str)> = headers.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
        edge.decide(&request(&method, &path, &headers, NOW_MS));
        edge.decide(&request("POST", &format!("/sales/{path}/orders"), &headers, NOW_MS));
    }
}

#[test]
fn exact_limits_require_a_single_counter() {
    let rule = serde_json::json!({
        "name": "one", "key": [{ "header": "a" }], "match": { "path": { "prefix": "/l" } },
        "algorithm": "fixed_window", "limit": { "rate": 1, "per": "1h" },
    });
    let config = |rule: &serde_json::Value| {
        let keys = serde_json::json!([{ "id": "e1", "secret": { "env": "SECRET" } }]);
        let limits = serde_json::json!({ "rules": [rule] });
        serde_json::json!({ "edge": "x", "keys": keys, "exact_limits": limits }).to_string()
    };
    let variable = || -> Box<weir_edge::edge::Variable> { Box::new(|_| Some(vec![b'x'; 32])) };
    let setup = |counts_exactly| EdgeSetup {
        variable: variable(),
        seed: 3,
        data: Rc::new(LocalData::default()),
        counts_exactly,
    };
    let json = config(&rule);
    let store = Rc::new(MemoryStore::default());
    let refused = Edge::new(json.as_bytes(), setup(false), Rc::clone(&store));
    assert_eq!(refused.err().unwrap().path, "exact_limits");
    assert!(Edge::new(json.as_bytes(), setup(true), store).is_ok());

    let mut in_redis = rule.clone();
    in_redis["store"] = "redis".into();
    let refused = ExactLimits::new(config(&in_redis).as_bytes(), setup(true));
    assert_eq!(refused.err().unwrap().path, "exact_limits.rules[0].store");

    let mut limits = ExactLimits::new(json.as_bytes(), setup(true))
        .unwrap()
        .unwrap();
    let mut probe = Probe::new(json.as_bytes(), variable()).unwrap().unwrap();
    let request = |path: &str| PlainRequest {
        headers: Headers::new(&[(":method", "GET"), (":path", path), ("a", "1")]),
        peer_address: b"192.0.2.1:1".into(),
        now_ms: 1_700_000_000_000,
    };
    for (path, concerns) in [("/l", true), ("/other", false), ("/l", true)] {
        assert_eq!(probe.concerns(&request(path)), concerns, "{path}");
    }
    let answers = ["/l", "/other", "/l"].map(|path| limits.ask(&request(path)));
    let statuses = answers.map(|answer| answer.map(|answer| answer.status));
    assert_eq!(statuses, [None, None, Some(429)]);
}
