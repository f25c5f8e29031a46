//! Kubernetes' API server with etcd, without nodes: it validates and stores objects, and runs none.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result};
use serde_json::{Value, json};

use crate::command::{self, CommandOutput};
use crate::ports;
use crate::process::Process;
use crate::tools::ApiServerTools;

const READY_LIMIT: Duration = Duration::from_secs(60);
const LIMIT: Duration = Duration::from_secs(60);

/// The administrator's token.
const ADMIN_TOKEN: &str = "weir-test-admin";

/// A running API server. Dropping it stops it.
#[derive(Debug)]
pub struct ApiServer {
    port: u16,
    kubectl: PathBuf,
    dir: PathBuf,
    api: Process,
    _etcd: Process,
}

impl ApiServer {
    /// Starts an API server with RBAC and its data in `dir`, and waits until the namespace `default` exists. Each of
    /// `users` is a name with a bearer token; they have no permissions yet.
    ///
    /// # Errors
    /// A program does not start.
    pub async fn start(tools: &ApiServerTools, dir: &Path, users: &[(&str, &str)]) -> Result<Self> {
        std::fs::create_dir_all(dir).with_context(|| format!("cannot create {}", dir.display()))?;
        let mut tokens = format!("{ADMIN_TOKEN},admin,admin,system:masters\n");
        for (name, token) in users {
            tokens += &format!("{token},\"{name}\",\"{name}\"\n");
        }
        std::fs::write(dir.join("tokens.csv"), tokens)?;
        let (etcd, clients) = start_etcd(tools, dir)?;
        let port = ports::free()?;
        let api = start_api(tools, dir, port, &clients)?;
        let mut server = Self {
            port,
            kubectl: tools.kubectl(),
            dir: dir.to_path_buf(),
            api,
            _etcd: etcd,
        };
        let config = config(&server.url(), &server.ca(), ADMIN_TOKEN);
        std::fs::write(server.config(), config.to_string())?;
        server.wait_ready().await?;
        Ok(server)
    }

    async fn wait_ready(&mut self) -> Result<()> {
        let (program, config) = (self.kubectl.clone(), self.config());
        let is_ready = || {
            let mut get = kubectl(&program, &config);
            let done = command::run(get.args(["get", "namespace", "default"]), LIMIT);
            std::future::ready(done.is_ok_and(|output| output.status.success()))
        };
        self.api.wait_ready(READY_LIMIT, is_ready).await
    }

    /// The configuration of an administrator, for kubectl and helm.
    pub fn config(&self) -> PathBuf {
        self.dir.join("config.json")
    }

    /// `https://127.0.0.1:<port>`.
    pub fn url(&self) -> String {
        format!("https://127.0.0.1:{}", self.port)
    }

    /// The CA of its certificate.
    pub fn ca(&self) -> PathBuf {
        self.dir.join("certificates/apiserver.crt")
    }

    /// Runs kubectl as an administrator.
    ///
    /// # Errors
    /// It does not end in time.
    pub fn kubectl(&self, arguments: &[&str]) -> Result<CommandOutput> {
        let mut program = kubectl(&self.kubectl, &self.config());
        command::run(program.args(arguments), LIMIT)
    }

    /// Runs kubectl with this token.
    ///
    /// # Errors
    /// It does not end in time.
    pub fn kubectl_as(&self, token: &str, arguments: &[&str]) -> Result<CommandOutput> {
        self.kubectl(&[&["--token", token][..], arguments].concat())
    }
}

fn kubectl(program: &Path, config: &Path) -> Command {
    let mut kubectl = Command::new(program);
    kubectl.arg("--kubeconfig").arg(config);
    // Its cache.
    kubectl.env("HOME", config.parent().unwrap_or(config));
    kubectl
}

fn config(server: &str, ca: &Path, token: &str) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{ "name": "test", "cluster": { "server": server, "certificate-authority": ca } }],
        "users": [{ "name": "test", "user": { "token": token } }],
        "contexts": [{ "name": "test", "context": { "cluster": "test", "user": "test" } }],
        "current-context": "test",
    })
}

/// Returns etcd and the URL for its clients.
fn start_etcd(tools: &ApiServerTools, dir: &Path) -> Result<(Process, String)> {
    let clients = format!("http://127.0.0.1:{}", ports::free()?);
    let peers = format!("http://127.0.0.1:{}", ports::free()?);
    let (binary, data, url) = (tools.etcd(), dir.join("etcd"), clients.clone());
    let etcd = Process::start("etcd", &dir.join("etcd.log"), move || {
        let mut etcd = Command::new(&binary);
        etcd.arg("--data-dir").arg(&data).arg("--unsafe-no-fsync");
        etcd.args(["--listen-client-urls", &url]);
        etcd.args(["--advertise-client-urls", &url]);
        etcd.args(["--listen-peer-urls", &peers]);
        etcd
    })?;
    Ok((etcd, clients))
}

fn start_api(tools: &ApiServerTools, dir: &Path, port: u16, etcd: &str) -> Result<Process> {
    let key = dir.join("accounts.key");
    let mut generate = Command::new("openssl");
    generate.args(["genrsa", "-out"]).arg(&key).arg("2048");
    command::succeed(&mut generate, LIMIT)?;
    let (binary, dir, etcd) = (tools.api_server(), dir.to_path_buf(), etcd.to_owned());
    Process::start("kube-apiserver", &dir.join("api.log"), move || {
        let mut api = Command::new(&binary);
        api.args(["--etcd-servers", &etcd])
            .args(["--bind-address", "127.0.0.1"])
            .args(["--secure-port", &port.to_string()])
            // It writes its own certificate here.
            .arg("--cert-dir")
            .arg(dir.join("certificates"))
            .args(["--authorization-mode", "RBAC"])
            .arg("--token-auth-file")
            .arg(dir.join("tokens.csv"))
            .args(["--service-account-issuer", "https://kubernetes.default.svc"])
            .arg("--service-account-key-file")
            .arg(&key)
            .arg("--service-account-signing-key-file")
            .arg(&key)
            .args(["--service-cluster-ip-range", "10.0.0.0/24"])
            // No controller creates the account that pods need.
            .args(["--disable-admission-plugins", "ServiceAccount"]);
        api
    })
}
