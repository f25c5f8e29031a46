//! A gateway of the chart as a local process.

use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use anyhow::{Context, Result, ensure};
use weir_dist::five_minutes::Parts;
use weir_stack::envoy::{EnvoyConfig, socket_address};
use weir_stack::http::{self, Method};
use weir_stack::native::Host;
use weir_stack::process::Process;
use weir_stack::report::Console;
use weir_stack::sale::known_at;
use weir_stack::tools::{self, Options};
use weir_stack::{command, ports};

use super::{Manifests, PROBE, READY_LIMIT, texts};

/// A gateway, started by the command of its container.
pub(super) struct Gateway {
    process: Process,
    /// Its address for clients.
    pub(super) address: String,
    /// The URL of its readiness probe.
    pub(super) ready: String,
    pre_stop: Vec<String>,
}

impl Gateway {
    /// Starts it with this Redis and these origins, and checks its metrics.
    pub(super) async fn start(
        manifests: &Manifests,
        filters: &Path,
        dir: &Path,
        redis: u16,
        origins: &[SocketAddr],
    ) -> Result<Self> {
        std::fs::create_dir_all(dir)?;
        let parts = manifests.parts(filters, dir)?;
        let (port, admin, metrics) = (ports::free()?, ports::free()?, ports::free()?);
        let file = dir.join("envoy.json");
        std::fs::write(&file, configuration(&parts, port, admin, redis, origins)?)?;
        let container = manifests.gateway()?;
        let mut arguments = texts(&container["command"])?.split_off(1);
        for argument in &mut arguments {
            if argument == "/weir/config/envoy.yaml" {
                *argument = file.display().to_string();
            }
            if argument.contains("static_resources") {
                *argument = argument.replace("9901", &admin.to_string());
                *argument = argument.replace("9902", &metrics.to_string());
            }
        }
        let pre_stop = texts(&container["lifecycle"]["preStop"]["exec"]["command"])?;
        let pre_stop = pre_stop.into_iter();
        let pre_stop = pre_stop.map(|text| text.replace("/9901", &format!("/{admin}")));
        let envoy = tools::Envoy::find_or_get(&Options::default(), &mut Console)?;
        let process = Process::start("envoy", &dir.join("envoy.log"), move || {
            let mut command = Command::new(&envoy.path);
            command.env_clear().envs(parts.gateway.iter().cloned());
            command.args(&arguments);
            command
        })?;
        let probe = &container["readinessProbe"]["httpGet"]["path"];
        let probe = probe.as_str().context("no probe")?;
        let mut gateway = Self {
            process,
            address: format!("127.0.0.1:{port}"),
            ready: format!("http://127.0.0.1:{metrics}{probe}"),
            pre_stop: pre_stop.collect(),
        };
        gateway.wait_ready().await?;
        gateway.check_metrics(metrics).await?;
        Ok(gateway)
    }

    async fn wait_ready(&mut self) -> Result<()> {
        let ready = self.ready.clone();
        let is_ready = || http::is_ok(&ready);
        self.process.wait_ready(READY_LIMIT, is_ready).await
    }

    /// The metrics listener serves metrics, and nothing else of the admin port.
    async fn check_metrics(&self, port: u16) -> Result<()> {
        let url = |path: &str| format!("http://127.0.0.1:{port}{path}");
        let metrics = http::get(&url("/stats/prometheus")).await?.text();
        ensure!(metrics.contains("envoy_server_live"), "{metrics}");
        let hidden = [
            "/",
            "/stats",
            "/config_dump",
            "/stats/prometheus/../../config_dump",
        ];
        for path in hidden {
            let answer = http::get(&url(path)).await?;
            ensure!(answer.status == 404, "{path}: {answer:?}");
        }
        for path in ["/quitquitquit", "/healthcheck/fail", "/ready"] {
            let answer = http::send(Method::POST, &url(path), &[], "").await?;
            ensure!(answer.status == 404, "{path}: {answer:?}");
        }
        Ok(())
    }

    /// Runs the hook, stops it with SIGTERM, and starts it again.
    pub(super) async fn replace(&mut self) -> Result<()> {
        let probe = self.ready.clone();
        let mut hook = Command::new(&self.pre_stop[0]);
        hook.args(&self.pre_stop[1..]);
        let limit = Duration::from_secs(30);
        let hook = tokio::task::spawn_blocking(move || command::succeed(&mut hook, limit));
        tokio::time::sleep(Duration::from_secs(1)).await;
        ensure!(!http::is_ok(&probe).await, "it drains and is ready");
        hook.await??;
        tokio::task::block_in_place(|| self.process.stop());
        self.process.start_again()?;
        self.wait_ready().await?;
        known_at(&format!("http://{}", self.address), "s").await?;
        tokio::time::sleep(PROBE * 2).await;
        Ok(())
    }
}

/// The rendered configuration on this machine: with its ports, and these origins.
fn configuration(
    parts: &Parts,
    port: u16,
    admin: u16,
    redis: u16,
    origins: &[SocketAddr],
) -> Result<String> {
    let config = EnvoyConfig::parse(&parts.envoy)?
        .host(Host::Wasm)
        .gateway_port(port)?
        .admin_port(admin)?
        .redis("127.0.0.1", redis)?
        .edit_cluster("origin", |cluster| {
            let endpoints = &mut cluster["load_assignment"]["endpoints"][0]["lb_endpoints"];
            let first = endpoints[0].clone();
            let all = origins.iter().map(|origin| {
                let mut endpoint = first.clone();
                endpoint["endpoint"]["address"] = socket_address(*origin);
                endpoint
            });
            *endpoints = all.collect();
            Ok(())
        })?;
    config.render()
}
