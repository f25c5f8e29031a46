//! Sales whose stock is in objects: the gate calls shards, here in memory.

use std::collections::BTreeMap;
use std::rc::Rc;

use serde_json::{Value, json};
use weir_base::feed::document::seal;
use weir_base::headers::CLAIM;
use weir_base::key::SigningKey;
use weir_base::resp::decode;
use weir_base::shared_data::LocalData;
use weir_edge::edge::EdgeSetup;
use weir_edge::knowledge::Feed;
use weir_edge::object_calls::{ObjectCall, PendingRequest};
use weir_edge::shard::{ObjectCommands, Shard, ShardCommand};
use weir_edge::store::MemoryStore;
use weir_edge::{Edge, FirstOutcome, RequestOutcome};
use weir_engine::Headers;
use weir_engine::event::PlainRequest;
use weir_engine::redis::{Reply, UnknownFailure};
use weir_sale::claim::Ticket;
use weir_sale::feed::{FRESH_MS, SaleList};
use weir_sale::redis::warm;

const NOW_MS: u64 = 1_700_000_000_000;
const SECRET: &str = "edge-secret-edge-secret-edge-secret";
const SHARDS: u32 = 3;

fn config() -> Value {
    let keys = |id: &str| json!([{ "id": id, "secret": { "env": "SECRET" } }]);
    json!({
        "edge": "test-1",
        "keys": keys("e1"),
        "stock_in_objects": true,
        "gate": {
            "routes": [{ "path": "/sales/{sale}/orders" }],
            "user_header": "x-user-id",
            "claim": { "keys": keys("k1") },
            "redis": { "key_prefix": "weir" },
        },
    })
}

fn edge_of(config: &Value, counts_exactly: bool) -> Result<Edge<MemoryStore>, String> {
    let setup = EdgeSetup {
        variable: Box::new(|_| Some(SECRET.into())),
        seed: 3,
        data: Rc::new(LocalData::default()),
        counts_exactly,
    };
    let json = config.to_string();
    let edge = Edge::new(json.as_bytes(), setup, MemoryStore::default());
    edge.map_err(|error| error.to_string())
}

/// An edge with a sale, and the objects of its shards.
struct World {
    edge: Edge<MemoryStore>,
    shards: BTreeMap<String, Shard>,
    now_ms: u64,
}

impl World {
    fn new(units: [u64; SHARDS as usize]) -> Self {
        let mut edge = edge_of(&config(), true).unwrap();
        let catalogue = json!({
            "version": 1,
            "sales": [{
                "id": "s", "starts_at_ms": 1, "ends_at_ms": u64::MAX, "shards": SHARDS, "user_cap": 1, "state": "open",
            }],
        });
        let list = SaleList {
            fresh_ms: FRESH_MS,
            catalogue: serde_json::from_value(catalogue).unwrap(),
            stock_in_objects: Some("weir".into()),
        };
        let ring = SigningKey::new("e1", SECRET.as_bytes()).unwrap().into();
        let text = seal(&ring, NOW_MS, &list).unwrap();
        edge.take(Feed::SoldOut, 200, text.as_bytes(), NOW_MS)
            .unwrap();
        let mut world = Self {
            edge,
            shards: BTreeMap::new(),
            now_ms: NOW_MS,
        };
        for (number, units) in (0..SHARDS).zip(units) {
            let mut shard = Shard::default();
            let done = shard.run(&[ShardCommand::Warm { units, token: None }], NOW_MS * 1_000);
            assert!(warm::parse(&decode(&done.replies).unwrap().0).unwrap());
            world.shards.insert(format!("weir:{{s:{number}}}"), shard);
        }
        world
    }

    fn run(&mut self, ask: &ObjectCall) -> Reply {
        let shard = self.shards.get_mut(&ask.object).unwrap();
        let ObjectCommands::Shard(commands) = &ask.commands else {
            panic!("{ask:?}");
        };
        Ok(shard.run(commands, self.now_ms * 1_000).replies)
    }

    /// Sends calls until none are left. Replies for which `is_lost` are lost after the commands have run.
    fn ask_all(&mut self, buying: &mut PendingRequest, is_lost: bool) {
        loop {
            let asks = buying.take_asks();
            if asks.is_empty() {
                return;
            }
            for ask in asks {
                let reply = match self.run(&ask) {
                    Ok(_) if is_lost => Err(UnknownFailure::Lost.into()),
                    reply => reply,
                };
                self.edge.answered(buying, &ask, reply, self.now_ms);
            }
        }
    }

    /// The outcome of a user's purchase, and its continuation if the origin responds with this status.
    fn buy(&mut self, user: &str, is_lost: bool, origin_says: Option<u16>) -> RequestOutcome {
        let request = PlainRequest {
            headers: Headers::new(&[
                (":method", "POST"),
                (":path", "/sales/s/orders"),
                ("x-user-id", user),
                (CLAIM, "forged"),
            ]),
            peer_address: b"192.0.2.1:4711".to_vec(),
            now_ms: self.now_ms,
        };
        let FirstOutcome::Asks(mut buying) = self.edge.begin(&request) else {
            panic!("nobody was asked");
        };
        self.ask_all(&mut buying, is_lost);
        let sold = self.edge.request_outcome(&buying, &request);
        if matches!(sold, RequestOutcome::ToOrigin(_)) {
            self.edge.ended(&mut buying, origin_says, self.now_ms);
            self.ask_all(&mut buying, false);
        }
        self.edge.finish(buying);
        sold
    }

    fn held_units(&self) -> u64 {
        self.shards.values().map(|shard| shard.audit().held).sum()
    }
}

/// The claim of a passed request: exactly one, for any client headers.
fn ticket(sold: &RequestOutcome) -> Ticket {
    let RequestOutcome::ToOrigin(headers) = sold else {
        panic!("{sold:?}");
    };
    let claims: Vec<_> = headers.iter().filter(|(name, _)| name == CLAIM).collect();
    let [(_, claim)] = &claims[..] else {
        panic!("{headers:?}");
    };
    Ticket::decode(std::str::from_utf8(claim).unwrap()).unwrap()
}

#[test]
fn units_move_to_requesting_shards_and_are_never_sold_twice() {
    let mut world = World::new([0, 5, 0]);
    let mut tickets = Vec::new();
    for user in 0..9 {
        match world.buy(&format!("user-{user}"), false, Some(201)) {
            // Held units may come back, so the sale is not reported as sold out.
            RequestOutcome::Answer(answer) => assert!(tickets.len() == 5 && answer.status == 409),
            sold => tickets.push(ticket(&sold)),
        }
        world.now_ms += 10;
    }
    assert_eq!((tickets.len(), world.held_units()), (5, 5));
    let homes: std::collections::BTreeSet<u32> =
        tickets.iter().map(|ticket| ticket.shard).collect();
    assert!(homes.len() > 1, "{homes:?}");
}

#[test]
fn retry_after_lost_reply_gets_the_granted_claim() {
    let mut world = World::new([5, 5, 5]);
    let RequestOutcome::Answer(answer) = world.buy("alice", true, None) else {
        panic!("nobody knows what has become of it");
    };
    assert_eq!((answer.status, world.held_units()), (503, 1));
    let first = ticket(&world.buy("alice", false, Some(500)));
    // The origin may have created an order.
    let again = ticket(&world.buy("alice", false, None));
    assert_eq!(
        (first.generation, world.held_units()),
        (again.generation, 1)
    );
}

#[test]
fn claim_refused_by_origin_is_returned_to_stock() {
    let mut world = World::new([5, 5, 5]);
    ticket(&world.buy("alice", false, Some(422)));
    assert_eq!(world.held_units(), 0);
}

#[test]
fn incomplete_object_stock_configuration_is_refused() {
    let refused = |edit: &dyn Fn(&mut Value), counts_exactly| {
        let mut config = config();
        edit(&mut config);
        edge_of(&config, counts_exactly).err().unwrap()
    };
    let starts = |error: String, field: &str| assert!(error.starts_with(field), "{error}");
    starts(refused(&|_| (), false), "stock_in_objects");
    let without = |part: &'static str| {
        move |config: &mut Value| {
            config.as_object_mut().unwrap().remove(part);
        }
    };
    starts(refused(&without("gate"), true), "gate");
    starts(refused(&without("stock_in_objects"), true), "gate.redis");
    let cluster = |config: &mut Value| config["gate"]["redis"]["cluster"] = "r".into();
    starts(refused(&cluster, true), "gate.redis.cluster");
    let no_claims = |config: &mut Value| {
        config["gate"].as_object_mut().unwrap().remove("claim");
    };
    starts(refused(&no_claims, true), "gate");
}
