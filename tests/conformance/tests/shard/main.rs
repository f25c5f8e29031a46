//! A shard of a sale in a Durable Object, in workerd: many concurrent requests, and crashes of workerd. Needs the
//! feature `wasi`.
#![cfg(feature = "wasi")]

mod click_limits;

use std::collections::{BTreeMap, BTreeSet};
use std::io::Write;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde_json::{Value, json};
use sha2::{Digest, Sha256};
use weir_base::headers::{CLAIM, CLAIM_SIGNATURE, EDGE, EDGE_SIGNATURE, VERDICT};
use weir_base::id::{SaleId, UserId};
use weir_base::key::SigningKey;
use weir_base::resp::decode;
use weir_base::stamp::Stamp;
use weir_conformance::hosts::served::client::{Ask, ClientResponse, send};
use weir_conformance::hosts::served::world::World;
use weir_conformance::hosts::wasi::feeds::keys;
use weir_conformance::shop::{self, HOST};
use weir_edge::shard::ObjectCommands;
use weir_sale::claim::Ticket;
use weir_sale::ledger::{Audit, Checks, ClaimReply, ClaimTerms, Deduction, OpenClaim, SettleReply};
use weir_sale::redis::keys::ShardKeys;
use weir_sale::redis::{audit, claim, settle, warm};
use weir_scripts::Call;
use weir_stack::edge::{self, Build, Server};

const UNITS: u64 = 50;
const USERS: usize = 120;

const TERMS: ClaimTerms = ClaimTerms {
    ttl_ms: 600_000,
    user_cap: 1,
    quantity: 1,
    checks: Checks {
        blocked: true,
        reserved: false,
        drain: false,
    },
};

struct Object {
    server: Server,
    world: World,
    keys: ShardKeys,
}

/// The secret with which gateways sign claims.
const CLAIM_SECRET: &str = "claim-secret-claim-secret-claim-secret";

/// The shop's edge configuration for selling from Durable Objects.
fn selling() -> Value {
    let mut config = shop::config();
    let keys = json!([{ "id": "k1", "secret": { "env": "WEIR_CLAIM_SECRET" } }]);
    config["stock_in_objects"] = json!(true);
    config["gate"]["claim"] = json!({ "keys": keys });
    // For a busy machine.
    config["gate"]["redis"] = json!({ "key_prefix": "weir", "deadline_ms": 5_000 });
    config
}

/// The message that makes an object of the conformance build abort.
const DIE: &[u8] = b"\"Shutdown\"";

/// A signed request to the first shard.
fn ask(body: Vec<u8>, id: &str, sha256: &str) -> Ask {
    ask_of(&shard(0), body, id, sha256)
}

fn shard(number: u32) -> ShardKeys {
    ShardKeys::new("weir", &SaleId::new("s").unwrap(), number)
}

fn ask_of(shard: &ShardKeys, body: Vec<u8>, id: &str, sha256: &str) -> Ask {
    let stock = String::from_utf8(shard.stock()).unwrap();
    ask_object(stock.strip_suffix(":stock").unwrap(), body, id, sha256)
}

/// A request to the object of this name.
fn ask_object(name: &str, body: Vec<u8>, id: &str, sha256: &str) -> Ask {
    let key = name
        .replace(':', "%3A")
        .replace('{', "%7B")
        .replace('}', "%7D");
    let path = format!("/.weir/shard?key={key}&id={id}&sha256={sha256}");
    let stamp = Stamp {
        at_ms: now_ms(),
        edge: "proxy-1",
        client: "",
        method: "POST",
        path: &path,
    };
    let signed = stamp.sign(&keys().unwrap());
    let headers = [(EDGE, signed.value), (EDGE_SIGNATURE, signed.signature)];
    let headers = headers.map(|(name, value)| (name.to_owned(), value.into_bytes()));
    Ask {
        head: [b"POST".to_vec(), path.into_bytes(), HOST.into()],
        headers: headers.to_vec(),
        body,
    }
}

fn now_ms() -> u64 {
    let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    u64::try_from(since_epoch.as_millis()).unwrap()
}

fn next_id() -> String {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    NEXT.fetch_add(1, Ordering::Relaxed).to_string()
}

/// The body that the shard proxy creates from RESP commands.
fn body_of(name: &str, commands: &[u8]) -> Vec<u8> {
    let commands = ObjectCommands::from_redis(commands, name.as_bytes());
    commands.unwrap().to_json().into_bytes()
}

fn digest(body: &[u8]) -> String {
    hex::encode(Sha256::digest(body))
}

impl Object {
    /// `None` if this machine has no workerd, which is printed past the captured output.
    fn start() -> Option<Self> {
        Self::start_as(&shop::config())
    }

    fn start_as(config: &Value) -> Option<Self> {
        if let Err(error) = edge::workerd() {
            let text = format!("\nshards in objects were not tested: {error:#}\n");
            std::io::stderr().write_all(text.as_bytes()).unwrap();
            return None;
        }
        let world = World::start().unwrap();
        let mut variables = shop::variables_at(config, world.address);
        variables.insert("WEIR_CLAIM_SECRET".into(), CLAIM_SECRET.into());
        Some(Self {
            server: edge::cloudflare(Build::Conformance, &variables).unwrap(),
            world,
            keys: shard(0),
        })
    }

    fn send(&self, ask: &Ask) -> ClientResponse {
        let actual = send(self.server.address, ask);
        actual.unwrap_or_else(|error| panic!("{error:#}: {}", self.server.log()))
    }

    fn run(&self, call: &Call) -> weir_base::resp::Value {
        self.run_on(&self.keys, call)
    }

    fn run_on(&self, keys: &ShardKeys, call: &Call) -> weir_base::resp::Value {
        let mut commands = Vec::new();
        call.encode_eval(&mut commands);
        let stock = String::from_utf8(keys.stock()).unwrap();
        self.command(stock.strip_suffix(":stock").unwrap(), &commands)
    }

    /// The reply to one command, from the object of this name. Sent as the shard proxy sends it.
    fn command(&self, name: &str, commands: &[u8]) -> weir_base::resp::Value {
        let body = body_of(name, commands);
        let sha256 = digest(&body);
        let actual = self.send(&ask_object(name, body, &next_id(), &sha256));
        assert_eq!(actual.status, 200, "{actual:?} {}", self.server.log());
        decode(&actual.body).unwrap().0
    }

    /// Aborts the object of this name, with all waiting requests.
    fn kill(&self, name: &str) {
        let ask = ask_object(name, DIE.to_vec(), &next_id(), &digest(DIE));
        // The answer does not matter: the object may have aborted already.
        let _ = send(self.server.address, &ask);
        std::thread::sleep(Duration::from_millis(50));
    }

    fn claim(&self, user: usize) -> ClaimReply {
        let user = UserId::new(format!("user-{user}")).unwrap();
        let group = claim::Group {
            keys: self.keys.clone(),
            terms: TERMS,
            users: vec![&user],
            attempts: vec![None],
        };
        claim::parse(&self.run(&claim::call(&[group])), 1).unwrap()[0]
    }

    fn settle(&self, user: usize, generation: u64) -> SettleReply {
        let user = UserId::new(format!("user-{user}")).unwrap();
        let call = settle::call(&self.keys, &user, generation, Deduction::AtOrder);
        settle::parse(&self.run(&call)).unwrap()
    }

    fn audit(&self) -> Audit {
        self.audit_of(&self.keys)
    }

    fn audit_of(&self, keys: &ShardKeys) -> Audit {
        audit::parse(&self.run_on(keys, &audit::call(keys))).unwrap()
    }

    /// All users at once, each on a new connection. Returns the granted claims.
    fn storm(&self) -> Vec<(usize, OpenClaim)> {
        let replies: Vec<(usize, ClaimReply)> = std::thread::scope(|scope| {
            let asks: Vec<_> = (0..USERS)
                .map(|user| scope.spawn(move || (user, self.claim(user))))
                .collect();
            asks.into_iter().map(|ask| ask.join().unwrap()).collect()
        });
        let granted = replies.into_iter().filter_map(|(user, reply)| match reply {
            ClaimReply::Granted(held) | ClaimReply::GrantedAgain(held) => Some((user, held)),
            ClaimReply::Empty { .. } => None,
            other => panic!("{other:?}"),
        });
        granted.collect()
    }
}

#[test]
fn each_unit_is_granted_once_under_load_and_crashes() {
    let Some(mut object) = Object::start() else {
        return;
    };
    let warmed = object.run(&warm::call(&object.keys, UNITS, None));
    assert!(warm::parse(&warmed).unwrap());
    let first = object.storm();
    assert_eq!(first.len() as u64, UNITS);
    let generations: BTreeSet<u64> = first.iter().map(|(_, held)| held.generation).collect();
    assert_eq!(generations.len() as u64, UNITS, "no claim is another's");
    for (user, held) in &first[..20] {
        assert_eq!(object.settle(*user, held.generation), SettleReply::Settled);
    }
    object.kill("weir:{s:0}");
    let before = object.audit();
    let sums = (before.stock, before.held, before.bought);
    assert_eq!(sums, (Some(0), UNITS - 20, 20));

    // The answered requests are on disk.
    object.server.crash().unwrap();
    assert_eq!(object.audit(), before);
    for (user, held) in &first[20..] {
        let ClaimReply::GrantedAgain(again) = object.claim(*user) else {
            panic!("the claim is gone");
        };
        assert_eq!(again.generation, held.generation);
        assert_eq!(again.deadline_ms, held.deadline_ms);
    }
    let (user, held) = &first[0];
    assert_eq!(object.settle(*user, held.generation), SettleReply::Nothing);
    // Users without a claim get nothing, and users with an order have reached their cap.
    let has_claim: BTreeSet<usize> = first[20..].iter().map(|(user, _)| *user).collect();
    let without = (0..USERS).filter(|user| !has_claim.contains(user));
    for user in without {
        let reply = object.claim(user);
        let is_refused = matches!(
            reply,
            ClaimReply::Empty { .. } | ClaimReply::CapReached { .. }
        );
        assert!(is_refused, "{reply:?}");
    }
}

#[test]
fn long_log_is_compacted() {
    let Some(mut object) = Object::start() else {
        return;
    };
    assert!(warm::parse(&object.run(&warm::call(&object.keys, UNITS, None))).unwrap());
    // Each delivery is a change; the log is replaced at 500.
    let ClaimReply::Granted(held) = object.claim(0) else {
        panic!("there are units");
    };
    for _ in 0..550 {
        assert!(matches!(object.claim(0), ClaimReply::GrantedAgain(_)));
    }
    let before = object.audit();
    object.server.crash().unwrap();
    assert_eq!(object.audit(), before);
    assert_eq!(object.settle(0, held.generation), SettleReply::Settled);
}

#[test]
fn signed_command_runs_once_and_unsigned_never() {
    let Some(object) = Object::start() else {
        return;
    };
    let mut commands = Vec::new();
    warm::call(&object.keys, UNITS, None).encode_eval(&mut commands);
    let body = body_of("weir:{s:0}", &commands);
    let sha256 = digest(&body);
    let good = ask(body.clone(), "warm-1", &sha256);
    let status = |ask: &Ask| object.send(ask).status;
    let mut unsigned = good.clone();
    unsigned.headers.pop();
    assert_eq!(status(&unsigned), 403);
    let mut other_path = good.clone();
    other_path.head[1].push(b'0');
    assert_eq!(status(&other_path), 403);
    let mut other_body = good.clone();
    other_body.body.push(b'*');
    assert_eq!(status(&other_body), 403);
    assert_eq!(object.audit().stock, None, "nothing has run");
    assert_eq!(status(&good), 200);
    assert_eq!(status(&good), 409, "it has come before");
    // Link commands, Redis commands, and none at all. The sender already refuses commands that Redis supports and a
    // shard does not.
    let to_link = ObjectCommands::Link(vec![]).to_json().into_bytes();
    for (id, body) in [("l", to_link), ("r", commands), ("g", b"nonsense".to_vec())] {
        let sha256 = digest(&body);
        assert_eq!(status(&ask(body, id, &sha256)), 400, "{id}");
    }
    assert_eq!(object.audit().stock, Some(50));
}

/// A buyer's request, as from an ordinary client.
fn buyer(user: usize) -> Ask {
    Ask {
        head: [b"POST".to_vec(), shop::ORDERS.into(), HOST.into()],
        headers: Vec::from([("x-user-id".to_owned(), format!("user-{user}").into_bytes())]),
        body: Vec::new(),
    }
}

impl Object {
    /// Starts an edge that sells from two shards, with an origin that accepts every order.
    fn selling(stock_in_objects: Option<&str>) -> Option<Self> {
        let object = Self::start_as(&selling())?;
        object.world.traffic().gateway = Some((201, Vec::new(), String::new()));
        object.hear(1, stock_in_objects);
        for number in 0..2 {
            let keys = shard(number);
            let warmed = object.run_on(&keys, &warm::call(&keys, UNITS / 2, None));
            assert!(warm::parse(&warmed).unwrap());
        }
        Some(object)
    }

    /// Waits until the edge has read this version of the feed: until then it forwards buyers to a gateway.
    fn hear(&self, version: u64, stock_in_objects: Option<&str>) {
        let feeds = shop::sales_in_objects(version, stock_in_objects, now_ms()).unwrap();
        self.world.traffic().feeds = feeds;
        let status = Ask {
            head: [b"GET".to_vec(), shop::SALE.into(), HOST.into()],
            ..Ask::default()
        };
        // A gateway would answer 201. The edge polls the origin once a second, and a busy machine takes longer.
        let has_heard = (0..600).any(|_| {
            std::thread::sleep(Duration::from_millis(50));
            send(self.server.address, &status).is_ok_and(|actual| actual.status == 200)
        });
        assert!(has_heard, "{}", self.server.log());
        self.world.traffic().seen.clear();
    }

    /// All users at once, each on a new connection. Returns each one's status, 0 for none.
    fn rush(&self) -> Vec<u16> {
        let ask = |user| send(self.server.address, &buyer(user)).map_or(0, |actual| actual.status);
        std::thread::scope(|scope| {
            let asks: Vec<_> = (0..USERS)
                .map(|user| scope.spawn(move || ask(user)))
                .collect();
            asks.into_iter().map(|ask| ask.join().unwrap()).collect()
        })
    }

    /// The claims in requests to the origin, all of them signed. None went to a gateway.
    fn claims(&self) -> BTreeMap<String, Ticket> {
        let key = SigningKey::new("k1", CLAIM_SECRET.as_bytes()).unwrap();
        let traffic = self.world.traffic();
        let claim = |headers: &Vec<(String, String)>| {
            let all = |name: &str| {
                let named = headers.iter().filter(|(existing, _)| existing == name);
                let values: Vec<String> = named.map(|(_, value)| value.clone()).collect();
                values
            };
            assert_eq!(all(":path"), ["/orders"], "{headers:?}");
            let [claim, signature, verdict] = [CLAIM, CLAIM_SIGNATURE, VERDICT].map(|name| {
                let [value] = &all(name)[..] else {
                    panic!("{name}: {headers:?}");
                };
                value.clone()
            });
            key.verify(&claim, &signature).unwrap();
            assert!(verdict.starts_with("granted"), "{verdict}");
            let ticket = Ticket::decode(&claim).unwrap();
            (ticket.user.as_str().to_owned(), ticket)
        };
        traffic.seen.iter().map(claim).collect()
    }

    fn audits(&self) -> [Audit; 2] {
        [0, 1].map(|number| self.audit_of(&shard(number)))
    }
}

/// Units in stock, and units in claims.
fn sums(audits: &[Audit; 2]) -> (u64, u64) {
    let stock: i64 = audits.iter().filter_map(|audit| audit.stock).sum();
    (
        stock.try_into().unwrap(),
        audits.iter().map(|audit| audit.held).sum(),
    )
}

#[test]
fn edge_sells_each_unit_once_when_workerd_crashes() {
    let Some(mut object) = Object::selling(Some("weir")) else {
        return;
    };
    // Half of them get their answers; then workerd crashes during the others.
    let address = object.server.address;
    std::thread::scope(|scope| {
        for user in 0..USERS / 2 {
            scope.spawn(move || send(address, &buyer(user)).is_ok());
        }
        while object.world.traffic().seen.len() < 10 {
            std::thread::yield_now();
        }
        object.server.crash().unwrap();
    });
    let before = object.claims();
    object.hear(2, Some("weir"));
    let statuses = object.rush();
    let actual = statuses.iter().filter(|status| **status == 201).count() as u64;
    assert_eq!(actual, UNITS, "{statuses:?} {}", object.server.log());
    assert_eq!(sums(&object.audits()), (0, UNITS));
    let after = object.claims();
    let units: BTreeSet<(u32, u64)> = after
        .values()
        .map(|ticket| (ticket.shard, ticket.generation))
        .collect();
    assert_eq!((after.len() as u64, units.len() as u64), (UNITS, UNITS));
    for (user, ticket) in before {
        assert_eq!(
            after[&user], ticket,
            "what was granted before is granted again"
        );
    }
}

#[test]
fn client_claim_is_ignored_and_refusal_by_origin_releases_it() {
    let Some(object) = Object::selling(Some("weir")) else {
        return;
    };
    // Another user's validly signed claim, and an edge assertion: neither is forwarded or has an effect.
    let mut thief = buyer(1);
    assert_eq!(object.send(&buyer(0)).status, 201);
    let stolen = object.world.traffic().seen[0].clone();
    for name in [CLAIM, CLAIM_SIGNATURE, EDGE, EDGE_SIGNATURE] {
        let value = stolen
            .iter()
            .find(|(existing, _)| existing == name)
            .unwrap();
        thief
            .headers
            .push((name.to_owned(), value.1.clone().into_bytes()));
    }
    assert_eq!(object.send(&thief).status, 201);
    let claims = object.claims();
    assert_ne!(claims["user-0"].generation, 0);
    assert_eq!(claims["user-1"].user.as_str(), "user-1");
    assert_eq!(sums(&object.audits()), (UNITS - 2, 2));
    // Without a user ID there is no claim.
    let mut anonymous = buyer(2);
    anonymous.headers.clear();
    assert_eq!(object.send(&anonymous).status, 401);
    anonymous
        .headers
        .push(("x-user-id".into(), b"a\xffb".to_vec()));
    assert_eq!(object.send(&anonymous).status, 401);
    // The origin refuses the third.
    object.world.traffic().gateway = Some((422, Vec::new(), String::new()));
    assert_eq!(object.send(&buyer(3)).status, 422);
    let went_back = (0..100).any(|_| {
        std::thread::sleep(Duration::from_millis(50));
        sums(&object.audits()) == (UNITS - 2, 2)
    });
    assert!(went_back, "{:?}", object.audits());
}

#[test]
fn edge_sells_nothing_from_objects_when_stock_is_elsewhere() {
    for stock_in_objects in [None, Some("other")] {
        let Some(object) = Object::selling(stock_in_objects) else {
            return;
        };
        let actual = object.send(&buyer(0));
        let text = String::from_utf8_lossy(&actual.body).into_owned();
        assert_eq!(actual.status, 503, "{text}");
        assert!(text.contains("stock_in_objects"), "{text}");
        assert_eq!(sums(&object.audits()), (UNITS, 0));
        assert_eq!(object.world.traffic().seen.len(), 0);
    }
}
