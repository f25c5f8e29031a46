//! Who enters, who waits, and responses to hostile clients.

use serde_json::Value;
use weir_host_test::StreamState;

use super::support::{Gate, config, cookie, module, own_response};

/// The queue token in the response to a request that has passed.
fn entered(stream: &weir_host_test::Stream) -> Option<String> {
    stream.respond(200, [("set-cookie", "of=the-shop")], "hello");
    let StreamState::Responded(response) = stream.state() else {
        panic!("{:?}", stream.state());
    };
    let cookies = response.headers.get_all("set-cookie");
    let cookies: Vec<String> = cookies
        .map(|cookie| String::from_utf8_lossy(cookie).into_owned())
        .collect();
    assert_eq!(cookies[0], "of=the-shop", "the shop's own cookie stays");
    let ours = cookies
        .iter()
        .find(|cookie| cookie.starts_with("weir-room-shop="));
    ours.map(|cookie| cookie.split(';').next().unwrap().to_owned())
}

#[test]
fn admitted_visitor_keeps_shop_cookies_and_session_everywhere() {
    let gate = Gate::new("", 2);
    let first = gate.ask(0, &[("accept", "text/html")]);
    let cookie = entered(&first).expect("a session");
    for worker in [0, 1] {
        let again = gate.ask(worker, &[("cookie", &cookie)]);
        assert_eq!(entered(&again), None, "it is young");
    }
}

#[test]
fn newcomers_wait_in_order_across_workers() {
    let gate = Gate::new(r#", "mode": "paused" "#, 2);
    let mut cookies = Vec::new();
    for number in 0..6 {
        let stream = gate.ask(number % 2, &[("accept", "text/html")]);
        let (status, headers, page) = own_response(&stream);
        assert_eq!(status, 503);
        assert!(page.contains("<main"), "{page}");
        cookies.push(cookie(&headers).unwrap());
    }
    gate.look();
    for (number, cookie) in cookies.iter().enumerate() {
        let (_, _, body) = own_response(&gate.ask((number + 1) % 2, &[("cookie", cookie)]));
        let document: Value = serde_json::from_str(&body).unwrap();
        assert_eq!(document["position"], number as u64 + 1);
    }
}

#[test]
fn arbitrary_header_bytes_are_answered_without_memory_growth() {
    let gate = Gate::new(r#", "mode": "closed" "#, 1);
    let hostile: [&[u8]; 6] = [
        b"weir-room-shop=\xff\xfe",
        b"weir-room-shop=",
        b"weir-room-shop=..",
        b";;;,=,weir-room-shop",
        &[b'a'; 8_000],
        b"weir-room-shop=k1.AAAA.AAAA",
    ];
    let ask = |bytes: &[u8]| {
        let request = gate.host.request(0).path("/shop");
        let stream = request
            .header("cookie", bytes)
            .header("x-weir-room", bytes)
            .send();
        gate.host.run_until_idle();
        assert_eq!(own_response(&stream).0, 503);
    };
    hostile.iter().for_each(|bytes| ask(bytes));
    let pages = gate.host.memory_pages(0);
    for _ in 0..500 {
        hostile.iter().for_each(|bytes| ask(bytes));
    }
    assert_eq!(gate.host.memory_pages(0), pages);
    assert!(gate.host.is_alive(0));
}

#[test]
fn clients_that_leave_in_the_middle_leave_nothing() {
    let gate = Gate::new("", 1);
    for _ in 0..50 {
        gate.host.request(0).path("/shop").send().disconnect();
    }
    let pages = gate.host.memory_pages(0);
    for _ in 0..2_000 {
        gate.host.request(0).path("/shop").send().disconnect();
    }
    gate.host.run_until_idle();
    assert_eq!(gate.host.memory_pages(0), pages);
}

#[test]
fn invalid_configuration_is_refused_by_its_field() {
    for (config, field) in [
        (config(r#", "claim": "1s" "#), "rooms[0].claim"),
        (
            config(r#", "page": { "template": "{{colour}}" } "#),
            "rooms[0].page.template",
        ),
        (config("").replace("KEY", "NONE"), "keys[0].secret.env"),
        (String::new(), "configuration refused"),
    ] {
        let error = module().plugin_config(&config).start().err().unwrap();
        let logged = error.logs().iter().any(|line| line.message.contains(field));
        assert!(logged, "{config}: {error}");
    }
}

/// Most of the cost is the hash of each token: two for a position, whose token is signed again, one for an active
/// session.
#[test]
fn room_request_stays_within_its_budget() {
    let gate = Gate::new("", 1);
    let session = entered(&gate.ask(0, &[])).expect("a session");
    let inside = gate.ask(0, &[("cookie", &session)]).cost().fuel;
    let gate = Gate::new(r#", "mode": "paused" "#, 1);
    let (_, headers, _) = own_response(&gate.ask(0, &[]));
    let waiting = cookie(&headers).unwrap();
    let position = gate.ask(0, &[("cookie", &waiting)]).cost().fuel;
    println!("inside {inside}, position {position} instructions");
    assert!(inside < 38_000, "{inside}");
    assert!(position < 84_000, "{position}");
}
