//! The click that led to an order. Start-up provides the reader, because sales do not depend on links.

use std::fmt;
use std::sync::Arc;

/// The click that led to an order.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OrderClick {
    /// The link.
    pub link: String,
    /// Id of the click.
    pub id: String,
}

/// Reads a click id from a client; `None`: it is invalid or expired.
pub type ReadClick = Arc<dyn Fn(&[u8]) -> Option<OrderClick> + Send + Sync>;

/// Reads click ids, if a reader is configured.
#[derive(Clone, Default)]
pub struct Clicks(Option<ReadClick>);

impl Clicks {
    /// Uses this reader.
    pub fn new(read: ReadClick) -> Self {
        Self(Some(read))
    }

    /// Reads a click id; `None`: it is invalid or expired, or no reader is configured.
    pub fn read(&self, text: &[u8]) -> Option<OrderClick> {
        self.0.as_ref().and_then(|read| read(text))
    }
}

impl fmt::Debug for Clicks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Clicks")
    }
}
