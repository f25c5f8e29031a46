//! The keys of waiting rooms.

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use crate::{RoomName, Visitor};
use weir_base::resp::Arguments;

/// The number of hashes for the positions of a room: a million visitors make 61 in each, which Redis packs.
pub const PLACE_BUCKETS: u32 = 16_384;

/// The number of hashes for the addresses of a room.
pub const ADDRESS_BUCKETS: u32 = 16_384;

/// The keys of one room, in one slot.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RoomKeys(String);

impl RoomKeys {
    /// The keys of the room with this name.
    pub fn new(prefix: &str, room: &RoomName) -> Self {
        Self(format!("{prefix}:room:{{{room}}}:"))
    }

    /// String: the operators' settings, see `room_set.lua`.
    pub fn setting(&self) -> Vec<u8> {
        self.key("setting")
    }

    /// Hash: entries by waiting time.
    pub fn waits(&self) -> Vec<u8> {
        self.key("waits")
    }

    /// String: the room's state, see `room_state.lua`.
    pub fn state(&self) -> Vec<u8> {
        self.key("state")
    }

    /// Sorted set: active sessions by their end.
    pub fn inside(&self) -> Vec<u8> {
        self.key("inside")
    }

    /// Sorted set: called visitors who wait for capacity, see `room_state.lua`.
    pub fn holds(&self) -> Vec<u8> {
        self.key("holds")
    }

    fn key(&self, name: &str) -> Vec<u8> {
        [&self.0, name].concat().into_bytes()
    }

    /// State, settings, sessions, waits, holds: in the order of the scripts' KEYS.
    pub(crate) fn of_room(&self) -> Arguments {
        let mut keys = Arguments::default();
        for name in ["state", "setting", "inside", "waits", "holds"] {
            keys.push_joined(&[self.0.as_bytes(), name.as_bytes()]);
        }
        keys
    }

    /// The bucket of a visitor's position.
    pub(crate) fn push_places(&self, visitor: Visitor, keys: &mut Arguments) {
        let places = visitor.bucket(PLACE_BUCKETS);
        keys.push(format!("{}p:{places}", self.0).as_bytes());
    }

    /// The bucket of a visitor's position, and that of an address.
    pub(crate) fn push_buckets(&self, visitor: Visitor, address: [u8; 8], keys: &mut Arguments) {
        self.push_places(visitor, keys);
        let addresses = Visitor::from_bytes(address).bucket(ADDRESS_BUCKETS);
        keys.push(format!("{}a:{addresses}", self.0).as_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_keys_of_a_room_share_one_cluster_slot() {
        let keys = RoomKeys::new("weir", &RoomName::new("shop").unwrap());
        assert_eq!(keys.setting(), b"weir:room:{shop}:setting");
        let mut all = keys.of_room();
        keys.push_buckets(
            Visitor::from_bytes([0, 9, 0, 0, 0, 0, 0, 0]),
            [0; 8],
            &mut all,
        );
        let all: Vec<&[u8]> = all.iter().collect();
        assert_eq!(all.len(), 7);
        assert_eq!(all[0], keys.state());
        assert_eq!(all[2], keys.inside());
        assert_eq!(all[3], keys.waits());
        assert_eq!(all[4], keys.holds());
        assert_eq!(all[5], b"weir:room:{shop}:p:9");
        assert!(all.iter().all(|key| key.starts_with(b"weir:room:{shop}:")));
    }
}
