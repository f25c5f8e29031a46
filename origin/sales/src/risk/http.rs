//! Client of a risk service over HTTPS or HTTP: `POST {"sale", "user", "address", "agent"}`, answered by `{"score"}`.

use std::hash::{BuildHasher, RandomState};
use std::path::Path;
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use axum::http::{HeaderValue, Method, header};
use hyper::body::Bytes;
use serde::Deserialize;
use serde_json::json;
use weir_base::breaker::{Breaker, Outcome, Permit, Settings};

use super::{RiskScorer, ScoreError, ScoreFuture};
use crate::store::UnscoredReservation;
use weir_origin_core::clock::now_ms;
use weir_origin_core::http::client::{ClientError, HttpClient};

/// Maximum length of an answer, in bytes.
const ANSWER_LEN_MAX: usize = 16 * 1024;

/// Timeouts and retries of an [`HttpScorer`].
#[derive(Clone, Copy, Debug)]
pub struct HttpSettings {
    /// Timeout of one try.
    pub timeout: Duration,
    /// Maximum tries per score: at least 1.
    pub tries: u32,
    /// Pause after the first failed try. It doubles with each further one, plus a random part of up to half, so that
    /// retries spread out.
    pub pause: Duration,
    /// Settings of the circuit breaker.
    pub breaker: Settings,
}

impl Default for HttpSettings {
    fn default() -> Self {
        Self {
            timeout: Duration::from_secs(1),
            tries: 3,
            pause: Duration::from_millis(100),
            breaker: Settings::default(),
        }
    }
}

/// Client of a risk service.
#[derive(Debug)]
pub struct HttpScorer {
    client: HttpClient,
    settings: HttpSettings,
    breaker: Mutex<Breaker>,
}

#[derive(Deserialize)]
struct Answer {
    score: u32,
}

impl HttpScorer {
    /// Creates a client of the service at `url`. For `https`, it trusts the CAs in the file `ca`, or the system's.
    ///
    /// # Errors
    /// When the URL is malformed, or the CAs cannot be read.
    pub fn new(url: &str, ca: Option<&Path>, settings: HttpSettings) -> Result<Self, ClientError> {
        Ok(Self {
            client: HttpClient::new(url, ca)?,
            settings,
            breaker: Mutex::new(Breaker::new(settings.breaker)),
        })
    }

    async fn ask(&self, who: &UnscoredReservation) -> Result<u32, ScoreError> {
        let mut tries = 0;
        loop {
            let failure = match self.try_once(who).await {
                Err(error) if is_passing(&error) => error,
                answer => return answer,
            };
            tries += 1;
            if tries >= self.settings.tries {
                return Err(failure);
            }
            tokio::time::sleep(with_jitter(
                self.settings.pause * 2_u32.pow(tries.min(10) - 1),
            ))
            .await;
        }
    }

    /// Makes one try, if the circuit breaker allows it.
    async fn try_once(&self, who: &UnscoredReservation) -> Result<u32, ScoreError> {
        // The breaker is consistent even after a panic, because one call changes it.
        let breaker = || self.breaker.lock().unwrap_or_else(PoisonError::into_inner);
        let permit = breaker().permit(now_ms());
        let pass = match permit {
            Permit::Pass(pass) => pass,
            Permit::Refuse { retry_after_ms } => return Err(ScoreError::Open { retry_after_ms }),
        };
        let answer = self.exchange(who).await;
        let outcome = match answer {
            Ok(_) => Outcome::Success,
            Err(_) => Outcome::Failure,
        };
        breaker().record(now_ms(), pass, outcome);
        answer
    }

    async fn exchange(&self, who: &UnscoredReservation) -> Result<u32, ScoreError> {
        let body = json!({
            "sale": who.sale, "user": who.user.as_str(),
            "address": who.visitor.address, "agent": who.visitor.agent,
        });
        let json = HeaderValue::from_static("application/json");
        let headers = [(header::CONTENT_TYPE, json)];
        let (client, body) = (&self.client, Bytes::from(body.to_string()));
        let answer = client.send(Method::POST, client.path(), &headers, body, ANSWER_LEN_MAX);
        let (status, body) = tokio::time::timeout(self.settings.timeout, answer)
            .await
            .map_err(|_| ScoreError::Timeout)?
            .map_err(|error| ScoreError::Connection(error.to_string()))?;
        if !status.is_success() {
            return Err(ScoreError::Status(status.as_u16()));
        }
        let answer: Answer = serde_json::from_slice(&body)?;
        Ok(answer.score)
    }
}

/// Whether an immediate retry may succeed.
fn is_passing(error: &ScoreError) -> bool {
    match error {
        ScoreError::Timeout | ScoreError::Connection(_) => true,
        ScoreError::Status(status) => *status >= 500 || *status == 429,
        ScoreError::Open { .. } | ScoreError::Answer(_) => false,
    }
}

fn with_jitter(pause: Duration) -> Duration {
    // The keys of each `RandomState` differ, which is random enough for a pause.
    let chance = RandomState::new().hash_one(0) % 512;
    pause + pause * u32::try_from(chance).unwrap_or(0) / 1024
}

impl RiskScorer for HttpScorer {
    fn score<'a>(&'a self, who: &'a UnscoredReservation) -> ScoreFuture<'a> {
        Box::pin(self.ask(who))
    }
}
