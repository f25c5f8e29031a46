//! A risk service over HTTPS or HTTP: `POST {"sale", "user", "address", "agent"}`, answered by `{"score"}`.

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

/// The largest answer that is read, in bytes.
const ANSWER_LEN_MAX: usize = 16 * 1024;

/// How patient a [`HttpScorer`] is.
#[derive(Clone, Copy, Debug)]
pub struct HttpSettings {
    /// How long one try may take.
    pub timeout: Duration,
    /// Tries for one score: at least 1.
    pub tries: u32,
    /// The pause after the first failed try; doubled with each further one, and up to half as much
    /// again by chance, so that many do not come back at once.
    pub pause: Duration,
    /// When the service is left alone.
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

/// Asks a risk service.
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
    /// Asks the service at `url`. If that is of `https`, the authorities in the file `ca` count, or else the system's.
    ///
    /// # Errors
    /// When the URL is of another form, or the authorities cannot be read.
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

    /// One try, if the breaker lets it.
    async fn try_once(&self, who: &UnscoredReservation) -> Result<u32, ScoreError> {
        // A panic while it was held has left it whole: it is changed in one call.
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

/// Whether another try may fare better at once.
fn is_passing(error: &ScoreError) -> bool {
    match error {
        ScoreError::Timeout | ScoreError::Connection(_) => true,
        ScoreError::Status(status) => *status >= 500 || *status == 429,
        ScoreError::Open { .. } | ScoreError::Answer(_) => false,
    }
}

fn with_jitter(pause: Duration) -> Duration {
    // Keys of each `RandomState` differ: chance enough for a pause.
    let chance = RandomState::new().hash_one(0) % 512;
    pause + pause * u32::try_from(chance).unwrap_or(0) / 1024
}

impl RiskScorer for HttpScorer {
    fn score<'a>(&'a self, who: &'a UnscoredReservation) -> ScoreFuture<'a> {
        Box::pin(self.ask(who))
    }
}
