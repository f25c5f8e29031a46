//! A client of services that operators name by a URL: JSON is sent, and what comes back is read to a limit.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use axum::http::{Request, Uri, header};
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Bytes;
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;

/// One service, by its URL.
#[derive(Debug)]
pub struct ServiceClient {
    url: Uri,
    address: String,
    tls: Option<Tls>,
    answer_len_max: usize,
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

/// Why a service cannot be asked at all.
#[derive(Debug, thiserror::Error)]
pub enum ServiceUrlError {
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

/// Why a service gave no answer this time.
#[derive(Debug, thiserror::Error)]
pub enum ServiceError {
    /// No answer in time.
    #[error("no answer in time")]
    Timeout,
    /// The connection broke, or the answer was too long.
    #[error("{0}")]
    Connection(String),
    /// Another status than success.
    #[error("status {0}")]
    Status(u16),
}

impl Tls {
    /// Trusts the authorities in this file, or the system's.
    fn new(host: &str, ca: Option<&Path>) -> Result<Self, ServiceUrlError> {
        let unread =
            |error: &dyn std::fmt::Display| ServiceUrlError::Authorities(error.to_string());
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
        let name = ServerName::try_from(host.to_owned()).map_err(|_| ServiceUrlError::Url)?;
        Ok(Self {
            connector: TlsConnector::from(Arc::new(config)),
            name,
        })
    }
}

impl ServiceClient {
    /// A client of the service at `url`, of whose answers at most `answer_len_max` bytes are read. If the URL is of `https`,
    /// the authorities in the file `ca` count, or else the system's.
    ///
    /// # Errors
    /// When the URL is of another form, or the authorities cannot be read.
    pub fn new(
        url: &str,
        ca: Option<&Path>,
        answer_len_max: usize,
    ) -> Result<Self, ServiceUrlError> {
        let url: Uri = url.parse().map_err(|_| ServiceUrlError::Url)?;
        let host = url.host().ok_or(ServiceUrlError::Url)?.to_owned();
        let (tls, port) = match url.scheme_str() {
            Some("https") => {
                // An IPv6 address stands in brackets in a URL, and without them in a certificate.
                let name = host.trim_start_matches('[').trim_end_matches(']');
                (Some(Tls::new(name, ca)?), 443)
            }
            Some("http") => (None, 80),
            _ => return Err(ServiceUrlError::Url),
        };
        let address = format!("{host}:{}", url.port_u16().unwrap_or(port));
        Ok(Self {
            url,
            address,
            tls,
            answer_len_max,
        })
    }

    /// Sends JSON; the body of the answer.
    ///
    /// # Errors
    /// When there is none of success within `timeout`.
    pub async fn post(&self, json: String, timeout: Duration) -> Result<Bytes, ServiceError> {
        let answer = tokio::time::timeout(timeout, self.exchange(json)).await;
        answer.unwrap_or(Err(ServiceError::Timeout))
    }

    async fn exchange(&self, json: String) -> Result<Bytes, ServiceError> {
        let stream = TcpStream::connect(&self.address).await.map_err(broken)?;
        match &self.tls {
            None => self.exchange_over(stream, json).await,
            Some(tls) => {
                let stream = tls.connector.connect(tls.name.clone(), stream);
                let stream = stream.await.map_err(broken)?;
                self.exchange_over(stream, json).await
            }
        }
    }

    async fn exchange_over(
        &self,
        stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
        json: String,
    ) -> Result<Bytes, ServiceError> {
        let (mut sender, connection) = http1::handshake(TokioIo::new(stream))
            .await
            .map_err(broken)?;
        // Ends with `sender` or the peer; its failure shows as the request's.
        let driver = tokio::spawn(connection);
        let path = self.url.path_and_query();
        let request = Request::post(path.map_or("/", |path| path.as_str()))
            .header(header::HOST, &self.address)
            .header(header::CONTENT_TYPE, "application/json")
            .body(Full::new(Bytes::from(json)))
            .map_err(broken)?;
        let response = sender.send_request(request).await.map_err(broken)?;
        let status = response.status();
        if !status.is_success() {
            driver.abort();
            return Err(ServiceError::Status(status.as_u16()));
        }
        let body = Limited::new(response.into_body(), self.answer_len_max);
        let body = body.collect().await;
        driver.abort();
        let body = body.map_err(|error| ServiceError::Connection(error.to_string()))?;
        Ok(body.to_bytes())
    }
}

fn broken(error: impl std::error::Error) -> ServiceError {
    ServiceError::Connection(error.to_string())
}
