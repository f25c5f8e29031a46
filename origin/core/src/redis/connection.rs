//! The connection to Redis: one server, the primary of a replicated set, or a cluster; plain or over TLS.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;

use redis::aio::{ConnectionManager, ConnectionManagerConfig};
use redis::cluster::{ClusterClient, ClusterConfig};
use redis::cluster_async::ClusterConnection;
use redis::{AsyncConnectionConfig, Client, Cmd, RedisError, Role, ServerErrorKind, Value};
use tokio::task::JoinSet;
use tracing::{info, warn};

/// Timeout of one try: half a call's.
const RESPONSE_LIMIT: Duration = Duration::from_millis(500);

/// Maximum pause between two connection attempts, and so the delay until a recovered Redis is noticed.
const RECONNECT_PAUSE_MAX: Duration = Duration::from_millis(500);

/// Pause after a replacement.
const REPLACE_PAUSE: Duration = Duration::from_millis(200);

/// Further connection attempts on behalf of one call; the next call tries again.
const RECONNECTS: usize = 1;

/// Starts the list of all nodes of a replicated set.
pub(super) const REPLICATED: &str = "replicated:";

/// Tries of a cluster per command: a moved slot needs a second one.
const CLUSTER_RETRIES: u32 = 2;

/// A connection that reconnects automatically. Cloning it is cheap: clones share it.
///
/// The library reopens closed connections. A connection that stops responding without closing would block for about
/// fifteen minutes, until the system closes it. So a call without an answer in time opens a new connection, and
/// replaces the old one when the new one responds. Until then the old one stays in use: in a cluster, only one node may
/// be silent. The other nodes still answer on the old connection, while a new one may wait for the silent node.
///
/// After a failover, the server of a connection may be a replica, or no longer run. So a refusal as a replica opens a new
/// connection, which resolves the name again. In a replicated set, also any lost connection does: the new one uses the node
/// that is the primary now.
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
    /// All nodes of a replicated set.
    Replicated(Vec<Client>),
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
    /// The primary of a replicated set is not yet known.
    NoPrimary,
}

impl Connection {
    /// Connects to the server at `urls`, or to the cluster at several comma-separated URLs. After `replicated:`, the URLs
    /// name a primary and its replicas. `rediss://` uses TLS with the system's CAs, or the CAs in `SSL_CERT_FILE`.
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
        let live = self.connected().await;
        let reply = live.link.query(command).await;
        self.note(&reply, live.number);
        reply
    }

    /// Sends `commands` together and waits for all replies. Repeats them once if the connection was broken.
    pub(super) async fn query_all(&self, commands: Vec<Cmd>) -> Result<Vec<Value>, RedisError> {
        let live = self.connected().await;
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

    /// The live connection; at first use of a replicated set, after looking for its primary.
    async fn connected(&self) -> LiveConnection {
        let live = self.live();
        if !matches!(live.link, Link::NoPrimary) {
            return live;
        }
        self.replace().await;
        self.live()
    }

    /// Replaces connection `number` after an error that a new connection may end, unless another call has replaced it. A
    /// slow Redis gets at most one new connection per [`RESPONSE_LIMIT`], and still processes commands sent on the old one.
    fn note<T>(&self, reply: &Result<T, RedisError>, number: u64) {
        if !reply
            .as_ref()
            .is_err_and(|error| self.source.replaces_after(error))
        {
            return;
        }
        if self.is_replacing.swap(true, Ordering::Acquire) {
            return;
        }
        let connection = self.clone();
        tokio::spawn(async move {
            if connection.live().number == number {
                connection.replace().await;
                // All calls fail until the new primary is there: do not look for it at each.
                tokio::time::sleep(REPLACE_PAUSE).await;
            }
            connection.is_replacing.store(false, Ordering::Release);
        });
    }

    async fn replace(&self) {
        match self.source.answering().await {
            Ok(link) => {
                info!("opened a new connection to Redis");
                let live = self.live.write();
                let mut live = live.unwrap_or_else(PoisonError::into_inner);
                let number = live.number.wrapping_add(1);
                *live = LiveConnection { number, link };
            }
            Err(error) => {
                warn!(%error, "cannot open a new connection to Redis; keeping the old one")
            }
        }
    }
}

impl Source {
    fn from_urls(urls: &str) -> Result<Self, RedisError> {
        if let Some(urls) = urls.strip_prefix(REPLICATED) {
            let nodes = urls.split(',').map(|url| Client::open(url.trim()));
            return Ok(Self::Replicated(nodes.collect::<Result<_, _>>()?));
        }
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

    /// Whether a new connection may end this error.
    fn replaces_after(&self, error: &RedisError) -> bool {
        let is_replica = error.kind() == ServerErrorKind::ReadOnly.into();
        let is_replicated = matches!(self, Self::Replicated(_));
        // A former primary without replicas refuses writes, if min-replicas-to-write is set.
        let is_lost = error.is_unrecoverable_error() || error.code() == Some("NOREPLICAS");
        error.is_timeout() || is_replica || (is_replicated && is_lost)
    }

    /// Opens a link that connects at first use.
    fn link(&self) -> Result<Link, RedisError> {
        Ok(match self {
            Self::Single(client) => {
                let client = Client::clone(client);
                let manager = ConnectionManager::new_lazy_with_config(client, single_config())?;
                Link::Single(manager)
            }
            Self::Replicated(_) => Link::NoPrimary,
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
            Self::Replicated(nodes) => {
                let client = primary(nodes).await?;
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
            Self::NoPrimary => Err(no_primary()),
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
            Self::NoPrimary => Err(no_primary()),
        }
    }
}

/// The node that is the primary.
async fn primary(nodes: &[Client]) -> Result<Client, RedisError> {
    let mut checks = JoinSet::new();
    for client in nodes.iter().cloned() {
        checks.spawn(async move { is_primary(&client).await.then_some(client) });
    }
    while let Some(check) = checks.join_next().await {
        if let Ok(Some(client)) = check {
            return Ok(client);
        }
    }
    Err(no_primary())
}

/// Whether a node is a primary with a replica. A former primary that returns also calls itself a primary for some seconds,
/// but has no replica.
async fn is_primary(client: &Client) -> bool {
    let role = async {
        let config = AsyncConnectionConfig::new()
            .set_connection_timeout(Some(RESPONSE_LIMIT))
            .set_response_timeout(Some(RESPONSE_LIMIT));
        let connection = client.get_multiplexed_async_connection_with_config(&config);
        redis::cmd("ROLE").query_async(&mut connection.await?).await
    };
    let role: Result<Role, RedisError> = role.await;
    matches!(role, Ok(Role::Primary { replicas, .. }) if !replicas.is_empty())
}

fn no_primary() -> RedisError {
    std::io::Error::other("no node is a primary with a replica").into()
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
