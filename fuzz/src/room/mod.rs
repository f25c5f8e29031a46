//! Waiting rooms: requests of visitors, Redis replies, and filter configurations.

use std::rc::Rc;

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use weir_base::key::{KeyRing, Purpose, SigningKey};
use weir_base::resp::{Value, decode};
use weir_base::shared_data::LocalData;
use weir_room::engine::WaitingRoom;
use weir_room::engine::config::Config;
use weir_room::pass::LEN_MAX;
use weir_room::redis::{room_ask, room_look, room_set, room_tick};
use weir_room::state::wait_percentile;
use weir_room::{NUMBER_MAX, Pass, PassError, RoomName, Snapshot, Visitor};

use crate::config::{check_nothing_follows, check_refusal};
use gateway::{Gateway, Outcome};

mod gateway;

const NOW_MS: u64 = 1_700_000_000_000;
const LIFE_MS: u64 = 86_400_000;

/// The secret behind the keys of all targets, which no configuration or answer may show.
const SECRET: &str = "only for fuzzing, of 32 bytes or more";

fn environment(name: &str) -> Option<Vec<u8>> {
    (name == "KEY").then(|| SECRET.into())
}

fn ring() -> KeyRing {
    let keys = [
        ("k1", SECRET),
        ("k2", "only for fuzzing, the one before the last"),
    ];
    let key = |(id, secret): (&str, &str)| SigningKey::new(id, secret.as_bytes()).expect("a key");
    KeyRing::new(keys.map(key).to_vec()).expect("two keys")
}

fn shop() -> RoomName {
    RoomName::new("shop").expect("a name")
}

/// A client's pass, a line feed, and a payload. Checks that the pass is valid only with the exact text that a gateway
/// creates. The payload is signed here, and must result in a pass with numbers within their bounds, or in a refusal.
pub fn room_pass(data: &[u8]) {
    let mut parts = data.splitn(2, |&byte| byte == b'\n');
    let mut part = || parts.next().unwrap_or_default();
    let (presented, payload) = (part(), part());
    let ring = ring();
    let read = |text: &[u8]| Pass::read(&ring, &shop(), text, NOW_MS, LIFE_MS);
    if let Ok(pass) = read(presented) {
        check_pass(&pass);
        assert!(presented.len() <= LEN_MAX);
        let minted = ["k1", "k2"].map(|id| {
            let key = ring.find(id).expect("it is in the ring");
            pass.mint(&key.clone().into(), &shop())
        });
        assert!(minted.iter().any(|text| text.as_bytes() == presented));
    }
    let tag = ring.signer().tag(Purpose::RoomPass, payload);
    let encode = |bytes: &[u8]| URL_SAFE_NO_PAD.encode(bytes);
    let signed = format!("k1.{}.{}", encode(payload), encode(&tag));
    match read(signed.as_bytes()) {
        Ok(pass) => {
            check_pass(&pass);
            let again = pass.mint(&ring, &shop());
            assert_eq!(read(again.as_bytes()), Ok(pass));
        }
        Err(PassError::TooLong) => assert!(signed.len() > LEN_MAX),
        Err(refusal) => assert!(!matches!(
            refusal,
            PassError::UnknownKey | PassError::BadSignature
        )),
    }
    let forged = format!(
        "k1.{}.{}",
        encode(payload),
        encode(&[tag.as_slice(), b"x"].concat())
    );
    assert!(read(forged.as_bytes()).is_err());
}

fn check_pass(pass: &Pass) {
    let numbers = [pass.joined_ms, pass.place, pass.head, pass.until_ms];
    assert!(numbers.iter().all(|number| *number < NUMBER_MAX));
    assert!(pass.is_inside(NOW_MS) || NOW_MS < pass.joined_ms + LIFE_MS);
}

/// A request: its visitor's status in Redis as a digit, and then one line each of the path, `Accept`, `Cookie`,
/// `X-Weir-Room`, the user header, `X-Forwarded-For`, and the connection's address. Missing lines are missing headers.
/// Checks that there is exactly one outcome, and that an issued pass is for the requesting visitor.
pub fn room_request(data: &[u8]) {
    const NAMES: [&str; 6] = [
        ":path",
        "accept",
        "cookie",
        "x-weir-room",
        "x-user",
        "x-forwarded-for",
    ];
    let mut lines = data.splitn(8, |&byte| byte == b'\n');
    let status = lines.next().and_then(|line| line.first()).copied();
    let headers: Vec<(&str, &[u8])> = NAMES.into_iter().zip(lines.by_ref()).collect();
    let address = lines.next().unwrap_or_default();
    let header = |name: &str| headers.iter().find(|(existing, _)| *existing == name);
    let configuration = br#"{"redis":{},"user_header":"x-user","trusted_hops":1,
        "keys":[{"id":"k1","secret":{"env":"KEY"}}],
        "rooms":[{"name":"shop","match":{"path":{"prefix":"/shop"}},"except":[{"path":{"prefix":"/shop/static"}}]}]}"#;
    let reply = |is_tick| canned(is_tick, status.unwrap_or(b'0'));
    let mut gateway = Gateway::new(engine(configuration), NOW_MS, &reply);
    // The first one starts the gateway's polls, the second one uses their results.
    for _ in 0..2 {
        let outcome = gateway.ask(&headers, address);
        outcome.check();
        let Some(pass) = issued(&outcome) else {
            continue;
        };
        let user = header("x-user").filter(|(_, user)| !user.is_empty());
        let presented = header("x-weir-room")
            .and_then(|(_, text)| Pass::read(&ring(), &shop(), text, NOW_MS, LIFE_MS).ok());
        match (user, presented) {
            (Some((_, user)), _) => assert_eq!(pass.visitor, Visitor::of_user(user)),
            (None, Some(presented)) => assert_eq!(pass.visitor, presented.visitor),
            (None, None) => {}
        }
        assert_eq!(pass.is_inside(NOW_MS), outcome.answer.is_none());
    }
}

/// The pass in the room's cookie. Other places that contain it must agree.
fn issued(outcome: &Outcome) -> Option<Pass> {
    let cookie = outcome.header("set-cookie")?;
    let text = cookie.strip_prefix("weir-room-shop=").expect("its cookie");
    let text = text.split(';').next().expect("there is a first part");
    if let Some(reply) = outcome.header("x-weir-room") {
        assert_eq!(reply, text);
    }
    let read = Pass::read(&ring(), &shop(), text.as_bytes(), NOW_MS, LIFE_MS);
    Some(read.expect("gateways read what they write"))
}

/// A reply, for the parsers of all scripts, and then for a gateway, as the reply to each of its calls.
pub fn room_replies(data: &[u8]) {
    if let Ok((value, _)) = decode(data) {
        check_parsers(&value);
    }
    let configuration =
        br#"{"redis":{},"keys":[{"id":"k1","secret":{"env":"KEY"}}],"rooms":[{"name":"shop"}]}"#;
    let reply = |_| data.to_vec();
    let mut gateway = Gateway::new(engine(configuration), NOW_MS, &reply);
    let mut cookie = None::<String>;
    for path in ["/shop", "/shop", "/.weir/room/shop"] {
        let mut headers: Vec<(&str, &[u8])> = vec![(":path", path.as_bytes())];
        headers.push(("accept", b"text/html"));
        headers.extend(cookie.as_ref().map(|text| ("cookie", text.as_bytes())));
        let outcome = gateway.ask(&headers, b"192.0.2.1:7");
        outcome.check();
        // With any Redis reply, the gateway must accept its own pass again.
        issued(&outcome);
        let issued = outcome.header("set-cookie").map(Into::into);
        cookie = issued.or(cookie);
    }
}

fn check_parsers(value: &Value) {
    let count = match value {
        Value::Array(values) => match values.as_slice() {
            [_, Value::Array(reply)] => reply.len() / 2,
            _ => 0,
        },
        _ => 0,
    };
    if let Ok(snapshot) = room_tick::parse(value) {
        check_snapshot(&snapshot);
    }
    if let Ok((snapshot, reply)) = room_ask::parse(value, count) {
        check_snapshot(&snapshot);
        assert_eq!(reply.len(), count);
        assert!(reply.iter().all(|(_, place)| *place < NUMBER_MAX));
        assert!(room_ask::parse(value, count + 1).is_err());
    }
    if let Ok(Some(look)) = room_look::parse(value) {
        assert!(look.seq < NUMBER_MAX && look.base < NUMBER_MAX);
        let percentiles = [50, 90, 99].map(|percent| wait_percentile(&look.waits, percent));
        // No percentile exceeds the classes, or there is no data.
        let order = percentiles.map(|wait_ms| wait_ms.unwrap_or(u64::MAX));
        assert!(order.is_sorted(), "{percentiles:?}");
    }
    if let Ok(is_newer) = room_set::parse(value) {
        assert_eq!(*value, Value::Integer(is_newer.into()));
    }
}

fn check_snapshot(snapshot: &Snapshot) {
    let Snapshot {
        observed,
        setting,
        opening,
        now_ms,
        ..
    } = snapshot;
    let observed = [
        observed.seq,
        observed.head,
        observed.floor,
        observed.inside,
        observed.drew,
        observed.base,
        observed.drawn,
        observed.called,
    ];
    let numbers = observed.iter().chain([opening, now_ms]);
    assert!(
        numbers
            .chain(&setting.numbers())
            .all(|number| *number < NUMBER_MAX)
    );
}

/// The configuration of the filter. Checks that an accepted one results in a gateway with valid pages and cookies, that
/// a refusal names the field and the reason, and that neither shows a secret.
pub fn room_config(data: &[u8]) {
    let checked =
        weir_engine::config::parse::<Config>(data).and_then(|config| config.checked(&environment));
    let accepted = match checked {
        Ok(accepted) => accepted,
        Err(refusal) => {
            assert!(!refusal.to_string().contains(SECRET));
            return check_refusal(&refusal);
        }
    };
    check_nothing_follows::<Config>(data);
    assert!(!format!("{accepted:?}").contains(SECRET));
    assert!((100..=10_000).contains(&accepted.poll_interval_ms));
    assert!(
        accepted
            .trusted_hops
            .is_none_or(|hops| (1..=16).contains(&hops))
    );
    assert!(accepted.status_path.starts_with('/') && !accepted.status_path.ends_with('/'));
    let header = accepted.user_header.as_deref().unwrap_or("x");
    assert!(
        header
            .bytes()
            .all(|b| b.is_ascii_graphic() && b != b':' && !b.is_ascii_uppercase())
    );
    let script = format!("{}/room.js", accepted.status_path);
    let reply = |is_tick| canned(is_tick, b'0');
    let data = Rc::new(LocalData::default());
    let engine = WaitingRoom::new(accepted, data, "fuzz".into());
    let mut gateway = Gateway::new(engine, NOW_MS, &reply);
    for (path, accept) in [("/", "text/html"), ("/shop", "*/*"), (&script, "*/*")] {
        let headers = [(":path", path.as_bytes()), ("accept", accept.as_bytes())];
        gateway.ask(&headers, b"192.0.2.1:7").check();
    }
    assert!(gateway.engine_tick_ms().is_none_or(|tick_ms| tick_ms > 0));
}

fn engine(configuration: &[u8]) -> WaitingRoom<Rc<LocalData>> {
    let config = weir_engine::config::parse::<Config>(configuration).expect("it is well formed");
    let config = config.checked(&environment).expect("it is good");
    WaitingRoom::new(config, Rc::new(LocalData::default()), "fuzz".into())
}

/// Redis' reply for a room with three positions, of which one is admitted, for a visitor with this status.
fn canned(is_tick: bool, status: u8) -> Vec<u8> {
    let mut reply = String::new();
    if !is_tick {
        reply.push_str("*2\r\n");
    }
    reply.push_str("*22\r\n");
    let before = [3, 1, 0, 0, 1, 0, 0, 0, 0, 60, 0, 0, 0, 0, 0, 0, 0];
    before
        .iter()
        .for_each(|number| reply.push_str(&format!(":{number}\r\n")));
    reply.push_str("$1\r\n-\r\n");
    for number in [3, 1, 0, NOW_MS] {
        reply.push_str(&format!(":{number}\r\n"));
    }
    if !is_tick {
        let status = status.wrapping_sub(b'0');
        reply.push_str(&format!("*2\r\n:{status}\r\n:3\r\n"));
    }
    reply.into_bytes()
}
