//! A risk service over HTTP: `POST {"sale", "user"}`, answered by `{"score"}`.

use std::hash::{BuildHasher, RandomState};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use axum::http::{Request, Uri, header};
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Bytes;
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use serde::Deserialize;
use serde_json::json;
use tokio::net::TcpStream;
use weir_base::breaker::{Breaker, Outcome, Permit, Settings};
use weir_base::id::{SaleId, UserId};

use super::{RiskScorer, ScoreError, ScoreFuture};
use crate::clock::now_ms;

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
    url: Uri,
    address: String,
    settings: HttpSettings,
    breaker: Mutex<Breaker>,
}

#[derive(Deserialize)]
struct Answer {
    score: u32,
}

impl HttpScorer {
    /// Asks the service at `url`. `None` if it is not of the form `http://<host>…`.
    pub fn new(url: &str, settings: HttpSettings) -> Option<Self> {
        let url: Uri = url.parse().ok()?;
        if url.scheme_str() != Some("http") {
            return None;
        }
        let address = format!("{}:{}", url.host()?, url.port_u16().unwrap_or(80));
        Some(Self {
            url,
            address,
            settings,
            breaker: Mutex::new(Breaker::new(settings.breaker)),
        })
    }

    async fn ask(&self, sale: &SaleId, user: &UserId) -> Result<u32, ScoreError> {
        let mut tries = 0;
        loop {
            let failure = match self.try_once(sale, user).await {
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
    async fn try_once(&self, sale: &SaleId, user: &UserId) -> Result<u32, ScoreError> {
        // A panic while it was held has left it whole: it is changed in one call.
        let breaker = || self.breaker.lock().unwrap_or_else(PoisonError::into_inner);
        let permit = breaker().permit(now_ms());
        let pass = match permit {
            Permit::Pass(pass) => pass,
            Permit::Refuse { retry_after_ms } => return Err(ScoreError::Open { retry_after_ms }),
        };
        let answer = tokio::time::timeout(self.settings.timeout, self.exchange(sale, user));
        let answer = answer.await.unwrap_or(Err(ScoreError::Timeout));
        let outcome = match answer {
            Ok(_) => Outcome::Success,
            Err(_) => Outcome::Failure,
        };
        breaker().record(now_ms(), pass, outcome);
        answer
    }

    async fn exchange(&self, sale: &SaleId, user: &UserId) -> Result<u32, ScoreError> {
        let stream = TcpStream::connect(&self.address).await.map_err(broken)?;
        let (mut sender, connection) = http1::handshake(TokioIo::new(stream))
            .await
            .map_err(broken)?;
        // Ends with `sender` or the peer; its failure shows as the request's.
        let driver = tokio::spawn(connection);
        let body = json!({ "sale": sale, "user": user.as_str() }).to_string();
        let request = Request::post(self.url.path_and_query().map_or("/", |path| path.as_str()))
            .header(header::HOST, &self.address)
            .header(header::CONTENT_TYPE, "application/json")
            .body(Full::new(Bytes::from(body)))
            .map_err(broken)?;
        let response = sender.send_request(request).await.map_err(broken)?;
        let status = response.status();
        if !status.is_success() {
            driver.abort();
            return Err(ScoreError::Status(status.as_u16()));
        }
        let body = Limited::new(response.into_body(), ANSWER_LEN_MAX)
            .collect()
            .await;
        driver.abort();
        let body = body.map_err(|error| ScoreError::Connection(error.to_string()))?;
        let answer: Answer = serde_json::from_slice(&body.to_bytes())?;
        Ok(answer.score)
    }
}

fn broken(error: impl std::error::Error) -> ScoreError {
    ScoreError::Connection(error.to_string())
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
    fn score<'a>(&'a self, sale: &'a SaleId, user: &'a UserId) -> ScoreFuture<'a> {
        Box::pin(self.ask(sale, user))
    }
}
