//! `weir-origin doctor`: checks a setup before it goes live.
//!
//! It collects facts, and [`weir_doctor`] evaluates them. It changes nothing and prints no secret.

mod redis;
mod settings;
mod sql;

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use anyhow::{Context, Result};
use axum::http::Method;
use clap::Args;
use hyper::body::Bytes;
use serde::Serialize;
use weir_doctor::facts::{GatewayEnvironment, NamedKey, TlsTarget};
use weir_doctor::{
    Diagnostic, Envoy, Severity, Subject, examine, redis_logins, redis_tls, uses_redis,
};

use crate::config::Config;
use crate::failure::one_line;
use crate::http::client::HttpClient;
use crate::secret::Variables;
use crate::variables::IdleVariable;

pub(crate) use settings::read as settings;

/// Maximum bytes of an admin port's configuration dump. A gateway with thousands of routes produces a few megabytes.
const DUMP_LEN_MAX: usize = 256 << 20;

/// Exit codes: only warnings, and errors.
const WARNINGS: u8 = 1;
const ERRORS: u8 = 2;

const AFTER_HELP: &str = "\
Exit codes: 0 without findings, 1 with warnings only, 2 with errors. Pass the origin's flags before `doctor`, and its secrets in
the environment, exactly as for serving. Without --envoy and --envoy-admin, only the origin, Redis and SQL are checked.
docs/doctor.md describes each check.";

/// Arguments of `doctor`.
#[derive(Clone, Debug, Args)]
#[command(after_help = AFTER_HELP)]
pub struct DoctorCommand {
    /// Envoy configuration: YAML, JSON, or the output of /config_dump
    #[arg(long, value_name = "FILE", conflicts_with = "envoy_admin")]
    pub envoy: Option<PathBuf>,

    /// Admin URL of a running Envoy, such as http://127.0.0.1:9901
    #[arg(long, value_name = "URL")]
    pub envoy_admin: Option<String>,

    /// Environment of Envoy, as lines of NAME=VALUE; needed to compare the secrets of both sides
    #[arg(long, value_name = "FILE")]
    pub gateway_env: Option<PathBuf>,

    /// Skip the checks that connect to Redis
    #[arg(long)]
    pub no_redis: bool,

    /// Skip the checks that connect to SQL
    #[arg(long)]
    pub no_sql: bool,

    /// Ignore the findings of this check; repeatable
    #[arg(long, value_name = "CHECK")]
    pub ignore: Vec<String>,

    /// Print JSON instead of one line per finding
    #[arg(long)]
    pub json: bool,
}

/// The JSON report.
#[derive(Serialize)]
struct Report<'a> {
    findings: &'a [Diagnostic],
    /// Fingerprints of the origin's claim secrets. Equal fingerprints on two machines mean equal secrets.
    claim_fingerprints: Vec<Fingerprint<'a>>,
    /// What the run examined.
    examined: &'a [String],
    /// What was not examined, and how to include it.
    not_examined: &'a [String],
}

#[derive(Serialize)]
struct Fingerprint<'a> {
    id: &'a str,
    fingerprint: &'a str,
}

/// Runs all checks, prints the findings, and returns the exit code. An input that cannot be read counts as an error
/// finding.
pub async fn run(config: &Config, command: &DoctorCommand, variables: Variables<'_>) -> ExitCode {
    let examined = look(config, command, variables).await;
    examined.unwrap_or_else(|error| {
        eprintln!("weir-origin doctor: {}", one_line(&error));
        ExitCode::from(ERRORS)
    })
}

async fn look(
    config: &Config,
    command: &DoctorCommand,
    variables: Variables<'_>,
) -> Result<ExitCode> {
    let mut examined = Vec::new();
    let envoy = envoy(command, &mut examined).await?;
    let gateway = command
        .gateway_env
        .as_deref()
        .map(environment)
        .transpose()?;
    let (origin, mut findings) = settings(config, variables);
    findings.extend(idle_variables(envoy.as_ref()));
    examined.push("the origin's settings".to_owned());
    let asks_redis = !command.no_redis && envoy.as_ref().is_none_or(uses_redis);
    let logins = match (&envoy, &gateway) {
        (Some(envoy), Some(gateway)) => redis_logins(envoy, gateway),
        _ => Vec::new(),
    };
    let redis = match asks_redis {
        true => {
            let response = redis::ask(&config.redis_url, &config.key_prefix, &logins).await;
            response.context("--redis-url")?
        }
        false => Vec::new(),
    };
    let targets = match (&envoy, asks_redis) {
        (Some(envoy), true) => redis_tls(envoy),
        _ => Vec::new(),
    };
    let (tls, elsewhere) = redis::shake_hands(targets).await;
    examined.extend(
        redis
            .iter()
            .map(|node| format!("Redis at {}", node.address)),
    );
    let sql = match command.no_sql {
        true => None,
        false => sql::ask(config).await,
    };
    examined.extend(sql.iter().map(|sql| sql.place.clone()));
    findings.extend(examine(&Subject {
        envoy: envoy.as_ref(),
        origin: Some(&origin),
        redis: &redis,
        sql: sql.as_ref(),
        gateway: gateway.as_ref(),
        tls: &tls,
    }));
    findings.retain(|finding| !command.ignore.iter().any(|check| check == finding.check));
    let keys = origin.claim_keys.as_deref().unwrap_or_default();
    let mut not_examined = not_examined(command, gateway.is_some(), asks_redis, sql.is_some());
    not_examined.extend(elsewhere.iter().map(|target| {
        let TlsTarget {
            address, ca_file, ..
        } = target;
        format!("TLS with {address}, because \"{ca_file}\" is not on this machine")
    }));
    print(command.json, &findings, keys, &examined, &not_examined)?;
    Ok(code(&findings))
}

/// Reports variables that neither the origin nor a filter reads.
fn idle_variables(envoy: Option<&Envoy>) -> Vec<Diagnostic> {
    let idle = crate::variables::idle(std::env::vars_os()).into_iter();
    let idle = idle.filter(|variable| envoy.is_none_or(|envoy| !envoy.mentions(&variable.name)));
    let finding = |variable: IdleVariable| {
        let IdleVariable { name, problem, fix } = variable;
        let place = "the origin's environment";
        Diagnostic::warning("variables", place, format!("{name} {problem}"), fix)
    };
    idle.map(finding).collect()
}

/// Lists what this run does not examine: no finding says nothing about these parts.
fn not_examined(
    command: &DoctorCommand,
    has_gateway: bool,
    asks_redis: bool,
    has_sql: bool,
) -> Vec<String> {
    let has_envoy = command.envoy.is_some() || command.envoy_admin.is_some();
    let left_out = [
        (
            !has_envoy,
            "the Envoy configuration (--envoy or --envoy-admin)",
        ),
        (
            has_envoy && !has_gateway,
            "the gateways' secrets and Redis logins (--gateway-env)",
        ),
        (command.no_redis, "Redis (--no-redis)"),
        (
            !asks_redis && !command.no_redis,
            "Redis, because no filter uses it",
        ),
        (command.no_sql, "SQL (--no-sql)"),
        (
            !has_sql && !command.no_sql,
            "SQL, whose file does not exist yet",
        ),
    ];
    let left_out = left_out.into_iter().filter(|(is_left_out, _)| *is_left_out);
    left_out.map(|(_, subject)| subject.to_owned()).collect()
}

async fn envoy(command: &DoctorCommand, examined: &mut Vec<String>) -> Result<Option<Envoy>> {
    let (name, text) = match (&command.envoy, &command.envoy_admin) {
        (Some(path), _) => {
            let text = read(path).context("--envoy")?;
            (path.display().to_string(), text)
        }
        (None, Some(url)) => {
            let text = dump(url).await;
            (
                url.clone(),
                text.with_context(|| format!("--envoy-admin: {url}"))?,
            )
        }
        (None, None) => return Ok(None),
    };
    let envoy = Envoy::read(&text).with_context(|| name.clone())?;
    examined.push(format!("Envoy's configuration, {name}"));
    Ok(Some(envoy))
}

async fn dump(url: &str) -> Result<String> {
    let client = HttpClient::new(url, None)?;
    let path = match client.path() {
        "/" => "/config_dump",
        path => path,
    };
    let sent = client.send(Method::GET, path, &[], Bytes::new(), DUMP_LEN_MAX);
    let (status, body) = sent.await?;
    anyhow::ensure!(status.is_success(), "it answers {status} to {path}");
    Ok(String::from_utf8_lossy(&body).into_owned())
}

fn environment(path: &Path) -> Result<GatewayEnvironment> {
    let text = read(path).context("--gateway-env")?;
    let name = path.display().to_string();
    GatewayEnvironment::read(&text, name.as_str())
        .map_err(|line| anyhow::anyhow!("--gateway-env: {name}: line {line} is not NAME=VALUE"))
}

fn read(path: &Path) -> Result<String> {
    std::fs::read_to_string(path).with_context(|| format!("cannot read \"{}\"", path.display()))
}

fn print(
    is_json: bool,
    findings: &[Diagnostic],
    keys: &[NamedKey],
    examined: &[String],
    not_examined: &[String],
) -> Result<()> {
    if is_json {
        let claim_fingerprints = keys.iter().map(|key| Fingerprint {
            id: &key.id,
            fingerprint: &key.fingerprint,
        });
        let report = Report {
            findings,
            claim_fingerprints: claim_fingerprints.collect(),
            examined,
            not_examined,
        };
        println!("{}", serde_json::to_string_pretty(&report)?);
        return Ok(());
    }
    for finding in findings {
        println!("{finding}");
    }
    for key in keys {
        eprintln!("claim key {}: fingerprint {}", key.id, key.fingerprint);
    }
    let count = match findings.len() {
        0 => "no findings".to_owned(),
        1 => "1 finding".to_owned(),
        count => format!("{count} findings"),
    };
    let examined = examined.join(", ");
    match not_examined {
        [] => eprintln!("{count}; examined: {examined}"),
        missing => eprintln!(
            "{count}; examined: {examined}; not examined: {}",
            missing.join(", ")
        ),
    }
    Ok(())
}

fn code(findings: &[Diagnostic]) -> ExitCode {
    match findings.iter().map(|finding| finding.severity).max() {
        None => ExitCode::SUCCESS,
        Some(Severity::Warning) => ExitCode::from(WARNINGS),
        Some(Severity::Error) => ExitCode::from(ERRORS),
    }
}
