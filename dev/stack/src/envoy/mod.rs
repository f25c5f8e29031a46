//! Stock Envoy with a configuration of this workspace.

mod config;
mod tree;

pub use config::{
    EVENTS, EnvoyConfig, FITMENT, GATE, HOLD_HEADER, LIMITER, LINKS, ROOM, SHIPPED_ADMIN_PORT,
    SHIPPED_GATEWAY_PORT, native_filter, worker_socket,
};
pub use tree::{set, socket_address};

use crate::process::{DiedChild, Process};
use crate::tools::Clock;
use crate::{command, http, tools};
use anyhow::{Context, Result};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

/// Mostly for compiling the filters: 1 s on an idle core.
const READY_LIMIT: Duration = Duration::from_secs(60);
const VALIDATE_LIMIT: Duration = Duration::from_secs(60);

/// The options of an Envoy process.
#[derive(Debug, Clone)]
pub struct EnvoyOptions {
    /// The configuration.
    pub config: EnvoyConfig,
    /// Worker threads (`--concurrency`).
    pub workers: u32,
    /// `trace`, `debug`, `info`, `warning`, `error`, `critical` or `off`.
    pub log_level: String,
    /// Variables in addition to our own environment. They carry secrets to the filters.
    pub variables: Vec<(String, String)>,
    /// Runs it with its own clock, this many milliseconds ahead of the machine's; behind if negative. Timers are
    /// unaffected.
    pub clock_ahead_ms: Option<i64>,
    /// How long a replaced listener keeps draining, in seconds (`--drain-time-s`); 600 unless set.
    pub drain_s: Option<u32>,
    /// The folder for the rendered `envoy.json` and `envoy.log`.
    pub dir: PathBuf,
}

/// A running Envoy.
#[derive(Debug)]
pub struct Envoy {
    process: Process,
    clock: Option<Clock>,
    gateway_port: u16,
    admin_port: u16,
}

impl Envoy {
    /// Starts Envoy and waits until it is live.
    ///
    /// If it refuses its configuration or exits, the error contains the end of its log.
    pub async fn start(tool: &tools::Envoy, options: &EnvoyOptions) -> Result<Self> {
        let file = write_config(&options.config, &options.dir)?;
        let log = options.dir.join("envoy.log");
        let clock = options.clock_ahead_ms;
        let clock = clock.map(|ahead_ms| Clock::new(&options.dir.join("clock"), ahead_ms));
        let clock = clock.transpose()?;
        let (binary, mut input) = (tool.path.clone(), options.clone());
        input
            .variables
            .extend(clock.iter().flat_map(Clock::variables));
        let process = Process::start("envoy", &log, move || command(&binary, &file, &input))?;
        let mut envoy = Self {
            process,
            clock,
            gateway_port: options.config.chosen_gateway_port(),
            admin_port: options.config.chosen_admin_port(),
        };
        envoy.wait_ready().await?;
        Ok(envoy)
    }

    /// `http://127.0.0.1:<port>` of the gateway.
    pub fn url(&self) -> String {
        format!("http://127.0.0.1:{}", self.gateway_port)
    }

    /// `http://127.0.0.1:<port>` of the admin interface.
    pub fn admin_url(&self) -> String {
        format!("http://127.0.0.1:{}", self.admin_port)
    }

    /// Sets its [own clock](EnvoyOptions::clock_ahead_ms) while it runs.
    pub fn set_clock(&self, ahead_ms: i64) -> Result<()> {
        let clock = self.clock.as_ref();
        clock
            .context("Envoy has the machine's clock")?
            .set(ahead_ms)
    }

    /// The process: stop it, kill it, read its log.
    pub fn process(&mut self) -> &mut Process {
        &mut self.process
    }

    /// Starts it again on the same ports after its process was stopped.
    pub async fn start_again(&mut self) -> Result<()> {
        self.process.start_again()?;
        self.wait_ready().await
    }

    /// All counters and gauges by name.
    pub async fn stats(&self) -> Result<BTreeMap<String, u64>> {
        let url = format!("{}/stats?format=json", self.admin_url());
        Ok(parse_stats(&http::get(&url).await?.json()?))
    }

    /// One counter or gauge; 0 if it does not exist, because Envoy creates some only at their first increment.
    pub async fn stat(&self, name: &str) -> Result<u64> {
        Ok(self.stats().await?.get(name).copied().unwrap_or(0))
    }

    /// Returns an error if Envoy ended unexpectedly.
    pub fn check(&mut self) -> Result<(), DiedChild> {
        self.process.check()
    }

    async fn wait_ready(&mut self) -> Result<()> {
        let url = format!("{}/ready", self.admin_url());
        self.process
            .wait_ready(READY_LIMIT, || http::is_ok(&url))
            .await
    }
}

/// Validates `config` without running it (`--mode validate`). The error contains Envoy's message.
pub fn validate(tool: &tools::Envoy, options: &EnvoyOptions) -> Result<()> {
    let file = write_config(&options.config, &options.dir)?;
    let mut command = command(&tool.path, &file, options);
    command.args(["--mode", "validate"]);
    command::succeed(&mut command, VALIDATE_LIMIT)?;
    Ok(())
}

fn write_config(config: &EnvoyConfig, dir: &Path) -> Result<PathBuf> {
    let file = dir.join("envoy.json");
    let text = config.render()?;
    std::fs::create_dir_all(dir)
        .and_then(|()| std::fs::write(&file, text))
        .with_context(|| format!("cannot write {}", file.display()))?;
    Ok(file)
}

fn command(binary: &Path, config: &Path, options: &EnvoyOptions) -> Command {
    let mut command = Command::new(binary);
    command
        .arg("--config-path")
        .arg(config)
        .args(["--concurrency", &options.workers.to_string()])
        .args(["--log-level", &options.log_level])
        // Two Envoys on one machine would share the memory for hot restarts.
        .arg("--disable-hot-restart")
        .envs(options.variables.iter().map(|(name, value)| (name, value)));
    if let Some(drain_s) = options.drain_s {
        command.args(["--drain-time-s", &drain_s.to_string()]);
    }
    command
}

/// Parses `{"stats": [{"name": …, "value": …}, …]}` without histograms, which are not numbers.
fn parse_stats(json: &serde_json::Value) -> BTreeMap<String, u64> {
    let stats = json["stats"]
        .as_array()
        .map(Vec::as_slice)
        .unwrap_or_default();
    let parse = |stat: &serde_json::Value| {
        let name = stat["name"].as_str()?;
        Some((name.to_owned(), stat["value"].as_u64()?))
    };
    stats.iter().filter_map(parse).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_are_read_and_histograms_skipped() {
        let json = serde_json::json!({"stats": [
            {"name": "server.live", "value": 1},
            {"histograms": {"supported_quantiles": [0.5]}},
        ]});
        let stats = parse_stats(&json);
        assert_eq!(stats.get("server.live"), Some(&1));
        assert_eq!(stats.len(), 1);
    }

    const MINIMAL: &str = r#"
        admin:
          address: { socket_address: { address: 127.0.0.1, port_value: 9901 } }
        static_resources: {}
        "#;

    fn minimal(text: &str, dir: &Path) -> EnvoyOptions {
        let port = crate::ports::free().unwrap();
        EnvoyOptions {
            clock_ahead_ms: None,
            drain_s: None,
            config: EnvoyConfig::parse(text)
                .and_then(|config| config.admin_port(port))
                .unwrap(),
            workers: 1,
            log_level: "info".to_owned(),
            variables: Vec::new(),
            dir: dir.to_path_buf(),
        }
    }

    fn tool() -> tools::Envoy {
        let options = tools::Options::default();
        tools::Envoy::find_or_get(&options, &mut crate::report::SilentReporter).unwrap()
    }

    #[tokio::test]
    async fn envoy_starts_serves_stats_and_restarts() {
        let temp = tempfile::tempdir().unwrap();
        let options = minimal(MINIMAL, temp.path());
        validate(&tool(), &options).unwrap();
        let mut envoy = Envoy::start(&tool(), &options).await.unwrap();
        assert_eq!(envoy.stat("server.live").await.unwrap(), 1);
        envoy.process().stop();
        envoy.start_again().await.unwrap();
        envoy.check().unwrap();
    }

    #[tokio::test]
    async fn refused_config_is_an_error_with_the_reason_of_envoy() {
        let temp = tempfile::tempdir().unwrap();
        let broken = format!("{MINIMAL}no_such_field: 1");
        let options = minimal(&broken, temp.path());
        for error in [
            validate(&tool(), &options).unwrap_err(),
            Envoy::start(&tool(), &options).await.unwrap_err(),
        ] {
            assert!(error.to_string().contains("no_such_field"), "{error}");
        }
    }

    /// Fails if the file no longer contains a text that an edit replaces.
    #[test]
    fn shipped_config_is_accepted_with_everything_replaced() {
        crate::wasm::ensure_filters().unwrap();
        let temp = tempfile::tempdir().unwrap();
        let config = EnvoyConfig::shipped()
            .unwrap()
            .gateway_port(crate::ports::free().unwrap())
            .and_then(|config| config.admin_port(crate::ports::free()?))
            .and_then(|config| config.origin(([127, 0, 0, 1], 1).into()))
            .and_then(|config| config.redis("127.0.0.1", 2)?.key_prefix("t1"))
            .unwrap();
        let options = EnvoyOptions {
            clock_ahead_ms: None,
            drain_s: None,
            config,
            variables: ["WEIR_CLAIM_SECRET", "WEIR_TOKEN_SECRET"]
                .map(|name| (name.to_owned(), "00".repeat(32)))
                .into(),
            ..minimal(MINIMAL, temp.path())
        };
        validate(&tool(), &options).unwrap();
    }
}
