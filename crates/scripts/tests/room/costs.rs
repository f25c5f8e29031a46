//! The memory of a queue in Redis.

use super::{NOW_MS, name, open};
use crate::support::{Redis, Server};
use weir_base::resp::Value;
use weir_room::redis::keys::RoomKeys;
use weir_room::redis::room::CallContext;
use weir_room::redis::room_ask::VisitorRequest;
use weir_room::redis::{room_ask, room_tick};
use weir_room::state::SETTLE_MS;
use weir_room::{RoomState, Terms, Visitor};

/// The cost of a million visitors in the queue; run by hand, with `--ignored --nocapture`.
#[test]
#[ignore = "a measurement: a million places take a minute"]
fn memory_of_a_million_places() {
    let server = Server::start();
    let mut redis = server.connect();
    let keys = RoomKeys::new("test", &name());
    let context = CallContext {
        terms: Terms {
            queue_max: 0,
            address_max: 100,
            address_ms: 3_600_000,
            claim_ms: 120_000,
            session_ms: 600_000,
            life_ms: 86_400_000,
        },
        setting: open(600, 0),
        observed: RoomState::default(),
        asked_ms: 0,
    };
    redis.run(&room_tick::call(&keys, &context, &[]));
    std::thread::sleep(std::time::Duration::from_millis(SETTLE_MS));
    let used = |redis: &mut Redis| {
        let Value::Bulk(info) = redis.command(&[b"INFO", b"memory"]) else {
            panic!("no text")
        };
        let info = String::from_utf8(info).unwrap();
        let line = info
            .lines()
            .find_map(|line| line.strip_prefix("used_memory:"));
        line.unwrap().trim().parse::<u64>().unwrap()
    };
    let empty = used(&mut redis);
    let started = std::time::Instant::now();
    for batch in 0..1_000_000_u64 / 64 {
        let ask = |at: u64| {
            let number = batch * 64 + at;
            VisitorRequest {
                visitor: Visitor::of_user(&number.to_le_bytes()),
                place: 0,
                order: 0,
                joined_ms: NOW_MS,
                address: Some(*Visitor::of_user(&(number ^ 1 << 40).to_le_bytes()).as_bytes()),
            }
        };
        let asks: Vec<VisitorRequest> = (0..64).map(ask).collect();
        let reply = redis.run(&room_ask::call(&keys, &context, &asks));
        room_ask::parse(&reply, 64).unwrap();
    }
    let seconds = started.elapsed().as_secs_f64();
    let bytes = used(&mut redis) - empty;
    println!(
        "1,000,000 places of as many addresses: {:.1} MB, {:.0} places a second",
        bytes as f64 / 1e6,
        1e6 / seconds
    );
}
