//! The Helm chart: rendered, validated against the Kubernetes schemas, and its pods' processes run locally.

use std::collections::BTreeMap;

use anyhow::{Context, Result, ensure};
use serde::Deserialize;
use serde_json::Value;
use weir_dist::binaries::Build;
use weir_dist::chart::Tools;
use weir_dist::five_minutes::{self, Parts, Variables};
use weir_dist::folder::Folder;
use weir_dist::make;
use weir_stack::report::Console;
use weir_stack::tools::{Envoy, Options};

const KUBERNETES: &str = "1.37";

#[tokio::test(flavor = "multi_thread")]
async fn chart_renders_valid_manifests_with_working_commands() -> Result<()> {
    let tools = Tools::find_or_get(&mut Console);
    let Some(tools) = crate::found(tools, "1 test of the chart") else {
        return Ok(());
    };
    let temp = tempfile::tempdir()?;
    let folder = make(&temp.path().join("dist"), Build::Fast)?;
    tools.check(&folder)?;
    let manifests = Manifests::parse(&tools.render(&folder, KUBERNETES, "")?)?;
    let dir = temp.path().join("cluster");
    std::fs::create_dir_all(&dir)?;
    let parts = manifests.parts(&folder, &dir)?;
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

    /// The processes of its pods, with folders of this machine.
    fn parts(&self, folder: &Folder, dir: &std::path::Path) -> Result<Parts> {
        let config = &self.of("ConfigMap", "shop-weir")?["data"];
        let text = |name: &str| config[name].as_str().context("no such file");
        std::fs::write(dir.join("links.json"), text("links.json")?)?;
        let filters = format!("{}/", folder.at("filters").display());
        let envoy = text("envoy.yaml")?;
        for address in ["shop-weir-redis", "shop-weir-origin"] {
            ensure!(envoy.contains(address), "Envoy does not know {address}");
            self.of("Service", address)?;
        }
        Ok(Parts {
            envoy: envoy.replace("/weir/filters/", &filters),
            gateway: self.variables(self.of("Deployment", "shop-weir-gateway")?, dir)?,
            origin: self.variables(self.of("StatefulSet", "shop-weir-origin")?, dir)?,
        })
    }

    /// The environment of a pod's only container, except the cluster's Redis URL and listen addresses.
    fn variables(&self, of: &Value, dir: &std::path::Path) -> Result<Variables> {
        let secrets = self.secrets()?;
        let container = &of["spec"]["template"]["spec"]["containers"][0];
        let all = container["env"].as_array().context("no env")?.iter();
        let all = all.map(|variable| {
            let name = variable["name"].as_str().context("no name")?;
            let value = match variable["value"].as_str() {
                Some(value) => value.replace("/weir/config/", &format!("{}/", dir.display())),
                None => {
                    let key = variable["valueFrom"]["secretKeyRef"]["key"].as_str();
                    let secret = key.and_then(|key| secrets.get(key));
                    secret
                        .with_context(|| format!("{name} names no secret"))?
                        .clone()
                }
            };
            Ok((name.to_owned(), value))
        });
        let all =
            all.filter(|variable| !matches!(variable, Ok((name, _)) if name == "WEIR_REDIS_URL"));
        all.collect()
    }

    fn secrets(&self) -> Result<BTreeMap<String, String>> {
        let data = self.of("Secret", "shop-weir")?["data"].as_object();
        let pairs = data.context("no data")?.iter().map(|(name, value)| {
            let bytes = base64::Engine::decode(
                &base64::engine::general_purpose::STANDARD,
                value.as_str().context("no text")?,
            )?;
            Ok((name.clone(), String::from_utf8(bytes)?))
        });
        pairs.collect()
    }
}
