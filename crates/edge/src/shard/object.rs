//! The content of an object: a shard of a sale or a short link, by its key.

use crate::shard::command::{ObjectCommands, UnexpectedCommand, prefix_of};
use crate::shard::link::{Link, is_link};
use crate::shard::sale::{CommandsOutcome, Shard};

/// The content of one object.
#[derive(Clone, Debug, PartialEq, Eq)]
#[expect(
    clippy::large_enum_variant,
    reason = "an object has one, and holds it for as long as it lives"
)]
pub enum EdgeObject {
    /// A shard of a sale.
    Shard(Shard),
    /// A short link.
    Link(Link),
}

impl EdgeObject {
    /// An unused object with the [prefix](prefix_of) of this key.
    ///
    /// # Errors
    /// If the key has no hash tag.
    pub fn new(key: &[u8]) -> Result<Self, UnexpectedCommand> {
        let prefix = prefix_of(key).ok_or(UnexpectedCommand)?;
        Ok(match is_link(prefix) {
            true => Self::Link(Link::default()),
            false => Self::Shard(Shard::default()),
        })
    }

    /// Runs commands at this time, in milliseconds since the Unix epoch: see [`Shard::run`] and [`Link::run`].
    ///
    /// # Errors
    /// If they are for the other kind of object; then none has run.
    pub fn run(
        &mut self,
        commands: &ObjectCommands,
        now_ms: u64,
    ) -> Result<CommandsOutcome, UnexpectedCommand> {
        match (self, commands) {
            (Self::Shard(shard), ObjectCommands::Shard(commands)) => {
                Ok(shard.run(commands, now_ms.saturating_mul(1_000)))
            }
            (Self::Link(link), ObjectCommands::Link(commands)) => Ok(link.run(commands, now_ms)),
            _ => Err(UnexpectedCommand),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::shard::command::ShardCommand;
    use alloc::vec;

    #[test]
    fn object_kind_is_derived_from_its_key() {
        let held = |key: &[u8]| EdgeObject::new(key).unwrap();
        assert!(matches!(held(b"weir:{s:0}:stock"), EdgeObject::Shard(_)));
        assert!(matches!(
            held(b"weir:link:{d/abc}:clicks"),
            EdgeObject::Link(_)
        ));
        assert!(matches!(held(b"a:link:{s:0}"), EdgeObject::Shard(_)));
        assert!(EdgeObject::new(b"weir:catalogue").is_err());
    }

    #[test]
    fn object_refuses_commands_for_another_kind() {
        let mut link = EdgeObject::new(b"weir:link:{d/abc}").unwrap();
        let to_shard = ObjectCommands::Shard(vec![ShardCommand::Epoch]);
        assert_eq!(link.run(&to_shard, 1), Err(UnexpectedCommand));
        assert!(link.run(&ObjectCommands::Link(vec![]), 1).is_ok());
    }
}
