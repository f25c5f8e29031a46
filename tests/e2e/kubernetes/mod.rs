//! The manifests of `envoy/kubernetes`. Their patches load in an Envoy as a gateway runs it, including the filters'
//! configurations. Istio's own tool validates them if available. Control planes, if available, apply them, and a sale
//! runs through the configured Envoy.

mod envoy_gateway;
mod istio;
mod shop;

use anyhow::{Context, Result};
use serde::Deserialize;
use serde_json::{Value, json};
use weir_stack::Secrets;
use weir_stack::envoy::{EnvoyConfig, EnvoyOptions, validate};
use weir_stack::report::SilentReporter;
use weir_stack::tools::{self, Options};
use weir_stack::{wasm, workspace};

/// A control plane's configuration before Weir's patches: a listener with a connection manager, the extension for
/// internal listeners (part of Istio's and Higress' bootstrap; `EnvoyProxy` adds it for Envoy Gateway), and a cluster.
const GATEWAY: &str = r#"
admin: { address: { socket_address: { address: 127.0.0.1, port_value: 9901 } } }
bootstrap_extensions: []
static_resources:
  clusters: []
  listeners:
    - name: gateway
      address: { socket_address: { address: 127.0.0.1, port_value: 10000 } }
      filter_chains:
        - filters:
            - name: envoy.filters.network.http_connection_manager
              typed_config:
                "@type": type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager
                stat_prefix: gateway
                route_config:
                  virtual_hosts:
                    - { name: all, domains: ["*"], routes: [{ match: { prefix: / }, direct_response: { status: 404 } }] }
                http_filters:
                  - name: envoy.filters.http.router
                    typed_config:
                      "@type": type.googleapis.com/envoy.extensions.filters.http.router.v3.Router
"#;

const MANAGER: &str = "/static_resources/listeners/0/filter_chains/0/filters/0/typed_config";
const INTERNAL: &str =
    "type.googleapis.com/envoy.extensions.bootstrap.internal_listener.v3.InternalListener";

fn read(file: &str) -> Result<Vec<Value>> {
    let path = workspace::root().join("envoy/kubernetes").join(file);
    let text = std::fs::read_to_string(&path).with_context(|| path.display().to_string())?;
    documents(&text)
}

fn documents(text: &str) -> Result<Vec<Value>> {
    let documents = yaml_serde::Deserializer::from_str(text);
    documents
        .map(|document| Ok(Value::deserialize(document)?))
        .filter(|document| !matches!(document, Ok(Value::Null)))
        .collect()
}

fn of<'a>(all: &'a [Value], kind: &'a str) -> impl Iterator<Item = &'a Value> {
    all.iter().filter(move |resource| resource["kind"] == kind)
}

/// An Envoy configuration to patch.
struct Gateway(Value);

impl Gateway {
    fn new() -> Result<Self> {
        Ok(Self(yaml_serde::from_str(GATEWAY)?))
    }

    fn push(&mut self, at: &str, value: Value) -> Result<()> {
        let list = self.0.pointer_mut(at).and_then(Value::as_array_mut);
        list.context("no list")?.push(value);
        Ok(())
    }

    fn with_internal_listeners(&mut self) -> Result<()> {
        let extension = json!({
            "name": "envoy.bootstrap.internal_listener", "typed_config": { "@type": INTERNAL }
        });
        self.push("/bootstrap_extensions", extension)
    }

    /// Inserts a filter before the router, like control planes do for a plugin.
    fn before_router(&mut self, filter: Value) -> Result<()> {
        let filters = format!("{MANAGER}/http_filters");
        let filters = self.0.pointer_mut(&filters).and_then(Value::as_array_mut);
        filters.context("no filters")?.insert(0, filter);
        Ok(())
    }

    fn set_local_reply(&mut self, value: &Value) -> Result<()> {
        let manager = self.0.pointer_mut(MANAGER).context("no manager")?;
        manager["local_reply_config"] = value.clone();
        Ok(())
    }

    /// Applies the patches of an Istio or Higress `EnvoyFilter`.
    fn patch(&mut self, filter: &Value) -> Result<()> {
        for patch in filter["spec"]["configPatches"]
            .as_array()
            .context("patches")?
        {
            let value = patch["patch"]["value"].clone();
            match patch["applyTo"].as_str().context("applyTo")? {
                "CLUSTER" => self.push("/static_resources/clusters", value)?,
                "LISTENER" => self.push("/static_resources/listeners", value)?,
                "HTTP_FILTER" => self.before_router(value)?,
                _ => self.set_local_reply(&value["typed_config"]["local_reply_config"])?,
            }
        }
        Ok(())
    }

    /// Applies the patches of an Envoy Gateway `EnvoyPatchPolicy`.
    fn patch_json(&mut self, policy: &Value) -> Result<()> {
        for patch in policy["spec"]["jsonPatches"]
            .as_array()
            .context("patches")?
        {
            let value = patch["operation"]["value"].clone();
            let kind = patch["type"].as_str().context("type")?;
            match patch["operation"]["path"].as_str().context("path")? {
                "" if kind.ends_with(".Cluster") => {
                    self.push("/static_resources/clusters", value)?
                }
                "" => self.push("/static_resources/listeners", value)?,
                _ => self.set_local_reply(&value)?,
            }
        }
        Ok(())
    }

    /// Adds a plugin as a filter, like Istio and Envoy Gateway do.
    fn plug(&mut self, config: &Value, keys: &Value) -> Result<()> {
        let wasm = "type.googleapis.com/envoy.extensions.filters.http.wasm.v3.Wasm";
        let text = "type.googleapis.com/google.protobuf.StringValue";
        self.before_router(json!({
            "name": "weir.seckill_gate",
            "typed_config": { "@type": wasm, "config": {
                "name": "seckill-gate", "root_id": "seckill-gate",
                "vm_config": {
                    "runtime": "envoy.wasm.runtime.v8",
                    "code": { "local": { "filename": "/etc/weir/seckill-gate.wasm" } },
                    "environment_variables": { "host_env_keys": keys },
                },
                "configuration": { "@type": text, "value": config.to_string() },
            } },
        }))
    }

    /// Makes Envoy load the configuration, with the workspace's modules.
    fn load(&self) -> Result<()> {
        wasm::ensure_filters()?;
        let tool = tools::Envoy::find_or_get(&Options::default(), &mut SilentReporter)?;
        let modules = workspace::out_dir().display().to_string();
        let config = self.0.to_string().replace("/etc/weir", &modules);
        let secrets = Secrets::random()?;
        let dir = tempfile::tempdir()?;
        let options = EnvoyOptions {
            config: EnvoyConfig::parse(&config)?,
            workers: 1,
            log_level: "info".into(),
            variables: vec![
                ("WEIR_CLAIM_SECRET".into(), secrets.claim),
                ("WEIR_TOKEN_SECRET".into(), secrets.token),
            ],
            clock_ahead_ms: None,
            drain_s: None,
            dir: dir.path().to_path_buf(),
        };
        validate(&tool, &options)
    }
}

#[test]
fn istio_configuration_loads() -> Result<()> {
    let all = read("istio.yaml")?;
    let mut gateway = Gateway::new()?;
    gateway.with_internal_listeners()?;
    for filter in of(&all, "EnvoyFilter") {
        gateway.patch(filter)?;
    }
    let plugin = of(&all, "WasmPlugin").next().context("no WasmPlugin")?;
    let variables = plugin["spec"]["vmConfig"]["env"]
        .as_array()
        .context("env")?;
    let keys: Value = variables
        .iter()
        .map(|variable| variable["name"].clone())
        .collect();
    gateway.plug(&plugin["spec"]["pluginConfig"], &keys)?;
    gateway.load()
}

#[test]
fn higress_configuration_loads() -> Result<()> {
    let all = read("higress.yaml")?;
    let mut gateway = Gateway::new()?;
    gateway.with_internal_listeners()?;
    for filter in of(&all, "EnvoyFilter") {
        gateway.patch(filter)?;
    }
    gateway.load()
}

#[test]
fn envoy_gateway_configuration_loads() -> Result<()> {
    let all = read("envoy-gateway.yaml")?;
    let mut gateway = Gateway::new()?;
    let proxy = of(&all, "EnvoyProxy").next().context("no EnvoyProxy")?;
    let bootstrap = proxy["spec"]["bootstrap"]["value"]
        .as_str()
        .context("bootstrap")?;
    let bootstrap: Value = yaml_serde::from_str(bootstrap)?;
    gateway.0["bootstrap_extensions"] = bootstrap["bootstrap_extensions"].clone();
    for policy in of(&all, "EnvoyPatchPolicy") {
        gateway.patch_json(policy)?;
    }
    let policy = of(&all, "EnvoyExtensionPolicy")
        .next()
        .context("no policy")?;
    let plugin = &policy["spec"]["wasm"][0];
    gateway.plug(&plugin["config"], &plugin["env"]["hostKeys"])?;
    gateway.load()
}

/// Higress is based on Istio and applies its `EnvoyFilter`.
#[test]
fn istioctl_accepts_shipped_files_and_rejects_a_wrong_one() -> Result<()> {
    let istioctl = match tools::Istioctl::find() {
        Ok(istioctl) => istioctl,
        Err(error) => {
            println!("left out: 1 test of istioctl ({error:#})");
            return Ok(());
        }
    };
    let dir = workspace::root().join("envoy/kubernetes");
    for file in ["istio.yaml", "higress.yaml"] {
        istioctl.check(&dir.join(file)).context(file)?;
    }
    let text = std::fs::read_to_string(dir.join("istio.yaml"))?;
    let temp = tempfile::tempdir()?;
    let wrong = temp.path().join("wrong.yaml");
    std::fs::write(
        &wrong,
        text.replace("applyTo: LISTENER", "applyTo: LISTENERS"),
    )?;
    let error = istioctl.check(&wrong).err().context("it took LISTENERS")?;
    anyhow::ensure!(format!("{error:#}").contains("LISTENERS"), "{error:#}");
    Ok(())
}
