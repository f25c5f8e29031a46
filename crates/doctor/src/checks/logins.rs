//! The credentials with which gateways log in to Redis.

use serde_json::Value;

use super::Gateway;
use super::bridge::{bridge_route, bridge_settings, clusters};
use crate::facts::{GatewayEnvironment, Login};

/// The distinct logins of bridges and native filters. Logins without a password in the environment are omitted.
pub(super) fn logins(gateway: &Gateway<'_>, environment: &GatewayEnvironment) -> Vec<Login> {
    let ways = clusters(gateway)
        .into_iter()
        .filter_map(|(cluster, requesting)| {
            bridge_route(gateway.envoy, &cluster, &requesting).ok()
        });
    let bridges = ways.filter_map(|route| bridge_settings(route.bridge));
    let native = gateway.filters.iter().filter_map(|filter| filter.native());
    let mut logins = Vec::new();
    for settings in bridges.chain(native) {
        collect(&settings, environment, &mut logins);
    }
    logins
}

/// Adds a login for each object, at any depth, whose `password` names an environment variable.
fn collect(tree: &Value, environment: &GatewayEnvironment, logins: &mut Vec<Login>) {
    let name = tree
        .get("password")
        .and_then(|password| password.get("env"));
    let password = name
        .and_then(Value::as_str)
        .and_then(|name| environment.variables.get(name))
        .filter(|password| !password.is_empty());
    if let Some(password) = password {
        let username = tree.get("username").and_then(Value::as_str);
        let login = Login {
            username: username.map(ToOwned::to_owned),
            password: password.clone(),
        };
        if !logins.contains(&login) {
            logins.push(login);
        }
    }
    let parts = tree.as_array().into_iter().flatten();
    let fields = tree
        .as_object()
        .into_iter()
        .flat_map(serde_json::Map::values);
    parts
        .chain(fields)
        .for_each(|part| collect(part, environment, logins));
}
