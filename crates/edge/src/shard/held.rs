//! What an object holds: a shard of a sale, or a short link. The key that it is asked about tells which.

use crate::shard::call::{Refused, prefix_of};
use crate::shard::link::{Link, is_link};
use crate::shard::sale::{Done, Shard};

/// What is in one object.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(
    clippy::large_enum_variant,
    reason = "an object has one, and holds it for as long as it lives"
)]
pub enum Held {
    /// A shard of a sale.
    Shard(Shard),
    /// A short link.
    Link(Link),
}

impl Held {
    /// One that has never been used, with the [prefix](prefix_of) of this key.
    ///
    /// # Errors
    /// When the key has no hash tag.
    pub fn new(key: &[u8]) -> Result<Self, Refused> {
        let prefix = prefix_of(key).ok_or(Refused)?;
        match is_link(prefix) {
            true => Link::new(prefix).map(Self::Link),
            false => Shard::new(prefix).map(Self::Shard),
        }
    }

    /// Runs commands at this time, in milliseconds since the Unix epoch: see [`Shard::run`] and [`Link::run`].
    ///
    /// # Errors
    /// When one is no command of what is here: then none has run.
    pub fn run(&mut self, commands: &[u8], now_ms: u64) -> Result<Done, Refused> {
        match self {
            Self::Shard(shard) => shard.run(commands, now_ms.saturating_mul(1_000)),
            Self::Link(link) => link.run(commands, now_ms),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_tells_what_is_held() {
        let held = |key: &[u8]| Held::new(key).unwrap();
        assert!(matches!(held(b"weir:{s:0}:stock"), Held::Shard(_)));
        assert!(matches!(held(b"weir:link:{d/abc}:clicks"), Held::Link(_)));
        assert!(matches!(held(b"a:link:{s:0}"), Held::Shard(_)));
        assert!(Held::new(b"weir:catalogue").is_err());
    }
}
