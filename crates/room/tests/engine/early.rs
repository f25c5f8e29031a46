//! Decisions before the HTTP stack equal the engine's decisions on the same requests, and count once.

use proptest::prelude::*;
use proptest::test_runner::Config;
use weir_engine::EarlyDecision;
use weir_room::{Mode, Setting};

use crate::world::{Link, RoomState, Visitor, World, config};

const GATEWAYS: usize = 2;
const PLACES: [&str; 8] = [
    "/shop",
    "/shop?a=/.weir/room/shop",
    "/shop/static/x.css",
    "/other",
    "/.weir/room/shop",
    "/.weir/room/shop?n=1",
    "/.weir/room/none",
    "/.weir/room/room.js",
];

#[derive(Clone, Debug)]
enum Step {
    /// A request of a browser: gateway, visitor, path.
    Ask(usize, usize, &'static str),
    /// A request of a program, which sends the token of the visitor in the header.
    Program(usize, usize, &'static str),
    /// The visitor's token was changed.
    Forge(usize),
    /// The visitor signs in.
    SignIn(usize),
    Advance(u64),
    Replace(usize),
    Link(Link),
    Set(Mode, u64),
    Lose,
}

fn any_step() -> impl Strategy<Value = Step> {
    let link = prop::sample::select(vec![Link::Up, Link::Up, Link::Down, Link::Mute]);
    let at = 0..GATEWAYS;
    let visitor = 0..12_usize;
    let path = prop::sample::select(PLACES.to_vec());
    let ask = (at.clone(), visitor.clone(), path);
    prop_oneof![
        30 => ask.clone().prop_map(|(at, visitor, path)| Step::Ask(at, visitor, path)),
        10 => ask.prop_map(|(at, visitor, path)| Step::Program(at, visitor, path)),
        2 => visitor.clone().prop_map(Step::Forge),
        1 => visitor.prop_map(Step::SignIn),
        10 => (100..6_000_u64).prop_map(Step::Advance),
        1 => at.prop_map(Step::Replace),
        2 => link.prop_map(Step::Link),
        3 => (prop::sample::select(Mode::ALL.to_vec()), 0..20_000_u64)
            .prop_map(|(mode, opens_in_ms)| Step::Set(mode, opens_in_ms)),
        1 => Just(Step::Lose),
    ]
}

/// A world and its visitors.
struct Run {
    world: World,
    visitors: Vec<Visitor>,
    version: u64,
}

impl Run {
    fn new(is_early: bool) -> Self {
        let room = r#","per_minute":60,"active_max":3,"queue_max":6,"without_redis":{"per_minute":60},
            "per_address":{"places":4}"#;
        let mut world = World::unsettled(GATEWAYS, config(room));
        world.is_early = is_early;
        Self {
            world,
            visitors: (0..12).map(|number| Visitor::new(number / 2)).collect(),
            version: 0,
        }
    }

    fn step(&mut self, step: &Step) -> Option<RoomState> {
        let Self {
            world, visitors, ..
        } = self;
        match *step {
            Step::Ask(at, visitor, path) => {
                return Some(world.ask(at, &mut visitors[visitor], path, "text/html,*/*"));
            }
            Step::Program(at, visitor, path) => {
                let token = visitors[visitor].cookie.clone().unwrap_or_default();
                let token = token.split_once('=').map_or("", |(_, token)| token);
                let headers = [
                    (":method", "POST"),
                    (":path", path),
                    (":scheme", "http"),
                    ("x-weir-room", token),
                    ("x-user", ""),
                ];
                return Some(world.send(at, &headers, &visitors[visitor].address));
            }
            Step::Forge(visitor) => visitors[visitor]
                .cookie
                .iter_mut()
                .for_each(|it| it.push('x')),
            Step::SignIn(visitor) => visitors[visitor].user = Some(format!("user-{}", visitor / 3)),
            Step::Advance(ms) => world.advance(ms),
            Step::Replace(at) => world.replace(at),
            Step::Link(link) => world.link = link,
            Step::Lose => world.redis.rooms.clear(),
            Step::Set(mode, opens_in_ms) => {
                self.version += 1;
                let opens_at_ms = match opens_in_ms {
                    0..10_000 => 0,
                    opens_in_ms => world.now_ms + opens_in_ms,
                };
                for room in world.redis.rooms.values_mut() {
                    room.set(Setting {
                        version: self.version,
                        mode,
                        per_minute: 60,
                        active_max: 3,
                        opens_at_ms,
                    });
                }
            }
        }
        None
    }
}

proptest! {
    #![proptest_config(Config { cases: 120, failure_persistence: None, ..Config::default() })]

    /// Any sequence has the same answers, counters, calls and later behaviour.
    #[test]
    fn early_decisions_change_nothing(steps in prop::collection::vec(any_step(), 1..100)) {
        let (mut early, mut usual) = (Run::new(true), Run::new(false));
        for step in &steps {
            prop_assert_eq!(early.step(step), usual.step(step), "{:?}", step);
            for at in 0..GATEWAYS {
                let [early, usual] = [&mut early, &mut usual].map(|run| &mut run.world.gateways[at]);
                prop_assert_eq!(early.metrics(), usual.metrics(), "{:?}", step);
                prop_assert_eq!(early.engine.open(), usual.engine.open());
                prop_assert_eq!(&early.log, &usual.log);
            }
            let (early, usual) = (&early.world.redis, &usual.world.redis);
            prop_assert_eq!(early.calls, usual.calls, "{:?}", step);
            prop_assert_eq!(early.last, usual.last, "{:?}", step);
        }
    }
}

/// A world that decides early, with a visitor who waits.
fn waiting(room: &str) -> (World, Visitor) {
    let mut world = World::new(1, &format!(r#","per_address":{{"places":0}}{room}"#));
    let mut alice = Visitor::new(1);
    world.visit(0, &mut alice);
    world.advance(1_500);
    world.is_early = true;
    (world, alice)
}

#[test]
fn cached_positions_and_refusals_are_answered_early() {
    for (room, state) in [
        (r#","mode":"paused""#, "waiting"),
        (r#","mode":"closed""#, "closed"),
        (r#","opens_at_ms":1800000000000"#, "lobby"),
    ] {
        let (mut world, mut alice) = waiting(room);
        let outcome = format!("requests_total.room.shop.outcome.{state}");
        let before = world.metric(&outcome);
        for path in ["/shop", "/.weir/room/shop", "/.weir/room/room.js"] {
            world.ask(0, &mut alice, path, "text/html");
        }
        assert_eq!(world.visit(0, &mut alice).state(), state);
        assert_eq!(world.early_answers, 4, "{state}");
        assert_eq!(world.metric(&outcome), before + 2, "{state}");
    }
}

#[test]
fn full_queue_is_answered_early() {
    let (mut world, _) = waiting(r#","mode":"paused","queue_max":1"#);
    assert_eq!(world.visit(0, &mut Visitor::new(2)).state(), "full");
    assert_eq!(world.early_answers, 1);
}

#[test]
fn forged_token_is_counted_once() {
    let (mut world, mut alice) = waiting(r#","mode":"paused""#);
    alice.cookie = alice.cookie.map(|cookie| format!("{cookie}x"));
    assert_eq!(world.status(0, &mut alice)["state"], "none");
    assert_eq!(world.early_answers, 1);
    world.visit(0, &mut alice);
    assert_eq!(world.early_answers, 1, "a new visitor needs Redis");
    let refused = "passes_refused_total.room.shop.reason";
    let refused = ["bad_signature", "malformed"].map(|reason| format!("{refused}.{reason}"));
    let refused = refused.iter().map(|name| world.metric(name));
    assert_eq!(refused.sum::<u64>(), 2);
}

#[test]
fn requests_that_pass_or_need_redis_are_not_answered_early() {
    let mut world = World::new(1, "");
    world.is_early = true;
    let mut alice = Visitor::new(1);
    for _ in 0..3 {
        assert!(world.visit(0, &mut alice).has_passed());
    }
    assert_eq!(world.early_answers, 0);
    let mut world = World::new(1, r#","mode":"closed""#);
    world.is_early = true;
    world.replace(0);
    for answers in [0, 0, 1] {
        assert_eq!(
            world.early_answers, answers,
            "the first request starts the polls"
        );
        assert_eq!(world.visit(0, &mut Visitor::new(1)).state(), "closed");
    }
}

/// Other gateways have assigned the position, so the request must also update the room's state.
#[test]
fn token_newer_than_the_room_state_is_not_answered_early() {
    let (mut world, mut alice) = waiting(r#","mode":"paused""#);
    world.replace(0);
    world.link = Link::Down;
    world.visit(0, &mut Visitor::new(2));
    for answers in [0, 0, 1] {
        assert_eq!(world.early_answers, answers);
        world.visit(0, &mut alice);
    }
}

/// A later filter sets the user, so the visitor is unknown.
#[test]
fn without_a_trusted_user_only_positions_are_answered_early() {
    let (mut world, alice) = waiting(r#","mode":"paused""#);
    let cookie = alice.cookie.unwrap();
    let mut is_answered = |path: &str, trusts_user: bool| {
        let headers = [(":path", path), ("cookie", cookie.as_str())];
        let decision = world.decide_early(0, &headers, &alice.address, trusts_user);
        matches!(decision, EarlyDecision::Answer(_))
    };
    assert!(is_answered("/shop", true));
    assert!(!is_answered("/shop", false));
    assert!(is_answered("/.weir/room/shop", false));
}
