//! The keys of browse history.

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use crate::Owner;
use crate::slot::{Tags, slot};
use weir_base::resp::Arguments;

/// The keys of one owner's list, in one slot.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct HistoryKeys(String);

impl HistoryKeys {
    /// The keys of `owner`. Its text contains no braces.
    pub fn new(prefix: &str, owner: &Owner) -> Self {
        Self([prefix, ":h:{", owner.as_str(), "}:"].concat())
    }

    /// Sorted set: SKU by the time of its latest view.
    pub fn views(&self) -> Vec<u8> {
        self.key(b"v")
    }

    /// Sorted set: SKU by the time of its deletion.
    pub fn deleted(&self) -> Vec<u8> {
        self.key(b"d")
    }

    /// Text: `<cleared_ms> <loaded> <generation>`, see `history_fill.lua`.
    pub fn marker(&self) -> Vec<u8> {
        self.key(b"c")
    }

    /// Integer: the number of products shown to the owner. Or `?` and the name of a promise to count.
    pub fn count(&self) -> Vec<u8> {
        self.key(b"n")
    }

    fn key(&self, name: &[u8]) -> Vec<u8> {
        [self.0.as_bytes(), name].concat()
    }

    /// Views, deleted, marker, count: in the order of the scripts' KEYS.
    pub(crate) fn of_list(&self) -> Arguments {
        let mut keys = Arguments::with_capacity(4 * (self.0.len() + 12));
        for name in [b"v", b"d", b"c", b"n"] {
            keys.push_joined(&[self.0.as_bytes(), name]);
        }
        keys
    }

    /// The same, with the day's set of active owners.
    pub(crate) fn of_change(&self, active: &[u8]) -> Arguments {
        let mut keys = self.of_list();
        keys.push(active);
        keys
    }
}

/// The set of owners in one slot who were active on one UTC day, counted from the epoch.
pub fn history_active(prefix: &str, tags: &Tags, day: u64, slot: u16) -> Vec<u8> {
    format!("{prefix}:h:active:{day}:{{{}}}", tags.tag(slot)).into_bytes()
}

/// The set that marks `owner` as active on that day, in the slot of its list.
pub fn history_active_of(prefix: &str, tags: &Tags, day: u64, owner: &Owner) -> Vec<u8> {
    history_active(prefix, tags, day, slot(owner.as_str().as_bytes()))
}

/// The position up to which each log's views are on the node with this slot: a hash, position by source.
pub fn history_mark(prefix: &str, tags: &Tags, slot: u16) -> Vec<u8> {
    format!("{prefix}:h:mark:{{{}}}", tags.tag(slot)).into_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_base::id::UserId;

    #[test]
    fn keys_of_an_owner_share_one_hash_tag() {
        let owner = Owner::user(&UserId::new("}a{").unwrap());
        let keys = HistoryKeys::new("weir", &owner);
        assert_eq!(keys.views(), b"weir:h:{%7Da%7B}:v");
        let all = [keys.views(), keys.deleted(), keys.marker(), keys.count()];
        assert!(keys.of_list().iter().eq(all.iter().map(Vec::as_slice)));
    }

    #[test]
    fn active_owner_key_is_in_the_slot_of_its_list() {
        let tags = Tags::new();
        for name in ["alice", "bob", "7"] {
            let owner = Owner::user(&UserId::new(name).unwrap());
            let key = String::from_utf8(history_active_of("weir", &tags, 9, &owner)).unwrap();
            let tag = key.strip_prefix("weir:h:active:9:{").unwrap();
            let tag = tag.strip_suffix('}').unwrap();
            assert_eq!(slot(tag.as_bytes()), slot(name.as_bytes()));
        }
    }
}
