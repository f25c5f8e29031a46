//! Sites: one sale sold from several Redis. See [`weir_sale::site`].

use std::fmt;
use std::ops::Range;
use std::str::FromStr;
use std::sync::Arc;

use weir_sale::site::{FIRST_FENCE, FenceState, fence_of, first_shard};

/// The maximum length of a site's name.
const NAME_LEN_MAX: usize = 32;

/// The name of a site: 1 to 32 lowercase letters, digits and `-`, with a letter first.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct SiteName(Arc<str>);

/// A text is not the name of a site.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("must be 1 to 32 lowercase letters, digits and `-`, with a letter first, such as `berlin`")]
pub struct SiteNameError;

impl SiteName {
    /// The name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for SiteName {
    type Err = SiteNameError;

    fn from_str(name: &str) -> Result<Self, SiteNameError> {
        let is_allowed =
            |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
        let starts_well = name.starts_with(|first: char| first.is_ascii_lowercase());
        match starts_well && name.len() <= NAME_LEN_MAX && name.bytes().all(is_allowed) {
            true => Ok(Self(name.into())),
            false => Err(SiteNameError),
        }
    }
}

impl fmt::Display for SiteName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The fence under which the site of this origin sells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LocalFence {
    /// Its number.
    pub number: u32,
    /// Its state.
    pub state: FenceState,
}

impl LocalFence {
    /// The fence without sites.
    pub const ALONE: Self = Self {
        number: FIRST_FENCE,
        state: FenceState::Live,
    };

    /// The fence of a site that has never joined: it sells nothing.
    pub const MISSING: Self = Self {
        number: FIRST_FENCE,
        state: FenceState::Closed,
    };

    /// Its first shard.
    pub const fn first_shard(self) -> u32 {
        first_shard(self.number)
    }

    /// The numbers that its shards can have.
    pub const fn shards(self) -> Range<u32> {
        first_shard(self.number)..first_shard(self.number + 1)
    }

    /// Whether its claims can become orders.
    pub fn is_open(self) -> bool {
        self.state != FenceState::Closed
    }

    /// Whether Redis here contains this shard, and may sell its units.
    pub fn sells(self, shard: u32) -> bool {
        self.is_open() && fence_of(shard) == self.number
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn site_name_is_lowercase_and_short() {
        let name: SiteName = "eu-west-1".parse().unwrap();
        assert_eq!(
            (name.as_str(), name.to_string()),
            ("eu-west-1", "eu-west-1".into())
        );
        let long = "a".repeat(33);
        for bad in ["", "Berlin", "1a", "-a", "a b", "a_b", "é", long.as_str()] {
            assert_eq!(bad.parse::<SiteName>(), Err(SiteNameError), "{bad}");
        }
        assert!("a".repeat(32).parse::<SiteName>().is_ok());
    }

    #[test]
    fn closed_fence_sells_no_shard() {
        let fence = |state| LocalFence { number: 2, state };
        assert_eq!(fence(FenceState::Live).shards(), 128..192);
        for (state, sells) in [
            (FenceState::Live, true),
            (FenceState::Draining, true),
            (FenceState::Closed, false),
        ] {
            assert_eq!(fence(state).sells(128), sells);
            assert!(!fence(state).sells(64) && !fence(state).sells(192));
        }
        assert!(LocalFence::ALONE.sells(0) && !LocalFence::MISSING.sells(0));
    }
}
