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

/// How long one try may take: half a call.
const RESPONSE_LIMIT: Duration = Duration::from_millis(500);

/// The longest pause between two tries to connect. A Redis that is back is found within it.
const RECONNECT_PAUSE_MAX: Duration = Duration::from_millis(500);

/// Further tries to connect on behalf of one call; the next call tries again.
const RECONNECTS: usize = 1;

/// Tries that a cluster gets for one command: a shard that moved needs a second one.
const CLUSTER_RETRIES: u32 = 2;

/// A connection that reconnects by itself. Cloning it is cheap: clones share it.
///
/// One that was closed, its library opens again. One that has fallen silent it would wait for as long as the system does,
/// some fifteen minutes: so whoever gets no answer in time has the connection replaced, once another answers. Until then it
/// stays in use. Of a cluster it may be one node that is silent: over the old connection the others answer, while a new
/// one, which has yet to reach that node, may keep all waiting for it.
#[derive(Clone)]
pub(super) struct Connection {
    source: Source,
    live: Arc<RwLock<LiveConnection>>,
    is_replacing: Arc<AtomicBool>,
}

/// What connections are made of.
#[derive(Clone)]
enum Source {
    Single(Box<Client>),
    Cluster(Box<ClusterClient>),
}

/// The connection that calls take now.
#[derive(Clone)]
struct LiveConnection {
    /// How many were replaced before it.
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
    /// A connection to the server at `urls`, or to the cluster if there are several, with commas between
    /// them. `rediss://` means TLS, by the system's authorities or those in `SSL_CERT_FILE`.
    ///
    /// Connects when it is first used, so Redis may be down now. Needs a tokio runtime.
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

    /// Sends `commands` at once, again if the connection turned out to be broken, and waits for all replies.
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

    /// Has connection `number` replaced if it has not answered in time, unless another call has done so. A Redis that is
    /// merely slow gets at most one new connection in [`RESPONSE_LIMIT`], and still hears what was sent on the old one.
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
            // For all tries of a command together, too: a call that gives up sooner would never hear of the silence.
            .response_timeout(RESPONSE_LIMIT)
            .max_retry_wait(RECONNECT_PAUSE_MAX.as_millis() as u64)
            .build()?;
        Ok(Self::Cluster(client.into()))
    }

    /// A link that connects when it is first used.
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

    /// A link over which Redis answers: of a cluster, each node.
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

/// Each to the node that holds its key, all at the same time.
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
