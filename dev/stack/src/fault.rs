//! A TCP proxy that injects faults on demand.

#![expect(
    clippy::indexing_slicing,
    reason = "members of JSON and YAML that this module has made"
)]

use anyhow::{Context, Result};
use std::future::pending;
use std::net::{Ipv4Addr, SocketAddr};
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::{JoinHandle, JoinSet};

/// Maximum bytes forwarded at once.
const PIECE_BYTES: usize = 16 * 1024;

/// The behaviour of a [`FaultProxy`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// Forwards everything immediately.
    Pass,
    /// Forwards requests immediately, and delays each piece of the replies by this duration.
    Delay(Duration),
    /// Closes open connections, and each new one when it is accepted.
    Cut,
    /// Forwards requests and drops replies. The server performs the request, but the client gets no reply.
    ///
    /// A network that loses bytes never delivers later ones of the same connection, so a connection that has lost a
    /// reply closes when the fault ends.
    Swallow,
    /// Drops requests. The server does not perform them, and the client gets no reply.
    ///
    /// As with [`Fault::Swallow`], a connection that has lost a request closes when the fault ends.
    Lose,
    /// Permanently stops forwarding on open connections without closing them, as if a middlebox had forgotten them. New
    /// connections work.
    Freeze,
}

/// A proxy before one server. Dropping it stops it and all its connections.
#[derive(Debug)]
pub struct FaultProxy {
    port: u16,
    fault: watch::Sender<Fault>,
    accepting: JoinHandle<()>,
}

impl FaultProxy {
    /// Listens on 127.0.0.1:`port` and forwards to `server`, which may start later. Must be called on a tokio runtime.
    pub async fn start(port: u16, server: SocketAddr) -> Result<Self> {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, port))
            .await
            .with_context(|| format!("cannot listen on port {port}"))?;
        let (fault, watched) = watch::channel(Fault::Pass);
        let accepting = tokio::spawn(accept(listener, server, watched));
        Ok(Self {
            port,
            fault,
            accepting,
        })
    }

    /// The port on 127.0.0.1.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// The address on which it listens.
    pub fn address(&self) -> SocketAddr {
        (Ipv4Addr::LOCALHOST, self.port).into()
    }

    /// Switches to this behaviour, for open connections, too.
    pub fn set(&self, fault: Fault) {
        self.fault.send_replace(fault);
    }
}

impl Drop for FaultProxy {
    fn drop(&mut self) {
        // The connections are tasks of its `JoinSet`, and end with it.
        self.accepting.abort();
    }
}

async fn accept(listener: TcpListener, server: SocketAddr, fault: watch::Receiver<Fault>) {
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            accepted = listener.accept() => {
                if let Ok((client, _)) = accepted {
                    connections.spawn(carry(client, server, fault.clone()));
                }
            }
            Some(_) = connections.join_next() => {}
        }
    }
}

/// Carries one connection until either side closes it or a fault does.
async fn carry(client: TcpStream, server: SocketAddr, fault: watch::Receiver<Fault>) {
    if *fault.borrow() == Fault::Cut {
        return;
    }
    let Ok(server) = TcpStream::connect(server).await else {
        return;
    };
    // Disables Nagle's algorithm, so that all delays are injected ones.
    client.set_nodelay(true).ok();
    server.set_nodelay(true).ok();
    let (from_client, to_client) = client.into_split();
    let (from_server, to_server) = server.into_split();
    // Only connections opened before the fault freeze.
    let freezes = *fault.borrow() != Fault::Freeze;
    tokio::select! {
        () = request(from_client, to_server, fault.clone(), freezes) => {}
        () = reply(from_server, to_client, fault.clone(), freezes) => {}
        () = cut(fault) => {}
    }
}

async fn request(
    mut from: OwnedReadHalf,
    mut to: OwnedWriteHalf,
    fault: watch::Receiver<Fault>,
    freezes: bool,
) {
    let mut chunk = vec![0; PIECE_BYTES];
    loop {
        let read = match from.read(&mut chunk).await {
            Ok(read) if read > 0 => read,
            _ => return,
        };
        let now = *fault.borrow();
        match now {
            Fault::Lose => return drop_rest(from, fault, Fault::Lose).await,
            Fault::Freeze if freezes => return pending().await,
            _ => {}
        }
        if to.write_all(&chunk[..read]).await.is_err() {
            return;
        }
    }
}

async fn reply(
    mut from: OwnedReadHalf,
    mut to: OwnedWriteHalf,
    mut fault: watch::Receiver<Fault>,
    freezes: bool,
) {
    let mut chunk = vec![0; PIECE_BYTES];
    loop {
        let read = match from.read(&mut chunk).await {
            Ok(read) if read > 0 => read,
            _ => return,
        };
        let now = *fault.borrow_and_update();
        match now {
            Fault::Cut => return,
            Fault::Swallow => return drop_rest(from, fault, Fault::Swallow).await,
            Fault::Delay(time) => tokio::time::sleep(time).await,
            Fault::Freeze if freezes => return pending().await,
            // Replies received now belong to earlier requests.
            Fault::Lose | Fault::Pass | Fault::Freeze => {}
        }
        if to.write_all(&chunk[..read]).await.is_err() {
            return;
        }
    }
}

/// Drops all bytes while `fault` is active.
async fn drop_rest(mut from: OwnedReadHalf, mut watched: watch::Receiver<Fault>, fault: Fault) {
    let mut nowhere = tokio::io::sink();
    tokio::select! {
        _ = tokio::io::copy(&mut from, &mut nowhere) => {}
        _ = watched.wait_for(|now| *now != fault) => {}
    }
}

async fn cut(mut fault: watch::Receiver<Fault>) {
    if fault.wait_for(|fault| *fault == Fault::Cut).await.is_err() {
        pending::<()>().await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ports;
    use std::time::Instant;

    const SHORT: Duration = Duration::from_millis(200);
    const LONG: Duration = Duration::from_secs(10);

    /// An echo server behind a proxy. It counts received bytes.
    async fn echo() -> (FaultProxy, watch::Receiver<usize>) {
        let server = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = server.local_addr().unwrap();
        let (count, counted) = watch::channel(0);
        tokio::spawn(async move {
            while let Ok((mut client, _)) = server.accept().await {
                let count = count.clone();
                tokio::spawn(async move {
                    while let Ok(byte) = client.read_u8().await {
                        count.send_modify(|count| *count += 1);
                        client.write_u8(byte).await.ok();
                    }
                });
            }
        });
        let proxy = FaultProxy::start(ports::free().unwrap(), address).await;
        (proxy.unwrap(), counted)
    }

    async fn client(proxy: &FaultProxy) -> TcpStream {
        TcpStream::connect((Ipv4Addr::LOCALHOST, proxy.port()))
            .await
            .unwrap()
    }

    async fn ask(client: &mut TcpStream) -> std::io::Result<u8> {
        client.write_u8(7).await?;
        client.read_u8().await
    }

    #[tokio::test]
    async fn replies_are_delayed_until_the_fault_ends() {
        let (proxy, _) = echo().await;
        let mut client = client(&proxy).await;
        assert_eq!(ask(&mut client).await.unwrap(), 7);
        proxy.set(Fault::Delay(SHORT));
        let started = Instant::now();
        assert_eq!(ask(&mut client).await.unwrap(), 7);
        assert!(started.elapsed() >= SHORT);
        proxy.set(Fault::Pass);
        let started = Instant::now();
        assert_eq!(ask(&mut client).await.unwrap(), 7);
        assert!(started.elapsed() < SHORT);
    }

    #[tokio::test]
    async fn cut_ends_old_and_new_connections() {
        let (proxy, counted) = echo().await;
        let mut old = client(&proxy).await;
        assert_eq!(ask(&mut old).await.unwrap(), 7);
        proxy.set(Fault::Cut);
        assert!(
            tokio::time::timeout(LONG, old.read_u8())
                .await
                .unwrap()
                .is_err()
        );
        assert!(ask(&mut client(&proxy).await).await.is_err());
        assert_eq!(*counted.borrow(), 1, "nothing passed after the cut");
        proxy.set(Fault::Pass);
        assert_eq!(ask(&mut client(&proxy).await).await.unwrap(), 7);
    }

    #[tokio::test]
    async fn swallowed_reply_was_requested_and_its_connection_is_closed() {
        let (proxy, mut counted) = echo().await;
        let mut old = client(&proxy).await;
        proxy.set(Fault::Swallow);
        old.write_u8(1).await.unwrap();
        counted.wait_for(|count| *count == 1).await.unwrap();
        assert!(tokio::time::timeout(SHORT, old.read_u8()).await.is_err());
        proxy.set(Fault::Pass);
        assert!(
            tokio::time::timeout(LONG, old.read_u8())
                .await
                .unwrap()
                .is_err()
        );
        assert_eq!(ask(&mut client(&proxy).await).await.unwrap(), 7);
    }

    #[tokio::test]
    async fn freeze_stops_old_connections_and_new_ones_work() {
        let (proxy, _) = echo().await;
        let mut old = client(&proxy).await;
        assert_eq!(ask(&mut old).await.unwrap(), 7);
        proxy.set(Fault::Freeze);
        assert!(tokio::time::timeout(SHORT, ask(&mut old)).await.is_err());
        assert_eq!(ask(&mut client(&proxy).await).await.unwrap(), 7);
        proxy.set(Fault::Pass);
        assert!(tokio::time::timeout(SHORT, old.read_u8()).await.is_err());
    }

    #[tokio::test]
    async fn lost_request_is_never_executed_and_its_connection_is_closed() {
        let (proxy, counted) = echo().await;
        let mut old = client(&proxy).await;
        assert_eq!(ask(&mut old).await.unwrap(), 7);
        proxy.set(Fault::Lose);
        old.write_u8(1).await.unwrap();
        assert!(tokio::time::timeout(SHORT, old.read_u8()).await.is_err());
        proxy.set(Fault::Pass);
        let ended = tokio::time::timeout(LONG, old.read_u8()).await;
        assert!(ended.unwrap().is_err());
        assert_eq!(ask(&mut client(&proxy).await).await.unwrap(), 7);
        assert_eq!(*counted.borrow(), 2, "the lost one never came");
    }
}
