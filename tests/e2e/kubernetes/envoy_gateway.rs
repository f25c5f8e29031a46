//! Envoy Gateway itself reads the manifest from a file, starts a stock Envoy and configures it.
//!
//! Local replacements stand in for Kubernetes: services are `Backend`s, and this machine replaces the control plane's
//! own service, from which Envoy gets modules.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use serde_json::{Value, json};
use tempfile::TempDir;
use weir_stack::process::Process;
use weir_stack::report::SilentReporter;
use weir_stack::tools::{self, Options, envoy_gateway};
use weir_stack::{Stack, command, http, ports, workspace};
use weir_tests::{Server, response};

use super::shop::{self, Places, port_of};

/// Its fixed ports: for Envoys, and for Envoys that get modules.
const OWN_PORTS: [u16; 2] = [18_000, 18_002];
const START_LIMIT: Duration = Duration::from_secs(90);
const CERTIFICATES_LIMIT: Duration = Duration::from_secs(60);

/// Envoy Gateway with its Envoy.
struct Gateway {
    _process: Process,
    _modules: Server,
    url: String,
    _dir: TempDir,
}

impl Gateway {
    async fn start(program: &Path, stack: &Stack) -> Result<Self> {
        let dir = tempfile::tempdir()?;
        let port = ports::free()?;
        let modules = serve_module("seckill-gate.wasm").await?;
        let certificates = certificates(program, dir.path())?;
        let config = dir.path().join("config");
        std::fs::create_dir(&config)?;
        let manifest = manifest(stack, port, &modules, &certificates)?;
        std::fs::write(config.join("all.yaml"), manifest)?;
        put_envoy(dir.path())?;
        let mut process = start(program, stack, dir.path())?;
        let url = format!("http://127.0.0.1:{port}");
        // Any answer shows that the gate's module is loaded.
        let probe = format!("{url}/sales/none/orders");
        let answers = || async {
            let answer = http::send(http::Method::POST, &probe, &[], "").await;
            answer.is_ok_and(|answer| answer.header("x-weir-verdict").is_some())
        };
        process.wait_ready(START_LIMIT, answers).await?;
        Ok(Self {
            _process: process,
            _modules: modules,
            url,
            _dir: dir,
        })
    }
}

async fn serve_module(name: &str) -> Result<Server> {
    let module = bytes_of(name)?;
    let respond = Arc::new(move |_: &_, _| response(200, "application/wasm", module.clone()));
    Server::start(0, respond).await
}

fn bytes_of(name: &str) -> Result<Vec<u8>> {
    weir_stack::wasm::ensure_filters()?;
    shop::module(name)
}

/// The control plane's certificates, which it generates.
fn certificates(program: &Path, dir: &Path) -> Result<PathBuf> {
    let mut certgen = Command::new(program);
    certgen
        .args(["certgen", "--local", "--config-home"])
        .arg(dir);
    command::succeed(certgen.env("HOME", dir), CERTIFICATES_LIMIT)?;
    Ok(dir.join("certs/envoy"))
}

/// Provides the Envoy binary, which Envoy Gateway would otherwise download.
fn put_envoy(dir: &Path) -> Result<()> {
    let tool = tools::Envoy::find_or_get(&Options::default(), &mut SilentReporter)?;
    let bin = dir.join(format!("data/envoy-versions/{}/bin", tools::ENVOY_VERSION));
    std::fs::create_dir_all(&bin)?;
    std::os::unix::fs::symlink(tool.path, bin.join("envoy"))?;
    Ok(())
}

fn manifest(stack: &Stack, port: u16, modules: &Server, certificates: &Path) -> Result<String> {
    let places = Places::of(stack)?
        .and(
            "http, protocol: HTTP, port: 80 }",
            format!("http, protocol: HTTP, port: {port} }}"),
        )
        .and(
            "http://modules.weir.svc.cluster.local/",
            format!("http://{}/", modules.address()),
        )
        .and(
            "{ name: weir-origin, port: 8080 }",
            "{ group: gateway.envoyproxy.io, kind: Backend, name: weir-origin }",
        );
    let text = places.put_into("envoy-gateway.yaml")?;
    let mut all = super::documents(&text)?;
    let host = json!({ "type": "Host", "host": { "envoyVersion": tools::ENVOY_VERSION } });
    let proxy = all
        .iter_mut()
        .find(|resource| resource["kind"] == "EnvoyProxy");
    proxy.context("no EnvoyProxy")?["spec"]["provider"] = host;
    all.extend([
        origin(port_of(&stack.origin_url())?),
        of_this_machine(certificates),
        client_certificate(certificates)?,
    ]);
    let all: Vec<String> = all.iter().map(Value::to_string).collect();
    Ok(all.join("\n---\n"))
}

fn origin(port: u16) -> Value {
    json!({
        "apiVersion": "gateway.envoyproxy.io/v1alpha1", "kind": "Backend",
        "metadata": { "name": "weir-origin", "namespace": "weir" },
        "spec": { "endpoints": [{ "ip": { "address": "127.0.0.1", "port": port } }] },
    })
}

/// The source of modules for Envoy: the control plane's service name resolves only in a cluster.
fn of_this_machine(certificates: &Path) -> Value {
    let cluster = "type.googleapis.com/envoy.config.cluster.v3.Cluster";
    let replace = |path: &str, value: Value| {
        json!({
            "type": cluster, "name": "wasm_cluster",
            "operation": { "op": "replace", "path": path, "value": value },
        })
    };
    let address =
        "/load_assignment/endpoints/0/lb_endpoints/0/endpoint/address/socket_address/address";
    let trusted =
        "/transport_socket/typed_config/common_tls_context/validation_context/trusted_ca/filename";
    json!({
        "apiVersion": "gateway.envoyproxy.io/v1alpha1", "kind": "EnvoyPatchPolicy",
        "metadata": { "name": "this-machine", "namespace": "weir" },
        "spec": {
            "targetRef": { "group": "gateway.networking.k8s.io", "kind": "Gateway", "name": "shop" },
            "type": "JSONPatch",
            "jsonPatches": [
                replace(address, json!("127.0.0.1")),
                replace(trusted, json!(certificates.join("ca.crt"))),
            ],
        },
    })
}

/// The client certificate, which an installation generates in a cluster.
fn client_certificate(certificates: &Path) -> Result<Value> {
    let of = |file: &str| -> Result<String> {
        Ok(STANDARD.encode(std::fs::read(certificates.join(file))?))
    };
    Ok(json!({
        "apiVersion": "v1", "kind": "Secret", "type": "kubernetes.io/tls",
        "metadata": { "name": "envoy", "namespace": "envoy-gateway-system" },
        "data": { "tls.crt": of("tls.crt")?, "tls.key": of("tls.key")?, "ca.crt": of("ca.crt")? },
    }))
}

fn start(program: &Path, stack: &Stack, dir: &Path) -> Result<Process> {
    let at = |name: &str| dir.join(name);
    let settings = json!({
        "apiVersion": "gateway.envoyproxy.io/v1alpha1", "kind": "EnvoyGateway",
        "gateway": { "controllerName": "gateway.envoyproxy.io/gatewayclass-controller" },
        "provider": { "type": "Custom", "custom": {
            "resource": { "type": "File", "file": { "paths": [at("config")] } },
            "infrastructure": { "type": "Host", "host": {
                "configHome": dir, "dataHome": at("data"), "stateHome": at("state"), "runtimeDir": at("run"),
            } },
        } },
        "extensionApis": { "enableEnvoyPatchPolicy": true, "enableBackend": true },
    });
    std::fs::write(at("settings.yaml"), settings.to_string())?;
    let (program, secrets, dir) = (program.to_owned(), shop::secrets(stack), dir.to_owned());
    Process::start("envoy-gateway", &at("envoy-gateway.log"), move || {
        let mut server = Command::new(&program);
        server
            .args(["server", "--config-path"])
            .arg(dir.join("settings.yaml"));
        server.env("HOME", &dir).envs(&secrets);
        server
    })
}

#[tokio::test(flavor = "multi_thread")]
async fn sale_works_behind_envoy_gateway() -> Result<()> {
    let program = match envoy_gateway() {
        Ok(program) => program,
        Err(error) => {
            println!("left out: 1 test of Envoy Gateway ({error:#})");
            return Ok(());
        }
    };
    let _alone = workspace::lock("envoy-gateway")?;
    for port in OWN_PORTS {
        ports::check(port, "no flag: Envoy Gateway has it fixed")?;
    }
    let mut stack = Stack::builder().key_prefix("eg").start().await?;
    let gateway = Gateway::start(&program, &stack).await?;
    shop::sells(&mut stack, &gateway.url).await
}
