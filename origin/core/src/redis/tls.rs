//! Checks whether a Redis server presents the certificate that a gateway expects.

use std::io;
use std::net::{TcpStream, ToSocketAddrs};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use rustls::ClientConnection;
use rustls::pki_types::ServerName;

use crate::http::client::trusting;

/// Timeout of each step of a handshake.
const LIMIT: Duration = Duration::from_secs(2);

/// Connects to the server at `address` by TLS. It must present a certificate for `name` from a CA in the file `ca`.
///
/// # Errors
/// When the connection fails, or the certificate is not valid for this name.
pub async fn check_certificate(address: String, name: String, ca: PathBuf) -> Result<(), String> {
    let task = tokio::task::spawn_blocking(move || handshake(&address, &name, &ca));
    match task.await {
        Ok(done) => done.map_err(|error| error.to_string()),
        Err(error) => Err(error.to_string()),
    }
}

fn handshake(address: &str, name: &str, ca: &Path) -> io::Result<()> {
    let config = trusting(Some(ca)).map_err(io::Error::other)?;
    let name = ServerName::try_from(name.to_owned()).map_err(io::Error::other)?;
    let mut tls = ClientConnection::new(Arc::new(config), name).map_err(io::Error::other)?;
    let mut addresses = address.to_socket_addrs()?;
    let address = addresses
        .next()
        .ok_or_else(|| io::Error::other("the host name has no address"))?;
    let mut tcp = TcpStream::connect_timeout(&address, LIMIT)?;
    tcp.set_read_timeout(Some(LIMIT))?;
    tcp.set_write_timeout(Some(LIMIT))?;
    while tls.is_handshaking() {
        tls.complete_io(&mut tcp)?;
    }
    Ok(())
}
