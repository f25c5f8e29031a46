//! Waiting rooms: settings by operators, and reports to them.

use serde_json::{Value, json};
use weir_room::draw::Seed;
use weir_room::redis::keys::RoomKeys;
use weir_room::redis::room::CallContext;
use weir_room::redis::room_ask::{self, VisitorRequest};
use weir_room::redis::room_tick;
use weir_room::{Mode, RoomName, RoomState, Setting, Terms, Visitor};

use crate::support::World;

/// Acts as a gateway, with its scripts.
struct Gateway<'a> {
    world: &'a World,
    keys: RoomKeys,
    observed: RoomState,
}

impl<'a> Gateway<'a> {
    fn new(world: &'a World, room: &str) -> Self {
        let name = RoomName::new(room).unwrap();
        Self {
            world,
            keys: RoomKeys::new(&world.prefix, &name),
            observed: RoomState::default(),
        }
    }

    fn call_context(&self) -> CallContext {
        CallContext {
            terms: Terms {
                session_ms: 60_000,
                claim_ms: 60_000,
                queue_max: 0,
                address_max: 0,
                address_ms: 1_000,
                life_ms: 60_000,
            },
            setting: Setting::default(),
            observed: self.observed,
            asked_ms: 0,
        }
    }

    /// Polls the room until a setting is in effect, and returns it.
    async fn settle(&mut self) -> Setting {
        loop {
            let call = room_tick::call(&self.keys, &self.call_context(), &[]);
            let reply = room_tick::parse(&self.world.script(&call).await).unwrap();
            if !reply.is_settling {
                return reply.setting;
            }
            tokio::time::sleep(std::time::Duration::from_millis(50)).await;
        }
    }

    async fn come(&self, count: u8) {
        let ask = |number: u8| VisitorRequest {
            visitor: Visitor::of_user(&[number]),
            place: 0,
            order: 0,
            joined_ms: weir_origin::clock::now_ms(),
            address: None,
        };
        let asks: Vec<VisitorRequest> = (0..count).map(ask).collect();
        let call = room_ask::call(&self.keys, &self.call_context(), &asks);
        room_ask::parse(&self.world.script(&call).await, asks.len()).unwrap();
    }
}

async fn clear(world: &World, room: &str) {
    let path = format!("/rooms/{room}");
    let answer = world.admin("DELETE", &path, &Value::Null).await;
    assert_eq!(answer.status, 204, "{answer:?}");
}

async fn put(world: &World, room: &str, setting: Value) -> Value {
    let answer = world
        .admin("PUT", &format!("/rooms/{room}"), &setting)
        .await;
    assert_eq!(answer.status, 200, "{answer:?}");
    answer.body
}

async fn get(world: &World, path: &str) -> Value {
    let answer = world.admin("GET", path, &Value::Null).await;
    assert_eq!(answer.status, 200, "{answer:?}");
    answer.body
}

#[tokio::test]
async fn gateways_follow_operator_settings_of_a_room_after_redis_loss() {
    let world = World::new().await;
    let mut gateway = Gateway::new(&world, "shop");
    assert_eq!(gateway.settle().await, Setting::default());
    let set = put(&world, "shop", json!({"mode": "paused", "per_minute": 60})).await;
    assert_eq!(set["setting"]["version"], 1);
    let set = put(&world, "shop", json!({"mode": "open", "active_max": 2})).await;
    assert_eq!(
        set["setting"],
        json!({"version": 2, "mode": "open", "per_minute": 0, "active_max": 2, "opens_at_ms": 0})
    );
    let in_force = gateway.settle().await;
    assert_eq!((in_force.version, in_force.active_max), (2, 2));
    // Redis loses it; the next round restores it.
    let mut del = redis::cmd("DEL");
    del.arg(gateway.keys.setting());
    world.redis(&del).await;
    assert_eq!(gateway.settle().await.version, 0);
    world.origin.rooms().publish_all().await.unwrap();
    assert_eq!(gateway.settle().await.version, 2);
}

#[tokio::test]
async fn operator_sees_queue_entries_waits_and_active_sessions() {
    let world = World::new().await;
    let mut gateway = Gateway::new(&world, "shop");
    put(&world, "shop", json!({"mode": "open", "active_max": 3})).await;
    gateway.settle().await;
    gateway.come(10).await;
    let room = get(&world, "/rooms/shop").await;
    let queue = &room["queue"];
    for (field, number) in [
        ("waiting", 7),
        ("called", 0),
        ("inside", 3),
        ("joined", 10),
        ("entered", 3),
        ("entered_last_minute", 3),
        ("dropped_out", 0),
    ] {
        assert_eq!(queue[field], number, "{field}: {queue}");
    }
    assert_eq!(queue["wait_ms"]["p99"], 1_000, "they entered at once");
    let all = get(&world, "/rooms").await;
    assert_eq!(all["rooms"].as_array().unwrap().len(), 1);
    assert_eq!(all["rooms"][0]["name"], "shop");
}

#[tokio::test]
async fn entries_of_a_room_without_operator_settings_are_counted() {
    let world = World::new().await;
    let mut gateway = Gateway::new(&world, "shop");
    gateway.settle().await;
    gateway.come(10).await;
    let room = get(&world, "/rooms/shop").await;
    assert_eq!(room["setting"], Value::Null);
    assert_eq!(room["queue"]["entered"], 10);
    assert_eq!(room["queue"]["entered_last_minute"], 10);
}

#[tokio::test]
async fn draw_digest_is_published_before_the_draw_and_seed_after_it() {
    let world = World::new().await;
    let mut gateway = Gateway::new(&world, "shop");
    gateway.settle().await;
    let opens_at_ms = weir_origin::clock::now_ms() + 3_000;
    put(
        &world,
        "shop",
        json!({"mode": "open", "opens_at_ms": opens_at_ms}),
    )
    .await;
    (gateway.observed.seed_of, gateway.observed.seed) =
        (opens_at_ms, Some(Seed::from_bytes([7; 32])));
    gateway.settle().await;
    gateway.come(5).await;
    let before = get(&world, "/rooms/shop").await["queue"]["draw"].clone();
    let commitment = Seed::from_bytes([7; 32]).commitment();
    assert_eq!(before["commitment"], commitment.as_str());
    if weir_origin::clock::now_ms() < opens_at_ms {
        assert_eq!(before.get("seed"), None, "{before}");
    }
    let wait_ms = opens_at_ms.saturating_sub(weir_origin::clock::now_ms()) + 100;
    tokio::time::sleep(std::time::Duration::from_millis(wait_ms)).await;
    gateway.settle().await;
    let after = get(&world, "/rooms/shop").await["queue"]["draw"].clone();
    assert_eq!(after["seed"], Seed::from_bytes([7; 32]).to_hex().as_str());
    assert_eq!(
        (&after["first_place"], &after["last_place"]),
        (&json!(1), &json!(5))
    );
    assert_eq!(after["commitment"], before["commitment"]);
}

#[tokio::test]
async fn invalid_room_setting_is_refused_with_its_field() {
    let world = World::new().await;
    for (room, body, detail) in [
        ("shop", json!({"mode": "shut"}), "mode"),
        ("shop", json!({}), "mode"),
        ("shop", json!({"mode": "open", "colour": 1}), "colour"),
        (
            "shop",
            json!({"mode": "open", "per_minute": 10_000_001}),
            "per_minute",
        ),
        (
            "shop",
            json!({"mode": "open", "opens_at_ms": 1_u64 << 53}),
            "opens_at_ms",
        ),
        ("Shop", json!({"mode": "open"}), "room"),
    ] {
        let answer = world.admin("PUT", &format!("/rooms/{room}"), &body).await;
        assert!([400, 422].contains(&answer.status.as_u16()), "{answer:?}");
        assert!(answer.detail().contains(detail), "{answer:?}");
    }
    let unknown = world.admin("GET", "/rooms/none", &Value::Null).await;
    assert_eq!(
        (unknown.status.as_u16(), unknown.code()),
        (404, "unknown_room")
    );
    let no_token = world
        .admin_as("PUT", "/rooms/shop", r#"{"mode":"open"}"#, None)
        .await;
    assert_eq!(no_token.status, 401);
}

/// Two origins, or two operators, at the same time.
#[tokio::test]
async fn each_room_change_has_its_own_version() {
    let world = World::new().await;
    let change = |per_minute: u64| {
        let world = &world;
        async move {
            put(
                world,
                "shop",
                json!({"mode": "open", "per_minute": per_minute}),
            )
            .await
        }
    };
    for per_minute in 1..=5 {
        change(per_minute).await;
    }
    let room = get(&world, "/rooms/shop").await;
    assert_eq!(
        (&room["setting"]["version"], &room["setting"]["per_minute"]),
        (&json!(5), &json!(5))
    );
}

#[tokio::test]
async fn cleared_room_follows_the_configuration_again() {
    let world = World::new().await;
    let mut gateway = Gateway::new(&world, "shop");
    put(
        &world,
        "shop",
        json!({ "mode": "paused", "per_minute": 60 }),
    )
    .await;
    assert_eq!(gateway.settle().await.mode, Mode::Paused);
    clear(&world, "shop").await;
    assert_eq!(gateway.settle().await, Setting::default());
    let room = get(&world, "/rooms/shop").await;
    assert_eq!(room["setting"], Value::Null, "{room}");
    assert_eq!(get(&world, "/rooms").await, json!({ "rooms": [] }));
    // It may be repeated, and the room set again.
    clear(&world, "shop").await;
    put(&world, "shop", json!({ "mode": "draining" })).await;
    assert_eq!(gateway.settle().await.mode, Mode::Draining);
}
