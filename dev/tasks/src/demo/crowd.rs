//! Concurrent people: a crowd shares connections, each of which serves one person at a time.

use super::client::{Endpoint, Line};
use super::tally::Tally;
use anyhow::{Context, Result};
use indicatif::{ProgressBar, ProgressStyle};
use std::future::Future;
use std::sync::{Arc, Mutex, PoisonError};
use std::vec::IntoIter;
use tokio::task::JoinSet;

/// The action of each person in a crowd.
pub(super) trait CrowdAction: Send + Sync + 'static {
    /// The person.
    type Who: Send + 'static;
    /// The result of the action.
    type Outcome: Send + 'static;

    fn play(&self, line: &mut Line, user: Self::Who) -> impl Future<Output = Self::Outcome> + Send;
}

/// A crowd's endpoints and connections.
#[derive(Debug, Clone)]
pub(super) struct Crowd {
    /// Connections are distributed over these in turn.
    pub(super) endpoints: Arc<[Endpoint]>,
    /// The number of shared connections.
    pub(super) connections: u32,
    /// The label of the progress bar; `None` hides it.
    pub(super) label: Option<&'static str>,
}

/// State shared by all connections.
struct Stage<A: CrowdAction> {
    act: A,
    waiting: Mutex<IntoIter<A::Who>>,
    bar: ProgressBar,
}

impl Crowd {
    /// Runs `act` for each of `whos`. Returns the results in order of completion, and what the clients observed.
    pub(super) async fn play<A: CrowdAction>(
        &self,
        act: A,
        whos: Vec<A::Who>,
    ) -> Result<(Vec<A::Outcome>, Tally)> {
        let lines = whos.len().min(self.connections as usize);
        let endpoints = self.endpoints.iter().cycle().cloned();
        let mut outcomes = Vec::with_capacity(whos.len());
        let stage = Arc::new(Stage {
            act,
            bar: self.bar(whos.len()),
            waiting: Mutex::new(whos.into_iter()),
        });
        let mut playing = JoinSet::new();
        for (number, endpoint) in (0..).zip(endpoints).take(lines) {
            playing.spawn(serve(stage.clone(), Line::new(number, endpoint)?));
        }
        let mut tally = Tally::empty()?;
        while let Some(line) = playing.join_next().await {
            let (done, saw) = line.context("a client crashed")?;
            outcomes.extend(done);
            tally.add(&saw)?;
        }
        stage.bar.finish_and_clear();
        Ok((outcomes, tally))
    }

    /// Hidden automatically if standard error is not a terminal.
    fn bar(&self, length: usize) -> ProgressBar {
        let Some(label) = self.label else {
            return ProgressBar::hidden();
        };
        let style = ProgressStyle::with_template(
            "          {prefix:<11} {bar:30} {pos}/{len}  {per_sec}  {elapsed} (rest {eta})",
        );
        let bar = ProgressBar::new(length as u64).with_prefix(label);
        bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
        bar
    }
}

async fn serve<A: CrowdAction>(stage: Arc<Stage<A>>, mut line: Line) -> (Vec<A::Outcome>, Tally) {
    let mut outcomes = Vec::new();
    while let Some(user) = stage.next() {
        outcomes.push(stage.act.play(&mut line, user).await);
        stage.bar.inc(1);
    }
    (outcomes, line.observed)
}

impl<A: CrowdAction> Stage<A> {
    fn next(&self) -> Option<A::Who> {
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        waiting.next()
    }
}

#[cfg(test)]
mod tests {
    use super::super::client::DemoRequest;
    use super::*;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::{TcpListener, TcpStream};

    struct Knock;

    impl CrowdAction for Knock {
        type Who = u32;
        type Outcome = Option<u16>;

        async fn play(&self, line: &mut Line, subject: u32) -> Option<u16> {
            let user = format!("user-{subject}");
            let ask = DemoRequest {
                path: "/",
                user: &user,
                token: None,
                pass: None,
                good: "good",
            };
            line.ask(&ask).await.map(|answer| answer.status)
        }
    }

    /// Answers the first request of each connection with 503, the second with 201, and closes at the third.
    async fn flaky(mut stream: TcpStream) {
        const ANSWERS: [&str; 2] = [
            "HTTP/1.1 503 x\r\nretry-after: 0\r\nx-weir-verdict: unavailable\r\ncontent-length: 0\r\n\r\n",
            "HTTP/1.1 201 x\r\nx-weir-verdict: granted\r\ncontent-length: 0\r\n\r\n",
        ];
        let mut buffer = [0; 4096];
        for answer in ANSWERS {
            if stream.read(&mut buffer).await.unwrap_or(0) == 0 {
                return;
            }
            stream.write_all(answer.as_bytes()).await.ok();
        }
        _ = stream.read(&mut buffer).await.unwrap_or(0);
    }

    #[tokio::test]
    async fn crowd_retries_and_counts_503s_and_broken_connections() {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let crowd = Crowd {
            endpoints: [Endpoint::gateway(
                &listener.local_addr().unwrap().to_string(),
            )]
            .into(),
            connections: 2,
            label: None,
        };
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(flaky(stream));
            }
        });
        let (outcomes, observed) = crowd.play(Knock, (0..10).collect()).await.unwrap();
        assert_eq!(outcomes, [Some(201); 10]);
        assert_eq!(observed.statuses.get(&201), Some(&10));
        assert_eq!(observed.words.get("granted"), Some(&10));
        assert_eq!(observed.statuses.get(&503), Some(&10));
        assert_eq!(observed.gave_up, 0);
        assert_eq!(observed.requests, 20 + observed.broken);
        assert_eq!(observed.latency_us.len(), 20);
    }
}
