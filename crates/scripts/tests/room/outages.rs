//! The counts of a room are correct after a Redis outage.

use super::{GATEWAYS, NOW_MS, Pair, SESSION_MS, open, visitor};
use crate::support::Server;
use weir_room::redis::room_ask::VisitorRequest;
use weir_room::state::{LATE_MS, Status};
use weir_room::{Mode, Setting};

fn paused() -> Setting {
    Setting {
        version: 2,
        mode: Mode::Paused,
        ..Setting::default()
    }
}

#[test]
fn late_visitor_with_two_requests_gets_one_new_place() {
    let server = Server::start();
    let mut redis = server.connect();
    let mut pair = Pair::new(&mut redis, open(0, 1)).settled();
    for number in 0..3 {
        pair.ask(0, &[(number, false)]);
    }
    pair.idle(SESSION_MS + 20_000, &[]);
    let joined = pair.last.joined;
    pair.set(paused());
    // Each time with the same token.
    let ask = VisitorRequest {
        visitor: visitor(1),
        place: 2,
        order: 2,
        joined_ms: NOW_MS,
        address: None,
    };
    for _ in 0..3 {
        let reply = pair.ask_with(0, &[ask], &[(1, false)]);
        assert_eq!(reply, [(Status::Waiting, 4)]);
    }
    assert_eq!(pair.last.joined, joined + 1);
}

#[test]
fn visitor_admitted_by_a_gateway_counts_as_entered() {
    let server = Server::start();
    let mut redis = server.connect();
    let mut pair = Pair::new(&mut redis, open(0, 2)).settled();
    for number in 0..6 {
        pair.ask(0, &[(number, false)]);
    }
    pair.idle(SESSION_MS + 6_000, &[]);
    assert_eq!((pair.last.observed.called, pair.last.entered), (2, 2));
    // During an outage, a gateway admits the two called visitors and a new one.
    pair.wait(18_000);
    for _ in 0..2 {
        let snapshot = pair.entered_alone(1, &[2, 3, 9]);
        assert_eq!((snapshot.entered, snapshot.observed.inside), (5, 3));
        assert_eq!((snapshot.observed.called, snapshot.missed), (0, 0));
    }
    // Their positions are used up.
    pair.idle(SESSION_MS + 6_000, &[]);
    let reply = pair.ask(2, &[(2, false)]);
    assert_eq!(reply, [(Status::Waiting, 7)]);
}

#[test]
fn late_redis_reply_gives_no_place() {
    let server = Server::start();
    let mut redis = server.connect();
    let mut pair = Pair::new(&mut redis, paused()).settled();
    pair.ask(0, &[(0, false), (1, false)]);
    for gateway in 0..GATEWAYS {
        pair.late_ms = LATE_MS + 1;
        let reply = pair.ask(gateway, &[(2, false)]);
        assert_eq!(reply, [(Status::Settling, 0)]);
        // A visitor with a position gets the same one.
        assert_eq!(pair.ask(gateway, &[(1, true)])[0].1, 2);
    }
    assert_eq!(pair.last.joined, 2);
    pair.late_ms = LATE_MS;
    assert_eq!(pair.ask(0, &[(2, false)])[0].1, 3);
}
