//! Reads JSON configurations and reports errors with the path of the field.

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

use serde::Deserialize;
use serde::de::DeserializeOwned;
use weir_base::FieldError;
use weir_base::breaker;
use weir_scripts::keys::{DEFAULT_PREFIX, is_prefix};

use crate::pump;

/// Reads a variable of the host's environment, for secrets.
pub type Environment<'a> = &'a dyn Fn(&str) -> Option<Vec<u8>>;

/// Where the filter reads a secret. The configuration itself never contains secrets, because it is copied, shown
/// and logged.
#[derive(Clone, Debug, PartialEq, Eq, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct SecretSource {
    /// Environment variable with the secret. In Envoy, also list it in
    /// `vm_config.environment_variables.host_env_keys`.
    pub env: String,
}

impl SecretSource {
    /// Reads the secret of the field at `path`.
    ///
    /// # Errors
    /// When the variable is missing or empty.
    pub fn read(&self, path: &str, environment: Environment<'_>) -> Result<Vec<u8>, FieldError> {
        let name = &self.env;
        environment(name).filter(|value| !value.is_empty()).ok_or_else(|| {
            let problem = format!(
                "the environment variable {name} is missing: set it, and in Envoy list it in vm_config.environment_variables.host_env_keys"
            );
            FieldError::new(format!("{path}.env"), problem)
        })
    }
}

/// Parses a configuration.
///
/// # Errors
/// When it is not JSON, or a field is unknown, missing or of a wrong type. The error contains the path.
pub fn parse<T: DeserializeOwned>(json: &[u8]) -> Result<T, FieldError> {
    parse_json(json).map_err(|error| match is_protobuf_struct(json) {
        true => FieldError::new(
            "configuration",
            "must be a google.protobuf.StringValue with JSON in its value, is a google.protobuf.Struct",
        ),
        false => error,
    })
}

/// Whether these bytes, which are not valid JSON, are a `google.protobuf.Struct` from Envoy: field 1 is an entry of the
/// map, whose field 1 is a name.
fn is_protobuf_struct(bytes: &[u8]) -> bool {
    const FIELD_1: u8 = 0x0a;
    // The tag of the entry's value. JSON text never contains this byte.
    const FIELD_2: u8 = 0x12;
    const MORE: u8 = 0x80;
    let Some(length) = bytes.strip_prefix(&[FIELD_1]) else {
        return false;
    };
    let mut entry = length.iter().skip_while(|byte| **byte & MORE != 0);
    entry.nth(1) == Some(&FIELD_1) && bytes.contains(&FIELD_2)
}

fn parse_json<T: DeserializeOwned>(json: &[u8]) -> Result<T, FieldError> {
    let mut reader = serde_json::Deserializer::from_slice(json);
    let value = serde_path_to_error::deserialize(&mut reader)
        .map_err(|error| FieldError::new(format!("{}", error.path()), error.into_inner()))?;
    reader.end().map_err(|error| FieldError::new("", error))?;
    Ok(value)
}

/// Checks that a number is within its bounds.
///
/// # Errors
/// When it is not.
pub fn within(path: &str, value: u64, min: u64, max: u64) -> Result<(), FieldError> {
    if (min..=max).contains(&value) {
        return Ok(());
    }
    let problem = format!("must be {min} to {max}, is {value}");
    Err(FieldError::new(path, problem))
}

/// A header name in lower case.
///
/// # Errors
/// When it is not a token (RFC 9110, section 5.6.2).
pub fn header_name(path: &str, name: &str) -> Result<String, FieldError> {
    let is_token = |b: u8| b.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&b);
    if name.is_empty() || !name.bytes().all(is_token) {
        return Err(FieldError::new(path, "must be a header name"));
    }
    Ok(name.to_ascii_lowercase())
}

/// Checks a content type.
///
/// # Errors
/// When it is not valid header text.
pub fn content_type(path: &str, value: &str) -> Result<(), FieldError> {
    let is_text = |b: u8| b == b' ' || b.is_ascii_graphic();
    if value.is_empty() || !value.bytes().all(is_text) {
        let problem = "must be a content type, such as text/html";
        return Err(FieldError::new(path, problem));
    }
    Ok(())
}

/// Checks the bounds of a circuit breaker's settings.
///
/// # Errors
/// When a setting is out of its bounds.
pub fn check_breaker(path: &str, settings: &breaker::Settings) -> Result<(), FieldError> {
    let field = |name: &str, value: u64, max| within(&format!("{path}.{name}"), value, 1, max);
    field("window_ms", settings.window_ms, BREAKER_MS_MAX)?;
    field(
        "min_requests",
        settings.min_requests.into(),
        BREAKER_COUNT_MAX,
    )?;
    field("failure_percent", settings.failure_percent.into(), 100)?;
    field("open_ms", settings.open_ms, BREAKER_MS_MAX)?;
    field("probes", settings.probes.into(), BREAKER_COUNT_MAX)
}

/// The maximum window and pause of a breaker: an hour.
const BREAKER_MS_MAX: u64 = 60 * 60 * 1_000;

/// The maximum counts of a breaker. Larger ones, such as typing errors, would disable it.
const BREAKER_COUNT_MAX: u64 = 1_000_000;

/// Connection to Redis.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RedisConfig {
    /// Envoy cluster of the bridge's internal listener. Default: `weir_redis`.
    #[serde(default = "default_cluster")]
    pub cluster: String,
    /// Prefix of all keys; must match the origin. Default: `weir`.
    #[serde(default = "default_key_prefix")]
    pub key_prefix: String,
    /// Default: `single`.
    #[serde(default)]
    pub topology: Topology,
    /// Timeout of a request to Redis, 1 to 60,000. Default: set by the filter. A timer enforces it, up to 25 % (at
    /// least 10 ms) late.
    #[serde(default)]
    pub deadline_ms: Option<u64>,
    /// Maximum concurrent batches per worker, 1 to 64. Default: 8.
    #[serde(default = "default_batches_max")]
    pub batches_max: usize,
    /// Maximum waiting requests per worker, 1 to 1,000,000; further ones fail at once. Default: 10,000.
    #[serde(default = "default_waiting_max")]
    pub waiting_max: usize,
}

/// Topology of Redis.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Topology {
    /// One server, with or without replicas: a script call may use any keys.
    #[default]
    Single,
    /// Redis Cluster: a script call uses keys of one slot.
    Cluster,
}

impl RedisConfig {
    /// Checks the fields of the object at `path`.
    ///
    /// # Errors
    /// When a field is out of its bounds.
    pub fn check(&self, path: &str) -> Result<(), FieldError> {
        let field = |name: &str| format!("{path}.{name}");
        if self.cluster.is_empty() {
            let problem = "must name an Envoy cluster";
            return Err(FieldError::new(field("cluster"), problem));
        }
        if !is_prefix(&self.key_prefix) {
            let problem = "must be 1 to 64 of a-z A-Z 0-9 - _ . :";
            return Err(FieldError::new(field("key_prefix"), problem));
        }
        if let Some(deadline_ms) = self.deadline_ms {
            within(&field("deadline_ms"), deadline_ms, 1, 60_000)?;
        }
        within(&field("batches_max"), self.batches_max as u64, 1, 64)?;
        within(&field("waiting_max"), self.waiting_max as u64, 1, 1_000_000)
    }

    /// The pump's limits; `deadline_ms` is the default deadline.
    pub fn pump_settings(&self, deadline_ms: u64) -> pump::Settings {
        pump::Settings {
            deadline_ms: self.deadline_ms.unwrap_or(deadline_ms),
            batches_max: self.batches_max,
            waiting_max: self.waiting_max,
        }
    }
}

fn default_cluster() -> String {
    "weir_redis".into()
}

fn default_key_prefix() -> String {
    DEFAULT_PREFIX.into()
}

fn default_batches_max() -> usize {
    8
}

fn default_waiting_max() -> usize {
    10_000
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::ToString;

    #[derive(Debug, Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Outer {
        #[allow(dead_code)] // only its reading is looked at
        inner: Vec<Inner>,
    }

    #[derive(Debug, Deserialize)]
    #[serde(deny_unknown_fields)]
    struct Inner {
        #[allow(dead_code)] // only its reading is looked at
        size: u32,
    }

    #[test]
    fn config_error_names_the_path_of_the_field() {
        let refused = |json: &str| parse::<Outer>(json.as_bytes()).unwrap_err();
        let wrong_type = refused(r#"{"inner":[{"size":1},{"size":"2"}]}"#);
        assert_eq!(wrong_type.path, "inner[1].size");
        assert!(wrong_type.problem.contains("expected u32"), "{wrong_type}");
        let unknown = refused(r#"{"inner":[{"size":1,"color":2}]}"#);
        assert_eq!(unknown.path, "inner[0].color");
        assert!(
            unknown.problem.contains("unknown field `color`"),
            "{unknown}"
        );
        let missing = refused(r#"{"inner":[{}]}"#);
        assert_eq!(missing.path, "inner[0]");
        assert!(
            missing.problem.contains("missing field `size`"),
            "{missing}"
        );
        assert!(refused("{\"inner\":[]} x").to_string().contains("trailing"));
        assert!(refused("nonsense").to_string().starts_with("expected"));
    }

    #[test]
    fn protobuf_struct_is_refused_by_its_name() {
        // `{"inner": null}`, and a struct longer than 127 bytes.
        let short = b"\n\x0b\n\x05inner\x12\x02\x08\x00".to_vec();
        let long = [
            b"\n\x80\x02\n\x05inner\x12\xf7\x01".as_slice(),
            &[b'x'; 247],
        ]
        .concat();
        for bytes in [short, long] {
            let refused = parse::<Outer>(&bytes).unwrap_err();
            assert_eq!(refused.path, "configuration");
            assert!(refused.problem.contains("StringValue"), "{refused}");
        }
        for json in ["\n{\"inner\":[]}", "\n\n\n{\"inner\":[]}"] {
            assert!(parse::<Outer>(json.as_bytes()).is_ok());
        }
        let other = parse::<Outer>(b"\nnonsense").unwrap_err();
        assert!(other.problem.starts_with("expected"), "{other}");
    }

    #[test]
    fn bounds_are_inclusive_and_error_shows_both() {
        for (value, is_good) in [(1, false), (2, true), (5, true), (6, false)] {
            assert_eq!(within("a", value, 2, 5).is_ok(), is_good, "{value}");
        }
        let error = within("a.b", 6, 2, 5).unwrap_err();
        assert_eq!(error, FieldError::new("a.b", "must be 2 to 5, is 6"));
    }

    #[test]
    fn header_names_are_lowercase_tokens_and_content_types_are_text() {
        assert_eq!(header_name("h", "X-User_1").as_deref(), Ok("x-user_1"));
        for bad in ["", "a b", "a:", "ü", "a\n"] {
            assert_eq!(header_name("h", bad).unwrap_err().path, "h", "{bad}");
        }
        assert_eq!(content_type("t", "text/html; charset=utf-8"), Ok(()));
        for bad in ["", "a\r\nb: c", "ü"] {
            assert_eq!(content_type("t", bad).unwrap_err().path, "t", "{bad}");
        }
    }

    #[test]
    fn every_breaker_setting_is_bounded() {
        let check = |change: &dyn Fn(&mut breaker::Settings)| {
            let mut settings = breaker::Settings::default();
            change(&mut settings);
            check_breaker("b", &settings).map_err(|error| error.path)
        };
        assert_eq!(check(&|_| {}), Ok(()));
        type Set = fn(&mut breaker::Settings, u64);
        let fields: [(&str, u64, Set); 5] = [
            ("window_ms", 3_600_000, |s, n| s.window_ms = n),
            ("min_requests", 1_000_000, |s, n| s.min_requests = n as u32),
            ("failure_percent", 100, |s, n| s.failure_percent = n as u32),
            ("open_ms", 3_600_000, |s, n| s.open_ms = n),
            ("probes", 1_000_000, |s, n| s.probes = n as u32),
        ];
        for (name, max, set) in fields {
            for good in [1, max] {
                assert_eq!(check(&|settings| set(settings, good)), Ok(()), "{name}");
            }
            for bad in [0, max + 1] {
                let refused = check(&|settings| set(settings, bad));
                assert_eq!(refused, Err(format!("b.{name}")), "{bad}");
            }
        }
    }

    #[test]
    fn redis_settings_have_defaults_and_bounds() {
        let read = |json: &str| parse::<RedisConfig>(json.as_bytes()).unwrap();
        let config = read("{}");
        assert_eq!(config.check("redis"), Ok(()));
        assert_eq!(
            (&*config.cluster, &*config.key_prefix),
            ("weir_redis", "weir")
        );
        assert_eq!(config.topology, Topology::Single);
        let settings = |deadline_ms| pump::Settings {
            deadline_ms,
            batches_max: 8,
            waiting_max: 10_000,
        };
        assert_eq!(config.pump_settings(250), settings(250));
        let config = read(r#"{"deadline_ms":7}"#);
        assert_eq!(config.pump_settings(250), settings(7));
        for (name, max) in [
            ("deadline_ms", 60_000),
            ("batches_max", 64),
            ("waiting_max", 1_000_000),
        ] {
            let check = |value: u64| read(&format!(r#"{{"{name}":{value}}}"#)).check("redis");
            assert_eq!((check(1), check(max)), (Ok(()), Ok(())), "{name}");
            for bad in [0, max + 1] {
                assert_eq!(check(bad).unwrap_err().path, format!("redis.{name}"));
            }
        }
        for (json, path) in [
            (r#"{"cluster":""}"#, "redis.cluster"),
            (r#"{"key_prefix":"a{b"}"#, "redis.key_prefix"),
        ] {
            assert_eq!(read(json).check("redis").unwrap_err().path, path);
        }
    }

    #[test]
    fn secret_is_read_from_its_variable_and_empty_one_is_refused() {
        let source = SecretSource { env: "S".into() };
        let read = |value: &[u8]| source.read("k", &|_| Some(value.into()));
        assert_eq!(read(b"hush").as_deref(), Ok(&b"hush"[..]));
        assert_eq!(read(b"").unwrap_err().path, "k.env");
    }

    #[test]
    fn missing_secret_error_names_its_source() {
        let source = SecretSource {
            env: "WEIR_NO_SUCH_VARIABLE".into(),
        };
        let error = source.read("claim.secret", &|_| None).unwrap_err();
        assert_eq!(error.path, "claim.secret.env");
        assert!(
            error.to_string().contains("WEIR_NO_SUCH_VARIABLE"),
            "{error}"
        );
    }
}
