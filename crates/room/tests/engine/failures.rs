//! Visitors during an outage of Redis or a gateway.

use crate::world::{Link, Visitor, World, config};

#[test]
fn newcomers_are_unplaced_until_redis_has_the_room() {
    let mut world = World::unsettled(2, config(""));
    let mut alice = Visitor::new(1);
    assert_eq!(world.visit(0, &mut alice).state(), "unplaced");
    world.advance(2_500);
    assert!(world.visit(1, &mut alice).has_passed());
}

#[test]
fn positions_survive_gateway_crash_and_loss_of_all_data() {
    let mut world = World::new(2, r#","mode":"paused","per_address":{"places":0}"#);
    let mut visitors: Vec<_> = (0..20).map(Visitor::new).collect();
    for visitor in &mut visitors {
        world.visit(0, visitor);
    }
    let mut positions = |world: &mut World| -> Vec<u64> {
        let position = |visitor: &mut Visitor| {
            let status = world.status(1, visitor);
            status["position"].as_u64().unwrap()
        };
        visitors.iter_mut().map(position).collect()
    };
    world.advance(1_500);
    let before = positions(&mut world);
    world.replace(0);
    assert_eq!(positions(&mut world), before);
    world.redis.rooms.clear();
    world.advance(500);
    assert_eq!(positions(&mut world), before);
    world.advance(3_000);
    assert_eq!(positions(&mut world), before);
    // New visitors queue behind all of them.
    let mut late = Visitor::new(50);
    world.visit(0, &mut late);
    let last = world.status(0, &mut late)["position"].as_u64().unwrap();
    assert!(last > *before.last().unwrap(), "{last} {before:?}");
}

#[test]
fn tokens_restore_queue_after_loss_of_all_gateways_and_redis() {
    let mut world = World::new(2, r#","mode":"paused","per_address":{"places":0}"#);
    let mut visitors: Vec<_> = (0..20).map(Visitor::new).collect();
    for visitor in &mut visitors {
        world.visit(0, visitor);
    }
    let last = world.status(0, &mut visitors[19])["position"]
        .as_u64()
        .unwrap();
    world.redis.rooms.clear();
    world.replace(0);
    world.replace(1);
    // One of them requests admission before the room is restored.
    world.visit(0, &mut visitors[19]);
    world.advance(4_000);
    let mut late = Visitor::new(60);
    world.visit(1, &mut late);
    assert_eq!(
        world.status(1, &mut late)["position"].as_u64(),
        Some(last + 1)
    );
}

#[test]
fn sessions_survive_redis_outage_and_others_enter_at_local_pace() {
    let mut world = World::new(
        1,
        r#","per_minute":60,"without_redis":{"per_minute":60},"per_address":{"places":0}"#,
    );
    let mut inside = Visitor::new(1);
    world.advance(2_000);
    assert!(world.visit(0, &mut inside).has_passed());
    let mut visitors: Vec<_> = (10..30).map(Visitor::new).collect();
    for visitor in &mut visitors {
        world.visit(0, visitor);
    }
    world.link = Link::Down;
    world.advance(4_500);
    assert!(world.visit(0, &mut inside).has_passed());
    let mut entered = Vec::new();
    for _ in 0..10 {
        world.advance(1_000);
        // Visitors enter in queue order, independent of the order of their requests.
        let mut next = Vec::new();
        for (at, visitor) in visitors.iter_mut().enumerate().rev() {
            if !entered.contains(&at) && world.visit(0, visitor).has_passed() {
                next.push(at);
            }
        }
        entered.extend(next.into_iter().rev());
        assert!(
            world.visit(0, &mut Visitor::new(99)).state() == "unplaced",
            "it has no place"
        );
        world.visit(0, &mut inside);
    }
    assert!(entered.is_sorted(), "in the order of places: {entered:?}");
    assert!((8..=16).contains(&entered.len()), "{entered:?}");
    let local = world.metric("requests_total.room.shop.outcome.local");
    assert!(local >= 8, "{local}");
    // Redis is back, empty: no position gets worse, entries in the meantime count, and the queue continues.
    world.redis.rooms.clear();
    world.link = Link::Up;
    world.advance(1_500);
    let inside = world
        .redis
        .rooms
        .values()
        .map(weir_room::model::Model::inside)
        .sum::<usize>();
    assert!(inside >= 8, "{inside}");
    world.advance(6_500);
    let next = (0..20).find(|at| !entered.contains(at)).unwrap();
    assert!(world.visit(0, &mut visitors[next]).has_passed());
}

#[test]
fn visitors_admitted_without_redis_are_counted_on_recovery() {
    let mut world = World::new(1, r#","active_max":2,"per_address":{"places":0}"#);
    world.advance(30_000);
    let mut visitors: Vec<_> = (0..5).map(Visitor::new).collect();
    for visitor in &mut visitors {
        world.visit(0, visitor);
    }
    // All sessions end, two visitors are called. Then Redis is down for longer than a claim period.
    world.advance(26_500);
    let before = world.redis.last;
    assert_eq!(before.observed.called, 2);
    world.link = Link::Down;
    world.advance(9_000);
    for visitor in &mut visitors[2..4] {
        assert!(world.visit(0, visitor).has_passed());
    }
    world.link = Link::Up;
    world.advance(2_000);
    let after = world.redis.last;
    assert_eq!(after.entered, before.entered + 2);
    assert_eq!((after.observed.called, after.missed), (0, before.missed));
}

#[test]
fn gateway_without_local_pace_refuses_all_and_sends_retry() {
    let mut world = World::new(1, "");
    world.link = Link::Down;
    world.advance(5_000);
    for number in 0..5 {
        let response = world.visit(0, &mut Visitor::new(number));
        assert_eq!(response.state(), "unplaced");
        assert!(response.header("retry-after").is_some());
    }
}

#[test]
fn redis_refusals_are_counted_and_logged_once() {
    let mut world = World::new(1, "");
    world.link = Link::Full;
    let requested = 5;
    for number in 0..requested {
        let response = world.visit(0, &mut Visitor::new(number));
        assert_eq!(response.state(), "unplaced");
    }
    let refused = world.metric("redis_refused_total.reason.oom");
    assert!(refused >= requested as u64, "{refused}");
    let log = &world.gateways[0].log;
    let lines = log.iter().filter(|line| line.contains("Redis refuses"));
    assert_eq!(lines.count(), 1, "{log:?}");
}

/// The reply was lost: the visitor keeps the position that was assigned.
#[test]
fn lost_reply_does_not_assign_two_positions() {
    let mut world = World::new(1, r#","mode":"paused""#);
    let mut alice = Visitor::new(1);
    world.link = Link::Mute;
    assert_eq!(world.visit(0, &mut alice).state(), "unplaced");
    world.link = Link::Up;
    assert_eq!(world.visit(0, &mut alice).state(), "waiting");
    let first = world.status(0, &mut alice)["position"].as_u64().unwrap();
    let mut bob = Visitor::new(2);
    world.visit(0, &mut bob);
    assert_eq!(
        world.status(0, &mut bob)["position"].as_u64(),
        Some(first + 1)
    );
}

#[test]
fn unclaimed_turn_passes_to_the_next_visitor() {
    let mut world = World::new(1, r#","active_max":2,"per_address":{"places":0}"#);
    world.advance(30_000);
    let mut visitors: Vec<_> = (0..5).map(Visitor::new).collect();
    let states: Vec<_> = visitors
        .iter_mut()
        .map(|visitor| world.visit(0, visitor).state())
        .collect();
    assert_eq!(
        states,
        ["passed", "passed", "waiting", "waiting", "waiting"]
    );
    // All sessions end, two visitors are called. One never returns.
    world.advance(26_500);
    assert!(world.visit(0, &mut visitors[3]).has_passed());
    assert_eq!(world.visit(0, &mut visitors[4]).state(), "waiting");
    world.advance(7_500);
    assert!(world.visit(0, &mut visitors[4]).has_passed());
    assert_eq!(
        world.visit(0, &mut visitors[2]).state(),
        "waiting",
        "it came too late"
    );
    assert_eq!(world.metric("rejoined_total.room.shop"), 1);
}
