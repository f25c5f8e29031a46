//! Requests of the origin's own, over HTTPS or HTTP: one connection each.

use std::path::Path;
use std::sync::Arc;

use axum::http::{HeaderName, HeaderValue, Method, Request, StatusCode, Uri, header};
use http_body_util::{BodyExt, Full, Limited};
use hyper::body::{Bytes, Incoming};
use hyper::client::conn::http1;
use hyper_util::rt::TokioIo;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::task::JoinHandle;
use tokio_rustls::TlsConnector;

/// Why a service cannot be asked.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
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

/// The connection failed, or the answer was too long. The other side may have done what it was asked.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct ExchangeError(pub String);

/// A service that is asked.
#[derive(Debug)]
pub struct HttpClient {
    url: Uri,
    address: String,
    tls: Option<Tls>,
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

impl Tls {
    /// Trusts the authorities in this file, or the system's.
    fn new(host: &str, ca: Option<&Path>) -> Result<Self, ClientError> {
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
            return Err(unread(&"there are none"));
        }
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()?
            .with_root_certificates(authorities)
            .with_no_client_auth();
        let name = ServerName::try_from(host.to_owned()).map_err(|_| ClientError::Url)?;
        Ok(Self {
            connector: TlsConnector::from(Arc::new(config)),
            name,
        })
    }
}

impl HttpClient {
    /// Asks the service at `url`. If that is of `https`, the authorities in the file `ca` count, or else the system's.
    ///
    /// # Errors
    /// When the URL is of another form, or the authorities cannot be read.
    pub fn new(url: &str, ca: Option<&Path>) -> Result<Self, ClientError> {
        let url: Uri = url.parse().map_err(|_| ClientError::Url)?;
        let host = url.host().ok_or(ClientError::Url)?.to_owned();
        let (tls, port) = match url.scheme_str() {
            Some("https") => {
                // An IPv6 address stands in brackets in a URL, and without them in a certificate.
                let name = host.trim_start_matches('[').trim_end_matches(']');
                (Some(Tls::new(name, ca)?), 443)
            }
            Some("http") => (None, 80),
            _ => return Err(ClientError::Url),
        };
        let address = format!("{host}:{}", url.port_u16().unwrap_or(port));
        Ok(Self { url, address, tls })
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
        let mut request = Request::builder().method(method).uri(path);
        request = request.header(header::HOST, &self.address);
        for (name, value) in headers {
            request = request.header(name, value);
        }
        let request = request.body(Full::new(body)).map_err(broken)?;
        let stream = TcpStream::connect(&self.address).await.map_err(broken)?;
        match &self.tls {
            None => exchange(stream, request).await,
            Some(tls) => {
                let stream = tls.connector.connect(tls.name.clone(), stream);
                exchange(stream.await.map_err(broken)?, request).await
            }
        }
    }
}

/// An answer whose body is still to be read. Its connection ends with it.
#[derive(Debug)]
pub struct OpenAnswer {
    /// Its status.
    pub status: StatusCode,
    body: Incoming,
    _driver: Driver,
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

/// What moves a connection's bytes. Ends with whoever holds it.
#[derive(Debug)]
struct Driver(JoinHandle<hyper::Result<()>>);

impl Drop for Driver {
    fn drop(&mut self) {
        self.0.abort();
    }
}

async fn exchange(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    request: Request<Full<Bytes>>,
) -> Result<OpenAnswer, ExchangeError> {
    let (mut sender, connection) = http1::handshake(TokioIo::new(stream))
        .await
        .map_err(broken)?;
    // Its failure shows as the request's.
    let driver = Driver(tokio::spawn(connection));
    let response = sender.send_request(request).await.map_err(broken)?;
    Ok(OpenAnswer {
        status: response.status(),
        body: response.into_body(),
        _driver: driver,
    })
}

fn broken(error: impl std::error::Error) -> ExchangeError {
    ExchangeError(error.to_string())
}
