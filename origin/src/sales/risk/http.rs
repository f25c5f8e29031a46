//! A risk service over HTTPS or HTTP: `POST {"sale", "user", "address", "agent"}`, answered by `{"score"}`.

use std::hash::{BuildHasher, RandomState};
use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use axum::http::{Request, Uri, header};
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Bytes;
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use serde::Deserialize;
use serde_json::json;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use weir_base::breaker::{Breaker, Outcome, Permit, Settings};

use super::{RiskScorer, ScoreError, ScoreFuture};
use crate::clock::now_ms;
use crate::sales::store::Unscored;

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
    tls: Option<Tls>,
    settings: HttpSettings,
    breaker: Mutex<Breaker>,
}

/// How the service is reached over TLS.
struct Tls {
    connector: TlsConnector,
    name: ServerName<'static>,
}

impl std::fmt::Debug for Tls {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Tls({:?})", self.name)
    }
}

/// Why a risk service cannot be asked.
#[derive(Debug, thiserror::Error)]
pub enum HttpScorerError {
    /// The URL is not of the right form.
    #[error("must be https://<host>[:<port>]/… or http://…")]
    Url,
    /// The authorities cannot be read.
    #[error("cannot read the authorities: {0}")]
    Authorities(String),
    /// TLS cannot be set up.
    #[error("TLS: {0}")]
    Tls(#[from] rustls::Error),
}

impl Tls {
    /// Trusts the authorities in this file, or the system's.
    fn new(host: &str, ca: Option<&Path>) -> Result<Self, HttpScorerError> {
        let unread =
            |error: &dyn std::fmt::Display| HttpScorerError::Authorities(error.to_string());
        let certificates = match ca {
            Some(path) => CertificateDer::pem_file_iter(path)
                .and_then(Iterator::collect::<Result<Vec<_>, _>>)
                .map_err(|error| unread(&error))?,
            None => rustls_native_certs::load_native_certs().certs,
        };
        let mut authorities = RootCertStore::empty();
        authorities.add_parsable_certificates(certificates);
        if authorities.is_empty() {
            return Err(unread(&"there are none"));
        }
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()?
            .with_root_certificates(authorities)
            .with_no_client_auth();
        let name = ServerName::try_from(host.to_owned()).map_err(|_| HttpScorerError::Url)?;
        Ok(Self {
            connector: TlsConnector::from(Arc::new(config)),
            name,
        })
    }
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
    pub fn new(
        url: &str,
        ca: Option<&Path>,
        settings: HttpSettings,
    ) -> Result<Self, HttpScorerError> {
        let url: Uri = url.parse().map_err(|_| HttpScorerError::Url)?;
        let host = url.host().ok_or(HttpScorerError::Url)?.to_owned();
        let (tls, port) = match url.scheme_str() {
            Some("https") => {
                // An IPv6 address stands in brackets in a URL, and without them in a certificate.
                let name = host.trim_start_matches('[').trim_end_matches(']');
                (Some(Tls::new(name, ca)?), 443)
            }
            Some("http") => (None, 80),
            _ => return Err(HttpScorerError::Url),
        };
        let address = format!("{host}:{}", url.port_u16().unwrap_or(port));
        Ok(Self {
            url,
            address,
            tls,
            settings,
            breaker: Mutex::new(Breaker::new(settings.breaker)),
        })
    }

    async fn ask(&self, who: &Unscored) -> Result<u32, ScoreError> {
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
    async fn try_once(&self, who: &Unscored) -> Result<u32, ScoreError> {
        // A panic while it was held has left it whole: it is changed in one call.
        let breaker = || self.breaker.lock().unwrap_or_else(PoisonError::into_inner);
        let permit = breaker().permit(now_ms());
        let pass = match permit {
            Permit::Pass(pass) => pass,
            Permit::Refuse { retry_after_ms } => return Err(ScoreError::Open { retry_after_ms }),
        };
        let answer = tokio::time::timeout(self.settings.timeout, self.exchange(who));
        let answer = answer.await.unwrap_or(Err(ScoreError::Timeout));
        let outcome = match answer {
            Ok(_) => Outcome::Success,
            Err(_) => Outcome::Failure,
        };
        breaker().record(now_ms(), pass, outcome);
        answer
    }

    async fn exchange(&self, who: &Unscored) -> Result<u32, ScoreError> {
        let stream = TcpStream::connect(&self.address).await.map_err(broken)?;
        match &self.tls {
            None => self.exchange_over(stream, who).await,
            Some(tls) => {
                let stream = tls.connector.connect(tls.name.clone(), stream);
                self.exchange_over(stream.await.map_err(broken)?, who).await
            }
        }
    }

    async fn exchange_over(
        &self,
        stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
        who: &Unscored,
    ) -> Result<u32, ScoreError> {
        let (mut sender, connection) = http1::handshake(TokioIo::new(stream))
            .await
            .map_err(broken)?;
        // Ends with `sender` or the peer; its failure shows as the request's.
        let driver = tokio::spawn(connection);
        let body = json!({
            "sale": who.sale, "user": who.user.as_str(),
            "address": who.visitor.address, "agent": who.visitor.agent,
        })
        .to_string();
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
    fn score<'a>(&'a self, who: &'a Unscored) -> ScoreFuture<'a> {
        Box::pin(self.ask(who))
    }
}
