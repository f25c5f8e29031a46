//! The setting of a waiting room.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use utoipa::openapi::Object;
use weir_origin_core::api::words;
use weir_room::{Mode, Setting};

/// Setting of a waiting room, in requests, SQL and answers. A request replaces it completely: a missing field gets its
/// default.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(as = NewRoom)]
pub struct RoomFields {
    /// Mode of the room.
    #[schema(schema_with = modes)]
    pub mode: Mode,
    /// Admissions per minute over all gateways; 0: unlimited.
    #[serde(default)]
    #[schema(maximum = 10_000_000, default = 0)]
    pub per_minute: u64,
    /// Limit of active sessions over all gateways; 0: unlimited.
    #[serde(default)]
    #[schema(maximum = 10_000_000, default = 0)]
    pub active_max: u64,
    /// Opening time, in milliseconds since the Unix epoch; 0: open at once.
    #[serde(default)]
    #[schema(maximum = 9_007_199_254_740_991_u64, default = 0)]
    pub opens_at_ms: u64,
}

fn modes() -> Object {
    words("Mode of the room.", Mode::ALL.map(Mode::label))
}

impl RoomFields {
    /// The setting in the form that gateways read from Redis.
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
