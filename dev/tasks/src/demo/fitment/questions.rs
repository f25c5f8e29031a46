//! Queries to the gateway, and checks of the answers.

#![expect(
    clippy::indexing_slicing,
    reason = "members of JSON and YAML that this module has made"
)]

use super::catalogue::Catalogue;
use anyhow::{Context, Result, ensure};
use hdrhistogram::Histogram;
use serde::Deserialize;
use serde_json::json;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};
use tokio::task::JoinSet;
use weir_stack::http::{Connection, Method, Response};

/// The gateway's limits for one query.
const VEHICLES_MAX: u64 = 5;
const SKUS_MAX: u64 = 200;

/// One in this many queries names an unknown vehicle or SKU.
const UNKNOWN_EVERY: u64 = 100;

/// How long a query is retried while the gateway cannot answer.
const PATIENCE: Duration = Duration::from_secs(30);
const RETRY: Duration = Duration::from_millis(100);

/// The longest recorded latency, in microseconds.
const TOOK_MAX_US: u64 = 60_000_000;

/// The results of all queries.
#[derive(Debug, Clone)]
pub(super) struct QuestionReport {
    pub(super) queries: u64,
    /// Queries with entirely correct answers.
    pub(super) right: u64,
    pub(super) pairs: Pairs,
    /// A description of the first wrong answer.
    pub(super) first_wrong: Option<String>,
    /// Retries, because the gateway could not answer.
    pub(super) again: u64,
    pub(super) elapsed: Duration,
    /// Latencies in microseconds.
    pub(super) latencies: Histogram<u64>,
}

/// The number of pairs by answer.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Pairs {
    pub(super) fits: u64,
    pub(super) does_not: u64,
    pub(super) unknown: u64,
}

#[derive(Deserialize)]
struct CheckAnswer<'a> {
    #[serde(borrow)]
    vehicles: Vec<&'a str>,
    #[serde(borrow)]
    skus: Vec<SkuAnswer<'a>>,
}

#[derive(Deserialize)]
struct SkuAnswer<'a> {
    sku: &'a str,
    #[serde(borrow)]
    answers: Vec<&'a str>,
}

/// One query: indices of vehicles and SKUs.
struct Question {
    vehicles: Vec<u64>,
    skus: Vec<u64>,
}

/// Deterministic pseudo-random numbers (Sebastiano Vigna's SplitMix64, public domain).
struct Numbers(u64);

impl Numbers {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }
}

impl Question {
    /// Query `number` of a catalogue.
    fn new(catalogue: &Catalogue, number: u64) -> Self {
        let mut numbers = Numbers(number);
        let vehicles = 1 + numbers.below(VEHICLES_MAX);
        let skus = 1 + numbers.below(SKUS_MAX);
        let mut question = Self {
            vehicles: (0..vehicles)
                .map(|_| numbers.below(catalogue.vehicles))
                .collect(),
            skus: (0..skus).map(|_| numbers.below(catalogue.skus)).collect(),
        };
        match number % UNKNOWN_EVERY {
            0 => question.skus[0] = catalogue.skus + number,
            1 => question.vehicles[0] = catalogue.vehicles + number,
            _ => {}
        }
        question
    }

    fn body(&self) -> String {
        let vehicles: Vec<String> = self
            .vehicles
            .iter()
            .map(|index| Catalogue::vehicle(*index))
            .collect();
        let skus: Vec<String> = self
            .skus
            .iter()
            .map(|index| Catalogue::sku(*index))
            .collect();
        json!({ "vehicles": vehicles, "skus": skus }).to_string()
    }

    /// Compares an answer with the catalogue.
    ///
    /// # Errors
    /// Describes the difference.
    fn check(&self, catalogue: &Catalogue, answer: &[u8]) -> Result<Pairs> {
        let reply: CheckAnswer<'_> =
            serde_json::from_slice(answer).context("no answer to a query")?;
        ensure!(
            reply.vehicles.len() == self.vehicles.len(),
            "the answer has different vehicles"
        );
        ensure!(
            reply.skus.len() == self.skus.len(),
            "the answer has different SKUs"
        );
        let mut pairs = Pairs::default();
        for (sku, reply) in self.skus.iter().zip(&reply.skus) {
            ensure!(
                reply.sku == Catalogue::sku(*sku),
                "the answer has different SKUs"
            );
            ensure!(
                reply.answers.len() == self.vehicles.len(),
                "the answer misses pairs"
            );
            for (vehicle, answer) in self.vehicles.iter().zip(&reply.answers) {
                let right = pairs.count(catalogue, *sku, *vehicle);
                ensure!(
                    *answer == right,
                    "SKU {} and vehicle {}: {answer}, expected {right}",
                    Catalogue::sku(*sku),
                    Catalogue::vehicle(*vehicle)
                );
            }
        }
        Ok(pairs)
    }
}

impl Pairs {
    /// The correct answer for a pair, added to the counts.
    fn count(&mut self, catalogue: &Catalogue, sku: u64, vehicle: u64) -> &'static str {
        let (count, word) = if sku >= catalogue.skus || vehicle >= catalogue.vehicles {
            (&mut self.unknown, "unknown")
        } else if catalogue.fits(sku, vehicle) {
            (&mut self.fits, "fits")
        } else {
            (&mut self.does_not, "does_not")
        };
        *count += 1;
        word
    }

    fn add(&mut self, other: Self) {
        self.fits += other.fits;
        self.does_not += other.does_not;
        self.unknown += other.unknown;
    }

    pub(super) fn all(self) -> u64 {
        self.fits + self.does_not + self.unknown
    }
}

/// Sends `queries` queries over several connections. `tell` receives the number of completed queries.
pub(super) async fn ask(
    authority: &str,
    catalogue: Catalogue,
    queries: u64,
    connections: u32,
    mut tell: impl FnMut(u64),
) -> Result<QuestionReport> {
    let next = Arc::new(AtomicU64::new(0));
    let began = Instant::now();
    let mut clients = JoinSet::new();
    for _ in 0..connections {
        let (authority, next) = (authority.to_owned(), Arc::clone(&next));
        clients.spawn(async move { client(&authority, catalogue, queries, &next).await });
    }
    let mut all = QuestionReport::none()?;
    let mut look = tokio::time::interval(RETRY);
    loop {
        tokio::select! {
            ended = clients.join_next() => match ended {
                Some(part) => all.add(part??)?,
                None => break,
            },
            _ = look.tick() => tell(next.load(Ordering::Relaxed).min(queries)),
        }
    }
    all.elapsed = began.elapsed();
    Ok(all)
}

async fn client(
    authority: &str,
    catalogue: Catalogue,
    queries: u64,
    next: &AtomicU64,
) -> Result<QuestionReport> {
    let mut report = QuestionReport::none()?;
    let mut connection = Connection::open(authority).await?;
    loop {
        let number = next.fetch_add(1, Ordering::Relaxed);
        if number >= queries {
            return Ok(report);
        }
        let question = Question::new(&catalogue, number);
        let (answer, elapsed) = report
            .send(&mut connection, authority, &question.body())
            .await?;
        report.latencies.record(elapsed.as_micros().try_into()?)?;
        report.queries += 1;
        match question.check(&catalogue, &answer.body) {
            Ok(pairs) => {
                report.right += 1;
                report.pairs.add(pairs);
            }
            Err(wrong) => {
                let wrong = || format!("query {number}: {wrong:#}");
                report.first_wrong.get_or_insert_with(wrong);
            }
        }
    }
}

impl QuestionReport {
    fn none() -> Result<Self> {
        Ok(Self {
            queries: 0,
            right: 0,
            pairs: Pairs::default(),
            first_wrong: None,
            again: 0,
            elapsed: Duration::ZERO,
            latencies: Histogram::new_with_max(TOOK_MAX_US, 3)?,
        })
    }

    fn add(&mut self, part: Self) -> Result<()> {
        self.queries += part.queries;
        self.right += part.right;
        self.pairs.add(part.pairs);
        self.again += part.again;
        self.latencies.add(part.latencies)?;
        if self.first_wrong.is_none() {
            self.first_wrong = part.first_wrong;
        }
        Ok(())
    }

    /// The answer with status 200, and its latency.
    async fn send(
        &mut self,
        connection: &mut Connection,
        authority: &str,
        body: &str,
    ) -> Result<(Response, Duration)> {
        let deadline = Instant::now() + PATIENCE;
        let headers = [("content-type", "application/json")];
        loop {
            let began = Instant::now();
            let path = "/fitment/check";
            let sent = connection.send(Method::POST, path, &headers, body.to_owned());
            match sent.await {
                Ok(answer) if answer.status == 200 => return Ok((answer, began.elapsed())),
                Ok(answer) => ensure!(answer.status == 503, "{}: {}", answer.status, answer.text()),
                Err(_) => *connection = Connection::open(authority).await?,
            }
            ensure!(Instant::now() < deadline, "cannot answer a fitment query");
            self.again += 1;
            tokio::time::sleep(RETRY).await;
        }
    }

    /// Whether every query was answered correctly.
    pub(super) fn is_good(&self, queries: u64) -> bool {
        self.queries == queries && self.right == queries
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn catalogue() -> Catalogue {
        Catalogue::new(1_000, 20, 2_000)
    }

    fn right_answer(question: &Question) -> String {
        let catalogue = catalogue();
        let mut pairs = Pairs::default();
        let skus = question.skus.iter().map(|sku| {
            let answers: Vec<_> = question
                .vehicles
                .iter()
                .map(|vehicle| pairs.count(&catalogue, *sku, *vehicle))
                .collect();
            json!({ "sku": Catalogue::sku(*sku), "answers": answers })
        });
        let skus: Vec<_> = skus.collect();
        let vehicles: Vec<_> = question
            .vehicles
            .iter()
            .map(|v| Catalogue::vehicle(*v))
            .collect();
        json!({ "vehicles": vehicles, "skus": skus }).to_string()
    }

    #[test]
    fn one_wrong_word_in_an_answer_is_detected() {
        for number in 0..50 {
            let question = Question::new(&catalogue(), number);
            let answer = right_answer(&question);
            let pairs = question.check(&catalogue(), answer.as_bytes()).unwrap();
            let count = question.skus.len() * question.vehicles.len();
            assert_eq!(pairs.all(), count as u64);
            for (from, to) in [
                ("does_not", "fits"),
                ("\"fits", "\"does_not"),
                ("unknown", "does_not"),
                ("10001200", "10001299"),
            ] {
                if answer.contains(from) {
                    let wrong = answer.replacen(from, to, 1);
                    assert!(
                        question.check(&catalogue(), wrong.as_bytes()).is_err(),
                        "{from}"
                    );
                }
            }
        }
    }

    #[test]
    fn some_questions_name_unknown_vehicles_or_skus() {
        let sku = Question::new(&catalogue(), 0);
        assert!(sku.skus[0] >= 20);
        let vehicle = Question::new(&catalogue(), 101);
        assert!(vehicle.vehicles[0] >= 1_000);
    }
}
