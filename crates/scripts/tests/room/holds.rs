//! Called visitors without capacity keep their positions.

use super::{CLAIM_MS, GATEWAYS, Pair, SESSION_MS, open};
use crate::support::{Redis, Server};
use weir_room::Setting;
use weir_room::state::{SETTLE_MS, Status};

/// A room with visitor 0 inside, positions 4 and 5 (visitors 3 and 4) called, position 6 waiting, and no further
/// capacity.
fn crowded(redis: &mut Redis) -> Pair<'_> {
    let mut pair = Pair::new(redis, open(0, 3)).settled();
    pair.terms.address_max = 0;
    for number in 0..6 {
        pair.ask(0, &[(number, false)]);
    }
    let snapshot = pair.idle(SESSION_MS + 6_000, &[0]);
    assert_eq!((snapshot.observed.inside, snapshot.observed.head), (1, 5));
    pair.set(version(1, open(0, 1)));
    pair
}

fn version(version: u64, setting: Setting) -> Setting {
    Setting { version, ..setting }
}

#[test]
fn called_visitor_keeps_the_place_while_there_is_no_room() {
    let server = Server::start();
    let mut redis = server.connect();
    let mut pair = crowded(&mut redis);
    for second in 0..40 {
        let reply = pair.ask(second % GATEWAYS, &[(3, false), (4, false)]);
        assert_eq!(reply, [(Status::Hold, 4), (Status::Hold, 5)], "{second}");
        let snapshot = pair.idle(1_000, &[0]);
        assert_eq!((snapshot.observed.called, snapshot.missed), (2, 0));
    }
    // A visitor who has lost the token gets the same position.
    assert_eq!(pair.ask(0, &[(3, true)]), [(Status::Waiting, 4)]);
    pair.set(version(2, open(0, 2)));
    let reply = pair.ask(1, &[(5, false), (4, false), (3, false)]);
    assert_eq!(
        reply,
        [(Status::Waiting, 6), (Status::Hold, 5), (Status::Inside, 4)]
    );
    pair.set(version(3, open(0, 4)));
    assert_eq!(pair.ask(2, &[(4, false)]), [(Status::Inside, 5)]);
    let snapshot = pair.idle(2 * CLAIM_MS, &[0, 3, 4]);
    assert_eq!(
        (snapshot.entered, snapshot.missed),
        (5, 1),
        "6 did not come"
    );
    assert_eq!(snapshot.observed.floor, 6);
}

#[test]
fn absent_visitor_delays_later_ones_by_at_most_one_claim() {
    let server = Server::start();
    let mut redis = server.connect();
    let mut pair = crowded(&mut redis);
    let reply = pair.ask(0, &[(3, false), (4, false)]);
    assert_eq!(reply, [(Status::Hold, 4), (Status::Hold, 5)]);
    pair.set(version(2, open(0, 2)));
    // Visitor 3 stops polling.
    let mut waited_ms = 0;
    while pair.ask(1, &[(4, false)])[0].0 == Status::Hold {
        pair.idle(400, &[0]);
        waited_ms += 400;
    }
    assert_eq!(waited_ms, CLAIM_MS + 400);
    assert_eq!(pair.passes[&4], 5);
    assert_eq!(pair.idle(400, &[0, 4]).missed, 1);
    assert_eq!(pair.ask(2, &[(3, false)]), [(Status::Waiting, 7)]);
}

#[test]
fn held_place_survives_every_loss_of_redis() {
    let server = Server::start();
    let mut redis = server.connect();
    for subject in 0..5 {
        let mut pair = crowded(&mut redis);
        for _ in 0..3 * CLAIM_MS / 1_000 {
            pair.ask(0, &[(3, false), (4, false)]);
            pair.idle(1_000, &[0]);
        }
        pair.lose(subject);
        pair.set(version(2, open(0, 1)));
        for _ in 0..3 * CLAIM_MS / 1_000 {
            let reply = pair.ask(1, &[(3, false), (4, false)]);
            let places: Vec<_> = reply.iter().map(|(_, place)| *place).collect();
            assert_eq!(places, [4, 5], "{subject}: {reply:?}");
            pair.idle(1_000, &[0]);
        }
        pair.set(version(3, open(0, 3)));
        let reply = pair.ask(2, &[(5, false), (4, false), (3, false)]);
        assert_eq!(
            reply[1..],
            [(Status::Inside, 5), (Status::Inside, 4)],
            "{subject}"
        );
    }
}

#[test]
fn called_places_stay_called_when_redis_loses_the_room() {
    let server = Server::start();
    let mut redis = server.connect();
    let mut pair = Pair::new(&mut redis, open(0, 2)).settled();
    for number in 0..6 {
        pair.ask(0, &[(number, false)]);
    }
    pair.idle(SESSION_MS + 6_000, &[]);
    for gateway in 0..GATEWAYS {
        assert_eq!(pair.tick(gateway, &[]).observed.called, 2);
    }
    pair.lose(0);
    let snapshot = pair.idle(SETTLE_MS + 1_000, &[]);
    assert_eq!((snapshot.observed.head, snapshot.observed.called), (4, 2));
    assert_eq!(pair.ask(1, &[(9, false)]), [(Status::Waiting, 7)]);
    let reply = pair.ask(2, &[(2, false), (3, false)]);
    assert_eq!(reply, [(Status::Inside, 3), (Status::Inside, 4)]);
}

#[test]
fn claim_timer_pauses_during_redis_outages_and_clock_changes() {
    let server = Server::start();
    let mut redis = server.connect();
    let hour_ms = 3_600_000;
    for by_ms in [60_000, hour_ms] {
        let mut pair = crowded(&mut redis);
        pair.wait(by_ms);
        assert_eq!(pair.tick(0, &[]).missed, 0);
        let reply = pair.ask(1, &[(3, false), (4, false)]);
        assert_eq!(reply, [(Status::Inside, 4), (Status::Hold, 5)]);
    }
    let mut pair = crowded(&mut redis);
    pair.now_ms -= hour_ms;
    pair.wait(0);
    assert_eq!(pair.ask(1, &[(4, false)]), [(Status::Hold, 5)]);
    for _ in 0..8 {
        pair.idle(1_000, &[0]);
        assert_eq!(pair.ask(1, &[(4, false)]), [(Status::Hold, 5)]);
    }
    assert_eq!(pair.last.missed, 1, "visitor 3 has not come");
}

#[test]
fn claim_timer_does_not_run_before_an_opening() {
    let server = Server::start();
    let mut redis = server.connect();
    let mut pair = crowded(&mut redis);
    let opens_at_ms = pair.now_ms + 4 * CLAIM_MS;
    let setting = Setting {
        opens_at_ms,
        ..open(0, 3)
    };
    pair.set(version(2, setting));
    while pair.now_ms < opens_at_ms {
        assert!(pair.idle(1_000, &[0]).missed == 0);
    }
    assert!(!pair.idle(1_000, &[0]).is_lobby);
    let reply = pair.ask(1, &[(3, false), (4, false)]);
    assert_eq!(reply, [(Status::Inside, 4), (Status::Inside, 5)]);
}
