//! The object `native` of a filter's configuration: the settings that only native modules need.

use std::path::PathBuf;

use serde::Deserialize;
use weir_base::FieldError;
use weir_engine::config::{parse, within};

/// The key of the object in a filter's configuration.
const KEY: &str = "native";

/// The most engines per filter.
const ENGINES_MAX: u64 = 256;

/// The object `native`, as written in the configuration.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Settings {
    /// The number of engines of the filter: 1 unless set. Each has a lock, a thread and Redis connections. Workers are
    /// distributed over the engines. All workers of one engine share its memory and its batches.
    #[serde(default = "one")]
    pub engines: u64,
    /// The name under which `weir.fast_path` finds the filter. Without a name, the fast path does not use it.
    #[serde(default)]
    pub name: Option<String>,
    /// The settings of each Redis that the rest of the configuration names.
    #[serde(default)]
    pub redis: Vec<RedisSettings>,
}

fn one() -> u64 {
    1
}

/// The settings of one Redis.
#[derive(Clone, Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RedisSettings {
    /// The name of this Redis in the rest of the configuration, as in `redis.cluster`.
    pub name: String,
    /// The kind of Redis: `single` unless set.
    #[serde(default)]
    pub kind: Kind,
    /// `host:port`. For a cluster, some nodes that are up when Envoy starts; they report the other nodes. For `replicated`,
    /// all nodes.
    pub addresses: Vec<String>,
    /// TLS settings. Without them, connections use plain TCP.
    #[serde(default)]
    pub tls: Option<Tls>,
    /// The user for logging in: Redis' default user unless set.
    #[serde(default)]
    pub username: Option<String>,
    /// The password. Without it, connections do not log in.
    #[serde(default)]
    pub password: Option<Secret>,
    /// The connect timeout in milliseconds, 1 to 60,000: 200 unless set. Set it below the filter's `deadline_ms`, so
    /// that the engine detects a dead Redis within the deadline.
    #[serde(default = "default_connect_timeout_ms")]
    pub connect_timeout_ms: u64,
    /// The socket of a listener with `weir.worker_redis` and `tcp_proxy`, on which the workers themselves call this Redis:
    /// `@name` or a path. Without it, the module's thread sends all calls. Not for the kind `cluster`.
    #[serde(default)]
    pub worker_socket: Option<String>,
}

fn default_connect_timeout_ms() -> u64 {
    200
}

/// The kind of a Redis.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// One server, with or without replicas.
    #[default]
    Single,
    /// A primary with at least two replicas: connections use the primary, also after a failover.
    Replicated,
    /// Redis Cluster.
    Cluster,
}

/// TLS settings.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Tls {
    /// A PEM file of trusted authorities: those of the system unless set.
    #[serde(default)]
    pub ca_file: Option<PathBuf>,
    /// The name in the server's certificate: the host of its address unless set.
    #[serde(default)]
    pub server_name: Option<String>,
}

/// The source of a secret. The configuration itself contains no secrets, because Envoy copies, shows and logs it.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Secret {
    /// In this environment variable of Envoy.
    Env(String),
    /// In this file, without trailing white space.
    File(PathBuf),
}

impl Secret {
    /// Reads the secret.
    ///
    /// # Errors
    /// The variable or file is missing or empty.
    pub fn read(&self, path: &str) -> Result<Vec<u8>, FieldError> {
        let (field, place, found) = match self {
            Self::Env(name) => {
                let place = format!("environment variable {name}");
                ("env", place, std::env::var_os(name))
            }
            Self::File(file) => {
                let text = std::fs::read_to_string(file).ok();
                let text = text.map(|text| text.trim_end().to_owned().into());
                ("file", format!("file {}", file.display()), text)
            }
        };
        let found = found.map(std::ffi::OsString::into_encoded_bytes);
        found.filter(|secret| !secret.is_empty()).ok_or_else(|| {
            let problem = format!("the {place} is missing, unreadable or empty");
            FieldError::new(format!("{path}.{field}"), problem)
        })
    }
}

/// Takes the object `native` out of a filter's configuration. Returns it and the rest, which the engine parses.
///
/// # Errors
/// The configuration or `native` is not a JSON object, or a setting is invalid.
pub fn split(json: &[u8]) -> Result<(Settings, Vec<u8>), FieldError> {
    let json: &[u8] = if json.is_empty() { b"{}" } else { json };
    let mut rest = parse::<serde_json::Map<String, serde_json::Value>>(json)?;
    let Some(native) = rest.remove(KEY) else {
        return Ok((Settings::default().with_one_engine(), json.to_vec()));
    };
    let text = |error: serde_json::Error| FieldError::new("", error);
    let native = serde_json::to_vec(&native).map_err(text)?;
    let settings = parse::<Settings>(&native).map_err(|error| {
        let path = match error.path.as_str() {
            "" | "." => KEY.to_owned(),
            path => format!("{KEY}.{path}"),
        };
        FieldError::new(path, error.problem)
    })?;
    settings.check()?;
    Ok((settings, serde_json::to_vec(&rest).map_err(text)?))
}

impl Settings {
    fn with_one_engine(self) -> Self {
        Self { engines: 1, ..self }
    }

    fn check(&self) -> Result<(), FieldError> {
        within("native.engines", self.engines, 1, ENGINES_MAX)?;
        let mut redis = self.redis.iter().enumerate();
        redis.try_for_each(|(index, redis)| redis.check(&format!("native.redis[{index}]")))
    }

    /// The settings of each Redis that the engine uses, in the order of `names`, with their indices here.
    ///
    /// # Errors
    /// A name has no settings, or settings have an unused name.
    pub fn of_each(&self, names: &[String]) -> Result<Vec<(usize, &RedisSettings)>, FieldError> {
        let mut indexed = self.redis.iter().enumerate();
        if let Some((index, unused)) = indexed.find(|(_, redis)| !names.contains(&redis.name)) {
            let problem = format!("no filter uses a Redis named \"{}\"", unused.name);
            return Err(FieldError::new(
                format!("native.redis[{index}].name"),
                problem,
            ));
        }
        let of = |name: &String| {
            let mut all = self.redis.iter().enumerate();
            let found = all.find(|(_, redis)| redis.name == *name);
            found.ok_or_else(|| {
                let problem = format!("lacks the address of the Redis named \"{name}\"");
                FieldError::new("native.redis", problem)
            })
        };
        names.iter().map(of).collect()
    }
}

impl RedisSettings {
    fn check(&self, path: &str) -> Result<(), FieldError> {
        let refuse =
            |field: &str, problem: &str| Err(FieldError::new(format!("{path}.{field}"), problem));
        match (self.kind, self.addresses.len()) {
            (_, 0) => return refuse("addresses", "must have at least one"),
            (Kind::Single, 2..) => {
                return refuse(
                    "addresses",
                    "must have exactly one, unless the kind is replicated or cluster",
                );
            }
            (Kind::Replicated, ..3) => {
                return refuse("addresses", "must have all nodes, at least three");
            }
            _ => {}
        }
        for (index, address) in self.addresses.iter().enumerate() {
            if host_and_port(address).is_none() {
                let field = format!("addresses[{index}]");
                return refuse(&field, "must be host:port");
            }
        }
        if self.kind == Kind::Cluster && self.worker_socket.is_some() {
            return refuse("worker_socket", "cannot be used with the kind cluster");
        }
        if self.username.is_some() && self.password.is_none() {
            return refuse("username", "needs a password");
        }
        let field = format!("{path}.connect_timeout_ms");
        within(&field, self.connect_timeout_ms, 1, 60_000)
    }
}

/// Splits `host:port`. An IPv6 address may be in brackets.
pub fn host_and_port(address: &str) -> Option<(&str, u16)> {
    let (host, port) = address.rsplit_once(':')?;
    let inner = host
        .strip_prefix('[')
        .and_then(|host| host.strip_suffix(']'));
    let host = inner.unwrap_or(host);
    let port = port.parse().ok().filter(|&port| port != 0)?;
    (!host.is_empty()).then_some((host, port))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(json: &str) -> String {
        split(json.as_bytes()).unwrap_err().to_string()
    }

    #[test]
    fn engine_settings_are_split_from_the_filter_configuration() {
        let json = br#"{"a":[1],"native":{"redis":[{"name":"r","addresses":["[::1]:7"]}]}}"#;
        let (settings, rest) = split(json).unwrap();
        assert_eq!(rest, br#"{"a":[1]}"#);
        assert_eq!((settings.engines, settings.redis.len()), (1, 1));
        let (settings, rest) = split(br#"{"a":[1]}"#).unwrap();
        assert_eq!(
            (settings.engines, rest.as_slice()),
            (1, &br#"{"a":[1]}"#[..])
        );
        assert_eq!(split(b"").unwrap().1, b"{}");
    }

    #[test]
    fn refusal_names_the_field() {
        for (native, path) in [
            (r#"{"engines":0}"#, "native.engines"),
            (r#"{"color":0}"#, "native.color"),
            (
                r#"{"redis":[{"name":"r","addresses":[]}]}"#,
                "native.redis[0].addresses",
            ),
            (
                r#"{"redis":[{"name":"r","addresses":["a:1","b:1"]}]}"#,
                "native.redis[0].addresses",
            ),
            (
                r#"{"redis":[{"name":"r","addresses":["a"]}]}"#,
                "native.redis[0].addresses[0]",
            ),
            (
                r#"{"redis":[{"name":"r","addresses":["a:1"],"username":"u"}]}"#,
                "native.redis[0].username",
            ),
            (
                r#"{"redis":[{"name":"r","addresses":["a:1"],"connect_timeout_ms":0}]}"#,
                "native.redis[0].connect_timeout_ms",
            ),
            (
                r#"{"redis":[{"name":"r","kind":"replicated","addresses":["a:1","b:1"]}]}"#,
                "native.redis[0].addresses",
            ),
            (r#"{"redis":[{"addresses":["a:1"]}]}"#, "native.redis[0]"),
            ("1", "native"),
        ] {
            let error = refusal(&format!(r#"{{"native":{native}}}"#));
            assert!(error.starts_with(&format!("{path}: ")), "{native}: {error}");
        }
        assert!(refusal("[]").contains("expected a map"));
    }

    #[test]
    fn redis_settings_must_match_the_requested_names_exactly() {
        let json = br#"{"native":{"redis":[{"name":"a","addresses":["h:1"]},{"name":"b","addresses":["h:2"]}]}}"#;
        let (settings, _) = split(json).unwrap();
        let of = |names: &[&str]| {
            let names: Vec<String> = names.iter().map(ToString::to_string).collect();
            let found = settings.of_each(&names).map_err(|error| error.path)?;
            Ok::<_, String>(found.iter().map(|(index, _)| *index).collect::<Vec<_>>())
        };
        assert_eq!(of(&["b", "a"]), Ok(vec![1, 0]));
        assert_eq!(of(&["a", "b", "c"]), Err("native.redis".into()));
        assert_eq!(of(&["a"]), Err("native.redis[1].name".into()));
    }

    #[test]
    fn secret_is_read_from_a_variable_or_a_file() {
        let missing = Secret::Env("WEIR_NO_SUCH_VARIABLE".into())
            .read("p")
            .unwrap_err();
        assert_eq!(missing.path, "p.env");
        let missing = Secret::File("/nonexistent/secret".into())
            .read("p")
            .unwrap_err();
        assert_eq!(missing.path, "p.file");
        let file = std::env::temp_dir().join(format!("weir-native-{}", std::process::id()));
        std::fs::write(&file, "s3cret\n").unwrap();
        assert_eq!(Secret::File(file.clone()).read("p").unwrap(), b"s3cret");
        std::fs::remove_file(file).unwrap();
    }

    #[test]
    fn missing_secret_is_refused_with_its_place() {
        let file = Secret::File("/no/such/file".into());
        let problem = file.read("redis.password").unwrap_err().to_string();
        assert!(problem.contains("the file /no/such/file"), "{problem}");
        let variable = Secret::Env("WEIR_NO_SUCH_VARIABLE".into());
        let problem = variable.read("redis.password").unwrap_err().to_string();
        assert!(
            problem.contains("the environment variable WEIR_NO"),
            "{problem}"
        );
    }
}
