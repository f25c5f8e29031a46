//! JSON → checked configuration.
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
use weir_base::key::KeyRing;
use weir_engine::config::{Environment, RedisConfig, header_name, within};
use weir_engine::keys::{KeyConfig, ring};
use weir_limit::rules::{HOPS_MAX, MatchConfig, Matching};

use crate::engine::page::{Labels, Page, PageConfig};
use crate::engine::text::Texts;

/// How long a request waits for Redis unless set, in milliseconds.
pub(crate) const DEADLINE_MS: u64 = 200;

/// The most rooms of one filter: each costs a call a second and worker.
const ROOMS_MAX: usize = 64;

/// The most requests that one room looks for to leave alone.
const EXCEPT_MAX: usize = 32;

/// The configuration as it is written.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Config {
    /// How Redis is reached.
    pub redis: RedisConfig,
    /// The keys that passes are signed with: the first signs, all count. All gateways need the same.
    pub keys: Vec<KeyConfig>,
    /// The rooms, at most 64: the first whose `match` is met has the request.
    pub rooms: Vec<RoomConfig>,
    /// The header that names a signed-in user: one that a client cannot forge. With it, one user has one place, on whatever
    /// device. Without it, or on requests without it, a browser is a visitor.
    #[serde(default)]
    pub user_header: Option<String>,
    /// What the paths begin with at which pages ask for their position: `/.weir/room` unless set.
    #[serde(default = "default_status_path")]
    pub status_path: String,
    /// How often the rooms are looked up in Redis, in milliseconds, 100 to 10,000: 1,000 unless set.
    #[serde(default = "default_poll_interval_ms")]
    pub poll_interval_ms: u64,
    /// How many proxies in front of this gateway are trusted to have named the client's address in `X-Forwarded-For`, 1 to 16:
    /// the connection's address counts unless set.
    #[serde(default)]
    pub trusted_hops: Option<usize>,
}

/// One room.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RoomConfig {
    /// 1 to 48 of `a-z 0-9 -`.
    pub name: String,
    /// The requests that need to be inside: all unless set.
    #[serde(default, rename = "match")]
    pub matching: MatchConfig,
    /// Of these, those that do not: none unless set, at most 32.
    #[serde(default)]
    pub except: Vec<MatchConfig>,
    /// What the room does until an operator says otherwise: `open` unless set.
    #[serde(default)]
    pub mode: Mode,
    /// Entries a minute, over all gateways, likewise: as many as come unless set, 1 to 10,000,000.
    #[serde(default)]
    pub per_minute: u64,
    /// Visitors inside at once, over all gateways, likewise: as many as come unless set, 1 to 10,000,000.
    #[serde(default)]
    pub active_max: u64,
    /// Until this time, in milliseconds since the Unix epoch, nobody enters; those who are there then are drawn. No such time
    /// unless set.
    #[serde(default)]
    pub opens_at_ms: u64,
    /// How long a session lives that is not used, 10 s to 1 d: 10 m unless set. It is renewed once a quarter of it is over.
    #[serde(default = "default_session")]
    pub session: Duration,
    /// How long a called place waits to be taken up, 5 s to 1 h: 2 m unless set.
    #[serde(default = "default_claim")]
    pub claim: Duration,
    /// How long a place in the queue counts, 1 m to 30 d: 1 d unless set.
    #[serde(default = "default_pass")]
    pub pass: Duration,
    /// The most who wait: as many as come unless set.
    #[serde(default)]
    pub queue_max: u64,
    /// How many places one address may take; of an IPv6 address the network (/64) counts.
    #[serde(default)]
    pub per_address: AddressConfig,
    /// How often visitors ask for their position.
    #[serde(default)]
    pub poll: PollConfig,
    /// How visitors are handled while Redis does not answer.
    #[serde(default)]
    pub without_redis: WithoutRedisConfig,
    /// The status of a page or of JSON that tells a visitor to wait: 503 unless set, or 200, 202 or 429.
    #[serde(default = "default_status")]
    pub status: u16,
    /// What pages look like.
    #[serde(default)]
    pub page: PageConfig,
    /// What visitors are told.
    #[serde(default)]
    pub texts: Texts,
}

/// How many places one address may take.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct AddressConfig {
    /// So many in each window: 100 unless set; 0 for as many as it likes.
    pub places: u64,
    /// How long a window is, 1 s to 7 d: 1 h unless set.
    pub per: Duration,
}

/// How often visitors ask.
#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct PollConfig {
    /// Not more often than this, in milliseconds, 500 to 60,000: 5,000 unless set.
    pub min_ms: u64,
    /// And not less often, 500 to 300,000 and at most a third of `claim`: 30,000 unless set, or a third of `claim`.
    pub max_ms: u64,
}

/// How visitors are handled while Redis does not answer.
#[derive(Clone, Copy, Debug, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct WithoutRedisConfig {
    /// So many enter a minute through each gateway: none unless set.
    pub per_minute: u64,
}

/// The configuration, checked.
#[derive(Clone, Debug)]
pub struct CheckedConfig {
    /// How Redis is reached.
    pub redis: RedisConfig,
    /// The keys.
    pub keys: KeyRing,
    /// The rooms.
    pub(crate) rooms: Vec<CheckedRoom>,
    /// In lower case.
    pub user_header: Option<String>,
    /// Without a slash at its end.
    pub status_path: String,
    /// As written.
    pub poll_interval_ms: u64,
    /// As written.
    pub trusted_hops: Option<usize>,
}

/// One room, checked.
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
    pub(crate) texts: Texts,
}

impl Config {
    /// Checks what types alone do not say.
    ///
    /// # Errors
    /// With the path of the field that is wrong.
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
            if rooms.iter().any(|known| known.name == room.name) {
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
        let problem = "must be a path such as /.weir/room, without a slash at its end";
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
        let labels = Labels {
            position: &self.texts.position_label,
            wait: &self.texts.wait_label,
            footer: &self.texts.footer,
        };
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
            page: Page::new(&self.page, &name, status_path, &field("page"), &labels)?,
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
            // A visitor who comes back has a session of some age besides.
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

/// 0 for what is not set.
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
    fn a_name_is_all_that_a_room_needs() {
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
    fn every_bad_field_is_refused_by_its_path() {
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
