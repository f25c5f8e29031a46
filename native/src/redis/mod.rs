//! Connections to one Redis server, to the primary of a replicated set, or to the nodes of one cluster.
//!
//! Calls and replies are bytes; the client parses only where frames end. As with the bridge of the WebAssembly filters,
//! a connection serves one call at a time. It is reused only after a successful call, so a reply never reaches another
//! call. A connection that stops responding is closed with its call.

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

use crate::settings::{self, Kind, RedisSettings, Secret};
use cluster::Cluster;
use server::Server;

pub(crate) use connection::is_good;

/// Connection settings.
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
    /// The name that the certificate must have, if it differs from the address.
    server_name: Option<ServerName<'static>>,
}

/// How to reach one Redis. Each engine host's thread creates its own [`Client`] from this.
#[derive(Clone)]
pub struct Plan {
    kind: Kind,
    addresses: Vec<String>,
    dial: Dial,
}

impl Plan {
    /// The addresses, comma-separated.
    pub fn addresses(&self) -> String {
        self.addresses.join(", ")
    }

    /// Creates the plan for the settings at `path`.
    ///
    /// # Errors
    /// A secret or certificate is missing or invalid.
    pub fn new(path: &str, settings: &RedisSettings) -> Result<Self, FieldError> {
        Ok(Self {
            kind: settings.kind,
            addresses: settings.addresses.clone(),
            dial: Dial::new(path, settings)?,
        })
    }
}

/// One engine host's connections to one Redis.
pub struct Client {
    kind: ClientKind,
}

enum ClientKind {
    Single(Server),
    Cluster(Cluster),
}

impl Client {
    /// Creates a client that connects at its first call.
    pub fn new(plan: &Plan) -> Self {
        let server = |addresses| Server::new(addresses, plan.dial.clone());
        let addresses = plan.addresses.clone();
        let kind = match plan.kind {
            Kind::Single | Kind::Replicated => ClientKind::Single(server(addresses)),
            Kind::Cluster => {
                let servers = addresses.into_iter().map(|address| server(vec![address]));
                ClientKind::Cluster(Cluster::new(servers.collect(), plan.dial.clone()))
            }
        };
        Self { kind }
    }

    /// Sends commands, and waits for one reply each until `deadline`.
    ///
    /// # Errors
    /// [`Failure::Definite`] only if no byte of the commands was written.
    pub async fn call(&self, commands: &[u8], deadline: Instant) -> Reply {
        let count = count(commands)?;
        match &self.kind {
            ClientKind::Single(server) => server.call(commands, count, deadline).await,
            ClientKind::Cluster(cluster) => cluster.call(commands, deadline).await,
        }
    }

    /// Closes connections that have been idle too long.
    pub fn close_idle(&self) {
        match &self.kind {
            ClientKind::Single(server) => server.close_idle(),
            ClientKind::Cluster(cluster) => cluster.close_idle(),
        }
    }
}

/// Counts the commands.
///
/// # Errors
/// The bytes do not end with a command's end.
pub(crate) fn count(commands: &[u8]) -> Result<usize, Failure> {
    let mut framer = Framer::new(Direction::Commands);
    let progress = framer.advance(commands, usize::MAX);
    match progress {
        Ok(progress) if framer.is_between_frames() => Ok(progress.frames),
        _ => Err(DefiniteFailure::Refused("the call has an incomplete command".into()).into()),
    }
}

/// The command that logs in, if there is a password. `path` is that of the password.
///
/// # Errors
/// The password is missing or empty.
pub(crate) fn login(
    path: &str,
    username: Option<&str>,
    password: Option<&Secret>,
) -> Result<Option<Arc<[u8]>>, FieldError> {
    let password = password.map(|secret| secret.read(path)).transpose()?;
    Ok(password.map(|password| {
        let mut command = Vec::new();
        match username {
            Some(user) => encode_command(&mut command, [b"AUTH", user.as_bytes(), &password]),
            None => encode_command(&mut command, [b"AUTH".as_slice(), &password]),
        }
        command.into()
    }))
}

impl Dial {
    fn new(path: &str, settings: &RedisSettings) -> Result<Self, FieldError> {
        let field = |name: &str| format!("{path}.{name}");
        let login = login(
            &field("password"),
            settings.username.as_deref(),
            settings.password.as_ref(),
        )?;
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
                // Skips system certificates that rustls cannot use.
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

/// No reply arrived in time, so the result of the call is unknown.
fn timeout() -> Failure {
    UnknownFailure::Timeout.into()
}

#[cfg(test)]
mod tests;
