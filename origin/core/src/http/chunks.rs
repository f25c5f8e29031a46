//! Bodies that are written while they are sent.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use axum::body::{Body, Bytes};
use hyper::body::Frame;
use tokio::sync::mpsc;
use tracing::error;

use crate::sql::SqlError;

/// Sends the chunks of a body; an error means that the client has disconnected.
pub type ChunkSender = mpsc::Sender<Result<Bytes, SqlError>>;

/// A body whose chunks come from a channel: the producer waits for the client.
struct Chunks(mpsc::Receiver<Result<Bytes, SqlError>>);

impl hyper::body::Body for Chunks {
    type Data = Bytes;
    type Error = SqlError;

    fn poll_frame(
        self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, SqlError>>> {
        let chunk = self.get_mut().0.poll_recv(context);
        chunk.map(|chunk| chunk.map(|chunk| chunk.map(Frame::data)))
    }
}

/// A body whose chunks `write` sends. If it fails, the client sees that the body is incomplete, and `what` is in the
/// log.
pub fn streamed<F>(what: &'static str, write: impl FnOnce(ChunkSender) -> F) -> Body
where
    F: Future<Output = Result<(), SqlError>> + Send + 'static,
{
    let (sender, receiver) = mpsc::channel(1);
    let written = write(sender.clone());
    tokio::spawn(async move {
        if let Err(failure) = written.await {
            error!(error = %failure, "{what} interrupted");
            let _ = sender.send(Err(failure)).await;
        }
    });
    Body::new(Chunks(receiver))
}
