//! Weir's filters in Envoy's configuration, with their settings as their engines read them.

use serde::de::DeserializeOwned;
use serde_json::Value;
use weir_base::FieldError;
use weir_engine::config::{Environment, RedisConfig, parse};
use weir_event::engine::config::Config as EventsConfig;
use weir_fitment::engine::config::Config as FitmentConfig;
use weir_limit::engine::config::Config as LimiterConfig;
use weir_link::engine::config::Config as LinksConfig;
use weir_room::engine::config::Config as RoomConfig;
use weir_sale::engine::Config as GateConfig;

use crate::envoy::{Envoy, Manager};
use crate::tree::{at, field, list, name, text, type_of};

/// The ends of types.
const WASM: &str = "filters.http.wasm.v3.Wasm";
const NATIVE: &str = "dynamic_modules.v3.DynamicModuleFilter";

/// What the native module's settings are called in a filter's configuration; the engine does not see them.
const NATIVE_SETTINGS: &str = "native";

/// What stands in for each secret while a configuration is checked: as long as the longest that one may have to be.
const ANY_SECRET: [u8; 64] = [b'x'; 64];

/// Which of Weir's filters one is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Gate,
    Limiter,
    Links,
    Events,
    Fitment,
    Room,
}

impl Kind {
    /// All of them.
    const ALL: [Self; 6] = [
        Self::Gate,
        Self::Limiter,
        Self::Links,
        Self::Events,
        Self::Fitment,
        Self::Room,
    ];

    /// What its module is called, and its root.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Gate => weir_sale::engine::NAME,
            Self::Limiter => weir_limit::engine::NAME,
            Self::Links => weir_link::engine::NAME,
            Self::Events => weir_event::engine::NAME,
            Self::Fitment => weir_fitment::engine::NAME,
            Self::Room => weir_room::engine::NAME,
        }
    }

    /// The kind of a module, a root or a native filter: `ratelimit-headers.wasm`, `seckill-gate`, `weir.seckill_gate`.
    fn of(name: &str) -> Option<Self> {
        let name = name.rsplit('/').next().unwrap_or_default();
        let name = name.strip_suffix(".wasm").unwrap_or(name);
        let name = name.strip_prefix("weir.").unwrap_or(name);
        let name = name.replace('_', "-");
        let name = name.strip_suffix("-headers").unwrap_or(&name);
        Self::ALL.into_iter().find(|kind| kind.name() == name)
    }
}

/// What runs a filter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Host {
    Wasm,
    Native,
}

/// One of Weir's filters.
#[derive(Debug)]
pub(crate) struct Filter<'a> {
    pub(crate) kind: Kind,
    pub(crate) host: Host,
    pub(crate) manager: Manager<'a>,
    /// Its place among the filters of its connection manager.
    pub(crate) at: usize,
    pub(crate) value: &'a Value,
    /// Its configuration as it is written.
    pub(crate) json: Written,
    /// And as the engine reads it, if it does.
    pub(crate) settings: Option<Result<Settings, FieldError>>,
}

/// A configuration as it is written.
#[derive(Debug, PartialEq)]
pub(crate) enum Written {
    /// There is none.
    Missing,
    /// In a form that cannot be read here.
    Unreadable,
    /// JSON, or what should be.
    Text(String),
}

/// What an engine makes of it.
#[derive(Debug)]
pub(crate) enum Settings {
    Gate(Box<GateConfig>),
    Limiter(Box<LimiterConfig>),
    Links(Box<LinksConfig>),
    Events(Box<EventsConfig>),
    Fitment(Box<FitmentConfig>),
    Room(Box<RoomConfig>),
}

impl Settings {
    /// Each way to a Redis: the cluster of its bridge, and how it is asked.
    pub(crate) fn redis(&self) -> Vec<(&str, &RedisConfig)> {
        match self {
            Self::Gate(config) => vec![(&config.redis.cluster, &config.redis)],
            Self::Links(config) => vec![(&config.redis.cluster, &config.redis)],
            Self::Room(config) => vec![(&config.redis.cluster, &config.redis)],
            Self::Limiter(config) => one(config.redis.as_ref()),
            Self::Events(config) => one(config.limits.redis.as_ref()),
            Self::Fitment(config) => {
                let further = config.clusters.values();
                let further = further.map(|cluster| (cluster.as_str(), &config.redis));
                let home = (config.redis.cluster.as_str(), &config.redis);
                std::iter::once(home).chain(further).collect()
            }
        }
    }
}

fn one(redis: Option<&RedisConfig>) -> Vec<(&str, &RedisConfig)> {
    let pair = redis.map(|redis| (redis.cluster.as_str(), redis));
    pair.into_iter().collect()
}

impl<'a> Filter<'a> {
    /// For findings.
    pub(crate) fn place(&self) -> String {
        format!("{}, filter {}", self.manager.place(), name(self.value))
    }

    /// Its settings, if the engine takes them.
    pub(crate) fn accepted(&self) -> Option<&Settings> {
        self.settings.as_ref()?.as_ref().ok()
    }

    /// The gate's settings, if it is one.
    pub(crate) fn gate(&self) -> Option<&GateConfig> {
        match self.accepted()? {
            Settings::Gate(config) => Some(config),
            _ => None,
        }
    }

    /// Each way to a Redis.
    pub(crate) fn redis(&self) -> Vec<(&str, &RedisConfig)> {
        self.accepted().map_or_else(Vec::new, Settings::redis)
    }

    /// The variables of Envoy's environment that its settings name.
    pub(crate) fn variables(&self) -> Vec<String> {
        let mut names = Vec::new();
        if let Written::Text(json) = &self.json
            && let Ok(tree) = serde_json::from_str(json)
        {
            collect_variables(&tree, &mut names);
        }
        names
    }

    /// The native module's settings, of a native filter.
    pub(crate) fn native(&self) -> Option<Value> {
        let Written::Text(json) = &self.json else {
            return None;
        };
        let tree: Value = serde_json::from_str(json).ok()?;
        tree.get(NATIVE_SETTINGS).cloned()
    }
}

/// The name in each `{"env": NAME}`.
pub(crate) fn collect_variables(tree: &Value, names: &mut Vec<String>) {
    if let Some(name) = tree.get("env").and_then(Value::as_str) {
        names.push(name.to_owned());
    }
    let lists = tree.as_array().into_iter().flatten();
    let fields = tree
        .as_object()
        .into_iter()
        .flat_map(serde_json::Map::values);
    lists
        .chain(fields)
        .for_each(|part| collect_variables(part, names));
}

/// Weir's HTTP filters, in the order of listeners and chains.
pub(crate) fn of(envoy: &Envoy) -> Vec<Filter<'_>> {
    envoy.managers().flat_map(of_manager).collect()
}

fn of_manager(manager: Manager<'_>) -> Vec<Filter<'_>> {
    let filters = manager.filters().iter().enumerate();
    filters
        .filter_map(|(at, value)| read(manager, at, value))
        .collect()
}

fn read<'a>(manager: Manager<'a>, place: usize, value: &'a Value) -> Option<Filter<'a>> {
    let host = match type_of(value) {
        name if name.ends_with(WASM) => Host::Wasm,
        name if name.ends_with(NATIVE) => Host::Native,
        _ => return None,
    };
    let kind = kind_of(host, value)?;
    let json = match host {
        Host::Wasm => written(value, "typed_config.config.configuration"),
        Host::Native => written(value, "typed_config.filter_config"),
    };
    let settings = match &json {
        Written::Text(json) => Some(settings(kind, host, json, sees_responses(value))),
        Written::Missing | Written::Unreadable => None,
    };
    Some(Filter {
        kind,
        host,
        manager,
        at: place,
        value,
        json,
        settings,
    })
}

fn kind_of(host: Host, value: &Value) -> Option<Kind> {
    let names: &[&str] = match host {
        Host::Wasm => &[
            "typed_config.config.vm_config.code.local.filename",
            "typed_config.config.vm_config.code.remote.http_uri.uri",
            "typed_config.config.root_id",
            "typed_config.config.name",
            "name",
        ],
        Host::Native => &["typed_config.filter_name"],
    };
    names
        .iter()
        .find_map(|path| text(value, path).and_then(Kind::of))
}

/// Whether the limiter's module is the one that sees responses; natively it always is.
fn sees_responses(value: &Value) -> bool {
    type_of(value).ends_with(NATIVE)
        || ["local.filename", "remote.http_uri.uri"]
            .iter()
            .any(|path| {
                let path = format!("typed_config.config.vm_config.code.{path}");
                text(value, &path).is_some_and(|file| file.ends_with("ratelimit-headers.wasm"))
            })
}

/// The configuration at `path`: a text or a tree, in an `Any`.
pub(crate) fn written(value: &Value, path: &str) -> Written {
    let Some(any) = at(value, path) else {
        return Written::Missing;
    };
    match field(any, "value") {
        Some(Value::String(text)) if text.trim().is_empty() => Written::Missing,
        Some(Value::String(text)) => Written::Text(text.clone()),
        Some(tree @ Value::Object(_)) => Written::Text(tree.to_string()),
        Some(_) => Written::Unreadable,
        None => Written::Missing,
    }
}

fn settings(
    kind: Kind,
    host: Host,
    json: &str,
    sees_responses: bool,
) -> Result<Settings, FieldError> {
    let json = match host {
        Host::Wasm => json.to_owned(),
        Host::Native => without_native(json),
    };
    let any: Environment<'_> = &|_| Some(ANY_SECRET.to_vec());
    match kind {
        Kind::Gate => {
            let config: GateConfig = read_as(&json)?;
            config.clone().checked(any)?;
            Ok(Settings::Gate(Box::new(config)))
        }
        Kind::Limiter => {
            let config: LimiterConfig = read_as(&json)?;
            config.clone().checked(sees_responses, any)?;
            Ok(Settings::Limiter(Box::new(config)))
        }
        Kind::Links => {
            let config: LinksConfig = read_as(&json)?;
            config.clone().checked()?;
            Ok(Settings::Links(Box::new(config)))
        }
        Kind::Events => {
            let config: EventsConfig = read_as(&json)?;
            config.clone().checked(any)?;
            Ok(Settings::Events(Box::new(config)))
        }
        Kind::Fitment => {
            let config: FitmentConfig = read_as(&json)?;
            config.clone().checked()?;
            Ok(Settings::Fitment(Box::new(config)))
        }
        Kind::Room => {
            let config: RoomConfig = read_as(&json)?;
            config.clone().checked(any)?;
            Ok(Settings::Room(Box::new(config)))
        }
    }
}

fn read_as<T: DeserializeOwned>(json: &str) -> Result<T, FieldError> {
    parse(json.as_bytes())
}

fn without_native(json: &str) -> String {
    let Ok(mut tree) = serde_json::from_str::<serde_json::Map<String, Value>>(json) else {
        return json.to_owned();
    };
    tree.remove(NATIVE_SETTINGS);
    Value::Object(tree).to_string()
}

/// The variables that Envoy gives to the VM of a filter, and those whose values stand in the file itself.
pub(crate) fn given_variables(value: &Value) -> (Vec<&str>, Vec<&str>) {
    let path = "typed_config.config.vm_config.environment_variables";
    let passed = list(value, &format!("{path}.host_env_keys")).iter();
    let written = at(value, &format!("{path}.key_values")).and_then(Value::as_object);
    (
        passed.filter_map(Value::as_str).collect(),
        written.map_or_else(Vec::new, |fields| {
            fields.keys().map(String::as_str).collect()
        }),
    )
}
