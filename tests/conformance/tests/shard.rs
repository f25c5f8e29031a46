//! A shard of a sale in a Durable Object, in workerd: many at once, and workerd dies. With the feature `wasi`.
#![cfg(feature = "wasi")]

use std::collections::BTreeSet;
use std::io::Write;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

use sha2::{Digest, Sha256};
use weir_base::headers::{EDGE, EDGE_SIGNATURE};
use weir_base::id::{SaleId, UserId};
use weir_conformance::hosts::served::client::{Ask, Got, send};
use weir_conformance::hosts::served::world::World;
use weir_conformance::hosts::wasi::feeds::keys;
use weir_conformance::shop::{self, HOST};
use weir_feed::stamp::Stamp;
use weir_resp::decode;
use weir_sale::ledger::{Audit, Checks, ClaimReply, ClaimTerms, Deduction, OpenClaim, SettleReply};
use weir_scripts::keys::ShardKeys;
use weir_scripts::{Call, audit, claim, settle, warm};
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
    keys: ShardKeys,
}

/// A request to a shard, as its sender signs it.
fn ask(body: Vec<u8>, id: &str, sha256: &str) -> Ask {
    let path = format!("/.weir/shard?key=weir%3A%7Bs%3A0%7D&id={id}&sha256={sha256}");
    let since_epoch = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    let stamp = Stamp {
        at_ms: u64::try_from(since_epoch.as_millis()).unwrap(),
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

fn digest(body: &[u8]) -> String {
    hex::encode(Sha256::digest(body))
}

impl Object {
    /// `None` if this machine has no workerd: that is said, past the captured output.
    fn start() -> Option<Self> {
        if let Err(error) = edge::workerd() {
            let text = format!("\nshards in objects were not tested: {error:#}\n");
            std::io::stderr().write_all(text.as_bytes()).unwrap();
            return None;
        }
        let world = World::start().unwrap();
        let variables = shop::variables_at(&shop::config(), world.address);
        Some(Self {
            server: edge::cloudflare(Build::Conformance, &variables).unwrap(),
            keys: ShardKeys::new("weir", &SaleId::new("s").unwrap(), 0),
        })
    }

    fn send(&self, ask: &Ask) -> Got {
        send(self.server.address, ask).unwrap()
    }

    fn run(&self, call: &Call) -> weir_resp::Value {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        let mut body = Vec::new();
        call.encode_eval(&mut body);
        let id = NEXT.fetch_add(1, Ordering::Relaxed).to_string();
        let sha256 = digest(&body);
        let got = self.send(&ask(body, &id, &sha256));
        assert_eq!(got.status, 200, "{got:?} {}", self.server.log());
        decode(&got.body).unwrap().0
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
        audit::parse(&self.run(&audit::call(&self.keys))).unwrap()
    }

    /// All users at once, each on a connection of its own: who has got what.
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
fn each_unit_is_granted_once_however_many_ask_and_whatever_dies() {
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
    let before = object.audit();
    let sums = (before.stock, before.held, before.bought);
    assert_eq!(sums, (Some(0), UNITS - 20, 20));

    // What was answered is on disk.
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
    // Those who had nothing get nothing, and those with an order have all they may have.
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
fn a_long_log_becomes_what_came_of_it() {
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
fn it_runs_what_was_signed_once_and_nothing_else() {
    let Some(object) = Object::start() else {
        return;
    };
    let mut body = Vec::new();
    warm::call(&object.keys, UNITS, None).encode_eval(&mut body);
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
    assert_eq!(status(&good), 400, "it has come before");
    // No command of a shard, and one of another shard.
    let mut foreign = Vec::new();
    let other = ShardKeys::new("weir", &SaleId::new("s").unwrap(), 1);
    warm::call(&other, UNITS, None).encode_eval(&mut foreign);
    let flush = b"*1\r\n$8\r\nFLUSHALL\r\n".to_vec();
    for (id, body) in [("f", flush), ("o", foreign), ("g", b"nonsense".to_vec())] {
        let sha256 = digest(&body);
        assert_eq!(status(&ask(body, id, &sha256)), 400, "{id}");
    }
    assert_eq!(object.audit().stock, Some(50));
}
