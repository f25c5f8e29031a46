//! Properties under random events.

use std::collections::BTreeMap;

use proptest::prelude::*;
use proptest::test_runner::Config;

use crate::world::{Link, Visitor, World, config};

const ACTIVE_MAX: usize = 4;
const SESSION_MS: u64 = 20_000;

#[derive(Clone, Debug)]
enum Step {
    Visit(usize, usize),
    Status(usize, usize),
    Advance(u64),
    Replace(usize),
    Link(Link),
    Lose,
}

fn any_step() -> impl Strategy<Value = Step> {
    let link = prop::sample::select(vec![Link::Up, Link::Up, Link::Down, Link::Mute]);
    prop_oneof![
        20 => (0..3_usize, 0..20_usize).prop_map(|(at, visitor)| Step::Visit(at, visitor)),
        10 => (0..3_usize, 0..20_usize).prop_map(|(at, visitor)| Step::Status(at, visitor)),
        8 => (100..4_000_u64).prop_map(Step::Advance),
        1 => (0..3_usize).prop_map(Step::Replace),
        2 => link.prop_map(Step::Link),
        1 => Just(Step::Lose),
    ]
}

proptest! {
    #![proptest_config(Config { cases: 60, failure_persistence: None, ..Config::default() })]

    /// Redis and gateways fail at random and lose their state. No position gets worse while its visitor polls. The
    /// limit of active sessions holds while Redis keeps its data and has all sessions.
    #[test]
    fn queue_position_never_gets_worse(steps in prop::collection::vec(any_step(), 1..80)) {
        let room = config(r#","active_max":4,"per_address":{"places":0}"#);
        let mut world = World::of(3, room.replace(r#""claim":"6s""#, r#""claim":"1h""#));
        let mut visitors: Vec<_> = (0..20).map(Visitor::new).collect();
        let mut positions: BTreeMap<usize, u64> = BTreeMap::new();
        let mut inside: BTreeMap<usize, u64> = BTreeMap::new();
        let mut has_lost = false;
        let mut unheard_until_ms = 0;
        for step in steps {
            match step {
                Step::Advance(ms) => world.advance(ms),
                Step::Replace(at) => world.replace(at),
                Step::Link(link) => world.link = link,
                Step::Lose => {
                    world.redis.rooms.clear();
                    has_lost = true;
                }
                Step::Visit(at, visitor) => {
                    if world.visit(at, &mut visitors[visitor]).has_passed() {
                        let until_ms = world.now_ms + SESSION_MS;
                        inside.insert(visitor, until_ms);
                        positions.remove(&visitor);
                        if world.link != Link::Up {
                            unheard_until_ms = until_ms;
                        }
                    }
                    inside.retain(|_, until_ms| *until_ms > world.now_ms);
                    let is_known = !has_lost && world.now_ms >= unheard_until_ms;
                    prop_assert!(!is_known || inside.len() <= ACTIVE_MAX, "{} are inside", inside.len());
                }
                Step::Status(at, visitor) => {
                    let status = world.status(at, &mut visitors[visitor]);
                    let Some(position) = status["position"].as_u64() else { continue };
                    let before = positions.insert(visitor, position);
                    prop_assert!(before.is_none_or(|before| position <= before), "{before:?} {position}");
                }
            }
        }
        for at in 0..3 {
            prop_assert_eq!(world.gateways[at].engine.open(), (0, 0));
        }
    }

    /// Any bytes from a client get an answer.
    #[test]
    fn requests_with_arbitrary_bytes_are_answered(
        path in prop::collection::vec(any::<u8>(), 0..60),
        cookie in prop::collection::vec(any::<u8>(), 0..300),
        accept in prop::collection::vec(any::<u8>(), 0..40),
    ) {
        let mut world = World::new(1, r#","mode":"paused""#);
        let path = String::from_utf8_lossy(&path).into_owned();
        let path = format!("/shop{path}");
        let cookie = format!("weir-room-shop={}", String::from_utf8_lossy(&cookie));
        let accept = String::from_utf8_lossy(&accept).into_owned();
        let headers = [(":path", path.as_str()), ("cookie", &cookie), ("accept", &accept)];
        let response = world.send(0, &headers, "no address");
        let is_static = path.starts_with("/shop/static");
        prop_assert_eq!(response.has_passed(), is_static);
    }
}
