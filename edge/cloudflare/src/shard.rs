//! The object with one shard of a sale, or one short link with a click limit, in place of Redis.
//!
//! Holders of the edges' key send [commands](ObjectCommands) to `POST /.weir/shard?key=…&id=…&sha256=…`, with an edge
//! assertion. The assertion covers the path, and the path contains the digest of the body, so the commands cannot be
//! replaced. An assertion is valid for a minute, and its `id` once. The object logs each change before it responds:
//! workerd holds the response back until the log is on disk. At its start it replays the log on the model of the claim
//! protocol.

use std::cell::RefCell;

use sha2::{Digest, Sha256};
#[cfg(feature = "conformance")]
use wasm_bindgen::{JsCast, JsValue};
use weir_base::feed::routes::SHARD as PATH;
use weir_edge::shard::command::prefix_of;
use weir_edge::shard::{EdgeObject, ObjectCommands};
use worker::{
    Date, DurableObject, Env, Method, Request, RequestInit, Response, Result, SqlStorage,
    SqlStorageValue, State, Stub, Url, durable_object,
};

use crate::client::{bytes, now_ms};
use crate::host::{self, with_site};

/// The objects' namespace.
const SHARDS: &str = "WEIR_SHARDS";

/// Maximum length of a body, in bytes. A gateway's bridge accepts calls of 1 MiB, and claims are at most half as long
/// again in JSON. The log must hold them: see [`CHUNK_BYTES`].
const BODY_BYTES_MAX: usize = 3 << 19;

/// Maximum changes in the log; then a snapshot replaces it.
const LOG_MAX: u32 = 500;

/// The same for a link, per click marker that it contains: markers expire, and writing all of them takes longer.
const LOG_PER_MARK: u32 = 4;

/// Maximum length of a value, in bytes; SQLite's limit is 2 MB.
const CHUNK_BYTES: usize = 1 << 20;

/// Longer than the validity of an assertion, including clock differences.
const IDS_KEPT_MS: u64 = 180_000;

/// The parameters of a request to a shard.
struct SignedRequest {
    key: String,
    id: String,
    sha256: String,
}

impl SignedRequest {
    fn of(request: &Request) -> Result<Option<Self>> {
        let url = request.url()?;
        if url.path() != PATH || request.method() != Method::Post {
            return Ok(None);
        }
        let find = |requested: &str| {
            let mut pairs = url.query_pairs();
            let found = pairs.find(|(name, _)| name == requested);
            found
                .map(|(_, value)| value.into_owned())
                .unwrap_or_default()
        };
        Ok(Some(Self {
            key: find("key"),
            id: find("id"),
            sha256: find("sha256"),
        }))
    }
}

/// The status if no command has run.
pub(crate) const REFUSED: u16 = 400;

/// The status of repeated commands; their replies are not sent again.
const REPEATED: u16 = 409;

/// The object of the shard with this key prefix.
pub(crate) fn object(space: &str, shard: &str, env: &Env) -> Result<Stub> {
    let objects = env.durable_object(SHARDS)?;
    objects.get_by_name(&host::name_in(space, shard))
}

/// The URL for commands from the Worker itself. Objects are unreachable from outside, so these need no `id`.
pub(crate) fn own_url(shard: &str) -> Result<Url> {
    let url = format!("http://shard{PATH}");
    Ok(Url::parse_with_params(&url, [("key", shard)])?)
}

/// The response to a request to a shard; `None` for other requests.
pub(crate) async fn relayed(
    space: &str,
    request: &mut Request,
    env: &Env,
) -> Result<Option<Response>> {
    let Some(requested) = SignedRequest::of(request)? else {
        return Ok(None);
    };
    let (path, _) = host::path(request)?;
    let now_ms = now_ms(request);
    let header = |name: &str| -> Result<Vec<u8>> {
        let value = request.headers().get(name)?;
        Ok(bytes(&value.unwrap_or_default()))
    };
    let stamp = (header(weir_edge::EDGE)?, header(weir_edge::EDGE_SIGNATURE)?);
    let is_signed = with_site(space, |site| {
        site.edge
            .has_signed(("POST", &path), (&stamp.0, &stamp.1), now_ms)
    });
    // A shard has one object, whichever of its keys is named.
    let is_shard = prefix_of(requested.key.as_bytes()) == Some(requested.key.as_bytes());
    // Checked before the body is read.
    if is_signed != Some(true) || requested.id.is_empty() || !is_shard {
        return Response::error("", 403).map(Some);
    }
    let body = request.bytes().await?;
    let is_whole = hex::encode(Sha256::digest(&body)) == requested.sha256;
    if !is_whole || body.len() > BODY_BYTES_MAX {
        return Response::error("", 403).map(Some);
    }
    let object = object(space, &requested.key, env)?;
    let mut init = RequestInit::new();
    init.with_method(Method::Post)
        .with_body(Some(js_sys::Uint8Array::from(&body[..]).into()));
    let url = request.url()?;
    let commands = Request::new_with_init(url.as_str(), &init)?;
    object.fetch_with_request(commands).await.map(Some)
}

/// The object.
#[durable_object]
pub struct ShardObject {
    state: State,
    /// Crashes on request.
    #[cfg(feature = "conformance")]
    mortal: Mortal,
    held: RefCell<Option<EdgeObject>>,
}

impl DurableObject for ShardObject {
    fn new(state: State, _env: Env) -> Self {
        #[cfg(feature = "conformance")]
        let (state, mortal) = Mortal::of(state);
        Self {
            state,
            #[cfg(feature = "conformance")]
            mortal,
            held: RefCell::default(),
        }
    }

    async fn fetch(&self, mut request: Request) -> Result<Response> {
        let Some(requested) = SignedRequest::of(&request)? else {
            return Response::error("", 404);
        };
        let body = request.bytes().await?;
        #[cfg(feature = "conformance")]
        self.mortal.hear(&body)?;
        // From here on nothing awaits, so no other request interleaves.
        match self.run(&requested, &body) {
            Ok(Ran::Replied(replies)) => Response::from_bytes(replies),
            Ok(Ran::Refused) => Response::error("", REFUSED),
            Ok(Ran::Before) => Response::error("", REPEATED),
            Err(error) => {
                // Changes that were not written must not count.
                self.held.replace(None);
                Err(error)
            }
        }
    }
}

/// An object that crashes on request of the conformance suite.
#[cfg(feature = "conformance")]
struct Mortal(JsValue);

#[cfg(feature = "conformance")]
impl Mortal {
    fn of(state: State) -> (State, Self) {
        let state = state._inner();
        let raw: JsValue = state.clone().into();
        (state.into(), Self(raw))
    }

    fn hear(&self, commands: &[u8]) -> Result<()> {
        if commands == b"\"Shutdown\"" {
            let abort = js_sys::Reflect::get(&self.0, &"abort".into())?;
            let abort: js_sys::Function = abort.dyn_into()?;
            // In a separate task: a crash within a call into the module would break the module's other calls.
            let abort = abort.bind1(&self.0, &"it was told to stop".into());
            let wait = js_sys::Reflect::get(&js_sys::global(), &"setTimeout".into())?;
            let wait: js_sys::Function = wait.dyn_into()?;
            wait.call2(&JsValue::UNDEFINED, &abort, &0.into())?;
        }
        Ok(())
    }
}

/// The outcome of commands.
enum Ran {
    Replied(Vec<u8>),
    /// They do not match this object: none has run.
    Refused,
    /// They are a repetition.
    Before,
}

impl ShardObject {
    fn run(&self, request: &SignedRequest, body: &[u8]) -> Result<Ran> {
        let log = Log::open(&self.state)?;
        let mut held = self.held.borrow_mut();
        let held = match &mut *held {
            Some(held) => held,
            none => none.insert(log.read(&request.key)?),
        };
        let now_ms = Date::now().as_millis();
        if !request.id.is_empty() && !log.is_new(&request.id, now_ms)? {
            return Ok(Ran::Before);
        }
        let done = ObjectCommands::from_json(body).and_then(|commands| held.run(&commands, now_ms));
        let Ok(done) = done else {
            return Ok(Ran::Refused);
        };
        if done.is_change {
            log.append(now_ms, body)?;
            if log.len()? >= log_max(held) {
                log.replace(held)?;
            }
        }
        Ok(Ran::Replied(done.replies))
    }
}

/// The number of changes after which a snapshot replaces the log.
fn log_max(held: &EdgeObject) -> u32 {
    match held {
        EdgeObject::Shard(_) => LOG_MAX,
        EdgeObject::Link(link) => {
            LOG_MAX.max(u32::try_from(link.marks()).unwrap_or(u32::MAX) / LOG_PER_MARK)
        }
    }
}

fn encoded(held: &EdgeObject) -> postcard::Result<Vec<u8>> {
    match held {
        EdgeObject::Shard(shard) => postcard::to_allocvec(shard),
        EdgeObject::Link(link) => postcard::to_allocvec(link),
    }
}

/// Decodes a snapshot of the same kind.
fn decoded(kind: &EdgeObject, bytes: &[u8]) -> postcard::Result<EdgeObject> {
    match kind {
        EdgeObject::Shard(_) => postcard::from_bytes(bytes).map(EdgeObject::Shard),
        EdgeObject::Link(_) => postcard::from_bytes(bytes).map(EdgeObject::Link),
    }
}

/// The object's storage. Writes without an await in between are atomic.
struct Log(SqlStorage);

impl Log {
    fn open(state: &State) -> Result<Self> {
        let sql = state.storage().sql();
        for table in [
            "CREATE TABLE IF NOT EXISTS log (seq INTEGER PRIMARY KEY, at_ms TEXT NOT NULL, json BLOB NOT NULL)",
            "CREATE TABLE IF NOT EXISTS whole (part INTEGER PRIMARY KEY, bytes BLOB NOT NULL)",
            "CREATE TABLE IF NOT EXISTS ids (id TEXT PRIMARY KEY, at_ms INTEGER NOT NULL)",
            "CREATE INDEX IF NOT EXISTS ids_at ON ids (at_ms)",
        ] {
            sql.exec(table, None)?;
        }
        Ok(Self(sql))
    }

    /// Loads the snapshot and replays the log.
    fn read(&self, key: &str) -> Result<EdgeObject> {
        let mut whole = Vec::new();
        for row in self.rows("SELECT bytes FROM whole ORDER BY part")? {
            if let [SqlStorageValue::Blob(part)] = &row[..] {
                whole.extend_from_slice(part);
            }
        }
        let mut held = EdgeObject::new(key.as_bytes()).map_err(|error| error.to_string())?;
        if !whole.is_empty() {
            held = decoded(&held, &whole).map_err(|error| error.to_string())?;
        }
        for row in self.rows("SELECT at_ms, json FROM log ORDER BY seq")? {
            let [SqlStorageValue::String(at_ms), SqlStorageValue::Blob(json)] = &row[..] else {
                return Err("the log is corrupt".into());
            };
            let at_ms: u64 = at_ms.parse().map_err(|_| "the log is corrupt")?;
            let commands = ObjectCommands::from_json(json);
            let done = commands.and_then(|commands| held.run(&commands, at_ms));
            done.map_err(|error| error.to_string())?;
        }
        Ok(held)
    }

    fn rows(&self, query: &str) -> Result<Vec<Vec<SqlStorageValue>>> {
        self.0.exec(query, None)?.raw().collect()
    }

    fn is_new(&self, id: &str, now_ms: u64) -> Result<bool> {
        let kept_ms = now_ms.saturating_sub(IDS_KEPT_MS) as f64;
        self.0
            .exec("DELETE FROM ids WHERE at_ms < ?", vec![kept_ms.into()])?;
        let insert =
            "INSERT INTO ids (id, at_ms) VALUES (?, ?) ON CONFLICT (id) DO NOTHING RETURNING id";
        let inserted = self
            .0
            .exec(insert, vec![id.into(), (now_ms as f64).into()])?;
        Ok(inserted.raw().next().is_some())
    }

    fn append(&self, at_ms: u64, json: &[u8]) -> Result<()> {
        let insert = "INSERT INTO log (at_ms, json) VALUES (?, ?)";
        let values = vec![at_ms.to_string().into(), json.to_vec().into()];
        self.0.exec(insert, values).map(drop)
    }

    /// The number of changes; an empty log starts with 1 again.
    fn len(&self) -> Result<u32> {
        let rows = self.rows("SELECT seq FROM log ORDER BY seq DESC LIMIT 1")?;
        Ok(match rows.first().map(Vec::as_slice) {
            Some([SqlStorageValue::Integer(seq)]) => u32::try_from(*seq).unwrap_or(u32::MAX),
            Some([SqlStorageValue::Float(seq)]) => *seq as u32,
            _ => 0,
        })
    }

    /// Replaces the log by a snapshot.
    fn replace(&self, held: &EdgeObject) -> Result<()> {
        let whole = encoded(held).map_err(|error| error.to_string())?;
        self.0.exec("DELETE FROM whole", None)?;
        for part in whole.chunks(CHUNK_BYTES) {
            let insert = "INSERT INTO whole (bytes) VALUES (?)";
            self.0.exec(insert, vec![part.to_vec().into()])?;
        }
        self.0.exec("DELETE FROM log", None).map(drop)
    }
}
