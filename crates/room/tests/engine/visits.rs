//! Visitors in normal operation.

use weir_room::Setting;

use crate::world::{START_MS, Visitor, World, config, json};

#[test]
fn visitors_enter_at_once_and_stay_while_there_is_capacity() {
    let mut world = World::new(2, "");
    let mut alice = Visitor::new(1);
    assert!(world.visit(0, &mut alice).has_passed());
    let calls = world.redis.calls;
    let first = alice.cookie.clone();
    for step in 0..10 {
        let response = world.visit(step % 2, &mut alice);
        assert!(response.has_passed() && response.header("set-cookie").is_none());
    }
    assert_eq!(world.redis.calls, calls, "nothing to ask");
    // An active session continues; an idle one ends.
    for _ in 0..10 {
        world.advance(6_000);
        assert!(world.visit(1, &mut alice).has_passed());
    }
    assert_ne!(alice.cookie, first);
    assert_eq!(world.metric("requests_total.room.shop.outcome.entered"), 1);
    world.advance(21_000);
    assert!(world.visit(1, &mut alice).has_passed());
    assert_eq!(
        world.metric("requests_total.room.shop.outcome.entered"),
        2,
        "a newcomer again"
    );
}

#[test]
fn requests_outside_the_room_pass_unchanged() {
    let mut world = World::new(1, r#","mode":"closed""#);
    for path in [
        "/",
        "/shop/static/x.css",
        "/.weir/room/other",
        "/.weir/roomx",
    ] {
        let response = world.ask(0, &mut Visitor::new(1), path, "*/*");
        assert!(response.has_passed(), "{path}");
    }
    assert!(!world.visit(0, &mut Visitor::new(1)).has_passed());
    let script = world.ask(0, &mut Visitor::new(1), "/.weir/room/room.js", "*/*");
    assert!(
        script
            .header("content-type")
            .unwrap()
            .starts_with("text/javascript")
    );
}

#[test]
fn queued_visitors_see_their_position_and_enter_in_order() {
    let mut world = World::new(2, r#","per_minute":60,"per_address":{"places":0}"#);
    let mut visitors: Vec<_> = (0..10).map(Visitor::new).collect();
    let first: Vec<_> = visitors
        .iter_mut()
        .enumerate()
        .map(|(at, visitor)| world.visit(at % 2, visitor).state())
        .collect();
    // One visitor may enter at once: there is a credit of two.
    assert_eq!(
        first.iter().filter(|state| *state == "passed").count(),
        2,
        "{first:?}"
    );
    assert_eq!(world.status(0, &mut visitors[5])["position"], 4);
    assert_eq!(world.status(1, &mut visitors[5])["wait_ms"], 4_000);
    let mut entered = vec![];
    for _ in 0..10 {
        world.advance(1_000);
        for (at, visitor) in visitors.iter_mut().enumerate().skip(2).rev() {
            if !entered.contains(&at) && world.visit(at % 2, visitor).has_passed() {
                entered.push(at);
            }
        }
    }
    assert_eq!(entered, (2..10).collect::<Vec<_>>());
}

#[test]
fn paused_room_has_no_expected_wait() {
    let mut world = World::new(1, r#","mode":"paused","per_minute":60"#);
    let mut alice = Visitor::new(1);
    assert_eq!(world.visit(0, &mut alice).state(), "waiting");
    let told = world.status(0, &mut alice);
    assert_eq!(told["position"], 1);
    assert!(told.get("wait_ms").is_none(), "{told}");
}

#[test]
fn polls_of_waiting_visitors_cause_no_redis_calls() {
    let mut world = World::new(2, r#","per_minute":1"#);
    let mut visitors: Vec<_> = (0..50).map(Visitor::new).collect();
    for visitor in &mut visitors {
        world.visit(0, visitor);
    }
    let calls = world.redis.calls;
    for _ in 0..10 {
        for visitor in &mut visitors {
            world.visit(1, visitor);
            world.status(0, visitor);
        }
    }
    // The first entered in the meantime.
    assert!(
        world.redis.calls - calls <= 2,
        "{}",
        world.redis.calls - calls
    );
}

#[test]
fn api_clients_get_json_and_send_their_pass_in_a_header() {
    let mut world = World::new(1, r#","mode":"paused""#);
    let base = [(":method", "GET"), (":path", "/shop")];
    let response = world.send(0, &base, "192.0.2.9:1");
    let body = json(&response);
    assert_eq!(response.answer().status, 503);
    assert_eq!(
        response.header("content-type").unwrap(),
        "application/problem+json"
    );
    assert_eq!(
        (body["error"].as_str(), body["state"].as_str()),
        (Some("room_waiting"), Some("waiting"))
    );
    assert_eq!(body["type"], "urn:weir:problem:room_waiting");
    assert_eq!(
        body["pass"].as_str().map(Into::into),
        response.header("x-weir-room")
    );
    let retry_after: u64 = response.header("retry-after").unwrap().parse().unwrap();
    assert!(retry_after * 1_000 >= body["poll_ms"].as_u64().unwrap());
    let place = body["position"].clone();
    let pass = body["pass"].as_str().unwrap();
    let again = world.send(0, &[base[0], base[1], ("x-weir-room", pass)], "192.0.2.9:1");
    assert_eq!(json(&again)["position"], place, "the same place");
}

#[test]
fn waiting_visitor_gets_the_configured_status() {
    for status in [200, 202, 429, 503] {
        let room = format!(r#","mode":"paused","status":{status}"#);
        let mut world = World::new(1, &room);
        for accept in ["text/html", "application/json"] {
            let response = world.ask(0, &mut Visitor::new(1), "/shop", accept);
            assert_eq!(response.answer().status, status, "{accept}");
            assert_eq!(response.state(), "waiting");
            assert!(response.header("retry-after").is_some());
        }
        let response = world.ask(0, &mut Visitor::new(2), "/shop", "application/json");
        assert_eq!(json(&response)["status"], status);
    }
}

#[test]
fn empty_user_header_identifies_no_user() {
    let mut world = World::new(1, r#","mode":"paused""#);
    for position in 1..=3 {
        let mut visitor = Visitor {
            user: Some(String::new()),
            ..Visitor::new(position)
        };
        world.visit(0, &mut visitor);
        assert_eq!(world.status(0, &mut visitor)["position"], position);
    }
}

#[test]
fn one_user_has_one_position_and_one_session() {
    let mut world = World::new(2, r#","active_max":1"#);
    let (mut phone, mut laptop) = (Visitor::user("alice"), Visitor::user("alice"));
    world.advance(30_000);
    let mut other = Visitor::new(5);
    assert!(world.visit(0, &mut other).has_passed());
    world.visit(0, &mut phone);
    world.visit(1, &mut laptop);
    assert_eq!(
        world.status(0, &mut phone)["position"],
        world.status(0, &mut laptop)["position"]
    );
    for _ in 0..5 {
        // The other session ends; the page keeps polling.
        world.advance(5_000);
        world.status(0, &mut phone);
    }
    world.advance(1_500);
    assert!(world.visit(0, &mut phone).has_passed());
    assert!(world.visit(1, &mut laptop).has_passed(), "the same session");
    // Another user with that browser's cookie is another visitor.
    laptop.user = Some("bob".into());
    assert!(!world.visit(1, &mut laptop).has_passed());
}

#[test]
fn visitor_with_a_forged_pass_is_treated_as_a_newcomer() {
    let mut world = World::new(1, r#","mode":"paused""#);
    let mut alice = Visitor::new(1);
    world.visit(0, &mut alice);
    let before = world.status(0, &mut alice)["position"].as_u64().unwrap();
    let cookie = alice.cookie.clone().unwrap();
    let forged = [
        cookie.replace(".", "x"),
        format!("{cookie}x"),
        "weir-room-shop=a.b.c".into(),
    ];
    for forged in forged {
        let mut mallory = Visitor::new(2);
        mallory.cookie = Some(forged);
        let response = world.visit(0, &mut mallory);
        assert!(!response.has_passed());
        assert!(world.status(0, &mut mallory)["position"].as_u64().unwrap() > before);
    }
    let refused = world.metric("passes_refused_total.room.shop.reason.malformed")
        + world.metric("passes_refused_total.room.shop.reason.bad_signature");
    assert!(refused >= 3);
}

#[test]
fn passes_stay_valid_during_key_rotation() {
    let ring = |keys: &str| {
        let paused = config(r#","mode":"paused""#);
        paused.replace(r#"[{"secret":{"env":"KEY"}}]"#, keys)
    };
    let old = r#"{"id":"k1","secret":{"env":"KEY"}}"#;
    let new = r#"{"id":"k2","secret":{"env":"OTHER"}}"#;
    let mut before = World::of(1, ring(&format!("[{old}]")));
    let mut alice = Visitor::new(1);
    before.visit(0, &mut alice);
    let mut after = World::of(1, ring(&format!("[{new},{old}]")));
    assert_eq!(after.visit(0, &mut alice).state(), "waiting");
    assert!(alice.cookie.unwrap().starts_with("weir-room-shop=k2."));
}

#[test]
fn early_visitors_wait_and_enter_in_drawn_order() {
    let room = format!(
        r#","opens_at_ms":{},"per_minute":60,"per_address":{{"places":0}}"#,
        START_MS + 60_000
    );
    let mut world = World::new(2, &room);
    let mut early: Vec<_> = (0..30).map(Visitor::new).collect();
    for (at, visitor) in early.iter_mut().enumerate() {
        assert_eq!(world.visit(at % 2, visitor).state(), "lobby");
    }
    let status = world.status(0, &mut early[0]);
    assert_eq!(
        (status["state"].as_str(), status["opens_at_ms"].as_u64()),
        (Some("lobby"), Some(START_MS + 60_000))
    );
    world.advance(START_MS + 61_000 - world.now_ms);
    let mut late = Visitor::new(100);
    world.visit(0, &mut late);
    let mut positions: Vec<_> = early
        .iter_mut()
        .map(|visitor| world.status(1, visitor)["position"].as_u64().unwrap_or(0))
        .collect();
    let in_order_of_arrival = positions.is_sorted();
    assert!(!in_order_of_arrival, "{positions:?}");
    let last = world.status(1, &mut late)["position"].as_u64().unwrap();
    assert!(positions.iter().all(|position| *position < last));
    positions.retain(|position| *position > 0);
    positions.sort_unstable();
    positions.dedup();
    assert!(
        positions.len() >= 27,
        "each has a place of its own: {positions:?}"
    );
}

#[test]
fn room_opens_at_the_earlier_time_set_by_an_operator() {
    let room = format!(r#","opens_at_ms":{}"#, START_MS + 3_600_000);
    let mut world = World::new(2, &room);
    let mut alice = Visitor::new(1);
    assert_eq!(world.visit(0, &mut alice).state(), "lobby");
    for room in world.redis.rooms.values_mut() {
        room.set(Setting {
            version: 1,
            opens_at_ms: world.now_ms + 10_000,
            ..Setting::default()
        });
    }
    world.advance(5_000);
    assert_eq!(world.visit(1, &mut alice).state(), "lobby");
    world.advance(6_000);
    assert!(world.visit(1, &mut alice).has_passed());
}

#[test]
fn address_gets_bounded_positions_across_connections() {
    let mut world = World::new(
        2,
        r#","mode":"paused","per_address":{"places":5,"per":"1h"}"#,
    );
    let mut states: Vec<String> = Vec::new();
    for at in 0..20 {
        let mut bot = Visitor::new(7);
        bot.address = format!("192.0.2.7:{at}");
        states.push(world.visit(at % 2, &mut bot).state());
    }
    assert_eq!(
        states.iter().filter(|state| *state == "waiting").count(),
        5,
        "{states:?}"
    );
    assert!(states[5..].iter().all(|state| state == "address"));
    assert_eq!(world.visit(0, &mut Visitor::new(8)).state(), "waiting");
}

#[test]
fn closed_room_and_full_room_refuse_with_the_reason() {
    let mut world = World::new(1, r#","mode":"closed""#);
    let response = world.visit(0, &mut Visitor::new(1));
    assert_eq!(
        (response.answer().status, response.state().as_str()),
        (503, "closed")
    );
    assert_eq!(response.header("set-cookie"), None);
    let mut world = World::new(1, r#","mode":"paused","queue_max":3"#);
    let states: Vec<_> = (0..6)
        .map(|number| world.visit(0, &mut Visitor::new(number)).state())
        .collect();
    assert_eq!(
        states.iter().filter(|state| *state == "full").count(),
        3,
        "{states:?}"
    );
}

#[test]
fn room_page_is_not_cacheable_or_frameable_and_refreshes() {
    let mut world = World::new(1, r#","mode":"paused","page":{"brand":"<Shop>"}"#);
    let response = world.visit(0, &mut Visitor::new(1));
    assert_eq!(response.header("cache-control").unwrap(), "no-store");
    let policy = response.header("content-security-policy").unwrap();
    assert!(policy.starts_with("default-src 'none'; style-src 'sha256-"));
    let html = String::from_utf8(response.answer().body.clone()).unwrap();
    for part in [
        "&lt;Shop&gt;",
        "http-equiv=\"refresh\"",
        "role=\"status\"",
        "lang=\"en\"",
    ] {
        assert!(html.contains(part), "{part}");
    }
}

/// A request for the shop, or for the position at `path`, with this `Accept` and `Accept-Language`.
fn in_language(world: &mut World, path: &str, accept: &str, language: &str, pass: &str) -> String {
    let headers = [
        (":method", "GET"),
        (":path", path),
        ("accept", accept),
        ("accept-language", language),
        ("x-weir-room", pass),
    ];
    let sent = if pass.is_empty() { 4 } else { 5 };
    let state = world.send(0, &headers[..sent], "192.0.2.9:1");
    String::from_utf8(state.answer().body.clone()).unwrap()
}

#[test]
fn waiting_visitor_reads_the_page_and_json_in_own_language() {
    for is_early in [false, true] {
        let mut world = World::new(1, r#","mode":"paused","active_max":1"#);
        world.is_early = is_early;
        for (language, tag, brand, title) in [
            ("fr", "en", "Waiting room", "The line is paused"),
            (
                "de-AT,en;q=0.5",
                "de",
                "Warteraum",
                "Die Warteschlange ist angehalten",
            ),
            ("zh-CN", "zh", "等候室", "排队已暂停"),
        ] {
            // First from Redis, then from memory.
            let json = in_language(&mut world, "/shop", "application/json", language, "");
            let json: serde_json::Value = serde_json::from_str(&json).unwrap();
            let pass = json["pass"].as_str().unwrap();
            let page = in_language(&mut world, "/shop", "text/html", language, pass);
            assert!(page.contains(&format!("<html lang=\"{tag}\">")), "{page}");
            assert!(page.contains(&format!("– {brand}</title>")), "{page}");
            assert!(page.contains(&format!("<h1 data-room=\"title\">{title}</h1>")));
            assert!(page.contains(json["message"].as_str().unwrap()), "{page}");
            let path = "/.weir/room/shop";
            let status = in_language(&mut world, path, "application/json", language, pass);
            let status: serde_json::Value = serde_json::from_str(&status).unwrap();
            assert_eq!(status["text"]["title"], title);
        }
        assert_eq!(world.early_answers > 0, is_early);
    }
}

#[test]
fn rooms_own_language_and_texts_replace_the_visitors_language() {
    let own = r#","mode":"closed","texts":{"closed_title":"Shoes are gone"}"#;
    let page = in_language(&mut World::new(1, own), "/shop", "text/html", "de", "");
    assert!(
        page.contains("<html lang=\"en\">")
            && page.contains("<h1 data-room=\"title\">Shoes are gone</h1>")
    );
    assert!(
        page.contains("You cannot join the line right now"),
        "{page}"
    );
    let german = r#","mode":"closed","page":{"lang":"de-CH"}"#;
    let page = in_language(&mut World::new(1, german), "/shop", "text/html", "zh", "");
    assert!(page.contains("<html lang=\"de-CH\">"), "{page}");
    assert!(page.contains("Die Warteschlange ist geschlossen"), "{page}");
}

#[test]
fn disconnected_client_leaves_no_state_in_the_room() {
    let mut world = World::new(1, "");
    let headers = [(":method", "GET"), (":path", "/shop")];
    for _ in 0..100 {
        let stream = world.begin(0, &headers, "192.0.2.1:1");
        world.leave(0, stream);
    }
    world.advance(1_000);
    assert_eq!(world.gateways[0].engine.open(), (0, 0));
}
