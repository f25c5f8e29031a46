//! Webhooks, signed as [Standard Webhooks](https://www.standardwebhooks.com) specifies.
//!
//! ```text
//! webhook-id: <the message's id>
//! webhook-timestamp: <seconds since the Unix epoch>
//! webhook-signature: v1,<HMAC-SHA256 of "<id>.<timestamp>.<body>", in Base64>
//! ```
//!
//! A 2xx answer acknowledges a message. Receivers deduplicate repeated messages by id.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use axum::http::{HeaderName, HeaderValue, Method, StatusCode, header};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hyper::body::Bytes;
use ring::hmac;

use super::client::{ClientError, HttpClient};

/// Minimum length of the secret in bytes: the hash's output length (RFC 2104, section 3).
pub const SECRET_LEN_MIN: usize = 32;

/// Timeout of one request.
pub const TIMEOUT: Duration = Duration::from_secs(10);

/// Maximum length of an answer that is read, in bytes; only its status matters.
const ANSWER_LEN_MAX: usize = 64 << 10;

/// Clock in milliseconds since the Unix epoch.
pub type ReadClock = Arc<dyn Fn() -> u64 + Send + Sync>;

/// Sends signed messages to a URL.
pub struct WebhookSender {
    client: HttpClient,
    key: hmac::Key,
    clock: ReadClock,
}

/// Omits the secret, which must not appear in logs.
impl std::fmt::Debug for WebhookSender {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("WebhookSender").field(&self.client).finish()
    }
}

/// Why a sender cannot be created.
#[derive(Debug, thiserror::Error)]
pub enum WebhookError {
    /// The URL or the CA certificates are invalid.
    #[error(transparent)]
    Client(#[from] ClientError),
    /// The secret is too short. The value is its length in bytes.
    #[error("the secret has {0} bytes, needs at least {SECRET_LEN_MIN}")]
    Secret(usize),
}

/// Why a message may not have been delivered.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum SendError {
    /// The id is not a valid header value. Nothing was sent.
    #[error("its id is not a valid header value")]
    Id,
    /// It is unknown whether the message was delivered.
    #[error("{0}")]
    Unknown(String),
}

impl WebhookSender {
    /// Sends to `url`, signed with `secret`. For `https`, it trusts the CAs in the file `ca`, or the system's.
    ///
    /// # Errors
    /// See [`WebhookError`].
    pub fn new(
        url: &str,
        ca: Option<&Path>,
        secret: &[u8],
        clock: ReadClock,
    ) -> Result<Self, WebhookError> {
        if secret.len() < SECRET_LEN_MIN {
            return Err(WebhookError::Secret(secret.len()));
        }
        Ok(Self {
            client: HttpClient::new(url, ca)?,
            key: hmac::Key::new(hmac::HMAC_SHA256, secret),
            clock,
        })
    }

    /// Sends a message once. Returns the status of the answer.
    ///
    /// # Errors
    /// See [`SendError`].
    pub async fn send(&self, id: &str, body: String) -> Result<StatusCode, SendError> {
        let at_s = ((self.clock)() / 1_000).to_string();
        let signature = sign(&self.key, id, &at_s, &body);
        let headers = headers(id, &at_s, &signature).ok_or(SendError::Id)?;
        let (client, body) = (&self.client, Bytes::from(body));
        let sent = client.send(Method::POST, client.path(), &headers, body, ANSWER_LEN_MAX);
        match tokio::time::timeout(TIMEOUT, sent).await {
            Err(_) => Err(SendError::Unknown(format!("no answer within {TIMEOUT:?}"))),
            Ok(Err(error)) => Err(SendError::Unknown(error.to_string())),
            Ok(Ok((status, _))) => Ok(status),
        }
    }
}

fn sign(key: &hmac::Key, id: &str, at_s: &str, body: &str) -> String {
    let tag = hmac::sign(key, [id, ".", at_s, ".", body].concat().as_bytes());
    format!("v1,{}", STANDARD.encode(tag.as_ref()))
}

fn headers(id: &str, at_s: &str, signature: &str) -> Option<Vec<(HeaderName, HeaderValue)>> {
    let value = |text: &str| HeaderValue::from_str(text).ok();
    Some(vec![
        (
            header::CONTENT_TYPE,
            HeaderValue::from_static("application/json"),
        ),
        (HeaderName::from_static("webhook-id"), value(id)?),
        (HeaderName::from_static("webhook-timestamp"), value(at_s)?),
        (
            HeaderName::from_static("webhook-signature"),
            value(signature)?,
        ),
    ])
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Expected value from OpenSSL: `printf 'e1.1700000000.{}' | openssl dgst -sha256 -hmac 0123…ef -binary | base64`.
    #[test]
    fn signature_follows_standard_webhooks() {
        let key = hmac::Key::new(hmac::HMAC_SHA256, b"0123456789abcdef0123456789abcdef");
        let signature = sign(&key, "e1", "1700000000", "{}");
        assert_eq!(signature, "v1,07qQ8VE+Jcd4QrU5yo6gNwl5iGbECsDJhPxUaHhWLk4=");
    }

    #[test]
    fn short_secret_and_invalid_url_are_refused() {
        let clock: ReadClock = Arc::new(|| 0);
        let new = |url, secret: &[u8]| WebhookSender::new(url, None, secret, clock.clone());
        assert!(matches!(
            new("http://h/", &[0; 31]),
            Err(WebhookError::Secret(31))
        ));
        assert!(matches!(
            new("ftp://h/", &[0; 32]),
            Err(WebhookError::Client(_))
        ));
        let sender = new("http://h/", b"0123456789abcdef0123456789abcdef").unwrap();
        assert!(!format!("{sender:?}").contains("0123456789abcdef"));
    }
}
