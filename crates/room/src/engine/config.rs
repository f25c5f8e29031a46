//! Parses and checks the JSON configuration.
//!
//! ```json
//! {
//!   "redis": {},
//!   "keys": [{ "secret": { "env": "WEIR_ROOM_KEY" } }],
//!   "rooms": [{ "name": "shop", "match": { "path": { "prefix": "/shop" } }, "per_minute": 600, "active_max": 5000 }]
//! }
//! ```

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use crate::setting::{ACTIVE_MAX, PER_MINUTE_MAX};
use crate::{Mode, NUMBER_MAX, RoomName, Setting, Terms};
use serde::Deserialize;
use weir_base::FieldError;
use weir_base::duration::Duration;
use weir_base::hash::stable_hash;
use weir_base::key::KeyRing;
use weir_base::language::Language;
use weir_engine::config::{Environment, RedisConfig, header_name, within};
use weir_engine::keys::{KeyConfig, ring};
use weir_engine::{ItemKind, ReportedItem};
use weir_limit::rules::{HOPS_MAX, MatchConfig, Matching};

use crate::engine::page::{Page, PageConfig};
use crate::engine::text::Texts;

/// Default time that a request waits for Redis, in milliseconds.
pub(crate) const DEADLINE_MS: u64 = 200;

/// Maximum rooms of one filter: each costs one call per second and worker.
const ROOMS_MAX: usize = 64;

/// Maximum exceptions of one room.
const EXCEPT_MAX: usize = 32;

/// Waiting rooms. `redis`, `keys` and `rooms` are required.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Config {
    /// Connection to Redis.
    pub redis: RedisConfig,
    /// Keys that sign queue tokens; the first one signs, all are accepted. Must match on all gateways.
    pub keys: Vec<KeyConfig>,
    /// At most 64 rooms; the first whose `match` fits handles the request.
    pub rooms: Vec<RoomConfig>,
    /// Header that names the signed-in user; clients must not be able to forge it. A user then has one queue
    /// position across devices. Without it, each browser is a visitor.
    #[serde(default)]
    pub user_header: Option<String>,
    /// Path prefix for position requests from pages. Default: `/.weir/room`.
    #[serde(default = "default_status_path")]
    pub status_path: String,
    /// Interval of room state reads from Redis, 100 to 10,000. Default: 1,000.
    #[serde(default = "default_poll_interval_ms")]
    pub poll_interval_ms: u64,
    /// Number of trusted proxies that append to `X-Forwarded-For`, 1 to 16. Default: use the connection's address.
    #[serde(default)]
    pub trusted_hops: Option<usize>,
}

/// One waiting room.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RoomConfig {
    /// 1 to 48 of `a-z 0-9 -`.
    pub name: String,
    /// Requests that need admission. Default: all.
    #[serde(default, rename = "match")]
    pub matching: MatchConfig,
    /// Exceptions from `match`, at most 32. Default: none.
    #[serde(default)]
    pub except: Vec<MatchConfig>,
    /// Initial mode; operators can change it. Default: `open`.
    #[serde(default)]
    pub mode: Mode,
    /// Initial admission rate per minute over all gateways, 1 to 10,000,000. Default: unlimited.
    #[serde(default)]
    pub per_minute: u64,
    /// Initial limit of active sessions over all gateways, 1 to 10,000,000. Default: unlimited.
    #[serde(default)]
    pub active_max: u64,
    /// Opening time, in milliseconds since the Unix epoch. Visitors in the pre-queue are then ordered at random.
    /// Default: open at once.
    #[serde(default)]
    pub opens_at_ms: u64,
    /// Lifetime of an idle session, 10 s to 1 d. Default: `10m`. Renewed after a quarter of it.
    #[serde(default = "default_session")]
    pub session: Duration,
    /// Time to enter after being called, 5 s to 1 h. Default: `2m`.
    #[serde(default = "default_claim")]
    pub claim: Duration,
    /// Lifetime of a queue token, 1 m to 30 d. Default: `1d`.
    #[serde(default = "default_pass")]
    pub pass: Duration,
    /// Maximum waiting visitors. Default: unlimited.
    #[serde(default)]
    pub queue_max: u64,
    /// Limit of queue positions per address, or IPv6 /64 network.
    #[serde(default)]
    pub per_address: AddressConfig,
    /// Interval between position requests of a page.
    #[serde(default)]
    pub poll: PollConfig,
    /// Behaviour during a Redis outage.
    #[serde(default)]
    pub without_redis: WithoutRedisConfig,
    /// Status of the waiting page or JSON: 503, 200, 202 or 429. Default: 503.
    #[serde(default = "default_status")]
    pub status: u16,
    /// Appearance of pages.
    #[serde(default)]
    pub page: PageConfig,
    /// Texts of pages.
    #[serde(default)]
    pub texts: Texts,
}

/// Limit of queue positions per address.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct AddressConfig {
    /// Positions per window; 0: unlimited. Default: 100.
    pub places: u64,
    /// Length of the window, 1 s to 7 d. Default: `1h`.
    pub per: Duration,
}

/// Interval between position requests of a page.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct PollConfig {
    /// Minimum, 500 to 60,000. Default: 5,000.
    pub min_ms: u64,
    /// Maximum, 500 to 300,000, at most a third of `claim`. Default: 30,000 or a third of `claim`.
    pub max_ms: u64,
}

/// Behaviour during a Redis outage.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct WithoutRedisConfig {
    /// Admissions per minute per gateway. Default: 0.
    pub per_minute: u64,
}

/// The checked configuration.
#[derive(Clone, Debug)]
pub struct CheckedConfig {
    /// The connection to Redis.
    pub redis: RedisConfig,
    /// The keys.
    pub keys: KeyRing,
    /// The rooms.
    pub(crate) rooms: Vec<CheckedRoom>,
    /// The header with the signed-in user, in lower case.
    pub user_header: Option<String>,
    /// The path prefix for position requests, without a trailing slash.
    pub status_path: String,
    /// The interval between reads of room state, in milliseconds.
    pub poll_interval_ms: u64,
    /// The number of trusted proxies.
    pub trusted_hops: Option<usize>,
}

/// A checked room.
#[derive(Clone, Debug)]
pub(crate) struct CheckedRoom {
    pub(crate) name: RoomName,
    pub(crate) matching: Matching,
    pub(crate) except: Vec<Matching>,
    pub(crate) setting: Setting,
    pub(crate) terms: Terms,
    pub(crate) poll: PollConfig,
    pub(crate) local_per_minute: u64,
    pub(crate) status: u16,
    pub(crate) page: Page,
    /// The language of all answers; `None`: the visitor's.
    pub(crate) language: Option<Language>,
    pub(crate) texts: Texts,
}

impl CheckedRoom {
    /// The room, for operators.
    pub(crate) fn item(&self) -> ReportedItem {
        let setting = &self.setting;
        // Without pages and texts, which are long.
        let compared = (&self.matching, &self.except, setting, self.terms, self.poll);
        let digest = stable_hash(format!("{compared:?}").as_bytes());
        let item = ReportedItem::new(
            ItemKind::Room,
            self.name.as_str(),
            setting.mode.label(),
            digest,
        );
        item.with_numbers([
            ("per_minute", setting.per_minute),
            ("active_max", setting.active_max),
            ("opens_at_ms", setting.opens_at_ms),
        ])
    }
}

impl Config {
    /// Checks the bounds that the types do not express.
    ///
    /// # Errors
    /// If a field is invalid, with its path.
    pub fn checked(self, environment: Environment<'_>) -> Result<CheckedConfig, FieldError> {
        self.redis.check("redis")?;
        within("poll_interval_ms", self.poll_interval_ms, 100, 10_000)?;
        within("rooms", self.rooms.len() as u64, 1, ROOMS_MAX as u64)?;
        if let Some(hops) = self.trusted_hops {
            within("trusted_hops", hops as u64, 1, HOPS_MAX as u64)?;
        }
        let user_header = self.user_header.as_deref();
        let user_header = user_header.map(|name| header_name("user_header", name));
        let status_path = status_path(&self.status_path)?;
        let mut rooms: Vec<CheckedRoom> = Vec::new();
        for (at, room) in self.rooms.into_iter().enumerate() {
            let path = format!("rooms[{at}]");
            let room = room.checked(&path, &status_path)?;
            if rooms.iter().any(|existing| existing.name == room.name) {
                let problem = "another room has this name";
                return Err(FieldError::new(format!("{path}.name"), problem));
            }
            rooms.push(room);
        }
        Ok(CheckedConfig {
            keys: ring("keys", &self.keys, environment)?,
            redis: self.redis,
            rooms,
            user_header: user_header.transpose()?,
            status_path,
            poll_interval_ms: self.poll_interval_ms,
            trusted_hops: self.trusted_hops,
        })
    }
}

fn status_path(path: &str) -> Result<String, FieldError> {
    let is_plain = |b: u8| b.is_ascii_alphanumeric() || b"/-_.".contains(&b);
    if path.len() < 2
        || !path.starts_with('/')
        || path.ends_with('/')
        || !path.bytes().all(is_plain)
    {
        let problem = "must be a path without a trailing slash, such as /.weir/room";
        return Err(FieldError::new("status_path", problem));
    }
    Ok(path.into())
}

impl RoomConfig {
    fn checked(self, path: &str, status_path: &str) -> Result<CheckedRoom, FieldError> {
        let field = |name: &str| format!("{path}.{name}");
        let name = RoomName::new(&self.name)
            .ok_or_else(|| FieldError::new(field("name"), "must be 1 to 48 of a-z, 0-9 and -"))?;
        self.check_numbers(&field)?;
        let except = |(at, matching): (usize, &MatchConfig)| {
            Matching::new(matching.clone(), &format!("{path}.except[{at}]"))
        };
        let except = self.except.iter().enumerate().map(except);
        let poll = self.poll(&field)?;
        Ok(CheckedRoom {
            except: except.collect::<Result<_, _>>()?,
            setting: Setting {
                version: 0,
                mode: self.mode,
                per_minute: self.per_minute,
                active_max: self.active_max,
                opens_at_ms: self.opens_at_ms,
            },
            terms: self.terms(),
            page: Page::new(&self.page, &name, status_path, &field("page"))?,
            language: self.page.language(&self.texts),
            matching: Matching::new(self.matching, &field("match"))?,
            name,
            poll,
            local_per_minute: self.without_redis.per_minute,
            status: self.status,
            texts: self.texts,
        })
    }

    fn check_numbers(&self, field: &dyn Fn(&str) -> String) -> Result<(), FieldError> {
        let number = |name: &str, value, min, max| within(&field(name), value, min, max);
        number("except", self.except.len() as u64, 0, EXCEPT_MAX as u64)?;
        number("per_minute", self.per_minute, 0, PER_MINUTE_MAX)?;
        number("active_max", self.active_max, 0, ACTIVE_MAX)?;
        number("opens_at_ms", self.opens_at_ms, 0, NUMBER_MAX - 1)?;
        number("session", self.session.ms, 10_000, DAY_MS)?;
        number("claim", self.claim.ms, 5_000, HOUR_MS)?;
        number("pass", self.pass.ms, 60_000, 30 * DAY_MS)?;
        number("queue_max", self.queue_max, 0, NUMBER_MAX - 1)?;
        number("per_address.places", self.per_address.places, 0, 1_000_000)?;
        number(
            "per_address.per",
            self.per_address.per.ms,
            1_000,
            7 * DAY_MS,
        )?;
        let local = self.without_redis.per_minute;
        number("without_redis.per_minute", local, 0, PER_MINUTE_MAX)?;
        if ![200, 202, 429, 503].contains(&self.status) {
            let problem = "must be 200, 202, 429 or 503";
            return Err(FieldError::new(field("status"), problem));
        }
        Ok(())
    }

    fn poll(&self, field: &dyn Fn(&str) -> String) -> Result<PollConfig, FieldError> {
        let third_ms = self.claim.ms / 3;
        let max_ms = match self.poll.max_ms {
            0 => DEFAULT_POLL_MAX_MS.min(third_ms),
            max_ms => max_ms,
        };
        let min_ms = match self.poll.min_ms {
            0 => DEFAULT_POLL_MIN_MS.min(max_ms),
            min_ms => min_ms,
        };
        within(&field("poll.max_ms"), max_ms, 500, third_ms.min(300_000))?;
        within(&field("poll.min_ms"), min_ms, 500, max_ms)?;
        Ok(PollConfig { min_ms, max_ms })
    }

    fn terms(&self) -> Terms {
        Terms {
            session_ms: self.session.ms,
            claim_ms: self.claim.ms,
            queue_max: self.queue_max,
            address_max: self.per_address.places,
            address_ms: self.per_address.per.ms,
            // A returning visitor may also have a session of some age.
            life_ms: self.pass.ms + self.session.ms,
        }
    }
}

const HOUR_MS: u64 = 3_600_000;
const DAY_MS: u64 = 24 * HOUR_MS;
const DEFAULT_POLL_MIN_MS: u64 = 5_000;
const DEFAULT_POLL_MAX_MS: u64 = 30_000;

impl Default for AddressConfig {
    fn default() -> Self {
        Self {
            places: 100,
            per: Duration { ms: HOUR_MS },
        }
    }
}

/// 0 means unset.
impl Default for PollConfig {
    fn default() -> Self {
        let (min_ms, max_ms) = (0, 0);
        Self { min_ms, max_ms }
    }
}

fn default_status_path() -> String {
    "/.weir/room".into()
}

fn default_poll_interval_ms() -> u64 {
    1_000
}

fn default_session() -> Duration {
    Duration { ms: 600_000 }
}

fn default_claim() -> Duration {
    Duration { ms: 120_000 }
}

fn default_pass() -> Duration {
    Duration { ms: DAY_MS }
}

fn default_status() -> u16 {
    503
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_engine::config::parse;

    fn checked(json: &str) -> Result<CheckedConfig, FieldError> {
        let environment = |name: &str| (name == "KEY").then(|| [7; 32].to_vec());
        parse::<Config>(json.as_bytes())?.checked(&environment)
    }

    fn with(room: &str, others: &str) -> String {
        format!(
            r#"{{"redis":{{}},"keys":[{{"secret":{{"env":"KEY"}}}}],"rooms":[{{"name":"shop"{room}}}]{others}}}"#
        )
    }

    #[test]
    fn room_configuration_requires_only_a_name() {
        let config = checked(&with("", "")).unwrap();
        let room = &config.rooms[0];
        assert_eq!(room.terms.claim_ms, 120_000);
        assert_eq!((room.poll.min_ms, room.poll.max_ms), (5_000, 30_000));
        assert_eq!((room.status, room.local_per_minute), (503, 0));
        assert_eq!(config.status_path, "/.weir/room");
        let quick = checked(&with(r#","claim":"6s""#, "")).unwrap();
        assert_eq!(quick.rooms[0].poll.max_ms, 2_000, "a third of the claim");
    }

    #[test]
    fn invalid_field_is_refused_by_its_path() {
        for (room, others, path) in [
            (r#","colour":1"#, "", "rooms[0].colour"),
            (r#","per_minute":10000001"#, "", "rooms[0].per_minute"),
            (r#","mode":"shut""#, "", "rooms[0].mode"),
            (r#","session":"9s""#, "", "rooms[0].session"),
            (r#","claim":"1s""#, "", "rooms[0].claim"),
            (r#","status":404"#, "", "rooms[0].status"),
            (r#","status":201"#, "", "rooms[0].status"),
            (r#","poll":{"max_ms":60000}"#, "", "rooms[0].poll.max_ms"),
            (r#","poll":{"min_ms":40000}"#, "", "rooms[0].poll.min_ms"),
            (
                r#","match":{"path":{"exact":"a"}}"#,
                "",
                "rooms[0].match.path",
            ),
            (
                r#","except":[{"methods":[""]}]"#,
                "",
                "rooms[0].except[0].methods[0]",
            ),
            (
                r#","per_address":{"per":"1ms"}"#,
                "",
                "rooms[0].per_address.per",
            ),
            (r#","page":{"accent":"red;"}"#, "", "rooms[0].page.accent"),
            ("", r#","status_path":"/a/""#, "status_path"),
            ("", r#","user_header":"a b""#, "user_header"),
            ("", r#","trusted_hops":17"#, "trusted_hops"),
            (r#"},{"name":"shop""#, "", "rooms[1].name"),
        ] {
            let error = checked(&with(room, others)).unwrap_err();
            assert_eq!(error.path, path, "{error}");
        }
        let no_rooms = r#"{"redis":{},"keys":[{"secret":{"env":"KEY"}}],"rooms":[]}"#;
        assert_eq!(checked(no_rooms).unwrap_err().path, "rooms");
        let no_key = r#"{"redis":{},"keys":[{"secret":{"env":"NONE"}}],"rooms":[{"name":"a"}]}"#;
        assert_eq!(checked(no_key).unwrap_err().path, "keys[0].secret.env");
    }
}
