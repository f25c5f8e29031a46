//! The shipped files have no findings, and each single mistake has exactly one.

mod cookbook;
mod gateway;
mod origin;
mod redis;
mod shipped;
mod sql;

use std::collections::BTreeMap;
use std::path::Path;

use serde::Deserialize;
use serde_json::{Value, json};
use weir_base::key::SigningKey;

use crate::facts::{GatewayEnvironment, NamedKey, OriginFacts, RedisFacts};
use crate::{Diagnostic, Envoy, Subject, examine};

const SECRET: &str = "0123456789abcdef0123456789abcdef";

/// The documents of a file in `envoy/`.
fn documents(file: &str) -> Vec<Value> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../envoy")
        .join(file);
    let text = std::fs::read_to_string(path).unwrap();
    let documents = yaml_serde::Deserializer::from_str(&text);
    documents
        .map(|document| Value::deserialize(document).unwrap())
        .collect()
}

/// A complete file.
fn shipped(file: &str) -> Value {
    let [tree] = <[Value; 1]>::try_from(documents(file)).unwrap();
    tree
}

/// An origin with all features, configured as the shipped files expect.
fn origin() -> OriginFacts {
    OriginFacts {
        port: 8080,
        admin_port: 8081,
        public_limit_ms: 4_500,
        key_prefix: "weir".into(),
        redis_addresses: vec!["localhost:6379".into()],
        has_redis_password: false,
        claim_keys: Some(vec![key("k1", SECRET), key("k0", &SECRET.to_uppercase())]),
        has_links: true,
        has_events: true,
        has_history: true,
        has_fitment: true,
        has_payments: true,
    }
}

fn key(id: &str, secret: &str) -> NamedKey {
    let key = SigningKey::new(id, secret.as_bytes()).unwrap();
    NamedKey {
        id: id.into(),
        fingerprint: key.fingerprint(),
    }
}

/// The variables of the shipped files; no file names all of them.
const VARIABLES: [&str; 5] = [
    "WEIR_CLAIM_SECRET",
    "WEIR_TOKEN_SECRET",
    "WEIR_REDIS_PASSWORD",
    "WEIR_EVENTS_KEY_SHOP",
    "WEIR_ROOM_SECRET",
];

fn environment() -> GatewayEnvironment {
    let variables: BTreeMap<_, _> = VARIABLES
        .into_iter()
        .map(|name| (name.to_owned(), SECRET.to_owned()))
        .collect();
    GatewayEnvironment {
        variables,
        source: "gateway.env".into(),
    }
}

fn redis() -> RedisFacts {
    RedisFacts {
        address: "127.0.0.1:6379".into(),
        is_replica: Some(false),
        used_memory: Some(1 << 20),
        maxmemory: Some(1 << 30),
        maxmemory_policy: Some("noeviction".into()),
        zset_max_listpack_entries: Some(256),
        is_cluster: Some(false),
        clock_ahead_ms: Some(3),
        clock_uncertain_ms: 1,
        ..RedisFacts::default()
    }
}

/// All findings.
fn found(
    tree: Value,
    origin: &OriginFacts,
    redis: &RedisFacts,
    environment: &GatewayEnvironment,
) -> Vec<Diagnostic> {
    let envoy = Envoy::from_tree(tree).unwrap();
    let variables = environment.variables.iter();
    let is_of_another_file =
        |name: &String| VARIABLES.contains(&name.as_str()) && !envoy.mentions(name);
    let variables = variables.filter(|(name, _)| !is_of_another_file(name));
    let environment = GatewayEnvironment {
        variables: variables
            .map(|(name, value)| (name.clone(), value.clone()))
            .collect(),
        source: environment.source.clone(),
    };
    examine(&Subject {
        envoy: Some(&envoy),
        origin: Some(origin),
        redis: std::slice::from_ref(redis),
        sql: None,
        gateway: Some(&environment),
        tls: &[],
    })
}

/// The checks with a finding in `tree`.
fn checks(tree: Value) -> Vec<&'static str> {
    words(&found(tree, &origin(), &redis(), &environment()))
}

fn words(findings: &[Diagnostic]) -> Vec<&'static str> {
    for finding in findings {
        assert_sound(finding);
    }
    findings.iter().map(|finding| finding.check).collect()
}

/// Each finding is one line with place, problem and fix, and contains no secret.
fn assert_sound(finding: &Diagnostic) {
    let line = finding.to_string();
    let parts = [&finding.place, &finding.problem, &finding.fix];
    assert!(parts.iter().all(|part| !part.trim().is_empty()), "{line}");
    assert!(!line.contains('\n'), "{line}");
    assert!(!line.contains(SECRET), "{line}");
}

/// The only object in `tree` with this name.
fn named<'a>(tree: &'a mut Value, name: &str) -> &'a mut Value {
    let pointer = pointer_to(tree, name).unwrap_or_else(|| panic!("there is no {name}"));
    tree.pointer_mut(&pointer).unwrap()
}

fn pointer_to(tree: &Value, name: &str) -> Option<String> {
    if tree.get("name").and_then(Value::as_str) == Some(name) {
        return Some(String::new());
    }
    let step =
        |key: String, part: &Value| pointer_to(part, name).map(|rest| format!("/{key}{rest}"));
    match tree {
        Value::Object(fields) => fields
            .iter()
            .find_map(|(key, part)| step(key.replace('/', "~1"), part)),
        Value::Array(parts) => {
            let mut parts = parts.iter().enumerate();
            parts.find_map(|(at, part)| step(at.to_string(), part))
        }
        _ => None,
    }
}

/// The value at `pointer` in `tree`, which must exist.
fn at<'a>(tree: &'a mut Value, pointer: &str) -> &'a mut Value {
    let found = tree.pointer_mut(pointer);
    found.unwrap_or_else(|| panic!("there is no {pointer}"))
}

/// Removes a field, which must exist.
fn drop_field(tree: &mut Value, pointer: &str, field: &str) {
    let object = at(tree, pointer).as_object_mut().unwrap();
    assert!(object.remove(field).is_some(), "there is no {field}");
}

/// Removes the item with this name from the list at `pointer`.
fn drop_named(tree: &mut Value, pointer: &str, name: &str) {
    let list = at(tree, pointer).as_array_mut().unwrap();
    let length = list.len();
    list.retain(|part| part["name"] != name);
    assert_eq!(list.len(), length - 1, "{name}");
}

/// Edits the configuration of a filter in WebAssembly.
fn edit_settings(tree: &mut Value, filter: &str, edit: impl FnOnce(&mut Value)) {
    let value = at(
        named(tree, filter),
        "/typed_config/config/configuration/value",
    );
    let mut settings: Value = serde_json::from_str(value.as_str().unwrap()).unwrap();
    edit(&mut settings);
    *value = settings.to_string().into();
}

const LISTENERS: &str = "/static_resources/listeners";
const CLUSTERS: &str = "/static_resources/clusters";
const NETWORK_FILTERS: &str = "/static_resources/listeners/0/filter_chains/0/filters";
const MANAGER: &str = "/static_resources/listeners/0/filter_chains/0/filters/0/typed_config";
const ROUTES: &str = "/static_resources/listeners/0/filter_chains/0/filters/0/typed_config/route_config/virtual_hosts/0/routes";

/// A plain endpoint.
fn endpoints(addresses: &[(&str, u16)]) -> Value {
    let endpoint = |&(host, port): &(&str, u16)| json!({ "endpoint": { "address": { "socket_address": { "address": host, "port_value": port } } } });
    addresses.iter().map(endpoint).collect()
}
