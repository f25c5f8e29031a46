//! Envoy accepts each rendered configuration, whose Redis parts equal the shipped files.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result};
use serde_json::Value;
use weir_dist::chart;
use weir_dist::chart::values::ACCEPTED;
use weir_dist::folder::Folder;
use weir_stack::certificates::Certificates;
use weir_stack::report::Console;
use weir_stack::tools::{Envoy, Options};
use weir_stack::{command, wasm, workspace};

use super::{KUBERNETES, Manifests};

const LIMIT: Duration = Duration::from_secs(60);

#[test]
fn envoy_accepts_each_rendered_configuration() -> Result<()> {
    let Some(tools) = super::tools("1 test of the chart's Envoy files") else {
        return Ok(());
    };
    let temp = tempfile::tempdir()?;
    let folder = chart::only(&temp.path().join("dist"))?;
    let envoy = Envoy::find_or_get(&Options::default(), &mut Console)?;
    wasm::ensure_filters()?;
    let certificates = Certificates::kept_in(&temp.path().join("tls"))?;
    for (name, values) in ACCEPTED {
        let manifests = Manifests::parse(&tools.render(&folder, KUBERNETES, values)?)?;
        validate(&envoy, &manifests, &certificates, temp.path()).with_context(|| name)?;
    }
    Ok(())
}

/// Validates a configuration with the rendered arguments, and with files of this machine.
fn validate(
    envoy: &Envoy,
    manifests: &Manifests,
    certificates: &Certificates,
    dir: &Path,
) -> Result<()> {
    let shown = |path: &Path| path.display().to_string();
    let text = manifests
        .file("envoy.yaml")?
        .replace("/weir/filters", &shown(&workspace::out_dir()))
        .replace(
            "/etc/ssl/certs/ca-certificates.crt",
            &shown(&certificates.ca),
        )
        .replace("/weir/redis/ca.crt", &shown(&certificates.ca))
        .replace("/weir/tls/tls.crt", &shown(&certificates.certificate))
        .replace("/weir/tls/tls.key", &shown(&certificates.key))
        .replace("path: /weir/tls", &format!("path: {}", dir.display()));
    let file = dir.join("envoy.yaml");
    std::fs::write(&file, text)?;
    let mut validate = Command::new(&envoy.path);
    validate.args(["--mode", "validate"]);
    let arguments = manifests.gateway()?["command"].as_array();
    for argument in arguments.context("no command")?.iter().skip(1) {
        let argument = argument.as_str().context("not text")?;
        validate.arg(match argument {
            "/weir/config/envoy.yaml" => file.as_os_str(),
            argument => argument.as_ref(),
        });
    }
    let secrets = super::variables(manifests.gateway()?, dir)?;
    command::succeed(validate.envs(secrets), LIMIT)?;
    Ok(())
}

#[test]
fn redis_parts_equal_those_of_the_shipped_files() -> Result<()> {
    let Some(tools) = super::tools("1 test of the chart's Redis") else {
        return Ok(());
    };
    let temp = tempfile::tempdir()?;
    let folder = chart::only(&temp.path().join("dist"))?;
    let rendered = |values: &str| -> Result<Value> {
        let manifests = Manifests::parse(&tools.render(&folder, KUBERNETES, values)?)?;
        Ok(yaml_serde::from_str(manifests.file("envoy.yaml")?)?)
    };
    let shipped = |file: &str| documents(&folder, file);
    let single = shipped("envoy/all.yaml")?.remove(0);
    let plain = rendered("")?;
    assert_eq!(redis(&plain)?, redis(&single)?);
    assert_eq!(proxy(&plain)?, proxy(&single)?);

    let tls = rendered(&format!("redis: {{ host: localhost, tls: {TLS} }}"))?;
    let [_, cluster] = two(shipped("envoy/snippets/redis-tls.yaml")?)?;
    let path = "/weir/redis/ca.crt";
    let mut expected = redis(&cluster)?;
    let socket = &mut expected["transport_socket"]["typed_config"];
    socket["common_tls_context"]["validation_context"]["trusted_ca"]["filename"] = path.into();
    // Servers with several names need it.
    socket["sni"] = "localhost".into();
    assert_eq!(redis(&tls)?, expected);

    let nodes = "redis: { nodes: ['127.0.0.1:7001', '127.0.0.1:7002', '127.0.0.1:7003'] }";
    let nodes = rendered(nodes)?;
    let [expected_proxy, cluster] = two(shipped("envoy/snippets/redis-cluster.yaml")?)?;
    let addresses = "/load_assignment/endpoints/0/lb_endpoints";
    let found = named(&nodes["static_resources"]["clusters"], UPSTREAM)?;
    let of_nodes = |tree: &Value| tree.pointer(addresses).cloned();
    let shipped_nodes = named(&cluster["clusters"], UPSTREAM)?;
    assert_eq!(of_nodes(found), of_nodes(shipped_nodes));
    assert_eq!(redis(&nodes)?, redis(&cluster)?);
    assert_eq!(proxy(&nodes)?, expected_proxy[0]);
    let text = nodes.to_string();
    assert!(text.contains(r#"\"topology\": \"cluster\""#) && !text.contains(r#"\"single\""#));
    Ok(())
}

const TLS: &str = "{ enabled: true, caSecret: ca }";
const UPSTREAM: &str = "weir_redis_upstream";

fn documents(folder: &Folder, file: &str) -> Result<Vec<Value>> {
    let text = std::fs::read_to_string(folder.at(file))?;
    Ok(Manifests::parse(&text)?.0)
}

fn two(documents: Vec<Value>) -> Result<[Value; 2]> {
    documents.try_into().ok().context("not two documents")
}

/// The element of a list with this name.
fn named<'a>(list: &'a Value, name: &str) -> Result<&'a Value> {
    let mut all = list.as_array().context("not a list")?.iter();
    let found = all.find(|one| one["name"] == name);
    found.with_context(|| format!("there is no {name}"))
}

/// The cluster of Redis, without its addresses. Snippets have no `static_resources`.
fn redis(tree: &Value) -> Result<Value> {
    let clusters = match tree["clusters"].is_array() {
        true => &tree["clusters"],
        false => &tree["static_resources"]["clusters"],
    };
    let mut cluster = named(clusters, UPSTREAM)?.clone();
    cluster["load_assignment"].take();
    Ok(cluster)
}

/// The filter behind the bridge.
fn proxy(tree: &Value) -> Result<Value> {
    let listener = named(&tree["static_resources"]["listeners"], "weir_redis")?;
    Ok(listener["filter_chains"][0]["filters"][1].clone())
}
