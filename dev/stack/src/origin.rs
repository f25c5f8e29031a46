//! The origin as a child process.

use crate::process::{DiedChild, Process};
use crate::report::SilentReporter;
use crate::secrets::Secrets;
use crate::tools::Musl;
use crate::{build, command, edge, http, provider, workspace};
use anyhow::Result;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

const NAME: &str = "weir-origin";
/// The profile that operators use.
pub const RELEASE: [&str; 1] = ["--release"];

const READY_LIMIT: Duration = Duration::from_secs(30);

/// Builds `weir-origin` if it isn't up to date and returns its binary.
pub fn ensure_built() -> Result<PathBuf> {
    build::binary(NAME, &[], None)
}

/// As [`ensure_built`] with the Kafka event log, with no profile or [`RELEASE`].
pub fn ensure_built_with_kafka(profile: &[&str]) -> Result<PathBuf> {
    build::binary(NAME, profile, Some("weir-origin/kafka"))
}

/// As [`ensure_built`] with the release profile, for measurements of the origin itself.
pub fn ensure_built_release() -> Result<PathBuf> {
    build::binary(NAME, &RELEASE, None)
}

/// The shipped binary's features in addition to the default ones: event archives, the cold store in Cassandra, and
/// Kafka. It has no TLS to Kafka, which needs the system's OpenSSL.
pub const SHIPPED_FEATURES: &str = "archive,cql,kafka";

/// Builds `weir-origin` for operators: one static binary with [`SHIPPED_FEATURES`].
pub fn ensure_built_static() -> Result<PathBuf> {
    let musl = Musl::find_or_get(&mut SilentReporter)?;
    let _lock = workspace::lock("static-origin")?;
    let mut cargo = command::cargo();
    // As a separate build: together with other members, cargo would compile their dependencies for this target, too.
    cargo
        .args(["build", "--quiet", "--locked", "--profile", "shipped"])
        .args(["--package", NAME, "--bin", NAME])
        .args(["--features", SHIPPED_FEATURES])
        .args(["--target", &musl.target])
        .envs([musl.variable()]);
    build::binary_of(cargo, NAME)
}

/// The options of an origin process.
#[derive(Debug, Clone)]
pub struct OriginOptions {
    /// The port on 127.0.0.1 for orders from gateways.
    pub port: u16,
    /// The port on 127.0.0.1 of the admin routes.
    pub admin_port: u16,
    /// The SQLite file; created if missing.
    pub database: PathBuf,
    /// The Redis URL; a cluster's nodes comma-separated.
    pub redis_url: String,
    /// The authority of Redis' certificate, in PEM, if it is not one of the system's.
    pub redis_ca: Option<PathBuf>,
    /// What every key in Redis starts with.
    pub key_prefix: String,
    /// The rules of the risk check; `None` disables it.
    pub risk_rules: Option<PathBuf>,
    /// The JSON file with the domains of short links; `None` disables them. The log of new links is next to the
    /// database.
    pub links: Option<PathBuf>,
    /// The folder of the event log; `None` disables events and browse history.
    pub events_log: Option<PathBuf>,
    /// The folder of vehicle fitment imports; `None` disables fitment.
    pub fitment: Option<PathBuf>,
    /// The secret that signs feeds for edges; `None` disables them.
    pub edge_secret: Option<String>,
    /// The port on 127.0.0.1 of the payment provider.
    pub provider_port: u16,
    /// Further flags.
    pub flags: Vec<String>,
    /// The secrets shared with the gateway and operators.
    pub secrets: Secrets,
}

/// A running origin.
#[derive(Debug)]
pub struct Origin {
    process: Process,
    options: OriginOptions,
}

impl Origin {
    /// Starts `binary` and waits until it is ready.
    pub async fn start(binary: &Path, options: OriginOptions, log: &Path) -> Result<Self> {
        let (binary, input) = (binary.to_path_buf(), options.clone());
        let process = Process::start("origin", log, move || origin_command(&binary, &input))?;
        let mut origin = Self { process, options };
        origin.wait_ready().await?;
        Ok(origin)
    }

    /// `http://127.0.0.1:<port>` for orders from gateways.
    pub fn url(&self) -> String {
        format!("http://127.0.0.1:{}", self.options.port)
    }

    /// The address of that URL.
    pub fn address(&self) -> SocketAddr {
        ([127, 0, 0, 1], self.options.port).into()
    }

    /// `http://127.0.0.1:<admin port>`.
    pub fn admin_url(&self) -> String {
        format!("http://127.0.0.1:{}", self.options.admin_port)
    }

    /// The SQLite file.
    pub fn database(&self) -> &Path {
        &self.options.database
    }

    /// The process: stop it, kill it, read its log.
    pub fn process(&mut self) -> &mut Process {
        &mut self.process
    }

    /// Starts it again on the same ports with the same data, after its process was stopped.
    pub async fn start_again(&mut self) -> Result<()> {
        self.process.start_again()?;
        self.wait_ready().await
    }

    /// Returns an error if it ended unexpectedly.
    pub fn check(&mut self) -> Result<(), DiedChild> {
        self.process.check()
    }

    async fn wait_ready(&mut self) -> Result<()> {
        let url = format!("{}/readyz", self.admin_url());
        self.process
            .wait_ready(READY_LIMIT, || http::is_ok(&url))
            .await
    }
}

/// The variable with the secret that signs click IDs, at origin and gateways.
pub const CLICK_SECRET: &str = "WEIR_LINK_CLICK_SECRET";

fn origin_command(binary: &Path, options: &OriginOptions) -> Command {
    let mut command = Command::new(binary);
    command
        .arg("--listen")
        .arg(format!("127.0.0.1:{}", options.port))
        .arg("--admin-listen")
        .arg(format!("127.0.0.1:{}", options.admin_port))
        .arg("--database-url")
        .arg(format!("sqlite://{}", options.database.display()))
        .args(["--key-prefix", &options.key_prefix])
        // It may contain a password.
        .env("WEIR_REDIS_URL", &options.redis_url)
        .env("WEIR_CLAIM_SECRET", &options.secrets.claim)
        .env("WEIR_PAYMENT_SECRET", &options.secrets.payment)
        .args(["--payment-key-id", provider::KEY_ID])
        .args(["--payment-url", &provider::pay_url(options.provider_port)])
        .env("WEIR_ADMIN_TOKEN", &options.secrets.admin_token)
        // Used if the flags include a webhook.
        .env("WEIR_EVENTS_WEBHOOK_SECRET", &options.secrets.events)
        .env("WEIR_ORDERS_WEBHOOK_SECRET", &options.secrets.events)
        .env("WEIR_LINKS_WEBHOOK_SECRET", &options.secrets.events);
    if !options.secrets.events.is_empty() {
        command.env(CLICK_SECRET, &options.secrets.events);
    }
    command.args(&options.flags);
    if let Some(secret) = &options.edge_secret {
        command.env(edge::SECRET, secret);
    }
    if let Some(rules) = &options.risk_rules {
        command.arg("--risk-rules").arg(rules);
    }
    if let Some(links) = &options.links {
        command.arg("--links").arg(links);
        let log = options.database.with_extension("links-log");
        command.arg("--links-log").arg(log);
    }
    if let Some(log) = &options.events_log {
        command.arg("--events-log").arg(log).arg("--history");
    }
    if let Some(spool) = &options.fitment {
        command.arg("--fitment").arg(spool);
    }
    if let Some(ca) = &options.redis_ca {
        command.env("SSL_CERT_FILE", ca);
    }
    command
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_are_never_passed_as_arguments() {
        let options = OriginOptions {
            port: 1,
            admin_port: 2,
            database: PathBuf::from("/d/weir.db"),
            redis_url: "redis://:hush@127.0.0.1:3".to_owned(),
            redis_ca: None,
            key_prefix: "weir".to_owned(),
            risk_rules: None,
            links: None,
            events_log: None,
            fitment: None,
            edge_secret: Some("sealed".repeat(6)),
            provider_port: 4,
            flags: vec![],
            secrets: Secrets::random().unwrap(),
        };
        let displayed = command::show(&origin_command(Path::new("weir-origin"), &options));
        assert!(displayed.contains("sqlite:///d/weir.db"), "{displayed}");
        assert!(!displayed.contains(&options.secrets.claim), "{displayed}");
        assert!(!displayed.contains(&options.secrets.payment), "{displayed}");
        assert!(
            !displayed.contains(&options.secrets.admin_token),
            "{displayed}"
        );
        assert!(!displayed.contains("hush"), "{displayed}");
        assert!(!displayed.contains("sealed"), "{displayed}");
    }
}
