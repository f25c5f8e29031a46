//! The group `webhook`: each event by `POST` to a URL, signed as Standard Webhooks has it, at least once.
//!
//! ```text
//! webhook-id: <the event's id>
//! webhook-timestamp: <seconds since the Unix epoch>
//! webhook-signature: v1,<HMAC-SHA256 of "<id>.<timestamp>.<body>", in Base64>
//! ```
//!
//! The body is the event as the query API shows it. A receiver that answers 2xx has it; the id tells it from one that comes
//! again. With any other answer, or none, it is sent again.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use axum::http::{HeaderName, HeaderValue, Method, StatusCode, header};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hyper::body::Bytes;
use ring::hmac;
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

use super::{Delivery, Handled, Handler, Outcome};
use crate::events::Clock;
use crate::http::client::{ClientError, HttpClient};

/// The group's name.
pub const WEBHOOK_GROUP: &str = "webhook";

/// The least bytes of the secret: as many as the hash puts out (RFC 2104, section 3).
pub const SECRET_LEN_MIN: usize = 32;

/// How long one request may take.
const TIMEOUT: Duration = Duration::from_secs(10);

/// Requests at the same time.
const AT_ONCE: usize = 16;

/// The longest answer that is read, in bytes: only its status counts.
const ANSWER_LEN_MAX: usize = 64 << 10;

/// Sends events to a URL.
#[derive(Clone)]
pub struct Webhook(Arc<Inner>);

struct Inner {
    client: HttpClient,
    key: hmac::Key,
    clock: Clock,
    at_once: Semaphore,
}

/// The secret stays out of logs.
impl std::fmt::Debug for Webhook {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Webhook").field(&self.0.client).finish()
    }
}

/// Why nothing can be sent.
#[derive(Debug, thiserror::Error)]
pub enum WebhookError {
    /// The URL or the authorities will not do.
    #[error(transparent)]
    Client(#[from] ClientError),
    /// The secret is too short; it has so many bytes.
    #[error("the secret has {0} bytes, needs at least {SECRET_LEN_MIN}")]
    Secret(usize),
}

impl Webhook {
    /// Sends events to `url`, signed with `secret`. If that is of `https`, the authorities in the file `ca` count, or else
    /// the system's.
    ///
    /// # Errors
    /// See [`WebhookError`].
    pub fn new(
        url: &str,
        ca: Option<&Path>,
        secret: &[u8],
        clock: Clock,
    ) -> Result<Self, WebhookError> {
        if secret.len() < SECRET_LEN_MIN {
            return Err(WebhookError::Secret(secret.len()));
        }
        Ok(Self(Arc::new(Inner {
            client: HttpClient::new(url, ca)?,
            key: hmac::Key::new(hmac::HMAC_SHA256, secret),
            clock,
            at_once: Semaphore::new(AT_ONCE),
        })))
    }
}

impl Handler for Webhook {
    fn handle<'a>(&'a self, events: &'a [Delivery]) -> Handled<'a> {
        Box::pin(async move {
            let mut tasks = JoinSet::new();
            for (at, event) in events.iter().enumerate() {
                let (inner, event) = (self.0.clone(), event.clone());
                tasks.spawn(async move { (at, inner.send(&event).await) });
            }
            let mut outcomes = vec![Outcome::Failed("it was not sent".to_owned()); events.len()];
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
        // It is never closed.
        let _permit = self.at_once.acquire().await;
        let id = event.envelope.id.as_str();
        let Ok(body) = serde_json::to_string(&event.envelope) else {
            return Outcome::Refused("the event cannot be written as JSON".to_owned());
        };
        let at_s = ((self.clock)() / 1_000).to_string();
        let signature = sign(&self.key, id, &at_s, &body);
        let Some(headers) = headers(id, &at_s, &signature) else {
            return Outcome::Refused("the event's id is no header".to_owned());
        };
        let (client, body) = (&self.client, Bytes::from(body));
        let sent = client.send(Method::POST, client.path(), &headers, body, ANSWER_LEN_MAX);
        match tokio::time::timeout(TIMEOUT, sent).await {
            Err(_) => Outcome::Failed(format!("no answer within {TIMEOUT:?}")),
            Ok(Err(error)) => Outcome::Failed(error.to_string()),
            Ok(Ok((status, _))) => judged(status),
        }
    }
}

/// 410 is the only answer that means never: any other may be a mistake that somebody mends.
fn judged(status: StatusCode) -> Outcome {
    match status {
        status if status.is_success() => Outcome::Done,
        StatusCode::GONE => Outcome::Refused("answered 410".to_owned()),
        status => Outcome::Failed(format!("answered {}", status.as_u16())),
    }
}

fn sign(key: &hmac::Key, id: &str, at_s: &str, body: &str) -> String {
    let tag = hmac::sign(key, [id, ".", at_s, ".", body].concat().as_bytes());
    format!("v1,{}", STANDARD.encode(tag.as_ref()))
}

fn headers(id: &str, at_s: &str, signature: &str) -> Option<Vec<(HeaderName, HeaderValue)>> {
    let json = HeaderValue::from_static("application/json");
    Some(vec![
        (header::CONTENT_TYPE, json),
        (
            HeaderName::from_static("webhook-id"),
            HeaderValue::from_str(id).ok()?,
        ),
        (
            HeaderName::from_static("webhook-timestamp"),
            HeaderValue::from_str(at_s).ok()?,
        ),
        (
            HeaderName::from_static("webhook-signature"),
            HeaderValue::from_str(signature).ok()?,
        ),
    ])
}

#[cfg(test)]
mod tests {
    use super::*;

    /// As OpenSSL has it: `printf 'e1.1700000000.{}' | openssl dgst -sha256 -hmac 0123…ef -binary | base64`.
    #[test]
    fn the_signature_is_that_of_standard_webhooks() {
        let key = hmac::Key::new(hmac::HMAC_SHA256, b"0123456789abcdef0123456789abcdef");
        let signature = sign(&key, "e1", "1700000000", "{}");
        assert_eq!(signature, "v1,07qQ8VE+Jcd4QrU5yo6gNwl5iGbECsDJhPxUaHhWLk4=");
    }

    #[test]
    fn a_short_secret_and_a_strange_url_are_refused() {
        let clock: Clock = Arc::new(|| 0);
        let new = |url, secret: &[u8]| Webhook::new(url, None, secret, clock.clone());
        assert!(matches!(
            new("http://h/", &[0; 31]),
            Err(WebhookError::Secret(31))
        ));
        assert!(matches!(
            new("ftp://h/", &[0; 32]),
            Err(WebhookError::Client(_))
        ));
        let webhook = new("http://h/", b"0123456789abcdef0123456789abcdef").unwrap();
        assert!(!format!("{webhook:?}").contains("0123456789abcdef"));
    }
}
