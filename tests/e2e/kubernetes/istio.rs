//! Istio's control plane, `pilot-discovery`, reads the manifest, and a stock Envoy loads the result over xDS, like
//! Istio's proxies. There is no Kubernetes: services are `ServiceEntry`s, and features that only Istio's own Envoy has
//! are disabled.
//!
//! Higress' control plane is based on Istio's, and processes `EnvoyFilter`s with its code.

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result};
use serde_json::{Value, json};
use tempfile::TempDir;
use weir_stack::process::Process;
use weir_stack::report::SilentReporter;
use weir_stack::tools::pilot_discovery;
use weir_stack::tools::{self, Options};
use weir_stack::{Stack, http, ports};

use super::shop::{self, Places, port_of};

const START_LIMIT: Duration = Duration::from_secs(60);

/// A gateway of Istio's control plane.
struct Mesh {
    _envoy: Process,
    _pilot: Process,
    url: String,
    _dir: TempDir,
}

impl Mesh {
    /// Starts a gateway with this namespace, label and manifests.
    async fn start(
        pilot: &Path,
        stack: &Stack,
        (namespace, label): (&str, &str),
        manifests: &[String],
    ) -> Result<Self> {
        let dir = tempfile::tempdir()?;
        let (port, xds, admin) = (ports::free()?, ports::free()?, ports::free()?);
        let config = dir.path().join("config");
        std::fs::create_dir(&config)?;
        for (number, manifest) in manifests.iter().enumerate() {
            std::fs::write(config.join(format!("{number}.yaml")), manifest)?;
        }
        std::fs::write(
            config.join("gateway.yaml"),
            gateway(stack, namespace, label, port)?,
        )?;
        let pilot = start_pilot(pilot, dir.path(), xds)?;
        let node = node(namespace, label)?;
        std::fs::write(
            dir.path().join("envoy.json"),
            bootstrap(node, xds, admin).to_string(),
        )?;
        let mut envoy = start_envoy(stack, dir.path())?;
        let ready = format!("http://127.0.0.1:{admin}/ready");
        envoy
            .wait_ready(START_LIMIT, || http::is_ok(&ready))
            .await?;
        Ok(Self {
            _envoy: envoy,
            _pilot: pilot,
            url: format!("http://127.0.0.1:{port}"),
            _dir: dir,
        })
    }
}

/// The other manifests in a cluster: the gateway, and the origin's service.
fn gateway(stack: &Stack, namespace: &str, label: &str, port: u16) -> Result<String> {
    let gateway = json!({
        "apiVersion": "networking.istio.io/v1", "kind": "Gateway",
        "metadata": { "name": "gateway", "namespace": namespace },
        "spec": {
            "selector": labels(label)?,
            "servers": [{ "port": { "number": port, "name": "http", "protocol": "HTTP" }, "hosts": ["*"] }],
        },
    });
    let origin = json!({
        "apiVersion": "networking.istio.io/v1", "kind": "ServiceEntry",
        "metadata": { "name": "weir-origin", "namespace": "weir" },
        "spec": {
            "hosts": ["weir-origin.weir.svc.cluster.local"], "location": "MESH_EXTERNAL", "resolution": "STATIC",
            "ports": [{ "number": 8080, "name": "http", "protocol": "HTTP" }],
            "endpoints": [{ "address": "127.0.0.1", "ports": { "http": port_of(&stack.origin_url())? } }],
        },
    });
    Ok(format!("{gateway}\n---\n{origin}\n"))
}

/// `name=value`, as an object.
fn labels(label: &str) -> Result<Value> {
    let (name, value) = label.split_once('=').context("no =")?;
    Ok(json!({ name: value }))
}

fn start_pilot(program: &Path, dir: &Path, xds: u16) -> Result<Process> {
    let mesh =
        json!({ "configSources": [{ "address": format!("fs://{}/config", dir.display()) }] });
    std::fs::write(dir.join("mesh.yaml"), mesh.to_string())?;
    std::fs::write(dir.join("networks.yaml"), "networks: {}\n")?;
    let others = [ports::free()?, ports::free()?];
    let (program, dir) = (program.to_owned(), dir.to_owned());
    let log = dir.join("pilot.log");
    Process::start("pilot-discovery", &log, move || {
        let mut pilot = Command::new(&program);
        pilot.current_dir(&dir).env("HOME", &dir);
        pilot
            .env("POD_NAMESPACE", "istio-system")
            .env("ENABLE_CA_SERVER", "false");
        // Disables filters that only Istio's own Envoy has.
        pilot.env("PILOT_ENABLE_METADATA_EXCHANGE", "false");
        pilot.env("PILOT_ENABLE_ALPN_FILTER", "false");
        pilot.args(["discovery", "--registries", "", "--meshConfig", "mesh.yaml"]);
        pilot.args(["--networksConfig", "networks.yaml", "--ctrlz_port", "0"]);
        pilot.args(["--secureGRPCAddr", "", "--httpsAddr", ""]);
        pilot.arg("--grpcAddr").arg(format!("127.0.0.1:{xds}"));
        pilot
            .arg("--httpAddr")
            .arg(format!("127.0.0.1:{}", others[0]));
        pilot
            .arg("--monitoringAddr")
            .arg(format!("127.0.0.1:{}", others[1]));
        pilot
    })
}

fn node(namespace: &str, label: &str) -> Result<Value> {
    Ok(json!({
        "id": format!("router~127.0.0.1~gateway.{namespace}~{namespace}.svc.cluster.local"),
        "cluster": format!("gateway.{namespace}"),
        "metadata": {
            "LABELS": labels(label)?, "NAMESPACE": namespace, "CLUSTER_ID": "Kubernetes", "ISTIO_VERSION": "1.28.0",
        },
    }))
}

/// The relevant parts of a gateway's bootstrap.
fn bootstrap(node: Value, xds: u16, admin: u16) -> Value {
    let address =
        |port: u16| json!({ "socket_address": { "address": "127.0.0.1", "port_value": port } });
    let ads = json!({ "ads": {}, "initial_fetch_timeout": "0s", "resource_api_version": "V3" });
    let http2 = "type.googleapis.com/envoy.extensions.upstreams.http.v3.HttpProtocolOptions";
    json!({
        "node": node,
        "admin": { "address": address(admin) },
        "bootstrap_extensions": [{
            "name": "envoy.bootstrap.internal_listener", "typed_config": { "@type": super::INTERNAL },
        }],
        "dynamic_resources": {
            "ads_config": {
                "api_type": "GRPC", "transport_api_version": "V3",
                "grpc_services": [{ "envoy_grpc": { "cluster_name": "xds-grpc" } }],
            },
            "lds_config": ads, "cds_config": ads,
        },
        "static_resources": { "clusters": [{
            "name": "xds-grpc", "type": "STATIC", "connect_timeout": "1s",
            "typed_extension_protocol_options": {
                "envoy.extensions.upstreams.http.v3.HttpProtocolOptions": {
                    "@type": http2, "explicit_http_config": { "http2_protocol_options": {} },
                },
            },
            "load_assignment": {
                "cluster_name": "xds-grpc",
                "endpoints": [{ "lb_endpoints": [{ "endpoint": { "address": address(xds) } }] }],
            },
        }] },
    })
}

fn start_envoy(stack: &Stack, dir: &Path) -> Result<Process> {
    let tool = tools::Envoy::find_or_get(&Options::default(), &mut SilentReporter)?;
    let (secrets, config) = (shop::secrets(stack), dir.join("envoy.json"));
    Process::start("envoy", &dir.join("envoy.log"), move || {
        let mut envoy = Command::new(&tool.path);
        envoy.args([
            "--concurrency",
            "2",
            "--log-level",
            "warning",
            "--disable-hot-restart",
        ]);
        envoy.arg("--config-path").arg(&config).envs(&secrets);
        envoy
    })
}

fn pilot() -> Option<std::path::PathBuf> {
    pilot_discovery()
        .inspect_err(|error| println!("left out: 1 test of Istio's control plane ({error:#})"))
        .ok()
}

fn routes(places: Places) -> Places {
    places.and("[\"shop.example.com\"]", "[\"*\"]")
}

#[tokio::test(flavor = "multi_thread")]
async fn sale_works_behind_an_istio_gateway() -> Result<()> {
    let Some(pilot) = pilot() else { return Ok(()) };
    let mut stack = Stack::builder().key_prefix("istio").start().await?;
    let manifest = routes(Places::of(&stack)?).put_into("istio.yaml")?;
    let gateway = ("istio-ingress", "istio=ingress");
    let mesh = Mesh::start(&pilot, &stack, gateway, &[manifest]).await?;
    shop::sells(&mut stack, &mesh.url).await
}

#[tokio::test(flavor = "multi_thread")]
async fn sale_works_behind_the_istio_part_of_higress() -> Result<()> {
    let Some(pilot) = pilot() else { return Ok(()) };
    let mut stack = Stack::builder().key_prefix("higress").start().await?;
    let manifest = Places::of_json(&stack)?.put_into("higress.yaml")?;
    let all = super::documents(&manifest)?;
    let filter = super::of(&all, "EnvoyFilter").next();
    let routes = super::of(&all, "Ingress").map(routes_of);
    let routes = routes.collect::<Result<Vec<_>>>()?.concat();
    let service = json!({
        "apiVersion": "networking.istio.io/v1", "kind": "VirtualService",
        "metadata": { "name": "weir", "namespace": "higress-system" },
        "spec": { "hosts": ["*"], "gateways": ["gateway"], "http": routes },
    });
    let manifests = [
        filter.context("no EnvoyFilter")?.to_string(),
        service.to_string(),
    ];
    let gateway = ("higress-system", "app=higress-gateway");
    let mesh = Mesh::start(&pilot, &stack, gateway, &manifests).await?;
    shop::sells(&mut stack, &mesh.url).await
}

/// The routes of an `Ingress`, from its Higress annotations.
fn routes_of(ingress: &Value) -> Result<Vec<Value>> {
    let response =
        |name: &str| ingress["metadata"]["annotations"][format!("higress.io/{name}")].as_str();
    let paths = &ingress["spec"]["rules"][0]["http"]["paths"];
    let route = |path: &Value| {
        let kind = match path["pathType"].as_str() {
            Some("Exact") => "exact",
            _ => "regex",
        };
        let mut matches = json!({ "uri": { kind: path["path"] } });
        if let Some(method) = response("match-method") {
            matches["method"] = json!({ "exact": method });
        }
        let service = &path["backend"]["service"];
        let mut route = json!({
            "match": [matches],
            "timeout": format!("{}s", response("timeout").context("no timeout")?),
            "route": [{ "destination": { "host": "weir-origin.weir.svc.cluster.local", "port": service["port"] } }],
        });
        if let Some(uri) = response("rewrite-target") {
            route["rewrite"] = json!({ "uri": uri });
        }
        if let Some((name, value)) =
            response("response-header-control-update").and_then(|response| response.split_once(' '))
        {
            route["headers"] = json!({ "response": { "set": { name: value } } });
        }
        Ok(route)
    };
    paths
        .as_array()
        .context("no paths")?
        .iter()
        .map(route)
        .collect()
}
