//! HTTP and HTTPS requests to services that the origin calls, on pooled connections.
//!
//! **A request is sent at most once.** A service may close a pooled connection while a request is on its way to it.
//! Nobody knows then whether the service has acted on it, so [`HttpClient::send`] returns an error, for every method.
//! Only if no byte was written, the pool takes another connection. Retries are the caller's decision: a webhook comes
//! again with the same `webhook-id`, a command to a shard has an id in its path, a risk check is counted as a try.
//!
//! Such errors are rare: the pool notices closed connections while they are idle, and drops idle ones after
//! [`IDLE_MAX`], before most servers close them (Node.js and uvicorn: 5 s).
//!
//! The client follows no redirects and uses no proxy.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use axum::http::{HeaderName, HeaderValue, Method, Request, StatusCode, Uri, header};
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::{Bytes, Incoming};
use hyper_rustls::{HttpsConnector, HttpsConnectorBuilder};
use hyper_util::client::legacy::Client;
use hyper_util::client::legacy::connect::HttpConnector;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};

/// How long a connection is kept without a request.
pub const IDLE_MAX: Duration = Duration::from_secs(4);

/// How many connections without a request are kept.
const IDLE_CONNECTIONS_MAX: usize = 32;

/// Why a service cannot be asked.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// The URL is not of the right form.
    #[error("must be https://<host>[:<port>]/… or http://…")]
    Url,
    /// The authorities cannot be read.
    #[error("cannot read the CA certificates: {0}")]
    Authorities(String),
    /// TLS cannot be set up.
    #[error("TLS: {0}")]
    Tls(#[from] rustls::Error),
}

/// The connection failed, or the answer was too long. The other side may have done what it was asked.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct ExchangeError(pub String);

/// A service that is asked.
#[derive(Debug)]
pub struct HttpClient {
    url: Uri,
    host: HeaderValue,
    pool: Client<HttpsConnector<HttpConnector>, Full<Bytes>>,
}

/// Trusts the authorities in this file, or the system's.
///
/// # Errors
/// When they cannot be read, or there are none.
pub fn trusting(ca: Option<&Path>) -> Result<ClientConfig, ClientError> {
    let unread = |error: &dyn std::fmt::Display| ClientError::Authorities(error.to_string());
    let certificates = match ca {
        Some(path) => CertificateDer::pem_file_iter(path)
            .and_then(Iterator::collect::<Result<Vec<_>, _>>)
            .map_err(|error| unread(&error))?,
        None => rustls_native_certs::load_native_certs().certs,
    };
    let mut authorities = RootCertStore::empty();
    authorities.add_parsable_certificates(certificates);
    if authorities.is_empty() {
        return Err(unread(&"the file has none"));
    }
    Ok(builder()?
        .with_root_certificates(authorities)
        .with_no_client_auth())
}

/// For URLs of `http`, which need no authorities.
fn trusting_nobody() -> Result<ClientConfig, ClientError> {
    let none = RootCertStore::empty();
    Ok(builder()?
        .with_root_certificates(none)
        .with_no_client_auth())
}

fn builder() -> Result<rustls::ConfigBuilder<ClientConfig, rustls::WantsVerifier>, rustls::Error> {
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions()
}

impl HttpClient {
    /// Asks the service at `url`. If that is of `https`, the authorities in the file `ca` count, or else the system's.
    ///
    /// # Errors
    /// When the URL is of another form, or the authorities cannot be read.
    pub fn new(url: &str, ca: Option<&Path>) -> Result<Self, ClientError> {
        let url: Uri = url.parse().map_err(|_| ClientError::Url)?;
        let host = url.host().ok_or(ClientError::Url)?;
        let (tls, port) = match url.scheme_str() {
            Some("https") => {
                // An IPv6 address stands in brackets in a URL, and without them in a certificate.
                let name = host.trim_start_matches('[').trim_end_matches(']');
                ServerName::try_from(name).map_err(|_| ClientError::Url)?;
                (trusting(ca)?, 443)
            }
            Some("http") => (trusting_nobody()?, 80),
            _ => return Err(ClientError::Url),
        };
        let host = format!("{host}:{}", url.port_u16().unwrap_or(port));
        let mut tcp = HttpConnector::new();
        tcp.enforce_http(false);
        tcp.set_nodelay(true);
        let connector = HttpsConnectorBuilder::new()
            .with_tls_config(tls)
            .https_or_http()
            .enable_http1()
            .wrap_connector(tcp);
        let pool = Client::builder(TokioExecutor::new())
            .pool_idle_timeout(IDLE_MAX)
            .pool_max_idle_per_host(IDLE_CONNECTIONS_MAX)
            .pool_timer(TokioTimer::new())
            .build(connector);
        Ok(Self {
            host: HeaderValue::try_from(host).map_err(|_| ClientError::Url)?,
            url,
            pool,
        })
    }

    /// The path and the query of its URL.
    pub fn path(&self) -> &str {
        self.url.path_and_query().map_or("/", |path| path.as_str())
    }

    /// Sends a request with these headers and reads the answer, which may have so many bytes.
    ///
    /// # Errors
    /// See [`ExchangeError`].
    pub async fn send(
        &self,
        method: Method,
        path: &str,
        headers: &[(HeaderName, HeaderValue)],
        body: Bytes,
        answer_len_max: usize,
    ) -> Result<(StatusCode, Bytes), ExchangeError> {
        let mut answer = self.open(method, path, headers, body).await?;
        let status = answer.status;
        let body = Limited::new(&mut answer.body, answer_len_max).collect();
        match body.await {
            Ok(body) => Ok((status, body.to_bytes())),
            // Whatever it says: it is a refusal.
            Err(_) if !status.is_success() => Ok((status, Bytes::new())),
            Err(error) => Err(ExchangeError(error.to_string())),
        }
    }

    /// Sends a request with these headers; the answer, whose body is still to be read.
    ///
    /// # Errors
    /// See [`ExchangeError`].
    pub async fn open(
        &self,
        method: Method,
        path: &str,
        headers: &[(HeaderName, HeaderValue)],
        body: Bytes,
    ) -> Result<OpenAnswer, ExchangeError> {
        let mut parts = self.url.clone().into_parts();
        parts.path_and_query = Some(path.parse().map_err(broken)?);
        let url = Uri::from_parts(parts).map_err(broken)?;
        let mut request = Request::builder().method(method).uri(url);
        request = request.header(header::HOST, &self.host);
        for (name, value) in headers {
            request = request.header(name, value);
        }
        let request = request.body(Full::new(body)).map_err(broken)?;
        let response = self.pool.request(request).await.map_err(broken)?;
        Ok(OpenAnswer {
            status: response.status(),
            body: response.into_body(),
        })
    }
}

/// An answer whose body is still to be read. Its connection ends with it, unless the body was read whole.
#[derive(Debug)]
pub struct OpenAnswer {
    /// Its status.
    pub status: StatusCode,
    body: Incoming,
}

impl OpenAnswer {
    /// The next part of the body; `None`: that was all of it.
    ///
    /// # Errors
    /// When the body broke off.
    pub async fn chunk(&mut self) -> Result<Option<Bytes>, ExchangeError> {
        while let Some(frame) = self.body.frame().await {
            if let Ok(data) = frame.map_err(broken)?.into_data() {
                return Ok(Some(data));
            }
        }
        Ok(None)
    }
}

/// With its causes: the outermost error only says at which step it failed.
fn broken(error: impl std::error::Error) -> ExchangeError {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        text = format!("{text}: {error}");
        cause = error.source();
    }
    ExchangeError(text)
}

#[cfg(test)]
mod tests;
