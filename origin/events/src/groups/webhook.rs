//! The group `webhook`: sends each event by `POST` to a URL, [signed](weir_origin_core::http::webhook), at least once.
//!
//! The body has the format of the query API. A 2xx answer acknowledges the event. Any other answer, or none, causes a
//! retry.

use std::path::Path;
use std::sync::Arc;

use axum::http::StatusCode;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

use super::{Delivery, HandleFuture, Handler, Outcome};
use crate::Clock;
use weir_origin_core::http::webhook::{SendError, WebhookSender};

pub use weir_origin_core::http::webhook::WebhookError;

/// The group's name.
pub const WEBHOOK_GROUP: &str = "webhook";

/// Maximum number of concurrent requests.
const AT_ONCE: usize = 16;

/// Sends events to a URL.
#[derive(Clone, Debug)]
pub struct Webhook(Arc<Inner>);

#[derive(Debug)]
struct Inner {
    sender: WebhookSender,
    at_once: Semaphore,
}

impl Webhook {
    /// Creates the handler for `url`: see [`WebhookSender::new`].
    ///
    /// # Errors
    /// See [`WebhookError`].
    pub fn new(
        url: &str,
        ca: Option<&Path>,
        secret: &[u8],
        clock: Clock,
    ) -> Result<Self, WebhookError> {
        Ok(Self(Arc::new(Inner {
            sender: WebhookSender::new(url, ca, secret, clock)?,
            at_once: Semaphore::new(AT_ONCE),
        })))
    }
}

impl Handler for Webhook {
    fn handle<'a>(&'a self, events: &'a [Delivery]) -> HandleFuture<'a> {
        Box::pin(async move {
            let mut tasks = JoinSet::new();
            for (at, event) in events.iter().enumerate() {
                let (inner, event) = (self.0.clone(), event.clone());
                tasks.spawn(async move { (at, inner.send(&event).await) });
            }
            let mut outcomes = vec![Outcome::Failed("not sent".to_owned()); events.len()];
            while let Some(sent) = tasks.join_next().await {
                if let Ok((at, outcome)) = sent
                    && let Some(slot) = outcomes.get_mut(at)
                {
                    *slot = outcome;
                }
            }
            outcomes
        })
    }
}

impl Inner {
    async fn send(&self, event: &Delivery) -> Outcome {
        // The semaphore is never closed.
        let _permit = self.at_once.acquire().await;
        let id = event.envelope.id.as_str();
        let Ok(body) = serde_json::to_string(&event.envelope) else {
            return Outcome::Refused("cannot encode the event as JSON".to_owned());
        };
        match self.sender.send(id, body).await {
            Ok(status) => status_outcome(status),
            Err(SendError::Id) => {
                Outcome::Refused("the event's id is not a valid header value".to_owned())
            }
            Err(SendError::Unknown(error)) => Outcome::Failed(error),
        }
    }
}

/// Only 410 is permanent. Any other error may be a misconfiguration that gets repaired.
fn status_outcome(status: StatusCode) -> Outcome {
    match status {
        status if status.is_success() => Outcome::Done,
        StatusCode::GONE => Outcome::Refused("answered 410".to_owned()),
        status => Outcome::Failed(format!("answered {}", status.as_u16())),
    }
}
