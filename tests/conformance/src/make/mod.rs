//! Creates the vectors: the summaries are written by hand, and the engines provide the rest.

mod events;
mod fitment;
mod generated;
mod limits;
mod link_codes;
mod link_lookups;
mod link_targets;
mod links;
mod room;
mod sale;
mod token;

pub use self::token::{ACCEPTS, MINTS, minted};

use anyhow::{Result, bail, ensure};
use serde_json::{Value, json};
use tokio::runtime::Runtime;
use weir_base::headers::{EDGE, EDGE_SIGNATURE};
use weir_base::key::SigningKey;
use weir_base::stamp::Stamp;

use crate::hosts::engine::EngineHost;
use crate::hosts::wasi::feeds::EDGE_SECRET;
use crate::vector::{self, Changes, Entry, OriginAnswer, Outcome, Request, Step, Vector};

/// The start time of vectors: a Tuesday in November 2023, 22:13:20 UTC.
pub const NOW_MS: u64 = 1_700_000_000_000;

/// The secrets of all vectors: a gateway's are in its environment, which all vectors share.
pub const SECRETS: [(&str, &str); 7] = [
    ("WEIR_CLAIM_SECRET", "0123456789abcdef0123456789abcdef"),
    ("WEIR_TOKEN_SECRET", "fedcba9876543210fedcba9876543210"),
    ("WEIR_OLD_TOKEN_SECRET", "00112233445566778899aabbccddeeff"),
    ("WEIR_EVENTS_KEY_ERP", "erp-secret-0123456789"),
    ("WEIR_DEBUG_SECRET", "operators-only-secret"),
    ("WEIR_ROOM_SECRET", "89abcdef0123456789abcdef01234567"),
    EDGE_SECRET,
];

/// The engine reads its documents once by default.
const POLL_INTERVAL_MS: u64 = 60_000;

/// The longest key prefix.
const PREFIX_LEN_MAX: usize = 64;

/// Rewrites the files; returns the number of vectors.
///
/// # Errors
/// The engine's result contradicts a handwritten summary.
pub fn write(runtime: &Runtime) -> Result<usize> {
    let mut host = EngineHost::start(runtime)?;
    let (mut vectors, mut wrong) = (all(), String::new());
    for vector in &mut vectors {
        if let Err(error) = fill(vector, &mut host) {
            wrong += &format!("\n{}: {error:#}", vector.name);
        }
    }
    ensure!(
        wrong.is_empty(),
        "vectors do not show what they say:{wrong}"
    );
    vector::write_all(&vectors)?;
    Ok(vectors.len())
}

/// All vectors, without the engines' results.
pub fn all() -> Vec<Vector> {
    let mut vectors = sale::vectors();
    vectors.extend(token::vectors());
    vectors.extend(limits::vectors());
    vectors.extend(links::vectors());
    vectors.extend(events::vectors());
    vectors.extend(fitment::vectors());
    vectors.extend(room::vectors());
    vectors.extend(generated::vectors());
    vectors
}

fn fill(vector: &mut Vector, host: &mut EngineHost) -> Result<()> {
    let replay = host.replay_one(vector)?;
    vector.effect = replay.effect;
    for (index, (step, outcome)) in vector.steps.iter_mut().zip(replay.outcomes).enumerate() {
        let received = outcome.summary();
        if received != step.says {
            bail!(
                "step {index} says {:?}, and {received:?} came: {outcome:?}",
                step.says
            );
        }
        step.expect = outcome;
    }
    Ok(())
}

/// A vector under construction.
#[derive(Clone, Debug)]
struct Draft {
    vector: Vector,
    now_ms: u64,
    changes: Changes,
    polls: usize,
}

impl Draft {
    /// A vector of this name, with the engine's configuration and its own Redis keys.
    fn new(name: impl Into<String>, engine: &str, mut config: Value) -> Self {
        let name = name.into();
        let prefix = name.replace('/', ".");
        assert!(prefix.len() <= PREFIX_LEN_MAX, "too long a name: {name}");
        if let Some(redis) = config.get_mut("redis") {
            redis["key_prefix"] = json!(prefix);
        }
        Self {
            vector: Vector {
                name,
                engine: engine.into(),
                config,
                secrets: Default::default(),
                stored: Default::default(),
                origin: Default::default(),
                steps: vec![],
                effect: Default::default(),
            },
            now_ms: NOW_MS,
            changes: Changes::new(),
            polls: 0,
        }
    }

    fn prefix(&self) -> String {
        self.vector.name.replace('/', ".")
    }

    fn secret(mut self, name: &str) -> Self {
        let (name, secret) = SECRETS
            .iter()
            .find(|(existing, _)| *existing == name)
            .expect("a secret");
        self.vector.secrets.insert((*name).into(), (*secret).into());
        self
    }

    /// Stores a value in Redis: initially, or after existing steps, before the next one.
    fn stored(mut self, key: Vec<u8>, entry: impl Into<Entry>) -> Self {
        let key = crate::text::escape(&key);
        let entry = entry.into();
        match self.vector.steps.is_empty() {
            true => drop(self.vector.stored.insert(key, entry)),
            false => drop(self.changes.insert(key, Some(entry))),
        }
        self
    }

    /// Stores a string in Redis.
    fn text(self, key: Vec<u8>, value: impl Into<String>) -> Self {
        let value = crate::text::escape(value.into().as_bytes());
        self.stored(key, Entry::string(value))
    }

    fn origin(mut self, path: &str, status: u16, headers: &[(&str, &str)], body: &str) -> Self {
        let pair = |(name, value): &(&str, &str)| ((*name).to_owned(), (*value).to_owned());
        let answer = OriginAnswer {
            status,
            headers: headers.iter().map(pair).collect(),
            body: body.into(),
        };
        self.vector.origin.insert(path.into(), answer);
        self
    }

    /// Advances the time; the engine reads nothing meanwhile.
    fn after(mut self, ms: u64) -> Self {
        self.now_ms += ms;
        self
    }

    /// Advances the time; the engine polls `polls` times meanwhile.
    fn after_polls(mut self, ms: u64, polls: usize) -> Self {
        self.polls = polls;
        self.after(ms)
    }

    /// Adds a request, and a summary of its expected result.
    fn ask(mut self, ask: Ask, expected: impl Into<String>) -> Self {
        self.vector.steps.push(Step {
            at_ms: self.now_ms,
            polls: std::mem::take(&mut self.polls),
            stored: std::mem::take(&mut self.changes),
            request: ask.0,
            says: expected.into(),
            expect: Outcome::Unknown,
        });
        self
    }

    fn done(self) -> Vector {
        self.vector
    }
}

/// A request under construction.
#[derive(Clone, Debug)]
struct Ask(Request);

impl Ask {
    fn new(method: &str, path: impl Into<String>) -> Self {
        Self(Request {
            method: method.into(),
            path: path.into(),
            host: "shop.example".into(),
            from: "192.0.2.1:4711".into(),
            ..Request::default()
        })
    }

    fn get(path: impl Into<String>) -> Self {
        Self::new("GET", path)
    }

    fn host(mut self, host: &str) -> Self {
        self.0.host = host.into();
        self
    }

    /// Adds a header; the value is vector text.
    fn header(mut self, name: &str, value: impl Into<String>) -> Self {
        self.0.headers.push((name.into(), value.into()));
        self
    }

    fn from(mut self, address: &str) -> Self {
        self.0.from = address.into();
        self
    }

    /// Adds the assertion of an edge for this client, signed with this secret.
    fn stamped(self, client: &str, secret: &str, at_ms: u64) -> Self {
        let stamp = Stamp {
            at_ms,
            edge: "fra-1",
            client,
            method: &self.0.method,
            path: &self.0.path,
        };
        let key = SigningKey::new("e1", secret.as_bytes()).expect("a secret that is long enough");
        let signed = stamp.sign(&key.into());
        self.header(EDGE, signed.value)
            .header(EDGE_SIGNATURE, signed.signature)
            .from("203.0.113.9:443")
    }
}

/// The edges whose assertions are valid: a field of the gateway's configuration.
fn edges() -> Value {
    json!({ "keys": [{ "id": "e1", "secret": { "env": EDGE_SECRET.0 } }] })
}
