//! Weir's filters in Envoy's configuration, with their settings as their engines parse them.

use std::any::Any;

use serde_json::Value;
use weir_base::FieldError;
use weir_engine::config::{Environment, RedisConfig};
use weir_registry::Filter as Kind;
use weir_registry::engines::{self, Settings};
use weir_sale::engine::Config as GateConfig;

use crate::envoy::{Envoy, Manager};
use crate::tree::{at, field, list, name, text, type_of};

/// The suffixes of types.
const WASM: &str = "filters.http.wasm.v3.Wasm";
const NATIVE: &str = "dynamic_modules.v3.DynamicModuleFilter";

/// The member of a filter's configuration with the native module's settings; the engine does not get it.
const NATIVE_SETTINGS: &str = "native";

/// A placeholder for each secret while a configuration is checked: as long as the longest minimum.
const ANY_SECRET: [u8; 64] = [b'x'; 64];

/// The filter of a module, a root or a native filter: `ratelimit-headers.wasm`, `seckill-gate`, `weir.seckill_gate`.
fn kind_of_module(name: &str) -> Option<&'static Kind> {
    let name = name.rsplit('/').next().unwrap_or_default();
    let name = name.strip_suffix(".wasm").unwrap_or(name);
    let name = name.strip_prefix("weir.").unwrap_or(name);
    let name = name.replace('_', "-");
    Kind::of_module(&name)
}

/// The host of a filter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Host {
    Wasm,
    Native,
}

/// One of Weir's filters.
pub(crate) struct Filter<'a> {
    /// The kind of filter.
    pub(crate) kind: &'static Kind,
    pub(crate) host: Host,
    pub(crate) manager: Manager<'a>,
    /// Its index among the filters of its connection manager.
    pub(crate) at: usize,
    pub(crate) value: &'a Value,
    /// Its configuration as text.
    pub(crate) json: ConfigSource,
    /// Its parsed settings; `None` if there is no text to parse.
    pub(crate) settings: Option<Result<Box<dyn Settings>, FieldError>>,
}

/// The text of a configuration.
#[derive(Debug, PartialEq)]
pub(crate) enum ConfigSource {
    /// No configuration.
    Missing,
    /// A format that cannot be read here.
    Unreadable,
    /// JSON, valid or not.
    Text(String),
}

impl<'a> Filter<'a> {
    /// The place in findings.
    pub(crate) fn place(&self) -> String {
        format!("{}, filter {}", self.manager.place(), name(self.value))
    }

    /// Its settings, if they are valid and of this type.
    pub(crate) fn settings<C: 'static>(&self) -> Option<&C> {
        let settings: &dyn Any = self.accepted()?;
        settings.downcast_ref()
    }

    /// Its settings, if they are valid.
    pub(crate) fn accepted(&self) -> Option<&dyn Settings> {
        self.settings.as_ref()?.as_deref().ok()
    }

    /// The settings of a gate.
    pub(crate) fn gate(&self) -> Option<&GateConfig> {
        self.settings()
    }

    /// Each Redis that it uses: the cluster of its bridge, and the connection settings.
    pub(crate) fn redis(&self) -> Vec<(&str, &RedisConfig)> {
        self.accepted().map_or_else(Vec::new, Settings::redis)
    }

    /// The environment variables that its settings name.
    pub(crate) fn variables(&self) -> Vec<String> {
        let mut names = Vec::new();
        if let ConfigSource::Text(json) = &self.json
            && let Ok(tree) = serde_json::from_str(json)
        {
            collect_variables(&tree, &mut names);
        }
        names
    }

    /// The native module's settings of a native filter.
    pub(crate) fn native(&self) -> Option<Value> {
        let ConfigSource::Text(json) = &self.json else {
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
pub(crate) fn find_all(envoy: &Envoy) -> Vec<Filter<'_>> {
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
        ConfigSource::Text(json) => Some(settings(kind, host, json, sees_responses(kind, value))),
        ConfigSource::Missing | ConfigSource::Unreadable => None,
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

fn kind_of(host: Host, value: &Value) -> Option<&'static Kind> {
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
        .find_map(|path| text(value, path).and_then(kind_of_module))
}

/// Whether the filter's module receives responses; native filters always do.
fn sees_responses(kind: &Kind, value: &Value) -> bool {
    let sees = |file: &str| {
        let module = kind.responses_module.map(|module| format!("{module}.wasm"));
        module.is_some_and(|module| file.ends_with(&module))
    };
    type_of(value).ends_with(NATIVE)
        || ["local.filename", "remote.http_uri.uri"]
            .iter()
            .any(|path| {
                let path = format!("typed_config.config.vm_config.code.{path}");
                text(value, &path).is_some_and(sees)
            })
}

/// The configuration at `path`: text or a tree, in an `Any`.
pub(crate) fn written(value: &Value, path: &str) -> ConfigSource {
    let Some(any) = at(value, path) else {
        return ConfigSource::Missing;
    };
    match field(any, "value") {
        Some(Value::String(text)) if text.trim().is_empty() => ConfigSource::Missing,
        Some(Value::String(text)) => ConfigSource::Text(text.clone()),
        Some(tree @ Value::Object(_)) => ConfigSource::Text(tree.to_string()),
        Some(_) => ConfigSource::Unreadable,
        None => ConfigSource::Missing,
    }
}

fn settings(
    kind: &Kind,
    host: Host,
    json: &str,
    sees_responses: bool,
) -> Result<Box<dyn Settings>, FieldError> {
    let json = match host {
        Host::Wasm => json.to_owned(),
        Host::Native => without_native(json),
    };
    let any: Environment<'_> = &|_| Some(ANY_SECRET.to_vec());
    engines::read(kind, json.as_bytes(), sees_responses, any)
}

fn without_native(json: &str) -> String {
    let Ok(mut tree) = serde_json::from_str::<serde_json::Map<String, Value>>(json) else {
        return json.to_owned();
    };
    tree.remove(NATIVE_SETTINGS);
    Value::Object(tree).to_string()
}

/// The variables that Envoy passes to the VM of a filter, and those with values in the file itself.
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
