//! The connections to one server, or to the primary of a replicated set.

use std::cell::{Cell, RefCell};
use std::time::Duration;

use tokio::time::Instant;
use weir_engine::redis::{DefiniteFailure, Reply};

use super::Dial;
use super::connection::{Connection, is_good};

/// Connections idle for longer are closed: firewalls drop connections after some silent minutes.
const REST_MAX: Duration = Duration::from_secs(30);

/// One server, or the nodes of a replicated set, as one engine host reaches it. The engine's limit on batches in flight also limits the connections.
pub(super) struct Server {
    /// The server's address, or the addresses of all nodes of the set.
    addresses: Vec<String>,
    /// The index of the last primary.
    primary: Cell<usize>,
    dial: Dial,
    /// Idle connections with the time of their last call; the most recently used is last.
    resting: RefCell<Vec<(Connection, Instant)>>,
}

impl Server {
    pub(super) fn new(addresses: Vec<String>, dial: Dial) -> Self {
        Self {
            addresses,
            primary: Cell::default(),
            dial,
            resting: RefCell::default(),
        }
    }

    /// The address of the server, or of the last primary.
    pub(super) fn address(&self) -> &str {
        let address = self.addresses.get(self.primary.get());
        address.map_or("", String::as_str)
    }

    /// Sends commands and waits for `count` replies.
    pub(super) async fn call(&self, commands: &[u8], count: usize, deadline: Instant) -> Reply {
        let mut connection = match self.take_resting() {
            Some(connection) => connection,
            None => self.open(deadline).await?,
        };
        let reply = connection.call(commands, count, deadline).await;
        let mut resting = self.resting.borrow_mut();
        if is_good(&reply) {
            resting.push((connection, Instant::now()));
        } else if self.is_replicated() {
            // The other connections lead to the same node, which may no longer be the primary.
            resting.clear();
        }
        reply
    }

    fn is_replicated(&self) -> bool {
        self.addresses.len() > 1
    }

    /// Connects to the server, or to the first node that is the primary. The next call starts after a node that failed, so a
    /// node that does not answer delays only one call.
    async fn open(&self, deadline: Instant) -> Result<Connection, DefiniteFailure> {
        let mut failure = DefiniteFailure::Refused("there is no address".into());
        for _ in &self.addresses {
            let node = self.primary.get();
            let opened = Connection::open(self.address(), &self.dial, deadline).await;
            let opened = match (opened, self.is_replicated()) {
                (Ok(mut connection), true) => {
                    let checked = connection.check_primary(self.address(), deadline).await;
                    checked.map(|()| connection)
                }
                (opened, _) => opened,
            };
            match opened {
                Ok(connection) => return Ok(connection),
                Err(error) => failure = error,
            }
            // Unless another call has found the primary meanwhile.
            if self.primary.get() == node {
                self.primary.set((node + 1) % self.addresses.len());
            }
            if Instant::now() >= deadline {
                break;
            }
        }
        Err(failure)
    }

    fn take_resting(&self) -> Option<Connection> {
        loop {
            let (mut connection, _) = self.resting.borrow_mut().pop()?;
            if connection.is_quiet() {
                return Some(connection);
            }
        }
    }

    pub(super) fn close_idle(&self) {
        let now = Instant::now();
        let mut resting = self.resting.borrow_mut();
        resting.retain(|(_, since)| now.saturating_duration_since(*since) < REST_MAX);
    }
}
