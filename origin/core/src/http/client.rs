//! HTTP and HTTPS requests to services that the origin calls, on pooled connections.
//!
//! **A request is sent at most once.** A service may close a pooled connection while a request is on its way. It is
//! then unknown whether the service has handled it, so [`HttpClient::send`] returns an error, for every method. Only if
//! no byte was written, the pool uses another connection. Callers decide about retries: a webhook repeats its
//! `webhook-id`, a command to a shard has an id in its path, a failed risk check counts as a try.
//!
//! Such errors are rare. The pool detects closed idle connections, and drops idle connections after [`IDLE_MAX`],
//! before most servers close them (Node.js and uvicorn: 5 s).
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

/// How long an idle connection stays in the pool.
pub const IDLE_MAX: Duration = Duration::from_secs(4);

/// Maximum number of idle connections.
const IDLE_CONNECTIONS_MAX: usize = 32;

/// Why a client cannot be created.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// The URL is malformed.
    #[error("must be https://<host>[:<port>]/… or http://…")]
    Url,
    /// The CA certificates cannot be read.
    #[error("cannot read the CA certificates: {0}")]
    Authorities(String),
    /// TLS cannot be set up.
    #[error("TLS: {0}")]
    Tls(#[from] rustls::Error),
}

/// The connection failed, or the answer was too long. The other side may have handled the request.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct ExchangeError(pub String);

/// Client of one service.
#[derive(Debug)]
pub struct HttpClient {
    url: Uri,
    host: HeaderValue,
    pool: Client<HttpsConnector<HttpConnector>, Full<Bytes>>,
}

/// TLS configuration that trusts the CAs in this file, or the system's.
///
/// # Errors
/// When the CAs cannot be read, or there are none.
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

/// TLS configuration without CAs, for `http` URLs.
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
    /// Creates a client of the service at `url`. For `https`, it trusts the CAs in the file `ca`, or the system's.
    ///
    /// # Errors
    /// When the URL is malformed, or the CAs cannot be read.
    pub fn new(url: &str, ca: Option<&Path>) -> Result<Self, ClientError> {
        let url: Uri = url.parse().map_err(|_| ClientError::Url)?;
        let host = url.host().ok_or(ClientError::Url)?;
        let (tls, port) = match url.scheme_str() {
            Some("https") => {
                // IPv6 addresses have brackets in URLs, but not in certificates.
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

    /// The path and query of the service's URL.
    pub fn path(&self) -> &str {
        self.url.path_and_query().map_or("/", |path| path.as_str())
    }

    /// Sends a request with these headers, and reads the answer's body of at most `answer_len_max` bytes.
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
            // The status is enough: the service refused the request.
            Err(_) if !status.is_success() => Ok((status, Bytes::new())),
            Err(error) => Err(ExchangeError(error.to_string())),
        }
    }

    /// Sends a request with these headers. Returns the answer with an unread body.
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

/// An answer with an unread body. Dropping it closes the connection unless the whole body was read.
#[derive(Debug)]
pub struct OpenAnswer {
    /// HTTP status.
    pub status: StatusCode,
    body: Incoming,
}

impl OpenAnswer {
    /// Reads the next part of the body; `None` at its end.
    ///
    /// # Errors
    /// When the connection fails before the end of the body.
    pub async fn chunk(&mut self) -> Result<Option<Bytes>, ExchangeError> {
        while let Some(frame) = self.body.frame().await {
            if let Ok(data) = frame.map_err(broken)?.into_data() {
                return Ok(Some(data));
            }
        }
        Ok(None)
    }
}

/// Includes the causes: the outermost error only names the failed step.
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
