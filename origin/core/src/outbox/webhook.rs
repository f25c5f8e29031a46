//! The receiver that is a URL: each change by `POST`, [signed](crate::http::webhook).

use super::{Change, DeliveryFuture, Sink};
use crate::http::webhook::WebhookSender;

/// Sends changes to a URL.
#[derive(Debug)]
pub struct ChangeWebhook(WebhookSender);

impl ChangeWebhook {
    /// Sends with `sender`.
    pub fn new(sender: WebhookSender) -> Self {
        Self(sender)
    }
}

impl Sink for ChangeWebhook {
    /// Only 2xx means that it has come: whatever else is answered may be a mistake that somebody mends.
    fn deliver<'a>(&'a self, change: &'a Change) -> DeliveryFuture<'a> {
        Box::pin(async move {
            let sent = self.0.send(&change.id(), change.body.clone()).await;
            match sent.map_err(|error| error.to_string())? {
                status if status.is_success() => Ok(()),
                status => Err(format!("answered {}", status.as_u16())),
            }
        })
    }
}
