//! The click that an order came of. Who can read one is found at start-up: sales know nothing of links.

use std::fmt;
use std::sync::Arc;

/// The click that an order came of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OrderClick {
    /// The link.
    pub link: String,
    /// The click's name.
    pub id: String,
}

/// Reads what a client has sent as the name of a click; `None`: it is none that counts.
pub type ReadClick = Arc<dyn Fn(&[u8]) -> Option<OrderClick> + Send + Sync>;

/// Reads the names of clicks, if there is anybody who can.
#[derive(Clone, Default)]
pub struct Clicks(Option<ReadClick>);

impl Clicks {
    /// Reads them with this.
    pub fn new(read: ReadClick) -> Self {
        Self(Some(read))
    }

    /// The click of this name, if it counts.
    pub fn read(&self, text: &[u8]) -> Option<OrderClick> {
        self.0.as_ref().and_then(|read| read(text))
    }
}

impl fmt::Debug for Clicks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Clicks")
    }
}
