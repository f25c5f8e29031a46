//! The connections to one server.

use std::cell::RefCell;
use std::time::Duration;

use tokio::time::Instant;
use weir_engine::redis::Reply;

use super::Dial;
use super::connection::{Connection, is_good};

/// Connections idle for longer are closed: firewalls drop connections after some silent minutes.
const REST_MAX: Duration = Duration::from_secs(30);

/// One server, as one engine host reaches it. The engine's limit on batches in flight also limits the connections.
pub(super) struct Server {
    address: String,
    dial: Dial,
    /// Idle connections with the time of their last call; the most recently used is last.
    resting: RefCell<Vec<(Connection, Instant)>>,
}

impl Server {
    pub(super) fn new(address: String, dial: Dial) -> Self {
        Self {
            address,
            dial,
            resting: RefCell::default(),
        }
    }

    pub(super) fn address(&self) -> &str {
        &self.address
    }

    /// Sends commands and waits for `count` replies.
    pub(super) async fn call(&self, commands: &[u8], count: usize, deadline: Instant) -> Reply {
        let mut connection = match self.take_resting() {
            Some(connection) => connection,
            None => Connection::open(&self.address, &self.dial, deadline).await?,
        };
        let reply = connection.call(commands, count, deadline).await;
        if is_good(&reply) {
            let mut resting = self.resting.borrow_mut();
            resting.push((connection, Instant::now()));
        }
        reply
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
