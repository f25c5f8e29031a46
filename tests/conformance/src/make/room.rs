//! Waiting rooms: which visitors enter, their positions, and valid passes.
//!
//! Steps that report a wait precede all steps that move the head: the pace is measured, and hosts start at different
//! times. Vectors do not cover what an engine writes at its next poll of Redis (positions in passes, renewed sessions),
//! because Envoy may poll once more at the start time.

#![expect(
    clippy::indexing_slicing,
    reason = "a wrong index is a mistake of the tests, and must stop them"
)]

use serde_json::{Value, json};
use weir_base::key::{KeyRing, SigningKey};
use weir_room::redis::keys::RoomKeys;
use weir_room::{Mode, Pass, RoomName, Setting, Visitor};

use super::{Ask, Draft, NOW_MS, SECRETS};
use crate::vector::{Content, Vector};

const ENGINE: &str = "waiting-room";
const SECRET: &str = "WEIR_ROOM_SECRET";
const ROOM: &str = "shop";
const PATH: &str = "/shop/shoes";
const STATUS: &str = "/.weir/room/shop";

const POLL_MS: u64 = 10_000;
const MINUTE_MS: u64 = 60_000;
const SESSION_MS: u64 = 10 * MINUTE_MS;
const DAY_MS: u64 = 24 * 60 * MINUTE_MS;

/// A gateway with one room of this configuration.
fn config(room: Value) -> Value {
    let mut config = json!({
        "redis": {}, "keys": [{ "id": "k1", "secret": { "env": SECRET } }], "user_header": "x-user-id",
        "poll_interval_ms": POLL_MS,
        "rooms": [{ "name": ROOM, "match": { "path": { "prefix": "/shop" } }, "except": [{ "path": { "exact": "/shop/logo.svg" } }] }],
    });
    if let (Some(existing), Value::Object(more)) = (config["rooms"][0].as_object_mut(), room) {
        existing.extend(more);
    }
    config
}

fn name(text: &str) -> RoomName {
    RoomName::new(text).expect("a room's name")
}

fn ring(secret: &str) -> KeyRing {
    let existing = SECRETS.iter().find(|(name, _)| *name == secret);
    let (_, secret) = existing.expect("a secret");
    let key = SigningKey::new("k1", secret.as_bytes()).expect("a secret that is long enough");
    key.into()
}

/// A room without data in Redis.
fn lost(vector: &str, room: Value) -> Draft {
    Draft::new(format!("room/{vector}"), ENGINE, config(room)).secret(SECRET)
}

/// A room in use, with `seq` issued positions, of which the first `head` are admitted.
fn used(vector: &str, room: Value, seq: u64, head: u64) -> Draft {
    let draft = lost(vector, room);
    let key = RoomKeys::new(&draft.prefix(), &name(ROOM)).state();
    // All admitted positions were used. The pace allows the maximum of one poll.
    let before_ms = NOW_MS - MINUTE_MS;
    let state = format!(
        "{seq} {head} {head} {before_ms} {MINUTE_MS} {NOW_MS} 0 {before_ms} 0 0 0 0 0 {seq} {head} 0 -"
    );
    draft.text(key, state)
}

fn open(vector: &str) -> Draft {
    used(vector, json!({}), 7, 7)
}

fn paused(vector: &str) -> Draft {
    used(vector, json!({ "mode": "paused" }), 7, 4)
}

/// Stores an operator's setting.
fn set(draft: Draft, setting: Setting) -> Draft {
    let key = RoomKeys::new(&draft.prefix(), &name(ROOM)).setting();
    let numbers = setting.numbers().map(|number| number.to_string());
    draft.text(key, numbers.join(" "))
}

/// Adds `count` active sessions.
fn occupied(draft: Draft, count: u64) -> Draft {
    let key = RoomKeys::new(&draft.prefix(), &name(ROOM)).inside();
    let until = (NOW_MS + SESSION_MS).to_string();
    let members = (0..count).map(|number| (format!("inside{number:02}"), until.clone()));
    draft.stored(key, Content::Zset(members.collect()))
}

/// After another poll of Redis, to which the engine reports its state. Its request matches no room.
fn polled(draft: Draft) -> Draft {
    draft
        .after_polls(POLL_MS, 1)
        .ask(Ask::get("/other"), "goes on")
}

/// A signed-in program.
fn user(user: &str) -> Ask {
    Ask::get(PATH)
        .header("x-user-id", user)
        .header("accept", "application/json")
}

/// A signed-in browser.
fn page(user: &str) -> Ask {
    Ask::get(PATH)
        .header("x-user-id", user)
        .header("accept", "text/html")
}

/// A browser with this pass that is not signed in.
fn browser(pass: &Pass) -> Ask {
    let value = format!("a=b; weir-room-{ROOM}={}", minted(pass));
    Ask::get(PATH)
        .header("accept", "text/html,*/*;q=0.8")
        .header("cookie", value)
}

/// A program that is not signed in, with this text as its pass.
fn program(pass: impl Into<String>) -> Ask {
    Ask::get(PATH)
        .header("accept", "application/json")
        .header("x-weir-room", pass)
}

fn minted(pass: &Pass) -> String {
    pass.mint(&ring(SECRET), &name(ROOM))
}

/// The pass of a visitor with a position, who came a minute ago.
fn place(user: &str, place: u64) -> Pass {
    Pass {
        place,
        head: 4,
        ..Pass::newcomer(Visitor::of_user(user.as_bytes()), NOW_MS - MINUTE_MS)
    }
}

/// The pass of an admitted visitor, valid for `for_ms`.
fn inside(user: &str, for_ms: u64) -> Pass {
    Pass {
        until_ms: NOW_MS + for_ms,
        ..place(user, 3)
    }
}

pub(super) fn vectors() -> Vec<Vector> {
    let mut drafts = entries();
    drafts.extend(places());
    drafts.extend(passes());
    drafts.extend(sessions());
    drafts.extend(settings());
    drafts.extend(bounds());
    drafts.extend(positions());
    drafts.extend(without_redis());
    drafts.into_iter().map(Draft::done).collect()
}

fn entries() -> Vec<Draft> {
    let logo = Ask::get("/shop/logo.svg").header("x-user-id", "alice");
    let other = Ask::get("/other").header("x-weir-room", "anything");
    vec![
        open("enter/nobody-waits").ask(user("alice"), "goes on"),
        open("enter/twice")
            .ask(user("alice"), "goes on")
            .ask(user("alice"), "goes on"),
        open("enter/two")
            .ask(user("alice"), "goes on")
            .ask(user("bob"), "goes on"),
        paused("enter/excepted").ask(logo, "goes on"),
        paused("enter/of-no-room").ask(other, "goes on"),
        paused("enter/called").ask(browser(&place("alice", 4)), "503"),
        used("enter/at-a-pace", json!({ "per_minute": 60 }), 7, 7).ask(user("alice"), "goes on"),
    ]
}

fn places() -> Vec<Draft> {
    vec![
        paused("place/next").ask(user("alice"), "503 room_waiting"),
        paused("place/one-for-each")
            .ask(user("alice"), "503 room_waiting")
            .ask(user("bob"), "503 room_waiting"),
        paused("place/one-a-visitor")
            .ask(user("alice"), "503 room_waiting")
            .ask(user("alice"), "503 room_waiting"),
        paused("place/page").ask(page("alice"), "503"),
        paused("place/post").ask(
            Ask::new("POST", PATH).header("x-user-id", "alice"),
            "503 room_waiting",
        ),
        used("place/status", json!({ "mode": "paused", "status": 200 }), 7, 4)
            .ask(user("alice"), "200 room_waiting"),
        used(
            "place/brand",
            json!({ "mode": "paused", "page": { "brand": "Shoes & <Co>" }, "texts": { "waiting_title": "Bitte warten" } }),
            7,
            4,
        )
        .ask(page("alice"), "503"),
        lost("place/none-yet", json!({})).ask(user("alice"), "503 room_unplaced"),
    ]
}

fn passes() -> Vec<Draft> {
    let of = |name: &str, pass: String| {
        paused(&format!("pass/{name}")).ask(
            program(pass).header("x-user-id", "carol"),
            "503 room_waiting",
        )
    };
    let good = minted(&place("carol", 6));
    let forged = place("carol", 5).mint(&ring("WEIR_CLAIM_SECRET"), &name(ROOM));
    let other_room = place("carol", 5).mint(&ring(SECRET), &name("drop"));
    let old = Pass {
        joined_ms: NOW_MS - DAY_MS,
        ..place("carol", 5)
    };
    vec![
        of("counts", good.clone()),
        of("forged", forged),
        of("of-another-room", other_room),
        of("expired", minted(&old)),
        of("of-somebody-else", minted(&place("dave", 5))),
        of("damaged", good.replacen('.', "..", 1)),
        of("empty", String::new()),
        of("long", "k1.".repeat(200)),
        of("with-other-bytes", r"k1.\xFF.".into()),
        paused("pass/in-the-cookie").ask(browser(&place("carol", 6)), "503"),
    ]
}

fn sessions() -> Vec<Draft> {
    vec![
        polled(paused("session/young").ask(browser(&inside("alice", SESSION_MS)), "goes on")),
        paused("session/over").ask(browser(&inside("alice", 0)), "503"),
        paused("session/in-the-header")
            .ask(program(minted(&inside("alice", SESSION_MS))), "goes on"),
        paused("session/of-somebody-else").ask(
            browser(&inside("alice", SESSION_MS)).header("x-user-id", "bob"),
            "503",
        ),
    ]
}

fn settings() -> Vec<Draft> {
    let of = |vector: &str, mode: Mode, expected: &str| {
        let setting = Setting {
            version: 1,
            mode,
            ..Setting::default()
        };
        set(open(&format!("set/{vector}")), setting).ask(user("alice"), expected)
    };
    let opens = |vector: &str, in_ms: u64| {
        used(
            &format!("set/{vector}"),
            json!({ "opens_at_ms": NOW_MS + in_ms }),
            7,
            7,
        )
    };
    vec![
        of("paused", Mode::Paused, "503 room_waiting"),
        of("closed", Mode::Closed, "503 room_closed"),
        of("draining", Mode::Draining, "503 room_closed"),
        of("bypass", Mode::Bypass, "goes on"),
        polled(
            set(
                open("set/closed-for-who-waits"),
                Setting {
                    version: 1,
                    mode: Mode::Closed,
                    ..Setting::default()
                },
            )
            .ask(program(minted(&place("alice", 9))), "503 room_waiting"),
        ),
        opens("opens-later", MINUTE_MS)
            .ask(user("alice"), "503 room_lobby")
            .ask(user("alice"), "503 room_lobby"),
        opens("opens-in-a-day", DAY_MS).ask(page("alice"), "503"),
        drawn(),
    ]
}

/// Three visitors come before the opening and are drawn: all hosts draw the same order. None is admitted, because the
/// others' wait would depend on the start times of hosts.
fn drawn() -> Draft {
    let opens_at_ms = NOW_MS + 10_000;
    let room = json!({ "opens_at_ms": opens_at_ms, "mode": "paused" });
    let mut draft = used("set/drawn", room, 0, 0);
    draft.vector.config["poll_interval_ms"] = json!(1_000);
    let users = ["alice", "bob", "carol"];
    let draft = users
        .iter()
        .fold(draft, |draft, name| draft.ask(user(name), "503 room_lobby"));
    let pass = |(at, user): (usize, &&str)| Pass {
        place: at as u64 + 1,
        ..Pass::newcomer(Visitor::of_user(user.as_bytes()), NOW_MS)
    };
    let passes = users.iter().enumerate().map(pass);
    passes.fold(draft.after_polls(10_000, 1), |draft, pass| {
        draft.ask(program(minted(&pass)), "503 room_waiting")
    })
}

fn bounds() -> Vec<Draft> {
    let full = json!({ "mode": "paused", "queue_max": 4 });
    let address = json!({ "mode": "paused", "per_address": { "places": 2, "per": "1h" } });
    let active = json!({ "active_max": 2 });
    vec![
        used("bound/full", full, 7, 4)
            .ask(user("alice"), "503 room_waiting")
            .ask(user("bob"), "503 room_full")
            .ask(user("alice"), "503 room_full"),
        used("bound/address", address, 7, 4)
            .ask(user("alice"), "503 room_waiting")
            .ask(user("bob"), "503 room_waiting")
            .ask(user("carol"), "429 room_address")
            .ask(user("carol").from("192.0.2.2:4711"), "503 room_waiting"),
        occupied(used("bound/inside", active.clone(), 7, 7), 1).ask(user("alice"), "goes on"),
        occupied(used("bound/nobody-leaves", active, 7, 7), 2)
            .ask(user("alice"), "503 room_waiting"),
    ]
}

fn positions() -> Vec<Draft> {
    let at = |path: &str| Ask::get(path).header("accept", "application/json");
    let with = |pass: &Pass| at(STATUS).header("x-weir-room", minted(pass));
    vec![
        paused("position/waiting").ask(with(&place("alice", 6)), "200 waiting"),
        paused("position/cookie").ask(
            at(STATUS).header(
                "cookie",
                format!("weir-room-{ROOM}={}", minted(&place("alice", 6))),
            ),
            "200 waiting",
        ),
        paused("position/inside").ask(with(&inside("alice", SESSION_MS)), "200 inside"),
        paused("position/none").ask(at(STATUS), "200 none"),
        open("position/called").ask(with(&place("alice", 6)), "200 hold"),
        paused("position/script").ask(at("/.weir/room/room.js"), "200"),
        paused("position/of-no-room").ask(at("/.weir/room/other"), "goes on"),
        used("position/wait", json!({ "per_minute": 6 }), 40, 4)
            .ask(with(&place("alice", 34)), "200 waiting"),
    ]
}

fn without_redis() -> Vec<Draft> {
    let of = |vector: &str| {
        let mut draft = lost(vector, json!({}));
        draft.vector.config["redis"]["cluster"] = json!("nowhere");
        draft
    };
    vec![
        of("no-redis/newcomer").ask(user("alice"), "503 room_unplaced"),
        of("no-redis/inside").ask(browser(&inside("alice", SESSION_MS)), "goes on"),
        of("no-redis/waiting").ask(program(minted(&place("alice", 6))), "503 room_waiting"),
    ]
}
