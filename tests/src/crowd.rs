//! A crowd that does not give up: it reconnects, switches to another gateway, and retries until it has a final answer.
//! People with a button and a broken page do the same.

#![expect(
    clippy::indexing_slicing,
    reason = "a wrong index is a mistake of the tests, and must stop them"
)]

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use anyhow::{Result, ensure};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout};
use weir_stack::Stack;
use weir_stack::http::{Connection, Method, Response};

use crate::{verdict, wait_after};

/// Longer than any fault in tests, including the restart and the claims' lifetime after it.
const PATIENCE: Duration = Duration::from_secs(60);

/// Longer than the gateway's own time limits, so that these take effect.
const ANSWER_LIMIT: Duration = Duration::from_secs(10);

/// The pause between two tries.
const PAUSE: Duration = Duration::from_millis(50);

/// The final results of a crowd, by verdict.
pub type Verdicts = BTreeMap<String, usize>;

/// A running crowd.
#[derive(Debug)]
pub struct Crowd {
    lines: JoinSet<Result<Vec<String>>>,
    state: Arc<State>,
}

#[derive(Debug)]
struct State {
    gateways: Vec<String>,
    path: String,
    users: Vec<String>,
    next: AtomicUsize,
    done: AtomicUsize,
    broken: AtomicUsize,
}

impl Crowd {
    /// Makes each of `users` buy once from `sale`, over `connections` connections that are distributed over all
    /// gateways of `stack`.
    pub fn start(stack: &Stack, sale: &str, users: Vec<String>, connections: usize) -> Self {
        Self::start_at(stack.gateway_urls(), sale, users, connections)
    }

    /// As [`Crowd::start`], with explicit URLs of gateways.
    pub fn start_at(
        gateways: Vec<String>,
        sale: &str,
        users: Vec<String>,
        connections: usize,
    ) -> Self {
        let authority = |url: String| url.trim_start_matches("http://").to_owned();
        let state = Arc::new(State {
            gateways: gateways.into_iter().map(authority).collect(),
            path: format!("/sales/{sale}/orders"),
            users,
            next: AtomicUsize::new(0),
            done: AtomicUsize::new(0),
            broken: AtomicUsize::new(0),
        });
        let mut lines = JoinSet::new();
        for line in 0..connections {
            lines.spawn(Arc::clone(&state).line(line));
        }
        Self { lines, state }
    }

    /// Waits until `count` users have a final answer.
    ///
    /// # Errors
    /// The count is not reached in time.
    pub async fn until_done(&self, count: usize) -> Result<()> {
        let deadline = Instant::now() + PATIENCE;
        while self.state.done.load(Ordering::Relaxed) < count {
            ensure!(Instant::now() < deadline, "the crowd is stuck");
            sleep(Duration::from_millis(1)).await;
        }
        let done = self.state.done.load(Ordering::Relaxed);
        ensure!(done < self.state.users.len(), "the rush is over already");
        Ok(())
    }

    /// Waits until all users have a final answer.
    ///
    /// # Errors
    /// A user has no final answer in time.
    pub async fn finish(mut self) -> Result<Verdicts> {
        let mut verdicts = Verdicts::new();
        while let Some(line) = self.lines.join_next().await {
            for verdict in line?? {
                *verdicts.entry(verdict).or_default() += 1;
            }
        }
        let broken = self.state.broken.load(Ordering::Relaxed);
        if broken > 0 {
            eprintln!("{broken} answers did not come or were no final ones");
        }
        Ok(verdicts)
    }
}

impl State {
    async fn line(self: Arc<Self>, line: usize) -> Result<Vec<String>> {
        let mut gateway = line;
        let mut connection = None;
        let mut verdicts = Vec::new();
        while let Some(user) = self.users.get(self.next.fetch_add(1, Ordering::Relaxed)) {
            let deadline = Instant::now() + PATIENCE;
            let last = loop {
                let answer = self.ask(&mut connection, gateway, user).await;
                let (received, wait) = match answer {
                    Ok(answer) => match wait_after(&answer, PAUSE)? {
                        Some(wait) => (answer.text(), wait),
                        None => break verdict(&answer).to_owned(),
                    },
                    Err(error) => {
                        // Reconnects to another gateway if there is one.
                        connection = None;
                        gateway += 1;
                        (format!("{error:#}"), PAUSE)
                    }
                };
                self.broken.fetch_add(1, Ordering::Relaxed);
                ensure!(Instant::now() < deadline, "{user} still hears {received}");
                sleep(wait).await;
            };
            verdicts.push(last);
            self.done.fetch_add(1, Ordering::Relaxed);
        }
        Ok(verdicts)
    }

    async fn ask(
        &self,
        connection: &mut Option<Connection>,
        gateway: usize,
        user: &str,
    ) -> Result<Response> {
        let exchange = async {
            if connection.as_ref().is_none_or(Connection::is_closed) {
                let authority = &self.gateways[gateway % self.gateways.len()];
                *connection = Some(Connection::open(authority).await?);
            }
            let headers = [("x-user-id", user)];
            match connection {
                Some(open) => open.send(Method::POST, &self.path, &headers, "").await,
                None => anyhow::bail!("no connection"),
            }
        };
        timeout(ANSWER_LIMIT, exchange).await?
    }
}
