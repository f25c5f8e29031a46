//! The payment provider: its keys and its payment page.

use weir_base::key::KeyRing;

/// Placeholder of the payment's id in the URL of the payment page.
pub const PLACE: &str = "{payment}";

/// A payment provider.
#[derive(Clone, Debug)]
pub struct Payments {
    keys: KeyRing,
    pay_url: Option<String>,
}

impl Payments {
    /// A provider that signs its callbacks with one of `keys`. `pay_url` is its payment page, with [`PLACE`] for the
    /// payment's id.
    pub fn new(keys: KeyRing, pay_url: Option<String>) -> Self {
        Self { keys, pay_url }
    }

    /// Keys that verify its callbacks.
    pub fn keys(&self) -> &KeyRing {
        &self.keys
    }

    /// URL of a payment's page; `None` if there is no page.
    pub fn pay_url(&self, payment: &str) -> Option<String> {
        // A payment id is derived from an order id and needs no escaping in a path or query.
        self.pay_url.as_ref().map(|url| url.replace(PLACE, payment))
    }
}
