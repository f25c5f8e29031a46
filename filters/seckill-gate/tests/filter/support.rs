//! A gate in a Proxy-Wasm host, with a Redis scripted by the test.

use std::time::Duration;

use weir_base::resp::{Value, decode};
use weir_host_test::{Builder, Host, Reply, RequestBuilder, Stream, Upstream};

pub const SECRET: &str = "0123456789abcdef0123456789abcdef";

pub const CONFIG: &str = r#"{
    "routes": [{ "path": "/sales/{sale}/orders" }],
    "user_header": "x-user-id",
    "claim": { "keys": [{ "secret": { "env": "WEIR_CLAIM_SECRET" } }] },
    "redis": { "deadline_ms": 250 }
}"#;

/// The start time of the host's clock.
pub const NOW_MS: u64 = 1_700_000_000_000;

/// `open` runs, `later` starts in less than a minute, `over` has ended, `shut` is closed. In SQL all units of `open`
/// are sold; `busy` has a high stock.
pub const CATALOGUE: &str = r#"{"sales":[
    {"id":"open","starts_at_ms":1,"ends_at_ms":9999999999999,"shards":2,"user_cap":1,"state":"open","band":"none"},
    {"id":"busy","starts_at_ms":1,"ends_at_ms":9999999999999,"shards":2,"user_cap":1,"state":"open"},
    {"id":"later","starts_at_ms":1700000030000,"ends_at_ms":9999999999999,"shards":1,"user_cap":1,"state":"open"},
    {"id":"over","starts_at_ms":1,"ends_at_ms":2,"shards":1,"user_cap":1,"state":"open"},
    {"id":"shut","starts_at_ms":1,"ends_at_ms":9999999999999,"shards":1,"user_cap":1,"state":"closed"}]}"#;

pub struct Gate {
    pub host: Host,
}

pub fn host(config: &str) -> Builder {
    Host::builder()
        .module_file(weir_stack::wasm::filter("seckill-gate").unwrap())
        .vm_id("weir")
        .plugin_config(config.as_bytes())
        .env("WEIR_CLAIM_SECRET", SECRET)
        .start_at_ns(NOW_MS * 1_000_000)
        .workers(2)
        .cluster("weir_redis", Upstream::held())
}

impl Gate {
    pub fn builder(config: &str, change: impl FnOnce(Builder) -> Builder) -> Self {
        Self {
            host: change(host(config)).start().unwrap(),
        }
    }

    pub fn start(config: &str) -> Self {
        Self::builder(config, |host| host)
    }

    /// A gate that has read the catalogue.
    pub fn ready() -> Self {
        Self::ready_with(CONFIG)
    }

    pub fn ready_with(config: &str) -> Self {
        let gate = Self::start(config);
        gate.make_ready();
        gate
    }

    pub fn make_ready(&self) {
        self.begin_polls();
        self.answer_polls();
    }

    /// A worker polls after its first stream.
    pub fn begin_polls(&self) {
        for worker in 0..2 {
            self.host.malformed_request(worker);
        }
    }

    pub fn request(&self, sale: &str, user: &str) -> RequestBuilder {
        let path = format!("/sales/{sale}/orders");
        self.host
            .request(0)
            .method("POST")
            .path(&path)
            .header("x-user-id", user)
    }

    pub fn buy_from(&self, sale: &str, user: &str) -> Stream {
        self.request(sale, user).send()
    }

    pub fn buy(&self, user: &str) -> Stream {
        self.buy_from("open", user)
    }

    /// Answers the polls in flight with the catalogue, and epoch 5 for each requested shard.
    pub fn answer_polls(&self) {
        self.answer_polls_with(CATALOGUE);
    }

    pub fn answer_polls_with(&self, catalogue: &str) {
        self.answer_polls_by(catalogue, 5);
    }

    /// Advances by a poll interval, and answers with this epoch for each requested shard.
    pub fn poll_with_epoch(&self, epoch: i64) {
        self.host.advance(Duration::from_millis(500));
        self.answer_polls_by(CATALOGUE, epoch);
    }

    fn answer_polls_by(&self, catalogue: &str, epoch: i64) {
        self.host.run_until_idle();
        for call in self.host.calls() {
            if commands_of(&call.body)[0][0] != b"GET" {
                continue;
            }
            let mut reply = format!("${}\r\n{catalogue}\r\n", catalogue.len());
            let epoch = epoch.to_string();
            for _ in 1..commands(&call.body) {
                reply.push_str(&format!("${}\r\n{epoch}\r\n", epoch.len()));
            }
            self.host.answer(call.id, Reply::ok(reply));
        }
        self.host.run_until_idle();
    }

    /// Like [`Gate::ready`], after Redis has answered a full batch in a millisecond: a worker sends few requests at
    /// once until it has measured Redis.
    pub fn ready_with_fast_redis() -> Self {
        let gate = Self::ready();
        let buyers: Vec<_> = (0..64).map(|n| gate.buy(&format!("early-{n}"))).collect();
        gate.host.run_until_idle();
        gate.host.advance(Duration::from_millis(1));
        gate.answer_claims(|_user| granted(7));
        assert!(buyers.iter().all(|buyer| buyer.is_continued()));
        gate
    }

    /// Answers every call of claims, current and later, with `reply` for each user. Probes report shards without units,
    /// claims and transfers.
    pub fn answer_claims(&self, reply: impl Fn(&str) -> String) {
        self.answer_claims_and_looks(reply, NOTHING_LEFT);
    }

    /// Like [`Gate::answer_claims`], with this reply for each probed shard.
    pub fn answer_claims_and_looks(&self, reply: impl Fn(&str) -> String, look: &str) {
        self.host.run_until_idle();
        let answer = |body: &[u8]| {
            let shards = shards_looked_at(body);
            match users(body).as_slice() {
                [] if shards == 0 => None,
                [] => Some(format!("*{shards}\r\n{}", look.repeat(shards))),
                users => Some(reply_to(users, &reply)),
            }
        };
        while let Some((id, reply)) = self
            .host
            .calls()
            .iter()
            .find_map(|call| Some((call.id, answer(&call.body)?)))
        {
            self.host.answer(id, Reply::ok(reply));
            self.host.run_until_idle();
        }
    }

    /// How many requests had this verdict.
    pub fn requests(&self, verdict: &str) -> u64 {
        let name = format!("weir_seckill_gate_requests_total.verdict.{verdict}");
        self.metric(&name)
    }

    /// A counter. Filters publish their counters on ticks.
    pub fn metric(&self, name: &str) -> u64 {
        self.host.tick();
        self.host.metric(name).unwrap_or(0)
    }
}

/// The probe reply of a shard at epoch 5 without units, open claims and open transfers.
pub const NOTHING_LEFT: &str = "*4\r\n:0\r\n:5\r\n:0\r\n:0\r\n";

/// The number of shards in a probe; 0 if it is another call.
pub fn shards_looked_at(body: &[u8]) -> usize {
    let is_probe = |c: &&Vec<Vec<u8>>| {
        c[0].starts_with(b"EVAL") && c.last().is_some_and(|key| key.ends_with(b":transfers"))
    };
    commands_of(body)
        .iter()
        .find(is_probe)
        .map_or(0, |command| (command.len() - 3) / 4)
}

/// A grant of this generation.
pub fn granted(generation: u64) -> String {
    format!("1 {generation} 1 1700000030000 0")
}

/// The reply to one call of claims by `users`.
pub fn reply_to(users: &[String], reply: impl Fn(&str) -> String) -> String {
    let answers: Vec<String> = users.iter().map(|user| reply(user)).collect();
    let text = answers.join(",");
    format!("${}\r\n{text}\r\n", text.len())
}

/// The number of commands in a call.
pub fn commands(body: &[u8]) -> usize {
    commands_of(body).len()
}

/// The users in a call of claims, in order; empty if it is another call.
pub fn users(body: &[u8]) -> Vec<String> {
    let commands = commands_of(body);
    let Some(arguments) = commands
        .iter()
        .find(|c| c[0].starts_with(b"EVAL") && c.len() > 8 && c[7].ends_with(b":claims"))
    else {
        return vec![];
    };
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let number = |bytes: &[u8]| text(bytes).parse::<usize>().unwrap_or(0);
    let keys = number(&arguments[2]);
    // After the script's name come the keys, the number of groups, and the groups: four terms, one byte for each user's
    // bucket, the users, and as many tags if the checks ask for attempts.
    let mut rest = &arguments[3 + keys + 1..];
    let mut users = Vec::new();
    while rest.len() > 5 {
        let count = rest[4].len();
        users.extend(rest[5..5 + count].iter().map(|user| text(user)));
        let has_tags = rest[3].contains(&b'k');
        rest = &rest[5 + count * (1 + usize::from(has_tags))..];
    }
    users
}

fn commands_of(mut body: &[u8]) -> Vec<Vec<Vec<u8>>> {
    let mut commands = Vec::new();
    while let Ok((Value::Array(arguments), used)) = decode(body) {
        let bytes = |value| match value {
            Value::Bulk(bytes) => bytes,
            other => panic!("{other:?}"),
        };
        commands.push(arguments.into_iter().map(bytes).collect());
        body = &body[used..];
    }
    commands
}
