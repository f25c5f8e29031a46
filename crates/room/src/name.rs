//! Room names.

use alloc::string::String;
use core::fmt;

/// Maximum bytes of a name.
pub const LEN_MAX: usize = 48;

/// A room's name: 1 to [`LEN_MAX`] of `a-z 0-9 -`. Keys, cookies, paths and metrics contain it.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct RoomName(String);

impl RoomName {
    /// The name; `None` if it is invalid.
    pub fn new(name: &str) -> Option<Self> {
        let allowed = |b: u8| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-';
        let is_good = (1..=LEN_MAX).contains(&name.len()) && name.bytes().all(allowed);
        is_good.then(|| Self(name.into()))
    }

    /// The name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for RoomName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn room_name_is_valid_in_keys_cookies_and_paths() {
        assert_eq!(RoomName::new("shop-2").unwrap().as_str(), "shop-2");
        for bad in ["", "A", "a b", "a{", "a;", "ü", &"x".repeat(49)] {
            assert_eq!(RoomName::new(bad), None, "{bad}");
        }
    }
}
