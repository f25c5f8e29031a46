//! Checks that gateways have their secrets, and that the origin has the same. No secret is printed.

use weir_base::key::SigningKey;

use super::Gateway;
use super::bridge::{bridge_route, bridge_settings, clusters};
use crate::diagnostic::Diagnostic;
use crate::envoy::Envoy;
use crate::facts::{GatewayEnvironment, NamedKey};
use crate::filters::{Filter, Host, collect_variables, given_variables};

pub(super) fn check(gateway: &Gateway<'_>, findings: &mut Vec<Diagnostic>) {
    for filter in &gateway.filters {
        let names = filter.variables();
        let is_wasm = filter.host == Host::Wasm;
        let place = filter.place();
        findings.extend(variables(
            gateway,
            is_wasm.then_some(filter.value),
            &place,
            &names,
        ));
        findings.extend(claim_keys(gateway, filter));
    }
    for (cluster, requesting) in clusters(gateway) {
        if let Ok(route) = bridge_route(gateway.envoy, &cluster, &requesting) {
            let mut names = Vec::new();
            collect_variables(
                &bridge_settings(route.bridge).unwrap_or_default(),
                &mut names,
            );
            let place = format!("listener {}, filter redis-bridge", route.listener.name());
            findings.extend(variables(gateway, Some(route.bridge), &place, &names));
        }
    }
    if let Some(environment) = gateway.environment {
        findings.extend(unused(gateway.envoy, environment));
    }
}

/// Weir's variables that Envoy's configuration does not name: a misspelt one leaves a filter without its secret.
fn unused(envoy: &Envoy, environment: &GatewayEnvironment) -> Vec<Diagnostic> {
    let names = environment.variables.keys();
    let unused = names.filter(|name| name.starts_with("WEIR_") && !envoy.mentions(name));
    let finding = |name| {
        Diagnostic::warning(
            "variables",
            &environment.source,
            format!("{name} is set, and Envoy's configuration does not name it"),
            "correct its name, or remove it",
        )
    };
    unused.map(finding).collect()
}

/// Each variable must be set and passed to the VM.
fn variables(
    gateway: &Gateway<'_>,
    vm: Option<&serde_json::Value>,
    place: &str,
    names: &[String],
) -> Vec<Diagnostic> {
    let mut findings = Vec::new();
    let (passed, written) = vm.map_or_else(Default::default, given_variables);
    for name in names {
        let is_written = written.contains(&name.as_str());
        if is_written {
            findings.push(Diagnostic::warning(
                "secret-in-file",
                place,
                format!(
                    "{name} is in the Envoy configuration itself, which is copied, shown and logged"
                ),
                "move it to Envoy's environment, and list its name in host_env_keys",
            ));
        } else if vm.is_some() && !passed.contains(&name.as_str()) {
            findings.push(Diagnostic::error(
                "secret-not-passed",
                place,
                format!("{name} is not in host_env_keys, so the filter cannot read it"),
                "add it to vm_config.environment_variables.host_env_keys",
            ));
        } else if let Some(environment) = gateway.environment
            && environment.variables.get(name).is_none_or(String::is_empty)
        {
            findings.push(Diagnostic::error(
                "secret-missing",
                place,
                format!("{} does not set {name}", environment.source),
                format!("set it: {name}=$(openssl rand -hex 32)"),
            ));
        }
    }
    findings
}

fn claim_keys(gateway: &Gateway<'_>, filter: &Filter<'_>) -> Vec<Diagnostic> {
    let (Some(gate), Some(origin)) = (filter.gate(), gateway.origin) else {
        return Vec::new();
    };
    let Some(existing) = &origin.claim_keys else {
        return vec![Diagnostic::error(
            "claim-secret",
            filter.place(),
            "the origin has no claim secret, so it refuses every order",
            "set WEIR_CLAIM_SECRET at the origin to the gateways' secret",
        )];
    };
    // The first key signs. The gate does not verify with the others.
    let Some(signing) = gate.claim.keys.first() else {
        return Vec::new();
    };
    let place = filter.place();
    let Some(theirs) = existing.iter().find(|key| key.id == signing.id) else {
        let ids: Vec<&str> = existing.iter().map(|key| key.id.as_str()).collect();
        return vec![Diagnostic::error(
            "claim-key-id",
            place,
            format!(
                "the gate signs with the key {}, but the origin accepts {}: it refuses every order",
                signing.id,
                ids.join(", ")
            ),
            "set claim.keys[0].id here and WEIR_CLAIM_KEY_ID at the origin to the same id",
        )];
    };
    let ours = gateway
        .environment
        .and_then(|environment| fingerprint(environment, &signing.id, &signing.secret.env));
    different(place, theirs, ours).into_iter().collect()
}

fn fingerprint(environment: &GatewayEnvironment, id: &str, name: &str) -> Option<String> {
    let secret = environment.variables.get(name)?;
    let key = SigningKey::new(id, secret.as_bytes()).ok()?;
    Some(key.fingerprint())
}

fn different(place: String, theirs: &NamedKey, ours: Option<String>) -> Option<Diagnostic> {
    let ours = ours.filter(|ours| *ours != theirs.fingerprint)?;
    Some(Diagnostic::error(
        "claim-secret",
        place,
        format!(
            "the gate's claim secret has the fingerprint {ours}, the origin's {}: the gate grants, and the origin refuses every order",
            theirs.fingerprint
        ),
        "give both the same WEIR_CLAIM_SECRET",
    ))
}
