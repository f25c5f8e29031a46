//! What an operator sets for a waiting room.

use serde::{Deserialize, Serialize};
use weir_room::{Mode, Setting};

/// The same in a request, in SQL and in what is shown. A request replaces all of it: a member that is left out has its default.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RoomFields {
    /// What the room does.
    pub mode: Mode,
    /// Entries per minute over all gateways; 0: no limit.
    #[serde(default)]
    pub per_minute: u64,
    /// Visitors inside at once over all gateways; 0: no limit.
    #[serde(default)]
    pub active_max: u64,
    /// Nobody enters before this time, in milliseconds since the Unix epoch; 0: no such time.
    #[serde(default)]
    pub opens_at_ms: u64,
}

impl RoomFields {
    /// What gateways read from Redis.
    pub fn setting(self, version: u64) -> Setting {
        Setting {
            version,
            mode: self.mode,
            per_minute: self.per_minute,
            active_max: self.active_max,
            opens_at_ms: self.opens_at_ms,
        }
    }
}

impl From<Setting> for RoomFields {
    fn from(setting: Setting) -> Self {
        Self {
            mode: setting.mode,
            per_minute: setting.per_minute,
            active_max: setting.active_max,
            opens_at_ms: setting.opens_at_ms,
        }
    }
}
