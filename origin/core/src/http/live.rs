//! Server-sent events: a stream with one message per second. Clients that do not accept event streams get one JSON
//! document.

use std::collections::HashMap;
use std::future::Future;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use axum::Json;
use axum::body::{Body, Bytes};
use axum::http::{HeaderMap, HeaderValue, header};
use axum::response::{IntoResponse, Response};
use hyper::body::Frame;
use serde::Serialize;
use tokio::sync::{Semaphore, mpsc};
use tokio_util::sync::CancellationToken;

use super::{Problem, Refusal};

/// 503: the limit of open streams is reached.
pub const TOO_MANY_STREAMS: Refusal =
    Refusal::unavailable("too_many_streams", "Too many live viewers; try again");

/// Interval between two messages.
const PERIOD: Duration = Duration::from_secs(1);

/// Maximum number of messages per stream. The browser then reconnects and authenticates again, so a revoked key or an
/// ended session gets no further messages.
const MESSAGES_MAX: u32 = 60;

/// Maximum number of open streams: each reads SQL and Redis every second.
const ANSWERS_MAX: usize = 32;

/// Maximum number of open streams per tenant, so that others get some.
const TENANTS_ANSWERS_MAX: usize = 8;

const EVENT_STREAM: &str = "text/event-stream";

/// Shared state of all streams: their number and their shutdown.
#[derive(Clone, Debug)]
pub struct LiveAnswers {
    stop: CancellationToken,
    free: Arc<Semaphore>,
    /// Number of open streams per tenant.
    used: Arc<Mutex<HashMap<String, usize>>>,
}

/// A tenant's open stream. Dropping it frees its slot.
struct LiveSlot {
    of: String,
    used: Arc<Mutex<HashMap<String, usize>>>,
}

impl Drop for LiveSlot {
    fn drop(&mut self) {
        let mut accepted = self.used.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(count) = accepted.get_mut(&self.of) {
            *count -= 1;
            if *count == 0 {
                accepted.remove(&self.of);
            }
        }
    }
}

impl Default for LiveAnswers {
    fn default() -> Self {
        let stop = CancellationToken::new();
        let free = Arc::new(Semaphore::new(ANSWERS_MAX));
        let accepted = Arc::default();
        Self {
            stop,
            free,
            used: accepted,
        }
    }
}

impl LiveAnswers {
    /// Ends all streams at `stop`. An open stream would otherwise delay the shutdown.
    pub async fn end_with(self, stop: CancellationToken) {
        stop.cancelled().await;
        self.stop.cancel();
    }

    /// Reserves a stream for the tenant `of`; `None`: the tenant has reached its limit.
    fn take(&self, of: &str) -> Option<LiveSlot> {
        let mut accepted = self.used.lock().unwrap_or_else(PoisonError::into_inner);
        let count = accepted.entry(of.to_owned()).or_default();
        if *count >= TENANTS_ANSWERS_MAX {
            return None;
        }
        *count += 1;
        Some(LiveSlot {
            of: of.to_owned(),
            used: Arc::clone(&self.used),
        })
    }

    /// Answers with the result of `read`: every second if the client accepts events, otherwise once, as JSON. A stream
    /// counts against the limit of the tenant `of`, if the key belongs to one.
    ///
    /// # Errors
    /// When too many streams are open, or, for JSON, when `read` fails.
    pub async fn answer<T, F>(
        &self,
        of: Option<&str>,
        headers: &HeaderMap,
        read: impl Fn() -> F + Send + 'static,
    ) -> Result<Response, Problem>
    where
        T: Serialize + Send,
        F: Future<Output = Result<T, Problem>> + Send,
    {
        if !asks_for_events(headers) {
            let no_store = [(header::CACHE_CONTROL, "no-store")];
            return Ok((no_store, Json(read().await?)).into_response());
        }
        let too_many = || TOO_MANY_STREAMS.because("too many live viewers; please try again");
        let accepted = of
            .map(|of| self.take(of).ok_or_else(too_many))
            .transpose()?;
        let place = self.free.clone().try_acquire_owned();
        let place = place.map_err(|_| too_many())?;
        let first = message(&read().await);
        let (sender, receiver) = mpsc::channel(1);
        let stop = self.stop.clone();
        tokio::spawn(async move {
            let _places = (place, accepted);
            let send = send_all(first, sender, read);
            stop.run_until_cancelled(send).await;
        });
        Ok(answer(receiver))
    }
}

/// Sends one message per second until the client disconnects or the maximum is reached.
async fn send_all<T, F>(first: Bytes, sender: mpsc::Sender<Bytes>, read: impl Fn() -> F)
where
    T: Serialize,
    F: Future<Output = Result<T, Problem>>,
{
    let mut next = first;
    for _ in 0..MESSAGES_MAX {
        if sender.send(next).await.is_err() {
            return;
        }
        tokio::select! {
            () = sender.closed() => return,
            () = tokio::time::sleep(PERIOD) => {}
        }
        next = message(&read().await);
    }
}

/// A message with the result, or the event `problem`.
fn message<T: Serialize>(read: &Result<T, Problem>) -> Bytes {
    // Serialized JSON contains no line breaks.
    let text = match read {
        Ok(value) => serde_json::to_string(value).map(|json| format!("data: {json}\n\n")),
        Err(problem) => Ok(format!(
            "event: problem\ndata: {}\n\n",
            serde_json::json!(problem.body())
        )),
    };
    text.unwrap_or_default().into()
}

fn asks_for_events(headers: &HeaderMap) -> bool {
    let accept = headers.get(header::ACCEPT);
    accept.is_some_and(|value| value.to_str().is_ok_and(|text| text.contains(EVENT_STREAM)))
}

fn answer(messages: mpsc::Receiver<Bytes>) -> Response {
    let mut response = Body::new(Messages(messages)).into_response();
    let headers = response.headers_mut();
    let kind = HeaderValue::from_static(EVENT_STREAM);
    headers.insert(header::CONTENT_TYPE, kind);
    let cached = HeaderValue::from_static("no-store");
    headers.insert(header::CACHE_CONTROL, cached);
    response
}

/// The messages as a response body.
struct Messages(mpsc::Receiver<Bytes>);

impl hyper::body::Body for Messages {
    type Data = Bytes;
    type Error = std::convert::Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        let message = self.0.poll_recv(context);
        message.map(|message| message.map(|bytes| Ok(Frame::data(bytes))))
    }
}
