//! The webhook receiver: sends each change by `POST`, [signed](crate::http::webhook).

use super::{Change, DeliveryFuture, Sink};
use crate::http::webhook::WebhookSender;

/// Sends changes to a URL.
#[derive(Debug)]
pub struct ChangeWebhook(WebhookSender);

impl ChangeWebhook {
    /// Creates a receiver that uses `sender`.
    pub fn new(sender: WebhookSender) -> Self {
        Self(sender)
    }
}

impl Sink for ChangeWebhook {
    /// Only 2xx acknowledges a change. Other answers may be errors that an operator will fix.
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
