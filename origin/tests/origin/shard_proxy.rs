//! The shard proxy with a real Redis behind it, and with objects that hold the same state as the Worker's and use the
//! same protocol. `tests/conformance/tests/shard` tests the Worker's objects in workerd.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};

use axum::Router;
use axum::body::Bytes;
use axum::extract::{Query, State};
use axum::http::{HeaderMap, StatusCode, Uri};
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use clap::Parser;
use redis::Value;
use redis::aio::MultiplexedConnection;
use tempfile::TempDir;
use tokio::net::TcpListener;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;
use weir_base::feed::routes::SHARD;
use weir_base::headers::{EDGE, EDGE_SIGNATURE};
use weir_base::key::KeyRing;
use weir_base::stamp::Stamp;
use weir_edge::shard::{EdgeObject, ObjectCommands};
use weir_link::click::ClickId;
use weir_link::record::Link;
use weir_link::redis::keys::LinkKeys;
use weir_link::redis::link_read::Purpose;
use weir_link::redis::{link_back, link_read};
use weir_origin::clock::now_ms;
use weir_origin::config::Config;
use weir_origin::http::server::serve;
use weir_origin::shard_proxy::{self, ShardProxyCommand};
use weir_scripts::Call;
use weir_stack::ports;
use weir_stack::redis::RedisServer;

use crate::feeds::ring;
use crate::support;

/// The objects of an edge.
#[derive(Default)]
struct Objects {
    held: Mutex<BTreeMap<String, EdgeObject>>,
    ids: Mutex<BTreeSet<String>>,
    /// Whether the next reply is lost after the commands have run.
    loses_next: AtomicBool,
}

fn keys() -> KeyRing {
    ring(&[("e1", 1)])
}

async fn run_commands(
    State(objects): State<Arc<Objects>>,
    Query(query): Query<BTreeMap<String, String>>,
    uri: Uri,
    headers: HeaderMap,
    body: Bytes,
) -> Response {
    let text = |name: &str| headers[name].to_str().unwrap().to_owned();
    let (stamp, signature) = (text(EDGE), text(EDGE_SIGNATURE));
    let path = uri.path_and_query().unwrap().as_str();
    if Stamp::verify(&keys(), &stamp, &signature, ("POST", path), now_ms()).is_err() {
        return StatusCode::FORBIDDEN.into_response();
    }
    if !objects.ids.lock().unwrap().insert(query["id"].clone()) {
        return StatusCode::CONFLICT.into_response();
    }
    let key = &query["key"];
    let done = {
        let mut held = objects.held.lock().unwrap();
        let held = held.entry(key.clone());
        let held = held.or_insert_with(|| EdgeObject::new(key.as_bytes()).unwrap());
        ObjectCommands::from_json(&body).and_then(|commands| held.run(&commands, now_ms()))
    };
    match done {
        _ if objects.loses_next.swap(false, Ordering::SeqCst) => {
            StatusCode::BAD_GATEWAY.into_response()
        }
        Ok(done) => done.replies.into_response(),
        Err(_) => StatusCode::BAD_REQUEST.into_response(),
    }
}

/// A proxy with its dependencies.
struct World {
    objects: Arc<Objects>,
    edge: SocketAddr,
    redis: RedisServer,
    port: u16,
    proxy: JoinHandle<()>,
    _dir: TempDir,
}

impl World {
    async fn new() -> Self {
        Self::with_keys(keys()).await
    }

    async fn with_keys(keys: KeyRing) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let redis = support::redis(&dir).await;
        let objects = Arc::new(Objects::default());
        let routes = Router::new()
            .route(SHARD, post(run_commands))
            .with_state(Arc::clone(&objects));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let edge = listener.local_addr().unwrap();
        tokio::spawn(serve(listener, routes, CancellationToken::new()));
        let port = ports::free().unwrap();
        let proxy = start(port, edge, &redis, keys);
        Self {
            objects,
            edge,
            redis,
            port,
            proxy,
            _dir: dir,
        }
    }

    /// Connects through the proxy, once it listens.
    async fn connect(&self) -> MultiplexedConnection {
        let url = format!("redis://127.0.0.1:{}", self.port);
        for _ in 0..200 {
            if let Ok(connection) = weir_stack::redis::connect(&url).await {
                return connection;
            }
            tokio::time::sleep(std::time::Duration::from_millis(20)).await;
        }
        panic!("nobody listens");
    }

    /// Connects to Redis directly.
    async fn behind(&self) -> MultiplexedConnection {
        weir_stack::redis::connect(&self.redis.url()).await.unwrap()
    }

    /// Kills the proxy and starts another one.
    async fn kill_proxy(&mut self) {
        self.proxy.abort();
        let _ = (&mut self.proxy).await;
        self.port = ports::free().unwrap();
        self.proxy = start(self.port, self.edge, &self.redis, keys());
    }
}

fn start(port: u16, edge: SocketAddr, redis: &RedisServer, keys: KeyRing) -> JoinHandle<()> {
    let config = Config::try_parse_from(["weir-origin", "--redis-url", &redis.url()]).unwrap();
    let command = ShardProxyCommand {
        proxy_listen: ([127, 0, 0, 1], port).into(),
        shards_url: format!("http://{edge}"),
        shards_ca: None,
        proxy_name: "proxy-1".into(),
    };
    tokio::spawn(async move {
        shard_proxy::run(&config.redis_url, &config.key_prefix, &command, keys)
            .await
            .unwrap()
    })
}

fn link_keys() -> LinkKeys {
    LinkKeys::new("weir", &"s/max".parse().unwrap())
}

fn record(max_clicks: u64) -> Vec<u8> {
    let link = Link {
        max_clicks,
        ..Link::to("https://t.example/")
    };
    link.encode()
}

async fn send(
    connection: &mut MultiplexedConnection,
    words: &[&[u8]],
) -> redis::RedisResult<Value> {
    let mut command = redis::Cmd::new();
    for word in words {
        command.arg(*word);
    }
    command.query_async(connection).await
}

async fn call(connection: &mut MultiplexedConnection, call: &Call) -> redis::RedisResult<Value> {
    let count = call.keys.len().to_string();
    let mut words: Vec<&[u8]> = vec![b"EVAL", call.script.source.as_bytes(), count.as_bytes()];
    words.extend(call.words());
    send(connection, &words).await
}

/// The number of clicks left before this one; `None`: the link does not exist.
async fn click(
    connection: &mut MultiplexedConnection,
    sequence: u64,
) -> redis::RedisResult<Option<i64>> {
    let click = ClickId {
        counter: 1,
        sequence,
    };
    let read = link_read::call(&link_keys(), 100, Purpose::Click(click));
    Ok(match call(connection, &read).await? {
        Value::Array(values) => match values[2] {
            Value::Int(remaining) => Some(remaining),
            ref other => panic!("{other:?}"),
        },
        Value::Nil => None,
        other => panic!("{other:?}"),
    })
}

async fn back(connection: &mut MultiplexedConnection, sequence: u64) -> Value {
    let click = ClickId {
        counter: 1,
        sequence,
    };
    let back = link_back::call(&link_keys(), click);
    call(connection, &back).await.unwrap()
}

/// Creates a link like the origin.
async fn create(connection: &mut MultiplexedConnection, max_clicks: u64) -> Value {
    let (key, record) = (link_keys().record(), record(max_clicks));
    send(connection, &[b"SET", &key, &record, b"NX"])
        .await
        .unwrap()
}

#[tokio::test]
async fn click_maximum_is_counted_in_the_object_and_never_in_redis() {
    let world = World::new().await;
    let (mut proxy, mut redis) = (world.connect().await, world.behind().await);
    assert_eq!(create(&mut proxy, 2).await, Value::Okay);
    assert_eq!(create(&mut proxy, 9).await, Value::Nil, "it is there");
    let (key, clicks) = (link_keys().record(), link_keys().clicks());
    let mut remaining = Vec::new();
    for sequence in [1, 1, 2, 3] {
        remaining.push(click(&mut proxy, sequence).await.unwrap());
    }
    assert_eq!(remaining, [Some(2), Some(2), Some(1), Some(0)]);
    let used = send(&mut proxy, &[b"GET", &clicks]).await.unwrap();
    assert_eq!(used, Value::BulkString(b"2".to_vec()));
    let current = send(&mut proxy, &[b"GET", &key]).await.unwrap();
    assert_eq!(current, Value::BulkString(record(2)));
    // A client that bypasses the proxy finds no record to count by.
    assert_eq!(click(&mut redis, 4).await.unwrap(), Some(-1));
    let raw = send(&mut redis, &[b"GET", &key]).await.unwrap();
    assert_eq!(raw, Value::BulkString(b"in-object".to_vec()));
    assert_eq!(
        send(&mut redis, &[b"GET", &clicks]).await.unwrap(),
        Value::Nil
    );
    // An unused click is refunded once.
    assert_eq!(back(&mut proxy, 2).await, Value::Int(1));
    assert_eq!(back(&mut proxy, 2).await, Value::Int(0));
    assert_eq!(click(&mut proxy, 5).await.unwrap(), Some(1));
    // An edit removes the click limit: then Redis has the link, and the object has nothing.
    let plain = record(0);
    send(&mut proxy, &[b"SET", &key, &plain]).await.unwrap();
    send(&mut proxy, &[b"UNLINK", &clicks]).await.unwrap();
    assert_eq!(click(&mut redis, 6).await.unwrap(), Some(-1));
    assert_eq!(
        send(&mut redis, &[b"GET", &key]).await.unwrap(),
        Value::BulkString(plain)
    );
    // It is deleted from both.
    send(&mut proxy, &[b"SET", &key, &record(3)]).await.unwrap();
    assert_eq!(click(&mut proxy, 7).await.unwrap(), Some(3));
    send(&mut proxy, &[b"UNLINK", &key, &clicks]).await.unwrap();
    assert_eq!(click(&mut proxy, 8).await.unwrap(), None);
    assert_eq!(create(&mut proxy, 4).await, Value::Okay);
    assert_eq!(
        click(&mut proxy, 9).await.unwrap(),
        Some(4),
        "all clicks are new"
    );
}

#[tokio::test]
async fn lost_reply_is_retried_and_nothing_counts_twice() {
    let world = World::new().await;
    let mut proxy = world.connect().await;
    create(&mut proxy, 2).await;
    world.objects.loses_next.store(true, Ordering::SeqCst);
    // The caller gets no reply, as from a dead Redis.
    let lost = click(&mut proxy, 1).await.unwrap_err();
    assert!(lost.is_io_error() || lost.is_connection_dropped(), "{lost}");
    let mut proxy = world.connect().await;
    assert_eq!(click(&mut proxy, 1).await.unwrap(), Some(2));
    assert_eq!(click(&mut proxy, 2).await.unwrap(), Some(1));
    assert_eq!(click(&mut proxy, 3).await.unwrap(), Some(0));
}

#[tokio::test]
async fn killed_proxy_loses_no_clicks() {
    let mut world = World::new().await;
    create(&mut world.connect().await, 20).await;
    let mut admitted = BTreeSet::new();
    for round in 0..2 {
        let mut clicks = tokio::task::JoinSet::new();
        for sequence in 0..40 {
            let mut proxy = world.connect().await;
            clicks.spawn(async move { (sequence, click(&mut proxy, sequence).await) });
            if round == 0 && sequence == 25 {
                world.kill_proxy().await;
            }
        }
        while let Some(reply) = clicks.join_next().await {
            if let (sequence, Ok(Some(1..))) = reply.unwrap() {
                admitted.insert(sequence);
            }
        }
    }
    // All click ids came twice, some of them to the killed proxy.
    assert_eq!(admitted.len(), 20);
    let used = send(&mut world.connect().await, &[b"GET", &link_keys().clicks()]).await;
    assert_eq!(used.unwrap(), Value::BulkString(b"20".to_vec()));
}

#[tokio::test]
async fn wrong_secret_changes_nothing_and_returns_noperm() {
    let world = World::with_keys(ring(&[("e1", 2)])).await;
    let mut proxy = world.connect().await;
    let (key, record) = (link_keys().record(), record(2));
    let refused = send(&mut proxy, &[b"SET", &key, &record, b"NX"]).await;
    let refused = refused.unwrap_err();
    assert_eq!(refused.code(), Some("NOPERM"), "{refused}");
    let mut redis = world.behind().await;
    assert_eq!(send(&mut redis, &[b"GET", &key]).await.unwrap(), Value::Nil);
    let of_shard = send(&mut proxy, &[b"EXISTS", b"weir:{s:0}:stock"]).await;
    assert_eq!(of_shard.unwrap_err().code(), Some("NOPERM"));
    // Redis-only keys do not need the object.
    send(&mut proxy, &[b"SET", b"weir:x", b"1"]).await.unwrap();
    assert_eq!(
        send(&mut proxy, &[b"GET", b"weir:x"]).await.unwrap(),
        Value::BulkString(b"1".to_vec())
    );
}
