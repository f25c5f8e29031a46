//! The connection to Redis: one server or a cluster, plain or over TLS.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use redis::aio::{ConnectionManager, ConnectionManagerConfig};
use redis::cluster::{ClusterClient, ClusterConfig};
use redis::cluster_async::ClusterConnection;
use redis::{Client, Cmd, RedisError, Value};
use tokio::task::JoinSet;
use tracing::{info, warn};

/// Timeout of one try: half a call's.
const RESPONSE_LIMIT: Duration = Duration::from_millis(500);

/// Maximum pause between two connection attempts, and so the delay until a recovered Redis is noticed.
const RECONNECT_PAUSE_MAX: Duration = Duration::from_millis(500);

/// Further connection attempts on behalf of one call; the next call tries again.
const RECONNECTS: usize = 1;

/// Tries of a cluster per command: a moved slot needs a second one.
const CLUSTER_RETRIES: u32 = 2;

/// A connection that reconnects automatically. Cloning it is cheap: clones share it.
///
/// The library reopens closed connections. A connection that stops responding without closing would block for about
/// fifteen minutes, until the system closes it. So a call without an answer in time opens a new connection, and
/// replaces the old one when the new one responds. Until then the old one stays in use: in a cluster, only one node may
/// be silent. The other nodes still answer on the old connection, while a new one may wait for the silent node.
#[derive(Clone)]
pub(super) struct Connection {
    source: Source,
    live: Arc<RwLock<LiveConnection>>,
    is_replacing: Arc<AtomicBool>,
}

/// Client that opens connections.
#[derive(Clone)]
enum Source {
    Single(Box<Client>),
    Cluster(Box<ClusterClient>),
}

/// The connection in use.
#[derive(Clone)]
struct LiveConnection {
    /// Number of connections that it has replaced.
    number: u64,
    link: Link,
}

#[derive(Clone)]
enum Link {
    /// One server.
    Single(ConnectionManager),
    /// A Redis Cluster: each command goes to the node that holds its keys.
    Cluster(ClusterConnection),
}

impl Connection {
    /// Connects to the server at `urls`, or to the cluster at several comma-separated URLs. `rediss://` uses TLS with
    /// the system's CAs, or those in `SSL_CERT_FILE`.
    ///
    /// Connects at first use, so Redis may be down now. Needs a tokio runtime.
    pub(super) fn open(urls: &str) -> Result<Self, RedisError> {
        let source = Source::from_urls(urls)?;
        let link = source.link()?;
        let live = Arc::new(RwLock::new(LiveConnection { number: 0, link }));
        Ok(Self {
            source,
            live,
            is_replacing: Arc::default(),
        })
    }

    /// Sends `command` and waits for the reply.
    pub(super) async fn query(&self, command: &Cmd) -> Result<Value, RedisError> {
        let live = self.live();
        let reply = live.link.query(command).await;
        self.note(&reply, live.number);
        reply
    }

    /// Sends `commands` together and waits for all replies. Repeats them once if the connection was broken.
    pub(super) async fn query_all(&self, commands: Vec<Cmd>) -> Result<Vec<Value>, RedisError> {
        let live = self.live();
        let replies = live.link.query_all(commands).await;
        self.note(&replies, live.number);
        replies
    }

    pub(super) fn is_cluster(&self) -> bool {
        matches!(self.source, Source::Cluster(_))
    }

    fn live(&self) -> LiveConnection {
        let live = self.live.read();
        live.unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Replaces connection `number` after a timeout, unless another call has replaced it. A slow Redis gets at most one
    /// new connection per [`RESPONSE_LIMIT`], and still processes commands sent on the old one.
    fn note<T>(&self, reply: &Result<T, RedisError>, number: u64) {
        if !reply.as_ref().is_err_and(RedisError::is_timeout) {
            return;
        }
        if self.is_replacing.swap(true, Ordering::Acquire) {
            return;
        }
        let connection = self.clone();
        tokio::spawn(async move {
            if connection.live().number == number {
                connection.replace().await;
            }
            connection.is_replacing.store(false, Ordering::Release);
        });
    }

    async fn replace(&self) {
        match self.source.answering().await {
            Ok(link) => {
                info!("timeout waiting for Redis; opening a new connection");
                let live = self.live.write();
                let mut live = live.unwrap_or_else(PoisonError::into_inner);
                let number = live.number.wrapping_add(1);
                *live = LiveConnection { number, link };
            }
            Err(error) => warn!(%error, "Redis not responding; keeping the connection"),
        }
    }
}

impl Source {
    fn from_urls(urls: &str) -> Result<Self, RedisError> {
        let mut nodes = urls.split(',').map(str::trim).peekable();
        let first = nodes.next().unwrap_or_default();
        if nodes.peek().is_none() {
            return Ok(Self::Single(Client::open(first)?.into()));
        }
        let client = ClusterClient::builder(std::iter::once(first).chain(nodes))
            .retries(CLUSTER_RETRIES)
            // Also limits all tries of a command together: otherwise the call would time out first and not detect the
            // silence.
            .response_timeout(RESPONSE_LIMIT)
            .max_retry_wait(RECONNECT_PAUSE_MAX.as_millis() as u64)
            .build()?;
        Ok(Self::Cluster(client.into()))
    }

    /// Opens a link that connects at first use.
    fn link(&self) -> Result<Link, RedisError> {
        Ok(match self {
            Self::Single(client) => {
                let client = Client::clone(client);
                let manager = ConnectionManager::new_lazy_with_config(client, single_config())?;
                Link::Single(manager)
            }
            Self::Cluster(client) => {
                let connection = client.get_pending_async_connection_with_config(cluster_config());
                Link::Cluster(connection)
            }
        })
    }

    /// Opens a link and checks that Redis responds; in a cluster, each node.
    async fn answering(&self) -> Result<Link, RedisError> {
        let link = match self {
            Self::Single(client) => {
                let client = Client::clone(client);
                Link::Single(ConnectionManager::new_with_config(client, single_config()).await?)
            }
            Self::Cluster(client) => {
                let connection = client.get_async_connection_with_config(cluster_config());
                Link::Cluster(connection.await?)
            }
        };
        link.query(&redis::cmd("PING")).await?;
        Ok(link)
    }
}

impl Link {
    async fn query(&self, command: &Cmd) -> Result<Value, RedisError> {
        match self {
            Self::Single(connection) => command.query_async(&mut connection.clone()).await,
            Self::Cluster(connection) => command.query_async(&mut connection.clone()).await,
        }
    }

    async fn query_all(&self, commands: Vec<Cmd>) -> Result<Vec<Value>, RedisError> {
        match self {
            Self::Single(connection) => {
                let mut all = redis::Pipeline::with_capacity(commands.len());
                commands.into_iter().for_each(|command| {
                    all.add_command(command);
                });
                match all.query_async(&mut connection.clone()).await {
                    Err(error) if error.is_unrecoverable_error() => {
                        all.query_async(&mut connection.clone()).await
                    }
                    replies => replies,
                }
            }
            Self::Cluster(connection) => query_nodes(connection, commands).await,
        }
    }
}

/// Sends each command to the node of its key, concurrently.
async fn query_nodes(
    connection: &ClusterConnection,
    commands: Vec<Cmd>,
) -> Result<Vec<Value>, RedisError> {
    let mut tasks = JoinSet::new();
    let mut replies = vec![Value::Nil; commands.len()];
    for (n, command) in commands.into_iter().enumerate() {
        let mut connection = connection.clone();
        tasks.spawn(async move {
            let reply: Result<Value, RedisError> = command.query_async(&mut connection).await;
            (n, reply)
        });
    }
    while let Some(done) = tasks.join_next().await {
        let (n, reply) = done.map_err(|error| std::io::Error::other(error.to_string()))?;
        if let Some(to) = replies.get_mut(n) {
            *to = reply?;
        }
    }
    Ok(replies)
}

fn cluster_config() -> ClusterConfig {
    ClusterConfig::new()
        .set_connection_timeout(RESPONSE_LIMIT)
        .set_response_timeout(RESPONSE_LIMIT)
}

fn single_config() -> ConnectionManagerConfig {
    ConnectionManagerConfig::new()
        .set_connection_timeout(Some(RESPONSE_LIMIT))
        .set_response_timeout(Some(RESPONSE_LIMIT))
        .set_max_delay(RECONNECT_PAUSE_MAX)
        .set_number_of_retries(RECONNECTS)
}
