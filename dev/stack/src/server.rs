//! A small HTTP/1.1 server on this machine.

use std::net::{Ipv4Addr, SocketAddr};

use anyhow::{Context, Result};
use http_body_util::Full;
use hyper::Request;
use hyper::body::{Bytes, Incoming};
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::net::TcpListener;
use tokio::task::{JoinHandle, JoinSet};

/// A response with a complete body.
pub type Answer = hyper::Response<Full<Bytes>>;

/// A running server. Dropping it stops it.
#[derive(Debug)]
pub struct LocalServer {
    address: SocketAddr,
    accepting: JoinHandle<()>,
}

impl LocalServer {
    /// Listens on 127.0.0.1:`port`, a free port if 0. Must be called on a tokio runtime, which then runs it.
    ///
    /// # Errors
    /// The port is in use.
    pub async fn start<F, R>(port: u16, answer: F) -> Result<Self>
    where
        F: Fn(Request<Incoming>) -> R + Clone + Send + Sync + 'static,
        R: Future<Output = Answer> + Send + 'static,
    {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, port)).await;
        let listener = listener.with_context(|| format!("cannot listen on port {port}"))?;
        Ok(Self {
            address: listener.local_addr()?,
            accepting: tokio::spawn(accept(listener, answer)),
        })
    }

    /// Its address on 127.0.0.1.
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for LocalServer {
    fn drop(&mut self) {
        // The connections are tasks of its `JoinSet`, and end with it.
        self.accepting.abort();
    }
}

async fn accept<F, R>(listener: TcpListener, answer: F)
where
    F: Fn(Request<Incoming>) -> R + Clone + Send + Sync + 'static,
    R: Future<Output = Answer> + Send + 'static,
{
    let mut connections = JoinSet::new();
    loop {
        tokio::select! {
            accepted = listener.accept() => {
                if let Ok((client, _)) = accepted {
                    let answer = answer.clone();
                    connections.spawn(async move {
                        let service = service_fn(move |request| {
                            let answer = answer(request);
                            async move { Ok::<_, hyper::Error>(answer.await) }
                        });
                        let connection = hyper::server::conn::http1::Builder::new();
                        // Errors of clients that disconnect are ignored.
                        connection.serve_connection(TokioIo::new(client), service).await.ok();
                    });
                }
            }
            Some(_) = connections.join_next() => {}
        }
    }
}
