//! The Helm chart: rendered, validated by Kubernetes and Envoy, and its pods' processes run locally.

mod api_server;
mod authentication;
mod envoy;
mod gateway;
mod rolling;

use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use serde::Deserialize;
use serde_json::Value;
use weir_dist::binaries::Build;
use weir_dist::chart::{self, Tools};
use weir_dist::five_minutes::{self, Parts, Variables};
use weir_dist::make;
use weir_stack::report::Console;
use weir_stack::tools::{Envoy, Options};

const KUBERNETES: &str = "1.37";
const READY_LIMIT: Duration = Duration::from_secs(60);

/// The delay of a readiness probe and of a load balancer that follows it.
const PROBE: Duration = Duration::from_secs(1);

/// The tools, or `None` if one is missing.
fn tools(skipped: &str) -> Option<Tools> {
    crate::found(Tools::find_or_get(&mut Console), skipped)
}

#[test]
fn chart_renders_valid_manifests_and_refuses_wrong_values() -> Result<()> {
    let Some(tools) = tools("1 test of the chart's values") else {
        return Ok(());
    };
    let temp = tempfile::tempdir()?;
    let folder = chart::only(&temp.path().join("dist"))?;
    tools.check(&folder)?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn chart_commands_run_all_filters_and_the_origin() -> Result<()> {
    let Some(tools) = tools("1 test of the chart's commands") else {
        return Ok(());
    };
    let temp = tempfile::tempdir()?;
    let folder = make(&temp.path().join("dist"), Build::Fast)?;
    let manifests = Manifests::parse(&tools.render(&folder, KUBERNETES, "")?)?;
    let dir = temp.path().join("cluster");
    std::fs::create_dir_all(&dir)?;
    let parts = manifests.parts(&folder.at("filters"), &dir)?;
    let envoy = Envoy::find_or_get(&Options::default(), &mut Console)?;
    five_minutes::run(&folder, &parts, &dir, &envoy).await
}

/// Manifests rendered by helm.
struct Manifests(Vec<Value>);

impl Manifests {
    fn parse(text: &str) -> Result<Self> {
        let documents = yaml_serde::Deserializer::from_str(text);
        let documents = documents.map(|document| Ok(Value::deserialize(document)?));
        Ok(Self(documents.collect::<Result<_>>()?))
    }

    fn of(&self, kind: &str, name: &str) -> Result<&Value> {
        let is_it = |one: &&Value| one["kind"] == kind && one["metadata"]["name"] == name;
        let found = self.0.iter().find(is_it);
        found.with_context(|| format!("there is no {kind} {name}"))
    }

    /// A file of the release's ConfigMap.
    fn file(&self, name: &str) -> Result<&str> {
        let files = &self.of("ConfigMap", "shop-weir")?["data"];
        files[name].as_str().context("no such file")
    }

    /// The container of the gateways.
    fn gateway(&self) -> Result<&Value> {
        Ok(container(self.of("Deployment", "shop-weir-gateway")?))
    }

    /// The container of the origins.
    fn origin(&self) -> Result<&Value> {
        Ok(container(self.of("StatefulSet", "shop-weir-origin")?))
    }

    /// The processes of its pods, with folders of this machine.
    fn parts(&self, filters: &Path, dir: &Path) -> Result<Parts> {
        std::fs::write(dir.join("links.json"), self.file("links.json")?)?;
        let filters = format!("{}/", filters.display());
        let envoy = self.file("envoy.yaml")?;
        for address in ["shop-weir-redis", "shop-weir-origin"] {
            ensure!(envoy.contains(address), "Envoy does not know {address}");
            self.of("Service", address)?;
        }
        Ok(Parts {
            envoy: envoy.replace("/weir/filters/", &filters),
            gateway: variables(self.gateway()?, dir)?,
            origin: variables(self.origin()?, dir)?,
        })
    }
}

fn container(of: &Value) -> &Value {
    &of["spec"]["template"]["spec"]["containers"][0]
}

/// The environment of a container, except the cluster's Redis and SQL URLs. Each secret is its key, repeated.
fn variables(container: &Value, dir: &Path) -> Result<Variables> {
    let all = container["env"].as_array().context("no env")?.iter();
    let all = all.map(|variable| {
        let name = variable["name"].as_str().context("no name")?;
        let value = match variable["value"].as_str() {
            Some(value) => value.replace("/weir/config/", &format!("{}/", dir.display())),
            None => {
                let key = variable["valueFrom"]["secretKeyRef"]["key"].as_str();
                key.with_context(|| format!("{name} names no secret"))?
                    .repeat(3)
            }
        };
        Ok((name.to_owned(), value))
    });
    let is_url = |name: &str| matches!(name, "WEIR_REDIS_URL" | "WEIR_DATABASE_URL");
    let all = all.filter(|variable| !matches!(variable, Ok((name, _)) if is_url(name)));
    all.collect()
}

/// A list of texts.
fn texts(list: &Value) -> Result<Vec<String>> {
    let list = list.as_array().context("not a list")?.iter();
    let texts = list.map(|text| text.as_str().map(str::to_owned));
    texts.collect::<Option<_>>().context("not text")
}
