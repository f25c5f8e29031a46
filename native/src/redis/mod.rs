//! Connections to one Redis, or to the nodes of one cluster.
//!
//! Calls are commands as bytes, and their replies come back as bytes: nothing is parsed but where frames end. As with the
//! bridge of the filters in WebAssembly, a connection has one call at a time and is used again only if that has ended well, so
//! no reply meets another call, and a connection that has fallen silent goes with the call that waited on it.

mod cluster;
mod connection;
mod server;

use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::pki_types::ServerName;
use weir_base::FieldError;
use weir_base::resp::{Direction, Framer, encode_command};
use weir_engine::redis::{DefiniteFailure, Failure, Reply, UnknownFailure};

use crate::settings::{self, Kind, RedisSettings};
use cluster::Cluster;
use server::Server;

/// How connections are made.
#[derive(Clone)]
struct Dial {
    tls: Option<DialTls>,
    /// The command that logs in.
    login: Option<Arc<[u8]>>,
    connect_timeout: Duration,
}

#[derive(Clone)]
struct DialTls {
    connector: TlsConnector,
    /// The name that a certificate must have, if not that of the address.
    server_name: Option<ServerName<'static>>,
}

/// How one Redis is reached: from this, each engine host's thread makes its own [`Client`].
#[derive(Clone)]
pub struct Plan {
    kind: Kind,
    addresses: Vec<String>,
    dial: Dial,
}

impl Plan {
    /// The addresses, with commas between them.
    pub fn addresses(&self) -> String {
        self.addresses.join(", ")
    }

    /// The plan of the settings at `path`.
    ///
    /// # Errors
    /// When a secret or a certificate is missing, or is none.
    pub fn new(path: &str, settings: &RedisSettings) -> Result<Self, FieldError> {
        Ok(Self {
            kind: settings.kind,
            addresses: settings.addresses.clone(),
            dial: Dial::new(path, settings)?,
        })
    }
}

/// Connections to one Redis, or to one cluster, of one engine host.
pub struct Client {
    kind: ClientKind,
}

enum ClientKind {
    Single(Server),
    Cluster(Cluster),
}

impl Client {
    /// A client that connects with its first call.
    pub fn new(plan: &Plan) -> Self {
        let server = |address: &String| Server::new(address.clone(), plan.dial.clone());
        let servers: Vec<Server> = plan.addresses.iter().map(server).collect();
        let kind = match (plan.kind, <[Server; 1]>::try_from(servers)) {
            (Kind::Single, Ok([server])) => ClientKind::Single(server),
            (_, servers) => {
                let servers = servers.map_or_else(|many| many, Vec::from);
                ClientKind::Cluster(Cluster::new(servers, plan.dial.clone()))
            }
        };
        Self { kind }
    }

    /// Sends commands, and waits for as many replies until `deadline`.
    ///
    /// # Errors
    /// [`Failure::Definite`] only if no byte of the commands has been written.
    pub async fn call(&self, commands: &[u8], deadline: Instant) -> Reply {
        let count = count(commands)?;
        match &self.kind {
            ClientKind::Single(server) => server.call(commands, count, deadline).await,
            ClientKind::Cluster(cluster) => cluster.call(commands, deadline).await,
        }
    }

    /// Closes connections that have not been used for long.
    pub fn close_idle(&self) {
        match &self.kind {
            ClientKind::Single(server) => server.close_idle(),
            ClientKind::Cluster(cluster) => cluster.close_idle(),
        }
    }
}

/// How many commands there are.
fn count(commands: &[u8]) -> Result<usize, Failure> {
    let mut framer = Framer::new(Direction::Commands);
    let progress = framer.advance(commands, usize::MAX);
    match progress {
        Ok(progress) if framer.is_between_frames() => Ok(progress.frames),
        _ => Err(DefiniteFailure::Refused("the call has an incomplete command".into()).into()),
    }
}

impl Dial {
    fn new(path: &str, settings: &RedisSettings) -> Result<Self, FieldError> {
        let field = |name: &str| format!("{path}.{name}");
        let password = settings.password.as_ref();
        let password = password.map(|secret| secret.read(&field("password")));
        let login = password.transpose()?.map(|password| {
            let mut command = Vec::new();
            match &settings.username {
                Some(user) => {
                    encode_command(&mut command, [b"AUTH", user.as_bytes(), &password]);
                }
                None => encode_command(&mut command, [b"AUTH".as_slice(), &password]),
            }
            command.into()
        });
        let tls = settings.tls.as_ref();
        Ok(Self {
            tls: tls
                .map(|tls| DialTls::new(&field("tls"), tls))
                .transpose()?,
            login,
            connect_timeout: Duration::from_millis(settings.connect_timeout_ms),
        })
    }
}

impl DialTls {
    fn new(path: &str, settings: &settings::Tls) -> Result<Self, FieldError> {
        use tokio_rustls::rustls::pki_types::{CertificateDer, pem::PemObject};
        use tokio_rustls::rustls::{ClientConfig, RootCertStore, crypto::ring};
        let mut roots = RootCertStore::empty();
        let ca_field = format!("{path}.ca_file");
        let refuse = |problem: &dyn std::fmt::Display| FieldError::new(ca_field.clone(), problem);
        match &settings.ca_file {
            Some(file) => {
                let all = CertificateDer::pem_file_iter(file).map_err(|error| refuse(&error))?;
                for certificate in all {
                    let certificate = certificate.map_err(|error| refuse(&error))?;
                    roots.add(certificate).map_err(|error| refuse(&error))?;
                }
            }
            None => {
                // Some of a system's may be of no use to rustls.
                roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
            }
        }
        if roots.is_empty() {
            return Err(refuse(&"no CA certificate found"));
        }
        let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .map_err(|error| FieldError::new(path, error))?
            .with_root_certificates(roots)
            .with_no_client_auth();
        let name = settings.server_name.clone().map(ServerName::try_from);
        let server_name = name.transpose();
        Ok(Self {
            connector: TlsConnector::from(Arc::new(config)),
            server_name: server_name
                .map_err(|error| FieldError::new(format!("{path}.server_name"), error))?,
        })
    }
}

/// It is not known what has become of a call, as no reply came in time.
fn timeout() -> Failure {
    UnknownFailure::Timeout.into()
}

#[cfg(test)]
mod tests;
