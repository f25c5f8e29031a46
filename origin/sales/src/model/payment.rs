//! The payment provider, as the origin knows it: its keys, and where buyers pay.

use weir_base::key::KeyRing;

/// Where the name of a payment goes in the provider's URL.
pub const PLACE: &str = "{payment}";

/// A payment provider.
#[derive(Clone, Debug)]
pub struct Payments {
    keys: KeyRing,
    pay_url: Option<String>,
}

impl Payments {
    /// A provider that signs its callbacks with one of `keys`. Buyers pay at `pay_url`, with the payment's name in
    /// [`PLACE`].
    pub fn new(keys: KeyRing, pay_url: Option<String>) -> Self {
        Self { keys, pay_url }
    }

    /// The keys of its callbacks.
    pub fn keys(&self) -> &KeyRing {
        &self.keys
    }

    /// Where this payment is paid.
    pub fn pay_url(&self, payment: &str) -> Option<String> {
        // A payment's name is made of an order's: it needs no escaping in a path or a query.
        self.pay_url.as_ref().map(|url| url.replace(PLACE, payment))
    }
}
